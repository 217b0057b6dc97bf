// What a pointwise node computes several times in a row is computed once, where none of its readers could be in its kernel anyway.
//
//     k[i0, i1, i2] = f(t[i0, i1//4, i2]), i1 < 32                k[i0, i1, i2] = f(t[i0, i1, i2]), i1 < 8
//     attention: keys k[b, h, n]                             →    attention: keys k[b, h//4, n]
//
// Key heads that serve several query heads each, a bias that is the same for a whole batch, a mask that is the same for all heads: memory and
// arithmetic fall by the number of repeats. What a reader finds side by side stays so.
//
// Readers of kinds that fusion joins with their producers (pointwise nodes, reductions) rule it out: there the value needs no memory. So do
// products, whose blocks want operands with the dimensions that they had.
//
// Stands before products are joined, which asks who reads their results row by row.
#pragma once
#include "lower/schedule/schedule.h"
#include "lower/schedule/users.h"

namespace neso::schedule {

Remarks shareRepeats(loops::Program &program, const MachineSheet &machine);

} // namespace neso::schedule
