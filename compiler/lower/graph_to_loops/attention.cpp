// Scaled dot product attention as an Attention node; written-out forms stay products and softmax.
#include <cmath>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

/// The written-out form, for what the node does not do; also gives log-sum-exp of the scores.
static Tensor attentionByProducts(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &mask, bool causal, double scale, DType out,
                                  Tensor *lse) {
  DType acc = computeType(out);
  Tensor scores = mulNumber(matmul(cast(q, acc), transpose(cast(k, acc), -1, -2)), scale);
  if (causal) {
    scores = Tensor::lazy(q.ctx(), acc, scores.sizes(), [scores, acc](BodyBuilder &b, const Index &i) {
      Val in = b.compare(OpKind::Le, i[i.size() - 1], i[i.size() - 2]);
      return where(in, scores.at(b, i), b.constant(acc, -HUGE_VAL));
    });
  }
  if (mask.valid()) {
    if (mask.dtype() == DType::Bool) scores = where(mask, scores, full(q.ctx(), {}, acc, -HUGE_VAL));
    else scores = add(scores, cast(mask, acc));
  }
  scores.realize();
  if (lse) *lse = logsumexp(scores, {-1});
  Tensor p = softmax(scores, -1, acc, false);
  // A row without any key gives zeros.
  p = map(p, [](Val x) { return where(un(OpKind::IsNan, x), 0.0, x); });
  return cast(matmul(cast(p, v.dtype()), v), out);
}

static Tensors attentionOp(OpCall &o) {
  const std::string &n = o.node.target;
  Tensor q = o.t("query"), k = o.t("key"), v = o.t("value"), mask = o.has("attn_mask") ? o.opt("attn_mask") : o.opt("attn_bias");
  bool causal = o.flag("is_causal");
  if (o.number("dropout_p", 0) > 0) return o.fail("dropout in attention draws random numbers");
  if (!isFloat(q.dtype())) return o.fail("only real floating point types are supported");
  Expr head = q.size(-1);
  if (!o.has("scale") && !head.isConst()) return o.fail("the head size must be constant");
  double scale = o.has("scale") ? o.number("scale") : 1 / std::sqrt(static_cast<double>(head.constValue()));
  bool wantsLse = o.outCount() > 1 && o.out(1).rank() > 0;
  DType t = o.out().dtype;
  Sizes outSizes = o.out().sizes;
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4 || wantsLse) {
    if (o.flag("enable_gqa")) {
      Expr times = floorDiv(q.size(-3), k.size(-3));
      auto widen = [&](const Tensor &x) {
        Sizes s = x.sizes();
        size_t d = s.size() - 3;
        s[d] = q.size(-3);
        return remap(x, s, [d, times](const Index &i) { Index j = i; j[d] = floorDiv(i[d], times); return j; });
      };
      k = widen(k), v = widen(v);
    }
    Tensor lse;
    Tensor y = attentionByProducts(q, k, v, mask, causal, scale, t, wantsLse ? &lse : nullptr);
    if (!wantsLse) return {y};
    lse = reshape(lse, o.out(1).sizes);
    return {y, cast(lse, o.out(1).dtype)};
  }
  auto placed = [](const Tensor &x) -> Strided {
    if (std::optional<Strided> s = x.asStrided()) return *s;
    x.realize();
    if (std::optional<Strided> s = x.asStrided()) return *s;
    x.realizeWith(denseStrides(x.sizes()));
    return *x.asStrided();
  };
  Expr b = symbol("b"), h = symbol("h"), m = symbol("m"), nn = symbol("n"), d = symbol("d");
  auto operand = [&](const Tensor &x, const Index &index) {
    Strided w = placed(x);
    loops::AttentionSpec::Operand op;
    op.buffer = w.buffer;
    op.dtype = x.dtype();
    op.index = w.offset;
    for (size_t k2 = 0; k2 < index.size(); ++k2)
      op.index = op.index + (x.sizes()[k2].isConst(1) ? Expr(0) : index[k2]) * w.strides[k2];
    return op;
  };
  auto spec = std::make_shared<loops::AttentionSpec>();
  Expr hk = o.ctx.equal(q.size(1), k.size(1)) ? h : k.size(1).isConst(1) ? Expr(0) : floorDiv(h, floorDiv(q.size(1), k.size(1)));
  Expr hv = o.ctx.equal(q.size(1), v.size(1)) ? h : v.size(1).isConst(1) ? Expr(0) : floorDiv(h, floorDiv(q.size(1), v.size(1)));
  spec->q = operand(cast(q, t), {b, h, m, d});
  spec->k = operand(cast(k, t), {b, hk, nn, d});
  spec->v = operand(cast(v, t), {b, hv, nn, d});
  if (mask.valid()) {
    while (mask.rank() < 4) mask = unsqueeze(mask, 0);
    spec->mask = operand(mask, {b, h, m, nn});
  }
  spec->keyLength = k.size(2);
  spec->headSize = head;
  spec->scale = scale;
  spec->causal = causal;
  // Memory order of the result as exported: [B, M, H, D] when the layer transposes it back right away.
  std::vector<int> order = orderOfStrides(outSizes, o.out().strides, o.ctx.facts);
  Strided w = o.ctx.allocate(t, outSizes, order);
  Index at{b, h, m, d};
  spec->out.buffer = w.buffer;
  spec->out.dtype = t;
  spec->out.index = w.offset;
  for (size_t k2 = 0; k2 < 4; ++k2) spec->out.index = spec->out.index + at[k2] * w.strides[k2];
  loops::Node &node = o.ctx.addNode(loops::Node::Kind::Attention);
  node.ranges = outSizes;
  node.attention = spec;
  (void)n;
  return {Tensor::strided(o.ctx, t, outSizes, w)};
}

void addAttention(OpTable &t) {
  t.add("scaled_dot_product_attention.default _scaled_dot_product_flash_attention_for_cpu.default "
        "_scaled_dot_product_efficient_attention.default _scaled_dot_product_flash_attention.default "
        "_scaled_dot_product_attention_math.default",
        attentionOp);
}

} // namespace neso::lower
