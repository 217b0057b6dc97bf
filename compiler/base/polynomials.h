// Orthogonal polynomials of degree n at x, in the arithmetic of T (float or double) and by ATen's branches, so that what overflows
// or is NaN there is so here: P(0) = 1, P(1), then P(k + 1) from P(k) and P(k - 1). Degrees are truncated to integers; below
// zero, NaN and what no int64 holds give 0. Work is proportional to n, except where a closed form serves.
//
// What a polynomial is stands in a struct of its own, whose steps are for numbers and for vectors of them alike:
//
//   first(x)          P(1)
//   step(x, q, p, k)  P(k + 1) from P(k) = q and P(k - 1) = p
//   kMost             the degree up to which only x decides
//   apart(x, beyond)  whether closed(x, n) gives the result instead of the steps; `beyond`: n > kMost
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

namespace neso::special {

/// -1 for every degree that no int64 holds.
template <typename T> int64_t degreeOf(T n) { return n > T(-9.2e18) && n < T(9.2e18) ? static_cast<int64_t>(n) : -1; }

template <template <typename> typename P, typename T> T polynomialAt(T x, T degree) {
  const int64_t n = degreeOf(degree);
  if (n < 0) return T(0);
  if (P<T>::apart(x, n > P<T>::kMost)) return P<T>::closed(x, n);
  if (n == 0) return T(1);
  T p = T(1), q = P<T>::first(x);
  for (int64_t k = 1; k < n && !std::isnan(q); ++k) {
    const T r = P<T>::step(x, q, p, k);
    p = q, q = r;
  }
  return q;
}

/// All four kinds. Closed forms take over from the recurrence inside (-1, 1) above degree kMost. They are computed in double:
/// an error of acos counts n times.
template <typename T> struct Chebyshev {
  static constexpr int64_t kMost = 6;
  template <typename V> static V step(V x, V q, V p, int64_t) { return (x + x) * q - p; }
  template <typename V, typename M> static auto apart(V x, M beyond) {
    return (x == T(1)) | (x == T(-1)) | (beyond & (x > T(-1)) & (x < T(1)));
  }
  static bool isOne(T x) { return x == T(1) || x == T(-1); }
};

template <typename T> struct ChebyshevT : Chebyshev<T> {
  template <typename V> static V first(V x) { return x; }
  static T closed(T x, int64_t n) {
    if (Chebyshev<T>::isOne(x)) return x > 0 || n % 2 == 0 ? T(1) : T(-1);
    return static_cast<T>(std::cos(n * std::acos(static_cast<double>(x))));
  }
};

template <typename T> struct ChebyshevU : Chebyshev<T> {
  template <typename V> static V first(V x) { return x + x; }
  static T closed(T x, int64_t n) {
    if (Chebyshev<T>::isOne(x)) return static_cast<T>(x > 0 || n % 2 == 0 ? n + 1 : -(n + 1));
    const double theta = std::acos(static_cast<double>(x));
    return static_cast<T>(std::sin((n + 1) * theta) / std::sin(theta));
  }
};

template <typename T> struct ChebyshevV : Chebyshev<T> {
  template <typename V> static V first(V x) { return x + x - T(1); }
  static T closed(T x, int64_t n) {
    if (Chebyshev<T>::isOne(x)) return static_cast<T>(x > 0 ? 1 : n % 2 == 0 ? n + n + 1 : -(n + n + 1));
    const double theta = std::acos(static_cast<double>(x));
    return static_cast<T>(std::cos((n + 0.5) * theta) / std::cos(theta / 2));
  }
};

template <typename T> struct ChebyshevW : Chebyshev<T> {
  template <typename V> static V first(V x) { return x + x + T(1); }
  static T closed(T x, int64_t n) {
    if (Chebyshev<T>::isOne(x)) return static_cast<T>(x > 0 ? n + n + 1 : n % 2 == 0 ? 1 : -1);
    const double theta = std::acos(static_cast<double>(x));
    return static_cast<T>(std::sin((n + 0.5) * theta) / std::sin(theta / 2));
  }
};

/// Beyond kMost ATen gives NaN.
template <typename T> struct Hermite {
  static constexpr int64_t kMost = sizeof(T) == 4 ? 128 : 512;
  template <typename V, typename M> static M apart(V, M beyond) { return beyond; }
  static T closed(T, int64_t) { return std::numeric_limits<T>::quiet_NaN(); }
};

/// The physicist's polynomials.
template <typename T> struct HermiteH : Hermite<T> {
  template <typename V> static V first(V x) { return x + x; }
  template <typename V> static V step(V x, V q, V p, int64_t k) { return (x + x) * q - static_cast<T>(2 * k) * p; }
};

/// The probabilist's polynomials.
template <typename T> struct HermiteHe : Hermite<T> {
  template <typename V> static V first(V x) { return x; }
  template <typename V> static V step(V x, V q, V p, int64_t k) { return x * q - static_cast<T>(k) * p; }
};

template <typename T> struct Laguerre {
  static constexpr int64_t kMost = 0;
  template <typename V> static V first(V x) { return T(1) - x; }
  template <typename V> static V step(V x, V q, V p, int64_t k) {
    return ((static_cast<T>(k + k) + (T(1) - x)) * q - static_cast<T>(k) * p) / static_cast<T>(k + 1);
  }
  template <typename V, typename M> static auto apart(V x, M) { return x == T(0); }
  static T closed(T, int64_t) { return T(1); }
};

template <typename T> struct Legendre {
  static constexpr int64_t kMost = 0;
  template <typename V> static V first(V x) { return x; }
  template <typename V> static V step(V x, V q, V p, int64_t k) {
    return (static_cast<T>(k + k + 1) * x * q - static_cast<T>(k) * p) / static_cast<T>(k + 1);
  }
  template <typename V, typename M> static auto apart(V x, M) { return (x == T(1)) | (x == T(-1)); }
  static T closed(T x, int64_t n) { return x > 0 || n % 2 == 0 ? T(1) : T(-1); }
};

template <typename T> T chebyshevT(T x, T degree) { return polynomialAt<ChebyshevT>(x, degree); }
template <typename T> T chebyshevU(T x, T degree) { return polynomialAt<ChebyshevU>(x, degree); }
template <typename T> T chebyshevV(T x, T degree) { return polynomialAt<ChebyshevV>(x, degree); }
template <typename T> T chebyshevW(T x, T degree) { return polynomialAt<ChebyshevW>(x, degree); }
template <typename T> T hermiteH(T x, T degree) { return polynomialAt<HermiteH>(x, degree); }
template <typename T> T hermiteHe(T x, T degree) { return polynomialAt<HermiteHe>(x, degree); }
template <typename T> T laguerre(T x, T degree) { return polynomialAt<Laguerre>(x, degree); }
template <typename T> T legendre(T x, T degree) { return polynomialAt<Legendre>(x, degree); }

} // namespace neso::special
