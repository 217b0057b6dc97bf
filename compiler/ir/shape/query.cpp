// Walking expressions: printing, substitution, evaluation, symbols, affine form.
#include <algorithm>

#include "ir/shape/expr.h"
#include "ir/shape/node.h"

namespace neso {
namespace {

/// Binding strength for printing: 1 comparison, 2 sum, 3 product, 4 atom.
int precedence(ExprKind kind) {
  switch (kind) {
  case ExprKind::Add: return 2;
  case ExprKind::Mul:
  case ExprKind::FloorDiv:
  case ExprKind::Mod: return 3;
  case ExprKind::Eq:
  case ExprKind::Ne:
  case ExprKind::Lt:
  case ExprKind::Le: return 1;
  default: return 4;
  }
}

void print(Expr e, int outer, std::string &out);

/// Terms that are negative are subtracted.
void printSum(const std::vector<Expr> &terms, std::string &out) {
  for (size_t i = 0; i < terms.size(); ++i) {
    std::string text;
    print(terms[i], 2, text);
    if (i == 0)
      out += text;
    else if (text[0] == '-')
      out += " - " + text.substr(1);
    else
      out += " + " + text;
  }
}

/// A factor of -1 is a sign.
void printProduct(const std::vector<Expr> &factors, std::string &out) {
  for (size_t i = 0; i < factors.size(); ++i) {
    if (i == 0 && factors[0].isConst(-1)) {
      out += '-';
      continue;
    }
    if (i > 0 && !(i == 1 && factors[0].isConst(-1))) out += '*';
    print(factors[i], i == 0 && factors[0].isConst() ? 0 : 3, out);
  }
}

void print(Expr e, int outer, std::string &out) {
  int mine = precedence(e.kind());
  bool parens =
      mine < outer || (mine == outer && mine != 2 && mine != 4) || (e.isConst() && e.constValue() < 0 && outer > 2);
  if (parens) out += '(';
  const std::vector<Expr> &ops = e.operands();
  auto call = [&](const char *fn) {
    out += fn;
    out += '(';
    for (size_t i = 0; i < ops.size(); ++i) {
      if (i) out += ", ";
      print(ops[i], 0, out);
    }
    out += ')';
  };
  auto infix = [&](const char *op) {
    print(ops[0], mine, out);
    out += op;
    print(ops[1], mine + 1, out);
  };
  switch (e.kind()) {
  case ExprKind::Const: out += std::to_string(e.constValue()); break;
  case ExprKind::Symbol: out += e.symbol().str(); break;
  case ExprKind::Add: printSum(ops, out); break;
  case ExprKind::Mul: printProduct(ops, out); break;
  case ExprKind::FloorDiv: infix("//"); break;
  case ExprKind::Mod: infix("%"); break;
  case ExprKind::Eq: infix(" == "); break;
  case ExprKind::Ne: infix(" != "); break;
  case ExprKind::Lt: infix(" < "); break;
  case ExprKind::Le: infix(" <= "); break;
  case ExprKind::Min: call("min"); break;
  case ExprKind::Max: call("max"); break;
  case ExprKind::Pow: call("pow"); break;
  case ExprKind::And: call("and"); break;
  case ExprKind::Or: call("or"); break;
  case ExprKind::Not: call("not"); break;
  case ExprKind::Where: call("where"); break;
  }
  if (parens) out += ')';
}

Expr rebuild(ExprKind kind, const std::vector<Expr> &ops) {
  switch (kind) {
  case ExprKind::Add: return sum(ops);
  case ExprKind::Mul: return product(ops);
  case ExprKind::FloorDiv: return floorDiv(ops[0], ops[1]);
  case ExprKind::Mod: return mod(ops[0], ops[1]);
  case ExprKind::Min:
  case ExprKind::Max: {
    Expr out = ops[0];
    for (size_t i = 1; i < ops.size(); ++i) out = kind == ExprKind::Min ? min(out, ops[i]) : max(out, ops[i]);
    return out;
  }
  case ExprKind::Pow: return pow(ops[0], ops[1]);
  case ExprKind::Eq: return eq(ops[0], ops[1]);
  case ExprKind::Ne: return ne(ops[0], ops[1]);
  case ExprKind::Lt: return lt(ops[0], ops[1]);
  case ExprKind::Le: return le(ops[0], ops[1]);
  case ExprKind::And: return logicalAnd(ops[0], ops[1]);
  case ExprKind::Or: return logicalOr(ops[0], ops[1]);
  case ExprKind::Not: return logicalNot(ops[0]);
  case ExprKind::Where: return where(ops[0], ops[1], ops[2]);
  case ExprKind::Const:
  case ExprKind::Symbol: break;
  }
  NESO_UNREACHABLE("rebuild of a leaf");
}

using Memo = std::unordered_map<Expr, Expr>;
Expr substituteMemo(Expr e, const SymbolMap<Expr> &values, Memo &memo) {
  if (e.isConst()) return e;
  if (e.isSymbol()) {
    auto it = values.find(e.symbol());
    return it == values.end() ? e : it->second;
  }
  if (auto it = memo.find(e); it != memo.end()) return it->second;
  std::vector<Expr> ops;
  bool changed = false;
  for (Expr o : e.operands()) {
    ops.push_back(substituteMemo(o, values, memo));
    changed |= ops.back() != o;
  }
  Expr out = changed ? rebuild(e.kind(), ops) : e;
  memo.emplace(e, out);
  return out;
}

void collect(Expr e, std::vector<Expr> &out) {
  if (e.isSymbol()) out.push_back(e);
  for (Expr o : e.operands()) collect(o, out);
}

} // namespace

Expr rebuildExpr(ExprKind kind, const std::vector<Expr> &ops) { return rebuild(kind, ops); }

std::string Expr::str() const {
  std::string out;
  print(*this, 0, out);
  return out;
}

Expr substitute(Expr e, const SymbolMap<Expr> &values) {
  Memo memo;
  return substituteMemo(e, values, memo);
}

std::vector<Symbol> symbolsOf(Expr e) {
  std::vector<Expr> found;
  collect(e, found);
  std::sort(found.begin(), found.end(), Expr::less);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::vector<Symbol> symbols;
  for (Expr s : found) symbols.push_back(s.symbol());
  return symbols;
}

bool uses(Expr e, Symbol symbol) {
  if (e.isSymbol()) return e.symbol() == symbol;
  return std::any_of(e.operands().begin(), e.operands().end(), [&](Expr o) { return uses(o, symbol); });
}

std::optional<int64_t> evaluate(Expr e, const SymbolMap<int64_t> &values) {
  if (e.isConst()) return e.constValue();
  if (e.isSymbol()) {
    auto it = values.find(e.symbol());
    return it == values.end() ? std::nullopt : std::optional(it->second);
  }
  std::vector<int64_t> v;
  for (Expr o : e.operands()) {
    std::optional<int64_t> x = evaluate(o, values);
    if (!x) return std::nullopt;
    v.push_back(*x);
  }
  int64_t out = v[0];
  switch (e.kind()) {
  case ExprKind::Add:
    for (size_t i = 1; i < v.size(); ++i)
      if (__builtin_add_overflow(out, v[i], &out)) return std::nullopt;
    return out;
  case ExprKind::Mul:
    for (size_t i = 1; i < v.size(); ++i)
      if (__builtin_mul_overflow(out, v[i], &out)) return std::nullopt;
    return out;
  case ExprKind::FloorDiv:
  case ExprKind::Mod:
    if (v[1] == 0 || (v[0] == INT64_MIN && v[1] == -1)) return std::nullopt;
    return e.kind() == ExprKind::Mod ? modInt(v[0], v[1]) : floorDivInt(v[0], v[1]);
  case ExprKind::Min: return *std::min_element(v.begin(), v.end());
  case ExprKind::Max: return *std::max_element(v.begin(), v.end());
  case ExprKind::Pow: {
    if (v[1] < 0) return std::nullopt;
    int64_t base = v[0], n = v[1], result = 1;
    for (; n > 0; n >>= 1) {
      if ((n & 1) && __builtin_mul_overflow(result, base, &result)) return std::nullopt;
      if (n > 1 && __builtin_mul_overflow(base, base, &base)) return std::nullopt;
    }
    return result;
  }
  case ExprKind::Eq: return v[0] == v[1];
  case ExprKind::Ne: return v[0] != v[1];
  case ExprKind::Lt: return v[0] < v[1];
  case ExprKind::Le: return v[0] <= v[1];
  case ExprKind::And: return v[0] && v[1];
  case ExprKind::Or: return v[0] || v[1];
  case ExprKind::Not: return !v[0];
  case ExprKind::Where: return v[0] ? v[1] : v[2];
  case ExprKind::Const:
  case ExprKind::Symbol: break;
  }
  NESO_UNREACHABLE("evaluate of a leaf");
}

std::optional<Affine> affineIn(Expr e, Symbol x) {
  std::vector<Term> coefficient, rest;
  for (Term &t : termsOf(e)) {
    int found = 0;
    Term left{t.coefficient, {}};
    for (Expr f : t.factors) {
      if (f.isSymbol() && f.symbol() == x)
        ++found;
      else if (uses(f, x))
        return std::nullopt;
      else
        left.factors.push_back(f);
    }
    if (found > 1) return std::nullopt;
    (found ? coefficient : rest).push_back(found ? left : t);
  }
  return Affine{fromTerms(std::move(coefficient)), fromTerms(std::move(rest))};
}

} // namespace neso
