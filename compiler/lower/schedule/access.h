// Helpers of scheduling over what nodes touch (ir/loops/access.h).
#pragma once
#include "ir/loops/access.h"
#include "ir/shape/usual.h"

namespace neso::schedule {

/// Gives the Indirect symbols of a node the numbers from `next` on, so that they are unique in a kernel.
void renumberIndirects(loops::Node &node, size_t &next);

} // namespace neso::schedule
