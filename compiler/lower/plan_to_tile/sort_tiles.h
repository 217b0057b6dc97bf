// Sorts for targets whose programs are run by blocks of threads. Rows that a program holds are sorted in its registers (ttg.sort); of
// longer ones each element's place is the number of those that stand before it.
#pragma once
#include "lower/plan_to_tile/emit.h"

namespace neso {

void emitTileSort(KernelContext &k, const Facts &facts);

} // namespace neso
