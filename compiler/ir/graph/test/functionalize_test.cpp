// functionalize: what PyTorch's semantics of views and in-place operators ask for.
#include <gtest/gtest.h>

#include "base/diagnostics/graph.h"
#include "ir/graph/ops.h"
#include "ir/graph/passes/functionalize.h"
#include "ir/graph/passes/simplify.h"
#include "ir/graph/passes/views.h"

using namespace neso;
using namespace neso::graph;

namespace {

/// A model with one user input `x` of f32[4, 6] and one buffer `b` of f32[6].
struct Builder {
  Model m;
  ValueId x, b;
  Builder() {
    x = input("x", {4, 6});
    b = input("b", {6});
    m.inputs[1].kind = Input::Kind::Weight;
    m.inputs[1].weight = 0;
    Weight w;
    w.fqn = "stats.b";
    w.kind = Weight::Kind::Buffer;
    w.storage = 0;
    m.weights.push_back(w);
  }
  static TensorType type(std::vector<Expr> sizes) {
    TensorType t;
    t.sizes = sizes;
    t.strides = contiguousStrides(sizes);
    return t;
  }
  ValueId input(std::string name, std::vector<Expr> sizes) {
    ValueId id = m.graph.addValue(name, type(std::move(sizes)));
    m.graph.inputs.push_back(id);
    Input in;
    in.name = name;
    in.value = id;
    m.inputs.push_back(in);
    return id;
  }
  ValueId op(std::string target, std::vector<Argument> args, TensorType t, std::string name) {
    Node n;
    n.name = name;
    n.target = std::move(target);
    n.args = std::move(args);
    EXPECT_TRUE(bindArguments(n, m.graph));
    ValueId out = m.graph.addValue(name, std::move(t));
    n.outputs = {{out}};
    m.graph.nodes.push_back(std::move(n));
    return out;
  }
  /// An operator that is not PyTorch's: its arguments have the names of the file.
  ValueId callerOp(std::string target, std::vector<std::pair<std::string, Argument>> args, TensorType t, std::string name) {
    Node n;
    n.name = name, n.target = std::move(target);
    for (auto &[arg, value] : args) n.argNames.push_back(arg), n.args.push_back(value);
    ValueId out = m.graph.addValue(name, std::move(t));
    n.outputs = {{out}};
    m.graph.nodes.push_back(std::move(n));
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
    for (const Node &n : m.graph.nodes) {
      EXPECT_FALSE(findOp(n.target) && findOp(n.target)->mutates()) << n.target;
      out += (out.empty() ? "" : " ") + n.target;
    }
    return out;
  }
  std::string name(const Argument &a) const { return m.graph.value(std::get<ValueId>(a)).name; }
};

} // namespace

TEST(Functionalize, ReluOnAFreshTensorIsExactlyRelu) {
  Builder k;
  TensorType t = Builder::type({4, 6});
  ValueId s = k.op("aten.sigmoid.default", {k.x}, t, "s");
  ValueId r = k.op("aten.relu_.default", {s}, t, "relu_");
  ValueId sum = k.op("aten.add.Tensor", {s, r}, t, "sum");
  k.output(sum);
  ASSERT_TRUE(functionalize(k.m));
  EXPECT_EQ(k.targets(), "aten.sigmoid.default aten.relu.default aten.add.Tensor");
  // The old name reads the new content too.
  EXPECT_EQ(k.name(k.m.graph.nodes[2].args[0]), "relu_");
  EXPECT_EQ(k.name(k.m.graph.nodes[2].args[1]), "relu_");
  EXPECT_EQ(k.m.outputs.size(), 1u);
}

TEST(Functionalize, WriteThroughAViewUpdatesBaseAndOtherViews) {
  Builder k;
  TensorType t = Builder::type({4, 6}), row = Builder::type({6});
  ValueId s = k.op("aten.sigmoid.default", {k.x}, t, "s");
  ValueId flat = k.op("aten.view.default", {s, std::vector<IntOrSym>{int64_t(24)}}, Builder::type({24}), "flat");
  ValueId sel = k.op("aten.select.int", {s, int64_t(0), int64_t(1)}, row, "sel");
  k.op("aten.mul_.Tensor", {sel, int64_t(2)}, row, "mul_");
  k.output(flat);
  k.output(s);
  ASSERT_TRUE(functionalize(k.m));
  EXPECT_EQ(k.targets(), "aten.sigmoid.default aten.view.default aten.select.int aten.mul.Tensor "
                         "aten.select_scatter.default aten.view.default");
  const Node &scatter = k.m.graph.nodes[4];
  EXPECT_EQ(k.name(scatter.args[0]), "s");
  EXPECT_EQ(k.name(scatter.args[1]), "mul_");
  EXPECT_EQ(k.name(k.m.graph.outputs[1]), k.m.graph.value(scatter.outputs[0][0]).name);
  EXPECT_EQ(std::get<ValueId>(k.m.graph.nodes[5].args[0]), scatter.outputs[0][0]);
  EXPECT_EQ(std::get<ValueId>(k.m.graph.outputs[0]), k.m.graph.nodes[5].outputs[0][0]);
}

TEST(Functionalize, OfAListEachPartIsWhatItIsOfTheWhole) {
  Builder k;
  const TensorType t = Builder::type({4, 6});
  const ValueId s = k.op("aten.sigmoid.default", {k.x}, t, "s");
  const ValueId whole = k.op("aten.split_with_sizes.default", {s, std::vector<IntOrSym>{int64_t(4), int64_t(0)}, int64_t(0)}, t, "whole");
  const ValueId none = k.m.graph.addValue("none", Builder::type({0, 6}));
  k.m.graph.nodes.back().outputs = {{whole, none}};
  k.op("aten.add_.Tensor", {none, int64_t(1)}, Builder::type({0, 6}), "add_");
  k.op("aten.mul_.Tensor", {whole, int64_t(2)}, t, "mul_");
  k.output(s);
  k.output(none);
  ASSERT_TRUE(functionalize(k.m));
  // The first part is all of the tensor; the second, which has nothing, is not.
  EXPECT_EQ(k.m.graph.value(std::get<ValueId>(k.m.graph.outputs[0])).type.sizes, t.sizes);
  EXPECT_EQ(k.m.graph.value(std::get<ValueId>(k.m.graph.outputs[1])).type.sizes, Builder::type({0, 6}).sizes);
  EXPECT_EQ(k.targets(), "aten.sigmoid.default aten.split_with_sizes.default aten.add.Tensor aten.slice_scatter.default aten.mul.Tensor aten.split_with_sizes.default");
}

TEST(Functionalize, WhoFindsElementsByStridesFindsThemWhereTheTensorHasThem) {
  Builder k;
  const TensorType t = Builder::type({4, 6});
  TensorType turned = t, part = Builder::type({2, 2});
  turned.strides = {1, 4}, part.strides = {6, 1};
  const ValueId y = k.input("y", {6, 4}), s = k.op("aten.sigmoid.default", {k.x}, t, "s");
  const ValueId yt = k.op("aten.t.default", {y}, turned, "yt");
  k.op("aten.copy_.default", {s, yt}, t, "copy_");
  Node launch;
  launch.name = "launch", launch.target = "neso.launch_", launch.args = {s};
  UserLaunch known;
  known.read = {true}, known.written = {false};
  launch.launch = std::make_shared<UserLaunch>(known);
  k.m.graph.nodes.push_back(launch);
  const ValueId corner = k.op("aten.as_strided.default", {s, std::vector<IntOrSym>{int64_t(2), int64_t(2)}, std::vector<IntOrSym>{int64_t(6), int64_t(1)}}, part, "corner");
  k.output(corner);
  ASSERT_TRUE(functionalize(k.m));
  for (const Node &n : k.m.graph.nodes)
    if (n.target == "neso.launch" || n.target == "aten.as_strided.default") EXPECT_EQ(k.m.graph.value(std::get<ValueId>(n.args[0])).type.strides, t.strides) << n.target;
}

TEST(Functionalize, InputAndBufferMutationsBecomeOutputs) {
  Builder k;
  TensorType t = Builder::type({4, 6}), row = Builder::type({6});
  k.op("aten.add_.Tensor", {k.b, int64_t(1)}, row, "add_");
  k.op("aten.zero_.default", {k.x}, t, "zero_");
  ValueId y = k.op("aten.add.Tensor", {k.x, k.b}, t, "y");
  k.output(y);
  ASSERT_TRUE(functionalize(k.m));
  ASSERT_EQ(k.m.outputs.size(), 3u);
  EXPECT_EQ(k.m.outputs[0].kind, Output::Kind::InputMutation);
  EXPECT_EQ(k.m.outputs[0].target, "x");
  EXPECT_EQ(k.m.outputs[1].kind, Output::Kind::BufferMutation);
  EXPECT_EQ(k.m.outputs[1].target, "stats.b");
  EXPECT_EQ(k.name(k.m.outputs[1].value), "add_");
  EXPECT_EQ(k.m.graph.outputs.size(), 3u);
}

TEST(Functionalize, StoredResultKeepsTheMemorysDtype) {
  Builder k;
  TensorType half = Builder::type({4, 6});
  half.dtype = DType::F16;
  ValueId h = k.op("aten._to_copy.default", {k.x, DType::F16}, half, "h");
  k.op("aten.add_.Tensor", {h, k.x}, half, "add_");
  k.output(h);
  ASSERT_TRUE(functionalize(k.m));
  EXPECT_EQ(k.targets(), "aten._to_copy.default aten.add.Tensor aten._to_copy.default");
  EXPECT_EQ(k.m.graph.value(k.m.graph.nodes[1].outputs[0][0]).type.dtype, DType::F32);
  EXPECT_EQ(k.m.graph.value(std::get<ValueId>(k.m.graph.outputs[0])).type.dtype, DType::F16);
}

TEST(Functionalize, CopyBroadcasts) {
  Builder k;
  TensorType t = Builder::type({4, 6});
  ValueId s = k.op("aten.sigmoid.default", {k.x}, t, "s");
  k.op("aten.copy_.default", {s, k.b}, t, "copy_");
  k.output(s);
  ASSERT_TRUE(functionalize(k.m));
  EXPECT_EQ(k.targets(), "aten.sigmoid.default aten.expand.default aten.alias.default");
}

TEST(Functionalize, ReshapeThatMustCopyIsNoView) {
  Builder k;
  TensorType t = Builder::type({4, 6}), tr = Builder::type({6, 4});
  tr.strides = {1, 6};
  ValueId s = k.op("aten.sigmoid.default", {k.x}, t, "s");
  ValueId p = k.op("aten.t.default", {s}, tr, "p");
  ValueId copy = k.op("aten.reshape.default", {p, std::vector<IntOrSym>{int64_t(24)}}, Builder::type({24}), "copy");
  k.op("aten.relu_.default", {copy}, Builder::type({24}), "relu_");
  k.output(s);
  ASSERT_TRUE(functionalize(k.m));
  EXPECT_EQ(k.name(k.m.graph.outputs[0]), "s");
}

// E0202 MutationUnsupported
// The slice has gaps, so that both a new tensor and the way back through the transpose have contiguous strides: it must not pass for nothing.
TEST(Functionalize, TheWayBackThroughATransposeStays) {
  Builder k;
  ValueId s = k.op("aten.sigmoid.default", {k.x}, Builder::type({4, 6}), "s");
  TensorType gaps = Builder::type({4, 4}), turned = gaps;
  gaps.strides = {6, 1}, turned.strides = {1, 6};
  ValueId part = k.op("aten.slice.Tensor", {s, int64_t(1), int64_t(0), int64_t(4), int64_t(1)}, gaps, "part");
  ValueId t = k.op("aten.t.default", {part}, turned, "t");
  k.op("aten.relu_.default", {t}, turned, "relu_");
  k.output(s);
  ASSERT_TRUE(functionalize(k.m));
  simplify(k.m);
  EXPECT_EQ(k.targets(), "aten.sigmoid.default aten.slice.Tensor aten.t.default aten.relu.default aten.permute_copy.default aten.slice_scatter.default");
}

/// cond of `b` whose one branch gives its operand back.
Builder givingBack(bool cloned) {
  Builder k;
  TensorType row = Builder::type({6});
  auto branch = [&](const char *target) {
    auto g = std::make_shared<Graph>();
    const ValueId in = g->addValue("a", row);
    g->inputs.push_back(in);
    Node n;
    n.name = "y", n.target = target, n.args = {in};
    EXPECT_TRUE(bindArguments(n, *g));
    const ValueId out = g->addValue("y", row);
    n.outputs = {{out}};
    g->nodes.push_back(std::move(n));
    g->outputs.push_back(out);
    return g;
  };
  ValueId some = k.op("aten.any.default", {k.b}, Builder::type({}), "some");
  Node n;
  n.name = "y", n.target = "higher_order.cond";
  n.args = {some, branch(cloned ? "aten.clone.default" : "aten.alias.default"), branch("aten.neg.default"), std::vector<ValueId>{k.b}};
  const ValueId y = k.m.graph.addValue("y", row);
  n.outputs = {{y}};
  k.m.graph.nodes.push_back(std::move(n));
  k.op("aten.add_.Tensor", {k.b, y, int64_t(1)}, row, "add_");
  k.output(y);
  return k;
}

TEST(Functionalize, WhatABranchMayHaveGivenBackIsNotWritten) {
  Builder k = givingBack(false);
  Status st = functionalize(k.m);
  ASSERT_FALSE(st);
  EXPECT_EQ(st.error().diagnostics()[0].kind, diag::MutationUnsupported);
  EXPECT_NE(st.error().str().find("return a clone"), std::string::npos) << st.error().str();
  Builder other = givingBack(true);
  EXPECT_TRUE(functionalize(other.m));
}

TEST(Functionalize, AnInputWhoseExampleRepeatsElementsIsNotWritten) {
  for (Expr stride : {Expr(0), Expr(6)}) {
    Builder k;
    k.m.graph.value(k.x).type.strides[0] = stride;
    TensorType row = Builder::type({6});
    ValueId first = k.op("aten.select.int", {k.x, int64_t(0), int64_t(0)}, row, "first");
    k.output(k.op("aten.add_.Scalar", {first, int64_t(1)}, row, "add_"));
    Status st = functionalize(k.m);
    EXPECT_EQ(bool(st), !stride.isConst(0));
    if (!st) EXPECT_EQ(st.error().diagnostics()[0].kind, diag::MutationUnsupported);
  }
}

TEST(Functionalize, WhatHasNoFunctionalFormIsNamed) {
  Builder k;
  ValueId s = k.op("aten.sigmoid.default", {k.x}, Builder::type({4, 6}), "s");
  k.op("aten.set_.default", {s}, Builder::type({0}), "set_");
  Status st = functionalize(k.m);
  ASSERT_FALSE(st);
  EXPECT_EQ(st.error().diagnostics()[0].kind, diag::MutationUnsupported);
}

TEST(Functionalize, WhatIsSetIsAnotherTensorFromThenOn) {
  Builder k;
  ValueId s = k.op("aten.sigmoid.default", {k.x}, Builder::type({4, 6}), "s");
  ValueId t = k.op("aten.neg.default", {k.b}, Builder::type({6}), "t");
  k.op("aten.set_.source_Tensor", {s, t}, Builder::type({6}), "set_");
  k.op("aten.relu_.default", {s}, Builder::type({6}), "relu_");
  k.output(t);
  ASSERT_TRUE(functionalize(k.m));
  EXPECT_EQ(k.targets(), "aten.sigmoid.default aten.neg.default aten.relu.default");
  EXPECT_NE(k.name(k.m.graph.outputs[0]), "t");
  Builder other;
  other.op("aten.set_.source_Tensor", {other.x, other.b}, Builder::type({6}), "set_");
  Status st = functionalize(other.m);
  ASSERT_FALSE(st);
  EXPECT_EQ(st.error().diagnostics()[0].kind, diag::MutationUnsupported);
}

TEST(Functionalize, TheCallersTensorIsLeftWithItsNewShape) {
  Builder k;
  TensorType turned = Builder::type({6, 4}), more = Builder::type({6, 1, 4});
  turned.strides = {1, 6}, more.strides = {1, 6, 6};
  ValueId t = k.op("aten.transpose_.default", {k.x, int64_t(0), int64_t(1)}, turned, "t");
  // The result is another name of the argument.
  ValueId u = k.op("aten.unsqueeze_.default", {t, int64_t(1)}, more, "u");
  k.output(k.op("aten.relu.default", {u}, Builder::type({6, 1, 4}), "r"));
  ASSERT_TRUE(functionalize(k.m));
  EXPECT_EQ(k.m.inputs[0].reshaped, "[[\"transpose_\", 0, 1], [\"unsqueeze_\", 1]]");
  EXPECT_EQ(k.m.outputs.size(), 1u);

  Builder back;
  back.op("aten.t_.default", {back.x}, turned, "t");
  back.op("aten.t_.default", {back.x}, Builder::type({4, 6}), "again");
  ASSERT_TRUE(functionalize(back.m));
  EXPECT_EQ(back.m.inputs[0].reshaped, "");

  Builder unknown;
  TensorType part = Builder::type({Symbol::size("s0")});
  unknown.op("aten.as_strided_.default", {unknown.x, sizeList(unknown.m.graph, part.sizes), std::vector<IntOrSym>{int64_t(1)}, None{}}, part, "part");
  Status st = functionalize(unknown.m);
  ASSERT_FALSE(st);
  EXPECT_EQ(st.error().diagnostics()[0].kind, diag::MutationUnsupported);
}

TEST(Functionalize, AnOutArgumentKeepsItsStrides) {
  Builder k;
  TensorType turned = Builder::type({6, 4}), places = Builder::type({0});
  turned.strides = {1, 6}, places.dtype = DType::I64;
  ValueId s = k.op("aten.t.default", {k.op("aten.neg.default", {k.x}, Builder::type({4, 6}), "n")}, turned, "t");
  ValueId y = k.op("aten.clone.default", {s, None{}}, turned, "y");
  ValueId empty = k.op("aten.empty.memory_format", {std::vector<IntOrSym>{int64_t(0)}, DType::I64}, places, "empty");
  places = Builder::type({6, 4}), places.dtype = DType::I64;
  Node n;
  n.name = "sort", n.target = "aten.sort.values", n.args = {s, int64_t(0), false, y, empty};
  ASSERT_TRUE(bindArguments(n, k.m.graph));
  const ValueId values = k.m.graph.addValue("values", Builder::type({6, 4}));
  n.outputs = {{values}, {k.m.graph.addValue("indices", places)}};
  k.m.graph.nodes.push_back(std::move(n));
  k.output(values);
  ASSERT_TRUE(functionalize(k.m));
  EXPECT_EQ(k.m.graph.value(std::get<ValueId>(k.m.graph.outputs[0])).type.strides, turned.strides);
}

TEST(Functionalize, AWeightThatIsTurnedIsFoundSoByTheNextRun) {
  TensorType square = Builder::type({6, 6}), turned = square;
  turned.strides = {1, 6};
  Builder k;
  k.m.graph.value(k.b).type = k.m.weights[0].type = square;
  k.output(k.op("aten.t_.default", {k.b}, turned, "t"));
  ASSERT_TRUE(functionalize(k.m));
  ASSERT_EQ(k.m.outputs.size(), 2u);
  EXPECT_EQ(k.m.outputs[0].kind, Output::Kind::BufferMutation);
  EXPECT_EQ(k.name(k.m.graph.outputs[0]), "t");

  Builder row;
  row.m.weights[0].type = Builder::type({6});
  row.op("aten.unsqueeze_.default", {row.b, int64_t(0)}, Builder::type({1, 6}), "u");
  Status st = functionalize(row.m);
  ASSERT_FALSE(st);
  EXPECT_EQ(st.error().diagnostics()[0].kind, diag::MutationUnsupported);
  EXPECT_NE(st.error().str().find("another shape"), std::string::npos) << st.error().str();
}

TEST(Functionalize, WhatAFileWritesBackIsCopiedThere) {
  auto written = [](std::vector<Expr> sizes, DType dtype) {
    Builder k;
    TensorType t = Builder::type(sizes);
    t.dtype = dtype;
    ValueId v = k.op("aten.rand.default", {sizeList(k.m.graph, sizes), dtype}, t, "v");
    k.output(v);
    k.m.outputs[0].kind = Output::Kind::BufferMutation;
    k.m.outputs[0].target = "stats.b";
    return functionalize(k.m) ? k.targets() : "refused";
  };
  EXPECT_EQ(written({6}, DType::F32), "aten.rand.default");
  EXPECT_EQ(written({1}, DType::F32), "aten.rand.default aten.copy.default");
  EXPECT_EQ(written({6}, DType::F64), "aten.rand.default aten.copy.default");
  EXPECT_EQ(written({5}, DType::F32), "refused");
  EXPECT_EQ(written({2, 6}, DType::F32), "refused");
}

TEST(Functionalize, WhatIsWrittenBackAndReturnedIsOne) {
  Builder k;
  TensorType t = Builder::type({1});
  ValueId v = k.op("aten.rand.default", {sizeList(k.m.graph, {1}), DType::F32}, t, "v");
  k.output(v), k.output(v);
  k.m.outputs[0].kind = Output::Kind::BufferMutation;
  k.m.outputs[0].target = "stats.b";
  ASSERT_TRUE(bool(functionalize(k.m)));
  ASSERT_EQ(k.m.outputs.size(), 2u);
  EXPECT_EQ(std::get<ValueId>(k.m.outputs[1].value).value, std::get<ValueId>(k.m.outputs[0].value).value);
  EXPECT_EQ(k.m.graph.value(std::get<ValueId>(k.m.outputs[1].value)).type.sizes, (std::vector<Expr>{6}));
}

// Windows that share elements: what a write leaves in those hangs on its order, which torch does not define.
TEST(Functionalize, WhatLiesAtOnePlaceTwiceIsNotWritten) {
  auto written = [](int64_t step, std::vector<Expr> sizes, const char *how) {
    Builder k;
    TensorType t = Builder::type(sizes);
    t.strides = {Expr(step), Expr(1)};
    ValueId windows = k.op("aten.unfold.default", {k.b, int64_t(0), int64_t(2), step}, t, "windows");
    if (std::string_view(how) == "aten.zero_.default")
      k.op(how, {windows}, t, "new");
    else
      k.op(how, {windows, int64_t(1)}, t, "new");
    return static_cast<bool>(functionalize(k.m));
  };
  EXPECT_FALSE(written(1, {5, 2}, "aten.add_.Scalar"));
  EXPECT_TRUE(written(2, {3, 2}, "aten.add_.Scalar"));
  EXPECT_TRUE(written(1, {5, 2}, "aten.zero_.default"));
}

// A buffer is written that shares its storage with another: fine where they lie apart, or where nobody reads the other.
TEST(Functionalize, WritesToSharedStorageAreSeenOrRefused) {
  auto shared = [](Expr offset, std::vector<Expr> strides, bool read, bool functional) {
    Builder k;
    ValueId c = k.input("c", {3});
    k.m.weights[0].type = Builder::type({6});
    Weight w = k.m.weights[0];
    w.fqn = "stats.c";
    w.type.sizes = {3}, w.type.strides = strides, w.type.offset = offset;
    k.m.weights.push_back(w);
    k.m.inputs.back().kind = Input::Kind::Weight, k.m.inputs.back().weight = 1;
    ValueId y = k.op(functional ? "aten.add.Tensor" : "aten.add_.Tensor", {k.b, int64_t(1)}, Builder::type({6}), "add");
    k.output(read ? k.op("aten.sigmoid.default", {c}, Builder::type({3}), "s") : k.x);
    if (functional) {
      k.output(y);
      k.m.outputs.back().kind = Output::Kind::BufferMutation, k.m.outputs.back().target = "stats.b";
    }
    return static_cast<bool>(functionalize(k.m));
  };
  for (bool functional : {false, true}) {
    EXPECT_TRUE(shared(6, {1}, true, functional));
    EXPECT_FALSE(shared(5, {1}, true, functional));
    EXPECT_FALSE(shared(0, {2}, true, functional));
    EXPECT_TRUE(shared(5, {1}, false, functional));
  }
}

TEST(Functionalize, OperatorsOfTheCallersMayChangeTheirOperands) {
  auto build = [](bool overlap) {
    Builder k;
    const TensorType t = Builder::type({4, 6}), row = Builder::type({6});
    const ValueId s = k.op("aten.sigmoid.default", {k.x}, t, "s");
    const ValueId r = k.callerOp("lib.push.default", {{"x", s}, {"y", overlap ? s : k.b}}, row, "r");
    k.output(k.op("aten.add.Tensor", {s, r}, t, "sum"));
    return k;
  };
  // Nothing says what it changes: the call is checked; one without results cannot be.
  Builder silent = build(false);
  ASSERT_TRUE(functionalize(silent.m));
  EXPECT_EQ(silent.targets(), "aten.sigmoid.default neso.doubtful_call aten.add.Tensor");
  Builder mute = build(false);
  mute.m.graph.nodes[1].outputs.clear();
  Status s = functionalize(mute.m);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().diagnostics()[0].kind, diag::OpMayChange);
  // run_decompositions wrote it: such calls change nothing.
  Builder functional = build(false);
  functional.m.functional = true;
  ASSERT_TRUE(functionalize(functional.m));
  EXPECT_EQ(functional.targets(), "aten.sigmoid.default lib.push.default aten.add.Tensor");
  // Its schema says it.
  auto with = [&](bool overlap, std::string schema) {
    Builder k = build(overlap);
    k.m.extraFiles["neso_operators"] = std::move(schema);
    return k;
  };
  Builder changes = with(false, "lib::other(Tensor x) -> Tensor\nlib::push(Tensor(a0!) x, Tensor y) -> Tensor\n");
  ASSERT_TRUE(functionalize(changes.m));
  EXPECT_EQ(changes.targets(), "aten.sigmoid.default higher_order.auto_functionalized_v2 aten.add.Tensor");
  const Node &call = changes.m.graph.nodes[1];
  EXPECT_EQ(call.argNames, (std::vector<std::string>{"", "_x_base_index", "y", "_all_bases"}));
  ASSERT_EQ(call.outputs.size(), 2u);
  EXPECT_EQ(changes.name(changes.m.graph.nodes[2].args[0]), "s_new");
  EXPECT_EQ(changes.name(changes.m.graph.nodes[2].args[1]), "r");
  Builder pure = with(false, "lib::push(Tensor x, Tensor y) -> Tensor");
  ASSERT_TRUE(functionalize(pure.m));
  EXPECT_EQ(pure.name(pure.m.graph.nodes[2].args[0]), "s");
  // What it reads would change under its hands; results that share memory; names that it does not have; no schemas.
  for (auto &[overlap, schema, kind] : std::vector<std::tuple<bool, std::string, Diag>>{
           {true, "lib::push(Tensor(a!) x, Tensor y) -> Tensor", diag::MutationUnsupported},
           {false, "lib::push(Tensor(a) x, Tensor y) -> Tensor(a)", diag::OpRefused},
           {false, "lib::push(Tensor x, Tensor z) -> Tensor", diag::OperatorArgument},
           {false, "lib::push(Tensor x", diag::OpSchemaMalformed},
           {false, "push", diag::OpSchemaMalformed},
           {false, "lib::push(Tensor x, int[ y) -> Tensor", diag::OpSchemaMalformed},
           {false, "lib::push(Tensor x, (Tensor y) -> Tensor", diag::OpSchemaMalformed}}) {
    Builder k = with(overlap, schema);
    s = functionalize(k.m);
    ASSERT_FALSE(s) << schema;
    EXPECT_EQ(s.error().diagnostics()[0].kind, kind) << schema;
  }
}

TEST(Views, ReshapeStridesAsAten) {
  TensorType t;
  Expr n = Symbol::size("n");
  t.sizes = {n, 4, 6};
  t.strides = {24, 6, 1};
  EXPECT_TRUE(viewStrides(t, {n, 24}));
  EXPECT_EQ(viewStrides(t, {n * 4, 6})->front(), Expr(6));
  EXPECT_TRUE(viewStrides(t, {n, 2, 2, 6}));
  t.strides = {24, 1, 4};
  EXPECT_FALSE(viewStrides(t, {n, 24}));
  EXPECT_TRUE(viewStrides(t, {n, 2, 2, 6}));
}
