// Sorts for targets whose programs are run by blocks of threads. Rows that a program holds are sorted in its registers
// (ttg.sort); runs of longer ones are merged, tile by tile (lower/schedule makes the passes). Of rows of 2^30
// elements or more each element's place is the number of those that stand before it.
#pragma once
#include "lower/plan_to_tile/emit.h"
#include "lower/tiling/sorts.h"

namespace neso {

void emitTileSort(KernelContext &k, const Facts &facts, const SortTiling &tiling);

} // namespace neso
