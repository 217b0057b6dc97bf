// One operation on lanes: symbolic where it can stay symbolic, else LLVM instructions on scalars or vectors.
#include "backend/common/llvm_common.h"
#include "backend/common/scalar_ops.h"
#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/PatternMatch.h"
#include "llvm/Support/KnownBits.h"

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

// A sum in 32 bits is one number whose parts the optimiser cannot take apart again. Added to a pointer term by term, those
// of outer loops are computed there, and accesses that lie a constant apart (the taps of a window) share one address.
Lanes Emitter::displaced(const Lanes &pointer, mlir::Value offset, const Index &index, int64_t elementBytes) {
  Terms terms;
  const bool apart = addTerms(offset, index, terms);
  const auto symbolic = llvm::count_if(terms.moving, [](const Lanes &t) { return t.symbolic(); });
  if (!apart || symbolic + pointer.symbolic() > 1)
    return addPointer(pointer, widen(offset, eval(offset, index), index, b.getInt64Ty(), true), elementBytes);
  llvm::stable_sort(terms.moving, [](const Lanes &x, const Lanes &y) { return x.level < y.level; });
  Lanes at = pointer;
  for (const Lanes &t : terms.moving) at = addPointer(at, t, elementBytes);
  if (terms.constant == 0) return at;
  Lanes last;
  last.base = llvm::ConstantInt::getSigned(b.getInt64Ty(), terms.constant);
  return addPointer(at, last, elementBytes);
}

bool Emitter::addTerms(mlir::Value v, const Index &index, Terms &terms) {
  mlir::Operation *def = v.getDefiningOp();
  const bool isComputed = def && !buffers_.count(v) && !moving_.count(v);
  const OpCode code = isComputed ? codeOf(def) : OpCode::Load;
  auto isKnown = [&](mlir::Value operand) {
    return isTensor(operand.getType()) || scalars_.count(operand) ||
           (operand.getDefiningOp() && codeOf(operand.getDefiningOp()) == OpCode::ArithConstant);
  };
  llvm::APInt number;
  if (code == OpCode::ArithConstant && mlir::matchPattern(v, mlir::m_ConstantInt(&number)) &&
      number.getBitWidth() <= 64) {
    // Beyond these the sum of constants might wrap.
    if (number.abs().ugt(uint64_t{1} << 31)) return false;
    terms.constant += number.getSExtValue();
    return true;
  }
  if (code == OpCode::AddI && neverWraps(def) && llvm::all_of(def->getOperands(), isKnown))
    return addTerms(def->getOperand(0), index, terms) && addTerms(def->getOperand(1), index, terms);
  if (code == OpCode::Splat && isKnown(def->getOperand(0))) return addTerms(def->getOperand(0), {}, terms);
  if (code == OpCode::Broadcast) {
    llvm::ArrayRef<int64_t> from = llvm::cast<mlir::RankedTensorType>(def->getOperand(0).getType()).getShape();
    Index inner = index;
    for (size_t d = 0; d < inner.size(); ++d)
      if (from[d] == 1) inner[d] = uniformInt(0);
    return addTerms(def->getOperand(0), inner, terms);
  }
  if (code == OpCode::ExpandDims) {
    Index inner = index;
    inner.erase(inner.begin() + def->getAttrOfType<mlir::IntegerAttr>("axis").getInt());
    return addTerms(def->getOperand(0), inner, terms);
  }
  const Lanes wide = widen(v, eval(v, index), index, b.getInt64Ty(), true);
  if (wide.vector()) return false;
  if (auto *c = llvm::dyn_cast<llvm::ConstantInt>(wide.base); c && wide.uniform()) {
    if (c->getValue().abs().ugt(uint64_t{1} << 31)) return false;
    terms.constant += c->getSExtValue();
    return true;
  }
  terms.moving.push_back(wide);
  return true;
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

  // A mask that is known asks for nothing, and leaves the other as the value that it is.
  if (code == OpCode::AndI && args[0].elementType()->isIntegerTy(1))
    for (int k : {0, 1}) {
      if (isConstantInt(args[k].base, 1)) return {args[1 - k]};
      if (isConstantInt(args[k].base, 0)) return {args[k]};
    }
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
    auto [low, high] = emitExtendedProduct(b, code, values[0], values[1]);
    return {fromValue(low, level), fromValue(high, level)};
  }
  if (code == OpCode::InlineAsm) {
    llvm::SmallVector<Lanes, 2> results;
    for (Value *r : emitPtx(op, values)) results.push_back(fromValue(r, level));
    if (!results.empty()) return results;
    fail(op, "the inline assembly '" + op->getAttrOfType<mlir::StringAttr>("asm_string").getValue().str() + "'");
    for (mlir::Type t : op->getResultTypes()) results.push_back(fromValue(llvm::PoisonValue::get(typeOf(elementOf(t))), 0));
    return results;
  }
  Value *r = emitValue(op, code, values);
  if (!r) {
    std::string what = "operation " + op->getName().getStringRef().str();
    if (code == OpCode::Extern)
      what = "the library function '" + op->getAttrOfType<mlir::StringAttr>("symbol").getValue().str() + "'";
    fail(op, what);
    r = llvm::PoisonValue::get(typeOf(resultType));
  }
  return {fromValue(r, level)};
}

Value *Emitter::emitDivision(OpCode code, Value *x, Value *y) {
  const bool isSigned = code == OpCode::DivSI || code == OpCode::RemSI;
  const bool isRem = code == OpCode::RemSI || code == OpCode::RemUI;
  auto *constant = llvm::dyn_cast<llvm::Constant>(y);
  llvm::Constant *splat = constant && constant->getType()->isVectorTy() ? constant->getSplatValue() : constant;
  auto *known = llvm::dyn_cast_or_null<llvm::ConstantInt>(splat);
  llvm::Type *t = x->getType();
  const unsigned bits = t->getScalarSizeInBits();
  if ((known && !known->isZero() && !known->isMinusOne()) || !t->isVectorTy() || bits > 64 || bits < 8)
    return divideScalars(b, code, x, y);
  Value *one = llvm::ConstantInt::get(t, 1), *zero = llvm::ConstantInt::get(t, 0);
  Value *d = b.CreateSelect(b.CreateICmpEQ(y, zero), one, y);
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

Value *Emitter::emitInteger(mlir::Operation *op, OpCode code, llvm::ArrayRef<Value *> args) {
  if (args.empty()) return nullptr;
  Value *x = args[0], *y = args.size() > 1 ? args[1] : nullptr;
  const bool ofConstant = llvm::isa<llvm::Constant>(x) || (y && llvm::isa<llvm::Constant>(y));
  if (code == OpCode::CmpI && !caps_.maskedMemory && x->getType()->isVectorTy() && ofConstant) {
    // LLVM 22 drops the mask of a masked AVX2 load when it splits a constant one into a half that is all false. Such
    // masks stay opaque: the top bit of an address is zero, which LLVM does not know.
    Value *top = b.CreateLShr(b.CreatePtrToInt(env_, b.getInt64Ty()), 63);
    Value *zero = b.CreateTrunc(top, x->getType()->getScalarType());
    y = b.CreateAdd(y, b.CreateVectorSplat(llvm::cast<llvm::VectorType>(x->getType())->getElementCount(), zero));
    return emitCompare(b, op, x, y);
  }
  llvm::Type *type = typeLike(elementOf(op->getResult(0).getType()), x);
  return emitIntegerOp(b, op, code, args, type,
                       [&](OpCode kind, Value *n, Value *d) { return emitDivision(kind, n, d); });
}

/// The float of x & 15 out of a table in a register, which is indexed by the low four bits: one shuffle in place of a mask and a
/// conversion. Null of other values; these are left to other units of the machine.
Value *Emitter::floatOfLowBits(Value *x) {
  using namespace llvm::PatternMatch;
  auto *type = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  constexpr unsigned kEntries = 16;
  Value *all = nullptr;
  if (!caps_.tables || caps_.f32Lanes != kEntries || !type || type->getNumElements() != kEntries || !type->getElementType()->isIntegerTy(32) ||
      !match(x, m_And(m_Value(all), m_SpecificInt(kEntries - 1))) ||
      llvm::computeKnownBits(all, module_.getDataLayout()).countMaxActiveBits() <= 4)
    return nullptr;
  llvm::SmallVector<llvm::Constant *, kEntries> table;
  for (unsigned i = 0; i < kEntries; ++i) table.push_back(llvm::ConstantFP::get(b.getFloatTy(), i));
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {llvm::ConstantVector::get(table), all});
}

Value *Emitter::emitCast(mlir::Operation *op, OpCode code, Value *x) {
  mlir::Type from = elementOf(op->getOperand(0).getType()), to = elementOf(op->getResult(0).getType());
  mlir::Type f32 = mlir::Float32Type::get(op->getContext());
  switch (code) {
  case OpCode::ExtF:
  case OpCode::TruncF: return convertFloat(x, from, to, false);
  case OpCode::FpToFp: {
    auto rounding = op->getAttrOfType<mlir::IntegerAttr>("rounding");
    return convertFloat(x, from, to, rounding && rounding.getInt() == 0);
  }
  case OpCode::SIToFP:
  case OpCode::UIToFP: {
    mlir::Type via = isReduced(to) ? f32 : to;
    if (Value *f = via.isF32() ? floatOfLowBits(x) : nullptr) return convertFloat(f, via, to, false);
    Value *f = code == OpCode::SIToFP ? b.CreateSIToFP(x, typeLike(via, x)) : b.CreateUIToFP(x, typeLike(via, x));
    return convertFloat(f, via, to, false);
  }
  case OpCode::FPToSI:
  case OpCode::FPToUI: {
    Value *f = isReduced(from) ? convertFloat(x, from, f32, false) : x;
    // Narrow results go through i32, so that values out of range wrap as C's conversions on this machine do.
    llvm::Type *type = typeLike(to, x);
    const unsigned bits = type->getScalarSizeInBits();
    llvm::Type *wide = bits < 32 ? type->getWithNewBitWidth(32) : type;
    Value *i = code == OpCode::FPToSI || bits < 32 ? b.CreateFPToSI(f, wide) : b.CreateFPToUI(f, wide);
    return b.CreateTrunc(b.CreateFreeze(i), type);
  }
  default: return nullptr;
  }
}

Value *Emitter::emitValue(mlir::Operation *op, OpCode code, llvm::ArrayRef<Value *> args) {
  if (code == OpCode::Extern) return emitExtern(op, op->getAttrOfType<mlir::StringAttr>("symbol").getValue(), args);
  if (Value *r = emitInteger(op, code, args)) return r;
  if (args.empty()) return nullptr;
  if (Value *r = emitCast(op, code, args[0])) return r;
  mlir::Type resultType = elementOf(op->getResult(0).getType()), operandType = elementOf(op->getOperand(0).getType());
  // Floating point: narrow types compute in f32 and round after each operation.
  if (!llvm::isa<mlir::FloatType>(operandType)) return nullptr;
  llvm::SmallVector<Value *, 4> wide(args.begin(), args.end());
  mlir::Type compute = operandType;
  if (isReduced(operandType)) {
    compute = mlir::Float32Type::get(op->getContext());
    for (unsigned i = 0; i < wide.size(); ++i) wide[i] = convertFloat(wide[i], operandType, compute, false);
  }
  Value *r = emitFloat(op, code, wide);
  if (r && llvm::isa<mlir::FloatType>(resultType) && compute != resultType)
    r = convertFloat(r, compute, resultType, false);
  return r;
}

Value *Emitter::emitFloat(mlir::Operation *op, OpCode code, llvm::ArrayRef<Value *> args) {
  // Quotients and roots are exact here, whether an operation asks for it or not.
  if (code == OpCode::DivF || code == OpCode::ApproxDivF) return emitFloatOp(b, op, OpCode::PreciseDivF, args);
  if (code == OpCode::Sqrt) return emitFloatOp(b, op, OpCode::PreciseSqrt, args);
  if (code == OpCode::FPowI) return math_.emit(MathFn::Pow, {args[0], b.CreateSIToFP(args[1], args[0]->getType())});
  if (std::optional<MathFn> function = functionOf(op, code)) return math_.emit(*function, args);
  // Where NaN need not be kept, one instruction.
  if (code == OpCode::MaximumF && bitEnumContainsAny(llvm::cast<mlir::arith::MaximumFOp>(op).getFastmath(), mlir::arith::FastMathFlags::nnan))
    return b.CreateSelect(b.CreateFCmpOGT(args[0], args[1]), args[0], args[1]);
  Value *r = emitFloatOp(b, op, code, args);
  // That 0 is larger than -0 costs as many instructions as the rest. Neither PyTorch's maximum nor Triton's interpreter tells the two apart.
  if (code == OpCode::MaximumF || code == OpCode::MinimumF)
    if (auto *chosen = llvm::dyn_cast<llvm::Instruction>(r)) chosen->setHasNoSignedZeros(true);
  return r;
}

} // namespace neso::cpu
