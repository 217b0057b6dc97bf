// Kernels that are there once more in code that copies boxes of tensors, against the fake driver: which code runs, and what it is told
// of its tensors. Expected values are worked out by hand.
#include "test/fake_cuda.h"
#include "test/harness.h"

using namespace neso_test;
using B = PackageBuilder;

namespace {
constexpr const char *kFake = NESO_BINARY_DIR "/lib/libneso_fake_cuda.so", *kOld = NESO_BINARY_DIR "/lib/libneso_fake_cuda_old.so";

// sum(x [rows, columns], out, rows, columns, pitch): of f32, by threads or by boxes of 8 rows and 32 columns.
constexpr int kArgs = 5;
int sumByThreads(const fake_cuda::Launch &l) {
  auto number = [&](int i) { return *static_cast<int64_t *>(l.params[i]); };
  float sum = 0;
  for (int64_t r = 0; r < number(2); ++r)
    for (int64_t c = 0; c < number(3); ++c) sum += fake_cuda::pointer<float>(l, 0)[r * number(4) + c];
  fake_cuda::pointer<float>(l, 1)[0] = sum;
  fake_cuda::pointer<float>(l, 1)[1] = 1;
  return 0;
}
int sumByBoxes(const fake_cuda::Launch &l) {
  const fake_cuda::TensorMap &map = fake_cuda::tensorMap(l, kArgs);
  if (map.rank != 2 || map.item != 4 || map.box[0] != 32 || map.box[1] != 8 || map.swizzle != 128) return 1;
  float sum = 0;
  for (uint64_t r = 0; r < map.sizes[1]; ++r)
    for (uint64_t c = 0; c < map.sizes[0]; ++c)
      sum += *fake_cuda::host<float>(reinterpret_cast<void *>(map.address + r * map.pitches[0] + 4 * c));
  fake_cuda::pointer<float>(l, 1)[0] = sum;
  fake_cuda::pointer<float>(l, 1)[1] = 2;
  return 0;
}

// The rows count twice in the arguments: sizes come through the program, slot 5 = 2 * argument 2.
B::Form formOf() {
  B::Form form;
  form.constants = {2};
  form.slots = 1 + kArgs + 1;
  form.program.emplace_back(fbs::SizeOp::Mul, 1 + kArgs, 0, 1 + 2, 0);
  form.maps = {{0, 4, {1 + kArgs, 1 + 3}, {1 + 4}, {8, 32}}};
  return form;
}

class Boxes : public testing::Test {
protected:
  void SetUp() override {
    fake_cuda::reset();
    fake_cuda::addKernel("sum", kArgs, sumByThreads);
    fake_cuda::addKernel("sum_boxes", kArgs, sumByBoxes, 1);
  }
  void TearDown() override { EXPECT_EQ(fake_cuda::alive(), 0) << "something of the driver was not given back"; }

  static neso_context_options onGpu(const char *driver = kFake) {
    neso_context_options o{};
    o.device = NESO_CUDA;
    o.cuda_driver = driver;
    return o;
  }
  static B kernelAlone(B::Form form = formOf()) {
    B b;
    b.kernelsOnly = true;
    b.gpu({"sm_90"});
    b.forms = {std::move(form)};
    b.kernel("sum", kArgs);
    return b;
  }
};

/// What a launch by name wrote: the sum and which code it was; and what it was launched over.
struct Sum {
  float sum = 0, by = 0;
  int64_t boxLaunches = 0;
};
Sum sumOf(Loaded &m, int64_t skip, int64_t rows, int64_t columns, int64_t pitch, const uint32_t *programs = nullptr) {
  void *x = nullptr, *out = nullptr;
  EXPECT_EQ(neso_context_allocate(m.context, 4096, &x), NESO_OK);
  EXPECT_EQ(neso_context_allocate(m.context, 8, &out), NESO_OK);
  for (int i = 0; i < 1024; ++i) fake_cuda::host<float>(x)[i] = float(i % 7);
  neso_arg args[kArgs];
  args[0].ptr = static_cast<float *>(x) + skip, args[1].ptr = out, args[2].i64 = rows, args[3].i64 = columns, args[4].i64 = pitch;
  const uint32_t one[] = {1, 1, 1};
  EXPECT_EQ(neso_kernel_launch(m.context, "sum", programs ? programs : one, args, kArgs), NESO_OK) << neso_error_text();
  EXPECT_EQ(neso_context_synchronize(m.context), NESO_OK);
  neso_device_stats stats;
  neso_context_get_device_stats(m.context, &stats);
  const Sum got{fake_cuda::host<float>(out)[0], fake_cuda::host<float>(out)[1], stats.box_launches};
  for (void *memory : {x, out}) neso_context_deallocate(m.context, memory);
  return got;
}
float wanted(int64_t skip, int64_t rows, int64_t columns, int64_t pitch) {
  float sum = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) sum += float((skip + r * pitch + c) % 7);
  return sum;
}
} // namespace

TEST_F(Boxes, TensorsAreDescribedByTheArgumentsOfEachLaunch) {
  const neso_context_options o = onGpu();
  Loaded m(kernelAlone().package(), 1, &o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  EXPECT_EQ(neso_model_kernel_boxes(m.model, 0, 0), 1);
  EXPECT_EQ(neso_model_kernel_boxes(m.model, 0, 1), 0);
  EXPECT_EQ(neso_model_kernel_boxes(m.model, 1, 0), 0);
  int64_t launches = 0;
  for (auto [skip, rows, columns, pitch] : {std::array<int64_t, 4>{0, 4, 33, 36}, {4, 5, 32, 48}, {0, 4, 32, 4}, {0, 14, 35, 36}}) {
    const Sum got = sumOf(m, skip, rows, columns, pitch);
    EXPECT_EQ(got.by, 2);
    // By the form the rows are twice as many: it is told so by its program alone.
    EXPECT_EQ(got.sum, wanted(skip, 2 * rows, columns, pitch));
    EXPECT_EQ(got.boxLaunches, ++launches);
  }
}

TEST_F(Boxes, WhatCannotBeDescribedRunsTheUsualCode) {
  const neso_context_options o = onGpu();
  Loaded m(kernelAlone().package(), 1, &o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  fake_cuda::clearCalls();
  // An address and a pitch that are no multiples of 16 bytes, no rows, no columns, pitches of 0 and below, fewer rows and columns than a box.
  for (auto [skip, rows, columns, pitch] : {std::array<int64_t, 4>{1, 4, 32, 32},
                                            {0, 4, 32, 33},
                                            {0, 0, 32, 32},
                                            {0, 4, 0, 32},
                                            {0, 4, 32, 0},
                                            {64, 4, 32, -8},
                                            {0, 3, 32, 32},
                                            {0, 4, 31, 32}}) {
    const Sum got = sumOf(m, skip, rows, columns, pitch);
    EXPECT_EQ(got.by, 1);
    EXPECT_EQ(got.sum, wanted(skip, rows, columns, pitch));
    EXPECT_EQ(got.boxLaunches, 0);
  }
  EXPECT_EQ(fake_cuda::calls("cuTensorMapEncodeTiled"), 0);
  // What the driver refuses.
  fake_cuda::failNext("cuTensorMapEncodeTiled", 1);
  EXPECT_EQ(sumOf(m, 0, 4, 32, 32).by, 1);
  EXPECT_EQ(sumOf(m, 0, 4, 32, 32).by, 2);
}

TEST_F(Boxes, AProgramThatDividesByZeroRunsTheUsualCode) {
  B::Form form = formOf();
  form.program.emplace_back(fbs::SizeOp::FloorDiv, 1 + kArgs, 1 + kArgs, 1 + 3, 0);
  const neso_context_options o = onGpu();
  Loaded m(kernelAlone(form).package(), 1, &o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  EXPECT_EQ(sumOf(m, 0, 3, 0, 8).by, 1);
}

// Blocks that take one program after another: as many as the fake's eight multiprocessors hold, or one a program where these are fewer; told of all programs.
TEST_F(Boxes, ResidentBlocksAreAsManyAsTheDeviceHolds) {
  static std::array<uint64_t, 6> seen;
  fake_cuda::addKernel(
      "sum_boxes", kArgs + 3,
      [](const fake_cuda::Launch &l) {
        for (size_t axis : {0, 1, 2}) seen[axis] = l.grid[axis], seen[3 + axis] = *static_cast<uint32_t *>(l.params[kArgs + axis]);
        fake_cuda::pointer<float>(l, 1)[1] = 2;
        return fake_cuda::tensorMap(l, kArgs + 3).rank == 2 ? 0 : 1;
      },
      1);
  B::Form form = formOf();
  form.resident = 2;
  const neso_context_options o = onGpu();
  Loaded m(kernelAlone(form).package(), 1, &o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  EXPECT_EQ(neso_model_kernel_boxes(m.model, 0, 0), 1);
  struct Case {
    std::array<uint32_t, 3> programs, blocks;
  };
  for (const auto &[programs, blocks] : {Case{{5, 1, 1}, {5, 1, 1}}, Case{{3, 2, 2}, {12, 1, 1}}, Case{{16, 1, 1}, {16, 1, 1}}, Case{{7, 5, 3}, {16, 1, 1}}}) {
    EXPECT_EQ(sumOf(m, 0, 4, 32, 32, programs.data()).by, 2);
    EXPECT_EQ(seen, (std::array<uint64_t, 6>{blocks[0], blocks[1], blocks[2], programs[0], programs[1], programs[2]}));
  }
  // Their numbers have 31 bits.
  const uint32_t many[] = {1u << 20, 1u << 11, 1};
  EXPECT_EQ(sumOf(m, 0, 4, 32, 32, many).by, 1);
  form.resident = 0;
  EXPECT_STATUS(Loaded(kernelAlone(form).package(), 1, &o).status, NESO_PACKAGE_MALFORMED, "contradicts itself");
}

TEST_F(Boxes, ADriverThatDescribesNoTensorsRunsTheUsualCode) {
  // Its state is its own, so that the usual code is one that every fake driver has; the other is not even looked for.
  B b;
  b.gpu({"sm_90"});
  b.forms = {{{{0, 4, {1, 1}, {1}, {8, 32}}}, {16}, 1 + 3, 0, {}, {}}};
  const int32_t n = b.constant(4), bytes = b.constant(16);
  b.input("x", {b.fixed(4)});
  b.output("y", b.buffer(fbs::Location::Output, 0, bytes), {n});
  const int32_t x = b.buffer(fbs::Location::Input, 0, bytes);
  b.launch(b.kernel("test_add", 3), {B::arg(x), B::arg(x), B::arg(0)}, n);
  const std::string package = b.package();
  const neso_context_options old = onGpu(kOld), now = onGpu();
  {
    Loaded m(package, 1, &old);
    ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
    Tensor in({4}, {1, 2, 3, 4});
    std::vector<neso_tensor> out(1);
    ASSERT_EQ(m.run({in.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(floats(out[0], 4), (std::vector<float>{2, 4, 6, 8}));
  }
  EXPECT_STATUS(Loaded(package, 1, &now).status, NESO_PACKAGE_MALFORMED,
                "does not hold kernel 'test_add' (symbol 'test_add_boxes')");
}

TEST_F(Boxes, RecordedLaunchesKeepTheirMaps) {
  // Two launches of a model by one kernel, on two tensors: both are recorded, and run behind one another.
  B b;
  b.gpu({"sm_90"});
  b.forms = {formOf()};
  const int32_t kernel = b.kernel("sum", kArgs), bytes = b.constant(1024), pair = b.constant(8);
  int32_t outputs[2], inputs[2];
  for (int i : {0, 1}) {
    b.input(i ? "y" : "x", {b.fixed(256)}, fbs::DType::F32, false, nullptr, 16);
    inputs[i] = b.buffer(fbs::Location::Input, i, bytes);
    outputs[i] = b.buffer(fbs::Location::Output, i, pair);
    b.output(i ? "of_y" : "of_x", outputs[i], {b.constant(2)});
  }
  for (int i : {0, 1})
    b.launch(kernel, {B::arg(inputs[i]), B::arg(outputs[i]), B::slotArg(b.constant(4)), B::slotArg(b.constant(32)), B::slotArg(b.constant(32))},
             b.constant(1));
  const neso_context_options o = onGpu();
  Loaded m(b.package(), 1, &o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  for (int run = 0; run < 4; ++run) {
    Tensor x({256}, std::vector<float>(256, 1)), y({256}, std::vector<float>(256, float(run)));
    std::vector<neso_tensor> out(2);
    ASSERT_EQ(m.run({x.t, y.t}, out), NESO_OK) << neso_error_text();
    EXPECT_EQ(floats(out[0], 2), (std::vector<float>{256, 2}));
    EXPECT_EQ(floats(out[1], 2), (std::vector<float>{float(256 * run), 2}));
  }
  EXPECT_GT(fake_cuda::calls("cuGraphLaunch"), 0);
}

TEST_F(Boxes, FormsThatContradictThemselvesAreRefused) {
  auto refused = [&](auto change) {
    B::Form form = formOf();
    change(form);
    const neso_context_options o = onGpu();
    Loaded m(kernelAlone(form).package(), 1, &o);
    return m.status == NESO_PACKAGE_MALFORMED && std::string(neso_error_text()).find("contradicts itself") != std::string::npos;
  };
  EXPECT_FALSE(refused([](B::Form &) {}));
  EXPECT_TRUE(refused([](B::Form &f) { f.target = 1; }));
  EXPECT_TRUE(refused([](B::Form &f) { f.target = -1; }));
  EXPECT_TRUE(refused([](B::Form &f) { f.maps.clear(); }));
  EXPECT_TRUE(refused([](B::Form &f) { f.slots = 5; }));
  EXPECT_TRUE(refused([](B::Form &f) { f.slots = 1 << 20; }));
  EXPECT_TRUE(refused([](B::Form &f) { f.program[0] = fbs::SizeInst(fbs::SizeOp::Mul, 0, 0, 0, 0); }));
  EXPECT_TRUE(refused([](B::Form &f) { f.program[0] = fbs::SizeInst(fbs::SizeOp::Mul, 6, 7, 0, 0); }));
  EXPECT_TRUE(refused([](B::Form &f) { f.program[0] = fbs::SizeInst(fbs::SizeOp(2), 6, 0, 0, 0); }));
  EXPECT_TRUE(refused([](B::Form &f) { f.maps[0].argument = kArgs; }));
  EXPECT_TRUE(refused([](B::Form &f) { f.maps[0].item = 3; }));
  EXPECT_TRUE(refused([](B::Form &f) { f.maps[0].sizes = {1}; }));
  EXPECT_TRUE(refused([](B::Form &f) { f.maps[0].sizes = {1, 7}; }));
  EXPECT_TRUE(refused([](B::Form &f) { f.maps[0].pitches = {-1}; }));
  EXPECT_TRUE(refused([](B::Form &f) { f.maps[0].box = {8, 33}; }));
  EXPECT_TRUE(refused([](B::Form &f) { f.maps[0].box = {257, 32}; }));
}
