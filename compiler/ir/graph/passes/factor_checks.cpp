#include "ir/graph/passes/factor_checks.h"

#include "base/rules.h"
#include "ir/graph/ops.h"
#include "ir/graph/passes/emit.h"
#include "ir/graph/passes/views.h"
#include "ir/graph/visit.h"

namespace neso::graph {
namespace {

/// An operator that raises, the one that tells, of the same arguments, and the name that torch gives it in its message.
struct Raising {
  std::string_view target, telling, api;
};
constexpr Raising kRaising[] = {
    {"aten.linalg_inv.default", "aten.linalg_inv_ex.default", "linalg.inv"},
    {"aten.inverse.default", "aten.linalg_inv_ex.default", "linalg.inv"},
    {"aten.linalg_cholesky.default", "aten.linalg_cholesky_ex.default", "linalg.cholesky"},
    {"aten.cholesky.default", "aten.linalg_cholesky_ex.default", "cholesky"},
    {"aten.linalg_solve.default", "aten.linalg_solve_ex.default", "torch.linalg.solve"},
    {"aten.linalg_lu_factor.default", "aten.linalg_lu_factor_ex.default", "torch.linalg.lu_factor"},
    {"aten.linalg_ldl_factor.default", "aten.linalg_ldl_factor_ex.default", "torch.linalg.ldl_factor"},
};
/// Those that raise where they are asked to, by an argument check_errors.
constexpr Raising kAsked[] = {
    {"aten.linalg_inv_ex.default", "", "linalg.inv_ex"},
    {"aten.linalg_cholesky_ex.default", "", "linalg.cholesky_ex"},
    {"aten.linalg_solve_ex.default", "", "torch.linalg.solve"},
    {"aten._linalg_solve_ex.default", "", "torch.linalg.solve"},
    {"aten.linalg_lu_factor_ex.default", "", "torch.linalg.lu_factor"},
    {"aten.linalg_ldl_factor_ex.default", "", "torch.linalg.ldl_factor"},
};

/// By the words in the name, as torch has it: _linalg_check_errors brings no other sign of which operator asks.
std::string messageOf(std::string_view api) {
  const auto has = [&](std::string_view part) { return api.find(part) != api.npos; };
  const char *what = has("inv")        ? "the inversion could not be completed because the input matrix is singular"
                     : has("solve")    ? "The solver failed because the input matrix is singular"
                     : has("cholesky") ? "The factorization could not be completed because the input is not positive-definite"
                     : has("lu_factor") ? "a diagonal element of U is zero and using it on lu_solve would result in a division by zero"
                                        : "The algorithm failed to converge, or its input cannot be factored";
  return std::string(api) + ": " + what;
}

class Checks {
public:
  Checks(Graph &g, std::vector<Node> &nodes) : g_(g), nodes_(nodes) {}

  void take(Node n) {
    if (n.target == "aten._linalg_check_errors.default") return check(n);
    for (const Raising &r : kRaising)
      if (n.target == r.target && telling(n, r)) return requireNone(nodes_.back(), nodes_.back().outputs.back()[0], r.api);
    const Argument *asked = n.arg("check_errors");
    const bool *raises = asked ? std::get_if<bool>(asked) : nullptr;
    nodes_.push_back(std::move(n));
    if (!raises || !*raises) return;
    for (const Raising &r : kAsked)
      if (nodes_.back().target == r.target) return requireNone(nodes_.back(), nodes_.back().outputs.back()[0], r.api);
  }

private:
  void check(const Node &n) {
    const ValueId *info = n.args.empty() ? nullptr : std::get_if<ValueId>(&n.args[0]);
    const std::string *api = n.args.size() > 1 ? std::get_if<std::string>(&n.args[1]) : nullptr;
    if (info && info->valid()) requireNone(n, *info, api ? *api : "torch.linalg");
  }

  /// The call of the operator that tells, behind the nodes.
  bool telling(const Node &n, const Raising &r) {
    const ValueId *matrix = n.args.empty() ? nullptr : std::get_if<ValueId>(&n.args[0]);
    if (!matrix || !matrix->valid() || g_.value(*matrix).type.rank() < 2) return false;
    Node call = n;
    call.target = r.telling;
    // Both have the same arguments in one order, and check_errors is false unless it is said.
    call.argNames.clear();
    if (!bindArguments(call, g_)) return false;
    TensorType info;
    info.dtype = DType::I32;
    const std::vector<Expr> &sizes = g_.value(*matrix).type.sizes;
    info.sizes.assign(sizes.begin(), sizes.end() - 2);
    info.strides = contiguousStrides(info.sizes);
    call.outputs.push_back({g_.addValue(n.name + ".info", info)});
    nodes_.push_back(std::move(call));
    return true;
  }

  void requireNone(const Node &from, ValueId info, std::string_view api) {
    applied(Rule::AssertFactor);
    // `from` may lie among the nodes that grow.
    const Node like = from;
    const std::string name = g_.value(info).name;
    TensorType flags = g_.value(info).type, one;
    flags.dtype = one.dtype = DType::Bool;
    const ValueId bad = emitCall(g_, nodes_, like, "aten.ne.Scalar", {info, int64_t(0)}, name + ".bad", flags);
    const ValueId any = emitCall(g_, nodes_, like, "aten.any.default", {bad}, name + ".any", one);
    const ValueId none = emitCall(g_, nodes_, like, "aten.logical_not.default", {any}, name + ".none", one);
    Node n;
    n.target = "aten._assert_async.msg", n.args = {none, messageOf(api)}, n.loc = like.loc, n.module = like.module;
    nodes_.push_back(std::move(n));
  }

  Graph &g_;
  std::vector<Node> &nodes_;
};

} // namespace

void assertFactors(Model &m) {
  forEachGraph(m.graph, [](Graph &g) {
    std::vector<Node> nodes;
    Checks checks(g, nodes);
    for (Node &n : g.nodes) checks.take(std::move(n));
    g.nodes = std::move(nodes);
  });
}

} // namespace neso::graph
