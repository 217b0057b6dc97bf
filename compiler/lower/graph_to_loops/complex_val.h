// Arithmetic of numbers that may be complex, in the code of one loop nest.
#pragma once
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

/// A number with two parts, or a real one, which has no imaginary part: `im` is not valid then, and nothing is computed for it.
struct Complex {
  Val re, im;
  bool isReal() const { return !im.valid(); }
};

inline Complex real(Val v) { return {v, num(v, 0)}; }
/// With both parts.
inline Complex widened(Complex a) { return a.isReal() ? real(a.re) : a; }
inline Complex conjugate(Complex a) { return a.isReal() ? a : Complex{a.re, -a.im}; }
inline Complex operator-(Complex a) { return {-a.re, a.isReal() ? a.im : -a.im}; }
inline Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.isReal() ? b.im : b.isReal() ? a.im : a.im + b.im}; }
inline Complex operator-(Complex a, Complex b) { return {a.re - b.re, b.isReal() ? a.im : a.isReal() ? -b.im : a.im - b.im}; }
inline Complex operator*(Complex a, Val b) { return {a.re * b, a.isReal() ? a.im : a.im * b}; }
inline Complex operator*(Complex a, Complex b) {
  if (b.isReal()) return a * b.re;
  if (a.isReal()) return b * a.re;
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
inline Complex operator/(Complex a, Val b) { return {a.re / b, a.isReal() ? a.im : a.im / b}; }
/// By Smith's method, against overflow. The quotient by 0 is what PyTorch says: its parts are those of a by 0.
inline Complex operator/(Complex a, Complex b) {
  if (b.isReal()) return a / b.re;
  a = widened(a);
  const Val re = un(OpKind::Abs, b.re), im = un(OpKind::Abs, b.im), upright = re < im, zero = eq(re, 0.0) && eq(im, 0.0);
  const Val larger = where(upright, b.im, b.re), ratio = where(upright, b.re, b.im) / larger;
  const Val by = larger + where(upright, b.re, b.im) * ratio;
  const Val x = where(upright, a.re * ratio + a.im, a.re + a.im * ratio), y = where(upright, a.im * ratio - a.re, a.im - a.re * ratio);
  return {where(zero, a.re / re, x / by), where(zero, a.im / im, y / by)};
}
inline Complex where(Val c, Complex a, Complex b) {
  if (a.isReal() && b.isReal()) return {where(c, a.re, b.re), {}};
  a = widened(a), b = widened(b);
  return {where(c, a.re, b.re), where(c, a.im, b.im)};
}
/// What LAPACK compares: the sum of the parts' absolute values.
inline Val sizeOf(Complex a) { return a.isReal() ? un(OpKind::Abs, a.re) : un(OpKind::Abs, a.re) + un(OpKind::Abs, a.im); }
inline Val squareOf(Complex a) { return a.isReal() ? a.re * a.re : a.re * a.re + a.im * a.im; }
inline Val lengthOf(Complex a) { return a.isReal() ? un(OpKind::Abs, a.re) : bin(OpKind::Hypot, a.re, a.im); }
inline Val isZero(Complex a) { return a.isReal() ? eq(a.re, 0.0) : eq(a.re, 0.0) && eq(a.im, 0.0); }
/// i a and -i a.
inline Complex turnedLeft(Complex a) { return {-a.im, a.re}; }
inline Complex turnedRight(Complex a) { return {a.im, -a.re}; }

/// The element of a tensor, real or complex.
inline Complex numberAt(BodyBuilder &b, const Tensor &x, const Index &i) {
  if (!x.isComplex()) return {x.at(b, i), {}};
  return {x.real().at(b, i), x.imag().at(b, i)};
}
/// A tensor of type t whose elements fn gives; both parts are one node where it is put into memory.
using NumberFn = std::function<Complex(BodyBuilder &, const Index &)>;
Tensor numbers(Lowering &ctx, DType t, const Sizes &sizes, const NumberFn &fn);
/// fn over the broadcast elements of xs, which take type t first.
Tensor pointwiseNumbers(const Tensors &xs, DType t, const std::function<Complex(std::span<const Complex>)> &fn);

/// The function of that name of a complex number, which has both parts, as C and PyTorch define it on branch cuts and at infinity. `known`: of
/// complex numbers there is one.
bool known(OpKind function);
Complex valueOf(OpKind function, Complex z);
/// exp(w log z).
Complex powOf(Complex z, Complex w);
/// The logarithm of exp(a) + exp(b), of which the one with the larger real part stands outside.
Complex logOfSum(Complex a, Complex b);

} // namespace neso::lower
