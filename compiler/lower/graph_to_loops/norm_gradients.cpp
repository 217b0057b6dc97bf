// Gradients of normalisations and of attention, as graphs of training hold them.
#include "lower/graph_to_loops/attention.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

namespace {

/// Which of the gradients are asked for.
bool asked(OpCall &o, size_t k) {
  const graph::Argument *mask = o.node.arg("output_mask");
  const auto *flags = mask ? std::get_if<std::vector<bool>>(mask) : nullptr;
  return !flags || k >= flags->size() || (*flags)[k];
}

/// What a normalisation y = x̂ · w + b, x̂ = (x − mean) · rstd, is given: all broadcast against x. mean may be invalid: it is not
/// subtracted. w may be invalid: 1.
struct Norm {
  Tensor x, mean, rstd, w;
  /// Dims over which the statistics were taken.
  Dims over;
  DType acc() const { return computeType(x.dtype()); }
  Tensor normalised() const {
    Tensors xs{x, rstd};
    if (mean.valid()) xs.push_back(mean);
    return pointwise(xs, acc(), acc(), [](std::span<const Val> v) { return (v.size() > 2 ? v[0] - v[2] : v[0]) * v[1]; });
  }
  /// The gradient of x, where the statistics depend on it.
  Tensor ofInput(const Tensor &dy, DType out) const {
    const Tensor g = w.valid() ? mul(cast(dy, acc()), cast(w, acc())) : cast(dy, acc()), xhat = normalised();
    Tensors xs{g, xhat, rstd, lower::mean(mul(g, xhat), over, true, acc())};
    if (mean.valid()) xs.push_back(lower::mean(g, over, true, acc()));
    return pointwise(xs, acc(), out, [](std::span<const Val> v) {
      const Val rest = v[0] - v[1] * v[3];
      return (v.size() > 4 ? rest - v[4] : rest) * v[2];
    });
  }
};

/// The sum over all dims but those in `keep`, of the sizes given.
Tensor sumTo(const Tensor &x, const Dims &keep, const Sizes &sizes, DType out) {
  Dims over;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (std::find(keep.begin(), keep.end(), d) == keep.end()) over.push_back(d);
  return reshape(over.empty() ? cast(x, out) : sum(x, over, false, out), sizes);
}

Dims range(int64_t first, int64_t end) {
  Dims out;
  for (int64_t d = first; d < end; ++d) out.push_back(d);
  return out;
}

/// Layer norm, and RMS norm, which subtracts no mean.
Tensors layerGradient(OpCall &o) {
  const Tensor dy = o.t("grad_out"), x = o.t("input"), w = o.opt("weight");
  const Sizes shape = o.exprs("normalized_shape");
  const Dims inner = range(x.rank() - static_cast<int64_t>(shape.size()), x.rank());
  const Norm norm{x, o.opt("mean"), o.t("rstd"), w, inner};
  Tensors out(o.outCount());
  if (asked(o, 0)) out[0] = norm.ofInput(dy, x.dtype());
  if (asked(o, 1) && w.valid()) out[1] = sumTo(mul(cast(dy, norm.acc()), norm.normalised()), inner, shape, w.dtype());
  if (out.size() > 2 && asked(o, 2)) out[2] = sumTo(cast(dy, norm.acc()), inner, shape, o.out(2).dtype);
  return out;
}

Tensors groupGradient(OpCall &o) {
  const Tensor dy0 = o.t("grad_out"), x0 = o.t("input"), w = o.opt("weight");
  const Expr groups = o.expr("group"), channels = x0.sizes()[1];
  Sizes sizes{x0.sizes()[0], groups, floorDiv(channels, groups)};
  sizes.insert(sizes.end(), x0.sizes().begin() + 2, x0.sizes().end());
  Sizes each(sizes.size(), Expr(1)), weights = each;
  each[0] = sizes[0], each[1] = weights[1] = groups, weights[2] = sizes[2];
  const Tensor dy = reshape(dy0, sizes), x = reshape(x0, sizes);
  const Norm norm{x, reshape(o.t("mean"), each), reshape(o.t("rstd"), each), w.valid() ? reshape(w, weights) : w, range(2, x.rank())};
  Tensors out(3);
  if (asked(o, 0)) out[0] = reshape(norm.ofInput(dy, x.dtype()), x0.sizes()).withOrder(x0.order());
  if (asked(o, 1)) out[1] = sumTo(mul(cast(dy, norm.acc()), norm.normalised()), {1, 2}, {channels}, o.out(1).dtype);
  if (asked(o, 2)) out[2] = sumTo(cast(dy, norm.acc()), {1, 2}, {channels}, o.out(2).dtype);
  return out;
}

/// Outside of training the statistics are given, and do not depend on the input.
Tensors batchGradient(OpCall &o) {
  const bool native = o.node.target == "aten.native_batch_norm_backward.default";
  const Tensor dy = o.t("grad_out"), x = o.t("input"), w = o.opt("weight");
  const bool train = o.flag(native ? "train" : "update");
  const double eps = o.number("eps", 1e-5);
  const DType acc = computeType(x.dtype());
  Sizes each(x.sizes().size(), Expr(1));
  each[1] = x.sizes()[1];
  const Tensor mean = train ? o.opt("save_mean") : o.opt("running_mean");
  Tensor rstd = train ? o.opt(native ? "save_invstd" : "save_var") : o.opt("running_var");
  if (!mean.valid() || !rstd.valid()) return o.fail("the statistics are missing");
  if (!train) {
    const Tensor xs[] = {rstd};
    rstd = pointwise(xs, acc, acc, [eps](std::span<const Val> v) { return un(OpKind::Rsqrt, v[0] + eps); });
  }
  Dims over{0};
  for (int64_t d = 2; d < x.rank(); ++d) over.push_back(d);
  const Norm norm{x, reshape(mean, each), reshape(rstd, each), w.valid() ? reshape(w, each) : w, over};
  Tensors out(3);
  if (asked(o, 0)) {
    const Tensor scale = w.valid() ? mul(cast(norm.w, acc), cast(norm.rstd, acc)) : cast(norm.rstd, acc);
    out[0] = train ? norm.ofInput(dy, x.dtype()) : cast(mul(cast(dy, acc), scale), x.dtype());
  }
  if (asked(o, 1)) out[1] = sumTo(mul(cast(dy, acc), norm.normalised()), {1}, {x.sizes()[1]}, o.out(1).dtype);
  if (asked(o, 2)) out[2] = sumTo(cast(dy, acc), {1}, {x.sizes()[1]}, o.out(2).dtype);
  return out;
}

/// w = v · g / ‖v‖, a norm for each index of one dim.
Tensors weightNormGradient(OpCall &o) {
  const Tensor dw = o.t("grad_w"), v = o.t("saved_v"), g = o.t("saved_g"), norms = o.t("saved_norms");
  const DType acc = computeType(v.dtype());
  int64_t keep = o.integer("dim", 0);
  if (keep < 0) keep += v.rank();
  Dims over;
  for (int64_t d = 0; d < v.rank(); ++d)
    if (d != keep) over.push_back(d);
  const Tensor product = mul(cast(dw, acc), cast(v, acc)), along = over.empty() ? product : sum(product, over, true, acc);
  const Tensor xs[] = {dw, v, g, norms, along}, gs[] = {along, norms};
  return {pointwise(xs, acc, v.dtype(), [](std::span<const Val> p) { return p[2] / p[3] * (p[0] - p[1] * (p[4] / (p[3] * p[3]))); }),
          pointwise(gs, acc, g.dtype(), [](std::span<const Val> p) { return p[0] / p[1]; })};
}

/// softmax(q kᵀ · scale + mask) v. The probabilities are computed anew: what the forward call kept of them lies differently on each device.
///
/// Heads of queries that share a head of keys stand one below the other: [batch, heads of keys, heads of queries each · L, E]. Sums over the rows
/// then are sums over those heads too.
Tensors attentionGradient(OpCall &o) {
  const bool efficient = o.node.target.find("efficient") != std::string::npos;
  const Tensor k = o.t("key"), v = o.t("value"), query = o.t("query");
  const Expr length = query.size(-2);
  Sizes rows = query.sizes();
  const bool share = rows.size() == 4 && !o.ctx.equal(rows[1], k.size(1));
  if (share) rows[2] = floorDiv(rows[1], k.size(1)) * length, rows[1] = k.size(1);
  const auto below = [&](const Tensor &x) {
    if (!share) return x;
    Sizes sizes = rows;
    sizes[3] = x.size(-1);
    return reshape(x, sizes);
  };
  const Tensor dy = below(o.t(efficient ? "grad_out_" : "grad_out")), q = below(query), y = below(o.t("out"));
  Tensor mask = o.opt(efficient ? "attn_bias" : "attn_mask");
  if (share && mask.valid()) mask = below(broadcastTo(mask, {query.size(0), query.size(1), length, k.size(-2)}));
  if (o.number("dropout_p", 0) != 0) return o.fail("what dropout left out is not known");
  if (efficient) {
    const auto *wanted = std::get_if<std::vector<bool>>(o.node.arg("grad_input_mask"));
    if (wanted && wanted->size() > 3 && (*wanted)[3] && mask.valid()) return o.fail("the gradient of the mask is not computed");
  }
  const DType t = q.dtype(), acc = computeType(t);
  const Tensor scale = o.has("scale") ? full(o.ctx, {}, acc, o.number("scale")) : unary(exprAs(o.ctx, q.size(-1), acc), OpKind::Rsqrt);
  Tensor scores = mul(matmul2(q, transpose(k, -2, -1), acc), scale);
  const DType own = mask.valid() ? mask.dtype() : acc;
  if (mask.valid() && own == DType::Bool) scores = where(mask, scores, full(o.ctx, {}, acc, -HUGE_VAL));
  if (mask.valid() && own != DType::Bool) scores = add(scores, cast(mask, acc));
  if (o.flag("is_causal")) {
    const Tensor from = scores;
    scores = Tensor::lazy(o.ctx, acc, from.sizes(), [from, acc, share, length](BodyBuilder &b, const Index &i) {
      const size_t n = i.size();
      const Expr row = share ? mod(i[n - 2], length) : i[n - 2];
      return where(b.compare(OpKind::Le, i[n - 1], row), from.at(b, i), b.constant(acc, -HUGE_VAL));
    });
  }
  const Tensor p = zeroWithoutKeys(softmax(scores, -1, acc, false), scores).reused();
  const Tensor dp = matmul2(cast(dy, acc), transpose(cast(v, acc), -2, -1), acc);
  const Tensor row = sum(mul(cast(dy, acc), cast(y, acc)), {-1}, true, acc);
  const Tensor ds = mul(mul(p, sub(dp, row)), scale).reused();
  return {reshape(matmul2(ds, cast(k, acc), t), query.sizes()), matmul2(transpose(ds, -2, -1), cast(q, acc), t), matmul2(transpose(p, -2, -1), cast(dy, acc), t), Tensor()};
}

} // namespace

void addNormGradients(OpTable &t) {
  t.add("native_layer_norm_backward.default _fused_rms_norm_backward.default", layerGradient);
  t.add("native_group_norm_backward.default", groupGradient);
  t.add("native_batch_norm_backward.default batch_norm_backward.default", batchGradient);
  t.add("_weight_norm_interface_backward.default", weightNormGradient);
  t.add("_scaled_dot_product_flash_attention_for_cpu_backward.default _scaled_dot_product_flash_attention_backward.default "
        "_scaled_dot_product_efficient_attention_backward.default",
        attentionGradient);
}

} // namespace neso::lower
