// Conversions between layouts, cat, gather and histogram on the simulator, held against the layouts' own mathematics:
// after a conversion every place holds the element that the wanted layout names. Exact.
#include <gtest/gtest.h>

#include "backend/nvidia/test/harness.h"

namespace neso::nvidia::test {
namespace {

/// Element `i` of the test tensors: the index times an odd number, so that every bit of a narrow type varies.
template <typename T> std::vector<T> pattern(int64_t n) {
  std::vector<T> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(T(uint64_t(i) * 0x9E3779B97F4A7C15u >> 7));
  return values;
}

template <typename T>
Outcome convert(const LinearLayout &source, const LinearLayout &wanted, int warps,
                llvm::Type *(*type)(llvm::LLVMContext &), T mask = T(~T(0))) {
  Kernel kernel(warps, 2);
  llvm::Type *element = type(kernel.context);
  kernel.storePlaces(1, convertTile(*kernel.block, kernel.load(0, source, element), wanted));
  std::vector<T> in = pattern<T>(int64_t(1) << source.totalOutBits()),
                 out(size_t(wanted.inSize(kRegister)) * size_t(warps) * 32);
  for (T &x : in) x &= mask;
  Outcome outcome = kernel.run({in.data(), out.data()});
  if (outcome.error.empty()) outcome.error = comparePlaces(out, wanted, in);
  return outcome;
}

llvm::Type *i1(llvm::LLVMContext &c) { return llvm::Type::getInt1Ty(c); }
llvm::Type *i8(llvm::LLVMContext &c) { return llvm::Type::getInt8Ty(c); }
llvm::Type *bf16(llvm::LLVMContext &c) { return llvm::Type::getBFloatTy(c); }
llvm::Type *f32(llvm::LLVMContext &c) { return llvm::Type::getFloatTy(c); }
llvm::Type *i32(llvm::LLVMContext &c) { return llvm::Type::getInt32Ty(c); }
llvm::Type *f64(llvm::LLVMContext &c) { return llvm::Type::getDoubleTy(c); }
llvm::Type *pointer(llvm::LLVMContext &c) { return llvm::PointerType::get(c, 1); }

TEST(Move, AnyLayoutToAnyOther) {
  std::mt19937 random(7);
  for (int i = 0; i < 120; ++i) {
    int warps = 1 << random() % 4;
    Sizes shape;
    for (unsigned rank = random() % 4; shape.size() < rank;) shape.push_back(1 << random() % 5);
    bool mixed = i % 3 == 2;
    LinearLayout a = randomLayout(random, shape, warps, mixed), b = randomLayout(random, shape, warps, mixed);
    std::string error;
    switch (i % 7) {
    case 0: error = convert<uint8_t>(a, b, warps, i1, 1).error; break;
    case 1: error = convert<uint8_t>(a, b, warps, i8).error; break;
    case 2: error = convert<uint16_t>(a, b, warps, bf16).error; break;
    case 3: error = convert<uint32_t>(a, b, warps, f32).error; break;
    case 4: error = convert<uint32_t>(a, b, warps, i32).error; break;
    case 5: error = convert<uint64_t>(a, b, warps, f64).error; break;
    case 6: error = convert<uint64_t>(a, b, warps, pointer).error; break;
    }
    ASSERT_EQ(error, "") << "case " << i << "\n" << a.str() << b.str();
  }
}

TEST(Move, RegistersOfTheSameThreadNeedNoInstruction) {
  LinearLayout a = blocked({16, 64}, {2, 4}, {2, 16}, {4, 1}, {1, 0}),
               b = blocked({16, 64}, {2, 4}, {2, 16}, {4, 1}, {0, 1});
  Outcome outcome = convert<uint32_t>(a, transposeTensor(transposeTensor(a, {1, 0}), {1, 0}), 4, f32);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.shuffles + outcome.sharedLoads + outcome.barriers, 0);
  EXPECT_EQ(convert<uint32_t>(a, b, 4, f32).error, "");
}

TEST(Move, InsideAWarpByShufflesWithoutBarrier) {
  LinearLayout a = blocked({64}, {2}, {32}, {1}, {0}), b = blocked({64}, {1}, {32}, {1}, {0});
  Outcome outcome = convert<uint32_t>(a, b, 1, f32);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.shuffles, 2);
  EXPECT_EQ(outcome.barriers, 0);
}

TEST(Move, NarrowElementsTravelInPairs) {
  // Rows by lane to the operand of an mma: neighbours stay neighbours.
  LinearLayout a = blocked({16, 16}, {1, 8}, {16, 2}, {1, 1}, {1, 0}), b = mmaOperandA({16, 16}, {1, 1}, 16);
  Outcome outcome = convert<uint16_t>(a, b, 1, bf16);
  EXPECT_EQ(outcome.error, "");
  EXPECT_LE(outcome.shuffles, 4);
}

TEST(Move, AmongWarpsByOneBarrier) {
  LinearLayout a = blocked({64, 64}, {1, 4}, {2, 16}, {4, 1}, {1, 0}),
               b = blocked({64, 64}, {4, 1}, {16, 2}, {1, 4}, {0, 1});
  Outcome outcome = convert<uint32_t>(a, b, 4, f32);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.barriers, 1);
}

TEST(Move, TwoConversionsThroughTheSameBytesWaitTwiceMore) {
  LinearLayout a = blocked({64, 64}, {1, 4}, {2, 16}, {4, 1}, {1, 0}),
               b = blocked({64, 64}, {4, 1}, {16, 2}, {1, 4}, {0, 1});
  Kernel kernel(4, 2);
  Tile there = convertTile(*kernel.block, kernel.load(0, a, kernel.b.getInt32Ty()), b);
  kernel.storePlaces(1, convertTile(*kernel.block, there, a));
  std::vector<uint32_t> in = pattern<uint32_t>(4096), out(4096);
  Outcome outcome = kernel.run({in.data(), out.data()});
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.barriers, 3);
  EXPECT_EQ(comparePlaces(out, a, in), "");
}

TEST(Move, OwnersGiveTheirResultsToCopies) {
  std::mt19937 random(3);
  for (int i = 0; i < 30; ++i) {
    int warps = 1 << random() % 3;
    LinearLayout layout = randomLayout(random, {4, 4}, warps);
    Kernel kernel(warps, 2);
    Tile tile = kernel.load(0, layout, kernel.b.getInt32Ty());
    // Copies hold rubbish.
    if (llvm::Value *owns = ownsElements(*kernel.block, layout))
      for (llvm::Value *&value : tile.values) value = kernel.b.CreateSelect(owns, value, kernel.b.getInt32(77777));
    kernel.storePlaces(1, broadcastFromOwners(*kernel.block, tile));
    std::vector<uint32_t> in = pattern<uint32_t>(16), out(size_t(layout.inSize(kRegister)) * size_t(warps) * 32);
    ASSERT_EQ(kernel.run({in.data(), out.data()}).error, "");
    ASSERT_EQ(comparePlaces(out, layout, in), "");
  }
}

TEST(Move, CatPutsTheSecondHalfBehind) {
  LinearLayout layout = blocked({32, 4}, {1, 2}, {16, 2}, {2, 1}, {1, 0});
  Kernel kernel(2, 3);
  Tile cat = catTiles(kernel.load(0, layout, kernel.b.getInt32Ty()), kernel.load(1, layout, kernel.b.getInt32Ty()));
  kernel.storePlaces(2, cat);
  std::vector<uint32_t> all = pattern<uint32_t>(256), second(all.begin() + 128, all.end()),
                        out(size_t(cat.layout.inSize(kRegister)) * 64);
  ASSERT_EQ(kernel.run({all.data(), second.data(), out.data()}).error, "");
  EXPECT_EQ(tensorShape(cat.layout), (Sizes{64, 4}));
  EXPECT_EQ(comparePlaces(out, cat.layout, all), "");
}

TEST(Move, GatherPicksAlongTheAxis) {
  std::mt19937 random(5);
  for (int axis : {0, 1}) {
    Sizes shape{16, 32}, picked = axis ? Sizes{16, 8} : Sizes{64, 32};
    LinearLayout a = randomLayout(random, shape, 4), b = randomLayout(random, picked, 4);
    Kernel kernel(4, 3);
    Tile result = gatherTile(*kernel.block, kernel.load(0, a, kernel.b.getInt32Ty()),
                             kernel.load(1, b, kernel.b.getInt32Ty()), axis);
    kernel.storePlaces(2, result);
    std::vector<uint32_t> in = pattern<uint32_t>(512), index, expected, out(size_t(b.inSize(kRegister)) * 128);
    for (int64_t i = 0; i < picked[0]; ++i) {
      for (int64_t j = 0; j < picked[1]; ++j) {
        index.push_back(random() % uint32_t(shape[size_t(axis)]));
        expected.push_back(axis ? in[size_t(i * 32 + index.back())] : in[size_t(index.back() * 32 + j)]);
      }
    }
    ASSERT_EQ(kernel.run({in.data(), index.data(), out.data()}).error, "");
    EXPECT_EQ(comparePlaces(out, b, expected), "");
  }
}

TEST(Move, HistogramCountsWhatTheMaskLets) {
  std::mt19937 random(9);
  LinearLayout a = randomLayout(random, {512}, 4), bins = randomLayout(random, {16}, 4);
  Kernel kernel(4, 3);
  Tile mask = kernel.load(1, a, kernel.b.getInt1Ty());
  kernel.storePlaces(
      2, histogramTile(*kernel.block, kernel.load(0, a, kernel.b.getInt32Ty()), &mask, bins, kernel.b.getInt32Ty()));
  std::vector<uint32_t> in, expected(16), out(size_t(bins.inSize(kRegister)) * 128);
  std::vector<uint8_t> keep;
  for (int i = 0; i < 512; ++i) {
    // Also negative ones and ones beyond the last bin.
    in.push_back(random() % 20 - 2);
    keep.push_back(random() % 2);
    if (keep.back() && in.back() < 16) ++expected[in.back()];
  }
  ASSERT_EQ(kernel.run({in.data(), keep.data(), out.data()}).error, "");
  EXPECT_EQ(comparePlaces(out, bins, expected), "");
}

} // namespace
} // namespace neso::nvidia::test
