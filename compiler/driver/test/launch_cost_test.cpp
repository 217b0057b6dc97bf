// The model of a GPU's launches puts configs in an order that a programmer would: enough programs, registers that
// suffice, operands that fit.
#include "driver/launch_cost.h"

#include "backend/target.h"

#include <gtest/gtest.h>

#include "ir/tile/passes/passes.h"

namespace neso {
namespace {

class LaunchCost : public testing::Test {
protected:
  double cost(const std::string &text, double programs, int warps, int stages, const char *arch = "sm_90") {
    auto module = parseTile(text, "test.ttir", context.get());
    if (!module) return -1;
    const Target &target = *findBackend("cuda")->find(arch);
    return launchCost(*(**module).getOps<tt::FuncOp>().begin(), programs, warps, stages, target.sheet, target.caps);
  }
  /// y = x + 1 over `size` elements by programs of `block`.
  double pointwise(int64_t size, int64_t block, int warps) {
    const std::string n = std::to_string(block);
    return cost("tt.func public @k(%p: tensor<" + n + "x!tt.ptr<f32>>) {\n  %v = tt.load %p : tensor<" + n +
                    "x!tt.ptr<f32>>\n  %w = arith.addf %v, %v : tensor<" + n + "xf32>\n  tt.store %p, %w : tensor<" +
                    n + "x!tt.ptr<f32>>\n  tt.return\n}",
                static_cast<double>((size + block - 1) / block), warps, 3);
  }
  /// A product of bf16 matrices of `size` rows and columns.
  double product(int64_t size, int64_t m, int64_t n, int64_t k, int warps, int stages, const char *arch = "sm_90") {
    auto type = [](int64_t r, int64_t c, const char *e) {
      return "tensor<" + std::to_string(r) + "x" + std::to_string(c) + "x" + e + ">";
    };
    const std::string a = type(m, k, "!tt.ptr<bf16>"), b = type(k, n, "!tt.ptr<bf16>"), x = type(m, k, "bf16"),
                      y = type(k, n, "bf16"), c = type(m, n, "f32");
    return cost("tt.func public @k(%a: " + a + ", %b: " + b + ", %o: " + type(m, n, "!tt.ptr<f32>") +
                    ") {\n  %zero = arith.constant dense<0.0> : " + c +
                    "\n  %lo = arith.constant 0 : i32\n  %hi = arith.constant " + std::to_string(size / k) +
                    " : i32\n  %one = arith.constant 1 : i32\n" +
                    "  %sum = scf.for %i = %lo to %hi step %one iter_args(%acc = %zero) -> (" + c +
                    ") : i32 {\n    %x = tt.load %a : " + a + "\n    %y = tt.load %b : " + b +
                    "\n    %d = tt.dot %x, %y, %acc, inputPrecision = tf32 : " + x + " * " + y + " -> " + c +
                    "\n    scf.yield %d : " + c + "\n  }\n  tt.store %o, %sum : " + type(m, n, "!tt.ptr<f32>") +
                    "\n  tt.return\n}",
                static_cast<double>(size / m * (size / n)), warps, stages, arch);
  }
  std::unique_ptr<mlir::MLIRContext> context = makeTileContext();
};

TEST_F(LaunchCost, PointwiseWantsEnoughElementsAProgram) {
  const int64_t size = 1 << 24;
  EXPECT_GT(pointwise(size, 1024, 4), 0);
  EXPECT_LT(pointwise(size, 1024, 4), pointwise(size, 32, 4));
  // So many elements a thread do not fit its registers.
  EXPECT_LT(pointwise(size, 1024, 4), pointwise(size, 1 << 16, 4));
  // With less work than processors everything costs its start.
  EXPECT_EQ(pointwise(1000, 64, 2), pointwise(1000, 1024, 2));
}

TEST_F(LaunchCost, ProductsWantLargeTilesThatFit) {
  const double good = product(4096, 128, 128, 32, 8, 4);
  EXPECT_GT(good, 0);
  EXPECT_LT(good, product(4096, 16, 16, 32, 4, 4));
  EXPECT_LT(good, product(4096, 256, 256, 32, 4, 4)); // 512 registers a thread for the sum alone
  EXPECT_LE(good, product(4096, 128, 128, 32, 8, 1));
  // Few programs: smaller tiles keep more multiprocessors busy.
  EXPECT_LT(product(512, 64, 64, 32, 4, 4), product(512, 256, 128, 32, 8, 4));
}

TEST_F(LaunchCost, OperandsBeyondSharedMemoryAreOutOfTheQuestion) {
  EXPECT_EQ(product(4096, 256, 256, 128, 8, 2, "sm_86"), 1e30);
  EXPECT_LT(product(4096, 256, 256, 128, 8, 2, "sm_90"), 1e30);
}

} // namespace
} // namespace neso
