// Lowering of attention that was recognised in written-out form, and what its forms share.
#pragma once
#include <functional>

#include "lower/graph_to_loops/attention_match.h"
#include "lower/graph_to_loops/tensor.h"

namespace neso::lower {

/// Adds the Attention node of a match. value: the tensor of a graph value that the match names. The result has
/// `outSizes`, the sizes of the second product's result.
Tensor matchedAttention(const AttentionMatch &match, const std::function<Tensor(graph::ValueId)> &value,
                        const Sizes &outSizes);

/// p, the softmax of scores along the last dim, with zeros in rows without any key (all scores -inf); one with scores that are no numbers keeps them.
Tensor zeroWithoutKeys(const Tensor &p, const Tensor &scores);

} // namespace neso::lower
