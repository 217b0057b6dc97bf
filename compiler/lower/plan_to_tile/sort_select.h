// The element at one place of a sorted row (loops::SortSpec::place), for targets whose programs are run by one thread each.
//
// The row's keys are packed, as unsigned words in the order of the result, into scratch memory (loops::SortScratch). Between the least
// and the greatest word the half in which the place lies is chosen by counting the words up to the middle, a tile at a time, until one
// word is left; where few of the words that are looked at are left, they are moved together and only they are looked at further. Among
// equal keys the position decides: the right one of the equals is counted out from the front.
//
// A pass takes a comparison and an addition for a vector of words, so counting the bits of a key one by one is quicker than sorting words
// into the buckets of a digit, one at a time.
#pragma once
#include "lower/plan_to_tile/emit.h"
#include "lower/tiling/sorts.h"

namespace neso {

/// The kernel's only node is a Sort with a place and scratch memory.
void emitSelection(KernelContext &k, const Facts &facts, const SortTiling &tiling);

} // namespace neso
