// Sizes that only the branch which is taken can tell, as the count of a mask inside it. Memory for the result is asked for before the branch runs: a
// region of its own computes the sizes and no more, what else its copy of the branches holds is dropped, and the one that computes the results
// comes behind it.
#include "lower/graph_to_loops/model_lowering.h"
#include "lower/graph_to_loops/renaming.h"
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

bool ModelLowering::computeSizes(const graph::Node &node, std::array<const graph::Graph *, 2> bodies, Expr condition,
                                 const std::vector<Tensor> &operands, const std::vector<SizeOfResult> &wanted) {
  Tensors places;
  for (size_t i = 0; i < wanted.size(); ++i) places.push_back(Tensor::strided(ctx_, DType::I64, {}, ctx_.allocate(DType::I64, {})));
  loops::RegionSpec spec;
  spec.condition = condition;
  std::string why;
  for (size_t way : {0, 1})
    spec.blocks[way] = ctx_.block([&] {
      if (!isRepeatable(*bodies[way])) return void(why = "the size of a result is known in its sub-graph only, which draws random numbers or launches a kernel");
      std::shared_ptr<const graph::Graph> body = Renaming(ctx_, [&](Symbol s) { return !ctx_.isKnown(Expr(s)); }).copy(*bodies[way]);
      copies_.push_back(body);
      const Expr around = path_;
      path_ = logicalAnd(path_, way == 0 ? ne(condition, 0) : eq(condition, 0));
      Tensors results;
      const bool fits = lowerBody(*body, ofBlock(operands), results);
      path_ = around;
      ctx_.current = &node;
      for (size_t i = 0; i < wanted.size(); ++i) {
        if (!fits || wanted[i].result >= results.size() || !results[wanted[i].result].valid()) return void(why = "a result of its sub-graph has no value");
        ctx_.store(cast(scalarExpr(ctx_, results[wanted[i].result].sizes()[wanted[i].dim]), DType::I64), *places[i].asStrided());
      }
    });
  if (!why.empty()) return refuse(node, why);
  ctx_.addNode(std::move(spec));
  for (size_t i = 0; i < wanted.size(); ++i) ctx_.define(places[i], wanted[i].size);
  return true;
}

} // namespace neso::lower
