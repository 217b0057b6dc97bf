// Reduction operators.
#include <cmath>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

using loops::ReduceKind;

static Dims dimsOf(OpCall &o) { return o.ints("dim"); }

static Tensors sumOp(OpCall &o) { return {sum(o.t("self"), dimsOf(o), o.flag("keepdim"), o.out().dtype)}; }
static Tensors meanOp(OpCall &o) { return {mean(o.t("self"), dimsOf(o), o.flag("keepdim"), o.out().dtype)}; }

static Tensors prodOp(OpCall &o) {
  DType t = o.out().dtype;
  if (isComplex(t)) return {complexProduct(cast(o.t("self"), t), dimsOf(o), o.flag("keepdim"))};
  return {cast(reduceDims(ReduceKind::Prod, cast(o.t("self"), t), dimsOf(o), o.flag("keepdim"), computeType(t)), t)};
}

static Tensors anyAll(OpCall &o) {
  bool any = o.node.target.find("any") != std::string::npos;
  Tensor r = reduceDims(any ? ReduceKind::Any : ReduceKind::All, cast(o.t("self"), DType::Bool), dimsOf(o),
                        o.flag("keepdim"), DType::Bool);
  return {cast(r, o.out().dtype)};
}

/// Of no elements there is no greatest and no first.
static void demandSome(OpCall &o, const Tensor &x, const Dims &dims) {
  for (int64_t d = 0; d < x.rank(); ++d) {
    const bool reduced = dims.empty() || std::find(dims.begin(), dims.end(), d) != dims.end() || std::find(dims.begin(), dims.end(), d - x.rank()) != dims.end();
    const Expr n = x.size(d);
    if (reduced && !o.ctx.facts.provablyLessEqual(1, n)) o.ctx.demand(le(1, n), fmt::format("{}: a dimension without elements is reduced", o.node.target));
  }
}

template <bool Max> static Tensors extremeDim(OpCall &o) {
  Tensor x = o.t("self");
  demandSome(o, x, o.has("dim") ? Dims{o.integer("dim")} : Dims{});
  x.reused();
  if (!o.has("dim")) return {Max ? amax(x, {}, false) : amin(x, {}, false)};
  int64_t d = o.integer("dim");
  bool keep = o.flag("keepdim");
  return {Max ? amax(x, {d}, keep) : amin(x, {d}, keep), argExtreme(Max, x, d, keep)};
}
template <bool Max> static Tensors extremes(OpCall &o) {
  Tensor x = o.t("self");
  demandSome(o, x, dimsOf(o));
  return {Max ? amax(x, dimsOf(o), o.flag("keepdim")) : amin(x, dimsOf(o), o.flag("keepdim"))};
}
template <bool Max> static Tensors argOp(OpCall &o) {
  std::optional<int64_t> d;
  if (o.has("dim")) d = o.integer("dim");
  demandSome(o, o.t("self"), d ? Dims{*d} : Dims{});
  Tensor r = argExtreme(Max, o.t("self"), d, o.flag("keepdim"));
  return {reshape(r, o.out().sizes)};
}

/// var, std and the *_mean forms: `correction` is a number, or the flag `unbiased`.
static Tensors varOp(OpCall &o) {
  Tensor x = o.t("self");
  const std::string &n = o.node.target;
  double correction = 1;
  if (o.has("correction"))
    correction = o.number("correction");
  else if (o.has("unbiased"))
    correction = o.flag("unbiased") ? 1 : 0;
  Dims dims = dimsOf(o);
  bool keep = o.flag("keepdim");
  bool std = n.rfind("aten.std", 0) == 0, withMean = n.find("_mean") != std::string::npos;
  x.reused();
  MeanVar mv = meanVar(x.real(), dims);
  DType acc = computeType(toReal(x.dtype()));
  // The squared lengths of complex numbers are those of both parts.
  const MeanVar other = x.isComplex() ? meanVar(x.imag(), dims) : MeanVar();
  if (x.isComplex()) mv.m2 = add(mv.m2, other.m2), mv.mean = Tensor::complex(mv.mean, other.mean, x.dtype());
  Tensor count = exprAs(o.ctx, mv.count, acc);
  Tensor xs[] = {mv.m2, count};
  Tensor v = pointwise(xs, acc, acc, [correction, std](std::span<const Val> p) {
    Val r = p[0] / vmax(p[1] - correction, num(p[1], 0));
    return std ? un(OpKind::Sqrt, r) : r;
  });
  v = cast(v, toReal(x.dtype()));
  Tensor m = cast(mv.mean, x.dtype());
  if (mv.count.isConst(0)) {
    const Tensor nan = full(o.ctx, m.sizes(), toReal(x.dtype()), std::nan(""));
    m = x.isComplex() ? Tensor::complex(nan, nan, x.dtype()) : nan;
  }
  if (!keep) {
    v = reshape(v, o.out(0).sizes);
    if (withMean) m = reshape(m, o.out(1).sizes);
  }
  if (withMean) return {v, m};
  return {v};
}

Tensor logsumexp(const Tensor &in, const Dims &dims) {
  Tensor x = toFloat(in);
  x.reused();
  DType acc = computeType(toReal(x.dtype()));
  Tensor m = reduceDims(ReduceKind::Max, x.real(), dims, true, acc);
  // Infinite maxima are not subtracted.
  Tensor shift = map(m, [](Val v) { return where(un(OpKind::IsInf, v), 0.0, v); }).realize();
  if (x.isComplex()) return add(unary(sum(unary(sub(x, shift), OpKind::Exp), dims, true, x.dtype()), OpKind::Log), shift);
  Tensor xs[] = {x, shift};
  Tensor e = pointwise(xs, acc, acc, [](std::span<const Val> v) { return un(OpKind::Exp, v[0] - v[1]); });
  Tensor s = reduceDims(ReduceKind::Sum, e, dims, true, acc);
  Tensor ss[] = {s, shift};
  Tensor r = pointwise(ss, acc, x.dtype(), [](std::span<const Val> v) { return un(OpKind::Log, v[0]) + v[1]; });
  return r;
}

/// Vector norm of order p over dims (keepdim), in the compute type.
Tensor vectorNorm(const Tensor &in, double p, const Dims &dims, bool keepdim, DType out) {
  Tensor x = in;
  if (x.isComplex()) {
    Tensor xs[] = {x.real(), x.imag()};
    DType r = toReal(x.dtype());
    x = pointwise(xs, r, r, [](std::span<const Val> v) { return bin(OpKind::Hypot, v[0], v[1]); });
  } else {
    x = toFloat(x);
  }
  x = cast(x, toReal(out));
  DType acc = computeType(x.dtype());
  auto in2 = [&](const std::function<Val(Val)> &f) {
    Tensor xs[] = {x};
    return pointwise(xs, x.dtype(), acc, [f](std::span<const Val> v) { return f(v[0]); });
  };
  // The norm of one element is its magnitude, however small or large its powers are.
  std::vector<int64_t> over = wrapDims(dims, x.rank());
  for (int64_t d = 0; dims.empty() && d < x.rank(); ++d) over.push_back(d);
  const bool ofOne = std::all_of(over.begin(), over.end(), [&](int64_t d) { return x.size(d).isConst(1); });
  Tensor r;
  if (std::isinf(p)) {
    r = reduceDims(p > 0 ? ReduceKind::Max : ReduceKind::Min, in2([](Val v) { return un(OpKind::Abs, v); }), dims,
                   keepdim, acc);
  } else if (p == 0) {
    r = reduceDims(ReduceKind::Sum, in2([](Val v) { return v.b->cast(ne(v, 0.0), v.dtype); }), dims, keepdim, acc);
  } else if (p == 1 || ofOne) {
    r = reduceDims(ReduceKind::Sum, in2([](Val v) { return un(OpKind::Abs, v); }), dims, keepdim, acc);
  } else if (p == 2) {
    r = unary(reduceDims(ReduceKind::Sum, in2([](Val v) { return v * v; }), dims, keepdim, acc), OpKind::Sqrt);
  } else {
    r = reduceDims(ReduceKind::Sum, in2([p](Val v) { return bin(OpKind::Pow, un(OpKind::Abs, v), num(v, p)); }), dims,
                   keepdim, acc);
    r = map(r, [p](Val v) { return bin(OpKind::Pow, v, num(v, 1 / p)); });
  }
  return cast(r, out);
}

Tensor normExceptDim(const Tensor &x, double p, int64_t keep, DType out) {
  if (keep == -1) return vectorNorm(x, p, {}, true, out);
  Dims over;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != (keep < 0 ? keep + x.rank() : keep)) over.push_back(d);
  // No dims would mean all of them.
  if (over.empty()) return cast(map(x, [p](Val v) { return p == 0 ? where(ne(v, 0.0), num(v, 1), num(v, 0)) : un(OpKind::Abs, v); }), out);
  return vectorNorm(x, p, over, true, out);
}

static void addSumsAndExtremes(OpTable &t) {
  t.add("sum.default sum.dim_IntList", sumOp);
  t.add("mean.default mean.dim", meanOp);
  t.add("nansum.default nanmean.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    bool isMean = o.node.target == "aten.nanmean.default";
    if (!isFloat(x.dtype())) return isMean ? meanOp(o) : sumOp(o);
    x.reused();
    Tensor z = map(x, [](Val v) { return where(un(OpKind::IsNan, v), 0.0, v); });
    if (!isMean) return {sum(z, dimsOf(o), o.flag("keepdim"), o.out().dtype)};
    DType acc = computeType(x.dtype());
    Tensor ok = map(x, [](Val v) { return where(un(OpKind::IsNan, v), num(v, 0), num(v, 1)); });
    Tensor s = reduceDims(ReduceKind::Sum, z, dimsOf(o), o.flag("keepdim"), acc);
    Tensor n = reduceDims(ReduceKind::Sum, ok, dimsOf(o), o.flag("keepdim"), acc);
    return {cast(div(s, n), o.out().dtype)};
  });
  t.add("prod.default prod.dim_int", prodOp);
  t.add("any.default any.dim any.dims _is_any_true.default all.default all.dim all.dims _is_all_true.default", anyAll);
  t.add("amax.default", extremes<true>);
  t.add("amin.default", extremes<false>);
  t.add("max.default max.dim", extremeDim<true>);
  t.add("min.default min.dim", extremeDim<false>);
  t.add("aminmax.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    demandSome(o, x, dimsOf(o));
    x.reused();
    return {amin(x, dimsOf(o), o.flag("keepdim")), amax(x, dimsOf(o), o.flag("keepdim"))};
  });
  t.add("argmax.default", argOp<true>);
  t.add("argmin.default", argOp<false>);
}

static void addVariancesAndSoftmax(OpTable &t) {
  t.add("var.default var.dim var.correction std.default std.dim std.correction var_mean.default var_mean.dim "
        "var_mean.correction "
        "std_mean.default std_mean.dim std_mean.correction",
        varOp);
  t.add("logsumexp.default special_logsumexp.default", [](OpCall &o) -> Tensors {
    return {reshape(logsumexp(o.t("self"), dimsOf(o)), o.out().sizes)};
  });
  t.add("count_nonzero.default count_nonzero.dim_IntList", [](OpCall &o) -> Tensors {
    return {sum(cast(cast(o.t("self"), DType::Bool), DType::I64), dimsOf(o), false, DType::I64)};
  });
  t.add("norm.Scalar norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype norm.ScalarOpt_dtype linalg_vector_norm.default frobenius_norm.dim native_norm.default native_norm.ScalarOpt_dim_dtype",
        [](OpCall &o) -> Tensors {
          double p = o.has("p") ? o.number("p") : o.has("ord") ? o.number("ord") : 2.0;
          return {reshape(vectorNorm(o.t("self"), p, dimsOf(o), true, o.out().dtype), o.out().sizes)};
        });
  t.add("softmax.int _softmax.default special_softmax.default _safe_softmax.default", [](OpCall &o) -> Tensors {
    Tensor r = softmax(o.t("self"), o.integer("dim"), o.out().dtype, false);
    if (o.node.target == "aten._safe_softmax.default")
      r = map(r, [](Val v) { return where(un(OpKind::IsNan, v), 0.0, v); });
    return {r};
  });
  t.add("log_softmax.int _log_softmax.default special_log_softmax.default",
        [](OpCall &o) -> Tensors { return {softmax(o.t("self"), o.integer("dim"), o.out().dtype, true)}; });
  t.add("norm_except_dim.default", [](OpCall &o) -> Tensors {
    const Tensor v = o.t("v");
    return {reshape(normExceptDim(v, o.number("pow", 2), o.integer("dim", 0), v.dtype()), o.out().sizes)};
  });
  t.add("softmin.int",
        [](OpCall &o) -> Tensors { return {softmax(neg(o.t("self")), o.integer("dim"), o.out().dtype, false)}; });

  t.add("trace.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    Sizes n = {o.ctx.facts.simplify(min(x.sizes()[0], x.sizes()[1]))};
    Tensor d = remap(x, n, [](const Index &i) { return Index{i[0], i[0]}; });
    return {sum(d, {}, false, o.out().dtype)};
  });
}

void addReductions(OpTable &t) {
  addSumsAndExtremes(t);
  addVariancesAndSoftmax(t);
  t.onComplex(OnComplex::Own, "sum mean prod any all var std var_mean std_mean logsumexp special_logsumexp count_nonzero norm linalg_vector_norm "
                              "frobenius_norm native_norm trace softmax.int log_softmax.int");
}

} // namespace neso::lower
