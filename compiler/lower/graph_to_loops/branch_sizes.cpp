// Sizes that only the branch which is taken can tell, as the count of a mask inside it. Memory for the result is asked for before the branch runs: a
// region of its own computes the sizes and no more, what else its copy of the branches holds is dropped, and the one that computes the results
// comes behind it.
#include "ir/graph/ops.h"
#include "ir/graph/visit.h"
#include "lower/graph_to_loops/model_lowering.h"
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {
namespace {

/// Copies of sub-graphs whose numbers have names of their own: each number of a program is read at one place.
class Renaming {
public:
  explicit Renaming(Lowering &ctx) : ctx_(ctx) {}

  /// Null where a call in it draws random numbers or launches a kernel: twice it would not give the same.
  std::shared_ptr<graph::Graph> copy(const graph::Graph &g) {
    auto out = std::make_shared<graph::Graph>(g);
    for (graph::Value &v : out->values) {
      for (Expr &e : v.type.sizes) e = renamed(e);
      for (Expr &e : v.type.strides) e = renamed(e);
      v.type.offset = renamed(v.type.offset);
      if (v.expr.valid()) v.expr = renamed(v.expr);
    }
    for (graph::Node &node : out->nodes) {
      const graph::OpSchema *op = graph::findOp(node.target);
      if (node.launch || (op && op->random)) return nullptr;
      for (graph::Argument &a : node.args)
        if (auto *sub = std::get_if<std::shared_ptr<graph::Graph>>(&a)) {
          *sub = copy(**sub);
          if (!*sub) return nullptr;
        }
    }
    return out;
  }

private:
  Expr renamed(Expr e) {
    if (!e.valid()) return e;
    for (Symbol s : symbolsOf(e)) {
      if (names_.count(s) || ctx_.isKnown(Expr(s))) continue;
      const Symbol fresh = ctx_.freshSymbol(Expr(s).str());
      ctx_.facts.setRange(fresh, ctx_.facts.range(s));
      names_.emplace(s, Expr(fresh));
    }
    return substitute(e, names_);
  }

  Lowering &ctx_;
  SymbolMap<Expr> names_;
};

} // namespace

bool ModelLowering::computeSizes(const graph::Node &node, std::array<const graph::Graph *, 2> bodies, Expr condition,
                                 const std::vector<Tensor> &operands, const std::vector<SizeOfResult> &wanted) {
  Tensors places;
  for (size_t i = 0; i < wanted.size(); ++i) places.push_back(Tensor::strided(ctx_, DType::I64, {}, ctx_.allocate(DType::I64, {})));
  loops::RegionSpec spec;
  spec.condition = condition;
  std::string why;
  for (size_t way : {0, 1})
    spec.blocks[way] = ctx_.block([&] {
      std::shared_ptr<const graph::Graph> body = Renaming(ctx_).copy(*bodies[way]);
      if (!body) return void(why = "the size of a result is known in its sub-graph only, which draws random numbers or launches a kernel");
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
