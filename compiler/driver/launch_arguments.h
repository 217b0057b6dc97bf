// What each parameter of a user's kernel gets in one launch: the model's values where the bundle's row says "input",
// else the row's own.
#pragma once
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "driver/launched_kernel.h"
#include "frontend/pt2/kernel_bundle.h"
#include "ir/graph/graph.h"

namespace neso {

/// One a parameter of the row, in order. `isOperator`: the node is an operator of the user's; pointers that are none of
/// its arguments stay without a tensor, for its results. A Number's tensor is the model's float itself. Errors: KernelBundleMismatch, KernelArgument.
Result<std::vector<BoundParameter>> bindParameters(const graph::Graph &g, const graph::Node &n,
                                                   const pt2::BundledLaunch &row, bool isOperator);

/// KernelBundleMismatch and KernelArgument, at the node.
Error bundleMismatch(const graph::Node &n, const pt2::BundledLaunch &row, const std::string &why);
Error badArgument(const graph::Node &n, const pt2::BundledLaunch &row, const std::string &parameter,
                  const std::string &why);

} // namespace neso
