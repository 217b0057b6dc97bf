// Where a mask is true, as tensors whose size the data decides.
#pragma once
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

/// [count] I64: the positions of the true elements of a mask in row-major order, as flat indices. Reads how many there are
/// and defines `count` (Lowering::define).
Tensor positionsOf(const Tensor &mask, Expr count);
/// Flat positions in a tensor of `sizes` as one index a dimension.
Tensors coordinatesOf(const Tensor &positions, const Sizes &sizes);

} // namespace neso::lower
