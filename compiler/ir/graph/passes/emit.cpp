#include "ir/graph/passes/emit.h"

#include "base/fault.h"
#include "ir/graph/ops.h"

namespace neso::graph {

ValueId emitCall(Graph &graph, std::vector<Node> &nodes, const Node &like, std::string target, std::vector<Argument> args, std::string name, TensorType type) {
  Node n;
  n.name = name, n.target = std::move(target), n.args = std::move(args);
  n.loc = like.loc, n.module = like.module;
  const Status bound = bindArguments(n, graph);
  NESO_CHECK(static_cast<bool>(bound), "a pass makes a call that its schema refuses");
  const ValueId out = graph.addValue(std::move(name), std::move(type));
  n.outputs = {{out}};
  nodes.push_back(std::move(n));
  return out;
}

} // namespace neso::graph
