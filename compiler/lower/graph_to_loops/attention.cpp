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
};

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
  // A row without any key gives zeros.
  p = map(p, [](Val x) { return where(un(OpKind::IsNan, x), 0.0, x); });
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

static Tensors attentionOp(OpCall &o) {
  Tensor q = o.t("query"), k = o.t("key"), v = o.t("value"),
         mask = o.has("attn_mask") ? o.opt("attn_mask") : o.opt("attn_bias");
  bool causal = o.flag("is_causal");
  const double dropped = o.number("dropout_p", 0);
  if (dropped > 0 && o.has("dropout_mask")) return o.fail("a mask of what is dropped is not supported");
  if (!isFloat(q.dtype())) return o.fail("only real floating point types are supported");
  Expr head = q.size(-1);
  if (!o.has("scale") && !head.isConst()) return o.fail("the head size must be constant");
  double scale = o.has("scale") ? o.number("scale") : 1 / std::sqrt(static_cast<double>(head.constValue()));
  // The operator without a kernel of its own gives the weights there, the others the log-sum-exp.
  const bool wantsSecond = o.outCount() > 1 && o.out(1).rank() > 0, wantsWeights = wantsSecond && o.node.target == "aten._scaled_dot_product_attention_math.default";
  DType t = o.out().dtype;
  Sizes outSizes = o.out().sizes;
  // PyTorch's fused operators have no flag for it. One query head is repeated for all key heads.
  const bool headed = q.rank() > 2 && q.rank() == k.rank();
  const bool fewerKeyHeads =
      o.flag("enable_gqa") || (headed && !o.ctx.equal(q.size(-3), k.size(-3)) && !q.size(-3).isConst(1));
  // The node computes in f32.
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4 || wantsSecond || t == DType::F64 || dropped > 0) {
    if (fewerKeyHeads) k = widenHeads(k, q.size(-3)), v = widenHeads(v, q.size(-3));
    Tensor second;
    Besides besides;
    if (wantsSecond) (wantsWeights ? besides.weights : besides.logSumExp) = &second;
    if (dropped > 0) besides.drop = [&](const Tensor &p) { return withDropout(o, p, dropped); };
    Tensor y = attentionByProducts(q, k, v, mask, causal, scale, t, besides);
    if (!wantsSecond) return {y};
    return {y, cast(wantsWeights ? second : reshape(second, o.out(1).sizes), o.out(1).dtype)};
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

void addAttention(OpTable &t) {
  t.add("scaled_dot_product_attention.default _scaled_dot_product_flash_attention_for_cpu.default "
        "_scaled_dot_product_efficient_attention.default _scaled_dot_product_flash_attention.default "
        "_scaled_dot_product_attention_math.default",
        attentionOp);
}

} // namespace neso::lower
