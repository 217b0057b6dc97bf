// Which values lie in memory as the example inputs of the export did.
//
// An example that expand or unfold made holds several of its elements in one place. Any tensor of its sizes may be given to a run, so that such
// an input is laid row by row instead, and what the model says of its views' strides no longer holds.
#pragma once
#include <cstdint>
#include <unordered_set>

#include "ir/graph/graph.h"

namespace neso::lower {

using ValueSet = std::unordered_set<int32_t>;

/// Values whose memory an operator addresses by itself, through views too: as_strided, kernels of the user's. They have to lie as the model says.
ValueSet addressedIn(const graph::Graph &g);
/// Adds all views of values in the set.
void addViews(const graph::Graph &g, ValueSet &values);

} // namespace neso::lower
