// Software pipelines: the rewritten program gives, in the interpreter, the very bits of the original, for trip counts
// around the depth; and its form. The interpreter lets copies arrive as late as the waits allow.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "backend/nvidia/emitter.h"
#include "backend/nvidia/passes/allocate.h"
#include "backend/nvidia/passes/pipeline.h"
#include "backend/nvidia/passes/place.h"
#include "backend/nvidia/passes/verify.h"
#include "backend/nvidia/test/simulator.h"
#include "ir/tile/interp.h"
#include "ir/tile/passes/passes.h"

namespace neso::nvidia {
namespace {

// c[16, 32] = a[16, K] b[K, 32] in blocks of KK along K (and BSTEP = 32 KK), addresses carried from iteration to
// iteration, the rest of K masked. %pitch: elements from row to row of a.
constexpr const char *kMatmul = R"(
tt.func public @matmul(%a: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %b: !tt.ptr<f16> {tt.divisibility = 16 : i32},
                       %c: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %K: i32 {tt.divisibility = 16 : i32}) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %step = arith.constant KK : i32
  %none = arith.constant dense<0.0> : tensor<16xKKxf16>
  %noneB = arith.constant dense<0.0> : tensor<KKx32xf16>
  %init = arith.constant dense<0.0> : tensor<16x32xf32>
  %r = tt.make_range {start = 0 : i32, end = 16 : i32} : tensor<16xi32>
  %n = tt.make_range {start = 0 : i32, end = 32 : i32} : tensor<32xi32>
  %rows = tt.expand_dims %r {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
  %kr = tt.make_range {start = 0 : i32, end = KK : i32} : tensor<KKxi32>
  %columns = tt.expand_dims %kr {axis = 0 : i32} : tensor<KKxi32> -> tensor<1xKKxi32>
  %nb = tt.expand_dims %n {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
  %pitch = tt.splat %K : i32 -> tensor<16x1xi32>
  %arow = arith.muli %rows, %pitch : tensor<16x1xi32>
  %a0 = tt.broadcast %arow : tensor<16x1xi32> -> tensor<16xKKxi32>
  %a1 = tt.broadcast %columns : tensor<1xKKxi32> -> tensor<16xKKxi32>
  %aoff = arith.addi %a0, %a1 : tensor<16xKKxi32>
  %as = tt.splat %a : !tt.ptr<f16> -> tensor<16xKKx!tt.ptr<f16>>
  %pa = tt.addptr %as, %aoff : tensor<16xKKx!tt.ptr<f16>>, tensor<16xKKxi32>
  %c32 = arith.constant dense<32> : tensor<KKx1xi32>
  %krows = tt.expand_dims %kr {axis = 1 : i32} : tensor<KKxi32> -> tensor<KKx1xi32>
  %brow = arith.muli %krows, %c32 : tensor<KKx1xi32>
  %b0 = tt.broadcast %brow : tensor<KKx1xi32> -> tensor<KKx32xi32>
  %b1 = tt.broadcast %nb : tensor<1x32xi32> -> tensor<KKx32xi32>
  %boff = arith.addi %b0, %b1 : tensor<KKx32xi32>
  %bs = tt.splat %b : !tt.ptr<f16> -> tensor<KKx32x!tt.ptr<f16>>
  %pb = tt.addptr %bs, %boff : tensor<KKx32x!tt.ptr<f16>>, tensor<KKx32xi32>
  %aStep = arith.constant dense<KK> : tensor<16xKKxi32>
  %bStep = arith.constant dense<BSTEP> : tensor<KKx32xi32>
  %result:3 = scf.for %k = %zero to %K step %step iter_args(%acc = %init, %ap = %pa, %bp = %pb)
      -> (tensor<16x32xf32>, tensor<16xKKx!tt.ptr<f16>>, tensor<KKx32x!tt.ptr<f16>>) : i32 {
    %left = arith.subi %K, %k : i32
    %lefts = tt.splat %left : i32 -> tensor<1xKKxi32>
    %in = arith.cmpi slt, %columns, %lefts : tensor<1xKKxi32>
    %mask = tt.broadcast %in : tensor<1xKKxi1> -> tensor<16xKKxi1>
    %x = tt.load %ap, %mask, %none : tensor<16xKKx!tt.ptr<f16>>
    %brows = tt.splat %left : i32 -> tensor<KKx1xi32>
    %bin = arith.cmpi slt, %krows, %brows : tensor<KKx1xi32>
    %bmask = tt.broadcast %bin : tensor<KKx1xi1> -> tensor<KKx32xi1>
    %y = tt.load %bp, %bmask, %noneB : tensor<KKx32x!tt.ptr<f16>>
    %d = tt.dot %x, %y, %acc : tensor<16xKKxf16> * tensor<KKx32xf16> -> tensor<16x32xf32>
    %ap2 = tt.addptr %ap, %aStep : tensor<16xKKx!tt.ptr<f16>>, tensor<16xKKxi32>
    %bp2 = tt.addptr %bp, %bStep : tensor<KKx32x!tt.ptr<f16>>, tensor<KKx32xi32>
    scf.yield %d, %ap2, %bp2 : tensor<16x32xf32>, tensor<16xKKx!tt.ptr<f16>>, tensor<KKx32x!tt.ptr<f16>>
  }
  %crow0 = arith.constant dense<32> : tensor<16x1xi32>
  %crow = arith.muli %rows, %crow0 : tensor<16x1xi32>
  %c0 = tt.broadcast %crow : tensor<16x1xi32> -> tensor<16x32xi32>
  %c1 = tt.broadcast %nb : tensor<1x32xi32> -> tensor<16x32xi32>
  %coff = arith.addi %c0, %c1 : tensor<16x32xi32>
  %cs = tt.splat %c : !tt.ptr<f32> -> tensor<16x32x!tt.ptr<f32>>
  %pc = tt.addptr %cs, %coff : tensor<16x32x!tt.ptr<f32>>, tensor<16x32xi32>
  tt.store %pc, %result#0 : tensor<16x32x!tt.ptr<f32>>
  tt.return
})";

std::string matmul(int block) {
  std::string text = kMatmul;
  for (const auto &[name, value] : {std::pair{std::string("KK"), block}, {"BSTEP", 32 * block}})
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name))
      text.replace(at, name.size(), std::to_string(value));
  return text;
}

class Pipeline : public ::testing::Test {
protected:
  tt::FuncOp parse(const std::string &text) {
    Result<mlir::OwningOpRef<mlir::ModuleOp>> parsed = parseTile(text, "test.ttir", context_.get());
    EXPECT_TRUE(bool(parsed));
    module_ = std::move(*parsed);
    Status prepared = runTilePipeline(*module_);
    EXPECT_TRUE(bool(prepared));
    return *module_->getOps<tt::FuncOp>().begin();
  }
  tt::FuncOp golden(const std::string &name) {
    std::ifstream in(std::string(NESO_SOURCE_DIR "/compiler/ir/tile/test/goldens/") + name + ".ttir");
    std::stringstream text;
    text << in.rdbuf();
    return parse(text.str());
  }
  template <typename Op> int count(tt::FuncOp function) {
    int n = 0;
    function.walk([&](Op) { ++n; });
    return n;
  }
  std::unique_ptr<mlir::MLIRContext> context_ = makeTileContext();
  mlir::OwningOpRef<mlir::ModuleOp> module_;
  const Chip &chip_ = *findChip("sm_90");
};

std::vector<uint16_t> halves(size_t n, unsigned seed) {
  // Small integers and quarters, as f16.
  static const uint16_t values[] = {0x0000, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x3400, 0x3800, 0x4200};
  std::vector<uint16_t> out(n);
  for (uint16_t &x : out) x = values[(seed = seed * 1664525 + 1013904223) >> 29];
  return out;
}

TEST_F(Pipeline, SameBitsForEveryDepthAndTripCount) {
  // Blocks of one step along K, of two and of four: from two on each step's operands are read one step ahead.
  for (auto [block, stages] : {std::pair{16, 2}, {16, 3}, {16, 4}, {32, 2}, {32, 3}, {64, 2}, {64, 4}}) {
    for (int K : {0, 16, 32, 48, 64, 112, 256}) {
      std::vector<uint16_t> a = halves(size_t(16 * K + 16), 1), b = halves(size_t(K * 32 + 32), 2);
      std::vector<float> expected(512), got(512);
      auto run = [&](tt::FuncOp function, std::vector<float> &c) {
        std::vector<InterpArg> args{InterpArg::pointer(a.data(), int64_t(16 * K * 2)),
                                    InterpArg::pointer(b.data(), int64_t(K * 32 * 2)),
                                    InterpArg::pointer(c.data(), 2048), InterpArg::integer(K)};
        Status status = interpretTile(function, args, {1, 1, 1});
        ASSERT_TRUE(bool(status)) << status.error().str();
      };
      run(parse(matmul(block)), expected);
      tt::FuncOp function = parse(matmul(block));
      ASSERT_EQ(pipelineLoops(function, chip_, 4, stages), 1);
      ASSERT_TRUE(bool(verifyTile(*module_)));
      run(function, got);
      EXPECT_EQ(expected, got) << stages << " stages, K " << K << ", block " << block;
    }
  }
}

TEST_F(Pipeline, AddressesAreCarriedOnlyAhead) {
  tt::FuncOp function = parse(matmul(16));
  ASSERT_EQ(pipelineLoops(function, chip_, 4, 3), 1);
  EXPECT_EQ(count<tt::LoadOp>(function), 0);
  EXPECT_EQ(count<ttg::AsyncCopyOp>(function), 2 * 3);
  mlir::scf::ForOp loop;
  function.walk([&](mlir::scf::ForOp op) { loop = op; });
  // The sums, two addresses, two slots.
  EXPECT_EQ(loop.getNumRegionIterArgs(), 5u);
  EXPECT_TRUE(llvm::isa<ttg::AsyncWaitOp>(loop.getBody()->front()));
}

TEST_F(Pipeline, StepsAreReadAheadAcrossTheBarrier) {
  tt::FuncOp function = parse(matmul(64));
  ASSERT_EQ(pipelineLoops(function, chip_, 4, 3), 1);
  mlir::scf::ForOp loop;
  function.walk([&](mlir::scf::ForOp op) { loop = op; });
  // The sums, both operands of the first step, two addresses, two slots.
  EXPECT_EQ(loop.getNumRegionIterArgs(), 7u);
  // One of four steps: its product, then the next one's operands; the barrier has a product behind it.
  std::string order;
  for (mlir::Operation &op : *loop.getBody())
    order += llvm::isa<tt::DotOp>(op)          ? "d"
             : llvm::isa<ttg::LocalLoadOp>(op) ? "l"
             : llvm::isa<ttg::AsyncCopyOp>(op) ? "c"
             : llvm::isa<ttg::AsyncWaitOp>(op) ? "w"
                                               : "";
  EXPECT_EQ(order, "llccdlldlldwlld");
  EXPECT_EQ(count<tt::DotOp>(function), 4);
}

TEST_F(Pipeline, BothProductsOfAttention) {
  const int n = 96;
  std::vector<uint16_t> q = halves(n * 16, 3), k = halves(n * 16, 4), v = halves(n * 16, 5), expected(n * 16),
                        got(n * 16);
  auto run = [&](tt::FuncOp function, std::vector<uint16_t> &o) {
    std::vector<InterpArg> args;
    for (std::vector<uint16_t> *buffer : {&q, &k, &v, &o}) args.push_back(InterpArg::pointer(buffer->data(), n * 32));
    args.push_back(InterpArg::integer(n));
    args.push_back(InterpArg::real(0.25));
    Status status = interpretTile(function, args, {3, 1, 1});
    ASSERT_TRUE(bool(status)) << status.error().str();
  };
  run(golden("attention"), expected);
  tt::FuncOp function = golden("attention");
  ASSERT_EQ(pipelineLoops(function, chip_, 4, 3), 1);
  EXPECT_EQ(count<ttg::LocalAllocOp>(function), 2);
  run(function, got);
  EXPECT_EQ(expected, got);
  // Where tensors lie changes no value.
  std::fill(got.begin(), got.end(), uint16_t(0));
  ASSERT_TRUE(bool(placeTensors(function, chip_, 4)));
  run(function, got);
  EXPECT_EQ(expected, got);
  std::fill(got.begin(), got.end(), uint16_t(0));
  allocateShared(function, chip_);
  run(function, got);
  EXPECT_EQ(expected, got);
}

TEST_F(Pipeline, ArithmeticBehindLoadsAndStoresElsewhere) {
  const int K = 112;
  std::string text = matmul(32);
  const std::string product = "tt.dot %x,";
  text.replace(text.find(product), product.size(), "tt.dot %doubled,");
  text.insert(text.find("    %d = "), "    %doubled = arith.addf %x, %x : tensor<16x32xf16>\n");
  text.insert(text.find("    %ap2 ="), "    %w = tt.splat %c : !tt.ptr<f32> -> tensor<16x32x!tt.ptr<f32>>\n"
                                       "    tt.store %w, %d : tensor<16x32x!tt.ptr<f32>>\n");
  std::vector<uint16_t> a = halves(size_t(16 * K + 16), 1), b = halves(size_t(K * 32 + 32), 2);
  std::vector<float> expected(512), got(512);
  auto run = [&](tt::FuncOp function, std::vector<float> &c) {
    std::vector<InterpArg> args{InterpArg::pointer(a.data(), int64_t(16 * K * 2)),
                                InterpArg::pointer(b.data(), int64_t(K * 32 * 2)), InterpArg::pointer(c.data(), 2048),
                                InterpArg::integer(K)};
    Status status = interpretTile(function, args, {1, 1, 1});
    ASSERT_TRUE(bool(status)) << status.error().str();
  };
  run(parse(text), expected);
  tt::FuncOp function = parse(text);
  ASSERT_EQ(pipelineLoops(function, chip_, 4, 3), 1);
  EXPECT_EQ(count<ttg::LocalAllocOp>(function), 2);
  ASSERT_TRUE(bool(verifyTile(*module_)));
  run(function, got);
  EXPECT_EQ(expected, got);
}

/// The pipelined kernel in machine terms: emitted, and run as one block of simulated threads, which finds races.
struct Block {
  Block(tt::FuncOp function, const Chip &chip, int warps) {
    Status placed = placeTensors(function, chip, warps);
    EXPECT_TRUE(bool(placed)) << placed.error().str();
    placed = verifyPlaced(function, chip);
    EXPECT_TRUE(bool(placed)) << placed.error().str();
    shared = allocateShared(function, chip).bytes;
    placed = verifyShared(function, chip);
    EXPECT_TRUE(bool(placed)) << placed.error().str();
    Emitter emitter(module, chip);
    Status emitted = emitter.emitKernel(function, "entry", 0);
    EXPECT_TRUE(bool(emitted)) << emitted.error().str();
    threads = warps * 32;
  }
  test::Outcome run(const std::vector<uint64_t> &arguments) {
    return test::simulateEntry(*module.getFunction("entry"), threads, shared, arguments);
  }
  llvm::LLVMContext context;
  llvm::Module module{"test", context};
  int64_t shared = 0;
  int threads = 0;
};

// Rows of a are looked up, so that indices cross shared memory just before the copies begin: copies into bytes that
// another warp still read made wrong products now and then.
TEST_F(Pipeline, CopiesBeginWhereNobodyReads) {
  const int K = 112, M = 128;
  for (const char *operand : {"%x", "%doubled"}) {
    std::string text = matmul(32);
    const std::string product = "tt.dot %x,", rows = "%rows = tt.expand_dims %r ";
    text.replace(text.find(product), product.size(), std::string("tt.dot ") + operand + ",");
    text.insert(text.find("    %d = "), "    %doubled = arith.addf %x, %x : tensor<16x32xf16>\n");
    text.replace(text.find(rows), rows.size(), "%rows = tt.expand_dims %looked ");
    text.insert(text.find("  %rows ="), "  %ls = tt.splat %l : !tt.ptr<i32> -> tensor<16x!tt.ptr<i32>>\n"
                                        "  %lp = tt.addptr %ls, %r : tensor<16x!tt.ptr<i32>>, tensor<16xi32>\n"
                                        "  %looked = tt.load %lp : tensor<16x!tt.ptr<i32>>\n");
    const std::string last = "%K: i32 {tt.divisibility = 16 : i32}";
    text.insert(text.find(last) + last.size(), ", %l: !tt.ptr<i32> {tt.divisibility = 16 : i32}");
    // More rows than a warp has lanes.
    for (auto [from, to] : {std::pair("<16x", "<128x"), std::pair("end = 16 ", "end = 128 ")})
      for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, strlen(from), to);
    std::vector<uint16_t> a = halves(size_t(M * K + 16), 1), b = halves(size_t(K * 32 + 32), 2);
    std::vector<int32_t> lookup(M);
    for (int i = 0; i < M; ++i) lookup[size_t(i)] = (i * 5 + 3) % M;
    std::vector<float> expected(M * 32), got(M * 32);
    std::vector<InterpArg> args{
        InterpArg::pointer(a.data(), int64_t(M * K * 2)), InterpArg::pointer(b.data(), int64_t(K * 32 * 2)),
        InterpArg::pointer(expected.data(), M * 128), InterpArg::integer(K), InterpArg::pointer(lookup.data(), M * 4)};
    tt::FuncOp function = parse(text);
    Status status = interpretTile(function, args, {1, 1, 1});
    ASSERT_TRUE(bool(status)) << status.error().str();
    for (int warps : {1, 2, 4}) {
      function = parse(text);
      ASSERT_EQ(pipelineLoops(function, chip_, warps, 3), 1);
      EXPECT_GE(count<ttg::LocalAllocOp>(function), 1);
      test::Outcome outcome = Block(function, chip_, warps)
                                  .run({uint64_t(a.data()), uint64_t(b.data()), uint64_t(got.data()), uint64_t(K),
                                        uint64_t(lookup.data())});
      EXPECT_EQ(outcome.error, "") << warps << " warps, " << operand;
      EXPECT_EQ(expected, got) << warps << " warps, " << operand;
    }
  }
}

// The operands of a step are read on both sides of the barrier, B as it lies and transposed.
TEST_F(Pipeline, StepsOnTheSimulatedBlock) {
  for (auto [block, stages] : {std::pair{32, 2}, {32, 3}, {64, 2}, {64, 4}})
    for (bool turned : {false, true})
      for (int K : {0, 16, 64, 208}) {
        std::string text = matmul(block);
        // A square tile keeps its shape.
        if (turned && block != 32) continue;
        if (turned) {
          const std::string use = "tt.dot %x, %y,";
          text.replace(text.find(use), use.size(), "tt.dot %x, %yt,");
          text.insert(text.find("    %d = "),
                      "    %yt = tt.trans %y {order = array<i32: 1, 0>} : tensor<32x32xf16> -> tensor<32x32xf16>\n");
        }
        std::vector<uint16_t> a = halves(size_t(16 * K + 16), 1), b = halves(size_t(K * 32 + 32), 2);
        std::vector<float> expected(512), got(512);
        std::vector<InterpArg> args{InterpArg::pointer(a.data(), int64_t(16 * K * 2)),
                                    InterpArg::pointer(b.data(), int64_t(K * 32 * 2)),
                                    InterpArg::pointer(expected.data(), 2048), InterpArg::integer(K)};
        tt::FuncOp function = parse(text);
        Status status = interpretTile(function, args, {1, 1, 1});
        ASSERT_TRUE(bool(status)) << status.error().str();
        function = parse(text);
        ASSERT_EQ(pipelineLoops(function, chip_, 2, stages), 1);
        EXPECT_EQ(count<tt::DotOp>(function), block / 16);
        test::Outcome outcome =
            Block(function, chip_, 2).run({uint64_t(a.data()), uint64_t(b.data()), uint64_t(got.data()), uint64_t(K)});
        EXPECT_EQ(outcome.error, "") << block << ", " << stages << " stages, K " << K << (turned ? ", turned" : "");
        EXPECT_EQ(expected, got) << block << ", " << stages << " stages, K " << K << (turned ? ", turned" : "");
      }
}

// A row that the left operand is multiplied by, one that is added to the sums, both: what is read behind a step's barrier must not meet the copies of
// the next turn.
TEST_F(Pipeline, RowsBesideProductsOnTheSimulatedBlock) {
  for (int block : {32, 64})
    for (auto [before, behind] : {std::pair{true, false}, {false, true}, {true, true}})
      for (int K : {0, 16, 64, 208}) {
        std::string text = matmul(block);
        const std::string size = std::to_string(block), row = "tensor<" + size + "x", tile = "tensor<16x" + size + "x";
        if (before) {
          const std::string product = "tt.dot %x,";
          text.replace(text.find(product), product.size(), "tt.dot %scaled,");
          text.insert(text.find("    %d = "), "    %from = tt.addptr %a, %k : !tt.ptr<f16>, i32\n    %froms = tt.splat %from : !tt.ptr<f16> -> " + row + "!tt.ptr<f16>>\n"
                                              "    %scales = tt.addptr %froms, %kr : " + row + "!tt.ptr<f16>>, " + row + "i32>\n"
                                              "    %leftRow = tt.splat %left : i32 -> " + row + "i32>\n    %inRow = arith.cmpi slt, %kr, %leftRow : " + row + "i32>\n"
                                              "    %no = arith.constant dense<0.0> : " + row + "f16>\n    %scale = tt.load %scales, %inRow, %no : " + row + "!tt.ptr<f16>>\n"
                                              "    %scaleRow = tt.expand_dims %scale {axis = 0 : i32} : " + row + "f16> -> tensor<1x" + size + "xf16>\n"
                                              "    %scaleAll = tt.broadcast %scaleRow : tensor<1x" + size + "xf16> -> " + tile + "f16>\n"
                                              "    %scaled = arith.mulf %x, %scaleAll : " + tile + "f16>\n");
        }
        if (behind) {
          const std::string yield = "scf.yield %d,";
          text.replace(text.find(yield), yield.size(), "scf.yield %sum,");
          text.insert(text.find("    %ap2 = "), "    %at = tt.addptr %b, %k : !tt.ptr<f16>, i32\n    %ats = tt.splat %at : !tt.ptr<f16> -> tensor<32x!tt.ptr<f16>>\n"
                                               "    %biases = tt.addptr %ats, %n : tensor<32x!tt.ptr<f16>>, tensor<32xi32>\n    %bias = tt.load %biases : tensor<32x!tt.ptr<f16>>\n"
                                               "    %wide = arith.extf %bias : tensor<32xf16> to tensor<32xf32>\n    %biasRow = tt.expand_dims %wide {axis = 0 : i32} : tensor<32xf32> -> tensor<1x32xf32>\n"
                                               "    %biasAll = tt.broadcast %biasRow : tensor<1x32xf32> -> tensor<16x32xf32>\n    %sum = arith.addf %d, %biasAll : tensor<16x32xf32>\n");
        }
        std::vector<uint16_t> a = halves(size_t(16 * K + 16), 1), b = halves(size_t(K * 32 + 32), 2);
        std::vector<float> expected(512), got(512);
        std::vector<InterpArg> args{InterpArg::pointer(a.data(), int64_t(16 * K * 2)), InterpArg::pointer(b.data(), int64_t(K * 32 * 2)),
                                    InterpArg::pointer(expected.data(), 2048), InterpArg::integer(K)};
        Status status = interpretTile(parse(text), args, {1, 1, 1});
        ASSERT_TRUE(bool(status)) << status.error().str();
        tt::FuncOp function = parse(text);
        ASSERT_EQ(pipelineLoops(function, chip_, 2, 3), 1);
        EXPECT_EQ(count<tt::LoadOp>(function), 0);
        EXPECT_EQ(count<ttg::LocalAllocOp>(function), 2 + before + behind);
        test::Outcome outcome = Block(function, chip_, 2).run({uint64_t(a.data()), uint64_t(b.data()), uint64_t(got.data()), uint64_t(K)});
        EXPECT_EQ(outcome.error, "") << block << ", K " << K << before << behind;
        EXPECT_EQ(expected, got) << block << ", K " << K << before << behind;
      }
}

TEST_F(Pipeline, LeftAlone) {
  // No cp.async; one stage.
  EXPECT_EQ(pipelineLoops(parse(matmul(16)), chip_, 4, 1), 0);
  // A load through the argument that the loop writes; the other one runs ahead.
  std::string text = matmul(16);
  text.insert(text.find("    %ap2 ="), "    tt.store %ap, %x : tensor<16x16x!tt.ptr<f16>>\n");
  tt::FuncOp written = parse(text);
  ASSERT_EQ(pipelineLoops(written, chip_, 4, 3), 1);
  EXPECT_EQ(count<ttg::LocalAllocOp>(written), 1);
  EXPECT_EQ(count<tt::LoadOp>(written), 1);
  // Updates by others may be waited for.
  text = matmul(16);
  text.insert(text.find("    %ap2 ="), "    %true = arith.constant true\n    %old = tt.atomic_rmw fadd, acq_rel, gpu, "
                                       "%c, %f, %true : (!tt.ptr<f32>, f32, i1) -> f32\n");
  text.insert(text.find("  %result:3 ="), "  %f = arith.constant 1.0 : f32\n");
  EXPECT_EQ(pipelineLoops(parse(text), chip_, 4, 3), 0);
  // Two bytes in a row are too few for cp.async: nothing is known of the pitch.
  text = matmul(16);
  text.replace(text.find("%K: i32 {tt.divisibility = 16 : i32}"), 36, "%K: i32");
  tt::FuncOp function = parse(text);
  ASSERT_EQ(pipelineLoops(function, chip_, 4, 3), 1);
  EXPECT_EQ(count<ttg::LocalAllocOp>(function), 1);
}

} // namespace
} // namespace neso::nvidia
