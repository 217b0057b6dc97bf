// Programs for tests of tiling, written node by node.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ir/loops/build.h"
#include "lower/schedule/schedule.h"

namespace neso::test {

using namespace loops;

inline Expr i(size_t d) { return Symbol::index(d); }
inline Expr r(size_t d) { return Symbol::inner(d); }

struct Maker {
  Program p;

  BufferId input(const char *name, Expr elements, DType t = DType::F32) {
    const BufferId b = addTemp(p, name, t, elements);
    p.buffer(b).kind = Buffer::Kind::Input, p.buffer(b).index = static_cast<int64_t>(p.inputs.size());
    ProgramInput in;
    in.name = name, in.dtype = t, in.sizes = {elements}, in.strides = {1}, in.buffer = b;
    p.inputs.push_back(in);
    return b;
  }
  /// Element e is e, as far as the type has it.
  template <typename T = float> BufferId constant(const char *name, int64_t elements, DType t = DType::F32) {
    const BufferId b = addTemp(p, name, t, elements);
    p.buffer(b).kind = Buffer::Kind::Constant, p.buffer(b).index = static_cast<int64_t>(p.constants.size());
    auto values = std::make_shared<std::vector<T>>(static_cast<size_t>(elements));
    for (size_t e = 0; e < values->size(); ++e) (*values)[e] = static_cast<T>(e);
    Constant c;
    c.fqn = name, c.dtype = t, c.bytes = elements * static_cast<int64_t>(sizeof(T)), c.data = reinterpret_cast<const uint8_t *>(values->data()), c.owner = values;
    c.tensors.push_back({name, {elements}, {1}, 0});
    p.constants.push_back(c);
    return b;
  }
  template <typename T> void node(std::vector<Expr> ranges, std::vector<Expr> reduce, T spec) {
    Node n;
    n.id = freeNodeId(p), n.name = "n" + std::to_string(n.id.value), n.spec = std::move(spec);
    n.ranges = std::move(ranges), n.reduceRanges = std::move(reduce);
    p.nodes.push_back(std::move(n));
  }
  void output(BufferId b) {
    ProgramOutput o;
    o.buffer = b, o.dtype = p.buffer(b).dtype, o.sizes = {p.buffer(b).elements}, o.strides = {1};
    p.outputs.push_back(o);
  }
  /// Attention of `heads` heads of 64 elements to as many keys as there are queries.
  void attention(int64_t heads, Expr queries, DType t) {
    constexpr int64_t kHead = 64;
    const Expr elements = Expr(heads * kHead) * queries, of = Expr(AttentionSpec::symbol(AttentionSpec::Head)) * queries * kHead + Expr(AttentionSpec::symbol(AttentionSpec::Element));
    const Expr row = of + Expr(AttentionSpec::symbol(AttentionSpec::Query)) * kHead, key = of + Expr(AttentionSpec::symbol(AttentionSpec::Key)) * kHead;
    AttentionSpec s;
    s.q = {input("q", elements, t), row, t}, s.k = {input("k", elements, t), key, t}, s.v = {input("v", elements, t), key, t};
    s.out = {addTemp(p, "out", t, elements), row, t};
    s.keyLength = queries, s.headSize = kHead;
    node({1, heads, queries, kHead}, {}, s), output(s.out.buffer);
  }
  plan::Plan plan(const schedule::ScheduleOptions &options = {}) {
    Result<plan::Plan> out = schedule::schedule(p, options);
    EXPECT_TRUE(out);
    return std::move(*out);
  }
};

} // namespace neso::test
