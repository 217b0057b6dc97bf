// Lowered programs, interpreted, against PyTorch: every golden of tests/goldens; and what is refused.
// Tolerance: the dtype's default (f32 1e-4 relative, 1e-5 absolute, scaled by the largest value).
#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/diagnostics/graph.h"
#include "ir/graph/ops.h"
#include "lower/graph_to_loops/lower.h"
#include "lower/graph_to_loops/lowering.h"
#include "lower/graph_to_loops/operand_dtypes.h"
#include "lower/graph_to_loops/tensor_ops.h"
#include "lower/graph_to_loops/test/golden.h"

namespace neso::lower::test {
namespace {
namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(NESO_SOURCE_DIR) / "tests" / "goldens";

std::vector<fs::path> programsBelow(const fs::path &folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry &e : fs::recursive_directory_iterator(folder))
    if (e.path().extension() == ".pt2") files.push_back(e.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// The tensors of <case>.pt2 and of <case>.core.pt2 are the same.
std::string caseOf(const fs::path &file) { return file.stem().stem().string(); }

TEST(Goldens, ModelsInBothFormsAreRight) {
  int runs = 0;
  for (const fs::path &file : programsBelow(kGoldens / "models")) {
    fs::path folder = file.parent_path();
    for (const char *suffix : {"", ".2", ".3"}) {
      fs::path inputs = folder / ("inputs" + std::string(suffix) + ".safetensors"),
               outputs = folder / ("outputs" + std::string(suffix) + ".safetensors");
      if (!fs::exists(inputs)) continue;
      Verdict v = judge(file.string(), inputs.string(), outputs.string(), {});
      EXPECT_EQ(v.kind, Verdict::Kind::Right) << file << suffix << ": " << v.detail;
      ++runs;
    }
  }
  EXPECT_GT(runs, 30);
}

TEST(Goldens, SingleOperatorsAreRightOrRefusedByName) {
  int right = 0, refused = 0;
  for (const fs::path &file : programsBelow(kGoldens / "ops")) {
    fs::path folder = file.parent_path();
    Bounds b;
    b.prefix = caseOf(file) + "/";
    Verdict v =
        judge(file.string(), (folder / "inputs.safetensors").string(), (folder / "outputs.safetensors").string(), b);
    EXPECT_NE(v.kind, Verdict::Kind::Wrong) << file << ": " << v.detail;
    if (v.kind == Verdict::Kind::Refused) {
      EXPECT_NE(v.detail.find("error[E"), std::string::npos) << file;
      ++refused;
    } else {
      ++right;
    }
  }
  EXPECT_GT(right, 450);
  EXPECT_LT(refused, right / 8);
}

TEST(Goldens, AttentionWrittenOutIsOneNode) {
  int found = 0;
  for (const fs::path &file : programsBelow(kGoldens / "ops" / "attention")) {
    std::string name = caseOf(file);
    fs::path folder = file.parent_path();
    Bounds b;
    b.prefix = name + "/";
    Verdict v =
        judge(file.string(), (folder / "inputs.safetensors").string(), (folder / "outputs.safetensors").string(), b);
    EXPECT_EQ(v.kind, Verdict::Kind::Right) << file << ": " << v.detail;
    EXPECT_EQ(v.attentions, name.starts_with("not_") ? 0 : 1) << file;
    found += v.attentions;
  }
  EXPECT_GE(found, 38);
}

/// A hand-made model: y = target(x) for x f32 [4].
graph::Model unaryModel(const std::string &target, DType out = DType::F32) {
  graph::Model m;
  graph::TensorType t;
  t.sizes = {Expr(4)};
  t.strides = {Expr(1)};
  graph::ValueId x = m.graph.addValue("x", t);
  m.graph.inputs = {x};
  graph::Input in;
  in.name = "x";
  in.value = x;
  m.inputs = {in};
  t.dtype = out;
  graph::ValueId y = m.graph.addValue("y", t);
  graph::Node n;
  n.name = "y";
  n.target = target;
  n.args = {x};
  n.argNames = {"self"};
  n.outputs = {{y}};
  n.loc.file = "model.py";
  n.loc.line = 7;
  m.graph.nodes = {n};
  m.graph.outputs = {y};
  graph::Output o;
  o.value = y;
  m.outputs = {o};
  return m;
}

TEST(Refusals, UnknownOperatorsAreAllNamedWithTheirLines) {
  graph::Model m = unaryModel("aten.made_up.default");
  graph::Node second = m.graph.nodes[0];
  second.target = "aten.made_up_too.default";
  second.loc.line = 9;
  second.outputs = {{m.graph.addValue("z", m.graph.value(m.graph.inputs[0]).type)}};
  m.graph.nodes.push_back(second);
  DiagnosticSink sink;
  Result<loops::Program> r = lowerGraph(m, sink);
  ASSERT_FALSE(r);
  ASSERT_EQ(r.error().diagnostics().size(), 2u);
  EXPECT_EQ(r.error().diagnostics()[0].kind, diag::OpUnsupported);
  EXPECT_NE(r.error().str().find("aten.made_up.default"), std::string::npos);
  EXPECT_NE(r.error().str().find("model.py:9"), std::string::npos);
}

TEST(Refusals, VmapIsNamedOnceWithItsCure) {
  graph::Model m = unaryModel("torch._functorch.predispatch._add_batch_dim");
  graph::Node second = m.graph.nodes[0];
  second.target = "torch._functorch.predispatch._remove_batch_dim";
  second.outputs = {{m.graph.addValue("z", m.graph.value(m.graph.inputs[0]).type)}};
  m.graph.nodes.push_back(second);
  DiagnosticSink sink;
  Result<loops::Program> r = lowerGraph(m, sink);
  ASSERT_FALSE(r);
  ASSERT_EQ(r.error().diagnostics().size(), 1u);
  EXPECT_EQ(r.error().diagnostics()[0].kind, diag::OpOfVmap);
  EXPECT_NE(r.error().str().find("run_decompositions({})"), std::string::npos);
}

TEST(Refusals, CallsThatCannotBeComputedSayWhy) {
  graph::Model m = unaryModel("aten.view.dtype", DType::F64);
  for (graph::ValueId id : {m.graph.inputs[0], m.graph.nodes[0].outputs[0][0]}) {
    graph::TensorType &t = m.graph.value(id).type;
    t.sizes.clear(), t.strides.clear();
  }
  DiagnosticSink sink;
  Result<loops::Program> r = lowerGraph(m, sink);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().diagnostics()[0].kind, diag::OpRefused);
  EXPECT_NE(r.error().str().find("another size"), std::string::npos);
}

TEST(Refusals, ProductsTakeOneDtype) {
  for (const char *target : {"aten.mm.default", "aten.linear.default", "aten.mv.default", "aten.dot.default"}) {
    graph::Model m = unaryModel(target, DType::F32);
    graph::TensorType half = m.graph.value(m.graph.inputs[0]).type;
    half.dtype = DType::F16;
    const graph::ValueId other = m.graph.addValue("h", half);
    m.graph.inputs.push_back(other);
    m.inputs.push_back(m.inputs[0]);
    m.inputs.back().value = other;
    m.graph.nodes[0].args.push_back(other);
    m.graph.nodes[0].argNames.push_back("other");
    DiagnosticSink sink;
    Result<loops::Program> r = lowerGraph(m, sink);
    ASSERT_FALSE(r) << target;
    EXPECT_EQ(r.error().diagnostics()[0].kind, diag::OpRefused) << target;
    EXPECT_NE(r.error().str().find("'self' has f32 and 'other' has f16"), std::string::npos) << r.error().str();
  }
}

TEST(Refusals, OperandsHaveTheDtypesThatPyTorchTakes) {
  struct Case {
    const char *target;
    std::vector<std::pair<const char *, DType>> operands; // all but 'self'
    DType self, result;
    const char *said;
  };
  const Case cases[] = {
      {"aten.index_add.default", {{"index", DType::I64}, {"source", DType::F16}}, DType::F32, DType::F32, "'self' has f32 and 'source' has f16"},
      {"aten.index_add.default", {{"index", DType::F32}, {"source", DType::F32}}, DType::F32, DType::F32, "integers only: 'index' has f32"},
      {"aten.cdist.default", {{"x1", DType::F32}, {"x2", DType::F64}}, DType::F32, DType::F32, "'x1' has f32 and 'x2' has f64"},
      {"aten.group_norm.default", {{"input", DType::F32}, {"weight", DType::BF16}}, DType::F32, DType::F32, "float32 beside a narrower one"},
      {"aten.mish.default", {}, DType::I64, DType::I64, "floating point numbers only: its result has i64"},
      {"aten.var.correction", {}, DType::I64, DType::F32, "floating point numbers only: 'self' has i64"},
      {"aten.sub.Tensor", {{"other", DType::Bool}}, DType::F32, DType::F32, "of truth values: 'other' has bool"},
      {"aten.max_pool2d_with_indices.default", {}, DType::Bool, DType::Bool, "of truth values: its result has bool"},
  };
  for (const Case &c : cases) {
    graph::Model m = unaryModel(c.target, c.result);
    m.graph.value(m.graph.inputs[0]).type.dtype = c.self;
    const graph::TensorType type = m.graph.value(m.graph.inputs[0]).type;
    graph::Node &node = m.graph.nodes[0];
    for (const auto &[name, dtype] : c.operands) {
      graph::TensorType other = type;
      other.dtype = dtype;
      node.args.push_back(m.graph.addValue(name, other));
      node.argNames.push_back(name);
    }
    EXPECT_NE(operandDtypeFault(m.graph, node).find(c.said), std::string::npos) << c.target << ": " << operandDtypeFault(m.graph, node);
  }
  graph::Model narrow = unaryModel("aten.layer_norm.default", DType::BF16);
  narrow.graph.value(narrow.graph.inputs[0]).type.dtype = DType::BF16;
  graph::Node &node = narrow.graph.nodes[0];
  node.argNames[0] = "input";
  graph::TensorType wide = narrow.graph.value(narrow.graph.inputs[0]).type;
  wide.dtype = DType::F32;
  node.args.push_back(narrow.graph.addValue("w", wide));
  node.argNames.push_back("weight");
  EXPECT_EQ(operandDtypeFault(narrow.graph, node), "");
}

TEST(Refusals, AComplexNumberIsNoRealOne) {
  graph::Model m = unaryModel("aten.leaky_relu.default");
  m.graph.nodes[0].args.push_back(graph::ComplexValue{1, 2});
  m.graph.nodes[0].argNames.push_back("negative_slope");
  DiagnosticSink sink;
  Result<loops::Program> r = lowerGraph(m, sink);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().diagnostics()[0].kind, diag::OpRefused);
  EXPECT_NE(r.error().str().find("complex"), std::string::npos);
}

TEST(Refusals, LossesKnowThreeReductions) {
  for (const char *target : {"aten.mse_loss.default", "aten.smooth_l1_loss.default", "aten.huber_loss.default", "aten.soft_margin_loss.default", "aten.nll_loss.default",
                             "aten.cross_entropy_loss.default", "aten.multi_margin_loss.default", "aten.multilabel_margin_loss.default"}) {
    for (int64_t reduction : {-2, 3}) {
      graph::Model m = unaryModel(target);
      graph::Node &node = m.graph.nodes[0];
      for (const char *name : {"target", "reduction"}) node.argNames.push_back(name);
      node.args.push_back(m.graph.inputs[0]);
      node.args.push_back(reduction);
      DiagnosticSink sink;
      Result<loops::Program> r = lowerGraph(m, sink);
      ASSERT_FALSE(r) << target;
      EXPECT_EQ(r.error().diagnostics()[0].kind, diag::OpRefused) << target;
      EXPECT_NE(r.error().str().find("reduction is " + std::to_string(reduction)), std::string::npos) << r.error().str();
    }
  }
}

TEST(Refusals, AWrappedCallIsNamedByWhatItCalls) {
  graph::Model m = unaryModel(std::string(graph::kDoubtfulCall), DType::C64);
  graph::Node &node = m.graph.nodes[0];
  node.args.insert(node.args.begin(), std::string("mylib.turn.default"));
  node.argNames.insert(node.argNames.begin(), "op");
  DiagnosticSink sink;
  Result<loops::Program> r = lowerGraph(m, sink);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().diagnostics()[0].kind, diag::OpRefused);
  EXPECT_NE(r.error().str().find("'mylib.turn.default'"), std::string::npos) << r.error().str();
}

TEST(Refusals, AnOperatorThatSaysNothingOfComplexNumbersMeetsNone) {
  for (const char *target : {"aten.erf.default", "aten.relu.default", "aten.sort.default", "aten.linalg_pinv.default", "aten.amax.default"}) {
    graph::Model m = unaryModel(target, DType::C64);
    DiagnosticSink sink;
    Result<loops::Program> r = lowerGraph(m, sink);
    ASSERT_FALSE(r) << target;
    EXPECT_EQ(r.error().diagnostics()[0].kind, diag::OpRefused) << target;
    EXPECT_NE(r.error().str().find(target), std::string::npos);
  }
}

// What a lowering function has missed is refused where the element of a complex tensor is asked for.
TEST(Refusals, NoScalarIsComplex) {
  Lowering ctx;
  const Tensor z = full(ctx, {Expr(2)}, DType::C64, 1);
  EXPECT_EQ(ctx.takeRefusal(), "");
  unary(z, OpKind::Erf).cost();
  EXPECT_NE(ctx.takeRefusal(), "");
  EXPECT_EQ(ctx.takeRefusal(), "");
  binary(OpKind::Max, z, z);
  EXPECT_NE(ctx.takeRefusal(), "");
  z.realize().at(*std::make_unique<BodyBuilder>(ctx.facts), {Expr(0)});
  EXPECT_NE(ctx.takeRefusal(), "");
}

/// y = target(x, …) for x f32 [n], n in [1, 64], whose result the model says to have these sizes.
graph::Model dynamicModel(const std::string &target, Expr n, const Sizes &out) {
  graph::Model m = unaryModel(target);
  m.facts.setRange(n.symbol(), {1, 64});
  m.graph.value(m.graph.inputs[0]).type.sizes = {n};
  graph::TensorType &type = m.graph.value(m.graph.nodes[0].outputs[0][0]).type;
  type.sizes = out;
  type.strides = Sizes(out.size(), Expr(1));
  return m;
}

// The exporter decides as if no size were one, and its ranges do not say so.
TEST(Refusals, WhatAnExporterTookForGrantedOfSizesIsChecked) {
  const Expr n = Symbol::size("n");
  graph::Model squeezed = dynamicModel("aten.squeeze.dim", n, {n});
  squeezed.graph.nodes[0].args.push_back(int64_t(0));
  squeezed.graph.nodes[0].argNames.push_back("dim");
  graph::Model sliced = dynamicModel("aten.slice.Tensor", n, {Expr(2)});
  for (int64_t i : {0, 0, 2}) sliced.graph.nodes[0].args.push_back(i);
  sliced.graph.nodes[0].argNames = {"self", "dim", "start", "end"};
  graph::Model expanded = dynamicModel("aten.expand.default", n, {Expr(3)});
  expanded.graph.nodes[0].args.push_back(std::vector<graph::IntOrSym>{int64_t(3)});
  expanded.graph.nodes[0].argNames.push_back("size");
  struct Case {
    graph::Model *model;
    int64_t right, refused;
  };
  for (const Case &c : {Case{&squeezed, 2, 1}, Case{&sliced, 2, 1}, Case{&expanded, 3, 2}}) {
    DiagnosticSink sink;
    Result<loops::Program> r = lowerGraph(*c.model, sink);
    ASSERT_TRUE(r) << r.error().str();
    ASSERT_EQ(r->assertions.size(), 1u) << c.model->graph.nodes[0].target;
    const Assertion &a = r->assertions[0];
    EXPECT_TRUE(substitute(a.condition, {{n.symbol(), Expr(c.right)}}).isConst(1));
    EXPECT_TRUE(substitute(a.condition, {{n.symbol(), Expr(c.refused)}}).isConst(0));
    EXPECT_NE(a.message.find(c.model->graph.nodes[0].target + " (model.py:7) was exported for sizes with"), std::string::npos) << a.message;
    // Nothing is asked where the range says it.
    c.model->facts.setRange(n.symbol(), {c.right, c.right});
    Result<loops::Program> certain = lowerGraph(*c.model, sink);
    ASSERT_TRUE(certain);
    EXPECT_TRUE(certain->assertions.empty()) << c.model->graph.nodes[0].target;
  }
}

TEST(Refusals, AResultOfAnotherTypeThanTheModelSaysIsNamed) {
  graph::Model m = unaryModel("aten.relu.default", DType::I64);
  DiagnosticSink sink;
  Result<loops::Program> r = lowerGraph(m, sink);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().diagnostics()[0].kind, diag::GraphContradictsItself);
  // Whoever edited the file has to know which line; it is no fault of the compiler's.
  EXPECT_FALSE(r.error().internal());
  EXPECT_NE(r.error().str().find("the model contradicts itself: aten.relu.default gives f32 for result 0 ('y'), the model says i64"), std::string::npos) << r.error().str();
}

TEST(Refusals, AResultThatNobodyReadsMayHaveAnyTypeInTheModel) {
  graph::Model m = unaryModel("aten.relu.default", DType::I64);
  graph::Node read = m.graph.nodes[0];
  read.name = "z";
  read.outputs = {{m.graph.addValue("z", m.graph.value(m.graph.inputs[0]).type)}};
  m.graph.nodes.push_back(read);
  m.graph.outputs = {read.outputs[0][0]};
  m.outputs[0].value = read.outputs[0][0];
  DiagnosticSink sink;
  Result<loops::Program> r = lowerGraph(m, sink);
  EXPECT_TRUE(r) << r.error().str();
}

TEST(Lowering, PointwiseChainsBecomeOneNode) {
  graph::Model m = unaryModel("aten.relu.default");
  graph::Node second = m.graph.nodes[0];
  second.target = "aten.neg.default";
  second.args = {m.graph.nodes[0].outputs[0][0]};
  second.outputs = {{m.graph.addValue("z", m.graph.value(m.graph.inputs[0]).type)}};
  m.graph.nodes.push_back(second);
  m.outputs[0].value = second.outputs[0][0];
  DiagnosticSink sink;
  Result<loops::Program> r = lowerGraph(m, sink);
  ASSERT_TRUE(r);
  ASSERT_EQ(r->nodes.size(), 1u);
  EXPECT_EQ(r->nodes[0].body().ops.size(), 3u);
}

// Another tensor may come to lie where one was that is gone.
TEST(Lowering, TensorsThatAreGoneAreNotTakenForOthers) {
  Lowering ctx;
  BodyBuilder b(ctx.facts);
  for (int n = 0; n < 100; ++n) {
    const Tensor gone = Tensor::lazy(ctx, DType::F32, {}, [n](BodyBuilder &body, const Index &) { return body.constant(DType::F32, n); });
    EXPECT_EQ(b.constantOf(gone.at(b, {})), n);
  }
}

TEST(Lowering, IsSupportedKnowsTheTable) {
  EXPECT_TRUE(isSupported("aten.conv2d.default"));
  EXPECT_TRUE(isSupported("aten.convolution.default"));
  EXPECT_FALSE(isSupported("aten.made_up.default"));
  const std::vector<std::string> all = supportedTargets();
  // Among them rows that are made from lists of words.
  for (const char *target : {"aten.conv2d.default", "aten._foreach_sqrt.default", "aten.special_hermite_polynomial_h.x_scalar"})
    EXPECT_TRUE(std::binary_search(all.begin(), all.end(), target)) << target;
}

} // namespace
} // namespace neso::lower::test
