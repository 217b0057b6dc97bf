// Searching a sorted row.
#pragma once
#include "lower/graph_to_loops/tensor.h"

namespace neso::lower {

/// Steps of a bisection of n elements, at most: 2^steps >= n.
int bisections(const Facts &facts, Expr n);
/// How many elements of a sorted row stand before v: those below it, with `right` also those equal to it. `row` emits the
/// row's element at an index. Each step halves what is left, which is then ceil(n / 2^k) long: the steps are the same
/// for every v, so that lanes stay together.
Val bisect(BodyBuilder &b, const std::function<Val(Expr)> &row, Expr n, Val v, bool right);

} // namespace neso::lower
