// What fusion makes of the patterns that models are built of.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/diagnostics/loops.h"
#include "ir/loops/build.h"
#include "ir/plan/access.h"
#include "ir/plan/interp.h"
#include "ir/plan/verify.h"
#include "lower/memory/memory.h"
#include "lower/schedule/schedule.h"

namespace neso::schedule::test {
namespace {

using namespace loops;

Expr i(int d) { return Symbol::index(static_cast<size_t>(d)); }
Expr r(int d) { return Symbol::inner(static_cast<size_t>(d)); }

struct Maker {
  Program p;
  BufferId add(std::string name, Buffer::Kind kind, Expr elements) {
    Buffer b;
    b.id = BufferId(static_cast<int64_t>(p.buffers.size()));
    b.name = std::move(name);
    b.kind = kind;
    b.elements = elements;
    if (kind == Buffer::Kind::Input) {
      b.index = static_cast<int64_t>(p.inputs.size());
      ProgramInput in;
      in.name = b.name;
      in.sizes = {elements};
      in.strides = {1};
      in.buffer = b.id;
      p.inputs.push_back(in);
    }
    p.buffers.push_back(b);
    return b.id;
  }
  BufferId input(std::string name, Expr elements) { return add(std::move(name), Buffer::Kind::Input, elements); }
  BufferId temp(std::string name, Expr elements) { return add(std::move(name), Buffer::Kind::Temp, elements); }
  template <typename T> T &node(std::vector<Expr> ranges, std::vector<Expr> reduce, std::string name) {
    Node n;
    n.id = NodeId(static_cast<int64_t>(p.nodes.size()));
    n.name = std::move(name);
    n.ranges = std::move(ranges);
    n.reduceRanges = std::move(reduce);
    p.nodes.push_back(n);
    return p.nodes.back().spec.template emplace<T>();
  }
  static ValueIdx load(Body &b, BufferId from, Expr index) { return appendLoad(b, from, DType::F32, index); }
  static Store store(BufferId b, Expr index, ValueIdx v) {
    Store s;
    s.buffer = b;
    s.index = index;
    s.value = v;
    return s;
  }
  /// to[index] = op(from[at], other[otherAt])
  void pointwise(std::string name, std::vector<Expr> ranges, BufferId to, Expr index, OpKind k, BufferId from, Expr at,
                 BufferId other = {}, Expr otherAt = 0) {
    PointwiseSpec &n = node<PointwiseSpec>(std::move(ranges), {}, std::move(name));
    ValueIdx v = load(n.body, from, at);
    if (other.valid())
      v = append(n.body, k, DType::F32, v, load(n.body, other, otherAt));
    else
      v = append(n.body, k, DType::F32, v);
    n.stores = {store(to, index, v)};
  }
  void reduce(std::string name, ReduceKind k, std::vector<Expr> ranges, std::vector<Expr> over, BufferId to, Expr index,
              BufferId from, Expr at) {
    ReductionSpec &n = node<ReductionSpec>(std::move(ranges), std::move(over), std::move(name));
    n.reductions.push_back({k, DType::F32, load(n.body, from, at), {store(to, index, 0)}});
  }
  void matmul(std::string name, Expr m, Expr n, Expr k, BufferId to, BufferId a, BufferId b) {
    ContractionSpec &c = node<ContractionSpec>({m, n}, {k}, std::move(name));
    c.lhs = load(c.body, a, i(0) * k + r(0));
    c.rhs = load(c.body, b, r(0) * n + i(1));
    c.stores = {store(to, i(0) * n + i(1), 0)};
  }
  void output(BufferId b) {
    ProgramOutput o;
    o.buffer = b;
    o.sizes = {p.buffer(b).elements};
    o.strides = {1};
    p.outputs.push_back(o);
  }
  plan::Plan plan(const ScheduleOptions &options = {}) {
    Result<plan::Plan> out = schedule(p, options);
    EXPECT_TRUE(out);
    Status ok = plan::verify(*out, plan::Form::Scheduled);
    EXPECT_TRUE(ok) << ok.error().str() << print(*out);
    memory::planMemory(*out);
    ok = plan::verify(*out);
    EXPECT_TRUE(ok) << ok.error().str() << print(*out);
    return std::move(*out);
  }
};

TEST(Patterns, SoftmaxOverSymbolicRowsIsOneKernelThatReadsAndWritesOnce) {
  Maker m;
  Expr s = Symbol::size("s0"), n = 128;
  m.p.facts.setRange(Symbol::size("s0"), {1, 4096});
  BufferId x = m.input("x", s * n), rows = m.input("rows", s), top = m.temp("top", s), e = m.temp("e", s * n),
           total = m.temp("total", s), y = m.temp("y", s * n);
  m.reduce("max", ReduceKind::Max, {s}, {n}, top, i(0), x, i(0) * n + r(0));
  m.pointwise("sub", {s, n}, e, i(0) * n + i(1), OpKind::Sub, x, i(0) * n + i(1), top, i(0));
  m.reduce("sum", ReduceKind::Sum, {s}, {n}, total, i(0), e, i(0) * n + r(0));
  m.pointwise("div", {s, n}, y, i(0) * n + i(1), OpKind::Div, e, i(0) * n + i(1), total, i(0));
  m.output(y);
  plan::Plan p = m.plan();
  ASSERT_EQ(p.kernels.size(), 1u) << print(p);
  EXPECT_EQ(p.kernels[0].xRanges, std::vector<Expr>{s});
  EXPECT_EQ(p.kernels[0].rRanges, std::vector<Expr>{n});
  plan::KernelTraffic t = plan::traffic(p, p.kernels[0]);
  EXPECT_EQ(t.bytesRead, s * n * 4) << t.bytesRead.str();
  EXPECT_EQ(t.bytesWritten, s * n * 4);
  EXPECT_EQ(p.arenaBytes(), Expr(0));
  (void)rows;
}

TEST(Patterns, MatmulTakesBiasActivationAndResidualAsEpilogue) {
  Maker m;
  BufferId a = m.input("a", 64 * 32), b = m.input("b", 32 * 48), bias = m.input("bias", 48),
           res = m.input("res", 64 * 48), c = m.temp("c", 64 * 48), d = m.temp("d", 64 * 48), e = m.temp("e", 64 * 48),
           y = m.temp("y", 64 * 48);
  m.matmul("mm", 64, 48, 32, c, a, b);
  m.pointwise("bias", {64, 48}, d, i(0) * 48 + i(1), OpKind::Add, c, i(0) * 48 + i(1), bias, i(1));
  m.pointwise("relu", {64 * 48}, e, i(0), OpKind::Relu, d, i(0)); // over the flattened view
  m.pointwise("residual", {64, 6, 8}, y, i(0) * 48 + i(1) * 8 + i(2), OpKind::Add, e, i(0) * 48 + i(1) * 8 + i(2), res,
              i(0) * 48 + i(1) * 8 + i(2));
  m.output(y);
  plan::Plan p = m.plan();
  ASSERT_EQ(p.kernels.size(), 1u) << print(p);
  const plan::Kernel &k = p.kernels[0];
  EXPECT_EQ(k.kind, Node::Kind::Contraction);
  EXPECT_EQ(k.nodes[0].kind(), Node::Kind::Contraction);
  EXPECT_EQ(k.xRanges, (std::vector<Expr>{64, 48}));
  EXPECT_EQ(k.rRanges, std::vector<Expr>{32});
  EXPECT_EQ(p.placements[y.index()].where, plan::Placement::Where::Output);
  ScheduleOptions apart;
  apart.fuseEpilogues = false;
  EXPECT_EQ(m.plan(apart).kernels.size(), 2u);
}

TEST(Patterns, PartsOfComplexResultsAreWrittenWhereTheCallerWantsThem) {
  for (const auto &[strides, offset, inPlace] : std::vector<std::tuple<std::vector<Expr>, Expr, bool>>{
           {{5, 1}, 0, true}, {{1, 6}, 0, true}, {{5, 1}, 1, false}, {{6, 1}, 0, false}}) {
    Maker m;
    BufferId x = m.input("x", 60), y = m.temp("y", 60);
    m.pointwise("relu", {60}, y, i(0), OpKind::Relu, x, i(0));
    ProgramOutput o;
    o.buffer = y, o.dtype = DType::C64, o.sizes = {6, 5}, o.strides = strides, o.offset = offset;
    m.p.outputs.push_back(o);
    plan::Plan p = *schedule(m.p, {});
    EXPECT_EQ(p.placements[y.index()].where == plan::Placement::Where::Output, inPlace) << print(p);
  }
}

TEST(Patterns, LayerNormStatisticsAndUseShareAKernel) {
  Maker m;
  BufferId x = m.input("x", 40 * 96), w = m.input("w", 96), mean = m.temp("mean", 40), d = m.temp("d", 40 * 96),
           y = m.temp("y", 40 * 96);
  m.reduce("mean", ReduceKind::Sum, {40}, {96}, mean, i(0), x, i(0) * 96 + r(0));
  m.pointwise("center", {40, 96}, d, i(0) * 96 + i(1), OpKind::Sub, x, i(0) * 96 + i(1), mean, i(0));
  m.pointwise("scale", {40, 96}, y, i(0) * 96 + i(1), OpKind::Mul, d, i(0) * 96 + i(1), w, i(1));
  m.output(y);
  plan::Plan p = m.plan();
  ASSERT_EQ(p.kernels.size(), 1u) << print(p);
  EXPECT_EQ(plan::traffic(p, p.kernels[0]).bytesRead, Expr((40 * 96 + 96) * 4));
}

TEST(Patterns, TransposedConsumerMatchesItsProducer) {
  Maker m;
  BufferId x = m.input("x", 30 * 20), t = m.temp("t", 30 * 20), y = m.temp("y", 30 * 20);
  m.pointwise("relu", {30, 20}, t, i(0) * 20 + i(1), OpKind::Relu, x, i(0) * 20 + i(1));
  m.pointwise("transpose", {20, 30}, y, i(0) * 30 + i(1), OpKind::Neg, t, i(1) * 20 + i(0));
  m.output(y);
  EXPECT_EQ(m.plan().kernels.size(), 1u);
}

TEST(Patterns, StencilsAndCirclesStayApart) {
  Maker m;
  BufferId x = m.input("x", 100), t = m.temp("t", 100), y = m.temp("y", 100), s = m.temp("s", 1), z = m.temp("z", 100);
  m.pointwise("relu", {100}, t, i(0), OpKind::Relu, x, i(0));
  m.pointwise("flip", {100}, y, i(0), OpKind::Add, t, i(0), t, Expr(99) - i(0)); // reads another element's value
  m.reduce("sum", ReduceKind::Sum, {}, {100}, s, 0, y, r(0));
  m.pointwise("use", {100}, z, i(0), OpKind::Mul, t, i(0), s, 0); // relu and use may not join: sum runs between them
  m.output(z);
  plan::Plan p = m.plan();
  std::string text = print(p);
  EXPECT_EQ(p.kernels.size(), 2u) << text;
  EXPECT_NE(text.find("relu not with flip: t is accessed at"), std::string::npos) << text;
  EXPECT_NE(text.find("relu not with use: another kernel runs between them"), std::string::npos) << text;
}

TEST(Patterns, DimensionsMergeAndTheContiguousOneIsInnermost) {
  Maker m;
  // x is channels-last: strides of [n, c, h, w] are [7*5*16, 1, 5*16, 16]; the result has the same layout.
  BufferId x = m.input("x", 2 * 7 * 5 * 16), y = m.temp("y", 2 * 7 * 5 * 16);
  Expr at = i(0) * (7 * 5 * 16) + i(1) + i(2) * (5 * 16) + i(3) * 16;
  m.pointwise("relu", {2, 16, 7, 5}, y, at, OpKind::Relu, x, at);
  m.output(y);
  plan::Plan p = m.plan();
  EXPECT_EQ(p.kernels[0].xRanges, std::vector<Expr>{2 * 7 * 5 * 16}) << print(p);
  EXPECT_EQ(p.kernels[0].nodes[0].stores()[0].index, Symbol::outer(0));
}

TEST(Patterns, ChainReusesTwoBlocksOfMemory) {
  Maker m;
  BufferId x = m.input("x", 64 * 64), w = m.input("w", 64 * 64), last = x;
  for (int k = 0; k < 8; ++k) {
    BufferId t = m.temp("t" + std::to_string(k), 64 * 64);
    m.matmul("mm", 64, 64, 64, t, last, w);
    last = t;
  }
  m.output(last);
  plan::Plan p = m.plan();
  EXPECT_EQ(p.arenaBytes(), Expr(2 * 64 * 64 * 4)) << print(p);
  EXPECT_EQ(p.arenaLowerBound, p.arenaBytes());
}

// The kernel walks t three times, and relu(t) needs no statistics: it runs in the first pass, when t is still to be
// read.
TEST(Patterns, ResultOfAnEarlyPassDoesNotTakeTheMemoryOfWhatLaterPassesRead) {
  Maker m;
  Expr rows = 8, n = 64;
  BufferId x = m.input("x", rows * n), t = m.temp("t", rows * n), top = m.temp("top", rows), e = m.temp("e", rows * n),
           total = m.temp("total", rows), y = m.temp("y", rows * n), z = m.temp("z", rows * n);
  // A write in reversed order keeps this node out of the kernel.
  m.pointwise("exp", {rows, n}, t, i(0) * n + (n - 1 - i(1)), OpKind::Exp, x, i(0) * n + i(1));
  m.reduce("max", ReduceKind::Max, {rows}, {n}, top, i(0), t, i(0) * n + r(0));
  m.pointwise("sub", {rows, n}, e, i(0) * n + i(1), OpKind::Sub, t, i(0) * n + i(1), top, i(0));
  m.reduce("sum", ReduceKind::Sum, {rows}, {n}, total, i(0), e, i(0) * n + r(0));
  m.pointwise("relu", {rows, n}, y, i(0) * n + i(1), OpKind::Relu, t, i(0) * n + i(1));
  m.pointwise("turn", {rows, n}, z, i(0) * n + i(1), OpKind::Neg, y, i(0) * n + (n - 1 - i(1)));
  m.output(z);
  m.output(total);
  plan::Plan p = m.plan();
  for (const plan::Kernel &k : p.kernels) {
    plan::Passes passes = plan::passesOf(k);
    for (size_t node = 0; node < k.nodes.size(); ++node)
      if (k.nodes[node].name == "relu" && passes.pass[node] < passes.last)
        EXPECT_EQ(std::count(k.decisions.begin(), k.decisions.end(), "y takes the memory of t"), 0) << print(p);
  }
  EXPECT_EQ(p.kernels.size(), 3u) << print(p);
}

TEST(Patterns, ReductionOverNothingIsNoInnerWork) {
  Maker m;
  Expr rows = 3, n = 4;
  BufferId x = m.input("x", rows * n), top = m.temp("top", rows), e = m.temp("e", rows * n),
           mean = m.temp("mean", rows * n);
  m.reduce("max", ReduceKind::Max, {rows}, {n}, top, i(0), x, i(0) * n + r(0));
  m.pointwise("sub", {rows, n}, e, i(0) * n + i(1), OpKind::Sub, x, i(0) * n + i(1), top, i(0));
  m.reduce("mean", ReduceKind::Sum, {rows, n}, {}, mean, i(0) * n + i(1), e, i(0) * n + i(1));
  m.output(e);
  m.output(mean);
  m.plan(); // verifies
}

TEST(Patterns, LongReductionIsSplitAndItsPartsAreIndependent) {
  Maker m;
  BufferId x = m.input("x", 1024 * 96), y = m.temp("y", 1);
  m.reduce("sum", ReduceKind::Sum, {}, {1024, 96}, y, 0, x, r(0) * 96 + r(1));
  m.output(y);
  plan::Plan p = m.plan();
  ASSERT_EQ(p.kernels.size(), 2u) << print(p);
  EXPECT_EQ(p.kernels[0].xRanges, std::vector<Expr>{64}); // 64 parts of 16 rows: at least 1024 elements each
  EXPECT_EQ(p.kernels[0].rRanges, std::vector<Expr>{16 * 96});
  EXPECT_EQ(p.kernels[1].rRanges, std::vector<Expr>{64});
  ScheduleOptions whole;
  whole.splitReductions = false;
  EXPECT_EQ(m.plan(whole).kernels.size(), 1u);
  std::vector<float> data(1024 * 96);
  for (size_t k = 0; k < data.size(); ++k) data[k] = static_cast<float>(k % 7) - 2;
  std::vector<HostValue> in = {HostValue::tensor(DType::F32, {1024 * 96}, data.data())};
  Result<plan::PlanRun> run = plan::runPlan(p, in, 1);
  ASSERT_TRUE(run);
  double want = 0;
  for (float v : data) want += static_cast<double>(v);
  EXPECT_EQ(reinterpret_cast<float *>(run->outputs[0].data)[0], want); // small integers: exact in any order
}

/// Sizes of a plan for many processors that only the run knows, usual ones and others.
class UnknownLengths : public testing::Test {
protected:
  UnknownLengths() {
    MachineSheet machine;
    machine.processors = 132;
    options.split = SplitRule::manyProcessors(machine);
    for (auto [symbol, usual] : {std::pair(rows, 3), {n, 40}, {k, 9000}}) m.p.facts.setRange(symbol, {0, INT64_MAX}), m.p.facts.setHint(symbol, usual);
  }
  /// Output k of a run on these numbers.
  void run(const plan::Plan &p, std::vector<std::vector<float>> inputs) {
    std::vector<HostValue> in;
    for (std::vector<float> &data : inputs) in.push_back(HostValue::tensor(DType::F32, {static_cast<int64_t>(data.size())}, data.data()));
    Result<plan::PlanRun> out = plan::runPlan(p, in, 1);
    ASSERT_TRUE(out) << out.error().str();
    result = std::move(*out);
  }
  template <typename T> const T *output(size_t index) const { return reinterpret_cast<const T *>(result.outputs[index].data); }
  static std::vector<float> numbers(int64_t count) {
    std::vector<float> data(static_cast<size_t>(count));
    for (size_t at = 0; at < data.size(); ++at) data[at] = static_cast<float>(at * 7919 % 1031) - 500;
    return data;
  }

  /// Whole numbers below 5, of whose products sums are exact.
  static std::vector<float> digits(int64_t count) {
    std::vector<float> data = numbers(count);
    for (float &v : data) v = static_cast<float>(static_cast<int64_t>(v) % 5);
    return data;
  }
  /// Output 0 is a [length, height] transposed times b [length, width]: looked at in its corners.
  void expectProduct(const std::vector<float> &a, const std::vector<float> &b, int64_t length) const {
    const int64_t height = static_cast<int64_t>(a.size()) / length, width = static_cast<int64_t>(b.size()) / length;
    for (int64_t row : {int64_t{0}, height / 3, height - 1})
      for (int64_t column : {int64_t{0}, width - 1}) {
        double want = 0;
        for (int64_t at = 0; at < length; ++at) want += static_cast<double>(a[static_cast<size_t>(at * height + row)]) * static_cast<double>(b[static_cast<size_t>(at * width + column)]);
        EXPECT_EQ(output<float>(0)[row * width + column], want) << length << " " << height << " " << width;
      }
  }

  const Symbol rows = Symbol::size("s0"), n = Symbol::size("s1"), k = Symbol::size("s2");
  Maker m;
  ScheduleOptions options;
  plan::PlanRun result;
};

TEST_F(UnknownLengths, AreCutInParts) {
  constexpr int64_t kPlane = 512;
  m.input("r", rows), m.input("c", n);
  const BufferId x = m.input("x", Expr(rows) * kPlane * n), sum = m.temp("sum", rows), least = m.temp("least", rows), mean = m.temp("mean", 1), m2 = m.temp("m2", 1);
  const BufferId first = m.temp("first", rows);
  m.p.buffers[first.index()].dtype = DType::I64;
  const Expr at = (i(0) * kPlane + r(0)) * n + r(1);
  m.reduce("sum", ReduceKind::Sum, {rows}, {kPlane, n}, sum, i(0), x, at);
  m.reduce("least", ReduceKind::Min, {rows}, {kPlane, n}, least, i(0), x, at);
  m.reduce("first", ReduceKind::ArgMin, {rows}, {kPlane, n}, first, i(0), x, at);
  ReductionSpec &moments = m.node<ReductionSpec>({}, {rows, kPlane, n}, "moments");
  moments.reductions.push_back({ReduceKind::Welford, DType::F32, Maker::load(moments.body, x, (r(0) * kPlane + r(1)) * n + r(2)), {{mean, 0, 0}, {m2, 0, 1}}});
  for (BufferId b : {sum, least, first, mean, m2}) m.output(b);
  m.p.outputs[2].dtype = DType::I64;
  const plan::Plan p = m.plan(options);
  EXPECT_GE(p.kernels.size(), 7u) << print(p);
  for (auto [count, columns] : std::vector<std::pair<int64_t, int64_t>>{{2, 40}, {1, 1}, {100, 2}, {300, 3}, {3, 117}}) {
    const std::vector<float> data = numbers(count * kPlane * columns);
    run(p, {std::vector<float>(static_cast<size_t>(count)), std::vector<float>(static_cast<size_t>(columns)), data});
    double all = 0, deviations = 0;
    for (float v : data) all += static_cast<double>(v);
    all /= static_cast<double>(data.size());
    for (float v : data) deviations += (static_cast<double>(v) - all) * (static_cast<double>(v) - all);
    for (int64_t row = 0; row < count; ++row) {
      const auto begin = data.begin() + row * kPlane * columns, end = begin + kPlane * columns, lowest = std::min_element(begin, end);
      // Small integers: exact in any order.
      EXPECT_EQ(output<float>(0)[row], std::accumulate(begin, end, 0.0)) << count << " " << columns;
      EXPECT_EQ(output<float>(1)[row], *lowest);
      EXPECT_EQ(output<int64_t>(2)[row], lowest - begin);
    }
    EXPECT_NEAR(output<float>(3)[0], all, 1e-3);
    EXPECT_NEAR(output<float>(4)[0] / deviations, 1, 1e-5);
  }
}

TEST_F(UnknownLengths, OfProductsAreCutAlongK) {
  constexpr int64_t kSide = 32;
  m.input("k", k);
  const BufferId x = m.input("x", Expr(k) * kSide), y = m.temp("y", kSide * kSide);
  ContractionSpec &c = m.node<ContractionSpec>({kSide, kSide}, {k}, "product");
  c.lhs = Maker::load(c.body, x, r(0) * kSide + i(0)), c.rhs = Maker::load(c.body, x, r(0) * kSide + i(1));
  c.stores = {Maker::store(y, i(0) * kSide + i(1), append(c.epilogue, OpKind::Constant, DType::F32))};
  m.output(y);
  const plan::Plan p = m.plan(options);
  EXPECT_GE(p.kernels.size(), 2u) << print(p);
  for (int64_t length : {9000, 1, 63, 64, 65, 4001}) {
    const std::vector<float> data = digits(length * kSide);
    run(p, {std::vector<float>(static_cast<size_t>(length)), data});
    expectProduct(data, data, length);
  }
}

/// Exported with a short k and few rows and columns, run with a long one and with none of them few.
TEST_F(UnknownLengths, OfProductsWhoseRowsAreUnknownTooAreCutAsTheRunAsks) {
  m.input("k", k), m.input("m", rows), m.input("n", n);
  m.p.facts.setHint(k, 64), m.p.facts.setHint(rows, 32), m.p.facts.setHint(n, 32);
  const BufferId x = m.input("x", Expr(k) * rows), w = m.input("w", Expr(k) * n), y = m.temp("y", Expr(rows) * n);
  ContractionSpec &c = m.node<ContractionSpec>({rows, n}, {k}, "product");
  c.lhs = Maker::load(c.body, x, r(0) * rows + i(0)), c.rhs = Maker::load(c.body, w, r(0) * n + i(1));
  c.stores = {Maker::store(y, i(0) * n + i(1), append(c.epilogue, OpKind::Constant, DType::F32))};
  m.output(y);
  const plan::Plan p = m.plan(options);
  EXPECT_GE(p.kernels.size(), 2u) << print(p);
  const Expr parts = p.kernels[0].xRanges.back();
  auto partsAt = [&](int64_t length, int64_t height, int64_t width) { return *evaluate(parts, {{k, length}, {rows, height}, {n, width}}); };
  EXPECT_GE(partsAt(1 << 20, 32, 32), 64);
  EXPECT_EQ(partsAt(1 << 20, 4096, 4096), 1);
  EXPECT_EQ(partsAt(512, 32, 32), 1);
  for (auto [length, height, width] : {std::tuple<int64_t, int64_t, int64_t>{9000, 3, 5}, {1, 2, 2}, {2049, 40, 1}, {64, 7, 9}}) {
    const std::vector<float> a = digits(length * height), b = digits(length * width);
    auto sizes = [](int64_t count) { return std::vector<float>(static_cast<size_t>(count)); };
    run(p, {sizes(length), sizes(height), sizes(width), a, b});
    expectProduct(a, b, length);
  }
}

TEST_F(UnknownLengths, OfSortsAreMergedAsOftenAsTheyAsk) {
  const BufferId x = m.input("x", k), keys = m.temp("keys", k), places = m.temp("places", k);
  m.p.buffers[places.index()].dtype = DType::I64;
  SortSpec &sort = m.node<SortSpec>({}, {k}, "sort");
  sort.key = Maker::load(sort.body, x, r(0));
  sort.stores = {{keys, r(0), 0}, {places, r(0), 1}};
  m.output(keys), m.output(places);
  m.p.outputs[1].dtype = DType::I64;
  const plan::Plan p = m.plan(options);
  for (int64_t length : {9000, 1, 2, 1024, 1025, 8192, 8193, 16385, 40000, 70001}) {
    const std::vector<float> data = numbers(length);
    run(p, {data});
    std::vector<int64_t> order(data.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return data[static_cast<size_t>(a)] < data[static_cast<size_t>(b)]; });
    EXPECT_TRUE(std::equal(order.begin(), order.end(), output<int64_t>(1))) << length;
    for (size_t at = 0; at < order.size(); ++at) ASSERT_EQ(output<float>(0)[at], data[static_cast<size_t>(order[at])]) << length;
  }
}

/// As a group norm has them where channels are innermost: [2, groups] over [channels, 64, 16], of which the channels lie side by side.
void checkStatistics(int64_t groups, int64_t channels) {
  constexpr int64_t kImages = 2, kRows = 64, kColumns = 16;
  const int64_t all = groups * channels;
  Maker m;
  BufferId x = m.input("x", kImages * kRows * kColumns * all), mean = m.temp("mean", kImages * groups), m2 = m.temp("m2", kImages * groups),
           count = m.temp("count", kImages * groups);
  ReductionSpec &n = m.node<ReductionSpec>({kImages, groups}, {channels, kRows, kColumns}, "moments");
  const Expr at = ((i(0) * kRows + r(1)) * kColumns + r(2)) * all + i(1) * channels + r(0), to = i(0) * groups + i(1);
  n.reductions.push_back({ReduceKind::Welford, DType::F32, Maker::load(n.body, x, at), {{mean, to, 0}, {m2, to, 1}, {count, to, 2}}});
  for (BufferId b : {mean, m2, count}) m.output(b);
  ScheduleOptions options;
  options.splitReductions = false;
  EXPECT_EQ(m.plan(options).kernels.size(), 1u);
  options.splitReductions = true;
  EXPECT_GT(m.plan(options).kernels.size(), 1u); // on CPUs too
  MachineSheet machine;
  machine.processors = 132;
  options.split = SplitRule::manyProcessors(machine);
  plan::Plan p = m.plan(options);
  ASSERT_EQ(p.kernels.size(), 2u) << print(p);
  // A result for each channel of an eighth of the image; the parts' total, and what is made of it.
  EXPECT_EQ(p.kernels[0].xRanges, (std::vector<Expr>{kImages, 8, all})) << print(p);
  EXPECT_EQ(p.kernels[0].rRanges, std::vector<Expr>{kRows * kColumns / 8});
  EXPECT_EQ(p.kernels[1].xRanges, std::vector<Expr>{kImages * groups});
  EXPECT_EQ(p.kernels[1].rRanges, std::vector<Expr>{channels * 8});
  EXPECT_EQ(p.kernels[1].nodes.size(), 2u);
  std::vector<float> data(static_cast<size_t>(kImages * kRows * kColumns * all));
  for (size_t k = 0; k < data.size(); ++k) data[k] = static_cast<float>(k * 7919 % 1031) / 64 + 100;
  std::vector<HostValue> in = {HostValue::tensor(DType::F32, {static_cast<int64_t>(data.size())}, data.data())};
  Result<plan::PlanRun> run = plan::runPlan(p, in, 1);
  ASSERT_TRUE(run);
  auto output = [&](size_t k) { return reinterpret_cast<const float *>(run->outputs[k].data); };
  for (int64_t image = 0; image < kImages; ++image)
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t elements = channels * kRows * kColumns;
      double sum = 0, deviations = 0;
      auto each = [&](auto f) {
        for (int64_t position = 0; position < kRows * kColumns; ++position)
          for (int64_t c = 0; c < channels; ++c)
            f(static_cast<double>(data[static_cast<size_t>((image * kRows * kColumns + position) * all + group * channels + c)]));
      };
      each([&](double v) { sum += v; });
      each([&](double v) { deviations += (v - sum / elements) * (v - sum / elements); });
      const int64_t row = image * groups + group;
      // Roundings of f32 in means of numbers near 100, and in sums of squares.
      EXPECT_NEAR(output(0)[row], sum / elements, 1e-4);
      EXPECT_NEAR(output(1)[row] / deviations, 1, 1e-5);
      EXPECT_EQ(output(2)[row], elements);
    }
}

TEST(Patterns, StatisticsOfGroupsOfInnermostChannelsAreReadInLines) {
  checkStatistics(32, 4);
  checkStatistics(2, 64);
}

TEST(Patterns, ProductWithFewBlocksIsCutAlongKAndItsSumTakesTheEpilogue) {
  ScheduleOptions options;
  // Rates under which few blocks wait longer than they multiply.
  MachineSheet machine;
  machine.processors = 132;
  machine.narrow = {0.24, 1.1e6}, machine.wide = {0.27, 0.18e6}, machine.secondKernel = 3, machine.bytesPerUs = 3e6;
  options.split = SplitRule::manyProcessors(machine);
  // Positions outside, channels inside, as convolutions have them; parts within a position, and of several positions.
  for (auto [positions, channels] : {std::pair<int64_t, int64_t>{9, 512}, {36, 64}, {1, 4096}}) {
    Maker m;
    BufferId a = m.input("a", (48 + positions) * channels), b = m.input("b", positions * channels * 32),
             c = m.temp("c", 49 * 32), y = m.temp("y", 49 * 32);
    ContractionSpec &n = m.node<ContractionSpec>({49, 32}, {positions, channels}, "conv");
    n.lhs = Maker::load(n.body, a, (i(0) + r(0)) * channels + r(1));
    n.rhs = Maker::load(n.body, b, (r(0) * channels + r(1)) * 32 + i(1));
    n.stores = {Maker::store(c, i(0) * 32 + i(1), 0)};
    m.pointwise("relu", {49, 32}, y, i(0) * 32 + i(1), OpKind::Relu, c, i(0) * 32 + i(1));
    m.output(y);
    EXPECT_EQ(m.plan().kernels.size(), 1u); // on few processors it stays whole
    plan::Plan p = m.plan(options);
    ASSERT_EQ(p.kernels.size(), 2u) << print(p);
    EXPECT_EQ(p.kernels[0].kind, Node::Kind::Contraction);
    EXPECT_EQ(p.kernels[1].kind, Node::Kind::Reduction); // many parts: a kernel of their own adds them
    auto data = [](int64_t count, int mod) {
      std::vector<float> out(static_cast<size_t>(count));
      for (size_t k = 0; k < out.size(); ++k)
        out[k] = static_cast<float>(static_cast<int>(k * 7 % static_cast<size_t>(mod)) - mod / 2);
      return out;
    };
    std::vector<float> av = data((48 + positions) * channels, 5), bv = data(positions * channels * 32, 11);
    std::vector<HostValue> in = {HostValue::tensor(DType::F32, {static_cast<int64_t>(av.size())}, av.data()),
                                 HostValue::tensor(DType::F32, {static_cast<int64_t>(bv.size())}, bv.data())};
    Result<plan::PlanRun> run = plan::runPlan(p, in, 1);
    ASSERT_TRUE(run);
    const float *got = reinterpret_cast<float *>(run->outputs[0].data);
    for (int64_t row = 0; row < 49; ++row)
      for (int64_t column = 0; column < 32; ++column) {
        double want = 0; // small integers: exact in any order
        for (int64_t k = 0; k < positions * channels; ++k)
          want += static_cast<double>(av[static_cast<size_t>(row * channels + k)] *
                                      bv[static_cast<size_t>(k * 32 + column)]);
        ASSERT_EQ(got[row * 32 + column], std::max(want, 0.0)) << positions << ' ' << row << ' ' << column;
      }
  }
}

// Parts of a product that a sum over its rows reads are added there; a product that is read otherwise would need a kernel more for them.
TEST(Patterns, PartsOfAProductAreAddedInTheNormBehindIt) {
  constexpr int64_t kRows = 128, kColumns = 64, kDepth = 1024;
  constexpr ProductBlock kBlocks[] = {{64, 64, 64, 4, 4, 1, 1.7, 2.6, 1.25}};
  ScheduleOptions options;
  MachineSheet machine;
  machine.processors = 4, machine.blocks = kBlocks, machine.secondKernel = 3, machine.bytesPerUs = 3e6, machine.cacheBytesPerUs = 6e6;
  options.split = SplitRule::manyProcessors(machine);
  for (const bool summed : {true, false}) {
    Maker m;
    BufferId a = m.input("a", kRows * kDepth), b = m.input("b", kDepth * kColumns), c = m.temp("c", kRows * kColumns), y = m.temp("y", kRows * (summed ? 1 : kColumns));
    for (BufferId operand : {a, b}) m.p.buffers[operand.index()].dtype = DType::BF16;
    for (ProgramInput &in : m.p.inputs) in.dtype = DType::BF16;
    m.matmul("mm", kRows, kColumns, kDepth, c, a, b);
    for (Op &op : m.p.nodes.back().get<ContractionSpec>().body.ops) op.dtype = DType::BF16;
    if (summed)
      m.reduce("sum", ReduceKind::Sum, {kRows}, {kColumns}, y, i(0), c, i(0) * kColumns + r(0));
    else
      m.pointwise("relu", {kRows, kColumns}, y, i(0) * kColumns + i(1), OpKind::Relu, c, i(0) * kColumns + i(1));
    m.output(y);
    plan::Plan p = m.plan(options);
    if (!summed) {
      EXPECT_EQ(p.kernels.size(), 1u) << print(p);
      continue;
    }
    ASSERT_EQ(p.kernels.size(), 2u) << print(p);
    EXPECT_EQ(p.kernels[0].xRanges, (std::vector<Expr>{kRows, kColumns, 2}));
    EXPECT_EQ(p.kernels[1].kind, Node::Kind::Reduction);
    // Small integers, which bf16 holds: exact in any order.
    std::vector<uint16_t> av(kRows * kDepth), bv(kDepth * kColumns);
    auto number = [](size_t k) { return static_cast<float>(static_cast<int>(k * 7 % 5) - 2); };
    auto fill = [&](std::vector<uint16_t> &v) {
      for (size_t k = 0; k < v.size(); ++k) v[k] = static_cast<uint16_t>(std::bit_cast<uint32_t>(number(k)) >> 16);
    };
    fill(av), fill(bv);
    std::vector<HostValue> in = {HostValue::tensor(DType::BF16, {kRows * kDepth}, av.data()), HostValue::tensor(DType::BF16, {kDepth * kColumns}, bv.data())};
    Result<plan::PlanRun> run = plan::runPlan(p, in, 1);
    ASSERT_TRUE(run);
    const float *got = reinterpret_cast<float *>(run->outputs[0].data);
    for (int64_t row = 0; row < kRows; ++row) {
      double want = 0;
      for (int64_t column = 0; column < kColumns; ++column)
        for (int64_t k = 0; k < kDepth; ++k) want += double(number(size_t(row * kDepth + k))) * double(number(size_t(k * kColumns + column)));
      ASSERT_EQ(got[row], want) << row;
    }
  }
}

TEST(Patterns, BranchesRunInTheOrderThatNeedsLessMemory) {
  // Three branches, each a large temp reduced to a small one, given breadth first: depth first needs one large temp at
  // a time.
  Maker m;
  BufferId x = m.input("x", 64 * 1024), y = m.temp("y", 64);
  std::vector<BufferId> large, small;
  for (int k = 0; k < 3; ++k) {
    large.push_back(m.temp("large", 64 * 1024));
    small.push_back(m.temp("small", 64));
    m.pointwise("flip" + std::to_string(k), {64 * 1024}, large.back(), i(0), OpKind::Add, x, Expr(64 * 1024 - 1) - i(0),
                x, i(0));
  }
  for (size_t k = 0; k < 3; ++k) m.matmul("mm" + std::to_string(k), 64, 1, 1024, small[k], large[k], x);
  m.pointwise("add", {64}, y, i(0), OpKind::Add, small[0], Expr(63) - i(0), small[1], Expr(63) - i(0));
  m.pointwise("add", {64}, y, i(0), OpKind::Add, small[2], Expr(63) - i(0), y, i(0));
  m.output(y);
  ScheduleOptions given, horizontal;
  given.reorder = given.fuse = false;
  horizontal.fuse = false;
  EXPECT_LT(m.plan(horizontal).arenaBytes().constValue(), m.plan(given).arenaBytes().constValue());
}

TEST(Patterns, SmallKernelsThatDoNotNeedEachOtherShareALaunch) {
  // Three chains of two kernels and one large kernel: the firsts together, then the seconds, the large one alone.
  Maker m;
  BufferId large = m.input("large", 1 << 20), out = m.temp("out", 1 << 20);
  for (int k = 0; k < 3; ++k) {
    BufferId x = m.input("x", 64 + k), t = m.temp("t", 64 + k), y = m.temp("y", 64 + k);
    m.pointwise("relu", {64 + k}, t, i(0), OpKind::Relu, x, i(0));
    m.pointwise("flip", {64 + k}, y, i(0), OpKind::Relu, t, Expr(63 + k) - i(0));
    m.output(y);
  }
  m.pointwise("big", {1 << 20}, out, i(0), OpKind::Relu, large, i(0));
  m.output(out);
  ScheduleOptions options;
  options.packedBytes = 1 << 20;
  plan::Plan p = m.plan(options);
  std::vector<size_t> parts;
  for (const plan::Step &s : p.main.steps)
    parts.push_back(p.kernels[s.as<plan::Launch>()->kernel.index()].parts.size());
  std::sort(parts.begin(), parts.end());
  EXPECT_EQ(parts, (std::vector<size_t>{0, 3, 3}));
  EXPECT_EQ(m.plan().main.steps.size(), 7u);
}

TEST(PlanVerify, NamesTheBrokenInvariant) {
  auto rule = [](auto change) {
    Maker m;
    BufferId x = m.input("x", 64), t = m.temp("t", 64), u = m.temp("u", 64), y = m.temp("y", 64);
    m.pointwise("relu", {64}, t, i(0), OpKind::Relu, x, i(0));
    m.pointwise("flip", {64}, u, i(0), OpKind::Relu, t, Expr(63) - i(0));
    m.pointwise("flop", {64}, y, i(0), OpKind::Add, u, Expr(63) - i(0), t, i(0));
    m.output(y);
    Result<plan::Plan> p = schedule(m.p);
    EXPECT_TRUE(p && plan::verify(*p, plan::Form::Scheduled) && p->kernels.size() == 3);
    memory::planMemory(*p);
    EXPECT_TRUE(plan::verify(*p));
    change(*p);
    Status s = plan::verify(*p);
    if (s) return std::string("none");
    EXPECT_EQ(s.error().diagnostics()[0].kind, diag::PlanInvariant);
    const std::string text = s.error().diagnostics()[0].message;
    size_t begin = text.find('P'), end = text.find_first_not_of("0123456789", begin + 1);
    return text.substr(begin, end - begin);
  };
  EXPECT_EQ(rule([](plan::Plan &) {}), "none");
  EXPECT_EQ(rule([](plan::Plan &p) { p.kernels[1].id = plan::KernelId(0); }), "P1");
  EXPECT_EQ(rule([](plan::Plan &p) { std::swap(p.main.steps[0], p.main.steps[1]); }), "P3");
  EXPECT_EQ(rule([](plan::Plan &p) { p.placements[1].where = plan::Placement::Where::None; }), "P4");
  EXPECT_EQ(rule([](plan::Plan &p) { p.placements[1].offset = p.placements[2].offset; }), "P5");
  EXPECT_EQ(rule([](plan::Plan &p) { p.placements[3].output = 7; }), "P6");
  auto pack = [](plan::Plan &p, std::vector<int64_t> parts) {
    plan::Kernel k;
    k.id = plan::KernelId(3), k.name = "pack";
    for (int64_t id : parts) k.parts.push_back(plan::KernelId(id));
    p.kernels.push_back(k);
  };
  EXPECT_EQ(rule([&](plan::Plan &p) {
              pack(p, {0, 1}), p.main.steps[0] = plan::Launch{plan::KernelId(3)};
              p.main.steps.erase(p.main.steps.begin() + 1);
            }),
            "P7");
  EXPECT_EQ(rule([](plan::Plan &p) {
              p.definitions = {{Symbol::size("s9"), Symbol::size("s8")}, {Symbol::size("s8"), 1}};
            }),
            "P9");
  EXPECT_EQ(rule([](plan::Plan &p) { p.guards.push_back({le(1, Symbol::size("s9")), ""}), p.inputSizes[0][0].defines = Symbol::size("s9"); }),
            "P10");
  EXPECT_EQ(rule([](plan::Plan &p) { p.outputs.clear(); }), "P11");
  EXPECT_EQ(rule([&](plan::Plan &p) { pack(p, {2}), p.main.steps.push_back(plan::Launch{plan::KernelId(3)}); }), "P7");
}

TEST(Verify, SpacesOfKernels) {
  Maker m;
  BufferId x = m.input("x", 64), y = m.temp("y", 64);
  m.pointwise("relu", {64}, y, i(0), OpKind::Relu, x, i(0));
  m.output(y);
  Result<plan::Plan> p = schedule(m.p);
  ASSERT_TRUE(p);
  p->kernels[0].xRanges = {32};
  Status s = plan::verify(*p, plan::Form::Scheduled);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().diagnostics()[0].message.substr(15, 2), "P2");
}

// A constant's rows 1 and 2, transposed: the model's tensor [4, 2] begins at element 4 of 12.
TEST(Patterns, WriteBacksGoWhereTheTensorLies) {
  Maker m;
  BufferId x = m.input("x", 8), state = m.add("state", Buffer::Kind::Constant, 12), t = m.temp("t", 8);
  Constant c;
  c.bytes = 48;
  c.tensors = {{"state", {4, 2}, {1, 4}, 4}};
  m.p.constants.push_back(c);
  m.p.buffer(state).index = 0, m.p.buffer(state).mutated = true;
  m.pointwise("next", {4, 2}, t, i(0) * 2 + i(1), OpKind::Add, x, i(0) * 2 + i(1), state, i(0) + i(1) * 4 + 4);
  ProgramOutput o;
  o.buffer = t, o.sizes = {4, 2}, o.strides = {2, 1};
  o.writeBackTo = state, o.writeBackStrides = {1, 4}, o.writeBackOffset = 4;
  m.p.outputs.push_back(o);
  plan::Plan p = m.plan();
  const plan::Copy &copy = *p.main.steps.back().as<plan::Copy>();
  EXPECT_EQ(copy.dstStrides, (std::vector<Expr>{1, 4}));
  EXPECT_EQ(copy.dstOffset, Expr(4));
  auto broken = [&](auto change) {
    plan::Plan q = p;
    change(q, *q.main.steps.back().as<plan::Copy>());
    Status s = plan::verify(q);
    return s ? std::string("none") : s.error().diagnostics()[0].message.substr(15, 2);
  };
  EXPECT_EQ(broken([](plan::Plan &, plan::Copy &step) { step.dstStrides = {2, 1}; }), "P8");
  EXPECT_EQ(broken([](plan::Plan &, plan::Copy &step) { step.dstOffset = 0; }), "P8");
  EXPECT_EQ(broken([](plan::Plan &q, plan::Copy &step) { q.program.outputs[0].writeBackOffset = step.dstOffset = 0; }),
            "P8");
  EXPECT_EQ(broken([](plan::Plan &q, plan::Copy &) { q.main.steps.pop_back(); }), "P6");
}

/// Code generators take more than linear time, so a long chain is cut: kernels stay under the limit, and their number grows
/// with the chain's length alone.
TEST(Patterns, LongChainsAreCutIntoKernelsOfLimitedCost) {
  ScheduleOptions options;
  constexpr int kSines = 40;
  const int64_t cost = kSines * info(OpKind::Sin).cost;
  for (int64_t nodes : {2, 20, 100}) {
    Maker m;
    BufferId from = m.input("x", 64);
    for (int64_t n = 0; n < nodes; ++n) {
      BufferId to = m.temp(fmt::format("t{}", n), 64);
      PointwiseSpec &spec = m.node<PointwiseSpec>({64}, {}, fmt::format("n{}", n));
      ValueIdx v = m.load(spec.body, from, i(0));
      for (int k = 0; k < kSines; ++k) v = append(spec.body, OpKind::Sin, DType::F32, v);
      spec.stores = {m.store(to, i(0), v)};
      from = to;
    }
    m.output(from);
    plan::Plan plan = m.plan(options);
    for (const plan::Kernel &k : plan.kernels)
      EXPECT_LE(static_cast<int64_t>(k.nodes.size()) * cost, options.maxCostPerKernel);
    EXPECT_LE(static_cast<int64_t>(plan.kernels.size()), 2 * (nodes * cost / options.maxCostPerKernel + 1));
  }
}

} // namespace
} // namespace neso::schedule::test
