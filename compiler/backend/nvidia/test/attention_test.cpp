// Attention whose products run ahead of one another, on the simulated block, in the interpreter and by the assembler.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "backend/nvidia/compile.h"
#include "backend/nvidia/emitter.h"
#include "backend/nvidia/passes/allocate.h"
#include "backend/nvidia/passes/masks.h"
#include "backend/nvidia/passes/pipeline.h"
#include "backend/nvidia/passes/place.h"
#include "backend/nvidia/passes/producer.h"
#include "backend/nvidia/passes/verify.h"
#include "backend/nvidia/test/order.h"
#include "backend/nvidia/test/simulator.h"
#include "backend/nvidia/test/tile_fixture.h"
#include "ir/tile/interp.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"

namespace neso::nvidia {
namespace {

// softmax(Q K^T scale) V of [heads, length, DD] with the online softmax, as the front end gives it; blocks of MM rows and
// NN keys.
constexpr const char *kAttention = R"(
tt.func public @attention(%q_ptr: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %k_ptr: !tt.ptr<f16> {tt.divisibility = 16 : i32},
                          %v_ptr: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %out_ptr: !tt.ptr<f16> {tt.divisibility = 16 : i32},
                          %head_stride: i32 {tt.divisibility = 16 : i32}, %length: i32 HINT, %scale: f32) attributes {noinline = false} {
  %cst = arith.constant dense<0.000000e+00> : tensor<NNxDDxf16>
  %cst_0 = arith.constant dense<0.000000e+00> : tensor<DDxNNxf16>
  %cst_1 = arith.constant dense<0.000000e+00> : tensor<MMxDDxf16>
  %cst_2 = arith.constant dense<DD> : tensor<NNx1xi32>
  %cst_3 = arith.constant dense<0xFF800000> : tensor<MMxNNxf32>
  %cst_4 = arith.constant 1.44269502 : f32
  %cst_5 = arith.constant dense<0.000000e+00> : tensor<MMxNNxf32>
  %cst_6 = arith.constant dense<DD> : tensor<1xNNxi32>
  %cN = arith.constant NN : i32
  %c0_i32 = arith.constant 0 : i32
  %cst_7 = arith.constant dense<0.000000e+00> : tensor<MMxf32>
  %cst_8 = arith.constant dense<0xFF800000> : tensor<MMxf32>
  %cst_9 = arith.constant dense<0.000000e+00> : tensor<MMxDDxf32>
  %cst_10 = arith.constant dense<DD> : tensor<MMx1xi32>
  %cM = arith.constant MM : i32
  %0 = tt.get_program_id x : i32
  %1 = arith.muli %0, %cM : i32
  %2 = tt.get_program_id y : i32
  %3 = arith.extsi %2 : i32 to i64
  %4 = arith.extsi %head_stride : i32 to i64
  %5 = arith.muli %3, %4 : i64
  %6 = tt.make_range {end = MM : i32, start = 0 : i32} : tensor<MMxi32>
  %7 = tt.splat %1 : i32 -> tensor<MMxi32>
  %8 = arith.addi %7, %6 : tensor<MMxi32>
  %9 = tt.make_range {end = NN : i32, start = 0 : i32} : tensor<NNxi32>
  %10 = tt.make_range {end = DD : i32, start = 0 : i32} : tensor<DDxi32>
  %11 = tt.addptr %q_ptr, %5 : !tt.ptr<f16>, i64
  %12 = tt.expand_dims %8 {axis = 1 : i32} : tensor<MMxi32> -> tensor<MMx1xi32>
  %13 = arith.muli %12, %cst_10 : tensor<MMx1xi32>
  %14 = tt.splat %11 : !tt.ptr<f16> -> tensor<MMx1x!tt.ptr<f16>>
  %15 = tt.addptr %14, %13 : tensor<MMx1x!tt.ptr<f16>>, tensor<MMx1xi32>
  %16 = tt.expand_dims %10 {axis = 0 : i32} : tensor<DDxi32> -> tensor<1xDDxi32>
  %17 = tt.broadcast %15 : tensor<MMx1x!tt.ptr<f16>> -> tensor<MMxDDx!tt.ptr<f16>>
  %18 = tt.broadcast %16 : tensor<1xDDxi32> -> tensor<MMxDDxi32>
  %19 = tt.addptr %17, %18 : tensor<MMxDDx!tt.ptr<f16>>, tensor<MMxDDxi32>
  %20 = tt.splat %length : i32 -> tensor<MMx1xi32>
  %21 = arith.cmpi slt, %12, %20 : tensor<MMx1xi32>
  %22 = tt.broadcast %21 : tensor<MMx1xi1> -> tensor<MMxDDxi1>
  %23 = tt.load %19, %22, %cst_1 : tensor<MMxDDx!tt.ptr<f16>>
  %24 = arith.addi %1, %cM : i32
  %25 = arith.minsi LAST, %length : i32
  %26:3 = scf.for %arg7 = %c0_i32 to %25 step %cN iter_args(%arg8 = %cst_8, %arg9 = %cst_7, %arg10 = %cst_9) -> (tensor<MMxf32>, tensor<MMxf32>, tensor<MMxDDxf32>)  : i32 {
    %36 = tt.splat %arg7 : i32 -> tensor<NNxi32>
    %37 = arith.addi %36, %9 : tensor<NNxi32>
    %38 = tt.addptr %k_ptr, %5 : !tt.ptr<f16>, i64
    %39 = tt.expand_dims %37 {axis = 0 : i32} : tensor<NNxi32> -> tensor<1xNNxi32>
    %40 = arith.muli %39, %cst_6 : tensor<1xNNxi32>
    %41 = tt.splat %38 : !tt.ptr<f16> -> tensor<1xNNx!tt.ptr<f16>>
    %42 = tt.addptr %41, %40 : tensor<1xNNx!tt.ptr<f16>>, tensor<1xNNxi32>
    %43 = tt.expand_dims %10 {axis = 1 : i32} : tensor<DDxi32> -> tensor<DDx1xi32>
    %44 = tt.broadcast %42 : tensor<1xNNx!tt.ptr<f16>> -> tensor<DDxNNx!tt.ptr<f16>>
    %45 = tt.broadcast %43 : tensor<DDx1xi32> -> tensor<DDxNNxi32>
    %46 = tt.addptr %44, %45 : tensor<DDxNNx!tt.ptr<f16>>, tensor<DDxNNxi32>
    %47 = tt.splat %length : i32 -> tensor<1xNNxi32>
    %48 = arith.cmpi slt, %39, %47 : tensor<1xNNxi32>
    %49 = tt.broadcast %48 : tensor<1xNNxi1> -> tensor<DDxNNxi1>
    %50 = tt.load %46, %49, %cst_0 : tensor<DDxNNx!tt.ptr<f16>>
    %51 = tt.dot %23, %50, %cst_5, inputPrecision = tf32 : tensor<MMxDDxf16> * tensor<DDxNNxf16> -> tensor<MMxNNxf32>
    %52 = arith.mulf %scale, %cst_4 : f32
    %53 = tt.splat %52 : f32 -> tensor<MMxNNxf32>
    %54 = arith.mulf %51, %53 : tensor<MMxNNxf32>
    %55 = tt.broadcast %39 : tensor<1xNNxi32> -> tensor<MMxNNxi32>
    %56 = tt.broadcast %12 : tensor<MMx1xi32> -> tensor<MMxNNxi32>
    %57 = arith.cmpi sle, %55, %56 : tensor<MMxNNxi32>
    %58 = tt.broadcast %48 : tensor<1xNNxi1> -> tensor<MMxNNxi1>
    %59 = arith.andi %58, DIAGONAL : tensor<MMxNNxi1>
    %60 = arith.select %59, %54, %cst_3 : tensor<MMxNNxi1>, tensor<MMxNNxf32>
    %61 = "tt.reduce"(%60) <{axis = 1 : i32}> ({
    ^bb0(%arg11: f32, %arg12: f32):
      %89 = arith.maxnumf %arg11, %arg12 : f32
      tt.reduce.return %89 : f32
    }) : (tensor<MMxNNxf32>) -> tensor<MMxf32>
    %62 = arith.maxnumf %arg8, %61 : tensor<MMxf32>
    %63 = tt.expand_dims %62 {axis = 1 : i32} : tensor<MMxf32> -> tensor<MMx1xf32>
    %64 = tt.broadcast %63 : tensor<MMx1xf32> -> tensor<MMxNNxf32>
    %65 = arith.subf %60, %64 : tensor<MMxNNxf32>
    %66 = math.exp2 %65 : tensor<MMxNNxf32>
    %67 = arith.subf %arg8, %62 : tensor<MMxf32>
    %68 = math.exp2 %67 : tensor<MMxf32>
    %69 = arith.mulf %arg9, %68 : tensor<MMxf32>
    %70 = "tt.reduce"(%66) <{axis = 1 : i32}> ({
    ^bb0(%arg11: f32, %arg12: f32):
      %89 = arith.addf %arg11, %arg12 : f32
      tt.reduce.return %89 : f32
    }) : (tensor<MMxNNxf32>) -> tensor<MMxf32>
    %71 = arith.addf %69, %70 : tensor<MMxf32>
    %72 = tt.addptr %v_ptr, %5 : !tt.ptr<f16>, i64
    %73 = tt.expand_dims %37 {axis = 1 : i32} : tensor<NNxi32> -> tensor<NNx1xi32>
    %74 = arith.muli %73, %cst_2 : tensor<NNx1xi32>
    %75 = tt.splat %72 : !tt.ptr<f16> -> tensor<NNx1x!tt.ptr<f16>>
    %76 = tt.addptr %75, %74 : tensor<NNx1x!tt.ptr<f16>>, tensor<NNx1xi32>
    %77 = tt.broadcast %76 : tensor<NNx1x!tt.ptr<f16>> -> tensor<NNxDDx!tt.ptr<f16>>
    %78 = tt.broadcast %16 : tensor<1xDDxi32> -> tensor<NNxDDxi32>
    %79 = tt.addptr %77, %78 : tensor<NNxDDx!tt.ptr<f16>>, tensor<NNxDDxi32>
    %80 = tt.splat %length : i32 -> tensor<NNx1xi32>
    %81 = arith.cmpi slt, %73, %80 : tensor<NNx1xi32>
    %82 = tt.broadcast %81 : tensor<NNx1xi1> -> tensor<NNxDDxi1>
    %83 = tt.load %79, %82, %cst : tensor<NNxDDx!tt.ptr<f16>>
    %84 = arith.truncf %66 : tensor<MMxNNxf32> to tensor<MMxNNxf16>
    %85 = tt.expand_dims %68 {axis = 1 : i32} : tensor<MMxf32> -> tensor<MMx1xf32>
    %86 = tt.broadcast %85 : tensor<MMx1xf32> -> tensor<MMxDDxf32>
    %87 = arith.mulf %arg10, %86 : tensor<MMxDDxf32>
    %88 = tt.dot %84, %83, %87, inputPrecision = tf32 : tensor<MMxNNxf16> * tensor<NNxDDxf16> -> tensor<MMxDDxf32>
    scf.yield %62, %71, %88 : tensor<MMxf32>, tensor<MMxf32>, tensor<MMxDDxf32>
  }
  %27 = tt.addptr %out_ptr, %5 : !tt.ptr<f16>, i64
  %28 = tt.splat %27 : !tt.ptr<f16> -> tensor<MMx1x!tt.ptr<f16>>
  %29 = tt.addptr %28, %13 : tensor<MMx1x!tt.ptr<f16>>, tensor<MMx1xi32>
  %30 = tt.broadcast %29 : tensor<MMx1x!tt.ptr<f16>> -> tensor<MMxDDx!tt.ptr<f16>>
  %31 = tt.addptr %30, %18 : tensor<MMxDDx!tt.ptr<f16>>, tensor<MMxDDxi32>
  %32 = tt.expand_dims %26#1 {axis = 1 : i32} : tensor<MMxf32> -> tensor<MMx1xf32>
  %33 = tt.broadcast %32 : tensor<MMx1xf32> -> tensor<MMxDDxf32>
  %34 = arith.divf %26#2, %33 : tensor<MMxDDxf32>
  %35 = arith.truncf %34 : tensor<MMxDDxf32> to tensor<MMxDDxf16>
  tt.store %31, %35, %22 : tensor<MMxDDx!tt.ptr<f16>>
  tt.return
})";

std::string replaced(std::string text, const std::vector<std::pair<std::string, std::string>> &words) {
  for (const auto &[from, to] : words)
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  return text;
}

struct Shape {
  int m, n, d, warps, stages, length;
  bool causal = false;
  std::string str() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(d) + ", " + std::to_string(warps) +
           " warps, stages " + std::to_string(stages) + ", length " + std::to_string(length) + (causal ? ", causal" : "");
  }
};

std::string attention(const Shape &s, const char *type = "f16") {
  return replaced(kAttention, {{"DIAGONAL", s.causal ? "%57" : "%58"},
                               {"HINT", s.length % 16 ? "" : "{tt.divisibility = 16 : i32}"},
                               {"LAST", s.causal ? "%24" : "%length"},
                               {"MM", std::to_string(s.m)},
                               {"NN", std::to_string(s.n)},
                               {"DD", std::to_string(s.d)},
                               {"f16", type}});
}

/// Between -1 and 1, as f16.
std::vector<uint16_t> halves(size_t n, unsigned seed) {
  std::vector<uint16_t> out(n);
  for (uint16_t &x : out) {
    seed = seed * 1664525 + 1013904223;
    x = uint16_t((seed >> 31) << 15 | (0x2800 + (seed >> 8) % 0x1400));
  }
  return out;
}
double valueOf(uint16_t half) {
  const double magnitude = std::ldexp(double((half & 0x3ff) | (half & 0x7c00 ? 0x400 : 0)), std::max(half >> 10 & 31, 1) - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

class Attention : public test::TileTest {
protected:
  /// The placed function, one product a turn ahead and one under way over turns.
  tt::FuncOp place(const Shape &s) {
    tt::FuncOp function = parse(attention(s));
    EXPECT_EQ(pipelineLoops(function, chip_, s.warps, s.stages), 1);
    Status placed = placeTensors(function, chip_, s.warps);
    EXPECT_TRUE(bool(placed)) << placed.error().str();
    shared_ = allocateShared(function, chip_).bytes;
    int open = 0;
    function.walk([&](tt::DotOp dot) { open += dot->hasAttr(placed::kOpenAttr); });
    EXPECT_EQ(open, 2);
    return function;
  }

  /// Placed, with a producer that begins the copies, and the masks branched over.
  tt::FuncOp placeFed(const Shape &s) { return placeFed(s, attention(s), 2); }
  /// guarded: how many masks are branched over; in the first turn and in the others.
  tt::FuncOp placeFed(const Shape &s, const std::string &text, int guarded) {
    tt::FuncOp function = parse(text);
    PipelineOptions options;
    options.stages = s.stages;
    options.boxes = true, options.producer = Producers::All;
    std::string why;
    EXPECT_EQ(pipelineLoops(function, chip_, s.warps, options, &why), 1);
    EXPECT_EQ(why, "");
    Status placed = placeTensors(function, chip_, s.warps);
    EXPECT_TRUE(bool(placed)) << placed.error().str();
    shared_ = allocateShared(function, chip_).bytes;
    EXPECT_TRUE(producerOf(function));
    int guards = 0;
    function.walk([&](mlir::scf::IfOp branch) { guards += branch.getNumResults() == 1; });
    EXPECT_EQ(guards, guarded);
    return function;
  }
  static std::vector<test::Schedule> schedules(const Shape &s) {
    std::vector<test::Schedule> all;
    for (int ahead = -1; ahead <= s.warps / 4; ++ahead)
      for (bool early : {false, true}) all.push_back({ahead, early, true});
    return all;
  }

  std::vector<uint16_t> interpret(tt::FuncOp function, const Shape &s) {
    std::vector<uint16_t> q = input(s, 1), k = input(s, 2), v = input(s, 3), out(rows(s) * size_t(s.d), 0x7e00);
    auto pointer = [](std::vector<uint16_t> &x) { return InterpArg::pointer(x.data(), int64_t(x.size() * 2)); };
    std::vector<InterpArg> args{pointer(q), pointer(k), pointer(v), pointer(out), InterpArg::integer(0), InterpArg::integer(s.length),
                                InterpArg::real(kScale)};
    Status status = interpretTile(function, args, {1, 1, 1});
    EXPECT_TRUE(bool(status)) << status.error().str();
    return out;
  }
  /// What a block computes, its producer among it if there is one, in one order of its warps and copies; how it failed. less: is given the code before
  /// it runs.
  std::string simulate(tt::FuncOp function, const Shape &s, std::vector<uint16_t> &out, const test::Schedule &schedule = {},
                       llvm::function_ref<void(llvm::Function &)> less = [](llvm::Function &) {}) {
    std::vector<uint16_t> q = input(s, 1), k = input(s, 2), v = input(s, 3);
    out.assign(rows(s) * size_t(s.d), 0x7e00);
    llvm::LLVMContext context;
    llvm::Module module("test", context);
    Emitter emitter(module, chip_);
    Status emitted = emitter.emitKernel(function, "entry", 0);
    EXPECT_TRUE(bool(emitted)) << emitted.error().str();
    less(*module.getFunction("entry"));
    auto map = [&](const std::vector<uint16_t> &data, int rows) {
      return test::TensorMap{reinterpret_cast<const uint8_t *>(data.data()), s.length, s.d, 2 * s.d, rows, std::min(s.d, 64), 2};
    };
    const test::TensorMap of[] = {map(q, s.m), map(k, s.n), map(v, s.n)};
    std::vector<uint64_t> args{uint64_t(q.data()), uint64_t(k.data()), uint64_t(v.data()), uint64_t(out.data()), 0,
                               uint64_t(s.length), std::bit_cast<uint32_t>(kScale)};
    function.walk([&](tt::MakeTensorDescOp made) {
      args.push_back(uint64_t(&of[llvm::cast<mlir::BlockArgument>(made.getBase()).getArgNumber()]));
    });
    const std::optional<Producer> producer = producerOf(function);
    return test::simulateEntry(*module.getFunction("entry"), 32 * (s.warps + (producer ? producer->warps : 0)), shared_, args, schedule).error;
  }

  static size_t rows(const Shape &s) { return size_t(std::max(s.m, s.length)); }
  static std::vector<uint16_t> input(const Shape &s, unsigned seed) { return halves(rows(s) * size_t(s.d), seed); }

  static constexpr float kScale = 0.5f;
  const Chip &chip_ = *findChip("sm_90a");
  int64_t shared_ = 0;
};

// P is rounded to f16 before it is multiplied: where the last bit of an exponential differs, by 2^-11 of a weight, and
// what is stored by 2^-11 again.
constexpr double kTolerance = 2e-3;

void expectNear(const std::vector<uint16_t> &got, const std::vector<uint16_t> &wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(got[i] == wanted[i] || std::abs(valueOf(got[i]) - valueOf(wanted[i])) <= kTolerance)
        << i << ": " << valueOf(got[i]) << " in place of " << valueOf(wanted[i]);
}

TEST_F(Attention, SimulatedAsInterpreted) {
  for (const Shape &s : {Shape{64, 32, 32, 4, 3, 160}, Shape{64, 64, 64, 4, 3, 320}, Shape{64, 16, 64, 4, 3, 16},
                         Shape{64, 32, 32, 4, 4, 83}, Shape{128, 32, 64, 8, 3, 128, true}, Shape{64, 32, 32, 4, 5, 200},
                         Shape{128, 64, 32, 8, 3, 100, true}, Shape{64, 32, 128, 4, 2, 96}}) {
    SCOPED_TRACE(s.str());
    const std::vector<uint16_t> wanted = interpret(parse(attention(s)), s);
    tt::FuncOp function = place(s);
    Status verified = verifyPlaced(function, chip_);
    ASSERT_TRUE(bool(verified)) << verified.error().str();
    verified = verifyShared(function, chip_);
    ASSERT_TRUE(bool(verified)) << verified.error().str();
    // Layouts and order change no value.
    EXPECT_EQ(interpret(function, s), wanted);
    std::vector<uint16_t> got;
    ASSERT_EQ(simulate(function, s, got), "");
    expectNear(got, wanted);
  }
}

TEST_F(Attention, ManyShapesInTheInterpreter) {
  for (int m : {64, 128})
    for (int n : {16, 32, 64})
      for (int d : {16, 64})
        for (int stages : {3, 5})
          for (auto [length, causal] : {std::pair(n, false), {3 * n - 7, true}, {5 * n, false}}) {
            const Shape s{m, n, d, m / 16, stages, length, causal};
            SCOPED_TRACE(s.str());
            const std::vector<uint16_t> wanted = interpret(parse(attention(s)), s);
            EXPECT_EQ(interpret(place(s), s), wanted);
          }
}

TEST_F(Attention, NothingOfItsOrderCanBeLeftOut) {
  const Shape s{64, 32, 32, 4, 3, 160};
  std::vector<uint16_t> whole;
  ASSERT_EQ(simulate(place(s), s, whole), "");
  const size_t count = test::expectNoneCanBeLeftOut(test::orderOfLoop, [&](auto change) {
    std::vector<uint16_t> got;
    return !simulate(place(s), s, got, {}, change).empty();
  });
  // Copies: wait, barrier, commit; fence for both products; of each a fence and a commit; one wait; behind the loop: wait.
  EXPECT_EQ(count, 10u);
}

TEST_F(Attention, FedByWarpsOfTheirOwn) {
  for (const Shape &s : {Shape{64, 32, 32, 4, 3, 160}, Shape{64, 64, 64, 4, 2, 300}, Shape{64, 16, 64, 4, 3, 16}, Shape{128, 32, 64, 8, 3, 128, true},
                         Shape{128, 64, 32, 8, 2, 100, true}, Shape{64, 32, 128, 4, 2, 96}, Shape{64, 32, 32, 4, 3, 33, true}, Shape{64, 32, 32, 4, 2, 0}}) {
    SCOPED_TRACE(s.str());
    const std::vector<uint16_t> wanted = interpret(parse(attention(s)), s);
    tt::FuncOp function = placeFed(s);
    Status verified = verifyPlaced(function, chip_);
    ASSERT_TRUE(bool(verified)) << verified.error().str();
    verified = verifyShared(function, chip_);
    ASSERT_TRUE(bool(verified)) << verified.error().str();
    EXPECT_EQ(interpret(function, s), wanted);
    for (const test::Schedule &schedule : schedules(s)) {
      SCOPED_TRACE("ahead " + std::to_string(schedule.ahead) + (schedule.early ? ", early" : ""));
      std::vector<uint16_t> got;
      ASSERT_EQ(simulate(function, s, got, schedule), "");
      expectNear(got, wanted);
    }
  }
}

// Rows of Q that may have a negative number are no box: threads bring them, products read them out of registers, and no mask is branched over.
TEST_F(Attention, FedWithWhatIsNoBoxInRegisters) {
  for (const Shape &s : {Shape{64, 32, 32, 4, 3, 150}, Shape{128, 32, 64, 8, 2, 100, true}}) {
    SCOPED_TRACE(s.str());
    const std::string length = std::to_string(s.length);
    const std::string text = replaced(attention(s), {{"%1 = arith.muli %0,", "%len = arith.constant " + length + " : i32\n  %none = arith.subi %length, %len : i32\n"
                                                      "  %program = arith.addi %0, %none : i32\n  %1 = arith.muli %program,"}});
    const std::vector<uint16_t> wanted = interpret(parse(attention(s)), s);
    tt::FuncOp function = placeFed(s, text, 0);
    int tensors = 0;
    function.walk([&](tt::MakeTensorDescOp) { ++tensors; });
    EXPECT_EQ(tensors, 2);
    Status verified = verifyPlaced(function, chip_);
    ASSERT_TRUE(bool(verified)) << verified.error().str();
    EXPECT_EQ(interpret(function, s), wanted);
    for (const test::Schedule &schedule : schedules(s)) {
      std::vector<uint16_t> got;
      ASSERT_EQ(simulate(function, s, got, schedule), "");
      expectNear(got, wanted);
    }
  }
}

TEST_F(Attention, GuardedMasksChangeNothing) {
  for (const Shape &s : {Shape{64, 32, 32, 4, 3, 150}, Shape{128, 64, 32, 8, 3, 100, true}, Shape{128, 128, 128, 8, 2, 100, true}}) {
    SCOPED_TRACE(s.str());
    const std::vector<uint16_t> wanted = interpret(parse(attention(s)), s);
    tt::FuncOp function = parse(attention(s));
    function.walk([](mlir::scf::ForOp loop) { EXPECT_EQ(guardMasks(loop), 1); });
    EXPECT_EQ(interpret(function, s), wanted);
    EXPECT_EQ(pipelineLoops(function, chip_, s.warps, s.stages), 1);
    Status placed = placeTensors(function, chip_, s.warps);
    ASSERT_TRUE(bool(placed)) << placed.error().str();
    shared_ = allocateShared(function, chip_).bytes;
    EXPECT_EQ(interpret(function, s), wanted);
    std::vector<uint16_t> got;
    ASSERT_EQ(simulate(function, s, got), "");
    expectNear(got, wanted);
  }
}

// Key 48 and those behind it go past 2^31 - 1 in the mask: the first one and the last one alone would say that it holds for all.
TEST_F(Attention, MasksOfSumsThatWrapAreNotGuardedAway) {
  const Shape s{64, 64, 32, 4, 3, 150};
  const std::string text = replaced(attention(s), {{"%59 = arith.andi %58,", R"(%far = arith.constant dense<2147483600> : tensor<1x64xi32>
    %zero = arith.constant dense<0> : tensor<1x64xi32>
    %moved = arith.addi %39, %far : tensor<1x64xi32>
    %before = arith.cmpi sge, %moved, %zero : tensor<1x64xi32>
    %all = tt.broadcast %before : tensor<1x64xi1> -> tensor<64x64xi1>
    %59 = arith.andi %all,)"}});
  const std::vector<uint16_t> wanted = interpret(parse(text), s);
  EXPECT_NE(wanted, interpret(parse(attention(s)), s));
  tt::FuncOp function = parse(text);
  function.walk([](mlir::scf::ForOp loop) { EXPECT_EQ(guardMasks(loop), 1); });
  EXPECT_EQ(interpret(function, s), wanted);
}

TEST_F(Attention, NothingOfAProducersOrderCanBeLeftOut) {
  const Shape s{128, 16, 32, 8, 2, 96};
  size_t count = 1;
  int needless = 0;
  std::vector<uint16_t> wanted;
  ASSERT_EQ(simulate(placeFed(s), s, wanted, {}), "");
  for (size_t left = 0; left < count; ++left) {
    std::string name;
    bool noticed = false;
    for (const test::Schedule &schedule : schedules(s)) {
      std::vector<uint16_t> got;
      const std::string error = simulate(placeFed(s), s, got, schedule, [&](llvm::Function &entry) {
        std::vector<llvm::CallInst *> order;
        for (llvm::BasicBlock &block : entry)
          llvm::append_range(order, test::callsWith(block, {"wait", "barrier", "fence", "commit", "cp.async"}));
        // The end of a barrier is for what comes behind the kernel's loop. Barriers are shown to the machine with those made before.
        bool shown = false;
        for (llvm::CallInst *&call : llvm::reverse(order)) {
          const std::string text = test::textOf(*call);
          const bool shows = text.find("fence.mbarrier_init") != std::string::npos;
          if (text.find("inval") != std::string::npos || (shows && shown)) call = nullptr;
          shown |= shows;
        }
        llvm::erase(order, nullptr);
        count = order.size();
        name.clear();
        llvm::raw_string_ostream(name) << *order[left] << " in " << order[left]->getParent()->getName();
        test::leaveOut(order[left]);
      });
      noticed = !error.empty() || got != wanted;
      if (noticed) break;
    }
    // Where ways of the code meet the block waits once, whatever was before.
    if (!noticed && name.find("aligned.count") != std::string::npos)
      ++needless;
    else
      EXPECT_TRUE(noticed) << name;
  }
  EXPECT_LE(needless, 2);
  EXPECT_GT(count, 30u);
}

TEST_F(Attention, TheVerifierKnowsWhatAProducerWaitsFor) {
  const Shape s{128, 16, 32, 8, 2, 96};
  auto refused = [&](auto change) {
    tt::FuncOp function = placeFed(s);
    EXPECT_TRUE(bool(verifyPlaced(function, chip_)));
    change(function);
    Status status = verifyPlaced(function, chip_);
    return status ? std::string() : status.error().str();
  };
  auto inRegion = [](mlir::Operation *op) { return bool(op->getParentOfType<ttg::ByOneThreadOp>()); };
  auto inLoop = [](mlir::Operation *op) { return bool(op->getParentOfType<mlir::scf::ForOp>()); };
  // Each by itself.
  auto everyOne = [&](auto which, const char *rule) {
    size_t count = 1;
    for (size_t i = 0; i < count; ++i) {
      std::string text;
      const std::string error = refused([&](tt::FuncOp f) {
        std::vector<mlir::Operation *> found;
        f.walk([&](mlir::Operation *op) {
          if (which(op)) found.push_back(op);
        });
        count = found.size();
        if (!found.empty()) llvm::raw_string_ostream(text) << *found[i], found[i]->erase();
      });
      EXPECT_NE(error.find(rule), std::string::npos) << text << error;
    }
    EXPECT_GT(count, 0u);
  };
  everyOne([&](mlir::Operation *op) { return llvm::isa<ttg::AwaitOp>(op) && inRegion(op); }, "N13");
  everyOne([&](mlir::Operation *op) { return llvm::isa<ttg::AwaitOp>(op) && !inRegion(op); }, "N13");
  everyOne([&](mlir::Operation *op) { return llvm::isa<ttg::ArriveOp>(op); }, "N13");
  everyOne([&](mlir::Operation *op) { return llvm::isa<ttg::ExpectOp>(op) && inLoop(op); }, "N13");
  everyOne([&](mlir::Operation *op) { return llvm::isa<placed::FenceAsyncOp>(op) && op->getParentOp() == op->getParentOfType<tt::FuncOp>(); }, "N13");
  everyOne([&](mlir::Operation *op) { return llvm::isa<ttg::BarrierOp>(op) && turnOf(op) == Turn::None; }, "N13");
  everyOne([&](mlir::Operation *op) { return turnOf(op) != Turn::None; }, "N15");
  auto withoutMark = [](const char *mark) {
    return [mark](tt::FuncOp f) {
      f.walk([&](mlir::Operation *op) {
        if (op != f) op->removeAttr(mark);
      });
    };
  };
  EXPECT_NE(refused(withoutMark(placed::kWithProducerAttr)).find("N13"), std::string::npos);
  EXPECT_NE(refused(withoutMark(placed::kByProducerAttr)).find("N14"), std::string::npos);
  EXPECT_NE(refused([](tt::FuncOp f) { f->removeAttr(placed::kProducerAttr); }).find("N14"), std::string::npos);
  auto producer = [](std::array<int32_t, 3> numbers) {
    return [numbers](tt::FuncOp f) { f->setAttr(placed::kProducerAttr, mlir::DenseI32ArrayAttr::get(f.getContext(), numbers)); };
  };
  EXPECT_NE(refused(producer({3, 24, 240})).find("N14"), std::string::npos);
  EXPECT_NE(refused(producer({4, 24, 248})).find("N14"), std::string::npos);
  EXPECT_NE(refused(producer({4, 20, 240})).find("N14"), std::string::npos);
  // Sums that are under way are not held.
  EXPECT_NE(refused([](tt::FuncOp f) {
              f.walk([](placed::WaitProductsOp wait) {
                if (wait->hasAttr(placed::kHeldAttr)) wait->setAttr(placed::kHeldAttr, mlir::DenseI32ArrayAttr::get(wait.getContext(), {0}));
              });
            }).find("N11"),
            std::string::npos);
  // A condition that memory gives.
  EXPECT_NE(refused([](tt::FuncOp f) {
              ttg::ByOneThreadOp one = *f.getBody().front().getOps<ttg::ByOneThreadOp>().begin();
              mlir::OpBuilder b(one);
              mlir::Value read = tt::LoadOp::create(b, one.getLoc(), f.getArgument(1));
              mlir::Value bits = mlir::arith::BitcastOp::create(b, one.getLoc(), b.getI16Type(), read);
              mlir::Value zero = mlir::arith::ConstantOp::create(b, one.getLoc(), b.getI16IntegerAttr(0));
              one.getConditionMutable().assign(mlir::arith::CmpIOp::create(b, one.getLoc(), mlir::arith::CmpIPredicate::ne, bits, zero));
            }).find("N14"),
            std::string::npos);
  // Products of the turn before may still read the tile when the warps say that they have left it.
  EXPECT_NE(refused([](tt::FuncOp f) {
              f.walk([](placed::WaitProductsOp wait) {
                if (wait.getPending() == 0) return;
                wait->replaceAllUsesWith(wait.getValues());
                wait.erase();
              });
            }),
            "");
}

// The verifier, which knows nothing of the simulator.
TEST_F(Attention, TheVerifierMissesNothingEither) {
  const Shape s{64, 32, 32, 4, 3, 160};
  auto refused = [&](auto change) {
    tt::FuncOp function = place(s);
    EXPECT_TRUE(bool(verifyPlaced(function, chip_)));
    mlir::scf::ForOp loop = *function.getBody().front().getOps<mlir::scf::ForOp>().begin();
    change(loop);
    Status status = verifyPlaced(function, chip_);
    return status ? std::string() : status.error().str();
  };
  EXPECT_NE(refused([](mlir::scf::ForOp loop) {
              placed::WaitProductsOp wait = *loop.getBody()->getOps<placed::WaitProductsOp>().begin();
              wait->replaceAllUsesWith(wait.getValues());
              wait.erase();
            }).find("N11"),
            std::string::npos);
  EXPECT_NE(refused([](mlir::scf::ForOp loop) {
              (*loop.getBody()->getOps<placed::WaitProductsOp>().begin()).setPending(1);
            }).find("N12: gives sums"),
            std::string::npos);
  EXPECT_NE(refused([](mlir::scf::ForOp loop) { loop->removeAttr(placed::kOpenValuesAttr); }).find("N11"), std::string::npos);
  EXPECT_NE(refused([](mlir::scf::ForOp loop) {
              (*loop.getBody()->getOps<ttg::AsyncWaitOp>().begin()).setPending(1);
            }).find("N12: reads a slot before"),
            std::string::npos);
  // A turn earlier, copies would fill the slot of V that the product of the turn before still reads.
  EXPECT_NE(refused([](mlir::scf::ForOp loop) {
              for (ttg::AsyncCopyOp copy : loop.getBody()->getOps<ttg::AsyncCopyOp>()) {
                const unsigned last = loop.getNumRegionIterArgs();
                mlir::OpBuilder b(copy);
                mlir::Value one = mlir::arith::ConstantOp::create(b, copy.getLoc(), b.getI32IntegerAttr(1));
                mlir::Value after = mlir::arith::AddIOp::create(b, copy.getLoc(), loop.getRegionIterArg(last - 2), one);
                mlir::Value three = mlir::arith::ConstantOp::create(b, copy.getLoc(), b.getI32IntegerAttr(3));
                mlir::Value isLast = mlir::arith::CmpIOp::create(b, copy.getLoc(), mlir::arith::CmpIPredicate::eq, after, three);
                mlir::Value zero = mlir::arith::ConstantOp::create(b, copy.getLoc(), b.getI32IntegerAttr(0));
                copy.getSlotMutable().assign(mlir::arith::SelectOp::create(b, copy.getLoc(), isLast, zero, after));
              }
            }).find("N12: fills a slot"),
            std::string::npos);
}

TEST_F(Attention, AssembledWithoutAWaitOfItsOwn) {
  if (!findAssembler()) GTEST_SKIP() << "no ptxas is found";
  for (const Shape &s : {Shape{128, 64, 128, 8, 3, 0}, Shape{64, 64, 128, 4, 3, 0, true}, Shape{128, 32, 128, 8, 3, 0},
                         Shape{128, 64, 64, 8, 4, 0, true}, Shape{128, 128, 64, 8, 2, 0}, Shape{64, 128, 32, 4, 2, 0}}) {
    SCOPED_TRACE(s.str());
    std::vector<TileFunction> functions{{parse(attention(s, "bf16")), "attention", s.warps, s.stages}};
    CompileOptions options;
    options.keepPtx = true;
    Result<CompiledModule> code = compileForNvidia(functions, chip_, options);
    ASSERT_TRUE(bool(code)) << code.error().str();
    EXPECT_EQ(code->code.front().target, "sm_90a");
    EXPECT_EQ(code->serialised, "");
    EXPECT_EQ(code->usage[0].spillBytes, 0);
    // Blocks of four warps, and those of eight that hold little, stand beside others, whose products fill the time. Sums of 32 bits, Q and P of 16.
    const std::string &products = code->usage[0].products;
    const int registers = (s.m * s.d + s.m * s.n + s.m * s.d / 2 + s.m * s.n / 2) / (32 * s.warps);
    if (s.warps > 4 && registers > 96)
      EXPECT_EQ(products, "wgmma, a turn ahead; wgmma, under way over turns");
    else
      EXPECT_EQ(products.find("a turn ahead"), std::string::npos) << products;
  }
}

// The assembler would take some registers more, and one block would stand alone.
TEST_F(Attention, TwoBlocksStandOnAMultiprocessor) {
  if (!findAssembler()) GTEST_SKIP() << "no ptxas is found";
  const Shape s{128, 128, 32, 8, 3, 0};
  CompileOptions options;
  options.early = false;
  for (int most : {0, 200}) {
    std::vector<TileFunction> functions{{parse(attention(s, "bf16")), "attention", s.warps, s.stages, most}};
    Result<CompiledModule> code = compileForNvidia(functions, chip_, options);
    ASSERT_TRUE(bool(code)) << code.error().str();
    // What the kernel's author asks for stays. Whether the assembler must be held to it depends on its version.
    EXPECT_EQ(code->usage[0].blocksPerSm, most ? 1 : 2);
    EXPECT_FALSE(most && code->usage[0].heldForTwo);
    EXPECT_TRUE(code->usage[0].spillBytes == 0 || code->usage[0].heldForTwo);
    EXPECT_LE(code->usage[0].registers, most ? most : 128);
    EXPECT_LE(code->usage[0].spillBytes, 256);
  }
}

// A form beside the usual one, with four warps more.
TEST_F(Attention, AssembledWithAProducer) {
  if (!findAssembler()) GTEST_SKIP() << "no ptxas is found";
  for (const Shape &s : {Shape{128, 128, 128, 8, 2, 0}, Shape{128, 128, 128, 8, 2, 0, true}, Shape{128, 128, 64, 8, 3, 0, true}, Shape{128, 64, 128, 8, 3, 0},
                         Shape{64, 64, 128, 4, 3, 0, true}, Shape{64, 128, 64, 4, 2, 0}}) {
    SCOPED_TRACE(s.str());
    std::vector<TileFunction> functions{{parse(attention(s, "bf16")), "attention", s.warps, s.stages}};
    CompileOptions options;
    options.boxes = BoxForms::Faster;
    Result<CompiledModule> code = compileForNvidia(functions, chip_, options);
    ASSERT_TRUE(bool(code)) << code.error().str();
    EXPECT_EQ(code->serialised, "");
    const CompiledFunction &own = code->code.front().functions[0];
    EXPECT_EQ(own.threads, 32 * s.warps);
    ASSERT_TRUE(own.boxed) << code->usage[0].products;
    EXPECT_EQ(own.boxed->threads, 32 * (s.warps + 4));
    EXPECT_EQ(own.boxed->spillBytes, 0);
    EXPECT_EQ(own.boxed->blocksPerSm, s.warps == 4 ? 2 : 1);
    EXPECT_EQ(code->usage[0].products.find("adds waits"), std::string::npos);
    // (q, k, v, out, head_stride, length, scale): heads, rows, and elements side by side.
    ASSERT_EQ(own.boxed->tensors.size(), 3u);
    for (const BoxedTensor &t : own.boxed->tensors) {
      EXPECT_TRUE(t.argument >= 0 && t.argument < 3);
      EXPECT_EQ(t.box, (std::vector<int>{1, t.argument == 0 ? s.m : s.n, 64}));
      EXPECT_EQ(t.sizes, (std::vector<Expr>{INT32_MAX, Symbol::of(Symbol::Kind::Argument, 5), INT32_MAX}));
      EXPECT_EQ(t.pitches, (std::vector<Expr>{Symbol::of(Symbol::Kind::Argument, 4), s.d}));
    }
  }
  // Where others are asked for: none; and of 256 columns in four warps, whose sums are more than the registers at first.
  const Shape s{128, 128, 128, 8, 2, 0};
  CompileOptions options;
  options.boxes = BoxForms::None;
  Result<CompiledModule> code = compileForNvidia({{parse(attention(s, "bf16")), "attention", s.warps, s.stages}}, chip_, options);
  ASSERT_TRUE(bool(code)) << code.error().str();
  EXPECT_FALSE(code->code.front().functions[0].boxed);
}

// 192 sums a thread: the assembler added waits of its own here as long as sums that begin alike shared registers.
TEST_F(Attention, ManySumsAThreadNeedNoWaitOfTheAssemblers) {
  if (!findAssembler()) GTEST_SKIP() << "no ptxas is found";
  const Shape s{128, 64, 128, 4, 2, 0};
  std::vector<TileFunction> functions{{parse(attention(s, "bf16")), "attention", s.warps, s.stages}};
  Result<CompiledModule> code = compileForNvidia(functions, chip_, {});
  ASSERT_TRUE(bool(code)) << code.error().str();
  EXPECT_EQ(code->serialised, "");
  EXPECT_EQ(code->usage[0].products, "wgmma");
}

// Where sums, twice those of the first product, leave no registers, products are waited for.
TEST_F(Attention, WaitsWhereRegistersAreFew) {
  const Shape s{128, 128, 128, 8, 2, 0};
  tt::FuncOp function = parse(attention(s));
  EXPECT_EQ(pipelineLoops(function, chip_, s.warps, s.stages), 1);
  function.walk([](tt::DotOp dot) { EXPECT_FALSE(dot->hasAttr(placed::kOpenAttr)); });
}

} // namespace
} // namespace neso::nvidia
