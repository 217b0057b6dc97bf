// Products by wgmma on the simulated block, whose descriptors and fragments follow the PTX ISA and not our layouts, and
// by the assembler. Operands are small, so that sums are exact in every order.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "backend/nvidia/compile.h"
#include "backend/nvidia/emitter.h"
#include "backend/nvidia/passes/allocate.h"
#include "backend/nvidia/passes/pipeline.h"
#include "backend/nvidia/passes/place.h"
#include "backend/nvidia/passes/verify.h"
#include "backend/nvidia/test/order.h"
#include "backend/nvidia/test/simulator.h"
#include "ir/tile/interp.h"
#include "ir/tile/passes/passes.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"

namespace neso::nvidia {
namespace {

// c[M, N] = a[M, K] b[K, N] in blocks of KK along K. TURNED: what is loaded is transposed then, b[N, K] or a[K, M].
constexpr const char *kMatmul = R"(
tt.func public @matmul(%a: !tt.ptr<a_TYPE> {tt.divisibility = 16 : i32}, %b: !tt.ptr<b_TYPE> {tt.divisibility = 16 : i32},
                       %c: !tt.ptr<d_TYPE> {tt.divisibility = 16 : i32}, %K: i32 {tt.divisibility = 16 : i32}) {
  %zero = arith.constant 0 : i32
  %step = arith.constant KK : i32
  %init = arith.constant dense<ZERO> : tensor<MMxNNxd_TYPE>
  %m = tt.make_range {start = 0 : i32, end = MM : i32} : tensor<MMxi32>
  %n = tt.make_range {start = 0 : i32, end = NN : i32} : tensor<NNxi32>
  %k = tt.make_range {start = 0 : i32, end = KK : i32} : tensor<KKxi32>
LOADS
  %result:3 = scf.for %i = %zero to %K step %step iter_args(%acc = %init, %ap = %pa, %bp = %pb)
      -> (tensor<MMxNNxd_TYPE>, tensor<ARxACx!tt.ptr<a_TYPE>>, tensor<BRxBCx!tt.ptr<b_TYPE>>) : i32 {
    %x = tt.load %ap : tensor<ARxACx!tt.ptr<a_TYPE>>
    %y = tt.load %bp : tensor<BRxBCx!tt.ptr<b_TYPE>>
TURNS
    %d = tt.dot %left, %right, %acc ACCURACY : tensor<MMxKKxa_TYPE> * tensor<KKxNNxb_TYPE> -> tensor<MMxNNxd_TYPE>
    %ap2 = tt.addptr %ap, %astep : tensor<ARxACx!tt.ptr<a_TYPE>>, tensor<ARxACxi32>
    %bp2 = tt.addptr %bp, %bstep : tensor<BRxBCx!tt.ptr<b_TYPE>>, tensor<BRxBCxi32>
    scf.yield %d, %ap2, %bp2 : tensor<MMxNNxd_TYPE>, tensor<ARxACx!tt.ptr<a_TYPE>>, tensor<BRxBCx!tt.ptr<b_TYPE>>
  }
  %rows = tt.expand_dims %m {axis = 1 : i32} : tensor<MMxi32> -> tensor<MMx1xi32>
  %columns = tt.expand_dims %n {axis = 0 : i32} : tensor<NNxi32> -> tensor<1xNNxi32>
  %pitch = arith.constant dense<NN> : tensor<MMx1xi32>
  %row = arith.muli %rows, %pitch : tensor<MMx1xi32>
  %c0 = tt.broadcast %row : tensor<MMx1xi32> -> tensor<MMxNNxi32>
  %c1 = tt.broadcast %columns : tensor<1xNNxi32> -> tensor<MMxNNxi32>
  %coff = arith.addi %c0, %c1 : tensor<MMxNNxi32>
  %cs = tt.splat %c : !tt.ptr<d_TYPE> -> tensor<MMxNNx!tt.ptr<d_TYPE>>
  %pc = tt.addptr %cs, %coff : tensor<MMxNNx!tt.ptr<d_TYPE>>, tensor<MMxNNxi32>
  tt.store %pc, %result#0 : tensor<MMxNNx!tt.ptr<d_TYPE>>
  tt.return
})";

// Pointers to [R, C] of `base`, whose rows lie PITCH apart, and the step from block to block.
constexpr const char *kPointers = R"(
  %Xr = tt.expand_dims %ROWS {axis = 1 : i32} : tensor<RxNxi32> -> tensor<RxNx1xi32>
  %Xc = tt.expand_dims %COLUMNS {axis = 0 : i32} : tensor<CxNxi32> -> tensor<1xCxNxi32>
  %Xpitch = PITCH tensor<RxNx1xi32>
  %Xrow = arith.muli %Xr, %Xpitch : tensor<RxNx1xi32>
  %X0 = tt.broadcast %Xrow : tensor<RxNx1xi32> -> tensor<RxNxCxNxi32>
  %X1 = tt.broadcast %Xc : tensor<1xCxNxi32> -> tensor<RxNxCxNxi32>
  %Xoff = arith.addi %X0, %X1 : tensor<RxNxCxNxi32>
  %Xs = tt.splat %X : !tt.ptr<X_TYPE> -> tensor<RxNxCxNx!tt.ptr<X_TYPE>>
  %pX = tt.addptr %Xs, %Xoff : tensor<RxNxCxNx!tt.ptr<X_TYPE>>, tensor<RxNxCxNxi32>
  %Xstep = arith.constant dense<STEP> : tensor<RxNxCxNxi32>)";

std::string replaced(std::string text, const std::vector<std::pair<std::string, std::string>> &words) {
  for (const auto &[from, to] : words)
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  return text;
}

struct Shape {
  int m, n, k, warps;
  bool turnedA = false, turnedB = false;
  bool doubledA = false; // computed, and in registers then; of 8 bits, which add nothing, negated
  std::string a = "f16", b = "f16";
  int partK = 1 << 30; // of sums of 8-bit floats
  std::string precision = "tf32";
  bool once = false; // K = k, without a loop
  bool infinite = false; // some elements are
  int columns = 0;       // that count; 0: all

  bool integers() const { return a == "i8"; }
};

std::string matmul(const Shape &s) {
  auto text = [](int x) { return std::to_string(x); };
  // Rows that run along K are K elements long, others of the block's own length.
  auto pointers = [&](const char *name, bool alongK, const char *rows, const char *columns, int r, int c, int other) {
    return replaced(kPointers, {{"RxN", text(r)},
                                {"CxN", text(c)},
                                {"ROWS", rows},
                                {"COLUMNS", columns},
                                {"PITCH", alongK ? "tt.splat %K : i32 ->"
                                                 : "arith.constant dense<" + text(other) + "> :"},
                                {"STEP", text(alongK ? s.k : s.k * other)},
                                {"X", name}});
  };
  const int ar = s.turnedA ? s.k : s.m, ac = s.turnedA ? s.m : s.k, br = s.turnedB ? s.n : s.k,
            bc = s.turnedB ? s.k : s.n;
  const std::string loads = pointers("a", !s.turnedA, s.turnedA ? "k" : "m", s.turnedA ? "m" : "k", ar, ac, s.m) +
                            pointers("b", s.turnedB, s.turnedB ? "n" : "k", s.turnedB ? "k" : "n", br, bc, s.n);
  std::string turns;
  auto turn = [&](const char *from, const char *to, int r, int c, const std::string &type) {
    turns += replaced("    %TO = tt.trans %FROM {order = array<i32: 1, 0>} : tensor<RRxCCxTYPE> -> tensor<CCxRRxTYPE>\n",
                      {{"FROM", from}, {"TO", to}, {"RR", text(r)}, {"CC", text(c)}, {"TYPE", type}});
  };
  if (s.turnedA) turn("x", "left", ar, ac, s.a);
  if (s.turnedB) turn("y", "right", br, bc, s.b);
  const std::string left = s.turnedA ? "%left" : "%x";
  if (s.doubledA && s.a.starts_with("f8"))
    turns += "    %bits = tt.bitcast " + left + R"( : tensor<MMxKKxa_TYPE> -> tensor<MMxKKxi8>
    %sign = arith.constant dense<-128> : tensor<MMxKKxi8>
    %negative = arith.xori %bits, %sign : tensor<MMxKKxi8>
    %double = tt.bitcast %negative : tensor<MMxKKxi8> -> tensor<MMxKKxa_TYPE>
)";
  else if (s.doubledA)
    turns += std::string("    %double = arith.") + (s.integers() ? "addi " : "addf ") + left + ", " + left + " : tensor<MMxKKxa_TYPE>\n";
  std::string code = kMatmul;
  if (s.once) {
    auto cut = [&](const char *from, const char *to) {
      const size_t begin = code.find(from);
      code.erase(begin, code.find(to, begin) + std::string(to).size() - begin);
    };
    cut("  %result:3 = ", ": i32 {\n");
    cut("    %ap2 = ", "  }\n");
    code = replaced(code, {{"%ap ", "%pa "}, {"%bp ", "%pb "}, {"%acc", "%init"}, {"%result#0", "%d"}});
  }
  std::string accuracy = s.a.starts_with("f8") ? "{maxNumImpreciseAcc = " + text(s.partK) + " : i32}" : "";
  if (s.columns) accuracy = "{tt.valid_n = " + text(s.columns) + " : i32}";
  if (s.a == "f32") accuracy = ", inputPrecision = " + s.precision;
  return replaced(code, {{"LOADS", loads},
                            {"TURNS", turns},
                            {"dot %left", "dot " + (s.doubledA ? "%double" : left)},
                            {"%right", s.turnedB ? "%right" : "%y"},
                            {"ARxAC", text(ar) + "x" + text(ac)},
                            {"BRxBC", text(br) + "x" + text(bc)},
                            {"MM", text(s.m)},
                            {"NN", text(s.n)},
                            {"KK", text(s.k)},
                            {"ACCURACY", accuracy},
                            {"ZERO", s.integers() ? "0" : "0.0"},
                            {"a_TYPE", s.a},
                            {"b_TYPE", s.b},
                            {"d_TYPE", s.integers() ? "i32" : "f32"}});
}

/// Elements of a type that all of them have, doubled as well. An f32 has more digits than a tf32, which are cut off.
std::vector<uint8_t> elements(const std::string &type, size_t n, unsigned seed) {
  static const double values[] = {0, 1, -1, 2, -2, 0.25, 0.5, 3};
  static const double integers[] = {0, 1, -1, 2, -2, 40, -63, 3};
  const llvm::fltSemantics &format = type == "f16"        ? llvm::APFloat::IEEEhalf()
                                     : type == "f8E4M3FN" ? llvm::APFloat::Float8E4M3FN()
                                     : type == "f8E5M2"   ? llvm::APFloat::Float8E5M2()
                                                          : llvm::APFloat::IEEEsingle();
  std::vector<uint8_t> out;
  for (size_t i = 0; i < n; ++i) {
    const size_t which = (seed = seed * 1664525 + 1013904223) >> 29;
    if (type == "i8") {
      out.push_back(uint8_t(int8_t(integers[which])));
      continue;
    }
    llvm::APFloat value(values[which]);
    bool lost;
    value.convert(format, llvm::APFloat::rmNearestTiesToEven, &lost);
    const uint64_t bits = value.bitcastToAPInt().getZExtValue() | (type == "f32" && !value.isZero() ? 0x1abc : 0);
    for (unsigned byte = 0; byte < llvm::APFloat::getSizeInBits(format) / 8; ++byte) out.push_back(uint8_t(bits >> 8 * byte));
  }
  return out;
}

struct Operands {
  std::vector<uint8_t> a, b;
};
Operands operands(const Shape &s, int K) {
  Operands o{elements(s.a, size_t(s.m * K), 1), elements(s.b, size_t(s.n * K), 2)};
  auto put = [](std::vector<uint8_t> &where, size_t number, float x) { std::memcpy(&where[4 * number], &x, 4); };
  const float infinity = std::numeric_limits<float>::infinity();
  if (s.infinite) {
    // Beside operands whose low parts are 0, of either sign, 0, and another infinite one.
    put(o.a, 5, infinity), put(o.a, size_t(9 * K + 1), -infinity), put(o.a, size_t(9 * K + 2), -infinity), put(o.b, size_t(6 * K + 1), infinity);
    for (int n = 0; n < s.n; n += 3) put(o.b, size_t(n * K + 5), n % 2 ? -1.0f : 2.0f);
    put(o.b, size_t(4 * K + 5), 0);
  }
  return o;
}

/// Sums as floats, of whatever type they are.
void readSums(const Shape &s, std::vector<float> &sums) {
  if (s.integers())
    for (float &sum : sums) sum = float(std::bit_cast<int32_t>(sum));
}

class Wgmma : public ::testing::Test {
protected:
  tt::FuncOp parse(const std::string &text) {
    Result<mlir::OwningOpRef<mlir::ModuleOp>> parsed = parseTile(text, "test.ttir", context_.get());
    EXPECT_TRUE(bool(parsed)) << parsed.error().str() << text;
    module_ = std::move(*parsed);
    Status prepared = runTilePipeline(*module_);
    EXPECT_TRUE(bool(prepared));
    return *module_->getOps<tt::FuncOp>().begin();
  }

  /// The placed function, whose product is one of wgmma.
  tt::FuncOp place(const Shape &s, int stages) {
    tt::FuncOp function = parse(matmul(s));
    EXPECT_EQ(pipelineLoops(function, chip_, s.warps, stages), 1);
    Status placed = placeTensors(function, chip_, s.warps);
    EXPECT_TRUE(bool(placed)) << placed.error().str();
    shared_ = allocateShared(function, chip_).bytes;
    int groups = 0;
    function.walk([&](tt::DotOp dot) { groups += dot->getAttrOfType<placed::WgmmaAttr>(placed::kProductAttr) != nullptr; });
    EXPECT_EQ(groups, 1);
    return function;
  }

  void verify(tt::FuncOp function) {
    Status verified = verifyPlaced(function, chip_);
    ASSERT_TRUE(bool(verified)) << verified.error().str();
    verified = verifyShared(function, chip_);
    ASSERT_TRUE(bool(verified)) << verified.error().str();
  }

  /// What a block computes; how it failed. less: is given the code before it runs.
  std::string simulate(tt::FuncOp function, const Shape &s, int K, std::vector<float> &got,
                       llvm::function_ref<void(llvm::Function &)> less = [](llvm::Function &) {}) {
    auto [a, b] = operands(s, K);
    llvm::LLVMContext context;
    llvm::Module module("test", context);
    Emitter emitter(module, chip_);
    Status emitted = emitter.emitKernel(function, "entry", 0);
    EXPECT_TRUE(bool(emitted)) << emitted.error().str();
    less(*module.getFunction("entry"));
    const std::string error = test::simulateEntry(*module.getFunction("entry"), s.warps * 32, shared_,
                                                  {uint64_t(a.data()), uint64_t(b.data()), uint64_t(got.data()), uint64_t(K)})
                                  .error;
    readSums(s, got);
    return error;
  }

  std::vector<float> expected(const Shape &s, int K) {
    auto [a, b] = operands(s, K);
    std::vector<float> c(size_t(s.m * s.n));
    std::vector<InterpArg> args{InterpArg::pointer(a.data(), int64_t(a.size())),
                                InterpArg::pointer(b.data(), int64_t(b.size())),
                                InterpArg::pointer(c.data(), int64_t(c.size() * 4)), InterpArg::integer(K)};
    InterpOptions options;
    options.honourTf32 = true;
    Status status = interpretTile(parse(matmul(s)), args, {1, 1, 1}, options);
    EXPECT_TRUE(bool(status)) << status.error().str();
    readSums(s, c);
    return c;
  }

  std::unique_ptr<mlir::MLIRContext> context_ = makeTileContext();
  mlir::OwningOpRef<mlir::ModuleOp> module_;
  const Chip &chip_ = *findChip("sm_90a");
  int64_t shared_ = 0;
};

// Every kind, in every way to lie that it has: of 8 bits K alone is side by side.
TEST_F(Wgmma, SameSumsAsTheInterpreter) {
  const char *e4m3 = "f8E4M3FN", *e5m2 = "f8E5M2";
  for (const Shape &s : {Shape{64, 64, 64, 4}, Shape{64, 64, 64, 4, false, true}, Shape{64, 32, 32, 4},
                         Shape{64, 64, 64, 4, true, false}, Shape{64, 64, 32, 4, true, true}, Shape{128, 64, 16, 4},
                         Shape{128, 32, 64, 8}, Shape{64, 128, 64, 8}, Shape{64, 128, 128, 8, false, true},
                         Shape{256, 32, 32, 8, true, false}, Shape{64, 8, 64, 4, false, true},
                         Shape{64, 64, 64, 4, false, false, true}, Shape{128, 32, 64, 8, false, true, true},
                         Shape{128, 64, 32, 4, false, false, true},
                         Shape{64, 64, 128, 4, false, true, false, e4m3, e4m3},
                         Shape{64, 128, 64, 8, false, true, false, e4m3, e5m2},
                         Shape{128, 32, 32, 4, false, true, false, e5m2, e4m3},
                         Shape{128, 64, 256, 8, false, true, false, e5m2, e5m2},
                         Shape{64, 64, 128, 4, false, true, true, e4m3, e4m3},
                         Shape{128, 32, 64, 8, false, true, true, e5m2, e4m3},
                         Shape{64, 64, 128, 4, false, true, false, e4m3, e4m3, 48},
                         Shape{64, 32, 128, 4, false, true, true, e4m3, e5m2, 0},
                         Shape{64, 64, 32, 4, false, true, false, "f32", "f32"},
                         Shape{128, 64, 64, 8, false, true, false, "f32", "f32"},
                         Shape{64, 128, 16, 8, false, true, false, "f32", "f32"},
                         Shape{128, 32, 32, 8, false, true, true, "f32", "f32"},
                         Shape{128, 32, 8, 4, false, true, true, "f32", "f32"},
                         Shape{64, 64, 128, 4, false, true, false, "i8", "i8"},
                         Shape{128, 32, 64, 8, false, true, true, "i8", "i8"}}) {
    const int K = 5 * s.k;
    const std::vector<float> wanted = expected(s, K);
    // With few slots products are waited for, with more they stay under way.
    for (int stages : {2, 4}) {
      SCOPED_TRACE(std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k) + ", " +
                   std::to_string(s.warps) + " warps, stages " + std::to_string(stages) + ", " + s.a + ", " + s.b);
      std::vector<float> got(wanted.size());
      tt::FuncOp function = place(s, stages);
      verify(function);
      EXPECT_EQ(simulate(function, s, K, got), "");
      EXPECT_EQ(wanted, got);
    }
  }
}

// An f32 as two tf32. What both low parts would add is left out: 2^-20 of a product at most, for a low part is less than 2^-10 of its element. What is cut
// off low parts is 2^-22 or less, of either sign. A product of tf32 alone would be off by up to 2^-9.
TEST_F(Wgmma, SplitProducts) {
  for (Shape s : {Shape{64, 64, 32, 4, false, true}, Shape{128, 64, 32, 8, false, true}, Shape{128, 32, 32, 4, false, true, true},
                  Shape{64, 64, 16, 4, true, true}, Shape{128, 16, 8, 4, false, true}, Shape{256, 32, 16, 8, false, true}, Shape{64, 32, 64, 4, false, true},
                  Shape{128, 16, 128, 8, false, true, true}})
    for (const int form : {0, 1, 2}) {
      const bool once = form == 1;
      s.a = s.b = "f32", s.precision = "tf32x3", s.once = once, s.infinite = form == 2 && !s.turnedA;
      SCOPED_TRACE(matmul(s));
      const int K = once ? s.k : 5 * s.k;
      const std::vector<float> wanted = expected(s, K);
      for (int stages : {2, 4}) {
        std::vector<float> got(wanted.size());
        tt::FuncOp function = place(s, stages);
        verify(function);
        EXPECT_EQ(simulate(function, s, K, got), "");
        // Elements are at most 3, 6 where A is doubled.
        const double most = (s.doubledA ? 18.0 : 9.0) * K * std::ldexp(1.0, -20);
        for (size_t i = 0; i < wanted.size(); ++i)
          if (std::isfinite(wanted[i]))
            ASSERT_NEAR(wanted[i], got[i], most) << i;
          else
            ASSERT_TRUE(std::isnan(wanted[i]) ? std::isnan(got[i]) : wanted[i] == got[i]) << i << ": " << wanted[i] << ", " << got[i];
        EXPECT_EQ(s.infinite, llvm::any_of(wanted, [](float x) { return std::isinf(x); }));
      }
    }
}

// Of a wider tile the first columns: the others' sums are nobody's.
TEST_F(Wgmma, ColumnsThatCount) {
  struct Valid {
    Shape shape;
    int columns;
  };
  for (auto [s, columns] : {Valid{{128, 256, 64, 8, false, true}, 192}, Valid{{128, 128, 64, 8, false, true}, 96}, Valid{{128, 128, 64, 4}, 96}, Valid{{64, 64, 32, 4}, 37},
                            Valid{{256, 64, 64, 4, true, false}, 40}, Valid{{128, 64, 32, 4, false, true, true}, 48},
                            // Groups beside one another have their own halves: all is computed.
                            Valid{{64, 128, 64, 8, false, true}, 96}})
    for (const bool once : {false, true})
      for (const int stages : {3, 4}) {
        s.columns = columns, s.once = once;
        SCOPED_TRACE(matmul(s));
        const int K = once ? s.k : 5 * s.k;
        const std::vector<float> wanted = expected(s, K);
        std::vector<float> got(wanted.size());
        tt::FuncOp function = place(s, stages);
        verify(function);
        EXPECT_EQ(simulate(function, s, K, got), "");
        for (int row = 0; row < s.m; ++row)
          for (int column = 0; column < columns; ++column) ASSERT_EQ(wanted[size_t(row * s.n + column)], got[size_t(row * s.n + column)]) << row << ", " << column;
      }
}

// Without a loop: copies bring both operands, or the right one alone where the left is computed, and the product is waited for.
TEST_F(Wgmma, OneStepOfK) {
  for (Shape s : {Shape{64, 64, 64, 4}, Shape{128, 64, 64, 4, false, true}, Shape{128, 256, 64, 8}, Shape{64, 64, 16, 4, true, false},
                  Shape{64, 32, 32, 4, true, true}, Shape{128, 64, 32, 8, false, false, true}, Shape{64, 64, 32, 4, false, true, false, "f32", "f32"},
                  Shape{64, 64, 128, 4, false, true, false, "f8E4M3FN", "f8E5M2", 48}, Shape{128, 32, 64, 8, false, true, true, "i8", "i8"}}) {
    s.once = true;
    SCOPED_TRACE(matmul(s));
    const std::vector<float> wanted = expected(s, s.k);
    std::vector<float> got(wanted.size());
    tt::FuncOp function = place(s, 3);
    int copies = 0;
    function.walk([&](ttg::AsyncCopyOp) { ++copies; });
    EXPECT_EQ(copies, s.doubledA ? 1 : 2);
    verify(function);
    EXPECT_EQ(simulate(function, s, s.k, got), "");
    EXPECT_EQ(wanted, got);
  }
}

// Whichever way the rows of a block are shared: one instruction after the other for more than 64 rows a group, whose sums begin as zeros.
TEST_F(Wgmma, OneStepIsNotSerialised) {
  if (!findAssembler()) GTEST_SKIP() << "no ptxas is found: it is its judgement";
  for (Shape s : {Shape{128, 64, 64, 4, false, true}, Shape{256, 64, 64, 8, false, true}, Shape{128, 128, 64, 4}, Shape{128, 256, 64, 8},
                  Shape{128, 64, 64, 4, false, false, true}, Shape{128, 64, 32, 4, false, true, false, "f32", "f32"}}) {
    s.once = true;
    // Or as one value, as a bias is that rows share.
    for (const char *init : {"%init = arith.constant dense<0.0>", "%one = tt.load %c : !tt.ptr<f32>\n  %init = tt.splat %one : f32 ->"}) {
      const std::string text = replaced(matmul(s), {{"%init = arith.constant dense<0.0> :", std::string(init) + (init[1] == 'i' ? " :" : "")}});
      SCOPED_TRACE(text);
      CompileOptions options;
      options.assemble = true;
      options.boxes = BoxForms::None;
      Result<CompiledModule> code = compileForNvidia({{parse(text), "matmul", s.warps, 3}}, chip_, options);
      ASSERT_TRUE(bool(code)) << code.error().str();
      EXPECT_EQ(code->serialised, "");
      EXPECT_EQ(code->usage[0].spillBytes, 0);
      EXPECT_EQ(code->usage[0].products, "wgmma");
    }
  }
}

TEST_F(Wgmma, OneStepWaitsForItsCopiesAndItsReaders) {
  Shape s{64, 64, 64, 4};
  s.once = true;
  int waits = 0;
  place(s, 3).walk([&](ttg::AsyncWaitOp) { ++waits; });
  // One for both copies, one behind the product.
  ASSERT_EQ(waits, 2);
  for (int left = 0; left < waits; ++left) {
    tt::FuncOp function = place(s, 3);
    llvm::SmallVector<ttg::AsyncWaitOp> all;
    function.walk([&](ttg::AsyncWaitOp wait) { all.push_back(wait); });
    all[size_t(left)].erase();
    Status verified = verifyPlaced(function, chip_);
    ASSERT_FALSE(bool(verified));
    EXPECT_NE(verified.error().str().find("N12"), std::string::npos) << verified.error().str();
  }
}

// A store between a load and the first use of its tile may change what a later copy would bring: the right operand's is stored, and has
// come before.
TEST_F(Wgmma, NoCopyIsLaterThanAStore) {
  Shape s{64, 64, 64, 4};
  s.once = true;
  const std::string text = replaced(matmul(s), {{"    %d = ", "    tt.store %pb, %y : tensor<64x64x!tt.ptr<f16>>\n    %d = "}});
  tt::FuncOp function = parse(text);
  EXPECT_EQ(pipelineLoops(function, chip_, s.warps, 3), 1);
  int copies = 0;
  function.walk([&](ttg::AsyncCopyOp) { ++copies; });
  EXPECT_EQ(copies, 1);
}

TEST_F(Wgmma, OpenOnlyWhereNothingOverwritesWhatItReads) {
  const Shape s{64, 64, 64, 4};
  auto refused = [&](auto change) {
    tt::FuncOp function = place(s, 4);
    EXPECT_TRUE(bool(verifyPlaced(function, chip_)));
    change(function);
    Status status = verifyPlaced(function, chip_);
    return status ? std::string() : status.error().str();
  };
  EXPECT_NE(refused([](tt::FuncOp f) { f.walk([](placed::WaitProductsOp wait) { wait.erase(); }); }).find("N12"),
            std::string::npos);
  EXPECT_NE(refused([](tt::FuncOp f) { f.walk([](placed::WaitProductsOp wait) { wait.setPending(2); }); }).find("N12"),
            std::string::npos);
  EXPECT_NE(refused([](tt::FuncOp f) {
              f.walk([](mlir::scf::ForOp loop) { loop->removeAttr(placed::kOpenValuesAttr); });
            }).find("N11"),
            std::string::npos);
  EXPECT_NE(refused([](tt::FuncOp f) {
              f.walk([](tt::DotOp dot) { dot->removeAttr(placed::kOpenAttr); });
            }).find("N11"),
            std::string::npos);
}

// Both the verifier and the simulator, which know nothing of one another.
TEST_F(Wgmma, AFenceLess) {
  const Shape s{64, 64, 64, 4};
  tt::FuncOp function = place(s, 4);
  function.walk([](placed::FenceAsyncOp fence) { fence.erase(); });
  EXPECT_FALSE(bool(verifyPlaced(function, chip_)));
  std::vector<float> got(64 * 64);
  EXPECT_NE(simulate(function, s, 192, got).find("behind no fence"), std::string::npos);
}

TEST_F(Wgmma, NothingOfItsOrderCanBeLeftOut) {
  for (const Shape &s : {Shape{64, 64, 64, 4}, Shape{128, 64, 32, 8, false, true}}) {
    const int K = 5 * s.k;
    const std::vector<float> wanted = expected(s, K);
    size_t count = 1;
    for (size_t left = 0; left < count; ++left) {
      std::vector<float> got(wanted.size());
      std::string name;
      const std::string error = simulate(place(s, 4), s, K, got, [&](llvm::Function &entry) {
        std::vector<llvm::CallInst *> order = test::orderOfLoop(entry);
        count = order.size();
        llvm::raw_string_ostream(name) << *order[left];
        test::leaveOut(order[left]);
      });
      EXPECT_NE(error, "") << name << (wanted == got ? ", with the right sums" : "");
    }
    // Copies: wait, barrier, commit; products: both fences, commit, wait; behind the loop: wait.
    EXPECT_EQ(count, 8u);
  }
}

TEST_F(Wgmma, OpenWhereTheRingHasRoom) {
  const auto isOpen = [&](const Shape &s, int stages) {
    bool open = false;
    place(s, stages).walk([&](tt::DotOp dot) { open |= dot->hasAttr(placed::kOpenAttr); });
    return open;
  };
  // One block a multiprocessor, by its sums or by its ring; two blocks with three slots each; with four.
  EXPECT_TRUE(isOpen({128, 256, 64, 8}, 3));
  EXPECT_TRUE(isOpen({64, 256, 64, 4}, 3));
  EXPECT_FALSE(isOpen({128, 128, 64, 8}, 3));
  EXPECT_TRUE(isOpen({128, 128, 32, 8}, 3));
  EXPECT_FALSE(isOpen({64, 64, 64, 4}, 2));
}

TEST_F(Wgmma, OthersTakeMmaSync) {
  // One group has 64 rows at least; a thread takes no more than 128 sums.
  for (const Shape &s : {Shape{32, 64, 64, 4}, Shape{64, 64, 64, 2}, Shape{128, 256, 32, 4}}) {
    tt::FuncOp function = parse(matmul(s));
    pipelineLoops(function, chip_, s.warps, 3);
    ASSERT_TRUE(bool(placeTensors(function, chip_, s.warps)));
    function.walk([&](tt::DotOp dot) { EXPECT_TRUE(dot->getAttrOfType<placed::MmaSyncAttr>(placed::kProductAttr)); });
  }
}

TEST_F(Wgmma, ThePackageHoldsBothForms) {
  for (const Shape &s : {Shape{128, 128, 64, 4}, Shape{128, 256, 64, 8}, Shape{128, 128, 64, 8, false, true},
                         Shape{128, 256, 128, 8, false, true, false, "f8E4M3FN", "f8E4M3FN"},
                         Shape{128, 128, 128, 8, false, true, false, "f8E5M2", "f8E4M3FN"},
                         Shape{128, 128, 128, 8, false, true, false, "f8E4M3FN", "f8E4M3FN", 64},
                         Shape{64, 64, 128, 4, false, true, true, "f8E4M3FN", "f8E5M2"},
                         Shape{128, 128, 128, 8, false, true, false, "i8", "i8"},
                         Shape{128, 128, 32, 8, false, true, false, "f32", "f32"},
                         Shape{128, 256, 32, 8, false, true, false, "f32", "f32"},
                         Shape{128, 64, 64, 8, false, true, true, "f32", "f32"},
                         Shape{128, 64, 64, 8, false, true, false, "f32", "f32", 0, "tf32x3"},
                         Shape{64, 64, 32, 4, false, true, false, "f32", "f32", 0, "tf32x3"},
                         Shape{128, 32, 32, 4, false, true, true, "f32", "f32", 0, "tf32x3"}}) {
    SCOPED_TRACE(matmul(s));
    std::vector<TileFunction> functions{{parse(matmul(s)), "matmul", s.warps, 3}};
    CompileOptions options;
    options.keepPtx = true;
    options.assemble = findAssembler().has_value();
    Result<CompiledModule> code = compileForNvidia(functions, chip_, options);
    ASSERT_TRUE(bool(code)) << code.error().str();
    EXPECT_EQ(code->code.back().target, "compute_90");
    EXPECT_EQ(code->code.back().asmText.find("wgmma"), std::string::npos);
    EXPECT_NE(code->code.back().asmText.find(".target sm_90\n"), std::string::npos);
    EXPECT_NE(code->ownPtxText.find("wgmma.mma_async"), std::string::npos);
    if (!options.assemble) continue;
    EXPECT_EQ(code->code.front().target, "sm_90a");
    EXPECT_EQ(code->serialised, "");
    EXPECT_EQ(code->usage[0].spillBytes, 0);
    EXPECT_EQ(code->usage[0].products, s.n == 256 ? "wgmma, under way over turns" : "wgmma");
  }
}

// The tensor cores' sums of 8-bit floats are added up in f32 after as many elements of K as the product allows.
TEST_F(Wgmma, SumsOf8BitFloatsInParts) {
  for (auto [partK, parts] : {std::pair(1 << 30, 1), {129, 1}, {128, 1}, {64, 2}, {33, 2}, {32, 4}, {0, 4}}) {
    std::vector<TileFunction> functions{{parse(matmul({64, 64, 128, 4, false, true, false, "f8E4M3FN", "f8E4M3FN", partK})), "matmul", 4, 3}};
    CompileOptions options;
    options.keepPtx = true;
    options.assemble = false;
    options.boxes = BoxForms::None;
    Result<CompiledModule> code = compileForNvidia(functions, chip_, options);
    ASSERT_TRUE(bool(code)) << code.error().str();
    int commits = 0, sums = 0;
    for (size_t at = 0; (at = code->ownPtxText.find("wgmma.commit_group", at)) != std::string::npos; ++at) ++commits;
    for (size_t at = 0; (at = code->ownPtxText.find("add.rn.f32", at)) != std::string::npos; ++at) ++sums;
    EXPECT_EQ(commits, parts) << partK;
    EXPECT_EQ(sums, partK > 128 ? 0 : parts * 32) << partK;
  }
}

TEST_F(Wgmma, PartsAreNotUnderWay) {
  tt::FuncOp function = place({64, 64, 128, 4, false, true, false, "f8E4M3FN", "f8E4M3FN"}, 4);
  ASSERT_TRUE(bool(verifyPlaced(function, chip_)));
  function.walk([](tt::DotOp dot) { dot.setMaxNumImpreciseAcc(64); });
  Status status = verifyPlaced(function, chip_);
  EXPECT_NE((status ? std::string() : status.error().str()).find("N11"), std::string::npos);
}

TEST_F(Wgmma, SaysWhyThereIsNone) {
  if (!findAssembler()) GTEST_SKIP() << "no ptxas is found: nothing is said of kernels";
  for (auto [s, why] : {std::pair(Shape{32, 64, 64, 4}, "fewer than 64 rows"), {Shape{64, 64, 64, 2}, "fewer than four warps"},
                        {Shape{128, 256, 32, 4}, "more than 128 sums a thread"},
                        {Shape{64, 64, 64, 4, false, false, false, "f8E4M3FN", "f8E4M3FN"},
                         "elements of these types that do not follow one another along K"},
                        {Shape{64, 64, 32, 4, true, true, false, "f32", "f32"},
                         "elements of these types that do not follow one another along K"},
                        {Shape{64, 64, 32, 4, false, true, false, "f32", "f32", 0, "ieee"},
                         "products of f32 that are more exact than three of tf32"},
                        {Shape{128, 128, 32, 8, false, true, false, "f32", "f32", 0, "tf32x3"},
                         "more than 32 sums a thread, of which there are three sets"},
                        {Shape{64, 128, 32, 8, false, true, false, "f32", "f32", 0, "tf32x3"},
                         "the left operand is in registers, and groups of warps would share its rows"},
                        {Shape{64, 8, 8, 4, false, true, false, "f32", "f32", 0, "tf32x3"},
                         "fewer elements of the right operand than threads"},
                        {Shape{64, 64, 64, 4, false, false, false, "i8", "i8"},
                         "elements of these types that do not follow one another along K"},
                        {Shape{128, 256, 64, 8, false, true, false, "f8E5M2", "f8E4M3FN", 32},
                         "more than 64 sums a thread, which are summed in parts"}}) {
    std::vector<TileFunction> functions{{parse(matmul(s)), "matmul", s.warps, 3}};
    Result<CompiledModule> code = compileForNvidia(functions, chip_, {});
    ASSERT_TRUE(bool(code)) << code.error().str();
    EXPECT_EQ(code->usage[0].products, std::string(s.precision == "ieee" ? "fma" : "mma.sync") + " (no wgmma: " + why + ")");
    EXPECT_EQ(code->code.front().target, "sm_90");
  }
}

TEST_F(Wgmma, BothChipsShareThePtx) {
  std::vector<TileFunction> functions{{parse(matmul(Shape{128, 128, 64, 8})), "matmul", 8, 3}};
  CompileOptions options;
  options.assemble = false;
  std::vector<CompiledCode> all;
  std::vector<std::vector<uint8_t>> texts;
  for (const char *arch : {"sm_90", "sm_90a"}) {
    Result<CompiledModule> code = compileForNvidia(functions, *findChip(arch), options);
    ASSERT_TRUE(bool(code)) << code.error().str();
    texts.push_back(code->code.back().image);
    addCode(all, std::move(code->code));
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(all.size(), 1u);
}

} // namespace
} // namespace neso::nvidia
