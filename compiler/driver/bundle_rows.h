// Which rows of the kernel bundle belong to which nodes of the model.
//
//     rows.of(node)          a triton_kernel_wrapper node: by its name and the kernel's name
//     rows.ofOperator(node)  a custom operator that stayed closed: its launches in order
//
// Each row is taken once where it can be; the same launch again may take it again. Sources without launches.json become rows of their own.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostics.h"
#include "frontend/pt2/kernel_bundle.h"
#include "frontend/triton/triton.h"
#include "ir/graph/graph.h"

namespace neso {

class BundleRows {
public:
  /// `paths`: where sources without launches.json, and what they import, are looked for. Both must outlive this.
  BundleRows(const pt2::KernelBundle &bundle, const std::vector<std::string> &paths)
      : bundle_(bundle), paths_(paths), used_(bundle.launches.size()) {}

  /// Null when the bundle has no source for the node's kernel.
  const pt2::BundledLaunch *of(const graph::Node &node);
  /// Why sources without launches.json could not be read, as far as `of` had to look into them: a kernel that is
  /// missing may be in one of them.
  const std::vector<Diagnostic> &unreadable() const { return unreadable_; }
  std::vector<const pt2::BundledLaunch *> ofOperator(const graph::Node &node);
  /// After all nodes: an error for an operator that the model does not have, a warning for any other row that nobody
  /// took.
  Status reportUnused(DiagnosticSink &sink) const;

private:
  const pt2::BundledLaunch *looseRow(const graph::Node &node);
  const std::vector<triton::KernelInfo> &kernelsOf(const std::string &file);

  const pt2::KernelBundle &bundle_;
  const std::vector<std::string> &paths_;
  std::vector<bool> used_;
  std::vector<std::unique_ptr<pt2::BundledLaunch>> loose_;         // made for sources without launches.json
  std::map<std::string, std::vector<triton::KernelInfo>> kernels_; // of those sources
  std::vector<Diagnostic> unreadable_;
};

/// "triton_kernel_wrapper_mutation" and "…_functional".
bool isKernelWrapper(const graph::Node &node);
bool isFunctionalWrapper(const graph::Node &node);
/// The string argument of that name, or null.
const std::string *textArgument(const graph::Node &node, std::string_view name);
/// Whether any node, those of sub-graphs included, launches kernels of the user's.
bool launchesKernels(const graph::Graph &graph, const pt2::KernelBundle &bundle);

} // namespace neso
