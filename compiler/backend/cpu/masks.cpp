// How far a vector loop has to run: masks that are true up to some position and false from there on.
#include "backend/cpu/masks.h"

#include <algorithm>

#include "backend/cpu/emitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace neso::cpu {

using llvm::Value;

namespace {
/// C or `condition ? C : 0`.
struct Guarded {
  Value *condition;
  llvm::ConstantInt *number;
};
std::optional<Guarded> guardedOf(Value *v) {
  if (auto *c = llvm::dyn_cast<llvm::ConstantInt>(v)) return Guarded{nullptr, c};
  auto *select = llvm::dyn_cast<llvm::SelectInst>(v);
  if (!select) return std::nullopt;
  auto *yes = llvm::dyn_cast<llvm::ConstantInt>(select->getTrueValue());
  auto *no = llvm::dyn_cast<llvm::ConstantInt>(select->getFalseValue());
  if (!yes || yes->isNegative() || !no || !no->isZero()) return std::nullopt;
  return Guarded{select->getCondition(), yes};
}
} // namespace

Value *smaller(llvm::IRBuilder<> &b, Value *x, Value *y) {
  std::optional<Guarded> p = guardedOf(x), q = guardedOf(y);
  if (!p || !q || p->number->isNegative() || q->number->isNegative()) {
    auto *c = llvm::dyn_cast<llvm::ConstantInt>(x), *d = llvm::dyn_cast<llvm::ConstantInt>(y);
    if (c && d) return c->getSExtValue() < d->getSExtValue() ? c : d;
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y);
  }
  llvm::ConstantInt *least = p->number->getSExtValue() < q->number->getSExtValue() ? p->number : q->number;
  if (!p->condition && !q->condition) return least;
  Value *both = !p->condition                     ? q->condition
                : !q->condition                   ? p->condition
                : p->condition == q->condition    ? p->condition
                                                  : b.CreateAnd(p->condition, q->condition);
  return b.CreateSelect(both, least, llvm::ConstantInt::get(x->getType(), 0));
}

Value *larger(llvm::IRBuilder<> &b, Value *x, Value *y) {
  auto *c = llvm::dyn_cast<llvm::ConstantInt>(x), *d = llvm::dyn_cast<llvm::ConstantInt>(y);
  if (c && d) return c->getSExtValue() > d->getSExtValue() ? c : d;
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y);
}

std::optional<Reached> reachedOf(Value *bound) {
  std::optional<Guarded> g = guardedOf(bound);
  if (!g || g->number->isNegative()) return std::nullopt;
  return Reached{g->condition, g->number->getSExtValue()};
}

std::optional<Emitter::Prefix> Emitter::prefixAlong(mlir::Value mask, const Index &outer, const Nest &nest) {
  const Shape shape = shapeOf(mask.getType());
  if (nest.vectorDim >= 0) {
    // What is the same along the vector direction would end the loop at its start.
    if (shape[static_cast<size_t>(nest.vectorDim)] != nest.extent) return std::nullopt;
    return prefixOf(mask, indexIn(mask, vectorIndex(nest, outer, b.getInt32(0))), nest);
  }
  // Of flattened dimensions: a mask that varies along the first of them alone.
  const size_t first = static_cast<size_t>(nest.flatFrom);
  if (shape[first] != nest.shape[first] || shape[first] == 1) return std::nullopt;
  Conditions conditions;
  for (size_t d = first + 1; d < shape.size(); ++d) {
    std::optional<Step> step = affine_.along(mask, static_cast<int64_t>(d), conditions);
    if (!step || !step->isZero() || !conditions.empty()) return std::nullopt;
  }
  Nest along = nest;
  along.vectorDim = static_cast<int>(first), along.flatFrom = -1, along.extent = shape[first], along.width = shape[first];
  Index at = outer;
  for (size_t d = first + 1; d < at.size(); ++d) at[d] = uniformInt(0);
  std::optional<Prefix> prefix = prefixOf(mask, indexIn(mask, vectorIndex(along, at, b.getInt32(0))), along);
  if (!prefix) return std::nullopt;
  const int64_t inner = nest.extent / shape[first];
  if (std::optional<Guarded> g = guardedOf(prefix->below)) {
    Value *all = llvm::ConstantInt::get(prefix->below->getType(), static_cast<uint64_t>(g->number->getSExtValue() * inner));
    prefix->below = g->condition ? b.CreateSelect(g->condition, all, b.getInt32(0)) : all;
  } else {
    prefix->below = b.CreateMul(prefix->below, b.getInt32(static_cast<uint32_t>(inner)));
  }
  return prefix;
}

std::optional<Emitter::Prefix> Emitter::prefixOf(mlir::Value mask, const Index &index, const Nest &nest) {
  Value *extent = b.getInt32(static_cast<uint32_t>(nest.extent)), *none = b.getInt32(0);
  size_t dim = 0;
  while (dim < index.size() && index[dim].uniform()) ++dim;
  // Where the mask does not move along the vector direction, one condition decides.
  auto everywhere = [&](const Index &at, Value *certain) -> std::optional<Prefix> {
    Lanes m = eval(mask, at);
    if (!m.uniform()) return std::nullopt;
    return Prefix{b.CreateSelect(m.base, extent, none), certain};
  };
  if (dim == index.size()) return everywhere(index, nullptr);
  mlir::Operation *def = mask.getDefiningOp();
  if (!def || buffers_.count(mask)) return std::nullopt;
  switch (codeOf(def)) {
  case OpCode::AndI: {
    std::optional<Prefix> x = prefixOf(def->getOperand(0), index, nest);
    std::optional<Prefix> y = x ? prefixOf(def->getOperand(1), index, nest) : std::nullopt;
    if (!y) return std::nullopt;
    Value *certain = !x->certain ? y->certain : !y->certain ? x->certain : b.CreateAnd(x->certain, y->certain);
    return Prefix{smaller(b, x->below, y->below), certain};
  }
  case OpCode::Broadcast: {
    auto type = llvm::cast<mlir::RankedTensorType>(def->getOperand(0).getType());
    Index inner = index;
    for (size_t d = 0; d < inner.size(); ++d)
      if (type.getShape()[d] == 1) inner[d] = uniformInt(0);
    return prefixOf(def->getOperand(0), inner, nest);
  }
  case OpCode::ExpandDims: {
    Index inner = index;
    inner.erase(inner.begin() + def->getAttrOfType<mlir::IntegerAttr>("axis").getInt());
    return prefixOf(def->getOperand(0), inner, nest);
  }
  case OpCode::CmpI:
    if (std::optional<Prefix> p = comparedPrefix(def, index, dim, nest)) return p;
    break;
  default: break;
  }
  Conditions conditions;
  std::optional<Step> step = affine_.along(mask, static_cast<int64_t>(dim), conditions);
  if (!step || !step->isZero()) return std::nullopt;
  Index first = index;
  first[dim] = uniformInt(0);
  return everywhere(first, conditions.empty() ? nullptr : holds(conditions));
}

/// x < bound with x = x[0] + position, as numbers: true below bound - x[0].
std::optional<Emitter::Prefix> Emitter::comparedPrefix(mlir::Operation *compare, const Index &index, size_t dim,
                                                       const Nest &nest) {
  using P = mlir::arith::CmpIPredicate;
  const P predicate = llvm::cast<mlir::arith::CmpIOp>(compare).getPredicate();
  const bool flipped = predicate == P::sgt || predicate == P::sge;
  if (!flipped && predicate != P::slt && predicate != P::sle) return std::nullopt;
  mlir::Value moving = compare->getOperand(flipped ? 1 : 0), fixed = compare->getOperand(flipped ? 0 : 1);
  Conditions conditions;
  std::optional<Step> step = affine_.along(moving, static_cast<int64_t>(dim), conditions);
  std::optional<Step> still = affine_.along(fixed, static_cast<int64_t>(dim), conditions);
  if (!step || !step->isUnit() || !still || !still->isZero()) return std::nullopt;
  Index first = index;
  first[dim] = uniformInt(0);
  const Lanes start = eval(moving, first), limit = eval(fixed, first);
  if (!start.uniform() || !limit.uniform()) return std::nullopt;
  llvm::Type *i64 = b.getInt64Ty();
  const unsigned bits = start.base->getType()->getIntegerBitWidth();
  if (bits > 64) return std::nullopt;
  auto number = [&](int64_t v) { return llvm::ConstantInt::getSigned(i64, v); };
  Value *x = b.CreateSExt(start.base, i64), *y = b.CreateSExt(limit.base, i64);
  // The last x must not have wrapped around.
  const int64_t most = llvm::APInt::getSignedMaxValue(bits).getSExtValue();
  Value *certain = b.CreateICmpSLE(x, number(most - (nest.extent - 1)));
  certain = b.CreateAnd(certain, holds(conditions));
  Value *below = bits < 64 ? b.CreateSub(y, x) : b.CreateBinaryIntrinsic(llvm::Intrinsic::ssub_sat, y, x);
  const int64_t more = predicate == P::sle || predicate == P::sge ? 1 : 0;
  below = smaller(b, below, number(nest.extent - more));
  below = larger(b, below, number(-more));
  below = b.CreateTrunc(b.CreateAdd(below, number(more)), b.getInt32Ty());
  auto *always = llvm::dyn_cast<llvm::ConstantInt>(certain);
  return Prefix{below, always && always->isOne() ? nullptr : certain};
}

/// The index of what a tensor that spreads to the nest's shape holds for an element of it.
Index Emitter::indexIn(mlir::Value v, const Index &index) {
  const Shape shape = shapeOf(v.getType());
  Index inner = index;
  for (size_t d = 0; d < inner.size() && d < shape.size(); ++d)
    if (shape[d] == 1) inner[d] = uniformInt(0);
  return inner;
}

} // namespace neso::cpu
