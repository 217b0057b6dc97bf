#include "lower/plan_to_tile/attention.h"

#include <algorithm>
#include <cmath>

#include "ir/tile/attributes.h"
#include "ir/tile/build.h"
#include "lower/plan_to_tile/blocks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso {

using namespace mlir;
using loops::AttentionSpec;
namespace tb = tile;

namespace {

/// Reduces a [BM, BN] tile along its columns to [BM, 1].
Val rows(Emitter &e, Val x, llvm::function_ref<Val(Val, Val)> combine) {
  OpBuilder &b = e.k.b;
  SmallVector<Value> out = tb::reduce(b, e.k.loc, {e.widen(x, 3).v}, 1, [&](ValueRange args) {
    return SmallVector<Value>{combine({args[0]}, {args[1]}).v};
  });
  return {tb::expandDims(b, e.k.loc, out[0], 1), 1};
}

} // namespace

namespace {

// Symbols of the node.
const Symbol kBatch = AttentionSpec::symbol(AttentionSpec::Batch), kHead = AttentionSpec::symbol(AttentionSpec::Head),
             kQuery = AttentionSpec::symbol(AttentionSpec::Query), kKey = AttentionSpec::symbol(AttentionSpec::Key),
             kElement = AttentionSpec::symbol(AttentionSpec::Element);

/// One program: a block of queries against all keys, block by block, with the softmax's maximum and sum so far.
class AttentionKernel {
public:
  AttentionKernel(KernelContext &k, const Facts &facts, const AttentionTiling &tiling)
      : k_(k), b_(k.b), facts_(facts), tiling_(tiling), spec_(k.kernel.nodes[0].get<AttentionSpec>()),
        x_(k.kernel.xRanges), out_(k, Frame{{tiling.queries, tiling.value}}) {}

  void emit() {
    k_.code.warps = tiling_.warps, k_.code.stages = tiling_.stages;
    out_.facts = facts_;
    blockings_ = {{kBatch, x_[0], 1, -1}, {kHead, x_[1], 1, -1}, {kQuery, x_[2], tiling_.rows, 0}};
    // Of programs that see keys up to their queries the longest go first: begun last, they would leave the other processors waiting.
    if (spec_.causal && k_.target.threadBlocks) {
      blockings_.back().lastFirst = true;
      std::rotate(blockings_.begin(), blockings_.end() - 1, blockings_.end());
    }
    bindPrograms(out_, blockings_);
    if (tiling_.rows < tiling_.queries) out_.masks.push_back(out_.compare("lt", out_.lanes(0), out_.intConst(tiling_.rows)));
    rowMask_ = out_.masks;
    along(out_, kElement, 1, x_[3], {});
    Val queries = loadQueries();
    Softmax state{{full(tiling_.queries, 1, -INFINITY), 1}, {full(tiling_.queries, 1, 0), 1}, {full(tiling_.queries, tiling_.value, 0), 3}};
    // On a CPU the last block of keys comes behind the loop where it is known to be a part of one: no more is multiplied than counts, and no other block
    // has masks.
    const std::optional<int64_t> keys = keyCount().asConst();
    const int64_t rest = keys && !spec_.causal && !k_.target.threadBlocks ? *keys % tiling_.keys : 0;
    if (rest == 0 || *keys > tiling_.keys) {
      Val end = rest == 0 ? lastKey() : out_.intConst(*keys - rest);
      auto loop = scf::ForOp::create(b_, k_.loc, out_.intConst(0).v, end.v, out_.intConst(tiling_.keys).v,
                                     ValueRange{state.max.v, state.sum.v, state.acc.v});
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(loop.getBody());
      const Softmax next = block({loop.getInductionVar()}, {{loop.getRegionIterArg(0), 1}, {loop.getRegionIterArg(1), 1}, {loop.getRegionIterArg(2), 3}},
                                 queries, rest == 0 ? Keys::AnyMayBeLast : Keys::Whole);
      scf::YieldOp::create(b_, k_.loc, ValueRange{next.max.v, next.sum.v, next.acc.v});
      state = {{loop.getResult(0), 1}, {loop.getResult(1), 1}, {loop.getResult(2), 3}};
    }
    if (rest != 0) state = block(out_.intConst(*keys - rest), state, queries, Keys::Rest, rest);
    store(state.sum, state.acc);
    if (spec_.logSum.buffer.valid()) storeLogSum(state);
  }

private:
  /// Of the keys so far: the largest score of each query, the sum of what is exponentiated, and of that times values.
  struct Softmax {
    Val max, sum, acc;
  };
  /// Which keys of a block there are.
  enum class Keys : uint8_t { AnyMayBeLast, Whole, Rest };

  // Frames: scores [BM, BN], output [BM, Dv], queries [BM, D], keys [BN, D], values [BN, Dv].
  Emitter frame(int64_t rowsOf, int64_t columns, bool queryRows) {
    Emitter e(k_, Frame{{rowsOf, columns}});
    e.facts = out_.facts, e.env = out_.env;
    if (queryRows)
      e.masks = rowMask_;
    else
      e.env.erase(kQuery);
    return e;
  }

  /// The symbol runs along a dimension of the frame, from `start` on.
  static void along(Emitter &e, Symbol s, size_t dim, Expr extent, Val start, Keys keys = Keys::AnyMayBeLast) {
    Val lane = e.lanes(dim);
    e.env[s] = start ? e.indexBinary("arith.addi", start, lane) : lane;
    e.facts.setIndex(s, extent);
    if (keys != Keys::Whole && !e.facts.provablyDivisible(extent, Expr(e.frame.tile[dim])))
      e.masks.push_back(e.compare("lt", e.env[s], e.index(extent)));
  }

  /// Whether scores are compared by their places in the tile, of 32 bits, where indices have 64: that many registers less in the loop of a thread block. Keys and values
  /// keep the masks of their indices, which say where the tensor ends.
  bool hasNarrowScores() const { return k_.target.threadBlocks && !k_.indexType.isInteger(32); }
  /// A distance between indices as 32 bits can say it: further than a tile is long is as good as any.
  Val distance(Val from, Val to) {
    constexpr int64_t kFar = int64_t(1) << 30;
    const Val d = out_.binary("arith.subi", to, from);
    const Val near = out_.binary("arith.minsi", out_.binary("arith.maxsi", d, out_.intConst(-kFar)), out_.intConst(kFar));
    return {arith::TruncIOp::create(b_, k_.loc, b_.getI32Type(), near.v)};
  }
  /// As along() of the keys of scores.
  void alongKeys(Emitter &s, Val start) {
    const Type narrow = b_.getI32Type();
    s.env[kKey] = s.indexBinary("arith.addi", start, s.lanes(1));
    s.facts.setIndex(kKey, keyCount());
    keyLanes_ = s.lanesOf(1, narrow), keysAt_ = start;
    if (!s.facts.provablyDivisible(keyCount(), Expr(s.frame.tile[1]))) s.masks.push_back(s.compare("lt", keyLanes_, distance(start, s.index(keyCount()))));
  }
  /// Keys up to the row's query.
  Val upToQuery(Emitter &s) {
    if (!hasNarrowScores()) return s.compare("le", s.env[kKey], s.env[kQuery]);
    const Val ahead = distance(keysAt_, out_.index(blockOf(blockings_, kQuery) * Expr(tiling_.rows)));
    return s.compare("le", keyLanes_, s.binary("arith.addi", s.lanesOf(0, b_.getI32Type()), ahead));
  }

  static Val loadAs(Emitter &e, const AttentionSpec::Operand &o, DType t) {
    Val zero = e.constant(o.dtype, 0, 0);
    return e.widen(e.cast(e.load(o.buffer, o.index, {}, zero, o.dtype), o.dtype, t), 3);
  }

  Value full(int64_t r, int64_t c, float v) {
    auto type = RankedTensorType::get({r, c}, b_.getF32Type());
    return arith::ConstantOp::create(b_, k_.loc, DenseElementsAttr::get(type, APFloat(v)));
  }

  Val loadQueries() {
    Emitter q = frame(tiling_.queries, tiling_.head, true);
    along(q, kElement, 1, spec_.headSize, {});
    if (tiling_.narrowScores) return loadAs(q, spec_.q, spec_.q.dtype);
    Val wide = loadAs(q, spec_.q, DType::F32);
    return q.binary("arith.mulf", wide, q.constant(DType::F32, factor(), 0));
  }

  /// Those that there are, in this batch.
  Expr keyCount() const { return spec_.keys.valid() ? spec_.keys : spec_.keyLength; }
  /// No key beyond the block's last query row takes part where that is so asked for.
  Val lastKey() {
    Val end = out_.index(keyCount());
    if (!spec_.causal) return end;
    Val last = out_.binary("arith.addi", out_.index(blockOf(blockings_, kQuery) * Expr(tiling_.rows)), out_.intConst(tiling_.rows));
    return out_.binary("arith.minsi", end, last);
  }

  /// Whether what is left of scores are weights' logarithms to base 2, whose exponential is one instruction on GPUs: where a key counts or takes no part. A mask that
  /// is added may be as small as numbers get, and would be -inf times log2(e).
  bool isBinary() const {
    const AttentionSpec::Operand &mask = spec_.mask;
    return !mask.buffer.valid() || (mask.dtype == DType::Bool && std::isinf(spec_.masked));
  }
  double factor() const { return isBinary() ? spec_.scale * M_LOG2E : spec_.scale; }
  /// Whether scores are products as they come, and their factor goes with the subtraction of the maximum: one step in place of two.
  bool factorComesLater() const { return tiling_.narrowScores && isBinary() && spec_.scale > 0; }

  /// The scores of a block of keys, -inf where a key takes no part.
  Val scoresOf(Emitter &s, Emitter &keys, Val queries, int64_t rest) {
    Val loadedKeys = loadAs(keys, spec_.k, tiling_.narrowScores ? spec_.k.dtype : DType::F32);
    Val score{tb::dot(b_, k_.loc, queries.v, tb::trans(b_, k_.loc, loadedKeys.v), full(tiling_.queries, tiling_.keys, 0),
                      k_.target.f32Products),
              3};
    countOnly(score, tb::kValidNAttr, rest);
    if (tiling_.narrowScores && !factorComesLater()) score = s.binary("arith.mulf", score, s.constant(DType::F32, factor(), 0));
    Val valid;
    for (size_t i = rowMask_.size(); i < s.masks.size(); ++i) valid = s.andMask(valid, s.masks[i]);
    if (spec_.causal) valid = s.andMask(valid, upToQuery(s));
    if (spec_.mask.buffer.valid()) {
      Val m = s.load(spec_.mask.buffer, spec_.mask.index, {}, {}, spec_.mask.dtype);
      if (spec_.mask.dtype == DType::Bool && std::isinf(spec_.masked))
        valid = s.andMask(valid, m);
      else if (spec_.mask.dtype == DType::Bool)
        score = s.select(s.widen(m, 3), score, s.constant(DType::F32, spec_.masked, 0));
      else
        score = s.binary("arith.addf", score, s.cast(m, spec_.mask.dtype, DType::F32));
    }
    minusInf_ = s.constant(DType::F32, -INFINITY, 0);
    return valid ? s.select(s.widen(valid, 3), score, minusInf_) : score;
  }

  /// Of a product's rows as many count as a program computes; and `attribute` says that of its columns or k no more do than `rest` (0: all).
  void countOnly(Val product, const char *attribute, int64_t rest) {
    Operation *op = product.v.getDefiningOp();
    if (tiling_.rows < tiling_.queries) op->setAttr(tb::kValidMAttr, b_.getI32IntegerAttr(static_cast<int32_t>(tiling_.rows)));
    if (rest) op->setAttr(attribute, b_.getI32IntegerAttr(static_cast<int32_t>(rest)));
  }

  /// CPUs need not keep NaN in a maximum, which costs as much as the rest: a score that is NaN makes its weight NaN, and so the row's sum.
  Val maximum(Emitter &e, Val x, Val y) {
    const Val m = e.binary("arith.maximumf", x, y);
    if (!k_.target.threadBlocks) m.v.getDefiningOp<arith::MaximumFOp>().setFastmath(arith::FastMathFlags::nnan);
    return m;
  }

  /// The keys from `start` on, `rest` of them (0: a whole block).
  Softmax block(Val start, const Softmax &before, Val queries, Keys which, int64_t rest = 0) {
    Emitter keys = frame(tiling_.keys, tiling_.head, false), values = frame(tiling_.keys, tiling_.value, false),
            s = frame(tiling_.queries, tiling_.keys, true);
    along(keys, kKey, 0, keyCount(), start, which);
    along(keys, kElement, 1, spec_.headSize, {});
    along(values, kKey, 0, keyCount(), start, which);
    along(values, kElement, 1, x_[3], {});
    if (hasNarrowScores())
      alongKeys(s, start);
    else
      along(s, kKey, 1, keyCount(), start, which);
    Val score = scoresOf(s, keys, queries, rest);
    Val newMax = maximum(s, before.max, rows(s, score, [&](Val x, Val y) { return maximum(s, x, y); }));
    auto scaled = [&](Val x) { return factorComesLater() ? s.binary("arith.mulf", x, s.constant(DType::F32, factor(), 0)) : x; };
    // A row without any key so far has maximum -inf, and -inf - -inf is NaN: subtract 0 there.
    const Val shift = s.select(s.compare("eq", newMax, minusInf_), s.constant(DType::F32, 0, 0), scaled(newMax));
    auto weight = [&](Val x) {
      const Val d = s.binary("arith.subf", scaled(x), shift);
      return isBinary() ? s.softmaxWeight2(d) : s.softmaxWeight(d);
    };
    const Val p = weight(score), alpha = weight(before.max);
    Val newSum = s.binary("arith.addf", s.binary("arith.mulf", before.sum, alpha), rows(s, p, [&](Val x, Val y) { return s.binary("arith.addf", x, y); }));
    Emitter o = out_;
    Val sums = o.binary("arith.mulf", before.acc, alpha);
    DType valueType = tiling_.narrowValues ? spec_.v.dtype : DType::F32;
    Val next{tb::dot(b_, k_.loc, s.cast(p, DType::F32, valueType).v, loadAs(values, spec_.v, valueType).v, sums.v, k_.target.f32Products), 3};
    countOnly(next, tb::kValidKAttr, rest);
    return {newMax, newSum, next};
  }

  void store(Val sum, Val acc) {
    Val result = out_.binary("arith.divf", acc, sum);
    auto zero = [&] { return out_.constant(DType::F32, 0, 0); };
    // A row that no key takes part in is 0 / 0. PyTorch's safe softmax, which its attention has, makes that 0.
    if (!spec_.emptyIsNan)
      result = out_.select(out_.compare("eq", sum, zero()), zero(), result);
    else if (!facts_.provablyLess(Expr(0), spec_.keyLength))
      // Where there is no key at all, the product that follows the softmax is a sum of nothing.
      result = out_.select(out_.compare("eq", out_.index(spec_.keyLength), out_.intConst(0)), zero(), result);
    loops::Store store;
    store.buffer = spec_.out.buffer, store.index = spec_.out.index;
    out_.store(store, out_.cast(result, DType::F32, spec_.out.dtype), {});
  }

  /// Weights may be powers of two, and a factor may not be in the scores yet.
  void storeLogSum(const Softmax &state) {
    Val top = state.max;
    if (factorComesLater()) top = out_.binary("arith.mulf", top, out_.constant(DType::F32, factor(), 0));
    if (isBinary()) top = out_.binary("arith.mulf", top, out_.constant(DType::F32, M_LN2, 0));
    loops::Store store;
    store.buffer = spec_.logSum.buffer, store.index = spec_.logSum.index;
    out_.store(store, out_.binary("arith.addf", top, Val{math::LogOp::create(b_, k_.loc, state.sum.v), state.sum.vary}), {});
  }

  KernelContext &k_;
  OpBuilder &b_;
  const Facts &facts_;
  const AttentionTiling &tiling_;
  const AttentionSpec &spec_;
  const std::vector<Expr> &x_; // B, H, M, Dv
  Emitter out_;
  std::vector<Blocking> blockings_;
  std::vector<Val> rowMask_;
  Val minusInf_;
  Val keyLanes_, keysAt_; // of a block of scores: the keys' places in it, and the first one's index
};

} // namespace

void emitAttention(KernelContext &k, const Facts &facts, const AttentionTiling &tiling) {
  AttentionKernel(k, facts, tiling).emit();
}

} // namespace neso
