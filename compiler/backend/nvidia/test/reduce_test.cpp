// Reductions and scans on the simulator, against loops over the tensor. Integers and min/max are exact; sums of small
// integers in f32 are exact in any order; scans use x -> 3 a + b on wrapping integers where order must show.
#include <gtest/gtest.h>

#include "backend/nvidia/reduce.h"
#include "backend/nvidia/test/harness.h"

namespace neso::nvidia::test {
namespace {

using Values = llvm::SmallVector<llvm::Value *, 2>;

/// Splits a flat index into what stands before the axis, on it and behind it.
struct Axis {
  int64_t before = 1, size = 1, behind = 1;
  Axis(const Sizes &shape, int axis) {
    for (int i = 0; i < int(shape.size()); ++i) (i < axis ? before : i == axis ? size : behind) *= shape[size_t(i)];
  }
  size_t flat(int64_t i, int64_t j, int64_t k) const { return size_t((i * size + j) * behind + k); }
};

TEST(Reduce, SumOverEveryAxisOfAnyLayout) {
  std::mt19937 random(11);
  for (int i = 0; i < 50; ++i) {
    int warps = 1 << random() % 5;
    Sizes shape;
    for (unsigned rank = 1 + random() % 3; shape.size() < rank;) shape.push_back(1 << random() % 5);
    int axis = int(random() % shape.size());
    LinearLayout layout = randomLayout(random, shape, warps, i % 4 == 3), wanted = sliceLayout(layout, axis);
    Kernel kernel(warps, 2);
    bool integer = i % 2;
    auto add = [&](llvm::ArrayRef<llvm::Value *> x, llvm::ArrayRef<llvm::Value *> y) {
      return Values{integer ? kernel.b.CreateAdd(x[0], y[0]) : kernel.b.CreateFAdd(x[0], y[0])};
    };
    llvm::Type *element = integer ? kernel.b.getInt32Ty() : kernel.b.getFloatTy();
    llvm::SmallVector<Tile, 2> sums = reduceTiles(*kernel.block, {kernel.load(0, layout, element)}, axis, add,
                                                  integer ? ReduceHint::AddI32 : ReduceHint::Commutative);
    ASSERT_EQ(sums[0].layout, wanted);
    kernel.storePlaces(1, sums[0]);
    Axis a(shape, axis);
    std::vector<uint32_t> in, expected, out(size_t(wanted.inSize(kRegister)) * size_t(warps) * 32);
    auto bits = [&](int64_t x) { return integer ? uint32_t(x) : std::bit_cast<uint32_t>(float(x)); };
    std::vector<int64_t> numbers;
    for (int64_t n = 0; n < a.before * a.size * a.behind; ++n) {
      numbers.push_back(int64_t(random() % 2000) - 1000);
      in.push_back(bits(numbers.back()));
    }
    for (int64_t x = 0; x < a.before; ++x) {
      for (int64_t z = 0; z < a.behind; ++z) {
        int64_t sum = 0;
        for (int64_t y = 0; y < a.size; ++y) sum += numbers[a.flat(x, y, z)];
        expected.push_back(bits(sum));
      }
    }
    ASSERT_EQ(kernel.run({in.data(), out.data()}).error, "") << layout.str();
    ASSERT_EQ(comparePlaces(out, wanted, expected), "") << i << " axis " << axis << "\n" << layout.str();
  }
}

TEST(Reduce, AllThreadsAgreeOnTheFirstOfEqualMaxima) {
  // (value, index) reduced together; the combination keeps its left operand on a tie, so operand order decides what
  // lanes see.
  std::mt19937 random(13);
  for (int i = 0; i < 20; ++i) {
    LinearLayout layout = randomLayout(random, {8, 128}, 4), wanted = sliceLayout(layout, 1);
    Kernel kernel(4, 2);
    llvm::IRBuilder<> &b = kernel.b;
    Tile index{layout, {}};
    for (int reg = 0; reg < layout.inSize(kRegister); ++reg)
      index.values.push_back(tensorIndex(*kernel.block, layout, reg)[1]);
    auto argmax = [&](llvm::ArrayRef<llvm::Value *> x, llvm::ArrayRef<llvm::Value *> y) {
      llvm::Value *left =
          b.CreateOr(b.CreateICmpSGT(x[0], y[0]), b.CreateAnd(b.CreateICmpEQ(x[0], y[0]), b.CreateICmpSLT(x[1], y[1])));
      return Values{b.CreateSelect(left, x[0], y[0]), b.CreateSelect(left, x[1], y[1])};
    };
    llvm::SmallVector<Tile, 2> results =
        reduceTiles(*kernel.block, {kernel.load(0, layout, b.getInt32Ty()), index}, 1, argmax);
    kernel.storePlaces(1, results[1]);
    std::vector<uint32_t> in(1024), expected, out(size_t(wanted.inSize(kRegister)) * 128);
    for (uint32_t &x : in) x = random() % 5;
    for (int row = 0; row < 8; ++row)
      expected.push_back(uint32_t(std::max_element(&in[row * 128], &in[row * 128] + 128) - &in[row * 128]));
    ASSERT_EQ(kernel.run({in.data(), out.data()}).error, "");
    ASSERT_EQ(comparePlaces(out, wanted, expected), "");
  }
}

TEST(Reduce, OneBarrierEachWhenTwoFollowOneAnother) {
  LinearLayout layout = blocked({1024}, {4}, {32}, {8}, {0});
  Kernel kernel(8, 3);
  llvm::IRBuilder<> &b = kernel.b;
  auto add = [&](llvm::ArrayRef<llvm::Value *> x, llvm::ArrayRef<llvm::Value *> y) {
    return Values{b.CreateFAdd(x[0], y[0])};
  };
  Tile x = kernel.load(0, layout, b.getFloatTy());
  Tile sum = reduceTiles(*kernel.block, {x}, 0, add, ReduceHint::Commutative)[0];
  for (llvm::Value *&value : x.values) value = b.CreateFAdd(value, sum.values[0]);
  Tile again = reduceTiles(*kernel.block, {x}, 0, add, ReduceHint::Commutative)[0];
  Tile third = reduceTiles(*kernel.block, {x}, 0, add, ReduceHint::Commutative)[0];
  kernel.storePlaces(1, again);
  kernel.storePlaces(2, third);
  std::vector<float> in(1024, 1.0f), out(256), more(256);
  Outcome outcome = kernel.run({in.data(), out.data(), more.data()});
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.barriers, 3);
  EXPECT_EQ(out[17], 1024.0f + 1024.0f * 1024.0f);
  EXPECT_EQ(more[255], out[17]);
}

TEST(Scan, ForwardAndBackwardOfAnyLayout) {
  std::mt19937 random(17);
  for (int i = 0; i < 60; ++i) {
    int warps = 1 << random() % 4;
    Sizes shape;
    for (unsigned rank = 1 + random() % 3; shape.size() < rank;) shape.push_back(1 << random() % 5);
    int axis = int(random() % shape.size());
    bool reverse = random() % 2;
    LinearLayout layout = randomLayout(random, shape, warps, i % 4 == 3);
    if (i % 3 == 0) {
      // As coalesced loads are laid out.
      Sizes one(shape.size(), 1), lanes = one, split = one;
      lanes.back() = 32, split.back() = warps;
      std::vector<int> order;
      for (int d = int(shape.size()) - 1; d >= 0; --d) order.push_back(d);
      layout = blocked(shape, one, lanes, split, order);
    }
    // Two operands: an affine map each, composed: associative, not commutative.
    Kernel kernel(warps, 4);
    llvm::IRBuilder<> &b = kernel.b;
    auto compose = [&](llvm::ArrayRef<llvm::Value *> x, llvm::ArrayRef<llvm::Value *> y) {
      return Values{b.CreateMul(x[0], y[0]), b.CreateAdd(b.CreateMul(y[0], x[1]), y[1])};
    };
    llvm::SmallVector<Tile, 2> results =
        scanTiles(*kernel.block, {kernel.load(0, layout, b.getInt32Ty()), kernel.load(1, layout, b.getInt32Ty())}, axis,
                  reverse, compose);
    kernel.storePlaces(2, results[0]);
    kernel.storePlaces(3, results[1]);
    Axis a(shape, axis);
    size_t n = size_t(a.before * a.size * a.behind), places = size_t(layout.inSize(kRegister)) * size_t(warps) * 32;
    std::vector<uint32_t> slope(n), offset(n), wantSlope(n), wantOffset(n), outSlope(places), outOffset(places);
    for (size_t k = 0; k < n; ++k) slope[k] = random() | 1, offset[k] = random();
    for (int64_t x = 0; x < a.before; ++x) {
      for (int64_t z = 0; z < a.behind; ++z) {
        uint32_t s = 1, o = 0;
        for (int64_t step = 0; step < a.size; ++step) {
          size_t at = a.flat(x, reverse ? a.size - 1 - step : step, z);
          s = s * slope[at];
          o = slope[at] * o + offset[at];
          wantSlope[at] = s, wantOffset[at] = o;
        }
      }
    }
    ASSERT_EQ(kernel.run({slope.data(), offset.data(), outSlope.data(), outOffset.data()}).error, "")
        << i << layout.str();
    ASSERT_EQ(comparePlaces(outSlope, layout, wantSlope), "")
        << i << " axis " << axis << (reverse ? " reverse\n" : "\n") << layout.str();
    ASSERT_EQ(comparePlaces(outOffset, layout, wantOffset), "") << i << " axis " << axis << "\n" << layout.str();
  }
}

} // namespace
} // namespace neso::nvidia::test
