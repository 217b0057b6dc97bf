// NVIDIA's chips as targets.
#include <algorithm>
#include <array>
#include <iterator>

#include "abi/plan_generated.h"
#include "backend/nvidia/compile.h"
#include "backend/nvidia/dot.h"
#include "backend/target.h"
#include "base/diagnostics/backend.h"
#include "ir/tile/passes/passes.h"
#include "mlir/IR/BuiltinOps.h"

namespace neso {
namespace nvidia {
namespace {

constexpr std::string_view kUsual = "sm_90a";
constexpr std::string_view kStages[] = {"llvm", "layout", "ptx", "sass"};

/// Measured on an H200. Those of products were fitted to some 100 products of f32 (to within 9 %), those of whole products
/// of 16 bits to products of models, about 1000 x 3000 x 1000, which do not fill the chip for long: 1024 x 3072 x 768 with a
/// gelu takes 24 us here, 19 with the library and the rest. The ratios between blocks are alike on other chips.
MachineSheet rates() {
  MachineSheet s;
  s.ieee = {90, 51, 29, 283, 40, 3640};
  s.tf32x3 = {97, 51, 29, 283, 6, 3640};
  s.tf32 = {290, 61, 29, 150, 6, 3640};
  s.clock = 1800;
  s.narrow = {0.24, 1.1e6}, s.wide = {0.27, 0.18e6};
  s.secondKernel = 3, s.bytesPerUs = 3e6, s.cacheBytesPerUs = 6e6;
  s.ownFlops = 240e6 / 132, s.libraryFlops = 640e6 / 132, s.launch = 1.5, s.nextLaunch = 1.8;
  s.elementsPerCycle = 128, s.productsPerCycle = 1024, s.bytesPerCycle = 16, s.tripCycles = 500, s.startCycles = 1000;
  return s;
}

/// Products of bf16 by wgmma, tiles copied by the machine where that is faster (passes/boxes.h), on an H100: fitted to `gemm` at 34 shapes of
/// models, from 1024 x 768 x 64 to 4096 x 4096 x 4096 (bench/gpu/README.md). One program that has a processor to itself needs a ring that is deep
/// enough to wait for nothing: five and eight slots. The first two rows are those with which models were faster, and favour 128 x 128 over what `gemm`
/// takes, by up to 15 % (driver/test/blocks_test.cpp): of two programs one multiplies while the other computes what is fused behind its sums
/// (BERT-base 0.653 ms, with the rows of `gemm` 0.675; Llama 8 layers 6.54 and 6.76). Rings hold the columns that count alone (passes/products.cpp): the rows of 192, 144
/// and 96 columns have the slots for which there is room then, and were set beside that of 128 x 128 by linear layers of 384 to 1576 rows, one a graph (bench/gpu/README.md).
constexpr ProductBlock kGroupBlocks[] = {{128, 256, 64, 8, 3, 1, 8.5, 9.6, 2.5},
                                         {128, 128, 64, 8, 3, 2, 6.5, 9.8, 1.35},
                                         {128, 192, 64, 8, 5, 1, 5.8, 7.5, 2.2},
                                         {128, 144, 64, 8, 6, 1, 4.6, 6.0, 2.0},
                                         {128, 128, 64, 8, 5, 1, 4.1, 5.5, 1.95},
                                         {128, 96, 64, 8, 7, 1, 3.1, 4.2, 1.75},
                                         {64, 192, 64, 4, 6, 1, 3.0, 4.7, 1.75},
                                         {64, 256, 64, 4, 3, 1, 4.7, 5.7, 1.85},
                                         {64, 128, 64, 4, 4, 2, 5.95, 7.25, 1.3},
                                         {64, 128, 64, 4, 8, 1, 2.8, 3.75, 1.55},
                                         {256, 64, 64, 8, 3, 1, 5.6, 7.8, 1.65},
                                         {128, 64, 64, 4, 4, 2, 6.2, 7.75, 1.4},
                                         {128, 64, 64, 4, 8, 1, 2.9, 4.3, 1.5},
                                         {64, 64, 128, 4, 4, 1, 1.7, 2.6, 1.25}};

/// Products by tcgen05: the blocks of those above that fill tensor memory's rows. Not measured yet; the figures are those of wgmma.
constexpr ProductBlock kTensorMemoryBlocks[] = {kGroupBlocks[0], kGroupBlocks[1], kGroupBlocks[2], kGroupBlocks[3], kGroupBlocks[4], kGroupBlocks[5],
                                                kGroupBlocks[10], kGroupBlocks[11], kGroupBlocks[12]};
static_assert(std::ranges::all_of(kTensorMemoryBlocks, [](const ProductBlock &block) { return block.m >= 128; }));

/// Products of f32 by three of tf32 by wgmma, on an H200: x times the transpose of w, a multiple of 132 programs, k of 512 and 2048. By mma.sync
/// 64 x 128 in eight warps takes 50 microseconds for 1,024 of k, 97 where two share a processor.
constexpr ProductBlock kSplitBlocks[] = {{64, 16, 64, 4, 2, 4, 8.7, 20.2, 2.0},
                                         {64, 32, 64, 4, 3, 2, 10.5, 16.0, 2.35},
                                         {64, 64, 64, 4, 2, 2, 17.5, 28.8, 2.1},
                                         {128, 16, 64, 4, 2, 2, 12.3, 20.4, 2.3},
                                         {128, 32, 64, 8, 2, 1, 15.6, 15.6, 2.1},
                                         {128, 64, 64, 8, 3, 1, 22.7, 22.7, 3.1}};

MachineSheet sheetOf(const Chip &chip) {
  MachineSheet s = rates();
  // Products of f32 take twice as long by mma.sync; not all of a model's can be done by wgmma.
  // By wgmma they are as fast as the library's up to this, on an H200 with nothing but the library changed: BERT-large 1.055 ms and 1.101, Swin-T 0.652 and 0.674, Whisper's
  // encoder 0.428 and 0.436, ConvNeXt-T 0.760 and 0.770; since rings hold no dead columns BERT-base 0.566 and 0.602, GPT-2 0.804 and 0.833 (products of 4.8e9). Of larger ones Llama 4
  // layers 1 x 512 0.459 and 0.422, 8 layers 4 x 1024 5.81 and 5.62.
  if (chip.has(Feature::Wgmma)) s.libraryLeast = 5e9;
  if (chip.has(Feature::Wgmma)) s.blocks = kGroupBlocks, s.splitBlocks = kSplitBlocks, s.wide.rate = 0.3e6, s.groupRows = 64;
  if (chip.has(Feature::Tcgen05)) s.blocks = kTensorMemoryBlocks, s.groupRows = 128;
  s.processors = chip.sms;
  s.splitSums = kMostSplitSums;
  s.sharedBytes = chip.sharedPerBlock, s.sharedPerProcessor = chip.sharedPerSm, s.programOverhead = kSharedOfSystem;
  s.registers = chip.registersPerSm, s.threadRegisters = 255;
  s.threads = chip.threadsPerSm, s.programs = chip.blocksPerSm;
  // A launch takes a microsecond or two, in which megabytes are moved, and has 4 KiB of parameters.
  s.packedBytes = int64_t{2} << 20, s.packedBuffers = 200;
  return s;
}

class NvidiaBackend final : public Backend {
public:
  NvidiaBackend() {
    for (const Chip &chip : allChips())
      targets_.push_back({chip.arch, sheetOf(chip), {true, true, true}, this, static_cast<int>(targets_.size())});
  }
  std::string_view kind() const override { return "cuda"; }
  std::span<const Target> targets() const override { return targets_; }
  // Nothing here needs a GPU at hand.
  const Target &usual() const override { return *find(kUsual); }
  const Target *native() const override { return nullptr; }
  std::span<const std::string_view> stages() const override { return kStages; }
  // Layouts are chosen for what is left after common parts are shared and loops hold only what changes.
  Status prepare(mlir::ModuleOp module) const override { return runTilePipeline(module); }

  const Target *find(std::string_view name) const override {
    const Chip *chip = findChip(name);
    return chip ? &targets_[static_cast<size_t>(chip - allChips().data())] : nullptr;
  }

  const Target *ofDevice(std::string_view name) const override {
    const Target *target = find(name);
    const Target *own = target ? find(std::string(target->name) + "a") : nullptr;
    // Instructions that nothing of ours has run are for those who ask for them.
    return own && !findChip(own->name)->untried() ? own : target;
  }

  Result<GeneratedCode> compile(const std::vector<TileFunction> &functions, const Target &target,
                                const CodeRequest &request) const override {
    CompileOptions options;
    options.threads = request.threads;
    options.keepLlvm = request.wants("llvm"), options.keepPtx = request.wants("ptx");
    options.keepLayouts = request.wants("layout"), options.keepSass = request.wants("sass");
    options.assemble = (request.package || options.keepSass) && request.assembler != "none";
    if (options.assemble) options.ptxas = request.assembler;
    options.boxes = request.boxes;
    Result<CompiledModule> made = compileForNvidia(functions, allChips()[static_cast<size_t>(target.number)], options);
    if (!made) return made.takeError();
    GeneratedCode out;
    CompiledCode &ptx = made->code.back();
    if (options.keepLlvm) out.texts.emplace_back("llvm", std::move(ptx.llvmText));
    if (options.keepLayouts) out.texts.emplace_back("layout", std::move(made->layoutText));
    if (options.keepPtx)
      out.texts.emplace_back("ptx", std::move(made->ownPtxText.empty() ? ptx.asmText : made->ownPtxText));
    if (options.keepSass) out.texts.emplace_back("sass", std::move(made->sassText));
    out.warnings = warningsOf(*made, target.name);
    out.usage = std::move(made->usage);
    for (CompiledCode &code : made->code) code.devices = static_cast<uint8_t>(fbs::TargetKind::Cuda);
    // What runs as it is stands behind what the driver must still translate.
    std::move(made->code.rbegin(), made->code.rend(), std::back_inserter(out.code));
    return out;
  }

private:
  std::vector<Target> targets_;
};

} // namespace

std::vector<Diagnostic> warningsOf(const CompiledModule &made, std::string_view arch) {
  std::vector<Diagnostic> out;
  if (!made.serialised.empty())
    out.push_back(makeDiag(diag::NvidiaSerialised, {}, std::string(arch), made.serialised));
  for (const FunctionUsage &u : made.usage)
    if (u.spillBytes > 0 && !u.heldForTwo)
      out.push_back(makeDiag(diag::NvidiaSpills, {}, u.name, u.spillBytes, u.registers, std::string(arch)));
  return out;
}

} // namespace nvidia

const Backend &nvidiaBackend() {
  static const nvidia::NvidiaBackend backend;
  return backend;
}

} // namespace neso
