#include "lower/plan_to_tile/sort_order.h"

#include "ir/tile/build.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace neso {

using namespace mlir;
using loops::SortSpec;

DType sortKeyType(const SortSpec &node) { return node.body.ops[static_cast<size_t>(node.key)].dtype; }

Val standsBefore(Emitter &e, const SortSpec &node, Val x, Val a, Val y, Val b) {
  DType t = sortKeyType(node);
  bool uns = isUnsignedInt(t) || t == DType::Bool;
  if (isReducedFloat(t)) x = e.cast(x, t, DType::F32), y = e.cast(y, t, DType::F32);
  if (node.descending) std::swap(x, y);
  Val less = e.compare("lt", x, y, uns), tie = e.compare("eq", x, y);
  if (isFloat(t)) {
    Val xNan = e.compare("uno", x, x), yNan = e.compare("uno", y, y), yes = e.constant(DType::Bool, 0, 1);
    less = e.binary("arith.ori", less, e.binary("arith.andi", yNan, e.binary("arith.xori", xNan, yes)));
    tie = e.binary("arith.ori", tie, e.binary("arith.andi", xNan, yNan));
  }
  if (!a) return less;
  return e.binary("arith.ori", less, e.binary("arith.andi", tie, e.compare("lt", a, b)));
}

namespace {

DType unsignedOf(int64_t bytes) { return integerOf(false, bytes); }
int bitsOf(DType t) { return static_cast<int>(itemSize(t)) * 8; }
int64_t signOf(DType t) { return INT64_MIN >> (64 - bitsOf(t)); }

/// The bits of infinity: those of a NaN are larger.
int64_t infinityOf(DType t) { return static_cast<int64_t>(floatFormat(t).infinity); }

Val bitcast(Emitter &e, Val x, DType to) {
  Type type = computeTypeOf(e.k.b.getContext(), to);
  if (auto shaped = dyn_cast<ShapedType>(x.v.getType())) type = shaped.clone(type);
  return {tile::bitcast(e.k.b, e.k.loc, x.v, type), x.vary};
}

} // namespace

SortWords::SortWords(Emitter &e, const SortSpec &node, int64_t length)
    : e_(e), given_(sortKeyType(node)), key_(given_), descending_(node.descending) {
  if (isFloat(key_) && itemSize(key_) == 1) key_ = DType::F32;
  if (key_ == DType::Bool) key_ = DType::U8;
  ordered_ = unsignedOf(itemSize(key_));
  form_ = itemSize(key_) == 8 ? Form::Wide : itemSize(key_) <= 2 && length <= 1 << 15 ? Form::Half : Form::Whole;
}

SortWords::Ordered SortWords::ordered(Val key) const {
  key = e_.cast(key, given_, key_);
  Ordered out;
  if (isFloat(key_)) {
    Val raw = bitcast(e_, key, ordered_), sign = constant(ordered_, signOf(ordered_));
    Val magnitude = e_.binary("arith.andi", raw, constant(ordered_, ~signOf(ordered_)));
    Val nan = e_.compare("gt", magnitude, constant(ordered_, infinityOf(key_)));
    out.negativeZero = e_.compare("eq", raw, sign);
    raw = e_.select(out.negativeZero, constant(ordered_, 0), raw);
    // Negative numbers run backwards: all their bits turn; of the others the sign.
    Val turn = e_.binary("arith.ori", e_.binary("arith.shrsi", raw, constant(ordered_, bitsOf(ordered_) - 1)), sign);
    out.bits = e_.select(nan, constant(ordered_, -1), e_.binary("arith.xori", raw, turn));
  } else {
    out.bits = isSignedInt(key_) ? e_.binary("arith.xori", key, constant(ordered_, signOf(ordered_))) : key;
  }
  if (descending_) out.bits = e_.binary("arith.xori", out.bits, constant(ordered_, -1));
  return out;
}

std::vector<Val> SortWords::pack(Val key, Val position) const {
  Ordered o = ordered(key);
  Val low = e_.binary("arith.shli", position, constant(DType::I32, 1));
  if (o.negativeZero) low = e_.binary("arith.ori", low, e_.cast(o.negativeZero, DType::Bool, DType::U32));
  if (form_ == Form::Wide) return {o.bits, low};
  DType all = form_ == Form::Half ? DType::U32 : DType::U64;
  Val high = e_.binary("arith.shli", e_.cast(o.bits, ordered_, all), constant(all, bitsOf(all) / 2));
  return {e_.binary("arith.ori", high, e_.cast(low, DType::U32, all))};
}

std::vector<Val> SortWords::last() const {
  if (form_ == Form::Wide) return {constant(DType::U64, -1), constant(DType::U32, -1)};
  return {constant(form_ == Form::Half ? DType::U32 : DType::U64, -1)};
}

Val SortWords::key(const std::vector<Val> &words) const {
  DType all = form_ == Form::Half ? DType::U32 : DType::U64;
  Val bits = words[0];
  if (form_ != Form::Wide)
    bits = e_.cast(e_.binary("arith.shrui", bits, constant(all, bitsOf(all) / 2)), all, ordered_);
  if (descending_) bits = e_.binary("arith.xori", bits, constant(ordered_, -1));
  if (!isFloat(key_)) {
    if (isSignedInt(key_)) bits = e_.binary("arith.xori", bits, constant(ordered_, signOf(ordered_)));
    return e_.cast(bits, key_, given_);
  }
  Val low = form_ == Form::Wide ? words[1] : e_.cast(words[0], all, DType::U32);
  Val sign = constant(ordered_, signOf(ordered_));
  Val positive = e_.compare("lt", bits, constant(ordered_, 0));
  Val raw =
      e_.select(positive, e_.binary("arith.xori", bits, sign), e_.binary("arith.xori", bits, constant(ordered_, -1)));
  Val zeroSign =
      e_.binary("arith.shli", e_.cast(e_.binary("arith.andi", low, constant(DType::U32, 1)), DType::U32, ordered_),
                constant(ordered_, bitsOf(ordered_) - 1));
  return e_.cast(bitcast(e_, e_.binary("arith.ori", raw, zeroSign), key_), key_, given_);
}

Val SortWords::position(const std::vector<Val> &words) const {
  Val low = words.back();
  if (form_ == Form::Half) low = e_.binary("arith.andi", low, constant(DType::U32, 0xffff));
  if (form_ == Form::Whole) low = e_.cast(low, DType::U64, DType::U32);
  return e_.binary("arith.shrui", low, constant(DType::U32, 1));
}

Val comesBefore(Emitter &e, const std::vector<Val> &x, const std::vector<Val> &y) {
  Val result = e.compare("lt", x.back(), y.back(), true);
  for (size_t i = x.size() - 1; i-- > 0;)
    result = e.binary("arith.ori", e.compare("lt", x[i], y[i], true),
                      e.binary("arith.andi", e.compare("eq", x[i], y[i]), result));
  return result;
}

Val positionOf(Emitter &e, const SortSpec &node, Val place, std::vector<Val> &memo) {
  if (node.position < 0) return e.cast(place, indexTypeOf(e.k), DType::U32);
  return e.cast(e.value(node.body, node.position, memo), node.body.ops[static_cast<size_t>(node.position)].dtype,
                DType::U32);
}

namespace {

/// Stores what stands at the places that the mask (empty: all) lets through.
void storeAtPlaces(Emitter &out, const SortSpec &node, Val key, Val position, DType positionType, Val mask) {
  for (const loops::Store &s : node.stores) {
    if (!out.k.buffers.count(s.buffer)) continue; // a result that nobody reads has no memory
    DType want = out.k.plan.program.buffer(s.buffer).dtype;
    out.store(s, s.value == 0 ? out.cast(key, sortKeyType(node), want) : out.cast(position, positionType, want), mask);
  }
}

} // namespace

void storeSorted(Emitter &out, const SortSpec &node, Val key, Val position, DType positionType) {
  const Val place = out.env[Symbol::inner(0)];
  if (node.place < 0)
    return storeAtPlaces(out, node, key, position, positionType, node.take.valid() ? out.compare("lt", place, out.index(node.take)) : Val());
  std::vector<Val> memo;
  const Val wanted = out.toIndex(out.value(node.body, node.place, memo), DType::I64);
  Emitter first = out;
  first.forgetIndices();
  first.blocked.erase(Symbol::inner(0));
  first.env[Symbol::inner(0)] = out.intConst(0);
  storeAtPlaces(first, node, key, position, positionType, out.compare("eq", place, wanted));
}

void storeSelected(Emitter &out, const SortSpec &node, Val key, Val position, DType positionType) {
  storeAtPlaces(out, node, key, position, positionType, {});
}

} // namespace neso
