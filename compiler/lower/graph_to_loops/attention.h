// Lowering of attention that was recognised in written-out form.
#pragma once
#include <functional>

#include "lower/graph_to_loops/attention_match.h"
#include "lower/graph_to_loops/tensor.h"

namespace neso::lower {

/// Adds the Attention node of a match. value: the tensor of a graph value that the match names. The result has
/// `outSizes`, the sizes of the second product's result.
Tensor matchedAttention(const AttentionMatch &match, const std::function<Tensor(graph::ValueId)> &value,
                        const Sizes &outSizes);

} // namespace neso::lower
