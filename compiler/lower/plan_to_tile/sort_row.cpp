#include "lower/plan_to_tile/sort_row.h"

#include "lower/plan_to_tile/blocks.h"

namespace neso {

SortRow::SortRow(KernelContext &k, const Facts &facts, const std::vector<int64_t> &tile)
    : n(k.kernel.rRanges[0]), index(0), one(k, Frame{}), many(k, Frame{tile}) {
  one.facts = facts;
  bindPrograms(one, rowBlocks(k));
  many.facts = one.facts, many.env = one.env;
  for (size_t d = 0; d < k.kernel.xRanges.size(); ++d) index = index * k.kernel.xRanges[d] + Symbol::outer(d);
  length = one.index(n), zero = one.intConst(0), unit = one.intConst(1);
  base = one.index(index * n * Expr(2));
}

Emitter SortRow::elements(const Emitter &frame, Val positions) const {
  Emitter e = frame;
  e.forgetIndices();
  e.stored.clear();
  e.env[Symbol::inner(0)] = positions;
  e.facts.setIndex(Symbol::inner(0), n);
  return e;
}

} // namespace neso
