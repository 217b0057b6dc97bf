#include "ir/graph/graph.h"

#include "ir/graph/visit.h"

namespace neso::graph {

Argument::Argument() = default;
Argument::Argument(const Argument &) = default;
Argument::Argument(Argument &&) noexcept = default;
Argument &Argument::operator=(const Argument &) = default;
Argument &Argument::operator=(Argument &&) noexcept = default;
Argument::~Argument() = default;

const Argument *Node::arg(std::string_view argName) const {
  for (size_t i = 0; i < argNames.size() && i < args.size(); ++i)
    if (argNames[i] == argName) return &args[i];
  return nullptr;
}

ValueId Graph::addValue(std::string name, TensorType type) {
  Value v;
  v.id = ValueId(static_cast<int64_t>(values.size()));
  v.name = std::move(name);
  v.type = std::move(type);
  values.push_back(std::move(v));
  return values.back().id;
}

void replaceSymbols(Model &m, const SymbolMap<Expr> &by) {
  for (const auto &[symbol, e] : by) m.facts.erase(symbol);
  for (RoundedSize &r : m.rounded.all()) mapWhole(r.of, [&](Expr whole) { return substitute(whole, by); });
  forEachGraph(m.graph, [&](Graph &g) {
    auto change = [&](Expr &e) {
      if (e.valid()) e = substitute(e, by);
    };
    for (Value &v : g.values) {
      change(v.expr);
      for (Expr &e : v.type.sizes) change(e);
      for (Expr &e : v.type.strides) change(e);
      change(v.type.offset);
    }
    for (Node &n : g.nodes) {
      if (!n.launch) continue;
      auto launch = std::make_shared<UserLaunch>(*n.launch);
      for (Expr &e : launch->grid) change(e);
      for (UserLaunch::Parameter &p : launch->parameters) change(p.integer);
      n.launch = std::move(launch);
    }
  });
}

std::string_view name(Int4Packing packing) {
  for (const auto &[text, p] : kInt4Packings)
    if (p == packing) return text;
  return {};
}

} // namespace neso::graph
