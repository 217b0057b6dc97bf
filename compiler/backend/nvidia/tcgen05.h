// Products by tcgen05: one thread begins them for its block; they read both operands in shared memory, and sum in tensor memory, which is
// 128 rows of 512 columns of 32 bits a multiprocessor.
//
//     tcgen05.alloc                                        // at the kernel's entry; given back where it returns
//     tcgen05.st sums; bar.sync                            // the sums that a product, or a loop of open ones, begins with
//     thread 0: tcgen05.mma … (128 rows and 32 bytes of K each); tcgen05.commit → mbarrier
//     mbarrier.try_wait; tcgen05.ld sums                   // behind an open product's loop
//
// Every product has a number. The barriers of as many products as a ring has slots take turns: nobody begins a product before all have waited for
// the one so many before it, since that one's operands lay in the same slot; so the parity of a phase tells it from the one before.
//
// Sources: PTX ISA, "TensorCore 5th Generation Instructions" (descriptors, layout of tcgen05.ld 32x32b, which warp reaches which rows).
#pragma once
#include "backend/nvidia/groups.h"
#include "llvm/ADT/DenseMap.h"

namespace neso::nvidia {

/// What the products of a placed function take of tensor memory, and of shared memory for it.
struct TensorMemoryPlan {
  int64_t columns = 0;  // of a block: a power of two, or none
  int64_t barriers = 0; // a power of two
  llvm::DenseMap<mlir::Operation *, int64_t> first; // by product: its first column

  bool any() const { return columns > 0; }
  bool fits() const { return columns <= kColumnsOfTensorMemory; }
  /// At the end of the function's shared memory: the barriers, and where the machine says which columns it gave.
  int64_t sharedBytes() const { return any() ? kBarrierBytes * barriers + 16 : 0; }
};
TensorMemoryPlan planTensorMemory(tt::FuncOp placed, const Chip &chip);

/// The same, while the code of a block is emitted.
class TensorMemory {
public:
  /// At the entry, where all threads come by, those of a producer too. `offset`: of plan.sharedBytes().
  TensorMemory(BlockContext &block, TensorMemoryPlan plan, int64_t offset);
  /// Before a return, of the block's own threads.
  void giveBack();
  /// The whole function has been emitted.
  void finish();

  /// The sums that `dot` begins with. Products that are begun behind waitForSums see them.
  void store(tt::DotOp dot, const DotPlan &plan, llvm::ArrayRef<llvm::Value *> sums);
  /// What threads of the block wrote to tensor memory and, behind a fence, to shared memory is seen by products that come.
  void meet();
  /// Whether threads meet before a product: what the machine copied the thread that multiplies has waited for itself; what threads wrote, it has not.
  static bool meetsBefore(tt::DotOp dot, const DotPlan &plan);
  void multiply(tt::DotOp dot, const DotPlan &plan, const SharedTile &a, const SharedTile &b);
  /// All products but those of the last `pending` that were begun are complete.
  void wait(int64_t pending);
  /// The sums of a complete product, in order of plan.accumulator's registers.
  Registers load(tt::DotOp dot, const DotPlan &plan);

private:
  /// Calls `use` with the address of each run of columns, the number of its first sum and how many it has.
  void forParts(tt::DotOp dot, const DotPlan &plan, llvm::function_ref<void(llvm::Value *, size_t, size_t)> use);
  llvm::Value *statement(const std::string &text, llvm::ArrayRef<llvm::Value *> operands, llvm::Type *result = nullptr);
  llvm::Value *barrierOf(llvm::Value *product);

  BlockContext &block_;
  llvm::IRBuilder<> &b_;
  TensorMemoryPlan plan_;
  llvm::Value *firstBarrier_ = nullptr, *begin_ = nullptr; // i32: in shared memory; in tensor memory
  llvm::AllocaInst *begun_ = nullptr;                      // i32: products so far
};

} // namespace neso::nvidia
