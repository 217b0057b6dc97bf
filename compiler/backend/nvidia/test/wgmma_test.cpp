// Products by wgmma on the simulated block, whose descriptors and fragments follow the PTX ISA and not our layouts, and
// by the assembler. Operands are small, so that sums are exact in every order.
#include <cmath>

#include "backend/nvidia/compile.h"
#include "backend/nvidia/test/order.h"
#include "backend/nvidia/test/products_fixture.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"

namespace neso::nvidia::test {
namespace {

using Wgmma = Products;

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
    const size_t count = expectNoneCanBeLeftOut(orderOfLoop, [&](auto change) {
      std::vector<float> got(wanted.size());
      return !simulate(place(s, 4), s, K, got, change).empty();
    });
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
    if (const std::optional<CompiledModule> code = expectBothForms(s, "wgmma")) {
      EXPECT_EQ(code->serialised, "");
      EXPECT_EQ(code->usage[0].products, s.n == 256 ? "wgmma, under way over turns" : "wgmma");
    }
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
} // namespace neso::nvidia::test
