"""Operators at sizes where the algorithm matters: what is right for a few elements may be another program for many."""
import torch
from torch.export import Dim

from golden_ops import SPECIAL, B, N, c, spd

F = torch.nn.functional
NAN = float("nan")
BAGS = torch.tensor([0, 2, 2, 9, 40])


def bags():
    """Segments of unequal length, empty ones among them."""
    bag = F.embedding_bag
    many, table = "i64 40 <50", "f32 50x17"
    weights = "f32 40"
    return [
        c("sum", lambda i, w: bag(i, w, BAGS, mode="sum"), many, table), c("mean", lambda i, w: bag(i, w, BAGS), many, table), c("max", lambda i, w: bag(i, w, BAGS, mode="max"), many, table),
        c("rows", lambda i, w: bag(i, w, mode="sum"), "i64 6x7 <50", table), c("weighted", lambda i, w, s: bag(i, w, BAGS, mode="sum", per_sample_weights=s), many, table, weights),
        c("padding", lambda i, w: bag(i, w, BAGS, padding_idx=3), "i64 40 <7", table), c("last_offset", lambda i, w: bag(i, w, BAGS, mode="sum", include_last_offset=True), many, table),
        c("wide", lambda i, w: bag(i, w, mode="sum"), "i64 3x5 <9", "f32 9x300"), c("i32", lambda i, w: bag(i, w, BAGS.int(), mode="sum"), "i32 40 <50", table), c("narrow", lambda i, w: bag(i, w, BAGS), many, "f32 50x1"),
        c("bf16", lambda i, w: bag(i, w, BAGS), many, "bf16 50x17"), c("f64", lambda i, w: bag(i, w, BAGS, mode="max"), many, "f64 50x3"),
        c("dynamic", lambda i, w: bag(i, w, mode="mean"), "i64 6x7 <50", table, more=[["i64 2x3 <50", table]], dynamic=({0: B, 1: N}, None)),
        *[c(f"segments_{m}", lambda x, m=m: torch.segment_reduce(x, m, lengths=torch.tensor([3, 0, 5, 12])), "f32 20x3") for m in ("sum", "mean", "max", "min", "prod")],
        c("segments_offsets", lambda x: torch.segment_reduce(x, "sum", offsets=torch.tensor([0, 4, 4, 9])), "f32 9"),
        # All four results: which bag each index is in, the sizes of the bags, where the greatest values come from.
        *[c(f"records_{name}{form}", lambda i, w, mode=mode, last=last, padding=padding: torch.ops.aten._embedding_bag(w, i, BAGS, False, mode, False, None, last, padding), "i64 40 <7", "f32 7x5")
          for mode, name in enumerate(("sum", "mean", "max")) for form, last, padding in (("", False, -1), ("_padding", False, 3), ("_last", True, -1))],
        c("records_forward", lambda i, w: torch.ops.aten._embedding_bag_forward_only(w, i, BAGS.int(), False, 2, False, None, False, 0), "i32 40 <4", "bf16 4x3"),
        c("records_dynamic", lambda i, w, o: torch.ops.aten._embedding_bag(w, i, o, False, 1), "i64 40 <50", "f32 50x3", BAGS, more=[["i64 9 <50", "f32 50x3", torch.tensor([0, 4, 4])]], dynamic=({0: N}, None, {0: B})),
    ]


def long_sorts():
    """Rows beyond insertion, of every width of key; the first few of many."""
    rows = {"f32": "f32 3x301", "f64": "f64 3x301", "f16": "f16 3x301", "bf16": "bf16 3x301", "i64": "i64 3x301", "i32": "i32 3x301", "i16": "i16 3x301", "i8": "i8 3x301", "u8": "u8 3x301"}
    every = lambda x: (*torch.sort(x, dim=-1, stable=True), *torch.sort(x, dim=-1, stable=True, descending=True), torch.topk(x, 5)[0], torch.topk(x, 5, largest=False)[0])  # noqa: E731
    cases = [c(n, every, s) for n, s in rows.items()]
    special = lambda: torch.cat([SPECIAL.reshape(-1), torch.linspace(-2, 2, 200), -SPECIAL.reshape(-1)])  # noqa: E731
    return cases + [
        c("columns", lambda x: (*torch.sort(x, dim=0, stable=True), *torch.topk(x, 4, dim=0)), "f32 301x7"), c("alike", lambda x: (*torch.sort(x * 0, stable=True), *torch.sort(x << 55, stable=True)), "i64 200"),
        c("special", lambda x: (*torch.sort(x, stable=True), *torch.sort(x, stable=True, descending=True), *torch.sort(x.double(), stable=True), torch.topk(x, 9)[0], torch.topk(x, 9, largest=False)[0]), special()),
        c("bool", lambda x: torch.sort(x, dim=-1, stable=True), "bool 2x99"), c("short", lambda x: (*torch.sort(x, dim=-1, stable=True), *torch.sort(x[:, :48], dim=-1, stable=True)), "f32 5x49"),
        c("top", lambda x: (*torch.topk(x, 200), *torch.topk(x, 301), *torch.topk(x, 1), torch.topk(x.sort(-1)[0], 7)[0], torch.topk(x, 0)[0]), "f32 2x301"),
        c("top_dynamic", lambda x: (torch.topk(x, 3)[0], *torch.sort(x, stable=True)), "f64 3x301", more=[["f64 1x4"], ["f64 7x64"]], dynamic=({0: B, 1: Dim("m", min=3, max=512)},)),
        c("order", lambda x: (torch.kthvalue(x, 77, 1)[0], x.median(-1)[0], x.median(), torch.where(x > 1, NAN, x).nanmedian(-1)[0], torch.where(x > 2, NAN, x).median(-1)[0], torch.quantile(x, torch.tensor([0.1, 0.5, 1.0]), dim=1)), "f32 3x301"), c("mode", lambda x: x.mode(-1)[0], "i64 3x301 <20"),
    ]


def selections():
    """One place of a sorted row. Among equal elements torch names any position: what stands there is compared."""
    def there(x, value_at, dim=-1):
        value, at = value_at
        return value, x.gather(dim, at.unsqueeze(dim)).squeeze(dim)
    kth = lambda x, k, dim=-1: there(x, torch.kthvalue(x, k, dim), dim)  # noqa: E731
    def medians(x, dim=-1):
        return (*there(x, x.median(dim), dim), *(there(x, x.nanmedian(dim), dim) if x.is_floating_point() else ()))
    def every_width(x):
        whole = (x * 50).long()
        return [r for y in (x.double(), x.half(), x.bfloat16(), whole << 52, whole.short(), whole.to(torch.uint8)) for r in kth(y, 40)]
    edges = lambda: torch.cat([SPECIAL.reshape(-1), torch.zeros(20), -torch.zeros(20), torch.linspace(-1e-44, 1e-44, 15)])  # noqa: E731
    return [
        c("every_width", every_width, "f32 2x90"), c("positions", lambda x: (torch.kthvalue(x, 90, 1), x.median(1), x.nanmedian(1), torch.kthvalue(x, 150, 1, keepdim=True)), "f32 3x150"),
        # Few are left among many, again and again; all are equal; two values.
        c("long", lambda x: (*torch.kthvalue(x, 700), *x.median(-1), *kth((x * 3).round(), 600), *kth(x * 0, 17), *kth((x > 0).int(), 500), torch.kthvalue(x.exp() * 1e6, 1100)[0]), "f32 2x1100"),
        # GPUs sort rows of so many in parts.
        c("parts", lambda x: (*torch.kthvalue(torch.arange(9000) * 7919 % 10007 + x, 4567, -1), *torch.where(x == 3, 0.5, torch.arange(9000) * 7919 % 10007).nanmedian(-1)), "i64 2x1 <9"),
        c("columns", lambda x: (*torch.kthvalue(x, 33, 0), *x.median(0), x.median(), x.nanmedian()), "f32 65x3"),
        c("edges", lambda x: [*kth(x, 30), *kth(x, 50), *medians(x), *medians(x[-50:]), *medians(x * NAN)], edges()),
        c("dynamic", lambda x: (torch.kthvalue(x, 20)[0], *x.median(-1), *torch.where(x > 0.5, NAN, x).nanmedian(-1)), "f32 3x64", more=[["f32 1x20"], ["f32 2x333"]], dynamic=({0: B, 1: Dim("m", min=20, max=4096)},)),
    ]


def searches():
    """Places among sorted elements, found by halving."""
    search = torch.searchsorted
    ascending = lambda b: b.sort(-1)[0]  # noqa: E731
    def lengths(b, x):
        return [f for n in (1, 2, 3, 7, 8, 9, 255, 256, 257) for f in (search(ascending(b[:n]), x), search(ascending(b[:n]), x, right=True))]
    return [
        c("lengths", lengths, "f32 257", "f32 41"), c("rows", lambda b, x: (search(ascending(b), x), search(b, x, sorter=b.argsort(-1)), search(ascending(b), torch.where(x > 1, NAN, x))), "f32 3x100", "f32 3x40"),
        c("equal", lambda b, x: (search(ascending(b), x), search(ascending(b), x, side="right"), search(ascending(b), b - 9), search(ascending(b), b + 9, out_int32=True)), "i64 90 <20", "i64 60 <20"),
        c("none", lambda b, x: search(b, x), "f32 0", "f32 5"), c("bucketize", lambda x: (torch.bucketize(x, torch.linspace(-2, 2, 99), right=True), search(ascending(x), 0.3)), "f32 40"),
        c("dynamic", lambda b, x: search(ascending(b), x), "f32 100", "f32 40", more=[["f32 1", "f32 5"], ["f32 64", "f32 9"]], dynamic=({0: N}, {0: B})),
        c("isin", lambda x, y: (torch.isin(x, y), torch.isin(x, y, invert=True), torch.isin(x.int(), y.float())), "i64 4x30 <200", "i64 60 <200"),
        c("isin_f32", lambda x: (torch.isin(x, torch.cat([x.reshape(-1)[::3], torch.linspace(5, 9, 30), torch.tensor([NAN])])), torch.isin(torch.where(x > 0, NAN, x), torch.where(x > 1, NAN, x))), "f32 4x20"),
        c("isin_dynamic", lambda x, y: torch.isin(x, y), "i64 40 <99", "i64 50 <99", more=[["i64 3 <99", "i64 1 <99"]], dynamic=({0: B}, {0: N})),
    ]


def transforms():
    """Fourier transforms of lengths that factor in every way."""
    fft = torch.fft
    def forth_and_back(z):
        return [f(z[:, :n]) for n in (17, 30, 49, 64, 67, 100, 143, 256) for f in (fft.fft, fft.ifft)]

    def real(x):
        return [f(x[:, :n]) for n in (34, 36, 45, 64, 101, 134) for f in (fft.rfft, fft.fft, fft.ihfft)]

    def to_real(z):
        return [f(z[:, :n // 2 + 1], n) for n in (34, 36, 45, 64, 101, 134) for f in (fft.irfft, fft.hfft)]
    return [
        c("complex", forth_and_back, "c64 2x256"), c("real", real, "f32 2x134"), c("to_real", to_real, "c64 2x68"), c("wide", lambda x: (fft.rfft(x), fft.fft(x[:, :53]), fft.irfft(fft.fft(x))), "f64 2x60"),
        c("dims", lambda x: (fft.fft(x, dim=0), fft.rfft(x, dim=1), fft.fft2(x, dim=(0, 1)), fft.irfft2(fft.rfft2(x, dim=(0, 1)) * 2, dim=(0, 1)), fft.fftn(x, norm="ortho")), "f32 20x36x3"),
        c("cut", lambda x: (fft.rfft(x, 50), fft.rfft(x, 36), fft.fft(x, 20, norm="forward"), fft.irfft(fft.rfft(x), 60)), "f32 3x40"), c("conjugate", lambda z: fft.ifft(fft.fft(z).conj()).conj(), "c64 2x48"), c("rows_zero", fft.fft, "c64 0x32"),
        c("columns", lambda z: [f(z, dim=d) for d in (0, 1) for f in (fft.fft, fft.ifft)], "c64 20x19x9"), c("real_columns", lambda x: (fft.rfft(x, dim=0), fft.rfft(x, dim=1), fft.irfft(fft.rfft(x, dim=1), 38, dim=1), fft.irfft(fft.rfft(x, dim=0), 35, dim=0), fft.hfft(fft.ihfft(x, dim=1), 38, dim=1)), "f32 36x38x9"), c("columns_f64", lambda x, y: (fft.fft(torch.complex(x, y), dim=0), fft.rfft(x, dim=0), fft.fft(torch.complex(x, y)[:, :3], dim=0)), "f64 34x17", "f64 34x17"),
        c("long", lambda x: (fft.rfft(x), fft.irfft(fft.rfft(x))), "f32 2x1024"), c("long_odd", fft.fft, "c64 1155"),
        c("stft", lambda x: torch.view_as_real(torch.stft(x, 64, 16, window=torch.hann_window(64), return_complex=True)), "f32 2x300"), c("dynamic_rows", lambda z: fft.fft(z), "c64 3x40", more=[["c64 1x40"], ["c64 9x40"]], dynamic=({0: B},)),
    ]


def phases():
    """Transposed convolutions with strides."""
    t1, t2, t3 = F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d
    def one(x, *ws):
        forms = ((2, 0, 0), (2, 1, 1), (2, 1, 0), (2, 0, 1), (3, 2, 1), (4, 0, 2), (4, 3, 3), (16, 0, 0), (5, 3, 4))
        return [t1(x, w, stride=s, padding=p, output_padding=o) for w, (s, p, o) in zip(ws, forms)]
    return [
        c("one", one, "f32 2x5x9", *(f"f32 5x7x{k}" for k in (2, 3, 4, 5, 7, 2, 9, 16, 4))),
        c("two", lambda x, w, v, b: (t2(x, w, stride=2, padding=1), t2(x, v, b, stride=(2, 1), padding=(0, 1), output_padding=(1, 0)), t2(x, v, stride=2, dilation=2, padding=1)), "f32 2x6x5x7", "f32 6x9x4x4", "f32 6x4x3x3", "f32 4"),
        c("three", lambda x, w: t3(x, w, stride=2, padding=1, output_padding=1), "f32 1x3x3x4x2", "f32 3x4x3x3x3"), c("groups", lambda x, w, v, b: (t2(x, w, b, stride=2, groups=3), t2(x, v, stride=2, padding=1, groups=6)), "f32 1x6x4x5", "f32 6x2x3x3", "f32 6x1x4x4", "f32 6"),
        c("dtypes", lambda x, w: (t2(x, w, stride=2), t2(x.double(), w.double(), stride=2)), "bf16 1x6x4x5", "bf16 6x8x2x2"), c("weights", lambda m, x: t2(x, m.w, m.b, stride=2, padding=1), "f32 1x6x5x4", state={"w": "f32 6x8x4x4", "b": "f32 8"}),
        c("dynamic", lambda x, w: t2(x, w, stride=2, padding=1), "f32 2x3x5x4", "f32 3x4x4x4", more=[["f32 1x3x5x4", "f32 3x4x4x4"]], dynamic=({0: B}, None)),
    ]


def sliding_windows():
    """Depthwise convolutions of channels that fill vectors: edges on both sides, rows longer than a block, tails of channels."""
    def deep(stride=1, padding=0, dilation=1, after=lambda y: y):
        return lambda m, x: after(F.conv2d(x.contiguous(memory_format=torch.channels_last), m.w, m.b, stride=stride, padding=padding, dilation=dilation, groups=x.shape[1]))

    def weights(channels, kernel, kind="f32"):
        return {"w": f"{kind} {channels}x1x{kernel}", "b": f"{kind} {channels}"}
    return [
        c("five", deep(padding=2, after=F.hardswish), "f32 2x40x6x14", state=weights(40, "5x5")), c("small_rows", deep(padding=2), "f32 1x48x7x7", state=weights(48, "5x5")), c("narrower", deep(padding=2), "f32 1x32x3x2", state=weights(32, "5x5")),
        c("strided", deep(stride=2, padding=1, after=F.relu6), "f32 1x24x9x31", state=weights(24, "3x3")), c("long_row", deep(padding=1), "f32 1x16x3x67", state=weights(16, "3x3")), c("seven", deep(padding=3, after=F.silu), "f32 1x16x8x9", state=weights(16, "7x7")),
        c("dilated", deep(padding=4, dilation=2), "f32 1x16x9x10", state=weights(16, "5x5")), c("no_padding", deep(), "f32 1x72x5x20", state=weights(72, "3x5")), c("residual", lambda m, x: x + F.conv2d(x.contiguous(memory_format=torch.channels_last), m.w, m.b, padding=1, groups=32), "f32 2x32x5x17", state=weights(32, "3x3")),
        c("bf16", deep(padding=1), "bf16 1x32x5x12", state=weights(32, "3x3", "bf16")), c("f64", deep(padding=2), "f64 1x16x5x12", state=weights(16, "5x5", "f64")), c("of_infinity", lambda m, x: F.conv2d(x / x.abs().clamp(max=1).floor(), m.w, padding=1, groups=16), "f32 1x16x4x9", state={"w": "f32 16x1x3x3"}),
        # Between their edges these have turns of a loop, and rows of an image with all of a window inside.
        c("five_in_a_loop", deep(padding=2, after=F.relu), "f32 1x24x8x33", state=weights(24, "5x5")), c("seven_in_a_loop", deep(padding=3), "f32 1x20x10x41", state=weights(20, "7x7")), c("strided_in_a_loop", deep(stride=2, padding=1), "f32 1x16x6x141", state=weights(16, "3x3")),
        c("dynamic", deep(padding=2), "f32 2x24x4x13", state=weights(24, "5x5"), more=[["f32 1x24x4x13"], ["f32 3x24x4x13"]], dynamic=({0: B},)), c("pooled", lambda x: (F.avg_pool2d(x.contiguous(memory_format=torch.channels_last), 3, 1, 1), F.max_pool2d(x.contiguous(memory_format=torch.channels_last), 3, 2, 1)), "f32 1x32x6x15"),
    ]


def padded_chunks():
    """Sequences padded to a multiple and taken apart into chunks, of lengths that only the run knows."""
    A = Dim.AUTO

    def up(x, k):
        return F.pad(x, (0, 0, 0, (-x.shape[1]) % k))

    def windows(x):
        w = up(x, 4).unflatten(1, (-1, 4))
        return ((w @ w.mT).softmax(-1) @ w).flatten(1, 2)[:, : x.shape[1]]

    def rest(x, k=7, s=3):
        return F.pad(x, (0, 0, s, s + k - (s + x.shape[1] % k) % k))

    def both_halves(x):
        y = rest(x)
        b, c = x.shape[0], x.shape[2]
        return torch.cat([y[:, :-3].reshape(b, -1, 7, c), y[:, 3:].reshape(b, -1, 7, c)], 1).cumsum(2)

    sizes = [["f32 2x9x4"], ["f32 3x13x4"], ["f32 2x23x4"], ["f32 4x61x4"]]
    any_length = {"more": sizes, "dynamic": ({0: A, 1: A},)}
    return [
        c("windows", windows, "f32 2x14x4", **any_length), c("both_halves", both_halves, "f32 2x14x4", **any_length),
        c("sorted", lambda x: rest(x)[:, 3:].reshape(x.shape[0], -1, 7, 4).sort(2)[0], "f32 2x14x4", **any_length),
    ]


def lengths_of_rows():
    """Rows and columns whose number and length are dynamic: a kernel for each class of lengths, parts where they are long. Of products, so that the files stay small."""
    A = Dim.AUTO

    def sizes(*all):
        return {"more": [[f"f32 {n}", f"f32 {m}"] for n, m in all], "dynamic": ({0: A}, {0: A})}
    rows, columns = sizes((3, 5), (40, 20), (2, 100), (5, 700), (2, 4097), (130, 2)), sizes((3, 5), (20, 40), (5, 100), (600, 2), (2100, 9), (530, 40))
    both, few = sizes((3, 5), (130, 2), (40, 20), (2, 130), (530, 40)), sizes((40, 20), (3, 130), (2, 1100), (530, 2))

    def of(name, function, rest=both, **more):
        return c(name, lambda a, b: function(a[:, None] * b), "f32 8", "f32 16", **rest, **more)

    def moved(x):
        return (x - x.mean(0)) / (x.var(0) + 1).sqrt()
    return [
        of("rows", lambda x: (x.sum(1), x.amax(1), x.argmin(1), x.mean(1), x.logsumexp(1), (x.softmax(1) * x).sum(1), x.var(1)), rows), of("columns", lambda x: (x.relu().sum(0), x.amin(0), x.argmax(0), (x > 1).any(0), x.var(0)), columns),
        of("both", lambda x: (x.sum(0), x.sum(1), x.amax())), of("whole", lambda x: (x.sum(), x.argmax(), x.std(), x.norm()), columns), of("exponentials", lambda x: (x.logsumexp(0), (x.softmax(0) * x).sum(0), x.softmax(1).sum(0))),
        of("scans", lambda x: (x.cumsum(1)[:, -1], x.cumsum(0)[-1], x.cummax(1)[1][:, -1])), of("moved", lambda x: (moved(x).amin(1), F.layer_norm(x, (x.shape[1],)).amax(0))),
        of("written", lambda x: (x.softmax(-1), x - x.mean(0)), few), of("behind", lambda x: F.rms_norm(x, (x.shape[1],)) + x.amax(1, keepdim=True) + x.sum(1).softmax(0)[:, None], few),
        c("bytes", lambda a, b: ((a[:, None] ^ b).sum(1), (a[:, None] ^ b).amax(0), (a[:, None] & b).argmax(1)), "u8 8", "u8 16", more=[["u8 3", "u8 300"], ["u8 530", "u8 3"], ["u8 530", "u8 40"]], dynamic=({0: A}, {0: A})),
        c("halves", lambda a, b: ((a[:, None] * b).abs().sum(1), (a[:, None] * b).amax(0), (a[:, None] * b).softmax(-1).amax(0)), "bf16 8", "bf16 16", more=[["bf16 3", "bf16 300"], ["bf16 530", "bf16 3"]], dynamic=({0: A}, {0: A})),
        c("three", lambda a, b, d: ((a[:, None, None] * b[:, None] * d).sum((0, 2)), (a[:, None, None] * b[:, None] * d).amax(1), (a[:, None, None] * b[:, None] * d).sum((0, 1))), "f32 4", "f32 5", "f32 6",
          more=[["f32 2", "f32 3", "f32 200"], ["f32 90", "f32 3", "f32 9"], ["f32 3", "f32 600", "f32 2"]], dynamic=({0: A}, {0: A}, {0: A})),
        # Lengths that data decide, none among them.
        c("found", lambda x: (x[x > 0].sum(), x[x > 0].softmax(0).sum(), torch.nonzero(x > 0).sum(0), x[x > 0].cumsum(0).sum()), "f32 40", more=[["f32 40 >0"], [-torch.ones(40)], ["f32 3000"]], dynamic=({0: A},)),
    ]


def products_of_any_size():
    """Products whose rows, columns and k are dynamic: few, some and many rows, a k that is cut in parts and one that is not. Operands are products, so that the files stay small."""
    A = Dim.AUTO
    three = {"dynamic": ({0: A}, {0: A}, {0: A})}

    def of(name, function, example, more, kind="f32", **rest):
        return c(name, function, *(f"{kind} {n}" for n in example), more=[[f"{kind} {n}" for n in s] for s in more], **{**three, **rest})

    def sides(m, k, n):
        return torch.sin(m[:, None] * 3 + k * k), torch.cos(k[:, None] * k[:, None] + n)

    def product(m, k, n):
        a, b = sides(m, k, n)
        return (a @ b).sum(1), (a @ b).amax(0)

    def tall(m, k, n):
        a, b = sides(m, k, n)
        return a.t().contiguous().t() @ b
    odd = ((3, 40, 5), (70, 30, 9), (600, 20, 3), (64, 65, 17), (65, 5, 130), (2, 5000, 3), (40, 2100, 33))
    return [
        of("products", product, (8, 16, 12), odd), of("products_of_halves", product, (8, 16, 12), odd[:5], kind="bf16"), of("tall", tall, (8, 4100, 12), ((3, 9000, 2), (30, 7, 20), (5, 1024, 9), (130, 70, 3))),
        c("layer", lambda m, x: F.relu(F.linear(x[:, None] * m.s, m.w, m.b)).amax(0), "f32 8", more=[["f32 2"], ["f32 64"], ["f32 65"], ["f32 513"], ["f32 700"]], dynamic=({0: A},), state={"s": "f32 48", "w": "f32 40x48", "b": "f32 40"}),
        c("layer_of_halves", lambda m, x: F.linear(x[:, None] * m.s, m.w).amax(1), "f16 8", more=[["f16 2"], ["f16 65"], ["f16 700"]], dynamic=({0: A},), state={"s": "f16 64", "w": "f16 32x64"}),
        of("batches", lambda m, k, n: torch.bmm(m[:, None, None] * torch.sin(k)[None, None] + torch.arange(3)[:, None] * 1.0, (torch.cos(k)[:, None] * n)[None].expand(m.shape[0], -1, -1)).sum(1), (8, 16, 12), ((2, 30, 5), (70, 9, 3), (3, 3000, 4))),
    ]


def windows_of_any_size():
    """Convolutions of images whose sizes are dynamic: of one element, narrower than a window and than a vector, with edges in every vector, longer than a block."""
    H, W = Dim("h", min=1, max=400), Dim("w", min=1, max=400)

    def over(groups, stride=1, padding=1, after=lambda y: y):
        return lambda m, x: after(F.conv2d(x, m.w, m.b, stride=stride, padding=padding, groups=groups))

    def behind(groups, stride=1, padding=1):
        # Channels lie side by side behind a product.
        return lambda m, x: F.conv2d(F.relu(F.conv2d(x, m.a)), m.w, m.b, stride=stride, padding=padding, groups=groups)

    def images(name, function, channels, weights, kind="f32", sizes=("1x1", "3x2", "1x37", "12x17"), batch=1, dims=(H, W), **state):
        w = {"w": f"{kind} {weights}", "b": f"{kind} {weights.split('x')[0]}", **state}
        return c(name, function, f"{kind} {batch}x{channels}x5x18", state=w, more=[[f"{kind} {batch}x{channels}x{s}"] for s in sizes], dynamic=({2: dims[0], 3: dims[1]},))

    def strided(*args, sizes=("3x4", "3x37", "22x17"), **rest):
        # torch asks that no result has one line.
        return images(*args, sizes=sizes, dims=(Dim("h", min=3, max=400), Dim("w", min=3, max=400)), **rest)

    a16, a20 = {"a": "f32 16x3x1x1"}, {"a": "f32 20x3x1x1"}
    return [
        images("groups", over(2), 16, "16x8x3x3", batch=2), strided("groups_strided", over(2, 2), 16, "16x8x3x3"), images("groups_of_four", over(4), 16, "16x4x3x3"), images("groups_behind", behind(2), 3, "16x8x3x3", **a16),
        images("groups_of_twelve", over(2, after=F.relu), 24, "16x12x3x3"), images("groups_f64", over(2), 16, "16x8x3x3", "f64"), images("groups_bf16", over(2), 16, "16x8x3x3", "bf16"),
        images("deep", over(20, after=F.relu), 20, "20x1x3x3", batch=2), strided("deep_strided", over(20, 2), 20, "20x1x3x3"), images("deep_seven", over(5, 1, 3), 5, "5x1x7x7"), strided("deep_seven_strided", over(5, 2, 3), 5, "5x1x7x7"),
        images("deep_behind", behind(20), 3, "20x1x3x3", **a20), images("deep_seven_behind", behind(20, 1, 3), 3, "20x1x7x7", sizes=("1x1", "3x2", "2x75"), **a20), strided("deep_strided_behind", behind(20, 2), 3, "20x1x3x3", **a20),
        strided("deep_f64", over(6, 2), 6, "6x1x3x3", "f64"), images("deep_bf16", over(6), 6, "6x1x3x3", "bf16"), images("deep_long", over(2), 2, "2x1x3x3", sizes=("1x300", "67x20", "3x140")),
        strided("stem", over(1, 2, 3), 3, "20x3x7x7"), images("single", over(1), 6, "20x6x3x3", batch=2), images("point", over(1, 1, 0), 18, "20x18x1x1", batch=2),
        c("batches", lambda m, x: F.conv2d(x, m.w, padding=1, groups=2), "f32 3x16x5x18", state={"w": "f32 16x8x3x3"}, more=[["f32 1x16x4x9"], ["f32 5x16x1x33"]], dynamic=({0: Dim("b", min=1, max=64), 2: H, 3: W},)),
        c("lines", lambda m, x: (F.conv1d(x, m.w, padding=1, groups=2), F.conv1d(x, m.v, padding=3, groups=16)), "f32 2x16x33", state={"w": "f32 16x8x3", "v": "f32 16x1x7"}, more=[["f32 2x16x1"], ["f32 2x16x5"], ["f32 2x16x150"]], dynamic=({2: W},)),
        c("pools", lambda x: (F.avg_pool2d(x, 3, 1, 1), F.max_pool2d(x, 3, 1, 1)), "f32 2x6x5x18", more=[["f32 2x6x1x1"], ["f32 2x6x2x37"], ["f32 2x6x21x16"]], dynamic=({2: H, 3: W},)),
    ]


def wide_products():
    """f64 and i32, in the blocks of f32."""
    big = torch.tensor([2**31 - 1, -2**31, 65537, 40000], dtype=torch.int32).repeat(16)
    return [
        c("mm_f64", torch.mm, "f64 65x70", "f64 70x67"), c("mm_i32", torch.mm, "i32 65x70", "i32 70x67"), c("bmm_i32", torch.bmm, "i32 3x9x20", "i32 3x20x33"), c("mm_i32_wraps", lambda x: torch.mm(x.reshape(8, 8), x.reshape(8, 8).t()), big), c("mm_f64_odd", torch.mm, "f64 7x13", "f64 13x5"),
        c("row_f64", torch.mm, "f64 1x64", "f64 64x48"), c("linear_f64", lambda m, x: F.gelu(F.linear(x, m.w, m.b)), "f64 17x33", state={"w": "f64 31x33", "b": "f64 31"}), c("conv_f64", lambda x, w, b: F.conv2d(x, w, b, padding=1), "f64 2x6x7x8", "f64 9x6x3x3", "f64 9"),
        c("sdpa_f64", F.scaled_dot_product_attention, "f64 2x3x20x16", "f64 2x3x24x16", "f64 2x3x24x16"), c("bmm_f64", torch.bmm, "f64 3x17x20", "f64 3x20x33"), c("mm_i64_long", torch.mm, "i64 20x30", "i64 30x20"), c("dynamic_f64", torch.mm, "f64 9x16", "f64 16x24", more=[["f64 1x16", "f64 16x24"], ["f64 50x16", "f64 16x24"]], dynamic=({0: B}, None)),
    ]


def columns():
    """Factorisations of batches, a step for each column."""
    L = torch.linalg
    def parts(x):
        # Three parts, the last one narrower; a pivot in the second one is not positive.
        a, d, z = x @ x.mT + 3 * torch.eye(40), x.double() @ x.double().mT + 3 * torch.eye(40), torch.complex(x, x.flip(0))
        low = L.cholesky(z @ z.mH + 3 * torch.eye(40))
        return L.cholesky(a), L.cholesky(d, upper=True)[:, -1], low[-1], low[:, 17], L.cholesky_ex(a - 9 * torch.diag((torch.arange(40) == 21).float()))[1]
    return [
        c("inv", lambda a: L.inv(a + 9 * torch.eye(20)), "f32 2x20x20"), c("solve", L.solve, "f32 3x33x33", "f32 3x33x2"), c("solve_transposed", lambda a, b: L.lu_solve(*L.lu_factor(a + 9 * torch.eye(20)), b, adjoint=True), "f32 2x20x20", "f32 2x20x3"), c("det", lambda a: (L.det(a / 4), *L.slogdet(a)), "f32 4x20x20"), c("lu_wide", lambda a: (*L.lu_factor(a), *L.lu(a)), "f32 2x10x14"),
        c("lu_tall", lambda a: L.lu_factor(a), "f64 2x14x10"), c("cholesky", lambda a: (L.cholesky(spd(a)), L.cholesky(spd(a), upper=True)), "f32 2x20x20"), c("cholesky_parts", parts, "f32 40x2"), c("qr", lambda a: L.qr(a), "f32 2x17x12"), c("qr_wide", lambda a: L.qr(a, mode="complete"), "f64 9x12"), c("values", lambda a: (L.eigvalsh(a), L.eigvalsh(a, UPLO="U"), L.eigvalsh(a * 1e-30), L.eigvalsh(a * 0), L.eigvalsh(a[:, :1, :1]), L.eigvalsh(a[:, :2, :2]), L.eigvalsh(a[:, :3, :3])), "f32 3x21x21"), c("values_f64", lambda a: (L.eigvalsh(a), L.eigvalsh(a[0] * 1e250), L.eigvalsh(a[1] @ a[1].mT), L.eigvalsh(torch.eye(5, dtype=a.dtype) + a[0, 0, 0] * 0)), "f64 2x33x33"), c("singular_values", lambda a: (L.svdvals(a), L.svdvals(a.mT), L.svdvals(a[:, :5]), L.svdvals(a[..., :1]), L.svdvals(a * 0), L.svdvals(a[:, :, :1] @ a[:, :1])), "f32 2x19x8"), c("singular_values_f64", L.svdvals, "f64 9x14"), c("inv_64", L.inv, "f64 64x64"),
    ]


def inverses():
    edges = torch.tensor([0.0, -0.0, 1.0, -1.0, 1.5, -2.0, 0.999999, -0.9999999, 1e-30, 1e-45, 0.5, NAN, 0.99, -0.996])
    return [c("erfinv_edges", torch.erfinv, edges), c("erfinv_line", torch.erfinv, torch.linspace(-0.9999, 0.9999, 501)), c("erfinv_bf16", torch.erfinv, "bf16 65 u"), c("erfinv_f64", torch.erfinv, "f64 65 u"), c("erfinv_i64", torch.erfinv, torch.tensor([-1, 0, 1, 2]))]


def polynomials():
    """Of degrees that differ from element to element, and of numbers: below zero, on both sides of closed forms and of what is unrolled."""
    special = torch.special
    inner, outer = torch.tensor([[0.0], [1.0], [-1.0], [0.5], [-0.3], [0.77], [-0.98]]), torch.tensor([[1.25], [-1.5], [2.0], [3e20], [NAN], [float("inf")]])
    low, high = torch.tensor([-2.0, -0.5, 0.9, 1.0, 2.0, 3.0, 6.0]), torch.tensor([7.0, 9.5, 17.0])

    def of_data(f):
        return lambda x, y, l, h, i: (f(x, l), f(x, h), f(y, l), f(y, h), f(x, i), f(x, l.double()), f(x.double(), h), f(0.3, i))

    def of_numbers(f):
        return lambda x: [f(x, d) for d in (-1, 0, 1, 2, 6, 7, 16, 17, 40)]
    cases = []
    for name in sorted(n for n in dir(special) if "polynomial" in n):
        f = getattr(special, name)
        short = name.replace("_polynomial", "").replace("shifted_chebyshev", "shifted")
        cases += [c(short, of_data(f), inner, outer, low, high, torch.arange(7) * 2), c(short + "_numbers", of_numbers(f), inner)]
    return cases + [c("many_steps", lambda x, n: (special.legendre_polynomial_p(x, n), special.laguerre_polynomial_l(x, n), special.hermite_polynomial_h(x, n * 9)), "f32 3x11 u", "i64 3x11 <50"), c("none", special.legendre_polynomial_p, "f32 0x3", "f32 3")]


def side_by_side():
    """Several results of one loop, some of them alternating in memory, in blocks with remainders."""
    stack = torch.stack
    return [
        c("complex", lambda z, w: (z * w, z + w, z.conj() * 2, z / w, z * 3), "c64 37", "c64 37"), c("complex_rows", lambda z, w: (z * w).sum(0), "c64 5x67", "c64 5x67"), c("complex_f64", lambda x, y: (torch.complex(x, y) * torch.complex(y, x), torch.complex(x, y).exp()), "f64 3x41", "f64 3x41"),
        c("to_complex", lambda x: (x.to(torch.complex64), x.to(torch.complex128), torch.complex(x, x + 1)), "f32 3x43"), c("turned", lambda z: (z.t().contiguous(), z.t() * 2, torch.view_as_real(z.t() + 1)), "c64 19x35"), c("parts", lambda z: (z.real + z.imag, z.abs(), z.real.t() * 2), "c64 17x40"),
        c("stacked", lambda x, y: (stack([x, y], -1), stack([x, y, x * y, x - y], -1), stack([x, y, y], -1), stack([x + 1, y] * 4, -1)), "f32 3x45", "f32 3x45"), c("half", lambda x: stack([x, x * 2], -1), "f16 77"), c("bools", lambda x: stack([x > 0, x < 1], -1), "f32 77"), c("every_other", lambda x: (x[::2] + x[1::2], x[::2] - x[1::2], x[::4] * 2, x[1::8]), "f32 144"), c("scalars", lambda z: z * z, "c64 1"),
    ]


def row_updates():
    """Rows that are added to computed places, the same ones again and again."""
    at = "i64 40 <6"
    return [
        c("index_add", lambda x, i, s: (x.index_add(0, i, s), x.index_add(0, i, s, alpha=2)), "f32 6x37", at, "f32 40x37"), c("index_add_columns", lambda x, i, s: x.index_add(1, i, s), "f32 9x6", at, "f32 9x40"), c("index_add_middle", lambda x, i, s: x.index_add(1, i, s), "f64 3x6x17", at, "f64 3x40x17"), c("index_add_bf16", lambda x, i, s: x.index_add(0, i, s), "bf16 6x16", at, "bf16 40x16"), c("index_add_i64", lambda x, i, s: x.index_add(0, i, s), "i64 6x19", at, "i64 40x19"),
        c("index_put", lambda x, i, v: (x.index_put((i,), v, accumulate=True), x.index_put((i, i), v[:, 0], accumulate=True)), "f32 6x33", at, "f32 40x33"), c("scatter", lambda x, i, s: (x.scatter_add(0, i, s), x.scatter_reduce(0, i, s, "amax"), x.scatter_reduce(0, i, s, "prod", include_self=False), x.scatter_add(1, i[:6, :6], s[:6, :6])), "f32 6x20", "i64 40x20 <6", "f32 40x20"), c("index_reduce", lambda x, i, s: (x.index_reduce(0, i, s, "amin"), x.index_reduce(0, i, s, "prod"), x.index_reduce(0, i, s, "mean")), "f32 6x21", at, "f32 40x21"),
        c("dynamic", lambda x, i, s: x.index_add(0, i, s), "f32 6x37", at, "f32 40x37", more=[["f32 6x9", "i64 3 <6", "f32 3x9"]], dynamic=({1: N}, {0: B}, {0: B, 1: N})),
    ]


def places_in_turn():
    """Elements that are added to computed places along the last dimension: some of one vector of lanes go to the same place, some to none."""
    few, i = "i64 3x45 <7", "i64 45 <7"
    def added(x, at, v):
        return x.scatter_add(1, at, v), x.scatter_add(1, at[:, :8], v[:, :8] * v[:, 8:16])
    def extremes(x, at, v):
        return x.scatter_reduce(1, at, v, "amax"), x.scatter_reduce(1, at, v, "amin", include_self=False)
    def image(g, x, grid):
        return tuple(torch.ops.aten.grid_sampler_2d_backward(g, x, grid * 1.4, mode, padding, False, [True, True]) for mode, padding in ((0, 0), (0, 2), (1, 1), (2, 0)))
    return [
        *[c(f"added_{t}", added, f"{t} 3x7", few, f"{t} 3x45") for t in ("f32", "f64", "bf16", "f16", "i64", "i32", "u8")],
        *[c(f"extremes_{t}", extremes, f"{t} 3x7", few, f"{t} 3x45") for t in ("f32", "i64", "i32", "u8")],
        c("put", lambda x, i, j, v: x.index_put((i, j), v, accumulate=True), "f32 7x7", i, i, "f32 45"), c("counted", lambda i, w: (torch.bincount(i, minlength=7), torch.bincount(i, w, minlength=9)), i, "f32 45"), c("histogram", lambda x: torch.histc(x, 9, -1, 1), "f32 301"),
        c("image", image, "f32 2x3x5x19", "f32 2x3x6x7", "f32 2x5x19x2 u"), c("looked_up", lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 7, 2, False), "f32 45x3", i),
        c("dynamic", lambda x, at, v: x.scatter_add(1, at, v), "f32 3x7", few, "f32 3x45", more=[["f32 5x7", "i64 5x17 <7", "f32 5x17"], ["f32 2x7", "i64 2x130 <7", "f32 2x130"]], dynamic=({0: B}, {0: B, 1: N}, {0: B, 1: N})),
    ]


def folded():
    """Windows added up where strides pass over taps: stride and dilation with and without a common factor, windows that the stride divides and others."""
    def ways(x):
        return [F.fold(x[:, :, :n], size, kernel, dilation, padding, stride) for n, size, kernel, dilation, padding, stride in (
            (9, (11, 12), (4, 4), 1, 1, 4), (12, (13, 11), (4, 4), (2, 1), 2, (3, 4)), (4, (12, 15), (4, 4), (3, 2), 0, (2, 6)), (6, (17, 10), (4, 4), (2, 1), 0, (4, 5)), (8, (12, 11), (4, 4), (1, 2), 1, (6, 2)), (6, (6, 5), (4, 4), 1, 0, 1))]
    return [c("ways", ways, "f32 2x32x12"), c("half", ways, "bf16 2x32x12"), c("image", lambda x: F.fold(x, (9, 14), (3, 6), stride=(2, 4)), "f32 36x12"),
            c("dynamic", lambda x: F.fold(x, (11, 12), 4, 1, 1, 4), "f32 2x32x9", more=[["f32 3x32x9"]], dynamic=({0: B},))]


def both_ways():
    """Reductions whose operands are contiguous along the results as well as along the sum."""
    pool1, pool2, average = F.max_pool1d, F.max_pool2d, F.avg_pool1d
    return [
        c("windows", lambda x: (pool1(x, 31, 1, 15), pool1(x, 17), pool1(x, 70, 1, 35), average(x, 31, 1), average(x, 16, 1, 8)), "f32 2x3x133"), c("windows_special", lambda x: (pool1(torch.where(x > 1.5, NAN, x), 31, 1, 15), pool1(torch.where(x > 0, -float("inf"), x), 21, 1)), "f32 2x91"), c("windows_2d", lambda x: (pool2(x, 13, 1, 6), F.avg_pool2d(x, (3, 19), 1)), "f32 1x3x21x37"),
        c("mm_i64", torch.mm, "i64 33x41", "i64 41x37"), c("bmm_i64", torch.bmm, "i64 3x5x70", "i64 3x70x18"), c("mm_u8", lambda x, y: torch.mm(x, y), "u8 9x30", "u8 30x40"), c("mm_i64_dynamic", torch.mm, "i64 9x41", "i64 41x37", more=[["i64 1x41", "i64 41x37"]], dynamic=({0: B}, None)), c("sliding", lambda x, w: (x.unfold(-1, 40, 1) * w).sum(-1), "f32 3x140", "f32 40"),
        *[c(f"cdist_{n}", lambda x, y, p=p: torch.cdist(x, y, p=p), "f32 17x5", "f32 21x5") for n, p in (("2", 2.0), ("1", 1.0), ("3", 3.0), ("most", float("inf")), ("0", 0.0))], c("cdist_batch", torch.cdist, "f64 2x19x7", "f64 1x16x7"), c("cdist_same", lambda x: torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist"), "f32 40x3"), c("cdist_long", torch.cdist, "f32 18x130", "f32 50x130"), c("cdist_few", torch.cdist, "f32 3x4", "f32 2x4"),
    ]


def any_length():
    """Rows and columns without a bound on their length, below and above the blocks that the example's make."""
    inf, dynamic = float("inf"), ({0: Dim.AUTO, 1: Dim.AUTO},)
    short = lambda x: (x.softmax(-1), F.layer_norm(x, x.shape[-1:]), x.sum(-1), x.amax(-1), x.argmin(-1), (x > 1).any(-1), x.logsumexp(-1), x.cumsum(-1), x.flip(-1).cumsum(-1) + x.mean(-1, keepdim=True))  # noqa: E731

    def of(*shapes, t="f32"):
        return [[f"{t} {s}"] for s in shapes]
    return [
        c("places", lambda x: (x.argmax(-1), x.argmin(-1), x.argmax(), torch.where(x > 1.5, NAN, x).argmax(-1), torch.where(x > 0, inf, -inf).argmax(-1), (x * 0 - inf).argmax(-1)), "f32 4x37", more=of("3x5", "2x130", "9x16"), dynamic=dynamic),
        c("places_bf16", lambda x: (x.argmax(-1), x.argmin(-1)), "bf16 4x37", more=of("2x4100", t="bf16"), dynamic=dynamic), c("places_i64", lambda x: (x.argmax(-1), x.argmin(-1), x.argmax(0)), "i64 4x37", more=of("3x5", "2x130", t="i64"), dynamic=dynamic), c("places_f64", lambda x: (x.argmax(-1), x.reshape(-1, 1, x.shape[1]).argmin(0)), "f64 4x37", more=of("3x5", "2x130", t="f64"), dynamic=dynamic),
        c("running", lambda x: (x.cumsum(-1), x.cumprod(-1), x.flip(-1).cumsum(-1), x.cummax(-1)[0], x.logcumsumexp(-1)), "f32 4x37", more=of("3x5", "2x130", "3x64", "2x16"), dynamic=dynamic), c("running_i64", lambda x: (x.cumsum(-1), x.cumprod(-1), x.cummin(-1)[0]), "i64 4x37 <4", more=[["i64 3x5 <4"], ["i64 2x130 <4"]], dynamic=dynamic),
        c("short_rows", short, "f32 2x7", more=of("2x65", "3x16", "2x17", "2x33", "3x63", "2x64"), dynamic=dynamic), c("short_rows_bf16", short, "bf16 2x7", more=of("2x65", "2x20", "2x64", t="bf16"), dynamic=dynamic), c("short_rows_f64", short, "f64 2x7", more=of("2x65", "2x20", "2x64", t="f64"), dynamic=dynamic), c("short_rows_i64", lambda x: (x.sum(-1), x.amax(-1), x.argmax(-1), x.cumsum(-1), x.prod(-1)), "i64 2x7 <4", more=[["i64 2x65 <4"], ["i64 2x20 <4"], ["i64 2x64 <4"]], dynamic=dynamic),
        c("short_planes", lambda x: (x.sum((-1, -2)), x.amax((1, 2)), x.var((1, 2)), x - x.mean((1, 2), keepdim=True)), "f32 2x3x7", more=of("2x5x40", "2x3x64", "3x2x65"), dynamic=({0: Dim.AUTO, 1: Dim.AUTO, 2: Dim.AUTO},)),
        c("columns", lambda x: (x.amax(0), x.amin(0), x.relu().sum(0), x.prod(0), (x > 1).any(0), torch.where(x > 1.5, NAN, x).amax(0), x.softmax(0).amax(0)), "f32 4x37", more=of("3x5", "130x2", "2x130", "17x16", "17x40"), dynamic=dynamic), c("columns_i64", lambda x: (x.amax(0), x.sum(0)), "i64 4x37", more=of("3x5", "130x2", "2x130", t="i64"), dynamic=dynamic),
    ]


def mirrored():
    """Rows whose elements lie side by side but for a few, at places that are computed."""
    moved = lambda x: (x.roll(3, -1), x.roll((1, -5), (0, 1)), x.repeat(2, 2), x[:, torch.arange(x.shape[1]) // 2])  # noqa: E731
    padded = lambda x: [F.pad(x, (4, 17), mode=m) for m in ("reflect", "replicate", "circular")]  # noqa: E731
    return [
        *[c(t, moved, f"{t} 3x70") for t in ("f32", "bf16", "bool")], c("padded", padded, "f64 1x2x70"), c("padded_2d", lambda x: F.pad(x, (3, 3, 2, 1), mode="reflect"), "f32 1x1x5x40"),
        c("roll_dynamic", lambda x: x.roll(3, -1), "f32 3x70", more=[["f32 2x5"], ["f32 2x130"]], dynamic=({0: Dim.AUTO, 1: Dim.AUTO},)), c("diagonals", lambda x: (torch.diag_embed(x), torch.diag_embed(x > 0, 1)), "f32 2x16"),
    ]


def of_joins():
    """Work on each element of a join, before something reads the whole; some of the parts are joined twice."""
    def norm(x, m, v, w, b):
        return F.relu(F.batch_norm(x, m, v, w, b, False))

    def grown(x, w, v, m, p):
        parts = [F.conv2d(x, w, padding=1)]
        for _ in range(5):
            parts.append(F.conv2d(norm(torch.cat(parts, 1), m[:3 * len(parts)], p[:3 * len(parts)], None, None), v[:, :3 * len(parts)], padding=1))
        return norm(torch.cat(parts, 1), m, p, m, p).mean((2, 3))

    parts = ["f32 2x%dx5x4" % n for n in (3, 1, 4, 2, 3, 5)]
    channels = ["f32 18", "f32 18 >0", "f32 18", "f32 18"]
    return [
        c("grown", grown, "f32 2x3x5x4", "f32 3x3x3x3", "f32 3x18x3x3", "f32 18", "f32 18 >0"),
        c("many", lambda m, v, w, b, k, *xs: F.conv2d(norm(torch.cat(xs, 1), m, v, w, b), k), *channels, "f32 4x18x1x1", *parts),
        c("few", lambda s, k, *xs: F.conv2d(torch.tanh(torch.cat(xs, 1) * s) + 1, k), "f32 8x1x1", "f32 4x8x2x2", *parts[:3]),
        c("reduced", lambda *xs: (torch.sigmoid(torch.cat(xs, 1)).sum(1), torch.softmax(torch.cat(xs, 1) * 2, 1)), *parts),
        c("with_whole", lambda y, *xs: (torch.cat(xs, 1) * y + 1).relu().flip(1), "f32 2x18x5x1", *parts),
        c("with_itself", lambda *xs: (lambda j: (j * j.sigmoid()).sum((2, 3)))(torch.cat(xs, 1)), *parts),
        c("of_both", lambda *xs: torch.cat(xs, 1).relu() - torch.cat(xs[::-1], 1), *parts),
        c("spread", lambda y, *xs: (torch.cat(xs, 1) + y).amax(1), "f32 3x1x18x1x4", *parts),
        c("promoted", lambda x, y, z: torch.cat([x, y, z, x, y, z], 0).relu().cumsum(0), "bf16 3x4", "f32 2x4", "f16 1x4"),
        c("narrow", lambda s, *xs: (torch.cat(xs, -1) * s).relu().flip(1), "bf16 15", *["bf16 3x%d" % n for n in (4, 1, 5, 2, 3)]),
        c("empty", lambda *xs: torch.cat(xs, 0).exp().flip(0), *["f32 %dx3" % n for n in (2, 0, 1, 3, 0)]),
        c("dynamic", lambda s, *xs: (torch.cat(xs, 1) * s).relu().sum(1), "f32 15x3", *["f32 2x%dx3" % n for n in (4, 1, 5, 2, 3)],
          more=[["f32 15x3", *["f32 5x%dx3" % n for n in (4, 1, 5, 2, 3)]]], dynamic=(None, {0: B}, {0: B}, {0: B}, {0: B}, {0: B})),
    ]


def short_products():
    """One step of k, or few columns: blocks that are not half empty, and parameters of 16 bits behind them."""
    def normed(x, w, m, v, s, b, y):
        return F.relu(F.batch_norm(F.conv2d(x, w), m, v, s, b, False) + y)

    channels = ["bf16 64", "bf16 64 >0", "bf16 64", "bf16 64"]
    return [
        c("linear", F.linear, "bf16 70x64", "bf16 72x64", "bf16 72"), c("linear_f16", F.linear, "f16 65x32", "f16 64x32", "f16 64"), c("transposed", lambda x, w: x.t() @ w, "bf16 64x72", "bf16 64x64"),
        c("odd_depth", F.linear, "bf16 70x40", "bf16 64x40", "bf16 64"), c("scaled", lambda x, w, s: F.linear(x * s, w).relu(), "bf16 66x64", "bf16 64x64", "bf16 64"),
        c("points", normed, "bf16 1x64x9x8", "bf16 64x64x1x1", *channels, "bf16 1x64x9x8"), c("columns", lambda x, w, b: F.conv2d(x, w, b, padding=1), "bf16 1x16x9x9", "bf16 64x16x3x3", "bf16 64"),
        c("norm", lambda x, w, b: F.layer_norm(x, (136,), w, b), "bf16 9x136", "bf16 136", "bf16 136"), c("batch", lambda x, w: x @ w, "bf16 2x64x64", "bf16 2x64x64"),
    ]


def groups():
    return {f.__name__: f() for f in (any_length, lengths_of_rows, products_of_any_size, mirrored, bags, long_sorts, selections, searches, transforms, phases, sliding_windows, padded_chunks, windows_of_any_size, wide_products, columns, inverses, polynomials, side_by_side, row_updates, places_in_turn, folded, both_ways, of_joins, short_products)}
