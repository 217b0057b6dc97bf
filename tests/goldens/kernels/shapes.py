"""Shape functions, reductions, scans, sorting, gathers."""
import triton
import triton.language as tl


@triton.jit
def grid2(M: tl.constexpr, N: tl.constexpr):
    return tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]


@triton.jit
def transpose(x, o, M: tl.constexpr, N: tl.constexpr):
    v = tl.load(x + grid2(M, N))
    tl.store(o + grid2(N, M), v.T + tl.trans(v) + tl.permute(v, (1, 0)) + v.trans(1, 0))


@triton.jit
def reshape(x, o, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    a = tl.reshape(v, (4, B // 4)) + v.reshape(4, B // 4)
    tl.store(o + tl.arange(0, B), tl.ravel(a) + tl.view(a, [B]) * 0)


@triton.jit
def broadcast(x, o, M: tl.constexpr, N: tl.constexpr):
    r = tl.load(x + tl.arange(0, M))
    a = tl.broadcast_to(r[:, None], M, N)
    b, c = tl.broadcast(tl.arange(0, N)[None, :], r[:, None])
    tl.store(o + grid2(M, N), a * b + c + tl.expand_dims(tl.arange(0, N), 0))


@triton.jit
def three_d(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    p = i[:, None, None] * B * B + i[None, :, None] * B + i[None, None, :]
    v = tl.load(x + p)
    tl.store(o + p, tl.permute(v, (2, 0, 1)) + tl.sum(v, 1, keep_dims=True))


@triton.jit
def join_split(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    j = tl.join(tl.load(x + i), tl.load(y + i))
    a, b = tl.split(j)
    tl.store(o + i, a * 2 + b)
    w = tl.interleave(a, b)
    tl.store(o + B + tl.arange(0, 2 * B), w)


@triton.jit
def cat(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + tl.arange(0, 2 * B), tl.cat(tl.load(x + i), tl.load(y + i), dim=0))


@triton.jit
def reductions(x, o, M: tl.constexpr, N: tl.constexpr):
    v = tl.load(x + grid2(M, N))
    r = tl.arange(0, M)
    tl.store(o + r, tl.sum(v, 1) + tl.max(v, axis=1) * 10 - tl.min(v, axis=-1))
    tl.store(o + M, tl.sum(v))
    tl.store(o + M + 1, tl.max(v))
    tl.store(o + M + 2, v.min())


@triton.jit
def arg_reductions(x, o, M: tl.constexpr, N: tl.constexpr):
    v = tl.load(x + grid2(M, N))
    r = tl.arange(0, M)
    m, im = tl.max(v, 1, return_indices=True)
    n, i_n = tl.min(v, 1, return_indices=True)
    tl.store(o + r, im * 1000 + i_n * 100 + tl.argmax(v, 1) * 10 + tl.argmin(v, 1, tie_break_left=True))
    tl.store(o + M + r, (m + n).to(tl.int32))


@triton.jit
def int_reductions(x, o, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    tl.store(o, tl.sum(v, 0))
    tl.store(o + 1, tl.xor_sum(v.to(tl.int32), 0))
    tl.store(o + 2, tl.max(v, 0))
    tl.store(o + 3, tl.reduce_or(v.to(tl.int32), 0))


@triton.jit
def product(a, b):
    return a * b


@triton.jit
def custom_reduce(x, o, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B)) * 0.1 + 1
    tl.store(o, tl.reduce(v, 0, product))


@triton.jit
def welford(m1, s1, n1, m2, s2, n2):
    n = n1 + n2
    d = m2 - m1
    return m1 + d * n2 / n, s1 + s2 + d * d * n1 * n2 / n, n


@triton.jit
def triple_reduce(x, o, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    m, s, n = tl.reduce((v, tl.zeros_like(v), tl.full([B], 1.0, tl.float32)), 0, welford)
    tl.store(o, m)
    tl.store(o + 1, s / n)


@triton.jit
def scans(x, o, M: tl.constexpr, N: tl.constexpr):
    v = tl.load(x + grid2(M, N))
    tl.store(o + grid2(M, N), tl.cumsum(v, 1) + tl.cumsum(v, 0, reverse=True) + tl.cumprod(v, axis=1))


@triton.jit
def linear(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def recurrence(a, b, o, B: tl.constexpr):
    i = tl.arange(0, B)
    _, h = tl.associative_scan((tl.load(a + i), tl.load(b + i)), 0, linear)
    tl.store(o + i, h)


@triton.jit
def sorts(x, o, M: tl.constexpr, N: tl.constexpr):
    v = tl.load(x + grid2(M, N))
    tl.store(o + grid2(M, N), tl.sort(v) + tl.sort(v, descending=True) * 100)


@triton.jit
def topk(x, o, N: tl.constexpr, K: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.store(o + tl.arange(0, K), tl.topk(v, K))


@triton.jit
def flips(x, o, M: tl.constexpr, N: tl.constexpr):
    v = tl.load(x + grid2(M, N))
    tl.store(o + grid2(M, N), tl.flip(v, 1) + tl.flip(v, 0) * 10)


@triton.jit
def gathers(x, idx, o, M: tl.constexpr, N: tl.constexpr):
    v = tl.load(x + grid2(M, N))
    i = tl.load(idx + grid2(M, N))
    tl.store(o + grid2(M, N), tl.gather(v, i, 1))


@triton.jit
def histogram(x, o, B: tl.constexpr, K: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    tl.store(o + tl.arange(0, K), tl.histogram(v, K))


@triton.jit
def histogram_masked(x, o, B: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + tl.arange(0, K), tl.histogram(v, K, mask=i < B // 2))


@triton.jit
def softmax(x, o, M: tl.constexpr, N: tl.constexpr):
    v = tl.load(x + grid2(M, N))
    tl.store(o + grid2(M, N), tl.softmax(v, 1) + v.softmax(0))


@triton.jit
def swizzle(o, M: tl.constexpr, N: tl.constexpr, G: tl.constexpr):
    p = tl.program_id(0)
    i, j = tl.swizzle2d(p // N, p % N, M, N, G)
    tl.store(o + p, i * 100 + j)


@triton.jit
def squeezes(x, o, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    a = tl.unsqueeze(v, 0)
    tl.store(o + tl.arange(0, B), tl.squeeze(a, 0) + tl.cdiv(tl.arange(0, B), 4))


@triton.jit
def types_of(x, o, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    if v.dtype == tl.float16:
        r = 1
    elif v.dtype.is_floating() and v.dtype.primitive_bitwidth == 32:
        r = 2
    else:
        r = 3
    if x.dtype.element_ty == v.dtype:
        r += 10
    tl.store(o, r + v.numel + v.type.element_ty.primitive_bitwidth)


S2 = dict(M=8, N=16)
CASES = [
    dict(kernel="transpose", args=["f32[128]", "out f32[128]"], const=S2),
    dict(kernel="reshape", args=["f32[32]", "out f32[32]"], const=dict(B=32)),
    dict(kernel="broadcast", args=["f32[8]", "out f32[128]"], const=S2),
    dict(kernel="three_d", args=["f32[64]", "out f32[64]"], const=dict(B=4)),
    dict(kernel="join_split", args=["f32[16]", "f32[16]", "out f32[48]"], const=dict(B=16)),
    dict(kernel="cat", args=["f32[16]", "f32[16]", "out f32[32]"], const=dict(B=16)),
    dict(kernel="reductions", args=["f32[128]", "out f32[11]"], const=S2),
    dict(kernel="reductions", name="reductions_f16", args=["f16[128]", "out f32[11]"], const=S2, tol=2e-2),
    dict(kernel="arg_reductions", args=["f32[128]:-3,3", "out i32[16]"], const=S2),
    dict(kernel="arg_reductions", name="arg_reductions_ties", args=["i32[128]:0,3", "out i32[16]"], const=S2),
    dict(kernel="int_reductions", args=["i8[64]:-100,100", "out i32[4]"], const=dict(B=64)),
    dict(kernel="custom_reduce", args=["f32[64]", "out f32[1]"], const=dict(B=64)),
    dict(kernel="triple_reduce", args=["f32[64]", "out f32[2]"], const=dict(B=64)),
    dict(kernel="scans", args=["f32[128]", "out f32[128]"], const=S2),
    dict(kernel="recurrence", args=["f32[64]", "f32[64]", "out f32[64]"], const=dict(B=64)),
    dict(kernel="sorts", args=["f32[128]", "out f32[128]"], const=S2),
    dict(kernel="sorts", name="sorts_int", args=["i32[128]:-50,50", "out i32[128]"], const=S2),
    dict(kernel="topk", args=["f32[64]", "out f32[8]"], const=dict(N=64, K=8)),
    dict(kernel="topk", name="topk_one", args=["f32[64]", "out f32[1]"], const=dict(N=64, K=1)),
    dict(kernel="flips", args=["f32[128]", "out f32[128]"], const=S2),
    dict(kernel="gathers", args=["f32[128]", "i32[128]:0,16", "out f32[128]"], const=S2),
    dict(kernel="histogram", args=["i32[64]:0,16", "out i32[16]"], const=dict(B=64, K=16)),
    dict(kernel="histogram_masked", args=["i32[64]:0,16", "out i32[16]"], const=dict(B=64, K=16)),
    dict(kernel="softmax", args=["f32[128]", "out f32[128]"], const=S2),
    dict(kernel="swizzle", grid=(32, ), args=["out i32[32]"], const=dict(M=8, N=4, G=4)),
    dict(kernel="squeezes", args=["f32[16]", "out f32[16]"], const=dict(B=16)),
    dict(kernel="types_of", name="types_of_f16", args=["f16[16]", "out i32[1]"], const=dict(B=16)),
    dict(kernel="types_of", name="types_of_f32", args=["f32[16]", "out i32[1]"], const=dict(B=16)),
    dict(kernel="types_of", name="types_of_i64", args=["i64[16]:0,9", "out i32[1]"], const=dict(B=16)),
]
