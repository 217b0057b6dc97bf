// Orthogonal polynomials of degree n: Chebyshev (four kinds, plain and shifted), Hermite, Laguerre, Legendre.
//
// Chebyshev polynomials have closed forms in cos and cosh, so that the degree may be data. The others are recurrences,
// unrolled: the degree has to be a number or at most 128, which is checked at run time (in Hermite's case ATen itself
// answers NaN above it, in F32).
#include <cmath>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

namespace {
enum class Chebyshev { T, U, V, W };
constexpr int64_t kMaxDegree = 128; // of an unrolled recurrence
} // namespace

/// x, the degree truncated to an integer, and the type of the result.
static Tensor polynomial(OpCall &o, const std::function<Val(Val x, Val n)> &fn) {
  Tensor xs[] = {o.t("x"), o.t("n")};
  DType t = floatType(resultType(xs));
  return pointwise(xs, t, t, [fn](std::span<const Val> v) { return fn(v[0], un(OpKind::Trunc, v[1])); });
}

/// Computed in F64: the quotients lose digits near |x| = 1.
static Val chebyshevOf(Val x0, Val n0, Chebyshev kind, bool shifted) {
  BodyBuilder &b = *x0.b;
  Val x = b.cast(x0, DType::F64), n = b.cast(n0, DType::F64);
  if (shifted) x = x + x - 1.0;
  Val odd = ne(bin(OpKind::Fmod, n, 2.0), 0.0), negative = x < 0.0, a = un(OpKind::Abs, x);
  // Outside of [-1, 1] cos becomes cosh of |x|; there P(-x) = (-1)^n P(x), with V and W changing places.
  Val theta = un(OpKind::Acos, x), eta = un(OpKind::Acosh, a);
  auto inner = [&]() -> Val {
    switch (kind) {
    case Chebyshev::T: return un(OpKind::Cos, n * theta);
    case Chebyshev::U: return un(OpKind::Sin, (n + 1.0) * theta) / un(OpKind::Sin, theta);
    case Chebyshev::V: return un(OpKind::Cos, (n + 0.5) * theta) / un(OpKind::Cos, theta * 0.5);
    case Chebyshev::W: return un(OpKind::Sin, (n + 0.5) * theta) / un(OpKind::Sin, theta * 0.5);
    }
    return x;
  };
  auto outer = [&]() -> Val {
    if (kind == Chebyshev::T) return un(OpKind::Cosh, n * eta);
    if (kind == Chebyshev::U) return un(OpKind::Sinh, (n + 1.0) * eta) / un(OpKind::Sinh, eta);
    Val v = un(OpKind::Cosh, (n + 0.5) * eta) / un(OpKind::Cosh, eta * 0.5);
    Val w = un(OpKind::Sinh, (n + 0.5) * eta) / un(OpKind::Sinh, eta * 0.5);
    return kind == Chebyshev::V ? where(negative, w, v) : where(negative, v, w);
  };
  Val one = num(x, 1.0), twice = n + n + 1.0;
  Val edge = kind == Chebyshev::T   ? one
             : kind == Chebyshev::U ? n + 1.0
             : kind == Chebyshev::V ? where(negative, twice, one)
                                    : where(negative, one, twice);
  Val far = where(eq(a, 1.0), edge, outer());
  far = where(negative && odd, -far, far);
  Val r = where(a < 1.0, inner(), far);
  r = where(eq(n, 0.0), 1.0, r);
  return b.cast(where(n < 0.0, 0.0, r), x0.dtype);
}

template <Chebyshev K, bool Shifted> static Tensors chebyshev(OpCall &o) {
  return {polynomial(o, [](Val x, Val n) { return chebyshevOf(x, n, K, Shifted); })};
}

/// One step of a recurrence: P(k + 1) from P(k) = q and P(k - 1) = p.
using Step = Val (*)(Val x, Val q, Val p, double k);

/// P(1) by `first`; all degrees up to `most`, of which the element's is taken, or of degree `most` alone when n is
/// invalid.
static Val recurrence(Val x, Val n, int64_t most, const std::function<Val(Val)> &first, Step step) {
  Val p = num(x, 1.0);
  if (most <= 0 && !n.valid()) return most < 0 ? num(x, 0.0) : p;
  Val q = first(x), result = q;
  if (n.valid()) result = where(n < 0.0, num(x, 0.0), where(eq(n, 0.0), p, where(eq(n, 1.0), q, num(x, NAN))));
  for (int64_t k = 1; k < most; ++k) {
    Val r = step(x, q, p, static_cast<double>(k));
    p = q;
    q = r;
    result = n.valid() ? where(eq(n, static_cast<double>(k + 1)), q, result) : q;
  }
  return result;
}

static Tensors unrolled(OpCall &o, const std::function<Val(Val)> &first, Step step, bool hermite) {
  if (!o.t("n").isNumber()) {
    // The degree is data.
    Tensor xs[] = {o.t("x"), o.t("n")};
    if (hermite && floatType(resultType(xs)) != DType::F32)
      return o.fail("the degree is no constant, and the type is not float32");
    if (hermite)
      return {
          polynomial(o, [first, step](Val x, Val n) { return recurrence(x, n, kMaxDegree, first, step); }).realize()};
    // A degree beyond the unrolled ones is a run-time error: it goes through a table that ends there.
    Tensor known = iota(o.ctx, {Expr(kMaxDegree + 1)}, 0, DType::F64).realize();
    Tensor r = polynomial(o, [=](Val x, Val n) {
      BodyBuilder &b = *x.b;
      Expr at = b.indirect(b.cast(vmax(n, num(n, 0)), DType::I64), Expr(kMaxDegree + 1), false, true);
      Val degree = b.cast(known.at(b, {at}), n.dtype);
      return where(n < 0.0, num(x, 0), recurrence(x, degree, kMaxDegree, first, step));
    });
    return {r.realize()};
  }
  int64_t n = static_cast<int64_t>(o.number("n"));
  if (n > kMaxDegree) return o.fail("the degree is above 128");
  return {polynomial(o, [first, step, n](Val x, Val) { return recurrence(x, {}, n, first, step); })};
}

void addPolynomials(OpTable &t) {
  // Every operator has a form with both as tensors and one with each as a number.
  auto row = [&t](const std::string &name, LowerFn fn) {
    t.add(name + ".default " + name + ".x_scalar " + name + ".n_scalar", fn);
  };
  row("special_chebyshev_polynomial_t", chebyshev<Chebyshev::T, false>);
  row("special_chebyshev_polynomial_u", chebyshev<Chebyshev::U, false>);
  row("special_chebyshev_polynomial_v", chebyshev<Chebyshev::V, false>);
  row("special_chebyshev_polynomial_w", chebyshev<Chebyshev::W, false>);
  row("special_shifted_chebyshev_polynomial_t", chebyshev<Chebyshev::T, true>);
  row("special_shifted_chebyshev_polynomial_u", chebyshev<Chebyshev::U, true>);
  row("special_shifted_chebyshev_polynomial_v", chebyshev<Chebyshev::V, true>);
  row("special_shifted_chebyshev_polynomial_w", chebyshev<Chebyshev::W, true>);
  row("special_hermite_polynomial_h", [](OpCall &o) -> Tensors {
    return unrolled(
        o, [](Val x) { return x + x; }, [](Val x, Val q, Val p, double k) { return (x + x) * q - p * (2 * k); }, true);
  });
  row("special_hermite_polynomial_he", [](OpCall &o) -> Tensors {
    return unrolled(o, [](Val x) { return x; }, [](Val x, Val q, Val p, double k) { return x * q - p * k; }, true);
  });
  row("special_laguerre_polynomial_l", [](OpCall &o) -> Tensors {
    return unrolled(
        o, [](Val x) { return 1.0 - x; },
        [](Val x, Val q, Val p, double k) { return ((2 * k + (1.0 - x)) * q - p * k) / (k + 1); }, false);
  });
  row("special_legendre_polynomial_p", [](OpCall &o) -> Tensors {
    return unrolled(
        o, [](Val x) { return x; },
        [](Val x, Val q, Val p, double k) { return (x * (2 * k + 1) * q - p * k) / (k + 1); }, false);
  });
}

} // namespace neso::lower
