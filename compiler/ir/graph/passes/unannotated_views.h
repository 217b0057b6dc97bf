// Views that no schema tells of.
#pragma once
#include <functional>

#include "ir/graph/graph.h"

namespace neso::graph {

/// Gives a graph a value whose name begins with `base`.
using NewValue = std::function<ValueId(std::string_view base, TensorType type)>;

/// Operators whose results are views of their arguments, though no schema says so: as calls of views. Empty for others. These, those of
/// `aliasing` and histogramdd's edges are all there are: tools/find_unannotated_views.py asks torch for them.
std::vector<Node> viewsOfEach(Graph &g, const NewValue &newValue, const Node &n);

} // namespace neso::graph
