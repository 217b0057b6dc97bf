// Gradients of operators that compute each element from one of each operand, and of losses: grad_output comes first, then what the forward
// operator was given or gave.
#include <cmath>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

namespace {

using Each = std::function<Val(std::span<const Val>)>;

/// fn over the call's first `count` tensors: the gradient of the result, then what the derivative is taken at.
Tensors each(OpCall &o, size_t count, const Each &fn) {
  Tensors xs;
  for (size_t k = 0; k < count; ++k) xs.push_back(o.operand(k));
  const DType t = o.out().dtype;
  return {pointwise(xs, t, t, fn)};
}

Val zero(Val like) { return num(like, 0); }

Tensors geluGradient(OpCall &o) {
  const std::string form = o.text("approximate", "none");
  if (form == "none")
    return each(o, 2, [](std::span<const Val> v) {
      const Val x = v[1], cdf = (un(OpKind::Erf, x * M_SQRT1_2) + 1.0) * 0.5;
      const Val pdf = un(OpKind::Exp, x * x * -0.5) * (M_2_SQRTPI * M_SQRT1_2 * 0.5);
      return v[0] * (cdf + x * pdf);
    });
  if (form != "tanh") return o.fail("approximate is '" + form + "'");
  return each(o, 2, [](std::span<const Val> v) {
    const double beta = M_SQRT2 * M_2_SQRTPI * 0.5, kappa = 0.044715;
    const Val x = v[1], t = un(OpKind::Tanh, (x + x * x * x * kappa) * beta);
    return v[0] * ((t + 1.0) * 0.5 + x * 0.5 * (1.0 - t * t) * ((x * x * (3 * kappa) + 1.0) * beta));
  });
}

Tensors eluGradient(OpCall &o) {
  const double negative = o.number("alpha", 1) * o.number("scale", 1), positive = o.number("scale", 1), in = o.number("input_scale", 1);
  const bool result = o.flag("is_result");
  const Tensor xs[] = {o.t("grad_output"), o.t("self_or_result")};
  const DType t = o.out().dtype;
  return {pointwise(xs, t, t, [=](std::span<const Val> v) {
    const Val below = result ? v[0] * ((v[1] + negative) * in) : v[0] * (un(OpKind::Exp, v[1] * in) * (in * negative));
    return where(v[1] <= 0.0, below, v[0] * positive);
  })};
}

/// What passes where the operand lies inside of two bounds.
Tensors insideGradient(OpCall &o, double low, double high, double factor) {
  return each(o, 2, [=](std::span<const Val> v) { return where(v[1] > low && v[1] < high, v[0] * factor, zero(v[0])); });
}

Tensors outsideGradient(OpCall &o) {
  const double l = o.number("lambd", 0.5);
  return each(o, 2, [l](std::span<const Val> v) { return where(v[1] >= -l && v[1] <= l, zero(v[0]), v[0]); });
}

Tensors logitGradient(OpCall &o) {
  const bool bounded = o.has("eps");
  const double low = bounded ? o.number("eps") : 0, outside = bounded ? 0 : NAN;
  return each(o, 2, [=](std::span<const Val> v) {
    const Val ends = v[0] * num(v[0], HUGE_VAL), inside = v[0] / (v[1] * (1.0 - v[1]));
    return where(v[1] >= low && v[1] <= 1 - low, where(eq(v[1], 0.0) || eq(v[1], 1.0), ends, inside), num(v[0], outside));
  });
}

Tensors rreluGradient(OpCall &o) {
  const double lower = o.number("lower"), upper = o.number("upper"), slope = (lower + upper) / 2;
  if (o.flag("training") && upper - lower > 1e-6) return each(o, 3, [](std::span<const Val> v) { return v[0] * v[2]; });
  return each(o, 2, [slope](std::span<const Val> v) { return where(v[1] > 0.0, v[0], v[0] * slope); });
}

Tensors gluGradient(OpCall &o) {
  const Tensor g = o.t("grad_output"), x = o.t("self");
  const int64_t d = o.integer("dim", -1);
  const Expr half = floorDiv(x.size(d), 2);
  const Tensor xs[] = {g, slice(x, d, 0, half), slice(x, d, half, half)};
  const DType t = o.out().dtype;
  const Tensor first = pointwise(xs, t, t, [](std::span<const Val> v) { return v[0] * un(OpKind::Sigmoid, v[2]); });
  const Tensor second = pointwise(xs, t, t, [](std::span<const Val> v) {
    const Val s = un(OpKind::Sigmoid, v[2]);
    return (1.0 - s) * s * v[0] * v[1];
  });
  return {concat({first, second}, d)};
}

Tensors preluGradient(OpCall &o) {
  const Tensor xs[] = {o.t("grad_output"), o.t("self"), o.t("weight")};
  const DType t = o.out().dtype;
  return {pointwise(xs, t, t, [](std::span<const Val> v) { return where(v[1] > 0.0, v[0], v[2] * v[0]); }),
          pointwise(xs, t, t, [](std::span<const Val> v) { return where(v[1] > 0.0, zero(v[0]), v[1] * v[0]); })};
}

void addActivationGradients(OpTable &t) {
  t.add("gelu_backward.default", geluGradient);
  t.add("elu_backward.default", eluGradient);
  t.add("hardtanh_backward.default", [](OpCall &o) { return insideGradient(o, o.number("min_val", -1), o.number("max_val", 1), 1); });
  t.add("hardsigmoid_backward.default", [](OpCall &o) { return insideGradient(o, -3, 3, 1.0 / 6); });
  t.add("hardswish_backward.default", [](OpCall &o) {
    return each(o, 2, [](std::span<const Val> v) {
      return where(v[1] <= -3.0, zero(v[0]), where(v[1] < 3.0, v[0] * (v[1] / 3.0 + 0.5), v[0]));
    });
  });
  t.add("silu_backward.default", [](OpCall &o) {
    return each(o, 2, [](std::span<const Val> v) {
      const Val s = un(OpKind::Sigmoid, v[1]);
      return v[0] * s * (v[1] * (1.0 - s) + 1.0);
    });
  });
  t.add("mish_backward.default", [](OpCall &o) {
    return each(o, 2, [](std::span<const Val> v) {
      const Val x = v[1], soft = where(x > 20.0, x, un(OpKind::Log1p, un(OpKind::Exp, x))), t = un(OpKind::Tanh, soft);
      return v[0] * (t + x * un(OpKind::Sigmoid, x) * (1.0 - t * t));
    });
  });
  t.add("softplus_backward.default", [](OpCall &o) {
    const double beta = o.number("beta", 1), threshold = o.number("threshold", 20);
    return each(o, 2, [=](std::span<const Val> v) {
      const Val z = un(OpKind::Exp, v[1] * beta);
      return where(v[1] * beta > threshold, v[0], v[0] * z / (z + 1.0));
    });
  });
  t.add("leaky_relu_backward.default", [](OpCall &o) {
    const double slope = o.number("negative_slope", 0.01);
    return each(o, 2, [slope](std::span<const Val> v) { return where(v[1] > 0.0, v[0], v[0] * slope); });
  });
  t.add("log_sigmoid_backward.default", [](OpCall &o) {
    return each(o, 2, [](std::span<const Val> v) {
      const Val z = un(OpKind::Exp, -un(OpKind::Abs, v[1])), part = z / (z + 1.0);
      return v[0] * where(v[1] < 0.0, 1.0 - part, part);
    });
  });
  t.add("hardshrink_backward.default softshrink_backward.default", outsideGradient);
  t.add("logit_backward.default", logitGradient);
  t.add("rrelu_with_noise_backward.default", rreluGradient);
  t.add("glu_backward.default", gluGradient);
  t.add("_prelu_kernel_backward.default", preluGradient);
  t.add("fake_quantize_per_tensor_affine_cachemask_backward.default fake_quantize_per_channel_affine_cachemask_backward.default",
        [](OpCall &o) -> Tensors { return {mul(o.operand(0), cast(o.operand(1), o.out().dtype))}; });
}

/// Of a loss that is a number an element, then perhaps their mean: fn(element's gradient, input, target).
Tensors lossGradient(OpCall &o, const Each &fn) {
  const Tensor x = o.t("self");
  Tensors xs{o.t("grad_output"), x, o.t("target")};
  const bool mean = o.integer("reduction", 1) == 1;
  const DType t = o.out().dtype, acc = computeType(t);
  xs.push_back(mean ? exprAs(o.ctx, x.numel(), acc) : full(o.ctx, {}, acc, 1));
  return {broadcastTo(pointwise(xs, t, t, [fn](std::span<const Val> v) {
    const Val in[] = {v[0] / v[3], v[1], v[2]};
    return fn(in);
  }), x.sizes())};
}

Tensors crossEntropyGradient(OpCall &o) {
  const Tensors r = lossGradient(o, [](std::span<const Val> v) { return v[0] * (v[1] - v[2]) / vmax((1.0 - v[1]) * v[1], num(v[1], 1e-12)); });
  const Tensor weight = o.opt("weight");
  return {weight.valid() ? mul(r[0], cast(weight, r[0].dtype())) : r[0]};
}

/// Minus the target's weight at the target's class of each row, over the rows' weights where the loss is their mean.
Tensors classGradient(OpCall &o) {
  const Tensor g = o.t("grad_output"), x = o.t("self"), target = o.t("target"), weight = o.opt("weight"), total = o.t("total_weight");
  const int64_t reduction = o.integer("reduction", 1), ignore = o.integer("ignore_index", -100);
  const bool one = x.rank() == 1;
  const DType t = o.out().dtype, acc = computeType(t);
  return {Tensor::lazy(o.ctx, t, x.sizes(), [=](BodyBuilder &b, const Index &i) {
    Index row = i;
    const Expr c = i[one ? 0 : 1];
    if (one)
      row.clear();
    else
      row.erase(row.begin() + 1);
    const Val label = b.cast(target.at(b, one && target.rank() == 1 ? Index{Expr(0)} : row), DType::I64);
    Val v = -b.cast(g.at(b, reduction == 0 && g.rank() ? (one && g.rank() == 1 ? Index{Expr(0)} : row) : Index(g.sizes().size(), Expr(0))), acc);
    if (weight.valid()) v = v * b.cast(weight.at(b, {c}), acc);
    if (reduction == 1) v = v / b.cast(total.at(b, Index(total.sizes().size(), Expr(0))), acc);
    return where(eq(label, b.index(c)) && ne(label, static_cast<double>(ignore)), v, b.constant(acc, 0));
  })};
}

/// What a row's loss [N] changes by: the caller's gradient, over the count of classes, and of rows where the loss is their mean.
Tensor ofEachRow(OpCall &o, const Sizes &sizes, DType acc) {
  const Tensor g = cast(o.t("grad_output"), acc);
  const Expr count = o.integer("reduction", 1) == 1 ? sizes[0] * sizes[1] : sizes[1];
  const Tensor each = div(reshape(g, g.rank() == 0 ? Sizes{1} : Sizes{sizes[0]}), exprAs(o.ctx, count, acc));
  return broadcastTo(each, {sizes[0]});
}

/// Of max(0, margin - x[target] + x[j])^p, weighted by the target, for each other class j.
Tensors multiMarginGradient(OpCall &o) {
  const Tensor x0 = o.t("self"), w = o.opt("weight");
  const Tensor x = source(x0.rank() < 2 ? reshape(x0, {1, x0.numel()}) : x0);
  const Sizes sizes = x.sizes();
  const Expr classes = sizes[1];
  const Tensor y = reshape(o.t("target"), {sizes[0]});
  const double margin = o.number("margin", 1);
  const bool square = o.number("p", 1) == 2;
  const DType acc = computeType(x.dtype());
  const Tensor g = ofEachRow(o, sizes, acc);
  const Tensor others = Tensor::lazy(o.ctx, acc, sizes, [=](BodyBuilder &b, const Index &i) {
    const Val label = b.cast(y.at(b, {i[0]}), DType::I64);
    const Expr at = b.indirect(label, classes, false, true);
    const Val z = x.at(b, i) - x.at(b, {i[0], at}) + margin;
    Val v = g.at(b, {i[0]});
    if (square) v = v * z * 2.0;
    if (w.valid()) v = v * b.cast(w.at(b, {at}), acc);
    return where(z > 0.0 && ne(label, b.index(i[1])), v, b.constant(acc, 0));
  });
  const Tensor all = sum(others, {1}, false, acc);
  return {reshape(Tensor::lazy(o.ctx, o.out().dtype, sizes, [=](BodyBuilder &b, const Index &i) {
    return where(eq(b.cast(y.at(b, {i[0]}), DType::I64), b.index(i[1])), -all.at(b, {i[0]}), others.at(b, i));
  }), o.out().sizes)};
}

/// Of max(0, 1 - x[target] + x[j]) for each target of a row, which end at the first -1, and each class j that is none.
Tensors multilabelMarginGradient(OpCall &o) {
  const Tensor x0 = o.t("self");
  const Tensor x = source(x0.rank() < 2 ? reshape(x0, {1, x0.numel()}) : x0);
  const Sizes sizes = x.sizes();
  const Expr classes = sizes[1];
  const Tensor y = cast(reshape(o.t("target"), sizes), DType::I64), none = cast(reshape(o.t("is_target"), sizes), DType::Bool);
  const DType acc = computeType(x.dtype());
  const Tensor g = ofEachRow(o, sizes, acc);
  const Tensor least = o.ctx.scan(loops::ScanKind::Min, DType::I64, sizes, 1, false, [y](BodyBuilder &b, const Index &i) { return y.at(b, i); });
  // Whether target k of a row is to be lifted above class j: how often is counted both ways.
  const auto lifts = [=](BodyBuilder &b, Expr row, Expr k, Expr j) {
    return b.masked(
        least.at(b, {row, k}) >= 0.0 && !none.at(b, {row, j}),
        [&] { return b.cast(1.0 - x.at(b, {row, b.indirect(y.at(b, {row, k}), classes, false, true)}) + x.at(b, {row, j}) > 0.0, acc); },
        b.constant(acc, 0));
  };
  const Tensor down = o.ctx.reduce(loops::ReduceKind::Sum, acc, sizes, {classes}, [=](BodyBuilder &b, const Index &i, const Index &r) { return lifts(b, i[0], r[0], i[1]); })[0];
  const Tensor ups = o.ctx.reduce(loops::ReduceKind::Sum, acc, sizes, {classes}, [=](BodyBuilder &b, const Index &i, const Index &r) { return lifts(b, i[0], i[1], r[0]); })[0];
  const Tensor up = o.ctx.reduce(loops::ReduceKind::Sum, acc, sizes, {classes}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    return where(least.at(b, {i[0], r[0]}) >= 0.0 && eq(y.at(b, {i[0], r[0]}), b.index(i[1])), ups.at(b, {i[0], r[0]}), b.constant(acc, 0));
  })[0];
  return {reshape(Tensor::lazy(o.ctx, o.out().dtype, sizes, [=](BodyBuilder &b, const Index &i) { return (down.at(b, i) - up.at(b, i)) * g.at(b, {i[0]}); }), o.out().sizes)};
}

void addLossGradients(OpTable &t) {
  t.add("mse_loss_backward.default", [](OpCall &o) { return lossGradient(o, [](std::span<const Val> v) { return (v[1] - v[2]) * 2.0 * v[0]; }); });
  t.add("smooth_l1_loss_backward.default", [](OpCall &o) {
    const double beta = o.number("beta", 1);
    return lossGradient(o, [beta](std::span<const Val> v) {
      const Val d = v[1] - v[2], sign = where(d > 0.0, num(d, 1), where(d < 0.0, num(d, -1), num(d, 0)));
      return beta == 0 ? v[0] * sign : where(un(OpKind::Abs, d) < beta, v[0] * d / beta, v[0] * sign);
    });
  });
  t.add("huber_loss_backward.default", [](OpCall &o) {
    const double delta = o.number("delta", 1);
    return lossGradient(o, [delta](std::span<const Val> v) {
      const Val d = v[1] - v[2];
      return v[0] * vmin(vmax(d, num(d, -delta)), num(d, delta));
    });
  });
  t.add("soft_margin_loss_backward.default", [](OpCall &o) {
    return lossGradient(o, [](std::span<const Val> v) {
      const Val z = un(OpKind::Exp, -(v[2] * v[1]));
      return -(v[2] * v[0] * z) / (z + 1.0);
    });
  });
  t.add("binary_cross_entropy_backward.default", crossEntropyGradient);
  t.add("multi_margin_loss_backward.default", multiMarginGradient);
  t.add("multilabel_margin_loss_backward.default", multilabelMarginGradient);
  t.add("nll_loss_backward.default nll_loss2d_backward.default", classGradient);
}

} // namespace

void addDerivatives(OpTable &t) {
  addActivationGradients(t);
  addLossGradients(t);
}

} // namespace neso::lower
