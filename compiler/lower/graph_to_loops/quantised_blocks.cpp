// Quantised numbers as torchao writes them: one scale, and one zero point, for each block of a tensor that is cut into equal blocks.
//
// The formulas are those of torchao/quantization/quant_primitives.py, in their order, since rounding depends on it.
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

namespace {

/// How a tensor is cut: a block takes `block[d]` elements of dim d.
struct Blocks {
  Sizes sizes, block;
  Sizes split;    // [sizes[d] / block[d], block[d]] in place of a dim that is cut in several pieces
  Dims inside;    // dims of split that lie inside a block
  Sizes count;    // blocks along each dim
  Sizes kept;     // sizes of split without those inside
};

Blocks blocksOf(OpCall &o, const Tensor &x) {
  Blocks out;
  out.sizes = x.sizes(), out.block = o.exprs("block_size");
  if (out.block.size() != out.sizes.size()) {
    o.fail("its block_size has another rank than its tensor");
    out.block.assign(out.sizes.size(), Expr(1));
  }
  for (size_t d = 0; d < out.sizes.size(); ++d) {
    const Expr n = out.sizes[d], b = out.block[d];
    const bool one = b.isConst(1), whole = !one && o.ctx.equal(n, b);
    const Expr blocks = one ? n : whole ? Expr(1) : floorDiv(n, b);
    out.count.push_back(blocks);
    if (!whole) out.split.push_back(blocks), out.kept.push_back(blocks);
    if (one) continue;
    out.inside.push_back(static_cast<int64_t>(out.split.size()));
    out.split.push_back(b);
  }
  return out;
}

/// For each element of the tensor that is cut, the number of its block.
Tensor spread(const Tensor &numbers, const Blocks &blocks) {
  return remap(reshape(numbers, blocks.count), blocks.sizes, [blocks](const Index &i) {
    Index at;
    for (size_t d = 0; d < i.size(); ++d)
      at.push_back(blocks.block[d].isConst(1) ? i[d] : blocks.count[d].isConst(1) ? Expr(0) : floorDiv(i[d], blocks.block[d]));
    return at;
  });
}

/// The least and the greatest number that is written, those of the type unless they are given.
struct Bounds {
  double least, most;
};
Bounds boundsOf(OpCall &o, DType t) {
  return {o.has("quant_min") ? o.number("quant_min") : leastOf(t), o.has("quant_max") ? o.number("quant_max") : greatestOf(t)};
}

Tensor clamped(const Tensor &x, Bounds bounds) {
  return map(x, [bounds](Val v) { return vmin(vmax(v, num(v, bounds.least)), num(v, bounds.most)); });
}

Tensors quantise(OpCall &o) {
  const Tensor x = o.t("input");
  const Blocks blocks = blocksOf(o, x);
  const Tensor inverse = map(o.t("scale"), [](Val v) { return 1.0 / v; });
  Tensor q = unary(mul(x, spread(inverse, blocks)), OpKind::Round);
  if (const Tensor zero = o.opt("zero_point"); zero.valid()) q = add(q, spread(zero, blocks));
  return {cast(clamped(q, boundsOf(o, o.out().dtype)), o.out().dtype)};
}

Tensors dequantise(OpCall &o) {
  const Tensor x = o.t("input");
  const Blocks blocks = blocksOf(o, x);
  const DType t = o.out().dtype;
  Tensor numbers = cast(x, t);
  if (const Tensor zero = o.opt("zero_point"); zero.valid()) numbers = sub(numbers, cast(spread(zero, blocks), t));
  return {cast(mul(numbers, spread(o.t("scale"), blocks)), t)};
}

Tensor atLeast(const Tensor &x, double least) {
  return map(x, [least](Val v) { return vmax(v, num(v, least)); });
}

/// Scale and zero point of each block, from its least and greatest number, zero among them.
Tensors choose(OpCall &o) {
  const Tensor x = o.t("input").reused();
  const Blocks blocks = blocksOf(o, x);
  const std::optional<DType> target = o.dtype("target_dtype");
  if (!target && !(o.has("quant_min") && o.has("quant_max"))) return o.fail("its type has no bounds");
  const Bounds bounds = boundsOf(o, target.value_or(DType::I8));
  const std::string mapping = o.text("mapping_type");
  if (blocks.inside.empty()) return o.fail("its blocks are of one element");
  const Tensor parts = reshape(x, blocks.split);
  const Tensor low = map(amin(parts, blocks.inside, false), [](Val v) { return vmin(v, num(v, 0)); });
  const Tensor high = map(amax(parts, blocks.inside, false), [](Val v) { return vmax(v, num(v, 0)); });
  // torchao takes the least normal number for the least scale unless one is given.
  const double eps = o.has("eps") ? o.number("eps") : leastNormalOf(x.dtype()), range = bounds.most - bounds.least;
  Tensor scale, zero;
  if (mapping == "ASYMMETRIC") {
    scale = atLeast(map(sub(high, low), [range](Val v) { return v / range; }), eps);
    zero = clamped(map(div(low, scale), [bounds](Val v) { return bounds.least - un(OpKind::Round, v); }), bounds);
  } else if (mapping == "SYMMETRIC" || mapping == "SYMMETRIC_NO_CLIPPING_ERR") {
    if (mapping == "SYMMETRIC") {
      scale = map(binary(OpKind::Max, neg(low), high), [range](Val v) { return v / (range / 2); });
    } else {
      const Tensor below = map(low, [bounds](Val v) { return v / bounds.least; }), above = map(high, [bounds](Val v) { return v / bounds.most; });
      scale = where(binary(OpKind::Gt, below, above), below, above);
    }
    scale = atLeast(scale, eps);
    zero = full(o.ctx, scale.sizes(), scale.dtype(), std::trunc((bounds.most + bounds.least + 1) / 2));
  } else {
    return o.fail("it knows no mapping '" + mapping + "'");
  }
  const Sizes &sizes = o.flag("keepdim") ? blocks.count : blocks.kept;
  return {cast(reshape(scale, sizes), o.out(0).dtype), cast(reshape(zero, sizes), o.out(1).dtype)};
}

/// One scale a block for floats of 8 bits.
Tensors chooseOfFloats(OpCall &o) {
  const Tensor x = o.t("tensor");
  const Blocks blocks = blocksOf(o, x);
  if (blocks.inside.empty()) return o.fail("its blocks are of one element");
  Tensor most = amax(reshape(unary(x, OpKind::Abs), blocks.split), blocks.inside, false);
  if (o.has("hp_value_lb")) most = atLeast(most, o.number("hp_value_lb"));
  if (o.has("hp_value_ub")) most = map(most, [bound = o.number("hp_value_ub")](Val v) { return vmin(v, num(v, bound)); });
  Tensor scale = map(most, [bound = greatestOf(o.dtype("float8_dtype").value_or(DType::F8E4M3FN))](Val v) { return v / bound; });
  if (o.dtype("scale_dtype").value_or(DType::F32) != DType::F32)
    scale = unary(unary(unary(scale, OpKind::Log2), OpKind::Round), OpKind::Exp2);
  return {cast(reshape(scale, blocks.count), o.out().dtype)};
}

/// A scale that has the tensor's rank and divides its sizes; one that broadcasts is itself.
Tensor spreadOver(OpCall &o, const Tensor &scale, const Tensor &x) {
  Blocks blocks;
  blocks.sizes = x.sizes();
  bool broadcasts = scale.numel().isConst(1);
  if (!broadcasts && scale.rank() == x.rank()) {
    broadcasts = true;
    for (int64_t d = 0; d < x.rank(); ++d) broadcasts &= scale.size(d).isConst(1) || o.ctx.equal(scale.size(d), x.size(d));
  }
  if (broadcasts) return scale;
  if (scale.rank() != x.rank()) {
    o.fail("its scale has another rank than its tensor");
    return x;
  }
  for (int64_t d = 0; d < x.rank(); ++d) {
    blocks.count.push_back(scale.size(d));
    blocks.block.push_back(o.ctx.equal(scale.size(d), x.size(d)) ? Expr(1) : floorDiv(x.size(d), scale.size(d)));
  }
  return spread(scale, blocks);
}

Tensors quantiseToFloats(OpCall &o) {
  const Tensor x = cast(o.t("tensor"), DType::F32);
  const double most = greatestOf(o.out().dtype);
  return {cast(clamped(div(x, spreadOver(o, o.t("scale"), x)), {-most, most}), o.out().dtype)};
}

Tensors dequantiseFloats(OpCall &o) {
  const Tensor x = cast(o.t("tensor"), DType::F32);
  return {cast(mul(x, spreadOver(o, o.t("scale"), x)), o.out().dtype)};
}

} // namespace

void addQuantisedBlocks(OpTable &t) {
  t.add("torch::torchao.quantize_affine.default", quantise);
  t.add("torch::torchao.dequantize_affine.default", dequantise);
  t.add("torch::torchao.choose_qparams_affine.default", choose);
  t.add("torch::torchao.choose_scale_float8.default", chooseOfFloats);
  t.add("torch::torchao.quantize_affine_float8_non_decomposed.default", quantiseToFloats);
  t.add("torch::torchao.dequantize_affine_float8_non_decomposed.default", dequantiseFloats);
}

} // namespace neso::lower
