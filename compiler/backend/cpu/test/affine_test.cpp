// The facts of affine.h against what programs compute: every integer tensor of random programs (random_tiles.h) is
// analysed along every dimension and computed by the tile interpreter; where the conditions of a fact hold on the
// elements, the fact must. Seeds are fixed. And the common forms must be proven, for they decide speed.
#include <gtest/gtest.h>

#include "backend/common/opcodes.h"
#include "backend/cpu/affine.h"
#include "backend/cpu/test/random_tiles.h"
#include "ir/tile/build.h"
#include "ir/tile/interp.h"
#include "ir/tile/tile.h"

namespace neso::cpu::test {
namespace {

namespace tb = neso::tile;

/// All integer tensors of a function, and room for what they hold: two words an element, kRoom elements each.
constexpr int64_t kRoom = 512;

struct Program {
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  mlir::OwningOpRef<mlir::ModuleOp> module;
  tt::FuncOp function;
  std::vector<mlir::Value> values;
  llvm::DenseMap<mlir::Value, size_t> place;
  std::vector<int32_t> memory;

  llvm::ArrayRef<int64_t> shape(mlir::Value v) const {
    return llvm::cast<mlir::RankedTensorType>(v.getType()).getShape();
  }
  unsigned bits(mlir::Value v) const {
    return llvm::cast<mlir::RankedTensorType>(v.getType()).getElementType().getIntOrFloatBitWidth();
  }
  int64_t count(mlir::Value v) const {
    int64_t n = 1;
    for (int64_t s : shape(v)) n *= s;
    return n;
  }
  /// Element i of v, row-major, as a number.
  int64_t at(mlir::Value v, int64_t i, bool isSigned = true) const {
    const int32_t *p = memory.data() + (static_cast<int64_t>(place.lookup(v)) * kRoom + i) * 2;
    const uint64_t raw = static_cast<uint32_t>(p[0]) | static_cast<uint64_t>(static_cast<uint32_t>(p[1])) << 32;
    const unsigned drop = 64 - bits(v);
    return isSigned ? static_cast<int64_t>(raw << drop) >> drop : static_cast<int64_t>(raw << drop >> drop);
  }

  /// Parses `text` and appends a store of every integer tensor.
  void read(const std::string &text) {
    Result<mlir::OwningOpRef<mlir::ModuleOp>> parsed = parseTile(text, "random.ttir", context.get());
    ASSERT_TRUE(parsed) << parsed.error().str() << text;
    module = std::move(*parsed);
    function = *module->getOps<tt::FuncOp>().begin();
    for (mlir::Operation &op : function.getBody().front())
      for (mlir::Value r : op.getResults())
        if (auto t = llvm::dyn_cast<mlir::RankedTensorType>(r.getType()); t && t.getElementType().isInteger())
          values.push_back(r);
    mlir::OpBuilder b(function.getBody().front().getTerminator());
    for (size_t k = 0; k < values.size(); ++k) {
      place[values[k]] = k;
      ASSERT_LE(count(values[k]), kRoom);
      store(b, values[k], static_cast<int64_t>(k) * kRoom * 2);
    }
    memory.assign(values.size() * kRoom * 2, 0);
  }
  void store(mlir::OpBuilder &b, mlir::Value v, int64_t from) {
    mlir::Location loc = b.getUnknownLoc();
    llvm::ArrayRef<int64_t> dims = shape(v);
    auto dense = [&](int64_t c, mlir::Type element) -> mlir::Value {
      auto type = mlir::RankedTensorType::get(dims, element);
      return mlir::arith::ConstantOp::create(b, loc, mlir::DenseElementsAttr::get(type, b.getIntegerAttr(element, c)));
    };
    mlir::Value linear = dense(from, b.getI32Type());
    int64_t pitch = 2;
    for (int d = static_cast<int>(dims.size()) - 1; d >= 0; --d) {
      mlir::Value range = tb::makeRange(b, loc, 0, dims[static_cast<size_t>(d)]);
      for (size_t other = 0; other < dims.size(); ++other)
        if (other != static_cast<size_t>(d)) range = tb::expandDims(b, loc, range, static_cast<int>(other));
      range = dims.size() > 1 ? tb::broadcast(b, loc, range, dims) : range;
      linear = mlir::arith::AddIOp::create(b, loc, linear,
                                           mlir::arith::MulIOp::create(b, loc, range, dense(pitch, b.getI32Type())));
      pitch *= dims[static_cast<size_t>(d)];
    }
    auto i64 = mlir::RankedTensorType::get(dims, b.getI64Type()), i32 = mlir::RankedTensorType::get(dims, b.getI32Type());
    mlir::Value wide = bits(v) == 64 ? v : mlir::arith::ExtSIOp::create(b, loc, i64, v).getResult();
    mlir::Value base = tb::splat(b, loc, function.getBody().front().getArgument(1), dims);
    for (int half : {0, 1}) {
      mlir::Value word = half ? mlir::arith::ShRUIOp::create(b, loc, wide, dense(32, b.getI64Type())).getResult() : wide;
      mlir::Value at = mlir::arith::AddIOp::create(b, loc, linear, dense(half, b.getI32Type()));
      tb::store(b, loc, tb::addptr(b, loc, base, at), mlir::arith::TruncIOp::create(b, loc, i32, word), {});
    }
  }
  Status run(int64_t n, int64_t m, int64_t s) {
    std::vector<int32_t> x(kTable);
    std::vector<InterpArg> args = {InterpArg::pointer(x.data(), kTable * 4),
                                   InterpArg::pointer(memory.data(), static_cast<int64_t>(memory.size() * 4)),
                                   InterpArg::pointer(x.data(), kTable * 4),
                                   InterpArg::pointer(x.data(), kTable * 4),
                                   InterpArg::integer(n),
                                   InterpArg::integer(m),
                                   InterpArg::integer(s)};
    return interpretTile(function, args, {1, 1, 1});
  }

  llvm::SmallVector<int64_t, 2> position(mlir::Value v, int64_t i) const {
    llvm::ArrayRef<int64_t> dims = shape(v);
    llvm::SmallVector<int64_t, 2> p(dims.size());
    for (int d = static_cast<int>(dims.size()) - 1; d >= 0; --d) p[d] = i % dims[d], i /= dims[d];
    return p;
  }
  int64_t pitch(mlir::Value v, size_t dim) const {
    int64_t n = 1;
    for (size_t d = dim + 1; d < shape(v).size(); ++d) n *= shape(v)[d];
    return n;
  }

  bool holds(const NoWrap &c) const {
    const int64_t half = bits(c.value) == 64 ? 0 : int64_t{1} << (bits(c.value) - 1);
    for (int64_t i = 0; i < count(c.value); ++i) {
      __int128 number = at(c.value, 0, c.isSigned);
      llvm::SmallVector<int64_t, 2> p = position(c.value, i);
      for (size_t d = 0; d < p.size(); ++d) {
        if (shape(c.value)[d] == 1) continue;
        int64_t step = static_cast<int64_t>(static_cast<uint64_t>(at(c.value, pitch(c.value, d))) -
                                            static_cast<uint64_t>(at(c.value, 0)));
        if (half) step = (step + half & (2 * half - 1)) - half;
        number += static_cast<__int128>(step) * p[d];
      }
      if (number != at(c.value, i, c.isSigned)) return false;
    }
    return true;
  }
  bool holds(mlir::Operation *remainder) const {
    mlir::Value r = remainder->getResult(0), sum = remainder->getOperand(0);
    for (int64_t i = 0; i < count(r); ++i)
      if (at(r, i) != at(r, 0) + i || at(sum, i) != at(sum, 0) + i || at(sum, 0) < 0) return false;
    return true;
  }
  bool holds(const Conditions &conditions) const {
    return llvm::all_of(conditions.noWrap, [&](const NoWrap &c) { return holds(c); }) &&
           llvm::all_of(conditions.remainders, [&](mlir::Operation *op) { return holds(op); });
  }
};

TEST(Affine, HoldsOnRandomPrograms) {
  int facts = 0, conditional = 0, refuted = 0, masks = 0;
  for (uint32_t seed = 1; seed <= 600 && !HasFailure(); ++seed) {
    RandomTiles tiles(seed);
    tiles.begin();
    for (int i = 0; i < 14; ++i) tiles.op();
    tiles.mask();
    tiles.mask();
    const std::string text = tiles.end();
    Program p;
    p.read(text);
    if (HasFailure()) return;
    Affine affine([](mlir::Value) { return mlir::Value(); });
    for (auto [n, m, s] : {std::tuple<int64_t, int64_t, int64_t>{16, 3, 5},
                           {1, 250, -3},
                           {64, 2147483640, 2147483600},
                           {24, -128, 100},
                           {40, 2147483647, -2147483648}}) {
      Status ran = p.run(n, m, s);
      ASSERT_TRUE(ran) << ran.error().str() << text;
      for (mlir::Value v : p.values) {
        const unsigned bits = p.bits(v);
        for (size_t d = 0; d < p.shape(v).size(); ++d) {
          Conditions conditions;
          std::optional<Step> step = affine.along(v, static_cast<int64_t>(d), conditions);
          if (!step || p.shape(v)[d] == 1) continue;
          if (!p.holds(conditions)) {
            ++refuted;
            continue;
          }
          ++facts, conditional += !conditions.empty();
          const int64_t pitch = p.pitch(v, d);
          const uint64_t each = step->constant ? static_cast<uint64_t>(*step->constant)
                                               : static_cast<uint64_t>(p.at(v, pitch) - p.at(v, 0));
          for (int64_t i = 0; i < p.count(v); ++i) {
            const int64_t along = p.position(v, i)[d];
            const uint64_t apart = static_cast<uint64_t>(p.at(v, i)) - static_cast<uint64_t>(p.at(v, i - along * pitch)) -
                                   each * static_cast<uint64_t>(along);
            ASSERT_EQ(bits == 64 ? apart : apart << (64 - bits), 0u)
                << "seed " << seed << ", n " << n << ", m " << m << ", s " << s << ", dimension " << d << ", element " << i
                << " of " << printTile(*p.module) << "\nvalue " << p.place[v];
          }
        }
        Conditions conditions;
        if (bits != 1 || !affine.isConvexMask(v, conditions) || !p.holds(conditions)) continue;
        ++masks;
        const int64_t last = p.count(v) - 1, row = p.shape(v).back() - 1;
        bool corners = true, all = true;
        for (int64_t i : {int64_t{0}, row, last - row, last}) corners &= p.at(v, i, false) != 0;
        for (int64_t i = 0; i <= last; ++i) all &= p.at(v, i, false) != 0;
        ASSERT_TRUE(!corners || all) << "seed " << seed << printTile(*p.module) << "\nmask " << p.place[v];
      }
    }
  }
  // It says something, its conditions hold as a rule and fail where they should.
  EXPECT_GT(facts, 20000);
  EXPECT_GT(conditional, 1500);
  EXPECT_GT(refuted, 500);
  EXPECT_GT(masks, 500);
}

/// What kernels are made of: name in the text -> dimension, step, conditions.
TEST(Affine, ProvesCommonForms) {
  const char *text = R"(
tt.func public @f(%x: !tt.ptr<f32>, %o: !tt.ptr<i32>, %n: i32, %k: i32) {
  %pid = tt.get_program_id x : i32
  %block = arith.constant 128 : i32
  %start = arith.muli %pid, %block : i32
  %range = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
  %starts = tt.splat %start : i32 -> tensor<128xi32>
  %offsets = arith.addi %starts, %range {n = "offsets"} : tensor<128xi32>
  %base = tt.splat %x : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
  %pointers = tt.addptr %base, %offsets {n = "pointers"} : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
  %ns = tt.splat %n : i32 -> tensor<128xi32>
  %turned = arith.remsi %offsets, %ns {n = "turned"} : tensor<128xi32>
  %wide = arith.extsi %offsets {n = "wide"} : tensor<128xi32> to tensor<128xi64>
  %rows = tt.expand_dims %offsets {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>
  %ks = tt.splat %k : i32 -> tensor<128x1xi32>
  %pitch = arith.muli %rows, %ks : tensor<128x1xi32>
  %r32 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %columns = tt.expand_dims %r32 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
  %rowsOver = tt.broadcast %pitch : tensor<128x1xi32> -> tensor<128x32xi32>
  %columnsOver = tt.broadcast %columns : tensor<1x32xi32> -> tensor<128x32xi32>
  %both = arith.addi %rowsOver, %columnsOver {n = "both"} : tensor<128x32xi32>
  %marked = arith.addi %rowsOver, %columnsOver overflow<nsw> {n = "marked"} : tensor<128x32xi32>
  %base2 = tt.splat %x : !tt.ptr<f32> -> tensor<128x32x!tt.ptr<f32>>
  %tile = tt.addptr %base2, %both {n = "tile"} : tensor<128x32x!tt.ptr<f32>>, tensor<128x32xi32>
  %markedTile = tt.addptr %base2, %marked {n = "marked tile"} : tensor<128x32x!tt.ptr<f32>>, tensor<128x32xi32>
  %low = arith.constant dense<63> : tensor<128xi32>
  %repeats = arith.andi %offsets, %low {n = "repeats"} : tensor<128xi32>
  %two = arith.constant dense<2> : tensor<128xi32>
  %doubled = arith.muli %offsets, %two {n = "doubled"} : tensor<128xi32>
  %narrow = arith.trunci %doubled {n = "narrow"} : tensor<128xi32> to tensor<128xi8>
  tt.return
})";
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
  Result<mlir::OwningOpRef<mlir::ModuleOp>> module = parseTile(text, "forms.ttir", context.get());
  ASSERT_TRUE(module) << module.error().str();
  llvm::StringMap<mlir::Value> named;
  (*module)->walk([&](mlir::Operation *op) {
    if (auto n = op->getAttrOfType<mlir::StringAttr>("n")) named[n.getValue()] = op->getResult(0);
  });
  Affine affine([](mlir::Value) { return mlir::Value(); });
  auto expect = [&](const char *name, int64_t dim, std::optional<int64_t> step, size_t noWrap, size_t remainders) {
    Conditions conditions;
    std::optional<Step> found = affine.along(named.lookup(name), dim, conditions);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->constant, step) << name;
    EXPECT_EQ(conditions.noWrap.size(), noWrap) << name;
    EXPECT_EQ(conditions.remainders.size(), remainders) << name;
  };
  expect("offsets", 0, 1, 0, 0);
  expect("pointers", 0, 1, 1, 0);
  expect("turned", 0, 1, 0, 1);
  expect("wide", 0, 1, 1, 0);
  expect("both", 0, std::nullopt, 0, 0);
  expect("both", 1, 1, 0, 0);
  expect("tile", 1, 1, 1, 0);
  expect("marked tile", 1, 1, 0, 0);
  expect("doubled", 0, 2, 0, 0);
  expect("narrow", 0, 2, 0, 0);
  Conditions conditions;
  EXPECT_FALSE(affine.along(named.lookup("repeats"), 0, conditions));
}

} // namespace
} // namespace neso::cpu::test
