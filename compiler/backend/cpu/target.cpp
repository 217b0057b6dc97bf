#include "backend/cpu/target.h"

#include <mutex>

#include "backend/common/llvm_common.h"
#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/DCE.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

#if defined(__linux__)
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

extern "C" {
void LLVMInitializeX86TargetInfo();
void LLVMInitializeX86Target();
void LLVMInitializeX86TargetMC();
void LLVMInitializeX86AsmPrinter();
void LLVMInitializeAArch64TargetInfo();
void LLVMInitializeAArch64Target();
void LLVMInitializeAArch64TargetMC();
void LLVMInitializeAArch64AsmPrinter();
}

namespace neso::cpu {

namespace {
/// Bytes of a vector of ARM's SVE; 0: there is none.
[[maybe_unused]] int scalableBytes() {
#if defined(__aarch64__) && defined(__linux__)
  // PR_SVE_GET_VL; the upper half of the answer are flags.
  const int answer = prctl(51, 0, 0, 0, 0);
  return answer > 0 ? answer & 0xffff : 0;
#else
  return 0;
#endif
}

/// Whether the system lets this process use the tile registers: their state is saved for processes that asked only.
bool tilesPermitted() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long requestPermission = 0x1023, tileData = 18;
  return syscall(SYS_arch_prctl, requestPermission, tileData) == 0;
#else
  return false;
#endif
}
} // namespace

namespace {
/// What this machine has, asked by the rows of abi/cpu_levels.def.
struct Host {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  llvm::Triple triple{llvm::sys::getProcessTriple()};

  bool has(llvm::StringRef name) const { return features.lookup(name); }
  bool hasTiles() const { return has("amx-tile") && has("amx-bf16") && has("amx-int8") && tilesPermitted(); }
};

#define ON_X86 &&host.triple.getArch() == llvm::Triple::x86_64
#define ON_ARM64 &&host.triple.isAArch64()
#define FEATURE(name) &&host.has(name)
#define TILES &&host.hasTiles()
#define SCALABLE(bytes) &&scalableBytes() >= bytes
#define NESO_CPU_NEEDS(level, name, needs)                                                                              \
  [[maybe_unused]] constexpr std::string_view kArchOf##level = name;                                                   \
  [[maybe_unused]] bool runs##level(const Host &host) { return true needs; }
#include "abi/cpu_levels.def"
#undef NESO_CPU_NEEDS
#undef ON_X86
#undef ON_ARM64
#undef FEATURE
#undef TILES
#undef SCALABLE
} // namespace

static bool canRun(CpuLevel level) {
  const Host host;
  switch (level) {
    // Both tables call a level alike; one without a row in the other does not compile.
#define NESO_CPU_LEVEL(level, name, ...)                                                                                \
  case CpuLevel::level:                                                                                                \
    static_assert(kArchOf##level == name);                                                                             \
    return runs##level(host);
#include "backend/cpu/levels.def"
#undef NESO_CPU_LEVEL
  }
  NESO_UNREACHABLE("CPU level");
}

std::vector<CpuLevel> runnableLevels() {
  std::vector<CpuLevel> out;
  for (size_t i = 0; i < allLevels().size(); ++i)
    if (canRun(static_cast<CpuLevel>(i))) out.push_back(static_cast<CpuLevel>(i));
  return out;
}

CpuLevel nativeLevel() {
  if (canRun(CpuLevel::Sve256)) return CpuLevel::Sve256;
  if (canRun(CpuLevel::AArch64)) return CpuLevel::AArch64;
  if (!canRun(CpuLevel::V3)) return CpuLevel::V2;
  if (!canRun(CpuLevel::V4)) return CpuLevel::V3;
  if (!canRun(CpuLevel::V4Bf16)) return CpuLevel::V4;
  if (canRun(CpuLevel::V4Amx)) return CpuLevel::V4Amx;
  // On Intel's cores a product of pairs takes longer than the two products that it stands for.
  return llvm::sys::getHostCPUName().starts_with("znver") ? CpuLevel::V4Bf16 : CpuLevel::V4;
}

std::span<const LevelInfo> allLevels() {
  static constexpr LevelInfo levels[] = {
#define NESO_CPU_LEVEL(level, name, lanes, registers, rows, vectors, fused, halves, narrow, masked, tables, pairs, tiles, bytes, scales, machine, cpu, \
                       features, wide, portable)                                                                       \
  {name, {lanes, registers, rows, vectors, fused, halves, narrow, masked, tables, pairs, tiles, ByteProducts::bytes, scales},   \
   machine, cpu, features, wide, portable},
#include "backend/cpu/levels.def"
#undef NESO_CPU_LEVEL
  };
  return levels;
}

static const LevelInfo &infoOf(CpuLevel level) { return allLevels()[static_cast<size_t>(level)]; }

std::string_view name(CpuLevel level) { return infoOf(level).name; }

std::optional<CpuLevel> parseLevel(std::string_view text) {
  if (text == "native") return nativeLevel();
  for (const LevelInfo &level : allLevels())
    if (text == level.name) return static_cast<CpuLevel>(&level - allLevels().data());
  return std::nullopt;
}

Capabilities capabilities(CpuLevel level) { return infoOf(level).caps; }

std::unique_ptr<llvm::TargetMachine> makeTargetMachine(CpuLevel level) {
  static std::once_flag once;
  std::call_once(once, [] {
    setUpLlvm();
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
  });
  llvm::Triple triple(llvm::Twine(infoOf(level).machine) + "-unknown-linux-gnu");
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target) return nullptr;
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, infoOf(level).cpu, infoOf(level).features, options, llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Default));
}

void setTargetAttributes(llvm::Function &function, CpuLevel level) {
  if (infoOf(level).wide) {
    function.addFnAttr("prefer-vector-width", "512");
    function.addFnAttr("min-legal-vector-width", "512");
  }
  // Vectors of 32 bytes, wherever they are longer.
  if (level == CpuLevel::Sve256) function.addFnAttr(llvm::Attribute::getWithVScaleRangeArgs(function.getContext(), 2, 16));
  function.addFnAttr(llvm::Attribute::NoUnwind);
}

namespace {
/// The one lane that a constant mask leaves on.
std::optional<unsigned> onlyLane(llvm::Value *mask) {
  auto *constant = llvm::dyn_cast<llvm::Constant>(mask);
  auto *type = llvm::dyn_cast<llvm::FixedVectorType>(mask->getType());
  if (!constant || !type) return std::nullopt;
  std::optional<unsigned> only;
  for (unsigned l = 0; l < type->getNumElements(); ++l) {
    llvm::Constant *lane = constant->getAggregateElement(l);
    if (!lane || lane->isNullValue()) continue;
    if (only) return std::nullopt;
    only = l;
  }
  return only;
}

/// Masked stores of one lane that is known become scalar stores. Code generation would do it too, but LLVM 22 then takes
/// the size of a lane before it was cut: narrow elements (x86, AVX-512) overwrite their neighbours.
void storeSingleLanes(llvm::Function &function) {
  llvm::SmallVector<llvm::IntrinsicInst *, 4> stores;
  for (llvm::Instruction &i : llvm::instructions(function))
    if (auto *call = llvm::dyn_cast<llvm::IntrinsicInst>(&i);
        call && call->getIntrinsicID() == llvm::Intrinsic::masked_store && onlyLane(call->getArgOperand(2)))
      stores.push_back(call);
  for (llvm::IntrinsicInst *store : stores) {
    llvm::IRBuilder<> b(store);
    const unsigned lane = *onlyLane(store->getArgOperand(2));
    llvm::Value *value = b.CreateExtractElement(store->getArgOperand(0), lane), *p = store->getArgOperand(1);
    const uint64_t size = value->getType()->getPrimitiveSizeInBits().getFixedValue() / 8;
    // Lanes of pointers have no size of their own; they are stored whole and are not narrow.
    if (!size) continue;
    const llvm::Align align = llvm::commonAlignment(store->getParamAlign(1).valueOrOne(), lane * size);
    b.CreateAlignedStore(value, b.CreateConstGEP1_64(b.getInt8Ty(), p, lane * size), align);
    store->eraseFromParent();
  }
}
} // namespace

void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  PassAnalyses analyses(machine);
  llvm::FunctionPassManager fpm;
  fpm.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  fpm.addPass(llvm::EarlyCSEPass(true));
  fpm.addPass(llvm::SimplifyCFGPass());
  fpm.addPass(llvm::InstCombinePass());
  fpm.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  fpm.addPass(llvm::EarlyCSEPass());
  fpm.addPass(llvm::SimplifyCFGPass());
  for (llvm::Function &f : module)
    if (!f.isDeclaration()) {
      fpm.run(f, analyses.function);
      storeSingleLanes(f);
    }
}

std::vector<uint8_t> emitObject(llvm::Module &module, llvm::TargetMachine &machine, bool assembly) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream os(bytes);
  llvm::legacy::PassManager pm;
  bool unsupported = machine.addPassesToEmitFile(
      pm, os, nullptr, assembly ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile,
      /*DisableVerify=*/true);
  NESO_CHECK(!unsupported, "target cannot emit objects");
  pm.run(module);
  return {bytes.begin(), bytes.end()};
}

} // namespace neso::cpu
