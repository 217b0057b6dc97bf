"""Triton kernels with several products, as public libraries write attention and its gradients. Each has in a loop what GPUs keep apart:
operands that products compute and others read, rows of numbers beside tiles, additions to memory that neighbours share."""
import triton
import triton.language as tl


@triton.jit
def attention_gradients(q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, dk_ptr, dv_ptr, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Five products a turn, two of them on transposed results of others; dq is added to by all programs."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    d = tl.arange(0, D)
    k = tl.load(k_ptr + n[:, None] * D + d[None, :])
    v = tl.load(v_ptr + n[:, None] * D + d[None, :])
    dk = tl.zeros((BN, D), dtype=tl.float32)
    dv = tl.zeros((BN, D), dtype=tl.float32)
    for start in range(0, N, BM):
        m = start + tl.arange(0, BM)
        q = tl.load(q_ptr + m[:, None] * D + d[None, :])
        do = tl.load(do_ptr + m[:, None] * D + d[None, :])
        lse = tl.load(lse_ptr + m)
        delta = tl.load(delta_ptr + m)
        p = tl.exp2(tl.dot(q, tl.trans(k)) * scale - lse[:, None])
        dv += tl.dot(tl.trans(p.to(do.dtype)), do)
        ds = (p * (tl.dot(do, tl.trans(v)) - delta[:, None])).to(q.dtype)
        dk += tl.dot(tl.trans(ds), q)
        tl.atomic_add(dq_ptr + m[:, None] * D + d[None, :], tl.dot(ds, k))
    tl.store(dk_ptr + n[:, None] * D + d[None, :], dk)
    tl.store(dv_ptr + n[:, None] * D + d[None, :], dv)


@triton.jit
def chunked_attention(q_ptr, k_ptr, v_ptr, decay_ptr, out_ptr, T, D: tl.constexpr, C: tl.constexpr):
    """Linear attention by chunks: a state that the loop carries is an operand of the next turn; gates come as rows."""
    i = tl.arange(0, C)
    d = tl.arange(0, D)
    state = tl.zeros((D, D), dtype=tl.float32)
    for start in range(0, T, C):
        t = start + i
        q = tl.load(q_ptr + t[:, None] * D + d[None, :])
        k = tl.load(k_ptr + t[:, None] * D + d[None, :])
        v = tl.load(v_ptr + t[:, None] * D + d[None, :])
        g = tl.load(decay_ptr + t)
        last = tl.load(decay_ptr + start + C - 1)
        inner = tl.dot(q, tl.trans(k)) * tl.exp2(g[:, None] - g[None, :])
        inner = tl.where(i[:, None] >= i[None, :], inner, 0.0).to(v.dtype)
        out = tl.dot(inner, v) + tl.dot(q, state.to(q.dtype)) * tl.exp2(g)[:, None]
        tl.store(out_ptr + t[:, None] * D + d[None, :], out.to(out_ptr.dtype.element_ty))
        late = (v * tl.exp2(last - g)[:, None]).to(v.dtype)
        state = state * tl.exp2(last) + tl.dot(tl.trans(k), late)


@triton.jit
def scaled_product(a_ptr, b_ptr, sa_ptr, sb_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr):
    """Each block of K has scales of its own for rows and columns."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for block in tl.range(0, tl.cdiv(K, BK), num_stages=STAGES):
        a = tl.load(a_ptr + m[:, None] * K + (block * BK + k)[None, :], mask=m[:, None] < M, other=0.0)
        b = tl.load(b_ptr + (block * BK + k)[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
        sa = tl.load(sa_ptr + block * M + m, mask=m < M, other=0.0)
        sb = tl.load(sb_ptr + block * N + n, mask=n < N, other=0.0)
        acc += tl.dot(a, b) * sa[:, None] * sb[None, :]
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def split_product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Split along K: programs add their parts to the result."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(tl.program_id(2) * BK, K, tl.num_programs(2) * BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        b = tl.load(b_ptr + n[None, :] * K + k[:, None], mask=n[None, :] < N, other=0.0)
        acc = tl.dot(a, b, acc)
    tl.atomic_add(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))
