// ttg.sort: bitonic networks (Batcher 1968) on the registers, lanes and warps of a block.
//
// A network compares elements whose numbers along the row differ by a mask. Numbers are given by where an element lies: the lowest bits
// are register bits, then lane bits, then warp bits. So a mask is a mask of places: the most frequent exchanges, over the lowest bits, are
// between registers of one thread; then come shuffles; only the last steps of long rows go through shared memory. Which element of the
// input lies where does not matter, so nothing moves before the first comparison.
//
//     row of 8 in 2 registers of 4 lanes      phase 1: xor 1              inside threads
//     number = register + 2 * lane            phase 2: xor 3, xor 1       lane ^ 1 and the other register; inside threads
//                                             phase 3: xor 7, xor 2, xor 1
//
// The first step of a phase mirrors its blocks, so that all comparisons have one direction.
#pragma once
#include "backend/nvidia/block.h"

namespace neso::nvidia {

/// Rows along `axis` in ascending order of (operands[0], operands[1], …) as unsigned integers. All operands have one
/// layout; results have one of the function's choice.
llvm::SmallVector<Tile, 2> sortTiles(BlockContext &block, llvm::ArrayRef<Tile> operands, int axis);
/// The same for rows that rise first and fall then: the last phase alone, whose steps compare elements by their numbers
/// along the row.
llvm::SmallVector<Tile, 2> mergeTiles(BlockContext &block, llvm::ArrayRef<Tile> operands, int axis);

} // namespace neso::nvidia
