// Blocks of segments: a program folds one segment, for all neighbours that share its ends.
#pragma once
#include "lower/tiling/target.h"

namespace neso {

struct SegmentsTiling {
  /// Elements along the last outer dimension that a program has, a power of two; 0: one, whose segment has ends of its
  /// own.
  int64_t columns = 0;
  int warps = 1;
};

/// Of a kernel of one Segments node.
SegmentsTiling chooseSegmentsTiling(const plan::Plan &plan, const plan::Kernel &kernel, const TileTarget &target);

} // namespace neso
