// Reading, printing and executing tile programs. Kernels are Triton's own TTIR (goldens/, printed by Triton 3.9 with
// make_goldens.py); expected numbers are closed forms computed here. Tolerance: exact unless a line says otherwise.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "base/diagnostics/tile.h"
#include "ir/tile/interp.h"
#include "ir/tile/softfloat.h"

using namespace neso;

namespace {

std::string readFile(const std::filesystem::path &path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}
std::filesystem::path goldens() { return std::filesystem::path(NESO_SOURCE_DIR) / "compiler/ir/tile/test/goldens"; }

struct Kernel {
  std::unique_ptr<mlir::MLIRContext> ctx = makeTileContext();
  mlir::OwningOpRef<mlir::ModuleOp> module;
  tt::FuncOp func;

  void parse(const std::string &text, const std::string &name) {
    Result<mlir::OwningOpRef<mlir::ModuleOp>> m = parseTile(text, name, ctx.get());
    ASSERT_TRUE(m) << m.error().str();
    module = std::move(*m);
    for (tt::FuncOp f : module->getOps<tt::FuncOp>())
      if (f.isPublic()) func = f;
  }
  void golden(const std::string &name) { parse(readFile(goldens() / (name + ".ttir")), name + ".ttir"); }
  Status run(std::vector<InterpArg> args, std::array<int64_t, 3> grid = {1, 1, 1}, InterpOptions options = {}) {
    return interpretTile(func, args, grid, options);
  }
};

template <typename T> InterpArg buffer(std::vector<T> &v) {
  return InterpArg::pointer(v.data(), static_cast<int64_t>(v.size() * sizeof(T)));
}
std::vector<float> ramp(size_t n, float scale = 1, float shift = 0) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<float>(i) * scale + shift;
  return v;
}
Diag kindOf(const Status &s) { return s.error().diagnostics().front().kind; }
#define OK(s)                                                                                                          \
  do {                                                                                                                 \
    Status status_ = (s);                                                                                              \
    ASSERT_TRUE(status_) << status_.error().str();                                                                     \
  } while (false)

} // namespace

TEST(TileText, EveryGoldenRoundTrips) {
  int count = 0;
  for (const auto &entry : std::filesystem::directory_iterator(goldens())) {
    Kernel k;
    k.parse(readFile(entry.path()), entry.path().filename().string());
    std::string once = printTile(*k.module, {.locations = true, .generic = false});
    Kernel again;
    again.parse(once, "once");
    EXPECT_EQ(once, printTile(*again.module, {.locations = true, .generic = false})) << entry.path();
    Kernel generic;
    generic.parse(printTile(*k.module, {.locations = true, .generic = true}), "generic");
    EXPECT_EQ(once, printTile(*generic.module, {.locations = true, .generic = false})) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 30);
}

TEST(TileText, OldSpellingsParse) {
  Kernel k;
  k.parse(R"(tt.func public @old(%p: !tt.ptr<f32>, %n: i32, %d: !tt.tensordesc<tensor<16x16xsi32>>) {
    %one = arith.constant 1 : i64
    %zero = arith.constant 0 : i32
    %big = arith.extsi %n : i32 to i64
    %0 = tt.make_tensor_ptr %p, [%big, %big], [%big, %one], [%zero, %n] {order = array<i32: 1, 0>} : <tensor<16x32xf32>>
    %1 = tt.advance %0, [%zero, %n] : <tensor<16x32xf32>>
    %2 = tt.load %1 cacheModifier = cg evictionPolicy = evict_last {boundaryCheck = array<i32: 0, 1>, padding = 2 : i32} : !tt.ptr<tensor<16x32xf32>>
    tt.store %1, %2 evictionPolicy = evict_first {boundaryCheck = array<i32: 0>} : !tt.ptr<tensor<16x32xf32>>
    %3 = tt.make_tensor_descriptor %p, [%n, %n], [%big, %one] : !tt.ptr<f32>, !tt.tensordesc<tensor<16x32xf32>>
    %4 = tt.descriptor_load %3[%zero, %zero] cacheModifier = ca : !tt.tensordesc<tensor<16x32xf32>> -> tensor<16x32xf32>
    tt.return
  })",
          "old.ttir");
  std::string text = printTile(*k.module);
  EXPECT_NE(text.find("!tt.tensordesc<16x16xsi32>"), std::string::npos) << text;
  EXPECT_NE(text.find("cachePolicy = #tt.cache_policy<cache_modifier = cg, eviction_policy = evict_last>"),
            std::string::npos)
      << text;
}

TEST(TileText, FaultsAreNamedAndPlaced) {
  std::unique_ptr<mlir::MLIRContext> ctx = makeTileContext();
  auto failing = [&](const char *text) {
    return parseTile(text, "bad.ttir", ctx.get()).takeError().diagnostics().front();
  };
  Diagnostic syntax = failing("tt.func @f() {\n  tt.retrn\n}");
  EXPECT_EQ(syntax.kind, diag::TileSyntax);
  EXPECT_EQ(syntax.loc.line, 2);
  Diagnostic rule =
      failing("tt.func @f() {\n  %0 = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<8xi32>\n  tt.return\n}");
  EXPECT_EQ(rule.kind, diag::TileInvalid);
  EXPECT_EQ(rule.loc.line, 2);
  EXPECT_EQ(failing("tt.func @f() {\n  \"foo.bar\"() : () -> ()\n  tt.return\n}").kind, diag::TileUnknownOp);
}

TEST(SoftFloat, RoundsToNearestEvenAndSaturates) {
  std::unique_ptr<mlir::MLIRContext> ctx = makeTileContext();
  auto bf16 = mlir::BFloat16Type::get(ctx.get());
  auto e4 = mlir::Float8E4M3FNType::get(ctx.get());
  EXPECT_EQ(tile::roundTo(bf16, 1.0 + 1.0 / 256), 1.0); // a tie goes to even
  EXPECT_EQ(tile::roundTo(bf16, 1.0 + 3.0 / 256), 1.0 + 4.0 / 256);
  EXPECT_EQ(tile::saturateTo(e4, 1e6), 448);
  EXPECT_TRUE(std::isnan(tile::roundTo(e4, 1e6)));
  EXPECT_EQ(tile::encode(e4, 448), 0x7Eu);
  for (int b = 0; b < 256; ++b)
    if ((b & 0x7F) != 0x7F) EXPECT_EQ(tile::encode(e4, tile::decode(e4, b)), static_cast<uint64_t>(b));
  EXPECT_EQ(tile::cutToTf32(1.0 + 0x1p-11), 1.0);
}

TEST(TileInterp, MaskedAdd) {
  Kernel k;
  k.golden("add");
  std::vector<float> x = ramp(300), y = ramp(300, 2), o(300, -1);
  OK(k.run({buffer(x), buffer(y), buffer(o), InterpArg::integer(299)}, {3, 1, 1}));
  for (int i = 0; i < 299; ++i) EXPECT_EQ(o[i], 3.0f * i);
  EXPECT_EQ(o[299], -1);
}

TEST(TileInterp, Softmax) {
  Kernel k;
  k.golden("softmax");
  std::vector<float> x = ramp(100, 0.1f), o(100);
  OK(k.run({buffer(x), buffer(o), InterpArg::integer(50)}, {2, 1, 1}));
  double total = 0;
  for (int i = 0; i < 50; ++i) total += std::exp(double(x[50 + i]) - x[99]);
  for (int i = 0; i < 50; ++i) EXPECT_NEAR(o[50 + i], std::exp(double(x[50 + i]) - x[99]) / total, 1e-7);
}

TEST(TileInterp, MatmulOfHalves) {
  Kernel k;
  k.golden("matmul");
  int M = 20, N = 40, K = 24;
  std::vector<_Float16> a(M * K), b(K * N);
  for (int i = 0; i < M * K; ++i) a[i] = static_cast<_Float16>(i % 7 - 3);
  for (int i = 0; i < K * N; ++i) b[i] = static_cast<_Float16>(i % 5 - 2);
  std::vector<float> c(M * N);
  OK(k.run({buffer(a), buffer(b), buffer(c), InterpArg::integer(M), InterpArg::integer(N), InterpArg::integer(K)},
           {2, 2, 1}));
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      float want = 0;
      for (int x = 0; x < K; ++x) want += float(a[i * K + x]) * float(b[x * N + j]);
      ASSERT_EQ(c[i * N + j], want);
    }
}

TEST(TileInterp, ArgmaxTakesTheFirst) {
  Kernel k;
  k.golden("argmax");
  std::vector<float> x(64, 1), v(4);
  x[5] = x[9] = 7;
  x[16 + 3] = 2;
  std::vector<int32_t> at(4);
  OK(k.run({buffer(x), buffer(v), buffer(at)}));
  EXPECT_EQ(v, (std::vector<float>{7, 2, 1, 1}));
  EXPECT_EQ(at, (std::vector<int32_t>{5, 3, 0, 0}));
}

TEST(TileInterp, ScansForwardAndBackward) {
  Kernel k, r;
  k.golden("cumsum");
  r.golden("scan_reverse");
  std::vector<float> x = ramp(32), o(32);
  OK(k.run({buffer(x), buffer(o)}));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(o[8 + i], 8 * (i + 1) + i * (i + 1) / 2);
  std::vector<float> y(16, 2), p(16);
  OK(r.run({buffer(y), buffer(p)}));
  for (int i = 0; i < 16; ++i) EXPECT_EQ(p[i], std::ldexp(1.0f, 16 - i));
}

TEST(TileInterp, HistogramAndGather) {
  Kernel h, g;
  h.golden("histogram");
  g.golden("gather");
  std::vector<int32_t> x(32), bins(8), picks(16);
  for (int i = 0; i < 32; ++i) x[i] = i % 5;
  OK(h.run({buffer(x), buffer(bins), InterpArg::integer(30)}));
  EXPECT_EQ(bins, (std::vector<int32_t>{6, 6, 6, 6, 6, 0, 0, 0}));
  for (int i = 0; i < 16; ++i) picks[i] = 15 - i;
  std::vector<float> y = ramp(16), o(16);
  OK(g.run({buffer(y), buffer(picks), buffer(o)}));
  for (int i = 0; i < 16; ++i) EXPECT_EQ(o[i], 15 - i);
}

TEST(TileInterp, Atomics) {
  Kernel k;
  k.golden("atomics");
  std::vector<float> o(17);
  std::vector<int32_t> c(5);
  OK(k.run({buffer(o), buffer(c), InterpArg::integer(10)}, {4, 1, 1}));
  for (int i = 0; i < 16; ++i) EXPECT_EQ(o[i], i < 10 ? 4 * i : 0);
  EXPECT_EQ(o[16], 3);
  EXPECT_EQ(c, (std::vector<int32_t>{3, -3, 15, 4, 3}));
}

TEST(TileInterp, ControlFlow) {
  Kernel e, w, c;
  e.golden("early_return");
  w.golden("while_loop");
  c.golden("call");
  std::vector<float> x(8, -1);
  OK(e.run({buffer(x), InterpArg::integer(5)}, {8, 1, 1}));
  EXPECT_EQ(x, (std::vector<float>{0, 1, 2, 3, 4, -1, -1, -1}));
  std::vector<int32_t> y(2);
  OK(w.run({buffer(y), InterpArg::integer(27)}));
  EXPECT_EQ(y[0], 111); // steps of the 3n+1 sequence of 27
  OK(c.run({buffer(y), InterpArg::integer(6), InterpArg::integer(7)}));
  EXPECT_EQ(y, (std::vector<int32_t>{42, 13}));
}

TEST(TileInterp, Casts) {
  Kernel k;
  k.golden("casts");
  std::vector<float> x = ramp(16, 0.37f, -2);
  x[15] = 1e6f;
  std::vector<uint8_t> e4(16), e5(16);
  std::vector<uint16_t> half(16), bf(16);
  OK(k.run({buffer(x), buffer(e4), buffer(e5), buffer(half), buffer(bf)}));
  EXPECT_EQ(e4[15], 0x7E); // 448, the largest
  EXPECT_EQ(e5[15], 0x7B); // 57344
  EXPECT_EQ(e4[0], 0xC0);  // -2
  EXPECT_EQ(e5[0], 0xC0);
  EXPECT_EQ(half[15], 0x7BFF); // towards zero: 65504
  EXPECT_EQ(bf[0], 0xC000);
  EXPECT_EQ(half[1], 0xBE85); // -1.63 towards zero: -(1 + 645/1024)
}

/// As machine code for CPUs and Triton's interpreter have it, which is what launches are compared with.
TEST(TileInterp, FloatsThatDoNotFitNarrowIntegersAreCut) {
  Kernel k;
  k.parse(R"(tt.func public @f(%x: !tt.ptr<f32>, %y: !tt.ptr<i8>) {
  %r = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
  %xs = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
  %xp = tt.addptr %xs, %r : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
  %v = tt.load %xp : tensor<8x!tt.ptr<f32>>
  %n = arith.fptosi %v : tensor<8xf32> to tensor<8xi8>
  %ys = tt.splat %y : !tt.ptr<i8> -> tensor<8x!tt.ptr<i8>>
  %yp = tt.addptr %ys, %r : tensor<8x!tt.ptr<i8>>, tensor<8xi32>
  tt.store %yp, %n : tensor<8x!tt.ptr<i8>>
  tt.return
}
)",
          "cut.ttir");
  std::vector<float> x = {1.9f, -1.9f, 127.5f, 128, 300, -300, 3e9f, -3e9f};
  std::vector<int8_t> y(8);
  OK(k.run({buffer(x), buffer(y)}));
  EXPECT_EQ(y, (std::vector<int8_t>{1, -1, 127, -128, 44, -44, 0, 0}));
}

TEST(TileInterp, Shapes) {
  Kernel k;
  k.golden("shapes");
  std::vector<float> x = ramp(64), o(192);
  OK(k.run({buffer(x), buffer(o)}));
  // j[r, c, 0] = x[r, c], j[r, c, 1] = x[c, r]; its first two axes change places, then r = a + 2 b row by row.
  for (int r = 0; r < 8; ++r)
    for (int c = 0; c < 8; ++c) {
      float want = x[c * 8 + r] + 2 * x[r * 8 + c];
      ASSERT_EQ(o[r * 8 + c], want);
      ASSERT_EQ(o[64 + r * 8 + c], want);
      ASSERT_EQ(o[128 + r * 8 + c], want);
    }
}

TEST(TileInterp, Descriptors) {
  Kernel k, h;
  k.golden("descriptor");
  std::vector<_Float16> x(20 * 24), o(20 * 24);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<_Float16>(i % 9);
  OK(k.run({buffer(x), buffer(o), InterpArg::integer(20), InterpArg::integer(24)}, {1, 1, 1}));
  EXPECT_EQ(float(o[24 + 3]), 2 * float(x[24 + 3]) + 1); // stored x + 1, then x added
  EXPECT_EQ(float(o[17]), 0);                            // outside the block
  h.golden("host_descriptor");
  std::vector<_Float16> t(10 * 40);
  for (size_t i = 0; i < t.size(); ++i) t[i] = static_cast<_Float16>(i);
  std::vector<float> p(16 * 32, -1);
  std::vector<InterpArg> args = {InterpArg::descriptor(t.data(), 800, {10, 40}, {40, 1})};
  for (int64_t v : {10, 40, 40, 1}) args.push_back(InterpArg::integer(v));
  args.push_back(buffer(p));
  OK(h.run(args));
  EXPECT_EQ(p[32], 40 + 16);
  EXPECT_EQ(p[24], 0);      // column 40 is outside
  EXPECT_EQ(p[10 * 32], 0); // row 10 is outside
}

TEST(TileInterp, MapElementwiseBranches) {
  Kernel k;
  k.golden("map_elementwise");
  std::vector<float> x = ramp(16), y(16, 7), o(16);
  OK(k.run({buffer(x), buffer(y), buffer(o)}));
  for (int i = 0; i < 16; ++i) EXPECT_EQ(o[i], i > 7 ? i : 14);
}

TEST(TileInterp, Integers) {
  Kernel k;
  k.golden("integers");
  std::vector<int32_t> x(16), o(32);
  for (int i = 0; i < 16; ++i) x[i] = i * 77777777 - 600000000;
  OK(k.run({buffer(x), buffer(o)}));
  for (int i = 0; i < 16; ++i) {
    int32_t v = x[i];
    uint32_t u = v;
    uint32_t want = uint32_t(v / 3) + uint32_t(v % 5) + (u << 2) + uint32_t(v >> 1) + (u & 7) + (u ^ uint32_t(i)) +
                    (u | 1) + uint32_t((uint64_t(u) * u) >> 32);
    EXPECT_EQ(static_cast<uint32_t>(o[i]), want) << i;
    EXPECT_EQ(static_cast<uint32_t>(o[16 + i]), (u / 3 + u % 7 + (u >> 3)) - u + uint32_t(std::abs(v))) << i;
  }
}

TEST(TileInterp, SortAndAttention) {
  Kernel s, a;
  s.golden("sort");
  std::vector<int32_t> x = {5, 3, 9, 1, 15, 0, 8, 2, 7, 4, 12, 6, 11, 10, 14, 13}, o(16);
  OK(s.run({buffer(x), buffer(o)}));
  for (int i = 0; i < 16; ++i) EXPECT_EQ(o[i], i);
  a.golden("attention");
  int n = 40, D = 16;
  std::vector<_Float16> q(n * D), kk(n * D), v(n * D), out(n * D);
  for (int i = 0; i < n * D; ++i) {
    q[i] = static_cast<_Float16>(std::sin(i * 0.7));
    kk[i] = static_cast<_Float16>(std::cos(i * 0.3));
    v[i] = static_cast<_Float16>(std::sin(i * 0.11));
  }
  OK(a.run({buffer(q), buffer(kk), buffer(v), buffer(out), InterpArg::integer(n), InterpArg::real(0.25)}, {2, 1, 1}));
  for (int r = 0; r < n; ++r) {
    std::vector<double> p(n);
    double total = 0;
    for (int c = 0; c < n; ++c) {
      double dot = 0;
      for (int d = 0; d < D; ++d) dot += double(q[r * D + d]) * double(kk[c * D + d]);
      total += p[c] = std::exp(0.25 * dot);
    }
    for (int d = 0; d < D; ++d) {
      double want = 0;
      for (int c = 0; c < n; ++c) want += p[c] / total * double(v[c * D + d]);
      ASSERT_NEAR(double(out[r * D + d]), want, 2e-3); // probabilities and result are halves
    }
  }
}

TEST(TileInterp, FindsFaults) {
  Kernel add, race, bad, div;
  add.golden("add");
  std::vector<float> x(128), y(100), o(128);
  Status s = add.run({buffer(x), buffer(y), buffer(o), InterpArg::integer(128)});
  ASSERT_FALSE(s);
  EXPECT_EQ(kindOf(s), diag::TileOutOfBounds);
  EXPECT_NE(s.error().str().find("make_goldens.py"), std::string::npos) << s.error().str();
  EXPECT_NE(s.error().str().find("argument 1"), std::string::npos) << s.error().str();
  race.parse(R"(tt.func public @race(%p: !tt.ptr<i32>) {
    %0 = tt.get_program_id x : i32
    tt.store %p, %0 : !tt.ptr<i32>
    tt.return
  })",
             "race.ttir");
  std::vector<int32_t> c(1);
  OK(race.run({buffer(c)}, {2, 1, 1}));
  Status r =
      race.run({buffer(c)}, {2, 1, 1}, {.honourTf32 = false, .detectRaces = true, .maxSteps = 1000, .print = {}});
  ASSERT_FALSE(r);
  EXPECT_EQ(kindOf(r), diag::TileRace);
  bad.golden("asserts");
  std::vector<std::string> lines;
  InterpOptions collect;
  collect.print = [&](const std::string &l) { lines.push_back(l); };
  std::vector<float> v(16, 1);
  OK(bad.run({buffer(v), InterpArg::integer(3)}, {1, 1, 1}, collect));
  EXPECT_EQ(lines.size(), 2u);
  v[3] = -1;
  EXPECT_EQ(kindOf(bad.run({buffer(v), InterpArg::integer(3)})), diag::TileAssertFailed);
  v[3] = 1;
  EXPECT_EQ(kindOf(bad.run({buffer(v), InterpArg::integer(-1)})), diag::TileFalseAssumption);
  EXPECT_EQ(kindOf(bad.run({buffer(v)})), diag::TileBadArguments);
  div.parse(R"(tt.func public @div(%p: !tt.ptr<i32>, %n: i32) {
    %0 = arith.divsi %n, %n : i32
    tt.store %p, %0 : !tt.ptr<i32>
    tt.return
  })",
            "div.ttir");
  EXPECT_EQ(kindOf(div.run({buffer(c), InterpArg::integer(0)})), diag::TileDivisionByZero);
  Kernel wait, assembly;
  wait.golden("atomic_sync");
  c[0] = 5;
  EXPECT_EQ(kindOf(wait.run({buffer(c)})), diag::TileEndless);
  c[0] = 0;
  OK(wait.run({buffer(c)}));
  assembly.golden("inline_asm");
  std::vector<int32_t> i1(16), i2(16);
  EXPECT_EQ(kindOf(assembly.run({buffer(i1), buffer(i2)})), diag::TileInterpUnsupported);
}

TEST(TileInterp, LaunchesAndThreadsFollowOneAnother) {
  Kernel k;
  k.parse(R"(tt.func public @dependent(%p: !tt.ptr<i32>) {
    %0 = tt.elementwise_inline_asm "griddepcontrol.wait; // dummy $0" {constraints = "=r", packed_element = 1 : i32, pure = false} -> i32
    %1 = tt.load %p : !tt.ptr<i32>
    %2 = arith.addi %1, %1 : i32
    tt.store %p, %2 : !tt.ptr<i32>
    %3 = tt.elementwise_inline_asm "bar.sync 0;" {constraints = "=r", packed_element = 1 : i32, pure = false} -> i32
    tt.return
  })",
          "dependent.ttir");
  std::vector<int32_t> v = {21};
  OK(k.run({buffer(v)}));
  EXPECT_EQ(v[0], 42);
}
