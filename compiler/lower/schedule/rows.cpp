#include "lower/schedule/rows.h"

#include <algorithm>

namespace neso::schedule {

using namespace loops;

namespace {

int64_t coefficientOf(Expr term) {
  if (term.isConst()) return term.constValue();
  if (term.kind() == ExprKind::Mul && term.operands()[0].isConst()) return term.operands()[0].constValue();
  return 1;
}

int64_t floorOf(int64_t a, int64_t b) { return floorDiv(Expr(a), Expr(b)).constValue(); }

/// The value of a body as an expression over the loops, where it is an index or a number.
std::optional<Expr> numberOf(const Body &body, ValueIdx v) {
  const Op &op = body.ops[static_cast<size_t>(v)];
  if (op.kind == OpKind::Index) return op.index;
  if (op.kind == OpKind::Constant && isInteger(op.dtype)) return Expr(op.immInt);
  return std::nullopt;
}

/// a + margin <= b, of which one is a number and the other a symbol plus a number.
void assumeOrder(Facts &facts, Expr a, Expr b, int64_t margin) {
  const Expr difference = b - a - Expr(margin); // >= 0
  for (Symbol s : symbolsOf(difference)) {
    const std::optional<Affine> of = affineIn(difference, s);
    if (!of || !of->rest.isConst()) return;
    Interval range = facts.range(s);
    if (of->coefficient.isConst(1))
      range.lo = std::max(range.lo, -of->rest.constValue());
    else if (of->coefficient.isConst(-1))
      range.hi = std::min(range.hi, of->rest.constValue());
    // Where nothing is left the condition is never true, and nothing happens there.
    if (range.lo <= range.hi) facts.setRange(s, range);
  }
}

} // namespace

std::optional<RowPlace> placeInRows(Expr index, int64_t width, int64_t limit, const Facts &facts) {
  Expr row = 0, inside = 0;
  int64_t offset = 0;
  for (Expr term : index.kind() == ExprKind::Add ? index.operands() : std::vector<Expr>{index})
    if (term.isConst())
      offset = term.constValue();
    else if (coefficientOf(term) % width == 0)
      row = row + floorDiv(term, width);
    else
      inside = inside + term;
  const Interval range = facts.rangeOf(inside);
  constexpr int64_t kRoom = int64_t{1} << 60;
  if (range.lo < -kRoom || range.hi > kRoom || offset < -kRoom || offset > kRoom) return std::nullopt;
  const int64_t first = floorOf(range.lo + offset, width), rest = offset - first * width;
  if (range.hi + rest >= limit) return std::nullopt;
  return RowPlace{row + Expr(first), inside + Expr(rest)};
}

Facts factsInside(const Node &node, const Facts &facts) {
  Facts out = facts;
  for (size_t d = 0; d < node.ranges.size(); ++d) out.setIndex(Symbol::index(d), node.ranges[d]);
  for (size_t d = 0; d < node.reduceRanges.size(); ++d) out.setIndex(Symbol::inner(d), node.reduceRanges[d]);
  if (const auto *attention = node.as<AttentionSpec>()) {
    using Axis = AttentionSpec::Axis;
    for (Axis axis : {Axis::Batch, Axis::Head, Axis::Query}) out.setIndex(AttentionSpec::symbol(axis), node.ranges[axis]);
    out.setIndex(AttentionSpec::symbol(Axis::Key), attention->keyLength);
    // Elements of q and k, and of v.
    const Expr elements = max(attention->headSize, node.ranges[3]);
    out.setIndex(AttentionSpec::symbol(Axis::Element), elements);
  }
  return out;
}

void assume(Facts &facts, const Body &body, ValueIdx condition) {
  const Op &op = body.ops[static_cast<size_t>(condition)];
  if (op.kind == OpKind::And && op.dtype == DType::Bool) return assume(facts, body, op.a), assume(facts, body, op.b);
  const bool less = op.kind == OpKind::Lt || op.kind == OpKind::Le, greater = op.kind == OpKind::Gt || op.kind == OpKind::Ge;
  if (!less && !greater) return;
  const std::optional<Expr> a = numberOf(body, op.a), b = numberOf(body, op.b);
  if (!a || !b) return;
  const int64_t margin = op.kind == OpKind::Lt || op.kind == OpKind::Gt ? 1 : 0;
  less ? assumeOrder(facts, *a, *b, margin) : assumeOrder(facts, *b, *a, margin);
}

} // namespace neso::schedule
