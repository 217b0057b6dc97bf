"""What tools/scaling measures: operators as functions of a size in elements, whose work in PyTorch is known to be sensible."""
import dataclasses
import math
from typing import Callable

import torch

F = torch.nn.functional
fft, L = torch.fft, torch.linalg


@dataclasses.dataclass
class Case:
    name: str
    function: Callable
    inputs: Callable  # size → tensors
    size: int = 1 << 14
    check: bool = True


def r(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype) if dtype.is_floating_point or dtype.is_complex else torch.randint(-1000, 1000, shape).to(dtype)


def square(n):
    return max(1, math.isqrt(n))


def up(n, step):
    """About n, in steps that blocks like."""
    return max(step, n // step * step)


def case(name, function, inputs, size=1 << 14, check=True):
    return Case(name, function, inputs, size, check)


def ordering():
    rows = lambda n: [r(8, n // 8)]  # noqa: E731
    long = lambda n: [r(n)]  # noqa: E731
    words = lambda n: [torch.randint(-2**62, 2**62, (n,))]  # noqa: E731
    return [
        case("sort_long", lambda x: torch.sort(x)[0], long), case("sort_rows", lambda x: torch.sort(x), rows, check=False), case("sort_columns", lambda x: torch.sort(x, dim=0)[0], lambda n: [r(n // 8, 8)]),
        case("sort_i64", lambda x: torch.sort(x)[0], words), case("sort_short_rows", lambda x: torch.sort(x)[0], lambda n: [r(n // 16, 16)]), case("argsort", lambda x: torch.argsort(x), rows, check=False),
        case("topk_long", lambda x: torch.topk(x, 5)[0], long), case("topk_rows", lambda x: torch.topk(x, 5)[0], rows), case("topk_many", lambda x: torch.topk(x, 300)[0], rows),
        case("median", lambda x: x.median(), long), case("median_rows", lambda x: x.median(-1)[0], rows), case("kthvalue", lambda x: torch.kthvalue(x, 100)[0], rows), case("quantile", lambda x: torch.quantile(x, 0.3, dim=-1), rows),
        case("mode", lambda x: x.mode(-1)[0], lambda n: [torch.randint(0, 50, (8, n // 8)) * (torch.rand(8, n // 8) > 0.3)]), case("searchsorted", torch.searchsorted, lambda n: [r(n).sort()[0], r(n)]), case("searchsorted_rows", torch.searchsorted, lambda n: [r(8, n // 8).sort(-1)[0], r(8, n // 8)]),
        case("bucketize", lambda x, b: torch.bucketize(x, b), lambda n: [r(n), r(256).sort()[0]]), case("isin", torch.isin, lambda n: [torch.randint(0, 9 * n, (n,)), torch.randint(0, 9 * n, (n,))]), case("histc", lambda x: torch.histc(x, 100, -3, 3), long),
        case("cumsum", lambda x: x.cumsum(-1), rows), case("cumsum_columns", lambda x: x.cumsum(0), lambda n: [r(n // 64, 64)]), case("cummax", lambda x: x.cummax(-1)[0], rows), case("logcumsumexp", lambda x: x.logcumsumexp(-1), rows),
    ]


def gathers():
    at = lambda high, *shape: torch.randint(0, high, shape)  # noqa: E731
    return [
        case("embedding", F.embedding, lambda n: [at(1000, n // 64), r(1000, 64)]), case("embedding_bag", lambda i, w: F.embedding_bag(i, w, mode="sum"), lambda n: [at(1000, n // 256, 4), r(1000, 64)]),
        case("embedding_bag_offsets", lambda i, w, o: F.embedding_bag(i, w, o, mode="mean"), lambda n: [at(1000, n // 64), r(1000, 64), torch.arange(0, n // 64, 4)]), case("segment_reduce", lambda x, s: torch.segment_reduce(x, "sum", lengths=s, unsafe=True), lambda n: [r(n), torch.full((n // 16,), 16)]),
        case("index", lambda x, i: x[i], lambda n: [r(1000, 64), at(1000, n // 64)]), case("gather", lambda x, i: x.gather(1, i), lambda n: [r(8, n // 8), at(n // 8, 8, n // 8)]), case("take", torch.take, lambda n: [r(n), at(n, n)]),
        case("scatter_add", lambda x, i, s: x.scatter_add(0, i, s), lambda n: [r(1000), at(1000, n), r(n)]), case("index_add", lambda x, i, s: x.index_add(0, i, s), lambda n: [r(1000, 64), at(1000, n // 64), r(n // 64, 64)]), case("index_put", lambda x, i, v: x.index_put((i,), v), lambda n: [r(n), torch.randperm(n), r(n)]),
        case("masked_fill", lambda x, m: x.masked_fill(m, 1.0), lambda n: [r(n), r(n) > 0]), case("masked_scatter", lambda x, m, s: x.masked_scatter(m, s), lambda n: [r(n), r(n) > 0, r(n)]), case("one_hot", lambda i: F.one_hot(i, 64), lambda n: [at(64, n // 64)]), case("repeat_interleave", lambda x: x.repeat_interleave(3, 0), lambda n: [r(n // 64, 64)]),
    ]


def transforms():
    z = torch.complex64
    rows = lambda n: [r(8, n // 8, dtype=z)]  # noqa: E731
    return [
        case("fft_rows", fft.fft, rows), case("ifft_rows", fft.ifft, rows), case("fft_long", fft.fft, lambda n: [r(n, dtype=z)]), case("rfft_long", fft.rfft, lambda n: [r(n)]), case("irfft_long", fft.irfft, lambda n: [r(n // 2 + 1, dtype=z)]),
        case("rfft_rows", fft.rfft, lambda n: [r(8, n // 8)]), case("fft_of_1000", fft.fft, lambda n: [r(n // 1000 + 1, 1000, dtype=z)]), case("fft_prime", fft.fft, lambda n: [r(n // 1009 + 1, 1009, dtype=z)]), case("fft_columns", lambda x: fft.fft(x, dim=0), lambda n: [r(n // 16, 16, dtype=z)]),
        case("fft2", fft.fft2, lambda n: [r(up(square(n), 16), up(square(n), 16), dtype=z)]), case("stft", lambda x: torch.view_as_real(torch.stft(x, 512, 128, window=torch.hann_window(512), return_complex=True)), lambda n: [r(n)]), case("fft_f64", fft.fft, lambda n: [r(8, n // 8, dtype=torch.complex128)]),
    ]


def products():
    def mm(dtype):
        return lambda n: [r(square(n), square(n), dtype=dtype), r(square(n), square(n), dtype=dtype)]

    def image(dtype, channels=16):
        return lambda n: [r(1, channels, square(n // channels), square(n // channels), dtype=dtype), r(channels, channels, 3, 3, dtype=dtype)]

    def heads(dtype):
        return lambda n: [r(2, 2, n // 128, 32, dtype=dtype) for _ in range(3)]
    cases = []
    for name, dtype in (("f32", torch.float32), ("f64", torch.float64), ("i32", torch.int32), ("bf16", torch.bfloat16), ("i64", torch.int64), ("c64", torch.complex64)):
        cases.append(case(f"mm_{name}", torch.mm, mm(dtype), 1 << 14))
    for name, dtype in (("f32", torch.float32), ("f64", torch.float64), ("bf16", torch.bfloat16)):
        cases += [case(f"conv2d_{name}", lambda x, w: F.conv2d(x, w, padding=1), image(dtype)), case(f"sdpa_{name}", F.scaled_dot_product_attention, heads(dtype), 1 << 13)]
    transposed = lambda k, c=8: lambda n: [r(1, c, square(n // c), square(n // c)), r(c, c, k, k)]  # noqa: E731
    return cases + [
        case("conv_transpose2d_s2", lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), transposed(4), 1 << 12), case("conv_transpose2d_s8", lambda x, w: F.conv_transpose2d(x, w, stride=8), transposed(8), 1 << 10), case("conv_transpose1d_s16", lambda x, w: F.conv_transpose1d(x, w, stride=16), lambda n: [r(1, 8, n // 8), r(8, 8, 16)], 1 << 12),
        case("conv_transpose3d_s2", lambda x, w: F.conv_transpose3d(x, w, stride=2), lambda n: [r(1, 8, 8, 8, n // 512), r(8, 8, 2, 2, 2)], 1 << 12), case("conv_depthwise", lambda x, w: F.conv2d(x, w, padding=1, groups=16), lambda n: [r(1, 16, square(n // 16), square(n // 16)), r(16, 1, 3, 3)]),
        case("linear", F.linear, lambda n: [r(n // 256, 256), r(256, 256), r(256)]), case("bmm", torch.bmm, lambda n: [r(n // 1024, 32, 32), r(n // 1024, 32, 32)]), case("mv", torch.mv, lambda n: [r(square(n), square(n)), r(square(n))]), case("cdist", torch.cdist, lambda n: [r(square(n), 16), r(square(n), 16)]),
    ]


def windows():
    rows = lambda n: [r(1, 8, n // 8)]  # noqa: E731
    image = lambda n: [r(1, 8, square(n // 8), square(n // 8))]  # noqa: E731
    return [
        case("max_pool1d_31", lambda x: F.max_pool1d(x, 31, 1, 15), rows), case("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), image), case("max_pool2d_13", lambda x: F.max_pool2d(x, 13, 1, 6), image), case("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 1, 1), image), case("avg_pool1d_31", lambda x: F.avg_pool1d(x, 31, 1), rows),
        case("interpolate", lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), image), case("interpolate_antialias", lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True), image),
        case("resize_bytes", lambda x: F.interpolate(x, (224, 224), mode="bilinear"), lambda n: (torch.randint(0, 256, (1, 3, square(n), square(n)), dtype=torch.uint8),)),
        case("resize_bytes_antialias", lambda x: F.interpolate(x, (224, 224), mode="bilinear", antialias=True), lambda n: (torch.randint(0, 256, (1, 3, square(n), square(n)), dtype=torch.uint8),)),
        case("pad_reflect", lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"), image), case("unfold", lambda x: F.unfold(x, 3), image),
        case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), image), case("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), lambda n: [*image(n), torch.rand(1, square(n // 8), square(n // 8), 2) * 2 - 1]),
    ]


def moves():
    block = lambda n: [r(square(n), square(n))]  # noqa: E731
    return [
        case("transpose", lambda x: x.t().contiguous(), block), case("permute", lambda x: x.permute(2, 0, 1).contiguous(), lambda n: [r(16, n // 256, 16)]), case("flip", lambda x: x.flip(-1), block), case("roll", lambda x: x.roll(3, -1), block), case("cat", lambda x, y: torch.cat([x, y], -1), lambda n: block(n) * 2), case("diag_embed", torch.diag_embed, lambda n: [r(square(n), 16)]),
        case("tril", torch.tril, block), case("complex_mul", lambda x, y: x * y, lambda n: [r(n, dtype=torch.complex64)] * 2), case("complex_abs", torch.abs, lambda n: [r(n, dtype=torch.complex64)]), case("erfinv", torch.erfinv, lambda n: [torch.rand(n) * 1.9 - 0.95]),
        case("softmax", lambda x: x.softmax(-1), block), case("layer_norm", lambda x: F.layer_norm(x, x.shape[-1:]), block), case("sum_columns", lambda x: x.sum(0), block), case("sum_all", lambda x: x.sum(), block), case("var", lambda x: x.var(-1), block), case("argmax", lambda x: x.argmax(-1), block), case("group_norm", lambda x: F.group_norm(x, 4), lambda n: [r(1, 16, square(n // 16), square(n // 16))]),
        case("cross_entropy", F.cross_entropy, lambda n: [r(square(n), square(n)), torch.randint(0, square(n), (square(n),))]), case("norm", lambda x: x.norm(), block),
    ]


def factorisations():
    def batch(extra=0):
        return lambda n: [r(max(1, n // 1024), 32, 32) + extra * torch.eye(32)]
    spd = lambda n: [(lambda a: a @ a.mT + 32 * torch.eye(32))(r(max(1, n // 1024), 32, 32))]  # noqa: E731
    return [case("inv", L.inv, batch(9), 1 << 12), case("solve", L.solve, lambda n: [*batch(9)(n), r(max(1, n // 1024), 32, 2)], 1 << 12), case("det", L.det, batch(), 1 << 12, check=False), case("cholesky", L.cholesky, spd, 1 << 12), case("qr", lambda a: L.qr(a)[1].abs(), batch(), 1 << 12), case("eigvalsh", L.eigvalsh, spd, 1 << 12), case("svdvals", L.svdvals, batch(), 1 << 12)]


CASES = ordering() + gathers() + transforms() + products() + windows() + moves() + factorisations()


def database():
    """Pointwise operators of one and two tensors, and reductions, of PyTorch's operator database."""
    from torch.testing._internal import common_methods_invocations as database_of
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo
    positive = lambda n: torch.rand(n // 64, 64) * 0.9 + 0.05  # noqa: E731
    # Eager passes by the exponential of ELU and its like where a vector holds no negative element.
    signed = lambda n: torch.rand(n // 64, 64) * 1.9 - 0.95  # noqa: E731
    out, seen = [], {c.name for c in CASES}
    for op in database_of.op_db:
        if torch.float32 not in op.dtypes or not callable(op.op) or op.name in seen:
            continue
        seen.add(op.name)
        if isinstance(op, UnaryUfuncInfo) or isinstance(op, ReductionOpInfo):
            low = getattr(op, "domain", (0, None))[0]
            out.append(case(op.name, op.op, lambda n, inputs=signed if low is None or low <= -1 else positive: [inputs(n)], check=False))
        elif isinstance(op, BinaryUfuncInfo):
            out.append(case(op.name, op.op, lambda n: [positive(n), positive(n)], check=False))
    return out
