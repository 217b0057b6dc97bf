// Resampling: upsample_* and grid_sampler.
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

/// Input positions per output position, in the coordinate type c.
static Val scaleOf(BodyBuilder &b, const Axis &a, bool align, DType c) {
  if (align) {
    if (a.out.isConst(1)) return b.constant(c, 0);
    return b.index(a.in - 1, c) / b.index(a.out - 1, c);
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

static Tensors nearest(OpCall &o, size_t spatial) {
  Tensor x = source(o.t(o.has("input") ? "input" : "self"));
  bool exact = o.node.target.find("exact") != std::string::npos;
  // ATen has other kernels for images of one and of three dims.
  std::vector<Axis> axes = axesOf(o, x.sizes(), o.out().sizes, spatial, exact || spatial != 2 ? Axis::Overlooks::Nothing : Axis::Overlooks::SameAndDouble);
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

/// Weights of the four taps around a position with fraction f (Keys, a = -0.75).
static std::array<Val, 4> cubicWeights(Val f) {
  const double A = -0.75;
  auto inner = [A](Val t) { return ((t * (A + 2) - (A + 3)) * t * t) + 1.0; };
  auto outer = [A](Val t) { return ((t * A - 5 * A) * t + 8 * A) * t - 4 * A; };
  return {outer(f + 1.0), inner(f), inner(1.0 - f), outer(2.0 - f)};
}

namespace {
/// The neighbours [from, to) of one output and what each of them counts, before the weights are made to add up to one.
struct Filter {
  Val center, widen, from, to;
  bool cubic;
  Val weightOf(Val j) const;
};

/// The same of a resampling that is not antialiased: of the neighbours around a position, those beyond an edge count for the edge.
struct Around {
  Val base, first, last;
  std::vector<Val> weights;
  Val weightOf(Val j) const;
};

Val Filter::weightOf(Val j) const {
  Val t = un(OpKind::Abs, (j - center + 0.5) / widen), w = vmax(1.0 - t, num(t, 0));
  // Keys with a = -0.5.
  if (cubic)
    w = where(t < 1.0, (t * 1.5 - 2.5) * t * t + 1.0, where(t < 2.0, ((t * -0.5 + 2.5) * t - 4.0) * t + 2.0, 0.0));
  return where(j >= from && j < to, w, num(w, 0));
}

Val Around::weightOf(Val j) const {
  Val total = num(j, 0);
  for (size_t k = 0; k < weights.size(); ++k) {
    const Val at = vmin(vmax(base + (static_cast<double>(k) - (weights.size() == 4 ? 1 : 0)), num(j, 0)), last);
    total = total + where(eq(at, j), weights[k], num(j, 0));
  }
  return total;
}
} // namespace

/// Every output of an antialiased resampling is a weighted sum over the support of a filter that is widened where the image shrinks.
static Filter filterAt(BodyBuilder &b, const Axis &a, Expr i, bool align, bool cubic, DType c) {
  Val scale = scaleOf(b, a, align, c), widen = vmax(scale, num(scale, 1)), support = widen * (cubic ? 2.0 : 1.0);
  Val center = scale * (b.index(i, c) + 0.5), from = un(OpKind::Trunc, center - support + 0.5);
  return {center, widen, vmax(from, num(from, 0)), vmin(un(OpKind::Trunc, center + support + 0.5), b.index(a.in, c)), cubic};
}

static Around tapAt(BodyBuilder &b, const Axis &a, Expr i, bool align, bool cubic, DType c) {
  const Val s = scaleOf(b, a, align, c), pos = b.index(i, c), last = b.index(a.in - 1, c);
  Val p = align ? pos * s : (pos + 0.5) * s - 0.5;
  if (!cubic) p = vmax(p, num(p, 0));
  const Val base = vmin(un(OpKind::Floor, p), last), f = vmin(vmax(p - base, num(p, 0)), num(p, 1));
  Around around{base, vmax(base - (cubic ? 1.0 : 0.0), num(p, 0)), last, {1.0 - f, f}};
  if (cubic) {
    const std::array<Val, 4> four = cubicWeights(f);
    around.weights.assign(four.begin(), four.end());
  }
  return around;
}

/// The matrix [out, in] of an antialiased resampling of one dim.
static Tensor filterOf(Lowering &ctx, const Axis &a, bool align, bool cubic, DType c) {
  Tensor raw = Tensor::lazy(ctx, c, {a.out, a.in}, [=](BodyBuilder &b, const Index &i) { return filterAt(b, a, i[0], align, cubic, c).weightOf(b.index(i[1], c)); });
  raw.realize();
  return div(raw, sum(raw, {1}, true, c)).realize();
}

namespace {
/// What each output of one dim is made of: `most` neighbours from start [out] on, times weights [most, out]; those behind the last have weight 0.
struct Taps {
  Tensor start, weights;
  Expr most, in;
};
} // namespace

/// How many neighbours an output of an antialiased resampling has at most: the filter is as wide as the image shrinks.
static Expr widestFilter(const Axis &a, bool align, bool cubic) {
  Expr shrinks = align ? ceilDiv(a.in - 1, max(a.out - 1, 1))
                 : a.factor && *a.factor > 0 ? Expr(static_cast<int64_t>(std::ceil(1.0 / *a.factor)))
                                             : ceilDiv(a.in, a.out);
  return max(shrinks, 1) * (cubic ? 4 : 2) + 1;
}

static Taps tapsOf(Lowering &ctx, const Axis &a, bool align, bool cubic, bool antialiases, DType c) {
  Taps taps{{}, {}, antialiases ? ctx.facts.simplify(widestFilter(a, align, cubic)) : Expr(cubic ? 4 : 2), a.in};
  taps.start = Tensor::lazy(ctx, DType::I64, {a.out}, [=](BodyBuilder &b, const Index &i) {
    return b.cast(antialiases ? filterAt(b, a, i[0], align, cubic, c).from : tapAt(b, a, i[0], align, cubic, c).first, DType::I64);
  }).realize();
  const Tensor start = taps.start;
  Tensor raw = Tensor::lazy(ctx, c, {taps.most, a.out}, [=](BodyBuilder &b, const Index &i) {
    const Val j = b.cast(start.at(b, {i[1]}), c) + b.index(i[0], c);
    return antialiases ? filterAt(b, a, i[1], align, cubic, c).weightOf(j) : tapAt(b, a, i[1], align, cubic, c).weightOf(j);
  }).realize();
  taps.weights = antialiases ? div(raw, sum(raw, {0}, true, c)).realize() : raw;
  return taps;
}

/// x with the last but one dim resampled, summed in acc: neighbours along the last one lie side by side.
static Tensor resampled(const Tensor &x, const Taps &taps, DType acc) {
  Sizes sizes = x.sizes();
  const size_t d = sizes.size() - 2;
  sizes[d] = taps.weights.size(1);
  return x.ctx().reduce(loops::ReduceKind::Sum, acc, sizes, {taps.most}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Val at = vmin(taps.start.at(b, {i[d]}) + b.index(r[0]), b.index(taps.in - 1));
    Index j = i;
    j[d] = b.indirect(at, taps.in, false, false);
    return b.cast(x.at(b, j), acc) * b.cast(taps.weights.at(b, {r[0], i[d]}), acc);
  })[0];
}

/// The last two dims of x change places in memory, too.
static Tensor turned(const Tensor &x) {
  const Tensor y = transpose(x, -2, -1);
  return Tensor::lazy(x.ctx(), y.dtype(), y.sizes(), [y](BodyBuilder &b, const Index &i) { return y.at(b, i); }).realize();
}

/// One dim of an image of bytes, resampled as ATen's kernel for CPUs does it (separable_upsample_generic_Nd_kernel_impl): by weights of 16 bits,
/// with as many of them behind the point as the greatest weight allows, and rounded to a byte.
static Tensor resampleBytes(const Tensor &x, Taps taps) {
  const Tensor most = reshape(amax(taps.weights, {0, 1}, true), {});
  const Tensor digits = map(most, [](Val w) {
                          // 2^(n + 1) times the greatest stays below 2^15 for so many n, and ATen tries 22.
                          Val n = num(w, 0);
                          for (int k = 0; k < 22; ++k) n = n + where(un(OpKind::Floor, w * std::exp2(k + 1) + 0.5) < 32768.0, num(w, 1), num(w, 0));
                          return n;
                        }).realize();
  Tensor parts[] = {taps.weights, digits};
  taps.weights = cast(pointwise(parts, DType::F64, DType::F64,
                                [](std::span<const Val> v) {
                                  const Val scaled = v[0] * un(OpKind::Exp2, v[1]);
                                  return un(OpKind::Trunc, where(scaled < 0.0, scaled - 0.5, scaled + 0.5));
                                }),
                      DType::I32);
  Tensor both[] = {resampled(x, taps, DType::I32), cast(digits, DType::I32)};
  return cast(pointwise(both, DType::I32, DType::I32,
                        [](std::span<const Val> v) {
                          const Val half = bin(OpKind::Shl, num(v[0], 1), v[1] - 1.0), rounded = bin(OpKind::Shr, v[0] + half, v[1]);
                          return vmin(vmax(rounded, num(rounded, 0)), num(rounded, 255));
                        }),
              DType::U8)
      .realize();
}

/// Images of bytes are resampled along their rows first.
static Tensors resizeBytes(OpCall &o, const Tensor &x, bool cubic, bool antialiases) {
  const std::vector<Axis> axes = axesOf(o, x.sizes(), o.out().sizes, 2, Axis::Overlooks::Same);
  const bool align = o.flag("align_corners");
  auto taps = [&](size_t d) { return tapsOf(o.ctx, axes[d], align, cubic, antialiases, DType::F64); };
  return {resampleBytes(transpose(resampleBytes(turned(x), taps(1)), -2, -1), taps(0))};
}

/// Linear in each dim: 2^spatial loads.
static Tensors linearResize(OpCall &o, size_t spatial) {
  Tensor x = source(o.t(o.has("input") ? "input" : "self"));
  bool align = o.flag("align_corners");
  std::vector<Axis> axes = axesOf(o, x.sizes(), o.out().sizes, spatial, Axis::Overlooks::Same);
  DType c = x.dtype() == DType::F64 ? DType::F64 : DType::F32;
  if (spatial == 2 && x.dtype() == DType::U8) return resizeBytes(o, x, false, false);
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
  if (x.dtype() == DType::U8) return resizeBytes(o, x, true, false);
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

namespace {

/// What is sampled, and how; copied into the body that it makes. Interpolation and padding as ATen numbers them.
struct Grid {
  enum Mode : int64_t { Linear, Nearest, Cubic };
  enum Padding : int64_t { Zeros, Border, Reflection };
  Tensor x, grid;
  int64_t mode, padding;
  bool align; // corners
  DType c;    // computed in
  Sizes in;   // of the image

  size_t spatial() const { return in.size(); }
  Val at(BodyBuilder &b, const Index &i) const;

private:
  /// Of one output element: the sampled position and the image's size along each dimension.
  struct Place {
    const Index &i;
    std::vector<Val> pos, size;
  };
  Place placeOf(BodyBuilder &b, const Index &i) const;
  Val settle(Val p, Val n) const;
  Val sample(BodyBuilder &b, const Place &p, const std::vector<Val> &at) const;
  Val nearest(BodyBuilder &b, const Place &p) const;
  Val linear(BodyBuilder &b, const Place &p) const;
  Val cubic(BodyBuilder &b, const Place &p) const;
};

/// v mirrored at both bounds, which are doubled, so that they are whole.
Val reflect(Val v, Val twiceLow, Val twiceHigh) {
  Val low = twiceLow / 2.0, span = (twiceHigh - twiceLow) / 2.0;
  Val d = un(OpKind::Abs, v - low), extra = bin(OpKind::Fmod, d, span), flips = un(OpKind::Floor, d / span);
  Val even = eq(bin(OpKind::Fmod, flips, num(flips, 2)), 0.0);
  Val r = where(even, extra + low, span - extra + low);
  return where(eq(span, 0.0), num(r, 0), r);
}

/// Where a position p of n elements is taken from, by the padding.
Val Grid::settle(Val p, Val n) const {
  if (padding == Border) p = vmin(vmax(p, num(p, 0)), n - 1.0);
  if (padding == Reflection) {
    p = align ? reflect(p, num(p, 0), (n - 1.0) * 2.0) : reflect(p, num(p, -1), n * 2.0 - 1.0);
    p = vmin(vmax(p, num(p, 0)), n - 1.0);
  }
  return p;
}

Grid::Place Grid::placeOf(BodyBuilder &b, const Index &i) const {
  Place place{i, std::vector<Val>(spatial()), std::vector<Val>(spatial())};
  for (size_t d = 0; d < spatial(); ++d) {
    Index g{i[0]};
    g.insert(g.end(), i.begin() + 2, i.end());
    // Coordinates come as x, y, z; dims are z, y, x.
    g.push_back(static_cast<int64_t>(spatial() - 1 - d));
    Val v = b.cast(grid.at(b, g), c), n = b.index(in[d], c);
    place.size[d] = n;
    // Rounded at each step as ATen does: which pixel is nearest depends on it.
    auto r = [&](Val p) { return b.round(p, x.dtype()); };
    Val p = align ? r(r(r(v + 1.0) / 2.0) * (n - 1.0)) : r(r(r(r(v + 1.0) * n) - 1.0) / 2.0);
    place.pos[d] = mode != Cubic ? settle(p, n) : p;
  }
  return place;
}

/// The pixel at whole coordinates; 0 outside.
Val Grid::sample(BodyBuilder &b, const Place &p, const std::vector<Val> &at) const {
  Val ok = b.isTrue();
  for (size_t d = 0; d < spatial(); ++d) ok = ok && at[d] >= 0.0 && at[d] < p.size[d];
  return b.masked(
      ok,
      [&] {
        Index j{p.i[0], p.i[1]};
        for (size_t d = 0; d < spatial(); ++d) j.push_back(b.indirect(b.cast(at[d], DType::I64), in[d], false, false));
        return b.cast(x.at(b, j), c);
      },
      b.constant(c, 0));
}

Val Grid::nearest(BodyBuilder &b, const Place &p) const {
  std::vector<Val> at;
  for (Val v : p.pos) at.push_back(un(OpKind::Round, v));
  return sample(b, p, at);
}

/// The 2^spatial pixels around.
Val Grid::linear(BodyBuilder &b, const Place &p) const {
  Val total;
  for (size_t corner = 0; corner < (size_t(1) << spatial()); ++corner) {
    std::vector<Val> at;
    Val w;
    for (size_t d = 0; d < spatial(); ++d) {
      Val lo = un(OpKind::Floor, p.pos[d]), f = p.pos[d] - lo;
      bool high = corner >> (spatial() - 1 - d) & 1;
      at.push_back(high ? lo + 1.0 : lo);
      Val part = high ? f : 1.0 - f;
      w = w.valid() ? w * part : part;
    }
    Val v = sample(b, p, at) * w;
    total = total.valid() ? total + v : v;
  }
  return total;
}

/// The 4^spatial pixels around.
Val Grid::cubic(BodyBuilder &b, const Place &p) const {
  std::vector<std::array<Val, 4>> w;
  std::vector<Val> base;
  for (size_t d = 0; d < spatial(); ++d) {
    base.push_back(un(OpKind::Floor, p.pos[d]));
    w.push_back(cubicWeights(p.pos[d] - base[d]));
  }
  Val total;
  for (size_t tap = 0; tap < (size_t(1) << (2 * spatial())); ++tap) {
    std::vector<Val> at;
    Val weight;
    for (size_t d = 0; d < spatial(); ++d) {
      const size_t k = tap >> (2 * (spatial() - 1 - d)) & 3;
      at.push_back(settle(base[d] + (static_cast<double>(k) - 1), p.size[d]));
      weight = weight.valid() ? weight * w[d][k] : w[d][k];
    }
    Val v = sample(b, p, at) * weight;
    total = total.valid() ? total + v : v;
  }
  return total;
}

Val Grid::at(BodyBuilder &b, const Index &i) const {
  const Place place = placeOf(b, i);
  return mode == Nearest ? nearest(b, place) : mode == Linear ? linear(b, place) : cubic(b, place);
}

} // namespace

static Tensors gridSample(OpCall &o, size_t spatial) {
  Tensor x = source(o.t("input")), image = o.t("grid");
  image.reused();
  const Sizes in(x.sizes().begin() + 2, x.sizes().begin() + 2 + static_cast<int64_t>(spatial));
  const Grid grid{x,  image, o.integer("interpolation_mode"), o.integer("padding_mode"), o.flag("align_corners"),
                  computeType(x.dtype()), in};
  return {Tensor::lazy(o.ctx, x.dtype(), o.out().sizes, [grid](BodyBuilder &b, const Index &i) { return grid.at(b, i); })};
}

static Tensors antialiased(OpCall &o, bool cubic) {
  Tensor x = o.t(o.has("input") ? "input" : "self");
  if (x.dtype() == DType::U8) return resizeBytes(o, x, cubic, true);
  if (!isFloat(x.dtype())) return o.fail("only floating point images are supported");
  const DType c = computeType(x.dtype());
  const std::vector<Axis> axes = axesOf(o, x.sizes(), o.out().sizes, 2, Axis::Overlooks::Same);
  const bool align = o.flag("align_corners");
  const Tensor y = resampled(turned(x), tapsOf(o.ctx, axes[1], align, cubic, true, c), c).realize();
  return {cast(resampled(transpose(y, -2, -1), tapsOf(o.ctx, axes[0], align, cubic, true, c), c), x.dtype())};
}

static Tensors antialiasedGradient(OpCall &o, bool cubic) {
  const Tensor g = o.t("grad_output");
  const DType c = computeType(g.dtype());
  const std::vector<Axis> axes = axesOf(o, o.exprs("input_size"), g.sizes(), 2, Axis::Overlooks::Nothing);
  const bool align = o.flag("align_corners");
  const Tensor y = matmul(cast(g, c), filterOf(o.ctx, axes[1], align, cubic, c));
  return {cast(matmul(transpose(filterOf(o.ctx, axes[0], align, cubic, c), 0, 1), y), g.dtype())};
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
  t.add("_upsample_bilinear2d_aa.default _upsample_bilinear2d_aa.vec", [](OpCall &o) { return antialiased(o, false); });
  t.add("_upsample_bicubic2d_aa.default _upsample_bicubic2d_aa.vec", [](OpCall &o) { return antialiased(o, true); });
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
  t.add("_upsample_bilinear2d_aa_backward.default", [](OpCall &o) { return antialiasedGradient(o, false); });
  t.add("_upsample_bicubic2d_aa_backward.default", [](OpCall &o) { return antialiasedGradient(o, true); });
  t.add("affine_grid_generator.default", affineGrid);
  t.add("grid_sampler.default", [](OpCall &o) { return gridSample(o, o.t("input").sizes().size() - 2); });
  t.add("grid_sampler_2d.default cudnn_grid_sampler.default", [](OpCall &o) { return gridSample(o, 2); });
  t.add("grid_sampler_3d.default", [](OpCall &o) { return gridSample(o, 3); });
}

} // namespace neso::lower
