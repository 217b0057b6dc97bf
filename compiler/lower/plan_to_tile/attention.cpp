#include "lower/plan_to_tile/attention.h"

#include <cmath>

#include "ir/tile/build.h"
#include "lower/plan_to_tile/blocks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso {

using namespace mlir;
using loops::AttentionSpec;
namespace tb = tile;

namespace {

Val unary(Emitter &e, const char *op, Val x) {
  OperationState state(e.k.loc, op);
  state.addOperands(x.v);
  state.addTypes(x.v.getType());
  return {e.k.b.create(state)->getResult(0), x.vary};
}

/// Reduces a [BM, BN] tile along its columns to [BM, 1].
Val rows(Emitter &e, Val x, const char *op) {
  OpBuilder &b = e.k.b;
  SmallVector<Value> out = tb::reduce(b, e.k.loc, {e.widen(x, 3).v}, 1, [&](ValueRange args) {
    OperationState state(e.k.loc, op);
    state.addOperands({args[0], args[1]});
    state.addTypes(args[0].getType());
    return SmallVector<Value>{b.create(state)->getResult(0)};
  });
  return {tb::expandDims(b, e.k.loc, out[0], 1), 1};
}

} // namespace

void emitAttention(KernelContext &k, const Facts &facts, const AttentionTiling &tiling) {
  const auto &spec = k.kernel.nodes[0].get<AttentionSpec>();
  const std::vector<Expr> &x = k.kernel.xRanges; // B, H, M, Dv
  OpBuilder &b = k.b;
  const int64_t bm = tiling.queries, bn = tiling.keys, headBlock = tiling.head, valueBlock = tiling.value;
  const bool narrow = tiling.narrowScores;
  k.code.warps = tiling.warps, k.code.stages = tiling.stages;

  // Frames: scores [BM, BN], output [BM, Dv], queries [BM, D], keys [BN, D], values [BN, Dv].
  const Symbol batch = AttentionSpec::symbol(AttentionSpec::Batch), head = AttentionSpec::symbol(AttentionSpec::Head),
               query = AttentionSpec::symbol(AttentionSpec::Query), key = AttentionSpec::symbol(AttentionSpec::Key),
               element = AttentionSpec::symbol(AttentionSpec::Element);
  Emitter out(k, Frame{{bm, valueBlock}});
  out.facts = facts;
  const std::vector<Blocking> blockings = {{batch, x[0], 1, -1}, {head, x[1], 1, -1}, {query, x[2], bm, 0}};
  bindPrograms(out, blockings);
  std::vector<Val> mMask = out.masks;
  auto along = [&](Emitter &e, Symbol s, size_t dim, Expr extent, Val start) {
    Val lane = e.lanes(dim);
    e.env[s] = start ? e.indexBinary("arith.addi", start, lane) : lane;
    e.facts.setIndex(s, extent);
    if (!e.facts.provablyDivisible(extent, Expr(e.frame.tile[dim])))
      e.masks.push_back(e.compare("lt", e.env[s], e.index(extent)));
  };
  auto frame = [&](int64_t rowsOf, int64_t columns, bool queryRows) {
    Emitter e(k, Frame{{rowsOf, columns}});
    e.facts = out.facts, e.env = out.env;
    if (queryRows)
      e.masks = mMask;
    else
      e.env.erase(query);
    return e;
  };
  along(out, element, 1, x[3], {});
  Emitter q = frame(bm, headBlock, true);
  along(q, element, 1, spec.headSize, {});
  auto loadAs = [](Emitter &e, const AttentionSpec::Operand &o, DType t) {
    Val zero = e.constant(o.dtype, 0, 0);
    return e.widen(e.cast(e.load(o.buffer, o.index, {}, zero, o.dtype), o.dtype, t), 3);
  };
  Val queries = loadAs(q, spec.q, narrow ? spec.q.dtype : DType::F32);
  Emitter f = frame(bm, bn, true); // for scalars and rows of the score frame
  if (!narrow) queries = q.binary("arith.mulf", queries, q.constant(DType::F32, spec.scale, 0));

  auto tensor = [&](int64_t r, int64_t c) { return RankedTensorType::get({r, c}, b.getF32Type()); };
  auto full = [&](int64_t r, int64_t c, float v) {
    return Value(arith::ConstantOp::create(b, k.loc, DenseElementsAttr::get(tensor(r, c), APFloat(v))));
  };
  Value maxInit = full(bm, 1, -INFINITY), sumInit = full(bm, 1, 0), accInit = full(bm, valueBlock, 0);

  Val end = out.index(spec.keyLength);
  if (spec.causal) { // no key beyond the block's last query row takes part
    Val last = out.binary("arith.addi", out.index(blockOf(blockings, query) * Expr(bm)), out.intConst(bm));
    end = out.binary("arith.minsi", end, last);
  }
  auto loop =
      scf::ForOp::create(b, k.loc, out.intConst(0).v, end.v, out.intConst(bn).v, ValueRange{maxInit, sumInit, accInit});
  Val acc, sum;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Val start{loop.getInductionVar()};
    Val rowMax{loop.getRegionIterArg(0), 1}, rowSum{loop.getRegionIterArg(1), 1}, running{loop.getRegionIterArg(2), 3};
    Emitter keys = frame(bn, headBlock, false), values = frame(bn, valueBlock, false), s = f;
    along(keys, key, 0, spec.keyLength, start);
    along(keys, element, 1, spec.headSize, {});
    along(values, key, 0, spec.keyLength, start);
    along(values, element, 1, x[3], {});
    along(s, key, 1, spec.keyLength, start);
    Val loadedKeys = loadAs(keys, spec.k, narrow ? spec.k.dtype : DType::F32);
    Val score{tb::dot(b, k.loc, queries.v, tb::trans(b, k.loc, loadedKeys.v), full(bm, bn, 0), k.target.f32Products),
              3};
    if (narrow) score = s.binary("arith.mulf", score, s.constant(DType::F32, spec.scale, 0));
    Val valid;
    for (size_t i = mMask.size(); i < s.masks.size(); ++i) valid = s.andMask(valid, s.masks[i]);
    if (spec.causal) valid = s.andMask(valid, s.compare("le", s.env[key], s.env[query]));
    if (spec.mask.buffer.valid()) {
      Val m = s.load(spec.mask.buffer, spec.mask.index, {}, {}, spec.mask.dtype);
      if (spec.mask.dtype == DType::Bool && std::isinf(spec.masked))
        valid = s.andMask(valid, m);
      else if (spec.mask.dtype == DType::Bool)
        score = s.select(s.widen(m, 3), score, s.constant(DType::F32, spec.masked, 0));
      else
        score = s.binary("arith.addf", score, s.cast(m, spec.mask.dtype, DType::F32));
    }
    Val minusInf = s.constant(DType::F32, -INFINITY, 0);
    if (valid) score = s.select(s.widen(valid, 3), score, minusInf);
    Val newMax = s.binary("arith.maximumf", rowMax, rows(s, score, "arith.maximumf"));
    // A row without any key so far has maximum -inf, and -inf - -inf is NaN: subtract 0 there.
    Val shift = s.select(s.compare("eq", newMax, minusInf), s.constant(DType::F32, 0, 0), newMax);
    Val p = unary(s, "math.exp", s.binary("arith.subf", score, shift));
    Val alpha = unary(s, "math.exp", s.binary("arith.subf", rowMax, shift));
    Val newSum = s.binary("arith.addf", s.binary("arith.mulf", rowSum, alpha), rows(s, p, "arith.addf"));
    Emitter o = out;
    Val scaled = o.binary("arith.mulf", running, alpha);
    DType valueType = tiling.narrowValues ? spec.v.dtype : DType::F32;
    Value next = tb::dot(b, k.loc, s.cast(p, DType::F32, valueType).v, loadAs(values, spec.v, valueType).v, scaled.v,
                         k.target.f32Products);
    scf::YieldOp::create(b, k.loc, ValueRange{newMax.v, newSum.v, next});
  }
  sum = {loop.getResult(1), 1}, acc = {loop.getResult(2), 3};
  Val result = out.binary("arith.divf", acc, sum);
  // A row that no key takes part in is 0 / 0. PyTorch's safe softmax, which its attention has, makes that 0.
  if (!spec.emptyIsNan)
    result = out.select(out.compare("eq", sum, out.constant(DType::F32, 0, 0)), out.constant(DType::F32, 0, 0), result);
  else if (!facts.provablyLess(Expr(0), spec.keyLength))
    // Where there is no key at all, the product that follows the softmax is a sum of nothing.
    result = out.select(out.compare("eq", out.index(spec.keyLength), out.intConst(0)), out.constant(DType::F32, 0, 0),
                        result);
  loops::Store store;
  store.buffer = spec.out.buffer, store.index = spec.out.index;
  out.store(store, out.cast(result, DType::F32, spec.out.dtype), {});
}

} // namespace neso
