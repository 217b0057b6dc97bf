#include "ir/graph/passes/dtype_calls.h"

#include "base/fault.h"
#include "base/rules.h"
#include "ir/graph/ops.h"
#include "ir/graph/promotion.h"
#include "ir/graph/visit.h"

namespace neso::graph {
namespace {

/// One call, and the nodes that it becomes.
class Opened {
public:
  Opened(Graph &g, const Node &call, std::vector<Node> &nodes) : g_(g), call_(call), nodes_(nodes) {}

  /// False, and nothing made, where the call is none of those that torch writes.
  bool open() {
    const std::string *target = call_.args.size() > 2 ? std::get_if<std::string>(&call_.args[0]) : nullptr;
    const DType *result = target ? std::get_if<DType>(&call_.args[1]) : nullptr;
    if (!result || !findOp(*target) || call_.outputs.size() != 1 || call_.outputs[0].size() != 1) return false;
    const std::vector<Argument> operands(call_.args.begin() + 2, call_.args.end());
    const DType common = commonType(operands, *result);
    Node inner = call_;
    inner.target = *target, inner.args = operands, inner.argNames.clear();
    if (!bindArguments(inner, g_)) return false;
    for (Argument &a : inner.args)
      forEachValue(a, [&](ValueId &id) {
        if (g_.value(id).kind == Value::Kind::Tensor && g_.value(id).type.dtype != common) id = cast(id, common);
      });
    const DType computed = givenBy(*target, common);
    const ValueId out = call_.outputs[0][0];
    if (computed == *result) {
      nodes_.push_back(std::move(inner));
      return true;
    }
    const ValueId wide = value(g_.value(out).name + ".computed", g_.value(out).type, computed);
    inner.outputs = {{wide}};
    nodes_.push_back(std::move(inner));
    castTo(wide, *result, out);
    return true;
  }

private:
  /// The result's type counts as that of a tensor with dimensions.
  DType commonType(std::vector<Argument> operands, DType result) {
    TensorType one;
    one.dtype = result, one.sizes = {1}, one.strides = {1};
    operands.push_back(g_.addValue("", one));
    const std::optional<DType> common = resultType(g_, operands);
    g_.values.pop_back();
    return *common;
  }

  /// Of the operators that torch lets into such a call, division alone gives another type than it is given.
  static DType givenBy(const std::string &target, DType common) {
    return target.starts_with("aten.div.") && (isInteger(common) || common == DType::Bool) ? DType::F32 : common;
  }

  ValueId value(std::string name, TensorType type, DType dtype) {
    type.dtype = dtype;
    return g_.addValue(std::move(name), std::move(type));
  }

  ValueId cast(ValueId from, DType dtype) {
    const ValueId to = value(g_.value(from).name + "." + call_.name, g_.value(from).type, dtype);
    castTo(from, dtype, to);
    return to;
  }

  void castTo(ValueId from, DType dtype, ValueId to) {
    Node n;
    n.name = g_.value(to).name, n.target = "aten._to_copy.default", n.args = {from, dtype};
    n.outputs = {{to}}, n.loc = call_.loc, n.module = call_.module;
    const Status bound = bindArguments(n, g_);
    NESO_CHECK(static_cast<bool>(bound), "a cast that its schema refuses");
    nodes_.push_back(std::move(n));
  }

  Graph &g_;
  const Node &call_;
  std::vector<Node> &nodes_;
};

} // namespace

void openDtypeCalls(Model &m) {
  forEachGraph(m.graph, [](Graph &g) {
    std::vector<Node> nodes;
    for (Node &n : g.nodes) {
      if (n.target == "higher_order.out_dtype" && Opened(g, n, nodes).open())
        applied(Rule::OpenDtypeCall);
      else
        nodes.push_back(std::move(n));
    }
    g.nodes = std::move(nodes);
  });
}

} // namespace neso::graph
