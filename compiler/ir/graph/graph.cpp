#include "ir/graph/graph.h"

namespace neso::graph {

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

} // namespace neso::graph
