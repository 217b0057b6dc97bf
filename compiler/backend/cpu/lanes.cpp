#include "backend/cpu/lanes.h"

#include <algorithm>

#include "base/diagnostics.h"
#include "llvm/IR/Constants.h"
#include "llvm/Support/MathExtras.h"

namespace neso::cpu {

const LaneOffsets *OffsetPool::intern(LaneOffsets offsets) {
  std::vector<int64_t> key(offsets.begin(), offsets.end());
  std::unique_ptr<LaneOffsets> &slot = pool_[key];
  if (!slot) slot = std::make_unique<LaneOffsets>(std::move(offsets));
  return slot.get();
}

const LaneOffsets *OffsetPool::run(int64_t lanes, int64_t step) {
  LaneOffsets offsets;
  for (int64_t l = 0; l < lanes; ++l) offsets.push_back(l * step);
  return intern(std::move(offsets));
}

bool isRun(const LaneOffsets &offsets, int64_t step) {
  for (size_t l = 0; l < offsets.size(); ++l)
    if (offsets[l] != static_cast<int64_t>(l) * step) return false;
  return true;
}

namespace {
std::optional<int64_t> constantOf(const Lanes &x) {
  if (!x.uniform()) return std::nullopt;
  if (auto *c = llvm::dyn_cast<llvm::ConstantInt>(x.base)) return c->getSExtValue();
  return std::nullopt;
}

int alignOf(const Lanes &x) {
  if (auto *c = llvm::dyn_cast<llvm::ConstantInt>(x.base))
    return std::min<int>(c->isZero() ? 63 : c->getValue().countr_zero(), 63);
  return x.align;
}

/// The lane offsets of a symbolic value with constant steps; uniform values count as all zero.
bool offsetsOf(const Lanes &x, size_t lanes, LaneOffsets &out) {
  if (x.uniform()) {
    out.assign(lanes, 0);
    return true;
  }
  if (x.kind != Lanes::Kind::Offsets) return false;
  out = *x.offsets;
  return true;
}

Lanes finish(OffsetPool &pool, llvm::Value *base, LaneOffsets offsets, int level, int align) {
  Lanes r;
  r.base = base;
  r.level = static_cast<uint8_t>(level);
  r.align = static_cast<uint8_t>(std::clamp(align, 0, 63));
  // Equal offsets are no offsets: fold a common nonzero one into nothing only when it is zero.
  if (std::all_of(offsets.begin(), offsets.end(), [](int64_t o) { return o == 0; })) return r;
  r.kind = Lanes::Kind::Offsets;
  r.offsets = pool.intern(std::move(offsets));
  return r;
}
} // namespace

bool staysExact(const Lanes &x, bool isSigned) {
  if (!x.symbolic() || (x.exact && isSigned)) return true;
  if (x.kind != Lanes::Kind::Offsets) return false;
  const int low = std::min<int>({alignOf(x), static_cast<int>(x.elementType()->getIntegerBitWidth()) - 1, 62});
  return std::all_of(x.offsets->begin(), x.offsets->end(),
                     [&](int64_t o) { return o >= 0 && o < (int64_t{1} << low); });
}

std::optional<Lanes> symbolicInt(llvm::IRBuilder<> &b, OffsetPool &pool, IntOp op, const Lanes &x, const Lanes &y) {
  if (x.vector() || y.vector()) return std::nullopt;
  const int level = std::max(x.level, y.level);
  llvm::Type *type = x.base->getType();
  const unsigned bits = type->getIntegerBitWidth();
  const std::optional<int64_t> cy = constantOf(y);
  Lanes r;
  r.level = static_cast<uint8_t>(level);

  if (x.uniform() && y.uniform()) {
    switch (op) {
    case IntOp::Add:
      r.base = b.CreateAdd(x.base, y.base);
      r.align = std::min(alignOf(x), alignOf(y));
      break;
    case IntOp::Sub:
      r.base = b.CreateSub(x.base, y.base);
      r.align = std::min(alignOf(x), alignOf(y));
      break;
    case IntOp::Mul:
      r.base = b.CreateMul(x.base, y.base);
      r.align = std::min(alignOf(x) + alignOf(y), 63);
      break;
    case IntOp::Shl:
      r.base = b.CreateShl(x.base, y.base);
      r.align = cy && *cy >= 0 ? std::min<int>(alignOf(x) + static_cast<int>(*cy), 63) : 0;
      break;
    case IntOp::LShr: r.base = b.CreateLShr(x.base, y.base); break;
    case IntOp::And:
      r.base = b.CreateAnd(x.base, y.base);
      r.align = std::max(alignOf(x), alignOf(y));
      break;
    case IntOp::Or:
      r.base = b.CreateOr(x.base, y.base);
      r.align = std::min(alignOf(x), alignOf(y));
      break;
    case IntOp::Xor:
      r.base = b.CreateXor(x.base, y.base);
      r.align = std::min(alignOf(x), alignOf(y));
      break;
    case IntOp::UDiv:
      if (!cy || !llvm::isPowerOf2_64(*cy)) return std::nullopt;
      r.base = b.CreateLShr(x.base, llvm::Log2_64(*cy));
      r.align = std::max(0, alignOf(x) - static_cast<int>(llvm::Log2_64(*cy)));
      break;
    case IntOp::URem:
      if (!cy || !llvm::isPowerOf2_64(*cy)) return std::nullopt;
      r.base = b.CreateAnd(x.base, llvm::ConstantInt::get(type, *cy - 1));
      break;
    }
    return r;
  }

  const size_t lanes = x.kind == Lanes::Kind::Offsets   ? x.offsets->size()
                       : y.kind == Lanes::Kind::Offsets ? y.offsets->size()
                                                        : 0;
  if (op == IntOp::Add || op == IntOp::Sub) {
    LaneOffsets xo, yo;
    llvm::Value *base = op == IntOp::Add ? b.CreateAdd(x.base, y.base) : b.CreateSub(x.base, y.base);
    int align = std::min(alignOf(x), alignOf(y));
    if (lanes && offsetsOf(x, lanes, xo) && offsetsOf(y, lanes, yo)) {
      for (size_t l = 0; l < lanes; ++l) xo[l] = op == IntOp::Add ? xo[l] + yo[l] : xo[l] - yo[l];
      return finish(pool, base, std::move(xo), level, align);
    }
    if (x.kind == Lanes::Kind::Strided && y.uniform()) {
      r = x;
      r.exact = false;
      r.base = base;
      r.level = static_cast<uint8_t>(level);
      return r;
    }
    if (op == IntOp::Add && x.uniform() && y.kind == Lanes::Kind::Strided) {
      r = y;
      r.exact = false;
      r.base = base;
      r.level = static_cast<uint8_t>(level);
      return r;
    }
    return std::nullopt;
  }
  if (op == IntOp::Mul || (op == IntOp::Shl && cy && *cy >= 0 && *cy < 31)) {
    const Lanes &moving = x.uniform() ? y : x;
    const Lanes &fixed = x.uniform() ? x : y;
    if (!fixed.uniform()) return std::nullopt;
    std::optional<int64_t> c = constantOf(fixed);
    if (op == IntOp::Shl) {
      if (x.uniform()) return std::nullopt;
      c = int64_t{1} << *cy;
    }
    if (c && moving.kind == Lanes::Kind::Offsets) {
      if (*c > (int64_t{1} << 31) || *c < -(int64_t{1} << 31)) return std::nullopt;
      LaneOffsets o = *moving.offsets;
      for (int64_t &v : o) v = static_cast<int64_t>(static_cast<uint64_t>(v) * static_cast<uint64_t>(*c));
      int align = *c ? alignOf(moving) + static_cast<int>(llvm::countr_zero(static_cast<uint64_t>(*c))) : 63;
      return finish(pool, b.CreateMul(moving.base, llvm::ConstantInt::getSigned(type, *c)), std::move(o), level, align);
    }
    if (op == IntOp::Shl) return std::nullopt;
    if (moving.kind == Lanes::Kind::Strided) {
      r.kind = Lanes::Kind::Strided;
      if (!c || std::abs(*c) > (int64_t{1} << 31) || std::abs(moving.scale) > (int64_t{1} << 31)) return std::nullopt;
      r = moving;
      r.exact = false;
      r.level = static_cast<uint8_t>(level);
      r.base = b.CreateMul(moving.base, fixed.base);
      r.scale *= *c;
      return r;
    }
    // A run times a run-time value; other patterns need vectors.
    int64_t unit = moving.offsets->size() > 1 ? (*moving.offsets)[1] - (*moving.offsets)[0] : 0;
    if ((*moving.offsets)[0] != 0 || !isRun(*moving.offsets, unit)) return std::nullopt;
    r.kind = Lanes::Kind::Strided;
    r.base = b.CreateMul(moving.base, fixed.base);
    r.step = fixed.base;
    r.scale = unit;
    r.stepLevel = fixed.level;
    return r;
  }

  // The rest splits the value into high bits (of the base) and low bits (of the offsets), which must not overlap.
  if (x.kind != Lanes::Kind::Offsets || !cy || *cy < 0) return std::nullopt;
  const int low = std::min<int>({alignOf(x), static_cast<int>(bits) - 1, 62});
  for (int64_t o : *x.offsets)
    if (o < 0 || o >= (int64_t{1} << low)) return std::nullopt;
  const int64_t lowMask = (int64_t{1} << low) - 1;
  LaneOffsets o = *x.offsets;
  auto constant = [&](int64_t v) { return llvm::ConstantInt::getSigned(type, v); };
  // By a multiple of the power of two that the lanes stay within: they have one quotient.
  const bool divides = (op == IntOp::UDiv || op == IntOp::URem) && *cy > 0 && !llvm::isPowerOf2_64(static_cast<uint64_t>(*cy));
  if (divides && *llvm::max_element(o) < (*cy & -*cy)) {
    const int kept = std::min<int>(low, llvm::countr_zero(static_cast<uint64_t>(*cy)));
    if (op == IntOp::UDiv) return finish(pool, b.CreateUDiv(x.base, constant(*cy)), LaneOffsets(o.size(), 0), level, 0);
    return finish(pool, b.CreateURem(x.base, constant(*cy)), std::move(o), level, kept);
  }
  switch (op) {
  case IntOp::LShr:
  case IntOp::UDiv: {
    if (op == IntOp::UDiv && !llvm::isPowerOf2_64(*cy)) return std::nullopt;
    const int64_t shift = op == IntOp::UDiv ? llvm::Log2_64(*cy) : *cy;
    if (shift >= bits) return std::nullopt;
    for (int64_t &v : o) v = shift > 62 ? 0 : v >> shift;
    return finish(pool, b.CreateLShr(x.base, constant(shift)), std::move(o), level,
                  std::max<int>(0, alignOf(x) - static_cast<int>(shift)));
  }
  case IntOp::URem:
  case IntOp::And: {
    if (op == IntOp::URem && !llvm::isPowerOf2_64(*cy)) return std::nullopt;
    const int64_t mask = op == IntOp::URem ? *cy - 1 : *cy;
    for (int64_t &v : o) v &= mask;
    llvm::Value *base = (mask & ~lowMask) == 0 ? static_cast<llvm::Value *>(constant(0))
                                               : b.CreateAnd(x.base, constant(mask & ~lowMask));
    return finish(pool, base, std::move(o), level, alignOf(x));
  }
  case IntOp::Or:
  case IntOp::Xor: {
    for (int64_t &v : o) v = op == IntOp::Or ? v | (*cy & lowMask) : v ^ (*cy & lowMask);
    llvm::Value *high = constant(*cy & ~lowMask);
    return finish(pool, op == IntOp::Or ? b.CreateOr(x.base, high) : b.CreateXor(x.base, high), std::move(o), level,
                  low);
  }
  default: return std::nullopt;
  }
}

llvm::Value *toVector(llvm::IRBuilder<> &b, const Lanes &x, int64_t n) {
  if (x.vector()) return x.base;
  if (n == 1) {
    llvm::Value *v = x.base;
    if (x.kind == Lanes::Kind::Offsets && (*x.offsets)[0] != 0)
      v = v->getType()->isPointerTy() ? b.CreateGEP(b.getInt8Ty(), v, b.getInt64((*x.offsets)[0]))
                                      : b.CreateAdd(v, llvm::ConstantInt::getSigned(v->getType(), (*x.offsets)[0]));
    return v;
  }
  llvm::Value *v = b.CreateVectorSplat(static_cast<unsigned>(n), x.base);
  if (x.uniform()) return v;
  const bool pointer = x.base->getType()->isPointerTy();
  llvm::Type *type = pointer ? b.getInt64Ty() : x.base->getType();
  llvm::SmallVector<llvm::Constant *, 64> elements;
  for (int64_t l = 0; l < n; ++l)
    elements.push_back(llvm::ConstantInt::get(
        type, llvm::APInt(type->getIntegerBitWidth(),
                          static_cast<uint64_t>(x.kind == Lanes::Kind::Offsets ? (*x.offsets)[l] : l), true,
                          /*implicitTrunc=*/true)));
  llvm::Value *offset = llvm::ConstantVector::get(elements);
  if (x.kind == Lanes::Kind::Strided) {
    llvm::Value *step = b.CreateMul(b.CreateSExtOrTrunc(x.step, type), llvm::ConstantInt::getSigned(type, x.scale));
    offset = b.CreateMul(offset, b.CreateVectorSplat(static_cast<unsigned>(n), step));
  }
  return pointer ? b.CreateGEP(b.getInt8Ty(), v, offset) : b.CreateAdd(v, offset);
}

} // namespace neso::cpu
