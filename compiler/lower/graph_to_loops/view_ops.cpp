// Views: index remappings, padding and concatenation.
#include <algorithm>

#include "lower/graph_to_loops/cost.h"
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

Tensor remap(const Tensor &x, Sizes sizes, IndexMap map) {
  if (x.isComplex()) return Tensor::complex(remap(x.real(), sizes, map), remap(x.imag(), sizes, map), x.dtype());
  Tensor r = Tensor::lazy(x.ctx(), x.dtype(), std::move(sizes),
                          [x, map](BodyBuilder &b, const Index &i) { return x.at(b, map(i)); });
  return r.viewOf(x);
}

Tensor permute(const Tensor &x, const std::vector<int> &dims) {
  Sizes sizes;
  bool identity = true;
  for (size_t k = 0; k < dims.size(); ++k) {
    sizes.push_back(x.sizes()[static_cast<size_t>(dims[k])]);
    identity &= dims[k] == static_cast<int>(k);
  }
  if (identity) return x;
  Tensor r = remap(x, sizes, [dims](const Index &i) {
    Index j(i.size());
    for (size_t k = 0; k < dims.size(); ++k) j[static_cast<size_t>(dims[k])] = i[k];
    return j;
  });
  if (x.isComplex() || dims.size() < 2) return r;
  // Memory keeps its order: the dim that came from the source's outermost one is outermost.
  std::vector<int> source = x.order(), order;
  if (source.empty())
    for (size_t d = 0; d < dims.size(); ++d) source.push_back(static_cast<int>(d));
  for (int s : source)
    for (size_t k = 0; k < dims.size(); ++k)
      if (dims[k] == s) order.push_back(static_cast<int>(k));
  return r.withOrder(order);
}

Tensor transpose(const Tensor &x, int64_t a, int64_t b) {
  if (x.rank() == 0) return x;
  std::vector<int> dims;
  for (int64_t d = 0; d < x.rank(); ++d) dims.push_back(static_cast<int>(d));
  std::swap(dims[static_cast<size_t>(a < 0 ? a + x.rank() : a)], dims[static_cast<size_t>(b < 0 ? b + x.rank() : b)]);
  return permute(x, dims);
}

/// One group of a reshape: dims [fromBegin, fromEnd) of the source hold the same elements as dims [toBegin, toEnd) of
/// the result.
namespace {
struct Group {
  size_t fromBegin, fromEnd, toBegin, toEnd;
};
} // namespace

static std::vector<Group> reshapeGroups(const Lowering &ctx, const Sizes &from, const Sizes &to) {
  std::vector<Group> groups;
  size_t f = 0, t = 0;
  while (f < from.size() || t < to.size()) {
    Group g{f, f, t, t};
    Expr pf = 1, pt = 1;
    if (f < from.size() && t < to.size() && ctx.equal(from[f], to[t])) {
      g.fromEnd = ++f;
      g.toEnd = ++t;
      groups.push_back(g);
      continue;
    }
    if (f < from.size() && from[f].isConst(1)) {
      g.fromEnd = ++f;
      groups.push_back(g);
      continue;
    }
    if (t < to.size() && to[t].isConst(1)) {
      g.toEnd = ++t;
      groups.push_back(g);
      continue;
    }
    if (f < from.size()) pf = from[f++];
    if (t < to.size()) pt = to[t++];
    bool closed = false;
    while (true) {
      if (ctx.equal(pf, pt)) {
        closed = true;
        break;
      }
      // The smaller side takes another dim; a side whose product divides the other's is the smaller one.
      bool takeFrom;
      if (ctx.facts.provablyLess(pf, pt) || (pt != 0 && ctx.facts.provablyDivisible(pt, pf)))
        takeFrom = true;
      else if (ctx.facts.provablyLess(pt, pf) || ctx.facts.provablyDivisible(pf, pt))
        takeFrom = false;
      else
        break;
      if (takeFrom) {
        if (f >= from.size()) break;
        pf = pf * from[f++];
      } else {
        if (t >= to.size()) break;
        pt = pt * to[t++];
      }
    }
    if (!closed) {
      // Sizes that nothing is known about: the rest is one group.
      f = from.size();
      t = to.size();
    }
    g.fromEnd = f;
    g.toEnd = t;
    groups.push_back(g);
  }
  return groups;
}

Tensor reshape(const Tensor &x, const Sizes &sizes) {
  if (x.isComplex()) return Tensor::complex(reshape(x.real(), sizes), reshape(x.imag(), sizes), x.dtype());
  const Lowering &ctx = x.ctx();
  Sizes from = x.sizes();
  bool same = from.size() == sizes.size(), empty = false;
  for (size_t d = 0; same && d < sizes.size(); ++d) same = ctx.equal(from[d], sizes[d]);
  if (same) return x;
  // Sizes that a model states where its operator gives others: what follows would read some of the elements.
  const Expr have = product(from), want = product(sizes);
  if (have.isConst() && want.isConst() && !ctx.equal(have, want)) x.ctx().refuse(fmt::format("{} elements cannot be seen as {}", have.str(), want.str()));
  for (Expr s : sizes) empty |= s.isConst(0);
  for (Expr s : from) empty |= s.isConst(0);
  if (empty) return remap(x, sizes, [n = from.size()](const Index &) { return Index(n, Expr(0)); });
  std::vector<Group> groups = reshapeGroups(ctx, from, sizes);
  return remap(x, sizes, [from, sizes, groups](const Index &i) {
    Index j(from.size(), Expr(0));
    for (const Group &g : groups) {
      if (g.fromEnd - g.fromBegin == 0) continue;
      // Linear position in the group, then its digits in the source's sizes.
      Expr linear = 0;
      for (size_t t = g.toBegin; t < g.toEnd; ++t) linear = linear * sizes[t] + i[t];
      for (size_t f = g.fromEnd; f-- > g.fromBegin;) {
        if (f == g.fromBegin) {
          j[f] = linear;
        } else if (!from[f].isConst(1)) {
          j[f] = mod(linear, from[f]);
          linear = floorDiv(linear, from[f]);
        }
      }
    }
    return j;
  });
}

Tensor flatten(const Tensor &x) { return reshape(x, {x.numel()}); }
Expr vectorsOf(const Tensor &x) { return product(Sizes(x.sizes().begin(), x.sizes().end() - 1)); }

Tensor unsqueeze(const Tensor &x, int64_t dim) {
  size_t d = static_cast<size_t>(dim < 0 ? dim + x.rank() + 1 : dim);
  Sizes sizes = x.sizes();
  sizes.insert(sizes.begin() + static_cast<int64_t>(d), Expr(1));
  return remap(x, sizes, [d](const Index &i) {
    Index j = i;
    j.erase(j.begin() + static_cast<int64_t>(d));
    return j;
  });
}

Tensor squeeze(const Tensor &x, int64_t dim) { return select(x, dim, 0); }

Tensor select(const Tensor &x, int64_t dim, Expr index) {
  size_t d = static_cast<size_t>(dim < 0 ? dim + x.rank() : dim);
  Sizes sizes = x.sizes();
  sizes.erase(sizes.begin() + static_cast<int64_t>(d));
  return remap(x, sizes, [d, index](const Index &i) {
    Index j = i;
    j.insert(j.begin() + static_cast<int64_t>(d), index);
    return j;
  });
}

Tensor slice(const Tensor &x, int64_t dim, Expr start, Expr length, Expr step) {
  size_t d = static_cast<size_t>(dim < 0 ? dim + x.rank() : dim);
  if (start.isConst(0) && step.isConst(1) && x.ctx().equal(length, x.sizes()[d])) return x;
  Sizes sizes = x.sizes();
  sizes[d] = length;
  Tensor r = remap(x, sizes, [d, start, step](const Index &i) {
    Index j = i;
    j[d] = start + i[d] * step;
    return j;
  });
  return x.isComplex() ? r : r.withOrder(x.order());
}

Tensor flip(const Tensor &x, const Dims &dims) {
  Sizes sizes = x.sizes();
  Dims wrapped = wrapDims(dims, x.rank());
  return remap(x, sizes, [sizes, wrapped](const Index &i) {
    Index j = i;
    for (int64_t d : wrapped) j[static_cast<size_t>(d)] = sizes[static_cast<size_t>(d)] - 1 - i[static_cast<size_t>(d)];
    return j;
  });
}

Tensor repeat(const Tensor &x, const Sizes &times) {
  size_t lead = times.size() - x.sizes().size();
  Sizes from = x.sizes(), sizes = times;
  for (size_t d = 0; d < from.size(); ++d) sizes[lead + d] = times[lead + d] * from[d];
  return remap(x, sizes, [from, times, lead](const Index &i) {
    Index j(from.size());
    for (size_t d = 0; d < from.size(); ++d)
      j[d] = times[lead + d].isConst(1) ? i[lead + d] : from[d].isConst(1) ? Expr(0) : mod(i[lead + d], from[d]);
    return j;
  });
}

Tensor pad(const Tensor &x, const Sizes &before, const Sizes &after, double value) {
  if (x.isComplex())
    return Tensor::complex(pad(x.real(), before, after, value), pad(x.imag(), before, after, 0), x.dtype());
  Sizes sizes = x.sizes(), from = x.sizes();
  for (size_t d = 0; d < sizes.size(); ++d) sizes[d] = sizes[d] + before[d] + after[d];
  DType t = computeType(x.dtype());
  Tensor r =
      Tensor::lazy(x.ctx(), x.dtype(), sizes, [x, from, before, after, value, t](BodyBuilder &b, const Index &i) {
        Val inside = b.isTrue();
        Index j = i;
        for (size_t d = 0; d < i.size(); ++d) {
          j[d] = i[d] - before[d];
          if (!before[d].isConst() || before[d].constValue() > 0) inside = inside && b.compare(OpKind::Le, 0, j[d]);
          if (!after[d].isConst() || after[d].constValue() > 0) inside = inside && b.compare(OpKind::Lt, j[d], from[d]);
        }
        return b.masked(inside, [&] { return x.at(b, j); }, b.constant(t, value));
      });
  return r.withOrder(x.order());
}

Tensor concat(const Tensors &all, int64_t dim) {
  Tensors xs;
  // Legacy: 1-d empty tensors are skipped.
  for (const Tensor &x : all)
    if (!(x.rank() == 1 && x.sizes()[0].isConst(0) && all.size() > 1)) xs.push_back(x);
  if (xs.empty()) xs.push_back(all[0]);
  DType t = resultType(all);
  for (Tensor &x : xs) x = cast(x, t);
  if (xs.size() == 1) return xs[0];
  if (isComplex(t)) {
    Tensors re, im;
    for (const Tensor &x : xs) re.push_back(x.real()), im.push_back(x.imag());
    return Tensor::complex(concat(re, dim), concat(im, dim), t);
  }
  Lowering &ctx = xs[0].ctx();
  size_t d = static_cast<size_t>(dim < 0 ? dim + xs[0].rank() : dim);
  Sizes sizes = xs[0].sizes(), starts;
  Expr at = 0;
  Cost total;
  for (const Tensor &x : xs) {
    starts.push_back(at);
    at = at + x.sizes()[d];
    Cost c = x.cost();
    total.ops += c.ops;
    total.heavy |= c.heavy;
  }
  sizes[d] = at;
  if (xs.size() <= kMaxLazyConcat && !total.heavy && total.ops <= kCheapOps * 2) {
    Tensor r = Tensor::lazy(ctx, t, sizes, [xs, starts, d, t](BodyBuilder &b, const Index &i) {
      // The last piece is the innermost alternative.
      Val v = b.constant(computeType(t), 0);
      for (size_t k = xs.size(); k-- > 0;) {
        Index j = i;
        j[d] = i[d] - starts[k];
        Val in =
            k + 1 == xs.size() ? b.compare(OpKind::Le, starts[k], i[d]) : b.compare(OpKind::Lt, i[d], starts[k + 1]);
        if (k > 0 && k + 1 < xs.size()) in = in && b.compare(OpKind::Le, starts[k], i[d]);
        v = b.masked(in, [&] { return xs[k].at(b, j); }, v);
      }
      return v;
    });
    return r.withOrder(xs[0].order());
  }
  Strided w = ctx.allocate(t, sizes, xs[0].order());
  for (size_t k = 0; k < xs.size(); ++k) {
    if (xs[k].sizes()[d].isConst(0)) continue;
    Strided piece = w;
    piece.offset = starts[k] * w.strides[d];
    ctx.store(xs[k], piece);
  }
  return Tensor::strided(ctx, t, sizes, w);
}

} // namespace neso::lower
