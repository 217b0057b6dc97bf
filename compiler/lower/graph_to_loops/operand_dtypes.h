// Which dtypes PyTorch's kernels take. Fake tensors, by which models are traced, do not look and promote: a model that PyTorch cannot run may so be
// exported. It is refused here, where Neso would compute something that no run of PyTorch says.
//
// What one of PyTorch's devices takes is not refused on another one. tools/dtype_refusals.py looks for calls that eager refuses and Neso compiles.
#pragma once
#include <string>

#include "ir/graph/graph.h"

namespace neso::lower {

/// What PyTorch says against the dtypes of the call's operands; empty: nothing.
std::string operandDtypeFault(const graph::Graph &graph, const graph::Node &node);

} // namespace neso::lower
