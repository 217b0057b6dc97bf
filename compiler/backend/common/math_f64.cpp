// The kernels of the logarithm, the sine and the cosine are those of FreeBSD's libm (Sun Microsystems, 1993), without its
// branches; coefficients of the error function are interpolations in Chebyshev points, computed with 40 digits.
#include "backend/common/math_f64.h"

#include "llvm/IR/Constants.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/Module.h"

namespace neso {

namespace {

using V = llvm::Value *;

/// Beyond it the reduction of an angle by a multiple of a quarter turn needs more than three parts of pi / 2.
constexpr double kLargestAngle = 0x1p+20;

class Doubles {
public:
  explicit Doubles(llvm::IRBuilder<> &builder, V of) : b(builder), type_(of->getType()) {
    auto *vector = llvm::cast<llvm::VectorType>(type_);
    intType_ = llvm::VectorType::get(b.getInt64Ty(), vector->getElementCount());
  }

  V log(V x) {
    // Denormals are scaled first.
    V tiny = b.CreateFCmpOLT(x, number(0x1p-1022));
    Parts p = partsOf(b.CreateSelect(tiny, b.CreateFMul(x, number(0x1p+54)), x));
    p.exponent = b.CreateFSub(p.exponent, b.CreateSelect(tiny, number(54), number(0)));
    V r = logOfParts(b.CreateFSub(p.mantissa, number(1)), p.exponent, number(0));
    return atLimits(x, x, r);
  }

  V log1p(V x) {
    V u = b.CreateFAdd(x, number(1));
    Parts p = partsOf(u);
    // What 1 + x has lost counts, over u; near zero nothing is lost of x itself.
    V lost = b.CreateFSub(x, b.CreateFSub(u, number(1)));
    V far = b.CreateFSub(number(1), b.CreateFSub(u, x));
    lost = b.CreateFDiv(b.CreateSelect(b.CreateFCmpOGT(x, number(1)), far, lost), u);
    V near = b.CreateFCmpOEQ(p.exponent, number(0));
    V f = b.CreateSelect(near, x, b.CreateFSub(p.mantissa, number(1)));
    V r = logOfParts(f, p.exponent, b.CreateSelect(near, number(0), lost));
    r = b.CreateSelect(b.CreateFCmpOLT(magnitude(x), number(0x1p-54)), x, r);
    return atLimits(u, x, r);
  }

  V expm1(V x) {
    V c = clamped(x, -40, 710);
    V magic = number(6755399441055744.0);
    V t = fma(c, number(0x1.71547652b82fep+0), magic);
    V n = b.CreateSub(bits(t), bits(magic)), k = b.CreateFSub(t, magic);
    V r = fma(k, number(-0x1.62e42fefa39efp-1), c);
    r = fma(k, number(-0x1.abc9e3b39803fp-56), r);
    V p = fma(b.CreateFMul(r, r), taylor(r), r);
    // 2^n (e^r - 1) + (2^n - 1), both halved, because 2^1024 is no double.
    V half = powerOfTwo(b.CreateSub(n, integer(1)));
    V scaled = fma(half, p, b.CreateFSub(half, number(0.5)));
    V all = b.CreateSelect(b.CreateICmpEQ(n, integer(0)), p, b.CreateFAdd(scaled, scaled));
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, all, x);
  }

  V tanh(V x) {
    V a = magnitude(x);
    a = b.CreateSelect(b.CreateFCmpOGT(a, number(22)), number(22), a);
    V t = expm1(b.CreateFAdd(a, a)), below = b.CreateFAdd(t, number(2));
    V r = b.CreateSelect(b.CreateFCmpOGT(a, number(1)), b.CreateFSub(number(1), b.CreateFDiv(number(2), below)),
                         b.CreateFDiv(t, below));
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, r, x);
  }

  V erf(V x) {
    V a = magnitude(x), z = b.CreateFMul(x, x);
    V small = fma(x,
                  poly(z, {-0x1.29b9f1b3df556p-38, 0x1.7f072188e194dp-34, -0x1.4e607b41a6416p-30, 0x1.fc4356498c2d9p-27,
                           -0x1.5f6d925a0bc7ap-23, 0x1.b9e6509b9867dp-20, -0x1.f4d2561aeafd4p-17, 0x1.f9a326c233146p-14,
                           -0x1.c02db3feeb579p-11, 0x1.565bcd0e6502dp-8, -0x1.b82ce312889bap-6, 0x1.ce2f21a042bdep-4,
                           -0x1.812746b0379e7p-2, 0x1.06eba8214db69p-3}),
                  x);
    // 1 - erfc, whose logarithm and the square of its argument make a smooth sum; over [1, 6], from its middle.
    V c = b.CreateSelect(b.CreateFCmpOGT(a, number(6)), number(6), a);
    V g = poly(fma(c, number(0.4), number(-1.4)),
               {-0x1.64e404da71ecep-32, 0x1.2d044503519dfp-29,  -0x1.65023bf75947cp-28, 0x1.4e0d5c1bc8d2fp-28,
                -0x1.0955b7ffc9d40p-30, -0x1.a204861e71212p-29, 0x1.e0756a286025bp-26,  -0x1.14558d7d4312cp-23,
                0x1.9ab8f0b7a744bp-22,  -0x1.ecbd21e9a520ap-21, 0x1.0195602e5eeafp-19,  -0x1.cafa2e49aade2p-19,
                0x1.3260d3aa2219dp-18,  -0x1.8cdaa509688f6p-20, -0x1.35f2b73ce099cp-16, 0x1.7d44511ba256ep-14,
                -0x1.42c5b1804b54cp-12, 0x1.d47dd0b141656p-11,  -0x1.372a2152c73c0p-9,  0x1.862e9606a8344p-8,
                -0x1.d75a5652ebf35p-7,  0x1.1794772e72a25p-5,   -0x1.4e712f2ed356bp-4,  0x1.a98f9718b384ep-3,
                -0x1.549b835b89ac5p-1,  -0x1.dcc8b29512d7ep+0});
    V e = MathEmitter(b).emit(MathFn::Exp, {b.CreateFSub(g, b.CreateFMul(c, c))});
    V large = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, b.CreateFSub(number(1), e), x);
    V r = b.CreateSelect(b.CreateFCmpOLT(a, number(1)), small, large);
    return b.CreateSelect(b.CreateFCmpUNO(x, x), x, r);
  }

  /// Of angles up to kLargestAngle.
  V sinCos(V x, bool cosine) {
    V magic = number(6755399441055744.0);
    V t = fma(x, number(0x1.45f306dc9c883p-1), magic);
    V k = b.CreateFSub(t, magic), quarter = bits(t);
    // x less k quarter turns, as r + rest: exact, then with pi / 2 in three parts.
    V exact = fma(k, number(-0x1.921fb54442d18p+0), x), second = number(-0x1.1a62633145c07p-54);
    V r = fma(k, second, exact);
    V rest = fma(k, second, b.CreateFSub(exact, r));
    rest = fma(k, number(0x1.f1976b7ed8fbcp-110), rest);
    V z = b.CreateFMul(r, r), half = number(0.5);
    V v = b.CreateFMul(z, r);
    V s = poly(z, {1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
                   -1.98412698298579493134e-04, 8.33333333332248946124e-03});
    // r - ((z (rest / 2 - v s) - rest) + v / 6)
    V inner = b.CreateFSub(b.CreateFMul(half, rest), b.CreateFMul(v, s));
    V sine = b.CreateFSub(r, fma(v, number(1.66666666666666324348e-01), b.CreateFSub(b.CreateFMul(z, inner), rest)));
    V c =
        b.CreateFMul(z, poly(z, {-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
                                 2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02}));
    V halfSquare = b.CreateFMul(half, z), w = b.CreateFSub(number(1), halfSquare);
    V low = b.CreateFAdd(b.CreateFSub(b.CreateFSub(number(1), w), halfSquare),
                         b.CreateFSub(b.CreateFMul(z, c), b.CreateFMul(r, rest)));
    V other = b.CreateFAdd(w, low);
    if (cosine) quarter = b.CreateAdd(quarter, integer(1));
    V odd = b.CreateICmpNE(b.CreateAnd(quarter, integer(1)), integer(0));
    V flip = b.CreateShl(b.CreateAnd(quarter, integer(2)), 62);
    V result = b.CreateBitCast(b.CreateXor(bits(b.CreateSelect(odd, other, sine)), flip), type_);
    // The sine of zero has its sign.
    return cosine ? result : b.CreateSelect(b.CreateFCmpOEQ(x, number(0)), x, result);
  }

  V magnitude(V x) { return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  V number(double c) { return llvm::ConstantFP::get(type_, c); }

private:
  llvm::IRBuilder<> &b;
  llvm::Type *type_, *intType_;

  V integer(int64_t c) { return llvm::ConstantInt::getSigned(intType_, c); }
  V bits(V x) { return b.CreateBitCast(x, intType_); }
  V fma(V a, V m, V c) { return b.CreateIntrinsic(llvm::Intrinsic::fma, {type_}, {a, m, c}); }
  V poly(V x, std::initializer_list<double> highToLow) {
    V r = nullptr;
    for (double c : highToLow) r = r ? fma(r, x, number(c)) : number(c);
    return r;
  }
  /// NaN passes unchanged.
  V clamped(V x, double least, double most) {
    V c = b.CreateSelect(b.CreateFCmpOGT(x, number(most)), number(most), x);
    return b.CreateSelect(b.CreateFCmpOLT(c, number(least)), number(least), c);
  }
  V powerOfTwo(V n) { return b.CreateBitCast(b.CreateShl(b.CreateAdd(n, integer(1023)), 52), type_); }
  /// (e^r - 1 - r) / r^2 for |r| <= log 2 / 2: what is left out is below 2^-57.
  V taylor(V r) {
    return poly(r, {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0,
                    1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5});
  }

  /// x = mantissa * 2^exponent, the mantissa in [sqrt 1/2, sqrt 2).
  struct Parts {
    V mantissa, exponent;
  };
  Parts partsOf(V x) {
    V i = bits(x);
    V e = b.CreateAShr(b.CreateSub(i, integer(0x3fe6a09e667f3bcd)), 52);
    // As a double without an instruction that AVX2 lacks: it is small.
    V exponent =
        b.CreateFSub(b.CreateBitCast(b.CreateAdd(e, integer(0x4338000000000000)), type_), number(6755399441055744.0));
    return {b.CreateBitCast(b.CreateSub(i, b.CreateShl(e, 52)), type_), exponent};
  }

  /// log(1 + f) + exponent * log 2 + correction.
  V logOfParts(V f, V exponent, V correction) {
    V s = b.CreateFDiv(f, b.CreateFAdd(f, number(2))), z = b.CreateFMul(s, s);
    V r = b.CreateFMul(z, poly(z, {1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                                   2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                                   6.666666666666735130e-01}));
    V halfSquare = b.CreateFMul(b.CreateFMul(f, f), number(0.5));
    V low = fma(exponent, number(1.90821492927058770002e-10), correction);
    V tail = fma(s, b.CreateFAdd(halfSquare, r), low);
    return fma(exponent, number(6.93147180369123816490e-01), b.CreateFSub(f, b.CreateFSub(halfSquare, tail)));
  }

  /// `result`, of a logarithm of `of`, unless `x` has a limit there.
  V atLimits(V of, V x, V result) {
    V zero = number(0), inf = llvm::ConstantFP::getInfinity(type_);
    V edge = b.CreateSelect(b.CreateFCmpOEQ(of, zero), llvm::ConstantFP::getInfinity(type_, true),
                            llvm::ConstantFP::getNaN(type_));
    V r = b.CreateSelect(b.CreateFCmpOGT(of, zero), result, edge);
    return b.CreateSelect(b.CreateOr(b.CreateFCmpOEQ(x, inf), b.CreateFCmpUNO(x, x)), x, r);
  }
};

/// sin or cos in a function of its own: where an angle is large or not finite, all lanes go to libm.
V angleFunction(llvm::IRBuilder<> &b, bool cosine, V x) {
  llvm::Function *here = b.GetInsertBlock()->getParent();
  llvm::Module *module = here->getParent();
  auto *type = llvm::cast<llvm::FixedVectorType>(x->getType());
  const char *name = cosine ? "cos" : "sin";
  const std::string symbol = "neso.d" + std::to_string(type->getNumElements()) + "." + name;
  llvm::Function *helper = module->getFunction(symbol);
  if (!helper) {
    helper = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy(), b.getPtrTy()}, false),
                                    llvm::GlobalValue::InternalLinkage, symbol, module);
    helper->addFnAttrs(llvm::AttrBuilder(b.getContext(), here->getAttributes().getFnAttrs()));
    helper->addFnAttr(llvm::Attribute::NoInline);
    auto block = [&](const char *what) { return llvm::BasicBlock::Create(b.getContext(), what, helper); };
    llvm::BasicBlock *entry = block("entry"), *near = block("near"), *far = block("far");
    llvm::IRBuilder<> h(entry);
    V in = h.CreateLoad(type, helper->getArg(1));
    Doubles d(h, in);
    V isNear = h.CreateFCmpOLE(d.magnitude(in), d.number(kLargestAngle));
    h.CreateCondBr(h.CreateAndReduce(isNear), near, far);
    h.SetInsertPoint(near);
    h.CreateStore(d.sinCos(in, cosine), helper->getArg(0));
    h.CreateRetVoid();
    h.SetInsertPoint(far);
    h.CreateStore(MathEmitter(h).libm(name, {in}), helper->getArg(0));
    h.CreateRetVoid();
  }
  llvm::IRBuilder<> first(&here->getEntryBlock(), here->getEntryBlock().begin());
  V result = first.CreateAlloca(type), argument = first.CreateAlloca(type);
  b.CreateStore(x, argument);
  b.CreateCall(helper, {result, argument});
  return b.CreateLoad(type, result);
}

} // namespace

V emitOnDoubles(llvm::IRBuilder<> &b, MathFn fn, V x) {
  Doubles d(b, x);
  switch (fn) {
  case MathFn::Log: return d.log(x);
  case MathFn::Log1p: return d.log1p(x);
  case MathFn::ExpM1: return d.expm1(x);
  case MathFn::Tanh: return d.tanh(x);
  case MathFn::Erf: return d.erf(x);
  case MathFn::Sin: return angleFunction(b, false, x);
  case MathFn::Cos: return angleFunction(b, true, x);
  default: return nullptr;
  }
}

} // namespace neso
