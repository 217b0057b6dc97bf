#include "lower/tiling/attention.h"

#include <algorithm>

#include "lower/tiling/cost.h"

namespace neso {
namespace {
/// Of one side of a matrix instruction of thread blocks.
constexpr int64_t kLeastSide = 16;
/// The longest row of a head.
constexpr int64_t kLongestHead = 256;
/// From so many rows of queries on, a CPU's block of them is not the least one; and from so many the largest.
constexpr int64_t kSomeQueries = 64, kManyQueries = 256;
/// A CPU multiplies so many rows at a time, or a part of them.
constexpr int64_t kRowsTogether = 8;

/// The rows of as few blocks of `block` as hold `queries`, shared out evenly: of 197 four blocks of 64 have 56 each, of 300 three of 128 have 104.
int64_t evenRows(int64_t queries, int64_t block) {
  if (queries <= block) return std::max<int64_t>(queries, 1);
  const int64_t blocks = (queries + block - 1) / block, rows = (queries + blocks - 1) / blocks;
  return std::min(block, (rows + kRowsTogether - 1) / kRowsTogether * kRowsTogether);
}
} // namespace

AttentionTiling chooseAttentionTiling(const Facts &facts, const plan::Kernel &kernel, const TileTarget &target) {
  const auto &spec = kernel.nodes[0].get<loops::AttentionSpec>();
  const std::vector<Expr> &x = kernel.xRanges; // batch, head, query, element of a value
  AttentionTiling out;
  out.head = nextPowerOfTwo(upperBound(facts, spec.headSize, kLongestHead));
  out.value = nextPowerOfTwo(upperBound(facts, x[3], kLongestHead));
  int64_t least = 1;
  if (target.threadBlocks) {
    const AttentionBlock block = attentionBlock(target, {usualSize(x[0] * x[1], facts), usualSize(x[2], facts), usualSize(spec.keyLength, facts),
                                                         std::max(out.head, out.value), itemSize(spec.k.dtype)});
    least = kLeastSide;
    out.queries = block.queries, out.keys = block.keys, out.warps = block.warps, out.stages = block.stages;
  } else if (!isReducedFloat(spec.k.dtype)) {
    // The more rows share each block of keys and values, the less often those are brought into order. With heads of 64, sums, scores and blocks take
    // 96 KiB at 128 rows and 64 keys, which the second cache holds, and 40 KiB at 64 and 32, most of which the first does.
    const int64_t queries = upperBound(facts, x[2], kManyQueries);
    if (queries >= kSomeQueries) out.queries = 64, out.keys = 32;
    if (queries >= kManyQueries && usualSize(x[2], facts) >= kManyQueries) out.queries = 128, out.keys = 64;
  }
  out.head = std::max(out.head, least), out.value = std::max(out.value, least);
  out.queries = std::clamp(nextPowerOfTwo(upperBound(facts, x[2], out.queries)), least, out.queries);
  out.keys = std::clamp(nextPowerOfTwo(upperBound(facts, spec.keyLength, out.keys)), least, out.keys);
  out.rows = out.queries;
  if (const std::optional<int64_t> queries = x[2].asConst(); queries && !target.threadBlocks) out.rows = evenRows(*queries, out.queries);
  out.narrowScores = target.threadBlocks && isReducedFloat(spec.q.dtype) && spec.q.dtype == spec.k.dtype;
  out.narrowValues = out.narrowScores && spec.v.dtype == spec.q.dtype;
  return out;
}

} // namespace neso
