// Local rewrites that are worth more than a folder's: see passes.h.
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

#include "base/rules.h"
#include "ir/tile/passes/passes.h"

using namespace mlir;

namespace neso {
namespace {

bool isZero(Value v) {
  if (matchPattern(v, m_Zero()) || matchPattern(v, m_AnyZeroFloat())) return true;
  DenseElementsAttr dense;
  if (!matchPattern(v, m_Constant(&dense)) || !dense.isSplat()) return false;
  if (isa<FloatType>(dense.getElementType())) return dense.getSplatValue<APFloat>().isZero();
  return isa<IntegerType>(dense.getElementType()) && dense.getSplatValue<APInt>().isZero();
}

/// add(dot(a, b, 0), c) → dot(a, b, c), if the product has no other user.
template <typename Add> struct AddToDot : OpRewritePattern<Add> {
  using OpRewritePattern<Add>::OpRewritePattern;
  LogicalResult matchAndRewrite(Add add, PatternRewriter &rewriter) const final {
    for (auto [x, other] : {std::pair(add.getLhs(), add.getRhs()), std::pair(add.getRhs(), add.getLhs())}) {
      tt::DotOp dot = x.template getDefiningOp<tt::DotOp>();
      if (!dot || !dot->hasOneUse() || !isZero(dot.getC()) || dot.getMaxNumImpreciseAcc() != 0) continue;
      applied(Rule::AddToDot);
      rewriter.replaceOpWithNewOp<tt::DotOp>(add, other.getType(), dot.getA(), dot.getB(), other,
                                             dot.getInputPrecision(), 0);
      return success();
    }
    return failure();
  }
};

/// The scalar that every element of v is: the source of a splat, or a new constant. Null if it is neither.
Value scalarOf(Value v, PatternRewriter &rewriter) {
  if (tt::SplatOp splat = v.getDefiningOp<tt::SplatOp>()) return splat.getSrc();
  SplatElementsAttr splat;
  if (!matchPattern(v, m_Constant(&splat))) return {};
  return arith::ConstantOp::create(rewriter, v.getLoc(), cast<TypedAttr>(splat.getSplatValue<Attribute>()));
}

bool isSplat(Value v) {
  SplatElementsAttr splat;
  return v.getDefiningOp<tt::SplatOp>() || matchPattern(v, m_Constant(&splat));
}

/// An op on whole tensors that works element by element, without regions, and gives one result.
bool isElementwise(Operation *op) {
  return op->hasTrait<OpTrait::Elementwise>() && op->getNumResults() == 1 && op->getNumRegions() == 0 &&
         op->getNumOperands() > 0 && isMemoryEffectFree(op) && isa<RankedTensorType>(op->getResult(0).getType()) &&
         !isa<tt::ElementwiseInlineAsmOp>(op);
}

Operation *rebuild(Operation *op, ValueRange operands, Type type, PatternRewriter &rewriter) {
  OperationState state(op->getLoc(), op->getName(), operands, type);
  for (NamedAttribute attr : op->getAttrs())
    if (!attr.getName().strref().starts_with("tt.")) state.attributes.push_back(attr); // hints on axes
  return rewriter.create(state);
}

/// f(splat x, splat y) → splat f(x, y).
struct SplatLast : RewritePattern {
  SplatLast(MLIRContext *ctx) : RewritePattern(MatchAnyOpTypeTag(), 1, ctx) {}
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const final {
    if (!isElementwise(op)) return failure();
    bool any = false;
    for (Value v : op->getOperands()) {
      if (!isa<RankedTensorType>(v.getType())) continue; // the condition of a select
      if (!isSplat(v)) return failure();
      any |= bool(v.getDefiningOp<tt::SplatOp>());
    }
    if (!any) return failure();
    applied(Rule::SplatLast);
    SmallVector<Value> scalars;
    for (Value v : op->getOperands()) scalars.push_back(isa<RankedTensorType>(v.getType()) ? scalarOf(v, rewriter) : v);
    Type type = op->getResult(0).getType();
    Operation *scalar = rebuild(op, scalars, getElementTypeOrSelf(type), rewriter);
    rewriter.replaceOpWithNewOp<tt::SplatOp>(op, type, scalar->getResult(0));
    return success();
  }
};

/// f(broadcast x, broadcast y, splat z) → broadcast f(x, y, splat z) for x and y of one shape.
struct BroadcastLast : RewritePattern {
  BroadcastLast(MLIRContext *ctx) : RewritePattern(MatchAnyOpTypeTag(), 1, ctx) {}
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const final {
    if (!isElementwise(op)) return failure();
    RankedTensorType from;
    for (Value v : op->getOperands()) {
      tt::BroadcastOp broadcast = v.getDefiningOp<tt::BroadcastOp>();
      if (!broadcast && !isSplat(v)) return failure();
      if (!broadcast) continue;
      RankedTensorType type = broadcast.getSrc().getType();
      if (from && from.getShape() != type.getShape()) return failure();
      from = type;
    }
    if (!from) return failure();
    applied(Rule::BroadcastLast);
    SmallVector<Value> small;
    for (Value v : op->getOperands()) {
      if (tt::BroadcastOp broadcast = v.getDefiningOp<tt::BroadcastOp>()) {
        small.push_back(broadcast.getSrc());
        continue;
      }
      Type type = RankedTensorType::get(from.getShape(), getElementTypeOrSelf(v.getType()));
      small.push_back(tt::SplatOp::create(rewriter, op->getLoc(), type, scalarOf(v, rewriter)));
    }
    Type type = op->getResult(0).getType();
    Operation *inner = rebuild(op, small, RankedTensorType::get(from.getShape(), getElementTypeOrSelf(type)), rewriter);
    rewriter.replaceOpWithNewOp<tt::BroadcastOp>(op, type, inner->getResult(0));
    return success();
  }
};

} // namespace

void populateCombinePatterns(RewritePatternSet &patterns) {
  patterns.add<AddToDot<arith::AddFOp>, AddToDot<arith::AddIOp>>(patterns.getContext());
}

void populateReorderBroadcastPatterns(RewritePatternSet &patterns) {
  patterns.add<SplatLast, BroadcastLast>(patterns.getContext());
}

} // namespace neso
