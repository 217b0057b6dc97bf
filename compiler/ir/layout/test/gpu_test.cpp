// Layouts of tensors on a GPU, against enumeration in nested loops and the index formulas of the PTX ISA.
#include "ir/layout/gpu.h"

#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>

using namespace neso;

namespace {

DimValues place(int64_t reg, int64_t lane, int64_t warp = 0, int64_t block = 0) {
  return {{kRegister, reg}, {kLane, lane}, {kWarp, warp}, {kBlock, block}};
}

/// dim0, dim1, … of an element.
Sizes element(const LinearLayout &layout, const DimValues &index) {
  Sizes at(layout.outs().size());
  DimValues out = layout.apply(index);
  for (size_t i = 0; i < out.size(); ++i) at[at.size() - 1 - i] = out[i].second;
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i].first, dimName(int(out.size() - 1 - i)));
  return at;
}

/// Index number `i` of a box, the first dim of `order` fastest.
Sizes unravel(int64_t i, const Sizes &box, const std::vector<int> &order) {
  Sizes at(box.size());
  for (int dim : order) {
    at[dim] = i % box[dim];
    i /= box[dim];
  }
  return at;
}

int64_t count(const Sizes &box) {
  int64_t n = 1;
  for (int64_t size : box) n *= size;
  return n;
}

TEST(Blocked, AgainstNestedBricks) {
  std::mt19937 random(11);
  auto size = [&](int most) { return int64_t(1) << random() % uint32_t(most + 1); };
  for (int round = 0; round < 200; ++round) {
    int rank = 1 + int(random() % 3);
    Blocked b;
    Sizes shape, tile, part;
    for (int i = 0; i < rank; ++i) {
      b.sizePerThread.push_back(size(2));
      b.threadsPerWarp.push_back(size(2));
      b.warpsPerBlock.push_back(size(1));
      b.blocksPerCluster.push_back(size(1));
      b.order.push_back(i);
      tile.push_back(b.sizePerThread[i] * b.threadsPerWarp[i] * b.warpsPerBlock[i]);
      // At least one tile: smaller tensors are another test.
      part.push_back(tile[i] * size(1));
      shape.push_back(part[i] * b.blocksPerCluster[i]);
    }
    std::shuffle(b.order.begin(), b.order.end(), random);
    LinearLayout layout = blockedLayout(shape, b);
    ASSERT_TRUE(layout.invertible());
    ASSERT_EQ(tensorShape(layout), shape);
    Sizes repeats;
    for (int i = 0; i < rank; ++i) repeats.push_back(part[i] / tile[i]);
    for (int sample = 0; sample < 64; ++sample) {
      int64_t reg = random() % layout.inSize(kRegister), lane = random() % layout.inSize(kLane),
              warp = random() % layout.inSize(kWarp), block = random() % layout.inSize(kBlock);
      Sizes r = unravel(reg % count(b.sizePerThread), b.sizePerThread, b.order),
            l = unravel(lane, b.threadsPerWarp, b.order), w = unravel(warp, b.warpsPerBlock, b.order),
            rep = unravel(reg / count(b.sizePerThread), repeats, b.order),
            c = unravel(block, b.blocksPerCluster, b.order);
      Sizes expected;
      for (int i = 0; i < rank; ++i)
        expected.push_back(r[i] +
                           b.sizePerThread[i] * (l[i] + b.threadsPerWarp[i] * (w[i] + b.warpsPerBlock[i] * rep[i])) +
                           part[i] * c[i]);
      ASSERT_EQ(element(layout, place(reg, lane, warp, block)), expected);
    }
  }
}

TEST(Blocked, SmallTensorsWrap) {
  // 8 elements over 2 a thread, 32 lanes, 2 warps: lanes 4.. and warp 1 hold copies.
  LinearLayout small = blockedLayout({8}, {{2}, {32}, {2}, {0}});
  for (int64_t lane = 0; lane < 32; ++lane)
    for (int64_t reg = 0; reg < 2; ++reg)
      for (int64_t warp = 0; warp < 2; ++warp)
        EXPECT_EQ(element(small, place(reg, lane, warp)), Sizes{(2 * lane + reg) % 8});
  EXPECT_EQ(small.freeMask(kLane), 0b11100u);
  EXPECT_EQ(small.freeMask(kWarp), 1u);
  // Spare registers are dropped.
  EXPECT_EQ(blockedLayout({2}, {{8}, {32}, {1}, {0}}).inSize(kRegister), 2);
  EXPECT_EQ(blockedLayout({1, 1}, {{1, 1}, {1, 32}, {1, 4}, {1, 0}}).totalOutBits(), 0);
}

TEST(Slice, ReadsTheParentAtZeroOfTheAxis) {
  LinearLayout parent = blockedLayout({8, 64, 4}, {{1, 4, 2}, {2, 8, 2}, {4, 1, 1}, {1, 2, 0}});
  for (int axis = 0; axis < 3; ++axis) {
    LinearLayout slice = sliceLayout(parent, axis);
    std::set<Sizes> expected, have;
    for (int64_t reg = 0; reg < parent.inSize(kRegister); ++reg) {
      Sizes at = element(parent, place(reg, 13, 2));
      at.erase(at.begin() + axis);
      expected.insert(at);
    }
    for (int64_t reg = 0; reg < slice.inSize(kRegister); ++reg) have.insert(element(slice, place(reg, 13, 2)));
    EXPECT_EQ(have, expected);
    EXPECT_EQ(int64_t(have.size()), slice.inSize(kRegister));
    // Expanded and broadcast it is the parent's tensor again, and the thread's elements are found in the thread.
    LinearLayout back = broadcastTensor(expandDims(slice, axis), tensorShape(parent));
    EXPECT_TRUE(back.surjective());
    EXPECT_EQ(tensorShape(back), tensorShape(parent));
  }
}

// The index formulas of the PTX ISA, section "Matrix Fragments for mma.m16n8k16 with floating point type" and its
// neighbours.
TEST(Mma, AccumulatorM16N8) {
  LinearLayout layout = mmaAccumulator({16, 8}, {1, 1});
  ASSERT_EQ(layout.inSize(kRegister), 4);
  for (int64_t lane = 0; lane < 32; ++lane) {
    for (int64_t i = 0; i < 4; ++i) {
      int64_t group = lane >> 2, inGroup = lane % 4;
      EXPECT_EQ(element(layout, place(i, lane)), (Sizes{i < 2 ? group : group + 8, inGroup * 2 + (i & 1)}));
    }
  }
}

TEST(Mma, OperandsM16N8K16Of16Bits) {
  LinearLayout a = mmaOperandA({16, 16}, {1, 1}, 16), b = mmaOperandB({16, 8}, {1, 1}, 16);
  ASSERT_EQ(a.inSize(kRegister), 8);
  ASSERT_EQ(b.inSize(kRegister), 4);
  for (int64_t lane = 0; lane < 32; ++lane) {
    int64_t group = lane >> 2, inGroup = lane % 4;
    for (int64_t i = 0; i < 8; ++i) {
      int64_t row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
      int64_t column = inGroup * 2 + (i & 1) + (i >= 4 ? 8 : 0);
      EXPECT_EQ(element(a, place(i, lane)), (Sizes{row, column}));
    }
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(element(b, place(i, lane)), (Sizes{inGroup * 2 + (i & 1) + (i >= 2 ? 8 : 0), group}));
  }
}

TEST(Mma, OperandsOf8And32Bits) {
  LinearLayout a8 = mmaOperandA({16, 32}, {1, 1}, 8), b8 = mmaOperandB({32, 8}, {1, 1}, 8);
  LinearLayout a32 = mmaOperandA({16, 8}, {1, 1}, 32), b32 = mmaOperandB({8, 8}, {1, 1}, 32);
  for (int64_t lane = 0; lane < 32; ++lane) {
    int64_t group = lane >> 2, inGroup = lane % 4;
    for (int64_t i = 0; i < 16; ++i) {
      int64_t row = (i < 4 || (i >= 8 && i < 12)) ? group : group + 8;
      EXPECT_EQ(element(a8, place(i, lane)), (Sizes{row, inGroup * 4 + (i & 3) + (i >= 8 ? 16 : 0)}));
    }
    for (int64_t i = 0; i < 8; ++i)
      EXPECT_EQ(element(b8, place(i, lane)), (Sizes{inGroup * 4 + (i & 3) + (i >= 4 ? 16 : 0), group}));
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(element(a32, place(i, lane)),
                (Sizes{i == 0 || i == 2 ? group : group + 8, i < 2 ? inGroup : inGroup + 4}));
    for (int64_t i = 0; i < 2; ++i)
      EXPECT_EQ(element(b32, place(i, lane)), (Sizes{i == 0 ? inGroup : inGroup + 4, group}));
  }
}

TEST(Mma, WarpsAndRepeats) {
  LinearLayout c = mmaAccumulator({64, 32}, {2, 2}), a = mmaOperandA({64, 64}, {2, 2}, 16),
               b = mmaOperandB({64, 32}, {2, 2}, 16);
  EXPECT_TRUE(c.invertible());
  EXPECT_TRUE(a.surjective());
  EXPECT_TRUE(b.surjective());
  for (int64_t warp = 0; warp < 4; ++warp) {
    for (int64_t lane = 0; lane < 32; ++lane) {
      int64_t group = lane >> 2, inGroup = lane % 4, warpN = warp % 2, warpM = warp / 2;
      // Warps tile 32 x 16; the repeats are 2 along N, then 2 along M.
      for (int64_t r = 0; r < 16; ++r)
        EXPECT_EQ(element(c, place(r, lane, warp)), (Sizes{group + (r & 2 ? 8 : 0) + 16 * warpM + 32 * (r / 8),
                                                           inGroup * 2 + (r & 1) + 8 * warpN + 16 * (r / 4 % 2)}));
      // K in 4 steps of 16, then M in 2 of 32.
      for (int64_t r = 0; r < 64; ++r)
        EXPECT_EQ(element(a, place(r, lane, warp)),
                  (Sizes{group + (r & 2 ? 8 : 0) + 16 * warpM + 32 * (r / 32),
                         inGroup * 2 + (r & 1) + (r & 4 ? 8 : 0) + 16 * (r / 8 % 4)}));
      for (int64_t r = 0; r < 32; ++r)
        EXPECT_EQ(element(b, place(r, lane, warp)), (Sizes{inGroup * 2 + (r & 1) + (r & 2 ? 8 : 0) + 16 * (r / 4 % 4),
                                                           group + 8 * warpN + 16 * (r / 16)}));
    }
  }
  // More warps than rows: the second half holds copies.
  EXPECT_EQ(mmaAccumulator({16, 8}, {2, 1}).freeMask(kWarp), 1u);
}

TEST(Shared, SwizzleFormula) {
  for (int64_t vec : {1, 4, 8})
    for (int64_t perPhase : {1, 2})
      for (int64_t maxPhase : {1, 4, 8})
        for (bool rowMajor : {true, false}) {
          std::vector<int> order = rowMajor ? std::vector<int>{1, 0} : std::vector<int>{0, 1};
          Sizes shape{rowMajor ? 16 : 64, rowMajor ? 64 : 16};
          LinearLayout layout = sharedLayout(shape, order, {vec, perPhase, maxPhase});
          EXPECT_TRUE(layout.invertible());
          for (int64_t r = 0; r < 16; ++r)
            for (int64_t c = 0; c < 64; ++c) {
              int64_t offset = r * 64 + (c ^ (r / perPhase % maxPhase * vec));
              EXPECT_EQ(element(layout, {{kOffset, offset}}), rowMajor ? (Sizes{r, c}) : (Sizes{c, r}));
            }
        }
}

TEST(Shared, MatrixSwizzleHasNoBankConflicts) {
  for (int bits : {8, 16, 32})
    for (int64_t columns : {16, 32, 64, 128, 256}) {
      int64_t bytes = bits / 8, group = 16 / bytes;
      if (columns < group) continue;
      LinearLayout layout = sharedLayout({64, columns}, {1, 0}, matrixSwizzle({64, columns}, {1, 0}, bits)).invert();
      for (int64_t row = 0; row < 64; row += 8)
        for (int64_t column = 0; column < columns; column += group) {
          std::set<int64_t> banks;
          for (int64_t r = row; r < row + 8; ++r) {
            int64_t offset = layout.apply({{"dim1", column}, {"dim0", r}})[0].second * bytes;
            EXPECT_EQ(offset % 16, 0);
            banks.insert(offset / 16 % 8);
          }
          EXPECT_EQ(banks.size(), 8u) << bits << " bits, " << columns << " columns";
        }
    }
}

TEST(Tensor, ShapeOperationsMoveNothing) {
  LinearLayout layout = blockedLayout({4, 8, 32}, {{1, 2, 4}, {2, 2, 8}, {1, 2, 2}, {2, 0, 1}});
  std::vector<int> permutation{2, 0, 1};
  LinearLayout turned = transposeTensor(layout, permutation), flat = reshapeTensor(layout, {16, 64}),
               joined = joinTensor(layout);
  EXPECT_EQ(tensorShape(turned), (Sizes{32, 4, 8}));
  EXPECT_EQ(tensorShape(joined), (Sizes{4, 8, 32, 2}));
  for (int64_t reg = 0; reg < layout.inSize(kRegister); ++reg) {
    for (int64_t lane = 0; lane < 32; lane += 3) {
      Sizes at = element(layout, place(reg, lane, 3));
      EXPECT_EQ(element(turned, place(reg, lane, 3)), (Sizes{at[2], at[0], at[1]}));
      int64_t index = (at[0] * 8 + at[1]) * 32 + at[2];
      EXPECT_EQ(element(flat, place(reg, lane, 3)), (Sizes{index / 64, index % 64}));
      for (int64_t half = 0; half < 2; ++half)
        EXPECT_EQ(element(joined, place(2 * reg + half, lane, 3)), (Sizes{at[0], at[1], at[2], half}));
    }
  }
}

} // namespace
