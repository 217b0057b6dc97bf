#include "ir/graph/passes/dtype_calls.h"

#include "base/rules.h"
#include "ir/graph/ops.h"
#include "ir/graph/passes/emit.h"
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
    TensorType type = g_.value(out).type;
    type.dtype = computed;
    const ValueId wide = g_.addValue(g_.value(out).name + ".computed", std::move(type));
    inner.outputs = {{wide}};
    nodes_.push_back(std::move(inner));
    cast(wide, *result);
    // The result has its name and type already.
    nodes_.back().outputs = {{out}};
    g_.values.pop_back();
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

  ValueId cast(ValueId from, DType dtype) {
    TensorType type = g_.value(from).type;
    type.dtype = dtype;
    return emitCall(g_, nodes_, call_, "aten._to_copy.default", {from, dtype}, g_.value(from).name + "." + call_.name, std::move(type));
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
