// What is computed from constants when compiling, and what is not: numbers that are stored narrow stay narrow in the package.
#include <gtest/gtest.h>

#include "lower/graph_to_loops/lowering.h"
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower::test {
namespace {

class Fold : public testing::Test {
protected:
  Tensor constant(DType t, const Sizes &sizes, uint8_t byte = 1) {
    int64_t bytes = itemSize(t);
    for (Expr s : sizes) bytes *= *s.asConst();
    return ctx.addConstant(t, sizes, std::vector<uint8_t>(static_cast<size_t>(bytes), byte));
  }
  /// Weights [rows, 64] of one byte each, times a scale for each row.
  Tensor widened(DType t, int64_t rows) {
    return mul(cast(constant(t, {rows, 64}), DType::F32), constant(DType::F32, {rows, 1}, 0));
  }
  /// Whether x becomes a constant of the package.
  bool folds(const Tensor &x) {
    const size_t before = ctx.program.constants.size();
    const bool is = ctx.fold(x).realized();
    EXPECT_EQ(ctx.program.constants.size(), before + (is ? 1 : 0));
    return is;
  }
  Lowering ctx;
};

// 4 KiB of F32 are 16 rows of 64.
TEST_F(Fold, WeightsOfEightBitsStayNarrow) {
  for (DType t : {DType::I8, DType::U8, DType::F8E4M3FN, DType::F8E5M2}) {
    EXPECT_TRUE(folds(widened(t, 16))) << name(t);
    EXPECT_FALSE(folds(widened(t, 17))) << name(t);
  }
}

TEST_F(Fold, WeightsOfFourBitsStayNarrow) {
  for (int64_t rows : {16, 17}) {
    const Tensor packed = constant(DType::U8, {rows, 32}, 0x9c);
    const Tensor x = Tensor::lazy(ctx, DType::F32, {rows, 64}, [=](BodyBuilder &b, const Index &i) {
      const Val byte = b.cast(packed.at(b, {i[0], floorDiv(i[1], 2)}), DType::I32);
      const Val half = bin(OpKind::And, bin(OpKind::Shr, byte, b.index(mod(i[1], 2) * 4, DType::I32)), b.constantInt(DType::I32, 15));
      return b.cast(half, DType::F32) - 8.0;
    });
    EXPECT_EQ(folds(x), rows == 16) << rows;
  }
}

// Numbers that need four bits of the 32 in which a model stores them; floats are left to the model's own types.
TEST_F(Fold, LargeIntegersAreNarrowed) {
  constexpr int64_t kRows = 512, kColumns = 256;
  auto low = [&](DType t) { return map(constant(t, {kRows, kColumns}), [](Val v) { return bin(OpKind::And, v, 15.0); }); };
  EXPECT_TRUE(folds(cast(low(DType::I32), DType::U8)));
  EXPECT_TRUE(folds(cast(low(DType::I32), DType::I16)));
  EXPECT_FALSE(folds(low(DType::I32)));
  EXPECT_FALSE(folds(cast(constant(DType::F32, {kRows, kColumns}), DType::BF16)));
}

// Nothing grows: a scale goes into the weights that it belongs to.
TEST_F(Fold, WhatTakesNoMoreRoomIsComputed) {
  EXPECT_TRUE(folds(mul(constant(DType::F32, {64, 64}), constant(DType::F32, {64, 1}))));
  EXPECT_TRUE(folds(cast(constant(DType::F32, {64, 64}), DType::BF16)));
}

// A bias of relative positions: a small table, many places.
TEST_F(Fold, WhatIsLookedUpMayGrow) {
  const Tensor table = constant(DType::F32, {32}), places = constant(DType::I8, {64, 64});
  EXPECT_TRUE(folds(indexSelect(table, 0, reshape(cast(places, DType::I64), {Expr(64 * 64)}))));
}

TEST_F(Fold, NothingIsComputedFromWeightsThatCanChange) {
  ctx.folds = false;
  EXPECT_FALSE(folds(widened(DType::I8, 16)));
}

} // namespace
} // namespace neso::lower::test
