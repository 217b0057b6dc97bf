// Gradients of views (a part of a tensor of zeros), of paddings, and of distances.
#include <cmath>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

namespace {

int64_t wrapped(int64_t dim, size_t rank) { return dim < 0 ? dim + static_cast<int64_t>(rank) : dim; }

/// Zeros of `sizes` but where `inside` holds, which also says which element of the gradient lies there.
Tensors partOfZeros(OpCall &o, const Sizes &sizes, const std::function<Val(BodyBuilder &, const Index &, Index &)> &inside) {
  const Tensor g = o.operand(0);
  const DType t = g.dtype();
  return {Tensor::lazy(o.ctx, t, sizes, [=](BodyBuilder &b, const Index &i) {
    Index from;
    const Val ok = inside(b, i, from);
    return b.masked(ok, [&] { return g.at(b, from); }, b.constant(computeType(t), 0));
  })};
}

Tensors selectGradient(OpCall &o) {
  const Sizes sizes = o.exprs("input_sizes");
  const size_t d = static_cast<size_t>(wrapped(o.integer("dim"), sizes.size()));
  Expr at = o.expr("index");
  if (o.ctx.facts.rangeOf(at).hi < 0) at = at + sizes[d];
  return partOfZeros(o, sizes, [=](BodyBuilder &b, const Index &i, Index &from) {
    from = i;
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(d));
    return b.compare(OpKind::Eq, i[d], at);
  });
}

Tensors sliceGradient(OpCall &o) {
  const Sizes sizes = o.exprs("input_sizes");
  const size_t d = static_cast<size_t>(wrapped(o.integer("dim"), sizes.size()));
  Expr start = o.expr("start");
  if (o.ctx.facts.rangeOf(start).hi < 0) start = start + sizes[d];
  start = o.ctx.facts.simplify(min(max(start, 0), sizes[d]));
  const Expr step = o.expr("step"), count = o.operand(0).sizes()[d];
  return partOfZeros(o, sizes, [=](BodyBuilder &b, const Index &i, Index &from) {
    from = i;
    from[d] = floorDiv(i[d] - start, step);
    const Val inside = b.inRange(from[d], 0, count);
    return step.isConst(1) ? inside : inside && b.compare(OpKind::Eq, mod(i[d] - start, step), 0);
  });
}

Tensors diagonalGradient(OpCall &o) {
  const Sizes sizes = o.exprs("input_sizes");
  const size_t row = static_cast<size_t>(wrapped(o.integer("dim1"), sizes.size())), column = static_cast<size_t>(wrapped(o.integer("dim2"), sizes.size()));
  const int64_t offset = o.integer("offset");
  return partOfZeros(o, sizes, [=](BodyBuilder &b, const Index &i, Index &from) {
    for (size_t d = 0; d < i.size(); ++d)
      if (d != row && d != column) from.push_back(i[d]);
    from.push_back(offset >= 0 ? i[row] : i[column]);
    return b.compare(OpKind::Eq, i[row] + offset, i[column]);
  });
}

/// Element p lies in the windows floor(p / step), … back to those that still reach it.
Tensors unfoldGradient(OpCall &o) {
  const Tensor g = o.t("grad_in");
  const Sizes sizes = o.exprs("input_sizes");
  if (sizes.empty()) return {reshape(g, {})};
  const size_t d = static_cast<size_t>(wrapped(o.integer("dim"), sizes.size()));
  const Expr size = o.expr("size"), step = o.expr("step"), windows = g.sizes()[d];
  const DType acc = computeType(g.dtype());
  g.reused();
  const Tensor r = o.ctx.reduce(loops::ReduceKind::Sum, acc, sizes, {o.ctx.facts.simplify(ceilDiv(size, step))}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    Index from = i;
    from[d] = floorDiv(i[d], step) - r[0];
    from.push_back(i[d] - from[d] * step);
    const Val ok = b.inRange(from[d], 0, windows) && b.compare(OpKind::Lt, from.back(), size);
    return b.masked(ok, [&] { return b.cast(g.at(b, from), acc); }, b.constant(acc, 0));
  })[0];
  return {cast(r, g.dtype())};
}

/// Each padded element gives its gradient to the one that it is a copy of.
Tensors paddingGradient(OpCall &o) {
  const bool mirrored = o.node.target.find("reflection") != std::string::npos;
  const Tensor g = o.t("grad_output"), x = o.t("self");
  const Sizes p = o.exprs("padding");
  const size_t first = x.sizes().size() - p.size() / 2;
  const DType acc = computeType(x.dtype());
  const Strided w = o.ctx.allocate(acc, x.sizes());
  o.ctx.store(full(o.ctx, x.sizes(), acc, 0), w);
  o.ctx.scatter(
      g.sizes(),
      [&](BodyBuilder &b, const Index &i) {
        Index j = i;
        for (size_t d = first; d < i.size(); ++d) {
          const Expr n = x.sizes()[d], e = i[d] - p[2 * (i.size() - 1 - d)], a = max(e, -e);
          j[d] = mirrored ? (n - 1) - max((n - 1) - a, a - (n - 1)) : min(max(e, 0), n - 1);
        }
        return Lowering::ScatterItem{j, b.cast(g.at(b, i), acc), {}};
      },
      w, acc, loops::StoreMode::AtomicAdd);
  return {cast(Tensor::strided(o.ctx, acc, x.sizes(), w), x.dtype())};
}

/// What a distance of order p passes on to a difference between its rows' elements.
Val distanceDerivative(double p, Val dy, Val diff, Val far) {
  const Val size = un(OpKind::Abs, diff), sign = where(diff > 0.0, num(diff, 1), where(diff < 0.0, num(diff, -1), num(diff, 0)));
  if (p == 0) return num(dy, 0);
  if (p == 1) return dy * sign;
  if (std::isinf(p)) return where(eq(size, far), dy * sign, num(dy, 0));
  const Val ratio = p == 2 ? diff / far : sign * bin(OpKind::Pow, size, p - 1) / bin(OpKind::Pow, far, p - 1);
  return where(eq(far, 0.0) || (p < 1 ? eq(diff, 0.0) : eq(far, 0.0)), num(dy, 0), dy * ratio);
}

/// Of the distances between rows of x1 and x2, with respect to x1.
Tensors distanceGradient(OpCall &o) {
  const Tensor g = o.t("grad_output"), x1 = o.t("x1"), x2 = o.t("x2"), d = o.t("cdist");
  const double p = o.number("p", 2);
  const DType acc = computeType(x1.dtype());
  x2.reused();
  // The batch of one side may be 1.
  auto element = [](BodyBuilder &b, const Tensor &x, const Index &i, Expr row, Expr column) {
    const size_t lead = i.size() - 2, own = x.sizes().size() - 2;
    Index j;
    for (size_t k = 0; k < own; ++k) j.push_back(x.sizes()[k].isConst(1) ? Expr(0) : i[lead - own + k]);
    j.push_back(row), j.push_back(column);
    return b.cast(x.at(b, j), DType(computeType(x.dtype())));
  };
  const Tensor r = o.ctx.reduce(loops::ReduceKind::Sum, acc, o.out().sizes, {x2.size(-2)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Expr row = i[i.size() - 2], column = i.back();
    const Val diff = element(b, x1, i, row, column) - element(b, x2, i, r[0], column);
    return distanceDerivative(p, element(b, g, i, row, r[0]), diff, element(b, d, i, row, r[0]));
  })[0];
  return {cast(r, x1.dtype())};
}

/// Of the distances of each row from every row behind it; before the pairs of row i there are i (2 n - i - 1) / 2.
Tensors pairwiseGradient(OpCall &o) {
  const Tensor g = o.t("grad_output"), x = o.t("self"), d = o.t("pdist");
  const double p = o.number("p", 2);
  const DType acc = computeType(x.dtype());
  if (d.size(0).isConst(0)) return {full(o.ctx, x.sizes(), x.dtype(), 0)};
  x.reused();
  const Expr n = x.size(0);
  const Tensor r = o.ctx.reduce(loops::ReduceKind::Sum, acc, x.sizes(), {n}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Expr first = min(i[0], r[0]), second = max(i[0], r[0]);
    const Index pair{floorDiv(first * (2 * n - first - 1), 2) + second - first - 1};
    return b.masked(
        b.compare(OpKind::Ne, i[0], r[0]),
        [&] {
          const Val diff = b.cast(x.at(b, i), acc) - b.cast(x.at(b, {r[0], i[1]}), acc);
          return distanceDerivative(p, b.cast(g.at(b, pair), acc), diff, b.cast(d.at(b, pair), acc));
        },
        b.constant(acc, 0));
  })[0];
  return {cast(r, x.dtype())};
}

} // namespace

void addViewGradients(OpTable &t) {
  t.add("select_backward.default", selectGradient);
  t.add("slice_backward.default", sliceGradient);
  t.add("diagonal_backward.default", diagonalGradient);
  t.add("unfold_backward.default", unfoldGradient);
  t.add("reflection_pad1d_backward.default reflection_pad2d_backward.default reflection_pad3d_backward.default "
        "replication_pad1d_backward.default replication_pad2d_backward.default replication_pad3d_backward.default",
        paddingGradient);
  t.add("_cdist_backward.default", distanceGradient);
  t.add("_pdist_backward.default", pairwiseGradient);
  t.onComplex(OnComplex::Parts, "select_backward slice_backward diagonal_backward unfold_backward");
}

} // namespace neso::lower
