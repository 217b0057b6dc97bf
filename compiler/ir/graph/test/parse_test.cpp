// Text of graphs, read back: every kind of argument, graphs inside nodes, and what is no such text. Every golden's graph
// is read back in lower/graph_to_loops/test.
#include <gtest/gtest.h>

#include "base/diagnostics/graph.h"
#include "ir/graph/parse.h"
#include "ir/shape/test/text_form.h"

namespace neso::graph {
namespace {

constexpr const char *kText = R"(model "all \"of\" it" (torch 2.15, schema 8.14)
packs int4 as avx512
range s0: [2, inf]
guard 0 == s0%2
storage 0: 256 bytes at 4096
storage 1: 4 bytes = 0000803f
weight "layer.weight" parameter: f32[8, 8] storage 0
weight "mean" buffer (not persistent): f32[1] strides(4) offset 2 storage 1
input w: weight "layer.weight"
input x: user reshaped [["transpose_", 0, 1]]
input flag: constant true
input text: constant "a, b"
output %y
output %y -> buffer "mean"
output %y -> input x
output [%a, %b]
parameters x, flag
arguments [1, {"type": null}]
results [1]
inputs:
  %w: f32[8, 8]
  %x: bf16[s0, 8] strides(1, s0) offset 4
  (constant)
  (constant)
sizes:
  %h: int(s0//2)
nodes:
  %n = aten.sym_size.int(self=%x, dim=0) : int(s0)
  %y = aten.mm.default(self=%x, mat2=%w) : bf16[s0, 8]  // model.py:12
  [%a, %b] = aten.split.Tensor(self=%y, split_size=4, dim=1) named split : bf16[s0, 4] strides(8, 1), bf16[s0, 4] strides(8, 1) offset 4
  %m, none = aten.max.dim(%y, -1, false) : bf16[s0]
  %v = aten.view.default(self=%y, size=[%n, %h, 4], other=[1, 2], none_of=[]) : bf16[s0, 2, 4]
  %c = mylib.all.default(values[], [%y, none], [1.0, -2.5], reals[], [true, false], ["a\nb", "c"], strings[], bools[], 1e-05, inf, nan, f32, bool, memory_format(1), layout(0), device(cpu), device(cuda:1), complex(1, -2.5), [[1, 2], [3]], [[0.5]], [[%y], [%a, %b]], object(q, Q), {key: %y, other: [1]}, none, "t") : object
  [%lone], %maybe?, []! = mylib.some.default(%y) : bf16[s0, 8], bf16[s0, 8]
  %r = higher_order.cond(%t_pred, {
    inputs:
      %p: bf16[s0, 8]
    nodes:
      %q = aten.relu.default(self=%p) : bf16[s0, 8]
    outputs:
      %q
  }, [%y]) : bf16[s0, 8]
  aten._assert.default(%y) named check
outputs:
  %y
  %y
  %y
  [%a, %b]
)";

std::string textOf() {
  std::string text = kText;
  const std::string pred = "%t_pred";
  return text.replace(text.find(pred), pred.size(), "%y");
}

Result<Model> parseText(const std::string &text, const std::string &file) { return parse(text, file); }

TEST(GraphText, GivesBackItsText) {
  Result<Model> m = parse(textOf(), "all.graph");
  ASSERT_TRUE(m) << m.error().str();
  EXPECT_EQ(print(*m), textOf());
  EXPECT_EQ(m->name, "all \"of\" it");
  EXPECT_EQ(m->weights[1].type.offset, Expr(2));
  EXPECT_FALSE(m->weights[1].persistent);
  ASSERT_EQ(m->storages[1].bytes, 4);
  EXPECT_EQ(m->storages[1].data[2], 0x80);
  EXPECT_EQ(m->inputs[1].reshaped, "[[\"transpose_\", 0, 1]]");
  EXPECT_EQ(m->outputs[2].target, "x");
  EXPECT_EQ(m->outputs[2].kind, Output::Kind::InputMutation);
  ASSERT_EQ(m->graph.nodes.size(), 9u);
  EXPECT_EQ(m->graph.nodes[1].loc.line, 12);
  EXPECT_EQ(m->graph.nodes[2].name, "split");
  EXPECT_EQ(std::get<std::vector<IntOrSym>>(m->graph.nodes[4].args[1]).size(), 3u);
  EXPECT_TRUE(std::holds_alternative<bool>(m->inputs[2].constant));
  EXPECT_EQ(m->graph.nodes[6].returns, (std::vector<Node::Return>{Node::Return::List, Node::Return::Optional, Node::Return::Other}));
  const Node &all = m->graph.nodes[5];
  EXPECT_TRUE(std::holds_alternative<std::vector<ValueId>>(all.args[0]));
  EXPECT_TRUE(std::holds_alternative<std::vector<std::vector<int64_t>>>(all.args[18]));
  EXPECT_EQ(std::get<Device>(all.args[16]).index, 1);
  const auto *inner = std::get_if<std::shared_ptr<Graph>>(&m->graph.nodes[7].args[1]);
  ASSERT_TRUE(inner);
  EXPECT_EQ((*inner)->nodes.size(), 1u);
}

TEST(GraphText, SaysWhatIsWrongAndWhere) {
  auto fault = [](std::string from, const std::string &to) {
    std::string text = textOf();
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return test::refusalOf(text.replace(at, from.size(), to), parseText, diag::GraphSyntax);
  };
  EXPECT_NE(fault("mat2=%w", "mat2=%z").find("no value 'z'"), std::string::npos);
  EXPECT_NE(fault("%y = aten.mm", "%x = aten.mm").find("another value 'x'"), std::string::npos);
  EXPECT_NE(fault("weight \"layer.weight\"\n", "weight \"layer.bias\"\n").find("no weight 'layer.bias'"), std::string::npos);
  EXPECT_NE(fault("f32[8, 8]\n", "f33[8, 8]\n").find("bad.text:21"), std::string::npos);
  EXPECT_NE(fault("as avx512", "as neon").find("no machine packs"), std::string::npos);
  EXPECT_NE(fault("[1.0, -2.5]", "[1.0, 2]").find("list of one kind"), std::string::npos);
  EXPECT_NE(fault("= 0000803f", "= 0000803").find("hexadecimal"), std::string::npos);
  EXPECT_NE(fault("(self=%p)", "(self=%p) launch f[1, 1, 1]").find("user's kernel"), std::string::npos);
  Result<Model> empty = parse("", "empty.graph");
  EXPECT_FALSE(empty);
}

TEST(GraphText, SurvivesDamage) { test::survivesDamage(textOf(), parseText, " [9%{\n"); }

} // namespace
} // namespace neso::graph
