#include "backend/nvidia/fma.h"

#include <algorithm>

#include "backend/nvidia/linear.h"
#include "llvm/IR/Intrinsics.h"

namespace neso::nvidia {

namespace {

/// K is walked in steps of this many elements: one wide load of a row of A.
constexpr int64_t kStep = 4;

/// A buffer of an operand, row-major.
SharedTile inShared(BlockContext &block, const DotOperand &operand, bool &owned) {
  owned = std::holds_alternative<Tile>(operand);
  if (!owned) return std::get<SharedTile>(operand);
  const Tile &tile = std::get<Tile>(operand);
  Sizes shape = tensorShape(tile.layout);
  std::vector<int> order;
  for (int i = int(shape.size()) - 1; i >= 0; --i) order.push_back(i);
  llvm::Type *element = tile.values[0]->getType();
  SharedTile buffer{block.shared.allocate(sharedBytes(element) << tile.layout.totalOutBits(), "operand of a product"),
                    sharedLayout(shape, order), element, nullptr};
  storeShared(block, tile, buffer);
  owned = true;
  return buffer;
}

/// Some bits of a flat out index, closed up.
uint64_t compress(uint64_t x, uint64_t mask) {
  uint64_t result = 0;
  for (int from = 0, to = 0; from < 64; ++from)
    if (mask >> from & 1) result |= (x >> from & 1) << to++;
  return result;
}

/// The layout of one operand's slice of `step` elements along K, as the threads of `sums` need it: sums' index without
/// the dim `gone`, with K put in at the lowest bits (A, where N goes) or above N (B, where M goes).
LinearLayout sliceWanted(const LinearLayout &sums, const LinearLayout::Out &gone, int64_t step, int kAt,
                         const DimValues &outs) {
  uint64_t keep = ((uint64_t(1) << sums.totalOutBits()) - 1) & ~(((uint64_t(1) << gone.bits) - 1) << gone.shift);
  int stepBits = log2Exact(step);
  std::vector<LinearLayout::In> ins = sums.ins();
  for (LinearLayout::In &in : ins) {
    for (uint64_t &basis : in.bases) {
      basis = compress(basis, keep);
      uint64_t low = basis & ((uint64_t(1) << kAt) - 1);
      basis = low | (basis ^ low) << stepBits;
    }
    if (in.name != kRegister) continue;
    std::erase(in.bases, uint64_t(0));
    for (int bit = 0; bit < stepBits; ++bit) in.bases.insert(in.bases.begin() + bit, uint64_t(1) << (kAt + bit));
  }
  return LinearLayout(ins, outs);
}

class FmaEmitter {
public:
  FmaEmitter(BlockContext &block, const DotPlan &plan, const Tile &c)
      : block_(block), b_(block.b), sums_(plan.accumulator), values_(c.values), rank_(int(sums_.outs().size())) {}

  Tile run(const DotOperand &a, const DotOperand &b) {
    bool ownsA = false, ownsB = false;
    SharedTile sharedA = inShared(block_, a, ownsA), sharedB = inShared(block_, b, ownsB);
    block_.shared.beforeRead(block_, sharedA.buffer);
    block_.shared.beforeRead(block_, sharedB.buffer);
    int64_t k = sharedA.layout.outSize(dimName(rank_ - 1));
    outer_ = values_[0]->getType();
    inner_ = outer_->isHalfTy() || outer_->isBFloatTy() ? b_.getFloatTy() : outer_;
    for (llvm::Value *&value : values_) value = widen(value);
    if (k <= kStep) {
      step(sharedA, sharedB, k, b_.getInt32(0));
    } else {
      loop(k / kStep, [&](llvm::Value *i) { step(sharedA, sharedB, kStep, b_.CreateMul(i, b_.getInt32(kStep))); });
    }
    if (ownsA) block_.shared.release(sharedA.buffer);
    if (ownsB) block_.shared.release(sharedB.buffer);
    if (inner_ != outer_)
      for (llvm::Value *&value : values_) value = b_.CreateFPTrunc(value, outer_);
    return {sums_, values_};
  }

private:
  llvm::Value *widen(llvm::Value *value) {
    if (value->getType() == inner_) return value;
    return inner_->isIntegerTy() ? b_.CreateSExtOrTrunc(value, inner_) : b_.CreateFPCast(value, inner_);
  }

  /// Emits `body` as a loop whose phis are the sums.
  void loop(int64_t count, llvm::function_ref<void(llvm::Value *)> body) {
    llvm::BasicBlock *before = b_.GetInsertBlock();
    llvm::BasicBlock *head = llvm::BasicBlock::Create(b_.getContext(), "dot", before->getParent());
    llvm::BasicBlock *behind = llvm::BasicBlock::Create(b_.getContext(), "dot.end", before->getParent());
    behind->splice(behind->begin(), before, b_.GetInsertPoint(), before->end());
    behind->replaceSuccessorsPhiUsesWith(before, behind);
    b_.SetInsertPoint(before);
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::PHINode *index = b_.CreatePHI(b_.getInt32Ty(), 2);
    llvm::SmallVector<llvm::PHINode *, 16> phis;
    for (llvm::Value *&value : values_) {
      phis.push_back(b_.CreatePHI(inner_, 2));
      phis.back()->addIncoming(value, before);
      value = phis.back();
    }
    body(index);
    llvm::Value *next = b_.CreateAdd(index, b_.getInt32(1));
    llvm::BasicBlock *tail = b_.GetInsertBlock();
    b_.CreateCondBr(b_.CreateICmpULT(next, b_.getInt32(uint32_t(count))), head, behind);
    index->addIncoming(b_.getInt32(0), before);
    index->addIncoming(next, tail);
    for (size_t i = 0; i < phis.size(); ++i) phis[i]->addIncoming(values_[i], tail);
    b_.SetInsertPoint(behind, behind->begin());
  }

  /// The K elements [first, first + step) of both operands: `first` is a multiple of step.
  void step(const SharedTile &a, const SharedTile &b, int64_t step, llvm::Value *first) {
    const LinearLayout::Out &m = sums_.out(dimName(rank_ - 2)), &n = sums_.out(dimName(rank_ - 1));
    Tile sliceA = load(a, n, m.size(), step, true, first), sliceB = load(b, m, n.size(), step, false, first);
    // Register of the sums -> register of a slice, without its K bits.
    const std::vector<uint64_t> &registers = sums_.in(kRegister).bases;
    uint64_t maskA = 0, maskB = 0;
    for (size_t bit = 0; bit < registers.size(); ++bit) {
      uint64_t batch = registers[bit] >> (m.shift + m.bits);
      if (batch || m.of(registers[bit])) maskA |= uint64_t(1) << bit;
      if (batch || n.of(registers[bit])) maskB |= uint64_t(1) << bit;
    }
    for (int64_t k = 0; k < step; ++k) {
      for (uint64_t reg = 0; reg < values_.size(); ++reg) {
        llvm::Value *x = widen(sliceA.values[compress(reg, maskA) * uint64_t(step) + uint64_t(k)]);
        llvm::Value *y = widen(sliceB.values[compress(reg, maskB) * uint64_t(step) + uint64_t(k)]);
        llvm::Value *&sum = values_[reg];
        sum = inner_->isIntegerTy() ? b_.CreateAdd(sum, b_.CreateMul(x, y))
                                    : b_.CreateIntrinsic(llvm::Intrinsic::fma, {inner_}, {x, y, sum});
      }
    }
  }

  Tile load(const SharedTile &from, const LinearLayout::Out &gone, int64_t kept, int64_t step, bool isA,
            llvm::Value *first) {
    int64_t batch =
        int64_t(1) << (sums_.totalOutBits() - sums_.out(dimName(rank_ - 1)).bits - sums_.out(dimName(rank_ - 2)).bits);
    DimValues outs{{dimName(rank_ - 1), isA ? step : kept}, {dimName(rank_ - 2), isA ? kept : step}};
    if (rank_ == 3) outs.push_back({"dim0", batch});
    LinearLayout wanted = sliceWanted(sums_, gone, step, isA ? 0 : log2Exact(kept), outs);

    // The slice in the whole buffer: bits of the offset that walk the rest of K reach nothing.
    const LinearLayout::Out &kDim = from.layout.out(dimName(isA ? rank_ - 1 : rank_ - 2));
    SharedTile slice = from;
    LinearLayout::In offset = from.layout.in(kOffset);
    int stepBits = log2Exact(step);
    uint64_t firstBytes = 0;
    for (size_t bit = 0; bit < offset.bases.size(); ++bit) {
      uint64_t &basis = offset.bases[bit];
      if (uint64_t(kDim.of(basis)) >> stepBits) {
        if (firstBytes == 0) firstBytes = (uint64_t(sharedBytes(from.element)) << bit) >> stepBits;
        basis = 0;
        continue;
      }
      uint64_t low = basis & ((uint64_t(1) << (kDim.shift + stepBits)) - 1);
      basis = low | basis >> (kDim.shift + kDim.bits) << (kDim.shift + stepBits);
    }
    slice.layout = LinearLayout({offset}, outs);
    llvm::Value *bytes = b_.CreateMul(first, b_.getInt32(uint32_t(firstBytes)));
    slice.byteOffset = from.byteOffset ? b_.CreateAdd(from.byteOffset, bytes) : bytes;
    return loadShared(block_, slice, wanted);
  }

  BlockContext &block_;
  llvm::IRBuilder<> &b_;
  const LinearLayout &sums_;
  Registers values_;
  int rank_;
  llvm::Type *outer_ = nullptr, *inner_ = nullptr;
};

} // namespace

LinearLayout fmaAccumulator(int64_t batch, int64_t m, int64_t n, int warps, bool withBatch) {
  // Squares of up to 4 by 4 in a thread, lanes and warps in squares too.
  int64_t threads = int64_t(warps) * 32, each = std::max<int64_t>(batch * m * n / threads, 1);
  int64_t columns = std::min<int64_t>({n, 4, each}),
          rows = std::min<int64_t>({m, 4, std::max<int64_t>(each / columns, 1)});
  int64_t laneColumns = std::min<int64_t>(8, n / columns), laneRows = std::min(32 / laneColumns, m / rows);
  laneColumns = std::min(32 / laneRows, n / columns);
  int64_t laneBatch = std::min(32 / laneColumns / laneRows, batch);
  // Lanes and warps that nothing is left for hold copies: rows run over.
  laneRows = 32 / laneColumns / laneBatch;
  int64_t warpBatch = std::min<int64_t>(warps, batch / laneBatch);
  int64_t warpRows = std::min(warps / warpBatch, std::max<int64_t>(m / rows / laneRows, 1)),
          warpColumns = warps / warpBatch / warpRows;
  if (!withBatch)
    return blockedLayout({m, n}, {{rows, columns}, {laneRows, laneColumns}, {warpRows, warpColumns}, {1, 0}});
  return blockedLayout(
      {batch, m, n},
      {{1, rows, columns}, {laneBatch, laneRows, laneColumns}, {warpBatch, warpRows, warpColumns}, {2, 1, 0}});
}

Tile emitFmaDot(BlockContext &block, const DotPlan &plan, const DotOperand &a, const DotOperand &b, const Tile &c) {
  return FmaEmitter(block, plan, c).run(a, b);
}

} // namespace neso::nvidia
