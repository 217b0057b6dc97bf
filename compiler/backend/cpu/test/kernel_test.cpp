// Whole kernels, as Triton 3.9 prints them, against closed forms computed in double.
#include <cmath>
#include <gtest/gtest.h>

#include "backend/cpu/target.h"
#include "backend/cpu/test/harness.h"

namespace neso::cpu::test {
namespace {

class KernelTest : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, KernelTest, testing::ValuesIn(runnableLevels()), levelName);

TEST_P(KernelTest, VectorAddMasksItsTail) {
  Kernel k(kernelText("vector_add"), GetParam());
  ASSERT_TRUE(k.ok()) << k.error;
  const size_t n = 5003;
  std::vector<float> x = numbers(n, 1), y = numbers(n, 2), out(n + 64, -7.0f);
  k.run({pointer(x.data()), pointer(y.data()), pointer(out.data()), integer(n)}, (n + 1023) / 1024);
  for (size_t i = 0; i < n; ++i) ASSERT_EQ(out[i], x[i] + y[i]) << i;
  for (size_t i = n; i < n + 64; ++i) ASSERT_EQ(out[i], -7.0f);
}

// A launch that writes 16 MiB goes past the caches where results begin at a line; one that begins in the middle of one does not, nor one of fewer bytes.
// All say the same.
TEST_P(KernelTest, LargeResultsGoPastTheCaches) {
  Kernel k(kernelText("vector_add"), GetParam(), true);
  ASSERT_TRUE(k.ok()) << k.error;
  const bool wide = allLevels()[static_cast<size_t>(GetParam())].wide;
  EXPECT_EQ(k.code.llvmText.find("!nontemporal") != std::string::npos, wide);
  EXPECT_EQ(k.code.llvmText.find("@llvm.x86.sse.sfence()") != std::string::npos, wide);
  const size_t most = (size_t{4} << 20) + 5003;
  std::vector<float> x = numbers(most, 1), y = numbers(most, 2), memory(most + 96);
  float *line = memory.data();
  while (reinterpret_cast<uintptr_t>(line) % 64) ++line;
  for (size_t n : {most, size_t{5003}})
    for (size_t shift : {0, 1, 16}) {
      std::fill(memory.begin(), memory.end(), -7.0f);
      float *out = line + shift;
      k.run({pointer(x.data()), pointer(y.data()), pointer(out), integer(static_cast<int64_t>(n))}, static_cast<uint32_t>((n + 1023) / 1024));
      size_t wrong = 0;
      for (size_t i = 0; i < n; ++i) wrong += out[i] != x[i] + y[i];
      ASSERT_EQ(wrong, 0u) << n << " from " << shift;
      ASSERT_EQ(out[n], -7.0f);
    }
}

// LLVM 22 may split a constant AVX2 mask into halves and then drop one (see the comparison of integers in
// elementwise.cpp).
TEST_P(KernelTest, ConstantMaskThatFillsPartOfOneRegister) {
  for (int width : {8, 16, 32}) {
    for (int live : {1, 3, 5, 9, 13, 21}) {
      if (live >= width) continue;
      std::string tensor = "tensor<" + std::to_string(width) + "x", text = R"(module {
  tt.func public @masked(%src: !tt.ptr<f64>, %dst: !tt.ptr<f64>) {
    %lane = tt.make_range {end = WIDTH : i32, start = 0 : i32} : Ti32>
    %bound = arith.constant dense<LIVE> : Ti32>
    %mask = arith.cmpi slt, %lane, %bound : Ti32>
    %zero = arith.constant dense<0.000000e+00> : Tf64>
    %from = tt.splat %src : !tt.ptr<f64> -> T!tt.ptr<f64>>
    %at = tt.addptr %from, %lane : T!tt.ptr<f64>>, Ti32>
    %x = tt.load %at, %mask, %zero : T!tt.ptr<f64>>
    %to = tt.splat %dst : !tt.ptr<f64> -> T!tt.ptr<f64>>
    %out = tt.addptr %to, %lane : T!tt.ptr<f64>>, Ti32>
    tt.store %out, %x : T!tt.ptr<f64>>
    tt.return
  }
})";
      auto replace = [&](const std::string &what, const std::string &with) {
        for (size_t p; (p = text.find(what)) != std::string::npos;) text.replace(p, what.size(), with);
      };
      replace("WIDTH", std::to_string(width));
      replace("LIVE", std::to_string(live));
      for (const char *element : {"i32>", "f64>", "!tt.ptr<f64>>"})
        replace(std::string(" T") + element, " " + tensor + element);
      Kernel k(text, GetParam());
      ASSERT_TRUE(k.ok()) << k.error;
      std::vector<double> x(static_cast<size_t>(width), 2.0), out(static_cast<size_t>(width), -1.0);
      k.run({pointer(x.data()), pointer(out.data())}, 1);
      for (int i = 0; i < width; ++i)
        ASSERT_EQ(out[static_cast<size_t>(i)], i < live ? 2.0 : 0.0)
            << "lane " << i << " of " << width << ", " << live << " live";
    }
  }
}

std::string replaced(std::string text, const std::string &what, const std::string &with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) text.replace(at, what.size(), with);
  return text;
}

// The sum and the difference of the numbers of each pair, as pairs: vectors are taken apart and put together up to a mask.
TEST_P(KernelTest, PairsUpToAConstantMask) {
  for (int live : {1, 2, 5, 8, 40, 63, 64}) {
    const std::string text = replaced(replaced(replaced(R"(module {
  tt.func public @pairs(%src: !tt.ptr<f32>, %dst: !tt.ptr<f32>) {
    %lane = tt.make_range {end = 64 : i32, start = 0 : i32} : INTS
    %bound = arith.constant dense<LIVE> : INTS
    %mask = arith.cmpi slt, %lane, %bound : INTS
    %two = arith.constant dense<2> : INTS
    %one = arith.constant dense<1> : INTS
    %first = arith.muli %two, %lane overflow<nsw> : INTS
    %second = arith.addi %first, %one overflow<nsw> : INTS
    %from = tt.splat %src : !tt.ptr<f32> -> PTRS
    %p = tt.addptr %from, %first : PTRS, INTS
    %q = tt.addptr %from, %second : PTRS, INTS
    %x = tt.load %p, %mask : PTRS
    %y = tt.load %q, %mask : PTRS
    %sum = arith.addf %x, %y : tensor<64xf32>
    %difference = arith.subf %x, %y : tensor<64xf32>
    %to = tt.splat %dst : !tt.ptr<f32> -> PTRS
    %a = tt.addptr %to, %first : PTRS, INTS
    %b = tt.addptr %to, %second : PTRS, INTS
    tt.store %a, %sum, %mask : PTRS
    tt.store %b, %difference, %mask : PTRS
    tt.return
  }
})", "INTS", "tensor<64xi32>"), "PTRS", "tensor<64x!tt.ptr<f32>>"), "LIVE", std::to_string(live));
    Kernel k(text, GetParam());
    ASSERT_TRUE(k.ok()) << k.error;
    const size_t n = static_cast<size_t>(live);
    // Nothing behind the last pair is the kernel's.
    const std::vector<float> x = numbers(2 * n, 3);
    std::vector<float> out(128, -7.0f);
    k.run({pointer(x.data()), pointer(out.data())}, 1);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(out[2 * i], x[2 * i] + x[2 * i + 1]) << i << " of " << live;
      ASSERT_EQ(out[2 * i + 1], x[2 * i] - x[2 * i + 1]) << i << " of " << live;
    }
    for (size_t i = 2 * n; i < out.size(); ++i) ASSERT_EQ(out[i], -7.0f) << i << " of " << live;
  }
}

// Rows of 8 go to places 24 apart: a vector holds several of them, and the last ones are masked off.
TEST_P(KernelTest, ShortRowsThatPart) {
  for (int live : {1, 7, 25, 32}) {
    const std::string text = replaced(replaced(replaced(R"(module {
  tt.func public @rows(%src: !tt.ptr<f32>, %dst: !tt.ptr<f32>) {
    %i = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %row = tt.expand_dims %i {axis = 1 : i32} : tensor<32xi32> -> tensor<32x1xi32>
    %j = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
    %column = tt.expand_dims %j {axis = 0 : i32} : tensor<8xi32> -> tensor<1x8xi32>
    %bound = arith.constant dense<LIVE> : tensor<32x1xi32>
    %within = arith.cmpi slt, %row, %bound : tensor<32x1xi32>
    %mask = tt.broadcast %within : tensor<32x1xi1> -> tensor<32x8xi1>
    %c8 = arith.constant dense<8> : tensor<32x1xi32>
    %c24 = arith.constant dense<24> : tensor<32x1xi32>
    %near = arith.muli %row, %c8 overflow<nsw> : tensor<32x1xi32>
    %far = arith.muli %row, %c24 overflow<nsw> : tensor<32x1xi32>
    %columns = tt.broadcast %column : tensor<1x8xi32> -> INTS
    %nears = tt.broadcast %near : tensor<32x1xi32> -> INTS
    %fars = tt.broadcast %far : tensor<32x1xi32> -> INTS
    %at = arith.addi %nears, %columns overflow<nsw> : INTS
    %apart = arith.addi %fars, %columns overflow<nsw> : INTS
    %from = tt.splat %src : !tt.ptr<f32> -> PTRS
    %p = tt.addptr %from, %at : PTRS, INTS
    %x = tt.load %p, %mask : PTRS
    %twice = arith.addf %x, %x : tensor<32x8xf32>
    %to = tt.splat %dst : !tt.ptr<f32> -> PTRS
    %q = tt.addptr %to, %apart : PTRS, INTS
    tt.store %q, %twice, %mask : PTRS
    tt.return
  }
})", "INTS", "tensor<32x8xi32>"), "PTRS", "tensor<32x8x!tt.ptr<f32>>"), "LIVE", std::to_string(live));
    Kernel k(text, GetParam());
    ASSERT_TRUE(k.ok()) << k.error;
    const size_t n = static_cast<size_t>(live);
    const std::vector<float> x = numbers(8 * n, 4);
    std::vector<float> out(32 * 24, -7.0f);
    k.run({pointer(x.data()), pointer(out.data())}, 1);
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t row = i / 24, column = i % 24;
      ASSERT_EQ(out[i], row < n && column < 8 ? 2 * x[8 * row + column] : -7.0f) << "row " << row << " column " << column << " of " << live;
    }
  }
}

/// Reduces a column of 256 floats, or 64 rows of 32 columns to one row, of which a mask leaves some: where it is false,
/// elements are `other`, by the load itself or by a select, or twice that, by the sum of the load with itself.
enum class Form { Loads, Selects, Doubles };
std::string maskedReduction(const std::string &combine, const std::string &other, bool across, Form form) {
  std::string text = across ? R"(module {
  tt.func public @reduce(%src: !tt.ptr<f32>, %dst: !tt.ptr<f32>, %start: i32, %n: i32, %columns: i32) {
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %rows = tt.expand_dims %r {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %s = tt.splat %start : i32 -> tensor<64x1xi32>
    %i = arith.addi %s, %rows : tensor<64x1xi32>
    %bound = tt.splat %n : i32 -> tensor<64x1xi32>
    %row = arith.cmpi slt, %i, %bound : tensor<64x1xi32>
    %c = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %ce = tt.expand_dims %c {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
    %width = tt.splat %columns : i32 -> tensor<1x32xi32>
    %column = arith.cmpi slt, %ce, %width : tensor<1x32xi32>
    %c32 = arith.constant dense<32> : tensor<64x1xi32>
    %pitch = arith.muli %rows, %c32 : tensor<64x1xi32>
    %pb = tt.broadcast %pitch : tensor<64x1xi32> -> tensor<64x32xi32>
    %cb = tt.broadcast %ce : tensor<1x32xi32> -> tensor<64x32xi32>
    %at = arith.addi %pb, %cb : tensor<64x32xi32>
    %rb = tt.broadcast %row : tensor<64x1xi1> -> tensor<64x32xi1>
    %kb = tt.broadcast %column : tensor<1x32xi1> -> tensor<64x32xi1>
    %mask = arith.andi %kb, %rb : tensor<64x32xi1>
    %from = tt.splat %src : !tt.ptr<f32> -> tensor<64x32x!tt.ptr<f32>>
    %p = tt.addptr %from, %at : tensor<64x32x!tt.ptr<f32>>, tensor<64x32xi32>
    %other = arith.constant dense<OTHER> : tensor<64x32xf32>
    LOAD
    %sum = "tt.reduce"(%x) <{axis = 0 : i32}> ({
    ^bb0(%a: f32, %b: f32):
      %f = COMBINE %a, %b : f32
      tt.reduce.return %f : f32
    }) : (tensor<64x32xf32>) -> tensor<32xf32>
    %to = tt.splat %dst : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
    %out = tt.addptr %to, %c : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
    tt.store %out, %sum : tensor<32x!tt.ptr<f32>>
    tt.return
  }
})"
                            : R"(module {
  tt.func public @reduce(%src: !tt.ptr<f32>, %dst: !tt.ptr<f32>, %start: i32, %n: i32, %columns: i32) {
    %r = tt.make_range {end = 256 : i32, start = 0 : i32} : tensor<256xi32>
    %s = tt.splat %start : i32 -> tensor<256xi32>
    %i = arith.addi %s, %r : tensor<256xi32>
    %bound = tt.splat %n : i32 -> tensor<256xi32>
    %mask = arith.cmpi slt, %i, %bound : tensor<256xi32>
    %from = tt.splat %src : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>>
    %p = tt.addptr %from, %r : tensor<256x!tt.ptr<f32>>, tensor<256xi32>
    %other = arith.constant dense<OTHER> : tensor<256xf32>
    LOAD
    %sum = "tt.reduce"(%x) <{axis = 0 : i32}> ({
    ^bb0(%a: f32, %b: f32):
      %f = COMBINE %a, %b : f32
      tt.reduce.return %f : f32
    }) : (tensor<256xf32>) -> f32
    tt.store %dst, %sum : !tt.ptr<f32>
    tt.return
  }
})";
  const std::string shape = across ? "64x32x" : "256x", pointers = "tensor<" + shape + "!tt.ptr<f32>>",
                    floats = "tensor<" + shape + "f32>", bits = "tensor<" + shape + "i1>";
  const std::string load = form == Form::Doubles ? "%y = tt.load %p, %mask, %other : " + pointers + "\n    %x = arith.addf %y, %y : " + floats
                           : form == Form::Selects ? "%zero = arith.constant dense<0.000000e+00> : " + floats +
                                         "\n    %y = tt.load %p, %mask, %zero : " + pointers +
                                         "\n    %x = arith.select %mask, %y, %other : " + bits + ", " + floats
                                   : "%x = tt.load %p, %mask, %other : " + pointers;
  auto replace = [&](const std::string &what, const std::string &with) {
    for (size_t p; (p = text.find(what)) != std::string::npos;) text.replace(p, what.size(), with);
  };
  replace("OTHER", other), replace("LOAD", load), replace("COMBINE", combine);
  return text;
}

// Loops over a reduction end where the mask does; what stands behind it is taken all the same: how often it matters for
// a sum that counts it, that it is there for a sum of negative zeros and for an extreme. Indices may wrap around.
TEST_P(KernelTest, ReductionsEndWhereTheirMaskDoes) {
  struct Case {
    const char *combine, *other;
    float outside;
    float (*f)(float, float);
  };
  auto add = [](float a, float b) { return a + b; };
  auto most = [](float a, float b) { return std::max(a, b); };
  auto least = [](float a, float b) { return std::min(a, b); };
  const Case cases[] = {{"arith.addf", "0.000000e+00", 0.0f, add},  {"arith.addf", "-0.000000e+00", -0.0f, add},
                        {"arith.addf", "1.000000e+00", 1.0f, add},  {"arith.maximumf", "0xFF800000", -INFINITY, most},
                        {"arith.maximumf", "2.000000e+00", 2, most}, {"arith.minimumf", "-3.000000e+00", -3, least}};
  for (const Case &c : cases)
    for (bool across : {false, true})
      for (Form form : {Form::Loads, Form::Selects, Form::Doubles}) {
        const float times = form == Form::Doubles ? 2 : 1;
        Kernel k(maskedReduction(c.combine, c.other, across, form), GetParam());
        ASSERT_TRUE(k.ok()) << k.error;
        const int extent = across ? 64 : 256, width = across ? 32 : 1;
        for (bool zeros : {false, true})
          for (int start : {0, 5, INT32_MAX - 40})
            for (int n : {0, 1, 4, 15, 16, 17, 63, 64, 65, 200, 256, 300, INT32_MAX - 30})
              for (int columns : {32, 20}) {
                std::vector<float> x(static_cast<size_t>(extent * width)), out(32, 9);
                for (size_t i = 0; i < x.size(); ++i) x[i] = zeros ? -0.0f : static_cast<float>((i * 7) % 23) - 11;
                k.run({pointer(x.data()), pointer(out.data()), integer(start), integer(n), integer(columns)}, 1);
                for (int column = 0; column < width; ++column) {
                  float want = 0;
                  for (int i = 0; i < extent; ++i) {
                    const int index = static_cast<int>(static_cast<uint32_t>(start) + static_cast<uint32_t>(i));
                    const bool on = index < n && (!across || column < columns);
                    const float v = times * (on ? x[static_cast<size_t>(i * width + column)] : c.outside);
                    want = i == 0 ? v : c.f(want, v);
                  }
                  ASSERT_EQ(out[static_cast<size_t>(column)], want)
                      << c.combine << " " << c.other << " across " << across << " start " << start << " n " << n
                      << " column " << column;
                  ASSERT_EQ(std::signbit(out[static_cast<size_t>(column)]), std::signbit(want))
                      << c.combine << " " << c.other << " across " << across << " start " << start << " n " << n
                      << " column " << column;
                }
              }
      }
}

/// Copies x[row, (start + column) % n] of 4 rows of 128 columns, -1 where the remainder is no column of x, which has 256.
std::string turned(const std::string &remainder, bool marked) {
  std::string text = R"(module {
  tt.func public @turned(%x: !tt.ptr<f32>, %dst: !tt.ptr<f32>, %start: i32, %n: i32) {
    %c = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
    %columns = tt.expand_dims %c {axis = 0 : i32} : tensor<128xi32> -> tensor<1x128xi32>
    %r = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>
    %rows = tt.expand_dims %r {axis = 1 : i32} : tensor<4xi32> -> tensor<4x1xi32>
    %s = tt.splat %start : i32 -> tensor<1x128xi32>
    %from = arith.addi %s, %columns MARK : tensor<1x128xi32>
    %period = tt.splat %n : i32 -> tensor<1x128xi32>
    %turned = REMAINDER %from, %period : tensor<1x128xi32>
    %bound = arith.constant dense<256> : tensor<1x128xi32>
    %zero = arith.constant dense<0> : tensor<1x128xi32>
    %below = arith.cmpi slt, %turned, %bound : tensor<1x128xi32>
    %above = arith.cmpi sge, %turned, %zero : tensor<1x128xi32>
    %inside = arith.andi %below, %above : tensor<1x128xi1>
    %mask = tt.broadcast %inside : tensor<1x128xi1> -> tensor<4x128xi1>
    %c256 = arith.constant dense<256> : tensor<4x1xi32>
    %pitch = arith.muli %rows, %c256 overflow<nsw> : tensor<4x1xi32>
    %pb = tt.broadcast %pitch : tensor<4x1xi32> -> tensor<4x128xi32>
    %tb = tt.broadcast %turned : tensor<1x128xi32> -> tensor<4x128xi32>
    %at = arith.addi %pb, %tb MARK : tensor<4x128xi32>
    %xp = tt.splat %x : !tt.ptr<f32> -> tensor<4x128x!tt.ptr<f32>>
    %xq = tt.addptr %xp, %at : tensor<4x128x!tt.ptr<f32>>, tensor<4x128xi32>
    %other = arith.constant dense<-1.0> : tensor<4x128xf32>
    %v = tt.load %xq, %mask, %other : tensor<4x128x!tt.ptr<f32>>
    %c128 = arith.constant dense<128> : tensor<4x1xi32>
    %outPitch = arith.muli %rows, %c128 overflow<nsw> : tensor<4x1xi32>
    %ob = tt.broadcast %outPitch : tensor<4x1xi32> -> tensor<4x128xi32>
    %cb = tt.broadcast %columns : tensor<1x128xi32> -> tensor<4x128xi32>
    %to = arith.addi %ob, %cb overflow<nsw> : tensor<4x128xi32>
    %dp = tt.splat %dst : !tt.ptr<f32> -> tensor<4x128x!tt.ptr<f32>>
    %dq = tt.addptr %dp, %to : tensor<4x128x!tt.ptr<f32>>, tensor<4x128xi32>
    tt.store %dq, %v : tensor<4x128x!tt.ptr<f32>>
    tt.return
  }
})";
  auto replace = [&](const std::string &what, const std::string &with) {
    for (size_t p; (p = text.find(what)) != std::string::npos;) text.replace(p, what.size(), with);
  };
  replace("REMAINDER", remainder), replace("MARK", marked ? "overflow<nsw>" : "");
  return text;
}

// Vectors in which a remainder turns over go another way than those in which it does not, whatever the period; dividends may be negative and, where
// nothing says that they are not to, wrap around.
TEST_P(KernelTest, RemaindersTurnOver) {
  for (const char *remainder : {"arith.remui", "arith.remsi"})
    for (bool marked : {false, true}) {
      const bool isSigned = std::string(remainder) == "arith.remsi";
      Kernel k(turned(remainder, marked), GetParam());
      ASSERT_TRUE(k.ok()) << k.error;
      std::vector<float> x(4 * 256), out(4 * 128);
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
      for (int start : {0, 1, 5, 17, 100, 250, 1000, -3, -200, INT32_MAX - 127, INT32_MAX - 40, INT32_MIN})
        for (int n : {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 128, 200, 256, 300, INT32_MAX, -7, -64, INT32_MIN}) {
          if (marked && start > INT32_MAX - 127) continue;
          k.run({pointer(x.data()), pointer(out.data()), integer(start), integer(n)}, 1);
          for (int row = 0; row < 4; ++row)
            for (int column = 0; column < 128; ++column) {
              const uint32_t place = static_cast<uint32_t>(start) + static_cast<uint32_t>(column);
              const int64_t turned = isSigned ? static_cast<int64_t>(static_cast<int32_t>(place)) % n
                                              : static_cast<int32_t>(place % static_cast<uint32_t>(n));
              const float want = turned >= 0 && turned < 256 ? static_cast<float>(row * 256 + turned) : -1.0f;
              ASSERT_EQ(out[static_cast<size_t>(row * 128 + column)], want)
                  << remainder << " marked " << marked << " start " << start << " n " << n << " row " << row << " column " << column;
            }
        }
    }
}

/// Sums x[column] * w[row, column] of 16 rows, over the columns with start + column (+ row, if `slanted`) < n.
std::string maskedRows(bool slanted) {
  std::string text = R"(module {
  tt.func public @rows(%x: !tt.ptr<f32>, %w: !tt.ptr<f32>, %dst: !tt.ptr<f32>, %start: i32, %n: i32) {
    %c = tt.make_range {end = 256 : i32, start = 0 : i32} : tensor<256xi32>
    %columns = tt.expand_dims %c {axis = 0 : i32} : tensor<256xi32> -> tensor<1x256xi32>
    %r = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %rows = tt.expand_dims %r {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %cb = tt.broadcast %columns : tensor<1x256xi32> -> tensor<16x256xi32>
    %rb = tt.broadcast %rows : tensor<16x1xi32> -> tensor<16x256xi32>
    %s = tt.splat %start : i32 -> tensor<16x256xi32>
    %from = arith.addi %s, %cb : tensor<16x256xi32>
    %slanted = arith.addi %from, %rb : tensor<16x256xi32>
    %bound = tt.splat %n : i32 -> tensor<16x256xi32>
    %mask = arith.cmpi slt, PLACE, %bound : tensor<16x256xi32>
    %c256 = arith.constant dense<256> : tensor<16x1xi32>
    %pitch = arith.muli %rows, %c256 overflow<nsw> : tensor<16x1xi32>
    %pb = tt.broadcast %pitch : tensor<16x1xi32> -> tensor<16x256xi32>
    %at = arith.addi %pb, %cb overflow<nsw> : tensor<16x256xi32>
    %wp = tt.splat %w : !tt.ptr<f32> -> tensor<16x256x!tt.ptr<f32>>
    %wq = tt.addptr %wp, %at : tensor<16x256x!tt.ptr<f32>>, tensor<16x256xi32>
    %zero = arith.constant dense<0.000000e+00> : tensor<16x256xf32>
    %weights = tt.load %wq, %mask, %zero : tensor<16x256x!tt.ptr<f32>>
    %xp = tt.splat %x : !tt.ptr<f32> -> tensor<1x256x!tt.ptr<f32>>
    %xq = tt.addptr %xp, %columns : tensor<1x256x!tt.ptr<f32>>, tensor<1x256xi32>
    %row = tt.load %xq : tensor<1x256x!tt.ptr<f32>>
    %spread = tt.broadcast %row : tensor<1x256xf32> -> tensor<16x256xf32>
    %products = arith.mulf %weights, %spread : tensor<16x256xf32>
    %sum = "tt.reduce"(%products) <{axis = 1 : i32}> ({
    ^bb0(%a: f32, %b: f32):
      %f = arith.addf %a, %b : f32
      tt.reduce.return %f : f32
    }) : (tensor<16x256xf32>) -> tensor<16xf32>
    %to = tt.splat %dst : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
    %out = tt.addptr %to, %r : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
    tt.store %out, %sum : tensor<16x!tt.ptr<f32>>
    tt.return
  }
})";
  text.replace(text.find("PLACE"), 5, slanted ? "%slanted" : "%from");
  return text;
}

// Rows that end at one place are walked together, others one by one; numbers are small, so that sums are exact in any order.
TEST_P(KernelTest, RowsWalkedTogetherEndWhereTheirMaskDoes) {
  for (bool slanted : {false, true}) {
    Kernel k(maskedRows(slanted), GetParam());
    ASSERT_TRUE(k.ok()) << k.error;
    std::vector<float> x(256), w(16 * 256), out(16, -1);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>((i * 5) % 19) - 9;
    for (int start : {0, 5, INT32_MAX - 40})
      for (int n : {0, 1, 15, 16, 17, 63, 200, 256, 300, INT32_MAX - 30}) {
        k.run({pointer(x.data()), pointer(w.data()), pointer(out.data()), integer(start), integer(n)}, 1);
        for (int row = 0; row < 16; ++row) {
          float want = 0;
          for (int column = 0; column < 256; ++column) {
            const uint32_t place = static_cast<uint32_t>(start) + static_cast<uint32_t>(column + (slanted ? row : 0));
            if (static_cast<int32_t>(place) < n) want += x[static_cast<size_t>(column)] * w[static_cast<size_t>(row * 256 + column)];
          }
          ASSERT_EQ(out[static_cast<size_t>(row)], want) << "row " << row << " start " << start << " n " << n;
        }
      }
  }
}

TEST_P(KernelTest, Softmax) {
  Kernel k(kernelText("softmax_rows"), GetParam());
  ASSERT_TRUE(k.ok()) << k.error;
  for (int n : {1000, 1024, 3, 17}) {
    const int rows = 5, stride = 1030;
    std::vector<float> x = numbers(rows * stride), out(rows * stride, 9.0f);
    k.run({pointer(x.data()), pointer(out.data()), integer(stride), integer(n)}, rows);
    for (int r = 0; r < rows; ++r) {
      double m = -1e30, sum = 0;
      for (int c = 0; c < n; ++c) m = std::max<double>(m, x[r * stride + c]);
      for (int c = 0; c < n; ++c) sum += std::exp(x[r * stride + c] - m);
      for (int c = 0; c < n; ++c)
        ASSERT_NEAR(out[r * stride + c], std::exp(x[r * stride + c] - m) / sum, 2e-6) << r << " " << c;
      for (int c = n; c < stride; ++c) ASSERT_EQ(out[r * stride + c], 9.0f);
    }
  }
}

TEST_P(KernelTest, LayerNorm) {
  Kernel k(kernelText("layer_norm_rows"), GetParam());
  ASSERT_TRUE(k.ok()) << k.error;
  const int rows = 7, n = 1000;
  std::vector<float> x = numbers(rows * n, 1), w = numbers(n, 2), bias = numbers(n, 3), out(rows * n);
  k.run({pointer(x.data()), pointer(w.data()), pointer(bias.data()), pointer(out.data()), integer(n), integer(n),
         real(1e-5f)},
        rows);
  for (int r = 0; r < rows; ++r) {
    double s = 0, q = 0;
    for (int c = 0; c < n; ++c) s += x[r * n + c], q += double(x[r * n + c]) * x[r * n + c];
    const double mean = s / n, rstd = 1 / std::sqrt(q / n - mean * mean + 1e-5);
    for (int c = 0; c < n; ++c) ASSERT_NEAR(out[r * n + c], (x[r * n + c] - mean) * rstd * w[c] + bias[c], 1e-5);
  }
}

void checkMatmul(const char *name, CpuLevel level, int M, int N, int K, int BM, int BN, bool transposedB,
                 bool general) {
  Kernel k(kernelText(name), level);
  ASSERT_TRUE(k.ok()) << k.error;
  std::vector<float> a = numbers(static_cast<size_t>(M * K), 1), bm = numbers(static_cast<size_t>(N * K), 2),
                     c(static_cast<size_t>(M * N), 5.0f);
  std::vector<neso_arg> args = {pointer(a.data()), pointer(bm.data()), pointer(c.data()), integer(M),
                                integer(N),        integer(K),         integer(K)};
  if (general) args.push_back(integer(1));
  args.push_back(integer(transposedB ? K : N));
  if (general) args.push_back(integer(1));
  args.push_back(integer(N));
  if (general) args.push_back(integer(1));
  k.run(args, static_cast<uint32_t>((M + BM - 1) / BM * ((N + BN - 1) / BN)));
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      double s = 0;
      for (int l = 0; l < K; ++l) s += double(a[i * K + l]) * (transposedB ? bm[j * K + l] : bm[l * N + j]);
      ASSERT_NEAR(c[i * N + j], s, 1e-5 * std::sqrt(K)) << i << " " << j;
    }
}
TEST_P(KernelTest, Matmul) { checkMatmul("matmul", GetParam(), 256, 256, 384, 128, 128, false, false); }
TEST_P(KernelTest, MatmulOddSizes) { checkMatmul("matmul", GetParam(), 131, 77, 200, 128, 128, false, false); }
TEST_P(KernelTest, MatmulRuntimeStrides) {
  checkMatmul("matmul_general", GetParam(), 100, 130, 70, 64, 64, false, true);
}
TEST_P(KernelTest, MatmulTransposedB) { checkMatmul("matmul_bt", GetParam(), 130, 200, 150, 128, 128, true, false); }

void checkAttention(const char *name, CpuLevel level, bool causal) {
  Kernel k(kernelText(name), level);
  ASSERT_TRUE(k.ok()) << k.error;
  const int H = 2, S = 150, D = 64;
  std::vector<float> q = numbers(H * S * D, 1), kk = numbers(H * S * D, 2), v = numbers(H * S * D, 3), o(H * S * D);
  k.run({pointer(q.data()), pointer(kk.data()), pointer(v.data()), pointer(o.data()), integer(S * D), integer(S),
         real(0.125f)},
        (S + 63) / 64, H);
  for (int h = 0; h < H; ++h)
    for (int i = 0; i < S; ++i) {
      std::vector<double> p(S);
      double m = -1e30, sum = 0;
      const int limit = causal ? i + 1 : S;
      for (int j = 0; j < limit; ++j) {
        for (int d = 0; d < D; ++d) p[j] += double(q[(h * S + i) * D + d]) * kk[(h * S + j) * D + d] * 0.125;
        m = std::max(m, p[j]);
      }
      for (int j = 0; j < limit; ++j) sum += p[j] = std::exp(p[j] - m);
      for (int d = 0; d < D; ++d) {
        double e = 0;
        for (int j = 0; j < limit; ++j) e += p[j] / sum * v[(h * S + j) * D + d];
        ASSERT_NEAR(o[(h * S + i) * D + d], e, 1e-5) << h << " " << i << " " << d;
      }
    }
}
TEST_P(KernelTest, FlashAttention) { checkAttention("flash_attention", GetParam(), false); }
TEST_P(KernelTest, FlashAttentionCausal) { checkAttention("flash_attention_causal", GetParam(), true); }

TEST_P(KernelTest, ArgmaxTakesTheFirst) {
  Kernel k(kernelText("argmax_rows"), GetParam());
  ASSERT_TRUE(k.ok()) << k.error;
  const int rows = 4, n = 900;
  std::vector<float> x = numbers(rows * n), value(rows);
  std::vector<int32_t> index(rows);
  x[2 * n + 100] = x[2 * n + 700] = 5.0f;
  k.run({pointer(x.data()), pointer(value.data()), pointer(index.data()), integer(n), integer(n)}, rows);
  for (int r = 0; r < rows; ++r) {
    int best = 0;
    for (int c = 1; c < n; ++c)
      if (x[r * n + c] > x[r * n + best]) best = c;
    EXPECT_EQ(index[r], best);
    EXPECT_EQ(value[r], x[r * n + best]);
  }
}

TEST_P(KernelTest, Cumsum) {
  Kernel k(kernelText("cumsum_rows"), GetParam());
  ASSERT_TRUE(k.ok()) << k.error;
  const int rows = 3, n = 1000;
  std::vector<float> x = numbers(rows * n), out(rows * n);
  k.run({pointer(x.data()), pointer(out.data()), integer(n), integer(n)}, rows);
  for (int r = 0; r < rows; ++r) {
    double s = 0;
    for (int c = 0; c < n; ++c) ASSERT_NEAR(out[r * n + c], s += x[r * n + c], 1e-4);
  }
}

/// Philox 4x32-10, first word, as tl.rand uses it.
float philoxUniform(uint32_t seed, uint32_t offset) {
  uint32_t c0 = offset, c1 = 0, c2 = 0, c3 = 0, k0 = seed, k1 = 0;
  for (int r = 0; r < 10; ++r) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    const uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0, n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c1 = uint32_t(p1), c3 = uint32_t(p0), c0 = n0, c2 = n2;
    k0 += 0x9E3779B9, k1 += 0xBB67AE85;
  }
  int32_t x = static_cast<int32_t>(c0);
  if (x < 0) x = -x - 1;
  return static_cast<float>(x) * 4.6566127342e-10f;
}
TEST_P(KernelTest, DropoutIsPhilox) {
  Kernel k(kernelText("dropout"), GetParam());
  ASSERT_TRUE(k.ok()) << k.error;
  const int n = 3000;
  std::vector<float> x = numbers(n), out(n);
  k.run({pointer(x.data()), pointer(out.data()), integer(n), real(0.3f), integer(1234)}, 3);
  for (int i = 0; i < n; ++i)
    ASSERT_EQ(out[i], philoxUniform(1234, static_cast<uint32_t>(i)) > 0.3f ? x[i] / (1 - 0.3f) : 0.0f) << i;
}

TEST_P(KernelTest, HistogramWithAtomics) {
  Kernel k(kernelText("histogram_atomic"), GetParam());
  ASSERT_TRUE(k.ok()) << k.error;
  const int n = 100000;
  std::vector<int32_t> x(n), out(16), expected(16);
  for (int i = 0; i < n; ++i) ++expected[x[i] = (i * 7 + i / 3) % 16];
  k.run({pointer(x.data()), pointer(out.data()), integer(n)}, (n + 1023) / 1024);
  EXPECT_EQ(out, expected);
}

} // namespace
} // namespace neso::cpu::test
