// Sorts for targets whose programs are run by one thread each, in scratch memory (loops::SortScratch).
//
// Elements are packed into unsigned words whose order is that of the result (sort_order.h). A row is then sorted by
// digits of 8 bits, the lowest first: each pass counts, sums the counts up and deals the words out, and a digit that is
// the same everywhere takes no pass. Few elements are sorted by insertion; where only the first few of many are wanted
// they are kept in a heap, into which an element comes that stands before the heap's last.
#pragma once
#include "lower/plan_to_tile/emit.h"
#include "lower/tiling/sorts.h"

namespace neso {

/// The kernel's only node is a Sort with scratch memory.
void emitDigitSort(KernelContext &k, const Facts &facts, const SortTiling &tiling);

} // namespace neso
