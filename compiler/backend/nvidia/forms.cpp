#include "backend/nvidia/forms.h"

#include <algorithm>

#include "backend/common/opcodes.h"
#include "backend/nvidia/dot.h"
#include "backend/nvidia/shared.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

namespace neso::nvidia {

bool boxesAreFaster(tt::FuncOp placed) {
  constexpr int64_t kRows = 128, kColumns = 256;
  bool faster = false;
  placed.walk([&](tt::DotOp dot) {
    if (!traitsOf(dot.getOperation())->besideThreads) return;
    llvm::ArrayRef<int64_t> block = dot.getD().getType().getShape();
    if (block.size() != 2) return;
    faster |= block[0] * columnsThatCount(dot) < kRows * kColumns || block[0] > kRows || placeOfOperand(dot.getB(), 0) == GroupOperand::AlongK;
  });
  return faster;
}

bool hasLongEpilogue(tt::FuncOp function) {
  constexpr int kLong = 28; // a gelu; not a silu
  int cost = 0;
  function.walk([&](mlir::Operation *op) {
    if (classOf(codeOf(op)) != OpClass::Element || op->getNumResults() != 1 || llvm::isa<mlir::scf::ForOp>(op->getParentOp())) return;
    auto type = llvm::dyn_cast<mlir::RankedTensorType>(op->getResult(0).getType());
    if (type && type.getElementType().isF32()) cost += costOf(codeOf(op));
  });
  return cost > kLong;
}

namespace {

/// A size of a tensor as the function's entry computes it of its integer arguments; nothing where it does not.
std::optional<Expr> exprOf(mlir::Value v) {
  llvm::APInt number;
  if (mlir::matchPattern(v, mlir::m_ConstantInt(&number))) return Expr(number.getSExtValue());
  if (auto argument = llvm::dyn_cast<mlir::BlockArgument>(v)) {
    if (!llvm::isa<tt::FuncOp>(argument.getOwner()->getParentOp()) || !argument.getType().isInteger()) return std::nullopt;
    return Expr(Symbol::of(Symbol::Kind::Argument, argument.getArgNumber()));
  }
  mlir::Operation *op = v.getDefiningOp();
  if (llvm::isa<mlir::arith::ExtSIOp, mlir::arith::TruncIOp, mlir::arith::IndexCastOp>(op)) return exprOf(op->getOperand(0));
  if (!llvm::isa<mlir::arith::AddIOp, mlir::arith::SubIOp, mlir::arith::MulIOp, mlir::arith::DivSIOp, mlir::arith::MinSIOp>(op)) return std::nullopt;
  std::optional<Expr> a = exprOf(op->getOperand(0)), b = exprOf(op->getOperand(1));
  if (!a || !b) return std::nullopt;
  if (llvm::isa<mlir::arith::MinSIOp>(op)) return min(*a, *b);
  // Towards zero.
  if (llvm::isa<mlir::arith::DivSIOp>(op)) {
    if (!b->isConst() || b->constValue() <= 0) return std::nullopt;
    return floorDiv(max(*a, 0), *b) - floorDiv(max(Expr(0) - *a, 0), *b);
  }
  return llvm::isa<mlir::arith::AddIOp>(op) ? *a + *b : llvm::isa<mlir::arith::SubIOp>(op) ? *a - *b : *a * *b;
}

} // namespace

std::optional<std::vector<BoxedTensor>> boxedTensors(tt::FuncOp placed) {
  std::vector<BoxedTensor> out;
  bool good = true;
  placed.walk([&](tt::MakeTensorDescOp made) {
    auto base = llvm::dyn_cast<mlir::BlockArgument>(made.getBase());
    mlir::RankedTensorType tile = made.getType().getBlockType();
    const int bytes = std::max(1, int(tile.getElementTypeBitWidth() / 8));
    BoxedTensor tensor{base ? int(base.getArgNumber()) : -1, bytes, {}, {}, {}};
    for (int64_t size : tile.getShape()) tensor.box.push_back(int(size));
    // A panel is a copy of its own.
    tensor.box.back() = std::min(tensor.box.back(), int(kPanelSpan) / bytes);
    for (mlir::Value size : made.getShape())
      if (std::optional<Expr> e = exprOf(size)) tensor.sizes.push_back(*e);
    for (mlir::Value pitch : made.getStrides().drop_back())
      if (std::optional<Expr> e = exprOf(pitch)) tensor.pitches.push_back(*e);
    good &= base && tensor.sizes.size() == tensor.box.size() && tensor.pitches.size() + 1 == tensor.box.size();
    out.push_back(std::move(tensor));
  });
  if (!good) return std::nullopt;
  return out;
}

} // namespace neso::nvidia
