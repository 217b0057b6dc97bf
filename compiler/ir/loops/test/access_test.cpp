// Each kind of node names the memory that it touches; programs of all kinds are in lower/schedule/test.
#include <gtest/gtest.h>

#include "ir/loops/build.h"
#include "ir/loops/test/touched.h"

namespace neso::loops::test {
namespace {

Expr i(size_t d) { return Symbol::index(d); }
Expr r(size_t d) { return Symbol::inner(d); }

struct Maker {
  Program p;
  BufferId buffer(std::string name, Expr elements = 12, DType t = DType::F32) {
    return addTemp(p, std::move(name), t, elements);
  }
  Node node(Node::Spec spec, std::vector<Expr> ranges, std::vector<Expr> reduce = {}) {
    Node n;
    n.spec = std::move(spec), n.name = "node", n.ranges = std::move(ranges), n.reduceRanges = std::move(reduce);
    return n;
  }
  /// "a:read b:write+masked …" in the order of the walk.
  std::string walk(const Node &n) const {
    constexpr std::string_view modes[] = {"read", "write", "update"};
    std::string out;
    forEachAccess(n, [&](const Access &a) {
      out += fmt::format("{}{}:{}{}{}", out.empty() ? "" : " ", p.buffer(a.buffer).name,
                         modes[static_cast<size_t>(a.mode)], a.masked ? "+masked" : "", a.whole() ? "+whole" : "");
    });
    return out;
  }
  std::string difference(const Node &n) const {
    Memory memory = memoryFor(p, {}, 0);
    for (std::vector<uint8_t> &m : memory)
      for (size_t k = 0; k + 3 < m.size(); k += 4) m[k + 3] = 0x40, m[k + 2] = static_cast<uint8_t>(k);
    return differenceFromWalk(p, n, {}, Symbol::Kind::Index, memory);
  }
};

TEST(Access, EveryPlaceOfAContraction) {
  Maker m;
  BufferId a = m.buffer("a"), b = m.buffer("b"), bias = m.buffer("bias"), y = m.buffer("y");
  ContractionSpec c;
  c.lhs = appendLoad(c.body, a, DType::F32, i(0) * 3 + r(0)), c.rhs = appendLoad(c.body, b, DType::F32, r(0) * 4 + i(1));
  append(c.epilogue, OpKind::Constant, DType::F32);
  ValueIdx added = appendLoad(c.epilogue, bias, DType::F32, i(1));
  c.stores = {{y, i(0) * 4 + i(1), append(c.epilogue, OpKind::Add, DType::F32, 0, added)}};
  const Node n = m.node(c, {3, 4}, {3});
  EXPECT_EQ(m.walk(n), "a:read b:read bias:read y:write");
  EXPECT_EQ(accessesOf(n)[2].use, Use::Epilogue);
  EXPECT_EQ(m.difference(n), "");
}

TEST(Access, MasksAndUpdates) {
  Maker m;
  BufferId x = m.buffer("x"), y = m.buffer("y"), z = m.buffer("z"), w = m.buffer("w");
  PointwiseSpec s;
  ValueIdx at = appendIndex(s.body, i(0)), five = appendIndex(s.body, 5);
  ValueIdx mask = append(s.body, OpKind::Lt, DType::Bool, at, five);
  Op load{OpKind::Load, DType::F32};
  load.a = mask, load.buffer = x, load.index = i(0);
  ValueIdx v = append(s.body, load);
  s.stores = {{y, i(0), v}, {z, i(0), v, mask}, {w, mod(i(0), 3), v, -1, StoreMode::AtomicAdd}};
  const Node n = m.node(s, {12});
  EXPECT_EQ(m.walk(n), "x:read+masked y:write z:write+masked w:update");
  EXPECT_EQ(m.difference(n), "");
}

TEST(Access, ReductionsScansAndSorts) {
  Maker m;
  BufferId x = m.buffer("x"), y = m.buffer("y", 3), z = m.buffer("z", 3), words = m.buffer("words", 64, DType::I64),
           at = m.buffer("at", 12, DType::I64);
  ReductionSpec folds;
  ValueIdx v = appendLoad(folds.body, x, DType::F32, i(0) * 4 + r(0));
  folds.reductions = {{ReduceKind::Sum, DType::F32, v, {{y, i(0), 0}}}, {ReduceKind::Max, DType::F32, v, {{z, i(0), 0}}}};
  const Node n = m.node(folds, {3}, {4});
  EXPECT_EQ(m.walk(n), "x:read y:write z:write");
  EXPECT_EQ(m.difference(n), "");

  ScanSpec sums;
  sums.inputs = {appendLoad(sums.body, x, DType::F32, i(0) * 4 + r(0))};
  sums.stores = {{m.buffer("sums"), i(0) * 4 + r(0), 0}};
  sums.lookBack = LookBack{words, 4};
  const Node scan = m.node(sums, {3}, {4});
  EXPECT_EQ(m.walk(scan), "x:read words:update+whole sums:write");
  EXPECT_EQ(m.difference(scan), "");

  Node sort = m.node(SortSpec(), {3}, {4});
  auto &sorted = sort.get<SortSpec>();
  sorted.key = appendLoad(sorted.body, x, DType::F32, i(0) * 4 + r(0));
  sorted.stores = {{m.buffer("sorted"), i(0) * 4 + r(0), 0}, {at, i(0) * 4 + r(0), 1}};
  EXPECT_EQ(m.walk(sort), "x:read sorted:write at:write");
  EXPECT_EQ(m.difference(sort), "");
  sorted.scratch = SortScratch{m.buffer("words", 24, DType::U64), {}, m.buffer("counts", 3072, DType::U32)};
  EXPECT_EQ(m.walk(sort), "x:read words:write+whole counts:write+whole sorted:write at:write");
}

TEST(Access, OperandsOfAttention) {
  Maker m;
  AttentionSpec spec;
  Expr row = AttentionSpec::symbol(AttentionSpec::Query), key = AttentionSpec::symbol(AttentionSpec::Key),
       d = AttentionSpec::symbol(AttentionSpec::Element);
  spec.q = {m.buffer("q"), row * 2 + d, DType::F32}, spec.k = {m.buffer("k"), key * 2 + d, DType::F32};
  spec.v = {m.buffer("v"), key * 2 + d, DType::F32}, spec.mask = {m.buffer("mask"), row * 3 + key, DType::F32};
  spec.out = {m.buffer("out"), row * 2 + d, DType::F32};
  spec.keyLength = 3, spec.headSize = 2;
  Node n = m.node(spec, {1, 1, 2, 2});
  EXPECT_EQ(m.walk(n), "q:read+whole k:read+whole v:read+whole mask:read+whole out:write+whole");
  EXPECT_EQ(m.difference(n), "");
  BufferId other = m.buffer("other");
  rewriteAccesses(n, [&](BufferId &buffer, Expr &, const Access &) {
    if (buffer == spec.k.buffer) buffer = other;
  });
  EXPECT_EQ(m.walk(n), "q:read+whole other:read+whole v:read+whole mask:read+whole out:write+whole");
}

TEST(Access, ArgumentsOfAUserKernel) {
  Maker m;
  UserKernelSpec spec;
  using Argument = UserKernelSpec::Argument;
  auto memory = [&](const char *name, bool read, bool written) {
    Argument a;
    a.kind = Argument::Memory, a.name = name, a.buffer = m.buffer(name), a.read = read, a.written = written;
    spec.arguments.push_back(a);
  };
  memory("a", true, false), memory("b", false, true), memory("c", true, true), memory("unused", false, false);
  spec.reference = [](std::span<const HostArgument> args, std::array<int64_t, 3>) -> Status {
    const float *a = static_cast<const float *>(args[0].data);
    float *b = static_cast<float *>(args[1].data), *c = static_cast<float *>(args[2].data);
    for (int k = 0; k < 12; ++k) b[k] = a[k] + c[k], c[k] += 1;
    return {};
  };
  Node n = m.node(spec, {});
  EXPECT_EQ(m.walk(n), "a:read+whole b:write+whole c:update+whole");
  EXPECT_EQ(m.difference(n), "");
  // And were a use not said, it would be noticed.
  n.get<UserKernelSpec>().arguments[2].read = false;
  EXPECT_NE(m.difference(n), "");
}

TEST(Access, ExpressionsOverTheLoopAreMappedAndOthersStay) {
  Maker m;
  Node n = m.node(PointwiseSpec(), {4}, {3});
  auto &plain = n.get<PointwiseSpec>();
  Op indirect{OpKind::Indirect, DType::I64};
  indirect.a = appendIndex(plain.body, i(0)), indirect.symbol = Symbol::indirect(0), indirect.bound = 4;
  append(plain.body, indirect);
  plain.stores = {{m.buffer("y"), Expr(Symbol::indirect(0)) * 3 + r(0), appendLoad(plain.body, m.buffer("x"), DType::F32, r(0))}};
  EXPECT_EQ(loopExprsOf(n).size(), 4u);
  mapExprs(n, [](Expr e) { return substitute(e, {{Symbol::inner(0), Expr(2)}}); });
  EXPECT_EQ(plain.stores[0].index, Expr(Symbol::indirect(0)) * 3 + 2);
  EXPECT_EQ(accessesOf(n)[0].index, Expr(2));
  EXPECT_EQ(n.reduceRanges, std::vector<Expr>{3});
}

} // namespace
} // namespace neso::loops::test
