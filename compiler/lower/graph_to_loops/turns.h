// Loops that a lowering function writes itself: steps of which there are many, or of which the data decides how many.
//
// What a turn leaves for the next one lies in memory that carry() made around the loop; a turn computes new values and puts them there
// at its end:
//
//     Tensor x = carry(start);
//     forTurns(ctx, n, [&](Expr turn) { put(step(x, turn).realize(), x); });
#pragma once
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

/// Memory for a tensor of that type, to be stored to.
Tensor place(Lowering &ctx, DType t, const Sizes &sizes);
/// Stores x there. What computing x reads must lie elsewhere.
void put(const Tensor &x, const Tensor &into);
/// x in memory of its own.
Tensor carry(const Tensor &x);

/// body(0) … body(count - 1), one after the other.
void forTurns(Lowering &ctx, Expr count, const std::function<void(Expr turn)> &body);
/// body() as long as `test`, a Bool [] of what is carried, holds.
void whileTrue(Lowering &ctx, const std::function<Tensor()> &test, const std::function<void()> &body);

} // namespace neso::lower
