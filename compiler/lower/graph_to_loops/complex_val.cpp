#include "lower/graph_to_loops/complex_val.h"

#include <cmath>
#include <limits>

namespace neso::lower {

Tensor numbers(Lowering &ctx, DType t, const Sizes &sizes, const NumberFn &fn) {
  const DType part = toReal(t);
  auto element = [&](bool imaginary) {
    return Tensor::lazy(ctx, part, sizes, [fn, part, imaginary](BodyBuilder &b, const Index &i) {
      const Complex v = fn(b, i);
      return b.cast(!imaginary ? v.re : v.isReal() ? num(v.re, 0) : v.im, computeType(part));
    });
  };
  return isComplex(t) ? Tensor::complex(element(false), element(true), t) : element(false);
}

Tensor pointwiseNumbers(const Tensors &xs, DType t, const std::function<Complex(std::span<const Complex>)> &fn) {
  const Sizes sizes = broadcastSizes(xs);
  Tensors ys;
  for (const Tensor &x : xs) ys.push_back(broadcastTo(cast(x, t), sizes));
  return numbers(xs[0].ctx(), t, sizes, [ys, fn](BodyBuilder &b, const Index &i) {
    std::vector<Complex> values;
    for (const Tensor &y : ys) values.push_back(numberAt(b, y, i));
    return fn(values);
  });
}

namespace {

Val absOf(Val v) { return un(OpKind::Abs, v); }
Val isInf(Val v) { return un(OpKind::IsInf, v); }
Val isFinite(Val v) { return absOf(v) < HUGE_VAL; }
Val withSign(Val size, Val sign) { return bin(OpKind::CopySign, size, sign); }
Val logarithm(Val v) { return un(OpKind::Log, v); }

/// The greatest number of a value's type, its logarithm, and the least normal number.
double greatest(Val v) { return v.dtype == DType::F64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max(); }
double logOfGreatest(Val v) { return std::log(greatest(v)); }
double least(Val v) { return v.dtype == DType::F64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min(); }

/// a b, in which a zero beats infinity and NaN: 0 times an unbounded part of a function is 0.
Val timesZero(Val a, Val b) {
  return where(eq(a, 0.0) && !isFinite(b), a, where(eq(b, 0.0) && !isFinite(a), b, a * b));
}

/// The hyperbolic sine or cosine of x times a factor of at most one, where only the product need be finite.
Val hyperbolic(OpKind kind, Val x, Val factor) {
  const Val half = un(OpKind::Exp, absOf(x) * 0.5), large = (half * 0.5 * factor) * half;
  const Val far = absOf(x) > logOfGreatest(x) - 1.0;
  const Val near = timesZero(un(kind, x), factor);
  return where(far && isFinite(x), kind == OpKind::Sinh ? where(x < 0.0, -large, large) : large, near);
}

/// Where squares of such a part would overflow.
Val isLarge(Complex z) {
  const double limit = std::sqrt(greatest(z.re)) / 4;
  return absOf(z.re) > limit || absOf(z.im) > limit;
}
/// The logarithm of 2 |z| for large z.
Val logOfTwice(Complex z) { return logarithm(bin(OpKind::Hypot, z.re * 0.5, z.im * 0.5)) + std::log(4.0); }

Complex expOf(Complex z) {
  const Val size = un(OpKind::Exp, z.re);
  return {size * un(OpKind::Cos, z.im), size * un(OpKind::Sin, z.im)};
}

/// exp(z) - 1 without cancellation near 0.
Complex expm1Of(Complex z) {
  const Val half = un(OpKind::Sin, z.im * 0.5);
  return {un(OpKind::Expm1, z.re) * un(OpKind::Cos, z.im) - half * half * 2.0, un(OpKind::Exp, z.re) * un(OpKind::Sin, z.im)};
}

Complex logOf(Complex z) {
  const Val length = bin(OpKind::Hypot, z.re, z.im), a = absOf(z.re), b = absOf(z.im), larger = vmax(a, b), smaller = vmin(a, b);
  // Near the unit circle the length has lost what the logarithm shows.
  const Val near = larger > 0.5 && larger < 2.0 && length < 2.0;
  const Val excess = (larger - 1.0) * (larger + 1.0) + smaller * smaller;
  return {where(near, un(OpKind::Log1p, where(near, excess, 0.0)) * 0.5, logarithm(length)), bin(OpKind::Atan2, z.im, z.re)};
}

Complex log1pOf(Complex z) {
  const Val angle = bin(OpKind::Atan2, z.im, z.re + 1.0), small = bin(OpKind::Hypot, z.re, z.im) < 0.5;
  const Val excess = where(small, z.re * (z.re + 2.0) + z.im * z.im, 0.0);
  // Of a number so small that the excess vanishes the logarithm is the number.
  const Val inner = where(eq(excess, 0.0), z.re, un(OpKind::Log1p, excess) * 0.5);
  return {where(small, inner, logarithm(bin(OpKind::Hypot, z.re + 1.0, z.im))), angle};
}

Complex sqrtOf(Complex z) {
  const Val largest = vmax(absOf(z.re), absOf(z.im));
  // Powers of four, of which the root is exact, keep sums and squares in range.
  const double tiny = least(z.re) * 0x1p8;
  const Val in = where(largest > greatest(z.re) / 16, num(z.re, 0x1p-4), where(largest < tiny, num(z.re, 0x1p30), num(z.re, 1)));
  const Val out = where(largest > greatest(z.re) / 16, num(z.re, 4), where(largest < tiny, num(z.re, 0x1p-15), num(z.re, 1)));
  const Val x = z.re * in, y = z.im * in;
  const Val t = un(OpKind::Sqrt, (absOf(x) + bin(OpKind::Hypot, x, y)) * 0.5), other = absOf(y) / (t * 2.0);
  const Val zero = eq(z.re, 0.0) && eq(z.im, 0.0), right = z.re >= 0.0;
  Complex r{where(right, t, other) * out, withSign(where(right, other, t) * out, z.im)};
  r = where(zero, {num(z.re, 0), z.im}, r);
  const Val infinite = num(z.re, HUGE_VAL), nan = eq(z.im, z.im);
  // Along the real axis at infinity; a NaN beside it stays one.
  const Complex far = where(z.re > 0.0, {infinite, where(nan, withSign(num(z.re, 0), z.im), z.im)},
                            {where(nan, num(z.re, 0), z.im), withSign(infinite, z.im)});
  r = where(isInf(z.re), far, r);
  return where(isInf(z.im), {infinite, z.im}, r);
}

Complex sinhOf(Complex z) {
  const Val flat = eq(z.im, 0.0);
  const Val re = where(isInf(z.re) && !isFinite(z.im), absOf(z.re), hyperbolic(OpKind::Sinh, z.re, un(OpKind::Cos, z.im)));
  return {where(flat, un(OpKind::Sinh, z.re), re), where(flat, z.im, hyperbolic(OpKind::Cosh, z.re, un(OpKind::Sin, z.im)))};
}

Complex coshOf(Complex z) {
  const Val flat = eq(z.im, 0.0);
  const Val re = where(isInf(z.re) && !isFinite(z.im), absOf(z.re), hyperbolic(OpKind::Cosh, z.re, un(OpKind::Cos, z.im)));
  const Val along = withSign(num(z.re, 1), z.re) * z.im;
  return {where(flat, un(OpKind::Cosh, z.re), re),
          where(flat, along, where(eq(z.re, 0.0) && !isFinite(z.im), z.re, hyperbolic(OpKind::Sinh, z.re, un(OpKind::Sin, z.im))))};
}

Complex tanhOf(Complex z) {
  const Val s = un(OpKind::Sinh, z.re), c = un(OpKind::Cosh, z.re), sine = un(OpKind::Sin, z.im), cosine = un(OpKind::Cos, z.im);
  const Val size = s * s + cosine * cosine;
  const Complex near{s * c / size, sine * cosine / size};
  // sinh² would overflow: what is left of the imaginary part is 4 sin cos exp(-2 |x|).
  const Val far = absOf(z.re) > logOfGreatest(z.re) / 2 - 1.0;
  const Val left = where(isInf(z.re), withSign(num(z.re, 0), where(isFinite(z.im), sine * cosine, z.im)),
                         sine * cosine * 4.0 * un(OpKind::Exp, absOf(z.re) * -2.0));
  const Complex r = where(far, {withSign(num(z.re, 1), z.re), left}, near);
  return {where(eq(z.re, 0.0), z.re, r.re), where(eq(z.im, 0.0), z.im, r.im)};
}

// Kahan's forms, from square roots of 1 + z and 1 - z, which keep the signs of zeros on branch cuts.

Complex asinhOf(Complex z) {
  const Complex a = sqrtOf({z.im + 1.0, -z.re}), b = sqrtOf({1.0 - z.im, z.re});
  const Complex near{un(OpKind::Asinh, a.re * b.im - b.re * a.im), bin(OpKind::Atan2, z.im, a.re * b.re - a.im * b.im)};
  const Complex r = where(isLarge(z), {withSign(logOfTwice(z), z.re), bin(OpKind::Atan2, z.im, absOf(z.re))}, near);
  return {r.re, where(eq(z.im, 0.0), z.im, r.im)};
}

Complex acoshOf(Complex z) {
  const Complex a = sqrtOf({z.re - 1.0, z.im}), b = sqrtOf({z.re + 1.0, z.im});
  const Complex near{un(OpKind::Asinh, a.re * b.re + a.im * b.im), bin(OpKind::Atan2, a.im, b.re) * 2.0};
  return where(isLarge(z), {logOfTwice(z), bin(OpKind::Atan2, z.im, z.re)}, near);
}

Complex acosOf(Complex z) {
  const Complex a = sqrtOf({1.0 - z.re, -z.im}), b = sqrtOf({z.re + 1.0, z.im});
  const Complex near{bin(OpKind::Atan2, a.re, b.re) * 2.0, un(OpKind::Asinh, b.re * a.im - b.im * a.re)};
  return where(isLarge(z), {bin(OpKind::Atan2, absOf(z.im), z.re), withSign(logOfTwice(z), -z.im)}, near);
}

Complex atanhOf(Complex z) {
  // Of the right half plane; the function is odd.
  const Val x = absOf(z.re), y = withSign(num(z.im, 1), z.re) * z.im, height = absOf(y);
  const Val half = bin(OpKind::Hypot, x * 0.5, y * 0.5), quarterTurn = num(x, M_PI / 2);
  const Complex far{where(isInf(x) || isInf(y), num(x, 0), x / 4.0 / half / half), withSign(quarterTurn, y)};
  const double small = std::sqrt(least(x));
  const Val atOne = eq(x, 1.0) && height < small;
  const Complex pole{where(eq(height, 0.0), num(x, HUGE_VAL), -logarithm(un(OpKind::Sqrt, height) / un(OpKind::Sqrt, bin(OpKind::Hypot, height, num(x, 2))))),
                     where(eq(height, 0.0), y, withSign(bin(OpKind::Atan2, num(x, 2), -height) * 0.5, y))};
  const Val below = 1.0 - x;
  const Complex near{un(OpKind::Log1p, x * 4.0 / (below * below + height * height)) * 0.25,
                     -(bin(OpKind::Atan2, y * -2.0, below * (x + 1.0) - height * height) * 0.5)};
  const Complex r = where(isLarge(z), far, where(atOne, pole, near));
  const Val sign = withSign(num(x, 1), z.re);
  return {sign * r.re, sign * r.im};
}

/// The functions of i z are those of z, turned.
Complex sinOf(Complex z) { return turnedRight(sinhOf(turnedLeft(z))); }
Complex cosOf(Complex z) { return coshOf(turnedLeft(z)); }
Complex tanOf(Complex z) { return turnedRight(tanhOf(turnedLeft(z))); }
Complex asinOf(Complex z) { return turnedRight(asinhOf(turnedLeft(z))); }
Complex atanOf(Complex z) { return turnedRight(atanhOf(turnedLeft(z))); }
Complex exp2Of(Complex z) { return expOf(z * num(z.re, M_LN2)); }
Complex log2Of(Complex z) { return logOf(z) * num(z.re, 1 / M_LN2); }
Complex log10Of(Complex z) { return logOf(z) * num(z.re, 1 / M_LN10); }
Complex rsqrtOf(Complex z) { return Complex{num(z.re, 1), {}} / sqrtOf(z); }
Complex sigmoidOf(Complex z) {
  const Complex one{num(z.re, 1), {}};
  return one / (one + expOf(-z));
}

struct Function {
  OpKind kind;
  Complex (*value)(Complex);
};
constexpr Function kFunctions[] = {
    {OpKind::Exp, expOf},     {OpKind::Exp2, exp2Of},   {OpKind::Expm1, expm1Of}, {OpKind::Log, logOf},     {OpKind::Log2, log2Of},
    {OpKind::Log10, log10Of}, {OpKind::Log1p, log1pOf}, {OpKind::Sqrt, sqrtOf},   {OpKind::Rsqrt, rsqrtOf}, {OpKind::Sin, sinOf},
    {OpKind::Cos, cosOf},     {OpKind::Tan, tanOf},     {OpKind::Asin, asinOf},   {OpKind::Acos, acosOf},   {OpKind::Atan, atanOf},
    {OpKind::Sinh, sinhOf},   {OpKind::Cosh, coshOf},   {OpKind::Tanh, tanhOf},   {OpKind::Asinh, asinhOf}, {OpKind::Acosh, acoshOf},
    {OpKind::Atanh, atanhOf}, {OpKind::Sigmoid, sigmoidOf}};

const Function *functionOf(OpKind kind) {
  for (const Function &f : kFunctions)
    if (f.kind == kind) return &f;
  return nullptr;
}

} // namespace

bool known(OpKind function) { return functionOf(function) != nullptr; }
Complex valueOf(OpKind function, Complex z) { return functionOf(function)->value(z); }

Complex powOf(Complex z, Complex w) {
  const Complex power = w * logOf(z), r = expOf(power);
  // The logarithm of 0 is infinite, and what it turns about has no bounds.
  const Val boundless = isInf(power.re) && !isFinite(power.im);
  const Complex end{where(power.re > 0.0, power.re, num(power.re, 0)), where(power.re > 0.0, num(power.re, NAN), num(power.re, 0))};
  return where(isZero(z) && w.re > 0.0, real(num(z.re, 0)), where(boundless, end, r));
}

Complex logOfSum(Complex a, Complex b) {
  const Val second = a.re < b.re;
  const Complex larger = where(second, b, a), smaller = where(second, a, b);
  const Complex apart = larger + valueOf(OpKind::Log1p, valueOf(OpKind::Exp, smaller - larger));
  const Val equal = eq(a.re, b.re) && !(un(OpKind::Abs, a.re) < HUGE_VAL);
  // Differences of equal infinities are no numbers.
  const Complex together = where(a.re < 0.0, smaller, valueOf(OpKind::Log, valueOf(OpKind::Exp, a) + valueOf(OpKind::Exp, b)));
  return where(equal, together, apart);
}

} // namespace neso::lower
