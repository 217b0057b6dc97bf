// The run-time half of affine.h: tests of what the form of an index cannot show, and what may be done once they are
// made. All tests are made at level 0, from the index's first element and its steps.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace neso::cpu {

using llvm::Value;

mlir::Value Emitter::initOf(mlir::Value carried) const {
  auto it = moving_.find(carried);
  return it == moving_.end() ? mlir::Value() : it->second.init;
}

Value *Emitter::noWrap(const NoWrap &c) {
  AtLevel top(*this, 0);
  const Shape shape = shapeOf(c.value.getType());
  const Index origin(shape.size(), uniformInt(0));
  Value *start = eval(c.value, origin).base;
  const unsigned bits = start->getType()->getIntegerBitWidth();
  // Steps have `bits` bits and tiles fewer than 2^30 elements, so nothing wraps in this type.
  llvm::Type *wide = b.getIntNTy(bits <= 32 ? 64 : 128);
  const unsigned wideBits = wide->getIntegerBitWidth();
  auto extended = [&](Value *v) { return c.isSigned ? b.CreateSExt(v, wide) : b.CreateZExt(v, wide); };
  Value *low = extended(start), *high = low, *zero = llvm::ConstantInt::get(wide, 0);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    Conditions known;
    std::optional<Step> step = affine_.along(c.value, static_cast<int64_t>(d), known);
    NESO_CHECK(step.has_value(), "a test of a value that is not affine");
    const llvm::APInt steps(wideBits, static_cast<uint64_t>(shape[d] - 1));
    if (step->constant) {
      const llvm::APInt span = llvm::APInt(wideBits, static_cast<uint64_t>(*step->constant), true) * steps;
      (span.isNegative() ? low : high) = b.CreateAdd(span.isNegative() ? low : high, llvm::ConstantInt::get(wide, span));
      continue;
    }
    Index next = origin;
    next[d] = uniformInt(1);
    Value *each = b.CreateSExt(b.CreateSub(eval(c.value, next).base, start), wide);
    Value *span = b.CreateMul(each, llvm::ConstantInt::get(wide, steps));
    low = b.CreateAdd(low, b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, span, zero));
    high = b.CreateAdd(high, b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, span, zero));
  }
  llvm::APInt least = c.isSigned ? llvm::APInt::getSignedMinValue(bits).sext(wideBits) : llvm::APInt(wideBits, 0);
  llvm::APInt most = c.isSigned ? llvm::APInt::getSignedMaxValue(bits).zext(wideBits)
                                : llvm::APInt::getMaxValue(bits).zext(wideBits);
  return b.CreateAnd(b.CreateICmpSGE(low, llvm::ConstantInt::get(wide, least)),
                     b.CreateICmpSLE(high, llvm::ConstantInt::get(wide, most)));
}

Emitter::Remainder Emitter::remainder(const RemainderForm &form) {
  AtLevel top(*this, 0);
  Value *start = scalar(form.start).base, *modulus = scalar(form.modulus).base;
  llvm::Type *type = start->getType();
  const int64_t extent = form.last - form.first;
  auto constant = [&](int64_t v) { return llvm::ConstantInt::getSigned(type, v); };
  Value *begin = b.CreateAdd(start, constant(form.first));
  Remainder r;
  r.first = emitDivision(OpCode::RemSI, begin, modulus);
  // 0 <= begin, begin + extent - 1 does not wrap, first + extent <= modulus.
  const int64_t most = llvm::APInt::getSignedMaxValue(type->getIntegerBitWidth()).getSExtValue();
  Value *inRange = b.CreateAnd(b.CreateICmpSGE(begin, constant(0)), b.CreateICmpSLE(begin, constant(most - extent + 1)));
  Value *turnsLater = b.CreateAnd(b.CreateICmpSGE(modulus, constant(extent)),
                                  b.CreateICmpSLE(r.first, b.CreateSub(modulus, constant(extent))));
  r.plain = b.CreateAnd(inRange, turnsLater);
  return r;
}

Value *Emitter::holds(const Conditions &conditions) {
  AtLevel top(*this, 0);
  Value *all = b.getTrue();
  for (const NoWrap &c : conditions.noWrap) all = b.CreateAnd(all, noWrap(c));
  for (mlir::Operation *op : conditions.remainders) all = b.CreateAnd(all, remainder(*remainderForm(op)).plain);
  return all;
}

bool Emitter::speculate(const Conditions &conditions) {
  Value *all = holds(conditions);
  if (auto *c = llvm::dyn_cast<llvm::ConstantInt>(all)) return c->isOne();
  if (std::find(conditions_.begin(), conditions_.end(), all) == conditions_.end()) conditions_.push_back(all);
  return true;
}

std::optional<Lanes> Emitter::speculateRemainder(mlir::Operation *op, const Index &index) {
  if (!speculating_ || index.size() != 1) return std::nullopt;
  std::optional<RemainderForm> form = remainderForm(op);
  if (!form) return std::nullopt;
  const Remainder r = remainder(*form);
  conditions_.push_back(r.plain);
  Lanes sum = intOp(IntOp::Add, fromValue(r.first, 0), index[0]);
  sum.exact = true;
  return sum;
}

/// x, the elements of v at `index`, with lanes that differ by what v's steps say as numbers; nothing when that is not
/// to be had.
std::optional<Lanes> Emitter::speculateNoWrap(mlir::Value v, const Lanes &x, const Index &index, bool isSigned) {
  Conditions conditions;
  if (!speculating_ || !affine_.everywhere(v, conditions)) return std::nullopt;
  conditions.add(NoWrap{v, isSigned});
  const Shape shape = shapeOf(v.getType());
  const unsigned bits = x.elementType()->getIntegerBitWidth();
  Lanes r = x;
  if (x.kind == Lanes::Kind::Offsets) {
    LaneOffsets offsets(x.offsets->size(), 0);
    for (size_t d = 0; d < index.size(); ++d) {
      if (index[d].uniform() || shape[d] == 1) continue;
      Conditions known;
      std::optional<Step> step = affine_.along(v, static_cast<int64_t>(d), known);
      // Lane 0 stands at the base, so that the base is an element.
      if (index[d].kind != Lanes::Kind::Offsets || (*index[d].offsets)[0] != 0 || !step || !step->constant)
        return std::nullopt;
      for (size_t l = 0; l < offsets.size(); ++l) offsets[l] += *step->constant * (*index[d].offsets)[l];
    }
    for (size_t l = 0; l < offsets.size(); ++l) {
      const llvm::APInt apart(64, static_cast<uint64_t>((*x.offsets)[l] - (*x.offsets)[0] - offsets[l]));
      if (bits < 64 && apart.countr_zero() < bits) return std::nullopt;
    }
    AtLevel at(*this, x.level);
    if ((*x.offsets)[0] != 0)
      r.base = b.CreateAdd(x.base, llvm::ConstantInt::get(x.base->getType(), llvm::APInt(64, static_cast<uint64_t>((*x.offsets)[0])).trunc(bits)));
    r.align = 0;
    r.offsets = pool_.intern(std::move(offsets));
    return speculate(conditions) ? std::optional<Lanes>(r) : std::nullopt;
  }
  // A run along one dimension times a number known at run time.
  int moving = 0;
  for (size_t d = 0; d < index.size(); ++d) {
    if (index[d].uniform() || shape[d] == 1) continue;
    ++moving;
    if (index[d].kind != Lanes::Kind::Offsets || !isRun(*index[d].offsets, 1)) return std::nullopt;
  }
  if (moving != 1 || x.stepLevel != 0 || std::abs(x.scale) >= int64_t{1} << 31 || !speculate(conditions))
    return std::nullopt;
  if (x.scale != 1 || x.step->getType() != x.base->getType()) {
    // The step as the lanes have it must be the one that stands in the value's own type.
    AtLevel top(*this, 0);
    llvm::Type *i64 = b.getInt64Ty();
    Value *step = b.CreateMul(b.CreateSExtOrTrunc(x.step, i64), llvm::ConstantInt::getSigned(i64, x.scale));
    conditions_.push_back(b.CreateICmpEQ(b.CreateSExt(b.CreateTrunc(step, x.base->getType()), i64), step));
  }
  return r;
}

Lanes Emitter::widen(mlir::Value v, const Lanes &x, const Index &index, llvm::Type *type, bool isSigned) {
  if (!x.symbolic() || x.elementType()->getIntegerBitWidth() >= type->getIntegerBitWidth())
    return resize(x, type, isSigned, false);
  if (staysExact(x, isSigned)) return resize(x, type, isSigned, true);
  if (std::optional<Lanes> r = speculateNoWrap(v, x, index, isSigned)) return resize(*r, type, isSigned, true);
  return resize(x, type, isSigned, false);
}

} // namespace neso::cpu
