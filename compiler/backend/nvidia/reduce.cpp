#include "backend/nvidia/reduce.h"

#include "backend/nvidia/axis.h"
#include "backend/nvidia/move.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace neso::nvidia {

namespace {

/// Pairs of neighbours, then pairs of pairs: short chains, and the left part stays left.
Tuple combineTree(llvm::SmallVector<Tuple, 16> parts, Combine combine) {
  while (parts.size() > 1) {
    llvm::SmallVector<Tuple, 16> next;
    for (size_t i = 0; i + 1 < parts.size(); i += 2) next.push_back(combine(parts[i], parts[i + 1]));
    if (parts.size() % 2) next.push_back(parts.back());
    parts = std::move(next);
  }
  return parts[0];
}

llvm::Intrinsic::ID reduxOf(ReduceHint hint) {
  switch (hint) {
  case ReduceHint::AddI32: return llvm::Intrinsic::nvvm_redux_sync_add;
  case ReduceHint::MinI32: return llvm::Intrinsic::nvvm_redux_sync_min;
  case ReduceHint::MaxI32: return llvm::Intrinsic::nvvm_redux_sync_max;
  case ReduceHint::MinU32: return llvm::Intrinsic::nvvm_redux_sync_umin;
  case ReduceHint::MaxU32: return llvm::Intrinsic::nvvm_redux_sync_umax;
  case ReduceHint::AndI32: return llvm::Intrinsic::nvvm_redux_sync_and;
  case ReduceHint::OrI32: return llvm::Intrinsic::nvvm_redux_sync_or;
  case ReduceHint::XorI32: return llvm::Intrinsic::nvvm_redux_sync_xor;
  case ReduceHint::None:
  case ReduceHint::Commutative: break;
  }
  return llvm::Intrinsic::not_intrinsic;
}

/// All lanes along the axis end with the same tuple.
Tuple reduceLanes(BlockContext &block, Tuple mine, uint32_t lanes, Combine combine, ReduceHint hint) {
  llvm::IRBuilder<> &b = block.b;
  if (llvm::Intrinsic::ID redux = reduxOf(hint); redux && lanes == 31 && block.chip.has(Feature::ReduxInt))
    return {b.CreateIntrinsic(redux, {mine[0], b.getInt32(~0u)})};
  for (uint32_t bit = 16; bit; bit /= 2) {
    if (!(lanes & bit)) continue;
    Tuple other;
    for (llvm::Value *value : mine) other.push_back(shuffleXor(block, value, bit));
    if (hint != ReduceHint::None) {
      mine = combine(mine, other);
      continue;
    }
    // Both lanes must combine in the same order, or they could end with different results.
    llvm::Value *upper = b.CreateICmpNE(b.CreateAnd(block.lane, b.getInt32(bit)), b.getInt32(0));
    Tuple left, right;
    for (size_t i = 0; i < mine.size(); ++i) {
      left.push_back(b.CreateSelect(upper, other[i], mine[i]));
      right.push_back(b.CreateSelect(upper, mine[i], other[i]));
    }
    mine = combine(left, right);
  }
  return mine;
}

} // namespace

ReduceHint reduceHint(mlir::Region &combine) {
  namespace arith = mlir::arith;
  if (combine.empty()) return ReduceHint::None;
  mlir::Block &body = combine.front();
  if (body.getNumArguments() != 2 || body.getOperations().size() != 2) return ReduceHint::None;
  mlir::Operation &op = body.front();
  mlir::Value x = body.getArgument(0), y = body.getArgument(1);
  if (op.getNumOperands() != 2 || op.getNumResults() != 1 || body.back().getOperand(0) != op.getResult(0))
    return ReduceHint::None;
  if (!(op.getOperand(0) == x && op.getOperand(1) == y) && !(op.getOperand(0) == y && op.getOperand(1) == x))
    return ReduceHint::None;
  if (x.getType().isInteger(32)) {
    if (llvm::isa<arith::AddIOp>(op)) return ReduceHint::AddI32;
    if (llvm::isa<arith::MinSIOp>(op)) return ReduceHint::MinI32;
    if (llvm::isa<arith::MaxSIOp>(op)) return ReduceHint::MaxI32;
    if (llvm::isa<arith::MinUIOp>(op)) return ReduceHint::MinU32;
    if (llvm::isa<arith::MaxUIOp>(op)) return ReduceHint::MaxU32;
    if (llvm::isa<arith::AndIOp>(op)) return ReduceHint::AndI32;
    if (llvm::isa<arith::OrIOp>(op)) return ReduceHint::OrI32;
    if (llvm::isa<arith::XOrIOp>(op)) return ReduceHint::XorI32;
  }
  if (llvm::isa<arith::AddFOp, arith::MulFOp, arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp, arith::MinNumFOp,
                arith::AddIOp, arith::MulIOp, arith::MinSIOp, arith::MaxSIOp, arith::MinUIOp, arith::MaxUIOp,
                arith::AndIOp, arith::OrIOp, arith::XOrIOp>(op))
    return ReduceHint::Commutative;
  return ReduceHint::None;
}

llvm::SmallVector<Tile, 2> reduceTiles(BlockContext &block, llvm::ArrayRef<Tile> operands, int axis, Combine combine,
                                       ReduceHint hint) {
  LinearLayout wanted = sliceLayout(operands[0].layout, axis);
  llvm::SmallVector<Tile, 2> sources = withSeparateAxis(block, operands, axis);
  AxisPlaces places = *axisPlaces(sources[0].layout, axis);

  // In the thread.
  llvm::SmallVector<Tuple, 16> rows;
  for (uint64_t rest : placesWithout(places.registers, sources[0].values.size())) {
    llvm::SmallVector<Tuple, 16> parts;
    for (uint64_t along : places.registersInOrder()) parts.push_back(tupleOf(sources, rest | along));
    rows.push_back(combineTree(std::move(parts), combine));
  }
  // In the warp.
  for (Tuple &row : rows) row = reduceLanes(block, row, places.laneMask(), combine, hint);
  // Among warps.
  LinearLayout sliced = sliceLayout(sources[0].layout, axis);
  if (!places.warps.empty()) {
    llvm::SmallVector<llvm::SmallVector<Tuple, 16>, 16> all = gatherWarps(block, sliced, places.warps, rows);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = combineTree(all[i], combine);
  }

  llvm::SmallVector<Tile, 2> results;
  for (size_t i = 0; i < operands.size(); ++i) {
    Tile result{sliced, {}};
    for (const Tuple &row : rows) result.values.push_back(row[i]);
    results.push_back(convertTile(block, result, wanted));
  }
  return results;
}

} // namespace neso::nvidia
