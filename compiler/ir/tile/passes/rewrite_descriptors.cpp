// Descriptors and block pointers to addresses and masks. A descriptor becomes its base, shape, strides (i64) and
// padding (i1: NaN); a block pointer its base, shape, strides and offsets (i64). Loops and branches carry the parts.
#include "base/diagnostics/tile.h"
#include "mlir/Dialect/SCF/Transforms/Patterns.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/DialectConversion.h"

#include "base/rules.h"
#include "ir/tile/passes/passes.h"

using namespace mlir;

namespace neso {
namespace {

bool isBlock(Type type) {
  tt::PointerType pointer = dyn_cast<tt::PointerType>(type);
  return pointer && pointer.isBlock();
}

/// Makes addresses and masks of a block [S0, S1, …] at offsets of a tensor.
struct BlockBuilder {
  OpBuilder &b;
  Location loc;
  ArrayRef<int64_t> shape;
  Type i64 = b.getI64Type();

  Value constant(int64_t v) { return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(v)); }
  Value splat(Value scalar, ArrayRef<int64_t> to) {
    return tt::SplatOp::create(b, loc, RankedTensorType::get(to, scalar.getType()), scalar);
  }
  Value wide(Value v) { // i64, or a tensor of it
    Type type = tt::withElement(v.getType(), i64);
    return v.getType() == type ? v : arith::ExtSIOp::create(b, loc, type, v).getResult();
  }
  /// A vector of axis d as a tensor whose other axes have length 1.
  Value alongAxis(Value v, size_t d) {
    for (size_t i = 0; i < shape.size(); ++i)
      if (i != d) v = tt::ExpandDimsOp::create(b, loc, v, static_cast<uint32_t>(i));
    return v;
  }
  /// offset, offset + 1, … along axis d.
  Value positions(Value offset, size_t d) {
    Type range = RankedTensorType::get({shape[d]}, b.getI32Type());
    Value r = wide(tt::MakeRangeOp::create(b, loc, range, 0, static_cast<uint32_t>(shape[d])));
    return alongAxis(arith::AddIOp::create(b, loc, splat(offset, {shape[d]}), r), d);
  }
  Value full(Value v) {
    return tt::BroadcastOp::create(b, loc, RankedTensorType::get(shape, getElementTypeOrSelf(v.getType())), v);
  }
  Value addresses(Value base, ArrayRef<Value> positions, ValueRange strides) {
    Value ptr = splat(base, shape);
    for (size_t d = 0; d < shape.size(); ++d) {
      Value stride = splat(strides[d], cast<RankedTensorType>(positions[d].getType()).getShape());
      Value offset = full(arith::MulIOp::create(b, loc, positions[d], stride));
      ptr = tt::AddPtrOp::create(b, loc, ptr.getType(), ptr, offset);
    }
    return ptr;
  }
  /// 0 <= position < size on every axis of `axes`; null without axes.
  Value mask(ArrayRef<Value> positions, ValueRange sizes, ArrayRef<int32_t> axes) {
    Value all;
    for (int32_t d : axes) {
      ArrayRef<int64_t> at = cast<RankedTensorType>(positions[d].getType()).getShape();
      Value low = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, positions[d], splat(constant(0), at));
      Value high = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, positions[d], splat(sizes[d], at));
      Value inside = full(arith::AndIOp::create(b, loc, low, high));
      all = all ? arith::AndIOp::create(b, loc, all, inside).getResult() : inside;
    }
    return all;
  }
  /// The padding of a float tensor is NaN if `nan`; of integers always 0.
  Value padding(Type element, Value nan) {
    TypedAttr zero = b.getZeroAttr(element);
    Value scalar = arith::ConstantOp::create(b, loc, zero);
    if (FloatType real = dyn_cast<FloatType>(element)) {
      Value quiet = arith::ConstantOp::create(b, loc, FloatAttr::get(real, APFloat::getNaN(real.getFloatSemantics())));
      scalar = arith::SelectOp::create(b, loc, nan, quiet, scalar);
    }
    return splat(scalar, shape);
  }
};

/// Parts of a converted descriptor or block pointer of rank r: base, sizes, strides, then padding or offsets.
struct Parts {
  ValueRange all;
  size_t rank;
  Value base() const { return all[0]; }
  ValueRange sizes() const { return all.slice(1, rank); }
  ValueRange strides() const { return all.slice(1 + rank, rank); }
  ValueRange offsets() const { return all.slice(1 + 2 * rank, rank); }
  Value padding() const { return all[1 + 2 * rank]; }
};

SmallVector<int32_t> allAxes(size_t rank) { return llvm::to_vector(llvm::seq<int32_t>(0, rank)); }

template <typename Op> struct Pattern : OpConversionPattern<Op> {
  using OpConversionPattern<Op>::OpConversionPattern;
  using Adaptor = typename OpConversionPattern<Op>::OneToNOpAdaptor;
};

struct MakeDescriptor : Pattern<tt::MakeTensorDescOp> {
  using Pattern::Pattern;
  LogicalResult matchAndRewrite(tt::MakeTensorDescOp op, Adaptor, ConversionPatternRewriter &rewriter) const final {
    BlockBuilder build{rewriter, op.getLoc(), {}};
    SmallVector<Value> parts = {op.getBase()};
    for (Value v : op.getShape()) parts.push_back(build.wide(v));
    llvm::append_range(parts, op.getStrides());
    parts.push_back(arith::ConstantOp::create(rewriter, op.getLoc(),
                                              rewriter.getBoolAttr(op.getPadding() == tt::PaddingOption::PAD_NAN)));
    rewriter.replaceOpWithMultiple(op, {parts});
    return success();
  }
};

struct MakeBlockPointer : Pattern<tt::MakeTensorPtrOp> {
  using Pattern::Pattern;
  LogicalResult matchAndRewrite(tt::MakeTensorPtrOp op, Adaptor, ConversionPatternRewriter &rewriter) const final {
    BlockBuilder build{rewriter, op.getLoc(), {}};
    SmallVector<Value> parts = {op.getBase()};
    llvm::append_range(parts, op.getShape());
    llvm::append_range(parts, op.getStrides());
    for (Value v : op.getOffsets()) parts.push_back(build.wide(v));
    rewriter.replaceOpWithMultiple(op, {parts});
    return success();
  }
};

struct Advance : Pattern<tt::AdvanceOp> {
  using Pattern::Pattern;
  LogicalResult matchAndRewrite(tt::AdvanceOp op, Adaptor adaptor, ConversionPatternRewriter &rewriter) const final {
    applied(Rule::BlockPointerAdvance);
    BlockBuilder build{rewriter, op.getLoc(), {}};
    SmallVector<Value> parts(adaptor.getPtr());
    size_t rank = op.getOffsets().size();
    for (size_t d = 0; d < rank; ++d) {
      Value &offset = parts[1 + 2 * rank + d];
      offset = arith::AddIOp::create(rewriter, op.getLoc(), offset, build.wide(op.getOffsets()[d]));
    }
    rewriter.replaceOpWithMultiple(op, {parts});
    return success();
  }
};

struct BlockLoad : Pattern<tt::LoadOp> {
  using Pattern::Pattern;
  LogicalResult matchAndRewrite(tt::LoadOp op, Adaptor adaptor, ConversionPatternRewriter &rewriter) const final {
    if (!isBlock(op.getPtr().getType())) return failure();
    applied(Rule::BlockPointerLoad);
    RankedTensorType type = cast<RankedTensorType>(op.getType());
    BlockBuilder build{rewriter, op.getLoc(), type.getShape()};
    Parts parts{adaptor.getPtr(), static_cast<size_t>(type.getRank())};
    SmallVector<Value> at;
    for (size_t d = 0; d < parts.rank; ++d) at.push_back(build.positions(parts.offsets()[d], d));
    Value ptr = build.addresses(parts.base(), at, parts.strides()),
          mask = build.mask(at, parts.sizes(), op.getBoundaryCheck()), other;
    if (mask) {
      Value nan = arith::ConstantOp::create(rewriter, op.getLoc(),
                                            rewriter.getBoolAttr(op.getPadding() == tt::PaddingOption::PAD_NAN));
      other = build.padding(type.getElementType(), nan);
    }
    rewriter.replaceOpWithNewOp<tt::LoadOp>(op, ptr, mask, other, op.getCache(), op.getEvict(), op.getIsVolatile());
    return success();
  }
};

struct BlockStore : Pattern<tt::StoreOp> {
  using Pattern::Pattern;
  LogicalResult matchAndRewrite(tt::StoreOp op, Adaptor adaptor, ConversionPatternRewriter &rewriter) const final {
    if (!isBlock(op.getPtr().getType())) return failure();
    applied(Rule::BlockPointerStore);
    RankedTensorType type = cast<RankedTensorType>(op.getValue().getType());
    BlockBuilder build{rewriter, op.getLoc(), type.getShape()};
    Parts parts{adaptor.getPtr(), static_cast<size_t>(type.getRank())};
    SmallVector<Value> at;
    for (size_t d = 0; d < parts.rank; ++d) at.push_back(build.positions(parts.offsets()[d], d));
    Value ptr = build.addresses(parts.base(), at, parts.strides()),
          mask = build.mask(at, parts.sizes(), op.getBoundaryCheck());
    rewriter.replaceOpWithNewOp<tt::StoreOp>(op, ptr, op.getValue(), mask, op.getCache(), op.getEvict());
    return success();
  }
};

/// Addresses and mask of the block at `indices` of a converted descriptor.
std::pair<Value, Value> blockOf(BlockBuilder &build, Parts parts, ValueRange indices) {
  SmallVector<Value> at;
  for (size_t d = 0; d < parts.rank; ++d) at.push_back(build.positions(build.wide(indices[d]), d));
  return {build.addresses(parts.base(), at, parts.strides()), build.mask(at, parts.sizes(), allAxes(parts.rank))};
}

struct DescriptorLoad : Pattern<tt::DescriptorLoadOp> {
  using Pattern::Pattern;
  LogicalResult matchAndRewrite(tt::DescriptorLoadOp op, Adaptor adaptor,
                                ConversionPatternRewriter &rewriter) const final {
    applied(Rule::DescriptorLoad);
    tt::TensorDescType type = op.getDesc().getType();
    BlockBuilder build{rewriter, op.getLoc(), type.getShape()};
    Parts parts{adaptor.getDesc(), type.getShape().size()};
    auto [ptr, mask] = blockOf(build, parts, op.getIndices());
    Value other = build.padding(type.getBlockType().getElementType(), parts.padding());
    Value v = tt::LoadOp::create(rewriter, op.getLoc(), ptr, mask, other, op.getCache(), op.getEvict());
    if (v.getType() != op.getType())
      v = tt::ReshapeOp::create(rewriter, op.getLoc(), cast<RankedTensorType>(op.getType()).getShape(), v);
    rewriter.replaceOp(op, v);
    return success();
  }
};

/// A stored or reduced block in the descriptor's own shape (leading axes of length 1 may be missing).
Value inBlockShape(BlockBuilder &build, Value v) {
  if (cast<RankedTensorType>(v.getType()).getShape() == build.shape) return v;
  return tt::ReshapeOp::create(build.b, build.loc, build.shape, v);
}

struct DescriptorStore : Pattern<tt::DescriptorStoreOp> {
  using Pattern::Pattern;
  LogicalResult matchAndRewrite(tt::DescriptorStoreOp op, Adaptor adaptor,
                                ConversionPatternRewriter &rewriter) const final {
    applied(Rule::DescriptorStore);
    tt::TensorDescType type = op.getDesc().getType();
    BlockBuilder build{rewriter, op.getLoc(), type.getShape()};
    auto [ptr, mask] = blockOf(build, {adaptor.getDesc(), type.getShape().size()}, op.getIndices());
    rewriter.replaceOpWithNewOp<tt::StoreOp>(op, ptr, inBlockShape(build, op.getSrc()), mask, tt::CacheModifier::NONE,
                                             tt::EvictionPolicy::NORMAL);
    return success();
  }
};

struct DescriptorReduce : Pattern<tt::DescriptorReduceOp> {
  using Pattern::Pattern;
  LogicalResult matchAndRewrite(tt::DescriptorReduceOp op, Adaptor adaptor,
                                ConversionPatternRewriter &rewriter) const final {
    applied(Rule::DescriptorReduce);
    tt::TensorDescType type = op.getDesc().getType();
    bool real = isa<FloatType>(type.getBlockType().getElementType());
    IntegerType integer = dyn_cast<IntegerType>(type.getElementType());
    bool isUnsigned = integer && integer.isUnsigned();
    tt::RMWOp kind;
    switch (op.getKind()) {
    case tt::DescriptorReduceKind::ADD: kind = real ? tt::RMWOp::FADD : tt::RMWOp::ADD; break;
    case tt::DescriptorReduceKind::MIN: kind = isUnsigned ? tt::RMWOp::UMIN : tt::RMWOp::MIN; break;
    case tt::DescriptorReduceKind::MAX: kind = isUnsigned ? tt::RMWOp::UMAX : tt::RMWOp::MAX; break;
    case tt::DescriptorReduceKind::AND: kind = tt::RMWOp::AND; break;
    case tt::DescriptorReduceKind::OR: kind = tt::RMWOp::OR; break;
    case tt::DescriptorReduceKind::XOR: kind = tt::RMWOp::XOR; break;
    default: return op.emitOpError("has no atomic that does the same");
    }
    BlockBuilder build{rewriter, op.getLoc(), type.getShape()};
    auto [ptr, mask] = blockOf(build, {adaptor.getDesc(), type.getShape().size()}, op.getIndices());
    Value src = inBlockShape(build, op.getSrc());
    tt::AtomicRMWOp::create(rewriter, op.getLoc(), src.getType(), kind, ptr, src, mask, tt::MemSemantic::RELAXED,
                            tt::MemSyncScope::GPU);
    rewriter.eraseOp(op);
    return success();
  }
};

/// Addresses and mask of picked rows [R, C].
std::pair<Value, Value> rowsOf(BlockBuilder &build, Parts parts, Value rows, Value column) {
  SmallVector<Value> at = {build.alongAxis(build.wide(rows), 0), build.positions(build.wide(column), 1)};
  return {build.addresses(parts.base(), at, parts.strides()), build.mask(at, parts.sizes(), {0, 1})};
}

struct DescriptorGather : Pattern<tt::DescriptorGatherOp> {
  using Pattern::Pattern;
  LogicalResult matchAndRewrite(tt::DescriptorGatherOp op, Adaptor adaptor,
                                ConversionPatternRewriter &rewriter) const final {
    applied(Rule::DescriptorGather);
    RankedTensorType type = cast<RankedTensorType>(op.getType());
    BlockBuilder build{rewriter, op.getLoc(), type.getShape()};
    Parts parts{adaptor.getDesc(), 2};
    auto [ptr, mask] = rowsOf(build, parts, op.getXOffsets(), op.getYOffset());
    rewriter.replaceOpWithNewOp<tt::LoadOp>(op, ptr, mask, build.padding(type.getElementType(), parts.padding()),
                                            tt::CacheModifier::NONE, tt::EvictionPolicy::NORMAL, false);
    return success();
  }
};

struct DescriptorScatter : Pattern<tt::DescriptorScatterOp> {
  using Pattern::Pattern;
  LogicalResult matchAndRewrite(tt::DescriptorScatterOp op, Adaptor adaptor,
                                ConversionPatternRewriter &rewriter) const final {
    applied(Rule::DescriptorScatter);
    RankedTensorType type = cast<RankedTensorType>(op.getSrc().getType());
    BlockBuilder build{rewriter, op.getLoc(), type.getShape()};
    auto [ptr, mask] = rowsOf(build, {adaptor.getDesc(), 2}, op.getXOffsets(), op.getYOffset());
    rewriter.replaceOpWithNewOp<tt::StoreOp>(op, ptr, op.getSrc(), mask, tt::CacheModifier::NONE,
                                             tt::EvictionPolicy::NORMAL);
    return success();
  }
};

/// A descriptor parameter becomes a pointer; the descriptor is then made at the entry from the shape and stride
/// parameters.
void openParameters(tt::FuncOp func) {
  if (func.isExternal()) return;
  OpBuilder builder(&func.getBody().front(), func.getBody().front().begin());
  SmallVector<Type> types(func.getArgumentTypes());
  for (size_t i = 0; i < types.size(); ++i) {
    tt::TensorDescType type = dyn_cast<tt::TensorDescType>(types[i]);
    if (!type) continue;
    size_t rank = type.getShape().size();
    bool follows = i + 2 * rank < types.size();
    for (size_t d = 1; follows && d <= 2 * rank; ++d)
      follows = types[i + d] == (d <= rank ? Type(builder.getI32Type()) : Type(builder.getI64Type()));
    if (!follows) continue; // the conversion then reports it
    BlockArgument arg = func.getArgument(i);
    types[i] = tt::PointerType::get(type.getBlockType().getElementType());
    arg.setType(types[i]);
    ValueRange rest = func.getArguments();
    tt::MakeTensorDescOp made =
        tt::MakeTensorDescOp::create(builder, arg.getLoc(), type, arg, rest.slice(i + 1, rank),
                                     rest.slice(i + 1 + rank, rank), tt::PaddingOption::PAD_ZERO);
    arg.replaceAllUsesExcept(made, made);
  }
  func.setType(FunctionType::get(func.getContext(), types, func.getResultTypes()));
}

} // namespace

Status rewriteDescriptors(ModuleOp module) {
  MLIRContext *ctx = module.getContext();
  DiagnosticCapture capture(ctx);
  module.walk([](tt::FuncOp func) { openParameters(func); });
  TypeConverter converter;
  converter.addConversion([](Type type) { return type; });
  Type i64 = IntegerType::get(ctx, 64), i1 = IntegerType::get(ctx, 1);
  converter.addConversion([=](tt::TensorDescType type, SmallVectorImpl<Type> &out) -> std::optional<LogicalResult> {
    out.push_back(tt::PointerType::get(type.getBlockType().getElementType()));
    out.append(2 * type.getShape().size(), i64);
    out.push_back(i1);
    return success();
  });
  converter.addConversion([=](tt::PointerType type, SmallVectorImpl<Type> &out) -> std::optional<LogicalResult> {
    if (!type.isBlock()) return std::nullopt;
    out.push_back(tt::elementPointer(type));
    out.append(3 * cast<RankedTensorType>(type.getPointeeType()).getRank(), i64);
    return success();
  });
  RewritePatternSet patterns(ctx);
  patterns.add<MakeDescriptor, MakeBlockPointer, Advance, BlockLoad, BlockStore, DescriptorLoad, DescriptorStore,
               DescriptorReduce, DescriptorGather, DescriptorScatter>(converter, ctx);
  ConversionTarget target(*ctx);
  scf::populateSCFStructuralTypeConversionsAndLegality(converter, patterns, target);
  target.addLegalDialect<arith::ArithDialect>();
  target.addDynamicallyLegalDialect<tt::TileDialect>([&](Operation *op) {
    if (isa<tt::FuncOp, tt::ReturnOp, tt::CallOp>(op)) return true; // checked below
    return converter.isLegal(op);
  });
  target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
  if (failed(applyPartialConversion(module, target, std::move(patterns))))
    return capture.take(diag::TilePassFailed,
                        "a descriptor or block pointer is used in a way that cannot become addresses and masks");
  Status status;
  module.walk([&](Operation *op) {
    for (Value v : op->getOperands())
      if (status && !converter.isLegal(v.getType()))
        status = fail(diag::TilePassFailed, sourceLoc(op->getLoc()),
                      fmt::format("'{}' takes a descriptor or block pointer, which cannot become addresses here",
                                  op->getName().getStringRef().str()));
  });
  return status;
}

} // namespace neso
