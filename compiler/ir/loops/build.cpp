#include "ir/loops/build.h"

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

Body epilogueOf(const ContractionSpec &contraction, BufferId buffer, Expr index) {
  Body body;
  appendLoad(body, buffer, contraction.accType, index);
  const std::vector<Op> &ops = contraction.epilogue.ops;
  // The first op of an epilogue stands for the sum.
  if (!ops.empty()) body.ops.insert(body.ops.end(), ops.begin() + 1, ops.end());
  return body;
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
  for (const Node &n : program.nodes) next = std::max(next, n.id.value + 1);
  return NodeId(next);
}

Expr rowMajorIndex(const std::vector<Expr> &ranges) {
  Expr at = 0;
  for (size_t d = 0; d < ranges.size(); ++d) at = at * ranges[d] + Symbol::index(d);
  return at;
}

} // namespace neso::loops
