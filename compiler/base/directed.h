// Arithmetic that is rounded once, in a given direction. Each function rounds to the nearest first and learns on which side of that the exact
// value lies, from errors that are numbers themselves (Dekker's and Knuth's sums, what a fused multiply-add leaves); then it takes a step where
// the direction asks for the neighbour. Nothing depends on the processor's rounding mode. Infinities and NaN come out as arithmetic has them;
// zeros have IEEE's signs.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace neso::directed {

enum class Rounding { Nearest, Zero, Down, Up };

/// The neighbour of r that `to` asks for, where the exact value lies above (side > 0) or below (side < 0) r, which is nearest to it.
template <class T> T stepped(T r, int side, Rounding to) {
  using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  if (side == 0 || r != r) return r;
  const bool negative = std::signbit(r);
  const bool up = side > 0 && (to == Rounding::Up || (to == Rounding::Zero && negative && r != 0));
  const bool down = side < 0 && (to == Rounding::Down || (to == Rounding::Zero && !negative && r != 0));
  if (!up && !down) return r;
  if (r == 0) return up ? std::numeric_limits<T>::denorm_min() : -std::numeric_limits<T>::denorm_min();
  // Away from zero numbers grow as their bits do.
  return std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(r) + (up != negative ? 1 : -1)));
}

inline int sideOf(double rest) { return rest > 0 ? 1 : rest < 0 ? -1 : 0; }

/// high + low in float. low: at most half a unit of high's last place, of which the sign alone counts where high is no float.
inline float toFloat(double high, Rounding to, double low = 0) {
  if (to == Rounding::Nearest && low != 0 && std::isfinite(high)) {
    // An odd last bit stands for what follows it: rounding once more is then right.
    const int64_t bits = std::bit_cast<int64_t>(high);
    if (bits % 2 == 0) high = std::bit_cast<double>(bits + ((low > 0) == !std::signbit(high) ? 1 : -1));
  }
  const float r = static_cast<float>(high);
  if (to == Rounding::Nearest) return r;
  const double rounded = r;
  return stepped(r, high > rounded ? 1 : high < rounded ? -1 : sideOf(low), to);
}

/// What a sum of finite numbers leaves behind: a + b = s + rest.
inline double restOfSum(double a, double b, double s) {
  const double large = std::fabs(a) < std::fabs(b) ? b : a, small = std::fabs(a) < std::fabs(b) ? a : b;
  return small - (s - large);
}

template <class T> T add(T a, T b, Rounding to) {
  const double s = static_cast<double>(a) + static_cast<double>(b);
  if (!std::isfinite(a) || !std::isfinite(b)) return static_cast<T>(s);
  // A sum of nothing is negative only where it is rounded down, or both are.
  if (s == 0) return a == 0 && std::signbit(a) == std::signbit(b) ? a : to == Rounding::Down ? T(-0.0) : T(0.0);
  if constexpr (sizeof(T) == 4) return toFloat(s, to, restOfSum(a, b, s));
  return stepped(s, std::isinf(s) ? (s > 0 ? -1 : 1) : sideOf(restOfSum(a, b, s)), to);
}

/// A finite number other than zero as mantissa * 2^exponent, 1 <= |mantissa| < 2.
inline double mantissaOf(double x, int &exponent) {
  const double m = std::frexp(x, &exponent);
  --exponent;
  return m * 2;
}

/// Side of the exact high + low, scaled by 2^exponent, of r; high + low: between 1/8 and 8.
inline int sideOfScaled(double high, double low, int exponent, double r) {
  // Where r lost bits or ran over, it is far from what it stands for; else this is exact.
  const double there = std::ldexp(r, -exponent);
  return there < high ? 1 : there > high ? -1 : sideOf(low);
}

template <class T> T multiply(T a, T b, Rounding to) {
  if constexpr (sizeof(T) == 4) return toFloat(static_cast<double>(a) * static_cast<double>(b), to);
  const double p = static_cast<double>(a) * static_cast<double>(b);
  if (!std::isfinite(a) || !std::isfinite(b) || a == 0 || b == 0) return static_cast<T>(p);
  int i, j;
  const double x = mantissaOf(a, i), y = mantissaOf(b, j), high = x * y;
  return stepped(static_cast<T>(p), sideOfScaled(high, std::fma(x, y, -high), i + j, p), to);
}

template <class T> T divide(T a, T b, Rounding to) {
  const double q = static_cast<double>(a) / static_cast<double>(b);
  if (!std::isfinite(a) || !std::isfinite(b) || a == 0 || b == 0) return static_cast<T>(q);
  int i, j;
  const double x = mantissaOf(a, i), y = mantissaOf(b, j), high = x / y;
  // x = high * y + rest
  const double rest = std::fma(-high, y, x), low = y < 0 ? -rest : rest;
  if constexpr (sizeof(T) == 4) return toFloat(q, to, low);
  return stepped(static_cast<T>(q), sideOfScaled(high, low, i - j, q), to);
}

template <class T> T squareRoot(T a, Rounding to) {
  const double x = a;
  if (!(x > 0) || !std::isfinite(x)) return static_cast<T>(std::sqrt(x));
  int exponent;
  double m = mantissaOf(x, exponent);
  if (exponent % 2 != 0) m *= 2, --exponent;
  const double root = std::sqrt(m), rest = std::fma(-root, root, m);
  const double whole = std::ldexp(root, exponent / 2);
  if constexpr (sizeof(T) == 4) return toFloat(whole, to, rest);
  return stepped(static_cast<T>(whole), sideOf(rest), to);
}

/// 1 / sqrt(a) of a float, to nearest.
inline float inverseRoot(float a) {
  const double x = a;
  if (!(x > 0) || !std::isfinite(x)) return static_cast<float>(1 / std::sqrt(x));
  const double y = 1 / std::sqrt(x), square = y * y, rest = std::fma(y, y, -square);
  // Of Newton's step: 1 - x * y * y.
  return toFloat(y, Rounding::Nearest, std::fma(-x, rest, std::fma(-x, square, 1.0)));
}

/// a * b + c. Of doubles the product is two numbers; what the sum of three loses is found by sums of two.
template <class T> T multiplyAdd(T a, T b, T c, Rounding to) {
  if constexpr (sizeof(T) == 4) {
    const double p = static_cast<double>(a) * static_cast<double>(b);
    if (!std::isfinite(p) || !std::isfinite(c)) return static_cast<T>(p + static_cast<double>(c));
    const double s = p + static_cast<double>(c);
    if (s == 0) return p == 0 && std::signbit(p) == std::signbit(c) ? static_cast<T>(c) : to == Rounding::Down ? T(-0.0) : T(0.0);
    return toFloat(s, to, restOfSum(p, c, s));
  } else {
    const double r = std::fma(a, b, c);
    if (to == Rounding::Nearest || !std::isfinite(a) || !std::isfinite(b) || !std::isfinite(c)) return r;
    if (a == 0 || b == 0) return add<T>(a * b, c, to);
    if (c == 0) return multiply<T>(a, b, to);
    int i, j, k;
    const double x = mantissaOf(a, i), y = mantissaOf(b, j), z = mantissaOf(c, k);
    const int apart = k - (i + j);
    // Numbers so far apart that the smaller one only says on which side of the other the sum lies.
    constexpr int kFar = 120;
    const double high = x * y, low = std::fma(x, y, -high);
    const bool product = apart < -kFar, summand = apart > kFar;
    const double third = product ? std::copysign(0x1p-120, z) : std::ldexp(z, summand ? 0 : apart);
    const double first = summand ? std::copysign(0x1p-120, high) : high, second = summand ? 0 : low;
    const int exponent = summand ? k : i + j;
    // first + second + third = the scaled r + what is left: exact differences, largest first.
    const double there = std::ldexp(r, -exponent);
    if (std::isinf(r)) return stepped(r, r > 0 ? -1 : 1, to);
    const double s = first + third, t = restOfSum(first, third, s);
    const double u = t + second, v = restOfSum(t, second, u);
    const double d = s - there, e = restOfSum(s, -there, d);
    // d + e + u + v, of which each pair is a number and its rest.
    const double f = d + u, g = restOfSum(d, u, f);
    const double h = e + v, total = (f + (g + h));
    if (total != 0) return stepped(r, sideOf(total), to);
    if (r == 0 && first + third == 0 && second == 0) return to == Rounding::Down ? -0.0 : 0.0;
    return stepped(r, sideOf(total), to);
  }
}

/// Of 64-bit integers with and without a sign.
template <class T, class Integer> T fromInteger(Integer n, Rounding to) {
  const T r = static_cast<T>(n);
  constexpr T kEnd = static_cast<T>(std::is_signed_v<Integer> ? 0x1p63 : 0x1p64);
  if (r >= kEnd) return stepped(r, -1, to);
  const Integer back = static_cast<Integer>(r);
  return stepped(r, n > back ? 1 : n < back ? -1 : 0, to);
}

/// 1 / x of a double whose lower half is nothing, as is the result's; what is too small for a normal number is zero.
inline double highInverse(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const double high = std::bit_cast<double>(bits & 0xffffffff00000000u), tiny = 0x1p-1022;
  if (x != x) return x;
  if (std::fabs(high) < tiny) return std::copysign(std::numeric_limits<double>::infinity(), x);
  const double inverse = std::bit_cast<double>((std::bit_cast<uint64_t>(1 / high) + 0x80000000u) & 0xffffffff00000000u);
  return std::fabs(inverse) < tiny ? std::copysign(0.0, x) : inverse;
}

} // namespace neso::directed
