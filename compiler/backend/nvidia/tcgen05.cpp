#include "backend/nvidia/tcgen05.h"

#include <algorithm>

#include "backend/nvidia/linear.h"
#include "base/diagnostics.h"
#include "llvm/ADT/bit.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/Transforms/Utils/PromoteMemToReg.h"

namespace neso::nvidia {

using llvm::Value;

namespace {

/// Of one tcgen05.ld or .st, which are results or operands of inline assembly.
constexpr size_t kMostWords = 64;
constexpr int64_t kFewestColumns = 32;

/// In tensor memory, of all of a product's rows.
int64_t columnsOf(tt::DotOp dot) {
  llvm::ArrayRef<int64_t> shape = dot.getD().getType().getShape();
  return shape[0] / kRowsOfTensorMemory * shape[1];
}

bool isOpen(tt::DotOp dot) { return dot->hasAttr(placed::kOpenAttr); }

/// "{$3, $4, …}"
std::string list(size_t first, size_t count) {
  std::string text = "{";
  for (size_t i = 0; i < count; ++i) text += (i ? ", $" : "$") + std::to_string(first + i);
  return text + "}";
}

} // namespace

TensorMemoryPlan planTensorMemory(tt::FuncOp placed, const Chip &chip) {
  TensorMemoryPlan plan;
  if (!chip.has(Feature::Tcgen05)) return plan;
  int64_t waited = 0, most = 1; // columns of products that are waited for, one after the other; products that are told apart
  placed.walk([&](mlir::Operation *op) {
    if (auto wait = llvm::dyn_cast<placed::WaitProductsOp>(op)) most = std::max(most, int64_t(wait.getPending()) + 1);
    auto dot = llvm::dyn_cast<tt::DotOp>(op);
    const DotTraits *traits = dot ? traitsOf(op) : nullptr;
    if (!traits || !traits->keepsSums) return;
    if (!isOpen(dot)) {
      plan.first[op] = 0;
      waited = std::max(waited, columnsOf(dot));
    }
    for (mlir::Value operand : {dot.getA(), dot.getB()})
      if (mlir::Value ring = ringOf(operand)) most = std::max(most, llvm::cast<ttg::RingType>(ring.getType()).getSlots());
  });
  int64_t columns = waited;
  placed.walk([&](tt::DotOp dot) {
    const DotTraits *traits = traitsOf(dot.getOperation());
    if (!traits || !traits->keepsSums || !isOpen(dot)) return;
    plan.first[dot] = columns;
    columns += columnsOf(dot);
  });
  if (plan.first.empty()) return plan;
  plan.columns = int64_t(llvm::bit_ceil(uint64_t(std::max(columns, kFewestColumns))));
  plan.barriers = int64_t(llvm::bit_ceil(uint64_t(most)));
  return plan;
}

Value *TensorMemory::statement(const std::string &text, llvm::ArrayRef<Value *> operands, llvm::Type *result) {
  llvm::SmallVector<llvm::Type *, 0> types;
  std::string constraints = result ? "=r," : "";
  for (Value *operand : operands) {
    types.push_back(operand->getType());
    constraints += operand->getType()->isIntegerTy(64) ? "l," : "r,";
  }
  llvm::FunctionType *type = llvm::FunctionType::get(result ? result : b_.getVoidTy(), types, false);
  llvm::CallInst *call = b_.CreateCall(llvm::InlineAsm::get(type, text, constraints + "~{memory}", /*hasSideEffects=*/true), operands);
  call->addFnAttr(llvm::Attribute::Convergent);
  return call;
}

TensorMemory::TensorMemory(BlockContext &block, TensorMemoryPlan plan, int64_t offset) : block_(block), b_(block.b), plan_(std::move(plan)) {
  begun_ = b_.CreateAlloca(b_.getInt32Ty(), nullptr, "begun");
  b_.CreateStore(b_.getInt32(0), begun_);
  const SharedBuffer buffer{offset, plan_.sharedBytes(), "barriers of products"};
  Value *given = block.shared.address(block, buffer);
  firstBarrier_ = b_.CreateAdd(b_.CreatePtrToInt(given, b_.getInt32Ty()), b_.getInt32(16));
  emitWhen(block, b_.CreateICmpEQ(block.warp, b_.getInt32(0)), [&] {
    statement("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [$0], " + std::to_string(plan_.columns) + ";", {b_.CreatePtrToInt(given, b_.getInt32Ty())});
    // Other blocks may come behind this one.
    statement("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", {});
  });
  emitWhen(block, b_.CreateICmpEQ(block.thread, b_.getInt32(0)), [&] {
    for (int64_t i = 0; i < plan_.barriers; ++i)
      statement("mbarrier.init.shared::cta.b64 [$0], $1;", {barrierOf(b_.getInt32(uint32_t(i))), b_.getInt32(1)});
    statement("fence.mbarrier_init.release.cluster;", {});
  });
  statement("tcgen05.fence::before_thread_sync;", {});
  emitBarrierOfAll(block);
  statement("tcgen05.fence::after_thread_sync;", {});
  begin_ = b_.CreateLoad(b_.getInt32Ty(), given);
}

void TensorMemory::giveBack() {
  meet();
  emitWhen(block_, b_.CreateICmpEQ(block_.warp, b_.getInt32(0)), [&] {
    statement("tcgen05.dealloc.cta_group::1.sync.aligned.b32 $0, " + std::to_string(plan_.columns) + ";", {begin_});
  });
}

void TensorMemory::finish() {
  llvm::DominatorTree dominators(*begun_->getFunction());
  llvm::PromoteMemToReg({begun_}, dominators);
}

Value *TensorMemory::barrierOf(Value *product) {
  Value *number = b_.CreateAnd(product, b_.getInt32(uint32_t(plan_.barriers - 1)));
  return b_.CreateAdd(firstBarrier_, b_.CreateMul(number, b_.getInt32(kBarrierBytes)));
}

void TensorMemory::forParts(tt::DotOp dot, const DotPlan &plan, llvm::function_ref<void(Value *, size_t, size_t)> use) {
  const Sizes shape = tensorShape(plan.accumulator);
  const int64_t columns = shape[1] / plan.warps[1], repeats = shape[0] / (kRowsOfTensorMemory * plan.warps[0]);
  const size_t each = std::min<size_t>(size_t(columns), kMostWords);
  // A warp reaches 32 rows, by its number in its group; in the upper half of an address.
  Value *lanes = b_.CreateShl(b_.CreateAnd(block_.warp, b_.getInt32(kWarpsOfGroup - 1)), 16 + 5);
  Value *own = b_.CreateAdd(b_.CreateAdd(begin_, lanes), b_.getInt32(uint32_t(plan_.first.lookup(dot))));
  if (block_.warps > kWarpsOfGroup) {
    Value *down = b_.CreateAnd(block_.group, b_.getInt32(uint32_t(plan.warps[0] - 1)));
    Value *across = b_.CreateLShr(block_.group, uint64_t(log2Exact(plan.warps[0])));
    own = b_.CreateAdd(own, b_.CreateAdd(b_.CreateMul(down, b_.getInt32(uint32_t(shape[1]))), b_.CreateMul(across, b_.getInt32(uint32_t(columns)))));
  }
  for (int64_t r = 0; r < repeats; ++r)
    for (size_t column = 0; column < size_t(columns); column += each)
      use(b_.CreateAdd(own, b_.getInt32(uint32_t(r * plan.warps[0] * shape[1]) + uint32_t(column))), size_t(r * columns) + column, each);
}

void TensorMemory::store(tt::DotOp dot, const DotPlan &plan, llvm::ArrayRef<Value *> sums) {
  forParts(dot, plan, [&](Value *address, size_t first, size_t count) {
    llvm::SmallVector<Value *, 0> operands{address};
    for (Value *sum : sums.slice(first, count)) operands.push_back(b_.CreateBitCast(sum, b_.getInt32Ty()));
    statement("tcgen05.st.sync.aligned.32x32b.x" + std::to_string(count) + ".b32 [$0], " + list(1, count) + ";", operands);
  });
  statement("tcgen05.wait::st.sync.aligned;", {});
}

void TensorMemory::meet() {
  statement("tcgen05.fence::before_thread_sync;", {});
  emitBarrier(block_);
  statement("tcgen05.fence::after_thread_sync;", {});
}

bool TensorMemory::meetsBefore(tt::DotOp dot, const DotPlan &plan) {
  const auto isCopiedByMachine = [](mlir::Value operand) {
    return llvm::any_of(ringOf(operand).getUsers(), [](mlir::Operation *user) { return llvm::isa<ttg::BulkCopyOp>(user); });
  };
  return !plan.open || !isCopiedByMachine(dot.getA()) || !isCopiedByMachine(dot.getB());
}

void TensorMemory::multiply(tt::DotOp dot, const DotPlan &plan, const SharedTile &a, const SharedTile &b) {
  const GroupRow &row = *plan.groupRow;
  const Sizes shape = tensorShape(plan.accumulator);
  const int64_t k = tensorShape(b.layout)[0];
  for (const SharedTile *tile : {&a, &b})
    if (!tile->synchronised) block_.shared.beforeRead(block_, tile->buffer);
  Value *begun = b_.CreateLoad(b_.getInt32Ty(), begun_);
  emitWhen(block_, b_.CreateICmpEQ(block_.thread, b_.getInt32(0)), [&] {
    const Panels left(block_, a, 1, row.bits), right(block_, b, 0, row.bits);
    // Fields: types of sums and operands, whether operands lie across K, columns in eights, rows in sixteens.
    const uint32_t what = row.codeD << 4 | row.codeA << 7 | row.codeB << 10 | uint32_t(!left.kFast()) << 15 | uint32_t(!right.kFast()) << 16 |
                          uint32_t(plan.columnsRead() / 8) << 17 | uint32_t(kRowsOfTensorMemory / 16) << 24;
    const std::string text = std::string("{ .reg .pred p; setp.ne.b32 p, 1, 0; tcgen05.mma.cta_group::1.kind::") + row.kind + " [$0], $1, $2, $3, p; }";
    constexpr uint64_t kVersion = uint64_t(1) << 46;
    auto part = [&](const Panels &panels, int64_t at, int64_t step) {
      Value *descriptor = panels.descriptor(b_, b_.getInt32(uint32_t(panels.offset(at, step * row.k()) >> 4)));
      return b_.CreateOr(descriptor, b_.getInt64(kVersion));
    };
    for (int64_t step = 0; step < k / row.k(); ++step)
      for (int64_t r = 0; r < shape[0] / kRowsOfTensorMemory; ++r) {
        Value *sums = b_.CreateAdd(begin_, b_.getInt32(uint32_t(plan_.first.lookup(dot) + r * shape[1])));
        statement(text, {sums, part(left, r * kRowsOfTensorMemory, step), part(right, 0, step), b_.getInt32(what)});
      }
    // Complete when all that was begun so far is.
    statement("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [$0];", {barrierOf(begun)});
  });
  b_.CreateStore(b_.CreateAdd(begun, b_.getInt32(1)), begun_);
  // Copies begin while the product is under way.
  block_.emitLater(block_.later.size());
}

void TensorMemory::wait(int64_t pending) {
  llvm::Function *function = b_.GetInsertBlock()->getParent();
  auto blockOf = [&](const char *name) { return llvm::BasicBlock::Create(b_.getContext(), name, function); };
  llvm::BasicBlock *poll = blockOf("product"), *behind = blockOf("multiplied");
  Value *product = b_.CreateSub(b_.CreateLoad(b_.getInt32Ty(), begun_), b_.getInt32(uint32_t(pending + 1)));
  // Fewer may have been begun.
  b_.CreateCondBr(b_.CreateICmpSGE(product, b_.getInt32(0)), poll, behind);
  b_.SetInsertPoint(poll);
  Value *parity = b_.CreateAnd(b_.CreateLShr(product, uint64_t(log2Exact(plan_.barriers))), b_.getInt32(1));
  Value *ended = statement("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [$1], $2; selp.b32 $0, 1, 0, p; }", {barrierOf(product), parity}, b_.getInt32Ty());
  b_.CreateCondBr(b_.CreateICmpNE(ended, b_.getInt32(0)), behind, poll);
  b_.SetInsertPoint(behind);
}

Registers TensorMemory::load(tt::DotOp dot, const DotPlan &plan) {
  llvm::Type *element = plan.groupRow->integers ? static_cast<llvm::Type *>(b_.getInt32Ty()) : b_.getFloatTy();
  statement("tcgen05.fence::after_thread_sync;", {});
  Registers sums;
  forParts(dot, plan, [&](Value *address, size_t, size_t count) {
    llvm::StructType *words = llvm::StructType::get(b_.getContext(), llvm::SmallVector<llvm::Type *, 0>(count, b_.getInt32Ty()));
    std::string constraints;
    for (size_t i = 0; i < count; ++i) constraints += "=r,";
    const std::string text = "tcgen05.ld.sync.aligned.32x32b.x" + std::to_string(count) + ".b32 " + list(0, count) + ", [$" + std::to_string(count) + "];";
    llvm::FunctionType *type = llvm::FunctionType::get(words, {b_.getInt32Ty()}, false);
    llvm::CallInst *call = b_.CreateCall(llvm::InlineAsm::get(type, text, constraints + "r,~{memory}", /*hasSideEffects=*/true), {address});
    call->addFnAttr(llvm::Attribute::Convergent);
    for (size_t i = 0; i < count; ++i) sums.push_back(b_.CreateExtractValue(call, unsigned(i)));
  });
  // Through the wait: they are not there before.
  runOnSums(b_, sums, {}, "tcgen05.wait::ld.sync.aligned;");
  for (Value *&sum : sums) sum = b_.CreateBitCast(sum, element);
  return sums;
}

} // namespace neso::nvidia
