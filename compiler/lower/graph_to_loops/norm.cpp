// Normalisations: batch, layer, group, instance, RMS, local response.
#include <cmath>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

/// A [C] vector as a tensor that broadcasts against x [N, C, ...].
static Tensor perChannel(const Tensor &v, const Tensor &x) {
  Sizes s(x.sizes().size(), Expr(1));
  s[1] = x.sizes()[1];
  return reshape(v, s);
}

/// (x - mean) * rsqrt(var + eps) * w + b, in the compute type, rounded once. All broadcast; w and b may be invalid.
static Tensor normalize(const Tensor &x, const Tensor &mean, const Tensor &rstd, const Tensor &w, const Tensor &b,
                        DType out) {
  Tensors xs{x, mean, rstd};
  if (w.valid()) xs.push_back(w);
  if (b.valid()) xs.push_back(b);
  DType acc = computeType(out);
  bool hasW = w.valid(), hasB = b.valid();
  return pointwise(xs, acc, out, [hasW, hasB](std::span<const Val> v) {
    Val r = (v[0] - v[1]) * v[2];
    size_t k = 3;
    if (hasW) r = r * v[k++];
    if (hasB) r = r + v[k];
    return r;
  });
}

static Tensor rstdOf(const Tensor &m2, Expr count, double eps) {
  Tensor xs[] = {m2, exprAs(m2.ctx(), count, m2.dtype())};
  // Of a size that is known at run time only there is one division for all rows. A mean is divided in each: of equal numbers it must be
  // that number, while here one rounding more changes nothing.
  const bool fixed = count.isConst();
  return pointwise(xs, m2.dtype(), m2.dtype(), [eps, fixed](std::span<const Val> v) {
    return un(OpKind::Rsqrt, (fixed ? v[0] / v[1] : v[0] * (num(v[1], 1) / v[1])) + eps);
  });
}

static Tensor rstdOfVar(const Tensor &var, double eps) {
  DType acc = computeType(var.dtype());
  Tensor xs[] = {var};
  return pointwise(xs, acc, acc, [eps](std::span<const Val> v) { return un(OpKind::Rsqrt, v[0] + eps); });
}

static Dims trailing(const Tensor &x, size_t n) {
  Dims dims;
  for (size_t k = x.sizes().size() - n; k < x.sizes().size(); ++k) dims.push_back(static_cast<int64_t>(k));
  return dims;
}

/// The normalised rows, their means and reciprocal deviations.
static Tensors normalisedRows(const Tensor &x, size_t dims, const Tensor &w, const Tensor &b, double eps) {
  x.reused();
  MeanVar mv = meanVar(x, trailing(x, dims));
  // The reciprocal deviation is needed by every element of the row: computed once a row.
  Tensor rstd = rstdOf(mv.m2, mv.count, eps).realize();
  return {normalize(x, mv.mean, rstd, w, b, x.dtype()), mv.mean, rstd};
}

Tensor layerNorm(const Tensor &x, const Tensor &w, const Tensor &b, double eps) { return normalisedRows(x, 1, w, b, eps)[0]; }

static Tensors layerNormOp(OpCall &o) {
  Tensors y = normalisedRows(o.t("input"), o.exprs("normalized_shape").size(), o.opt("weight"), o.opt("bias"), o.number("eps", 1e-5));
  if (o.outCount() < 3) return {y[0]};
  return {y[0], cast(y[1], o.out(1).dtype), cast(y[2], o.out(2).dtype)};
}

static Tensors rmsNorm(OpCall &o) {
  Tensor x = o.t("input"), w = o.opt("weight");
  Dims dims = trailing(x, o.exprs("normalized_shape").size());
  double eps = o.has("eps")                           ? o.number("eps")
               : computeType(toReal(x.dtype())) == DType::F64 ? 2.220446049250313e-16
                                                      : 1.1920928955078125e-07;
  x.reused();
  if (x.isComplex()) {
    // ATen squares complex numbers as they are, and takes a complex root.
    const Tensor root = unary(add(mean(mul(x, x), dims, true, x.dtype()), scalarFloat(o.ctx, eps)), OpKind::Rsqrt).realize();
    const Tensor y = mul(x, root);
    return {cast(w.valid() ? mul(y, w) : y, o.out().dtype), root};
  }
  DType acc = computeType(x.dtype());
  Tensor xs[] = {x};
  Tensor sq = pointwise(xs, acc, acc, [](std::span<const Val> v) { return v[0] * v[0]; });
  Tensor s = reduceDims(loops::ReduceKind::Sum, sq, dims, true, acc);
  Tensor rstd = rstdOf(s, countOf(x, dims), eps).realize();
  Tensors all{x, rstd};
  if (w.valid()) all.push_back(w);
  DType t = o.out().dtype;
  bool hasW = w.valid();
  Tensor y = pointwise(all, acc, t, [hasW](std::span<const Val> v) {
    Val r = v[0] * v[1];
    return hasW ? r * v[2] : r;
  });
  if (o.outCount() < 2) return {y};
  return {y, cast(rstd, o.out(1).dtype)};
}

static Tensor groupNormOf(OpCall &o, const Tensor &x, Expr groups, double eps, const Tensor &w, const Tensor &b,
                          Tensor *mean, Tensor *rstd) {
  Sizes g{x.sizes()[0], groups, floorDiv(x.sizes()[1], groups)};
  for (size_t d = 2; d < x.sizes().size(); ++d) g.push_back(x.sizes()[d]);
  x.reused();
  Tensor y = reshape(x, g);
  Dims dims;
  for (int64_t d = 2; d < y.rank(); ++d) dims.push_back(d);
  MeanVar mv = meanVar(y, dims);
  Tensor r = rstdOf(mv.m2, mv.count, eps).realize();
  Sizes p(g.size(), Expr(1));
  p[1] = g[1];
  p[2] = g[2];
  Tensor wg = w.valid() ? reshape(w, p) : w, bg = b.valid() ? reshape(b, p) : b;
  Tensor out = reshape(normalize(y, mv.mean, r, wg, bg, x.dtype()), x.sizes());
  if (mean) *mean = reshape(mv.mean, {x.sizes()[0], groups});
  if (rstd) *rstd = reshape(r, {x.sizes()[0], groups});
  (void)o;
  return out.withOrder(x.order());
}

static Tensors groupNorm(OpCall &o) {
  Tensor x = o.t("input");
  bool native = o.node.target == "aten.native_group_norm.default";
  Expr groups = o.expr(native ? "group" : "num_groups");
  Tensor mean, rstd;
  Tensor y = groupNormOf(o, x, groups, o.number("eps", 1e-5), o.opt("weight"), o.opt("bias"), &mean, &rstd);
  if (!native) return {y};
  return {y, cast(mean, o.out(1).dtype), cast(rstd, o.out(2).dtype)};
}

/// The affine form with given statistics: scale and shift are per channel, so that a convolution can absorb them.
static Tensor batchNormEval(const Tensor &x, const Tensor &mean, const Tensor &var, const Tensor &w, const Tensor &b,
                            double eps) {
  DType acc = computeType(x.dtype());
  Tensor scale = rstdOfVar(var, eps);
  if (w.valid()) scale = mul(scale, cast(w, acc));
  Tensor shift = neg(mul(cast(mean, acc), scale));
  if (b.valid()) shift = add(shift, cast(b, acc));
  scale = x.ctx().fold(scale);
  shift = x.ctx().fold(shift);
  Tensor xs[] = {x, perChannel(scale, x), perChannel(shift, x)};
  return pointwise(xs, acc, x.dtype(), [](std::span<const Val> v) { return v[0] * v[1] + v[2]; });
}

/// Batch statistics; also the new running statistics, in `stats`, which may be wider than the old ones.
static Tensors batchNormTrain(OpCall &o, const Tensor &x, const Tensor &w, const Tensor &b, const Tensor &rm,
                              const Tensor &rv, DType stats, double eps, double momentum, Tensor *saveMean,
                              Tensor *saveRstd) {
  Dims dims{0};
  for (int64_t d = 2; d < x.rank(); ++d) dims.push_back(d);
  x.reused();
  MeanVar mv = meanVar(x, dims);
  Tensor rstd = rstdOf(mv.m2, mv.count, eps).realize();
  Tensor y = normalize(x, mv.mean, rstd, w.valid() ? perChannel(w, x) : w, b.valid() ? perChannel(b, x) : b, x.dtype());
  Sizes c{x.sizes()[1]};
  if (saveMean) *saveMean = reshape(mv.mean, c);
  if (saveRstd) *saveRstd = reshape(rstd, c);
  Tensors out{y};
  if (rm.valid()) {
    Tensor ms[] = {rm, reshape(mv.mean, c)};
    DType acc = computeType(rm.dtype());
    out.push_back(pointwise(ms, acc, stats,
                            [momentum](std::span<const Val> v) { return v[0] * (1 - momentum) + v[1] * momentum; }));
    Tensor vs[] = {rv, reshape(mv.m2, c), exprAs(o.ctx, mv.count - 1, acc)};
    out.push_back(pointwise(vs, acc, stats, [momentum](std::span<const Val> v) {
      return v[0] * (1 - momentum) + v[1] / v[2] * momentum;
    }));
  }
  return out;
}

static Tensors batchNorm(OpCall &o) {
  const std::string &n = o.node.target;
  Tensor x = o.t("input"), w = o.opt("weight"), b = o.opt("bias"), rm = o.opt("running_mean"),
         rv = o.opt("running_var");
  if (x.rank() < 2) {
    if (x.rank() == 0 || !x.size(0).isConst(0)) return o.fail("the input has no channel dimension");
    // PyTorch lets a vector without elements pass, and so are all results.
    Tensors nothing;
    for (size_t k = 0; k < o.outCount(); ++k) nothing.push_back(full(o.ctx, o.out(k).sizes, o.out(k).dtype, 0));
    return nothing;
  }
  bool noStats = n == "aten._native_batch_norm_legit.no_stats";
  bool noTraining = n == "aten._native_batch_norm_legit_no_training.default" || n == "aten._batch_norm_no_update.default";
  bool withUpdate = n == "aten._batch_norm_with_update_functional.default";
  bool training = noStats || withUpdate || (!noTraining && o.flag("training"));
  double eps = o.number("eps", 1e-5), momentum = o.number("momentum", 0.1);
  if (!training) {
    if (!rm.valid() || !rv.valid()) return o.fail("evaluation needs running statistics");
    Tensor y = batchNormEval(x, rm, rv, w, b, eps);
    if (o.outCount() < 2) return {y};
    if (n == "aten._batch_norm_no_update.default") rm = full(o.ctx, {Expr(0)}, o.out(3).dtype, 0); // what other devices keep for the gradient
    DType t = o.out(1).dtype;
    // ATen returns empty statistics on the CPU when it does not train.
    if (o.out(1).sizes.size() == 1 && o.out(1).sizes[0].isConst(0))
      return {y, full(o.ctx, {Expr(0)}, t, 0), full(o.ctx, {Expr(0)}, o.out(2).dtype, 0), rm, rv};
    return {y, cast(rm, t), cast(rstdOfVar(rv, eps), o.out(2).dtype), rm, rv};
  }
  Tensor mean, rstd;
  // Functional forms end with the new running statistics, which the model may say in another type than the old.
  bool updates = !noStats && rm.valid();
  DType stats = updates && o.outCount() > 3 ? o.out(o.outCount() - 1).dtype : updates ? rm.dtype() : DType::F32;
  Tensors r = batchNormTrain(o, x, w, b, noStats ? Tensor() : rm, rv, stats, eps, momentum, &mean, &rstd);
  if (o.outCount() < 2) return {r[0]};
  Tensors out{r[0], cast(mean, o.out(1).dtype), cast(rstd, o.out(2).dtype)};
  if (withUpdate) out.push_back(full(o.ctx, {Expr(0)}, o.out(3).dtype, 0)); // what other devices keep for the gradient
  if (r.size() > 1) out.push_back(r[1]), out.push_back(r[2]);
  return out;
}

static Tensors instanceNorm(OpCall &o) {
  Tensor x = o.t("input"), w = o.opt("weight"), b = o.opt("bias"), rm = o.opt("running_mean"),
         rv = o.opt("running_var");
  double eps = o.number("eps", 1e-5);
  if (!o.flag("use_input_stats", true)) return {batchNormEval(x, rm, rv, w, b, eps)};
  // Without further dimensions each element is an instance; no dimensions at all would mean all of them.
  if (x.rank() == 2) x = unsqueeze(x, 2);
  Dims dims;
  for (int64_t d = 2; d < x.rank(); ++d) dims.push_back(d);
  x.reused();
  MeanVar mv = meanVar(x, dims);
  Tensor rstd = rstdOf(mv.m2, mv.count, eps).realize();
  Tensor y = normalize(x, mv.mean, rstd, w.valid() ? perChannel(w, x) : w, b.valid() ? perChannel(b, x) : b, x.dtype());
  return {reshape(y, o.out().sizes)};
}

/// v times g over its norm along one dim.
static Tensors weightNorm(OpCall &o) {
  const Tensor v = o.t("v");
  Tensor g = o.t("g");
  const int64_t keep = o.integer("dim", 0);
  const DType acc = computeType(v.dtype());
  const Tensor n = normExceptDim(cast(v, acc), 2, keep, acc).realize();
  // ATen's kernel for the first and the last dim takes a number of g for each norm, however they lie. The operator in front of it computes what it has no
  // kernel for, other dims and f16, as it is written.
  const bool outermost = keep == 0 || keep == v.rank() - 1, half = v.dtype() == DType::F16 || g.dtype() == DType::F16;
  if (outermost && (!half || o.node.target == "aten._weight_norm_interface.default")) {
    if (!o.ctx.equal(g.numel(), n.numel())) return o.fail("its g has not one number for each of the " + n.numel().str() + " norms");
    g = reshape(g, n.sizes());
  }
  const Tensor xs[] = {v, g, n};
  const Tensor w = pointwise(xs, acc, v.dtype(), [](std::span<const Val> p) { return p[0] * (p[1] / p[2]); });
  if (o.outCount() < 2) return {w};
  return {w, cast(reshape(n, o.out(1).sizes), o.out(1).dtype)};
}

void addNorm(OpTable &t) {
  t.add("layer_norm.default native_layer_norm.default", layerNormOp);
  t.add("rms_norm.default _fused_rms_norm.default", rmsNorm);
  t.add("group_norm.default native_group_norm.default", groupNorm);
  t.add(
      "batch_norm.default native_batch_norm.default _native_batch_norm_legit.default _native_batch_norm_legit.no_stats "
      "_native_batch_norm_legit_no_training.default _native_batch_norm_legit_functional.default "
      "_batch_norm_with_update_functional.default _batch_norm_no_update.default "
      "cudnn_batch_norm.default",
      batchNorm);
  t.add("instance_norm.default", instanceNorm);
  t.add("renorm.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    int64_t keep = o.integer("dim");
    if (keep < 0) keep += x.rank();
    double maxnorm = o.number("maxnorm");
    Dims dims;
    for (int64_t d = 0; d < x.rank(); ++d)
      if (d != keep) dims.push_back(d);
    DType acc = computeType(x.dtype());
    Tensor n = vectorNorm(cast(x, acc), o.number("p", 2), dims, true, toReal(acc)).realize();
    if (x.isComplex())
      return {mul(x, map(n, [maxnorm](Val v) { return where(v > maxnorm, num(v, maxnorm) / (v + 1e-7), num(v, 1)); }))};
    Tensor xs[] = {x, n};
    return {pointwise(xs, acc, x.dtype(), [maxnorm](std::span<const Val> v) {
      return where(v[1] > maxnorm, v[0] * (num(v[1], maxnorm) / (v[1] + 1e-7)), v[0]);
    })};
  });
  t.add("_weight_norm.default _weight_norm_interface.default", weightNorm);
  t.onComplex(OnComplex::Own, "renorm rms_norm _fused_rms_norm");
}

} // namespace neso::lower
