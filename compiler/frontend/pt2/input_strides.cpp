#include "frontend/pt2/input_strides.h"

#include <algorithm>
#include <unordered_set>

#include "ir/graph/visit.h"

namespace neso::pt2 {

using graph::Graph;
using graph::Model;
using graph::Node;
using graph::TensorType;
using graph::UnknownSymbol;
using graph::Value;

namespace {

class InputStrides {
public:
  explicit InputStrides(Model &m) : m_(m) {
    for (graph::ValueId id : m.graph.inputs) {
      if (!id.valid()) continue;
      const Value &v = m.graph.value(id);
      for (Expr e : v.type.sizes) know(e);
      know(v.expr);
    }
  }

  std::optional<UnknownSymbol> settle() {
    for (const graph::Input &in : m_.inputs) {
      if (in.kind != graph::Input::Kind::User || !in.value.valid()) continue;
      const Value &v = m_.graph.value(in.value);
      if (v.kind != Value::Kind::Tensor) continue;
      settle(v.type);
      // Torch writes a symbol of its own for each stride that others do not give; anything else is not its.
      for (Expr e : v.type.strides)
        if (std::optional<Symbol> s = unknownIn(substitute(e, by_))) return UnknownSymbol{*s, v.name};
    }
    if (by_.empty()) return std::nullopt;
    std::optional<UnknownSymbol> asked;
    forEachGraph(m_.graph, [&](const Graph &g) {
      if (!asked) asked = computedWith(g);
    });
    if (asked) return asked;
    std::erase_if(m_.guards, [&](Expr e) { return mentions(e).has_value(); });
    replaceSymbols(m_, by_);
    return std::nullopt;
  }

private:
  void know(Expr e) {
    if (!e.valid()) return;
    for (Symbol s : symbolsOf(e)) known_.insert(s);
  }
  std::optional<Symbol> unknownIn(Expr e) const {
    for (Symbol s : symbolsOf(e))
      if (!known_.contains(s)) return s;
    return std::nullopt;
  }
  /// The first of the symbols that get a value here.
  std::optional<Symbol> mentions(Expr e) const {
    if (!e.valid()) return std::nullopt;
    for (Symbol s : symbolsOf(e))
      if (by_.contains(s)) return s;
    return std::nullopt;
  }

  /// Each unknown stride becomes the extent of the dimensions that have theirs, innermost first.
  void settle(const TensorType &t) {
    Expr extent = 1;
    for (size_t d = 0; d < t.sizes.size(); ++d)
      if (!unknownIn(substitute(t.strides[d], by_))) extent = extent + (t.sizes[d] - 1) * substitute(t.strides[d], by_);
    for (size_t d = t.sizes.size(); d-- > 0;) {
      const Expr stride = substitute(t.strides[d], by_);
      if (!stride.isSymbol() || !unknownIn(stride)) continue;
      give(stride.symbol(), extent);
      extent = extent * t.sizes[d];
    }
    if (t.offset.valid() && t.offset.isSymbol() && unknownIn(t.offset)) give(t.offset.symbol(), 0);
  }
  void give(Symbol s, Expr value) {
    if (by_.empty()) first_ = s;
    by_.emplace(s, value);
  }

  std::optional<UnknownSymbol> computedWith(const Graph &g) const {
    for (const Value &v : g.values)
      if (std::optional<Symbol> s = v.kind == Value::Kind::Tensor ? std::nullopt : mentions(v.expr)) return UnknownSymbol{*s, v.name};
    for (const Node &n : g.nodes) {
      if (n.target.starts_with("aten.as_strided")) return UnknownSymbol{*first_, n.name};
      if (!n.launch) continue;
      for (Expr e : n.launch->grid)
        if (std::optional<Symbol> s = mentions(e)) return UnknownSymbol{*s, n.name};
      for (const graph::UserLaunch::Parameter &p : n.launch->parameters)
        if (std::optional<Symbol> s = mentions(p.integer)) return UnknownSymbol{*s, n.name};
    }
    return std::nullopt;
  }

  Model &m_;
  std::unordered_set<Symbol> known_; // sizes and numbers that a run is given
  SymbolMap<Expr> by_;               // what the others become
  std::optional<Symbol> first_;      // of them
};

} // namespace

std::optional<UnknownSymbol> settleInputStrides(Model &model) { return InputStrides(model).settle(); }

} // namespace neso::pt2
