// Functions: expansions of our own for f32, on the chip's approximations where these stay within 2 units in the last
// place; those of backend/common beside them; CUDA's libdevice (linked by library.cpp) for f64 and rare functions.
#include "backend/common/math.h"
#include "backend/common/special.h"
#include "backend/nvidia/emitter.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace neso::nvidia {

using llvm::Value;

namespace {

/// f32 functions where the chip has a fast part of the way.
struct FastMath {
  llvm::IRBuilder<> &b;

  Value *c(double v) { return llvm::ConstantFP::get(b.getFloatTy(), v); }
  Value *fma(Value *x, Value *y, Value *z) {
    return b.CreateIntrinsic(llvm::Intrinsic::fma, {b.getFloatTy()}, {x, y, z});
  }
  Value *abs(Value *x) { return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  Value *ex2(Value *x) { return b.CreateIntrinsic(llvm::Intrinsic::nvvm_ex2_approx, {b.getFloatTy()}, {x}); }
  /// One instruction where ex2 takes four: results below 2^-126 are zero.
  Value *ex2Flushed(Value *x) { return b.CreateIntrinsic(llvm::Intrinsic::nvvm_ex2_approx_ftz, {b.getFloatTy()}, {x}); }
  Value *rcp(Value *x) { return b.CreateIntrinsic(llvm::Intrinsic::nvvm_rcp_approx_ftz_f, {}, {x}); }
  Value *bits(Value *x) { return b.CreateBitCast(x, b.getInt32Ty()); }
  Value *poly(Value *x, llvm::ArrayRef<double> highToLow) {
    Value *r = nullptr;
    for (double k : highToLow) r = r ? fma(r, x, c(k)) : c(k);
    return r;
  }

  /// base^x for log2(base) = hi + lo: x log2(base) in two parts, of which ex2 takes the first.
  Value *power(Value *x, double hi, double lo, double least, double most) {
    x = b.CreateMinimum(b.CreateMaximum(x, c(least)), c(most));
    Value *t = b.CreateFMul(x, c(hi));
    Value *rest = fma(x, c(lo), fma(x, c(hi), b.CreateFNeg(t)));
    return b.CreateFMul(ex2(t), fma(rest, c(0x1.62e430p-1), c(1.0)));
  }
  /// 2^n 2^f, n = x log2(e) rounded down and cut to [-126, 126]: 2^f is never below 2^-126 where the result is not
  /// zero, and the last multiplication rounds what is below. The cut is that of an addition to [0, 1] in units of 252,
  /// and the sum with 1.5 * 2^23 leaves n as an exponent in its lowest bits. Infinities and NaN come through f.
  Value *exp(Value *x) {
    Value *cut = b.CreateIntrinsic(llvm::Intrinsic::nvvm_fma_rn_sat_f, {}, {x, c(0x1.77313ap-8), c(0.5)});
    Value *sum = b.CreateIntrinsic(llvm::Intrinsic::nvvm_fma_rm_f, {}, {cut, c(252.0), c(12582913.0)});
    Value *n = b.CreateFSub(sum, c(12583039.0));
    Value *f = fma(x, c(0x1.4ae0c0p-26), fma(x, c(0x1.715476p+0), b.CreateFNeg(n)));
    Value *power = b.CreateBitCast(b.CreateShl(bits(sum), 23), b.getFloatTy());
    return b.CreateFMul(ex2Flushed(f), power);
  }
  Value *exp10(Value *x) { return power(x, 0x1.a934f0p+1, 0x1.2f346e2bf924bp-24, -46.0, 39.0); }

  /// log(x) = n log(2) + log(m), m in [2/3, 4/3), then times `scale` = hi + lo with the integer part exact in its
  /// place.
  Value *log(Value *x, bool base2, bool base10) {
    Value *tiny = b.CreateFCmpOLT(x, c(0x1p-126));
    Value *scaled = b.CreateSelect(tiny, b.CreateFMul(x, c(0x1p23)), x);
    Value *i = bits(scaled);
    Value *e = b.CreateAnd(b.CreateSub(i, b.getInt32(0x3f2aaaab)), b.getInt32(0xff800000u));
    Value *m = b.CreateBitCast(b.CreateSub(i, e), b.getFloatTy());
    Value *n = fma(b.CreateSIToFP(e, b.getFloatTy()), c(0x1p-23), b.CreateSelect(tiny, c(-23.0), c(0.0)));
    Value *f = b.CreateFSub(m, c(1.0));
    Value *p = poly(f, {-0x1.f0a9eep-4, 0x1.12f598p-3, -0x1.f9b330p-4, 0x1.21249ap-3, -0x1.55678cp-3, 0x1.99ad6cp-3,
                        -0x1.fffff0p-3, 0x1.55554cp-2, -0.5});
    Value *r = fma(p, b.CreateFMul(f, f), f);
    if (base2)
      r = fma(r, c(0x1.715476p+0), fma(r, c(0x1.4ae0bf85ddf44p-26), n));
    else if (base10)
      r = fma(r, c(0x1.bcb7b2p-2), fma(r, c(-0x1.5b235ep-27), b.CreateFMul(n, c(0x1.344136p-2))));
    else
      r = fma(n, c(0x1.62e430p-1), r);
    // Infinity and NaN stay, zero gives -infinity, what is below it NaN.
    Value *infinity = llvm::ConstantFP::getInfinity(b.getFloatTy());
    Value *special =
        b.CreateSelect(b.CreateFCmpOEQ(x, c(0.0)), llvm::ConstantFP::getInfinity(b.getFloatTy(), true),
                       b.CreateSelect(b.CreateFCmpOLT(x, c(0.0)), llvm::ConstantFP::getNaN(b.getFloatTy()), x));
    Value *normal = b.CreateAnd(b.CreateFCmpOGT(x, c(0.0)), b.CreateFCmpOLT(x, infinity));
    return b.CreateSelect(normal, r, special);
  }

  Value *tanh(Value *x) {
    Value *a = abs(x), *s = b.CreateFMul(x, x);
    Value *small = poly(s, {0x1.2c7d78af05822p-9, -0x1.1168b3e879d2fp-7, 0x1.64a94043578e2p-6, -0x1.ba08c19286fd9p-5,
                            0x1.1110e910f92c8p-3, -0x1.555555399c666p-2});
    small = fma(b.CreateFMul(x, s), small, x);
    // 1 - 2 / (e^2a + 1): the error of e^2a counts less the larger a is.
    Value *e = ex2Flushed(b.CreateFMul(a, c(0x1.715476p+1)));
    Value *large = fma(rcp(b.CreateFAdd(e, c(1.0))), c(-2.0), c(1.0));
    large = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, large, x);
    return b.CreateSelect(b.CreateFCmpOLT(a, c(0.625)), small, large);
  }

  /// See MathEmitter::erfcBesideOne.
  Value *erfcBesideOne(Value *x) {
    Value *a = abs(x), *e = ex2Flushed(b.CreateFMul(a, poly(a, kErfcPower)));
    return b.CreateSelect(b.CreateFCmpOLT(x, c(0.0)), b.CreateFSub(c(2.0), e), e);
  }

  Value *erf(Value *x) {
    Value *a = abs(x), *s = b.CreateFMul(x, x);
    Value *small =
        fma(x,
            poly(s, {-0x1.445f47d33d87bp-17, 0x1.d887505de3ba6p-14, -0x1.bccf664d7f763p-11, 0x1.562a60ddba6e6p-8,
                     -0x1.b829c897922e5p-6, 0x1.ce2f08fec14fdp-4, -0x1.81274665754c3p-2, 0x1.20dd7504045d6p+0 - 1.0}),
            x);
    // 1 - erfc, whose logarithm is smooth.
    Value *l = poly(b.CreateMinimum(a, c(4.2)),
                    {-0x1.a37156df2e311p-24, 0x1.ffaf1f3cef54ap-19, -0x1.1964b0c105b00p-14, 0x1.758a732f25683p-11,
                     -0x1.5204186236888p-8, 0x1.bf6ea92d69cfap-6, -0x1.c823304651084p-4, -0x1.42e795cd1f354p-1,
                     -0x1.217d656cac635p+0, 0x1.d63c7f052f0e2p-12});
    Value *large = b.CreateFSub(c(1.0), ex2Flushed(b.CreateFMul(l, c(0x1.715476p+0))));
    large = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, large, x);
    return b.CreateSelect(b.CreateFCmpOLT(a, c(1.0)), small, large);
  }
};

} // namespace

Value *Emitter::emitMath(MathFn function, llvm::ArrayRef<Value *> args) {
  Value *x = args[0];
  if (!x->getType()->isFloatTy()) return MathEmitter(b).emit(function, args);
  FastMath fast{b};
  switch (function) {
  case MathFn::Exp: return fast.exp(x);
  case MathFn::ExpOrZero: return fast.ex2Flushed(b.CreateFMul(x, fast.c(0x1.715476p+0)));
  case MathFn::Exp2: return fast.ex2(x);
  case MathFn::Exp2OrZero: return fast.ex2Flushed(x);
  case MathFn::ErfcBesideOne: return fast.erfcBesideOne(x);
  case MathFn::Exp10: return fast.exp10(x);
  case MathFn::Log: return fast.log(x, false, false);
  case MathFn::Log2: return fast.log(x, true, false);
  case MathFn::Log10: return fast.log(x, false, true);
  case MathFn::Tanh: return fast.tanh(x);
  case MathFn::Erf: return fast.erf(x);
  default: return MathEmitter(b).emit(function, args);
  }
}

Value *Emitter::emitExtern(mlir::Operation *op, llvm::StringRef symbol, llvm::ArrayRef<Value *> args) {
  if (args.empty()) return nullptr;
  Value *x = args[0];
  const bool isFloat = x->getType()->isFloatTy(), isReal = isFloat || x->getType()->isDoubleTy();
  llvm::Type *resultType = typeOf(elementOf(op->getResult(0).getType()));
  llvm::StringRef name = symbol;
  const bool ofDevice = name.consume_front("__nv_");
  if (!ofDevice) name.consume_front("__ocml_");
  for (const char *suffix : {"_f32", "_f64"}) name.consume_back(suffix);

  // Our own library computes in double and int64, a few functions in float as well.
  llvm::StringRef special = name;
  special.consume_front("neso_");
  if (isFloat && specialSymbol(special).empty()) special.consume_back("f");
  for (const char *suffix : {"_i64", "_i32", "_i16", "_i8", "_u8"}) special.consume_back(suffix);
  // A real base with an integer exponent (__nv_powif) is not among them.
  const bool ofOneKind = llvm::all_of(args, [&](Value *a) { return a->getType()->isFloatingPointTy() == isReal; });
  if (std::optional<MathFn> inlined = inlineSpecialOf(special); inlined && isFloat) return emitMath(*inlined, args);
  if (llvm::StringRef callee = specialSymbol(special); ofOneKind && !callee.empty()) {
    const bool onFloats = isFloat && specialOnFloats(special);
    llvm::Type *wide = onFloats ? b.getFloatTy() : isReal ? b.getDoubleTy() : static_cast<llvm::Type *>(b.getInt64Ty());
    const std::string symbolOfType = callee.str() + (onFloats ? "f" : "");
    llvm::SmallVector<Value *, 3> operands;
    for (Value *a : args)
      operands.push_back(isReal                   ? b.CreateFPCast(a, wide)
                         : symbol.ends_with("u8") ? b.CreateZExt(a, wide)
                                                  : b.CreateSExtOrTrunc(a, wide));
    llvm::SmallVector<llvm::Type *, 3> types(args.size(), wide);
    Value *r =
        b.CreateCall(module_.getOrInsertFunction(symbolOfType, llvm::FunctionType::get(wide, types, false)), operands);
    return isReal ? b.CreateFPCast(r, resultType) : b.CreateTrunc(r, resultType);
  }
  llvm::StringRef stem = name;
  if (isFloat && stem.ends_with("f") && stem != "erf") stem = stem.drop_back();
  if (isReal && x->getType() == resultType) {
    static const llvm::StringMap<llvm::Intrinsic::ID> intrinsics = {
        {"fabs", llvm::Intrinsic::fabs},      {"floor", llvm::Intrinsic::floor},
        {"ceil", llvm::Intrinsic::ceil},      {"trunc", llvm::Intrinsic::trunc},
        {"rint", llvm::Intrinsic::roundeven}, {"nearbyint", llvm::Intrinsic::roundeven},
        {"sqrt", llvm::Intrinsic::sqrt},      {"fmin", llvm::Intrinsic::minnum},
        {"fmax", llvm::Intrinsic::maxnum},    {"copysign", llvm::Intrinsic::copysign}};
    if (auto it = intrinsics.find(stem); it != intrinsics.end())
      return args.size() == 1 ? b.CreateUnaryIntrinsic(it->second, x) : b.CreateBinaryIntrinsic(it->second, x, args[1]);
    if (stem == "fma") return b.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, args[1], args[2]});
    if (stem == "rsqrt" && isFloat) return b.CreateIntrinsic(llvm::Intrinsic::nvvm_rsqrt_approx_f, {}, {x});
    if (stem == "rsqrt")
      return b.CreateFDiv(llvm::ConstantFP::get(x->getType(), 1.0), b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
    if (std::optional<MathFn> function = mathFnOf(stem)) return emitMath(*function, args);
  }
  if (!ofDevice) return nullptr;
  llvm::SmallVector<llvm::Type *, 3> types;
  for (Value *a : args) types.push_back(a->getType());
  llvm::FunctionCallee callee = module_.getOrInsertFunction(symbol, llvm::FunctionType::get(resultType, types, false));
  return b.CreateCall(callee, args);
}

} // namespace neso::nvidia
