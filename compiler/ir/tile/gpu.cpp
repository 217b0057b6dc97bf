// The dialect ttg: its type, its ops, registration.
#include "ir/tile/tile.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "ir/tile/TileGpuDialect.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "ir/tile/TileGpuTypes.cpp.inc"
#define GET_OP_CLASSES
#include "ir/tile/TileGpuOps.cpp.inc"

using namespace mlir;

namespace neso::ttg {

Type RingType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape;
  Type element;
  if (parser.parseLess() || parser.parseDimensionList(shape, false) || parser.parseType(element) ||
      parser.parseGreater())
    return {};
  return RingType::getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(), shape,
                              element);
}

void RingType::print(AsmPrinter &printer) const {
  printer << '<';
  for (int64_t size : getShape()) printer << size << 'x';
  printer << getElementType() << '>';
}

LogicalResult RingType::verify(llvm::function_ref<InFlightDiagnostic()> error, ArrayRef<int64_t> shape, Type element) {
  if (shape.size() < 2) return error() << "a ring has slots and tiles of one axis or more";
  if (!isa<FloatType, IntegerType>(element)) return error() << "a ring holds numbers, not " << element;
  return success();
}

// ---- ops

ParseResult BarrierOp::parse(OpAsmParser &parser, OperationState &result) {
  std::string spaces;
  StringRef word;
  do {
    if (parser.parseKeyword(&word)) return failure();
    spaces += (spaces.empty() ? "" : "|") + word.str();
  } while (succeeded(parser.parseOptionalVerticalBar()));
  result.addAttribute(getAddrSpaceAttrName(result.name), parser.getBuilder().getStringAttr(spaces));
  return parser.parseOptionalAttrDict(result.attributes);
}

void BarrierOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getAddrSpace();
  printer.printOptionalAttrDict((*this)->getAttrs(), {"addrSpace"});
}

LogicalResult AsyncCopyOp::verify() {
  RankedTensorType tile = getRing().getType().getTileType(), ptr = getPtr().getType();
  if (ptr.getShape() != tile.getShape() ||
      cast<tt::PointerType>(ptr.getElementType()).getPointeeType() != tile.getElementType())
    return emitOpError() << "copies " << ptr << " into tiles of " << tile;
  if (getMask().getType().getShape() != tile.getShape()) return emitOpError("has a mask of another shape");
  return success();
}

LogicalResult LocalLoadOp::verify() {
  RankedTensorType tile = getRing().getType().getTileType(), result = cast<RankedTensorType>(getResult().getType());
  if (!getOffsets())
    return result == tile ? success() : emitOpError() << "reads " << result << " from tiles of " << tile;
  ArrayRef<int32_t> offsets = *getOffsets();
  if (result.getElementType() != tile.getElementType() || result.getRank() != tile.getRank() ||
      offsets.size() != size_t(tile.getRank()))
    return emitOpError() << "reads " << result << " as a part of " << tile;
  for (auto [offset, part, whole] : llvm::zip(offsets, result.getShape(), tile.getShape()))
    if (offset < 0 || offset % part != 0 || offset + part > whole)
      return emitOpError() << "reads a part of " << part << " at " << offset << " of " << whole;
  return success();
}

LogicalResult SortOp::inferReturnTypes(MLIRContext *, std::optional<Location>, ValueRange operands, DictionaryAttr,
                                       OpaqueProperties, RegionRange, SmallVectorImpl<Type> &results) {
  for (Value v : operands) results.push_back(v.getType());
  return success();
}

LogicalResult SortOp::verify() {
  if (getSrcs().empty()) return emitOpError("has nothing to sort");
  ArrayRef<int64_t> shape = cast<RankedTensorType>(getSrcs()[0].getType()).getShape();
  for (Value v : getSrcs())
    if (cast<RankedTensorType>(v.getType()).getShape() != shape) return emitOpError("has operands of several shapes");
  if (getAxis() >= shape.size()) return emitOpError() << "has axis " << getAxis() << " of " << shape.size();
  return success();
}

void TileGpuDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "ir/tile/TileGpuTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/tile/TileGpuOps.cpp.inc"
      >();
}

} // namespace neso::ttg
