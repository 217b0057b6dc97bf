#include "ir/shape/rounded.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace neso {

std::string print(const DoubleExpr &e) {
  using Kind = DoubleExpr::Kind;
  auto call = [&](const char *name) {
    std::string out = std::string(name) + "(" + print(e.of[0]);
    for (size_t k = 1; k < e.of.size(); ++k) out += ", " + print(e.of[k]);
    return out + ")";
  };
  switch (e.kind) {
  case Kind::Whole: return fmt::format("ToFloat({})", e.whole.str());
  case Kind::Number: return fmt::format("Float('{:.17g}')", e.number);
  case Kind::Add: return call("Add");
  case Kind::Mul: return call("Mul");
  case Kind::Div: return call("FloatTrueDiv");
  case Kind::Min: return call("Min");
  case Kind::Max: return call("Max");
  case Kind::Sqrt: return call("OpaqueUnaryFn_sqrt");
  }
  NESO_UNREACHABLE("operator of doubles");
}

std::string print(Rounding rounding, const DoubleExpr &of) {
  static constexpr const char *kNames[] = {"TruncToInt", "FloorToInt", "CeilToInt", "RoundToInt"};
  return fmt::format("{}({})", kNames[static_cast<size_t>(rounding)], print(of));
}

Symbol RoundedSizes::symbolOf(Rounding rounding, DoubleExpr of) {
  const std::string wanted = print(rounding, of);
  for (const RoundedSize &known : all_)
    if (print(known.rounding, known.of) == wanted) return known.symbol;
  const Symbol symbol = Symbol::size("rounded." + std::to_string(all_.size()));
  all_.push_back({symbol, rounding, std::move(of)});
  return symbol;
}

bool mayBeNegative(const DoubleExpr &e, const Facts &facts) {
  if (e.kind == DoubleExpr::Kind::Whole) return facts.rangeOf(e.whole).lo < 0;
  return e.number < 0 || std::any_of(e.of.begin(), e.of.end(), [&](const DoubleExpr &o) { return mayBeNegative(o, facts); });
}

static void collect(const DoubleExpr &e, std::set<Symbol> &into) {
  if (e.whole.valid())
    for (Symbol s : symbolsOf(e.whole)) into.insert(s);
  for (const DoubleExpr &o : e.of) collect(o, into);
}

std::vector<Symbol> symbolsOf(const DoubleExpr &e) {
  std::set<Symbol> all;
  collect(e, all);
  return {all.begin(), all.end()};
}

} // namespace neso
