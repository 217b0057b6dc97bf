#include "backend/common/llvm_common.h"

#include <cctype>
#include <mutex>

#include "base/diagnostics.h"
#include "base/fault.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"

namespace neso {

void setUpLlvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::install_fatal_error_handler(
        [](void *, const char *why, bool) { internalFault(std::string("LLVM: ") + why); });
    auto &registered = llvm::cl::getRegisteredOptions();
    auto set = [&](llvm::StringRef option, llvm::StringRef value) {
      if (auto it = registered.find(option); it != registered.end()) it->second->addOccurrence(0, option, value);
    };
    // This pass of LLVM 22 aborts on masked AVX2 stores, whose size it takes for a scalable one; it repairs a pattern
    // of scalar code.
    set("x86-disable-avoid-SFB", "true");
    // CodeGenPrepare goes over a whole function again after each change unless the function is huge: quadratic where loops
    // are written out. As if all were huge it looks at changed blocks alone.
    set("cgpp-huge-func", "0");
  });
}

std::string entrySymbol(const std::string &name, std::set<std::string> &taken) {
  std::string symbol = "neso_k_";
  for (char c : name) symbol += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  std::string unique = symbol;
  for (int i = 1; !taken.insert(unique).second; ++i) unique = symbol + "_" + std::to_string(i);
  return unique;
}

static llvm::CmpInst::Predicate predicateOf(mlir::arith::CmpIPredicate predicate) {
  using P = mlir::arith::CmpIPredicate;
  switch (predicate) {
  case P::eq: return llvm::CmpInst::ICMP_EQ;
  case P::ne: return llvm::CmpInst::ICMP_NE;
  case P::slt: return llvm::CmpInst::ICMP_SLT;
  case P::sle: return llvm::CmpInst::ICMP_SLE;
  case P::sgt: return llvm::CmpInst::ICMP_SGT;
  case P::sge: return llvm::CmpInst::ICMP_SGE;
  case P::ult: return llvm::CmpInst::ICMP_ULT;
  case P::ule: return llvm::CmpInst::ICMP_ULE;
  case P::ugt: return llvm::CmpInst::ICMP_UGT;
  case P::uge: return llvm::CmpInst::ICMP_UGE;
  }
  NESO_UNREACHABLE("integer predicate");
}

static llvm::CmpInst::Predicate predicateOf(mlir::arith::CmpFPredicate predicate) {
  using P = mlir::arith::CmpFPredicate;
  switch (predicate) {
  case P::AlwaysFalse: return llvm::CmpInst::FCMP_FALSE;
  case P::OEQ: return llvm::CmpInst::FCMP_OEQ;
  case P::OGT: return llvm::CmpInst::FCMP_OGT;
  case P::OGE: return llvm::CmpInst::FCMP_OGE;
  case P::OLT: return llvm::CmpInst::FCMP_OLT;
  case P::OLE: return llvm::CmpInst::FCMP_OLE;
  case P::ONE: return llvm::CmpInst::FCMP_ONE;
  case P::ORD: return llvm::CmpInst::FCMP_ORD;
  case P::UEQ: return llvm::CmpInst::FCMP_UEQ;
  case P::UGT: return llvm::CmpInst::FCMP_UGT;
  case P::UGE: return llvm::CmpInst::FCMP_UGE;
  case P::ULT: return llvm::CmpInst::FCMP_ULT;
  case P::ULE: return llvm::CmpInst::FCMP_ULE;
  case P::UNE: return llvm::CmpInst::FCMP_UNE;
  case P::UNO: return llvm::CmpInst::FCMP_UNO;
  case P::AlwaysTrue: return llvm::CmpInst::FCMP_TRUE;
  }
  NESO_UNREACHABLE("float predicate");
}

llvm::Value *emitCompare(llvm::IRBuilder<> &b, mlir::Operation *op, llvm::Value *x, llvm::Value *y) {
  if (auto integers = llvm::dyn_cast<mlir::arith::CmpIOp>(op))
    return b.CreateICmp(predicateOf(integers.getPredicate()), x, y);
  return b.CreateFCmp(predicateOf(llvm::cast<mlir::arith::CmpFOp>(op).getPredicate()), x, y);
}

PassAnalyses::PassAnalyses(llvm::TargetMachine &machine) {
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(module);
  builder.registerCGSCCAnalyses(cgscc);
  builder.registerFunctionAnalyses(function);
  builder.registerLoopAnalyses(loop);
  builder.crossRegisterProxies(loop, function, cgscc, module);
}

} // namespace neso
