// as_strided reads its operand's storage, which a view shares with what it looks at. In its place the call reads that itself.
//
//     %v = slice(%x, 0, 1, 3); %y = as_strided(%v, [2, 2], [8, 1])   ->   %y = as_strided(%x, [2, 2], [8, 1], 8)
//
// What a view's storage offset is the types say; from what the storage begins with (a parameter, an input, a result) they count on.
#include <algorithm>

#include "ir/graph/passes/simplify.h"
#include "ir/graph/passes/views.h"
#include "ir/graph/visit.h"

namespace neso::graph {
namespace {

using Producers = std::unordered_map<ValueId, const Node *>;

/// What the value looks at, if it is a view.
ValueId storageOf(const Graph &g, const Producers &producers, ValueId id) {
  for (auto at = producers.find(id); at != producers.end(); at = producers.find(id)) {
    const OpSchema *op = findOp(at->second->target);
    const int argument = op ? aliasing(g, *at->second, *op).argument : -1;
    const ValueId *of = argument < 0 ? nullptr : std::get_if<ValueId>(&at->second->args[static_cast<size_t>(argument)]);
    if (!of || g.value(*of).type.dtype != g.value(id).type.dtype) return id;
    id = *of;
  }
  return id;
}

void readFromStorage(Graph &g, const Producers &producers, Node &n) {
  const ValueId *self = n.args.empty() ? nullptr : std::get_if<ValueId>(&n.args[0]);
  if (!self || !self->valid()) return;
  const ValueId storage = storageOf(g, producers, *self);
  const Argument *given = n.arg("storage_offset");
  std::optional<Expr> offset = intOf(g, given);
  if (!offset) offset = g.value(*self).type.offset;
  *offset = *offset - g.value(storage).type.offset;
  n.args[0] = storage;
  const Argument stated = sizeArgument(g, *offset);
  const auto name = std::find(n.argNames.begin(), n.argNames.end(), "storage_offset");
  if (name != n.argNames.end()) {
    n.args[static_cast<size_t>(name - n.argNames.begin())] = stated;
  } else {
    n.args.push_back(stated);
    n.argNames.push_back("storage_offset");
  }
}
} // namespace

void readStorage(Model &m) {
  forEachGraph(m.graph, [](Graph &g) {
    Producers producers;
    for (const Node &n : g.nodes)
      for (const auto &list : n.outputs)
        for (ValueId id : list)
          if (id.valid()) producers.emplace(id, &n);
    for (Node &n : g.nodes)
      if (n.target == "aten.as_strided.default" || n.target == "aten.as_strided_copy.default") readFromStorage(g, producers, n);
  });
}

} // namespace neso::graph
