// Layouts as encodings of tensor types: text and rules; the attributes of placed functions.
#include "ir/tile/placed.h"
#include "ir/layout/gpu.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#include "ir/tile/PlacedDialect.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "ir/tile/PlacedAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "ir/tile/TilePlacedOps.cpp.inc"

using namespace mlir;

namespace neso {

llvm::hash_code hash_value(const LinearLayout &layout) {
  llvm::hash_code hash = llvm::hash_value(layout.outs().size());
  for (const LinearLayout::In &in : layout.ins())
    hash = llvm::hash_combine(hash, in.bases.size(), llvm::hash_combine_range(in.bases.begin(), in.bases.end()));
  return hash;
}

namespace placed {

static constexpr const char *kPlaces[] = {kRegister, kLane, kWarp, kBlock};

const LinearLayout *layoutOf(Type type) {
  RankedTensorType tensor = dyn_cast<RankedTensorType>(type);
  LinearAttr linear = tensor ? dyn_cast_if_present<LinearAttr>(tensor.getEncoding()) : LinearAttr();
  return linear ? &linear.getLayout() : nullptr;
}

RankedTensorType placedType(RankedTensorType type, const LinearLayout &layout) {
  return RankedTensorType::get(type.getShape(), type.getElementType(), LinearAttr::get(type.getContext(), layout));
}

Attribute LinearAttr::parse(AsmParser &parser, Type) {
  // [[index in dim0, dim1, …], …] of each place.
  SmallVector<SmallVector<SmallVector<int64_t>>, 4> bases;
  size_t rank = 0;
  auto parseBasis = [&](SmallVector<SmallVector<int64_t>> &list) {
    SmallVector<int64_t> &index = list.emplace_back();
    auto number = [&] { return parser.parseInteger(index.emplace_back()); };
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, number)) return failure();
    if (rank == 0) rank = index.size();
    if (index.size() != rank || rank == 0 || llvm::any_of(index, [](int64_t i) { return i < 0; }))
      return LogicalResult(parser.emitError(parser.getCurrentLocation(), "every basis is an index of one rank"));
    return success();
  };
  if (parser.parseLess() || parser.parseLBrace()) return {};
  for (const char *place : kPlaces) {
    if (place != kPlaces[0] && parser.parseComma()) return {};
    SmallVector<SmallVector<int64_t>> &list = bases.emplace_back();
    if (parser.parseKeyword(place) || parser.parseEqual() ||
        parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] { return parseBasis(list); }))
      return {};
  }
  if (parser.parseRBrace() || parser.parseGreater()) return {};

  // Every element is held, so the largest index of a dim says its size.
  Sizes sizes(rank, 1);
  for (const auto &list : bases)
    for (const SmallVector<int64_t> &index : list)
      for (size_t dim = 0; dim < rank; ++dim)
        sizes[dim] = std::max<int64_t>(sizes[dim], int64_t(llvm::NextPowerOf2(uint64_t(index[dim]))));
  DimValues outs;
  for (size_t dim = rank; dim-- > 0;) outs.push_back({dimName(int(dim)), sizes[dim]});
  const LinearLayout dims({}, outs);
  std::vector<LinearLayout::In> ins;
  for (auto [place, list] : llvm::zip(kPlaces, bases)) {
    LinearLayout::In &in = ins.emplace_back(LinearLayout::In{place, {}});
    for (const SmallVector<int64_t> &index : list) {
      uint64_t flat = 0;
      for (size_t dim = 0; dim < rank; ++dim) flat |= uint64_t(index[dim]) << dims.out(dimName(int(dim))).shift;
      in.bases.push_back(flat);
    }
  }
  return LinearAttr::getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(),
                                LinearLayout(std::move(ins), outs));
}

void LinearAttr::print(AsmPrinter &printer) const {
  const LinearLayout &layout = getLayout();
  printer << "<{";
  for (const LinearLayout::In &in : layout.ins()) {
    printer << (&in == &layout.ins().front() ? "" : ", ") << in.name << " = [";
    llvm::interleaveComma(in.bases, printer, [&](uint64_t basis) {
      printer << '[';
      for (size_t dim = 0; dim < layout.outs().size(); ++dim)
        printer << (dim ? ", " : "") << layout.out(dimName(int(dim))).of(basis);
      printer << ']';
    });
    printer << ']';
  }
  printer << "}>";
}

LogicalResult LinearAttr::verify(llvm::function_ref<InFlightDiagnostic()> error, LinearLayout layout) {
  if (layout.ins().size() != std::size(kPlaces)) return error() << "a layout has registers, lanes, warps and blocks";
  for (auto [in, place] : llvm::zip(layout.ins(), kPlaces))
    if (in.name != place) return error() << "a layout has registers, lanes, warps and blocks, in that order";
  if (layout.inBits(kLane) != 5) return error() << "a warp has 32 lanes";
  if (!layout.surjective()) return error() << "some element is held by no thread";
  return success();
}

LogicalResult LinearAttr::verifyEncoding(ArrayRef<int64_t> shape, Type,
                                         llvm::function_ref<InFlightDiagnostic()> error) const {
  const Sizes sizes = tensorShape(getLayout());
  if (ArrayRef<int64_t>(sizes) == shape) return success();
  InFlightDiagnostic wrong = error() << "the layout is of a tensor of ";
  llvm::interleave(sizes, wrong, "x");
  return wrong;
}

// ---- ops

LogicalResult ConvertLayoutOp::verify() {
  if (!layoutOf(getSrc()) || !layoutOf(getResult())) return emitOpError("moves a placed tensor to another place");
  return success();
}

LogicalResult PlaceOp::verify() {
  if (layoutOf(getSrc()) || !layoutOf(getResult())) return emitOpError("gives a place to what has none");
  return success();
}

LogicalResult LocalStoreOp::verify() {
  RankedTensorType tile = getRing().getType().getTileType(), src = cast<RankedTensorType>(getSrc().getType());
  if (!layoutOf(src) || src.getShape() != tile.getShape() || src.getElementType() != tile.getElementType())
    return emitOpError() << "stores " << src << " into tiles of " << tile;
  return success();
}

LogicalResult WaitProductsOp::verify() {
  if (getPending() < 0) return emitOpError("leaves less than no product under way");
  if (!llvm::equal(getValues().getTypes(), getResults().getTypes())) return emitOpError("gives other types than it takes");
  for (Type type : getValues().getTypes())
    if (Type element = cast<RankedTensorType>(type).getElementType();
        !element.isIntOrFloat() || element.getIntOrFloatBitWidth() != 32)
      return emitOpError("takes elements of 32 bits");
  return success();
}

// ---- the dialect

namespace {
/// Layouts are printed once, in front of the function.
struct Aliases : OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;
  AliasResult getAlias(Attribute attr, raw_ostream &os) const override {
    if (!isa<LinearAttr>(attr)) return AliasResult::NoAlias;
    os << "linear";
    return AliasResult::FinalAlias;
  }
};
} // namespace

void PlacedDialect::initialize() {
  addInterfaces<Aliases>();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ir/tile/PlacedAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/tile/TilePlacedOps.cpp.inc"
      >();
}

// ---- attributes of placed functions

LogicalResult PlacedDialect::verifyOperationAttribute(Operation *op, NamedAttribute named) {
  const StringRef name = named.getName();
  auto numbersBelow = [&](uint64_t count) {
    DenseI32ArrayAttr numbers = dyn_cast<DenseI32ArrayAttr>(named.getValue());
    llvm::SmallSet<int32_t, 8> seen;
    return numbers && llvm::all_of(numbers.asArrayRef(),
                                   [&](int32_t n) { return n >= 0 && uint64_t(n) < count && seen.insert(n).second; });
  };
  if (name == kWarpsAttr) {
    IntegerAttr warps = dyn_cast<IntegerAttr>(named.getValue());
    if (!isa<tt::FuncOp>(op) || !warps || warps.getInt() < 1 || !llvm::isPowerOf2_64(uint64_t(warps.getInt())))
      return op->emitOpError("has placed.warps that is no power of two of a function");
  }
  if (name == kChipAttr && (!isa<tt::FuncOp>(op) || !isa<StringAttr>(named.getValue())))
    return op->emitOpError("has placed.chip that is no name of a function's chip");
  if (name == kTogetherAttr) {
    const LinearLayout *layout =
        isa<tt::LoadOp, tt::StoreOp, ttg::AsyncCopyOp, tt::AtomicRMWOp>(op) ? layoutOf(op->getOperand(0)) : nullptr;
    if (!layout || !numbersBelow(uint64_t(layout->inBits(kRegister))))
      return op->emitOpError("has placed.together that names no register bits of its address");
  }
  if (name == kWordsAttr) {
    scf::ForOp loop = dyn_cast<scf::ForOp>(op);
    if (!loop || !numbersBelow(loop.getNumRegionIterArgs()) ||
        !llvm::all_of(cast<DenseI32ArrayAttr>(named.getValue()).asArrayRef(),
                      [&](int32_t i) { return layoutOf(loop.getRegionIterArg(unsigned(i))); }))
      return op->emitOpError("has placed.words that names no placed values of a loop");
  }
  if (name == kOpenAttr && (!isa<tt::DotOp>(op) || !isa<UnitAttr>(named.getValue())))
    return op->emitOpError("has placed.open and is no product");
  if (name == kOpenValuesAttr) {
    scf::ForOp loop = dyn_cast<scf::ForOp>(op);
    if (!loop || !numbersBelow(loop.getNumRegionIterArgs()))
      return op->emitOpError("has placed.open_values that names no values of a loop");
  }
  const bool offsets = name == kSharedAttr, waits = name == kWaitsAttr;
  if ((offsets && !isa<DenseI64ArrayAttr>(named.getValue())) || (waits && !isa<DenseI32ArrayAttr>(named.getValue())))
    return op->emitOpError() << "has " << name << " that is no list of numbers";
  if (name == kSharedBytesAttr && (!isa<tt::FuncOp>(op) || !isa<IntegerAttr>(named.getValue())))
    return op->emitOpError("has placed.shared_bytes that is no size of a function");
  if (name == kProductAttr && (!isa<tt::DotOp>(op) || !isa<FmaAttr, MmaSyncAttr, WgmmaAttr, Tcgen05Attr>(named.getValue())))
    return op->emitOpError("has placed.product that is no way to multiply");
  return success();
}

} // namespace placed
} // namespace neso
