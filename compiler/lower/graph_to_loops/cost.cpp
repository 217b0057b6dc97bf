#include "lower/graph_to_loops/cost.h"

namespace neso::lower {

Cost costOf(const loops::Body &body) {
  Cost c;
  for (const loops::Op &op : body.ops) {
    if (op.kind == OpKind::Load) {
      ++c.loads;
    } else if (op.kind != OpKind::Constant && op.kind != OpKind::Index) {
      ++c.ops;
    }
    c.heavy |= loops::info(op.kind).isHeavy();
  }
  return c;
}

bool worthRealizing(const Cost &cost, int uses) {
  if (cost.ops > kMaxInlineOps || cost.loads > kMaxInlineLoads) return true;
  return uses > 1 && (cost.heavy || cost.ops > kCheapOps || cost.loads > kCheapLoads);
}

} // namespace neso::lower
