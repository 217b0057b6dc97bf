// Copies between layouts: every order of the dimensions, odd sizes, items of every width, against an index by index copy.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/strided.h"
#include "core/threaded_copy.h"

namespace {

constexpr int kRank = 4;
using Dims = std::array<int64_t, kRank>;

/// Strides of dims laid out in the order of `order`, outermost first, the innermost `step` elements apart.
Dims stridesIn(const Dims &sizes, const std::array<int, kRank> &order, int64_t step) {
  Dims strides{};
  int64_t stride = step;
  for (int i = kRank; i-- > 0;) {
    strides[static_cast<size_t>(order[static_cast<size_t>(i)])] = stride;
    stride *= sizes[static_cast<size_t>(order[static_cast<size_t>(i)])];
  }
  return strides;
}

size_t at(const Dims &index, const Dims &strides) {
  return static_cast<size_t>(std::inner_product(index.begin(), index.end(), strides.begin(), int64_t{0}));
}

/// Whether the copy writes just the elements of the destination, with those of the source.
void checkCopy(const Dims &sizes, const Dims &to, const Dims &from, size_t item) {
  auto bytesOf = [&](const Dims &strides) {
    Dims last{};
    for (size_t d = 0; d < kRank; ++d) last[d] = sizes[d] - 1;
    return (at(last, strides) + 1) * item;
  };
  std::vector<unsigned char> source(bytesOf(from)), got(bytesOf(to), 0xEE), want = got;
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 7 + i / 251);
  for (Dims x{}; x[0] < sizes[0]; ++x[0])
    for (x[1] = 0; x[1] < sizes[1]; ++x[1])
      for (x[2] = 0; x[2] < sizes[2]; ++x[2])
        for (x[3] = 0; x[3] < sizes[3]; ++x[3])
          std::memcpy(&want[at(x, to) * item], &source[at(x, from) * item], item);
  neso_rt::copy_strided(got.data(), to.data(), source.data(), from.data(), sizes.data(), kRank, static_cast<int>(item));
  EXPECT_TRUE(got == want) << "item " << item << ", sizes " << testing::PrintToString(sizes) << ", to "
                           << testing::PrintToString(to) << ", from " << testing::PrintToString(from);
}

TEST(Strided, CopiesBetweenAllOrdersOfDimensions) {
  const Dims shapes[] = {{2, 3, 5, 7}, {1, 33, 1, 70}, {3, 1, 65, 17}, {2, 2, 16, 64}};
  for (const Dims &sizes : shapes)
    for (size_t item : {1, 2, 4, 8, 16, 6})
      for (int64_t step : {1, 3}) {
        std::array<int, kRank> order = {0, 1, 2, 3};
        do {
          const Dims given = stridesIn(sizes, order, step), dense = stridesIn(sizes, {0, 1, 2, 3}, 1);
          checkCopy(sizes, dense, given, item);
          checkCopy(sizes, given, dense, item);
        } while (std::next_permutation(order.begin(), order.end()));
      }
}

TEST(Strided, WalksDimensionsOfEitherSideBackwards) {
  const Dims sizes = {3, 20, 2, 35}, dense = stridesIn(sizes, {0, 1, 2, 3}, 1);
  std::vector<int> source(3 * 20 * 2 * 35), got(source.size()), back(source.size());
  std::iota(source.begin(), source.end(), 1);
  for (int turned = 1; turned < 16; ++turned) {
    Dims from = stridesIn(sizes, {2, 0, 3, 1}, 1);
    size_t begin = 0;
    for (size_t d = 0; d < kRank; ++d)
      if (turned >> d & 1) begin += static_cast<size_t>(from[d] * (sizes[d] - 1)), from[d] = -from[d];
    neso_rt::copy_strided(got.data(), dense.data(), source.data() + begin, from.data(), sizes.data(), kRank, 4);
    for (Dims x{}; x[0] < sizes[0]; ++x[0])
      for (x[1] = 0; x[1] < sizes[1]; ++x[1])
        for (x[2] = 0; x[2] < sizes[2]; ++x[2])
          for (x[3] = 0; x[3] < sizes[3]; ++x[3]) ASSERT_EQ(got[at(x, dense)], source[begin + at(x, from)]) << "dims " << turned;
    neso_rt::copy_strided(back.data() + begin, from.data(), got.data(), dense.data(), sizes.data(), kRank, 4);
    ASSERT_EQ(back, source) << "dims " << turned;
  }
}

TEST(Strided, LargeCopiesAreSharedByThreads) {
  // More than one thread's worth each, sizes that threads do not share evenly, the longest steps in any dimension.
  const Dims sizes = {3, 257, 5, 1031};
  const Dims dense = stridesIn(sizes, {0, 1, 2, 3}, 1);
  std::vector<float> source(3 * 257 * 5 * 1031 + 1), want(source.size()), got(source.size());
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i);
  for (const std::array<int, kRank> &order : {std::array<int, kRank>{0, 1, 2, 3}, {1, 3, 0, 2}, {3, 2, 1, 0}, {2, 0, 3, 1}}) {
    const Dims other = stridesIn(sizes, order, 1);
    for (const auto &[to, from] : {std::pair{dense, other}, {other, dense}}) {
      std::fill(want.begin(), want.end(), -1.0f), got = want;
      neso_rt::copy_strided(want.data(), to.data(), source.data(), from.data(), sizes.data(), kRank, 4);
      neso_rt::copy_strided_by_threads(got.data(), to.data(), source.data(), from.data(), sizes.data(), kRank, 4);
      ASSERT_EQ(got, want);
    }
  }
}

TEST(Strided, ReadsAnElementForAllOfADimension) {
  const Dims sizes = {3, 20, 2, 35};
  const Dims dense = stridesIn(sizes, {0, 1, 2, 3}, 1), across = stridesIn(sizes, {3, 1, 0, 2}, 1);
  for (size_t d = 0; d < kRank; ++d)
    for (Dims from : {dense, across}) {
      from[d] = 0;
      checkCopy(sizes, dense, from, 4);
      checkCopy(sizes, across, from, 4);
    }
}

} // namespace
