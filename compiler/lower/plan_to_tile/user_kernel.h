// The nodes that the schedule put into a user's kernel (lower/schedule/attach.h), emitted at its loads and stores.
//
//     %v = tt.load %x_ptr + %i, %m, %other     ->   the nodes that make x at element %i, their loads under %m; select(%m, value, %other)
//     tt.store %y_ptr + %i, %v, %m             ->   the nodes that read y at element %i, with %v for it, their stores under %m
#pragma once
#include "ir/tile/tile.h"
#include "lower/plan_to_tile/emit.h"

namespace neso {

/// `k.code.args` are the arguments of the attached nodes alone, with their `types`; `own` are those of `func`, a copy
/// of the user's function. Nodes before position `user` make what the function loads, those behind it use what it
/// stores. Afterwards the function's parameters and the kernel's args are those of `own` that are still needed, then
/// the others.
void attachToUserKernel(KernelContext &k, tt::FuncOp func, size_t user, const std::vector<mlir::Type> &types,
                        std::vector<plan::KernelArg> own);

} // namespace neso
