#include "backend/nvidia/passes/masks.h"

#include "mlir/IR/Matchers.h"
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
  Guard(arith::SelectOp select) : select_(select), b_(select), loc_(select.getLoc()) {}

  /// i1: the mask holds everywhere; null: not known before.
  Value wholeMask() {
    Value holds = whole(select_.getCondition());
    for (const Range &range : sums_)
      if (holds) holds = both(holds, arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sle, range.least, range.greatest));
    return holds;
  }

private:
  Value both(Value a, Value b) { return arith::AndIOp::create(b_, loc_, a, b); }
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
    case P::sle: return arith::CmpIOp::create(b_, loc_, compare.getPredicate(), a->greatest, b->least);
    case P::sgt:
    case P::sge: return arith::CmpIOp::create(b_, loc_, compare.getPredicate(), a->least, b->greatest);
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
    if (tt::SplatOp splat = dyn_cast<tt::SplatOp>(op)) return Range{splat.getSrc(), splat.getSrc()};
    if (isa<tt::BroadcastOp, tt::ExpandDimsOp>(op)) return rangeOf(op->getOperand(0));
    if (tt::MakeRangeOp range = dyn_cast<tt::MakeRangeOp>(op))
      return Range{number(int64_t(range.getStart())), number(int64_t(range.getEnd()) - 1)};
    if (!isa<arith::AddIOp>(op)) return std::nullopt;
    std::optional<Range> a = rangeOf(op->getOperand(0)), b = a ? rangeOf(op->getOperand(1)) : std::nullopt;
    if (!b) return std::nullopt;
    auto sum = [&](Value x, Value y) { return arith::AddIOp::create(b_, loc_, x, y).getResult(); };
    if (a->least == a->greatest && b->least == b->greatest) {
      Value x = sum(a->least, b->least);
      return Range{x, x};
    }
    return sums_.emplace_back(Range{sum(a->least, b->least), sum(a->greatest, b->greatest)});
  }

  arith::SelectOp select_;
  OpBuilder b_;
  Location loc_;
  /// Sums whose elements are no longer between these where some of them went past 2^31 - 1 and others did not.
  SmallVector<Range> sums_;
};

} // namespace

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
    Value whole = Guard(select).wholeMask();
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
