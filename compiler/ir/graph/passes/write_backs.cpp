#include "ir/graph/passes/write_backs.h"

#include <unordered_map>

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
  std::unordered_map<ValueId, ValueId> written; // by what is given: what lies where it was written last
  for (size_t i = 0; i < m.outputs.size(); ++i) {
    Output &o = m.outputs[i];
    const ValueId home = homeOf(m, o);
    if (!home.valid() || !std::holds_alternative<ValueId>(o.value) || !std::get<ValueId>(o.value).valid()) continue;
    const ValueId given = std::get<ValueId>(o.value);
    const Value &to = m.graph.value(home), &from = m.graph.value(given);
    if (to.kind != Value::Kind::Tensor || from.kind != Value::Kind::Tensor) continue;
    written[given] = given;
    if (from.type.dtype == to.type.dtype && from.type.sizes == to.type.sizes) continue;
    if (!broadcasts(from.type.sizes, to.type.sizes)) return fail(diag::MutationUnsupported, {}, "the model", "what it writes back to '" + o.target + "' has other sizes than that");
    TensorType type = to.type;
    type.offset = 0;
    const ValueId copy = emitCall(m.graph, m.graph.nodes, Node(), "aten.copy.default", {home, given}, from.name + "_written_back_" + std::to_string(i), type);
    o.value = m.graph.outputs[i] = written[given] = copy;
  }
  for (size_t i = 0; i < m.outputs.size(); ++i) {
    const ValueId *shown = std::get_if<ValueId>(&m.outputs[i].value);
    if (m.outputs[i].kind != Output::Kind::User || !shown) continue;
    if (const auto found = written.find(*shown); found != written.end()) m.outputs[i].value = m.graph.outputs[i] = found->second;
  }
  return Status::ok();
}

} // namespace neso::graph
