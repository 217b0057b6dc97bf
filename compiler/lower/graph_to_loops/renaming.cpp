#include "lower/graph_to_loops/renaming.h"

#include "ir/graph/ops.h"
#include "ir/graph/visit.h"

namespace neso::lower {

/// Calls f on each expression of the value.
template <typename V, typename F> static void forEachExpr(V &v, F &&f) {
  for (auto &e : v.type.sizes) f(e);
  for (auto &e : v.type.strides) f(e);
  f(v.type.offset);
  if (v.expr.valid()) f(v.expr);
}

Expr Renaming::renamed(Expr e) {
  if (!e.valid()) return e;
  for (Symbol s : symbolsOf(e)) {
    if (names_.count(s) || !whether_(s)) continue;
    const Symbol fresh = ctx_.freshSymbol(Expr(s).str());
    ctx_.facts.setRange(fresh, ctx_.facts.range(s));
    names_.emplace(s, Expr(fresh));
  }
  return substitute(e, names_);
}

std::shared_ptr<graph::Graph> Renaming::copy(const graph::Graph &g) {
  auto out = std::make_shared<graph::Graph>(g);
  for (graph::Value &v : out->values) forEachExpr(v, [&](Expr &e) { e = renamed(e); });
  for (graph::Node &node : out->nodes) {
    for (graph::Argument &a : node.args)
      if (auto *sub = std::get_if<std::shared_ptr<graph::Graph>>(&a)) *sub = copy(**sub);
    if (!node.launch) continue;
    graph::UserLaunch launch = *node.launch;
    for (Expr &e : launch.grid) e = renamed(e);
    for (graph::UserLaunch::Parameter &p : launch.parameters) p.integer = renamed(p.integer);
    node.launch = std::make_shared<const graph::UserLaunch>(std::move(launch));
  }
  return out;
}

bool Renaming::changes(const graph::Graph &g) {
  bool any = false;
  auto look = [&](Expr e) {
    for (Symbol s : symbolsOf(e)) any |= names_.count(s) != 0 || whether_(s);
  };
  graph::forEachGraph(g, [&](const graph::Graph &part) {
    for (const graph::Value &v : part.values) forEachExpr(v, look);
  });
  return any;
}

bool isRepeatable(const graph::Graph &g) {
  bool repeatable = true;
  graph::forEachGraph(g, [&](const graph::Graph &part) {
    for (const graph::Node &node : part.nodes) {
      const graph::OpSchema *op = graph::findOp(node.target);
      repeatable &= !node.launch && !(op && op->random);
    }
  });
  return repeatable;
}

std::set<Symbol> ownSymbols(const graph::Graph &g) {
  std::set<Symbol> own;
  graph::forEachGraph(g, [&](const graph::Graph &part) {
    for (const graph::Value &v : part.values)
      forEachExpr(v, [&](Expr e) {
        for (Symbol s : symbolsOf(e)) own.insert(s);
      });
  });
  for (graph::ValueId id : g.inputs)
    if (id.valid())
      forEachExpr(g.value(id), [&](Expr e) {
        for (Symbol s : symbolsOf(e)) own.erase(s);
      });
  return own;
}

} // namespace neso::lower
