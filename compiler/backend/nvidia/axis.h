// What reductions and scans share: tiles whose axis is apart (ir/layout/axis.h), and the exchange of one value a warp.
#pragma once
#include <vector>

#include "backend/nvidia/block.h"
#include "ir/layout/axis.h"

namespace neso::nvidia {

/// One scalar of each operand.
using Tuple = llvm::SmallVector<llvm::Value *, 2>;
Tuple tupleOf(llvm::ArrayRef<Tile> tiles, uint64_t reg);

/// The same tensors (of one layout) in a layout that axisPlaces understands; most are at once, unless their layout
/// mixes dims. lanesInOrder: higher bits of the axis are in higher bits of the lane.
llvm::SmallVector<Tile, 2> withSeparateAxis(BlockContext &block, llvm::ArrayRef<Tile> tiles, int axis,
                                            bool lanesInOrder = false);
/// Register indices below `size` whose bits `bits` are 0, ascending.
std::vector<uint64_t> placesWithout(const std::vector<AxisBit> &bits, size_t size);

/// rows[i] is the row of register i of `rest` (register, lane, warp, block -> row, as a flat out index; zero on the
/// warp bits `warps`), one tuple a warp. Every thread gets the tuples of all warps along `warps`, in that order. One
/// barrier, after the stores.
llvm::SmallVector<llvm::SmallVector<Tuple, 16>, 16> gatherWarps(BlockContext &block, const LinearLayout &rest,
                                                                const std::vector<AxisBit> &warps,
                                                                llvm::ArrayRef<Tuple> rows);

} // namespace neso::nvidia
