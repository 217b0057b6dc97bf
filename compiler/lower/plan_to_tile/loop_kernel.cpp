#include "lower/plan_to_tile/loop_kernel.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "ir/plan/access.h"
#include "ir/tile/build.h"
#include "lower/plan_to_tile/blocks.h"
#include "lower/plan_to_tile/reduce.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso {

using namespace mlir;
using loops::Node;
using loops::Op;
using loops::OpKind;
using loops::ReduceKind;

namespace {

class LoopKernel {
public:
  LoopKernel(KernelContext &k, const Facts &facts, const LoopTiling &tiling) : k_(k), tiling_(tiling), facts_(facts) {}

  void run() {
    findPhases();
    Emitter outer = bindOuter();
    if (tiling_.shortRow) return emitByLength(outer);
    emitPhases(outer);
  }

private:
  using Shape = LoopTiling::Shape;
  const std::vector<Node> &nodes() const { return k_.kernel.nodes; }
  const std::vector<Expr> &x() const { return k_.kernel.xRanges; }
  const std::vector<Expr> &r() const { return k_.kernel.rRanges; }

  /// The same twice: rows that are short enough go in one step, others in loops.
  void emitByLength(const Emitter &outer) {
    Emitter shortRows = outer, longRows = outer;
    const Val isShort = shortRows.compare("le", shortRows.index(r().back()), shortRows.intConst(tiling_.shortRow));
    auto choice = scf::IfOp::create(k_.b, k_.loc, isShort.v, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(k_.b);
    k_.b.setInsertionPointToStart(choice.thenBlock());
    step_ = tiling_.shortRow, wholeRow_ = true;
    shortRows.frame.tile[static_cast<size_t>(tiling_.innerDim)] = step_;
    emitPhases(shortRows);
    k_.b.setInsertionPointToStart(choice.elseBlock());
    step_ = tiling_.inner, wholeRow_ = false;
    emitPhases(longRows);
  }

  void emitPhases(Emitter &outer) {
    for (int phase = 0; phase <= lastPhase_; ++phase) {
      for (size_t n = 0; n < nodes().size(); ++n)
        if (!inner_[n] && phase_[n] == phase) emitNode(outer, n, true);
      bool any = false;
      for (size_t n = 0; n < nodes().size(); ++n) any |= inner_[n] && phase_[n] == phase;
      if (any) emitPhase(outer, phase);
    }
  }

  /// A phase is one pass over the inner space.
  void findPhases() {
    plan::Passes passes = plan::passesOf(k_.kernel);
    phase_ = std::move(passes.pass), inner_ = std::move(passes.inner), lastPhase_ = passes.last;
  }

  Emitter bindOuter() {
    std::vector<Blocking> blockings;
    for (size_t d = 0; d < x().size(); ++d)
      blockings.push_back({Symbol::outer(d), x()[d], tiling_.outer[d].size, tiling_.outer[d].tileDim});
    k_.code.warps = tiling_.warps;
    Emitter e(k_, Frame{tiling_.tile});
    e.facts = facts_;
    e.keepLoads = tiling_.keepsLoads;
    e.streams = tiling_.streams;
    bindPrograms(e, blockings);
    return e;
  }

  /// One pass over the inner space: binds the r symbols, runs the inner nodes of the phase, carries accumulators.
  void emitPhase(Emitter &outer, int phase) {
    std::vector<Accumulator> accumulators;
    for (size_t n = 0; n < nodes().size(); ++n) {
      if (!inner_[n] || phase_[n] != phase) continue;
      for (const loops::Reduction &red : nodes()[n].reductions()) accumulators.emplace_back(red, n);
      if (const auto *scan = nodes()[n].as<loops::ScanSpec>()) accumulators.emplace_back(*scan, n);
    }
    if (tiling_.shape == Shape::Unrolled) {
      emitUnrolled(outer, phase, accumulators);
    } else {
      std::vector<Val> carried;
      for (Accumulator &a : accumulators)
        for (Val v : a.initial(outer, tiling_.carriesTiles && a.reduction ? outer.frame.full() : carryVary()))
          carried.push_back(v);
      carried = emitDims(outer, 0, phase, accumulators, carried);
      size_t next = 0;
      for (Accumulator &a : accumulators) {
        a.result.assign(carried.begin() + static_cast<ptrdiff_t>(next),
                        carried.begin() + static_cast<ptrdiff_t>(next + a.arity()));
        if (tiling_.carriesTiles && a.reduction)
          a.result = a.finish(outer, a.reduceTile(outer, a.result, static_cast<size_t>(tiling_.innerDim), {}));
        next += a.arity();
      }
    }
    for (Accumulator &a : accumulators) {
      if (!a.reduction) continue;
      for (const loops::Store &s : a.reduction->results) {
        DType want = k_.plan.program.buffer(s.buffer).dtype;
        outer.store(s, outer.cast(a.resultAt(static_cast<size_t>(s.value)), a.resultType(outer), want), {});
      }
    }
  }

  /// Accumulators vary along the rows or columns that share a program, else they are scalars of it.
  unsigned carryVary() const { return tiling_.shape == Shape::Columns ? 2u : tiling_.innerDim == 1 ? 1u : 0u; }
  void emitUnrolled(Emitter &outer, int phase, std::vector<Accumulator> &accumulators) {
    int64_t total = 1;
    for (Expr e : r()) total *= e.constValue();
    // A sum begins with 0, as in PyTorch: of negative zeros it is a positive one. All others begin with their first element.
    for (Accumulator &a : accumulators) a.result = a.beginsWithZero() ? a.initial(outer, 0) : std::vector<Val>{};
    std::vector<DeferredStore> deferred;
    deferred_ = storesCanWait(phase) ? &deferred : nullptr;
    // One mask for all elements: stores under different masks are not known to be apart.
    if (!k_.target.threadBlocks) outer.widenMask(outer.tileMask(outer.frame.full()), outer.frame.full());
    std::vector<Emitter> elements(static_cast<size_t>(total), outer);
    for (int64_t i = 0; i < total; ++i) {
      Emitter &e = elements[static_cast<size_t>(i)];
      int64_t rest = i;
      for (size_t d = r().size(); d-- > 0;) {
        int64_t extent = r()[d].constValue();
        e.facts.setRange(Symbol::inner(d), {rest % extent, rest % extent});
        e.env[Symbol::inner(d)] = e.intConst(rest % extent);
        rest /= extent;
      }
      e.forgetPlaces();
      runInner(e, phase, accumulators, [&](Accumulator &a, Emitter &at, const std::vector<Val> &element) {
        a.result = a.result.empty() ? element : a.combine(at, a.result, element);
      });
    }
    deferred_ = nullptr;
    for (const DeferredStore &d : deferred) d.at->store(*d.store, d.value, {});
    for (Accumulator &a : accumulators)
      if (a.result.empty()) a.result = a.initial(outer, 0); // an empty inner space
  }

  /// Whether an unrolled phase may store all its elements behind the last one. Then the stores stand side by side, and code for
  /// CPUs computes what they share once: with loads between them each would be a loop of its own, which computes the reductions
  /// again. Not so where a node of the phase reads from memory what the phase stores there.
  bool storesCanWait(int phase) const {
    if (k_.target.threadBlocks || k_.kernel.serial) return false;
    std::map<loops::BufferId, Expr> stores;
    for (size_t n = 0; n < nodes().size(); ++n) {
      if (!inner_[n] || phase_[n] != phase) continue;
      const auto *node = nodes()[n].as<loops::PointwiseSpec>();
      if (!node) continue;
      for (const loops::Store &s : node->stores)
        if (s.mode != loops::StoreMode::Set || s.mask >= 0 || !stores.emplace(s.buffer, s.index).second) return false;
    }
    bool waits = !stores.empty();
    for (size_t n = 0; n < nodes().size(); ++n)
      if (inner_[n] && phase_[n] == phase)
        loops::forEachAccess(nodes()[n], [&](const loops::Access &load) {
          auto stored = stores.find(load.buffer);
          waits &= load.writes() || stored == stores.end() || stored->second == load.index;
        });
    return waits;
  }

  /// Loops over inner dimension d and those after it; the last one goes in blocks of lanes.
  std::vector<Val> emitDims(Emitter &scope, size_t d, int phase, std::vector<Accumulator> &accumulators,
                            std::vector<Val> carried) {
    bool last = d + 1 == r().size();
    auto body = [&](Emitter &e, std::vector<Val> in) {
      if (!last) return emitDims(e, d + 1, phase, accumulators, std::move(in));
      return emitChunk(e, phase, accumulators, std::move(in));
    };
    int64_t step = last ? step_ : 1;
    std::optional<int64_t> extent = r()[d].asConst();
    bool reverse = scansReversed(phase);
    if (extent && *extent == 0) return carried; // nothing to visit: no load may happen
    if ((extent && *extent <= step) || (last && wholeRow_)) {
      bindInner(scope, d, last, scope.intConst(0), true);
      return body(scope, std::move(carried));
    }
    Val n = scope.index(r()[d]);
    Val lower = scope.intConst(0), by = scope.intConst(step);
    SmallVector<Value> init;
    for (Val v : carried) init.push_back(v.v);
    auto loop = scf::ForOp::create(k_.b, k_.loc, lower.v, n.v, by.v, init);
    OpBuilder::InsertionGuard guard(k_.b);
    k_.b.setInsertionPointToStart(loop.getBody());
    Emitter e = scope;
    Val start{loop.getInductionVar()};
    if (reverse) { // from the last block to the first: start = (ceil(n / step) - 1) * step - iv
      Val top = e.index((ceilDiv(r()[d], Expr(step)) - 1) * Expr(step));
      start = e.binary("arith.subi", top, start);
    }
    bindInner(e, d, last, start, false);
    std::vector<Val> in;
    for (size_t i = 0; i < carried.size(); ++i)
      in.push_back({loop.getRegionIterArg(static_cast<unsigned>(i)), carried[i].vary});
    std::vector<Val> out = body(e, in);
    SmallVector<Value> yields;
    for (size_t i = 0; i < out.size(); ++i) yields.push_back(out[i].v);
    if (!carried.empty()) scf::YieldOp::create(k_.b, k_.loc, yields);
    std::vector<Val> results;
    for (size_t i = 0; i < carried.size(); ++i)
      results.push_back({loop.getResult(static_cast<unsigned>(i)), carried[i].vary});
    return results;
  }

  bool scansReversed(int phase) const {
    for (size_t n = 0; n < nodes().size(); ++n)
      if (const auto *scan = nodes()[n].as<loops::ScanSpec>(); scan && scan->reverse && inner_[n] && phase_[n] == phase)
        return true;
    return false;
  }

  void bindInner(Emitter &e, size_t d, bool last, Val start, bool whole) {
    e.facts.setIndex(Symbol::inner(d), r()[d]);
    if (!last) {
      e.env[Symbol::inner(d)] = start;
      return;
    }
    blockStart_ = start;
    if (whole && e.env.count(Symbol::inner(d))) return; // a later phase over the same single block
    Val lane = e.lanes(static_cast<size_t>(tiling_.innerDim));
    Val at = whole ? lane : e.indexBinary("arith.addi", start, lane);
    e.env[Symbol::inner(d)] = at;
    // Loops over no element have no turns; a single block is there whether it has elements or not.
    if (!e.facts.provablyDivisible(r()[d], Expr(step_)) || (whole && !e.facts.provablyLess(Expr(0), r()[d]))) {
      Val inside = e.compare("lt", at, e.index(r()[d]));
      e.masks.push_back(inside);
      innerMask_ = inside;
    } else {
      innerMask_ = {};
    }
  }

  std::vector<Val> emitChunk(Emitter &e, int phase, std::vector<Accumulator> &accumulators, std::vector<Val> carried) {
    size_t next = 0;
    for (Accumulator &a : accumulators) {
      a.carried.assign(carried.begin() + static_cast<ptrdiff_t>(next),
                       carried.begin() + static_cast<ptrdiff_t>(next + a.arity()));
      next += a.arity();
    }
    // Within a block places of 32 bits tell elements apart: twice as many of them are compared at one time.
    positionsInBlock_ = !k_.target.threadBlocks && !k_.indexType.isInteger(32) && !tiling_.carriesTiles;
    runInner(e, phase, accumulators, [&](Accumulator &a, Emitter &at, std::vector<Val> element) {
      if (tiling_.carriesTiles) {
        a.carried = a.fold(at, a.carried, std::move(element), innerMask_);
        return;
      }
      // Beyond the last column of a tile nothing counts either: a CPU's loop may end there, too.
      const bool columns = innerMask_ && tiling_.shape == Shape::Columns && !k_.target.threadBlocks;
      const Val inside = columns ? at.tileMask(at.frame.full()) : innerMask_;
      std::vector<Val> partial = a.reduceTile(at, std::move(element), static_cast<size_t>(tiling_.innerDim), inside);
      if (a.isArg() && positionsInBlock_)
        partial[1] = at.binary("arith.addi", firstOfBlock(at), at.cast(partial[1], DType::I32, DType::I64));
      a.carried = a.combine(at, a.carried, partial);
    });
    positionsInBlock_ = false;
    std::vector<Val> out;
    for (Accumulator &a : accumulators) out.insert(out.end(), a.carried.begin(), a.carried.end());
    return out;
  }

  /// Emits the inner nodes of one phase at the bound r symbols; `fold` takes each reduction's element values.
  void runInner(Emitter &e, int phase, std::vector<Accumulator> &accumulators,
                const std::function<void(Accumulator &, Emitter &, const std::vector<Val> &)> &fold) {
    for (size_t n = 0; n < nodes().size(); ++n) {
      if (!inner_[n] || phase_[n] != phase) continue;
      recomputeProducers(e, n, phase);
      if (nodes()[n].kind() == Node::Kind::Pointwise) {
        emitNode(e, n, true);
        continue;
      }
      const loops::Body &body = nodes()[n].body();
      std::vector<Val> memo;
      for (Accumulator &a : accumulators) {
        if (a.node != n) continue;
        if (a.reduction) {
          if (foldProduct(e, body, a, memo)) continue;
          const Val value = e.value(body, a.reduction->input, memo);
          fold(a, e, a.element(value, a.isArg() ? positionOf(e) : Val()));
        } else {
          const auto &scan = nodes()[n].get<loops::ScanSpec>();
          Val element = e.value(body, scan.inputs[0], memo);
          Val scanned = a.scanTile(e, element, static_cast<size_t>(tiling_.innerDim), innerMask_);
          for (const loops::Store &s : scan.stores)
            e.store(s, e.cast(scanned, a.dtype(), k_.plan.program.buffer(s.buffer).dtype), {});
        }
      }
    }
  }

  /// An unrolled sum of products takes each product with one rounding, as products of matrices do.
  bool foldProduct(Emitter &e, const loops::Body &body, Accumulator &a, std::vector<Val> &memo) {
    const Op &input = body.ops[static_cast<size_t>(a.reduction->input)];
    if (tiling_.shape != Shape::Unrolled || a.reduction->kind != ReduceKind::Sum || input.kind != OpKind::Mul) return false;
    if (input.dtype != a.dtype() || (input.dtype != DType::F32 && input.dtype != DType::F64)) return false;
    a.result = {e.fusedMultiplyAdd(e.value(body, input.a, memo), e.value(body, input.b, memo), a.result[0])};
    return true;
  }

  /// What arg reductions take beside an element.
  Val positionOf(Emitter &e) {
    return positionsInBlock_ ? e.lanesOf(static_cast<size_t>(tiling_.innerDim), k_.b.getI32Type()) : linearInner(e);
  }

  /// linearInner() of the first element of a block.
  Val firstOfBlock(Emitter &e) {
    Expr rows = 0;
    for (size_t d = 0; d + 1 < r().size(); ++d) rows = rows * r()[d] + Symbol::inner(d);
    return e.binary("arith.addi", e.index(e.facts.simplify(rows * r().back())), blockStart_);
  }

  /// Row-major position in the inner space, in the kernel's index type: what arg reductions carry.
  Val linearInner(Emitter &e) {
    Expr at = 0;
    for (size_t d = 0; d < r().size(); ++d) at = at * r()[d] + Symbol::inner(d);
    return e.index(e.facts.simplify(at));
  }

  /// Inner values of earlier phases are computed again where this node needs them: their pass is over. What is in
  /// memory is read from there, since computing it anew would read operands that the kernel may have overwritten since.
  void recomputeProducers(Emitter &e, size_t n, int phase) {
    for (const loops::Access &load : loops::accessesOf(nodes()[n])) {
      if (load.writes() || k_.buffers.count(load.buffer)) continue;
      size_t p = lastWriter(load.buffer, n);
      if (p == n || !inner_[p] || nodes()[p].kind() != Node::Kind::Pointwise || phase_[p] == phase ||
          e.emitted.count(p))
        continue;
      recomputeProducers(e, p, phase);
      emitNode(e, p, false);
    }
  }
  /// The last node before n that stores the buffer; n if there is none.
  size_t lastWriter(loops::BufferId buffer, size_t n) const {
    for (size_t p = n; p-- > 0;)
      if (loops::writes(nodes()[p], buffer)) return p;
    return n;
  }

  void emitNode(Emitter &e, size_t n, bool toMemory) {
    const auto &node = nodes()[n].get<loops::PointwiseSpec>();
    std::vector<Val> memo;
    const bool besideInner = !inner_[n] && (tiling_.shape == Shape::Rows || tiling_.shape == Shape::Columns);
    e.notAlong = besideInner ? 1u << tiling_.innerDim : 0;
    e.defineIndirects(node.body, memo);
    // The whole body first, as a point's stores follow it: so they stand side by side, with no load between them.
    std::vector<std::pair<Val, Val>> valuesAndMasks;
    for (const loops::Store &s : node.stores) {
      Val v = e.value(node.body, s.value, memo);
      valuesAndMasks.push_back({v, s.mask >= 0 ? e.value(node.body, s.mask, memo) : Val()});
    }
    for (size_t k = 0; k < node.stores.size(); ++k) {
      const loops::Store &s = node.stores[k];
      if (toMemory && deferred_ && k_.buffers.count(s.buffer))
        deferred_->push_back({&e, &s, valuesAndMasks[k].first});
      if (toMemory && !deferred_)
        e.store(s, valuesAndMasks[k].first, valuesAndMasks[k].second);
      else
        e.forward(s.buffer, e.simplified(s.index), valuesAndMasks[k].first);
    }
    e.emitted.insert(n);
  }

  KernelContext &k_;
  const LoopTiling &tiling_;
  const Facts &facts_;
  /// Elements of the last inner dimension in one step of what is being emitted, and whether that is all of them.
  int64_t step_ = tiling_.inner;
  bool wholeRow_ = tiling_.oneStep;
  std::vector<int> phase_;
  std::vector<bool> inner_;
  int lastPhase_ = 0;
  Val innerMask_;
  /// Of the block of the last inner dimension that is being emitted.
  Val blockStart_;
  /// Stores of the unrolled phase that is being emitted, which wait for its end.
  struct DeferredStore {
    Emitter *at;
    const loops::Store *store;
    Val value;
  };
  std::vector<DeferredStore> *deferred_ = nullptr;
  /// Arg reductions compare by places in the block.
  bool positionsInBlock_ = false;
};

} // namespace

void emitLoopKernel(KernelContext &k, const Facts &facts, const LoopTiling &tiling) {
  k.inTurn = tiling.inTurn;
  LoopKernel(k, facts, tiling).run();
}

} // namespace neso
