#include "lower/plan_to_tile/sort_digits.h"

#include <functional>

#include "ir/loops/build.h"
#include "ir/tile/build.h"
#include "lower/plan_to_tile/scratch_code.h"
#include "lower/plan_to_tile/sort_order.h"
#include "lower/plan_to_tile/sort_row.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso {

using namespace mlir;
using loops::SortSpec;
using loops::SortScratch;
namespace tb = tile;

namespace {

class DigitSort {
public:
  DigitSort(KernelContext &k, const Facts &facts, const SortTiling &tiling)
      : k_(k), code_(k), node_(k.kernel.nodes[0].get<SortSpec>()), scratch_(*node_.scratch), frame_(k, facts, tiling.tile),
        method_(tiling.method), digits_(SortScratch::digitsOf(keyBytes())),
        counts_(row_.index(frame_.index * Expr(digits_ * SortScratch::kBuckets))) {}

  void run() {
    if (method_ == SortTiling::Method::Heap) return takeFirst();
    packAll();
    if (method_ == SortTiling::Method::Insertion) {
      insert();
      unpack(zero_, node_.take.valid() ? node_.take : n_);
    } else if (row_.facts.provablyLessEqual(Expr(1), n_)) {
      unpack(byDigits(), node_.take.valid() ? node_.take : n_);
    } else { // the digits of the first element are looked at
      ifTrue(row_.compare("lt", zero_, length_), [&] { unpack(byDigits(), node_.take.valid() ? node_.take : n_); });
    }
  }

private:
  using Words = std::vector<Val>;

  int64_t keyBytes() const {
    DType key = sortKeyType(node_);
    return isFloat(key) && itemSize(key) == 1 ? 4 : itemSize(key);
  }

  // ---- scratch memory
  Val at(Emitter &e, loops::BufferId buffer, Val index) { return code_.at(e, buffer, index); }
  Val load(Emitter &e, loops::BufferId buffer, Val index) { return code_.load(e, buffer, index); }
  void store(Emitter &e, loops::BufferId buffer, Val index, Val value, Val mask = {}) { code_.store(e, buffer, index, value, mask); }
  /// The words at a place of the row's scratch memory, in [0, 2 * length).
  Words get(Emitter &e, Val place) {
    Val index = e.binary("arith.addi", base_, place);
    Words out{load(e, scratch_.words, index)};
    if (scratch_.positions.valid()) out.push_back(load(e, scratch_.positions, index));
    return out;
  }
  void put(Emitter &e, Val place, const Words &words, Val mask = {}) {
    Val index = e.binary("arith.addi", base_, place);
    store(e, scratch_.words, index, words[0], mask);
    if (scratch_.positions.valid()) store(e, scratch_.positions, index, words[1], mask);
  }
  SortWords packing(Emitter &e) { return SortWords(e, node_, INT32_MAX); }

  // ---- control
  Val add(Val a, Val b) { return row_.binary("arith.addi", a, b); }
  Val sub(Val a, Val b) { return row_.binary("arith.subi", a, b); }
  template <typename F> void forLoop(Val from, Val to, Val step, F body) { code_.forLoop(from, to, step, body); }
  template <typename F> void ifTrue(Val condition, F body) { code_.ifTrue(condition, body); }
  /// body(e, mask, start) for tiles of the places in [0, end); e.env has r0, the mask may be empty.
  void forTiles(Expr end, const std::function<void(Emitter &, Val mask, Val start)> &body) {
    const int64_t size = tile_.frame.tile[0];
    forLoop(zero_, row_.index(end), row_.intConst(size), [&](Val start) {
      const Val r = tile_.indexBinary("arith.addi", start, tile_.lanes(0));
      Emitter e = frame_.elements(tile_, r);
      Val inside;
      if (!e.facts.provablyDivisible(end, Expr(size))) {
        inside = e.compare("lt", r, e.index(end));
        e.masks.push_back(inside);
      }
      body(e, inside, start);
    });
  }

  // ---- the parts of a sort
  Words packed(Emitter &e) {
    std::vector<Val> memo;
    Val key = e.value(node_.body, node_.key, memo);
    Words words = packing(e).pack(key, positionOf(e, node_, e.env[Symbol::inner(0)], memo));
    for (Val &w : words) w = e.widen(w, 1);
    return words;
  }
  void packAll() {
    forTiles(n_, [&](Emitter &e, Val mask, Val) { put(e, e.env[Symbol::inner(0)], packed(e), mask); });
  }
  /// Stores the first `count` results, whose words begin at place `from`.
  void unpack(Val from, Expr count) {
    forTiles(count, [&](Emitter &e, Val mask, Val) {
      Val index = e.binary("arith.addi", e.binary("arith.addi", base_, from), e.env[Symbol::inner(0)]);
      auto read = [&](loops::BufferId buffer, DType t) {
        Val pointer = at(e, buffer, index), other = e.widen(e.constant(t, 0, 0), 1);
        return Val{
            tb::load(k_.b, k_.loc, pointer.v, mask ? e.widen(mask, 1).v : Value(), mask ? other.v : Value(), false), 1};
      };
      Words words{read(scratch_.words, DType::U64)};
      if (scratch_.positions.valid()) words.push_back(read(scratch_.positions, DType::U32));
      storeSorted(e, node_, packing(e).key(words), packing(e).position(words), DType::U32);
    });
  }

  void insert() {
    forLoop(one_, length_, one_, [&](Val i) {
      Words mine = get(row_, i);
      // Larger ones move up by one.
      auto loop = scf::WhileOp::create(k_.b, k_.loc, TypeRange{k_.indexType}, ValueRange{i.v});
      OpBuilder::InsertionGuard guard(k_.b);
      {
        Block *condition = k_.b.createBlock(&loop.getBefore(), {}, {k_.indexType}, {k_.loc});
        Val place{condition->getArgument(0)};
        Val some = row_.compare("lt", zero_, place), below = row_.select(some, sub(place, one_), zero_);
        Val goes = row_.binary("arith.andi", some, comesBefore(row_, mine, get(row_, below)));
        scf::ConditionOp::create(k_.b, k_.loc, goes.v, condition->getArguments());
      }
      Block *body = k_.b.createBlock(&loop.getAfter(), {}, {k_.indexType}, {k_.loc});
      Val place{body->getArgument(0)}, below = sub(place, one_);
      put(row_, place, get(row_, below));
      scf::YieldOp::create(k_.b, k_.loc, below.v);
      k_.b.setInsertionPointAfter(loop);
      put(row_, {loop.getResult(0)}, mine);
    });
  }

  // ---- by digits
  Val digit(Val word, int64_t d) {
    // Keys of 4 bytes and less are the upper half of their word.
    const int64_t low = keyBytes() == 8 ? 0 : 32;
    Val moved = row_.binary("arith.shrui", word, row_.constant(DType::U64, 0, low + d * SortScratch::kDigitBits));
    return row_.toIndex(row_.binary("arith.andi", moved, row_.constant(DType::U64, 0, SortScratch::kBuckets - 1)),
                        DType::U64);
  }
  Val bucket(int64_t d, Val digit) { return add(add(counts_, row_.intConst(d * SortScratch::kBuckets)), digit); }
  Val count(Val place) { return row_.toIndex(load(row_, scratch_.counts, place), DType::I32); }
  void setCount(Val place, Val value) {
    store(row_, scratch_.counts, place, row_.cast(value, indexTypeOf(k_), DType::I32));
  }

  void countDigits() {
    forLoop(zero_, row_.intConst(digits_ * SortScratch::kBuckets), one_,
            [&](Val c) { store(row_, scratch_.counts, add(counts_, c), row_.constant(DType::I32, 0, 0)); });
    forLoop(zero_, length_, one_, [&](Val i) {
      Val word = get(row_, i)[0];
      for (int64_t d = 0; d < digits_; ++d) {
        Val place = bucket(d, digit(word, d));
        setCount(place, add(count(place), one_));
      }
    });
  }

  /// Sorts the row; the place where the result begins.
  Val byDigits() {
    countDigits();
    Val from = zero_;
    for (int64_t d = 0; d < digits_; ++d) {
      Val same = row_.compare("eq", count(bucket(d, digit(get(row_, from)[0], d))), length_);
      auto branch = scf::IfOp::create(k_.b, k_.loc, TypeRange{k_.indexType}, same.v, true);
      {
        OpBuilder::InsertionGuard guard(k_.b);
        k_.b.setInsertionPointToStart(branch.thenBlock());
        scf::YieldOp::create(k_.b, k_.loc, from.v);
        k_.b.setInsertionPointToStart(branch.elseBlock());
        Val to = sub(length_, from);
        deal(d, from, to);
        scf::YieldOp::create(k_.b, k_.loc, to.v);
      }
      from = {branch.getResult(0)};
    }
    return from;
  }

  /// Words from place `from` on, to place `to` on, in the order of digit d; equal ones keep theirs.
  void deal(int64_t d, Val from, Val to) {
    auto sums =
        scf::ForOp::create(k_.b, k_.loc, zero_.v, row_.intConst(SortScratch::kBuckets).v, one_.v, ValueRange{zero_.v});
    {
      OpBuilder::InsertionGuard guard(k_.b);
      k_.b.setInsertionPointToStart(sums.getBody());
      Val place = bucket(d, {sums.getInductionVar()}), before{sums.getRegionIterArg(0)}, here = count(place);
      setCount(place, before);
      scf::YieldOp::create(k_.b, k_.loc, add(before, here).v);
    }
    forLoop(zero_, length_, one_, [&](Val i) {
      Words words = get(row_, add(from, i));
      Val place = bucket(d, digit(words[0], d)), next = count(place);
      setCount(place, add(next, one_));
      put(row_, add(to, next), words);
    });
  }

  // ---- the first few
  /// A heap in places [0, take): no parent stands before its child.
  void siftDown(Val end) {
    Type i1 = k_.b.getI1Type();
    auto loop = scf::WhileOp::create(k_.b, k_.loc, TypeRange{k_.indexType, i1},
                                     ValueRange{zero_.v, row_.constant(DType::Bool, 0, 1).v});
    OpBuilder::InsertionGuard guard(k_.b);
    auto childOf = [&](Val r) { return add(add(r, r), one_); };
    {
      Block *condition = k_.b.createBlock(&loop.getBefore(), {}, {k_.indexType, i1}, {k_.loc, k_.loc});
      Val r{condition->getArgument(0)}, going{condition->getArgument(1)};
      Val more = row_.binary("arith.andi", going, row_.compare("lt", childOf(r), end));
      scf::ConditionOp::create(k_.b, k_.loc, more.v, condition->getArguments());
    }
    Block *body = k_.b.createBlock(&loop.getAfter(), {}, {k_.indexType, i1}, {k_.loc, k_.loc});
    Val r{body->getArgument(0)}, left = childOf(r), right = add(left, one_);
    Val hasRight = row_.compare("lt", right, end), safeRight = row_.select(hasRight, right, left);
    Val rightLater = row_.binary("arith.andi", hasRight, comesBefore(row_, get(row_, left), get(row_, safeRight)));
    Val child = row_.select(rightLater, right, left);
    Words parentWords = get(row_, r), childWords = get(row_, child);
    Val swap = comesBefore(row_, parentWords, childWords);
    // Without a swap both are written back as they are: no branch, no memory changes.
    put(row_, r, chosen(swap, childWords, parentWords));
    put(row_, child, chosen(swap, parentWords, childWords));
    scf::YieldOp::create(k_.b, k_.loc, ValueRange{child.v, swap.v});
  }
  Words chosen(Val condition, const Words &a, const Words &b) {
    Words out;
    for (size_t i = 0; i < a.size(); ++i) out.push_back(row_.select(condition, a[i], b[i]));
    return out;
  }

  void takeFirst() {
    Val take = row_.intConst(node_.take.constValue());
    forLoop(zero_, take, one_, [&](Val i) { put(row_, i, packing(row_).last()); });
    // What does not stand before the heap's root, its last, is passed over a tile at a time.
    forTiles(n_, [&](Emitter &e, Val mask, Val start) {
      Words words = packed(e);
      Val enters = comesBefore(e, words, get(row_, zero_));
      if (mask) enters = e.binary("arith.andi", enters, mask);
      Val some = e.cast(e.widen(enters, 1), DType::Bool, DType::I32);
      Value any = tb::reduce(k_.b, k_.loc, {some.v}, 0, [&](ValueRange args) {
        return SmallVector<Value>{arith::OrIOp::create(k_.b, k_.loc, args[0], args[1])};
      })[0];
      ifTrue(row_.compare("ne", {any}, row_.constant(DType::I32, 0, 0)), [&] {
        put(e, e.binary("arith.addi", length_, e.env[Symbol::inner(0)]), words, mask);
        Val end = row_.binary("arith.minsi", add(start, row_.intConst(tile_.frame.tile[0])), length_);
        forLoop(start, end, one_, [&](Val i) {
          Words one = get(row_, add(length_, i));
          ifTrue(comesBefore(row_, one, get(row_, zero_)), [&] {
            put(row_, zero_, one);
            siftDown(take);
          });
        });
      });
    });
    Val last = row_.intConst(node_.take.constValue() - 1);
    forLoop(zero_, last, one_, [&](Val i) {
      Val end = sub(last, i);
      Words top = get(row_, zero_), bottom = get(row_, end);
      put(row_, zero_, bottom), put(row_, end, top);
      siftDown(end);
    });
    unpack(zero_, node_.take);
  }

  KernelContext &k_;
  ScratchCode code_;
  const SortSpec &node_;
  const SortScratch &scratch_;
  SortRow frame_;
  const Expr &n_ = frame_.n;
  Emitter &row_ = frame_.one, &tile_ = frame_.many;
  const Val &length_ = frame_.length, &zero_ = frame_.zero, &one_ = frame_.unit, &base_ = frame_.base;
  const SortTiling::Method method_;
  const int64_t digits_;
  const Val counts_; // where the row's counts begin
};

} // namespace

void emitDigitSort(KernelContext &k, const Facts &facts, const SortTiling &tiling) { DigitSort(k, facts, tiling).run(); }

} // namespace neso
