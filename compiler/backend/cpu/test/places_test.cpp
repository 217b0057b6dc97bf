// The answers of places.h against the places themselves: pairs of stores at random affine places of one argument, whose
// elements are counted one by one. Seeds are fixed.
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "backend/common/opcodes.h"
#include "backend/cpu/places.h"
#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace neso::cpu::test {
namespace {

/// rows * row + columns * column + n + constant, on elements with row < rowBound and column < columnBound.
struct Place {
  int64_t rows, columns, constant;
  bool nsw = true;
};
struct Tile {
  int64_t rows, columns, rowBound, columnBound;
};

std::string textOf(const Tile &t, const std::vector<Place> &places) {
  const std::string shape = fmt::format("{}x{}", t.rows, t.columns);
  std::string text = "tt.func public @k(%x: !tt.ptr<f32>, %n: i32) {\n";
  auto line = [&](const std::string &l) { text += "  " + l + "\n"; };
  line(fmt::format("%r0 = tt.make_range {{end = {0} : i32, start = 0 : i32}} : tensor<{0}xi32>", t.rows));
  line(fmt::format("%r = tt.expand_dims %r0 {{axis = 1 : i32}} : tensor<{0}xi32> -> tensor<{0}x1xi32>", t.rows));
  line(fmt::format("%c0 = tt.make_range {{end = {0} : i32, start = 0 : i32}} : tensor<{0}xi32>", t.columns));
  line(fmt::format("%c = tt.expand_dims %c0 {{axis = 0 : i32}} : tensor<{0}xi32> -> tensor<1x{0}xi32>", t.columns));
  line(fmt::format("%rb = arith.constant dense<{}> : tensor<{}x1xi32>", t.rowBound, t.rows));
  line(fmt::format("%cb = arith.constant dense<{}> : tensor<1x{}xi32>", t.columnBound, t.columns));
  line(fmt::format("%rm = arith.cmpi slt, %r, %rb : tensor<{}x1xi32>", t.rows));
  line(fmt::format("%cm = arith.cmpi slt, %c, %cb : tensor<1x{}xi32>", t.columns));
  line(fmt::format("%rmb = tt.broadcast %rm : tensor<{}x1xi1> -> tensor<{}xi1>", t.rows, shape));
  line(fmt::format("%cmb = tt.broadcast %cm : tensor<1x{}xi1> -> tensor<{}xi1>", t.columns, shape));
  line(fmt::format("%m = arith.andi %rmb, %cmb : tensor<{}xi1>", shape));
  line(fmt::format("%v = arith.constant dense<1.0> : tensor<{}xf32>", shape));
  line(fmt::format("%base = tt.splat %x : !tt.ptr<f32> -> tensor<{}x!tt.ptr<f32>>", shape));
  for (size_t k = 0; k < places.size(); ++k) {
    const Place &p = places[k];
    const char *flag = p.nsw ? " overflow<nsw>" : "";
    line(fmt::format("%k{} = arith.constant {} : i32", k, p.constant));
    line(fmt::format("%s{0} = arith.addi %n, %k{0}{1} : i32", k, flag));
    line(fmt::format("%sr{} = arith.constant dense<{}> : tensor<{}x1xi32>", k, p.rows, t.rows));
    line(fmt::format("%sc{} = arith.constant dense<{}> : tensor<1x{}xi32>", k, p.columns, t.columns));
    line(fmt::format("%a{0} = arith.muli %r, %sr{0}{1} : tensor<{2}x1xi32>", k, flag, t.rows));
    line(fmt::format("%b{0} = arith.muli %sc{0}, %c{1} : tensor<1x{2}xi32>", k, flag, t.columns));
    line(fmt::format("%ab{0} = tt.broadcast %a{0} : tensor<{1}x1xi32> -> tensor<{2}xi32>", k, t.rows, shape));
    line(fmt::format("%bb{0} = tt.broadcast %b{0} : tensor<1x{1}xi32> -> tensor<{2}xi32>", k, t.columns, shape));
    line(fmt::format("%sb{0} = tt.splat %s{0} : i32 -> tensor<{1}xi32>", k, shape));
    line(fmt::format("%d{0} = arith.addi %ab{0}, %bb{0}{1} : tensor<{2}xi32>", k, flag, shape));
    line(fmt::format("%o{0} = arith.addi %sb{0}, %d{0}{1} : tensor<{2}xi32>", k, flag, shape));
    line(fmt::format("%p{0} = tt.addptr %base, %o{0} : tensor<{1}x!tt.ptr<f32>>, tensor<{1}xi32>", k, shape));
    line(fmt::format("tt.store %p{0}, %v, %m : tensor<{1}x!tt.ptr<f32>>", k, shape));
  }
  return text + "  tt.return\n}\n";
}

std::set<int64_t> elementsOf(const Tile &t, const Place &p) {
  std::set<int64_t> out;
  for (int64_t r = 0; r < std::min(t.rows, t.rowBound); ++r)
    for (int64_t c = 0; c < std::min(t.columns, t.columnBound); ++c)
      out.insert(p.rows * r + p.columns * c + p.constant);
  return out;
}

struct Answers {
  std::optional<int64_t> distance;
  bool apart;
};

Answers answersOf(const Tile &t, const Place &p, const Place &q) {
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  const std::string text = textOf(t, {p, q});
  Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text, "places.ttir", context.get());
  EXPECT_TRUE(module) << module.error().str() << text;
  std::vector<tt::StoreOp> stores;
  (*module)->walk([&](tt::StoreOp s) { stores.push_back(s); });
  mlir::Value a = stores[0].getPtr(), b = stores[1].getPtr();
  return {distance(a, b), areApart(a, b, stores[0].getMask())};
}

TEST(Places, ApartMeansNoElementInCommon) {
  std::mt19937 random(7);
  auto draw = [&](int64_t from, int64_t to) { return from + static_cast<int64_t>(random() % (to - from + 1)); };
  int apart = 0, common = 0;
  for (int k = 0; k < 400; ++k) {
    Tile t{int64_t{1} << draw(0, 4), int64_t{1} << draw(0, 5), draw(1, 20), draw(1, 40)};
    Place p{draw(0, 70), draw(0, 9), draw(0, 300)}, q = p;
    q.constant += draw(-40, 40);
    const Answers a = answersOf(t, p, q);
    const std::optional<int64_t> between = q.constant - p.constant;
    ASSERT_EQ(a.distance, between);
    std::set<int64_t> x = elementsOf(t, p), y = elementsOf(t, q);
    bool meets = false;
    for (int64_t e : x) meets |= y.count(e) != 0;
    // Exactly: all that decides is known here.
    EXPECT_EQ(a.apart, !meets) << textOf(t, {p, q});
    ++(meets ? common : apart);
  }
  EXPECT_GT(apart, 100);
  EXPECT_GT(common, 50);
}

TEST(Places, NothingIsConcludedFromWhatMayWrapOrDiffers) {
  const Tile t{8, 16, 8, 16};
  const Place p{64, 4, 0};
  Place wraps{64, 4, 1, false}, steeper{128, 4, 1};
  const Place next{64, 4, 1}, over{64, 4, 4};
  EXPECT_EQ(answersOf(t, p, next).distance, 1);
  EXPECT_TRUE(answersOf(t, p, next).apart);
  EXPECT_FALSE(answersOf(t, p, over).apart);
  EXPECT_EQ(answersOf(t, p, wraps).distance, std::nullopt);
  EXPECT_FALSE(answersOf(t, p, wraps).apart);
  EXPECT_EQ(answersOf(t, p, steeper).distance, std::nullopt);
  EXPECT_FALSE(answersOf(t, p, steeper).apart);
}

TEST(Places, DistinctMeansThatNoTwoElementsAreOnePlace) {
  std::mt19937 random(11);
  auto draw = [&](int64_t from, int64_t to) { return from + static_cast<int64_t>(random() % (to - from + 1)); };
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  int distinct = 0, shared = 0;
  for (int k = 0; k < 300; ++k) {
    const Tile t{int64_t{1} << draw(0, 4), int64_t{1} << draw(0, 5), 64, 64};
    const Place p{draw(-70, 70), draw(-9, 9), draw(0, 300), draw(0, 1) != 0};
    const std::string text = textOf(t, {p});
    Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text, "places.ttir", context.get());
    ASSERT_TRUE(module) << module.error().str() << text;
    mlir::Value pointer;
    (*module)->walk([&](tt::StoreOp s) { pointer = s.getPtr(); });
    const bool apart = static_cast<int64_t>(elementsOf(t, p).size()) == t.rows * t.columns, says = areDistinct(pointer);
    // Only where one step is longer than all of the other's is it looked for.
    const bool plain = t.rows == 1 || t.columns == 1 || std::abs(p.rows) > (t.columns - 1) * std::abs(p.columns) || std::abs(p.columns) > (t.rows - 1) * std::abs(p.rows);
    EXPECT_EQ(says, apart && plain) << text;
    ++(says ? distinct : shared);
  }
  EXPECT_GT(distinct, 100);
  EXPECT_GT(shared, 30);
}

/// What a loop carries is looked through: by one number for all elements, in pointers as in offsets.
TEST(Places, OfWhatLoopsCarry) {
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  auto answers = [&](std::string_view first, std::string_view by) {
    const std::string text = fmt::format(R"(tt.func public @k(%x: !tt.ptr<f32>, %n: i32) {{
  %r = tt.make_range {{end = 8 : i32, start = 0 : i32}} : tensor<8xi32>
  %two = arith.constant dense<2> : tensor<8xi32>
  %ns = tt.splat %n : i32 -> tensor<8xi32>
  %h = arith.divui %r, %two : tensor<8xi32>
  %m = arith.muli %r, %ns : tensor<8xi32>
  %xs = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
  %begin = tt.addptr %xs, {} : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %v = arith.constant dense<1.0> : tensor<8xf32>
  %end = scf.for %i = %zero to %n step %one iter_args(%p = %begin) -> (tensor<8x!tt.ptr<f32>>) : i32 {{
    %next = tt.addptr %p, {} : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    tt.store %p, %v : tensor<8x!tt.ptr<f32>>
    tt.store %next, %v : tensor<8x!tt.ptr<f32>>
    scf.yield %next : tensor<8x!tt.ptr<f32>>
  }}
  tt.return
}}
)",
                                         first, by);
    Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text, "places.ttir", context.get());
    EXPECT_TRUE(module) << module.error().str() << text;
    std::vector<mlir::Value> pointers;
    (*module)->walk([&](tt::StoreOp s) { pointers.push_back(s.getPtr()); });
    // An element of the second may be what another of the first is.
    EXPECT_FALSE(areApart(pointers[0], pointers[1], {}));
    return areDistinct(pointers[0]);
  };
  EXPECT_TRUE(answers("%r", "%two"));
  EXPECT_TRUE(answers("%r", "%ns"));
  EXPECT_FALSE(answers("%r", "%r"));
  EXPECT_FALSE(answers("%h", "%two"));
  EXPECT_FALSE(answers("%m", "%two"));
}

} // namespace
} // namespace neso::cpu::test
