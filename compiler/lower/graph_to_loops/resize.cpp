// Resampling: upsample_* and affine grids.
#include "lower/graph_to_loops/resize.h"

#include <cmath>

namespace neso::lower {

std::vector<Axis> axesOf(OpCall &o, const Sizes &in, const Sizes &out, size_t spatial, Axis::Overlooks overlooks) {
  std::vector<Axis> axes;
  std::vector<double> factors = o.numbers("scale_factors");
  const char *names[3][3] = {{"scales", "", ""}, {"scales_h", "scales_w", ""}, {"scales_d", "scales_h", "scales_w"}};
  for (size_t d = 0; d < spatial; ++d) {
    Axis a{in[2 + d], out[2 + d], std::nullopt, overlooks};
    if (d < factors.size()) a.factor = factors[d];
    if (o.has(names[spatial - 1][d])) a.factor = o.number(names[spatial - 1][d]);
    axes.push_back(a);
  }
  return axes;
}

Val scaleOf(BodyBuilder &b, const Axis &a, bool align, DType c) {
  if (align) {
    // All of one pixel is the first one.
    const Expr steps = b.facts().simplify(a.out - 1), least = b.facts().simplify(max(steps, 1));
    if (steps.isConst(0)) return b.constant(c, 0);
    const Val scale = b.index(a.in - 1, c) / b.index(least, c);
    return b.facts().provablyEqual(steps, least) ? scale : where(b.compare(OpKind::Eq, steps, 0), b.constant(c, 0), scale);
  }
  if (!a.factor || !(*a.factor > 0)) return b.index(a.in, c) / b.index(a.out, c);
  Val given = b.constant(c, c == DType::F32 ? static_cast<double>(static_cast<float>(1.0 / *a.factor)) : 1.0 / *a.factor);
  auto unless = [&](Expr size, double scale) {
    const Expr less = b.facts().simplify(a.out - size);
    if (less.isConst()) return less.isConst(0) ? b.constant(c, scale) : given;
    return where(b.compare(OpKind::Eq, a.out, size), b.constant(c, scale), given);
  };
  if (a.overlooks != Axis::Overlooks::Nothing) given = unless(a.in, 1);
  if (a.overlooks == Axis::Overlooks::SameAndDouble) given = unless(a.in * 2, 0.5);
  return given;
}

Expr nearestAt(BodyBuilder &b, const Axis &a, Expr i, bool exact) {
  // Whole multiples need no arithmetic in floats where the reciprocal is exact.
  std::optional<int64_t> in = a.in.asConst(), out = a.out.asConst();
  int64_t k = in && out && *in > 0 && *out % *in == 0 ? *out / *in : 0;
  bool plain = !a.factor || *a.factor == static_cast<double>(k);
  if (k > 0 && (k & (k - 1)) == 0 && plain) return floorDiv(i, k);
  Val pos = b.index(i, DType::F32);
  if (exact) pos = pos + 0.5;
  Val at = b.cast(un(OpKind::Floor, pos * scaleOf(b, a, false, DType::F32)), DType::I64);
  at = vmin(vmax(at, num(at, 0)), b.index(a.in - 1));
  return b.indirect(at, a.in, false, false);
}

/// Whether more than three channels lie side by side in memory, in the result as in the operand: ATen has a kernel of its own for volumes of those.
static bool hasChannelsBeside(const graph::TensorType &t) { return t.strides[1].isConst(1) && t.strides.back() == t.sizes[1] && t.sizes[1].asConst().value_or(0) > 3; }

static Tensors nearest(OpCall &o, size_t spatial) {
  Tensor x = source(o.t(o.has("input") ? "input" : "self"));
  bool exact = o.node.target.find("exact") != std::string::npos;
  const bool overlooks = !exact && (spatial == 2 || (spatial == 3 && hasChannelsBeside(o.out())));
  std::vector<Axis> axes = axesOf(o, x.sizes(), o.out().sizes, spatial, overlooks ? Axis::Overlooks::SameAndDouble : Axis::Overlooks::Nothing);
  Tensor r = Tensor::lazy(o.ctx, x.dtype(), o.out().sizes, [=](BodyBuilder &b, const Index &i) {
    Index j{i[0], i[1]};
    for (size_t d = 0; d < spatial; ++d) j.push_back(nearestAt(b, axes[d], i[2 + d], exact));
    return x.at(b, j);
  });
  return {r.withOrder(x.order())};
}

std::vector<Tap> linearTaps(BodyBuilder &b, const Axis &a, Expr i, bool align, DType c) {
  if (b.facts().provablyEqual(a.in, a.out)) return {{i, {}}};
  Val s = scaleOf(b, a, align, c), pos = b.index(i, c);
  Val p = align ? pos * s : vmax((pos + 0.5) * s - 0.5, num(s, 0));
  Val lo = vmin(b.cast(un(OpKind::Floor, p), DType::I64), b.index(a.in - 1));
  Val hi = vmin(lo + 1.0, b.index(a.in - 1));
  Val f = p - b.cast(lo, c), w = vmin(vmax(f, num(f, 0)), num(f, 1));
  return {{b.indirect(lo, a.in, false, false), 1.0 - w}, {b.indirect(hi, a.in, false, false), w}};
}

/// Linear in each dim: 2^spatial loads.
static Tensors linearResize(OpCall &o, size_t spatial) {
  Tensor x = source(o.t(o.has("input") ? "input" : "self"));
  bool align = o.flag("align_corners");
  std::vector<Axis> axes = axesOf(o, x.sizes(), o.out().sizes, spatial, Axis::Overlooks::Same);
  DType c = x.dtype() == DType::F64 ? DType::F64 : DType::F32;
  if (spatial == 2 && x.dtype() == DType::U8) return resizeBytes(o, x, Filter::Linear, false);
  if (!isFloat(x.dtype())) return o.fail("only floating point images are supported");
  Tensor r = Tensor::lazy(o.ctx, x.dtype(), o.out().sizes, [=](BodyBuilder &b, const Index &i) {
    std::vector<std::vector<Tap>> taps;
    for (size_t d = 0; d < spatial; ++d) taps.push_back(linearTaps(b, axes[d], i[2 + d], align, c));
    // The last dim is blended first.
    std::function<Val(size_t, Index)> blend = [&](size_t d, Index j) -> Val {
      if (d == spatial) return b.cast(x.at(b, j), c);
      Val total;
      for (const Tap &tap : taps[d]) {
        Index at = j;
        at.push_back(tap.at);
        Val v = blend(d + 1, at);
        if (tap.weight.valid()) v = v * tap.weight;
        total = total.valid() ? total + v : v;
      }
      return total;
    };
    return b.cast(blend(0, {i[0], i[1]}), computeType(x.dtype()));
  });
  return {r.withOrder(x.order())};
}

std::array<Val, 4> cubicWeights(Val f) {
  const double A = -0.75;
  auto inner = [A](Val t) { return ((t * (A + 2) - (A + 3)) * t * t) + 1.0; };
  auto outer = [A](Val t) { return ((t * A - 5 * A) * t + 8 * A) * t - 4 * A; };
  return {outer(f + 1.0), inner(f), inner(1.0 - f), outer(2.0 - f)};
}

std::array<Val, 4> cubicSlopes(Val f) {
  const double A = -0.75;
  auto inner = [A](Val t) { return (t * (3 * (A + 2)) - 2 * (A + 3)) * t; };
  auto outer = [A](Val t) { return (t * (3 * A) - 10 * A) * t + 8 * A; };
  return {outer(f + 1.0), inner(f), -inner(1.0 - f), -outer(2.0 - f)};
}

std::vector<Tap> cubicTaps(BodyBuilder &b, const Axis &a, Expr i, bool align, DType c) {
  Val s = scaleOf(b, a, align, c), pos = b.index(i, c);
  Val p = align ? pos * s : (pos + 0.5) * s - 0.5, base = un(OpKind::Floor, p), k = b.cast(base, DType::I64);
  const std::array<Val, 4> weights = cubicWeights(p - base);
  std::vector<Tap> taps;
  for (int q = 0; q < 4; ++q) {
    Val e = k + static_cast<double>(q - 1);
    e = vmin(vmax(e, num(e, 0)), b.index(a.in - 1));
    taps.push_back({b.indirect(e, a.in, false, false), weights[static_cast<size_t>(q)]});
  }
  return taps;
}

static Tensors bicubic(OpCall &o) {
  Tensor x = source(o.t(o.has("input") ? "input" : "self"));
  if (x.dtype() == DType::U8) return resizeBytes(o, x, Filter::Cubic, false);
  if (!isFloat(x.dtype())) return o.fail("only floating point images are supported");
  bool align = o.flag("align_corners");
  std::vector<Axis> axes = axesOf(o, x.sizes(), o.out().sizes, 2, Axis::Overlooks::Nothing);
  DType c = x.dtype() == DType::F64 ? DType::F64 : DType::F32;
  Tensor r = Tensor::lazy(o.ctx, x.dtype(), o.out().sizes, [=](BodyBuilder &b, const Index &i) {
    const std::vector<Tap> rows = cubicTaps(b, axes[0], i[2], align, c), columns = cubicTaps(b, axes[1], i[3], align, c);
    Val total;
    for (const Tap &p : rows) {
      Val row;
      for (const Tap &q : columns) {
        Val v = b.cast(x.at(b, {i[0], i[1], p.at, q.at}), c) * q.weight;
        row = row.valid() ? row + v : v;
      }
      row = row * p.weight;
      total = total.valid() ? total + row : row;
    }
    return b.cast(total, computeType(x.dtype()));
  });
  return {r.withOrder(x.order())};
}

/// Where the elements of images of `size` are taken from, by the affine map theta, in coordinates from -1 to 1 (x, y, z).
static Tensors affineGrid(OpCall &o) {
  const Tensor theta = o.t("theta").reused();
  const Sizes size = o.exprs("size");
  const size_t spatial = size.size() - 2;
  const bool align = o.flag("align_corners");
  const DType t = theta.dtype(), c = computeType(t);
  return {Tensor::lazy(o.ctx, t, o.out().sizes, [=](BodyBuilder &b, const Index &i) {
    Val total = b.cast(theta.at(b, {i[0], i.back(), static_cast<int64_t>(spatial)}), c);
    for (size_t k = 0; k < spatial; ++k) {
      const size_t d = spatial - 1 - k;
      const Expr n = size[2 + d];
      // A single element lies in the middle.
      const Val steps = b.index(max(n - 1, 1), c), ends = b.index(i[1 + d] * 2 - (n - 1), c) / steps;
      const Val at = align ? ends : b.index(i[1 + d] * 2 - (n - 1), c) / b.index(n, c);
      total = total + b.cast(theta.at(b, {i[0], i.back(), static_cast<int64_t>(k)}), c) * at;
    }
    return total;
  })};
}

void addResize(OpTable &t) {
  t.add("_upsample_bilinear2d_aa.default _upsample_bilinear2d_aa.vec", [](OpCall &o) { return resizeAntialiased(o, Filter::Linear); });
  t.add("_upsample_bicubic2d_aa.default _upsample_bicubic2d_aa.vec", [](OpCall &o) { return resizeAntialiased(o, Filter::Cubic); });
  t.add("_upsample_lanczos2d_aa.default _upsample_lanczos2d_aa.vec", [](OpCall &o) { return resizeAntialiased(o, Filter::Lanczos); });
  t.add("upsample_nearest1d.default upsample_nearest1d.vec _upsample_nearest_exact1d.default "
        "_upsample_nearest_exact1d.vec",
        [](OpCall &o) { return nearest(o, 1); });
  t.add("upsample_nearest2d.default upsample_nearest2d.vec _upsample_nearest_exact2d.default "
        "_upsample_nearest_exact2d.vec",
        [](OpCall &o) { return nearest(o, 2); });
  t.add("upsample_nearest3d.default upsample_nearest3d.vec _upsample_nearest_exact3d.default "
        "_upsample_nearest_exact3d.vec",
        [](OpCall &o) { return nearest(o, 3); });
  t.add("upsample_linear1d.default upsample_linear1d.vec", [](OpCall &o) { return linearResize(o, 1); });
  t.add("upsample_bilinear2d.default upsample_bilinear2d.vec", [](OpCall &o) { return linearResize(o, 2); });
  t.add("upsample_trilinear3d.default upsample_trilinear3d.vec", [](OpCall &o) { return linearResize(o, 3); });
  t.add("upsample_bicubic2d.default upsample_bicubic2d.vec", bicubic);
  t.add("_upsample_bilinear2d_aa_backward.default", [](OpCall &o) { return antialiasedGradient(o, Filter::Linear); });
  t.add("_upsample_bicubic2d_aa_backward.default", [](OpCall &o) { return antialiasedGradient(o, Filter::Cubic); });
  t.add("_upsample_lanczos2d_aa_backward.default", [](OpCall &o) { return antialiasedGradient(o, Filter::Lanczos); });
  t.add("affine_grid_generator.default", affineGrid);
  addGridSample(t);
}

} // namespace neso::lower
