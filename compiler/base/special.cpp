// Special functions in double: series near the origin, asymptotic expansions, continued fractions or Chebyshev series far
// away. Sources of the formulas: NIST Digital Library of Mathematical Functions (chapters 5, 7, 8, 9, 10, 25).
#include <cmath>
#include <limits>
#include <numbers>

#include "base/special.h"

namespace neso::special {

double logGamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}

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

/// Chebyshev series at t in [-1, 1], by Clenshaw's recurrence (DLMF 3.11.15).
template <int N> double chebyshevSum(const double (&c)[N], double t) {
  double next = 0, afterNext = 0;
  for (int k = N - 1; k > 0; --k) {
    double value = 2 * t * next - afterNext + c[k];
    afterNext = next;
    next = value;
  }
  return t * next - afterNext + c[0];
}

// Chebyshev coefficients of sqrt(x) exp(x) K_n(x) in 4 / x - 1, x >= 2, computed with 35 digits; what is left out is below
// 1e-17.
const double kTailOfK0[] = {
    1.2201515410329777,     -0.031448101311964502,   0.0015698838857300533,  -0.00012849549581627802,
    1.39498137188765e-05,   -1.8317555227191195e-06, 2.7668136394450149e-07, -4.6604898976879478e-08,
    8.5740340174142253e-09, -1.6975345093890614e-09, 3.5773972814003283e-10, -7.9574892444773965e-11,
    1.8559491149549264e-11, -4.5145978833745193e-12, 1.1403405882073441e-12, -2.9800969231481784e-13,
    8.0328907750683746e-14, -2.2275133267462965e-14, 6.3400764762766461e-15, -1.8485933779209071e-15,
    5.5120559994043335e-16, -1.6782311257549006e-16, 5.2103917776435543e-17, -1.6475805939842632e-17};
const double kTailOfK1[] = {
    1.3603130952422213,      0.10392373657681724,    -0.0028578168596227792,  0.00019521551847135162,
    -1.936197974166083e-05,  2.406484947837217e-06,  -3.5019606030878126e-07, 5.7410841254500495e-08,
    -1.0345762465678097e-08, 2.0150497551970347e-09, -4.1903547593419254e-10, 9.2183151876053146e-11,
    -2.1299678384277909e-11, 5.1396396734823432e-12, -1.2891739609498229e-12, 3.3484196660522431e-13,
    -8.9767051820101463e-14, 2.4771544242195988e-14, -7.0198370892147685e-15, 2.038703166239861e-15,
    -6.0570472706430177e-16, 1.8380935752430455e-16, -5.6894628491936484e-17, 1.7940510478863572e-17};

/// K_0 or K_1 of x in (0, 2] by DLMF 10.31.1, 10.31.2.
double besselKSeries(int n, double x) {
  constexpr double kEuler = 0.57721566490153286061;
  const double q = x * x / 4, l = std::log(x / 2);
  // digamma(k + 1) + digamma(k + n + 1), of which K_0 takes half.
  double psi = n == 0 ? -2 * kEuler : 1 - 2 * kEuler, term = 1, plain = 0, weighted = 0;
  for (int k = 0; k < 20; ++k) {
    plain += term;
    weighted += term * psi;
    if (term < 1e-18) break;
    psi += 1.0 / (k + 1) + 1.0 / (k + n + 1);
    term *= q / (static_cast<double>(k + 1) * (k + n + 1));
  }
  return n == 0 ? weighted / 2 - l * plain : 1 / x + x / 2 * (l * plain - weighted / 2);
}

/// K_n(x), or exp(x) K_n(x).
double besselK(int n, double x, bool scaled) {
  if (std::isnan(x) || x < 0) return kNaN;
  if (x == 0) return kInf;
  if (x <= 2) return besselKSeries(n, x) * (scaled ? std::exp(x) : 1);
  const double t = 4 / x - 1, sum = n == 0 ? chebyshevSum(kTailOfK0, t) : chebyshevSum(kTailOfK1, t);
  return sum / std::sqrt(x) * (scaled ? 1 : std::exp(-x));
}

// Chebyshev coefficients of 2 sqrt(pi) x^(1/4) exp(zeta) Ai(x) in 2 x^(-3/2) - 1, x >= 1, zeta = 2/3 x^(3/2); as above.
const double kTailOfAiry[] = {
    0.96376836098496887,    -0.032416000194485928,   0.0031941239613695834,  -0.00049422540503301575,
    9.7065179425465947e-05, -2.224444511200298e-05,  5.694838987920343e-06,  -1.5868397039029868e-06,
    4.7311609911660025e-07, -1.4914679268537125e-07, 4.9282012394543468e-08, -1.6955948660827914e-08,
    6.0433224591863024e-09, -2.2220862485979766e-09, 8.400808330101413e-10,  -3.2564980497900168e-10,
    1.2913338128187496e-10, -5.2278721914194957e-11, 2.1571120180559685e-11, -9.058221909804504e-12,
    3.8661427181794894e-12, -1.6752774093903056e-12, 7.3626636341337862e-13, -3.278955307898836e-13,
    1.4785693873897687e-13, -6.7459272277098995e-14, 3.112098467985573e-14,  -1.4508441986007412e-14,
    6.8314165673156112e-15, -3.2472075568584484e-15, 1.5574818341550462e-15, -7.5347628345166666e-16,
    3.6752234022838127e-16, -1.8068071063373038e-16, 8.9497561855012355e-17, -4.4652881838995317e-17,
    2.2433819359973985e-17, -1.1346375254381318e-17};

double igammaSeries(double a, double x) {
  double term = 1 / a, total = term;
  for (int k = 1; k < 20000; ++k) {
    term *= x / (a + k);
    total += term;
    if (term < 1e-17 * total) break;
  }
  return total * std::exp(a * std::log(x) - x - logGamma(a));
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
  return h * std::exp(a * std::log(x) - x - logGamma(a));
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
double besselK0e(double x) { return besselK(0, x, true); }
double besselK1e(double x) { return besselK(1, x, true); }
double besselK0(double x) { return besselK(0, x, false); }
double besselK1(double x) { return besselK(1, x, false); }

double airyAi(double x) {
  if (std::isnan(x)) return x;
  if (x > 1) {
    const double power = x * std::sqrt(x), zeta = 2.0 / 3 * power;
    if (zeta > 745) return 0;
    return chebyshevSum(kTailOfAiry, 2 / power - 1) * std::exp(-zeta) / (2 * std::sqrt(kPi) * std::sqrt(std::sqrt(x)));
  }
  if (x > -7) { // Maclaurin, DLMF 9.4.1
    const double cube = x * x * x;
    double f = 1, g = x, tf = 1, tg = x;
    for (int k = 1; k < 120; ++k) {
      const double q = cube / (9.0 * k * k * (9.0 * k * k - 1));
      tf *= q * (3.0 * k * (3.0 * k + 1));
      tg *= q * (3.0 * k * (3.0 * k - 1));
      f += tf;
      g += tg;
      if (std::fabs(tf) + std::fabs(tg) < 1e-18) break;
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
  return sign * std::exp(logGamma(static_cast<double>(n) + 1)) * hurwitzZeta(static_cast<double>(n) + 1, x);
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

double erfcinv(double x) {
  // Beside 1 the distance from it is exact and keeps its digits; far from it the tail does.
  return x > 0.2 && x < 1.8 ? erfinv(1 - x) : -ndtri(x / 2) / std::numbers::sqrt2;
}

double igamma(double a, double x) { return gammaRatio(a, x, false); }
double igammac(double a, double x) { return gammaRatio(a, x, true); }

} // namespace neso::special
