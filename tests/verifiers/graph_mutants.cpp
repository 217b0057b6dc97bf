#include "verifiers/graph_mutants.h"

#include <algorithm>

#include "ir/graph/ops.h"
#include "ir/graph/visit.h"

namespace neso::test {
namespace {

using namespace graph;

Expr nowhere() { return Symbol::size("nowhere99"); }

/// The graph and those inside its nodes, by their number in this order. Inner ones are shared between copies of a model,
/// so that they are copied before they are handed out.
void collect(Graph &g, std::vector<Graph *> &out) {
  out.push_back(&g);
  for (Node &n : g.nodes)
    for (Argument &a : n.args)
      if (auto *sub = std::get_if<std::shared_ptr<Graph>>(&a); sub && *sub) {
        *sub = std::make_shared<Graph>(**sub);
        collect(**sub, out);
      }
}
std::vector<Graph *> allGraphs(Model &m) {
  std::vector<Graph *> out;
  collect(m.graph, out);
  return out;
}

class Maker {
public:
  explicit Maker(const Model &m) : copy_(m), m_(copy_) {}

  std::vector<Mutant<Model>> run() {
    const std::vector<Graph *> graphs = allGraphs(m_);
    for (size_t g = 0; g < graphs.size(); ++g) {
      values(g, *graphs[g]);
      nodes(g, *graphs[g]);
      ends(g, *graphs[g]);
    }
    inputs();
    weights();
    outputs();
    return std::move(out_);
  }

private:
  Model copy_;
  Model &m_;
  std::vector<Mutant<Model>> out_;

  void add(std::string kind, std::string where, std::function<void(Model &)> apply) {
    out_.push_back({std::move(kind), std::move(where), std::move(apply)});
  }
  void addGraph(std::string kind, size_t g, std::string where, std::function<void(Graph &)> apply) {
    add(std::move(kind), std::move(where), [g, apply = std::move(apply)](Model &m) { apply(*allGraphs(m)[g]); });
  }

  void values(size_t g, Graph &graph) {
    for (size_t v = 0; v < graph.values.size(); ++v) {
      auto change = [&](const char *kind, std::function<void(Value &)> apply) {
        addGraph(kind, g, graph.values[v].name, [=](Graph &at) { apply(at.values[v]); });
      };
      change("a value's id is not its position", [](Value &at) { at.id = ValueId(at.id.value + 1); });
      if (v > 0) addGraph("a value has another's name", g, graph.values[v].name, [=](Graph &at) { at.values[v].name = at.values[0].name; });
      if (graph.values[v].kind != Value::Kind::Tensor) continue;
      change("a type without an offset", [](Value &at) { at.type.offset = Expr(); });
      // Sizes of inputs are what makes symbols known.
      const bool given = std::find(graph.inputs.begin(), graph.inputs.end(), graph.values[v].id) != graph.inputs.end();
      if (!given) change("a type of an unknown symbol", [](Value &at) { at.type.offset = at.type.offset + nowhere(); });
      if (graph.values[v].type.sizes.empty()) continue;
      change("a type has fewer strides than sizes", [](Value &at) { at.type.strides.pop_back(); });
      change("a type has fewer sizes than strides", [](Value &at) { at.type.sizes.pop_back(); });
      change("a type without a size", [](Value &at) { at.type.sizes[0] = Expr(); });
      change("a type without a stride", [](Value &at) { at.type.strides[0] = Expr(); });
      change("a type of a negative size", [](Value &at) { at.type.sizes[0] = -3; });
      if (!given) change("a type of an unknown symbol", [](Value &at) { at.type.sizes[0] = at.type.sizes[0] + nowhere(); });
    }
  }

  void nodes(size_t g, Graph &graph) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node &node = graph.nodes[n];
      auto change = [&](const char *kind, std::function<void(Node &, Graph &)> apply) {
        addGraph(kind, g, node.name + " " + node.target, [=](Graph &at) { apply(at.nodes[n], at); });
      };
      change("a node is dropped", [=](Node &, Graph &at) { at.nodes.erase(at.nodes.begin() + static_cast<int64_t>(n)); });
      if (n + 1 < graph.nodes.size()) change("a node runs too late", [=](Node &, Graph &at) { std::swap(at.nodes[n], at.nodes[n + 1]); });
      change("a node runs last", [=](Node &, Graph &at) {
        std::rotate(at.nodes.begin() + static_cast<int64_t>(n), at.nodes.begin() + static_cast<int64_t>(n) + 1, at.nodes.end());
      });
      const OpSchema *op = findOp(node.target);
      results(node, op, change);
      for (size_t a = 0; a < node.args.size(); ++a) argument(node, a, op, change);
      if (op && !op->args.empty()) {
        change("an argument more", [](Node &at, Graph &) { at.args.push_back(None{}); });
        if (!node.args.empty()) {
          change("an argument is dropped", [](Node &at, Graph &) { at.args.pop_back(); });
          change("an argument without a name", [](Node &at, Graph &) { at.argNames.pop_back(); });
          change("an argument of another name", [](Node &at, Graph &) { at.argNames.back() = "nobody"; });
        }
      }
      if (node.target == "aten.add.Tensor") change("an operator that writes", [](Node &at, Graph &) { at.target = "aten.add_.Tensor"; });
      if (node.target == "aten.relu.default") change("an operator that writes", [](Node &at, Graph &) { at.target = "aten.relu_.default"; });
      if (node.launch) launch(*node.launch, change);
    }
  }

  template <typename Change> void results(const Node &node, const OpSchema *op, const Change &change) {
    if (op) change("a list of results more", [](Node &at, Graph &) { at.outputs.emplace_back(); });
    if (node.outputs.empty()) return;
    if (op) change("a list of results is dropped", [](Node &at, Graph &) { at.outputs.pop_back(); });
    change("a result is no value", [](Node &at, Graph &g) { at.outputs[0] = {ValueId(static_cast<int64_t>(g.values.size()))}; });
    change("a result is defined already", [](Node &at, Graph &g) {
      for (ValueId id : g.inputs)
        if (id.valid()) return void(at.outputs[0] = {id});
      at.outputs[0] = {ValueId(9999)};
    });
  }

  template <typename Change> void argument(const Node &node, size_t a, const OpSchema *op, const Change &change) {
    int values = 0;
    forEachValue(node.args[a], [&](ValueId) { ++values; });
    auto each = [&](const char *kind, int k, auto to) {
      change(kind, [=](Node &at, Graph &g) {
        int i = 0;
        forEachValue(at.args[a], [&](ValueId &id) {
          if (i++ == k) id = to(at, g);
        });
      });
    };
    for (int k = 0; k < values; ++k) {
      each("an argument is no value", k, [](Node &, Graph &g) { return ValueId(static_cast<int64_t>(g.values.size())); });
      each("an argument is the node's own result", k, [](Node &at, Graph &g) {
        for (const auto &list : at.outputs)
          for (ValueId id : list)
            if (id.valid() && g.value(id).kind == Value::Kind::Tensor) return id;
        return ValueId(9999);
      });
    }
    if (std::holds_alternative<std::shared_ptr<Graph>>(node.args[a]))
      change("a graph inside is dropped", [=](Node &at, Graph &) { at.args[a] = std::shared_ptr<Graph>(); });
    if (!op || a >= op->args.size()) return;
    if (op->args[a].type != ArgType::Layout) change("an argument of another kind", [=](Node &at, Graph &) { at.args[a] = Layout{0}; });
    if (op->args[a].type != ArgType::String) change("an argument of another kind", [=](Node &at, Graph &) { at.args[a] = std::string("x"); });
    if (!op->args[a].optional && !op->args[a].defaultValue && op->args[a].type != ArgType::Generator)
      change("a required argument is None", [=](Node &at, Graph &) { at.args[a] = None{}; });
  }

  template <typename Change> void launch(const UserLaunch &launch, const Change &change) {
    auto changed = [&](const char *kind, std::function<void(UserLaunch &)> apply) {
      change(kind, [=](Node &at, Graph &) {
        auto copy = std::make_shared<UserLaunch>(*at.launch);
        apply(*copy);
        at.launch = copy;
      });
    };
    changed("a launch does not say what it reads", [](UserLaunch &l) { l.read.pop_back(); });
    changed("a launch does not say what it writes", [](UserLaunch &l) { l.written.pop_back(); });
    changed("a launch writes more than it returns", [](UserLaunch &l) { l.written.assign(l.written.size(), false); });
    changed("a launch of an unknown symbol", [](UserLaunch &l) { l.grid[0] = l.grid[0] + nowhere(); });
    changed("a launch without a grid", [](UserLaunch &l) { l.grid[1] = Expr(); });
    for (size_t k = 0; k < launch.parameters.size(); ++k) {
      if (launch.parameters[k].kind == UserLaunch::Parameter::Tensor)
        changed("a parameter's tensor is not there", [=](UserLaunch &l) { l.parameters[k].tensor = 77; });
      if (launch.parameters[k].kind == UserLaunch::Parameter::Integer)
        changed("a launch of an unknown symbol", [=](UserLaunch &l) { l.parameters[k].integer = l.parameters[k].integer + nowhere(); });
    }
    change("a launch is dropped", [](Node &at, Graph &) { at.launch = nullptr; });
  }

  void ends(size_t g, Graph &graph) {
    for (size_t k = 0; k < graph.outputs.size(); ++k)
      if (std::holds_alternative<ValueId>(graph.outputs[k]))
        addGraph("an output is no value", g, fmt::format("output {}", k), [=](Graph &at) { at.outputs[k] = ValueId(static_cast<int64_t>(at.values.size())); });
    for (size_t k = 0; k < graph.inputs.size(); ++k) {
      if (!graph.inputs[k].valid()) continue;
      addGraph("an input is no value", g, fmt::format("input {}", k), [=](Graph &at) { at.inputs[k] = ValueId(static_cast<int64_t>(at.values.size())); });
      if (k > 0 && graph.inputs[0].valid())
        addGraph("an input is another's value", g, fmt::format("input {}", k), [=](Graph &at) { at.inputs[k] = at.inputs[0]; });
    }
    if (!graph.nodes.empty() && !graph.nodes.back().outputs.empty() && !graph.nodes.back().outputs[0].empty())
      addGraph("a value is defined by the inputs too", g, "", [](Graph &at) { at.inputs.push_back(at.nodes.back().outputs[0][0]); });
  }

  void inputs() {
    for (size_t k = 0; k < m_.inputs.size(); ++k) {
      const Input &in = m_.inputs[k];
      auto change = [&](const char *kind, std::function<void(Model &, Input &)> apply) {
        add(kind, in.name, [=](Model &m) { apply(m, m.inputs[k]); });
      };
      change("an input of the model alone is dropped", [=](Model &m, Input &) { m.inputs.erase(m.inputs.begin() + static_cast<int64_t>(k)); });
      if (in.value.valid()) change("an input is not the graph's", [](Model &, Input &at) { at.value = ValueId(at.value.value + 1); });
      if (in.kind != Input::Kind::Weight) continue;
      change("a weight that is not there", [](Model &m, Input &at) { at.weight = static_cast<int>(m.weights.size()); });
      change("no weight", [](Model &, Input &at) { at.weight = -1; });
      if (!in.value.valid()) continue;
      change("an input has another dtype than its weight", [](Model &m, Input &at) {
        DType &t = m.graph.value(at.value).type.dtype;
        t = t == DType::F32 ? DType::F64 : DType::F32;
      });
      if (!m_.graph.value(in.value).type.sizes.empty())
        change("an input has other sizes than its weight", [](Model &m, Input &at) {
          Expr &size = m.graph.value(at.value).type.sizes[0];
          size = size + 1;
        });
    }
    add("an input of the graph alone is dropped", "", [](Model &m) { m.graph.inputs.pop_back(); });
  }

  void weights() {
    for (size_t k = 0; k < m_.weights.size(); ++k) {
      auto change = [&](const char *kind, std::function<void(Weight &)> apply) {
        add(kind, m_.weights[k].fqn, [=](Model &m) { apply(m.weights[k]); });
      };
      change("a weight without a storage", [](Weight &w) { w.storage = -1; });
      change("a weight's storage is not there", [](Weight &w) { w.storage = 1000; });
      change("a weight behind its storage", [](Weight &w) { w.type.offset = w.type.offset + (int64_t{1} << 40); });
      change("a weight before its storage", [](Weight &w) { w.type.offset = -1; });
      change("a weight of a larger dtype", [](Weight &w) { w.type.dtype = DType::C128; });
      if (m_.weights[k].type.sizes.empty()) continue;
      change("a weight of unknown size", [](Weight &w) { w.type.sizes[0] = nowhere(); });
      change("a weight longer than its storage", [](Weight &w) { w.type.sizes[0] = w.type.sizes[0] + (int64_t{1} << 40); });
      const bool several = std::any_of(m_.weights[k].type.sizes.begin(), m_.weights[k].type.sizes.end(), [](Expr e) { return !e.isConst(1) && !e.isConst(0); });
      if (several && m_.weights[k].type.offset.isConst(0)) change("a weight of negative strides", [](Weight &w) { w.type.strides.assign(w.type.strides.size(), -1); });
      change("a weight has fewer strides than sizes", [](Weight &w) { w.type.strides.pop_back(); });
    }
    for (size_t k = 0; k < m_.storages.size(); ++k)
      add("a storage has fewer bytes", fmt::format("{}", k), [=](Model &m) { m.storages[k].bytes = 0; });
  }

  void outputs() {
    add("an output of the model alone is dropped", "", [](Model &m) { m.outputs.pop_back(); });
    add("an output of the graph alone is dropped", "", [](Model &m) { m.graph.outputs.pop_back(); });
    for (size_t k = 0; k < m_.outputs.size(); ++k) {
      auto change = [&](const char *kind, std::function<void(Output &)> apply) {
        add(kind, fmt::format("output {}", k), [=](Model &m) { apply(m.outputs[k]); });
      };
      if (std::holds_alternative<ValueId>(m_.outputs[k].value))
        change("an output is not the graph's", [](Output &o) { o.value = ValueId(std::get<ValueId>(o.value).value + 1); });
      if (m_.outputs[k].kind == Output::Kind::User || m_.outputs[k].kind == Output::Kind::Token) continue;
      change("a write-back to nobody", [](Output &o) { o.target = "nobody"; });
      change("a write-back of no value", [](Output &o) { o.value = None{}; });
    }
    for (size_t k = 0; k < m_.outputs.size(); ++k)
      if (m_.outputs[k].kind == Output::Kind::BufferMutation)
        add("a buffer is written back as an input", m_.outputs[k].target, [=](Model &m) { m.outputs[k].kind = Output::Kind::InputMutation; });
  }
};

} // namespace

std::vector<Mutant<Model>> mutantsOf(const Model &model) { return Maker(model).run(); }

} // namespace neso::test
