// Special functions in double: series near the origin, asymptotic expansions or continued fractions far away. Sources
// of the formulas: NIST Digital Library of Mathematical Functions (chapters 5, 7, 8, 9, 10, 25).
#include <cmath>
#include <limits>
#include <numbers>

#include "base/special.h"

namespace neso::special {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = std::numbers::pi;

/// Sum of the asymptotic series of I_nu (sign -1) or K_nu (sign +1) without its prefactor, DLMF 10.40.
double besselTail(double nu, double x, double sign) {
  double term = 1, total = 1;
  for (int k = 1; k < 60; ++k) {
    double next = term * sign * (4 * nu * nu - (2 * k - 1) * (2 * k - 1)) / (k * 8.0 * x);
    if (std::fabs(next) > std::fabs(term)) break;
    term = next;
    total += term;
    if (std::fabs(term) < 1e-17 * std::fabs(total)) break;
  }
  return total;
}

/// Power series of I_n, n = 0 or 1; all terms are positive.
double besselISeries(int n, double x) {
  double q = x * x / 4, term = n == 0 ? 1 : x / 2, total = term;
  for (int k = 1; k < 500; ++k) {
    term *= q / (static_cast<double>(k) * (k + n));
    total += term;
    if (term < 1e-18 * total) break;
  }
  return total;
}

double besselIScaled(int n, double x) {
  double a = std::fabs(x), v;
  if (std::isnan(x)) return x;
  if (std::isinf(x)) return n == 1 && x < 0 ? -0.0 : 0.0;
  if (a < 40)
    v = besselISeries(n, a) * std::exp(-a);
  else
    v = besselTail(n, a, -1) / std::sqrt(2 * kPi * a);
  return n == 1 && x < 0 ? -v : v;
}

double besselKScaled(int n, double x) {
  if (std::isnan(x) || x < 0) return kNaN;
  if (x == 0) return kInf;
  if (x >= 40) return std::sqrt(kPi / (2 * x)) * besselTail(n, x, 1);
  // exp(x) K_n(x) = integral over t > 0 of exp(x - x cosh t) cosh(n t); the trapezoidal rule converges geometrically
  // here.
  double h = 1.0 / 64, total = 0.5;
  double top = std::acosh(1 + 745 / x);
  for (int k = 1; k * h <= top; ++k) {
    double t = k * h;
    total += std::exp(-x * 2 * std::pow(std::sinh(t / 2), 2)) * (n == 0 ? 1.0 : std::cosh(t));
  }
  return total * h;
}

double igammaSeries(double a, double x) {
  double term = 1 / a, total = term;
  for (int k = 1; k < 20000; ++k) {
    term *= x / (a + k);
    total += term;
    if (term < 1e-17 * total) break;
  }
  return total * std::exp(a * std::log(x) - x - std::lgamma(a));
}

/// Lentz's continued fraction of the upper function, DLMF 8.9.2.
double igammacFraction(double a, double x) {
  double tiny = 1e-300, b = x + 1 - a, c = 1 / tiny, d = 1 / b, h = d;
  for (int i = 1; i < 20000; ++i) {
    double an = -i * (i - a);
    b += 2;
    d = an * d + b;
    if (std::fabs(d) < tiny) d = tiny;
    c = b + an / c;
    if (std::fabs(c) < tiny) c = tiny;
    d = 1 / d;
    double delta = d * c;
    h *= delta;
    if (std::fabs(delta - 1) < 1e-16) break;
  }
  return h * std::exp(a * std::log(x) - x - std::lgamma(a));
}

/// Both regularised functions for a, x with all edge cases; `upper` selects which.
double gammaRatio(double a, double x, bool upper) {
  double zero = upper ? 1 : 0, one = upper ? 0 : 1;
  if (std::isnan(a) || std::isnan(x) || a < 0 || x < 0) return kNaN;
  if (a == 0) return x > 0 ? one : kNaN;
  if (x == 0) return zero;
  if (std::isinf(a)) return std::isinf(x) ? kNaN : zero;
  if (std::isinf(x)) return one;
  if (x < a + 1) {
    double p = igammaSeries(a, x);
    return upper ? 1 - p : p;
  }
  double q = igammacFraction(a, x);
  return upper ? q : 1 - q;
}

} // namespace

double besselI0e(double x) { return besselIScaled(0, x); }
double besselI1e(double x) { return besselIScaled(1, x); }
double besselI0(double x) {
  return std::fabs(x) < 40 ? besselISeries(0, std::fabs(x)) : besselIScaled(0, x) * std::exp(std::fabs(x));
}
double besselI1(double x) {
  double a = std::fabs(x);
  if (a < 40) return std::copysign(besselISeries(1, a), x);
  return std::isinf(x) ? x : besselIScaled(1, x) * std::exp(a);
}
double besselK0e(double x) { return besselKScaled(0, x); }
double besselK1e(double x) { return besselKScaled(1, x); }
double besselK0(double x) { return besselKScaled(0, x) * std::exp(-x); }
double besselK1(double x) { return besselKScaled(1, x) * std::exp(-x); }

double airyAi(double x) {
  if (std::isnan(x)) return x;
  if (x > 1) { // Ai(x) = sqrt(x / 3) / pi * K_{1/3}(zeta)
    double zeta = 2.0 / 3 * x * std::sqrt(x);
    if (zeta > 745) return 0;
    double h = 1.0 / 64, total = 0.5, top = std::acosh(1 + 745 / zeta);
    for (int k = 1; k * h <= top; ++k)
      total += std::exp(-zeta * 2 * std::pow(std::sinh(k * h / 2), 2)) * std::cosh(k * h / 3);
    return std::sqrt(x / 3) / kPi * total * h * std::exp(-zeta);
  }
  if (x > -7) { // Maclaurin, DLMF 9.4.1
    double f = 1, g = x, tf = 1, tg = x;
    for (int k = 1; k < 120; ++k) {
      tf *= x * x * x / ((3.0 * k - 1) * (3.0 * k));
      tg *= x * x * x / ((3.0 * k) * (3.0 * k + 1));
      f += tf;
      g += tg;
    }
    return 0.355028053887817239 * f - 0.258819403792806798 * g;
  }
  // DLMF 9.7.9
  double z = -x, zeta = 2.0 / 3 * z * std::sqrt(z), u = 1, even = 1, odd = 0, power = 1, last = 1;
  for (int k = 1; k < 40; ++k) {
    u *= (6.0 * k - 5) * (6.0 * k - 3) * (6.0 * k - 1) / (216.0 * k * (2 * k - 1));
    power /= zeta;
    double term = u * power;
    if (std::fabs(term) > last) break;
    last = std::fabs(term);
    double sign = (k / 2) % 2 ? -1 : 1;
    (k % 2 ? odd : even) += sign * term;
  }
  return (std::cos(zeta - kPi / 4) * even + std::sin(zeta - kPi / 4) * odd) /
         (std::sqrt(kPi) * std::sqrt(std::sqrt(z)));
}

double digamma(double x) {
  if (std::isnan(x)) return x;
  if (x == 0) return std::copysign(kInf, -x);
  if (std::isinf(x)) return x > 0 ? kInf : kNaN;
  double shift = 0;
  if (x < 0) {
    double whole, part = std::modf(x, &whole);
    if (part == 0) return kNaN;
    shift = -kPi / std::tan(kPi * part);
    x = 1 - x;
  }
  for (; x < 12; x += 1) shift -= 1 / x;
  double y = 1 / (x * x);
  double series =
      y *
      (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132 - y * (691.0 / 32760 - y / 12))))));
  return shift + std::log(x) - 0.5 / x - series;
}

double hurwitzZeta(double s, double q) {
  if (s == 1) return kInf;
  if (s < 1 || std::isnan(s) || std::isnan(q)) return kNaN;
  if (q <= 0) {
    if (q == std::floor(q)) return kInf;
    if (s != std::floor(s)) return kNaN; // a power of a negative base
  }
  double total = 0;
  int n = 0;
  for (; n < 14 || q + n < 14; ++n) {
    if (n > 200000) break;
    total += std::pow(q + n, -s);
  }
  double a = q + n;
  // Euler-Maclaurin remainder with Bernoulli numbers B2..B20 over their factorials.
  static const double b[] = {1.0 / 12,
                             -1.0 / 720,
                             1.0 / 30240,
                             -1.0 / 1209600,
                             1.0 / 47900160,
                             -691.0 / 1307674368000.0,
                             1.0 / 74724249600.0,
                             -3617.0 / 10670622842880000.0,
                             43867.0 / 5109094217170944000.0};
  total += std::pow(a, 1 - s) / (s - 1) + 0.5 * std::pow(a, -s);
  double factor = s * std::pow(a, -s - 1);
  for (int k = 0; k < 9; ++k) {
    total += b[k] * factor;
    factor *= (s + 2 * k + 1) * (s + 2 * k + 2) / (a * a);
  }
  return total;
}

double polygamma(int64_t n, double x) {
  if (n == 0) return digamma(x);
  double sign = n % 2 ? 1 : -1;
  return sign * std::exp(std::lgamma(static_cast<double>(n) + 1)) * hurwitzZeta(static_cast<double>(n) + 1, x);
}

double erfcx(double x) {
  if (std::isnan(x)) return x;
  if (x < 25) return x < -26.7 ? kInf : std::exp(x * x) * std::erfc(x);
  double y = 1 / (2 * x * x);
  return (1 - y * (1 - 3 * y * (1 - 5 * y * (1 - 7 * y)))) / (x * std::sqrt(kPi));
}

double logNdtr(double x) {
  if (x > -1) return std::log1p(-std::erfc(x / std::numbers::sqrt2) / 2);
  return std::log(erfcx(-x / std::numbers::sqrt2) / 2) - x * x / 2;
}

double erfinv(double y) {
  if (std::isnan(y) || std::fabs(y) > 1) return kNaN;
  if (std::fabs(y) == 1) return std::copysign(kInf, y);
  // A rough start (Winitzki 2008), then Halley steps on erf; near the ends on erfc, which keeps its digits there.
  double w = std::log1p(-y * y), a = 0.147, t = 2 / (kPi * a) + w / 2;
  double x = std::copysign(std::sqrt(std::sqrt(t * t - w / a) - t), y);
  for (int i = 0; i < 4; ++i) {
    double tail = (1 - std::fabs(y)) - std::erfc(std::fabs(x));
    double residual = std::fabs(y) < 0.5 ? std::erf(x) - y : y < 0 ? -tail : tail;
    double step = residual / (2 / std::sqrt(kPi) * std::exp(-x * x));
    x -= step / (1 + x * step);
  }
  return x;
}

double ndtri(double p) {
  if (std::isnan(p) || p < 0 || p > 1) return kNaN;
  if (p == 0) return -kInf;
  if (p == 1) return kInf;
  if (p > 0.1 && p < 0.9) return std::numbers::sqrt2 * erfinv(2 * p - 1);
  double tail = p < 0.5 ? p : 1 - p;
  double x = std::sqrt(-2 * std::log(tail));
  for (int i = 0; i < 60; ++i) { // Newton on log of the tail, which is nearly quadratic
    double f = logNdtr(-x) - std::log(tail);
    double slope = -std::sqrt(2 / kPi) / erfcx(x / std::numbers::sqrt2);
    double step = f / slope;
    x -= step;
    if (std::fabs(step) < 1e-16 * std::fabs(x)) break;
  }
  return p < 0.5 ? -x : x;
}

double igamma(double a, double x) { return gammaRatio(a, x, false); }
double igammac(double a, double x) { return gammaRatio(a, x, true); }

} // namespace neso::special
