// Blocks of products of 16 bits: what the cost model chooses for a chip with instructions of its own for them was, of all blocks that were
// measured there, within a few hundredths of the fastest. Times are those of `gemm` on an H200 (bench/gpu/README.md).
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/target.h"
#include "lower/tiling/cost.h"

namespace neso {
namespace {

struct Measured {
  int64_t m, n, k;
  // Microseconds in blocks of 128 x 256, 128 x 128, 64 x 256, 64 x 128, 64 x 64.
  double times[5];
};
constexpr int64_t kBlocks[5][2] = {{128, 256}, {128, 128}, {64, 256}, {64, 128}, {64, 64}};
constexpr Measured kMeasured[] = {{2048, 2048, 2048, {29.3, 29.2, 32.5, 38.5, 53.0}},
                                  {4096, 4096, 4096, {193.3, 194.6, 218.5, 276.9, 370.5}},
                                  {8192, 8192, 8192, {1626.6, 1631.1, 1788.6, 2309.3, 2951.8}},
                                  {64, 14336, 4096, {56.8, 53.7, 44.3, 50.6, 43.3}},
                                  {512, 4096, 4096, {46.8, 40.8, 34.6, 41.1, 51.0}},
                                  {4096, 14336, 4096, {723.0, 705.6, 777.7, 986.3, 1314.3}}};

DotBlock blockOf(const char *arch, const Measured &shape) {
  const Target *target = findBackend("cuda")->find(arch);
  return dotBlock(tileTarget(target->sheet, target->caps), 1, shape.m, shape.n, shape.k, 2, false);
}

TEST(Blocks, AreAmongTheFastestMeasured) {
  constexpr double kOff = 1.04;
  for (const Measured &shape : kMeasured) {
    const DotBlock chosen = blockOf("sm_90a", shape);
    const double best = *std::min_element(std::begin(shape.times), std::end(shape.times));
    double mine = 0;
    for (size_t b = 0; b < 5; ++b)
      if (kBlocks[b][0] == chosen.m && kBlocks[b][1] == chosen.n) mine = shape.times[b];
    EXPECT_GT(mine, 0) << chosen.m << " x " << chosen.n;
    EXPECT_LE(mine, kOff * best) << shape.m << " x " << shape.n << " x " << shape.k << " in " << chosen.m << " x " << chosen.n;
  }
}

// Convolutions with 64 channels: none of their columns is computed for nothing, whatever the depth.
TEST(Blocks, OfFewColumnsAreNotHalfEmpty) {
  for (const int64_t m : {100352, 32768, 25088, 4096})
    for (const int64_t k : {64, 256, 576, 1152})
      EXPECT_EQ(blockOf("sm_90a", {m, 64, k, {}}).n, 64) << m << " x 64 x " << k;
  EXPECT_EQ(blockOf("sm_90a", {100352, 64, 576, {}}).m, 256);
}

// A group of four warps has 64 rows: products with fewer, and other chips, keep the blocks of warps.
TEST(Blocks, OfFewRowsAreThoseOfOtherChips) {
  for (const Measured &shape : {Measured{16, 4096, 4096, {}}, Measured{1, 4096, 4096, {}}, Measured{4096, 32, 4096, {}}, Measured{4096, 4096, 32, {}}}) {
    const DotBlock own = blockOf("sm_90a", shape), portable = blockOf("sm_90", shape);
    EXPECT_EQ(own.m, portable.m);
    EXPECT_EQ(own.n, portable.n);
    EXPECT_EQ(own.k, portable.k);
    EXPECT_EQ(own.warps, portable.warps);
  }
}

} // namespace
} // namespace neso
