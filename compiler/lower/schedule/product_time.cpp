#include "lower/schedule/product_time.h"

#include <algorithm>
#include <limits>
#include <set>

#include "ir/loops/dependences.h"
#include "ir/shape/usual.h"

namespace neso::schedule {

using namespace loops;

namespace {

/// Elements of k of one step of a program, by bytes of an operand's element.
int64_t stepOf(int64_t itemBytes) { return itemBytes <= 2 ? 64 : 32; }

/// Microseconds of a product in `parts` parts of k: of small blocks, which wait in each step as long as there are few,
/// and of the multiplications; of several parts, the second kernel with the bytes of the partial results. Which is least
/// counts.
double costOf(const ProductShape &s, int64_t parts, const MachineSheet &machine) {
  const auto &rates = s.itemBytes <= 2 ? machine.narrow : machine.wide;
  double steps = static_cast<double>((s.k / parts + stepOf(s.itemBytes) - 1) / stepOf(s.itemBytes));
  double results = static_cast<double>(s.batch * s.m * s.n);
  double latency = steps * rates.step;
  double work = results * static_cast<double>(s.k) / (static_cast<double>(machine.processors) * rates.rate);
  double product = std::max(latency, work);
  if (parts == 1) return product;
  return product + machine.secondKernel + results * static_cast<double>(parts) * 8.0 / machine.bytesPerUs;
}

/// Whether blocks were measured that compute it.
bool hasBlocks(const ProductShape &s, const MachineSheet &machine) {
  return s.itemBytes <= 2 && !machine.blocks.empty() && std::min({s.m, s.n, s.k}) >= kLeastOfBlocks;
}

/// Microseconds of a product in `parts` parts of k by the fastest measured block.
double blocksTime(const ProductShape &s, int64_t parts, const MachineSheet &machine, double depthTimes = 1) {
  double best = std::numeric_limits<double>::max();
  const int64_t depth = static_cast<int64_t>(static_cast<double>(s.k / parts) * depthTimes);
  for (const ProductBlock &b : machine.blocks) best = std::min(best, blockTime(machine, b, tilesOf(b, s.batch * parts, s.m, s.n), depth));
  return best;
}

/// The same with what parts cost beside. Within a model operands come from memory and from other processors, and steps take longer than those
/// of one product that runs alone: of 1024 x 768 x 3072 and the like, on an H200, so many times as long. Parts of f32 are written and read
/// through the second-level cache, in place of a result of 16 bits.
double partsTime(const ProductShape &s, int64_t parts, const MachineSheet &machine) {
  constexpr double kStepsInModels = 1.4;
  const double time = blocksTime(s, parts, machine, kStepsInModels);
  if (parts == 1) return time;
  const double bytes = static_cast<double>(s.batch * s.m * s.n) * static_cast<double>(8 * parts - 4);
  return time + bytes / machine.cacheBytesPerUs + (s.summedBehind ? 0 : machine.secondKernel);
}

} // namespace

ProductShape shapeOf(const Node &n, const ContractionSpec &c, const Facts &facts) {
  ProductShape s;
  std::set<Symbol> left = dependences(c.body, c.lhs), right = dependences(c.body, c.rhs);
  for (size_t d = 0; d < n.ranges.size(); ++d) {
    bool inLeft = left.count(Symbol::index(d)), inRight = right.count(Symbol::index(d));
    (inLeft == inRight ? s.batch : inLeft ? s.m : s.n) *= usualSize(n.ranges[d], facts);
    Expr &size = inLeft == inRight ? s.matrices : inLeft ? s.rows : s.columns;
    size = size * n.ranges[d];
  }
  for (Expr e : n.reduceRanges) s.k *= usualSize(e, facts);
  s.matrix = n.reduceRanges.size() == 1;
  s.itemBytes = std::max(itemSize(c.body.ops[static_cast<size_t>(c.lhs)].dtype),
                         itemSize(c.body.ops[static_cast<size_t>(c.rhs)].dtype));
  return s;
}

int64_t bestParts(const ProductShape &s, int64_t innermost, const MachineSheet &machine) {
  const bool measured = s.matrix && hasBlocks(s, machine);
  auto cost = [&](int64_t parts) { return measured ? partsTime(s, parts, machine) : costOf(s, parts, machine); };
  const int64_t step = stepOf(s.itemBytes), most = measured ? kUnrolledParts : 64;
  int64_t best = 1;
  for (int64_t parts = 2; parts <= most && parts <= s.k / step; ++parts) {
    int64_t length = s.k / parts;
    if (s.k % parts || length % step || (innermost % length && length % innermost)) continue;
    if (cost(parts) < cost(best)) best = parts;
  }
  return best;
}

double productTime(const ProductShape &s, int64_t innermost, const MachineSheet &machine) {
  constexpr int64_t kFew = 16;
  // Few rows read their weights and do little else.
  if (std::min(s.m, s.n) < kFew)
    return static_cast<double>(s.batch * (s.m + s.n) * s.k * s.itemBytes) / machine.bytesPerUs;
  const bool measured = hasBlocks(s, machine);
  const int64_t parts = s.matrix && measured ? 1 : bestParts(s, innermost, machine);
  return parts > 1 || !measured ? costOf(s, parts, machine) : blocksTime(s, 1, machine);
}

} // namespace neso::schedule
