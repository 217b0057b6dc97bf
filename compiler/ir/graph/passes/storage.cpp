// as_strided reads its operand's storage, which a view shares with what it looks at. In its place the call reads that itself.
//
//     %v = slice(%x, 0, 1, 3); %y = as_strided(%v, [2, 2], [8, 1])   ->   %y = as_strided(%x, [2, 2], [8, 1], 8)
//
// What a view's storage offset is the types say; from what the storage begins with (a parameter, an input, a result) they count on.
// as_strided_scatter writes into a copy of its operand, of which only the operand's elements count: its offset, too, counts from there.
//
//     as_strided_scatter(%v, %part, [2, 2], [8, 1], 9)   ->   as_strided_scatter(%v, %part, [2, 2], [8, 1], 1)
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

/// The offset of the call from where `from` begins, instead of from where memory does.
void countFrom(Graph &g, Node &n, ValueId self, ValueId from) {
  std::optional<Expr> offset = intOf(g, n.arg("storage_offset"));
  if (!offset) offset = g.value(self).type.offset;
  const Argument stated = sizeArgument(g, *offset - g.value(from).type.offset);
  const auto name = std::find(n.argNames.begin(), n.argNames.end(), "storage_offset");
  if (name != n.argNames.end()) {
    n.args[static_cast<size_t>(name - n.argNames.begin())] = stated;
  } else {
    n.args.push_back(stated);
    n.argNames.push_back("storage_offset");
  }
}

void stateOffset(Graph &g, const Producers &producers, Node &n) {
  const bool reads = n.target == "aten.as_strided.default" || n.target == "aten.as_strided_copy.default";
  if (!reads && n.target != "aten.as_strided_scatter.default") return;
  const ValueId *given = n.args.empty() ? nullptr : std::get_if<ValueId>(&n.args[0]);
  if (!given || !given->valid()) return;
  const ValueId self = *given, from = reads ? storageOf(g, producers, self) : self;
  countFrom(g, n, self, from);
  n.args[0] = from;
}
} // namespace

void readStorage(Model &m) {
  forEachGraph(m.graph, [](Graph &g) {
    Producers producers;
    for (const Node &n : g.nodes)
      for (const auto &list : n.outputs)
        for (ValueId id : list)
          if (id.valid()) producers.emplace(id, &n);
    for (Node &n : g.nodes) stateOffset(g, producers, n);
  });
}

} // namespace neso::graph
