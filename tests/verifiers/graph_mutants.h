// One thing of a graph dropped or altered: every place that names a value, a type, an argument, an order, a weight.
#pragma once
#include <vector>

#include "ir/graph/graph.h"
#include "verifiers/mutants.h"

namespace neso::test {

/// Each change is one of a field that some invariant of ir/graph/verify.h is about. Which dtype and sizes the result of an
/// operator has is no invariant of the graph: only the operator's lowering knows (GraphContradictsItself).
std::vector<Mutant<graph::Model>> mutantsOf(const graph::Model &model);

} // namespace neso::test
