// Sorts on the simulator, against std::sort. Exact. The simulator finds races of the exchange among warps.
#include <gtest/gtest.h>

#include "backend/nvidia/sort.h"
#include "backend/nvidia/test/harness.h"

namespace neso::nvidia::test {
namespace {

TEST(Sort, RowsOfAnyLayout) {
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    const int warps = 1 << random() % 4;
    Sizes shape;
    for (unsigned rank = 1 + random() % 2; shape.size() < rank;) shape.push_back(1 << (1 + random() % 6));
    const int axis = int(random() % shape.size());
    LinearLayout layout = randomLayout(random, shape, warps, i % 4 == 3);
    Kernel kernel(warps, 2);
    llvm::Type *element = i % 2 ? kernel.b.getInt64Ty() : kernel.b.getInt32Ty();
    llvm::SmallVector<Tile, 2> sorted = sortTiles(*kernel.block, {kernel.load(0, layout, element)}, axis);
    sorted[0] = convertTile(*kernel.block, sorted[0], layout);
    kernel.storePlaces(1, sorted[0]);
    int64_t before = 1, behind = 1, n = shape[size_t(axis)];
    for (int d = 0; d < int(shape.size()); ++d)
      (d < axis ? before : d > axis ? behind : n) *= d == axis ? 1 : shape[size_t(d)];
    auto check = [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> in, expected, out(size_t(layout.inSize(kRegister)) * size_t(warps) * 32);
      for (int64_t k = 0; k < before * n * behind; ++k)
        in.push_back(T(random() % 3 ? random() * T(0x9e3779b97f4a7c15) : random() % 8));
      expected = in;
      for (int64_t x = 0; x < before; ++x)
        for (int64_t z = 0; z < behind; ++z) {
          std::vector<T> row;
          for (int64_t y = 0; y < n; ++y) row.push_back(in[size_t((x * n + y) * behind + z)]);
          std::sort(row.begin(), row.end());
          for (int64_t y = 0; y < n; ++y) expected[size_t((x * n + y) * behind + z)] = row[size_t(y)];
        }
      ASSERT_EQ(kernel.run({in.data(), out.data()}).error, "") << layout.str();
      ASSERT_EQ(comparePlaces(out, layout, expected), "") << i << " axis " << axis << "\n" << layout.str();
    };
    if (i % 2)
      check(uint64_t(0));
    else
      check(uint32_t(0));
  }
}

TEST(Sort, OperandsMoveTogetherAndBreakTies) {
  std::mt19937 random(5);
  const Sizes shape = {512};
  LinearLayout layout = blocked(shape, {4}, {32}, {4}, {0});
  Kernel kernel(4, 4);
  llvm::SmallVector<Tile, 2> sorted = sortTiles(
      *kernel.block, {kernel.load(0, layout, kernel.b.getInt64Ty()), kernel.load(1, layout, kernel.b.getInt32Ty())}, 0);
  for (int k = 0; k < 2; ++k) kernel.storePlaces(2 + k, convertTile(*kernel.block, sorted[size_t(k)], layout));
  std::vector<uint64_t> key, wantKey, outKey(512);
  std::vector<uint32_t> place, wantPlace, outPlace(512);
  std::vector<std::pair<uint64_t, uint32_t>> pairs;
  for (uint32_t i = 0; i < 512; ++i) {
    key.push_back((random() % 16) << 60 | random() % 2);
    place.push_back(i);
    pairs.emplace_back(key.back(), i);
  }
  std::sort(pairs.begin(), pairs.end());
  for (const auto &[k, p] : pairs) wantKey.push_back(k), wantPlace.push_back(p);
  ASSERT_EQ(kernel.run({key.data(), place.data(), outKey.data(), outPlace.data()}).error, "");
  EXPECT_EQ(comparePlaces(outKey, layout, wantKey), "");
  EXPECT_EQ(comparePlaces(outPlace, layout, wantPlace), "");
}

TEST(Sort, MergesRowsThatRiseAndFall) {
  std::mt19937 random(9);
  for (int i = 0; i < 12; ++i) {
    const int warps = 1 << random() % 4;
    const Sizes shape = {2, 256};
    LinearLayout layout = randomLayout(random, shape, warps);
    Kernel kernel(warps, 2);
    Tile merged = convertTile(*kernel.block,
                              mergeTiles(*kernel.block, {kernel.load(0, layout, kernel.b.getInt32Ty())}, 1)[0], layout);
    kernel.storePlaces(1, merged);
    std::vector<uint32_t> in, expected, out(size_t(layout.inSize(kRegister)) * size_t(warps) * 32);
    for (int row = 0; row < 2; ++row) {
      std::vector<uint32_t> x;
      for (int k = 0; k < 256; ++k) x.push_back(uint32_t(random()) % 300);
      const auto peak = x.begin() + random() % 257;
      std::sort(x.begin(), peak);
      std::sort(peak, x.end(), std::greater<>());
      in.insert(in.end(), x.begin(), x.end());
      std::sort(x.begin(), x.end());
      expected.insert(expected.end(), x.begin(), x.end());
    }
    ASSERT_EQ(kernel.run({in.data(), out.data()}).error, "") << layout.str();
    ASSERT_EQ(comparePlaces(out, layout, expected), "") << i << "\n" << layout.str();
  }
}

TEST(Sort, ARowOfOneWarpNeedsNoBarrier) {
  // 32 registers and 32 lanes: 15 of the 55 steps are shuffles, of one word for each register.
  LinearLayout layout = blocked({1024}, {4}, {32}, {1}, {0});
  Kernel kernel(1, 2);
  kernel.storePlaces(1, sortTiles(*kernel.block, {kernel.load(0, layout, kernel.b.getInt32Ty())}, 0)[0]);
  std::vector<uint32_t> in(1024), out(1024);
  std::mt19937 random(7);
  for (uint32_t &x : in) x = uint32_t(random());
  Outcome outcome = kernel.run({in.data(), out.data()});
  ASSERT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.barriers, 0);
  EXPECT_EQ(outcome.shuffles, 15 * 32);
  std::sort(in.begin(), in.end());
  // Thread t holds the elements 32 t … 32 t + 31, in the order of the layout's register bits along the row.
  EXPECT_EQ(std::vector<uint32_t>(out.begin(), out.begin() + 32), std::vector<uint32_t>(in.begin(), in.begin() + 32));
}

} // namespace
} // namespace neso::nvidia::test
