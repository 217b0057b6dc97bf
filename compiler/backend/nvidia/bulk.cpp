// Copies of boxes by the machine (TMA), and the barriers in shared memory that count them (mbarrier).
#include "backend/nvidia/emitter.h"
#include "llvm/IR/InlineAsm.h"

namespace neso::nvidia {

using llvm::Value;

Value *Emitter::statement(const std::string &text, llvm::ArrayRef<Value *> operands, llvm::Type *result) {
  llvm::SmallVector<llvm::Type *, 5> types;
  std::string constraints = result ? "=r," : "";
  for (Value *operand : operands) {
    types.push_back(operand->getType());
    constraints += operand->getType()->isIntegerTy(1) ? "b," : operand->getType()->isIntegerTy(32) ? "r," : "l,";
  }
  llvm::FunctionType *type = llvm::FunctionType::get(result ? result : b.getVoidTy(), types, false);
  return b.CreateCall(llvm::InlineAsm::get(type, text, constraints + "~{memory}", /*hasSideEffects=*/true), operands);
}

Value *Emitter::barrierOf(mlir::Value barriers, mlir::Value slot) {
  const SharedBuffer &buffer = barriers_.find(barriers)->second;
  Value *first = b.CreatePtrToInt(shared_.address(block_, buffer), b.getInt32Ty());
  return b.CreateAdd(first, b.CreateMul(scalar(slot), b.getInt32(kBarrierBytes)));
}

void Emitter::emitBarriers(mlir::Operation *op) {
  auto made = llvm::cast<ttg::BarriersOp>(op);
  const int64_t slots = made.getBarriers().getType().getSlots();
  SharedBuffer buffer = shared_.allocate(kBarrierBytes * slots, "barriers of a software pipeline");
  shared_.beforeWrite(block_, buffer);
  barriers_[made.getBarriers()] = buffer;
  emitWhen(block_, b.CreateICmpEQ(block_.thread, b.getInt32(0)), [&] {
    Value *first = b.CreatePtrToInt(shared_.address(block_, buffer), b.getInt32Ty());
    for (int64_t slot = 0; slot < slots; ++slot)
      statement("mbarrier.init.shared::cta.b64 [$0], $1;",
                {b.CreateAdd(first, b.getInt32(uint32_t(kBarrierBytes * slot))), b.getInt32(made.getArrivals())});
    // The machine, where it counts bytes, sees them too.
    const auto isCopy = [](mlir::Operation *user) { return llvm::isa<ttg::BulkCopyOp>(user); };
    if (llvm::any_of(op->getUsers(), isCopy)) statement("fence.mbarrier_init.release.cluster;", {});
  });
}

void Emitter::emitEndBarriers(mlir::Operation *op) {
  const SharedBuffer buffer = barriers_.find(op->getOperand(0))->second;
  shared_.beforeWrite(block_, buffer);
  emitWhen(block_, b.CreateICmpEQ(block_.thread, b.getInt32(0)), [&] {
    Value *first = b.CreatePtrToInt(shared_.address(block_, buffer), b.getInt32Ty());
    for (int64_t at = 0; at < buffer.bytes; at += kBarrierBytes)
      statement("mbarrier.inval.shared::cta.b64 [$0];", {b.CreateAdd(first, b.getInt32(uint32_t(at)))});
  });
  shared_.release(buffer);
}

void Emitter::emitByOneThread(mlir::Operation *op) {
  auto one = llvm::cast<ttg::ByOneThreadOp>(op);
  const int first = op->hasAttr(placed::kByProducerAttr) ? block_.threads() : 0;
  Value *condition = b.CreateAnd(b.CreateICmpEQ(block_.thread, b.getInt32(uint32_t(first))), scalar(one.getCondition()));
  emitWhen(block_, condition, [&] { emitBlock(one.getBody().front()); });
}

void Emitter::emitExpect(mlir::Operation *op) {
  auto expect = llvm::cast<ttg::ExpectOp>(op);
  statement("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;",
            {barrierOf(expect.getBarriers(), expect.getSlot()), b.getInt32(expect.getBytes())});
}

void Emitter::emitBulkCopy(mlir::Operation *op) {
  auto copy = llvm::cast<ttg::BulkCopyOp>(op);
  const SharedTile to = slotOf(copy.getRing(), copy.getSlot());
  const Sizes shape = tensorShape(to.layout);
  NESO_CHECK(shape.size() == 2, "boxes are of matrices");
  const int fast = int(copy.getRing().getDefiningOp<ttg::LocalAllocOp>().getFast());
  NESO_CHECK(to.layout == panelledLayout(shape, fast, int(8 * sharedBytes(to.element))), "a box is copied into panels");
  // A panel is a box of its own: the machine permutes rows of 128 bytes at most.
  const int64_t bytes = sharedBytes(to.element), columns = std::min<int64_t>(shape[size_t(fast)], kPanelSpan / bytes),
                panel = shape[size_t(1 - fast)] * columns * bytes;
  Value *begin = b.CreatePtrToInt(shared_.address(block_, to.buffer, to.byteOffset), b.getInt32Ty());
  // From the one with neighbours on: column, row, and those along which a box has one element.
  llvm::SmallVector<Value *, 5> indices;
  for (mlir::Value index : llvm::reverse(copy.getIndices())) indices.push_back(scalar(index));
  std::string text = "cp.async.bulk.tensor." + std::to_string(indices.size()) +
                     "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], [$1, {$2";
  for (size_t i = 1; i < indices.size(); ++i) text += ", $" + std::to_string(2 + i);
  text += "}], [$" + std::to_string(2 + indices.size()) + "];";
  Value *map = b.CreatePtrToInt(scalar(copy.getDesc()), b.getInt64Ty());
  Value *barrier = barrierOf(copy.getBarriers(), copy.getBarrier());
  for (int64_t i = 0; i < shape[size_t(fast)] / columns; ++i) {
    llvm::SmallVector<Value *, 8> operands{b.CreateAdd(begin, b.getInt32(uint32_t(i * panel))), map};
    operands.append(indices.begin(), indices.end());
    operands[2] = b.CreateAdd(operands[2], b.getInt32(uint32_t(i * columns)));
    operands.push_back(barrier);
    statement(text, operands);
  }
}

void Emitter::emitAwait(mlir::Operation *op) {
  auto await = llvm::cast<ttg::AwaitOp>(op);
  NESO_CHECK(block_.later.empty(), "a product takes the copies that were left to it");
  Value *barrier = barrierOf(await.getBarriers(), await.getSlot()), *parity = scalar(await.getParity());
  llvm::BasicBlock *poll = llvm::BasicBlock::Create(b.getContext(), "await", fn_);
  llvm::BasicBlock *behind = llvm::BasicBlock::Create(b.getContext(), "awaited", fn_);
  b.CreateBr(poll);
  b.SetInsertPoint(poll);
  Value *ended = statement("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [$1], $2; selp.b32 $0, 1, 0, p; }",
                           {barrier, parity}, b.getInt32Ty());
  b.CreateCondBr(b.CreateICmpNE(ended, b.getInt32(0)), behind, poll);
  b.SetInsertPoint(behind);
}

void Emitter::emitArrive(mlir::Operation *op) {
  auto arrive = llvm::cast<ttg::ArriveOp>(op);
  Value *condition = b.CreateICmpEQ(block_.lane, b.getInt32(0));
  if (arrive.getCondition()) condition = b.CreateAnd(condition, scalar(arrive.getCondition()));
  emitWhen(block_, condition, [&] {
    statement("mbarrier.arrive.shared::cta.b64 _, [$0];", {barrierOf(arrive.getBarriers(), arrive.getSlot())});
  });
}

} // namespace neso::nvidia
