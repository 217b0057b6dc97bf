// Matrix products that packages leave to a library, against the fake driver and its fake cuBLASLt; the package's own
// kernel otherwise. Expected values are worked out by hand.
#include <dlfcn.h>

#include "test/fake_cuda.h"
#include "test/harness.h"

using namespace neso_test;
using B = PackageBuilder;

namespace {
const char *const kFake = NESO_BINARY_DIR "/lib/libneso_fake_cuda.so";

neso_context_options onGpu(const char *cublas = kFake) {
  neso_context_options o{};
  o.device = NESO_CUDA;
  o.cuda_driver = kFake;
  o.cublas = cublas;
  return o;
}

/// out[m, 2] = x[m, 3] * w^T + bias, w [2, 3] and bias constants, m dynamic. The package's own kernel gives 1000
/// everywhere, so that one sees who ran. relu: at the end. rest: into a temporary; test_double then doubles it in the
/// output.
struct Product {
  bool relu = false, rest = false, badSlot = false;
  B build() const {
    B b;
    b.gpu({"sm_90"});
    const int32_t m = B::kVariables, bytes = m + 1, inBytes = m + 2, elements = m + 3;
    b.input("x", {B::dynamic(m), b.fixed(3)});
    const float w[] = {1, 2, 3, -1, 0, 1}, bias[] = {10, -20};
    b.weight("w", {2, 3}, std::string(reinterpret_cast<const char *>(w), sizeof w));
    b.weight("bias", {2}, std::string(reinterpret_cast<const char *>(bias), sizeof bias));
    b.size(fbs::SizeOp::Mul, bytes, m, b.constant(8));
    b.size(fbs::SizeOp::Mul, inBytes, m, b.constant(12));
    b.arenas.push_back(fbs::CreateArena(b.fb, b.constant(4096)));
    const int32_t x = b.buffer(fbs::Location::Input, 0, inBytes),
                  weight = b.buffer(fbs::Location::Constant, 0, b.constant(24)),
                  added = b.buffer(fbs::Location::Constant, 1, b.constant(8));
    const int32_t out = b.buffer(fbs::Location::Output, 0, bytes),
                  space = b.buffer(fbs::Location::Arena, 0, b.constant(1024), b.constant(64));
    b.output("y", out, {m, b.constant(2)});
    const int32_t own = b.kernel("test_own", 1), twice = b.kernel("test_double", 1), one = b.constant(1),
                  zero = b.constant(0);
    b.size(fbs::SizeOp::Mul, elements, m, b.constant(2));
    flatbuffers::Offset<fbs::Launch> after;
    if (rest)
      after = fbs::CreateLaunch(b.fb, twice, b.fb.CreateVectorOfStructs(std::vector<fbs::Arg>{B::arg(out)}), elements,
                                one, one);
    fbs::Matrix left(x, -1, badSlot ? 1000 : b.constant(3), zero, false), right(weight, -1, b.constant(3), zero, true),
        result(out, -1, b.constant(2), zero, false);
    auto product = fbs::CreateProduct(b.fb, &left, &right, &result, fbs::DType::F32, fbs::DType::F32, one, m,
                                      b.constant(2), b.constant(3), added, -1, relu, space, after);
    b.step(fbs::Step::Launch,
           fbs::CreateLaunch(b.fb, own, b.fb.CreateVectorOfStructs(std::vector<fbs::Arg>{B::arg(out)}), elements, one,
                             one, product));
    return b;
  }
};

class Products : public testing::Test {
protected:
  void SetUp() override {
    fake_cuda::reset();
    fake_cuda::addKernel("test_own", 1, [](const fake_cuda::Launch &l) {
      for (unsigned i = 0; i < l.grid[0]; ++i) fake_cuda::pointer<float>(l, 0)[i] = 1000;
      return 0;
    });
  }
  void TearDown() override {
    EXPECT_EQ(fake_cuda::alive(), 0) << "something of the driver or the library was not given back";
  }
};

std::vector<float> runOnce(Loaded &m, int64_t rows) {
  std::vector<float> data;
  for (int64_t i = 0; i < 3 * rows; ++i) data.push_back(float(i));
  Tensor x({rows, 3}, data);
  std::vector<neso_tensor> out(1);
  EXPECT_EQ(m.run({x.t}, out), NESO_OK) << neso_error_text();
  return rows ? floats(out[0], size_t(2 * rows)) : std::vector<float>();
}
neso_device_stats statsOf(neso_context *c) {
  neso_device_stats s;
  neso_context_get_device_stats(c, &s);
  return s;
}
// Row i of x is 3i, 3i + 1, 3i + 2: times (1, 2, 3) it is 18 i + 8, times (-1, 0, 1) it is 2.
const std::vector<float> kWant = {18, -18, 36, -18};

TEST_F(Products, AreTheLibrarysWhereThereIsOne) {
  neso_context_options o = onGpu();
  Loaded m(Product().build().package(), 1, &o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  EXPECT_EQ(runOnce(m, 2), kWant);
  EXPECT_EQ(statsOf(m.context).library_calls, 1);
  EXPECT_EQ(statsOf(m.context).kernel_launches, 0);
  // Other sizes, and back; none at all is the kernel's, which then has no programs.
  EXPECT_EQ(runOnce(m, 3), (std::vector<float>{18, -18, 36, -18, 54, -18}));
  EXPECT_EQ(runOnce(m, 0), std::vector<float>());
  EXPECT_EQ(runOnce(m, 2), kWant);
  EXPECT_EQ(statsOf(m.context).library_calls, 3);
}

TEST_F(Products, OnesStatsSayWhoComputes) {
  neso_context_options o = onGpu();
  Loaded m(Product().build().package(), 1, &o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  neso_model_stats model;
  neso_model_get_stats(m.model, &model);
  EXPECT_EQ(model.product_count, 1);
  EXPECT_EQ(statsOf(m.context).library_products, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(runOnce(m, 2), kWant);
  neso_device_stats stats = statsOf(m.context);
  EXPECT_EQ(stats.library_products, 1);
  EXPECT_STREQ(stats.library, kFake);
  EXPECT_EQ(stats.library_version, 130201);
  EXPECT_EQ(stats.graph_streams, 1);
  neso_context_options none = onGpu("");
  Loaded own(Product().build().package(), 1, &none);
  EXPECT_EQ(runOnce(own, 2), std::vector<float>(4, 1000));
  stats = statsOf(own.context);
  EXPECT_EQ(stats.library, nullptr);
  EXPECT_EQ(stats.library_products, 0);
}

// As PyTorch does: the library lies where no loader looks, and is there all the same.
TEST_F(Products, TheLibraryThatTheProcessHasLoadedIsTaken) {
  const char *const file = NESO_BINARY_DIR "/lib/fake/libcublasLt.so.13";
  ASSERT_NE(dlopen(file, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  neso_context_options o = onGpu(nullptr);
  Loaded m(Product().build().package(), 1, &o);
  EXPECT_EQ(runOnce(m, 2), kWant);
  ASSERT_NE(statsOf(m.context).library, nullptr);
  EXPECT_STREQ(statsOf(m.context).library, file);
}

TEST_F(Products, EpilogueAndWhatFollows) {
  neso_context_options o = onGpu();
  Product p;
  p.relu = true;
  Loaded relu(p.build().package(), 1, &o);
  EXPECT_EQ(runOnce(relu, 2), (std::vector<float>{18, 0, 36, 0}));
  p.rest = true;
  Loaded rest(p.build().package(), 1, &o);
  EXPECT_EQ(runOnce(rest, 2), (std::vector<float>{36, 0, 72, 0}));
  EXPECT_EQ(statsOf(rest.context).kernel_launches, 1);
}

TEST_F(Products, AreTheKernelsWithoutALibrary) {
  for (const char *library : {"", "/nonexistent/libcublasLt.so"}) {
    neso_context_options o = onGpu(library);
    Loaded m(Product().build().package(), 1, &o);
    ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
    EXPECT_EQ(runOnce(m, 2), std::vector<float>(4, 1000));
    EXPECT_EQ(statsOf(m.context).library_calls, 0);
  }
}

TEST_F(Products, AreTheKernelsWhereTheLibraryRefuses) {
  fake_cuda::refuseProducts([](int64_t m, int64_t, int64_t) { return m == 2; });
  neso_context_options o = onGpu();
  Loaded m(Product().build().package(), 1, &o);
  EXPECT_EQ(runOnce(m, 2), std::vector<float>(4, 1000));
  EXPECT_EQ(runOnce(m, 1), (std::vector<float>{18, -18}));
}

TEST_F(Products, AreRecordedIntoGraphsAndAllocateNothing) {
  neso_context_options o = onGpu();
  Loaded m(Product().build().package(), 1, &o);
  ASSERT_EQ(m.status, NESO_OK) << neso_error_text();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(runOnce(m, 2), kWant);
  const int alive = fake_cuda::alive();
  fake_cuda::clearCalls();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(runOnce(m, 2), kWant);
  EXPECT_EQ(fake_cuda::alive(), alive);
  EXPECT_EQ(fake_cuda::calls("cuMemAlloc"), 0);
  EXPECT_EQ(fake_cuda::calls("cuGraphLaunch"), 5);
  EXPECT_EQ(fake_cuda::calls("cuLaunchKernelEx"), 0);
}

TEST_F(Products, ThatNameWhatIsNotThereAreRefusedAtLoad) {
  Product p;
  p.badSlot = true;
  neso_context_options o = onGpu();
  Loaded m(p.build().package(), 1, &o);
  EXPECT_EQ(m.status, NESO_PACKAGE_MALFORMED);
}
} // namespace
