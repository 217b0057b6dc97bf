// Models that call operators of the user's, interpreted with the operators of tools/golden_extern.py, against PyTorch;
// and calls that cannot be made.
#include <algorithm>

#include <gtest/gtest.h>

#include "ir/loops/access.h"
#include "lower/graph_to_loops/lower.h"
#include "lower/graph_to_loops/test/golden.h"

namespace neso::lower::test {
namespace {

using loops::ExternSpec;
using HostView = ExternSpec::HostView;
using Ints = std::vector<int64_t>;

/// What the function of an operator is given, by the names of its arguments.
struct Call {
  const std::vector<ExternSpec::Argument> &arguments;
  std::span<const HostView> inputs;
  std::span<const Ints> numbers;
  std::span<const HostView> outputs;

  size_t at(const std::string &name) const {
    for (size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i].name == name) return i;
    ADD_FAILURE() << "no argument " << name;
    return 0;
  }
  bool has(const std::string &name) const {
    return std::any_of(arguments.begin(), arguments.end(),
                       [&](const ExternSpec::Argument &a) { return a.name == name && a.kind != ExternSpec::Argument::Kind::None; });
  }
  const Ints &ints(const std::string &name) const { return numbers[at(name)]; }
  const std::vector<double> &floats(const std::string &name) const { return arguments[at(name)].floats; }
  const HostView &tensor(const std::string &name) const { return inputs[static_cast<size_t>(ints(name)[0])]; }
};

float &element(const HostView &t, int64_t i, int64_t j) { return reinterpret_cast<float *>(t.data)[i * t.strides[0] + j * t.strides[1]]; }

void mix(const Call &c) {
  const HostView &x = c.tensor("x"), &out = c.outputs[0];
  for (int64_t i = 0; i < out.sizes[0]; ++i)
    for (int64_t j = 0; j < out.sizes[1]; ++j) {
      float v = element(x, i, j) * static_cast<float>(c.ints("n")[0]) + static_cast<float>(c.floats("f")[0]);
      if (c.has("y")) v += element(c.tensor("y"), j, i);
      for (int64_t k : c.ints("more")) v += element(c.inputs[static_cast<size_t>(k)], i, j);
      element(out, i, j) = v;
    }
  float *to = reinterpret_cast<float *>(c.outputs[1].data);
  auto put = [&](const auto &values) {
    for (auto v : values) *to++ = static_cast<float>(v);
  };
  const bool single = c.ints("t")[0] == static_cast<int64_t>(DType::F32);
  put(c.ints("n")), put(c.floats("f")), put(c.ints("b")), put(Ints{static_cast<int64_t>(c.arguments[c.at("s")].texts[0].size()), single ? 16 : -1});
  put(c.ints("ints")), put(c.floats("floats")), put(c.ints("bools"));
  put(Ints{static_cast<int64_t>(c.ints("more").size()), c.has("y"), c.has("absent")});
}

void total(const Call &c) {
  const HostView &x = c.tensor("x");
  double sum = 0;
  for (int64_t i = 0; i < x.sizes[0]; ++i)
    for (int64_t j = 0; j < x.sizes[1]; ++j) sum += static_cast<double>(element(x, i, j));
  *reinterpret_cast<float *>(c.outputs[0].data) = static_cast<float>(sum);
}

void scale(const Call &c) {
  const HostView &x = c.tensor("x");
  for (int64_t i = 0; i < x.sizes[0]; ++i)
    for (int64_t j = 0; j < x.sizes[1]; ++j) element(x, i, j) *= static_cast<float>(c.floats("_f")[0]);
}

void push(const Call &c) {
  const HostView &y = c.tensor("y");
  for (int64_t i = 0; i < y.sizes[0]; ++i)
    for (int64_t j = 0; j < y.sizes[1]; ++j) {
      const float v = element(y, i, j);
      element(c.tensor("x"), i, j) += v, element(c.outputs[0], i, j) = 2 * v;
      if (c.has("total")) reinterpret_cast<float *>(c.tensor("total").data)[j * c.tensor("total").strides[0]] += v;
    }
}

std::vector<int64_t> rowsOver(const Call &c) {
  const HostView &x = c.tensor("x");
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < x.sizes[0]; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < x.sizes[1]; ++j) sum += static_cast<double>(element(x, i, j));
    if (sum > c.floats("bound")[0]) rows.push_back(i);
  }
  return rows;
}
void overSizes(const Call &c) {
  int64_t *sizes = reinterpret_cast<int64_t *>(c.outputs[0].data);
  sizes[0] = static_cast<int64_t>(rowsOver(c).size()), sizes[1] = 2 * sizes[0];
}
void over(const Call &c) {
  int64_t k = 0;
  for (int64_t row : rowsOver(c)) {
    for (int64_t j = 0; j < c.outputs[0].sizes[1]; ++j) element(c.outputs[0], k, j) = element(c.tensor("x"), row, j);
    int64_t *places = reinterpret_cast<int64_t *>(c.outputs[1].data) + 2 * k++;
    places[0] = places[1] = row;
  }
}

// Script objects: calls are counted by the object's name.
const char kTally[] = "__torch__.torch.classes.neso_test_objects.Tally";
struct Tally {
  double scale;
  int64_t calls = 0;
};
std::map<std::string, Tally> tallies;
Tally &tally(const Call &c, const std::string &name) {
  const ExternSpec::Argument &a = c.arguments[c.at(name)];
  EXPECT_EQ(a.kind, ExternSpec::Argument::Kind::Object);
  EXPECT_EQ(a.texts.back(), kTally);
  EXPECT_TRUE(tallies.count(a.texts[0])) << a.texts[0];
  return tallies[a.texts[0]];
}
/// to = x * factor + number
void scaled(const HostView &x, const HostView &to, double factor, double number) {
  for (int64_t i = 0; i < to.sizes[0]; ++i)
    for (int64_t j = 0; j < to.sizes[1]; ++j) element(to, i, j) = static_cast<float>(static_cast<double>(element(x, i, j)) * factor + number);
}
void next(const Call &c) {
  Tally &self = tally(c, "self");
  scaled(c.tensor("1"), c.outputs[0], self.scale, static_cast<double>(++self.calls));
}
void add(const Call &c) { tally(c, "self").calls += c.ints("1")[0]; }
void both(const Call &c) {
  ++tally(c, "self").calls;
  const HostView &x = c.tensor("1"), &y = c.tensor("5"), &out = c.outputs[0];
  for (int64_t i = 0; i < out.sizes[0]; ++i)
    for (int64_t j = 0; j < out.sizes[1]; ++j) element(out, i, j) = element(x, i, j) * static_cast<float>(c.ints("2")[0]) + element(y, i, j);
  scaled(x, c.outputs[1], 1, static_cast<double>(c.arguments[c.at("4")].texts[0].size()));
}
void tallied(const Call &c) {
  Tally &t = tally(c, "t");
  scaled(c.tensor("x"), c.outputs[0], t.scale - 1, static_cast<double>(++t.calls));
}
void tallyInto(const Call &c) { scaled(c.tensor("x"), c.tensor("x"), 1, static_cast<double>(++tally(c, "t").calls)); }
void two(const Call &c) {
  Tally &a = tally(c, "a"), &b = tally(c, "b");
  const int64_t first = ++a.calls, second = ++b.calls;
  scaled(c.tensor("x"), c.outputs[0], a.scale + b.scale, static_cast<double>(first + second));
}

void give(std::vector<loops::Node> &nodes) {
  static const std::map<std::string, void (*)(const Call &)> kOps = {
      {"neso_test::mix", mix}, {"neso_test::total", total}, {"neso_test::scale_", scale}, {"neso_test::push", push},
      {"neso_test::over", over},   {"neso_test::over:sizes", overSizes},
      {std::string(kTally) + "::next", next}, {std::string(kTally) + "::add", add}, {std::string(kTally) + "::both", both},
      {"neso_test_objects::tallied", tallied}, {"neso_test_objects::tally_into", tallyInto}, {"neso_test_objects::two", two}};
  for (loops::Node &n : nodes) {
    if (auto *region = n.as<loops::RegionSpec>())
      for (std::vector<loops::Node> &block : region->blocks) give(block);
    auto *call = n.as<ExternSpec>();
    if (!call) continue;
    ASSERT_TRUE(kOps.count(call->op)) << call->op;
    call->reference = [op = kOps.at(call->op), arguments = call->arguments](std::span<const HostView> inputs, std::span<const Ints> ints,
                                                                          std::span<const HostView> outputs) {
      op(Call{arguments, inputs, ints, outputs});
      return Status::ok();
    };
  }
}

const std::string kFolder = std::string(NESO_SOURCE_DIR) + "/tests/goldens/extern/";

Verdict judgeWith(const std::string &program, int rows) {
  Bounds b;
  b.prepare = [](loops::Program &p) { give(p.nodes); };
  const std::string name = program.substr(0, program.find('.')), count = std::to_string(rows);
  return judge(kFolder + program, kFolder + "inputs." + count + ".safetensors", kFolder + name + ".outputs." + count + ".safetensors", b);
}

TEST(Extern, OperatorsOfTheUsersGiveWhatPyTorchGives) {
  for (const char *program : {"model.export.pt2", "model.decomposed.pt2", "changes.export.pt2", "changes.decomposed.pt2", "sized.export.pt2", "sized.decomposed.pt2",
                              "secret.export.pt2", "secret.decomposed.pt2", "model.silent.pt2"})
    for (int rows : {4, 9}) {
      const Verdict v = judgeWith(program, rows);
      EXPECT_EQ(v.kind, Verdict::Kind::Right) << program << " of " << rows << ": " << v.detail;
    }
}

TEST(Extern, ScriptObjectsAreGivenToTheirOperatorsInOrder) {
  for (const char *program : {"objects.export.pt2", "objects.decomposed.pt2", "methods.export.pt2"})
    for (int rows : {4, 9}) {
      tallies = {{"inner.tally", {2.0}}, {"t", {0.5}}};
      Bounds b;
      b.prepare = [](loops::Program &p) { give(p.nodes); };
      const std::string name = std::string(program).substr(0, std::string(program).find('.')), count = std::to_string(rows);
      const Verdict v = judge(kFolder + program, kFolder + "objects.inputs." + count + ".safetensors", kFolder + name + ".outputs." + count + ".safetensors", b);
      EXPECT_EQ(v.kind, Verdict::Kind::Right) << program << " of " << rows << ": " << v.detail;
    }
}

TEST(Extern, WithoutThemNothingIsInterpreted) {
  const Verdict v = judge(kFolder + "model.export.pt2", kFolder + "inputs.4.safetensors", kFolder + "model.outputs.4.safetensors", {});
  EXPECT_NE(v.detail.find("cannot be interpreted: it is the operator neso_test::mix of whoever runs the model"), std::string::npos) << v.detail;
}

// The file of a model as it was exported does not say what such an operator changes.
TEST(Extern, WhatMayChangeItsOperandsIsRefused) {
  const Verdict v = judgeWith("changes.silent.pt2", 4);
  EXPECT_EQ(v.kind, Verdict::Kind::Refused);
  EXPECT_NE(v.detail.find("E0254"), std::string::npos) << v.detail;
  EXPECT_NE(v.detail.find("operator 'neso_test.scale_.default' changes what it is given"), std::string::npos) << v.detail;
}

// Where it returns something, the call is checked.
TEST(Extern, WhatChangesItsOperandsInSecretIsFound) {
  const Verdict v = judgeWith("secret.silent.pt2", 4);
  EXPECT_NE(v.kind, Verdict::Kind::Right);
  EXPECT_NE(v.detail.find("operator 'neso_test::push' changed its operand 'add'"), std::string::npos) << v.detail;
}

} // namespace
} // namespace neso::lower::test
