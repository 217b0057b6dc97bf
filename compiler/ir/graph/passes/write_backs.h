// What a file writes back to an input or a weight is copied there, as torch does when it runs the file: into other elements' type, and broadcast.
// run_decompositions() leaves that copy out where nothing reads it. The model returns what was written back then, not what was given.
//
//     %s : c64[] -> buffer b : f64[3]        %c = copy(%b, %s) : f64[3] -> buffer b
//
// Errors: MutationUnsupported where the sizes do not allow it; torch cannot run such a file either.
#pragma once
#include "ir/graph/graph.h"

namespace neso::graph {

Status copyWriteBacks(Model &model);

} // namespace neso::graph
