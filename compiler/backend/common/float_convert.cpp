#include "backend/common/float_convert.h"

#include <cmath>

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/IR/Intrinsics.h"

namespace neso {

using llvm::Value;

std::optional<F8Format> f8Format(mlir::Type t) {
  if (llvm::isa<mlir::Float8E4M3FNType>(t)) return F8Format{3, 7, 0x7e, 0x7f, false};
  if (llvm::isa<mlir::Float8E5M2Type>(t)) return F8Format{2, 15, 0x7b, 0x7f, false};
  if (llvm::isa<mlir::Float8E4M3FNUZType>(t)) return F8Format{3, 8, 0x7f, 0x80, true};
  if (llvm::isa<mlir::Float8E5M2FNUZType>(t)) return F8Format{2, 16, 0x7f, 0x80, true};
  if (llvm::isa<mlir::Float8E4M3B11FNUZType>(t)) return F8Format{3, 11, 0x7f, 0x80, true};
  return std::nullopt;
}

llvm::Type *FloatConverter::shaped(Value *like, llvm::Type *element) {
  if (auto *v = llvm::dyn_cast<llvm::VectorType>(like->getType()))
    return llvm::VectorType::get(element, v->getElementCount());
  return element;
}

Value *FloatConverter::ci(Value *like, int64_t c) {
  return llvm::ConstantInt::getSigned(shaped(like, b.getInt32Ty()), c);
}

Value *FloatConverter::decodeBf16(Value *v) {
  return floatOf(b.CreateShl(b.CreateZExt(v, shaped(v, b.getInt32Ty())), 16));
}

Value *FloatConverter::decodeF16(Value *v) {
  Value *x = b.CreateZExt(b.CreateBitCast(v, shaped(v, b.getInt16Ty())), shaped(v, b.getInt32Ty()));
  Value *magnitude = b.CreateAnd(x, ci(x, 0x7fff)), *sign = b.CreateShl(b.CreateAnd(x, ci(x, 0x8000)), 16);
  // As with f8: one exact multiplication corrects the bias.
  Value *raised = b.CreateShl(magnitude, 13);
  Value *scaled = bitsOf(b.CreateFMul(floatOf(raised), llvm::ConstantFP::get(shaped(x, b.getFloatTy()), 0x1p112)));
  // Infinity keeps its zeros, a NaN what it says, and becomes quiet.
  Value *quiet = b.CreateSelect(b.CreateICmpUGT(magnitude, ci(x, 0x7c00)), ci(x, 0x7fc00000), ci(x, 0x7f800000));
  Value *finite = b.CreateICmpULT(magnitude, ci(x, 0x7c00));
  return floatOf(b.CreateOr(b.CreateSelect(finite, scaled, b.CreateOr(raised, quiet)), sign));
}

Value *FloatConverter::encodeF16(Value *v) {
  Value *bits = bitsOf(v), *a = b.CreateAnd(bits, ci(bits, 0x7fffffff)), *sign = b.CreateAnd(b.CreateLShr(bits, 16), ci(bits, 0x8000));
  // Rounded in place: what overflows carries into the exponent of infinity.
  Value *odd = b.CreateAnd(b.CreateLShr(a, 13), ci(a, 1));
  Value *normal = b.CreateLShr(b.CreateAdd(b.CreateAdd(a, ci(a, 0xfff - ((127 - 15) << 23))), odd), 13);
  // Below the least normal number adding a half rounds at the right place.
  Value *half = llvm::ConstantFP::get(shaped(v, b.getFloatTy()), 0.5);
  Value *tiny = b.CreateSub(bitsOf(b.CreateFAdd(floatOf(a), half)), bitsOf(half));
  Value *code = b.CreateSelect(b.CreateICmpULT(a, ci(a, 0x38800000)), tiny, normal);
  Value *nan = b.CreateOr(b.CreateAnd(b.CreateLShr(a, 13), ci(a, 0x3ff)), ci(a, 0x7e00));
  Value *beyond = b.CreateSelect(b.CreateICmpUGT(a, ci(a, 0x7f800000)), nan, ci(a, 0x7c00));
  code = b.CreateOr(b.CreateSelect(b.CreateICmpUGE(a, ci(a, 0x47800000)), beyond, code), sign);
  return b.CreateBitCast(b.CreateTrunc(code, shaped(v, b.getInt16Ty())), shaped(v, b.getHalfTy()));
}

Value *FloatConverter::decodeF8(Value *v, const F8Format &f) {
  Value *x = b.CreateZExt(v, shaped(v, b.getInt32Ty()));
  Value *magnitude = b.CreateAnd(x, ci(x, 0x7f));
  Value *sign = b.CreateShl(b.CreateAnd(x, ci(x, 0x80)), 24);
  // The exponent field lands in f32's; one exact multiplication corrects the bias, subnormals included.
  Value *scaled = b.CreateFMul(floatOf(b.CreateShl(magnitude, 23 - f.mantissa)),
                               llvm::ConstantFP::get(shaped(x, b.getFloatTy()), std::ldexp(1.0, 127 - f.bias)));
  Value *r = b.CreateOr(bitsOf(scaled), sign);
  Value *quiet = ci(x, 0x7fc00000);
  if (f.fnuz) return floatOf(b.CreateSelect(b.CreateICmpEQ(x, ci(x, 0x80)), quiet, r));
  if (f.maxCode == 0x7e)
    return floatOf(b.CreateSelect(b.CreateICmpEQ(magnitude, ci(x, 0x7f)), b.CreateOr(quiet, sign), r));
  // E5M2: exponent 31 stands for infinity and NaN.
  Value *special = b.CreateOr(b.CreateOr(b.CreateShl(magnitude, 21), ci(x, 0x7f800000)), sign);
  return floatOf(b.CreateSelect(b.CreateICmpUGE(magnitude, ci(x, 0x7c)), special, r));
}

Value *FloatConverter::encodeF8(Value *v, const F8Format &f, bool towardZero) {
  Value *bits = bitsOf(v);
  Value *a = b.CreateAnd(bits, ci(bits, 0x7fffffff));
  Value *sign = b.CreateAnd(b.CreateLShr(bits, 24), ci(bits, 0x80));
  const int shift = 23 - f.mantissa;
  Value *odd = b.CreateAnd(b.CreateLShr(a, shift), ci(a, 1));
  Value *rounded = b.CreateLShr(towardZero ? a : b.CreateAdd(b.CreateAdd(a, ci(a, (1 << (shift - 1)) - 1)), odd), shift);
  Value *normal = b.CreateSub(rounded, ci(a, (127 - f.bias) << f.mantissa));
  // Subnormals are multiples of one power of two: a sum with 2^23 of these rounds at the right place, their number as an integer drops the rest.
  const int unit = 1 - f.bias - f.mantissa;
  auto power = [&](int exponent) { return llvm::ConstantFP::get(shaped(v, b.getFloatTy()), std::ldexp(1.0, exponent)); };
  Value *magic = power(unit + 23);
  Value *tiny = towardZero ? b.CreateFPToUI(b.CreateFMul(floatOf(a), power(-unit)), a->getType())
                           : b.CreateSub(bitsOf(b.CreateFAdd(floatOf(a), magic)), bitsOf(magic));
  Value *smallest = ci(a, (127 + 1 - f.bias) << 23);
  Value *code = b.CreateSelect(b.CreateICmpULT(a, smallest), tiny, normal);
  code = b.CreateSelect(b.CreateOr(b.CreateICmpUGT(code, ci(a, f.maxCode)), b.CreateICmpUGE(a, ci(a, 0x47800000))),
                        ci(a, f.maxCode), code);
  Value *isNan = b.CreateICmpUGT(a, ci(a, 0x7f800000));
  Value *signed_ = b.CreateOr(code, sign);
  if (f.fnuz) signed_ = b.CreateSelect(b.CreateICmpEQ(code, ci(a, 0)), ci(a, 0), signed_);
  Value *nan = f.fnuz ? ci(a, 0x80) : b.CreateOr(ci(a, f.nan), sign);
  return b.CreateTrunc(b.CreateSelect(isNan, nan, signed_), shaped(v, b.getInt8Ty()));
}

Value *FloatConverter::encodeBf16(Value *v, bool towardZero) {
  Value *bits = bitsOf(v);
  Value *odd = b.CreateAnd(b.CreateLShr(bits, 16), ci(bits, 1));
  Value *r = towardZero ? bits : b.CreateAdd(b.CreateAdd(bits, ci(bits, 0x7fff)), odd);
  Value *nan = b.CreateOr(bits, ci(bits, 0x400000));
  Value *kept = b.CreateSelect(b.CreateFCmpUNO(v, v), nan, r);
  return b.CreateTrunc(b.CreateLShr(kept, 16), shaped(v, b.getInt16Ty()));
}

Value *FloatConverter::toF32TowardZero(Value *v) {
  Value *near = b.CreateFPTrunc(v, shaped(v, b.getFloatTy()));
  Value *over = b.CreateFCmpOGT(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, b.CreateFPExt(near, v->getType())),
                                b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v));
  Value *bits = bitsOf(near);
  return floatOf(b.CreateSub(bits, b.CreateZExt(over, bits->getType())));
}

Value *FloatConverter::toOddF32(Value *v) {
  llvm::Type *f32 = shaped(v, b.getFloatTy());
  Value *near = b.CreateFPTrunc(v, f32);
  Value *back = b.CreateFPExt(near, v->getType());
  Value *bits = bitsOf(near);
  Value *inexact = b.CreateFCmpONE(back, v);
  Value *over = b.CreateFCmpOGT(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back),
                                b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v));
  Value *down = b.CreateSelect(over, b.CreateSub(bits, ci(bits, 1)), bits);
  return floatOf(b.CreateSelect(inexact, b.CreateOr(down, ci(bits, 1)), bits));
}

Value *FloatConverter::encodeF16TowardZero(Value *v) {
  llvm::Type *f16 = shaped(v, b.getHalfTy());
  Value *near = b.CreateFPTrunc(v, f16);
  Value *back = b.CreateFPExt(near, v->getType());
  Value *over = b.CreateFCmpOGT(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back),
                                b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v));
  llvm::Type *i16 = shaped(v, b.getInt16Ty());
  Value *bits = b.CreateBitCast(near, i16);
  return b.CreateBitCast(b.CreateSub(bits, b.CreateZExt(over, i16)), f16);
}

static constexpr double kFp4[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

Value *FloatConverter::decodeFp4(Value *v) {
  llvm::Type *f32 = shaped(v, b.getFloatTy());
  Value *code = b.CreateAnd(v, 7), *r = llvm::ConstantFP::get(f32, 0.0);
  for (int k = 1; k < 8; ++k) r = b.CreateSelect(b.CreateICmpEQ(code, ci(v, k)), llvm::ConstantFP::get(f32, kFp4[k]), r);
  return b.CreateSelect(b.CreateICmpNE(b.CreateAnd(v, 8), ci(v, 0)), b.CreateFNeg(r), r);
}

Value *FloatConverter::encodeFp4(Value *v) {
  llvm::Type *i32 = shaped(v, b.getInt32Ty());
  Value *r = llvm::ConstantInt::get(i32, 0), *size = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v);
  for (int k = 1; k < 8; ++k) {
    // Halfway between two codes goes to the even one; NaN is above all.
    llvm::Constant *middle = llvm::ConstantFP::get(v->getType(), (kFp4[k - 1] + kFp4[k]) / 2);
    r = b.CreateAdd(r, b.CreateZExt(k % 2 == 0 ? b.CreateFCmpUGE(size, middle) : b.CreateFCmpUGT(size, middle), i32));
  }
  Value *sign = b.CreateAnd(b.CreateLShr(bitsOf(v), 28), 8);
  return b.CreateOr(r, b.CreateSelect(b.CreateFCmpUNO(v, v), llvm::ConstantInt::get(i32, 0), sign));
}

} // namespace neso
