#include "lower/graph_to_loops/complex_val.h"

#include <algorithm>

namespace neso::lower {

Tensor full(Lowering &ctx, const Sizes &sizes, DType t, double value) {
  if (isComplex(t)) return Tensor::complex(full(ctx, sizes, toReal(t), value), full(ctx, sizes, toReal(t), 0), t);
  return Tensor::lazy(ctx, t, sizes, [t, value](BodyBuilder &b, const Index &) {
    Val v = b.constant(computeType(t), value);
    return b.round(v, t);
  });
}

Tensor fullInt(Lowering &ctx, const Sizes &sizes, DType t, int64_t value) {
  if (isComplex(t) || isFloat(t)) return full(ctx, sizes, t, static_cast<double>(value));
  return Tensor::lazy(ctx, t, sizes, [t, value](BodyBuilder &b, const Index &) { return b.constantInt(t, value); });
}

Tensor exprAs(Lowering &ctx, Expr e, DType t) {
  return Tensor::lazy(ctx, t, {}, [e, t](BodyBuilder &b, const Index &) { return b.cast(b.index(e), computeType(t)); });
}

Tensor scalarExpr(Lowering &ctx, Expr e) { return exprAs(ctx, e, DType::I64).asNumber(); }
Tensor scalarInt(Lowering &ctx, int64_t v) { return fullInt(ctx, {}, DType::I64, v).asNumber(); }
Tensor scalarFloat(Lowering &ctx, double v) {
  // Numbers keep double precision until they meet their partner's dtype.
  return full(ctx, {}, DType::F64, v).asNumber();
}

Tensor iota(Lowering &ctx, const Sizes &sizes, int64_t dim, DType t) {
  size_t d = static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(sizes.size()) : dim);
  return Tensor::lazy(ctx, t, sizes,
                      [d, t](BodyBuilder &b, const Index &i) { return b.cast(b.index(i[d]), computeType(t)); });
}

// ---- dtype
DType resultType(std::span<const Tensor> xs) {
  std::optional<DType> dims, zero, number;
  for (const Tensor &x : xs) {
    if (x.isNumber()) {
      DType t = x.dtype();
      if (isComplex(t))
        t = DType::C64;
      else if (isFloat(t))
        t = DType::F32;
      number = number ? promote(*number, t) : t;
    } else if (x.rank() > 0) {
      dims = dims ? promote(*dims, x.dtype()) : x.dtype();
    } else {
      zero = zero ? promote(*zero, x.dtype()) : x.dtype();
    }
  }
  auto combine = [](std::optional<DType> high, std::optional<DType> low) -> std::optional<DType> {
    if (!high) return low;
    if (!low) return high;
    if (isComplex(*high)) return high;
    if (isFloat(*high)) return isComplex(*low) ? toComplex(*high) : high;
    if (*high == DType::Bool || isFloat(*low) || isComplex(*low)) return promote(*high, *low);
    return high;
  };
  return combine(dims, combine(zero, number)).value_or(DType::F32);
}

Tensor cast(const Tensor &x, DType t) {
  if (x.dtype() == t) return x;
  if (isComplex(t)) return Tensor::complex(cast(x.real(), toReal(t)), cast(x.imag(), toReal(t)), t);
  if (x.isComplex()) {
    if (t == DType::Bool) return binary(OpKind::Or, cast(x.real(), t), cast(x.imag(), t));
    return cast(x.real(), t);
  }
  Tensor y = Tensor::lazy(x.ctx(), t, x.sizes(), [x, t](BodyBuilder &b, const Index &i) {
    Val v = b.round(x.at(b, i), x.dtype());
    return b.round(b.cast(v, computeType(t)), t);
  });
  return y.withOrder(x.order());
}

DType floatType(DType t) { return isFloat(t) || isComplex(t) ? t : DType::F32; }
Tensor toFloat(const Tensor &x) { return cast(x, floatType(x.dtype())); }

// ---- pointwise
Sizes broadcastSizes(std::span<const Tensor> xs) {
  size_t rank = 0;
  for (const Tensor &x : xs) rank = std::max(rank, x.sizes().size());
  Sizes out(rank, Expr(1));
  for (const Tensor &x : xs)
    for (size_t k = 0; k < x.sizes().size(); ++k) {
      Expr s = x.sizes()[x.sizes().size() - 1 - k];
      Expr &o = out[rank - 1 - k];
      if (o.isConst(1) || (!s.isConst(1) && s.isConst() && !o.isConst())) o = s;
    }
  return out;
}

Tensor broadcastTo(const Tensor &x, const Sizes &sizes) {
  if (x.sizes().size() > sizes.size()) {
    x.ctx().refuse(fmt::format("a tensor of {} dims cannot be repeated to {}", x.sizes().size(), sizes.size()));
    return full(x.ctx(), sizes, x.dtype(), 0);
  }
  size_t lead = sizes.size() - x.sizes().size();
  bool same = lead == 0;
  std::vector<char> one(x.sizes().size());
  for (size_t d = 0; d < x.sizes().size(); ++d) {
    one[d] = x.sizes()[d].isConst(1);
    const Expr wanted = sizes[lead + d];
    if (!one[d] && x.sizes()[d].isConst() && wanted.isConst() && !x.ctx().equal(x.sizes()[d], wanted))
      x.ctx().refuse(fmt::format("{} elements of a dim cannot be repeated to {}", x.sizes()[d].str(), wanted.str()));
    same &= !one[d] || wanted.isConst(1);
  }
  if (same) return x;
  return remap(x, sizes, [lead, one](const Index &i) {
    Index j(one.size());
    for (size_t d = 0; d < j.size(); ++d) j[d] = one[d] ? Expr(0) : i[lead + d];
    return j;
  });
}

/// The memory order of a pointwise result: that of its first operand with all its elements and an order of its own.
static std::vector<int> orderFrom(std::span<const Tensor> xs, size_t rank) {
  for (const Tensor &x : xs)
    if (x.sizes().size() == rank && rank > 1 && x.order().size() == rank) return x.order();
  return {};
}

Tensor pointwise(std::span<const Tensor> xs, DType in, DType out, const ScalarFn &fn) {
  Lowering &ctx = xs[0].ctx();
  Sizes sizes = broadcastSizes(xs);
  Tensors ys;
  for (const Tensor &x : xs) ys.push_back(broadcastTo(x, sizes));
  std::vector<int> order = orderFrom(xs, sizes.size());
  Tensor r = Tensor::lazy(ctx, out, sizes, [ys, in, out, fn](BodyBuilder &b, const Index &i) {
    std::vector<Val> vs;
    for (const Tensor &y : ys) vs.push_back(b.cast(y.at(b, i), computeType(in)));
    return b.cast(fn(vs), computeType(out));
  });
  return r.withOrder(order);
}

Tensor map(const Tensor &x, const std::function<Val(Val)> &fn) {
  Tensor xs[] = {x};
  return pointwise(xs, x.dtype(), x.dtype(), [fn](std::span<const Val> v) { return fn(v[0]); });
}
Tensor mapFloat(const Tensor &x, const std::function<Val(Val)> &fn) { return map(toFloat(x), fn); }
Tensor unary(const Tensor &x, OpKind k) {
  if (x.isComplex() && known(k)) return pointwiseNumbers({x}, x.dtype(), [k](std::span<const Complex> v) { return valueOf(k, v[0]); });
  return map(x, [k](Val v) { return un(k, v); });
}
Tensor unaryFloat(const Tensor &x, OpKind k) { return unary(toFloat(x), k); }

Tensor binary(OpKind k, const Tensor &a, const Tensor &b) {
  Tensor xs[] = {a, b};
  DType t = resultType(xs);
  bool compare = loops::info(k).isComparison();
  if (isComplex(t)) {
    Tensor ar = a.real(), ai = a.imag(), br = b.real(), bi = b.imag();
    DType r = toReal(t);
    if (a.isNumber()) ar = ar.asNumber(), ai = ai.asNumber();
    if (b.isNumber()) br = br.asNumber(), bi = bi.asNumber();
    auto fix = [r](const Tensor &x) { return cast(x, r); };
    ar = fix(ar), ai = fix(ai), br = fix(br), bi = fix(bi);
    if (k == OpKind::Eq || k == OpKind::Ne) return binary(k == OpKind::Eq ? OpKind::And : OpKind::Or, binary(k, ar, br), binary(k, ai, bi));
    if (k == OpKind::Add || k == OpKind::Sub) return Tensor::complex(binary(k, ar, br), binary(k, ai, bi), t);
    if (k == OpKind::Mul) {
      // A real factor is one with an imaginary part of 0: times infinity that is NaN in PyTorch.
      return Tensor::complex(sub(mul(ar, br), mul(ai, bi)), add(mul(ar, bi), mul(ai, br)), t);
    }
    if (k == OpKind::Div) {
      if (!b.isComplex()) return Tensor::complex(div(add(ar, mul(ai, bi)), br), div(sub(ai, mul(ar, bi)), br), t);
      return pointwiseNumbers({a, b}, t, [](std::span<const Complex> v) { return v[0] / v[1]; });
    }
    a.ctx().refuse("complex numbers are not supported here");
    return full(a.ctx(), broadcastSizes(xs), compare ? DType::Bool : t, 0);
  }
  DType out = compare ? DType::Bool : t;
  if (t == DType::Bool && !compare) {
    if (k == OpKind::Add || k == OpKind::Max) k = OpKind::Or;
    if (k == OpKind::Mul || k == OpKind::Min) k = OpKind::And;
  }
  bool snap = loops::info(k).has(loops::Discontinuous) && isReducedFloat(t);
  return pointwise(xs, t, out, [k, t, snap](std::span<const Val> v) {
    Val x = v[0], y = v[1];
    if (snap) x = x.b->round(x, t), y = y.b->round(y, t);
    return bin(k, x, y);
  });
}

Tensor add(const Tensor &a, const Tensor &b) { return binary(OpKind::Add, a, b); }
Tensor sub(const Tensor &a, const Tensor &b) { return binary(OpKind::Sub, a, b); }
Tensor mul(const Tensor &a, const Tensor &b) { return binary(OpKind::Mul, a, b); }
Tensor div(const Tensor &a, const Tensor &b) {
  Tensor xs[] = {a, b};
  DType t = resultType(xs);
  if (isFloat(t) || isComplex(t)) return binary(OpKind::Div, a, b);
  return pointwise(xs, DType::F32, DType::F32, [](std::span<const Val> v) { return v[0] / v[1]; });
}
Tensor neg(const Tensor &a) {
  if (a.isComplex()) return Tensor::complex(neg(a.real()), neg(a.imag()), a.dtype());
  return unary(a, OpKind::Neg);
}
Tensor lengths(const Tensor &a) {
  if (!a.isComplex()) return unary(a, OpKind::Abs);
  Tensor parts[] = {a.real(), a.imag()};
  const DType r = toReal(a.dtype());
  return pointwise(parts, r, r, [](std::span<const Val> v) { return bin(OpKind::Hypot, v[0], v[1]); });
}
Tensor addNumber(const Tensor &a, double v) {
  if (a.isComplex()) return Tensor::complex(addNumber(a.real(), v), a.imag(), a.dtype());
  return map(a, [v](Val x) { return x + v; });
}
Tensor mulNumber(const Tensor &a, double v) {
  if (a.isComplex()) return Tensor::complex(mulNumber(a.real(), v), mulNumber(a.imag(), v), a.dtype());
  return map(a, [v](Val x) { return x * v; });
}

Tensor logicalNot(const Tensor &x) { return unary(cast(x, DType::Bool), OpKind::Not); }

Tensor where(const Tensor &c, const Tensor &a, const Tensor &b) {
  Tensor ab[] = {a, b};
  DType t = resultType(ab);
  if (isComplex(t)) {
    Tensor x = cast(a, t), y = cast(b, t);
    return Tensor::complex(where(c, x.real(), y.real()), where(c, x.imag(), y.imag()), t);
  }
  Tensor all[] = {c, a, b};
  Sizes sizes = broadcastSizes(all);
  Tensor cc = broadcastTo(cast(c, DType::Bool), sizes), x = broadcastTo(cast(a, t), sizes),
         y = broadcastTo(cast(b, t), sizes);
  Tensor r = Tensor::lazy(c.ctx(), t, sizes, [cc, x, y](BodyBuilder &b, const Index &i) {
    return b.where(cc.at(b, i), x.at(b, i), y.at(b, i));
  });
  return r.withOrder(orderFrom(ab, sizes.size()));
}

} // namespace neso::lower
