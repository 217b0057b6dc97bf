// Operations on whole tensors: their regions as combinations; the work is in reduce.h, dot.h, move.h.
#include "backend/nvidia/emitter.h"

#include "backend/nvidia/dot.h"
#include "backend/nvidia/move.h"
#include "backend/nvidia/reduce.h"
#include "backend/nvidia/sort.h"
#include "backend/nvidia/wgmma.h"
#include "mlir/IR/BuiltinAttributes.h"

namespace neso::nvidia {

using llvm::Value;

namespace {
int axisOf(mlir::Operation *op) { return static_cast<int>(op->getAttrOfType<mlir::IntegerAttr>("axis").getInt()); }

/// What the combination of a reduction of one i32 is, when it is a single operation.
ReduceHint hintOf(mlir::Operation *op) {
  mlir::Block &block = op->getRegion(0).front();
  if (op->getNumOperands() != 1 || block.getOperations().size() != 2 || !block.getArgument(0).getType().isInteger(32))
    return ReduceHint::None;
  switch (codeOf(&block.front())) {
  case OpCode::AddI: return ReduceHint::AddI32;
  case OpCode::MinSI: return ReduceHint::MinI32;
  case OpCode::MaxSI: return ReduceHint::MaxI32;
  case OpCode::MinUI: return ReduceHint::MinU32;
  case OpCode::MaxUI: return ReduceHint::MaxU32;
  case OpCode::AndI: return ReduceHint::AndI32;
  case OpCode::OrI: return ReduceHint::OrI32;
  case OpCode::XorI: return ReduceHint::XorI32;
  default: return ReduceHint::None;
  }
}
} // namespace

llvm::SmallVector<Tile, 2> Emitter::operandTiles(mlir::Operation *op) {
  llvm::SmallVector<Tile, 2> tiles;
  for (mlir::Value o : op->getOperands()) tiles.push_back(tile(o));
  return tiles;
}

void Emitter::defineResults(mlir::Operation *op, llvm::ArrayRef<Tile> tiles) {
  for (size_t i = 0; i < tiles.size(); ++i) {
    mlir::Value result = op->getResult(static_cast<unsigned>(i));
    if (llvm::isa<mlir::RankedTensorType>(result.getType()))
      define(result, tiles[i]);
    else
      scalars_[result] = tiles[i].values[0];
  }
}

void Emitter::emitReduce(mlir::Operation *op) {
  auto combine = [&](llvm::ArrayRef<Value *> left, llvm::ArrayRef<Value *> right) {
    llvm::SmallVector<Value *, 4> args(left.begin(), left.end());
    args.append(right.begin(), right.end());
    return emitRegion(op->getRegion(0), args);
  };
  llvm::SmallVector<Tile, 2> operands = operandTiles(op);
  defineResults(op, reduceTiles(block_, operands, axisOf(op), combine, hintOf(op)));
}

void Emitter::emitScan(mlir::Operation *op) {
  auto combine = [&](llvm::ArrayRef<Value *> left, llvm::ArrayRef<Value *> right) {
    llvm::SmallVector<Value *, 4> args(left.begin(), left.end());
    args.append(right.begin(), right.end());
    return emitRegion(op->getRegion(0), args);
  };
  llvm::SmallVector<Tile, 2> operands = operandTiles(op);
  const bool reverse = op->getAttrOfType<mlir::BoolAttr>("reverse").getValue();
  defineResults(op, scanTiles(block_, operands, axisOf(op), reverse, combine));
}

void Emitter::emitSort(mlir::Operation *op) {
  const bool bitonic = llvm::cast<ttg::SortOp>(op).getBitonic();
  defineResults(op, (bitonic ? mergeTiles : sortTiles)(block_, operandTiles(op), axisOf(op)));
}

void Emitter::emitDotOp(mlir::Operation *op) {
  auto dot = llvm::cast<tt::DotOp>(op);
  const DotPlan &plan = planOf(dot);
  if (plan.traits().keepsSums) return emitTensorProduct(dot, plan);
  auto operand = [&](mlir::Value v) -> DotOperand {
    if (readsShared(plan, dot))
      if (std::optional<SharedTile> shared = sharedOperand(v)) return *shared;
    return tile(v);
  };
  const DotOperand x = operand(dot.getA()), y = operand(dot.getB());
  defineResults(op, {emitDot(block_, plan, x, y, tile(dot.getC()))});
}

void Emitter::emitTensorProduct(tt::DotOp dot, const DotPlan &plan) {
  const std::optional<SharedTile> x = sharedOperand(dot.getA()), y = sharedOperand(dot.getB());
  NESO_CHECK(x && y, "operands of tcgen05 lie in shared memory");
  const Tile c = tile(dot.getC());
  llvm::Type *type = c.values[0]->getType();
  const bool narrow = type->isHalfTy() || type->isBFloatTy();
  if (!plan.open) {
    Registers sums = c.values;
    if (narrow)
      for (Value *&sum : sums) sum = b.CreateFPExt(sum, b.getFloatTy());
    tensorMemory_->store(dot, plan, sums);
  }
  if (TensorMemory::meetsBefore(dot, plan)) tensorMemory_->meet();
  tensorMemory_->multiply(dot, plan, *x, *y);
  Tile d{plan.accumulator, Registers(c.values.size(), llvm::PoisonValue::get(type))};
  if (!plan.open) {
    tensorMemory_->wait(0);
    d.values = tensorMemory_->load(dot, plan);
    if (narrow)
      for (Value *&sum : d.values) sum = b.CreateFPTrunc(sum, type);
  }
  defineResults(dot, {d});
}

tt::DotOp Emitter::productInTensorMemory(mlir::scf::ForOp loop, int32_t number) {
  auto dot = loop.getBody()->getTerminator()->getOperand(static_cast<unsigned>(number)).getDefiningOp<tt::DotOp>();
  return dot && planOf(dot).traits().keepsSums ? dot : tt::DotOp();
}

void Emitter::emitWaitForProducts(mlir::Operation *op) {
  if (tensorMemory_) {
    NESO_CHECK(op->getNumOperands() == 0, "sums in tensor memory are in no register");
    return tensorMemory_->wait(llvm::cast<placed::WaitProductsOp>(op).getPending());
  }
  llvm::SmallVector<Tile, 2> tiles = operandTiles(op);
  Registers values;
  for (const Tile &tile : tiles) values.append(tile.values.begin(), tile.values.end());
  if (auto held = op->getAttrOfType<mlir::DenseI32ArrayAttr>(placed::kHeldAttr))
    for (int32_t number : held.asArrayRef())
      for (Value *value : tiles[static_cast<size_t>(number)].values) hold(block_, value);
  waitProducts(block_, llvm::cast<placed::WaitProductsOp>(op).getPending(), values);
  size_t next = 0;
  for (Tile &tile : tiles)
    for (Value *&value : tile.values) value = values[next++];
  defineResults(op, tiles);
}

void Emitter::emitJoin(mlir::Operation *op) {
  llvm::SmallVector<Tile, 2> parts = operandTiles(op);
  Tile joined{joinTensor(parts[0].layout), {}};
  // The halves are neighbouring registers.
  for (size_t r = 0; r < parts[0].values.size(); ++r)
    for (Tile &part : parts) joined.values.push_back(part.values[r]);
  defineResults(op, {joined});
}

void Emitter::emitSplit(mlir::Operation *op) {
  Tile whole = tile(op->getOperand(0));
  llvm::SmallVector<Tile, 2> parts(2, Tile{*layoutOf(op->getResult(0)), {}});
  for (size_t r = 0; r < whole.values.size(); ++r) parts[r & 1].values.push_back(whole.values[r]);
  defineResults(op, parts);
}

void Emitter::emitCat(mlir::Operation *op) {
  llvm::SmallVector<Tile, 2> parts = operandTiles(op);
  defineResults(op, {catTiles(parts[0], parts[1])});
}

void Emitter::emitGather(mlir::Operation *op) {
  Tile source = tile(op->getOperand(0)), indices = tile(op->getOperand(1));
  defineResults(op, {gatherTile(block_, source, indices, axisOf(op))});
}

void Emitter::emitHistogram(mlir::Operation *op) {
  Tile source = tile(op->getOperand(0));
  std::optional<Tile> mask;
  if (op->getNumOperands() > 1) mask = tile(op->getOperand(1));
  mlir::Value result = op->getResult(0);
  defineResults(op, {histogramTile(block_, source, mask ? &*mask : nullptr, *layoutOf(result),
                                   typeOf(elementOf(result.getType())))});
}

} // namespace neso::nvidia
