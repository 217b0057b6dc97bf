#include "base/diagnostics/pt2.h"
#include "ir/shape/expr.h"

#include <gtest/gtest.h>

#include <random>

namespace neso {
namespace {

Expr s0 = symbol("s0"), s1 = symbol("s1"), i0 = symbol("i0"), i1 = symbol("i1"), r0 = symbol("r0");

TEST(Expr, CanonicalForm) {
  EXPECT_EQ(4 * (i0 + 2), 4 * i0 + 8);
  EXPECT_EQ(i0 + i1, i1 + i0);
  EXPECT_EQ((i0 + i1) * (i0 - i1), i0 * i0 - i1 * i1);
  EXPECT_EQ(i0 - i0, Expr(0));
  EXPECT_EQ(floorDiv(8 * i0 + 16 * i1 + 9, 8), i0 + 2 * i1 + 1);
  EXPECT_EQ(floorDiv(i0 * s0 + 2 * s0, s0), i0 + 2);
  EXPECT_EQ(mod(8 * i0 + i1, 8), mod(i1, 8));
  EXPECT_EQ(floorDiv(floorDiv(i0, 4), 8), floorDiv(i0, 32));
  EXPECT_EQ(floorDiv(6 * i0, 4), floorDiv(3 * i0, 2));
  EXPECT_EQ(6 * floorDiv(i0, 3) + 2 * mod(i0, 3) + i1, 2 * i0 + i1);
  EXPECT_EQ(s0 * floorDiv(i0, s0) + mod(i0, s0), i0);
  EXPECT_EQ(min(s0, s0 + 1), s0);
  EXPECT_EQ(max(s0, s0 + 1), s0 + 1);
  EXPECT_EQ(mod(Expr(-1), 8), Expr(7));
  EXPECT_EQ(lt(s0, s0 + 1), Expr(1));
}

TEST(Expr, Prints) {
  EXPECT_EQ((4 * i0 + floorDiv(s0, 2) + 1).str(), "4*i0 + s0//2 + 1");
  EXPECT_EQ((-i0 + 3).str(), "-i0 + 3");
  EXPECT_EQ(floorDiv(i0 + 1, 2).str(), "(i0 + 1)//2");
}

/// Random trees: the canonical form must mean what the plain operators mean.
TEST(Expr, RandomTreesKeepTheirValue) {
  std::mt19937 rng(7);
  auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 3000; ++round) {
    std::unordered_map<std::string, int64_t> env = {{"i0", pick(40)}, {"i1", pick(9)}, {"s0", 1 + pick(20)}};
    Facts facts;
    facts.setRange("i0", {0, 39});
    facts.setRange("i1", {0, 8});
    facts.setRange("s0", {1, 20});
    struct Pair {
      Expr e;
      int64_t v;
    };
    std::vector<Pair> pool = {
        {i0, env["i0"]}, {i1, env["i1"]}, {s0, env["s0"]}, {Expr(pick(13) - 6), 0}, {Expr(1 + pick(16)), 0}};
    for (Pair &p : pool)
      if (p.e.isConst()) p.v = p.e.constValue();
    for (int step = 0; step < 8; ++step) {
      Pair a = pool[static_cast<size_t>(pick(static_cast<int>(pool.size())))],
           b = pool[static_cast<size_t>(pick(static_cast<int>(pool.size())))];
      auto fdiv = [](int64_t x, int64_t y) {
        int64_t q = x / y;
        return (x % y != 0 && (x < 0) != (y < 0)) ? q - 1 : q;
      };
      switch (pick(7)) {
      case 0: pool.push_back({a.e + b.e, a.v + b.v}); break;
      case 1: pool.push_back({a.e - b.e, a.v - b.v}); break;
      case 2:
        if (std::abs(a.v) < 100000 && std::abs(b.v) < 100000) pool.push_back({a.e * b.e, a.v * b.v});
        break;
      case 3:
        if (b.v != 0) pool.push_back({floorDiv(a.e, b.e), fdiv(a.v, b.v)});
        break;
      case 4:
        if (b.v != 0) pool.push_back({mod(a.e, b.e), a.v - fdiv(a.v, b.v) * b.v});
        break;
      case 5: pool.push_back({min(a.e, b.e), std::min(a.v, b.v)}); break;
      default: pool.push_back({max(a.e, b.e), std::max(a.v, b.v)}); break;
      }
    }
    for (const Pair &p : pool) {
      std::optional<int64_t> v = evaluate(p.e, env);
      if (!v) continue; // a division by an expression that is zero here
      EXPECT_EQ(*v, p.v) << p.e.str();
      Interval r = facts.rangeOf(p.e);
      EXPECT_LE(r.lo, p.v) << p.e.str();
      EXPECT_GE(r.hi, p.v) << p.e.str();
      std::optional<int64_t> simple = evaluate(facts.simplify(p.e), env);
      if (simple) EXPECT_EQ(*simple, p.v) << p.e.str() << " simplified to " << facts.simplify(p.e).str();
      EXPECT_EQ(p.v % facts.divisorOf(p.e), 0) << p.e.str();
    }
  }
}

TEST(Facts, SimplifiesIndexArithmetic) {
  Facts f;
  f.setRange("s0", {2, 512});
  f.setIndex("i0", s0);
  f.setIndex("i1", Expr(8));
  EXPECT_EQ(f.simplify(mod(i1, 8)), i1);
  EXPECT_EQ(f.simplify(floorDiv(8 * i0 + i1, 8)), i0);
  EXPECT_EQ(f.simplify(mod(8 * i0 + i1, 16)), 8 * mod(i0, 2) + i1);
  EXPECT_EQ(f.simplify(floorDiv(8 * i0 + i1, 16)), floorDiv(i0, 2));
  EXPECT_EQ(f.simplify(mod(i0, s0)), i0);
  EXPECT_EQ(f.simplify(floorDiv(i0, s0)), Expr(0));
  EXPECT_TRUE(f.provablyLess(i0, s0));
  EXPECT_TRUE(f.provablyLess(8 * i0 + i1, 8 * s0));
  EXPECT_FALSE(f.provablyLess(8 * i0 + i1, 8 * s0 - 1));
}

TEST(ParseExpr, ReadsBothSpellings) {
  auto parsed = [](const char *text) {
    Result<Expr> e = parseExpr(text);
    return e ? e->str() : e.error().str();
  };
  EXPECT_EQ(parsed("Mul(Integer(4), Symbol('s23', positive=True, integer=True))"), "4*s23");
  EXPECT_EQ(parsed("Add(Symbol('s77', integer=True, positive=True), Integer(-1))"), "s77 - 1");
  EXPECT_EQ(parsed("FloorDiv(Add(Symbol('s0', integer=True), Integer(1)), Integer(2))"), "(s0 + 1)//2");
  EXPECT_EQ(parsed("s0 + s1*2 - 1"), "s0 + 2*s1 - 1");
  EXPECT_EQ(parsed("(s0 + 15)//16"), "(s0 + 15)//16");
  EXPECT_EQ(parsed("Max(1, u0)"), "max(1, u0)");
  EXPECT_EQ(parsed("ModularIndexing(s0, 4, 8)"), "(s0//4)%8");
  EXPECT_EQ(parsed("Ne(s0, 3)"), "3 != s0");
  EXPECT_EQ(parsed("s0**2"), "s0*s0");
}

TEST(ParseExpr, RefusesWhatItDoesNotKnow) {
  for (const char *bad :
       {"", "s0 +", "os.system('x')", "Foo(1)", "1/0", "s0//0", "((s0)", "99999999999999999999", "Symbol(s0)"}) {
    Result<Expr> e = parseExpr(bad);
    ASSERT_FALSE(e) << bad;
    EXPECT_EQ(e.error().diagnostics()[0].kind, diag::BadExpression);
  }
  EXPECT_FALSE(parseExpr(std::string(100000, '(')));
}

TEST(Expr, Affine) {
  std::optional<Affine> a = affineIn(i0 * s0 + 3 * i1 + 2, "i0");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->coefficient, s0);
  EXPECT_EQ(a->rest, 3 * i1 + 2);
  EXPECT_FALSE(affineIn(floorDiv(i0, s0), "i0"));
}

} // namespace
} // namespace neso

TEST(ParseExpr, FractionsBelowARounding) {
  using namespace neso;
  Expr n = symbol("s0");
  auto read = [](const char *text) {
    Result<Expr> e = parseExpr(text);
    return e ? *e : Expr();
  };
  // What interpolate(scale_factor=2.5) and adaptive sizes write.
  EXPECT_EQ(read("TruncToInt(Mul(Float('2.5', precision=53), ToFloat(Symbol('s0', positive=True, integer=True))))"),
            floorDiv(5 * n, 2));
  EXPECT_EQ(read("TruncToInt(Mul(Float('2.0', precision=53), ToFloat(Symbol('s0'))))"), 2 * n);
  EXPECT_EQ(read("FloorToInt(IntTrueDiv(Symbol('s0'), Integer(3)))"), floorDiv(n, 3));
  EXPECT_EQ(read("CeilToInt(IntTrueDiv(Symbol('s0'), Integer(3)))"), ceilDiv(n, 3));
  EXPECT_EQ(read("FloorToInt(Add(Mul(Float('0.25'), Symbol('s0')), Float('0.5')))"), floorDiv(n + 2, 4));
  for (const char *text :
       {"Mul(Float('2.5'), Symbol('s0'))", "FloorToInt(Mul(Float('0.1'), Symbol('s0')))", "Symbol('1/2')", "Float('x')",
        "Float('1e400')", "Float('", "Max(Float('0.5'), Symbol('s0'))", "FloorToInt(Mul(Float('0.5'), Float('0.5')))"})
    EXPECT_FALSE(parseExpr(text)) << text;
}
