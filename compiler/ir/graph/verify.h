// The executable specification of a graph. Each invariant has a number, which the diagnostic and the test name.
#pragma once
#include "ir/graph/graph.h"

namespace neso::graph {

enum class Form : uint8_t {
  AsExported, // operators may write to their arguments
  Functional, // after passes/functionalize
};

/// Checks every invariant; GraphInvalid names the first that does not hold. Time: linear in the graph.
Status verify(const Graph &graph, Form form);
Status verify(const Model &model, Form form);

} // namespace neso::graph
