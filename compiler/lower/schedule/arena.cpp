#include "lower/schedule/arena.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

namespace neso::schedule {
namespace {

bool overlap(const Block &a, const Block &b) { return a.first <= b.last && b.first <= a.last; }

/// First fit in the given order, at usual sizes; returns the peak.
int64_t firstFit(const std::vector<Block> &blocks, const std::vector<std::vector<size_t>> &conflicts, const std::vector<size_t> &order, std::vector<int64_t> &at) {
  at.assign(blocks.size(), -1);
  int64_t peak = 0;
  std::vector<std::pair<int64_t, int64_t>> busy;
  for (size_t k : order) {
    busy.clear();
    for (size_t c : conflicts[k])
      if (at[c] >= 0) busy.push_back({at[c], at[c] + blocks[c].size});
    std::sort(busy.begin(), busy.end());
    // The tightest gap that holds the block; above everything if none does.
    int64_t place = -1, slack = INT64_MAX, low = 0;
    for (auto [begin, end] : busy) {
      if (begin - low >= blocks[k].size && begin - low < slack) slack = begin - low, place = low;
      low = std::max(low, end);
    }
    at[k] = place >= 0 ? place : low;
    peak = std::max(peak, at[k] + blocks[k].size);
  }
  return peak;
}

/// Offsets at usual sizes with the lowest peak found.
std::vector<int64_t> packIntegers(const std::vector<Block> &blocks, const std::vector<std::vector<size_t>> &conflicts, int64_t bound) {
  using Less = std::function<bool(const Block &, const Block &)>;
  auto duration = [](const Block &b) { return static_cast<int64_t>(b.last) - b.first + 1; };
  const Less keys[] = {[](const Block &a, const Block &b) { return a.size > b.size; },
                       [&](const Block &a, const Block &b) { return a.size * duration(a) > b.size * duration(b); },
                       [](const Block &a, const Block &b) { return a.first < b.first; },
                       [&](const Block &a, const Block &b) { return duration(a) > duration(b); },
                       [](const Block &a, const Block &b) { return a.last > b.last; }};
  std::vector<int64_t> best, at;
  std::vector<size_t> bestOrder;
  int64_t bestPeak = INT64_MAX;
  auto consider = [&](const std::vector<size_t> &order) {
    int64_t peak = firstFit(blocks, conflicts, order, at);
    bool better = peak < bestPeak;
    if (better) bestPeak = peak, best = at, bestOrder = order;
    return better;
  };
  std::vector<size_t> order(blocks.size());
  for (const Less &less : keys) {
    if (bestPeak <= bound) break;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return less(blocks[a], blocks[b]); });
    consider(order);
  }
  // What reaches the peak goes earlier in the order, until that no longer helps.
  int64_t tries = std::min<int64_t>(400, 4000000 / static_cast<int64_t>(blocks.size() * blocks.size() + 1));
  order = bestOrder;
  for (int64_t t = 0; t < tries && bestPeak > bound; ++t) {
    int64_t peak = firstFit(blocks, conflicts, order, at);
    if (peak < bestPeak) bestPeak = peak, best = at;
    size_t from = 0;
    for (size_t i = 0; i < order.size(); ++i)
      if (at[order[i]] + blocks[order[i]].size == peak) from = i;
    size_t to = from * static_cast<size_t>(t % 7) / 8;
    if (from == 0) break;
    std::rotate(order.begin() + static_cast<ptrdiff_t>(to), order.begin() + static_cast<ptrdiff_t>(from), order.begin() + static_cast<ptrdiff_t>(from) + 1);
  }
  return best;
}

/// The greatest of some ends as an expression, without those that are provably not the greatest.
class MaxOfEnds {
public:
  explicit MaxOfEnds(const Facts &facts) : facts_(facts) {}
  /// ends: (value at usual sizes, expression).
  Expr of(std::vector<std::pair<int64_t, Expr>> ends) {
    std::stable_sort(ends.begin(), ends.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
    std::vector<Expr> kept;
    for (const auto &[usual, e] : ends)
      if (std::none_of(kept.begin(), kept.end(), [&, e = e](Expr k) { return notGreater(e, k); })) kept.push_back(e);
    Expr out = 0;
    for (Expr e : kept) out = out.isConst(0) ? e : max(out, e);
    return out;
  }

private:
  bool notGreater(Expr a, Expr b) {
    if (a == b) return true;
    if (a.isConst() && b.isConst()) return a.constValue() <= b.constValue();
    auto [it, isNew] = proved_.try_emplace({a.node(), b.node()}, false);
    if (isNew) it->second = facts_.provablyLessEqual(a, b);
    return it->second;
  }
  const Facts &facts_;
  std::map<std::pair<const ExprNode *, const ExprNode *>, bool> proved_;
};

} // namespace

Expr peakOf(const std::vector<Block> &blocks, size_t steps, const Facts &facts) {
  std::vector<std::pair<int64_t, Expr>> sums;
  for (size_t s = 0; s <= steps; ++s) {
    int64_t usual = 0;
    Expr bytes = 0;
    for (const Block &b : blocks)
      if (b.first <= static_cast<int>(s) && static_cast<int>(s) <= b.last) usual += b.size, bytes = bytes + b.bytes;
    sums.push_back({usual, bytes});
  }
  return MaxOfEnds(facts).of(std::move(sums));
}

Expr placeBlocks(std::vector<Block> &blocks, const Facts &facts) {
  if (blocks.empty()) return 0;
  std::vector<std::vector<size_t>> conflicts(blocks.size());
  for (size_t a = 0; a < blocks.size(); ++a)
    for (size_t b = 0; b < blocks.size(); ++b)
      if (a != b && overlap(blocks[a], blocks[b])) conflicts[a].push_back(b);
  int64_t bound = 0;
  for (const Block &at : blocks) { // the worst step is the birth of some block
    int64_t live = 0;
    for (const Block &b : blocks)
      if (b.first <= at.first && at.first <= b.last) live += b.size;
    bound = std::max(bound, live);
  }
  std::vector<int64_t> usual = packIntegers(blocks, conflicts, bound);
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return usual[a] < usual[b]; });
  MaxOfEnds greatest(facts);
  std::vector<bool> done(blocks.size());
  std::vector<std::pair<int64_t, Expr>> all;
  bool constant = std::all_of(blocks.begin(), blocks.end(), [](const Block &b) { return b.bytes.isConst(); });
  for (size_t k : order) {
    std::vector<std::pair<int64_t, Expr>> ends;
    for (size_t c : conflicts[k])
      if (done[c]) ends.push_back({usual[c] + blocks[c].size, blocks[c].offset + blocks[c].bytes});
    blocks[k].offset = constant ? Expr(usual[k]) : greatest.of(std::move(ends));
    done[k] = true;
    all.push_back({usual[k] + blocks[k].size, blocks[k].offset + blocks[k].bytes});
  }
  return greatest.of(std::move(all));
}

} // namespace neso::schedule
