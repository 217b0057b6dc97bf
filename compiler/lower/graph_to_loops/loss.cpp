// Losses and distances.
#include <cmath>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

/// Of a number but 0, 1 and 2 the exporter says that nothing is reduced, and these operators' kernels sum up or fail.
static bool reductionIsUnknown(OpCall &o) {
  const int64_t r = o.integer("reduction", 1);
  if (r < 0 || r > 2) o.fail("reduction is " + std::to_string(r) + ", none of 0 (none), 1 (mean) and 2 (sum)");
  return o.failed();
}

/// reduction: 1 mean, 2 sum, any other number none.
static Tensor reduced(OpCall &o, const Tensor &x, const char *arg = "reduction") {
  int64_t r = o.integer(arg, 1);
  if (r != 1 && r != 2) return x;
  if (r == 1) return mean(x, {}, false, x.dtype());
  return sum(x, {}, false, isFloat(x.dtype()) || isComplex(x.dtype()) ? x.dtype() : DType::I64);
}

/// A loss that is fn(input, target) elementwise.
static Tensors elementwise(OpCall &o, const Tensor &a, const Tensor &b, const std::function<Val(Val, Val)> &fn) {
  Tensor xs[] = {a, b};
  DType t = floatType(resultType(xs));
  return {reduced(o, pointwise(xs, t, t, [fn](std::span<const Val> v) { return fn(v[0], v[1]); }))};
}

/// -log-probability at the target's class, weighted; also the sum of the weights. logp: [N, C, …] or [C]; it is computed at the targets
/// alone.
static Tensors nll(OpCall &o, const Tensor &logp0, const Tensor &target0, const Tensor &weight, int64_t reduction,
                   int64_t ignore) {
  Tensor logp = logp0, target = target0;
  if (logp.rank() == 1) logp = unsqueeze(logp, 0), target = reshape(target, {1});
  Expr classes = logp.sizes()[1];
  DType acc = computeType(logp.dtype());
  target.reused();
  Sizes sizes = target.sizes();
  auto weightAt = [=](BodyBuilder &b, const Index &i) {
    Val t = b.cast(target.at(b, i), DType::I64), ok = ne(t, static_cast<double>(ignore));
    return b.masked(
        ok,
        [&] {
          return weight.valid() ? b.cast(weight.at(b, {b.indirect(t, classes, false, true)}), acc) : b.constant(acc, 1);
        },
        b.constant(acc, 0));
  };
  Tensor w = Tensor::lazy(o.ctx, acc, sizes, weightAt);
  Tensor l = Tensor::lazy(o.ctx, acc, sizes, [=](BodyBuilder &b, const Index &i) {
    Val t = b.cast(target.at(b, i), DType::I64), ok = ne(t, static_cast<double>(ignore));
    // An ignored row looks at class 0. Nothing but the index is under the mask, so that the loss of a row joins the
    // loop over its classes.
    Index j = i;
    b.masked(
        ok,
        [&] {
          j.insert(j.begin() + 1, b.indirect(t, classes, false, true));
          return b.constant(acc, 0);
        },
        b.constant(acc, 0));
    return where(ok, -(logp.at(b, j) * weightAt(b, i)), b.constant(acc, 0));
  });
  DType t = logp.dtype();
  if (reduction == 0) {
    Tensor y = cast(l, t);
    if (logp0.rank() == 1) y = reshape(y, {});
    return {y, full(o.ctx, {}, t, 0)};
  }
  // One number a row, where the row is at hand.
  l.realize();
  Tensor total = sum(w, {}, false, acc), s = sum(l, {}, false, acc);
  if (reduction == 1) s = div(s, total);
  return {cast(s, t), cast(total, t)};
}

static Tensors crossEntropyOf(OpCall &o, const Tensor &x, int64_t reduction) {
  Tensor target = o.t("target"), weight = o.opt("weight");
  int64_t ignore = o.integer("ignore_index", -100);
  double smooth = o.number("label_smoothing", 0);
  int64_t dim = x.rank() == 1 ? 0 : 1;
  DType t = x.dtype();
  Tensor logp = softmax(x, dim, t, true);
  // Hard targets look at one class of each row: the others' log-probabilities are never needed.
  const bool hard = !isFloat(target.dtype());
  if (!hard || smooth != 0) logp.reused();
  Expr classes = x.size(dim);
  Sizes ws(x.sizes().size(), Expr(1));
  ws[static_cast<size_t>(dim)] = classes;
  if (!hard) {
    // Probabilities as targets.
    Tensor p = target;
    if (smooth > 0) p = add(mulNumber(p, 1 - smooth), div(scalarFloat(o.ctx, smooth), scalarExpr(o.ctx, classes)));
    Tensor prod = mul(logp, p);
    if (weight.valid()) prod = mul(prod, reshape(weight, ws));
    Tensor l = neg(sum(prod, {dim}, false, t));
    if (reduction == 0) return {l};
    Tensor s = sum(l, {}, false, t);
    if (reduction == 2) return {s};
    return {cast(div(s, exprAs(o.ctx, floorDiv(x.numel(), classes), computeType(t))), t)};
  }
  if (smooth == 0) return {nll(o, logp, target, weight, reduction, ignore)[0]};
  Tensors hit = nll(o, logp, target, weight, reduction, ignore);
  Tensor each = weight.valid() ? neg(mul(logp, reshape(weight, ws))) : neg(logp);
  Tensor soft = sum(each, {dim}, false, t);
  Tensor keep = binary(OpKind::Ne, target, scalarInt(o.ctx, ignore));
  soft = where(keep, soft, full(o.ctx, {}, t, 0));
  if (reduction != 0) {
    soft = sum(soft, {}, false, t);
    if (reduction == 1) {
      Tensor count = weight.valid() ? hit[1] : sum(cast(keep, t), {}, false, t);
      soft = div(soft, count);
    }
  }
  Tensor xs[] = {hit[0], soft, exprAs(o.ctx, classes, DType::F32)};
  return {pointwise(
      xs, t, t, [smooth](std::span<const Val> v) { return v[0] * (1 - smooth) + v[1] * (num(v[2], smooth) / v[2]); })};
}

/// What a cross entropy that is summed up, or averaged, changes by with each of the logits [N, C].
static Tensor gradientOfLogits(OpCall &o, const Tensor &logits, bool averages) {
  const Tensor target = o.t("target"), given = o.opt("weight"), p = softmax(logits, 1, logits.dtype(), false);
  const DType t = logits.dtype();
  const Tensor weight = given.valid() ? cast(given, t) : given;
  if (isFloat(target.dtype())) {
    Tensor wanted = cast(target, t);
    if (weight.valid()) wanted = mul(wanted, unsqueeze(weight, 0));
    const Tensor g = sub(mul(p, sum(wanted, {1}, true, t)), wanted);
    return averages ? div(g, exprAs(o.ctx, logits.size(0), t)) : g;
  }
  const Tensor keep = binary(OpKind::Ne, target, scalarInt(o.ctx, o.integer("ignore_index", -100)));
  const Tensor rows = where(keep, target, fullInt(o.ctx, {}, target.dtype(), 0)), none = full(o.ctx, {}, t, 0);
  Tensor each = where(keep, weight.valid() ? indexSelect(weight, 0, rows) : full(o.ctx, {}, t, 1), none);
  if (averages) each = div(each, sum(each, {}, false, t));
  const Tensor hit = Tensor::lazy(o.ctx, t, logits.sizes(), [rows, t](BodyBuilder &b, const Index &i) {
    return b.cast(eq(b.cast(rows.at(b, {i[0]}), DType::I64), b.index(i[1])), computeType(t));
  });
  return mul(sub(p, hit), unsqueeze(each, 1)).realize();
}

/// The cross entropy of a linear layer's outputs, and its gradients where they are kept for the way back.
static Tensors linearCrossEntropy(OpCall &o) {
  std::string mode = o.text("reduction", "none");
  // Logits in the accumulator's type: they are never rounded to that of the weights.
  DType acc = o.dtype("acc_dtype").value_or(o.t("input").dtype());
  auto widened = [&](const Tensor &x) { return x.valid() ? cast(x, acc) : x; };
  Tensor logits = linear(widened(o.t("input")), widened(o.t("linear_weight")), widened(o.opt("linear_bias")));
  Tensors out{cast(crossEntropyOf(o, logits, mode == "mean" ? 1 : mode == "sum" ? 2 : 0)[0], o.out().dtype)};
  const char *flags[] = {"", "compute_input_grad", "compute_linear_weight_grad", "compute_linear_bias_grad"};
  Tensor g;
  for (size_t k = 1; k < o.outCount(); ++k) {
    const DType t = o.out(k).dtype;
    if (!o.flag(flags[k])) {
      out.push_back(full(o.ctx, o.out(k).sizes, t, 0));
      continue;
    }
    if (!g.valid()) g = gradientOfLogits(o, logits, mode == "mean");
    const Tensor of = k == 1   ? matmul(g, widened(o.t("linear_weight")))
                      : k == 2 ? matmul(transpose(g, 0, 1), widened(o.t("input")))
                               : sum(g, {0}, false, acc);
    out.push_back(cast(of, t));
  }
  return out;
}

/// Targets of a row end at the first -1. Every target class should beat every other class by 1.
static Tensors multilabelMargin(OpCall &o) {
  if (reductionIsUnknown(o)) return {};
  Tensor x = o.t("self"), y = o.t("target");
  bool one = x.rank() <= 1;
  while (x.rank() < 2) x = unsqueeze(x, 0);
  Sizes sizes = x.sizes();
  y = cast(reshape(y, sizes), DType::I64);
  x = source(x);
  Expr c = sizes[1];
  DType acc = computeType(x.dtype());
  Tensor least = o.ctx.scan(loops::ScanKind::Min, DType::I64, sizes, 1, false,
                            [y](BodyBuilder &b, const Index &i) { return y.at(b, i); });
  Tensor isTarget = o.ctx.reduce(loops::ReduceKind::Any, DType::Bool, sizes, {c},
                                 [=](BodyBuilder &b, const Index &i, const Index &j) {
                                   return least.at(b, {i[0], j[0]}) >= 0.0 && eq(y.at(b, {i[0], j[0]}), b.index(i[1]));
                                 })[0];
  Tensor s = o.ctx.reduce(
      loops::ReduceKind::Sum, acc, {sizes[0]}, {c, c}, [=](BodyBuilder &b, const Index &i, const Index &r) {
        return b.masked(
            least.at(b, {i[0], r[0]}) >= 0.0 && !isTarget.at(b, {i[0], r[1]}),
            [&] {
              Val z = 1.0 - x.at(b, {i[0], b.indirect(y.at(b, {i[0], r[0]}), c, false, true)}) + x.at(b, {i[0], r[1]});
              return vmax(z, num(z, 0));
            },
            b.constant(acc, 0));
      })[0];
  Tensor l = cast(div(s, exprAs(o.ctx, c, acc)), x.dtype());
  if (one && o.integer("reduction", 1) == 0) l = reshape(l, {});
  Tensors out{reduced(o, l)};
  if (o.outCount() > 1) out.push_back(reshape(cast(isTarget, o.out(1).dtype), o.out(1).sizes));
  return out;
}

static Tensor pairDistance(const Tensor &a, const Tensor &b, double p, double eps, bool keepdim) {
  Tensor d = addNumber(toFloat(sub(a, b)), eps);
  return vectorNorm(d, p, {-1}, keepdim, toReal(d.dtype()));
}

static Tensor cosine(const Tensor &a0, const Tensor &b0, int64_t dim, double eps) {
  Tensor xs[] = {a0, b0};
  DType t = floatType(resultType(xs));
  Sizes s = broadcastSizes(xs);
  Tensor a = broadcastTo(cast(a0, t), s), b = broadcastTo(cast(b0, t), s);
  DType acc = computeType(t);
  // PyTorch bounds the squares of the norms below, in the tensor's type: of f16 the usual eps is no bound then.
  if (t == DType::F16 && eps * eps < 0x1p-25) eps = 0;
  Tensor dot = sum(mul(cast(a, acc), cast(b, acc)), {dim}, false, acc);
  auto norm = [&](const Tensor &x) {
    Tensor n = vectorNorm(cast(x, acc), 2, {dim}, false, acc);
    return map(n, [eps](Val v) { return vmax(v, num(v, eps)); });
  };
  const Tensor similarity = cast(div(dot, mul(norm(a), norm(b))), t);
  // Over no elements it is a sum of nothing, even where nothing bounds the norms below.
  const Expr count = s.empty() ? Expr(1) : a.size(dim);
  if (similarity.ctx().facts.provablyLessEqual(1, count)) return similarity;
  return Tensor::lazy(similarity.ctx(), t, similarity.sizes(), [=](BodyBuilder &b, const Index &i) {
    return where(b.compare(OpKind::Eq, count, 0), 0.0, similarity.at(b, i));
  });
}

static Tensors cdistOp(OpCall &o) {
  Tensor a = o.t("x1"), b = o.t("x2");
  double p = o.number("p", 2);
  Sizes out = o.out().sizes;
  Sizes la(out.begin(), out.end() - 2), sa = la, sb = la;
  sa.push_back(a.size(-2)), sa.push_back(a.size(-1));
  sb.push_back(b.size(-2)), sb.push_back(b.size(-1));
  if (a.size(-1).isConst(0)) return {full(o.ctx, out, o.out().dtype, 0)};
  a = unsqueeze(broadcastTo(a, sa), -2);
  // Many distances are computed side by side, from a copy of b whose points lie side by side.
  const Facts &facts = o.ctx.facts;
  if (facts.provablyLessEqual(Expr(16), sa[sa.size() - 2]) && facts.provablyLessEqual(Expr(16), sb[sb.size() - 2])) {
    Sizes turned = b.sizes();
    std::swap(turned[turned.size() - 1], turned[turned.size() - 2]);
    Tensor copy = Tensor::lazy(o.ctx, b.dtype(), turned, [b](BodyBuilder &body, const Index &i) {
      Index at = i;
      std::swap(at[at.size() - 1], at[at.size() - 2]);
      return body.cast(b.at(body, at), computeType(b.dtype()));
    });
    copy.realize();
    b = transpose(copy, -1, -2);
  }
  b = unsqueeze(broadcastTo(b, sb), -3);
  return {vectorNorm(sub(a, b), p, {-1}, false, o.out().dtype)};
}

static Tensors tripletMargin(OpCall &o) {
  Tensor a = o.t("anchor"), p = o.t("positive"), n = o.t("negative");
  double norm = o.number("p", 2), eps = o.number("eps", 1e-6), margin = o.number("margin", 1);
  Tensor dp = pairDistance(a, p, norm, eps, false), dn = pairDistance(a, n, norm, eps, false);
  if (o.flag("swap")) dn = binary(OpKind::Min, dn, pairDistance(p, n, norm, eps, false));
  Tensor xs[] = {dp, dn};
  return {reduced(o, pointwise(xs, dp.dtype(), dp.dtype(), [margin](std::span<const Val> v) {
                    Val d = v[0] - v[1] + margin;
                    return vmax(d, num(d, 0));
                  }))};
}

static void addRegressionLosses(OpTable &t) {
  t.add("mse_loss.default", [](OpCall &o) {
    if (reductionIsUnknown(o)) return Tensors();
    return elementwise(o, o.t("self"), o.t("target"), [](Val a, Val b) {
      Val d = a - b;
      return d * d;
    });
  });
  t.add("l1_loss.default", [](OpCall &o) -> Tensors {
    if (const Tensor a = o.t("self"), b = o.t("target"); a.isComplex() || b.isComplex()) return {reduced(o, lengths(sub(a, b)))};
    Tensor xs[] = {o.t("self"), o.t("target")};
    const DType d = resultType(xs);
    return {reduced(o, pointwise(xs, d, d, [](std::span<const Val> v) { return un(OpKind::Abs, v[0] - v[1]); }))};
  });
  t.add("smooth_l1_loss.default", [](OpCall &o) {
    if (reductionIsUnknown(o)) return Tensors();
    double beta = o.number("beta", 1);
    return elementwise(o, o.t("self"), o.t("target"), [beta](Val a, Val b) {
      Val d = un(OpKind::Abs, a - b);
      return beta == 0 ? d : where(d < beta, d * 0.5 * d / beta, d - 0.5 * beta);
    });
  });
  t.add("huber_loss.default", [](OpCall &o) {
    if (reductionIsUnknown(o)) return Tensors();
    double delta = o.number("delta", 1);
    return elementwise(o, o.t("self"), o.t("target"), [delta](Val a, Val b) {
      Val d = un(OpKind::Abs, a - b);
      return where(d <= delta, d * d * 0.5, (d - 0.5 * delta) * delta);
    });
  });
  t.add("soft_margin_loss.default", [](OpCall &o) {
    if (reductionIsUnknown(o)) return Tensors();
    return elementwise(o, o.t("self"), o.t("target"),
                       [](Val a, Val b) { return un(OpKind::Log1p, un(OpKind::Exp, -(b * a))); });
  });
  t.add("kl_div.default", [](OpCall &o) -> Tensors {
    bool log = o.flag("log_target");
    return elementwise(o, o.t("self"), o.t("target"), [log](Val x, Val y) {
      if (log) return un(OpKind::Exp, y) * (y - x);
      Val r = y * (un(OpKind::Log, y) - x);
      return where(eq(y, 0.0), num(y, 0), where(y > 0.0, r, where(un(OpKind::IsNan, y), y, num(y, std::nan("")))));
    });
  });
  t.add("poisson_nll_loss.default", [](OpCall &o) -> Tensors {
    bool log = o.flag("log_input", true), fullTerm = o.flag("full");
    double eps = o.number("eps", 1e-8);
    return elementwise(o, o.t("input"), o.t("target"), [=](Val x, Val y) {
      Val l = log ? un(OpKind::Exp, x) - y * x : x - y * un(OpKind::Log, x + eps);
      if (fullTerm) {
        Val s = y * un(OpKind::Log, y) - y + un(OpKind::Log, y * (2 * M_PI)) * 0.5;
        l = l + where(y <= 1.0, num(y, 0), s);
      }
      return l;
    });
  });
}

static void addClassificationLosses(OpTable &t) {
  t.add("hinge_embedding_loss.default", [](OpCall &o) {
    double margin = o.number("margin", 1);
    // The target is asked for two values and says nothing of the type; the margin becomes one of the input's type, in which all is computed.
    Tensor x = o.t("self"), y = o.t("target");
    if (y.dtype() == DType::Bool) y = cast(y, DType::I64); // -1 is no bool
    const Tensor ys[] = {y};
    auto is = [&](double value) { return pointwise(ys, y.dtype(), DType::Bool, [value](std::span<const Val> v) { return eq(v[0], value); }); };
    Tensor xs[] = {x, is(1), is(-1)};
    const double m = isFloat(x.dtype()) ? margin : std::trunc(margin);
    return Tensors{reduced(o, pointwise(xs, x.dtype(), x.dtype(), [m](std::span<const Val> v) {
                             Val zero = num(v[0], 0);
                             return where(ne(v[1], 0.0), zero, vmax(num(v[0], m) - v[0], zero)) + where(ne(v[2], 0.0), zero, v[0]);
                           }))};
  });
  t.add("margin_ranking_loss.default", [](OpCall &o) -> Tensors {
    double margin = o.number("margin", 0);
    // Each step in the type of its operands: of integers they wrap.
    Tensor xs[] = {mul(neg(o.t("target")), sub(o.t("input1"), o.t("input2")))};
    DType d = floatType(xs[0].dtype());
    return {reduced(o, pointwise(xs, d, d, [margin](std::span<const Val> v) {
                      Val r = v[0] + margin;
                      return vmax(r, num(r, 0));
                    }))};
  });
  t.add("binary_cross_entropy.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self"), y = o.t("target"), w = o.opt("weight"), xs[] = {x, y};
    DType d = x.dtype();
    Tensor l = pointwise(xs, d, d, [](std::span<const Val> v) {
      auto logs = [](Val p) { return vmax(p, num(p, -100)); };
      return (v[1] - 1.0) * logs(un(OpKind::Log1p, -v[0])) - v[1] * logs(un(OpKind::Log, v[0]));
    });
    if (w.valid()) l = mul(l, w);
    return {reduced(o, l)};
  });
  t.add("binary_cross_entropy_with_logits.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self"), y = o.t("target"), w = o.opt("weight"), p = o.opt("pos_weight");
    DType d = x.dtype();
    Tensors xs{x, y};
    if (p.valid()) xs.push_back(p);
    Tensor l = pointwise(xs, d, d, [](std::span<const Val> v) {
      Val ls = vmin(v[0], num(v[0], 0)) - un(OpKind::Log1p, un(OpKind::Exp, -un(OpKind::Abs, v[0])));
      if (v.size() < 3) return (1.0 - v[1]) * v[0] - ls;
      Val lw = (v[2] - 1.0) * v[1] + 1.0;
      return (1.0 - v[1]) * v[0] - lw * ls;
    });
    if (w.valid()) l = mul(l, w);
    return {reduced(o, l)};
  });
  t.add("nll_loss.default nll_loss_nd.default nll_loss2d.default nll_loss_forward.default nll_loss2d_forward.default",
        [](OpCall &o) -> Tensors {
          if (reductionIsUnknown(o)) return {};
          Tensors r = nll(o, o.t("self"), o.t("target"), o.opt("weight"), o.integer("reduction", 1),
                          o.integer("ignore_index", -100));
          if (o.outCount() < 2) r.resize(1);
          return r;
        });
  t.add("cross_entropy_loss.default",
        [](OpCall &o) { return reductionIsUnknown(o) ? Tensors() : crossEntropyOf(o, o.t("self"), o.integer("reduction", 1)); });
  t.add("custom::torch_nn._linear_cross_entropy_batch_chunked.default "
        "custom::torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default",
        linearCrossEntropy);
  t.add("multilabel_margin_loss.default multilabel_margin_loss_forward.default", multilabelMargin);
}

static void addDistances(OpTable &t) {
  t.add("pairwise_distance.default", [](OpCall &o) -> Tensors {
    return {pairDistance(o.t("x1"), o.t("x2"), o.number("p", 2), o.number("eps", 1e-6), o.flag("keepdim"))};
  });
  t.add("cosine_similarity.default", [](OpCall &o) -> Tensors {
    // Which type tensors of different types give is the model's word: of a scalar tensor it is not what arithmetic would give.
    DType t = o.out().dtype;
    return {cosine(cast(o.t("x1"), t), cast(o.t("x2"), t), o.integer("dim", 1), o.number("eps", 1e-8))};
  });
  t.add("cosine_embedding_loss.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("input1"), b = o.t("input2"), y = o.t("target");
    double margin = o.number("margin", 0), eps = 1e-12;
    int64_t dim = a.rank() == 1 ? 0 : 1;
    DType d = floatType(a.dtype());
    Tensor af = cast(a, d), bf = cast(b, d);
    Tensor xs[] = {sum(mul(af, bf), {dim}, false, d), addNumber(sum(mul(af, af), {dim}, false, d), eps),
                   addNumber(sum(mul(bf, bf), {dim}, false, d), eps), y};
    return {reduced(o, pointwise(xs, d, d, [margin](std::span<const Val> v) {
                      Val c = v[0] / un(OpKind::Sqrt, v[1] * v[2]), zero = num(c, 0);
                      return where(eq(v[3], 1.0), 1.0 - c, zero) + where(eq(v[3], -1.0), vmax(c - margin, zero), zero);
                    }))};
  });
  t.add("triplet_margin_loss.default", tripletMargin);
  t.add("cdist.default _cdist_forward.default _euclidean_dist.default", cdistOp);
  t.add("dist.default", [](OpCall &o) -> Tensors {
    return {vectorNorm(sub(o.t("self"), o.t("other")), o.number("p", 2), {}, false, o.out().dtype)};
  });
  t.add("multi_margin_loss.default", [](OpCall &o) -> Tensors {
    if (reductionIsUnknown(o)) return {};
    Tensor x = o.t("self"), y = o.t("target"), w = o.opt("weight");
    bool one = x.rank() <= 1;
    while (x.rank() < 2) x = unsqueeze(x, 0);
    y = reshape(y, {x.sizes()[0]});
    double p = o.number("p", 1), margin = o.number("margin", 1);
    Expr c = x.sizes()[1];
    x = source(x);
    DType acc = computeType(x.dtype());
    Tensor s = o.ctx.reduce(loops::ReduceKind::Sum, acc, {x.sizes()[0]}, {c},
                            [=](BodyBuilder &b, const Index &i, const Index &r) {
                              Val t = b.cast(y.at(b, i), DType::I64);
                              Expr at = b.indirect(t, c, false, true);
                              Val z = x.at(b, {i[0], r[0]}) - x.at(b, {i[0], at}) + margin;
                              z = vmax(z, num(z, 0));
                              if (p == 2) z = z * z;
                              if (w.valid()) z = z * b.cast(w.at(b, {at}), acc);
                              return where(eq(t, b.index(r[0])), num(z, 0), z);
                            })[0];
    Tensor l = cast(div(s, exprAs(o.ctx, c, acc)), x.dtype());
    if (one && o.integer("reduction", 1) == 0) l = reshape(l, {});
    return {reduced(o, l)};
  });
}

void addLosses(OpTable &t) {
  addRegressionLosses(t);
  addClassificationLosses(t);
  addDistances(t);
  t.onComplex(OnComplex::Own, "l1_loss dist pairwise_distance triplet_margin_loss");
}

} // namespace neso::lower
