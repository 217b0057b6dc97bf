// What is known of symbols, and proofs from it: interval arithmetic, powers of two, and the lower bound of an affine
// form at the corners of the index box.
#include <algorithm>
#include <numeric>

#include "ir/shape/expr.h"
#include "ir/shape/node.h"

namespace neso {

Expr rebuildExpr(ExprKind kind, const std::vector<Expr> &ops);

namespace {

constexpr int64_t kMin = INT64_MIN, kMax = INT64_MAX;

int64_t clamp(__int128 v) { return v <= kMin ? kMin : v >= kMax ? kMax : static_cast<int64_t>(v); }
bool infinite(int64_t v) { return v == kMin || v == kMax; }

/// A bound that is no bound at all, for the end of an interval that it stands at.
int64_t addBound(int64_t a, int64_t b, int64_t none) {
  return a == none || b == none ? none : clamp(static_cast<__int128>(a) + b);
}
/// Whether an end is the greatest or the least number itself and not without a bound: arithmetic cannot tell them apart.
bool atExtremes(Interval a) { return a.lo == kMax || a.hi == kMin; }
int64_t mulBound(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (infinite(a) || infinite(b)) return (a < 0) != (b < 0) ? kMin : kMax;
  return clamp(static_cast<__int128>(a) * b);
}
Interval add(Interval a, Interval b) { return {addBound(a.lo, b.lo, kMin), addBound(a.hi, b.hi, kMax)}; }
Interval mul(Interval a, Interval b) {
  if (atExtremes(a) || atExtremes(b)) return {};
  int64_t c[4] = {mulBound(a.lo, b.lo), mulBound(a.lo, b.hi), mulBound(a.hi, b.lo), mulBound(a.hi, b.hi)};
  return {*std::min_element(c, c + 4), *std::max_element(c, c + 4)};
}
int64_t divBound(int64_t a, int64_t b) {
  if (infinite(b)) return infinite(a) ? (((a < 0) != (b < 0)) ? kMin : kMax) : ((a < 0) != (b < 0) && a != 0 ? -1 : 0);
  if (infinite(a)) return (a < 0) != (b < 0) ? kMin : kMax;
  return floorDivInt(a, b);
}
Interval div(Interval a, Interval b) {
  if (atExtremes(a) || atExtremes(b)) return {};
  if (b.lo <= 0 && b.hi >= 0) {
    if (b.lo < 0 || b.hi == 0) return {};
    b.lo = 1; // division by zero has no value; a divisor in [0, n] acts as in [1, n]
  }
  int64_t c[4] = {divBound(a.lo, b.lo), divBound(a.lo, b.hi), divBound(a.hi, b.lo), divBound(a.hi, b.hi)};
  return {*std::min_element(c, c + 4), *std::max_element(c, c + 4)};
}

int64_t powerOfTwoIn(int64_t v) {
  constexpr int64_t most = int64_t{1} << 62;
  return v == 0 || v == kMin ? most : v & -v;
}

/// The greatest coefficient of a sum, as a magnitude.
__int128 greatest(Expr e) {
  __int128 out = 1;
  for (const Term &t : termsOf(e)) out = std::max(out, t.coefficient < 0 ? -static_cast<__int128>(t.coefficient) : t.coefficient);
  return out;
}
/// Sums of a few such coefficients do not wrap.
constexpr __int128 kRoom = int64_t{1} << 60;

} // namespace

void Facts::setRange(Symbol symbol, Interval range) { ranges_[symbol] = range; }
void Facts::setDivisor(Symbol symbol, int64_t divisor) { divisors_[symbol] = divisor; }
void Facts::setHint(Symbol symbol, int64_t value) { hints_[symbol] = value; }
std::optional<int64_t> Facts::hint(Symbol symbol) const {
  auto it = hints_.find(symbol);
  return it == hints_.end() ? std::nullopt : std::optional(it->second);
}
void Facts::erase(Symbol symbol) {
  ranges_.erase(symbol), divisors_.erase(symbol), hints_.erase(symbol), extents_.erase(symbol);
}
void Facts::setIndex(Symbol symbol, Expr extent) {
  Interval range = rangeOf(extent);
  ranges_[symbol] = {0, range.hi == kMax ? kMax : std::max<int64_t>(range.hi - 1, 0)};
  extents_[symbol] = extent;
}

Interval Facts::range(Symbol symbol) const {
  auto it = ranges_.find(symbol);
  return it == ranges_.end() ? Interval{} : it->second;
}

void Facts::assume(Expr e, Interval range, int64_t usual) {
  if (e.isSymbol()) {
    setRange(e.symbol(), range), setHint(e.symbol(), usual);
    return;
  }
  std::erase_if(assumed_, [&](const Assumed &a) { return a.e == e; });
  assumed_.push_back({e, range, usual});
}
std::optional<int64_t> Facts::assumedUsual(Expr e) const {
  for (const Assumed &a : assumed_)
    if (a.e == e) return a.usual;
  return std::nullopt;
}

Interval Facts::rangeOf(Expr e) const {
  for (const Assumed &a : assumed_)
    if (a.e == e) return a.range;
  return rangeOfParts(e);
}

Interval Facts::rangeOfParts(Expr e) const {
  const std::vector<Expr> &ops = e.operands();
  switch (e.kind()) {
  case ExprKind::Const: return {e.constValue(), e.constValue()};
  case ExprKind::Symbol: return range(e.symbol());
  case ExprKind::Add: {
    Interval out{0, 0};
    for (Expr o : ops) {
      Interval r = rangeOf(o);
      out = add(out, r);
    }
    return out;
  }
  case ExprKind::Mul: {
    Interval out{1, 1};
    for (Expr o : ops) out = mul(out, rangeOf(o));
    return out;
  }
  case ExprKind::FloorDiv: return div(rangeOf(ops[0]), rangeOf(ops[1]));
  case ExprKind::Mod: {
    Interval a = rangeOf(ops[0]), b = rangeOf(ops[1]);
    if (b.lo < 0) return {};
    Interval out{0, b.hi == kMax ? kMax : std::max<int64_t>(b.hi - 1, 0)};
    if (a.lo >= 0) out.hi = std::min(out.hi, a.hi);
    return out;
  }
  case ExprKind::Min:
  case ExprKind::Max: {
    Interval out = rangeOf(ops[0]);
    for (size_t i = 1; i < ops.size(); ++i) {
      Interval r = rangeOf(ops[i]);
      out = e.kind() == ExprKind::Min ? Interval{std::min(out.lo, r.lo), std::min(out.hi, r.hi)}
                                      : Interval{std::max(out.lo, r.lo), std::max(out.hi, r.hi)};
    }
    return out;
  }
  case ExprKind::Pow: return rangeOf(ops[0]).lo >= 0 ? Interval{0, kMax} : Interval{};
  case ExprKind::Eq:
  case ExprKind::Ne:
  case ExprKind::Lt:
  case ExprKind::Le:
  case ExprKind::And:
  case ExprKind::Or:
  case ExprKind::Not: return {0, 1};
  case ExprKind::Where: {
    Interval a = rangeOf(ops[1]), b = rangeOf(ops[2]);
    return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
  }
  }
  return {};
}

int64_t Facts::divisorOf(Expr e) const {
  const std::vector<Expr> &ops = e.operands();
  switch (e.kind()) {
  case ExprKind::Const: return powerOfTwoIn(e.constValue());
  case ExprKind::Symbol: {
    auto it = divisors_.find(e.symbol());
    return it == divisors_.end() ? 1 : powerOfTwoIn(it->second);
  }
  case ExprKind::Mul: {
    int64_t out = 1;
    for (Expr o : ops) out = std::min<int64_t>(mulBound(out, divisorOf(o)), int64_t{1} << 62);
    return out;
  }
  case ExprKind::FloorDiv:
    if (std::optional<int64_t> c = ops[1].asConst(); c && *c > 0 && (*c & (*c - 1)) == 0)
      return std::max<int64_t>(divisorOf(ops[0]) / *c, 1);
    return 1;
  case ExprKind::Add:
  case ExprKind::Mod:
  case ExprKind::Min:
  case ExprKind::Max: {
    int64_t out = divisorOf(ops[0]);
    for (Expr o : ops) out = std::min(out, divisorOf(o));
    return out;
  }
  case ExprKind::Where: return std::min(divisorOf(ops[1]), divisorOf(ops[2]));
  default: return 1;
  }
}

bool Facts::provablyNonNegative(Expr e) const {
  if (rangeOf(e).lo >= 0) return true;
  // An affine form is least where each index with a non-negative coefficient is 0 and each with a negative one is
  // extent - 1.
  bool changed = false;
  for (Symbol symbol : symbolsOf(e)) {
    auto extent = extents_.find(symbol);
    if (extent == extents_.end()) continue;
    std::optional<Affine> a = affineIn(e, symbol);
    if (!a) return false;
    Interval c = rangeOf(a->coefficient);
    if (greatest(a->coefficient) * greatest(extent->second) > kRoom || greatest(a->rest) > kRoom) return false;
    if (c.lo >= 0)
      e = a->rest;
    else if (c.hi <= 0)
      e = a->coefficient * (extent->second - 1) + a->rest;
    else
      return false;
    changed = true;
  }
  return changed && rangeOf(e).lo >= 0;
}

/// Whether a - b can be asked about: the difference of what is as great as INT64_MAX, which stands for "to the end", wraps.
static bool haveRoom(Expr a, Expr b) { return greatest(a) < kRoom && greatest(b) < kRoom; }

bool Facts::provablyEqual(Expr a, Expr b) const {
  if (a == b) return true;
  if (!haveRoom(a, b)) return false;
  Interval r = rangeOf(a - b);
  return r.lo == 0 && r.hi == 0;
}
bool Facts::provablyLess(Expr a, Expr b) const {
  if (!assumed_.empty() && rangeOf(a).hi < rangeOf(b).lo) return true; // their difference says nothing of what is assumed of them
  return haveRoom(a, b) ? provablyNonNegative(b - a - 1) : rangeOf(a).hi < rangeOf(b).lo;
}
bool Facts::provablyLessEqual(Expr a, Expr b) const {
  if (!assumed_.empty() && rangeOf(a).hi <= rangeOf(b).lo) return true;
  return haveRoom(a, b) ? provablyNonNegative(b - a) : rangeOf(a).hi <= rangeOf(b).lo;
}
bool Facts::provablyDivisible(Expr a, Expr b) const {
  if (mod(a, b).isConst(0)) return true;
  std::optional<int64_t> c = b.asConst();
  return c && *c > 0 && (*c & (*c - 1)) == 0 && divisorOf(a) >= *c;
}

Expr Facts::simplify(Expr e) const {
  if (e.isConst()) return e;
  if (e.isSymbol()) {
    Interval r = range(e.symbol());
    return r.lo == r.hi ? Expr(r.lo) : e;
  }
  std::vector<Expr> ops;
  for (Expr o : e.operands()) ops.push_back(simplify(o));
  e = rebuildExpr(e.kind(), ops);
  ops = e.operands();
  switch (e.kind()) {
  case ExprKind::FloorDiv:
  case ExprKind::Mod: {
    bool isMod = e.kind() == ExprKind::Mod;
    Expr a = ops[0], b = ops[1];
    if (provablyLess(a, b) && provablyNonNegative(a)) return isMod ? a : Expr(0);
    if (provablyDivisible(a, b) && isMod) return 0;
    // a = g*x + r with g dividing the constant b and r in [0, g): the division does not see r.
    std::optional<int64_t> c = b.asConst();
    if (!c || *c <= 0) return e;
    for (const Term &candidate : termsOf(a)) {
      int64_t g = candidate.factors.empty() ? 1 : std::gcd(candidate.coefficient, *c);
      if (g <= 1) continue;
      std::vector<Term> high, low;
      for (const Term &t : termsOf(a)) (t.coefficient % g == 0 ? high : low).push_back(t);
      Expr r = fromTerms(low);
      if (low.empty() || !provablyNonNegative(r) || !provablyLess(r, Expr(g))) continue;
      for (Term &t : high) t.coefficient /= g;
      Expr x = fromTerms(high);
      return isMod ? Expr(g) * simplify(mod(x, Expr(*c / g))) + r : simplify(floorDiv(x, Expr(*c / g)));
    }
    return e;
  }
  case ExprKind::Min:
  case ExprKind::Max: {
    bool isMin = e.kind() == ExprKind::Min;
    std::vector<Expr> kept = ops;
    for (size_t i = 0; i < kept.size();) {
      bool dominated = false;
      for (size_t j = 0; j < kept.size() && !dominated; ++j)
        dominated = i != j && (isMin ? provablyLessEqual(kept[j], kept[i]) : provablyLessEqual(kept[i], kept[j]));
      if (dominated)
        kept.erase(kept.begin() + static_cast<ptrdiff_t>(i));
      else
        ++i;
    }
    return kept.size() == 1 ? kept[0] : rebuildExpr(e.kind(), kept);
  }
  case ExprKind::Lt:
    if (provablyLess(ops[0], ops[1])) return 1;
    if (provablyLessEqual(ops[1], ops[0])) return 0;
    return e;
  case ExprKind::Le:
    if (provablyLessEqual(ops[0], ops[1])) return 1;
    if (provablyLess(ops[1], ops[0])) return 0;
    return e;
  case ExprKind::Eq:
  case ExprKind::Ne:
    if (provablyLess(ops[0], ops[1]) || provablyLess(ops[1], ops[0])) return e.kind() == ExprKind::Ne;
    return e;
  default: return e;
  }
}

} // namespace neso
