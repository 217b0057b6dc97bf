#include "backend/nvidia/passes/masks.h"

#include "backend/nvidia/passes/assign.h"
#include "ir/tile/passes/axis_info.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;

namespace neso::nvidia {

namespace {

/// The least and the greatest element of a tensor, where scalars tell.
struct Range {
  Value least, greatest;
};

class Guard {
public:
  /// What it asks is computed in front of `at`.
  explicit Guard(Operation *at) : at_(at), b_(at), loc_(at->getLoc()) {}

  /// i1: the mask holds everywhere; null: not known before.
  Value wholeMask(Value mask) {
    sums_.clear();
    Value holds = whole(mask);
    for (const Range &range : sums_)
      if (holds) holds = both(holds, compared(arith::CmpIPredicate::sle, range.least, range.greatest));
    return holds;
  }

private:
  Value both(Value a, Value b) { return a && b ? b_.createOrFold<arith::AndIOp>(loc_, a, b) : Value(); }
  /// Null where it is known now that it does not hold, or could be: of a branch that is never taken no axis facts are known.
  Value compared(arith::CmpIPredicate predicate, Value a, Value b) {
    Value holds = b_.createOrFold<arith::CmpIOp>(loc_, predicate, a, b);
    return matchPattern(holds, m_One()) || dependsOnData(holds) ? holds : Value();
  }
  static bool dependsOnData(Value v) {
    // Values are shared: each is looked at once, not once for every way to it.
    SmallVector<Value> ways{v};
    llvm::SmallPtrSet<Operation *, 16> seen;
    while (!ways.empty()) {
      const Value at = ways.pop_back_val();
      Operation *op = at.getDefiningOp();
      if (!op || (op->getNumOperands() == 0 && !matchPattern(at, m_Constant()))) return true;
      if (seen.insert(op).second) ways.append(op->operand_begin(), op->operand_end());
    }
    return false;
  }
  Value whole(Value mask) {
    Operation *op = mask.getDefiningOp();
    if (!op) return {};
    if (isa<arith::AndIOp>(op)) {
      Value a = whole(op->getOperand(0)), b = a ? whole(op->getOperand(1)) : Value();
      return b ? both(a, b) : Value();
    }
    if (isa<tt::BroadcastOp, tt::ExpandDimsOp>(op)) return whole(op->getOperand(0));
    arith::CmpIOp compare = dyn_cast<arith::CmpIOp>(op);
    if (!compare) return {};
    std::optional<Range> a = rangeOf(compare.getLhs()), b = a ? rangeOf(compare.getRhs()) : std::nullopt;
    if (!b) return {};
    using P = arith::CmpIPredicate;
    switch (compare.getPredicate()) {
    case P::slt:
    case P::sle: return compared(compare.getPredicate(), a->greatest, b->least);
    case P::sgt:
    case P::sge: return compared(compare.getPredicate(), a->least, b->greatest);
    default: return {};
    }
  }
  std::optional<Range> rangeOf(Value v) {
    Operation *op = v.getDefiningOp();
    if (!op || !cast<RankedTensorType>(v.getType()).getElementType().isInteger(32)) return std::nullopt;
    auto number = [&](int64_t x) { return arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(int32_t(x))).getResult(); };
    DenseElementsAttr elements;
    if (matchPattern(v, m_Constant(&elements))) {
      if (!elements.isSplat()) return std::nullopt;
      Value x = number(elements.getSplatValue<APInt>().getSExtValue());
      return Range{x, x};
    }
    if (tt::SplatOp splat = dyn_cast<tt::SplatOp>(op)) {
      Operation *def = splat.getSrc().getDefiningOp();
      if (def && def->getBlock() == at_->getBlock() && !def->isBeforeInBlock(at_)) return std::nullopt;
      return Range{splat.getSrc(), splat.getSrc()};
    }
    if (isa<tt::BroadcastOp, tt::ExpandDimsOp>(op)) return rangeOf(op->getOperand(0));
    if (tt::MakeRangeOp range = dyn_cast<tt::MakeRangeOp>(op))
      return Range{number(int64_t(range.getStart())), number(int64_t(range.getEnd()) - 1)};
    if (!isa<arith::AddIOp>(op)) return std::nullopt;
    std::optional<Range> a = rangeOf(op->getOperand(0)), b = a ? rangeOf(op->getOperand(1)) : std::nullopt;
    if (!b) return std::nullopt;
    auto sum = [&](Value x, Value y) { return b_.createOrFold<arith::AddIOp>(loc_, x, y); };
    if (a->least == a->greatest && b->least == b->greatest) {
      Value x = sum(a->least, b->least);
      return Range{x, x};
    }
    return sums_.emplace_back(Range{sum(a->least, b->least), sum(a->greatest, b->greatest)});
  }

  Operation *at_;
  OpBuilder b_;
  Location loc_;
  /// Sums whose elements are no longer between these where some of them went past 2^31 - 1 and others did not.
  SmallVector<Range> sums_;
};

/// Between which numbers a scalar of 64 bits lies; its computation wraps nowhere. Nothing: not known.
struct Bounds {
  int64_t least, greatest;
};

std::optional<Bounds> boundsOf(Value v, int depth = 12) {
  // A sum of several stays far from wrapping.
  constexpr int64_t kFar = int64_t(1) << 56;
  APInt number;
  if (matchPattern(v, m_ConstantInt(&number))) {
    const int64_t x = number.getSExtValue();
    return -kFar <= x && x <= kFar ? std::optional(Bounds{x, x}) : std::nullopt;
  }
  Operation *op = v.getDefiningOp();
  if (!op || depth == 0) return std::nullopt;
  if (isa<arith::ExtSIOp, arith::ExtUIOp>(op)) {
    const unsigned bits = op->getOperand(0).getType().getIntOrFloatBitWidth();
    if (bits > 32) return std::nullopt;
    const int64_t all = int64_t(1) << bits;
    if (op->getOperand(0).getDefiningOp<tt::GetProgramIdOp>()) return Bounds{0, all / 2 - 1};
    return isa<arith::ExtUIOp>(op) ? Bounds{0, all - 1} : Bounds{-all / 2, all / 2 - 1};
  }
  if (op->getNumOperands() != 2) return std::nullopt;
  const std::optional<Bounds> a = boundsOf(op->getOperand(0), depth - 1), b = a ? boundsOf(op->getOperand(1), depth - 1) : std::nullopt;
  if (!b) return std::nullopt;
  const auto near = [](__int128 least, __int128 greatest) {
    return -kFar <= least && greatest <= kFar ? std::optional(Bounds{int64_t(least), int64_t(greatest)}) : std::nullopt;
  };
  if (isa<arith::AddIOp>(op)) return near(a->least + b->least, a->greatest + b->greatest);
  if (isa<arith::SubIOp>(op)) return near(a->least - b->greatest, a->greatest - b->least);
  if (isa<arith::MulIOp>(op)) {
    using Wide = __int128;
    const Wide corners[] = {Wide(a->least) * b->least, Wide(a->least) * b->greatest, Wide(a->greatest) * b->least, Wide(a->greatest) * b->greatest};
    return near(*llvm::min_element(corners), *llvm::max_element(corners));
  }
  if (isa<arith::MinSIOp>(op)) return Bounds{std::min(a->least, b->least), std::min(a->greatest, b->greatest)};
  if (isa<arith::MaxSIOp>(op)) return Bounds{std::max(a->least, b->least), std::max(a->greatest, b->greatest)};
  // Towards zero, the dividend's sign in the remainder.
  if (isa<arith::DivSIOp>(op) && b->least > 0) return Bounds{std::min<int64_t>(a->least, 0), std::max<int64_t>(a->greatest, 0)};
  if (isa<arith::RemSIOp>(op) && b->least > 0) {
    const int64_t most = b->greatest - 1;
    return Bounds{std::max(-most, std::min<int64_t>(a->least, 0)), std::min(most, std::max<int64_t>(a->greatest, 0))};
  }
  return std::nullopt;
}

/// A tensor of 64-bit indices: a scalar and a range of 32 bits, either may be missing. They are added where nothing wraps.
struct Indices {
  SmallVector<Value, 4> scalars;
  Value range;
};

class Narrower {
public:
  explicit Narrower(arith::CmpIOp compare) : compare_(compare), b_(compare), loc_(compare.getLoc()) {}

  bool run(int warps) {
    using P = arith::CmpIPredicate;
    RankedTensorType type = dyn_cast<RankedTensorType>(compare_.getLhs().getType());
    if (!type || !type.getElementType().isInteger(64)) return false;
    // A warp's lanes hold 8 rows at least.
    if (llvm::none_of(type.getShape(), [&](int64_t size) { return size >= 16 * warps; })) return false;
    const P predicate = compare_.getPredicate();
    const bool turned = predicate == P::sgt || predicate == P::sle;
    if (!turned && predicate != P::slt && predicate != P::sge) return false;
    std::optional<Indices> left = indicesOf(turned ? compare_.getRhs() : compare_.getLhs());
    std::optional<Indices> right = left ? indicesOf(turned ? compare_.getLhs() : compare_.getRhs()) : std::nullopt;
    if (!right || !left->range || right->range) return false;
    int64_t least = 0, greatest = 0; // of the left scalars without the right ones
    for (const Indices *side : {&*left, &*right})
      for (Value scalar : side->scalars) {
        const std::optional<Bounds> bounds = boundsOf(scalar);
        if (!bounds) return false;
        least += side == &*left ? bounds->least : -bounds->greatest;
        greatest += side == &*left ? bounds->greatest : -bounds->least;
      }
    // What always holds (columns of a tile of a matrix whose width is a constant) LLVM proves: behind a clamp it would not.
    tt::MakeRangeOp range = left->range.getDefiningOp<tt::MakeRangeOp>();
    if (greatest + int32_t(range.getEnd()) - 1 < 0 || least + int32_t(range.getStart()) >= 0) return false;
    Value border = number(0);
    for (Value scalar : right->scalars) border = arith::AddIOp::create(b_, loc_, border, scalar);
    for (Value scalar : left->scalars) border = arith::SubIOp::create(b_, loc_, border, scalar);
    border = arith::MinSIOp::create(b_, loc_, arith::MaxSIOp::create(b_, loc_, border, number(0)), number(kMost));
    border = arith::TruncIOp::create(b_, loc_, b_.getI32Type(), border);
    Value all = tt::SplatOp::create(b_, loc_, type.clone(b_.getI32Type()), border);
    const P narrow = predicate == P::slt || predicate == P::sgt ? P::slt : P::sge;
    Value result = arith::CmpIOp::create(b_, loc_, narrow, shaped(left->range), all);
    compare_.getResult().replaceAllUsesWith(result);
    compare_.erase();
    return true;
  }

private:
  /// Above every element of a range that is taken; none of its elements is negative.
  static constexpr int64_t kMost = int64_t(1) << 30;
  Value number(int64_t x) { return arith::ConstantOp::create(b_, loc_, b_.getI64IntegerAttr(x)); }

  std::optional<Indices> indicesOf(Value v, int depth = 8) {
    Operation *op = v.getDefiningOp();
    if (!op || depth == 0) return std::nullopt;
    DenseElementsAttr elements;
    if (matchPattern(v, m_Constant(&elements))) {
      if (!elements.isSplat()) return std::nullopt;
      return Indices{{number(elements.getSplatValue<APInt>().getSExtValue())}, {}};
    }
    if (tt::SplatOp splat = dyn_cast<tt::SplatOp>(op)) return Indices{{splat.getSrc()}, {}};
    if (isa<arith::ExtSIOp, arith::ExtUIOp>(op)) {
      tt::MakeRangeOp range = op->getOperand(0).getDefiningOp<tt::MakeRangeOp>();
      if (!range || int32_t(range.getStart()) < 0 || int32_t(range.getEnd()) > kMost) return std::nullopt;
      return Indices{{}, range};
    }
    if (isa<tt::BroadcastOp, tt::ExpandDimsOp>(op)) {
      std::optional<Indices> inner = indicesOf(op->getOperand(0), depth - 1);
      if (inner && inner->range) shapes_.push_back(op);
      return inner;
    }
    if (!isa<arith::AddIOp>(op)) return std::nullopt;
    std::optional<Indices> a = indicesOf(op->getOperand(0), depth - 1), c = a ? indicesOf(op->getOperand(1), depth - 1) : std::nullopt;
    if (!c || (a->range && c->range)) return std::nullopt;
    a->scalars.append(c->scalars);
    if (c->range) a->range = c->range;
    return a;
  }
  Value shaped(Value range) {
    for (Operation *op : shapes_) {
      Operation *again = b_.clone(*op);
      again->setOperand(0, range);
      again->getResult(0).setType(cast<RankedTensorType>(op->getResult(0).getType()).clone(b_.getI32Type()));
      range = again->getResult(0);
    }
    return range;
  }

  arith::CmpIOp compare_;
  OpBuilder b_;
  Location loc_;
  SmallVector<Operation *, 4> shapes_; // of the range, innermost first
};

} // namespace

int narrowMasks(tt::FuncOp function, int warps) {
  SmallVector<arith::CmpIOp> compares;
  function.walk([&](arith::CmpIOp compare) { compares.push_back(compare); });
  return int(llvm::count_if(compares, [&](arith::CmpIOp compare) { return Narrower(compare).run(warps); }));
}

namespace {
/// Of a load or store of a tensor, what it is masked by; else null.
Value maskOf(Operation *op) {
  if (!isa<tt::LoadOp, tt::StoreOp>(op)) return {};
  const AccessOperands access = *accessOperands(op);
  return isa<RankedTensorType>(access.ptr.getType()) ? access.mask : Value();
}

/// Whether the access would take more elements as one without its mask.
bool maskNarrows(Operation *op, const AxisInfoAnalysis &axis) {
  const AccessOperands access = *accessOperands(op);
  const AxisInfo info = axis.get(access.ptr);
  const int fast = int(std::max_element(info.contiguity.begin(), info.contiguity.end()) - info.contiguity.begin());
  return axis.vectorWidth(access.ptr, access.mask, fast) < axis.vectorWidth(access.ptr, {}, fast);
}

void dropMask(Operation *op) {
  if (tt::LoadOp load = dyn_cast<tt::LoadOp>(op)) load.getMaskMutable().clear(), load.getOtherMutable().clear();
  if (tt::StoreOp store = dyn_cast<tt::StoreOp>(op)) store.getMaskMutable().clear();
}
} // namespace

bool splitWholeBlocks(tt::FuncOp function) {
  // Two bodies of more are not worth the code.
  constexpr int kMostOperations = 200;
  if (!llvm::hasSingleElement(function.getBody())) return false;
  Block &body = function.getBody().front();
  Operation *first = nullptr;
  {
    AxisInfoAnalysis axis(function);
    for (Operation &op : body)
      if (maskOf(&op) && maskNarrows(&op, axis)) {
        first = &op;
        break;
      }
  }
  if (!first || body.getTerminator()->getNumOperands()) return false;
  SmallVector<Operation *> rest;
  for (Operation *op = first; op != body.getTerminator(); op = op->getNextNode()) {
    if (op->getNumRegions() || isa<tt::DotOp, tt::DotScaledOp>(op) || rest.size() == kMostOperations) return false;
    rest.push_back(op);
  }
  // Which of the masks hold for the whole block, as scalars say beforehand.
  llvm::MapVector<Value, Value> known;
  for (Operation *op : rest)
    if (Value mask = maskOf(op); mask && !known.count(mask))
      if (Value whole = Guard(first).wholeMask(mask)) known[mask] = whole;
  if (!known.count(maskOf(first))) return false;
  OpBuilder b(first);
  Value all;
  for (auto &[mask, whole] : known) all = all ? b.createOrFold<arith::AndIOp>(first->getLoc(), all, whole) : whole;
  if (matchPattern(all, m_Constant())) return false;
  scf::IfOp branch = scf::IfOp::create(b, first->getLoc(), all, /*withElseRegion=*/true);
  branch->setAttr(placed::kPartialBlocksAttr, b.getUnitAttr());
  OpBuilder then = branch.getThenBodyBuilder();
  IRMapping map;
  for (Operation *op : rest) {
    Operation *copy = then.clone(*op, map);
    if (Value mask = maskOf(op); mask && known.count(mask)) dropMask(copy);
  }
  Operation *end = branch.elseBlock()->getTerminator();
  for (Operation *op : rest) op->moveBefore(end);
  return true;
}

int guardMasks(scf::ForOp loop) {
  SmallVector<arith::SelectOp> found;
  for (arith::SelectOp select : loop.getBody()->getOps<arith::SelectOp>()) {
    RankedTensorType type = dyn_cast<RankedTensorType>(select.getType());
    if (!type || type.getRank() != 2 || !isa<FloatType>(type.getElementType()) || !isa<RankedTensorType>(select.getCondition().getType())) continue;
    // What is put in place of the others is no tile of its own.
    if (matchPattern(select.getFalseValue(), m_Constant())) found.push_back(select);
  }
  int guarded = 0;
  for (arith::SelectOp select : found) {
    Value whole = Guard(select).wholeMask(select.getCondition());
    if (!whole) continue;
    OpBuilder b(select);
    scf::IfOp branch = scf::IfOp::create(b, select.getLoc(), select->getResultTypes(), whole, /*withElse=*/true);
    OpBuilder then = OpBuilder::atBlockEnd(&branch.getThenRegion().front()), otherwise = OpBuilder::atBlockEnd(&branch.getElseRegion().front());
    scf::YieldOp::create(then, select.getLoc(), select.getTrueValue());
    select.getResult().replaceAllUsesWith(branch.getResult(0));
    scf::YieldOp yield = scf::YieldOp::create(otherwise, select.getLoc(), select.getResult());
    select->moveBefore(yield);
    ++guarded;
  }
  return guarded;
}

} // namespace neso::nvidia
