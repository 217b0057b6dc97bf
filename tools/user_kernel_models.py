"""Models that launch Triton kernels of their own: CASES, which golden_user_kernels.py exports and runs."""
import re

import numpy
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from user_kernel_products import attention_gradients, chunked_attention, scaled_product, split_product
from user_kernels import (
    add_kernel, add_op, add_twice, add_upcast, append_kernel, cdiv, count_kernel, descriptor_kernel, double_, fill_column, heuristic_square,
    leaky, matmul_kernel, min_max_kernel, mul2_inplace_kernel, options_kernel, relu, rotate_kernel, row_shift_kernel, scaled_add,
    scaled_or_added, softmax_kernel, strided_copy, strided_copy_to, tanh_like, transposing_kernel, two_stores_kernel, warps_kernel, weighted_sums)

CASES = {}
N = {0: torch.export.Dim("n", min=2, max=4096)}


def case(*sizes, dynamic=None, **options):
    """A class of a module with `inputs(n)`; `sizes` are the n of its runs, `dynamic` the dynamic_shapes of the export."""
    def add(cls):
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        CASES[name] = (cls, sizes or (8,), dynamic, options)
        return cls
    return add


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


@case(8)
class FloatsFromData(Pair):
    """Floats that are known only at run time: read from a tensor, and computed from that."""
    def forward(self, x, y):
        alpha = y.amax().item()
        a, b = torch.empty_like(x), torch.empty_like(x)
        grid = lambda meta: (cdiv(96, meta["BLOCK"]),)  # noqa: E731
        scaled_add[grid](x, y, a, 96, alpha)
        scaled_add[grid](x, y, b, 96, alpha * 0.5 + 1)
        return a, b


@case(8)
class SizesFromData(Pair):
    """How many elements, and over which grid, the data decides."""
    def forward(self, x, y):
        n = (x > 0).sum().item()
        torch._check(n >= 0)
        torch._check(n <= 96)
        out = torch.zeros_like(x)
        add_kernel[(cdiv(n, 16),)](x, y, out, n, BLOCK_SIZE=16)
        return out


@case(8)
class LaunchesFromData(Pair):
    """A grid and a number of elements that nothing but the launches asks for."""
    def forward(self, x, y):
        a, b = torch.zeros_like(x), torch.zeros_like(x)
        add_kernel[((x > 0).sum().item() // 16,)](x, y, a, 96, BLOCK_SIZE=16)
        add_kernel[(6,)](x, y, b, (y > 0).sum().item(), BLOCK_SIZE=16)
        return a, b


@case(8)
class GridsOfPowers(Pair):
    """The next power of two of a number that data decides, as a grid and as an argument; a truth that data decides; a number beyond 32 bits."""
    def forward(self, x, y):
        n = (x > 0).sum().item()
        torch._check(n >= 1)
        torch._check(n <= 96)
        a, b, c = (torch.zeros_like(x) for _ in range(3))
        add_kernel[(triton.next_power_of_2(n),)](x, y, a, 96, BLOCK_SIZE=1)
        add_kernel[(6,)](x, y, b, triton.next_power_of_2(n), BLOCK_SIZE=16)
        scaled_or_added[(6,)](x, c, 96, n > 10, (n + 3) << 33, BLOCK=16)
        return a, b, c


@case(8, 3, dynamic={"x": N, "y": N})
class TuplesOfTensors(Pair):
    """Tensors that are read, numbers of three kinds, tensors that are written."""
    def forward(self, x, y):
        n = x.numel()
        a, b, c = (torch.empty_like(x) for _ in range(3))
        weighted_sums[(cdiv(n, 32),)]((x, y, x * y), (y.amax().item(), 0.5, 2), (a, b, c), n, BLOCK=32)
        # The same types, another of the numbers known: another program.
        d, e = torch.empty_like(x), torch.empty_like(x)
        weighted_sums[(cdiv(n, 32),)]((x, y), (x.shape[0], 5), (d, e), n, BLOCK=32)
        weighted_sums[(cdiv(n, 32),)]((x, e), (5, x.shape[0]), (d, e), n, BLOCK=32)
        return a, b, c + 1, d, e


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


@case(24)
class SharedWeight(torch.nn.Module):
    """A weight that is an operand of a product and a kernel's argument."""
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(24, 24))

    @staticmethod
    def inputs(n):
        return (torch.randn(24, 24),)

    def forward(self, x):
        out = torch.empty_like(x)
        add_kernel[(36,)](self.weight, x, out, 576, BLOCK_SIZE=16)
        return out, torch.nn.functional.linear(x, self.weight)


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


# Products whose operands other products computed. Factors are small so that sums stay near one, where halves are densest.

@case(128)
class AttentionGradients(torch.nn.Module):
    @staticmethod
    def inputs(n):
        q, k, v, do = (0.3 * torch.randn(n, 64) for _ in range(4))
        scores = (q @ k.t()) * 0.18
        lse = torch.log2(torch.exp2(scores).sum(1))
        delta = ((torch.exp2(scores - lse[:, None]) @ v) * do).sum(1)
        return q.half(), k.half(), v.half(), do.half(), lse, delta

    def forward(self, q, k, v, do, lse, delta):
        n = q.shape[0]
        dq = torch.zeros(n, 64)
        dk, dv = torch.empty(n, 64), torch.empty(n, 64)
        attention_gradients[(n // 64,)](q, k, v, do, lse, delta, dq, dk, dv, n, 0.18, D=64, BM=64, BN=64)
        return dq.half(), dk.half(), dv.half()


@case(128)
class ChunkedAttention(torch.nn.Module):
    @staticmethod
    def inputs(n):
        q, k, v = (0.3 * torch.randn(n, 64) for _ in range(3))
        gates = -torch.rand(n // 64, 64).cumsum(1) * 0.05
        return q.half(), k.half(), v.half(), gates.flatten()

    def forward(self, q, k, v, gates):
        out = torch.empty_like(q)
        chunked_attention[(1,)](q, k, v, gates, out, q.shape[0], D=64, C=64)
        return out


class ScaledProduct(torch.nn.Module):
    stages = 3

    @staticmethod
    def inputs(n):
        return (0.3 * torch.randn(n, 256)).half(), (0.3 * torch.randn(256, 64)).half(), torch.rand(4, n), torch.rand(4, 64)

    def forward(self, a, b, sa, sb):
        m, k = a.shape
        c = torch.empty(m, 64, dtype=torch.half)
        scaled_product[(cdiv(m, 64), 1)](a, b, sa, sb, c, m, 64, k, BM=64, BN=64, BK=64, STAGES=self.stages)
        return c


@case(72)
class RowsBesideProducts(ScaledProduct):
    pass


@case(72)
class ProductsOneStage(ScaledProduct):
    stages = 1


@case(72)
class SplitProduct(torch.nn.Module):
    @staticmethod
    def inputs(n):
        return (0.3 * torch.randn(n, 256)).half(), (0.3 * torch.randn(40, 256)).half()

    def forward(self, a, b):
        m, k = a.shape
        c = torch.zeros(m, 40)
        split_product[(cdiv(m, 64), 1, 2)](a, b, c, m, 40, k, BM=64, BN=64, BK=64)
        return c.half()
