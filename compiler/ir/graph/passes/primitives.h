// Calls of torch._prims, in which PyTorch's whole table of decompositions ends, become calls of the ATen operators that mean the same.
//
//     %y = prims.broadcast_in_dim(%x, [2, 3], [0])  ->  %y = aten.expand(aten.unsqueeze(%x, 1), [2, 3])
//     %z = prims.div(%i, %j)                        ->  %z = aten.div.Tensor_mode(%i, %j, "trunc")      (of integers)
//
// It comes before functionalize, which knows ATen's views. What has no counterpart stays, and is refused where it is lowered.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "ir/graph/graph.h"

namespace neso::graph {

void openPrimitives(Model &model);
/// The operator that calls of a primitive become; nullopt: they stay.
std::optional<std::string> primitiveAs(std::string_view target);

} // namespace neso::graph
