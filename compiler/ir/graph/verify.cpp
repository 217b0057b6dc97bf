// The invariants:
//   G1  every value id lies in the graph, and value(id).id == id
//   G2  names of values are unique
//   G3  a value is defined once (by an input or a node) and before its use; a symbolic int or bool whose expression is known needs no
//       definition
//   G4  a tensor type has as many strides as sizes, all valid, no negative constant size
//   G5  a node of the table of operators has an argument for each position of its schema, of a kind and under the name that it has there, and
//       one list of results for each return; a launch of a kernel says of each argument whether it is read and written
//   G6  inputs and outputs of the model are parallel to those of its graph
//   G7  a weight lies inside its storage, and the input that it is has its type
//   G8  a write-back is a value and names an existing weight or input
//   G9  (functional form) no operator writes to an argument
//   G10 symbols of types, of launches and of numbers are sizes of inputs, numbers that the graph holds, or have a range
#include "ir/graph/verify.h"

#include <algorithm>
#include <set>
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
      if (const auto *sub = std::get_if<std::shared_ptr<Graph>>(&a)) {
        if (!*sub) return broken("G5", "a graph inside is there", n.name);
        if (Status s = Verifier(**sub, form_).run(); !s) return s;
      }
    }
    if (Status s = launch(n); !s) return s;
    for (const auto &list : n.outputs)
      for (ValueId id : list)
        if (id.valid())
          if (Status s = define(id, n.name); !s) return s;
    if (const OpSchema *op = findOp(n.target)) {
      if (n.args.size() != op->args.size() || n.argNames.size() != n.args.size())
        return broken("G5", "arguments stand at their positions", n.name);
      if (n.outputs.size() != op->returns.size())
        return broken("G5", "there is a list of results for each return", n.name);
      for (size_t a = 0; a < n.args.size(); ++a)
        if (n.argNames[a] != op->args[a].name || !fits(op->args[a], n.args[a], g_))
          return broken("G5", "an argument is what the schema has at its position", n.name + ", " + op->args[a].name);
      if (form_ == Form::Functional && op->mutates())
        return broken("G9", "no operator writes to an argument", n.target);
    }
    loc_ = {};
    return Status::ok();
  }

  Status launch(const Node &n) {
    if (n.launch == nullptr) {
      if (n.target.starts_with("neso.launch")) return broken("G5", "a launch has a kernel", n.name);
      return Status::ok();
    }
    const UserLaunch &l = *n.launch;
    const size_t args = n.args.size();
    constexpr const char *why = "a launch says of each argument whether it is read and written";
    if (l.read.size() != args || l.written.size() != args || (!l.sameAs.empty() && l.sameAs.size() != args))
      return broken("G5", why, n.name);
    size_t results = 0;
    for (const auto &list : n.outputs) results += list.size();
    const auto written = static_cast<size_t>(std::count(l.written.begin(), l.written.end(), true));
    if (results != (n.target == "neso.launch" ? written : 0))
      return broken("G5", "a launch gives what it writes", n.name);
    for (const UserLaunch::Parameter &p : l.parameters)
      if ((p.kind == UserLaunch::Parameter::Tensor && (p.tensor < 0 || static_cast<size_t>(p.tensor) >= args)) ||
          (p.kind == UserLaunch::Parameter::Integer && !p.integer.valid()))
        return broken("G5", "a parameter of a launch has its argument", n.name + ", " + p.name);
    for (Expr e : l.grid)
      if (!e.valid()) return broken("G5", "a launch has a grid", n.name);
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

/// G10: where symbols come from.
class Symbols {
public:
  explicit Symbols(const Model &m) : m_(m) {
    for (const auto &[symbol, range] : m.facts.ranges()) known_.insert(symbol);
    forEachGraph(m.graph, [&](const Graph &g) {
      for (const Value &v : g.values)
        if (v.kind == Value::Kind::SymInt || v.kind == Value::Kind::SymBool) add(v.expr);
    });
    for (ValueId id : m.graph.inputs)
      if (id.valid())
        for (Expr e : m.graph.value(id).type.sizes) add(e);
  }
  std::optional<UnknownSymbol> unknown() const {
    std::optional<UnknownSymbol> out;
    auto ask = [&](Expr e, std::string_view place) {
      if (out || !e.valid()) return;
      for (Symbol s : symbolsOf(e))
        if (!out && !known_.contains(s)) out = UnknownSymbol{s, std::string(place)};
    };
    forEachGraph(m_.graph, [&](const Graph &g) {
      for (const Value &v : g.values) {
        if (v.kind != Value::Kind::Tensor) continue;
        for (Expr e : v.type.sizes) ask(e, v.name);
        for (Expr e : v.type.strides) ask(e, v.name);
        ask(v.type.offset, v.name);
      }
      for (const Node &n : g.nodes) {
        if (!n.launch) continue;
        for (Expr e : n.launch->grid) ask(e, n.name);
        for (const UserLaunch::Parameter &p : n.launch->parameters) ask(p.integer, n.name);
      }
    });
    return out;
  }

private:
  void add(Expr e) {
    if (!e.valid()) return;
    for (Symbol s : symbolsOf(e)) known_.insert(s);
  }
  const Model &m_;
  std::set<Symbol> known_;
};

/// G7: the weight lies inside its storage.
Status weight(const Model &m, const Weight &w) {
  if (w.storage < 0 || static_cast<size_t>(w.storage) >= m.storages.size())
    return brokenModel("G7", "a weight has a storage", w.fqn);
  int64_t first = w.type.offset.valid() ? w.type.offset.asConst().value_or(-1) : -1;
  int64_t last = first;
  if (first < 0 || w.type.sizes.size() != w.type.strides.size())
    return brokenModel("G7", "a weight has an offset, and a stride for each size", w.fqn);
  bool empty = false;
  for (size_t i = 0; i < w.type.sizes.size(); ++i) {
    if (!w.type.sizes[i].valid() || !w.type.strides[i].valid()) return brokenModel("G7", "a weight has sizes", w.fqn);
    std::optional<int64_t> size = w.type.sizes[i].asConst(), stride = w.type.strides[i].asConst();
    if (!size || !stride) return brokenModel("G7", "a weight's sizes are constant", w.fqn);
    empty |= *size == 0;
    (*stride < 0 ? first : last) += (*size - 1) * *stride;
  }
  if (!empty && (first < 0 || (last + 1) * itemSize(w.type.dtype) > m.storages[static_cast<size_t>(w.storage)].bytes))
    return brokenModel("G7", "a weight lies in its storage", w.fqn);
  return Status::ok();
}

/// G8.
Status writeBack(const Model &m, const Output &o) {
  if (o.kind == Output::Kind::User || o.kind == Output::Kind::Token) return Status::ok();
  bool found = false;
  if (o.kind == Output::Kind::InputMutation) {
    for (const Input &in : m.inputs) found |= in.kind == Input::Kind::User && in.name == o.target;
  } else {
    for (const Weight &w : m.weights) found |= w.fqn == o.target;
  }
  if (!found) return brokenModel("G8", "a write-back names a weight or an input", o.target);
  const auto *id = std::get_if<ValueId>(&o.value);
  if (!id || !id->valid()) return brokenModel("G8", "a value is written back", o.target);
  return Status::ok();
}

} // namespace

Status verify(const Graph &graph, Form form) { return Verifier(graph, form).run(); }

std::optional<UnknownSymbol> unknownSymbol(const Model &m) { return Symbols(m).unknown(); }

Status verify(const Model &m, Form form) {
  if (Status s = verify(m.graph, form); !s) return s;
  if (m.inputs.size() != m.graph.inputs.size()) return brokenModel("G6", "inputs are parallel", "the inputs");
  if (m.outputs.size() != m.graph.outputs.size()) return brokenModel("G6", "outputs are parallel", "the outputs");
  for (size_t i = 0; i < m.inputs.size(); ++i) {
    const Input &in = m.inputs[i];
    if (in.value != m.graph.inputs[i]) return brokenModel("G6", "inputs are parallel", in.name);
    if (in.kind != Input::Kind::Weight) continue;
    if (in.weight < 0 || static_cast<size_t>(in.weight) >= m.weights.size())
      return brokenModel("G7", "a weight exists", in.name);
    const TensorType &weight = m.weights[static_cast<size_t>(in.weight)].type;
    if (in.value.valid() && (m.graph.value(in.value).type.dtype != weight.dtype || m.graph.value(in.value).type.sizes != weight.sizes))
      return brokenModel("G7", "an input has the type of its weight", in.name);
  }
  for (size_t i = 0; i < m.outputs.size(); ++i) {
    const auto *mine = std::get_if<ValueId>(&m.outputs[i].value), *theirs = std::get_if<ValueId>(&m.graph.outputs[i]);
    if ((mine == nullptr) != (theirs == nullptr) || (mine && *mine != *theirs))
      return brokenModel("G6", "outputs are parallel", fmt::format("output {}", i));
    if (Status s = writeBack(m, m.outputs[i]); !s) return s;
  }
  for (const Weight &w : m.weights)
    if (Status s = weight(m, w); !s) return s;
  if (std::optional<UnknownSymbol> s = unknownSymbol(m))
    return brokenModel("G10", "symbols are known", fmt::format("{} in {}", s->symbol.str(), s->place));
  return Status::ok();
}

} // namespace neso::graph
