// Tiles that the machine copies as boxes of tensors: what is computed, in the interpreter over whole grids and on a
// simulated block under several orders of its warps and copies, is the product as a plain loop computes it; and nothing
// of the order can be left out. Operands are small, so that sums are exact in every order.
#include <unistd.h>

#include <filesystem>

#include "backend/nvidia/compile.h"
#include "backend/nvidia/test/boxes_fixture.h"
#include "llvm/IR/Instructions.h"

namespace neso::nvidia::test {
namespace {

constexpr Kernel kSmall{false, 64, 32, 32, 4, 3}, kSmallDescribed{true, 64, 32, 32, 4, 3}, kTwoGroups{false, 128, 32, 64, 8, 4},
    kTwoGroupsDescribed{true, 64, 128, 64, 8, 2}, kTwoSlots{false, 64, 64, 64, 4, 2},
    kBytes{true, 64, 32, 64, 4, 3, "f8E5M2"}, kTwoGroupsOfBytes{true, 64, 128, 256, 8, 2, "f8E4M3FN"};

TEST_F(Boxes, SameSumsInTheInterpreter) {
  for (const Kernel &k : {kSmall, kSmallDescribed, kTwoGroups, kTwoGroupsDescribed, kTwoSlots, kBytes, kTwoGroupsOfBytes})
    for (const Size &s : {Size{128, 64, 160}, Size{16, 16, 16}, Size{144, 112, 208}}) {
      SCOPED_TRACE(std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k) + " in " + std::to_string(k.bm));
      fill(k, s);
      tt::FuncOp function = pipelined(k);
      ASSERT_EQ(interpret(function, k, s), "");
      EXPECT_EQ(wanted_, got_);
      got_.assign(wanted_.size(), -12345);
      function = placedOf(k);
      Status verified = verifyPlaced(function, chip_);
      ASSERT_TRUE(bool(verified)) << verified.error().str();
      verified = verifyShared(function, chip_);
      ASSERT_TRUE(bool(verified)) << verified.error().str();
      ASSERT_EQ(interpret(function, k, s), "");
      EXPECT_EQ(wanted_, got_);
    }
}

TEST_F(Boxes, PrintsAndParses) {
  const std::string text = printTile(**(placedOf(kSmall), &module_));
  Result<mlir::OwningOpRef<mlir::ModuleOp>> again = parseTile(text, "again.ttir", context_.get());
  ASSERT_TRUE(bool(again)) << again.error().str();
  EXPECT_EQ(printTile(**again), text);
}

TEST_F(Boxes, SameSumsOnABlockInEveryOrder) {
  for (const Kernel &k : {kSmall, kSmallDescribed, kTwoGroups, kTwoGroupsDescribed, kTwoSlots, kBytes, kTwoGroupsOfBytes}) {
    const Size s{k.bm - 16, k.bn - 16, 5 * k.bk + 16};
    fill(k, s);
    tt::FuncOp function = placedOf(k);
    for (const Schedule &schedule : schedules(k.warps)) {
      SCOPED_TRACE(std::to_string(k.bm) + "x" + std::to_string(k.bn) + ", ahead " + std::to_string(schedule.ahead) + (schedule.early ? ", early" : ""));
      ASSERT_EQ(simulate(function, k, s, schedule), "");
      ASSERT_EQ(wanted_, got_);
    }
  }
}

// Of a block's columns those that do not count are not copied, and their places in shared memory are the next slot's.
constexpr Kernel kFewer{true, 64, 32, 64, 4, 3, "f16", 24}, kFewerOfTwoGroups{true, 128, 64, 64, 8, 4, "f16", 40}, kFewerBytes{true, 64, 64, 128, 4, 3, "f8E5M2", 48},
    kFewerOfAShortStep{true, 128, 32, 32, 4, 2, "f16", 8};

TEST_F(Boxes, OfColumnsThatCountAlone) {
  for (const Kernel &k : {kFewer, kFewerOfTwoGroups, kFewerBytes, kFewerOfAShortStep})
    for (const bool resident : {false, true}) {
      SCOPED_TRACE(std::to_string(k.bm) + "x" + std::to_string(k.columns) + (resident ? ", resident" : ""));
      const Size s{2 * k.bm - 16, 2 * k.bn - 16, 5 * k.bk + 16};
      fill(k, s);
      tt::FuncOp function = placedOf(k, Producers::None, resident);
      std::vector<int64_t> bytes;
      function.walk([&](ttg::LocalAllocOp ring) { bytes.push_back(slotBytes(ring)); });
      EXPECT_EQ(bytes, (std::vector<int64_t>{bytesOf(k) * k.bm * k.bk, bytesOf(k) * k.columns * k.bk}));
      Status verified = verifyPlaced(function, chip_);
      ASSERT_TRUE(bool(verified)) << verified.error().str();
      verified = verifyShared(function, chip_);
      ASSERT_TRUE(bool(verified)) << verified.error().str();
      ASSERT_EQ(interpret(function, k, s, resident ? 3 : 0), "");
      EXPECT_EQ(wanted_, got_);
      const Size one{k.bm - 16, k.bn - 16, 5 * k.bk + 16};
      fill(k, one);
      for (const Schedule &schedule : schedules(k.warps)) {
        ASSERT_EQ(simulate(function, k, one, schedule), "");
        ASSERT_EQ(wanted_, got_);
      }
      // Slots that hold fewer than products read are noticed.
      function.walk([&](tt::DotOp dot) { dot->removeAttr("tt.valid_n"); });
      verified = verifyPlaced(function, chip_);
      ASSERT_FALSE(bool(verified));
      EXPECT_NE(verified.error().str().find("N14"), std::string::npos) << verified.error().str();
    }
  // Of B with N side by side, and of tiles of two panels along K, a part is no beginning.
  for (const Kernel &k : {Kernel{false, 64, 128, 64, 4, 3, "f16", 96}, Kernel{true, 64, 32, 128, 4, 2, "f16", 24}})
    placedOf(k).walk([&](ttg::LocalAllocOp ring) { EXPECT_FALSE(ring->hasAttr("ttg.rows")); });
}

TEST_F(Boxes, FedByWarpsOfTheirOwn) {
  for (const Kernel &k : {kSmall, kSmallDescribed, kTwoGroups, kTwoGroupsDescribed, kTwoSlots, kBytes}) {
    const Size s{k.bm - 16, k.bn - 16, 5 * k.bk + 16};
    fill(k, s);
    tt::FuncOp function = placedOf(k, Producers::All);
    ASSERT_TRUE(producerOf(function));
    Status verified = verifyPlaced(function, chip_);
    ASSERT_TRUE(bool(verified)) << verified.error().str();
    verified = verifyShared(function, chip_);
    ASSERT_TRUE(bool(verified)) << verified.error().str();
    ASSERT_EQ(interpret(function, k, s), "");
    EXPECT_EQ(wanted_, got_);
    std::vector<Schedule> orders = schedules(k.warps);
    orders.push_back({k.warps / 4, false, true}), orders.push_back({k.warps / 4, true, true});
    for (const Schedule &schedule : orders) {
      SCOPED_TRACE(std::to_string(k.bm) + "x" + std::to_string(k.bn) + ", ahead " + std::to_string(schedule.ahead) + (schedule.early ? ", early" : ""));
      ASSERT_EQ(simulate(function, k, s, schedule), "");
      ASSERT_EQ(wanted_, got_);
    }
  }
  // Where a loop's products do not follow one another none is made of them, unless it is asked for.
  EXPECT_FALSE(producerOf(placedOf(kTwoGroups, Producers::Rotated)));
}

TEST_F(Boxes, NothingOfTheOrderCanBeLeftOut) {
  struct Form {
    Kernel kernel;
    Producers producer;
  };
  for (const auto &[k, producer] : {Form{kTwoGroups, Producers::None}, Form{kTwoSlots, Producers::None}, Form{kTwoGroups, Producers::All}}) {
    const Size s{k.bm, k.bn, 6 * k.bk};
    fill(k, s);
    tt::FuncOp function = placedOf(k, producer);
    std::vector<Schedule> orders = schedules(k.warps);
    if (producer != Producers::None) orders.push_back({2, false, true}), orders.push_back({2, true, true});
    const size_t count = expectNoneCanBeLeftOut(orderOf, [&](auto change) { return isNoticed(function, k, s, orders, change); });
    EXPECT_GT(count, 15u);
  }
}

// The verifier knows nothing of the simulator.
TEST_F(Boxes, TheVerifierNoticesWhatIsLeftOut) {
  auto refused = [&](const Kernel &k, auto change) {
    tt::FuncOp function = placedOf(k);
    EXPECT_TRUE(bool(verifyPlaced(function, chip_)));
    change(function);
    Status status = verifyPlaced(function, chip_);
    return !status && status.error().str().find("N13") != std::string::npos;
  };
  for (const Kernel &k : {kTwoGroups, kTwoSlots}) {
    auto inLoop = [](mlir::Operation *op) { return bool(op->getParentOfType<mlir::scf::ForOp>()); };
    auto inRegion = [](mlir::Operation *op) { return bool(op->getParentOfType<ttg::ByOneThreadOp>()); };
    auto erase = [&](auto which) {
      return [which](tt::FuncOp f) {
        std::vector<mlir::Operation *> found;
        f.walk([&](mlir::Operation *op) {
          if (which(op)) found.push_back(op);
        });
        EXPECT_FALSE(found.empty());
        for (mlir::Operation *op : found) op->erase();
      };
    };
    EXPECT_TRUE(refused(k, erase([&](mlir::Operation *op) { return llvm::isa<ttg::AwaitOp>(op) && inRegion(op); })));
    EXPECT_TRUE(refused(k, erase([&](mlir::Operation *op) { return llvm::isa<ttg::AwaitOp>(op) && !inRegion(op); })));
    EXPECT_TRUE(refused(k, erase([&](mlir::Operation *op) { return llvm::isa<ttg::ArriveOp>(op); })));
    EXPECT_TRUE(refused(k, erase([&](mlir::Operation *op) { return llvm::isa<ttg::ExpectOp>(op) && inLoop(op); })));
    EXPECT_TRUE(refused(k, erase([&](mlir::Operation *op) { return llvm::isa<ttg::EndBarriersOp>(op); })));
    EXPECT_TRUE(refused(k, [](tt::FuncOp f) { f.walk([](ttg::ExpectOp op) { op.setBytes(op.getBytes() / 2); }); }));
    EXPECT_TRUE(refused(k, [](tt::FuncOp f) { f.walk([](ttg::BarriersOp op) { op.setArrivals(op.getArrivals() + 1); }); }));
    EXPECT_TRUE(refused(k, [](tt::FuncOp f) {
      f.walk([](ttg::ArriveOp op) {
        mlir::Operation *product = op->getPrevNode();
        while (!llvm::isa<tt::DotOp, placed::WaitProductsOp>(product)) product = product->getPrevNode();
        product->moveAfter(op);
      });
    }));
  }
}

TEST_F(Boxes, OthersAreCopiedByThreads) {
  const std::string gemm = textOf(kSmall), described = textOf(kSmallDescribed);
  EXPECT_EQ(why(gemm, 4), "");
  EXPECT_EQ(why(described, 4), "");
  auto changed = [](std::string text, const std::string &from, const std::string &to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  // Rows modulo another size than the one under which they are stored.
  EXPECT_EQ(why(changed(gemm, "%18 = tt.splat %M", "%18 = tt.splat %K"), 4), "a remainder whose rows are stored");
  EXPECT_EQ(why(changed(gemm, "arith.cmpi slt, %48, %57", "arith.cmpi sle, %48, %57"), 4), "a remainder whose rows are stored");
  EXPECT_EQ(why(changed(gemm, "arith.remsi %17", "arith.divsi %17"), 4), "an address that is no sum of products");
  EXPECT_EQ(why(gemm, 2), "tiles that no product reads whole");
  // The border runs another way than the address.
  EXPECT_EQ(why(changed(gemm, "arith.subi %K, ", "arith.addi %K, "), 4), "an address that its mask does not follow");
}

// As products of models are written: no borders, and which program it is by numbers without a sign.
constexpr const char *kPlain = R"(
    tt.func public @plain(%a: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %b: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %c: !tt.ptr<f32> {tt.divisibility = 16 : i32}) {
      %c64 = arith.constant 64 : i32
      %c8 = arith.constant 8 : i32
      %c0 = arith.constant 0 : i32
      %c256 = arith.constant 256 : i32
      %zeros = arith.constant dense<0.000000e+00> : tensor<64x64xf32>
      %pitches = arith.constant dense<256> : tensor<64x1xi32>
      %turned = arith.constant dense<256> : tensor<1x64xi32>
      %p = tt.get_program_id x : i32
      %pm = arith.remui %p, %c8 : i32
      %pn = arith.divui %p, %c8 : i32
      %m0 = arith.muli %c64, %pm overflow<nsw> : i32
      %n0 = arith.muli %c64, %pn overflow<nsw> : i32
      %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
      %rows = tt.expand_dims %r {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
      %columns = tt.expand_dims %r {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
      %ms = tt.splat %m0 : i32 -> tensor<64x1xi32>
      %m = arith.addi %ms, %rows overflow<nsw> : tensor<64x1xi32>
      %ns = tt.splat %n0 : i32 -> tensor<1x64xi32>
      %n = arith.addi %ns, %columns overflow<nsw> : tensor<1x64xi32>
      %am = arith.muli %m, %pitches overflow<nsw> : tensor<64x1xi32>
      %bn = arith.muli %n, %turned overflow<nsw> : tensor<1x64xi32>
      %sum = scf.for %k = %c0 to %c256 step %c64 iter_args(%s = %zeros) -> (tensor<64x64xf32>) : i32 {
        %ks = tt.splat %k : i32 -> tensor<1x64xi32>
        %ka = arith.addi %ks, %columns overflow<nsw> : tensor<1x64xi32>
        %kt = tt.splat %k : i32 -> tensor<64x1xi32>
        %kb = arith.addi %kt, %rows overflow<nsw> : tensor<64x1xi32>
        %a1 = tt.broadcast %am : tensor<64x1xi32> -> tensor<64x64xi32>
        %a2 = tt.broadcast %ka : tensor<1x64xi32> -> tensor<64x64xi32>
        %a3 = arith.addi %a1, %a2 overflow<nsw> : tensor<64x64xi32>
        %a4 = tt.splat %a : !tt.ptr<bf16> -> tensor<64x64x!tt.ptr<bf16>>
        %a5 = tt.addptr %a4, %a3 : tensor<64x64x!tt.ptr<bf16>>, tensor<64x64xi32>
        %x = tt.load %a5 : tensor<64x64x!tt.ptr<bf16>>
        %b1 = tt.broadcast %kb : tensor<64x1xi32> -> tensor<64x64xi32>
        %b2 = tt.broadcast %bn : tensor<1x64xi32> -> tensor<64x64xi32>
        %b3 = arith.addi %b1, %b2 overflow<nsw> : tensor<64x64xi32>
        %b4 = tt.splat %b : !tt.ptr<bf16> -> tensor<64x64x!tt.ptr<bf16>>
        %b5 = tt.addptr %b4, %b3 : tensor<64x64x!tt.ptr<bf16>>, tensor<64x64xi32>
        %y = tt.load %b5 : tensor<64x64x!tt.ptr<bf16>>
        %d = tt.dot %x, %y, %s : tensor<64x64xbf16> * tensor<64x64xbf16> -> tensor<64x64xf32>
        scf.yield %d : tensor<64x64xf32>
      }
      %o1 = tt.broadcast %am : tensor<64x1xi32> -> tensor<64x64xi32>
      %o2 = tt.broadcast %n : tensor<1x64xi32> -> tensor<64x64xi32>
      %o3 = arith.addi %o1, %o2 : tensor<64x64xi32>
      %o4 = tt.splat %c : !tt.ptr<f32> -> tensor<64x64x!tt.ptr<f32>>
      %o5 = tt.addptr %o4, %o3 : tensor<64x64x!tt.ptr<f32>>, tensor<64x64xi32>
      tt.store %o5, %sum : tensor<64x64x!tt.ptr<f32>>
      tt.return
    })";

TEST_F(Boxes, OfTensorsWithoutBorders) {
  EXPECT_EQ(why(kPlain, 4), "");
  // A remainder of what may be negative as a number with a sign is.
  std::string negative = kPlain;
  const std::string from = "arith.remui %p, %c8";
  negative.replace(negative.find(from), from.size(), "arith.subi %p, %c8");
  EXPECT_EQ(why(negative, 4), "an index that may be negative");
  // Their sizes are all that an index can be, their pitches constants.
  if (!findAssembler()) GTEST_SKIP() << "no ptxas is found";
  parse(kPlain);
  CompileOptions options;
  options.boxes = BoxForms::Faster;
  Result<CompiledModule> code = compileForNvidia({{*module_->getOps<tt::FuncOp>().begin(), "plain", 4, 3}}, chip_, options);
  ASSERT_TRUE(bool(code)) << code.error().str();
  ASSERT_TRUE(code->code.front().functions[0].boxed);
  for (const BoxedTensor &t : code->code.front().functions[0].boxed->tensors) {
    EXPECT_EQ(t.sizes, (std::vector<Expr>{INT32_MAX, INT32_MAX}));
    EXPECT_EQ(t.pitches, std::vector<Expr>{256});
    EXPECT_EQ(t.box, (std::vector<int>{64, 64}));
  }
}

// The same with indices of 64 bits, of which a copy has 32: rows of A below %m, columns of B without a border, B `pitch` elements from column to column.
std::string wideText(const std::string &blockOfColumns, const std::string &pitch) {
  std::string text = R"(
    tt.func public @wide(%a: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %b: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %c: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %m: i64, %p: i64 {tt.divisibility = 16 : i32}) {
      %c64 = arith.constant 64 : i64
      %c63 = arith.constant 63 : i64
      %c7 = arith.constant 7 : i64
      %c8 = arith.constant 8 : i64
      %c0 = arith.constant 0 : i64
      %c256 = arith.constant 256 : i64
      %c4096 = arith.constant 4096 : i64
      %zeros = arith.constant dense<0.000000e+00> : tensor<64x64xf32>
      %none = arith.constant dense<0.000000e+00> : tensor<64x64xbf16>
      %id = tt.get_program_id x : i32
      %program = arith.extsi %id : i32 to i64
      %m63 = arith.addi %m, %c63 overflow<nsw> : i64
      %blocks = arith.divui %m63, %c64 : i64
      %pm = arith.remui %program, %blocks : i64
      %left = arith.divui %program, %blocks : i64
      %pn = BLOCK : i64
      %m0 = arith.muli %c64, %pm overflow<nsw> : i64
      %n0 = arith.muli %c64, %pn overflow<nsw> : i64
      %r32 = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
      %r = arith.extsi %r32 : tensor<64xi32> to tensor<64xi64>
      %rows = tt.expand_dims %r {axis = 1 : i32} : tensor<64xi64> -> tensor<64x1xi64>
      %columns = tt.expand_dims %r {axis = 0 : i32} : tensor<64xi64> -> tensor<1x64xi64>
      %ms = tt.splat %m0 : i64 -> tensor<64x1xi64>
      %at = arith.addi %ms, %rows overflow<nsw> : tensor<64x1xi64>
      %ns = tt.splat %n0 : i64 -> tensor<1x64xi64>
      %n = arith.addi %ns, %columns overflow<nsw> : tensor<1x64xi64>
      %msize = tt.splat %m : i64 -> tensor<64x1xi64>
      %below = arith.cmpi slt, %at, %msize : tensor<64x1xi64>
      %mask = tt.broadcast %below : tensor<64x1xi1> -> tensor<64x64xi1>
      %pitches = tt.splat %c256 : i64 -> tensor<64x1xi64>
      %turned = tt.splat PITCH : i64 -> tensor<1x64xi64>
      %am = arith.muli %at, %pitches overflow<nsw> : tensor<64x1xi64>
      %bn = arith.muli %n, %turned overflow<nsw> : tensor<1x64xi64>
      %sum = scf.for %k = %c0 to %c256 step %c64 iter_args(%s = %zeros) -> (tensor<64x64xf32>) : i64 {
        %ks = tt.splat %k : i64 -> tensor<1x64xi64>
        %ka = arith.addi %ks, %columns overflow<nsw> : tensor<1x64xi64>
        %kt = tt.splat %k : i64 -> tensor<64x1xi64>
        %kb = arith.addi %kt, %rows overflow<nsw> : tensor<64x1xi64>
        %a1 = tt.broadcast %am : tensor<64x1xi64> -> tensor<64x64xi64>
        %a2 = tt.broadcast %ka : tensor<1x64xi64> -> tensor<64x64xi64>
        %a3 = arith.addi %a1, %a2 overflow<nsw> : tensor<64x64xi64>
        %a4 = tt.splat %a : !tt.ptr<bf16> -> tensor<64x64x!tt.ptr<bf16>>
        %a5 = tt.addptr %a4, %a3 : tensor<64x64x!tt.ptr<bf16>>, tensor<64x64xi64>
        %x = tt.load %a5, %mask, %none : tensor<64x64x!tt.ptr<bf16>>
        %b1 = tt.broadcast %kb : tensor<64x1xi64> -> tensor<64x64xi64>
        %b2 = tt.broadcast %bn : tensor<1x64xi64> -> tensor<64x64xi64>
        %b3 = arith.addi %b1, %b2 overflow<nsw> : tensor<64x64xi64>
        %b4 = tt.splat %b : !tt.ptr<bf16> -> tensor<64x64x!tt.ptr<bf16>>
        %b5 = tt.addptr %b4, %b3 : tensor<64x64x!tt.ptr<bf16>>, tensor<64x64xi64>
        %y = tt.load %b5 : tensor<64x64x!tt.ptr<bf16>>
        %d = tt.dot %x, %y, %s : tensor<64x64xbf16> * tensor<64x64xbf16> -> tensor<64x64xf32>
        scf.yield %d : tensor<64x64xf32>
      }
      %o1 = tt.broadcast %am : tensor<64x1xi64> -> tensor<64x64xi64>
      %o2 = tt.broadcast %n : tensor<1x64xi64> -> tensor<64x64xi64>
      %o3 = arith.addi %o1, %o2 : tensor<64x64xi64>
      %o4 = tt.splat %c : !tt.ptr<f32> -> tensor<64x64x!tt.ptr<f32>>
      %o5 = tt.addptr %o4, %o3 : tensor<64x64x!tt.ptr<f32>>, tensor<64x64xi64>
      tt.store %o5, %sum, %mask : tensor<64x64x!tt.ptr<f32>>
      tt.return
    })";
  text.replace(text.find("BLOCK"), 5, blockOfColumns);
  return text.replace(text.find("PITCH"), 5, pitch);
}

TEST_F(Boxes, IndicesOf64BitsHaveABorderOrFit32) {
  const std::string open = "arith.addi %left, %c0", bounded = "arith.minsi %left, %c7";
  EXPECT_EQ(why(wideText(bounded, "%c256"), 4), "");
  EXPECT_EQ(why(wideText("arith.remui %left, %c8", "%c256"), 4), "");
  // No memory has 2^31 rows of 8,192 bytes, nor 2^31 blocks of 64 rows of 512 bytes; of rows of 16 bytes it may have them.
  EXPECT_EQ(why(wideText(open, "%c4096"), 4), "");
  EXPECT_EQ(why(wideText(open, "%c256"), 4), "");
  EXPECT_EQ(why(wideText(open, "%c8"), 4), "an index of 64 bits without a border");
  // Where an argument says how far they lie apart, a launch has a tensor of no size if that is too near: it cannot be described.
  if (!findAssembler()) GTEST_SKIP() << "no ptxas is found";
  parse(wideText(open, "%p"));
  CompileOptions options;
  options.boxes = BoxForms::Faster;
  Result<CompiledModule> code = compileForNvidia({{*module_->getOps<tt::FuncOp>().begin(), "wide", 4, 3}}, chip_, options);
  ASSERT_TRUE(bool(code)) << code.error().str();
  ASSERT_TRUE(code->code.front().functions[0].boxed);
  const Expr m = Symbol::of(Symbol::Kind::Argument, 3), pitch = Symbol::of(Symbol::Kind::Argument, 4);
  const Expr times = floorDiv(max(pitch, 0), 2048) - floorDiv(max(Expr(0) - pitch, 0), 2048);
  for (const BoxedTensor &t : code->code.front().functions[0].boxed->tensors) {
    EXPECT_EQ(t.sizes, t.argument == 0 ? (std::vector<Expr>{m, INT32_MAX}) : (std::vector<Expr>{min(times, 1) * INT32_MAX, INT32_MAX}));
    EXPECT_EQ(t.pitches, std::vector<Expr>{t.argument == 0 ? Expr(256) : pitch});
  }
}

// ---- a form of the kernel beside the usual one

/// The functions of a text, each with four or eight warps.
Result<CompiledModule> compiled(mlir::ModuleOp module, int warps, const CompileOptions &options) {
  std::vector<TileFunction> functions;
  for (tt::FuncOp f : module.getOps<tt::FuncOp>()) functions.push_back({f, f.getName().str(), warps, 3});
  return compileForNvidia(functions, *findChip("sm_90a"), options);
}

TEST_F(Boxes, AFormBesideTheUsualOne) {
  if (!findAssembler()) GTEST_SKIP() << "no ptxas is found";
  CompileOptions options;
  for (BoxForms boxes : {BoxForms::None, BoxForms::Faster, BoxForms::All})
    for (const Kernel &k : {Kernel{false, 128, 128, 64, 8, 3}, Kernel{false, 128, 256, 64, 8, 3}, Kernel{true, 128, 128, 64, 8, 3}, Kernel{true, 128, 256, 64, 8, 3},
                            Kernel{true, 128, 128, 128, 8, 3, "f8E4M3FN"}}) {
      SCOPED_TRACE(std::to_string(int(boxes)) + " " + std::to_string(k.bn));
      parse(textOf(k));
      options.boxes = boxes;
      Result<CompiledModule> code = compiled(*module_, k.warps, options);
      ASSERT_TRUE(bool(code)) << code.error().str();
      const CompiledFunction &own = code->code.front().functions[0];
      EXPECT_FALSE(code->code.back().functions[0].boxed); // PTX for later chips
      EXPECT_EQ(own.boxed.has_value(), boxes == BoxForms::All || (boxes == BoxForms::Faster && (k.bn < 256 || k.described)));
      const std::string &said = code->usage[0].products;
      EXPECT_EQ(said.find("once more in code whose tiles the machine copies") != std::string::npos, own.boxed.has_value()) << said;
      if (!own.boxed) continue;
      EXPECT_EQ(own.boxed->symbol, own.symbol + "_boxes");
      EXPECT_EQ(own.boxed->spillBytes, 0);
      EXPECT_GT(own.boxed->registers, 0);
      EXPECT_EQ(own.boxed->threads, own.threads);
      // (a, b, c, M, N, K): A is [M, K], B [K, N] or [N, K], rows of 128 bytes at most.
      const Expr m = Symbol::of(Symbol::Kind::Argument, 3), n = Symbol::of(Symbol::Kind::Argument, 4), depth = Symbol::of(Symbol::Kind::Argument, 5);
      ASSERT_EQ(own.boxed->tensors.size(), 2u);
      for (const BoxedTensor &t : own.boxed->tensors) {
        const bool isA = t.argument == 0;
        EXPECT_TRUE(isA || t.argument == 1);
        EXPECT_EQ(t.itemBytes, bytesOf(k));
        const std::vector<Expr> sizes = isA ? std::vector<Expr>{m, depth} : k.described ? std::vector<Expr>{n, depth} : std::vector<Expr>{depth, n};
        EXPECT_EQ(t.sizes, sizes);
        EXPECT_EQ(t.pitches, std::vector<Expr>{sizes[1]});
        EXPECT_EQ(t.box, (std::vector<int>{isA ? k.bm : k.described ? k.bn : k.bk, 128 / bytesOf(k)}));
      }
    }
}

// What the assembler says of one function changes that function alone. (A script says it of one whose code has wgmma.)
TEST_F(Boxes, FunctionsWhoseProductsWaitAreMadeAgainAlone) {
  std::optional<std::string> ptxas = findAssembler();
  if (!ptxas) GTEST_SKIP() << "no ptxas is found";
  const std::filesystem::path script = std::filesystem::path(testing::TempDir()) / ("waiting_ptxas_" + std::to_string(getpid()));
  // One of several notices says "function", another "the function".
  const char *article = " in function '";
  const auto saysOf = [&](const std::string &symbol) {
    std::ofstream(script) << "#!/bin/sh\nfor argument in \"$@\"; do case $argument in *.ptx) in=$argument ;; esac; done\n"
                          << "awk '/[.]entry/ { inside = /" << symbol << "[(]/ } inside && /wgmma.mma_async/ { found = 1 } END { exit !found }' \"$in\" &&\n"
                          << "echo \"ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a test"
                          << (symbol.empty() ? "" : article + symbol + "'") << "\"\nexec " << *ptxas << " \"$@\"\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  };
  const Kernel k{false, 64, 64, 64, 4, 3};
  std::string one = textOf(k), two = one;
  two.replace(two.find("@gemm"), 5, "@other");
  // One module of both.
  const size_t begin = two.find("tt.func"), end = two.rfind('}');
  one.insert(one.rfind('}'), two.substr(begin, end - begin));
  CompileOptions options;
  options.ptxas = script.string(), options.keepPtx = true;
  for (const char *slow : {"neso_k_gemm", "neso_k_other", "neso_k_other_boxes", ""}) {
    SCOPED_TRACE(slow);
    article = article == std::string(" in function '") ? " in the function '" : " in function '";
    saysOf(slow);
    parse(one);
    options.boxes = BoxForms::All;
    Result<CompiledModule> code = compiled(*module_, k.warps, options);
    ASSERT_TRUE(bool(code)) << code.error().str();
    EXPECT_NE(code->serialised, "");
    const bool all = !*slow;
    ASSERT_EQ(code->code.front().target, all ? "sm_90" : "sm_90a");
    ASSERT_EQ(code->usage.size(), 2u);
    for (size_t i : {0, 1}) {
      const CompiledFunction &f = code->code.front().functions[i];
      const bool isSlow = all || f.symbol == slow;
      EXPECT_EQ(code->usage[i].products.find("wgmma") == 0, !isSlow) << code->usage[i].products;
      // The form whose copies run ahead over programs is made again as one without.
      ASSERT_EQ(f.boxed.has_value(), !all);
      if (f.boxed) EXPECT_EQ(f.boxed->resident, slow != f.symbol + "_boxes");
    }
  }
  std::filesystem::remove(script);
}

} // namespace
} // namespace neso::nvidia
