// Updates of memory by programs that run in no order: by one atomic instruction, by several on the bits of floats, or by swaps that are tried again.
#include <bit>
#include <limits>

#include "ir/tile/build.h"
#include "ir/tile/tile.h"
#include "lower/plan_to_tile/emit.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso {

using namespace mlir;
namespace tb = tile;

namespace {

Type likeOf(Value v, Type element) {
  if (auto shaped = dyn_cast<ShapedType>(v.getType())) return shaped.clone(element);
  return element;
}

/// Pointers to integers where floats of as many bits lie.
Val asWords(Emitter &e, Val pointers, Type word) {
  const Type to = likeOf(pointers.v, tt::PointerType::get(word));
  return {tb::bitcast(e.k.b, e.k.loc, pointers.v, to), pointers.vary};
}

/// The greatest or least of floats in memory, by their bits: those without a sign are ordered as integers, those with one the other way round as
/// integers without a sign. A NaN is made the bits that no number replaces. A NaN in memory may have another sign: what takes its place is told by
/// what was there, and made a NaN again.
void updateExtreme(Emitter &e, bool greatest, DType dtype, Val at, Val value, Val mask) {
  OpBuilder &b = e.k.b;
  const DType words = itemSize(dtype) == 8 ? DType::I64 : DType::I32;
  const Type word = computeTypeOf(b.getContext(), words);
  const int64_t most = words == DType::I64 ? INT64_MAX : INT32_MAX, signBit = words == DType::I64 ? INT64_MIN : INT32_MIN;
  const int64_t infinity = dtype == DType::F64 ? std::bit_cast<int64_t>(std::numeric_limits<double>::infinity()) : std::bit_cast<int32_t>(std::numeric_limits<float>::infinity());
  const Val last = e.constant(words, 0, greatest ? most : -1), none = e.constant(words, 0, 0);
  at = asWords(e, at, word);
  Val bits = {tb::bitcast(b, e.k.loc, value.v, likeOf(value.v, word)), value.vary};
  bits = e.select(e.compare("uno", value, value), last, bits);
  const Val isNegative = e.compare("lt", bits, none), isPositive = e.compare("le", none, bits);
  auto update = [&](tb::AtomicKind kind, Val v, Val where) -> Val {
    return {tb::atomicRmw(b, e.k.loc, kind, at.v, e.widen(v, at.vary).v, e.widenMask(e.andMask(mask, where), at.vary).v), at.vary};
  };
  using K = tb::AtomicKind;
  const Val positive = update(greatest ? K::Max : K::Min, bits, isPositive), negative = update(greatest ? K::UMin : K::UMax, bits, isNegative);
  const Val old = e.select(isNegative, negative, positive);
  const Val wasNan = greatest ? e.compare("gt", old, e.constant(words, 0, infinity | signBit), true) : e.compare("gt", old, e.constant(words, 0, infinity));
  update(greatest ? K::Max : K::UMax, last, wasNan);
}

/// memory *= value, by words that are swapped when they are what was multiplied, and multiplied again when another program came between.
void updateProduct(Emitter &e, DType dtype, loops::BufferId buffer, Val at, Val value, Val mask) {
  OpBuilder &b = e.k.b;
  const Location loc = e.k.loc;
  const DType words = itemSize(dtype) == 8 ? DType::I64 : DType::I32;
  const Type word = computeTypeOf(b.getContext(), words), element = computeTypeOf(b.getContext(), dtype);
  const unsigned vary = at.vary;
  at = asWords(e, at, word);
  // Swaps know no mask: where nothing is to be done, a word is swapped with itself. There is one if some lane is to be updated, and nothing happens
  // before that is known: what memory holds is found out by the first swap.
  const Val anywhere = asWords(e, {e.k.buffers.at(buffer)}, word);
  if (mask) at = {e.select(mask, at, e.widen(anywhere, vary)).v, vary};
  auto shaped = [&](Type type) { return likeOf(at.v, type); };
  const Type type = shaped(word), flag = shaped(b.getI1Type());
  const Val pending = e.widen(mask ? mask : e.constant(DType::Bool, 0, 1), vary);
  const Value first = e.widen(e.constant(words, 0, 0), vary).v;
  auto loop = scf::WhileOp::create(b, loc, TypeRange{type, flag}, ValueRange{first, pending.v});
  OpBuilder::InsertionGuard guard(b);
  const SmallVector<Location> locs(2, loc);
  Block *test = b.createBlock(&loop.getBefore(), {}, TypeRange{type, flag}, locs);
  Value any = e.cast({test->getArgument(1), vary}, DType::Bool, DType::I32).v;
  while (isa<ShapedType>(any.getType()))
    any = tb::reduce(b, loc, {any}, 0, [&](ValueRange a) { return SmallVector<Value>{arith::OrIOp::create(b, loc, a[0], a[1])}; })[0];
  scf::ConditionOp::create(b, loc, e.compare("ne", {any}, e.constant(DType::I32, 0, 0)).v, test->getArguments());
  Block *body = b.createBlock(&loop.getAfter(), {}, TypeRange{type, flag}, locs);
  const Val old{body->getArgument(0), vary}, open{body->getArgument(1), vary};
  const Val was{tb::bitcast(b, loc, old.v, shaped(element)), vary};
  const Val product = e.binary(isFloat(dtype) ? "arith.mulf" : "arith.muli", was, value);
  const Val next = e.select(open, {tb::bitcast(b, loc, product.v, type), vary}, old);
  const Val found{tt::AtomicCASOp::create(b, loc, type, at.v, old.v, next.v, tt::MemSemantic::RELAXED, tt::MemSyncScope::GPU), vary};
  scf::YieldOp::create(b, loc, ValueRange{found.v, e.andMask(open, e.compare("ne", found, old)).v});
}

} // namespace

/// Every lane that the node runs along is one update, also where neither place nor value varies.
void Emitter::update(const loops::Store &s, Val value, Val mask) {
  const DType dtype = k.plan.program.buffer(s.buffer).dtype;
  NESO_CHECK(k.inTurn ? hasAtomic(s.mode, dtype) : k.target.threadBlocks && updatesInAnyOrder(s.mode, dtype),
             "an update that is no instruction by programs in no order");
  const unsigned lanes = frame.full() & ~notAlong;
  mask = andMask(mask, tileMask(lanes));
  const Val at = widen(pointer(s.buffer, simplified(s.index)), lanes);
  value = widen(value, lanes);
  mask = widenMask(mask, lanes);
  if (s.mode == loops::StoreMode::AtomicMul) return updateProduct(*this, dtype, s.buffer, at, value, mask);
  if (s.mode != loops::StoreMode::AtomicAdd && isFloat(dtype)) return updateExtreme(*this, s.mode == loops::StoreMode::AtomicMax, dtype, at, value, mask);
  using K = tb::AtomicKind;
  const bool uns = isUnsignedInt(dtype);
  const K kind = s.mode == loops::StoreMode::AtomicAdd   ? (isFloat(dtype) ? K::FAdd : K::Add)
                 : s.mode == loops::StoreMode::AtomicMin ? (uns ? K::UMin : K::Min)
                                                         : (uns ? K::UMax : K::Max);
  tb::atomicRmw(k.b, k.loc, kind, at.v, value.v, mask.v, k.inTurn);
}

} // namespace neso
