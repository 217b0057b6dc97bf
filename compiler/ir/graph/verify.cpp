// The invariants:
//   G1  every value id lies in the graph, and value(id).id == id
//   G2  names of values are unique
//   G3  a value is defined once (by an input or a node) and before its use; a symbolic int or bool whose expression is known needs no
//       definition
//   G4  a tensor type has as many strides as sizes, all valid, no negative constant size
//   G5  a node of the table of operators has an argument for each position of its schema, and one list of results for each return
//   G6  inputs and outputs of the model are parallel to those of its graph
//   G7  a weight lies inside its storage
//   G8  a write-back names an existing weight or input
//   G9  (functional form) no operator writes to an argument
#include "ir/graph/verify.h"

#include <unordered_set>

#include "base/diagnostics/graph.h"
#include "ir/graph/ops.h"
#include "ir/graph/visit.h"

namespace neso::graph {
namespace {

class Verifier {
public:
  Verifier(const Graph &g, Form form) : g_(g), form_(form), defined_(g.values.size()) {}

  Status run() {
    std::unordered_set<std::string_view> names;
    for (size_t i = 0; i < g_.values.size(); ++i) {
      const Value &v = g_.values[i];
      if (v.id.index() != i) return broken("G1", "a value's id is its index", v.name);
      if (!names.insert(v.name).second) return broken("G2", "names are unique", v.name);
      if (v.kind == Value::Kind::Tensor)
        if (Status s = type(v); !s) return s;
    }
    for (ValueId id : g_.inputs)
      if (id.valid())
        if (Status s = define(id, "the inputs"); !s) return s;
    for (const Node &n : g_.nodes)
      if (Status s = node(n); !s) return s;
    for (const Argument &a : g_.outputs)
      if (Status s = uses(a, "the outputs"); !s) return s;
    return Status::ok();
  }

private:
  Status broken(const char *number, const char *invariant, std::string_view what) {
    return fail(diag::GraphInvalid, loc_, number, invariant, what);
  }

  Status type(const Value &v) {
    constexpr const char *why = "a tensor type is complete";
    if (v.type.sizes.size() != v.type.strides.size() || !v.type.offset.valid()) return broken("G4", why, v.name);
    for (size_t i = 0; i < v.type.sizes.size(); ++i) {
      if (!v.type.sizes[i].valid() || !v.type.strides[i].valid()) return broken("G4", why, v.name);
      if (v.type.sizes[i].isConst() && v.type.sizes[i].constValue() < 0) return broken("G4", why, v.name);
    }
    return Status::ok();
  }
  Status define(ValueId id, std::string_view by) {
    if (id.index() >= g_.values.size()) return broken("G1", "ids lie in the graph", by);
    if (defined_[id.index()]) return broken("G3", "a value is defined once", g_.value(id).name);
    defined_[id.index()] = true;
    return Status::ok();
  }
  Status uses(const Argument &a, std::string_view by) {
    Status out;
    forEachValue(a, [&](ValueId id) {
      if (!out) return;
      if (id.index() >= g_.values.size()) {
        out = broken("G1", "ids lie in the graph", by);
        return;
      }
      const Value &v = g_.value(id);
      bool free = (v.kind == Value::Kind::SymInt || v.kind == Value::Kind::SymBool) && v.expr.valid();
      if (!defined_[id.index()] && !free) out = broken("G3", "a value is defined before its use", v.name);
    });
    return out;
  }
  Status node(const Node &n) {
    loc_ = n.loc;
    for (const Argument &a : n.args) {
      if (Status s = uses(a, n.name); !s) return s;
      if (const auto *sub = std::get_if<std::shared_ptr<Graph>>(&a))
        if (Status s = Verifier(**sub, form_).run(); !s) return s;
    }
    for (const auto &list : n.outputs)
      for (ValueId id : list)
        if (id.valid())
          if (Status s = define(id, n.name); !s) return s;
    if (const OpSchema *op = findOp(n.target)) {
      if (n.args.size() != op->args.size() || n.argNames.size() != n.args.size())
        return broken("G5", "arguments stand at their positions", n.name);
      if (n.outputs.size() != op->returns.size())
        return broken("G5", "there is a list of results for each return", n.name);
      if (form_ == Form::Functional && op->mutates())
        return broken("G9", "no operator writes to an argument", n.target);
    }
    loc_ = {};
    return Status::ok();
  }

  const Graph &g_;
  Form form_;
  std::vector<bool> defined_;
  SourceLoc loc_;
};

Error brokenModel(const char *number, const char *invariant, std::string_view what) {
  return fail(diag::GraphInvalid, {}, number, invariant, what);
}

} // namespace

Status verify(const Graph &graph, Form form) { return Verifier(graph, form).run(); }

Status verify(const Model &m, Form form) {
  if (Status s = verify(m.graph, form); !s) return s;
  if (m.inputs.size() != m.graph.inputs.size()) return brokenModel("G6", "inputs are parallel", "the inputs");
  if (m.outputs.size() != m.graph.outputs.size()) return brokenModel("G6", "outputs are parallel", "the outputs");
  for (size_t i = 0; i < m.inputs.size(); ++i) {
    const Input &in = m.inputs[i];
    if (in.value != m.graph.inputs[i]) return brokenModel("G6", "inputs are parallel", in.name);
    if (in.kind == Input::Kind::Weight && (in.weight < 0 || static_cast<size_t>(in.weight) >= m.weights.size()))
      return brokenModel("G7", "a weight exists", in.name);
  }
  for (const Weight &w : m.weights) {
    if (w.storage < 0 || static_cast<size_t>(w.storage) >= m.storages.size())
      return brokenModel("G7", "a weight has a storage", w.fqn);
    int64_t last = w.type.offset.asConst().value_or(-1);
    if (last < 0) return brokenModel("G7", "a weight's offset is constant", w.fqn);
    bool empty = false;
    for (size_t i = 0; i < w.type.sizes.size(); ++i) {
      std::optional<int64_t> size = w.type.sizes[i].asConst(), stride = w.type.strides[i].asConst();
      if (!size || !stride) return brokenModel("G7", "a weight's sizes are constant", w.fqn);
      empty |= *size == 0;
      last += (*size - 1) * *stride;
    }
    if (!empty && (last + 1) * itemSize(w.type.dtype) > m.storages[static_cast<size_t>(w.storage)].bytes)
      return brokenModel("G7", "a weight lies in its storage", w.fqn);
  }
  for (const Output &o : m.outputs) {
    bool found = o.kind == Output::Kind::User || o.kind == Output::Kind::Token;
    if (o.kind == Output::Kind::InputMutation)
      for (const Input &in : m.inputs) found |= in.kind == Input::Kind::User && in.name == o.target;
    else
      for (const Weight &w : m.weights) found |= w.fqn == o.target;
    if (!found) return brokenModel("G8", "a write-back names a weight or an input", o.target);
  }
  return Status::ok();
}

} // namespace neso::graph
