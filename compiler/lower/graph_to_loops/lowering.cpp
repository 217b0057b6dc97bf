#include "lower/graph_to_loops/lowering.h"

#include <algorithm>
#include <cstring>

#include "ir/loops/build.h"
#include "ir/loops/order.h"
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

using loops::Node;
using loops::Op;

Sizes denseStrides(const Sizes &sizes, const std::vector<int> &order) {
  Sizes strides(sizes.size(), Expr(1));
  Expr running = 1;
  for (size_t k = sizes.size(); k-- > 0;) {
    size_t d = order.size() == sizes.size() ? static_cast<size_t>(order[k]) : k;
    strides[d] = running;
    running = running * sizes[d];
  }
  return strides;
}

std::vector<int> orderOfStrides(const Sizes &sizes, const Sizes &strides, const Facts &facts) {
  std::vector<int> order;
  for (size_t d = 0; d < sizes.size(); ++d) {
    size_t at = order.size();
    // A dimension moves outwards past those with provably smaller strides.
    for (size_t k = order.size(); k-- > 0;) {
      size_t e = static_cast<size_t>(order[k]);
      if (sizes[d].isConst(1) || sizes[e].isConst(1)) continue;
      if (!facts.provablyLess(strides[e], strides[d])) break;
      at = k;
    }
    order.insert(order.begin() + static_cast<int64_t>(at), static_cast<int>(d));
  }
  return order;
}

/// Indirect ops whose symbols the store indices use must live although no value names them.
static std::vector<ValueIdx> indirectRoots(const loops::Body &body, const std::vector<loops::Store> &stores) {
  std::vector<ValueIdx> roots;
  for (size_t i = 0; i < body.ops.size(); ++i) {
    if (body.ops[i].kind != OpKind::Indirect) continue;
    for (const loops::Store &s : stores)
      if (uses(s.index, body.ops[i].symbol)) {
        roots.push_back(static_cast<ValueIdx>(i));
        break;
      }
  }
  return roots;
}

/// Whether an expression, or a value, of a body may be another one where `symbol` is another.
static bool varies(const loops::Body &body, Expr e, Symbol symbol);
static bool varies(const loops::Body &body, ValueIdx v, Symbol symbol) {
  if (v < 0) return false;
  const loops::Op &op = body.ops[static_cast<size_t>(v)];
  const bool indexed = op.kind == OpKind::Load || op.kind == OpKind::Index;
  return (indexed && varies(body, op.index, symbol)) || varies(body, op.a, symbol) || varies(body, op.b, symbol) || varies(body, op.c, symbol);
}
static bool varies(const loops::Body &body, Expr e, Symbol symbol) {
  if (uses(e, symbol)) return true;
  for (size_t i = 0; i < body.ops.size(); ++i)
    if (body.ops[i].kind == OpKind::Indirect && uses(e, body.ops[i].symbol) && varies(body, static_cast<ValueIdx>(i), symbol)) return true;
  return false;
}

BufferId Lowering::addTemp(DType t, Expr elements) {
  loops::Buffer b;
  b.id = BufferId(static_cast<int64_t>(program.buffers.size()));
  b.name = "t" + std::to_string(b.id.value);
  b.dtype = t;
  b.elements = facts.simplify(elements);
  if (current) b.value = current->name;
  program.buffers.push_back(std::move(b));
  return program.buffers.back().id;
}

Strided Lowering::allocate(DType t, const Sizes &sizes, const std::vector<int> &order) {
  Strided w;
  w.dtype = t;
  w.strides = denseStrides(sizes, order);
  w.buffer = addTemp(t, product(sizes));
  loops::Buffer &b = program.buffer(w.buffer);
  b.sizes = sizes, b.strides = w.strides;
  return w;
}

Tensor Lowering::addConstant(DType t, const Sizes &sizes, std::vector<uint8_t> bytes) {
  loops::Constant c;
  c.dtype = t;
  auto owner = std::make_shared<std::vector<uint8_t>>(std::move(bytes));
  c.data = owner->data();
  c.bytes = static_cast<int64_t>(owner->size());
  c.owner = owner;
  loops::Buffer b;
  b.id = BufferId(static_cast<int64_t>(program.buffers.size()));
  b.name = "c" + std::to_string(b.id.value);
  b.dtype = t;
  b.kind = loops::Buffer::Kind::Constant;
  b.elements = product(sizes);
  b.index = static_cast<int64_t>(program.constants.size());
  program.constants.push_back(std::move(c));
  program.buffers.push_back(b);
  return Tensor::strided(*this, t, sizes, {b.id, t, denseStrides(sizes), 0});
}

Tensor Lowering::constantInOrder(const Tensor &x, const std::vector<int> &order) {
  std::optional<Strided> from = x.isComplex() ? std::nullopt : x.asStrided();
  if (!reorders || !from || !from->offset.isConst()) return x;
  const loops::Buffer buffer = program.buffer(from->buffer);
  if (buffer.kind != loops::Buffer::Kind::Constant || buffer.mutated) return x;
  const loops::Constant source = program.constants[static_cast<size_t>(buffer.index)];
  Sizes strides = denseStrides(x.sizes(), order);
  int64_t count = 1;
  bool same = true;
  loops::AxisPart all{0, from->offset.constValue(), {}};
  for (size_t d = 0; d < strides.size(); ++d) {
    if (!x.sizes()[d].isConst() || !from->strides[d].isConst()) return x;
    same &= x.sizes()[d].isConst(1) || strides[d] == from->strides[d];
    count *= x.sizes()[d].constValue();
    all.dims.push_back({x.sizes()[d].constValue(), strides[d].constValue(), from->strides[d].constValue()});
  }
  if (same || !source.data || count == 0) return x;
  Tensor copy = addConstant(x.dtype(), x.sizes(), {});
  Strided where = *copy.asStrided();
  where.strides = strides;
  program.buffer(where.buffer).name = buffer.name;
  loops::Constant &c = program.constants[static_cast<size_t>(program.buffer(where.buffer).index)];
  c = source;
  loops::reorder(c, loops::elementOrder({{all}}, 0, count), x.dtype());
  c.dtype = x.dtype();
  return Tensor::strided(*this, x.dtype(), x.sizes(), where);
}

Tensor Lowering::rng() {
  if (!rng_.valid()) {
    rng_ = addConstant(DType::I64, {Expr(2)}, std::vector<uint8_t>(16, 0));
    BufferId id = rng_.asStrided()->buffer;
    program.buffer(id).name = "neso.rng";
    loops::Constant &c = program.constants[static_cast<size_t>(program.buffer(id).index)];
    c.fqn = "neso.rng";
    c.isBuffer = true;
  }
  return rng_;
}

Expr Lowering::takeCounters(Expr count) {
  Expr first = counters_;
  counters_ = counters_ + count;
  return first;
}

Tensor Lowering::countersOfRegions() {
  if (!ofRegions_.valid() && depth_ > 0)
    ofRegions_ = Tensor::strided(*this, DType::I64, {}, {addTemp(DType::I64, 1), DType::I64, {}, 0});
  return ofRegions_;
}

/// At the end of a block: what it has drawn is not drawn again by the next turn, nor behind the region.
void Lowering::countDraws(Expr count) {
  const Tensor before = countersOfRegions();
  const Tensor after = Tensor::lazy(*this, DType::I64, {}, [before, count](BodyBuilder &b, const Index &i) { return before.at(b, i) + b.index(count); });
  store(after, *before.asStrided());
}

void Lowering::addNode(Node::Spec spec, Sizes ranges, Sizes reduceRanges) {
  if (depth_ == 0 && ofRegions_.valid() && !ofRegionsIsSet_) {
    ofRegionsIsSet_ = true;
    store(fullInt(*this, {}, DType::I64, 0), *ofRegions_.asStrided());
  }
  Node n;
  n.id = loops::NodeId(nextNode_++);
  n.spec = std::move(spec), n.ranges = std::move(ranges), n.reduceRanges = std::move(reduceRanges);
  if (current) {
    n.name = current->name;
    n.origins.push_back({current->loc, current->module});
  }
  program.nodes.push_back(std::move(n));
}

namespace {
/// Index symbols of a nest: dims of size 1 get the constant 0 and no range.
struct Nest {
  BodyBuilder b;
  Sizes ranges, reduceRanges;
  explicit Nest(const Lowering &ctx) : b(ctx.facts) { b.setGuard(ctx.guard.get()); }
  Expr outer(Expr extent) {
    if (extent.isConst(1)) return 0;
    ranges.push_back(extent);
    return b.addIndex(Symbol::index(ranges.size() - 1), extent);
  }
  Expr reduce(Expr extent) {
    if (extent.isConst(1)) return 0;
    reduceRanges.push_back(extent);
    return b.addIndex(Symbol::inner(reduceRanges.size() - 1), extent);
  }
};

Expr flatIndex(const Strided &w, const Index &index, const Facts &facts) {
  Expr e = w.offset;
  for (size_t d = 0; d < index.size(); ++d) e = e + index[d] * w.strides[d];
  return facts.simplify(e);
}
} // namespace

/// Keeps of the body what these values and the places of these stores need.
static void finish(loops::Body &body, std::vector<ValueIdx *> roots, const std::vector<loops::Store> &stores) {
  std::vector<ValueIdx> extra = indirectRoots(body, stores);
  for (ValueIdx &v : extra) roots.push_back(&v);
  pruneBody(body, roots);
}

/// True of what has certainly no elements. No node is made for it: nothing is computed, and no later stage meets loops
/// that can never run.
static bool isEmpty(const Sizes &sizes) {
  return std::any_of(sizes.begin(), sizes.end(), [](Expr e) { return e.isConst(0); });
}

void Lowering::store(const Tensor &x, const Strided &where) {
  if (isEmpty(x.sizes())) return;
  Nest nest(*this);
  Index index(x.sizes().size());
  for (int d : orderOfStrides(x.sizes(), where.strides, facts))
    index[static_cast<size_t>(d)] = nest.outer(x.sizes()[static_cast<size_t>(d)]);
  Val v = nest.b.cast(x.at(nest.b, index), where.dtype);
  loops::Store s;
  s.buffer = where.buffer;
  s.index = flatIndex(where, index, nest.b.facts());
  s.value = v.idx;
  loops::PointwiseSpec n{nest.b.take(), {s}};
  finish(n.body, {&n.stores[0].value}, n.stores);
  addNode(std::move(n), nest.ranges);
}

void Lowering::storeParts(const Tensor &x, const Tensor &to) {
  if (isEmpty(x.sizes())) return;
  const Strided where = *to.real().asStrided(), beside = *to.imag().asStrided();
  Nest nest(*this);
  Index index(x.sizes().size());
  for (int d : orderOfStrides(x.sizes(), where.strides, facts))
    index[static_cast<size_t>(d)] = nest.outer(x.sizes()[static_cast<size_t>(d)]);
  const Val re = nest.b.cast(x.real().at(nest.b, index), where.dtype);
  const Val im = nest.b.cast(x.imag().at(nest.b, index), beside.dtype);
  std::vector<loops::Store> stores = {{where.buffer, flatIndex(where, index, nest.b.facts()), re.idx},
                                      {beside.buffer, flatIndex(beside, index, nest.b.facts()), im.idx}};
  loops::PointwiseSpec n{nest.b.take(), std::move(stores)};
  finish(n.body, {&n.stores[0].value, &n.stores[1].value}, n.stores);
  addNode(std::move(n), nest.ranges);
}

/// Where elements that differ along a range are all stored in one place, the last is: nothing else says which, and a store names one element for
/// one place. Nothing differs that never is stored.
static void lastOfOnePlace(BodyBuilder &b, const Sizes &ranges, Expr place, Val &mask, Val &value) {
  if (mask.valid() && b.constantOf(mask) == 0.0) value = num(value, 0);
  for (size_t d = 0; d < ranges.size(); ++d) {
    const Symbol s = Symbol::index(d);
    if (varies(b.body(), place, s) || !varies(b.body(), value.idx, s) || (mask.valid() && varies(b.body(), mask.idx, s))) continue;
    const Val last = b.compare(OpKind::Eq, Expr(s), ranges[d] - 1);
    mask = mask.valid() ? mask && last : last;
  }
}

void Lowering::scatter(const Sizes &ranges, const std::function<ScatterItem(BodyBuilder &, const Index &)> &fn,
                       const Strided &where, DType t, loops::StoreMode mode) {
  if (isEmpty(ranges)) return;
  Nest nest(*this);
  Index index;
  for (Expr r : ranges) index.push_back(nest.outer(r));
  ScatterItem item = fn(nest.b, index);
  Val v = nest.b.cast(item.value, t);
  loops::Store s;
  s.buffer = where.buffer;
  s.index = flatIndex(where, item.index, nest.b.facts());
  if (mode == loops::StoreMode::Set) lastOfOnePlace(nest.b, nest.ranges, s.index, item.mask, v);
  s.value = v.idx;
  s.mask = item.mask.valid() && !nest.b.isConstTrue(item.mask) ? item.mask.idx : -1;
  s.mode = mode;
  loops::PointwiseSpec n{nest.b.take(), {s}};
  finish(n.body, {&n.stores[0].value, &n.stores[0].mask}, n.stores);
  addNode(std::move(n), nest.ranges);
}

void Lowering::storeMany(const Sizes &ranges,
                         const std::function<std::vector<Placed>(BodyBuilder &, const Index &)> &fn) {
  if (isEmpty(ranges)) return;
  Nest nest(*this);
  Index index;
  for (Expr r : ranges) index.push_back(nest.outer(r));
  std::vector<loops::Store> stores;
  for (const Placed &p : fn(nest.b, index)) {
    const Strided where = *p.where.asStrided();
    stores.push_back({where.buffer, flatIndex(where, p.index, nest.b.facts()), nest.b.cast(p.value, where.dtype).idx});
  }
  loops::PointwiseSpec n{nest.b.take(), std::move(stores)};
  std::vector<ValueIdx *> roots;
  for (loops::Store &s : n.stores) roots.push_back(&s.value);
  finish(n.body, roots, n.stores);
  addNode(std::move(n), nest.ranges);
}

Tensors Lowering::reduce(loops::ReduceKind kind, DType accType, const Sizes &sizes, const Sizes &reduceSizes,
                         const ReduceFn &fn, const std::vector<int> &order) {
  using loops::ReduceKind;
  Nest nest(*this);
  Index i(sizes.size()), r;
  for (size_t k = 0; k < sizes.size(); ++k) {
    size_t d = order.size() == sizes.size() ? static_cast<size_t>(order[k]) : k;
    i[d] = nest.outer(sizes[d]);
  }
  for (Expr e : reduceSizes) r.push_back(nest.reduce(e));
  Val v = nest.b.cast(fn(nest.b, i, r), accType);
  int count = kind == ReduceKind::Welford ? 3 : kind == ReduceKind::OnlineSoftmax ? 2 : 1;
  bool position = kind == ReduceKind::ArgMin || kind == ReduceKind::ArgMax;
  DType resultType = position ? DType::I64 : accType;
  // A fold over one element is that element: pointwise, so that it fuses as such.
  bool single = count == 1 && !position && nest.reduceRanges.empty();
  // Sums begin with 0: that of one negative zero is a positive one.
  if (single && kind == ReduceKind::Sum && isFloat(accType)) v = v + num(v, 0);
  loops::Reduction red;
  red.kind = kind;
  red.dtype = accType;
  red.input = v.idx;
  Tensors out;
  for (int k = 0; k < count; ++k) {
    Strided w = allocate(resultType, sizes, order);
    loops::Store s;
    s.buffer = w.buffer;
    s.index = flatIndex(w, i, nest.b.facts());
    s.value = k;
    red.results.push_back(s);
    out.push_back(Tensor::strided(*this, resultType, sizes, w));
  }
  if (isEmpty(sizes)) return out;
  if (single) {
    red.results[0].value = v.idx;
    loops::PointwiseSpec n{nest.b.take(), red.results};
    finish(n.body, {&n.stores[0].value}, n.stores);
    addNode(std::move(n), nest.ranges);
    return out;
  }
  loops::ReductionSpec n{nest.b.take(), {red}};
  finish(n.body, {&n.reductions[0].input}, n.reductions[0].results);
  addNode(std::move(n), nest.ranges, nest.reduceRanges);
  return out;
}

Tensor Lowering::segments(loops::ReduceKind kind, DType accType, const Sizes &sizes, Expr length,
                          const std::function<std::pair<Val, Val>(BodyBuilder &, const Index &)> &ends,
                          const ReduceFn &fn) {
  Strided w = allocate(accType, sizes);
  if (isEmpty(sizes)) return Tensor::strided(*this, accType, sizes, w);
  Nest nest(*this);
  Index i;
  for (Expr e : sizes) i.push_back(nest.outer(e));
  auto [first, last] = ends(nest.b, i);
  // The range of segments is always declared, also when it has one element.
  nest.reduceRanges = {length};
  Expr r = nest.b.addIndex(Symbol::inner(0), length);
  Val v = nest.b.cast(fn(nest.b, i, {r}), accType);
  loops::Reduction red;
  red.kind = kind, red.dtype = accType, red.input = v.idx;
  red.results = {{w.buffer, flatIndex(w, i, facts), 0}};
  loops::SegmentsSpec n{nest.b.take(), {red}, first.idx, last.idx};
  finish(n.body, {&n.reductions[0].input, &n.first, &n.last}, n.reductions[0].results);
  addNode(std::move(n), nest.ranges, nest.reduceRanges);
  return Tensor::strided(*this, accType, sizes, w);
}

Strided Lowering::resultOf(const ContractionSpec &spec) {
  if (spec.into) return *spec.into;
  return {addTemp(spec.outType, product(spec.ranges)), spec.outType, spec.strides.empty() ? denseStrides(spec.ranges) : spec.strides, 0};
}

Tensor Lowering::contract(const ContractionSpec &spec) {
  if (isEmpty(spec.ranges) || isEmpty(spec.reduceRanges)) {
    // A sum of nothing, which the epilogue may add to.
    Tensor sum = full(*this, spec.ranges, spec.accType, 0);
    Tensor r = Tensor::lazy(*this, spec.outType, spec.ranges, [sum, spec](BodyBuilder &b, const Index &i) {
      Val v = sum.at(b, i);
      if (spec.epilogue) v = spec.epilogue(b, i, v);
      return b.cast(v, computeType(spec.outType));
    });
    const Strided where = resultOf(spec);
    store(r, where);
    return Tensor::strided(*this, spec.outType, spec.ranges, where);
  }
  Nest nest(*this);
  Index i, r;
  for (Expr e : spec.ranges) i.push_back(nest.outer(e));
  for (Expr e : spec.reduceRanges) r.push_back(nest.reduce(e));
  Val lhs = nest.b.cast(spec.lhs(nest.b, i, r), spec.operandType);
  Val rhs = nest.b.cast(spec.rhs(nest.b, i, r), spec.operandType);
  BodyBuilder epilogue(facts);
  for (size_t k = 0; k < nest.ranges.size(); ++k) epilogue.addIndex(Symbol::index(k), nest.ranges[k]);
  Val result = epilogue.placeholder(spec.accType);
  if (spec.epilogue) result = spec.epilogue(epilogue, i, result);
  result = epilogue.cast(result, spec.outType);
  const Strided w = resultOf(spec);
  loops::Store s;
  s.buffer = w.buffer;
  s.index = flatIndex(w, i, nest.b.facts());
  s.value = result.idx;
  loops::ContractionSpec n{nest.b.take(), lhs.idx, rhs.idx, spec.accType, epilogue.take(), {s}};
  pruneBody(n.body, {&n.lhs, &n.rhs});
  pruneBody(n.epilogue, {&n.stores[0].value}, true);
  addNode(std::move(n), nest.ranges, nest.reduceRanges);
  return Tensor::strided(*this, spec.outType, spec.ranges, w);
}

Tensor Lowering::scan(loops::ScanKind kind, DType accType, const Sizes &sizes, int64_t dim, bool reverse,
                      const ElementFn &fn) {
  if (isEmpty(sizes)) return Tensor::strided(*this, accType, sizes, allocate(accType, sizes));
  Nest nest(*this);
  Index i(sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d)
    if (static_cast<int64_t>(d) != dim) i[d] = nest.outer(sizes[d]);
  // The scanned range is always declared, also when it has one element.
  nest.reduceRanges = {sizes[static_cast<size_t>(dim)]};
  i[static_cast<size_t>(dim)] = nest.b.addIndex(Symbol::inner(0), sizes[static_cast<size_t>(dim)]);
  Val v = nest.b.cast(fn(nest.b, i), accType);
  Strided w = allocate(accType, sizes);
  loops::Store s;
  s.buffer = w.buffer;
  s.index = flatIndex(w, i, nest.b.facts());
  s.value = 0;
  loops::ScanSpec n{nest.b.take(), {v.idx}, kind, reverse, {}, {s}};
  finish(n.body, {&n.inputs[0]}, n.stores);
  addNode(std::move(n), nest.ranges, nest.reduceRanges);
  return Tensor::strided(*this, accType, sizes, w);
}

std::pair<Tensor, Tensor> Lowering::sort(const Tensor &x, int64_t dim, bool descending, Expr take, const ElementFn &place) {
  const Sizes &given = x.sizes();
  Sizes sizes = given;
  if (take.valid()) sizes[static_cast<size_t>(dim)] = take;
  if (isEmpty(sizes) || isEmpty(given))
    return {Tensor::strided(*this, x.dtype(), sizes, allocate(x.dtype(), sizes)),
            Tensor::strided(*this, DType::I64, sizes, allocate(DType::I64, sizes))};
  Nest nest(*this);
  Index i(sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d)
    if (static_cast<int64_t>(d) != dim) i[d] = nest.outer(sizes[d]);
  nest.reduceRanges = {given[static_cast<size_t>(dim)]};
  i[static_cast<size_t>(dim)] = nest.b.addIndex(Symbol::inner(0), given[static_cast<size_t>(dim)]);
  Val v = nest.b.cast(x.at(nest.b, i), x.dtype()), placed;
  if (place) {
    Index row = i;
    row[static_cast<size_t>(dim)] = 0;
    placed = nest.b.cast(place(nest.b, row), DType::I64);
  }
  Strided values = allocate(x.dtype(), sizes), positions = allocate(DType::I64, sizes);
  loops::Store s0, s1;
  s0.buffer = values.buffer;
  s0.index = flatIndex(values, i, nest.b.facts());
  s0.value = 0;
  s1.buffer = positions.buffer;
  s1.index = s0.index;
  s1.value = 1;
  loops::SortSpec n;
  n.body = nest.b.take();
  n.key = v.idx, n.descending = descending;
  if (place) n.place = placed.idx;
  n.stores = {s0, s1};
  if (take.valid() && (place || !equal(take, given[static_cast<size_t>(dim)]))) n.take = take;
  finish(n.body, {&n.key, &n.place}, n.stores);
  addNode(std::move(n), nest.ranges, nest.reduceRanges);
  return {Tensor::strided(*this, x.dtype(), sizes, values), Tensor::strided(*this, DType::I64, sizes, positions)};
}

} // namespace neso::lower
