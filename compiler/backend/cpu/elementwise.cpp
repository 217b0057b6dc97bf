// One operation on lanes: symbolic where it can stay symbolic, else LLVM instructions on scalars or vectors.
#include "backend/common/llvm_common.h"
#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/IR/Intrinsics.h"

namespace neso::cpu {

using llvm::Value;

namespace {
/// Whether every lane of v is this constant.
bool isConstantInt(Value *v, uint64_t c) {
  if (auto *ci = llvm::dyn_cast<llvm::ConstantInt>(v)) return ci->getZExtValue() == c;
  return false;
}

std::optional<IntOp> intOpOf(OpCode code) {
  switch (code) {
  case OpCode::AddI: return IntOp::Add;
  case OpCode::SubI: return IntOp::Sub;
  case OpCode::MulI: return IntOp::Mul;
  case OpCode::ShlI: return IntOp::Shl;
  case OpCode::ShrUI: return IntOp::LShr;
  case OpCode::AndI: return IntOp::And;
  case OpCode::OrI: return IntOp::Or;
  case OpCode::XorI: return IntOp::Xor;
  case OpCode::DivUI: return IntOp::UDiv;
  case OpCode::RemUI: return IntOp::URem;
  default: return std::nullopt;
  }
}

/// Whether whoever made this sum or product says that it does not wrap around as a signed number.
bool neverWraps(mlir::Operation *op) {
  auto flags = llvm::dyn_cast<mlir::arith::ArithIntegerOverflowFlagsInterface>(op);
  return flags && flags.hasNoSignedWrap();
}

bool isReduced(mlir::Type t) { return llvm::isa<mlir::FloatType>(t) && t.getIntOrFloatBitWidth() < 32; }
} // namespace

Lanes Emitter::uniformInt(int64_t v) {
  Lanes r;
  r.base = b.getInt32(static_cast<uint32_t>(v));
  return r;
}

Lanes Emitter::fromValue(Value *v, int level) {
  Lanes r;
  r.kind = v->getType()->isVectorTy() ? Lanes::Kind::Vector : Lanes::Kind::Uniform;
  r.base = v;
  r.level = static_cast<uint8_t>(level);
  return r;
}

Lanes Emitter::intOp(IntOp op, const Lanes &x, const Lanes &y) {
  AtLevel at(*this, std::max(x.level, y.level));
  if (std::optional<Lanes> r = symbolicInt(b, pool_, op, x, y)) return *r;
  const bool scalars = x.uniform() && y.uniform();
  Value *a = scalars ? x.base : vec(x), *c = scalars ? y.base : vec(y), *r = nullptr;
  switch (op) {
  case IntOp::Add: r = b.CreateAdd(a, c); break;
  case IntOp::Sub: r = b.CreateSub(a, c); break;
  case IntOp::Mul: r = b.CreateMul(a, c); break;
  case IntOp::Shl: r = b.CreateShl(a, c); break;
  case IntOp::LShr: r = b.CreateLShr(a, c); break;
  case IntOp::And: r = b.CreateAnd(a, c); break;
  case IntOp::Or: r = b.CreateOr(a, c); break;
  case IntOp::Xor: r = b.CreateXor(a, c); break;
  case IntOp::UDiv: r = emitDivision(OpCode::DivUI, a, c); break;
  case IntOp::URem: r = emitDivision(OpCode::RemUI, a, c); break;
  }
  return fromValue(r, std::max(x.level, y.level));
}

Lanes Emitter::resize(const Lanes &x, llvm::Type *type, bool isSigned, bool exact) {
  if (x.elementType() == type) return x;
  AtLevel at(*this, x.level);
  const bool narrows = type->getIntegerBitWidth() < x.elementType()->getIntegerBitWidth();
  if (x.symbolic()) {
    // Cutting off high bits keeps lanes apart by what they were, modulo the new width.
    if (narrows ? x.kind == Lanes::Kind::Offsets : exact) {
      Lanes r = x;
      r.base = isSigned ? b.CreateSExtOrTrunc(x.base, type) : b.CreateZExtOrTrunc(x.base, type);
      r.exact = !narrows;
      if (narrows) r.align = std::min<uint8_t>(r.align, static_cast<uint8_t>(type->getIntegerBitWidth() - 1));
      return r;
    }
    Value *v = vec(x);
    llvm::Type *to = llvm::VectorType::get(type, llvm::cast<llvm::VectorType>(v->getType())->getElementCount());
    return fromValue(isSigned ? b.CreateSExtOrTrunc(v, to) : b.CreateZExtOrTrunc(v, to), x.level);
  }
  llvm::Type *to = x.vector()
                       ? llvm::VectorType::get(type, llvm::cast<llvm::VectorType>(x.base->getType())->getElementCount())
                       : type;
  Lanes r = x;
  r.base = isSigned ? b.CreateSExtOrTrunc(x.base, to) : b.CreateZExtOrTrunc(x.base, to);
  if (narrows) r.align = std::min<uint8_t>(r.align, static_cast<uint8_t>(type->getIntegerBitWidth() - 1));
  return r;
}

Lanes Emitter::addIndex(const Lanes &pointer, const Lanes &index, int64_t elementBytes) {
  return addPointer(pointer, resize(index, b.getInt64Ty(), true, true), elementBytes);
}

Lanes Emitter::addPointer(const Lanes &pointer, const Lanes &wide, int64_t elementBytes) {
  const int level = std::max(pointer.level, wide.level);
  AtLevel at(*this, level);
  auto gep = [&](Value *p, Value *o) { return b.CreateGEP(b.getInt8Ty(), p, o); };
  if (!pointer.vector() && !wide.vector() && !(pointer.kind == Lanes::Kind::Strided && wide.symbolic()) &&
      !(wide.kind == Lanes::Kind::Strided && pointer.symbolic())) {
    Lanes r = wide.symbolic() ? wide : pointer;
    r.level = static_cast<uint8_t>(level);
    r.align = 0;
    r.base = gep(pointer.base, b.CreateMul(wide.base, b.getInt64(elementBytes)));
    if (wide.kind == Lanes::Kind::Offsets) {
      LaneOffsets o = *wide.offsets;
      for (size_t l = 0; l < o.size(); ++l)
        o[l] = o[l] * elementBytes + (pointer.kind == Lanes::Kind::Offsets ? (*pointer.offsets)[l] : 0);
      r.kind = Lanes::Kind::Offsets;
      r.offsets = pool_.intern(std::move(o));
    } else if (wide.kind == Lanes::Kind::Strided)
      r.scale = wide.scale * elementBytes;
    return r;
  }
  Value *scaled = b.CreateMul(vec(wide), toVector(b, Lanes{.base = b.getInt64(elementBytes)}, width_));
  return fromValue(gep(vec(pointer), scaled), level);
}

Lanes Emitter::constant(mlir::Attribute value, mlir::Type element) {
  // No attribute is made here: several threads read one context.
  Lanes r;
  llvm::Type *type = typeOf(element);
  auto ofFloat = [&](const llvm::APFloat &f) -> Value * {
    return type->isIntegerTy() ? static_cast<Value *>(llvm::ConstantInt::get(type, f.bitcastToAPInt()))
                               : llvm::ConstantFP::get(b.getContext(), f);
  };
  auto ofInt = [&](const llvm::APInt &i) -> Value * {
    return llvm::ConstantInt::get(type, i.sextOrTrunc(type->getIntegerBitWidth()));
  };
  if (auto dense = llvm::dyn_cast<mlir::DenseElementsAttr>(value)) {
    if (!dense.isSplat()) return {};
    r.base = llvm::isa<mlir::FloatType>(element) ? ofFloat(dense.getSplatValue<llvm::APFloat>())
                                                 : ofInt(dense.getSplatValue<llvm::APInt>());
  } else if (auto f = llvm::dyn_cast<mlir::FloatAttr>(value))
    r.base = ofFloat(f.getValue());
  else if (auto i = llvm::dyn_cast<mlir::IntegerAttr>(value))
    r.base = ofInt(i.getValue());
  return r;
}

llvm::SmallVector<Lanes, 2> Emitter::elementwise(mlir::Operation *op, llvm::ArrayRef<Lanes> args) {
  const OpCode code = codeOf(op);
  int level = 0;
  bool uniform = true, symbolic = false;
  for (const Lanes &a : args) {
    if (!a.base) {
      fail(op, "an operand has no value");
      return {fromValue(llvm::PoisonValue::get(typeOf(elementOf(op->getResult(0).getType()))), 0)};
    }
    level = std::max<int>(level, a.level);
    uniform &= a.uniform();
    symbolic |= a.symbolic();
  }
  mlir::Type resultType = elementOf(op->getResult(0).getType());

  // Forms that stay symbolic.
  if (std::optional<IntOp> i = intOpOf(code); i && (symbolic || uniform) && resultType.isIntOrIndex()) {
    AtLevel at(*this, level);
    if (std::optional<Lanes> r = symbolicInt(b, pool_, *i, args[0], args[1])) {
      auto isExact = [](const Lanes &x) { return staysExact(x, true); };
      if (r->symbolic() && neverWraps(op) && llvm::all_of(args, isExact)) r->exact = true;
      return {*r};
    }
  }
  switch (code) {
  case OpCode::AddPtr: {
    mlir::Type pointee = llvm::cast<tt::PointerType>(resultType).getPointeeType();
    Lanes offset = resize(args[1], b.getInt64Ty(), true, staysExact(args[1], true));
    return {addPointer(args[0], offset, bytesOf(pointee))};
  }
  case OpCode::ExtSI:
  case OpCode::IndexCast: return {resize(args[0], typeOf(resultType), true, staysExact(args[0], true))};
  case OpCode::ExtUI:
  case OpCode::IndexCastUI:
  case OpCode::TruncI:
    if (args[0].elementType()->isIntegerTy(1) && args[0].symbolic()) break;
    return {resize(args[0], typeOf(resultType), false, staysExact(args[0], false))};
  case OpCode::Select:
    if (auto *c = llvm::dyn_cast<llvm::ConstantInt>(args[0].base)) return {c->isZero() ? args[2] : args[1]};
    if (args[0].uniform() && args[1].kind == args[2].kind && args[1].offsets == args[2].offsets &&
        args[1].step == args[2].step && args[1].scale == args[2].scale) {
      AtLevel at(*this, level);
      Lanes r = args[1];
      r.level = static_cast<uint8_t>(level);
      r.align = std::min(args[1].align, args[2].align);
      r.exact = args[1].exact && args[2].exact;
      r.base = b.CreateSelect(args[0].base, args[1].base, args[2].base);
      return {r};
    }
    break;
  case OpCode::AndI:
    if (args[0].elementType()->isIntegerTy(1))
      for (int k : {0, 1}) {
        if (isConstantInt(args[k].base, 1)) return {args[1 - k]};
        if (isConstantInt(args[k].base, 0)) return {args[k]};
      }
    break;
  case OpCode::Bitcast:
  case OpCode::ArithBitcast:
    if (args[0].elementType() == typeOf(resultType)) return {args[0]};
    break;
  case OpCode::MapElementwise: {
    llvm::SmallVector<Lanes> results;
    if (!evalRegion(op->getRegion(0), args, results)) {
      fail(op, "the body of map_elementwise");
      return llvm::SmallVector<Lanes, 2>(op->getNumResults(), args[0]);
    }
    return llvm::SmallVector<Lanes, 2>(results.begin(), results.end());
  }
  default: break;
  }

  AtLevel at(*this, level);
  llvm::SmallVector<Value *, 4> values;
  for (const Lanes &a : args) values.push_back(uniform ? a.base : vec(a));
  if (code == OpCode::MulSIExtended || code == OpCode::MulUIExtended) {
    llvm::Type *t = values[0]->getType();
    unsigned bits = t->getScalarSizeInBits();
    llvm::Type *wide = t->getWithNewBitWidth(bits * 2);
    Value *x = code == OpCode::MulSIExtended ? b.CreateSExt(values[0], wide) : b.CreateZExt(values[0], wide);
    Value *y = code == OpCode::MulSIExtended ? b.CreateSExt(values[1], wide) : b.CreateZExt(values[1], wide);
    Value *p = b.CreateMul(x, y);
    return {fromValue(b.CreateTrunc(p, t), level), fromValue(b.CreateTrunc(b.CreateLShr(p, bits), t), level)};
  }
  Value *r = emitValue(op, code, values);
  if (!r) {
    std::string what = "operation " + op->getName().getStringRef().str();
    if (code == OpCode::Extern)
      what = "the library function '" + op->getAttrOfType<mlir::StringAttr>("symbol").getValue().str() + "'";
    if (code == OpCode::InlineAsm)
      what = "the inline assembly '" + op->getAttrOfType<mlir::StringAttr>("asm_string").getValue().str() + "'";
    fail(op, what);
    r = llvm::PoisonValue::get(typeOf(resultType));
  }
  return {fromValue(r, level)};
}

Value *Emitter::emitDivision(OpCode code, Value *x, Value *y) {
  const bool isSigned = code == OpCode::DivSI || code == OpCode::RemSI;
  const bool isRem = code == OpCode::RemSI || code == OpCode::RemUI;
  auto plain = [&](Value *n, Value *d) {
    if (isRem) return isSigned ? b.CreateSRem(n, d) : b.CreateURem(n, d);
    return isSigned ? b.CreateSDiv(n, d) : b.CreateUDiv(n, d);
  };
  auto *constant = llvm::dyn_cast<llvm::Constant>(y);
  llvm::Constant *splat = constant && constant->getType()->isVectorTy() ? constant->getSplatValue() : constant;
  if (auto *c = llvm::dyn_cast_or_null<llvm::ConstantInt>(splat); c && !c->isZero() && !c->isMinusOne())
    return plain(x, y);
  // A lane that is masked off may hold a zero divisor, which would trap; so would the smallest number over -1.
  llvm::Type *t = x->getType();
  const unsigned bits = t->getScalarSizeInBits();
  Value *one = llvm::ConstantInt::get(t, 1), *zero = llvm::ConstantInt::get(t, 0);
  Value *d = b.CreateSelect(b.CreateICmpEQ(y, zero), one, y);
  if (!t->isVectorTy() || bits > 64 || bits < 8) {
    if (!isSigned) return plain(x, d);
    Value *minusOne = llvm::Constant::getAllOnesValue(t);
    Value *byMinusOne = b.CreateICmpEQ(d, minusOne);
    Value *q = plain(x, b.CreateSelect(byMinusOne, one, d));
    return b.CreateSelect(byMinusOne, isRem ? zero : b.CreateNeg(x), q);
  }
  // Vectors: no integer division in hardware. Quotients of up to 32 bits are exact in double.
  llvm::Type *f64 = llvm::VectorType::get(b.getDoubleTy(), llvm::cast<llvm::VectorType>(t)->getElementCount());
  if (bits <= 32) {
    llvm::Type *i32 = t->getWithNewType(b.getInt32Ty());
    Value *fx = isSigned ? b.CreateSIToFP(x, f64) : b.CreateUIToFP(x, f64);
    Value *fd = isSigned ? b.CreateSIToFP(d, f64) : b.CreateUIToFP(d, f64);
    Value *fq = b.CreateFDiv(fx, fd);
    Value *q = nullptr;
    if (isSigned) {
      // -2^31 / -1 does not fit; clamp, as the scalar form would wrap to -2^31 as well.
      fq = b.CreateMinNum(fq, llvm::ConstantFP::get(f64, 2147483647.0));
      q = b.CreateTrunc(b.CreateFPToSI(fq, i32), t);
    } else
      q = b.CreateTrunc(b.CreateFPToUI(fq, i32), t);
    return isRem ? b.CreateSub(x, b.CreateMul(q, d)) : q;
  }
  // 64 bits: an estimate in double is off by a relative 2^-52; a second step makes it exact up to one unit, which is
  // then put right.
  Value *ax = x, *ad = d;
  Value *negative = nullptr, *negativeX = nullptr;
  if (isSigned) {
    negativeX = b.CreateICmpSLT(x, zero);
    Value *negativeD = b.CreateICmpSLT(d, zero);
    negative = b.CreateXor(negativeX, negativeD);
    ax = b.CreateSelect(negativeX, b.CreateNeg(x), x);
    ad = b.CreateSelect(negativeD, b.CreateNeg(d), d);
  }
  Value *fd = b.CreateUIToFP(ad, f64);
  auto estimate = [&](Value *n) {
    // Rounded down by more than the error, so that the remainder stays non-negative.
    Value *fq = b.CreateFMul(b.CreateFDiv(b.CreateUIToFP(n, f64), fd), llvm::ConstantFP::get(f64, 1.0 - 0x1p-50));
    return b.CreateFPToUI(fq, t);
  };
  Value *q = estimate(ax);
  Value *r = b.CreateSub(ax, b.CreateMul(q, ad));
  for (int step = 0; step < 1; ++step) {
    Value *more = estimate(r);
    q = b.CreateAdd(q, more);
    r = b.CreateSub(r, b.CreateMul(more, ad));
  }
  for (int step = 0; step < 2; ++step) {
    Value *fits = b.CreateICmpUGE(r, ad);
    q = b.CreateAdd(q, b.CreateZExt(fits, t));
    r = b.CreateSub(r, b.CreateSelect(fits, ad, zero));
  }
  if (isRem) return isSigned ? b.CreateSelect(negativeX, b.CreateNeg(r), r) : r;
  return isSigned ? b.CreateSelect(negative, b.CreateNeg(q), q) : q;
}

Value *Emitter::emitValue(mlir::Operation *op, OpCode code, llvm::ArrayRef<Value *> args) {
  mlir::Type resultType = elementOf(op->getResult(0).getType());
  mlir::Type operandType = op->getNumOperands() ? elementOf(op->getOperand(0).getType()) : resultType;
  Value *x = args.empty() ? nullptr : args[0];
  Value *y = args.size() > 1 ? args[1] : nullptr;
  auto intrinsic = [&](llvm::Intrinsic::ID id) { return b.CreateUnaryIntrinsic(id, x); };
  auto binary = [&](llvm::Intrinsic::ID id) { return b.CreateBinaryIntrinsic(id, x, y); };

  switch (code) {
  case OpCode::AddI: return b.CreateAdd(x, y);
  case OpCode::SubI: return b.CreateSub(x, y);
  case OpCode::MulI: return b.CreateMul(x, y);
  case OpCode::DivSI:
  case OpCode::DivUI:
  case OpCode::RemSI:
  case OpCode::RemUI: return emitDivision(code, x, y);
  case OpCode::CeilDivSI:
  case OpCode::FloorDivSI: {
    Value *q = emitDivision(OpCode::DivSI, x, y);
    Value *r = b.CreateSub(x, b.CreateMul(q, y));
    Value *zero = llvm::ConstantInt::get(x->getType(), 0);
    Value *inexact = b.CreateICmpNE(r, zero);
    Value *sameSign = b.CreateICmpSGE(b.CreateXor(x, y), zero);
    Value *one =
        b.CreateZExt(b.CreateAnd(inexact, code == OpCode::CeilDivSI ? sameSign : b.CreateNot(sameSign)), x->getType());
    return code == OpCode::CeilDivSI ? b.CreateAdd(q, one) : b.CreateSub(q, one);
  }
  case OpCode::CeilDivUI: {
    Value *q = emitDivision(OpCode::DivUI, x, y);
    return b.CreateAdd(q, b.CreateZExt(b.CreateICmpNE(b.CreateMul(q, y), x), x->getType()));
  }
  case OpCode::AndI: return b.CreateAnd(x, y);
  case OpCode::OrI: return b.CreateOr(x, y);
  case OpCode::XorI: return b.CreateXor(x, y);
  case OpCode::ShlI:
  case OpCode::ShrSI:
  case OpCode::ShrUI: {
    // A shift by the width or more is poison in LLVM; lanes that nobody reads must not spoil their neighbours.
    if (!llvm::isa<llvm::Constant>(y)) {
      Value *bound = llvm::ConstantInt::get(y->getType(), x->getType()->getScalarSizeInBits());
      Value *wide = b.CreateICmpUGE(y, bound);
      Value *shift = b.CreateSelect(wide, llvm::ConstantInt::get(y->getType(), 0), y);
      Value *zero = llvm::ConstantInt::get(x->getType(), 0);
      if (code == OpCode::ShrSI)
        return b.CreateAShr(
            x, b.CreateSelect(wide, llvm::ConstantInt::get(y->getType(), x->getType()->getScalarSizeInBits() - 1), y));
      return b.CreateSelect(wide, zero, code == OpCode::ShlI ? b.CreateShl(x, shift) : b.CreateLShr(x, shift));
    }
    return code == OpCode::ShlI ? b.CreateShl(x, y) : code == OpCode::ShrSI ? b.CreateAShr(x, y) : b.CreateLShr(x, y);
  }
  case OpCode::CmpI: {
    if (!caps_.maskedMemory && x->getType()->isVectorTy() &&
        (llvm::isa<llvm::Constant>(x) || llvm::isa<llvm::Constant>(y))) {
      // LLVM 22 drops the mask of a masked AVX2 load when it splits a constant one into a half that is all false. Such
      // masks stay opaque: the top bit of an address is zero, which LLVM does not know.
      Value *zero =
          b.CreateTrunc(b.CreateLShr(b.CreatePtrToInt(env_, b.getInt64Ty()), 63), x->getType()->getScalarType());
      y = b.CreateAdd(y, b.CreateVectorSplat(llvm::cast<llvm::VectorType>(x->getType())->getElementCount(), zero));
    }
    return emitCompare(b, op, x, y);
  }
  case OpCode::Select: return b.CreateSelect(x, y, args[2]);
  case OpCode::MaxSI: return binary(llvm::Intrinsic::smax);
  case OpCode::MaxUI: return binary(llvm::Intrinsic::umax);
  case OpCode::MinSI: return binary(llvm::Intrinsic::smin);
  case OpCode::MinUI: return binary(llvm::Intrinsic::umin);
  case OpCode::ExtSI:
  case OpCode::IndexCast: return b.CreateSExtOrTrunc(x, typeLike(resultType, x));
  case OpCode::ExtUI:
  case OpCode::IndexCastUI:
  case OpCode::TruncI: return b.CreateZExtOrTrunc(x, typeLike(resultType, x));
  case OpCode::AbsI: return b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x, b.getFalse());
  case OpCode::CtPop: return intrinsic(llvm::Intrinsic::ctpop);
  case OpCode::CtLz: return b.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, x, b.getFalse());
  case OpCode::CtTz: return b.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, x, b.getFalse());
  case OpCode::MulhiUI: {
    const unsigned bits = x->getType()->getScalarSizeInBits();
    llvm::Type *wide = x->getType()->getWithNewBitWidth(bits * 2);
    return b.CreateTrunc(b.CreateLShr(b.CreateMul(b.CreateZExt(x, wide), b.CreateZExt(y, wide)), bits), x->getType());
  }
  case OpCode::IntToPtr: return b.CreateIntToPtr(x, typeLike(resultType, x));
  case OpCode::PtrToInt: return b.CreatePtrToInt(x, typeLike(resultType, x));
  case OpCode::Bitcast:
  case OpCode::ArithBitcast: return b.CreateBitCast(x, typeLike(resultType, x));
  case OpCode::ExtF:
  case OpCode::TruncF: return convertFloat(x, operandType, resultType, false);
  case OpCode::FpToFp: {
    auto rounding = op->getAttrOfType<mlir::IntegerAttr>("rounding");
    return convertFloat(x, operandType, resultType, rounding && rounding.getInt() == 0);
  }
  case OpCode::SIToFP:
  case OpCode::UIToFP: {
    mlir::Type f32 = mlir::Float32Type::get(op->getContext());
    mlir::Type via = isReduced(resultType) ? f32 : resultType;
    Value *f = code == OpCode::SIToFP ? b.CreateSIToFP(x, typeLike(via, x)) : b.CreateUIToFP(x, typeLike(via, x));
    return convertFloat(f, via, resultType, false);
  }
  case OpCode::FPToSI:
  case OpCode::FPToUI: {
    mlir::Type f32 = mlir::Float32Type::get(op->getContext());
    Value *f = isReduced(operandType) ? convertFloat(x, operandType, f32, false) : x;
    // Narrow results go through i32, so that values out of range wrap as C's conversions on this machine do.
    llvm::Type *to = typeLike(resultType, x);
    const unsigned bits = to->getScalarSizeInBits();
    llvm::Type *wide = bits < 32 ? to->getWithNewBitWidth(32) : to;
    Value *i = code == OpCode::FPToSI || bits < 32 ? b.CreateFPToSI(f, wide) : b.CreateFPToUI(f, wide);
    return b.CreateTrunc(b.CreateFreeze(i), to);
  }
  case OpCode::Extern: return emitExtern(op, op->getAttrOfType<mlir::StringAttr>("symbol").getValue(), args);
  case OpCode::InlineAsm: return emitPtx(op, args);
  default: break;
  }

  // Floating point: narrow types compute in f32 and round after each operation.
  if (!llvm::isa<mlir::FloatType>(operandType)) return nullptr;
  llvm::SmallVector<Value *, 4> wide(args.begin(), args.end());
  mlir::Type compute = operandType;
  if (isReduced(operandType)) {
    compute = mlir::Float32Type::get(op->getContext());
    for (unsigned i = 0; i < wide.size(); ++i) wide[i] = convertFloat(wide[i], operandType, compute, false);
  }
  Value *r = emitFloat(op, code, wide, compute);
  if (r && llvm::isa<mlir::FloatType>(resultType) && compute != resultType)
    r = convertFloat(r, compute, resultType, false);
  return r;
}

Value *Emitter::emitFloat(mlir::Operation *op, OpCode code, llvm::ArrayRef<Value *> args, mlir::Type type) {
  Value *x = args[0];
  Value *y = args.size() > 1 ? args[1] : nullptr;
  auto intrinsic = [&](llvm::Intrinsic::ID id) { return b.CreateUnaryIntrinsic(id, x); };
  auto binary = [&](llvm::Intrinsic::ID id) { return b.CreateBinaryIntrinsic(id, x, y); };
  switch (code) {
  case OpCode::AddF: return b.CreateFAdd(x, y);
  case OpCode::SubF: return b.CreateFSub(x, y);
  case OpCode::MulF: return b.CreateFMul(x, y);
  case OpCode::DivF:
  case OpCode::PreciseDivF:
  case OpCode::ApproxDivF: return b.CreateFDiv(x, y);
  case OpCode::RemF: return math_.emit(MathFn::Fmod, args);
  case OpCode::NegF: return b.CreateFNeg(x);
  case OpCode::MaximumF: return binary(llvm::Intrinsic::maximum);
  case OpCode::MinimumF: return binary(llvm::Intrinsic::minimum);
  case OpCode::MaxNumF: return binary(llvm::Intrinsic::maxnum);
  case OpCode::MinNumF: return binary(llvm::Intrinsic::minnum);
  case OpCode::ClampF: {
    auto propagate = op->getAttrOfType<mlir::IntegerAttr>("propagateNan");
    if (propagate && propagate.getInt() != 0)
      return b.CreateBinaryIntrinsic(llvm::Intrinsic::minimum, b.CreateBinaryIntrinsic(llvm::Intrinsic::maximum, x, y),
                                     args[2]);
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::minnum, b.CreateBinaryIntrinsic(llvm::Intrinsic::maxnum, x, y),
                                   args[2]);
  }
  case OpCode::CmpF: return emitCompare(b, op, x, y);
  case OpCode::AbsF: return intrinsic(llvm::Intrinsic::fabs);
  case OpCode::Ceil: return intrinsic(llvm::Intrinsic::ceil);
  case OpCode::Floor: return intrinsic(llvm::Intrinsic::floor);
  case OpCode::RoundEven: return intrinsic(llvm::Intrinsic::roundeven);
  case OpCode::Trunc: return intrinsic(llvm::Intrinsic::trunc);
  case OpCode::Round: {
    // Half away from zero: trunc(x + copysign(largest below 0.5, x)), which is exact.
    Value *half = llvm::ConstantFP::get(x->getType(), type.isF64() ? 0x1.fffffffffffffp-2 : 0x1.fffffep-2);
    Value *shifted = b.CreateFAdd(x, b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, half, x));
    return b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, shifted);
  }
  case OpCode::Sqrt:
  case OpCode::PreciseSqrt: return intrinsic(llvm::Intrinsic::sqrt);
  case OpCode::Rsqrt: return b.CreateFDiv(llvm::ConstantFP::get(x->getType(), 1.0), intrinsic(llvm::Intrinsic::sqrt));
  case OpCode::Fma: return b.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, args[2]});
  case OpCode::CopySign: return binary(llvm::Intrinsic::copysign);
  case OpCode::IsNan: return b.CreateFCmpUNO(x, x);
  case OpCode::IsInf:
    return b.CreateFCmpOEQ(intrinsic(llvm::Intrinsic::fabs), llvm::ConstantFP::getInfinity(x->getType()));
  case OpCode::IsFinite:
    return b.CreateFCmpOLT(intrinsic(llvm::Intrinsic::fabs), llvm::ConstantFP::getInfinity(x->getType()));
  case OpCode::FPowI: return math_.emit(MathFn::Pow, {x, b.CreateSIToFP(y, x->getType())});
  case OpCode::Exp: return math_.emit(MathFn::Exp, args);
  case OpCode::Exp2: return math_.emit(MathFn::Exp2, args);
  case OpCode::ExpM1: return math_.emit(MathFn::ExpM1, args);
  case OpCode::Log: return math_.emit(MathFn::Log, args);
  case OpCode::Log2: return math_.emit(MathFn::Log2, args);
  case OpCode::Log10: return math_.emit(MathFn::Log10, args);
  case OpCode::Log1p: return math_.emit(MathFn::Log1p, args);
  case OpCode::Sin: return math_.emit(MathFn::Sin, args);
  case OpCode::Cos: return math_.emit(MathFn::Cos, args);
  case OpCode::Tan: return math_.emit(MathFn::Tan, args);
  case OpCode::Tanh: return math_.emit(MathFn::Tanh, args);
  case OpCode::Sinh: return math_.emit(MathFn::Sinh, args);
  case OpCode::Cosh: return math_.emit(MathFn::Cosh, args);
  case OpCode::Asin: return math_.emit(MathFn::Asin, args);
  case OpCode::Acos: return math_.emit(MathFn::Acos, args);
  case OpCode::Atan: return math_.emit(MathFn::Atan, args);
  case OpCode::Asinh: return math_.emit(MathFn::Asinh, args);
  case OpCode::Acosh: return math_.emit(MathFn::Acosh, args);
  case OpCode::Atanh: return math_.emit(MathFn::Atanh, args);
  case OpCode::Atan2: return math_.emit(MathFn::Atan2, args);
  case OpCode::Erf: return math_.emit(MathFn::Erf, args);
  case OpCode::Erfc: return math_.emit(MathFn::Erfc, args);
  case OpCode::Cbrt: return math_.emit(MathFn::Cbrt, args);
  case OpCode::PowF: return math_.emit(MathFn::Pow, args);
  default: return nullptr;
  }
}

} // namespace neso::cpu
