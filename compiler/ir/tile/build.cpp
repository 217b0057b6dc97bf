#include "ir/tile/build.h"

#include "ir/tile/attributes.h"
#include "ir/tile/tile.h"

namespace neso::tile {

using namespace mlir;

namespace {
RankedTensorType shaped(Value like, ArrayRef<int64_t> shape) {
  return RankedTensorType::get(shape, getElementTypeOrSelf(like.getType()));
}

template <typename Return>
void fillRegion(OpBuilder &b, Location loc, Region &region, ArrayRef<Value> operands, const Combine &combine) {
  OpBuilder::InsertionGuard guard(b);
  SmallVector<Type> types;
  for (int side = 0; side < 2; ++side)
    for (Value v : operands) types.push_back(getElementTypeOrSelf(v.getType()));
  Block *block = region.empty() ? &region.emplaceBlock() : &region.front();
  if (block->getNumArguments() == 0) block->addArguments(types, SmallVector<Location>(types.size(), loc));
  b.setInsertionPointToStart(block);
  Return::create(b, loc, combine(block->getArguments()));
}
} // namespace

Value programId(OpBuilder &b, Location loc, int axis) {
  return tt::GetProgramIdOp::create(b, loc, b.getI32Type(), static_cast<tt::ProgramIDDim>(axis));
}

Value makeRange(OpBuilder &b, Location loc, int64_t start, int64_t end) {
  return tt::MakeRangeOp::create(b, loc, RankedTensorType::get({end - start}, b.getI32Type()),
                                 static_cast<uint32_t>(start), static_cast<uint32_t>(end));
}
Value splat(OpBuilder &b, Location loc, Value scalar, ArrayRef<int64_t> shape) {
  return tt::SplatOp::create(b, loc, shaped(scalar, shape), scalar);
}
Value expandDims(OpBuilder &b, Location loc, Value x, int axis) {
  return tt::ExpandDimsOp::create(b, loc, x, static_cast<uint32_t>(axis));
}
Value broadcast(OpBuilder &b, Location loc, Value x, ArrayRef<int64_t> shape) {
  return tt::BroadcastOp::create(b, loc, shaped(x, shape), x);
}
Value trans(OpBuilder &b, Location loc, Value x) { return tt::TransOp::create(b, loc, x, ArrayRef<int32_t>{1, 0}); }
Value addptr(OpBuilder &b, Location loc, Value ptr, Value offset) {
  return tt::AddPtrOp::create(b, loc, ptr.getType(), ptr, offset);
}
Value load(OpBuilder &b, Location loc, Value ptr, Value mask, Value other, bool once) {
  return tt::LoadOp::create(b, loc, ptr, mask, other, tt::CacheModifier::NONE,
                            once ? tt::EvictionPolicy::EVICT_FIRST : tt::EvictionPolicy::NORMAL);
}
void store(OpBuilder &b, Location loc, Value ptr, Value value, Value mask) {
  tt::StoreOp::create(b, loc, ptr, value, mask, tt::CacheModifier::NONE);
}

Value atomicRmw(OpBuilder &b, Location loc, AtomicKind kind, Value ptr, Value value, Value mask, bool inTurn) {
  tt::RMWOp op = tt::RMWOp::ADD;
  switch (kind) {
  case AtomicKind::Add: op = tt::RMWOp::ADD; break;
  case AtomicKind::FAdd: op = tt::RMWOp::FADD; break;
  case AtomicKind::Min: op = tt::RMWOp::MIN; break;
  case AtomicKind::Max: op = tt::RMWOp::MAX; break;
  case AtomicKind::UMin: op = tt::RMWOp::UMIN; break;
  case AtomicKind::UMax: op = tt::RMWOp::UMAX; break;
  }
  auto rmw = tt::AtomicRMWOp::create(b, loc, value.getType(), op, ptr, value, mask, tt::MemSemantic::RELAXED,
                                     tt::MemSyncScope::GPU);
  if (inTurn) rmw->setAttr(kInTurnAttr, b.getUnitAttr());
  return rmw;
}

Value bitcast(OpBuilder &b, Location loc, Value x, Type to) { return tt::BitcastOp::create(b, loc, to, x); }
Value fpToFp(OpBuilder &b, Location loc, Value x, Type to) {
  bool narrows =
      getElementTypeOrSelf(to).getIntOrFloatBitWidth() < getElementTypeOrSelf(x.getType()).getIntOrFloatBitWidth();
  return tt::FpToFpOp::create(b, loc, to, x,
                              narrows ? tt::RoundingModeAttr::get(b.getContext(), tt::RoundingMode::RTNE)
                                      : tt::RoundingModeAttr());
}
Value mulhiui(OpBuilder &b, Location loc, Value x, Value y) { return tt::MulhiUIOp::create(b, loc, x.getType(), x, y); }
Value externElementwise(OpBuilder &b, Location loc, const std::string &symbol, ArrayRef<Value> args, Type result) {
  return tt::ExternElementwiseOp::create(b, loc, result, args, "", "", symbol, true);
}
void assertOp(OpBuilder &b, Location loc, Value condition, const std::string &message) {
  tt::AssertOp::create(b, loc, condition, message);
}
Value dot(OpBuilder &b, Location loc, Value x, Value y, Value acc, F32Products f32) {
  static constexpr tt::InputPrecision kPrecisions[] = {
#define NESO_F32_PRODUCTS(name, word, precision) tt::InputPrecision::precision,
#include "ir/tile/f32_products.def"
  };
  const tt::InputPrecision precision = kPrecisions[static_cast<size_t>(f32)];
  return tt::DotOp::create(b, loc, acc.getType(), x, y, acc, precision, 0);
}

SmallVector<Value> reduce(OpBuilder &b, Location loc, ArrayRef<Value> operands, int axis, const Combine &combine) {
  auto op = tt::ReduceOp::create(b, loc, ValueRange(operands), axis);
  fillRegion<tt::ReduceReturnOp>(b, loc, op.getCombineOp(), operands, combine);
  return SmallVector<Value>(op.getResults());
}
SmallVector<Value> scan(OpBuilder &b, Location loc, ArrayRef<Value> operands, int axis, bool reverse,
                        const Combine &combine) {
  auto op = tt::ScanOp::create(b, loc, ValueRange(operands), axis, reverse);
  fillRegion<tt::ScanReturnOp>(b, loc, op.getCombineOp(), operands, combine);
  return SmallVector<Value>(op.getResults());
}

} // namespace neso::tile
