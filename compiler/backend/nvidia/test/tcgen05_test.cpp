// Products by tcgen05 on the simulated block, whose descriptors, tensor memory and order follow the PTX ISA and not our layouts, and by the assembler.
// No chip that has it was at hand. Operands are small, so that sums are exact in every order.
#include "backend/nvidia/compile.h"
#include "backend/nvidia/tcgen05.h"
#include "backend/nvidia/test/boxes_fixture.h"
#include "backend/nvidia/test/products_fixture.h"

namespace neso::nvidia::test {
namespace {

constexpr const char *kChip = "sm_100a", *kE4m3 = "f8E4M3FN", *kE5m2 = "f8E5M2";

class Tcgen05 : public Products {
protected:
  Tcgen05() : Products(kChip) {}
};
class Tcgen05Boxes : public Boxes {
protected:
  Tcgen05Boxes() : Boxes(kChip) {}
};

// Every kind, in every way to lie that it has; rows and columns shared by groups; of wider tiles the first columns.
TEST_F(Tcgen05, SameSumsAsTheInterpreter) {
  for (Shape s : {Shape{128, 64, 64, 4}, Shape{128, 64, 64, 4, false, true}, Shape{128, 16, 32, 4}, Shape{128, 64, 64, 4, true, false}, Shape{128, 64, 32, 4, true, true},
                  Shape{128, 128, 16, 8, false, true}, Shape{256, 32, 32, 8}, Shape{256, 64, 32, 4, true, false}, Shape{256, 64, 64, 8, false, true},
                  Shape{128, 64, 128, 4, false, true, false, kE4m3, kE4m3}, Shape{128, 64, 64, 8, false, true, false, kE4m3, kE5m2},
                  Shape{128, 32, 32, 4, false, true, false, kE5m2, kE4m3}, Shape{128, 64, 256, 8, false, true, false, kE5m2, kE5m2},
                  Shape{128, 64, 32, 4, false, true, false, "f32", "f32"}, Shape{256, 32, 64, 8, false, true, false, "f32", "f32"},
                  Shape{128, 64, 128, 4, false, true, false, "i8", "i8"}, Shape{128, 128, 32, 8, false, true, false, "i8", "i8"}})
    for (const bool once : {false, true})
      for (const int columns : {0, s.n * 3 / 4})
        // With few slots products are waited for, with more they stay under way.
        for (const int stages : {2, 4}) {
          s.once = once, s.columns = s.a == "f16" ? columns : 0;
          if ((columns && s.a != "f16") || (once && stages == 2)) continue;
          SCOPED_TRACE(std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k) + ", " + std::to_string(s.warps) + " warps, stages " + std::to_string(stages) +
                       (once ? ", once, " : ", ") + s.a + ", " + s.b + ", columns " + std::to_string(s.columns));
          const int K = once ? s.k : 5 * s.k;
          const std::vector<float> wanted = expected(s, K);
          std::vector<float> got(wanted.size());
          tt::FuncOp function = place(s, stages);
          verify(function);
          EXPECT_EQ(simulate(function, s, K, got), "");
          for (int i = 0; i < s.m * s.n; ++i)
            if (!s.columns || i % s.n < s.columns) ASSERT_EQ(wanted[size_t(i)], got[size_t(i)]) << i / s.n << ", " << i % s.n;
        }
}

TEST_F(Tcgen05, LoopsWithoutTurnsAndShortOnes) {
  const Shape s{128, 64, 64, 4, false, true};
  for (const int turns : {0, 1, 2, 3, 9}) {
    const std::vector<float> wanted = expected(s, turns * s.k);
    std::vector<float> got(wanted.size(), 7);
    tt::FuncOp function = place(s, 4);
    EXPECT_EQ(simulate(function, s, turns * s.k, got), "") << turns;
    EXPECT_EQ(wanted, got) << turns;
  }
}

/// What orders: of tensor memory, shared memory and copies.
std::vector<llvm::CallInst *> orderOfProducts(llvm::Function &entry) {
  std::vector<llvm::CallInst *> order;
  for (llvm::BasicBlock &block : entry) llvm::append_range(order, callsWith(block, {"wait", "barrier", "fence", "commit", "cp.async", "tcgen05.alloc", "tcgen05.dealloc", "tcgen05.st"}));
  // Barriers that end behind the loop are for what comes then, as the wait for copies there is; of two fences behind barriers that are made one is enough;
  // and where copies of threads are waited for the product's own meeting stands behind that of the block.
  auto has = [](llvm::CallInst *call, const char *part) { return textOf(*call).find(part) != std::string::npos; };
  std::vector<llvm::CallInst *> out;
  for (size_t i = 0; i < order.size(); ++i) {
    const bool metAgain = has(order[i], "barrier.cta.sync") && i + 1 < order.size() && has(order[i + 1], "fence.proxy.async");
    // The meeting in front of the loop stands behind the one for barriers that are made.
    const bool made = has(order[i], "barrier.cta.sync") && i > 0 && has(order[i - 1], "mbarrier.init");
    const bool behind = has(order[i], "cp.async.wait") && order[i]->getParent()->getName() == "endfor";
    if (!metAgain && !made && !behind && !has(order[i], "inval") && !has(order[i], "fence.mbarrier_init")) out.push_back(order[i]);
  }
  return out;
}

TEST_F(Tcgen05, NothingOfItsOrderCanBeLeftOut) {
  for (const Shape &s : {Shape{128, 32, 32, 4}, Shape{128, 64, 32, 8, false, true}}) {
    const int K = 5 * s.k;
    const std::vector<float> wanted = expected(s, K);
    const size_t count = expectNoneCanBeLeftOut(orderOfProducts, [&](auto change) {
      std::vector<float> got(wanted.size());
      return !simulate(place(s, 4), s, K, got, change).empty();
    });
    EXPECT_GT(count, 15u);
  }
}

// By descriptors and by pointers; shared by groups along N and along M; with two slots.
constexpr Kernel kDescribed{true, 128, 32, 64, 4, 3}, kPointed{false, 128, 64, 32, 4, 3}, kAcross{true, 128, 64, 64, 8, 3}, kDown{false, 256, 32, 32, 8, 4}, kTwoSlots{false, 128, 64, 64, 4, 2},
    kBytes{true, 128, 32, 64, 4, 3, "f8E5M2"}, kFewer{true, 128, 64, 64, 4, 4, "f16", 48}, kFour{false, 128, 64, 32, 8, 4};

TEST_F(Tcgen05Boxes, SameSumsOnABlockInEveryOrder) {
  for (const Kernel &k : {kDescribed, kPointed, kAcross, kDown, kTwoSlots, kBytes, kFewer})
    for (const int form : {0, 1, 2}) {
      const bool resident = form == 1;
      if (form == 2 && k.columns) continue;
      const Size s{(resident ? 2 : 1) * k.bm - 16, (resident ? 2 : 1) * k.bn - 16, 5 * k.bk + 16};
      fill(k, s);
      tt::FuncOp function = placedOf(k, form == 2 ? Producers::All : Producers::None, resident);
      int products = 0;
      function.walk([&](tt::DotOp dot) { products += traitsOf(dot.getOperation())->keepsSums; });
      ASSERT_EQ(products, 1);
      Status verified = verifyPlaced(function, chip_);
      ASSERT_TRUE(bool(verified)) << verified.error().str();
      verified = verifyShared(function, chip_);
      ASSERT_TRUE(bool(verified)) << verified.error().str();
      for (const Schedule &schedule : schedules(k.warps)) {
        SCOPED_TRACE(std::to_string(k.bm) + "x" + std::to_string(k.bn) + ", form " + std::to_string(form) + ", ahead " + std::to_string(schedule.ahead) + (schedule.early ? ", early" : ""));
        ASSERT_EQ(simulate(function, k, s, schedule), "");
        ASSERT_EQ(wanted_, got_);
      }
    }
}

TEST_F(Tcgen05Boxes, NothingOfTheOrderCanBeLeftOut) {
  // Many turns: who waits for a product too late, when its barrier has counted another one, waits for ever. Of four warps the simulator lets none fall behind.
  for (const Kernel &k : {kAcross, kFour}) {
    const Size s{k.bm, k.bn, 12 * k.bk};
    fill(k, s);
    tt::FuncOp function = placedOf(k);
    const size_t count = expectNoneCanBeLeftOut(orderOfProducts, [&](auto change) { return isNoticed(function, k, s, schedules(k.warps), change); });
    EXPECT_GT(count, 20u);
  }
}

TEST_F(Tcgen05, ThePackageHoldsBothForms) {
  for (const Shape &s : {Shape{128, 128, 64, 4}, Shape{128, 256, 64, 8}, Shape{128, 128, 64, 8, false, true}, Shape{256, 128, 64, 8, true, false},
                         Shape{128, 256, 128, 8, false, true, false, kE4m3, kE4m3}, Shape{128, 128, 128, 8, false, true, false, kE5m2, kE4m3},
                         Shape{128, 128, 128, 8, false, true, false, "i8", "i8"}, Shape{128, 128, 32, 8, false, true, false, "f32", "f32"}}) {
    SCOPED_TRACE(matmul(s));
    if (const std::optional<CompiledModule> code = expectBothForms(s, "tcgen05")) EXPECT_EQ(code->usage[0].products.substr(0, 7), "tcgen05");
  }
}

// The descriptors that Triton 3.9 writes for a product of bf16 in 128 x 128 x 64: of the instruction, with B along K and across it, and the constant half
// of those of operands.
TEST_F(Tcgen05, DescriptorsAreThoseOfTriton) {
  for (const bool turned : {true, false}) {
    Shape s{128, 128, 64, 4, false, turned};
    s.a = s.b = "bf16";
    CompileOptions options;
    options.keepPtx = true, options.assemble = false, options.boxes = BoxForms::None;
    Result<CompiledModule> code = compileForNvidia({{parse(matmul(s)), "matmul", s.warps, 3}}, chip_, options);
    ASSERT_TRUE(bool(code)) << code.error().str();
    EXPECT_NE(code->ownPtxText.find(turned ? "136316048" : "136381584"), std::string::npos);
    // 1073758272 in the upper half; below it the distance of panels where there are several, 8,192 bytes.
    const uint64_t upper = uint64_t(1073758272) << 32;
    EXPECT_NE(code->ownPtxText.find(std::to_string(upper | (turned ? 1 : 8192 >> 4) << 16)), std::string::npos);
  }
}

TEST_F(Tcgen05, SaysWhyThereIsNone) {
  if (!findAssembler()) GTEST_SKIP() << "no ptxas is found: nothing is said of kernels";
  for (auto [s, why] : {std::pair(Shape{64, 64, 64, 4}, "fewer than 128 rows"), {Shape{128, 64, 64, 2}, "fewer than four warps"}, {Shape{128, 256, 32, 4}, "more than 128 sums a thread"},
                        {Shape{128, 64, 64, 4, false, false, true}, "the left operand is no whole tile that copies bring"},
                        {Shape{128, 32, 32, 4, false, true, false, "f32", "f32", 0, "tf32x3"}, "three products of tf32"},
                        {Shape{128, 64, 64, 4, false, false, false, "i8", "i8"}, "elements of these types that do not follow one another along K"}}) {
    Result<CompiledModule> code = compileForNvidia({{parse(matmul(s)), "matmul", s.warps, 3}}, chip_, {});
    ASSERT_TRUE(bool(code)) << code.error().str();
    EXPECT_EQ(code->usage[0].products, std::string("mma.sync (no tcgen05: ") + why + ")");
    EXPECT_EQ(code->code.front().target, "sm_100");
  }
}

} // namespace
} // namespace neso::nvidia::test
