// One product of tiles, from its text to what a simulated block and the interpreter make of it.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <map>

#include "backend/nvidia/compile.h"
#include "backend/nvidia/emitter.h"
#include "backend/nvidia/passes/allocate.h"
#include "backend/nvidia/passes/pipeline.h"
#include "backend/nvidia/passes/place.h"
#include "backend/nvidia/passes/verify.h"
#include "backend/nvidia/test/simulator.h"
#include "backend/nvidia/test/tile_fixture.h"
#include "ir/tile/interp.h"

namespace neso::nvidia::test {

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

inline std::string replaced(std::string text, const std::vector<std::pair<std::string, std::string>> &words) {
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

inline std::string matmul(const Shape &s) {
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
inline std::vector<uint8_t> elements(const std::string &type, size_t n, unsigned seed) {
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
inline Operands operands(const Shape &s, int K) {
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
inline void readSums(const Shape &s, std::vector<float> &sums) {
  if (s.integers())
    for (float &sum : sums) sum = float(std::bit_cast<int32_t>(sum));
}

/// A function of one product by groups of warps, on a chip that has them.
class Products : public TileTest {
protected:
  explicit Products(std::string_view chip = "sm_90a") : chip_(*findChip(chip)) {}
  /// The placed function, whose product is one by groups.
  tt::FuncOp place(const Shape &s, int stages) {
    tt::FuncOp function = parse(matmul(s));
    EXPECT_EQ(pipelineLoops(function, chip_, s.warps, stages), 1);
    Status placed = placeTensors(function, chip_, s.warps);
    EXPECT_TRUE(bool(placed)) << placed.error().str();
    shared_ = allocateShared(function, chip_).bytes;
    int groups = 0;
    function.walk([&](tt::DotOp dot) { groups += traitsOf(dot.getOperation())->byGroups; });
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
    const std::string error = simulateEntry(*module.getFunction("entry"), s.warps * 32, shared_,
                                                  {uint64_t(a.data()), uint64_t(b.data()), uint64_t(got.data()), uint64_t(K)})
                                  .error;
    readSums(s, got);
    return error;
  }

  /// The package holds the chip's own code, which has the instruction, and behind it what later chips get, which has not. Nothing: it is not to be had.
  std::optional<CompiledModule> expectBothForms(const Shape &s, const std::string &instruction) {
    std::vector<TileFunction> functions{{parse(matmul(s)), "matmul", s.warps, 3}};
    CompileOptions options;
    options.keepPtx = true;
    options.assemble = findAssembler().has_value();
    Result<CompiledModule> code = compileForNvidia(functions, chip_, options);
    EXPECT_TRUE(bool(code)) << code.error().str();
    if (!code) return std::nullopt;
    const std::string later(portable(chip_).arch), &text = code->code.back().asmText;
    EXPECT_EQ(code->code.back().target, "compute_" + std::to_string(chip_.capability));
    EXPECT_EQ(text.find(instruction), std::string::npos);
    EXPECT_NE(text.find(".target " + later + "\n"), std::string::npos);
    EXPECT_NE(code->ownPtxText.find(instruction), std::string::npos);
    if (!options.assemble) return std::nullopt;
    EXPECT_EQ(code->code.front().target, chip_.arch);
    EXPECT_EQ(code->usage[0].spillBytes, 0);
    return std::move(*code);
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

  const Chip &chip_;
  int64_t shared_ = 0;
};

} // namespace neso::nvidia::test
