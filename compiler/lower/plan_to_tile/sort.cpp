#include "lower/plan_to_tile/sort.h"

#include "ir/tile/build.h"
#include "lower/plan_to_tile/blocks.h"
#include "lower/plan_to_tile/config.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso {

using namespace mlir;
using loops::Node;

namespace {

DType keyTypeOf(const Node &node) { return node.body.ops[static_cast<size_t>(node.inputs[0])].dtype; }

/// Whether key x at position a stands before key y at position b in the result. NaN is the largest value; equal keys keep their order
/// where positions are given.
Val standsBefore(Emitter &e, const Node &node, Val x, Val a, Val y, Val b) {
  DType t = keyTypeOf(node);
  bool uns = isUnsignedInt(t) || t == DType::Bool;
  if (isReducedFloat(t)) x = e.cast(x, t, DType::F32), y = e.cast(y, t, DType::F32);
  if (node.descending) std::swap(x, y);
  Val less = e.compare("lt", x, y, uns), tie = e.compare("eq", x, y);
  if (isFloat(t)) {
    Val xNan = e.compare("uno", x, x), yNan = e.compare("uno", y, y), yes = e.constant(DType::Bool, 0, 1);
    less = e.binary("arith.ori", less, e.binary("arith.andi", yNan, e.binary("arith.xori", xNan, yes)));
    tie = e.binary("arith.ori", tie, e.binary("arith.andi", xNan, yNan));
  }
  if (!a) return less;
  return e.binary("arith.ori", less, e.binary("arith.andi", tie, e.compare("lt", a, b)));
}

class HeapSort {
public:
  HeapSort(KernelContext &k, const Facts &facts) : k_(k), node_(k.kernel.nodes[0]), row_(k, Frame{}) {
    row_.facts = facts;
    std::vector<Blocking> blockings;
    for (size_t d = 0; d < k.kernel.xRanges.size(); ++d) blockings.push_back({"x" + std::to_string(d), k.kernel.xRanges[d], 1, -1});
    bindPrograms(row_, blockings);
    // A result that nobody reads has no memory.
    for (const loops::Store &s : node_.stores)
      if (k.buffers.count(s.buffer)) (s.value == 0 ? valueStore_ : indexStore_) = &s;
  }

  void run() {
    if (!valueStore_ && !indexStore_) return;
    Expr n = k_.kernel.rRanges[0];
    Val size = row_.index(n), zero = row_.intConst(0), one = row_.intConst(1);
    // What is sorted: positions if they are asked for (keys are then read through them), else the values themselves.
    forLoop(zero, size, [&](Val i) { put(i, indexStore_ ? i : keyAt(i)); });
    Val half = row_.index(floorDiv(n, Expr(2)));
    forLoop(zero, half, [&](Val i) { siftDown(row_.binary("arith.subi", row_.binary("arith.subi", half, one), i), size); });
    Val last = row_.index(max(n - 1, Expr(0)));
    forLoop(zero, last, [&](Val i) {
      Val end = row_.binary("arith.subi", last, i);
      Val top = get(zero), bottom = get(end);
      put(zero, bottom), put(end, top);
      siftDown(zero, end);
    });
    if (indexStore_ && valueStore_)
      forLoop(zero, size, [&](Val i) { write(*valueStore_, i, cast(keyAt(get(i)), keyType(), bufferType(*valueStore_))); });
  }

private:
  DType keyType() const { return keyTypeOf(node_); }
  DType bufferType(const loops::Store &s) const { return k_.plan.program.buffer(s.buffer).dtype; }
  DType indexDType() const { return k_.indexType.isInteger(32) ? DType::I32 : DType::I64; }
  Val cast(Val v, DType from, DType to) { return row_.cast(v, from, to); }

  template <typename F> void forLoop(Val from, Val to, F body) {
    auto loop = scf::ForOp::create(k_.b, k_.loc, from.v, to.v, row_.intConst(1).v);
    OpBuilder::InsertionGuard guard(k_.b);
    k_.b.setInsertionPointToStart(loop.getBody());
    body(Val{loop.getInductionVar()});
  }

  Emitter at(Val r) {
    Emitter e = row_;
    e.env["r0"] = r;
    e.facts.setIndex("r0", k_.kernel.rRanges[0]);
    e.stored.clear();
    return e;
  }
  Val keyAt(Val r) {
    Emitter e = at(r);
    std::vector<Val> memo;
    return e.value(node_.body, node_.inputs[0], memo);
  }
  void write(const loops::Store &s, Val r, Val v) {
    Emitter e = at(r);
    e.store(s, v, {});
  }
  /// Element r of the array being sorted: a position (in indexType) or a value.
  Val get(Val r) {
    const loops::Store &s = indexStore_ ? *indexStore_ : *valueStore_;
    Emitter e = at(r);
    Val v = e.load(s.buffer, s.index, {}, {}, bufferType(s));
    return indexStore_ ? cast(v, bufferType(s), indexDType()) : cast(v, bufferType(s), keyType());
  }
  void put(Val r, Val v) {
    const loops::Store &s = indexStore_ ? *indexStore_ : *valueStore_;
    write(s, r, cast(v, indexStore_ ? indexDType() : keyType(), bufferType(s)));
  }

  /// Whether element a of the array stands before element b in the result.
  Val before(Val a, Val b) {
    if (!indexStore_) return standsBefore(row_, node_, a, {}, b, {});
    return standsBefore(row_, node_, keyAt(a), a, keyAt(b), b);
  }

  /// Restores the heap below `root` in [0, end): no parent stands before its child.
  void siftDown(Val root, Val end) {
    OpBuilder &b = k_.b;
    Type i1 = b.getI1Type();
    auto loop = scf::WhileOp::create(b, k_.loc, TypeRange{k_.indexType, i1}, ValueRange{root.v, row_.constant(DType::Bool, 0, 1).v});
    OpBuilder::InsertionGuard guard(b);
    auto childOf = [&](Val r) { return row_.binary("arith.addi", row_.binary("arith.muli", r, row_.intConst(2)), row_.intConst(1)); };
    {
      Block *condition = b.createBlock(&loop.getBefore(), {}, {k_.indexType, i1}, {k_.loc, k_.loc});
      Val r{condition->getArgument(0)}, going{condition->getArgument(1)};
      Val more = row_.binary("arith.andi", going, row_.compare("lt", childOf(r), end));
      scf::ConditionOp::create(b, k_.loc, more.v, condition->getArguments());
    }
    Block *body = b.createBlock(&loop.getAfter(), {}, {k_.indexType, i1}, {k_.loc, k_.loc});
    Val r{body->getArgument(0)};
    Val left = childOf(r), right = row_.binary("arith.addi", left, row_.intConst(1));
    Val hasRight = row_.compare("lt", right, end);
    Val safeRight = row_.select(hasRight, right, left);
    Val rightLarger = row_.binary("arith.andi", hasRight, before(get(left), get(safeRight)));
    Val child = row_.select(rightLarger, right, left);
    Val parentValue = get(r), childValue = get(child);
    Val swap = before(parentValue, childValue);
    // Without a swap both are written back as they are: no branch, no memory changes.
    put(r, row_.select(swap, childValue, parentValue));
    put(child, row_.select(swap, parentValue, childValue));
    scf::YieldOp::create(b, k_.loc, ValueRange{child.v, swap.v});
  }

  KernelContext &k_;
  const Node &node_;
  Emitter row_;
  const loops::Store *valueStore_ = nullptr, *indexStore_ = nullptr;
};

/// Elements of one program and of one step of its loop.
constexpr int64_t kRanked = 64, kCompared = 64;

/// Key and position as one I64 whose order is that of the result: keys of 32 bits or less in the high half, as unsigned numbers in the order
/// of the values, NaN last; positions below. Nothing for wider keys.
Val orderedKey(Emitter &e, const Node &node, Val key, Val position) {
  DType t = keyTypeOf(node);
  if (itemSize(t) > 4 || !e.k.indexType.isInteger(32)) return {};
  Val bits;
  if (isFloat(t)) {
    Val x = e.binary("arith.addf", e.cast(key, t, DType::F32), e.constant(DType::F32, 0, 0)); // -0 + 0 is +0: zeros are equal
    Type i32 = e.k.b.getI32Type();
    if (auto shaped = dyn_cast<ShapedType>(x.v.getType())) i32 = shaped.clone(i32);
    Val raw{tile::bitcast(e.k.b, e.k.loc, x.v, i32), x.vary};
    // Negative numbers run backwards: all their bits turn; of the others the sign.
    Val turn = e.binary("arith.ori", e.binary("arith.shrsi", raw, e.constant(DType::I32, 0, 31)), e.constant(DType::I32, 0, INT32_MIN));
    bits = e.select(e.compare("uno", x, x), e.constant(DType::I32, 0, -1), e.binary("arith.xori", raw, turn));
  } else if (isUnsignedInt(t) || t == DType::Bool) {
    bits = e.cast(key, t, DType::U32);
  } else {
    bits = e.binary("arith.xori", e.cast(key, t, DType::I32), e.constant(DType::I32, 0, INT32_MIN));
  }
  if (node.descending) bits = e.binary("arith.xori", bits, e.constant(DType::I32, 0, -1));
  Val high = e.binary("arith.shli", e.cast(bits, DType::U32, DType::U64), e.constant(DType::I64, 0, 32));
  return e.binary("arith.ori", high, e.cast(position, DType::U32, DType::U64));
}

/// The place of each element is the number of those that stand before it: n comparisons each, all of them independent, and no workspace.
void sortByRank(KernelContext &k, const Facts &facts) {
  const Node &node = k.kernel.nodes[0];
  Expr n = k.kernel.rRanges[0];
  auto block = [&](int64_t most) { return std::min(nextPowerOfTwo(upperBound(facts, n, most)), most); };
  Emitter mine(k, Frame{{block(kRanked), block(kCompared)}});
  mine.facts = facts;
  std::vector<Blocking> blockings;
  for (size_t d = 0; d < k.kernel.xRanges.size(); ++d) blockings.push_back({"x" + std::to_string(d), k.kernel.xRanges[d], 1, -1});
  blockings.push_back({"r0", n, mine.frame.tile[0], 0});
  bindPrograms(mine, blockings);
  std::vector<Val> memo;
  Val key = mine.value(node.body, node.inputs[0], memo), position = mine.env["r0"];
  Val ordered = orderedKey(mine, node, key, position);

  auto countType = RankedTensorType::get(mine.frame.tile, k.b.getI32Type());
  Value none = arith::ConstantOp::create(k.b, k.loc, DenseElementsAttr::get(countType, k.b.getI32IntegerAttr(0)));
  auto loop = scf::ForOp::create(k.b, k.loc, mine.intConst(0).v, mine.index(n).v, mine.intConst(mine.frame.tile[1]).v, ValueRange{none});
  {
    OpBuilder::InsertionGuard guard(k.b);
    k.b.setInsertionPointToStart(loop.getBody());
    Emitter other = mine;
    other.forgetIndices();
    other.stored.clear(), other.masks.clear(), other.blocked.erase("r0");
    Val at = other.binary("arith.addi", Val{loop.getInductionVar()}, other.lanes(1));
    other.env["r0"] = at;
    Val inside = other.compare("lt", at, other.index(n));
    other.masks.push_back(inside);
    std::vector<Val> otherMemo;
    Val otherKey = other.value(node.body, node.inputs[0], otherMemo);
    Val otherOrdered = orderedKey(other, node, otherKey, at);
    if (ordered) otherOrdered = other.select(inside, otherOrdered, other.constant(DType::I64, 0, -1)); // behind all that exist
    Val counts = ordered ? other.compare("lt", otherOrdered, ordered, true)
                         : other.binary("arith.andi", inside, standsBefore(other, node, otherKey, at, key, position));
    Val one = other.cast(other.widen(counts, 3), DType::Bool, DType::I32);
    Val sum = other.binary("arith.addi", Val{loop.getRegionIterArg(0), 3}, one);
    scf::YieldOp::create(k.b, k.loc, sum.v);
  }
  SmallVector<Value> total = tile::reduce(k.b, k.loc, {loop.getResult(0)}, 1, [&](ValueRange args) {
    return SmallVector<Value>{arith::AddIOp::create(k.b, k.loc, args[0], args[1])};
  });
  Val rank{tile::expandDims(k.b, k.loc, total[0], 1), 1};
  Emitter out = mine;
  out.forgetIndices();
  out.blocked.erase("r0");
  out.env["r0"] = out.toIndex(rank, DType::I32);
  DType indexType = k.indexType.isInteger(32) ? DType::I32 : DType::I64;
  for (const loops::Store &s : node.stores) {
    if (!k.buffers.count(s.buffer)) continue; // a result that nobody reads has no memory
    DType want = k.plan.program.buffer(s.buffer).dtype;
    out.store(s, s.value == 0 ? out.cast(key, keyTypeOf(node), want) : out.cast(position, indexType, want), {});
  }
  k.kernel.warps = warpsFor(mine.frame.tile[0] * mine.frame.tile[1], 16);
}

} // namespace

void emitSort(KernelContext &k, const Facts &facts) {
  if (k.target.threadBlocks) sortByRank(k, facts);
  else HeapSort(k, facts).run();
}

} // namespace neso
