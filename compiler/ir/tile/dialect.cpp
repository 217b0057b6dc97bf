// The dialects tt and ttg: types, attributes, registration, inlining.
#include "ir/tile/placed.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/Transforms/InlinerInterfaceImpl.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Transforms/InliningUtils.h"
#include "llvm/ADT/TypeSwitch.h"

#include "ir/tile/TileDialect.cpp.inc"
#include "ir/tile/TileEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "ir/tile/TileAttrs.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "ir/tile/TileTypes.cpp.inc"

using namespace mlir;

namespace neso::tt {
namespace {

/// A tt.call may be replaced by the body of its callee.
struct Inliner : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *call, Operation *callee, bool) const final {
    return isa<CallOp>(call) && isa<FuncOp>(callee);
  }
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final { return true; }
  bool isLegalToInline(Region *, Region *, bool, IRMapping &) const final { return true; }
  void handleTerminator(Operation *op, Block *next) const final {
    if (ReturnOp ret = dyn_cast<ReturnOp>(op)) {
      OpBuilder builder(op);
      cf::BranchOp::create(builder, op->getLoc(), next, ret.getSrcs());
      op->erase();
    }
  }
  void handleTerminator(Operation *op, ValueRange results) const final {
    ReturnOp ret = dyn_cast<ReturnOp>(op);
    if (!ret) return;
    for (auto [from, to] : llvm::zip(results, ret.getSrcs())) from.replaceAllUsesWith(to);
  }
};

} // namespace

void TileDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "ir/tile/TileOps.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "ir/tile/TileTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ir/tile/TileAttrs.cpp.inc"
      >();
  addInterfaces<Inliner>();
}

Operation *TileDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type, Location loc) {
  return arith::ConstantOp::materialize(builder, value, type, loc);
}

// ---- types -------------------------------------------------------------------------------------------------------------

Type PointerType::parse(AsmParser &parser) {
  Type pointee;
  int space = 1;
  if (parser.parseLess() || parser.parseType(pointee)) return {};
  if (succeeded(parser.parseOptionalComma()) && parser.parseInteger(space)) return {};
  if (parser.parseGreater()) return {};
  return PointerType::getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(), pointee,
                                 space);
}

void PointerType::print(AsmPrinter &printer) const {
  printer << '<' << getPointeeType();
  if (getAddressSpace() != 1) printer << ", " << getAddressSpace();
  printer << '>';
}

LogicalResult PointerType::verify(llvm::function_ref<InFlightDiagnostic()> error, Type pointee, int) {
  if (isa<FloatType, IntegerType, PointerType, TensorDescType>(pointee)) return success();
  if (RankedTensorType tensor = dyn_cast<RankedTensorType>(pointee))
    if (tensor.hasStaticShape()) return success();
  return error() << "a pointer points to a number, a pointer or a static tensor, not to " << pointee;
}

Type TensorDescType::parse(AsmParser &parser) {
  if (parser.parseLess()) return {};
  SmallVector<int64_t> shape;
  Type element;
  // `tensor` could only begin an element type here; the older spelling wraps the block in it.
  if (succeeded(parser.parseOptionalKeyword("tensor"))) {
    if (parser.parseLess() || parser.parseDimensionList(shape, false) || parser.parseType(element)) return {};
    Attribute ignored;
    if (succeeded(parser.parseOptionalComma()) && parser.parseAttribute(ignored)) return {};
    if (parser.parseGreater()) return {};
  } else if (parser.parseDimensionList(shape, false) || parser.parseType(element)) {
    return {};
  }
  Attribute layout;
  if (succeeded(parser.parseOptionalComma()) && parser.parseAttribute(layout)) return {};
  if (parser.parseGreater()) return {};
  return TensorDescType::getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(), shape,
                                    element);
}

void TensorDescType::print(AsmPrinter &printer) const {
  printer << '<';
  for (int64_t size : getShape()) printer << size << 'x';
  printer << getElementType() << '>';
}

LogicalResult TensorDescType::verify(llvm::function_ref<InFlightDiagnostic()> error, ArrayRef<int64_t> shape,
                                     Type element) {
  if (shape.empty() || shape.size() > 5) return error() << "a tensor descriptor has 1 to 5 axes, not " << shape.size();
  if (!isa<FloatType, IntegerType>(element)) return error() << "a tensor descriptor holds numbers, not " << element;
  return success();
}

RankedTensorType TensorDescType::getBlockType() {
  Type element = getElementType();
  if (IntegerType integer = dyn_cast<IntegerType>(element))
    element = IntegerType::get(getContext(), integer.getWidth());
  return RankedTensorType::get(getShape(), element);
}

Type withElement(Type type, Type element) {
  if (RankedTensorType tensor = dyn_cast<RankedTensorType>(type))
    return RankedTensorType::get(tensor.getShape(), element, tensor.getEncoding());
  return element;
}

Type pointeeOf(Type ptr) {
  PointerType pointer = dyn_cast<PointerType>(getElementTypeOrSelf(ptr));
  return pointer ? withElement(ptr, pointer.getPointeeType()) : Type();
}

Type elementPointer(Type type) {
  PointerType pointer = cast<PointerType>(type);
  return PointerType::get(getElementTypeOrSelf(pointer.getPointeeType()), pointer.getAddressSpace());
}

Type boolLike(Type type) { return type ? withElement(type, IntegerType::get(type.getContext(), 1)) : Type(); }

} // namespace neso::tt

namespace neso {

void registerTile(DialectRegistry &registry) {
  registry.insert<tt::TileDialect, ttg::TileGpuDialect, placed::PlacedDialect, arith::ArithDialect, math::MathDialect,
                  scf::SCFDialect, cf::ControlFlowDialect, ub::UBDialect, LLVM::LLVMDialect>();
  LLVM::registerInlinerInterface(registry);
}

std::unique_ptr<MLIRContext> makeTileContext() {
  DialectRegistry registry;
  registerTile(registry);
  std::unique_ptr<MLIRContext> ctx = std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
  // Attributes of other tools on modules and functions pass through; unknown ops are refused by verifyTile with their
  // name.
  ctx->allowUnregisteredDialects();
  ctx->loadDialect<tt::TileDialect, ttg::TileGpuDialect, placed::PlacedDialect>();
  ctx->getDiagEngine().registerHandler([](mlir::Diagnostic &) { return success(); });
  return ctx;
}

} // namespace neso
