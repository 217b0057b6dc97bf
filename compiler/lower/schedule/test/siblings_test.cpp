// Products of one operand: which become one, and for which reason others do not.
#include "lower/schedule/siblings.h"

#include <gtest/gtest.h>

#include "ir/loops/build.h"
#include "ir/loops/verify.h"

namespace neso::schedule::test {
namespace {

using namespace loops;

constexpr int64_t kRows = 64, kDepth = 32;

Expr i(int d) { return Symbol::index(static_cast<size_t>(d)); }
Expr r(int d) { return Symbol::inner(static_cast<size_t>(d)); }

/// x [64, 32] times weights [n, 32], whose results are read by sums of rows.
struct Family {
  Program p;
  std::vector<std::unique_ptr<std::vector<float>>> bytes;
  BufferId x, sums;

  Family() { x = input("x", kRows * kDepth); }
  BufferId add(std::string name, Buffer::Kind kind, Expr elements) {
    Buffer b;
    b.id = BufferId(static_cast<int64_t>(p.buffers.size())), b.name = std::move(name), b.kind = kind, b.elements = elements;
    p.buffers.push_back(b);
    return b.id;
  }
  BufferId input(std::string name, int64_t elements) {
    const BufferId id = add(name, Buffer::Kind::Input, elements);
    p.buffer(id).index = static_cast<int64_t>(p.inputs.size());
    ProgramInput in;
    in.name = name, in.sizes = {elements}, in.strides = {1}, in.buffer = id;
    p.inputs.push_back(in);
    return id;
  }
  BufferId weight(std::string name, int64_t elements) {
    const BufferId id = add(name, Buffer::Kind::Constant, elements);
    p.buffer(id).index = static_cast<int64_t>(p.constants.size());
    bytes.push_back(std::make_unique<std::vector<float>>(static_cast<size_t>(elements), 1.0f));
    Constant c;
    c.fqn = name, c.data = reinterpret_cast<const uint8_t *>(bytes.back()->data()), c.bytes = elements * 4;
    c.tensors = {{name, {elements}, {1}, 0}};
    p.constants.push_back(c);
    return id;
  }
  template <typename T> Node &node(std::vector<Expr> ranges, std::vector<Expr> over, std::string name) {
    Node n;
    n.id = NodeId(static_cast<int64_t>(p.nodes.size())), n.name = std::move(name), n.ranges = std::move(ranges), n.reduceRanges = std::move(over);
    n.spec.template emplace<T>();
    p.nodes.push_back(n);
    return p.nodes.back();
  }
  /// The result's buffer.
  BufferId product(std::string name, int64_t columns, BufferId w) {
    const BufferId out = add(name + "_out", Buffer::Kind::Temp, kRows * columns);
    auto &c = node<ContractionSpec>({kRows, columns}, {kDepth}, name).get<ContractionSpec>();
    c.lhs = appendLoad(c.body, x, DType::F32, i(0) * kDepth + r(0));
    c.rhs = appendLoad(c.body, w, DType::F32, i(1) * kDepth + r(0));
    append(c.epilogue, OpKind::Constant, DType::F32);
    c.stores = {{out, i(0) * columns + i(1), 0}};
    return out;
  }
  BufferId product(std::string name, int64_t columns) { return product(name, columns, weight("w" + name, columns * kDepth)); }
  /// The reader of a product: sums of rows.
  Node &sum(std::string name, BufferId of, int64_t columns, int64_t offset = 0) {
    const BufferId out = add(name + "_out", Buffer::Kind::Temp, kRows);
    Node &n = node<ReductionSpec>({kRows}, {columns}, name);
    auto &s = n.get<ReductionSpec>();
    s.reductions.push_back({ReduceKind::Sum, DType::F32, appendLoad(s.body, of, DType::F32, i(0) * columns + r(0) + offset), {{out, i(0), 0}}});
    output(out, kRows);
    return n;
  }
  void output(BufferId b, int64_t elements) {
    ProgramOutput o;
    o.buffer = b, o.sizes = {elements}, o.strides = {1};
    p.outputs.push_back(o);
  }
  size_t products() const {
    return static_cast<size_t>(std::count_if(p.nodes.begin(), p.nodes.end(), [](const Node &n) { return n.kind() == Node::Kind::Contraction; }));
  }
  /// What is said of all products; the program must stay sound.
  std::string join(Siblings siblings = Siblings::Together) {
    SplitRule rule;
    rule.siblings = siblings;
    rule.machine.nextLaunch = 2, rule.machine.bytesPerUs = 2.5e3, rule.machine.narrow = rule.machine.wide = {0.25, 1e6};
    std::string out;
    for (const auto &[id, said] : joinSiblings(p, rule)) out += fmt::format("{}\n", fmt::join(said, "\n"));
    Status sound = verify(p);
    EXPECT_TRUE(sound) << sound.error().str() << print(p);
    return out;
  }
};

TEST(Siblings, OfDifferentWidthBecomeOneThatReadersSeeInParts) {
  Family f;
  f.sum("s", f.product("q", 16), 16), f.sum("t", f.product("k", 8), 8), f.sum("u", f.product("v", 8), 8);
  EXPECT_EQ(f.join(), "q, k, v are one product of 32 columns\n");
  ASSERT_EQ(f.products(), 1u);
  const Node &joined = f.p.nodes[0];
  EXPECT_EQ(joined.ranges, (std::vector<Expr>{kRows, 32}));
  EXPECT_EQ(joined.stores()[0].index, i(0) * 32 + i(1));
  // In the order in which they stood, behind the sums of the parts before.
  EXPECT_EQ(f.p.nodes[1].body().ops[0].index, i(0) * 32 + r(0));
  EXPECT_EQ(f.p.nodes[3].body().ops[0].index, i(0) * 32 + r(0) + 24);
  const Constant &c = f.p.constants.back();
  EXPECT_EQ(c.bytes, 32 * kDepth * 4);
  ASSERT_EQ(c.tensors.size(), 3u);
  EXPECT_EQ(c.tensors[2].fqn, "wv");
  EXPECT_EQ(c.tensors[2].offset, 24 * kDepth);
}

TEST(Siblings, StayApartWhereNobodyAsks) {
  Family f;
  f.sum("s", f.product("q", 16), 16), f.sum("t", f.product("k", 16), 16);
  EXPECT_EQ(f.join(Siblings::Apart), "");
  EXPECT_EQ(f.products(), 2u);
}

TEST(Siblings, WhoseWeightOthersReadStayApart) {
  Family f;
  const BufferId shared = f.weight("shared", 16 * kDepth);
  f.sum("s", f.product("q", 16, shared), 16), f.sum("t", f.product("k", 16, shared), 16);
  EXPECT_NE(f.join().find("'shared' is used elsewhere, too"), std::string::npos);
  EXPECT_EQ(f.products(), 2u);
}

TEST(Siblings, WhoseResultTheCallerTakesStayApart) {
  Family f;
  f.output(f.product("q", 16), kRows * 16);
  f.sum("t", f.product("k", 16), 16), f.sum("u", f.product("v", 16), 16);
  const std::string said = f.join();
  EXPECT_NE(said.find("its result is one of the model's"), std::string::npos) << said;
  EXPECT_NE(said.find("k, v are one product"), std::string::npos) << said;
}

TEST(Siblings, ReadAcrossRowsStayApart) {
  Family f;
  // The last column of a row, then the first of the next.
  Node &across = f.sum("s", f.product("q", 16), 16, 1);
  across.ranges = {kRows - 1};
  f.p.buffer(f.p.outputs[0].buffer).elements = kRows - 1, f.p.outputs[0].sizes = {kRows - 1};
  f.sum("t", f.product("k", 16), 16);
  EXPECT_NE(f.join().find("'s' does not read its result row by row"), std::string::npos);
  EXPECT_EQ(f.products(), 2u);
}

TEST(Siblings, OfWhichOneHasABiasStayApart) {
  Family f;
  f.sum("s", f.product("q", 16), 16);
  auto &epilogue = f.p.nodes[0].get<ContractionSpec>().epilogue;
  append(epilogue, OpKind::Add, DType::F32, 0, appendLoad(epilogue, f.weight("bias", 16), DType::F32, i(1)));
  f.p.nodes[0].get<ContractionSpec>().stores[0].value = 2;
  f.sum("t", f.product("k", 16), 16);
  EXPECT_NE(f.join().find("none is of its form"), std::string::npos);
  EXPECT_EQ(f.products(), 2u);
}

TEST(Siblings, WithRowsThatAreNoWholeLoadsDoNotShiftOthers) {
  Family f;
  f.sum("s", f.product("q", 16), 16), f.sum("t", f.product("k", 7), 7);
  EXPECT_NE(f.join().find("none is of its form"), std::string::npos);
  EXPECT_EQ(f.products(), 2u);
}

TEST(Siblings, BehindAChangeOfTheOperandStayApart) {
  Family f;
  f.sum("s", f.product("q", 16), 16);
  auto &write = f.node<PointwiseSpec>({kRows * kDepth}, {}, "write").get<PointwiseSpec>();
  const ValueIdx zero = append(write.body, OpKind::Constant, DType::F32);
  write.stores = {{f.x, i(0), zero}};
  f.p.buffer(f.x).mutated = true;
  f.sum("t", f.product("k", 16), 16), f.sum("u", f.product("v", 16), 16);
  f.join();
  EXPECT_EQ(f.products(), 3u);
}

TEST(Siblings, WithWorkBehindTheirSumsAreJoinedOnlyWhereThatPays) {
  auto make = [](Family &f) {
    f.sum("t", f.product("k", 16), 16), f.sum("u", f.product("v", 16), 16);
    const BufferId q = f.product("q", 16), out = f.add("relu_out", Buffer::Kind::Temp, kRows * 16);
    auto &relu = f.node<PointwiseSpec>({kRows * 16}, {}, "relu").get<PointwiseSpec>();
    const ValueIdx value = append(relu.body, OpKind::Relu, DType::F32, appendLoad(relu.body, q, DType::F32, i(0)));
    relu.stores = {{out, i(0), value}};
    f.output(out, kRows * 16);
  };
  // An index over all elements would be divided to find its row.
  Family flat;
  make(flat);
  EXPECT_NE(flat.join().find("'relu' does not read its result row by row"), std::string::npos);
  Family f;
  make(f);
  Node &relu = f.p.nodes.back();
  relu.ranges = {kRows, 16};
  relu.get<PointwiseSpec>().body.ops[0].index = i(0) * 16 + i(1), relu.get<PointwiseSpec>().stores[0].index = i(0) * 16 + i(1);
  const std::string said = f.join(Siblings::WherePays);
  EXPECT_NE(said.find("k, v are one product of 32 columns: "), std::string::npos) << said;
  EXPECT_NE(said.find("'relu' would read its sums from memory"), std::string::npos) << said;
  EXPECT_EQ(f.products(), 2u);
}

} // namespace
} // namespace neso::schedule::test
