// Weights that lie in one storage: which of them are the same, and who would not see what a run writes to one.
#pragma once
#include "base/diagnostics.h"
#include "ir/graph/graph.h"

namespace neso::graph {

/// Whether two weights are the same view of the same storage.
bool sameView(const Weight &a, const Weight &b);

/// What a run writes to a weight, those must see that lie in the same memory. `found` are the writes that in-place
/// operators amount to: the same view under another name sees them. In a graph that came functional already nobody does.
/// Who is neither read nor written in the graph sees them when the run is over.
Status writesAreSeen(const Model &m, const std::vector<Output> &found);

} // namespace neso::graph
