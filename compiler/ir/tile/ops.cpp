// Verifiers and result types of ops on values. Memory ops are in memory.cpp, folders in fold.cpp.
#include "ir/layout/gpu.h"
#include "ir/tile/attributes.h"
#include "ir/tile/placed.h"

#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#define GET_OP_CLASSES
#include "ir/tile/TileOps.cpp.inc"

using namespace mlir;

namespace neso::tt {
namespace {

RankedTensorType tensorOf(Value v) { return cast<RankedTensorType>(v.getType()); }
Type elementOf(Type t) { return getElementTypeOrSelf(t); }

/// Width of an element in bits; a pointer has 64.
int64_t bitsOf(Type element) { return isa<PointerType>(element) ? 64 : element.getIntOrFloatBitWidth(); }

/// A tensor of `shape` with the elements of `src`, in the layout that follows from src's where that has one.
RankedTensorType derived(ArrayRef<int64_t> shape, RankedTensorType src,
                         llvm::function_ref<LinearLayout(const LinearLayout &)> follow) {
  RankedTensorType type = RankedTensorType::get(shape, src.getElementType());
  const LinearLayout *layout = placed::layoutOf(src);
  return layout ? placed::placedType(type, follow(*layout)) : type;
}

/// Removes axis `axis` of the operands' shape; without axes left the result is the element.
SmallVector<Type> reducedTypes(ValueRange srcs, int64_t axis) {
  SmallVector<Type> types;
  for (Value src : srcs) {
    RankedTensorType type = tensorOf(src);
    SmallVector<int64_t> shape(type.getShape());
    shape.erase(shape.begin() + axis);
    if (shape.empty())
      types.push_back(type.getElementType());
    else
      types.push_back(
          derived(shape, type, [&](const LinearLayout &l) { return sliceLayout(l, static_cast<int>(axis)); }));
  }
  return types;
}

/// Rules common to reduce and scan: operands of one shape, axis in range, a block with two scalars an operand.
LogicalResult verifyCombine(Operation *op, ValueRange srcs, int64_t axis, Region &region) {
  if (srcs.empty()) return op->emitOpError("needs an operand");
  RankedTensorType first = tensorOf(srcs[0]);
  if (axis < 0 || axis >= first.getRank()) return op->emitOpError() << "axis " << axis << " is not one of " << first;
  for (Value src : srcs)
    if (tensorOf(src).getShape() != first.getShape()) return op->emitOpError("operands differ in shape");
  Block &block = region.front();
  size_t n = srcs.size();
  if (block.getNumArguments() != 2 * n)
    return op->emitOpError() << "region takes " << block.getNumArguments() << " arguments where it needs " << 2 * n;
  for (size_t i = 0; i < 2 * n; ++i)
    if (block.getArgument(i).getType() != tensorOf(srcs[i % n]).getElementType())
      return op->emitOpError() << "region argument " << i << " has another type than the elements it combines";
  if (!block.mightHaveTerminator()) return op->emitOpError("region needs a terminator");
  Operation *end = block.getTerminator();
  if (end->getNumOperands() != n)
    return op->emitOpError() << "region gives " << end->getNumOperands() << " values where it needs " << n;
  for (size_t i = 0; i < n; ++i)
    if (end->getOperand(i).getType() != tensorOf(srcs[i]).getElementType())
      return op->emitOpError() << "region value " << i << " has another type than operand " << i;
  return success();
}

} // namespace

// ---- sources and casts -------------------------------------------------------------------------------------------------

LogicalResult MakeRangeOp::verify() {
  int64_t start = static_cast<int32_t>(getStart()), end = static_cast<int32_t>(getEnd());
  RankedTensorType type = getType();
  if (end <= start) return emitOpError() << "is empty: end " << end << " must be above start " << start;
  if (type.getRank() != 1 || type.getDimSize(0) != end - start)
    return emitOpError() << "has " << end - start << " elements, its type is " << type;
  return success();
}

LogicalResult BitcastOp::verify() {
  Type from = elementOf(getSrc().getType()), to = elementOf(getType());
  if (isa<PointerType>(from) != isa<PointerType>(to)) return emitOpError("cannot turn a pointer into a number or back");
  if (isa<PointerType>(from)) {
    if (cast<PointerType>(from).getAddressSpace() != cast<PointerType>(to).getAddressSpace())
      return emitOpError("cannot change the address space of a pointer");
    return success();
  }
  if (!from.isIntOrFloat() || !to.isIntOrFloat()) return emitOpError("needs numbers or pointers");
  if (bitsOf(from) != bitsOf(to)) return emitOpError() << "between types of different width: " << from << " and " << to;
  return success();
}

LogicalResult FpToFpOp::verify() {
  int64_t from = bitsOf(elementOf(getSrc().getType())), to = bitsOf(elementOf(getType()));
  if (from > to && !getRounding()) return emitOpError("to a narrower type needs a rounding mode");
  return success();
}

// ---- element by element ------------------------------------------------------------------------------------------------

LogicalResult ElementwiseInlineAsmOp::verify() {
  if (getNumOperands() == 0) return success();
  int64_t pack = getPackedElement();
  if (pack < 1) return emitOpError("needs packed_element of at least 1");
  if (RankedTensorType type = dyn_cast<RankedTensorType>(getOperand(0).getType()))
    if (type.getNumElements() % pack != 0)
      return emitOpError() << "packs " << pack << " elements, which does not divide the " << type.getNumElements()
                           << " of its operands";
  return success();
}

bool ElementwiseInlineAsmOp::onlyOrders() {
  if (getNumOperands() != 0) return false;
  StringRef instruction = getAsmString().split("//").first.trim();
  instruction.consume_back(";");
  return llvm::is_contained({"griddepcontrol.wait", "griddepcontrol.launch_dependents", "bar.sync 0", "barrier.sync 0", "barrier.sync.aligned 0"}, instruction);
}

static void instructionEffects(bool pure,
                               SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (pure) return;
  effects.emplace_back(MemoryEffects::Write::get(), GlobalMemory::get());
  effects.emplace_back(MemoryEffects::Read::get(), GlobalMemory::get());
}
void ElementwiseInlineAsmOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  instructionEffects(getPure(), effects);
}
void ExternElementwiseOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  instructionEffects(getPure(), effects);
}

LogicalResult MapElementwiseOp::verify() {
  if (getNumOperands() == 0) return emitOpError("needs an operand");
  if (getScalarOp().empty()) return emitOpError("needs a body");
  size_t pack = getPack(), n = getNumOperands();
  if (pack < 1) return emitOpError("needs a pack of at least 1");
  Block &entry = getScalarOp().front();
  if (entry.getNumArguments() != n * pack)
    return emitOpError() << "body takes " << entry.getNumArguments() << " arguments where it needs " << n * pack;
  for (size_t i = 0; i < n * pack; ++i)
    if (entry.getArgument(i).getType() != tensorOf(getOperand(i / pack)).getElementType())
      return emitOpError() << "argument " << i << " of the body has another type than the elements it takes";
  for (Block &block : getScalarOp()) {
    if (!block.mightHaveTerminator()) return emitOpError("has a block without an end");
    MapElementwiseReturnOp ret = dyn_cast<MapElementwiseReturnOp>(block.getTerminator());
    if (!ret) continue;
    if (ret.getNumOperands() != getNumResults() * pack)
      return ret.emitOpError() << "gives " << ret.getNumOperands() << " values where " << getNumResults() * pack
                               << " are needed";
    for (size_t i = 0; i < ret.getNumOperands(); ++i)
      if (ret.getOperand(i).getType() != tensorOf((*this)->getResult(i / pack)).getElementType())
        return ret.emitOpError() << "gives another type than result " << i / pack;
  }
  return success();
}

// ---- shapes ------------------------------------------------------------------------------------------------------------

LogicalResult SplatOp::verify() {
  if (getSrc().getType() != cast<RankedTensorType>(getType()).getElementType())
    return emitOpError() << "gives elements of another type than " << getSrc().getType();
  return success();
}

LogicalResult UnsplatOp::verify() {
  if (tensorOf(getSrc()).getNumElements() != 1) return emitOpError("needs a tensor of one element");
  return success();
}
LogicalResult UnsplatOp::inferReturnTypes(MLIRContext *, std::optional<Location>, ValueRange operands, DictionaryAttr,
                                          OpaqueProperties, RegionRange, SmallVectorImpl<Type> &types) {
  types.push_back(elementOf(operands[0].getType()));
  return success();
}

LogicalResult ExpandDimsOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                             DictionaryAttr attrs, OpaqueProperties props, RegionRange regions,
                                             SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attrs, props, regions);
  RankedTensorType src = tensorOf(operands[0]);
  int64_t axis = static_cast<int32_t>(op.getAxis());
  if (axis < 0 || axis > src.getRank())
    return emitOptionalError(loc, "axis ", axis, " is outside [0, ", src.getRank(), "]");
  SmallVector<int64_t> shape(src.getShape());
  shape.insert(shape.begin() + axis, 1);
  types.push_back(derived(shape, src, [&](const LinearLayout &l) { return expandDims(l, static_cast<int>(axis)); }));
  return success();
}

LogicalResult BroadcastOp::verify() {
  RankedTensorType from = tensorOf(getSrc()), to = cast<RankedTensorType>(getType());
  if (from.getRank() != to.getRank() || from.getElementType() != to.getElementType())
    return emitOpError() << "keeps rank and element type; " << from << " and " << to << " differ in them";
  for (auto [a, b] : llvm::zip(from.getShape(), to.getShape()))
    if (a != b && a != 1) return emitOpError() << "repeats only axes of length 1, not one of " << a << " to " << b;
  const LinearLayout *narrow = placed::layoutOf(from), *wide = placed::layoutOf(to);
  if (!narrow != !wide ||
      (wide && narrowTensor(*wide, Sizes(from.getShape().begin(), from.getShape().end())) != *narrow))
    return emitOpError("moves elements: the operand's layout is not that of the result without its copies");
  return success();
}

LogicalResult ReshapeOp::verify() {
  RankedTensorType from = tensorOf(getSrc()), to = cast<RankedTensorType>(getType());
  if (from.getNumElements() != to.getNumElements() || from.getElementType() != to.getElementType())
    return emitOpError() << "keeps the number and type of elements; " << from << " and " << to << " differ in them";
  const LinearLayout *before = placed::layoutOf(from), *after = placed::layoutOf(to);
  if (!before != !after ||
      (after && reshapeTensor(*before, Sizes(to.getShape().begin(), to.getShape().end())) != *after))
    return emitOpError("moves elements: the result's layout is not the operand's under other dims");
  return success();
}
void ReshapeOp::build(OpBuilder &builder, OperationState &state, ArrayRef<int64_t> shape, Value src,
                      bool allowReorder) {
  build(builder, state, RankedTensorType::get(shape, tensorOf(src).getElementType()), src,
        allowReorder ? builder.getUnitAttr() : UnitAttr(), UnitAttr());
}

LogicalResult TransOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                        DictionaryAttr attrs, OpaqueProperties props, RegionRange regions,
                                        SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attrs, props, regions);
  RankedTensorType src = tensorOf(operands[0]);
  SmallVector<int64_t> shape;
  SmallVector<bool> seen(src.getRank());
  for (int32_t axis : op.getOrder()) {
    if (axis < 0 || axis >= src.getRank() || seen[axis])
      return emitOptionalError(loc, "order is no permutation of the axes");
    seen[axis] = true;
    shape.push_back(src.getDimSize(axis));
  }
  if (static_cast<int64_t>(shape.size()) != src.getRank())
    return emitOptionalError(loc, "order is no permutation of the axes");
  const std::vector<int> order(op.getOrder().begin(), op.getOrder().end());
  types.push_back(derived(shape, src, [&](const LinearLayout &l) { return transposeTensor(l, order); }));
  return success();
}

LogicalResult JoinOp::inferReturnTypes(MLIRContext *, std::optional<Location>, ValueRange operands, DictionaryAttr,
                                       OpaqueProperties, RegionRange, SmallVectorImpl<Type> &types) {
  RankedTensorType src = tensorOf(operands[0]);
  SmallVector<int64_t> shape(src.getShape());
  shape.push_back(2);
  types.push_back(derived(shape, src, [](const LinearLayout &l) { return joinTensor(l); }));
  return success();
}

LogicalResult SplitOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands, DictionaryAttr,
                                        OpaqueProperties, RegionRange, SmallVectorImpl<Type> &types) {
  RankedTensorType src = tensorOf(operands[0]);
  if (src.getRank() == 0 || src.getShape().back() != 2)
    return emitOptionalError(loc, "the last axis must have length 2");
  const int last = static_cast<int>(src.getRank()) - 1;
  Type half = derived(src.getShape().drop_back(), src, [&](const LinearLayout &l) { return sliceLayout(l, last); });
  types.append({half, half});
  return success();
}

LogicalResult CatOp::verify() {
  RankedTensorType a = tensorOf(getLhs()), b = tensorOf(getRhs()), r = cast<RankedTensorType>(getType());
  if (a.getElementType() != b.getElementType() || a.getElementType() != r.getElementType() ||
      a.getNumElements() + b.getNumElements() != r.getNumElements() || r.getRank() != 1 || a.getRank() != 1 ||
      b.getRank() != 1)
    return emitOpError() << "of " << a << " and " << b << " does not give " << r;
  const LinearLayout *part = placed::layoutOf(a), *whole = placed::layoutOf(r);
  if (!part != !whole || (whole && catLayout(*part) != *whole))
    return emitOpError("moves elements: the result's layout is not that of the parts in further registers");
  return success();
}

LogicalResult GatherOp::verify() {
  RankedTensorType src = tensorOf(getSrc()), indices = tensorOf(getIndices());
  int64_t axis = static_cast<int32_t>(getAxis());
  if (axis < 0 || axis >= src.getRank()) return emitOpError() << "axis " << axis << " is not one of " << src;
  if (indices.getRank() != src.getRank()) return emitOpError("indices and source differ in rank");
  for (int64_t i = 0; i < src.getRank(); ++i)
    if (i != axis && src.getDimSize(i) != indices.getDimSize(i))
      return emitOpError() << "indices and source differ in length of axis " << i;
  return success();
}
LogicalResult GatherOp::inferReturnTypes(MLIRContext *, std::optional<Location>, ValueRange operands, DictionaryAttr,
                                         OpaqueProperties, RegionRange, SmallVectorImpl<Type> &types) {
  types.push_back(withElement(operands[1].getType(), elementOf(operands[0].getType())));
  return success();
}

// ---- products ----------------------------------------------------------------------------------------------------------

LogicalResult DotOp::verify() {
  RankedTensorType a = tensorOf(getA()), b = tensorOf(getB()), c = tensorOf(getC());
  int64_t rank = a.getRank();
  if ((rank != 2 && rank != 3) || b.getRank() != rank || c.getRank() != rank)
    return emitOpError("takes matrices, or batches of them");
  if (a.getDimSize(rank - 1) != b.getDimSize(rank - 2))
    return emitOpError() << "of " << a.getDimSize(rank - 1) << " columns by " << b.getDimSize(rank - 2) << " rows";
  if (c.getDimSize(rank - 2) != a.getDimSize(rank - 2) || c.getDimSize(rank - 1) != b.getDimSize(rank - 1))
    return emitOpError() << "accumulates into " << c << ", which has not the shape of the product";
  if (rank == 3 && (a.getDimSize(0) != b.getDimSize(0) || a.getDimSize(0) != c.getDimSize(0)))
    return emitOpError("batches differ in length");
  if (isa<IntegerType>(a.getElementType()) != isa<IntegerType>(c.getElementType()) ||
      isa<IntegerType>(b.getElementType()) != isa<IntegerType>(c.getElementType()))
    return emitOpError("mixes integers and floats");
  if (bitsOf(a.getElementType()) != bitsOf(b.getElementType()))
    return emitOpError() << "takes operands of one width, not " << a.getElementType() << " and " << b.getElementType();
  auto isPart = [&](const char *name, int64_t size) {
    Attribute named = getOperation()->getDiscardableAttr(name);
    IntegerAttr valid = dyn_cast_if_present<IntegerAttr>(named);
    return !named || (valid && valid.getInt() >= 1 && valid.getInt() <= size);
  };
  if (!isPart(tile::kValidKAttr, a.getDimSize(rank - 1))) return emitOpError() << "has " << tile::kValidKAttr << " that is no part of its k";
  if (!isPart(tile::kValidMAttr, a.getDimSize(rank - 2))) return emitOpError() << "has " << tile::kValidMAttr << " that is no part of its rows";
  if (!isPart(tile::kValidNAttr, b.getDimSize(rank - 1))) return emitOpError() << "has " << tile::kValidNAttr << " that is no part of its columns";
  return success();
}

// ---- reductions --------------------------------------------------------------------------------------------------------

void ReduceOp::build(OpBuilder &builder, OperationState &state, ValueRange srcs, int axis) {
  state.addOperands(srcs);
  state.getOrAddProperties<Properties>().axis = builder.getI32IntegerAttr(axis);
  state.addTypes(reducedTypes(srcs, axis));
  state.addRegion();
}
LogicalResult ReduceOp::verify() {
  return verifyCombine(*this, getSrcs(), static_cast<int32_t>(getAxis()), getCombineOp());
}
LogicalResult ReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                         DictionaryAttr attrs, OpaqueProperties props, RegionRange regions,
                                         SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attrs, props, regions);
  int64_t axis = static_cast<int32_t>(op.getAxis());
  for (Value src : operands)
    if (axis < 0 || axis >= tensorOf(src).getRank())
      return emitOptionalError(loc, "axis ", axis, " is not one of the operand's");
  types.append(reducedTypes(operands, axis));
  return success();
}

void ScanOp::build(OpBuilder &builder, OperationState &state, ValueRange srcs, int axis, bool reverse) {
  state.addOperands(srcs);
  Properties &props = state.getOrAddProperties<Properties>();
  props.axis = builder.getI32IntegerAttr(axis);
  props.reverse = builder.getBoolAttr(reverse);
  state.addTypes(TypeRange(srcs));
  state.addRegion();
}
LogicalResult ScanOp::verify() {
  return verifyCombine(*this, getSrcs(), static_cast<int32_t>(getAxis()), getCombineOp());
}
LogicalResult ScanOp::inferReturnTypes(MLIRContext *, std::optional<Location>, ValueRange operands, DictionaryAttr,
                                       OpaqueProperties, RegionRange, SmallVectorImpl<Type> &types) {
  types.append(operands.getTypes().begin(), operands.getTypes().end());
  return success();
}

} // namespace neso::tt
