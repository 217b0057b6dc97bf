// Images resampled along one dim after the other, each pixel a weighted sum of neighbours: antialiased ones, and images of bytes.
#include <cmath>

#include "lower/graph_to_loops/resize.h"

namespace neso::lower {

namespace {
struct Sampling {
  bool align; // corners
  Filter filter;
  bool antialiases;
  DType c; // computed in
};

/// The first neighbour that counts for one output, and what each neighbour j counts, 0 for those that do not.
struct Neighbours {
  Val first;
  std::function<Val(Val j)> weight;
};

/// What each output of one dim is made of: `most` neighbours from start [out] on, times weights [most, out]; those behind the last have weight 0.
struct Taps {
  Tensor start, weights;
  Expr most, in;
};
} // namespace

/// Antialiased: all below a filter that is widened where the image shrinks. The weights do not add up to one yet.
static Neighbours filtered(BodyBuilder &b, const Axis &a, Expr i, const Sampling &s) {
  const Val scale = scaleOf(b, a, s.align, s.c), widen = vmax(scale, num(scale, 1)), support = widen * static_cast<double>(s.filter);
  const Val center = scale * (b.index(i, s.c) + 0.5), low = un(OpKind::Trunc, center - support + 0.5), from = vmax(low, num(low, 0));
  const Val to = vmin(un(OpKind::Trunc, center + support + 0.5), b.index(a.in, s.c));
  return {from, [=, filter = s.filter](Val j) {
            Val t = un(OpKind::Abs, (j - center + 0.5) / widen), w = vmax(1.0 - t, num(t, 0));
            // Keys with a = -0.5.
            if (filter == Filter::Cubic)
              w = where(t < 1.0, (t * 1.5 - 2.5) * t * t + 1.0, where(t < 2.0, ((t * -0.5 + 2.5) * t - 4.0) * t + 2.0, 0.0));
            if (filter == Filter::Lanczos) {
              const auto wave = [](Val turns) { return where(eq(turns, 0.0), num(turns, 1), un(OpKind::Sin, turns * M_PI) / (turns * M_PI)); };
              w = where(t < 3.0, wave(t) * wave(t / 3.0), num(t, 0));
            }
            return where(j >= from && j < to, w, num(w, 0));
          }};
}

/// Those around a position; what lies beyond an edge counts for the edge.
static Neighbours around(BodyBuilder &b, const Axis &a, Expr i, const Sampling &s) {
  const Val scale = scaleOf(b, a, s.align, s.c), pos = b.index(i, s.c), last = b.index(a.in - 1, s.c);
  Val p = s.align ? pos * scale : (pos + 0.5) * scale - 0.5;
  const bool cubic = s.filter == Filter::Cubic;
  if (!cubic) p = vmax(p, num(p, 0));
  const Val base = vmin(un(OpKind::Floor, p), last), f = vmin(vmax(p - base, num(p, 0)), num(p, 1));
  const double before = cubic ? 1 : 0;
  std::vector<Val> weights{1.0 - f, f};
  if (cubic) {
    const std::array<Val, 4> four = cubicWeights(f);
    weights.assign(four.begin(), four.end());
  }
  return {vmax(base - before, num(p, 0)), [=](Val j) {
            Val total = num(j, 0);
            for (size_t k = 0; k < weights.size(); ++k) {
              const Val at = vmin(vmax(base + (static_cast<double>(k) - before), num(j, 0)), last);
              total = total + where(eq(at, j), weights[k], num(j, 0));
            }
            return total;
          }};
}

static Neighbours neighboursOf(BodyBuilder &b, const Axis &a, Expr i, const Sampling &s) { return (s.antialiases ? filtered : around)(b, a, i, s); }

/// How many neighbours an output has at most.
static Expr mostNeighbours(const Axis &a, const Sampling &s) {
  const int64_t reach = static_cast<int64_t>(s.filter);
  if (!s.antialiases) return 2 * reach;
  const Expr shrinks = s.align ? ceilDiv(a.in - 1, max(a.out - 1, 1))
                       : a.factor && *a.factor > 0 ? Expr(static_cast<int64_t>(std::ceil(1.0 / *a.factor)))
                                                   : ceilDiv(a.in, a.out);
  return max(shrinks, 1) * (2 * reach) + 1;
}

static Taps tapsOf(Lowering &ctx, const Axis &a, const Sampling &s) {
  const Expr most = ctx.facts.simplify(mostNeighbours(a, s));
  const Tensor start = Tensor::lazy(ctx, DType::I64, {a.out}, [=](BodyBuilder &b, const Index &i) { return b.cast(neighboursOf(b, a, i[0], s).first, DType::I64); }).realize();
  const Tensor weights = Tensor::lazy(ctx, s.c, {most, a.out}, [=](BodyBuilder &b, const Index &i) {
                           return neighboursOf(b, a, i[1], s).weight(b.cast(start.at(b, {i[1]}), s.c) + b.index(i[0], s.c));
                         }).realize();
  return {start, s.antialiases ? div(weights, sum(weights, {0}, true, s.c)).realize() : weights, most, a.in};
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
Tensors resizeBytes(OpCall &o, const Tensor &x, Filter filter, bool antialiases) {
  const std::vector<Axis> axes = axesOf(o, x.sizes(), o.out().sizes, 2, Axis::Overlooks::Same);
  const Sampling s{o.flag("align_corners"), filter, antialiases, DType::F64};
  const Tensor rows = resampleBytes(turned(x), tapsOf(o.ctx, axes[1], s));
  return {resampleBytes(transpose(rows, -2, -1), tapsOf(o.ctx, axes[0], s))};
}

Tensors resizeAntialiased(OpCall &o, Filter filter) {
  Tensor x = o.t(o.has("input") ? "input" : "self");
  if (x.dtype() == DType::U8) return resizeBytes(o, x, filter, true);
  if (!isFloat(x.dtype())) return o.fail("only floating point images are supported");
  const std::vector<Axis> axes = axesOf(o, x.sizes(), o.out().sizes, 2, Axis::Overlooks::Same);
  const Sampling s{o.flag("align_corners"), filter, true, computeType(x.dtype())};
  const Tensor rows = resampled(turned(x), tapsOf(o.ctx, axes[1], s), s.c).realize();
  return {cast(resampled(transpose(rows, -2, -1), tapsOf(o.ctx, axes[0], s), s.c), x.dtype())};
}

/// The matrix [out, in] of an antialiased resampling of one dim.
static Tensor filterOf(Lowering &ctx, const Axis &a, const Sampling &s) {
  const Tensor raw = Tensor::lazy(ctx, s.c, {a.out, a.in}, [=](BodyBuilder &b, const Index &i) { return filtered(b, a, i[0], s).weight(b.index(i[1], s.c)); }).realize();
  return div(raw, sum(raw, {1}, true, s.c)).realize();
}

Tensors antialiasedGradient(OpCall &o, Filter filter) {
  const Tensor g = o.t("grad_output");
  const std::vector<Axis> axes = axesOf(o, o.exprs("input_size"), g.sizes(), 2, Axis::Overlooks::Nothing);
  const Sampling s{o.flag("align_corners"), filter, true, computeType(g.dtype())};
  const Tensor y = matmul(cast(g, s.c), filterOf(o.ctx, axes[1], s));
  return {cast(matmul(transpose(filterOf(o.ctx, axes[0], s), 0, 1), y), g.dtype())};
}

} // namespace neso::lower
