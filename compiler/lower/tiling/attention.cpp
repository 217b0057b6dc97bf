#include "lower/tiling/attention.h"

#include <algorithm>

#include "lower/tiling/cost.h"

namespace neso {
namespace {
/// Of one side of a matrix instruction of thread blocks.
constexpr int64_t kLeastSide = 16;
/// The longest row of a head.
constexpr int64_t kLongestHead = 256;
/// So many rows of queries or more are a block of a CPU's: of few, and of many.
constexpr int64_t kManyQueries = 64, kMostQueries = 256;
} // namespace

AttentionTiling chooseAttentionTiling(const plan::Plan &plan, const plan::Kernel &kernel, const TileTarget &target) {
  const auto &spec = kernel.nodes[0].get<loops::AttentionSpec>();
  const Facts &facts = plan.program.facts;
  const std::vector<Expr> &x = kernel.xRanges; // batch, head, query, element of a value
  AttentionTiling out;
  out.head = nextPowerOfTwo(upperBound(facts, spec.headSize, kLongestHead));
  out.value = nextPowerOfTwo(upperBound(facts, x[3], kLongestHead));
  int64_t least = 1;
  if (target.threadBlocks) {
    const AttentionBlock block = attentionBlock(target, usualSize(x[0] * x[1], facts), usualSize(x[2], facts),
                                                std::max(out.head, out.value), itemSize(spec.k.dtype));
    least = kLeastSide;
    out.queries = block.queries, out.keys = block.keys, out.warps = block.warps, out.stages = block.stages;
  } else if (!isReducedFloat(spec.k.dtype)) {
    // The more rows share each block of keys and values, the less often those are brought into order; sums and scores stay in the second cache,
    // of a few rows in the first.
    const int64_t queries = upperBound(facts, x[2], kMostQueries);
    if (queries >= kManyQueries) out.queries = kManyQueries, out.keys = kManyQueries / 2;
    if (queries >= kMostQueries && usualSize(x[2], facts) >= kMostQueries) out.queries = 2 * kManyQueries, out.keys = kManyQueries;
  }
  out.head = std::max(out.head, least), out.value = std::max(out.value, least);
  out.queries = std::clamp(nextPowerOfTwo(upperBound(facts, x[2], out.queries)), least, out.queries);
  out.keys = std::clamp(nextPowerOfTwo(upperBound(facts, spec.keyLength, out.keys)), least, out.keys);
  out.narrowScores = target.threadBlocks && isReducedFloat(spec.q.dtype) && spec.q.dtype == spec.k.dtype;
  out.narrowValues = out.narrowScores && spec.v.dtype == spec.q.dtype;
  return out;
}

} // namespace neso
