// Operators made of others that fit no other family.
#include <cmath>
#include <numeric>

#include "lower/graph_to_loops/bisect.h"
#include "lower/graph_to_loops/data_sizes.h"
#include "lower/graph_to_loops/linalg.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

static int64_t wrap(int64_t d, int64_t rank) { return d < 0 ? d + std::max<int64_t>(rank, 1) : d; }

static Tensors diffOp(OpCall &o) {
  Tensor x = o.t("self"), before = o.opt("prepend"), after = o.opt("append");
  int64_t d = wrap(o.integer("dim", -1), x.rank()), n = o.integer("n", 1);
  if (n == 0) return {x};
  if (before.valid() || after.valid()) {
    Tensors parts;
    if (before.valid()) parts.push_back(before);
    parts.push_back(x);
    if (after.valid()) parts.push_back(after);
    x = concat(parts, d);
  }
  for (int64_t k = 0; k < n; ++k) {
    Expr len = x.size(d);
    if (len.isConst(0)) break;
    Tensor a = slice(x, d, 1, len - 1), b = slice(x, d, 0, len - 1);
    x = x.dtype() == DType::Bool ? binary(OpKind::Xor, a, b) : sub(a, b);
  }
  return {x};
}

/// Every tensor is cut along dim into chunks (the last padded with zeros); chunk k of all of them, flattened, lie side
/// by side in row k.
static Tensors chunkCat(OpCall &o) {
  Tensors xs = o.list("tensors");
  if (xs.empty()) return o.fail("the list of tensors is empty");
  Expr chunks = o.expr("num_chunks");
  int64_t d = wrap(o.integer("dim"), xs[0].rank());
  DType t = o.out().dtype;
  for (Tensor &x : xs) {
    Expr each = floorDiv(x.size(d) + chunks - 1, chunks), rest = each;
    Sizes none(x.sizes().size(), Expr(0)), after = none, sizes(x.sizes().begin(), x.sizes().begin() + d);
    after[static_cast<size_t>(d)] = each * chunks - x.size(d);
    for (int64_t k = d + 1; k < x.rank(); ++k) rest = rest * x.size(k);
    sizes.push_back(chunks);
    sizes.push_back(rest);
    x = reshape(pad(cast(x, t), none, after, 0), sizes);
  }
  return {concat(xs, d + 1)};
}

/// Counts of the elements in `bins` bins of equal width between min and max (those of the data when min == max).
static Tensors histogram(OpCall &o) {
  Tensor x = flatten(o.t("self"));
  int64_t bins = o.integer("bins", 100);
  double lo = o.number("min", 0), hi = o.number("max", 0);
  if (bins <= 0 || !(lo <= hi)) return o.fail("the bins are not valid");
  DType t = x.dtype();
  if (!isFloat(t) || x.isComplex()) return o.fail("the elements are not floating point numbers");
  x.reused();
  Tensor low = full(o.ctx, {}, t, lo), high = full(o.ctx, {}, t, hi);
  if (lo == hi && !x.numel().isConst(0)) {
    low = amin(x, {}, false);
    high = amax(x, {}, false);
  }
  Strided where = o.ctx.allocate(DType::I32, {Expr(bins)});
  o.ctx.store(fullInt(o.ctx, {Expr(bins)}, DType::I32, 0), where);
  o.ctx.scatter(
      x.sizes(),
      [&](BodyBuilder &b, const Index &i) {
        Val v = x.at(b, i), from = low.at(b, {}), to = high.at(b, {}), same = eq(from, to);
        from = lower::where(same, b.round(from - 1.0, t), from);
        to = lower::where(same, b.round(to + 1.0, t), to);
        Val width = b.round(to - from, t), in = v >= from && v <= to;
        // In ATen's order of operations, each rounded to the type of the elements.
        Val at = b.round(b.round(b.round(v - from, t) * static_cast<double>(bins), t) / width, t);
        at = vmin(vmax(lower::where(in, at, 0.0), num(at, 0)), num(at, static_cast<double>(bins - 1)));
        // A range that is not finite is an error in ATen: made one here by an index that is out of range.
        Val bin = lower::where(width < HUGE_VAL, b.cast(un(OpKind::Trunc, at), DType::I64), -1.0);
        return Lowering::ScatterItem{{b.indirect(bin, Expr(bins), false, true)}, b.cast(in, DType::I32), {}};
      },
      where, DType::I32, loops::StoreMode::AtomicAdd);
  return {cast(Tensor::strided(o.ctx, DType::I32, {Expr(bins)}, where), o.out().dtype)};
}

/// Areas of the trapezoids between neighbours along dim d of y, which is the same dim of x: x of one dim lies along it, and where x has
/// fewer dims than y, the missing ones are in front. Of more dims than y's they are counted from the front too, as in torch.
static Tensor trapezoids(OpCall &o, int64_t &d) {
  Tensor y = o.t("y"), x = o.opt("x");
  d = wrap(o.integer("dim", -1), y.rank());
  const Facts &facts = o.ctx.facts;
  auto halves = [&](const Tensor &v, bool minus) {
    const Expr n = v.size(d), pairs = facts.simplify(max(n - 1, 0));
    Tensor hi = slice(v, d, facts.simplify(min(n, 1)), pairs), lo = slice(v, d, 0, pairs);
    return minus ? sub(hi, lo) : add(hi, lo);
  };
  Tensor area = halves(y, false);
  if (x.valid()) {
    if (x.rank() == 1) {
      Sizes s(y.sizes().size(), Expr(1));
      s[static_cast<size_t>(d)] = x.sizes()[0];
      x = reshape(x, s);
    }
    while (x.rank() < y.rank()) x = unsqueeze(x, 0);
    area = mul(area, halves(x, true));
  } else if (o.has("dx")) {
    area = mul(area, o.t("dx"));
  }
  return div(area, scalarFloat(o.ctx, 2.0));
}

static Tensors im2col(OpCall &o) {
  Tensor x = o.t("self");
  bool flat = x.rank() == 3;
  if (flat) x = unsqueeze(x, 0);
  Sizes k = o.exprs("kernel_size"), dil = o.exprs("dilation"), p = o.exprs("padding"), st = o.exprs("stride");
  for (Sizes *v : {&k, &dil, &p, &st})
    if (v->size() == 1) v->push_back((*v)[0]);
  Expr h = x.sizes()[2], w = x.sizes()[3];
  Expr ow = floorDiv(w + p[1] * 2 - dil[1] * (k[1] - 1) - 1, st[1]) + 1;
  Sizes out = o.out().sizes;
  if (flat) out.insert(out.begin(), Expr(1));
  Tensor r = Tensor::lazy(o.ctx, x.dtype(), out, [=](BodyBuilder &b, const Index &i) {
    Expr kk = mod(i[1], k[0] * k[1]), c = floorDiv(i[1], k[0] * k[1]);
    Expr y = floorDiv(i[2], ow) * st[0] - p[0] + floorDiv(kk, k[1]) * dil[0],
         z = mod(i[2], ow) * st[1] - p[1] + mod(kk, k[1]) * dil[1];
    Val ok = b.inRange(y, 0, h) && b.inRange(z, 0, w);
    return b.masked(ok, [&] { return x.at(b, {i[0], c, y, z}); }, b.constant(computeType(x.dtype()), 0));
  });
  return {flat ? select(r, 0, 0) : r};
}

static Tensors col2im(OpCall &o) {
  Tensor x = o.t("self");
  bool flat = x.rank() == 2;
  if (flat) x = unsqueeze(x, 0);
  Sizes k = o.exprs("kernel_size"), dil = o.exprs("dilation"), p = o.exprs("padding"), st = o.exprs("stride"),
        size = o.exprs("output_size");
  for (Sizes *v : {&k, &dil, &p, &st, &size})
    if (v->size() == 1) v->push_back((*v)[0]);
  Expr oh = floorDiv(size[0] + p[0] * 2 - dil[0] * (k[0] - 1) - 1, st[0]) + 1,
       ow = floorDiv(size[1] + p[1] * 2 - dil[1] * (k[1] - 1) - 1, st[1]) + 1;
  Sizes out = o.out().sizes;
  if (flat) out.insert(out.begin(), Expr(1));
  DType acc = computeType(x.dtype());
  // Each pixel gathers from the windows that cover it: position p of the padded image meets the taps r with p = r * dilation (mod stride) alone, which is
  // one of every `every` taps.
  struct Taps {
    Expr every = 1, shared = 1, inverse = 1, count;
  } taps[2];
  for (size_t d = 0; d < 2; ++d) {
    taps[d].count = k[d];
    const auto s = st[d].asConst(), step = dil[d].asConst();
    if (!s || !step) continue;
    const int64_t shared = std::gcd(*s, *step), every = *s / shared;
    int64_t inverse = 1;
    while (inverse < every && inverse * (*step / shared) % every != 1) ++inverse;
    taps[d] = {every, shared, inverse, ceilDiv(k[d], every)};
  }
  auto term = [=](BodyBuilder &b, const Index &i, const Index &r) {
    Val ok = b.isTrue();
    Expr tap[2], window[2];
    for (size_t d = 0; d < 2; ++d) {
      const Expr at = i[d + 2] + p[d], every = taps[d].every;
      tap[d] = r[d];
      if (!every.isConst(1)) {
        tap[d] = mod(floorDiv(at, taps[d].shared) * taps[d].inverse, every) + every * r[d];
        if (!mod(k[d], every).isConst(0)) ok = ok && b.inRange(tap[d], 0, k[d]);
      }
      const Expr first = at - tap[d] * dil[d];
      // Of the taps that `every` picks, all meet a window where stride and dilation share no factor.
      if (!st[d].isConst(1) && (st[d] != every || !taps[d].shared.isConst(1))) ok = ok && b.compare(OpKind::Eq, mod(first, st[d]), 0);
      window[d] = floorDiv(first, st[d]);
      ok = ok && b.inRange(window[d], 0, d == 0 ? oh : ow);
    }
    return b.masked(
        ok, [&] { return x.at(b, {i[0], i[1] * k[0] * k[1] + tap[0] * k[1] + tap[1], window[0] * ow + window[1]}); }, b.constant(acc, 0));
  };
  Tensor r = o.ctx.reduce(loops::ReduceKind::Sum, acc, out, {taps[0].count, taps[1].count}, term)[0];
  r = cast(r, x.dtype());
  return {flat ? select(r, 0, 0) : r};
}

static Tensors matrixNorm(OpCall &o) {
  Tensor x = o.t("self");
  std::string text = o.text("ord", "");
  const graph::Argument *a = o.node.arg("ord");
  bool none = !o.has("ord");
  Dims dims = o.ints("dim");
  bool isMatrix = o.node.target.find("matrix_norm") != std::string::npos ||
                  (!none && dims.size() != 1 && (x.rank() == 2 || dims.size() == 2));
  if (dims.empty() && isMatrix) dims = {-2, -1};
  (void)a;
  bool keep = o.flag("keepdim");
  DType t = o.out().dtype;
  if (!isMatrix) return {vectorNorm(x, none ? 2.0 : o.number("ord", 2), dims, keep, t)};
  if (text == "fro" || (none && text.empty())) return {vectorNorm(x, 2, dims, keep, t)};
  double p = o.number("ord", 0);
  if (text == "nuc" || std::fabs(p) == 2) {
    std::vector<int> order;
    for (int64_t d = 0; d < x.rank(); ++d)
      if (d != wrap(dims[0], x.rank()) && d != wrap(dims[1], x.rank())) order.push_back(static_cast<int>(d));
    for (int64_t d : dims) order.push_back(static_cast<int>(wrap(d, x.rank())));
    Tensor m = permute(x, order);
    if (std::string why = anyConstSizeFault(m); !why.empty()) return o.fail(why);
    if (rowsOf(m) == 0 || columnsOf(m) == 0) return p == -2 ? o.fail("an empty matrix has no least singular value") : Tensors{full(o.ctx, o.out().sizes, t, 0)};
    return {reshape(cast(spectralNorm(m, text == "nuc" ? 0 : static_cast<int>(p)), t), o.out().sizes)};
  }
  if (!text.empty() || !(std::fabs(p) == 1 || std::isinf(p))) return o.fail("this norm is not known");
  int64_t rows = wrap(dims[0], x.rank()), cols = wrap(dims[1], x.rank());
  int64_t summed = std::fabs(p) == 1 ? rows : cols, kept = std::fabs(p) == 1 ? cols : rows;
  Tensor s = vectorNorm(x, 1, {summed}, true, t);
  Tensor r = p > 0 ? amax(s, {kept}, true) : amin(s, {kept}, true);
  return {reshape(r, o.out().sizes)};
}

/// Of a number of elements that is not known, or into a number of rows that the model leaves to the data: what a mask takes of all tuples.
static Tensor combinationsTaken(const Tensor &x, int64_t r, bool again, Expr rows) {
  const Expr n = x.size(0);
  const Sizes sizes(static_cast<size_t>(r), n);
  const Tensor rises = Tensor::lazy(x.ctx(), DType::Bool, sizes, [=](BodyBuilder &b, const Index &i) {
    Val all = b.isTrue();
    for (size_t d = 0; d + 1 < i.size(); ++d) all = all && b.compare(again ? OpKind::Le : OpKind::Lt, i[d], i[d + 1]);
    return all;
  });
  Tensors columns;
  for (const Tensor &at : coordinatesOf(positionsOf(rises, rows), sizes)) columns.push_back(unsqueeze(indexSelect(x, 0, at), 1));
  return concat(columns, 1);
}

static Tensors combinationsOp(OpCall &o) {
  Tensor x = o.t("self");
  int64_t r = o.integer("r", 2);
  bool again = o.flag("with_replacement");
  std::optional<int64_t> n = x.size(0).asConst();
  if (r == 0) return {full(o.ctx, {Expr(0)}, x.dtype(), 0)};
  if (!n || !o.ctx.isKnown(o.out().sizes[0])) return {combinationsTaken(x, r, again, o.out().sizes[0])};
  std::vector<int64_t> flat, at(static_cast<size_t>(r));
  for (int64_t k = 0; k < r; ++k) at[static_cast<size_t>(k)] = again ? 0 : k;
  bool more = *n > 0 && (again || r <= *n);
  while (more) {
    flat.insert(flat.end(), at.begin(), at.end());
    if (flat.size() > (1u << 22)) return o.fail("more than four million indices");
    int64_t k = r - 1;
    while (k >= 0 && at[static_cast<size_t>(k)] == (again ? *n - 1 : *n - r + k)) --k;
    if (k < 0) break;
    ++at[static_cast<size_t>(k)];
    for (int64_t q = k + 1; q < r; ++q) at[static_cast<size_t>(q)] = at[static_cast<size_t>(q - 1)] + (again ? 0 : 1);
  }
  int64_t rows = static_cast<int64_t>(flat.size()) / r;
  if (rows == 0) return {full(o.ctx, {Expr(0), Expr(r)}, x.dtype(), 0)};
  std::vector<uint8_t> bytes(flat.size() * 8);
  std::copy(flat.begin(), flat.end(), reinterpret_cast<int64_t *>(bytes.data()));
  Tensor index = o.ctx.addConstant(DType::I64, {Expr(rows), Expr(r)}, std::move(bytes));
  return {reshape(indexSelect(x, 0, flatten(index)), {Expr(rows), Expr(r)})};
}

static Tensors nonzeroStatic(OpCall &o) {
  Tensor x = o.t("self");
  if (x.rank() == 0) return {fullInt(o.ctx, o.out().sizes, DType::I64, 0)};
  Expr size = o.expr("size");
  Tensor m = flatten(cast(x, DType::Bool));
  m.reused();
  Tensor rank = o.ctx.scan(loops::ScanKind::Sum, DType::I64, m.sizes(), 0, false,
                           [m](BodyBuilder &b, const Index &i) { return b.cast(m.at(b, i), DType::I64); });
  Strided w = o.ctx.allocate(DType::I64, o.out().sizes);
  o.ctx.store(fullInt(o.ctx, o.out().sizes, DType::I64, o.integer("fill_value", -1)), w);
  Sizes s = x.sizes(), strides = denseStrides(s);
  for (size_t d = 0; d < s.size(); ++d)
    o.ctx.scatter(
        m.sizes(),
        [&](BodyBuilder &b, const Index &i) {
          Val take = m.at(b, i), at = rank.at(b, i) - 1.0;
          take = take && at < b.index(size);
          Expr row = b.indirect(where(take, at, b.constantInt(DType::I64, 0)), size, false, false);
          return Lowering::ScatterItem{
              {row, Expr(static_cast<int64_t>(d))}, b.index(mod(floorDiv(i[0], strides[d]), s[d])), take};
        },
        w, DType::I64, loops::StoreMode::Set);
  return {Tensor::strided(o.ctx, DType::I64, o.out().sizes, w)};
}

/// Python's arithmetic on floats that depend on sizes, in Python's precision.
template <OpKind K> static Tensors floatOfSizes(OpCall &o) {
  if (!o.givesFloat()) return o.fail("an integer that does not follow from the sizes");
  return {binary(K, cast(o.operand(0), DType::F64).asTensor(), cast(o.operand(1), DType::F64).asTensor())};
}

/// Python's comparison of floats, as a truth.
template <OpKind K> static Tensors comparisonOfFloats(OpCall &o) {
  return {binary(K, cast(o.operand(0), DType::F64).asTensor(), cast(o.operand(1), DType::F64).asTensor())};
}

static void addFloatsOfSizes(OpTable &t) {
  t.add("python::_operator.lt", comparisonOfFloats<OpKind::Lt>);
  t.add("python::_operator.le", comparisonOfFloats<OpKind::Le>);
  t.add("python::_operator.gt", comparisonOfFloats<OpKind::Gt>);
  t.add("python::_operator.ge", comparisonOfFloats<OpKind::Ge>);
  t.add("python::_operator.eq", comparisonOfFloats<OpKind::Eq>);
  t.add("python::_operator.ne", comparisonOfFloats<OpKind::Ne>);
  t.add("python::_operator.and_", [](OpCall &o) -> Tensors { return {binary(OpKind::And, cast(o.operand(0), DType::Bool).asTensor(), cast(o.operand(1), DType::Bool).asTensor())}; });
  t.add("python::_operator.or_", [](OpCall &o) -> Tensors { return {binary(OpKind::Or, cast(o.operand(0), DType::Bool).asTensor(), cast(o.operand(1), DType::Bool).asTensor())}; });
  t.add("python::torch.sym_not", [](OpCall &o) -> Tensors { return {unary(cast(o.operand(0), DType::Bool).asTensor(), OpKind::Not)}; });
  t.add("python::torch.sym_float", [](OpCall &o) -> Tensors { return {cast(o.operand(0), DType::F64)}; });
  t.add("python::_operator.add", floatOfSizes<OpKind::Add>);
  t.add("python::_operator.sub", floatOfSizes<OpKind::Sub>);
  t.add("python::_operator.mul", floatOfSizes<OpKind::Mul>);
  t.add("python::_operator.truediv", floatOfSizes<OpKind::Div>);
  t.add("python::_operator.floordiv", floatOfSizes<OpKind::FloorDiv>);
  t.add("python::_operator.mod", floatOfSizes<OpKind::Mod>);
  t.add("python::_operator.pow", floatOfSizes<OpKind::Pow>);
  t.add("python::torch.sym_max", floatOfSizes<OpKind::Max>);
  t.add("python::torch.sym_min", floatOfSizes<OpKind::Min>);
  t.add("python::_operator.neg", [](OpCall &o) -> Tensors { return {neg(cast(o.operand(0), DType::F64))}; });
  t.add("python::math.sqrt python::torch._sym_sqrt",
        [](OpCall &o) -> Tensors { return {unary(cast(o.operand(0), DType::F64).asTensor(), OpKind::Sqrt)}; });
}

static void addSeries(OpTable &t) {
  t.add("_chunk_cat.default", chunkCat);
  t.add("histc.default", histogram);
  t.add("diff.default", diffOp);
  t.add("trapezoid.x trapezoid.dx trapz.x trapz.dx", [](OpCall &o) -> Tensors {
    int64_t d = 0;
    const Tensor y = o.t("y");
    // Without a sample the area is 0, whatever x is.
    if (y.rank() > 0 && y.size(wrap(o.integer("dim", -1), y.rank())).isConst(0)) return {full(o.ctx, o.out().sizes, o.out().dtype, 0)};
    Tensor a = trapezoids(o, d);
    return {sum(a, {d}, false, o.out().dtype)};
  });
  t.add("cumulative_trapezoid.x cumulative_trapezoid.dx", [](OpCall &o) -> Tensors {
    int64_t d = 0;
    Tensor a = cast(trapezoids(o, d), o.out().dtype);
    auto running = [&](const Tensor &x) {
      return cast(o.ctx.scan(loops::ScanKind::Sum, computeType(x.dtype()), x.sizes(), d, false, [x](BodyBuilder &b, const Index &i) { return x.at(b, i); }), x.dtype());
    };
    if (a.isComplex()) return {Tensor::complex(running(a.real()), running(a.imag()), a.dtype())};
    return {running(a)};
  });
  t.add("im2col.default", im2col);
  t.add("col2im.default", col2im);
  t.add("linalg_norm.default linalg_norm.ord_str linalg_matrix_norm.default linalg_matrix_norm.str_ord", matrixNorm);
  t.add("combinations.default", combinationsOp);
  t.add("nonzero_static.default", nonzeroStatic);
}

static void addCombinations(OpTable &t) {
  t.add("cartesian_prod.default", [](OpCall &o) -> Tensors {
    Tensors xs = o.list("tensors"), cols;
    if (xs.size() == 1) return {xs[0]};
    Sizes grid;
    for (const Tensor &x : xs) grid.push_back(x.size(0));
    Expr rows = product(grid);
    for (size_t k = 0; k < xs.size(); ++k) {
      Tensor g = remap(xs[k], grid, [k](const Index &i) { return Index{i[k]}; });
      cols.push_back(reshape(g, {rows, Expr(1)}));
    }
    return {concat(cols, 1)};
  });
  t.add("sum_to_size.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    Sizes to = o.exprs("size");
    Dims dims;
    size_t lead = x.sizes().size() - to.size();
    for (size_t d = 0; d < x.sizes().size(); ++d)
      if (d < lead || (to[d - lead].isConst(1) && !x.sizes()[d].isConst(1))) dims.push_back(static_cast<int64_t>(d));
    if (dims.empty()) return {cast(x, o.out().dtype)};
    return {reshape(sum(x, dims, true, o.out().dtype), to)};
  });
  t.add("isreal.default", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self");
    if (!x.isComplex()) return {full(o.ctx, x.sizes(), DType::Bool, 1)};
    return {binary(OpKind::Eq, x.imag(), scalarInt(o.ctx, 0))};
  });
  t.add("is_nonzero.default",
        [](OpCall &o) -> Tensors { return o.fail("its result is a Python bool that depends on the data"); });
  t.add("mvlgamma.default special_multigammaln.default", [](OpCall &o) -> Tensors {
    int64_t p = o.integer("p");
    return {mapFloat(o.t("self"), [p](Val v) {
      Val s = num(v, static_cast<double>(p * (p - 1)) / 4 * std::log(M_PI));
      for (int64_t k = 0; k < p; ++k) s = s + un(OpKind::Lgamma, v - static_cast<double>(k) / 2);
      return s;
    })};
  });
}

static void addPointwiseGradients(OpTable &t) {
  t.add("native_dropout_backward.default", [](OpCall &o) -> Tensors {
    Tensor g = cast(o.t("grad_output"), o.out().dtype);
    return {mulNumber(mul(g, cast(o.t("mask"), g.dtype())), o.number("scale"))};
  });
  t.add("_softmax_backward_data.default _log_softmax_backward_data.default", [](OpCall &o) -> Tensors {
    Tensor g = o.t("grad_output"), y = o.t("output");
    int64_t d = o.integer("dim");
    DType acc = computeType(y.dtype());
    Tensor ga = cast(g, acc), ya = cast(y, acc);
    bool log = o.node.target.find("log") != std::string::npos;
    if (y.rank() == 0) return {log ? full(o.ctx, {}, o.out().dtype, 0) : full(o.ctx, {}, o.out().dtype, 0)};
    Tensor r;
    if (log)
      r = sub(ga, mul(unary(ya, OpKind::Exp), sum(ga, {d}, true, acc)));
    else
      r = mul(ya, sub(ga, sum(mul(ga, ya), {d}, true, acc)));
    return {cast(r, o.out().dtype)};
  });
  t.add("threshold_backward.default", [](OpCall &o) -> Tensors {
    Tensor g = o.t("grad_output"), x = o.t("self"), xs[] = {g, x};
    double th = o.number("threshold");
    return {pointwise(xs, resultType(xs), resultType(xs),
                      [th](std::span<const Val> v) { return where(v[1] <= th, 0.0, v[0]); })};
  });
  t.add("sigmoid_backward.default tanh_backward.default", [](OpCall &o) -> Tensors {
    Tensor g = o.t("grad_output"), y = o.t("output"), xs[] = {g, y};
    bool tanh = o.node.target == "aten.tanh_backward.default";
    return {pointwise(xs, y.dtype(), y.dtype(), [tanh](std::span<const Val> v) {
      return tanh ? v[0] * (1.0 - v[1] * v[1]) : v[0] * (1.0 - v[1]) * v[1];
    })};
  });
}

/// Distances of each row from every row behind it. Pair k is of row i, before which there are i (2 n - i - 1) / 2 pairs, and the (k - those)-th row behind it.
static Tensors pairwiseDistances(OpCall &o) {
  const Tensor x = source(o.t("self"));
  const Expr n = x.size(0);
  const Sizes pairs{o.out().sizes[0]};
  if (pairs[0].isConst(0)) return {full(o.ctx, {Expr(0)}, x.dtype(), 0)};
  auto before = [n](Expr i) { return floorDiv(i * (2 * n - i - 1), 2); };
  const Tensor row = Tensor::lazy(o.ctx, DType::I64, pairs, [=](BodyBuilder &b, const Index &k) {
    return bisect(b, [&](Expr at) { return b.index(before(at)); }, n, b.index(k[0]), true) - 1.0;
  }).realize();
  const Tensor other = Tensor::lazy(o.ctx, DType::I64, pairs, [=](BodyBuilder &b, const Index &k) {
    const Expr i = b.indirect(row.at(b, k), n, false, false);
    return b.index(k[0] - before(i) + i + 1);
  }).realize();
  return {vectorNorm(sub(indexSelect(x, 0, row), indexSelect(x, 0, other)), o.number("p", 2), {-1}, false, x.dtype())};
}

void addMisc(OpTable &t) {
  addFloatsOfSizes(t);
  addSeries(t);
  addCombinations(t);
  addPointwiseGradients(t);
  t.add("diagflat.default", [](OpCall &o) -> Tensors {
    Tensor x = flatten(o.t("self"));
    int64_t k = o.integer("offset", 0);
    return {Tensor::lazy(o.ctx, x.dtype(), o.out().sizes, [x, k](BodyBuilder &b, const Index &i) {
      return b.masked(
          b.compare(OpKind::Eq, i[0] + k, i[1]), [&] { return x.at(b, {k >= 0 ? i[0] : i[1]}); },
          b.constant(computeType(x.dtype()), 0));
    })};
  });
  t.add("bilinear.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("input1"), b = o.t("input2"), w = o.t("weight"), bias = o.opt("bias");
    DType d = o.out().dtype;
    Expr rows = vectorsOf(a), out = w.size(0), k1 = w.size(1), k2 = w.size(2);
    // [rows, K1] x [K1, out*K2], then the dot product with the second input.
    Tensor first = matmul2(reshape(a, {rows, k1}), reshape(permute(w, {1, 0, 2}), {k1, out * k2}), d);
    Tensor y = sum(mul(reshape(first, {rows, out, k2}), reshape(b, {rows, Expr(1), k2})), {2}, false, d);
    if (bias.valid()) y = add(y, bias);
    return {reshape(y, o.out().sizes)};
  });
  t.add("frexp.Tensor", [](OpCall &o) -> Tensors {
    Tensor x = o.t("self"), xs[] = {x};
    DType d = x.dtype();
    auto exponent = [](Val v) {
      Val a = un(OpKind::Abs, v), e = un(OpKind::Floor, un(OpKind::Log2, a)) + 1.0;
      // log2 may round up at a power of two, and down just below it.
      Val m = a / un(OpKind::Exp2, e);
      e = where(m >= 1.0, e + 1.0, where(m < 0.5, e - 1.0, e));
      return where(eq(a, 0.0) || un(OpKind::IsInf, a) || un(OpKind::IsNan, a), 0.0, e);
    };
    Tensor m =
        pointwise(xs, d, d, [exponent](std::span<const Val> v) { return v[0] / un(OpKind::Exp2, exponent(v[0])); });
    Tensor e = pointwise(xs, d, DType::I32,
                         [exponent](std::span<const Val> v) { return v[0].b->cast(exponent(v[0]), DType::I32); });
    return {m, e};
  });
  t.add("pdist.default _pdist_forward.default", pairwiseDistances);
  addLinalg(t);
  t.onComplex(OnComplex::Own, "diff trapezoid trapz cumulative_trapezoid isreal sum_to_size cartesian_prod combinations linalg_norm linalg_matrix_norm nonzero_static");
  t.onComplex(OnComplex::Parts, "diagflat _chunk_cat im2col col2im");
}

} // namespace neso::lower
