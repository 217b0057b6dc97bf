// Special functions as kernels call them. This file is compiled to LLVM bitcode when Neso is built and carried inside
// the program; special_link.cpp links what a kernel uses into its module, so that compiled code needs nothing but libm.
// It takes the implementations in by #include, because the bitcode is of this one file. No function may call itself:
// NVIDIA's assembler crashes on that.
#include "base/polynomials.h"
#include "base/special.cpp"

using namespace neso::special;

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

// These compute in the kernel's own type: ATen's results overflow where its steps do.
#define NESO_POLYNOMIAL(name, function)                                                                                \
  double neso_special_##name(double x, double n) { return function(x, n); }                                            \
  float neso_special_##name##f(float x, float n) { return function(x, n); }
NESO_POLYNOMIAL(chebyshev_t, chebyshevT)
NESO_POLYNOMIAL(chebyshev_u, chebyshevU)
NESO_POLYNOMIAL(chebyshev_v, chebyshevV)
NESO_POLYNOMIAL(chebyshev_w, chebyshevW)
NESO_POLYNOMIAL(hermite_h, hermiteH)
NESO_POLYNOMIAL(hermite_he, hermiteHe)
NESO_POLYNOMIAL(laguerre, laguerre)
NESO_POLYNOMIAL(legendre, legendre)
#undef NESO_POLYNOMIAL

/// The standard normal distribution and its inverse, as libdevice has them.
double neso_special_normcdf(double x) { return std::erfc(-x * 0.70710678118654752440) / 2; }

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
