// Blocks of products of 16 bits: what the cost model chooses for a chip with instructions of its own for them was, of all blocks that were
// measured there, close to the fastest. Times are those of `gemm` on an H100 (bench/gpu/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "backend/target.h"
#include "lower/tiling/cost.h"

namespace neso {
namespace {

// Rows, columns and slots of the ring of the blocks that were measured.
constexpr int64_t kBlocks[][3] = {{128, 256, 3}, {128, 128, 3}, {128, 128, 5}, {64, 256, 3}, {64, 128, 4}, {64, 128, 8}, {256, 64, 3}, {128, 64, 4}, {128, 64, 8}, {64, 64, 4}};
struct Measured {
  int64_t m, n, k;
  double times[std::size(kBlocks)]; // microseconds
};
constexpr Measured kMeasured[] = {{1024, 2304, 768, {14.9, 14.4, 16.4, 16.6, 15.9, 17.6, 17.8, 18.2, 18.0, 20.6}},
                                  {1024, 768, 768, {14.0, 11.7, 10.2, 10.5, 10.9, 8.9, 11.0, 11.1, 8.9, 10.6}},
                                  {1024, 3072, 768, {15.2, 14.4, 16.9, 17.2, 18.1, 18.3, 18.7, 19.5, 18.6, 24.6}},
                                  {1024, 768, 3072, {34.5, 27.8, 20.4, 22.2, 26.3, 16.6, 24.8, 27.2, 17.0, 21.0}},
                                  {512, 6144, 4096, {50.1, 48.5, 53.6, 59.3, 69.7, 59.9, 64.3, 74.5, 57.9, 77.3}},
                                  {512, 4096, 4096, {46.8, 41.4, 32.1, 36.4, 41.8, 39.7, 37.6, 42.7, 39.9, 52.7}},
                                  {512, 4096, 14336, {138.9, 115.0, 84.6, 93.1, 121.5, 124.7, 107.5, 130.6, 135.7, 168.0}},
                                  {384, 4096, 1024, {17.1, 14.6, 12.2, 13.2, 14.2, 15.5, 15.5, 14.3, 15.7, 16.8}},
                                  {384, 1024, 4096, {43.2, 34.1, 24.6, 27.3, 32.5, 19.3, 30.2, 33.0, 20.1, 15.1}},
                                  {2048, 2048, 2048, {28.7, 28.3, 31.1, 33.7, 39.8, 42.6, 38.9, 40.9, 46.1, 58.0}},
                                  {4096, 4096, 4096, {185.8, 218.3, 211.8, 226.8, 285.8, 285.2, 309.1, 308.5, 340.5, 405.2}},
                                  {25088, 384, 96, {20.0, 19.2, 21.7, 23.3, 19.9, 26.8, 21.7, 20.1, 27.5, 40.2}},
                                  {6272, 192, 768, {14.9, 13.5, 12.1, 12.4, 13.1, 14.9, 13.2, 13.2, 15.1, 15.7}},
                                  {100352, 256, 64, {36.4, 33.9, 42.8, 41.9, 38.0, 58.2, 42.5, 39.3, 57.5, 93.9}},
                                  {25088, 128, 512, {25.0, 19.9, 21.9, 26.2, 21.9, 22.1, 23.5, 23.1, 23.8, 28.1}},
                                  {6272, 256, 1024, {17.9, 16.1, 14.2, 15.1, 15.4, 17.6, 16.1, 16.6, 17.9, 18.6}},
                                  {1500, 512, 2048, {25.5, 20.6, 15.9, 17.0, 19.6, 13.1, 18.7, 19.9, 13.4, 16.7}},
                                  {4096, 3072, 2048, {77.4, 88.8, 91.5, 90.0, 112.1, 118.5, 118.8, 114.5, 136.1, 166.2}},
                                  {4096, 2048, 5632, {126.2, 145.7, 152.8, 147.3, 197.7, 208.3, 209.4, 211.8, 240.5, 282.8}}};

DotBlock blockOf(const char *arch, const Measured &shape) {
  const Target *target = findBackend("cuda")->find(arch);
  return dotBlock(tileTarget(target->sheet, target->caps), {1, shape.m, shape.n, shape.k, 2});
}

TEST(Blocks, AreAmongTheFastestMeasured) {
  // In the mean; the one that is furthest off is 4096 x 3072 x 2048, for 128 x 128 is favoured by what models have behind their products.
  constexpr double kMean = 1.02, kOff = 1.15;
  double sum = 0;
  for (const Measured &shape : kMeasured) {
    const DotBlock chosen = blockOf("sm_90a", shape);
    const double best = *std::min_element(std::begin(shape.times), std::end(shape.times));
    double mine = 0;
    for (size_t b = 0; b < std::size(kBlocks); ++b)
      if (kBlocks[b][0] == chosen.m && kBlocks[b][1] == chosen.n && kBlocks[b][2] == chosen.stages) mine = shape.times[b];
    EXPECT_GT(mine, 0) << chosen.m << " x " << chosen.n << ", " << chosen.stages;
    EXPECT_LE(mine, kOff * best) << shape.m << " x " << shape.n << " x " << shape.k << " in " << chosen.m << " x " << chosen.n;
    sum += mine / best;
  }
  EXPECT_LE(sum / static_cast<double>(std::size(kMeasured)), kMean);
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

// Blocks of 192, 144 and 96 columns fill the chip where sizes are multiples of 768: both operands lie in memory then. Behind a gelu two rounds of them are slower than
// smaller blocks of which two share a processor. The fastest of thirteen on an H200: 1024 x 2304 x 768 8.7 microseconds (128 x 192 9.9, 128 x 128 12.1), 1576 x 768 x 3072 14.4 in
// 64 x 192 (128 x 96 17.1), 512 x 6144 x 4096 35.6 in 128 x 192 (128 x 256 45.4).
TEST(Blocks, OfColumnsThatAreNoPowerOfTwo) {
  const Target *target = findBackend("cuda")->find("sm_90a");
  const TileTarget tiles = tileTarget(target->sheet, target->caps);
  auto blockFor = [&](int64_t m, int64_t n, int64_t k, bool stored, bool longEpilogue) {
    DotSizes sizes{1, m, n, k, 2};
    sizes.stored = stored, sizes.longEpilogue = longEpilogue;
    return dotBlock(tiles, sizes);
  };
  EXPECT_EQ(blockFor(1024, 3072, 768, true, true).n, 192);
  EXPECT_EQ(blockFor(1024, 2304, 768, true, false).n, 144);
  EXPECT_EQ(blockFor(1500, 1536, 512, true, false).n, 144);
  EXPECT_EQ(blockFor(512, 6144, 4096, true, false).n, 192);
  EXPECT_EQ(blockFor(1576, 768, 3072, true, false).m, 64);
  EXPECT_EQ(blockFor(1576, 768, 3072, true, false).n, 192);
  EXPECT_EQ(blockFor(384, 4096, 1024, true, true).n % 96, 0);
  EXPECT_EQ(blockFor(1576, 3072, 768, true, true).n, 128);
  for (const bool longEpilogue : {false, true})
    for (const int64_t n : {768, 1024, 2304, 3072}) {
      const int64_t columns = blockFor(1024, n, 768, false, longEpilogue).n;
      EXPECT_EQ(columns & (columns - 1), 0);
    }
}

// Attention keeps the rows of a group of warps while half of the processors have work, and takes longer steps along many keys of short heads.
TEST(Blocks, OfAttention) {
  const Target *target = findBackend("cuda")->find("sm_90a"), *portable = findBackend("cuda")->find("sm_90");
  auto block = [](const Target *t, const AttentionSizes &s) { return attentionBlock(tileTarget(t->sheet, t->caps), s); };
  EXPECT_EQ(block(target, {16, 384, 384, 64, 2}).queries, 64);
  EXPECT_EQ(block(portable, {16, 384, 384, 64, 2}).queries, 32);
  EXPECT_EQ(block(target, {16, 64, 64, 64, 2}).queries, 16);
  EXPECT_EQ(block(target, {16, 16, 4096, 64, 2}).queries, 16);
  EXPECT_EQ(block(target, {64, 4096, 4096, 128, 2}).queries, 128);
  EXPECT_EQ(block(target, {16, 384, 384, 64, 2}).keys, 64);
  EXPECT_EQ(block(target, {8, 1500, 1500, 64, 2}).keys, 128);
  EXPECT_EQ(block(portable, {8, 1500, 1500, 64, 2}).keys, 64);
  EXPECT_EQ(block(target, {32, 1024, 1024, 128, 2}).keys, 64);
  // Rounds of eight warps, of which the second would be short.
  EXPECT_EQ(block(target, {96, 197, 197, 64, 2}).warps, 4);
  EXPECT_EQ(block(target, {192, 197, 197, 64, 2}).warps, 8);
  EXPECT_EQ(block(target, {96, 197, 197, 128, 2}).warps, 8);
}

// Products of f32 by three of tf32: a thread has three sets of sums; groups of warps multiply where the right operand lies along k and their rows are
// half full.
TEST(Blocks, OfF32) {
  const Target *target = findBackend("cuda")->find("sm_90a");
  TileTarget tiles = tileTarget(target->sheet, target->caps);
  tiles.f32Products = tile::F32Products::Tf32x3;
  for (const bool split : {false, true})
    for (const DotSizes &s : {DotSizes{1, 4096, 4096, 4096, 4}, DotSizes{1, 25088, 32, 1152, 4}, DotSizes{1, 197, 768, 3072, 4}, DotSizes{1, 16, 1000, 512, 4}})
      for (const DotBlock &b : dotBlocks(tiles, {s.batch, s.m, s.n, s.k, s.itemBytes, split})) {
        EXPECT_LE(b.m * b.n, b.warps * 32 * target->sheet.splitSums);
        if (b.k == 64) EXPECT_TRUE(split && s.m > 32 && b.warps >= 4 && b.m >= 64) << b.m << " x " << b.n;
      }
  EXPECT_EQ(dotBlock(tiles, {1, 4096, 4096, 4096, 4, true}).k, 64);
  EXPECT_EQ(dotBlock(tiles, {1, 4096, 4096, 4096, 4, false}).k, 32);
  EXPECT_EQ(dotBlock(tiles, {1, 16, 4096, 4096, 4, true}).k, 32);
  // Of f64 a thread has one set.
  const DotBlock wide = dotBlock(tiles, {1, 4096, 4096, 4096, 8});
  EXPECT_GT(wide.m * wide.n, wide.warps * 32 * target->sheet.splitSums);
}

} // namespace
} // namespace neso
