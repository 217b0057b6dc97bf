// Kernels that are there once for each class of lengths, of which a run launches one.
#include <set>

#include "ir/plan/verify.h"
#include "ir/shape/usual.h"
#include "lower/tiling/test/maker.h"
#include "lower/tiling/tiling.h"

namespace neso {
namespace {

using namespace test;

/// Of the kernels that a kernel of unknown lengths becomes, one has programs in each run, and blocks for its lengths.
TEST(Tiling, AKernelOfUnknownLengthsIsThereForEachClass) {
  Maker m;
  const Symbol rows = Symbol::size("s0"), columns = Symbol::size("s1");
  for (auto [s, usual] : {std::pair(rows, 8), {columns, 16}}) m.p.facts.setRange(s, {1, INT64_MAX}), m.p.facts.setHint(s, usual);
  const BufferId x = m.input("x", Expr(rows) * columns);
  auto reduce = [&](Expr outer, Expr inner, Expr at) {
    const BufferId y = addTemp(m.p, "y", DType::F32, outer);
    ReductionSpec spec;
    Reduction sum;
    sum.dtype = DType::F32, sum.input = appendLoad(spec.body, x, DType::F32, at), sum.results = {{y, i(0), 0}};
    spec.reductions = {sum};
    m.node({outer}, {inner}, std::move(spec)), m.output(y);
  };
  reduce(rows, columns, i(0) * columns + r(0)), reduce(columns, rows, r(0) * columns + i(0));
  plan::Plan plan = m.plan();
  const size_t given = plan.kernels.size();
  TileTarget target;
  target.threadBlocks = true, target.processors = 132;
  const Tilings tilings = chooseTilings(plan, target);
  ASSERT_EQ(tilings.size(), plan.kernels.size());
  EXPECT_TRUE(plan::verify(plan, plan::Form::Scheduled)) << print(plan);
  for (size_t k = 0; k < given; ++k) {
    const std::string &name = plan.kernels[k].name;
    std::set<std::string> names;
    for (int64_t height : {1, 2, 16, 17, 600, 100000})
      for (int64_t width : {1, 8, 9, 16, 17, 32, 33, 128, 129, 1024, 1025, 4096, 4097, 1000000}) {
        int there = 0;
        for (const plan::Kernel &kernel : plan.kernels) {
          if (!kernel.name.starts_with(name)) continue;
          const KernelTiling &tiling = tilings[kernel.id.index()];
          ASSERT_TRUE(tiling.when.valid() && tiling.facts && tiling.loop);
          if (evaluate(tiling.when, {{rows, height}, {columns, width}}) != 1) continue;
          ++there, names.insert(kernel.name);
          for (auto [s, size] : {std::pair(rows, height), {columns, width}}) EXPECT_TRUE(tiling.facts->range(s).lo <= size && size <= tiling.facts->range(s).hi) << kernel.name;
          if (tiling.loop->oneStep) EXPECT_LE(k == 0 ? width : height, tiling.loop->inner) << kernel.name;
        }
        EXPECT_EQ(there, 1) << name << " of " << height << " x " << width;
      }
    EXPECT_GE(names.size(), 4u) << name;
  }
  // A thread that walks rows alone ends where they end.
  plan::Plan forThreads = m.plan();
  for (const KernelTiling &tiling : chooseTilings(forThreads, TileTarget())) EXPECT_FALSE(tiling.when.valid());
}

/// What remains of a product that a library computes has no step, and so is there once.
TEST(Tiling, WhatALibraryLeavesIsThereOnce) {
  Maker m;
  const Symbol columns = Symbol::size("s0");
  m.p.facts.setRange(columns, {2, INT64_MAX}), m.p.facts.setHint(columns, 2048);
  const DType t = DType::BF16;
  const BufferId x = m.input("x", 512 * 1024, t), w = m.input("w", Expr(1024) * columns, t), sum = addTemp(m.p, "sum", t, Expr(512) * columns), y = addTemp(m.p, "y", t, Expr(512) * columns);
  const Expr at = i(0) * columns + i(1);
  ContractionSpec c;
  c.lhs = appendLoad(c.body, x, t, i(0) * 1024 + r(0)), c.rhs = appendLoad(c.body, w, t, r(0) * columns + i(1));
  c.accType = DType::F32;
  append(c.epilogue, OpKind::Constant, DType::F32);
  c.stores = {{sum, at, append(c.epilogue, OpKind::Cast, t, 0)}};
  m.node({512, columns}, {1024}, std::move(c));
  PointwiseSpec after;
  const ValueIdx v = appendLoad(after.body, sum, t, at);
  after.stores = {{y, at, append(after.body, OpKind::Neg, t, v)}};
  m.node({512, columns}, {}, std::move(after)), m.output(y);
  TileTarget target;
  target.threadBlocks = true, target.processors = 132, target.library = TileTarget::Library::Always, target.packWeights = false;
  plan::Plan plan = m.plan();
  const Tilings tilings = chooseTilings(plan, target);
  EXPECT_TRUE(plan.kernels[0].product && plan.kernels[0].product->rest.valid()) << print(plan);
  EXPECT_EQ(plan.kernels.size(), 2u) << print(plan);
  EXPECT_TRUE(plan::verify(plan, plan::Form::Scheduled)) << print(plan);
}

/// [s0, 1024] x [1024, columns] into y, of bf16.
struct OpenRows {
  Maker m;
  const Symbol rows = Symbol::size("s0");
  TileTarget target;
  explicit OpenRows(Interval range, Expr columns = 64, int64_t usual = 8) {
    m.p.facts.setRange(rows, range), m.p.facts.setHint(rows, usual);
    const DType t = DType::BF16;
    const BufferId x = m.input("x", Expr(rows) * 1024, t), w = m.input("w", columns * 1024, t), y = addTemp(m.p, "y", t, Expr(rows) * columns);
    ContractionSpec c;
    c.lhs = appendLoad(c.body, x, t, i(0) * 1024 + r(0)), c.rhs = appendLoad(c.body, w, t, r(0) * columns + i(1));
    c.accType = DType::F32;
    append(c.epilogue, OpKind::Constant, DType::F32);
    c.stores = {{y, i(0) * columns + i(1), append(c.epilogue, OpKind::Cast, t, 0)}};
    m.node({rows, columns}, {1024}, std::move(c)), m.output(y);
    target.threadBlocks = true, target.processors = 132, target.packWeights = false;
    target.dotM = 128, target.dotN = 128;
  }
};

TEST(Tiling, AProductOfUnknownRowsIsThereForFewSomeAndMany) {
  OpenRows o({1, INT64_MAX});
  plan::Plan plan = o.m.plan();
  ASSERT_EQ(plan.kernels.size(), 1u);
  const Tilings tilings = chooseTilings(plan, o.target);
  EXPECT_TRUE(plan::verify(plan, plan::Form::Scheduled)) << print(plan);
  ASSERT_EQ(tilings.size(), 3u) << print(plan);
  std::set<int64_t> heights;
  for (int64_t rows : {1, 64, 65, 512, 513, 100000}) {
    int there = 0;
    for (const KernelTiling &t : tilings) {
      ASSERT_TRUE(t.when.valid() && t.facts && t.dot);
      if (evaluate(t.when, {{o.rows, rows}}) != 1) continue;
      ++there, heights.insert(t.dot->bm);
      EXPECT_TRUE(t.facts->range(o.rows).lo <= rows && rows <= t.facts->range(o.rows).hi);
      if (rows <= 64) EXPECT_LE(t.dot->bm, 64);
    }
    EXPECT_EQ(there, 1) << rows;
  }
  EXPECT_GE(heights.size(), 2u);
}

TEST(Tiling, AttentionOfUnknownQueriesIsThereForFewAndMany) {
  Maker m;
  const Symbol queries = Symbol::size("s0");
  m.p.facts.setRange(queries, {1, INT64_MAX}), m.p.facts.setHint(queries, 16);
  m.attention(16, queries, DType::BF16);
  TileTarget target;
  target.threadBlocks = true, target.processors = 132, target.machine.groupRows = 64;
  plan::Plan plan = m.plan();
  const Tilings tilings = chooseTilings(plan, target);
  EXPECT_TRUE(plan::verify(plan, plan::Form::Scheduled)) << print(plan);
  ASSERT_EQ(tilings.size(), 2u) << print(plan);
  for (int64_t count : {1, 64, 65, 4096}) {
    int there = 0;
    for (const KernelTiling &t : tilings) {
      ASSERT_TRUE(t.when.valid() && t.facts && t.attention);
      if (evaluate(t.when, {{queries, count}}) != 1) continue;
      ++there;
      EXPECT_TRUE(count <= 64 ? t.attention->queries <= 64 : t.attention->queries == 128) << count;
    }
    EXPECT_EQ(there, 1) << count;
  }
}

TEST(Tiling, AProductOfFewRowsAtMostIsThereOnce) {
  OpenRows o({1, 60});
  plan::Plan plan = o.m.plan();
  const Tilings tilings = chooseTilings(plan, o.target);
  ASSERT_EQ(tilings.size(), 1u);
  EXPECT_FALSE(tilings[0].when.valid());
}

TEST(Tiling, ALibraryIsAskedForManyRowsWhateverTheExampleHad) {
  OpenRows o({1, INT64_MAX}, 1024);
  o.target.library = TileTarget::Library::Auto;
  o.target.machine.processors = 132, o.target.machine.ownFlops = 1e6, o.target.machine.libraryFlops = 2e6, o.target.machine.libraryLeast = 1e9;
  plan::Plan plan = o.m.plan();
  const Tilings tilings = chooseTilings(plan, o.target);
  EXPECT_TRUE(plan.kernels[0].product) << print(plan);
  EXPECT_EQ(tilings.size(), plan.kernels.size());
  for (const KernelTiling &t : tilings) EXPECT_FALSE(t.when.valid());
}

/// What blocks and libraries are chosen for.
TEST(Tiling, OfAnOpenNumberOfRowsThereMayBeMany) {
  Facts facts;
  const Symbol s = Symbol::size("s0");
  facts.setRange(s, {1, INT64_MAX}), facts.setHint(s, 8);
  EXPECT_EQ(roomySize(Expr(s), facts), 2048);
  EXPECT_EQ(roomySize(Expr(40), facts), 40);
  facts.setRange(s, {1, 100});
  EXPECT_EQ(roomySize(Expr(s), facts), 100);
  facts.setRange(s, {1, INT64_MAX}), facts.setHint(s, 5000);
  EXPECT_EQ(roomySize(Expr(s), facts), 5000);
}

/// A copy of an open number of elements, exported with few.
TEST(Tiling, PointwiseBlocksOfOpenSizesAreMadeForMany) {
  auto blockOf = [](Expr elements, int64_t usual) {
    Maker m;
    m.p.facts.setRange(Symbol::size("s0"), {1, INT64_MAX}), m.p.facts.setHint(Symbol::size("s0"), usual);
    const BufferId x = m.input("x", elements), y = addTemp(m.p, "y", DType::F32, elements);
    PointwiseSpec copy;
    const ValueIdx v = appendLoad(copy.body, x, DType::F32, i(0));
    copy.stores = {{y, i(0), append(copy.body, OpKind::Neg, DType::F32, v)}};
    m.node({elements}, {}, std::move(copy)), m.output(y);
    TileTarget target;
    target.threadBlocks = true, target.processors = 132, target.pointwiseBlock = 1024;
    plan::Plan plan = m.plan();
    return chooseTilings(plan, target)[0].loop->tile[0];
  };
  EXPECT_EQ(blockOf(32768, 0), 128);
  EXPECT_EQ(blockOf(1 << 24, 0), 1024);
  EXPECT_EQ(blockOf(Expr(Symbol::size("s0")) * 4096, 8), 1024);
}

} // namespace
} // namespace neso
