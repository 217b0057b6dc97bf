#include "ir/loops/dependences.h"

#include <functional>

namespace neso::loops {

std::set<ValueIdx> reachable(const Body &body, ValueIdx root) {
  std::set<ValueIdx> seen;
  std::function<void(ValueIdx)> visit = [&](ValueIdx i) {
    if (i < 0 || !seen.insert(i).second) return;
    const Op &op = body.ops[static_cast<size_t>(i)];
    if (op.index.valid())
      for (size_t j = 0; j < body.ops.size(); ++j)
        if (body.ops[j].kind == OpKind::Indirect && uses(op.index, body.ops[j].symbol)) visit(static_cast<ValueIdx>(j));
    visit(op.a), visit(op.b), visit(op.c);
  };
  visit(root);
  return seen;
}

std::set<Symbol> dependences(const Body &body, ValueIdx root) {
  std::set<Symbol> out;
  for (ValueIdx i : reachable(body, root)) {
    const Op &op = body.ops[static_cast<size_t>(i)];
    if (!op.index.valid()) continue;
    for (Symbol s : symbolsOf(op.index)) out.insert(s);
  }
  return out;
}

} // namespace neso::loops
