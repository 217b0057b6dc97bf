// What the reader makes of files that torch wrote (tools/make_pt2_fixtures.py). Expected values are those of the Python
// modules there.
#include <cstring>

#include <gtest/gtest.h>

#include "base/diagnostics/pt2.h"
#include "frontend/pt2/stack_trace.h"
#include "ir/graph/passes/functionalize.h"
#include "ir/graph/passes/simplify.h"
#include "ir/graph/verify.h"
#include "test/zip.h"

using namespace neso;
using namespace neso::pt2;
using graph::Input;
using graph::Output;
using graph::Weight;

namespace {

graph::Model load(const std::string &name) {
  Result<graph::Model> m = readPt2(test::dataFolder() + name, {{}, true});
  EXPECT_TRUE(m) << m.error().str();
  if (!m) return {};
  Status s = graph::verify(*m, graph::Form::AsExported);
  EXPECT_TRUE(s) << s.error().str();
  return std::move(*m);
}

const graph::Node &nodeNamed(const graph::Model &m, const std::string &name) {
  for (const graph::Node &n : m.graph.nodes)
    if (n.name == name) return n;
  ADD_FAILURE() << "no node " << name;
  static graph::Node none;
  return none;
}

} // namespace

TEST(Read, WeightsShareStoragesAndKeepStrides) {
  graph::Model m = load("shared.pt2");
  ASSERT_EQ(m.weights.size(), 4u);
  EXPECT_EQ(m.weights[0].fqn, "a");
  EXPECT_EQ(m.weights[0].kind, Weight::Kind::Parameter);
  EXPECT_EQ(m.weights[1].storage, m.weights[0].storage);
  EXPECT_EQ(m.weights[1].type.strides, (std::vector<Expr>{1, 3}));
  EXPECT_EQ(m.weights[2].fqn, "hidden");
  EXPECT_FALSE(m.weights[2].persistent);
  EXPECT_EQ(m.weights[2].type.dtype, DType::F16);
  EXPECT_EQ(m.weights[3].kind, Weight::Kind::Constant);
  const graph::Storage &s = m.storages[static_cast<size_t>(m.weights[0].storage)];
  ASSERT_GE(s.bytes, 24);
  float values[6];
  std::memcpy(values, s.data, sizeof values);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(values[i], static_cast<float>(i));
}

TEST(Read, CallingConvention) {
  graph::Model m = load("shared.pt2");
  EXPECT_EQ(m.schemaMajor, 8);
  EXPECT_EQ(m.argumentNames, (std::vector<std::string>{"x", "pair", "flag", "factor"}));
  EXPECT_NE(m.inSpec.find("left"), std::string::npos);
  EXPECT_NE(m.outSpec.find("rest"), std::string::npos);
  std::vector<std::string> user;
  for (const Input &in : m.inputs)
    if (in.kind == Input::Kind::User) user.push_back(in.name);
  EXPECT_EQ(user, (std::vector<std::string>{"x", "pair_left", "pair_right_0"}));
  const Input &flag = m.inputs[m.inputs.size() - 2], &factor = m.inputs.back();
  EXPECT_EQ(flag.kind, Input::Kind::Constant);
  EXPECT_TRUE(std::get<bool>(flag.constant));
  EXPECT_EQ(std::get<int64_t>(factor.constant), 2);
  ASSERT_EQ(m.outputs.size(), 5u);
  EXPECT_TRUE(std::holds_alternative<graph::None>(m.outputs[2].value));
  EXPECT_EQ(std::get<int64_t>(m.outputs[3].value), 7);
  EXPECT_EQ(m.graph.value(std::get<graph::ValueId>(m.outputs[4].value)).name, "x");
}

TEST(Read, SymbolicSizes) {
  graph::Model m = load("sizes.pt2");
  const graph::TensorType &x = m.graph.value(m.inputs[0].value).type, &y = m.graph.value(m.inputs[1].value).type;
  ASSERT_TRUE(x.sizes[0].isSymbol());
  ASSERT_TRUE(y.sizes[0].isSymbol());
  EXPECT_EQ(x.sizes[1], Expr(6));
  Interval r = m.facts.range(x.sizes[0].symbol());
  EXPECT_EQ(r.lo, 2);
  EXPECT_EQ(r.hi, 64);
  // "hint": {"as_int": …} of the file.
  EXPECT_EQ(m.facts.hint(x.sizes[0].symbol()), 4);
  EXPECT_EQ(m.facts.hint(y.sizes[0].symbol()), 4);
  const graph::Node &cat = nodeNamed(m, "cat");
  graph::ValueId joined = cat.outputs[0][0];
  EXPECT_EQ(m.graph.value(joined).type.sizes[0], x.sizes[0] + y.sizes[0]);
  EXPECT_EQ(m.graph.value(std::get<graph::ValueId>(m.outputs[1].value)).expr, 3 * x.sizes[0]);
  // Torch gave both inputs a symbol of their own and the guard s17 + s77 == 2*s77.
  ASSERT_TRUE(graph::functionalize(m));
  graph::simplify(m);
  Expr n = m.graph.value(m.inputs[0].value).type.sizes[0];
  EXPECT_EQ(m.graph.value(m.inputs[1].value).type.sizes[0], n);
  EXPECT_EQ(m.graph.value(joined).type.sizes[0], 2 * n);
  EXPECT_TRUE(m.guards.empty());
}

TEST(Read, PlacesInTheModel) {
  graph::Model m = load("mutating.pt2");
  const graph::Node &relu = nodeNamed(m, "relu_");
  EXPECT_EQ(relu.loc.file, "make_pt2_fixtures.py");
  EXPECT_GT(relu.loc.line, 0);
  EXPECT_EQ(nodeNamed(m, "batch_norm").module, "bn");
}

TEST(Read, MutationIsFoundInBothForms) {
  for (const char *name : {"mutating.pt2", "mutating_decomposed.pt2"}) {
    graph::Model m = load(name);
    ASSERT_TRUE(graph::functionalize(m));
    Status s = graph::verify(m, graph::Form::Functional);
    EXPECT_TRUE(s) << s.error().str();
    std::vector<std::string> written;
    for (const Output &o : m.outputs)
      if (o.kind == Output::Kind::BufferMutation) written.push_back(o.target);
    std::sort(written.begin(), written.end());
    EXPECT_EQ(written,
              (std::vector<std::string>{"bn.num_batches_tracked", "bn.running_mean", "bn.running_var", "count"}))
        << name;
    graph::simplify(m);
    EXPECT_TRUE(graph::verify(m, graph::Form::Functional));
  }
}

TEST(Read, SubGraphs) {
  graph::Model m = load("control.pt2");
  const graph::Node *cond = nullptr;
  for (const graph::Node &n : m.graph.nodes)
    if (n.target == "higher_order.cond") cond = &n;
  ASSERT_NE(cond, nullptr);
  ASSERT_EQ(cond->args.size(), 4u);
  const auto &branch = std::get<std::shared_ptr<graph::Graph>>(cond->args[2]);
  EXPECT_EQ(branch->nodes[1].target, "aten.relu_.default");
  ASSERT_TRUE(graph::functionalize(m));
  EXPECT_TRUE(graph::verify(m, graph::Form::Functional));
}

TEST(Read, ManyKindsOfArguments) {
  graph::Model m = load("mixed.pt2");
  const graph::Node &sort = nodeNamed(m, "sort");
  EXPECT_EQ(sort.outputs.size(), 2u);
  EXPECT_EQ(std::get<int64_t>(*sort.arg("dim")), -1);
  EXPECT_TRUE(std::get<bool>(*sort.arg("descending")));
  EXPECT_EQ(std::get<DType>(*nodeNamed(m, "to").arg("dtype")), DType::F16);
  EXPECT_EQ(std::get<double>(*nodeNamed(m, "clamp").arg("min")), -0.5);
  EXPECT_EQ(std::get<double>(*nodeNamed(m, "clamp").arg("max")), std::numeric_limits<double>::infinity());
  EXPECT_EQ(std::get<graph::ComplexValue>(*nodeNamed(m, "mul").arg("other")).imag, 2.0);
  EXPECT_EQ(std::get<std::string>(*nodeNamed(m, "einsum").arg("equation")), "ij,kj->ik");
  EXPECT_EQ(m.extraFiles.at("neso_kernels/launches.json"), "[]");
}

TEST(Read, AGuardIsAnExpression) {
  test::Members members = test::membersOf("sizes.pt2");
  std::string &json = test::member(members, "models/model.json");
  ASSERT_TRUE(
      test::replace(json, "\"guards_code\": [",
                    "\"guards_code\": [\"2*L['x'].size()[0] > 7\", \"L['x'].stride()[0] == 6\", \"f(L['x'])\", \"math.trunc(0.5*torch.sym_float(L['x'].size()[0])) == 3\", "
                    "\"(1.0 / (torch.sym_float(L['x'].size()[0]) ** 0.5)) >= 0.0\", "));
  Result<graph::Model> m = test::read(test::zip(members));
  ASSERT_TRUE(m) << m.error().str();
  Expr n = m->graph.value(m->inputs[0].value).type.sizes[0];
  ASSERT_FALSE(m->guards.empty());
  EXPECT_EQ(m->guards[0], lt(7, 2 * n));
  EXPECT_NE(std::find(m->guards.begin(), m->guards.end(), eq(floorDiv(n, 2), 3)), m->guards.end());
  // E0125 GuardIgnored: what no expression says is reported, not lost.
  ASSERT_EQ(m->warnings.size(), 1u);
  EXPECT_EQ(m->warnings[0].kind, diag::GuardIgnored);
}

// A number that Python rounds from doubles is a symbol, which a run knows once it has computed it.
TEST(Read, AGuardOfARoundedNumberIsAnAssertion) {
  test::Members members = test::membersOf("sizes.pt2");
  std::string &json = test::member(members, "models/model.json");
  ASSERT_TRUE(test::replace(json, "\"guards_code\": [", "\"guards_code\": [\"math.trunc((64 / torch.sym_min(L['x'].size()[0], 9))*torch.sym_float(L['x'].size()[0])) == 64\", "));
  Result<graph::Model> m = test::read(test::zip(members));
  ASSERT_TRUE(m) << m.error().str();
  EXPECT_TRUE(m->warnings.empty());
  ASSERT_EQ(m->rounded.all().size(), 1u);
  ASSERT_FALSE(m->assertions.empty());
  EXPECT_EQ(m->assertions.back().condition, eq(m->rounded.all()[0].symbol, 64));
}

// def forward(self, *x): the file names the leaves x_0, …, and guards say L['x'][0].
TEST(Read, AGuardOfSeveralPositionalArguments) {
  test::Members members = test::membersOf("sizes.pt2");
  std::string &json = test::member(members, "models/model.json");
  ASSERT_TRUE(test::replace(json, "\"forward_arg_names\": [\"x\"", "\"forward_arg_names\": [\"x_0\""));
  ASSERT_TRUE(test::replace(json, "\"guards_code\": [", "\"guards_code\": [\"2*L['x'][0].size()[0] > 7\", \"L['x'][1].size()[0] > 7\", "));
  Result<graph::Model> m = test::read(test::zip(members));
  ASSERT_TRUE(m) << m.error().str();
  Expr n = m->graph.value(m->inputs[0].value).type.sizes[0];
  ASSERT_FALSE(m->guards.empty());
  EXPECT_EQ(m->guards[0], lt(7, 2 * n));
}

TEST(StackTrace, InnermostUserLine) {
  SourceLoc l = innermostUserLine("File \"a.py\", line 3, in forward\n  f()\nFile "
                                  "\"lib/site-packages/torch/nn/relu.py\", line 9, in forward\n  g()");
  EXPECT_EQ(l.file, "a.py");
  EXPECT_EQ(l.line, 3);
  EXPECT_EQ(innermostUserLine("File \"torch/x.py\", line 4, in f").line, 4);
  EXPECT_FALSE(innermostUserLine("nothing").known());
  EXPECT_EQ(modulePath("L__self__,,m.M;L__self___layers_0,layers.0,torch.nn.Linear"), "layers.0");
}
