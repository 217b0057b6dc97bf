#include "lower/tiling/segments.h"

#include <algorithm>
#include <set>

#include "lower/tiling/cost.h"

namespace neso {
namespace {

using loops::Op;
using loops::OpKind;
using loops::SegmentsSpec;

/// Columns of one program where threads hold a tile, and how many of them a thread has.
constexpr int64_t kColumns = 256, kColumnsOfThread = 4;

/// Whether the ends of the segments depend on the symbol.
bool endsUse(const SegmentsSpec &node, Symbol symbol) {
  std::vector<bool> uses(node.body.ops.size());
  std::set<Symbol> symbols{symbol};
  for (size_t i = 0; i < node.body.ops.size(); ++i) {
    const Op &op = node.body.ops[i];
    for (loops::ValueIdx v : {op.a, op.b, op.c}) uses[i] = uses[i] || (v >= 0 && uses[static_cast<size_t>(v)]);
    if (op.index.valid())
      for (Symbol s : symbolsOf(op.index)) uses[i] = uses[i] || symbols.contains(s);
    if (op.kind == OpKind::Indirect && uses[i]) symbols.insert(op.symbol);
  }
  return uses[static_cast<size_t>(node.first)] || uses[static_cast<size_t>(node.last)];
}

} // namespace

SegmentsTiling chooseSegmentsTiling(const plan::Plan &plan, const plan::Kernel &kernel, const TileTarget &target) {
  const std::vector<Expr> &x = kernel.xRanges;
  SegmentsTiling out;
  if (!x.empty() && !endsUse(kernel.nodes[0].get<SegmentsSpec>(), Symbol::outer(x.size() - 1))) {
    const int64_t most = target.threadBlocks ? kColumns : target.columnBlock;
    out.columns = std::min(nextPowerOfTwo(upperBound(plan.program.facts, x.back(), most)), most);
  }
  out.warps = warpsFor(std::max<int64_t>(out.columns, 1), kColumnsOfThread);
  return out;
}

} // namespace neso
