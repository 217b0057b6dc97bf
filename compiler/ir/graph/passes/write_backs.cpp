#include "ir/graph/passes/write_backs.h"

#include "base/diagnostics/graph.h"
#include "ir/graph/passes/emit.h"

namespace neso::graph {

/// The value that the run finds where the output goes back to; invalid: the output is returned, or the graph does not read what lies there.
static ValueId homeOf(const Model &m, const Output &o) {
  using Kind = Output::Kind;
  if (o.kind != Kind::InputMutation && o.kind != Kind::BufferMutation && o.kind != Kind::ParameterMutation) return {};
  for (const Input &in : m.inputs) {
    const bool user = in.kind == Input::Kind::User && o.kind == Kind::InputMutation && in.name == o.target;
    const bool weight = in.kind == Input::Kind::Weight && o.kind != Kind::InputMutation && m.weights[static_cast<size_t>(in.weight)].fqn == o.target;
    if (user || weight) return in.value;
  }
  return {};
}

static bool broadcasts(const std::vector<Expr> &from, const std::vector<Expr> &to) {
  if (from.size() > to.size()) return false;
  for (size_t d = 0; d < from.size(); ++d) {
    const Expr size = from[from.size() - 1 - d], wanted = to[to.size() - 1 - d];
    // Sizes that a run decides are compared when it does.
    if (size != wanted && !size.isConst(1) && size.isConst() && wanted.isConst()) return false;
  }
  return true;
}

Status copyWriteBacks(Model &m) {
  for (size_t i = 0; i < m.outputs.size(); ++i) {
    Output &o = m.outputs[i];
    const ValueId home = homeOf(m, o), *given = std::get_if<ValueId>(&o.value);
    if (!home.valid() || !given || !given->valid()) continue;
    const Value &to = m.graph.value(home), &from = m.graph.value(*given);
    if (to.kind != Value::Kind::Tensor || from.kind != Value::Kind::Tensor) continue;
    if (from.type.dtype == to.type.dtype && from.type.sizes == to.type.sizes) continue;
    if (!broadcasts(from.type.sizes, to.type.sizes)) return fail(diag::MutationUnsupported, {}, "the model", "what it writes back to '" + o.target + "' has other sizes than that");
    TensorType type = to.type;
    type.offset = 0;
    o.value = emitCall(m.graph, m.graph.nodes, Node(), "aten.copy.default", {home, *given}, from.name + "_written_back_" + std::to_string(i), type);
    m.graph.outputs[i] = o.value;
  }
  return Status::ok();
}

} // namespace neso::graph
