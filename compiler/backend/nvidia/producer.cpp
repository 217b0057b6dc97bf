// A producer beside the block (passes/producer.h): at the kernel's entry its warps go another way than the block's own. Their way is the
// function once more, of which ProducerSlice says what is left.
#include "backend/nvidia/emitter.h"

#include "llvm/IR/IntrinsicsNVPTX.h"

namespace neso::nvidia {

using llvm::BasicBlock;
using llvm::Value;

Status Emitter::emitWithProducer(tt::FuncOp function, const Producer &producer) {
  const std::optional<ProducerSlice> slice = producerSlice(function);
  NESO_CHECK(slice.has_value(), "a producer's copies are led to by scalars alone");
  if (waitsForLaunches_) special(llvm::Intrinsic::nvvm_griddepcontrol_wait);
  waitsForLaunches_ = false;
  BasicBlock *own = BasicBlock::Create(b.getContext(), "block", fn_), *beside = BasicBlock::Create(b.getContext(), "producer", fn_);
  b.CreateCondBr(b.CreateICmpULT(block_.thread, b.getInt32(uint32_t(block_.threads()))), own, beside);
  const llvm::DenseMap<mlir::Value, Value *> given = scalars_;

  b.SetInsertPoint(own);
  b.CreateIntrinsic(llvm::Intrinsic::nvvm_setmaxnreg_inc_sync_aligned_u32, {b.getInt32(uint32_t(producer.registersOfBlock))});
  emitBody(function.getBody());
  if (error_) return std::move(*error_);

  // Nothing that one of them has computed is known to the other.
  scalars_ = given;
  scopes_.clear(), scopes_.emplace_back();
  beside->moveAfter(&fn_->back());
  b.SetInsertPoint(beside);
  b.CreateIntrinsic(llvm::Intrinsic::nvvm_setmaxnreg_dec_sync_aligned_u32, {b.getInt32(uint32_t(producer.registers))});
  emitSlice(function.getBody().front(), *slice);
  if (error_) return std::move(*error_);
  b.CreateRetVoid();
  return Status::ok();
}

void Emitter::emitTurn(mlir::Operation *op) {
  // Barriers of two groups each, one that waits and one that passes on. Those of lower numbers are the block's.
  constexpr uint32_t kFirst = 2, kWarpsOfGroup = 4, kThreads = 2 * 32 * kWarpsOfGroup;
  const uint32_t groups = uint32_t(block_.warps) / kWarpsOfGroup;
  Value *threads = b.getInt32(kThreads), *first = b.getInt32(kFirst);
  auto arrive = [&](Value *number) { b.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cta_arrive_aligned_count, {number, threads}); };
  auto wait = [&](Value *number) { b.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_count, {number, threads}); };
  const Turn turn = turnOf(op);
  if (turn == Turn::First) return emitWhen(block_, b.CreateICmpEQ(block_.group, b.getInt32(groups - 1)), [&] { arrive(first); });
  if (turn == Turn::Last) return emitWhen(block_, b.CreateICmpEQ(block_.group, b.getInt32(0)), [&] { wait(first); });
  if (turn == Turn::Wait) return wait(b.CreateAdd(block_.group, first));
  arrive(b.CreateAdd(b.CreateAnd(b.CreateAdd(block_.group, b.getInt32(1)), b.getInt32(groups - 1)), first));
}

void Emitter::emitSlice(mlir::Block &block, const ProducerSlice &slice) {
  for (mlir::Operation &op : block) {
    if (failed()) return;
    if (!slice.ops.contains(&op)) continue;
    if (llvm::isa<mlir::scf::ForOp>(op))
      emitSliceOfFor(&op, slice);
    else if (llvm::isa<mlir::scf::IfOp>(op))
      emitSliceOfIf(&op, slice);
    else if (auto one = llvm::dyn_cast<ttg::ByOneThreadOp>(op))
      emitByOneThread(one);
    else
      emitOp(&op);
  }
}

void Emitter::emitSliceOfFor(mlir::Operation *op, const ProducerSlice &slice) {
  auto loop = llvm::cast<mlir::scf::ForOp>(op);
  llvm::SmallVector<unsigned, 8> carried;
  for (unsigned i = 0; i < loop.getNumResults(); ++i)
    if (slice.has(loop.getRegionIterArg(i))) carried.push_back(i);
  Value *lo = scalar(loop.getLowerBound()), *hi = scalar(loop.getUpperBound()), *step = scalar(loop.getStep());
  const bool isUnsigned = op->hasAttr("unsignedCmp");
  auto less = [&](Value *x, Value *y) { return isUnsigned ? b.CreateICmpULT(x, y) : b.CreateICmpSLT(x, y); };
  BasicBlock *head = BasicBlock::Create(b.getContext(), "for", fn_), *exit = BasicBlock::Create(b.getContext(), "endfor", fn_);
  llvm::SmallVector<Value *, 8> inits;
  for (unsigned i : carried) inits.push_back(scalar(loop.getInitArgs()[i]));
  BasicBlock *before = b.GetInsertBlock();
  b.CreateCondBr(less(lo, hi), head, exit);
  b.SetInsertPoint(exit);
  for (unsigned i : carried) declarePhis(loop.getResult(i));
  b.SetInsertPoint(head);
  llvm::PHINode *iv = b.CreatePHI(lo->getType(), 2, "iv");
  iv->addIncoming(lo, before);
  scalars_[loop.getInductionVar()] = iv;
  for (unsigned i : carried) declarePhis(loop.getRegionIterArg(i));
  emitSlice(*loop.getBody(), slice);
  if (failed()) return;
  Value *following = b.CreateAdd(iv, step);
  llvm::SmallVector<Value *, 8> next;
  for (unsigned i : carried) next.push_back(scalar(loop.getBody()->getTerminator()->getOperand(i)));
  BasicBlock *latch = b.GetInsertBlock();
  b.CreateCondBr(less(following, hi), head, exit);
  iv->addIncoming(following, latch);
  for (size_t i = 0; i < carried.size(); ++i) {
    connect(loop.getRegionIterArg(carried[i]), {inits[i]}, before);
    connect(loop.getRegionIterArg(carried[i]), {next[i]}, latch);
    connect(loop.getResult(carried[i]), {inits[i]}, before);
    connect(loop.getResult(carried[i]), {next[i]}, latch);
  }
  exit->moveAfter(b.GetInsertBlock());
  b.SetInsertPoint(exit);
}

void Emitter::emitSliceOfIf(mlir::Operation *op, const ProducerSlice &slice) {
  auto branch = llvm::cast<mlir::scf::IfOp>(op);
  llvm::SmallVector<unsigned, 8> needed;
  for (unsigned i = 0; i < branch.getNumResults(); ++i)
    if (slice.has(branch.getResult(i))) needed.push_back(i);
  BasicBlock *exit = BasicBlock::Create(b.getContext(), "endif", fn_);
  BasicBlock *sides[] = {BasicBlock::Create(b.getContext(), "if", fn_), BasicBlock::Create(b.getContext(), "else", fn_)};
  b.CreateCondBr(scalar(branch.getCondition()), sides[0], sides[1]);
  b.SetInsertPoint(exit);
  for (unsigned i : needed) declarePhis(branch.getResult(i));
  for (unsigned side : {0u, 1u}) {
    b.SetInsertPoint(sides[side]);
    mlir::Region &region = op->getRegion(side);
    if (!region.empty()) {
      emitSlice(region.front(), slice);
      if (failed()) return;
      llvm::SmallVector<Value *, 8> values;
      for (unsigned i : needed) values.push_back(scalar(region.front().getTerminator()->getOperand(i)));
      for (auto [i, value] : llvm::zip(needed, values)) connect(branch.getResult(i), {value}, b.GetInsertBlock());
    }
    b.CreateBr(exit);
  }
  exit->moveAfter(b.GetInsertBlock());
  b.SetInsertPoint(exit);
}

} // namespace neso::nvidia
