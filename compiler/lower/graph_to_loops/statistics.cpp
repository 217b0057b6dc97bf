// Order statistics, histograms, sums over segments, finite differences, hashes.
#include <cmath>

#include "lower/graph_to_loops/bisect.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

static int64_t wrap(int64_t d, int64_t rank) { return d < 0 ? d + std::max<int64_t>(rank, 1) : d; }

// ---------------------------------------------------------------------------------------------------------------------
// Quantiles

/// Quantiles q (numbers in [0, 1], a scalar or a list of them) along a dim, as ATen interpolates them.
static Tensors quantileOp(OpCall &o) {
  Tensor x = o.t("self"), q = o.t("q");
  bool ignoreNan = o.node.target.find("nanquantile") != std::string::npos, all = !o.has("dim"),
       keep = o.flag("keepdim");
  std::string mode = o.text("interpolation", "linear");
  DType t = o.out().dtype;
  int64_t rank = x.rank();
  if (all) x = flatten(x);
  if (x.rank() == 0) x = reshape(x, {1});
  int64_t d = all ? 0 : wrap(o.integer("dim"), rank);
  // Sorted along the last dim, NaN last.
  x = transpose(x, d, x.rank() - 1);
  Tensor s = source(o.ctx.sort(x, x.rank() - 1, false).first);
  Expr n = x.size(-1);
  Tensor isNumber = pointwise(std::vector<Tensor>{s}, t, DType::I64,
                              [](std::span<const Val> v) { return v[0].b->cast(eq(v[0], v[0]), DType::I64); });
  Tensor count = sum(isNumber, {-1}, false, DType::I64);
  bool list = q.rank() == 1;
  q = cast(q, t);
  Sizes rows(x.sizes().begin(), x.sizes().end() - 1), sizes = rows;
  if (list) sizes.insert(sizes.begin(), q.sizes()[0]);
  Tensor r = Tensor::lazy(o.ctx, t, sizes, [=](BodyBuilder &b, const Index &i) {
    Index row(i.begin() + (list ? 1 : 0), i.end());
    Val have = count.at(b, row), last = b.index(n - 1), level = q.at(b, list ? Index{i[0]} : Index{});
    DType c = level.dtype;
    Val lastNumber = vmax(have - 1.0, num(have, 0));
    // With a NaN among them the quantile is that NaN, which stands last; nanquantile counts numbers alone.
    Val at =
        ignoreNan ? level * b.cast(lastNumber, c) : where(have < b.index(n), b.cast(last, c), level * b.cast(last, c));
    Val low = un(OpKind::Floor, at), high = un(OpKind::Ceil, at);
    if (mode == "lower") high = low;
    if (mode == "higher") low = high;
    if (mode == "nearest") low = high = un(OpKind::Round, at);
    auto element = [&](Val p) {
      Index j = row;
      j.push_back(b.indirect(b.cast(p, DType::I64), n, false, false));
      return s.at(b, j);
    };
    Val below = element(low);
    if (mode != "linear" && mode != "midpoint") return below;
    Val above = element(high), w = mode == "midpoint" ? num(at, 0.5) : at - low;
    return where(w < 0.5, below + w * (above - below), above - (above - below) * (1.0 - w));
  });
  if (keep) {
    // The reduced dim comes back, and the list of quantiles stays in front.
    if (all) {
      Sizes ones(static_cast<size_t>(rank), Expr(1));
      if (list) ones.insert(ones.begin(), q.sizes()[0]);
      return {reshape(r, ones)};
    }
  }
  // The last dim had changed places with d: rows are in the order of the transposed tensor.
  if (!all && rank > 0) {
    r = unsqueeze(r, r.rank());
    r = transpose(r, d + (list ? 1 : 0), r.rank() - 1);
    if (!keep) r = squeeze(r, d + (list ? 1 : 0));
  }
  return {reshape(r, o.out().sizes)};
}

// ---------------------------------------------------------------------------------------------------------------------
// Segments

/// "mean" is a sum, divided afterwards.
static loops::ReduceKind kindOfSegments(std::string_view mode) {
  return mode == "max"    ? loops::ReduceKind::Max
         : mode == "min"  ? loops::ReduceKind::Min
         : mode == "prod" ? loops::ReduceKind::Prod
                          : loops::ReduceKind::Sum;
}

/// Where segments along an axis begin and end.
struct SegmentEnds {
  Tensor bounds; // I64; without byLength one more than there are segments
  bool byLength = false;
  size_t axis = 0;

  Val start(BodyBuilder &b, const Index &i) const {
    Index j(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
    if (!byLength) return bounds.at(b, j);
    Index before = j;
    before[axis] = j[axis] - 1;
    return b.masked(b.compare(OpKind::Gt, j[axis], 0), [&] { return bounds.at(b, before); }, b.constantInt(DType::I64, 0));
  }
  Val end(BodyBuilder &b, const Index &i) const {
    Index j(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
    if (!byLength) j[axis] = j[axis] + 1;
    return bounds.at(b, j);
  }
  Expr count() const { return byLength ? bounds.size(-1) : bounds.size(-1) - 1; }
};

/// Refuses a call that names them in no way; its bounds are then invalid.
static SegmentEnds segmentEnds(OpCall &o, const Tensor &x) {
  SegmentEnds ends;
  const Tensor lengths = o.opt("lengths"), offsets = o.opt("offsets");
  ends.axis = static_cast<size_t>(wrap(o.integer("axis"), x.rank()));
  ends.byLength = !offsets.valid();
  if (ends.byLength && !lengths.valid()) {
    o.fail("it has neither lengths nor offsets");
    return ends;
  }
  ends.bounds = cast(ends.byLength ? lengths : offsets, DType::I64);
  if (ends.byLength) {
    // Ends of the segments; their starts are the ends before.
    const Tensor l = ends.bounds;
    ends.bounds = o.ctx.scan(loops::ScanKind::Sum, DType::I64, l.sizes(), l.rank() - 1, false, [l](BodyBuilder &b, const Index &i) { return l.at(b, i); });
  }
  ends.bounds.reused();
  return ends;
}

static Tensors segmentReduce(OpCall &o) {
  Tensor x = o.t("data");
  std::string mode = o.text("reduce");
  if (o.opt("indices").valid()) return o.fail("segments by index are not supported");
  const SegmentEnds ends = segmentEnds(o, x);
  if (!ends.bounds.valid()) return {};
  DType t = o.out().dtype, acc = computeType(t);
  bool hasInitial = o.has("initial");
  double initial = hasInitial ? o.number("initial") : 0;
  const loops::ReduceKind kind = kindOfSegments(mode);
  const size_t a = ends.axis;
  Tensor r = o.ctx.segments(
      kind, acc, o.out().sizes, x.sizes()[a],
      [=](BodyBuilder &b, const Index &i) { return std::pair(ends.start(b, i), ends.end(b, i)); },
      [=](BodyBuilder &b, const Index &i, const Index &k) {
        Index j = i;
        j[a] = k[0];
        return b.cast(x.at(b, j), acc);
      });
  bool mean = mode == "mean", sums = kind == loops::ReduceKind::Sum;
  return {Tensor::lazy(o.ctx, t, o.out().sizes, [=](BodyBuilder &b, const Index &i) {
    Val v = r.at(b, i);
    if (hasInitial) {
      Val from = num(v, initial);
      v = sums                              ? v + from
          : kind == loops::ReduceKind::Prod ? v * from
          : kind == loops::ReduceKind::Max  ? vmax(v, from)
                                            : vmin(v, from);
    }
    if (!mean) return v;
    Val n = ends.end(b, i) - ends.start(b, i);
    Val quotient = v / b.cast(vmax(n, num(n, 1)), acc);
    return hasInitial ? where(eq(n, 0.0), v, quotient) : where(eq(n, 0.0), num(v, NAN), quotient);
  })};
}

/// Each element takes its part of its segment's gradient; what lies behind the last segment has none. Of products an element that is 0 or no number
/// gets the product of the others, and those that share a greatest or least value share its gradient.
static Tensors segmentGradient(OpCall &o) {
  const Tensor g = o.t("grad").reused(), y = o.t("output").reused(), x = o.t("data").reused();
  const SegmentEnds ends = segmentEnds(o, x);
  if (!ends.bounds.valid()) return {};
  const std::string mode = o.text("reduce");
  const size_t a = ends.axis;
  const Expr count = ends.count();
  const DType t = o.out().dtype, acc = computeType(t);
  const auto isNan = [](Val v) { return ne(v, v); };
  const auto odd = [isNan](Val v) { return eq(v, 0.0) || isNan(v); };
  const auto over = [&](loops::ReduceKind kind, const std::function<Val(Val, Val)> &fn) {
    return o.ctx.segments(
        kind, acc, y.sizes(), x.sizes()[a], [=](BodyBuilder &b, const Index &i) { return std::pair(ends.start(b, i), ends.end(b, i)); },
        [=](BodyBuilder &b, const Index &i, const Index &k) {
          Index j = i;
          j[a] = k[0];
          return fn(b.cast(x.at(b, j), acc), b.cast(y.at(b, i), acc));
        });
  };
  const bool extreme = mode == "max" || mode == "min", product = mode == "prod";
  const auto chosen = [isNan](Val v, Val best) { return eq(v, best) || isNan(v); };
  Tensor sharers, rest, odds, nans;
  if (extreme) sharers = over(loops::ReduceKind::Sum, [=](Val v, Val best) { return where(chosen(v, best), num(v, 1), num(v, 0)); });
  if (product) {
    rest = over(loops::ReduceKind::Prod, [=](Val v, Val) { return where(odd(v), num(v, 1), v); });
    odds = over(loops::ReduceKind::Sum, [=](Val v, Val) { return where(odd(v), num(v, 1), num(v, 0)); });
    nans = over(loops::ReduceKind::Sum, [=](Val v, Val) { return where(isNan(v), num(v, 1), num(v, 0)); });
  }
  const double initial = o.number("initial", 1);
  return {Tensor::lazy(o.ctx, t, x.sizes(), [=](BodyBuilder &b, const Index &i) {
    const Val before = bisect(
        b,
        [&](Expr at) {
          Index j(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(a) + 1);
          j[a] = at;
          return ends.bounds.at(b, j);
        },
        ends.bounds.size(-1), b.index(i[a]), true);
    const Val segment = ends.byLength ? before : before - 1.0;
    return b.masked(
        segment >= 0.0 && segment < b.index(count),
        [&] {
          Index j = i;
          j[a] = b.indirect(segment, count, false, false);
          const Val dy = b.cast(g.at(b, j), acc), v = b.cast(x.at(b, i), acc), best = b.cast(y.at(b, j), acc);
          if (mode == "mean") return dy / b.cast(ends.end(b, j) - ends.start(b, j), acc);
          if (extreme) return where(chosen(v, best), dy / b.cast(sharers.at(b, j), acc), num(dy, 0));
          if (!product) return dy;
          const Val others = b.cast(odds.at(b, j), acc) - 1.0, unknown = b.cast(nans.at(b, j), acc) - where(isNan(v), num(v, 1), num(v, 0));
          const Val without = b.cast(rest.at(b, j), acc) * num(v, initial) * where(unknown > 0.0, num(v, NAN), where(others > 0.0, num(v, 0), num(v, 1)));
          return where(odd(v), dy * without, dy * best / v);
        },
        b.constant(acc, 0));
  })};
}

// ---------------------------------------------------------------------------------------------------------------------
// Finite differences

/// Along one dim with coordinates (or one spacing h when they are invalid).
static Tensor gradientAlong(const Tensor &f, int64_t dim, const Tensor &coordinates, double h, int64_t order) {
  Lowering &ctx = f.ctx();
  Expr n = f.size(dim);
  auto part = [&](Expr from, Expr length) { return slice(f, dim, from, length); };
  auto number = [&](double v) { return scalarFloat(ctx, v); };
  Tensor first, middle, last;
  if (!coordinates.valid()) {
    middle = div(sub(part(2, n - 2), part(0, n - 2)), number(2 * h));
    if (order == 1) {
      first = div(sub(part(1, 1), part(0, 1)), number(h));
      last = div(sub(part(n - 1, 1), part(n - 2, 1)), number(h));
    } else {
      first = div(sub(sub(mul(part(1, 1), number(4)), mul(part(0, 1), number(3))), part(2, 1)), number(2 * h));
      last =
          div(add(sub(mul(part(n - 1, 1), number(3)), mul(part(n - 2, 1), number(4))), part(n - 3, 1)), number(2 * h));
    }
    return concat({first, middle, last}, dim);
  }
  Tensor c = toFloat(coordinates);
  auto steps = [&](Expr from, Expr length) {
    Tensor s = sub(slice(c, 0, from + 1, length), slice(c, 0, from, length));
    Sizes shape(f.sizes().size(), Expr(1));
    shape[static_cast<size_t>(wrap(dim, f.rank()))] = length;
    return reshape(s, shape);
  };
  Tensor d1 = steps(0, n - 2), d2 = steps(1, n - 2), both = add(d1, d2);
  middle =
      add(add(mul(neg(div(d2, mul(d1, both))), part(0, n - 2)), mul(div(sub(d2, d1), mul(d1, d2)), part(1, n - 2))),
          mul(div(d1, mul(d2, both)), part(2, n - 2)));
  if (order == 1) {
    first = div(sub(part(1, 1), part(0, 1)), steps(0, 1));
    last = div(sub(part(n - 1, 1), part(n - 2, 1)), steps(n - 2, 1));
  } else {
    Tensor a = steps(0, 1), b = steps(1, 1), ab = add(a, b);
    first = add(sub(mul(div(ab, mul(a, b)), part(1, 1)), mul(div(add(add(a, a), b), mul(a, ab)), part(0, 1))),
                neg(mul(div(a, mul(b, ab)), part(2, 1))));
    a = steps(n - 3, 1), b = steps(n - 2, 1), ab = add(a, b);
    last = add(sub(mul(div(b, mul(a, ab)), part(n - 3, 1)), mul(div(ab, mul(a, b)), part(n - 2, 1))),
               mul(div(add(add(b, b), a), mul(b, ab)), part(n - 1, 1)));
  }
  return concat({first, middle, last}, dim);
}

static Tensors gradientOp(OpCall &o) {
  Tensor f = o.t("self");
  Dims dims = o.has("dim") ? o.ints("dim") : Dims();
  if (dims.empty())
    for (int64_t d = 0; d < f.rank(); ++d) dims.push_back(d);
  bool tensors = o.node.target.find("tensorarray") != std::string::npos;
  Tensors coordinates = tensors ? o.list("spacing") : Tensors();
  std::vector<double> h;
  if (!tensors && o.has("spacing")) {
    const graph::Argument *a = o.node.arg("spacing");
    bool one = std::holds_alternative<double>(*a) || std::holds_alternative<int64_t>(*a);
    h = one ? std::vector<double>{o.number("spacing")} : o.numbers("spacing");
  }
  if (h.empty()) h = {1.0};
  if (h.size() == 1) h.resize(dims.size(), h[0]);
  if ((tensors && coordinates.size() != dims.size()) || h.size() != dims.size())
    return o.fail("spacing and dimensions are not of one number");
  Tensors out;
  for (size_t k = 0; k < dims.size(); ++k)
    out.push_back(cast(gradientAlong(f, wrap(dims[k], f.rank()), tensors ? coordinates[k] : Tensor(), h[k],
                                     o.integer("edge_order", 1)),
                       o.out(k).dtype));
  return out;
}

// ---------------------------------------------------------------------------------------------------------------------
// Histograms

namespace {
/// The edges of the bins along one dimension, and the bin of a value: the last bin includes its upper edge; -1 when it
/// is in none.
struct Bins {
  Tensor edges; // [count + 1]
  Expr count;
  bool uniform = false;
};
} // namespace

/// `count` bins of equal width over range, or over the values of x where range is empty.
static Bins equalBins(OpCall &o, const Tensor &x, int64_t count, const std::vector<double> &range, size_t at) {
  DType t = x.dtype();
  Tensor low, high;
  if (range.size() > at * 2 + 1) {
    low = full(o.ctx, {}, t, range[at * 2]), high = full(o.ctx, {}, t, range[at * 2 + 1]);
  } else if (x.numel().isConst(0)) {
    low = full(o.ctx, {}, t, 0), high = full(o.ctx, {}, t, 1);
  } else {
    low = amin(x, {}, false), high = amax(x, {}, false);
  }
  // A range without extent is widened by a half on each side.
  Tensor pair[] = {low, high};
  low = pointwise(pair, t, t, [](std::span<const Val> v) { return where(eq(v[0], v[1]), v[0] - 0.5, v[0]); });
  high = pointwise(pair, t, t, [](std::span<const Val> v) { return where(eq(v[0], v[1]), v[1] + 0.5, v[1]); });
  // As linspace has it: from the nearer end.
  Tensor edges = Tensor::lazy(o.ctx, t, {Expr(count + 1)}, [=](BodyBuilder &b, const Index &i) {
    Val lo = low.at(b, {}), hi = high.at(b, {}), k = b.index(i[0], computeType(t)),
        step = (hi - lo) / static_cast<double>(count);
    return where(b.compare(OpKind::Lt, i[0], (count + 1) / 2), lo + step * k,
                 hi - step * (num(k, static_cast<double>(count)) - k));
  });
  return {edges.realize(), Expr(count), true};
}

static Val binOf(BodyBuilder &b, const Bins &bins, Val v) {
  Val lo = bins.edges.at(b, {Expr(0)}), hi = bins.edges.at(b, {bins.count});
  Val in = v >= lo && v <= hi, at;
  DType c = v.dtype;
  at = b.cast(un(OpKind::Floor, where(in, (v - lo) / (hi - lo) * b.index(bins.count, c), num(v, 0))), DType::I64);
  at = vmin(vmax(at, num(at, 0)), b.index(bins.count - 1));
  // Rounding may have missed by one: the edges decide.
  Expr here = b.indirect(at, bins.count, false, false);
  at = where(v < bins.edges.at(b, {here}), vmax(at - 1.0, num(at, 0)), at);
  Expr now = b.indirect(at, bins.count, false, false);
  at = where(v >= bins.edges.at(b, {now + 1}), vmin(at + 1.0, b.index(bins.count - 1)), at);
  return where(in, at, num(at, -1));
}

/// How many bounds are not above v, less one: bins with edges of any distance.
static Tensor searchedBins(OpCall &o, const Bins &bins, const Tensor &x) {
  Tensor count = o.ctx.reduce(loops::ReduceKind::Sum, DType::I64, x.sizes(), {bins.count + 1},
                              [=](BodyBuilder &b, const Index &i, const Index &k) {
                                return b.cast(bins.edges.at(b, {k[0]}) <= x.at(b, i), DType::I64);
                              })[0];
  return Tensor::lazy(o.ctx, DType::I64, x.sizes(), [=](BodyBuilder &b, const Index &i) {
    Val c = count.at(b, i) - 1.0;
    return where(eq(x.at(b, i), bins.edges.at(b, {bins.count})), b.index(bins.count - 1),
                 where(c >= b.index(bins.count), num(c, -1), c));
  });
}

/// Weighted counts of the rows of x [N, D] in the grid of bins.
static Tensor countInGrid(OpCall &o, const Tensor &x, const std::vector<Bins> &bins, const Tensor &weight,
                          bool density) {
  DType t = o.out().dtype, acc = computeType(t);
  Sizes grid;
  Tensors searched;
  for (size_t d = 0; d < bins.size(); ++d) {
    grid.push_back(bins[d].count);
    Tensor column = select(x, 1, Expr(static_cast<int64_t>(d)));
    searched.push_back(bins[d].uniform ? Tensor() : searchedBins(o, bins[d], column).realize());
  }
  Strided where0 = o.ctx.allocate(acc, grid);
  o.ctx.store(full(o.ctx, grid, acc, 0), where0);
  o.ctx.scatter(
      {x.sizes()[0]},
      [&](BodyBuilder &b, const Index &i) {
        Val ok = b.isTrue();
        Index at;
        for (size_t d = 0; d < bins.size(); ++d) {
          Val bin = searched[d].valid() ? searched[d].at(b, i)
                                        : binOf(b, bins[d], x.at(b, {i[0], Expr(static_cast<int64_t>(d))}));
          ok = ok && bin >= 0.0;
          at.push_back(b.indirect(vmax(bin, num(bin, 0)), bins[d].count, false, false));
        }
        return Lowering::ScatterItem{at, weight.valid() ? b.cast(weight.at(b, {i[0]}), acc) : b.constant(acc, 1), ok};
      },
      where0, acc, loops::StoreMode::AtomicAdd);
  Tensor counts = cast(Tensor::strided(o.ctx, acc, grid, where0), t);
  if (!density) return counts;
  Tensor total = sum(counts, {}, false, t);
  return Tensor::lazy(o.ctx, t, grid, [=](BodyBuilder &b, const Index &i) {
    Val v = counts.at(b, i) / total.at(b, {});
    for (size_t d = 0; d < bins.size(); ++d) v = v / (bins[d].edges.at(b, {i[d] + 1}) - bins[d].edges.at(b, {i[d]}));
    return v;
  });
}

static Tensors histogramOp(OpCall &o) {
  Tensor x = flatten(o.t("self")), weight = o.opt("weight");
  x.reused();
  if (weight.valid()) weight = flatten(weight);
  bool given = o.node.target == "aten.histogram.bins_tensor";
  Bins bins;
  if (given) {
    Tensor edges = cast(o.t("bins"), x.dtype());
    bins = {edges.realize(), edges.size(0) - 1, false};
  } else {
    int64_t count = o.integer("bins");
    if (count < 1) return o.fail("the bins are not valid");
    bins = equalBins(o, x, count, o.numbers("range"), 0);
  }
  return {countInGrid(o, unsqueeze(x, 1), {bins}, weight, o.flag("density")), bins.edges};
}

/// [N, D]: rows of D coordinates.
static Tensor pointsOf(OpCall &o) {
  const Tensor x = o.t("self");
  return reshape(x, {vectorsOf(x), x.size(-1)}).reused();
}

/// Bins of equal width along each of the coordinates.
static std::vector<Bins> equalGrid(OpCall &o, const Tensor &x) {
  Dims counts = o.ints("bins");
  // One number is meant for all.
  if (counts.size() == 1 && x.size(1).isConst()) counts.resize(static_cast<size_t>(x.size(1).constValue()), counts[0]);
  std::vector<Bins> bins;
  if (!x.size(1).isConst(static_cast<int64_t>(counts.size()))) {
    o.fail("the bins are not as many as the columns");
    return bins;
  }
  for (size_t d = 0; d < counts.size(); ++d)
    bins.push_back(equalBins(o, select(x, 1, Expr(static_cast<int64_t>(d))), counts[d], o.numbers("range"), d));
  return bins;
}

static Tensors histogramdd(OpCall &o) {
  const Tensor x = pointsOf(o);
  Tensor weight = o.opt("weight");
  if (weight.valid()) weight = flatten(weight);
  std::vector<Bins> bins;
  const graph::Argument *given = o.node.arg("bins");
  if (given && std::holds_alternative<std::vector<graph::ValueId>>(*given)) {
    for (const Tensor &edges : o.list("bins")) bins.push_back({cast(edges, x.dtype()).realize(), edges.size(0) - 1, false});
    if (!x.size(1).isConst(static_cast<int64_t>(bins.size()))) return o.fail("the bins are not as many as the columns");
  } else {
    bins = equalGrid(o, x);
  }
  if (o.failed()) return {};
  Tensors out{countInGrid(o, x, bins, weight, o.flag("density"))};
  for (const Bins &b : bins) out.push_back(b.edges);
  return out;
}

static Tensors histogramEdges(OpCall &o) {
  Tensors out;
  for (const Bins &b : equalGrid(o, pointsOf(o))) out.push_back(b.edges);
  return out;
}

void addStatistics(OpTable &t) {
  t.add("quantile.default quantile.scalar nanquantile.default nanquantile.scalar", quantileOp);
  t.add("segment_reduce.default", segmentReduce);
  t.add("_segment_reduce_backward.default", segmentGradient);
  t.add("gradient.scalarint gradient.scalararray gradient.array gradient.scalarrayint gradient.scalarrayarray "
        "gradient.tensorarrayint gradient.tensorarray",
        gradientOp);
  t.add("histogram.bin_ct histogram.bins_tensor", histogramOp);
  t.add("histogramdd.default histogramdd.int_bins histogramdd.TensorList_bins _histogramdd_from_bin_cts.default "
        "_histogramdd_from_bin_tensors.default",
        histogramdd);
  t.add("_histogramdd_bin_edges.default", histogramEdges);
  t.add("hash_tensor.default", [](OpCall &o) -> Tensors {
    // The exclusive or of the elements' bits, each as a number of 64 bits.
    Tensor x = o.t("self");
    if (o.integer("mode", 0) != 0) return o.fail("only mode 0 is known");
    DType wide = isFloat(x.dtype()) ? DType::F64 : DType::I64;
    Tensor w = cast(x, wide);
    Tensor bits = Tensor::lazy(o.ctx, DType::I64, x.sizes(), [w, wide](BodyBuilder &b, const Index &i) {
      Val v = w.at(b, i);
      return wide == DType::F64 ? b.bitcast(v, DType::I64) : v;
    });
    Dims dims = o.ints("dim");
    Tensor r = x.rank() == 0 ? bits : reduceDims(loops::ReduceKind::XorSum, bits, dims, o.flag("keepdim"), DType::I64);
    return {cast(r, o.out().dtype)};
  });
  t.onComplex(OnComplex::Own, "gradient");
}

} // namespace neso::lower
