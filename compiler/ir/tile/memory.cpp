// Text, verifiers and effects of ops on memory.
#include "ir/tile/tile.h"

#include "mlir/IR/OpImplementation.h"

using namespace mlir;

namespace neso::tt {
namespace {

/// Reads `cacheModifier = cg evictionPolicy = evict_last {…}` (Triton to 3.8) or `{cachePolicy = #tt.cache_policy<…>,
/// …}` (3.9).
ParseResult parseHints(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  MLIRContext *ctx = parser.getContext();
  std::optional<CacheModifier> cache;
  std::optional<EvictionPolicy> evict;
  while (true) {
    StringRef word;
    SMLoc at = parser.getCurrentLocation();
    if (succeeded(parser.parseOptionalKeyword("cacheModifier"))) {
      if (parser.parseEqual() || parser.parseKeyword(&word)) return failure();
      cache = symbolizeCacheModifier(word);
      if (!cache) return parser.emitError(at) << "unknown cache modifier '" << word << "'";
    } else if (succeeded(parser.parseOptionalKeyword("evictionPolicy"))) {
      if (parser.parseEqual() || parser.parseKeyword(&word)) return failure();
      evict = symbolizeEvictionPolicy(word);
      if (!evict) return parser.emitError(at) << "unknown eviction policy '" << word << "'";
    } else {
      break;
    }
  }
  if (parser.parseOptionalAttrDict(result.attributes)) return failure();
  if (CachePolicyAttr policy = dyn_cast_or_null<CachePolicyAttr>(result.attributes.get("cachePolicy"))) {
    result.attributes.erase("cachePolicy");
    cache = policy.getCacheModifier();
    evict = policy.getEvictionPolicy();
  }
  if (cache) result.addAttribute("cache", CacheModifierAttr::get(ctx, *cache));
  if (evict) result.addAttribute("evict", EvictionPolicyAttr::get(ctx, *evict));
  (void)builder;
  return success();
}

/// Prints the attributes with the cache hints in the spelling of 3.9, and without those that have their default.
template <typename Op> void printHints(OpAsmPrinter &printer, Op op, ArrayRef<StringRef> elide) {
  SmallVector<NamedAttribute> attrs;
  if (op.getCache() != CacheModifier::NONE || op.getEvict() != EvictionPolicy::NORMAL)
    attrs.emplace_back(StringAttr::get(op.getContext(), "cachePolicy"),
                       CachePolicyAttr::get(op.getContext(), op.getCache(), op.getEvict()));
  for (NamedAttribute attr : op->getAttrs()) {
    StringRef name = attr.getName();
    if (name == "cache" || name == "evict" || llvm::is_contained(elide, name)) continue;
    attrs.push_back(attr);
  }
  printer.printOptionalAttrDict(attrs);
}

/// Axes of boundaryCheck exist; they and padding come only with block pointers, masks only without.
LogicalResult verifyAccess(Operation *op, Type ptr, bool masked, ArrayRef<int32_t> boundaryCheck) {
  PointerType pointer = dyn_cast<PointerType>(ptr);
  if (!pointer || !pointer.isBlock()) {
    if (!boundaryCheck.empty()) return op->emitOpError("has boundaryCheck, which only a block pointer can have");
    return success();
  }
  if (masked) return op->emitOpError("has a mask, which a block pointer cannot have");
  int64_t rank = cast<RankedTensorType>(pointer.getPointeeType()).getRank();
  for (int32_t axis : boundaryCheck)
    if (axis < 0 || axis >= rank) return op->emitOpError() << "checks axis " << axis << " of a block of rank " << rank;
  return success();
}

/// Elements of an atomic are what its pointers point to.
LogicalResult verifyPointee(Operation *op, Value ptr, Type value) {
  if (pointeeOf(ptr.getType()) != value)
    return op->emitOpError() << "has values of type " << value << " where its pointer needs "
                             << pointeeOf(ptr.getType());
  return success();
}

LogicalResult verifyBlock(Operation *op, Value desc, Type block, size_t indices) {
  TensorDescType type = cast<TensorDescType>(desc.getType());
  RankedTensorType tensor = cast<RankedTensorType>(block), want = type.getBlockType();
  if (tensor.getElementType() != want.getElementType() || tensor.getNumElements() != want.getNumElements())
    return op->emitOpError() << "moves " << block << " through a descriptor of blocks " << want;
  if (indices != type.getShape().size())
    return op->emitOpError() << "has " << indices << " indices for " << type.getShape().size() << " axes";
  return success();
}

LogicalResult verifyRows(Operation *op, Value desc, Type rows, Type offsets) {
  TensorDescType type = cast<TensorDescType>(desc.getType());
  RankedTensorType tensor = cast<RankedTensorType>(rows), picks = cast<RankedTensorType>(offsets);
  if (type.getShape().size() != 2 || type.getShape()[0] != 1)
    return op->emitOpError("needs a descriptor of blocks with one row");
  if (tensor.getRank() != 2 || picks.getRank() != 1 || tensor.getDimSize(0) != picks.getDimSize(0) ||
      tensor.getDimSize(1) != type.getShape()[1] || tensor.getElementType() != type.getBlockType().getElementType())
    return op->emitOpError() << "moves " << rows << " with " << picks.getNumElements() << " rows of blocks "
                             << type.getBlockType();
  return success();
}

} // namespace

// ---- load and store ----------------------------------------------------------------------------------------------------

ParseResult LoadOp::parse(OpAsmParser &parser, OperationState &result) {
  SmallVector<OpAsmParser::UnresolvedOperand, 3> operands(1);
  if (parser.parseOperand(operands[0])) return failure();
  while (operands.size() < 3 && succeeded(parser.parseOptionalComma()))
    if (parser.parseOperand(operands.emplace_back())) return failure();
  SMLoc at = parser.getCurrentLocation();
  Type ptr;
  if (parseHints(parser, result) || parser.parseColonType(ptr)) return failure();
  Type value = pointeeOf(ptr);
  if (!value) return parser.emitError(at) << "loads through " << ptr << ", which is no pointer";
  SmallVector<Type, 3> types = {ptr, boolLike(value), value};
  types.resize(operands.size());
  Properties &props = result.getOrAddProperties<Properties>();
  props.operandSegmentSizes = {1, operands.size() > 1, operands.size() > 2};
  result.addTypes(value);
  return parser.resolveOperands(operands, types, at, result.operands);
}

void LoadOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getOperands();
  SmallVector<StringRef> elide = {"operandSegmentSizes"};
  if (!getIsVolatile()) elide.push_back("isVolatile");
  if (getBoundaryCheck().empty()) elide.push_back("boundaryCheck");
  printHints(printer, *this, elide);
  printer << " : " << getPtr().getType();
}

void LoadOp::build(OpBuilder &builder, OperationState &state, Value ptr, Value mask, Value other, CacheModifier cache,
                   EvictionPolicy evict, bool isVolatile) {
  build(builder, state, pointeeOf(ptr.getType()), ptr, mask, other, ArrayRef<int32_t>{}, PaddingOptionAttr(), cache,
        evict, isVolatile);
}

LogicalResult LoadOp::verify() {
  if (getOther() && !getMask()) return emitOpError("has a value for masked elements but no mask");
  if (getPadding() && getBoundaryCheck().empty()) return emitOpError("has padding but no axis to check");
  return verifyAccess(*this, getPtr().getType(), bool(getMask()), getBoundaryCheck());
}

void LoadOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getPtrMutable(), GlobalMemory::get());
  if (getIsVolatile()) effects.emplace_back(MemoryEffects::Write::get(), GlobalMemory::get());
}

ParseResult StoreOp::parse(OpAsmParser &parser, OperationState &result) {
  SmallVector<OpAsmParser::UnresolvedOperand, 3> operands(2);
  if (parser.parseOperand(operands[0]) || parser.parseComma() || parser.parseOperand(operands[1])) return failure();
  if (succeeded(parser.parseOptionalComma()) && parser.parseOperand(operands.emplace_back())) return failure();
  SMLoc at = parser.getCurrentLocation();
  Type ptr;
  if (parseHints(parser, result) || parser.parseColonType(ptr)) return failure();
  Type value = pointeeOf(ptr);
  if (!value) return parser.emitError(at) << "stores through " << ptr << ", which is no pointer";
  SmallVector<Type, 3> types = {ptr, value, boolLike(value)};
  types.resize(operands.size());
  return parser.resolveOperands(operands, types, at, result.operands);
}

void StoreOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getOperands();
  SmallVector<StringRef> elide;
  if (getBoundaryCheck().empty()) elide.push_back("boundaryCheck");
  printHints(printer, *this, elide);
  printer << " : " << getPtr().getType();
}

void StoreOp::build(OpBuilder &builder, OperationState &state, Value ptr, Value value, Value mask, CacheModifier cache,
                    EvictionPolicy evict) {
  build(builder, state, ptr, value, mask, ArrayRef<int32_t>{}, cache, evict);
}

LogicalResult StoreOp::verify() { return verifyAccess(*this, getPtr().getType(), bool(getMask()), getBoundaryCheck()); }

// ---- atomics -----------------------------------------------------------------------------------------------------------

LogicalResult AtomicRMWOp::verify() {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(getVal().getType()));
  if (getAtomicRmwOp() == RMWOp::FADD && !isFloat) return emitOpError("fadd needs floats");
  if (isFloat && (getAtomicRmwOp() == RMWOp::ADD || getAtomicRmwOp() == RMWOp::AND || getAtomicRmwOp() == RMWOp::OR ||
                  getAtomicRmwOp() == RMWOp::XOR))
    return emitOpError("needs integers");
  return verifyPointee(*this, getPtr(), getVal().getType());
}
LogicalResult AtomicCASOp::verify() {
  if (getCmp().getType() != getVal().getType() || getType() != getVal().getType())
    return emitOpError("compares and swaps one type");
  return verifyPointee(*this, getPtr(), getVal().getType());
}
LogicalResult AtomicLoadOp::verify() { return verifyPointee(*this, getPtr(), getType()); }

// ---- descriptors -------------------------------------------------------------------------------------------------------

LogicalResult AtomicPollOp::verify() {
  // One value for all elements, or one each.
  const Type pointee = pointeeOf(getPtr().getType()), expected = getExpected().getType();
  if (expected == pointee || expected == getElementTypeOrSelf(pointee)) return success();
  return emitOpError() << "waits for " << expected << " where " << pointee << " lies";
}

LogicalResult MakeTensorDescOp::verify() {
  TensorDescType type = getType();
  if (getShape().size() != type.getShape().size() || getStrides().size() != type.getShape().size())
    return emitOpError() << "has " << getShape().size() << " sizes and " << getStrides().size() << " strides for "
                         << type.getShape().size() << " axes";
  if (cast<PointerType>(getBase().getType()).getPointeeType() != type.getBlockType().getElementType())
    return emitOpError("points to other elements than its type holds");
  return success();
}

ParseResult DescriptorLoadOp::parse(OpAsmParser &parser, OperationState &result) {
  OpAsmParser::UnresolvedOperand desc;
  SmallVector<OpAsmParser::UnresolvedOperand> indices;
  Type type, block;
  if (parser.parseOperand(desc) || parser.parseOperandList(indices, OpAsmParser::Delimiter::Square) ||
      parseHints(parser, result) || parser.parseColonType(type) || parser.parseArrow() || parser.parseType(block))
    return failure();
  result.addTypes(block);
  return failure(parser.resolveOperand(desc, type, result.operands) ||
                 parser.resolveOperands(indices, parser.getBuilder().getI32Type(), result.operands));
}

void DescriptorLoadOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getDesc() << '[' << getIndices() << ']';
  printHints(printer, *this, {});
  printer << " : " << getDesc().getType() << " -> " << getType();
}

LogicalResult DescriptorLoadOp::verify() { return verifyBlock(*this, getDesc(), getType(), getIndices().size()); }
LogicalResult DescriptorStoreOp::verify() {
  return verifyBlock(*this, getDesc(), getSrc().getType(), getIndices().size());
}
LogicalResult DescriptorReduceOp::verify() {
  return verifyBlock(*this, getDesc(), getSrc().getType(), getIndices().size());
}
LogicalResult DescriptorGatherOp::verify() { return verifyRows(*this, getDesc(), getType(), getXOffsets().getType()); }
LogicalResult DescriptorScatterOp::verify() {
  return verifyRows(*this, getDesc(), getSrc().getType(), getXOffsets().getType());
}

// ---- block pointers ----------------------------------------------------------------------------------------------------

LogicalResult MakeTensorPtrOp::verify() {
  RankedTensorType block = cast<RankedTensorType>(cast<PointerType>(getType()).getPointeeType());
  size_t rank = block.getRank();
  if (getShape().size() != rank || getStrides().size() != rank || getOffsets().size() != rank ||
      getOrder().size() != rank)
    return emitOpError() << "needs " << rank << " sizes, strides, offsets and order entries";
  return success();
}

LogicalResult AdvanceOp::verify() {
  size_t rank = cast<RankedTensorType>(cast<PointerType>(getType()).getPointeeType()).getRank();
  if (getOffsets().size() != rank)
    return emitOpError() << "has " << getOffsets().size() << " offsets for " << rank << " axes";
  return success();
}

} // namespace neso::tt
