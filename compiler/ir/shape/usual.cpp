// Sizes to plan for.
#include "ir/shape/usual.h"

#include <algorithm>

namespace neso {
namespace {

int64_t inRange(int64_t size, Interval range, int64_t least) {
  const int64_t lo = std::max(range.lo, std::min(least, range.hi));
  return std::clamp(size, lo, std::max(range.hi, lo));
}

template <typename F> int64_t evaluateAt(Expr e, F sizeOf, int64_t otherwise) {
  if (e.isConst()) return e.constValue();
  SymbolMap<int64_t> values;
  for (Symbol s : symbolsOf(e)) values[s] = sizeOf(s);
  return evaluate(e, values).value_or(otherwise);
}

} // namespace

int64_t usualSize(Symbol symbol, const Facts &facts) {
  const int64_t hint = facts.hint(symbol).value_or(0);
  return inRange(hint > kPlaceholder ? hint : kUsualSize, facts.range(symbol), 2);
}

int64_t usualSize(Expr e, const Facts &facts) {
  if (std::optional<int64_t> assumed = facts.assumedUsual(e)) return *assumed;
  return evaluateAt(
      e, [&](Symbol s) { return usualSize(s, facts); }, kUsualSize);
}

int64_t roomySize(Expr e, const Facts &facts) {
  constexpr int64_t kMany = 2048;
  const int64_t usual = usualSize(e, facts);
  return e.isConst() ? usual : std::max(usual, std::min(kMany, facts.rangeOf(e).hi));
}

int64_t valueAt(Expr e, const Facts &facts, int64_t size) {
  return evaluateAt(
      e, [&](Symbol s) { return inRange(size, facts.range(s), 1); }, size);
}

} // namespace neso
