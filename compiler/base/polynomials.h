// Orthogonal polynomials of degree n at x, in the arithmetic of T (float or double) and by ATen's branches, so that what overflows
// or is NaN there is so here: P(0) = 1, P(1), then P(k + 1) from P(k) and P(k - 1). Degrees are truncated to integers; below
// zero, NaN and what no int64 holds give 0. Work is proportional to n, except where a closed form serves.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

namespace neso::special {

/// Closed forms take over from the recurrence inside (-1, 1) above this degree. They are computed in double: an error of
/// acos counts n times.
inline constexpr int64_t kChebyshevSteps = 6;

template <typename T> int64_t degreeOf(T n) { return n > T(-9.2e18) && n < T(9.2e18) ? static_cast<int64_t>(n) : -1; }

/// All four kinds: `first` is P(1).
template <typename T> T chebyshevSteps(T x, int64_t n, T first) {
  if (n == 0) return T(1);
  T p = T(1), q = first;
  for (int64_t k = 1; k < n && !std::isnan(q); ++k) {
    T r = (x + x) * q - p;
    p = q, q = r;
  }
  return q;
}

inline bool isInside(double x) { return std::fabs(x) < 1; }

template <typename T> T chebyshevT(T x, T degree) {
  const int64_t n = degreeOf(degree);
  if (n < 0) return T(0);
  if (std::fabs(x) == T(1)) return x > 0 || n % 2 == 0 ? T(1) : T(-1);
  if (n > kChebyshevSteps && isInside(x)) return static_cast<T>(std::cos(n * std::acos(static_cast<double>(x))));
  return chebyshevSteps(x, n, x);
}

template <typename T> T chebyshevU(T x, T degree) {
  const int64_t n = degreeOf(degree);
  if (n < 0) return T(0);
  if (std::fabs(x) == T(1)) return static_cast<T>(x > 0 || n % 2 == 0 ? n + 1 : -(n + 1));
  if (n > kChebyshevSteps && isInside(x)) {
    const double theta = std::acos(static_cast<double>(x));
    return static_cast<T>(std::sin((n + 1) * theta) / std::sin(theta));
  }
  return chebyshevSteps(x, n, x + x);
}

template <typename T> T chebyshevV(T x, T degree) {
  const int64_t n = degreeOf(degree);
  if (n < 0) return T(0);
  if (std::fabs(x) == T(1)) return static_cast<T>(x > 0 ? 1 : n % 2 == 0 ? n + n + 1 : -(n + n + 1));
  if (n > kChebyshevSteps && isInside(x)) {
    const double theta = std::acos(static_cast<double>(x));
    return static_cast<T>(std::cos((n + 0.5) * theta) / std::cos(theta / 2));
  }
  return chebyshevSteps(x, n, x + x - T(1));
}

template <typename T> T chebyshevW(T x, T degree) {
  const int64_t n = degreeOf(degree);
  if (n < 0) return T(0);
  if (std::fabs(x) == T(1)) return static_cast<T>(x > 0 ? n + n + 1 : n % 2 == 0 ? 1 : -1);
  if (n > kChebyshevSteps && isInside(x)) {
    const double theta = std::acos(static_cast<double>(x));
    return static_cast<T>(std::sin((n + 0.5) * theta) / std::sin(theta / 2));
  }
  return chebyshevSteps(x, n, x + x + T(1));
}

/// The degree beyond which ATen gives NaN.
template <typename T> constexpr int64_t kHermiteMost = sizeof(T) == 4 ? 128 : 512;

/// The physicist's polynomials.
template <typename T> T hermiteH(T x, T degree) {
  const int64_t n = degreeOf(degree);
  if (n < 0) return T(0);
  if (n == 0) return T(1);
  if (n == 1) return x + x;
  if (n > kHermiteMost<T>) return std::numeric_limits<T>::quiet_NaN();
  T p = T(1), q = x + x;
  for (int64_t k = 1; k < n; ++k) {
    T r = (x + x) * q - static_cast<T>(2 * k) * p;
    p = q, q = r;
  }
  return q;
}

/// The probabilist's polynomials.
template <typename T> T hermiteHe(T x, T degree) {
  const int64_t n = degreeOf(degree);
  if (n < 0) return T(0);
  if (n == 0) return T(1);
  if (n == 1) return x;
  if (n > kHermiteMost<T>) return std::numeric_limits<T>::quiet_NaN();
  T p = T(1), q = x;
  for (int64_t k = 1; k < n; ++k) {
    T r = x * q - static_cast<T>(k) * p;
    p = q, q = r;
  }
  return q;
}

template <typename T> T laguerre(T x, T degree) {
  const int64_t n = degreeOf(degree);
  if (n < 0) return T(0);
  if (n == 0 || x == T(0)) return T(1);
  T p = T(1), q = T(1) - x;
  for (int64_t k = 1; k < n && !std::isnan(q); ++k) {
    T r = ((static_cast<T>(k + k) + (T(1) - x)) * q - static_cast<T>(k) * p) / static_cast<T>(k + 1);
    p = q, q = r;
  }
  return q;
}

template <typename T> T legendre(T x, T degree) {
  const int64_t n = degreeOf(degree);
  if (n < 0) return T(0);
  if (std::fabs(x) == T(1)) return x > 0 || n % 2 == 0 ? T(1) : T(-1);
  if (n == 0) return T(1);
  T p = T(1), q = x;
  for (int64_t k = 1; k < n && !std::isnan(q); ++k) {
    T r = (static_cast<T>(k + k + 1) * x * q - static_cast<T>(k) * p) / static_cast<T>(k + 1);
    p = q, q = r;
  }
  return q;
}

} // namespace neso::special
