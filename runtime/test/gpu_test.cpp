// The runtime on a real GPU, with kernels written in PTX here: what the fake driver cannot show. Skipped where there is
// none. Expected values are worked out by hand.
#include <pthread.h>

#include "test/choice_models.h"
#include "test/harness.h"

using namespace neso_test;
using B = PackageBuilder;

namespace {
// One thread of each block works. test_add: out[i] = a[i] + b[i]; test_double: x[i] *= 2; test_count: sizes[0] =
// non-zero elements among n; far_shared: x[i] through the last bytes of 90,000 of shared memory; bad: a store to
// address 8.
const char *const kPtx = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry test_add(.param .u64 a, .param .u64 b, .param .u64 c)
{
.reg .pred %p<2>; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %d<8>;
mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
mov.u32 %r2, %ctaid.x; mul.wide.u32 %d1, %r2, 4;
ld.param.u64 %d2, [a]; ld.param.u64 %d3, [b]; ld.param.u64 %d4, [c];
add.u64 %d2, %d2, %d1; add.u64 %d3, %d3, %d1; add.u64 %d4, %d4, %d1;
ld.global.f32 %f1, [%d2]; ld.global.f32 %f2, [%d3]; add.f32 %f3, %f1, %f2; st.global.f32 [%d4], %f3;
ret;
}
.visible .entry test_double(.param .u64 a)
{
.reg .pred %p<2>; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %d<8>;
mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
mov.u32 %r2, %ctaid.x; mul.wide.u32 %d1, %r2, 4;
ld.param.u64 %d2, [a]; add.u64 %d2, %d2, %d1;
ld.global.f32 %f1, [%d2]; add.f32 %f2, %f1, %f1; st.global.f32 [%d2], %f2;
ret;
}
.visible .entry test_count(.param .u64 a, .param .u64 sizes, .param .u64 n)
{
.reg .pred %p<4>; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %d<8>;
mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [sizes]; ld.param.u64 %d3, [n]; mov.u64 %d4, 0;
more:
setp.eq.u64 %p2, %d3, 0; @%p2 bra done;
ld.global.f32 %f1, [%d1]; setp.neu.f32 %p3, %f1, 0f00000000; @%p3 add.u64 %d4, %d4, 1;
add.u64 %d1, %d1, 4; sub.u64 %d3, %d3, 1; bra more;
done:
st.global.u64 [%d2], %d4;
ret;
}
.visible .entry test_less(.param .u64 a, .param .u64 b, .param .u64 flag)
{
.reg .pred %p<3>; .reg .b32 %r<3>; .reg .b64 %d<6>;
mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u64 %d3, [flag];
ld.global.u64 %d4, [%d1]; ld.global.u64 %d5, [%d2]; setp.lt.s64 %p2, %d4, %d5; selp.u32 %r2, 1, 0, %p2; st.global.u8 [%d3], %r2;
ret;
}
.visible .entry test_increase(.param .u64 a, .param .u64 b)
{
.reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %d<6>;
mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b];
ld.global.u64 %d4, [%d1]; ld.global.u64 %d5, [%d2]; add.u64 %d4, %d4, %d5; st.global.u64 [%d1], %d4;
ret;
}
.visible .entry test_zero(.param .u64 a)
{
.reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %d<4>;
mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
ld.param.u64 %d1, [a]; mov.u64 %d2, 0; st.global.u64 [%d1], %d2;
ret;
}
.extern .shared .align 16 .b8 dynamic[];
.visible .entry far_shared(.param .u64 a)
{
.reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %d<8>;
mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
mov.u32 %r2, %ctaid.x; mul.wide.u32 %d1, %r2, 4; ld.param.u64 %d2, [a]; add.u64 %d2, %d2, %d1;
ld.global.u32 %r3, [%d2]; mov.u32 %r4, dynamic; st.shared.u32 [%r4+89996], %r3; ld.shared.u32 %r5, [%r4+89996]; add.u32 %r5, %r5, 1; st.global.u32 [%d2], %r5;
ret;
}
.visible .entry bad()
{
.reg .b64 %d<2>;
mov.u64 %d1, 8; st.global.u64 [%d1], %d1;
ret;
}
)";
// sizes of clusters: x[block] = blocks of its cluster
const char *const kClusterPtx = R"(.version 7.8
.target sm_90
.address_size 64
.visible .entry cluster_size(.param .u64 a)
{
.reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %d<8>;
mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
mov.u32 %r2, %ctaid.x; mul.wide.u32 %d1, %r2, 4; ld.param.u64 %d2, [a]; add.u64 %d2, %d2, %d1;
mov.u32 %r3, %cluster_nctaid.x; st.global.u32 [%d2], %r3;
ret;
}
)";

neso_context_options onGpu() {
  neso_context_options o{};
  o.device = NESO_CUDA;
  return o;
}

B withCode(B b, const char *ptx = kPtx) {
  b.members.back().second = ptx;
  return b;
}
// addThenDouble with real code: the code is the first member that gpu() adds.
B addOnGpu() {
  B b = addThenDouble(1, {"compute_80"});
  for (auto &[name, bytes] : b.members)
    if (name.find("compute_80") != std::string::npos) bytes = kPtx;
  return b;
}

struct Gpu : Loaded {
  explicit Gpu(B b, neso_context_options o = onGpu()) : Loaded(b.package(), 1, &o) {
    EXPECT_EQ(status, NESO_OK) << neso_error_text();
  }
  // Memory of the device with these values.
  neso_tensor put(const std::vector<float> &values, const int64_t *sizes) {
    neso_tensor host{const_cast<float *>(values.data()), sizes, nullptr, 1, NESO_F32, NESO_CPU, 0}, there = host;
    there.device = NESO_CUDA;
    EXPECT_EQ(neso_context_allocate(context, values.size() * 4, &there.data), NESO_OK) << neso_error_text();
    EXPECT_EQ(neso_tensor_copy(context, &there, &host), NESO_OK) << neso_error_text();
    return there;
  }
  std::vector<float> get(const neso_tensor &t) {
    std::vector<float> out(size_t(t.sizes[0]));
    neso_tensor host{out.data(), t.sizes, nullptr, 1, NESO_F32, NESO_CPU, 0};
    EXPECT_EQ(neso_tensor_copy(context, &host, &t), NESO_OK) << neso_error_text();
    return out;
  }
};

class OnGpu : public testing::Test {
protected:
  neso_device_info info;
  void SetUp() override {
    if (neso_device_get_info(NESO_CUDA, 0, nullptr, &info) != NESO_OK) GTEST_SKIP() << neso_error_text();
  }
};
} // namespace

TEST_F(OnGpu, HostAndDeviceTensorsPlainAndAsGraphs) {
  std::printf("%s, %s, driver %d, %zu bytes of L2\n", info.name, info.arch, info.driver, info.l2_bytes);
  Gpu m(addOnGpu());
  ASSERT_EQ(m.status, NESO_OK);
  for (int64_t n : {3, 100, 2, 2, 2, 2, 3, 3}) {
    Tensor x({n}, std::vector<float>(size_t(n), float(n)));
    std::vector<neso_tensor> out(1);
    ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(floats(out[0], size_t(n)), std::vector<float>(size_t(n), float(2 * n + 2)));
  }
  neso_device_stats stats;
  neso_context_get_device_stats(m.context, &stats);
  EXPECT_GE(stats.graph_launches, 4);
  int64_t four = 4;
  neso_tensor x = m.put({1, 2, 3, 4}, &four), y = m.put({0, 0, 0, 0}, &four);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(neso_run_async(m.context, &x, 1, &y, 1), NESO_OK) << neso_error_text();
  EXPECT_EQ(m.get(y), (std::vector<float>{4, 6, 8, 10}));
}

TEST_F(OnGpu, TheHostsShareOfARun) {
  for (int graphs : {0, -1}) {
    neso_context_options o = onGpu();
    o.cuda_graphs = graphs;
    Gpu m(addOnGpu(), o);
    int64_t four = 4;
    neso_tensor x = m.put({1, 2, 3, 4}, &four), y = m.put({0, 0, 0, 0}, &four);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(neso_run_async(m.context, &x, 1, &y, 1), NESO_OK);
    ASSERT_EQ(neso_context_synchronize(m.context), NESO_OK);
    timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    ASSERT_EQ(neso_context_mark(m.context, 0), NESO_OK);
    for (int i = 0; i < 500; ++i) ASSERT_EQ(neso_run_async(m.context, &x, 1, &y, 1), NESO_OK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    ASSERT_EQ(neso_context_mark(m.context, 1), NESO_OK);
    double ms = 0;
    ASSERT_EQ(neso_context_elapsed(m.context, 0, 1, &ms), NESO_OK);
    double host = double(end.tv_sec - begin.tv_sec) * 1e6 + double(end.tv_nsec - begin.tv_nsec) * 1e-3;
    std::printf("two kernels %s: host %.2f us a run, device %.2f us a run\n", graphs ? "one by one" : "as a graph",
                host / 500, ms * 2);
    EXPECT_EQ(m.get(y), (std::vector<float>{4, 6, 8, 10}));
  }
}

TEST_F(OnGpu, CallersStreamAndSwitchingStreams) {
  neso_context_options o = onGpu();
  o.stream = reinterpret_cast<void *>(1);
  Gpu m(addOnGpu(), o);
  int64_t four = 4;
  neso_tensor x = m.put({1, 2, 3, 4}, &four), y = m.put({0, 0, 0, 0}, &four);
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(neso_run_async(m.context, &x, 1, &y, 1), NESO_OK) << neso_error_text();
    ASSERT_EQ(neso_context_set_stream(m.context, i % 2 ? reinterpret_cast<void *>(1) : nullptr), NESO_OK)
        << neso_error_text();
  }
  EXPECT_EQ(m.get(y), (std::vector<float>{4, 6, 8, 10}));
}

// Every item width through the runtime's own copy kernels: a matrix turned around, against the same on the host.
TEST_F(OnGpu, CopyKernels) {
  Gpu m(addOnGpu());
  const int64_t rows = 37, columns = 53, across[] = {1, rows};
  const int64_t sizes[] = {rows, columns};
  for (neso_dtype dtype : {NESO_U8, NESO_F16, NESO_F32, NESO_F64, NESO_C128}) {
    size_t item = neso_dtype_size(dtype), bytes = size_t(rows * columns) * item;
    std::vector<uint8_t> in(bytes), out(bytes), want(bytes);
    for (size_t i = 0; i < bytes; ++i) in[i] = uint8_t(i * 31 + i / 251);
    void *a, *b;
    ASSERT_EQ(neso_context_allocate(m.context, bytes, &a), NESO_OK);
    ASSERT_EQ(neso_context_allocate(m.context, bytes, &b), NESO_OK);
    neso_tensor host{in.data(), sizes, nullptr, 2, dtype, NESO_CPU, 0},
        first{a, sizes, nullptr, 2, dtype, NESO_CUDA, 0}, turned{b, sizes, across, 2, dtype, NESO_CUDA, 0};
    neso_tensor back{out.data(), sizes, across, 2, dtype, NESO_CPU, 0},
        expected{want.data(), sizes, across, 2, dtype, NESO_CPU, 0};
    ASSERT_EQ(neso_tensor_copy(m.context, &first, &host), NESO_OK) << neso_error_text();
    ASSERT_EQ(neso_tensor_copy(m.context, &turned, &first), NESO_OK) << neso_error_text();
    ASSERT_EQ(neso_tensor_copy(m.context, &back, &turned), NESO_OK) << neso_error_text();
    ASSERT_EQ(neso_tensor_copy(m.context, &expected, &host), NESO_OK);
    EXPECT_EQ(out, want) << item;
    neso_context_deallocate(m.context, a);
    neso_context_deallocate(m.context, b);
  }
}

TEST_F(OnGpu, ACountReadFromTheDevice) {
  B b;
  b.gpu({"compute_80"});
  int32_t one = b.constant(1), n = B::kVariables, bytes = b.constant(24), eight = b.constant(8);
  b.input("x", {b.fixed(6)});
  b.arenas.push_back(fbs::CreateArena(b.fb, eight));
  int32_t x = b.buffer(fbs::Location::Input, 0, bytes), count = b.buffer(fbs::Location::Arena, 0, eight);
  b.step(fbs::Step::Launch, fbs::CreateLaunch(b.fb, b.kernel("test_count", 3),
                                              b.fb.CreateVectorOfStructs(std::vector<fbs::Arg>{
                                                  B::arg(x), B::arg(count), B::slotArg(b.constant(6))}),
                                              one, one, one));
  b.step(fbs::Step::LoadScalar, fbs::CreateLoadScalar(b.fb, count, -1, fbs::DType::I64, n));
  b.scalarOutput(fbs::OutputKind::Int, n);
  Gpu m(withCode(std::move(b)));
  Tensor in({6}, {1, 0, 3, 4, 5, 0});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({in.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(*static_cast<int64_t *>(out[0].data), 4);
}

// As nodes of the graph where the driver has them; the results are the same where it does not.
TEST_F(OnGpu, BranchesAndLoops) {
  Runs branch(withCode(branches("compute_80")), 2, onGpu()), loop(withCode(counting("compute_80")), 2, onGpu());
  std::printf("the driver %s conditional nodes\n", loop.context->queue->decides ? "has" : "lacks");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(branch.of({1, 2}), 2);
    EXPECT_EQ(branch.of({2, 2}), 4);
  }
  for (int64_t n : {3, 3, 0, 1, 7, 0, 10}) EXPECT_EQ(loop.of({n, 1}), float(int64_t(2) << n)) << n;
  EXPECT_EQ(branch.graphs(), branch.context->queue->decides ? 5 : 0);
  EXPECT_EQ(loop.graphs(), loop.context->queue->decides ? 6 : 0);
}

TEST_F(OnGpu, AnotherThreadEndsALoopThatTurnsForEver) {
  Runs m(withCode(counting("compute_80")), 2, onGpu());
  for (int64_t n : {1, 2}) EXPECT_EQ(m.of({n, 1}), float(2 << n));
  for (int i = 0; i < 2; ++i) expectCancelled(m);
}

TEST_F(OnGpu, LargeSharedMemoryAndClusters) {
  int64_t eight = 8;
  neso_arg arg;
  uint32_t grid[] = {8, 1, 1};
  B b;
  b.kernelsOnly = true;
  b.gpu({"compute_80"});
  b.sharedBytes = 90000;
  b.kernel("far_shared", 1);
  Gpu m(withCode(std::move(b)));
  neso_tensor x = m.put({0, 0, 0, 0, 0, 0, 0, 0}, &eight);
  arg.ptr = x.data;
  ASSERT_EQ(neso_kernel_launch(m.context, "far_shared", grid, &arg, 1), NESO_OK) << neso_error_text();
  float one_bit;
  int32_t one = 1;
  memcpy(&one_bit, &one, 4);
  EXPECT_EQ(m.get(x), std::vector<float>(8, one_bit));
  if (std::string(info.arch) < "sm_90" && std::string(info.arch).size() == 5) return;
  B c;
  c.kernelsOnly = true;
  c.gpu({"compute_90"});
  c.cluster = 4;
  c.kernel("cluster_size", 1);
  Gpu clustered(withCode(std::move(c), kClusterPtx));
  neso_tensor y = clustered.put(std::vector<float>(8, 0), &eight);
  arg.ptr = y.data;
  ASSERT_EQ(neso_kernel_launch(clustered.context, "cluster_size", grid, &arg, 1), NESO_OK) << neso_error_text();
  int32_t four = 4;
  memcpy(&one_bit, &four, 4);
  EXPECT_EQ(clustered.get(y), std::vector<float>(8, one_bit));
}

TEST_F(OnGpu, OutOfMemoryLeavesTheContextUsable) {
  Gpu m(addOnGpu());
  void *memory = nullptr;
  EXPECT_STATUS(neso_context_allocate(m.context, size_t(1) << 45, &memory), NESO_OUT_OF_MEMORY,
                "out of memory on cuda:0");
  Tensor x({2}, {1, 2});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(floats(out[0], 2), (std::vector<float>{4, 6}));
}

TEST_F(OnGpu, WrongPtxIsRefused) {
  B b = addOnGpu();
  for (auto &[name, bytes] : b.members)
    if (name.find("compute_80") != std::string::npos) bytes = ".version 7.0\n.target sm_80\nnonsense";
  neso_context_options o = onGpu();
  Loaded m(b.package(), 1, &o);
  EXPECT_STATUS(m.status, NESO_CODE_NOT_LOADED, "refuses the package's code for compute_80");
}

namespace {
void *runMany(void *model) {
  neso_context_options o = onGpu();
  o.struct_size = sizeof o;
  neso_context *context = nullptr;
  if (neso_context_create(static_cast<const neso_model *>(model), &o, &context) != NESO_OK) return model;
  bool good = true;
  for (int i = 0; i < 200; ++i) {
    int64_t n = 2 + i / 20;
    neso_tensor out{};
    Tensor x({n}, std::vector<float>(size_t(n), float(i)));
    good &= neso_run(context, &x.t, 1, &out, 1) == NESO_OK &&
            floats(out, size_t(n)) == std::vector<float>(size_t(n), float(2 * i + 2));
  }
  neso_context_free(context);
  return good ? nullptr : model;
}
} // namespace

TEST_F(OnGpu, ContextsRunAtOnce) {
  Gpu m(addOnGpu());
  pthread_t threads[4];
  for (pthread_t &t : threads) pthread_create(&t, nullptr, runMany, m.model);
  for (pthread_t t : threads) {
    void *failed;
    pthread_join(t, &failed);
    EXPECT_EQ(failed, nullptr);
  }
}

// Last: a kernel that writes where nothing is. The driver gives this process the GPU no more; the process goes on.
TEST_F(OnGpu, ZTrapLosesTheDeviceButNotTheProcess) {
  {
    B b;
    b.kernelsOnly = true;
    b.gpu({"compute_80"});
    b.kernel("bad", 0);
    Gpu m(withCode(std::move(b)));
    uint32_t grid[] = {1, 1, 1};
    ASSERT_EQ(neso_kernel_launch(m.context, "bad", grid, nullptr, 0), NESO_OK) << neso_error_text();
    EXPECT_STATUS(neso_context_synchronize(m.context), NESO_DEVICE_LOST,
                  "a kernel trapped: CUDA_ERROR_ILLEGAL_ADDRESS");
    EXPECT_STATUS(neso_kernel_launch(m.context, "bad", grid, nullptr, 0), NESO_DEVICE_LOST,
                  "lost by an earlier failure");
  }
  neso_context_options o = onGpu();
  EXPECT_EQ(Loaded(addOnGpu().package(), 1, &o).status, NESO_DEVICE_LOST);
  Loaded cpu(addThenDouble().package());
  Tensor x({2}, {1, 2});
  std::vector<neso_tensor> out(1);
  ASSERT_EQ(cpu.run({x.t}, out), NESO_OK) << neso_error_text();
  EXPECT_EQ(floats(out[0], 2), (std::vector<float>{4, 6}));
}
