// Library functions that give integers: of floats, and of integers.
#include <cmath>
#include <limits>

#include "backend/cpu/extern.h"
#include "llvm/IR/Intrinsics.h"

namespace neso::cpu {

namespace {

using directed::Rounding;
using llvm::Value;
using Fn = tile::LibraryFn;
using Call = ExternCall;

/// A whole float as an integer, as NVIDIA's GPUs convert: what is too large is the largest, and NaN is zero, or the highest bit alone where
/// the float or the integer has 64 bits.
Value *wholeToInteger(const Call &c, Value *whole, bool isSigned) {
  llvm::IRBuilder<> &b = c.b;
  Value *r = b.CreateIntrinsic(isSigned ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat, {c.result, c.type()}, {whole});
  const unsigned bits = c.result->getScalarSizeInBits();
  if (bits < 64 && !c.isF64()) return r;
  return b.CreateSelect(b.CreateFCmpUNO(whole, whole), llvm::ConstantInt::get(c.result, llvm::APInt::getSignedMinValue(bits)), r);
}

Value *toInteger(const Call &c, bool isSigned) {
  switch (c.rounding.value_or(Rounding::Zero)) {
  case Rounding::Nearest: return wholeToInteger(c, c.unary(llvm::Intrinsic::roundeven), isSigned);
  case Rounding::Down: return wholeToInteger(c, c.unary(llvm::Intrinsic::floor), isSigned);
  case Rounding::Up: return wholeToInteger(c, c.unary(llvm::Intrinsic::ceil), isSigned);
  case Rounding::Zero: return wholeToInteger(c, c.unary(llvm::Intrinsic::trunc), isSigned);
  }
  return nullptr;
}

Value *truth(const Call &c, Value *condition) { return c.b.CreateZExtOrTrunc(condition, c.result); }
Value *infinity(const Call &c) { return llvm::ConstantFP::getInfinity(c.type()); }

/// The exponent of |x|; of zero and NaN the least integer, of infinity the greatest.
Value *exponent(const Call &c) {
  llvm::IRBuilder<> &b = c.b;
  llvm::Type *bitsType = c.bitsOf(c.type());
  const int mantissa = c.isF64() ? 52 : 23, bias = c.isF64() ? 1023 : 127, up = c.isF64() ? 54 : 25;
  // Numbers too small for an exponent of their own are scaled first.
  Value *a = c.unary(llvm::Intrinsic::fabs), *small = b.CreateFCmpOLT(a, c.number(c.isF64() ? 0x1p-1022 : 0x1p-126));
  Value *bits = b.CreateBitCast(b.CreateSelect(small, b.CreateFMul(a, c.number(std::ldexp(1.0, up))), a), bitsType);
  Value *r = b.CreateSub(b.CreateLShr(bits, mantissa), llvm::ConstantInt::get(bitsType, bias));
  r = b.CreateSub(r, b.CreateSelect(small, llvm::ConstantInt::get(bitsType, up), llvm::Constant::getNullValue(bitsType)));
  auto number = [&](int64_t n) { return llvm::ConstantInt::getSigned(c.result, n); };
  r = b.CreateSelect(b.CreateFCmpOEQ(a, infinity(c)), number(std::numeric_limits<int32_t>::max()), b.CreateSExtOrTrunc(r, c.result));
  return b.CreateSelect(b.CreateFCmpUEQ(a, c.number(0.0)), number(std::numeric_limits<int32_t>::min()), r);
}

Value *half(const Call &c, unsigned shift) {
  Value *bits = c.b.CreateBitCast(c.x(), c.bitsOf(c.type()));
  return c.b.CreateTrunc(shift ? c.b.CreateLShr(bits, shift) : bits, c.result);
}

Value *counted(const Call &c, Value *n) { return c.b.CreateZExtOrTrunc(n, c.result); }

Value *firstOne(const Call &c) {
  // Counted from 1; 0: there is none.
  llvm::IRBuilder<> &b = c.b;
  Value *zero = llvm::Constant::getNullValue(c.type());
  Value *place = b.CreateAdd(b.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, c.x(), b.getFalse()), llvm::ConstantInt::get(c.type(), 1));
  return counted(c, b.CreateSelect(b.CreateICmpEQ(c.x(), zero), zero, place));
}

/// Each byte of the result is one of the eight of x and y, by three bits of the selector.
Value *bytePermute(const Call &c) {
  llvm::IRBuilder<> &b = c.b;
  llvm::Type *wide = c.type()->getWithNewType(b.getInt64Ty());
  Value *both = b.CreateOr(b.CreateZExt(c.x(), wide), b.CreateShl(b.CreateZExt(c.y(), wide), 32)), *selector = b.CreateZExt(c.args[2], wide);
  Value *r = llvm::Constant::getNullValue(wide);
  for (uint64_t k = 0; k < 4; ++k) {
    Value *bits = b.CreateShl(b.CreateAnd(b.CreateLShr(selector, 4 * k), 7), 3);
    r = b.CreateOr(r, b.CreateShl(b.CreateAnd(b.CreateLShr(both, bits), 0xff), 8 * k));
  }
  return b.CreateTrunc(r, c.type());
}

/// Of the lowest 24 bits.
Value *multiply24(const Call &c, bool isSigned) {
  auto low = [&](Value *v) {
    Value *top = c.b.CreateShl(v, 8);
    return isSigned ? c.b.CreateAShr(top, 8) : c.b.CreateLShr(top, 8);
  };
  return c.b.CreateMul(low(c.x()), low(c.y()));
}

Value *multiplyHigh(const Call &c, bool isSigned) {
  const unsigned bits = c.type()->getScalarSizeInBits();
  llvm::Type *wide = c.type()->getWithNewBitWidth(bits * 2);
  auto extend = [&](Value *v) { return isSigned ? c.b.CreateSExt(v, wide) : c.b.CreateZExt(v, wide); };
  return c.b.CreateTrunc(c.b.CreateLShr(c.b.CreateMul(extend(c.x()), extend(c.y())), bits), c.type());
}

/// Means that do not overflow: of what both have and half of what they differ in.
Value *mean(const Call &c, bool isSigned, bool up) {
  Value *apart = c.b.CreateXor(c.x(), c.y());
  Value *halved = isSigned ? c.b.CreateAShr(apart, 1) : c.b.CreateLShr(apart, 1);
  return up ? c.b.CreateSub(c.b.CreateOr(c.x(), c.y()), halved) : c.b.CreateAdd(c.b.CreateAnd(c.x(), c.y()), halved);
}

/// |x - y| + z
Value *addDistance(const Call &c, bool isSigned) {
  Value *most = c.binary(isSigned ? llvm::Intrinsic::smax : llvm::Intrinsic::umax), *least = c.binary(isSigned ? llvm::Intrinsic::smin : llvm::Intrinsic::umin);
  return c.b.CreateAdd(c.b.CreateSub(most, least), c.args[2]);
}

constexpr ExternRow kRows[] = {
    {Fn::ToSigned, 1, 'f', [](const Call &c) { return toInteger(c, true); }},
    {Fn::ToUnsigned, 1, 'f', [](const Call &c) { return toInteger(c, false); }},
    {Fn::EvenInteger, 1, 'f', [](const Call &c) { return wholeToInteger(c, c.unary(llvm::Intrinsic::roundeven), true); }},
    {Fn::RoundedInteger, 1, 'f', [](const Call &c) { return wholeToInteger(c, c.unary(llvm::Intrinsic::round), true); }},
    {Fn::IsNan, 1, 'f', [](const Call &c) { return truth(c, c.b.CreateFCmpUNO(c.x(), c.x())); }},
    {Fn::IsInfinite, 1, 'f', [](const Call &c) { return truth(c, c.b.CreateFCmpOEQ(c.unary(llvm::Intrinsic::fabs), infinity(c))); }},
    {Fn::IsFinite, 1, 'f', [](const Call &c) { return truth(c, c.b.CreateFCmpOLT(c.unary(llvm::Intrinsic::fabs), infinity(c))); }},
    {Fn::SignBit, 1, 'f',
     [](const Call &c) {
       llvm::Type *bits = c.bitsOf(c.type());
       return truth(c, c.b.CreateICmpSLT(c.b.CreateBitCast(c.x(), bits), llvm::Constant::getNullValue(bits)));
     }},
    {Fn::Exponent, 1, 'f', exponent},
    {Fn::Bits, 1, '*', [](const Call &c) { return c.b.CreateBitCast(c.x(), c.result); }},
    {Fn::HighHalf, 1, 'f', [](const Call &c) { return half(c, 32); }},
    {Fn::LowHalf, 1, 'f', [](const Call &c) { return half(c, 0); }},
    {Fn::AbsInteger, 1, 'i', [](const Call &c) -> Value * { return c.b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, c.x(), c.b.getFalse()); }},
    {Fn::Min, 2, 'i', [](const Call &c) { return c.binary(llvm::Intrinsic::smin); }},
    {Fn::Max, 2, 'i', [](const Call &c) { return c.binary(llvm::Intrinsic::smax); }},
    {Fn::UnsignedMin, 2, 'i', [](const Call &c) { return c.binary(llvm::Intrinsic::umin); }},
    {Fn::UnsignedMax, 2, 'i', [](const Call &c) { return c.binary(llvm::Intrinsic::umax); }},
    {Fn::CountOnes, 1, 'i', [](const Call &c) { return counted(c, c.unary(llvm::Intrinsic::ctpop)); }},
    {Fn::CountLeadingZeros, 1, 'i', [](const Call &c) { return counted(c, c.b.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, c.x(), c.b.getFalse())); }},
    {Fn::Reverse, 1, 'i', [](const Call &c) { return c.unary(llvm::Intrinsic::bitreverse); }},
    {Fn::FirstOne, 1, 'i', firstOne},
    {Fn::BytePermute, 3, 'i', bytePermute},
    {Fn::Multiply24, 2, 'i', [](const Call &c) { return multiply24(c, true); }},
    {Fn::UnsignedMultiply24, 2, 'i', [](const Call &c) { return multiply24(c, false); }},
    {Fn::MultiplyHigh, 2, 'i', [](const Call &c) { return multiplyHigh(c, true); }},
    {Fn::UnsignedMultiplyHigh, 2, 'i', [](const Call &c) { return multiplyHigh(c, false); }},
    {Fn::Mean, 2, 'i', [](const Call &c) { return mean(c, true, false); }},
    {Fn::UnsignedMean, 2, 'i', [](const Call &c) { return mean(c, false, false); }},
    {Fn::MeanUp, 2, 'i', [](const Call &c) { return mean(c, true, true); }},
    {Fn::UnsignedMeanUp, 2, 'i', [](const Call &c) { return mean(c, false, true); }},
    {Fn::AddDistance, 3, 'i', [](const Call &c) { return addDistance(c, true); }},
    {Fn::UnsignedAddDistance, 3, 'i', [](const Call &c) { return addDistance(c, false); }},
};

} // namespace

std::span<const ExternRow> externIntegers() { return kRows; }

} // namespace neso::cpu
