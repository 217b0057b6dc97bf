// Elementary functions of f32 against libm in long double, over all bit patterns in strides that change from run to run
// of the loop: every exponent and sign, denormals, infinities, NaN. Tolerance: 2 units in the last place (3 for pow,
// whose inputs are sampled in pairs), or what stands beside the function; none for remainders and neighbours.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "backend/cpu/test/harness.h"

namespace neso::cpu::test {
namespace {

const char *const kPlain = " : tensor<1024xf32>";
const char *const kCall = " : (tensor<1024xf32>) -> tensor<1024xf32>";
const char *const kCallOfTwo = " : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>";

/// The first words of a call of the library's function for f32.
std::string external(const std::string &name, const std::string &arguments) {
  return "tt.extern_elementwise " + arguments + " {libname = \"\", libpath = \"\", pure = true, symbol = \"" + name +
         "\"}";
}

std::string unaryText(const std::string &op, const char *type = kPlain) {
  return "module {\n  tt.func public @f(%x: !tt.ptr<f32>, %o: !tt.ptr<f32>) {\n    %pid = tt.get_program_id x : i32\n  "
         "  %c = arith.constant 1024 : i32\n"
         "    %base = arith.muli %pid, %c : i32\n    %r = tt.make_range {end = 1024 : i32, start = 0 : i32} : "
         "tensor<1024xi32>\n"
         "    %b = tt.splat %base : i32 -> tensor<1024xi32>\n    %i = arith.addi %b, %r : tensor<1024xi32>\n"
         "    %xp = tt.splat %x : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>\n    %xq = tt.addptr %xp, %i : "
         "tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>\n"
         "    %v = tt.load %xq : tensor<1024x!tt.ptr<f32>>\n    %y = " +
         op + type +
         "\n"
         "    %op = tt.splat %o : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>\n    %oq = tt.addptr %op, %i : "
         "tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>\n"
         "    tt.store %oq, %y : tensor<1024x!tt.ptr<f32>>\n    tt.return\n  }\n}\n";
}

double ulps(float got, long double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e9;
  const float rounded = static_cast<float>(want);
  if (std::isinf(rounded)) return got == rounded || std::abs(got) == std::numeric_limits<float>::max() ? 0 : 1e9;
  if (std::isnan(got) || std::isinf(got)) return std::abs(want) > 3.4028233e38L ? 1 : 1e9;
  int exponent = 0;
  std::frexp(rounded, &exponent);
  const long double unit = std::ldexp(1.0L, std::max(exponent - 24, -149));
  return static_cast<double>(std::abs(got - want) / unit);
}

struct Function {
  const char *op;
  long double (*reference)(long double);
  double limit = 2;
};

class MathTest : public testing::TestWithParam<Function> {};
INSTANTIATE_TEST_SUITE_P(Unary, MathTest,
                         testing::Values(Function{"math.exp", std::exp}, Function{"math.exp2", std::exp2},
                                         Function{"math.expm1", std::expm1}, Function{"math.log", std::log, 1},
                                         Function{"math.log2", std::log2}, Function{"math.log10", std::log10},
                                         Function{"math.log1p", std::log1p}, Function{"math.sin", std::sin},
                                         Function{"math.cos", std::cos}, Function{"math.tanh", std::tanh},
                                         Function{"math.erf", std::erf}, Function{"math.erfc", std::erfc, 1},
                                         Function{"math.asinh", std::asinh, 1}, Function{"math.acosh", std::acosh, 1},
                                         Function{"math.atanh", std::atanh, 1}, Function{"math.sqrt", std::sqrt},
                                         Function{"math.rsqrt", [](long double x) { return 1 / std::sqrt(x); }},
                                         Function{"math.sinh", std::sinh}, Function{"math.cosh", std::cosh},
                                         Function{"math.atan", std::atan}, Function{"math.asin", std::asin, 1},
                                         Function{"math.acos", std::acos, 1}, Function{"math.tan", std::tan, 1},
                                         Function{"math.floor", std::floor}, Function{"math.round", std::round}),
                         [](const auto &info) { return std::string(info.param.op).substr(5); });

TEST_P(MathTest, WithinTwoUlp) {
  constexpr size_t kBlock = 1 << 16;
  for (CpuLevel level : runnableLevels()) {
    Kernel k(unaryText(std::string(GetParam().op) + " %v"), level);
    ASSERT_TRUE(k.ok()) << k.error;
    double worst = 0;
    float worstAt = 0, worstGot = 0;
    // A prime step visits all exponents and many mantissas: about 2^19 of the 2^32 inputs.
    uint32_t bits = 0;
    for (int round = 0; round < 8; ++round) {
      std::vector<float> x(kBlock), y(kBlock);
      for (float &v : x) {
        std::memcpy(&v, &bits, 4);
        bits += 8191 + 2 * static_cast<uint32_t>(round);
      }
      const float special[] = {0.0f,    -0.0f, 1.0f,   -1.0f,  INFINITY, -INFINITY,      NAN,          1e-45f,
                               -1e-45f, 0.5f,  88.72f, -87.5f, -103.9f,  1.1754944e-38f, 3.4028235e38f};
      for (size_t i = 0; i < std::size(special); ++i) x[i] = special[i];
      k.run({pointer(x.data()), pointer(y.data())}, kBlock / 1024);
      for (size_t i = 0; i < kBlock; ++i) {
        const double u = ulps(y[i], GetParam().reference(static_cast<long double>(x[i])));
        if (u > worst) worst = u, worstAt = x[i], worstGot = y[i];
      }
    }
    EXPECT_LE(worst, GetParam().limit) << name(level) << " at " << worstAt << ": " << worstGot << " instead of "
                                       << static_cast<float>(GetParam().reference(worstAt));
  }
}

/// Exponentials that may leave out the smallest results, as a softmax's weights have it: 0 for what is below 2^-125, else to 3 ulp, and of e^x a twentieth of
/// an ulp for each 1 of |x|: what rounding x itself changes is ten times that.
struct Weights {
  const char *op;
  long double (*reference)(long double);
  float least, most, limit, ofX; // x between these; ulps, and more for each 1 of |x|
};

class SoftmaxWeights : public testing::TestWithParam<Weights> {};
INSTANTIATE_TEST_SUITE_P(Unary, SoftmaxWeights,
                         testing::Values(Weights{"math.exp", std::exp, -400, 100, 3, 0.05f}, Weights{"math.exp2", std::exp2, -500, 140, 3, 0}),
                         [](const auto &info) { return std::string(info.param.op).substr(5); });

TEST_P(SoftmaxWeights, AreZeroInPlaceOfDenormals) {
  constexpr size_t kBlock = 1 << 16;
  const Weights &w = GetParam();
  for (CpuLevel level : runnableLevels()) {
    Kernel k(unaryText(std::string(w.op) + " %v fastmath<afn>"), level);
    ASSERT_TRUE(k.ok()) << k.error;
    std::vector<float> x(kBlock), y(kBlock);
    for (size_t i = 0; i < kBlock; ++i) x[i] = w.least + (w.most - w.least) * static_cast<float>(i) / kBlock;
    const float special[] = {0.0f,   -0.0f,   INFINITY, -INFINITY, NAN,      88.72f, 88.73f, -86.6433f, -86.6435f, -87.4f,
                             -104.0f, 127.99f, 128.0f,   128.01f,   -124.99f, -125.0f, -125.01f, -126.0f, -149.5f,   -1e30f, 1e30f};
    for (size_t i = 0; i < std::size(special); ++i) x[i] = special[i];
    k.run({pointer(x.data()), pointer(y.data())}, kBlock / 1024);
    for (size_t i = 0; i < kBlock; ++i) {
      const long double want = w.reference(static_cast<long double>(x[i]));
      // Beside the limit itself either is right.
      if (want < std::ldexp(1.0L, -125) * 1.0001L && y[i] == 0) continue;
      EXPECT_LE(ulps(y[i], want), std::isfinite(x[i]) ? w.limit + std::abs(x[i]) * w.ofX : 0) << name(level) << " at " << x[i] << ": " << y[i];
      EXPECT_TRUE(!(want < std::ldexp(1.0L, -125) * 0.9999L)) << name(level) << " at " << x[i] << ": " << y[i];
      // The largest of a softmax's weights is 1.
      if (x[i] == 0) EXPECT_EQ(y[i], 1) << name(level);
    }
  }
}

/// erfc that stands for 1 - erf: 6e-8 off by its polynomial, 9e-8 by its power, 6e-8 where it is taken from 2; and 0, 2 and NaN where it is that.
TEST(ErfcBesideOne, IsAsExactAsOneIs) {
  constexpr size_t kBlock = 1 << 16;
  for (CpuLevel level : runnableLevels()) {
    Kernel k(unaryText("math.erfc %v fastmath<afn>"), level);
    ASSERT_TRUE(k.ok()) << k.error;
    std::vector<float> x(kBlock), y(kBlock);
    for (size_t i = 0; i < kBlock; ++i) x[i] = -12 + 24 * static_cast<float>(i) / kBlock;
    const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-40f, 4.2f, 27.0f, 1e4f, -1e4f, 1e30f, -1e30f, 3.4e38f, -3.4e38f};
    for (size_t i = 0; i < std::size(special); ++i) x[i] = special[i];
    k.run({pointer(x.data()), pointer(y.data())}, kBlock / 1024);
    for (size_t i = 0; i < kBlock; ++i) {
      const double want = std::erfc(static_cast<double>(x[i]));
      if (std::isnan(x[i])) {
        EXPECT_TRUE(std::isnan(y[i])) << name(level);
        continue;
      }
      EXPECT_NEAR(y[i], want, std::abs(x[i]) < 13 ? 2.2e-7 : 1e-30) << name(level) << " at " << x[i];
      if (x[i] == 0) EXPECT_EQ(y[i], 1) << name(level);
    }
  }
}

struct DoubleFunction {
  const char *op;
  long double (*reference)(long double);
  /// Results differ from their limits between these.
  double least, most;
  double limit;
};

class DoubleMathTest : public testing::TestWithParam<DoubleFunction> {};
INSTANTIATE_TEST_SUITE_P(Unary, DoubleMathTest,
                         testing::Values(DoubleFunction{"math.exp", std::exp, -760, 720, 1},
                                         DoubleFunction{"math.expm1", std::expm1, -60, 720, 2},
                                         DoubleFunction{"math.log", std::log, 0, 20, 1},
                                         DoubleFunction{"math.log1p", std::log1p, -1, 20, 1},
                                         DoubleFunction{"math.tanh", std::tanh, -23, 23, 3},
                                         DoubleFunction{"math.erf", std::erf, -7, 7, 2},
                                         DoubleFunction{"math.sin", std::sin, -100, 100, 1},
                                         DoubleFunction{"math.cos", std::cos, -100, 100, 1}),
                         [](const auto &info) { return std::string(info.param.op).substr(5); });

/// Where something happens in one of the functions: their limits, and angles near multiples of a quarter turn.
const double kDoubleEdges[] = {0.0,
                               -0.0,
                               INFINITY,
                               -INFINITY,
                               NAN,
                               1.0,
                               -1.0,
                               -1.0000000000000002,
                               5e-324,
                               -5e-324,
                               1e-310,
                               -1e-310,
                               1e-17,
                               -1e-17,
                               1e300,
                               -1e300,
                               0.5,
                               6.0,
                               2.2250738585072014e-308,
                               1.7976931348623157e308,
                               -0.99999999999999989,
                               709.78271289338397,
                               709.7827128933841,
                               -745.13321910194111,
                               -745.1332191019412,
                               -708.4,
                               1.5707963267948966,
                               3.1415926535897931,
                               355,
                               -103993,
                               1048575.9,
                               1048576.1,
                               6381956970095103.0,
                               0.70710678118654757,
                               1.4142135623730951};

TEST_P(DoubleMathTest, WithinUnitsInTheLastPlace) {
  const DoubleFunction &f = GetParam();
  std::string text = unaryText(std::string(f.op) + " %v");
  for (size_t at; (at = text.find("f32")) != std::string::npos;) text.replace(at, 3, "f64");
  for (CpuLevel level : runnableLevels()) {
    Kernel k(text, level);
    ASSERT_TRUE(k.ok()) << k.error;
    constexpr size_t n = 1 << 17;
    std::vector<double> x(n), y(n);
    for (size_t i = 0; i < n; ++i) {
      const double t = (static_cast<double>(i) + 0.37) / n;
      // Evenly, small ones of all sizes, and the whole range of exponents.
      x[i] = i % 3 == 0   ? f.least + (f.most - f.least) * t
             : i % 3 == 1 ? std::ldexp(t - 0.5, -static_cast<int>(i % 60))
                          : std::ldexp(t - 0.5, static_cast<int>(i % 2100) - 1070);
    }
    std::copy(std::begin(kDoubleEdges), std::end(kDoubleEdges), x.begin());
    // Each edge among lanes that have none, too.
    for (size_t i = 0; i < std::size(kDoubleEdges); ++i) x[1024 + 64 * i + i % 16] = kDoubleEdges[i];
    k.run({pointer(x.data()), pointer(y.data())}, n / 1024);
    for (size_t i = 0; i < n; ++i) {
      const long double want = f.reference(static_cast<long double>(x[i]));
      const double rounded = static_cast<double>(want);
      if (std::isnan(rounded) || std::isinf(rounded)) {
        ASSERT_TRUE(std::isnan(rounded) ? std::isnan(y[i]) : y[i] == rounded)
            << name(level) << " at " << x[i] << " " << y[i];
        continue;
      }
      int exponent = 0;
      std::frexp(rounded, &exponent);
      const long double unit = std::ldexp(1.0L, std::max(exponent - 53, -1074));
      ASSERT_LE(std::abs(y[i] - want) / unit, f.limit) << name(level) << " at " << x[i] << " i " << i;
      if (x[i] == 0) ASSERT_EQ(std::signbit(y[i]), std::signbit(rounded)) << name(level);
    }
  }
}

/// The worst error in ulps of `text` over 2^13 inputs of [from, to].
double worstOver(const std::string &text, float from, float to, double (*error)(float x, float y)) {
  double worst = 0;
  for (CpuLevel level : runnableLevels()) {
    Kernel k(text, level);
    EXPECT_TRUE(k.ok()) << k.error;
    if (!k.ok()) return 1e9;
    constexpr size_t n = 1 << 13;
    std::vector<float> x(n), y(n);
    for (size_t i = 0; i < n; ++i) x[i] = from + (to - from) * (static_cast<float>(i) + 0.37f) / n;
    k.run({pointer(x.data()), pointer(y.data())}, n / 1024);
    for (size_t i = 0; i < n; ++i) worst = std::max(worst, error(x[i], y[i]));
  }
  return worst;
}

TEST(MathTest, BesselFunctions) {
  auto of = [](const char *name) { return unaryText(external(name, "%v"), kCall); };
  auto i0 = [](float x, float y) { return ulps(y, std::cyl_bessel_il(0, std::abs(x))); };
  auto i1 = [](float x, float y) { return ulps(y, std::copysign(std::cyl_bessel_il(1, std::abs(x)), x)); };
  auto i0e = [](float x, float y) {
    return ulps(y, std::cyl_bessel_il(0, std::abs(x)) * std::exp(-std::abs<long double>(x)));
  };
  auto i1e = [](float x, float y) {
    return ulps(y, std::copysign(std::cyl_bessel_il(1, std::abs(x)) * std::exp(-std::abs<long double>(x)), x));
  };
  for (float range : {1e-30f, 1.0f, 12.0f, 80.0f}) {
    EXPECT_LE(worstOver(of("__nv_cyl_bessel_i0f"), -range, range, i0), 1) << range;
    EXPECT_LE(worstOver(of("__nv_cyl_bessel_i1f"), -range, range, i1), 1) << range;
    EXPECT_LE(worstOver(of("neso_i0e_f32"), -range, range, i0e), 1) << range;
    EXPECT_LE(worstOver(of("neso_i1e_f32"), -range, range, i1e), 1) << range;
  }
}

TEST(MathTest, NormalQuantile) {
  // The error of the quantile is the error of the distribution there over its density.
  auto error = [](float p, float y) -> double {
    const long double x = y, density = std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846L);
    const long double miss = p < 0.5f ? std::erfc(-x / std::sqrt(2.0L)) / 2 - p
                                      : (1 - static_cast<long double>(p)) - std::erfc(x / std::sqrt(2.0L)) / 2;
    return ulps(y, x - miss / density);
  };
  const std::string text = unaryText(external("neso_ndtri_f32", "%v"), kCall);
  for (float to : {1e-37f, 1e-20f, 1e-6f, 1e-3f, 1.0f}) EXPECT_LE(worstOver(text, to * 1e-3f, to, error), 1) << to;
  for (CpuLevel level : runnableLevels()) {
    Kernel k(text, level);
    ASSERT_TRUE(k.ok()) << k.error;
    std::vector<float> x(1024, 0.5f), y(1024);
    const float edges[] = {0.0f, -0.0f, 1.0f, -1e-45f, 1.0000001f, NAN, INFINITY, -INFINITY};
    const float want[] = {-INFINITY, -INFINITY, INFINITY, NAN, NAN, NAN, NAN, NAN};
    std::copy(std::begin(edges), std::end(edges), x.begin());
    k.run({pointer(x.data()), pointer(y.data())}, 1);
    for (size_t i = 0; i < std::size(edges); ++i) EXPECT_EQ(ulps(y[i], want[i]), 0) << edges[i] << ": " << y[i];
    EXPECT_EQ(y.back(), 0.0f);
  }
}

/// `text` of two operands, of which the second lies 65,536 behind the first.
std::string withSecond(std::string text) {
  const std::string load = "    %v = tt.load %xq : tensor<1024x!tt.ptr<f32>>\n";
  text.insert(text.find(load) + load.size(), "    %far = arith.constant dense<65536> : tensor<1024xi32>\n    %wq = "
                                             "tt.addptr %xq, %far : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>\n"
                                             "    %w = tt.load %wq : tensor<1024x!tt.ptr<f32>>\n");
  return text;
}

struct PairFunction {
  const char *name;
  std::string text;
  double (*error)(float x, float y, float got);
  double limit;
};

TEST(MathTest, RemainderNeighbourAndHypot) {
  // Exact, the sign of zero included.
  auto same = [](float got, float want) {
    return (std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want)) ? 0.0 : 1e9;
  };
  static auto exact = same;
  const PairFunction functions[] = {{"fmod", unaryText("arith.remf %v, %w"),
                                     [](float x, float y, float got) { return exact(got, std::fmod(x, y)); }, 0},
                                    {"nextafter", unaryText(external("__nv_nextafterf", "%v, %w"), kCallOfTwo),
                                     [](float x, float y, float got) { return exact(got, std::nextafter(x, y)); }, 0},
                                    {"hypot", unaryText(external("__nv_hypotf", "%v, %w"), kCallOfTwo),
                                     [](float x, float y, float got) {
                                       return ulps(
                                           got, std::hypot(static_cast<long double>(x), static_cast<long double>(y)));
                                     },
                                     1}};
  constexpr size_t n = 65536;
  const float special[] = {0.0f,  -0.0f,    1.0f,      -1.0f, 2.0f,   1e-45f, 3.0f,    3.4028235e38f,
                           -0.5f, INFINITY, -INFINITY, NAN,   1e-40f, -3.0f,  -1e-45f, 1.1754944e-38f};
  for (const PairFunction &f : functions)
    for (CpuLevel level : runnableLevels()) {
      Kernel k(withSecond(f.text), level);
      ASSERT_TRUE(k.ok()) << k.error;
      // Near each other, then any bit patterns, among them quotients up to 2^277.
      for (bool any : {false, true}) {
        std::vector<float> in(2 * n), out(n), r = numbers(2 * n, 5);
        uint32_t state = 1;
        for (size_t i = 0; i < 2 * n; ++i) {
          state = state * 1664525u + 1013904223u;
          in[i] = r[i] * (i < n ? 100.0f : 3.0f);
          if (any) std::memcpy(&in[i], &state, 4);
        }
        if (any)
          for (size_t i = 0; i < 256; ++i) in[i] = special[i % 16], in[n + i] = special[i / 16];
        k.run({pointer(in.data()), pointer(out.data())}, n / 1024);
        for (size_t i = 0; i < n; ++i)
          ASSERT_LE(f.error(in[i], in[n + i], out[i]), f.limit)
              << f.name << " of " << in[i] << " and " << in[n + i] << ": " << out[i] << ", " << name(level);
      }
    }
}

TEST(MathTest, PowAndAtan2) {
  for (const char *op : {"pow", "atan2"}) {
    const bool isPow = std::string(op) == "pow";
    const std::string text = withSecond(isPow ? unaryText("math.powf %v, %w") : unaryText(external("__nv_atan2f", "%v, %w"), kCallOfTwo));
    for (CpuLevel level : runnableLevels()) {
      Kernel k(text, level);
      ASSERT_TRUE(k.ok()) << k.error;
      constexpr size_t n = 65536;
      std::vector<float> in(2 * n), out(n);
      const float special[] = {0.0f,  -0.0f,    1.0f,      -1.0f, 2.0f,   -2.0f, 3.0f,  0.5f,
                               -0.5f, INFINITY, -INFINITY, NAN,   1e-40f, -3.0f, 1e30f, 1e-30f};
      std::vector<float> r = numbers(2 * n, 5);
      for (size_t i = 0; i < n; ++i) {
        in[i] = isPow ? std::exp(r[i] * 10) : r[i] * 4;
        in[n + i] = r[n + i] * 8;
      }
      for (size_t i = 0; i < 256; ++i) in[i] = special[i % 16], in[n + i] = special[i / 16];
      k.run({pointer(in.data()), pointer(out.data())}, n / 1024);
      for (size_t i = 0; i < n; ++i) {
        const long double want = isPow
                                     ? std::pow(static_cast<long double>(in[i]), static_cast<long double>(in[n + i]))
                                     : std::atan2(static_cast<long double>(in[i]), static_cast<long double>(in[n + i]));
        ASSERT_LE(ulps(out[i], want), 3) << op << " " << in[i] << " " << in[n + i] << ": " << out[i] << " instead of "
                                         << static_cast<float>(want);
      }
    }
  }
}

} // namespace
} // namespace neso::cpu::test
