// What levels do by different instructions, bit by bit: against the C++ compiler's own conversions and libm.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

#include "backend/cpu/test/harness.h"

namespace neso::cpu::test {
namespace {

class LevelsTest : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, LevelsTest, testing::ValuesIn(runnableLevels()), levelName);

// Truth values of a row are bits; a row that ends between bytes leaves the others of that byte as they are.
TEST_P(LevelsTest, AllOfARowThatEndsBetweenBytes) {
  Kernel k(R"(module {
  tt.func public @all(%src: !tt.ptr<f32>, %dst: !tt.ptr<i8>, %n: i32) {
    %lane = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %bound = tt.splat %n : i32 -> tensor<64xi32>
    %mask = arith.cmpi slt, %lane, %bound : tensor<64xi32>
    %from = tt.splat %src : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %at = tt.addptr %from, %lane : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %zero = arith.constant dense<0.000000e+00> : tensor<64xf32>
    %yes = arith.constant dense<true> : tensor<64xi1>
    %x = tt.load %at, %mask, %zero : tensor<64x!tt.ptr<f32>>
    %above = arith.cmpf ogt, %x, %zero : tensor<64xf32>
    %counted = arith.select %mask, %above, %yes : tensor<64xi1>, tensor<64xi1>
    %all = "tt.reduce"(%counted) <{axis = 0 : i32}> ({
    ^bb0(%a: i1, %b: i1):
      %both = arith.andi %a, %b : i1
      tt.reduce.return %both : i1
    }) : (tensor<64xi1>) -> i1
    %byte = arith.extui %all : i1 to i8
    tt.store %dst, %byte : !tt.ptr<i8>
    tt.return
  }
})",
           GetParam());
  ASSERT_TRUE(k.ok()) << k.error;
  for (int32_t n = 0; n <= 64; ++n)
    for (int32_t bad = -1; bad < 64; bad += 5) {
      std::vector<float> x(64, 1.0f);
      if (bad >= 0) x[static_cast<size_t>(bad)] = -1;
      uint8_t got = 7;
      k.run({pointer(x.data()), pointer(&got), integer(n)}, 1);
      ASSERT_EQ(got, bad < 0 || bad >= n ? 1 : 0) << n << " elements, one is negative: " << bad;
    }
}

// Processors without instructions for halves get the same numbers by integers.
TEST_P(LevelsTest, HalvesAndBackBitByBit) {
  Kernel k(R"(module {
  tt.func public @halves(%src: !tt.ptr<f16>, %wide: !tt.ptr<f32>, %from: !tt.ptr<f32>, %narrow: !tt.ptr<f16>) {
    %pid = tt.get_program_id x : i32
    %size = arith.constant 1024 : i32
    %start = arith.muli %pid, %size : i32
    %lane = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32>
    %first = tt.splat %start : i32 -> tensor<1024xi32>
    %i = arith.addi %first, %lane : tensor<1024xi32>
    %p0 = tt.splat %src : !tt.ptr<f16> -> tensor<1024x!tt.ptr<f16>>
    %p = tt.addptr %p0, %i : tensor<1024x!tt.ptr<f16>>, tensor<1024xi32>
    %h = tt.load %p : tensor<1024x!tt.ptr<f16>>
    %w = arith.extf %h : tensor<1024xf16> to tensor<1024xf32>
    %q0 = tt.splat %wide : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
    %q = tt.addptr %q0, %i : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
    tt.store %q, %w : tensor<1024x!tt.ptr<f32>>
    %r0 = tt.splat %from : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
    %r = tt.addptr %r0, %i : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
    %f = tt.load %r : tensor<1024x!tt.ptr<f32>>
    %n = arith.truncf %f : tensor<1024xf32> to tensor<1024xf16>
    %s0 = tt.splat %narrow : !tt.ptr<f16> -> tensor<1024x!tt.ptr<f16>>
    %s = tt.addptr %s0, %i : tensor<1024x!tt.ptr<f16>>, tensor<1024xi32>
    tt.store %s, %n : tensor<1024x!tt.ptr<f16>>
    tt.return
  }
})",
           GetParam());
  ASSERT_TRUE(k.ok()) << k.error;
  constexpr size_t kHalves = 1 << 16;
  std::vector<_Float16> all(kHalves), narrow(kHalves);
  std::vector<float> wide(kHalves), from(kHalves);
  std::mt19937 random(5);
  for (size_t i = 0; i < kHalves; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    std::memcpy(&all[i], &bits, 2);
  }
  // Beside each half, halfway to the next one, and whatever bits there are.
  for (int shift : {-1, 0, 1, 2, 3}) {
    for (size_t i = 0; i < kHalves; ++i) {
      uint32_t bits = random();
      if (shift < 3) {
        const float at = static_cast<float>(all[i]);
        std::memcpy(&bits, &at, 4);
        bits += 0x1000 + static_cast<uint32_t>(shift) * (random() % 2 ? 1 : 0xfff);
      }
      std::memcpy(&from[i], &bits, 4);
    }
    k.run({pointer(all.data()), pointer(wide.data()), pointer(from.data()), pointer(narrow.data())}, kHalves / 1024);
    for (size_t i = 0; i < kHalves; ++i) {
      const float want = static_cast<float>(all[i]);
      ASSERT_TRUE(std::isnan(want) ? std::isnan(wide[i]) : std::memcmp(&want, &wide[i], 4) == 0) << i << ": " << wide[i] << " for " << want;
      const _Float16 cut = static_cast<_Float16>(from[i]);
      ASSERT_TRUE(from[i] != from[i] ? narrow[i] != narrow[i] : std::memcmp(&cut, &narrow[i], 2) == 0)
          << from[i] << ": " << static_cast<float>(narrow[i]) << " for " << static_cast<float>(cut);
    }
  }
}

// One rounding, wherever the sum lies.
TEST_P(LevelsTest, FusedMultiplyAddRoundsOnce) {
  Kernel k(R"(module {
  tt.func public @fused(%a: !tt.ptr<f32>, %b: !tt.ptr<f32>, %c: !tt.ptr<f32>, %dst: !tt.ptr<f32>) {
    %i = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32>
    %a0 = tt.splat %a : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
    %ap = tt.addptr %a0, %i : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
    %x = tt.load %ap : tensor<1024x!tt.ptr<f32>>
    %b0 = tt.splat %b : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
    %bp = tt.addptr %b0, %i : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
    %y = tt.load %bp : tensor<1024x!tt.ptr<f32>>
    %c0 = tt.splat %c : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
    %cp = tt.addptr %c0, %i : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
    %z = tt.load %cp : tensor<1024x!tt.ptr<f32>>
    %r = math.fma %x, %y, %z : tensor<1024xf32>
    %d0 = tt.splat %dst : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
    %dp = tt.addptr %d0, %i : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
    tt.store %dp, %r : tensor<1024x!tt.ptr<f32>>
    tt.return
  }
})",
           GetParam());
  ASSERT_TRUE(k.ok()) << k.error;
  std::vector<float> x(1024), y(1024), z(1024), got(1024);
  std::mt19937 random(9);
  auto bits = [&](int exponents) {
    const uint32_t exponent = static_cast<uint32_t>(127 + static_cast<int>(random() % static_cast<uint32_t>(2 * exponents + 1)) - exponents);
    const uint32_t word = (random() & 0x807fffff) | exponent << 23;
    float f;
    std::memcpy(&f, &word, 4);
    return f;
  };
  for (int round = 0; round < 64; ++round) {
    for (size_t i = 0; i < 1024; ++i) {
      x[i] = bits(round % 2 ? 126 : 20), y[i] = bits(20), z[i] = bits(round % 2 ? 126 : 40);
      // The product nearly cancels; or lies beside a point halfway between two results, which a first rounding in f64 would hit.
      if (i % 4 == 1) z[i] = -(x[i] * y[i]);
      if (i % 4 != 2) continue;
      x[i] = 1 + std::ldexp(1.0f, -12), y[i] = 1 + std::ldexp(static_cast<float>(i / 4 % 32) - 16, -12);
      z[i] = std::ldexp(i % 8 < 4 ? 1.0f : -1.0f, -30 - static_cast<int>(i % 50));
    }
    const float special[] = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f, 1e-45f, 3e38f};
    for (size_t i = 0; i < 343; ++i) x[i * 2] = special[i % 7], y[i * 2] = special[i / 7 % 7], z[i * 2] = special[i / 49];
    k.run({pointer(x.data()), pointer(y.data()), pointer(z.data()), pointer(got.data())}, 1);
    for (size_t i = 0; i < 1024; ++i) {
      const float want = std::fma(x[i], y[i], z[i]);
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got[i]) : std::memcmp(&want, &got[i], 4) == 0)
          << x[i] << " * " << y[i] << " + " << z[i] << ": " << got[i] << " for " << want;
    }
  }
}

} // namespace
} // namespace neso::cpu::test
