// Strides that only the example inputs of an export gave.
#pragma once
#include <optional>

#include "ir/graph/verify.h"

namespace neso::pt2 {

/// torch.export describes an input as its example lay in memory: x[:, -2:] with a dynamic batch [s18, 2] has the strides [s61, 1] and the
/// offset s38, and no size says what s61 and s38 are. A model's results do not depend on them, and the runtime copies inputs that lie
/// otherwise than a package says. So they become what a tensor without gaps has: s61 = 2, s38 = 0.
///
///     input_ids: i64[s18, 2] strides [s61, 1]     →     input_ids: i64[s18, 2] strides [2, 1]
///
/// Guards on them were for torch's own tracing and go. Returns the first that the model computes with, or whose memory it looks at
/// (as_strided): that one's value is needed. Inputs, sizes and guards must have been read.
std::optional<graph::UnknownSymbol> settleInputStrides(graph::Model &model);

} // namespace neso::pt2
