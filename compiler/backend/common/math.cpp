#include "backend/common/math.h"

#include <cmath>

#include "backend/common/math_f64.h"
#include "base/diagnostics.h"
#include "llvm/ADT/APInt.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Analysis/VectorUtils.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/Module.h"

namespace neso {

std::optional<MathFn> mathFnOf(llvm::StringRef name) {
  static const llvm::StringMap<MathFn> functions = {{"exp", MathFn::Exp},
                                                    {"exp2", MathFn::Exp2},
                                                    {"exp10", MathFn::Exp10},
                                                    {"expm1", MathFn::ExpM1},
                                                    {"log", MathFn::Log},
                                                    {"log2", MathFn::Log2},
                                                    {"log10", MathFn::Log10},
                                                    {"log1p", MathFn::Log1p},
                                                    {"sin", MathFn::Sin},
                                                    {"cos", MathFn::Cos},
                                                    {"tan", MathFn::Tan},
                                                    {"sinh", MathFn::Sinh},
                                                    {"cosh", MathFn::Cosh},
                                                    {"tanh", MathFn::Tanh},
                                                    {"asin", MathFn::Asin},
                                                    {"acos", MathFn::Acos},
                                                    {"atan", MathFn::Atan},
                                                    {"asinh", MathFn::Asinh},
                                                    {"acosh", MathFn::Acosh},
                                                    {"atanh", MathFn::Atanh},
                                                    {"atan2", MathFn::Atan2},
                                                    {"erf", MathFn::Erf},
                                                    {"erfc", MathFn::Erfc},
                                                    {"pow", MathFn::Pow},
                                                    {"cbrt", MathFn::Cbrt},
                                                    {"fmod", MathFn::Fmod},
                                                    {"lgamma", MathFn::LGamma},
                                                    {"tgamma", MathFn::TGamma},
                                                    {"hypot", MathFn::Hypot},
                                                    {"j0", MathFn::J0},
                                                    {"j1", MathFn::J1},
                                                    {"y0", MathFn::Y0},
                                                    {"y1", MathFn::Y1},
                                                    {"nextafter", MathFn::Nextafter},
                                                    {"remainder", MathFn::Remainder}};
  auto it = functions.find(name);
  if (it == functions.end()) return std::nullopt;
  return it->second;
}

std::optional<MathFn> inlineSpecialOf(llvm::StringRef name) {
  static const llvm::StringMap<MathFn> functions = {{"cyl_bessel_i0", MathFn::I0},
                                                    {"cyl_bessel_i1", MathFn::I1},
                                                    {"i0e", MathFn::I0e},
                                                    {"i1e", MathFn::I1e},
                                                    {"ndtri", MathFn::NdtrI}};
  auto it = functions.find(name);
  if (it == functions.end()) return std::nullopt;
  return it->second;
}

using V = llvm::Value *;

namespace {
llvm::Type *withElement(llvm::Type *shape, llvm::Type *element) {
  if (auto *v = llvm::dyn_cast<llvm::VectorType>(shape)) return llvm::VectorType::get(element, v->getElementCount());
  return element;
}
} // namespace

V MathEmitter::like(V x, double c) { return llvm::ConstantFP::get(x->getType(), c); }
V MathEmitter::likeInt(V x, int64_t c) { return llvm::ConstantInt::getSigned(intType(x), c); }
llvm::Type *MathEmitter::intType(V x) {
  return withElement(x->getType(), b.getIntNTy(x->getType()->getScalarSizeInBits()));
}
llvm::Type *MathEmitter::floatType(V x) { return withElement(x->getType(), b.getFloatTy()); }
llvm::Type *MathEmitter::doubleType(V x) { return withElement(x->getType(), b.getDoubleTy()); }
V MathEmitter::fma(V a, V m, V c) {
  // Of steps of an approximation, which is how the CPU's back end knows that they may be nearly rounded once (withoutInstructions).
  llvm::CallInst *fused = b.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, m, c});
  fused->setHasApproxFunc(true);
  return fused;
}
V MathEmitter::unary(unsigned id, V x) { return b.CreateUnaryIntrinsic(id, x); }

V MathEmitter::poly(V x, llvm::ArrayRef<double> highToLow) {
  V r = nullptr;
  for (double c : highToLow) r = r ? fma(r, x, like(x, c)) : like(x, c);
  return r;
}

// e^r = 1 + r + r^2 q(r) for |r| <= ln2 / 2.
V MathEmitter::expOfReduced(V r) {
  V q = poly(r, {0x1.a12a42f159d0ep-13, 0x1.6d4920bf2569bp-10, 0x1.1110df02bfbecp-7, 0x1.5554e4aacef45p-5,
                 0x1.5555555ac911fp-3, 0x1.0000000c4592ep-1});
  // r^2 q + r first: 1 + r would lose bits of r that matter in the last place.
  return b.CreateFAdd(fma(b.CreateFMul(r, r), q, r), like(r, 1.0));
}

// e^r 2^n, scaled in two steps, so that the result may be denormal or overflow where it should.
V MathEmitter::expFromReduced(V r, V n) {
  V half = b.CreateAShr(n, 1);
  V rest = b.CreateSub(n, half);
  auto power = [&](V k) { return b.CreateBitCast(b.CreateShl(b.CreateAdd(k, likeInt(r, 127)), 23), r->getType()); };
  return b.CreateFMul(b.CreateFMul(expOfReduced(r), power(half)), power(rest));
}

// n, the whole number nearest to x / log 2, as an integer and as a float.
std::pair<V, V> MathEmitter::powerOf(V x) {
  V magic = like(x, 12582912.0);
  V t = fma(x, like(x, 0x1.715476p+0), magic);
  return {b.CreateSub(bits(t), bits(magic)), b.CreateFSub(t, magic)};
}

// n and r of x = n log 2 + r, |r| <= log 2 / 2; log 2 in two parts.
std::pair<V, V> MathEmitter::reducedOf(V x) {
  const auto [n, k] = powerOf(x);
  V r = fma(k, like(x, -0x1.62e4p-1), x);
  return {n, fma(k, like(x, 0x1.62e4p-1 - 0x1.62e42fefa39efp-1), r)};
}

// Beyond the limits of exp(), exp2() and expDouble() the result is infinity or zero. The zero is selected: a product that rounds to zero takes a
// hundred times as long on many CPUs. NaN passes both comparisons unchanged.
V MathEmitter::exp(V x) {
  V none = b.CreateFCmpOLT(x, like(x, -104.0));
  V c = b.CreateSelect(b.CreateFCmpOGT(x, like(x, 89.0)), like(x, 89.0), b.CreateSelect(none, like(x, 0.0), x));
  const auto [n, r] = reducedOf(c);
  return b.CreateSelect(none, like(x, 0.0), expFromReduced(r, n));
}

/// x 2^k, k a whole number as a float, by vscalef, 16 lanes at a time; 0 where `none` (null: nowhere).
V MathEmitter::scaledBy(V x, V k, V none) {
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(x->getType())->getNumElements();
  llvm::SmallVector<V, 4> parts;
  for (unsigned from = 0; from < lanes; from += 16) {
    auto part = [&](V v) {
      llvm::SmallVector<int, 16> pick;
      for (unsigned l = 0; l < 16; ++l) pick.push_back(static_cast<int>(from + l));
      return lanes == 16 ? v : b.CreateShuffleVector(v, pick);
    };
    V y = part(x), kept = none ? b.CreateBitCast(b.CreateNot(part(none)), b.getInt16Ty()) : b.getInt16(0xffff);
    constexpr uint32_t kCurrentRounding = 4;
    parts.push_back(b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {}, {y, part(k), llvm::Constant::getNullValue(y->getType()), kept, b.getInt32(kCurrentRounding)}));
  }
  return llvm::concatenateVectors(b, parts);
}

// As exp() for |x| < 87 or NaN, 0 where `none` (null: nowhere), in fewer steps: n log 2 is rounded (1.9e-9 n, less than x is by far), and
// e^r = 1 + r q(r) to 9.2e-8: the least largest relative error of a fifth degree that is 1 at 0.
V MathEmitter::expWithin(V x, V none) {
  const auto [n, k] = powerOf(x);
  V r = fma(k, like(x, -0x1.62e430p-1), x);
  return scaledByPower(poly(r, {0x1.0fa73adbeab95p-7, 0x1.573aca7bac21cp-5, 0x1.555a6e9755310p-3, 0x1.fffdc43520445p-2, 0x1.fffff623d4e63p-1, 1.0}), n, k, none);
}

// The same for 2^x, |x| < 125: its polynomial's coefficients are those of expWithin times powers of log 2.
V MathEmitter::exp2Within(V x, V none) {
  V magic = like(x, 12582912.0);
  V t = b.CreateFAdd(x, magic);
  V n = b.CreateSub(bits(t), bits(magic)), k = b.CreateFSub(t, magic);
  V r = b.CreateFSub(x, k);
  return scaledByPower(poly(r, {0x1.5bb8d5ce6f9b9p-10, 0x1.3ceaf5186f962p-7, 0x1.c6b7582bb5bffp-5, 0x1.ebf9ba87d4b5bp-3, 0x1.62e4291a04da9p-1, 1.0}), n, k, none);
}

// p 2^n for p in [0.5, 2], n as an integer and as a float k; 0 where `none` (null: nowhere).
V MathEmitter::scaledByPower(V p, V n, V k, V none) {
  if (const auto *v = llvm::dyn_cast<llvm::FixedVectorType>(p->getType()); scales_ && v && v->getNumElements() % 16 == 0)
    return scaledBy(p, k, none);
  // 2^(n - 1) is a float for every n, and twice e^r no product with one that makes a denormal, which takes a hundred times as long.
  V scale = b.CreateBitCast(b.CreateShl(b.CreateAdd(n, likeInt(p, 126)), 23), p->getType());
  V result = b.CreateFMul(b.CreateFMul(p, like(p, 2.0)), scale);
  return none ? b.CreateSelect(none, like(p, 0.0), result) : result;
}

V MathEmitter::expOrZero(V x) {
  V none = b.CreateFCmpOLT(x, like(x, -86.6433)); // log 2^-125, rounded up
  return expWithin(b.CreateSelect(b.CreateFCmpOGT(x, like(x, 89.0)), like(x, 89.0), x), none);
}

V MathEmitter::exp2OrZero(V x) {
  V none = b.CreateFCmpOLT(x, like(x, -125.0));
  return exp2Within(b.CreateSelect(b.CreateFCmpOGT(x, like(x, 129.0)), like(x, 129.0), x), none);
}

V MathEmitter::exp2(V x) {
  V none = b.CreateFCmpOLT(x, like(x, -150.0));
  V c = b.CreateSelect(b.CreateFCmpOGT(x, like(x, 129.0)), like(x, 129.0), b.CreateSelect(none, like(x, 0.0), x));
  V magic = like(x, 12582912.0);
  V t = b.CreateFAdd(c, magic);
  V n = b.CreateSub(bits(t), bits(magic));
  V r = b.CreateFSub(c, b.CreateFSub(t, magic));
  return b.CreateSelect(none, like(x, 0.0), expFromReduced(b.CreateFMul(r, like(x, 0x1.62e42fefa39efp-1)), n));
}

V MathEmitter::tanh(V x) {
  V a = unary(llvm::Intrinsic::fabs, x);
  V s = b.CreateFMul(x, x);
  V small = poly(s, {0x1.2c7d78af05822p-9, -0x1.1168b3e879d2fp-7, 0x1.64a94043578e2p-6, -0x1.ba08c19286fd9p-5,
                     0x1.1110e910f92c8p-3, -0x1.555555399c666p-2});
  small = fma(b.CreateFMul(x, s), small, x);
  V e = exp(b.CreateFMul(a, like(x, 2.0)));
  V large = b.CreateFSub(like(x, 1.0), b.CreateFDiv(like(x, 2.0), b.CreateFAdd(e, like(x, 1.0))));
  large = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, large, x);
  return b.CreateSelect(b.CreateFCmpOLT(a, like(x, 0.625)), small, large);
}

V MathEmitter::erf(V x) {
  V a = unary(llvm::Intrinsic::fabs, x);
  V s = b.CreateFMul(x, x);
  // x + x q(x^2) rounds once less than x (1 + q).
  V small =
      fma(x,
          poly(s, {-0x1.445f47d33d87bp-17, 0x1.d887505de3ba6p-14, -0x1.bccf664d7f763p-11, 0x1.562a60ddba6e6p-8,
                   -0x1.b829c897922e5p-6, 0x1.ce2f08fec14fdp-4, -0x1.81274665754c3p-2, 0x1.20dd7504045d6p+0 - 1.0}),
          x);
  // 1 - erfc, whose logarithm is smooth.
  V c = b.CreateSelect(b.CreateFCmpOGT(a, like(x, 4.2)), like(x, 4.2), a);
  V l = poly(c, {-0x1.a37156df2e311p-24, 0x1.ffaf1f3cef54ap-19, -0x1.1964b0c105b00p-14, 0x1.758a732f25683p-11,
                 -0x1.5204186236888p-8, 0x1.bf6ea92d69cfap-6, -0x1.c823304651084p-4, -0x1.42e795cd1f354p-1,
                 -0x1.217d656cac635p+0, 0x1.d63c7f052f0e2p-12});
  V large = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, b.CreateFSub(like(x, 1.0), expWithin(l, nullptr)), x);
  V r = b.CreateSelect(b.CreateFCmpOLT(a, like(x, 1.0)), small, large);
  return b.CreateSelect(b.CreateFCmpUNO(x, x), x, r);
}

// erfc(a) = 2^(a q(a)) for a >= 0: one polynomial where erf() needs two, since what is small may be as wrong as what is large. q is the least largest error
// of the power, 1.6e-8 up to 4.2; beyond, a q(a) falls from -28 to minus infinity.
V MathEmitter::erfcBesideOne(V x) {
  V a = unary(llvm::Intrinsic::fabs, x);
  V l = b.CreateFMul(a, poly(a, kErfcPower));
  V e = exp2Within(l, b.CreateFCmpOLT(l, like(x, -125.0)));
  return b.CreateSelect(b.CreateFCmpOLT(x, like(x, 0.0)), b.CreateFSub(like(x, 2.0), e), e);
}

V MathEmitter::logDouble(V x) {
  llvm::Type *i64 = intType(x);
  V i = b.CreateBitCast(x, i64);
  // m in [sqrt 1/2, sqrt 2), x = m * 2^e.
  V shifted = b.CreateSub(i, llvm::ConstantInt::get(i64, 0x3fe6a09e667f3bcdULL));
  V e = b.CreateAShr(shifted, 52);
  V m = b.CreateBitCast(b.CreateSub(i, b.CreateShl(e, 52)), x->getType());
  // The exponent as a double without a conversion instruction: it is small.
  V ef = b.CreateFSub(b.CreateBitCast(b.CreateAdd(e, llvm::ConstantInt::get(i64, 0x4338000000000000ULL)), x->getType()),
                      like(x, 6755399441055744.0));
  V s = b.CreateFDiv(b.CreateFSub(m, like(x, 1.0)), b.CreateFAdd(m, like(x, 1.0)));
  V z = b.CreateFMul(s, s);
  V p = poly(z, {0x1.58e6ff96ddf93p-4, 0x1.7321bcb7ac669p-4, 0x1.c722d7a735612p-4, 0x1.249240a596e60p-3,
                 0x1.999999a4529fap-3, 0x1.5555555552ccap-2, 1.0});
  return fma(ef, like(x, 0x1.62e42fefa39efp-1), b.CreateFMul(b.CreateFAdd(s, s), p));
}

V MathEmitter::exp2Double(V x) {
  V c = b.CreateSelect(b.CreateFCmpOGT(x, like(x, 1000.0)), like(x, 1000.0), x);
  c = b.CreateSelect(b.CreateFCmpOLT(c, like(x, -1000.0)), like(x, -1000.0), c);
  V magic = like(x, 6755399441055744.0);
  V t = b.CreateFAdd(c, magic);
  V n = b.CreateSub(bits(t), bits(magic));
  V r = b.CreateFSub(c, b.CreateFSub(t, magic));
  V p = poly(r, {0x1.b65d45d1d65ecp-24, 0x1.63f5b26a41cf8p-20, 0x1.ffcb7107d57a7p-17, 0x1.430888bf74717p-13,
                 0x1.5d87fe920857bp-10, 0x1.3b2ab72e032eep-7, 0x1.c6b08d704392bp-5, 0x1.ebfbdff812a79p-3,
                 0x1.62e42fefa39f8p-1, 1.0});
  return b.CreateFMul(p, b.CreateBitCast(b.CreateShl(b.CreateAdd(n, likeInt(x, 1023)), 52), x->getType()));
}

// As exp(): n and r of x = n log 2 + r, then e^r by Taylor's series (what is left out is below 2^-57), scaled in two steps.
V MathEmitter::expDouble(V x) {
  V none = b.CreateFCmpOLT(x, like(x, -745.5));
  V c = b.CreateSelect(b.CreateFCmpOGT(x, like(x, 710.0)), like(x, 710.0), b.CreateSelect(none, like(x, 0.0), x));
  V magic = like(x, 6755399441055744.0);
  V t = fma(c, like(x, 0x1.71547652b82fep+0), magic);
  V n = b.CreateSub(bits(t), bits(magic));
  V k = b.CreateFSub(t, magic);
  V r = fma(k, like(x, -0x1.62e42fefa39efp-1), c);
  r = fma(k, like(x, -0x1.abc9e3b39803fp-56), r);
  V q = poly(r, {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0,
                 1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5});
  V p = b.CreateFAdd(fma(b.CreateFMul(r, r), q, r), like(r, 1.0));
  V half = b.CreateAShr(n, 1);
  V rest = b.CreateSub(n, half);
  auto power = [&](V e) { return b.CreateBitCast(b.CreateShl(b.CreateAdd(e, likeInt(r, 1023)), 52), r->getType()); };
  return b.CreateSelect(none, like(x, 0.0), b.CreateFMul(b.CreateFMul(p, power(half)), power(rest)));
}

V MathEmitter::logFamily(MathFn fn, V x) {
  V d = b.CreateFPExt(x, doubleType(x));
  V one = like(d, 1.0), zero = like(d, 0.0);
  V r = nullptr;
  if (fn == MathFn::Log1p) {
    V small = fma(b.CreateFMul(d, d), poly(d, {0.2, -0.25, 1.0 / 3, -0.5}), d);
    V u = b.CreateFAdd(d, one);
    V positive = b.CreateFCmpOGT(u, zero);
    r = logDouble(b.CreateSelect(positive, u, one));
    r = b.CreateSelect(b.CreateFCmpOLT(unary(llvm::Intrinsic::fabs, d), like(d, 1e-4)), small, r);
    r = b.CreateSelect(positive, r,
                       b.CreateSelect(b.CreateFCmpOEQ(u, zero), llvm::ConstantFP::getInfinity(d->getType(), true),
                                      llvm::ConstantFP::getNaN(d->getType())));
    r = b.CreateSelect(b.CreateFCmpOEQ(d, llvm::ConstantFP::getInfinity(d->getType())), d, r);
    return b.CreateFPTrunc(b.CreateSelect(b.CreateFCmpUNO(d, d), d, r), x->getType());
  }
  r = logDouble(d);
  if (fn == MathFn::Log2) r = b.CreateFMul(r, like(d, 0x1.71547652b82fep+0));
  if (fn == MathFn::Log10) r = b.CreateFMul(r, like(d, 0x1.bcb7b1526e50ep-2));
  r = b.CreateSelect(b.CreateFCmpOGT(d, zero), r,
                     b.CreateSelect(b.CreateFCmpOEQ(d, zero), llvm::ConstantFP::getInfinity(d->getType(), true),
                                    llvm::ConstantFP::getNaN(d->getType())));
  r = b.CreateSelect(b.CreateFCmpOEQ(d, llvm::ConstantFP::getInfinity(d->getType())), d, r);
  return b.CreateFPTrunc(b.CreateSelect(b.CreateFCmpUNO(d, d), d, r), x->getType());
}

// e^x - 1 = 2^n (e^r - 1) + (2^n - 1), with e^r - 1 as in expFromReduced; both halved, because 2^128 is no float.
V MathEmitter::expm1(V x) {
  // Below -26 the result is -1; NaN passes both comparisons unchanged.
  V c = b.CreateSelect(b.CreateFCmpOGT(x, like(x, 89.0)), like(x, 89.0), x);
  c = b.CreateSelect(b.CreateFCmpOLT(c, like(x, -26.0)), like(x, -26.0), c);
  const auto [n, r] = reducedOf(c);
  V q = poly(r, {0x1.a12a42f159d0ep-13, 0x1.6d4920bf2569bp-10, 0x1.1110df02bfbecp-7, 0x1.5554e4aacef45p-5,
                 0x1.5555555ac911fp-3, 0x1.0000000c4592ep-1});
  V p = fma(b.CreateFMul(r, r), q, r);
  V half = b.CreateBitCast(b.CreateShl(b.CreateAdd(n, likeInt(x, 126)), 23), x->getType());
  V scaled = fma(half, p, b.CreateFSub(half, like(x, 0.5)));
  scaled = b.CreateFAdd(scaled, scaled);
  // Without a scale p is the result, denormals and the sign of zero included.
  V result = b.CreateSelect(b.CreateICmpEQ(n, likeInt(x, 0)), p, scaled);
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, result, x);
}

// x = m 2^E with a 24-bit integer m; a table holds (2^E * 2 / pi) mod 4 for each E in two doubles, so quarter turns
// come out with full accuracy for every x without cases.
llvm::GlobalVariable *MathEmitter::quarterTable() {
  llvm::Module *module = b.GetInsertBlock()->getModule();
  llvm::GlobalVariable *table = module->getNamedGlobal("neso.quarter_turns");
  if (!table) {
    const uint64_t words[5] = {0xb7246e3a424dd2e0ULL, 0xfe5163abdebbc561ULL, 0xdb6295993c439041ULL,
                               0xfc2757d1f534ddc0ULL, 0xa2f9836e4e441529ULL};
    constexpr unsigned kBits = 448;
    const llvm::APInt twoOverPi = llvm::APInt(320, llvm::ArrayRef<uint64_t>(words)).zext(kBits);
    auto leading = [](const llvm::APInt &w, unsigned count, int &exponent) {
      const unsigned active = w.getActiveBits();
      exponent = active > count ? static_cast<int>(active - count) : 0;
      return w.lshr(static_cast<unsigned>(exponent));
    };
    llvm::SmallVector<double, 512> values;
    for (int field = 0; field < 256; ++field) {
      const int E = std::max(field, 1) - 150;
      llvm::APInt w = twoOverPi;
      if (E > 0) w = w.shl(static_cast<unsigned>(E)) & llvm::APInt::getLowBitsSet(kBits, 322);
      const int scale = std::min(E, 0) - 320;
      int eh = 0, el = 0;
      llvm::APInt hi = leading(w, 53, eh);
      llvm::APInt rest = w - hi.shl(static_cast<unsigned>(eh));
      llvm::APInt lo = leading(rest, 53, el);
      values.push_back(std::ldexp(static_cast<double>(hi.getZExtValue()), eh + scale));
      values.push_back(std::ldexp(static_cast<double>(lo.getZExtValue()), el + scale));
    }
    llvm::Constant *data = llvm::ConstantDataArray::get(b.getContext(), llvm::ArrayRef<double>(values));
    table = new llvm::GlobalVariable(*module, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data,
                                     "neso.quarter_turns");
    table->setAlignment(llvm::Align(64));
  }
  return table;
}

MathEmitter::Turned MathEmitter::quarterTurns(V x) {
  llvm::GlobalVariable *table = quarterTable();
  V i = bits(x);
  V field = b.CreateAnd(b.CreateLShr(i, 23), likeInt(x, 255));
  V fraction = b.CreateAnd(i, likeInt(x, 0x7fffff));
  V mantissa =
      b.CreateSelect(b.CreateICmpEQ(field, likeInt(x, 0)), fraction, b.CreateOr(fraction, likeInt(x, 0x800000)));
  V m = b.CreateSIToFP(mantissa, doubleType(x));
  V slot = b.CreateShl(field, 1);
  auto fetch = [&](int64_t part) -> V {
    V p = b.CreateGEP(b.getDoubleTy(), table, b.CreateAdd(slot, likeInt(x, part)));
    if (auto *vt = llvm::dyn_cast<llvm::VectorType>(x->getType()))
      return b.CreateMaskedGather(doubleType(x), p, llvm::Align(8),
                                  llvm::Constant::getAllOnesValue(withElement(vt, b.getInt1Ty())));
    return b.CreateAlignedLoad(b.getDoubleTy(), p, llvm::Align(8));
  };
  V hi = fetch(0), lo = fetch(1);
  V p = b.CreateFMul(m, hi);
  V tail = fma(m, lo, fma(m, hi, b.CreateFNeg(p)));
  // p reaches 2^26: far below the place where this trick stops rounding.
  V magic = like(p, 6755399441055744.0);
  V t = b.CreateFAdd(p, magic);
  V quarter = b.CreateTrunc(b.CreateBitCast(t, intType(t)), intType(x));
  V r = b.CreateFMul(b.CreateFAdd(b.CreateFSub(p, b.CreateFSub(t, magic)), tail), like(p, 0x1.921fb54442d18p+0));
  V z = b.CreateFMul(r, r);
  V sine = b.CreateFMul(r, poly(z, {-0x1.a91ffe5fa9615p-26, 0x1.71d6a84eee41ep-19, -0x1.a019f795c8786p-13,
                                    0x1.1111110b0b935p-7, -0x1.55555555500cap-3, 0x1.fffffffffffd0p-1}));
  V cosine_ = poly(z, {-0x1.239e6a13760adp-22, 0x1.a00db7ff34b94p-16, -0x1.6c16b120bcc9ep-10, 0x1.55555541ca557p-5,
                       -0x1.ffffffffddb3dp-2, 1.0});
  return {sine, cosine_, quarter, b.CreateICmpEQ(field, likeInt(x, 255))};
}

V MathEmitter::sinCos(V x, bool cosine) {
  auto [sine, cosine_, quarter, bad] = quarterTurns(x);
  if (cosine) quarter = b.CreateAdd(quarter, likeInt(x, 1));
  V odd = b.CreateICmpNE(b.CreateAnd(quarter, likeInt(x, 1)), likeInt(x, 0));
  V result = b.CreateFPTrunc(b.CreateSelect(odd, cosine_, sine), x->getType());
  V flip = b.CreateShl(b.CreateAnd(quarter, likeInt(x, 2)), 30);
  // The sine is odd: the argument's sign flips it too.
  if (!cosine) flip = b.CreateXor(flip, b.CreateAnd(bits(x), llvm::ConstantInt::get(intType(x), 0x80000000u)));
  result = b.CreateBitCast(b.CreateXor(bits(result), flip), x->getType());
  return b.CreateSelect(bad, llvm::ConstantFP::getNaN(x->getType()), result);
}

V MathEmitter::atan2(V y, V x) {
  // In double: x and y are double vectors here.
  V ay = unary(llvm::Intrinsic::fabs, y), ax = unary(llvm::Intrinsic::fabs, x);
  V swap = b.CreateFCmpOGT(ay, ax);
  V num = b.CreateSelect(swap, ax, ay), den = b.CreateSelect(swap, ay, ax);
  V q = b.CreateFDiv(num, den);
  // 0 / 0 and inf / inf stand for 0 and 1.
  q = b.CreateSelect(b.CreateFCmpOEQ(num, den),
                     b.CreateSelect(b.CreateFCmpOEQ(den, like(x, 0.0)), like(x, 0.0), like(x, 1.0)), q);
  V z = b.CreateFMul(q, q);
  V r =
      b.CreateFMul(q, poly(z, {-0x1.178d6baea92b4p-12, 0x1.1b7b569f4cdd0p-9, -0x1.0e1211403527dp-7,
                               0x1.46a7b23ca54f7p-6, -0x1.20e9c577a2d32p-5, 0x1.9d5503ec54b44p-5, -0x1.04c150b92d46cp-4,
                               0x1.37e1333e1ff1dp-4, -0x1.73c9227469d04p-4, 0x1.c70accb05424ep-4, -0x1.2491a58afe8ffp-3,
                               0x1.9999935891892p-3, -0x1.5555554929285p-2, 0x1.fffffffffc08dp-1}));
  r = b.CreateSelect(swap, b.CreateFSub(like(x, 0x1.921fb54442d18p+0), r), r);
  V negative = b.CreateICmpSLT(bits(x), likeInt(x, 0));
  r = b.CreateSelect(negative, b.CreateFSub(like(x, 0x1.921fb54442d18p+1), r), r);
  r = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, r, y);
  return b.CreateSelect(b.CreateFCmpUNO(x, y), b.CreateFAdd(x, y), r);
}

V MathEmitter::pow(V x, V y) {
  V dx = b.CreateFPExt(x, doubleType(x)), dy = b.CreateFPExt(y, doubleType(y));
  V a = unary(llvm::Intrinsic::fabs, dx);
  V zero = like(dx, 0.0), one = like(dx, 1.0), inf = llvm::ConstantFP::getInfinity(dx->getType());
  V ordinary = b.CreateAnd(b.CreateFCmpOGT(a, zero), b.CreateFCmpOLT(a, inf));
  V l = b.CreateFMul(logDouble(b.CreateSelect(ordinary, a, one)), like(dx, 0x1.71547652b82fep+0));
  V r = exp2Double(b.CreateFMul(dy, l));
  // |x| is 0 or infinite: the exponent's sign decides.
  V grows = b.CreateXor(b.CreateFCmpOEQ(a, zero), b.CreateFCmpOGT(dy, zero));
  V edge = b.CreateSelect(grows, inf, zero);
  V isNan = b.CreateFCmpUNO(dx, dy);
  r = b.CreateSelect(b.CreateOr(b.CreateFCmpOEQ(a, zero), b.CreateFCmpOEQ(a, inf)), edge, r);
  r = b.CreateSelect(b.CreateAnd(b.CreateFCmpOEQ(unary(llvm::Intrinsic::fabs, dy), inf), b.CreateFCmpOEQ(a, one)), one,
                     r);
  // Odd integers keep the sign of a negative base; a negative finite base has no other real powers.
  V whole = b.CreateFCmpOEQ(unary(llvm::Intrinsic::trunc, dy), dy);
  V halfY = b.CreateFMul(dy, like(dy, 0.5));
  V odd = b.CreateAnd(whole, b.CreateFCmpONE(unary(llvm::Intrinsic::trunc, halfY), halfY));
  V negative = b.CreateICmpSLT(bits(dx), likeInt(dx, 0));
  r = b.CreateSelect(b.CreateAnd(negative, odd), b.CreateFNeg(r), r);
  V undefined = b.CreateAnd(b.CreateAnd(b.CreateFCmpOLT(dx, zero), b.CreateFCmpOLT(a, inf)), b.CreateNot(whole));
  r = b.CreateSelect(undefined, llvm::ConstantFP::getNaN(dx->getType()), r);
  r = b.CreateSelect(isNan, b.CreateFAdd(dx, dy), r);
  V unit = b.CreateOr(b.CreateFCmpOEQ(dx, one), b.CreateFCmpOEQ(dy, zero));
  return b.CreateFPTrunc(b.CreateSelect(unit, one, r), x->getType());
}

/// In double, or with a table: worth it where a call would be one a lane.
static bool paysForVectorsOnly(MathFn fn) {
  switch (fn) {
  case MathFn::Tan:
  case MathFn::Asinh:
  case MathFn::Acosh:
  case MathFn::Atanh:
  case MathFn::Erfc:
  case MathFn::Hypot: return true;
  default: return false;
  }
}

/// What is approximated in f32 alone.
static MathFn exactly(MathFn fn) {
  switch (fn) {
  case MathFn::ExpOrZero: return MathFn::Exp;
  case MathFn::Exp2OrZero: return MathFn::Exp2;
  case MathFn::ErfcBesideOne: return MathFn::Erfc;
  default: return fn;
  }
}

V MathEmitter::emit(MathFn fn, llvm::ArrayRef<V> args) {
  V x = args[0];
  if (!x->getType()->getScalarType()->isFloatTy()) fn = exactly(fn);
  static constexpr const char *kNames[] = {
      "exp",  "",     "exp2", "",          "exp10",     "expm1", "log",    "log2",   "log10", "log1p", "sin",   "cos",   "tan",
      "sinh", "cosh",      "tanh",      "asin",  "acos",   "atan",   "asinh", "acosh", "atanh", "atan2", "erf",
      "erfc", "",     "pow",       "cbrt",      "fmod",  "lgamma", "tgamma", "hypot", "",      "j0",    "j1",    "y0",
      "y1",   "nextafter", "remainder", "",      "",       "",       "",      ""};
  const char *name = kNames[static_cast<int>(fn)];
  if (fn == MathFn::Fmod) return fmod(x, args[1]);
  if (!x->getType()->isVectorTy() && paysForVectorsOnly(fn)) return libm(name, args);
  if (fn == MathFn::Nextafter) return nextafter(x, args[1]);
  if (x->getType()->isVectorTy() && x->getType()->getScalarType()->isDoubleTy()) {
    if (fn == MathFn::Exp) return expDouble(x);
    if (V r = emitOnDoubles(b, fn, x)) return r;
  }
  if (!x->getType()->getScalarType()->isFloatTy()) return libm(name, args);
  auto wide = [&](V v) { return b.CreateFPExt(v, doubleType(v)); };
  auto narrow = [&](V v) { return b.CreateFPTrunc(v, x->getType()); };
  switch (fn) {
  case MathFn::Exp: return exp(x);
  case MathFn::ExpOrZero: return expOrZero(x);
  case MathFn::Exp2: return exp2(x);
  case MathFn::Exp2OrZero: return exp2OrZero(x);
  case MathFn::Exp10: return narrow(exp2Double(b.CreateFMul(wide(x), like(wide(x), 0x1.a934f0979a371p+1))));
  case MathFn::ExpM1: return expm1(x);
  case MathFn::Log: return log(x);
  case MathFn::Log2:
  case MathFn::Log10:
  case MathFn::Log1p: return logFamily(fn, x);
  case MathFn::Sin: return sinCos(x, false);
  case MathFn::Cos: return sinCos(x, true);
  case MathFn::Tanh: return tanh(x);
  case MathFn::Erf: return erf(x);
  case MathFn::Sinh: {
    V d = wide(x);
    V z = b.CreateFMul(d, d);
    V small = fma(b.CreateFMul(d, z),
                  poly(z, {0x1.b01e9edac9456p-26, 0x1.71dd78b73b71bp-19, 0x1.a01a01e5451b9p-13, 0x1.11111111086b6p-7,
                           0x1.5555555555560p-3}),
                  d);
    V e = exp2Double(b.CreateFMul(d, like(d, 0x1.71547652b82fep+0)));
    V large = b.CreateFMul(b.CreateFSub(e, b.CreateFDiv(like(d, 1.0), e)), like(d, 0.5));
    return narrow(b.CreateSelect(b.CreateFCmpOLT(unary(llvm::Intrinsic::fabs, d), like(d, 0.5)), small, large));
  }
  case MathFn::Cosh: {
    V d = wide(x);
    V e = exp2Double(b.CreateFMul(d, like(d, 0x1.71547652b82fep+0)));
    return narrow(b.CreateFMul(b.CreateFAdd(e, b.CreateFDiv(like(d, 1.0), e)), like(d, 0.5)));
  }
  case MathFn::Atan: return narrow(atan2(wide(x), like(wide(x), 1.0)));
  case MathFn::Atan2: return narrow(atan2(wide(x), wide(args[1])));
  case MathFn::Tan: return tan(x);
  case MathFn::Asin: return asinAcos(x, false);
  case MathFn::Acos: return asinAcos(x, true);
  case MathFn::Asinh:
  case MathFn::Acosh:
  case MathFn::Atanh: return areaFunction(fn, x);
  case MathFn::Erfc: return erfc(x);
  case MathFn::ErfcBesideOne: return erfcBesideOne(x);
  case MathFn::I0:
  case MathFn::I1:
  case MathFn::I0e:
  case MathFn::I1e: return besselI(fn, x);
  case MathFn::NdtrI: return ndtri(x);
  case MathFn::Hypot: {
    V p = wide(x), q = wide(args[1]), inf = llvm::ConstantFP::getInfinity(p->getType());
    V r = unary(llvm::Intrinsic::sqrt, fma(p, p, b.CreateFMul(q, q)));
    // An infinite side decides even beside NaN.
    V infinite = b.CreateOr(b.CreateFCmpOEQ(unary(llvm::Intrinsic::fabs, p), inf),
                            b.CreateFCmpOEQ(unary(llvm::Intrinsic::fabs, q), inf));
    return narrow(b.CreateSelect(infinite, inf, r));
  }
  case MathFn::Pow: return pow(x, args[1]);
  default: return libm(name, args);
  }
}

/// lgamma writes the sign to a variable of the whole process, which threads share; lgamma_r gives it to its caller.
static llvm::FunctionCallee logGamma(llvm::Module &module, llvm::Type *element) {
  const std::string suffix = element->isFloatTy() ? "f" : "";
  auto *type = llvm::FunctionType::get(element, {element}, false);
  if (llvm::Function *known = module.getFunction("neso.lgamma" + suffix)) return {type, known};
  auto *own = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, "neso.lgamma" + suffix, module);
  own->addFnAttr(llvm::Attribute::NoUnwind);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(module.getContext(), "entry", own));
  llvm::FunctionCallee callee = module.getOrInsertFunction("lgamma" + suffix + "_r", element, element, b.getPtrTy());
  b.CreateRet(b.CreateCall(callee, {own->getArg(0), b.CreateAlloca(b.getInt32Ty())}));
  return {type, own};
}

V MathEmitter::libm(llvm::StringRef name, llvm::ArrayRef<V> args) {
  llvm::Type *type = args[0]->getType();
  llvm::Type *element = type->getScalarType();
  llvm::Module *module = b.GetInsertBlock()->getModule();
  std::string symbol = name.str() + (element->isFloatTy() ? "f" : "");
  llvm::SmallVector<llvm::Type *, 3> scalars(args.size(), element);
  llvm::FunctionCallee callee = name == "lgamma" ? logGamma(*module, element)
                                                 : module->getOrInsertFunction(symbol, llvm::FunctionType::get(element, scalars, false));
  auto *vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  if (!vector) return b.CreateCall(callee, args);
  // A helper with a loop over the lanes; it goes through memory, so that its code does not grow with the width.
  return throughMemory("neso.v" + std::to_string(vector->getNumElements()) + "." + symbol, args, 1,
                       [&](llvm::IRBuilder<> &h, llvm::ArrayRef<V> at) {
                         llvm::SmallVector<V, 3> operands;
                         for (V p : at.drop_front()) operands.push_back(h.CreateLoad(element, p));
                         h.CreateStore(h.CreateCall(callee, operands), at[0]);
                       });
}

V MathEmitter::onVectors(llvm::StringRef symbol, unsigned width, llvm::ArrayRef<V> args) {
  const bool isF32 = args[0]->getType()->getScalarType()->isFloatTy();
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(args[0]->getType())->getNumElements();
  llvm::SmallVector<llvm::Type *, 4> parameters(args.size() + 1, b.getPtrTy());
  const std::string name = (symbol + (isF32 ? "f" : "") + "_v" + llvm::Twine(width)).str();
  llvm::FunctionCallee callee = b.GetInsertBlock()->getModule()->getOrInsertFunction(
      name, llvm::FunctionType::get(b.getVoidTy(), parameters, false));
  return throughMemory("neso.v" + std::to_string(lanes) + "." + name, args, width,
                       [&](llvm::IRBuilder<> &h, llvm::ArrayRef<V> at) { h.CreateCall(callee, at); });
}

V MathEmitter::throughMemory(const std::string &helperName, llvm::ArrayRef<V> args, unsigned step,
                             llvm::function_ref<void(llvm::IRBuilder<> &, llvm::ArrayRef<V> at)> body) {
  auto *type = llvm::cast<llvm::FixedVectorType>(args[0]->getType());
  llvm::Module *module = b.GetInsertBlock()->getModule();
  llvm::Function *helper = module->getFunction(helperName);
  if (!helper) {
    llvm::SmallVector<llvm::Type *, 4> parameters(args.size() + 1, b.getPtrTy());
    helper = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), parameters, false),
                                    llvm::GlobalValue::InternalLinkage, helperName, module);
    helper->addFnAttr(llvm::Attribute::NoInline);
    helper->addFnAttr(llvm::Attribute::NoUnwind);
    llvm::IRBuilder<> h(b.getContext());
    llvm::BasicBlock *entry = llvm::BasicBlock::Create(b.getContext(), "entry", helper);
    llvm::BasicBlock *loop = llvm::BasicBlock::Create(b.getContext(), "lane", helper);
    llvm::BasicBlock *exit = llvm::BasicBlock::Create(b.getContext(), "exit", helper);
    h.SetInsertPoint(entry);
    h.CreateBr(loop);
    h.SetInsertPoint(loop);
    llvm::PHINode *i = h.CreatePHI(h.getInt64Ty(), 2);
    i->addIncoming(h.getInt64(0), entry);
    llvm::SmallVector<V, 4> at;
    for (llvm::Argument &a : helper->args()) at.push_back(h.CreateGEP(type->getElementType(), &a, i));
    body(h, at);
    V next = h.CreateAdd(i, h.getInt64(step));
    i->addIncoming(next, loop);
    h.CreateCondBr(h.CreateICmpULT(next, h.getInt64(type->getNumElements())), loop, exit);
    h.SetInsertPoint(exit);
    h.CreateRetVoid();
  }
  llvm::Function *here = b.GetInsertBlock()->getParent();
  auto slot = [&]() {
    llvm::IRBuilder<> e(&here->getEntryBlock(), here->getEntryBlock().begin());
    return e.CreateAlloca(type);
  };
  V result = slot();
  llvm::SmallVector<V, 4> pointers = {result};
  for (V a : args) {
    V p = slot();
    b.CreateStore(a, p);
    pointers.push_back(p);
  }
  b.CreateCall(helper, pointers);
  return b.CreateLoad(type, result);
}

} // namespace neso
