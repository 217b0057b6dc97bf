#include "driver/bundle_rows.h"

#include <algorithm>

#include "base/diagnostics/pt2.h"

namespace neso {

using graph::Node;
using pt2::BundledLaunch;

namespace {

constexpr std::string_view kMutation = "higher_order.triton_kernel_wrapper_mutation",
                           kFunctional = "higher_order.triton_kernel_wrapper_functional";

/// "op" of a row and target of a node in one spelling: "mylib::add".
std::string operatorName(std::string_view target) {
  std::string s(target);
  if (size_t colons = s.find("::"); colons == std::string::npos) {
    size_t dot = s.find('.');
    if (dot != std::string::npos) s.replace(dot, 1, "::");
  }
  size_t overload = s.find('.', s.find("::") == std::string::npos ? 0 : s.find("::"));
  return overload == std::string::npos ? s : s.substr(0, overload);
}

} // namespace

bool isKernelWrapper(const Node &n) { return n.target == kMutation || n.target == kFunctional; }
bool isFunctionalWrapper(const Node &n) { return n.target == kFunctional; }

const std::string *textArgument(const Node &n, std::string_view name) {
  const graph::Argument *a = n.arg(name);
  return a ? std::get_if<std::string>(a) : nullptr;
}

const BundledLaunch *BundleRows::of(const Node &n) {
  const std::string *name = textArgument(n, "name");
  // Exactly this node; then a row of the kernel's name that no node has taken (files of old versions do not name their
  // nodes), then one that another has: the same launch again.
  for (int pass = 0; pass < 4; ++pass)
    for (size_t i = 0; i < bundle_.launches.size(); ++i) {
      const BundledLaunch &row = bundle_.launches[i];
      bool sameNode = !row.node.empty() && row.node == n.name, sameName = name && row.name == *name;
      bool fits = pass == 0   ? sameNode && sameName && !used_[i]
                  : pass == 1 ? sameName && !used_[i]
                  : pass == 2 ? sameName
                              : sameNode && !name;
      if (!fits || !row.op.empty()) continue;
      used_[i] = true;
      return &row;
    }
  return looseRow(n);
}

/// The kernels that a source defines; none if it cannot be read.
const std::vector<triton::KernelInfo> &BundleRows::kernelsOf(const std::string &file) {
  auto [it, fresh] = kernels_.try_emplace(file);
  if (!fresh) return it->second;
  Result<std::vector<triton::KernelInfo>> kernels = triton::listKernels(file, paths_);
  if (kernels)
    it->second = std::move(*kernels);
  else
    for (const Diagnostic &d : kernels.error().diagnostics()) unreadable_.push_back(d);
  return it->second;
}

/// Sources without launches.json: the kernel is found by its name, and what the file of the model does not say must
/// have a default.
const BundledLaunch *BundleRows::looseRow(const Node &n) {
  const std::string *name = textArgument(n, "name");
  if (!name) return nullptr;
  std::string function = name->substr(0, name->rfind('_'));
  for (const std::string &file : bundle_.looseFiles) {
    for (const triton::KernelInfo &k : kernelsOf(file)) {
      if (k.name != function) continue;
      auto row = std::make_unique<BundledLaunch>();
      row->node = n.name, row->name = *name, row->file = file, row->function = function;
      const auto *types =
          n.arg("kernel_param_types") ? std::get_if<std::vector<std::string>>(n.arg("kernel_param_types")) : nullptr;
      const auto *names =
          n.arg("kernel_param_names") ? std::get_if<std::vector<std::string>>(n.arg("kernel_param_names")) : nullptr;
      for (const triton::ParamInfo &p : k.params) {
        std::string type = "constexpr";
        for (size_t i = 0; !p.isConstexpr && names && types && i < std::min(names->size(), types->size()); ++i)
          if ((*names)[i] == p.name) type = (*types)[i];
        row->parameters.push_back(p.name);
        row->signature.push_back(type);
        if (n.arg(p.name)) row->values.emplace_back(p.name, "input");
      }
      if (const int64_t *w = n.arg("num_warps") ? std::get_if<int64_t>(n.arg("num_warps")) : nullptr)
        row->numWarps = static_cast<int>(*w);
      loose_.push_back(std::move(row));
      return loose_.back().get();
    }
  }
  return nullptr;
}

std::vector<const BundledLaunch *> BundleRows::ofOperator(const Node &n) {
  std::vector<const BundledLaunch *> rows;
  for (size_t i = 0; i < bundle_.launches.size(); ++i)
    if (!bundle_.launches[i].op.empty() && operatorName(bundle_.launches[i].op) == operatorName(n.target)) {
      rows.push_back(&bundle_.launches[i]);
      used_[i] = true;
    }
  std::sort(rows.begin(), rows.end(), [](const BundledLaunch *a, const BundledLaunch *b) {
    return std::pair(a->index, a) < std::pair(b->index, b);
  });
  return rows;
}

Status BundleRows::reportUnused(DiagnosticSink &sink) const {
  for (size_t i = 0; i < used_.size(); ++i) {
    const BundledLaunch &row = bundle_.launches[i];
    if (used_[i]) continue;
    if (!row.op.empty())
      return fail(diag::KernelBundleMismatch, {}, row.function, "the model has no operator " + row.op);
    sink.warn(makeDiag(diag::KernelRowUnused, {}, row.function, row.node.empty() ? row.name : row.node));
  }
  return Status::ok();
}

/// The operator behind "auto_functionalized_v2", which is its first argument.
static std::string_view functionalizedOperator(const Node &n) {
  const std::string *op = n.target == "higher_order.auto_functionalized_v2" && !n.args.empty()
                              ? std::get_if<std::string>(&n.args[0])
                              : nullptr;
  return op ? std::string_view(*op) : std::string_view();
}

bool launchesKernels(const graph::Graph &g, const pt2::KernelBundle &bundle) {
  for (const Node &n : g.nodes) {
    if (isKernelWrapper(n)) return true;
    for (const BundledLaunch &l : bundle.launches)
      if (!l.op.empty() && (operatorName(l.op) == operatorName(n.target) ||
                            operatorName(l.op) == operatorName(functionalizedOperator(n))))
        return true;
    for (const graph::Argument &a : n.args)
      if (const auto *sub = std::get_if<std::shared_ptr<graph::Graph>>(&a); sub && launchesKernels(**sub, bundle))
        return true;
  }
  return false;
}

} // namespace neso
