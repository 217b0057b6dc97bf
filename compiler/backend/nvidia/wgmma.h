// Products by wgmma: four warps an instruction, which reads both operands out of shared memory itself.
//
//     placed.fence_async                                   // what threads and their copies wrote is seen by it
//     wgmma.fence; wgmma.mma_async … (64 rows and 32 bytes of K each); commit; wait
//
// Which products go by it and how operands lie: groups.h.
//
// Sums of 8-bit floats keep about 14 bits below the largest term. A product that asks for more (maxNumImpreciseAcc of
// tt.dot: so many elements of K at most) is summed in parts, which threads add in f32:
//
//     wgmma.fence; parts of 0 += …; commit; wait; sums += parts; wgmma.fence; …
//
// An f32 that is multiplied as the sum of two tf32 (DotPlan::isSplit): the instruction takes a word's first 19 bits, so
// that an operand stands for its own high part. Threads store the low part of B beside it, in a buffer of the product's
// own, and hold A and its low part in registers; so with 32 elements of K, a panel, after the other.
//
//     low of B → shared memory; fence.proxy.async; bar.sync
//     wgmma.fence; small += low A * B, A * low B; large += A * B; commit
//     … the next panel's …; wait; sums += large; sums += small
#pragma once
#include "backend/nvidia/groups.h"

namespace neso::nvidia {

/// Operands in shared memory lie in panels, at multiples of 1,024 bytes; A in registers as plan.operandA. The sums are
/// complete behind it, unless the plan is an open one: then they are behind waitProducts.
Tile emitWarpGroupDot(BlockContext &block, const DotPlan &plan, const DotOperand &a, const SharedTile &b,
                      const Tile &c);
/// All products but those of the last `pending` that were begun are complete, and `values` (f32 or i32) are known no
/// earlier: sums, and what overwrites operands in registers.
void waitProducts(BlockContext &block, int64_t pending, llvm::MutableArrayRef<llvm::Value *> values);
/// A value is computed before what follows.
void hold(BlockContext &block, llvm::Value *value);
/// Of the calling thread's writes to shared memory, and of those it has waited for.
void emitFenceAsync(BlockContext &block);

} // namespace neso::nvidia
