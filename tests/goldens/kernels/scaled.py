"""Products of block-scaled operands (tl.dot_scaled) in every format, and maps over packs of elements."""
import triton
import triton.language as tl


@triton.jit
def scaled(a, sa, b, sb, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, FA: tl.constexpr, FB: tl.constexpr, PA: tl.constexpr, PB: tl.constexpr, FAST: tl.constexpr):
    # Rows and columns as they lie in memory: two 4-bit floats share a byte, along K or along the other dimension.
    AM: tl.constexpr = M // 2 if FA == "e2m1" and not PA else M
    AK: tl.constexpr = K // 2 if FA == "e2m1" and PA else K
    BN: tl.constexpr = N // 2 if FB == "e2m1" and not PB else N
    BK: tl.constexpr = K // 2 if FB == "e2m1" and PB else K
    x = tl.load(a + tl.arange(0, AM)[:, None] * AK + tl.arange(0, AK)[None, :])
    y = tl.load(b + tl.arange(0, BK)[:, None] * BN + tl.arange(0, BN)[None, :])
    # Bytes without the patterns of infinity and NaN.
    if FA[0] == "e":
        x = x.to(tl.uint8, bitcast=True) & (0xF7 if FA == "e4m3" else 0xBB if FA == "e5m2" else 0xFF)
    if FB[0] == "e":
        y = y.to(tl.uint8, bitcast=True) & (0xF7 if FB == "e4m3" else 0xBB if FB == "e5m2" else 0xFF)
    xs = None
    ys = None
    if sa is not None:
        xs = tl.load(sa + tl.arange(0, M)[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :]).to(tl.uint8, bitcast=True)
    if sb is not None:
        ys = tl.load(sb + tl.arange(0, N)[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :]).to(tl.uint8, bitcast=True)
    r = tl.dot_scaled(x, xs, FA, y, ys, FB, fast_math=FAST, lhs_k_pack=PA, rhs_k_pack=PB)
    tl.store(o + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], r)


@triton.jit
def accumulated(a, sa, b, sb, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, B: tl.constexpr):
    """mxfp8 by mxfp4 in steps of K, as kernels for quantised weights do it."""
    m = tl.arange(0, M)
    n = tl.arange(0, N)
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, K, B):
        x = tl.load(a + m[:, None] * K + (k + tl.arange(0, B))[None, :]).to(tl.uint8, bitcast=True) & 0xF7
        y = tl.load(b + (k // 2 + tl.arange(0, B // 2))[:, None] + n[None, :] * (K // 2))
        s = k // 32 + tl.arange(0, B // 32)
        xs = tl.load(sa + m[:, None] * (K // 32) + s[None, :])
        ys = tl.load(sb + n[:, None] * (K // 32) + s[None, :])
        acc = tl.dot_scaled(x.to(tl.float8e4nv, bitcast=True), xs.to(tl.uint8, bitcast=True), "e4m3", y.to(tl.uint8, bitcast=True), ys.to(tl.uint8, bitcast=True), "e2m1", acc)
    tl.store(o + m[:, None] * N + n[None, :], acc)


@triton.jit
def pair_step(a0, a1, b0, b1):
    return a0 * b1 - a1 * b0, a0 + b1


@triton.jit
def packed_pairs(a, b, o, R: tl.constexpr, C: tl.constexpr):
    i = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(o + i, tl.map_elementwise(pair_step, tl.load(a + i), tl.load(b + i), pack=2))


@triton.jit
def quad_sort(a0, a1, a2, a3):
    lo0, hi0 = tl.minimum(a0, a1), tl.maximum(a0, a1)
    lo1, hi1 = tl.minimum(a2, a3), tl.maximum(a2, a3)
    if lo0 > hi1:
        return lo1, hi1, lo0, hi0
    m0, m1 = tl.maximum(lo0, lo1), tl.minimum(hi0, hi1)
    return tl.minimum(lo0, lo1), tl.minimum(m0, m1), tl.maximum(m0, m1), tl.maximum(hi0, hi1)


@triton.jit
def packed_quads(a, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.map_elementwise(quad_sort, tl.load(a + i), pack=4))


@triton.jit
def handed_on(flags, total, B: tl.constexpr):
    """Each program waits for the one before it."""
    pid = tl.program_id(0)
    if pid > 0:
        tl.atomic_poll(flags + pid - 1, 1)
    tl.store(total + pid, pid + (tl.load(total + pid - 1) if pid > 0 else 0))
    tl.atomic_store(flags + pid, 1)


def expect_pairs(a, b, o):
    (a0, a1), (b0, b1) = a.view(-1, 2).T, b.view(-1, 2).T
    o.view(-1, 2)[:, 0], o.view(-1, 2)[:, 1] = a0 * b1 - a1 * b0, a0 + b1


def expect_quads(a, o):
    o.copy_(a.view(-1, 4).sort(1).values.view(-1))


def case(fa, fb, a, b, name=None, m=16, n=16, k=64, pa=True, pb=True, sa="i8[%d]:120,128", sb="i8[%d]:120,128", fast=False, tol=1e-3):
    scales = lambda s, lines: s and (s % (lines * k // 32) if "%" in s else s)
    return dict(kernel="scaled", name=name or f"{fa}_{fb}", args=[a, scales(sa, m), b, scales(sb, n), f"out f32[{m * n}]"],
                const=dict(M=m, N=n, K=k, FA=f"'{fa}'", FB=f"'{fb}'", PA=pa, PB=pb, FAST=fast), tol=tol)


BYTES = "i8[1024]:-128,128"
HALF = "i8[512]:-128,128"
CASES = [
    case("e4m3", "e4m3", BYTES, BYTES),
    case("e5m2", "e5m2", BYTES, BYTES, sa="i8[%d]:100,120", sb="i8[%d]:100,120"),
    case("e4m3", "e5m2", BYTES, BYTES, sb="i8[%d]:100,120"),
    case("e2m1", "e2m1", HALF, HALF),
    case("e2m1", "e2m1", HALF, HALF, name="e2m1_packed_outwards", pa=False, pb=False),
    case("e2m1", "e4m3", HALF, BYTES, name="e2m1_e4m3_lhs_outwards", pa=False),
    case("e2m1", "e4m3", HALF, BYTES, name="large_scales", sa="i8[%d]:-128,-124"),
    case("bf16", "e2m1", "bf16[1024]", HALF, sa=None),
    case("fp16", "e2m1", "f16[1024]", HALF, sa=None),
    case("bf16", "e4m3", "bf16[1024]", BYTES, sa=None, name="bf16_e4m3_fast", fast=True),
    case("e2m1", "bf16", HALF, "bf16[1024]", sb=None),
    case("e4m3", "e4m3", BYTES, BYTES, name="no_scales", sa=None, sb=None),
    case("e4m3", "e2m1", "i8[4096]:-128,128", "i8[4096]:-128,128", name="wide", m=32, n=64, k=128, tol=2e-3),
    dict(kernel="accumulated", args=["i8[4096]:-128,128", "i8[128]:120,128", "i8[2048]:-128,128", "i8[128]:120,128", "out f32[1024]"], const=dict(M=32, N=32, K=128, B=64), tol=1e-3),
    dict(kernel="packed_pairs", args=["f32[128]", "f32[128]", "out f32[128]"], const=dict(R=8, C=16), expect=expect_pairs),
    dict(kernel="packed_pairs", name="packed_columns", args=["f32[32]", "f32[32]", "out f32[32]"], const=dict(R=32, C=1), expect=expect_pairs),
    dict(kernel="packed_quads", args=["i32[64]:-99,99", "out i32[64]"], const=dict(B=64), expect=expect_quads),
    dict(kernel="handed_on", grid=(5, ), args=["out i32[5]", "out i32[5]"], const=dict(B=1)),
]
