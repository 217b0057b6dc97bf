"""Chains of steps that each ask for an element at more than one place: sorting networks, butterflies, prefix sums by steps that double."""
import triton
import triton.language as tl


@triton.jit
def compare_and_swap(x, ids, flip, i: tl.constexpr, n_dims: tl.constexpr):
    """A step of a bitonic sort with the numbers of the elements beside them, left and right taken apart by sums."""
    shape: tl.constexpr = [2**i, 2, 2**(n_dims - i - 1)]
    mask = tl.arange(0, 2)[None, :, None]
    y = tl.reshape(x, shape)
    left = tl.reshape(tl.broadcast_to(tl.sum(y * (1 - mask), 1)[:, None, :], shape), x.shape)
    right = tl.reshape(tl.broadcast_to(tl.sum(y * mask, 1)[:, None, :], shape), x.shape)
    k = tl.reshape(ids, shape)
    left_id = tl.reshape(tl.broadcast_to(tl.sum(k * (1 - mask), 1)[:, None, :], shape), x.shape)
    right_id = tl.reshape(tl.broadcast_to(tl.sum(k * mask, 1)[:, None, :], shape), x.shape)
    bits = x.to(tl.int32, bitcast=True)
    swap = (left > right) != flip
    out = bits ^ tl.where(swap, left.to(tl.int32, bitcast=True) ^ right.to(tl.int32, bitcast=True), 0)
    return out.to(tl.float32, bitcast=True), ids ^ tl.where(swap, left_id ^ right_id, 0)


@triton.jit
def sort_with_ids(x, o, ids, n_dims: tl.constexpr):
    N: tl.constexpr = 2**n_dims
    i = tl.arange(0, N)
    v = tl.load(x + i)
    k = i
    for stage in tl.static_range(1, n_dims + 1):
        flip = (i >> stage) & 1
        for step in tl.static_range(stage):
            v, k = compare_and_swap(v, k, flip, step + (n_dims - stage), n_dims)
    tl.store(o + i, v)
    tl.store(ids + i, k)


@triton.jit
def hadamard(x, o, n_dims: tl.constexpr):
    N: tl.constexpr = 2**n_dims
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for s in tl.static_range(n_dims):
        a, b = tl.split(tl.permute(tl.reshape(v, [N // (2 << s), 2, 1 << s]), (0, 2, 1)))
        v = tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 2, 1)), [N])
    tl.store(o + i, v)


@triton.jit
def hadamard_by_gathers(x, o, n_dims: tl.constexpr):
    i = tl.arange(0, 2**n_dims)
    v = tl.load(x + i)
    for s in tl.static_range(n_dims):
        other = tl.gather(v, i ^ (1 << s), 0)
        v = tl.where((i & (1 << s)) == 0, v + other, other - v)
    tl.store(o + i, v)


@triton.jit
def sums_by_doubling(x, o, n_dims: tl.constexpr):
    i = tl.arange(0, 2**n_dims)
    v = tl.load(x + i)
    for s in tl.static_range(n_dims):
        before = tl.gather(v, tl.maximum(i - (1 << s), 0), 0)
        v += tl.where(i >= (1 << s), before, 0)
    tl.store(o + i, v)


@triton.jit
def transposes(x, o, N: tl.constexpr, S: tl.constexpr):
    """Each step reads its matrix as it is, transposed, and transposed as another shape; in place, so that what was loaded counts."""
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + i)
    for _ in tl.static_range(S):
        v = v * 0.5 + tl.trans(v) * 0.25
        w = tl.reshape(v, [N * N // 8, 8])
        v = v + 0.125 * tl.reshape(w + tl.reshape(tl.trans(w), [N * N // 8, 8]), [N, N])
        tl.store(x + i, v * 2)
    tl.store(o + i, v)


@triton.jit
def running(x, o, N: tl.constexpr, S: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for _ in tl.static_range(S):
        v = v * 0.5 - tl.cumsum(v, 0) * 0.25
    tl.store(o + i, v)


@triton.jit
def halves(values, width: tl.constexpr):
    low, high = tl.split(tl.permute(tl.reshape(values, (2, width)), (1, 0)))
    return low + high


@triton.jit
def ordered_sum(x, o, chunks: tl.constexpr):
    """A sum whose order is that of a warp that shuffles down."""
    i = tl.arange(0, 32)[:, None] * 4 + tl.arange(0, 4)[None, :]
    acc = tl.full((32, 4), 0, tl.float32)
    for chunk in tl.static_range(chunks):
        v = tl.load(x + chunk * 128 + i)
        acc += v * v
    even, odd = tl.split(tl.reshape(acc, (32, 2, 2)))
    a, c = tl.split(even)
    b, d = tl.split(odd)
    total = halves(halves(halves(halves(halves(((a + b) + c) + d, 16), 8), 4), 2), 1)
    tl.store(o + tl.arange(0, 128), tl.rsqrt(tl.sum(total) + 1) * tl.load(x + tl.arange(0, 128)))


CASES = [
    dict(kernel="sort_with_ids", args=["f32[256]", "out f32[256]", "out i32[256]"], const=dict(n_dims=8)),
    dict(kernel="hadamard", args=["f32[1024]", "out f32[1024]"], const=dict(n_dims=10), tol=1e-4),
    dict(kernel="hadamard_by_gathers", args=["f32[1024]", "out f32[1024]"], const=dict(n_dims=10), tol=1e-4),
    dict(kernel="sums_by_doubling", args=["i32[1024]:-9,9", "out i32[1024]"], const=dict(n_dims=10)),
    dict(kernel="transposes", args=["f32[256]", "out f32[256]"], const=dict(N=16, S=8), tol=1e-4),
    dict(kernel="ordered_sum", args=["f32[1024]", "out f32[128]"], const=dict(chunks=8), tol=1e-4),
    dict(kernel="running", args=["f32[64]", "out f32[64]"], const=dict(N=64, S=10), tol=1e-4),
]
