// Products of groups of rows, columns or terms whose sizes the data decide: _grouped_mm and _scaled_grouped_mm, of which mixtures of experts are made.
//
// One loop over the groups, in each turn the product of one group as large as it is; a few rows find their groups in one kernel. Operands without a dimension of groups are cut along
// one dimension at `offs`, which says where each group ends: rows of the result if the left one is cut, columns if the right one is, and
// terms of the sums if both are.
#include "lower/graph_to_loops/op_call.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

namespace {

struct Operands {
  Tensor a, b;             // [M, K] or [G, M, K]; [K, N] or [G, K, N]
  Tensor scaleA, scaleB;   // one a row of a and a column of b, for each group if both are cut; invalid: none
  DType type;              // of the operands in the products
  DType out;
  bool cutA() const { return a.rank() == 2; }
  bool cutB() const { return b.rank() == 2; }
  Expr rows() const { return a.sizes()[a.sizes().size() - 2]; }
  Expr columns() const { return b.sizes().back(); }
  Expr terms() const { return a.sizes().back(); }
  /// The size of what is cut.
  Expr whole() const { return cutA() && cutB() ? terms() : cutA() ? rows() : columns(); }
};

/// The part of a group: from `first` on, `count` of what is cut.
struct Part {
  Expr group, first, count;
};

Index with(const Index &before, std::initializer_list<Expr> more) {
  Index out = before;
  out.insert(out.end(), more);
  return out;
}

/// The product of one group; of all of them, [G, M, N], where nothing is cut: then the group is the first index.
ContractionSpec productOf(const Operands &x, const Part &part) {
  const bool both = x.cutA() && x.cutB(), neither = !x.cutA() && !x.cutB();
  const Expr row = x.cutA() && !both ? part.first : 0, column = x.cutB() && !both ? part.first : 0, term = both ? part.first : 0;
  const size_t lead = neither ? 1 : 0;
  auto group = [=](const Index &i) { return neither ? i[0] : part.group; };
  ContractionSpec spec;
  if (neither) spec.ranges.push_back(x.a.sizes()[0]);
  spec.ranges.push_back(x.cutA() && !both ? part.count : x.rows());
  spec.ranges.push_back(x.cutB() && !both ? part.count : x.columns());
  spec.reduceRanges = {both ? part.count : x.terms()};
  spec.operandType = x.type, spec.accType = DType::F32, spec.outType = x.out;
  spec.lhs = [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Index at = {row + i[lead], term + r[0]};
    return x.a.at(b, x.cutA() ? at : with({group(i)}, {at[0], at[1]}));
  };
  spec.rhs = [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Index at = {term + r[0], column + i[lead + 1]};
    return x.b.at(b, x.cutB() ? at : with({group(i)}, {at[0], at[1]}));
  };
  if (!x.scaleA.valid()) return spec;
  spec.epilogue = [=](BodyBuilder &b, const Index &i, Val sum) {
    auto scale = [&](const Tensor &s, Expr at, Expr size, bool cut) { return s.at(b, both ? Index{group(i) * size + at} : cut ? Index{at} : Index{group(i), at}); };
    return sum * scale(x.scaleA, row + i[lead], x.rows(), x.cutA()) * scale(x.scaleB, column + i[lead + 1], x.columns(), x.cutB());
  };
  return spec;
}

/// Where the group begins and how much it has, whatever stands in offs: nothing lies outside, as with slices.
Part partOf(Lowering &ctx, const Tensor &offs, Expr group, Expr whole) {
  auto clamped = [=](BodyBuilder &b, Val v, Val least) { return vmin(vmax(v, least), b.index(whole)); };
  auto first = [=](BodyBuilder &b) {
    const Val zero = b.constantInt(DType::I64, 0), before = b.cast(offs.at(b, {max(group - 1, 0)}), DType::I64);
    return clamped(b, where(b.compare(OpKind::Gt, group, 0), before, zero), zero);
  };
  const Tensor start = Tensor::lazy(ctx, DType::I64, {}, [=](BodyBuilder &b, const Index &) { return first(b); });
  const Tensor size = Tensor::lazy(ctx, DType::I64, {}, [=](BodyBuilder &b, const Index &) {
    const Val from = first(b);
    return clamped(b, b.cast(offs.at(b, {group}), DType::I64), from) - from;
  });
  const Part out{group, ctx.read(start), ctx.read(size)};
  const int64_t most = whole.asConst().value_or(INT64_MAX);
  for (Expr e : {out.first, out.count}) ctx.bound(e.symbol(), {0, most});
  return out;
}

/// Rows for each group up to which a loop, whose every turn reads from the device how much there is to do, costs more than it saves: matrices are
/// read about once either way.
constexpr int64_t kFewRows = 4;

/// Each row times the matrix of its group, found by counting how many groups end at or before it; zero for rows of none.
Tensor fewRows(Lowering &ctx, const Operands &x, const Tensor &ends) {
  const Expr groups = ends.sizes()[0];
  const Tensor group = ctx.reduce(loops::ReduceKind::Sum, DType::I64, {x.rows()}, {groups}, [=](BodyBuilder &b, const Index &i, const Index &g) {
    return b.cast(b.cast(ends.at(b, {g[0]}), DType::I64) <= b.index(i[0]), DType::I64);
  })[0];
  const DType t = computeType(x.type);
  return cast(ctx.reduce(loops::ReduceKind::Sum, t, {x.rows(), x.columns()}, {x.terms()}, [=](BodyBuilder &b, const Index &i, const Index &k) {
    const Val g = group.at(b, {i[0]});
    auto term = [&] { return b.cast(x.a.at(b, {i[0], k[0]}), t) * b.cast(x.b.at(b, {b.indirect(g, groups, false, false), k[0], i[1]}), t); };
    return b.masked(g < b.index(groups), term, b.constant(t, 0));
  })[0], x.out);
}

Tensors product(OpCall &o, const Operands &x, const Tensor &offs) {
  Lowering &ctx = o.ctx;
  if (o.opt("bias").valid()) return o.fail("a bias is not supported");
  if (x.a.rank() < 2 || x.a.rank() > 3 || x.b.rank() < 2 || x.b.rank() > 3) return o.fail("its operands are not of two or three dimensions");
  o.assumeEqual(x.terms(), x.b.sizes()[x.b.sizes().size() - 2]);
  if (!x.cutA() && !x.cutB()) {
    o.assumeEqual(x.a.sizes()[0], x.b.sizes()[0]);
    return {ctx.contract(productOf(x, {}))};
  }
  if (!offs.valid() || offs.rank() != 1) return o.fail("its operands are cut into groups and offs does not say where");
  const Tensor ends = source(offs);
  const Expr groups = ends.sizes()[0];
  for (const Tensor &t : {x.a, x.b})
    if (t.rank() == 3) o.assumeEqual(t.sizes()[0], groups);
  const std::optional<int64_t> rows = x.rows().asConst(), count = groups.asConst();
  if (x.cutA() && !x.cutB() && !x.scaleA.valid() && rows && count && *rows <= kFewRows * *count) return {fewRows(ctx, x, ends)};
  const bool both = x.cutA() && x.cutB();
  const Tensor out = place(ctx, x.out, both ? Sizes{groups, x.rows(), x.columns()} : Sizes{x.rows(), x.columns()});
  // What lies behind the last group, and all of it where there is no group.
  put(full(ctx, out.sizes(), x.out, 0), out);
  forTurns(ctx, groups, [&](Expr group) {
    const Part part = partOf(ctx, ends, group, x.whole());
    ContractionSpec spec = productOf(x, part);
    spec.into = *out.asStrided();
    spec.into->strides = {x.columns(), 1};
    spec.into->offset = both ? group * x.rows() * x.columns() : x.cutA() ? part.first * x.columns() : part.first;
    ctx.contract(spec);
  });
  return {out};
}

Tensors unscaled(OpCall &o, const char *left, const char *right) {
  const Tensor a = source(o.t(left)), b = source(o.t(right));
  return product(o, {a, b, {}, {}, promote(a.dtype(), b.dtype()), o.out().dtype}, o.opt("offs"));
}
Tensors plain(OpCall &o) { return unscaled(o, "self", "mat2"); }
/// The library transformers has an operator of its own for types that PyTorch's does not take.
Tensors ofTransformers(OpCall &o) { return unscaled(o, "input", "weight"); }

Tensors scaled(OpCall &o) {
  if (o.opt("scale_result").valid()) return o.fail("a scale of the result is not supported");
  const Tensor a = source(o.t("self")), b = source(o.t("mat2"));
  const Operands x = {a, b, source(o.t("scale_a")), source(o.t("scale_b")), scaledProductType(a.dtype(), b.dtype()), o.out().dtype};
  const bool both = x.a.rank() == 2 && x.b.rank() == 2;
  const Expr groups = both && o.opt("offs").valid() ? o.opt("offs").numel() : Expr(1);
  auto fits = [&](const Tensor &scale, const Tensor &operand, Expr size) {
    const Expr each = operand.rank() == 3 ? operand.sizes()[0] * size : groups * size;
    return scale.dtype() == DType::F32 && scale.rank() == operand.rank() - 1 && o.ctx.equal(scale.numel(), each);
  };
  if (x.a.rank() < 2 || x.b.rank() < 2 || !fits(x.scaleA, x.a, x.rows()) || !fits(x.scaleB, x.b, x.columns())) return o.fail("its scales are not one of F32 a row and a column of each group");
  return product(o, x, o.opt("offs"));
}

} // namespace

void addGrouped(OpTable &t) {
  t.add("_grouped_mm.default", plain);
  t.add("torch::transformers.grouped_mm_fallback.default", ofTransformers);
  t.add("_scaled_grouped_mm.default", scaled);
}

} // namespace neso::lower
