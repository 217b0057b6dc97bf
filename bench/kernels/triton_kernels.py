"""The Triton kernels that bench_triton.py measures, as a user would write them. Shapes are row-major; every kernel masks its edges."""
import triton
import triton.language as tl


@triton.jit
def vector_add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Grid (cdiv(n, BLOCK),)."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def softmax(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    """A row a program: BLOCK >= columns."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + cols, e / tl.sum(e, axis=0), mask=mask)


@triton.jit
def layer_norm(x_ptr, w_ptr, b_ptr, out_ptr, stride, columns, eps, BLOCK: tl.constexpr):
    """A row a program, in blocks, read twice."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    out_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + cols, mask=cols < columns, other=0.0).to(tl.float32)
        total += v
        squares += v * v
    mean = tl.sum(total, axis=0) / columns
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / columns - mean * mean + eps)
    for start in range(0, columns, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < columns
        v = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=mask)
        b = tl.load(b_ptr + cols, mask=mask)
        tl.store(out_ptr + cols, (v - mean) * rstd * w + b, mask=mask)


@triton.jit
def rms_norm(x_ptr, w_ptr, out_ptr, stride, columns, eps, BLOCK: tl.constexpr):
    """A row a program: BLOCK >= columns."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / columns + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    tl.store(out_ptr + row * stride + cols, x * scale * w, mask=mask)


@triton.jit
def swiglu(gate_ptr, up_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    """A row a program: BLOCK >= columns."""
    row = tl.program_id(0).to(tl.int64) * stride
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    gate = tl.load(gate_ptr + row + cols, mask=mask, other=0).to(tl.float32)
    up = tl.load(up_ptr + row + cols, mask=mask, other=0)
    tl.store(out_ptr + row + cols, gate * tl.sigmoid(gate) * up, mask=mask)


@triton.jit
def cross_entropy(x_ptr, target_ptr, loss_ptr, stride, columns, BLOCK: tl.constexpr):
    """The loss of a row a program, by a running maximum and sum over blocks."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    x_ptr += row * stride
    top = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < columns, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(x))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new))
        top = new
    tl.store(loss_ptr + row, top + tl.log(total) - tl.load(x_ptr + target).to(tl.float32))


@triton.jit
def _swizzle(pid, tiles_m, tiles_n, GROUP: tl.constexpr):
    width = GROUP * tiles_n
    first = pid // width * GROUP
    size = min(tiles_m - first, GROUP)
    return first + pid % size, pid % width // size


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BM: tl.constexpr,
           BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """C[M, N] = A[M, K] @ B[K, N]; grid (cdiv(M, BM) * cdiv(N, BN),)."""
    pid_m, pid_n = _swizzle(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    rm = (pid_m * BM + tl.arange(0, BM)) % M
    rn = (pid_n * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    a = a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak
    b = b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        av = tl.load(a, mask=rk[None, :] < K - k * BK, other=0.0)
        bv = tl.load(b, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(av, bv, acc)
        a += BK * stride_ak
        b += BK * stride_bk
    cm = pid_m * BM + tl.arange(0, BM)
    cn = pid_n * BN + tl.arange(0, BN)
    tl.store(c_ptr + stride_cm * cm[:, None] + stride_cn * cn[None, :], acc.to(c_ptr.dtype.element_ty),
             mask=(cm[:, None] < M) & (cn[None, :] < N))


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, o_ptr, stride_h, seq, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
              CAUSAL: tl.constexpr):
    """O = softmax(Q K^T * scale) V for [H, seq, D]; grid (cdiv(seq, BM), H)."""
    start = tl.program_id(0) * BM
    base = tl.program_id(1).to(tl.int64) * stride_h
    rm = start + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rd = tl.arange(0, D)
    q = tl.load(q_ptr + base + rm[:, None] * D + rd[None, :], mask=rm[:, None] < seq, other=0.0)
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    end = min(start + BM, seq) if CAUSAL else seq
    for n in range(0, end, BN):
        cols = n + rn
        k = tl.load(k_ptr + base + cols[None, :] * D + rd[:, None], mask=cols[None, :] < seq, other=0.0)
        s = tl.dot(q, k) * (scale * 1.44269504)
        valid = cols[None, :] < seq
        if CAUSAL:
            valid = valid & (cols[None, :] <= rm[:, None])
        s = tl.where(valid, s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(top - new)
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(v_ptr + base + cols[:, None] * D + rd[None, :], mask=cols[:, None] < seq, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        top = new
    tl.store(o_ptr + base + rm[:, None] * D + rd[None, :], (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=rm[:, None] < seq)
