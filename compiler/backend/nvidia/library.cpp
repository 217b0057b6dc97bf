#include "backend/nvidia/library.h"

#include "backend/common/special.h"
#include "backend/nvidia/toolkit.h"
#include "base/diagnostics/backend.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

namespace neso::nvidia {

namespace {

/// What the device itself provides.
bool isSystem(llvm::StringRef name) { return name == "vprintf" || name == "__assertfail" || name.starts_with("llvm."); }

/// modf by truncation; the fraction of infinity is zero.
void lowerModf(llvm::CallInst *call) {
  llvm::IRBuilder<> b(call);
  llvm::Value *x = call->getArgOperand(0);
  llvm::Value *whole = b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x);
  llvm::Value *zero = llvm::ConstantFP::get(x->getType(), 0.0);
  llvm::Value *infinite =
      b.CreateFCmpOEQ(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), llvm::ConstantFP::getInfinity(x->getType()));
  llvm::Value *fraction = b.CreateSelect(infinite, zero, b.CreateFSub(x, whole));
  fraction = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, fraction, x);
  llvm::Value *pair = b.CreateInsertValue(llvm::PoisonValue::get(call->getType()), fraction, 0);
  call->replaceAllUsesWith(b.CreateInsertValue(pair, whole, 1));
  call->eraseFromParent();
}

/// Intrinsics of elementary functions that the code generator has no instructions for: calls of the library's.
void lowerIntrinsics(llvm::Module &module) {
  static const std::pair<llvm::Intrinsic::ID, const char *> functions[] = {
      {llvm::Intrinsic::exp, "exp"},    {llvm::Intrinsic::exp2, "exp2"},   {llvm::Intrinsic::log, "log"},
      {llvm::Intrinsic::log2, "log2"},  {llvm::Intrinsic::log10, "log10"}, {llvm::Intrinsic::sin, "sin"},
      {llvm::Intrinsic::cos, "cos"},    {llvm::Intrinsic::pow, "pow"},     {llvm::Intrinsic::tan, "tan"},
      {llvm::Intrinsic::sinh, "sinh"},  {llvm::Intrinsic::cosh, "cosh"},   {llvm::Intrinsic::tanh, "tanh"},
      {llvm::Intrinsic::asin, "asin"},  {llvm::Intrinsic::acos, "acos"},   {llvm::Intrinsic::atan, "atan"},
      {llvm::Intrinsic::atan2, "atan2"}};
  for (llvm::Function &f : module) {
    if (f.getIntrinsicID() == llvm::Intrinsic::modf)
      for (llvm::User *user : llvm::make_early_inc_range(f.users())) lowerModf(llvm::cast<llvm::CallInst>(user));
    if (!f.isIntrinsic() || !f.getReturnType()->isFloatingPointTy()) continue;
    for (auto [id, name] : functions) {
      if (f.getIntrinsicID() != id) continue;
      std::string symbol = std::string("__nv_") + name + (f.getReturnType()->isFloatTy() ? "f" : "");
      llvm::FunctionCallee callee = module.getOrInsertFunction(symbol, f.getFunctionType());
      for (llvm::User *user : llvm::make_early_inc_range(f.users()))
        if (auto *call = llvm::dyn_cast<llvm::CallInst>(user)) call->setCalledFunction(callee);
      break;
    }
  }
}

/// The C library's log-gamma that gives the sign to its caller, who never asks for it: libdevice has the other one alone.
void lowerLogGamma(llvm::Module &module) {
  for (const auto &[reentrant, own] : {std::pair("lgamma_r", "__nv_lgamma"), std::pair("lgammaf_r", "__nv_lgammaf")}) {
    llvm::Function *f = module.getFunction(reentrant);
    if (!f) continue;
    for (llvm::User *user : llvm::make_early_inc_range(f->users())) {
      auto *call = llvm::cast<llvm::CallInst>(user);
      llvm::Type *type = call->getType();
      llvm::FunctionCallee device = module.getOrInsertFunction(own, type, type);
      call->replaceAllUsesWith(llvm::IRBuilder<>(call).CreateCall(device, {call->getArgOperand(0)}));
      call->eraseFromParent();
    }
  }
}

/// libm names become those of libdevice. Whether any function is left to define.
bool needsLibdevice(llvm::Module &module) {
  bool needed = false;
  for (llvm::Function &f : llvm::make_early_inc_range(module)) {
    if (!f.isDeclaration() || f.isIntrinsic() || isSystem(f.getName())) continue;
    if (f.use_empty()) {
      f.eraseFromParent();
      continue;
    }
    needed = true;
    if (f.getName().starts_with("__nv_")) continue;
    llvm::FunctionCallee device = module.getOrInsertFunction("__nv_" + f.getName().str(), f.getFunctionType());
    f.replaceAllUsesWith(device.getCallee());
    f.eraseFromParent();
  }
  return needed;
}

std::unique_ptr<llvm::MemoryBuffer> readLibdevice(const std::string &ptxas) {
  for (const std::string &root : toolkitFolders(ptxas))
    for (llvm::StringRef folder : {"nvvm/libdevice", "lib"}) {
      llvm::SmallString<128> path(root);
      llvm::sys::path::append(path, folder, "libdevice.10.bc");
      if (auto buffer = llvm::MemoryBuffer::getFile(path)) return std::move(*buffer);
    }
  return nullptr;
}

std::string firstUndefined(const llvm::Module &module) {
  for (const llvm::Function &f : module)
    if (f.isDeclaration() && !f.isIntrinsic() && !isSystem(f.getName())) return f.getName().str();
  return {};
}

} // namespace

Status linkLibraries(llvm::Module &module, const std::string &ptxas) {
  linkSpecialFunctions(module);
  lowerIntrinsics(module);
  lowerLogGamma(module);
  if (!needsLibdevice(module)) return Status::ok();
  std::unique_ptr<llvm::MemoryBuffer> file = readLibdevice(ptxas);
  if (!file) return fail(diag::NvidiaNoLibrary, {}, firstUndefined(module));
  auto library = llvm::getLazyBitcodeModule(file->getMemBufferRef(), module.getContext());
  if (!library) {
    llvm::consumeError(library.takeError());
    return fail(diag::NvidiaNoLibrary, {}, firstUndefined(module));
  }
  (*library)->setDataLayout(module.getDataLayout());
  (*library)->setTargetTriple(module.getTargetTriple());
  bool failed = llvm::Linker::linkModules(
      module, std::move(*library), llvm::Linker::LinkOnlyNeeded, [](llvm::Module &m, const llvm::StringSet<> &names) {
        for (const auto &name : names)
          if (llvm::GlobalValue *g = m.getNamedValue(name.getKey()); g && !g->isDeclaration())
            g->setLinkage(llvm::GlobalValue::InternalLinkage);
      });
  std::string missing = failed ? "all of it" : "";
  for (const llvm::Function &f : module)
    if (f.isDeclaration() && !f.isIntrinsic() && !isSystem(f.getName()) && f.getName() != "__nvvm_reflect")
      missing = f.getName().str();
  if (!missing.empty()) return fail(diag::NvidiaNoLibrary, {}, missing);
  return Status::ok();
}

} // namespace neso::nvidia
