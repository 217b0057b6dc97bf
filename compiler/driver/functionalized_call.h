// A closed operator that changes its arguments, as run_decompositions() leaves it: higher_order.auto_functionalized_v2 gets bases, and says
// which views of them are the operator's arguments and which new bases come out.
//
//     %r, %b = auto_functionalized_v2("mylib::double_", _x_base_index=0, _all_bases=[%x])   ->   %b = clone(%x); mylib::double_(x=%b)
#pragma once
#include "base/diagnostics.h"
#include "ir/graph/graph.h"
#include "ir/shape/expr.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace neso {

/// Turns such a node back into the call that it was, where `isOurs` says so of the call; its new bases begin as copies,
/// which it changes in place. What must run before it joins g's nodes. Other nodes stay as they are. Error:
/// KernelBundleMismatch for a view without a fixed place.
Status undoFunctionalization(graph::Graph &g, graph::Node &n, const Facts &facts,
                             llvm::function_ref<bool(const graph::Node &)> isOurs);

} // namespace neso
