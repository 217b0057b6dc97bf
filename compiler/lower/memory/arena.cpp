#include "lower/memory/arena.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "lower/schedule/access.h"

namespace neso::memory {

namespace {

bool overlap(const Block &a, const Block &b) { return a.first <= b.last && b.first <= a.last; }

/// The blocks at given sizes of the symbols.
struct Sized {
  const std::vector<Block> &blocks;
  std::vector<int64_t> size;
  int64_t bound = 0; // live bytes at the worst step
};
/// Every symbol at this size, or at its usual one.
using SampleSize = std::optional<int64_t>;
int64_t bytesAt(Expr e, const Facts &facts, SampleSize size) {
  return size ? valueAt(e, facts, *size) : usualSize(e, facts);
}
Sized sizedAt(const std::vector<Block> &blocks, const Facts &facts, SampleSize size) {
  Sized out{blocks, {}, 0};
  for (const Block &b : blocks) out.size.push_back(bytesAt(b.bytes, facts, size));
  for (const Block &at : blocks) { // the worst step is the birth of some block
    int64_t live = 0;
    for (size_t b = 0; b < blocks.size(); ++b)
      if (blocks[b].first <= at.first && at.first <= blocks[b].last) live += out.size[b];
    out.bound = std::max(out.bound, live);
  }
  return out;
}

/// Best fit in the given order; returns the peak.
int64_t bestFit(const Sized &s, const std::vector<std::vector<size_t>> &conflicts, const std::vector<size_t> &order,
                std::vector<int64_t> &at) {
  at.assign(s.size.size(), -1);
  int64_t peak = 0;
  std::vector<std::pair<int64_t, int64_t>> busy;
  for (size_t k : order) {
    busy.clear();
    for (size_t c : conflicts[k])
      if (at[c] >= 0) busy.push_back({at[c], at[c] + s.size[c]});
    std::sort(busy.begin(), busy.end());
    // The tightest gap that holds the block; above everything if none does.
    int64_t place = -1, slack = INT64_MAX, low = 0;
    for (auto [begin, end] : busy) {
      if (begin - low >= s.size[k] && begin - low < slack) slack = begin - low, place = low;
      low = std::max(low, end);
    }
    at[k] = place >= 0 ? place : low;
    peak = std::max(peak, at[k] + s.size[k]);
  }
  return peak;
}

/// Offsets with the lowest peak found.
std::vector<int64_t> pack(const Sized &s, const std::vector<std::vector<size_t>> &conflicts) {
  using Less = std::function<bool(size_t, size_t)>;
  const std::vector<Block> &blocks = s.blocks;
  auto duration = [&](size_t b) { return static_cast<int64_t>(blocks[b].last) - blocks[b].first + 1; };
  const Less keys[] = {[&](size_t a, size_t b) { return s.size[a] > s.size[b]; },
                       [&](size_t a, size_t b) { return s.size[a] * duration(a) > s.size[b] * duration(b); },
                       [&](size_t a, size_t b) { return blocks[a].first < blocks[b].first; },
                       [&](size_t a, size_t b) { return duration(a) > duration(b); },
                       [&](size_t a, size_t b) { return blocks[a].last > blocks[b].last; }};
  std::vector<int64_t> best, at;
  std::vector<size_t> bestOrder;
  int64_t bestPeak = INT64_MAX;
  auto consider = [&](const std::vector<size_t> &order) {
    int64_t peak = bestFit(s, conflicts, order, at);
    bool better = peak < bestPeak;
    if (better) bestPeak = peak, best = at, bestOrder = order;
    return better;
  };
  std::vector<size_t> order(blocks.size());
  for (const Less &less : keys) {
    if (bestPeak <= s.bound) break;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), less);
    consider(order);
  }
  // What reaches the peak goes earlier in the order, until that no longer helps.
  int64_t tries = std::min<int64_t>(400, 4000000 / static_cast<int64_t>(blocks.size() * blocks.size() + 1));
  order = bestOrder;
  for (int64_t t = 0; t < tries && bestPeak > s.bound; ++t) {
    int64_t peak = bestFit(s, conflicts, order, at);
    if (peak < bestPeak) bestPeak = peak, best = at;
    size_t from = 0;
    for (size_t i = 0; i < order.size(); ++i)
      if (at[order[i]] + s.size[order[i]] == peak) from = i;
    size_t to = from * static_cast<size_t>(t % 7) / 8;
    if (from == 0) break;
    std::rotate(order.begin() + static_cast<ptrdiff_t>(to), order.begin() + static_cast<ptrdiff_t>(from),
                order.begin() + static_cast<ptrdiff_t>(from) + 1);
  }
  return best;
}

/// The greatest of some ends as an expression, without those that are provably not the greatest; a little more where
/// that keeps it short.
class MaxOfEnds {
public:
  explicit MaxOfEnds(const Facts &facts) : facts_(facts) {}
  /// ends: (value at usual sizes, expression). sumsOnly: never a max, rather a sum that is a little more.
  Expr of(std::vector<std::pair<int64_t, Expr>> ends, bool sumsOnly = false) {
    std::stable_sort(ends.begin(), ends.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
    std::vector<Expr> kept;
    for (const auto &[usual, e] : ends)
      if (std::none_of(kept.begin(), kept.end(), [&, e = e](Expr k) { return notGreater(e, k); })) kept.push_back(e);
    if (kept.empty()) return 0;
    // Offsets build on each other: without a limit their expressions would double at each step.
    int64_t nodes = 0;
    for (Expr e : kept) nodes += nodesOf(e, kMostNodes);
    if (kept.size() > 1 && (sumsOnly || nodes > kMostNodes)) return termwise(kept);
    Expr out = kept[0];
    for (size_t k = 1; k < kept.size(); ++k) out = max(out, kept[k]);
    return out;
  }

  /// Like of(), but never more than the greatest: ends beyond the limit are left out.
  Expr atLeast(std::vector<std::pair<int64_t, Expr>> ends) {
    std::stable_sort(ends.begin(), ends.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
    Expr out = 0;
    for (const auto &[usual, e] : ends)
      if (nodesOf(out, 2 * kMostNodes) < 2 * kMostNodes && !notGreater(e, out)) out = out.isConst(0) ? e : max(out, e);
    return out;
  }

private:
  static constexpr int64_t kMostNodes = 160;
  static int64_t nodesOf(Expr e, int64_t limit) {
    int64_t n = 1;
    for (Expr o : e.operands())
      if (n < limit) n += nodesOf(o, limit - n);
    return n;
  }
  /// A sum that is at least each of es: for each product that is never negative the greatest of its coefficients.
  Expr termwise(const std::vector<Expr> &es) const {
    Coefficients greatest;
    for (Expr e : es)
      for (const auto &[t, coefficient] : coefficientsOf(e)) {
        int64_t &most = coefficientOf(greatest, t);
        most = std::max(most, coefficient);
      }
    Expr out = 0;
    for (const auto &[t, coefficient] : greatest) out = out + Expr(coefficient) * t;
    return out;
  }
  using Coefficients = std::vector<std::pair<Expr, int64_t>>; // by product, in the order in which they were met
  static int64_t &coefficientOf(Coefficients &all, Expr t) {
    auto it = std::find_if(all.begin(), all.end(), [&](const auto &c) { return c.first == t; });
    return it == all.end() ? all.emplace_back(t, 0).second : it->second;
  }
  /// e as a sum of products that are never negative. One that may be negative is taken apart (rounding up is written as rounding a negative
  /// number down), and may then meet its like in the same sum: 4*max(x, 0) + x is 5*max(x, 0) - max(-x, 0).
  Coefficients coefficientsOf(Expr e) const {
    Coefficients out;
    const std::vector<Expr> terms = e.kind() == ExprKind::Add ? e.operands() : std::vector<Expr>{e};
    for (Expr t : terms) {
      int64_t coefficient = 1;
      if (t.isConst())
        coefficient = t.constValue(), t = 1;
      else if (t.kind() == ExprKind::Mul && t.operands()[0].isConst()) {
        coefficient = t.operands()[0].constValue();
        t = product(std::vector<Expr>(t.operands().begin() + 1, t.operands().end()));
      }
      const Interval range = facts_.rangeOf(t);
      if (range.lo >= 0) {
        coefficientOf(out, t) += coefficient;
      } else {
        if (range.hi > 0) coefficientOf(out, max(t, 0)) += coefficient;
        coefficientOf(out, range.hi > 0 ? max(-t, 0) : -t) -= coefficient;
      }
    }
    return out;
  }
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
    Expr bytes = 0;
    for (const Block &b : blocks)
      if (b.first <= static_cast<int>(s) && static_cast<int>(s) <= b.last) bytes = bytes + b.bytes;
    sums.push_back({usualSize(bytes, facts), bytes});
  }
  return MaxOfEnds(facts).atLeast(std::move(sums));
}

Expr placeBlocks(std::vector<Block> &blocks, const Facts &facts) {
  if (blocks.empty()) return 0;
  std::vector<std::vector<size_t>> conflicts(blocks.size());
  for (size_t a = 0; a < blocks.size(); ++a)
    for (size_t b = 0; b < blocks.size(); ++b)
      if (a != b && overlap(blocks[a], blocks[b])) conflicts[a].push_back(b);
  if (std::all_of(blocks.begin(), blocks.end(), [](const Block &b) { return b.bytes.isConst(); })) {
    Sized s = sizedAt(blocks, facts, {});
    std::vector<int64_t> at = pack(s, conflicts);
    int64_t total = 0;
    for (size_t k = 0; k < blocks.size(); ++k) {
      blocks[k].offset = at[k];
      total = std::max(total, at[k] + s.size[k]);
    }
    return total;
  }
  constexpr SampleSize kSamples[] = {std::nullopt, 6, 64, 500};
  std::vector<Sized> samples;
  for (SampleSize size : kSamples) samples.push_back(sizedAt(blocks, facts, size));
  MaxOfEnds greatest(facts);
  Expr bestTotal;
  double bestRatio = 0;
  for (size_t attempt = 0; attempt < 2 * samples.size(); ++attempt) {
    const Sized &s = samples[attempt / 2];
    bool sumsOnly = attempt % 2 == 1;
    std::vector<int64_t> at = pack(s, conflicts);
    std::vector<size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return at[a] < at[b]; });
    std::vector<Expr> offset(blocks.size()), end(blocks.size());
    std::vector<std::pair<int64_t, Expr>> all;
    for (size_t k : order) {
      std::vector<std::pair<int64_t, Expr>> ends;
      for (size_t c : conflicts[k])
        if (offset[c].valid()) ends.push_back({at[c] + s.size[c], end[c]});
      offset[k] = greatest.of(std::move(ends), sumsOnly);
      end[k] = offset[k] + blocks[k].bytes;
      all.push_back({at[k] + s.size[k], end[k]});
    }
    Expr total = greatest.of(std::move(all), sumsOnly);
    double ratio = 0;
    for (size_t t = 0; t < samples.size(); ++t)
      ratio = std::max(ratio, static_cast<double>(bytesAt(total, facts, kSamples[t])) /
                                  static_cast<double>(std::max<int64_t>(samples[t].bound, 1)));
    if (bestTotal.valid() && ratio >= bestRatio) continue;
    bestTotal = total;
    bestRatio = ratio;
    for (size_t k = 0; k < blocks.size(); ++k) blocks[k].offset = offset[k];
  }
  return bestTotal;
}

} // namespace neso::memory
