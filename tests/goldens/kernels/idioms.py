"""What kernel libraries do around and inside their kernels: conditional imports, constants chosen by the target, enums, wrappers, tricks."""
import enum
import functools
import math
import os

import triton
import triton.language as tl

try:
    from triton.language.extra.libdevice import rsqrt, tanh
except ImportError:
    from triton.language.math import rsqrt, tanh

try:
    import some_library_that_is_not_there as extras
    HAS_EXTRAS = True
except ImportError:
    extras = None
    HAS_EXTRAS = False


class Kind(enum.IntEnum):
    RELU = 0
    SQUARE = 1
    LEAKY = 2


def platform():
    try:
        return triton.runtime.driver.active.get_current_target().backend
    except Exception:
        return "cpu"


LOG2E = tl.constexpr(1.0 / math.log(2.0))
UNROLL: tl.constexpr = 4
PRECISION = tl.constexpr("tf32x3" if platform() == "npu" else "ieee")
MASKED = tl.constexpr(os.environ.get("AN_UNSET_VARIABLE", "1") == "1")
SHIFT = tl.constexpr(3 if HAS_EXTRAS else 2)
TABLE = {"a": tl.constexpr(2), "b": tl.constexpr(5)}


def traced(fn=None, *, name=None):
    if fn is None:
        return functools.partial(traced, name=name)
    return fn


@triton.jit
def activate(x, KIND: tl.constexpr):
    if KIND == 0:
        return tl.maximum(x, 0.0)
    elif KIND == 1:
        return x * x
    else:
        return tl.where(x > 0, x, 0.125 * x)


@triton.jit
def enum_switch(x, o, KIND: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, activate(tl.load(x + i), KIND))


@triton.jit
def constants(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    acc = tl.zeros([B], tl.float32)
    for step in tl.static_range(UNROLL):
        acc += tl.exp2(v * LOG2E) * (step + 1)
    if MASKED:
        acc += i >> SHIFT
    # Functions of the device library are not for Triton's interpreter: a branch that is never taken holds them.
    if SHIFT == 3:
        acc += tanh(v) * rsqrt(v * v + 1.0)
    tl.store(o + i, acc)


@triton.jit
def target_precision(a, b, o, B: tl.constexpr):
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(o + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision=PRECISION))


@triton.jit
def batched_dot(a, b, o, G: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, G)[:, None, None] * B * B + tl.arange(0, B)[None, :, None] * B + tl.arange(0, B)[None, None, :]
    tl.store(o + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision="ieee"))


@triton.jit
def spin_lock(lock, total, x, B: tl.constexpr):
    """Programs add to one sum under a lock; the sum of integers does not depend on their order."""
    pid = tl.program_id(0)
    mine = tl.sum(tl.load(x + pid * B + tl.arange(0, B)))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + mine)
    tl.atomic_xchg(lock, 0)


@triton.jit
def inverse_lower(a, o, B: tl.constexpr):
    """Inverse of I + A for a strictly lower A, row by row, as delta rules do it."""
    r = tl.arange(0, B)
    at = r[:, None] * B + r[None, :]
    strict = tl.where(r[:, None] > r[None, :], tl.load(a + at), 0.0)
    inv = -strict
    for i in range(1, B):
        row = tl.sum(tl.where((r == i)[:, None], inv, 0.0), 0)
        row = row + tl.sum(row[:, None] * inv, 0) * (r < i)
        inv = tl.where((r == i)[:, None], row[None, :], inv)
    tl.store(o + at, inv + (r[:, None] == r[None, :]))


@triton.jit
def varlen_sum(x, starts, o, B: tl.constexpr):
    """One sequence a program: bounds from memory, a loop of unknown length."""
    pid = tl.program_id(0)
    begin = tl.load(starts + pid).to(tl.int32)
    end = tl.load(starts + pid + 1).to(tl.int32)
    if begin == end:
        return
    acc = tl.zeros([B], tl.float32)
    for at in range(begin, end, B):
        i = at + tl.arange(0, B)
        acc += tl.load(x + i, mask=i < end, other=0.0)
    tl.store(o + pid, tl.sum(acc))


@triton.jit
def jagged_starts(lengths, o, B: tl.constexpr):
    i = tl.arange(0, B)
    n = tl.load(lengths + i)
    tl.store(o + i, tl.cumsum(n, 0) - n)


@triton.jit
def select_block(p, a, b, first):
    return tl.where(first, a, b) + tl.where(p > 0, 1, 0)


@triton.jit
def pointer_select(x, y, o, n, B: tl.constexpr):
    """One pointer or the other, by program."""
    pid = tl.program_id(0)
    base = x if pid % 2 == 0 else y
    i = tl.arange(0, B)
    v = tl.load(base + i, mask=i < n, other=-1.0)
    tl.store(o + pid * B + i, select_block(v, v, v * 2, pid == 0))


@triton.jit
def running_argmax(x, vals, idx, n, B: tl.constexpr):
    best = -float("inf")
    where = -1
    for at in range(0, n, B):
        i = at + tl.arange(0, B)
        v = tl.load(x + i, mask=i < n, other=-float("inf"))
        top, place = tl.max(v, 0, return_indices=True)
        if top > best:
            best = top
            where = at + place
    tl.store(vals, best)
    tl.store(idx, where)


@triton.jit
def blockwise_quant(x, q, s, B: tl.constexpr, GROUP: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.reshape(tl.load(x + i), (B // GROUP, GROUP))
    scale = tl.maximum(tl.max(tl.abs(v), 1), 1e-6) / 127.0
    codes = tl.floor(v / scale[:, None] + 0.5).to(tl.int8)
    tl.store(q + i, tl.reshape(codes, (B, )))
    tl.store(s + tl.arange(0, B // GROUP), scale)


@triton.jit
def nibbles(packed, o, B: tl.constexpr):
    i = tl.arange(0, B)
    word = tl.load(packed + i // 8)
    code = (word >> ((i % 8) * 4)) & 0xF
    tl.store(o + i, (code.to(tl.float32) - 8.0) * 0.5)


@triton.jit
def interleaved_rope(x, cos, sin, o, D: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, D)
    pairs = tl.reshape(tl.load(x + row * D + i), (D // 2, 2))
    even, odd = tl.split(pairs)
    c = tl.load(cos + row * (D // 2) + tl.arange(0, D // 2))
    s = tl.load(sin + row * (D // 2) + tl.arange(0, D // 2))
    out = tl.interleave(even * c - odd * s, odd * c + even * s)
    tl.store(o + row * D + i, out)


@triton.jit
def causal_window(q, k, o, W, B: tl.constexpr, D: tl.constexpr):
    r, d = tl.arange(0, B), tl.arange(0, D)
    s = tl.dot(tl.load(q + r[:, None] * D + d[None, :]), tl.trans(tl.load(k + r[:, None] * D + d[None, :])), input_precision="ieee")
    delta = r[:, None] - r[None, :]
    keep = (delta >= 0) & (delta < W)
    s = tl.where(keep, s, float("-inf"))
    m = tl.max(s, 1, keep_dims=True)
    p = tl.exp(s - m)
    tl.store(o + r[:, None] * B + r[None, :], p / tl.sum(p, 1, keep_dims=True))


@triton.jit
def gated_scan_step(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def gated_scan(g, x, o, R: tl.constexpr, T: tl.constexpr):
    at = tl.arange(0, R)[:, None] * T + tl.arange(0, T)[None, :]
    _, h = tl.associative_scan((tl.sigmoid(tl.load(g + at)), tl.load(x + at)), 1, gated_scan_step)
    tl.store(o + at, h)


@triton.jit
def logsumexp_pair(m1, s1, m2, s2):
    m = tl.maximum(m1, m2)
    return m, s1 * tl.exp(m1 - m) + s2 * tl.exp(m2 - m)


@triton.jit
def logsumexp_rows(x, o, R: tl.constexpr, C: tl.constexpr):
    v = tl.load(x + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
    m, s = tl.reduce((v, tl.full([R, C], 1.0, tl.float32)), 1, logsumexp_pair)
    tl.store(o + tl.arange(0, R), m + tl.log(s))


@triton.jit
def bincount(x, o, n, BINS: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    h = tl.histogram(v, BINS, mask=i < n)
    tl.atomic_add(o + tl.arange(0, BINS), h)


@triton.jit
def bitonic_pairs(x, o, i_out, B: tl.constexpr):
    """Sorts keys with their places packed into one 64-bit number."""
    i = tl.arange(0, B)
    key = tl.load(x + i).to(tl.int64)
    packed = tl.sort((key << 32) | i.to(tl.int64), descending=True)
    tl.store(o + i, (packed >> 32).to(tl.int32))
    tl.store(i_out + i, (packed & 0xFFFFFFFF).to(tl.int32))


@triton.jit
def nested_helpers(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    mask = i < n

    v = tl.load(x + i, mask=mask, other=0.0)
    for kind in tl.static_range(3):
        v = activate(v, kind) + kind
    tl.store(o + i, v, mask=mask)


@triton.jit
def strided_copy(x, o, rows, cols, sx0: tl.int64, sx1, so0: tl.int64, so1, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    mask = (r < rows)[:, None] & (c < cols)[None, :]
    v = tl.load(x + r[:, None] * sx0 + c[None, :] * sx1, mask=mask)
    tl.store(o + r[:, None] * so0 + c[None, :] * so1, v, mask=mask)


@triton.jit
def tree_tuple(x, o, B: tl.constexpr):
    """Tuples that grow in an unrolled loop."""
    i = tl.arange(0, B)
    parts = ()
    for k in tl.static_range(4):
        parts = parts + (tl.load(x + k * B + i) * (k + 1), )
    total = parts[0]
    for k in tl.static_range(1, len(parts)):
        total += parts[k]
    tl.store(o + i, total)


@triton.jit
def bf16_residual(x, r, w, o, eps, B: tl.constexpr):
    """Adds in bf16, normalises in f32, as fused add + norm kernels do. (Triton's interpreter truncates to bf16: hence the tolerance.)"""
    i = tl.arange(0, B)
    s = (tl.load(x + i).to(tl.float32) + tl.load(r + i)).to(tl.bfloat16)
    tl.store(r + i, s)
    f = s.to(tl.float32)
    scale = tl.rsqrt(tl.sum(f * f, 0) / B + eps)
    tl.store(o + i, (f * scale).to(tl.bfloat16).to(tl.float32) * tl.load(w + i))


@triton.jit
def two_stage(x, partial, o, n, STAGE: tl.constexpr, B: tl.constexpr):
    if STAGE == 1:
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(partial + tl.program_id(0), tl.max(tl.load(x + i, mask=i < n, other=float("-inf")), 0))
    else:
        i = tl.arange(0, B)
        tl.store(o, tl.max(tl.load(partial + i, mask=i < n, other=float("-inf")), 0))


CASES = [
    dict(kernel="enum_switch", name="enum_relu", args=["f32[64]", "out f32[64]"], const=dict(KIND=0, B=64)),
    dict(kernel="enum_switch", name="enum_leaky", args=["f32[64]", "out f32[64]"], const=dict(KIND=2, B=64)),
    dict(kernel="constants", args=["f32[64]", "out f32[64]"], const=dict(B=64)),
    dict(kernel="target_precision", args=["f32[256]", "f32[256]", "out f32[256]"], const=dict(B=16)),
    dict(kernel="batched_dot", args=["f32[1024]", "f32[1024]", "out f32[1024]"], const=dict(G=4, B=16)),
    dict(kernel="spin_lock", grid=(5, ), args=["out i32[1]", "out i32[1]", "i32[160]:-9,9"], const=dict(B=32)),
    dict(kernel="inverse_lower", args=["f32[256]:-0.5,0.5", "out f32[256]"], const=dict(B=16)),
    dict(kernel="jagged_starts", args=["i64[32]:0,9", "out i64[32]"], const=dict(B=32)),
    dict(kernel="varlen_sum", grid=(3, ), args=["f32[80]", "i64[4]:3,70", "out f32[3]"], const=dict(B=16)),
    dict(kernel="pointer_select", grid=(3, ), args=["f32[32]", "f32[32]", "out f32[96]", 29], const=dict(B=32)),
    dict(kernel="running_argmax", args=["f32[150]", "out f32[1]", "out i32[1]", 150], const=dict(B=32)),
    dict(kernel="blockwise_quant", args=["f32[256]:-3,3", "out i8[256]", "out f32[8]"], const=dict(B=256, GROUP=32)),
    dict(kernel="nibbles", args=["i32[16]:-2000000000,2000000000", "out f32[128]"], const=dict(B=128)),
    dict(kernel="interleaved_rope", grid=(3, ), args=["f32[192]", "f32[96]", "f32[96]", "out f32[192]"], const=dict(D=64)),
    dict(kernel="causal_window", args=["f32[512]", "f32[512]", "out f32[1024]", 7], const=dict(B=32, D=16)),
    dict(kernel="gated_scan", args=["f32[256]", "f32[256]", "out f32[256]"], const=dict(R=8, T=32)),
    dict(kernel="logsumexp_rows", args=["f32[512]:-9,9", "out f32[8]"], const=dict(R=8, C=64)),
    dict(kernel="bincount", grid=(3, ), args=["i32[80]:0,16", "out i32[16]", 75], const=dict(BINS=16, B=32)),
    dict(kernel="bitonic_pairs", args=["i32[64]:-99,99", "out i32[64]", "out i32[64]"], const=dict(B=64)),
    dict(kernel="nested_helpers", grid=(2, ), args=["f32[60]:-2,2", "out f32[60]", 60], const=dict(B=32)),
    dict(kernel="strided_copy", grid=(2, 2), args=["f32[700]", "out f32[700]", 21, 30, 1, 22, 31, 1], const=dict(BR=16, BC=16)),
    dict(kernel="tree_tuple", args=["f32[128]", "out f32[32]"], const=dict(B=32)),
    dict(kernel="bf16_residual", args=["bf16[64]", "bf16[64]", "bf16[64]", "out bf16[64]", 1e-5], const=dict(B=64), tol=0.03),
    dict(kernel="two_stage", name="two_stage_first", grid=(3, ), args=["f32[90]", "out f32[3]", None, 90], const=dict(STAGE=1, B=32)),
    dict(kernel="two_stage", name="two_stage_last", args=[None, "f32[3]", "out f32[1]", 3], const=dict(STAGE=2, B=32)),
]
