// Walks over the values that an argument, a node or a graph refers to.
#pragma once
#include "ir/graph/graph.h"

namespace neso::graph {

/// Calls f(ValueId &) for each valid value in the argument, nested lists and dictionaries included; not into
/// sub-graphs, whose values are their own. A may be const.
template <typename A, typename F> void forEachValue(A &argument, F &&f) {
  std::visit(
      [&](auto &a) {
        using T = std::remove_cvref_t<decltype(a)>;
        if constexpr (std::is_same_v<T, ValueId>) {
          if (a.valid()) f(a);
        } else if constexpr (std::is_same_v<T, std::vector<ValueId>>) {
          for (auto &v : a)
            if (v.valid()) f(v);
        } else if constexpr (std::is_same_v<T, std::vector<std::vector<ValueId>>>) {
          for (auto &list : a)
            for (auto &v : list)
              if (v.valid()) f(v);
        } else if constexpr (std::is_same_v<T, std::vector<IntOrSym>>) {
          for (auto &e : a)
            if (auto *v = std::get_if<ValueId>(&e); v && v->valid()) f(*v);
        } else if constexpr (std::is_same_v<T, std::shared_ptr<ArgumentDict>>) {
          for (auto &[key, value] : a->entries) forEachValue(value, f);
        }
      },
      argument);
}

/// Each valid value that the node reads, in order, repeats included.
template <typename N, typename F> void forEachInput(N &node, F &&f) {
  for (auto &a : node.args) forEachValue(a, f);
}

/// Each valid value that the node defines, in order.
template <typename N, typename F> void forEachOutput(N &node, F &&f) {
  for (auto &list : node.outputs)
    for (auto &v : list)
      if (v.valid()) f(v);
}

/// Calls f on the graph and all sub-graphs, innermost last. G may be const.
template <typename G, typename F> void forEachGraph(G &graph, F &&f) {
  f(graph);
  for (auto &n : graph.nodes)
    for (auto &a : n.args)
      if (auto *sub = std::get_if<std::shared_ptr<Graph>>(&a)) forEachGraph(static_cast<G &>(**sub), f);
}

} // namespace neso::graph
