// Sizes that Python computes in doubles and rounds, as int(h * (64 / min(h, w))) does. No expression of integers says what the double of a quotient times a
// number rounds to, so such a size is a symbol in the expressions, and a run computes it before what has that size.
#pragma once
#include <string>
#include <vector>

#include "ir/shape/expr.h"

namespace neso {

/// How a double becomes a whole number: torch's TruncToInt, FloorToInt, CeilToInt, RoundToInt (halves to the even one).
enum class Rounding : uint8_t { Trunc, Floor, Ceil, Round };

/// A number in double precision, each operator rounded for itself.
struct DoubleExpr {
  enum class Kind : uint8_t { Whole, Number, Add, Mul, Div, Min, Max, Sqrt };
  Kind kind = Kind::Number;
  Expr whole;                 // Whole: below 2^53
  double number = 0;          // Number
  std::vector<DoubleExpr> of; // the operands, two; of Sqrt one
};

struct RoundedSize {
  Symbol symbol;
  Rounding rounding;
  DoubleExpr of;
};

/// Those of a model, each of which may be made of those before it.
class RoundedSizes {
public:
  /// The symbol of that number, the same for equal ones.
  Symbol symbolOf(Rounding rounding, DoubleExpr of);
  void add(RoundedSize size) { all_.push_back(std::move(size)); }
  const std::vector<RoundedSize> &all() const { return all_; }
  std::vector<RoundedSize> &all() { return all_; }

private:
  std::vector<RoundedSize> all_;
};

/// In torch's words, which parseExpr reads: TruncToInt(Mul(FloatTrueDiv(ToFloat(64), ToFloat(s0)), ToFloat(s1))).
std::string print(Rounding rounding, const DoubleExpr &of);
std::string print(const DoubleExpr &e);
/// Whether a part of it may be negative.
bool mayBeNegative(const DoubleExpr &e, const Facts &facts);
/// The symbols in it, each once.
std::vector<Symbol> symbolsOf(const DoubleExpr &e);
/// Changes all whole numbers in it.
template <typename F> void mapWhole(DoubleExpr &e, F &&f) {
  if (e.whole.valid()) e.whole = f(e.whole);
  for (DoubleExpr &o : e.of) mapWhole(o, f);
}

/// As parseExpr, but what is rounded from doubles becomes a symbol of `rounded`.
Result<Expr> parseExpr(std::string_view text, RoundedSizes &rounded);
/// Reads what print() writes of a size that has that symbol.
Result<RoundedSize> parseRounded(std::string_view text, Symbol symbol);

} // namespace neso
