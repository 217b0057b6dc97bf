// Calls that ask an operator for a result of a wider type than its operands give, as integer forms of quantised models do.
#pragma once
#include "ir/graph/graph.h"

namespace neso::graph {

/// The operands become tensors of the type that they and the result have in common, the operator computes with them, and what it gives
/// becomes the result's type: torch's own meaning of the call. It follows functionalize, and leaves calls whose operator it cannot type.
///     %y = higher_order.out_dtype("aten.mul.Tensor", i32, %x, %s)   ->   %y = aten.mul(_to_copy(%x, i32), _to_copy(%s, i32))
void openDtypeCalls(Model &model);

} // namespace neso::graph
