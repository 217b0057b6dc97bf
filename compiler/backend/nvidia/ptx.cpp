#include "backend/nvidia/ptx.h"

#include <mutex>
#include <set>
#include <string_view>

#include "backend/common/llvm_common.h"
#include "base/diagnostics.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/PatternMatch.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Transforms/IPO/AlwaysInliner.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/ADCE.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/GVN.h"
#include "llvm/Transforms/Scalar/InferAlignment.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/LoopRotation.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

namespace neso::nvidia {

std::unique_ptr<llvm::TargetMachine> makeTargetMachine(const Chip &chip) {
  static std::once_flag once;
  std::call_once(once, [] {
    setUpLlvm();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target) return nullptr;
  // Multiplications and additions are joined where the emitter allows it (the contract flag), nowhere else.
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  const std::string features = "+ptx" + std::to_string(chip.ptxVersion);
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, chip.arch, features, options, llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

/// (x & a) | b of constants is one instruction, which ptxas makes two of: each has room for one constant, and it moves none to a register for that. A number that becomes
/// the mantissa of a float, as those of narrow weights do, is computed so.
static void joinMasks(llvm::Module &module) {
  constexpr const char *kAndOr = "0xEA"; // of lop3: (0xF0 & 0xCC) | 0xAA
  // Below this are parts of indices, which LLVM still folds into addresses.
  constexpr uint64_t kExponents = 1 << 24;
  for (llvm::Function &f : module)
    for (llvm::BasicBlock &block : f)
      for (llvm::Instruction &op : llvm::make_early_inc_range(block)) {
        llvm::Value *x = nullptr;
        uint64_t mask = 0, bits = 0;
        using namespace llvm::PatternMatch;
        if (!op.getType()->isIntegerTy(32) || !match(&op, m_Or(m_And(m_Value(x), m_ConstantInt(mask)), m_ConstantInt(bits))) || bits < kExponents) continue;
        llvm::IRBuilder<> b(&op);
        const std::string text = "lop3.b32 $0, $1, " + std::to_string(mask) + ", " + std::to_string(bits) + ", " + kAndOr + ";";
        op.replaceAllUsesWith(b.CreateCall(llvm::InlineAsm::get(llvm::FunctionType::get(b.getInt32Ty(), {b.getInt32Ty()}, false), text, "=r,r", /*hasSideEffects=*/false), {x}));
        op.eraseFromParent();
      }
}

void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  PassAnalyses analyses(machine);
  // Library code comes in as calls; what is left of it after inlining goes.
  llvm::ModulePassManager mpm;
  mpm.addPass(llvm::AlwaysInlinerPass());
  mpm.addPass(llvm::GlobalDCEPass());
  llvm::FunctionPassManager fpm;
  fpm.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  fpm.addPass(llvm::EarlyCSEPass(true));
  fpm.addPass(llvm::SimplifyCFGPass());
  fpm.addPass(llvm::InstCombinePass());
  fpm.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  fpm.addPass(llvm::GVNPass());
  fpm.addPass(llvm::InstCombinePass());
  fpm.addPass(llvm::ADCEPass());
  fpm.addPass(llvm::SimplifyCFGPass());
  // Accesses beside one another become one of up to 16 bytes, where they are known to be aligned so.
  fpm.addPass(llvm::InferAlignmentPass());
  mpm.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(fpm)));
  mpm.run(module, analyses.module);
  joinMasks(module);
}

namespace {

/// A block of more instructions than this is left without straight-line strength reduction, which asks of pairs of them whether one may stand for
/// the other and reads the block behind them each time: a rotary embedding in tiles of 64 x 64 x 64 took over 60 s.
constexpr size_t kMostReduced = 6000;

/// The target's passes, but for that one where a block is too large for it.
class TargetPasses : public llvm::legacy::PassManager {
public:
  explicit TargetPasses(const llvm::Module &module)
      : large_(llvm::any_of(module, [](const llvm::Function &f) {
          return llvm::any_of(f, [](const llvm::BasicBlock &block) { return block.size() > kMostReduced; });
        })) {}
  void add(llvm::Pass *pass) override {
    if (large_ && pass->getPassName() == "Straight line strength reduction")
      delete pass;
    else
      llvm::legacy::PassManager::add(pass);
  }

private:
  bool large_;
};

} // namespace

std::string emitPtx(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream os(text);
  TargetPasses pm(module);
  bool unsupported =
      machine.addPassesToEmitFile(pm, os, nullptr, llvm::CodeGenFileType::AssemblyFile, /*DisableVerify=*/true);
  NESO_CHECK(!unsupported, "the NVPTX target cannot write PTX");
  pm.run(module);
  return std::string(text);
}

std::string joinPtx(const std::vector<std::string> &modules, std::string_view arch) {
  std::string out;
  std::set<std::string, std::less<>> seen;
  for (size_t m = 0; m < modules.size(); ++m) {
    std::string_view rest = modules[m];
    std::string declaration; // an extern declaration that runs over several lines
    while (!rest.empty()) {
      size_t end = rest.find('\n');
      std::string_view line = rest.substr(0, end == std::string_view::npos ? rest.size() : end + 1);
      rest.remove_prefix(line.size());
      const bool header =
          line.starts_with(".version") || line.starts_with(".target") || line.starts_with(".address_size");
      if ((header || line.starts_with("//")) && m > 0) continue;
      if (line.starts_with(".target") && !arch.empty()) {
        out += ".target " + std::string(arch) + "\n";
        continue;
      }
      if (!declaration.empty() || line.starts_with(".extern")) {
        declaration += line;
        if (line.find(';') == std::string_view::npos) continue;
        if (seen.insert(declaration).second) out += declaration;
        declaration.clear();
        continue;
      }
      out += line;
    }
  }
  return out;
}

bool limitRegisters(std::string &ptx, const std::string &entry, int most) {
  const size_t at = ptx.find(".entry " + entry + "(");
  const size_t body = ptx.find("\n{", at);
  if (at == std::string::npos || body == std::string::npos) return false;
  ptx.insert(body, "\n.maxnreg " + std::to_string(most));
  return true;
}

} // namespace neso::nvidia
