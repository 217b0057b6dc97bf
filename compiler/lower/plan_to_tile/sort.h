// Tile program of a sort along the inner dimension: heapsort by one program a row, in place in the output (Williams
// 1964). It needs no workspace, costs O(n log n), and gives one order whatever the number of threads; positions break
// ties, which makes it stable. Targets of thread blocks sort tiles: sort_tiles.h.
#pragma once
#include "lower/plan_to_tile/emit.h"

namespace neso {

void emitSort(KernelContext &k, const Facts &facts);

} // namespace neso
