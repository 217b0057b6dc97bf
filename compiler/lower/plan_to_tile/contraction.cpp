#include "lower/plan_to_tile/contraction.h"

#include <algorithm>
#include <set>

#include "ir/loops/access.h"
#include "ir/loops/dependences.h"
#include "ir/tile/attributes.h"
#include "ir/tile/build.h"
#include "lower/plan_to_tile/blocks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso {

using namespace mlir;
using loops::dependences;
using loops::Node;
using loops::Op;
using loops::OpKind;
using loops::reachable;
namespace tb = tile;

namespace {

/// k as a block and a place in that.
const Symbol kBlockOfK = Symbol::local("kb"), kLaneOfK = Symbol::local("kl");

/// Splits a flat symbol into the dimensions it stands for, last dimension fastest.
void splitFlat(Symbol flat, const std::vector<Symbol> &symbols, const std::vector<Expr> &extents,
               SymbolMap<Expr> &out) {
  Expr rest = flat;
  for (size_t i = symbols.size(); i-- > 0;) {
    out[symbols[i]] = i == 0 ? rest : mod(rest, extents[i]);
    rest = floorDiv(rest, extents[i]);
  }
}

struct Substitution {
  SymbolMap<Expr> values;
  Facts facts;
  Expr operator()(Expr e) const { return facts.simplify(substitute(e, values)); }
};

Substitution flatSpace(const plan::Kernel &kernel, const DotTiling &c, const Facts &facts) {
  Substitution s;
  s.facts = facts;
  auto flatten = [&](Symbol flat, const std::vector<size_t> &dims, const std::vector<Expr> &ranges,
                     Symbol (*symbolOf)(size_t)) {
    std::vector<Symbol> symbols;
    std::vector<Expr> extents;
    for (size_t d : dims) symbols.push_back(symbolOf(d)), extents.push_back(ranges[d]);
    splitFlat(flat, symbols, extents, s.values);
    s.facts.setIndex(flat, productOf(ranges, dims));
  };
  flatten(kM, c.m, kernel.xRanges, Symbol::outer);
  flatten(kN, c.n, kernel.xRanges, Symbol::outer);
  flatten(kK, c.kInner, kernel.rRanges, Symbol::inner);
  for (size_t d : c.batch) s.facts.setIndex(Symbol::outer(d), kernel.xRanges[d]);
  for (size_t d : c.kOuter) s.facts.setIndex(Symbol::inner(d), kernel.rRanges[d]);
  s.facts.setIndex(kBlockOfN, ceilDiv(c.nSize, Expr(c.bn)));
  s.facts.setRange(kLaneOfN, {0, c.columns() - 1});
  return s;
}

class Emission {
public:
  Emission(KernelContext &k, const Facts &facts, const DotTiling &c)
      : k_(k), c_(c), sub_(flatSpace(k.kernel, c, facts)) {
    Node node = k.kernel.nodes[0];
    loops::mapExprs(node, sub_);
    node_ = std::move(node.get<loops::ContractionSpec>());
  }

  void run() {
    Emitter out(k_, Frame{{c_.bm, c_.columns()}});
    out.facts = sub_.facts;
    std::vector<Blocking> blockings;
    for (size_t d : c_.batch) blockings.push_back({Symbol::outer(d), k_.kernel.xRanges[d], 1, -1});
    blockings.push_back({kN, c_.nSize, c_.bn, 1, c_.columns()});
    blockings.push_back({kM, c_.mSize, c_.bm, 0});
    if (c_.rowsFirst) std::swap(blockings.end()[-1], blockings.end()[-2]);
    bindPrograms(out, blockings);
    if (c_.slices > 1) return store(out, slicedSums(blockings));
    out.env[kBlockOfN] = out.env[blockOf(blockings, kN)];
    out.env[kLaneOfN] = out.lanes(1);
    // bindPrograms adds the mask of n before or after that of m; tell them apart by what they vary along.
    Val mMask, nMask;
    for (Val m : out.masks) (m.vary == 1 ? mMask : nMask) = m;

    Emitter a(k_, Frame{{c_.bm, c_.bk}}), b(k_, Frame{{c_.bk, c_.columns()}});
    a.facts = b.facts = out.facts;
    a.env = b.env = out.env;
    if (mMask) a.masks = {mMask};
    if (nMask && !c_.packed) b.masks = {c_.columns() == c_.bn ? nMask : b.compare("lt", b.env[kN], b.index(c_.nSize))};
    std::set<loops::ValueIdx> left = reachable(node_.body, node_.lhs), right = reachable(node_.body, node_.rhs);
    hoist(a, left, right);
    hoist(b, right, left);

    auto accType = RankedTensorType::get({c_.bm, c_.columns()}, computeTypeOf(k_.b.getContext(), node_.accType));
    Value zero = arith::ConstantOp::create(k_.b, k_.loc, k_.b.getZeroAttr(accType));
    store(out, loop(a, b, 0, zero));
  }

private:
  /// What is done with the sums, of which the rows are those of `out`.
  void store(Emitter &out, Value acc) {
    std::vector<Val> memo(std::max<size_t>(node_.epilogue.ops.size(), 1)); // an empty epilogue stores the sum as it is
    memo[0] = {acc, c_.bm == 1 ? 2u : 3u};                                 // a single row does not vary along m
    emitStores(out, node_.stores, node_.epilogue, memo);
    for (size_t i = 1; i < k_.kernel.nodes.size(); ++i) {
      Node next = k_.kernel.nodes[i];
      loops::mapExprs(next, sub_);
      std::vector<Val> values;
      const auto &behind = next.get<loops::PointwiseSpec>();
      emitStores(out, behind.stores, behind.body, values);
    }
  }

  void emitStores(Emitter &out, const std::vector<loops::Store> &stores, const loops::Body &body,
                  std::vector<Val> &memo) {
    out.defineIndirects(body, memo);
    for (const loops::Store &s : stores) {
      Val v = out.value(body, s.value, memo);
      Val mask = s.mask >= 0 ? out.value(body, s.mask, memo) : Val();
      out.store(s, v, mask);
    }
  }

  /// The part of each index that no k touches is computed once, before the loops, and stands as a symbol of its own.
  /// Operators that both operands use stay as they are: each side would need its own symbol.
  void hoist(Emitter &e, const std::set<loops::ValueIdx> &mine, const std::set<loops::ValueIdx> &others) {
    auto moves = [](Expr x) {
      for (Symbol s : symbolsOf(x))
        if (s.kind() == Symbol::Kind::Inner || s == kK || s.kind() == Symbol::Kind::Indirect) return true;
      return false;
    };
    for (loops::ValueIdx i : mine) {
      Op &op = node_.body.ops[static_cast<size_t>(i)];
      if (others.count(i) || (op.kind != OpKind::Load && op.kind != OpKind::Index)) continue;
      Expr fixed = 0, moving = 0;
      std::vector<Expr> terms = op.index.kind() == ExprKind::Add ? op.index.operands() : std::vector<Expr>{op.index};
      for (Expr t : terms) (moves(t) ? moving : fixed) = (moves(t) ? moving : fixed) + t;
      if (fixed.isConst() || fixed.isSymbol()) continue;
      const Symbol symbol = Symbol::of(Symbol::Kind::Hoisted, hoisted_++);
      e.facts.setRange(symbol, e.facts.rangeOf(fixed));
      e.env[symbol] = e.index(fixed);
      op.index = symbol + moving;
    }
  }

  Value loop(Emitter &a, Emitter &b, size_t d, Value acc) {
    bool last = d == c_.kOuter.size();
    Expr extent = last ? c_.kSize : k_.kernel.rRanges[c_.kOuter[d]];
    int64_t step = last ? c_.bk : 1;
    const bool whole = sub_.facts.provablyDivisible(c_.kSize, Expr(c_.bk));
    auto body = [&](Emitter &ea, Emitter &eb, Val start, Value in, bool masked) {
      if (!last) {
        const Symbol r = Symbol::inner(c_.kOuter[d]);
        ea.env[r] = eb.env[r] = start;
        return loop(ea, eb, d + 1, in);
      }
      return dotStep(ea, eb, start, in, masked);
    };
    auto once = [&](int64_t start, Value in) {
      Emitter ea = a, eb = b;
      return body(ea, eb, ea.intConst(start), in, !whole);
    };
    if (extent.isConst() && extent.constValue() <= step && extent.constValue() > 0) return once(0, acc);
    const int64_t rest = last && c_.partial ? c_.kSize.constValue() % c_.bk : 0;
    if (rest > 0) extent = c_.kSize.constValue() - rest;
    Val n = a.index(extent);
    auto forOp = scf::ForOp::create(k_.b, k_.loc, a.intConst(0).v, n.v, a.intConst(step).v, ValueRange{acc});
    OpBuilder::InsertionGuard guard(k_.b);
    k_.b.setInsertionPointToStart(forOp.getBody());
    Emitter ea = a, eb = b;
    Value out = body(ea, eb, {forOp.getInductionVar()}, forOp.getRegionIterArg(0), !whole && rest == 0);
    scf::YieldOp::create(k_.b, k_.loc, out);
    if (rest == 0) return forOp.getResult(0);
    k_.b.setInsertionPointAfter(forOp);
    return once(extent.constValue(), forOp.getResult(0));
  }

  /// k = start + lane; where an index divides k, as kb * BK + kl, so that divisions by what BK divides happen to
  /// scalars.
  void bindSteps(Emitter &e, Val start, size_t dim) const {
    Val lane = e.lanes(dim);
    e.env[kK] = e.indexBinary("arith.addi", start, lane);
    e.env[kBlockOfK] = e.binary("arith.divsi", start, e.intConst(c_.bk));
    e.env[kLaneOfK] = lane;
    e.facts.setIndex(kBlockOfK, ceilDiv(c_.kSize, Expr(c_.bk)));
    e.facts.setRange(kLaneOfK, {0, c_.bk - 1});
    e.blocked[kK] = kBlockOfK * Expr(c_.bk) + kLaneOfK;
  }

  Value dotStep(Emitter &a, Emitter &b, Val start, Value acc, bool masked) {
    bindSteps(a, start, 1);
    bindSteps(b, start, 0);
    Val kMaskA, kMaskB;
    if (masked) {
      kMaskA = a.compare("lt", a.env[kK], a.index(c_.kSize));
      a.masks.push_back(kMaskA);
      if (!c_.packed || c_.partial) {
        kMaskB = b.compare("lt", b.env[kK], b.index(c_.kSize));
        b.masks.push_back(kMaskB);
      }
    }
    std::vector<Val> memo;
    const Val va = operand(a, node_.lhs, memo, kMaskA);
    if (c_.scalesSums)
      if (Value sum = scaledStep(b, va, kMaskB, acc)) return sum;
    const Value sum = product(va, rightOperand(b, node_.rhs, kMaskB), acc);
    if (masked && c_.partial) sum.getDefiningOp()->setAttr(tb::kValidKAttr, k_.b.getI32IntegerAttr(static_cast<int32_t>(c_.kSize.constValue() % c_.bk)));
    return sum;
  }

  Value product(Val va, Val vb, Value acc) {
    Value sum = tb::dot(k_.b, k_.loc, va.v, vb.v, acc, k_.target.f32Products);
    // Tensor cores keep about 14 bits of sums of 8-bit floats: so many elements of k are summed before they are added to the others in f32, as cuBLAS does it.
    constexpr int kPartOf8BitSums = 128;
    if (isFloat8(node_.body.ops[static_cast<size_t>(node_.lhs)].dtype)) sum.getDefiningOp()->setAttr("maxNumImpreciseAcc", k_.b.getI32IntegerAttr(kPartOf8BitSums));
    // Rows beyond the last are not stored: the backend need not compute them.
    sum.getDefiningOp()->setAttr(tb::kMaskedRowsUnusedAttr, k_.b.getUnitAttr());
    if (c_.validRows) sum.getDefiningOp()->setAttr(tb::kValidMAttr, k_.b.getI32IntegerAttr(static_cast<int32_t>(c_.validRows)));
    if (c_.columns() != c_.bn) sum.getDefiningOp()->setAttr(tb::kValidNAttr, k_.b.getI32IntegerAttr(static_cast<int32_t>(c_.bn)));
    if (c_.fours) sum.getDefiningOp()->setAttr(tb::kRightInFoursAttr, k_.b.getUnitAttr());
    return sum;
  }

  // ---- slices of k: tiles [slices, m, n], [slices, m, k] and [slices, k, n]

  /// The sums of all slices, added: [m, n].
  Value slicedSums(std::vector<Blocking> blockings) {
    for (Blocking &bl : blockings)
      if (bl.frameDim >= 0) ++bl.frameDim;
    Emitter at(k_, Frame{{c_.slices, c_.bm, c_.bn}});
    at.facts = sub_.facts;
    bindPrograms(at, blockings);
    Emitter a(k_, Frame{{c_.slices, c_.bm, c_.bk}}), b(k_, Frame{{c_.slices, c_.bk, c_.bn}});
    a.facts = b.facts = at.facts;
    a.env = b.env = at.env;
    for (Val m : at.masks) (m.vary == 2 ? a : b).masks.push_back(m);
    hoist(a, reachable(node_.body, node_.lhs), reachable(node_.body, node_.rhs));
    hoist(b, reachable(node_.body, node_.rhs), reachable(node_.body, node_.lhs));

    const Value zero = zeros({c_.slices, c_.bm, c_.bn}, node_.accType), none = zeros({c_.slices, c_.bm, 1}, node_.accType);
    const SmallVector<Value> sums = overBlocks({zero, none}, [&](Val block, ValueRange in) { return scaledSlices(a, b, block, in); });
    // Infinity times scale and times shift may differ in sign where their sum has one: then weights are multiplied, not sums of numbers.
    Emitter rows(k_, Frame{{c_.slices, c_.bm, 1}});
    Value rest = rows.binary("arith.subf", {sums[1], 3}, {sums[1], 3}).v;
    for (int d = 2; d >= 0; --d) rest = tb::reduce(k_.b, k_.loc, {rest}, d, addition())[0];
    const Val finite = rows.compare("eq", {rest}, rows.constant(DType::F32, 0, 0));
    auto choice = scf::IfOp::create(k_.b, k_.loc, TypeRange{zero.getType()}, finite.v, true);
    {
      OpBuilder::InsertionGuard guard(k_.b);
      k_.b.setInsertionPointToStart(choice.thenBlock());
      scf::YieldOp::create(k_.b, k_.loc, sums[0]);
      k_.b.setInsertionPointToStart(choice.elseBlock());
      const SmallVector<Value> exact = overBlocks({zero}, [&](Val block, ValueRange in) { return SmallVector<Value>{weightSlices(a, b, block, in[0])}; });
      scf::YieldOp::create(k_.b, k_.loc, exact[0]);
    }
    return tb::reduce(k_.b, k_.loc, {choice.getResult(0)}, 0, addition())[0];
  }

  Value zeros(ArrayRef<int64_t> shape, DType t) {
    return arith::ConstantOp::create(k_.b, k_.loc, k_.b.getZeroAttr(RankedTensorType::get(shape, computeTypeOf(k_.b.getContext(), t))));
  }
  tb::Combine addition() {
    return [this](ValueRange x) { return SmallVector<Value>{arith::AddFOp::create(k_.b, k_.loc, x[0], x[1])}; };
  }

  /// A loop over blocks of k, as many at a time as there are slices; the body gets the first one's number.
  SmallVector<Value> overBlocks(ValueRange init, const std::function<SmallVector<Value>(Val, ValueRange)> &body) {
    Emitter scalar(k_, Frame{});
    auto forOp = scf::ForOp::create(k_.b, k_.loc, scalar.intConst(0).v, scalar.intConst(blocksOfK()).v, scalar.intConst(c_.slices).v, init);
    OpBuilder::InsertionGuard guard(k_.b);
    k_.b.setInsertionPointToStart(forOp.getBody());
    scf::YieldOp::create(k_.b, k_.loc, body({forOp.getInductionVar()}, forOp.getRegionIterArgs()));
    return {forOp.getResults().begin(), forOp.getResults().end()};
  }
  int64_t blocksOfK() const { return c_.kSize.constValue() / c_.bk; }

  /// Each slice has the block behind that of the slice before it; behind the last block there is nothing.
  void bindSlices(Emitter &e, Val block, size_t dim) const {
    const Val mine = e.indexBinary("arith.addi", block, e.lanes(0)), lane = e.lanes(dim);
    e.env[kBlockOfK] = mine, e.env[kLaneOfK] = lane;
    e.env[kK] = e.indexBinary("arith.addi", e.indexBinary("arith.muli", mine, e.intConst(c_.bk)), lane);
    e.facts.setIndex(kBlockOfK, blocksOfK());
    e.facts.setRange(kLaneOfK, {0, c_.bk - 1});
    e.blocked[kK] = kBlockOfK * Expr(c_.bk) + kLaneOfK;
    e.forgetIndices();
    if (blocksOfK() % c_.slices) e.masks.push_back(e.compare("lt", mine, e.intConst(blocksOfK())));
  }

  Val slicedRows(Emitter &a) {
    std::vector<Val> memo;
    return a.widen(a.value(node_.body, node_.lhs, memo), a.frame.full());
  }

  /// A step of all slices: the sums, to which scale * (A number) + shift * (sums of A's rows) is added, and the sums of A's rows.
  SmallVector<Value> scaledSlices(Emitter a, Emitter b, Val block, ValueRange in) {
    bindSlices(a, block, 2), bindSlices(b, block, 1);
    const Scaled right = scaledRight();
    const DType t = op(node_.lhs).dtype;
    std::vector<Val> memo;
    const Val va = slicedRows(a), scale = b.value(node_.body, right.scale, memo);
    const Val bits = b.value(node_.body, op(right.number).a, memo), number = b.widen(besideSixteen(b, bits, t), b.frame.full());
    Emitter out(k_, Frame{{c_.slices, c_.bm, c_.bn}});
    const unsigned all = out.frame.full();
    const Val shift = right.shift >= 0 ? b.value(node_.body, right.shift, memo) : b.constant(DType::F32, 0, 0);
    const Val moved = out.binary("arith.subf", shift, out.binary("arith.mulf", scale, out.constant(DType::F32, 16, 0)));
    // A product with ones adds A's rows up: all columns are the same, of which there are as few as an instruction has.
    constexpr int64_t kColumns = 8;
    Emitter ones(k_, Frame{{c_.slices, c_.bk, kColumns}});
    const Value added = tb::dot(k_.b, k_.loc, va.v, ones.widen(ones.constant(t, 1, 0), ones.frame.full()).v, zeros({c_.slices, c_.bm, kColumns}, node_.accType));
    auto any = [&](ValueRange x) { return SmallVector<Value>{arith::MaximumFOp::create(k_.b, k_.loc, x[0], x[1])}; };
    const Val rows{tb::expandDims(k_.b, k_.loc, tb::reduce(k_.b, k_.loc, {added}, 2, any)[0], 2), 3};
    const Val sums{tb::dot(k_.b, k_.loc, va.v, number.v, zeros({c_.slices, c_.bm, c_.bn}, node_.accType)), all};
    const Val scaled = out.fusedMultiplyAdd(moved, rows, out.fusedMultiplyAdd(scale, sums, {in[0], all}));
    return {out.widen(scaled, all).v, out.binary("arith.addf", {in[1], 3}, rows).v};
  }

  /// The same with the weights that the numbers stand for.
  Value weightSlices(Emitter a, Emitter b, Val block, Value acc) {
    bindSlices(a, block, 2), bindSlices(b, block, 1);
    std::vector<Val> memo;
    const Val va = slicedRows(a), weight = b.cast(b.value(node_.body, node_.rhs, memo), DType::F32, op(node_.lhs).dtype);
    return tb::dot(k_.b, k_.loc, va.v, b.widen(weight, b.frame.full()).v, acc);
  }

  /// 16 + a number of four bits, as a float of 16 bits: the number becomes the first bits of the mantissa, which takes no conversion.
  Val besideSixteen(Emitter &b, Val bits, DType t) {
    const bool brain = t == DType::BF16;
    const int64_t first = brain ? 3 : 6, sixteen = brain ? 0x4180 : 0x4c00;
    const Val word = b.binary("arith.ori", b.binary("arith.shli", bits, b.constant(DType::I32, 0, first)), b.constant(DType::I32, 0, sixteen));
    auto like = [&](Type element) {
      auto shaped = dyn_cast<ShapedType>(word.v.getType());
      return shaped ? Type(shaped.clone(element)) : element;
    };
    const Value half = arith::TruncIOp::create(k_.b, k_.loc, like(k_.b.getI16Type()), word.v);
    return {tb::bitcast(k_.b, k_.loc, half, like(computeTypeOf(k_.b.getContext(), t))), word.vary};
  }

  const Op &op(loops::ValueIdx i) const { return node_.body.ops[static_cast<size_t>(i)]; }

  /// Of a right operand scale * number + shift.
  struct Scaled {
    loops::ValueIdx number, scale, shift; // -1: nothing is added
  };
  Scaled scaledRight() const {
    const Op &right = op(node_.rhs);
    const loops::ValueIdx number = *scaledNumberOf(node_);
    return {number, number == right.a ? right.b : right.a, right.kind == OpKind::Fma ? right.c : -1};
  }

  /// Value i, with all that it is computed from, at the builder's position: a back end then computes it where it is multiplied.
  Val rightOperand(Emitter b, loops::ValueIdx i, Val kMask) {
    b.forgetIndices();
    std::vector<Val> memo;
    return operand(b, i, memo, kMask);
  }

  /// acc + scale * (A number) + shift * (sums of A's rows), of a right operand scale * number + shift. Null if these vary along k.
  Value scaledStep(Emitter &b, Val va, Val kMask, Value acc) {
    const Scaled right = scaledRight();
    std::vector<Val> memo;
    const Val scale = b.value(node_.body, right.scale, memo);
    const Val shift = right.shift >= 0 ? b.value(node_.body, right.shift, memo) : Val();
    if ((scale.vary & 1) || (shift.vary & 1)) return {};
    Emitter out(k_, Frame{{c_.bm, c_.columns()}});
    const unsigned all = c_.bm == 1 ? 2 : 3;
    Value zero = arith::ConstantOp::create(k_.b, k_.loc, k_.b.getZeroAttr(acc.getType()));
    auto scaled = [&] {
      const Val sums{product(va, rightOperand(b, right.number, kMask), zero), all};
      return out.fusedMultiplyAdd(scale, sums, {acc, all});
    };
    if (!shift) return out.widen(scaled(), 3).v;
    auto add = [&](ValueRange x) { return SmallVector<Value>{arith::AddFOp::create(k_.b, k_.loc, x[0], x[1])}; };
    Value sums = tb::reduce(k_.b, k_.loc, {va.v}, 1, add)[0];
    const Val total{tb::reduce(k_.b, k_.loc, {sums}, 0, add)[0]};
    const Val rows = c_.bm == 1 ? total : Val{tb::expandDims(k_.b, k_.loc, sums, 1), 1};
    // Infinity times scale and times shift may differ in sign where their sum has one.
    const Val finite = out.compare("eq", out.binary("arith.subf", total, total), out.constant(DType::F32, 0, 0));
    auto choice = scf::IfOp::create(k_.b, k_.loc, TypeRange{acc.getType()}, finite.v, true);
    OpBuilder::InsertionGuard guard(k_.b);
    k_.b.setInsertionPointToStart(choice.thenBlock());
    scf::YieldOp::create(k_.b, k_.loc, out.widen(out.fusedMultiplyAdd(shift, rows, scaled()), 3).v);
    k_.b.setInsertionPointToStart(choice.elseBlock());
    scf::YieldOp::create(k_.b, k_.loc, product(va, rightOperand(b, node_.rhs, kMask), acc));
    return choice.getResult(0);
  }

  /// An operand's tile. Beyond the last k it must be zero: a load that varies along k is by its mask, anything else is
  /// made so.
  Val operand(Emitter &e, loops::ValueIdx i, std::vector<Val> &memo, Val kMask) {
    Val v = e.value(node_.body, i, memo);
    bool masked = node_.body.ops[static_cast<size_t>(i)].kind == OpKind::Load && kMask && (v.vary & kMask.vary);
    if (kMask && !masked) {
      DType t = node_.body.ops[static_cast<size_t>(i)].dtype;
      v = e.select(e.widen(kMask, v.vary | kMask.vary), v, e.constant(t, 0, 0));
    }
    return e.widen(v, 3);
  }

  KernelContext &k_;
  const DotTiling &c_;
  Substitution sub_;
  loops::ContractionSpec node_;
  size_t hoisted_ = 0;
};

} // namespace

void emitContraction(KernelContext &k, const Facts &facts, const DotTiling &c) {
  k.code.warps = c.warps, k.code.stages = c.stages;
  Emission(k, facts, c).run();
}

} // namespace neso
