// tt.dot for every type of element and level, in the forms that the micro-kernels tell apart, against products computed
// in double.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <gtest/gtest.h>

#include "backend/cpu/target.h"
#include "backend/cpu/test/harness.h"

namespace neso::cpu::test {
namespace {

class DotTest : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, DotTest, testing::ValuesIn(runnableLevels()), levelName);

void replaceAll(std::string &text, const std::string &what, const std::string &by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

struct Case {
  const char *element, *result;
  int m, n, k;
  bool aTransposed, bTransposed; // contiguous along m, along k
  int rowsInside;                // of A; those below are masked off
  int valid = 0;                 // of k; what lies behind is masked off (0: all are)
  int validRows = 0;             // of m; what becomes of the others does not count (0: all do)
  int validColumns = 0;          // the same of n
};

/// One program: C[M, N] += A[M, K] * B[K, N]; rows and columns at strides given at run time.
std::string dotText(const Case &c) {
  std::string text = R"(module {
  tt.func public @dot(%a: !tt.ptr<ELEMENT>, %b: !tt.ptr<ELEMENT>, %c: !tt.ptr<RESULT>, %inside: i32) {
    %m = tt.make_range {end = M_ : i32, start = 0 : i32} : tensor<M_xi32>
    %n = tt.make_range {end = N_ : i32, start = 0 : i32} : tensor<N_xi32>
    %k = tt.make_range {end = K_ : i32, start = 0 : i32} : tensor<K_xi32>
    %mc = tt.expand_dims %m {axis = 1 : i32} : tensor<M_xi32> -> tensor<M_x1xi32>
    %kr = tt.expand_dims %k {axis = 0 : i32} : tensor<K_xi32> -> tensor<1xK_xi32>
    %kc = tt.expand_dims %k {axis = 1 : i32} : tensor<K_xi32> -> tensor<K_x1xi32>
    %nr = tt.expand_dims %n {axis = 0 : i32} : tensor<N_xi32> -> tensor<1xN_xi32>
    %am = arith.constant dense<ASTRIDEM> : tensor<M_x1xi32>
    %ak = arith.constant dense<ASTRIDEK> : tensor<1xK_xi32>
    %bk = arith.constant dense<BSTRIDEK> : tensor<K_x1xi32>
    %bn = arith.constant dense<BSTRIDEN> : tensor<1xN_xi32>
    %cm = arith.constant dense<N_> : tensor<M_x1xi32>
    %a0 = arith.muli %mc, %am : tensor<M_x1xi32>
    %a1 = arith.muli %kr, %ak : tensor<1xK_xi32>
    %a2 = tt.broadcast %a0 : tensor<M_x1xi32> -> tensor<M_xK_xi32>
    %a3 = tt.broadcast %a1 : tensor<1xK_xi32> -> tensor<M_xK_xi32>
    %a4 = arith.addi %a2, %a3 : tensor<M_xK_xi32>
    %a5 = tt.splat %a : !tt.ptr<ELEMENT> -> tensor<M_xK_x!tt.ptr<ELEMENT>>
    %a6 = tt.addptr %a5, %a4 : tensor<M_xK_x!tt.ptr<ELEMENT>>, tensor<M_xK_xi32>
    %bound = tt.splat %inside : i32 -> tensor<M_x1xi32>
    %in = arith.cmpi slt, %mc, %bound : tensor<M_x1xi32>
    %rows = tt.broadcast %in : tensor<M_x1xi1> -> tensor<M_xK_xi1>
    %last = arith.constant dense<VALID> : tensor<1xK_xi32>
    %before = arith.cmpi slt, %kr, %last : tensor<1xK_xi32>
    %columns = tt.broadcast %before : tensor<1xK_xi1> -> tensor<M_xK_xi1>
    %both = arith.andi %columns, %rows : tensor<M_xK_xi1>
    %lastb = arith.constant dense<VALID> : tensor<K_x1xi32>
    %beforeb = arith.cmpi slt, %kc, %lastb : tensor<K_x1xi32>
    %maskb = tt.broadcast %beforeb : tensor<K_x1xi1> -> tensor<K_xN_xi1>
    %noneb = arith.constant dense<ZERO> : tensor<K_xN_xELEMENT>
    %none = arith.constant dense<ZERO> : tensor<M_xK_xELEMENT>
    %av = tt.load %a6, AMASK, %none : tensor<M_xK_x!tt.ptr<ELEMENT>>
    %b0 = arith.muli %kc, %bk : tensor<K_x1xi32>
    %b1 = arith.muli %nr, %bn : tensor<1xN_xi32>
    %b2 = tt.broadcast %b0 : tensor<K_x1xi32> -> tensor<K_xN_xi32>
    %b3 = tt.broadcast %b1 : tensor<1xN_xi32> -> tensor<K_xN_xi32>
    %b4 = arith.addi %b2, %b3 : tensor<K_xN_xi32>
    %b5 = tt.splat %b : !tt.ptr<ELEMENT> -> tensor<K_xN_x!tt.ptr<ELEMENT>>
    %b6 = tt.addptr %b5, %b4 : tensor<K_xN_x!tt.ptr<ELEMENT>>, tensor<K_xN_xi32>
    %bv = tt.load %b6BMASK : tensor<K_xN_x!tt.ptr<ELEMENT>>
    %c0 = arith.muli %mc, %cm : tensor<M_x1xi32>
    %c1 = tt.broadcast %c0 : tensor<M_x1xi32> -> tensor<M_xN_xi32>
    %c2 = tt.broadcast %nr : tensor<1xN_xi32> -> tensor<M_xN_xi32>
    %c3 = arith.addi %c1, %c2 : tensor<M_xN_xi32>
    %c4 = tt.splat %c : !tt.ptr<RESULT> -> tensor<M_xN_x!tt.ptr<RESULT>>
    %c5 = tt.addptr %c4, %c3 : tensor<M_xN_x!tt.ptr<RESULT>>, tensor<M_xN_xi32>
    %cv = tt.load %c5 : tensor<M_xN_x!tt.ptr<RESULT>>
    %d = tt.dot %av, %bv, %cv, inputPrecision = tf32ATTRIBUTE : tensor<M_xK_xELEMENT> * tensor<K_xN_xELEMENT> -> tensor<M_xN_xRESULT>
    tt.store %c5, %d : tensor<M_xN_x!tt.ptr<RESULT>>
    tt.return
  }
})";
  const int astride = c.aTransposed ? c.m : c.k + 24, bstride = c.bTransposed ? c.k + 8 : c.n;
  replaceAll(text, "ASTRIDEM", std::to_string(c.aTransposed ? 1 : astride)),
      replaceAll(text, "ASTRIDEK", std::to_string(c.aTransposed ? astride : 1));
  replaceAll(text, "BSTRIDEK", std::to_string(c.bTransposed ? 1 : bstride)),
      replaceAll(text, "BSTRIDEN", std::to_string(c.bTransposed ? bstride : 1));
  replaceAll(text, "AMASK", c.valid ? "%both" : "%rows"), replaceAll(text, "BMASK", c.valid ? ", %maskb, %noneb" : "");
  std::string attributes;
  for (auto [name, valid] : {std::pair{"tt.valid_k", c.valid}, {"tt.valid_m", c.validRows}, {"tt.valid_n", c.validColumns}})
    if (valid) attributes += (attributes.empty() ? " {" : ", ") + std::string(name) + " = " + std::to_string(valid) + " : i32";
  replaceAll(text, "ATTRIBUTE", attributes.empty() ? "" : attributes + "}"), replaceAll(text, "VALID", std::to_string(c.valid));
  replaceAll(text, "M_", std::to_string(c.m)), replaceAll(text, "N_", std::to_string(c.n)),
      replaceAll(text, "K_", std::to_string(c.k));
  replaceAll(text, "ZERO", c.element[0] == 'i' ? "0" : "0.000000e+00");
  replaceAll(text, "ELEMENT", c.element), replaceAll(text, "RESULT", c.result);
  return text;
}

/// Small whole numbers and halves: exact in every format, and so are their sums.
double number(int i, uint32_t seed) {
  return static_cast<double>((static_cast<uint32_t>(i) * 2654435761u + seed * 40503u) >> 16 & 15) / 2 - 3.5;
}
void put(std::vector<uint8_t> &bytes, const std::string &element, size_t i, double x) {
  auto store = [&](auto v) {
    bytes.resize(std::max(bytes.size(), (i + 1) * sizeof v));
    std::memcpy(bytes.data() + i * sizeof v, &v, sizeof v);
  };
  const float f = static_cast<float>(x);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if (element == "f32") store(f);
  if (element == "bf16") store(static_cast<uint16_t>(bits >> 16));
  if (element == "f16") store(static_cast<_Float16>(f));
  if (element == "i8") store(static_cast<int8_t>(2 * x));
  // Products then need more than 32 bits.
  if (element == "i64") store(static_cast<int64_t>(2 * x) << 20);
  // Exponent bias 15 and 7 in place of 127; the numbers at hand need two fraction bits at most.
  const uint32_t sign = bits >> 31, exponent = bits >> 23 & 255;
  if (element == "f8E5M2")
    store(static_cast<uint8_t>(sign << 7 | (x == 0 ? 0 : (exponent - 112) << 2 | (bits >> 21 & 3))));
  if (element == "f8E4M3FN")
    store(static_cast<uint8_t>(sign << 7 | (x == 0 ? 0 : (exponent - 120) << 3 | (bits >> 20 & 7))));
}

void check(const Case &c, CpuLevel level) {
  SCOPED_TRACE(std::string(c.element) + " " + std::to_string(c.m) + "x" + std::to_string(c.n) + "x" +
               std::to_string(c.k) + (c.valid ? " of which " + std::to_string(c.valid) : ""));
  Kernel k(dotText(c), level);
  ASSERT_TRUE(k.ok()) << k.error;
  const bool integers = c.element[0] == 'i';
  const int astride = c.aTransposed ? c.m : c.k + 24, bstride = c.bTransposed ? c.k + 8 : c.n;
  // f8E5M2 has two bits of fraction: halves and wholes up to 3.5 fit, so numbers are cut to that.
  auto value = [&](int i, uint32_t seed) { return std::max(-3.0, std::min(3.0, number(i, seed))); };
  // What is masked off along k must not be multiplied, not even by zero.
  auto counts = [&](int j) { return c.valid == 0 || j < c.valid; };
  const double never = integers ? 1 : std::numeric_limits<double>::quiet_NaN();
  std::vector<uint8_t> a, bb;
  std::vector<double> left(static_cast<size_t>(c.m * c.k)), right(static_cast<size_t>(c.k * c.n));
  for (int i = 0; i < c.m; ++i)
    for (int j = 0; j < c.k; ++j) {
      const double x = left[static_cast<size_t>(i * c.k + j)] = counts(j) ? value(i * c.k + j, 1) : never;
      put(a, c.element, static_cast<size_t>(c.aTransposed ? j * astride + i : i * astride + j), x);
    }
  for (int j = 0; j < c.k; ++j)
    for (int n = 0; n < c.n; ++n) {
      const double x = right[static_cast<size_t>(j * c.n + n)] = counts(j) ? value(j * c.n + n, 2) : never;
      put(bb, c.element, static_cast<size_t>(c.bTransposed ? n * bstride + j : j * bstride + n), x);
    }
  std::vector<float> sums(static_cast<size_t>(c.m * c.n), 5.0f);
  std::vector<int32_t> whole(sums.size(), 5);
  std::vector<int64_t> wide(sums.size(), 5);
  const bool isWide = c.result == std::string("i64");
  a.resize(a.size() + 64), bb.resize(bb.size() + 64);
  const auto result = isWide ? pointer(wide.data()) : integers ? pointer(whole.data()) : pointer(sums.data());
  k.run({pointer(a.data()), pointer(bb.data()), result, integer(c.rowsInside)}, 1);
  for (int i = 0; i < (c.validRows ? c.validRows : c.m); ++i)
    for (int n = 0; n < (c.validColumns ? c.validColumns : c.n); ++n) {
      double s = 0;
      for (int j = 0; j < c.k && i < c.rowsInside; ++j)
        if (counts(j)) s += left[static_cast<size_t>(i * c.k + j)] * right[static_cast<size_t>(j * c.n + n)];
      const size_t at = static_cast<size_t>(i * c.n + n);
      if (isWide)
        ASSERT_EQ(wide[at], 5 + (static_cast<int64_t>(4 * s) << 40)) << i << " " << n;
      else if (integers)
        ASSERT_EQ(whole[at], 5 + static_cast<int>(4 * s)) << i << " " << n;
      else
        ASSERT_EQ(sums[at], 5 + s) << i << " " << n;
    }
}

TEST_P(DotTest, EveryTypeOfElement) {
  for (const char *element : {"f32", "bf16", "f16", "f8E5M2", "f8E4M3FN"})
    check({element, "f32", 64, 64, 64, false, false, 64}, GetParam());
  check({"i8", "i32", 64, 64, 64, false, false, 64}, GetParam());
  check({"i64", "i64", 64, 64, 64, false, false, 64}, GetParam());
}
TEST_P(DotTest, EveryOrderInMemory) {
  for (bool a : {false, true})
    for (bool bb : {false, true}) {
      check({"bf16", "f32", 32, 64, 64, a, bb, 32}, GetParam());
      check({"i8", "i32", 32, 32, 128, a, bb, 32}, GetParam());
      check({"f32", "f32", 32, 32, 32, a, bb, 32}, GetParam());
      check({"i64", "i64", 32, 32, 32, a, bb, 31}, GetParam());
    }
}
TEST_P(DotTest, EveryShapeOfBlock) {
  for (int m : {4, 16, 32, 64})
    for (int n : {8, 16, 32, 64, 128})
      for (int k : {16, 32, 96, 256})
        if ((k & (k - 1)) == 0) check({"bf16", "f32", m, n, k, false, false, m}, GetParam());
}
TEST_P(DotTest, ColumnsThatAreMaskedOff) {
  for (bool a : {false, true})
    for (bool bb : {false, true})
      for (int valid : {33, 40, 60}) {
        for (int m : {8, 16, 64}) check({"f32", "f32", m, 32, 64, a, bb, m - 3, valid}, GetParam());
        check({"bf16", "f32", 32, 32, 64, a, bb, 31, valid}, GetParam());
        check({"i64", "i64", 32, 16, 64, a, bb, 31, valid}, GetParam());
      }
}
TEST_P(DotTest, RowsThatAreMaskedOff) {
  for (int rows : {0, 1, 31, 63}) check({"bf16", "f32", 64, 32, 32, false, false, rows}, GetParam());
}

TEST_P(DotTest, RowsAndColumnsThatDoNotCount) {
  for (const char *element : {"f32", "bf16"})
    for (auto [m, valid] : {std::pair{4, 3}, {8, 5}, {16, 9}, {16, 13}, {32, 17}, {32, 31}, {64, 1}, {64, 49}, {64, 63}}) {
      check({element, "f32", m, 32, 32, false, false, m, 0, valid}, GetParam());
      check({element, "f32", m, 64, 64, true, false, valid, 35, valid}, GetParam());
    }
  check({"i64", "i64", 64, 16, 32, false, false, 49, 0, 49}, GetParam());
  for (int columns : {1, 32, 33, 127}) check({"f32", "f32", 64, 128, 32, false, false, 64, 0, 49, columns}, GetParam());
}

/// A block of a convolution of three channels that lie apart, as the first layers of networks for images have it: neighbours along the pixels of a line
/// are `stride` apart, along k nothing is regular, and what lies outside of the image is masked off.
void checkConvolution(int width, int stride, int window, const char *element, CpuLevel level) {
  constexpr int kPixels = 64, kChannels = 3, kOut = 16, kPadding = 1;
  const int k = kChannels * window * window, block = static_cast<int>(std::bit_ceil(static_cast<unsigned>(k)));
  const int lines = (kPixels * 2 + width - 1) / width, inWidth = width * stride, inLines = lines * stride;
  SCOPED_TRACE(std::to_string(width) + " pixels a line, stride " + std::to_string(stride) + ", window " + std::to_string(window) + " " + element);
  std::string text = R"(module {
  tt.func public @conv(%a: !tt.ptr<ELEMENT>, %b: !tt.ptr<ELEMENT>, %c: !tt.ptr<f32>) {
    %pid = tt.get_program_id x : i32
    %c64 = arith.constant 64 : i32
    %first = arith.muli %pid, %c64 : i32
    %m = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %n = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %k = tt.make_range {end = K_ : i32, start = 0 : i32} : tensor<K_xi32>
    %mc = tt.expand_dims %m {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %nr = tt.expand_dims %n {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
    %kr = tt.expand_dims %k {axis = 0 : i32} : tensor<K_xi32> -> tensor<1xK_xi32>
    %kc = tt.expand_dims %k {axis = 1 : i32} : tensor<K_xi32> -> tensor<K_x1xi32>
    %firsts = tt.splat %first : i32 -> tensor<64x1xi32>
    %pixel = arith.addi %firsts, %mc : tensor<64x1xi32>
    %width = arith.constant dense<WIDTH> : tensor<64x1xi32>
    %stride = arith.constant dense<STRIDE> : tensor<64x1xi32>
    %line0 = arith.divui %pixel, %width : tensor<64x1xi32>
    %column0 = arith.remui %pixel, %width : tensor<64x1xi32>
    %padding = arith.constant dense<1> : tensor<64x1xi32>
    %line1 = arith.muli %line0, %stride : tensor<64x1xi32>
    %line = arith.subi %line1, %padding : tensor<64x1xi32>
    %column1 = arith.muli %column0, %stride : tensor<64x1xi32>
    %column = arith.subi %column1, %padding : tensor<64x1xi32>
    %three = arith.constant dense<3> : tensor<1xK_xi32>
    %window = arith.constant dense<WINDOW> : tensor<1xK_xi32>
    %channel = arith.remui %kr, %three : tensor<1xK_xi32>
    %tap = arith.divui %kr, %three : tensor<1xK_xi32>
    %right = arith.remui %tap, %window : tensor<1xK_xi32>
    %down = arith.divui %tap, %window : tensor<1xK_xi32>
    %l0 = tt.broadcast %line : tensor<64x1xi32> -> tensor<64xK_xi32>
    %l1 = tt.broadcast %down : tensor<1xK_xi32> -> tensor<64xK_xi32>
    %l = arith.addi %l0, %l1 : tensor<64xK_xi32>
    %x0 = tt.broadcast %column : tensor<64x1xi32> -> tensor<64xK_xi32>
    %x1 = tt.broadcast %right : tensor<1xK_xi32> -> tensor<64xK_xi32>
    %x = arith.addi %x0, %x1 : tensor<64xK_xi32>
    %none = arith.constant dense<0> : tensor<64xK_xi32>
    %inlines = arith.constant dense<INLINES> : tensor<64xK_xi32>
    %inwidth = arith.constant dense<INWIDTH> : tensor<64xK_xi32>
    %plane = arith.constant dense<PLANE> : tensor<1xK_xi32>
    %i0 = arith.cmpi sge, %l, %none : tensor<64xK_xi32>
    %i1 = arith.cmpi slt, %l, %inlines : tensor<64xK_xi32>
    %i2 = arith.cmpi sge, %x, %none : tensor<64xK_xi32>
    %i3 = arith.cmpi slt, %x, %inwidth : tensor<64xK_xi32>
    %i4 = arith.andi %i0, %i1 : tensor<64xK_xi1>
    %i5 = arith.andi %i2, %i3 : tensor<64xK_xi1>
    %i6 = arith.andi %i4, %i5 : tensor<64xK_xi1>
    %last = arith.constant dense<VALID> : tensor<1xK_xi32>
    %v0 = arith.cmpi slt, %kr, %last : tensor<1xK_xi32>
    %v1 = tt.broadcast %v0 : tensor<1xK_xi1> -> tensor<64xK_xi1>
    %inside = arith.andi %i6, %v1 : tensor<64xK_xi1>
    %p0 = arith.muli %channel, %plane : tensor<1xK_xi32>
    %p1 = tt.broadcast %p0 : tensor<1xK_xi32> -> tensor<64xK_xi32>
    %p2 = arith.muli %l, %inwidth : tensor<64xK_xi32>
    %p3 = arith.addi %p1, %p2 : tensor<64xK_xi32>
    %p4 = arith.addi %p3, %x : tensor<64xK_xi32>
    %p5 = tt.splat %a : !tt.ptr<ELEMENT> -> tensor<64xK_x!tt.ptr<ELEMENT>>
    %p6 = tt.addptr %p5, %p4 : tensor<64xK_x!tt.ptr<ELEMENT>>, tensor<64xK_xi32>
    %zeros = arith.constant dense<0.000000e+00> : tensor<64xK_xELEMENT>
    %av = tt.load %p6, %inside, %zeros : tensor<64xK_x!tt.ptr<ELEMENT>>
    %lastb = arith.constant dense<VALID> : tensor<K_x1xi32>
    %w0 = arith.cmpi slt, %kc, %lastb : tensor<K_x1xi32>
    %w1 = tt.broadcast %w0 : tensor<K_x1xi1> -> tensor<K_x16xi1>
    %out = arith.constant dense<16> : tensor<K_x1xi32>
    %w2 = arith.muli %kc, %out : tensor<K_x1xi32>
    %w3 = tt.broadcast %w2 : tensor<K_x1xi32> -> tensor<K_x16xi32>
    %w4 = tt.broadcast %nr : tensor<1x16xi32> -> tensor<K_x16xi32>
    %w5 = arith.addi %w3, %w4 : tensor<K_x16xi32>
    %w6 = tt.splat %b : !tt.ptr<ELEMENT> -> tensor<K_x16x!tt.ptr<ELEMENT>>
    %w7 = tt.addptr %w6, %w5 : tensor<K_x16x!tt.ptr<ELEMENT>>, tensor<K_x16xi32>
    %zerosb = arith.constant dense<0.000000e+00> : tensor<K_x16xELEMENT>
    %bv = tt.load %w7, %w1, %zerosb : tensor<K_x16x!tt.ptr<ELEMENT>>
    %acc = arith.constant dense<0.000000e+00> : tensor<64x16xf32>
    %d = tt.dot %av, %bv, %acc, inputPrecision = tf32 {tt.valid_k = VALID : i32} : tensor<64xK_xELEMENT> * tensor<K_x16xELEMENT> -> tensor<64x16xf32>
    %o0 = arith.constant dense<16> : tensor<64x1xi32>
    %o1 = arith.muli %pixel, %o0 : tensor<64x1xi32>
    %o2 = tt.broadcast %o1 : tensor<64x1xi32> -> tensor<64x16xi32>
    %o3 = tt.broadcast %nr : tensor<1x16xi32> -> tensor<64x16xi32>
    %o4 = arith.addi %o2, %o3 : tensor<64x16xi32>
    %o5 = tt.splat %c : !tt.ptr<f32> -> tensor<64x16x!tt.ptr<f32>>
    %o6 = tt.addptr %o5, %o4 : tensor<64x16x!tt.ptr<f32>>, tensor<64x16xi32>
    tt.store %o6, %d : tensor<64x16x!tt.ptr<f32>>
    tt.return
  }
})";
  replaceAll(text, "INLINES", std::to_string(inLines)), replaceAll(text, "INWIDTH", std::to_string(inWidth));
  replaceAll(text, "WIDTH", std::to_string(width)), replaceAll(text, "STRIDE", std::to_string(stride)), replaceAll(text, "WINDOW", std::to_string(window));
  replaceAll(text, "PLANE", std::to_string(inLines * inWidth)), replaceAll(text, "VALID", std::to_string(k));
  replaceAll(text, "K_", std::to_string(block)), replaceAll(text, "ELEMENT", element);
  Kernel kernel(text, level);
  ASSERT_TRUE(kernel.ok()) << kernel.error;
  auto pixel = [](int i) { return number(i, 3); };
  auto weight = [](int i) { return number(i, 4); };
  // Nothing lies behind the last element that is read: what is read beyond it is seen under the sanitizers, and is no number.
  std::vector<uint8_t> a, b;
  for (int i = 0; i < kChannels * inLines * inWidth; ++i) put(a, element, static_cast<size_t>(i), pixel(i));
  for (int i = 0; i < k * kOut; ++i) put(b, element, static_cast<size_t>(i), weight(i));
  std::vector<float> c(2 * kPixels * kOut);
  kernel.run({pointer(a.data()), pointer(b.data()), pointer(c.data())}, 2);
  for (int p = 0; p < 2 * kPixels; ++p)
    for (int n = 0; n < kOut; ++n) {
      double s = 0;
      for (int j = 0; j < k; ++j) {
        const int line = p / width * stride - kPadding + j / 3 / window, column = p % width * stride - kPadding + j / 3 % window;
        if (line >= 0 && line < inLines && column >= 0 && column < inWidth)
          s += pixel((j % 3 * inLines + line) * inWidth + column) * weight(j * kOut + n);
      }
      ASSERT_EQ(c[static_cast<size_t>(p * kOut + n)], s) << p << " " << n;
    }
}

TEST_P(DotTest, ConvolutionOfFewChannels) {
  for (int width : {8, 16, 30, 112})
    for (int stride : {1, 2, 3})
      for (int window : {3, 5}) checkConvolution(width, stride, window, "f32", GetParam());
  for (const char *element : {"bf16", "f16"}) checkConvolution(112, 2, 3, element, GetParam());
}

TEST_P(DotTest, MatmulBf16) {
  Kernel k(kernelText("matmul_bf16"), GetParam());
  ASSERT_TRUE(k.ok()) << k.error;
  // The last K has more turns of the loop than packed blocks are kept for.
  for (int M : {64, 130, 200})
    for (int K : {64, 150, 1000, 4500}) {
      const int N = 100;
      std::vector<uint8_t> a, bb;
      for (int i = 0; i < M * K; ++i) put(a, "bf16", static_cast<size_t>(i), number(i, 1));
      for (int i = 0; i < K * N; ++i) put(bb, "bf16", static_cast<size_t>(i), number(i, 2));
      std::vector<uint16_t> c(static_cast<size_t>(M * N));
      k.run({pointer(a.data()), pointer(bb.data()), pointer(c.data()), integer(M), integer(N), integer(K), integer(K),
             integer(N), integer(N)},
            static_cast<uint32_t>((M + 63) / 64 * ((N + 63) / 64)));
      for (int i = 0; i < M; ++i)
        for (int n = 0; n < N; ++n) {
          double s = 0;
          for (int j = 0; j < K; ++j) s += number(i * K + j, 1) * number(j * N + n, 2);
          const uint32_t bits = static_cast<uint32_t>(c[static_cast<size_t>(i * N + n)]) << 16;
          float got;
          std::memcpy(&got, &bits, 4);
          // The result is rounded to bf16's 8 bits.
          ASSERT_NEAR(got, s, std::abs(s) / 256) << i << " " << n;
        }
    }
}

// 2^24 + 1 is 2^24 in f32: products that are added to the accumulator one after another are lost, their sum is not.
TEST_P(DotTest, ABlockOfKIsSummedForItself) {
  for (int m : {8, 64}) {
    const Case c{"f32", "f32", m, 32, 256, false, false, m};
    Kernel k(dotText(c), GetParam());
    ASSERT_TRUE(k.ok()) << k.error;
    std::vector<float> a(static_cast<size_t>(m * (256 + 24)), 1.0f), b(256 * 32, 1.0f), sums(static_cast<size_t>(m * 32), 16777216.0f);
    k.run({pointer(a.data()), pointer(b.data()), pointer(sums.data()), integer(m)}, 1);
    for (float sum : sums) ASSERT_EQ(sum, 16777216.0f + 256);
  }
}

// Packed operands are kept from program to program, but not across writes of the program itself.
TEST_P(DotTest, OperandThatTheProgramWrites) {
  Kernel k(R"(module {
  tt.func public @rewritten(%a: !tt.ptr<bf16>, %b: !tt.ptr<bf16>, %c: !tt.ptr<f32>) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %zero = arith.constant dense<0.000000e+00> : tensor<32x32xf32>
    %r = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %row = tt.expand_dims %r {axis = 1 : i32} : tensor<32xi32> -> tensor<32x1xi32>
    %column = tt.expand_dims %r {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
    %w = arith.constant dense<32> : tensor<32x1xi32>
    %start = arith.muli %row, %w : tensor<32x1xi32>
    %x = tt.broadcast %start : tensor<32x1xi32> -> tensor<32x32xi32>
    %y = tt.broadcast %column : tensor<1x32xi32> -> tensor<32x32xi32>
    %at = arith.addi %x, %y : tensor<32x32xi32>
    %as = tt.splat %a : !tt.ptr<bf16> -> tensor<32x32x!tt.ptr<bf16>>
    %ap = tt.addptr %as, %at : tensor<32x32x!tt.ptr<bf16>>, tensor<32x32xi32>
    %bs = tt.splat %b : !tt.ptr<bf16> -> tensor<32x32x!tt.ptr<bf16>>
    %bp = tt.addptr %bs, %at : tensor<32x32x!tt.ptr<bf16>>, tensor<32x32xi32>
    %sum = scf.for %i = %c0 to %c3 step %c1 iter_args(%s = %zero) -> (tensor<32x32xf32>) : i32 {
      %f = arith.sitofp %i : i32 to f32
      %n = arith.truncf %f : f32 to bf16
      %v = tt.splat %n : bf16 -> tensor<32x32xbf16>
      tt.store %bp, %v : tensor<32x32x!tt.ptr<bf16>>
      %av = tt.load %ap : tensor<32x32x!tt.ptr<bf16>>
      %bv = tt.load %bp : tensor<32x32x!tt.ptr<bf16>>
      %d = tt.dot %av, %bv, %s, inputPrecision = tf32 : tensor<32x32xbf16> * tensor<32x32xbf16> -> tensor<32x32xf32>
      scf.yield %d : tensor<32x32xf32>
    }
    %cs = tt.splat %c : !tt.ptr<f32> -> tensor<32x32x!tt.ptr<f32>>
    %cp = tt.addptr %cs, %at : tensor<32x32x!tt.ptr<f32>>, tensor<32x32xi32>
    tt.store %cp, %sum : tensor<32x32x!tt.ptr<f32>>
    tt.return
  }
})",
           GetParam());
  ASSERT_TRUE(k.ok()) << k.error;
  std::vector<uint8_t> a, bb(32 * 32 * 2);
  for (int i = 0; i < 32 * 32; ++i) put(a, "bf16", static_cast<size_t>(i), number(i, 1));
  std::vector<float> c(32 * 32);
  k.run({pointer(a.data()), pointer(bb.data()), pointer(c.data())}, 1);
  for (int i = 0; i < 32; ++i) {
    double s = 0;
    for (int j = 0; j < 32; ++j) s += number(i * 32 + j, 1) * (0 + 1 + 2);
    for (int n = 0; n < 32; ++n) ASSERT_EQ(c[static_cast<size_t>(i * 32 + n)], s) << i << " " << n;
  }
}

// ---- few rows times numbers of four bits, in fixed point (dot_fixed.cpp)

/// C[M, N] += A[M, K] * q[K, N]: byte (k / 4 * N / 2 + n % (N / 2)) * 4 + k % 4 has q[k, n] in its low bits for n < N / 2, else in the high ones.
std::string foursText(int m, int n, int k) {
  std::string text = R"(module {
  tt.func public @fours(%a: !tt.ptr<f32>, %b: !tt.ptr<i8>, %c: !tt.ptr<f32>) {
    %m = tt.make_range {end = M_ : i32, start = 0 : i32} : tensor<M_xi32>
    %n = tt.make_range {end = N_ : i32, start = 0 : i32} : tensor<N_xi32>
    %k = tt.make_range {end = K_ : i32, start = 0 : i32} : tensor<K_xi32>
    %mc = tt.expand_dims %m {axis = 1 : i32} : tensor<M_xi32> -> tensor<M_x1xi32>
    %kr = tt.expand_dims %k {axis = 0 : i32} : tensor<K_xi32> -> tensor<1xK_xi32>
    %kc = tt.expand_dims %k {axis = 1 : i32} : tensor<K_xi32> -> tensor<K_x1xi32>
    %nr = tt.expand_dims %n {axis = 0 : i32} : tensor<N_xi32> -> tensor<1xN_xi32>
    %am = arith.constant dense<K_> : tensor<M_x1xi32>
    %cm = arith.constant dense<N_> : tensor<M_x1xi32>
    %half = arith.constant dense<HALF> : tensor<1xN_xi32>
    %fourk = arith.constant dense<4> : tensor<K_x1xi32>
    %fourn = arith.constant dense<4> : tensor<1xN_xi32>
    %row = arith.constant dense<ROW> : tensor<K_x1xi32>
    %a0 = arith.muli %mc, %am : tensor<M_x1xi32>
    %a1 = tt.broadcast %a0 : tensor<M_x1xi32> -> tensor<M_xK_xi32>
    %a2 = tt.broadcast %kr : tensor<1xK_xi32> -> tensor<M_xK_xi32>
    %a3 = arith.addi %a1, %a2 : tensor<M_xK_xi32>
    %a4 = tt.splat %a : !tt.ptr<f32> -> tensor<M_xK_x!tt.ptr<f32>>
    %a5 = tt.addptr %a4, %a3 : tensor<M_xK_x!tt.ptr<f32>>, tensor<M_xK_xi32>
    %av = tt.load %a5 : tensor<M_xK_x!tt.ptr<f32>>
    %b0 = arith.divui %kc, %fourk : tensor<K_x1xi32>
    %b1 = arith.muli %b0, %row : tensor<K_x1xi32>
    %b2 = arith.remui %kc, %fourk : tensor<K_x1xi32>
    %b3 = arith.addi %b1, %b2 overflow<nsw> : tensor<K_x1xi32>
    %b4 = arith.remui %nr, %half : tensor<1xN_xi32>
    %b5 = arith.muli %b4, %fourn : tensor<1xN_xi32>
    %b6 = tt.broadcast %b3 : tensor<K_x1xi32> -> tensor<K_xN_xi32>
    %b7 = tt.broadcast %b5 : tensor<1xN_xi32> -> tensor<K_xN_xi32>
    %b8 = arith.addi %b6, %b7 overflow<nsw> : tensor<K_xN_xi32>
    %b9 = tt.splat %b : !tt.ptr<i8> -> tensor<K_xN_x!tt.ptr<i8>>
    %b10 = tt.addptr %b9, %b8 : tensor<K_xN_x!tt.ptr<i8>>, tensor<K_xN_xi32>
    %b11 = tt.load %b10 : tensor<K_xN_x!tt.ptr<i8>>
    %b12 = arith.extui %b11 : tensor<K_xN_xi8> to tensor<K_xN_xi32>
    %s0 = arith.divui %nr, %half : tensor<1xN_xi32>
    %s1 = arith.muli %s0, %fourn : tensor<1xN_xi32>
    %s2 = tt.broadcast %s1 : tensor<1xN_xi32> -> tensor<K_xN_xi32>
    %q0 = arith.shrsi %b12, %s2 : tensor<K_xN_xi32>
    %most = arith.constant dense<15> : tensor<K_xN_xi32>
    %q1 = arith.andi %q0, %most : tensor<K_xN_xi32>
    %q = arith.sitofp %q1 : tensor<K_xN_xi32> to tensor<K_xN_xf32>
    %c0 = arith.muli %mc, %cm : tensor<M_x1xi32>
    %c1 = tt.broadcast %c0 : tensor<M_x1xi32> -> tensor<M_xN_xi32>
    %c2 = tt.broadcast %nr : tensor<1xN_xi32> -> tensor<M_xN_xi32>
    %c3 = arith.addi %c1, %c2 : tensor<M_xN_xi32>
    %c4 = tt.splat %c : !tt.ptr<f32> -> tensor<M_xN_x!tt.ptr<f32>>
    %c5 = tt.addptr %c4, %c3 : tensor<M_xN_x!tt.ptr<f32>>, tensor<M_xN_xi32>
    %cv = tt.load %c5 : tensor<M_xN_x!tt.ptr<f32>>
    %d = tt.dot %av, %q, %cv {tt.right_in_fours} : tensor<M_xK_xf32> * tensor<K_xN_xf32> -> tensor<M_xN_xf32>
    tt.store %c5, %d : tensor<M_xN_x!tt.ptr<f32>>
    tt.return
  }
})";
  replaceAll(text, "HALF", std::to_string(n / 2)), replaceAll(text, "ROW", std::to_string(n * 2));
  replaceAll(text, "M_", std::to_string(m)), replaceAll(text, "N_", std::to_string(n)), replaceAll(text, "K_", std::to_string(k));
  return text;
}

struct Fours {
  int m, n, k;
  std::vector<uint8_t> numbers; // [k, n]
  std::vector<uint8_t> bytes;
  std::unique_ptr<Kernel> kernel;
  Fours(int m_, int n_, int k_) : m(m_), n(n_), k(k_), numbers(static_cast<size_t>(k_ * n_)) {
    for (int i = 0; i < k * n; ++i) numbers[static_cast<size_t>(i)] = static_cast<uint8_t>(number(i, 7) * 2 + 7);
  }
  void pack() {
    bytes.assign(static_cast<size_t>(k * n / 2), 0);
    for (int i = 0; i < k; ++i)
      for (int j = 0; j < n; ++j) {
        uint8_t &byte = bytes[static_cast<size_t>((i / 4 * (n / 2) + j % (n / 2)) * 4 + i % 4)];
        byte = static_cast<uint8_t>(byte | numbers[static_cast<size_t>(i * n + j)] << (j / (n / 2) * 4));
      }
  }
  std::vector<float> run(const std::vector<float> &x, CpuLevel level, float start) {
    pack();
    if (!kernel) kernel = std::make_unique<Kernel>(foursText(m, n, k), level);
    EXPECT_TRUE(kernel->ok()) << kernel->error;
    std::vector<float> sums(static_cast<size_t>(m * n), start);
    if (kernel->ok()) kernel->run({pointer(x.data()), pointer(bytes.data()), pointer(sums.data())}, 1);
    return sums;
  }
  /// Against sums in double, within the bound that dot_fixed.cpp states: half a unit of the last digit in each product, and three roundings of the sum.
  void check(const std::vector<float> &x, CpuLevel level, float start = 0) {
    const std::vector<float> got = run(x, level, start);
    for (int i = 0; i < m; ++i) {
      double largest = 0;
      for (int l = 0; l < k; ++l) largest = std::max(largest, std::abs(static_cast<double>(x[static_cast<size_t>(i * k + l)])));
      for (int j = 0; j < n; ++j) {
        double sum = start, absolute = std::abs(start), numbersSum = 0;
        for (int l = 0; l < k; ++l) {
          const double q = numbers[static_cast<size_t>(l * n + j)], product = q * static_cast<double>(x[static_cast<size_t>(i * k + l)]);
          sum += product, absolute += std::abs(product), numbersSum += q;
        }
        const double atol = numbersSum * largest * std::exp2(-22.9) + absolute * std::exp2(-22);
        ASSERT_NEAR(got[static_cast<size_t>(i * n + j)], sum, atol) << m << "x" << n << "x" << k << " at " << i << " " << j;
      }
    }
  }
  /// Values of all 24 bits, `scale` large at most.
  std::vector<float> row(double scale) const {
    std::vector<float> x;
    for (int i = 0; i < m * k; ++i) x.push_back(static_cast<float>(std::sin(i * 1.7 + 0.3) * scale));
    return x;
  }
};

TEST_P(DotTest, NumbersOfFourBits) {
  for (const auto &[m, n, k] : {std::array{1, 64, 128}, {1, 32, 32}, {1, 64, 256}, {2, 64, 64}, {4, 32, 96}, {3, 64, 32}}) {
    Fours f(m, n, k);
    f.check(f.row(1), GetParam());
    f.check(f.row(1), GetParam(), 1000);
  }
}

TEST_P(DotTest, NumbersOfFourBitsTimesWhatIsExactAreExact) {
  Fours f(1, 64, 128);
  std::vector<float> x;
  for (int i = 0; i < f.k; ++i) x.push_back(static_cast<float>(number(i, 3)));
  // Ten thousand times the others, and still all of them have digits.
  x[17] = 35000;
  const std::vector<float> got = f.run(x, GetParam(), 0);
  for (int j = 0; j < f.n; ++j) {
    double sum = 0;
    for (int l = 0; l < f.k; ++l) sum += static_cast<double>(x[static_cast<size_t>(l)]) * f.numbers[static_cast<size_t>(l * f.n + j)];
    ASSERT_EQ(got[static_cast<size_t>(j)], sum) << j;
  }
}

TEST_P(DotTest, NumbersOfFourBitsTimesOneLargeElement) {
  Fours f(2, 64, 128);
  // The large one's numbers are those of a zero point, or nothing at all.
  for (int zero : {8, 0}) {
    std::vector<float> x = f.row(1);
    x[40] = 1e4f, x[200] = -1e4f;
    for (int l : {40, 200 - 128})
      for (int j = 0; j < f.n; ++j) f.numbers[static_cast<size_t>(l * f.n + j)] = static_cast<uint8_t>(zero);
    f.check(x, GetParam());
  }
}

TEST_P(DotTest, NumbersOfFourBitsTimesEveryExponent) {
  Fours f(1, 64, 32);
  for (int exponent = -149; exponent < 122; exponent += 3) f.check(f.row(std::exp2(exponent)), GetParam());
  // Just below and at powers of two, where the largest digit would be 128.
  for (float x : {1.99999988f, 2.0f, 1.9921875f, 1.98437488f, 0x1.fcp0f, 0x1.fbfffep0f}) {
    std::vector<float> row = f.row(0.5);
    row[5] = x, row[6] = -x;
    f.check(row, GetParam());
  }
}

TEST_P(DotTest, NumbersOfFourBitsTimesZeros) {
  Fours f(2, 64, 64);
  std::vector<float> x(128, 0.0f);
  for (size_t i = 0; i < 128; i += 2) x[i] = -0.0f;
  for (float got : f.run(x, GetParam(), 0)) ASSERT_EQ(got, 0);
}

TEST_P(DotTest, NumbersOfFourBitsTimesWhatIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  Fours f(2, 64, 64);
  for (uint8_t &q : f.numbers) q = std::max<uint8_t>(q, 1);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), inf, -inf}) {
    std::vector<float> x = f.row(1);
    x[70] = bad;
    const std::vector<float> got = f.run(x, GetParam(), 0);
    for (int j = 0; j < f.n; ++j) {
      // The other row is as ever.
      ASSERT_TRUE(std::isfinite(got[static_cast<size_t>(j)])) << j;
      const float sum = got[static_cast<size_t>(f.n + j)];
      ASSERT_TRUE(std::isnan(bad) ? std::isnan(sum) : sum == bad) << j << " " << sum;
    }
  }
  // Infinity times a number that is zero.
  std::vector<float> x = f.row(1);
  x[0] = inf, f.numbers[3] = 0;
  ASSERT_TRUE(std::isnan(f.run(x, GetParam(), 0)[3]));
}

TEST(Dot, NumbersOfFourBitsAreMultipliedAsBytes) {
  for (const LevelInfo &level : allLevels())
    for (int m : {1, 4}) {
      if (level.caps.byteProducts == ByteProducts::None) continue;
      Kernel kernel(foursText(m, 64, 128), static_cast<CpuLevel>(&level - allLevels().data()), true);
      ASSERT_TRUE(kernel.ok()) << kernel.error;
      const bool fours = level.caps.byteProducts == ByteProducts::Fours;
      EXPECT_NE(kernel.code.asmText.find(fours ? "vpdpbusd" : "vpmaddubsw"), std::string::npos) << level.name;
    }
}

} // namespace
} // namespace neso::cpu::test
