// Operators that make tensors out of numbers and sizes, and dtype conversions.
#include <algorithm>
#include <cmath>

#include "lower/graph_to_loops/complex_val.h"
#include "lower/graph_to_loops/op_call.h"
#include "lower/graph_to_loops/parts.h"

namespace neso::lower {

static Tensor filled(OpCall &o, const Tensor &value) {
  Tensor v = cast(value, o.out().dtype);
  return broadcastTo(reshape(v, {}), o.out().sizes);
}
template <int V> static Tensors constantOf(OpCall &o) { return {fullInt(o.ctx, o.out().sizes, o.out().dtype, V)}; }

static Tensors arangeOp(OpCall &o) {
  DType t = o.out().dtype;
  const graph::Argument *s = o.node.arg("start"), *p = o.node.arg("step");
  bool floats = (s && std::holds_alternative<double>(*s)) || (p && std::holds_alternative<double>(*p)) || isFloat(t);
  auto isInt = [](const graph::Argument *a) { return !a || !std::holds_alternative<double>(*a); };
  if (isInt(s) && isInt(p)) {
    Expr start = o.expr("start", 0), step = o.expr("step", 1);
    return {Tensor::lazy(o.ctx, t, o.out().sizes, [start, step, t](BodyBuilder &b, const Index &i) {
      return b.round(b.cast(b.index(start + i[0] * step), computeType(t)), t);
    })};
  }
  (void)floats;
  double start = o.number("start", 0), step = o.number("step", 1);
  return {Tensor::lazy(o.ctx, t, o.out().sizes, [start, step, t](BodyBuilder &b, const Index &i) {
    // Integer results start and step by integers.
    if (!isFloat(t)) return b.cast(b.index(i[0]) * std::trunc(step) + std::trunc(start), t);
    // As ATen on the CPU: start + step * i in the accumulation type, which is double.
    Val v = b.cast(b.cast(b.index(i[0]), DType::F64) * step + start, computeType(t));
    return b.round(v, t);
  })};
}

/// base to the power of n numbers from start to end.
static Tensors complexLogspace(OpCall &o) {
  const Tensor a = cast(o.t("start"), DType::C128), z = cast(o.t("end"), DType::C128);
  const double base = o.number("base", 10);
  const Expr n = o.out().sizes[0];
  const Tensor wide = numbers(o.ctx, DType::C128, o.out().sizes, [=](BodyBuilder &b, const Index &i) {
    const Complex start = numberAt(b, a, {}), end = numberAt(b, z, {}), from = real(num(start.re, base));
    if (n.isConst(1)) return powOf(from, start);
    const Complex step = (end - start) / b.index(n - 1, DType::F64);
    const Val lower = b.compare(OpKind::Lt, i[0], floorDiv(n, 2));
    return powOf(from, where(lower, start + step * b.index(i[0], DType::F64), end - step * b.index(n - 1 - i[0], DType::F64)));
  });
  return {cast(wide, o.out().dtype)};
}

static Tensors linspaceOp(OpCall &o) {
  DType t = o.out().dtype;
  bool logspace = o.node.target.rfind("aten.logspace", 0) == 0;
  if (isComplex(t) && logspace) return complexLogspace(o);
  Tensor a = cast(o.t("start"), DType::F64), z = cast(o.t("end"), DType::F64);
  // Integer results start and end at integers.
  if (!isFloat(t)) a = cast(cast(a, t), DType::F64), z = cast(cast(z, t), DType::F64);
  double base = o.number("base", 10);
  Expr n = o.out().sizes[0];
  DType acc = logspace || !isFloat(t) || t == DType::F64 ? DType::F64 : DType::F32;
  return {Tensor::lazy(o.ctx, t, o.out().sizes, [=](BodyBuilder &b, const Index &i) {
    Val start = b.cast(a.at(b, {}), acc), end = b.cast(z.at(b, {}), acc);
    if (n.isConst(1)) {
      Val one = logspace ? bin(OpKind::Pow, num(start, base), start) : start;
      return b.round(b.cast(one, computeType(t)), t);
    }
    Val step = (end - start) / b.index(n - 1, acc);
    // From both ends towards the middle, so that the ends are exact.
    Val lower = b.compare(OpKind::Lt, i[0], floorDiv(n, 2));
    Val v = b.where(lower, start + step * b.index(i[0], acc), end - step * b.index(n - 1 - i[0], acc));
    if (logspace) v = bin(OpKind::Pow, num(v, base), v);
    return b.round(b.cast(v, computeType(t)), t);
  })};
}

static Tensors toOp(OpCall &o) { return {cast(o.t("self"), o.out().dtype)}; }

static Tensors triIndices(OpCall &o, bool lower) {
  int64_t rows = o.integer("row"), cols = o.integer("col"), k = o.integer("offset", 0);
  std::vector<int64_t> r, c;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      if (lower ? j <= i + k : j >= i + k) r.push_back(i), c.push_back(j);
  if (r.size() > (1u << 22)) return o.fail("more than four million indices");
  std::vector<uint8_t> bytes(r.size() * 16);
  int64_t *p = reinterpret_cast<int64_t *>(bytes.data());
  for (size_t i = 0; i < r.size(); ++i) p[i] = r[i], p[r.size() + i] = c[i];
  return {cast(o.ctx.addConstant(DType::I64, {2, static_cast<int64_t>(r.size())}, std::move(bytes)), o.out().dtype)};
}

static void addFactories(OpTable &t) {
  t.add("full.default full_like.default new_full.default fill.Scalar fill.Tensor",
        [](OpCall &o) -> Tensors { return {filled(o, o.t(o.has("fill_value") ? "fill_value" : "value"))}; });
  t.add("zeros.default zeros_like.default new_zeros.default zero.default empty.memory_format empty_like.default "
        "new_empty.default "
        "empty_strided.default new_empty_strided.default empty_permuted.default _efficientzerotensor.default",
        constantOf<0>);
  t.add("ones.default ones_like.default new_ones.default", constantOf<1>);
  t.add("scalar_tensor.default prims::prims.scalar_tensor.default",
        [](OpCall &o) -> Tensors { return {filled(o, o.t("s"))}; });
  t.add("arange.default arange.start arange.start_step range.default range.step", arangeOp);
  t.add("linspace.default linspace.Tensor_Tensor linspace.Tensor_Scalar linspace.Scalar_Tensor logspace.default "
        "logspace.Tensor_Tensor "
        "logspace.Tensor_Scalar logspace.Scalar_Tensor",
        linspaceOp);
  t.add("eye.default eye.m", [](OpCall &o) -> Tensors {
    DType d = o.out().dtype;
    const DType r = toReal(d);
    return {cast(Tensor::lazy(o.ctx, r, o.out().sizes, [r](BodyBuilder &b, const Index &i) { return b.cast(b.compare(OpKind::Eq, i[0], i[1]), computeType(r)); }), d)};
  });
  t.add("tril_indices.default", [](OpCall &o) -> Tensors { return triIndices(o, true); });
  t.add("triu_indices.default", [](OpCall &o) -> Tensors { return triIndices(o, false); });
}

/// The bits of element i of x as an unsigned integer of its size; a truth is a byte in memory, 0 or 1.
static Val bitsOf(BodyBuilder &b, const Tensor &x, const Index &i) {
  const Val v = b.cast(x.at(b, i), x.dtype());
  const DType bits = integerOf(false, itemSize(x.dtype()));
  return isFloat(x.dtype()) ? b.bitcast(v, bits) : b.cast(v, bits);
}

/// Memory of x read as elements of dtype d, little-endian: the last dim grows or shrinks as the sizes of both say.
static Tensor reinterpreted(Lowering &ctx, const Tensor &x, DType d) {
  if (x.isComplex()) {
    // The parts lie side by side: [..., n, 2] as [..., 2 n].
    Sizes flat = x.rank() ? x.sizes() : Sizes{Expr(1)};
    flat.back() = flat.back() * 2;
    const Tensor y = reinterpreted(ctx, reshape(partsOf(x), flat), d);
    return x.rank() ? y : reshape(y, {});
  }
  if (isComplex(d)) {
    Tensor parts = reinterpreted(ctx, x.rank() ? x : reshape(x, {1}), toReal(d));
    Sizes pairs = parts.sizes();
    pairs.back() = floorDiv(pairs.back(), 2);
    pairs.push_back(Expr(2));
    parts = reshape(parts, pairs);
    const Tensor y = Tensor::complex(select(parts, -1, 0), select(parts, -1, 1), d);
    return x.rank() ? y : reshape(y, {});
  }
  const int64_t from = itemSize(x.dtype()), to = itemSize(d);
  const DType bits = integerOf(false, to);
  auto asElement = [d](BodyBuilder &b, Val v) { return b.cast(isFloat(d) ? b.bitcast(v, d) : b.cast(v, d), computeType(d)); };
  Sizes sizes = x.sizes();
  if (from == to)
    return Tensor::lazy(ctx, d, sizes, [=](BodyBuilder &b, const Index &i) { return asElement(b, bitsOf(b, x, i)); });
  if (from > to) {
    const int64_t parts = from / to;
    sizes.back() = sizes.back() * parts;
    return Tensor::lazy(ctx, d, sizes, [=](BodyBuilder &b, const Index &i) {
      Index at = i;
      at.back() = floorDiv(i.back(), parts);
      const Val shift = b.index((i.back() - at.back() * parts) * (8 * to), integerOf(false, from));
      return asElement(b, b.cast(bin(OpKind::Shr, bitsOf(b, x, at), shift), bits));
    });
  }
  const int64_t parts = to / from;
  sizes.back() = floorDiv(sizes.back(), parts);
  return Tensor::lazy(ctx, d, sizes, [=](BodyBuilder &b, const Index &i) {
    Val whole;
    for (int64_t k = 0; k < parts; ++k) {
      Index at = i;
      at.back() = i.back() * parts + k;
      const Val part = b.cast(bitsOf(b, x, at), bits);
      whole = k == 0 ? part : bin(OpKind::Or, whole, bin(OpKind::Shl, part, b.constantInt(bits, 8 * from * k)));
    }
    return asElement(b, whole);
  });
}

static void addConversions(OpTable &t) {
  t.add("_to_copy.default to.dtype to.dtype_layout to.device to.other type_as.default to.prim_Device to.prim_dtype "
        "to.prim_other",
        toOp);
  t.add("_cast_Float.default float.default half.default bfloat16.default double.default int.default long.default "
        "bool.default "
        "_cast_Double.default _cast_Int.default _cast_Long.default _cast_Half.default "
        "prims::prims.convert_element_type.default",
        toOp);
  t.add("copy.default",
        [](OpCall &o) -> Tensors { return {broadcastTo(cast(o.t("src"), o.out().dtype), o.out().sizes)}; });
  t.add("complex.default", [](OpCall &o) -> Tensors {
    Tensor re = o.t("real"), im = o.t("imag"), xs[] = {re, im};
    Sizes s = broadcastSizes(xs);
    return {Tensor::complex(broadcastTo(re, s), broadcastTo(im, s), o.out().dtype)};
  });
  t.add("polar.default", [](OpCall &o) -> Tensors {
    Tensor r = o.t("abs"), a = o.t("angle");
    return {Tensor::complex(mul(r, unary(a, OpKind::Cos)), mul(r, unary(a, OpKind::Sin)), o.out().dtype)};
  });
  t.add("real.default", [](OpCall &o) -> Tensors { return {o.t("self").real()}; });
  t.add("imag.default", [](OpCall &o) -> Tensors { return {o.t("self").imag()}; });
  t.add("view_as_real.default view_as_real_copy.default", [](OpCall &o) -> Tensors { return {partsOf(o.t("self"))}; });
  t.add("view_as_complex.default view_as_complex_copy.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    return {Tensor::complex(select(x, -1, 0), select(x, -1, 1), o.out().dtype)};
  });
  t.add("conj.default _conj.default conj_physical.default _conj_physical.default _conj_copy.default",
        [](OpCall &o) -> Tensors {
          Tensor x = o.t("self");
          if (!x.isComplex()) return {x};
          return {Tensor::complex(x.real(), neg(x.imag()), x.dtype())};
        });
  t.add("angle.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    if (x.isComplex()) {
      Tensor xs[] = {x.imag(), x.real()};
      DType r = toReal(x.dtype());
      return {pointwise(xs, r, r, [](std::span<const Val> v) { return bin(OpKind::Atan2, v[0], v[1]); })};
    }
    return {mapFloat(x, [](Val v) { return where(un(OpKind::IsNan, v), v, where(v < 0.0, num(v, M_PI), num(v, 0))); })};
  });
  t.add("view.dtype view_copy.dtype", [](OpCall &o) -> Tensors {
    const Tensor x = o.t("self");
    const DType d = o.out().dtype;
    if (d == x.dtype()) return {x};
    if (x.rank() == 0 && itemSize(d) != itemSize(x.dtype())) return o.fail("a number alone cannot be read as a dtype of another size");
    return {reinterpreted(o.ctx, x, d)};
  });
}

/// The powers from 0 to n - 1 of the elements of x, along a new last dim.
static Tensors powersOf(OpCall &o, const Tensor &x, Expr n, bool increasing) {
  const std::optional<int64_t> count = n.asConst();
  if (!count || *count < 1) return o.fail("the number of powers of complex numbers must be constant, and not 0");
  Tensors columns{full(o.ctx, x.sizes(), x.dtype(), 1)};
  while (static_cast<int64_t>(columns.size()) < *count) columns.push_back(columns.size() == 1 ? x : mul(columns.back(), x).realize());
  if (!increasing) std::reverse(columns.begin(), columns.end());
  for (Tensor &c : columns) c = unsqueeze(c, c.rank());
  return {concat(columns, x.rank())};
}

void addCreation(OpTable &t) {
  t.family(OnComplex::Own);
  addFactories(t);
  addConversions(t);
  t.add("vander.default linalg_vander.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t(o.has("x") ? "x" : "self");
    if (x.rank() == 0) x = reshape(x, {1});
    Expr n = o.out().sizes.back();
    bool inc = o.node.target == "aten.linalg_vander.default" || o.flag("increasing");
    DType d = o.out().dtype;
    Tensor y = cast(x, d);
    if (isComplex(d)) return powersOf(o, y, n, inc);
    return {Tensor::lazy(o.ctx, d, o.out().sizes, [y, n, inc](BodyBuilder &b, const Index &i) {
      Index j(i.begin(), i.end() - 1);
      Val v = y.at(b, j), e = b.cast(b.index(inc ? i.back() : n - 1 - i.back()), v.dtype);
      return bin(OpKind::Pow, v, e);
    })};
  });
  t.onComplex(OnComplex::Parts, "linspace");
  t.onComplex(OnComplex::Own, "logspace");
  t.onComplex(OnComplex::Refuse, "arange range");
}

} // namespace neso::lower
