// What is decided of kernels: which constants get another order, and that nobody else reads them then; what becomes of
// contractions and reductions that tile programs do not have; whose programs run in turn.
#include <array>
#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "ir/plan/verify.h"
#include "lower/tiling/test/maker.h"
#include "lower/tiling/tiling.h"

namespace neso {
namespace {

using namespace test;
using Kind = Node::Kind;

constexpr int64_t kM = 8, kK = 70, kN = 100;

/// y = x [M, K] * w [K, N]
void product(Maker &m, BufferId x, BufferId w, BufferId y, DType t = DType::F32) {
  ContractionSpec c;
  c.lhs = appendLoad(c.body, x, t, i(0) * kK + r(0)), c.rhs = appendLoad(c.body, w, t, r(0) * kN + i(1));
  c.accType = t, c.stores = {{y, i(0) * kN + i(1), 0}};
  m.node({kM, kN}, {kK}, std::move(c));
}

const Constant &constantOf(const plan::Plan &plan, BufferId b) {
  return plan.program.constants[static_cast<size_t>(plan.program.buffer(b).index)];
}

TEST(Tiling, AWeightThatOneProductReadsLiesInItsBlocks) {
  Maker m;
  const BufferId x = m.input("x", kM * kK), w = m.constant("w", kK * kN), y = addTemp(m.p, "y", DType::F32, kM * kN);
  product(m, x, w, y), m.output(y);
  plan::Plan plan = m.plan();
  const Tilings tilings = chooseTilings(plan, TileTarget());
  ASSERT_TRUE(tilings[0].dot && tilings[0].dot->packed);
  const int64_t bn = tilings[0].dot->bn, bk = tilings[0].dot->bk;
  // Of the last block of k no more is multiplied than there is, so nothing need lie behind it.
  EXPECT_TRUE(tilings[0].dot->partial && kK % bk != 0);
  const int64_t rows = kK, blocks = (kN + bn - 1) / bn;
  const Constant &c = constantOf(plan, w);
  ASSERT_EQ(c.bytes, rows * blocks * bn * 4);
  EXPECT_EQ(plan.program.buffer(w).elements, Expr(rows * blocks * bn));
  // What was done is said, so that another value of the weight can be given later.
  EXPECT_EQ(c.orders.size(), 1u);
  const float *v = reinterpret_cast<const float *>(c.data);
  for (int64_t n = 0; n < blocks * bn; ++n)
    for (int64_t k = 0; k < rows; ++k)
      ASSERT_EQ(v[(n / bn * rows + k) * bn + n % bn], n < kN && k < kK ? static_cast<float>(k * kN + n) : 0.0f)
          << "k " << k << " n " << n;
}

/// y[m, o] = sum over taps and i of x[m, tap, i] w[o, i, tap]: weights as those of a convolution, which lie contiguous along neither columns nor k.
plan::Plan planOfTaps(Maker &m, bool given, int64_t rows, int64_t taps, int64_t in, int64_t out) {
  const BufferId x = m.input("x", rows * taps * in), w = given ? m.input("w", out * in * taps) : m.constant("w", out * in * taps), y = addTemp(m.p, "y", DType::F32, rows * out);
  ContractionSpec c;
  c.lhs = appendLoad(c.body, x, DType::F32, i(0) * (taps * in) + r(0) * in + r(1));
  c.rhs = appendLoad(c.body, w, DType::F32, i(1) * (in * taps) + r(1) * taps + r(0));
  c.accType = DType::F32, c.stores = {{y, i(0) * out + i(1), 0}};
  m.node({rows, out}, {taps, in}, std::move(c)), m.output(y);
  return m.plan();
}

/// What the caller gives is put into the same order as a constant by a kernel that runs before the product.
TEST(Tiling, AWeightThatIsGivenIsPackedByAKernel) {
  constexpr int64_t kTaps = 9, kIn = 40, kOut = 100;
  Maker constants, inputs;
  plan::Plan fixed = planOfTaps(constants, false, 65, kTaps, kIn, kOut), given = planOfTaps(inputs, true, 65, kTaps, kIn, kOut);
  const DotTiling atOnce = *chooseTilings(fixed, TileTarget())[0].dot;
  const Tilings tilings = chooseTilings(given, TileTarget());
  ASSERT_TRUE(tilings[0].dot && tilings[0].dot->packed && atOnce.packed);
  ASSERT_EQ(given.kernels.size(), 2u);
  ASSERT_TRUE(tilings[1].loop);
  ASSERT_EQ(given.main.steps.size(), 2u);
  EXPECT_EQ(given.main.steps[0].as<plan::Launch>()->kernel, given.kernels[1].id);
  EXPECT_EQ(given.main.steps[1].as<plan::Launch>()->kernel, given.kernels[0].id);
  // The product reads both alike.
  auto right = [](const plan::Plan &p) {
    const auto &spec = p.kernels[0].nodes[0].get<ContractionSpec>();
    return spec.body.ops[static_cast<size_t>(spec.rhs)];
  };
  EXPECT_EQ(right(given).index, right(fixed).index);
  const BufferId packed = right(given).buffer;
  EXPECT_EQ(given.placements[packed.index()].where, plan::Placement::Where::Arena);
  // What the kernel makes of numbered elements is what the compiler made of them.
  const plan::Kernel &kernel = given.kernels[1];
  const auto &spec = kernel.nodes[0].get<PointwiseSpec>();
  const Constant &c = constantOf(fixed, right(fixed).buffer);
  const float *expected = reinterpret_cast<const float *>(c.data);
  std::vector<float> made(static_cast<size_t>(c.bytes / 4), -1);
  ASSERT_EQ(given.program.buffer(packed).elements, Expr(static_cast<int64_t>(made.size())));
  const Op &load = spec.body.ops[static_cast<size_t>(spec.stores[0].value)];
  ASSERT_EQ(load.kind, OpKind::Load);
  std::vector<int64_t> at(kernel.xRanges.size());
  SymbolMap<int64_t> values;
  auto walk = [&](size_t d, auto &&self) -> void {
    if (d < at.size()) {
      for (int64_t v = 0; v < kernel.xRanges[d].constValue(); ++v) values[Symbol::outer(d)] = v, self(d + 1, self);
      return;
    }
    const int64_t to = *evaluate(spec.stores[0].index, values), from = *evaluate(load.index, values);
    bool inside = true;
    for (const Op &op : spec.body.ops) // the columns behind the last are masked
      if (op.kind == OpKind::Index) inside = *evaluate(op.index, values) < kOut;
    made[static_cast<size_t>(to)] = inside ? static_cast<float>(from) : 0;
  };
  walk(0, walk);
  for (size_t e = 0; e < made.size(); ++e) ASSERT_EQ(made[e], expected[e]) << e;
}

TEST(Tiling, AGivenWeightStaysWhereItIsReadAsItLies) {
  // One block of rows.
  Maker few;
  plan::Plan rows = planOfTaps(few, true, 64, 9, 40, 100);
  EXPECT_FALSE(chooseTilings(rows, TileTarget())[0].dot->packed);
  EXPECT_EQ(rows.kernels.size(), 1u);
  // Contiguous along the columns.
  Maker m;
  const BufferId x = m.input("x", kM * kK), w = m.input("w", kK * kN), y = addTemp(m.p, "y", DType::F32, kM * kN);
  product(m, x, w, y), m.output(y);
  plan::Plan plan = m.plan();
  EXPECT_FALSE(chooseTilings(plan, TileTarget())[0].dot->packed);
  EXPECT_EQ(plan.kernels.size(), 1u);
}

TEST(Tiling, BlocksOfKAreMultipliedInPartWhereOperandsLieInMemory) {
  auto blocksOf = [](DType t, OpKind behind) {
    Maker m;
    const BufferId x = m.input("x", kM * kK, t), w = m.input("w", kK * kN, t), y = addTemp(m.p, "y", t, kM * kN);
    ContractionSpec c;
    c.lhs = appendLoad(c.body, x, t, i(0) * kK + r(0)), c.rhs = appendLoad(c.body, w, t, r(0) * kN + i(1));
    if (behind != OpKind::Load) c.lhs = append(c.body, behind, t, c.lhs);
    c.accType = DType::F32, c.stores = {{y, i(0) * kN + i(1), 0}};
    m.node({kM, kN}, {kK}, std::move(c)), m.output(y);
    plan::Plan plan = m.plan();
    return *chooseTilings(plan, TileTarget())[0].dot;
  };
  EXPECT_TRUE(blocksOf(DType::F32, OpKind::Load).partial);
  EXPECT_EQ(blocksOf(DType::F32, OpKind::Load).bk, 128);
  // Computed operands would be computed behind a mask; pairs and tiles of bf16 have their own steps.
  EXPECT_FALSE(blocksOf(DType::F32, OpKind::Neg).partial);
  EXPECT_FALSE(blocksOf(DType::BF16, OpKind::Load).partial);
}

TEST(Tiling, ProgramsWalkRowsOutermostWhereTheRightOperandIsSmall) {
  auto rowsFirst = [](int64_t m, int64_t n) {
    Maker maker;
    const BufferId x = maker.input("x", m * kK), w = maker.constant("w", kK * n), y = addTemp(maker.p, "y", DType::F32, m * n);
    ContractionSpec c;
    c.lhs = appendLoad(c.body, x, DType::F32, i(0) * kK + r(0)), c.rhs = appendLoad(c.body, w, DType::F32, r(0) * n + i(1));
    c.accType = DType::F32, c.stores = {{y, i(0) * n + i(1), 0}};
    maker.node({m, n}, {kK}, std::move(c)), maker.output(y);
    plan::Plan plan = maker.plan();
    return chooseTilings(plan, TileTarget())[0].dot->rowsFirst;
  };
  EXPECT_TRUE(rowsFirst(4096, 256));
  EXPECT_FALSE(rowsFirst(4096, 4096)); // more than a cache holds
  EXPECT_FALSE(rowsFirst(64, 256));    // too few blocks of rows for many threads
}

TEST(Tiling, AnOperandThatProgramsPutInOrderIsReadByFewBlocksOfRows) {
  auto tiling = [](int64_t m, int64_t n, bool given, DType t = DType::F32) {
    Maker maker;
    const BufferId x = maker.input("x", m * kK, t), w = given ? maker.input("w", kK * n, t) : maker.constant("w", kK * n, t), y = addTemp(maker.p, "y", t, m * n);
    ContractionSpec c;
    c.lhs = appendLoad(c.body, x, t, i(0) * kK + r(0)), c.rhs = appendLoad(c.body, w, t, i(1) * kK + r(0));
    c.accType = DType::F32, c.stores = {{y, i(0) * n + i(1), 0}};
    maker.node({m, n}, {kK}, std::move(c)), maker.output(y);
    plan::Plan plan = maker.plan();
    return *chooseTilings(plan, TileTarget())[0].dot;
  };
  EXPECT_EQ(tiling(197, 3072, true).bm, 256);
  EXPECT_EQ(tiling(197, 3072, true).validRows, 197);
  EXPECT_EQ(tiling(1000, 3072, true).bm, 256);
  // As many programs as threads want.
  EXPECT_EQ(tiling(197, 768, true).bm, 128);
  EXPECT_EQ(tiling(197, 768, true).validRows, 0);
  // A constant is in order, and products of 16 bits order as they multiply.
  EXPECT_EQ(tiling(197, 3072, false).bm, 16);
  EXPECT_EQ(tiling(197, 3072, true, DType::BF16).bm, 16);
}

TEST(Tiling, OneRowReadsAGivenOperandInLongPieces) {
  auto columns = [](int64_t m, int64_t n) {
    Maker maker;
    const BufferId x = maker.input("x", m * kK), w = maker.input("w", kK * n), y = addTemp(maker.p, "y", DType::F32, m * n);
    ContractionSpec c;
    c.lhs = appendLoad(c.body, x, DType::F32, i(0) * kK + r(0)), c.rhs = appendLoad(c.body, w, DType::F32, r(0) * n + i(1));
    c.accType = DType::F32, c.stores = {{y, i(0) * n + i(1), 0}};
    maker.node({m, n}, {kK}, std::move(c)), maker.output(y);
    plan::Plan plan = maker.plan();
    return chooseTilings(plan, TileTarget())[0].dot->bn;
  };
  EXPECT_EQ(columns(1, 2304), 128);
  EXPECT_EQ(columns(4, 2304), 64);
  EXPECT_EQ(columns(1, 768), 64);         // six programs are too few for many threads
  EXPECT_EQ(columns(1, 2304 + 64), 64);   // half of the last piece would be masked off
}

TEST(Tiling, RowsThatComeFromMemoryAreReadOnce) {
  auto streams = [](Expr rows, int64_t length, DType t) {
    Maker m;
    const BufferId w = m.input("w", rows * length, t), x = m.input("x", length, t), y = addTemp(m.p, "y", DType::F32, rows);
    ReductionSpec s;
    const ValueIdx a = appendLoad(s.body, w, t, i(0) * length + r(0)), b = appendLoad(s.body, x, t, r(0));
    const ValueIdx product = append(s.body, OpKind::Mul, t, a, b);
    s.reductions = {{ReduceKind::Sum, DType::F32, t == DType::F32 ? product : append(s.body, OpKind::Cast, DType::F32, product), {{y, i(0), 1}}}};
    m.node({rows}, {length}, s), m.output(y);
    plan::Plan plan = m.plan();
    return chooseTilings(plan, TileTarget())[0].loop->streams;
  };
  EXPECT_TRUE(streams(1024, 1024, DType::F32));
  EXPECT_FALSE(streams(1023, 1024, DType::F32));
  EXPECT_FALSE(streams(1024, 1024, DType::BF16));
  EXPECT_TRUE(streams(2048, 1024, DType::BF16));
}

/// Each way in which something else may read the weight: it then stays as the model has it.
TEST(Tiling, AWeightThatIsReadElsewhereStays) {
  for (int way = 0; way < 3; ++way) {
    Maker m;
    const BufferId x = m.input("x", kM * kK), w = m.constant("w", kK * kN), y = addTemp(m.p, "y", DType::F32, kM * kN),
                   z = addTemp(m.p, "z", DType::F32, kM * kN);
    product(m, x, w, y), m.output(y);
    if (way == 0) {
      // Rows from the last to the first.
      ContractionSpec c;
      c.lhs = appendLoad(c.body, x, DType::F32, i(0) * kK + r(0)), c.rhs = appendLoad(c.body, w, DType::F32, (Expr(kK - 1) - r(0)) * kN + i(1));
      c.accType = DType::F32, c.stores = {{z, i(0) * kN + i(1), 0}};
      m.node({kM, kN}, {kK}, std::move(c)), m.output(z);
    }
    if (way == 1) {
      PointwiseSpec copy;
      copy.stores = {{z, i(0), appendLoad(copy.body, w, DType::F32, i(0))}};
      m.node({kM * kN}, {}, copy), m.output(z);
    }
    if (way == 2) m.output(w);
    plan::Plan plan = m.plan();
    const uint8_t *before = constantOf(plan, w).data;
    for (const KernelTiling &t : chooseTilings(plan, TileTarget())) EXPECT_TRUE(!t.dot || !t.dot->packed) << "way " << way;
    EXPECT_EQ(constantOf(plan, w).data, before);
    EXPECT_TRUE(constantOf(plan, w).orders.empty());
    EXPECT_EQ(plan.program.buffer(w).elements, Expr(kK * kN));
  }
}

/// Of any number of rows each, for their blocks of columns are the same.
TEST(Tiling, AWeightOfSeveralProductsIsPackedOnce) {
  Maker m;
  const BufferId x = m.input("x", kM * kK), w = m.constant("w", kK * kN), y = addTemp(m.p, "y", DType::F32, kM * kN), z = addTemp(m.p, "z", DType::F32, kM * kN);
  product(m, x, w, y), m.output(y), product(m, x, w, z), m.output(z);
  plan::Plan plan = m.plan();
  const Tilings tilings = chooseTilings(plan, TileTarget());
  ASSERT_EQ(tilings.size(), 2u);
  for (size_t k = 0; k < 2; ++k) {
    EXPECT_TRUE(tilings[k].dot->packed);
    const auto &node = plan.kernels[k].nodes[0].get<ContractionSpec>();
    EXPECT_TRUE(uses(node.body.ops[static_cast<size_t>(node.rhs)].index, kLaneOfN));
  }
  EXPECT_EQ(constantOf(plan, w).orders.size(), 1u);
}

/// A product of the weight with itself has it on the left, too, in the model's order.
TEST(Tiling, ASquareOfAWeightStays) {
  Maker m;
  const BufferId w = m.constant("w", kK * kK), y = addTemp(m.p, "y", DType::F32, kK * kK);
  ContractionSpec c;
  c.lhs = appendLoad(c.body, w, DType::F32, i(0) * kK + r(0)), c.rhs = appendLoad(c.body, w, DType::F32, r(0) * kK + i(1));
  c.accType = DType::F32, c.stores = {{y, i(0) * kK + i(1), 0}};
  m.node({kK, kK}, {kK}, std::move(c)), m.output(y);
  plan::Plan plan = m.plan();
  EXPECT_FALSE(chooseTilings(plan, TileTarget())[0].dot->packed);
  EXPECT_TRUE(constantOf(plan, w).orders.empty());
}

/// y = x [M, K] * w, of dequantised weights.
plan::Plan planOfComputed(Maker &m, int64_t k, int64_t n, const std::function<ValueIdx(Body &)> &weight, int64_t rows = kM) {
  const BufferId x = m.input("x", rows * k), y = addTemp(m.p, "y", DType::F32, rows * n);
  ContractionSpec c;
  c.lhs = appendLoad(c.body, x, DType::F32, i(0) * k + r(0)), c.rhs = weight(c.body);
  c.accType = DType::F32, c.stores = {{y, i(0) * n + i(1), 0}};
  m.node({rows, n}, {k}, std::move(c)), m.output(y);
  return m.plan();
}

TEST(Tiling, WeightsOf8BitsAndTheirScalesLieInBlocks) {
  constexpr int64_t kGroup = 32, kRows = 128, kGroups = kRows / kGroup;
  Maker m;
  const BufferId w = m.constant<uint8_t>("w", kRows * kN, DType::U8), scales = m.constant("scales", kN * kGroups);
  plan::Plan plan = planOfComputed(m, kRows, kN, [&](Body &b) {
    const ValueIdx q = append(b, OpKind::Cast, DType::F32, appendLoad(b, w, DType::U8, i(1) * kRows + r(0)));
    return append(b, OpKind::Mul, DType::F32, q, appendLoad(b, scales, DType::F32, i(1) * kGroups + floorDiv(r(0), kGroup)));
  });
  const Tilings tilings = chooseTilings(plan, TileTarget());
  ASSERT_TRUE(tilings[0].dot);
  const int64_t bn = tilings[0].dot->bn, blocks = (kN + bn - 1) / bn;
  // A step along k stays within a group.
  EXPECT_EQ(kGroup % tilings[0].dot->bk, 0);
  const Constant &q = constantOf(plan, w), &s = constantOf(plan, scales);
  ASSERT_EQ(q.bytes, blocks * bn * kRows);
  ASSERT_EQ(s.bytes, blocks * bn * kGroups * 4);
  EXPECT_EQ(q.orders.size() + s.orders.size(), 2u);
  for (int64_t n = 0; n < kN; ++n)
    for (int64_t k = 0; k < kRows; ++k) {
      ASSERT_EQ(q.data[(n / bn * kRows + k) * bn + n % bn], static_cast<uint8_t>(n * kRows + k)) << "k " << k << " n " << n;
      ASSERT_EQ(reinterpret_cast<const float *>(s.data)[(n / bn * kGroups + k / kGroup) * bn + n % bn], static_cast<float>(n * kGroups + k / kGroup));
    }
}

/// (w[place] >> shift) & 15, in bytes or words.
ValueIdx fourBits(Body &b, BufferId w, DType t, Expr place, Expr shift) {
  ValueIdx word = appendLoad(b, w, t, place);
  if (t != DType::I32) word = append(b, OpKind::Cast, DType::I32, word);
  const ValueIdx by = appendIndex(b, shift);
  b.ops.back().dtype = DType::I32;
  const ValueIdx shifted = append(b, OpKind::Shr, DType::I32, word, by);
  Op mask{};
  mask.kind = OpKind::Constant, mask.dtype = DType::I32, mask.immInt = 15;
  b.ops.push_back(mask);
  return append(b, OpKind::Cast, DType::F32, append(b, OpKind::And, DType::I32, shifted, static_cast<ValueIdx>(b.ops.size()) - 1));
}

TEST(Tiling, NumbersOfFourBitsLieInBlocks) {
  constexpr int64_t kRows = 64, kColumns = 128;
  // Two neighbours along k in a byte, or eight in a word.
  for (DType t : {DType::U8, DType::I32}) {
    const int64_t each = t == DType::U8 ? 2 : 8;
    for (bool updatable : {false, true}) {
      Maker m;
      const BufferId w = t == DType::U8 ? m.constant<uint8_t>("w", kRows * kColumns / each, t) : m.constant<int32_t>("w", kRows * kColumns / each, t);
      plan::Plan plan = planOfComputed(m, kRows, kColumns, [&](Body &b) {
        return fourBits(b, w, t, i(1) * (kRows / each) + floorDiv(r(0), each), mod(r(0), each) * 4);
      });
      auto number = [](const uint8_t *p, int64_t place) { return p[place / 2] >> place % 2 * 4 & 15; };
      const std::vector<uint8_t> before(constantOf(plan, w).data, constantOf(plan, w).data + constantOf(plan, w).bytes);
      TileTarget target;
      target.updatable = updatable;
      const Tilings tilings = chooseTilings(plan, target);
      ASSERT_TRUE(tilings[0].dot);
      const int64_t bn = tilings[0].dot->bn;
      const Constant &c = constantOf(plan, w);
      ASSERT_EQ(c.bytes, static_cast<int64_t>(before.size()));
      // Weights that can be given later are left as they are.
      EXPECT_EQ(c.tensors.size(), updatable ? 1u : 0u);
      for (int64_t n = 0; n < kColumns; ++n)
        for (int64_t k = 0; k < kRows; ++k) {
          const int64_t inside = n % bn, pair = inside % (bn / 2) * 2 + inside / (bn / 2);
          const int64_t inBytes = (n / bn * kRows + k) * bn + pair, inWords = ((n / bn * (kRows / 8) + k / 8) * bn + inside) * 8 + k % 8;
          const int64_t place = updatable ? n * kRows + k : t == DType::U8 ? inBytes : inWords;
          ASSERT_EQ(number(c.data, place), number(before.data(), n * kRows + k)) << "k " << k << " n " << n;
        }
    }
  }
}

TEST(Tiling, FewRowsHaveFourNeighboursOfFourBitsSideBySide) {
  constexpr int64_t kRows = 64, kColumns = 128;
  for (int64_t m : {1, 2, 3}) {
    Maker maker;
    const BufferId w = maker.constant<uint8_t>("w", kRows * kColumns / 2, DType::U8);
    plan::Plan plan = planOfComputed(maker, kRows, kColumns, [&](Body &b) {
      return fourBits(b, w, DType::U8, i(1) * (kRows / 2) + floorDiv(r(0), 2), mod(r(0), 2) * 4);
    }, m);
    const std::vector<uint8_t> before(constantOf(plan, w).data, constantOf(plan, w).data + constantOf(plan, w).bytes);
    const Tilings tilings = chooseTilings(plan, TileTarget());
    ASSERT_TRUE(tilings[0].dot);
    // More rows than these are multiplied as floats.
    ASSERT_EQ(tilings[0].dot->fours, m <= 2);
    if (m > 2) continue;
    const int64_t bn = tilings[0].dot->bn, half = bn / 2;
    ASSERT_EQ(constantOf(plan, w).bytes, static_cast<int64_t>(before.size()));
    for (int64_t n = 0; n < kColumns; ++n)
      for (int64_t k = 0; k < kRows; ++k) {
        const int64_t byte = n / bn * kRows * half + (k / 4 * half + n % half) * 4 + k % 4, place = n * kRows + k;
        ASSERT_EQ(constantOf(plan, w).data[byte] >> n % bn / half * 4 & 15, before[static_cast<size_t>(place / 2)] >> place % 2 * 4 & 15) << "k " << k << " n " << n;
      }
  }
}

TEST(Tiling, FourNeighboursAreForNumbersThatAreMultipliedAsTheyAre) {
  constexpr int64_t kRows = 64, kColumns = 128, kGroup = 32;
  enum Form { Plain, Scaled, ScaledForEachK, Moved };
  for (Form form : {Plain, Scaled, ScaledForEachK, Moved}) {
    Maker maker;
    const BufferId w = maker.constant<uint8_t>("w", kRows * kColumns / 2, DType::U8), scales = maker.constant("scales", kRows * kColumns);
    plan::Plan plan = planOfComputed(maker, kRows, kColumns, [&](Body &b) {
      const ValueIdx q = fourBits(b, w, DType::U8, i(1) * (kRows / 2) + floorDiv(r(0), 2), mod(r(0), 2) * 4);
      if (form == Plain) return q;
      if (form == Moved) return append(b, OpKind::Sub, DType::F32, q, appendLoad(b, scales, DType::F32, i(1)));
      const Expr place = form == Scaled ? floorDiv(r(0), kGroup) : r(0);
      return append(b, OpKind::Mul, DType::F32, q, appendLoad(b, scales, DType::F32, i(1) * kRows + place));
    }, 1);
    const Tilings tilings = chooseTilings(plan, TileTarget());
    ASSERT_TRUE(tilings[0].dot);
    EXPECT_EQ(tilings[0].dot->fours, form == Plain || form == Scaled) << form;
  }
}

TEST(Tiling, ScalesAndZerosThatLieSideBySideBecomeRows) {
  constexpr int64_t kGroup = 32, kRows = 128, kGroups = kRows / kGroup;
  Maker m;
  const BufferId w = m.constant<uint8_t>("w", kRows * kN, DType::U8), both = m.constant("both", kGroups * kN * 2);
  plan::Plan plan = planOfComputed(m, kRows, kN, [&](Body &b) {
    const ValueIdx q = append(b, OpKind::Cast, DType::F32, appendLoad(b, w, DType::U8, i(1) * kRows + r(0)));
    auto parameter = [&](int64_t which) { return appendLoad(b, both, DType::F32, (floorDiv(r(0), kGroup) * kN + i(1)) * 2 + which); };
    const ValueIdx scaled = append(b, OpKind::Mul, DType::F32, q, parameter(0));
    return append(b, OpKind::Add, DType::F32, scaled, parameter(1));
  });
  const Tilings tilings = chooseTilings(plan, TileTarget());
  ASSERT_TRUE(tilings[0].dot);
  const int64_t bn = tilings[0].dot->bn, blocks = (kN + bn - 1) / bn;
  const Constant &c = constantOf(plan, both);
  ASSERT_EQ(c.bytes, blocks * bn * kGroups * 2 * 4);
  for (int64_t n = 0; n < kN; ++n)
    for (int64_t g = 0; g < kGroups; ++g)
      for (int64_t which : {0, 1})
        ASSERT_EQ(reinterpret_cast<const float *>(c.data)[((n / bn * kGroups + g) * 2 + which) * bn + n % bn], static_cast<float>((g * kN + n) * 2 + which));
}

TEST(Tiling, AProductOfOtherTypesIsASum) {
  Maker m;
  const BufferId x = m.input("x", kM * kK, DType::I16), w = m.input("w", kK * kN, DType::I16),
                 y = addTemp(m.p, "y", DType::I16, kM * kN);
  product(m, x, w, y, DType::I16), m.output(y);
  plan::Plan plan = m.plan();
  const Tilings tilings = chooseTilings(plan, TileTarget());
  EXPECT_FALSE(tilings[0].dot);
  const plan::Kernel &k = plan.kernels[0];
  EXPECT_EQ(k.kind, Kind::Reduction);
  ASSERT_EQ(k.nodes.size(), 2u);
  EXPECT_EQ(k.nodes[0].reductions()[0].kind, ReduceKind::Sum);
  EXPECT_EQ(k.nodes[1].stores()[0].buffer, y);
  // The sum lives in the kernel alone.
  const BufferId sum = k.nodes[0].reductions()[0].results[0].buffer;
  EXPECT_EQ(plan.placements[sum.index()].where, plan::Placement::Where::None);
}

TEST(Tiling, WelfordIsTwoPassesOverRowsThatAProgramKeeps) {
  for (int64_t length : {64, 1 << 20}) {
    Maker m;
    const BufferId x = m.input("x", kM * length), y = addTemp(m.p, "y", DType::F32, kM);
    ReductionSpec s;
    const ValueIdx v = appendLoad(s.body, x, DType::F32, i(0) * length + r(0));
    s.reductions = {{ReduceKind::Welford, DType::F32, v, {{y, i(0), 1}}}};
    m.node({kM}, {length}, s), m.output(y);
    TileTarget gpu;
    gpu.threadBlocks = true, gpu.processors = 132;
    schedule::ScheduleOptions whole;
    whole.splitReductions = false;
    plan::Plan plan = m.plan(whole);
    chooseTilings(plan, gpu);
    std::vector<ReduceKind> kinds;
    for (const Node &n : plan.kernels[0].nodes)
      for (const Reduction &red : n.reductions()) kinds.push_back(red.kind);
    if (length == 64)
      EXPECT_EQ(kinds, (std::vector{ReduceKind::Sum, ReduceKind::Sum}));
    else
      EXPECT_EQ(kinds, std::vector{ReduceKind::Welford});
  }
}

TEST(Tiling, BlocksOfAttentionOnCpusGrowWithTheQueries) {
  auto tilingOf = [](int64_t queries, DType t) {
    Maker m;
    m.attention(2, queries, t);
    const plan::Plan plan = m.plan();
    const AttentionTiling tiling = chooseAttentionTiling(plan.program.facts, plan.kernels[0], TileTarget());
    return std::array{tiling.queries, tiling.keys, tiling.rows};
  };
  EXPECT_EQ(tilingOf(256, DType::F32), (std::array<int64_t, 3>{128, 64, 128}));
  EXPECT_EQ(tilingOf(255, DType::F32), (std::array<int64_t, 3>{64, 32, 64}));
  EXPECT_EQ(tilingOf(63, DType::F32), (std::array<int64_t, 3>{32, 64, 32}));
  EXPECT_EQ(tilingOf(256, DType::BF16), (std::array<int64_t, 3>{32, 64, 32}));
  // Blocks that are not all full share the queries out, in eights.
  EXPECT_EQ(tilingOf(197, DType::F32), (std::array<int64_t, 3>{64, 32, 56}));
  EXPECT_EQ(tilingOf(300, DType::F32), (std::array<int64_t, 3>{128, 64, 104}));
  EXPECT_EQ(tilingOf(13, DType::F32), (std::array<int64_t, 3>{16, 16, 13}));
}

TEST(Tiling, ShortColumnsThatArePassedOverTwiceAreHeld) {
  auto tilingOf = [](int64_t length, ReduceKind kind) {
    constexpr int64_t kResults = 4096;
    Maker m;
    const BufferId x = m.input("x", kResults * length), y = addTemp(m.p, "y", DType::F32, kResults);
    ReductionSpec s;
    const ValueIdx v = appendLoad(s.body, x, DType::F32, r(0) * kResults + i(0));
    s.reductions = {{kind, DType::F32, v, {{y, i(0), 0}}}};
    if (kind == ReduceKind::Welford) s.reductions[0].results[0].value = 1;
    m.node({kResults}, {length}, s), m.output(y);
    TileTarget gpu;
    gpu.threadBlocks = true, gpu.processors = 4;
    plan::Plan plan = m.plan();
    return chooseTilings(plan, gpu)[0].loop.value();
  };
  const LoopTiling held = tilingOf(100, ReduceKind::Welford), once = tilingOf(100, ReduceKind::Sum), steps = tilingOf(1000, ReduceKind::Welford);
  EXPECT_EQ(held.shape, LoopTiling::Shape::Columns);
  EXPECT_EQ(held.tile, (std::vector<int64_t>{128, 64}));
  EXPECT_TRUE(held.oneStep && held.keepsLoads);
  EXPECT_EQ(once.tile, (std::vector<int64_t>{32, 64}));
  EXPECT_EQ(steps.tile, (std::vector<int64_t>{32, 64}));
}

/// y[i] = sum over j of x, whose rows or columns are summed.
LoopTiling tilingOfSum(int64_t results, int64_t length, bool alongRows, const TileTarget &target = TileTarget()) {
  Maker m;
  const BufferId x = m.input("x", results * length), y = addTemp(m.p, "y", DType::F32, results);
  ReductionSpec sum;
  const Expr at = alongRows ? i(0) * length + r(0) : r(0) * results + i(0);
  sum.reductions = {{ReduceKind::Sum, DType::F32, appendLoad(sum.body, x, DType::F32, at), {{y, i(0), 0}}}};
  m.node({results}, {length}, sum), m.output(y);
  plan::Plan plan = m.plan();
  return chooseTilings(plan, target)[0].loop.value();
}

TEST(Tiling, LoopsWalkAlongMemory) {
  using Shape = LoopTiling::Shape;
  const LoopTiling rows = tilingOfSum(100, 512, true), steps = tilingOfSum(100, 100000, true),
                   columns = tilingOfSum(100, 1000, false), few = tilingOfSum(100, 8, false);
  EXPECT_EQ(rows.shape, Shape::Rows);
  EXPECT_EQ(rows.tile, std::vector<int64_t>{512});
  EXPECT_EQ(rows.outer[0].size, 1);
  EXPECT_TRUE(rows.oneStep);
  EXPECT_EQ(steps.shape, Shape::Rows);
  EXPECT_EQ(steps.inner, TileTarget().reduceChunk);
  EXPECT_FALSE(steps.oneStep);
  EXPECT_EQ(columns.shape, Shape::Columns);
  EXPECT_EQ(columns.tile, (std::vector<int64_t>{1024, 64}));
  EXPECT_EQ(columns.outer[0].size, 64);
  EXPECT_EQ(columns.outer[0].tileDim, 1);
  EXPECT_EQ(few.shape, Shape::Unrolled);
  // Of some more a thread of the CPU makes a loop, and a block of threads writes them out.
  TileTarget blocks;
  blocks.threadBlocks = true, blocks.processors = 132;
  EXPECT_EQ(tilingOfSum(100, 16, false).shape, Shape::Unrolled);
  EXPECT_EQ(tilingOfSum(100, 17, false).shape, Shape::Columns);
  EXPECT_EQ(tilingOfSum(100, 17, false, blocks).shape, Shape::Unrolled);
  // A thread of the CPU adds numbers; a block of threads adds tiles, and its threads exchange once.
  EXPECT_FALSE(steps.carriesTiles);
  EXPECT_TRUE(tilingOfSum(100, 100000, true, blocks).carriesTiles);
}

TEST(Tiling, RowsThatAreLookedUpRunAlongMemoryToo) {
  // y[i] = sum over r of x[place[r]][i]: neighbours of the result lie side by side, those along r lie where the data says.
  constexpr int64_t kResults = 1000, kLength = 100;
  Maker m;
  const BufferId x = m.input("x", 7 * kResults), place = m.input("place", kLength, DType::I64), y = addTemp(m.p, "y", DType::F32, kResults);
  ReductionSpec sum;
  Op row{OpKind::Indirect, DType::I64};
  row.a = appendLoad(sum.body, place, DType::I64, r(0)), row.symbol = Symbol::indirect(0), row.bound = 7;
  append(sum.body, row);
  sum.reductions = {{ReduceKind::Sum, DType::F32, appendLoad(sum.body, x, DType::F32, Expr(row.symbol) * kResults + i(0)), {{y, i(0), 0}}}};
  m.node({kResults}, {kLength}, sum), m.output(y);
  plan::Plan plan = m.plan();
  EXPECT_EQ(chooseTilings(plan, TileTarget())[0].loop.value().shape, LoopTiling::Shape::Columns);
}

TEST(Tiling, BlocksOfThreadsFillChannelsLike96) {
  auto tileOf = [](int64_t channels, bool threadBlocks) {
    constexpr int64_t kImages = 64, kPositions = 56;
    Maker m;
    // Gaps, so that nothing becomes one dimension.
    const BufferId x = m.input("x", kImages * 60 * (channels + 4)), y = addTemp(m.p, "y", DType::F32, kImages * kPositions * channels);
    PointwiseSpec copy;
    const ValueIdx v = appendLoad(copy.body, x, DType::F32, (i(0) * 60 + i(1)) * (channels + 4) + i(2));
    copy.stores = {{y, (i(0) * kPositions + i(1)) * channels + i(2), v}};
    m.node({kImages, kPositions, channels}, {}, copy), m.output(y);
    TileTarget target;
    target.threadBlocks = threadBlocks, target.processors = threadBlocks ? 132 : 1;
    plan::Plan plan = m.plan();
    return chooseTilings(plan, target)[0].loop.value().tile;
  };
  EXPECT_EQ(tileOf(96, true), (std::vector<int64_t>{32, 32}));
  EXPECT_EQ(tileOf(192, true), (std::vector<int64_t>{16, 64}));
  EXPECT_EQ(tileOf(576, true), (std::vector<int64_t>{8, 128}));
  // As wide as it can be where little is empty, or no block fits.
  EXPECT_EQ(tileOf(128, true), (std::vector<int64_t>{8, 128}));
  EXPECT_EQ(tileOf(1000, true), std::vector<int64_t>{1024});
  EXPECT_EQ(tileOf(100, true), (std::vector<int64_t>{8, 128}));
  // One thread walks a whole row.
  EXPECT_EQ(tileOf(96, false), (std::vector<int64_t>{8, 128}));
}

TEST(Tiling, WindowsThatOverlapShareAProgram) {
  // A depthwise convolution of `length` taps along the positions, and what is made of it.
  int64_t ofThread = 0; // results of a thread of the last one
  auto kernelOf = [&](int64_t positions, int64_t length, int64_t stride, int64_t processors) {
    constexpr int64_t kImages = 8, kChannels = 96;
    const int64_t padded = positions * stride + length, results = kImages * positions * kChannels;
    Maker m;
    const BufferId x = m.input("x", kImages * padded * kChannels), w = m.input("w", length * kChannels), t = addTemp(m.p, "t", DType::F32, results),
                   y = addTemp(m.p, "y", DType::F32, results);
    const Expr at = (i(0) * positions + i(1)) * kChannels + i(2);
    ReductionSpec sum;
    const ValueIdx element = appendLoad(sum.body, x, DType::F32, (i(0) * padded + i(1) * stride + r(0)) * kChannels + i(2)),
                   factor = appendLoad(sum.body, w, DType::F32, r(0) * kChannels + i(2));
    sum.reductions = {{ReduceKind::Sum, DType::F32, append(sum.body, OpKind::Mul, DType::F32, element, factor), {{t, at, 0}}}};
    m.node({kImages, positions, kChannels}, {length}, sum);
    PointwiseSpec relu;
    relu.stores = {{y, at, append(relu.body, OpKind::Relu, DType::F32, appendLoad(relu.body, t, DType::F32, at))}};
    m.node({kImages, positions, kChannels}, {}, relu), m.output(y);
    TileTarget target;
    target.threadBlocks = processors > 1, target.processors = processors;
    plan::Plan plan = m.plan();
    const LoopTiling tiling = chooseTilings(plan, target)[0].loop.value();
    EXPECT_EQ(tiling.shape, LoopTiling::Shape::Unrolled);
    ofThread = tiling.tile[0] * (tiling.tile.size() > 1 ? tiling.tile[1] : 1) / (32 * tiling.warps);
    return plan.kernels[0];
  };
  // Long windows too, on a CPU as well: what slides is written out.
  kernelOf(56, 31, 1, 1), kernelOf(56, 31, 2, 1);
  const plan::Kernel four = kernelOf(56, 7, 1, 4);
  EXPECT_EQ(four.xRanges, (std::vector<Expr>{8, 14, 96}));
  ASSERT_EQ(four.nodes.size(), 8u);
  // Every load before the first store; the third window begins two places behind the first.
  EXPECT_EQ(four.nodes[3].kind(), Kind::Reduction);
  EXPECT_EQ(four.nodes[4].kind(), Kind::Pointwise);
  EXPECT_EQ(four.nodes[2].body().ops[0].index - four.nodes[0].body().ops[0].index, Expr(2 * 96));
  EXPECT_EQ(four.nodes[6].stores()[0].index - four.nodes[4].stores()[0].index, Expr(2 * 96));
  EXPECT_EQ(kernelOf(58, 7, 1, 4).xRanges[1], Expr(29));   // what divides
  EXPECT_EQ(kernelOf(56, 7, 1, 8).xRanges[1], Expr(28));   // more processors want more programs
  EXPECT_EQ(kernelOf(56, 7, 1, 132).xRanges[1], Expr(56));
  EXPECT_EQ(kernelOf(56, 3, 2, 4).xRanges[1], Expr(14));   // 9 elements in place of 12
  EXPECT_EQ(kernelOf(56, 3, 3, 4).xRanges[1], Expr(56));   // nothing in common
  EXPECT_EQ(kernelOf(56, 7, 1, 1).xRanges[1], Expr(56));   // one thread keeps its cache
  // Where processors have few threads, each of these has fewer results.
  kernelOf(112, 7, 1, 2);
  EXPECT_EQ(ofThread, 8);
  kernelOf(112, 7, 1, 4);
  EXPECT_EQ(ofThread, 4);
}

TEST(Tiling, ARowOfWindowsIsOneProgramOfAThread) {
  // Windows of 9 in rows of `positions`, 32 channels.
  auto tileOf = [](int64_t rows, int64_t positions) {
    constexpr int64_t kChannels = 32;
    Maker m;
    const BufferId x = m.input("x", rows * (positions + 9) * kChannels), w = m.input("w", 9 * kChannels),
                   y = addTemp(m.p, "y", DType::F32, rows * positions * kChannels);
    ReductionSpec sum;
    const ValueIdx element = appendLoad(sum.body, x, DType::F32, ((positions + 9) * i(0) + i(1) + r(0)) * kChannels + i(2)),
                   factor = appendLoad(sum.body, w, DType::F32, r(0) * kChannels + i(2));
    sum.reductions = {{ReduceKind::Sum, DType::F32, append(sum.body, OpKind::Mul, DType::F32, element, factor), {{y, (i(0) * positions + i(1)) * kChannels + i(2), 0}}}};
    m.node({rows, positions, kChannels}, {9}, sum), m.output(y);
    plan::Plan plan = m.plan();
    return chooseTilings(plan, TileTarget())[0].loop.value().tile;
  };
  EXPECT_EQ(tileOf(2, 56), (std::vector<int64_t>{64, 32}));
  EXPECT_EQ(tileOf(112, 112), (std::vector<int64_t>{128, 32}));
  // Few rows that are long are shared by several programs, and so are rows that are too long.
  EXPECT_EQ(tileOf(2, 112), (std::vector<int64_t>{32, 32}));
  EXPECT_EQ(tileOf(112, 300), (std::vector<int64_t>{32, 32}));
}

TEST(Tiling, WindowsWalkPlanesThatLieInMemory) {
  // Depthwise windows of 3 along the positions, whose sums have channels innermost; x and y have them innermost or outermost.
  auto kernelOf = [](bool planes, bool threadBlocks, Expr positions) {
    constexpr int64_t kImages = 2, kChannels = 20;
    Maker m;
    const Expr results = kImages * positions * kChannels;
    const BufferId x = m.input("x", results), w = m.input("w", 3 * kChannels), t = addTemp(m.p, "t", DType::F32, results), y = addTemp(m.p, "y", DType::F32, results);
    auto at = [&](Expr length, Expr p, bool apart) { return apart ? (i(0) * kChannels + i(2)) * length + p : (i(0) * length + p) * kChannels + i(2); };
    ReductionSpec sum;
    const ValueIdx element = appendLoad(sum.body, x, DType::F32, at(positions, i(1) + r(0), planes)), factor = appendLoad(sum.body, w, DType::F32, r(0) * kChannels + i(2));
    sum.reductions = {{ReduceKind::Sum, DType::F32, append(sum.body, OpKind::Mul, DType::F32, element, factor), {{t, at(positions, i(1), false), 0}}}};
    m.node({kImages, positions, kChannels}, {3}, sum);
    PointwiseSpec relu;
    relu.stores = {{y, at(positions, i(1), planes), append(relu.body, OpKind::Relu, DType::F32, appendLoad(relu.body, t, DType::F32, at(positions, i(1), false)))}};
    m.node({kImages, positions, kChannels}, {}, relu), m.output(y);
    TileTarget target;
    target.threadBlocks = threadBlocks;
    plan::Plan plan = m.plan();
    chooseTilings(plan, target);
    return plan.kernels[0];
  };
  const plan::Kernel kernel = kernelOf(true, false, 40);
  EXPECT_EQ(kernel.xRanges, (std::vector<Expr>{2, 20, 40}));
  EXPECT_EQ(kernel.nodes[0].ranges, kernel.xRanges);
  EXPECT_EQ(kernel.nodes[0].body().ops[0].index, Symbol::outer(0) * 800 + Symbol::outer(1) * 40 + Symbol::outer(2) + r(0));
  EXPECT_EQ(kernelOf(false, false, 40).xRanges.back(), Expr(20));
  EXPECT_EQ(kernelOf(true, true, 40).xRanges, (std::vector<Expr>{2, 20, 40}));
}

TEST(Tiling, LongWindowsOfManyNeighboursAreThreads) {
  // Windows of 1024 along the positions, each channel's with weights of its own side by side.
  auto shapeOf = [](int64_t processors) {
    constexpr int64_t kChannels = 64, kPositions = 2047, kTaps = 1024;
    Maker m;
    const BufferId x = m.input("x", kChannels * (kPositions + kTaps)), w = m.input("w", kChannels * kTaps), y = addTemp(m.p, "y", DType::F32, kChannels * kPositions);
    ReductionSpec sum;
    const ValueIdx element = appendLoad(sum.body, x, DType::F32, i(0) * (kPositions + kTaps) + i(1) + r(0)), factor = appendLoad(sum.body, w, DType::F32, i(0) * kTaps + r(0));
    sum.reductions = {{ReduceKind::Sum, DType::F32, append(sum.body, OpKind::Mul, DType::F32, element, factor), {{y, i(0) * kPositions + i(1), 0}}}};
    m.node({kChannels, kPositions}, {kTaps}, sum), m.output(y);
    TileTarget target;
    target.threadBlocks = true, target.processors = processors;
    plan::Plan plan = m.plan();
    return chooseTilings(plan, target)[0].loop.value().shape;
  };
  EXPECT_EQ(shapeOf(132), LoopTiling::Shape::Columns);
  EXPECT_EQ(shapeOf(1000), LoopTiling::Shape::Rows);
}

TEST(Tiling, RowsOfEightAreMultipliedWhereTheyLie) {
  auto stepOf = [](int64_t channels) {
    Maker m;
    plan::Plan plan = planOfTaps(m, false, 64, 9, channels, 16);
    return *chooseTilings(plan, TileTarget())[0].dot;
  };
  // A loop over taps, each a block of k; shorter rows are one with them.
  EXPECT_EQ(stepOf(8).kOuter.size(), 1u);
  EXPECT_EQ(stepOf(8).bk, 8);
  EXPECT_FALSE(stepOf(8).partial);
  EXPECT_EQ(stepOf(12).bk, 16);
  EXPECT_TRUE(stepOf(12).partial);
  EXPECT_EQ(stepOf(4).kOuter.size(), 0u);
}

/// Updates of memory keep their order where no instruction does them in any.
TEST(Tiling, UpdatesRunInTurnUnlessTheyAreInstructions) {
  auto serial = [](StoreMode mode, bool threadBlocks, DType t = DType::F32) {
    Maker m;
    const BufferId x = m.input("x", 12, t), y = addTemp(m.p, "y", t, 3);
    PointwiseSpec zero, update;
    Op none{OpKind::Constant, t};
    zero.stores = {{y, i(0), append(zero.body, none)}};
    m.node({3}, {}, zero);
    update.stores = {{y, mod(i(0), 3), appendLoad(update.body, x, t, i(0)), -1, mode}};
    m.node({12}, {}, update), m.output(y);
    TileTarget target;
    target.threadBlocks = threadBlocks;
    plan::Plan plan = m.plan();
    chooseTilings(plan, target);
    return plan.kernels.back().serial;
  };
  EXPECT_TRUE(serial(StoreMode::AtomicAdd, false));
  EXPECT_FALSE(serial(StoreMode::AtomicAdd, true));
  EXPECT_TRUE(serial(StoreMode::AtomicMul, false));
  EXPECT_FALSE(serial(StoreMode::AtomicMul, true));
  EXPECT_FALSE(serial(StoreMode::AtomicMax, true));
  EXPECT_TRUE(serial(StoreMode::AtomicMax, true, DType::I8));
  EXPECT_TRUE(serial(StoreMode::AtomicAdd, true, DType::I16));
  EXPECT_FALSE(serial(StoreMode::Set, true));
}

} // namespace
} // namespace neso
