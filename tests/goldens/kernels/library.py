"""Kernels of the kinds that public libraries hold, written for these tests."""
import triton
import triton.language as tl


@triton.jit
def rms_norm(x, w, o, n, eps, OFFSET: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    r = tl.rsqrt(tl.sum(v * v, axis=0) / n + eps)
    tl.store(o + row * n + i, v * r * (OFFSET + tl.load(w + i, mask=i < n)), mask=i < n)


@triton.jit
def silu(v):
    return v * tl.sigmoid(v)


@triton.jit
def swiglu(a, b, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    g = tl.load(a + i, mask=i < n, other=0).to(tl.float32)
    tl.store(o + i, (silu(g) * tl.load(b + i, mask=i < n, other=0)).to(o.dtype.element_ty), mask=i < n)


@triton.jit
def rope(x, cos, sin, o, HALF: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, HALF)
    a = tl.load(x + row * 2 * HALF + i)
    b = tl.load(x + row * 2 * HALF + HALF + i)
    c = tl.load(cos + row * HALF + i)
    s = tl.load(sin + row * HALF + i)
    tl.store(o + row * 2 * HALF + i, a * c - b * s)
    tl.store(o + row * 2 * HALF + HALF + i, b * c + a * s)


@triton.jit
def embedding(table, idx, o, D: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, D)
    tl.store(o + row * D + i, tl.load(table + tl.load(idx + row) * D + i))


@triton.jit
def kl_div(p, q, o, n, LOG: tl.constexpr, B: tl.constexpr):
    acc = tl.zeros((B, ), tl.float32)
    for s in range(0, n, B):
        i = s + tl.arange(0, B)
        a = tl.load(p + i, mask=i < n, other=1.0)
        b = tl.load(q + i, mask=i < n, other=1.0)
        if not LOG:
            t = a * (tl.log(tl.maximum(a, 1e-6)) - tl.log(tl.maximum(b, 1e-6)))
        else:
            t = tl.exp(a) * (a - b)
        acc += tl.where(i < n, t, 0.0)
    tl.store(o, tl.sum(acc))


@triton.jit
def split_k(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, S: tl.constexpr):
    pid = tl.program_id(0)
    part = tl.program_id(1)
    rm = pid * BM + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(part * BK, K, S * BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * K + rk[None, :], mask=rk[None, :] < K, other=0.0)
        y = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(x, y, allow_tf32=False)
    tl.atomic_add(c + rm[:, None] * N + rn[None, :], acc, mask=rn[None, :] < N)


@triton.jit
def persistent(x, o, n, tiles, B: tl.constexpr):
    for t in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=2):
        i = t * B + tl.arange(0, B)
        tl.store(o + i, tl.load(x + i, mask=i < n, other=0.0) * (t + 1), mask=i < n)


@triton.jit
def quantize_rows(x, q, scale, n, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    s = tl.max(tl.abs(v)) / 127.0
    tl.store(q + row * n + i, (v / s).to(tl.int8), mask=i < n)
    tl.store(scale + row, s)


@triton.jit
def unpack_int4(x, o, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    low = (v & 0xF).to(tl.int8)
    high = ((v >> 4) & 0xF).to(tl.int8)
    both = tl.interleave(low, high)
    tl.store(o + tl.arange(0, 2 * B), both - 8)


@triton.jit
def online_softmax(x, o, n, B: tl.constexpr):
    row = tl.program_id(0)
    m = tl.full((), float("-inf"), tl.float32)
    d = tl.full((), 0.0, tl.float32)
    for s in range(0, n, B):
        i = s + tl.arange(0, B)
        v = tl.load(x + row * n + i, mask=i < n, other=float("-inf"))
        new = tl.maximum(m, tl.max(v))
        d = d * tl.exp(m - new) + tl.sum(tl.exp(v - new))
        m = new
    for s in range(0, n, B):
        i = s + tl.arange(0, B)
        v = tl.load(x + row * n + i, mask=i < n, other=float("-inf"))
        tl.store(o + row * n + i, tl.exp(v - m) / d, mask=i < n)


@triton.jit
def layer_norm_backward(x, w, dy, dx, n, eps, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < n
    v = tl.load(x + row * n + i, mask=m, other=0.0)
    mean = tl.sum(v, 0) / n
    c = tl.where(m, v - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(c * c, 0) / n + eps)
    h = c * rstd
    wdy = tl.load(w + i, mask=m, other=0.0) * tl.load(dy + row * n + i, mask=m, other=0.0)
    c1 = tl.sum(h * wdy, 0) / n
    c2 = tl.sum(wdy, 0) / n
    tl.store(dx + row * n + i, (wdy - (h * c1 + c2)) * rstd, mask=m)


@triton.jit
def delta_rule(q, k, v, beta, o, T, D: tl.constexpr):
    """A recurrent state updated step by step."""
    i = tl.arange(0, D)
    state = tl.zeros([D, D], tl.float32)
    for t in range(T):
        kt = tl.load(k + t * D + i)
        vt = tl.load(v + t * D + i)
        b = tl.load(beta + t)
        old = tl.sum(state * kt[:, None], 0)
        state += kt[:, None] * ((vt - old) * b)[None, :]
        tl.store(o + t * D + i, tl.sum(state * tl.load(q + t * D + i)[:, None], 0))


@triton.jit
def chunk_cumsum(x, o, T, B: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < T, other=0.0)
    if REVERSE:
        c = tl.cumsum(v, 0)
        r = -c + tl.sum(v, 0)[None] + v
    else:
        r = tl.cumsum(v, axis=0)
    tl.store(o + i, r, mask=i < T)


@triton.jit
def lower_triangle(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i[:, None] * B + i[None, :])
    a = tl.where(i[:, None] > i[None, :], -v, 0.0)
    for r in range(1, B):
        row = tl.sum(tl.where((i == r)[:, None], a, 0.0), 0)
        row = row + tl.sum(row[:, None] * a, 0)
        a = tl.where((i == r)[:, None], row[None, :], a)
    tl.store(o + i[:, None] * B + i[None, :], a + (i[:, None] == i[None, :]))


@triton.jit
def group_sum(x, sizes, o, G: tl.constexpr, B: tl.constexpr):
    start = 0
    for g in range(G):
        size = tl.load(sizes + g)
        i = tl.arange(0, B)
        tl.store(o + g, tl.sum(tl.load(x + start + i, mask=i < size, other=0.0)))
        start += size


@triton.jit
def count_above(x, o, threshold, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=-1e9)
    tl.atomic_add(o, tl.sum((v > threshold).to(tl.int32)))


@triton.jit
def adam(p, g, m, v, lr, b1, b2, eps, n, B: tl.constexpr):
    i = tl.arange(0, B)
    ok = i < n
    gv = tl.load(g + i, mask=ok)
    mv = tl.load(m + i, mask=ok) * b1 + gv * (1 - b1)
    vv = tl.load(v + i, mask=ok) * b2 + gv * gv * (1 - b2)
    tl.store(m + i, mv, mask=ok)
    tl.store(v + i, vv, mask=ok)
    tl.store(p + i, tl.load(p + i, mask=ok) - lr * mv / (tl.sqrt(tl.abs(vv)) + eps), mask=ok)


@triton.jit
def conv1d(x, w, o, T, K: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    acc = tl.zeros([B], tl.float32)
    for k in tl.static_range(-K + 1, 1):
        at = i + k
        acc += tl.load(x + at, mask=(at >= 0) & (at < T), other=0.0) * tl.load(w + k + K - 1)
    tl.store(o + i, acc, mask=i < T)


@triton.jit
def welford_update(mean, m2, count, value):
    count += 1
    delta = value - mean
    mean += delta / count
    return mean, m2 + delta * (value - mean), count


@triton.jit
def running_variance(x, o, n):
    mean = 0.0
    m2 = 0.0
    count = 0
    for i in range(n):
        mean, m2, count = welford_update(mean, m2, count, tl.load(x + i))
    tl.store(o, mean)
    tl.store(o + 1, m2 / count)


@triton.jit
def fp8_round_trip(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + i, v.to(tl.float8e5).to(tl.float32) * 100 + v.to(tl.float8e4nv).to(tl.float32))


CASES = [
    dict(kernel="rms_norm", grid=(4, ), args=["f32[200]", "f32[50]", "out f32[200]", 50, 1e-6], const=dict(OFFSET=1.0, B=64), tol=1e-4),
    dict(kernel="rms_norm", name="rms_norm_bf16", grid=(4, ), args=["bf16[200]", "bf16[50]", "out bf16[200]", 50, 1e-6], const=dict(OFFSET=0.0, B=64), tol=2e-2),
    dict(kernel="swiglu", grid=(2, ), args=["f16[100]", "f16[100]", "out f16[100]", 100], const=dict(B=64), tol=5e-3),
    dict(kernel="rope", grid=(4, ), args=["f32[128]", "f32[64]", "f32[64]", "out f32[128]"], const=dict(HALF=16)),
    dict(kernel="embedding", grid=(6, ), args=["f32[160]", "i64[6]:0,10", "out f32[96]"], const=dict(D=16)),
    dict(kernel="kl_div", args=["f32[100]:0.1,1", "f32[100]:0.1,1", "out f32[1]", 100], const=dict(LOG="False", B=32), tol=1e-4),
    dict(kernel="kl_div", name="kl_div_log", args=["f32[100]:-2,0", "f32[100]:-2,0", "out f32[1]", 100], const=dict(LOG="True", B=32), tol=1e-4),
    dict(kernel="split_k", grid=(2, 2), args=["f32[1600]", "f32[700]", "out f32[448]", 32, 14, 50], const=dict(BM=16, BN=16, BK=16, S=2), tol=1e-4),
    dict(kernel="persistent", grid=(3, ), args=["f32[250]", "out f32[250]", 250, 8], const=dict(B=32)),
    dict(kernel="quantize_rows", grid=(3, ), args=["f32[90]", "out i8[90]", "out f32[3]", 30], const=dict(B=32)),
    dict(kernel="unpack_int4", args=["i32[32]:0,256", "out i8[64]"], const=dict(B=32)),
    dict(kernel="online_softmax", grid=(2, ), args=["f32[180]:-4,4", "out f32[180]", 90], const=dict(B=32), tol=1e-4),
    dict(kernel="layer_norm_backward", grid=(3, ), args=["f32[150]", "f32[50]", "f32[150]", "out f32[150]", 50, 1e-5], const=dict(B=64), tol=1e-4),
    dict(kernel="delta_rule", args=["f32[128]", "f32[128]", "f32[128]", "f32[8]", "out f32[128]", 8], const=dict(D=16), tol=1e-4),
    dict(kernel="chunk_cumsum", grid=(3, ), args=["f32[90]", "out f32[90]", 90], const=dict(B=32, REVERSE="False")),
    dict(kernel="chunk_cumsum", name="chunk_cumsum_reverse", grid=(3, ), args=["f32[90]", "out f32[90]", 90], const=dict(B=32, REVERSE="True")),
    dict(kernel="lower_triangle", args=["f32[256]", "out f32[256]"], const=dict(B=16), tol=1e-4),
    dict(kernel="group_sum", args=["f32[100]", "i32[5]:1,16", "out f32[5]"], const=dict(G=5, B=16)),
    dict(kernel="count_above", grid=(4, ), args=["f32[100]", "out i32[1]", 0.25, 100], const=dict(B=32)),
    dict(kernel="adam", args=["f32[50]", "f32[50]", "f32[50]", "f32[50]:0,1", 0.1, 0.9, 0.99, 1e-3, 50], const=dict(B=64), tol=1e-4),
    dict(kernel="conv1d", grid=(2, ), args=["f32[60]", "f32[4]", "out f32[60]", 60], const=dict(K=4, B=32)),
    dict(kernel="running_variance", args=["f32[20]", "out f32[2]", 20], tol=1e-4),
    dict(kernel="fp8_round_trip", args=["f32[32]", "out f32[32]"], const=dict(B=32), tol=1e-3),
]
