// The interpreter against closed forms and hand-computed values.
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "base/diagnostics/loops.h"
#include "ir/loops/build.h"
#include "ir/loops/interp.h"
#include "ir/loops/numeric.h"
#include "ir/loops/verify.h"

namespace neso::loops {
namespace {

Expr i(int d) { return Symbol::index(static_cast<size_t>(d)); }
Expr r(int d) { return Symbol::inner(static_cast<size_t>(d)); }

/// A program under construction.
struct Maker {
  Program p;
  BufferId input(std::string name, DType t, std::vector<Expr> sizes, bool mutated = false) {
    ProgramInput in;
    in.name = name;
    in.dtype = t;
    in.sizes = sizes;
    Expr stride = 1;
    in.strides.assign(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 0; stride = stride * sizes[d]) in.strides[d] = stride;
    in.buffer = add(name, t, Buffer::Kind::Input, stride, static_cast<int64_t>(p.inputs.size()));
    p.buffer(in.buffer).mutated = mutated;
    p.inputs.push_back(in);
    return in.buffer;
  }
  BufferId add(std::string name, DType t, Buffer::Kind kind, Expr elements, int64_t index = -1) {
    Buffer b;
    b.id = BufferId(static_cast<int64_t>(p.buffers.size()));
    b.name = std::move(name);
    b.dtype = t;
    b.kind = kind;
    b.elements = elements;
    b.index = index;
    p.buffers.push_back(b);
    return b.id;
  }
  BufferId temp(std::string name, DType t, Expr elements) {
    return add(std::move(name), t, Buffer::Kind::Temp, elements);
  }
  /// A node of the program; the reference holds until the next one.
  template <typename T> T &node(std::vector<Expr> ranges, std::vector<Expr> reduce = {}, T spec = {}) {
    Node n;
    n.id = NodeId(static_cast<int64_t>(p.nodes.size()));
    n.spec = std::move(spec);
    n.name = "n" + std::to_string(p.nodes.size());
    n.ranges = std::move(ranges);
    n.reduceRanges = std::move(reduce);
    p.nodes.push_back(n);
    return p.nodes.back().get<T>();
  }
  void output(BufferId b, std::vector<Expr> sizes) {
    ProgramOutput o;
    o.buffer = b;
    o.dtype = p.buffer(b).dtype;
    o.sizes = sizes;
    Expr stride = 1;
    o.strides.assign(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 0; stride = stride * sizes[d]) o.strides[d] = stride;
    p.outputs.push_back(o);
  }
};

ValueIdx load(Body &b, const Program &p, BufferId buffer, Expr index) {
  return appendLoad(b, buffer, p.buffer(buffer).dtype, index);
}
Store storeOf(BufferId b, Expr index, ValueIdx v, StoreMode mode = StoreMode::Set) {
  Store s;
  s.buffer = b;
  s.index = index;
  s.value = v;
  s.mode = mode;
  return s;
}
template <typename T> std::vector<T> values(const HostValue &v) {
  std::vector<T> out(static_cast<size_t>(v.elements()));
  if (!out.empty()) std::memcpy(out.data(), v.data, out.size() * sizeof(T));
  return out;
}

TEST(Interp, RowSumsOfReluWithSymbolicSize) {
  Maker m;
  Expr s = Symbol::size("s0");
  m.p.facts.setRange(Symbol::size("s0"), {1, 100});
  BufferId x = m.input("x", DType::F32, {8, s}), y = m.temp("y", DType::F32, 8);
  ReductionSpec &n = m.node<ReductionSpec>({8}, {s});
  ValueIdx v = append(n.body, OpKind::Relu, DType::F32, load(n.body, m.p, x, i(0) * s + r(0)));
  n.reductions.push_back({ReduceKind::Sum, DType::F32, v, {storeOf(y, i(0), 0)}});
  m.output(y, {8});
  ASSERT_TRUE(verify(m.p)) << verify(m.p).error().str();
  EXPECT_NE(print(m.p).find("reduce sum %1 : f32 -> store y[i0] = result 0"), std::string::npos) << print(m.p);
  std::vector<float> data(8 * 33);
  for (size_t k = 0; k < data.size(); ++k) data[k] = static_cast<float>(k % 33) - 16;
  std::vector<HostValue> in = {HostValue::tensor(DType::F32, {8, 33}, data.data())};
  Interpreter interp(m.p);
  auto out = interp.run(in);
  ASSERT_TRUE(out) << out.error().str();
  for (float v0 : values<float>((*out)[0])) EXPECT_EQ(v0, 136.0f); // 1 + … + 16
}

TEST(Interp, ContractionWithEpilogueMatchesHandMatmul) {
  Maker m;
  BufferId a = m.input("a", DType::F32, {3, 5}), b = m.input("b", DType::F32, {5, 4}), y = m.temp("y", DType::F32, 12);
  ContractionSpec &n = m.node<ContractionSpec>({3, 4}, {5});
  n.lhs = load(n.body, m.p, a, i(0) * 5 + r(0));
  n.rhs = load(n.body, m.p, b, r(0) * 4 + i(1));
  append(n.epilogue, {OpKind::Constant});
  n.stores = {storeOf(y, i(0) * 4 + i(1), append(n.epilogue, OpKind::Neg, DType::F32, 0))};
  m.output(y, {3, 4});
  ASSERT_TRUE(verify(m.p)) << verify(m.p).error().str();
  std::vector<float> da(15), db(20);
  for (size_t k = 0; k < 15; ++k) da[k] = static_cast<float>(k) - 7;
  for (size_t k = 0; k < 20; ++k) db[k] = static_cast<float>(k % 7) - 3;
  std::vector<HostValue> in = {HostValue::tensor(DType::F32, {3, 5}, da.data()),
                               HostValue::tensor(DType::F32, {5, 4}, db.data())};
  auto out = Interpreter(m.p).run(in);
  ASSERT_TRUE(out) << out.error().str();
  std::vector<float> got = values<float>((*out)[0]);
  for (size_t row = 0; row < 3; ++row)
    for (size_t col = 0; col < 4; ++col) {
      float want = 0;
      for (size_t k = 0; k < 5; ++k) want -= da[row * 5 + k] * db[k * 4 + col];
      EXPECT_EQ(got[row * 4 + col], want);
    }
}

TEST(Interp, IndirectWrapsChecksAndReports) {
  Maker m;
  BufferId w = m.input("w", DType::F32, {4}), idx = m.input("idx", DType::I64, {3}), y = m.temp("y", DType::F32, 3);
  PointwiseSpec &n = m.node<PointwiseSpec>({3});
  Op ind{OpKind::Indirect};
  ind.dtype = DType::I64;
  ind.a = load(n.body, m.p, idx, i(0));
  ind.symbol = Symbol::indirect(0);
  ind.bound = 4;
  ind.wrap = ind.check = true;
  append(n.body, ind);
  n.stores = {storeOf(y, i(0), load(n.body, m.p, w, Symbol::indirect(0)))};
  m.output(y, {3});
  ASSERT_TRUE(verify(m.p)) << verify(m.p).error().str();
  std::vector<float> dw = {10, 11, 12, 13};
  std::vector<int64_t> di = {-1, 0, 2};
  std::vector<HostValue> in = {HostValue::tensor(DType::F32, {4}, dw.data()),
                               HostValue::tensor(DType::I64, {3}, di.data())};
  auto out = Interpreter(m.p).run(in);
  ASSERT_TRUE(out) << out.error().str();
  EXPECT_EQ(values<float>((*out)[0]), (std::vector<float>{13, 10, 12}));
  di[1] = 4;
  auto bad = Interpreter(m.p).run(in);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().diagnostics()[0].kind, diag::LoopsIndirectOutOfRange);
}

TEST(Interp, ScatterAddIntoMutatedInputReachesTheCaller) {
  Maker m;
  BufferId x = m.input("x", DType::I32, {4}, true);
  PointwiseSpec &n = m.node<PointwiseSpec>({6});
  Op one{OpKind::Constant};
  one.dtype = DType::I32;
  one.immInt = 5;
  n.stores = {storeOf(x, mod(i(0), 4), append(n.body, one), StoreMode::AtomicAdd)};
  ProgramOutput o;
  o.buffer = o.writeBackTo = x;
  o.dtype = DType::I32;
  o.sizes = {4};
  o.strides = o.writeBackStrides = {1};
  m.p.outputs.push_back(o);
  std::vector<int32_t> d = {1, 2, 3, 4};
  std::vector<HostValue> in = {HostValue::tensor(DType::I32, {4}, d.data())};
  ASSERT_TRUE(Interpreter(m.p).run(in));
  EXPECT_EQ(d, (std::vector<int32_t>{11, 12, 8, 9}));
}

TEST(Interp, ScanSortAndArgmaxFollowAten) {
  Maker m;
  float nan = std::numeric_limits<float>::quiet_NaN();
  BufferId x = m.input("x", DType::F32, {5}), cum = m.temp("cum", DType::F32, 5), at = m.temp("at", DType::I64, 5),
           sorted = m.temp("sorted", DType::F32, 5), order = m.temp("order", DType::I64, 5),
           arg = m.temp("arg", DType::I64, 1), lse = m.temp("lse", DType::F32, 5);
  Body row;
  const ValueIdx v = load(row, m.p, x, r(0));
  m.node<ScanSpec>({}, {5}, {row, {v}, ScanKind::Max, false, {}, {storeOf(cum, r(0), 0), storeOf(at, r(0), 1)}});
  SortSpec &b = m.node<SortSpec>({}, {5});
  b.body = row, b.key = v, b.descending = true;
  b.stores = {storeOf(sorted, r(0), 0), storeOf(order, r(0), 1)};
  m.node<ReductionSpec>({}, {5}, {row, {{ReduceKind::ArgMax, DType::F32, v, {storeOf(arg, 0, 0)}}}});
  m.node<ScanSpec>({}, {5}, {row, {v}, ScanKind::LogSumExp, false, {}, {storeOf(lse, r(0), 0)}});
  for (BufferId o : {cum, at, sorted, order, lse}) m.output(o, {5});
  m.output(arg, {});
  ASSERT_TRUE(verify(m.p)) << verify(m.p).error().str();
  std::vector<float> d = {1, 3, 3, nan, 2};
  std::vector<HostValue> in = {HostValue::tensor(DType::F32, {5}, d.data())};
  auto out = Interpreter(m.p).run(in);
  ASSERT_TRUE(out) << out.error().str();
  EXPECT_EQ(values<int64_t>((*out)[1]), (std::vector<int64_t>{0, 1, 2, 3, 3})); // torch.cummax
  EXPECT_EQ(values<int64_t>((*out)[3]), (std::vector<int64_t>{3, 1, 2, 4, 0})); // torch.sort(descending, stable)
  EXPECT_EQ(values<int64_t>((*out)[5])[0], 3);                                  // torch.argmax: NaN wins
  EXPECT_NEAR(values<float>((*out)[4])[2], std::log(std::exp(1.0) + 2 * std::exp(3.0)), 1e-6);
}

TEST(Interp, ASortTakesTheFirstOnly) {
  Maker m;
  BufferId x = m.input("x", DType::F32, {5}), sorted = m.temp("sorted", DType::F32, 2), order = m.temp("order", DType::I64, 2);
  SortSpec &n = m.node<SortSpec>({}, {5});
  n.key = load(n.body, m.p, x, r(0));
  n.descending = true, n.take = 2;
  n.stores = {storeOf(sorted, r(0), 0), storeOf(order, r(0), 1)};
  m.output(sorted, {2}), m.output(order, {2});
  ASSERT_TRUE(verify(m.p)) << verify(m.p).error().str();
  std::vector<float> d = {1, 3, 5, 3, 2};
  std::vector<HostValue> in = {HostValue::tensor(DType::F32, {5}, d.data())};
  auto out = Interpreter(m.p).run(in);
  ASSERT_TRUE(out) << out.error().str();
  EXPECT_EQ(values<float>((*out)[0]), (std::vector<float>{5, 3})); // torch.topk
  EXPECT_EQ(values<int64_t>((*out)[1]), (std::vector<int64_t>{2, 1}));
  n.take = 3;
  EXPECT_FALSE(verify(m.p)) << "stores beyond its result";
  n.take = 2, n.run = 2;
  EXPECT_FALSE(verify(m.p)) << "only a sort with positions merges runs";
}

TEST(Interp, ASortStoresThePlaceThatARowNames) {
  Maker m;
  BufferId x = m.input("x", DType::F32, {2, 5}), at = m.input("at", DType::I64, {2}), value = m.temp("value", DType::F32, 2),
           position = m.temp("position", DType::I64, 2);
  SortSpec &n = m.node<SortSpec>({2}, {5});
  n.key = load(n.body, m.p, x, i(0) * Expr(5) + r(0)), n.place = load(n.body, m.p, at, i(0)), n.take = 1;
  n.stores = {storeOf(value, i(0) + r(0), 0), storeOf(position, i(0) + r(0), 1)};
  m.output(value, {2}), m.output(position, {2});
  ASSERT_TRUE(verify(m.p)) << verify(m.p).error().str();
  std::vector<float> d = {1, 3, 5, 3, 2, 9, 8, 7, 6, 5};
  std::vector<int64_t> places = {3, 1};
  std::vector<HostValue> in = {HostValue::tensor(DType::F32, {2, 5}, d.data()), HostValue::tensor(DType::I64, {2}, places.data())};
  auto out = Interpreter(m.p).run(in);
  ASSERT_TRUE(out) << out.error().str();
  EXPECT_EQ(values<float>((*out)[0]), (std::vector<float>{3, 6})); // torch.sort(x, stable=True)[0][[0, 1], [3, 1]]
  EXPECT_EQ(values<int64_t>((*out)[1]), (std::vector<int64_t>{3, 3}));
  n.place = load(n.body, m.p, at, r(0));
  EXPECT_FALSE(verify(m.p)) << "a place that differs along the row";
  n.place = load(n.body, m.p, at, i(0)), n.take = 2;
  EXPECT_FALSE(verify(m.p)) << "a place of several results";
}

/// Sums of x[first[i], last[i]).
struct SegmentSums {
  Maker m;
  BufferId x = m.input("x", DType::F32, {6}), first = m.input("first", DType::I64, {3}),
           last = m.input("last", DType::I64, {3}), sums = m.temp("sums", DType::F32, 3);
  SegmentsSpec &n = m.node<SegmentsSpec>({3}, {6});
  SegmentSums() {
    n.first = load(n.body, m.p, first, i(0)), n.last = load(n.body, m.p, last, i(0));
    n.reductions.push_back({ReduceKind::Sum, DType::F32, load(n.body, m.p, x, r(0)), {storeOf(sums, i(0), 0)}});
    m.output(sums, {3});
  }
};

TEST(Interp, SegmentsFoldWhatLiesInsideThem) {
  SegmentSums s;
  ASSERT_TRUE(verify(s.m.p)) << verify(s.m.p).error().str();
  std::vector<float> d = {1, 2, 4, 8, 16, 32};
  std::vector<int64_t> first = {0, 3, -2}, last = {2, 3, 99};
  std::vector<HostValue> in = {HostValue::tensor(DType::F32, {6}, d.data()),
                               HostValue::tensor(DType::I64, {3}, first.data()),
                               HostValue::tensor(DType::I64, {3}, last.data())};
  auto out = Interpreter(s.m.p).run(in);
  ASSERT_TRUE(out) << out.error().str();
  EXPECT_EQ(values<float>((*out)[0]), (std::vector<float>{3, 0, 63}));
}

TEST(Verify, EndsOfSegmentsAreKnownBeforeTheLoop) {
  SegmentSums late;
  late.n.last = load(late.n.body, late.m.p, late.last, min(r(0), Expr(2)));
  EXPECT_FALSE(verify(late.m.p));
  SegmentSums narrow;
  narrow.n.first = load(narrow.n.body, narrow.m.p, narrow.x, i(0));
  EXPECT_FALSE(verify(narrow.m.p));
  SegmentSums none;
  none.n.last = -1;
  EXPECT_FALSE(verify(none.m.p));
  SegmentSums position;
  position.n.reductions[0].kind = ReduceKind::ArgMax;
  EXPECT_FALSE(verify(position.m.p));
}

TEST(Interp, WelfordAndOnlineSoftmax) {
  Maker m;
  BufferId x = m.input("x", DType::F32, {2, 300}), stats = m.temp("stats", DType::F32, 10);
  ReductionSpec &n = m.node<ReductionSpec>({2}, {300});
  ValueIdx v = load(n.body, m.p, x, i(0) * 300 + r(0));
  n.reductions.push_back(
      {ReduceKind::Welford,
       DType::F32,
       v,
       {storeOf(stats, i(0) * 5, 0), storeOf(stats, i(0) * 5 + 1, 1), storeOf(stats, i(0) * 5 + 2, 2)}});
  n.reductions.push_back(
      {ReduceKind::OnlineSoftmax, DType::F32, v, {storeOf(stats, i(0) * 5 + 3, 0), storeOf(stats, i(0) * 5 + 4, 1)}});
  m.output(stats, {2, 5});
  std::vector<float> d(600);
  for (size_t k = 0; k < 600; ++k) d[k] = static_cast<float>(k % 300) / 300;
  std::vector<HostValue> in = {HostValue::tensor(DType::F32, {2, 300}, d.data())};
  auto out = Interpreter(m.p).run(in);
  ASSERT_TRUE(out) << out.error().str();
  std::vector<float> got = values<float>((*out)[0]);
  double mean = 0, m2 = 0, total = 0;
  for (size_t k = 0; k < 300; ++k) mean += static_cast<double>(d[k]) / 300;
  for (size_t k = 0; k < 300; ++k)
    m2 += std::pow(static_cast<double>(d[k]) - mean, 2), total += std::exp(static_cast<double>(d[k] - d[299]));
  for (size_t row : {0, 1}) {
    EXPECT_NEAR(got[row * 5], mean, 1e-6);
    EXPECT_NEAR(got[row * 5 + 1], m2, 1e-4);
    EXPECT_EQ(got[row * 5 + 2], 300);
    EXPECT_EQ(got[row * 5 + 3], d[299]);
    EXPECT_NEAR(got[row * 5 + 4], total, 1e-4);
  }
}

TEST(Interp, AttentionWithCausalMaskMatchesSoftmax) {
  Maker m;
  BufferId q = m.input("q", DType::F32, {1, 1, 2, 2}), k = m.input("k", DType::F32, {1, 1, 2, 2}),
           v = m.input("v", DType::F32, {1, 1, 2, 2}), y = m.temp("y", DType::F32, 4);
  AttentionSpec &spec = m.node<AttentionSpec>({1, 1, 2, 2});
  Expr row = AttentionSpec::symbol(AttentionSpec::Query), key = AttentionSpec::symbol(AttentionSpec::Key),
       d = AttentionSpec::symbol(AttentionSpec::Element);
  spec.q = {q, row * 2 + d, DType::F32};
  spec.k = {k, key * 2 + d, DType::F32};
  spec.v = {v, key * 2 + d, DType::F32};
  spec.out = {y, row * 2 + d, DType::F32};
  spec.keyLength = spec.headSize = 2;
  spec.causal = true;
  m.output(y, {2, 2});
  ASSERT_TRUE(verify(m.p)) << verify(m.p).error().str();
  std::vector<float> dq = {1, 0, 0, 1}, dk = {1, 2, 3, 4}, dv = {5, 6, 7, 8};
  std::vector<HostValue> in;
  for (std::vector<float> *x : {&dq, &dk, &dv}) in.push_back(HostValue::tensor(DType::F32, {1, 1, 2, 2}, x->data()));
  auto out = Interpreter(m.p).run(in);
  ASSERT_TRUE(out) << out.error().str();
  std::vector<float> got = values<float>((*out)[0]);
  double p = 1 / (1 + std::exp(2.0)); // scores 2 and 4
  EXPECT_EQ(got[0], 5);
  EXPECT_EQ(got[1], 6);
  EXPECT_NEAR(got[2], p * 5 + (1 - p) * 7, 1e-6);
  EXPECT_NEAR(got[3], p * 6 + (1 - p) * 8, 1e-6);
}

TEST(Interp, AttentionToPartsOfTheKeysGivesTheLogarithmsOfTheirSums) {
  // Three keys in two parts, which are batches: 0 and 1, and 2 alone.
  Maker m;
  BufferId q = m.input("q", DType::F32, {1}), k = m.input("k", DType::F32, {3}), v = m.input("v", DType::F32, {3}), y = m.temp("y", DType::F32, 3), sums = m.temp("sums", DType::F32, 3);
  AttentionSpec &spec = m.node<AttentionSpec>({3, 1, 1, 1});
  const Expr part = AttentionSpec::symbol(AttentionSpec::Batch), key = AttentionSpec::symbol(AttentionSpec::Key);
  spec.q = {q, 0, DType::F32};
  spec.k = {k, part * 2 + key, DType::F32}, spec.v = {v, part * 2 + key, DType::F32};
  spec.out = {y, part, DType::F32}, spec.logSum = {sums, part, DType::F32};
  spec.keyLength = 2, spec.headSize = 1, spec.keys = max(0, min(2, 3 - part * 2));
  m.output(y, {3}), m.output(sums, {3});
  ASSERT_TRUE(verify(m.p)) << verify(m.p).error().str();
  std::vector<float> dq = {1}, dk = {1, 2, 3}, dv = {5, 6, 7};
  std::vector<HostValue> in;
  for (std::vector<float> *x : {&dq, &dk, &dv}) in.push_back(HostValue::tensor(DType::F32, {static_cast<int64_t>(x->size())}, x->data()));
  auto out = Interpreter(m.p).run(in);
  ASSERT_TRUE(out) << out.error().str();
  const std::vector<float> got = values<float>((*out)[0]), logs = values<float>((*out)[1]);
  const double e = std::exp(1.0);
  EXPECT_NEAR(got[0], (5 + 6 * e) / (1 + e), 1e-6);
  EXPECT_EQ(got[1], 7);
  EXPECT_EQ(got[2], 0); // no key is left
  EXPECT_NEAR(logs[0], 1 + std::log(1 + e), 1e-6);
  EXPECT_NEAR(logs[1], 3, 1e-6);
  EXPECT_EQ(logs[2], -INFINITY);
  // Only the batch says how many keys there are, and the logarithms are F32.
  Program wrong = m.p;
  wrong.nodes[0].get<AttentionSpec>().keys = key;
  EXPECT_FALSE(verify(wrong));
  wrong = m.p;
  wrong.nodes[0].get<AttentionSpec>().logSum.dtype = DType::F64;
  EXPECT_FALSE(verify(wrong));
}

TEST(Interp, RefusesWrongInputs) {
  Maker m;
  Expr s = Symbol::size("s0");
  m.p.facts.setRange(Symbol::size("s0"), {2, 4});
  m.input("x", DType::F32, {s, s});
  m.p.guards.push_back(eq(mod(s, 2), 0));
  float data[36] = {};
  auto kind = [&](std::vector<HostValue> in) {
    auto out = Interpreter(m.p).run(in);
    return out ? diag::InternalFault : out.error().diagnostics()[0].kind;
  };
  EXPECT_EQ(kind({}), diag::LoopsInputCount);
  EXPECT_EQ(kind({HostValue::tensor(DType::F64, {2, 2}, data)}), diag::LoopsBadInput);
  EXPECT_EQ(kind({HostValue::tensor(DType::F32, {2, 3}, data)}), diag::LoopsBadInput);
  EXPECT_EQ(kind({HostValue::tensor(DType::F32, {6, 6}, data)}), diag::LoopsGuard);
  EXPECT_EQ(kind({HostValue::tensor(DType::F32, {3, 3}, data)}), diag::LoopsGuard);
}

/// y[k] = x[k] for k < n: n is read, y has n elements; a loop counts c up to n, a branch doubles y where n > 2.
struct Counting : Maker {
  Expr n = Symbol::size("u0"), turn = Symbol::size("u1");
  BufferId y, c;
  Counting() {
    BufferId x = input("x", DType::I64, {6}), given = input("n", DType::I64, {});
    y = temp("y", DType::I64, n), c = temp("c", DType::I64, 1);
    p.assertions.push_back({le(n, 6), "u0 is {u0}, which is too much"});
    node<ReadSpec>({}, {}, {given, n.symbol()});
    PointwiseSpec &copy = node<PointwiseSpec>({n});
    copy.stores = {storeOf(y, i(0), load(copy.body, p, x, i(0)))};
    PointwiseSpec &zero = node<PointwiseSpec>({});
    zero.stores = {storeOf(c, 0, appendIndex(zero.body, 0))};
    RegionSpec loop{RegionSpec::Kind::While, lt(turn, n), {}};
    loop.blocks[0] = {inside(ReadSpec{c, turn.symbol()})};
    PointwiseSpec next;
    next.stores = {storeOf(c, 0, appendIndex(next.body, turn + 1))};
    loop.blocks[1] = {inside(next)};
    node<RegionSpec>({}, {}, loop);
    RegionSpec branch{RegionSpec::Kind::If, lt(2, n), {}};
    PointwiseSpec doubled;
    ValueIdx v = load(doubled.body, p, y, i(0));
    doubled.stores = {storeOf(y, i(0), append(doubled.body, OpKind::Add, DType::I64, v, v))};
    branch.blocks[0] = {inside(doubled)};
    branch.blocks[0][0].ranges = {n};
    node<RegionSpec>({}, {}, branch);
    output(y, {n}), output(c, {});
  }
  Node inside(Node::Spec spec) {
    Node made;
    made.id = NodeId(100 + count_++), made.spec = std::move(spec), made.name = "inside";
    return made;
  }

private:
  int64_t count_ = 0;
};

TEST(Interp, DataDecidesSizesBranchesAndTurns) {
  Counting m;
  ASSERT_TRUE(verify(m.p));
  int64_t x[6] = {1, 2, 3, 4, 5, 6};
  for (int64_t n : {0, 2, 3, 6}) {
    auto out = Interpreter(m.p).run(std::vector{HostValue::tensor(DType::I64, {6}, x), HostValue::tensor(DType::I64, {}, &n)});
    ASSERT_TRUE(out);
    ASSERT_EQ((*out)[0].sizes, std::vector{n});
    for (int64_t k = 0; k < n; ++k) EXPECT_EQ(reinterpret_cast<int64_t *>((*out)[0].data)[k], n > 2 ? 2 * x[k] : x[k]);
    EXPECT_EQ(*reinterpret_cast<int64_t *>((*out)[1].data), n);
  }
  int64_t many = 7;
  auto out = Interpreter(m.p).run(std::vector{HostValue::tensor(DType::I64, {6}, x), HostValue::tensor(DType::I64, {}, &many)});
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().diagnostics()[0].kind, diag::LoopsAssertion);
  EXPECT_EQ(out.error().diagnostics()[0].message, "u0 is 7, which is too much");
}

TEST(Interp, SymbolsOfARegionAreKnownInItOnly) {
  Counting m;
  m.p.outputs.pop_back();
  PointwiseSpec &late = m.node<PointwiseSpec>({Expr(Symbol::size("u1"))});
  late.stores = {storeOf(m.y, i(0), appendIndex(late.body, 0))};
  Status s = verify(m.p);
  ASSERT_FALSE(s);
  EXPECT_NE(s.error().diagnostics()[0].message.find("L4"), std::string::npos);
}

TEST(Interp, NodeFaultsAreDiagnosed) {
  auto kind = [](auto change) {
    Maker m;
    BufferId x = m.input("x", DType::F32, {4}), y = m.temp("y", DType::F32, 4);
    PointwiseSpec &n = m.node<PointwiseSpec>({4});
    n.stores = {storeOf(y, i(0), load(n.body, m.p, x, i(0)))};
    m.output(y, {4});
    change(m, n);
    float data[4] = {};
    std::vector<HostValue> in = {HostValue::tensor(DType::F32, {4}, data)};
    auto out = Interpreter(m.p).run(in);
    return out ? diag::InternalFault : out.error().diagnostics()[0].kind;
  };
  EXPECT_EQ(kind([](Maker &, PointwiseSpec &n) { n.body.ops[0].index = i(0) + 1; }), diag::LoopsIndexOutOfRange);
  EXPECT_EQ(kind([](Maker &, PointwiseSpec &n) { n.stores[0].index = i(0) - 1; }), diag::LoopsIndexOutOfRange);
  EXPECT_EQ(kind([](Maker &, PointwiseSpec &n) { n.stores[0].index = Symbol::size("u7"); }), diag::LoopsUnknownSymbol);
  EXPECT_EQ(kind([](Maker &m, PointwiseSpec &) { m.p.nodes[0].ranges = {Expr(-1)}; }), diag::LoopsBadExtent);
  EXPECT_EQ(kind([](Maker &m, PointwiseSpec &) { m.p.buffers[1].elements = Symbol::size("u7"); }), diag::LoopsBadSize);
  EXPECT_EQ(kind([](Maker &m, PointwiseSpec &) { m.p.nodes[0].spec = UserKernelSpec(); }), diag::LoopsNotInterpreted);
}

TEST(Verify, NamesTheBrokenInvariant) {
  auto rule = [](auto change) {
    Maker m;
    BufferId x = m.input("x", DType::F32, {4}), y = m.temp("y", DType::F32, 4);
    PointwiseSpec &n = m.node<PointwiseSpec>({4});
    ValueIdx v = load(n.body, m.p, x, i(0));
    n.stores = {storeOf(y, i(0), append(n.body, OpKind::Add, DType::F32, v, v))};
    m.output(y, {4});
    change(m, n);
    Status s = verify(m.p);
    if (s) return std::string("none");
    EXPECT_EQ(s.error().diagnostics()[0].kind, diag::LoopsInvariant);
    return s.error().diagnostics()[0].message.substr(16, 2);
  };
  EXPECT_EQ(rule([](Maker &, PointwiseSpec &) {}), "none");
  EXPECT_EQ(rule([](Maker &m, PointwiseSpec &) { m.p.buffers[1].id = BufferId(0); }), "L1");
  EXPECT_EQ(rule([](Maker &, PointwiseSpec &n) { n.body.ops[1].b = 1; }), "L2");
  EXPECT_EQ(rule([](Maker &, PointwiseSpec &n) { n.body.ops[1].dtype = DType::F64; }), "L3");
  EXPECT_EQ(rule([](Maker &, PointwiseSpec &n) { n.stores[0].index = Symbol::local("k"); }), "L4");
  EXPECT_EQ(rule([](Maker &, PointwiseSpec &n) { n.stores[0].index = i(0) + 1; }), "L5");
  EXPECT_EQ(rule([](Maker &, PointwiseSpec &n) { n.stores[0].buffer = BufferId(0); }), "L6");
  EXPECT_EQ(rule([](Maker &m, PointwiseSpec &n) { m.p.nodes[0].spec = ReductionSpec{Body(n.body), {}}; }), "L7");
  EXPECT_EQ(rule([](Maker &m, PointwiseSpec &) { m.p.outputs[0].buffer = BufferId(); }), "L8");
}

/// What a node of another kind is asked for is a fault that says so, never another kind's field.
TEST(NodeDeathTest, HasTheFieldsOfItsKindAlone) {
  Node n;
  n.name = "total", n.spec = ReductionSpec();
  EXPECT_EQ(n.kind(), Node::Kind::Reduction);
  EXPECT_EQ(n.as<ScanSpec>(), nullptr);
  EXPECT_TRUE(n.stores().empty());
  EXPECT_EXIT((void)n.get<ScanSpec>().reverse, testing::ExitedWithCode(3), "node 'total' is of the kind reduction, not scan");
  for (size_t k = 0; k < std::variant_size_v<Node::Spec>; ++k) EXPECT_EQ(blankSpec(static_cast<Node::Kind>(k)).index(), k);
}

TEST(Numeric, ReducedFloatsRoundTripAndRoundToEven) {
  for (DType t : {DType::F16, DType::BF16, DType::F8E4M3FN, DType::F8E5M2, DType::F8E4M3FNUZ, DType::F8E5M2FNUZ,
                  DType::F8E8M0FNU}) {
    uint32_t codes = 1u << (8 * itemSize(t));
    for (uint32_t c = 0; c < codes; ++c) {
      float v = decodeFloat(t, c);
      if (!std::isnan(v)) EXPECT_EQ(encodeFloat(t, v), c) << name(t) << " code " << c;
    }
  }
  EXPECT_EQ(roundTo(DType::F16, 2049.0f), 2048.0f); // a tie goes to the even mantissa
  EXPECT_EQ(roundTo(DType::F16, 2051.0f), 2052.0f);
  EXPECT_EQ(roundTo(DType::F16, 65520.0f), std::numeric_limits<float>::infinity());
  EXPECT_EQ(roundTo(DType::F16, 65519.0f), 65504.0f);
  EXPECT_EQ(roundTo(DType::F8E4M3FN, 464.0f), 448.0f);
  EXPECT_TRUE(std::isnan(roundTo(DType::F8E4M3FN, 465.0f)));
  EXPECT_EQ(roundTo(DType::F16, 0x1p-25f), 0.0f);
  EXPECT_EQ(roundTo(DType::F16, 0x1.8p-25f), 0x1p-24f);
}

TEST(Numeric, PhiloxMatchesThePublishedVectors) {
  // Random123's known answers for philox4x32-10: zero counter and key, and all ones in key and the two counter words
  // that we use.
  EXPECT_EQ(philox(0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

/// Reference values from scipy.special 1.14 and the tables of the DLMF; relative tolerance 1e-12.
TEST(Numeric, SpecialFunctions) {
  auto near = [](double got, double want) { EXPECT_NEAR(got, want, 1e-12 * std::max(1.0, std::fabs(want))); };
  near(digamma(1), -0.57721566490153286);
  near(digamma(-0.5), 0.03648997397857652);
  near(polygamma(1, 1), 1.6449340668482264);
  near(hurwitzZeta(3, 1), 1.2020569031595943);
  near(besselI0(1), 1.2660658777520084);
  near(besselI1(-1), -0.5651591039924851);
  near(besselI0e(100), 0.039944379299077496);
  near(besselK0(1), 0.42102443824070834);
  near(besselK1(2), 0.13986588181652243);
  near(airyAi(0), 0.3550280538878172);
  near(airyAi(2), 0.03492413042327438);
  // On both sides of where one formula gives way to another, by mpmath.
  auto ratio = [](double got, double want) { EXPECT_NEAR(got / want, 1.0, 1e-12) << want; };
  ratio(besselK0(0.01), 4.7212447301610947);
  ratio(besselK0(2.5), 0.062347553200366189);
  ratio(besselK0(30), 2.1324774964630563e-14);
  ratio(besselK1(1e-5), 99999.999939355708);
  ratio(besselK1(100), 4.6798537356369095e-45);
  ratio(besselK0e(500), 0.056035915417234516);
  ratio(besselK1e(3), 0.80656348012878687);
  ratio(airyAi(1.25), 0.09964454475691667);
  ratio(airyAi(20), 1.6916728686705404e-27);
  ratio(airyAi(-3.5), -0.37553382314043193);
  EXPECT_EQ(besselK0(INFINITY), 0.0);
  EXPECT_EQ(besselK1e(INFINITY), 0.0);
  EXPECT_EQ(besselK0(0), INFINITY);
  near(erfinv(0.5), 0.4769362762044699);
  near(ndtri(0.025), -1.9599639845400545);
  near(logNdtr(-10), -53.23128515051247);
  near(erfcx(3), 0.17900115118138995);
  near(igamma(2, 1), 0.26424111765711533);
  near(igammac(0.5, 2), 0.04550026389635842);
}

} // namespace
} // namespace neso::loops
