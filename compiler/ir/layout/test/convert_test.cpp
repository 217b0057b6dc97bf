// Conversions between layouts: their kind, shuffle plans and shared buffers, against simulation of every place.
#include "ir/layout/convert.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

using namespace neso;

namespace {

/// A bijective layout of `bits` elements in one dim, with bases mixed at random among the in-dims.
LinearLayout randomRegisters(std::mt19937 &random, int registers, int lanes, int warps, bool mixed) {
  int bits = registers + lanes + warps;
  while (true) {
    std::vector<uint64_t> bases;
    for (int i = 0; i < bits; ++i) bases.push_back(uint64_t(1) << i);
    std::shuffle(bases.begin(), bases.end(), random);
    if (mixed)
      for (uint64_t &basis : bases) basis ^= random() % 3 == 0 ? bases[random() % bits] : 0;
    auto at = bases.begin();
    LinearLayout layout({{kRegister, {at, at + registers}},
                         {kLane, {at + registers, at + registers + lanes}},
                         {kWarp, {at + registers + lanes, bases.end()}},
                         {kBlock, {}}},
                        {{"dim0", int64_t(1) << bits}});
    if (layout.invertible()) return layout;
  }
}

/// Runs a shuffle plan: every wanted place gets the element that the wanted layout says.
void simulate(const ShufflePlan &plan, const LinearLayout &source, const LinearLayout &wanted) {
  for (int64_t warp = 0; warp < wanted.inSize(kWarp); ++warp) {
    for (int64_t lane = 0; lane < wanted.inSize(kLane); ++lane) {
      std::vector<bool> filled(wanted.inSize(kRegister));
      for (int64_t round = 0; round < wanted.inSize(kRegister); ++round) {
        int64_t from = plan.from.apply({{kRound, round}, {kLane, lane}, {kWarp, warp}})[0].second;
        int64_t given = plan.give.apply({{kRound, round}, {kLane, from}, {kWarp, warp}})[0].second;
        int64_t put = plan.put.apply({{kRound, round}, {kLane, lane}})[0].second;
        ASSERT_EQ(source.apply({{kRegister, given}, {kLane, from}, {kWarp, warp}}),
                  wanted.apply({{kRegister, put}, {kLane, lane}, {kWarp, warp}}));
        filled[put] = true;
      }
      ASSERT_TRUE(std::find(filled.begin(), filled.end(), false) == filled.end());
    }
  }
}

TEST(Conversion, KindsByHand) {
  LinearLayout row = blockedLayout({32, 32}, {{1, 4}, {4, 8}, {4, 1}, {1, 0}});
  EXPECT_EQ(conversion(row, row).move, Move::None);
  // The same threads, registers in another order.
  LinearLayout swapped =
      row.reshapeIns({{"low", 2}, {"high", row.inSize(kRegister) / 2}, {kLane, 32}, {kWarp, 4}, {kBlock, 1}})
          .transposeIns({"high", "low", kLane, kWarp, kBlock})
          .reshapeIns({{kRegister, row.inSize(kRegister)}, {kLane, 32}, {kWarp, 4}, {kBlock, 1}});
  EXPECT_EQ(conversion(row, swapped).move, Move::Registers);
  EXPECT_EQ(conversion(row, blockedLayout({32, 32}, {{1, 1}, {1, 32}, {4, 1}, {1, 0}})).move, Move::Shared);
  EXPECT_EQ(conversion(blockedLayout({4, 32}, {{1, 1}, {1, 32}, {4, 1}, {1, 0}}),
                       blockedLayout({4, 32}, {{1, 1}, {1, 32}, {4, 1}, {1, 0}}))
                .move,
            Move::None);
  EXPECT_EQ(conversion(blockedLayout({64, 8}, {{1, 4}, {16, 2}, {4, 1}, {1, 0}}),
                       blockedLayout({64, 8}, {{1, 2}, {16, 2}, {4, 1}, {1, 0}}))
                .move,
            Move::Shuffle);
  EXPECT_EQ(
      conversion(blockedLayout({64}, {{1}, {32}, {1}, {0}, {2}}), blockedLayout({64}, {{2}, {32}, {1}, {0}})).move,
      Move::Cluster);
  // Each warp of the first has all of the row, so none needs another.
  EXPECT_EQ(conversion(blockedLayout({32}, {{1}, {32}, {4}, {0}}),
                       blockedLayout({32}, {{1}, {8}, {4}, {0}}).resizeIn(kLane, 32))
                .move,
            Move::Shuffle);
  // Accumulators of one dot become operand A of the next without leaving the thread (flash attention).
  EXPECT_EQ(conversion(mmaAccumulator({64, 32}, {4, 1}), mmaOperandA({64, 32}, {4, 1}, 16)).move, Move::None);
  EXPECT_STREQ(name(Move::Shuffle), "shuffle");
}

TEST(Conversion, RandomBijectionsEqualTheNaivePermutation) {
  std::mt19937 random(21);
  int kinds[5] = {};
  for (int round = 0; round < 300; ++round) {
    LinearLayout source = randomRegisters(random, 2, 3, 1, true);
    LinearLayout wanted = randomRegisters(random, 2, 3, 1, true);
    // Every other pair differs only inside the warp or the thread.
    if (round % 2) {
      std::vector<LinearLayout::In> ins = source.ins();
      for (int i = 0; i < 3; ++i)
        std::swap(ins[0].bases[random() % 2], round % 4 == 1 ? ins[1].bases[random() % 3] : ins[0].bases[random() % 2]);
      for (uint64_t &basis : ins[2].bases) basis ^= ins[random() % 2].bases[0];
      wanted = LinearLayout(ins, source.outSizes());
    }
    Conversion c = conversion(source, wanted);
    ++kinds[int(c.move)];
    uint64_t farthest = 0;
    for (uint64_t x = 0; x < 64; ++x) {
      uint64_t from = c.fetch.applyFlat(x);
      ASSERT_EQ(source.applyFlat(from), wanted.applyFlat(x));
      // Bijective: the place is the only one, so it tells the kind.
      farthest |= from ^ x;
    }
    Move expected = farthest >> 5   ? Move::Shared
                    : farthest >> 2 ? Move::Shuffle
                    : farthest      ? Move::Registers
                                    : Move::None;
    EXPECT_EQ(c.move, expected);
    std::optional<ShufflePlan> plan = shufflePlan(c);
    // A bijection inside the warp always has a plan: no element is wanted twice.
    ASSERT_EQ(plan.has_value(), c.move <= Move::Shuffle);
    if (plan) simulate(*plan, source, wanted);
  }
  EXPECT_GT(kinds[int(Move::Registers)], 10);
  EXPECT_GT(kinds[int(Move::Shuffle)], 30);
  EXPECT_GT(kinds[int(Move::Shared)], 30);
}

TEST(Conversion, ShufflesBetweenBlockedLayouts) {
  Sizes shape{32, 16};
  std::vector<Sizes> lanes{{32, 1}, {16, 2}, {8, 4}, {4, 8}, {2, 16}};
  int plans = 0;
  for (const Sizes &from : lanes)
    for (const Sizes &to : lanes)
      for (int64_t vec : {1, 2, 4, 16}) {
        LinearLayout source = blockedLayout(shape, {{1, vec}, from, {1, 1}, {1, 0}});
        LinearLayout wanted = blockedLayout(shape, {{vec, 1}, to, {1, 1}, {0, 1}});
        Conversion c = conversion(source, wanted);
        EXPECT_LE(c.move, Move::Shuffle);
        std::optional<ShufflePlan> plan = shufflePlan(c);
        if (!plan) continue;
        ++plans;
        simulate(*plan, source, wanted);
      }
  EXPECT_GT(plans, 90);
}

TEST(Conversion, NoPlanBeyondTheWarpOrForTwoRegistersAtOnce) {
  EXPECT_FALSE(shufflePlan(conversion(blockedLayout({128}, {{1}, {32}, {4}, {0}}),
                                      blockedLayout({128}, {{4}, {32}, {1}, {0}}).resizeIn(kWarp, 4))));
  // Each warp has all four elements, two a lane, and wants two of them, one a lane: both lie in the registers of one
  // lane.
  LinearLayout source({{kRegister, {1}}, {kLane, {2}}, {kWarp, {0}}, {kBlock, {}}}, {{"dim0", 4}});
  LinearLayout wanted({{kRegister, {}}, {kLane, {1}}, {kWarp, {2}}, {kBlock, {}}}, {{"dim0", 4}});
  Conversion c = conversion(source, wanted);
  EXPECT_EQ(c.move, Move::Shuffle);
  EXPECT_FALSE(shufflePlan(c));
}

TEST(Access, Widths) {
  // 4 a thread along dim1: 4 floats in a 16-byte access, 2 when the addresses run only by 2.
  LinearLayout row = blockedLayout({8, 128}, {{1, 4}, {1, 32}, {4, 1}, {1, 0}});
  EXPECT_EQ(widestAccess(row, "dim1", 4).width, 4);
  EXPECT_EQ(widestAccess(row, "dim1", 2).width, 2);
  EXPECT_EQ(widestAccess(row, "dim0", 4).width, 1);
  // Registers in another order are still found: dim0 is fastest here.
  LinearLayout brick = blockedLayout({64, 128}, {{2, 4}, {1, 32}, {4, 1}, {0, 1}});
  Access access = widestAccess(brick, "dim1", 8);
  EXPECT_EQ(access.width, 4);
  EXPECT_EQ(access.registerBits, (std::vector<int>{1, 2}));
  EXPECT_EQ(brick.consecutiveRun(kRegister, "dim1"), 1);
  // mma accumulators: two neighbours.
  EXPECT_EQ(widestAccess(mmaAccumulator({64, 64}, {2, 2}), "dim1", 4).width, 2);
}

TEST(Shared, TrafficByHand) {
  // 32 rows of 32 floats, a lane a row, unswizzled: all lanes hit one bank. Row by row there is no conflict.
  LinearLayout plain = sharedLayout({32, 32}, {1, 0});
  LinearLayout byRow = blockedLayout({32, 32}, {{1, 1}, {1, 32}, {1, 1}, {1, 0}}),
               byColumn = blockedLayout({32, 32}, {{1, 1}, {32, 1}, {1, 1}, {0, 1}});
  SharedTraffic good = sharedTraffic(*byRow.invertAndCompose(plain), 32);
  EXPECT_EQ(good.instructions, 32);
  EXPECT_EQ(good.wavefronts, 32);
  // A column a lane holds its row in registers: 16-byte accesses, whose 8 lanes of a quarter share 4 banks.
  SharedTraffic bad = sharedTraffic(*byColumn.invertAndCompose(plain), 32);
  EXPECT_EQ(bad.access.width, 4);
  EXPECT_EQ(bad.instructions, 8);
  EXPECT_EQ(bad.wavefronts, 8 * 32);
  SharedPlan plan = cheapestShared(byRow, byColumn, 32);
  EXPECT_EQ(plan.store.wavefronts + plan.load.wavefronts, 64);
}

TEST(Shared, CheapestBufferReachesTheBoundOfTheBanks) {
  for (int bits : {16, 32}) {
    // Coalesced rows of 16 bytes into mma operands, and a transposition.
    LinearLayout rows = blockedLayout({64, 64}, {{1, 128 / bits}, {4, 8}, {4, 1}, {1, 0}});
    LinearLayout operand = mmaOperandA({64, 64}, {4, 1}, bits),
                 columns = blockedLayout({64, 64}, {{128 / bits, 1}, {8, 4}, {1, 4}, {0, 1}});
    for (const LinearLayout &wanted : {operand, columns}) {
      SharedPlan plan = cheapestShared(rows, wanted, bits);
      EXPECT_TRUE(plan.buffer.invertible());
      // What is stored is what is loaded, by simulation of the buffer.
      LinearLayout store = *rows.invertAndCompose(plan.buffer), load = *wanted.invertAndCompose(plan.buffer);
      std::vector<uint64_t> memory(64 * 64);
      for (uint64_t x = 0; x < uint64_t(1) << rows.totalInBits(); ++x) memory[store.applyFlat(x)] = rows.applyFlat(x);
      for (uint64_t x = 0; x < uint64_t(1) << wanted.totalInBits(); ++x)
        ASSERT_EQ(memory[load.applyFlat(x)], wanted.applyFlat(x));
      // A wavefront moves at most 128 bytes and an instruction takes at least one. The best buffer reaches that bound
      // on both sides.
      int64_t least = rows.inSize(kRegister) * 32 * bits / 8 / 128;
      EXPECT_EQ(plan.store.wavefronts, std::max(least, plan.store.instructions));
      EXPECT_EQ(plan.load.wavefronts, std::max(least, plan.load.instructions));
    }
  }
}

} // namespace
