// Calls of sub-graphs: branches and loops become regions, the rest joins the nodes around it.
//
// A region's operands are computed before it, since what is computed in a branch is there in that branch only. Each result
// is a buffer around the region that its blocks store to:
//
//     y = cond(p, f, g, [x])           p0 = read p;  if p0 { y[i] = f(x)[i] } else { y[i] = g(x)[i] }
//     i, z = while_loop(c, f, [i, z])  I = i, Z = z; while { p0 = read c(I, Z) } p0 { t, u = f(I, Z); I = t, Z = u }
//     ys = map(f, xs)                  n = 0; while { c0 = read n } c0 < size { ys[c0] = f(xs[c0]); n = c0 + 1 }
#include <algorithm>

#include "base/diagnostics/graph.h"
#include "base/rules.h"
#include "ir/graph/ops.h"
#include "ir/loops/access.h"
#include "lower/graph_to_loops/cost.h"
#include "lower/graph_to_loops/model_lowering.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

using graph::ValueId;
using loops::RegionSpec;

/// A call taken apart: its sub-graphs, then its operands by list. Numbers that the file has as constants are invalid.
struct ModelLowering::Call {
  const graph::Node &node;
  std::vector<const graph::Graph *> bodies;
  std::vector<std::vector<ValueId>> lists;
  std::vector<ValueId> operands() const {
    std::vector<ValueId> out;
    for (const std::vector<ValueId> &list : lists) out.insert(out.end(), list.begin(), list.end());
    return out;
  }
};

namespace {

/// Branches that compute no more than this are computed both, which costs less than to ask which one is taken.
constexpr int64_t kBytesOfBoth = 16 << 10;

/// Bytes of a value where they are known.
std::optional<int64_t> bytesOf(const graph::Value &v) {
  if (v.kind != graph::Value::Kind::Tensor) return 0;
  const std::optional<int64_t> count = product(v.type.sizes).asConst();
  return count ? std::optional<int64_t>(*count * itemSize(v.type.dtype)) : std::nullopt;
}

/// Whether both ways may be computed: little work that cannot fail and that changes nothing.
bool isLittleWork(const graph::Graph &g) {
  int64_t bytes = 0;
  auto count = [&](ValueId id) {
    if (!id.valid()) return true;
    const std::optional<int64_t> b = bytesOf(g.value(id));
    return b && (bytes += *b) <= kBytesOfBoth;
  };
  for (ValueId id : g.inputs)
    if (!count(id)) return false;
  for (const graph::Node &n : g.nodes) {
    if (isCall(n.target) || n.launch || n.target == "aten._assert_scalar.default") return false;
    for (ValueId id : flatOutputs(n)) {
      if (!count(id)) return false;
      // A number of its own: its value is read, and may be asserted.
      if (id.valid() && g.value(id).expr.valid() && (n.target == "aten.item.default" || n.target == "aten._local_scalar_dense.default"))
        return false;
    }
  }
  return true;
}

} // namespace

bool ModelLowering::refuse(const graph::Node &node, const std::string &why) {
  report(makeDiag(diag::OpRefused, node.loc, operatorOf(node), why));
  return false;
}

std::optional<ModelLowering::Call> ModelLowering::readCall(const graph::Node &node) {
  Call call{node, {}, {}};
  for (size_t k = 0; k < node.args.size(); ++k) {
    const graph::Argument &a = node.args[k];
    if (const std::shared_ptr<graph::Graph> *sub = std::get_if<std::shared_ptr<graph::Graph>>(&a)) {
      call.bodies.push_back(sub->get());
      call.lists.clear();
    } else if (const ValueId *id = std::get_if<ValueId>(&a)) {
      call.lists.push_back({*id});
    } else if (const std::vector<ValueId> *ids = std::get_if<std::vector<ValueId>>(&a)) {
      call.lists.push_back(*ids);
    } else if (const std::vector<graph::IntOrSym> *syms = std::get_if<std::vector<graph::IntOrSym>>(&a)) {
      call.lists.emplace_back();
      for (const graph::IntOrSym &s : *syms)
        call.lists.back().push_back(std::holds_alternative<ValueId>(s) ? std::get<ValueId>(s) : ValueId());
    } else if (std::holds_alternative<int64_t>(a) && !call.bodies.empty() && (k >= node.argNames.size() || node.argNames[k].empty())) {
      // A size that is one number in this model; what has a name is an option of the call.
      call.lists.push_back({ValueId()});
    }
  }
  const size_t expected = node.target == "higher_order.cond" || node.target.starts_with("higher_order.while_loop") ? 2 : 1;
  if (call.bodies.size() != expected) {
    refuse(node, "it does not have the expected sub-graphs");
    return std::nullopt;
  }
  if (node.target == "higher_order.wrap_with_autocast" && node.args.size() > 2)
    if (const bool *on = std::get_if<bool>(&node.args[2]); !on || *on) {
      refuse(node, "it computes under autocast; export the model with run_decompositions(), which writes the casts out");
      return std::nullopt;
    }
  return call;
}

/// The values of a list; invalid: a number, which the sub-graph knows as well.
std::vector<Tensor> ModelLowering::operandsOf(const Call &call, size_t list, const Values &values) {
  Tensors out;
  if (list >= call.lists.size()) return out;
  for (ValueId id : call.lists[list]) {
    auto it = id.valid() ? values.find(id.value) : values.end();
    out.push_back(it == values.end() ? Tensor() : it->second);
  }
  return out;
}

/// Operands of a region: what is lazy is computed now, unless that reads no memory and is as cheap in the region.
std::vector<Tensor> ModelLowering::inMemory(const Call &call, size_t list, const Values &values) {
  Tensors out = operandsOf(call, list, values);
  for (Tensor &x : out) {
    if (!x.valid() || (x.isComplex() && x.realized())) continue;
    if (!x.isComplex() && x.asStrided()) {
      x = Tensor::strided(ctx_, x.dtype(), x.sizes(), *x.asStrided());
    } else if (x.isComplex() || !x.loads().empty() || worthRealizing(x.cost(), 2)) {
      const Tensor made = place(ctx_, x.dtype(), x.sizes());
      put(x, made);
      x = made;
    }
  }
  return out;
}

/// Operands as handles of one block: what is realized there lies in memory for that block alone.
std::vector<Tensor> ModelLowering::ofBlock(std::vector<Tensor> operands) {
  for (Tensor &x : operands)
    if (x.valid() && !x.isComplex() && !x.realized())
      x = Tensor::lazy(x.ctx(), x.dtype(), x.sizes(), [x](BodyBuilder &b, const Index &i) { return x.at(b, i); });
  return operands;
}

bool ModelLowering::lowerBody(const graph::Graph &body, const std::vector<Tensor> &operands, Tensors &results, const std::set<BufferId> &own) {
  if (body.inputs.size() != operands.size()) return false;
  Values inner;
  for (size_t k = 0; k < operands.size(); ++k)
    if (operands[k].valid() && body.inputs[k].valid()) inner[body.inputs[k].value] = operands[k];
  lowerWhole(body, inner, own);
  for (const graph::Argument &a : body.outputs) {
    const ValueId *id = std::get_if<ValueId>(&a);
    auto it = id ? inner.find(id->value) : inner.end();
    results.push_back(it == inner.end() ? Tensor() : it->second);
    // A number of a sub-graph that its operations gave as an expression.
    if (it == inner.end() && id && id->valid() && body.value(*id).expr.valid() && ctx_.isKnown(body.value(*id).expr))
      results.back() = scalarExpr(ctx_, body.value(*id).expr);
    if (const int64_t *n = std::get_if<int64_t>(&a)) results.back() = scalarInt(ctx_, *n);
    if (const bool *b = std::get_if<bool>(&a)) results.back() = fullInt(ctx_, {}, DType::Bool, *b);
  }
  return true;
}

/// The condition of a branch as an expression: a number of the model's, or a tensor's element that is read.
std::optional<Expr> ModelLowering::conditionOf(const graph::Graph &g, const graph::Argument &a, const Values &values) {
  if (const bool *b = std::get_if<bool>(&a)) return Expr(*b ? 1 : 0);
  const ValueId *p = std::get_if<ValueId>(&a);
  if (!p) return std::nullopt;
  if (auto it = values.find(p->value); it != values.end()) return ctx_.read(cast(it->second, DType::Bool));
  if (g.value(*p).expr.valid()) return ne(g.value(*p).expr, 0);
  return std::nullopt;
}

/// A sub-graph's assertion holds where its region runs. One over the region's own numbers is tested when they are read.
void ModelLowering::lowerAssertion(const graph::Graph &g, const graph::Node &node) {
  if (&g == &model_.graph || node.args.empty()) return;
  const ValueId *id = std::get_if<ValueId>(&node.args[0]);
  if (!id || !id->valid()) return;
  const Expr condition = g.value(*id).expr;
  if (!condition.valid() || !ctx_.isKnown(condition)) return;
  const std::string *text = node.args.size() > 1 ? std::get_if<std::string>(&node.args[1]) : nullptr;
  ctx_.current = &node;
  ctx_.require(logicalOr(logicalNot(path_), condition),
               (text ? *text : "an assertion of the model does not hold: " + condition.str()) + valuesOf(condition) + ctx_.where());
  ctx_.current = nullptr;
}

/// Both ways are computed and one is chosen: neither has effects, and the one that is not taken reports no error.
bool ModelLowering::chooseCond(const graph::Graph &g, Call &call, Values &values) {
  applied(Rule::ChooseBranch);
  Tensor choice;
  if (const ValueId *p = std::get_if<ValueId>(&call.node.args[0])) {
    if (auto it = values.find(p->value); it != values.end())
      choice = reshape(cast(it->second, DType::Bool), {}).reused();
    else if (g.value(*p).expr.valid())
      choice = cast(scalarExpr(ctx_, g.value(*p).expr), DType::Bool);
  }
  if (!choice.valid()) return refuse(call.node, "its condition has no value");
  Tensors operands, results[2];
  for (ValueId id : call.operands()) {
    auto it = id.valid() ? values.find(id.value) : values.end();
    operands.push_back(it == values.end() ? Tensor() : it->second);
  }
  const std::shared_ptr<const BodyBuilder::Guard> outer = ctx_.guard;
  for (size_t way : {0, 1}) {
    // What the other branch would refuse, as an index out of range, is no error of this run.
    ctx_.guard = std::make_shared<const BodyBuilder::Guard>([choice, outer, way](BodyBuilder &b) {
      Val taken = way == 0 ? choice.at(b, {}) : !choice.at(b, {});
      return outer ? (*outer)(b) && taken : taken;
    });
    const bool fits = lowerBody(*call.bodies[way], operands, results[way]);
    ctx_.guard = outer;
    if (!fits) return refuse(call.node, "its sub-graph takes another number of operands");
  }
  const std::vector<ValueId> outs = flatOutputs(call.node);
  for (size_t k = 0; k < outs.size(); ++k) {
    if (!outs[k].valid() || g.value(outs[k]).kind != graph::Value::Kind::Tensor) continue;
    for (const Tensors &r : results)
      if (k >= r.size() || !r[k].valid()) return refuse(call.node, "a result of its sub-graph is not a tensor");
    values[outs[k].value] = settle(g, outs[k], where(choice, results[0][k], results[1][k]));
  }
  return true;
}

/// Sizes of results that differ between the ways get their value before the region: from the condition, or where the ways compute them, from a
/// region that computes them alone.
bool ModelLowering::defineSizes(const graph::Graph &g, const Call &call, Expr condition, const std::vector<Tensor> &operands,
                                std::vector<SizeOfResult> &computed) {
  const std::vector<ValueId> outs = flatOutputs(call.node);
  for (size_t k = 0; k < outs.size(); ++k) {
    if (!outs[k].valid() || g.value(outs[k]).kind != graph::Value::Kind::Tensor) continue;
    const graph::Value &v = g.value(outs[k]);
    for (size_t d = 0; d < v.type.sizes.size(); ++d) {
      if (ctx_.isKnown(v.type.sizes[d])) continue;
      Expr ways[2];
      for (size_t way : {0, 1}) {
        const graph::Graph &body = *call.bodies[way];
        const ValueId *id = k < body.outputs.size() ? std::get_if<ValueId>(&body.outputs[k]) : nullptr;
        if (!id || !id->valid() || d >= body.value(*id).type.sizes.size()) return refuse(call.node, "a result of its sub-graph is not a tensor");
        ways[way] = body.value(*id).type.sizes[d];
      }
      if (ctx_.isKnown(ways[0]) && ctx_.isKnown(ways[1]))
        ctx_.define(cast(scalarExpr(ctx_, where(ne(condition, 0), ways[0], ways[1])), DType::I64), v.type.sizes[d]);
      else
        computed.push_back({k, d, v.type.sizes[d]});
    }
  }
  return computed.empty() || computeSizes(call.node, {call.bodies[0], call.bodies[1]}, condition, operands, computed);
}

/// One way runs.
bool ModelLowering::branchCond(const graph::Graph &g, Call &call, Values &values) {
  applied(Rule::Branch);
  ctx_.current = &call.node;
  const std::optional<Expr> condition = conditionOf(g, call.node.args[0], values);
  if (!condition) return refuse(call.node, "its condition has no value");
  Tensors operands;
  for (size_t list = 0; list < call.lists.size(); ++list)
    for (Tensor &x : inMemory(call, list, values)) operands.push_back(std::move(x));

  std::vector<SizeOfResult> computed;
  if (!defineSizes(g, call, *condition, operands, computed)) return false;
  const std::vector<ValueId> outs = flatOutputs(call.node);
  Tensors places(outs.size()); // where both ways store to
  for (size_t k = 0; k < outs.size(); ++k) {
    if (!outs[k].valid()) continue;
    const graph::Value &v = g.value(outs[k]);
    using Kind = graph::Value::Kind;
    if (v.kind == Kind::Tensor) places[k] = place(ctx_, v.type.dtype, v.type.sizes);
    if (v.kind == Kind::SymInt || v.kind == Kind::SymBool) places[k] = place(ctx_, v.kind == Kind::SymInt ? DType::I64 : DType::Bool, {});
    if (v.kind == Kind::SymFloat) places[k] = place(ctx_, DType::F64, {});
  }

  RegionSpec spec;
  spec.condition = *condition;
  std::string why;
  for (size_t way : {0, 1})
    spec.blocks[way] = ctx_.block([&] {
      const Expr around = path_, here = logicalAnd(path_, way == 0 ? ne(*condition, 0) : eq(*condition, 0));
      path_ = here;
      Tensors results;
      const bool fits = lowerBody(*call.bodies[way], ofBlock(operands), results);
      path_ = around;
      ctx_.current = &call.node;
      if (!fits || results.size() != outs.size()) {
        why = "its sub-graph takes another number of operands or gives another number of results";
        return;
      }
      for (const SizeOfResult &size : computed)
        if (results[size.result].valid())
          ctx_.require(logicalOr(logicalNot(here), eq(results[size.result].sizes()[size.dim], size.size)), "a branch gave two sizes for one result" + ctx_.where());
      for (size_t k = 0; k < outs.size(); ++k) {
        if (!places[k].valid()) continue;
        if (!results[k].valid()) {
          why = "a result of its sub-graph has no value";
          continue;
        }
        put(cast(results[k], places[k].dtype()), places[k]);
      }
    });
  if (!why.empty()) return refuse(call.node, why);
  ctx_.addNode(std::move(spec));
  for (size_t k = 0; k < outs.size(); ++k) {
    if (!places[k].valid()) continue;
    const graph::Value &v = g.value(outs[k]);
    if (v.kind != graph::Value::Kind::SymInt && v.kind != graph::Value::Kind::SymBool)
      values[outs[k].value] = places[k];
    else if (v.expr.valid())
      ctx_.define(places[k], v.expr);
  }
  return true;
}

bool ModelLowering::lowerWhile(const graph::Graph &g, Call &call, Values &values) {
  ctx_.current = &call.node;
  const std::vector<ValueId> outs = flatOutputs(call.node);
  if (call.lists.empty() || call.lists[0].size() != outs.size()) return refuse(call.node, "it gives another number of values than it carries");
  Tensors carried;
  std::set<BufferId> own;
  for (const Tensor &x : operandsOf(call, 0, values)) {
    if (!x.valid()) return refuse(call.node, "it carries a value that is no tensor");
    carried.push_back(carry(x));
    own.insert(bufferOf(carried.back()));
  }
  for (ValueId id : outs)
    if (id.valid() && isNew(g.value(id))) return refuse(call.node, "the size of '" + g.value(id).name + "' changes from turn to turn");
  Tensors operands = carried;
  for (size_t list = 1; list < call.lists.size(); ++list)
    for (Tensor &x : inMemory(call, list, values)) operands.push_back(std::move(x));

  RegionSpec spec;
  spec.kind = RegionSpec::Kind::While;
  std::string why;
  const Expr around = path_;
  std::optional<Lowering::Known> tested;
  spec.blocks[0] = ctx_.block([&] {
    Tensors results;
    if (!lowerBody(*call.bodies[0], ofBlock(operands), results) || results.size() != 1 || !results[0].valid()) {
      why = "its condition has no value";
      return;
    }
    ctx_.current = &call.node;
    spec.condition = ctx_.read(cast(results[0], DType::Bool));
    tested = ctx_.known();
  });
  if (!why.empty()) return refuse(call.node, why);
  spec.blocks[1] = ctx_.block([&] {
    ctx_.setKnown(*tested); // the body sees what the test has found out
    path_ = logicalAnd(path_, spec.condition);
    Tensors results;
    const bool fits = lowerBody(*call.bodies[1], ofBlock(operands), results, own);
    path_ = around;
    ctx_.current = &call.node;
    if (!fits || results.size() != carried.size() ||
        std::any_of(results.begin(), results.end(), [](const Tensor &t) { return !t.valid(); })) {
      why = "its body gives other values than it carries";
      return;
    }
    putAll(results, carried);
  });
  if (!why.empty()) return refuse(call.node, why);
  ctx_.addNode(std::move(spec));
  for (size_t k = 0; k < outs.size(); ++k)
    if (outs[k].valid()) values[outs[k].value] = carried[k];
  return true;
}

/// map: rows of xs to rows of results. scan: carried values and rows to the next ones and rows of results.
/// associative_scan: the carried values are the last rows.
bool ModelLowering::lowerTurns(const graph::Graph &g, Call &call, Values &values) {
  ctx_.current = &call.node;
  const bool scan = call.node.target == "higher_order.scan", fold = call.node.target == "higher_order.associative_scan";
  const size_t rowsAt = scan ? 1 : 0;
  const std::vector<ValueId> outs = flatOutputs(call.node);
  Tensors xs = inMemory(call, rowsAt, values), carried, rows, extra;
  if (xs.empty() || !std::all_of(xs.begin(), xs.end(), [](const Tensor &x) { return x.valid() && x.rank() > 0; }))
    return refuse(call.node, "it has nothing to go along");
  const Expr turns = xs[0].sizes()[0];
  std::set<BufferId> own;
  for (const Tensor &x : scan ? operandsOf(call, 0, values) : fold ? xs : Tensors()) {
    if (!x.valid()) return refuse(call.node, "it carries a value that is no tensor");
    carried.push_back(carry(fold ? rowOf(x, 0) : x));
    own.insert(bufferOf(carried.back()));
  }
  for (size_t list = rowsAt + 1; list < call.lists.size(); ++list)
    for (Tensor &x : inMemory(call, list, values)) extra.push_back(std::move(x));
  const size_t kept = scan ? carried.size() : 0; // results that are no rows
  for (size_t k = kept; k < outs.size(); ++k) {
    const graph::Value &v = g.value(outs[k]);
    if (v.kind != graph::Value::Kind::Tensor || v.type.sizes.empty() || isNew(v)) return refuse(call.node, "a result is no tensor of rows");
    rows.push_back(place(ctx_, v.type.dtype, v.type.sizes));
    if (fold)
      putRow(carried[k], rows.back(), 0);
    else // Without turns there are no rows; that each is written in its turn is more than the verifiers can see.
      put(full(ctx_, v.type.sizes, v.type.dtype, 0), rows.back());
  }
  if (fold) ctx_.require(le(1, turns), "an associative scan along a dimension without elements" + ctx_.where());

  const Tensor counter = place(ctx_, DType::I64, {});
  put(fullInt(ctx_, {}, DType::I64, fold ? 1 : 0), counter);
  RegionSpec spec;
  spec.kind = RegionSpec::Kind::While;
  Expr turn;
  std::optional<Lowering::Known> tested;
  spec.blocks[0] = ctx_.block([&] {
    turn = ctx_.readTurn(counter, fold ? 1 : 0);
    tested = ctx_.known();
  });
  spec.condition = lt(turn, turns);
  std::string why;
  const Expr around = path_;
  spec.blocks[1] = ctx_.block([&] {
    ctx_.setKnown(*tested);
    path_ = logicalAnd(path_, spec.condition);
    Tensors operands = carried, results;
    for (const Tensor &x : xs) operands.push_back(rowOf(x, turn));
    operands.insert(operands.end(), extra.begin(), extra.end());
    const bool fits = lowerBody(*call.bodies[0], ofBlock(operands), results, own);
    path_ = around;
    ctx_.current = &call.node;
    if (!fits || results.size() != (fold ? rows.size() : kept + rows.size()) ||
        std::any_of(results.begin(), results.end(), [](const Tensor &t) { return !t.valid(); })) {
      why = "its sub-graph gives other values than it should";
      return;
    }
    for (size_t k = 0; k < rows.size(); ++k) putRow(results[kept + k], rows[k], turn);
    if (fold)
      for (Tensor &r : results) r = rowOf(rows[static_cast<size_t>(&r - results.data())], turn);
    results.resize(carried.size());
    putAll(results, carried);
    put(addNumber(counter, 1), counter);
  });
  if (!why.empty()) return refuse(call.node, why);
  ctx_.addNode(std::move(spec));
  for (size_t k = 0; k < outs.size(); ++k)
    if (outs[k].valid()) values[outs[k].value] = k < kept ? carried[k] : rows[k - kept];
  return true;
}

bool ModelLowering::lowerCall(const graph::Graph &g, const graph::Node &node, Values &values) {
  std::optional<Call> call = readCall(node);
  if (!call) return false;
  if (node.target == "higher_order.while_loop") return lowerWhile(g, *call, values);
  if (node.target == "higher_order.while_loop_stack_output") {
    Tensors rest;
    for (size_t list = 1; list < call->lists.size(); ++list)
      for (Tensor &x : inMemory(*call, list, values)) rest.push_back(std::move(x));
    return lowerStacked(g, node, {call->bodies[0], call->bodies[1]}, operandsOf(*call, 0, values), rest, values);
  }
  if (node.target == "higher_order.cond") {
    const std::vector<ValueId> outs = flatOutputs(node);
    const bool tensors = std::all_of(outs.begin(), outs.end(), [&](ValueId id) {
      return !id.valid() || (g.value(id).kind == graph::Value::Kind::Tensor && !isNew(g.value(id)));
    });
    const bool both = tensors && isLittleWork(*call->bodies[0]) && isLittleWork(*call->bodies[1]);
    return both ? chooseCond(g, *call, values) : branchCond(g, *call, values);
  }
  if (!graph::isInlined(node.target)) return lowerTurns(g, *call, values);
  return lowerInlined(g, node, *call->bodies[0], call->operands(), values);
}

} // namespace neso::lower
