#include "lower/graph_to_loops/turns.h"

#include <algorithm>
#include <set>

namespace neso::lower {

using loops::RegionSpec;

Tensor place(Lowering &ctx, DType t, const Sizes &sizes) {
  const Strided w{ctx.addTemp(toReal(t), product(sizes) * (isComplex(t) ? 2 : 1)), t, denseStrides(sizes), 0};
  return Tensor::strided(ctx, t, sizes, w);
}

void put(const Tensor &x, const Tensor &into) {
  Lowering &ctx = into.ctx();
  if (into.isComplex()) {
    ctx.store(x.real(), *into.real().asStrided());
    ctx.store(x.imag(), *into.imag().asStrided());
  } else {
    ctx.store(x, *into.asStrided());
  }
}

Tensor carry(const Tensor &x) {
  const Tensor out = place(x.ctx(), x.dtype(), x.sizes());
  put(x, out);
  return out;
}

BufferId bufferOf(const Tensor &carried) { return (carried.isComplex() ? carried.real() : carried).asStrided()->buffer; }

namespace {

std::set<BufferId> readBy(const Tensor &x) {
  std::set<BufferId> out;
  for (const Tensor &part : x.isComplex() ? Tensors{x.real(), x.imag()} : Tensors{x})
    for (BufferId b : part.loads()) out.insert(b);
  return out;
}

/// Whether each element of x reads of that memory at most the element that it would be stored to.
bool readsOnlyItsPlace(const Tensor &x, const Tensor &to) {
  const Strided home = *to.asStrided();
  BodyBuilder b(x.ctx().facts);
  Index index;
  Expr at = home.offset;
  for (size_t d = 0; d < x.sizes().size(); ++d) {
    index.push_back(b.addIndex(Symbol::index(d), x.sizes()[d]));
    at = at + index.back() * home.strides[d];
  }
  x.at(b, index);
  return std::all_of(b.body().ops.begin(), b.body().ops.end(), [&](const loops::Op &op) {
    return op.kind != OpKind::Load || op.buffer != home.buffer || x.ctx().equal(op.index, at);
  });
}

bool liesThere(const Tensor &x, const Tensor &to) {
  if (x.isComplex()) return liesThere(x.real(), to.real()) && liesThere(x.imag(), to.imag());
  const std::optional<Strided> at = x.asStrided(), home = to.asStrided();
  return at && at->buffer == home->buffer && at->dtype == home->dtype && at->offset == home->offset && at->strides == home->strides;
}

} // namespace

Tensor rowOf(const Tensor &x, Expr c) { return select(x, 0, c); }
static void putAt(const Tensor &x, const Tensor &all, int64_t dim, Expr at, bool keepsDim) {
  auto one = [&](const Tensor &part, const Tensor &whole) {
    Strided to = *whole.asStrided();
    const auto stride = to.strides.begin() + (dim < 0 ? dim + whole.rank() : dim);
    to.offset = to.offset + at * *stride;
    if (!keepsDim) to.strides.erase(stride);
    whole.ctx().store(part, to);
  };
  if (!all.isComplex()) return one(x, all);
  one(x.real(), all.real());
  one(x.imag(), all.imag());
}
void putAt(const Tensor &x, const Tensor &all, int64_t dim, Expr at) { putAt(x, all, dim, at, false); }
void putFrom(const Tensor &x, const Tensor &all, int64_t dim, Expr first) { putAt(x, all, dim, first, true); }
void putRow(const Tensor &x, const Tensor &rows, Expr c) { putAt(x, rows, 0, c); }

void putAll(Tensors from, const Tensors &to) {
  std::vector<std::set<BufferId>> reads;
  std::vector<size_t> waiting;
  for (size_t k = 0; k < to.size(); ++k) {
    reads.push_back(readBy(from[k]));
    if (!liesThere(from[k], to[k])) waiting.push_back(k);
  }
  auto isReadByOther = [&](size_t k) {
    return std::any_of(waiting.begin(), waiting.end(), [&](size_t other) { return other != k && reads[other].count(bufferOf(to[k])); });
  };
  auto mayGo = [&](size_t k) {
    if (isReadByOther(k)) return false;
    return !reads[k].count(bufferOf(to[k])) || (!from[k].isComplex() && readsOnlyItsPlace(from[k], to[k]));
  };
  auto holdsUp = [&](size_t k) {
    return std::any_of(waiting.begin(), waiting.end(), [&](size_t other) { return reads[k].count(bufferOf(to[other])) > 0; });
  };
  while (!waiting.empty()) {
    if (const auto next = std::find_if(waiting.begin(), waiting.end(), mayGo); next != waiting.end()) {
      put(from[*next], to[*next]);
      waiting.erase(next);
      continue;
    }
    // Some wait for each other, or one for itself: what lies elsewhere holds nobody up.
    const size_t moved = *std::find_if(waiting.begin(), waiting.end(), holdsUp);
    from[moved] = carry(from[moved]);
    reads[moved].clear();
  }
}

void forTurns(Lowering &ctx, Expr count, const std::function<void(Expr turn)> &body) {
  const Tensor counter = carry(fullInt(ctx, {}, DType::I64, 0));
  RegionSpec spec;
  spec.kind = RegionSpec::Kind::While;
  Expr turn;
  Lowering::Known tested;
  spec.blocks[0] = ctx.block([&] {
    turn = ctx.readTurn(counter, 0);
    tested = ctx.known();
  });
  spec.condition = lt(turn, count);
  spec.blocks[1] = ctx.block([&] {
    ctx.setKnown(tested);
    body(turn);
    put(addNumber(counter, 1).realize(), counter);
  });
  ctx.addNode(std::move(spec));
}

void whileTrue(Lowering &ctx, const std::function<Tensor()> &test, const std::function<void()> &body) {
  RegionSpec spec;
  spec.kind = RegionSpec::Kind::While;
  Lowering::Known tested;
  spec.blocks[0] = ctx.block([&] {
    spec.condition = ctx.read(test());
    tested = ctx.known();
  });
  spec.blocks[1] = ctx.block([&] {
    ctx.setKnown(tested);
    body();
  });
  ctx.addNode(std::move(spec));
}

} // namespace neso::lower
