#include "backend/common/scalar_ops.h"

#include "backend/common/llvm_common.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Intrinsics.h"

namespace neso {

using llvm::Value;

namespace {
Value *intrinsicOf(llvm::IRBuilder<> &b, llvm::Intrinsic::ID id, int operands, llvm::ArrayRef<Value *> args) {
  if (operands == 1) return b.CreateUnaryIntrinsic(id, args[0]);
  if (operands == 2) return b.CreateBinaryIntrinsic(id, args[0], args[1]);
  return b.CreateIntrinsic(id, {args[0]->getType()}, args);
}

/// The integer that every lane of v is known to be.
const llvm::APInt *knownInteger(Value *v) {
  auto *constant = llvm::dyn_cast<llvm::Constant>(v);
  if (constant && constant->getType()->isVectorTy()) constant = constant->getSplatValue();
  auto *integer = llvm::dyn_cast_or_null<llvm::ConstantInt>(constant);
  return integer ? &integer->getValue() : nullptr;
}

/// A shift by the width or more gives zero, or the sign: LLVM leaves it open, and elements that nobody reads must not
/// spoil their neighbours.
Value *shift(llvm::IRBuilder<> &b, OpCode code, Value *x, Value *y) {
  llvm::Type *t = x->getType();
  const unsigned bits = t->getScalarSizeInBits();
  Value *zero = llvm::ConstantInt::get(t, 0), *most = llvm::ConstantInt::get(t, bits - 1);
  auto plain = [&](Value *by) {
    if (code == OpCode::ShlI) return b.CreateShl(x, by);
    return code == OpCode::ShrSI ? b.CreateAShr(x, by) : b.CreateLShr(x, by);
  };
  if (const llvm::APInt *by = knownInteger(y)) {
    if (by->ult(bits)) return plain(y);
    return code == OpCode::ShrSI ? plain(most) : zero;
  }
  Value *over = b.CreateICmpUGE(y, llvm::ConstantInt::get(t, bits));
  if (code == OpCode::ShrSI) return plain(b.CreateSelect(over, most, y));
  Value *by = b.CreateSelect(over, zero, y);
  return b.CreateSelect(over, zero, plain(by));
}

/// Rounded up (CeilDivSI) or down (FloorDivSI).
Value *roundedQuotient(llvm::IRBuilder<> &b, OpCode code, Value *x, Value *y, DivideFn divide) {
  Value *q = divide(OpCode::DivSI, x, y);
  Value *zero = llvm::ConstantInt::get(x->getType(), 0);
  Value *inexact = b.CreateICmpNE(b.CreateSub(x, b.CreateMul(q, y)), zero);
  Value *sameSign = b.CreateICmpSGE(b.CreateXor(x, y), zero);
  const bool up = code == OpCode::CeilDivSI;
  Value *one = b.CreateZExt(b.CreateAnd(inexact, up ? sameSign : b.CreateNot(sameSign)), x->getType());
  return up ? b.CreateAdd(q, one) : b.CreateSub(q, one);
}

/// The sum of x and half with x's sign, cut: half is the largest number below 0.5, so that the sum is exact.
Value *roundHalfAway(llvm::IRBuilder<> &b, Value *x) {
  const bool f64 = x->getType()->getScalarType()->isDoubleTy();
  Value *half = llvm::ConstantFP::get(x->getType(), f64 ? 0x1.fffffffffffffp-2 : 0x1.fffffep-2);
  Value *shifted = b.CreateFAdd(x, b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, half, x));
  return b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, shifted);
}

Value *clamp(llvm::IRBuilder<> &b, mlir::Operation *op, llvm::ArrayRef<Value *> args) {
  auto propagate = op->getAttrOfType<mlir::IntegerAttr>("propagateNan");
  const bool keep = propagate && propagate.getInt() != 0;
  Value *low = b.CreateBinaryIntrinsic(keep ? llvm::Intrinsic::maximum : llvm::Intrinsic::maxnum, args[0], args[1]);
  return b.CreateBinaryIntrinsic(keep ? llvm::Intrinsic::minimum : llvm::Intrinsic::minnum, low, args[2]);
}
} // namespace

Value *divideScalars(llvm::IRBuilder<> &b, OpCode code, Value *x, Value *y) {
  const bool isSigned = code == OpCode::DivSI || code == OpCode::RemSI;
  const bool isRemainder = code == OpCode::RemSI || code == OpCode::RemUI;
  auto plain = [&](Value *d) {
    if (isRemainder) return isSigned ? b.CreateSRem(x, d) : b.CreateURem(x, d);
    return isSigned ? b.CreateSDiv(x, d) : b.CreateUDiv(x, d);
  };
  const llvm::APInt *known = knownInteger(y);
  if (known && !known->isZero() && !(isSigned && known->isAllOnes())) return plain(y);
  llvm::Type *t = x->getType();
  Value *one = llvm::ConstantInt::get(t, 1), *zero = llvm::ConstantInt::get(t, 0);
  Value *d = b.CreateSelect(b.CreateICmpEQ(y, zero), one, y);
  if (!isSigned) return plain(d);
  Value *byMinusOne = b.CreateICmpEQ(d, llvm::Constant::getAllOnesValue(t));
  Value *q = plain(b.CreateSelect(byMinusOne, one, d));
  return b.CreateSelect(byMinusOne, isRemainder ? zero : b.CreateNeg(x), q);
}

std::pair<Value *, Value *> emitExtendedProduct(llvm::IRBuilder<> &b, OpCode code, Value *x, Value *y) {
  llvm::Type *t = x->getType();
  const unsigned bits = t->getScalarSizeInBits();
  llvm::Type *wide = t->getWithNewBitWidth(bits * 2);
  auto extend = [&](Value *v) { return code == OpCode::MulSIExtended ? b.CreateSExt(v, wide) : b.CreateZExt(v, wide); };
  Value *p = b.CreateMul(extend(x), extend(y));
  return {b.CreateTrunc(p, t), b.CreateTrunc(b.CreateLShr(p, bits), t)};
}

std::optional<MathFn> functionOf(OpCode code) {
  switch (code) {
#define NESO_INTEGER(code, instruction)
#define NESO_INTEGER_INTRINSIC(code, id, operands)
#define NESO_FLOAT(code, instruction)
#define NESO_FLOAT_INTRINSIC(code, id, operands)
#define NESO_FUNCTION(code, function)                                                                                  \
  case OpCode::code: return MathFn::function;
#include "backend/common/scalar_ops.def"
  default: return std::nullopt;
  }
}

std::optional<MathFn> functionOf(mlir::Operation *op, OpCode code) {
  const std::optional<MathFn> function = functionOf(code);
  auto marked = llvm::dyn_cast<mlir::arith::ArithFastMathInterface>(op);
  if (!function || !marked || !bitEnumContainsAny(marked.getFastMathFlagsAttr().getValue(), mlir::arith::FastMathFlags::afn)) return function;
  switch (*function) {
  case MathFn::Exp: return MathFn::ExpOrZero;
  case MathFn::Exp2: return MathFn::Exp2OrZero;
  case MathFn::Erfc: return MathFn::ErfcBesideOne;
  default: return function;
  }
}

Value *emitIntegerOp(llvm::IRBuilder<> &b, mlir::Operation *op, OpCode code, llvm::ArrayRef<Value *> args,
                     llvm::Type *type, DivideFn divide) {
  if (args.empty()) return nullptr;
  Value *x = args[0], *y = args.size() > 1 ? args[1] : nullptr;
  switch (code) {
#define NESO_INTEGER(code, instruction)                                                                                \
  case OpCode::code: return b.CreateBinOp(llvm::Instruction::instruction, x, y);
#define NESO_INTEGER_INTRINSIC(code, id, operands)                                                                     \
  case OpCode::code: return intrinsicOf(b, llvm::Intrinsic::id, operands, args);
#define NESO_FLOAT(code, instruction)
#define NESO_FLOAT_INTRINSIC(code, id, operands)
#define NESO_FUNCTION(code, function)
#include "backend/common/scalar_ops.def"
  case OpCode::DivSI:
  case OpCode::DivUI:
  case OpCode::RemSI:
  case OpCode::RemUI: return divide(code, x, y);
  case OpCode::CeilDivSI:
  case OpCode::FloorDivSI: return roundedQuotient(b, code, x, y, divide);
  case OpCode::CeilDivUI: {
    Value *q = divide(OpCode::DivUI, x, y);
    return b.CreateAdd(q, b.CreateZExt(b.CreateICmpNE(b.CreateMul(q, y), x), x->getType()));
  }
  case OpCode::ShlI:
  case OpCode::ShrSI:
  case OpCode::ShrUI: return shift(b, code, x, y);
  case OpCode::CmpI: return emitCompare(b, op, x, y);
  case OpCode::Select: return b.CreateSelect(x, y, args[2]);
  case OpCode::AbsI: return b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x, b.getFalse());
  case OpCode::CtLz: return b.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, x, b.getFalse());
  case OpCode::CtTz: return b.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, x, b.getFalse());
  case OpCode::MulhiUI: return emitExtendedProduct(b, OpCode::MulUIExtended, x, y).second;
  case OpCode::ExtSI:
  case OpCode::IndexCast: return b.CreateSExtOrTrunc(x, type);
  case OpCode::ExtUI:
  case OpCode::IndexCastUI:
  case OpCode::TruncI: return b.CreateZExtOrTrunc(x, type);
  case OpCode::IntToPtr: return b.CreateIntToPtr(x, type);
  case OpCode::PtrToInt: return b.CreatePtrToInt(x, type);
  case OpCode::Bitcast:
  case OpCode::ArithBitcast: return b.CreateBitCast(x, type);
  default: return nullptr;
  }
}

Value *emitFloatOp(llvm::IRBuilder<> &b, mlir::Operation *op, OpCode code, llvm::ArrayRef<Value *> args) {
  Value *x = args[0], *y = args.size() > 1 ? args[1] : nullptr;
  auto magnitude = [&] { return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); };
  switch (code) {
#define NESO_INTEGER(code, instruction)
#define NESO_INTEGER_INTRINSIC(code, id, operands)
#define NESO_FLOAT(code, instruction)                                                                                  \
  case OpCode::code: return b.CreateBinOp(llvm::Instruction::instruction, x, y);
#define NESO_FLOAT_INTRINSIC(code, id, operands)                                                                       \
  case OpCode::code: return intrinsicOf(b, llvm::Intrinsic::id, operands, args);
#define NESO_FUNCTION(code, function)
#include "backend/common/scalar_ops.def"
  case OpCode::NegF: return b.CreateFNeg(x);
  case OpCode::ClampF: return clamp(b, op, args);
  case OpCode::CmpF: return emitCompare(b, op, x, y);
  case OpCode::Round: return roundHalfAway(b, x);
  case OpCode::Rsqrt:
    return b.CreateFDiv(llvm::ConstantFP::get(x->getType(), 1.0), b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
  case OpCode::IsNan: return b.CreateFCmpUNO(x, x);
  case OpCode::IsInf: return b.CreateFCmpOEQ(magnitude(), llvm::ConstantFP::getInfinity(x->getType()));
  case OpCode::IsFinite: return b.CreateFCmpOLT(magnitude(), llvm::ConstantFP::getInfinity(x->getType()));
  default: return nullptr;
  }
}

} // namespace neso
