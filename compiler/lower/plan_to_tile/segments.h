// Kernels of a Segments node: a program folds the segment of one row, a block of neighbouring columns at a time.
#pragma once
#include "lower/plan_to_tile/emit.h"
#include "lower/tiling/segments.h"

namespace neso {

void emitSegments(KernelContext &k, const Facts &facts, const SegmentsTiling &tiling);

} // namespace neso
