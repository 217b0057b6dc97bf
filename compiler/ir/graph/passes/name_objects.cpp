#include "ir/graph/passes/name_objects.h"

#include <algorithm>
#include <unordered_map>

#include "base/diagnostics/graph.h"
#include "base/rules.h"
#include "ir/graph/ops.h"
#include "ir/graph/visit.h"

namespace neso::graph {
namespace {

constexpr std::string_view kMethodCall = "higher_order.call_torchbind";

/// The objects that values of a graph are, by the values' names.
using Objects = std::unordered_map<std::string, std::string>;

Status refuse(const Node &n, std::string_view why) { return fail(diag::OpRefused, n.loc, n.target, why); }

/// "C::method" in place of the call of a method, whose object and name stand at `first` and behind it.
Status callMethod(Node &n, size_t first) {
  const CustomObject *object = n.args.size() > first + 1 ? std::get_if<CustomObject>(&n.args[first]) : nullptr;
  const std::string *method = object ? std::get_if<std::string>(&n.args[first + 1]) : nullptr;
  if (!method) return refuse(n, "it is no call of an object's method");
  std::string target = object->className + "::" + *method;
  if (first == 0)
    n.target = std::move(target);
  else
    n.args[first - 1] = std::move(target);
  n.args.erase(n.args.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  n.argNames.resize(std::max(n.argNames.size(), first + 2));
  n.argNames.erase(n.argNames.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  n.argNames.resize(n.args.size());
  // The file has no names of what is given by position.
  for (size_t i = first; i < n.args.size(); ++i)
    if (n.argNames[i].empty()) n.argNames[i] = i == first ? "self" : std::to_string(i - first);
  applied(Rule::NameObject);
  return Status::ok();
}

class Namer {
public:
  Namer(Graph &g, const Objects &objects) : g_(g), objects_(objects) {
    for (const Value &v : g.values)
      if (v.kind == Value::Kind::Object) values_.emplace(v.name, v.id);
  }

  Status run() {
    for (Node &n : g_.nodes) {
      for (Argument &a : n.args)
        if (auto *object = std::get_if<CustomObject>(&a))
          if (Status s = name(n, *object); !s) return s;
      for (size_t i = 0; i < n.args.size(); ++i)
        if (auto *sub = std::get_if<std::shared_ptr<Graph>>(&n.args[i]))
          if (Status s = inside(n, i, *sub); !s) return s;
      if (n.target == kMethodCall)
        if (Status s = callMethod(n, 0); !s) return s;
      const std::string *op = n.target == "higher_order.with_effects" && n.args.size() > 1 ? std::get_if<std::string>(&n.args[1]) : nullptr;
      if (op && *op == kMethodCall)
        if (Status s = callMethod(n, 2); !s) return s;
    }
    return Status::ok();
  }

private:
  Status name(const Node &n, CustomObject &object) const {
    if (auto known = objects_.find(object.name); known != objects_.end())
      object.name = known->second;
    else if (values_.count(object.name))
      return refuse(n, fmt::format("'{}' is a script object that the model makes: only those that it is given or has as attributes can be passed on", object.name));
    return Status::ok();
  }

  /// A sub-graph knows the objects that it is given by its own names: it gets theirs instead.
  Status inside(Node &n, size_t at, std::shared_ptr<Graph> &sub) const {
    const bool given = takesObject(n), own = usesObject(*sub);
    if (!given && !own) return Status::ok();
    if (!isInlined(n.target)) return refuse(n, "a branch or a loop uses a script object; use it outside of them");
    sub = std::make_shared<Graph>(*sub);
    Objects objects;
    if (given) {
      const size_t count = sub->inputs.size();
      if (n.args.size() - at - 1 < count) return refuse(n, "its sub-graph takes another number of operands");
      const size_t first = n.args.size() - count;
      n.argNames.resize(n.args.size());
      for (size_t k = count; k-- > 0;) {
        const auto *object = std::get_if<CustomObject>(&n.args[first + k]);
        if (!object) continue;
        if (!sub->inputs[k].valid()) return refuse(n, "its sub-graph takes something else than the script object that it is given");
        objects.emplace(sub->value(sub->inputs[k]).name, object->name);
        sub->inputs.erase(sub->inputs.begin() + static_cast<std::ptrdiff_t>(k));
        n.args.erase(n.args.begin() + static_cast<std::ptrdiff_t>(first + k));
        n.argNames.erase(n.argNames.begin() + static_cast<std::ptrdiff_t>(first + k));
      }
    }
    return Namer(*sub, objects).run();
  }

  static bool usesObject(const Graph &graph) {
    bool found = false;
    forEachGraph(graph, [&](const Graph &g) {
      for (const Node &n : g.nodes) found |= takesObject(n);
    });
    return found;
  }

  Graph &g_;
  const Objects &objects_;
  std::unordered_map<std::string, ValueId> values_; // that are objects
};

} // namespace

bool takesObject(const Node &node) {
  return std::any_of(node.args.begin(), node.args.end(), [](const Argument &a) { return std::holds_alternative<CustomObject>(a); });
}

Status nameObjects(Model &m) {
  Objects objects;
  for (const Input &in : m.inputs)
    if (in.value.valid() && m.graph.value(in.value).kind == Value::Kind::Object && in.kind != Input::Kind::Token)
      objects.emplace(m.graph.value(in.value).name, in.name);
  return Namer(m.graph, objects).run();
}

} // namespace neso::graph
