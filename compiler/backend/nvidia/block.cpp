#include "backend/nvidia/block.h"

#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace neso::nvidia {

using llvm::Value;

namespace {

/// The part of a flat out index (shifted down by `shift`, `mask` applied) that the lane and the warp give, and the
/// register's.
Value *indexPart(BlockContext &block, const LinearLayout &layout, int reg, int shift, uint64_t mask) {
  llvm::IRBuilder<> &b = block.b;
  auto part = [&](uint64_t flat) { return static_cast<uint32_t>(flat >> shift & mask); };
  uint32_t constant = 0;
  const LinearLayout::In &registers = layout.in(kRegister);
  for (int bit = 0; bit < registers.bits(); ++bit)
    if (reg >> bit & 1) constant ^= part(registers.bases[static_cast<size_t>(bit)]);

  Value *varying = nullptr;
  uint32_t reached = 0; // bits that the varying part may set
  bool disjoint = true; // each bit is set by one basis at most: then xor is or, and a run of bits is one shift
  auto add = [&](Value *v) {
    varying = !varying ? v : disjoint ? b.CreateOr(varying, v, "", true) : b.CreateXor(varying, v);
  };
  for (const auto &[name, id] : {std::pair{kLane, block.lane}, std::pair{kWarp, block.warp}}) {
    const std::vector<uint64_t> &bases = layout.in(name).bases;
    for (uint64_t basis : bases) {
      disjoint &= (reached & part(basis)) == 0;
      reached |= part(basis);
    }
  }
  for (const auto &[name, id] : {std::pair{kLane, block.lane}, std::pair{kWarp, block.warp}}) {
    const std::vector<uint64_t> &bases = layout.in(name).bases;
    for (size_t i = 0; i < bases.size();) {
      const uint32_t first = part(bases[i]);
      if (first == 0) {
        ++i;
        continue;
      }
      // A run of bits that map to a run of bits moves by one shift.
      size_t n = 1;
      const bool power = (first & (first - 1)) == 0;
      while (power && i + n < bases.size() && part(bases[i + n]) == first << n) ++n;
      if (power) {
        const int to = __builtin_ctz(first), from = static_cast<int>(i);
        Value *v = id;
        if (i != 0 || i + n != bases.size()) v = b.CreateAnd(v, b.getInt32(((1u << n) - 1) << from));
        if (to > from) v = b.CreateShl(v, static_cast<uint64_t>(to - from), "", true, true);
        if (to < from) v = b.CreateLShr(v, static_cast<uint64_t>(from - to));
        add(v);
      } else {
        Value *bit = b.CreateAnd(b.CreateLShr(id, static_cast<uint64_t>(i)), b.getInt32(1));
        add(b.CreateAnd(b.CreateNeg(bit), b.getInt32(first)));
      }
      i += n;
    }
  }
  if (!varying) return b.getInt32(constant);
  if (constant == 0) return varying;
  // Plus, where it is the same: constants then fold into addresses.
  if ((reached & constant) == 0) return b.CreateAdd(varying, b.getInt32(constant), "", true, true);
  return b.CreateXor(varying, b.getInt32(constant));
}

} // namespace

void BlockContext::emitLater(size_t count) {
  for (; count > 0 && !later.empty(); --count) {
    std::function<void()> emit = std::move(later.front());
    later.pop_front();
    emit();
  }
}

void emitBarrier(BlockContext &block) {
  // Number 0 is that of all.
  if (block.producerWarps)
    block.b.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_count, {},
                            {block.b.getInt32(1), block.b.getInt32(uint32_t(block.threads()))});
  else if (block.warps == 1)
    block.b.CreateIntrinsic(llvm::Intrinsic::nvvm_bar_warp_sync, {}, {block.b.getInt32(0xffffffffu)});
  else
    emitBarrierOfAll(block);
}

void emitBarrierOfAll(BlockContext &block) {
  block.b.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all, {}, {block.b.getInt32(0)});
}

Value *flatIndex(BlockContext &block, const LinearLayout &layout, int reg) {
  return indexPart(block, layout, reg, 0, (uint64_t(1) << layout.totalOutBits()) - 1);
}

Value *dimIndex(BlockContext &block, const LinearLayout &layout, int reg, int dim) {
  const LinearLayout::Out &out = layout.out(dimName(dim));
  return indexPart(block, layout, reg, out.shift, (uint64_t(1) << out.bits) - 1);
}

llvm::SmallVector<Value *, 4> tensorIndex(BlockContext &block, const LinearLayout &layout, int reg) {
  llvm::SmallVector<Value *, 4> index;
  for (size_t dim = 0; dim < layout.outs().size(); ++dim)
    index.push_back(dimIndex(block, layout, reg, static_cast<int>(dim)));
  return index;
}

Value *ownsElements(BlockContext &block, const LinearLayout &layout) {
  llvm::IRBuilder<> &b = block.b;
  Value *owns = nullptr;
  for (const auto &[name, id] : {std::pair{kLane, block.lane}, std::pair{kWarp, block.warp}}) {
    const uint64_t mask = layout.freeMask(name);
    if (mask == 0) continue;
    Value *first = b.CreateICmpEQ(b.CreateAnd(id, b.getInt32(static_cast<uint32_t>(mask))), b.getInt32(0));
    owns = owns ? b.CreateAnd(owns, first) : first;
  }
  return owns;
}

} // namespace neso::nvidia
