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

static constexpr std::string_view kInt4Packings[] = {"", "default", "avx2", "avx512"};

Int4Packing int4PackingNamed(std::string_view word) {
  for (Int4Packing p : {Int4Packing::Default, Int4Packing::Avx2, Int4Packing::Avx512})
    if (word == name(p)) return p;
  return Int4Packing::Unknown;
}

std::string_view name(Int4Packing packing) { return kInt4Packings[static_cast<size_t>(packing)]; }

} // namespace neso::graph
