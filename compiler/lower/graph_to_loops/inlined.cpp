// Calls of sub-graphs that compute as if they stood where they are called. A region that was traced once and is called from several places
// (invoke_subgraph) has the graph of its first call there; the other calls have other sizes and numbers for what is the same in the graph.
#include "lower/graph_to_loops/model_lowering.h"
#include "lower/graph_to_loops/renaming.h"
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

using graph::ValueId;
using Kind = graph::Value::Kind;

/// Says of numbers of a sub-graph what those of its call are called: `inner` is the sub-graph's, `outer` the call's.
template <typename F> static void alongside(const graph::Value &inner, const graph::Value &outer, F &&f) {
  if (inner.kind == Kind::Tensor && outer.kind == Kind::Tensor && inner.type.rank() == outer.type.rank())
    for (size_t d = 0; d < inner.type.sizes.size(); ++d) f(inner.type.sizes[d], outer.type.sizes[d]);
  if (inner.kind != Kind::Tensor && inner.expr.valid() && outer.expr.valid()) f(inner.expr, outer.expr);
}

/// The sub-graph with the names that its numbers have in this call: of operands and results the call's, others that were used before new ones.
const graph::Graph &ModelLowering::forThisCall(const graph::Graph &g, const graph::Node &node, const graph::Graph &body,
                                               const std::vector<ValueId> &operands) {
  const std::set<Symbol> own = ownSymbols(body);
  Renaming names(ctx_, [&](Symbol s) { return own.count(s) && ctx_.isRead(Expr(s)); });
  for (size_t k = 0; k < operands.size() && k < body.inputs.size(); ++k)
    if (operands[k].valid() && body.inputs[k].valid())
      alongside(body.value(body.inputs[k]), g.value(operands[k]), [&](Expr inner, Expr outer) {
        if (inner.isSymbol() && inner != outer) names.name(inner.symbol(), outer);
      });
  const std::vector<ValueId> outs = flatOutputs(node);
  for (size_t k = 0; k < outs.size() && k < body.outputs.size(); ++k)
    if (const ValueId *id = std::get_if<ValueId>(&body.outputs[k]); id && id->valid() && outs[k].valid())
      alongside(body.value(*id), g.value(outs[k]), [&](Expr inner, Expr outer) {
        if (inner.isSymbol() && outer.isSymbol() && inner != outer && own.count(inner.symbol()) && !ctx_.isRead(outer)) names.name(inner.symbol(), outer);
      });
  if (!names.changes(body)) return body;
  copies_.push_back(names.copy(body));
  return *copies_.back();
}

bool ModelLowering::lowerInlined(const graph::Graph &g, const graph::Node &node, const graph::Graph &traced, const std::vector<ValueId> &ids, Values &values) {
  const graph::Graph &body = forThisCall(g, node, traced, ids);
  std::vector<Tensor> operands, results;
  for (ValueId id : ids) {
    auto it = id.valid() ? values.find(id.value) : values.end();
    operands.push_back(it == values.end() ? Tensor() : it->second);
  }
  for (size_t k = 0; k < operands.size() && k < body.inputs.size(); ++k)
    if (operands[k].valid() && body.inputs[k].valid() && body.value(body.inputs[k]).kind == Kind::Tensor &&
        operands[k].sizes() != body.value(body.inputs[k]).type.sizes)
      return refuse(node, fmt::format("its sub-graph was traced for another size of operand {}", k));
  if (!lowerBody(body, operands, results)) return refuse(node, "its sub-graph takes another number of operands");
  ctx_.current = &node;
  const std::vector<ValueId> outs = flatOutputs(node);
  for (size_t k = 0; k < outs.size(); ++k) {
    if (!outs[k].valid()) continue;
    const graph::Value &v = g.value(outs[k]);
    const bool given = k < results.size() && results[k].valid();
    if (v.kind == Kind::SymInt || v.kind == Kind::SymBool) {
      if (given && v.expr.valid() && !ctx_.isKnown(v.expr)) ctx_.define(results[k], v.expr);
    } else if (v.kind == Kind::Tensor && !given) {
      return refuse(node, "a result of its sub-graph is not a tensor");
    } else if (v.kind == Kind::Tensor) {
      // A size that two results share, or that the sub-graph computes of its own.
      for (size_t d = 0; d < v.type.sizes.size() && d < results[k].sizes().size(); ++d)
        if (!ctx_.isKnown(v.type.sizes[d])) ctx_.define(scalarExpr(ctx_, results[k].sizes()[d]), v.type.sizes[d]);
      values[outs[k].value] = settle(g, outs[k], results[k]);
    } else if (given) {
      values[outs[k].value] = results[k];
    }
  }
  return true;
}

} // namespace neso::lower
