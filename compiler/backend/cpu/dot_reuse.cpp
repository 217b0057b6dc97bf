// What products keep: operands gathered over several turns of a loop, and packed right operands from one program to the
// next.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace neso::cpu {

using llvm::Value;

namespace {
/// Scratch bytes for the packed right operands of one product: a part of the second cache.
constexpr int64_t kKeptBytes = 512 << 10;
/// And how many blocks at most: their keys are cleared at each call of the kernel.
constexpr int64_t kKeptBlocks = 128;
/// Bytes of a row of A that are gathered at once: the panel of B that they meet stays in the first cache beside rows of A that lie 4 KB apart, which
/// share a few of its sets. Matrix tiles have longer rows and read B from the second cache anyway.
constexpr int64_t kGatheredBytes = 512, kGatheredTileBytes = 1024;

bool writes(mlir::Operation *op) {
  bool found = false;
  op->walk([&](mlir::Operation *inner) {
    switch (codeOf(inner)) {
    case OpCode::Store:
    case OpCode::AtomicRmw:
    case OpCode::AtomicCas:
    case OpCode::AtomicLoad:
    case OpCode::AtomicStore: found = true; break;
    default: break;
    }
  });
  return found;
}

bool reachesItself(mlir::Block *block) {
  llvm::SmallVector<mlir::Block *, 8> todo(block->getSuccessors());
  llvm::SmallPtrSet<mlir::Block *, 8> seen;
  while (!todo.empty()) {
    mlir::Block *next = todo.pop_back_val();
    if (next == block) return true;
    if (seen.insert(next).second) todo.append(next->succ_begin(), next->succ_end());
  }
  return false;
}

/// Whether this program may have written memory when op runs: then what op reads may differ from what an earlier
/// program read there. (Programs of one launch run in any order, so one may not read what another writes unless they
/// synchronise by atomics.)
bool mayFollowWrites(mlir::Operation *op) {
  for (mlir::Operation *at = op; !llvm::isa<tt::FuncOp>(at); at = at->getParentOp()) {
    if (at != op && codeOf(at) != OpCode::If && writes(at)) return true;
    for (mlir::Operation *before = at->getPrevNode(); before; before = before->getPrevNode())
      if (writes(before)) return true;
    // Blocks that branch: any other may have run, and this one if it can be reached from itself.
    mlir::Block *own = at->getBlock();
    for (mlir::Block &block : *own->getParent())
      if (&block != own || reachesItself(own))
        for (mlir::Operation &other : block)
          if (writes(&other)) return true;
  }
  return false;
}
} // namespace

// ---------------------------------------------------------------------------------------------------------------- turns of a loop

mlir::Operation *Emitter::loneProduct(mlir::Operation *loop) {
  mlir::Block &body = loop->getRegion(0).front();
  mlir::Operation *dot = nullptr;
  for (mlir::Operation &op : body.without_terminator()) {
    if (op.getNumRegions() > 0) return nullptr;
    if (uses_->isVirtual(&op)) {
      for (mlir::Value r : op.getResults())
        if (uses_->mustKeep(r)) return nullptr;
      continue;
    }
    const OpCode code = codeOf(&op);
    if (code == OpCode::Dot && !dot)
      dot = &op;
    else if (code != OpCode::ArithConstant &&
             (classOf(code) != OpClass::Element || op.getNumResults() != 1 || isTensor(op.getResult(0).getType())))
      return nullptr;
  }
  if (!dot) return nullptr;
  // The sum goes round the loop and nowhere else.
  mlir::Value sum = dot->getResult(0), old = dot->getOperand(2);
  auto argument = llvm::dyn_cast<mlir::BlockArgument>(old);
  if (!sum.hasOneUse() || !old.hasOneUse() || !argument || argument.getOwner() != &body || argument.getArgNumber() == 0)
    return nullptr;
  const bool round =
      body.getTerminator()->getOperand(argument.getArgNumber() - 1) == sum && *sum.user_begin() == body.getTerminator();
  // Sums of 16 bits are rounded at each turn.
  return round && shapeOf(sum.getType()).size() == 2 && elementOf(sum.getType()).getIntOrFloatBitWidth() >= 32
             ? dot
             : nullptr;
}

void Emitter::beginGathering(mlir::Operation *loop) {
  mlir::Operation *dot = loneProduct(loop);
  // What is computed where it is multiplied is nowhere to be found later.
  if (const Product p = planProduct(dot); p.computed || p.fixed) return;
  // Without tiles, operands are packed in the type of the sum.
  mlir::Type tiles = tileOperandType(dot), operandType = tiles ? tiles : elementOf(dot->getResult(0).getType());
  Shape shape = shapeOf(dot->getOperand(0).getType());
  const int64_t turns = std::clamp<int64_t>((tiles ? kGatheredTileBytes : kGatheredBytes) / (shape[1] * bytesOf(operandType)), 1, 32);
  if (turns < 2) return;
  llvm::AllocaInst *count = entryAlloca(b.getInt32Ty(), "gathered");
  b.CreateStore(b.getInt32(0), count);
  gathering_ = Gathering{dot,
                         turns,
                         count,
                         nullptr,
                         &newBuffer(mlir::IntegerType::get(loop->getContext(), 64), {turns, shape[0] + 3}),
                         &newBuffer(operandType, {turns, shape[0], shape[1]})};
}

void Emitter::endGathering() {
  if (!gathering_) return;
  freeBuffer(*gathering_->table);
  freeBuffer(*gathering_->rows);
  gathering_.reset();
}

Value *Emitter::enterGathered() {
  Gathering &g = *gathering_;
  Value *count = b.CreateAdd(b.CreateLoad(b.getInt32Ty(), g.count), b.getInt32(1));
  Value *full = b.CreateICmpEQ(count, b.getInt32(static_cast<uint32_t>(g.turns)));
  Value *now = b.CreateOr(full, g.lastTurn);
  b.CreateStore(b.CreateSelect(now, b.getInt32(0), count), g.count);
  llvm::BasicBlock *multiply = llvm::BasicBlock::Create(b.getContext(), "multiply", fn_);
  g.later = llvm::BasicBlock::Create(b.getContext(), "gathered", fn_);
  b.CreateCondBr(now, multiply, g.later);
  b.SetInsertPoint(multiply);
  frames_[0].block = multiply;
  frames_[0].memo.clear();
  return count;
}

void Emitter::leaveGathered() {
  b.CreateBr(gathering_->later);
  b.SetInsertPoint(gathering_->later);
  frames_[0].block = gathering_->later;
  frames_[0].memo.clear();
}

// ------------------------------------------------------------------------------------------------------------- from program to program

bool Emitter::mayReuse(mlir::Operation *op) {
  mlir::Value v = op->getOperand(1);
  mlir::Operation *load = v.getDefiningOp();
  if (!load || !mayLieInPlace(v, elementOf(v.getType()))) return false;
  if (auto flag = load->getAttrOfType<mlir::BoolAttr>("isVolatile"); flag && flag.getValue()) return false;
  mlir::Operation *function = op->getParentOp();
  while (!llvm::isa<tt::FuncOp>(function)) function = function->getParentOp();
  bool synchronises = false;
  function->walk([&](mlir::Operation *inner) {
    const OpCode code = codeOf(inner);
    synchronises |= code == OpCode::AtomicRmw || code == OpCode::AtomicCas || code == OpCode::AtomicLoad ||
                    code == OpCode::AtomicStore;
  });
  return !synchronises && !mayFollowWrites(op);
}

Value *Emitter::packedFresh(mlir::Operation *op, int64_t bytes, llvm::function_ref<void(Value *)> pack) {
  const bool gathers = gathering_ && gathering_->dot == op;
  Buffer &packed = newBuffer(mlir::IntegerType::get(op->getContext(), 8), {gathers ? gathering_->turns : 1, bytes});
  freeAfter_[nullptr].push_back(&packed);
  Value *to = packed.ptr;
  if (gathers) {
    Value *turn = b.CreateZExt(b.CreateLoad(b.getInt32Ty(), gathering_->count), b.getInt64Ty());
    to = b.CreateGEP(b.getInt8Ty(), to, b.CreateMul(turn, b.getInt64(static_cast<uint64_t>(bytes))));
  }
  pack(to);
  return to;
}

Value *Emitter::packedOnce(mlir::Operation *op, int64_t bytes, int64_t valid, llvm::function_ref<void(Value *)> pack) {
  if (!mayReuse(op)) return packedFresh(op, bytes, pack);
  mlir::Type byte = mlir::IntegerType::get(op->getContext(), 8), word = mlir::IntegerType::get(op->getContext(), 64);
  const int64_t gathered = gathering_ && gathering_->dot == op ? gathering_->turns : 1;
  llvm::Type *i32 = b.getInt32Ty(), *i64 = b.getInt64Ty();
  auto at = [&](Value *p, Value *n, int64_t size) {
    return b.CreateGEP(b.getInt8Ty(), p, b.CreateMul(b.CreateZExt(n, i64), b.getInt64(static_cast<uint64_t>(size))));
  };
  // The n-th run of op in a program has the n-th slot; those beyond the last group share that.
  const int64_t groups =
      std::clamp<int64_t>(kKeptBytes / (bytes * gathered), 1, std::max<int64_t>(1, kKeptBlocks / gathered));
  const int64_t slots = groups * gathered, shared = slots - gathered;
  Buffer &kept = newBuffer(byte, {slots, bytes}, Lifetime::Call), &keys = newBuffer(word, {slots, 4}, Lifetime::Call);
  llvm::AllocaInst *runs = entryAlloca(i32, "runs");
  {
    llvm::IRBuilderBase::InsertPointGuard guard(b);
    b.SetInsertPoint(entry_->getTerminator());
    b.CreateMemSet(keys.ptr, b.getInt8(0), static_cast<uint64_t>(slots * 32), llvm::MaybeAlign(64));
    b.SetInsertPoint(programBegin_, programBegin_->getFirstNonPHIIt());
    b.CreateStore(b.getInt32(0), runs);
  }
  Value *run = b.CreateLoad(i32, runs);
  b.CreateStore(b.CreateAdd(run, b.getInt32(1)), runs);
  Value *last = gathered == 1 ? b.getInt32(static_cast<uint32_t>(shared))
                              : b.CreateAdd(b.getInt32(static_cast<uint32_t>(shared)),
                                            b.CreateURem(run, b.getInt32(static_cast<uint32_t>(gathered))));
  Value *slot = b.CreateSelect(b.CreateICmpULT(run, b.getInt32(static_cast<uint32_t>(shared))), run, last);
  Value *to = at(kept.ptr, slot, bytes), *key = at(keys.ptr, slot, 32);
  // Three corners tell where a block lies; a block with lanes masked off is never kept: address 0 is nobody's.
  Placement place = probePlacement(op->getOperand(1), elementOf(op->getOperand(1).getType()), valid);
  Value *origin = b.CreateSelect(place.inside, place.origin, b.getInt64(0));
  Value *same = place.inside;
  Value *const words[] = {origin, place.rowStride, place.columnStride};
  for (uint64_t i = 0; i < 3; ++i) {
    Value *p = b.CreateConstGEP1_64(i64, key, i);
    same = b.CreateAnd(same, b.CreateICmpEQ(b.CreateLoad(i64, p), words[i]));
  }
  branch(
      b.CreateNot(same),
      [&] {
        for (uint64_t i = 0; i < 3; ++i) b.CreateStore(words[i], b.CreateConstGEP1_64(i64, key, i));
        pack(to);
      },
      nullptr);
  return to;
}

} // namespace neso::cpu
