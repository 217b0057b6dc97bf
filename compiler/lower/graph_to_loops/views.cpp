// View operators and copies: after functionalisation each is a value of its own, computed by index remapping.
#include <algorithm>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

static int64_t wrap(int64_t d, int64_t rank) { return d < 0 ? d + std::max<int64_t>(rank, 1) : d; }

static Tensors asIs(OpCall &o) { return {o.t("self")}; }
static Tensors toOutSizes(OpCall &o) {
  const Tensor x = o.t("self");
  o.assumeEqual(x.numel(), product(o.out().sizes));
  return {reshape(x, o.out().sizes)};
}

/// Dims of one go. The exporter decides by the sizes that it saw, and keeps dims of dynamic size: they may not be one then.
static Tensors squeezeOp(OpCall &o) {
  const Tensor x = o.t("self");
  std::vector<char> asked(x.sizes().size(), !o.has("dim"));
  for (int64_t d : o.ints("dim"))
    if (x.rank() > 0) asked[static_cast<size_t>(wrap(d, x.rank()))] = 1;
  Sizes kept;
  for (size_t d = 0; d < asked.size(); ++d)
    if (!asked[d] || !x.sizes()[d].isConst(1)) kept.push_back(x.sizes()[d]);
  // Where more are gone than are one for certain, the number of elements says which sizes those are right for.
  if (kept.size() == o.out().sizes.size())
    for (size_t d = 0; d < asked.size(); ++d)
      if (asked[d] && !x.sizes()[d].isConst(1) && !o.ctx.facts.provablyLess(1, x.sizes()[d]) && !x.sizes()[d].isConst(0))
        o.assume(ne(x.sizes()[d], 1));
  return toOutSizes(o);
}

/// A position, which counts from the end where it is negative. A number that the data decides may be either.
static Expr fromStart(const Facts &facts, Expr position, Expr size) {
  const Interval r = facts.rangeOf(position);
  if (r.hi < 0) return position + size;
  return r.lo >= 0 ? position : where(lt(position, 0), position + size, position);
}

/// The place of a select, counted from the start; one outside of the dimension is an error of the run.
static Expr placeIn(OpCall &o, Expr index, Expr size) {
  const Facts &facts = o.ctx.facts;
  const std::string what = fmt::format("select: its index is not in a dimension of {}", size.isConst() ? size.str() : "{" + size.str() + "}");
  if (!facts.provablyLessEqual(0, index + size)) o.ctx.demand(le(0, index + size), what);
  if (!facts.provablyLess(index, size)) o.ctx.demand(lt(index, size), what);
  return fromStart(facts, index, size);
}

/// start or end of a slice as ATen clamps it into [0, size].
static Expr clampStart(const Facts &facts, Expr start, Expr size) {
  return facts.simplify(min(max(fromStart(facts, start, size), 0), size));
}

/// The length of a part as the model names it, which is `value` once that is computed.
static Expr lengthOfPart(OpCall &o, size_t k, int64_t d, Expr value) {
  const Expr length = o.out(k).sizes[static_cast<size_t>(d)];
  value = o.ctx.facts.simplify(value);
  if (o.ctx.isKnown(length))
    o.assumeEqual(length, value);
  else
    o.ctx.define(scalarExpr(o.ctx, value), length);
  return length;
}

static Tensors sliceOp(OpCall &o) {
  Tensor x = o.t("self");
  int64_t d = wrap(o.integer("dim", 0), x.rank());
  const Expr start = clampStart(o.ctx.facts, o.expr("start", 0), x.size(d)), step = o.expr("step", 1);
  const Expr end = clampStart(o.ctx.facts, o.expr("end", INT64_MAX), x.size(d));
  return {slice(x, d, start, lengthOfPart(o, 0, d, max(ceilDiv(end - start, step), 0)), step)};
}

/// The parts between indices, each from one to the next, which may lie before it; what ATen clamps is clamped.
static Tensors piecesAt(OpCall &o, const Tensor &x, int64_t d, const Sizes &indices) {
  Tensors out;
  for (size_t k = 0; k < o.outCount(); ++k) {
    const Expr start = k == 0 ? Expr(0) : clampStart(o.ctx.facts, indices[k - 1], x.size(d));
    const Expr end = k < indices.size() ? clampStart(o.ctx.facts, indices[k], x.size(d)) : x.size(d);
    out.push_back(slice(x, d, start, lengthOfPart(o, k, d, max(end - start, 0))));
  }
  return out;
}

static Tensors pieces(OpCall &o, const Tensor &x, int64_t d) {
  if (o.has("indices")) return piecesAt(o, x, d, o.exprs("indices"));
  Tensors out;
  Expr at = 0;
  for (size_t k = 0; k < o.outCount(); ++k) {
    Expr n = o.out(k).sizes[static_cast<size_t>(d)];
    out.push_back(slice(x, d, at, n));
    at = at + n;
  }
  o.assumeEqual(at, x.size(d));
  return out;
}

static Tensors splitOp(OpCall &o) {
  Tensor x = o.t("self");
  return pieces(o, x, wrap(o.integer("dim", 0), x.rank()));
}

/// Where the data says where to split, or into how many parts, of which the model has a number.
static Tensors splitByTensor(OpCall &o) {
  const Tensor x = o.t("self"), given = o.t("tensor_indices_or_sections");
  const int64_t d = wrap(o.integer("dim", 0), x.rank()), parts = static_cast<int64_t>(o.outCount());
  if (given.rank() == 1) {
    if (!given.size(0).isConst(parts - 1)) return o.fail("the number of parts is not one more than the number of indices");
    Sizes indices;
    for (int64_t k = 0; k + 1 < parts; ++k) indices.push_back(o.ctx.read(select(given, 0, k)));
    return piecesAt(o, x, d, indices);
  }
  o.ctx.define(given, Expr(parts));
  // The first so many parts have an element more.
  const Expr least = floorDiv(x.size(d), parts), longer = mod(x.size(d), parts);
  Tensors out;
  for (int64_t k = 0; k < parts; ++k) {
    const Expr start = least * k + min(k, longer), end = least * (k + 1) + min(k + 1, longer);
    out.push_back(slice(x, d, start, lengthOfPart(o, static_cast<size_t>(k), d, end - start)));
  }
  return out;
}

static Tensors expandOp(OpCall &o) {
  const Tensor x = o.t("self");
  const Sizes &from = x.sizes(), &to = o.out().sizes;
  // A size of one is repeated where it is one for certain.
  for (size_t d = 0; d < from.size(); ++d)
    if (!from[d].isConst(1)) o.assumeEqual(from[d], to[to.size() - from.size() + d]);
  return {broadcastTo(x, to)};
}

static Tensors diagonalOp(OpCall &o) {
  Tensor x = o.t("self");
  int64_t a = wrap(o.integer("dim1", 0), x.rank()), b = wrap(o.integer("dim2", 1), x.rank()),
          k = o.integer("offset", 0);
  Sizes sizes = o.out().sizes;
  size_t n = x.sizes().size();
  return {remap(x, sizes, [a, b, k, n](const Index &i) {
    Index j(n);
    size_t at = 0;
    for (size_t d = 0; d < n; ++d) {
      if (static_cast<int64_t>(d) == a)
        j[d] = i.back() + (k < 0 ? -k : 0);
      else if (static_cast<int64_t>(d) == b)
        j[d] = i.back() + (k > 0 ? k : 0);
      else
        j[d] = i[at++];
    }
    return j;
  })};
}

/// The dims of a tensor of the model from outermost to innermost in memory, if it lies densely there; nullopt: it does not.
static std::optional<std::vector<int>> denseOrder(OpCall &o, const graph::TensorType &type) {
  const std::vector<int> order = orderOfStrides(type.sizes, type.strides, o.ctx.facts);
  const Sizes dense = denseStrides(type.sizes, order);
  for (size_t d = 0; d < dense.size(); ++d)
    if (!type.sizes[d].isConst(1) && !o.ctx.equal(dense[d], type.strides[d])) return std::nullopt;
  return order;
}

/// How much memory elements with gaps take; nullopt: two of them may lie at one place.
static std::optional<Expr> spanOf(OpCall &o, const graph::TensorType &type) {
  Expr end = 1;
  const std::vector<int> order = orderOfStrides(type.sizes, type.strides, o.ctx.facts);
  for (size_t k = order.size(); k-- > 0;) {
    const size_t d = static_cast<size_t>(order[k]);
    if (type.sizes[d].isConst(1)) continue;
    if (!o.ctx.facts.provablyLessEqual(end, type.strides[d])) return std::nullopt;
    end = end + (max(type.sizes[d], 1) - 1) * type.strides[d];
  }
  return o.ctx.facts.simplify(end);
}

/// Behind the last element that strides reach, 0 if there is none; nullopt: that depends on the sizes.
static std::optional<int64_t> endOf(const Sizes &sizes, const Sizes &strides, Expr offset) {
  Expr last = offset;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d].isConst(0)) return 0;
    last = last + (sizes[d] - 1) * strides[d];
  }
  const std::optional<int64_t> at = last.asConst();
  return at ? std::optional(*at + 1) : std::nullopt;
}

/// What is wrong with elements of strides and an offset in memory of `all` elements: some lie outside of it. Empty where none does; where sizes or
/// data decide, a run that it happens in is refused.
static std::string stridesFault(OpCall &o, const Expr &all, const Sizes &sizes, const Sizes &strides, const Expr &offset) {
  if (const std::optional<int64_t> end = endOf(sizes, strides, offset), have = all.asConst(); end && have) {
    if (*end > *have || offset.asConst() < 0) return "elements of it lie outside of its operand's memory";
    return {};
  }
  Expr last = offset, count = 1;
  for (size_t d = 0; d < sizes.size(); ++d) last = last + (sizes[d] - 1) * strides[d], count = count * sizes[d];
  const std::string what = fmt::format("as_strided: elements outside of its storage{}", valuesOf(offset));
  o.ctx.demand(le(0, offset), what);
  o.ctx.demand(logicalOr(eq(count, 0), lt(last, all)), what);
  return {};
}

/// as_strided reads the storage, which is the operand's own (graph::readStorage); its strides in the model tell where its elements are.
static Tensors asStridedOp(OpCall &o) {
  Tensor x = o.t("self");
  const graph::TensorType *type = o.typeOf("self");
  Sizes sizes = o.exprs("size"), strides = o.exprs("stride");
  Expr offset = o.expr("storage_offset", 0);
  auto same = [&](const Sizes &a, const Sizes &b) { return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [&](Expr p, Expr q) { return o.ctx.equal(p, q); }); };
  if (type && offset.isConst(0) && same(sizes, type->sizes) && same(strides, type->strides)) return {x};
  // The operand as a flat array in the order of its memory.
  std::optional<std::vector<int>> order = type ? denseOrder(o, *type) : std::nullopt;
  if (!order) return o.fail("its operand's elements do not lie one behind the other in memory, and what lies between them is not known");
  Tensor flat = flatten(permute(x, *order));
  if (std::string why = stridesFault(o, flat.numel(), sizes, strides, offset); !why.empty()) return o.fail(why);
  return {remap(flat, sizes, [strides, offset](const Index &i) {
    Expr e = offset;
    for (size_t d = 0; d < i.size(); ++d) e = e + i[d] * strides[d];
    return Index{e};
  })};
}

static Tensors rollOp(OpCall &o) {
  Tensor x = o.t("self");
  Sizes shifts = o.exprs("shifts");
  Dims dims = o.ints("dims");
  Sizes shape = x.sizes();
  Tensor y = x;
  if (dims.empty()) {
    y = flatten(x);
    dims = {0};
  }
  for (size_t k = 0; k < dims.size(); ++k) {
    size_t d = static_cast<size_t>(wrap(dims[k], y.rank()));
    Expr n = y.sizes()[d], s = shifts[k];
    if (n.isConst(0)) continue;
    y = remap(y, y.sizes(), [d, n, s](const Index &i) {
      Index j = i;
      j[d] = mod(i[d] - s, n);
      return j;
    });
  }
  return {reshape(y, shape)};
}

static Tensors padOp(OpCall &o) {
  Tensor x = o.t("self");
  Sizes p = o.exprs("pad");
  if (p.empty()) p = o.exprs("padding");
  std::string mode = o.text("mode", "constant");
  std::string target = o.node.target;
  if (target.find("reflection_pad") != std::string::npos) mode = "reflect";
  if (target.find("replication_pad") != std::string::npos) mode = "replicate";
  if (target.find("circular") != std::string::npos) mode = "circular";
  Sizes before(x.sizes().size(), Expr(0)), after = before;
  for (size_t k = 0; k < p.size() / 2; ++k) {
    before[before.size() - 1 - k] = p[2 * k];
    after[after.size() - 1 - k] = p[2 * k + 1];
  }
  if (mode == "constant") return {pad(x, before, after, o.number("value", 0))};
  Sizes sizes = x.sizes(), from = x.sizes();
  for (size_t d = 0; d < sizes.size(); ++d) sizes[d] = sizes[d] + before[d] + after[d];
  Tensor r = remap(x, sizes, [from, before, after, mode](const Index &i) {
    Index j = i;
    for (size_t d = 0; d < i.size(); ++d) {
      if (before[d].isConst(0) && after[d].isConst(0)) continue;
      Expr e = i[d] - before[d], n = from[d];
      if (mode == "replicate")
        e = min(max(e, 0), n - 1);
      else if (mode == "circular") {
        // Negative padding crops first; what is left wraps around.
        Expr cutBefore = max(-before[d], 0), cutAfter = max(-after[d], 0);
        e = mod(i[d] - max(before[d], 0), n - cutBefore - cutAfter) + cutBefore;
      } else {
        // |e|, then reflected at n-1.
        Expr a = max(e, -e);
        e = (n - 1) - max((n - 1) - a, a - (n - 1));
      }
      j[d] = e;
    }
    return j;
  });
  return {r};
}

/// Part [start, start + length * step) along d of a tensor in memory.
static Strided sliceOf(const Strided &whole, int64_t d, Expr start, Expr step) {
  Strided part = whole;
  const size_t k = static_cast<size_t>(d);
  part.offset = whole.offset + start * whole.strides[k];
  part.strides[k] = whole.strides[k] * step;
  return part;
}

/// Whether src lies in memory where that part of x does.
static bool liesInPlace(const Tensor &x, const Tensor &src, int64_t d, Expr start, Expr length, Expr step) {
  if (x.isComplex() || src.dtype() != x.dtype() || src.rank() != x.rank()) return false;
  const std::optional<Strided> whole = x.asStrided(), part = src.asStrided();
  if (!whole || !part || whole->buffer != part->buffer || whole->dtype != part->dtype) return false;
  const Facts &facts = x.ctx().facts;
  const Strided wanted = sliceOf(*whole, d, start, step);
  bool there = facts.provablyEqual(part->offset, wanted.offset);
  for (size_t k = 0; there && k < part->strides.size(); ++k)
    there = facts.provablyEqual(src.sizes()[k], k == static_cast<size_t>(d) ? length : x.sizes()[k]) &&
            (src.sizes()[k].isConst(1) || facts.provablyEqual(part->strides[k], wanted.strides[k]));
  return there;
}

static Tensor scatterSlice(const Tensor &x, const Tensor &src, int64_t d, Expr start, Expr length, Expr step) {
  // A part that lies where the whole has it: memory is as it should be.
  if (liesInPlace(x, src, d, start, length, step)) return x;
  Tensor s = cast(src, x.dtype());
  if (x.isComplex())
    return Tensor::complex(scatterSlice(x.real(), s.real(), d, start, length, step),
                           scatterSlice(x.imag(), s.imag(), d, start, length, step), x.dtype());
  s = broadcastTo(s, [&] {
    Sizes z = x.sizes();
    z[static_cast<size_t>(d)] = length;
    return z;
  }());
  size_t k = static_cast<size_t>(d);
  return Tensor::lazy(x.ctx(), x.dtype(), x.sizes(), [x, s, k, start, length, step](BodyBuilder &b, const Index &i) {
    Val in = b.inRange(i[k], start, start + length * step);
    if (!step.isConst(1)) in = in && b.compare(OpKind::Eq, mod(i[k] - start, step), 0);
    Index j = i;
    j[k] = floorDiv(i[k] - start, step);
    return b.masked(
        in, [&] { return s.at(b, j); },
        b.masked(!in, [&] { return x.at(b, i); }, b.constant(computeType(x.dtype()), 0)));
  });
}

/// As scatterSlice: of memory that the run leaves changed, such as a cache, only the part is written where nobody needs it as it was.
static Tensor putSlice(OpCall &o, const Tensor &x, const Tensor &src, int64_t d, Expr start, Expr length, Expr step) {
  if (liesInPlace(x, src, d, start, length, step)) return x;
  const std::optional<Strided> whole = x.isComplex() ? std::nullopt : x.asStrided();
  const Facts &facts = o.ctx.facts;
  const Expr end = start + (length - 1) * step + 1;
  if (whole && whole->dtype == x.dtype() && o.ctx.program.buffer(whole->buffer).kind != loops::Buffer::Kind::Temp &&
      facts.provablyLessEqual(1, length) && facts.provablyLessEqual(1, step) && facts.provablyLessEqual(0, start) && facts.provablyLessEqual(end, x.size(d))) {
    Sizes sizes = x.sizes();
    sizes[static_cast<size_t>(d)] = length;
    const Strided part = sliceOf(*whole, d, start, step);
    Tensors reads{src};
    if (o.over(x, sizes, part, reads)) {
      o.ctx.store(broadcastTo(cast(reads[0], x.dtype()), sizes), part);
      return Tensor::strided(o.ctx, x.dtype(), x.sizes(), *whole);
    }
  }
  return scatterSlice(x, src, d, start, length, step);
}

static Tensors unfoldOp(OpCall &o) {
  Tensor x = o.t("self");
  int64_t d = wrap(o.integer("dimension"), x.rank());
  Expr step = o.expr("step", 1);
  if (x.rank() == 0) return {remap(x, o.out().sizes, [](const Index &) { return Index{}; })};
  size_t k = static_cast<size_t>(d);
  return {remap(x, o.out().sizes, [k, step](const Index &i) {
    Index j(i.begin(), i.end() - 1);
    j[k] = i[k] * step + i.back();
    return j;
  })};
}

static Tensor triangle(const Tensor &x, Expr k, bool lower) {
  if (x.isComplex()) return Tensor::complex(triangle(x.real(), k, lower), triangle(x.imag(), k, lower), x.dtype());
  Tensor r = Tensor::lazy(x.ctx(), x.dtype(), x.sizes(), [x, k, lower](BodyBuilder &b, const Index &i) {
    Expr row = i[i.size() - 2], col = i[i.size() - 1];
    Val in = lower ? b.compare(OpKind::Le, col, row + k) : b.compare(OpKind::Le, row + k, col);
    return b.masked(in, [&] { return x.at(b, i); }, b.constant(computeType(x.dtype()), 0));
  });
  return r.withOrder(x.order());
}

static Tensors atLeast(OpCall &o, int64_t rank) {
  Tensors out;
  Tensors xs = o.has("tensors") ? o.list("tensors") : Tensors{o.t("self")};
  for (size_t k = 0; k < xs.size(); ++k) out.push_back(reshape(xs[k], o.out(k).sizes));
  (void)rank;
  return out;
}

/// The elements of x in the order in which they lie in memory, as many as the new sizes take; what is not there is zero (torch
/// leaves it undefined).
static Tensors resizeOp(OpCall &o) {
  const Tensor x = o.t("self");
  const graph::TensorType *type = o.typeOf("self");
  if (!type) return o.fail("what it resizes is no tensor of the model");
  if (o.out().sizes == type->sizes) return {x};
  const std::optional<std::vector<int>> order = denseOrder(o, *type);
  if (!order) return o.fail("the tensor that it resizes does not lie densely in memory");
  Tensor flat = flatten(permute(x, *order));
  const Sizes &sizes = o.out().sizes;
  const Expr wanted = product(sizes), have = flat.sizes()[0];
  if (!o.ctx.equal(wanted, have)) flat = pad(flat, {Expr(0)}, {wanted - have}, 0);
  const std::vector<int> placed = orderOfStrides(sizes, o.out().strides, o.ctx.facts);
  Sizes inMemory;
  std::vector<int> back(placed.size());
  for (size_t k = 0; k < placed.size(); ++k) {
    inMemory.push_back(sizes[static_cast<size_t>(placed[k])]);
    back[static_cast<size_t>(placed[k])] = static_cast<int>(k);
  }
  return {permute(reshape(flat, inMemory), back)};
}

static void addReshapes(OpTable &t) {
  t.add("resize.default resize_as.default", resizeOp);
  t.add("_reshape_copy.default", [](OpCall &o) -> Tensors { return {reshape(o.t("self"), o.out().sizes)}; });
  t.add("alias.default clone.default contiguous.default detach.default lift_fresh_copy.default lift_fresh.default "
        "lift.default "
        "alias_copy.default detach_copy.default resolve_conj.default resolve_neg.default "
        "_to_dense.default pin_memory.default requires_grad_.default",
        asIs);
  // The order in memory is the declared one.
  t.add("prims::prims.copy_strided.default", [](OpCall &o) -> Tensors { return {o.t("a")}; });
  t.add("view.default reshape.default _unsafe_view.default view_as.default reshape_as.default flatten.using_ints "
        "unflatten.int "
        "view_copy.default ravel.default unsqueeze.default unsqueeze_copy.default _reshape_alias.default",
        toOutSizes);
  t.add("squeeze.default squeeze.dim squeeze.dims squeeze_copy.default squeeze_copy.dim squeeze_copy.dims", squeezeOp);
  t.add("expand.default expand_as.default broadcast_to.default expand_copy.default", expandOp);
  t.add("broadcast_tensors.default", [](OpCall &o) -> Tensors {
    Tensors xs = o.list("tensors");
    for (size_t k = 0; k < xs.size(); ++k) xs[k] = broadcastTo(xs[k], o.out(k).sizes);
    return xs;
  });
}

static void addPermutations(OpTable &t) {
  t.add("permute.default permute_copy.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    std::vector<int> dims;
    for (int64_t d : o.ints("dims")) dims.push_back(static_cast<int>(wrap(d, x.rank())));
    return {permute(x, dims)};
  });
  t.add("transpose.int transpose_copy.int swapaxes.default swapdims.default", [](OpCall &o) -> Tensors {
    if (o.has("axis0")) return {transpose(o.t("self"), o.integer("axis0"), o.integer("axis1"))};
    return {transpose(o.t("self"), o.integer("dim0"), o.integer("dim1"))};
  });
  t.add("t.default numpy_T.default t_copy.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    std::vector<int> dims;
    for (int64_t d = x.rank(); d-- > 0;) dims.push_back(static_cast<int>(d));
    return {permute(x, dims)};
  });
  t.add("mT.default", [](OpCall &o) -> Tensors { return {transpose(o.t("self"), -1, -2)}; });
  t.add("mH.default adjoint.default matrix_H.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    if (x.isComplex()) x = Tensor::complex(x.real(), neg(x.imag()), x.dtype());
    return {x.rank() < 2 ? x : transpose(x, -1, -2)};
  });
  t.add("movedim.int movedim.intlist moveaxis.int moveaxis.intlist", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    Dims from = o.ints("source"), to = o.ints("destination");
    std::vector<int> dims(x.sizes().size(), -1);
    std::vector<char> used(x.sizes().size(), 0);
    for (size_t k = 0; k < from.size(); ++k) {
      dims[static_cast<size_t>(wrap(to[k], x.rank()))] = static_cast<int>(wrap(from[k], x.rank()));
      used[static_cast<size_t>(wrap(from[k], x.rank()))] = 1;
    }
    size_t next = 0;
    for (int &d : dims) {
      if (d >= 0) continue;
      while (used[next]) ++next;
      d = static_cast<int>(next++);
    }
    return {permute(x, dims)};
  });
}

static void addParts(OpTable &t) {
  t.add("slice.Tensor slice_copy.Tensor", sliceOp);
  t.add("narrow.default narrow_copy.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    int64_t d = wrap(o.integer("dim"), x.rank());
    return {slice(x, d, clampStart(o.ctx.facts, o.expr("start"), x.size(d)), o.expr("length"))};
  });
  t.add("select.int select_copy.int", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    int64_t d = wrap(o.integer("dim"), x.rank());
    return {select(x, d, placeIn(o, o.expr("index"), x.size(d)))};
  });
  t.add(
      "split.Tensor split.sizes split_with_sizes.default split_with_sizes_copy.default split_copy.Tensor chunk.default "
      "unsafe_split.Tensor unsafe_split_with_sizes.default unsafe_chunk.default tensor_split.sections "
      "tensor_split.indices",
      splitOp);
  t.add("tensor_split.tensor_indices_or_sections", splitByTensor);
  t.add("hsplit.int hsplit.array", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    return pieces(o, x, x.rank() == 1 ? 0 : 1);
  });
  t.add("vsplit.int vsplit.array", [](OpCall &o) -> Tensors { return pieces(o, o.t("self"), 0); });
  t.add("dsplit.int dsplit.array", [](OpCall &o) -> Tensors { return pieces(o, o.t("self"), 2); });
  t.add("unbind.int unbind_copy.int", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    Tensors out;
    for (size_t k = 0; k < o.outCount(); ++k) out.push_back(select(x, o.integer("dim", 0), static_cast<int64_t>(k)));
    return out;
  });
}

static void addJoins(OpTable &t) {
  t.add("cat.default concat.default concatenate.default",
        [](OpCall &o) -> Tensors { return {concat(o.list("tensors"), o.integer("dim", 0))}; });
  t.add("pad_sequence.default", [](OpCall &o) -> Tensors {
    const Tensors xs = o.list("sequences");
    const bool first = o.flag("batch_first"), left = o.text("padding_side", "right") == "left";
    const double value = o.number("padding_value", 0);
    const Expr longest = o.out().sizes[first ? 1 : 0];
    Tensors rows;
    for (const Tensor &x : xs) {
      Sizes before(x.sizes().size(), Expr(0)), after = before;
      (left ? before : after)[0] = longest - x.sizes()[0];
      rows.push_back(unsqueeze(pad(cast(x, o.out().dtype), before, after, value), first ? 0 : 1));
    }
    return {concat(rows, first ? 0 : 1)};
  });
  t.add("stack.default _stack.default", [](OpCall &o) -> Tensors {
    Tensors xs = o.list("tensors");
    int64_t d = o.integer("dim", 0);
    if (d < 0) d += xs[0].rank() + 1;
    for (Tensor &x : xs) x = unsqueeze(x, d);
    return {concat(xs, d)};
  });
  t.add("hstack.default vstack.default dstack.default column_stack.default row_stack.default",
        [](OpCall &o) -> Tensors {
          Tensors xs = o.list("tensors");
          const std::string &n = o.node.target;
          int64_t d = 0;
          for (Tensor &x : xs) {
            if (n.find("dstack") != std::string::npos) {
              d = 2;
              if (x.rank() == 0) x = reshape(x, {1});
              if (x.rank() == 1) x = unsqueeze(x, 0);
              if (x.rank() == 2) x = unsqueeze(x, 2);
            } else if (n.find("vstack") != std::string::npos || n.find("row_stack") != std::string::npos) {
              if (x.rank() == 0) x = reshape(x, {1});
              if (x.rank() == 1) x = unsqueeze(x, 0);
            } else if (n.find("column") != std::string::npos) {
              d = 1;
              if (x.rank() <= 1) x = reshape(x, {x.numel(), 1});
            } else {
              if (x.rank() == 0) x = reshape(x, {1});
              d = x.rank() == 1 ? 0 : 1;
            }
          }
          return {concat(xs, d)};
        });
  t.add("repeat.default tile.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    Sizes times = o.exprs(o.has("repeats") ? "repeats" : "dims");
    while (times.size() < x.sizes().size()) times.insert(times.begin(), Expr(1));
    return {repeat(x, times)};
  });
  t.add("repeat_interleave.self_int", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    Expr n = o.expr("repeats");
    int64_t d = 0;
    if (o.has("dim"))
      d = wrap(o.integer("dim"), x.rank());
    else
      x = flatten(x);
    Sizes sizes = x.sizes();
    size_t k = static_cast<size_t>(d);
    sizes[k] = sizes[k] * n;
    return {remap(x, sizes, [k, n](const Index &i) {
      Index j = i;
      j[k] = floorDiv(i[k], n);
      return j;
    })};
  });
}

static void addReorderings(OpTable &t) {
  t.add("flip.default", [](OpCall &o) -> Tensors { return {flip(o.t("self"), o.ints("dims"))}; });
  t.add("fliplr.default", [](OpCall &o) -> Tensors { return {flip(o.t("self"), {1})}; });
  t.add("flipud.default", [](OpCall &o) -> Tensors { return {flip(o.t("self"), {0})}; });
  t.add("rot90.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    Dims dims = o.ints("dims");
    int64_t k = ((o.integer("k", 1) % 4) + 4) % 4;
    if (k == 1) return {transpose(flip(x, {dims[1]}), dims[0], dims[1])};
    if (k == 2) return {flip(x, dims)};
    if (k == 3) return {transpose(flip(x, {dims[0]}), dims[0], dims[1])};
    return {x};
  });
  t.add("roll.default", rollOp);
  t.add("diagonal.default diagonal_copy.default linalg_diagonal.default", diagonalOp);
  t.add("as_strided.default as_strided_copy.default", asStridedOp);
  t.add("unfold.default unfold_copy.default", unfoldOp);
  t.add(
      "constant_pad_nd.default pad.default reflection_pad1d.default reflection_pad2d.default reflection_pad3d.default "
      "replication_pad1d.default replication_pad2d.default replication_pad3d.default _pad_circular.default",
      padOp);
}

static void addScattersOfParts(OpTable &t) {
  t.add("slice_scatter.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self"), s = o.t("src");
    int64_t d = wrap(o.integer("dim", 0), x.rank());
    Expr n = s.size(d);
    const Expr start = clampStart(o.ctx.facts, o.expr("start", 0), x.size(d)), step = o.expr("step", 1);
    const Expr end = clampStart(o.ctx.facts, o.expr("end", INT64_MAX), x.size(d));
    o.assumeEqual(n, o.ctx.facts.simplify(max(ceilDiv(end - start, step), 0)));
    return {putSlice(o, x, s, d, start, n, step)};
  });
  t.add("select_scatter.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    int64_t d = wrap(o.integer("dim"), x.rank());
    return {putSlice(o, x, unsqueeze(o.t("src"), d), d, placeIn(o, o.expr("index"), x.size(d)), 1, 1)};
  });
  t.add("diagonal_scatter.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self"), s = cast(o.t("src"), x.dtype());
    int64_t a = wrap(o.integer("dim1", 0), x.rank()), c = wrap(o.integer("dim2", 1), x.rank()),
            k = o.integer("offset", 0);
    return {Tensor::lazy(o.ctx, x.dtype(), x.sizes(), [x, s, a, c, k](BodyBuilder &b, const Index &i) {
      Val in = b.compare(OpKind::Eq, i[static_cast<size_t>(a)] + k, i[static_cast<size_t>(c)]);
      Index j;
      for (size_t d = 0; d < i.size(); ++d)
        if (static_cast<int64_t>(d) != a && static_cast<int64_t>(d) != c) j.push_back(i[d]);
      j.push_back(k >= 0 ? i[static_cast<size_t>(a)] : i[static_cast<size_t>(c)]);
      return b.masked(in, [&] { return s.at(b, j); }, x.at(b, i));
    })};
  });
  t.add("as_strided_scatter.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self"), s = cast(o.t("src"), x.dtype());
    Sizes strides = o.exprs("stride");
    Expr offset = o.expr("storage_offset", 0); // from where the operand begins (graph::readStorage)
    const graph::TensorType *type = o.typeOf("self");
    std::optional<std::vector<int>> order = type ? denseOrder(o, *type) : std::nullopt;
    const std::optional<int64_t> end = endOf(o.exprs("size"), strides, offset), from = offset.asConst(), have = x.numel().asConst();
    if (!order || (end && from && have && (*from < 0 || *end > *have))) {
      // In memory with the gaps that its operand has, and as far as the part reaches before and behind it: nobody sees what is written there.
      const std::optional<Expr> all = type ? spanOf(o, *type) : std::nullopt;
      if (!all) return o.fail("several of its operand's elements lie at one place");
      const Expr before = from && *from < 0 ? -*from : 0, reach = end && all->isConst() ? std::max(*end, all->constValue()) : *all;
      if (std::string why = stridesFault(o, before + reach, o.exprs("size"), strides, before + offset); !why.empty()) return o.fail(why);
      const Strided memory = o.ctx.allocate(x.dtype(), {before + reach});
      const Strided w{memory.buffer, memory.dtype, type->strides, before};
      o.ctx.store(full(o.ctx, {before + reach}, x.dtype(), 0), memory);
      o.ctx.store(x, w);
      o.ctx.store(s, {w.buffer, w.dtype, strides, before + offset});
      return {Tensor::strided(o.ctx, x.dtype(), x.sizes(), w)};
    }
    if (std::string why = stridesFault(o, x.numel(), o.exprs("size"), strides, offset); !why.empty()) return o.fail(why);
    Strided w = o.ctx.allocate(x.dtype(), x.sizes(), *order);
    o.ctx.store(x, w);
    o.ctx.store(s, {w.buffer, w.dtype, strides, offset});
    return {Tensor::strided(o.ctx, x.dtype(), x.sizes(), w)};
  });
}

static void addTrianglesAndDiagonals(OpTable &t) {
  t.add("tril.default", [](OpCall &o) -> Tensors { return {triangle(o.t("self"), o.expr("diagonal", 0), true)}; });
  t.add("triu.default", [](OpCall &o) -> Tensors { return {triangle(o.t("self"), o.expr("diagonal", 0), false)}; });
  t.add("diag_embed.default diag.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    bool diag = o.node.target == "aten.diag.default";
    int64_t k = o.integer(diag ? "diagonal" : "offset", 0);
    int64_t rank = x.rank() + 1, a = wrap(o.integer("dim1", -2), rank), c = wrap(o.integer("dim2", -1), rank);
    if (diag && x.rank() == 2)
      return {remap(x, o.out().sizes,
                    [k](const Index &i) { return Index{i[0] + (k < 0 ? -k : 0), i[0] + (k > 0 ? k : 0)}; })};
    return {Tensor::lazy(o.ctx, x.dtype(), o.out().sizes, [x, a, c, k](BodyBuilder &b, const Index &i) {
      Expr row = i[static_cast<size_t>(a)], col = i[static_cast<size_t>(c)];
      Val in = b.compare(OpKind::Eq, row + k, col);
      Index j;
      for (size_t d = 0; d < i.size(); ++d)
        if (static_cast<int64_t>(d) != a && static_cast<int64_t>(d) != c) j.push_back(i[d]);
      j.push_back(k >= 0 ? row : col);
      return b.masked(in, [&] { return x.at(b, j); }, b.constant(computeType(x.dtype()), 0));
    })};
  });
}

static void addShuffles(OpTable &t) {
  t.add("pixel_shuffle.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    Expr r = o.expr("upscale_factor");
    size_t n = x.sizes().size();
    return {remap(x, o.out().sizes, [n, r](const Index &i) {
      Index j = i;
      j[n - 1] = floorDiv(i[n - 1], r);
      j[n - 2] = floorDiv(i[n - 2], r);
      j[n - 3] = i[n - 3] * r * r + mod(i[n - 2], r) * r + mod(i[n - 1], r);
      return j;
    })};
  });
  t.add("pixel_unshuffle.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    Expr r = o.expr("downscale_factor");
    size_t n = x.sizes().size();
    return {remap(x, o.out().sizes, [n, r](const Index &i) {
      Index j = i;
      j[n - 3] = floorDiv(i[n - 3], r * r);
      j[n - 2] = i[n - 2] * r + mod(floorDiv(i[n - 3], r), r);
      j[n - 1] = i[n - 1] * r + mod(i[n - 3], r);
      return j;
    })};
  });
  t.add("channel_shuffle.default native_channel_shuffle.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    Expr g = o.expr("groups"), per = floorDiv(x.sizes()[1], g);
    return {remap(x, x.sizes(), [g, per](const Index &i) {
      Index j = i;
      j[1] = mod(i[1], g) * per + floorDiv(i[1], g);
      return j;
    })};
  });
}

static void addViewsOfLists(OpTable &t) {
  t.add("atleast_1d.default atleast_1d.Sequence atleast_2d.default atleast_2d.Sequence atleast_3d.default "
        "atleast_3d.Sequence",
        [](OpCall &o) -> Tensors { return atLeast(o, 0); });
  t.add("meshgrid.default meshgrid.indexing", [](OpCall &o) -> Tensors {
    Tensors xs = o.list("tensors"), out;
    bool xy = o.text("indexing", "ij") == "xy" && xs.size() >= 2;
    for (size_t k = 0; k < xs.size(); ++k) {
      size_t d = xy && k < 2 ? 1 - k : k;
      Tensor x = reshape(xs[k], {xs[k].numel()});
      out.push_back(remap(x, o.out(k).sizes, [d](const Index &i) { return Index{i[d]}; }));
    }
    return out;
  });
  t.add("block_diag.default", [](OpCall &o) -> Tensors {
    Tensors xs = o.list("tensors");
    DType d = resultType(xs);
    Expr rows = 0, cols = 0;
    for (Tensor &x : xs) {
      x = cast(x.rank() == 2 ? x : reshape(x, x.rank() == 1 ? Sizes{1, x.numel()} : Sizes{1, 1}), d);
      rows = rows + x.sizes()[0];
      cols = cols + x.sizes()[1];
    }
    Expr r = 0, c = 0;
    Tensors rowsOf;
    for (Tensor &x : xs) {
      rowsOf.push_back(pad(x, {Expr(0), c}, {Expr(0), cols - c - x.sizes()[1]}, 0));
      c = c + x.sizes()[1];
    }
    return {concat(rowsOf, 0)};
  });
}

void addViews(OpTable &t) {
  t.family(OnComplex::Own);
  addReshapes(t);
  addPermutations(t);
  addParts(t);
  addJoins(t);
  addReorderings(t);
  addScattersOfParts(t);
  addTrianglesAndDiagonals(t);
  addShuffles(t);
  addViewsOfLists(t);
  t.onComplex(OnComplex::Parts, "diagonal_scatter as_strided_scatter diag_embed diag");
}

} // namespace neso::lower
