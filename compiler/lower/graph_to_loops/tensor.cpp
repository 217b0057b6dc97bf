#include "lower/graph_to_loops/tensor.h"

#include <algorithm>

#include "lower/graph_to_loops/cost.h"
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

struct Tensor::Impl {
  Lowering *ctx = nullptr;
  DType dtype = DType::F32;
  Sizes sizes;
  ElementFn fn;                 // lazy
  std::optional<Strided> where; // realized
  Tensor re, im;                // complex
  Tensor base;                  // of a view
  std::optional<Cost> cost;
  std::vector<int> order;
  bool number = false;
  std::shared_ptr<const BodyBuilder::Guard> guard; // of the branch that made a lazy tensor
};

/// No scalar is complex: what would make one does not know complex tensors.
static constexpr const char *kNoComplexScalars = "complex numbers are not supported here";

Tensor Tensor::lazy(Lowering &ctx, DType t, Sizes sizes, ElementFn fn) {
  if (neso::isComplex(t) && fn) {
    ctx.refuse(kNoComplexScalars);
    return full(ctx, sizes, t, 0);
  }
  Tensor x;
  x.impl_ = std::make_shared<Impl>();
  x.impl_->ctx = &ctx;
  x.impl_->dtype = t;
  x.impl_->sizes = std::move(sizes);
  x.impl_->fn = std::move(fn);
  x.impl_->guard = ctx.guard;
  return x;
}

Tensor Tensor::complex(Tensor re, Tensor im, DType t) {
  Tensor x = lazy(re.ctx(), t, re.sizes(), nullptr);
  x.impl_->re = std::move(re);
  x.impl_->im = std::move(im);
  return x;
}

Tensor Tensor::strided(Lowering &ctx, DType t, Sizes sizes, Strided where) {
  if (neso::isComplex(t)) {
    Strided parts = where;
    parts.dtype = toReal(where.dtype);
    parts.offset = where.offset * 2;
    for (Expr &s : parts.strides) s = s * 2;
    Strided imag = parts;
    imag.offset = parts.offset + 1;
    Tensor x = complex(strided(ctx, toReal(t), sizes, parts), strided(ctx, toReal(t), sizes, imag), t);
    x.impl_->where = std::move(where);
    return x;
  }
  Tensor x = lazy(ctx, t, std::move(sizes), nullptr);
  x.impl_->order = orderOfStrides(x.impl_->sizes, where.strides, ctx.facts);
  x.impl_->where = std::move(where);
  return x;
}

Lowering &Tensor::ctx() const { return *impl_->ctx; }
DType Tensor::dtype() const { return impl_->dtype; }
const Sizes &Tensor::sizes() const { return impl_->sizes; }
Expr Tensor::size(int64_t dim) const { return impl_->sizes[static_cast<size_t>(dim < 0 ? dim + rank() : dim)]; }
Expr Tensor::numel() const { return product(impl_->sizes); }
bool Tensor::isComplex() const { return neso::isComplex(impl_->dtype); }
bool Tensor::isNumber() const { return impl_->number; }
const std::vector<int> &Tensor::order() const { return impl_->order; }
bool Tensor::isView() const { return impl_->base.valid(); }
bool Tensor::realized() const { return impl_->where.has_value(); }

Tensor Tensor::real() const { return isComplex() ? impl_->re : *this; }
Tensor Tensor::imag() const {
  if (isComplex()) return impl_->im;
  DType t = impl_->dtype;
  return lazy(*impl_->ctx, t, impl_->sizes,
              [t](BodyBuilder &b, const Index &) { return b.constant(computeType(t), 0); });
}

Tensor Tensor::asNumber() const {
  Tensor x = *this;
  x.impl_ = std::make_shared<Impl>(*impl_);
  x.impl_->number = true;
  return x;
}

Tensor Tensor::asTensor() const {
  if (!isNumber()) return *this;
  Tensor x = asNumber();
  x.impl_->number = false;
  return x;
}

Tensor Tensor::withOrder(std::vector<int> order) const {
  if (!realized()) impl_->order = std::move(order);
  return *this;
}

Tensor Tensor::viewOf(const Tensor &base) const {
  impl_->base = base;
  return *this;
}

Val Tensor::at(BodyBuilder &b, const Index &index) const {
  NESO_CHECK(index.size() == impl_->sizes.size(), "an index must have the rank of its tensor");
  if (isComplex()) {
    impl_->ctx->refuse(kNoComplexScalars);
    return b.placeholder(computeType(impl_->dtype));
  }
  if (impl_->where) {
    const Strided &w = *impl_->where;
    Expr e = w.offset;
    for (size_t d = 0; d < index.size(); ++d) e = e + index[d] * w.strides[d];
    Val v = b.load(w.buffer, w.dtype, e);
    return b.cast(v, computeType(impl_->dtype));
  }
  BodyBuilder::MemoKey key{{impl_.get()}, b.mask()};
  for (Expr e : index) key.first.push_back(e.node());
  auto it = b.memo.find(key);
  if (it != b.memo.end()) return it->second.value;
  // Its own guard, not that of whoever needs the element: the value stays the same for all of them.
  const BodyBuilder::Guard *outer = b.guard();
  b.setGuard(impl_->guard.get());
  Val v = impl_->fn(b, index);
  b.setGuard(outer);
  NESO_CHECK(v.dtype == computeType(impl_->dtype), "an element function returned another dtype");
  b.memo[key] = {v, impl_};
  return v;
}

/// Declares plain indices for a tensor of these sizes.
static Index plainIndex(BodyBuilder &b, const Sizes &sizes) {
  Index index;
  for (size_t d = 0; d < sizes.size(); ++d) index.push_back(b.addIndex(Symbol::index(d), sizes[d]));
  return index;
}

Cost Tensor::cost() const {
  if (realized()) return {0, 1, false};
  if (isComplex()) {
    Cost a = impl_->re.cost(), c = impl_->im.cost();
    return {a.ops + c.ops, a.loads + c.loads, a.heavy || c.heavy};
  }
  if (impl_->cost) return *impl_->cost;
  BodyBuilder b(impl_->ctx->facts);
  at(b, plainIndex(b, impl_->sizes));
  impl_->cost = costOf(b.body());
  return *impl_->cost;
}

std::vector<BufferId> Tensor::loads() const {
  BodyBuilder b(impl_->ctx->facts);
  at(b, plainIndex(b, impl_->sizes));
  std::vector<BufferId> out;
  for (const loops::Op &op : b.body().ops)
    if (op.kind == OpKind::Load) out.push_back(op.buffer);
  return out;
}

void Tensor::realizeWith(const Sizes &strides) const {
  if (realized()) return;
  Lowering &ctx = *impl_->ctx;
  Expr extent = 1;
  for (size_t d = 0; d < strides.size(); ++d) extent = extent + (impl_->sizes[d] - 1) * strides[d];
  for (Expr s : impl_->sizes)
    if (s.isConst(0)) extent = 0;
  extent = ctx.facts.simplify(extent);
  if (isComplex()) {
    Strided w{ctx.addTemp(toReal(impl_->dtype), extent * 2), impl_->dtype, strides, 0};
    Tensor made = strided(ctx, impl_->dtype, impl_->sizes, w);
    ctx.storeParts(*this, made);
    impl_->re = made.impl_->re;
    impl_->im = made.impl_->im;
    impl_->where = w;
    return;
  }
  Strided w{ctx.addTemp(impl_->dtype, extent), impl_->dtype, strides, 0};
  loops::Buffer &buffer = ctx.program.buffer(w.buffer);
  buffer.sizes = impl_->sizes, buffer.strides = strides;
  ctx.store(*this, w);
  impl_->where = w;
  impl_->fn = nullptr;
  impl_->order = orderOfStrides(impl_->sizes, strides, ctx.facts);
}

const Tensor &Tensor::realize() const {
  if (realized()) return *this;
  if (impl_->base.valid() && !isComplex() && impl_->base.dtype() == impl_->dtype) {
    // A view of something as large is served by realizing what it looks at.
    Lowering &ctx = *impl_->ctx;
    if (impl_->base.realized()) return *this;
    if (ctx.facts.provablyLessEqual(impl_->base.numel(), numel())) {
      impl_->base.realize();
      return *this;
    }
  }
  realizeWith(denseStrides(impl_->sizes, impl_->order));
  return *this;
}

const Tensor &Tensor::reused() const {
  if (isComplex() && !realized()) {
    impl_->re.reused();
    impl_->im.reused();
  } else if (!realized() && worthRealizing(cost(), 2)) {
    realize();
  }
  return *this;
}

std::optional<Strided> Tensor::asStrided() const {
  if (impl_->where) return impl_->where;
  if (isComplex()) return std::nullopt;
  BodyBuilder b(impl_->ctx->facts);
  // Not addIndex: a dimension of size 1 keeps its stride this way.
  Index index;
  Sizes strides;
  for (size_t d = 0; d < impl_->sizes.size(); ++d) index.push_back(b.addIndex(Symbol::index(d), impl_->sizes[d]));
  Val v = at(b, index);
  const loops::Op *op = &b.op(v);
  if (op->kind == OpKind::Cast && isReducedFloat(impl_->dtype) && b.body().ops[op->a].dtype == impl_->dtype)
    op = &b.body().ops[op->a];
  if (op->kind != OpKind::Load || op->a >= 0 || op->dtype != impl_->dtype) return std::nullopt;
  for (const loops::Op &o : b.body().ops)
    if (o.kind == OpKind::Indirect) return std::nullopt;
  Strided w;
  w.buffer = op->buffer;
  w.dtype = op->dtype;
  Expr rest = op->index;
  for (size_t d = 0; d < index.size(); ++d) {
    if (!index[d].isSymbol()) {
      w.strides.push_back(0);
      continue;
    }
    std::optional<Affine> a = affineIn(rest, index[d].symbol());
    if (!a) return std::nullopt;
    for (Symbol s : symbolsOf(a->coefficient))
      for (const Expr &i : index)
        if (i.isSymbol() && i.symbol() == s) return std::nullopt;
    w.strides.push_back(a->coefficient);
    rest = a->rest;
  }
  w.offset = rest;
  return w;
}

} // namespace neso::lower
