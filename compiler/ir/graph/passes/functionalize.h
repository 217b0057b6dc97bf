// Rewrites a graph so that no operator writes to an argument and no value shares memory with another as far as the program can tell.
//
//     x.relu_()                  ->  relu(x), and later uses of x read the result
//     y = x[:, 0]; y.mul_(2)     ->  m = mul(x[:, 0], 2); x' = select_scatter(x, m, 1, 0); later uses of x and of its views read x'
//     buffer.add_(1)             ->  add(buffer, 1), and an output BufferMutation
//
// Each tensor belongs to a memory with a current value; a view is a chain of view operators from that memory. A write computes the
// functional operator on the view's current value, carries the result back through the chain with scatter operators and makes it the
// memory's current value; a view that is read later is made again from it. What was written to inputs, buffers and parameters at the
// end becomes an Output, placed before the user's outputs as torch does in its functional form.
//
// Operators that return their input or a copy depending on strides or dtype (reshape, contiguous, to) count as views exactly when
// PyTorch would have shared memory.
//
// Afterwards (verify with Form::Functional): no operator mutates. View operators remain, as pure functions of their input. Sizes that
// are not constants may appear as SymInt values that no node defines; their expr is set.
//
// It comes first of all graph passes, because every other one wants to move and merge nodes freely.
// Errors: MutationUnsupported.
#pragma once
#include "ir/graph/graph.h"

namespace neso::graph {

Status functionalize(Model &model);

} // namespace neso::graph
