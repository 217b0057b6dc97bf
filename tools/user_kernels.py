"""The Triton kernels of the models in user_kernel_models.py, and operators that launch them."""
import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


@triton.jit
def add_kernel(in_ptr0, in_ptr1, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(in_ptr0 + offsets, mask=mask)
    y = tl.load(in_ptr1 + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def mul2_inplace_kernel(ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    tl.store(ptr + offsets, 2 * tl.load(ptr + offsets, mask=mask), mask=mask)


@triton.jit
def strided_copy(x_ptr, out_ptr, rows, cols, stride_row, stride_col, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    tl.store(out_ptr + row * cols + col, scale * tl.load(x_ptr + row * stride_row + col * stride_col, mask=mask), mask=mask)


@triton.jit
def strided_copy_to(x_ptr, out_ptr, cols, stride_out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    tl.store(out_ptr + row * stride_out + col, tl.load(x_ptr + row * cols + col, mask=mask), mask=mask)


@triton.autotune(configs=[triton.Config({"BLOCK": 16}, num_warps=2), triton.Config({"BLOCK": 128}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=8)], key=["n"])
@triton.jit
def scaled_add(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, alpha * tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def weighted_sums(ins, weights, outs, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.zeros([BLOCK], tl.float32)
    for i in tl.static_range(len(ins)):
        total += tl.load(ins[i] + offsets, mask=mask) * weights[i]
        tl.store(outs[i] + offsets, total, mask=mask)


@triton.autotune(configs=[triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0, "WIDE": lambda args: args["BLOCK"] > 16})
@triton.jit
def heuristic_square(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, WIDE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + offsets)
        tl.store(out_ptr + offsets, x * x + WIDE * 0)
    else:
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, x * x, mask=mask)


@triton.jit
def relu(x):
    return tl.where(x > 0, x, 0.0)


@triton.jit
def tanh_like(x):
    e = tl.exp(2.0 * x)
    return (e - 1.0) / (e + 1.0)


SLOPE = tl.constexpr(0.125)


@triton.jit
def leaky(x):
    return tl.where(x > 0, x, SLOPE * x)


@triton.jit
def options_kernel(x_ptr, bias_ptr, out_ptr, n, scale, flip, ACTIVATION: tl.constexpr, DTYPE: tl.constexpr, MODE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(DTYPE)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + offsets, mask=mask)
    x = x * scale
    if flip:
        x = -x
    if MODE == "activate":
        x = ACTIVATION(x)
    tl.store(out_ptr + offsets, x, mask=mask)


@triton.jit
def min_max_kernel(x_ptr, low_ptr, high_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=float("inf"))
    tl.store(low_ptr + row, tl.min(x, 0))
    x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=float("-inf"))
    tl.store(high_ptr + row, tl.max(x, 0))


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * cols + col, e / tl.sum(e, 0), mask=mask)


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * sam + k[None, :] * sak, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * sbk + n[None, :] * sbn, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def count_kernel(x_ptr, bins_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0)
    tl.atomic_add(bins_ptr + x % BINS, tl.where(mask, 1, 0))


@triton.jit
def fill_column(out_ptr, rows, stride, value, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + row * stride, value + row.to(tl.float32), mask=row < rows)


@triton.jit
def warps_kernel(out_ptr, n, num_warps: tl.constexpr, num_stages: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, (offsets * num_warps + num_stages).to(tl.float32), mask=offsets < n)


@triton.jit
def add_upcast(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    # Triton's interpreter adds bfloat16 numbers as if they were integers, so they are widened first.
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32) + tl.load(y_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, x.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rotate_kernel(q_ptr, k_ptr, cols, stride_q, stride_k, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    q = tl.load(q_ptr + row * stride_q + col, mask=mask)
    k = tl.load(k_ptr + row * stride_k + col, mask=mask)
    tl.store(q_ptr + row * stride_q + col, q - k, mask=mask)
    tl.store(k_ptr + row * stride_k + col, q + k, mask=mask)


@triton.jit
def append_kernel(cache_ptr, x_ptr, at, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    tl.store(cache_ptr + (at + row) * cols + col, tl.load(x_ptr + row * cols + col, mask=mask), mask=mask)


@triton.jit
def row_shift_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=-float("inf"))
    tl.store(out_ptr + row * cols + col, x - tl.max(x, 0), mask=mask)


@triton.jit
def transposing_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    r = tl.arange(0, BLOCK)
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    x = tl.load(x_ptr + r[:, None] * cols + c[None, :], mask=mask)
    tl.store(out_ptr + c[None, :] * rows + r[:, None], x, mask=mask)


@triton.jit
def two_stores_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(x_ptr + offsets, x + 1, mask=mask)
    tl.store(out_ptr + offsets, tl.load(y_ptr + offsets, mask=mask) * x, mask=mask)


@triton.jit
def descriptor_kernel(x_desc, out_desc, scale, ROWS: tl.constexpr, COLS: tl.constexpr):
    row, col = tl.program_id(0) * ROWS, tl.program_id(1) * COLS
    x = x_desc.load([row, col])
    out_desc.store([row, col], x * scale + 1)


@triton.jit
def scaled_or_added(in_ptr, out_ptr, n, flag, k, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(in_ptr + i, mask=i < n)
    if flag:
        x += (k >> 33).to(tl.float32)
    else:
        x *= 2
    tl.store(out_ptr + i, x, mask=i < n)


def cdiv(a, b):
    return (a + b - 1) // b


# ---- operators


@triton_op("neso_golden::add", mutates_args={})
def add_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = out.numel()
    wrap_triton(add_kernel)[lambda meta: (cdiv(n, meta["BLOCK_SIZE"]),)](x, y, out, n, 16)
    return out


@triton_op("neso_golden::add_twice", mutates_args={})
def add_twice(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.empty_like(x), torch.empty_like(x)
    n = x.numel()
    wrap_triton(add_kernel)[(cdiv(n, 32),)](x, y, first, n, BLOCK_SIZE=32)
    wrap_triton(add_kernel)[(cdiv(n, 32),)](first, y.sin(), second, n, BLOCK_SIZE=32)
    return first, second


@triton_op("neso_golden::double_", mutates_args={"x"})
def double_(x: torch.Tensor) -> None:
    wrap_triton(mul2_inplace_kernel)[(cdiv(x.numel(), 16),)](x, x.numel(), 16)
