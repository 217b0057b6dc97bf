// Symbolic integers: sizes, strides, storage offsets and index expressions of every IR.
//
// An Expr is an immutable, hash-consed tree: two equal expressions are the same pointer, so == is O(1) and an Expr is a value the size
// of a pointer. Building an expression puts it into canonical form:
//   - a sum is a flat list of terms, sorted, each a constant coefficient times a product; equal products are collected; one constant;
//   - a product is a flat sorted list of factors and is multiplied out over sums: 4*(i + 2) is 4*i + 8;
//   - constants fold; x//1, x%1, min(x,x) and their like vanish; terms that c divides leave a floorDiv(…, c) or mod(…, c).
// Example: Expr n = Symbol::size("s0"), i = Symbol::index(0);  (i * n + n * 2) / n  ==  i + 2   with floorDiv and n known positive.
//
// Division follows Python: floorDiv rounds towards minus infinity, mod has the sign of the divisor. Values are int64; overflow of a
// constant is a fault of the model and saturates never: it is checked when a size program runs.
//
// What is true of symbols (ranges, divisibility) is not in the expression but in Facts, given to the questions that need it, because
// a loop index has a range in one loop nest only.
//
// Thread-safety: building takes a global lock; reading needs none. Expressions live until the process ends.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/diagnostics.h"
#include "ir/shape/symbol.h"

namespace neso {

enum class ExprKind : uint8_t {
  Const,
  Symbol,
  Add,      // >= 2 operands
  Mul,      // >= 2 operands; a constant factor, if any, comes first
  FloorDiv, // a, b
  Mod,      // a, b (Python's sign rule)
  Min,      // >= 2 operands
  Max,
  Pow, // a, b with b >= 0
  Eq,
  Ne,
  Lt,
  Le, // 0 or 1
  And,
  Or,
  Not,   // of 0/1 values
  Where, // condition, a, b
};

struct ExprNode;

class Expr {
public:
  Expr() = default; // no expression; only valid() may be asked
  Expr(int64_t value);
  Expr(int value) : Expr(static_cast<int64_t>(value)) {}
  Expr(Symbol symbol);

  bool valid() const { return node_ != nullptr; }
  ExprKind kind() const;
  bool isConst() const { return kind() == ExprKind::Const; }
  bool isConst(int64_t v) const { return isConst() && constValue() == v; }
  bool isSymbol() const { return kind() == ExprKind::Symbol; }
  int64_t constValue() const;             // of a Const
  std::optional<int64_t> asConst() const; // its value if it is a Const
  Symbol symbol() const;                  // of a Symbol
  const std::vector<Expr> &operands() const;
  /// Sorted order that does not depend on addresses, so that output is the same in every run.
  static bool less(Expr a, Expr b);

  std::string str() const; // "4*i0 + s0//2 + 1"; parsePrinted reads it back
  const ExprNode *node() const { return node_; }
  friend bool operator==(Expr a, Expr b) { return a.node_ == b.node_; }
  friend bool operator!=(Expr a, Expr b) { return a.node_ != b.node_; }

private:
  friend struct ExprNode;
  friend class ExprTable;
  explicit Expr(const ExprNode *node) : node_(node) {}
  const ExprNode *node_ = nullptr;
};

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator-(Expr a);
Expr operator*(Expr a, Expr b);
Expr floorDiv(Expr a, Expr b);
Expr ceilDiv(Expr a, Expr b);
Expr mod(Expr a, Expr b);
Expr min(Expr a, Expr b);
Expr max(Expr a, Expr b);
Expr pow(Expr a, Expr b);
Expr eq(Expr a, Expr b);
Expr ne(Expr a, Expr b);
Expr lt(Expr a, Expr b);
Expr le(Expr a, Expr b);
inline Expr gt(Expr a, Expr b) { return lt(b, a); }
inline Expr ge(Expr a, Expr b) { return le(b, a); }
Expr logicalAnd(Expr a, Expr b);
Expr logicalOr(Expr a, Expr b);
Expr logicalNot(Expr a);
Expr where(Expr cond, Expr a, Expr b);
Expr product(const std::vector<Expr> &xs); // 1 when empty
Expr sum(const std::vector<Expr> &xs);     // 0 when empty

/// Replaces symbols; canonical again afterwards.
Expr substitute(Expr e, const SymbolMap<Expr> &values);
/// The symbols in e, each once, in sorted order.
std::vector<Symbol> symbolsOf(Expr e);
bool uses(Expr e, Symbol symbol);
/// The value of e when every symbol has one; nullopt on an unknown symbol, a division by zero or overflow.
std::optional<int64_t> evaluate(Expr e, const SymbolMap<int64_t> &values);
/// e as c*x + rest with neither c nor rest using the symbol x; nullopt if e is not affine in x.
struct Affine {
  Expr coefficient, rest;
};
std::optional<Affine> affineIn(Expr e, Symbol x);

/// Reads what torch writes (sympy srepr, or plain infix text): "Mul(Integer(4), Symbol('s23', positive=True,
/// integer=True))". Every name is a size.
Result<Expr> parseExpr(std::string_view text);
/// Which symbol a name in the text of an expression is; nullopt: none.
using SymbolResolver = std::function<std::optional<Symbol>(std::string_view)>;
/// Reads what Expr::str() writes.
Result<Expr> parsePrinted(std::string_view text, const SymbolResolver &resolve = Symbol::fromText);

/// Closed interval [lo, hi] of int64; the extremes stand for unbounded.
struct Interval {
  int64_t lo = INT64_MIN, hi = INT64_MAX;
  bool bounded() const { return lo != INT64_MIN && hi != INT64_MAX; }
};

/// What is known about symbols, and the questions that it answers. A value type; cheap to copy for a loop nest.
class Facts {
public:
  void setRange(Symbol symbol, Interval range);
  void setDivisor(Symbol symbol, int64_t divisor); // the symbol is a multiple of it
  /// A value that the symbol is known to take in practice; see ir/shape/usual.h.
  void setHint(Symbol symbol, int64_t value);
  std::optional<int64_t> hint(Symbol symbol) const;
  /// What holds where a choice was made by e: it is in `range`, and usually `usual`. Of a symbol as setRange and setHint say.
  void assume(Expr e, Interval range, int64_t usual);
  std::optional<int64_t> assumedUsual(Expr e) const;
  /// Forgets the symbol.
  void erase(Symbol symbol);
  /// A loop index: the symbol is in [0, extent), where extent may be symbolic. Sets the constant range too, from
  /// extent's own range.
  void setIndex(Symbol symbol, Expr extent);
  Interval range(Symbol symbol) const;
  const std::map<Symbol, Interval> &ranges() const { return ranges_; }

  Interval rangeOf(Expr e) const;
  /// The largest power of two known to divide e (1 if nothing is known; 1<<62 for 0).
  int64_t divisorOf(Expr e) const;
  /// Provable statements; false means "not proved".
  bool provablyEqual(Expr a, Expr b) const;
  bool provablyLess(Expr a, Expr b) const;      // a < b
  bool provablyLessEqual(Expr a, Expr b) const; // a <= b
  bool provablyDivisible(Expr a, Expr b) const; // a % b == 0
  /// e rewritten with what is known: (i0 % 8) is i0 when i0 in [0, 7], min and max and where resolved, …
  Expr simplify(Expr e) const;

private:
  bool provablyNonNegative(Expr e) const;
  Interval rangeOfParts(Expr e) const;
  /// Of expressions that are no symbols: few, and mostly none.
  struct Assumed {
    Expr e;
    Interval range;
    int64_t usual;
  };
  std::vector<Assumed> assumed_;
  std::map<Symbol, Interval> ranges_;
  std::map<Symbol, int64_t> divisors_, hints_;
  std::map<Symbol, Expr> extents_; // of loop indices
};

} // namespace neso

template <> struct std::hash<neso::Expr> {
  size_t operator()(neso::Expr e) const noexcept { return std::hash<const void *>()(e.node()); }
};
