// Runs of plans made by hand: sizes, layouts, checks, aliasing, mutation, control flow. Expected values are worked out
// by hand.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>

#include "test/harness.h"

using namespace neso_test;
using B = PackageBuilder;

TEST(Run, OnePackageServesEverySizeInRange) {
  Loaded m(addThenDouble().package());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  for (int64_t n : {2, 100, 3, 3}) {
    Tensor x({n}, std::vector<float>(size_t(n), 3));
    std::vector<neso_tensor> out(1);
    ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    ASSERT_EQ(out[0].rank, 1);
    EXPECT_EQ(out[0].sizes[0], n);
    EXPECT_EQ(floats(out[0], size_t(n)), std::vector<float>(size_t(n), 8));
  }
}

TEST(Run, SameOutputStructMayBePassedAgain) {
  Loaded m(addThenDouble().package());
  std::vector<neso_tensor> out(1);
  for (int64_t n : {4, 9, 5}) {
    Tensor x({n}, std::vector<float>(size_t(n), float(n)));
    ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(floats(out[0], size_t(n)), std::vector<float>(size_t(n), float(2 * n + 2)));
  }
}

TEST(Run, WritesIntoTheCallersBuffersWhateverTheirStrides) {
  Loaded m(addThenDouble().package());
  Tensor x({3}, {1, 2, 3});
  alignas(64) float dense[3];
  int64_t sizes[] = {3}, stride[] = {2};
  float spread[6] = {9, 9, 9, 9, 9, 9};
  std::vector<neso_tensor> out{{dense, sizes, nullptr, 1, NESO_F32, NESO_CPU, 0}};
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(std::vector<float>(dense, dense + 3), (std::vector<float>{4, 6, 8}));
  out[0] = {spread, sizes, stride, 1, NESO_F32, NESO_CPU, 0};
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(std::vector<float>(spread, spread + 6), (std::vector<float>{4, 9, 6, 9, 8, 9}));
}

namespace {
// Memory that the caller brings when the run asks for it.
struct Brought {
  alignas(64) float memory[8] = {};
  int asked = 0;
  bool refuse = false, leave = false;
  int64_t size = 0;
};
int bring(void *user, int32_t index, neso_tensor *out) {
  auto *b = static_cast<Brought *>(user);
  ++b->asked;
  b->size = out->rank == 1 && index == 0 && out->dtype == NESO_F32 && out->strides[0] == 1 ? out->sizes[0] : -1;
  if (!b->leave) out->data = b->memory;
  return b->refuse;
}
} // namespace

TEST(Run, AsksTheCallerForMemoryOnceSizesAreKnown) {
  Brought brought;
  neso_context_options options{};
  options.struct_size = sizeof options;
  options.output = bring;
  options.output_user = &brought;
  Loaded m(addThenDouble().package(), 1, &options);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Tensor x({3}, {1, 2, 3}), longer({4}, {1, 2, 3, 4});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(brought.size, 3);
  EXPECT_EQ(out[0].data, brought.memory);
  EXPECT_EQ(floats(out[0], 3), (std::vector<float>{4, 6, 8}));
  out[0] = {};
  ASSERT_EQ(m.run({longer.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(brought.size, 4);
  EXPECT_EQ(floats(out[0], 4), (std::vector<float>{4, 6, 8, 10}));
  // Who has memory already is not asked, who brings none gets the context's, and who refuses ends the run.
  alignas(64) float dense[3];
  int64_t sizes[] = {3};
  out[0] = {dense, sizes, nullptr, 1, NESO_F32, NESO_CPU, 0};
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(brought.asked, 2);
  out[0] = {};
  brought.leave = true;
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_NE(out[0].data, brought.memory);
  EXPECT_EQ(floats(out[0], 3), (std::vector<float>{4, 6, 8}));
  brought.refuse = true;
  EXPECT_STATUS(m.run({x.t}, out), NESO_OUT_OF_MEMORY, "no memory for output 0");
}

TEST(Run, AcceptsInputsOfAnyStridesAndAlignment) {
  Loaded m(addThenDouble().package());
  std::vector<neso_tensor> out(1);
  Tensor x({3}, {2}, {1, 0, 2, 0, 3});
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(floats(out[0], 3), (std::vector<float>{4, 6, 8}));
  Tensor all_equal({3}, {0}, {5});
  ASSERT_EQ(m.run({all_equal.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(floats(out[0], 3), (std::vector<float>{12, 12, 12}));
  Tensor backwards({3}, {-1}, {1, 2, 3});
  backwards.t.data = backwards.data.data() + 2;
  ASSERT_EQ(m.run({backwards.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(floats(out[0], 3), (std::vector<float>{8, 6, 4}));
}

TEST(Run, RefusesWrongInputsByNameAndStaysUsable) {
  Loaded m(addThenDouble().package());
  std::vector<neso_tensor> out(1), none;
  Tensor x({3}, {1, 2, 3});
  EXPECT_STATUS(m.run({}, out), NESO_INPUT_COUNT, "0 inputs were given, the model takes 1");
  EXPECT_STATUS(m.run({x.t}, none), NESO_INPUT_COUNT, "room for 0 outputs");
  neso_tensor bad = x.t;
  bad.dtype = NESO_F64;
  EXPECT_STATUS(m.run({bad}, out), NESO_INPUT_DTYPE, "input 0 ('x') has dtype f64, the model takes f32");
  bad = x.t;
  bad.rank = 0;
  EXPECT_STATUS(m.run({bad}, out), NESO_INPUT_RANK, "has 0 dimensions, the model takes 1");
  bad = x.t;
  bad.data = nullptr;
  EXPECT_STATUS(m.run({bad}, out), NESO_INPUT_MISSING, "input 0 ('x') is missing");
  bad = x.t;
  bad.device = NESO_CUDA;
  EXPECT_STATUS(m.run({bad}, out), NESO_INPUT_DEVICE, "lies on device cuda:0, the model runs on cpu");
  Tensor small({1}, {1}), negative({3}, {1, 2, 3});
  EXPECT_STATUS(m.run({small.t}, out), NESO_INPUT_RANGE, "size 1 in dimension 0, outside the exported range [2, 100]");
  negative.sizes[0] = -3;
  EXPECT_STATUS(m.run({negative.t}, out), NESO_INPUT_DIM, "-3");
  float two[2];
  int64_t sizes[] = {2};
  std::vector<neso_tensor> shorter{{two, sizes, nullptr, 1, NESO_F32, NESO_CPU, 0}};
  EXPECT_STATUS(m.run({x.t}, shorter), NESO_OUTPUT_MISMATCH, "has size 3 in dimension 0; the buffer given has 2");
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(floats(out[0], 3), (std::vector<float>{4, 6, 8}));
}

// x [s0], y [2 * s0]: y's size is checked against the prologue's result.
TEST(Run, ChecksSizesThatDependOnOthers) {
  B b;
  int32_t n = B::kVariables, twice = n + 1;
  b.size(fbs::SizeOp::Mul, twice, n, b.constant(2));
  b.input("x", {B::dynamic(n)});
  b.input("y", {fbs::InputDim(-1, twice, 0, INT64_MAX)});
  Loaded m(b.package());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  EXPECT_EQ(neso_model_find_input(m.model, "y"), 1);
  EXPECT_EQ(neso_model_find_input(m.model, "z"), -1);
  EXPECT_EQ(neso_model_find_output(m.model, nullptr), -1);
  Tensor x({2}, {1, 2}), y({4}, {1, 2, 3, 4}), wrong({3}, {1, 2, 3});
  std::vector<neso_tensor> out;
  EXPECT_EQ(m.run({x.t, y.t}, out), NESO_OK) << neso_error_text();
  EXPECT_STATUS(m.run({x.t, wrong.t}, out), NESO_INPUT_DIM,
                "input 1 ('y') has size 3 in dimension 0, given the sizes of the other inputs it must be 4");
  EXPECT_EQ(m.run({x.t, y.t}, out), NESO_OK) << neso_error_text();
}

TEST(Run, GuardsNameTheSizes) {
  B b;
  int32_t n = B::kVariables, rest = n + 1, ok = n + 2;
  b.size(fbs::SizeOp::Mod, rest, n, b.constant(4));
  b.size(fbs::SizeOp::Eq, ok, rest, b.constant(0));
  b.input("x", {B::dynamic(n)});
  b.guards.push_back(fbs::CreateGuard(b.fb, ok, b.fb.CreateString("size of x ({32}) must be a multiple of 4")));
  Loaded m(b.package());
  Tensor x({6}, std::vector<float>(6)), good({8}, std::vector<float>(8));
  std::vector<neso_tensor> out;
  EXPECT_STATUS(m.run({x.t}, out), NESO_GUARD_FAILED, "size of x (6) must be a multiple of 4");
  EXPECT_EQ(m.run({good.t}, out), NESO_OK);
}

TEST(Run, ZeroSizesLaunchNothing) {
  B b;
  int32_t n = B::kVariables, bytes = n + 1;
  b.size(fbs::SizeOp::Mul, bytes, n, b.constant(4));
  b.input("x", {B::dynamic(n)}, fbs::DType::F32, true);
  int32_t x = b.buffer(fbs::Location::Input, 0, bytes), y = b.buffer(fbs::Location::Output, 0, bytes);
  b.output("y", y, {n});
  b.launch(b.kernel("test_add", 3), {B::arg(x), B::arg(x), B::arg(y)}, n);
  Loaded m(b.package());
  Tensor empty({0}, {});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({empty.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(out[0].sizes[0], 0);
  EXPECT_NE(out[0].data, nullptr);
}

TEST(Run, ScalarsInAndOut) {
  B b;
  int32_t k = B::kVariables, f = k + 1, flag = k + 2;
  b.scalarInput("k", fbs::InputKind::Int, B::dynamic(k, 0, 10));
  b.scalarInput("f", fbs::InputKind::Float, B::dynamic(f));
  b.scalarInput("flag", fbs::InputKind::Bool, B::dynamic(flag, 0, 1));
  b.scalarInput("fixed", fbs::InputKind::Int, fbs::InputDim(k + 3, b.constant(7), INT64_MIN, INT64_MAX), true);
  b.inputs.push_back(fbs::CreateInput(b.fb, b.fb.CreateString("nothing"), fbs::InputKind::None));
  b.scalarOutput(fbs::OutputKind::Int, k);
  b.scalarOutput(fbs::OutputKind::Float, f);
  b.scalarOutput(fbs::OutputKind::Bool, flag);
  b.scalarOutput(fbs::OutputKind::None, -1);
  Loaded m(b.package());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  int64_t kv = 5, seven = 7, eight = 8, eleven = 11;
  double fv = 1.25;
  uint8_t bv = 1;
  auto scalar = [](void *p, neso_dtype t) { return neso_tensor{p, nullptr, nullptr, 0, t, NESO_CPU, 0}; };
  std::vector<neso_tensor> in{scalar(&kv, NESO_I64), scalar(&fv, NESO_F64), scalar(&bv, NESO_BOOL),
                              scalar(&seven, NESO_I64), neso_tensor{}},
      out(4);
  ASSERT_EQ(m.run(in, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(*static_cast<int64_t *>(out[0].data), 5);
  EXPECT_EQ(*static_cast<double *>(out[1].data), 1.25);
  EXPECT_EQ(*static_cast<uint8_t *>(out[2].data), 1);
  EXPECT_EQ(out[1].dtype, NESO_F64);
  EXPECT_EQ(out[3].data, nullptr);
  in[3].data = nullptr;
  EXPECT_EQ(m.run(in, out), NESO_OK) << neso_error_text();
  in[3] = scalar(&eight, NESO_I64);
  EXPECT_STATUS(m.run(in, out), NESO_INPUT_RANGE, "input 3 ('fixed') is 8, the model was exported for 7");
  in[3].data = nullptr;
  in[0] = scalar(&eleven, NESO_I64);
  EXPECT_STATUS(m.run(in, out), NESO_INPUT_RANGE, "input 0 ('k') is 11, outside its range [0, 10]");
}

// The model doubles its input and its buffer in place and returns both, and the same tensor once more as a view.
TEST(Run, MutatesInputsAndBuffersAndReturnsViews) {
  B b;
  std::vector<float> state{1, 2, 3, 4};
  int32_t bytes = b.constant(16), four = b.constant(4), two = b.constant(2);
  b.input("x", {b.fixed(4)}, fbs::DType::F32, true);
  b.weight("state", {4}, std::string(reinterpret_cast<char *>(state.data()), 16), true, fbs::ConstantKind::Buffer);
  int32_t x = b.buffer(fbs::Location::Input, 0, bytes), s = b.buffer(fbs::Location::Constant, 0, bytes);
  std::vector<int32_t> strides{b.constant(1), two};
  b.output("x_out", x, {four});
  b.output("x_view", x, {two, two}, &strides);
  b.output("state_half", s, {two}, nullptr, two);
  int32_t k = b.kernel("test_double", 1);
  b.launch(k, {B::arg(x)}, four);
  b.launch(k, {B::arg(s)}, four);
  Loaded m(b.package());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Tensor data({4}, {1, 2, 3, 4});
  std::vector<neso_tensor> out(3);
  ASSERT_EQ(m.run({data.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(data.data, (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(out[0].data, data.data.data());
  EXPECT_EQ(out[1].data, data.data.data());
  EXPECT_EQ(out[1].strides[1], 2);
  EXPECT_EQ(floats(out[2], 2), (std::vector<float>{6, 8}));
  // State is kept between runs; another layout is copied in and back.
  Tensor spread({4}, {2}, {1, 9, 2, 9, 3, 9, 4, 9});
  ASSERT_EQ(m.run({spread.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(spread.data, (std::vector<float>{2, 9, 4, 9, 6, 9, 8, 9}));
  EXPECT_EQ(floats(out[2], 2), (std::vector<float>{12, 16}));
  neso_tensor buffer;
  ASSERT_EQ(neso_context_buffer(m.context, "state", &buffer), NESO_OK);
  EXPECT_EQ(floats(buffer, 4), (std::vector<float>{4, 8, 12, 16}));
  neso_context_reset_buffers(m.context);
  EXPECT_EQ(floats(buffer, 4), state);
  EXPECT_STATUS(neso_context_buffer(m.context, "other", &buffer), NESO_NO_SUCH_NAME, "mutates no buffer 'other'");
}

TEST(Run, KernelsReportAssertionsIndicesAndPrints) {
  B b;
  int32_t which = B::kVariables;
  b.scalarInput("which", fbs::InputKind::Int, B::dynamic(which));
  b.launch(b.kernel("test_report", 1), {B::slotArg(which)}, b.constant(4));
  std::string printed;
  neso_context_options o{};
  o.on_print = [](void *user, const char *line) { *static_cast<std::string *>(user) += std::string(line) + "\n"; };
  o.on_print_user = &printed;
  Loaded m(b.package(), 1, &o);
  std::vector<neso_tensor> out;
  auto run = [&](int64_t v) { return m.run({{&v, nullptr, nullptr, 0, NESO_I64, NESO_CPU, 0}}, out); };
  EXPECT_STATUS(run(0), NESO_ASSERTION_FAILED,
                "assertion failed in kernel 'test_report', program 3, line 12: x must be positive");
  EXPECT_STATUS(run(1), NESO_INDEX_OUT_OF_RANGE, "index 7 is out of range for a dimension of size 4");
  printed.clear();
  EXPECT_EQ(run(2), NESO_OK);
  EXPECT_EQ(printed, "pid (1, 0, 0) idx (0) x: 2.500000\n");
}

// if flag: x doubled, else: untouched. Then three more doublings in a loop over a counter kept in memory.
TEST(Run, BranchesAndLoops) {
  B b;
  int32_t flag = B::kVariables, i = flag + 1, more = flag + 2, bytes = b.constant(16), four = b.constant(4);
  b.subplans.resize(5);
  b.scalarInput("flag", fbs::InputKind::Bool, B::dynamic(flag, 0, 1));
  b.input("x", {b.fixed(4)}, fbs::DType::F32, true);
  int32_t x = b.buffer(fbs::Location::Input, 1, bytes);
  b.size(fbs::SizeOp::Mul, i, b.constant(0), i);   // prologue
  b.size(fbs::SizeOp::Lt, more, i, b.constant(3)); // condition
  b.size(fbs::SizeOp::Add, i, i, b.constant(1));   // body
  b.prologueEnd = 1;
  int32_t k = b.kernel("test_double", 1);
  b.step(fbs::Step::If, fbs::CreateIf(b.fb, flag, 1, 2));
  b.step(fbs::Step::While, fbs::CreateWhile(b.fb, 3, more, 4));
  b.launch(k, {B::arg(x)}, four, 1);
  fbs::SizeRange condition(1, 2), body(2, 3);
  b.step(fbs::Step::EvalSizes, fbs::CreateEvalSizes(b.fb, &condition), 3);
  b.launch(k, {B::arg(x)}, four, 4);
  b.step(fbs::Step::EvalSizes, fbs::CreateEvalSizes(b.fb, &body), 4);
  Loaded m(b.package());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  std::vector<neso_tensor> out;
  for (uint8_t f : {0, 1, 0}) {
    Tensor data({4}, {1, 1, 1, 1});
    ASSERT_EQ(m.run({{&f, nullptr, nullptr, 0, NESO_BOOL, NESO_CPU, 0}, data.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(data.data, std::vector<float>(4, f ? 16 : 8));
  }
}

// The size of the output is counted by a kernel: arena and output are sized while the plan runs.
TEST(Run, SizesThatAreKnownOnlyLater) {
  B b;
  int32_t u = B::kVariables, bytes = u + 1, count_bytes = b.constant(8), four = b.constant(4), x_bytes = b.constant(16);
  b.input("x", {b.fixed(4)});
  b.input("ones", {b.fixed(4)});
  b.arenas.push_back(fbs::CreateArena(b.fb, count_bytes));
  b.arenas.push_back(fbs::CreateArena(b.fb, bytes, true));
  int32_t x = b.buffer(fbs::Location::Input, 0, x_bytes), counter = b.buffer(fbs::Location::Arena, 0, count_bytes);
  int32_t ones = b.buffer(fbs::Location::Input, 1, x_bytes);
  int32_t late = b.buffer(fbs::Location::Arena, 1, bytes), y = b.buffer(fbs::Location::Output, 0, bytes);
  b.output("y", y, {u}, nullptr, -1, fbs::DType::F32, true);
  b.scalarOutput(fbs::OutputKind::Int, u);
  b.size(fbs::SizeOp::Mul, bytes, u, four);
  b.prologueEnd = 0;
  b.launch(b.kernel("test_count", 3), {B::arg(x), B::arg(counter), fbs::Arg(fbs::ArgKind::I64, 0, -1, 4)},
           b.constant(1));
  b.step(fbs::Step::LoadScalar, fbs::CreateLoadScalar(b.fb, counter, -1, fbs::DType::I64, u));
  fbs::SizeRange all(0, 1);
  b.step(fbs::Step::EvalSizes, fbs::CreateEvalSizes(b.fb, &all));
  b.step(fbs::Step::GrowArena, fbs::CreateGrowArena(b.fb, 1));
  b.step(fbs::Step::AllocOutput, fbs::CreateAllocOutput(b.fb, 0));
  b.step(fbs::Step::Copy, fbs::CreateCopy(b.fb, late, ones, 4, b.fb.CreateVector(std::vector<int32_t>{u}),
                                          b.fb.CreateVector(b.slots({1})), b.fb.CreateVector(b.slots({1}))));
  b.launch(b.kernel("test_add", 3), {B::arg(late), B::arg(late), B::arg(y)}, u);
  Loaded m(b.package());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  std::vector<neso_tensor> out(2);
  for (std::vector<float> v : {std::vector<float>{1, 0, 1, 0}, {0, 0, 0, 0}, {1, 1, 1, 1}, {0, 0, 0, 1}}) {
    size_t n = size_t(v[0] + v[1] + v[2] + v[3]);
    Tensor data({4}, v), ones({4}, {1, 1, 1, 1});
    ASSERT_EQ(m.run({data.t, ones.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(out[0].sizes[0], int64_t(n));
    EXPECT_EQ(floats(out[0], n), std::vector<float>(n, 2));
    EXPECT_EQ(*static_cast<int64_t *>(out[1].data), int64_t(n));
  }
}

TEST(Run, CopyStepsWalkAnyStrides) {
  B b;
  int32_t bytes = b.constant(24);
  b.input("x", {b.fixed(2), b.fixed(3)});
  int32_t x = b.buffer(fbs::Location::Input, 0, bytes), y = b.buffer(fbs::Location::Output, 0, bytes);
  b.output("y", y, b.slots({3, 2}));
  b.step(fbs::Step::Copy, fbs::CreateCopy(b.fb, y, x, 4, b.fb.CreateVector(b.slots({3, 2})),
                                          b.fb.CreateVector(b.slots({2, 1})), b.fb.CreateVector(b.slots({1, 3}))));
  Loaded m(b.package());
  Tensor data({2, 3}, {1, 2, 3, 4, 5, 6});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({data.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(floats(out[0], 6), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST(Run, BuffersThatDoNotFitAreRefused) {
  B b;
  int32_t n = B::kVariables, bytes = n + 1;
  b.size(fbs::SizeOp::Mul, bytes, n, b.constant(8)); // twice what x has
  b.input("x", {B::dynamic(n)});
  b.buffer(fbs::Location::Input, 0, bytes);
  Loaded m(b.package());
  Tensor x({4}, {1, 2, 3, 4});
  std::vector<neso_tensor> out;
  EXPECT_STATUS(m.run({x.t}, out), NESO_SIZE_INVALID, "does not fit its memory");
}

TEST(Run, NothingIsAllocatedInSteadyState) {
  struct Counter {
    int calls = 0;
  } counter;
  neso_context_options o{};
  o.allocator_user = &counter;
  o.allocate = [](void *user, size_t bytes) {
    ++static_cast<Counter *>(user)->calls;
    return aligned_alloc(64, bytes);
  };
  o.release = [](void *, void *p, size_t) { free(p); };
  Loaded m(addThenDouble().package(), 1, &o);
  Tensor x({50}, std::vector<float>(50)), smaller({10}, std::vector<float>(10));
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK);
  int after_first = counter.calls;
  for (int i = 0; i < 10; ++i) ASSERT_EQ(m.run({i % 2 ? x.t : smaller.t}, out), NESO_OK);
  EXPECT_EQ(counter.calls, after_first);
}

TEST(Run, FailedAllocationsAreStatuses) {
  for (int allowed = 0; allowed < 2; ++allowed) {
    int left = allowed;
    neso_context_options o{};
    o.allocator_user = &left;
    o.allocate = [](void *user, size_t bytes) -> void * {
      return (*static_cast<int *>(user))-- > 0 ? aligned_alloc(64, bytes) : nullptr;
    };
    o.release = [](void *, void *p, size_t) { free(p); };
    Loaded m(addThenDouble().package(), 1, &o);
    ASSERT_EQ(m.status, NESO_OK);
    Tensor x({3}, {1, 2, 3});
    std::vector<neso_tensor> out(1);
    EXPECT_STATUS(m.run({x.t}, out), NESO_OUT_OF_MEMORY, "out of memory");
    left = 10;
    EXPECT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  }
}

TEST(Run, StepsCanBeWatchedAndCancelled) {
  std::vector<std::string> seen;
  neso_context_options o{};
  o.on_step_user = &seen;
  o.on_step = [](void *user, const neso_step_event *e) {
    auto *list = static_cast<std::vector<std::string> *>(user);
    list->push_back(std::string(e->after ? "after " : "before ") + e->what + " " + (e->kernel ? e->kernel : "") + " " +
                    std::to_string(e->grid[0]));
    return list->size() > 7 ? 1 : 0;
  };
  Loaded m(addThenDouble().package(), 1, &o);
  Tensor x({3}, {1, 2, 3});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK);
  EXPECT_EQ(seen, (std::vector<std::string>{"before launch test_add 3", "after launch test_add 3",
                                            "before launch test_double 3", "after launch test_double 3"}));
  EXPECT_STATUS(m.run({x.t}, out), NESO_CANCELLED, "the caller ended the run");
}

// One of several kernels for lengths of different classes, which this run's do not have: what it would write may not be there, and is not looked at.
TEST(Run, ALaunchWithoutProgramsIsNoStepToWatch) {
  std::vector<std::string> seen;
  neso_context_options o{};
  o.on_step_user = &seen;
  o.on_step = [](void *user, const neso_step_event *e) {
    if (e->after) static_cast<std::vector<std::string> *>(user)->push_back(e->kernel);
    return 0;
  };
  o.check_nan = 1;
  // Memory that nobody wrote is no number.
  o.allocate = [](void *, size_t size) -> void * {
    void *memory = aligned_alloc(64, (size + 63) / 64 * 64);
    if (memory) memset(memory, 0xff, size);
    return memory;
  };
  o.release = [](void *, void *memory, size_t) { free(memory); };
  B b;
  const int32_t n = b.constant(3), none = b.constant(0), bytes = b.constant(12);
  b.input("x", {b.fixed(3)});
  b.arenas.push_back(fbs::CreateArena(b.fb, b.constant(64)));
  const int32_t x = b.buffer(fbs::Location::Input, 0, bytes), y = b.buffer(fbs::Location::Output, 0, bytes);
  b.output("y", y, {n});
  b.launch(b.kernel("test_double", 1), {B::arg(y)}, none);
  b.launch(b.kernel("test_add", 3), {B::arg(x), B::arg(x), B::arg(y)}, n);
  Loaded m(b.package(), 1, &o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Tensor given({3}, {1, 2, 3});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({given.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(floats(out[0], 3), (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(seen, std::vector<std::string>{"test_add"});
}

// A loop whose condition is always true, with a body that does nothing.
B endlessLoop() {
  B b;
  b.subplans.resize(3);
  b.input("x", {b.fixed(4)});
  b.step(fbs::Step::While, fbs::CreateWhile(b.fb, 1, b.constant(1), 2));
  return b;
}

TEST(Run, LoopsEndAtTheLimitOfTheirTurns) {
  neso_context_options o{};
  o.turn_limit = 1000;
  Loaded m(endlessLoop().package(), 1, &o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Tensor x({4}, {1, 2, 3, 4});
  std::vector<neso_tensor> out;
  for (int i = 0; i < 2; ++i) EXPECT_STATUS(m.run({x.t}, out), NESO_TURN_LIMIT, "a loop would make more than the 1000 turns that turn_limit allows");
}

TEST(Run, AnotherThreadEndsARunThatTurnsForEver) {
  Loaded m(endlessLoop().package());
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Tensor x({4}, {1, 2, 3, 4});
  std::vector<neso_tensor> out;
  for (int i = 0; i < 2; ++i) {
    // Without a run under way nothing is cancelled, so it is said until it is heard.
    std::atomic<bool> ended{false};
    std::thread other([&] {
      while (!ended) neso_context_cancel(m.context), std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    EXPECT_STATUS(m.run({x.t}, out), NESO_CANCELLED, "the run was cancelled");
    ended = true;
    other.join();
  }
  neso_context_cancel(nullptr);
}

TEST(Run, WatchingBeginsAndEndsBetweenRuns) {
  int seen = 0;
  Loaded m(addThenDouble().package(), 1);
  Tensor x({3}, {1, 2, 3});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK);
  const auto count = [](void *user, const neso_step_event *) { return ++*static_cast<int *>(user), 0; };
  ASSERT_EQ(neso_context_watch(m.context, count, &seen), NESO_OK);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK);
  EXPECT_EQ(seen, 4);
  ASSERT_EQ(neso_context_watch(m.context, nullptr, nullptr), NESO_OK);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK);
  EXPECT_EQ(seen, 4);
  EXPECT_STATUS(neso_context_watch(nullptr, count, nullptr), NESO_INVALID_ARGUMENT, "needs a context");
}

namespace {
// What on_step was told of the tensors of each step behind it.
struct SeenSteps {
  neso_context *context = nullptr;
  std::vector<std::string> lines;
};
int seeStep(void *user, const neso_step_event *e) {
  auto *seen = static_cast<SeenSteps *>(user);
  if (!e->after) return 0;
  neso_step_argument a;
  for (int32_t i = 0; neso_context_step_argument(seen->context, i, &a) == NESO_OK; ++i) {
    std::string line = std::string(e->kernel) + (a.read ? " reads" : "") + (a.written ? " writes" : "");
    for (int64_t n = 0; n < a.tensor.sizes[0]; ++n) line += " " + std::to_string(int(static_cast<float *>(a.tensor.data)[n]));
    seen->lines.push_back(line);
  }
  return 0;
}
} // namespace

TEST(Run, TheTensorsOfAStepCanBeLookedAt) {
  SeenSteps seen;
  neso_context_options o{};
  o.on_step_user = &seen;
  o.on_step = seeStep;
  Loaded m(addThenDouble().package(), 1, &o);
  seen.context = m.context;
  Tensor x({3}, {1, 2, 3});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK);
  // A package that does not say what launches read and write.
  ASSERT_EQ(seen.lines.size(), 4u);
  EXPECT_EQ(seen.lines[0], "test_add reads writes 1 2 3");
  EXPECT_EQ(seen.lines[2], "test_add reads writes 2 3 4");
  EXPECT_EQ(seen.lines[3], "test_double reads writes 4 6 8");
  neso_step_argument a;
  EXPECT_STATUS(neso_context_step_argument(m.context, 0, &a), NESO_INVALID_ARGUMENT, "outside of on_step");
}

TEST(Run, TheFirstStepThatMakesANanIsNamed) {
  neso_context_options o{};
  o.check_nan = 1;
  Loaded m(addThenDouble().package(), 1, &o);
  Tensor x({3}, {1, 2, 3});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(floats(out[0], 3), (std::vector<float>{4, 6, 8}));
  x.data[1] = NAN;
  EXPECT_STATUS(m.run({x.t}, out), NESO_NAN_FOUND, "kernel 'test_add' made a NaN: element 1 of ");
  // The context is usable afterwards.
  x.data[1] = INFINITY;
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
}

TEST(Run, RangesSurroundStepsAndRuns) {
  std::string seen;
  neso_context_options o{};
  o.on_range_user = &seen;
  o.on_range = [](void *user, const char *name, int begin) { *static_cast<std::string *>(user) += (begin ? " <" : " >") + std::string(name); };
  Loaded m(addThenDouble().package(), 1, &o);
  Tensor x({3}, {1, 2, 3});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK);
  EXPECT_EQ(seen, " <run <test_add >test_add <test_double >test_double >run");
}

TEST(Run, KernelsOfAPackageAreLaunchedByName) {
  B b;
  b.kernelsOnly = true;
  b.kernel("test_add_scalar", 3, 64);
  Loaded m(b.package(), 2);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  std::vector<float> x(100, 1), y(100);
  union neso_arg args[3];
  args[0].ptr = x.data();
  args[1].ptr = y.data();
  args[2].i64 = 41;
  uint32_t grid[3] = {10, 10, 1};
  ASSERT_EQ(neso_kernel_launch(m.context, "test_add_scalar", grid, args, 3), NESO_OK) << neso_error_text();
  EXPECT_EQ(y, std::vector<float>(100, 42));
  EXPECT_STATUS(neso_kernel_launch(m.context, "other", grid, args, 3), NESO_NO_SUCH_NAME, "no kernel 'other'");
  EXPECT_STATUS(neso_kernel_launch(m.context, "test_add_scalar", grid, args, 2), NESO_KERNEL_ARGUMENTS,
                "has 3 arguments, 2 were given");
  std::vector<neso_tensor> out;
  EXPECT_STATUS(m.run({}, out), NESO_INVALID_ARGUMENT, "kernels only");
}

// One row of `programs` elements a program: grid (n // size, 1, 1), where n is argument 2 and the size a constant of the config.
static B::Grid dividedBy(int64_t size) {
  return {{size, 1}, 6, {{fbs::SizeOp::FloorDiv, 5, 4, 0, 0}}, {5, 1, 1}};
}

TEST(Run, KernelsHaveConfigsAndGrids) {
  B b;
  b.kernelsOnly = true;
  b.grid = dividedBy(2), b.kernel("test_add_scalar", 3, 64);
  b.grid = dividedBy(4), b.kernel("test_add_scalar", 3, 64, false, "test_add_scalar#1");
  b.kernel("test_add_scalar", 3, 64, false, "test_add_scalar2");
  Loaded m(b.package(), 1);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  EXPECT_EQ(neso_kernel_configs(m.model, "test_add_scalar"), 2);
  EXPECT_STREQ(neso_kernel_config(m.model, "test_add_scalar", 0), "test_add_scalar");
  EXPECT_STREQ(neso_kernel_config(m.model, "test_add_scalar", 1), "test_add_scalar#1");
  EXPECT_EQ(neso_kernel_config(m.model, "test_add_scalar", 2), nullptr);
  EXPECT_EQ(neso_kernel_config(m.model, "test_add_scalar", -1), nullptr);
  EXPECT_EQ(neso_kernel_configs(m.model, "test_add_scalar#1"), 1);
  EXPECT_EQ(neso_kernel_configs(m.model, "test_add_scalar2"), 1);
  EXPECT_EQ(neso_kernel_configs(m.model, "other"), 0);
  EXPECT_EQ(neso_kernel_configs(m.model, nullptr), 0);
  std::vector<float> x(100, 1), y(100);
  union neso_arg args[3];
  args[0].ptr = x.data(), args[1].ptr = y.data(), args[2].i64 = 41;
  uint32_t grid[3];
  ASSERT_EQ(neso_kernel_grid(m.model, "test_add_scalar", args, 3, grid), NESO_OK) << neso_error_text();
  EXPECT_EQ(grid[0], 20u);
  EXPECT_EQ(grid[1], 1u);
  EXPECT_EQ(grid[2], 1u);
  ASSERT_EQ(neso_kernel_grid(m.model, "test_add_scalar#1", args, 3, grid), NESO_OK) << neso_error_text();
  EXPECT_EQ(grid[0], 10u);
  // The first ten programs write their elements.
  ASSERT_EQ(neso_kernel_launch(m.context, "test_add_scalar#1", nullptr, args, 3), NESO_OK) << neso_error_text();
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], i < 10 ? 42.0f : 0.0f) << i;
  EXPECT_STATUS(neso_kernel_grid(m.model, "test_add_scalar2", args, 3, grid), NESO_KERNEL_GRID, "has no grid of kernel 'test_add_scalar2'");
  EXPECT_STATUS(neso_kernel_launch(m.context, "test_add_scalar2", nullptr, args, 3), NESO_KERNEL_GRID, "compile it with --grid");
  EXPECT_STATUS(neso_kernel_grid(m.model, "other", args, 3, grid), NESO_NO_SUCH_NAME, "no kernel 'other'");
  EXPECT_STATUS(neso_kernel_grid(m.model, "test_add_scalar", args, 2, grid), NESO_KERNEL_ARGUMENTS, "has 3 arguments, 2 were given");
  args[2].i64 = -1;
  EXPECT_STATUS(neso_kernel_grid(m.model, "test_add_scalar", args, 3, grid), NESO_KERNEL_GRID, "has -1 programs along axis 0");
}

TEST(Run, GridsThatContradictThemselvesAreRefused) {
  const auto load = [](B::Grid grid) {
    B b;
    b.kernelsOnly = true;
    b.grid = std::move(grid), b.kernel("test_add_scalar", 3, 64);
    return Loaded(b.package(), 1).status;
  };
  EXPECT_EQ(load(dividedBy(2)), NESO_OK);
  B::Grid axis = dividedBy(2), few = dividedBy(2), far = dividedBy(2), writes = dividedBy(2), many = dividedBy(2), zero = dividedBy(0);
  axis.axes[2] = 6, few.slots = 4, many.slots = 1 << 20;
  far.program = {{fbs::SizeOp::Add, 5, 6, 0, 0}}, writes.program = {{fbs::SizeOp::Add, 0, 4, 4, 0}};
  for (const B::Grid &wrong : {axis, few, far, writes, many}) EXPECT_EQ(load(wrong), NESO_PACKAGE_MALFORMED);
  B b;
  b.kernelsOnly = true;
  b.grid = zero, b.kernel("test_add_scalar", 3, 64);
  Loaded m(b.package(), 1);
  union neso_arg args[3] = {};
  uint32_t grid[3];
  EXPECT_STATUS(neso_kernel_grid(m.model, "test_add_scalar", args, 3, grid), NESO_KERNEL_GRID, "divides by zero");
}

static std::string contentsOf(const std::string &path) {
  std::string out;
  if (FILE *f = fopen(path.c_str(), "r")) {
    for (int c; (c = fgetc(f)) != EOF;) out += char(c);
    fclose(f);
  }
  return out;
}
static size_t countIn(const std::string &text, const std::string &what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(Run, TracesAreFilesForPerfetto) {
  const std::string path = testing::TempDir() + "neso_trace.json";
  neso_trace *trace = nullptr;
  ASSERT_EQ(neso_trace_create(0, &trace), NESO_OK);
  {
    Loaded m(addThenDouble().package()), other(addThenDouble().package());
    Tensor x({3}, {1, 2, 3});
    std::vector<neso_tensor> out(1);
    ASSERT_EQ(neso_context_trace(m.context, trace), NESO_OK);
    ASSERT_EQ(neso_context_trace(other.context, trace), NESO_OK);
    for (int i = 0; i < 3; ++i) {
      out = std::vector<neso_tensor>(1);
      ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    }
    out = std::vector<neso_tensor>(1);
    ASSERT_EQ(other.run({x.t}, out), NESO_OK) << neso_error_text();
    ASSERT_EQ(neso_context_trace(m.context, nullptr), NESO_OK);
    out = std::vector<neso_tensor>(1);
    ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    ASSERT_EQ(neso_trace_write(trace, path.c_str()), NESO_OK) << neso_error_text();
    const std::string text = contentsOf(path);
    EXPECT_EQ(countIn(text, "\"cat\": \"run\""), 4u) << text;
    EXPECT_EQ(countIn(text, "{\"name\": \"test_add\", \"cat\": \"step\", \"ph\": \"X\", \"ts\": "), 4u) << text;
    EXPECT_EQ(countIn(text, "\"tid\": 2, \"args\": {\"grid\": ["), 2u) << text;
    EXPECT_EQ(countIn(text, "thread_name"), 2u) << text;
    EXPECT_EQ(countIn(text, "{"), countIn(text, "}")) << text;
    EXPECT_EQ(text.substr(text.size() - 5), "}\n]}\n");
    // A few alone are the last ones.
    neso_trace *few = nullptr;
    ASSERT_EQ(neso_trace_create(2, &few), NESO_OK);
    ASSERT_EQ(neso_context_trace(m.context, few), NESO_OK);
    out = std::vector<neso_tensor>(1);
    ASSERT_EQ(m.run({x.t}, out), NESO_OK);
    ASSERT_EQ(neso_context_trace(m.context, nullptr), NESO_OK);
    ASSERT_EQ(neso_trace_write(few, path.c_str()), NESO_OK);
    EXPECT_EQ(countIn(contentsOf(path), "test_add"), 0u);
    EXPECT_EQ(countIn(contentsOf(path), "test_double"), 1u);
    neso_trace_free(few);
    EXPECT_STATUS(neso_trace_write(trace, "/nonexistent/trace.json"), NESO_FILE_UNWRITABLE, "cannot write '/nonexistent/trace.json': No such file");
    EXPECT_STATUS(neso_trace_write(trace, "/dev/full"), NESO_FILE_UNWRITABLE, "No space left");
  }
  std::remove(path.c_str());
  neso_trace_free(trace);
  neso_trace_free(nullptr);
}

TEST(Run, TracesOfRunsThatFailGoOn) {
  neso_trace *trace = nullptr;
  ASSERT_EQ(neso_trace_create(100, &trace), NESO_OK);
  Loaded m(addThenDouble().package());
  ASSERT_EQ(neso_context_trace(m.context, trace), NESO_OK);
  Tensor bad({3, 1}, {1, 2, 3}), x({3}, {1, 2, 3});
  std::vector<neso_tensor> out(1);
  EXPECT_EQ(m.run({bad.t}, out), NESO_INPUT_RANK);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  const std::string path = testing::TempDir() + "neso_trace_failed.json";
  ASSERT_EQ(neso_trace_write(trace, path.c_str()), NESO_OK) << neso_error_text();
  EXPECT_EQ(countIn(contentsOf(path), "test_add"), 1u);
  EXPECT_EQ(countIn(contentsOf(path), "\"cat\": \"run\""), 2u);
  std::remove(path.c_str());
  neso_trace_free(trace);
}
