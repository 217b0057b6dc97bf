// Helpers of scheduling over what nodes touch (ir/loops/access.h).
#pragma once
#include "ir/loops/access.h"

namespace neso::schedule {

/// Gives the Indirect symbols of a node the numbers from `next` on, so that they are unique in a kernel.
void renumberIndirects(loops::Node &node, size_t &next);

/// A usual value of a size expression, for ordering by size: each symbol at `usual`, or the nearest value in its range.
int64_t hint(Expr e, const Facts &facts, int64_t usual = 64);

} // namespace neso::schedule
