#include "ir/loops/build.h"

#include "ir/loops/access.h"

#include <algorithm>

namespace neso::loops {

ValueIdx append(Body &body, Op op) {
  body.ops.push_back(std::move(op));
  return static_cast<ValueIdx>(body.ops.size() - 1);
}

ValueIdx append(Body &body, OpKind kind, DType dtype, ValueIdx a, ValueIdx b, ValueIdx c) {
  Op op{kind, dtype};
  op.a = a, op.b = b, op.c = c;
  return append(body, std::move(op));
}

ValueIdx appendLoad(Body &body, BufferId buffer, DType dtype, Expr index) {
  Op op{OpKind::Load, dtype};
  op.buffer = buffer, op.index = index;
  return append(body, std::move(op));
}

ValueIdx appendIndex(Body &body, Expr index) {
  Op op{OpKind::Index, DType::I64};
  op.index = index;
  return append(body, std::move(op));
}

int64_t extremeOf(DType t, bool greatest) {
  if (t == DType::Bool) return greatest;
  const int bits = static_cast<int>(itemSize(t)) * 8;
  if (isUnsignedInt(t)) return greatest ? static_cast<int64_t>(~uint64_t(0) >> (64 - bits)) : 0;
  return greatest ? INT64_MAX >> (64 - bits) : INT64_MIN >> (64 - bits);
}

void pruneBody(Body &body, const std::vector<ValueIdx *> &roots, bool keepFirst) {
  size_t n = body.ops.size();
  std::vector<char> live(n, 0);
  if (keepFirst && n) live[0] = 1;
  // Values that only an index expression names are found through their symbols; those of stores were given as roots by
  // the caller.
  SymbolMap<size_t> symbolAt;
  for (size_t i = 0; i < n; ++i)
    if (body.ops[i].kind == OpKind::Indirect) symbolAt[body.ops[i].symbol] = i;
  for (ValueIdx *r : roots)
    if (*r >= 0) live[*r] = 1;
  for (size_t i = n; i-- > 0;) {
    if (!live[i]) continue;
    const Op &op = body.ops[i];
    for (ValueIdx v : {op.a, op.b, op.c})
      if (v >= 0) live[v] = 1;
    if (symbolAt.empty()) continue;
    for (Expr e : {op.index, op.bound})
      if (e.valid())
        for (Symbol s : symbolsOf(e))
          if (auto it = symbolAt.find(s); it != symbolAt.end()) live[it->second] = 1;
  }
  std::vector<ValueIdx> to(n, -1);
  std::vector<Op> kept;
  for (size_t i = 0; i < n; ++i) {
    if (!live[i]) continue;
    Op op = std::move(body.ops[i]);
    for (ValueIdx *v : {&op.a, &op.b, &op.c})
      if (*v >= 0) *v = to[*v];
    to[i] = static_cast<ValueIdx>(kept.size());
    kept.push_back(std::move(op));
  }
  body.ops = std::move(kept);
  for (ValueIdx *r : roots)
    if (*r >= 0) *r = to[*r];
}

PointwiseSpec epilogueOf(const ContractionSpec &contraction, Body sum) {
  PointwiseSpec out{std::move(sum), contraction.stores};
  const ValueIdx shift = static_cast<ValueIdx>(out.body.ops.size()) - 1;
  auto shifted = [&](ValueIdx &i) {
    if (i >= 0) i += shift;
  };
  const std::vector<Op> &ops = contraction.epilogue.ops;
  // The first op of an epilogue stands for the sum.
  for (size_t i = 1; i < ops.size(); ++i) {
    Op op = ops[i];
    shifted(op.a), shifted(op.b), shifted(op.c);
    out.body.ops.push_back(std::move(op));
  }
  for (Store &s : out.stores) shifted(s.value), shifted(s.mask);
  return out;
}

BufferId addTemp(Program &program, std::string name, DType dtype, Expr elements) {
  Buffer b;
  b.id = BufferId(static_cast<int64_t>(program.buffers.size()));
  b.name = std::move(name), b.dtype = dtype, b.elements = elements;
  program.buffers.push_back(std::move(b));
  return program.buffers.back().id;
}

NodeId freeNodeId(const Program &program) {
  int32_t next = 0;
  forEachNode(program.nodes, [&](const Node &n) { next = std::max(next, n.id.value + 1); });
  return NodeId(next);
}

Expr rowMajorIndex(const std::vector<Expr> &ranges) {
  Expr at = 0;
  for (size_t d = 0; d < ranges.size(); ++d) at = at * ranges[d] + Symbol::index(d);
  return at;
}

} // namespace neso::loops
