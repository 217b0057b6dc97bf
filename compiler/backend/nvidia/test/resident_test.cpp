// Blocks that take one program after another (passes/resident.h): what is computed, in the interpreter by any number of blocks and by one simulated block
// under several orders of its warps and copies, is the product as a plain loop computes it; and nothing of the order can be left out.
#include "backend/nvidia/test/boxes_fixture.h"

namespace neso::nvidia::test {
namespace {

using Resident = Boxes;

constexpr Kernel kSmall{false, 64, 32, 32, 4, 3}, kSmallDescribed{true, 64, 32, 32, 4, 3}, kTwoGroups{false, 128, 32, 64, 8, 4},
    kTwoGroupsDescribed{true, 64, 128, 64, 8, 2}, kWaited{false, 64, 64, 64, 4, 2}, kBytes{true, 64, 32, 64, 4, 3, "f8E5M2"};

TEST_F(Resident, SameSumsByAnyNumberOfBlocks) {
  for (const Kernel &k : {kSmall, kSmallDescribed, kTwoGroups, kTwoGroupsDescribed, kWaited, kBytes})
    for (const Size &s : {Size{128, 64, 160}, Size{16, 16, 16}, Size{144, 112, 208}}) {
      SCOPED_TRACE(std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k) + " in " + std::to_string(k.bm));
      fill(k, s);
      tt::FuncOp function = placedOf(k, Producers::None, true);
      ASSERT_TRUE(function->hasAttr(placed::kResidentAttr));
      Status verified = verifyPlaced(function, chip_);
      ASSERT_TRUE(bool(verified)) << verified.error().str();
      verified = verifyShared(function, chip_);
      ASSERT_TRUE(bool(verified)) << verified.error().str();
      for (int64_t blocks : {1, 2, 3, 100}) {
        got_.assign(wanted_.size(), -12345);
        ASSERT_EQ(interpret(function, k, s, blocks), "");
        EXPECT_EQ(wanted_, got_) << blocks;
      }
    }
}

TEST_F(Resident, SameSumsOnABlockInEveryOrder) {
  for (const Kernel &k : {kSmall, kSmallDescribed, kTwoGroups, kTwoGroupsDescribed, kWaited, kBytes})
    // Programs of several turns, of fewer than copies run ahead, and of one.
    for (int turns : {5, 1, 0}) {
      const Size s{2 * k.bm - 16, 2 * k.bn - 16, turns * k.bk + 16};
      fill(k, s);
      tt::FuncOp function = placedOf(k, Producers::None, true);
      for (const Schedule &schedule : schedules(k.warps)) {
        SCOPED_TRACE(std::to_string(k.bm) + "x" + std::to_string(k.bn) + ", turns " + std::to_string(turns) + ", ahead " + std::to_string(schedule.ahead) +
                     (schedule.early ? ", early" : ""));
        ASSERT_EQ(simulate(function, k, s, schedule), "");
        ASSERT_EQ(wanted_, got_);
      }
    }
}

TEST_F(Resident, NothingOfTheOrderCanBeLeftOut) {
  for (const Kernel &k : {kTwoGroups, kWaited}) {
    const Size s{4 * k.bm, k.bn, 3 * k.bk};
    fill(k, s);
    tt::FuncOp function = placedOf(k, Producers::None, true);
    ASSERT_EQ(simulate(function, k, s, schedules(k.warps)[0]), "");
    const size_t count = expectNoneCanBeLeftOut(orderOf, [&](auto change) { return isNoticed(function, k, s, schedules(k.warps), change); });
    EXPECT_GT(count, 15u);
  }
}

// The verifier knows nothing of the simulator.
TEST_F(Resident, TheVerifierNoticesWhatIsLeftOut) {
  for (const Kernel &k : {kTwoGroups, kWaited}) {
    auto refused = [&](llvm::function_ref<bool(mlir::Operation *)> which) {
      tt::FuncOp function = placedOf(k, Producers::None, true);
      EXPECT_TRUE(bool(verifyPlaced(function, chip_)));
      std::vector<mlir::Operation *> found;
      function.walk([&](mlir::Operation *op) {
        if (which(op)) found.push_back(op);
      });
      EXPECT_FALSE(found.empty());
      for (mlir::Operation *op : found) op->erase();
      Status status = verifyPlaced(function, chip_);
      return !status && status.error().str().find("N13") != std::string::npos;
    };
    auto inTurn = [](mlir::Operation *op) {
      auto loop = op->getParentOfType<mlir::scf::ForOp>();
      return loop && loop->getParentOfType<mlir::scf::ForOp>();
    };
    // What a program's last turn leaves, where products are under way over turns, is said behind its loop.
    if (k.warps == kTwoGroups.warps) EXPECT_TRUE(refused([&](mlir::Operation *op) { return llvm::isa<ttg::ArriveOp>(op) && !inTurn(op); }));
    EXPECT_TRUE(refused([&](mlir::Operation *op) { return llvm::isa<ttg::ArriveOp>(op) && inTurn(op); }));
    EXPECT_TRUE(refused([&](mlir::Operation *op) { return llvm::isa<ttg::AwaitOp>(op) && op->getParentOfType<ttg::ByOneThreadOp>(); }));
    EXPECT_TRUE(refused([&](mlir::Operation *op) { return llvm::isa<ttg::AwaitOp>(op) && !op->getParentOfType<ttg::ByOneThreadOp>(); }));
  }
}

// Where results are stored with fewer bits than sums have, they go through shared memory that rings leave no room for, or by shuffles.
TEST_F(Resident, ResultsByShufflesLeaveRingsTheirRoom) {
  auto ofHalves = [&](const Kernel &k, Exchange exchange) {
    std::string text = textOf(k);
    for (size_t at; (at = text.find("ptr<f32>")) != std::string::npos;) text.replace(at, 8, "ptr<f16>");
    const std::string tile = std::to_string(k.bm) + "x" + std::to_string(k.bn);
    const std::string store = "tt.store %56, %47#2";
    text.replace(text.find(store), store.size(), "%half = arith.truncf %47#2 : tensor<" + tile + "xf32> to tensor<" + tile + "xf16>\n    tt.store %56, %half");
    tt::FuncOp function = parse(text);
    PipelineOptions options;
    options.boxes = options.resident = true, options.stages = k.stages;
    EXPECT_EQ(pipelineLoops(function, chip_, k.warps, options), 1);
    Status placed = placeTensors(function, chip_, k.warps, exchange);
    EXPECT_TRUE(bool(placed)) << placed.error().str();
    shared_ = allocateShared(function, chip_).bytes;
    return function;
  };
  const Kernel large{false, 128, 256, 64, 8, 3};
  ofHalves(large, Exchange::Cheapest);
  EXPECT_GT(shared_, chip_.sharedPerBlock);
  ofHalves(large, Exchange::InWarps);
  EXPECT_LE(shared_, chip_.sharedPerBlock);
  for (const Kernel &k : {kSmall, kTwoGroups}) {
    const Size s{2 * k.bm - 16, k.bn, 3 * k.bk};
    fill(k, s);
    tt::FuncOp function = ofHalves(k, Exchange::InWarps);
    function.walk([](placed::ConvertLayoutOp op) { EXPECT_FALSE(op->hasAttr(placed::kSharedAttr)); });
    ASSERT_EQ(simulate(function, k, s, {-1, false, true}), "");
    const std::vector<uint8_t> wanted = stored(wanted_, k);
    EXPECT_EQ(std::memcmp(wanted.data(), got_.data(), wanted.size()), 0);
  }
}

// Programs that wait for one another must not come one after another, and those whose loops differ are not known ahead.
TEST_F(Resident, OthersHaveBlocksOfTheirOwn) {
  auto isResident = [&](std::string text, const std::string &from, const std::string &to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    tt::FuncOp function = parse(text.replace(at, from.size(), to));
    PipelineOptions options;
    options.boxes = options.resident = true;
    EXPECT_EQ(pipelineLoops(function, chip_, 4, options), 1);
    EXPECT_EQ(function.getNumArguments(), function->hasAttr(placed::kResidentAttr) ? 9u : 6u);
    return function->hasAttr(placed::kResidentAttr);
  };
  const std::string gemm = textOf(kSmall);
  EXPECT_TRUE(isResident(gemm, "tt.return", "tt.return"));
  EXPECT_FALSE(isResident(gemm, "tt.return", "ttg.barrier local\n    tt.return"));
  EXPECT_FALSE(isResident(gemm, "tt.return", "%seen = tt.load %c_ptr {isVolatile = true} : !tt.ptr<f32>\n    tt.return"));
  EXPECT_TRUE(isResident(gemm, "tt.return", "%seen = tt.load %c_ptr : !tt.ptr<f32>\n    tt.return"));
  EXPECT_FALSE(isResident(gemm, "tt.return", "%own = tt.get_program_id x : i32\n    %zero = arith.constant 0 : i32\n    %some = arith.cmpi sgt, %own, %zero : i32\n"
                                             "    tt.assert %some, \"first\" : i1\n    tt.return"));
}

} // namespace
} // namespace neso::nvidia::test
