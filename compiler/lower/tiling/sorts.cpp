#include "lower/tiling/sorts.h"

#include <algorithm>
#include <cmath>

#include "base/rules.h"
#include "lower/tiling/cost.h"

namespace neso {
namespace {

using loops::SortSpec;

/// The longest row that a program sorts at once, in elements.
constexpr int64_t kSortedRow = 8192;
/// Elements of a thread of a sort. Many: exchanges inside a thread cost least.
constexpr int64_t kSortedPerThread = 32, kSortedPerThreadOfFew = 8;
/// Elements that one program merges.
constexpr int64_t kMergedTile = 1024;
/// Elements of one program of a sort by rank, and of one step of its loop; pairs of them in a thread.
constexpr int64_t kRanked = 64, kCompared = 64, kRankedPerThread = 16;
/// Rows of up to so many elements are sorted by insertion: tables of digits cost more there.
constexpr int64_t kInsertion = 48;
/// Elements that are packed and unpacked at once.
constexpr int64_t kPacked = 64;
/// Words that a selection looks at together: four vectors of AVX-512.
constexpr int64_t kSelectedBytes = 256;
/// A heap keeps the first elements where they are at most one of so many, or so few that any row is longer.
constexpr int64_t kHeapShare = 8, kSmallHeap = 64;
/// What a step down a heap takes, in what an element takes that is sorted by digits: 15 ns to 9.5 ns.
constexpr double kHeapStep = 1.6;
/// Elements of a tile of a scan in each thread. Measured on an H200 with groups of 128 to 1024 tiles of 4 to 64 KiB: many
/// for few threads, since the programs that a processor holds at once hide the waits, and registers for the exchange
/// among warps bound their number.
constexpr int64_t kScannedPerThread = 32;

/// Of at most `most` elements; those of the row where they are fewer.
int64_t partOf(const Facts &facts, Expr length, int64_t most) {
  return std::min(most, nextPowerOfTwo(upperBound(facts, length, most)));
}

/// Rows of up to `length` elements, each whole in one program.
SortTiling wholeRows(const Facts &facts, const plan::Kernel &kernel, int64_t length, const TileTarget &target) {
  int64_t all = 1, width = nextPowerOfTwo(length), rows = 1;
  for (Expr e : kernel.xRanges) all = std::min<int64_t>(all * usualSize(e, facts), int64_t{1} << 40);
  // Short rows share a warp, as long as every processor has work.
  if (!kernel.xRanges.empty()) {
    int64_t most = nextPowerOfTwo(usualSize(kernel.xRanges.back(), facts));
    while (rows * width < 32 * kSortedPerThread && rows < most && all >= rows * 2 * target.processors * 2) rows *= 2;
  }
  const bool few = all / rows < target.processors * 8;
  SortTiling out{SortTiling::Method::Rows, {width}, warpsFor(rows * width, few ? kSortedPerThreadOfFew : kSortedPerThread)};
  if (rows > 1) out.tile.insert(out.tile.begin(), rows);
  return out;
}

/// Of elements in random order about take * ln(length / take) enter the heap behind the first, and each goes down its levels; so do
/// those that leave it in the end.
bool heapPays(int64_t take, int64_t length) {
  const double few = static_cast<double>(take), all = static_cast<double>(length);
  return take * kHeapShare <= length && few * (std::log(all / few) + 1) * std::log2(few + 1) * kHeapStep < all;
}

/// Whether only the first few of many elements are wanted.
bool takesFew(const SortSpec &node, Expr length) {
  if (!node.take.valid() || !node.take.isConst() || node.take.constValue() < 1) return false;
  const int64_t take = node.take.constValue();
  return length.isConst() ? length.constValue() > kInsertion && heapPays(take, length.constValue()) : take <= kSmallHeap;
}

/// The rule by which a sort is written.
Rule ruleOf(SortTiling::Method method) {
  switch (method) {
  case SortTiling::Method::Rows: return Rule::SortRows;
  case SortTiling::Method::Merge: return Rule::SortMerge;
  case SortTiling::Method::Ranks: return Rule::SortRanks;
  case SortTiling::Method::Heap: return Rule::SortHeap;
  case SortTiling::Method::Insertion: return Rule::SortInsertion;
  case SortTiling::Method::Digits: return Rule::SortDigits;
  case SortTiling::Method::Select: return Rule::SortSelect;
  }
  return Rule::SortDigits;
}

SortTiling methodFor(const Facts &facts, const plan::Kernel &kernel, const TileTarget &target) {
  using Method = SortTiling::Method;
  const auto &node = kernel.nodes[0].get<SortSpec>();
  const Expr length = kernel.rRanges[0];
  const int64_t longest = upperBound(facts, length, INT64_MAX);
  if (!target.threadBlocks && node.place >= 0) {
    const DType key = node.body.ops[static_cast<size_t>(node.key)].dtype;
    return {Method::Select, {partOf(facts, length, kSelectedBytes / (itemSize(key) == 8 ? 8 : 4))}};
  }
  if (!target.threadBlocks) {
    const Method method = takesFew(node, length) ? Method::Heap : longest <= kInsertion ? Method::Insertion : Method::Digits;
    return {method, {partOf(facts, length, kPacked)}};
  }
  if (node.run.valid()) return {Method::Merge, {kMergedTile}, warpsFor(kMergedTile, kSortedPerThreadOfFew)};
  if (longest <= kSortedRow) return wholeRows(facts, kernel, longest, target);
  const int64_t mine = partOf(facts, length, kRanked), others = partOf(facts, length, kCompared);
  return {Method::Ranks, {mine, others}, warpsFor(mine * others, kRankedPerThread)};
}

} // namespace

SortTiling chooseSortTiling(const plan::Plan &plan, const plan::Kernel &kernel, const TileTarget &target) {
  SortTiling out = methodFor(plan.program.facts, kernel, target);
  applied(ruleOf(out.method));
  return out;
}

LookBackTiling chooseLookBackTiling(const plan::Kernel &kernel) {
  return {warpsFor(kernel.nodes[0].get<loops::ScanSpec>().lookBack->tile, kScannedPerThread)};
}

} // namespace neso
