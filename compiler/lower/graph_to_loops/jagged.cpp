// Rows of different lengths, one behind the other, and the same side by side with padding behind each.
//
//     values [9, C], offsets 0 2 2 6 9   <->   padded [4, S, C]: row b holds values[offsets[b] .. offsets[b + 1])
#include "lower/graph_to_loops/bisect.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

namespace {

/// [B + 1] I64; invalid: the call gives another number of them, which ATen refuses.
Tensor offsetsOf(OpCall &o) {
  const Tensors given = o.list("offsets");
  return given.size() == 1 && given[0].valid() ? cast(given[0], DType::I64).reused() : Tensor();
}

/// What stands behind the end of a padded row is left away, as by ATen.
Tensors jaggedToPadded(OpCall &o) {
  const Tensor values = o.t("values"), offsets = offsetsOf(o);
  const double padding = o.number("padding_value", 0);
  if (!offsets.valid()) return o.fail("it takes the offsets of one dimension");
  return {Tensor::lazy(o.ctx, values.dtype(), o.out().sizes, [=](BodyBuilder &b, const Index &i) {
    const Val begin = offsets.at(b, {i[0]}), at = begin + b.index(i[1]);
    const Val inside = at < offsets.at(b, {i[0] + 1});
    return b.masked(
        inside,
        [&] {
          Index from{b.indirect(at, values.size(0), false, true)};
          from.insert(from.end(), i.begin() + 2, i.end());
          return values.at(b, from);
        },
        b.constant(computeType(values.dtype()), padding));
  })};
}

/// Where the model knows how many there are beforehand, nothing is read: another number is an index out of range, and so is a row that is longer
/// than a padded one.
Tensors paddedToJagged(OpCall &o) {
  const Tensor dense = o.t("dense"), offsets = offsetsOf(o);
  if (!offsets.valid()) return o.fail("it takes the offsets of one dimension");
  const Expr rows = offsets.size(0) - 1, total = o.out().sizes[0];
  const Tensor end = select(offsets, 0, rows);
  const bool known = o.ctx.isKnown(total);
  if (!known) o.ctx.define(end, total);
  Sizes sizes = dense.sizes();
  sizes.erase(sizes.begin());
  sizes[0] = total;
  return {Tensor::lazy(o.ctx, dense.dtype(), sizes, [=](BodyBuilder &b, const Index &i) {
    // The last row that begins at or before the element, which no empty one does that lies behind it.
    const Val row = bisect(b, [&](Expr at) { return offsets.at(b, {at}); }, rows + 1, b.index(i[0]), true) - 1.0;
    const Expr of = b.indirect(known ? where(eq(end.at(b, {}), b.index(total)), row, b.constantInt(DType::I64, -1)) : row, rows, false, true);
    Index from{of, b.indirect(b.index(i[0]) - offsets.at(b, {of}), dense.size(1), false, true)};
    from.insert(from.end(), i.begin() + 1, i.end());
    return dense.at(b, from);
  })};
}

} // namespace

void addJagged(OpTable &t) {
  t.add("_jagged_to_padded_dense_forward.default", jaggedToPadded);
  t.add("_padded_dense_to_jagged_forward.default", paddedToJagged);
}

} // namespace neso::lower
