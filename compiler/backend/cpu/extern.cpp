// Library functions by the names that kernels use (CUDA's libdevice).
#include <cmath>

#include "backend/common/special.h"
#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/Intrinsics.h"

namespace neso::cpu {

using llvm::Value;

/// x times two to the power of n, rounded once. Floats are scaled in double, which has room for all of it; a double goes down in steps that keep
/// 53 bits until the last.
Value *Emitter::scaledByPower(Value *x, Value *n) {
  llvm::Type *t = x->getType(), *wide = t->getWithNewType(b.getDoubleTy()), *bits = t->getWithNewType(b.getInt64Ty());
  const bool isF64 = t->getScalarType()->isDoubleTy();
  const int64_t most = isF64 ? 3000 : 400, down = 1022 - 53, up = 1023;
  auto number = [&](int64_t v) { return llvm::ConstantInt::getSigned(bits, v); };
  auto power = [&](Value *k) { return b.CreateBitCast(b.CreateShl(b.CreateAdd(k, number(1023)), 52), wide); };
  Value *left = b.CreateSExtOrTrunc(n, bits), *y = b.CreateFPCast(x, wide);
  left = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, number(most)), number(-most));
  for (int step = 0; isF64 && step < 2; ++step) {
    Value *part = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, number(up)), number(-1022));
    // Whole only where nothing is left behind it.
    part = b.CreateSelect(b.CreateICmpSLT(left, number(-1022)), number(-down), part);
    y = b.CreateFMul(y, power(part));
    left = b.CreateSub(left, part);
  }
  left = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, number(up)), number(-1022));
  return b.CreateFPCast(b.CreateFMul(y, power(left)), t);
}

Value *Emitter::emitExtern(mlir::Operation *op, llvm::StringRef symbol, llvm::ArrayRef<Value *> args) {
  llvm::StringRef name = symbol;
  if (!name.consume_front("__nv_")) name.consume_front("__ocml_");
  for (const char *suffix : {"_f32", "_f64"}) name.consume_back(suffix);
  name.consume_front("fast_");
  if (args.empty()) return nullptr;
  Value *x = args[0];
  Value *y = args.size() > 1 ? args[1] : nullptr;
  const bool isF32 = x->getType()->getScalarType()->isFloatTy();
  const bool isF64 = x->getType()->getScalarType()->isDoubleTy();
  static const llvm::StringMap<llvm::Intrinsic::ID> intrinsics = {
      {"fabs", llvm::Intrinsic::fabs},      {"floor", llvm::Intrinsic::floor},
      {"ceil", llvm::Intrinsic::ceil},      {"trunc", llvm::Intrinsic::trunc},
      {"rint", llvm::Intrinsic::roundeven}, {"nearbyint", llvm::Intrinsic::roundeven},
      {"sqrt", llvm::Intrinsic::sqrt},      {"fmin", llvm::Intrinsic::minnum},
      {"fmax", llvm::Intrinsic::maxnum},    {"copysign", llvm::Intrinsic::copysign}};
  llvm::StringRef special = name;
  special.consume_front("neso_");
  if (isF32 && specialSymbol(special).empty() && special.ends_with("f")) special = special.drop_back();
  for (const char *suffix : {"_i64", "_i32", "_i16", "_i8", "_u8"}) special.consume_back(suffix);
  // A real base with an integer exponent (__nv_powif) is not among them.
  const bool ofOneKind =
      llvm::all_of(args, [&](Value *a) { return a->getType()->isFPOrFPVectorTy() == (isF32 || isF64); });
  if (std::optional<MathFn> fn = inlineSpecialOf(special); fn && isF32) return math_.emit(*fn, args);
  if (llvm::StringRef callee = specialSymbol(special); ofOneKind && !callee.empty()) {
    // The library computes in double and int64, a few functions in float as well; one call a lane.
    const bool isFp = isF32 || isF64;
    auto *vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
    if (const unsigned width = vector ? specialLanes(special, isF32, vector->getNumElements()) : 0; isFp && width)
      return math_.onVectors(callee, width, args);
    if (isF32 && specialOnFloats(special)) return math_.libm(callee, args);
    llvm::SmallVector<Value *, 3> wide;
    for (Value *a : args) {
      llvm::Type *to = a->getType()->getWithNewType(isFp ? b.getDoubleTy() : static_cast<llvm::Type *>(b.getInt64Ty()));
      wide.push_back(isFp                     ? b.CreateFPCast(a, to)
                     : symbol.ends_with("u8") ? b.CreateZExt(a, to)
                                              : b.CreateSExtOrTrunc(a, to));
    }
    Value *r = math_.libm(callee, wide);
    return isFp ? b.CreateFPCast(r, x->getType()) : b.CreateTrunc(r, x->getType());
  }
  if (isF32 || isF64) {
    llvm::StringRef stem = name;
    auto lookup = [&](auto &map) {
      auto it = map.find(stem);
      if (it == map.end() && isF32 && stem.ends_with("f")) it = map.find(stem.drop_back());
      return it;
    };
    std::optional<MathFn> fn = mathFnOf(stem);
    if (!fn && isF32 && stem.ends_with("f")) fn = mathFnOf(stem.drop_back());
    if (fn) return math_.emit(*fn, args);
    if (auto it = lookup(intrinsics); it != intrinsics.end())
      return args.size() == 1 ? b.CreateUnaryIntrinsic(it->second, x) : b.CreateBinaryIntrinsic(it->second, x, y);
    llvm::Type *t = x->getType();
    auto c = [&](double v) { return llvm::ConstantFP::get(t, v); };
    llvm::Type *resultType = typeLike(elementOf(op->getResult(0).getType()), x);
    auto is = [&](llvm::StringRef n) { return stem == n || (isF32 && stem == (n + "f").str()); };
    if (is("rsqrt") || is("rsqrt_rn") || is("frsqrt_rn"))
      return b.CreateFDiv(c(1.0), b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
    if (is("fma") || is("fmaf_rn") || is("fma_rn"))
      return b.CreateIntrinsic(llvm::Intrinsic::fma, {t}, {x, y, args[2]});
    if (is("round")) {
      Value *half = llvm::ConstantFP::get(t, isF64 ? 0x1.fffffffffffffp-2 : 0x1.fffffep-2);
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc,
                                    b.CreateFAdd(x, b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, half, x)));
    }
    if (is("fdim")) return b.CreateSelect(b.CreateFCmpUGT(x, y), b.CreateFSub(x, y), c(0.0));
    if (is("add_rn") || name == "fadd_rn" || name == "dadd_rn") return b.CreateFAdd(x, y);
    if (name == "fmul_rn" || name == "dmul_rn") return b.CreateFMul(x, y);
    if (name == "fsub_rn" || name == "dsub_rn") return b.CreateFSub(x, y);
    if (name == "fdiv_rn" || name == "ddiv_rn" || name == "fdividef" || name == "dividef") return b.CreateFDiv(x, y);
    if (name == "fsqrt_rn" || name == "dsqrt_rn") return b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
    if (name == "frcp_rn" || name == "drcp_rn") return b.CreateFDiv(c(1.0), x);
    if (is("saturate")) return b.CreateMinNum(b.CreateMaxNum(x, c(0.0)), c(1.0));
    Value *truth = nullptr;
    if (is("isnan") || is("isnand")) truth = b.CreateFCmpUNO(x, x);
    if (is("isinf") || is("isinfd"))
      truth = b.CreateFCmpOEQ(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), llvm::ConstantFP::getInfinity(t));
    if (is("finite") || is("isfinited"))
      truth = b.CreateFCmpOLT(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), llvm::ConstantFP::getInfinity(t));
    if (is("signbit") || is("signbitd"))
      truth = b.CreateICmpSLT(b.CreateBitCast(x, t->getWithNewType(b.getIntNTy(isF64 ? 64 : 32))),
                              llvm::Constant::getNullValue(t->getWithNewType(b.getIntNTy(isF64 ? 64 : 32))));
    if (truth) return b.CreateZExtOrTrunc(truth, resultType);
    if (is("sigmoid")) return b.CreateFDiv(c(1.0), b.CreateFAdd(c(1.0), math_.emit(MathFn::Exp, {b.CreateFNeg(x)})));
    if (is("sinpi") || is("cospi")) {
      // x - 2 round(x / 2) is exact and keeps the argument of the sine small.
      Value *turns = b.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, b.CreateFMul(x, c(0.5)));
      Value *r = b.CreateFMul(b.CreateFSub(x, b.CreateFMul(turns, c(2.0))), c(0x1.921fb54442d18p+1));
      return math_.emit(is("sinpi") ? MathFn::Sin : MathFn::Cos, {r});
    }
    if (is("rcbrt")) return b.CreateFDiv(c(1.0), math_.emit(MathFn::Cbrt, {x}));
    if (is("rhypot")) return b.CreateFDiv(c(1.0), math_.emit(MathFn::Hypot, {x, y}));
    llvm::Type *integer = resultType;
    auto toInt = [&](Value *v) { return b.CreateFreeze(b.CreateFPToSI(v, integer)); };
    if (integer->isIntOrIntVectorTy()) {
      auto rounded = [&](llvm::Intrinsic::ID id) { return b.CreateUnaryIntrinsic(id, x); };
      for (llvm::StringRef prefix : {"float2int_", "float2ll_", "double2int_", "double2ll_", "float2uint_",
                                     "float2ull_", "double2uint_", "double2ull_"})
        if (name.starts_with(prefix)) {
          llvm::StringRef mode = name.drop_front(prefix.size());
          if (mode == "rn") return toInt(rounded(llvm::Intrinsic::roundeven));
          if (mode == "rz") return toInt(x);
          if (mode == "rd") return toInt(rounded(llvm::Intrinsic::floor));
          if (mode == "ru") return toInt(rounded(llvm::Intrinsic::ceil));
        }
      if (is("llrint") || is("llrint") || is("lrint")) return toInt(rounded(llvm::Intrinsic::roundeven));
      if (is("llround") || is("lround")) return toInt(rounded(llvm::Intrinsic::round));
      if (is("float_as_int") || is("float_as_uint") || name == "double_as_longlong") return b.CreateBitCast(x, integer);
    }
    if (isF64 && (name == "double2hiint" || name == "double2loint")) {
      Value *bits = b.CreateBitCast(x, t->getWithNewType(b.getInt64Ty()));
      return b.CreateTrunc(name == "double2hiint" ? b.CreateLShr(bits, 32) : bits, resultType);
    }
    if (is("ldexp") || is("scalbn")) return scaledByPower(x, y);
    if (is("norm3d") || is("rnorm3d")) {
      // In double the squares of floats are exact enough and do not overflow; those of doubles are taken beside the largest.
      llvm::Type *wide = t->getWithNewType(b.getDoubleTy());
      Value *largest = nullptr, *sum = llvm::ConstantFP::get(wide, 0.0), *one = llvm::ConstantFP::get(wide, 1.0);
      llvm::SmallVector<Value *, 3> parts;
      for (Value *a : args) {
        parts.push_back(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, b.CreateFPCast(a, wide)));
        largest = largest ? b.CreateMaxNum(largest, parts.back()) : parts.back();
      }
      Value *plain = b.CreateOr(b.CreateFCmpOEQ(largest, llvm::ConstantFP::get(wide, 0.0)), b.CreateFCmpOEQ(largest, llvm::ConstantFP::getInfinity(wide)));
      Value *scale = b.CreateSelect(plain, one, largest);
      for (Value *part : parts) {
        Value *quotient = b.CreateFDiv(part, scale);
        sum = b.CreateFAdd(sum, b.CreateFMul(quotient, quotient));
      }
      Value *norm = b.CreateFMul(b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, sum), scale);
      norm = b.CreateSelect(b.CreateFCmpOEQ(largest, llvm::ConstantFP::getInfinity(wide)), largest, norm);
      return b.CreateFPCast(is("rnorm3d") ? b.CreateFDiv(one, norm) : norm, t);
    }
    if (is("ilogb") || is("logb")) {
      // The exponent of |x|; numbers too small for their own are scaled first.
      llvm::Type *bitsType = t->getWithNewType(b.getIntNTy(isF64 ? 64 : 32));
      const int mantissa = isF64 ? 52 : 23, bias = isF64 ? 1023 : 127, up = isF64 ? 54 : 25;
      Value *a = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
      Value *small = b.CreateFCmpOLT(a, c(isF64 ? 0x1p-1022 : 0x1p-126));
      Value *bits = b.CreateBitCast(b.CreateSelect(small, b.CreateFMul(a, c(std::ldexp(1.0, up))), a), bitsType);
      Value *exponent = b.CreateSub(b.CreateLShr(bits, mantissa), llvm::ConstantInt::get(bitsType, bias));
      exponent = b.CreateSub(exponent, b.CreateSelect(small, llvm::ConstantInt::get(bitsType, up), llvm::Constant::getNullValue(bitsType)));
      Value *zero = b.CreateFCmpOEQ(a, c(0.0)), *infinite = b.CreateFCmpOEQ(a, llvm::ConstantFP::getInfinity(t)), *none = b.CreateFCmpUNO(x, x);
      if (is("logb")) {
        Value *r = b.CreateSelect(infinite, a, b.CreateSIToFP(exponent, t));
        return b.CreateSelect(none, x, b.CreateSelect(zero, llvm::ConstantFP::getInfinity(t, true), r));
      }
      auto number = [&](int64_t n) { return llvm::ConstantInt::getSigned(resultType, n); };
      Value *r = b.CreateSelect(infinite, number(INT32_MAX), b.CreateSExtOrTrunc(exponent, resultType));
      return b.CreateSelect(b.CreateOr(zero, none), number(INT32_MIN), r);
    }
    if (is("powi")) {
      // In double precision every int32 exponent is exact.
      llvm::Type *wide = t->getWithNewType(b.getDoubleTy());
      return b.CreateFPCast(math_.emit(MathFn::Pow, {b.CreateFPCast(x, wide), b.CreateSIToFP(y, wide)}), t);
    }
    return nullptr;
  }
  // Integers.
  if (name == "abs" || name == "llabs") return b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x, b.getFalse());
  if (name == "popc" || name == "popcll")
    return b.CreateZExtOrTrunc(b.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, x),
                               typeLike(elementOf(op->getResult(0).getType()), x));
  if (name == "clz" || name == "clzll")
    return b.CreateZExtOrTrunc(b.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, x, b.getFalse()),
                               typeLike(elementOf(op->getResult(0).getType()), x));
  if (name == "brev" || name == "brevll") return b.CreateUnaryIntrinsic(llvm::Intrinsic::bitreverse, x);
  if (name == "min" || name == "llmin") return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y);
  if (name == "max" || name == "llmax") return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y);
  if (name == "umin" || name == "ullmin") return b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, x, y);
  if (name == "umax" || name == "ullmax") return b.CreateBinaryIntrinsic(llvm::Intrinsic::umax, x, y);
  // Of the lowest 24 bits.
  if (name == "mul24" || name == "umul24") {
    auto low = [&](Value *v) {
      Value *top = b.CreateShl(v, 8);
      return name == "mul24" ? b.CreateAShr(top, 8) : b.CreateLShr(top, 8);
    };
    return b.CreateMul(low(x), low(y));
  }
  // Means that do not overflow, rounded down and up.
  if (name == "hadd") return b.CreateAdd(b.CreateAnd(x, y), b.CreateAShr(b.CreateXor(x, y), 1));
  if (name == "uhadd") return b.CreateAdd(b.CreateAnd(x, y), b.CreateLShr(b.CreateXor(x, y), 1));
  if (name == "rhadd") return b.CreateSub(b.CreateOr(x, y), b.CreateAShr(b.CreateXor(x, y), 1));
  if (name == "urhadd") return b.CreateSub(b.CreateOr(x, y), b.CreateLShr(b.CreateXor(x, y), 1));
  // |x - y| + z
  if (name == "sad" || name == "usad") {
    const bool isSigned = name == "sad";
    const llvm::Intrinsic::ID least = isSigned ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, most = isSigned ? llvm::Intrinsic::smax : llvm::Intrinsic::umax;
    return b.CreateAdd(b.CreateSub(b.CreateBinaryIntrinsic(most, x, y), b.CreateBinaryIntrinsic(least, x, y)), args[2]);
  }
  // The lowest set bit, counted from 1; 0: none.
  if (name == "ffs" || name == "ffsll") {
    Value *place = b.CreateAdd(b.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, x, b.getFalse()), llvm::ConstantInt::get(x->getType(), 1));
    Value *zero = llvm::Constant::getNullValue(x->getType());
    return b.CreateZExtOrTrunc(b.CreateSelect(b.CreateICmpEQ(x, zero), zero, place), typeLike(elementOf(op->getResult(0).getType()), x));
  }
  if (name == "mulhi" || name == "umulhi" || name == "mul64hi" || name == "umul64hi") {
    const bool isUnsigned = name.starts_with("u");
    llvm::Type *t = x->getType();
    const unsigned bits = t->getScalarSizeInBits();
    llvm::Type *wide = t->getWithNewBitWidth(bits * 2);
    auto extend = [&](Value *v) { return isUnsigned ? b.CreateZExt(v, wide) : b.CreateSExt(v, wide); };
    return b.CreateTrunc(b.CreateLShr(b.CreateMul(extend(x), extend(y)), bits), t);
  }
  llvm::Type *resultType = typeLike(elementOf(op->getResult(0).getType()), x);
  if (resultType->isFPOrFPVectorTy()) {
    if (name == "hiloint2double") {
      llvm::Type *wide = x->getType()->getWithNewType(b.getInt64Ty());
      return b.CreateBitCast(b.CreateOr(b.CreateShl(b.CreateZExt(x, wide), 32), b.CreateZExt(y, wide)), resultType);
    }
    if (name == "int_as_float" || name == "uint_as_float" || name == "longlong_as_double")
      return b.CreateBitCast(x, resultType);
    if (name.starts_with("int2") || name.starts_with("ll2")) return b.CreateSIToFP(x, resultType);
    if (name.starts_with("uint2") || name.starts_with("ull2")) return b.CreateUIToFP(x, resultType);
  }
  return nullptr;
}

} // namespace neso::cpu
