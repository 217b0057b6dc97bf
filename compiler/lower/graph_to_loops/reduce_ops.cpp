// Reductions over dims, softmax, Welford statistics.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lower/graph_to_loops/bisect.h"
#include "lower/graph_to_loops/tensor_ops.h"

namespace neso::lower {

using loops::ReduceKind;

Dims wrapDims(const Dims &dims, int64_t rank) {
  Dims out;
  for (int64_t d : dims) {
    if (rank == 0) continue;
    out.push_back(d < 0 ? d + rank : d);
  }
  std::sort(out.begin(), out.end());
  return out;
}

static Dims allDims(int64_t rank) {
  Dims all;
  for (int64_t d = 0; d < rank; ++d) all.push_back(d);
  return all;
}

namespace {
/// The dims of a tensor split into kept and reduced ones.
struct Split {
  Sizes kept, reduced;
  Dims dims;
  std::vector<int> order; // of the kept dims, following the tensor's memory
  Split(const Tensor &x, const Dims &wanted) : dims(wanted.empty() ? allDims(x.rank()) : wrapDims(wanted, x.rank())) {
    std::vector<int> place(x.sizes().size(), -1);
    for (int64_t d = 0; d < x.rank(); ++d) {
      bool r = std::find(dims.begin(), dims.end(), d) != dims.end();
      if (!r) place[static_cast<size_t>(d)] = static_cast<int>(kept.size());
      (r ? reduced : kept).push_back(x.sizes()[static_cast<size_t>(d)]);
    }
    for (int d : x.order())
      if (place[static_cast<size_t>(d)] >= 0) order.push_back(place[static_cast<size_t>(d)]);
  }
  Index join(const Index &i, const Index &r) const {
    Index out;
    size_t a = 0, b = 0;
    for (size_t d = 0; d < i.size() + r.size(); ++d)
      out.push_back(b < dims.size() && dims[b] == static_cast<int64_t>(d) ? r[b++] : i[a++]);
    return out;
  }
  Tensor restore(Tensor x, bool keepdim) const {
    if (keepdim)
      for (int64_t d : dims) x = unsqueeze(x, d);
    return x;
  }
};
} // namespace

Expr countOf(const Tensor &x, const Dims &dims) {
  Split s(x, dims);
  return product(s.reduced);
}

Tensor reduceDims(ReduceKind kind, const Tensor &x, Dims dims, bool keepdim, DType acc) {
  Split s(x, dims);
  if (x.rank() == 0 || (s.reduced.empty() && kind != ReduceKind::ArgMax && kind != ReduceKind::ArgMin))
    return cast(x, acc);
  Tensor r = x.ctx().reduce(
      kind, acc, s.kept, s.reduced,
      [x, s, acc](BodyBuilder &b, const Index &i, const Index &r) { return b.cast(x.at(b, s.join(i, r)), acc); },
      s.order)[0];
  return s.restore(r, keepdim);
}

Tensor sum(const Tensor &x, const Dims &dims, bool keepdim, DType out) {
  if (isComplex(out)) {
    Tensor c = cast(x, out);
    return Tensor::complex(sum(c.real(), dims, keepdim, toReal(out)), sum(c.imag(), dims, keepdim, toReal(out)), out);
  }
  return cast(reduceDims(ReduceKind::Sum, cast(x, out), dims, keepdim, computeType(out)), out);
}

Tensor mean(const Tensor &x, const Dims &dims, bool keepdim, DType out) {
  if (isComplex(out)) {
    Tensor c = cast(x, out);
    return Tensor::complex(mean(c.real(), dims, keepdim, toReal(out)), mean(c.imag(), dims, keepdim, toReal(out)), out);
  }
  DType acc = computeType(out);
  Tensor s = reduceDims(ReduceKind::Sum, cast(x, out), dims, keepdim, acc);
  Tensor m = div(s, exprAs(x.ctx(), countOf(x, dims), acc));
  return cast(m, out);
}

Tensor scanByDoubling(const Tensor &x, int64_t dim, const std::function<Tensor(const Tensor &, const Tensor &)> &op) {
  const size_t d = static_cast<size_t>(dim < 0 ? dim + x.rank() : dim);
  const Expr n = x.sizes()[d];
  Tensor all = x;
  const int steps = bisections(x.ctx().facts, n);
  for (int k = 0; k < steps; ++k) {
    const Expr apart = int64_t{1} << k;
    const Tensor last = all.realize();
    // Those without one so far before them stay.
    const Tensor before = remap(last, x.sizes(), [d, apart](const Index &i) {
      Index j = i;
      j[d] = max(i[d] - apart, 0);
      return j;
    });
    const Tensor has = Tensor::lazy(x.ctx(), DType::Bool, x.sizes(), [d, apart](BodyBuilder &b, const Index &i) { return b.compare(OpKind::Le, apart, i[d]); });
    all = where(has, op(before, last), last);
  }
  return all;
}

Tensor complexProduct(const Tensor &x, const Dims &dims, bool keepdim) {
  const Split s(x, dims);
  // The reduced dims as one, the last.
  std::vector<int> order;
  Sizes sizes = s.kept;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (std::find(s.dims.begin(), s.dims.end(), d) == s.dims.end()) order.push_back(static_cast<int>(d));
  for (int64_t d : s.dims) order.push_back(static_cast<int>(d));
  sizes.push_back(product(s.reduced));
  Tensor rows = reshape(permute(x, order), sizes);
  const std::optional<int64_t> count = sizes.back().asConst();
  if (!count) {
    // A one in front, so that there is a last product of no factors, too.
    Sizes front = s.kept;
    front.push_back(1);
    const Tensor factors = concat({full(x.ctx(), front, x.dtype(), 1), rows}, -1);
    return s.restore(select(scanByDoubling(factors, -1, mul), -1, sizes.back()), keepdim);
  }
  if (*count == 0) return s.restore(full(x.ctx(), s.kept, x.dtype(), 1), keepdim);
  for (int64_t n = *count; n > 1; n = (n + 1) / 2) {
    // The middle one of an odd number waits.
    const int64_t half = n / 2, left = n - half;
    const Tensor products = mul(slice(rows, -1, 0, half), slice(rows, -1, left, half));
    rows = (left > half ? concat({products, slice(rows, -1, half, 1)}, -1) : products).realize();
  }
  return s.restore(select(rows, -1, 0), keepdim);
}

static Tensor extreme(bool max, const Tensor &x, const Dims &dims, bool keepdim) {
  if (x.dtype() == DType::Bool)
    return reduceDims(max ? ReduceKind::Any : ReduceKind::All, x, dims, keepdim, DType::Bool);
  return cast(reduceDims(max ? ReduceKind::Max : ReduceKind::Min, x, dims, keepdim, computeType(x.dtype())), x.dtype());
}
Tensor amax(const Tensor &x, const Dims &dims, bool keepdim) { return extreme(true, x, dims, keepdim); }
Tensor amin(const Tensor &x, const Dims &dims, bool keepdim) { return extreme(false, x, dims, keepdim); }

Tensor argExtreme(bool max, const Tensor &x, std::optional<int64_t> dim, bool keepdim) {
  if (x.rank() == 0) return fullInt(x.ctx(), {}, DType::I64, 0);
  Tensor y = x.dtype() == DType::Bool ? cast(x, DType::U8) : x;
  Dims dims = dim ? Dims{*dim} : allDims(x.rank());
  return reduceDims(max ? ReduceKind::ArgMax : ReduceKind::ArgMin, y, dims, keepdim, computeType(y.dtype()));
}

MeanVar meanVar(const Tensor &x, const Dims &dims) {
  Split s(x, dims);
  DType acc = computeType(x.dtype());
  if (x.rank() == 0) return {x, full(x.ctx(), {}, acc, 0), 1};
  Tensors r = x.ctx().reduce(
      ReduceKind::Welford, acc, s.kept, s.reduced,
      [x, s](BodyBuilder &b, const Index &i, const Index &r) { return x.at(b, s.join(i, r)); }, s.order);
  return {s.restore(r[0], true), s.restore(r[1], true), product(s.reduced)};
}

Tensor softmax(const Tensor &in, int64_t dim, DType out, bool log) {
  Tensor x = cast(in, out);
  DType acc = computeType(out);
  if (x.rank() == 0) return full(x.ctx(), {}, out, log ? 0.0 : 1.0);
  x.reused();
  Split s(x, {dim});
  Tensors r = x.ctx().reduce(
      ReduceKind::OnlineSoftmax, acc, s.kept, s.reduced,
      [x, s](BodyBuilder &b, const Index &i, const Index &r) { return x.at(b, s.join(i, r)); }, s.order);
  Tensor m = s.restore(r[0], true), z = s.restore(r[1], true);
  Tensor xs[] = {x, m, z};
  return pointwise(xs, acc, out, [log](std::span<const Val> v) {
    // A row of -inf alone is NaN, as -inf - -inf says.
    if (log) return (v[0] - v[1]) - un(OpKind::Log, v[2]);
    return un(OpKind::Exp, v[0] - v[1]) / v[2];
  });
}

} // namespace neso::lower
