// The table of operators and the binding of arguments. Expected values are torch's schemas.
#include <gtest/gtest.h>

#include "ir/graph/ops.h"

using namespace neso;
using namespace neso::graph;

TEST(Ops, EveryRowParsesAndRowsAreSorted) {
  for (int i = 0; i < opCount(); ++i) {
    if (i) EXPECT_LT(opTarget(i - 1), opTarget(i));
    const OpSchema *op = findOp(opTarget(i));
    ASSERT_NE(op, nullptr) << opTarget(i);
    EXPECT_EQ(op->target, opTarget(i));
  }
  EXPECT_EQ(findOp("aten.no_such_op.default"), nullptr);
}

TEST(Ops, AddTensor) {
  const OpSchema *op = findOp("aten.add.Tensor");
  ASSERT_EQ(op->args.size(), 3u);
  EXPECT_EQ(op->args[2].name, "alpha");
  EXPECT_TRUE(op->args[2].kwargOnly);
  EXPECT_EQ(std::get<int64_t>(*op->args[2].defaultValue), 1);
  EXPECT_FALSE(op->mutates());
  EXPECT_FALSE(op->isView());
  EXPECT_TRUE(op->core && op->pointwise);
}

TEST(Ops, AliasAnnotations) {
  EXPECT_TRUE(findOp("aten.relu_.default")->mutates());
  EXPECT_TRUE(findOp("aten.add.out")->args.back().mutated);
  EXPECT_TRUE(findOp("aten.split.Tensor")->isView());
  EXPECT_TRUE(findOp("aten._foreach_add_.Scalar")->args[0].mutated);
  EXPECT_TRUE(findOp("aten.bernoulli.default")->random);
}

TEST(Ops, DefaultsOfConv2d) {
  Graph g;
  TensorType t;
  ValueId x = g.addValue("x", t), w = g.addValue("w", t);
  Node n;
  n.target = "aten.conv2d.default";
  n.args = {x, w, int64_t(2)};
  n.argNames = {"input", "weight", "stride"};
  ASSERT_TRUE(bindArguments(n, g));
  ASSERT_EQ(n.args.size(), 7u);
  EXPECT_TRUE(std::holds_alternative<None>(n.args[2]));
  auto ints = [&](const char *name) {
    std::vector<int64_t> out;
    for (const IntOrSym &e : std::get<std::vector<IntOrSym>>(*n.arg(name))) out.push_back(std::get<int64_t>(e));
    return out;
  };
  EXPECT_EQ(ints("stride"), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(ints("padding"), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(ints("dilation"), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(std::get<int64_t>(*n.arg("groups")), 1);
}

TEST(Ops, IntegersBecomeFloatsWhereTheSchemaSaysSo) {
  Graph g;
  ValueId x = g.addValue("x", {});
  Node n;
  n.target = "aten.dropout.default";
  n.args = {x, int64_t(0), false};
  ASSERT_TRUE(bindArguments(n, g));
  EXPECT_EQ(std::get<double>(n.args[1]), 0.0);
}

// E0201 OperatorArgument
TEST(Ops, WrongArgumentsAreRefused) {
  Graph g;
  ValueId x = g.addValue("x", {});
  auto kind = [&](std::vector<Argument> args, std::vector<std::string> names) {
    Node n;
    n.target = "aten.add.Tensor";
    n.args = std::move(args);
    n.argNames = std::move(names);
    Status s = bindArguments(n, g);
    return s ? std::string() : s.error().str();
  };
  EXPECT_NE(kind({x}, {"self"}).find("'other' is required but missing"), std::string::npos);
  EXPECT_NE(kind({x, x}, {"self", "self"}).find("given twice"), std::string::npos);
  EXPECT_NE(kind({x, x, x}, {"self", "other", "beta"}).find("'beta' is not in the operator's schema"),
            std::string::npos);
  EXPECT_NE(kind({x, std::string("y")}, {"self", "other"}).find("wrong kind"), std::string::npos);
  EXPECT_NE(kind({x, None{}}, {"self", "other"}).find("may not be None"), std::string::npos);
}
