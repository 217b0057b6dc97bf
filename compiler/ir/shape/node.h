// The tree behind Expr; only the files of this folder look inside.
#pragma once
#include "ir/shape/expr.h"

namespace neso {

struct ExprNode {
  ExprKind kind;
  int64_t value = 0; // Const
  Symbol symbol;     // Symbol
  std::vector<Expr> operands;
  size_t hash = 0;
};

/// Interns a node as it is: the caller has made it canonical.
Expr internExpr(ExprKind kind, std::vector<Expr> operands);

/// A term of a sum: coefficient * factors, factors sorted and without constants; empty factors is the constant 1.
struct Term {
  int64_t coefficient;
  std::vector<Expr> factors;
};
std::vector<Term> termsOf(Expr e);
Expr fromTerms(std::vector<Term> terms);
/// Python's floor division and remainder; b != 0.
int64_t floorDivInt(int64_t a, int64_t b);
int64_t modInt(int64_t a, int64_t b);

} // namespace neso
