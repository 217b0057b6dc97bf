// Units side by side may ask one context for types that do not exist yet.
#include "backend/common/units.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinTypes.h"

namespace neso {
namespace {

// Without locks in the context this destroys its table of types within a few hundred of them.
TEST(Units, MakeTypesSideBySide) {
  auto context = makeTileContext();
  // As MLIR's data flow analysis leaves it; a new context of one thread still has its locks.
  context->disableMultithreading();
  const mlir::Type element = mlir::IntegerType::get(context.get(), 32);
  constexpr int kUnits = 64, kTypes = 2000;
  std::vector<std::vector<mlir::Type>> made(kUnits);
  forEachUnit(kUnits, 4, context.get(), [&](size_t i) {
    // Every second unit asks for the same types.
    for (int64_t t = 0; t < kTypes; ++t)
      made[i].push_back(mlir::RankedTensorType::get({static_cast<int64_t>(i / 2), t}, element));
  });
  for (size_t i = 0; i < kUnits; ++i)
    for (int64_t t = 0; t < kTypes; ++t)
      ASSERT_EQ(made[i][static_cast<size_t>(t)], mlir::RankedTensorType::get({static_cast<int64_t>(i / 2), t}, element));
  EXPECT_FALSE(context->isMultithreadingEnabled());
}

TEST(Units, AreDoneOnceEach) {
  for (int threads : {0, 1, 2, 5})
    for (size_t n : {0, 1, 2, 7}) {
      std::vector<std::atomic<int>> done(n);
      forEachUnit(n, threads, nullptr, [&](size_t i) { ++done[i]; });
      for (const std::atomic<int> &d : done) EXPECT_EQ(d, 1);
    }
}

} // namespace
} // namespace neso
