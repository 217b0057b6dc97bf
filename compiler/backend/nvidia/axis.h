// What reductions and scans share: where a layout has the bits of one axis, and the exchange of one value a warp.
#pragma once
#include <optional>
#include <vector>

#include "backend/nvidia/block.h"

namespace neso::nvidia {

/// One scalar of each operand.
using Tuple = llvm::SmallVector<llvm::Value *, 2>;
Tuple tupleOf(llvm::ArrayRef<Tile> tiles, uint64_t reg);

/// A bit of the axis index and the place bit that has it.
struct AxisBit {
  int place; // bit number in register, lane or warp
  int axis;  // bit number in the axis index
};
/// The axis bits by where they are, each list in order of the axis.
struct AxisPlaces {
  std::vector<AxisBit> registers, lanes, warps;
  uint32_t laneMask() const;
  /// Register index of every position along the axis in registers, in order of the axis; other register bits 0.
  std::vector<uint64_t> registersInOrder() const;
};
/// Nothing unless every bit of the axis is in one place bit of its own, which has no other.
std::optional<AxisPlaces> axisPlaces(const LinearLayout &layout, int axis);
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
