// Operations on whole tensors: their operands brought into layouts, their regions as combinations; the work is in
// reduce.h, dot.h, move.h.
#include "backend/nvidia/emitter.h"

#include "backend/nvidia/dot.h"
#include "backend/nvidia/move.h"
#include "backend/nvidia/reduce.h"
#include "backend/nvidia/sort.h"
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

llvm::SmallVector<Tile, 2> Emitter::operandsInOneLayout(mlir::Operation *op) {
  LayoutRef layout = nullptr;
  for (mlir::Value o : op->getOperands())
    if (!layout) layout = layouts_.natural(o);
  if (!layout) layout = layouts_.defaultLayout(shapeOf(op->getOperand(0).getType()));
  bring(op->getOperands(), layout);
  llvm::SmallVector<Tile, 2> tiles;
  for (mlir::Value o : op->getOperands()) tiles.push_back(tile(o, layout));
  return tiles;
}

void Emitter::defineResults(mlir::Operation *op, llvm::ArrayRef<Tile> tiles) {
  for (size_t i = 0; i < tiles.size(); ++i) {
    mlir::Value result = op->getResult(static_cast<unsigned>(i));
    if (!llvm::isa<mlir::RankedTensorType>(result.getType())) {
      scalars_[result] = tiles[i].values[0];
      continue;
    }
    LayoutRef layout = layouts_.layout(result);
    define(result, tiles[i].layout == *layout ? tiles[i] : convertTile(block_, tiles[i], *layout));
  }
}

void Emitter::emitReduce(mlir::Operation *op) {
  auto combine = [&](llvm::ArrayRef<Value *> left, llvm::ArrayRef<Value *> right) {
    llvm::SmallVector<Value *, 4> args(left.begin(), left.end());
    args.append(right.begin(), right.end());
    return emitRegion(op->getRegion(0), args);
  };
  llvm::SmallVector<Tile, 2> operands = operandsInOneLayout(op);
  defineResults(op, reduceTiles(block_, operands, axisOf(op), combine, hintOf(op)));
}

void Emitter::emitScan(mlir::Operation *op) {
  auto combine = [&](llvm::ArrayRef<Value *> left, llvm::ArrayRef<Value *> right) {
    llvm::SmallVector<Value *, 4> args(left.begin(), left.end());
    args.append(right.begin(), right.end());
    return emitRegion(op->getRegion(0), args);
  };
  llvm::SmallVector<Tile, 2> operands = operandsInOneLayout(op);
  const bool reverse = op->getAttrOfType<mlir::BoolAttr>("reverse").getValue();
  defineResults(op, scanTiles(block_, operands, axisOf(op), reverse, combine));
}

void Emitter::emitSort(mlir::Operation *op) {
  const bool bitonic = llvm::cast<ttg::SortOp>(op).getBitonic();
  defineResults(op, (bitonic ? mergeTiles : sortTiles)(block_, operandsInOneLayout(op), axisOf(op)));
}

LayoutRef Emitter::dotOperandLayout(mlir::OpOperand &use) {
  const DotPlan &plan = layouts_.dot(use.getOwner());
  const bool isA = use.getOperandNumber() == 0;
  mlir::Type type = elementOf(use.get().getType());
  if (plan.kind != DotKind::MmaSync || type != (isA ? plan.types.a : plan.types.b)) return nullptr;
  return layouts_.intern(isA ? plan.operandA : plan.operandB);
}

void Emitter::emitDotOp(mlir::Operation *op) {
  const DotPlan &plan = layouts_.dot(op);
  auto whereWanted = [&](mlir::OpOperand &use) {
    mlir::Value v = use.get();
    LayoutRef layout = layouts_.natural(v), ready = dotOperandLayout(use);
    // What comes into a loop from outside was converted before it; what has no place is computed where it is wanted.
    const bool invariant = v.getParentRegion() != op->getParentRegion() && layouts_.kind(v) == Kind::Placed;
    if (ready && (!layout || invariant)) layout = ready;
    return layout ? layout : layouts_.defaultLayout(shapeOf(v.getType()));
  };
  auto inShared = [&](mlir::Value v) -> std::optional<SharedTile> {
    if (!readsShared(llvm::cast<tt::DotOp>(op))) return std::nullopt;
    return sharedOperand(v);
  };
  auto operand = [&](mlir::OpOperand &use, mlir::Type type) -> DotOperand {
    mlir::Value v = use.get();
    if (std::optional<SharedTile> shared = inShared(v)) return *shared;
    Tile t = tile(v, whereWanted(use));
    for (Value *&x : t.values) x = convertFloat(x, elementOf(v.getType()), type);
    return t;
  };
  LayoutRef accumulator = layouts_.intern(plan.accumulator);
  for (unsigned i : {0u, 1u})
    if (!inShared(op->getOperand(i))) bring(op->getOperand(i), whereWanted(op->getOpOperand(i)));
  bring(op->getOperand(2), accumulator);
  const DotOperand x = operand(op->getOpOperand(0), plan.types.a), y = operand(op->getOpOperand(1), plan.types.b);
  defineResults(op, {emitDot(block_, plan, x, y, tile(op->getOperand(2), accumulator))});
}

void Emitter::emitJoin(mlir::Operation *op) {
  llvm::SmallVector<Tile, 2> parts = operandsInOneLayout(op);
  Tile joined{joinTensor(parts[0].layout), {}};
  // The halves are neighbouring registers.
  for (size_t r = 0; r < parts[0].values.size(); ++r)
    for (Tile &part : parts) joined.values.push_back(part.values[r]);
  defineResults(op, {joined});
}

void Emitter::emitSplit(mlir::Operation *op) {
  LayoutRef half = layouts_.layout(op->getResult(0));
  Tile whole = tile(op->getOperand(0), layouts_.intern(joinTensor(*half)));
  llvm::SmallVector<Tile, 2> parts(2, Tile{*half, {}});
  for (size_t r = 0; r < whole.values.size(); ++r) parts[r & 1].values.push_back(whole.values[r]);
  defineResults(op, parts);
}

void Emitter::emitCat(mlir::Operation *op) {
  llvm::SmallVector<Tile, 2> parts = operandsInOneLayout(op);
  defineResults(op, {catTiles(parts[0], parts[1])});
}

void Emitter::emitGather(mlir::Operation *op) {
  bring(op->getOperand(1), layouts_.layout(op->getResult(0)));
  Tile source = naturalTile(op->getOperand(0));
  Tile indices = tile(op->getOperand(1), layouts_.layout(op->getResult(0)));
  defineResults(op, {gatherTile(block_, source, indices, axisOf(op))});
}

void Emitter::emitHistogram(mlir::Operation *op) {
  LayoutRef layout = layouts_.natural(op->getOperand(0));
  if (!layout) layout = layouts_.defaultLayout(shapeOf(op->getOperand(0).getType()));
  bring(op->getOperands(), layout);
  Tile source = tile(op->getOperand(0), layout);
  std::optional<Tile> mask;
  if (op->getNumOperands() > 1) mask = tile(op->getOperand(1), layout);
  mlir::Value result = op->getResult(0);
  defineResults(op, {histogramTile(block_, source, mask ? &*mask : nullptr, *layouts_.layout(result),
                                   typeOf(elementOf(result.getType())))});
}

} // namespace neso::nvidia
