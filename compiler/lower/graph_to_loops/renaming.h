// Copies of sub-graphs whose numbers have other names. Each number of a program is read at one place (ir/loops/verify.h), so what computes a
// sub-graph that decides sizes once more calls them by other names:
//
//     f(x) { p = nonzero(x) : [u0]; x[p] : [u0] }      a = f(x) : [u0]      b = f(y) : [u1]    →  of b: { p : [u1]; y[p] : [u1] }
#pragma once
#include <functional>
#include <memory>

#include "lower/graph_to_loops/lowering.h"

namespace neso::lower {

class Renaming {
public:
  /// Of what has no name yet (name), a symbol for which `whether` is true gets a fresh one.
  Renaming(Lowering &ctx, std::function<bool(Symbol)> whether) : ctx_(ctx), whether_(std::move(whether)) {}
  /// The symbol is called `as`, unless something before said otherwise.
  void name(Symbol symbol, Expr as) { names_.emplace(symbol, as); }
  std::shared_ptr<graph::Graph> copy(const graph::Graph &g);
  /// Whether there is a copy that would differ.
  bool changes(const graph::Graph &g);
  Expr renamed(Expr e);

private:
  Lowering &ctx_;
  std::function<bool(Symbol)> whether_;
  SymbolMap<Expr> names_;
};

/// Whether computing the graph twice gives the same: no call in it draws random numbers or launches a kernel.
bool isRepeatable(const graph::Graph &g);

/// Symbols of the graph's values, those of sub-graphs as well, that its inputs do not have.
std::set<Symbol> ownSymbols(const graph::Graph &g);

} // namespace neso::lower
