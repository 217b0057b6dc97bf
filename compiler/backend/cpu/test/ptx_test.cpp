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

/// fns as the manual writes it.
uint32_t nthSet(uint32_t mask, uint32_t base, int32_t offset) {
  if (offset == 0) return base < 32 && (mask >> base & 1) ? base : ~0u;
  int count = std::abs(offset) - 1;
  for (int64_t p = base; p >= 0 && p < 32; p += offset > 0 ? 1 : -1)
    if ((mask >> p & 1) && count-- == 0) return static_cast<uint32_t>(p);
  return ~0u;
}

bool isNan(uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }
uint32_t tf32(uint32_t bits, uint32_t half) { return isNan(bits) ? 0x7fffffff : (bits + half) & 0xffffe000; }

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
      {"fns.b32 $0, $1, 0, $2;", [](uint32_t x, uint32_t y) { return nthSet(x, 0, static_cast<int32_t>(y)); }},
      {"{ .reg .b32 o; and.b32 o, $2, 63; sub.s32 o, o, 31; fns.b32 $0, $1, 11, o; }",
       [](uint32_t x, uint32_t y) { return nthSet(x, 11, static_cast<int32_t>(y & 63) - 31); }},
      {"{ .reg .b32 p, o; shr.u32 p, $1, 26; and.b32 o, $2, 7; sub.s32 o, o, 4; fns.b32 $0, $1, p, o; }",
       [](uint32_t x, uint32_t y) { return nthSet(x, x >> 26, static_cast<int32_t>(y & 7) - 4); }},
      {"cvt.rn.tf32.f32 $0, $1;", [](uint32_t x, uint32_t) { return tf32(x, 0xfff + (x >> 13 & 1)); }},
      {"cvt.rna.tf32.f32 $0, $1;", [](uint32_t x, uint32_t) { return tf32(x, 0x1000); }},
      {"cvt.rz.relu.tf32.f32 $0, $1;", [](uint32_t x, uint32_t) { return x >> 31 && !isNan(x) ? 0 : tf32(x, 0); }},
      {"cvt.rn.satfinite.tf32.f32 $0, 0f7f7fffff;", [](uint32_t, uint32_t) { return 0x7f7fe000u; }},
      {"cvt.rn.tf32.f32 $0, 0f7f7fffff;", [](uint32_t, uint32_t) { return 0x7f800000u; }},
      {"mad.lo.u32 $0, $1, $2, 3;", [](uint32_t x, uint32_t y) { return x * y + 3; }},
      {"{ .reg .b16 l, h; mov.b32 {l, h}, $1; mov.b32 $0, {h, l}; }", [](uint32_t x, uint32_t) { return x << 16 | x >> 16; }},
      {"{ .reg .b8 q<4>; mov.b32 {q0, q1, q2, q3}, $1; cvt.u32.u8 $0, q2; }", [](uint32_t x, uint32_t) { return x >> 16 & 255; }},
      // 0.5 and -6 are exact in four bits; what has no place between neighbours goes to the even one.
      {"{ .reg .b8 v; cvt.rn.satfinite.e2m1x2.f32 v, 0fBF000000, 0f40C00000; cvt.u32.u8 $0, v; }",
       [](uint32_t, uint32_t) { return 0x97u; }},
      {"{ .reg .b8 v; cvt.rn.satfinite.e2m1x2.f32 v, 0f40200000, 0f7FC00000; cvt.u32.u8 $0, v; }",
       [](uint32_t, uint32_t) { return 0x47u; }},
      {"{ .reg .b16 v; cvt.rn.satfinite.e4m3x2.f32 v, 0fC3E00000, 0f3F800000; cvt.u32.u16 $0, v; }",
       [](uint32_t, uint32_t) { return 0xfe38u; }},
      {"{ .reg .b16 v; .reg .b32 t; and.b32 t, $1, 0xbbbb; mov.b32 {v, _}, t; cvt.rn.f16x2.e5m2x2 $0, v; }",
       [](uint32_t x, uint32_t) { return (x & 0xbb00) << 16 | (x & 0xbb) << 8; }},
      {"{ .reg .b8 v; .reg .b16 w; cvt.u16.u32 w, 0x4f; cvt.u8.u16 v, w; cvt.rn.f16x2.e2m1x2 $0, v; }",
       [](uint32_t, uint32_t) { return 0x4000c600u; }},
      {"fma.rn.bf16x2 $0, 0x40003f80, 0x40404000, 0x80008000;", [](uint32_t, uint32_t) { return 0x40c04000u; }},
      {"add.f16x2 $0, 0x3c004000, 0x3c004200;", [](uint32_t, uint32_t) { return 0x40004500u; }},
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
  for (const char *text : {"ld.global.b32 $0, [$1];", "mov.u32 $0, %clock;", "bar.sync 0;", "add.f16x2 $0, $1, {$2};",
                           "mov.b32 $0, {a, b};", "cvt.rn.e4m3x2.f32 $0, $1, $2;", "nonsense"}) {
    Kernel k(program(text, "i32", "i32"), runnableLevels()[0]);
    EXPECT_FALSE(k.ok()) << text;
    EXPECT_NE(k.error.find("E0601"), std::string::npos) << k.error;
  }
}

/// Four elements a call: bytes share a register, words do not; two results.
constexpr const char *kPacked = R"(module {
  tt.func public @ptx(%x: !tt.ptr<i8>, %y: !tt.ptr<f32>, %whole: !tt.ptr<i32>, %dst: !tt.ptr<f32>) {
    %lane = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %xs = tt.splat %x : !tt.ptr<i8> -> tensor<64x!tt.ptr<i8>>
    %xa = tt.addptr %xs, %lane : tensor<64x!tt.ptr<i8>>, tensor<64xi32>
    %a = tt.load %xa : tensor<64x!tt.ptr<i8>>
    %ys = tt.splat %y : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %ya = tt.addptr %ys, %lane : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %b = tt.load %ya : tensor<64x!tt.ptr<f32>>
    %r:2 = tt.elementwise_inline_asm "{ .reg .b8 q<4>; mov.b32 {q0, q1, q2, q3}, $8; cvt.u32.u8 $0, q0; cvt.u32.u8 $1, q1; cvt.u32.u8 $2, q2; cvt.u32.u8 $3, q3; cvt.rn.f32.s32 $4, $0; cvt.rn.f32.s32 $5, $1; cvt.rn.f32.s32 $6, $2; cvt.rn.f32.s32 $7, $3; max.f32 $4, $4, $9; max.f32 $5, $5, $10; max.f32 $6, $6, $11; max.f32 $7, $7, $12; }" {constraints = "=r,=r,=r,=r,=r,=r,=r,=r,r,r,r,r,r", packed_element = 4 : i32, pure = true} %a, %b : tensor<64xi8>, tensor<64xf32> -> tensor<64xi32>, tensor<64xf32>
    %ws = tt.splat %whole : !tt.ptr<i32> -> tensor<64x!tt.ptr<i32>>
    %wa = tt.addptr %ws, %lane : tensor<64x!tt.ptr<i32>>, tensor<64xi32>
    tt.store %wa, %r#0 : tensor<64x!tt.ptr<i32>>
    %ds = tt.splat %dst : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %da = tt.addptr %ds, %lane : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    tt.store %da, %r#1 : tensor<64x!tt.ptr<f32>>
    tt.return
  }
})";

TEST(Ptx, PacksAndSeveralResults) {
  std::vector<float> y = floats(4);
  std::vector<uint8_t> x(64);
  for (size_t i = 0; i < 64; ++i) x[i] = static_cast<uint8_t>(i * 37);
  for (CpuLevel level : runnableLevels()) {
    Kernel k(kPacked, level);
    ASSERT_TRUE(k.ok()) << k.error;
    std::vector<int32_t> whole(64);
    std::vector<float> out(64);
    k.run({pointer(x.data()), pointer(y.data()), pointer(whole.data()), pointer(out.data())}, 1);
    for (size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(whole[i], x[i]);
      ASSERT_EQ(out[i], std::max(static_cast<float>(x[i]), y[i]));
    }
  }
}

TEST(Ptx, AResultMayStartAsAnOperand) {
  std::string text = program("add.u32 $0, $0, $2;", "i32", "i32");
  text.replace(text.find("=r,r,r"), 6, "=r,0,r");
  std::vector<uint32_t> x = words(5), y = words(9), out(64);
  Kernel k(text, runnableLevels()[0]);
  ASSERT_TRUE(k.ok()) << k.error;
  k.run({pointer(x.data()), pointer(y.data()), pointer(out.data())}, 1);
  for (size_t i = 0; i < 64; ++i) ASSERT_EQ(out[i], x[i] + y[i]);
}

// As libraries overlap launches on a GPU (programmatic dependent launch): here one follows the other. And a program is one thread.
TEST(Ptx, OrderOfLaunchesAndThreadsIsNothing) {
  Kernel k(R"(module {
  tt.func public @dependent(%p: !tt.ptr<i32>) {
    %0 = tt.elementwise_inline_asm "griddepcontrol.wait; // dummy $0" {constraints = "=r", packed_element = 1 : i32, pure = false} -> i32
    %1 = tt.load %p : !tt.ptr<i32>
    %2 = arith.addi %1, %1 : i32
    tt.store %p, %2 : !tt.ptr<i32>
    %4 = tt.elementwise_inline_asm "bar.sync 0;" {constraints = "=r", packed_element = 1 : i32, pure = false} -> i32
    %3 = tt.elementwise_inline_asm "griddepcontrol.launch_dependents; // dummy $0" {constraints = "=r", packed_element = 1 : i32, pure = false} -> i32
    tt.return
  }
})",
           runnableLevels()[0]);
  ASSERT_TRUE(k.ok()) << k.error;
  int32_t v = 21;
  k.run({pointer(&v)}, 1);
  EXPECT_EQ(v, 42);
}

TEST(Ptx, ConstraintsFitWhatTheyTake) {
  auto changed = [](const std::string &from, const std::string &to) {
    std::string text = kPacked;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string &text :
       {changed(",r,r,r,r,r", ",r,r"), changed("\"=r,=r,", "\"=r,"), changed("\"=r,", "\"=h,"), changed("\"=r,", "\"=,")}) {
    Kernel k(text, runnableLevels()[0]);
    EXPECT_FALSE(k.ok());
    EXPECT_NE(k.error.find("an inline assembly with constraint"), std::string::npos) << k.error;
  }
}

} // namespace
} // namespace neso::cpu::test
