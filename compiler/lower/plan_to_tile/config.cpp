#include "lower/plan_to_tile/config.h"

#include <algorithm>
#include <limits>

#include "lower/plan_to_tile/blocks.h"

namespace neso {

TileTarget gpuTileTarget(int64_t processors) {
  TileTarget t;
  t.pointwiseBlock = 1024, t.reduceChunk = 2048, t.columnBlock = 64;
  t.dotM = 128, t.dotN = 128, t.dotK = 64;
  t.packWeights = false;
  t.f32Products = tile::F32Products::Tf32x3;
  t.threadBlocks = true, t.alignedInputs = true, t.processors = processors, t.library = TileTarget::Library::Auto;
  return t;
}

int64_t likelySize(const Facts &facts, Expr extent) {
  if (std::optional<int64_t> n = facts.simplify(extent).asConst()) return *n;
  std::unordered_map<std::string, int64_t> env;
  for (const std::string &s : symbolsOf(extent)) {
    Interval r = facts.range(s);
    env[s] = std::clamp<int64_t>(512, std::max<int64_t>(r.lo, 1), std::max<int64_t>(r.hi, 1));
  }
  return evaluate(extent, env).value_or(512);
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
  while (b.rows * b.inner < 1024 && b.rows < nextPowerOfTwo(rows) && rows >= b.rows * 2 * target.processors * 2) b.rows *= 2;
  // A warp for each row costs no exchange between warps: rows of few elements take at least a warp's worth.
  while (b.rows * b.inner < 32 && b.rows < nextPowerOfTwo(rows)) b.rows *= 2;
  return b;
}

RowBlock columnBlock(const TileTarget &target, int64_t columns, int64_t length) {
  RowBlock b;
  b.inner = std::min(nextPowerOfTwo(columns), target.columnBlock);
  while (b.inner > 16 && columns < b.inner * target.processors) b.inner /= 2;
  b.rows = std::min<int64_t>(nextPowerOfTwo(length), std::max<int64_t>(2048 / b.inner, 1));
  return b;
}

std::vector<DotBlock> dotBlocks(const TileTarget &target, int64_t batch, int64_t m, int64_t n, int64_t k, int64_t itemBytes) {
  std::vector<std::pair<double, DotBlock>> byCost;
  for (int64_t bm : {128, 64, 32, 16})
    for (int64_t bn : {128, 64, 32, 16}) {
      int64_t tiles = batch * ((m + bm - 1) / bm) * ((n + bn - 1) / bn);
      int64_t waves = (tiles + target.processors - 1) / target.processors;
      // One step of k costs the products, the bytes of both operands and a fixed part.
      double step = static_cast<double>(bm * bn) + 48.0 * static_cast<double>(bm + bn) + 1024.0;
      DotBlock block;
      block.m = bm, block.n = bn;
      block.k = std::clamp<int64_t>(nextPowerOfTwo(k), 16, itemBytes <= 2 ? 64 : 32);
      block.warps = bm * bn >= 128 * 128 ? 8 : bm * bn >= 32 * 32 ? 4 : bm * bn >= 16 * 32 ? 2 : 1;
      byCost.emplace_back(static_cast<double>(waves) * step, block);
    }
  std::stable_sort(byCost.begin(), byCost.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<DotBlock> out;
  for (auto &[cost, block] : byCost) out.push_back(block);
  return out;
}

DotBlock dotBlock(const TileTarget &target, int64_t batch, int64_t m, int64_t n, int64_t k, int64_t itemBytes) {
  const std::vector<DotBlock> blocks = dotBlocks(target, batch, m, n, k, itemBytes);
  auto it = std::find_if(blocks.begin(), blocks.end(), [&](const DotBlock &b) { return b.m == target.fixedDotM && b.n == target.fixedDotN; });
  DotBlock block = it == blocks.end() ? blocks.front() : *it;
  if (target.fixedStages) block.stages = target.fixedStages;
  return block;
}

bool libraryPays(const TileTarget &target, int64_t batch, int64_t m, int64_t n, int64_t k, int64_t itemBytes, double restBytes) {
  // Products of float32 keep their precision by three products of tf32 here, which the library does not have.
  if (itemBytes > 2 || std::min(m, n) < 64 || k < 64) return false;
  // Microseconds on a GPU of 132 processors at its usual clock: flops and bytes at the rates that large products reach, a launch more for the rest.
  const double scale = static_cast<double>(target.processors) / 132, flops = 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const double ours = 1.5 + flops / (390e6 * scale), library = 1.5 + flops / (640e6 * scale) + (restBytes > 0 ? 1.8 + restBytes / 3e6 : 0);
  return library < ours;
}

AttentionBlock attentionBlock(const TileTarget &target, int64_t heads, int64_t queries, int64_t head, int64_t itemBytes) {
  if (itemBytes > 2) return {32, head > 128 ? 32 : 64, 4, 2};
  AttentionBlock b{128, 64, 8, 3};
  while (b.queries > 16 && (b.queries >= 2 * queries || heads * ((queries + b.queries - 1) / b.queries) < target.processors)) b.queries /= 2;
  if (head > 128) b.queries = std::min<int64_t>(b.queries, 64), b.keys = 32, b.stages = 2;
  b.warps = static_cast<int>(std::max<int64_t>(b.queries / 16, 1));
  return b;
}

} // namespace neso
