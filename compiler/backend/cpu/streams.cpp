// Stores that go past the caches. A line that is stored to is read from memory first, though every byte of it is overwritten; non-temporal stores leave
// that out. What they write is in no cache then, so they are for launches that write more than stays in one.
//
// Measured on one core of Zen 4 with 32 MiB of third cache, rows of 4,096 f32 scaled by their norm: times alone and with another such kernel behind
// that reads them, ordinary stores over these: 2 MiB of results 0.92 and 0.72, 4 MiB 0.94 and 0.82, 8 MiB 1.80 and 1.06, 16 MiB 1.49 and 1.06,
// 32 MiB 1.30 and 1.08, 64 MiB 1.32 and 1.09.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace neso::cpu {

using llvm::Value;

namespace {
/// Bytes that a launch writes from which on its stores go past the caches.
constexpr int64_t kLeastBytes = int64_t{16} << 20;
/// Kernels that take longer to compute an element wait for no memory.
constexpr int kMostCost = 200;
} // namespace

/// Whether whole lines are written, if the first address is that of one, which nobody in the function reads.
bool Emitter::mayGoPastCaches(const Nest &nest, mlir::Operation *store) {
  mlir::Value pointer = store->getOperand(0);
  const int64_t size = bytesOf(elementOf(store->getOperand(1).getType()));
  if (nest.width * size % kLineBytes != 0 || uses_->cost(store->getOperand(1)) > kMostCost) return false;
  // Addresses modulo lines follow from steps modulo 2^bits.
  for (size_t d = 0; d < nest.shape.size(); ++d) {
    if (nest.shape[d] == 1) continue;
    Conditions conditions;
    const std::optional<Step> step = affine_.along(pointer, static_cast<int64_t>(d), conditions);
    const bool along = static_cast<int>(d) == nest.vectorDim;
    if (!step || (along ? !step->isUnit() : !step->constant || *step->constant * size % kLineBytes != 0)) return false;
  }
  mlir::Operation *function = store->getParentOfType<tt::FuncOp>();
  const mlir::Value root = pointerRoot(pointer);
  return !function->walk([&](mlir::Operation *op) {
    const OpCode code = codeOf(op);
    const bool atomic = code == OpCode::AtomicRmw || code == OpCode::AtomicCas || code == OpCode::AtomicLoad || code == OpCode::AtomicStore;
    // Who waits for an atomic sees what was stored before it.
    return atomic || (code == OpCode::Load && pointerRoot(op->getOperand(0)) == root) ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance();
  }).wasInterrupted();
}

/// How often the loops around op run it in a program (i64), as far as their bounds are known there.
Value *Emitter::turnsAround(mlir::Operation *op) {
  Value *turns = b.getInt64(1), *one = b.getInt64(1);
  auto atLeastOne = [&](Value *v) { return b.CreateSelect(b.CreateICmpSLT(v, one), one, v); };
  for (auto loop = op->getParentOfType<mlir::scf::ForOp>(); loop; loop = loop->getParentOfType<mlir::scf::ForOp>()) {
    auto wide = [&](mlir::Value v) { return b.CreateSExt(scalar(v).base, b.getInt64Ty()); };
    Value *distance = b.CreateSub(wide(loop.getUpperBound()), wide(loop.getLowerBound()));
    turns = b.CreateMul(turns, atLeastOne(b.CreateSDiv(distance, atLeastOne(wide(loop.getStep())))));
  }
  return turns;
}

Value *Emitter::goesPastCaches(const Nest &nest, llvm::ArrayRef<mlir::Operation *> stores) {
  if (!allLevels()[static_cast<size_t>(level_)].wide || nest.vectorDim < 0 || nest.width < caps_.f32Lanes) return nullptr;
  int64_t bytes = 0;
  for (mlir::Operation *store : stores) {
    if (!mayGoPastCaches(nest, store)) return nullptr;
    int64_t elements = bytesOf(elementOf(store->getOperand(1).getType()));
    for (int64_t n : nest.shape) elements *= n;
    bytes += elements;
  }
  Value *all = b.getInt64(static_cast<uint64_t>(bytes * std::max<int64_t>(programs_, 1)));
  if (!programs_)
    for (Value *n : sizes_) all = b.CreateMul(all, b.CreateZExt(n, b.getInt64Ty()));
  Value *past = b.CreateICmpUGE(b.CreateMul(all, turnsAround(stores[0])), b.getInt64(kLeastBytes));
  if (auto *known = llvm::dyn_cast<llvm::ConstantInt>(past); known && known->isZero()) return nullptr;
  frames_[0].memo.clear();
  for (mlir::Operation *store : stores) {
    Value *first = eval(store->getOperand(0), Index(nest.shape.size(), uniformInt(0))).base;
    Value *place = b.CreateAnd(b.CreatePtrToInt(first, b.getInt64Ty()), b.getInt64(kLineBytes - 1));
    past = b.CreateAnd(past, b.CreateICmpEQ(place, b.getInt64(0)));
  }
  return past;
}

} // namespace neso::cpu
