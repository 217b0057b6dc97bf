// What a launch by name refuses before anything runs: buffers that are provably too small, arguments that are not
// aligned as compiled for, grids that no launch can have. Expected bytes are worked out by hand.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>
#include <vector>

#include "driver/kernel.h"
#include "neso/neso.h"

namespace neso {
namespace {
namespace fs = std::filesystem;

const char *kSource = R"(import triton
import triton.language as tl

@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

# Programs in groups: their ids are divided up, and rows wrap around.
@triton.jit
def grouped(a, c, M, N, stride, B: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    per_group = GROUP * tl.cdiv(N, B)
    first = pid // per_group * GROUP
    size = min(tl.cdiv(M, B) - first, GROUP)
    rows = ((first + pid % per_group % size) * B + tl.arange(0, B)) % M
    cols = pid % per_group // size * B + tl.arange(0, B)
    v = tl.load(a + rows[:, None] * stride + cols[None, :], mask=cols[None, :] < N)
    tl.store(c + rows[:, None] * stride + cols[None, :], v, mask=cols[None, :] < N)

@triton.jit
def pick(x, index, y):
    i = tl.arange(0, 16)
    tl.store(y + i, tl.load(x + tl.load(index + i)))
)";

class KernelLaunch : public testing::Test {
protected:
  ~KernelLaunch() override {
    neso_context_free(context_);
    neso_model_free(model_);
    fs::remove_all(folder_);
  }

  void compile(const char *name, const char *signature, std::vector<KernelSource::NamedText> constexprs,
               std::vector<KernelSource::NamedText> hints = {}) {
    folder_ = fs::temp_directory_path() / ("neso_kernel_launch_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    KernelSource source;
    source.file = folder_ / "k.py", source.function = name_ = name, source.signature = signature;
    source.constexprs = std::move(constexprs), source.hints = std::move(hints);
    std::ofstream(source.file) << kSource;
    Result<Kernel> kernel = Kernel::read(source);
    ASSERT_TRUE(kernel) << kernel.error().str();
    Result<std::string> bytes = kernel->package("cpu", {"native"});
    ASSERT_TRUE(bytes) << bytes.error().str();
    bytes_ = std::move(*bytes);
    ASSERT_EQ(neso_model_load_memory(bytes_.data(), bytes_.size(), nullptr, &model_), NESO_OK) << neso_error_text();
    neso_context_options options{};
    options.struct_size = sizeof options;
    options.threads = 1;
    ASSERT_EQ(neso_context_create(model_, &options, &context_), NESO_OK) << neso_error_text();
  }
  static neso_arg pointer(void *p) {
    neso_arg a;
    a.ptr = p;
    return a;
  }
  static neso_arg number(int64_t v) {
    neso_arg a;
    a.i64 = v;
    return a;
  }
  neso_status launch(std::vector<neso_arg> args, std::vector<int64_t> bytes, std::array<uint32_t, 3> grid = {1, 1, 1}) {
    return neso_kernel_launch_checked(context_, name_, grid.data(), args.data(), bytes.empty() ? nullptr : bytes.data(),
                                      args.size());
  }

  fs::path folder_;
  const char *name_ = nullptr;
  std::string bytes_;
  neso_model *model_ = nullptr;
  neso_context *context_ = nullptr;
  alignas(16) float x_[128] = {}, y_[128] = {};
};

TEST_F(KernelLaunch, BuffersMustHoldWhatIsCertainToBeTouched) {
  ASSERT_NO_FATAL_FAILURE(compile("add", "*fp32,*fp32,i32,constexpr", {{"BLOCK", "32"}}));
  std::vector<neso_arg> args = {pointer(x_), pointer(y_), number(100)};
  EXPECT_EQ(launch(args, {400, 400, -1}, {4, 1, 1}), NESO_OK) << neso_error_text();
  // Two programs of 32 reach 64 of the 100 elements.
  EXPECT_EQ(launch(args, {256, 256, -1}, {2, 1, 1}), NESO_OK) << neso_error_text();
  EXPECT_EQ(y_[99], 1.0f);
  EXPECT_EQ(launch(args, {400, 396, -1}, {4, 1, 1}), NESO_KERNEL_BUFFER_SIZE);
  EXPECT_STREQ(neso_error_text(), "argument 1 of kernel 'add' is a buffer of 396 bytes, but over a grid of 4 x 1 x 1 "
                                  "the kernel touches bytes [0, 400) of it (line 7)");
  EXPECT_EQ(launch(args, {252, -1, -1}, {2, 1, 1}), NESO_KERNEL_BUFFER_SIZE);
  // More programs than elements: the mask decides. No elements, or no programs: nothing is touched.
  EXPECT_EQ(launch(args, {400, 400, -1}, {50, 1, 1}), NESO_OK) << neso_error_text();
  EXPECT_EQ(launch({pointer(x_), pointer(y_), number(0)}, {0, 0, -1}, {4, 1, 1}), NESO_OK) << neso_error_text();
  EXPECT_EQ(launch(args, {0, 0, -1}, {0, 1, 1}), NESO_OK) << neso_error_text();
  EXPECT_EQ(launch(args, {0, 0, -1}, {7, 1, 0}), NESO_OK) << neso_error_text();
}

TEST_F(KernelLaunch, MemoryThatTheContextLentHasAKnownSize) {
  ASSERT_NO_FATAL_FAILURE(compile("add", "*fp32,*fp32,i32,constexpr", {{"BLOCK", "32"}}));
  void *small = nullptr;
  ASSERT_EQ(neso_context_allocate(context_, 64, &small), NESO_OK);
  std::vector<neso_arg> args = {pointer(x_), pointer(small), number(17)};
  uint32_t grid[3] = {1, 1, 1};
  EXPECT_EQ(neso_kernel_launch(context_, "add", grid, args.data(), args.size()), NESO_KERNEL_BUFFER_SIZE);
  args[2] = number(16);
  EXPECT_EQ(neso_kernel_launch(context_, "add", grid, args.data(), args.size()), NESO_OK) << neso_error_text();
}

TEST_F(KernelLaunch, GroupedProgramsAreFollowedToTheLast) {
  ASSERT_NO_FATAL_FAILURE(
      compile("grouped", "*fp32,*fp32,i32,i32,i32,constexpr,constexpr", {{"B", "4"}, {"GROUP", "2"}}));
  // 10 x 8 elements: 3 x 2 tiles. The last program's rows wrap around (8, 9, 0, 1), so that it reaches row 9; its
  // columns are 4 to 7.
  std::vector<neso_arg> args = {pointer(x_), pointer(y_), number(10), number(8), number(8)};
  EXPECT_EQ(launch(args, {320, 320, -1, -1, -1}, {6, 1, 1}), NESO_OK) << neso_error_text();
  EXPECT_EQ(launch(args, {320, 316, -1, -1, -1}, {6, 1, 1}), NESO_KERNEL_BUFFER_SIZE);
  EXPECT_NE(std::string(neso_error_text()).find("touches bytes [16, 320) of it"), std::string::npos)
      << neso_error_text();
}

TEST_F(KernelLaunch, WhatDependsOnDataIsNotRefused) {
  ASSERT_NO_FATAL_FAILURE(compile("pick", "*fp32,*i32,*fp32", {}));
  alignas(16) int32_t index[16] = {};
  EXPECT_EQ(launch({pointer(x_), pointer(index), pointer(y_)}, {4, 64, 64}), NESO_OK) << neso_error_text();
  EXPECT_EQ(launch({pointer(x_), pointer(index), pointer(y_)}, {4, 60, 64}), NESO_KERNEL_BUFFER_SIZE);
}

TEST_F(KernelLaunch, ArgumentsMustBeAlignedAsCompiledFor) {
  ASSERT_NO_FATAL_FAILURE(
      compile("add", "*fp32,*fp32,i32,constexpr", {{"BLOCK", "32"}}, {{"n", "divisible_by_16"}, {"x", "none"}}));
  EXPECT_EQ(launch({pointer(x_), pointer(y_), number(16)}, {}), NESO_OK) << neso_error_text();
  EXPECT_EQ(launch({pointer(x_ + 1), pointer(y_), number(16)}, {}), NESO_OK) << neso_error_text();
  EXPECT_EQ(launch({pointer(x_), pointer(y_ + 1), number(16)}, {}), NESO_KERNEL_ALIGNMENT);
  EXPECT_NE(std::string(neso_error_text()).find("argument 1 of kernel 'add'"), std::string::npos) << neso_error_text();
  EXPECT_EQ(launch({pointer(x_), pointer(y_), number(17)}, {}), NESO_KERNEL_ALIGNMENT);
  EXPECT_NE(std::string(neso_error_text())
                .find("argument 2 of kernel 'add' is 17, but the kernel was compiled for a multiple of 16"),
            std::string::npos)
      << neso_error_text();
}

TEST_F(KernelLaunch, GridsBeyondProgramIdsAreRefused) {
  ASSERT_NO_FATAL_FAILURE(compile("add", "*fp32,*fp32,i32,constexpr", {{"BLOCK", "32"}}));
  std::vector<neso_arg> args = {pointer(x_), pointer(y_), number(0)};
  EXPECT_EQ(launch(args, {}, {2147483648u, 1, 1}), NESO_KERNEL_GRID);
  EXPECT_EQ(launch(args, {}, {2147483647u, 2147483647u, 4}), NESO_KERNEL_GRID);
  EXPECT_EQ(launch(args, {}, {2147483647u, 2147483647u, 0}), NESO_OK) << neso_error_text();
}

} // namespace
} // namespace neso
