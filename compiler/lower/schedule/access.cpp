#include "lower/schedule/access.h"

#include <algorithm>

namespace neso::schedule {

using namespace loops;

void renumberIndirects(Node &node, size_t &next) {
  SymbolMap<Expr> symbols;
  for (Body *body : {&node.body, &node.epilogue})
    for (Op &op : body->ops)
      if (op.kind == OpKind::Indirect) {
        Symbol fresh = Symbol::indirect(next++);
        symbols[op.symbol] = fresh;
        op.symbol = fresh;
      }
  if (!symbols.empty()) mapExprs(node, [&](Expr e) { return substitute(e, symbols); });
}

int64_t hint(Expr e, const Facts &facts, int64_t usual) {
  if (e.isConst()) return e.constValue();
  SymbolMap<int64_t> values;
  for (Symbol s : symbolsOf(e)) {
    Interval range = facts.range(s);
    values[s] = std::clamp<int64_t>(usual, range.lo == INT64_MIN ? 1 : range.lo, range.hi);
  }
  return evaluate(e, values).value_or(usual);
}

} // namespace neso::schedule
