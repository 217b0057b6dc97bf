#include "ir/graph/graph.h"

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

std::string_view name(Int4Packing packing) {
  for (const auto &[text, p] : kInt4Packings)
    if (p == packing) return text;
  return {};
}

} // namespace neso::graph
