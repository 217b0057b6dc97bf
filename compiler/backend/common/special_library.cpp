// Special functions as kernels call them. This file is compiled to LLVM bitcode when Neso is built and carried inside
// the program; special_link.cpp links what a kernel uses into its module, so that compiled code needs nothing but libm.
// It takes the implementations in by #include, because the bitcode is of this one file. No function may call itself:
// NVIDIA's assembler crashes on that.
#include "base/directed.h"
#include "base/polynomials.h"
#include "base/special.cpp"

using namespace neso::special;

namespace {
/// polynomialAt of every lane, by the same operations: as many steps as the lane with the most of them takes, and one by one what
/// the steps do not give.
template <template <typename> typename P, typename T, int N> void polynomialOf(T *out, const T *xs, const T *degrees) {
  typedef T Vector __attribute__((ext_vector_type(N)));
  typedef int64_t Counts __attribute__((ext_vector_type(N)));
  using Mask = decltype(Vector() < Vector());
  Vector x, degree;
  __builtin_memcpy(&x, xs, sizeof(x)), __builtin_memcpy(&degree, degrees, sizeof(x));
  const Mask known = (degree > T(-9.2e18)) & (degree < T(9.2e18));
  const Counts n = __builtin_convertvector(known ? degree : Vector(-1), Counts);
  auto whether = [](Counts c) { return __builtin_convertvector(c, Mask); };
  const Mask apart = P<T>::apart(x, whether(n > P<T>::kMost)) & whether(n >= int64_t(0));
  Vector p = T(1), q = whether(n == int64_t(0)) ? p : P<T>::first(x);
  for (int64_t k = 1;; ++k) {
    const Mask more = whether(n > k) & (q == q) & ~apart;
    if (!__builtin_reduce_or(more)) break;
    const Vector r = P<T>::step(x, q, p, k);
    p = more ? q : p, q = more ? r : q;
  }
  q = whether(n < int64_t(0)) ? Vector(0) : q;
  if (__builtin_reduce_or(apart))
    for (int i = 0; i < N; ++i)
      if (apart[i]) q[i] = P<T>::closed(x[i], n[i]);
  __builtin_memcpy(out, &q, sizeof(q));
}
} // namespace

extern "C" {
double neso_special_erfinv(double x) { return erfinv(x); }
double neso_special_digamma(double x) { return digamma(x); }
double neso_special_polygamma(double n, double x) { return polygamma(static_cast<int64_t>(n), x); }
double neso_special_zeta(double s, double q) { return hurwitzZeta(s, q); }
double neso_special_i0(double x) { return besselI0(x); }
double neso_special_i1(double x) { return besselI1(x); }
double neso_special_i0e(double x) { return besselI0e(x); }
double neso_special_i1e(double x) { return besselI1e(x); }
double neso_special_k0(double x) { return besselK0(x); }
double neso_special_k1(double x) { return besselK1(x); }
double neso_special_k0e(double x) { return besselK0e(x); }
double neso_special_k1e(double x) { return besselK1e(x); }
double neso_special_airy_ai(double x) { return airyAi(x); }
double neso_special_ndtri(double p) { return ndtri(p); }
double neso_special_log_ndtr(double x) { return logNdtr(x); }
double neso_special_erfcx(double x) { return erfcx(x); }
double neso_special_igamma(double a, double x) { return igamma(a, x); }
double neso_special_igammac(double a, double x) { return igammac(a, x); }

// These compute in the kernel's own type: ATen's results overflow where its steps do. And on vectors, whose lanes step together.
#define NESO_POLYNOMIAL(name, P)                                                                                       \
  double neso_special_##name(double x, double n) { return polynomialAt<P>(x, n); }                                     \
  float neso_special_##name##f(float x, float n) { return polynomialAt<P>(x, n); }                                     \
  void neso_special_##name##_v4(double *o, const double *x, const double *n) { polynomialOf<P, double, 4>(o, x, n); }  \
  void neso_special_##name##_v8(double *o, const double *x, const double *n) { polynomialOf<P, double, 8>(o, x, n); }  \
  void neso_special_##name##f_v8(float *o, const float *x, const float *n) { polynomialOf<P, float, 8>(o, x, n); }     \
  void neso_special_##name##f_v16(float *o, const float *x, const float *n) { polynomialOf<P, float, 16>(o, x, n); }
NESO_POLYNOMIAL(chebyshev_t, ChebyshevT)
NESO_POLYNOMIAL(chebyshev_u, ChebyshevU)
NESO_POLYNOMIAL(chebyshev_v, ChebyshevV)
NESO_POLYNOMIAL(chebyshev_w, ChebyshevW)
NESO_POLYNOMIAL(hermite_h, HermiteH)
NESO_POLYNOMIAL(hermite_he, HermiteHe)
NESO_POLYNOMIAL(laguerre, Laguerre)
NESO_POLYNOMIAL(legendre, Legendre)
#undef NESO_POLYNOMIAL

/// The standard normal distribution and its inverse, as libdevice has them.
double neso_special_normcdf(double x) { return std::erfc(-x * 0.70710678118654752440) / 2; }

double neso_special_erfcinv(double x) { return erfcinv(x); }
double neso_special_jn(double n, double x) { return n < 0 ? std::numeric_limits<double>::quiet_NaN() : jn(static_cast<int>(n), x); }
double neso_special_yn(double n, double x) { return n < 0 || x < 0 ? std::numeric_limits<double>::quiet_NaN() : yn(static_cast<int>(n), x); }

// Rounded towards zero, down and up. Integers give the bits of a double, which a float is as well.
#define NESO_DIRECTED(mode, to)                                                                                        \
  double neso_special_add_##mode(double a, double b) { return neso::directed::add(a, b, to); }                         \
  float neso_special_add_##mode##f(float a, float b) { return neso::directed::add(a, b, to); }                         \
  double neso_special_multiply_##mode(double a, double b) { return neso::directed::multiply(a, b, to); }               \
  float neso_special_multiply_##mode##f(float a, float b) { return neso::directed::multiply(a, b, to); }               \
  double neso_special_divide_##mode(double a, double b) { return neso::directed::divide(a, b, to); }                   \
  float neso_special_divide_##mode##f(float a, float b) { return neso::directed::divide(a, b, to); }                   \
  double neso_special_root_##mode(double a) { return neso::directed::squareRoot(a, to); }                              \
  float neso_special_root_##mode##f(float a) { return neso::directed::squareRoot(a, to); }                             \
  double neso_special_fma_##mode(double a, double b, double c) { return neso::directed::multiplyAdd(a, b, c, to); }    \
  float neso_special_fma_##mode##f(float a, float b, float c) { return neso::directed::multiplyAdd(a, b, c, to); }     \
  double neso_special_to_float_##mode(double a) { return neso::directed::toFloat(a, to); }                             \
  int64_t neso_special_float_of_signed_##mode(int64_t n) {                                                             \
    return std::bit_cast<int64_t>(static_cast<double>(neso::directed::fromInteger<float>(n, to)));                     \
  }                                                                                                                    \
  int64_t neso_special_double_of_signed_##mode(int64_t n) {                                                            \
    return std::bit_cast<int64_t>(neso::directed::fromInteger<double>(n, to));                                         \
  }                                                                                                                    \
  int64_t neso_special_float_of_unsigned_##mode(int64_t n) {                                                           \
    return std::bit_cast<int64_t>(static_cast<double>(neso::directed::fromInteger<float>(static_cast<uint64_t>(n), to))); \
  }                                                                                                                    \
  int64_t neso_special_double_of_unsigned_##mode(int64_t n) {                                                          \
    return std::bit_cast<int64_t>(neso::directed::fromInteger<double>(static_cast<uint64_t>(n), to));                  \
  }
NESO_DIRECTED(rz, neso::directed::Rounding::Zero)
NESO_DIRECTED(rd, neso::directed::Rounding::Down)
NESO_DIRECTED(ru, neso::directed::Rounding::Up)
#undef NESO_DIRECTED
float neso_special_inverse_rootf(float x) { return neso::directed::inverseRoot(x); }
double neso_special_high_inverse(double x) { return neso::directed::highInverse(x); }

int64_t neso_special_gcd(int64_t a, int64_t b) {
  uint64_t x = a < 0 ? 0 - static_cast<uint64_t>(a) : static_cast<uint64_t>(a),
           y = b < 0 ? 0 - static_cast<uint64_t>(b) : static_cast<uint64_t>(b);
  while (y) {
    uint64_t r = x % y;
    x = y, y = r;
  }
  return static_cast<int64_t>(x);
}

/// Wraps as integer multiplication does; a negative exponent gives 1 for 1, +-1 for -1, else 0, as ATen has it.
int64_t neso_special_powi(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, factor = static_cast<uint64_t>(base);
  for (uint64_t n = static_cast<uint64_t>(exponent); n; n >>= 1, factor *= factor)
    if (n & 1) result *= factor;
  return static_cast<int64_t>(result);
}
}
