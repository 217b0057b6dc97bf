#include "lower/schedule/access.h"

#include <algorithm>

namespace neso::schedule {

using namespace loops;

void renumberIndirects(Node &node, size_t &next) {
  SymbolMap<Expr> symbols;
  forEachBody(node, [&](Body &body) {
    for (Op &op : body.ops)
      if (op.kind == OpKind::Indirect) {
        Symbol fresh = Symbol::indirect(next++);
        symbols[op.symbol] = fresh;
        op.symbol = fresh;
      }
  });
  if (!symbols.empty()) mapExprs(node, [&](Expr e) { return substitute(e, symbols); });
}

} // namespace neso::schedule
