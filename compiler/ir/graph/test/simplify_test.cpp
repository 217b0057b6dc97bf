// The small graph passes, and the numbered invariants of verify.
#include <gtest/gtest.h>

#include "ir/graph/ops.h"
#include "ir/graph/passes/simplify.h"
#include "ir/graph/passes/views.h"
#include "ir/graph/verify.h"

using namespace neso;
using namespace neso::graph;

namespace {

struct Builder {
  Model m;
  Expr n = Symbol::size("s0");
  ValueId x;
  Builder() {
    x = m.graph.addValue("x", type({n, 6}));
    m.graph.inputs.push_back(x);
    Input in;
    in.name = "x";
    in.value = x;
    m.inputs.push_back(in);
  }
  static TensorType type(std::vector<Expr> sizes) {
    TensorType t;
    t.sizes = sizes;
    t.strides = contiguousStrides(sizes);
    return t;
  }
  ValueId op(std::string target, std::vector<Argument> args, TensorType t, std::string name,
             Value::Kind kind = Value::Kind::Tensor) {
    Node node;
    node.name = name;
    node.target = std::move(target);
    node.args = std::move(args);
    EXPECT_TRUE(bindArguments(node, m.graph));
    ValueId out = m.graph.addValue(name, std::move(t));
    m.graph.value(out).kind = kind;
    node.outputs = {{out}};
    m.graph.nodes.push_back(std::move(node));
    return out;
  }
  void output(ValueId id) {
    m.graph.outputs.emplace_back(id);
    Output o;
    o.value = id;
    m.outputs.push_back(o);
  }
  std::string targets() const {
    std::string out;
    for (const Node &node : m.graph.nodes) out += (out.empty() ? "" : " ") + node.target;
    return out;
  }
  std::string broken() const {
    Status s = verify(m, Form::Functional);
    return s ? "" : s.error().str();
  }
};

} // namespace

TEST(Simplify, SizesBecomeExpressions) {
  Builder k;
  ValueId s = k.op("aten.sym_size.int", {k.x, int64_t(0)}, {}, "s", Value::Kind::SymInt);
  ValueId t = k.op("_operator.mul", {s, int64_t(6)}, {}, "t", Value::Kind::SymInt);
  ValueId six = k.op("aten.sym_size.int", {k.x, int64_t(1)}, {}, "six", Value::Kind::SymInt);
  ValueId v =
      k.op("aten.repeat.default", {k.x, std::vector<IntOrSym>{t, six}}, Builder::type({6 * k.n * k.n, 36}), "v");
  k.output(v);
  simplify(k.m);
  EXPECT_EQ(k.targets(), "aten.repeat.default");
  const auto &repeats = std::get<std::vector<IntOrSym>>(k.m.graph.nodes[0].args[1]);
  EXPECT_EQ(k.m.graph.value(std::get<ValueId>(repeats[0])).expr, 6 * k.n);
  EXPECT_EQ(std::get<int64_t>(repeats[1]), 6);
  EXPECT_EQ(k.broken(), "");
}

TEST(Simplify, NoOpsEqualAndDeadNodesGo) {
  Builder k;
  TensorType t = Builder::type({k.n, 6});
  ValueId d = k.op("aten.detach.default", {k.x}, t, "d");
  ValueId drop = k.op("aten.dropout.default", {d, 0.5, false}, t, "drop");
  ValueId a = k.op("aten.relu.default", {drop}, t, "a");
  ValueId b = k.op("aten.relu.default", {k.x}, t, "b");
  k.op("aten.exp.default", {b}, t, "dead");
  ValueId r1 = k.op("aten.rand_like.default", {a}, t, "r1");
  ValueId r2 = k.op("aten.rand_like.default", {b}, t, "r2");
  ValueId c = k.op("aten.clone.default", {a}, t, "c");
  for (ValueId id : {c, b, r1, r2}) k.output(id);
  simplify(k.m);
  EXPECT_EQ(k.targets(), "aten.relu.default aten.rand_like.default aten.rand_like.default");
  EXPECT_EQ(std::get<ValueId>(k.m.outputs[0].value), a);
  EXPECT_EQ(std::get<ValueId>(k.m.outputs[1].value), a);
}

TEST(Simplify, AnOutputKeepsItsStrides) {
  Builder k;
  TensorType tr = Builder::type({6, k.n});
  tr.strides = {1, 6};
  ValueId p = k.op("aten.t.default", {k.x}, tr, "p");
  ValueId c = k.op("aten.contiguous.default", {p}, Builder::type({6, k.n}), "c");
  k.output(c);
  simplify(k.m);
  EXPECT_EQ(k.targets(), "aten.t.default aten.contiguous.default");
}

TEST(Simplify, AssertionsOnSizesBecomeGuards) {
  Builder k;
  ValueId s = k.op("aten.sym_size.int", {k.x, int64_t(0)}, {}, "s", Value::Kind::SymInt);
  ValueId c = k.op("_operator.le", {s, int64_t(9)}, {}, "c", Value::Kind::SymBool);
  Node check;
  check.target = "aten._assert_scalar.default";
  check.args = {c, std::string("message")};
  ASSERT_TRUE(bindArguments(check, k.m.graph));
  k.m.graph.nodes.push_back(check);
  k.output(k.x);
  simplify(k.m);
  EXPECT_EQ(k.targets(), "");
  ASSERT_EQ(k.m.guards.size(), 1u);
  EXPECT_EQ(k.m.guards[0], le(k.n, 9));
}

TEST(Simplify, AnAssertionOnATensorIsAskedOfItsElement) {
  Builder k;
  ValueId truth = k.op("aten.any.default", {k.x}, Builder::type({}), "truth");
  Node assertion;
  assertion.target = "aten._assert_async.msg";
  assertion.args = {truth, std::string("nothing is there")};
  ASSERT_TRUE(bindArguments(assertion, k.m.graph));
  k.m.graph.nodes.push_back(assertion);
  k.output(k.x);
  simplify(k.m);
  EXPECT_EQ(k.targets(), "aten.any.default aten.ne.Scalar aten.item.default");
  ASSERT_EQ(k.m.assertions.size(), 1u);
  EXPECT_EQ(k.m.assertions[0].message.find("nothing is there"), 0u);
}

TEST(Simplify, ACallForAWiderTypeIsOpened) {
  Builder k;
  TensorType bytes = Builder::type({k.n, 6}), ints = bytes;
  bytes.dtype = DType::I8, ints.dtype = DType::I32;
  k.m.graph.value(k.x).type = bytes;
  Node call;
  call.name = "q", call.target = "higher_order.out_dtype", call.args = {std::string("aten.div.Tensor"), DType::I32, k.x, int64_t(3)};
  const ValueId out = k.m.graph.addValue("q", ints);
  call.outputs = {{out}};
  k.m.graph.nodes.push_back(call);
  k.output(out);
  simplify(k.m);
  // Integers divide to floats, of which the result takes the whole part.
  EXPECT_EQ(k.targets(), "aten._to_copy.default aten.div.Tensor aten._to_copy.default");
  EXPECT_EQ(k.m.graph.value(k.m.graph.nodes[0].outputs[0][0]).type.dtype, DType::I32);
  EXPECT_EQ(k.m.graph.value(k.m.graph.nodes[1].outputs[0][0]).type.dtype, DType::F32);
  EXPECT_EQ(k.broken(), "");
}

// The operator that raises becomes the one that tells; one that is asked to raise does, one that is not does not.
TEST(Simplify, AFactorisationThatRaisesIsAsserted) {
  Builder k;
  const TensorType matrices = Builder::type({k.n, 6, 6}), info = Builder::type({k.n});
  ValueId a = k.m.graph.addValue("a", matrices);
  k.m.graph.inputs.push_back(a);
  Input in;
  in.name = "a", in.value = a;
  k.m.inputs.push_back(in);
  k.output(k.op("aten.inverse.default", {a}, matrices, "inverse"));
  for (bool check : {false, true}) {
    const ValueId l = k.op("aten.linalg_cholesky_ex.default", {a, check, check}, matrices, check ? "checked" : "l");
    const ValueId bad = k.m.graph.addValue(check ? "bad" : "told", info);
    k.m.graph.value(bad).type.dtype = DType::I32;
    k.m.graph.nodes.back().outputs.push_back({bad});
    k.output(l), k.output(bad);
  }
  simplify(k.m);
  EXPECT_EQ(k.targets(), "aten.linalg_inv_ex.default aten.ne.Scalar aten.any.default aten.logical_not.default aten.ne.Scalar aten.item.default "
                         "aten.linalg_cholesky_ex.default aten.linalg_cholesky_ex.default aten.ne.Scalar aten.any.default aten.logical_not.default "
                         "aten.ne.Scalar aten.item.default");
  ASSERT_EQ(k.m.assertions.size(), 2u);
  EXPECT_EQ(k.m.assertions[0].message.find("linalg.inv: the inversion could not be completed because the input matrix is singular"), 0u);
  EXPECT_EQ(k.m.assertions[1].message.find("linalg.cholesky_ex: The factorization could not be completed because the input is not positive-definite"), 0u);
  EXPECT_EQ(k.broken(), "");
}

TEST(Simplify, TheNodeThatMakesASizeLivesWithIt) {
  Builder k;
  Expr u = Symbol::size("u0");
  ValueId nz = k.op("aten.nonzero.default", {k.x}, Builder::type({u, 2}), "nz");
  ValueId s = k.op("aten.sym_size.int", {nz, int64_t(0)}, {}, "s", Value::Kind::SymInt);
  ValueId z = k.op("aten.zeros.default", {std::vector<IntOrSym>{s}}, Builder::type({u}), "z");
  k.output(z);
  simplify(k.m);
  EXPECT_EQ(k.targets(), "aten.nonzero.default aten.zeros.default");
}

// E0203 GraphInvalid, one invariant after the other.
TEST(Verify, Invariants) {
  auto expect = [](const char *number, auto change) {
    Builder k;
    ValueId a = k.op("aten.relu.default", {k.x}, Builder::type({k.n, 6}), "a");
    k.output(a);
    EXPECT_EQ(k.broken(), "");
    change(k, a);
    EXPECT_NE(k.broken().find(std::string("graph invariant ") + number + " "), std::string::npos)
        << number << ": " << k.broken();
  };
  expect("G1", [](Builder &k, ValueId) { k.m.graph.nodes[0].args[0] = ValueId(99); });
  expect("G2", [](Builder &k, ValueId a) { k.m.graph.value(a).name = "x"; });
  expect("G3", [](Builder &k, ValueId a) { k.m.graph.nodes[0].args[0] = a; });
  expect("G4", [](Builder &k, ValueId a) { k.m.graph.value(a).type.strides.pop_back(); });
  expect("G5", [](Builder &k, ValueId) { k.m.graph.nodes[0].args.clear(); });
  expect("G6", [](Builder &k, ValueId) { k.m.outputs.clear(); });
  expect("G7", [](Builder &k, ValueId) {
    Weight w;
    w.storage = 0;
    w.type = Builder::type({4});
    k.m.weights.push_back(w);
    k.m.storages.push_back({nullptr, 15, -1, nullptr});
  });
  expect("G8", [](Builder &k, ValueId) {
    k.m.outputs[0].kind = Output::Kind::InputMutation;
    k.m.outputs[0].target = "y";
  });
  expect("G9", [](Builder &k, ValueId) { k.m.graph.nodes[0].target = "aten.relu_.default"; });
}
