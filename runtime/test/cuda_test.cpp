// Runs on a GPU, against the fake driver: where memory lies, what is called in steady state, graphs, errors, several
// devices, threads. Expected values are worked out by hand.
#include <dlfcn.h>
#include <pthread.h>

#include "test/fake_cuda.h"
#include "test/harness.h"

using namespace neso_test;
using B = PackageBuilder;

namespace {
const char *const kFake = NESO_BINARY_DIR "/lib/libneso_fake_cuda.so";

neso_context_options onGpu(int index = 0) {
  neso_context_options o{};
  o.device = NESO_CUDA;
  o.device_index = index;
  o.cuda_driver = kFake;
  return o;
}

// A model on the fake GPU. Everything that the driver gave must be back when it ends.
struct Gpu : Loaded {
  explicit Gpu(B b, neso_context_options o = onGpu()) : Loaded(b.package(), 1, &o) {}
};

// Memory of a context as a tensor, filled from the host.
struct DeviceTensor {
  neso_context *context;
  std::vector<int64_t> sizes, strides;
  neso_tensor t{};
  DeviceTensor(neso_context *c, std::vector<int64_t> s, const std::vector<float> &data, std::vector<int64_t> st = {})
      : context(c), sizes(std::move(s)), strides(std::move(st)) {
    t = {nullptr, sizes.data(), strides.empty() ? nullptr : strides.data(), int32_t(sizes.size()), NESO_F32, NESO_CUDA,
         0};
    EXPECT_EQ(neso_context_allocate(c, data.size() * 4, &t.data), NESO_OK) << neso_error_text();
    std::memcpy(fake_cuda::host<float>(t.data), data.data(), data.size() * 4);
  }
  ~DeviceTensor() { neso_context_deallocate(context, t.data); }
  std::vector<float> values(size_t n) const {
    return {fake_cuda::host<float>(t.data), fake_cuda::host<float>(t.data) + n};
  }
};

class Cuda : public testing::Test {
protected:
  void SetUp() override { fake_cuda::reset(); }
  void TearDown() override { EXPECT_EQ(fake_cuda::alive(), 0) << "something of the driver was not given back"; }
};

neso_device_stats statsOf(neso_context *c) {
  neso_device_stats s;
  neso_context_get_device_stats(c, &s);
  return s;
}
} // namespace

TEST_F(Cuda, HostTensorsGoToTheDeviceAndBack) {
  Gpu m(addThenDouble(1, {"sm_90"}));
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  for (int64_t n : {3, 100, 2, 2, 2, 2}) {
    Tensor x({n}, std::vector<float>(size_t(n), 3));
    std::vector<neso_tensor> out(1);
    ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(out[0].device, NESO_CPU);
    EXPECT_EQ(floats(out[0], size_t(n)), std::vector<float>(size_t(n), 8));
  }
}

TEST_F(Cuda, StridedHostTensorsAreServed) {
  Gpu m(addThenDouble(1, {"sm_90"}));
  Tensor x({3}, {2}, {1, 0, 2, 0, 3});
  int64_t sizes[] = {3}, stride[] = {2};
  float spread[6] = {9, 9, 9, 9, 9, 9};
  std::vector<neso_tensor> out{{spread, sizes, stride, 1, NESO_F32, NESO_CPU, 0}};
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(std::vector<float>(spread, spread + 6), (std::vector<float>{4, 9, 6, 9, 8, 9}));
}

TEST_F(Cuda, DeviceTensorsAreUsedWhereTheyLie) {
  Gpu m(addThenDouble(1, {"sm_90"}));
  DeviceTensor x(m.context, {4}, {1, 2, 3, 4}), y(m.context, {4}, {0, 0, 0, 0});
  std::vector<neso_tensor> out{y.t};
  fake_cuda::clearCalls();
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(y.values(4), (std::vector<float>{4, 6, 8, 10}));
  for (const char *copy : {"cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync"})
    EXPECT_EQ(fake_cuda::calls(copy), 0) << copy;
  // Results of the context, wanted on the device.
  out[0] = {};
  out[0].device = NESO_CUDA;
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  ASSERT_TRUE(fake_cuda::isDevice(out[0].data));
  EXPECT_EQ(out[0].device, NESO_CUDA);
  EXPECT_EQ(fake_cuda::host<float>(out[0].data)[3], 10);
  // Strided on the device: by the runtime's own kernel.
  DeviceTensor wide(m.context, {2}, {5, 0, 0, 6}, {3});
  ASSERT_EQ(m.run({wide.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(fake_cuda::host<float>(out[0].data)[1], 14);
}

TEST_F(Cuda, SteadyStateNeitherAllocatesNorWaits) {
  for (int graphs : {0, -1}) {
    neso_context_options o = onGpu();
    o.cuda_graphs = graphs;
    Gpu m(addThenDouble(1, {"sm_90"}), o);
    DeviceTensor x(m.context, {4}, {1, 2, 3, 4}), y(m.context, {4}, {0, 0, 0, 0});
    neso_tensor out = y.t;
    for (int i = 0; i < 3; ++i) ASSERT_EQ(neso_run_async(m.context, &x.t, 1, &out, 1), NESO_OK) << neso_error_text();
    fake_cuda::clearCalls();
    for (int i = 0; i < 10; ++i) ASSERT_EQ(neso_run_async(m.context, &x.t, 1, &out, 1), NESO_OK) << neso_error_text();
    // Ten graph launches, or twenty kernels, and nothing else.
    EXPECT_EQ(fake_cuda::calls("cuGraphLaunch"), graphs == 0 ? 10 : 0);
    EXPECT_EQ(fake_cuda::calls("cuLaunchKernelEx"), graphs == 0 ? 0 : 20);
    EXPECT_EQ(fake_cuda::calls("*"), graphs == 0 ? 10 : 20);
    ASSERT_EQ(neso_context_synchronize(m.context), NESO_OK);
    EXPECT_EQ(y.values(4), (std::vector<float>{4, 6, 8, 10}));
  }
}

TEST_F(Cuda, StepsAreTimedBetweenMarksOnTheStream) {
  neso_context_options o = onGpu();
  o.time_steps = 1;
  Gpu m(addThenDouble(1, {"sm_90"}), o);
  neso_step_time t;
  EXPECT_EQ(neso_context_step_time(m.context, 0, &t), NESO_INVALID_ARGUMENT);
  Tensor x({3}, {1, 2, 3});
  for (int i = 0; i < 3; ++i) {
    std::vector<neso_tensor> out(1);
    ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(floats(out[0], 3), (std::vector<float>{4, 6, 8}));
  }
  EXPECT_EQ(statsOf(m.context).graph_launches, 0);
  // The fake driver's clock goes on by half a millisecond a mark.
  for (int64_t step : {0, 1}) {
    ASSERT_EQ(neso_context_step_time(m.context, step, &t), NESO_OK) << neso_error_text();
    EXPECT_STREQ(t.kernel, step == 0 ? "test_add" : "test_double");
    EXPECT_EQ(t.ms, 0.5);
  }
  EXPECT_EQ(neso_context_step_time(m.context, 2, &t), NESO_INVALID_ARGUMENT);
}

TEST_F(Cuda, GraphsAreKeptForSizesAndAddressesUpToTheCap) {
  neso_context_options o = onGpu();
  o.cuda_graphs = 2;
  Gpu m(addThenDouble(1, {"sm_90"}), o);
  DeviceTensor x(m.context, {8}, std::vector<float>(8, 1)), y(m.context, {8}, std::vector<float>(8, 0)),
      other(m.context, {8}, std::vector<float>(8, 2));
  auto run = [&](const DeviceTensor &in, int64_t n) {
    neso_tensor a = in.t, b = y.t;
    a.sizes = b.sizes = &n;
    ASSERT_EQ(neso_run_async(m.context, &a, 1, &b, 1), NESO_OK) << neso_error_text();
    EXPECT_EQ(y.values(1)[0], &in == &other ? 6 : 4);
  };
  // The first time plain, the second recorded, from the third on only launched.
  for (int i = 0; i < 4; ++i) run(x, 4);
  EXPECT_EQ(statsOf(m.context).graphs, 1);
  EXPECT_EQ(statsOf(m.context).graph_launches, 3);
  EXPECT_EQ(statsOf(m.context).kernel_launches, 4);
  // Other memory and other sizes are other graphs; a third one takes the place of the one unused for longest (x, 4).
  for (int i = 0; i < 2; ++i) run(other, 4);
  for (int i = 0; i < 2; ++i) run(x, 5);
  EXPECT_EQ(statsOf(m.context).graphs, 2);
  EXPECT_EQ(fake_cuda::calls("cuGraphInstantiate"), 3);
  run(other, 4);
  EXPECT_EQ(fake_cuda::calls("cuGraphInstantiate"), 3);
  run(x, 4);
  EXPECT_EQ(fake_cuda::calls("cuGraphInstantiate"), 4);
  EXPECT_EQ(statsOf(m.context).graphs, 2);
}

TEST_F(Cuda, ADriverThatDoesNotRecordIsDoneWithout) {
  Gpu m(addThenDouble(1, {"sm_90"}));
  Tensor x({2}, {1, 2});
  fake_cuda::failNext("cuStreamEndCapture", 901);
  for (int i = 0; i < 4; ++i) {
    std::vector<neso_tensor> out(1);
    ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(floats(out[0], 2), (std::vector<float>{4, 6}));
  }
  EXPECT_EQ(statsOf(m.context).graphs, 0);
}

TEST_F(Cuda, ConstantsAreUploadedOnceAndSharedBetweenContexts) {
  Gpu m(addThenDouble(1, {"sm_90"}));
  EXPECT_EQ(fake_cuda::calls("cuMemcpyHtoDAsync"), 1);
  EXPECT_EQ(statsOf(m.context).constant_bytes, 512u);
  neso_context *more[3];
  neso_context_options o = onGpu();
  o.struct_size = sizeof o;
  for (neso_context *&c : more) ASSERT_EQ(neso_context_create(m.model, &o, &c), NESO_OK);
  EXPECT_EQ(fake_cuda::calls("cuMemcpyHtoDAsync"), 1);
  EXPECT_EQ(fake_cuda::calls("cuModuleLoadDataEx"), 1);
  for (neso_context *c : more) neso_context_free(c);
}

TEST_F(Cuda, MutatedBuffersAndInputsStayWithContextAndCaller) {
  B b;
  b.gpu({"sm_90"});
  int32_t eight = b.constant(8), two = b.constant(2);
  b.input("x", {b.fixed(2)}, fbs::DType::F32, true);
  float start[] = {1, 2};
  b.weight("state", {2}, std::string(reinterpret_cast<char *>(start), 8), true, fbs::ConstantKind::Buffer);
  int32_t x = b.buffer(fbs::Location::Input, 0, eight), s = b.buffer(fbs::Location::Constant, 0, eight),
          k = b.kernel("test_double", 1);
  b.launch(k, {B::arg(x)}, two);
  b.launch(k, {B::arg(s)}, two);
  b.output("view", x, {two});
  Gpu m(std::move(b));
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Tensor in({2}, {5, 6}), spread({2}, {2}, {7, 0, 8});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({in.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(in.data, (std::vector<float>{10, 12}));
  EXPECT_EQ(floats(out[0], 2), (std::vector<float>{10, 12}));
  ASSERT_EQ(m.run({spread.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(spread.data, (std::vector<float>{14, 0, 16}));
  neso_tensor state, host;
  ASSERT_EQ(neso_context_buffer(m.context, "state", &state), NESO_OK);
  EXPECT_EQ(state.device, NESO_CUDA);
  float got[2];
  host = {got, state.sizes, nullptr, 1, NESO_F32, NESO_CPU, 0};
  ASSERT_EQ(neso_tensor_copy(m.context, &host, &state), NESO_OK) << neso_error_text();
  EXPECT_EQ(std::vector<float>(got, got + 2), (std::vector<float>{4, 8}));
  ASSERT_EQ(neso_context_reset_buffers(m.context), NESO_OK);
  EXPECT_EQ(fake_cuda::host<float>(state.data)[1], 2);
}

// y [s0] keeps only as many elements as x has non-zero ones; the count comes from the device. Then a transposing copy.
TEST_F(Cuda, StepsOfEveryKindRunOnTheDevice) {
  B b;
  b.gpu({"sm_90"});
  int32_t one = b.constant(1), two = b.constant(2), three = b.constant(3), n = B::kVariables;
  int32_t bytes = b.constant(24), eight = b.constant(8);
  b.input("x", {b.fixed(2), b.fixed(3)});
  b.arenas.push_back(fbs::CreateArena(b.fb, eight));
  int32_t x = b.buffer(fbs::Location::Input, 0, bytes), count = b.buffer(fbs::Location::Arena, 0, eight);
  int32_t turned = b.buffer(fbs::Location::Output, 0, bytes);
  b.step(fbs::Step::Launch, fbs::CreateLaunch(b.fb, b.kernel("test_count", 3),
                                              b.fb.CreateVectorOfStructs(std::vector<fbs::Arg>{
                                                  B::arg(x), B::arg(count), B::slotArg(b.constant(6))}),
                                              one, one, one));
  b.step(fbs::Step::LoadScalar, fbs::CreateLoadScalar(b.fb, count, -1, fbs::DType::I64, n));
  auto sizes = b.fb.CreateVector(std::vector<int32_t>{three, two}),
       dst = b.fb.CreateVector(std::vector<int32_t>{two, one}),
       src = b.fb.CreateVector(std::vector<int32_t>{one, three});
  b.step(fbs::Step::Copy, fbs::CreateCopy(b.fb, turned, x, 4, sizes, dst, src));
  b.output("turned", turned, {three, two});
  b.scalarOutput(fbs::OutputKind::Int, n);
  Gpu m(std::move(b));
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  Tensor in({2, 3}, {1, 0, 3, 4, 5, 0});
  for (int i = 0; i < 3; ++i) {
    std::vector<neso_tensor> out(2);
    ASSERT_EQ(m.run({in.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(floats(out[0], 6), (std::vector<float>{1, 4, 0, 5, 3, 0}));
    EXPECT_EQ(*static_cast<int64_t *>(out[1].data), 4);
  }
  EXPECT_EQ(statsOf(m.context).graphs, 0) << "sizes that come up during a run leave nothing to record";
}

TEST_F(Cuda, CopiesOfAnyShapeAndItem) {
  Gpu m(addThenDouble(1, {"sm_90"}));
  // Ten dimensions of two, every second one turned around: more than one launch of the copy kernel takes.
  int64_t sizes[10], straight[10], turned[10];
  for (int d = 0; d < 10; ++d) {
    sizes[d] = 2;
    straight[d] = 1 << (9 - d);
    turned[d] = 1 << (d % 2 ? 9 - d : (d == 8 ? 9 : 9 - d - 2 < 1 ? 9 : 9 - d - 2));
  }
  std::vector<float> data(1024);
  for (size_t i = 0; i < data.size(); ++i) data[i] = float(i);
  DeviceTensor from(m.context, {1024}, data), to(m.context, {1024}, std::vector<float>(1024, -1));
  neso_tensor a{from.t.data, sizes, turned, 10, NESO_F32, NESO_CUDA, 0},
      b{to.t.data, sizes, straight, 10, NESO_F32, NESO_CUDA, 0};
  ASSERT_EQ(neso_tensor_copy(m.context, &b, &a), NESO_OK) << neso_error_text();
  for (int i = 0; i < 1024; ++i) {
    int64_t want = 0;
    for (int d = 0; d < 10; ++d) want += (i >> (9 - d) & 1) * turned[d];
    ASSERT_EQ(to.values(1024)[size_t(i)], data[size_t(want)]) << i;
  }
  // Rows of 4 floats apart by 8: moved 16 bytes at a time. And to the host and back through other strides.
  int64_t rows[] = {3, 4}, apart[] = {8, 1}, dense[] = {4, 1}, columns[] = {1, 3};
  neso_tensor p{from.t.data, rows, apart, 2, NESO_F32, NESO_CUDA, 0},
      q{to.t.data, rows, dense, 2, NESO_F32, NESO_CUDA, 0};
  ASSERT_EQ(neso_tensor_copy(m.context, &q, &p), NESO_OK);
  EXPECT_EQ(to.values(6), (std::vector<float>{0, 1, 2, 3, 8, 9}));
  float host[12];
  neso_tensor h{host, rows, columns, 2, NESO_F32, NESO_CPU, 0};
  ASSERT_EQ(neso_tensor_copy(m.context, &h, &p), NESO_OK) << neso_error_text();
  EXPECT_EQ(host[1], 8);
  EXPECT_EQ(host[3], 1);
  host[0] = 77;
  ASSERT_EQ(neso_tensor_copy(m.context, &p, &h), NESO_OK) << neso_error_text();
  EXPECT_EQ(from.values(9), (std::vector<float>{77, 1, 2, 3, 4, 5, 6, 7, 8}));
  neso_tensor wrong = h;
  wrong.dtype = NESO_I32;
  EXPECT_STATUS(neso_tensor_copy(m.context, &p, &wrong), NESO_INVALID_ARGUMENT, "equal dtype");
}

TEST_F(Cuda, ScalarInputsAreReadFromMemoryAndFromSlots) {
  B b;
  b.gpu({"sm_90"});
  int32_t n = B::kVariables, eight = b.constant(8), one = b.constant(1);
  b.scalarInput("k", fbs::InputKind::Int, fbs::InputDim(n, -1, 0, 100));
  int32_t k = b.buffer(fbs::Location::Input, 0, eight), out = b.buffer(fbs::Location::Output, 0, eight);
  fake_cuda::addKernel("both", 3, [](const fake_cuda::Launch &l) {
    *fake_cuda::pointer<int64_t>(l, 1) =
        *fake_cuda::pointer<int64_t>(l, 0) * 1000 + *static_cast<int64_t *>(l.params[2]);
    return 0;
  });
  b.launch(b.kernel("both", 3), {B::arg(k), B::arg(out), B::slotArg(n)}, one);
  b.output("y", out, {one}, nullptr, -1, fbs::DType::I64);
  Gpu m(std::move(b));
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  for (int64_t v : {3, 3, 3, 7, 3}) {
    std::vector<neso_tensor> out(1);
    ASSERT_EQ(m.run({{&v, nullptr, nullptr, 0, NESO_I64, NESO_CPU, 0}}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(*static_cast<int64_t *>(out[0].data), v * 1001);
  }
}

TEST_F(Cuda, CodeIsChosenByTheDevice) {
  struct Case {
    int major, minor;
    std::vector<std::string> archs;
    const char *image; // nullptr: refused
  };
  for (const Case &c :
       {Case{9, 0, {"compute_80", "sm_80", "sm_90"}, "cubin"}, Case{8, 9, {"sm_80", "sm_86", "compute_80"}, "cubin"},
        Case{9, 0, {"sm_80", "compute_80"}, "//compute_80"},
        Case{10, 0, {"compute_80", "compute_90", "sm_90"}, "//compute_90"},
        Case{8, 0, {"sm_90", "compute_90"}, nullptr}, Case{8, 0, {"sm_86"}, nullptr}, Case{9, 0, {"sm_90a"}, "cubin"},
        Case{10, 0, {"compute_90a"}, nullptr}, Case{12, 1, {"sm_120"}, "cubin"}}) {
    fake_cuda::reset({fake_cuda::Chip{c.major, c.minor}});
    Gpu m(addThenDouble(1, c.archs));
    if (c.image) {
      EXPECT_EQ(m.status, NESO_OK) << neso_error_text();
      EXPECT_EQ(fake_cuda::lastImage(), c.image);
    } else {
      EXPECT_STATUS(m.status, NESO_NO_FITTING_TARGET, c.archs[0].c_str());
      EXPECT_STATUS(m.status, NESO_NO_FITTING_TARGET,
                    "compile it with --target cuda --arch sm_" + std::to_string(c.major) + std::to_string(c.minor));
    }
  }
  fake_cuda::reset();
  fake_cuda::failNext("cuModuleLoadDataEx", 222);
  EXPECT_STATUS(Gpu(addThenDouble(1, {"compute_90"})).status, NESO_CODE_NOT_LOADED, "too old for the package's PTX");
}

TEST_F(Cuda, APackageForGpusLoadsWithoutOne) {
  B b = addThenDouble(1, {"sm_90", "compute_90"});
  std::string bytes = b.package();
  neso_model *model;
  ASSERT_EQ(neso_model_load_memory(bytes.data(), bytes.size(), nullptr, &model), NESO_OK) << neso_error_text();
  EXPECT_EQ(fake_cuda::calls("*"), 0);
  neso_target_info target;
  ASSERT_EQ(neso_model_target(model, 1, &target), NESO_OK);
  EXPECT_EQ(target.kind, NESO_CUDA);
  EXPECT_STREQ(target.arch, "compute_90");
  neso_context *context;
  EXPECT_STATUS(neso_context_create(model, nullptr, &context), NESO_NO_FITTING_TARGET,
                "code for sm_90, compute_90, none of it for the CPU");
  neso_context_options o = onGpu();
  o.struct_size = sizeof o;
  o.cuda_driver = "/nonexistent/libcuda.so";
  EXPECT_STATUS(neso_context_create(model, &o, &context), NESO_DEVICE_UNAVAILABLE, "no CUDA driver");
  neso_model_free(model);
}

TEST_F(Cuda, WhatIsMissingIsNamed) {
  EXPECT_STATUS(Gpu(addThenDouble(1, {"sm_90"}), onGpu(1)).status, NESO_DEVICE_UNAVAILABLE,
                "no device cuda:1: the driver sees 1");
  fake_cuda::reset({});
  EXPECT_STATUS(Gpu(addThenDouble(1, {"sm_90"})).status, NESO_DEVICE_UNAVAILABLE, "CUDA_ERROR_NO_DEVICE");
  fake_cuda::reset({fake_cuda::Chip{9, 0, 256}});
  EXPECT_STATUS(Gpu(addThenDouble(1, {"sm_90"})).status, NESO_OUT_OF_MEMORY, "constants");
  fake_cuda::reset({fake_cuda::Chip{9, 0, 600}});
  Gpu small(addThenDouble(1, {"sm_90"}));
  ASSERT_EQ(small.status, NESO_OK) << neso_error_text();
  Tensor x({100}, std::vector<float>(100, 1));
  std::vector<neso_tensor> out(1);
  EXPECT_STATUS(small.run({x.t}, out), NESO_OUT_OF_MEMORY, "out of memory on cuda:0");
  fake_cuda::reset();
  B wrong = addThenDouble(1, {"sm_90"});
  wrong.kernel("not_there", 1);
  EXPECT_STATUS(Gpu(std::move(wrong)).status, NESO_PACKAGE_MALFORMED, "kernel 'not_there'");
  B large = addThenDouble(1, {"sm_90"});
  large.sharedBytes = 300 << 10;
  large.kernel("test_double", 1);
  EXPECT_STATUS(Gpu(std::move(large)).status, NESO_NO_FITTING_TARGET, "needs 307200 bytes of shared memory");
  B torn = addThenDouble(1, {"sm_90"});
  torn.members.back() = {"data/neso/model/code/sm_90", "no cubin"};
  torn.members.erase(torn.members.begin());
  EXPECT_NE(Gpu(std::move(torn)).status, NESO_OK);
}

TEST_F(Cuda, SharedMemoryClustersAndGridsReachTheLaunch) {
  B b;
  b.kernelsOnly = true;
  b.gpu({"sm_90"});
  b.sharedBytes = 100 << 10;
  b.threads = 256;
  b.kernel("large", 1);
  b.sharedBytes = 0;
  b.cluster = 4;
  b.kernel("clustered", 1);
  b.cluster = 1;
  b.kernel("ordered", 1, 0, true);
  std::vector<fake_cuda::Launch> seen;
  for (const char *name : {"large", "clustered", "ordered"})
    fake_cuda::addKernel(name, 1, [&](const fake_cuda::Launch &l) {
      seen.push_back(l);
      return 0;
    });
  Gpu m(std::move(b));
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  neso_arg arg;
  arg.i64 = 0;
  auto launch = [&](const char *name, uint32_t x, uint32_t y = 1, uint32_t z = 1) {
    uint32_t grid[] = {x, y, z};
    return neso_kernel_launch(m.context, name, grid, &arg, 1);
  };
  ASSERT_EQ(launch("large", 8, 2), NESO_OK) << neso_error_text();
  EXPECT_EQ(seen.back().shared, 100u << 10);
  EXPECT_EQ(seen.back().threads, 256u);
  EXPECT_EQ(seen.back().grid[1], 2u);
  ASSERT_EQ(launch("clustered", 8), NESO_OK) << neso_error_text();
  EXPECT_EQ(seen.back().cluster, 4u);
  EXPECT_EQ(launch("ordered", 1), NESO_OK);
  EXPECT_STATUS(launch("ordered", 3), NESO_SIZE_INVALID, "kernel 'ordered' needs its 3 programs in order");
  EXPECT_STATUS(launch("large", 1, 70000), NESO_SIZE_INVALID,
                "kernel 'large' would be launched over a grid of 1 x 70000 x 1");
  EXPECT_EQ(launch("large", 0), NESO_OK);
  fake_cuda::failNext("cuLaunchKernelEx", 701);
  EXPECT_STATUS(launch("large", 8), NESO_DEVICE_FAILED,
                "launching kernel 'large' over 8 x 1 x 1 blocks of 256 threads with 102400 bytes");
  EXPECT_EQ(launch("large", 8), NESO_OK);
}

// Two launches, a copy, two launches: only those behind a launch may begin early, and only code that waits.
TEST_F(Cuda, OnlyKernelsThatWaitBeginBeforeThoseBeforeThemEnd) {
  for (bool waits : {false, true})
    for (int graphs : {0, -1}) {
      fake_cuda::reset();
      std::vector<bool> early;
      fake_cuda::addKernel("noted", 1, [&](const fake_cuda::Launch &l) { return early.push_back(l.early), 0; });
      B b;
      b.gpu({"sm_90"}, waits);
      const int32_t four = b.constant(4), bytes = b.constant(16);
      b.input("x", {b.fixed(4)});
      const int32_t x = b.buffer(fbs::Location::Input, 0, bytes), y = b.buffer(fbs::Location::Output, 0, bytes);
      b.output("y", y, {four});
      const int32_t kernel = b.kernel("noted", 1);
      const auto launchTwice = [&] {
        for (int i = 0; i < 2; ++i) b.launch(kernel, {B::arg(y)}, four);
      };
      launchTwice();
      const std::vector<int32_t> one = b.slots({1});
      b.step(fbs::Step::Copy, fbs::CreateCopy(b.fb, y, x, 4, b.fb.CreateVector(b.slots({4})), b.fb.CreateVector(one), b.fb.CreateVector(one)));
      launchTwice();
      neso_context_options o = onGpu();
      o.cuda_graphs = graphs;
      Gpu m(std::move(b), o);
      ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
      DeviceTensor in(m.context, {4}, {1, 2, 3, 4});
      for (int run = 0; run < 3; ++run) {
        early.clear();
        std::vector<neso_tensor> out(1);
        ASSERT_EQ(m.run({in.t}, out), NESO_OK) << neso_error_text();
        EXPECT_EQ(early, (std::vector<bool>{false, waits, false, waits})) << graphs << ", run " << run;
      }
    }
}

TEST_F(Cuda, ATrapLosesTheContextButNotTheProcess) {
  B b = addThenDouble(1, {"sm_90"});
  std::string package = b.package();
  bool trap = true;
  fake_cuda::addKernel("test_double", 1, [&](const fake_cuda::Launch &) { return trap ? 700 : 0; });
  neso_context_options o = onGpu();
  {
    Loaded m(package, 1, &o);
    Tensor x({2}, {1, 2});
    std::vector<neso_tensor> out(1);
    EXPECT_STATUS(m.run({x.t}, out), NESO_DEVICE_LOST, "a kernel trapped: CUDA_ERROR_ILLEGAL_ADDRESS");
    EXPECT_STATUS(m.run({x.t}, out), NESO_DEVICE_LOST, "lost by an earlier failure");
    neso_context *another;
    o.struct_size = sizeof o;
    EXPECT_STATUS(neso_context_create(m.model, &o, &another), NESO_DEVICE_LOST, "cannot use it again");
  }
  fake_cuda::reset();
  fake_cuda::addKernel("test_double", 1, [&](const fake_cuda::Launch &) { return trap ? 700 : 0; });
  // Watched step by step, the kernel is named.
  o.on_step = [](void *, const neso_step_event *) { return 0; };
  {
    Loaded m(package, 1, &o);
    Tensor x({2}, {1, 2});
    std::vector<neso_tensor> out(1);
    EXPECT_STATUS(m.run({x.t}, out), NESO_DEVICE_LOST, "kernel 'test_double': running on the GPU: a kernel trapped");
  }
  // A new model meets the same; on the CPU everything goes on.
  o.on_step = nullptr;
  EXPECT_STATUS(Loaded(package, 1, &o).status, NESO_DEVICE_LOST, "opening the device: a kernel trapped");
  Loaded cpu(addThenDouble().package());
  Tensor x({2}, {1, 2});
  std::vector<neso_tensor> out(1);
  EXPECT_EQ(cpu.run({x.t}, out), NESO_OK) << neso_error_text();
}

TEST_F(Cuda, EveryDeviceHasItsOwnModelAndRefusesTheOthersTensors) {
  fake_cuda::reset({fake_cuda::Chip{9, 0}, fake_cuda::Chip{8, 0}});
  B b = addThenDouble(1, {"sm_80", "sm_90"});
  Gpu first(std::move(b));
  neso_context *second = nullptr;
  neso_context_options o = onGpu(1);
  o.struct_size = sizeof o;
  ASSERT_EQ(neso_context_create(first.model, &o, &second), NESO_OK) << neso_error_text();
  EXPECT_EQ(fake_cuda::calls("cuModuleLoadDataEx"), 2);
  Tensor x({2}, {1, 2});
  neso_tensor out{};
  ASSERT_EQ(neso_run(second, &x.t, 1, &out, 1), NESO_OK) << neso_error_text();
  EXPECT_EQ(floats(out, 2), (std::vector<float>{4, 6}));
  DeviceTensor there(first.context, {2}, {1, 2});
  EXPECT_STATUS(neso_run(second, &there.t, 1, &out, 1), NESO_INPUT_DEVICE,
                "lies on device cuda:0, the model runs on cuda:1");
  neso_device_info info;
  ASSERT_EQ(neso_device_get_info(NESO_CUDA, 1, kFake, &info), NESO_OK) << neso_error_text();
  EXPECT_STREQ(info.arch, "sm_80");
  EXPECT_STREQ(info.name, "Fake GPU 1");
  neso_context_free(second);
}

TEST_F(Cuda, StreamsMarksAndTheCallersAllocator) {
  static size_t taken = 0;
  neso_context_options o = onGpu();
  o.allocate = [](void *, size_t bytes) {
    taken += bytes;
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return reinterpret_cast<void *>(reinterpret_cast<uint64_t>(memory) + fake_cuda::kDeviceOffset);
  };
  o.release = [](void *, void *memory, size_t bytes) {
    taken -= bytes;
    free(fake_cuda::host<char>(memory));
  };
  {
    Gpu m(addThenDouble(1, {"sm_90"}), o);
    void *memory;
    ASSERT_EQ(neso_context_allocate(m.context, 100, &memory), NESO_OK);
    EXPECT_EQ(taken, 128u);
    neso_context_deallocate(m.context, memory);
    EXPECT_EQ(taken, 0u);
    ASSERT_EQ(neso_context_allocate(m.context, 100, &memory), NESO_OK);
    double ms = 0;
    EXPECT_STATUS(neso_context_elapsed(m.context, 0, 1, &ms), NESO_INVALID_ARGUMENT, "must be set");
    ASSERT_EQ(neso_context_mark(m.context, 0), NESO_OK);
    ASSERT_EQ(neso_context_mark(m.context, 1), NESO_OK);
    ASSERT_EQ(neso_context_elapsed(m.context, 0, 1, &ms), NESO_OK);
    EXPECT_EQ(ms, 0.5);
    fake_cuda::clearCalls();
    ASSERT_EQ(neso_context_set_stream(m.context, reinterpret_cast<void *>(1)), NESO_OK) << neso_error_text();
    ASSERT_EQ(neso_context_set_stream(m.context, nullptr), NESO_OK) << neso_error_text();
    EXPECT_EQ(fake_cuda::calls("cuStreamWaitEvent"), 2);
  }
  EXPECT_EQ(taken, 0u);
}

TEST_F(Cuda, CallersRecordRunsIntoGraphsOfTheirOwn) {
  Gpu m(addThenDouble(1, {"sm_90"}));
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  void *driver = dlopen(kFake, RTLD_NOW);
  ASSERT_NE(driver, nullptr);
  const auto call = [&](const char *name, auto... args) { return reinterpret_cast<int (*)(decltype(args)...)>(dlsym(driver, name))(args...); };
  void *current = nullptr, *stream = nullptr, *graph = nullptr, *ready = nullptr;
  ASSERT_EQ(call("cuDevicePrimaryCtxRetain", &current, 0), 0);
  ASSERT_EQ(call("cuCtxPushCurrent_v2", current), 0);
  ASSERT_EQ(call("cuStreamCreate", &stream, 1u), 0);
  {
    DeviceTensor x(m.context, {3}, {1, 2, 3}), y(m.context, {3}, {0, 0, 0});
    // The same sizes and addresses so often that the runtime has a graph of its own.
    for (int i = 0; i < 3; ++i) ASSERT_EQ(neso_run(m.context, &x.t, 1, &y.t, 1), NESO_OK) << neso_error_text();
    EXPECT_EQ(y.values(3), (std::vector<float>{4, 6, 8}));
    ASSERT_EQ(call("cuStreamBeginCapture_v2", stream, 0), 0);
    ASSERT_EQ(neso_context_set_stream(m.context, stream), NESO_OK) << neso_error_text();
    const int64_t launched = statsOf(m.context).graph_launches;
    ASSERT_EQ(neso_run_async(m.context, &x.t, 1, &y.t, 1), NESO_OK) << neso_error_text();
    EXPECT_EQ(statsOf(m.context).graph_launches, launched);
    ASSERT_EQ(neso_context_set_stream(m.context, nullptr), NESO_OK) << neso_error_text();
    ASSERT_EQ(call("cuStreamEndCapture", stream, &graph), 0);
    ASSERT_EQ(call("cuGraphInstantiateWithFlags", &ready, graph, 0ull), 0);
    fake_cuda::host<float>(x.t.data)[1] = 10;
    EXPECT_EQ(y.values(3), (std::vector<float>{4, 6, 8}));
    ASSERT_EQ(call("cuGraphLaunch", ready, stream), 0);
    EXPECT_EQ(y.values(3), (std::vector<float>{4, 22, 8}));
    // Outside of a recording streams wait for each other again.
    fake_cuda::clearCalls();
    ASSERT_EQ(neso_context_set_stream(m.context, stream), NESO_OK) << neso_error_text();
    ASSERT_EQ(neso_run(m.context, &x.t, 1, &y.t, 1), NESO_OK) << neso_error_text();
    ASSERT_EQ(neso_context_set_stream(m.context, nullptr), NESO_OK) << neso_error_text();
    EXPECT_EQ(fake_cuda::calls("cuStreamWaitEvent"), 2);
  }
  EXPECT_EQ(fake_cuda::unjoined(), 0);
  call("cuGraphExecDestroy", ready), call("cuGraphDestroy", graph), call("cuStreamDestroy_v2", stream);
  call("cuCtxPopCurrent_v2", &current), call("cuDevicePrimaryCtxRelease_v2", 0);
  dlclose(driver);
}

namespace {
struct Job {
  const neso_model *model;
  int device, failures = 0;
};
void *runMany(void *data) {
  Job *job = static_cast<Job *>(data);
  neso_context_options o = onGpu(job->device);
  o.struct_size = sizeof o;
  neso_context *context = nullptr;
  if (neso_context_create(job->model, &o, &context) != NESO_OK) return job->failures = 1, nullptr;
  for (int i = 0; i < 40; ++i) {
    int64_t n = 2 + i / 4;
    neso_tensor out{};
    Tensor x({n}, std::vector<float>(size_t(n), float(i)));
    if (neso_run(context, &x.t, 1, &out, 1) != NESO_OK ||
        floats(out, size_t(n)) != std::vector<float>(size_t(n), float(2 * i + 2)))
      ++job->failures;
  }
  neso_context_free(context);
  return nullptr;
}
} // namespace

TEST_F(Cuda, ContextsOfOneModelRunAtOnceOnSeveralDevices) {
  fake_cuda::reset({fake_cuda::Chip{}, fake_cuda::Chip{}});
  B b = addThenDouble(1, {"sm_90"});
  std::string bytes = b.package();
  neso_model *model;
  ASSERT_EQ(neso_model_load_memory(bytes.data(), bytes.size(), nullptr, &model), NESO_OK) << neso_error_text();
  Job jobs[6];
  pthread_t threads[6];
  for (int i = 0; i < 6; ++i) {
    jobs[i] = {model, i % 2};
    pthread_create(&threads[i], nullptr, runMany, &jobs[i]);
  }
  for (int i = 0; i < 6; ++i) {
    pthread_join(threads[i], nullptr);
    EXPECT_EQ(jobs[i].failures, 0);
  }
  EXPECT_EQ(fake_cuda::calls("cuModuleLoadDataEx"), 2);
  neso_model_free(model);
}
