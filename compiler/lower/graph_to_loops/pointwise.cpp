// Elementwise operators: arithmetic, comparisons, logic, special functions, activations.
#include <cmath>
#include <limits>

#include "lower/graph_to_loops/complex_val.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

/// Floats and complex keep their type, others become F32 (torch's default dtype).
template <OpKind K> static Tensors unaryAny(OpCall &o) { return {unary(o.t("self"), K)}; }

/// erfinv in f32: two polynomials in the logarithm of 1 - x^2 (Giles 2010), about 3 units in the last place.
static Val erfinvOf(Val x) {
  static const double kMiddle[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06,  -4.39150654e-06, 0.00021858087,
                                   -0.00125372503, -0.00417768164, 0.246640727,     1.50140941};
  static const double kEnds[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                                 -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};
  Val w = -un(OpKind::Log, (1.0 - x) * (x + 1.0));
  Val middle = w < 5.0, at = where(middle, w - 2.5, un(OpKind::Sqrt, vmax(w, num(w, 0))) - 3.0);
  Val p = where(middle, kMiddle[0], num(w, kEnds[0]));
  for (size_t i = 1; i < std::size(kMiddle); ++i) p = p * at + where(middle, kMiddle[i], num(w, kEnds[i]));
  // At 1 and -1 the logarithm is infinite.
  return where(eq(un(OpKind::Abs, x), 1.0), x * HUGE_VAL, p * x);
}

template <OpKind K> static Tensors unaryF(OpCall &o) { return {unaryFloat(o.t("self"), K)}; }

static Tensors erfinvOp(OpCall &o) {
  Tensor x = o.t("self");
  if (x.dtype() == DType::F64) return {unaryFloat(x, OpKind::Erfinv)};
  return {mapFloat(x, erfinvOf)};
}

/// Integers are returned as they are.
template <OpKind K> static Tensors rounding(OpCall &o) {
  Tensor x = o.t("self");
  if (!isFloat(x.dtype())) return {x};
  return {map(x, [t = x.dtype()](Val v) { return un(K, v.b->round(v, t)); })};
}
template <OpKind K> static Tensors compare(OpCall &o) { return {binary(K, o.t("self"), o.t("other"))}; }
template <OpKind K> static Tensors arithmetic(OpCall &o) { return {binary(K, o.t("self"), o.t("other"))}; }

static Tensor scaledBy(OpCall &o, const Tensor &x, std::string_view arg) {
  if (!o.has(arg)) return x;
  Tensor alpha = o.t(arg);
  // Beside booleans it is one, and their sum stays one.
  if (o.out().dtype == DType::Bool) alpha = cast(alpha, DType::Bool);
  const graph::Argument *a = o.node.arg(arg);
  if (const int64_t *i = std::get_if<int64_t>(a); i && *i == 1) return x;
  if (const double *d = std::get_if<double>(a); d && *d == 1) return x;
  return mul(x, alpha);
}

static Tensors addOp(OpCall &o) {
  Tensor a = o.t("self"), b = o.t("other"), s = scaledBy(o, b, "alpha");
  if (b.isNumber()) s = s.asNumber();
  return {add(a, s)};
}
static Tensors subOp(OpCall &o) {
  Tensor a = o.t("self"), b = o.t("other"), s = scaledBy(o, b, "alpha");
  if (b.isNumber()) s = s.asNumber();
  return {sub(a, s)};
}
static Tensors rsubOp(OpCall &o) {
  Tensor a = o.t("self"), b = o.t("other");
  return {sub(b, scaledBy(o, a, "alpha"))};
}

static Tensor divide(const Tensor &a, const Tensor &b, const std::string &mode) {
  if (mode.empty()) return div(a, b);
  Tensor xs[] = {a, b};
  DType t = resultType(xs);
  if (!isFloat(t)) return binary(mode == "floor" ? OpKind::FloorDiv : OpKind::Div, a, b);
  bool floor = mode == "floor";
  return pointwise(xs, t, t, [floor, t](std::span<const Val> v) {
    Val x = v[0].b->round(v[0], t), y = v[1].b->round(v[1], t);
    if (!floor) return un(OpKind::Trunc, x / y);
    return bin(OpKind::FloorDiv, x, y);
  });
}

/// The real number that an argument is; nothing where it is none.
static std::optional<double> constantArgument(OpCall &o, std::string_view name) {
  const graph::Argument *a = o.node.arg(name);
  if (!a) return std::nullopt;
  if (const int64_t *i = std::get_if<int64_t>(a)) return static_cast<double>(*i);
  if (const double *d = std::get_if<double>(a)) return *d;
  if (const graph::ComplexValue *c = std::get_if<graph::ComplexValue>(a); c && c->imag == 0) return c->real;
  return std::nullopt;
}

/// Powers of complex numbers, of type t. Those with few factors, and roots, are not computed by logarithms, as in ATen.
static Tensor complexPower(OpCall &o, const Tensor &a, const Tensor &b, DType t) {
  const std::optional<double> base = constantArgument(o, "self"), e = constantArgument(o, "exponent");
  Tensor xs[] = {a, b};
  const Sizes sizes = broadcastSizes(xs);
  if (e == 0.0 || base == 1.0) return full(o.ctx, sizes, t, 1);
  const Tensor x = cast(a, t), one = full(o.ctx, {}, t, 1);
  if (e == 1.0) return x;
  if (e == 2.0) return mul(x, x);
  if (e == 3.0) return mul(mul(x, x), x);
  if (e == 0.5) return unary(x, OpKind::Sqrt);
  if (e == -0.5) return unary(x, OpKind::Rsqrt);
  if (e == -1.0) return div(one, x);
  if (e == -2.0) return div(one, mul(x, x));
  return pointwiseNumbers({a, b}, t, [](std::span<const Complex> v) { return powOf(v[0], v[1]); });
}

static Tensors powOp(OpCall &o) {
  Tensor a = o.t("self"), b = o.t("exponent");
  Tensor xs[] = {a, b};
  DType t = resultType(xs);
  if (isComplex(t)) return {complexPower(o, a, b, t)};
  const std::optional<double> c = constantArgument(o, "exponent");
  if (c && (isFloat(t) || (*c >= 0 && *c == std::floor(*c)))) {
    Tensor x = cast(a, t);
    if (*c == 0.0) return {map(x, [](Val v) { return num(v, 1); })};
    if (*c == 1.0) return {x};
    if (*c == 2.0) return {map(x, [](Val v) { return v * v; })};
    if (*c == 3.0) return {map(x, [](Val v) { return v * v * v; })};
    if (*c == 4.0)
      return {map(x, [](Val v) {
        Val s = v * v;
        return s * s;
      })};
    if (*c == 0.5) return {map(x, [](Val v) { return un(OpKind::Sqrt, v); })};
    if (*c == -0.5) return {map(x, [](Val v) { return un(OpKind::Rsqrt, v); })};
    if (*c == -1.0) return {map(x, [](Val v) { return 1.0 / v; })};
    if (*c == -2.0) return {map(x, [](Val v) { return 1.0 / (v * v); })};
  }
  if (t == DType::Bool) return {pointwise(xs, t, t, [](std::span<const Val> v) { return v[0] || !v[1]; })};
  return {binary(OpKind::Pow, a, b)};
}

/// A bound of clamp in the type of its elements. A number outside an integer type's range becomes the nearest that is
/// inside, where the numbers of all other operators wrap around.
static Tensor boundAs(const Tensor &x, DType t) {
  bool integer = isInteger(t) && x.isNumber() && isInteger(x.dtype());
  if (!integer || t == x.dtype() || itemSize(t) >= itemSize(x.dtype())) {
    if (integer && isUnsignedInt(t)) return cast(binary(OpKind::Max, x, scalarInt(x.ctx(), 0)), t);
    return cast(x, t);
  }
  int bits = static_cast<int>(itemSize(t)) * 8 - (isUnsignedInt(t) ? 0 : 1);
  int64_t high = static_cast<int64_t>((uint64_t(1) << bits) - 1), low = isUnsignedInt(t) ? 0 : -high - 1;
  Tensor inside = binary(OpKind::Max, x, scalarInt(x.ctx(), low));
  return cast(binary(OpKind::Min, inside, scalarInt(x.ctx(), high)), t);
}

/// Both given or either one; NaN passes through.
static Tensors clamped(Tensor x, const Tensor &lo, const Tensor &hi) {
  Tensors all{x};
  if (lo.valid()) all.push_back(lo);
  if (hi.valid()) all.push_back(hi);
  DType t = resultType(all);
  x = cast(x, t);
  if (lo.valid()) x = binary(OpKind::Max, x, boundAs(lo, t));
  if (hi.valid()) x = binary(OpKind::Min, x, boundAs(hi, t));
  return {x};
}
static Tensors clampOp(OpCall &o) { return clamped(o.t("self"), o.opt("min"), o.opt("max")); }

static Val sigmoidOf(Val v) { return un(OpKind::Sigmoid, v); }

static Tensors geluOp(OpCall &o) {
  bool tanh = o.text("approximate", "none") == "tanh";
  return {map(o.t("self"), [tanh](Val x) {
    if (tanh) {
      Val inner = (x + x * x * x * 0.044715) * 0.7978845608028654;
      return x * 0.5 * (un(OpKind::Tanh, inner) + 1.0);
    }
    return x * 0.5 * (un(OpKind::Erf, x * 0.7071067811865476) + 1.0);
  })};
}

static Tensors eluOp(OpCall &o) {
  double alpha = o.number("alpha", 1), scale = o.number("scale", 1), in = o.number("input_scale", 1);
  return {
      map(o.t("self"), [=](Val x) { return where(x > 0.0, x * scale, un(OpKind::Expm1, x * in) * (alpha * scale)); })};
}

static Tensors roundOp(OpCall &o) {
  Tensor x = o.t("self");
  int64_t decimals = o.integer("decimals", 0);
  if (!isFloat(x.dtype())) return {x};
  if (decimals == 0) return rounding<OpKind::Round>(o);
  double scale = std::pow(10.0, std::fabs(static_cast<double>(decimals)));
  return {map(x, [=](Val v) {
    return decimals > 0 ? un(OpKind::Round, v * scale) / scale : un(OpKind::Round, v / scale) * scale;
  })};
}

static Tensors remainderOp(OpCall &o) { return {binary(OpKind::Mod, o.t("self"), o.t("other"))}; }

template <OpKind K> static Tensors logical(OpCall &o) {
  return {binary(K, cast(o.t("self"), DType::Bool), cast(o.t("other"), DType::Bool))};
}

/// Binary functions that need a float.
template <OpKind K> static Tensors binaryF(OpCall &o) {
  Tensor a = o.t("self"), b = o.t(o.has("other") ? "other" : "exponent");
  Tensor xs[] = {a, b};
  DType t = floatType(resultType(xs));
  return {pointwise(xs, t, t, [](std::span<const Val> v) { return bin(K, v[0], v[1]); })};
}

static Tensor xlogy(const Tensor &a, const Tensor &b, bool plusOne) {
  Tensor xs[] = {a, b};
  DType t = floatType(resultType(xs));
  return pointwise(xs, t, t, [plusOne](std::span<const Val> v) {
    Val r = where(eq(v[0], 0.0), 0.0, v[0] * un(plusOne ? OpKind::Log1p : OpKind::Log, v[1]));
    return where(un(OpKind::IsNan, v[1]), v[1], r);
  });
}

static Tensor logaddexp(const Tensor &a, const Tensor &b, bool two) {
  Tensor xs[] = {a, b};
  DType t = floatType(resultType(xs));
  return pointwise(xs, t, t, [two](std::span<const Val> v) {
    Val m = vmax(v[0], v[1]), d = un(OpKind::Abs, v[0] - v[1]);
    Val r = two ? m + un(OpKind::Log1p, un(OpKind::Exp2, -d)) * 1.4426950408889634
                : m + un(OpKind::Log1p, un(OpKind::Exp, -d));
    // Equal infinities would give NaN.
    return where(un(OpKind::IsInf, v[0]) && eq(v[0], v[1]), v[0], r);
  });
}

static Tensor nanToNum(const Tensor &x, double nan, std::optional<double> pos, std::optional<double> neg) {
  if (!isFloat(x.dtype())) return x;
  double big = greatestOf(x.dtype());
  double p = pos.value_or(big), n = neg.value_or(-big);
  return map(x, [=](Val v) {
    Val r = where(un(OpKind::IsNan, v), nan, v);
    r = where(eq(v, HUGE_VAL), p, r);
    return where(eq(v, -HUGE_VAL), n, r);
  });
}

static std::optional<double> optNumber(OpCall &o, std::string_view name) {
  return o.has(name) ? std::optional<double>(o.number(name)) : std::nullopt;
}

static void addArithmetic(OpTable &t) {
  t.add("add.Tensor add.Scalar", addOp);
  t.add("sub.Tensor sub.Scalar subtract.Tensor subtract.Scalar", subOp);
  t.add("rsub.Tensor rsub.Scalar", rsubOp);
  t.add("mul.Tensor mul.Scalar multiply.Tensor multiply.Scalar", arithmetic<OpKind::Mul>);
  t.add("div.Tensor div.Scalar divide.Tensor divide.Scalar true_divide.Tensor true_divide.Scalar",
        [](OpCall &o) -> Tensors { return {div(o.t("self"), o.t("other"))}; });
  t.add("div.Tensor_mode div.Scalar_mode divide.Tensor_mode divide.Scalar_mode",
        [](OpCall &o) -> Tensors { return {divide(o.t("self"), o.t("other"), o.text("rounding_mode"))}; });
  t.add("floor_divide.default floor_divide.Scalar",
        [](OpCall &o) -> Tensors { return {divide(o.t("self"), o.t("other"), "floor")}; });
  t.add("remainder.Tensor remainder.Scalar remainder.Scalar_Tensor", remainderOp);
  t.add("fmod.Tensor fmod.Scalar", arithmetic<OpKind::Fmod>);
  t.add("pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar float_power.Tensor_Tensor float_power.Tensor_Scalar "
        "float_power.Scalar",
        [](OpCall &o) -> Tensors {
          if (o.node.target.rfind("aten.float_power", 0) != 0) return powOp(o);
          Tensor a = o.t("self"), b = o.t("exponent");
          if (a.isComplex() || b.isComplex()) return {complexPower(o, a, b, DType::C128)};
          return {binary(OpKind::Pow, cast(a, DType::F64), cast(b, DType::F64))};
        });
  t.add("square.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    if (x.dtype() == DType::Bool) x = cast(x, DType::I64);
    return {mul(x, x)};
  });
  t.add("maximum.default max.other", arithmetic<OpKind::Max>);
  t.add("minimum.default min.other", arithmetic<OpKind::Min>);
  t.add("fmax.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self"), b = o.t("other"), xs[] = {a, b};
    return {binary(isFloat(resultType(xs)) ? OpKind::FmaxNum : OpKind::Max, a, b)};
  });
  t.add("fmin.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self"), b = o.t("other"), xs[] = {a, b};
    return {binary(isFloat(resultType(xs)) ? OpKind::FminNum : OpKind::Min, a, b)};
  });
}

static void addFunctionsOfTwo(OpTable &t) {
  t.add("atan2.default arctan2.default", binaryF<OpKind::Atan2>);
  t.add("hypot.default", binaryF<OpKind::Hypot>);
  t.add("copysign.Tensor copysign.Scalar", binaryF<OpKind::CopySign>);
  t.add("nextafter.default", arithmetic<OpKind::NextAfter>);
  t.add("gcd.default", arithmetic<OpKind::Gcd>);
  t.add("lcm.default", arithmetic<OpKind::Lcm>);
  t.add("ldexp.Tensor", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self"), b = o.t("other");
    if (b.isComplex()) return {mul(a, unary(b, OpKind::Exp2))};
    return {cast(mul(a, binary(OpKind::Pow, scalarFloat(o.ctx, 2.0), b.isNumber() ? b : toFloat(b))), o.out().dtype)};
  });
  t.add("special_zeta.default special_zeta.other_scalar special_zeta.self_scalar", binaryF<OpKind::Zeta>);
  t.add("igamma.default special_gammainc.default", binaryF<OpKind::Igamma>);
  t.add("igammac.default special_gammaincc.default", binaryF<OpKind::Igammac>);
  t.add("polygamma.default special_polygamma.default", [](OpCall &o) -> Tensors {
    int64_t n = o.integer("n");
    return {mapFloat(o.t("self"), [n](Val v) {
      return n == 0 ? un(OpKind::Digamma, v) : bin(OpKind::Polygamma, num(v, static_cast<double>(n)), v);
    })};
  });
}

static void addComparisonsAndBits(OpTable &t) {
  t.add("eq.Tensor eq.Scalar", compare<OpKind::Eq>);
  t.add("ne.Tensor ne.Scalar not_equal.Tensor not_equal.Scalar", compare<OpKind::Ne>);
  t.add("lt.Tensor lt.Scalar less.Tensor less.Scalar", compare<OpKind::Lt>);
  t.add("le.Tensor le.Scalar less_equal.Tensor less_equal.Scalar", compare<OpKind::Le>);
  t.add("gt.Tensor gt.Scalar greater.Tensor greater.Scalar", compare<OpKind::Gt>);
  t.add("ge.Tensor ge.Scalar greater_equal.Tensor greater_equal.Scalar", compare<OpKind::Ge>);
  t.add("logical_and.default", logical<OpKind::And>);
  t.add("logical_or.default", logical<OpKind::Or>);
  t.add("logical_xor.default", logical<OpKind::Xor>);
  t.add("logical_not.default", [](OpCall &o) -> Tensors { return {logicalNot(o.t("self"))}; });
  t.add("bitwise_and.Tensor bitwise_and.Scalar bitwise_and.Scalar_Tensor __and__.Tensor __and__.Scalar",
        arithmetic<OpKind::And>);
  t.add("bitwise_or.Tensor bitwise_or.Scalar bitwise_or.Scalar_Tensor __or__.Tensor __or__.Scalar",
        arithmetic<OpKind::Or>);
  t.add("bitwise_xor.Tensor bitwise_xor.Scalar bitwise_xor.Scalar_Tensor __xor__.Tensor __xor__.Scalar",
        arithmetic<OpKind::Xor>);
  t.add("bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar bitwise_left_shift.Scalar_Tensor __lshift__.Tensor "
        "__lshift__.Scalar",
        arithmetic<OpKind::Shl>);
  t.add("bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar bitwise_right_shift.Scalar_Tensor "
        "__rshift__.Tensor __rshift__.Scalar",
        arithmetic<OpKind::Shr>);
  t.add("bitwise_not.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    return {unary(x, x.dtype() == DType::Bool ? OpKind::Not : OpKind::BitNot)};
  });
}

static void addSignsAndRounding(OpTable &t) {
  t.add("neg.default negative.default _neg_view.default _neg_view_copy.default",
        [](OpCall &o) -> Tensors { return {neg(o.t("self"))}; });
  t.add("positive.default", [](OpCall &o) -> Tensors { return {o.t("self")}; });
  t.add("abs.default absolute.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    if (x.dtype() == DType::Bool || isUnsignedInt(x.dtype())) return {x};
    return {lengths(x)};
  });
  t.add("sign.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    if (x.dtype() == DType::Bool) return {x};
    return {unary(x, OpKind::Sign)};
  });
  t.add("sgn.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    if (x.dtype() == DType::Bool) return {x};
    if (!x.isComplex()) return {unary(x, OpKind::Sign)};
    Tensor xs[] = {x.real(), x.imag()};
    DType r = toReal(x.dtype());
    auto part = [&](size_t k) {
      return pointwise(xs, r, r, [k](std::span<const Val> v) {
        Val h = bin(OpKind::Hypot, v[0], v[1]);
        return where(eq(h, 0.0), 0.0, v[k] / h);
      });
    };
    return {Tensor::complex(part(0), part(1), x.dtype())};
  });
  t.add("signbit.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self"), xs[] = {x};
    if (x.dtype() == DType::Bool || isUnsignedInt(x.dtype())) return {full(o.ctx, x.sizes(), DType::Bool, 0)};
    if (isFloat(x.dtype()))
      return {pointwise(xs, x.dtype(), DType::Bool, [](std::span<const Val> v) { return un(OpKind::SignBit, v[0]); })};
    return {pointwise(xs, x.dtype(), DType::Bool, [](std::span<const Val> v) { return v[0] < 0.0; })};
  });
  t.add("floor.default", rounding<OpKind::Floor>);
  t.add("ceil.default", rounding<OpKind::Ceil>);
  t.add("trunc.default fix.default", rounding<OpKind::Trunc>);
  t.add("round.default round.decimals special_round.default", roundOp);
  t.add("frac.default",
        [](OpCall &o) -> Tensors { return {map(o.t("self"), [](Val v) { return v - un(OpKind::Trunc, v); })}; });
}

static void addElementaryFunctions(OpTable &t) {
  t.add("exp.default", unaryF<OpKind::Exp>);
  t.add("exp2.default special_exp2.default", unaryF<OpKind::Exp2>);
  t.add("expm1.default special_expm1.default", unaryF<OpKind::Expm1>);
  t.add("log.default", unaryF<OpKind::Log>);
  t.add("log2.default", unaryF<OpKind::Log2>);
  t.add("log10.default", unaryF<OpKind::Log10>);
  t.add("log1p.default special_log1p.default", unaryF<OpKind::Log1p>);
  t.add("sqrt.default", unaryF<OpKind::Sqrt>);
  t.add("rsqrt.default", unaryF<OpKind::Rsqrt>);
  t.add("reciprocal.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    if (x.isComplex()) return {div(cast(full(o.ctx, {}, DType::F32, 1), x.dtype()), x)};
    return {mapFloat(x, [](Val v) { return 1.0 / v; })};
  });
  t.add("sin.default", unaryF<OpKind::Sin>);
  t.add("cos.default", unaryF<OpKind::Cos>);
  t.add("tan.default", unaryF<OpKind::Tan>);
  t.add("asin.default arcsin.default", unaryF<OpKind::Asin>);
  t.add("acos.default arccos.default", unaryF<OpKind::Acos>);
  t.add("atan.default arctan.default", unaryF<OpKind::Atan>);
  t.add("sinh.default", unaryF<OpKind::Sinh>);
  t.add("cosh.default", unaryF<OpKind::Cosh>);
  t.add("tanh.default", unaryF<OpKind::Tanh>);
  t.add("asinh.default arcsinh.default", unaryF<OpKind::Asinh>);
  t.add("acosh.default arccosh.default", unaryF<OpKind::Acosh>);
  t.add("atanh.default arctanh.default", unaryF<OpKind::Atanh>);
}

static void addSpecialFunctions(OpTable &t) {
  t.add("erf.default special_erf.default", unaryF<OpKind::Erf>);
  t.add("erfc.default special_erfc.default", unaryF<OpKind::Erfc>);
  t.add("erfinv.default special_erfinv.default", erfinvOp);
  t.add("special_erfcx.default", unaryF<OpKind::Erfcx>);
  t.add("lgamma.default special_gammaln.default", unaryF<OpKind::Lgamma>);
  t.add("digamma.default special_digamma.default special_psi.default", unaryF<OpKind::Digamma>);
  t.add("i0.default special_i0.default", unaryF<OpKind::I0>);
  t.add("special_i0e.default", unaryF<OpKind::I0e>);
  t.add("special_i1.default", unaryF<OpKind::I1>);
  t.add("special_i1e.default", unaryF<OpKind::I1e>);
  t.add("special_ndtri.default", unaryF<OpKind::NdtrI>);
  t.add("special_log_ndtr.default", unaryF<OpKind::LogNdtr>);
  t.add("special_bessel_j0.default", unaryF<OpKind::BesselJ0>);
  t.add("special_bessel_j1.default", unaryF<OpKind::BesselJ1>);
  t.add("special_bessel_y0.default", unaryF<OpKind::BesselY0>);
  t.add("special_bessel_y1.default", unaryF<OpKind::BesselY1>);
  t.add("special_modified_bessel_i0.default", unaryF<OpKind::I0>);
  t.add("special_modified_bessel_i1.default", unaryF<OpKind::I1>);
  t.add("special_modified_bessel_k0.default", unaryF<OpKind::K0>);
  t.add("special_modified_bessel_k1.default", unaryF<OpKind::K1>);
  t.add("special_scaled_modified_bessel_k0.default", unaryF<OpKind::K0e>);
  t.add("special_scaled_modified_bessel_k1.default", unaryF<OpKind::K1e>);
  t.add("special_airy_ai.default", unaryF<OpKind::AiryAi>);
  t.add("special_ndtr.default", [](OpCall &o) -> Tensors {
    return {mapFloat(o.t("self"), [](Val v) { return un(OpKind::Erfc, v * -0.7071067811865476) * 0.5; })};
  });
  t.add("special_spherical_bessel_j0.default", [](OpCall &o) -> Tensors {
    return {mapFloat(o.t("self"), [](Val v) {
      Val y = v * v;
      Val series =
          1.0 + y * (-1.0 / 6 +
                     y * (1.0 / 120 +
                          y * (-1.0 / 5040 + y * (1.0 / 362880 + y * (-1.0 / 39916800 + y * (1.0 / 6227020800.0))))));
      Val r = where(un(OpKind::Abs, v) < 0.5, series, un(OpKind::Sin, v) / v);
      return where(un(OpKind::IsInf, v), 0.0, r);
    })};
  });
  t.add("special_entr.default", [](OpCall &o) -> Tensors {
    return {mapFloat(o.t("self"), [](Val v) {
      Val r = where(v > 0.0, -v * un(OpKind::Log, v), where(eq(v, 0.0), 0.0, num(v, -HUGE_VAL)));
      return where(un(OpKind::IsNan, v), v, r);
    })};
  });
  t.add("sinc.default special_sinc.default", [](OpCall &o) -> Tensors {
    if (const Tensor x = o.t("self"); x.isComplex())
      return {pointwiseNumbers({x}, x.dtype(), [](std::span<const Complex> v) {
        const Complex p = v[0] * num(v[0].re, M_PI);
        return where(isZero(v[0]), real(num(p.re, 1)), valueOf(OpKind::Sin, p) / p);
      })};
    return {mapFloat(o.t("self"), [](Val v) {
      Val p = v * M_PI;
      return where(eq(v, 0.0), 1.0, un(OpKind::Sin, p) / p);
    })};
  });
}

static void addAnglesAndLogarithms(OpTable &t) {
  t.add("deg2rad.default",
        [](OpCall &o) -> Tensors { return {mapFloat(o.t("self"), [](Val v) { return v * (M_PI / 180); })}; });
  t.add("rad2deg.default",
        [](OpCall &o) -> Tensors { return {mapFloat(o.t("self"), [](Val v) { return v * (180 / M_PI); })}; });
  t.add("logit.default special_logit.default", [](OpCall &o) -> Tensors {
    std::optional<double> eps = optNumber(o, "eps");
    return {mapFloat(o.t("self"), [eps](Val v) {
      if (eps) v = where(v < *eps, num(v, *eps), where(v > 1 - *eps, num(v, 1 - *eps), v));
      return un(OpKind::Log, v / (1.0 - v));
    })};
  });
  t.add("xlogy.Tensor xlogy.Scalar_Self xlogy.Scalar_Other special_xlogy.default special_xlogy.self_scalar "
        "special_xlogy.other_scalar",
        [](OpCall &o) -> Tensors { return {xlogy(o.t("self"), o.t("other"), false)}; });
  t.add("special_xlog1py.default special_xlog1py.self_scalar special_xlog1py.other_scalar",
        [](OpCall &o) -> Tensors { return {xlogy(o.t("self"), o.t("other"), true)}; });
  t.add("logaddexp.default", [](OpCall &o) -> Tensors {
    const Tensor a = o.t("self"), b = o.t("other"), xs[] = {a, b};
    if (const DType d = resultType(xs); isComplex(d))
      return {pointwiseNumbers({a, b}, d, [](std::span<const Complex> v) { return logOfSum(v[0], v[1]); })};
    return {logaddexp(a, b, false)};
  });
  t.add("logaddexp2.default", [](OpCall &o) -> Tensors { return {logaddexp(o.t("self"), o.t("other"), true)}; });
  t.add("heaviside.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self"), b = o.t("values"), xs[] = {a, b};
    DType d = resultType(xs);
    return {pointwise(xs, d, d, [](std::span<const Val> v) {
      Val zero = num(v[0], 0), one = num(v[0], 1);
      if (v[0].dtype == DType::Bool) return v[0] || v[1];
      Val r = where(v[0] > zero, one, where(eq(v[0], zero), v[1], zero));
      return r;
    })};
  });
}

static void addTestsOfValues(OpTable &t) {
  t.add("isnan.default", [](OpCall &o) -> Tensors { return {binary(OpKind::Ne, o.t("self"), o.t("self"))}; });
  t.add("isinf.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    auto inf = [](const Tensor &p) {
      Tensor xs[] = {p};
      return pointwise(xs, p.dtype(), DType::Bool, [](std::span<const Val> v) { return un(OpKind::IsInf, v[0]); });
    };
    if (x.isComplex()) return {binary(OpKind::Or, inf(x.real()), inf(x.imag()))};
    if (!isFloat(x.dtype())) return {full(o.ctx, x.sizes(), DType::Bool, 0)};
    return {inf(x)};
  });
  t.add("isfinite.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    auto finite = [](const Tensor &p) {
      Tensor xs[] = {p};
      return pointwise(xs, p.dtype(), DType::Bool,
                       [](std::span<const Val> v) { return un(OpKind::Abs, v[0]) < HUGE_VAL; });
    };
    if (x.isComplex()) return {binary(OpKind::And, finite(x.real()), finite(x.imag()))};
    if (!isFloat(x.dtype())) return {full(o.ctx, x.sizes(), DType::Bool, 1)};
    return {finite(x)};
  });
  t.add("isposinf.default isneginf.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self"), xs[] = {x};
    double inf = o.node.target == "aten.isposinf.default" ? HUGE_VAL : -HUGE_VAL;
    if (!isFloat(x.dtype())) return {full(o.ctx, x.sizes(), DType::Bool, 0)};
    return {pointwise(xs, x.dtype(), DType::Bool, [inf](std::span<const Val> v) { return eq(v[0], inf); })};
  });
  t.add("nan_to_num.default", [](OpCall &o) -> Tensors {
    return {nanToNum(o.t("self"), o.number("nan", 0), optNumber(o, "posinf"), optNumber(o, "neginf"))};
  });
}

static void addChoices(OpTable &t) {
  t.add("where.self where.ScalarSelf where.ScalarOther where.Scalar",
        [](OpCall &o) -> Tensors { return {where(o.t("condition"), o.t("self"), o.t("other"))}; });
  t.add("masked_fill.Scalar masked_fill.Tensor", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self"), m = o.t("mask"), v = cast(o.t("value"), x.dtype());
    Tensor xm[] = {x, m};
    Sizes sizes = broadcastSizes(xm);
    return {where(m, broadcastTo(v, sizes), broadcastTo(x, sizes))};
  });
  t.add("clamp.default clamp.Tensor clip.default clip.Tensor clamp_min.default clamp_min.Tensor clamp_max.default "
        "clamp_max.Tensor",
        clampOp);
}

static void addActivations(OpTable &t) {
  t.add("relu.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    if (isFloat(x.dtype())) return {unary(x, OpKind::Relu)};
    return {map(x, [](Val v) { return vmax(v, num(v, 0)); })};
  });
  t.add("relu6.default", [](OpCall &o) -> Tensors {
    return {map(o.t("self"), [](Val v) { return vmin(vmax(v, num(v, 0)), num(v, 6)); })};
  });
  t.add("hardtanh.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    // ATen takes the limits of integers as integers, whatever they are written as.
    if (isInteger(x.dtype()))
      return clamped(x, scalarInt(o.ctx, o.integer("min_val", -1)), scalarInt(o.ctx, o.integer("max_val", 1)));
    double lo = o.number("min_val", -1), hi = o.number("max_val", 1);
    return {map(x, [=](Val v) { return vmin(vmax(v, num(v, lo)), num(v, hi)); })};
  });
  t.add("sigmoid.default special_expit.default", unaryF<OpKind::Sigmoid>);
  t.add("silu.default",
        [](OpCall &o) -> Tensors {
          if (const Tensor x = o.t("self"); x.isComplex()) return {mul(x, unary(x, OpKind::Sigmoid))};
          return {mapFloat(o.t("self"), [](Val v) { return v * sigmoidOf(v); })};
        });
  t.add("hardsigmoid.default", [](OpCall &o) -> Tensors {
    return {map(o.t("self"), [](Val v) { return vmin(vmax(v + 3.0, num(v, 0)), num(v, 6)) / 6.0; })};
  });
  t.add("hardswish.default", [](OpCall &o) -> Tensors {
    return {map(o.t("self"), [](Val v) { return v * vmin(vmax(v + 3.0, num(v, 0)), num(v, 6)) / 6.0; })};
  });
  t.add("gelu.default", geluOp);
  t.add("elu.default celu.default selu.default", [](OpCall &o) -> Tensors {
    if (o.node.target == "aten.selu.default") {
      return {map(o.t("self"), [](Val x) {
        double scale = 1.0507009873554804934193349852946, alpha = 1.6732632423543772848170429916717;
        return where(x > 0.0, x * scale, un(OpKind::Expm1, x) * (alpha * scale));
      })};
    }
    if (o.node.target == "aten.celu.default") {
      double a = o.number("alpha", 1);
      return {map(o.t("self"), [a](Val x) { return where(x > 0.0, x, un(OpKind::Expm1, x / a) * a); })};
    }
    return eluOp(o);
  });
}

static void addMoreActivations(OpTable &t) {
  t.add("leaky_relu.default", [](OpCall &o) -> Tensors {
    double s = o.number("negative_slope", 0.01);
    return {map(o.t("self"), [s](Val x) { return where(x > 0.0, x, x * s); })};
  });
  t.add("prelu.default _prelu_kernel.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self"), w = o.t("weight");
    if (o.node.target == "aten.prelu.default" && x.rank() > 1 && w.rank() <= 1 && !w.numel().isConst(1)) {
      Sizes s(x.sizes().size(), Expr(1));
      s[1] = x.sizes()[1];
      w = reshape(w, s);
    } else if (o.node.target == "aten.prelu.default" && w.rank() == 1 && w.numel().isConst(1)) {
      w = reshape(w, {});
    }
    Tensor xs[] = {x, w};
    return {pointwise(xs, x.dtype(), x.dtype(),
                      [](std::span<const Val> v) { return where(v[0] > 0.0, v[0], v[0] * v[1]); })};
  });
  t.add("mish.default", [](OpCall &o) -> Tensors {
    return {map(o.t("self"), [](Val v) {
      Val sp = where(v > 20.0, v, un(OpKind::Log1p, un(OpKind::Exp, v)));
      return v * un(OpKind::Tanh, sp);
    })};
  });
  t.add("softplus.default", [](OpCall &o) -> Tensors {
    double beta = o.number("beta", 1), threshold = o.number("threshold", 20);
    return {map(o.t("self"), [=](Val v) {
      return where(v * beta > threshold, v, un(OpKind::Log1p, un(OpKind::Exp, v * beta)) / beta);
    })};
  });
  t.add("log_sigmoid.default log_sigmoid_forward.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    Tensor r =
        map(x, [](Val v) { return vmin(v, num(v, 0)) - un(OpKind::Log1p, un(OpKind::Exp, -un(OpKind::Abs, v))); });
    // What the CPU keeps for the gradient.
    if (o.outCount() > 1 && o.out(1).rank() == x.rank() && !(x.rank() == 1 && o.out(1).sizes[0].isConst(0)))
      return {r, map(x, [](Val v) { return un(OpKind::Exp, -un(OpKind::Abs, v)); })};
    return {r, full(o.ctx, {Expr(0)}, x.dtype(), 0)};
  });
  t.add("softshrink.default", [](OpCall &o) -> Tensors {
    double l = o.number("lambd", 0.5);
    return {map(o.t("self"), [l](Val v) { return where(v > l, v - l, where(v < -l, v + l, v * 0.0)); })};
  });
  t.add("hardshrink.default", [](OpCall &o) -> Tensors {
    double l = o.number("lambd", 0.5);
    return {map(o.t("self"), [l](Val v) { return where(v >= -l && v <= l, 0.0, v); })};
  });
  t.add("tanhshrink.default",
        [](OpCall &o) -> Tensors {
          if (const Tensor x = o.t("self"); x.isComplex()) return {sub(x, unary(x, OpKind::Tanh))};
          return {map(o.t("self"), [](Val v) { return v - un(OpKind::Tanh, v); })};
        });
  t.add("threshold.default", [](OpCall &o) -> Tensors {
    double th = o.number("threshold"), v0 = o.number("value");
    return {map(o.t("self"), [=](Val v) { return where(v <= th, v0, v); })};
  });
  t.add("softsign.default", [](OpCall &o) -> Tensors {
    if (const Tensor x = o.t("self"); x.isComplex())
      return {pointwiseNumbers({x}, x.dtype(), [](std::span<const Complex> v) { return v[0] / (1.0 + lengthOf(v[0])); })};
    return {mapFloat(o.t("self"), [](Val v) { return v / (1.0 + un(OpKind::Abs, v)); })};
  });
}

static Tensor closeNumbers(const Tensor &a, const Tensor &b, double rtol, double atol, bool equalNan) {
  Tensor parts[] = {a.real(), a.imag(), b.real(), b.imag()};
  return pointwise(parts, toReal(a.dtype()), DType::Bool, [=](std::span<const Val> v) {
    const Complex x{v[0], v[1]}, y{v[2], v[3]};
    const Val apart = lengthOf(x - y);
    Val r = (eq(x.re, y.re) && eq(x.im, y.im)) || (apart <= lengthOf(y * num(v[0], rtol)) + atol && apart < HUGE_VAL);
    auto isNan = [](Complex z) { return un(OpKind::IsNan, z.re) || un(OpKind::IsNan, z.im); };
    if (equalNan) r = r || (isNan(x) && isNan(y));
    return r;
  });
}

static void addBlends(OpTable &t) {
  t.add("glu.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    int64_t d = o.integer("dim", -1);
    Expr half = floorDiv(x.size(d), 2);
    return {mul(slice(x, d, 0, half), unary(slice(x, d, half, half), OpKind::Sigmoid))};
  });
  t.add("addcmul.default addcdiv.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("tensor1"), b = o.t("tensor2");
    bool mulOp = o.node.target == "aten.addcmul.default";
    Tensor p = mulOp ? mul(a, b) : div(a, b);
    return {add(o.t("self"), scaledBy(o, p, "value"))};
  });
  t.add("lerp.Scalar lerp.Tensor", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self"), b = o.t("end"), w = o.t("weight");
    if (a.isComplex() || w.isComplex()) return {add(a, mul(w, sub(b, a)))};
    Tensor xs[] = {a, b, w};
    return {pointwise(xs, a.dtype(), a.dtype(), [](std::span<const Val> v) {
      Val d = v[1] - v[0];
      return where(un(OpKind::Abs, v[2]) < 0.5, v[0] + v[2] * d, v[1] - d * (1.0 - v[2]));
    })};
  });
  t.add("isclose.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self"), b = o.t("other"), xs[] = {a, b};
    double rtol = o.number("rtol", 1e-5), atol = o.number("atol", 1e-8);
    bool nan = o.flag("equal_nan");
    if (a.isComplex()) return {closeNumbers(a, b, rtol, atol, nan)};
    DType ty = a.dtype();
    bool fl = isFloat(ty);
    DType c = fl ? ty : DType::F64;
    return {pointwise(xs, c, DType::Bool, [=](std::span<const Val> v) {
      Val same = eq(v[0], v[1]);
      Val tol = un(OpKind::Abs, v[1] * rtol) + atol;
      Val near = un(OpKind::Abs, v[0] - v[1]) <= tol && un(OpKind::Abs, v[0] - v[1]) < HUGE_VAL;
      Val r = same || near;
      if (nan) r = r || (un(OpKind::IsNan, v[0]) && un(OpKind::IsNan, v[1]));
      return r;
    })};
  });
}

static void stateComplex(OpTable &t) {
  t.onComplex(OnComplex::Own, "add sub subtract rsub mul multiply div.Tensor div.Scalar divide.Tensor divide.Scalar true_divide pow float_power square "
                              "eq ne not_equal logical_and logical_or logical_xor logical_not neg negative _neg_view _neg_view_copy positive "
                              "abs absolute sgn exp exp2 special_exp2 expm1 special_expm1 log log2 log10 log1p special_log1p sqrt rsqrt reciprocal "
                              "sin cos tan asin arcsin acos arccos atan arctan sinh cosh tanh asinh arcsinh acosh arccosh atanh arctanh "
                              "sigmoid special_expit sinc special_sinc logaddexp isnan isinf isfinite where masked_fill silu tanhshrink softsign "
                              "addcmul addcdiv lerp isclose glu ldexp");
  t.onComplex(OnComplex::Parts, "nan_to_num");
}

void addPointwise(OpTable &t) {
  addArithmetic(t);
  addFunctionsOfTwo(t);
  addComparisonsAndBits(t);
  addSignsAndRounding(t);
  addElementaryFunctions(t);
  addSpecialFunctions(t);
  addAnglesAndLogarithms(t);
  addTestsOfValues(t);
  addChoices(t);
  addActivations(t);
  addMoreActivations(t);
  addBlends(t);
  stateComplex(t);
}

} // namespace neso::lower
