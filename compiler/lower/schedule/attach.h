// Fusion across the boundary of a user's kernel: a pointwise kernel that only makes what the user's kernel loads is computed at those loads,
// and one that reads what it stores goes on before the stores. Neither needs to see inside: the front end has said (UserKernelSpec::Argument)
// for each argument whether all its accesses tell which element they touch, and how often an element is touched.
//
//     mul:  t[x0] = 2 * x[x0]            scale: t -> u, each element loaded and stored once        relu: y[x0] = max(u[x0], 0)
//  -> one kernel: scale with t computed where it was loaded, y stored where u was; t and u have no memory
//
// The nodes of a neighbour then run over one dimension, the elements of the tensor between: x0 of its ranges is the element that an access
// touches. So the neighbour must make (or read) the tensor densely, each element at one point of its space.
//
// A producer is computed anew for every load: the more often an element is loaded, the cheaper it must be. A consumer goes along only where
// what the kernel does not store holds nothing (torch.empty): other elements would be missed.
// It stands between the forming of kernels and the placing of buffers: kernels may still go and buffers lose their memory.
#pragma once
#include "ir/plan/plan.h"

namespace neso::schedule {

/// Removes kernels that became part of a user's kernel; says in decisions what was done, or why not. Returns where each
/// kernel is now; invalid: it is no kernel any more.
std::vector<plan::KernelId> attachNeighbours(plan::Plan &plan);

} // namespace neso::schedule
