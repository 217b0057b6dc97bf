// Splits long reductions with few results in two, so that all cores have work: [] over [1048576] becomes [256] over [4096] into partial
// results, then [] over [256]. The number of parts depends on the sizes alone, never on the machine's load: results are deterministic.
#pragma once
#include "ir/loops/loops.h"
#include "lower/schedule/schedule.h"

namespace neso::schedule {

/// Rewrites every such node of the program; the partial results are new temps.
void splitReductions(loops::Program &program, const SplitRule &rule);

} // namespace neso::schedule
