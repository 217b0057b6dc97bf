// Tile program of a sort along the inner dimension, by the method that lower/tiling/sorts.h chose: sort_tiles.h for
// programs of many threads, sort_digits.h for those of one. Positions break ties, which makes every method stable.
#pragma once
#include "lower/plan_to_tile/emit.h"
#include "lower/tiling/sorts.h"

namespace neso {

void emitSort(KernelContext &k, const Facts &facts, const SortTiling &tiling);

} // namespace neso
