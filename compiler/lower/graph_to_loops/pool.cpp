// Pooling.
#include <cmath>
#include <limits>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

static Sizes spread(Sizes v, size_t n, const Sizes &otherwise) {
  if (v.empty()) v = otherwise;
  if (v.size() == 1) v.resize(n, v[0]);
  return v;
}

static double lowest(DType t) { return isFloat(t) ? -HUGE_VAL : leastOf(t); }

/// The tensor as [N, C, spatial…], whatever leading dims it had.
static Tensor batched(const Tensor &x, size_t spatial) { return x.sizes().size() == spatial + 1 ? unsqueeze(x, 0) : x; }

static Sizes batchedSizes(const Sizes &s, size_t spatial) {
  Sizes r = s;
  if (s.size() == spatial + 1) r.insert(r.begin(), Expr(1));
  return r;
}

/// Where in its window the maximum `top` lies, as ATen's loops find it: at the last NaN, else at the first element that
/// equals the maximum. What `inside` leaves out is no element, whatever stands for it.
static Tensor windowPosition(const Tensor &top, const Sizes &window, const ReduceFn &value, const ReduceFn &inside,
                             const std::vector<int> &order) {
  Expr count = product(window);
  auto score = [=](BodyBuilder &b, const Index &i, const Index &r) {
    Expr position = 0;
    for (size_t d = 0; d < window.size(); ++d) position = position * window[d] + r[d];
    Val x = value(b, i, r), ok = inside(b, i, r);
    Val s = where(ok && eq(x, top.at(b, i)), b.index(count - position), b.constantInt(DType::I64, 0));
    return isFloat(x.dtype) ? where(ok && un(OpKind::IsNan, x), b.index(count + 1 + position), s) : s;
  };
  Tensor best = top.ctx().reduce(loops::ReduceKind::Max, DType::I64, top.sizes(), window, score, order)[0];
  return Tensor::lazy(top.ctx(), DType::I64, top.sizes(), [=](BodyBuilder &b, const Index &i) {
    Val s = best.at(b, i), n = b.index(count);
    return where(s > n, s - n - num(s, 1), n - s);
  });
}

static Tensors maxPool(OpCall &o, size_t spatial) {
  Tensor x0 = o.t("self"), x = batched(x0, spatial);
  Sizes kernel = spread(o.exprs("kernel_size"), spatial, {1}), stride = spread(o.exprs("stride"), spatial, kernel);
  Sizes padding = spread(o.exprs("padding"), spatial, {0}), dilation = spread(o.exprs("dilation"), spatial, {1});
  Sizes in(x.sizes().begin() + 2, x.sizes().end()), outSizes = batchedSizes(o.out().sizes, spatial);
  DType acc = computeType(x.dtype());
  bool ceil = o.flag("ceil_mode");
  x.reused();
  auto place = [=](const Index &i, const Index &r, size_t d) {
    return i[d + 2] * stride[d] - padding[d] + r[d] * dilation[d];
  };
  auto inside = [=](BodyBuilder &b, const Index &i, const Index &r) {
    Val ok = b.isTrue();
    for (size_t d = 0; d < spatial; ++d)
      if (ceil || !padding[d].isConst(0)) ok = ok && b.inRange(place(i, r, d), 0, in[d]);
    return ok;
  };
  auto value = [=](BodyBuilder &b, const Index &i, const Index &r) {
    Index j{i[0], i[1]};
    for (size_t d = 0; d < spatial; ++d) j.push_back(place(i, r, d));
    return b.masked(inside(b, i, r), [&] { return x.at(b, j); }, b.constant(acc, lowest(x.dtype())));
  };
  Tensor v = o.ctx.reduce(loops::ReduceKind::Max, acc, outSizes, kernel, value, x.order())[0];
  Tensors out{reshape(cast(v, x.dtype()), o.out().sizes)};
  if (o.outCount() < 2) return out;
  Tensor at = windowPosition(v, kernel, value, inside, x.order());
  // From the position in the window to the position in the plane.
  Tensor flat = Tensor::lazy(o.ctx, DType::I64, outSizes, [=](BodyBuilder &b, const Index &i) {
    Val p = at.at(b, i);
    std::vector<Val> digits(spatial);
    for (size_t d = spatial; d-- > 0;) {
      Val k = b.index(kernel[d]);
      digits[d] = d == 0 ? p : p - bin(OpKind::FloorDiv, p, k) * k;
      p = bin(OpKind::FloorDiv, p, k);
    }
    Val linear = b.constantInt(DType::I64, 0);
    for (size_t d = 0; d < spatial; ++d) {
      Val e = b.index(i[d + 2] * stride[d] - padding[d]) + digits[d] * b.index(dilation[d]);
      linear = linear * b.index(in[d]) + e;
    }
    return linear;
  });
  out.push_back(reshape(flat, o.out(1).sizes));
  return out;
}

/// How a mean over windows is taken.
struct Averaging {
  Sizes kernel, stride, padding, in;
  bool ceil, includePad;
  std::optional<double> divisor;
  Averaging(OpCall &o, size_t spatial, Sizes inputSizes)
      : kernel(spread(o.exprs("kernel_size"), spatial, {1})), stride(spread(o.exprs("stride"), spatial, kernel)),
        padding(spread(o.exprs("padding"), spatial, {0})), in(std::move(inputSizes)), ceil(o.flag("ceil_mode")),
        includePad(o.flag("count_include_pad", true)) {
    if (o.has("divisor_override")) divisor = o.number("divisor_override");
  }
  /// v over the number of elements of the window at `place`.
  Val divided(BodyBuilder &b, const Index &place, Val v) const {
    if (divisor) return isFloat(v.dtype) ? v / *divisor : bin(OpKind::Div, v, *divisor);
    Expr count = 1;
    for (size_t d = 0; d < kernel.size(); ++d) {
      Expr start = place[d] * stride[d] - padding[d], end = min(start + kernel[d], in[d] + padding[d]);
      if (!ceil && (includePad || padding[d].isConst(0)))
        count = count * kernel[d];
      else if (includePad)
        count = count * (end - start);
      else
        count = count * (min(end, in[d]) - max(start, 0));
    }
    return isFloat(v.dtype) ? v / b.index(count, v.dtype) : bin(OpKind::Div, v, b.index(count, v.dtype));
  }
};

static Tensors avgPool(OpCall &o, size_t spatial) {
  Tensor x0 = o.t("self"), x = batched(x0, spatial);
  const Averaging a(o, spatial, Sizes(x.sizes().begin() + 2, x.sizes().end()));
  Sizes outSizes = batchedSizes(o.out().sizes, spatial);
  DType t = x.dtype(), acc = computeType(t);
  x.reused();
  Tensor s = o.ctx.reduce(
      loops::ReduceKind::Sum, acc, outSizes, a.kernel,
      [=](BodyBuilder &b, const Index &i, const Index &r) {
        Index j{i[0], i[1]};
        Val ok = b.isTrue();
        for (size_t d = 0; d < spatial; ++d) {
          Expr e = i[d + 2] * a.stride[d] - a.padding[d] + r[d];
          if (a.ceil || !a.padding[d].isConst(0)) ok = ok && b.inRange(e, 0, a.in[d]);
          j.push_back(e);
        }
        return b.masked(ok, [&] { return x.at(b, j); }, b.constant(acc, 0));
      },
      x.order())[0];
  Tensor y = Tensor::lazy(o.ctx, t, outSizes, [=](BodyBuilder &b, const Index &i) {
    return a.divided(b, Index(i.begin() + 2, i.end()), s.at(b, i));
  });
  return {reshape(y.withOrder(x.order()), o.out().sizes)};
}

/// Each element gathers from the windows that cover it, ceil(kernel / stride) of them along a dimension.
static Tensors avgPoolBackward(OpCall &o, size_t spatial) {
  const Tensor grad = batched(o.t("grad_output"), spatial), x = batched(o.t("self"), spatial);
  const Averaging a(o, spatial, Sizes(x.sizes().begin() + 2, x.sizes().end()));
  const DType acc = computeType(x.dtype());
  const Sizes places(grad.sizes().begin() + 2, grad.sizes().end());
  Sizes windows;
  for (size_t d = 0; d < spatial; ++d) windows.push_back(ceilDiv(a.kernel[d], a.stride[d]));
  grad.reused();
  Tensor r = o.ctx.reduce(
      loops::ReduceKind::Sum, acc, x.sizes(), windows,
      [=](BodyBuilder &b, const Index &i, const Index &r) {
        Index j{i[0], i[1]}, place;
        Val ok = b.isTrue();
        for (size_t d = 0; d < spatial; ++d) {
          const Expr at = i[d + 2] + a.padding[d];
          place.push_back(floorDiv(at, a.stride[d]) - r[d]);
          ok = ok && b.inRange(place[d], 0, places[d]) && b.compare(OpKind::Lt, at - place[d] * a.stride[d], a.kernel[d]);
        }
        j.insert(j.end(), place.begin(), place.end());
        return b.masked(ok, [&] { return a.divided(b, place, b.cast(grad.at(b, j), acc)); }, b.constant(acc, 0));
      },
      x.order())[0];
  return {reshape(cast(r, x.dtype()), o.out().sizes)};
}

static Tensors adaptive(OpCall &o, size_t spatial, bool max) {
  Tensor x0 = o.t("self"), x = batched(x0, spatial);
  Sizes in(x.sizes().begin() + 2, x.sizes().end()), outSizes = batchedSizes(o.out().sizes, spatial);
  Sizes out(outSizes.begin() + 2, outSizes.end()), window;
  bool exact = true;
  for (size_t d = 0; d < spatial; ++d) {
    bool divides = out[d].isConst(1) || o.ctx.facts.provablyDivisible(in[d], out[d]);
    exact &= divides;
    if (divides)
      window.push_back(floorDiv(in[d], out[d]));
    else
      window.push_back(o.ctx.facts.simplify(ceilDiv(in[d], out[d]) + 1));
  }
  DType t = x.dtype(), acc = computeType(t);
  x.reused();
  auto bounds = [=](const Index &i, size_t d) -> std::pair<Expr, Expr> {
    return {floorDiv(i[d + 2] * in[d], out[d]), ceilDiv((i[d + 2] + 1) * in[d], out[d])};
  };
  auto inside = [=](BodyBuilder &b, const Index &i, const Index &r) {
    Val ok = b.isTrue();
    for (size_t d = 0; d < spatial && !exact; ++d)
      ok = ok && b.compare(OpKind::Lt, bounds(i, d).first + r[d], bounds(i, d).second);
    return ok;
  };
  auto value = [=](BodyBuilder &b, const Index &i, const Index &r) {
    Index j{i[0], i[1]};
    for (size_t d = 0; d < spatial; ++d) j.push_back((exact ? i[d + 2] * window[d] : bounds(i, d).first) + r[d]);
    return b.masked(inside(b, i, r), [&] { return x.at(b, j); }, b.constant(acc, max ? lowest(t) : 0.0));
  };
  if (max) {
    Tensor v = o.ctx.reduce(loops::ReduceKind::Max, acc, outSizes, window, value, x.order())[0];
    Tensor at = windowPosition(v, window, value, inside, x.order());
    Tensor flat = Tensor::lazy(o.ctx, DType::I64, outSizes, [=](BodyBuilder &b, const Index &i) {
      Val p = at.at(b, i), linear = b.constantInt(DType::I64, 0);
      std::vector<Val> digits(spatial);
      for (size_t d = spatial; d-- > 0;) {
        Val k = b.index(window[d]);
        digits[d] = d == 0 ? p : p - bin(OpKind::FloorDiv, p, k) * k;
        p = bin(OpKind::FloorDiv, p, k);
      }
      for (size_t d = 0; d < spatial; ++d) linear = linear * b.index(in[d]) + b.index(bounds(i, d).first) + digits[d];
      return linear;
    });
    return {reshape(cast(v, t), o.out().sizes), reshape(flat, o.outCount() > 1 ? o.out(1).sizes : o.out().sizes)};
  }
  Tensor s = o.ctx.reduce(loops::ReduceKind::Sum, acc, outSizes, window, value, x.order())[0];
  Tensor y = Tensor::lazy(o.ctx, t, outSizes, [=](BodyBuilder &b, const Index &i) {
    Expr count = 1;
    for (size_t d = 0; d < spatial; ++d) {
      auto [start, end] = bounds(i, d);
      count = count * (exact ? window[d] : end - start);
    }
    return s.at(b, i) / b.index(count, acc);
  });
  return {reshape(y.withOrder(x.order()), o.out().sizes)};
}

/// Windows whose starts come from one random number for each plane and dim (Graham 2014), and the maximum of each.
static Tensors fractionalMaxPool(OpCall &o, size_t spatial) {
  Tensor x0 = o.t("self"), x = source(batched(x0, spatial)), samples = o.t("random_samples");
  Sizes kernel = spread(o.exprs("kernel_size"), spatial, {1}), outSizes = batchedSizes(o.out().sizes, spatial);
  Sizes in(x.sizes().begin() + 2, x.sizes().end());
  samples.reused();
  DType acc = computeType(x.dtype());
  auto starts = [=](BodyBuilder &b, const Index &i) {
    Index at;
    for (size_t d = 0; d < spatial; ++d) {
      // Numbers stand in the order of the dims for volumes, in the other one for planes.
      Expr which = static_cast<int64_t>(spatial == 2 ? 1 - d : d);
      Val u = samples.at(b, {i[0], i[1], which}), n = b.index(outSizes[d + 2] - 1, u.dtype);
      // Rounded at each step as ATen does: where a window begins depends on it.
      auto r = [&](Val v) { return b.round(v, samples.dtype()); };
      Val alpha = r(r(b.index(in[d] - kernel[d], u.dtype)) / r(vmax(n, num(n, 1)))), k = r(b.index(i[d + 2], u.dtype));
      Val start =
          b.cast(un(OpKind::Trunc, r(r(k + u) * alpha)), DType::I64) - b.cast(un(OpKind::Trunc, r(u * alpha)), DType::I64);
      start = where(b.compare(OpKind::Eq, i[d + 2], outSizes[d + 2] - 1), b.index(in[d] - kernel[d]), start);
      at.push_back(b.indirect(start, in[d] - kernel[d] + 1, false, false));
    }
    return at;
  };
  auto value = [=](BodyBuilder &b, const Index &i, const Index &r) {
    Index j{i[0], i[1]}, s = starts(b, i);
    for (size_t d = 0; d < spatial; ++d) j.push_back(s[d] + r[d]);
    return x.at(b, j);
  };
  Tensor v = o.ctx.reduce(loops::ReduceKind::Max, acc, outSizes, kernel, value)[0];
  auto everywhere = [](BodyBuilder &b, const Index &, const Index &) { return b.isTrue(); };
  Tensor at = windowPosition(v, kernel, value, everywhere, {});
  Tensor flat = Tensor::lazy(o.ctx, DType::I64, outSizes, [=](BodyBuilder &b, const Index &i) {
    Val p = at.at(b, i), linear = b.constantInt(DType::I64, 0), unit = b.constantInt(DType::I64, 1);
    Index s = starts(b, i);
    for (size_t d = spatial; d-- > 0;) {
      Val k = b.index(kernel[d]), rest = bin(OpKind::FloorDiv, p, k);
      linear = linear + (b.index(s[d]) + (p - rest * k)) * unit;
      unit = unit * b.index(in[d]);
      p = rest;
    }
    return linear;
  });
  return {reshape(cast(v, x.dtype()), o.out().sizes), reshape(flat, o.out(1).sizes)};
}

void addPool(OpTable &t) {
  t.add("avg_pool2d_backward.default", [](OpCall &o) { return avgPoolBackward(o, 2); });
  t.add("avg_pool3d_backward.default", [](OpCall &o) { return avgPoolBackward(o, 3); });
  t.add("fractional_max_pool2d.default", [](OpCall &o) { return fractionalMaxPool(o, 2); });
  t.add("fractional_max_pool3d.default", [](OpCall &o) { return fractionalMaxPool(o, 3); });
  t.add("max_pool1d.default max_pool1d_with_indices.default", [](OpCall &o) { return maxPool(o, 1); });
  t.add("max_pool2d.default max_pool2d_with_indices.default", [](OpCall &o) { return maxPool(o, 2); });
  t.add("max_pool3d.default max_pool3d_with_indices.default", [](OpCall &o) { return maxPool(o, 3); });
  t.add("avg_pool1d.default", [](OpCall &o) { return avgPool(o, 1); });
  t.add("avg_pool2d.default", [](OpCall &o) { return avgPool(o, 2); });
  t.add("avg_pool3d.default", [](OpCall &o) { return avgPool(o, 3); });
  t.add("adaptive_avg_pool1d.default", [](OpCall &o) { return adaptive(o, 1, false); });
  t.add("adaptive_avg_pool2d.default _adaptive_avg_pool2d.default", [](OpCall &o) { return adaptive(o, 2, false); });
  t.add("adaptive_avg_pool3d.default _adaptive_avg_pool3d.default", [](OpCall &o) { return adaptive(o, 3, false); });
  t.add("adaptive_max_pool1d.default", [](OpCall &o) { return adaptive(o, 1, true); });
  t.add("adaptive_max_pool2d.default", [](OpCall &o) { return adaptive(o, 2, true); });
  t.add("adaptive_max_pool3d.default", [](OpCall &o) { return adaptive(o, 3, true); });
}

} // namespace neso::lower
