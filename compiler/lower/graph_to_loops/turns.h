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
/// Row c of a tensor in memory, and what puts one there.
Tensor rowOf(const Tensor &x, Expr c);
void putRow(const Tensor &x, const Tensor &rows, Expr c);
/// x is stored at number `at` of dim `dim` of `all`, a tensor in memory; from there on.
void putAt(const Tensor &x, const Tensor &all, int64_t dim, Expr at);
void putFrom(const Tensor &x, const Tensor &all, int64_t dim, Expr first);
/// The buffer in which what carry() made lies.
BufferId bufferOf(const Tensor &carried);
/// The end of a turn: what was computed from the carried values takes their place, all at once. What lies there already stays, what nobody
/// else still reads is written straight there, and only the rest waits in memory of its own: `from` of (b, a) to (a, b) takes one copy more.
void putAll(Tensors from, const Tensors &to);

/// body(0) … body(count - 1), one after the other.
void forTurns(Lowering &ctx, Expr count, const std::function<void(Expr turn)> &body);
/// body() as long as `test`, a Bool [] of what is carried, holds.
void whileTrue(Lowering &ctx, const std::function<Tensor()> &test, const std::function<void()> &body);

} // namespace neso::lower
