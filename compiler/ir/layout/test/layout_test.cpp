// The laws of linear layouts on seeded random layouts, against enumeration of all indices.
#include "ir/layout/layout.h"

#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "ir/layout/f2.h"

using namespace neso;

namespace {

struct Random {
  std::mt19937_64 engine;
  explicit Random(int seed) : engine(uint64_t(seed)) {}
  int upTo(int n) { return int(engine() % uint64_t(n + 1)); }
};

/// Any linear map from in-dims of the given bits to out-dims of the given bits.
LinearLayout randomLayout(Random &random, const std::vector<std::pair<std::string, int>> &ins, const DimValues &outs) {
  int outBits = LinearLayout({}, outs).totalOutBits();
  std::vector<LinearLayout::In> dims;
  for (const auto &[name, bits] : ins) {
    LinearLayout::In dim{name, {}};
    // A third of the bases is zero or a single bit, as in layouts that occur.
    for (int i = 0; i < bits; ++i) {
      uint64_t basis = random.engine() & ((uint64_t(1) << outBits) - 1);
      if (random.upTo(2) == 0) basis = outBits && random.upTo(1) ? uint64_t(1) << random.upTo(outBits - 1) : 0;
      dim.bases.push_back(basis);
    }
    dims.push_back(dim);
  }
  return LinearLayout(dims, outs);
}

LinearLayout randomBijection(Random &random, const std::vector<std::pair<std::string, int>> &ins,
                             const DimValues &outs) {
  LinearLayout layout = randomLayout(random, ins, outs);
  int tries = 0;
  while (!layout.invertible() && ++tries < 10000) layout = randomLayout(random, ins, outs);
  EXPECT_TRUE(layout.invertible());
  return layout;
}

uint64_t inCount(const LinearLayout &layout) { return uint64_t(1) << layout.totalInBits(); }
uint64_t outCount(const LinearLayout &layout) { return uint64_t(1) << layout.totalOutBits(); }

std::set<uint64_t> image(const LinearLayout &layout) {
  std::set<uint64_t> reached;
  for (uint64_t x = 0; x < inCount(layout); ++x) reached.insert(layout.applyFlat(x));
  return reached;
}

constexpr int kRounds = 200;

TEST(F2, SolveAgainstAllSubsets) {
  Random random(1);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<uint64_t> vectors;
    Span span;
    for (int i = random.upTo(6); i > 0; --i) {
      vectors.push_back(random.engine() & 31);
      span.insert(vectors.back());
    }
    std::set<uint64_t> sums;
    auto sum = [&](uint64_t subset) {
      uint64_t s = 0;
      for (size_t i = 0; i < vectors.size(); ++i)
        if (subset >> i & 1) s ^= vectors[i];
      return s;
    };
    for (uint64_t subset = 0; subset < uint64_t(1) << vectors.size(); ++subset) sums.insert(sum(subset));
    EXPECT_EQ(sums.size(), size_t(1) << span.rank());
    for (uint64_t target = 0; target < 32; ++target) {
      std::optional<uint64_t> subset = span.solve(target);
      EXPECT_EQ(subset.has_value(), sums.count(target) == 1);
      if (subset) {
        EXPECT_EQ(sum(*subset), target);
      }
    }
  }
}

TEST(LinearLayout, ExampleOfTheHeader) {
  LinearLayout layout = LinearLayout::identity1D(2, kRegister, "dim1") * LinearLayout::identity1D(4, kLane, "dim1") *
                        LinearLayout::identity1D(2, kLane, "dim0") * LinearLayout::identity1D(2, kWarp, "dim0");
  EXPECT_EQ(layout.str(), "register=1 -> (dim1=1, dim0=0)\n"
                          "lane=1 -> (dim1=2, dim0=0)\n"
                          "lane=2 -> (dim1=4, dim0=0)\n"
                          "lane=4 -> (dim1=0, dim0=1)\n"
                          "warp=1 -> (dim1=0, dim0=2)\n"
                          "out: dim1=8, dim0=4\n");
  EXPECT_EQ(layout.apply({{kRegister, 1}, {kLane, 5}, {kWarp, 1}}), (DimValues{{"dim1", 3}, {"dim0", 3}}));
  EXPECT_TRUE(layout.invertible());
  EXPECT_EQ(layout.basis(kLane, 2, "dim0"), 1);
}

TEST(LinearLayout, OneDimensional) {
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(LinearLayout::identity1D(8, "a", "b").apply({{"a", i}})[0].second, i);
    EXPECT_EQ(LinearLayout::strided1D(8, 4, "a", "b").apply({{"a", i}})[0].second, 4 * i);
    EXPECT_EQ(LinearLayout::zeros1D(8, "a", "b", 2).apply({{"a", i}})[0].second, 0);
  }
  EXPECT_EQ(LinearLayout::strided1D(8, 4, "a", "b").outSize("b"), 32);
  EXPECT_FALSE(LinearLayout::strided1D(8, 4, "a", "b").surjective());
  LinearLayout some = LinearLayout::identity1D(4, "a", "b");
  EXPECT_EQ(LinearLayout() * some, some);
  EXPECT_EQ(some * LinearLayout(), some);
}

TEST(LinearLayout, RankQuestionsAgainstEnumeration) {
  Random random(2);
  for (int round = 0; round < kRounds; ++round) {
    LinearLayout layout = randomLayout(random, {{"a", random.upTo(3)}, {"b", random.upTo(3)}},
                                       {{"x", 1 << random.upTo(2)}, {"y", 1 << random.upTo(3)}});
    size_t reached = image(layout).size();
    EXPECT_EQ(layout.surjective(), reached == outCount(layout));
    EXPECT_EQ(layout.injective(), reached == inCount(layout));
    // With the free bits held at 0 each element is reached once.
    uint64_t free = layout.freeMask("a") | layout.freeMask("b") << layout.inBits("a");
    std::set<uint64_t> once;
    size_t count = 0;
    for (uint64_t x = 0; x < inCount(layout); ++x) {
      if (x & free) continue;
      ++count;
      once.insert(layout.applyFlat(x));
    }
    EXPECT_EQ(count, reached);
    EXPECT_EQ(once.size(), reached);
  }
}

TEST(LinearLayout, ComposeIsApplyTwice) {
  Random random(3);
  for (int round = 0; round < kRounds; ++round) {
    LinearLayout a = randomLayout(random, {{"r", 3}, {"l", 3}}, {{"x", 4}, {"y", 8}});
    LinearLayout b = randomLayout(random, {{"y", 4}, {"x", 2}}, {{"u", 8}, {"v", 2}});
    LinearLayout c = randomLayout(random, {{"u", 3}, {"v", 1}}, {{"z", 16}});
    LinearLayout ab = a.compose(b);
    for (int64_t r = 0; r < 8; ++r) {
      for (int64_t l = 0; l < 8; ++l) {
        DimValues index{{"r", r}, {"l", l}};
        EXPECT_EQ(ab.apply(index), b.apply(a.apply(index)));
      }
    }
    EXPECT_EQ(ab.compose(c), a.compose(b.compose(c)));
  }
}

TEST(LinearLayout, ProductSplitsEveryDim) {
  Random random(4);
  for (int round = 0; round < kRounds; ++round) {
    LinearLayout a =
        randomLayout(random, {{"r", random.upTo(2)}, {"l", random.upTo(2)}}, {{"x", 1 << random.upTo(2)}, {"y", 2}});
    LinearLayout b = randomLayout(random, {{"l", random.upTo(2)}, {"w", 1}}, {{"y", 1 << random.upTo(2)}, {"z", 4}});
    LinearLayout product = a * b;
    for (int64_t r = 0; r < a.inSize("r"); ++r) {
      for (int64_t l = 0; l < product.inSize("l"); ++l) {
        for (int64_t w = 0; w < 2; ++w) {
          int64_t low = l % a.inSize("l"), high = l / a.inSize("l");
          DimValues fromA = a.apply({{"r", r}, {"l", low}}), fromB = b.apply({{"l", high}, {"w", w}});
          DimValues expected{
              {"x", fromA[0].second}, {"y", fromA[1].second + 2 * fromB[0].second}, {"z", fromB[1].second}};
          EXPECT_EQ(product.apply({{"r", r}, {"l", l}, {"w", w}}), expected);
        }
      }
    }
    std::optional<LinearLayout> rest = product.divideLeft(a);
    ASSERT_TRUE(rest.has_value());
    EXPECT_EQ(a * *rest, product);
    EXPECT_EQ((a * b) * a, a * (b * a));
  }
}

TEST(LinearLayout, DivideLeftRefuses) {
  LinearLayout row = LinearLayout::identity1D(8, kRegister, "x");
  EXPECT_FALSE(row.divideLeft(LinearLayout::identity1D(16, kRegister, "x")));
  EXPECT_FALSE(row.divideLeft(LinearLayout::identity1D(2, kLane, "x")));
  EXPECT_FALSE(row.divideLeft(LinearLayout::zeros1D(2, kRegister, "x")));
  // The basis above the tile also moves inside the tile.
  LinearLayout twisted({{kRegister, {1, 3}}}, {{"x", 4}});
  EXPECT_FALSE(twisted.divideLeft(LinearLayout::identity1D(2, kRegister, "x")));
}

TEST(LinearLayout, InverseLaws) {
  Random random(5);
  for (int round = 0; round < kRounds; ++round) {
    LinearLayout layout = randomBijection(random, {{"a", 2}, {"b", 3}}, {{"x", 8}, {"y", 4}});
    LinearLayout inverse = layout.invert();
    EXPECT_EQ(inverse.outSizes(), layout.inSizes());
    for (uint64_t x = 0; x < 32; ++x) {
      EXPECT_EQ(inverse.applyFlat(layout.applyFlat(x)), x);
      EXPECT_EQ(layout.applyFlat(inverse.applyFlat(x)), x);
      EXPECT_EQ(layout.compose(inverse).applyFlat(x), x);
    }
    EXPECT_EQ(inverse.invert(), layout);
  }
}

TEST(LinearLayout, PseudoinverseIsARightInverseWithoutFreeBits) {
  Random random(6);
  int tested = 0;
  for (int round = 0; round < 4 * kRounds; ++round) {
    LinearLayout layout = randomLayout(random, {{"a", 3}, {"b", 4}}, {{"x", 4}, {"y", 4}});
    if (!layout.surjective()) continue;
    ++tested;
    LinearLayout inverse = layout.pseudoinvert();
    uint64_t free = layout.freeMask("a") | layout.freeMask("b") << 3;
    for (uint64_t y = 0; y < 16; ++y) {
      EXPECT_EQ(layout.applyFlat(inverse.applyFlat(y)), y);
      EXPECT_EQ(inverse.applyFlat(y) & free, 0u);
    }
  }
  EXPECT_GT(tested, kRounds);
}

/// The naive conversion: put every element into a tensor by the source layout, then read it by the destination layout.
TEST(LinearLayout, ConversionEqualsTheNaivePermutation) {
  Random random(7);
  int possible = 0, impossible = 0;
  for (int round = 0; round < 4 * kRounds; ++round) {
    LinearLayout source = randomLayout(random, {{kRegister, 1 + random.upTo(2)}, {kLane, 2}, {kWarp, random.upTo(2)}},
                                       {{"x", 4}, {"y", 4}});
    LinearLayout wanted = randomLayout(random, {{kRegister, 1 + random.upTo(2)}, {kLane, 2}, {kWarp, random.upTo(2)}},
                                       {{"y", 4}, {"x", 4}});
    std::set<uint64_t> held = image(source);
    bool covered = true;
    for (uint64_t element : image(wanted.transposeOuts({"x", "y"}))) covered = covered && held.count(element);

    std::optional<LinearLayout> fetch = wanted.invertAndCompose(source);
    ASSERT_EQ(fetch.has_value(), covered);
    ++(covered ? possible : impossible);
    if (!fetch) continue;
    // `places` holds at each source place the number of its element.
    std::vector<uint64_t> places;
    for (uint64_t x = 0; x < inCount(source); ++x) places.push_back(source.applyFlat(x));
    LinearLayout sameOrder = wanted.transposeOuts({"x", "y"});
    for (uint64_t x = 0; x < inCount(wanted); ++x) EXPECT_EQ(places[fetch->applyFlat(x)], sameOrder.applyFlat(x));
  }
  EXPECT_GT(possible, 100);
  EXPECT_GT(impossible, 20);
}

TEST(LinearLayout, ConversionFetchesAsNearAsPossible) {
  Random random(8);
  int near[4] = {};
  for (int round = 0; round < 8 * kRounds; ++round) {
    LinearLayout source = randomLayout(random, {{kRegister, 2}, {kLane, 2}, {kWarp, 1}}, {{"x", 8}});
    LinearLayout wanted = source;
    if (round % 4 == 1) wanted = randomLayout(random, {{kRegister, 2}, {kLane, 2}, {kWarp, 1}}, {{"x", 8}});
    // Sums of bases of minor dims leave a conversion that stays near.
    if (round % 4 >= 2) {
      std::vector<LinearLayout::In> ins = source.ins();
      for (LinearLayout::In &dim : ins)
        for (uint64_t &basis : dim.bases) {
          basis ^= random.upTo(1) ? ins[0].bases[1] : 0;
          if (round % 4 == 3 && random.upTo(1)) basis ^= source.in(kLane).bases[0];
        }
      wanted = LinearLayout(ins, source.outSizes());
    }
    std::optional<LinearLayout> fetch = wanted.invertAndCompose(source);
    if (!fetch) continue;
    // By enumeration: does every place find its element with the dims from number p on unchanged?
    for (int p = 0; p <= 3; ++p) {
      int fixedFrom = p == 0 ? 0 : p == 1 ? 2 : p == 2 ? 4 : 5;
      bool exists = true, done = true;
      for (uint64_t x = 0; x < 32; ++x) {
        bool found = false;
        for (uint64_t from = 0; from < 32; ++from)
          found = found || (source.applyFlat(from) == wanted.applyFlat(x) && from >> fixedFrom == x >> fixedFrom);
        exists = exists && found;
        done = done && fetch->applyFlat(x) >> fixedFrom == x >> fixedFrom;
      }
      EXPECT_EQ(exists, done);
      near[p] += done;
    }
  }
  EXPECT_GT(near[0], 100);
  EXPECT_GT(near[1], near[0]);
  EXPECT_GT(near[2], near[1]);
  EXPECT_GT(near[3], near[2]);
}

TEST(LinearLayout, ReshapeKeepsTheFlatIndex) {
  Random random(9);
  for (int round = 0; round < kRounds; ++round) {
    LinearLayout layout = randomLayout(random, {{"a", 3}, {"b", 2}}, {{"x", 4}, {"y", 8}});
    LinearLayout other = layout.reshapeIns({{"p", 2}, {"q", 1}, {"r", 16}}).reshapeOuts({{"u", 16}, {"v", 2}});
    for (uint64_t x = 0; x < 32; ++x) EXPECT_EQ(other.applyFlat(x), layout.applyFlat(x));
    EXPECT_EQ(other.flattenIns("a").flattenOuts("x"), layout.flattenIns().flattenOuts());
    LinearLayout turned = layout.transposeOuts({"y", "x"}).transposeIns({"b", "a"});
    for (int64_t a = 0; a < 8; ++a) {
      for (int64_t b = 0; b < 4; ++b) {
        DimValues at = layout.apply({{"a", a}, {"b", b}});
        EXPECT_EQ(turned.apply({{"a", a}, {"b", b}}), (DimValues{at[1], at[0]}));
        EXPECT_EQ(layout.sublayout({"a", "b"}, {"y"}).apply({{"a", a}, {"b", b}}), (DimValues{at[1]}));
        EXPECT_EQ(layout.resizeOut("x", 2).apply({{"a", a}, {"b", b}}), (DimValues{{"x", at[0].second % 2}, at[1]}));
        EXPECT_EQ(layout.resizeIn("a", 16).apply({{"a", a + 8}, {"b", b}}), at);
      }
    }
    EXPECT_EQ(turned.transposeOuts({"x", "y"}).transposeIns({"a", "b"}), layout);
    EXPECT_EQ(layout.expandOut("z").expandIn("c").squeezeOut("z").squeezeIn("c"), layout);
    EXPECT_EQ(layout.renameIn("a", "n").renameIn("n", "a").renameOut("x", "n").renameOut("n", "x"), layout);
    EXPECT_EQ(layout.resizeIn("a", 16).resizeIn("a", 8), layout);
  }
  LinearLayout zeros({{"a", {0, 1, 0, 2}}}, {{"x", 4}});
  EXPECT_EQ(zeros.removeZeroBases("a"), LinearLayout::identity1D(4, "a", "x"));
}

TEST(LinearLayout, ConsecutiveRunAgainstEnumeration) {
  Random random(10);
  std::map<int64_t, int> seen;
  for (int round = 0; round < 4 * kRounds; ++round) {
    LinearLayout layout = randomLayout(random, {{kRegister, 3}, {kLane, 2}}, {{"y", 2}, {"x", 16}});
    // Half of them begin with a run, which a random layout seldom has.
    if (round % 2) layout = LinearLayout::identity1D(4, kRegister, "x") * layout;
    int64_t best = 1;
    for (int64_t n = 2; n <= layout.inSize(kRegister); n *= 2) {
      bool consecutive = true;
      for (int64_t r = 0; r < layout.inSize(kRegister); r += n) {
        for (int64_t l = 0; l < 4; ++l) {
          DimValues first = layout.apply({{kRegister, r}, {kLane, l}});
          int64_t x = layout.out("x").shift == 0 ? first[0].second : first[1].second;
          consecutive = consecutive && x % n == 0;
          for (int64_t j = 1; j < n; ++j) {
            DimValues expected = first;
            for (DimValue &value : expected)
              if (value.first == "x") value.second += j;
            consecutive = consecutive && layout.apply({{kRegister, r + j}, {kLane, l}}) == expected;
          }
        }
      }
      if (consecutive) best = n;
    }
    EXPECT_EQ(layout.consecutiveRun(kRegister, "x"), best);
    ++seen[best];
  }
  EXPECT_GE(seen.size(), 2u);
  EXPECT_EQ(LinearLayout::identity1D(8, "a", "x").consecutiveRun("b", "x"), 1);
}

TEST(LinearLayout, QuotientTakesAwayTrivialDims) {
  LinearLayout some({{kRegister, {2, 1}}, {kLane, {3}}}, {{"x", 4}});
  LinearLayout both = some * LinearLayout::identity1D(4, kBlock, kBlock);
  EXPECT_TRUE(both.trivialOn(kBlock));
  EXPECT_EQ(both.quotient({kBlock}), some);
  EXPECT_FALSE(both.quotient({kRegister}));
  // Another dim that touches `block` makes it not trivial.
  LinearLayout mixed({{kRegister, {2}}, {kBlock, {1, 2}}}, {{kBlock, 4}});
  EXPECT_FALSE(mixed.quotient({kBlock}));
  EXPECT_TRUE(LinearLayout::zeros1D(4, "a", "x").zeroOn("a"));
  EXPECT_FALSE(some.zeroOn(kRegister));
}

} // namespace
