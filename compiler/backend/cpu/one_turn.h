// Loops that carry tiles and may make a single turn are written out for it.
//
// A loop over a row in blocks, which adds each block to a tile and reduces the tile behind it, keeps the tile in memory: it is filled with zeros,
// read and written at every turn, and read again by the reduction. Most rows fit one block. So such a loop becomes a branch, whose first side is the
// body once, in place, with what stands behind the loop up to the last use of its tiles: nothing of that needs memory any more, since tensors are virtual.
//
//     acc = for i = lo to n step B (acc = 0) { acc + x[i] }      s = if lo < n and not lo + B < n { reduce(0 + x[lo]) }
//     s = reduce(acc)                                       →        else { acc = for … ; reduce(acc) }
//
// On the other side, a loop from zero by a constant takes four turns at a time, where so many are left, and the rest one by one: tiles go to memory
// and back once for four. Sums are added up in the same order.
//
// The loop's own test decides, with what it computes when it wraps around. It stands before the emitter, on its own copy of the function: the tile program
// that others see, and other back ends, keep the loop.
#pragma once
#include "ir/tile/tile.h"
#include "mlir/IR/OwningOpRef.h"

namespace neso::cpu {

/// `function` with its loops written out so; null: it has none that this helps.
mlir::OwningOpRef<tt::FuncOp> withOneTurnWrittenOut(tt::FuncOp function);

} // namespace neso::cpu
