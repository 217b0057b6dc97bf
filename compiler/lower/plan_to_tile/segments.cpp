#include "lower/plan_to_tile/segments.h"

#include <algorithm>
#include <set>

#include "ir/tile/build.h"
#include "lower/plan_to_tile/blocks.h"
#include "lower/plan_to_tile/reduce.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso {

using namespace mlir;
using loops::SegmentsSpec;
using loops::Op;
using loops::OpKind;

namespace {

class Segments {
public:
  Segments(KernelContext &k, const Facts &facts, const SegmentsTiling &tiling)
      : k_(k), node_(k.kernel.nodes[0].get<SegmentsSpec>()), tile_(k, Frame{}) {
    std::vector<Blocking> blockings;
    const std::vector<Expr> &x = k.kernel.xRanges;
    for (size_t d = 0; d < x.size(); ++d) blockings.push_back({Symbol::outer(d), x[d], 1, -1});
    // A program has one segment. Columns that share it are its tile.
    if (tiling.columns > 0) {
      blockings.back().size = tiling.columns, blockings.back().frameDim = 0;
      tile_.frame = Frame{{tiling.columns}};
    }
    k.code.warps = tiling.warps;
    tile_.facts = facts;
    bindPrograms(tile_, blockings);
  }

  void run() {
    std::vector<Accumulator> folds;
    for (const loops::Reduction &r : node_.reductions) folds.emplace_back(r, 0);
    std::vector<Val> memo, carried;
    const Expr n = k_.kernel.rRanges[0];
    Val length = tile_.index(n);
    auto end = [&](loops::ValueIdx v) {
      // Compared as wide as it is, then as narrow as indices are.
      Val given = tile_.value(node_.body, v, memo), most = tile_.cast(length, indexType(), DType::I64);
      Val inside =
          tile_.binary("arith.minsi", tile_.binary("arith.maxsi", given, tile_.constant(DType::I64, 0, 0)), most);
      return tile_.toIndex(inside, DType::I64);
    };
    Val first = end(node_.first), last = end(node_.last);
    unsigned full = tile_.frame.full();
    for (Accumulator &a : folds)
      for (Val v : a.initial(tile_, full)) carried.push_back(v);
    SmallVector<Value> init;
    for (Val v : carried) init.push_back(v.v);
    auto loop = scf::ForOp::create(k_.b, k_.loc, first.v, last.v, tile_.intConst(1).v, init);
    {
      OpBuilder::InsertionGuard guard(k_.b);
      k_.b.setInsertionPointToStart(loop.getBody());
      scf::YieldOp::create(k_.b, k_.loc, folded(folds, {loop.getInductionVar()}, loop.getRegionIterArgs()));
    }
    size_t next = 0;
    for (Accumulator &a : folds) {
      std::vector<Val> out;
      for (size_t i = 0; i < a.arity(); ++i) out.push_back({loop.getResult(static_cast<unsigned>(next++)), full});
      a.result = a.finish(tile_, std::move(out));
      for (const loops::Store &s : a.reduction->results)
        tile_.store(s,
                    tile_.cast(a.resultAt(static_cast<size_t>(s.value)), a.resultType(tile_),
                               k_.plan.program.buffer(s.buffer).dtype),
                    {});
    }
  }

private:
  DType indexType() const { return k_.indexType.isInteger(32) ? DType::I32 : DType::I64; }

  /// What the loop carries after the element at r.
  SmallVector<Value> folded(std::vector<Accumulator> &folds, Val r, ValueRange carried) {
    Emitter e = tile_;
    e.forgetIndices();
    e.env[Symbol::inner(0)] = r;
    e.facts.setIndex(Symbol::inner(0), k_.kernel.rRanges[0]);
    std::vector<Val> memo;
    SmallVector<Value> out;
    size_t next = 0;
    for (Accumulator &a : folds) {
      std::vector<Val> in;
      for (size_t i = 0; i < a.arity(); ++i) in.push_back({carried[next++], e.frame.full()});
      Val value = e.value(node_.body, a.reduction->input, memo);
      for (Val v : a.fold(e, in, a.element(value, {}), {})) out.push_back(e.widen(v, e.frame.full()).v);
    }
    return out;
  }

  KernelContext &k_;
  const SegmentsSpec &node_;
  Emitter tile_;
};

} // namespace

void emitSegments(KernelContext &k, const Facts &facts, const SegmentsTiling &tiling) { Segments(k, facts, tiling).run(); }

} // namespace neso
