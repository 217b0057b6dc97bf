// What PyTorch's loader is told of calls of operators of the caller's. Expected texts are those that its reader asks for
// (torch/csrc/inductor/aoti_torch/oss_proxy_executor.cpp); tests/e2e/aoti_operators.py has it read them.
#include "package/operator_calls.h"

#include <gtest/gtest.h>

#include "base/diagnostics/package.h"
#include "base/dtype.h"

namespace neso {
namespace {

using loops::BufferId;
using loops::ExternSpec;
using Argument = ExternSpec::Argument;
using Kind = Argument::Kind;
using Result = ExternSpec::Result;

ExternSpec::View at(int64_t buffer) { return {BufferId(buffer), DType::F32, {4}, {1}, 0, false}; }

plan::CallExtern call(std::string op, int64_t number, std::vector<Argument> arguments, std::vector<Result> results = {{Result::Kind::Tensor, 1}}) {
  plan::CallExtern c;
  c.name = "node" + std::to_string(number);
  c.call.op = std::move(op), c.call.number = number;
  c.call.arguments = std::move(arguments), c.call.results = std::move(results);
  return c;
}

plan::Plan planOf(std::vector<plan::CallExtern> calls) {
  plan::Plan p;
  for (plan::CallExtern &c : calls) p.main.steps.emplace_back(std::move(c));
  return p;
}

std::string inputsOf(std::vector<Argument> arguments) {
  neso::Result<std::string> text = operatorCallsForTorch(planOf({call("lib::op", 0, std::move(arguments), {})}));
  if (!text) return text.error().str();
  const size_t begin = text->find("\"inputs\": [") + 10, end = text->find(", \"outputs\"");
  return text->substr(begin, end - begin);
}
std::string argument(Argument a) {
  const std::string text = inputsOf({std::move(a)});
  const std::string_view before = "[{\"name\": \"x\", \"arg\": ", behind = ", \"kind\": 1}]";
  if (!text.starts_with(before) || !text.ends_with(behind)) return text;
  return text.substr(before.size(), text.size() - before.size() - behind.size());
}

TEST(OperatorCalls, APlanWithoutThemHasNoText) {
  neso::Result<std::string> text = operatorCallsForTorch(plan::Plan());
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "");
}

TEST(OperatorCalls, ArgumentsOfEveryKind) {
  EXPECT_EQ(argument({"x", Kind::None, {}, {}, {}, {}}), R"({"as_none": true})");
  EXPECT_EQ(argument({"x", Kind::Tensor, {at(0)}, {}, {}, {}}), R"({"as_tensor": {"name": "t0"}})");
  EXPECT_EQ(argument({"x", Kind::Tensor, {ExternSpec::View()}, {}, {}, {}}), R"({"as_none": true})");
  EXPECT_EQ(argument({"x", Kind::Tensors, {at(0), at(1)}, {}, {}, {}}), R"({"as_tensors": [{"name": "t0"}, {"name": "t1"}]})");
  EXPECT_EQ(argument({"x", Kind::Tensors, {ExternSpec::View(), at(1)}, {}, {}, {}}), R"({"as_optional_tensors": [{"as_none": true}, {"as_tensor": {"name": "t0"}}]})");
  // Integers are the run's.
  EXPECT_EQ(argument({"x", Kind::Int, {}, {7}, {}, {}}), R"({"as_int": 0})");
  EXPECT_EQ(argument({"x", Kind::Ints, {}, {7, 8}, {}, {}}), R"({"as_ints": [0, 0]})");
  EXPECT_EQ(argument({"x", Kind::Float, {}, {}, {0.1}, {}}), R"({"as_float": 0.10000000000000001})");
  EXPECT_EQ(argument({"x", Kind::Floats, {}, {}, {2, -1e300}, {}}), R"({"as_floats": [2, -1.0000000000000001e+300]})");
  EXPECT_EQ(argument({"x", Kind::Bool, {}, {1}, {}, {}}), R"({"as_bool": true})");
  EXPECT_EQ(argument({"x", Kind::Bools, {}, {0, 1}, {}, {}}), R"({"as_bools": [false, true]})");
  EXPECT_EQ(argument({"x", Kind::Text, {}, {}, {}, {"a \"b\"\n"}}), R"({"as_string": "a \"b\"\n"})");
  EXPECT_EQ(argument({"x", Kind::Texts, {}, {}, {}, {"a", "b"}}), R"({"as_strings": ["a", "b"]})");
  // Numbers of torch._export.serde.schema.ScalarType.
  EXPECT_EQ(argument({"x", Kind::DType, {}, {static_cast<int64_t>(DType::F32)}, {}, {}}), R"({"as_scalar_type": 7})");
  EXPECT_EQ(argument({"x", Kind::DType, {}, {static_cast<int64_t>(DType::BF16)}, {}, {}}), R"({"as_scalar_type": 13})");
  EXPECT_EQ(argument({"x", Kind::Layout, {}, {7}, {}, {}}), R"({"as_layout": 7})");
  EXPECT_EQ(argument({"x", Kind::MemoryFormat, {}, {2}, {}, {}}), R"({"as_memory_format": 2})");
  EXPECT_EQ(argument({"x", Kind::Device, {}, {}, {}, {"cpu"}}), R"({"as_device": {"type": "cpu", "index": null}})");
  EXPECT_EQ(argument({"x", Kind::Device, {}, {}, {}, {"cuda:1"}}), R"({"as_device": {"type": "cuda", "index": 1}})");
}

TEST(OperatorCalls, ResultsAndTargets) {
  neso::Result<std::string> text = operatorCallsForTorch(planOf({call(
      "lib::op.out", 5, {}, {{Result::Kind::Tensor, 1}, {Result::Kind::Tensors, 2}, {Result::Kind::Optional, 1}, {Result::Kind::None, 0}, {Result::Kind::Tensors, 0}})}));
  ASSERT_TRUE(text) << text.error().str();
  EXPECT_EQ(*text, R"({"nodes": [
{"name": "node5", "node": {"target": "lib::op.out", "inputs": [], "outputs": [{"as_tensor": {"name": "t0"}}, {"as_tensors": [{"name": "t1"}, {"name": "t2"}]}, {"as_optional_tensor": {"as_tensor": {"name": "t3"}}}, {"as_optional_tensor": {"as_none": true}}, {"as_tensors": []}], "metadata": {}}}
]}
)");
}

TEST(OperatorCalls, WhatAsksForSizesIsTheSameCall) {
  plan::CallExtern ask = call("lib::over:sizes", 4, {});
  ask.call.asked = {{0, 0}};
  plan::CallExtern alone = call("lib::over:sizes", 6, {});
  alone.call.asked = {{0, 0}};
  const plan::Plan p = planOf({call("lib::first", 9, {}), ask, call("lib::over", 4, {}), alone, call("lib::first", 9, {})});
  EXPECT_EQ(operatorCallNumbers(p), (std::map<int64_t, int32_t>{{9, 0}, {4, 1}, {6, 2}}));
  std::vector<std::string> ops;
  for (const plan::CallExtern *c : operatorCalls(p)) ops.push_back(c->call.op);
  EXPECT_EQ(ops, (std::vector<std::string>{"lib::first", "lib::over", "lib::over:sizes"}));
  // Where only the sizes are wanted the operator itself still gives them.
  neso::Result<std::string> text = operatorCallsForTorch(p);
  ASSERT_TRUE(text) << text.error().str();
  EXPECT_EQ(text->find(":sizes"), std::string::npos) << *text;
}

TEST(OperatorCalls, WhatTheLoaderCannotBeToldIsRefused) {
  auto refused = [](Argument a, std::vector<Result> results = {}) {
    neso::Result<std::string> text = operatorCallsForTorch(planOf({call("lib::op", 0, {std::move(a)}, std::move(results))}));
    return text ? *text : text.error().str();
  };
  const Argument none{"x", Kind::None, {}, {}, {}, {}};
  EXPECT_NE(refused({"x", Kind::Float, {}, {}, {1.0 / 0.0}, {}}).find("error[E0706]: operator 'lib::op' cannot be called by PyTorch's loader: it is given or returns a number that is not finite"), std::string::npos);
  EXPECT_NE(refused({"x", Kind::Bool, {}, {Expr(Symbol::size("s0"))}, {}, {}}).find("a bool that is not known before the run"), std::string::npos);
  for (Kind k : {Kind::Tensors, Kind::Ints}) EXPECT_NE(refused({"x", k, {}, {}, {}, {}}).find("an empty list of tensors or integers"), std::string::npos);
  EXPECT_NE(refused(none, {{Result::Kind::Other, 0}}).find("a result that is no tensor"), std::string::npos);
}

} // namespace
} // namespace neso
