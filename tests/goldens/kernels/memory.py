"""Loads, stores, atomics, descriptors, block pointers, random numbers, whole kernels."""
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def masked(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=-1.0, cache_modifier=".cg", eviction_policy="evict_last")
    tl.store(o + i, v, mask=i % 2 == 0, cache_modifier=".wb")


@triton.jit
def scalars(x, o):
    v = tl.load(x + 3)
    tl.store(o, v)
    tl.store(o + 1, tl.load(x, mask=False, other=5.0))


@triton.jit
def strided2d(x, o, sm, sn, M: tl.constexpr, N: tl.constexpr):
    m = tl.arange(0, M)
    n = tl.arange(0, N)
    tl.store(o + m[:, None] * N + n[None, :], tl.load(x + m[:, None] * sm + n[None, :] * sn))


@triton.jit
def bool_memory(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    b = tl.load(x + i)
    tl.store(o + i, ~b)


@triton.jit
def atomics(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * B + i)
    tl.atomic_add(o + i % 4, v)
    tl.atomic_max(o + 4 + i % 4, v)
    tl.atomic_min(o + 8 + i % 4, v, mask=i < 8)


@triton.jit
def int_atomics(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.atomic_and(o + i % 2, v)
    tl.atomic_or(o + 2 + i % 2, v)
    tl.atomic_xor(o + 4 + i % 2, v)
    tl.atomic_xchg(o + 6, 77)
    old = tl.atomic_cas(o + 7, 0, 9)
    tl.store(o + 8, old + 1)


@triton.jit
def descriptors(x, o, M, N, BM: tl.constexpr, BN: tl.constexpr):
    a = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    b = tl.make_tensor_descriptor(o, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    r = tl.program_id(0) * BM
    c = tl.program_id(1) * BN
    b.store([r, c], a.load([r, c]) * 2 + 1)


@triton.jit
def block_pointers(x, o, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Triton before 3.9; expected by hand: o = 2 x + 1."""
    p = tl.make_block_ptr(x, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    q = tl.make_block_ptr(o, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    for _ in range(0, N, BN):
        v = tl.load(p, boundary_check=(0, 1), padding_option="zero")
        tl.store(q, v * 2 + 1, boundary_check=(0, 1))
        p = tl.advance(p, (0, BN))
        q = tl.advance(q, [0, BN])


@triton.jit
def random(o, seed, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.rand(seed, i))
    tl.store(o + B + i, tl.randn(seed, i + 7))


@triton.jit
def random_ints(o, seed, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.randint(seed, i).to(tl.int32, bitcast=True))
    a, b, c, d = tl.randint4x(seed, i)
    tl.store(o + B + i, (a ^ b ^ c ^ d).to(tl.int32, bitcast=True))


@triton.jit
def device_library(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(o + i, libdevice.tanh(a) + libdevice.pow(tl.abs(a) + 0.5, b) + libdevice.atan2(a, b) + libdevice.log1p(tl.abs(a)))


@triton.jit
def hints(x, o, n, B: tl.constexpr):
    tl.assume(n > 0)
    tl.debug_barrier()
    n = tl.multiple_of(n, 8)
    i = tl.max_contiguous(tl.multiple_of(tl.arange(0, B), B), B)
    tl.store(o + i, tl.load(x + i, mask=i < n, other=0.0))


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        kk = k * BK + rk
        x = tl.load(a + rm[:, None] * K + kk[None, :], mask=(rm[:, None] < M) & (kk[None, :] < K), other=0.0)
        y = tl.load(b + kk[:, None] * N + rn[None, :], mask=(kk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def int8_dot(a, b, c, B: tl.constexpr):
    i = tl.arange(0, B)
    p = i[:, None] * B + i[None, :]
    tl.store(c + p, tl.dot(tl.load(a + p), tl.load(b + p)))


@triton.jit
def layer_norm(x, w, b, o, n, eps, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < n
    v = tl.load(x + row * n + i, mask=m, other=0.0).to(tl.float32)
    mean = tl.sum(v) / n
    d = tl.where(m, v - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(d * d) / n + eps)
    tl.store(o + row * n + i, d * rstd * tl.load(w + i, mask=m) + tl.load(b + i, mask=m), mask=m)


@triton.jit
def cross_entropy(x, label, o, n, B: tl.constexpr):
    row = tl.program_id(0)
    m = -float("inf")
    d = 0.0
    for s in range(0, n, B):
        i = s + tl.arange(0, B)
        v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
        hi = tl.maximum(m, tl.max(v))
        d = d * tl.exp(m - hi) + tl.sum(tl.exp(v - hi))
        m = hi
    tl.store(o + row, m + tl.log(d) - tl.load(x + row * n + tl.load(label + row)))


@triton.jit
def attention(q, k, v, o, seq, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rd = tl.arange(0, D)
    qv = tl.load(q + rm[:, None] * D + rd[None, :], mask=rm[:, None] < seq, other=0.0)
    m = tl.full([BM], -1e30, tl.float32)
    l = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    hi = tl.minimum((tl.program_id(0) + 1) * BM, seq) if CAUSAL else seq
    for n in range(0, hi, BN):
        c = n + rn
        kv = tl.load(k + c[None, :] * D + rd[:, None], mask=c[None, :] < seq, other=0.0)
        s = tl.dot(qv, kv, input_precision="ieee") * scale
        ok = c[None, :] < seq
        if CAUSAL:
            ok = ok & (c[None, :] <= rm[:, None])
        s = tl.where(ok, s, -1e30)
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        alpha = tl.exp(m - new)
        l = l * alpha + tl.sum(p, 1)
        vv = tl.load(v + c[:, None] * D + rd[None, :], mask=c[:, None] < seq, other=0.0)
        acc = tl.dot(p, vv, acc * alpha[:, None], input_precision="ieee")
        m = new
    tl.store(o + rm[:, None] * D + rd[None, :], acc / l[:, None], mask=rm[:, None] < seq)


MM = dict(BM=16, BN=16, BK=16)
CASES = [
    dict(kernel="masked", args=["f32[32]", "out f32[32]", 20], const=dict(B=32)),
    dict(kernel="scalars", args=["f32[8]", "out f32[2]"]),
    dict(kernel="strided2d", args=["f32[128]", "out f32[64]", 1, 8], const=dict(M=8, N=8)),
    dict(kernel="bool_memory", args=["i1[32]:0,2", "out i1[32]"], const=dict(B=32)),
    dict(kernel="atomics", grid=(3, ), args=["f32[48]", "out f32[12]"], const=dict(B=16)),
    dict(kernel="atomics", name="atomics_int", grid=(3, ), args=["i32[48]:-9,9", "out i32[12]"], const=dict(B=16)),
    dict(kernel="int_atomics", args=["i32[16]:0,999", "out i32[9]"], const=dict(B=16)),
    dict(kernel="descriptors", grid=(2, 2), args=["f32[320]", "out f32[320]", 16, 20], const=dict(BM=8, BN=16)),
    dict(kernel="block_pointers", grid=(2, ), args=["f32[320]", "out f32[320]", 16, 20], const=dict(BM=8, BN=16), expect="2x+1"),
    dict(kernel="random", args=["out f32[128]", 42], const=dict(B=64), tol=1e-4),
    dict(kernel="random_ints", args=["out i32[128]", 1234567], const=dict(B=64)),
    dict(kernel="device_library", args=["f32[32]", "f32[32]", "out f32[32]"], const=dict(B=32), tol=1e-4, expect="libdevice"),
    dict(kernel="hints", args=["f32[32]", "out f32[32]", 24], const=dict(B=32)),
    dict(kernel="matmul", grid=(2, 2), args=["f32[800]", "f32[750]", "out f32[960]", 32, 30, 25], const=MM, tol=1e-4),
    dict(kernel="matmul", name="matmul_f16", grid=(2, 2), args=["f16[800]", "f16[750]", "out f16[960]", 32, 30, 25], const=MM, tol=5e-3),
    dict(kernel="int8_dot", args=["i8[1024]:-9,9", "i8[1024]:-9,9", "out i32[1024]"], const=dict(B=32)),
    dict(kernel="layer_norm", grid=(4, ), args=["f32[200]", "f32[50]", "f32[50]", "out f32[200]", 50, 1e-5], const=dict(B=64), tol=1e-4),
    dict(kernel="layer_norm", name="layer_norm_f16", grid=(4, ), args=["f16[200]", "f16[50]", "f16[50]", "out f16[200]", 50, 1e-5], const=dict(B=64), tol=5e-3),
    dict(kernel="cross_entropy", grid=(3, ), args=["f32[300]:-3,3", "i64[3]:0,100", "out f32[3]", 100], const=dict(B=32), tol=1e-4),
    dict(kernel="attention", grid=(2, ), args=["f32[480]", "f32[480]", "f32[480]", "out f32[480]", 30, 0.25], const=dict(BM=16, BN=16, D=16, CAUSAL="True"), tol=1e-4),
    dict(kernel="attention", name="attention_full", grid=(2, ), args=["f32[480]", "f32[480]", "f32[480]", "out f32[480]", 30, 0.25], const=dict(BM=16, BN=16, D=16, CAUSAL="False"), tol=1e-4),
]
