// Compile-time evaluation of small tensors that depend on constants alone, by the loops interpreter.
#include <algorithm>
#include <cstring>
#include <set>

#include "ir/loops/access.h"
#include "ir/loops/interp.h"
#include "lower/graph_to_loops/lowering.h"

namespace neso::lower {

/// Folded tensors are stored in the package; what is larger is cheaper to compute when the model runs.
static constexpr int64_t kMaxFoldedElements = 1 << 16;

Tensor Lowering::fold(const Tensor &x) {
  if (!folds || x.realized() || x.isComplex() || x.isNumber()) return x;
  int64_t count = 1;
  for (Expr s : x.sizes()) {
    std::optional<int64_t> n = s.asConst();
    if (!n || *n <= 0 || count > kMaxFoldedElements / *n) return x;
    count *= *n;
  }
  BodyBuilder b(facts);
  Index index;
  Sizes ranges;
  for (Expr s : x.sizes()) {
    if (!s.isConst(1)) ranges.push_back(s);
    index.push_back(b.addIndex(Symbol::index(ranges.empty() ? 0 : ranges.size() - 1), s));
  }
  Val v = b.cast(x.at(b, index), x.dtype());
  Expr flat = 0;
  Sizes strides = denseStrides(x.sizes());
  for (size_t d = 0; d < index.size(); ++d) flat = flat + index[d] * strides[d];
  loops::Program mini;
  loops::Node node;
  node.id = loops::NodeId(0);
  node.ranges = ranges;
  auto &spec = node.spec.emplace<loops::PointwiseSpec>();
  spec.body = b.take();
  ValueIdx value = v.idx;
  pruneBody(spec.body, {&value});
  std::map<int32_t, BufferId> moved;
  bool loads = false, other = false;
  for (const loops::Op &op : spec.body.ops) {
    other |= op.kind != OpKind::Load;
    if (loops::info(op.kind).has(loops::Random)) return x;
  }
  for (const loops::Access &a : loops::accessesOf(node)) {
    loads = true;
    const loops::Buffer &from = program.buffer(a.buffer);
    const loops::Constant *c =
        from.kind == loops::Buffer::Kind::Constant ? &program.constants[static_cast<size_t>(from.index)] : nullptr;
    if (!c || from.mutated || !c->data) return x;
    auto [it, fresh] = moved.try_emplace(a.buffer.value);
    if (!fresh) continue;
    loops::Buffer copy = from;
    copy.id = it->second = BufferId(static_cast<int64_t>(mini.buffers.size()));
    copy.index = static_cast<int64_t>(mini.constants.size());
    mini.constants.push_back(*c);
    mini.buffers.push_back(std::move(copy));
  }
  loops::rewriteAccesses(node, [&](BufferId &buffer, Expr &, const loops::Access &) { buffer = moved[buffer.value]; });
  // A plain view of a weight, or something without weights, is as cheap where it is.
  if (!loads || !other) return x;
  loops::Buffer out;
  out.id = BufferId(static_cast<int64_t>(mini.buffers.size()));
  out.name = "folded";
  out.dtype = x.dtype();
  out.elements = count;
  mini.buffers.push_back(out);
  loops::Store s;
  s.buffer = out.id;
  s.index = flat;
  s.value = value;
  spec.stores = {s};
  mini.nodes.push_back(std::move(node));
  loops::ProgramOutput p;
  p.buffer = out.id;
  p.dtype = x.dtype();
  p.sizes = x.sizes();
  p.strides = strides;
  mini.outputs.push_back(p);
  Result<std::vector<loops::HostValue>> result = loops::Interpreter(mini).run({});
  if (!result || result->size() != 1) return x;
  const uint8_t *data = (*result)[0].data;
  std::vector<std::string> from;
  for (const loops::Constant &c : mini.constants) {
    for (const loops::Constant::ModelTensor &t : c.tensors) from.push_back(t.fqn);
    from.insert(from.end(), c.foldedFrom.begin(), c.foldedFrom.end());
  }
  Tensor folded = addConstant(x.dtype(), x.sizes(), std::vector<uint8_t>(data, data + count * itemSize(x.dtype())));
  program.constants.back().foldedFrom = std::move(from);
  return folded;
}

} // namespace neso::lower
