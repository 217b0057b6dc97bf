// Where a distributed layout (gpu.h) has the bits of one axis of its tensor: what reductions, scans and sorts work on.
//
//     axisPlaces(layout, 1)->lanes         // the axis bits that lanes number, and which lane bit each is
//     separateAxis(layout, 1)              // `layout`, or a plain one where it mixes axes
//     numberedByPlace(layout, 1)           // the axis in order of registers, lanes, warps: how a sort leaves it
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/layout/layout.h"

namespace neso {

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
/// A layout of the same tensor that axisPlaces understands: `layout` itself in most cases. lanesInOrder: higher bits of
/// the axis are in higher bits of the lane.
LinearLayout separateAxis(const LinearLayout &layout, int axis, bool lanesInOrder = false);
/// A layout that axisPlaces understands with the bits of the axis numbered by place: registers, lanes, warps.
LinearLayout numberedByPlace(const LinearLayout &layout, int axis);

} // namespace neso
