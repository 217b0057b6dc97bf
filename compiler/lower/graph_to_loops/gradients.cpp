// Gradients of poolings and resamplings, as exports of training graphs and backward operators contain them.
#include "lower/graph_to_loops/resize.h"

namespace neso::lower {

namespace {

/// [N, C, ...] also where the image has no batch.
Sizes withBatch(Sizes sizes, size_t spatial) {
  if (sizes.size() == spatial + 1) sizes.insert(sizes.begin(), Expr(1));
  return sizes;
}

/// Zeros of the sizes, in the type in which gradients are summed.
Strided zeros(OpCall &o, const Sizes &sizes, DType acc) {
  const Strided w = o.ctx.allocate(acc, sizes);
  o.ctx.store(full(o.ctx, sizes, acc, 0), w);
  return w;
}

/// Each output of a maximum gives its gradient to the element that `indices` names, of the image's last `spatial` dims.
Tensors maximumGradient(OpCall &o, size_t spatial) {
  const Tensor g = o.t("grad_output"), x = o.t("self"), index = o.t("indices");
  const DType acc = computeType(x.dtype());
  Sizes flat(x.sizes().begin(), x.sizes().end() - static_cast<std::ptrdiff_t>(spatial));
  Expr image = 1;
  for (size_t d = flat.size(); d < x.sizes().size(); ++d) image = image * x.sizes()[d];
  flat.push_back(image);
  const Strided w = zeros(o, flat, acc);
  o.ctx.scatter(
      g.sizes(),
      [&](BodyBuilder &b, const Index &i) {
        Index j(i.begin(), i.end() - static_cast<std::ptrdiff_t>(spatial));
        j.push_back(b.indirect(index.at(b, i), image, false, true));
        return Lowering::ScatterItem{j, b.cast(g.at(b, i), acc), {}};
      },
      w, acc, loops::StoreMode::AtomicAdd);
  return {reshape(cast(Tensor::strided(o.ctx, acc, flat, w), x.dtype()), x.sizes())};
}

/// Element i of an adaptive mean gathers from the windows that hold it. Window p is [floor(p in / out), ceil((p + 1) in / out)), so
/// these are p = floor(i out / in) to ceil((i + 1) out / in) - 1.
Tensors adaptiveMeanGradient(OpCall &o, size_t spatial) {
  const Tensor g0 = o.t("grad_output"), x = o.t("self");
  const Tensor g = reshape(g0, withBatch(g0.sizes(), spatial)).reused();
  const Sizes sizes = withBatch(x.sizes(), spatial);
  const Sizes in(sizes.begin() + 2, sizes.end()), out(g.sizes().begin() + 2, g.sizes().end());
  const DType acc = computeType(x.dtype());
  Sizes windows;
  for (size_t d = 0; d < spatial; ++d) {
    const bool apart = o.ctx.facts.provablyDivisible(in[d], out[d]);
    windows.push_back(apart ? Expr(1) : o.ctx.facts.simplify(ceilDiv(out[d], in[d]) + 1));
  }
  const Tensor r = o.ctx.reduce(loops::ReduceKind::Sum, acc, sizes, windows, [=](BodyBuilder &b, const Index &i, const Index &r) {
    Index at{i[0], i[1]};
    Val ok = b.isTrue();
    Expr count = 1;
    for (size_t d = 0; d < spatial; ++d) {
      const Expr p = floorDiv(i[d + 2] * out[d], in[d]) + r[d];
      if (!windows[d].isConst(1)) ok = ok && b.compare(OpKind::Lt, p, ceilDiv((i[d + 2] + 1) * out[d], in[d]));
      count = count * (ceilDiv((p + 1) * in[d], out[d]) - floorDiv(p * in[d], out[d]));
      at.push_back(p);
    }
    return b.masked(ok, [&] { return b.cast(g.at(b, at), acc) / b.index(count, acc); }, b.constant(acc, 0));
  })[0];
  return {reshape(cast(r, x.dtype()), x.sizes())};
}

enum class Resampling { Nearest, Linear, Cubic };

/// Each output gives its gradient to the pixels that it was made of, by their weights: one scatter for each choice of taps.
template <Resampling K> Tensors resizeGradient(OpCall &o, size_t spatial) {
  const Tensor g = o.t("grad_output").reused();
  const Sizes in = o.exprs("input_size");
  const bool align = K != Resampling::Nearest && o.flag("align_corners"), exact = o.node.target.find("exact") != std::string::npos;
  std::vector<Axis> axes = axesOf(o, in, g.sizes(), spatial,
                                  K == Resampling::Linear            ? Axis::Overlooks::Same
                                  : K == Resampling::Cubic || exact ? Axis::Overlooks::Nothing
                                                                    : Axis::Overlooks::SameAndDouble);
  // An image that keeps both sizes is copied.
  if (K == Resampling::Cubic && std::all_of(axes.begin(), axes.end(), [&](const Axis &a) { return o.ctx.facts.provablyEqual(a.in, a.out); }))
    for (Axis &a : axes) a.factor.reset();
  const DType acc = computeType(g.dtype()), c = g.dtype() == DType::F64 ? DType::F64 : DType::F32;
  const Strided w = zeros(o, in, acc);
  constexpr size_t kTaps = K == Resampling::Nearest ? 1 : K == Resampling::Linear ? 2 : 4;
  size_t choices = 1;
  for (size_t d = 0; d < spatial; ++d) choices *= kTaps;
  for (size_t choice = 0; choice < choices; ++choice) {
    bool none = false;
    o.ctx.scatter(
        g.sizes(),
        [&](BodyBuilder &b, const Index &i) {
          Index j{i[0], i[1]};
          Val v = b.cast(g.at(b, i), acc);
          size_t rest = choice;
          for (size_t d = 0; d < spatial; ++d, rest /= kTaps) {
            if (K == Resampling::Nearest) {
              j.push_back(nearestAt(b, axes[d], i[2 + d], exact));
              continue;
            }
            const std::vector<Tap> taps = K == Resampling::Linear ? linearTaps(b, axes[d], i[2 + d], align, c) : cubicTaps(b, axes[d], i[2 + d], align, c);
            const Tap &tap = taps[std::min(rest % kTaps, taps.size() - 1)];
            // A dim that is not resampled has one tap, which the first choice takes.
            none |= rest % kTaps >= taps.size();
            j.push_back(tap.at);
            if (tap.weight.valid()) v = v * b.cast(tap.weight, acc);
          }
          return Lowering::ScatterItem{j, v, none ? b.constantInt(DType::Bool, 0) : Val()};
        },
        w, acc, loops::StoreMode::AtomicAdd);
  }
  return {cast(Tensor::strided(o.ctx, acc, in, w), g.dtype())};
}

} // namespace

void addGradients(OpTable &t) {
  t.add("max_pool2d_with_indices_backward.default adaptive_max_pool2d_backward.default fractional_max_pool2d_backward.default",
        [](OpCall &o) { return maximumGradient(o, 2); });
  t.add("max_pool3d_with_indices_backward.default adaptive_max_pool3d_backward.default fractional_max_pool3d_backward.default",
        [](OpCall &o) { return maximumGradient(o, 3); });
  t.add("_adaptive_avg_pool2d_backward.default", [](OpCall &o) { return adaptiveMeanGradient(o, 2); });
  t.add("_adaptive_avg_pool3d_backward.default", [](OpCall &o) { return adaptiveMeanGradient(o, 3); });
  t.add("upsample_nearest1d_backward.default _upsample_nearest_exact1d_backward.default", [](OpCall &o) { return resizeGradient<Resampling::Nearest>(o, 1); });
  t.add("upsample_nearest2d_backward.default _upsample_nearest_exact2d_backward.default", [](OpCall &o) { return resizeGradient<Resampling::Nearest>(o, 2); });
  t.add("upsample_nearest3d_backward.default _upsample_nearest_exact3d_backward.default", [](OpCall &o) { return resizeGradient<Resampling::Nearest>(o, 3); });
  t.add("upsample_linear1d_backward.default", [](OpCall &o) { return resizeGradient<Resampling::Linear>(o, 1); });
  t.add("upsample_bilinear2d_backward.default", [](OpCall &o) { return resizeGradient<Resampling::Linear>(o, 2); });
  t.add("upsample_trilinear3d_backward.default", [](OpCall &o) { return resizeGradient<Resampling::Linear>(o, 3); });
  t.add("upsample_bicubic2d_backward.default", [](OpCall &o) { return resizeGradient<Resampling::Cubic>(o, 2); });
}

} // namespace neso::lower
