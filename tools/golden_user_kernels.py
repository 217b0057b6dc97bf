#!/usr/bin/env python3
"""Writes tests/goldens/user_kernels: models that launch Triton kernels of their own, exported with python/neso_export.

    tools/golden_user_kernels.py [--out tests/goldens/user_kernels] [--only REGEX]

Each folder holds model.pt2 (kernel bundle inside, or in kernels/), inputs and outputs at one or two sizes, and case.json as make_goldens.py
writes it. The outputs come from running the model eagerly in Triton's interpreter (a second process with TRITON_INTERPRET=1): nothing here is
made by Neso. Neither needs a GPU.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent / "python")]
import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from torch.library import triton_op, wrap_triton  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

INTERPRET = os.environ.get("TRITON_INTERPRET") == "1"
SEED = 20260102
CASES = {}


def case(*sizes, dynamic=None, **options):
    """A class of a module with `inputs(n)`; `sizes` are the n of its runs, `dynamic` the dynamic_shapes of the export."""
    def add(cls):
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        CASES[name] = (cls, sizes or (8,), dynamic, options)
        return cls
    return add


N = {0: torch.export.Dim("n", min=2, max=4096)}

# ---- kernels


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


# ---- models


class Pair(torch.nn.Module):
    @staticmethod
    def inputs(n):
        return torch.randn(n, 12), torch.randn(n, 12)


@case(8)
class AddStatic(Pair):
    def forward(self, x, y):
        out = torch.full_like(x, 3.0)
        add_kernel[(6, 1, 1)](x.sin(), y, out, 90, BLOCK_SIZE=16)
        return out.relu() + 1


@case(5, 33, dynamic={"x": N, "y": N})
class AddDynamic(Pair):
    def forward(self, x, y):
        out = torch.empty_like(x)
        n = out.numel()
        add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)](x * 2, y, out, n, 64)
        return out.exp()


@case(4, 19, dynamic={"x": N, "y": N})
class AddOperator(Pair):
    def forward(self, x, y):
        return add_op(x, y) * 2 - add_op(y, y)


@case(6)
class TwoLaunchOperator(Pair):
    def forward(self, x, y):
        first, second = add_twice(x, y)
        return first * second, second


@case(6)
class MutatingOperator(Pair):
    def forward(self, x, y):
        z = x + y
        double_(z)
        w = z - 1
        double_(w)
        return z, w


@case(7)
class InPlaceIntermediate(Pair):
    def forward(self, x, y):
        z = x - y
        before = z.sum(1)
        mul2_inplace_kernel[(cdiv(z.numel(), 32),)](z, z.numel(), 32)
        return z, before, z.sum(1)


@case(7, 20, dynamic={"x": N, "y": N})
class MutatesInput(Pair):
    def forward(self, x, y):
        old = y.clone()
        mul2_inplace_kernel[(cdiv(y.numel(), 32),)](y, y.numel(), 32)
        return x + y, old


@case(6)
class MutatesBuffer(Pair):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.arange(72.0).reshape(6, 12))

    def forward(self, x, y):
        add_kernel[(3,)](self.total, x, self.total, 72, BLOCK_SIZE=32)
        return self.total * y


@case(9)
class StridedViews(torch.nn.Module):
    @staticmethod
    def inputs(n):
        return (torch.randn(n, 24),)

    def forward(self, x):
        left, right = x.split(10, dim=1)[:2]
        a = torch.empty(left.shape)
        b = torch.empty(right.shape)
        strided_copy[(x.shape[0],)](left, a, *left.shape, *left.stride(), 0.5, BLOCK=16)
        strided_copy[(x.shape[0],)](right, b, right.shape[0], right.shape[1], right.stride(0), right.stride(1), 3, BLOCK=16)
        t = x.t()
        c = torch.empty(t.shape)
        strided_copy[(t.shape[0],)](t, c, t.shape[0], t.shape[1], t.stride(0), t.stride(1), scale=1.0, BLOCK=16)
        return a + b, c


@case(6)
class WritesSlice(Pair):
    def forward(self, x, y):
        z = x * y
        fill_column[(1,)](z[:, 3], z.shape[0], z.stride(0), 7.0, BLOCK=8)
        middle = z[1:4]
        mul2_inplace_kernel[(3,)](middle, middle.numel(), 16)
        return z, middle.sum()


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


@case(6, 11, dynamic={"x": N})
class SlicesInPlace(torch.nn.Module):
    """Two parts of one projection are changed by one launch, a third is read later."""

    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(16, 36)

    @staticmethod
    def inputs(n):
        return (torch.randn(n, 16),)

    def forward(self, x):
        qkv = self.project(x)
        q, k, v = qkv.split(12, dim=1)
        rotate_kernel[(x.shape[0],)](q, k, 12, q.stride(0), k.stride(0), BLOCK=16)
        return q * k + v, qkv.sum(0)


@case(4)
class AppendsToCache(Pair):
    """A buffer that grows by a launch and keeps what it had."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.arange(120.0).reshape(10, 12))

    def forward(self, x, y):
        before = self.cache[0] * 2
        append_kernel[(4,)](self.cache, x + y, 3, 12, BLOCK=16)
        append_kernel[(1,)](self.cache, y, 8, 12, BLOCK=16)
        return self.cache.sum(1), before


@case(5, 9, dynamic={"x": N, "y": N})
class MutatesInputSlice(Pair):
    def forward(self, x, y):
        fill_column[(1,)](y[:, 2], y.shape[0], y.stride(0), 5.0, BLOCK=4096)
        mul2_inplace_kernel[(cdiv(y.numel(), 32),)](y, y.numel(), 32)
        return x + y


@case(5)
class OldContentNeeded(Pair):
    """What was read before a launch in place is used behind it, by several in several ways."""

    def forward(self, x, y):
        z = x * y
        small, doubled, flipped = z[0] + 1, z * 2, z.flip(0)
        mul2_inplace_kernel[(cdiv(z.numel(), 16),)](z, z.numel(), 16)
        old = y.sigmoid()
        mul2_inplace_kernel[(cdiv(y.numel(), 16),)](y, y.numel(), 16)
        return z + doubled, small - y[1], flipped, old + y


@case(6, 9, dynamic={"x": N, "y": N})
class FillsInParts(Pair):
    """An uninitialised tensor that launches write part by part."""

    def forward(self, x, y):
        out = torch.empty(x.shape[0], 24)
        left, right = out[:, :12], out[:, 12:]
        strided_copy_to[(x.shape[0],)](x.cos(), left, 12, left.stride(0), BLOCK=16)
        strided_copy_to[(x.shape[0],)](y, right, 12, right.stride(0), BLOCK=16)
        return out * 2


@case(8)
class Chain(Pair):
    def forward(self, x, y):
        n = x.numel()
        out = torch.zeros_like(x)
        add_kernel[(cdiv(n, 32),)](x, y, out, n, 32)
        mul2_inplace_kernel[(cdiv(n, 32),)](out, n, 32)
        other = torch.zeros_like(x)
        add_kernel[(cdiv(n, 32),)](out, out, other, n, 32)
        mul2_inplace_kernel[(cdiv(n, 32),)](other, n, 32)
        return other.tanh()


@case(8, 300, dynamic={"x": N, "y": N})
class Autotuned(Pair):
    def forward(self, x, y):
        out = torch.empty_like(x)
        n = out.numel()
        scaled_add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, 1.5)
        return out - x


@case(8)
class HeuristicsAutotuned(Pair):
    def forward(self, x, y):
        a, b = torch.empty_like(x), torch.empty(50)
        heuristic_square[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, a, x.numel())
        heuristic_square[lambda meta: (triton.cdiv(50, meta["BLOCK"]),)](y.reshape(-1)[:50], b, 50)
        return a, b


@case(8)
class ArgumentKinds(Pair):
    def forward(self, x, y):
        n = x.numel()
        a, b, c = (torch.empty_like(x) for _ in range(3))
        options_kernel[(cdiv(n, 32),)](x, None, a, n, 0.5, False, ACTIVATION=relu, DTYPE=tl.float32, MODE="activate", BLOCK=32)
        options_kernel[(cdiv(n, 32),)](x, y, b, n, 1.0, True, leaky, tl.float32, "activate", 32)
        options_kernel[(cdiv(n, 32), 1)](x, y, c, n, scale=2.0, flip=False, ACTIVATION=tanh_like, DTYPE=tl.float16, MODE="Max", BLOCK=32)
        return a, b, c


@case(1)
class EqualToOne(Pair):
    def forward(self, x, y):
        a, b = torch.zeros_like(x), torch.zeros_like(x)
        add_kernel[(1,)](x, y, a, x.shape[0], 4)
        add_kernel[(1,)](x, y, b, 4, 4)
        return a + b


@case(9, 40, dynamic={"x": N})
class TwoOutputs(torch.nn.Module):
    @staticmethod
    def inputs(n):
        return (torch.randn(n, 20),)

    def forward(self, x):
        low, high = x.new_empty(x.shape[0]), x.new_empty(x.shape[0])
        min_max_kernel[(x.shape[0],)](x, low, high, x.shape[1], BLOCK=32)
        return high - low, low


@case(3, 10, dynamic={"x": N})
class SoftmaxInNetwork(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 24), torch.nn.Linear(24, 5)

    @staticmethod
    def inputs(n):
        return (torch.randn(n, 16),)

    def forward(self, x):
        h = torch.nn.functional.gelu(self.first(x))
        p = torch.empty_like(h)
        softmax_kernel[(h.shape[0],)](h, p, h.shape[1], BLOCK=32)
        return self.second(p) + p.sum(1, keepdim=True)


@case(20)
class Matmul(torch.nn.Module):
    @staticmethod
    def inputs(n):
        return torch.randn(n, 24), torch.randn(40, 24)

    def forward(self, a, b):
        m, k = a.shape
        n = b.shape[0]
        c = torch.empty(m, n)
        matmul_kernel[(cdiv(m, 16), cdiv(n, 16))](a, b, c, m, n, k, a.stride(0), a.stride(1), b.stride(1), b.stride(0), BM=16, BN=16, BK=16)
        return torch.relu(c) + a.sum()


@case(100)
class Atomics(torch.nn.Module):
    @staticmethod
    def inputs(n):
        return (torch.randint(0, 1000, (n,), dtype=torch.int32),)

    def forward(self, x):
        bins = torch.zeros(8, dtype=torch.int32)
        count_kernel[(cdiv(x.numel(), 16),)](x, bins, x.numel(), BINS=8, BLOCK=16)
        return bins, bins * 2


@case(8)
class HalfPrecision(torch.nn.Module):
    @staticmethod
    def inputs(n):
        return torch.randn(n, 16).bfloat16(), torch.randn(n, 16).half()

    def forward(self, x, y):
        a, b = torch.empty_like(x), torch.empty_like(y)
        add_upcast[(8,)](x, x * 2, a, x.numel(), 16)
        add_upcast[(8,)](y, y, b, y.numel(), 16)
        return a, b.float() * 2


@case(8)
class SpecialParameters(torch.nn.Module):
    @staticmethod
    def inputs(n):
        return (torch.randn(n),)

    def forward(self, x):
        out = torch.zeros(16)
        warps_kernel[(1,)](out, 10, num_warps=8, num_stages=2, BLOCK=16)
        return out * x.sum()


@case(8, kernels=True)
class BundleInFolder(Pair):
    def forward(self, x, y):
        outs = []
        for block in (16, 32, 64):
            out = torch.empty_like(x)
            add_kernel[(cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK_SIZE=block)
            outs.append(out)
        return tuple(outs)


@case(8, kernels=True, ttir=True)
class BundleOfTtir(Pair):
    def forward(self, x, y):
        a, b = torch.empty_like(x), torch.zeros_like(x)
        add_kernel[(cdiv(x.numel(), 32),)](x, y.relu(), a, x.numel(), BLOCK_SIZE=32)
        add_kernel[(1,)](x, y, b, 1, BLOCK_SIZE=16)
        mul2_inplace_kernel[(cdiv(x.numel(), 64),)](a, x.numel(), 64)
        return a, b


@case(6)
class InSubgraph(Pair):
    def forward(self, x, y):
        def doubled(a, b):
            out = torch.empty_like(a)
            add_kernel[(cdiv(a.numel(), 16),)](a, b, out, a.numel(), 16)
            return out + 1

        return torch.cond(x.sum() > y.sum(), doubled, lambda a, b: a - b, (x, y))


@case(6, closed="double")
class ClosedMutatingOperator(Pair):
    def forward(self, x, y):
        z = (x + y)[:2] - 1
        double_(z)
        whole = x * y
        part = whole[1:3]
        double_(part)
        return z * 2, part, whole


@case(5, closed=True)
class ClosedOperator(Pair):
    def forward(self, x, y):
        return add_op(x, y) - add_op(y, y)


# ---- neighbours that are computed at the kernels' loads and stores


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


@case(4, 9, dynamic={"x": N, "y": N})
class FusedNeighbours(Pair):
    """Broadcasts, several readers of what is stored, values that are needed outside as well."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.randn(12)), torch.nn.Parameter(torch.randn(12))

    def forward(self, x, y):
        a = torch.empty_like(x)
        add_kernel[(cdiv(x.numel(), 64),)](torch.relu(x * self.weight + self.bias), y.sin(), a, x.numel(), 64)
        b = torch.empty_like(x)
        row_shift_kernel[(x.shape[0],)](a + y, b, 12, BLOCK=16)
        return torch.sigmoid(a) * self.bias, b.exp() + x, b


@case(6)
class FusedTransposed(Pair):
    """What the kernel loads was made in another order; what it stores is read through a view."""

    def forward(self, x, y):
        t = (x.t() * 2 + y.t()).contiguous()
        out = torch.empty(6, 12)
        transposing_kernel[(1,)](t, out, 12, 6, BLOCK=16)
        return out.t() - 1, out.reshape(3, 2, 12) * x.reshape(3, 2, 12)


@case(20)
class FusedMatmul(torch.nn.Module):
    @staticmethod
    def inputs(n):
        return torch.randn(n, 24), torch.randn(24, 40), torch.randn(40)

    def forward(self, a, b, bias):
        m, k = a.shape
        n = b.shape[1]
        c = torch.empty(m, n)
        matmul_kernel[(cdiv(m, 16), cdiv(n, 16))](a * 0.5, b.abs(), c, m, n, k, k, 1, n, 1, BM=16, BN=16, BK=16)
        return torch.nn.functional.gelu(c + bias)


@case(8)
class FusedHalf(torch.nn.Module):
    @staticmethod
    def inputs(n):
        return torch.randn(n, 16).bfloat16(), torch.randint(-9, 9, (n, 16), dtype=torch.int32)

    def forward(self, x, i):
        a, b = torch.empty_like(x), torch.empty_like(i)
        add_upcast[(8,)](x * 2, torch.where(i > 0, x, -x), a, x.numel(), 16)
        add_kernel[(4,)](i * 3, i // 2, b, 128, 32)
        return a * 2, (b % 5).float()


@case(5)
class NotFused(Pair):
    """Neighbours that must stay outside: the kernel leaves elements out, changes what they read, or they need more than one element."""

    def forward(self, x, y):
        partly = torch.zeros_like(x)
        add_kernel[(1,)](x * 2, y, partly, 40, 64)
        z = x + y
        out = torch.empty_like(x)
        two_stores_kernel[(1,)](z, (z * 3).contiguous(), out, 60, BLOCK=64)
        neighbour = torch.empty_like(x)
        add_kernel[(1,)](x.exp(), y, neighbour, 60, 64)
        return partly + 1, z - 1, out * 2, neighbour[:, 1:] - neighbour[:, :-1], neighbour.cumsum(1)


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


@case(7, 18, dynamic={"x": N})
class HostDescriptors(torch.nn.Module):
    """Descriptors that the host makes, one of a tensor as it is, one of another shape of it."""

    @staticmethod
    def inputs(n):
        return (torch.randn(n, 4, 8),)

    def forward(self, x):
        out = torch.zeros(x.shape[0], 32)
        source = TensorDescriptor(x * 2, [x.shape[0], 32], [32, 1], [4, 16])
        descriptor_kernel[(triton.cdiv(x.shape[0], 4), 2)](source, TensorDescriptor.from_tensor(out, [4, 16]), 0.5, ROWS=4, COLS=16)
        return out, out.sum(0)


def random_chain(draw, x, others):
    """A few pointwise operators drawn at random."""
    for _ in range(int(draw.integers(1, 5))):
        other = others[int(draw.integers(len(others)))]
        x = [lambda: x + other, lambda: x * other, lambda: torch.maximum(x, other), lambda: x.tanh(), lambda: torch.where(other > 0, x, x * 0.5),
             lambda: x.abs() - 1, lambda: (x * 0.25).exp() + other][int(draw.integers(7))]()
    return x


def random_neighbours(seed):
    import numpy

    class Random(Pair):
        def __init__(self):
            super().__init__()
            self.row, self.col = torch.nn.Parameter(torch.randn(12)), torch.nn.Parameter(torch.randn(1, 1))

        def forward(self, x, y):
            draw = numpy.random.default_rng(seed)
            others, outs = [x, y, self.row, self.col], []
            value = x
            for _ in range(4):
                kind = int(draw.integers(3))
                given = random_chain(draw, value, others)
                out = torch.empty_like(x)
                if kind == 0:
                    add_kernel[(cdiv(x.numel(), 32),)](given, random_chain(draw, y, others), out, x.numel(), 32)
                elif kind == 1:
                    row_shift_kernel[(x.shape[0],)](given, out, 12, BLOCK=16)
                else:
                    scaled_add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](given, x, out, x.numel(), 0.5)
                value = random_chain(draw, out, others)
                if draw.integers(2):
                    outs.append(out)
                others.append(value)
            return (value, *outs)

    Random.__name__ = f"RandomNeighbours{seed}"
    case(5, 14, dynamic={"x": N, "y": N})(Random)


for seed in range(6):
    random_neighbours(seed)


# ---- writing


def build(name):
    cls, sizes, dynamic, options = CASES[name]
    torch.manual_seed(SEED)
    model = cls().eval()
    return model, [cls.inputs(n) for n in sizes], dynamic, options


def interpret(names, out):
    """In Triton's interpreter: eager outputs of each case, and what it changed."""
    results = {}
    torch.cond = lambda predicate, yes, no, operands: (yes if predicate else no)(*operands)  # without a tracer
    for kernel in (scaled_add, heuristic_square):
        kernel.configs = kernel.configs[:1]  # the result does not depend on it, and timing needs a driver
    for name in names:
        model, runs, _, _ = build(name)
        for i, inputs in enumerate(runs):
            model, _, _, _ = build(name)
            state = {k: v.clone() for k, v in model.state_dict().items()}
            given = [t.clone() for t in inputs]
            with torch.no_grad():
                outs = model(*given)
            outs = outs if isinstance(outs, tuple) else (outs,)
            named = {str(k): o.contiguous().clone() for k, o in enumerate(outs)}
            named.update({"buffer." + k: v.clone() for k, v in model.state_dict().items() if not torch.equal(v, state[k])})
            named.update({f"input.{k}": t for k, (t, u) in enumerate(zip(given, inputs)) if not torch.equal(t, u)})
            results[name, i] = named
    torch.save(results, out)


def closed_operator(model, inputs, folder):
    """As torch.export alone leaves it: the operator is one node, its launch is described by hand."""
    from neso_export.sources import kernel_source
    torch.export.save(torch.export.export(model, inputs), folder / "model.pt2")
    (folder / "kernels").mkdir()
    (folder / "kernels/add_kernel.py").write_text(kernel_source(add_kernel, []))
    row = {"op": "neso_golden::add", "index": 0, "name": "add_kernel", "file": "add_kernel.py", "function": "add_kernel",
           "parameters": ["in_ptr0", "in_ptr1", "out_ptr", "n_elements", "BLOCK_SIZE"], "signature": ["*fp32", "*fp32", "*fp32", "i32", "constexpr"],
           "values": {"in_ptr0": "input", "in_ptr1": "input", "out_ptr": "input", "n_elements": str(inputs[0].numel()), "BLOCK_SIZE": "16"},
           "num_warps": 4, "num_stages": 3, "grid": [str(cdiv(inputs[0].numel(), 16)), "1", "1"]}
    (folder / "kernels/launches.json").write_text(json.dumps([row], indent=1) + "\n")


def closed_mutating_operator(model, inputs, folder):
    """As run_decompositions() leaves a closed operator that changes its argument: auto_functionalized_v2."""
    from neso_export.sources import kernel_source
    torch.export.save(torch.export.export(model, inputs).run_decompositions(), folder / "model.pt2")
    (folder / "kernels").mkdir()
    (folder / "kernels/mul2.py").write_text(kernel_source(mul2_inplace_kernel, []))
    row = {"op": "neso_golden::double_", "index": 0, "name": "mul2", "file": "mul2.py", "function": "mul2_inplace_kernel",
           "parameters": ["ptr", "n_elements", "BLOCK_SIZE"], "signature": ["*fp32", "i32", "constexpr"],
           "values": {"ptr": "input:x", "n_elements": "24", "BLOCK_SIZE": "32"}, "num_warps": 4, "num_stages": 3, "grid": ["1", "1", "1"]}
    (folder / "kernels/launches.json").write_text(json.dumps([row], indent=1) + "\n")


def as_ttir(folder):
    """Puts what Triton compiles for each launch in the place of its source; Triton drops arguments that are 1."""
    import inspect
    from triton.backends.compiler import GPUTarget
    rows = json.loads((folder / "launches.json").read_text())
    for i, row in enumerate(rows):
        kernel = globals()[row["function"]]
        literals = {k: v for k, v in row["values"].items() if v != "input"}
        fixed = {k: int(v) for k, v in literals.items() if v == "1" or row["signature"][row["parameters"].index(k)] == "constexpr"}
        signature = {k: "constexpr" if k in fixed else t for k, t in zip(row["parameters"], row["signature"])}
        order = list(inspect.signature(kernel.fn).parameters)
        source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs={(order.index(k),): v for k, v in fixed.items()})
        (folder / row["file"]).unlink(missing_ok=True)
        row["file"] = f"launch{i}.ttir"
        text = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ttir"]
        (folder / row["file"]).write_text(text.replace(str(Path(__file__).resolve().parent.parent) + "/", ""))
    (folder / "launches.json").write_text(json.dumps(rows, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=str(Path(__file__).resolve().parent.parent / "tests/goldens/user_kernels"))
    parser.add_argument("--only", default="")
    parser.add_argument("--interpret")
    options = parser.parse_args()
    names = [n for n in CASES if re.search(options.only, n)]
    if options.interpret:
        return interpret(names, options.interpret)
    import neso_cases as cases
    import neso_export
    with tempfile.NamedTemporaryFile(suffix=".pt") as f:
        subprocess.run([sys.executable, sys.argv[0], "--only", options.only, "--interpret", f.name], env={**os.environ, "TRITON_INTERPRET": "1"}, check=True)
        expected = torch.load(f.name)
    for name in names:
        model, runs, dynamic, extra = build(name)
        folder = Path(options.out) / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if extra.get("closed"):
            (closed_mutating_operator if extra["closed"] == "double" else closed_operator)(model, runs[0], folder)
        else:
            program = neso_export.export(model, runs[0], dynamic_shapes=dynamic)
            neso_export.write(program, str(folder / "model.pt2"), kernels=str(folder / "kernels") if extra.get("kernels") else None)
            if extra.get("ttir"):
                as_ttir(folder / "kernels")
        cases.tidy_pt2(folder / "model.pt2")
        rows = []
        for i, inputs in enumerate(runs):
            suffix = "" if i == 0 else f".{i + 1}"
            cases.write_safetensors(folder / f"inputs{suffix}.safetensors", list(inputs))
            named = expected[name, i]
            cases.write_safetensors(folder / f"outputs{suffix}.safetensors", named)
            row = {"name": "run" + suffix, "program": "model.pt2", "inputs": f"inputs{suffix}.safetensors", "outputs": f"outputs{suffix}.safetensors", "prefix": "",
                   "tolerance": {k: list(cases.TOLERANCE[cases.DTYPE_NAMES[v.dtype]]) if v.is_floating_point() else [0.0, 0.0] for k, v in named.items()}}
            rows.append(json.dumps(row))
        (folder / "case.json").write_text('{"seed": %d, "torch": "%s", "runs": [\n  %s\n]}\n' % (SEED, torch.__version__.split("+")[0], ",\n  ".join(rows)))
        print(name)


if __name__ == "__main__":
    main()
