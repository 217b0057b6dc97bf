// Claim: whatever the sizes, blocks that live at the same time do not overlap and lie in the arena. Random blocks are placed, and looked at for all sizes.
#include <gtest/gtest.h>
#include <random>

#include "lower/memory/arena.h"

namespace neso::memory {
namespace {

TEST(Arena, BlocksThatLiveTogetherLieApart) {
  const Symbol s0 = Symbol::size("s0"), s1 = Symbol::size("s1");
  const Expr a = s0, b = s1;
  Facts facts;
  facts.setRange(s0, {1, 40});
  facts.setRange(s1, {0, 24});
  // Never negative, though the interval of its parts does not say so.
  const Expr h = floorDiv(a - mod(mod(a, 7) + 3, 7) + 3, 7);
  // Rounded up by a size, of either sign, of one that subtracts: what sums of sizes are made of.
  const Expr bytes[] = {4 * a, 16 * b, 64, 8 * a * b, max(a, 3 * b), floorDiv(a + 7, 2) * 8, ceilDiv(Expr(60), max(a - 1, 1)) * a, ceilDiv(90 * b, a), a * ceilDiv(Expr(12), b + 1) + 5 * b,
                        16 * h * b, 64 * h * b + h, 8 * h * h * b + 3 * h * b,
                        max((a - b) * 6, 0), 200 - 5 * a, max(floorDiv(a - 9, 4) * b, 0), max(floorDiv(b - 11, 3) * a + 130, 0) + a};
  std::mt19937 rng(7);
  auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 400; ++round) {
    std::vector<Block> blocks(static_cast<size_t>(3 + pick(9)));
    for (Block &block : blocks) {
      block.first = pick(10), block.last = block.first + pick(5);
      block.bytes = bytes[pick(std::size(bytes))] + Expr(pick(2) ? 63 : 0);
      if (pick(3) == 0) block.bytes = block.bytes + bytes[pick(std::size(bytes))];
    }
    const Expr total = placeBlocks(blocks, facts);
    for (int64_t v0 = 1; v0 <= 40; v0 += v0 < 6 ? 1 : 5)
      for (int64_t v1 = 0; v1 <= 24; v1 += v1 < 4 ? 1 : 5) {
        const SymbolMap<int64_t> at = {{s0, v0}, {s1, v1}};
        auto value = [&](Expr e) { return evaluate(e, at).value(); };
        for (const Block &x : blocks) {
          ASSERT_GE(value(x.offset), 0) << round;
          ASSERT_LE(value(x.offset + x.bytes), value(total)) << round;
          for (const Block &y : blocks)
            if (&x != &y && x.first <= y.last && y.first <= x.last)
              ASSERT_TRUE(value(x.offset + x.bytes) <= value(y.offset) || value(y.offset + y.bytes) <= value(x.offset)) << round << " at " << v0 << ", " << v1;
        }
      }
  }
}

} // namespace
} // namespace neso::memory
