// Claim: what Facts says of expressions holds at every point: random expressions over sizes and loop indices are evaluated at
// all values that the symbols may have. The other way, that it says something at all, is counted.
#include <gtest/gtest.h>
#include <random>

#include "ir/shape/expr.h"

namespace neso {
namespace {

using Values = SymbolMap<int64_t>;

/// Two sizes, two loops over extents of them, and all values that they have together.
struct Box {
  Symbol s0 = Symbol::size("s0"), s1 = Symbol::size("s1"), i0 = Symbol::index(0), i1 = Symbol::index(1);
  Facts facts;
  std::vector<Values> points;

  explicit Box(std::mt19937 &rng) {
    auto pick = [&](int n) { return static_cast<int64_t>(rng() % static_cast<unsigned>(n)); };
    const Interval first = {pick(3), 2 + pick(3)};
    const int64_t divisor = int64_t{1} << pick(3), most = pick(3);
    facts.setRange(s0, first);
    facts.setRange(s1, {divisor * -pick(2), divisor * most});
    facts.setDivisor(s1, divisor);
    const Expr extents[] = {s0, Expr(4), 2 * Expr(s0), s0 * Expr(s1), max(s1, 1), floorDiv(Expr(s0) + 1, 2)};
    const Expr a = extents[pick(6)], b = extents[pick(6)];
    facts.setIndex(i0, a), facts.setIndex(i1, b);
    for (int64_t v0 = first.lo; v0 <= first.hi; ++v0)
      for (int64_t v1 = facts.range(s1).lo; v1 <= divisor * most; v1 += divisor) {
        Values at = {{s0, v0}, {s1, v1}};
        const int64_t n = *evaluate(a, at), m = *evaluate(b, at);
        for (at[i0] = 0; at[i0] < n; ++at[i0])
          for (at[i1] = 0; at[i1] < m; ++at[i1]) points.push_back(at);
      }
  }
};

/// Random expressions over the box, the plain ones first.
std::vector<Expr> randomExprs(std::mt19937 &rng, const Box &box) {
  auto pick = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  std::vector<Expr> pool = {box.s0, box.s1, box.i0, box.i1, Expr(static_cast<int64_t>(pick(9)) - 4), Expr(1 << pick(5))};
  if (pick(8) == 0) pool.push_back(pick(2) ? INT64_MAX : INT64_MIN);
  for (int step = 0; step < 10; ++step) {
    const Expr a = pool[pick(pool.size())], b = pool[pick(pool.size())], c = pool[pick(pool.size())];
    switch (pick(13)) {
    case 0: pool.push_back(a + b); break;
    case 1: pool.push_back(a - b); break;
    case 2: pool.push_back(a * Expr(static_cast<int64_t>(pick(9)) - 2)); break;
    case 3:
      if (symbolsOf(a).size() + symbolsOf(b).size() < 4) pool.push_back(a * b);
      break;
    case 4: pool.push_back(floorDiv(a, Expr(1 + static_cast<int64_t>(pick(8))))); break;
    case 5: pool.push_back(mod(a, Expr(1 + static_cast<int64_t>(pick(8))))); break;
    case 6:
      if (!b.isConst(0)) pool.push_back(pick(2) ? floorDiv(a, b) : mod(a, b));
      break;
    case 7: pool.push_back(min(a, b)); break;
    case 8: pool.push_back(max(a, b)); break;
    case 9: pool.push_back(where(pick(2) ? lt(a, b) : eq(a, b), b, c)); break;
    case 10: pool.push_back(pick(2) ? le(a, b) : ne(a, b)); break;
    case 11: pool.push_back(pick(2) ? logicalAnd(lt(a, b), le(b, c)) : logicalNot(logicalOr(eq(a, b), lt(b, c)))); break;
    default: pool.push_back(ceilDiv(a, Expr(1 + static_cast<int64_t>(pick(4)))));
    }
  }
  return pool;
}

/// The values of e at all points, where it has one.
std::vector<std::optional<int64_t>> valuesOf(Expr e, const Box &box) {
  std::vector<std::optional<int64_t>> out;
  for (const Values &at : box.points) out.push_back(evaluate(e, at));
  return out;
}

class FactsBruteForce : public ::testing::Test {
protected:
  int said = 0;

  void alone(Expr e, const std::vector<std::optional<int64_t>> &values, const Box &box) {
    const Interval range = box.facts.rangeOf(e);
    const int64_t divisor = box.facts.divisorOf(e);
    const Expr simple = box.facts.simplify(e);
    said += (range.lo != INT64_MIN) + (range.hi != INT64_MAX) + (divisor > 1) + (simple != e);
    for (size_t p = 0; p < values.size(); ++p) {
      if (!values[p]) continue;
      EXPECT_LE(range.lo, *values[p]) << e.str();
      EXPECT_GE(range.hi, *values[p]) << e.str();
      EXPECT_EQ(*values[p] % divisor, 0) << e.str();
      EXPECT_EQ(evaluate(simple, box.points[p]), values[p]) << e.str() << " simplified to " << simple.str();
    }
    for (Symbol s : symbolsOf(e))
      if (const std::optional<Affine> a = affineIn(e, s)) {
        EXPECT_FALSE(uses(a->coefficient, s) || uses(a->rest, s)) << e.str();
        const auto again = valuesOf(a->coefficient * s + a->rest, box);
        for (size_t p = 0; p < values.size(); ++p)
          if (values[p] && again[p]) EXPECT_EQ(*again[p], *values[p]) << e.str() << " affine in " << s.str();
      }
  }
  template <typename F>
  void proven(bool claim, const char *what, Expr a, Expr b, const std::vector<std::optional<int64_t>> &left,
              const std::vector<std::optional<int64_t>> &right, F holds) {
    said += claim;
    for (size_t p = 0; claim && p < left.size(); ++p)
      if (left[p] && right[p]) ASSERT_TRUE(holds(*left[p], *right[p])) << a.str() << what << b.str() << ": " << *left[p] << ", " << *right[p];
  }
};

TEST_F(FactsBruteForce, HoldsAtEveryPoint) {
  std::mt19937 rng(3);
  for (int round = 0; round < 1500 && !HasFailure(); ++round) {
    const Box box(rng);
    const std::vector<Expr> pool = randomExprs(rng, box);
    std::vector<std::vector<std::optional<int64_t>>> values;
    for (Expr e : pool) values.push_back(valuesOf(e, box)), alone(e, values.back(), box);
    for (int pair = 0; pair < 60; ++pair) {
      const size_t x = rng() % pool.size(), y = rng() % pool.size();
      const Expr a = pool[x], b = pool[y];
      const Facts &f = box.facts;
      proven(f.provablyLess(a, b), " < ", a, b, values[x], values[y], [](int64_t l, int64_t r) { return l < r; });
      proven(f.provablyLessEqual(a, b), " <= ", a, b, values[x], values[y], [](int64_t l, int64_t r) { return l <= r; });
      proven(f.provablyEqual(a, b), " == ", a, b, values[x], values[y], [](int64_t l, int64_t r) { return l == r; });
      proven(f.provablyDivisible(a, b), " is a multiple of ", a, b, values[x], values[y], [](int64_t l, int64_t r) { return r == 0 || r == -1 || l % r == 0; });
    }
  }
  EXPECT_GT(said, 40000);
}

} // namespace
} // namespace neso
