// Operators that the caller brings, called by plans made by hand: what they are given, what they may do wrong, and plans
// that call them wrongly. Expected values are worked out by hand.
#include "test/fake_cuda.h"
#include "test/harness.h"

using namespace neso_test;
using B = PackageBuilder;

namespace {

// A model with the operators `ops`, and one context of it.
struct WithOps {
  std::string bytes;
  std::vector<neso_op> ops;
  std::vector<neso_object> objects;
  neso_model *model = nullptr;
  neso_context *context = nullptr;
  neso_status status = NESO_OK;
  WithOps(B b, std::vector<neso_op> given, neso_context_options c = {}, std::vector<neso_object> brought = {})
      : bytes(b.package()), ops(std::move(given)), objects(std::move(brought)) {
    neso_model_options o = modelOptions();
    o.ops = ops.data(), o.op_count = ops.size();
    o.objects = objects.data(), o.object_count = objects.size();
    status = neso_model_load_memory(bytes.data(), bytes.size(), &o, &model);
    if (status != NESO_OK) return;
    c.struct_size = sizeof c;
    status = neso_context_create(model, &c, &context);
  }
  WithOps(const WithOps &) = delete;
  ~WithOps() {
    neso_context_free(context);
    neso_model_free(model);
  }
  neso_status run(const std::vector<neso_tensor> &in, std::vector<neso_tensor> &out) {
    return neso_run(context, in.data(), in.size(), out.data(), out.size());
  }
};

// What the calls of `scale` below saw.
struct Seen {
  int calls = 0;
  int64_t n = 0, list[2] = {0, 0}, none = 0;
  double factor = 0;
  std::string word;
  neso_device_kind device = NESO_CPU;
  void *stream = nullptr;
};

const neso_op_argument *argument(const neso_op_call *call, const char *name) {
  for (int32_t i = 0; i < call->argument_count; ++i)
    if (std::string(call->arguments[i].name) == name) return &call->arguments[i];
  return nullptr;
}

neso_status scale(void *user, const neso_op_call *call) {
  Seen &seen = *static_cast<Seen *>(user);
  const neso_op_argument *x = argument(call, "x"), *n = argument(call, "n"), *f = argument(call, "factor"), *word = argument(call, "word"),
                         *list = argument(call, "list"), *none = argument(call, "none");
  if (call->struct_size < sizeof *call || !x || !n || !f || !word || !list || !none) return call->fail(call, "an argument is missing");
  ++seen.calls;
  seen.n = n->ints[0], seen.factor = f->floats[0], seen.word = word->texts[0], seen.device = call->device, seen.stream = call->stream;
  seen.list[0] = list->ints[0], seen.list[1] = list->ints[1], seen.none = none->count;
  const neso_tensor &in = call->inputs[x->ints[0]], &out = call->outputs[0];
  if (in.rank != 1 || out.rank != 1 || in.sizes[0] != out.sizes[0]) return call->fail(call, "another shape was expected");
  const bool device = call->device == NESO_CUDA;
  const float *from = device ? fake_cuda::host<float>(in.data) : static_cast<const float *>(in.data);
  float *to = device ? fake_cuda::host<float>(out.data) : static_cast<float *>(out.data);
  for (int64_t i = 0; i < in.sizes[0]; ++i) {
    const float v = from[i * in.strides[0]];
    if (v < 0) return call->fail(call, "a negative number");
    to[i * out.strides[0]] = v * float(seen.factor);
  }
  return NESO_OK;
}

// out[s0] = test::scale(every second of x[2 s0]) * 2
B callThenDouble(const std::vector<std::string> &gpuArchs = {}) {
  B b;
  b.gpu(gpuArchs);
  const int32_t n = B::kVariables, bytes = n + 1, twice = n + 2, inBytes = n + 3;
  b.symbols.push_back(fbs::CreateSymbol(b.fb, b.fb.CreateString("s0"), twice, 2, 100, 8));
  b.input("x", {B::dynamic(twice, 2, 100)});
  b.size(fbs::SizeOp::FloorDiv, n, twice, b.constant(2));
  b.size(fbs::SizeOp::Mul, bytes, n, b.constant(4));
  b.size(fbs::SizeOp::Mul, inBytes, twice, b.constant(4));
  const int32_t x = b.buffer(fbs::Location::Input, 0, inBytes), y = b.buffer(fbs::Location::Output, 0, bytes);
  b.output("y", y, {n});
  auto &fb = b.fb;
  const std::vector<int32_t> size{n};
  auto in = fbs::CreateOpTensor(fb, x, fbs::DType::F32, fb.CreateVector(size), fb.CreateVector(b.slots({2})));
  auto out = fbs::CreateOpTensor(fb, y, fbs::DType::F32, fb.CreateVector(size), fb.CreateVector(b.slots({1})));
  using K = fbs::OpArgumentKind;
  auto ints = [&](const char *name, K kind, const std::vector<int32_t> &v) {
    return fbs::CreateOpArgument(fb, fb.CreateString(name), kind, fb.CreateVector(v));
  };
  std::vector<flatbuffers::Offset<fbs::OpArgument>> arguments{
      ints("x", K::Tensor, {0}), ints("n", K::Int, {n}), ints("list", K::Ints, b.slots({5, 7})), ints("none", K::None, {}),
      fbs::CreateOpArgument(fb, fb.CreateString("factor"), K::Float, 0, fb.CreateVector(std::vector<double>{1.5})),
      fbs::CreateOpArgument(fb, fb.CreateString("word"), K::Text, 0, 0, fb.CreateVector(std::vector{fb.CreateString("three")}))};
  auto line = fbs::CreateSourceLine(fb, fb.CreateString("model.py"), 12, fb.CreateString("forward"), fb.CreateString("layer"));
  b.step(fbs::Step::CallExtern, fbs::CreateCallExtern(fb, fb.CreateString("test::scale"), fb.CreateString("scale"), fb.CreateVector(std::vector{in}),
                                                      fb.CreateVector(std::vector{out}), fb.CreateVector(arguments), fb.CreateVector(std::vector{line})));
  b.launch(b.kernel("test_double", 1), {B::arg(y)}, n);
  return b;
}

neso_op op(Seen &seen, neso_device_kind device = NESO_CPU) { return {"test::scale", scale, &seen, device}; }

} // namespace

TEST(Extern, IsGivenTensorsNumbersAndWords) {
  Seen seen;
  WithOps m(callThenDouble(), {{"test::other", scale, nullptr, NESO_CPU}, op(seen)});
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  std::vector<neso_tensor> out(1);
  for (int64_t n : {3, 2, 10}) {
    std::vector<float> values;
    for (int64_t i = 0; i < 2 * n; ++i) values.push_back(float(i));
    Tensor x({2 * n}, values);
    ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    ASSERT_EQ(out[0].sizes[0], n);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(floats(out[0], size_t(n))[size_t(i)], float(2 * i) * 1.5f * 2);
    EXPECT_EQ(seen.n, n);
  }
  EXPECT_EQ(seen.calls, 3);
  EXPECT_EQ(seen.factor, 1.5);
  EXPECT_EQ(seen.word, "three");
  EXPECT_EQ(seen.list[0], 5);
  EXPECT_EQ(seen.list[1], 7);
  EXPECT_EQ(seen.none, 0);
  EXPECT_EQ(seen.stream, nullptr);
}

TEST(Extern, WhatFailsIsNamedAndTheModelStaysUsable) {
  Seen seen;
  WithOps m(callThenDouble(), {op(seen)});
  std::vector<neso_tensor> out(1);
  Tensor bad({4}, {1, 2, -3, 4}), good({4}, {1, 2, 3, 4});
  for (int i = 0; i < 2; ++i) {
    EXPECT_STATUS(m.run({bad.t}, out), NESO_OP_FAILED, "operator 'test::scale' failed: a negative number; it is called at model.py:12");
    ASSERT_EQ(m.run({good.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(floats(out[0], 2), (std::vector<float>{3, 9}));
  }
  // One that gives no reason, and one whose status means something else.
  for (neso_status status : {NESO_OP_FAILED, NESO_OUT_OF_MEMORY}) {
    WithOps silent(callThenDouble(), {{"test::scale", [](void *user, const neso_op_call *) { return *static_cast<neso_status *>(user); }, &status, NESO_CPU}});
    EXPECT_STATUS(silent.run({good.t}, out), NESO_OP_FAILED, "operator 'test::scale' failed; it is called at");
  }
}

TEST(Extern, WhatIsMissingIsNamedBeforeAnyRun) {
  Seen seen;
  EXPECT_EQ(WithOps(callThenDouble(), {}).status, NESO_OP_MISSING);
  // Not for this device, without a function, or of another name.
  for (const neso_op &other : {op(seen, NESO_CUDA), neso_op{"test::scale", nullptr, nullptr, NESO_CPU}, neso_op{"test::scal", scale, &seen, NESO_CPU},
                               neso_op{nullptr, scale, &seen, NESO_CPU}})
    EXPECT_STATUS(WithOps(callThenDouble(), {other}).status, NESO_OP_MISSING, "operators that are not given for cpu: test::scale;");
  EXPECT_EQ(seen.calls, 0);
}

TEST(Extern, OneRowMayStandForAllOperatorsAndIsToldWhichCallItIs) {
  struct Told {
    std::vector<std::string> names;
    std::vector<int32_t> calls, results;
    std::vector<std::pair<int32_t, int32_t>> asked;
    std::vector<void *> users;
  } told;
  auto record = [](void *user, const neso_op_call *call) {
    Told &t = *static_cast<Told *>(user);
    t.names.push_back(call->name), t.calls.push_back(call->call), t.results.push_back(call->result_count), t.users.push_back(call->op_user);
    for (int32_t i = 0; i < call->asked_count; ++i) t.asked.emplace_back(call->asked[i].result, call->asked[i].dim);
    static_cast<float *>(call->outputs[0].data)[0] = float(t.names.size());
    return NESO_OK;
  };
  B b;
  const int32_t bytes = b.constant(4);
  b.input("x", {b.fixed(1)});
  b.buffer(fbs::Location::Input, 0, bytes);
  const int32_t y = b.buffer(fbs::Location::Output, 0, bytes);
  b.output("y", y, b.slots({1}));
  const std::vector<fbs::OpSize> sizes{{1, 0}, {0, 3}};
  struct Row {
    const char *op;
    int32_t call, results;
    bool asks;
  };
  for (const Row &r : {Row{"test::a:sizes", 3, 2, true}, Row{"test::a", 3, 2, false}, Row{"test::b", -1, 0, false}, Row{"test::own", 7, 1, false}}) {
    auto out = fbs::CreateOpTensor(b.fb, y, fbs::DType::F32, b.fb.CreateVector(b.slots({1})), b.fb.CreateVector(b.slots({1})));
    auto outs = b.fb.CreateVector(std::vector{out});
    auto op = b.fb.CreateString(r.op);
    auto asked = r.asks ? b.fb.CreateVectorOfStructs(sizes) : flatbuffers::Offset<flatbuffers::Vector<const fbs::OpSize *>>();
    b.step(fbs::Step::CallExtern, fbs::CreateCallExtern(b.fb, op, 0, 0, outs, 0, 0, r.call, r.results, asked));
  }
  Told own;
  int mark = 0;
  neso_context_options o{};
  o.op_user = &mark;
  WithOps m(std::move(b), {{"*", record, nullptr, NESO_CUDA}, {"*", record, &told, NESO_CPU}, {"test::own", record, &own, NESO_CPU}}, o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Tensor x({1}, {1});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(told.names, (std::vector<std::string>{"test::a:sizes", "test::a", "test::b"}));
  EXPECT_EQ(told.calls, (std::vector<int32_t>{3, 3, -1}));
  EXPECT_EQ(told.results, (std::vector<int32_t>{2, 2, 0}));
  EXPECT_EQ(told.asked, (std::vector<std::pair<int32_t, int32_t>>{{1, 0}, {0, 3}}));
  EXPECT_EQ(told.users, (std::vector<void *>(3, &mark)));
  EXPECT_EQ(own.calls, (std::vector<int32_t>{7}));
}

TEST(Extern, OnAGpuTheyGetItsMemoryAndItsStream) {
  fake_cuda::reset();
  {
    neso_context_options o{};
    o.device = NESO_CUDA, o.cuda_driver = NESO_BINARY_DIR "/lib/libneso_fake_cuda.so";
    Seen seen;
    WithOps m(callThenDouble({"sm_90"}), {op(seen, NESO_CUDA)}, o);
    ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
    std::vector<neso_tensor> out(1);
    Tensor x({4}, {1, 2, 3, 4});
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
      EXPECT_EQ(floats(out[0], 2), (std::vector<float>{3, 9}));
    }
    // Never part of a graph, which would not call them again.
    EXPECT_EQ(seen.calls, 4);
    EXPECT_EQ(seen.device, NESO_CUDA);
    EXPECT_NE(seen.stream, nullptr);
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

// Rows that no compiler writes: refused when loading, or when the run would read what is not there.
TEST(Extern, ImpossibleRowsAreRefused) {
  using K = fbs::OpArgumentKind;
  struct Row {
    int32_t buffer, size, stride, offset, argument;
    K kind;
    const char *says;
    int32_t asked = 0; // of one result
  };
  for (const Row &row : {Row{7, 0, 0, -1, 0, K::Tensor, "names buffer 7"}, Row{-2, 0, 0, -1, 0, K::Tensor, "names buffer -2"},
                         Row{0, 64, 0, -1, 0, K::Tensor, "names slot 64"}, Row{0, 0, -1, -1, 0, K::Tensor, "names slot -1"},
                         Row{0, 0, 0, 64, 0, K::Tensor, "an impossible tensor"}, Row{0, 0, 0, -1, 1, K::Tensor, "names input 1"},
                         Row{0, 0, 0, -1, -2, K::Tensor, "names input -2"}, Row{0, 0, 0, -1, 64, K::Int, "names slot 64"},
                         Row{0, 0, 0, -1, 0, K(99), "an argument of an unknown kind"}, Row{0, 0, 0, -1, 0, K::Tensor, "a result that there is not", 1}}) {
    B b;
    const int32_t bytes = b.constant(16);
    b.input("x", {b.fixed(4)});
    const int32_t x = b.buffer(fbs::Location::Input, 0, bytes), y = b.buffer(fbs::Location::Output, 0, bytes);
    b.output("y", y, b.slots({4}));
    auto tensor = [&](int32_t buffer, int32_t size, int32_t stride, int32_t offset) {
      return fbs::CreateOpTensor(b.fb, buffer, fbs::DType::F32, b.fb.CreateVector(std::vector{size}), b.fb.CreateVector(std::vector{stride}), offset);
    };
    auto in = tensor(row.buffer, row.size, row.stride, row.offset), out = tensor(y, b.constant(4), b.constant(1), -1);
    auto argument = fbs::CreateOpArgument(b.fb, b.fb.CreateString("x"), row.kind, b.fb.CreateVector(std::vector{row.argument}));
    b.step(fbs::Step::CallExtern, fbs::CreateCallExtern(b.fb, b.fb.CreateString("test::scale"), 0, b.fb.CreateVector(std::vector{in}), b.fb.CreateVector(std::vector{out}),
                                                        b.fb.CreateVector(std::vector{argument}), 0, 0, 1, b.fb.CreateVectorOfStructs(std::vector{fbs::OpSize(row.asked, 0)})));
    (void)x;
    EXPECT_STATUS(WithOps(std::move(b), {}).status, NESO_PACKAGE_MALFORMED, row.says);
  }
}

namespace {
// An object of a class of the caller's: it says which of its calls a call is.
class Tally {
public:
  explicit Tally(std::string name) : name_(std::move(name)) {}
  void next(std::vector<std::string> &log) { log.push_back(name_ + std::to_string(++calls_)); }

private:
  std::string name_;
  int calls_ = 0;
};
const char kClass[] = "__torch__.torch.classes.test.Tally";

// y[1] = both(a, b), then next(b), next(a), next(b), which return nothing.
B callsOfObjects() {
  B b;
  const int32_t bytes = b.constant(4);
  b.input("x", {b.fixed(1)});
  b.buffer(fbs::Location::Input, 0, bytes);
  const int32_t y = b.buffer(fbs::Location::Output, 0, bytes);
  b.output("y", y, b.slots({1}));
  auto &fb = b.fb;
  auto object = [&](const char *argument, const char *name) {
    return fbs::CreateOpArgument(fb, fb.CreateString(argument), fbs::OpArgumentKind::Object, 0, 0, fb.CreateVector(std::vector{fb.CreateString(name), fb.CreateString(kClass)}));
  };
  auto number = fbs::CreateOpArgument(fb, fb.CreateString("n"), fbs::OpArgumentKind::Int, fb.CreateVector(b.slots({5})));
  auto out = fbs::CreateOpTensor(fb, y, fbs::DType::F32, fb.CreateVector(b.slots({1})), fb.CreateVector(b.slots({1})));
  b.step(fbs::Step::CallExtern, fbs::CreateCallExtern(fb, fb.CreateString("test::both"), 0, 0, fb.CreateVector(std::vector{out}),
                                                      fb.CreateVector(std::vector{object("first", "layer.a"), number, object("second", "b")})));
  for (const char *name : {"b", "layer.a", "b"})
    b.step(fbs::Step::CallExtern, fbs::CreateCallExtern(fb, fb.CreateString(std::string(kClass) + "::next"), 0, 0, 0, fb.CreateVector(std::vector{object("self", name)})));
  return b;
}

Tally *objectOf(const neso_op_call *call, const char *name) {
  const neso_op_argument *a = argument(call, name);
  const bool is = a && a->kind == NESO_OP_OBJECT && a->count == 1 && a->ints[0] >= 0 && a->ints[0] < call->object_count && std::string(a->texts[0]) == kClass;
  return is ? static_cast<Tally *>(call->objects[a->ints[0]].object) : nullptr;
}
neso_status both(void *log, const neso_op_call *call) {
  Tally *first = objectOf(call, "first"), *second = objectOf(call, "second");
  if (!first || !second || call->object_count != 2 || argument(call, "n")->ints[0] != 5) return call->fail(call, "an object is missing");
  auto &told = *static_cast<std::vector<std::string> *>(log);
  first->next(told), second->next(told);
  static_cast<float *>(call->outputs[0].data)[0] = 7;
  return NESO_OK;
}
neso_status next(void *log, const neso_op_call *call) {
  Tally *self = objectOf(call, "self");
  if (!self) return call->fail(call, "an object is missing");
  return self->next(*static_cast<std::vector<std::string> *>(log)), NESO_OK;
}
} // namespace

TEST(Extern, ObjectsAreGivenToTheirCallsInOrder) {
  std::vector<std::string> log;
  Tally a("a"), b("b"), other("other");
  const std::string method = std::string(kClass) + "::next";
  WithOps m(callsOfObjects(), {{"test::both", both, &log, NESO_CPU}, {method.c_str(), next, &log, NESO_CPU}}, {}, {{"other", &other}, {"b", &b}, {"layer.a", &a}});
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  ASSERT_EQ(neso_model_object_count(m.model), 2);
  neso_object_info info{};
  for (const auto &[at, name] : {std::pair(0, "layer.a"), std::pair(1, "b")}) {
    ASSERT_EQ(neso_model_object(m.model, at, &info), NESO_OK);
    EXPECT_STREQ(info.name, name);
    EXPECT_STREQ(info.class_name, kClass);
  }
  for (int32_t outside : {-1, 2}) EXPECT_NE(neso_model_object(m.model, outside, &info), NESO_OK);
  Tensor x({1}, {1});
  std::vector<neso_tensor> out(1);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(log, (std::vector<std::string>{"a1", "b1", "b2", "a2", "b3", "a3", "b4", "b5", "a4", "b6"}));
}

TEST(Extern, ObjectsThatAreMissingAreNamedBeforeAnyRun) {
  std::vector<std::string> log;
  Tally a("a");
  const std::string method = std::string(kClass) + "::next";
  const std::vector<neso_op> ops{{"test::both", both, &log, NESO_CPU}, {method.c_str(), next, &log, NESO_CPU}};
  EXPECT_STATUS(WithOps(callsOfObjects(), ops).status, NESO_OBJECT_MISSING,
                "the model uses script objects that are not given: layer.a (__torch__.torch.classes.test.Tally), b (__torch__.torch.classes.test.Tally); give them");
  EXPECT_STATUS(WithOps(callsOfObjects(), ops, {}, {{"a", &a}, {nullptr, &a}, {"layer.a", &a}}).status, NESO_OBJECT_MISSING, "not given: b (__torch__");
  // Callers that were built before there were objects.
  const std::string bytes = callsOfObjects().package();
  neso_model_options old{};
  old.struct_size = offsetof(neso_model_options, objects);
  old.ops = ops.data(), old.op_count = ops.size();
  const neso_object unseen[] = {{"layer.a", &a}, {"b", &a}};
  old.objects = unseen, old.object_count = 2;
  neso_model *model = nullptr;
  ASSERT_EQ(neso_model_load_memory(bytes.data(), bytes.size(), &old, &model), NESO_OK) << neso_error_text();
  neso_context *context = nullptr;
  EXPECT_EQ(neso_context_create(model, nullptr, &context), NESO_OBJECT_MISSING);
  neso_model_set_objects(model, unseen, 2);
  EXPECT_EQ(neso_context_create(model, nullptr, &context), NESO_OK) << neso_error_text();
  neso_context_free(context);
  neso_model_free(model);
  EXPECT_TRUE(log.empty());
}

TEST(Extern, ObjectsWithoutANameAreRefused) {
  B b;
  const int32_t bytes = b.constant(4);
  b.input("x", {b.fixed(1)});
  b.buffer(fbs::Location::Input, 0, bytes);
  auto nameless = fbs::CreateOpArgument(b.fb, b.fb.CreateString("self"), fbs::OpArgumentKind::Object, 0, 0, b.fb.CreateVector(std::vector{b.fb.CreateString(kClass)}));
  b.step(fbs::Step::CallExtern, fbs::CreateCallExtern(b.fb, b.fb.CreateString("test::next"), 0, 0, 0, b.fb.CreateVector(std::vector{nameless})));
  EXPECT_STATUS(WithOps(std::move(b), {}).status, NESO_PACKAGE_MALFORMED, "has a script object without a name");
}
