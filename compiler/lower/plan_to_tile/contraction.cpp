#include "lower/plan_to_tile/contraction.h"

#include <algorithm>
#include <set>

#include "ir/loops/build.h"
#include "ir/loops/dependences.h"
#include "ir/loops/order.h"
#include "ir/tile/build.h"
#include "lower/plan_to_tile/blocks.h"
#include "lower/plan_to_tile/config.h"
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

/// What a program of a contraction counts by: places in the flattened spaces of m, n and k; the block of n and the
/// place in it, in terms of which packed weights are read; k as a block and a place in that.
const Symbol kM = Symbol::local("m"), kN = Symbol::local("n"), kK = Symbol::local("k"),
             kBlockOfN = Symbol::local("nblock"), kLaneOfN = Symbol::local("nlane"), kBlockOfK = Symbol::local("kb"),
             kLaneOfK = Symbol::local("kl");

/// The load that an operand is, behind casts; null when it computes something.
const Op *directLoad(const loops::Body &body, loops::ValueIdx i) {
  const Op *op = &body.ops[static_cast<size_t>(i)];
  while (op->kind == OpKind::Cast) op = &body.ops[static_cast<size_t>(op->a)];
  return op->kind == OpKind::Load ? op : nullptr;
}

bool unitStride(const loops::Body &body, loops::ValueIdx value, Symbol s) {
  const Op *load = directLoad(body, value);
  if (!load) return false;
  std::optional<Affine> a = affineIn(load->index, s);
  return a && a->coefficient.isConst(1);
}

/// The block of `candidates` with the least work: padded extent, plus what each block costs beside its elements.
int64_t bestBlock(const Facts &facts, Expr extent, std::initializer_list<int64_t> candidates, double overhead) {
  std::optional<int64_t> n = facts.simplify(extent).asConst();
  if (!n) return *candidates.begin();
  int64_t best = 0;
  double bestCost = 0;
  for (int64_t b : candidates) {
    double cost = static_cast<double>((*n + b - 1) / b * b) * (1.0 + overhead / static_cast<double>(b));
    if (best == 0 || cost < bestCost) best = b, bestCost = cost;
  }
  return best;
}

/// Splits a flat symbol into the dimensions it stands for, last dimension fastest.
void splitFlat(Symbol flat, const std::vector<Symbol> &symbols, const std::vector<Expr> &extents,
               SymbolMap<Expr> &out) {
  Expr rest = flat;
  for (size_t i = symbols.size(); i-- > 0;) {
    out[symbols[i]] = i == 0 ? rest : mod(rest, extents[i]);
    rest = floorDiv(rest, extents[i]);
  }
}

/// Whether some operation behind the sum becomes tens of instructions on a GPU: in the product's own epilogue, or in
/// what is fused behind it.
bool hasLongEpilogue(const plan::Kernel &kernel) {
  auto isLong = [](const Op &op) { return loops::info(op.kind).isLong(); };
  return std::any_of(kernel.nodes.begin(), kernel.nodes.end(), [&](const Node &n) {
    const auto *sum = n.as<loops::ContractionSpec>();
    const loops::Body &behind = sum ? sum->epilogue : n.body();
    return std::any_of(behind.ops.begin(), behind.ops.end(), isLong);
  });
}

Expr productOf(const std::vector<Expr> &ranges, const std::vector<size_t> &dims) {
  Expr out = 1;
  for (size_t d : dims) out = out * ranges[d];
  return out;
}

struct Substitution {
  SymbolMap<Expr> values;
  Facts facts;
  Expr operator()(Expr e) const { return facts.simplify(substitute(e, values)); }
};

Substitution flatSpace(const plan::Kernel &kernel, const Contraction &c, const Facts &facts) {
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
  return s;
}

/// Both operands as stored reduced floats when each is only widened for the product: the dot widens by itself.
void dropWidening(loops::ContractionSpec &node) {
  auto narrow = [&](loops::ValueIdx i) -> const Op * {
    const Op &op = node.body.ops[static_cast<size_t>(i)];
    if (op.kind != OpKind::Cast || op.dtype != DType::F32) return nullptr;
    return &node.body.ops[static_cast<size_t>(op.a)];
  };
  const Op *a = narrow(node.lhs), *b = narrow(node.rhs);
  if (!a || !b || a->dtype != b->dtype || (a->dtype != DType::BF16 && a->dtype != DType::F16)) return;
  node.lhs = node.body.ops[static_cast<size_t>(node.lhs)].a;
  node.rhs = node.body.ops[static_cast<size_t>(node.rhs)].a;
}

} // namespace

std::optional<Contraction> planContraction(plan::Kernel &kernel, const Facts &facts, const TileTarget &target) {
  auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
  dropWidening(node);
  DType a = node.body.ops[static_cast<size_t>(node.lhs)].dtype, b = node.body.ops[static_cast<size_t>(node.rhs)].dtype;
  bool dottable = a == b && (a == DType::F32 || a == DType::F16 || a == DType::BF16) && node.accType == DType::F32;
  // A CPU multiplies wide numbers as it does f32.
  dottable |= !target.threadBlocks && a == b && a == node.accType && (a == DType::F64 || a == DType::I32);
  if (!dottable || kernel.rRanges.empty()) return std::nullopt;

  auto classify = [&](Contraction &c) {
    std::set<Symbol> left = dependences(node.body, node.lhs), right = dependences(node.body, node.rhs);
    for (size_t d = 0; d < kernel.xRanges.size(); ++d) {
      bool inLeft = left.count(Symbol::outer(d)), inRight = right.count(Symbol::outer(d));
      (inLeft == inRight ? c.batch : inLeft ? c.m : c.n).push_back(d);
    }
  };
  Contraction c;
  classify(c);
  // The dimension along which the result is contiguous belongs to n, whose lanes are stored.
  auto stored = [&](const std::vector<size_t> &dims) {
    if (dims.empty() || node.stores.empty()) return false;
    std::optional<Affine> s = affineIn(node.stores[0].index, Symbol::outer(dims.back()));
    return s && s->coefficient.isConst(1);
  };
  if (stored(c.m) && !stored(c.n)) {
    std::swap(node.lhs, node.rhs);
    std::swap(c.m, c.n);
  }
  if (c.n.empty()) return std::nullopt;
  size_t lastR = kernel.rRanges.size() - 1;
  // A vector times a matrix whose rows run along k: as row sums it reads memory in order, without packing.
  if (c.m.empty() && unitStride(node.body, node.rhs, Symbol::inner(lastR)) &&
      facts.rangeOf(kernel.rRanges[lastR]).lo >= 16)
    return std::nullopt;

  // Blocks of k run along the dimension in which an operand is contiguous.
  size_t inner = lastR;
  for (size_t d = 0; d < kernel.rRanges.size(); ++d)
    if (unitStride(node.body, node.lhs, Symbol::inner(d))) inner = d;
  bool constantK = true;
  for (Expr e : kernel.rRanges) constantK &= e.isConst();
  std::optional<int64_t> innerExtent = kernel.rRanges[inner].asConst();
  bool flattenAll = constantK && innerExtent && *innerExtent < 16;
  // One loop for a software pipeline, where a block of k stays within one position of the outer dimensions.
  if (target.threadBlocks && constantK && innerExtent) flattenAll |= inner == lastR && *innerExtent % target.dotK == 0;
  for (size_t d = 0; d < kernel.rRanges.size(); ++d) (flattenAll || d == inner ? c.kInner : c.kOuter).push_back(d);

  c.mSize = productOf(kernel.xRanges, c.m), c.nSize = productOf(kernel.xRanges, c.n),
  c.kSize = productOf(kernel.rRanges, c.kInner);
  if (target.threadBlocks) {
    DotBlock block =
        dotBlock(target, usualSize(productOf(kernel.xRanges, c.batch), facts), usualSize(c.mSize, facts),
                 usualSize(c.nSize, facts), usualSize(c.kSize, facts), itemSize(a), hasLongEpilogue(kernel));
    c.bm = block.m, c.bn = block.n, c.bk = block.k;
    kernel.warps = block.warps, kernel.stages = block.stages;
    return c;
  }
  c.bn = bestBlock(facts, c.nSize, {64, 32, 16}, 2);
  c.bk = bestBlock(facts, c.kSize, {256, 128, 64, 32, 16}, 2);
  c.bm = bestBlock(facts, c.mSize, {64, 32, 16, 8, 4, 2, 1}, 2);
  c.bm = std::min(c.bm, target.dotM), c.bn = std::min(c.bn, target.dotN), c.bk = std::min(c.bk, target.dotK);
  return c;
}

void contractionToReduction(plan::Plan &plan, plan::Kernel &kernel) {
  const Node &given = kernel.nodes[0];
  const auto &node = given.get<loops::ContractionSpec>();
  const loops::BufferId sum = addTemp(plan.program, kernel.name + "_sum", node.accType, 1);
  plan.placements.emplace_back();

  loops::ReductionSpec reduction{node.body, {}};
  auto inAccType = [&](loops::ValueIdx i) {
    if (reduction.body.ops[static_cast<size_t>(i)].dtype == node.accType) return i;
    return append(reduction.body, OpKind::Cast, node.accType, i);
  };
  const loops::ValueIdx lhs = inAccType(node.lhs), rhs = inAccType(node.rhs);
  loops::Reduction red;
  red.dtype = node.accType, red.input = append(reduction.body, OpKind::Mul, node.accType, lhs, rhs);
  red.results = {{sum, 0, 0}};
  reduction.reductions = {red};

  Node after = given;
  after.spec = loops::PointwiseSpec{epilogueOf(node, sum, 0), node.stores}, after.reduceRanges.clear();

  kernel.kind = Node::Kind::Reduction;
  kernel.nodes[0].spec = std::move(reduction);
  kernel.nodes.insert(kernel.nodes.begin() + 1, std::move(after));
}

namespace {

/// The right operand of a contraction where it is a constant with constant strides that nothing else reads: offsets of
/// its elements, in elements, along each group of dimensions (row-major in the group's dimensions).
class ConstantOperand {
public:
  static std::optional<ConstantOperand> of(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users,
                                           const Contraction &c) {
    ConstantOperand out(plan, kernel);
    return out.find(c, users) ? std::optional(std::move(out)) : std::nullopt;
  }

  int64_t n = 0, k = 0; // extents
  std::vector<int64_t> batchAt, nAt, outerAt, kAt;
  Op &load() const {
    auto &node = kernel_.nodes[0].get<loops::ContractionSpec>();
    return node.body.ops[static_cast<size_t>(node.rhs)];
  }
  const loops::Buffer &buffer() const { return plan_.program.buffer(load().buffer); }

  /// Puts the elements into the order of these axes, of `elements` elements in all; false where it cannot be done.
  bool rewrite(int64_t elements, const std::vector<loops::Axis> &axes) const {
    const DType dtype = buffer().dtype;
    if (itemSize(dtype) != 4 && itemSize(dtype) != 2) return false;
    loops::Constant &constant = plan_.program.constants[static_cast<size_t>(buffer().index)];
    loops::reorder(constant, loops::elementOrder(axes, base_, elements), dtype);
    loops::BufferId id = buffer().id;
    plan_.program.buffer(id).elements = elements;
    plan_.placements[id.index()].bytes = constant.bytes;
    return true;
  }

private:
  ConstantOperand(plan::Plan &plan, plan::Kernel &kernel) : plan_(plan), kernel_(kernel) {}

  bool find(const Contraction &c, const plan::Users &users) {
    if (load().kind != OpKind::Load || load().a >= 0 || buffer().kind != loops::Buffer::Kind::Constant ||
        buffer().mutated)
      return false;
    // Whoever else touches it, in whatever way, goes by the model's order of elements.
    if (users.of(buffer().id).size() != 1) return false;
    for (Symbol s : symbolsOf(load().index))
      if (s.kind() != Symbol::Kind::Outer && s.kind() != Symbol::Kind::Inner) return false;
    n = c.nSize.asConst().value_or(-1), k = c.kSize.asConst().value_or(-1);
    if (n <= 0 || k <= 0) return false;
    // The index of a stored weight is a sum of what each dimension adds. Anything else stays as it is.
    Expr rest = load().index;
    if (!offsets(c.batch, kernel_.xRanges, Symbol::outer, true, rest, batchAt) ||
        !offsets(c.n, kernel_.xRanges, Symbol::outer, false, rest, nAt) ||
        !offsets(c.kOuter, kernel_.rRanges, Symbol::inner, false, rest, outerAt) ||
        !offsets(c.kInner, kernel_.rRanges, Symbol::inner, false, rest, kAt))
      return false;
    base_ = rest.asConst().value_or(-1);
    return base_ >= 0;
  }

  /// The terms of `rest` that have the symbol, which leave it; nullopt when one has another symbol too.
  static std::optional<Expr> takeTerms(Symbol symbol, Expr &rest) {
    std::vector<Expr> terms = rest.kind() == ExprKind::Add ? rest.operands() : std::vector<Expr>{rest};
    Expr mine = 0, others = 0;
    for (Expr t : terms) {
      std::vector<Symbol> symbols = symbolsOf(t);
      bool has = std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
      if (has && symbols.size() > 1) return std::nullopt;
      (has ? mine : others) = (has ? mine : others) + t;
    }
    rest = others;
    return mine;
  }

  /// Element offsets of all positions along `dims`; takes their terms out of `rest`.
  bool offsets(const std::vector<size_t> &dims, const std::vector<Expr> &ranges, Symbol (*symbolOf)(size_t),
               bool onlyUsed, Expr &rest, std::vector<int64_t> &out) const {
    out = {0};
    for (size_t d : dims) {
      if (onlyUsed && !uses(load().index, symbolOf(d))) continue;
      std::optional<int64_t> extent = ranges[d].asConst();
      if (!extent || *extent < 0) return false;
      std::optional<Expr> along = takeTerms(symbolOf(d), rest);
      if (!along) return false;
      std::vector<int64_t> next;
      next.reserve(out.size() * static_cast<size_t>(*extent));
      std::vector<int64_t> steps;
      for (int64_t i = 0; i < *extent; ++i) {
        std::optional<int64_t> at = evaluate(*along, {{symbolOf(d), i}});
        if (!at) return false;
        steps.push_back(*at);
      }
      for (int64_t o : out)
        for (int64_t step : steps) next.push_back(o + step);
      out = std::move(next);
    }
    return true;
  }

  plan::Plan &plan_;
  plan::Kernel &kernel_;
  int64_t base_ = 0;
};

/// Position among the batches, and among the outer k, in row-major order of the dimensions that the operand has.
std::pair<Expr, Expr> outerPosition(const plan::Kernel &kernel, const Contraction &c, Expr index) {
  Expr batch = 0, ko = 0;
  for (size_t d : c.batch)
    if (uses(index, Symbol::outer(d))) batch = batch * kernel.xRanges[d] + Symbol::outer(d);
  for (size_t d : c.kOuter) ko = ko * kernel.rRanges[d] + Symbol::inner(d);
  return {batch, ko};
}

} // namespace

void packRightOperand(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users, Contraction &c) {
  std::optional<ConstantOperand> operand = ConstantOperand::of(plan, kernel, users, c);
  if (!operand) return;
  int64_t blocks = (operand->n + c.bn - 1) / c.bn, kPadded = (operand->k + c.bk - 1) / c.bk * c.bk;
  int64_t batches = static_cast<int64_t>(operand->batchAt.size()),
          outer = static_cast<int64_t>(operand->outerAt.size());
  const int64_t blockElements = outer * kPadded * c.bn;
  bool done = operand->rewrite(batches * blocks * blockElements,
                               {loops::plainAxis(operand->batchAt, blocks * blockElements),
                                loops::blockedAxis(operand->nAt, c.bn, blockElements),
                                loops::plainAxis(operand->outerAt, kPadded * c.bn), loops::plainAxis(operand->kAt, c.bn)});
  if (!done) return;
  // The load in terms of the flat symbols of emitContraction.
  auto [batch, ko] = outerPosition(kernel, c, operand->load().index);
  operand->load().index = (((batch * blocks + kBlockOfN) * outer + ko) * kPadded + kK) * c.bn + kLaneOfN;
  c.packed = true;
}

void orderRightOperand(plan::Plan &plan, plan::Kernel &kernel, const plan::Users &users, const Contraction &c) {
  const auto &node = kernel.nodes[0].get<loops::ContractionSpec>();
  if (unitStride(node.body, node.rhs, Symbol::inner(c.kInner.back())) ||
      unitStride(node.body, node.rhs, Symbol::outer(c.n.back())))
    return;
  std::optional<ConstantOperand> operand = ConstantOperand::of(plan, kernel, users, c);
  if (!operand) return;
  int64_t batches = static_cast<int64_t>(operand->batchAt.size()),
          outer = static_cast<int64_t>(operand->outerAt.size());
  const int64_t column = outer * operand->k;
  bool done = operand->rewrite(batches * operand->n * column,
                               {loops::plainAxis(operand->batchAt, operand->n * column),
                                loops::plainAxis(operand->nAt, column), loops::plainAxis(operand->outerAt, operand->k),
                                loops::plainAxis(operand->kAt, 1)});
  if (!done) return;
  auto [batch, ko] = outerPosition(kernel, c, operand->load().index);
  operand->load().index = ((batch * operand->n + kN) * outer + ko) * operand->k + kK;
}

namespace {

class Emission {
public:
  Emission(KernelContext &k, const Facts &facts, const Contraction &c)
      : k_(k), c_(c), sub_(flatSpace(k.kernel, c, facts)) {
    Node node = k.kernel.nodes[0];
    loops::mapExprs(node, sub_);
    node_ = std::move(node.get<loops::ContractionSpec>());
  }

  void run() {
    Emitter out(k_, Frame{{c_.bm, c_.bn}});
    out.facts = sub_.facts;
    std::vector<Blocking> blockings;
    for (size_t d : c_.batch) blockings.push_back({Symbol::outer(d), k_.kernel.xRanges[d], 1, -1});
    blockings.push_back({kN, c_.nSize, c_.bn, 1});
    blockings.push_back({kM, c_.mSize, c_.bm, 0});
    bindPrograms(out, blockings);
    out.env[kBlockOfN] = out.env[blockOf(blockings, kN)];
    out.env[kLaneOfN] = out.lanes(1);
    // bindPrograms adds the mask of n before or after that of m; tell them apart by what they vary along.
    Val mMask, nMask;
    for (Val m : out.masks) (m.vary == 1 ? mMask : nMask) = m;

    Emitter a(k_, Frame{{c_.bm, c_.bk}}), b(k_, Frame{{c_.bk, c_.bn}});
    a.facts = b.facts = out.facts;
    a.env = b.env = out.env;
    if (mMask) a.masks = {mMask};
    if (nMask && !c_.packed) b.masks = {nMask};
    std::set<loops::ValueIdx> left = reachable(node_.body, node_.lhs), right = reachable(node_.body, node_.rhs);
    hoist(a, left, right);
    hoist(b, right, left);

    auto accType = RankedTensorType::get({c_.bm, c_.bn}, computeTypeOf(k_.b.getContext(), node_.accType));
    Value zero = arith::ConstantOp::create(k_.b, k_.loc, k_.b.getZeroAttr(accType));
    Value acc = loop(a, b, 0, zero);

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

private:
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
    auto body = [&](Emitter &ea, Emitter &eb, Val start, Value in) {
      if (!last) {
        const Symbol r = Symbol::inner(c_.kOuter[d]);
        ea.env[r] = eb.env[r] = start;
        return loop(ea, eb, d + 1, in);
      }
      return dotStep(ea, eb, start, in);
    };
    if (extent.isConst() && extent.constValue() <= step && extent.constValue() > 0) {
      Emitter ea = a, eb = b;
      return body(ea, eb, ea.intConst(0), acc);
    }
    Val n = a.index(extent);
    auto forOp = scf::ForOp::create(k_.b, k_.loc, a.intConst(0).v, n.v, a.intConst(step).v, ValueRange{acc});
    OpBuilder::InsertionGuard guard(k_.b);
    k_.b.setInsertionPointToStart(forOp.getBody());
    Emitter ea = a, eb = b;
    Value out = body(ea, eb, {forOp.getInductionVar()}, forOp.getRegionIterArg(0));
    scf::YieldOp::create(k_.b, k_.loc, out);
    return forOp.getResult(0);
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

  Value dotStep(Emitter &a, Emitter &b, Val start, Value acc) {
    bool whole = sub_.facts.provablyDivisible(c_.kSize, Expr(c_.bk));
    bindSteps(a, start, 1);
    bindSteps(b, start, 0);
    Val kMaskA, kMaskB;
    if (!whole) {
      kMaskA = a.compare("lt", a.env[kK], a.index(c_.kSize));
      a.masks.push_back(kMaskA);
      if (!c_.packed) {
        kMaskB = b.compare("lt", b.env[kK], b.index(c_.kSize));
        b.masks.push_back(kMaskB);
      }
    }
    std::vector<Val> memoA, memoB;
    Val va = operand(a, node_.lhs, memoA, kMaskA), vb = operand(b, node_.rhs, memoB, kMaskB);
    Value sum = tb::dot(k_.b, k_.loc, va.v, vb.v, acc, k_.target.f32Products);
    // Rows beyond the last are not stored: the backend need not compute them.
    sum.getDefiningOp()->setAttr("tt.masked_rows_unused", k_.b.getUnitAttr());
    return sum;
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
  const Contraction &c_;
  Substitution sub_;
  loops::ContractionSpec node_;
  size_t hoisted_ = 0;
};

} // namespace

void emitContraction(KernelContext &k, const Facts &facts, const Contraction &c) { Emission(k, facts, c).run(); }

} // namespace neso
