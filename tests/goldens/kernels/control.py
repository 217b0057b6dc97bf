"""Branches, loops, early returns, helpers, tuples, compile-time code."""
import triton
import triton.language as tl

from helpers import scale_add, pick, Pair, double as twice
import helpers

SHIFT = tl.constexpr(3)

alias = tl.float32


@triton.jit
def branch(x, o, n):
    v = tl.load(x)
    if n > 5:
        v = v + 1
        w = v * 2
    elif n > 2:
        w = v
    else:
        w = v * 0
    tl.store(o, w + v)


@triton.jit
def branch_store(x, o, B: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, B)
    if pid % 2 == 0:
        tl.store(o + pid * B + i, tl.load(x + pid * B + i))
    else:
        tl.store(o + pid * B + i, i.to(tl.float32))


@triton.jit
def ternary(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    k = n if n < 10 else 10
    m = 1 if B > 8 else 2
    tl.store(o + i, tl.load(x + i) * k + m)


@triton.jit
def loop_sum(x, o, n, B: tl.constexpr):
    acc = tl.zeros([B], tl.float32)
    for s in range(0, n, B):
        i = s + tl.arange(0, B)
        acc += tl.load(x + i, mask=i < n, other=0.0)
    tl.store(o + tl.arange(0, B), acc)


@triton.jit
def loop_down(o, n):
    k = 0
    for i in range(n, 0, -2):
        tl.store(o + k, i)
        k += 1


@triton.jit
def nested_loops(x, o, n, m):
    total = 0.0
    last = 0
    for i in range(n):
        row = 0.0
        for j in range(m):
            row += tl.load(x + i * m + j)
            last = j
        total += row * (i + 1)
    tl.store(o, total)
    tl.store(o + 1, last)


@triton.jit
def while_loop(o, n):
    a = n
    steps = 0
    while a > 1:
        if a % 2 == 0:
            a = a // 2
        else:
            a = 3 * a + 1
        steps += 1
    tl.store(o, steps)


@triton.jit
def while_and(o, n):
    i = 0
    s = 0
    while (i < n) & (s < 50):
        s += i
        i += 1
    tl.store(o, s)
    tl.store(o + 1, i)


@triton.jit
def unrolled(x, o, B: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    for k in tl.static_range(K):
        if k % 2 == 0:
            v = v * 2
        else:
            v = v + k
    for k in tl.static_range(3, 0, -1):
        v = v - k
    tl.store(o + i, v)


@triton.jit
def early_return(x, o, n, B: tl.constexpr):
    pid = tl.program_id(0)
    if pid >= n:
        return
    i = tl.arange(0, B)
    tl.store(o + pid * B + i, tl.load(x + pid * B + i) + 1)


@triton.jit
def clip(v, lo, hi):
    if v < lo:
        return lo
    if v > hi:
        return hi
    return v


@triton.jit
def helper_returns(x, o, n):
    for i in range(n):
        tl.store(o + i, clip(tl.load(x + i), -0.25, 0.25))


@triton.jit
def divmod_(a, b):
    return a // b, a % b


@triton.jit
def tuples(o, n):
    q, r = divmod_(n, 7)
    t = (q, r, n)
    (a, b), c = (t[0], t[1]), t[2]
    a, b = b, a
    tl.store(o, a * 100 + b * 10 + c + len(t))


@triton.jit
def tuple_in_loop(o, n):
    state = (0, 1)
    for _ in range(n):
        state = (state[1], state[0] + state[1])
    tl.store(o, state[0])


@triton.jit
def imports(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + i, scale_add(v, 2.0) + twice(v) + helpers.double(v) + helpers.OFFSET)


@triton.jit
def by_name(x, o, ACT: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    if ACT == "relu":
        v = tl.maximum(v, 0.0)
    elif ACT == "double":
        v = twice(v)
    tl.store(o + i, v)


@triton.jit
def relu(v):
    return tl.maximum(v, 0.0)


@triton.jit
def by_function(x, o, ACT: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, ACT(tl.load(x + i)))


@triton.jit
def optional(x, bias, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    if bias is not None:
        v += tl.load(bias + i)
    tl.store(o + i, v)


@triton.constexpr_function
def log2(n):
    k = 0
    while n > 1:
        n //= 2
        k += 1
    return k


@triton.jit
def compile_time(x, o, B: tl.constexpr):
    """Globals, constexpr functions, list comprehensions over tuples, asserts on shapes."""
    tl.static_assert(B == 2**log2(B), "B is a power of two")
    i = tl.arange(0, B)
    K: tl.constexpr = log2(B) + SHIFT
    v = tl.load(x + i).to(alias)
    extra = [v * k for k in (1, 2, 3)]
    assert v.shape[0] == B, "shape"
    tl.store(o + i, extra[0] + extra[1] + extra[2] + K)


@triton.jit
def named_tuple(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    p = Pair(tl.load(x + i), i)
    q = pick(p)
    tl.store(o + i, q)


@triton.jit
def default_args(x, o, B: tl.constexpr = 32, K: tl.constexpr = 4):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i) * K)


@triton.jit
def unsigned_loop(o, n):
    s = n.to(tl.int64) * 0
    for i in range(n.to(tl.int64)):
        s += i
    tl.store(o, s)


@triton.jit
def logical_short(o, n, FLAG: tl.constexpr):
    if FLAG and n > 3:
        tl.store(o, 1)
    if (not FLAG) or n > 3:
        tl.store(o + 1, 1)
    if FLAG or n > 100:
        tl.store(o + 2, 1)


CASES = [
    dict(kernel="branch", name=f"branch_{n}", args=["f32[1]", "out f32[1]", n]) for n in (1, 3, 7)
] + [
    dict(kernel="branch_store", grid=(4, ), args=["f32[64]", "out f32[64]"], const=dict(B=16)),
    dict(kernel="ternary", args=["f32[16]", "out f32[16]", 30], const=dict(B=16)),
    dict(kernel="loop_sum", args=["f32[100]", "out f32[32]", 100], const=dict(B=32)),
    dict(kernel="loop_sum", name="loop_sum_none", args=["f32[100]", "out f32[32]", 0], const=dict(B=32)),
    dict(kernel="loop_down", args=["out i32[8]", 11]),
    dict(kernel="nested_loops", args=["f32[20]", "out f32[2]", 4, 5]),
    dict(kernel="while_loop", args=["out i32[1]", 27]),
    dict(kernel="while_and", args=["out i32[2]", 100]),
    dict(kernel="unrolled", args=["f32[32]", "out f32[32]"], const=dict(B=32, K=5)),
    dict(kernel="early_return", grid=(4, ), args=["f32[64]", "out f32[64]", 3], const=dict(B=16)),
    dict(kernel="helper_returns", args=["f32[16]", "out f32[16]", 16]),
    dict(kernel="tuples", args=["out i32[1]", 45]),
    dict(kernel="tuple_in_loop", args=["out i32[1]", 10]),
    dict(kernel="imports", args=["f32[32]", "out f32[32]"], const=dict(B=32)),
    dict(kernel="by_name", args=["f32[32]", "out f32[32]"], const=dict(ACT="'relu'", B=32)),
    dict(kernel="by_name", name="by_name_none", args=["f32[32]", "out f32[32]"], const=dict(ACT="None", B=32)),
    dict(kernel="by_function", args=["f32[32]", "out f32[32]"], const=dict(ACT="relu", B=32)),
    dict(kernel="optional", args=["f32[32]", "f32[32]", "out f32[32]"], const=dict(B=32)),
    dict(kernel="optional", name="optional_none", args=["f32[32]", None, "out f32[32]"], const=dict(B=32)),
    dict(kernel="compile_time", args=["f32[32]", "out f32[32]"], const=dict(B=32)),
    dict(kernel="named_tuple", args=["f32[32]", "out f32[32]"], const=dict(B=32)),
    dict(kernel="default_args", args=["f32[32]", "out f32[32]"]),
    dict(kernel="unsigned_loop", args=["out i64[1]", 9]),
    dict(kernel="logical_short", args=["out i32[3]", 5], const=dict(FLAG="True")),
    dict(kernel="logical_short", name="logical_short_off", args=["out i32[3]", 2], const=dict(FLAG="False")),
]
