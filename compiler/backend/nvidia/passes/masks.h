// What is known of masks before they are computed: that they leave out nothing, as scalars say beforehand, and that 32 bits are enough for them.
//
// In most turns of a loop masks of tiles leave out nothing:
//
//     s' = select(keys < length & keys <= rows, s, -inf)
//         ──▶   s' = if first + 127 < length & first + 127 <= start { s } else { select … }
//
// Of comparisons between sums of scalars and ranges, whose least and greatest elements are scalars. A tile that the mask leaves whole is
// passed on as it is, which costs a branch in place of two instructions an element.
#pragma once
#include "ir/tile/placed.h"

namespace neso::nvidia {

/// Rewrites the selections of a loop in place; gives how many were. Of loops in which no product reads what it does not change out of registers: in
/// those the assembler (12.9 and 13.0) gave such registers away, once there was a branch in the loop.
int guardMasks(mlir::scf::ForOp loop);

/// Comparisons of 64-bit indices with a border, where both are known to be small, become comparisons of 32 bits:
///
///     first + range < border   ──▶   range < clamp(border - first, 0, 2^30)
///
/// What is computed of 64-bit numbers is a scalar then; the comparison itself is one instruction in place of four. Of dims long enough that a
/// thread compares several indices, unless the bounds of the scalars prove the comparison. Gives how many were.
int narrowMasks(tt::FuncOp function, int warps);

/// A function that goes straight through gets a second body behind its first masked load or store, if masks stand in the way of accesses of
/// several elements at one time:
///
///     if whole { loads and stores without masks } else { as before }
///
/// whole: what all masks of ranges and scalars ask holds for the whole block, as it does for all but the last one. Says whether it did.
bool splitWholeBlocks(tt::FuncOp function);

} // namespace neso::nvidia
