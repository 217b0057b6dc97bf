// One operation on elements: integers, floats, casts; maps and inline assembly over the registers of a tensor.
#include "backend/nvidia/emitter.h"

#include "backend/common/inline_asm.h"
#include "backend/common/llvm_common.h"
#include "backend/common/scalar_ops.h"
#include "backend/nvidia/linear.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace neso::nvidia {

using llvm::Value;

namespace {
bool isReduced(mlir::Type t) { return llvm::isa<mlir::FloatType>(t) && t.getIntOrFloatBitWidth() < 32; }
} // namespace

namespace {
/// Whether a small error of the result may become a large one: it is rounded to an integer or compared further on.
bool decidesSomething(mlir::Operation *op) {
  llvm::SmallVector<mlir::Operation *, 8> todo = {op};
  llvm::SmallPtrSet<mlir::Operation *, 16> seen = {op};
  while (!todo.empty()) {
    for (mlir::Operation *user : todo.pop_back_val()->getUsers()) {
      switch (codeOf(user)) {
      case OpCode::FPToSI:
      case OpCode::FPToUI:
      case OpCode::Floor:
      case OpCode::Ceil:
      case OpCode::Round:
      case OpCode::RoundEven:
      case OpCode::Trunc:
      case OpCode::CmpF:
      case OpCode::Extern:
      case OpCode::InlineAsm: return true;
      default: break;
      }
      if (classOf(codeOf(user)) == OpClass::Element && seen.insert(user).second) todo.push_back(user);
    }
  }
  return false;
}
} // namespace

void Emitter::emitElementwise(mlir::Operation *op) {
  llvm::SmallVector<Value *, 4> args(op->getNumOperands(), nullptr);
  if (!llvm::isa<mlir::RankedTensorType>(op->getResult(0).getType())) {
    for (unsigned i = 0; i < args.size(); ++i) args[i] = scalar(op->getOperand(i));
    llvm::SmallVector<Value *, 2> results = emitElement(op, args);
    for (unsigned i = 0; i < results.size(); ++i) scalars_[op->getResult(i)] = results[i];
    return;
  }
  LayoutRef layout = layoutOf(op->getResult(0));
  const int count = static_cast<int>(layout->inSize(kRegister));
  llvm::SmallVector<Tile, 2> tiles(op->getNumResults(), Tile{*layout, {}});
  for (int r = 0; r < count && !failed(); ++r) {
    int alike = firstAlike(op->getResult(0), layout, r);
    for (unsigned i = 1; i < tiles.size(); ++i) alike |= firstAlike(op->getResult(i), layout, r);
    if (alike != r) {
      for (Tile &t : tiles) t.values.push_back(t.values[static_cast<size_t>(alike)]);
      continue;
    }
    for (unsigned i = 0; i < args.size(); ++i) args[i] = element(op->getOperand(i), r);
    llvm::SmallVector<Value *, 2> results = emitElement(op, args);
    for (unsigned i = 0; i < results.size(); ++i) tiles[i].values.push_back(results[i]);
  }
  for (unsigned i = 0; i < tiles.size(); ++i) define(op->getResult(i), std::move(tiles[i]));
}

llvm::SmallVector<Value *, 2> Emitter::emitElement(mlir::Operation *op, llvm::ArrayRef<Value *> args) {
  const OpCode code = codeOf(op);
  mlir::Type resultType = elementOf(op->getResult(0).getType());
  if (code == OpCode::MulSIExtended || code == OpCode::MulUIExtended) {
    auto [low, high] = emitExtendedProduct(b, code, args[0], args[1]);
    return {low, high};
  }
  Value *r = emitInteger(op, code, args);
  if (!r) r = emitCast(op, code, args[0]);
  if (!r && code == OpCode::Extern) r = emitExtern(op, op->getAttrOfType<mlir::StringAttr>("symbol").getValue(), args);
  mlir::Type operandType = elementOf(op->getOperand(code == OpCode::Select ? 1 : 0).getType());
  if (!r && llvm::isa<mlir::FloatType>(operandType)) {
    // Narrow types compute in f32 and round after each operation.
    llvm::SmallVector<Value *, 4> wide(args.begin(), args.end());
    mlir::Type compute = operandType;
    if (isReduced(operandType)) {
      compute = mlir::Float32Type::get(op->getContext());
      for (unsigned i = 0; i < wide.size(); ++i)
        if (elementOf(op->getOperand(i).getType()) == operandType)
          wide[i] = convertFloat(wide[i], operandType, compute);
    }
    r = emitFloat(op, code, wide, compute);
    if (r && isReduced(resultType)) r = convertFloat(r, compute, resultType);
  }
  if (!r) {
    std::string what = "operation " + op->getName().getStringRef().str();
    if (code == OpCode::Extern)
      what = "the library function '" + op->getAttrOfType<mlir::StringAttr>("symbol").getValue().str() + "'";
    fail(op, what);
    r = llvm::PoisonValue::get(typeOf(resultType));
  }
  return {r};
}

Value *Emitter::emitInteger(mlir::Operation *op, OpCode code, llvm::ArrayRef<Value *> args) {
  mlir::Type resultType = elementOf(op->getResult(0).getType());
  if (code == OpCode::AddPtr) {
    mlir::Type pointee = llvm::cast<tt::PointerType>(resultType).getPointeeType();
    return b.CreateGEP(memoryTypeOf(pointee), args[0], b.CreateSExtOrTrunc(args[1], b.getInt64Ty()));
  }
  return emitIntegerOp(b, op, code, args, typeOf(resultType),
                       [&](OpCode kind, Value *n, Value *d) { return divideScalars(b, kind, n, d); });
}

Value *Emitter::emitCast(mlir::Operation *op, OpCode code, Value *x) {
  mlir::Type from = elementOf(op->getOperand(0).getType()), to = elementOf(op->getResult(0).getType());
  llvm::Type *type = typeOf(to);
  mlir::Type f32 = mlir::Float32Type::get(op->getContext());
  switch (code) {
  case OpCode::ExtF:
  case OpCode::TruncF: return convertFloat(x, from, to);
  case OpCode::FpToFp: {
    auto rounding = op->getAttrOfType<mlir::IntegerAttr>("rounding");
    return convertFloat(x, from, to, rounding && rounding.getInt() == 0);
  }
  case OpCode::SIToFP:
  case OpCode::UIToFP: {
    // i64 to a narrow float by way of f64, whose rounding convertFloat takes into account.
    const bool exact = x->getType()->getIntegerBitWidth() <= 16;
    mlir::Type via = !isReduced(to) ? to : exact ? f32 : mlir::Type(mlir::Float64Type::get(op->getContext()));
    Value *f = code == OpCode::SIToFP ? b.CreateSIToFP(x, typeOf(via)) : b.CreateUIToFP(x, typeOf(via));
    return convertFloat(f, via, to);
  }
  case OpCode::FPToSI:
  case OpCode::FPToUI: {
    // Values out of range saturate at 32 and 64 bits, as the machine has it, and wrap from there to narrow types.
    Value *f = isReduced(from) ? convertFloat(x, from, f32) : x;
    const unsigned bits = type->getIntegerBitWidth();
    const bool isSigned = code == OpCode::FPToSI || bits < 32;
    llvm::Type *wide = bits < 32 ? b.getInt32Ty() : type;
    Value *i = b.CreateIntrinsic(isSigned ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat,
                                 {wide, f->getType()}, {f});
    return b.CreateTrunc(i, type);
  }
  default: return nullptr;
  }
}

Value *Emitter::emitFloat(mlir::Operation *op, OpCode code, llvm::ArrayRef<Value *> args, mlir::Type type) {
  Value *x = args[0], *y = args.size() > 1 ? args[1] : nullptr;
  const bool f32 = type.isF32();
  auto approximate = [&](llvm::Intrinsic::ID id, llvm::ArrayRef<Value *> operands) {
    return b.CreateIntrinsic(id, {}, operands);
  };
  switch (code) {
  case OpCode::AddF:
  case OpCode::SubF:
  case OpCode::MulF: {
    // A product and a sum may become one fma, as in Triton.
    llvm::IRBuilderBase::FastMathFlagGuard guard(b);
    llvm::FastMathFlags flags;
    flags.setAllowContract();
    b.setFastMathFlags(flags);
    return emitFloatOp(b, op, code, args);
  }
  case OpCode::DivF:
    if (decidesSomething(op)) return emitFloatOp(b, op, OpCode::PreciseDivF, args);
    [[fallthrough]];
  case OpCode::ApproxDivF: // 2 units in the last place over the full range
    return f32 ? approximate(llvm::Intrinsic::nvvm_div_full, {x, y}) : emitFloatOp(b, op, OpCode::PreciseDivF, args);
  case OpCode::Sqrt:
    return f32 ? approximate(llvm::Intrinsic::nvvm_sqrt_approx_f, {x}) : emitFloatOp(b, op, OpCode::PreciseSqrt, args);
  case OpCode::Rsqrt:
    if (f32) return approximate(llvm::Intrinsic::nvvm_rsqrt_approx_f, {x});
    break;
  case OpCode::FPowI: return emitMath(MathFn::Pow, {x, b.CreateSIToFP(y, x->getType())});
  default: break;
  }
  if (std::optional<MathFn> function = functionOf(op, code)) return emitMath(*function, args);
  return emitFloatOp(b, op, code, args);
}

llvm::SmallVector<Value *, 2> Emitter::emitRegion(mlir::Region &region, llvm::ArrayRef<Value *> args) {
  llvm::SmallVector<Value *, 2> results;
  if (!region.hasOneBlock()) {
    fail(region.getParentOp(), "branches in the body of " + region.getParentOp()->getName().getStringRef().str());
    return results;
  }
  mlir::Block &block = region.front();
  // The region is emitted once for each set of elements; its values are new each time.
  for (unsigned i = 0; i < args.size(); ++i) scalars_[block.getArgument(i)] = args[i];
  for (mlir::Operation &op : block.without_terminator()) {
    if (failed()) break;
    emitOp(&op);
  }
  for (mlir::Value v : block.getTerminator()->getOperands())
    results.push_back(failed() ? llvm::PoisonValue::get(typeOf(v.getType())) : scalar(v));
  return results;
}

void Emitter::emitMap(mlir::Operation *op) {
  auto packAttr = op->getAttrOfType<mlir::IntegerAttr>("pack");
  const int pack = packAttr ? static_cast<int>(packAttr.getInt()) : 1;
  LayoutRef layout = layoutOf(op->getResult(0));
  const int count = static_cast<int>(layout->inSize(kRegister));
  // A pack is neighbours of the tensor: they must be neighbours in a thread.
  const std::string last = dimName(static_cast<int>(layout->outs().size()) - 1);
  if (pack > 1 && layout->consecutiveRun(kRegister, last) < pack) {
    llvm::ArrayRef<int64_t> shape = shapeOf(op->getResult(0).getType());
    LinearLayout packed = LinearLayout::identity1D(std::min<int64_t>(pack, shape.back()), kRegister, last);
    return fail(op,
                "tt.map_elementwise over packs of " + std::to_string(pack) + " elements that lie in several threads");
  }
  llvm::SmallVector<Tile, 2> tiles(op->getNumResults(), Tile{*layout, {}});
  for (int r = 0; r < count && !failed(); r += pack) {
    llvm::SmallVector<Value *, 8> args;
    for (mlir::Value operand : op->getOperands())
      for (int p = 0; p < pack; ++p) args.push_back(element(operand, r + p));
    llvm::SmallVector<Value *, 2> results = emitRegion(op->getRegion(0), args);
    for (size_t i = 0; i < results.size(); ++i) tiles[i / static_cast<size_t>(pack)].values.push_back(results[i]);
  }
  for (unsigned i = 0; i < tiles.size(); ++i) define(op->getResult(i), std::move(tiles[i]));
}

void Emitter::emitInlineAsm(mlir::Operation *op) {
  auto assembly = llvm::cast<tt::ElementwiseInlineAsmOp>(op);
  const int pack = static_cast<int>(assembly.getPackedElement());
  const bool tensor = llvm::isa<mlir::RankedTensorType>(op->getResult(0).getType());
  LayoutRef layout = tensor ? layoutOf(op->getResult(0)) : nullptr;
  const int count = tensor ? static_cast<int>(layout->inSize(kRegister)) : 1;
  llvm::SmallVector<Tile, 2> tiles(op->getNumResults());
  if (tensor)
    for (Tile &t : tiles) t.layout = *layout;

  if (std::optional<std::string> misfit = constraintMisfit(op)) return fail(op, "an inline assembly with " + *misfit);
  auto perWord = [&](mlir::Type element) { return elementsPerRegister(pack, bytesOf(element)); };
  for (int r = 0; r < count; r += pack) {
    llvm::SmallVector<Value *, 8> args;
    for (mlir::Value operand : op->getOperands()) {
      mlir::Type type = elementOf(operand.getType());
      const int n = perWord(type);
      for (int p = 0; p < pack; p += n) {
        llvm::SmallVector<Value *, 4> group;
        // Where a thread has fewer elements than a pack, the last one stands in.
        for (int k = 0; k < n; ++k)
          group.push_back(tensor ? element(operand, std::min(r + p + k, count - 1)) : scalar(operand));
        if (n == 1) {
          Value *v = group[0];
          args.push_back(v->getType()->isBFloatTy() ? b.CreateBitCast(v, b.getInt16Ty()) : v);
          continue;
        }
        llvm::Type *storage = storageType(group[0]->getType());
        Value *vector = llvm::PoisonValue::get(llvm::FixedVectorType::get(storage, static_cast<unsigned>(n)));
        for (int k = 0; k < n; ++k)
          vector = b.CreateInsertElement(vector, toStorage(b, group[static_cast<size_t>(k)]), static_cast<uint64_t>(k));
        args.push_back(
            b.CreateBitCast(vector, b.getIntNTy(static_cast<unsigned>(n) * storage->getPrimitiveSizeInBits())));
      }
    }
    llvm::SmallVector<llvm::Type *, 4> results;
    for (mlir::Value v : op->getResults()) {
      mlir::Type type = elementOf(v.getType());
      const int n = perWord(type);
      llvm::Type *t = n > 1 ? static_cast<llvm::Type *>(b.getIntNTy(static_cast<unsigned>(n * bytesOf(type) * 8)))
                      : type.isBF16() ? b.getInt16Ty()
                                      : typeOf(type);
      for (int p = 0; p < pack; p += n) results.push_back(t);
    }
    llvm::Type *resultType =
        results.size() == 1 ? results[0] : static_cast<llvm::Type *>(llvm::StructType::get(b.getContext(), results));
    llvm::SmallVector<llvm::Type *, 8> types;
    for (Value *a : args) types.push_back(a->getType());
    auto *type = llvm::FunctionType::get(resultType, types, false);
    const bool pure = assembly.getPure();
    llvm::CallInst *call = b.CreateCall(
        type, llvm::InlineAsm::get(type, assembly.getAsmString().str(), assembly.getConstraints().str(), !pure), args);
    call->setDoesNotThrow();
    if (pure) call->setDoesNotAccessMemory();
    unsigned next = 0;
    for (unsigned i = 0; i < op->getNumResults(); ++i) {
      mlir::Type element = elementOf(op->getResult(i).getType());
      const int n = perWord(element);
      for (int p = 0; p < pack; p += n, ++next) {
        Value *word = results.size() == 1 ? call : b.CreateExtractValue(call, next);
        for (int k = 0; k < n; ++k) {
          if (r + p + k >= count) break;
          Value *v = word;
          if (n > 1) {
            llvm::Type *storage = storageType(typeOf(element));
            v = b.CreateExtractElement(
                b.CreateBitCast(word, llvm::FixedVectorType::get(storage, static_cast<unsigned>(n))),
                static_cast<uint64_t>(k));
            v = fromStorage(b, v, typeOf(element));
          } else if (element.isBF16()) {
            v = b.CreateBitCast(v, b.getBFloatTy());
          }
          tiles[i].values.push_back(v);
        }
      }
    }
  }
  for (unsigned i = 0; i < op->getNumResults(); ++i) {
    if (tensor)
      define(op->getResult(i), std::move(tiles[i]));
    else
      scalars_[op->getResult(i)] = tiles[i].values[0];
  }
}

} // namespace neso::nvidia
