#include "lower/plan_to_tile/loop_kernel.h"

#include <algorithm>
#include <cmath>
#include <functional>

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

bool usesR(Expr e) {
  for (Symbol s : symbolsOf(e))
    if (s.kind() == Symbol::Kind::Inner) return true;
  return false;
}

/// The largest unrolled size, in inner elements and in scalar operators.
constexpr int64_t kUnrollElements = 64, kUnrollOps = 1024;
/// Warps of a program that reads a long row in steps.
constexpr int64_t kStreamingWarps = 16;
/// The least block of a row whose length is known at run time only and which is walked as a whole: one thread's, and
/// that of a block of threads.
constexpr int64_t kLeastRow = 64, kLeastRowOfBlock = 256;
/// A block of threads holds a row in registers, read once, rather than in steps that read it again, although up to so
/// many times as much as usual is masked off.
constexpr int64_t kHeldRow = 4;

class LoopKernel {
public:
  LoopKernel(KernelContext &k, const Facts &facts, const TileTarget &target) : k_(k), target_(target), facts_(facts) {}

  void run() {
    findPhases();
    chooseShape();
    Emitter outer = bindOuter();
    for (int phase = 0; phase <= lastPhase_; ++phase) {
      for (size_t n = 0; n < nodes().size(); ++n)
        if (!inner_[n] && phase_[n] == phase) emitNode(outer, n, true);
      bool any = false;
      for (size_t n = 0; n < nodes().size(); ++n) any |= inner_[n] && phase_[n] == phase;
      if (any) emitPhase(outer, phase);
    }
  }

private:
  enum class Shape { Pointwise, Unrolled, Rows, Columns };
  const std::vector<Node> &nodes() const { return k_.kernel.nodes; }
  const std::vector<Expr> &x() const { return k_.kernel.xRanges; }
  const std::vector<Expr> &r() const { return k_.kernel.rRanges; }

  /// A phase is one pass over the inner space.
  void findPhases() {
    plan::Passes passes = plan::passesOf(k_.kernel);
    phase_ = std::move(passes.pass), inner_ = std::move(passes.inner), lastPhase_ = passes.last;
    for (size_t n = 0; n < nodes().size(); ++n)
      if (inner_[n]) lastInnerPhase_ = std::max(lastInnerPhase_, phase_[n]);
  }

  void chooseShape() {
    bool reduces = std::find(inner_.begin(), inner_.end(), true) != inner_.end();
    if (!reduces || r().empty()) {
      // Reductions over nothing but dimensions of one element take that element.
      shape_ = reduces ? Shape::Unrolled : Shape::Pointwise;
      return;
    }
    int64_t elements = 1, ops = 0;
    bool constant = true, scans = false;
    for (Expr e : r()) {
      constant &= e.isConst();
      if (constant) elements = std::min<int64_t>(elements * std::max<int64_t>(e.constValue(), 0), int64_t{1} << 40);
    }
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (inner_[i]) ops += static_cast<int64_t>(nodes()[i].body().ops.size());
      scans |= nodes()[i].kind() == Node::Kind::Scan;
    }
    // Which way does memory run? Count loads that are contiguous along the last r and along the last x.
    int rowVotes = 0, columnVotes = 0;
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (!inner_[i]) continue;
      loops::forEachAccess(nodes()[i], [&](const loops::Access &load) {
        if (load.writes() || !usesR(load.index)) return;
        auto unit = [&](Symbol s) {
          std::optional<Affine> a = affineIn(load.index, s);
          return a && a->coefficient.isConst(1);
        };
        rowVotes += unit(Symbol::inner(r().size() - 1));
        columnVotes += !x().empty() && unit(Symbol::outer(x().size() - 1));
      });
    }
    bool rows = rowVotes >= columnVotes;
    bool longRows = rows && rowVotes > 0 && upperBound(facts_, r().back(), INT64_MAX) >= 16;
    if (constant && !scans && elements <= kUnrollElements && ops * elements <= kUnrollOps && !longRows)
      shape_ = Shape::Unrolled;
    else
      shape_ =
          rows || (scans && !target_.threadBlocks) || x().empty() || k_.kernel.serial ? Shape::Rows : Shape::Columns;
  }

  Emitter bindOuter() {
    std::vector<Blocking> blockings;
    for (size_t d = 0; d < x().size(); ++d) blockings.push_back({Symbol::outer(d), x()[d], 1, -1});
    Frame frame;
    switch (shape_) {
    case Shape::Pointwise:
    case Shape::Unrolled:
      // Updates of computed places happen one after another, in order: the same sums in every run, and any operator can
      // do it.
      if (x().empty() || k_.kernel.serial) break;
      blockPointwise(blockings, frame);
      break;
    case Shape::Rows: blockRows(blockings, frame); break;
    case Shape::Columns: {
      RowBlock block{target_.reduceChunk / 4, target_.columnBlock};
      if (target_.threadBlocks)
        block = columnBlock(target_, likelyResults(), innerLength());
      int64_t columns = std::min(nextPowerOfTwo(upperBound(facts_, x().back(), block.inner)), block.inner);
      innerBlock_ = std::min<int64_t>(nextPowerOfTwo(innerLength()), block.rows);
      innerDim_ = 0;
      frame.tile = {innerBlock_, columns};
      blockings.back().size = columns, blockings.back().frameDim = 1;
      break;
    }
    }
    setWarps(frame);
    Emitter e(k_, frame);
    e.facts = facts_;
    e.keepLoads = target_.threadBlocks && shape_ != Shape::Unrolled && singleChunk();
    e.streams = target_.threadBlocks && readsOnly() && (lastInnerPhase_ == 0 || e.keepLoads);
    bindPrograms(e, blockings);
    return e;
  }

  /// Elements of the outer space.
  int64_t likelyResults() const {
    int64_t all = 1;
    for (Expr e : x()) all = std::min<int64_t>(all * usualSize(e, facts_), int64_t{1} << 40);
    return all;
  }

  /// One block along the last dimension; where it is short, or where memory runs along another dimension too, a second
  /// one across.
  void blockPointwise(std::vector<Blocking> &blockings, Frame &frame) {
    size_t last = x().size() - 1, across = x().size() > 1 ? last - 1 : last;
    int64_t budget = target_.pointwiseBlock, width = INT64_MAX;
    if (target_.threadBlocks) {
      const int64_t elements = likelyResults();
      budget = pointwiseElements(target_, elements);
      if (std::optional<size_t> d = crossingDimension()) {
        // Both sides of a transposition get whole lines of memory: 32 elements each way, 64 where there is work for
        // all.
        across = *d, transposes_ = true;
        const bool many = elements >= 4096 * target_.processors * 4;
        budget = many ? 4096 : std::max<int64_t>(budget, 1024), width = many ? 64 : 32;
      }
    }
    int64_t along = std::min({nextPowerOfTwo(upperBound(facts_, x()[last], budget)), budget, width});
    int64_t rows = 1;
    if (across != last)
      rows = std::min(nextPowerOfTwo(upperBound(facts_, x()[across], budget)), std::max<int64_t>(budget / along, 1));
    if (rows > 1) {
      frame.tile = {rows, along};
      blockings[across].size = rows, blockings[across].frameDim = 0;
      blockings[last].size = along, blockings[last].frameDim = 1;
    } else {
      frame.tile = {along};
      blockings[last].size = along, blockings[last].frameDim = 0;
    }
  }

  /// A dimension other than the last along which some access is contiguous: the kernel transposes.
  std::optional<size_t> crossingDimension() const {
    std::optional<size_t> found;
    auto look = [&](Expr index) {
      auto unit = [&](size_t d) {
        std::optional<Affine> a = affineIn(index, Symbol::outer(d));
        return a && a->coefficient.isConst(1);
      };
      // An index that does not vary along the last dimension is one of a row: few elements.
      std::vector<Symbol> used = symbolsOf(index);
      if (unit(x().size() - 1) || std::find(used.begin(), used.end(), Symbol::outer(x().size() - 1)) == used.end())
        return;
      for (size_t d = 0; d + 1 < x().size(); ++d)
        if (unit(d) && usualSize(x()[d], facts_) >= 8) found = d;
    };
    if (usualSize(x().back(), facts_) < 8) return found;
    for (const Node &n : nodes()) loops::forEachAccess(n, [&](const loops::Access &a) { look(a.index); });
    return found;
  }

  void blockRows(std::vector<Blocking> &blockings, Frame &frame) {
    int64_t length = innerLength(), rows = 1;
    innerBlock_ = std::min(nextPowerOfTwo(length), target_.reduceChunk);
    if (k_.kernel.serial) innerBlock_ = 1;
    innerDim_ = 0;
    if (target_.threadBlocks && !k_.kernel.serial) {
      const int64_t all = likelyResults();
      bool shares = !x().empty();
      RowBlock block = rowBlock(target_, shares ? usualSize(x().back(), facts_) : 1, length, lastInnerPhase_ > 0,
                                streamsRows() ? kStreamingWarps * 32 * vectorOfThread() : target_.reduceChunk * 2);
      // Rows that share a program lie along the last outer dimension; the other dimensions count as programs.
      if (shares && all / block.rows < target_.processors) block.rows = 1;
      innerBlock_ = block.inner, rows = block.rows;
    }
    if (rows == 1) {
      frame.tile = {innerBlock_};
      return;
    }
    innerDim_ = 1;
    frame.tile = {rows, innerBlock_};
    blockings.back().size = rows, blockings.back().frameDim = 0;
  }

  /// Elements of the last inner dimension that a block is made for: all that there may be, if walking the block ends
  /// where the mask does, else as many as usual. Longer ones take several blocks.
  int64_t innerLength() const {
    const int64_t most = upperBound(facts_, r().back(), target_.reduceChunk);
    if (r().back().isConst() || endsWithMask()) return most;
    const int64_t least = target_.threadBlocks ? kLeastRowOfBlock : kLeastRow;
    const int64_t usual = std::max(usualSize(r().back(), facts_), least);
    if (target_.threadBlocks && most <= kHeldRow * usual) return most;
    return std::min(most, usual);
  }

  /// One thread stops where nothing is left of a row, in passes that only add up and in those that only store. A block
  /// of threads holds whole tiles; scans and the places of extremes are carried through all of one.
  bool endsWithMask() const {
    if (target_.threadBlocks || !cheapFold()) return false;
    std::vector<bool> stores(static_cast<size_t>(lastPhase_) + 1), reduces = stores;
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (!inner_[i]) continue;
      const size_t phase = static_cast<size_t>(phase_[i]);
      if (nodes()[i].kind() == Node::Kind::Scan) return false;
      if (nodes()[i].kind() == Node::Kind::Reduction) reduces[phase] = true;
      if (nodes()[i].kind() == Node::Kind::Pointwise)
        loops::forEachWrite(nodes()[i], [&](const loops::Access &a) {
          if (k_.buffers.count(a.buffer)) stores[phase] = true;
        });
    }
    for (size_t phase = 0; phase < stores.size(); ++phase)
      if (stores[phase] && reduces[phase]) return false;
    return true;
  }

  /// The kernel reduces: of its whole space it stores nothing.
  bool readsOnly() const {
    if (shape_ == Shape::Pointwise || shape_ == Shape::Unrolled || k_.kernel.serial) return false;
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (!inner_[i] || nodes()[i].kind() == Node::Kind::Reduction) continue;
      if (nodes()[i].kind() != Node::Kind::Pointwise) return false;
      bool stores = false;
      loops::forEachWrite(nodes()[i], [&](const loops::Access &a) { stores |= k_.buffers.count(a.buffer) != 0; });
      if (stores) return false;
    }
    return true;
  }

  void setWarps(const Frame &frame) {
    int64_t elements = 1;
    for (int64_t n : frame.tile) elements *= n;
    k_.code.warps = k_.kernel.serial ? 1 : warpsFor(elements, elementsOfThread());
  }

  /// Elements of a tile that one thread holds. A program that only reads keeps more loads in flight with more of them;
  /// along rows that are read in steps, one wide access of many threads, so that neighbouring memory is read at one
  /// time.
  int64_t elementsOfThread() const {
    if (transposes_) return 16;
    if (!readsOnly()) return 8;
    return streamsRows() && !singleChunk() ? vectorOfThread() : 16;
  }

  /// Rows are read once, in order, and little is computed.
  bool streamsRows() const { return shape_ == Shape::Rows && readsOnly() && lastInnerPhase_ == 0 && cheapFold(); }

  /// Elements of one access of 16 bytes, of the widest that the inner nodes read.
  int64_t vectorOfThread() const {
    int64_t bytes = 1;
    for (size_t i = 0; i < nodes().size(); ++i)
      loops::forEachAccess(nodes()[i], [&](const loops::Access &a) {
        if (inner_[i] && !a.writes() && usesR(a.index)) bytes = std::max(bytes, itemSize(toReal(k_.plan.program.buffer(a.buffer).dtype)));
      });
    return 16 / std::min<int64_t>(bytes, 16);
  }

  /// Every reduction carries one number.
  bool cheapFold() const {
    for (const Node &n : nodes())
      for (const loops::Reduction &r : n.reductions())
        if (r.kind == ReduceKind::OnlineSoftmax || r.kind == ReduceKind::Welford || r.kind == ReduceKind::ArgMin ||
            r.kind == ReduceKind::ArgMax)
          return false;
    return true;
  }

  /// One pass over the inner space: binds the r symbols, runs the inner nodes of the phase, carries accumulators.
  void emitPhase(Emitter &outer, int phase) {
    std::vector<Accumulator> accumulators;
    for (size_t n = 0; n < nodes().size(); ++n) {
      if (!inner_[n] || phase_[n] != phase) continue;
      for (const loops::Reduction &red : nodes()[n].reductions()) accumulators.emplace_back(red, n);
      if (const auto *scan = nodes()[n].as<loops::ScanSpec>()) accumulators.emplace_back(*scan, n);
    }
    if (shape_ == Shape::Unrolled) {
      emitUnrolled(outer, phase, accumulators);
    } else {
      // Threads that hold a tile fold it element by element, and exchange once, behind the loops.
      carriesTiles_ = target_.threadBlocks && !k_.kernel.serial && !singleChunk();
      std::vector<Val> carried;
      for (Accumulator &a : accumulators)
        for (Val v : a.initial(outer, carriesTiles_ && a.reduction ? outer.frame.full() : carryVary()))
          carried.push_back(v);
      carried = emitDims(outer, 0, phase, accumulators, carried);
      size_t next = 0;
      for (Accumulator &a : accumulators) {
        a.result.assign(carried.begin() + static_cast<ptrdiff_t>(next),
                        carried.begin() + static_cast<ptrdiff_t>(next + a.arity()));
        if (carriesTiles_ && a.reduction)
          a.result = a.finish(outer, a.reduceTile(outer, a.result, static_cast<size_t>(innerDim_), {}));
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
  unsigned carryVary() const { return shape_ == Shape::Columns ? 2u : innerDim_ == 1 ? 1u : 0u; }
  /// The inner space is one chunk: no loop.
  bool singleChunk() const { return r().size() == 1 && r()[0].isConst() && r()[0].constValue() <= innerBlock_; }

  void emitUnrolled(Emitter &outer, int phase, std::vector<Accumulator> &accumulators) {
    int64_t total = 1;
    for (Expr e : r()) total *= e.constValue();
    for (Accumulator &a : accumulators) a.result.clear();
    for (int64_t i = 0; i < total; ++i) {
      Emitter e = outer;
      int64_t rest = i;
      for (size_t d = r().size(); d-- > 0;) {
        int64_t extent = r()[d].constValue();
        e.facts.setRange(Symbol::inner(d), {rest % extent, rest % extent});
        e.env[Symbol::inner(d)] = e.intConst(rest % extent);
        rest /= extent;
      }
      e.forgetIndices();
      runInner(e, phase, accumulators, [&](Accumulator &a, Emitter &at, const std::vector<Val> &element) {
        a.result = a.result.empty() ? element : a.combine(at, a.result, element);
      });
    }
    for (Accumulator &a : accumulators)
      if (a.result.empty()) a.result = a.initial(outer, 0); // an empty inner space
  }

  /// Loops over inner dimension d and those after it; the last one goes in blocks of lanes.
  std::vector<Val> emitDims(Emitter &scope, size_t d, int phase, std::vector<Accumulator> &accumulators,
                            std::vector<Val> carried) {
    bool last = d + 1 == r().size();
    auto body = [&](Emitter &e, std::vector<Val> in) {
      if (!last) return emitDims(e, d + 1, phase, accumulators, std::move(in));
      return emitChunk(e, phase, accumulators, std::move(in));
    };
    int64_t step = last ? innerBlock_ : 1;
    std::optional<int64_t> extent = r()[d].asConst();
    bool reverse = scansReversed(phase);
    if (extent && *extent == 0) return carried; // nothing to visit: no load may happen
    if (extent && *extent <= step) {
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
    if (whole && e.env.count(Symbol::inner(d))) return; // a later phase over the same single block
    Val lane = e.lanes(static_cast<size_t>(innerDim_));
    Val at = whole ? lane : e.indexBinary("arith.addi", start, lane);
    e.env[Symbol::inner(d)] = at;
    if (!e.facts.provablyDivisible(r()[d], Expr(innerBlock_))) {
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
    runInner(e, phase, accumulators, [&](Accumulator &a, Emitter &at, std::vector<Val> element) {
      if (carriesTiles_) {
        a.carried = a.fold(at, a.carried, std::move(element), innerMask_);
        return;
      }
      std::vector<Val> partial = a.reduceTile(at, std::move(element), static_cast<size_t>(innerDim_), innerMask_);
      a.carried = a.combine(at, a.carried, partial);
    });
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
          fold(a, e, a.element(e, e.value(body, a.reduction->input, memo), linearInner(e)));
        } else {
          const auto &scan = nodes()[n].get<loops::ScanSpec>();
          Val element = e.value(body, scan.inputs[0], memo);
          Val scanned = a.scanTile(e, element, static_cast<size_t>(innerDim_), innerMask_);
          for (const loops::Store &s : scan.stores)
            e.store(s, e.cast(scanned, a.dtype(), k_.plan.program.buffer(s.buffer).dtype), {});
        }
      }
    }
  }

  /// An unrolled sum of products takes each product with one rounding, as products of matrices do.
  bool foldProduct(Emitter &e, const loops::Body &body, Accumulator &a, std::vector<Val> &memo) {
    const Op &input = body.ops[static_cast<size_t>(a.reduction->input)];
    if (shape_ != Shape::Unrolled || a.reduction->kind != ReduceKind::Sum || input.kind != OpKind::Mul ||
        a.result.empty())
      return false;
    if (input.dtype != a.dtype() || (input.dtype != DType::F32 && input.dtype != DType::F64)) return false;
    a.result = {e.fusedMultiplyAdd(e.value(body, input.a, memo), e.value(body, input.b, memo), a.result[0])};
    return true;
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
      if (p == n || !inner_[p] || nodes()[p].kind() != Node::Kind::Pointwise || phase_[p] == phase || e.emitted.count(p))
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
    const bool besideInner = !inner_[n] && (shape_ == Shape::Rows || shape_ == Shape::Columns);
    e.notAlong = besideInner ? 1u << innerDim_ : 0;
    e.defineIndirects(node.body, memo);
    for (const loops::Store &s : node.stores) {
      Val v = e.value(node.body, s.value, memo);
      Val mask = s.mask >= 0 ? e.value(node.body, s.mask, memo) : Val();
      if (toMemory)
        e.store(s, v, mask);
      else
        e.forward(s.buffer, e.simplified(s.index), v);
    }
    e.emitted.insert(n);
  }

  KernelContext &k_;
  const TileTarget &target_;
  const Facts &facts_;
  std::vector<int> phase_;
  std::vector<bool> inner_;
  int lastPhase_ = 0, lastInnerPhase_ = 0; // the last that looks at the inner space
  Shape shape_ = Shape::Pointwise;
  int64_t innerBlock_ = 1;
  int innerDim_ = 0;
  bool carriesTiles_ = false;
  bool transposes_ = false; // a pointwise kernel whose accesses run along different dimensions
  Val innerMask_;
};

} // namespace

void emitLoopKernel(KernelContext &k, const Facts &facts, const TileTarget &target) {
  LoopKernel(k, facts, target).run();
}

} // namespace neso
