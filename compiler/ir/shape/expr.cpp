// Interning and canonical form.
#include "ir/shape/expr.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>
#include <unordered_set>

#include "ir/shape/node.h"

namespace neso {

class ExprTable {
public:
  static ExprTable &get() {
    static ExprTable *table =
        new ExprTable; // expressions live until the process ends, whatever the order of destructors
    return *table;
  }
  Expr intern(ExprNode node) {
    size_t h = static_cast<size_t>(node.kind) * 0x9e3779b97f4a7c15u;
    auto mix = [&h](size_t x) { h = (h ^ x) * 0xff51afd7ed558ccdu, h ^= h >> 32; };
    mix(static_cast<size_t>(node.value));
    mix(node.symbol.hash());
    for (Expr e : node.operands) mix(e.node()->hash);
    node.hash = h;
    std::lock_guard lock(mutex_);
    auto it = nodes_.find(&node);
    if (it != nodes_.end()) return Expr(*it);
    const ExprNode *kept = new ExprNode(std::move(node));
    nodes_.insert(kept);
    return Expr(kept);
  }

private:
  struct Hash {
    size_t operator()(const ExprNode *n) const { return n->hash; }
  };
  struct Same {
    bool operator()(const ExprNode *a, const ExprNode *b) const {
      return a->kind == b->kind && a->value == b->value && a->symbol == b->symbol && a->operands == b->operands;
    }
  };
  std::mutex mutex_;
  std::unordered_set<const ExprNode *, Hash, Same> nodes_;
};

Expr internExpr(ExprKind kind, std::vector<Expr> operands) {
  ExprNode node{kind, 0, {}, std::move(operands), 0};
  return ExprTable::get().intern(std::move(node));
}

Expr::Expr(int64_t value) {
  // Small constants are everywhere; they skip the lock.
  static const std::array<Expr, 1025> small = [] {
    std::array<Expr, 1025> table;
    for (int64_t i = 0; i <= 1024; ++i)
      table[static_cast<size_t>(i)] = ExprTable::get().intern({ExprKind::Const, i, {}, {}, 0});
    return table;
  }();
  *this = value >= 0 && value <= 1024 ? small[static_cast<size_t>(value)]
                                      : ExprTable::get().intern({ExprKind::Const, value, {}, {}, 0});
}

Expr::Expr(Symbol symbol) { *this = ExprTable::get().intern({ExprKind::Symbol, 0, symbol, {}, 0}); }

ExprKind Expr::kind() const { return node_->kind; }
int64_t Expr::constValue() const { return node_->value; }
std::optional<int64_t> Expr::asConst() const { return isConst() ? std::optional(node_->value) : std::nullopt; }
Symbol Expr::symbol() const { return node_->symbol; }
const std::vector<Expr> &Expr::operands() const { return node_->operands; }

bool Expr::less(Expr a, Expr b) {
  if (a == b) return false;
  const ExprNode *x = a.node_, *y = b.node_;
  if (x->kind != y->kind) return x->kind < y->kind;
  if (x->kind == ExprKind::Const) return x->value < y->value;
  if (x->kind == ExprKind::Symbol) {
    // By length first, so that i2 comes before i10.
    size_t lengthX = x->symbol.str().size(), lengthY = y->symbol.str().size();
    return lengthX != lengthY ? lengthX < lengthY : x->symbol < y->symbol;
  }
  return std::lexicographical_compare(x->operands.begin(), x->operands.end(), y->operands.begin(), y->operands.end(),
                                      Expr::less);
}

int64_t floorDivInt(int64_t a, int64_t b) {
  // The least number has no opposite.
  if (b == -1) return static_cast<int64_t>(-static_cast<uint64_t>(a));
  int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}
int64_t modInt(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

namespace {

int64_t wrapAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t wrapMul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

bool lessFactors(const std::vector<Expr> &a, const std::vector<Expr> &b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), Expr::less);
}

Expr termToExpr(const Term &t) {
  if (t.factors.empty()) return Expr(t.coefficient);
  if (t.coefficient == 0) return 0;
  if (t.coefficient == 1 && t.factors.size() == 1) return t.factors[0];
  std::vector<Expr> ops;
  if (t.coefficient != 1) ops.push_back(Expr(t.coefficient));
  ops.insert(ops.end(), t.factors.begin(), t.factors.end());
  return internExpr(ExprKind::Mul, std::move(ops));
}

Term oneTerm(Expr e) {
  if (e.isConst()) return {e.constValue(), {}};
  if (e.kind() != ExprKind::Mul) return {1, {e}};
  Term t{1, e.operands()};
  if (t.factors[0].isConst()) {
    t.coefficient = t.factors[0].constValue();
    t.factors.erase(t.factors.begin());
  }
  return t;
}

/// t / divisor when every factor of divisor is in t.
std::optional<Term> divideTerm(const Term &t, const Term &divisor) {
  if (divisor.coefficient == 0 || modInt(t.coefficient, divisor.coefficient) != 0) return std::nullopt;
  Term out{floorDivInt(t.coefficient, divisor.coefficient), t.factors};
  for (Expr f : divisor.factors) {
    auto it = std::find(out.factors.begin(), out.factors.end(), f);
    if (it == out.factors.end()) return std::nullopt;
    out.factors.erase(it);
  }
  return out;
}

struct Split {
  std::vector<Term> quotient, rest;
};
/// By a sum: what is a multiple of all its terms, x*s + x of s + 1.
Split splitBySum(Expr a, Expr b) {
  Split out{{}, termsOf(a)};
  const std::vector<Term> divisor = termsOf(b);
  const auto lead = std::find_if(divisor.begin(), divisor.end(), [](const Term &t) { return !t.factors.empty(); });
  for (size_t k = 0; k < out.rest.size();) {
    const std::optional<Term> q = divideTerm(out.rest[k], *lead);
    const std::vector<Term> left = q ? termsOf(fromTerms(out.rest) - fromTerms({*q}) * b) : std::vector<Term>();
    if (!q || left.size() + divisor.size() != out.rest.size()) {
      ++k;
      continue;
    }
    out.quotient.push_back(*q);
    out.rest = left;
    k = 0;
  }
  return out;
}
/// a = quotient * b + rest, by terms that b divides. Constants give their quotient too when b is a positive constant.
Split splitBy(Expr a, Expr b) {
  if (b.kind() == ExprKind::Add) return splitBySum(a, b);
  Split out;
  Term divisor = oneTerm(b);
  for (const Term &t : termsOf(a)) {
    if (std::optional<Term> q = divideTerm(t, divisor)) {
      out.quotient.push_back(*q);
    } else if (t.factors.empty() && b.isConst()) {
      out.quotient.push_back({floorDivInt(t.coefficient, b.constValue()), {}});
      out.rest.push_back({modInt(t.coefficient, b.constValue()), {}});
    } else {
      out.rest.push_back(t);
    }
  }
  return out;
}

int64_t gcdOfCoefficients(const std::vector<Term> &terms, int64_t start) {
  int64_t g = start;
  for (const Term &t : terms)
    if (!t.factors.empty()) g = std::gcd(g, t.coefficient);
  return g;
}

Expr compare(ExprKind kind, Expr a, Expr b) {
  // The difference of two numbers far apart wraps.
  std::optional<int64_t> d = (a - b).asConst();
  if (a.isConst() && b.isConst()) d = (a.constValue() > b.constValue()) - (a.constValue() < b.constValue());
  if (d) {
    switch (kind) {
    case ExprKind::Eq: return *d == 0;
    case ExprKind::Ne: return *d != 0;
    case ExprKind::Lt: return *d < 0;
    default: return *d <= 0;
    }
  }
  if ((kind == ExprKind::Eq || kind == ExprKind::Ne) && Expr::less(b, a)) std::swap(a, b);
  return internExpr(kind, {a, b});
}

Expr extremum(ExprKind kind, Expr a, Expr b) {
  std::vector<Expr> ops;
  std::optional<int64_t> constant;
  auto take = [&](Expr e) {
    if (std::optional<int64_t> c = e.asConst())
      constant = !constant ? *c : kind == ExprKind::Min ? std::min(*constant, *c) : std::max(*constant, *c);
    else
      ops.push_back(e);
  };
  for (Expr e : {a, b}) {
    if (e.kind() == kind)
      for (Expr o : e.operands()) take(o);
    else
      take(e);
  }
  if (constant) ops.push_back(Expr(*constant));
  std::sort(ops.begin(), ops.end(), Expr::less);
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
  // Operands that differ by a constant from another one: only the extreme one counts.
  for (size_t i = 0; i < ops.size(); ++i)
    for (size_t j = 0; j < ops.size();) {
      std::optional<int64_t> d = i == j ? std::nullopt : (ops[i] - ops[j]).asConst();
      if (d && (kind == ExprKind::Min ? *d <= 0 : *d >= 0)) {
        ops.erase(ops.begin() + static_cast<ptrdiff_t>(j));
        if (j < i) --i;
      } else {
        ++j;
      }
    }
  return ops.size() == 1 ? ops[0] : internExpr(kind, std::move(ops));
}

} // namespace

std::vector<Term> termsOf(Expr e) {
  std::vector<Term> out;
  if (e.kind() == ExprKind::Add)
    for (Expr o : e.operands()) out.push_back(oneTerm(o));
  else if (!e.isConst(0))
    out.push_back(oneTerm(e));
  return out;
}

/// k*b*(x//b) + k*(x%b) is k*x: undoes the splitting of an index. Returns true when it changed terms.
static bool joinDivisions(std::vector<Term> &terms) {
  for (size_t m = 0; m < terms.size(); ++m)
    for (size_t f = 0; f < terms[m].factors.size(); ++f) {
      Expr remainder = terms[m].factors[f];
      if (remainder.kind() != ExprKind::Mod) continue;
      Expr x = remainder.operands()[0], b = remainder.operands()[1];
      Term wanted = terms[m];
      wanted.factors.erase(wanted.factors.begin() + static_cast<ptrdiff_t>(f));
      Term joined = wanted;
      std::vector<Term> quotient = termsOf(b * floorDiv(x, b));
      if (quotient.size() != 1) continue;
      wanted.coefficient = wrapMul(wanted.coefficient, quotient[0].coefficient);
      wanted.factors.insert(wanted.factors.end(), quotient[0].factors.begin(), quotient[0].factors.end());
      std::sort(wanted.factors.begin(), wanted.factors.end(), Expr::less);
      for (size_t d = 0; d < terms.size(); ++d) {
        if (d == m || terms[d].coefficient != wanted.coefficient || terms[d].factors != wanted.factors) continue;
        std::vector<Term> product = termsOf(fromTerms({joined}) * x);
        terms.erase(terms.begin() + static_cast<ptrdiff_t>(std::max(d, m)));
        terms.erase(terms.begin() + static_cast<ptrdiff_t>(std::min(d, m)));
        terms.insert(terms.end(), product.begin(), product.end());
        return true;
      }
    }
  return false;
}

/// k*(x%b) - k*x is -k*b*(x//b): what is padded to a multiple is one in its form too. Returns true when it changed terms.
static bool takeRemainderAway(std::vector<Term> &terms) {
  for (size_t m = 0; m < terms.size(); ++m)
    for (size_t f = 0; f < terms[m].factors.size(); ++f) {
      const Expr remainder = terms[m].factors[f];
      if (remainder.kind() != ExprKind::Mod) continue;
      Term scale = terms[m];
      scale.factors.erase(scale.factors.begin() + static_cast<ptrdiff_t>(f));
      const Expr x = remainder.operands()[0], b = remainder.operands()[1], k = fromTerms({scale});
      std::vector<Term> left = terms;
      left.erase(left.begin() + static_cast<ptrdiff_t>(m));
      bool all = false;
      for (const Term &t : termsOf(k * x)) {
        if (t.factors == scale.factors) continue; // of the constant in x
        auto it = std::find_if(left.begin(), left.end(), [&](const Term &o) {
          return t.coefficient != INT64_MIN && o.factors == t.factors && (t.coefficient < 0 ? o.coefficient >= -t.coefficient : o.coefficient <= -t.coefficient);
        });
        all = it != left.end();
        if (!all) break;
        it->coefficient = wrapAdd(it->coefficient, t.coefficient);
      }
      if (!all) continue;
      // The constant's part of k*x, and the division.
      for (const Term &t : termsOf(k * x))
        if (t.factors == scale.factors) left.push_back(t);
      for (Term &t : termsOf(k * b * floorDiv(x, b))) left.push_back({wrapMul(t.coefficient, -1), std::move(t.factors)});
      std::erase_if(left, [](const Term &t) { return t.coefficient == 0; });
      terms = std::move(left);
      return true;
    }
  return false;
}

Expr fromTerms(std::vector<Term> terms) {
  while (terms.size() > 1 && (joinDivisions(terms) || takeRemainderAway(terms))) {
  }
  std::sort(terms.begin(), terms.end(), [](const Term &a, const Term &b) { return lessFactors(a.factors, b.factors); });
  std::vector<Expr> ops;
  for (size_t i = 0; i < terms.size();) {
    Term total = terms[i];
    for (++i; i < terms.size() && terms[i].factors == total.factors; ++i)
      total.coefficient = wrapAdd(total.coefficient, terms[i].coefficient);
    if (total.coefficient != 0) ops.push_back(termToExpr(total));
  }
  if (ops.empty()) return 0;
  if (ops.size() == 1) return ops[0];
  if (ops[0].isConst()) std::rotate(ops.begin(), ops.begin() + 1, ops.end()); // the constant is printed last
  return internExpr(ExprKind::Add, std::move(ops));
}

Expr operator+(Expr a, Expr b) {
  if (a.isConst(0)) return b;
  if (b.isConst(0)) return a;
  std::vector<Term> terms = termsOf(a), more = termsOf(b);
  terms.insert(terms.end(), more.begin(), more.end());
  return fromTerms(std::move(terms));
}
Expr operator-(Expr a) { return Expr(-1) * a; }
Expr operator-(Expr a, Expr b) { return a + Expr(-1) * b; }

Expr operator*(Expr a, Expr b) {
  if (a.isConst(0) || b.isConst(0)) return 0;
  if (a.isConst(1)) return b;
  if (b.isConst(1)) return a;
  std::vector<Term> out;
  for (const Term &x : termsOf(a))
    for (const Term &y : termsOf(b)) {
      Term t{wrapMul(x.coefficient, y.coefficient), x.factors};
      t.factors.insert(t.factors.end(), y.factors.begin(), y.factors.end());
      std::sort(t.factors.begin(), t.factors.end(), Expr::less);
      out.push_back(std::move(t));
    }
  return fromTerms(std::move(out));
}

Expr floorDiv(Expr a, Expr b) {
  if (b.isConst(1)) return a;
  if (b.isConst(0))
    return internExpr(ExprKind::FloorDiv, {a, b}); // evaluates to nothing; reported when a size program runs
  if (a.isConst() && b.isConst()) return floorDivInt(a.constValue(), b.constValue());
  if (a.isConst(0)) return 0;
  if (a == b) return 1;
  if (b.isConst(INT64_MIN)) return internExpr(ExprKind::FloorDiv, {a, b}); // which has no opposite
  if (b.isConst() && b.constValue() < 0) return floorDiv(-a, -b);
  Split split = splitBy(a, b);
  Expr quotient = fromTerms(split.quotient), rest = fromTerms(split.rest);
  if (rest.isConst(0)) return quotient;
  if (b.isConst()) {
    int64_t c = b.constValue();
    if (rest.isConst()) return quotient; // already in [0, c)
    // floor((g*x + r) / (g*c)) == floor((x + floor(r / g)) / c)
    std::vector<Term> terms = termsOf(rest);
    int64_t g = gcdOfCoefficients(terms, c);
    if (g > 1) {
      for (Term &t : terms) t.coefficient = floorDivInt(t.coefficient, g);
      return quotient + floorDiv(fromTerms(std::move(terms)), Expr(c / g));
    }
    if (rest.kind() == ExprKind::FloorDiv && rest.operands()[1].isConst() && rest.operands()[1].constValue() > 0)
      return quotient + floorDiv(rest.operands()[0], rest.operands()[1] * b);
    // One form for rounding up: -((-x)//c) is (x + c - 1)//c.
    if (oneTerm(rest.kind() == ExprKind::Add ? rest.operands()[0] : rest).coefficient < 0)
      return quotient - internExpr(ExprKind::FloorDiv, {Expr(c - 1) - rest, b});
  }
  return quotient + internExpr(ExprKind::FloorDiv, {rest, b});
}

Expr ceilDiv(Expr a, Expr b) {
  if (b.isConst() && b.constValue() > 0) return floorDiv(a + (b - 1), b);
  return -floorDiv(-a, b);
}

/// (k*(x%m) + y) mod c is (k*x + y) mod c where c divides k*m.
static Expr withoutInnerRemainders(Expr a, int64_t c) {
  std::vector<Term> terms = termsOf(a), out;
  for (Term &t : terms) {
    const Expr inner = t.factors.size() == 1 ? t.factors[0] : Expr(0);
    const std::optional<int64_t> m = inner.kind() == ExprKind::Mod ? inner.operands()[1].asConst() : std::nullopt;
    int64_t multiple;
    if (!m || __builtin_mul_overflow(*m, t.coefficient, &multiple) || modInt(multiple, c) != 0) {
      out.push_back(std::move(t));
      continue;
    }
    for (Term &x : termsOf(Expr(t.coefficient) * inner.operands()[0])) out.push_back(std::move(x));
  }
  return fromTerms(std::move(out));
}

Expr mod(Expr a, Expr b) {
  if (b.isConst(1) || a.isConst(0)) return 0;
  if (b.isConst(0)) return internExpr(ExprKind::Mod, {a, b});
  if (b.isConst()) a = withoutInnerRemainders(a, b.constValue());
  if (a.isConst() && b.isConst()) return modInt(a.constValue(), b.constValue());
  if (a == b) return 0;
  Expr rest = fromTerms(splitBy(a, b).rest);
  if (rest.isConst(0)) return 0;
  if (b.isConst() && b.constValue() > 0) {
    int64_t c = b.constValue();
    if (rest.isConst()) return rest;
    std::vector<Term> terms = termsOf(rest);
    int64_t g = gcdOfCoefficients(terms, c);
    if (g > 1) {
      // (g*x + r) mod (g*c) == g * ((x + r/g) mod c) + r%g
      int64_t left = 0;
      for (Term &t : terms) {
        if (t.factors.empty()) left = modInt(t.coefficient, g);
        t.coefficient = floorDivInt(t.coefficient, g);
      }
      return Expr(g) * mod(fromTerms(std::move(terms)), Expr(c / g)) + Expr(left);
    }
  }
  return internExpr(ExprKind::Mod, {rest, b});
}

Expr min(Expr a, Expr b) { return extremum(ExprKind::Min, a, b); }
Expr max(Expr a, Expr b) { return extremum(ExprKind::Max, a, b); }

Expr pow(Expr a, Expr b) {
  if (b.isConst() && b.constValue() >= 0 && (a.isConst() || b.constValue() <= 8)) {
    Expr out = 1;
    int64_t n = std::min<int64_t>(b.constValue(), 64); // beyond 64 only 0, 1 and -1 have a meaning in int64
    if (b.constValue() > 64 && a.isConst(-1)) n = b.constValue() % 2;
    for (int64_t i = 0; i < n; ++i) out = out * a;
    return out;
  }
  return internExpr(ExprKind::Pow, {a, b});
}

Expr eq(Expr a, Expr b) { return compare(ExprKind::Eq, a, b); }
Expr ne(Expr a, Expr b) { return compare(ExprKind::Ne, a, b); }
Expr lt(Expr a, Expr b) { return compare(ExprKind::Lt, a, b); }
Expr le(Expr a, Expr b) { return compare(ExprKind::Le, a, b); }

Expr logicalAnd(Expr a, Expr b) {
  if (a.isConst()) return a.constValue() ? b : Expr(0);
  if (b.isConst()) return b.constValue() ? a : Expr(0);
  if (Expr::less(b, a)) std::swap(a, b);
  return a == b ? a : internExpr(ExprKind::And, {a, b});
}
Expr logicalOr(Expr a, Expr b) {
  if (a.isConst()) return a.constValue() ? Expr(1) : b;
  if (b.isConst()) return b.constValue() ? Expr(1) : a;
  if (Expr::less(b, a)) std::swap(a, b);
  return a == b ? a : internExpr(ExprKind::Or, {a, b});
}
Expr logicalNot(Expr a) {
  if (a.isConst()) return a.constValue() == 0;
  switch (a.kind()) {
  case ExprKind::Not: return a.operands()[0];
  case ExprKind::Eq: return ne(a.operands()[0], a.operands()[1]);
  case ExprKind::Ne: return eq(a.operands()[0], a.operands()[1]);
  case ExprKind::Lt: return le(a.operands()[1], a.operands()[0]);
  case ExprKind::Le: return lt(a.operands()[1], a.operands()[0]);
  default: return internExpr(ExprKind::Not, {a});
  }
}

Expr where(Expr cond, Expr a, Expr b) {
  if (cond.isConst()) return cond.constValue() ? a : b;
  return a == b ? a : internExpr(ExprKind::Where, {cond, a, b});
}

Expr product(const std::vector<Expr> &xs) {
  Expr out = 1;
  for (Expr x : xs) out = out * x;
  return out;
}
Expr sum(const std::vector<Expr> &xs) {
  Expr out = 0;
  for (Expr x : xs) out = out + x;
  return out;
}

} // namespace neso
