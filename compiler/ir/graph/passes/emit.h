// How passes add calls.
#pragma once
#include "ir/graph/graph.h"

namespace neso::graph {

/// Puts a call with one tensor as its result behind `nodes`, bound to its schema, at the line and in the module of `like`. A call that the
/// schema refuses is a fault of the caller's.
ValueId emitCall(Graph &graph, std::vector<Node> &nodes, const Node &like, std::string target, std::vector<Argument> args, std::string name, TensorType type);

} // namespace neso::graph
