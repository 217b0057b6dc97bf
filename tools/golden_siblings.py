"""Products that share their left operand and multiply it by weights: those that may be one product, and those that may not, each for its reason.

Their results are read by reductions and attention, which no product computes behind its sums, unless a case is about that.
"""
import torch

from golden_ops import B, c

F = torch.nn.functional
QKV = {"q": "16x16", "k": "16x16", "v": "16x16"}


def weights(shapes, dtype="f32", **more):
    return {**{n: f"{dtype} {s}" for n, s in shapes.items()}, **more}


def heads(y, n):
    return y.unflatten(-1, (n, -1)).transpose(-2, -3)


def attend(m, x, q=4, kv=4, turned=False, biased=False):
    bias = (lambda n: getattr(m, n + "b")) if biased else lambda n: None
    q, k, v = heads(F.linear(x, m.q, bias("q")), q), heads(F.linear(x, m.k, bias("k")), kv), heads(F.linear(x, m.v, bias("v")), kv)
    if turned:
        half = q.shape[-1] // 2
        angle = torch.arange(x.shape[-2])[:, None] * torch.arange(1, half + 1).repeat(2) * 0.1
        q, k = (y * angle.cos() + torch.cat([-y[..., half:], y[..., :half]], -1) * angle.sin() for y in (q, k))
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[-3] != k.shape[-3]).transpose(-2, -3).flatten(-2)


def gated(m, x):
    return F.linear(F.silu(F.linear(x, m.gate)) * F.linear(x, m.up), m.down)


def changed(m, x):
    first = F.linear(x, m.q).softmax(-1)
    x.add_(1)
    return first + F.linear(x, m.k).softmax(-1)


def weight_changed(m, x):
    first = F.linear(x, m.q).softmax(-1)
    m.k.mul_(0.5)
    return first + F.linear(x, m.k).softmax(-1)


def branch(m, x):
    def both(x, a, b):
        return F.linear(x, a).softmax(-1) + F.linear(x, b).softmax(-1)

    return torch.ops.higher_order.cond(x.sum() > 0, lambda x, a, b: both(x, a, b), lambda x, a, b: both(x * 2, a, b), (x, m.q, m.k))


def siblings():
    soft = lambda *ys: sum(y.softmax(-1).amax(-1) for y in ys)  # noqa: E731
    biases = {n + "b": "f32 16" for n in "qkv"}
    few = {"q": "16x16", "k": "8x16", "v": "8x16"}
    mlp = {"gate": "24x16", "up": "24x16", "down": "16x24"}
    x = "f32 2x5x16"
    cases = [
        c("attention", attend, x, state=weights(QKV)), c("attention_biased", lambda m, x: attend(m, x, biased=True), x, state=weights(QKV, **biases)),
        c("attention_grouped", lambda m, x: attend(m, x, kv=2, turned=True), x, state=weights(few)), c("attention_one_row", lambda m, x: attend(m, x, kv=2, turned=True), "f32 1x1x16", state=weights(few)),
        c("attention_any_batch", lambda m, x: attend(m, x, turned=True), x, state=weights(QKV), more=[["f32 1x5x16"], ["f32 0x5x16"]], dynamic=({0: B},)),
        c("gated", gated, "f32 7x16", state=weights(mlp)), c("gated_one_row", gated, "f32 1x16", state=weights(mlp)),
        c("columns_innermost", lambda m, x: soft(x @ m.q, x @ m.k), "f32 7x16", state={"q": "f32 16x12", "k": "f32 16x20"}), c("odd_columns", lambda m, x: soft(F.linear(x, m.q), F.linear(x, m.k), F.linear(x, m.v)), "f32 7x16", state={"q": "f32 8x16", "k": "f32 7x16", "v": "f32 5x16"}),
        c("weight_read_elsewhere", lambda m, x: attend(m, x) + m.k.sum(), x, state=weights(QKV)), c("weight_shared", lambda m, x: soft(F.linear(x, m.q), F.linear(x, m.q.t()), F.linear(x, m.k), F.linear(x, m.v)), "f32 7x16", state=weights(QKV)),
        c("one_is_output", lambda m, x: (F.linear(x, m.q), soft(F.linear(x, m.k), F.linear(x, m.v))), "f32 7x16", state=weights(QKV)),
        c("weight_in_parts", lambda m, x: soft(*(F.linear(x, w) for w in m.q.chunk(3))), "f32 7x16", state={"q": "f32 24x16"}), c("bias_on_some", lambda m, x: soft(F.linear(x, m.q, m.qb), F.linear(x, m.k), F.linear(x, m.v, m.vb)), "f32 7x16", state=weights(QKV, **biases)),
        c("scaled_behind", lambda m, x: soft(F.linear(x, m.k), F.linear(x, m.v)) + F.relu(F.linear(x, m.q) * 0.25).flip(0).softmax(-1).amax(-1), "f32 7x16", state=weights(QKV)),
        c("read_across_rows", lambda m, x: (F.linear(x, m.q).reshape(-1, 7).softmax(-1), soft(F.linear(x, m.k), F.linear(x, m.v)), F.linear(x, m.k).flatten()[3:99].cumsum(0)), "f32 7x16", state=weights(QKV)),
        c("rolled_columns", lambda m, x: soft(F.linear(x, m.q).roll(3, -1).cumsum(-1), F.pad(F.linear(x, m.k), (2, 1)).cumsum(-1), F.linear(x, m.v)[1:, 2:].cumsum(0)[:1]), "f32 7x16", state=weights(QKV)),
        c("pointwise_filters", lambda m, x: F.max_pool2d(F.conv2d(x, m.q), 2).sum(1) + F.avg_pool2d(F.conv2d(x, m.k), 2).sum(1), "f32 2x4x6x6", state={"q": "f32 8x4x1x1", "k": "f32 12x4x1x1"}),
        c("dequantised", lambda m, x: soft(F.linear(x, m.q.float() * m.qs), F.linear(x, m.k.float() * m.ks)), "f32 7x16", state={"q": "i8 16x16", "k": "i8 8x16", "qs": "f32 16x1", "ks": "f32 8x1"}),
        c("input_changed_between", changed, "f32 7x16", state=weights(QKV)), c("weight_changed_between", weight_changed, "f32 7x16", state=weights(QKV)),
        c("no_columns", lambda m, x: (F.linear(x, m.q).sum(-1), soft(F.linear(x, m.k), F.linear(x, m.v))), "f32 7x16", state=weights({**QKV, "q": "0x16"})), c("no_depth", lambda m, x: soft(F.linear(x, m.q), F.linear(x, m.k)), "f32 7x0", state={"q": "f32 8x0", "k": "f32 8x0"}),
        c("in_a_branch", branch, "f32 7x16", state=weights(QKV)),
    ]
    cases += [c(f"attention_{d}", lambda m, x: attend(m, x, kv=2, turned=False), f"{d} 2x5x16", state=weights(few, d)) for d in ("bf16", "f16")]
    return cases + [c("f64", lambda m, x: soft(F.linear(x, m.q), F.linear(x, m.k)), "f64 7x16", state=weights(QKV, "f64"))]


def groups():
    return {"siblings": siblings()}
