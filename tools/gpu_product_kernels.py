"""Kernels of tools/gpu_products.py: products whose operands lie in every way."""
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TURN_A: tl.constexpr, TURN_B: tl.constexpr,
            DOUBLE: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr):
    """C [M, N] = A B. A lies as [M, K], or with TURN_A as [K, M]; B as [K, N] or [N, K]. DOUBLE: A is computed, twice what was loaded."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    if TURN_A:
        a_at = a_ptr + k[None, :] * M + m[:, None]
    else:
        a_at = a_ptr + m[:, None] * K + k[None, :]
    if TURN_B:
        b_at = b_ptr + n[None, :] * K + k[:, None]
    else:
        b_at = b_ptr + k[:, None] * N + n[None, :]
    sum = tl.zeros((BM, BN), dtype=SUM)
    for step in range(0, tl.cdiv(K, BK)):
        left = K - step * BK
        a = tl.load(a_at, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
        b = tl.load(b_at, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
        if DOUBLE:
            a = a + a
        sum = tl.dot(a, b, sum, input_precision=PRECISION, out_dtype=SUM)
        a_at += BK * M if TURN_A else BK
        b_at += BK if TURN_B else BK * N
    tl.store(c_ptr + m[:, None] * N + n[None, :], sum, mask=(m[:, None] < M) & (n[None, :] < N))
