// Elementary functions of f32 that are built on those of math.cpp, and the remainder and the neighbour of any float.
#include "backend/common/math.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/Module.h"

namespace neso {

using V = llvm::Value *;

// x = m 2^k with m in [2/3, 4/3); the logarithm of 1 + f is f - f^2 / 2 + f^3 p(f). At most 1 ulp.
V MathEmitter::log(V x) {
  V denormal = b.CreateFCmpOLT(x, like(x, 0x1p-126));
  V i = bits(b.CreateSelect(denormal, b.CreateFMul(x, like(x, 0x1p23)), x));
  V e = b.CreateAnd(b.CreateSub(i, likeInt(x, 0x3f2aaaab)), likeInt(x, -0x800000));
  V f = b.CreateFSub(b.CreateBitCast(b.CreateSub(i, e), x->getType()), like(x, 1.0));
  V k = b.CreateFAdd(b.CreateSIToFP(b.CreateAShr(e, 23), x->getType()),
                     b.CreateSelect(denormal, like(x, -23.0), like(x, 0.0)));
  V p = poly(f, {0x1.d01a22p-4, -0x1.fcd036p-4, 0x1.bf1af0p-4, -0x1.f75896p-4, 0x1.24b28cp-3, -0x1.557832p-3,
                 0x1.999954p-3, -0x1.ffffb6p-3, 0x1.555556p-2});
  V r = fma(b.CreateFMul(f, f), fma(f, p, like(x, -0.5)), f);
  r = fma(k, like(x, 0x1.62e430p-1), r);
  V inf = llvm::ConstantFP::getInfinity(x->getType());
  r = b.CreateSelect(b.CreateFCmpOEQ(x, inf), x, r);
  V edge = b.CreateSelect(b.CreateFCmpOEQ(x, like(x, 0.0)), llvm::ConstantFP::getInfinity(x->getType(), true),
                          llvm::ConstantFP::getNaN(x->getType()));
  return b.CreateSelect(b.CreateFCmpOGT(x, like(x, 0.0)), r, edge);
}

V MathEmitter::tan(V x) {
  auto [sine, cosine, quarter, notFinite] = quarterTurns(x);
  V odd = b.CreateICmpNE(b.CreateAnd(quarter, likeInt(x, 1)), likeInt(x, 0));
  V t = b.CreateFDiv(b.CreateSelect(odd, b.CreateFNeg(cosine), sine), b.CreateSelect(odd, sine, cosine));
  V r = b.CreateFPTrunc(t, x->getType());
  // The tangent is odd, and t that of |x|.
  V sign = b.CreateAnd(bits(x), llvm::ConstantInt::get(intType(x), 0x80000000u));
  r = b.CreateBitCast(b.CreateXor(bits(r), sign), x->getType());
  return b.CreateSelect(notFinite, llvm::ConstantFP::getNaN(x->getType()), r);
}

// asin(s) = s + s z p(z) with z = s^2 up to 1/4; beyond |x| = 1/2 it is pi / 2 - 2 asin(s) with z = (1 - |x|) / 2. The
// result is base - main, whose rounding error is known exactly, and what is left over: at most 1 ulp.
V MathEmitter::asinAcos(V x, bool cosine) {
  V a = unary(llvm::Intrinsic::fabs, x), zero = like(x, 0.0);
  V big = b.CreateFCmpOGT(a, like(x, 0.5));
  V z = b.CreateSelect(big, b.CreateFMul(b.CreateFSub(like(x, 1.0), a), like(x, 0.5)), b.CreateFMul(x, x));
  V q = b.CreateFMul(
      z, poly(z, {0x1.13fed4p-5, 0x1.18f91ep-6, 0x1.fd8da2p-6, 0x1.6d5bbap-5, 0x1.333430p-4, 0x1.555554p-3}));
  V s = unary(llvm::Intrinsic::sqrt, z), twice = b.CreateFAdd(s, s);
  // What the root lost to rounding. z is 0 or at least 2^-25 here.
  V guarded = b.CreateSelect(b.CreateFCmpOLT(twice, like(x, 0x1p-20)), like(x, 1.0), twice);
  V lost = b.CreateFDiv(fma(b.CreateFNeg(s), s, z), guarded);
  V rest = fma(s, q, lost);
  rest = b.CreateFAdd(rest, rest);
  constexpr double kHalfPi = 0x1.921fb54442d18p+0, kHigh = 0x1.921fb6p+0, kLow = kHalfPi - kHigh;
  V main = twice, high = like(x, kHigh), low = like(x, kLow);
  if (cosine) {
    V negative = b.CreateFCmpOLT(x, zero);
    main = b.CreateSelect(negative, twice, b.CreateFNeg(twice));
    rest = b.CreateSelect(negative, rest, b.CreateFNeg(rest));
    V bigHigh = b.CreateSelect(negative, like(x, 2 * kHigh), zero);
    V bigLow = b.CreateSelect(negative, like(x, 2 * kLow), zero);
    high = b.CreateSelect(big, bigHigh, high);
    low = b.CreateSelect(big, bigLow, low);
    main = b.CreateSelect(big, main, x);
    rest = b.CreateSelect(big, rest, b.CreateFMul(x, q));
  } else {
    high = b.CreateSelect(big, high, zero);
    low = b.CreateSelect(big, low, zero);
    main = b.CreateSelect(big, main, b.CreateFNeg(a));
    rest = b.CreateSelect(big, rest, b.CreateFNeg(b.CreateFMul(a, q)));
  }
  V r = b.CreateFSub(high, main);
  V error = b.CreateFSub(b.CreateFSub(high, r), main);
  r = b.CreateFAdd(r, b.CreateFAdd(error, b.CreateFSub(low, rest)));
  return cosine ? r : b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, r, x);
}

// Logarithms in double; where their argument is nearly 1, the first terms of the series.
V MathEmitter::areaFunction(MathFn fn, V x) {
  V d = b.CreateFPExt(x, doubleType(x));
  V a = unary(llvm::Intrinsic::fabs, d), z = b.CreateFMul(d, d), one = like(d, 1.0);
  V inf = llvm::ConstantFP::getInfinity(d->getType()), nan = llvm::ConstantFP::getNaN(d->getType());
  V r = nullptr;
  if (fn == MathFn::Acosh) {
    V root = unary(llvm::Intrinsic::sqrt, b.CreateFMul(b.CreateFSub(d, one), b.CreateFAdd(d, one)));
    r = logDouble(b.CreateFAdd(d, root));
    r = b.CreateSelect(b.CreateFCmpOEQ(d, inf), inf, b.CreateSelect(b.CreateFCmpOGE(d, one), r, nan));
    return b.CreateFPTrunc(r, x->getType());
  }
  V series = nullptr;
  if (fn == MathFn::Atanh) {
    series = poly(z, {1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3});
    r = b.CreateFMul(logDouble(b.CreateFDiv(b.CreateFAdd(one, a), b.CreateFSub(one, a))), like(d, 0.5));
    r = b.CreateSelect(b.CreateFCmpOLT(a, one), r, b.CreateSelect(b.CreateFCmpOEQ(a, one), inf, nan));
  } else {
    series = poly(z, {35.0 / 1152, -5.0 / 112, 3.0 / 40, -1.0 / 6});
    r = logDouble(b.CreateFAdd(a, unary(llvm::Intrinsic::sqrt, b.CreateFAdd(z, one))));
    r = b.CreateSelect(b.CreateFCmpOLT(a, inf), r, a);
  }
  r = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, r, d);
  series = fma(b.CreateFMul(d, z), series, d);
  return b.CreateFPTrunc(b.CreateSelect(b.CreateFCmpOLT(a, like(d, 0.04)), series, r), x->getType());
}

// For x >= 0 exp(x^2) erfc(x) (1 + 2 x) as a polynomial in (x - 3) / (x + 3), up to x = 10.1, where erfc is 0 in f32.
V MathEmitter::erfc(V x) {
  V d = b.CreateFPExt(x, doubleType(x));
  V a = unary(llvm::Intrinsic::fabs, d);
  a = b.CreateSelect(b.CreateFCmpOGT(a, like(d, 10.1)), like(d, 10.1), a);
  V linear = fma(a, like(d, 2.0), like(d, 1.0)), plus = b.CreateFAdd(a, like(d, 3.0));
  V inverse = b.CreateFDiv(like(d, 1.0), b.CreateFMul(linear, plus));
  V t = b.CreateFMul(b.CreateFMul(b.CreateFSub(a, like(d, 3.0)), linear), inverse);
  V p = poly(t, {0x1.2202de9d89a32p-15, 0x1.1226cccbd82a7p-13, -0x1.04b1cc08201a6p-13, -0x1.9f4c1f6091295p-11,
                 0x1.eff3badf57c08p-10, 0x1.4c19e9b8aeed5p-9, -0x1.85741bfabc6c1p-6, 0x1.17c98463b001ap-4,
                 -0x1.e88b93eca50fbp-4, 0x1.09836b53e2f04p-3, -0x1.85a15a20b8f30p-5, -0x1.15c084cf775b1p-3,
                 0x1.40c522d7c2eaap+0});
  V e = exp2Double(b.CreateFMul(b.CreateFMul(a, a), like(d, -0x1.71547652b82fep+0)));
  V r = b.CreateFMul(b.CreateFMul(e, p), b.CreateFMul(plus, inverse));
  r = b.CreateSelect(b.CreateFCmpOLT(d, like(d, 0.0)), b.CreateFSub(like(d, 2.0), r), r);
  return b.CreateFPTrunc(r, x->getType());
}

// I_n(a) exp(-a): up to 8 a polynomial in a / 4 - 1 (of I_1(a) exp(-a) / a), beyond times sqrt(a) in 16 / a - 1.
V MathEmitter::besselI(MathFn fn, V x) {
  const bool first = fn == MathFn::I1 || fn == MathFn::I1e;
  V d = b.CreateFPExt(x, doubleType(x));
  V a = unary(llvm::Intrinsic::fabs, d), one = like(d, 1.0);
  V t = fma(a, like(d, 0.25), like(d, -1.0));
  V s = b.CreateFDiv(one, unary(llvm::Intrinsic::sqrt, a));
  V y = fma(b.CreateFMul(s, s), like(d, 16.0), like(d, -1.0));
  V near, far;
  if (first) {
    near = poly(t, {0x1.81bbd9eaef5e1p-15, -0x1.031be48127a25p-13, 0x1.a5717e8195b35p-14, -0x1.aa188c7f10160p-13,
                    0x1.a3268fc716575p-11, -0x1.bd060bb3bed40p-10, 0x1.852916c322875p-9, -0x1.63c001ead5624p-8,
                    0x1.3a87269c1aa6ap-7, -0x1.ffa24bd45740ap-7, 0x1.8403ff600724ep-6, -0x1.13c11f57edee9p-5,
                    0x1.6dfa45f202235p-5, -0x1.c4dd44caff532p-5, 0x1.0530f17de7720p-4, -0x1.1881247444d02p-4,
                    0x1.16c390f9e8650p-4, -0x1.f4bb07be5e55ap-5, 0x1.6e14eb8e5d319p-5});
    near = b.CreateFMul(near, a);
    far = poly(y, {-0x1.452e4764e49e5p-25, -0x1.08893a744e8a6p-23, -0x1.7cfc0d8e4b86fp-22, -0x1.e9e58599225d8p-20,
                   -0x1.f88f405d331b0p-17, -0x1.cbc62cce289f4p-13, -0x1.3f7961b35d006p-7, 0x1.8ebe783b59c09p-2});
  } else {
    near = poly(t, {0x1.6043dadf12954p-12, -0x1.be178414de676p-11, 0x1.ec6ff78afcdf4p-12, -0x1.8e4cc4d3c8603p-11,
                    0x1.0a40048c24792p-8, -0x1.06777d0da344bp-7, 0x1.7e20e075e7291p-7, -0x1.351612c9ec66ap-6,
                    0x1.f0648ab33522cp-6, -0x1.62d39bea2820bp-5, 0x1.d0e382e4dc108p-5, -0x1.1c86d2bdc8e32p-4,
                    0x1.44b9c9d8cc2a4p-4, -0x1.5c0cb3507e87bp-4, 0x1.65c1ffd59cfadp-4, -0x1.6cb83c8ffdc86p-4,
                    0x1.8322d2bf212dfp-4, -0x1.cedda27e48f56p-4, 0x1.a7f09f8eedf5ap-3});
    far = poly(y, {0x1.20ede94d34bdep-25, 0x1.d49747a145d29p-24, 0x1.463d010b3e4a0p-22, 0x1.8c11e9e2c5df0p-20,
                   0x1.75d91e60aa877p-17, 0x1.1dab29fa3a14ep-13, 0x1.b8796a2484ee8p-9, 0x1.9bd428ac75fd1p-2});
  }
  V r = b.CreateSelect(b.CreateFCmpOGT(a, like(d, 8.0)), b.CreateFMul(far, s), near);
  if (fn == MathFn::I0 || fn == MathFn::I1) {
    r = b.CreateFMul(r, exp2Double(b.CreateFMul(a, like(d, 0x1.71547652b82fep+0))));
    r = b.CreateSelect(b.CreateFCmpOEQ(a, llvm::ConstantFP::getInfinity(d->getType())), a, r);
  }
  if (first) r = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, r, d);
  return b.CreateFPTrunc(r, x->getType());
}

// In the middle odd in x - 1/2; outside less than r = sqrt(-2 log tail) by a polynomial in (r - 3) / (r + 3).
V MathEmitter::ndtri(V x) {
  V d = b.CreateFPExt(x, doubleType(x));
  V y = b.CreateFSub(d, like(d, 0.5)), z = b.CreateFMul(y, y);
  V middle = b.CreateFMul(y, poly(z, {0x1.e45a81c6f114dp+14, -0x1.e23ec1ee0d0cbp+11, 0x1.0be545b03672cp+10,
                                      0x1.d389e0a1199d7p+6, 0x1.80e85bb3c7952p+5, 0x1.f4bd97c5e3d94p+3,
                                      0x1.71740a714debep+2, 0x1.4ffdd9afbe713p+1, 0x1.40d93200180d9p+1}));
  V other = b.CreateFSub(like(d, 1.0), d);
  V tail = b.CreateSelect(b.CreateFCmpOLT(d, other), d, other);
  V r = unary(llvm::Intrinsic::sqrt, b.CreateFMul(logDouble(tail), like(d, -2.0)));
  V t = b.CreateFDiv(b.CreateFSub(r, like(d, 3.0)), b.CreateFAdd(r, like(d, 3.0)));
  r = b.CreateFAdd(r, poly(t, {0x1.deb26a74f1596p-8, 0x1.8c3e83c1a9b62p-6, -0x1.055733abf8ddep-4, 0x1.4b6baa6150b64p-4,
                               -0x1.377af7f625a03p-4, 0x1.771d5ea62d8bep-4, -0x1.a03d33fa8330dp-4, 0x1.18c3aecb4d020p-3,
                               -0x1.438164936d2d1p-3, 0x1.069cc9b0f9f4dp-2, -0x1.5c12054fca18cp-2, 0x1.b104d92eca7e9p-1,
                               -0x1.6d401960e7f28p-1}));
  r = b.CreateSelect(b.CreateFCmpOEQ(tail, like(d, 0.0)), llvm::ConstantFP::getInfinity(d->getType()), r);
  r = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, r, y);
  r = b.CreateSelect(b.CreateFCmpOLT(unary(llvm::Intrinsic::fabs, y), like(d, 0.3)), middle, r);
  // Outside of [0, 1], and NaN.
  r = b.CreateSelect(b.CreateFCmpOGE(tail, like(d, 0.0)), r, llvm::ConstantFP::getNaN(d->getType()));
  return b.CreateFPTrunc(r, x->getType());
}

V MathEmitter::nextafter(V x, V y) {
  V zero = like(x, 0.0), one = likeInt(x, 1);
  V away = b.CreateXor(b.CreateFCmpOLT(x, y), b.CreateFCmpOLT(x, zero));
  V moved = b.CreateAdd(bits(x), b.CreateSelect(away, one, likeInt(x, -1)));
  V r = b.CreateBitCast(moved, x->getType());
  V least = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, b.CreateBitCast(one, x->getType()), y);
  r = b.CreateSelect(b.CreateFCmpOEQ(x, zero), least, r);
  r = b.CreateSelect(b.CreateFCmpOEQ(x, y), y, r);
  return b.CreateSelect(b.CreateFCmpUNO(x, y), b.CreateFAdd(x, y), r);
}

V MathEmitter::fmod(V x, V y) {
  llvm::Type *type = x->getType();
  auto *vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  if (!vector) return libm("fmod", {x, y});
  const std::string name =
      "neso.fmod" + std::to_string(type->getScalarSizeInBits()) + ".v" + std::to_string(vector->getNumElements());
  llvm::Module *module = b.GetInsertBlock()->getModule();
  llvm::Function *helper = module->getFunction(name);
  if (!helper) {
    // Through memory, as in libm().
    helper = llvm::Function::Create(
        llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy(), b.getPtrTy(), b.getPtrTy()}, false),
        llvm::GlobalValue::InternalLinkage, name, module);
    helper->addFnAttr(llvm::Attribute::NoUnwind);
    llvm::IRBuilder<> h(llvm::BasicBlock::Create(b.getContext(), "entry", helper));
    V p = h.CreateLoad(type, helper->getArg(1)), q = h.CreateLoad(type, helper->getArg(2));
    MathEmitter(h).fmodBody(helper, p, q);
  }
  llvm::Function *here = b.GetInsertBlock()->getParent();
  auto slot = [&](V stored) -> V {
    llvm::IRBuilder<> e(&here->getEntryBlock(), here->getEntryBlock().begin());
    V p = e.CreateAlloca(type);
    if (stored) b.CreateStore(stored, p);
    return p;
  };
  V out = slot(nullptr), px = slot(x), py = slot(y);
  b.CreateCall(helper, {out, px, py});
  return b.CreateLoad(type, out);
}

// |x| - q |y| with q = trunc(|x| / |y|) is exact: a multiple of the least bit of both and less than 2 |y|. The quotient may
// have been rounded up to the next integer, never further, while it is below 2^22 (2^51 in f64). Otherwise f32 repeats that
// in double: each step there takes 53 bits off a quotient of at most 277, and what is left has 24 bits; f64 asks libm.
void MathEmitter::fmodBody(llvm::Function *helper, V x, V y) {
  const bool isF32 = x->getType()->getScalarType()->isFloatTy();
  V a = unary(llvm::Intrinsic::fabs, x), d = unary(llvm::Intrinsic::fabs, y);
  auto step = [&](V of, V by) {
    V q = unary(llvm::Intrinsic::trunc, b.CreateFDiv(of, by));
    return fma(b.CreateFNeg(q), by, of);
  };
  auto finish = [&](V r, V by) { return b.CreateSelect(b.CreateFCmpOLT(r, like(r, 0.0)), b.CreateFAdd(r, by), r); };
  auto leave = [&](V r) {
    // A divisor of infinity.
    r = b.CreateSelect(b.CreateFCmpOLT(a, d), a, r);
    b.CreateStore(b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, r, x), helper->getArg(0));
    b.CreateRetVoid();
  };
  llvm::BasicBlock *usual = llvm::BasicBlock::Create(b.getContext(), "usual", helper);
  llvm::BasicBlock *rare = llvm::BasicBlock::Create(b.getContext(), "rare", helper);
  V small = b.CreateFCmpOLT(a, b.CreateFMul(d, like(d, isF32 ? 0x1p22 : 0x1p51)));
  b.CreateCondBr(b.CreateAndReduce(small), usual, rare);
  b.SetInsertPoint(usual);
  leave(finish(step(a, d), d));
  b.SetInsertPoint(rare);
  if (!isF32) {
    b.CreateStore(libm("fmod", {x, y}), helper->getArg(0));
    b.CreateRetVoid();
    return;
  }
  V wide = b.CreateFPExt(d, doubleType(d)), r = b.CreateFPExt(a, doubleType(a));
  for (int i = 0; i < 6; ++i) r = step(r, wide);
  leave(b.CreateFPTrunc(finish(r, wide), x->getType()));
}

} // namespace neso
