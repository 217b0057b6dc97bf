// Elementary functions of f32 against libm in long double, over all bit patterns in strides that change from run to run
// of the loop: every exponent and sign, denormals, infinities, NaN. Tolerance: 2 units in the last place (3 for pow,
// whose inputs are sampled in pairs).
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "backend/cpu/test/harness.h"

namespace neso::cpu::test {
namespace {

std::string unaryText(const std::string &op) {
  return "module {\n  tt.func public @f(%x: !tt.ptr<f32>, %o: !tt.ptr<f32>) {\n    %pid = tt.get_program_id x : i32\n  "
         "  %c = arith.constant 1024 : i32\n"
         "    %base = arith.muli %pid, %c : i32\n    %r = tt.make_range {end = 1024 : i32, start = 0 : i32} : "
         "tensor<1024xi32>\n"
         "    %b = tt.splat %base : i32 -> tensor<1024xi32>\n    %i = arith.addi %b, %r : tensor<1024xi32>\n"
         "    %xp = tt.splat %x : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>\n    %xq = tt.addptr %xp, %i : "
         "tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>\n"
         "    %v = tt.load %xq : tensor<1024x!tt.ptr<f32>>\n    %y = " +
         op +
         " : tensor<1024xf32>\n"
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
                                         Function{"math.expm1", std::expm1}, Function{"math.log", std::log},
                                         Function{"math.log2", std::log2}, Function{"math.log10", std::log10},
                                         Function{"math.log1p", std::log1p}, Function{"math.sin", std::sin},
                                         Function{"math.cos", std::cos}, Function{"math.tanh", std::tanh},
                                         Function{"math.erf", std::erf}, Function{"math.sqrt", std::sqrt},
                                         Function{"math.rsqrt", [](long double x) { return 1 / std::sqrt(x); }},
                                         Function{"math.sinh", std::sinh}, Function{"math.cosh", std::cosh},
                                         Function{"math.atan", std::atan}, Function{"math.asin", std::asin},
                                         Function{"math.acos", std::acos}, Function{"math.tan", std::tan},
                                         Function{"math.floor", std::floor}, Function{"math.round", std::round}),
                         [](const auto &info) { return std::string(info.param.op).substr(5); });

TEST_P(MathTest, WithinTwoUlp) {
  constexpr size_t kBlock = 1 << 16;
  for (CpuLevel level : levels()) {
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

TEST(MathTest, PowAndAtan2) {
  for (const char *op : {"math.powf", "math.atan2"}) {
    const bool isPow = std::string(op) == "math.powf";
    std::string text = unaryText(std::string(op) + " %v, %w");
    // The second operand lies behind the first.
    const std::string load = "    %v = tt.load %xq : tensor<1024x!tt.ptr<f32>>\n";
    text.insert(text.find(load) + load.size(), "    %far = arith.constant dense<65536> : tensor<1024xi32>\n    %wq = "
                                               "tt.addptr %xq, %far : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>\n"
                                               "    %w = tt.load %wq : tensor<1024x!tt.ptr<f32>>\n");
    for (CpuLevel level : levels()) {
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
