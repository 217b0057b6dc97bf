// Library functions that give floats.
#include <cmath>
#include <limits>

#include "backend/cpu/extern.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Twine.h"
#include "llvm/IR/Intrinsics.h"

namespace neso::cpu {

namespace {

using directed::Rounding;
using llvm::Value;
using Fn = tile::LibraryFn;
using Call = ExternCall;

/// x times two to the power of n, rounded once. Floats are scaled in double, which has room for all of it; a double goes down in steps that keep
/// 53 bits until the last.
Value *scaled(const Call &c) {
  llvm::IRBuilder<> &b = c.b;
  llvm::Type *t = c.type(), *wide = t->getWithNewType(b.getDoubleTy()), *bits = t->getWithNewType(b.getInt64Ty());
  const int64_t most = c.isF64() ? 3000 : 400, down = 1022 - 53, up = 1023;
  auto number = [&](int64_t v) { return llvm::ConstantInt::getSigned(bits, v); };
  auto power = [&](Value *k) { return b.CreateBitCast(b.CreateShl(b.CreateAdd(k, number(1023)), 52), wide); };
  auto between = [&](Value *v, int64_t least, int64_t greatest) {
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v, number(greatest)), number(least));
  };
  Value *left = between(b.CreateSExtOrTrunc(c.y(), bits), -most, most), *y = b.CreateFPCast(c.x(), wide);
  for (int step = 0; c.isF64() && step < 2; ++step) {
    // Whole only where nothing is left behind it.
    Value *part = b.CreateSelect(b.CreateICmpSLT(left, number(-1022)), number(-down), between(left, -1022, up));
    y = b.CreateFMul(y, power(part));
    left = b.CreateSub(left, part);
  }
  return b.CreateFPCast(b.CreateFMul(y, power(between(left, -1022, up))), t);
}

/// A function that is rounded once, in the direction that its name says: `nearest` where it is to the nearest, else a call a lane.
Value *rounded(const Call &c, llvm::StringRef symbol, llvm::ArrayRef<Value *> args, llvm::function_ref<Value *()> nearest) {
  const Rounding to = c.rounding.value_or(Rounding::Nearest);
  if (to == Rounding::Nearest) return nearest();
  return c.math.libm(("neso_special_" + symbol + (to == Rounding::Zero ? "_rz" : to == Rounding::Down ? "_rd" : "_ru")).str(), args);
}

/// The length of the operands' vector. In double the squares of floats are exact enough and do not overflow; those of doubles are taken beside
/// the largest.
Value *norm(const Call &c, bool inverse) {
  llvm::IRBuilder<> &b = c.b;
  llvm::Type *wide = c.type()->getWithNewType(b.getDoubleTy());
  Value *largest = nullptr, *sum = llvm::ConstantFP::get(wide, 0.0), *one = llvm::ConstantFP::get(wide, 1.0);
  llvm::SmallVector<Value *, 4> parts;
  for (Value *a : c.args) {
    parts.push_back(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, b.CreateFPCast(a, wide)));
    largest = largest ? b.CreateMaxNum(largest, parts.back()) : parts.back();
  }
  Value *endless = b.CreateFCmpOEQ(largest, llvm::ConstantFP::getInfinity(wide));
  Value *scale = b.CreateSelect(b.CreateOr(b.CreateFCmpOEQ(largest, llvm::ConstantFP::get(wide, 0.0)), endless), one, largest);
  for (Value *part : parts) {
    Value *quotient = b.CreateFDiv(part, scale);
    sum = b.CreateFAdd(sum, b.CreateFMul(quotient, quotient));
  }
  Value *r = b.CreateFMul(b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, sum), scale);
  r = b.CreateSelect(endless, largest, r);
  return b.CreateFPCast(inverse ? b.CreateFDiv(one, r) : r, c.type());
}

/// The exponent of |x| as a float.
Value *logb(const Call &c) {
  llvm::IRBuilder<> &b = c.b;
  llvm::Type *t = c.type(), *bitsType = c.bitsOf(t);
  const int mantissa = c.isF64() ? 52 : 23, bias = c.isF64() ? 1023 : 127, up = c.isF64() ? 54 : 25;
  // Numbers too small for an exponent of their own are scaled first.
  Value *a = c.unary(llvm::Intrinsic::fabs), *small = b.CreateFCmpOLT(a, c.number(c.isF64() ? 0x1p-1022 : 0x1p-126));
  Value *bits = b.CreateBitCast(b.CreateSelect(small, b.CreateFMul(a, c.number(std::ldexp(1.0, up))), a), bitsType);
  Value *exponent = b.CreateSub(b.CreateLShr(bits, mantissa), llvm::ConstantInt::get(bitsType, bias));
  exponent = b.CreateSub(exponent, b.CreateSelect(small, llvm::ConstantInt::get(bitsType, up), llvm::Constant::getNullValue(bitsType)));
  Value *infinity = llvm::ConstantFP::getInfinity(t);
  Value *r = b.CreateSelect(b.CreateFCmpOEQ(a, infinity), a, b.CreateSIToFP(exponent, t));
  r = b.CreateSelect(b.CreateFCmpOEQ(a, c.number(0.0)), llvm::ConstantFP::getInfinity(t, true), r);
  return b.CreateSelect(b.CreateFCmpUNO(a, a), a, r);
}

/// x - 2 round(x / 2) is exact and keeps the argument of the sine small.
Value *ofTurns(const Call &c, MathFn fn) {
  Value *turns = c.b.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, c.b.CreateFMul(c.x(), c.number(0.5)));
  return c.math.emit(fn, {c.b.CreateFMul(c.b.CreateFSub(c.x(), c.b.CreateFMul(turns, c.number(2.0))), c.number(0x1.921fb54442d18p+1))});
}

Value *inverse(const Call &c, Value *v) { return c.b.CreateFDiv(c.number(1.0), v); }

Value *inverseRoot(const Call &c) {
  // With a rounding it is one of its own, which two operations do not give.
  if (c.rounding && !c.isF64()) return c.math.libm("neso_special_inverse_root", c.args);
  return inverse(c, c.unary(llvm::Intrinsic::sqrt));
}

Value *fromInteger(const Call &c, bool isSigned) {
  llvm::IRBuilder<> &b = c.b;
  llvm::Type *wide = c.type()->getWithNewType(b.getInt64Ty());
  // No row for a type and a direction together: the call gives the bits of a double.
  const std::string symbol = std::string(c.result->getScalarType()->isFloatTy() ? "float" : "double") + (isSigned ? "_of_signed" : "_of_unsigned");
  const Rounding to = c.rounding.value_or(Rounding::Nearest);
  if (to == Rounding::Nearest) return isSigned ? b.CreateSIToFP(c.x(), c.result) : b.CreateUIToFP(c.x(), c.result);
  Value *r = rounded(c, symbol, {isSigned ? b.CreateSExt(c.x(), wide) : b.CreateZExt(c.x(), wide)}, nullptr);
  return b.CreateFPCast(b.CreateBitCast(r, wide->getWithNewType(b.getDoubleTy())), c.result);
}

/// Of a whole number n and x; the library's functions take both as doubles.
Value *bessel(const Call &c, llvm::StringRef symbol) {
  llvm::Type *wide = c.y()->getType()->getWithNewType(c.b.getDoubleTy());
  return c.b.CreateFPCast(c.math.libm(symbol, {c.b.CreateSIToFP(c.x(), wide), c.b.CreateFPCast(c.y(), wide)}), c.result);
}

constexpr ExternRow kRows[] = {
    {Fn::Abs, 1, 'f', [](const Call &c) { return c.unary(llvm::Intrinsic::fabs); }},
    {Fn::Floor, 1, 'f', [](const Call &c) { return c.unary(llvm::Intrinsic::floor); }},
    {Fn::Ceil, 1, 'f', [](const Call &c) { return c.unary(llvm::Intrinsic::ceil); }},
    {Fn::Trunc, 1, 'f', [](const Call &c) { return c.unary(llvm::Intrinsic::trunc); }},
    {Fn::Even, 1, 'f', [](const Call &c) { return c.unary(llvm::Intrinsic::roundeven); }},
    {Fn::Round, 1, 'f',
     [](const Call &c) -> Value * {
       Value *half = c.number(c.isF64() ? 0x1.fffffffffffffp-2 : 0x1.fffffep-2);
       return c.b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, c.b.CreateFAdd(c.x(), c.b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, half, c.x())));
     }},
    {Fn::Least, 2, 'f', [](const Call &c) { return c.binary(llvm::Intrinsic::minnum); }},
    {Fn::Most, 2, 'f', [](const Call &c) { return c.binary(llvm::Intrinsic::maxnum); }},
    {Fn::CopySign, 2, 'f', [](const Call &c) { return c.binary(llvm::Intrinsic::copysign); }},
    {Fn::Above, 2, 'f', [](const Call &c) { return c.b.CreateSelect(c.b.CreateFCmpUGT(c.x(), c.y()), c.b.CreateFSub(c.x(), c.y()), c.number(0.0)); }},
    {Fn::Saturate, 1, 'f', [](const Call &c) { return c.b.CreateMinNum(c.b.CreateMaxNum(c.x(), c.number(0.0)), c.number(1.0)); }},
    {Fn::Sigmoid, 1, 'f', [](const Call &c) { return inverse(c, c.b.CreateFAdd(c.number(1.0), c.math.emit(MathFn::Exp, {c.b.CreateFNeg(c.x())}))); }},
    {Fn::SinPi, 1, 'f', [](const Call &c) { return ofTurns(c, MathFn::Sin); }},
    {Fn::CosPi, 1, 'f', [](const Call &c) { return ofTurns(c, MathFn::Cos); }},
    {Fn::InverseCubeRoot, 1, 'f', [](const Call &c) { return inverse(c, c.math.emit(MathFn::Cbrt, c.args)); }},
    {Fn::InverseLength, 2, 'f', [](const Call &c) { return inverse(c, c.math.emit(MathFn::Hypot, c.args)); }},
    {Fn::Norm, 0, 'f', [](const Call &c) { return norm(c, false); }},
    {Fn::InverseNorm, 0, 'f', [](const Call &c) { return norm(c, true); }},
    {Fn::Logb, 1, 'f', logb},
    {Fn::InverseErfc, 1, 'f',
     [](const Call &c) {
       llvm::Type *wide = c.type()->getWithNewType(c.b.getDoubleTy());
       return c.b.CreateFPCast(c.math.libm("neso_special_erfcinv", {c.b.CreateFPCast(c.x(), wide)}), c.type());
     }},
    {Fn::HighInverse, 1, 'f', [](const Call &c) { return c.math.libm("neso_special_high_inverse", c.args); }},
    {Fn::Add, 2, 'f', [](const Call &c) { return rounded(c, "add", c.args, [&] { return c.b.CreateFAdd(c.x(), c.y()); }); }},
    {Fn::Subtract, 2, 'f', [](const Call &c) { return rounded(c, "add", {c.x(), c.b.CreateFNeg(c.y())}, [&] { return c.b.CreateFSub(c.x(), c.y()); }); }},
    {Fn::Multiply, 2, 'f', [](const Call &c) { return rounded(c, "multiply", c.args, [&] { return c.b.CreateFMul(c.x(), c.y()); }); }},
    {Fn::Divide, 2, 'f', [](const Call &c) { return rounded(c, "divide", c.args, [&] { return c.b.CreateFDiv(c.x(), c.y()); }); }},
    {Fn::Inverse, 1, 'f', [](const Call &c) { return rounded(c, "divide", {c.number(1.0), c.x()}, [&] { return inverse(c, c.x()); }); }},
    {Fn::SquareRoot, 1, 'f', [](const Call &c) { return rounded(c, "root", c.args, [&] { return c.unary(llvm::Intrinsic::sqrt); }); }},
    {Fn::InverseRoot, 1, 'f', inverseRoot},
    {Fn::MultiplyAdd, 3, 'f',
     [](const Call &c) { return rounded(c, "fma", c.args, [&]() -> Value * { return c.b.CreateIntrinsic(llvm::Intrinsic::fma, {c.type()}, c.args); }); }},
    {Fn::DoubleToFloat, 1, 'f',
     [](const Call &c) {
       Value *r = rounded(c, "to_float", c.args, [&] { return c.x(); });
       return c.b.CreateFPTrunc(r, c.result);
     }},
    {Fn::FromSigned, 1, 'i', [](const Call &c) { return fromInteger(c, true); }},
    {Fn::FromUnsigned, 1, 'i', [](const Call &c) { return fromInteger(c, false); }},
    {Fn::FromHalves, 2, 'i',
     [](const Call &c) {
       llvm::Type *wide = c.type()->getWithNewType(c.b.getInt64Ty());
       return c.b.CreateBitCast(c.b.CreateOr(c.b.CreateShl(c.b.CreateZExt(c.x(), wide), 32), c.b.CreateZExt(c.y(), wide)), c.result);
     }},
    {Fn::Scale, 2, 'f', scaled},
    {Fn::Power, 2, 'f',
     [](const Call &c) {
       // In double precision every int32 exponent is exact.
       llvm::Type *wide = c.type()->getWithNewType(c.b.getDoubleTy());
       return c.b.CreateFPCast(c.math.emit(MathFn::Pow, {c.b.CreateFPCast(c.x(), wide), c.b.CreateSIToFP(c.y(), wide)}), c.type());
     }},
    {Fn::BesselJ, 2, 'i', [](const Call &c) { return bessel(c, "neso_special_jn"); }},
    {Fn::BesselY, 2, 'i', [](const Call &c) { return bessel(c, "neso_special_yn"); }},
};

} // namespace

std::span<const ExternRow> externFloats() { return kRows; }

} // namespace neso::cpu
