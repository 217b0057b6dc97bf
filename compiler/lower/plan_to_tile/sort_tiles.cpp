#include "lower/plan_to_tile/sort_tiles.h"

#include "ir/tile/build.h"
#include "ir/tile/tile.h"
#include "lower/plan_to_tile/blocks.h"
#include "lower/plan_to_tile/sort_order.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso {

using namespace mlir;
using loops::SortSpec;

namespace {

/// Each row whole in one program.
void sortWholeRows(KernelContext &k, const Facts &facts, const SortTiling &tiling) {
  const auto &node = k.kernel.nodes[0].get<SortSpec>();
  std::vector<Blocking> blockings = rowBlocks(k);
  const int64_t width = tiling.tile.back();
  Emitter e(k, Frame{tiling.tile});
  e.facts = facts;
  const size_t along = tiling.tile.size() - 1;
  if (along > 0) blockings.back().size = tiling.tile[0], blockings.back().frameDim = 0;
  blockings.push_back({Symbol::inner(0), k.kernel.rRanges[0], width, static_cast<int>(along)});
  bindPrograms(e, blockings);

  std::vector<Val> memo;
  Val key = e.value(node.body, node.key, memo);
  SortWords words(e, node, node.position >= 0 ? INT32_MAX : width);
  std::vector<Val> packed = words.pack(key, positionOf(e, node, e.lanes(along), memo));
  Val inside = e.facts.provablyDivisible(k.kernel.rRanges[0], Expr(width))
                   ? Val()
                   : e.compare("lt", e.env[Symbol::inner(0)], e.index(k.kernel.rRanges[0]));
  std::vector<Val> behind = words.last();
  SmallVector<Value> operands;
  for (size_t i = 0; i < packed.size(); ++i) {
    if (inside) packed[i] = e.select(inside, packed[i], behind[i]);
    operands.push_back(e.widen(packed[i], e.frame.full()).v);
  }
  auto sorted = ttg::SortOp::create(k.b, k.loc, operands, static_cast<uint32_t>(along), false);
  for (size_t i = 0; i < packed.size(); ++i) packed[i] = {sorted.getResult(static_cast<unsigned>(i)), e.frame.full()};
  storeSorted(e, node, words.key(packed), words.position(packed), DType::U32);
}

/// The place of each element is the number of those that stand before it: n comparisons each, all of them independent,
/// and no workspace.
void sortByRank(KernelContext &k, const Facts &facts, const SortTiling &tiling) {
  const auto &node = k.kernel.nodes[0].get<SortSpec>();
  Expr n = k.kernel.rRanges[0];
  Emitter mine(k, Frame{tiling.tile});
  mine.facts = facts;
  std::vector<Blocking> blockings = rowBlocks(k);
  blockings.push_back({Symbol::inner(0), n, mine.frame.tile[0], 0});
  bindPrograms(mine, blockings);
  std::vector<Val> memo;
  Val key = mine.value(node.body, node.key, memo), position = mine.env[Symbol::inner(0)];
  // Positions have room among the words where indices are of 32 bits.
  const bool asWords = k.indexType.isInteger(32);
  std::vector<Val> words;
  if (asWords) words = SortWords(mine, node, INT32_MAX).pack(key, position);

  auto countType = RankedTensorType::get(mine.frame.tile, k.b.getI32Type());
  Value none = arith::ConstantOp::create(k.b, k.loc, DenseElementsAttr::get(countType, k.b.getI32IntegerAttr(0)));
  auto loop = scf::ForOp::create(k.b, k.loc, mine.intConst(0).v, mine.index(n).v, mine.intConst(mine.frame.tile[1]).v,
                                 ValueRange{none});
  {
    OpBuilder::InsertionGuard guard(k.b);
    k.b.setInsertionPointToStart(loop.getBody());
    Emitter other = mine;
    other.forgetIndices();
    other.stored.clear(), other.masks.clear(), other.blocked.erase(Symbol::inner(0));
    Val at = other.binary("arith.addi", Val{loop.getInductionVar()}, other.lanes(1));
    other.env[Symbol::inner(0)] = at;
    Val inside = other.compare("lt", at, other.index(n));
    other.masks.push_back(inside);
    std::vector<Val> otherMemo;
    Val otherKey = other.value(node.body, node.key, otherMemo);
    Val before = asWords ? comesBefore(other, SortWords(other, node, INT32_MAX).pack(otherKey, at), words)
                         : standsBefore(other, node, otherKey, at, key, position);
    Val one = other.cast(other.widen(other.binary("arith.andi", inside, before), 3), DType::Bool, DType::I32);
    Val sum = other.binary("arith.addi", Val{loop.getRegionIterArg(0), 3}, one);
    scf::YieldOp::create(k.b, k.loc, sum.v);
  }
  SmallVector<Value> total = tile::reduce(k.b, k.loc, {loop.getResult(0)}, 1, [&](ValueRange args) {
    return SmallVector<Value>{arith::AddIOp::create(k.b, k.loc, args[0], args[1])};
  });
  Val rank{tile::expandDims(k.b, k.loc, total[0], 1), 1};
  Emitter out = mine;
  out.forgetIndices();
  out.blocked.erase(Symbol::inner(0));
  out.env[Symbol::inner(0)] = out.toIndex(rank, DType::I32);
  storeSorted(out, node, key, position, indexTypeOf(k));
}

/// Merges the two runs of a row, a tile of the result a program (merge path: Green, McColl, Bader 2012): how many of
/// the first d elements are from the first run is found by bisection, and the two parts of a tile, the second one
/// backwards, are a row that rises and falls.
class Merge {
public:
  Merge(KernelContext &k, const Facts &facts, int64_t size)
      : k_(k), node_(k.kernel.nodes[0].get<SortSpec>()), size_(size), tile_(tileOf(k, facts, size)), row_(tile_) {
    row_.frame = Frame{};
    row_.masks.clear(), row_.blocked.erase(Symbol::inner(0));
    length_ = row_.index(k.kernel.rRanges[0]);
    run_ = row_.binary("arith.minsi", row_.index(node_.run), length_);
    rest_ = row_.binary("arith.subi", length_, run_);
  }

  void run() {
    auto plus = [&](Val a, Val b) { return tile_.binary("arith.addi", a, b); };
    auto minus = [&](Val a, Val b) { return tile_.binary("arith.subi", a, b); };
    Val begin = row_.index(Symbol::program(k_.kernel.xRanges.size()) * Expr(size_));
    Val end = row_.binary("arith.minsi", plus(begin, row_.intConst(size_)), length_);
    Val first = fromFirstRun(begin), next = fromFirstRun(end);
    Val ofFirst = minus(next, first), ofSecond = minus(minus(end, begin), ofFirst);
    Val i = tile_.lanes(0), fromEnd = minus(tile_.intConst(size_ - 1), i);
    Val inFirst = tile_.compare("lt", i, ofFirst), inSecond = tile_.compare("lt", fromEnd, ofSecond);
    Val inside = tile_.binary("arith.ori", inFirst, inSecond);
    Val second = plus(plus(run_, minus(begin, first)), fromEnd);
    Val at = tile_.select(inside, tile_.select(inFirst, plus(first, i), second), tile_.intConst(0));

    Emitter source = tile_;
    source.forgetIndices();
    source.masks = {inside};
    std::vector<Val> packed = wordsAt(source, at), behind = SortWords(tile_, node_, INT32_MAX).last();
    SmallVector<Value> operands;
    for (size_t w = 0; w < packed.size(); ++w)
      operands.push_back(tile_.widen(tile_.select(inside, packed[w], behind[w]), 1).v);
    auto merged = ttg::SortOp::create(k_.b, k_.loc, operands, 0u, true);
    for (size_t w = 0; w < packed.size(); ++w) packed[w] = {merged.getResult(static_cast<unsigned>(w)), 1};
    SortWords words(tile_, node_, INT32_MAX);
    storeSorted(tile_, node_, words.key(packed), words.position(packed), DType::U32);
  }

private:
  static Emitter tileOf(KernelContext &k, const Facts &facts, int64_t size) {
    Emitter e(k, Frame{{size}});
    e.facts = facts;
    std::vector<Blocking> blockings = rowBlocks(k);
    blockings.push_back({Symbol::inner(0), k.kernel.rRanges[0], size, 0});
    bindPrograms(e, blockings);
    return e;
  }

  /// Of the element at place `r` of the row.
  std::vector<Val> wordsAt(Emitter e, Val r) {
    e.forgetIndices();
    e.blocked.erase(Symbol::inner(0));
    e.env[Symbol::inner(0)] = r;
    std::vector<Val> memo;
    Val key = e.value(node_.body, node_.key, memo), position = positionOf(e, node_, r, memo);
    return SortWords(e, node_, INT32_MAX).pack(key, position);
  }

  /// How many of the first `d` elements of the result are from the first run.
  Val fromFirstRun(Val d) {
    OpBuilder &b = k_.b;
    Val low = row_.binary("arith.maxsi", row_.intConst(0), row_.binary("arith.subi", d, rest_)),
        high = row_.binary("arith.minsi", d, run_);
    SmallVector<Type> types(2, k_.indexType);
    auto loop = scf::WhileOp::create(b, k_.loc, types, ValueRange{low.v, high.v});
    OpBuilder::InsertionGuard guard(b);
    SmallVector<Location> locs(2, k_.loc);
    Block *condition = b.createBlock(&loop.getBefore(), {}, types, locs);
    scf::ConditionOp::create(b, k_.loc,
                             row_.compare("lt", Val{condition->getArgument(0)}, Val{condition->getArgument(1)}).v,
                             condition->getArguments());
    Block *body = b.createBlock(&loop.getAfter(), {}, types, locs);
    Val from{body->getArgument(0)}, to{body->getArgument(1)}, one = row_.intConst(1);
    Val middle = row_.binary("arith.shrsi", row_.binary("arith.addi", from, to), one);
    Val other = row_.binary("arith.subi", row_.binary("arith.subi", row_.binary("arith.addi", run_, d), one), middle);
    Val taken = comesBefore(row_, wordsAt(row_, middle), wordsAt(row_, other));
    Val above = row_.select(taken, row_.binary("arith.addi", middle, one), from),
        below = row_.select(taken, to, middle);
    scf::YieldOp::create(b, k_.loc, ValueRange{above.v, below.v});
    return {loop.getResult(0)};
  }

  KernelContext &k_;
  const SortSpec &node_;
  int64_t size_;            // elements of a tile
  Emitter tile_, row_;      // of a tile of the result; of scalars
  Val length_, run_, rest_; // of the row, of its first run, of its second
};

} // namespace

void emitTileSort(KernelContext &k, const Facts &facts, const SortTiling &tiling) {
  k.code.warps = tiling.warps;
  switch (tiling.method) {
  case SortTiling::Method::Merge: return Merge(k, facts, tiling.tile[0]).run();
  case SortTiling::Method::Rows: return sortWholeRows(k, facts, tiling);
  case SortTiling::Method::Ranks: return sortByRank(k, facts, tiling);
  case SortTiling::Method::Heap:
  case SortTiling::Method::Insertion:
  case SortTiling::Method::Digits:
  case SortTiling::Method::Select: NESO_UNREACHABLE("a sort in scratch memory by a program of many threads");
  }
}

} // namespace neso
