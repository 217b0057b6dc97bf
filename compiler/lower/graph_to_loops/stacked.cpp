// while_loop_stack_output: what each turn gives, one behind the other. How many turns there are decides how much memory that takes, so the loop is
// computed once to count them, and once more to keep what it gives:
//
//     ys = loop(c, f, [x])     X = x, n = 0; while c(X) { X = f(X); n = n + 1 }   X = x; for t < n { X = f(X); ys[t] = X }
//
// Without turns there is one row: what the loop began with.
#include "lower/graph_to_loops/model_lowering.h"
#include "lower/graph_to_loops/renaming.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

using graph::ValueId;
using loops::RegionSpec;

bool ModelLowering::lowerStacked(const graph::Graph &g, const graph::Node &node, std::array<const graph::Graph *, 2> bodies, const Tensors &initial, const Tensors &rest,
                                 Values &values) {
  ctx_.current = &node;
  const std::vector<ValueId> outs = flatOutputs(node);
  if (outs.size() != initial.size() || outs.empty()) return refuse(node, "it gives another number of values than it carries");
  if (std::any_of(initial.begin(), initial.end(), [](const Tensor &x) { return !x.valid(); })) return refuse(node, "it carries a value that is no tensor");
  if (!isRepeatable(*bodies[0]) || !isRepeatable(*bodies[1]))
    return refuse(node, "how often it turns is found out by computing it twice, and its sub-graphs draw random numbers or launch a kernel");
  std::string why;
  const Expr around = path_;
  Tensors carried, operands;
  std::set<BufferId> own;
  auto begin = [&] {
    carried.clear(), own.clear();
    for (const Tensor &x : initial) {
      carried.push_back(carry(x));
      own.insert(bufferOf(carried.back()));
    }
    operands = carried;
    operands.insert(operands.end(), rest.begin(), rest.end());
  };
  // One turn, in the block of a loop.
  auto turn = [&](const graph::Graph &body, Expr taken) {
    path_ = logicalAnd(path_, taken);
    Tensors results;
    const bool fits = lowerBody(body, ofBlock(operands), results, own);
    path_ = around;
    ctx_.current = &node;
    if (fits && results.size() == carried.size() && std::all_of(results.begin(), results.end(), [](const Tensor &t) { return t.valid(); })) return results;
    why = "its body gives other values than it carries";
    return carried;
  };

  begin();
  const Tensor count = carry(fullInt(ctx_, {}, DType::I64, 0));
  RegionSpec spec;
  spec.kind = RegionSpec::Kind::While;
  std::optional<Lowering::Known> tested;
  spec.blocks[0] = ctx_.block([&] {
    Tensors results;
    if (!lowerBody(*bodies[0], ofBlock(operands), results) || results.size() != 1 || !results[0].valid()) return void(why = "its condition has no value");
    ctx_.current = &node;
    spec.condition = ctx_.read(cast(results[0], DType::Bool));
    tested = ctx_.known();
  });
  if (!why.empty()) return refuse(node, why);
  spec.blocks[1] = ctx_.block([&] {
    ctx_.setKnown(*tested);
    putAll(turn(*bodies[1], spec.condition), carried);
    put(addNumber(count, 1).realize(), count);
  });
  if (!why.empty()) return refuse(node, why);
  ctx_.addNode(std::move(spec));
  const Expr turns = ctx_.read(count);
  ctx_.bound(turns.symbol(), {0, INT64_MAX});

  begin();
  Tensors rows;
  for (size_t k = 0; k < outs.size(); ++k) {
    if (!outs[k].valid()) return refuse(node, "a result is no tensor of rows");
    const graph::Value &v = g.value(outs[k]);
    if (v.kind != graph::Value::Kind::Tensor || v.type.sizes.empty()) return refuse(node, "a result is no tensor of rows");
    if (!ctx_.isKnown(v.type.sizes[0])) ctx_.define(scalarExpr(ctx_, max(turns, 1)), v.type.sizes[0]);
    if (isNew(v)) return refuse(node, "the size of '" + v.name + "' changes from turn to turn");
    rows.push_back(place(ctx_, v.type.dtype, v.type.sizes));
    put(full(ctx_, v.type.sizes, v.type.dtype, 0), rows.back()); // that each is written in its turn is more than the verifiers can see
    putRow(carried[k], rows.back(), 0);
  }
  // Its numbers have names of their own: those of the first loop are read there.
  Renaming names(ctx_, [&](Symbol s) { return !ctx_.isKnown(Expr(s)); });
  copies_.push_back(names.copy(*bodies[1]));
  const graph::Graph &again = *copies_.back();
  forTurns(ctx_, turns, [&](Expr at) {
    const Tensors results = turn(again, lt(at, turns));
    for (size_t k = 0; k < rows.size(); ++k) putRow(results[k], rows[k], at);
    putAll(results, carried);
  });
  if (!why.empty()) return refuse(node, why);
  for (size_t k = 0; k < outs.size(); ++k) values[outs[k].value] = rows[k];
  return true;
}

} // namespace neso::lower
