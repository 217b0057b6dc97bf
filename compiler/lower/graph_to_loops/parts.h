// Complex tensors as real ones.
#pragma once
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

/// Both parts of a complex tensor as a real one [..., 2]: the memory in which it lies, where it has one. May realize.
Tensor partsOf(const Tensor &x);

} // namespace neso::lower
