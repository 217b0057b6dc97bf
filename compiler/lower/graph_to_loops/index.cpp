// Gathers and scatters: index, index_put, gather, scatter and their kin, embeddings.
#include <cmath>
#include <limits>

#include "lower/graph_to_loops/bisect.h"
#include "lower/graph_to_loops/data_sizes.h"
#include "lower/graph_to_loops/op_call.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

using loops::StoreMode;

static int64_t wrap(int64_t d, int64_t rank) { return d < 0 ? d + std::max<int64_t>(rank, 1) : d; }

/// Something read at positions that the data decides: computed once, before.
Tensor source(const Tensor &x) {
  if (x.isComplex()) {
    x.realize();
    return x;
  }
  if (!x.asStrided()) x.realize();
  return x;
}

static Tensor gatherAt(const Tensor &x, const Sizes &sizes, std::function<Index(BodyBuilder &, const Index &)> where) {
  if (x.isComplex())
    return Tensor::complex(gatherAt(x.real(), sizes, where), gatherAt(x.imag(), sizes, where), x.dtype());
  return Tensor::lazy(x.ctx(), x.dtype(), sizes,
                      [x, where](BodyBuilder &b, const Index &i) { return x.at(b, where(b, i)); });
}

Tensor gather(const Tensor &x0, int64_t dim, const Tensor &index0) {
  Tensor x = x0, index = index0;
  if (x.rank() == 0) x = reshape(x, {1});
  Sizes sizes = index.sizes();
  if (index.rank() == 0) index = reshape(index, {1});
  // ATen takes an index of any rank where it has no elements.
  if (index.rank() != x.rank()) return full(x.ctx(), sizes, x.dtype(), 0);
  x = source(x);
  index.reused();
  size_t d = static_cast<size_t>(wrap(dim, x.rank()));
  Expr bound = x.sizes()[d];
  Tensor r = gatherAt(x, index.sizes(), [index, d, bound](BodyBuilder &b, const Index &i) {
    Index j = i;
    j[d] = b.indirect(index.at(b, i), bound, false, true);
    return j;
  });
  return reshape(r, sizes);
}

Tensor indexSelect(const Tensor &x0, int64_t dim, const Tensor &index0) {
  Tensor x = x0, index = index0;
  bool scalar = x.rank() == 0;
  if (scalar) x = reshape(x, {1});
  if (index.rank() == 0) index = reshape(index, {1});
  x = source(x);
  index.reused();
  size_t d = static_cast<size_t>(wrap(dim, x.rank()));
  Sizes sizes = x.sizes();
  sizes[d] = index.sizes()[0];
  Expr bound = x.sizes()[d];
  Tensor r = gatherAt(x, sizes, [index, d, bound](BodyBuilder &b, const Index &i) {
    Index j = i;
    j[d] = b.indirect(index.at(b, {i[d]}), bound, false, true);
    return j;
  });
  return scalar ? reshape(r, {}) : r;
}

namespace {
/// Which dims of a tensor advanced indexing replaces, and where the index dims stand in the result.
struct Advanced {
  std::vector<std::optional<Tensor>> at; // by dim of x; broadcast to `shape`
  Sizes shape;                           // of the indices
  size_t place = 0;                      // of their dims in the result
  Sizes result;
  bool masks = false;

  Advanced(const Tensor &x, const Tensors &indices) {
    Tensors given;
    at.resize(x.sizes().size());
    std::vector<size_t> dims;
    for (size_t d = 0; d < indices.size(); ++d)
      if (indices[d].valid()) {
        masks |= indices[d].dtype() == DType::Bool || indices[d].dtype() == DType::U8;
        given.push_back(indices[d]);
        dims.push_back(d);
      }
    if (masks || dims.empty()) return;
    shape = broadcastSizes(given);
    for (size_t k = 0; k < dims.size(); ++k) {
      given[k].reused();
      at[dims[k]] = broadcastTo(given[k], shape);
    }
    bool adjacent = dims.back() - dims.front() + 1 == dims.size();
    place = adjacent ? dims.front() : 0;
    for (size_t d = 0; d < at.size(); ++d)
      if (!at[d]) result.push_back(x.sizes()[d]);
    result.insert(result.begin() + static_cast<int64_t>(place), shape.begin(), shape.end());
  }
  Index map(BodyBuilder &b, const Sizes &sizes, const Index &i, bool check) const {
    Index inner(i.begin() + static_cast<int64_t>(place), i.begin() + static_cast<int64_t>(place + shape.size())),
        rest = i, j;
    rest.erase(rest.begin() + static_cast<int64_t>(place), rest.begin() + static_cast<int64_t>(place + shape.size()));
    size_t next = 0;
    for (size_t d = 0; d < at.size(); ++d)
      j.push_back(at[d] ? b.indirect(at[d]->at(b, inner), sizes[d], true, check) : rest[next++]);
    return j;
  }
};
} // namespace

static bool isMask(const Tensor &index) { return index.valid() && (index.dtype() == DType::Bool || index.dtype() == DType::U8); }

/// Indices in which a mask over some dimensions is replaced by the positions of its true elements.
static Tensors masksAsPositions(OpCall &o, const Tensor &x, const Tensors &indices) {
  if (std::none_of(indices.begin(), indices.end(), isMask)) return indices;
  // The index dims stand where the indices do, or in front if something lies between them; masks fill the last of them.
  size_t given = 0, first = indices.size(), last = 0, dim = 0, firstDim = 0;
  int64_t rank = 1;
  for (size_t k = 0; k < indices.size(); ++k) {
    if (indices[k].valid()) {
      if (given++ == 0) first = k, firstDim = dim;
      last = k;
      if (!isMask(indices[k])) rank = std::max(rank, indices[k].rank());
    }
    dim += isMask(indices[k]) ? static_cast<size_t>(indices[k].rank()) : 1;
  }
  if (dim > x.sizes().size()) {
    o.fail("its indices have more dimensions than the tensor");
    return {};
  }
  const size_t place = (last - first + 1 == given ? firstDim : 0) + static_cast<size_t>(rank) - 1;
  if (place >= o.out().sizes.size()) {
    o.fail("its masks have another number of dimensions than its result");
    return {};
  }
  Tensors out;
  for (const Tensor &index : indices) {
    if (!isMask(index)) {
      out.push_back(index);
      continue;
    }
    if (index.rank() == 0) {
      o.fail("a mask without dimensions");
      return {};
    }
    for (const Tensor &at : coordinatesOf(positionsOf(index, o.out().sizes[place]), index.sizes())) out.push_back(at);
  }
  return out;
}

static Tensors indexOp(OpCall &o) {
  Tensor x = source(o.t("self"));
  const Tensors indices = masksAsPositions(o, x, o.list("indices"));
  if (o.failed()) return {};
  Advanced a(x, indices);
  if (a.result.empty() && a.shape.empty() && !x.sizes().empty() && o.list("indices").empty()) return {x};
  Sizes sizes = x.sizes();
  return {gatherAt(x, a.result, [a, sizes](BodyBuilder &b, const Index &i) { return a.map(b, sizes, i, true); })};
}

/// The type in which several contributions to one element are collected: one whose words a GPU can update by itself.
static DType collectType(DType t) { return t == DType::Bool || (isInteger(t) && itemSize(t) < 4) ? DType::I32 : computeType(t); }

/// A buffer that starts as x (in type t).
static Strided copyOf(const Tensor &x, DType t) {
  Strided w = x.ctx().allocate(t, x.sizes());
  x.ctx().store(cast(x, t), w);
  return w;
}

/// x[mask] = v, the mask over the leading dims of x: the k-th true element takes v[k], or v[0] where that is all there is. Another number of
/// them than v has is a run-time error. v has the dims of x behind the mask.
static Tensor putByLeadingMask(OpCall &o, const Tensor &x0, const Tensor &mask, Tensor v, bool accumulate) {
  size_t lead = mask.sizes().size();
  Sizes rest(x0.sizes().begin() + static_cast<int64_t>(lead), x0.sizes().end()), flat{mask.numel()};
  flat.insert(flat.end(), rest.begin(), rest.end());
  Tensor x = reshape(x0, flat), m = flatten(mask);
  const Expr n = v.sizes()[0];
  const bool perItem = !n.isConst(1);
  v = source(v);
  m.reused();
  Tensor rank = o.ctx.scan(loops::ScanKind::Sum, DType::I64, m.sizes(), 0, false,
                           [m](BodyBuilder &b, const Index &i) { return b.cast(m.at(b, i), DType::I64); });
  Expr last = mask.numel() - 1;
  Tensor r = Tensor::lazy(o.ctx, x.dtype(), flat, [=](BodyBuilder &b, const Index &i) {
    Val old = x.at(b, i);
    return b.masked(
        m.at(b, {i[0]}),
        [&] {
          Index at = i;
          at[0] = 0;
          if (perItem) {
            Val item = where(eq(rank.at(b, {last}), b.index(n)), rank.at(b, {i[0]}) - 1.0, -1.0);
            at[0] = b.indirect(item, n, false, true);
          }
          Val now = v.at(b, at);
          return accumulate ? old + now : now;
        },
        old);
  });
  return reshape(r, x0.sizes());
}

/// x[:, …, mask] = v, the mask over the dims of x from `first` on; v is broadcast to the places.
static Tensors putByMask(OpCall &o, const Tensor &x, size_t first, const Tensor &mask, const Tensor &v, bool accumulate) {
  const size_t rank = x.sizes().size(), masked = static_cast<size_t>(mask.rank());
  if (first + masked > rank) return o.fail("the mask has more dimensions than the tensor");
  const size_t behind = rank - first - masked, given = v.sizes().size();
  if (given > first + 1 + behind) return o.fail("the values have more dimensions than the place they go to");
  // The values' one dim of places stands where the mask's dims do.
  Sizes places(x.sizes().begin(), x.sizes().begin() + static_cast<int64_t>(first));
  places.push_back(given > behind ? v.sizes()[given - behind - 1] : Expr(1));
  places.insert(places.end(), x.sizes().end() - static_cast<int64_t>(behind), x.sizes().end());
  const Tensor values = broadcastTo(v, places);
  if (first == 0) return {putByLeadingMask(o, x, mask, values, accumulate)};
  std::vector<int> forward, back(rank), placesFirst{static_cast<int>(first)};
  for (size_t d = 0; d < rank; ++d)
    if (d >= first && d < first + masked) forward.push_back(static_cast<int>(d));
  for (size_t d = 0; d < rank; ++d)
    if (d < first || d >= first + masked) forward.push_back(static_cast<int>(d));
  for (size_t d = 0; d < rank; ++d) back[static_cast<size_t>(forward[d])] = static_cast<int>(d);
  for (size_t d = 0; d <= first + behind; ++d)
    if (d != first) placesFirst.push_back(static_cast<int>(d));
  return {permute(putByLeadingMask(o, permute(x, forward), mask, permute(values, placesFirst), accumulate), back)};
}

/// Memory that holds x, to be changed in places: x's own where nobody needs it as it is, else a copy of it in type t. reads: what is read
/// while it changes.
static Strided toChange(OpCall &o, const Tensor &x, DType t, Tensors &reads) {
  if (const std::optional<Strided> own = x.isComplex() || t != x.dtype() ? std::nullopt : x.asStrided(); own && o.over(x, x.sizes(), *own, reads))
    return *own;
  return copyOf(x, t);
}

static Tensors indexPutOp(OpCall &o) {
  Tensor x = o.t("self"), v = cast(o.t("values"), x.dtype());
  Tensors indices = o.list("indices");
  bool accumulate = o.flag("accumulate");
  if (std::any_of(indices.begin(), indices.end(), isMask)) {
    while (!indices.back().valid()) indices.pop_back();
    const size_t first = indices.size() - 1;
    const Tensor mask = cast(indices[first], DType::Bool);
    if (first == 0 && v.numel().isConst(1)) {
      Tensor m = mask;
      while (m.rank() < x.rank()) m = unsqueeze(m, m.rank());
      Tensor scalar = reshape(v, {});
      return {where(m, accumulate ? add(x, scalar) : broadcastTo(scalar, x.sizes()), x)};
    }
    const bool alone = std::none_of(indices.begin(), indices.end() - 1, [](const Tensor &t) { return t.valid(); });
    if (!alone) return o.fail("assignment by a mask beside other indices");
    if (mask.rank() == 0) return o.fail("assignment of several values by a mask without dimensions");
    return putByMask(o, x, first, mask, v, accumulate);
  }
  DType t = accumulate ? collectType(x.dtype()) : x.dtype();
  Tensors reads = indices;
  reads.push_back(v);
  const Strided w = toChange(o, x, t, reads);
  v = reads.back(), reads.pop_back();
  const Advanced a(x, reads);
  v = broadcastTo(v, a.result);
  if (!v.realized()) v.reused();
  Sizes sizes = x.sizes();
  o.ctx.scatter(
      a.result,
      [&](BodyBuilder &b, const Index &i) { return Lowering::ScatterItem{a.map(b, sizes, i, true), v.at(b, i), {}}; },
      w, t, accumulate ? StoreMode::AtomicAdd : StoreMode::Set);
  return {cast(Tensor::strided(o.ctx, t, x.sizes(), w), x.dtype())};
}

static double identityOf(StoreMode m, DType t) {
  switch (m) {
  case StoreMode::AtomicMul: return 1;
  case StoreMode::AtomicMin:
    return isFloat(t) ? HUGE_VAL : greatestOf(t);
  case StoreMode::AtomicMax:
    return isFloat(t) ? -HUGE_VAL : leastOf(t);
  default: return 0;
  }
}

/// The type in which a scatter of that mode is collected.
static DType scatterType(const std::string &mode, DType t) { return mode == "set" ? t : collectType(t); }

static bool multiplies(const std::string &mode) { return mode == "prod" || mode == "multiply"; }

/// x with src collected into it at positions `where` over `ranges`. into: memory of x that is to change (toChange), of scatterType; absent: a
/// copy.
static Tensor scatterReduce(const Tensor &x, const Sizes &ranges,
                            const std::function<Index(BodyBuilder &, const Index &)> &where, const Tensor &src,
                            const std::string &mode, bool includeSelf, std::optional<Strided> into = {}) {
  Lowering &ctx = x.ctx();
  const DType t = scatterType(mode, x.dtype());
  StoreMode m = mode == "set"                          ? StoreMode::Set
                : multiplies(mode) ? StoreMode::AtomicMul
                : mode == "amax"                       ? StoreMode::AtomicMax
                : mode == "amin"                       ? StoreMode::AtomicMin
                                                       : StoreMode::AtomicAdd;
  if (!src.realized()) src.reused();
  const Strided w = into ? *into : copyOf(x, t);
  if (!includeSelf)
    ctx.scatter(
        ranges,
        [&](BodyBuilder &b, const Index &i) {
          return Lowering::ScatterItem{where(b, i), b.constant(t, identityOf(m, t)), {}};
        },
        w, t, StoreMode::Set);
  ctx.scatter(
      ranges,
      [&](BodyBuilder &b, const Index &i) {
        return Lowering::ScatterItem{where(b, i), b.cast(src.at(b, i), computeType(t)), {}};
      },
      w, t, m);
  Tensor r = Tensor::strided(ctx, t, x.sizes(), w);
  if (mode == "mean") {
    // ATen divides what its narrower type holds.
    r = cast(cast(r, isFloat(t) ? t : x.dtype()), t);
    Tensor start = fullInt(ctx, x.sizes(), DType::I32, includeSelf ? 1 : 0);
    Strided n = copyOf(start, DType::I32);
    ctx.scatter(
        ranges,
        [&](BodyBuilder &b, const Index &i) {
          return Lowering::ScatterItem{where(b, i), b.constantInt(DType::I32, 1), {}};
        },
        n, DType::I32, StoreMode::AtomicAdd);
    Tensor xs[] = {r, Tensor::strided(ctx, DType::I32, x.sizes(), n)};
    r = pointwise(xs, t, t, [t](std::span<const Val> v) {
      Val c = vmax(v[1], num(v[1], 1));
      return isFloat(t) ? v[0] / c : bin(OpKind::FloorDiv, v[0], c);
    });
  }
  return cast(r, x.dtype());
}

/// x, of complex numbers, with src multiplied into it at positions `where` over `ranges`: no store of one part knows the other, so one position of
/// dimension d after the other is. The positions of one turn lie at different places, since `where` moves along d alone.
static Tensor complexProducts(const Tensor &x, const Sizes &ranges, size_t d, const std::function<Index(BodyBuilder &, const Index &)> &where, Tensor src, bool includeSelf) {
  Lowering &ctx = x.ctx();
  const DType t = toReal(x.dtype());
  const Tensor all = carry(x), re = all.real(), im = all.imag();
  src = carry(src);
  if (!includeSelf)
    for (bool real : {true, false})
      ctx.scatter(
          ranges, [&](BodyBuilder &b, const Index &i) { return Lowering::ScatterItem{where(b, i), b.constant(t, real ? 1 : 0), {}}; },
          *(real ? re : im).asStrided(), t, StoreMode::Set);
  Sizes places = ranges;
  places.erase(places.begin() + static_cast<int64_t>(d));
  forTurns(ctx, ranges[d], [&](Expr turn) {
    auto in = [d, turn](Index i) {
      i.insert(i.begin() + static_cast<int64_t>(d), turn);
      return i;
    };
    auto part = [&](bool real) {
      return Tensor::lazy(ctx, t, places, [=](BodyBuilder &b, const Index &i) {
        const Index from = in(i), at = where(b, from);
        const Val a = re.at(b, at), c = im.at(b, at), p = src.real().at(b, from), q = src.imag().at(b, from);
        return real ? a * p - c * q : a * q + c * p;
      });
    };
    const Tensor newRe = part(true).realize(), newIm = part(false).realize();
    for (bool real : {true, false})
      ctx.scatter(
          places, [&](BodyBuilder &b, const Index &i) { return Lowering::ScatterItem{where(b, in(i)), (real ? newRe : newIm).at(b, i), {}}; },
          *(real ? re : im).asStrided(), t, StoreMode::Set);
  });
  return all;
}

/// Products of complex numbers are collected by an operator that sees both parts, all else part by part.
static Tensors onBothOrParts(OpCall &o, LowerFn fn) { return o.lower({fn, o.has("reduce") && multiplies(o.text("reduce")) ? OnComplex::Own : OnComplex::Parts}); }

static Tensors scatterOp(OpCall &o) {
  Tensor x0 = o.t("self"), index = o.t("index"), x = x0;
  const std::string &n = o.node.target;
  Tensor src = o.has("src") ? o.t("src") : o.t("value");
  src = cast(src, x.dtype());
  std::string mode = n.find("scatter_add") != std::string::npos ? "sum" : o.has("reduce") ? o.text("reduce") : "set";
  if (mode == "add") mode = "sum";
  if (mode != "sum" && mode != "set" && mode != "mean" && o.ofPart()) return o.fail("complex numbers have no order");
  if (x.rank() == 0) x = reshape(x, {1});
  if (index.rank() == 0) index = reshape(index, {1});
  if (src.rank() == 0) src = broadcastTo(src, index.sizes());
  if (index.numel().isConst(0)) return {x0};
  const bool both = x.isComplex();
  Tensors reads{index, src};
  const std::optional<Strided> into = both ? std::nullopt : std::optional(toChange(o, x, scatterType(mode, x.dtype()), reads));
  index = reads[0], src = reads[1];
  if (both) index.realize();
  index.reused();
  size_t d = static_cast<size_t>(wrap(o.integer("dim"), x.rank()));
  Expr bound = x.sizes()[d];
  auto where = [=](BodyBuilder &b, const Index &i) {
    Index j = i;
    j[d] = b.indirect(index.at(b, i), bound, false, true);
    return j;
  };
  // The source may be larger than the index: its leading part counts.
  Sizes ranges = index.sizes();
  if (both) return {reshape(complexProducts(x, ranges, d, where, src, o.flag("include_self", true)), x0.sizes())};
  Tensor part = remap(src, ranges, [](const Index &i) { return i; });
  return {reshape(scatterReduce(x, ranges, where, part, mode, o.flag("include_self", true), into), x0.sizes())};
}

static Tensors indexAddOp(OpCall &o) {
  Tensor x0 = o.t("self"), x = x0, index = o.t("index");
  const std::string &n = o.node.target;
  bool fill = n.find("index_fill") != std::string::npos;
  Tensor src = o.t(fill ? "value" : "source");
  src = cast(src, x.dtype());
  std::string mode = n.find("index_add") != std::string::npos      ? "sum"
                     : n.find("index_reduce") != std::string::npos ? o.text("reduce")
                                                                   : "set";
  if (mode != "sum" && mode != "set" && mode != "mean" && o.ofPart()) return o.fail("complex numbers have no order");
  if (mode == "sum" && o.has("alpha")) {
    const double alpha = o.number("alpha", 1);
    if (alpha != 1) src = o.ofPart() ? mulNumber(src, alpha) : mul(src, cast(o.t("alpha"), x.dtype()));
  }
  if (x.rank() == 0) x = reshape(x, {1});
  if (index.rank() == 0) index = reshape(index, {1});
  size_t d = static_cast<size_t>(wrap(o.integer("dim"), x.rank()));
  const bool both = x.isComplex();
  Tensors reads{index, src};
  const std::optional<Strided> into = both ? std::nullopt : std::optional(toChange(o, x, scatterType(mode, x.dtype()), reads));
  index = reads[0], src = reads[1];
  if (both) index.realize();
  index.reused();
  Sizes ranges = x.sizes();
  ranges[d] = index.sizes()[0];
  for (size_t k = 0; !fill && k < ranges.size() && src.rank() == x.rank(); ++k) o.mustAgree(src.sizes()[k], ranges[k], "'source' has a slice for each index, as large as those of 'self'");
  if (fill)
    src = broadcastTo(reshape(src, {}), ranges);
  else
    src = reshape(src, ranges);
  Expr bound = x.sizes()[d];
  auto where = [=](BodyBuilder &b, const Index &i) {
    Index j = i;
    // Of these index_fill alone counts from the end.
    j[d] = b.indirect(index.at(b, {i[d]}), bound, fill, true);
    return j;
  };
  if (both) return {reshape(complexProducts(x, ranges, d, where, src, o.flag("include_self", true)), x0.sizes())};
  return {reshape(scatterReduce(x, ranges, where, src, mode, o.flag("include_self", true), into), x0.sizes())};
}

static Tensors takeOp(OpCall &o) {
  Tensor x = source(flatten(o.t("self"))), index = o.t("index");
  index.reused();
  Expr n = x.sizes()[0];
  return {gatherAt(x, index.sizes(), [index, n](BodyBuilder &b, const Index &i) {
    return Index{b.indirect(index.at(b, i), n, true, true)};
  })};
}

static Tensors putOp(OpCall &o) {
  Tensor x = o.t("self"), index = flatten(o.t("index")), src = flatten(cast(o.t("source"), x.dtype()));
  Expr n = x.numel();
  auto where = [=](BodyBuilder &b, const Index &i) { return Index{b.indirect(index.at(b, i), n, true, true)}; };
  Tensor r = scatterReduce(flatten(x), index.sizes(), where, src, o.flag("accumulate") ? "sum" : "set", true);
  return {reshape(r, x.sizes())};
}

static Tensors maskedScatter(OpCall &o) {
  Tensor x = o.t("self"), m = o.t("mask"), src = flatten(o.t("source")), xm[] = {x, m};
  Sizes sizes = broadcastSizes(xm);
  x = broadcastTo(x, sizes);
  m = flatten(broadcastTo(cast(m, DType::Bool), sizes));
  m.reused();
  src = source(src);
  Tensor rank = o.ctx.scan(loops::ScanKind::Sum, DType::I64, m.sizes(), 0, false,
                           [m](BodyBuilder &b, const Index &i) { return b.cast(m.at(b, i), DType::I64); });
  Tensor flat = flatten(x);
  Expr n = src.sizes()[0];
  Tensor r = Tensor::lazy(o.ctx, x.dtype(), m.sizes(), [=](BodyBuilder &b, const Index &i) {
    Val take = m.at(b, i);
    return b.masked(take, [&] { return src.at(b, {b.indirect(rank.at(b, i) - 1.0, n, false, true)}); }, flat.at(b, i));
  });
  return {reshape(r, sizes)};
}

/// Of a masked scatter's source: the gradients of the elements that were taken, one behind the other; what no element took has none.
static Tensors maskedScatterGradient(OpCall &o) {
  const Tensor g = o.t("grad_output"), gm[] = {g, o.t("mask")};
  const Sizes sizes = broadcastSizes(gm);
  const Tensor flat = flatten(broadcastTo(g, sizes)), m = flatten(broadcastTo(cast(gm[1], DType::Bool), sizes)).reused();
  const Tensor rank = o.ctx.scan(loops::ScanKind::Sum, DType::I64, m.sizes(), 0, false, [m](BodyBuilder &b, const Index &i) { return b.cast(m.at(b, i), DType::I64); });
  Expr n = 1;
  for (Expr size : o.out().sizes) n = n * size;
  const DType type = g.dtype();
  const Strided w = o.ctx.allocate(type, {n});
  o.ctx.store(full(o.ctx, {n}, type, 0), w);
  o.ctx.scatter(
      m.sizes(),
      [&](BodyBuilder &b, const Index &i) {
        const Val take = m.at(b, i);
        Index at;
        const Val value = b.masked(
            take,
            [&] {
              at = {b.indirect(rank.at(b, i) - 1.0, n, false, true)};
              return flat.at(b, i);
            },
            b.constant(computeType(type), 0));
        return Lowering::ScatterItem{at, value, take};
      },
      w, type, StoreMode::Set);
  return {reshape(Tensor::strided(o.ctx, type, {n}, w), o.out().sizes)};
}

static Tensors embeddingOp(OpCall &o) {
  Tensor w = source(o.t("weight")), index = o.t("indices");
  index.reused();
  Sizes sizes = index.sizes();
  size_t n = sizes.size();
  for (size_t d = 1; d < w.sizes().size(); ++d) sizes.push_back(w.sizes()[d]);
  Expr rows = w.sizes()[0];
  return {gatherAt(w, sizes, [index, n, rows](BodyBuilder &b, const Index &i) {
    Index at(i.begin(), i.begin() + static_cast<int64_t>(n)), j{b.indirect(index.at(b, at), rows, false, true)};
    j.insert(j.end(), i.begin() + static_cast<int64_t>(n), i.end());
    return j;
  })};
}

/// The bag of each of n indices.
static Tensor bagOfEach(OpCall &o, const Tensor &offsets, Expr bags, Expr n, DType type) {
  return Tensor::lazy(o.ctx, type, {n}, [=](BodyBuilder &b, const Index &i) {
    const Val behind = bisect(b, [&](Expr at) { return b.cast(offsets.at(b, {at}), DType::I64); }, bags, b.index(i[0]), true);
    return b.cast(behind - num(behind, 1), type);
  });
}

/// The same as an operator of gradients is told it, by the forward operator or by offsets alone: sums keep no record of it. Invalid: it is not told.
static Tensor bagsTold(OpCall &o, const Tensor &index, Expr bags) {
  const Tensor told = o.t("offset2bag"), offsets = o.opt("offsets");
  if (o.ctx.equal(told.numel(), index.numel())) return told;
  if (!offsets.valid() || !told.numel().isConst(0)) return {};
  return bagOfEach(o, offsets.reused(), bags, index.size(0), DType::I64).realize();
}

/// What an embedding bag returns beside its sums, as ATen's CPU kernels have it: the bag of each index, how many indices each bag has, and where
/// the greatest values come from. `firsts`: of each bag and column, the first index with the greatest value; invalid where that is not asked for.
static Tensors bagRecords(OpCall &o, const Tensor &sums, const Tensor &index, const Tensor &offsets, Expr bags, const Tensor &counts, const Tensor &firsts, int64_t mode) {
  if (o.outCount() < 4) return {sums};
  const Expr n = index.sizes()[0];
  const DType placeType = o.out(1).dtype, countType = o.out(2).dtype, maxType = o.out(3).dtype;
  // Plain sums keep none of these.
  Tensor bagOf = full(o.ctx, {Expr(0)}, placeType, 0);
  if (!o.out(1).sizes[0].isConst(0))
    bagOf = bagOfEach(o, offsets, bags, n, placeType);
  const auto sizeOf = [&](DType type) { return mode == 0 ? full(o.ctx, {bags}, type, 0) : cast(counts, type); };
  Tensor most = o.out(3).sizes[0].isConst(0) ? full(o.ctx, {Expr(0)}, maxType, 0) : sizeOf(maxType);
  if (mode == 2)
    most = Tensor::lazy(o.ctx, maxType, sums.sizes(), [=](BodyBuilder &b, const Index &i) {
      const Val first = firsts.at(b, i);
      return b.masked(first < b.index(n), [&] { return b.cast(index.at(b, {b.indirect(first, n, false, false)}), maxType); }, b.constantInt(maxType, 0));
    });
  return {sums, bagOf, sizeOf(countType), most};
}

static Tensors embeddingBag(OpCall &o) {
  Tensor w = source(o.t("weight")), index = o.t("indices"), offsets = o.t("offsets"), per = o.opt("per_sample_weights");
  int64_t mode = o.integer("mode", 0);
  if (mode < 0 || mode > 2) return o.fail("mode is " + std::to_string(mode) + ", none of 0 (sum), 1 (mean) and 2 (max)");
  bool includeLast = o.flag("include_last_offset");
  // Where the public operator counts from the end, -1 says "none" to the one that it becomes.
  const bool fromEnd = o.node.target == "aten.embedding_bag.padding_idx";
  std::optional<Expr> padding;
  if (const int64_t given = o.integer("padding_idx", -1); given >= 0)
    padding = given;
  else if (fromEnd && o.has("padding_idx"))
    padding = w.sizes()[0] + given;
  else if (given < -1)
    return o.fail("a negative padding index is not supported");
  index.reused();
  Expr n = index.sizes()[0], bags = includeLast ? offsets.sizes()[0] - 1 : offsets.sizes()[0], rows = w.sizes()[0],
       count = offsets.sizes()[0];
  DType acc = computeType(w.dtype());
  // Index k belongs to bag g when offsets[g] <= k < offsets[g + 1].
  auto ends = [=](BodyBuilder &b, const Index &i) {
    Expr g = i[0];
    Val last = b.compare(OpKind::Lt, g + 1, count);
    Val end = b.masked(last, [&] { return b.cast(offsets.at(b, {g + 1}), DType::I64); }, b.index(n));
    return std::pair(b.cast(offsets.at(b, {g}), DType::I64), end);
  };
  auto counts = [=](BodyBuilder &b, Expr k) {
    return padding ? ne(b.cast(index.at(b, {k}), DType::I64), b.index(*padding)) : b.isTrue();
  };
  Tensor lens = o.ctx.segments(loops::ReduceKind::Sum, DType::I64, {bags}, n, ends,
                               [=](BodyBuilder &b, const Index &, const Index &r) {
                                 return b.cast(counts(b, r[0]), DType::I64);
                               });
  Sizes sizes{bags, w.sizes()[1]};
  Tensor s = o.ctx.segments(mode == 2 ? loops::ReduceKind::Max : loops::ReduceKind::Sum, acc, sizes, n, ends,
                            [=](BodyBuilder &b, const Index &i, const Index &r) {
                              return b.masked(
                                  counts(b, r[0]),
                                  [&] {
                                    Val v = w.at(b, {b.indirect(index.at(b, {r[0]}), rows, false, true), i[1]});
                                    return per.valid() ? v * b.cast(per.at(b, {r[0]}), acc) : v;
                                  },
                                  b.constant(acc, mode == 2 ? -HUGE_VAL : 0.0));
                            });
  Tensor y = Tensor::lazy(o.ctx, w.dtype(), sizes, [=](BodyBuilder &b, const Index &i) {
    Val v = s.at(b, i), c = lens.at(b, {i[0]});
    if (mode == 1) v = v / b.cast(vmax(c, num(c, 1)), acc);
    if (mode == 2) v = where(eq(c, 0.0), 0.0, v);
    return v;
  });
  Tensor firsts;
  if (mode == 2)
    firsts = o.ctx.segments(loops::ReduceKind::Min, DType::I64, sizes, n, ends, [=](BodyBuilder &b, const Index &i, const Index &r) {
      return b.masked(
          counts(b, r[0]),
          [&] {
            const Val v = b.cast(w.at(b, {b.indirect(index.at(b, {r[0]}), rows, false, true), i[1]}), acc);
            return where(eq(v, s.at(b, i)), b.index(r[0]), b.index(n));
          },
          b.index(n));
    });
  return bagRecords(o, y, index, offsets, bags, lens, firsts, mode);
}

/// How often each of `rows` rows is named.
static Tensor timesNamed(OpCall &o, const Tensor &index, Expr rows) {
  const Strided w = o.ctx.allocate(DType::I32, {rows});
  o.ctx.store(full(o.ctx, {rows}, DType::I32, 0), w);
  o.ctx.scatter(
      index.sizes(),
      [&](BodyBuilder &b, const Index &i) { return Lowering::ScatterItem{{b.indirect(index.at(b, i), rows, false, true)}, b.constantInt(DType::I32, 1), {}}; },
      w, DType::I32, StoreMode::AtomicAdd);
  return Tensor::strided(o.ctx, DType::I32, {rows}, w);
}

/// The gradient of an embedding bag's weight. Each index gives its bag's gradient to its row; of greatest values the index that has it, if the bag has any.
static Tensors embeddingBagGradient(OpCall &o) {
  if (o.flag("sparse")) return o.fail("it is asked for a sparse gradient");
  const Tensor g = o.t("grad").reused(), index = o.t("indices").reused(), sizeOf = o.t("bag_size"), most = o.t("maximum_indices"), per = o.opt("per_sample_weights");
  const int64_t mode = o.integer("mode", 0), padding = o.integer("padding_idx", -1);
  const Expr rows = o.out().sizes[0], bags = g.size(0);
  const DType acc = computeType(g.dtype());
  const Strided w = o.ctx.allocate(acc, o.out().sizes);
  o.ctx.store(full(o.ctx, o.out().sizes, acc, 0), w);
  if (mode == 2) {
    o.ctx.scatter(
        g.sizes(),
        [&](BodyBuilder &b, const Index &i) {
          const Val some = ne(sizeOf.at(b, {i[0]}), 0.0);
          Index at;
          const Val value = b.masked(
              some,
              [&] {
                at = {b.indirect(most.at(b, i), rows, false, true), i[1]};
                return b.cast(g.at(b, i), acc);
              },
              b.constant(acc, 0));
          return Lowering::ScatterItem{at, value, some};
        },
        w, acc, StoreMode::AtomicAdd);
    return {cast(Tensor::strided(o.ctx, acc, o.out().sizes, w), g.dtype())};
  }
  const Tensor bagOf = bagsTold(o, index, bags);
  if (!bagOf.valid()) return o.fail("it is not told which bag each index is of");
  const Tensor times = o.flag("scale_grad_by_freq") ? timesNamed(o, index, rows) : Tensor();
  o.ctx.scatter(
      {index.size(0), g.size(1)},
      [&](BodyBuilder &b, const Index &i) {
        const Val named = b.cast(index.at(b, {i[0]}), DType::I64), counts = padding < 0 ? b.isTrue() : ne(named, static_cast<double>(padding));
        const Expr row = b.indirect(named, rows, false, true), bag = b.indirect(bagOf.at(b, {i[0]}), bags, false, true);
        Val value = b.cast(g.at(b, {bag, i[1]}), acc);
        if (mode == 1) value = value / b.cast(vmax(sizeOf.at(b, {bag}), num(sizeOf.at(b, {bag}), 1)), acc);
        if (per.valid()) value = value * b.cast(per.at(b, {i[0]}), acc);
        if (times.valid()) value = value / b.cast(times.at(b, {row}), acc);
        return Lowering::ScatterItem{{row, i[1]}, value, padding < 0 ? Val() : counts};
      },
      w, acc, StoreMode::AtomicAdd);
  return {cast(Tensor::strided(o.ctx, acc, o.out().sizes, w), g.dtype())};
}

/// The gradient of each index' factor: its bag's gradient times the row that it names.
static Tensors sampleWeightGradient(OpCall &o) {
  const Tensor g = o.t("grad").reused(), w = source(o.t("weight")), index = o.t("indices").reused();
  const int64_t padding = o.integer("padding_idx", -1);
  const Expr rows = w.size(0), bags = g.size(0);
  const Tensor bagOf = bagsTold(o, index, bags);
  if (!bagOf.valid()) return o.fail("it is not told which bag each index is of");
  const DType acc = computeType(g.dtype());
  const Tensor r = o.ctx.reduce(loops::ReduceKind::Sum, acc, index.sizes(), {w.size(1)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Val named = b.cast(index.at(b, i), DType::I64);
    return b.masked(
        padding < 0 ? b.isTrue() : ne(named, static_cast<double>(padding)),
        [&] {
          const Expr row = b.indirect(named, rows, false, true), bag = b.indirect(bagOf.at(b, i), bags, false, true);
          return b.cast(g.at(b, {bag, r[0]}), acc) * b.cast(w.at(b, {row, r[0]}), acc);
        },
        b.constant(acc, 0));
  })[0];
  return {cast(r, o.out().dtype)};
}

static Tensors maxUnpool(OpCall &o) {
  Tensor x = o.t("self"), index = o.t("indices");
  Sizes outSizes = o.out().sizes;
  size_t spatial = o.node.target.find("3d") != std::string::npos ? 3 : 2;
  size_t lead = outSizes.size() - spatial;
  Sizes planes(outSizes.begin(), outSizes.begin() + static_cast<int64_t>(lead));
  Expr plane = 1, in = 1;
  for (size_t d = lead; d < outSizes.size(); ++d) plane = plane * outSizes[d], in = in * x.sizes()[d];
  Sizes flat = planes, from = planes;
  flat.push_back(plane);
  from.push_back(in);
  Tensor src = reshape(x, from), at = reshape(index, from);
  auto where = [=](BodyBuilder &b, const Index &i) {
    Index j = i;
    j.back() = b.indirect(at.at(b, i), plane, false, true);
    return j;
  };
  return {reshape(scatterReduce(full(o.ctx, flat, x.dtype(), 0), from, where, src, "set", true), outSizes)};
}

/// Rows of the weight that indices name, scaled down to a norm of at most max_norm.
static Tensors embeddingRenorm(OpCall &o) {
  Tensor w = o.t("self"), index = flatten(o.t("indices"));
  double most = o.number("max_norm"), p = o.number("norm_type", 2);
  Expr rows = w.size(0);
  w.reused();
  Tensor norm = vectorNorm(w, p, {1}, true, computeType(w.dtype())).realize();
  Tensor named = scatterReduce(
      full(o.ctx, {rows}, DType::I32, 0), index.sizes(),
      [=](BodyBuilder &b, const Index &i) { return Index{b.indirect(index.at(b, i), rows, false, true)}; },
      full(o.ctx, index.sizes(), DType::I32, 1), "set", true);
  return {Tensor::lazy(o.ctx, w.dtype(), w.sizes(), [=](BodyBuilder &b, const Index &i) {
    Val v = w.at(b, i), n = norm.at(b, {i[0], Expr(0)});
    return where(ne(named.at(b, {i[0]}), 0.0) && n > most, v * (num(n, most) / (n + 1e-7)), v);
  })};
}

namespace {
/// What _unsafe_masked_index and its gradient read or write: indices beyond a dimension mean its nearest end, and of an empty tensor nothing is taken.
struct MaskedIndices {
  Tensor x, mask;
  Advanced at;
  explicit MaskedIndices(OpCall &o) : x(source(o.t("self"))), at(x, nearest(o, x)) {
    if (at.masks) return;
    mask = broadcastTo(o.t("mask"), at.result);
    if (const Expr count = x.numel(); !count.isConst() || count.isConst(0))
      mask = binary(OpKind::And, mask, binary(OpKind::Ne, scalarExpr(o.ctx, count), scalarInt(o.ctx, 0)));
  }
  static Tensors nearest(OpCall &o, const Tensor &x) {
    Tensors all = o.list("indices");
    for (size_t d = 0; d < all.size(); ++d)
      if (const Tensor &index = all[d]; index.valid() && !isMask(index)) {
        const Expr size = x.sizes()[d];
        all[d] = binary(OpKind::Max, binary(OpKind::Min, index, scalarExpr(o.ctx, size - 1)), scalarExpr(o.ctx, Expr(0) - size));
      }
    return all;
  }
};
} // namespace

static void addIndices(OpTable &t) {
  t.add("embedding_renorm.default", embeddingRenorm);
  t.add("_unsafe_masked_index_put_accumulate.default", [](OpCall &o) -> Tensors {
    const MaskedIndices masked(o);
    const Advanced &a = masked.at;
    if (a.masks) return o.fail("masks among the indices are not supported");
    Tensor x = o.t("self"), m = masked.mask, v = cast(o.t("values"), x.dtype());
    const DType acc = collectType(x.dtype());
    if (x.rank() == 0) return {cast(add(cast(x, acc), where(m, cast(v, acc), full(o.ctx, {}, acc, 0))), x.dtype())};
    v = broadcastTo(v, a.result);
    Strided w = copyOf(x, acc);
    Sizes sizes = x.sizes();
    o.ctx.scatter(
        a.result,
        [&](BodyBuilder &b, const Index &i) {
          Index at;
          Val take = m.at(b, i);
          Val value = b.masked(
              take,
              [&] {
                at = a.map(b, sizes, i, true);
                return b.cast(v.at(b, i), acc);
              },
              isFloat(acc) ? b.constant(acc, 0) : b.constantInt(acc, 0));
          return Lowering::ScatterItem{at, value, take};
        },
        w, acc, StoreMode::AtomicAdd);
    return {cast(Tensor::strided(o.ctx, acc, x.sizes(), w), x.dtype())};
  });
  t.add("index.Tensor _unsafe_index.Tensor", indexOp);
  t.add("index_put.default _unsafe_index_put.default _index_put_impl.default", indexPutOp);
  t.add("gather.default", [](OpCall &o) -> Tensors { return {gather(o.t("self"), o.integer("dim"), o.t("index"))}; });
  t.add("take_along_dim.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self"), index = o.t("indices");
    if (!o.has("dim")) return {gather(flatten(x), 0, flatten(index))};
    int64_t d = wrap(o.integer("dim"), x.rank());
    Sizes sx = x.sizes(), si = index.sizes();
    for (size_t k = 0; k < sx.size(); ++k)
      if (static_cast<int64_t>(k) != d) {
        if (sx[k].isConst(1)) sx[k] = si[k];
        if (si[k].isConst(1)) si[k] = sx[k];
      }
    // Any index is taken modulo the size, unlike gather's.
    const Tensor within = binary(OpKind::Mod, broadcastTo(index, si), scalarExpr(o.ctx, x.size(d)));
    return {gather(broadcastTo(x, sx), d, within)};
  });
  t.add("index_select.default",
        [](OpCall &o) -> Tensors { return {indexSelect(o.t("self"), o.integer("dim"), o.t("index"))}; });
  t.add("scatter.src scatter.value scatter_add.default", scatterOp);
  t.add("scatter.reduce scatter.value_reduce scatter_reduce.two", [](OpCall &o) { return onBothOrParts(o, scatterOp); });
  t.add("index_add.default index_copy.default index_fill.int_Scalar index_fill.int_Tensor", indexAddOp);
  t.add("index_reduce.default", [](OpCall &o) { return onBothOrParts(o, indexAddOp); });
  t.add("take.default", takeOp);
  t.add("put.default", putOp);
}

static void addEmbeddings(OpTable &t) {
  t.add("masked_scatter.default", maskedScatter);
  t.add("masked_scatter_backward.default", maskedScatterGradient);
  t.add("embedding.default", embeddingOp);
  t.add("embedding_bag.default embedding_bag.padding_idx _embedding_bag.default _embedding_bag_forward_only.default",
        embeddingBag);
  t.add("_embedding_bag_dense_backward.default _embedding_bag_backward.default", embeddingBagGradient);
  t.add("_embedding_bag_per_sample_weights_backward.default", sampleWeightGradient);
  t.add("max_unpool2d.default max_unpool3d.default", maxUnpool);
  t.add("one_hot.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    if (o.integer("num_classes", -1) < 0) return o.fail("the number of classes depends on the data");
    const Expr classes = o.out().sizes.back();
    return {Tensor::lazy(o.ctx, DType::I64, o.out().sizes, [x, classes](BodyBuilder &b, const Index &i) {
      Index j(i.begin(), i.end() - 1);
      const Expr label = b.indirect(x.at(b, j), classes, false, true);
      return b.cast(b.compare(OpKind::Eq, label, i.back()), DType::I64);
    })};
  });
  t.add("embedding_dense_backward.default", [](OpCall &o) -> Tensors {
    Tensor g = o.t("grad_output"), index = o.t("indices");
    int64_t padding = o.integer("padding_idx", -1);
    Expr n = index.numel(), width = g.size(-1);
    o.mustAgree(g.numel(), n * width, "'grad_output' has a row for each index");
    Tensor src = reshape(g, {n, width}), at = flatten(index);
    if (o.flag("scale_grad_by_freq")) src = cast(div(src, unsqueeze(indexSelect(timesNamed(o, at, o.out().sizes[0]), 0, at), 1)), g.dtype());
    if (padding >= 0) {
      Tensor keep = binary(OpKind::Ne, unsqueeze(at, 1), scalarInt(o.ctx, padding));
      src = where(keep, src, full(o.ctx, {}, g.dtype(), 0));
    }
    Expr rows = o.out().sizes[0];
    auto place = [=](BodyBuilder &b, const Index &i) {
      return Index{b.indirect(at.at(b, {i[0]}), rows, false, true), i[1]};
    };
    return {scatterReduce(full(o.ctx, o.out().sizes, g.dtype(), 0), src.sizes(), place, src, "sum", true)};
  });
  t.add("_unsafe_masked_index.default", [](OpCall &o) -> Tensors {
    const MaskedIndices masked(o);
    const Advanced a = masked.at;
    if (a.masks) return o.fail("masks among the indices are not supported");
    const Tensor x = masked.x, m = masked.mask, fill = cast(o.t("fill"), x.dtype());
    const Sizes sizes = x.sizes();
    return {Tensor::lazy(o.ctx, x.dtype(), a.result, [=](BodyBuilder &b, const Index &i) {
      return b.masked(m.at(b, i), [&] { return x.at(b, a.map(b, sizes, i, true)); }, fill.at(b, {}));
    })};
  });
}

void addIndexing(OpTable &t) {
  addIndices(t);
  addEmbeddings(t);
  t.onComplex(OnComplex::Own, "index _unsafe_index gather take_along_dim index_select take embedding scatter.reduce scatter.value_reduce scatter_reduce index_reduce");
  t.onComplex(OnComplex::Parts, "index_put _unsafe_index_put _index_put_impl scatter.src scatter.value scatter_add index_add index_copy index_fill put "
                                "masked_scatter _unsafe_masked_index _unsafe_masked_index_put_accumulate");
}

} // namespace neso::lower
