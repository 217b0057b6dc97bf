#include "lower/tiling/cost.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace neso {

int64_t nextPowerOfTwo(int64_t n) {
  // Of a size that the data decides nothing may be known but that it is an int64.
  constexpr int64_t kMost = int64_t{1} << 62;
  return n >= kMost ? kMost : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n < 1 ? 1 : n)));
}

int64_t upperBound(const Facts &facts, Expr extent, int64_t unbounded) {
  int64_t hi = facts.rangeOf(extent).hi;
  return hi == INT64_MAX ? unbounded : hi;
}

int64_t pointwiseElements(const TileTarget &target, int64_t elements) {
  int64_t block = target.pointwiseBlock;
  while (block > 128 && elements < block * target.processors * 2) block /= 2;
  return block;
}

int warpsFor(int64_t elements, int64_t perThread) {
  int warps = 1;
  while (warps < 16 && elements > int64_t{32} * warps * perThread) warps *= 2;
  return warps;
}

RowBlock rowBlock(const TileTarget &target, int64_t rows, int64_t length, bool severalPasses, int64_t chunk) {
  RowBlock b;
  int64_t whole = nextPowerOfTwo(length);
  int64_t limit = severalPasses ? target.registerRow : chunk;
  b.inner = whole <= limit ? whole : chunk;
  // Short rows share a program, as long as every processor keeps two programs.
  while (b.rows * b.inner < 1024 && b.rows < nextPowerOfTwo(rows) && rows >= b.rows * 2 * target.processors * 2)
    b.rows *= 2;
  // A warp for each row costs no exchange between warps: rows of few elements take at least a warp's worth.
  while (b.rows * b.inner < 32 && b.rows < nextPowerOfTwo(rows)) b.rows *= 2;
  return b;
}

RowBlock columnBlock(const TileTarget &target, int64_t results, int64_t length, bool severalPasses) {
  // As many elements are held by a program, so that passes behind the first read nothing.
  constexpr int64_t kHeld = 8192;
  RowBlock b;
  b.inner = std::min(nextPowerOfTwo(results), target.columnBlock);
  while (b.inner > 16 && results < b.inner * target.processors) b.inner /= 2;
  const int64_t all = nextPowerOfTwo(length);
  b.rows = severalPasses && all * b.inner <= kHeld ? all : std::min(all, std::max<int64_t>(2048 / b.inner, 1));
  return b;
}

namespace {

const ProductRates &dotRates(const TileTarget &target) {
  switch (target.f32Products) {
  case tile::F32Products::Ieee: return target.machine.ieee;
  case tile::F32Products::Tf32x3: return target.machine.tf32x3;
  case tile::F32Products::Tf32: return target.machine.tf32;
  }
  NESO_UNREACHABLE("precision of products");
}

/// Cycles of a multiprocessor for its share of `tiles` programs of block `d`, with `steps` steps of k each.
double dotCost(const TileTarget &target, const DotBlock &d, int64_t tiles, int64_t steps, int64_t itemBytes) {
  const ProductRates &rates = dotRates(target);
  const MachineSheet &machine = target.machine;
  // Warps divide the block as backend/nvidia/dot.cpp has it: the longer side of a warp's part is cut.
  int64_t warpM = d.m, warpN = d.n;
  for (int w = d.warps; w > 1; w /= 2)
    if (warpM > 16 && 2 * (warpM / 16) >= warpN / 8)
      warpM /= 2;
    else if (warpN > 8)
      warpN /= 2;
  double products = static_cast<double>(d.m * d.n * d.k) / rates.products;
  // Written once by the copies, read by each warp that needs it.
  double shared = static_cast<double>((d.m + d.n + d.warps * (warpM + warpN)) * d.k * itemBytes) / rates.shared;
  double global = static_cast<double>((d.m + d.n) * d.k * itemBytes) / rates.global;
  // Fewer than four warps leave a part of the processor idle.
  double alone = rates.step + rates.substep * static_cast<double>(d.k * itemBytes / 32) +
                 products / 2 * std::max(1.0, 4.0 / d.warps) + shared / 2;
  double together = std::max({products, shared, global});
  // How many fit side by side: sums, as many again where they are kept apart, and what else a thread needs.
  int64_t sums = warpM * warpN / 32 * 2, registers = std::min(machine.threadRegisters, sums + (warpM + warpN) / 4 + 60);
  int64_t fit =
      std::min(machine.sharedBytes / (d.stages * (d.m + d.n) * d.k * itemBytes), machine.registers / (registers * 32 * d.warps));
  if (fit < 1 || sums > 128) return std::numeric_limits<double>::max();
  int64_t share = (tiles + target.processors - 1) / target.processors, rounds = share / fit, rest = share % fit;
  auto round = [&](int64_t n) {
    return std::max(alone, static_cast<double>(n) * together) * static_cast<double>(steps) + rates.program;
  };
  return static_cast<double>(rounds) * round(fit) + (rest ? round(rest) : 0);
}

using CostedBlocks = std::vector<std::pair<double, DotBlock>>;

/// Microseconds of a long epilogue, in all rounds of programs: half of it is hidden where another program of the processor multiplies meanwhile.
double epilogueTime(const MachineSheet &machine, const ProductBlock &b, int64_t tiles) {
  // On an H200 a gelu behind 1576 x 3072 x 768 takes 22.9 microseconds in two rounds of 128 x 192 and 22.2 in blocks of 128 x 128 of which two share a processor,
  // behind 1500 x 2048 x 512 10.9 in one round and 11.9. Four warps take longer over as much: 384 x 4096 x 1024 11.4 in 64 x 192, and 9.1 in 128 x 96 of eight.
  constexpr double kElementsPerUs = 9000; // of a processor with as many warps as this, or more
  constexpr int kWarps = 8;
  const int64_t round = machine.processors * b.together, rounds = (tiles + round - 1) / round;
  const double fewWarps = std::max(1.0, static_cast<double>(kWarps) / (b.warps * b.together));
  return static_cast<double>(rounds * b.m * b.n * b.together) / kElementsPerUs / (b.together > 1 ? 2 : 1) * fewWarps;
}

/// Blocks that were measured, with their times in microseconds.
CostedBlocks measuredBlocks(const MachineSheet &machine, std::span<const ProductBlock> blocks, const DotSizes &s) {
  CostedBlocks out;
  for (const ProductBlock &b : blocks) {
    if (!s.stored && !std::has_single_bit(static_cast<uint64_t>(b.n))) continue;
    const int64_t tiles = tilesOf(b, s.batch, s.m, s.n);
    out.emplace_back(blockTime(machine, b, tiles, s.k) + (s.longEpilogue ? epilogueTime(machine, b, tiles) : 0),
                     DotBlock{b.m, b.n, std::min(b.k, nextPowerOfTwo(s.k)), b.warps, b.stages});
  }
  return out;
}

void sortByCost(CostedBlocks &blocks) {
  std::stable_sort(blocks.begin(), blocks.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
}

} // namespace

std::vector<DotBlock> dotBlocks(const TileTarget &target, const DotSizes &sizes) {
  const auto [batch, m, n, k, itemBytes, split, stored, longEpilogue, inParts] = sizes;
  if (itemBytes == 1) {
    // What is measured and estimated of 16 bits holds for as many bytes.
    DotSizes wide = sizes;
    wide.itemBytes = 2, wide.k = (k + 1) / 2;
    std::vector<DotBlock> blocks = dotBlocks(target, wide);
    constexpr int64_t kMostSumsInParts = 64; // of a thread
    if (inParts) std::erase_if(blocks, [](const DotBlock &b) { return b.m * b.n > kMostSumsInParts * 32 * b.warps; });
    for (DotBlock &b : blocks) b.k *= 2;
    return blocks;
  }
  CostedBlocks byCost;
  // Of equal ones the first: wide blocks ran faster than high ones.
  for (int64_t bm : itemBytes <= 2 ? std::array<int64_t, 4>{128, 64, 32, 16} : std::array<int64_t, 4>{64, 128, 32, 16})
    for (int64_t bn : {256, 128, 64, 32, 16}) {
      if (bn == 256 && (itemBytes > 2 || bm < 128)) continue;
      double least = std::numeric_limits<double>::max();
      DotBlock best;
      if (itemBytes <= 2) {
        // The fit describes products alone; in models (BERT, Llama) this plainer rule ran 4 to 8 % faster: a step of k
        // costs the products, the bytes of both operands and a fixed part. A warp has 64 x 64 of a large block: of all
        // parts whose sums fit its registers that one reads least for each product.
        const bool large = bm * bn >= 128 * 128;
        int64_t tiles = batch * ((m + bm - 1) / bm) * ((n + bn - 1) / bn),
                waves = (tiles + target.processors - 1) / target.processors;
        best.m = bm, best.n = bn, best.k = std::clamp<int64_t>(nextPowerOfTwo(k), 16, large ? 32 : 64);
        best.warps = large                ? static_cast<int>(bm * bn / (64 * 64))
                     : bm * bn >= 32 * 32 ? 4
                     : bm * bn >= 16 * 32 ? 2
                                          : 1;
        // One program on a processor has its shared memory to itself, and nobody else to work while it waits.
        best.stages = waves > 1 ? 4 : 6;
        byCost.emplace_back(static_cast<double>(waves) *
                                (static_cast<double>(bm * bn) + 48.0 * static_cast<double>(bm + bn) + 1024.0),
                            best);
        continue;
      }
      const bool isSplit = itemBytes == itemSize(DType::F32) && target.f32Products == tile::F32Products::Tf32x3;
      const int64_t mostOfWarp = isSplit ? 32 * target.machine.splitSums : 64 * 64;
      for (int warps : {8, 4, 2, 1}) {
        DotBlock tried;
        tried.m = bm, tried.n = bn, tried.warps = warps;
        tried.k = std::clamp<int64_t>(nextPowerOfTwo(k), 16, 32);
        if (bm * bn < warps * 16 * 8 || bm * bn > warps * mostOfWarp) continue;
        int64_t tiles = batch * ((m + bm - 1) / bm) * ((n + bn - 1) / bn);
        double cost = dotCost(target, tried, tiles, (k + tried.k - 1) / tried.k, itemBytes);
        if (cost < least) least = cost, best = tried;
      }
      if (least < std::numeric_limits<double>::max()) byCost.emplace_back(least, best);
    }
  // Of products of 16 bits with enough of each dim the measured ones come first, whatever the others are estimated to cost; those of f32 are compared.
  CostedBlocks measured;
  if (itemBytes <= 2 && std::min({m, n, k}) >= kLeastOfBlocks) measured = measuredBlocks(target.machine, target.machine.blocks, sizes);
  constexpr int64_t kRowsOfOthers = 32; // of blocks for fewer rows than a group of warps has
  if (split && m > kRowsOfOthers)
    for (auto &[time, block] : measuredBlocks(target.machine, target.machine.splitBlocks, sizes))
      byCost.emplace_back(time * target.machine.clock, block);
  sortByCost(byCost), sortByCost(measured);
  std::vector<DotBlock> out;
  for (auto &[time, block] : measured) out.push_back(block);
  for (auto &[cost, block] : byCost)
    if (std::none_of(out.begin(), out.end(), [&](const DotBlock &b) { return b.m == block.m && b.n == block.n; })) out.push_back(block);
  return out;
}

DotBlock dotBlock(const TileTarget &target, const DotSizes &sizes) {
  const std::vector<DotBlock> blocks = dotBlocks(target, sizes);
  auto it = std::find_if(blocks.begin(), blocks.end(),
                         [&](const DotBlock &b) { return b.m == target.fixedDotM && b.n == target.fixedDotN; });
  // The sums of a large block leave a long epilogue no registers, and nobody multiplies while its only program computes
  // it.
  auto leavesRoom = [](const DotBlock &b) { return b.m * b.n / b.warps < 64 * 64; };
  if (it == blocks.end()) it = sizes.longEpilogue ? std::find_if(blocks.begin(), blocks.end(), leavesRoom) : blocks.begin();
  DotBlock block = it == blocks.end() ? blocks.front() : *it;
  if (target.fixedStages) block.stages = target.fixedStages;
  return block;
}

bool libraryPays(const TileTarget &target, int64_t batch, int64_t m, int64_t n, int64_t k, int64_t itemBytes,
                 double restBytes) {
  // Products of float32 keep their precision by three products of tf32 here, which the library does not have.
  if (itemBytes > 2 || std::min(m, n) < 64 || k < 64) return false;
  const MachineSheet &machine = target.machine;
  const double all = 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  if (all < machine.libraryLeast) return false;
  // Microseconds, a launch more for the rest.
  const double flops = all / static_cast<double>(machine.processors);
  const double ours = machine.launch + flops / machine.ownFlops,
               library = machine.launch + flops / machine.libraryFlops +
                         (restBytes > 0 ? machine.nextLaunch + restBytes / machine.bytesPerUs : 0);
  return library < ours;
}

AttentionBlock attentionBlock(const TileTarget &target, const AttentionSizes &s) {
  const auto [heads, queries, keys, head, itemBytes] = s;
  if (itemBytes > 2) return {32, head > 128 ? 32 : 64, 4, 2};
  AttentionBlock b{128, 64, 8, 3};
  auto programs = [&](int64_t rows) { return heads * ((queries + rows - 1) / rows); };
  // Rows that a group of warps multiplies at once are worth more than the other half of the processors (BERT-large, 16 heads of 384 queries: 5.8
  // microseconds on an H200, in blocks of 32 rows 7.8), and so are fewer, longer steps along many keys (GPT-2 and Whisper's encoder by 15 to 20 %;
  // with heads of 128 a thread has no registers for them).
  constexpr int64_t kLeast = 16, kManyKeys = 512, kShortHead = 64;
  const int64_t group = target.machine.groupRows, least = group && 2 * programs(group) >= target.processors ? group : kLeast;
  while (b.queries > kLeast && (b.queries >= 2 * queries || (b.queries > least && programs(b.queries) < target.processors))) b.queries /= 2;
  if (group && b.queries >= group && keys >= kManyKeys && head <= kShortHead) b.keys = 128;
  if (head > 128) b.queries = std::min<int64_t>(b.queries, 64), b.keys = 32, b.stages = 2;
  b.warps = static_cast<int>(std::max<int64_t>(b.queries / 16, 1));
  // Eight warps have a processor to themselves. Where that makes a second round of a few programs, four warps do twice the rows each, and two programs
  // share a processor (ViT-B, 96 heads of 197 queries: 12.1 microseconds on an H200 in place of 14.1).
  const int64_t all = programs(b.queries);
  if (group && head <= kShortHead && b.queries == 2 * group && all > target.processors && all <= 2 * target.processors) b.warps = 4;
  return b;
}

} // namespace neso
