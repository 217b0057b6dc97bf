"""Triton kernels as a user writes them, for the GPU bench: masked edges, row-major operands."""
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside), mask=inside)


@triton.jit
def softmax(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    """One row a program."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * stride + at, mask=inside, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + at, e / tl.sum(e, axis=0), mask=inside)


@triton.jit
def layer_norm(x_ptr, weight_ptr, bias_ptr, out_ptr, stride, columns, eps, BLOCK: tl.constexpr):
    """One row a program, in registers."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * stride + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(inside, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + at, mask=inside)
    bias = tl.load(bias_ptr + at, mask=inside)
    tl.store(out_ptr + row * stride + at, centred * rstd * weight + bias, mask=inside)


@triton.jit
def row_sum(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    """One row a program, in steps of BLOCK."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * stride + at, mask=at < columns, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, axis=0))


@triton.jit
def transpose(x_ptr, out_ptr, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    x = tl.load(x_ptr + m[:, None] * columns + n[None, :], mask=(m[:, None] < rows) & (n[None, :] < columns))
    tl.store(out_ptr + n[:, None] * rows + m[None, :], tl.trans(x), mask=(n[:, None] < columns) & (m[None, :] < rows))


@triton.jit
def gemm(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """C = A B for A [M, K], B [K, N]; blocks of C in groups of GROUP rows of blocks, so that neighbours share what is in the cache."""
    pid = tl.program_id(0)
    blocks_m = tl.cdiv(M, BM)
    blocks_n = tl.cdiv(N, BN)
    in_group = GROUP * blocks_n
    first = (pid // in_group) * GROUP
    height = min(blocks_m - first, GROUP)
    block_m = first + (pid % in_group) % height
    block_n = (pid % in_group) // height
    m = (block_m * BM + tl.arange(0, BM)) % M
    n = (block_n * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    a_at = a_ptr + m[:, None] * K + k[None, :]
    b_at = b_ptr + k[:, None] * N + n[None, :]
    sum = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        left = K - step * BK
        a = tl.load(a_at, mask=k[None, :] < left, other=0.0)
        b = tl.load(b_at, mask=k[:, None] < left, other=0.0)
        sum = tl.dot(a, b, sum)
        a_at += BK
        b_at += BK * N
    m = block_m * BM + tl.arange(0, BM)
    n = block_n * BN + tl.arange(0, BN)
    tl.store(c_ptr + m[:, None] * N + n[None, :], sum.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def gemm_rows(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, SUM: tl.constexpr):
    """The same for B that lies as [N, K], rows of which are multiplied with rows of A; sums in SUM. A kernel of its own: earlier figures
    were measured with gemm as it stands, and an argument of it that chose the layout would be another source."""
    pid = tl.program_id(0)
    blocks_m = tl.cdiv(M, BM)
    blocks_n = tl.cdiv(N, BN)
    in_group = GROUP * blocks_n
    first = (pid // in_group) * GROUP
    height = min(blocks_m - first, GROUP)
    block_m = first + (pid % in_group) % height
    block_n = (pid % in_group) // height
    m = (block_m * BM + tl.arange(0, BM)) % M
    n = (block_n * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    a_at = a_ptr + m[:, None] * K + k[None, :]
    b_at = b_ptr + n[None, :] * K + k[:, None]
    sum = tl.zeros((BM, BN), dtype=SUM)
    for step in range(0, tl.cdiv(K, BK)):
        left = K - step * BK
        a = tl.load(a_at, mask=k[None, :] < left, other=0.0)
        b = tl.load(b_at, mask=k[:, None] < left, other=0.0)
        sum = tl.dot(a, b, sum, out_dtype=SUM)
        a_at += BK
        b_at += BK
    m = block_m * BM + tl.arange(0, BM)
    n = block_n * BN + tl.arange(0, BN)
    tl.store(c_ptr + m[:, None] * N + n[None, :], sum.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, head_stride, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    """softmax(Q K^T scale) V for [heads, length, D], with the online softmax."""
    start = tl.program_id(0) * BM
    base = tl.program_id(1).to(tl.int64) * head_stride
    m = start + tl.arange(0, BM)
    n = tl.arange(0, BN)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + base + m[:, None] * D + d[None, :], mask=m[:, None] < length, other=0.0)
    top = tl.full([BM], float("-inf"), tl.float32)
    weight = tl.zeros([BM], tl.float32)
    sum = tl.zeros([BM, D], tl.float32)
    end = min(start + BM, length) if CAUSAL else length
    for first in range(0, end, BN):
        keys = first + n
        k = tl.load(k_ptr + base + keys[None, :] * D + d[:, None], mask=keys[None, :] < length, other=0.0)
        s = tl.dot(q, k) * (scale * 1.4426950408889634)
        seen = keys[None, :] < length
        if CAUSAL:
            seen = seen & (keys[None, :] <= m[:, None])
        s = tl.where(seen, s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        fade = tl.exp2(top - higher)
        weight = weight * fade + tl.sum(p, 1)
        v = tl.load(v_ptr + base + keys[:, None] * D + d[None, :], mask=keys[:, None] < length, other=0.0)
        sum = tl.dot(p.to(v.dtype), v, sum * fade[:, None])
        top = higher
    tl.store(out_ptr + base + m[:, None] * D + d[None, :], (sum / weight[:, None]).to(out_ptr.dtype.element_ty), mask=m[:, None] < length)
