#include "lower/schedule/product_time.h"

#include <algorithm>
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

} // namespace

ProductShape shapeOf(const Node &n, const ContractionSpec &c, const Facts &facts) {
  ProductShape s;
  std::set<Symbol> left = dependences(c.body, c.lhs), right = dependences(c.body, c.rhs);
  for (size_t d = 0; d < n.ranges.size(); ++d) {
    bool inLeft = left.count(Symbol::index(d)), inRight = right.count(Symbol::index(d));
    (inLeft == inRight ? s.batch : inLeft ? s.m : s.n) *= usualSize(n.ranges[d], facts);
  }
  for (Expr e : n.reduceRanges) s.k *= usualSize(e, facts);
  s.itemBytes = std::max(itemSize(c.body.ops[static_cast<size_t>(c.lhs)].dtype),
                         itemSize(c.body.ops[static_cast<size_t>(c.rhs)].dtype));
  return s;
}

int64_t bestParts(const ProductShape &s, int64_t innermost, const MachineSheet &machine) {
  const int64_t step = stepOf(s.itemBytes);
  int64_t best = 1;
  for (int64_t parts = 2; parts <= 64 && parts <= s.k / step; ++parts) {
    int64_t length = s.k / parts;
    if (s.k % parts || length % step || (innermost % length && length % innermost)) continue;
    if (costOf(s, parts, machine) < costOf(s, best, machine)) best = parts;
  }
  return best;
}

double productTime(const ProductShape &s, int64_t innermost, const MachineSheet &machine) {
  constexpr int64_t kLeast = 64, kFew = 16;
  // Few rows read their weights and do little else.
  if (std::min(s.m, s.n) < kFew)
    return static_cast<double>(s.batch * (s.m + s.n) * s.k * s.itemBytes) / machine.bytesPerUs;
  const int64_t parts = bestParts(s, innermost, machine);
  if (parts > 1 || s.itemBytes > 2 || machine.blocks.empty() || std::min({s.m, s.n, s.k}) < kLeast)
    return costOf(s, parts, machine);
  double best = 0;
  for (const ProductBlock &b : machine.blocks) {
    const double time = blockTime(machine, b, s.batch * ((s.m + b.m - 1) / b.m) * ((s.n + b.n - 1) / b.n), s.k);
    if (best == 0 || time < best) best = time;
  }
  return best;
}

} // namespace neso::schedule
