"""The part of triton.language that can be said in Triton itself: reductions, scans, sorting, random numbers, small helpers.

The front end carries this file and compiles its functions like any kernel's helpers. Names and parameters are Triton's.
"""
from typing import NamedTuple

import triton
import triton.language as tl


class _GPUTarget(NamedTuple):
    backend: str
    arch: int
    warp_size: int


@triton.constexpr_function
def _current_target():
    """What triton.runtime.driver.active.get_current_target() says: libraries choose constants of their kernels by it. Their CUDA side
    is the one whose functions (libdevice, PTX idioms) every backend of ours accepts."""
    return _GPUTarget("cuda", 90, 32)


def _device_capability(device=None):
    """torch.cuda.get_device_capability() of that target."""
    arch = _current_target().arch
    return (arch // 10, arch % 10)


def _is_available():
    """torch.cuda.is_available() there."""
    return True


@triton.constexpr_function
def _is_cuda():
    return _current_target().backend == "cuda"


@triton.constexpr_function
def _cuda_capability_geq(major, minor=0):
    return _is_cuda() and _current_target().arch >= major * 10 + minor


@triton.constexpr_function
def _is_hip():
    return _current_target().backend == "hip"


@triton.constexpr_function
def _log2(n):
    bits = 0
    while n > 1:
        n = n >> 1
        bits += 1
    return bits


@triton.constexpr_function
def _is_power_of_two(n):
    return n > 0 and (n & (n - 1)) == 0


@triton.constexpr_function
def _sum_type(own, asked):
    """Small integers are summed in 32 bits, unless the caller asks for a type."""
    if asked is not None:
        return asked
    if own.is_int_signed() and own.int_bitwidth < 32:
        return tl.int32
    if own.is_int_unsigned() and own.int_bitwidth < 32:
        return tl.uint32
    return own


@triton.constexpr_function
def _wide_type(own):
    """Maximum and minimum of types below 32 bits are taken in 32 bits."""
    if own.primitive_bitwidth >= 32:
        return own
    return tl.float32 if own.is_floating() else tl.int32


@triton.constexpr_function
def _int_type(own):
    return tl.get_int_dtype(own.primitive_bitwidth, True)


@triton.constexpr_function
def _axis(dim, rank):
    if dim is None:
        return rank - 1
    return dim + rank if dim < 0 else dim


# ---- small helpers


@triton.jit
def cdiv(x, div):
    return (x + (div - 1)) // div


@triton.jit
def sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def softmax(x, dim=None, keep_dims=None, ieee_rounding=False):
    axis: tl.constexpr = 0 if dim is None else dim
    shifted = x - max(x, axis, keep_dims=True)
    e = tl.exp(shifted)
    return tl.math.fdiv(e, sum(e, axis, keep_dims=True), ieee_rounding)


@triton.jit
def ravel(x, can_reorder=False):
    return tl.reshape(x, [x.numel], can_reorder=can_reorder)


@triton.jit
def zeros(shape, dtype):
    return tl.full(shape, 0, dtype)


@triton.jit
def zeros_like(input):
    return tl.full(input.shape, 0, input.dtype)


@triton.jit
def full_like(input, value):
    return tl.full(input.shape, value, input.dtype)


@triton.jit
def swizzle2d(i, j, size_i, size_j, size_g):
    """Row-major indices of a size_i x size_j matrix, walked column by column within groups of size_g rows."""
    flat = i * size_j + j
    per_group = size_g * size_j
    first = (flat // per_group) * size_g
    rows = tl.minimum(size_i - first, size_g)
    within = flat % per_group
    return first + within % rows, within // rows


@triton.jit
def squeeze(x, dim: tl.constexpr):
    axis: tl.constexpr = _axis(dim, len(x.shape))
    tl.static_assert(x.shape[axis] == 1)
    return tl.reshape(x, x.shape[:axis] + x.shape[axis + 1:])


@triton.jit
def unsqueeze(x, dim: tl.constexpr):
    axis: tl.constexpr = _axis(dim, len(x.shape) + 1)
    return tl.reshape(x, x.shape[:axis] + (1, ) + x.shape[axis:])


@triton.jit
def interleave(a, b):
    c = tl.join(a, b)
    if len(c.shape) == 1:
        return c
    else:
        return tl.reshape(c, c.shape[:-2] + (2 * c.shape[-2], ))


@triton.jit
def expect_zero(x, mask):
    return x


# ---- reductions


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _mul(a, b):
    return a * b


@triton.jit
def _xor(a, b):
    return a ^ b


@triton.jit
def _or(a, b):
    return a | b


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def _smaller(a, b):
    return tl.minimum(a, b)


@triton.jit
def _larger_left(v, i, w, j):
    """Of equal values the one with the lower index."""
    first = v > w or (v == w and i < j)
    return tl.where(first, v, w), tl.where(first, i, j)


@triton.jit
def _larger_fast(v, i, w, j):
    first = v > w
    return tl.where(first, v, w), tl.where(first, i, j)


@triton.jit
def _smaller_left(v, i, w, j):
    first = v < w or (v == w and i < j)
    return tl.where(first, v, w), tl.where(first, i, j)


@triton.jit
def _smaller_fast(v, i, w, j):
    first = v < w
    return tl.where(first, v, w), tl.where(first, i, j)


@triton.constexpr_function
def _other_axes(axis, rank):
    return [d for d in range(rank) if d != axis]


@triton.jit
def _with_indices(input, axis, combine: tl.constexpr, keep_dims):
    rank: tl.constexpr = len(input.shape)
    tl.static_assert(axis is not None, "axis must be given to reduce with indices")
    at: tl.constexpr = _axis(axis, rank)
    index = tl.arange(0, input.shape[at])
    if rank > 1:
        index = tl.expand_dims(index, _other_axes(at, rank))
        index = tl.broadcast_to(index, input.shape)
    return tl.reduce((input, index), at, combine, keep_dims=keep_dims)


@triton.jit
def _reduce_with_indices(input, axis, combine_fn, keep_dims=False):
    return _with_indices(input, axis, combine_fn, keep_dims)


@triton.jit
def max(input, axis=None, return_indices=False, return_indices_tie_break_left=True, keep_dims=False):
    if return_indices:
        if return_indices_tie_break_left:
            return _with_indices(input, axis, _larger_left, keep_dims)
        else:
            return _with_indices(input, axis, _larger_fast, keep_dims)
    else:
        return tl.reduce(input.to(_wide_type(input.dtype)), axis, _larger, keep_dims=keep_dims)


@triton.jit
def min(input, axis=None, return_indices=False, return_indices_tie_break_left=True, keep_dims=False):
    if return_indices:
        if return_indices_tie_break_left:
            return _with_indices(input, axis, _smaller_left, keep_dims)
        else:
            return _with_indices(input, axis, _smaller_fast, keep_dims)
    else:
        return tl.reduce(input.to(_wide_type(input.dtype)), axis, _smaller, keep_dims=keep_dims)


@triton.jit
def argmax(input, axis, tie_break_left=True, keep_dims=False):
    _, index = max(input, axis, return_indices=True, return_indices_tie_break_left=tie_break_left, keep_dims=keep_dims)
    return index


@triton.jit
def argmin(input, axis, tie_break_left=True, keep_dims=False):
    _, index = min(input, axis, return_indices=True, return_indices_tie_break_left=tie_break_left, keep_dims=keep_dims)
    return index


@triton.jit
def sum(input, axis=None, keep_dims=False, dtype: tl.constexpr = None):
    return tl.reduce(input.to(_sum_type(input.dtype, dtype)), axis, _add, keep_dims=keep_dims)


@triton.jit
def xor_sum(input, axis=None, keep_dims=False):
    tl.static_assert(input.type.scalar.is_int(), "xor_sum only supported for integers")
    return tl.reduce(input, axis, _xor, keep_dims=keep_dims)


@triton.jit
def reduce_or(input, axis=None, keep_dims=False):
    tl.static_assert(input.type.scalar.is_int(), "reduce_or only supported for integers")
    return tl.reduce(input, axis, _or, keep_dims=keep_dims)


@triton.jit
def cumsum(input, axis=0, reverse=False, dtype: tl.constexpr = None):
    return tl.associative_scan(input.to(_sum_type(input.dtype, dtype)), axis, _add, reverse)


@triton.jit
def cumprod(input, axis=0, reverse=False, dtype: tl.constexpr = None):
    return tl.associative_scan(input.to(_sum_type(input.dtype, dtype)), axis, _mul, reverse)


# ---- order: bitonic networks over a hypercube of axes of length 2


@triton.constexpr_function
def _side_shape(n_dims, j):
    return [1] * (n_dims - j - 1) + [2] + [1] * j


@triton.jit
def _side(n_dims: tl.constexpr, j: tl.constexpr):
    """0 and 1 along the j-th innermost axis."""
    return tl.reshape(tl.arange(0, 2), _side_shape(n_dims, j))


@triton.jit
def _compare_and_swap(x, flip, j: tl.constexpr):
    n_dims: tl.constexpr = _log2(x.numel)
    bits = x.to(_int_type(x.dtype), bitcast=True)
    # The partner along an axis of length 2 is the xor of both, xor-ed with oneself.
    partner = (bits ^ xor_sum(bits, n_dims - 1 - j, True)).to(x.dtype, bitcast=True)
    right = _side(n_dims, j)
    return tl.where((x > partner) != (flip ^ right).to(tl.int1), partner, x)


@triton.jit
def _merge_stage(x, stage: tl.constexpr, order: tl.constexpr):
    """One bitonic merge; order 0 ascends, 1 descends, 2 alternates."""
    if order == 2:
        flip = _side(_log2(x.numel), stage)
    else:
        flip = order
    for i in tl.static_range(stage):
        x = _compare_and_swap(x, flip, stage - 1 - i)
    return x


@triton.jit
def sort_impl(x, k: tl.constexpr = None, dim: tl.constexpr = None, descending: tl.constexpr = 0):
    axis: tl.constexpr = len(x.shape) - 1 if dim is None else dim
    tl.static_assert(axis == len(x.shape) - 1 or axis == -1, "only minor dimension is currently supported")
    if k is not None:
        tl.static_assert(k > 0, "topk: k must be greater than 0")
        tl.static_assert(_is_power_of_two(k), "topk: k must be a power of two")
        tl.static_assert(k <= x.shape[-1], "topk: k must not exceed the size of the selected dimension")
    log_n: tl.constexpr = _log2(x.shape[-1])
    log_k: tl.constexpr = log_n if k is None else _log2(k)
    if log_k == 0:
        if descending:
            return max(x, axis=len(x.shape) - 1, keep_dims=True)
        else:
            return min(x, axis=len(x.shape) - 1, keep_dims=True)
    else:
        n_dims: tl.constexpr = _log2(x.numel)
        h = tl.reshape(x, [2] * n_dims)
        for i in tl.static_range(1, log_k + 1):
            h = _merge_stage(h, i, 2 if i < log_n else descending)
        # Halve until k are left: keep the better of each pair of sorted runs, then merge.
        for i in tl.static_range(log_k + 1, log_n + 1):
            h = max(h, axis=(_log2(h.numel) - 1 - log_k)) if descending else min(h, axis=(_log2(h.numel) - 1 - log_k))
            h = _merge_stage(h, log_k, 2 if i < log_n else descending)
        return tl.reshape(h, x.shape[:-1] + (2**log_k, ))


@triton.jit
def sort(x, dim: tl.constexpr = None, descending: tl.constexpr = 0):
    return sort_impl(x, None, dim, descending)


@triton.jit
def topk(x, k: tl.constexpr, dim: tl.constexpr = None, descending: tl.constexpr = True):
    return sort_impl(x, k, dim, descending)


@triton.jit
def bitonic_merge(x, dim: tl.constexpr = None, descending: tl.constexpr = 0):
    axis: tl.constexpr = len(x.shape) - 1 if dim is None else dim
    tl.static_assert(axis == len(x.shape) - 1, "only minor dimension is currently supported")
    h = tl.reshape(x, [2] * _log2(x.numel))
    h = _merge_stage(h, _log2(x.shape[-1]), descending)
    return tl.reshape(h, x.shape)


@triton.jit
def flip(x, dim=None):
    axis: tl.constexpr = _axis(dim, len(x.shape))
    tl.static_assert(0 <= axis and axis < len(x.shape), "flip: dim must be None or in [-rank, rank)")
    tl.static_assert(_is_power_of_two(x.shape[axis]))
    steps: tl.constexpr = _log2(x.shape[axis])
    y = tl.reshape(x.to(_int_type(x.dtype), bitcast=True), x.shape[:axis] + (2, ) * steps + x.shape[axis + 1:])
    for i in tl.static_range(steps):
        y = y ^ xor_sum(y, axis + i, True)
    return tl.reshape(y, x.shape).to(x.dtype, bitcast=True)


# ---- random numbers: Philox 4x32 and 4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3")


@triton.constexpr_function
def _philox_constants(dtype):
    if dtype == tl.uint32:
        return (0x9E3779B9, 0xBB67AE85, 0xD2511F53, 0xCD9E8D57)
    return (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B, 0xD2E7470EE14C6C93, 0xCA5A826395121157)


@triton.jit
def philox_impl(c0, c1, c2, c3, k0, k1, n_rounds: tl.constexpr = 10):
    tl.static_assert(c0.dtype == tl.uint32 or c0.dtype == tl.uint64, "dtype not supported in philox_impl")
    K: tl.constexpr = _philox_constants(c0.dtype)
    A = tl.full((), K[2], c0.dtype)
    B = tl.full((), K[3], c0.dtype)
    for _ in tl.static_range(n_rounds):
        b0, b2 = c0, c2
        c0 = tl.umulhi(B, b2) ^ c1 ^ k0
        c2 = tl.umulhi(A, b0) ^ c3 ^ k1
        c1 = B * b2
        c3 = A * b0
        k0 = k0 + K[0]
        k1 = k1 + K[1]
    return c0, c1, c2, c3


@triton.jit
def philox(seed, c0, c1, c2, c3, n_rounds: tl.constexpr = 10):
    seed = tl.to_tensor(seed)
    tl.static_assert(seed.dtype.is_int())
    seed = seed.to(tl.uint64)
    c0 = tl.to_tensor(c0)
    c1 = tl.to_tensor(c1)
    c2 = tl.to_tensor(c2)
    c3 = tl.to_tensor(c3)
    if c0.dtype.primitive_bitwidth == 32:
        word: tl.constexpr = tl.uint32
        high = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
        low = (seed & 0xFFFFFFFF).to(tl.uint32)
    else:
        tl.static_assert(c0.dtype.primitive_bitwidth == 64, "bitwidth not supported in philox")
        word: tl.constexpr = tl.uint64
        high = tl.full((1, ), 0, tl.uint64)
        low = seed
    return philox_impl(c0.to(word, bitcast=True), c1.to(word, bitcast=True), c2.to(word, bitcast=True),
                       c3.to(word, bitcast=True), low, high, n_rounds)


@triton.jit
def randint4x(seed, offset, n_rounds: tl.constexpr = 10):
    offset = tl.to_tensor(offset)
    low = offset.to(tl.uint32)
    zero = low * 0
    if offset.dtype.primitive_bitwidth > 32:
        high = (offset >> 32).to(tl.uint32)
    else:
        high = zero
    return philox(seed, low, high, zero, zero, n_rounds)


@triton.jit
def randint(seed, offset, n_rounds: tl.constexpr = 10):
    r, _, _, _ = randint4x(seed, offset, n_rounds)
    return r


@triton.jit
def uint_to_uniform_float(x):
    """Uniform in [0, 1): the integer folded to its non-negative half and scaled so that the largest stays below 1."""
    if x.dtype.primitive_bitwidth == 32:
        x = x.to(tl.int32, bitcast=True)
        scale = 4.6566127342e-10
    else:
        tl.static_assert(x.dtype.primitive_bitwidth == 64)
        x = x.to(tl.int64, bitcast=True)
        scale = 1.0842020432385337e-19
    return tl.where(x < 0, ~x, x) * scale


@triton.jit
def uint32_to_uniform_float(x):
    return uint_to_uniform_float(x)


@triton.jit
def rand(seed, offset, n_rounds: tl.constexpr = 10):
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@triton.jit
def rand4x(seed, offsets, n_rounds: tl.constexpr = 10):
    a, b, c, d = randint4x(seed, offsets, n_rounds)
    return uint_to_uniform_float(a), uint_to_uniform_float(b), uint_to_uniform_float(c), uint_to_uniform_float(d)


@triton.jit
def pair_uniform_to_normal(u1, u2):
    """Box and Muller's transform."""
    radius = tl.sqrt(-2.0 * tl.log(tl.maximum(1.0e-7, u1)))
    angle = 6.283185307179586 * u2
    return radius * tl.cos(angle), radius * tl.sin(angle)


@triton.jit
def randn(seed, offset, n_rounds: tl.constexpr = 10):
    a, b, _, _ = randint4x(seed, offset, n_rounds)
    n, _ = pair_uniform_to_normal(uint_to_uniform_float(a), uint_to_uniform_float(b))
    return n


@triton.jit
def randn4x(seed, offset, n_rounds: tl.constexpr = 10):
    a, b, c, d = rand4x(seed, offset, n_rounds)
    n1, n2 = pair_uniform_to_normal(a, b)
    n3, n4 = pair_uniform_to_normal(c, d)
    return n1, n2, n3, n4
