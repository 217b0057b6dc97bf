#include "lower/graph_to_loops/input_layout.h"

#include <algorithm>

#include "ir/graph/passes/views.h"
#include "ir/graph/visit.h"

namespace neso::lower {

using graph::Graph;
using graph::Node;
using graph::ValueId;

namespace {
bool addresses(const Node &node) { return node.launch || node.target.starts_with("aten.as_strided"); }

bool addressesInside(const Node &node) {
  bool found = addresses(node);
  for (const graph::Argument &a : node.args)
    if (const auto *sub = std::get_if<std::shared_ptr<Graph>>(&a))
      graph::forEachGraph(std::as_const(**sub), [&](const Graph &body) { found |= std::ranges::any_of(body.nodes, addresses); });
  return found;
}

/// Calls f(result, operand) for each result of the node that shares its operand's memory.
template <typename F> void forEachView(const Graph &g, const Node &node, F &&f) {
  const graph::OpSchema *op = graph::findOp(node.target);
  if (!op) return;
  for (const std::vector<ValueId> &entry : node.outputs)
    for (ValueId id : entry) {
      const int of = id.valid() ? graph::aliasing(g, node, *op, id).argument : -1;
      const ValueId *operand = of < 0 ? nullptr : std::get_if<ValueId>(&node.args[static_cast<size_t>(of)]);
      if (operand && operand->valid()) f(id, *operand);
    }
}
} // namespace

ValueSet addressedIn(const Graph &g) {
  ValueSet out;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    if (addressesInside(g.nodes[i])) graph::forEachInput(g.nodes[i], [&](ValueId id) { out.insert(id.value); });
    forEachView(g, g.nodes[i], [&](ValueId result, ValueId operand) {
      if (out.contains(result.value)) out.insert(operand.value);
    });
  }
  return out;
}

void addViews(const Graph &g, ValueSet &values) {
  if (values.empty()) return;
  for (const Node &node : g.nodes)
    forEachView(g, node, [&](ValueId result, ValueId operand) {
      if (values.contains(operand.value)) values.insert(result.value);
    });
}

} // namespace neso::lower
