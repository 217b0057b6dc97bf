// tt.reduce and tt.scan on the registers, lanes and warps of a block.
//
// Both combine in the thread first, then among lanes by shuffles, then among warps through shared memory with one
// barrier. The left operand of a combination always stands before the right one along the axis where the layout has the
// axis in order, and the order depends on the layout only, so results are deterministic.
#pragma once
#include "backend/nvidia/block.h"
#include "mlir/IR/Region.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace neso::nvidia {

/// Emits the region on scalars: n values of the left part, n of the right; gives n values of the same types.
using Combine = llvm::function_ref<llvm::SmallVector<llvm::Value *, 2>(llvm::ArrayRef<llvm::Value *> left,
                                                                       llvm::ArrayRef<llvm::Value *> right)>;

/// What is known of a combination beyond its code; `combine` says what is computed.
enum class ReduceHint : uint8_t {
  None,
  /// combine(x, y) and combine(y, x) are the same bits: both lanes of a pair may combine their own value with the
  /// other's.
  Commutative,
  /// Hardware reduces these among the lanes of a warp in one instruction; commutative too.
  AddI32,
  MinI32,
  MaxI32,
  MinU32,
  MaxU32,
  AndI32,
  OrI32,
  XorI32,
};
/// By the region of a tt.reduce: one operation on the two arguments and nothing else is understood.
ReduceHint reduceHint(mlir::Region &combine);

/// Operands of one layout are reduced together along `axis`. Results in sliceLayout(layout, axis); of rank 0 (one
/// register, the same value in every thread) when the operands had rank 1.
llvm::SmallVector<Tile, 2> reduceTiles(BlockContext &block, llvm::ArrayRef<Tile> operands, int axis, Combine combine,
                                       ReduceHint hint = ReduceHint::None);

/// Inclusive scan along `axis`, from the end when `reverse`. Operands and results have one layout. The region's left
/// operand is the part scanned so far, also in reverse.
llvm::SmallVector<Tile, 2> scanTiles(BlockContext &block, llvm::ArrayRef<Tile> operands, int axis, bool reverse,
                                     Combine combine);

} // namespace neso::nvidia
