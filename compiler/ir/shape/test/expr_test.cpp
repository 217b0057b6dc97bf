#include "base/diagnostics/pt2.h"
#include "ir/shape/expr.h"
#include "ir/shape/rounded.h"
#include "ir/shape/usual.h"

#include <gtest/gtest.h>

#include <random>

namespace neso {
namespace {

const Symbol kS0 = Symbol::size("s0"), kI0 = Symbol::index(0), kI1 = Symbol::index(1);
Expr s0 = kS0, s1 = Symbol::size("s1"), i0 = kI0, i1 = kI1, r0 = Symbol::inner(0);

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

/// What is padded to a multiple is one in its form: the factor is seen again where the size is divided.
TEST(Expr, PaddedToAMultiple) {
  const Expr up = s0 + mod(-s0, 4), seven = s0 - mod(mod(s0, 7) + 3, 7) + 10;
  EXPECT_EQ(up, 4 * ceilDiv(s0, 4));
  EXPECT_EQ(mod(up, 4), Expr(0));
  EXPECT_EQ(floorDiv(up, floorDiv(up, 4)), Expr(4));
  EXPECT_EQ(seven, 7 * floorDiv(s0 + 3, 7) + 7);
  EXPECT_EQ(mod(seven, 7), Expr(0));
  EXPECT_EQ(16 * s0 * s1 - 16 * s1 * mod(s0 + 3, 7), 112 * s1 * floorDiv(s0 + 3, 7) - 48 * s1);
  EXPECT_EQ(s0 - mod(s0, s1), s1 * floorDiv(s0, s1));
  EXPECT_EQ(2 * s0 + mod(-s0, 4), s0 + 4 * ceilDiv(s0, 4));
  EXPECT_EQ(-floorDiv(-s0, 4), ceilDiv(s0, 4));
  EXPECT_EQ(floorDiv(3 - i0, 4), -floorDiv(i0, 4));
  EXPECT_EQ(mod(3 * mod(i0, 8) + 5, 12), mod(3 * i0 + 5, 12));
  EXPECT_EQ(mod(mod(i0, 8) + 5, 12).str(), "(i0%8 + 5)%12");
}

TEST(Expr, DividedByASum) {
  EXPECT_EQ(floorDiv(7 * s0 + 7, s0 + 1), Expr(7));
  EXPECT_EQ(mod(7 * s0 + 7, s0 + 1), Expr(0));
  EXPECT_EQ(floorDiv((s0 + s1 - 2) * i0 * s1, s0 + s1 - 2), i0 * s1);
  EXPECT_EQ(floorDiv((s0 + 1) * i0 + i1, s0 + 1), i0 + floorDiv(i1, s0 + 1));
  EXPECT_EQ(mod((s0 + 1) * i0 + i1, s0 + 1), mod(i1, s0 + 1));
  EXPECT_EQ(floorDiv(7 * s0 + 6, s0 + 1).str(), "(7*s0 + 6)//(s0 + 1)");
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
    SymbolMap<int64_t> env = {{kI0, pick(40)}, {kI1, pick(9)}, {kS0, 1 + pick(20)}};
    Facts facts;
    facts.setRange(kI0, {0, 39});
    facts.setRange(kI1, {0, 8});
    facts.setRange(kS0, {1, 20});
    struct Pair {
      Expr e;
      int64_t v;
    };
    std::vector<Pair> pool = {
        {i0, env[kI0]}, {i1, env[kI1]}, {s0, env[kS0]}, {Expr(pick(13) - 6), 0}, {Expr(1 + pick(16)), 0}};
    for (Pair &p : pool)
      if (p.e.isConst()) p.v = p.e.constValue();
    for (int step = 0; step < 8; ++step) {
      Pair a = pool[static_cast<size_t>(pick(static_cast<int>(pool.size())))],
           b = pool[static_cast<size_t>(pick(static_cast<int>(pool.size())))];
      auto fdiv = [](int64_t x, int64_t y) {
        int64_t q = x / y;
        return (x % y != 0 && (x < 0) != (y < 0)) ? q - 1 : q;
      };
      const int64_t c = pick(2) ? 1 + pick(8) : -1 - pick(8);
      switch (pick(9)) {
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
      case 7: pool.push_back({a.e + mod(-a.e, c), -fdiv(-a.v, c) * c}); break;
      case 8: pool.push_back({b.e * (mod(a.e, c) - a.e), b.v * (-fdiv(a.v, c) * c)}); break;
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
  f.setRange(kS0, {2, 512});
  f.setIndex(kI0, s0);
  f.setIndex(kI1, Expr(8));
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

// What torch writes of Triton's next_power_of_2, and nothing else of bits.
TEST(ParseExpr, TheNextPowerOfTwo) {
  auto either = [](std::string a, int64_t divisor) { return "BitwiseFn_bitwise_or(" + a + ", ((" + a + ")//" + std::to_string(divisor) + "))"; };
  std::string text = "s0 - 1";
  for (int places : {1, 2, 4, 8, 16, 32}) text = either(text, int64_t{1} << places);
  Result<Expr> power = parseExpr(text + " + 1");
  ASSERT_TRUE(power);
  const Symbol s0 = Symbol::size("s0");
  for (auto [n, expected] : {std::pair<int64_t, int64_t>{0, 0}, {1, 1}, {2, 2}, {3, 4}, {64, 64}, {65, 128}, {(int64_t{1} << 40) + 1, int64_t{1} << 41}, {-5, 0}})
    EXPECT_EQ(evaluate(*power, {{s0, n}}), expected) << n;
  EXPECT_FALSE(parseExpr(either("s0 - 1", 2)));
  EXPECT_FALSE(parseExpr("BitwiseFn_bitwise_or(s0, s1)"));
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

// A size and an index of one name are two symbols, in every question that is asked of an expression.
TEST(Symbol, KindsOfOneNameDiffer) {
  const Symbol size = Symbol::size("i0");
  EXPECT_NE(size, kI0);
  EXPECT_NE(Expr(size), i0);
  EXPECT_FALSE((size - i0).isConst());
  EXPECT_TRUE(uses(2 * size + 1, size));
  EXPECT_FALSE(uses(2 * size + 1, kI0));
  EXPECT_EQ(substitute(size * i0, {{kI0, 3}}), 3 * size);
  EXPECT_EQ(evaluate(size * 10 + i0, {{kI0, 1}, {size, 2}}), 21);
  EXPECT_EQ(affineIn(size * i0, kI0)->coefficient, Expr(size));
  Facts f;
  f.setRange(size, {7, 7});
  EXPECT_EQ(f.range(kI0).lo, INT64_MIN);
  EXPECT_EQ(f.simplify(size + i0), i0 + 7);
  EXPECT_NE(Symbol::local("m"), Symbol::size("m"));
}

TEST(Symbol, TextIsReadBack) {
  EXPECT_EQ(kI0.str(), "i0");
  EXPECT_EQ(Symbol::size("s77").str(), "s77");
  EXPECT_EQ(Symbol::size("i0").str(), "'i0'");
  EXPECT_EQ(Symbol::size("m").str(), "'m'");
  EXPECT_EQ(Symbol::local("m").str(), "m");
  EXPECT_EQ(Symbol::of(Symbol::Kind::Grid, 1).str(), "grid.1");
  for (const char *name :
       {"s77", "u0", "m", "i0", "x01", "x1", "grid.0", "1/3", "batch size", "it's", "or", "True", "s0_"}) {
    Symbol s = Symbol::size(name);
    EXPECT_EQ(s.name(), name);
    EXPECT_EQ(Symbol::fromText(s.str()), s) << s.str();
  }
#define NESO_SYMBOL(KIND, PREFIX, WHAT)                                                                                \
  for (size_t n : {0, 7, 100}) {                                                                                       \
    Symbol s = Symbol::of(Symbol::Kind::KIND, n);                                                                      \
    EXPECT_EQ(s.number(), n);                                                                                          \
    EXPECT_EQ(Symbol::fromText(s.str()), s) << s.str();                                                                \
  }
#include "ir/shape/symbols.def"
  for (const char *text : {"", "'s77'", "1x", "a b", "x-1"}) EXPECT_FALSE(Symbol::fromText(text)) << text;
}

TEST(ParsePrinted, ReadsWhatIsPrinted) {
  const Expr odd = Symbol::size("x0"), word = Symbol::size("not"), t0 = Symbol::indirect(0), m = Symbol::local("m");
  for (Expr e :
       {4 * i0 + floorDiv(s0, 2) + 1, odd * i0 - word, mod(-floorDiv(i0 + 3, s0), 8), floorDiv(s0, s1 * 2),
        mod(mod(i0, s0), 7) * m, min(s0, max(i0, 3)), pow(s0, t0), where(lt(i0, s0), t0, -t0),
        logicalAnd(eq(s0, 3), logicalOr(ne(s1, 4), le(odd, word))), logicalNot(logicalAnd(s0, s1)),
        eq(logicalNot(logicalAnd(s0, s1)), 0), lt(lt(i0, s0), s1), Expr(INT64_MIN), Expr(INT64_MAX), Expr(-5)}) {
    Result<Expr> again = parsePrinted(e.str());
    ASSERT_TRUE(again) << e.str() << ": " << again.error().str();
    EXPECT_EQ(*again, e) << e.str() << " is read as " << again->str();
  }
  EXPECT_FALSE(parsePrinted("s0 + unknown",
                            [](std::string_view name) { return name == "s0" ? std::optional(kS0) : std::nullopt; }));
  EXPECT_FALSE(parsePrinted("'s0"));
}

TEST(Usual, HintsWithinRanges) {
  Facts f;
  EXPECT_EQ(usualSize(kS0, f), kUsualSize);
  f.setRange(kS0, {4, 100});
  EXPECT_EQ(usualSize(kS0, f), 100);
  f.setHint(kS0, 17);
  EXPECT_EQ(usualSize(kS0, f), 17);
  EXPECT_EQ(usualSize(3 * s0 + 1, f), 52);
  EXPECT_EQ(valueAt(3 * s0 + 1, f, 6), 19);
  EXPECT_EQ(valueAt(s0, f, 1), 4);
  f.setHint(kS0, 3);
  EXPECT_EQ(usualSize(kS0, f), 4);
  // The least size that an export leaves open stands for any.
  f.setHint(kS0, 2);
  EXPECT_EQ(usualSize(kS0, f), 100);
  f.setRange(kS0, {0, 100});
  f.setHint(kS0, 0);
  EXPECT_EQ(usualSize(kS0, f), 100);
  f.setRange(kS0, {0, 1});
  EXPECT_EQ(usualSize(kS0, f), 1);
  EXPECT_EQ(usualSize(floorDiv(s0, 0), f), kUsualSize);
  f.erase(kS0);
  EXPECT_EQ(usualSize(kS0, f), kUsualSize);
}

TEST(Facts, AnExpressionIsInTheRangeThatAChoiceLeavesIt) {
  const Expr rows = Expr(kS0) * 3 + 1;
  Facts f;
  f.setRange(kS0, {0, INT64_MAX});
  Facts few = f;
  few.assume(rows, {1, 16}, 9);
  EXPECT_EQ(few.rangeOf(rows).hi, 16);
  EXPECT_EQ(few.rangeOf(floorDiv(rows, 32)).hi, 0);
  EXPECT_EQ(few.simplify(min(rows, Expr(40))), rows);
  EXPECT_EQ(usualSize(rows, few), 9);
  EXPECT_EQ(few.rangeOf(kS0).hi, INT64_MAX); // of its parts nothing more is known
  EXPECT_EQ(f.rangeOf(rows).hi, INT64_MAX);
  few.assume(rows, {2, 8}, 4);
  EXPECT_EQ(few.rangeOf(rows).lo, 2);
  few.assume(kS0, {1, 2}, 2);
  EXPECT_EQ(few.range(kS0).hi, 2);
  EXPECT_EQ(usualSize(kS0, few), 2);
}

TEST(Expr, Affine) {
  std::optional<Affine> a = affineIn(i0 * s0 + 3 * i1 + 2, kI0);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->coefficient, s0);
  EXPECT_EQ(a->rest, 3 * i1 + 2);
  EXPECT_FALSE(affineIn(floorDiv(i0, s0), kI0));
}

} // namespace
} // namespace neso

TEST(ParseExpr, FractionsBelowARounding) {
  using namespace neso;
  Expr n = Symbol::size("s0");
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
  EXPECT_EQ(read("RoundToInt(IntTrueDiv(Symbol('s0'), Integer(3)))"), floorDiv(2 * n + 3, 6));
  EXPECT_EQ(read("RoundToInt(Symbol('s0'))"), n);
  // As guards have them, in Python.
  EXPECT_EQ(read("math.trunc(0.5*torch.sym_float(s0)) == 10"), eq(floorDiv(n, 2), 10));
  EXPECT_EQ(read("torch.sym_max(1, math.trunc(2.5*torch.sym_float(s0))) >= 2"), le(2, max(1, floorDiv(5 * n, 2))));
  EXPECT_EQ(read("math.trunc(0.3*torch.sym_float(s0))"), read("TruncToInt(Mul(Float('0.3'), ToFloat(Symbol('s0'))))"));
  for (const char *text : {"0.5*s0 >= 2", "0.3*0.7*s0 == 1", "math.trunc(0.3*s0 + 1)", "s0 ** 0.5 == 2", "math.trunc((0.5*s0) // 3)", "(0.5*s0) % 2 == 1"}) EXPECT_FALSE(parseExpr(text)) << text;
  // As Python's round: of two as near, the even one.
  for (const double factor : {0.5, 0.75, 2.25, 1.375})
    for (int64_t k = 0; k < 40; ++k)
      EXPECT_EQ(evaluate(*parseExpr(fmt::format("RoundToInt(Mul(Float('{}', precision=53), ToFloat(Symbol('s0'))))", factor)), {{Symbol::size("s0"), k}}).value_or(-1),
                static_cast<int64_t>(std::nearbyint(factor * static_cast<double>(k))));
  // A size may be called as the fraction is printed.
  EXPECT_EQ(read("FloorToInt(Symbol('1/2'))"), Expr(Symbol::size("1/2")));
  for (const char *text :
       {"Mul(Float('2.5'), Symbol('s0'))", "RoundToInt(Mul(Float('0.1'), Symbol('s0')))", "FloorToInt(Mul(Float('0.123456789'), Symbol('s0')))", "Float('x')",
        "FloorToInt(Add(Mul(Float('0.1'), Symbol('s0')), Integer(1)))", "FloorToInt(Mul(Integer(3), Float('0.1'), Symbol('s0')))", "FloorToInt(Mul(Integer(3), Mul(Float('0.1'), Symbol('s0'))))",
        "FloorToInt(Mul(Float('0.7'), Mul(Float('0.5'), Symbol('s0'))))", "FloorToInt(Mul(Float('0.5'), Mul(Float('0.7'), Symbol('s0'))))", "FloorToInt(Mul(Float('0.7'), Float('0.9'), Symbol('s0')))",
        "FloorToInt(Add(Mul(Float('0.7'), Symbol('s0')), Mul(Float('0.5'), Symbol('s1'))))",
        "Float('1e400')", "Float('", "Max(Float('0.5'), Symbol('s0'))", "FloorToInt(Mul(Float('0.5'), Float('0.5')))"})
    EXPECT_FALSE(parseExpr(text)) << text;
}

// Python multiplies in double precision and cuts off, which may lead to the next number beside a whole one.
TEST(ParseExpr, DecimalFractionsAreThoseOfDoubles) {
  using namespace neso;
  int read = 0;
  for (int k = 1; k < 400; k += 2)
    for (int denominator : {3, 7, 10, 100, 12}) {
      const double factor = static_cast<double>(k) / denominator;
      if (factor >= 16) continue;
      for (bool up : {false, true}) {
        const Result<Expr> e = parseExpr(fmt::format("{}(Mul(Float('{:.17g}', precision=53), ToFloat(Symbol('s0'))))", up ? "CeilToInt" : "TruncToInt", factor));
        ASSERT_TRUE(e) << factor;
        ++read;
        // Whole numbers of the fraction are what decides: multiples of the denominator, up to 2^34.
        for (int64_t n = 0; n < int64_t{1} << 34; n = n < 2000 ? n + 1 : n * 17 / 16 / denominator * denominator) {
          const double product = factor * static_cast<double>(n);
          ASSERT_EQ(evaluate(*e, {{Symbol::size("s0"), n}}).value_or(-1), static_cast<int64_t>(up ? std::ceil(product) : std::floor(product))) << factor << " " << n;
        }
      }
    }
  EXPECT_GT(read, 800);
}

TEST(ParseExpr, WhatIsRoundedFromDoubles) {
  using namespace neso;
  RoundedSizes sizes;
  const Expr h = Symbol::size("s0"), w = Symbol::size("s1");
  auto read = [&](const char *text) {
    Result<Expr> e = parseExpr(text, sizes);
    EXPECT_TRUE(e) << text;
    return e ? *e : Expr();
  };
  // A whole number where there is an exact expression, a symbol elsewhere; equal ones have one.
  EXPECT_EQ(read("TruncToInt(Mul(Float('2.5'), ToFloat(Symbol('s0'))))"), floorDiv(5 * h, 2));
  EXPECT_TRUE(sizes.all().empty());
  const Expr scaled = read("TruncToInt(Mul(IntTrueDiv(Integer(64), Min(Symbol('s0'), Symbol('s1'))), ToFloat(Symbol('s0'))))");
  ASSERT_EQ(sizes.all().size(), 1u);
  EXPECT_EQ(scaled, Expr(sizes.all()[0].symbol));
  EXPECT_EQ(print(sizes.all()[0].rounding, sizes.all()[0].of), "TruncToInt(Mul(FloatTrueDiv(ToFloat(64), ToFloat(min(s0, s1))), ToFloat(s0)))");
  EXPECT_EQ(read("Mul(Integer(3), Max(Integer(1), TruncToInt(Mul(ToFloat(Symbol('s0')), FloatTrueDiv(Float('64.0'), ToFloat(Min(Symbol('s0'), Symbol('s1'))))))))"), 3 * max(1, scaled));
  EXPECT_EQ(read("math.trunc((64 / torch.sym_min(s0, s1))*torch.sym_float(s0)) != 1"), ne(scaled, 1));
  EXPECT_EQ(sizes.all().size(), 1u);
  EXPECT_EQ(read("math.ceil((0.5 + s0 // 14) / 14.0)"), read("CeilToInt(FloatTrueDiv(Add(ToFloat(FloorDiv(Symbol('s0'), Integer(14))), Float('0.5')), Float('14.0')))"));
  EXPECT_EQ(sizes.all().size(), 2u);
  // What it prints is read again.
  std::vector<std::string> texts = {"TruncToInt(Mul(Float('0.5'), ToFloat(s0)))"}; // of which there is an exact expression, too
  for (const RoundedSize &r : sizes.all()) texts.push_back(print(r.rounding, r.of));
  for (const std::string &text : texts) {
    const Result<RoundedSize> again = parseRounded(text, Symbol::size("n"));
    ASSERT_TRUE(again) << text;
    EXPECT_EQ(print(again->rounding, again->of), text);
  }
  for (const char *text : {"", "TruncToInt", "TruncToInt(", "Mul(ToFloat(s0), ToFloat(s1))", "TruncToInt(ToFloat(s0)) + 1"}) EXPECT_FALSE(parseRounded(text, Symbol::size("n"))) << text;
  // No text takes long.
  EXPECT_TRUE(parseExpr("math.trunc(" + std::string(150, '(') + "64 / s0" + std::string(150, ')') + ")", sizes));
  EXPECT_FALSE(parseExpr("math.trunc(" + std::string(250, '(') + "64 / s0" + std::string(250, ')') + ")", sizes));
  std::string nested = "Mul(Float('0.1'), Symbol('s0'))";
  for (int k = 0; k < 60; ++k) nested = "TruncToInt(Mul(Float('0.1'), Add(Float('0.7'), " + nested + ")))";
  EXPECT_FALSE(parseExpr(nested, sizes));
  // An order that nobody knows, and sums that a GPU would round once.
  for (const char *text : {"FloorToInt(Mul(Integer(3), Float('0.1'), Symbol('s0')))", "FloorToInt(Add(Mul(Float('0.1'), Symbol('s0')), Integer(1)))", "math.trunc(0.1*s0 + 0.5)", "math.trunc(1e400*s0)",
                           "FloorToInt(FloatPow(Symbol('s0'), Float('0.5')))", "Mul(Float('0.1'), Symbol('s0'))", "math.trunc(0.1*s0", "math.trunc((0.1*s0)", "math.trunc(/s0)"})
    EXPECT_FALSE(parseExpr(text, sizes)) << text;
}
