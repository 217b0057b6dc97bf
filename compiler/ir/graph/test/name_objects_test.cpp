// Script objects get the names under which whoever runs the model brings them; what cannot be brought is refused by name.
#include <gtest/gtest.h>

#include "ir/graph/ops.h"
#include "ir/graph/passes/functionalize.h"
#include "ir/graph/passes/name_objects.h"
#include "ir/graph/passes/simplify.h"

using namespace neso;
using namespace neso::graph;

namespace {

const char kClass[] = "__torch__.torch.classes.test.Table";

TensorType row() {
  TensorType t;
  t.sizes = {4}, t.strides = {1};
  return t;
}

ValueId object(Graph &g, const std::string &name) {
  const ValueId id = g.addValue(name, {});
  g.value(id).kind = Value::Kind::Object;
  return id;
}

ValueId call(Graph &g, std::string target, std::vector<Argument> args, std::string name, Value::Kind kind = Value::Kind::Tensor) {
  Node n;
  n.name = name, n.target = std::move(target), n.args = std::move(args);
  n.argNames.resize(n.args.size());
  const ValueId out = g.addValue(name, row());
  g.value(out).kind = kind;
  n.outputs = {{out}};
  g.nodes.push_back(std::move(n));
  return out;
}

/// Attribute "layer.table" and argument "t", both objects, and a tensor x.
struct Objects {
  Model m;
  ValueId x;
  Objects() {
    add("obj_layer_table", Input::Kind::CustomObj, "layer.table");
    add("t", Input::Kind::User, "t");
    x = m.graph.addValue("x", row());
    input(x, Input::Kind::User, "x");
  }
  void add(const std::string &value, Input::Kind kind, const std::string &name) { input(object(m.graph, value), kind, name); }
  void input(ValueId id, Input::Kind kind, const std::string &name) {
    Input in;
    in.value = id, in.kind = kind, in.name = name;
    m.graph.inputs.push_back(id);
    m.inputs.push_back(std::move(in));
  }
  std::string refusal() {
    const Status s = nameObjects(m);
    return s ? "" : s.error().str();
  }
};

CustomObject objectNamed(std::string name) { return {std::move(name), kClass}; }
/// "target(name of the object, …)" of each node.
std::string objectsOf(const Graph &g) {
  std::string out;
  for (const Node &n : g.nodes) {
    out += n.target;
    for (size_t i = 0; i < n.args.size(); ++i)
      if (const auto *o = std::get_if<CustomObject>(&n.args[i])) out += " " + n.argNames[i] + "=" + o->name;
    out += "; ";
  }
  return out;
}

} // namespace

TEST(NameObjects, AttributesArgumentsAndConstantsOfTheFile) {
  Objects k;
  Graph &g = k.m.graph;
  const ValueId a = call(g, "higher_order.call_torchbind", {objectNamed("obj_layer_table"), std::string("find"), k.x, int64_t(3)}, "a");
  call(g, "mylib.op.default", {objectNamed("t"), a}, "b");
  call(g, "mylib.op.default", {objectNamed("_custom_obj_0"), a}, "c");
  ASSERT_EQ(k.refusal(), "");
  EXPECT_EQ(objectsOf(g), std::string(kClass) + "::find self=layer.table; mylib.op.default =t; mylib.op.default =_custom_obj_0; ");
  EXPECT_EQ(g.nodes[0].argNames, (std::vector<std::string>{"self", "1", "2"}));
  EXPECT_TRUE(isOfCaller(g.nodes[0].target));
}

TEST(NameObjects, MethodsInTheOrderOfTokens) {
  Objects k;
  Graph &g = k.m.graph;
  const ValueId token = object(g, "token");
  k.input(token, Input::Kind::Token, "token");
  Node n;
  n.name = "wrapped", n.target = "higher_order.with_effects";
  n.args = {token, std::string("higher_order.call_torchbind"), objectNamed("t"), std::string("find"), k.x};
  n.argNames.resize(5);
  n.outputs = {{object(g, "next")}, {g.addValue("y", row())}};
  g.nodes.push_back(n);
  ASSERT_EQ(k.refusal(), "");
  dropTokens(k.m);
  EXPECT_EQ(objectsOf(g), std::string(kClass) + "::find self=t; ");
  EXPECT_EQ(g.nodes[0].outputs.size(), 1u);
}

// The file names no operand of such a call.
TEST(NameObjects, OperandsOfOperatorsInTheOrderOfTokens) {
  for (const char *schema : {"", "mylib::op(__torch__.torch.classes.test.Table t, Tensor x) -> Tensor"}) {
    Objects k;
    if (*schema) k.m.extraFiles["neso_operators"] = schema;
    Graph &g = k.m.graph;
    const ValueId token = object(g, "token");
    k.input(token, Input::Kind::Token, "token");
    Node n;
    n.name = "wrapped", n.target = "higher_order.with_effects";
    n.args = {token, std::string("mylib.op.default"), objectNamed("t"), k.x};
    n.argNames.resize(4);
    n.outputs = {{object(g, "next")}, {g.addValue("y", row())}};
    g.nodes.push_back(n);
    ASSERT_EQ(k.refusal(), "");
    ASSERT_TRUE(functionalize(k.m));
    dropTokens(k.m);
    EXPECT_EQ(g.nodes[0].argNames, *schema ? (std::vector<std::string>{"t", "x"}) : (std::vector<std::string>{"0", "1"}));
  }
}

TEST(NameObjects, ASubGraphThatStandsWhereItIsCalledNamesThemItself) {
  Objects k;
  auto body = std::make_shared<Graph>();
  body->inputs = {object(*body, "own")};
  const ValueId in = body->addValue("in", row());
  body->inputs.push_back(in);
  body->outputs.emplace_back(call(*body, "higher_order.call_torchbind", {objectNamed("own"), std::string("find"), in}, "found"));
  call(k.m.graph, "higher_order.wrap_with_set_grad_enabled", {false, body, objectNamed("obj_layer_table"), k.x}, "y");
  ASSERT_EQ(k.refusal(), "");
  const Node &n = k.m.graph.nodes[0];
  ASSERT_EQ(n.args.size(), 3u);
  EXPECT_EQ(std::get<ValueId>(n.args[2]), k.x);
  const Graph &named = *std::get<std::shared_ptr<Graph>>(n.args[1]);
  EXPECT_EQ(objectsOf(named), std::string(kClass) + "::find self=layer.table; ");
  EXPECT_EQ(named.inputs, std::vector<ValueId>{in});
  EXPECT_EQ(body->inputs.size(), 2u) << "another call may share the sub-graph";
}

TEST(NameObjects, WhatCannotBeBroughtIsRefused) {
  {
    Objects k;
    call(k.m.graph, "higher_order.call_torchbind", {objectNamed("t"), std::string("clone")}, "made", Value::Kind::Object);
    call(k.m.graph, "higher_order.call_torchbind", {objectNamed("made"), std::string("find"), k.x}, "y");
    EXPECT_NE(k.refusal().find("'made' is a script object that the model makes"), std::string::npos) << k.refusal();
  }
  {
    Objects k;
    auto body = std::make_shared<Graph>();
    const ValueId in = body->addValue("in", row());
    body->inputs = {in};
    body->outputs.emplace_back(call(*body, "mylib.op.default", {objectNamed("_custom_obj_0"), in}, "found"));
    call(k.m.graph, "higher_order.cond", {true, body, body, std::vector<ValueId>{k.x}}, "y");
    EXPECT_NE(k.refusal().find("a branch or a loop uses a script object"), std::string::npos);
  }
  {
    Objects k;
    call(k.m.graph, "higher_order.call_torchbind", {objectNamed("t"), k.x}, "y");
    EXPECT_NE(k.refusal().find("it is no call of an object's method"), std::string::npos);
  }
}

TEST(NameObjects, SchemasThatTakeOne) {
  const std::optional<OpSchema> op = parseSchema("mylib::put(Tensor(a!) x, __torch__.torch.classes.test.Table t, int n=3) -> ()");
  ASSERT_TRUE(op);
  EXPECT_EQ(op->argIndex("t"), 1);
  EXPECT_TRUE(op->args[0].mutated);
  EXPECT_FALSE(op->args[1].mutated);
  EXPECT_TRUE(fits(op->args[1], CustomObject{"t", kClass}, Graph()));
}
