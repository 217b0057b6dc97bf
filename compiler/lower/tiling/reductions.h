// Reductions in the form in which tile programs have them.
#pragma once
#include "lower/tiling/target.h"

namespace neso {

/// Reductions over no dimension at all (all of theirs had one element) become pointwise nodes: in a kernel with an
/// inner space of other nodes they must not fold over it.
void dropEmptyReductions(plan::Kernel &kernel);

/// Rewrites Welford and OnlineSoftmax reductions as two plain ones over the same data: sum, then squared deviations;
/// maximum, then sum of exponentials. On a row that fits the cache, or a block's registers, the second pass costs less
/// than the combining of triples, and it is as exact. Longer rows of thread blocks keep the one pass.
void expandTwoPassReductions(plan::Plan &plan, plan::Kernel &kernel, const TileTarget &target);

} // namespace neso
