// What a tensor holds without repetitions: unique, unique_dim, unique_consecutive.
//
// Equal elements are brought beside each other, each run of them is one element of the result, and how many runs there are
// is a size that the data decides:
//
//     x      3 1 2 3 1        sorted 1 1 2 3 3, from 1 4 2 0 3
//     first  1 0 1 1 0        values 1 2 3   counts 2 1 2   inverse 2 0 1 2 0
//
// Rows are compared by numbers: the rank of each element in its column, then of pairs of neighbours, until one is left.
#include "lower/graph_to_loops/bisect.h"
#include "lower/graph_to_loops/data_sizes.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

namespace {

/// Elements in an order in which equal ones stand together.
struct Runs {
  Tensor order; // [n] I64: which element stands at each place; invalid: the one of that place
  Tensor first; // [n] Bool: whether a run begins there
};

/// Whether each element of a row differs from the one before it, as the first does. A NaN differs from all.
Tensor beginnings(const Tensor &x) {
  const size_t last = x.sizes().size() - 1;
  return Tensor::lazy(x.ctx(), DType::Bool, x.sizes(), [=](BodyBuilder &b, const Index &i) {
    Index before = i;
    before[last] = i[last] - 1;
    const Val inner = b.compare(OpKind::Gt, i[last], 0);
    return b.masked(inner, [&] { return ne(x.at(b, before), x.at(b, i)); }, b.isTrue());
  });
}

Tensor sortable(const Tensor &x) { return x.dtype() == DType::Bool ? cast(x, DType::U8) : x; }

/// numbers[order[k]] = values[k] along the last dim.
Tensor scatterBack(const Tensor &values, const Tensor &order) {
  Lowering &ctx = values.ctx();
  const Strided where = ctx.allocate(DType::I64, values.sizes());
  ctx.scatter(
      values.sizes(),
      [&](BodyBuilder &b, const Index &i) {
        Index at = i;
        at.back() = b.indirect(order.at(b, i), values.size(-1), false, false);
        return Lowering::ScatterItem{at, values.at(b, i), {}};
      },
      where, DType::I64, loops::StoreMode::Set);
  return Tensor::strided(ctx, DType::I64, values.sizes(), where);
}

/// Runs of each row of keys [k, n], which are sorted.
struct SortedRows {
  Tensor order, first; // [k, n]
};
SortedRows sortRows(const Tensor &keys) {
  auto [values, order] = keys.ctx().sort(sortable(keys), 1, false);
  return {order, beginnings(source(values))};
}

/// [k, n] I64: equal elements of a row have equal numbers, greater ones greater.
Tensor ranksOf(const SortedRows &rows) {
  const Tensor first = rows.first;
  const Tensor ranks = first.ctx().scan(loops::ScanKind::Sum, DType::I64, first.sizes(), 1, false,
                                        [first](BodyBuilder &b, const Index &i) { return b.cast(first.at(b, i), DType::I64); });
  return scatterBack(addNumber(ranks, -1), rows.order);
}

/// Columns of rows [n, k], sorted as a whole: the first column counts most.
Runs sortedRows(const Tensor &rows) {
  Lowering &ctx = rows.ctx();
  const Expr n = rows.size(0);
  Tensor keys = transpose(rows, 0, 1);
  SortedRows sorted = sortRows(keys);
  for (int left = bisections(ctx.facts, keys.size(0)); left > 0 && !keys.size(0).isConst(1); --left) {
    const Tensor ranks = source(ranksOf(sorted));
    const Expr k = keys.size(0);
    keys = Tensor::lazy(ctx, DType::I64, {ceilDiv(k, 2), n}, [=](BodyBuilder &b, const Index &i) {
      const Val high = ranks.at(b, {i[0] * 2, i[1]}) * b.index(n);
      const Val paired = b.compare(OpKind::Lt, i[0] * 2 + 1, k);
      return high + b.masked(paired, [&] { return ranks.at(b, {i[0] * 2 + 1, i[1]}); }, b.constantInt(DType::I64, 0));
    });
    sorted = sortRows(keys);
  }
  return {select(sorted.order, 0, 0), select(sorted.first, 0, 0)};
}

/// Runs of neighbours among rows [n, k].
Runs neighbouringRows(const Tensor &rows) {
  const Tensor differs = beginnings(transpose(sortable(rows), 0, 1));
  return {{}, reduceDims(loops::ReduceKind::Any, differs, {0}, false, DType::Bool)};
}

/// Values, inverse and counts of the runs, which are slices of x along dim. Slices have an inverse and counts whether or not they are asked for; of
/// elements they are what the model says they are without elements, and nobody looks at them.
Tensors resultsOf(OpCall &o, const Runs &runs, const Tensor &x, size_t dim, bool ofSlices) {
  const Expr n = runs.first.size(0), count = o.out().sizes[dim];
  const Tensor first = runs.first.realize(), counted = countUp(first), at = positionsOf(first, count, counted);
  auto asked = [&](size_t k, std::string_view flag) { return (ofSlices || o.flag(flag)) && o.out(k).rank() > 0 && !product(o.out(k).sizes).isConst(0); };
  Tensor inverse = full(o.ctx, o.out(1).sizes, o.out(1).dtype, 0), counts = full(o.ctx, o.out(2).sizes, o.out(2).dtype, 0);
  if (asked(1, "return_inverse")) {
    inverse = addNumber(counted, -1);
    if (runs.order.valid()) inverse = scatterBack(inverse, runs.order);
    inverse = reshape(inverse, o.out(1).sizes);
  }
  if (asked(2, "return_counts"))
    counts = Tensor::lazy(o.ctx, DType::I64, {count}, [=](BodyBuilder &b, const Index &i) {
      const Val more = b.compare(OpKind::Lt, i[0] + 1, count);
      return b.masked(more, [&] { return at.at(b, {i[0] + 1}); }, b.index(n)) - at.at(b, i);
    });
  return {indexSelect(x, static_cast<int64_t>(dim), runs.order.valid() ? indexSelect(runs.order, 0, at) : at), inverse, counts};
}

Tensors uniqueOp(OpCall &o) {
  const Tensor x = flatten(o.t("self"));
  if (x.isComplex()) return o.fail("complex numbers have no order");
  // What torch writes where it has no rule for the size.
  if (o.node.target == "aten._unique.default" && o.out().sizes[0].isConst() && !o.ctx.equal(o.out().sizes[0], x.numel()))
    return o.fail("the model states " + o.out().sizes[0].str() + " elements for a number that the data decides; call torch.unique");
  auto [values, order] = o.ctx.sort(sortable(x), 0, false);
  return resultsOf(o, {order, beginnings(source(values))}, x, 0, false);
}

/// [n, k]: a slice of x along dim as a row.
Tensor slicesOf(const Tensor &x, size_t dim) {
  const Expr n = x.sizes()[dim];
  Sizes rest = x.sizes();
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(dim));
  std::vector<int> order{static_cast<int>(dim)};
  for (size_t d = 0; d < x.sizes().size(); ++d)
    if (d != dim) order.push_back(static_cast<int>(d));
  return reshape(permute(x, order), {n, product(rest)});
}

Tensors uniqueSlices(OpCall &o, bool sorts) {
  const Tensor x = o.t("self");
  if (x.isComplex()) return o.fail("complex numbers have no order");
  if (x.rank() == 0) return o.fail("a number has no dimension to take slices of");
  const size_t dim = static_cast<size_t>(wrapDims({o.integer("dim")}, x.rank())[0]);
  // What torch 2.15 writes of a negative dimension.
  if (o.out().rank() != x.rank())
    return o.fail("the model states " + std::to_string(o.out().rank()) + " dimensions for a result of " + std::to_string(x.rank()) +
                  "; export it with a dimension that does not count from the end");
  const Tensor rows = slicesOf(x, dim);
  if (rows.size(1).isConst(0)) return o.fail("the slices have no elements");
  return resultsOf(o, sorts ? sortedRows(rows) : neighbouringRows(rows), x, dim, true);
}

Tensors uniqueConsecutive(OpCall &o) {
  if (o.has("dim")) return uniqueSlices(o, false);
  const Tensor x = flatten(o.t("self"));
  if (x.isComplex()) return o.fail("complex numbers are not supported here");
  return resultsOf(o, {{}, beginnings(sortable(source(x)))}, x, 0, false);
}

} // namespace

void addUnique(OpTable &t) {
  t.add("_unique.default _unique2.default", uniqueOp);
  t.add("unique_dim.default", [](OpCall &o) { return uniqueSlices(o, true); });
  t.add("unique_consecutive.default", uniqueConsecutive);
  t.add("unique_dim_consecutive.default", [](OpCall &o) { return uniqueSlices(o, false); });
}

} // namespace neso::lower
