#include "lower/plan_to_tile/sort.h"

#include "ir/tile/build.h"
#include "lower/plan_to_tile/blocks.h"
#include "lower/plan_to_tile/sort_order.h"
#include "lower/plan_to_tile/sort_tiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso {

using namespace mlir;
using loops::Node;

namespace {

class HeapSort {
public:
  HeapSort(KernelContext &k, const Facts &facts) : k_(k), node_(k.kernel.nodes[0]), row_(k, Frame{}) {
    row_.facts = facts;
    std::vector<Blocking> blockings;
    for (size_t d = 0; d < k.kernel.xRanges.size(); ++d)
      blockings.push_back({Symbol::outer(d), k.kernel.xRanges[d], 1, -1});
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
    forLoop(zero, half,
            [&](Val i) { siftDown(row_.binary("arith.subi", row_.binary("arith.subi", half, one), i), size); });
    Val last = row_.index(max(n - 1, Expr(0)));
    forLoop(zero, last, [&](Val i) {
      Val end = row_.binary("arith.subi", last, i);
      Val top = get(zero), bottom = get(end);
      put(zero, bottom), put(end, top);
      siftDown(zero, end);
    });
    if (indexStore_ && valueStore_)
      forLoop(zero, size,
              [&](Val i) { write(*valueStore_, i, cast(keyAt(get(i)), keyType(), bufferType(*valueStore_))); });
  }

private:
  DType keyType() const { return sortKeyType(node_); }
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
    e.env[Symbol::inner(0)] = r;
    e.facts.setIndex(Symbol::inner(0), k_.kernel.rRanges[0]);
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
    auto loop = scf::WhileOp::create(b, k_.loc, TypeRange{k_.indexType, i1},
                                     ValueRange{root.v, row_.constant(DType::Bool, 0, 1).v});
    OpBuilder::InsertionGuard guard(b);
    auto childOf = [&](Val r) {
      return row_.binary("arith.addi", row_.binary("arith.muli", r, row_.intConst(2)), row_.intConst(1));
    };
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

} // namespace

void emitSort(KernelContext &k, const Facts &facts) {
  if (k.target.threadBlocks)
    emitTileSort(k, facts);
  else
    HeapSort(k, facts).run();
}

} // namespace neso
