// Scaled dot product attention as an Attention node: PyTorch's operators, and what attention_match.h found.
#include "lower/graph_to_loops/attention.h"

#include <algorithm>
#include <cmath>

#include "lower/graph_to_loops/random.h"

namespace neso::lower {

using Axis = loops::AttentionSpec::Axis;

/// What else the written-out form is asked for; null where it is not.
struct Besides {
  Tensor *logSumExp = nullptr; // of the scores
  Tensor *weights = nullptr;   // by which the values are added up
  std::function<Tensor(const Tensor &)> drop; // applied to the weights
  bool emptyIsNan = false; // what a row without any key gives, instead of zeros
};

Tensor zeroWithoutKeys(const Tensor &p, const Tensor &scores) {
  const Tensor most[] = {p, amax(scores, {-1}, true)};
  return pointwise(most, p.dtype(), p.dtype(), [](std::span<const Val> v) { return where(v[1] <= num(v[1], -HUGE_VAL), num(v[0], 0), v[0]); });
}

/// The written-out form, for what the node does not do.
static Tensor attentionByProducts(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &mask, bool causal,
                                  double scale, DType out, const Besides &besides) {
  DType acc = computeType(out);
  Tensor scores = mulNumber(matmul(cast(q, acc), transpose(cast(k, acc), -1, -2)), scale);
  if (causal) {
    scores = Tensor::lazy(q.ctx(), acc, scores.sizes(), [scores, acc](BodyBuilder &b, const Index &i) {
      Val in = b.compare(OpKind::Le, i[i.size() - 1], i[i.size() - 2]);
      return where(in, scores.at(b, i), b.constant(acc, -HUGE_VAL));
    });
  }
  if (mask.valid()) {
    if (mask.dtype() == DType::Bool)
      scores = where(mask, scores, full(q.ctx(), {}, acc, -HUGE_VAL));
    else
      scores = add(scores, cast(mask, acc));
  }
  scores.realize();
  if (besides.logSumExp) *besides.logSumExp = logsumexp(scores, {-1});
  Tensor p = softmax(scores, -1, acc, false);
  if (!besides.emptyIsNan) p = zeroWithoutKeys(p, scores);
  p = cast(p, v.dtype());
  if (besides.drop) p = besides.drop(p);
  if (besides.weights) *besides.weights = p;
  return cast(matmul(p, v), out);
}

/// Where an operand's elements lie, as an index over the node's symbols. A factor that is the same for all elements
/// goes to `factor`, if given; a tensor of any other arithmetic is computed into a buffer first.
static loops::AttentionSpec::Operand operand(const Tensor &x, const std::vector<Axis> &axes, double *factor = nullptr) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    BodyBuilder b(x.ctx().facts);
    Index index;
    for (size_t d = 0; d < axes.size(); ++d)
      index.push_back(b.addIndex(loops::AttentionSpec::symbol(axes[d]), x.sizes()[d]));
    Val at = x.at(b, index);
    const std::vector<loops::Op> &ops = b.body().ops;
    const loops::Op *op = &b.op(at);
    double scale = 1;
    for (;;) {
      if (op->kind == OpKind::Cast && op->dtype == DType::F32 &&
          (isReducedFloat(ops[op->a].dtype) || ops[op->a].dtype == DType::F32)) {
        op = &ops[op->a];
      } else if (factor && op->kind == OpKind::Mul && op->dtype == DType::F32 && ops[op->b].kind == OpKind::Constant) {
        scale *= ops[op->b].imm, op = &ops[op->a];
      } else {
        break;
      }
    }
    bool plain = op->kind == OpKind::Load && op->a < 0;
    for (const loops::Op &other : ops) plain &= other.kind != OpKind::Indirect;
    if (plain) {
      if (factor) *factor *= scale;
      return {op->buffer, op->index, op->dtype};
    }
    // What the tensor looks at may do, as for key heads that are repeated.
    if (attempt == 0)
      x.realize();
    else
      x.realizeWith(denseStrides(x.sizes()));
  }
  NESO_UNREACHABLE("a tensor in a buffer is a plain load");
}

/// What an attention is, beside its operands.
struct AttentionForm {
  double scale = 1;
  bool causal = false, emptyIsNan = false;
  double masked = -HUGE_VAL;
  std::vector<int> order; // dims of the result from outermost to innermost in memory
};

/// The node for q [B, H, M, D], k [B, H, N, D], v [B, H, N, Dv] and a mask (may be invalid) that broadcasts to [B, H,
/// M, N].
static Tensor attentionNode(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &mask,
                            const AttentionForm &form) {
  Lowering &ctx = q.ctx();
  Sizes sizes{q.size(0), q.size(1), q.size(2), v.size(3)};
  if (std::any_of(sizes.begin(), sizes.end(), [](Expr e) { return e.isConst(0); }))
    return full(ctx, sizes, q.dtype(), 0);
  loops::AttentionSpec spec;
  spec.scale = form.scale;
  spec.q = operand(q, {Axis::Batch, Axis::Head, Axis::Query, Axis::Element}, &spec.scale);
  spec.k = operand(k, {Axis::Batch, Axis::Head, Axis::Key, Axis::Element}, &spec.scale);
  spec.v = operand(v, {Axis::Batch, Axis::Head, Axis::Key, Axis::Element});
  if (mask.valid()) {
    // Before it is broadcast, so that a mask that is computed is computed once for all heads.
    if (!mask.asStrided()) mask.realize();
    spec.mask = operand(broadcastTo(mask, {q.size(0), q.size(1), q.size(2), k.size(2)}),
                         {Axis::Batch, Axis::Head, Axis::Query, Axis::Key});
  }
  spec.keyLength = k.size(2);
  spec.headSize = q.size(3);
  spec.causal = form.causal, spec.emptyIsNan = form.emptyIsNan, spec.masked = form.masked;
  Strided w = ctx.allocate(q.dtype(), sizes, form.order);
  const Axis at[] = {Axis::Batch, Axis::Head, Axis::Query, Axis::Element};
  spec.out = {w.buffer, w.offset, q.dtype()};
  for (size_t d = 0; d < 4; ++d) spec.out.index = spec.out.index + loops::AttentionSpec::symbol(at[d]) * w.strides[d];
  ctx.addNode(std::move(spec), sizes);
  return Tensor::strided(ctx, q.dtype(), sizes, w);
}

Tensor matchedAttention(const AttentionMatch &m, const std::function<Tensor(graph::ValueId)> &value,
                        const Sizes &outSizes) {
  // [B, H] from however many leading dims there are.
  Sizes two = m.heads;
  while (two.size() < 2) two.push_back(1);
  while (two.size() > 2) two[0] = two[0] * two[1], two.erase(two.begin() + 1);
  auto whole = [&](const Tensor &x, Sizes lead) {
    Expr rows = x.size(-2), columns = x.size(-1);
    lead.insert(lead.end(), {rows, columns});
    return reshape(broadcastTo(x, lead), {two[0], two[1], rows, columns});
  };
  Tensor q = whole(value(m.q), m.firstLead), k = transpose(whole(value(m.k), m.firstLead), 2, 3),
         v = whole(value(m.v), m.lead);
  AttentionForm form;
  form.scale = m.scale;
  form.emptyIsNan = !m.safe;
  // Models put rows before heads right after.
  form.order = {0, 2, 1, 3};
  Tensor mask;
  bool alone = m.masks.size() == 1;
  for (const AttentionMask &step : m.masks) {
    Tensor x = value(step.value);
    using Kind = AttentionMask::Kind;
    if (step.kind == Kind::Add) {
      x = cast(x, DType::F32);
      if (step.factor != 1) x = mulNumber(x, step.factor);
    } else {
      x = cast(x, DType::Bool);
      if (step.kind == Kind::Drop) x = logicalNot(x);
      if (alone)
        form.masked = step.factor;
      else
        x = where(x, full(x.ctx(), {}, DType::F32, 0), full(x.ctx(), {}, DType::F32, step.factor));
    }
    // Leading dims as in the scores, without those that repeat.
    while (x.rank() < static_cast<int64_t>(step.scores.size())) x = unsqueeze(x, 0);
    bool repeats = true;
    for (int64_t d = 0; d + 2 < x.rank(); ++d) repeats &= x.size(d).isConst(1);
    if (!x.asStrided()) x.realize();
    // The scores of this step may show other leading dims than the heads that were settled on.
    Sizes stepLead(step.scores.begin(), step.scores.end() - 2);
    if (repeats)
      x = reshape(x, {1, 1, x.size(-2), x.size(-1)});
    else if (stepLead != two)
      x = whole(x, stepLead);
    mask = mask.valid() ? add(mask, x) : x;
  }
  return reshape(attentionNode(q, k, v, mask, form), outSizes);
}

/// Every key head serves as many query heads as there are more of them.
static Tensor widenHeads(const Tensor &x, Expr heads) {
  Sizes s = x.sizes();
  size_t d = s.size() - 3;
  Expr times = floorDiv(heads, s[d]);
  s[d] = heads;
  return remap(x, s, [d, times](const Index &i) {
    Index j = i;
    j[d] = floorDiv(i[d], times);
    return j;
  });
}

/// The log-sum-exp of each row as PyTorch's kernels give it: the memory-efficient one fills rows up to a multiple of 32 with infinity, or gives none at all.
static Tensor inKernelsRows(const Tensor &sums, Expr rows, const Sizes &sizes) {
  if (sizes.back().isConst(0)) return full(sums.ctx(), sizes, sums.dtype(), 0);
  Sizes own = sizes, none(sizes.size(), Expr(0)), more = none;
  own.back() = rows, more.back() = sizes.back() - rows;
  const Tensor flat = reshape(sums, own);
  return more.back().isConst(0) ? flat : pad(flat, none, more, HUGE_VAL);
}

/// Sizes that the operands must have in common.
static void demandCommonSizes(OpCall &o, const Tensor &q, const Tensor &k, const Tensor &v) {
  auto same = [&](Expr a, Expr b, const char *what) {
    if (!a.isConst(1) && !b.isConst(1)) o.mustAgree(a, b, what);
  };
  same(q.size(-1), k.size(-1), "a query has as many elements as a key");
  same(k.size(-2), v.size(-2), "there are as many keys as values");
  if (q.rank() != k.rank() || k.rank() != v.rank()) return;
  for (int64_t d = 0; d + 2 < k.rank(); ++d) {
    // Keys and values may each serve several heads of queries.
    if (d + 3 == k.rank()) continue;
    same(q.size(d), k.size(d), "queries and keys have as many batches");
    same(k.size(d), v.size(d), "keys and values have as many batches");
  }
}

static Tensors attentionOp(OpCall &o) {
  Tensor q = o.t("query"), k = o.t("key"), v = o.t("value"),
         mask = o.has("attn_mask") ? o.opt("attn_mask") : o.opt("attn_bias");
  demandCommonSizes(o, q, k, v);
  bool causal = o.flag("is_causal");
  const double dropped = o.number("dropout_p", 0);
  if (dropped > 0 && o.has("dropout_mask")) return o.fail("a mask of what is dropped is not supported");
  if (!isFloat(q.dtype())) return o.fail("only real floating point types are supported");
  Expr head = q.size(-1);
  // A scale that is known only when the model runs goes to the queries.
  const bool scaleOfRun = !o.has("scale") && !head.isConst();
  const double scale = scaleOfRun ? 1 : o.has("scale") ? o.number("scale") : 1 / std::sqrt(static_cast<double>(head.constValue()));
  // The operator without a kernel of its own gives the weights there, the others the log-sum-exp.
  const bool wantsSecond = o.out(1).rank() > 0 && o.isRead(1), wantsWeights = wantsSecond && o.node.target == "aten._scaled_dot_product_attention_math.default";
  DType t = o.out().dtype;
  Sizes outSizes = o.out().sizes;
  if (scaleOfRun) {
    const DType wide = computeType(t);
    q = mul(cast(q, wide), unary(exprAs(o.ctx, head, wide), OpKind::Rsqrt));
  }
  // PyTorch's fused operators have no flag for it. One query head is repeated for all key heads.
  const bool headed = q.rank() > 2 && q.rank() == k.rank();
  const bool fewerKeyHeads =
      o.flag("enable_gqa") || (headed && !o.ctx.equal(q.size(-3), k.size(-3)) && !q.size(-3).isConst(1));
  // The node computes in f32, from queries of the result's type.
  if (q.rank() != 4 || q.dtype() != t || k.rank() != 4 || v.rank() != 4 || wantsSecond || t == DType::F64 || dropped > 0) {
    if (fewerKeyHeads) k = widenHeads(k, q.size(-3)), v = widenHeads(v, q.size(-3));
    Tensor second;
    Besides besides;
    if (wantsSecond) (wantsWeights ? besides.weights : besides.logSumExp) = &second;
    if (dropped > 0) besides.drop = [&](const Tensor &p) { return withDropout(o, p, dropped); };
    Tensor y = attentionByProducts(q, k, v, mask, causal, scale, t, besides);
    if (!wantsSecond) return {y};
    return {y, cast(wantsWeights ? second : inKernelsRows(second, q.size(-2), o.out(1).sizes), o.out(1).dtype)};
  }
  if (mask.valid())
    while (mask.rank() < 4) mask = unsqueeze(mask, 0);
  if (fewerKeyHeads) k = widenHeads(k, q.size(1)), v = widenHeads(v, q.size(1));
  q = broadcastTo(q, {outSizes[0], outSizes[1], q.size(2), q.size(3)});
  AttentionForm form;
  form.scale = scale;
  form.causal = causal;
  // Memory order of the result as exported: [B, M, H, D] when the layer transposes it back right away.
  form.order = orderOfStrides(outSizes, o.out().strides, o.ctx.facts);
  return {attentionNode(cast(q, t), cast(k, t), cast(v, t), mask, form)};
}

// ---- whole layers, by their fast path

/// What a layer of several heads is given beside its operands.
struct Heads {
  int64_t count;
  Tensor inWeight, inBias, outWeight, outBias; // the first two of q, k and v, one behind the other
  Tensor mask;                                 // Bool: what is left out; may be invalid
};

/// [B, M, H * D] as [B, H, M, D].
static Tensor headsOf(const Tensor &x, int64_t heads) {
  return transpose(reshape(x, {x.size(0), x.size(1), heads, floorDiv(x.size(2), heads)}), 1, 2);
}

/// The layer's result and, where they are asked for, the weights of its heads [B, H, M, N].
static Tensor multiHead(const Tensor &query, const Tensor &key, const Tensor &value, const Heads &layer, Tensor *weights) {
  const Expr width = query.size(2);
  const Tensor given[] = {query, key, value};
  Tensors qkv;
  for (int64_t k = 0; k < 3; ++k)
    qkv.push_back(headsOf(linear(given[k], slice(layer.inWeight, 0, width * k, width), slice(layer.inBias, 0, width * k, width)), layer.count));
  const DType t = query.dtype();
  const double scale = 1 / std::sqrt(static_cast<double>(qkv[0].size(3).constValue()));
  const Tensor kept = layer.mask.valid() ? logicalNot(layer.mask) : Tensor();
  Tensor y;
  if (weights || t == DType::F64) {
    Besides besides;
    besides.weights = weights, besides.emptyIsNan = true;
    y = attentionByProducts(qkv[0], qkv[1], qkv[2], kept, false, scale, t, besides);
  } else {
    AttentionForm form;
    form.scale = scale, form.emptyIsNan = true;
    form.order = {0, 2, 1, 3};
    y = attentionNode(qkv[0], qkv[1], qkv[2], kept, form);
  }
  return linear(reshape(transpose(y, 1, 2), query.sizes()), layer.outWeight, layer.outBias);
}

/// The operands that both operators have; refused: not valid.
static std::optional<Heads> headsOf(OpCall &o, const Tensor &x, std::string_view count) {
  Heads out{o.integer(count), o.t("qkv_weight"), o.t("qkv_bias"), o.t("proj_weight"), o.t("proj_bias"), o.opt("mask")};
  if (x.rank() != 3 || !isFloat(x.dtype()) || !out.inWeight.size(1).isConst()) {
    o.fail("it is compiled for real tensors [B, T, D] and weights of a constant D alone");
    return std::nullopt;
  }
  if (!out.mask.valid()) return out;
  // 0: of queries and keys; 1: of each row's keys; 2: of all.
  const int64_t kind = o.integer("mask_type", -1);
  if (out.mask.rank() != (kind == 2 ? 4 : 2) || kind < 0 || kind > 2) {
    o.fail("its mask is not of the form that mask_type says");
    return std::nullopt;
  }
  out.mask = cast(out.mask, DType::Bool);
  if (kind == 1) out.mask = unsqueeze(unsqueeze(out.mask, 1), 1);
  if (kind == 0) out.mask = unsqueeze(unsqueeze(out.mask, 0), 0);
  return out;
}

/// Rows [B, T, D] of as many elements as the weights have; D may be a size of the run.
static Tensor rowsFor(const Heads &layer, const Tensor &x) {
  return x.size(2).isConst() ? x : slice(x, 2, 0, layer.inWeight.size(1));
}

static Tensors multiHeadOp(OpCall &o) {
  const Tensor query = o.t("query");
  const std::optional<Heads> layer = headsOf(o, query, "num_head");
  if (!layer) return {};
  const Tensor q = rowsFor(*layer, query), k = rowsFor(*layer, o.t("key")), v = rowsFor(*layer, o.t("value"));
  if (!o.flag("need_weights", true)) {
    o.makeNone(1);
    return {multiHead(q, k, v, *layer, nullptr), {}};
  }
  Tensor weights;
  const Tensor y = multiHead(q, k, v, *layer, &weights);
  return {y, o.flag("average_attn_weights", true) ? mean(weights, {1}, false, weights.dtype()) : weights};
}

static Tensors encoderLayer(OpCall &o) {
  const Tensor src = o.t("src");
  const std::optional<Heads> layer = headsOf(o, src, "num_heads");
  if (!layer) return {};
  const Tensor x = rowsFor(*layer, src);
  const bool first = o.flag("norm_first"), gelu = o.flag("use_gelu");
  const double eps = o.number("eps");
  auto normal = [&](const Tensor &t, const char *w, const char *b) { return layerNorm(t, o.t(w), o.t(b), eps); };
  const Tensor in = first ? normal(x, "norm_weight_1", "norm_bias_1") : x;
  Tensor y = add(multiHead(in, in, in, *layer, nullptr), x);
  if (!first) y = normal(y, "norm_weight_1", "norm_bias_1");
  const Tensor wide = linear(first ? normal(y, "norm_weight_2", "norm_bias_2") : y, o.t("ffn_weight_1"), o.t("ffn_bias_1"));
  const Tensor active = gelu ? map(wide, [](Val v) { return v * 0.5 * (un(OpKind::Erf, v * M_SQRT1_2) + 1.0); }) : unary(wide, OpKind::Relu);
  y = add(linear(active, o.t("ffn_weight_2"), o.t("ffn_bias_2")), y);
  return {first ? y : normal(y, "norm_weight_2", "norm_bias_2")};
}

void addAttention(OpTable &t) {
  t.add("_native_multi_head_attention.default", multiHeadOp);
  t.add("_transformer_encoder_layer_fwd.default", encoderLayer);
  t.add("scaled_dot_product_attention.default _scaled_dot_product_flash_attention_for_cpu.default "
        "_scaled_dot_product_efficient_attention.default _scaled_dot_product_flash_attention.default "
        "_scaled_dot_product_attention_math.default",
        attentionOp);
}

} // namespace neso::lower
