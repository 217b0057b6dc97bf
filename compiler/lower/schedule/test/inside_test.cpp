// Which accesses get an assertion that they stay inside of their buffers, and what it says.
#include "lower/schedule/inside.h"

#include <gtest/gtest.h>

#include "ir/loops/interp.h"
#include "ir/loops/parse.h"
#include "ir/loops/verify.h"

namespace neso::schedule::test {
namespace {

using namespace loops;

const Expr s0 = Symbol::size("s0"), s1 = Symbol::size("s1");

/// Reads of x [s0, 4] and w [s1, 4] into y [s0, 4].
Program withNodes(const std::string &nodes, const std::string &buffers = {}) {
  const std::string text = "loops test\n"
                           "  size s0 in [0, inf]\n"
                           "  size s1 in [0, inf]\n"
                           "  buffer x : f32[4*s0] input 0\n"
                           "  buffer w : f32[4*s1] input 1\n"
                           "  buffer y : f32[4*s0] temp\n" + buffers +
                           "  in 0 tensor x : f32[s0, 4] strides [4, 1] -> x\n"
                           "  in 1 tensor w : f32[s1, 4] strides [4, 1] -> w\n" +
                           nodes + "  output 0 y : f32[s0, 4] strides [4, 1] offset 0\n";
  Result<Program> read = parse(text, "test");
  EXPECT_TRUE(read) << read.error().str() << text;
  Program p = read ? std::move(*read) : Program();
  const Status sound = verify(p);
  EXPECT_TRUE(sound) << sound.error().str();
  assertInside(p);
  return p;
}
Program reading(const std::string &access) {
  return withNodes("  node n0 pointwise ranges [s0, 4]  # sum\n"
                   "    %0 = load " + access + " : f32\n"
                   "    store y[4*i0 + i1] = %0\n");
}
std::vector<Expr> conditions(const Program &p) {
  std::vector<Expr> out;
  for (const Assertion &a : p.assertions) out.push_back(a.condition);
  return out;
}

TEST(Inside, WhatIsProvenGetsNone) {
  EXPECT_EQ(conditions(reading("x[4*i0 + i1]")), std::vector<Expr>());
  EXPECT_EQ(conditions(reading("x[-4*i0 + 4*s0 + i1 - 4]")), std::vector<Expr>());
  EXPECT_EQ(conditions(reading("x[4*min(i0 + 1, s0 - 1) + i1]")), std::vector<Expr>());
  // One row is there wherever there is one to be read.
  EXPECT_EQ(conditions(reading("x[i1]")), std::vector<Expr>());
}

TEST(Inside, RowsThatAnotherSizeCountsAreAsserted) {
  const Program p = reading("w[4*i0 + i1]");
  EXPECT_EQ(conditions(p), std::vector<Expr>{logicalOr(le(s0, 0), lt(4 * s0 - 1, 4 * s1))});
  EXPECT_EQ(p.assertions[0].message, "'sum' would read elements beyond 'w' with s0 = {s0}, s1 = {s1}");
  // Fewer rows than there are may be read; one more is refused; of none nothing is read.
  std::vector<float> x(16), w(8);
  for (const auto &[rows, there, good] : {std::tuple<int64_t, int64_t, bool>{2, 2, true}, {1, 2, true}, {3, 2, false}, {0, 0, true}, {0, 2, true}, {1, 0, false}}) {
    const std::vector<HostValue> in = {HostValue::tensor(DType::F32, {rows, 4}, x.data()), HostValue::tensor(DType::F32, {there, 4}, w.data())};
    EXPECT_EQ(static_cast<bool>(Interpreter(p).run(in)), good) << rows << " of " << there;
  }
}

TEST(Inside, BothEnds) {
  EXPECT_EQ(conditions(reading("w[-4*i0 + 4*s1 + i1 - 4]")), std::vector<Expr>{logicalOr(le(s0, 0), le(0, -4 * s0 + 4 * s1))});
  EXPECT_EQ(conditions(reading("w[4*min(i0, s1) + i1]")), std::vector<Expr>{logicalOr(le(s0, 0), lt(4 * min(s0 - 1, s1) + 3, 4 * s1))});
}

TEST(Inside, ACheckedIndexIsAsFarAsItsBound) {
  auto taken = [](const std::string &bound) {
    return withNodes("  node n0 pointwise ranges [s0, 4]  # take\n"
                     "    %0 = index 3*i0 : i64\n"
                     "    %1 = indirect t0 < " + bound + " check, %0 : i64\n"
                     "    %2 = load w[i1 + 4*t0] : f32\n"
                     "    store y[4*i0 + i1] = %2\n");
  };
  EXPECT_EQ(conditions(taken("s1")), std::vector<Expr>());
  EXPECT_EQ(conditions(taken("s0")), std::vector<Expr>{logicalOr(le(s0, 0), lt(4 * s0 - 1, 4 * s1))});
}

TEST(Inside, WhatAMaskKeepsOutIsNotAskedAbout) {
  const Program p = withNodes("  node n0 pointwise ranges [s0, 4]  # sum\n"
                              "    %0 = index i0 : i64\n"
                              "    %1 = index s1 : i64\n"
                              "    %2 = lt %0, %1 : bool\n"
                              "    %3 = load w[4*i0 + i1], %2 : f32\n"
                              "    store y[4*i0 + i1] = %3\n");
  EXPECT_EQ(conditions(p), std::vector<Expr>());
}

TEST(Inside, OfABranchOnlyWhereItIsTaken) {
  const Program p = withNodes("  node n0 pointwise ranges [1]  # flag\n"
                              "    %0 = index s0 : i64\n"
                              "    store f[0] = %0\n"
                              "  node n1 read ranges []  # test\n"
                              "    c0 = scalar f\n"
                              "  node n2 region ranges []  # cond\n"
                              "    if c0\n"
                              "  then\n"
                              "  node n3 pointwise ranges [s0, 4]  # then\n"
                              "    %0 = load w[4*i0 + i1] : f32\n"
                              "    store y[4*i0 + i1] = %0\n"
                              "  else\n"
                              "  node n4 pointwise ranges [s0, 4]  # otherwise\n"
                              "    %0 = load x[4*i0 + i1] : f32\n"
                              "    store y[4*i0 + i1] = %0\n"
                              "  end\n",
                              "  buffer f : i64[1] temp\n");
  ASSERT_EQ(p.assertions.size(), 1u);
  const Expr c = p.assertions[0].condition;
  EXPECT_EQ(evaluate(c, {{Symbol::size("s0"), 3}, {Symbol::size("s1"), 2}, {Symbol::size("c0"), 0}}), 1);
  EXPECT_EQ(evaluate(c, {{Symbol::size("s0"), 3}, {Symbol::size("s1"), 2}, {Symbol::size("c0"), 1}}), 0);
  EXPECT_EQ(evaluate(c, {{Symbol::size("s0"), 3}, {Symbol::size("s1"), 3}, {Symbol::size("c0"), 1}}), 1);
}

TEST(Inside, ResultsAndWhereTheyAreWrittenBack) {
  const std::string copies = "  node n0 pointwise ranges [s0, 4]  # sum\n"
                             "    %0 = load x[4*i0 + i1] : f32\n"
                             "    store y[4*i0 + i1] = %0\n";
  Program p = withNodes(copies);
  p.outputs[0].writeBackTo = p.buffers[1].id, p.outputs[0].writeBackStrides = {4, 1}, p.buffers[1].mutated = true;
  p.outputs.push_back(p.outputs[0]);
  p.outputs[1] = {.buffer = p.buffers[0].id, .sizes = {s1, 4}, .strides = {4, 1}};
  assertInside(p);
  EXPECT_EQ(conditions(p), (std::vector<Expr>{logicalOr(le(s0, 0), lt(4 * s0 - 1, 4 * s1)), logicalOr(le(s1, 0), lt(4 * s1 - 1, 4 * s0))}));
  EXPECT_EQ(p.assertions[0].message, "a result would write elements beyond 'w' with s0 = {s0}, s1 = {s1}");
}

} // namespace
} // namespace neso::schedule::test
