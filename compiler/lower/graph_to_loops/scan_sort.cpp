// Scans along a dim, sorting and what is made of it, searching.
#include <cmath>

#include "lower/graph_to_loops/bisect.h"
#include "lower/graph_to_loops/complex_val.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

using loops::ScanKind;

static int64_t wrap(int64_t d, int64_t rank) { return d < 0 ? d + std::max<int64_t>(rank, 1) : d; }

static Tensor scanDim(ScanKind kind, const Tensor &x, int64_t dim, DType acc) {
  if (x.rank() == 0) return cast(x, acc);
  return x.ctx().scan(kind, acc, x.sizes(), wrap(dim, x.rank()), false,
                      [x, acc](BodyBuilder &b, const Index &i) { return b.cast(x.at(b, i), acc); });
}

static Tensors cumOp(OpCall &o, ScanKind kind) {
  DType t = o.out().dtype;
  Tensor x = cast(o.t("self"), t);
  int64_t d = o.integer("dim");
  if (isComplex(t)) {
    if (kind == ScanKind::Prod) return {x.rank() == 0 ? x : scanByDoubling(x, d, mul)};
    if (kind == ScanKind::LogSumExp)
      return {x.rank() == 0 ? x : scanByDoubling(x, d, [t](const Tensor &a, const Tensor &b) {
        return pointwiseNumbers({a, b}, t, [](std::span<const Complex> v) { return logOfSum(v[0], v[1]); });
      })};
    if (kind != ScanKind::Sum) return o.fail("complex numbers are not supported here");
    return {Tensor::complex(scanDim(kind, x.real(), d, toReal(t)), scanDim(kind, x.imag(), d, toReal(t)), t)};
  }
  return {cast(scanDim(kind, x, d, computeType(t)), t)};
}

static Tensors cumExtreme(OpCall &o, bool max) {
  Tensor x = o.t("self");
  int64_t d = o.integer("dim");
  if (x.rank() == 0) return {x, fullInt(o.ctx, {}, DType::I64, 0)};
  Tensor y = x.dtype() == DType::Bool ? cast(x, DType::U8) : x;
  y.reused();
  Tensor m = scanDim(max ? ScanKind::Max : ScanKind::Min, y, d, computeType(y.dtype()));
  size_t k = static_cast<size_t>(wrap(d, x.rank()));
  // The latest position that equals the extreme so far; a NaN is always one.
  Tensor hit = Tensor::lazy(o.ctx, DType::I64, x.sizes(), [=](BodyBuilder &b, const Index &i) {
    Val v = y.at(b, i), c = m.at(b, i), is = eq(v, c);
    if (isFloat(v.dtype)) is = is || un(OpKind::IsNan, v);
    return where(is, b.index(i[k]), b.constantInt(DType::I64, 0));
  });
  return {cast(cast(m, y.dtype()), x.dtype()), scanDim(ScanKind::Max, hit, d, DType::I64)};
}

static std::pair<Tensor, Tensor> sorted(const Tensor &x, int64_t dim, bool descending,
                                        Expr take = {}) {
  if (x.rank() == 0) return {x, fullInt(x.ctx(), {}, DType::I64, 0)};
  Tensor y = x.dtype() == DType::Bool ? cast(x, DType::U8) : x;
  auto [v, i] = x.ctx().sort(y, wrap(dim, x.rank()), descending, take);
  return {cast(v, x.dtype()), i};
}

static Tensors sortOp(OpCall &o) {
  auto [v, i] =
      sorted(o.t("self"), o.integer("dim", o.node.target == "aten.msort.default" ? 0 : -1), o.flag("descending"));
  if (o.node.target.find("argsort") != std::string::npos) return {i};
  return {v, i};
}

static Tensors topkOp(OpCall &o) {
  Tensor x = o.t("self");
  if (x.rank() == 0) return {x, fullInt(o.ctx, {}, DType::I64, 0)};
  int64_t d = wrap(o.integer("dim", -1), x.rank());
  auto [v, i] = sorted(x, d, o.flag("largest", true), o.out().sizes[static_cast<size_t>(d)]);
  return {v, i};
}

/// Rows of so few elements are sorted as quickly as one of their elements is found, and so few of any number are kept in a heap.
constexpr int64_t kSortedWhole = 16, kKept = 16;

/// The elements at these places of the sorted rows of `x`, and their positions, as `dim` of size 1. Equal elements count in the order of their
/// positions, NaN as the largest. The places are in [0, most).
static std::pair<Tensor, Tensor> placed(const Tensor &x, int64_t dim, const ElementFn &place, Expr most) {
  const Facts &facts = x.ctx().facts;
  if (facts.rangeOf(x.sizes()[static_cast<size_t>(dim)]).hi <= kSortedWhole || facts.rangeOf(most).hi <= kKept) {
    auto [v, i] = sorted(x, dim, false, most);
    Sizes one = x.sizes();
    one[static_cast<size_t>(dim)] = 1;
    Tensor at = Tensor::lazy(x.ctx(), DType::I64, one, place);
    return {gather(v, dim, at), gather(i, dim, at)};
  }
  Tensor y = x.dtype() == DType::Bool ? cast(x, DType::U8) : x;
  auto [v, i] = x.ctx().sort(y, dim, false, 1, place);
  return {cast(v, x.dtype()), i};
}

static Tensors kthvalueOp(OpCall &o) {
  Tensor x = o.t("self");
  if (x.rank() == 0) return {x, fullInt(o.ctx, {}, DType::I64, 0)};
  int64_t d = wrap(o.integer("dim", -1), x.rank());
  const Expr place = o.expr("k") - 1;
  auto [v, i] = placed(x, d, [place](BodyBuilder &b, const Index &) { return b.index(place); }, place + 1);
  if (!o.flag("keepdim")) v = squeeze(v, d), i = squeeze(i, d);
  return {v, i};
}

/// Where the median stands in each row of n sorted elements along d: NaN come last. Their number moves the middle
/// (nanmedian), or the first of them is the answer (median).
static ElementFn placeOfMedian(const Tensor &x, int64_t d, bool ignoreNan) {
  const Expr n = x.sizes()[static_cast<size_t>(d)], middle = floorDiv(n - 1, 2);
  if (!isFloat(x.dtype())) return [middle](BodyBuilder &b, const Index &) { return b.index(middle); };
  Tensor isNumber = pointwise(std::vector<Tensor>{x}, x.dtype(), DType::I64,
                              [](std::span<const Val> p) { return p[0].b->cast(eq(p[0], p[0]), DType::I64); });
  Tensor count = reduceDims(loops::ReduceKind::Sum, isNumber, {d}, true, DType::I64);
  return [=](BodyBuilder &b, const Index &row) {
    Val numbers = count.at(b, row);
    if (ignoreNan) return vmax(bin(OpKind::FloorDiv, numbers - 1.0, num(numbers, 2)), num(numbers, 0));
    return where(numbers < b.index(n), numbers, b.index(middle));
  };
}

static Tensors medianOp(OpCall &o) {
  Tensor x = o.t("self");
  bool ignoreNan = o.node.target.find("nanmedian") != std::string::npos, all = !o.has("dim");
  if (x.rank() == 0) return {x, fullInt(o.ctx, {}, DType::I64, 0)};
  if (all) x = flatten(x);
  int64_t d = all ? 0 : wrap(o.integer("dim"), x.rank());
  // Read twice: to count the numbers, and to order them.
  if (isFloat(x.dtype())) x.reused();
  auto [v, i] = placed(x, d, placeOfMedian(x, d, ignoreNan), x.sizes()[static_cast<size_t>(d)]);
  if (all) return {reshape(v, {})};
  if (!o.flag("keepdim")) v = squeeze(v, d), i = squeeze(i, d);
  return {v, i};
}

int bisections(const Facts &facts, Expr n) {
  // No memory holds a row of more.
  constexpr int kMost = 40;
  int64_t most = facts.rangeOf(n).hi;
  int steps = 0;
  while (steps < kMost && int64_t{1} << steps < most) ++steps;
  return steps;
}

Val bisect(BodyBuilder &b, const std::function<Val(Expr)> &row, Expr n, Val v, bool right) {
  auto before = [&](Val e) { return right ? !(e > v) : !(e >= v); };
  Val count = b.constantInt(DType::I64, 0);
  auto probe = [&](Expr part) {
    Expr at = b.indirect(count, n, false, false);
    return b.masked(
        b.compare(OpKind::Gt, n, 0), [&] { return before(row(at + max(part, Expr(1)) - 1)); },
        b.constantInt(DType::Bool, 0));
  };
  for (int k = 0, steps = bisections(b.facts(), n); k < steps; ++k) {
    Expr half = floorDiv(ceilDiv(n, Expr(int64_t{1} << k)), Expr(2));
    count = where(probe(half), count + b.index(half), count);
  }
  return where(probe(1), count + 1.0, count);
}

/// The place of each value among sorted boundaries.
/// What memory would hold of x: floats of 16 and 8 bits are computed in 32, and are found among those that lie there only if they are rounded as these are.
static Tensor asStored(Lowering &ctx, const Tensor &x) {
  if (!isReducedFloat(x.dtype())) return x;
  return Tensor::lazy(ctx, x.dtype(), x.sizes(), [x](BodyBuilder &b, const Index &i) { return b.round(x.at(b, i), x.dtype()); });
}

static Tensors searchOp(OpCall &o, const Tensor &boundaries, const Tensor &values0) {
  bool right = o.flag("right") || o.text("side") == "right";
  Tensor sorter = o.opt("sorter"), bounds = boundaries, values = values0;
  if (sorter.valid()) bounds = gather(bounds, -1, sorter);
  Tensor pair[] = {bounds, values};
  DType t = resultType(pair);
  bounds = source(cast(bounds, t));
  values = asStored(o.ctx, cast(values, t));
  values.reused();
  Expr n = bounds.size(-1);
  bool rows = bounds.rank() > 1;
  Tensor r = Tensor::lazy(o.ctx, DType::I64, values.sizes(), [=](BodyBuilder &b, const Index &i) {
    auto row = [&](Expr at) {
      Index j;
      if (rows) j.assign(i.begin(), i.end() - 1);
      j.push_back(at);
      return bounds.at(b, j);
    };
    return bisect(b, row, n, values.at(b, i), right);
  });
  return {cast(r, o.out().dtype).realize()};
}

/// Up to so many elements comparing with each of them is quicker than sorting them.
constexpr int64_t kFewTested = 16;

static Tensors isinOp(OpCall &o) {
  Tensor e = o.t(o.has("elements") ? "elements" : "element"),
         s = o.t(o.has("test_elements") ? "test_elements" : "test_element");
  bool invert = o.flag("invert");
  Tensor pair[] = {e, s};
  DType t = resultType(pair);
  Tensor x = asStored(o.ctx, cast(e, t)), y = asStored(o.ctx, flatten(cast(s, t)));
  Expr n = y.sizes()[0];
  Tensor r;
  if (o.ctx.facts.rangeOf(n).hi <= kFewTested) {
    r = o.ctx.reduce(loops::ReduceKind::Any, DType::Bool, x.sizes(), {n}, [=](BodyBuilder &b, const Index &i,
                                                                            const Index &k) {
      return eq(x.at(b, i), y.at(b, k));
    })[0];
  } else {
    DType key = t == DType::Bool ? DType::U8 : t;
    Tensor sorted = source(o.ctx.sort(cast(y, key), 0, false).first), wanted = cast(x, key);
    wanted.reused();
    r = Tensor::lazy(o.ctx, DType::Bool, x.sizes(), [=](BodyBuilder &b, const Index &i) {
      Val v = wanted.at(b, i);
      Val place = bisect(b, [&](Expr at) { return sorted.at(b, {at}); }, n, v, false);
      return b.masked(
          place < b.index(n), [&] { return eq(sorted.at(b, {b.indirect(place, n, false, false)}), v); },
          b.constantInt(DType::Bool, 0));
    });
    r.realize();
  }
  return {invert ? logicalNot(r) : r};
}

static Tensors modeOp(OpCall &o) {
  Tensor x = o.t("self");
  if (x.rank() == 0) return {x, fullInt(o.ctx, {}, DType::I64, 0)};
  int64_t d = wrap(o.integer("dim", -1), x.rank());
  size_t dd = static_cast<size_t>(d);
  auto [v0, p] = sorted(x, d, false);
  Tensor v = v0.dtype() == DType::Bool ? cast(v0, DType::U8) : v0;
  v = source(v);
  // Position k ends a run of equal values that began at the latest k' <= k with v[k'] != v[k'-1]; the first longest run
  // wins.
  Tensor start = Tensor::lazy(o.ctx, DType::I64, x.sizes(), [=](BodyBuilder &b, const Index &i) {
    Val first = b.compare(OpKind::Eq, i[dd], 0);
    Index before = i;
    before[dd] = i[dd] - 1;
    Val same = b.masked(!first, [&] { return eq(v.at(b, before), v.at(b, i)); }, b.constantInt(DType::Bool, 0));
    return where(same, b.constantInt(DType::I64, 0), b.index(i[dd]));
  });
  Tensor begun = scanDim(loops::ScanKind::Max, start, d, DType::I64);
  Tensor length = Tensor::lazy(o.ctx, DType::I64, x.sizes(),
                               [=](BodyBuilder &b, const Index &i) { return b.index(i[dd]) - begun.at(b, i); });
  Tensor best = argExtreme(true, length, d, true);
  best.realize();
  Tensor value = gather(v0, d, best), at = gather(p, d, best);
  if (!o.flag("keepdim")) value = squeeze(value, d), at = squeeze(at, d);
  return {value, at};
}

void addScanSort(OpTable &t) {
  t.add("cumsum.default", [](OpCall &o) { return cumOp(o, ScanKind::Sum); });
  t.add("cumprod.default", [](OpCall &o) { return cumOp(o, ScanKind::Prod); });
  t.add("logcumsumexp.default", [](OpCall &o) { return cumOp(o, ScanKind::LogSumExp); });
  t.add("cummax.default", [](OpCall &o) { return cumExtreme(o, true); });
  t.add("cummin.default", [](OpCall &o) { return cumExtreme(o, false); });
  t.add("sort.default sort.stable argsort.default argsort.stable", sortOp);
  t.add("msort.default", [](OpCall &o) -> Tensors { return {sortOp(o)[0]}; });
  t.add("topk.default", topkOp);
  t.add("kthvalue.default", kthvalueOp);
  t.add("median.default median.dim nanmedian.default nanmedian.dim", medianOp);
  t.add("mode.default", modeOp);
  t.add("searchsorted.Tensor searchsorted.Scalar",
        [](OpCall &o) { return searchOp(o, o.t("sorted_sequence"), o.t("self")); });
  t.add("bucketize.Tensor bucketize.Scalar", [](OpCall &o) { return searchOp(o, o.t("boundaries"), o.t("self")); });
  t.add("isin.Tensor_Tensor isin.Tensor_Scalar isin.Scalar_Tensor", isinOp);
  t.onComplex(OnComplex::Own, "cumsum cumprod logcumsumexp");
}

} // namespace neso::lower
