// Where a mask is true, as tensors whose size the data decides.
#pragma once
#include "ir/shape/rounded.h"
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

/// [count] I64: the positions of the true elements of a mask in row-major order, as flat indices. Reads how many there are
/// and defines `count` (Lowering::define).
/// `counted`, if the caller has it, is countUp(mask).
Tensor positionsOf(const Tensor &mask, Expr count, const Tensor &counted = {});
/// [n] I64 of a flat mask: how many elements up to each, itself among them, are true.
Tensor countUp(const Tensor &mask);
/// Computes a number that is rounded from doubles, of numbers that are known, and reads it into its symbol.
void defineRounded(Lowering &ctx, const RoundedSize &size);
/// Flat positions in a tensor of `sizes` as one index a dimension.
Tensors coordinatesOf(const Tensor &positions, const Sizes &sizes);

} // namespace neso::lower
