// Folders and local rewrites of `tt`: what is obvious from an op and its operands' definitions.
#include "ir/tile/tile.h"

#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;

namespace neso::tt {
namespace {

/// The splat of `value` (an attribute of an element) over `type`.
OpFoldResult splatOf(Attribute value, Type type) {
  RankedTensorType tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !isa_and_nonnull<IntegerAttr, FloatAttr>(value)) return {};
  return SplatElementsAttr::get(tensor, value);
}

/// A constant splat keeps its element under any change of shape.
OpFoldResult reshapedSplat(Attribute src, Type type) {
  if (SplatElementsAttr splat = dyn_cast_or_null<SplatElementsAttr>(src))
    return splatOf(splat.getSplatValue<Attribute>(), type);
  return {};
}

/// The constant that every element of a mask has, if there is one.
std::optional<bool> constantMask(Value mask) {
  if (!mask) return std::nullopt;
  APInt value;
  if (matchPattern(mask, m_ConstantInt(&value))) return !value.isZero();
  DenseElementsAttr dense;
  if (matchPattern(mask, m_Constant(&dense)) && dense.isSplat()) return dense.getSplatValue<bool>();
  if (SplatOp splat = mask.getDefiningOp<SplatOp>()) return constantMask(splat.getSrc());
  return std::nullopt;
}

} // namespace

OpFoldResult MakeRangeOp::fold(FoldAdaptor) {
  if (getEnd() - getStart() != 1) return {};
  return SplatElementsAttr::get(getType(),
                                IntegerAttr::get(IntegerType::get(getContext(), 32), static_cast<int32_t>(getStart())));
}

OpFoldResult BitcastOp::fold(FoldAdaptor) {
  if (getSrc().getType() == getType()) return getSrc();
  BitcastOp inner = getSrc().getDefiningOp<BitcastOp>();
  if (inner && inner.getSrc().getType() == getType()) return inner.getSrc();
  return {};
}

/// Of a number that both types have: how others are rounded, and what overflows, is the target's.
OpFoldResult FpToFpOp::fold(FoldAdaptor adaptor) {
  SplatElementsAttr splat = dyn_cast_or_null<SplatElementsAttr>(adaptor.getSrc());
  FloatAttr from = splat ? splat.getSplatValue<FloatAttr>() : dyn_cast_or_null<FloatAttr>(adaptor.getSrc());
  if (!from || !from.getValue().isFinite()) return {};
  FloatType type = cast<FloatType>(getElementTypeOrSelf(getType()));
  APFloat value = from.getValue();
  bool lost = false;
  if (value.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven, &lost) != APFloat::opOK || lost) return {};
  FloatAttr to = FloatAttr::get(type, value);
  return splat ? splatOf(to, getType()) : OpFoldResult(to);
}

OpFoldResult AddPtrOp::fold(FoldAdaptor adaptor) {
  if (matchPattern(adaptor.getOffset(), m_Zero())) return getPtr();
  return {};
}

OpFoldResult SplatOp::fold(FoldAdaptor adaptor) { return splatOf(adaptor.getSrc(), getType()); }

OpFoldResult UnsplatOp::fold(FoldAdaptor adaptor) {
  if (DenseElementsAttr dense = dyn_cast_or_null<DenseElementsAttr>(adaptor.getSrc()))
    return *dense.value_begin<Attribute>();
  if (SplatOp splat = getSrc().getDefiningOp<SplatOp>()) return splat.getSrc();
  return {};
}

OpFoldResult ExpandDimsOp::fold(FoldAdaptor adaptor) { return reshapedSplat(adaptor.getSrc(), getType()); }

/// expand_dims(splat) -> splat; expand_dims(broadcast(x)) -> broadcast(expand_dims(x)), so that broadcasts come last.
LogicalResult ExpandDimsOp::canonicalize(ExpandDimsOp op, PatternRewriter &rewriter) {
  if (SplatOp splat = op.getSrc().getDefiningOp<SplatOp>()) {
    rewriter.replaceOpWithNewOp<SplatOp>(op, op.getType(), splat.getSrc());
    return success();
  }
  if (BroadcastOp broadcast = op.getSrc().getDefiningOp<BroadcastOp>()) {
    Value inner = ExpandDimsOp::create(rewriter, op.getLoc(), broadcast.getSrc(), op.getAxis());
    rewriter.replaceOpWithNewOp<BroadcastOp>(op, op.getType(), inner);
    return success();
  }
  return failure();
}

OpFoldResult BroadcastOp::fold(FoldAdaptor adaptor) {
  if (getSrc().getType() == getType()) return getSrc();
  return reshapedSplat(adaptor.getSrc(), getType());
}

LogicalResult BroadcastOp::canonicalize(BroadcastOp op, PatternRewriter &rewriter) {
  if (SplatOp splat = op.getSrc().getDefiningOp<SplatOp>()) {
    rewriter.replaceOpWithNewOp<SplatOp>(op, op.getType(), splat.getSrc());
    return success();
  }
  if (BroadcastOp inner = op.getSrc().getDefiningOp<BroadcastOp>()) {
    rewriter.replaceOpWithNewOp<BroadcastOp>(op, op.getType(), inner.getSrc());
    return success();
  }
  return failure();
}

OpFoldResult ReshapeOp::fold(FoldAdaptor adaptor) {
  if (getSrc().getType() == getType() && !getAllowReorder()) return getSrc();
  return reshapedSplat(adaptor.getSrc(), getType());
}

LogicalResult ReshapeOp::canonicalize(ReshapeOp op, PatternRewriter &rewriter) {
  if (SplatOp splat = op.getSrc().getDefiningOp<SplatOp>()) {
    rewriter.replaceOpWithNewOp<SplatOp>(op, op.getType(), splat.getSrc());
    return success();
  }
  ReshapeOp inner = op.getSrc().getDefiningOp<ReshapeOp>();
  if (!inner || op.getEfficientLayout() || inner.getEfficientLayout()) return failure();
  bool reorder = op.getAllowReorder() || inner.getAllowReorder();
  rewriter.replaceOpWithNewOp<ReshapeOp>(op, op.getType(), inner.getSrc(),
                                         reorder ? rewriter.getUnitAttr() : UnitAttr(), UnitAttr());
  return success();
}

OpFoldResult TransOp::fold(FoldAdaptor adaptor) {
  if (llvm::equal(getOrder(), llvm::seq<int32_t>(0, getOrder().size()))) return getSrc();
  if (TransOp inner = getSrc().getDefiningOp<TransOp>()) {
    SmallVector<int32_t> order;
    for (int32_t axis : getOrder()) order.push_back(inner.getOrder()[axis]);
    setOrder(order);
    getSrcMutable().assign(inner.getSrc());
    return getResult();
  }
  return reshapedSplat(adaptor.getSrc(), getType());
}

LogicalResult SplitOp::fold(FoldAdaptor adaptor, SmallVectorImpl<OpFoldResult> &results) {
  if (JoinOp join = getSrc().getDefiningOp<JoinOp>()) {
    results.append({join.getLhs(), join.getRhs()});
    return success();
  }
  if (OpFoldResult half = reshapedSplat(adaptor.getSrc(), getOutLHS().getType())) {
    results.append({half, half});
    return success();
  }
  return failure();
}

OpFoldResult AdvanceOp::fold(FoldAdaptor adaptor) {
  for (Attribute offset : adaptor.getOffsets())
    if (!offset || !cast<IntegerAttr>(offset).getValue().isZero()) return {};
  return getPtr();
}

/// A mask that is all true goes; one that is all false leaves `other`.
LogicalResult LoadOp::canonicalize(LoadOp op, PatternRewriter &rewriter) {
  std::optional<bool> mask = constantMask(op.getMask());
  if (!mask || op.getIsVolatile()) return failure();
  if (*mask) {
    LoadOp plain = LoadOp::create(rewriter, op.getLoc(), op.getPtr(), {}, {}, op.getCache(), op.getEvict(), false);
    plain->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    rewriter.replaceOp(op, plain);
    return success();
  }
  if (!op.getOther()) return failure();
  rewriter.replaceOp(op, op.getOther());
  return success();
}

LogicalResult StoreOp::canonicalize(StoreOp op, PatternRewriter &rewriter) {
  std::optional<bool> mask = constantMask(op.getMask());
  if (!mask) return failure();
  if (*mask)
    rewriter.modifyOpInPlace(op, [&] { op.getMaskMutable().clear(); });
  else
    rewriter.eraseOp(op);
  return success();
}

LogicalResult AssertOp::canonicalize(AssertOp op, PatternRewriter &rewriter) {
  if (constantMask(op.getCondition()) != true) return failure();
  rewriter.eraseOp(op);
  return success();
}

} // namespace neso::tt
