// The dialect ttg: its type, its ops, registration.
#include <algorithm>

#include "ir/layout/axis.h"
#include "ir/tile/attributes.h"
#include "ir/tile/placed.h"

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

LogicalResult BarriersType::verify(llvm::function_ref<InFlightDiagnostic()> error, int64_t slots) {
  return slots > 0 ? success() : error() << "barriers are one or more";
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

LogicalResult BarriersOp::verify() {
  return getArrivals() > 0 ? success() : emitOpError("makes barriers that nobody arrives at");
}

LogicalResult ByOneThreadOp::verify() {
  for (Operation &op : getBody().front())
    if (!isa<AwaitOp, ExpectOp, BulkCopyOp>(op)) return emitOpError() << "holds " << op.getName() << ", which is for all threads";
  return success();
}

LogicalResult ExpectOp::verify() {
  if (!isa<ByOneThreadOp>((*this)->getParentOp())) return emitOpError("is for one thread");
  // What a barrier counts.
  constexpr int32_t kMostBytes = (1 << 20) - 1;
  return getBytes() > 0 && getBytes() <= kMostBytes ? success() : emitOpError("announces more than a barrier counts, or nothing");
}

LogicalResult BulkCopyOp::verify() {
  if (!isa<ByOneThreadOp>((*this)->getParentOp())) return emitOpError("is for one thread");
  LocalAllocOp alloc = getRing().getDefiningOp<LocalAllocOp>();
  if (!alloc) return emitOpError("copies into a ring that is made elsewhere");
  RankedTensorType tile = getRing().getType().getTileType();
  SmallVector<int64_t> box(tile.getShape());
  if (alloc.getFast() >= box.size()) return emitOpError("copies into a ring without neighbours");
  if (IntegerAttr rows = alloc->getAttrOfType<IntegerAttr>(tile::kSlotRowsAttr)) {
    if (box.size() != 2 || rows.getInt() < 1 || rows.getInt() > box[1 - alloc.getFast()]) return emitOpError() << "copies into slots of " << rows << " rows of " << tile;
    box[1 - alloc.getFast()] = rows.getInt();
  }
  std::rotate(box.begin() + alloc.getFast(), box.begin() + alloc.getFast() + 1, box.end());
  tt::TensorDescType desc = getDesc().getType();
  // Of a tensor with more axes than the tile a box has one element along the outer ones.
  ArrayRef<int64_t> shape = desc.getBlockType().getShape();
  if (shape.size() < box.size() || llvm::any_of(shape.drop_back(box.size()), [](int64_t size) { return size != 1; }) ||
      shape.take_back(box.size()) != ArrayRef<int64_t>(box) || desc.getBlockType().getElementType() != tile.getElementType())
    return emitOpError() << "copies boxes of " << desc << " into tiles of " << tile;
  if (getIndices().size() != shape.size()) return emitOpError("has an index an axis");
  return success();
}

LogicalResult LocalLoadOp::verify() {
  RankedTensorType tile = getRing().getType().getTileType(), result = cast<RankedTensorType>(getResult().getType());
  if (!getOffsets())
    return result.getShape() == tile.getShape() && result.getElementType() == tile.getElementType()
               ? success()
               : emitOpError() << "reads " << result << " from tiles of " << tile;
  ArrayRef<int32_t> offsets = *getOffsets();
  if (result.getElementType() != tile.getElementType() || result.getRank() != tile.getRank() ||
      offsets.size() != size_t(tile.getRank()))
    return emitOpError() << "reads " << result << " as a part of " << tile;
  for (auto [offset, part, whole] : llvm::zip(offsets, result.getShape(), tile.getShape()))
    if (offset < 0 || offset % part != 0 || offset + part > whole)
      return emitOpError() << "reads a part of " << part << " at " << offset << " of " << whole;
  return success();
}

// Placed rows come out in order of place; those that are only merged go in so.
LogicalResult SortOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                       DictionaryAttr attrs, OpaqueProperties props, RegionRange regions,
                                       SmallVectorImpl<Type> &results) {
  // While text is read the axis is still among the attributes.
  IntegerAttr named = attrs ? attrs.getAs<IntegerAttr>("axis") : IntegerAttr();
  if (!named) named = Adaptor(operands, attrs, props, regions).getAxisAttr();
  const int64_t axis = named ? named.getInt() : -1;
  for (Value v : operands) {
    RankedTensorType type = cast<RankedTensorType>(v.getType());
    const LinearLayout *layout = placed::layoutOf(type);
    if (!layout) {
      results.push_back(type);
      continue;
    }
    if (axis < 0 || axis >= type.getRank() || !axisPlaces(*layout, static_cast<int>(axis)))
      return emitOptionalError(loc, "the layout of ", type, " mixes axis ", axis, " with others");
    results.push_back(placed::placedType(type, numberedByPlace(*layout, static_cast<int>(axis))));
  }
  return success();
}

LogicalResult SortOp::verify() {
  if (getSrcs().empty()) return emitOpError("has nothing to sort");
  ArrayRef<int64_t> shape = cast<RankedTensorType>(getSrcs()[0].getType()).getShape();
  for (Value v : getSrcs())
    if (cast<RankedTensorType>(v.getType()).getShape() != shape) return emitOpError("has operands of several shapes");
  if (getAxis() >= shape.size()) return emitOpError() << "has axis " << getAxis() << " of " << shape.size();
  if (getBitonic() && getSrcs().getTypes() != getSorted().getTypes())
    return emitOpError("merges rows that do not lie in order of place");
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
