// Where elements lie in rows, and what masks say about that.
#include "lower/schedule/rows.h"

#include <gtest/gtest.h>

#include "ir/loops/build.h"

namespace neso::schedule::test {
namespace {

using namespace loops;

Expr i(int d) { return Symbol::index(static_cast<size_t>(d)); }

Facts loopsOf(std::initializer_list<Expr> extents) {
  Facts out;
  size_t d = 0;
  for (Expr e : extents) out.setIndex(Symbol::index(d++), e);
  return out;
}

TEST(Rows, OfAViewAreFoundWithoutDivision) {
  const Expr s = Symbol::size("s0");
  const Facts facts = loopsOf({2, s, 4, 8});
  std::optional<RowPlace> place = placeInRows(32 * i(0) * s + 32 * i(1) + 8 * i(2) + i(3), 32, 32, facts);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->row, i(0) * s + i(1));
  EXPECT_EQ(place->inside, 8 * i(2) + i(3));
  // A row further on, and a column.
  place = placeInRows(32 * i(1) + i(3) + 65, 32, 32, facts);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->row, i(1) + 2);
  EXPECT_EQ(place->inside, i(3) + 1);
}

TEST(Rows, ThatAnIndexCrossesAreNotProved) {
  const Facts facts = loopsOf({2, 3, 4, 8});
  EXPECT_FALSE(placeInRows(32 * i(1) + 8 * i(2) + i(3) + 1, 32, 32, facts));
  EXPECT_FALSE(placeInRows(32 * i(1) + 8 * i(2) + i(3) - 4, 32, 32, facts));
  EXPECT_FALSE(placeInRows(16 * i(1) + i(3), 32, 32, facts));
  EXPECT_FALSE(placeInRows(32 * i(1) + Expr(Symbol::size("s0")), 32, 32, facts));
  EXPECT_FALSE(placeInRows(32 * i(1) + i(3), 32, 7, facts));
}

TEST(Rows, MasksSayWhichElementsAreRead) {
  Body body;
  const ValueIdx four = append(body, {.kind = OpKind::Constant, .dtype = DType::I64, .immInt = 4}), at = appendIndex(body, i(1) - 1);
  const ValueIdx from = append(body, OpKind::Le, DType::Bool, four, at), below = append(body, OpKind::Lt, DType::Bool, at, append(body, {.kind = OpKind::Constant, .dtype = DType::I64, .immInt = 6}));
  const ValueIdx both = append(body, OpKind::And, DType::Bool, from, below);
  Facts facts = loopsOf({3, 8}), one = facts, two = facts;
  assume(one, body, from);
  EXPECT_EQ(one.range(Symbol::index(1)).lo, 5);
  EXPECT_EQ(one.range(Symbol::index(1)).hi, 7);
  assume(two, body, both);
  EXPECT_EQ(two.range(Symbol::index(1)).lo, 5);
  EXPECT_EQ(two.range(Symbol::index(1)).hi, 6);
  EXPECT_FALSE(placeInRows(8 * i(0) + i(1) - 5, 8, 8, facts));
  EXPECT_TRUE(placeInRows(8 * i(0) + i(1) - 5, 8, 8, one));
}

} // namespace
} // namespace neso::schedule::test
