// Orders of constants: the bytes that they make, and that what is kept with the constant makes them again.
#include "ir/loops/order.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

using namespace neso;
using namespace neso::loops;

namespace {
Constant numbers(int64_t count, std::vector<float> &values) {
  values.resize(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1.0f);
  Constant c;
  c.data = reinterpret_cast<const uint8_t *>(values.data()), c.bytes = count * 4;
  c.tensors.push_back({"w", {count}, {1}, 0});
  return c;
}
std::vector<float> floats(const Constant &c) {
  const float *p = reinterpret_cast<const float *>(c.data);
  return {p, p + c.bytes / 4};
}
} // namespace

TEST(Order, BlocksOfColumnsArePaddedWithZeros) {
  std::vector<float> values;
  Constant c = numbers(10, values); // [2, 5], rows one after the other
  reorder(c, elementOrder({plainAxis({0, 5}, 2), blockedAxis({0, 1, 2, 3, 4}, 2, 4)}, 0, 12), DType::F32);
  EXPECT_EQ(floats(c), (std::vector<float>{1, 2, 6, 7, 3, 4, 8, 9, 5, 0, 10, 0}));
  EXPECT_EQ(c.sourceElements, 10);
  ASSERT_EQ(c.orders.size(), 1u);
  EXPECT_EQ(c.orders[0].pieces.size(), 2u);
}

TEST(Order, UnevenOffsetsBecomeSeveralRuns) {
  std::vector<float> values;
  Constant c = numbers(8, values);
  // Offsets 0 1 2, then 5 7: a block ends inside the first run, and the second begins inside a block.
  reorder(c, elementOrder({blockedAxis({0, 1, 2, 5, 7}, 2, 10)}, 0, 22), DType::F32);
  std::vector<float> wanted(22, 0.0f);
  wanted[0] = 1, wanted[1] = 2, wanted[10] = 3, wanted[11] = 6, wanted[20] = 8;
  EXPECT_EQ(floats(c), wanted);
}

TEST(Order, OrdersFollowEachOther) {
  std::vector<float> values;
  Constant c = numbers(6, values); // [2, 3]
  reorder(c, elementOrder({plainAxis({0, 3}, 1), plainAxis({0, 1, 2}, 2)}, 0, 6), DType::F32);
  EXPECT_EQ(floats(c), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  reorder(c, elementOrder({plainAxis({5, 4, 3, 2, 1, 0}, 1)}, 0, 6), DType::F32);
  EXPECT_EQ(floats(c), (std::vector<float>{6, 3, 5, 2, 4, 1}));
  EXPECT_EQ(c.orders.size(), 2u);
  EXPECT_EQ(c.sourceElements, 6);
}

TEST(Order, ElementsOfAnotherTypeCannotBePutInOrderAgain) {
  std::vector<float> values;
  Constant c = numbers(4, values);
  reorder(c, elementOrder({plainAxis({1, 0}, 1)}, 0, 2), DType::F64);
  EXPECT_EQ(floats(c), (std::vector<float>{3, 4, 1, 2}));
  EXPECT_TRUE(c.orders.empty() && c.tensors.empty());
  EXPECT_EQ(c.foldedFrom, std::vector<std::string>{"w"});
}

TEST(Order, NumbersOfFourBits) {
  const std::vector<uint8_t> bytes = {0x10, 0x32, 0x54, 0x76};
  Constant c;
  c.dtype = DType::U8, c.data = bytes.data(), c.bytes = 4, c.tensors.push_back({"w", {4}, {1}, 0});
  // What stays where it is needs no other bytes.
  reorderFourBits(c, elementOrder({plainAxis({0, 1, 2, 3, 4, 5, 6, 7}, 1)}, 0, 8));
  EXPECT_EQ(c.data, bytes.data());
  EXPECT_EQ(c.tensors.size(), 1u);
  // The odd ones, then zeros.
  reorderFourBits(c, elementOrder({plainAxis({1, 3, 5, 7}, 1)}, 0, 10));
  EXPECT_EQ((std::vector<uint8_t>{c.data, c.data + c.bytes}), (std::vector<uint8_t>{0x31, 0x75, 0, 0, 0}));
  EXPECT_TRUE(c.tensors.empty());
  EXPECT_EQ(c.foldedFrom, std::vector<std::string>{"w"});
}

TEST(Order, ConstantsSideBySideKeepTheNamesAndOrdersOfEach) {
  std::vector<float> first, second;
  Constant a = numbers(4, first), b = numbers(6, second);
  b.tensors[0].fqn = "v";
  // b, [2, 3] with its columns outside, becomes rows.
  reorder(b, elementOrder({plainAxis({0, 1}, 3), plainAxis({0, 2, 4}, 1)}, 0, 6), DType::F32);
  ASSERT_EQ(floats(b), (std::vector<float>{1, 3, 5, 2, 4, 6}));
  std::optional<Constant> both = sideBySide(std::vector<RowsOf>{{&a, 2}, {&b, 3}});
  ASSERT_TRUE(both);
  EXPECT_EQ(floats(*both), (std::vector<float>{1, 2, 1, 3, 5, 3, 4, 2, 4, 6}));
  ASSERT_EQ(both->tensors.size(), 2u);
  EXPECT_EQ(both->tensors[1].fqn, "v");
  EXPECT_EQ(both->tensors[1].offset, 4);
  EXPECT_EQ(both->sourceElements, 10);
  // What is kept makes it once more.
  std::vector<uint8_t> source(40);
  std::memcpy(source.data(), first.data(), 16), std::memcpy(source.data() + 16, second.data(), 24);
  Constant again = *both;
  makeOf(again, std::move(source));
  EXPECT_EQ(floats(again), floats(*both));
}

TEST(Order, ConstantsOfOneRowAreOneBehindTheOther) {
  std::vector<float> first, second;
  Constant a = numbers(4, first), b = numbers(2, second);
  std::optional<Constant> both = sideBySide(std::vector<RowsOf>{{&a, 4}, {&b, 2}});
  ASSERT_TRUE(both);
  EXPECT_EQ(floats(*both), (std::vector<float>{1, 2, 3, 4, 1, 2}));
  EXPECT_TRUE(both->orders.empty());
  EXPECT_EQ(both->sourceElements, 0);
}
