// Claim: inline PTX means on the CPU what the PTX manual says. Expected values are computed here, in double or on
// integers.
#include <bit>
#include <cmath>
#include <gtest/gtest.h>

#include "backend/cpu/test/harness.h"

namespace neso::cpu::test {
namespace {

/// A kernel that applies `assembly` to 64 elements of two arrays.
std::string program(const std::string &assembly, const std::string &in, const std::string &out) {
  std::string text = R"(module {
  tt.func public @ptx(%x: !tt.ptr<IN>, %y: !tt.ptr<IN>, %dst: !tt.ptr<OUT>) {
    %lane = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %xs = tt.splat %x : !tt.ptr<IN> -> tensor<64x!tt.ptr<IN>>
    %xa = tt.addptr %xs, %lane : tensor<64x!tt.ptr<IN>>, tensor<64xi32>
    %a = tt.load %xa : tensor<64x!tt.ptr<IN>>
    %ys = tt.splat %y : !tt.ptr<IN> -> tensor<64x!tt.ptr<IN>>
    %ya = tt.addptr %ys, %lane : tensor<64x!tt.ptr<IN>>, tensor<64xi32>
    %b = tt.load %ya : tensor<64x!tt.ptr<IN>>
    %r = tt.elementwise_inline_asm "ASM" {constraints = "=r,r,r", packed_element = 1 : i32, pure = true} %a, %b : tensor<64xIN>, tensor<64xIN> -> tensor<64xOUT>
    %ds = tt.splat %dst : !tt.ptr<OUT> -> tensor<64x!tt.ptr<OUT>>
    %da = tt.addptr %ds, %lane : tensor<64x!tt.ptr<OUT>>, tensor<64xi32>
    tt.store %da, %r : tensor<64x!tt.ptr<OUT>>
    tt.return
  }
})";
  auto replace = [&](const std::string &what, const std::string &with) {
    for (size_t p = 0; (p = text.find(what, p)) != std::string::npos; p += with.size())
      text.replace(p, what.size(), with);
  };
  replace("OUT", out);
  replace("IN", in);
  replace("ASM", assembly);
  return text;
}

std::vector<float> floats(uint32_t seed) {
  std::vector<float> v = numbers(64, seed);
  for (float &f : v) f *= 30.0f;
  return v;
}
std::vector<uint32_t> words(uint64_t seed) {
  std::vector<uint32_t> v(64);
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<uint32_t>((seed + i) * 0x9E3779B97F4A7C15ull >> 29);
  v[0] = 0, v[1] = ~0u, v[2] = 0x80000000u;
  return v;
}

TEST(Ptx, Floats) {
  struct Case {
    const char *text;
    double (*expected)(double, double);
  };
  const Case cases[] = {
      // softplus as gated networks write it
      {"{ .reg .pred p; setp.gt.f32 p, $1, 20.0; @p mov.f32 $0, $1; @!p mul.f32 $0, $1, 0f3FB8AA3B; @!p "
       "ex2.approx.ftz.f32 $0, $0; "
       "@!p add.f32 $0, $0, 1.0; @!p lg2.approx.ftz.f32 $0, $0; @!p mul.f32 $0, $0, 0f3F317218; }",
       [](double x, double) { return x > 20 ? x : std::log1p(std::exp(x)); }},
      {"{ mul.ftz.f32 $0, $1, 0fBFB8AA3B; ex2.approx.ftz.f32 $0, $0; }", [](double x, double) { return std::exp(-x); }},
      {"div.approx.ftz.f32 $0, $1, $2;", [](double x, double y) { return x / y; }},
      {"{ .reg .f32 t; fma.rn.f32 t, $1, $2, $1; /* twice */ sub.f32 $0, t, $2; // done\\0A }",
       [](double x, double y) { return x * y + x - y; }},
      {"{ .reg .pred q; setp.leu.f32 q, $1, $2; selp.f32 $0, $2, $1, q; }",
       [](double x, double y) { return std::max(x, y); }},
      {"cvt.rni.f32.f32 $0, $1;", [](double x, double) { return std::nearbyint(x); }},
      {"mul.sat.f32 $0, $1, $2;", [](double x, double y) { return std::min(1.0, std::max(0.0, x * y)); }},
      {"tanh.approx.f32 $0, $1;", [](double x, double) { return std::tanh(x); }},
  };
  std::vector<float> x = floats(1), y = floats(2);
  for (const Case &c : cases) {
    SCOPED_TRACE(c.text);
    for (CpuLevel level : runnableLevels()) {
      Kernel k(program(c.text, "f32", "f32"), level);
      ASSERT_TRUE(k.ok()) << k.error;
      std::vector<float> out(64);
      k.run({pointer(x.data()), pointer(y.data()), pointer(out.data())}, 1);
      for (size_t i = 0; i < 64; ++i) {
        double want = c.expected(x[i], y[i]);
        ASSERT_NEAR(out[i], want, 1e-5 * std::max(1.0, std::fabs(want))) << x[i] << " " << y[i];
      }
    }
  }
}

TEST(Ptx, Words) {
  struct Case {
    const char *text;
    uint32_t (*expected)(uint32_t, uint32_t);
  };
  const Case cases[] = {
      {"lop3.b32 $0, $1, $2, 0xff, 0x6a;", [](uint32_t x, uint32_t y) { return (x & y) ^ 0xffu; }},
      {"prmt.b32 $0, $1, $2, 0x4103;",
       [](uint32_t x, uint32_t y) { return (x >> 24) | (x & 255) << 8 | (x >> 8 & 255) << 16 | (y & 255) << 24; }},
      {"bfe.u32 $0, $1, 4, 8;", [](uint32_t x, uint32_t) { return x >> 4 & 255; }},
      {"{ .reg .u64 w; mul.wide.u32 w, $1, $2; shr.u64 w, w, 16; cvt.u32.u64 $0, w; }",
       [](uint32_t x, uint32_t y) { return static_cast<uint32_t>(static_cast<uint64_t>(x) * y >> 16); }},
      {"{ .reg .b32 s; and.b32 s, $2, 63; shl.b32 $0, $1, s; }",
       [](uint32_t x, uint32_t y) { return (y & 63) > 31 ? 0 : x << (y & 63); }},
      {"shr.s32 $0, $1, 40;",
       [](uint32_t x, uint32_t) { return static_cast<uint32_t>(static_cast<int32_t>(x) >> 31); }},
      {"{ .reg .pred p; setp.lt.s32 p, $1, -5; selp.b32 $0, 7, $2, p; }",
       [](uint32_t x, uint32_t y) { return static_cast<int32_t>(x) < -5 ? 7 : y; }},
      {"popc.b32 $0, $1;", [](uint32_t x, uint32_t) { return static_cast<uint32_t>(std::popcount(x)); }},
      {"mad.lo.u32 $0, $1, $2, 3;", [](uint32_t x, uint32_t y) { return x * y + 3; }},
  };
  std::vector<uint32_t> x = words(1), y = words(77);
  for (const Case &c : cases) {
    SCOPED_TRACE(c.text);
    for (CpuLevel level : runnableLevels()) {
      Kernel k(program(c.text, "i32", "i32"), level);
      ASSERT_TRUE(k.ok()) << k.error;
      std::vector<uint32_t> out(64);
      k.run({pointer(x.data()), pointer(y.data()), pointer(out.data())}, 1);
      for (size_t i = 0; i < 64; ++i) ASSERT_EQ(out[i], c.expected(x[i], y[i])) << x[i] << " " << y[i];
    }
  }
}

TEST(Ptx, FloatsBecomeIntegersWithSaturation) {
  Kernel k(program("cvt.rzi.s32.f32 $0, $1;", "f32", "i32"), runnableLevels()[0]);
  ASSERT_TRUE(k.ok()) << k.error;
  std::vector<float> x = floats(3), y(64);
  x[0] = 1e20f, x[1] = -1e20f, x[2] = NAN;
  std::vector<int32_t> out(64);
  k.run({pointer(x.data()), pointer(y.data()), pointer(out.data())}, 1);
  EXPECT_EQ(out[0], INT32_MAX);
  EXPECT_EQ(out[1], INT32_MIN);
  EXPECT_EQ(out[2], 0);
  for (size_t i = 3; i < 64; ++i) ASSERT_EQ(out[i], static_cast<int32_t>(x[i]));
}

TEST(Ptx, OtherInstructionsAreRefused) {
  for (const char *text : {"ld.global.b32 $0, [$1];", "mov.u32 $0, %clock;", "bar.sync 0;", "add.f16x2 $0, $1, $2;",
                           "mov.b32 $0, {a, b};", "nonsense"}) {
    Kernel k(program(text, "i32", "i32"), runnableLevels()[0]);
    EXPECT_FALSE(k.ok()) << text;
    EXPECT_NE(k.error.find("E0601"), std::string::npos) << k.error;
  }
}

} // namespace
} // namespace neso::cpu::test
