"""Single-operator cases at the edges: complex views and their signs, sizes of zero and one, rank 0, numbers outside of a dtype, branches."""
import math

import torch

from golden_ops import SPECIAL, B, N, c

F = torch.nn.functional
INF, NAN = float("inf"), float("nan")
Z = "c64 3x5"


def written_through_conj(z):
    z = z * 1
    y = z.conj()
    y.add_(1 + 2j)
    return z, y.resolve_conj()


def written_through_parts(z):
    z = z * 1
    z.real.mul_(2)
    z.imag.add_(z.real)
    z[1:].real.zero_()
    return z


def written_through_parts_of_conj(z):
    z = z * 1
    z.conj().imag.sub_(3)
    z.mH.imag.add_(1)
    return z


def resolved_is_a_copy(z):
    z = z * 1
    y = z.conj().resolve_conj()
    y.add_(1)
    w = z.resolve_conj()
    w.mul_(2)
    return z, y, w


def complex_views():
    fft = torch.fft
    signal = ("f32 3x8",)
    return [
        c("conj_times_self", lambda z: z.conj() * z, Z), c("conj_imag", lambda z: (z.conj().imag, z.conj().real, z.imag), Z),
        c("conj_joined", lambda z, y: torch.cat([z, y.conj()]), Z, Z), c("conj_product", lambda z, y: z.conj() @ y.mT, Z, Z),
        c("transposes", lambda z: (z.mT + 0, z.mH + 0, z.mH.mH + 0, z.adjoint() * 2, z.H.resolve_conj()), Z), c("one_by_one", lambda z: (z.mH * 1, z.mT * 1, z.conj() * 1), "c64 1x1"),
        c("conj_twice", lambda z: z.conj().conj() + z.conj(), Z), c("conj_view", lambda z: z.conj()[1:].reshape(-1) * 1j, Z), c("conj_physical", lambda z: torch.conj_physical(z), Z),
        c("as_real", lambda z: torch.view_as_real(z.conj().resolve_conj()), Z), c("neg_view", lambda z: torch.ops.aten._neg_view(z.imag) * 2, Z),
        c("absolute_square", lambda z: (z * z.conj()).real.sum(), Z), c("real_tensor", lambda x: (x.conj() + 1, x.real * 2), "f32 3x5"),
        c("scaled_by_conj", lambda z: torch.vdot(z[0], z[1]), Z), c("angle", lambda z: (z.conj().angle(), z.conj().abs()), Z),
        c("ifft", fft.ifft, *signal), c("ihfft", fft.ihfft, *signal), c("hfft", fft.hfft, Z), c("hfft_of_real", fft.hfft, *signal), c("ihfftn", fft.ihfftn, *signal), c("hfft2", fft.hfft2, *signal),
        c("irfft_of_rfft", lambda x: fft.irfft(fft.rfft(x) * fft.rfft(x).conj()), *signal), c("ifft2", fft.ifft2, *signal),
        c("written_through_conj", written_through_conj, Z), c("written_through_parts", written_through_parts, Z, raw_only="view_as_real of a conjugate"),
        c("written_through_parts_of_conj", written_through_parts_of_conj, Z, raw_only="view_as_real of a conjugate"),
        c("resolved_is_a_copy", resolved_is_a_copy, Z),
    ]


def made_inside(x):
    t = torch.tensor([1.0, 2.0, 3.0])
    t.zero_()
    t += x
    s = torch.tensor(5.0)
    s.mul_(2)
    return t * s


def numbers():
    """Numbers that an integer dtype does not hold wrap around, but for the bounds of clamp, which saturate."""
    ints = ["u8 3x7 <256", "i8 3x7", "i16 3x7", "i32 3x7"]
    result = []
    for spec in ints:
        d = spec.split()[0]
        low, high = (0, 300) if d == "u8" else (-300, 300) if d == "i8" else (-70000, 40000) if d == "i16" else (-2**40, 2**40)
        result += [
            c(f"clamp_{d}", lambda x, l=low, h=high: (x.clamp(l, h), x.clamp(max=h), x.clamp(min=l if l else -1), x.clamp(max=3)), spec),
            c(f"hardtanh_{d}", lambda x, h=high: F.hardtanh(x, 0, h), spec),
            c(f"arithmetic_{d}", lambda x, h=high: (x + h, x - h, h - x, x * (h + 1), torch.add(x, x, alpha=3)), spec),
            c(f"compared_{d}", lambda x, h=high: (x == h, x < h, x > h, x >= -h, x != h + 5), spec),
        ]
    return result + [
        c("clamp_i64", lambda x: (x.clamp(-2**62, 2**62), x.clamp(max=4)), "i64 9"), c("clamp_bool", lambda x: (x.clamp(0, 300), x.clamp(min=-1)), "bool 9"),
        c("clamp_of_size", lambda x: x.clamp(max=x.shape[0] * 100), "u8 4x3 <256", more=[["u8 1x3 <256"], ["u8 2x3 <256"]], dynamic=({0: N},)),
        c("clamp_by_tensor", lambda x: (torch.clamp(x, max=torch.tensor(300)), torch.clamp(x, max=torch.tensor([300, 5, 7]))), "u8 4x3 <256"),
        c("clamp_float_bound", lambda x: (x.clamp(0, 1.5), x.clamp(max=2.5)), "u8 9 <256"),
        c("bits_u8", lambda x: (x & 300, x | -1, x ^ 511, x % 7, x // 3), "u8 9 <256"),
        c("minus_one_u8", lambda x: (torch.full_like(x, -1), x.masked_fill(x > 3, -1), torch.where(x > 3, x, -1)), "u8 9 <9"),
        c("searched_u8", lambda x: [search(v, x.sort().values) for v in (-1, 3, 255, 300) for search in (torch.ops.aten.bucketize.Scalar, lambda v, b: torch.searchsorted(b, v))], "u8 9 <256"),
        c("searched_i32", lambda x: (torch.searchsorted(x.sort().values, 1.5), torch.searchsorted(x.sort().values, 2**32)), "i32 9 <9"),
        c("einsum_i32", lambda x, y: (torch.einsum("ij->", x * 2**30), torch.einsum("...ik,...j->ij", x * 2**30, y), torch.einsum("ij,jk->ik", x, x.t()), torch.einsum("ij->ji", x)), "i32 3x4", "i32 5"),
        c("made_inside", made_inside, "f32 3"), c("scalar_tensor_promotes", lambda x: (x.amax() + torch.scalar_tensor(1.5, dtype=torch.float64), torch.where(x.amax() > 0, torch.scalar_tensor(0.0, dtype=torch.float64), x.amax())), "f32 3"),
        c("pool_special", lambda x: F.max_pool1d(x[None], 3, 1, return_indices=True), SPECIAL),
        c("pool_nan_twice", lambda x: F.max_pool2d(torch.where(x > 0.5, NAN, x), 3, 2, 1, return_indices=True), "f32 1x2x9x9"),
        c("pool_infinite", lambda x: F.max_pool2d(torch.where(x > -0.5, -INF, x), 3, 2, 1, return_indices=True), "f32 1x2x9x9"),
        c("pool_lowest", lambda x: F.max_pool2d(torch.where(x > 0, -128, x).to(torch.int8), 2, 2, 1, return_indices=True), "i64 1x2x7x7"),
        c("adaptive_pool_nan", lambda x: F.adaptive_max_pool2d(torch.where(x > 1, NAN, torch.where(x < 0, -INF, x)), (3, 2), return_indices=True), "f32 1x2x8x7"),
    ]


def integer_limits():
    """Limits of integers that are written as floats."""
    return [c("hardtanh_" + spec[:3].strip(), lambda x: (F.hardtanh(x, -1.0, 1.0), F.hardtanh(x, -2.75, 3.75), F.hardtanh(x)), spec) for spec in ("i64 9", "i32 3x7", "i8 3x7")]


def empty():
    """Sizes of zero: nothing to compute, or sums of nothing."""
    return [
        c("softmax", lambda x: (x.softmax(0), x.log_softmax(0), x.softmax(1)), "f32 0x5"), c("softmax_and_sum", lambda x: (x.softmax(1) * 2, x.sum(1), (x + 1).amax(0)), "f32 5x0x3"),
        c("softmax_dynamic", lambda x: (x.softmax(0), x.sum(0)), "f32 4x5", more=[["f32 0x5"], ["f32 1x5"]], dynamic=({0: B},)),
        c("linear_to_nothing", lambda m, x: F.linear(x, m.w, m.b), "f32 3x4", state={"w": "f32 0x4", "b": "f32 0"}), c("linear_of_nothing", lambda m, x: F.linear(x, m.w, m.b), "f32 3x0", state={"w": "f32 4x0", "b": "f32 4"}),
        c("linear_no_rows", lambda m, x: F.linear(x, m.w, m.b).relu(), "f32 0x4", state={"w": "f32 6x4", "b": "f32 6"}), c("linear_nothing_relu", lambda m, x: F.relu(F.linear(x, m.w)) + 1, "f32 3x0", state={"w": "f32 4x0"}),
        c("products", lambda x, y: (x @ y, y @ x), "f32 3x0", "f32 0x3"), c("inner", lambda x, y: (torch.inner(x, x), torch.inner(y, y)), "f32 2x0x0", "f32 2x0x3"),
        c("norm_of_no_channels", lambda x: (F.batch_norm(x, x * 2, x + 1), F.batch_norm(x, x * 2, x + 1, training=True)), "f32 0"),
        c("addmm_of_nothing", lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), "f32 4", "f32 3x0", "f32 0x4"), c("bmm_of_nothing", lambda x, y: (torch.bmm(x, y), torch.baddbmm(torch.ones(4), x, y)), "f32 2x3x0", "f32 2x0x4"),
        c("no_batch", torch.bmm, "f32 0x3x5", "f32 0x5x4"), c("dot_of_nothing", torch.dot, "f32 0", "f32 0"), c("mv_of_nothing", lambda x, v: torch.mv(x, v), "f32 3x0", "f32 0"), c("outer_of_nothing", torch.outer, "f32 0", "f32 3"),
        c("mm_i64_of_nothing", torch.mm, "i64 3x0", "i64 0x4"), c("mm_bf16_of_nothing", lambda x, y: torch.mm(x, y) + 1, "bf16 3x0", "bf16 0x4"), c("einsum_of_nothing", lambda x, y: torch.einsum("bik,bkj->bij", x, y), "f32 2x3x0", "f32 2x0x4"),
        c("attention_no_keys", lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v, "f32 2x4x9x8", "f32 2x4x0x8", "f32 2x4x0x8"), c("attention_no_queries", lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v, "f32 2x4x0x8", "f32 2x4x5x8", "f32 2x4x5x8"),
        c("attention_dynamic", lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v, "f32 2x4x9x8", "f32 2x4x7x8", "f32 2x4x7x8", more=[["f32 2x4x9x8", "f32 2x4x0x8", "f32 2x4x0x8"]], dynamic=(None, {2: B}, {2: B})),
        c("sdpa_no_keys", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), "f32 2x4x9x8", "f32 2x4x0x8", "f32 2x4x0x8"), c("sdpa_no_batch", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), "f32 0x4x9x8", "f32 0x4x5x8", "f32 0x4x5x8"),
        c("reductions", lambda x: (x.sum(0), x.prod(0), x.mean(0), x.any(0), x.all(0), x.logsumexp(0), x.norm(dim=0), x.var(0)), "f32 0x3"), c("reductions_of_others", lambda x: (x.sum(1), x.amax(1), x.argmax(1), x.var(1), x.softmax(1)), "f32 0x3"),
        c("scans", lambda x: (x.cumsum(0), x.cumprod(1), x.cummax(0)[0], x.logcumsumexp(0)), "f32 0x3"), c("sorts", lambda x: (torch.sort(x, 0), torch.sort(x, 1), torch.topk(x, 0, 0)[0]), "f32 0x3"),
        c("indices", lambda x, i: (x[i], x.gather(0, i[:, None]), x.index_select(0, i), F.embedding(i, x), x.index_add(0, i, x[i])), "f32 4x3", "i64 0 <4"), c("taken_from_columns", lambda x: (x[:, :0].sum(1), torch.cat([x[:0], x]), x[2:2] * 2), "f32 4x3"),
        c("convolution", lambda x, w: F.conv2d(x, w), "f32 0x3x5x5", "f32 2x3x3x3"), c("pools", lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 2)), "f32 0x3x6x6"), c("norms", lambda x: (F.layer_norm(x, (5,)), F.batch_norm(x, torch.zeros(5), torch.ones(5))), "f32 0x5"),
        c("branch", lambda x: torch.cond(x.sum() < 1, lambda p, q: p * q, lambda p, q: p.cos() * 2, (x, x)), "bf16 3x0x5"), c("all_of_nothing", lambda x: (x.sum(), x.prod(), x.mean(), x.all(), x.any(), x.norm()), "f32 3x0"),
        c("pad_from_nothing", lambda x: F.pad(x, (1, 2), value=3.0), "f32 2x0"),
    ]


def behind_the_end():
    """What begins where a tensor ends, and what is said of it."""
    aten = torch.ops.aten
    return [
        c("sums", lambda x: (x[1:].sum(0), x[1:].amax((0,), True) if x.shape[0] > 1 else x[1:] * 2, x[:, 3:].prod(1)), "f32 1x3"),
        c("truths", lambda x: (aten._is_all_true(x > -9), aten._is_any_true(x > 9), aten._is_all_true(x[7:] > 0)), "f32 7"),
    ]


def from_the_end():
    """Positions below zero, where an operator takes them, and beyond the size, of which take_along_dim alone takes the remainder."""
    return [
        c("along", lambda x, z: (torch.take_along_dim(x, torch.tensor([[-1, 0, -5, 4, 9]]), 1), torch.take_along_dim(z, torch.tensor([[-2]]), -1), torch.take_along_dim(x, torch.tensor([11, 0]))), "f32 3x4", "c64 3x4"),
        c("taken", lambda x, i: (x.take(i - 6), x.put(i - 12, x[0, 0].expand(4)), x.index_fill(1, i[:2] - 4, 7.0), x[i - 3], x.index_put((i - 3,), x[1]), x.select(1, -2)), "f32 3x4", torch.tensor([0, 2, 1, 2])),
        c("padding", lambda w, i, o: (F.embedding_bag(i, w, o, mode="sum", padding_idx=-1), F.embedding_bag(i, w, o, mode="mean", padding_idx=-2), F.embedding_bag(i, w, o, mode="max", padding_idx=-5),
                                      F.embedding_bag(i.view(3, 3), w, padding_idx=-1), F.embedding(i, w, padding_idx=-1)), "f32 5x3", torch.tensor([4, 0, 4, 3, 1, 4, 4, 2, 3]), torch.tensor([0, 2, 2, 5])),
    ]


def one_place():
    """Elements that differ and are all stored in one place, of which the last stays, and elements of which none is stored."""
    def filled(x, at):
        zeros = torch.zeros(5, dtype=x.dtype)
        return zeros.scatter(0, at, x), zeros.index_put((at,), x), zeros.index_copy(0, at, x), zeros.put(at, x)
    return [
        c("constant", lambda x: filled(x, torch.zeros(8, dtype=torch.long)), "f32 8"), c("from_data", lambda x, k: filled(x, k.expand(8)), "f32 8", "i64 1 <5"),
        c("of_rows", lambda x: (torch.zeros(3, 4).index_put((torch.ones(6, dtype=torch.long),), x), torch.zeros(3).index_put((torch.ones(6, 4, dtype=torch.long),), x)), "f32 6x4"),
        c("none", lambda x: (x[torch.zeros(8, dtype=torch.bool)], torch.zeros_like(x).nonzero(), torch.zeros_like(x).argwhere()[..., 1:]), "f32 8"),
        c("number", lambda x: (torch.where(x.sum() > 99)[0], torch.where(x.sum() < 99)[0]), "f32 8"),
        c("alike", lambda x: F.cosine_similarity(x, -x, 0), "f16 0x3"), c("alike_dynamic", lambda x: F.cosine_similarity(x, -x, 0), "f16 3x5", more=[["f16 0x5"]], dynamic=({0: torch.export.Dim("n", min=0, max=64)},)),
        c("spread", lambda x, y: (lambda z: (z.copy_(y), z.double().sum(-1), z - z, y + (z - z))[1:])(x.clone()), "f32 4x3x5", "f32 1"),
    ]


def ones():
    """Sizes of one, over which a reduction has one element: it is that element in one kernel with anything else."""
    return [
        c("softmax_twice", lambda x: (x.softmax(1).sum(), x.softmax(1)), "f32 33x1"), c("layer_norm_sum", lambda x: F.layer_norm(x, [1]).sum(), "f32 33x1"), c("cross_entropy_one_class", lambda x, y: F.cross_entropy(x, y), "f32 33x1", "i64 33 <1"),
        c("positions", lambda x: (lambda p: (p, x.argmax(0), p))(x.argmax()), "f32 1x33x13"), c("kl_div", lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), "f32 9x1", "f32 9x1"),
        c("var_mean", lambda x: (torch.var_mean(x, 1, correction=0), x.sum()), "f32 9x1"), c("norm_then_sum", lambda x: (x.norm(dim=1) + x.sum(1)).sum(), "f32 9x1"), c("max_and_position", lambda x: (lambda v, i: (v.sum(), i.sum(), v * 2))(*x.max(1)), "f32 9x1"),
        c("logsumexp", lambda x: (x.logsumexp(1).sum(), x.logsumexp((0, 1))), "f32 9x1"), c("softmax_of_one", lambda x: (x.softmax(0), x.softmax(1).sum(0)), "f32 1x1"), c("group_norm", lambda x: F.group_norm(x, 5).sum((1, 2, 3)), "f32 3x5x1x1"),
        c("softmax_dynamic", lambda x: (x.softmax(1).sum(), x.softmax(1)), "f32 7x3", more=[["f32 7x1"], ["f32 1x1"]], dynamic=({0: N, 1: B},)),
    ]


def updates():
    """Sums into places that the data decides, right behind what computes them."""
    def back(x):
        w = torch.hann_window(16)
        return torch.istft(torch.stft(x, 16, 4, window=w, return_complex=True), 16, 4, window=w)
    return [
        c("stft_back", back, "f32 2x100"), c("product_scattered", lambda x, w, i: torch.zeros(5, 8).index_add(0, i, x @ w), "f32 9x4", "f32 4x8", "i64 9 <5"),
        c("linear_scattered", lambda m, x, i: torch.zeros(3, 6).scatter_add(0, i[:, None].expand(7, 6), F.linear(x, m.w, m.b).relu()), "f32 7x4", "i64 7 <3", state={"w": "f32 6x4", "b": "f32 6"}),
        c("softmax_scattered", lambda x, i: torch.zeros(5, 8).index_add(0, i, x.softmax(-1)), "f32 9x8", "i64 9 <5"), c("put", lambda x, y, i, j: torch.zeros(4, 6).index_put((i, j), x @ y, accumulate=True), "f32 5x3", "f32 3x7", "i64 5x1 <4", "i64 1x7 <6"),
        c("scan_scattered", lambda x, i: torch.zeros(5, 8).index_add(0, i, x.cumsum(-1)), "f32 9x8", "i64 9 <5"),
    ]


def rank_zero():
    """What takes a dimension also takes a tensor that has none, as if it had one of size one."""
    zero = torch.tensor(0)
    return [
        c("gather", lambda x: (x.gather(0, zero), x.gather(-1, zero) * 2), "f32 -"), c("gather_from_one", lambda x: x.gather(0, torch.tensor([0])), "f32 1"), c("index_select", lambda x: x.index_select(0, torch.tensor([0])), "f32 -"),
        c("gather_nothing", lambda x, y: (x.gather(0, torch.zeros(3, 0, dtype=torch.int64)), y.gather(-2, torch.zeros(2, 0, 2, 0, dtype=torch.int64)), y.gather(1, torch.zeros(0, dtype=torch.int64))), "f32 5", "f32 2x3x4"),
        c("scatter", lambda x: (x.scatter(0, zero, torch.tensor(7.0)), x.scatter(0, zero, 3.0), x.scatter_add(0, zero, torch.tensor(2.0))), "f32 -"), c("scatter_reduce", lambda x: x.scatter_reduce(0, zero, torch.tensor(2.0), "amax"), "f32 -"),
        c("index_fill", lambda x: (x.index_fill(0, torch.tensor([0]), 3.0), x.index_add(0, torch.tensor([0]), torch.tensor(2.0)), x.index_copy(0, torch.tensor([0]), torch.tensor(5.0))), "f32 -"), c("take_put", lambda x: (torch.take(x, torch.tensor([0, 0])), x.put(zero, torch.tensor(4.0))), "f32 -"),
        c("scans", lambda x: (x.cumsum(0), x.cumprod(-1), torch.cummax(x, 0), torch.cummin(x, 0), x.logcumsumexp(0)), "f32 -"), c("sorts", lambda x: (torch.sort(x, 0), torch.argsort(x, 0), torch.topk(x, 1, 0), torch.kthvalue(x, 1, 0), x.median(0), torch.mode(x, 0), torch.msort(x)), "f32 -"),
        c("reductions", lambda x: (x.sum(0), x.mean(0), x.amax(0), x.argmax(0), x.var(0, correction=0), x.any(0), x.norm(dim=0), x.logsumexp(0), x.prod(0), torch.aminmax(x, dim=0)), "f32 -"), c("softmaxes", lambda x: (x.softmax(0), x.log_softmax(-1), F.softmin(x, 0)), "f32 -"),
        c("views", lambda x: (x.flatten() * 1, x.unsqueeze(0) * 1, x.squeeze(0) * 1, x.flip(0) * 1, x.transpose(0, 0) * 1, x.expand(3) * 1, x.t() * 1, x.ravel() * 1, x.reshape(1, 1) * 1), "f32 -"),
        c("joins", lambda x: (torch.stack([x, x]), torch.hstack([x, x]), torch.atleast_2d(x) * 1, x.repeat(3), torch.tile(x, (2,)), torch.diag_embed(x.reshape(1))), "f32 -"), c("products", lambda x: (torch.outer(x.reshape(1), x.reshape(1)), x * x.reshape(1), torch.dot(x.reshape(1), x.reshape(1))), "f32 -"),
        c("embedding", lambda w: F.embedding(torch.tensor(2), w), "f32 4x3"), c("one_hot", lambda i: F.one_hot(i, 5), "i64 - <5"), c("searchsorted", lambda b, x: (torch.searchsorted(b.sort()[0], x), torch.bucketize(x, b.sort()[0])), "f32 5", "f32 -"),
    ]


def gathered(x, y):
    return torch.cond(y.max() < 4, lambda x, y: x.gather(0, y), lambda x, y: x.gather(0, y * 0), (x, y))


def gathered_deep(x, y):
    inner = lambda x, y: torch.cond(y.min() < 0, lambda x, y: x[y + 100] * 2, lambda x, y: x[y.clamp(0, 3)], (x, y))
    return torch.cond(x.sum() > 1000, lambda x, y: x[y * 50], inner, (x, y))


def branches():
    return [
        c("index_not_taken", gathered, "f32 4", torch.tensor([1, 9, 0, 2]), more=[["f32 4", torch.tensor([1, 3, 0, 2])]]), c("nested", gathered_deep, "f32 4", torch.tensor([1, 9, 0, 2])),
        c("embedding_not_taken", lambda i, w: torch.cond(i.max() < 5, lambda i, w: F.embedding(i, w).sum(0), lambda i, w: w.sum(0), (i, w)), torch.tensor([7, 1]), "f32 5x3"),
        c("scatter_not_taken", lambda x, i: torch.cond(i.max() < 4, lambda x, i: x.scatter(0, i, 2.0), lambda x, i: x * 3, (x, i)), "f32 4", torch.tensor([1, 9])),
        c("index_after", lambda x, y: torch.cond(y.max() < 4, lambda x, y: x[y] * 2, lambda x, y: x[y * 0], (x, y)) + x[y.clamp(0, 3)], "f32 4", torch.tensor([1, 9, 0, 2])),
    ]


def train(x, m, eps=1e-5):
    return F.batch_norm(x, m.mean, m.var, m.w, m.b, training=True)


def half_norms():
    result = []
    for d in ("bf16", "f16", "f32", "f64"):
        state = {"mean": f"{d} 3", "var": f"{d} 3 >0", "w": f"{d} 3", "b": f"{d} 3"}
        result.append(c(f"train_{d}", lambda m, x: train(x, m), f"{d} 4x3x5", state=state))
        # In halves torch's operator gives another dtype for the running statistics than its shape function says.
        if "16" in d:
            continue
        result.append(c(f"functional_{d}", lambda x, w, b, mean, var: torch.ops.aten._native_batch_norm_legit_functional(x, w, b, mean, var, True, 0.1, 1e-5),
                        f"{d} 4x3x5", f"{d} 3", f"{d} 3", f"{d} 3", f"{d} 3 >0"))
    q, k = "f64 2x3x5x8", "f64 2x3x7x8"
    result += [
        c("sdpa_f64_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m | (torch.arange(7) == 2)), q, k, k, "bool 5x7"), c("sdpa_f64_causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, q, q),
        c("sdpa_f64_added", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, k, "f64 5x7"),
    ]
    return result


def attend(scores, v):
    return torch.softmax(scores, -1) @ v


def grouped(q, k, v, m):
    s = (q.view(3, 2, 2, 9, 8) @ k[:, :, None].mT).view(3, 4, 9, 9) + m
    return torch.softmax(s, -1).view(3, 2, 2, 9, 9) @ v[:, :, None]


def attention_shapes():
    """Written-out attention whose products, masks and views show other leading dims."""
    q, k = "f32 3x4x9x8", "f32 3x2x9x8"
    result = [
        c("adjacency", lambda m, x: torch.softmax(m.e @ m.e.t(), 1) @ x, "f32 4x9x8", state={"e": "f32 9x8"}), c("first_of_each", lambda x, y, z: attend(x[0] @ y[0].mT, z), "f32 4x2x9x8", "f32 4x2x9x8", "f32 4x2x9x8"),
        c("one_head_for_all", lambda x, y, z: attend(x[:, :1] @ y[:, :1].mT, z), "f32 4x2x9x8", "f32 4x2x9x8", "f32 4x2x9x8"), c("values_repeat", lambda x, y, z: attend(x @ y.mT, z), "f32 2x9x8", "f32 2x9x8", "f32 4x1x9x8"),
        c("mask_before_view", lambda x, y, z, m: attend((x @ y.mT + m[:, :1]).view(2, 4, 9, 9), z.view(2, 4, 9, 8)), "f32 4x2x9x8", "f32 4x2x9x8", "f32 4x2x9x8", "f32 4x2x9x9"),
        c("result_expanded", lambda x, y, z: attend(x @ y.mT, z).expand(3, 2, 9, 8) * 1, "f32 1x2x9x8", "f32 1x2x9x8", "f32 1x2x9x8"), c("result_unsqueezed", lambda x, y, z: attend(x @ y.mT, z).unsqueeze(0) * 1, "f32 6x9x8", "f32 6x9x8", "f32 6x9x8"),
    ]
    for i, mask in enumerate(("3x1x1x9", "3x4x9x9", "1x4x1x9", "4x9x9", "9x9", "3x4x1x1", "1x1x9x1", "9")):
        result.append(c(f"grouped_{i}", grouped, q, k, k, "f32 " + mask))
    for i, mask in enumerate(("3x1x1x9", "3x4x9x9", "9x9")):
        result.append(c(f"grouped_filled_{i}", lambda q, k, v, m: grouped(q, k, v, torch.where(m | torch.eye(9, dtype=torch.bool), 0.0, -INF)), q, k, k, "bool " + mask))
    return result


def fused_attention():
    """The operator that torch.compile's graphs hold on a CPU, also with fewer key heads, for which it has no flag. Its second result is left out:
    decomposed, torch gives another one."""
    op, q, k = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default, "f32 2x4x9x8", "f32 2x2x7x8"
    return [
        c("result_alone", lambda q, k, v: op(q, k, v)[0], q, q, q), c("fewer_key_heads", lambda q, k, v: op(q, k, v)[0], q, k, k),
        c("one_query_head", F.scaled_dot_product_attention, "f32 2x1x9x8", k, k),
        c("heads_of_keys_and_values", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), q, k, "f32 2x1x7x8"),
        # The export names the batch of each operand by a symbol of its own, and asks nothing.
        c("open_batches", lambda q, k, v: op(q, k, v)[0], q, q, q, more=[["f32 3x4x5x8", "f32 3x4x7x8", "f32 3x4x7x8"]], dynamic=({0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO},) * 3),
    ]


def written_through_atleast(x, y):
    x, y = x * 1, y * 1
    a, b = torch.atleast_2d(x, y)
    a[0].add_(1)
    torch.atleast_3d(y).mul_(2)
    torch.atleast_1d(x)[1].zero_()
    return x, y, b + 1


def written_through_broadcast(x, y):
    x, y = x * 1, y * 1
    a, b = torch.broadcast_tensors(x, y)
    a.add_(1)
    y.mul_(3)
    x.sum_to_size(4, 5).sub_(2)
    return x, a * 1, b * 1


def written_through_grid(x, y):
    x, y = x * 1, y * 1
    a, b = torch.meshgrid(x, y, indexing="ij")
    d, e = torch.meshgrid(x, y, indexing="xy")
    x.add_(1)
    y.mul_(2)
    torch.meshgrid(x, indexing="ij")[0].sub_(3)
    return a * 1, b + 1, d * 1, e + 1


def written_through_einsum(x, y):
    x, y = x * 1, y * 1
    torch.einsum("ij->ji", x)[0].add_(1)
    torch.einsum("ba", x)[1].add_(5)
    torch.einsum("ii->i", x).mul_(3)
    torch.einsum("...i->i...", y)[2].zero_()
    torch.einsum("iji->ji", y)[1].add_(2)
    torch.einsum("ij->i", x).add_(7)
    return x, y


def written_through_one(x, y):
    x, y = x * 1, y * 1
    torch.cartesian_prod(y).add_(1)
    torch.ops.aten.chain_matmul.default([x]).mul_(2)
    torch.conj_physical(x).sub_(3)
    return x, y


def written_through_unsafe(x):
    x = x * 1
    x.unsafe_chunk(2, 0)[1].add_(1)
    x.unsafe_split(2, 1)[0].mul_(5)
    x.unsafe_split_with_sizes([1, 3], 1)[1].sub_(1)
    return x


def parts_of_lists(x):
    """Of the parts of a list one may be all of the tensor, and another nothing."""
    x = x.clone()
    first, second = x.tensor_split(2, 0)
    whole, none = x.split([3, 0], 1)
    x[:, 0] = x[:, -1]
    none.add_(1).cumsum_(1)
    second.mul_(2)
    whole.mul_(3)
    return x, first, second.reshape(-1), whole, none


SET = "torch's functionalisation knows no other views of what is set, and no parts"


def set_to_others(x, y):
    """What had been seen of the old memory still is."""
    z, w = x * 1, y * 1
    head = z[:2]
    z.set_(w)
    z.mul_(2)
    head.add_(1)
    return z[1:] + 1, w, head


def set_to_parts(x, y):
    z, w, v = x * 1, y * 1, x * 2
    z.set_(w, 1, (2, 2), (1, 2))
    z.mul_(3)
    v.set_(w, 2, (2,))
    return z, w, v + 1


def laid_anew(x, y):
    """What is copied to a tensor lies otherwise than the tensor, of which as_strided and unfold show the memory."""
    z = x * 1
    row = z.as_strided((3, 2), (2, 1))
    z.copy_(y.t())
    seen = z.as_strided((2, 2), (2, 1), 1) * 1
    z.as_strided((2, ), (3, )).add_(1)
    w = x * 1
    w.copy_(y[:1].t())
    read = w.as_strided((2, 2), (1, 3)) * 1
    w.unfold(1, 2, 2).mul_(2)
    return z, row, seen, w, read


def truths_added(x, y):
    z = x.clone()
    z.narrow(0, 0, 1).add_(y[:1])
    x += y
    return z, x


def written_views():
    """Writes to views that are no more than what lies where."""
    return [
        c("set_to_others", set_to_others, "f32 3", "f32 6", raw_only=SET), c("set_to_parts", set_to_parts, "f32 3", "f32 6", raw_only=SET),
        c("parts_of_lists", parts_of_lists, "f32 1x3"), c("laid_anew", laid_anew, "f32 3x4", "f32 4x3"),
        c("truths_added", truths_added, torch.tensor([[True, False], [False, True], [True, True]]), torch.tensor([[True, True], [False, False], [False, True]]))
    ]


def unannotated_views():
    """Writes through operators whose results are their arguments' memory, which their schemas do not say."""
    return [
        c("atleast", written_through_atleast, "f32 4", "f32 4x5"), c("broadcast", written_through_broadcast, "f32 4x5", "f32 5"),
        c("grid", written_through_grid, "f32 4", "f32 5"), c("einsum", written_through_einsum, "f32 4x4", "f32 3x4x3"), c("one", written_through_one, "f32 4x4", "f32 5"),
        c("unsafe", written_through_unsafe, "f32 4x4", raw_only="run_decompositions() itself loses writes to parts of an unsafe_split")
    ]


def asserted(x, y):
    torch._assert_async((x.sum() < 1e30), "a sum is too large")
    torch._assert_async(y[0])
    return x + y


def small_cosines(x, y):
    z = x.half() * 2e-4
    return F.cosine_similarity(z, z.flip(0), 1), F.cosine_similarity(x[0, 0], y[0], 0)


def windows(x, y):
    y = y * 1
    y.unfold(0, 2, 2)[1].mul_(3)
    return x, y, torch.ops.aten.l1_loss.default(x, x * 2 + 1, -1)


def attention_weights(q, k, v, m):
    math = torch.ops.aten._scaled_dot_product_attention_math
    y, w = math(q, k, v, m)
    return y, w, math(q, k, v, None, 0.0, True)[1], math(q[0], k[0], v[0], scale=0.5)[1] * 2


def attention_dropped(q, k):
    """Half of the weights are dropped and the others doubled: sums of ones vary around one; all of them are: nothing is left."""
    y = F.scaled_dot_product_attention(q, k, torch.ones_like(k), dropout_p=0.5)
    return (y.mean() - 1).abs() < 0.1, y.std() > 0.02, F.scaled_dot_product_attention(q, k, k, dropout_p=1.0)


def factors_beside(a, b):
    """Factors that ATen keeps for gradients are those of the matrix or of its transpose, by how it lies."""
    aten = torch.ops.aten
    return *aten._linalg_det(a), *aten._linalg_det(a.mT), *aten._linalg_slogdet(a)[2:], *aten._linalg_slogdet(a.mT)[2:], *aten._linalg_solve_ex(a, b, left=False)[:3], *aten._linalg_solve_ex(a, b.mT)[:3]


def diagonals_filled(x, y, z):
    y.fill_diagonal_(2)
    part = x.clone()
    part[:, 1:4].fill_diagonal_(float("-inf"))
    z.fill_diagonal_(0.5, wrap=True)
    return x.fill_diagonal_(1).sum(0), part, (y * 3).long().fill_diagonal_(9)


def odd_calls():
    """Calls that random modules found refused, wrong or passed over: assertions on tensors, cosines of numbers and of f16, windows that are written to."""
    return [
        c("assertions", asserted, "f32 4", "i64 4 >0"), c("cosines", small_cosines, "f32 3x4", "f32 4"), c("windows", windows, "f32 6", "f32 6"),
        c("instances_of_one", lambda x, w: torch.instance_norm(x, w, w + 1, None, None, True, 0.1, 0.5, False), "f32 3x5", "f32 5"),
        c("weight_norm_of_halves", lambda v, g: torch.ops.aten._weight_norm_interface(v, g)[0], "f16 4x4", "f16 1x4", raw_only="PyTorch decomposes it into a product that repeats g"),
        c("factors_beside", factors_beside, "f32 2x4x4", "f32 2x3x4"), c("complex_factors_beside", factors_beside, "c64 3x3", "c64 2x3"),
        c("attention_weights", attention_weights, "f32 2x3x5x8", "f32 2x3x7x8", "f32 2x3x7x8", "f32 5x7"), c("attention_dropped", attention_dropped, "f32 2x4x33x8", "f32 2x4x40x8"),
        c("copy_with_strides", lambda x: (torch.ops.prims.copy_strided(x.exp(), [1, 3]).as_strided((3, 4), (1, 3), 0) * 2, torch.ops.prims.copy_strided(x + 1, [1, 3]).t().flatten()), "f32 3x4"),
        c("range", lambda x: (torch.range(1, 4), torch.range(2, 9.5, 2.5) * x[0], torch.range(5, -4, -3, dtype=torch.int64)), "f32 2"),
        c("diagonals_filled", diagonals_filled, "f32 4x6", "f32 6x4", "f32 3x3", raw_only="torch does not decompose a diagonal filled through a view"),
    ]


def last_of_sums(x):
    sums = x.cumsum(1)
    return sums.t().sigmoid() + sums.flatten().argmax(), x.relu().sum()


def positions():
    """Positions of extremes beside readers that run through the same memory in another order."""
    return [
        # What is looked for is rounded as what lies in memory is.
        c("halves_found", lambda x: (torch.isin(x.mT + 2, x + 2), torch.searchsorted((x.flatten() + 2).sort()[0], x + 2)), "f16 16x24"),
        c("few_halves_found", lambda x: torch.isin(x.t() * 1.75, (x * 1.75).sort(0)[0][0]), "bf16 4x5"),
        c("transposed_reader", last_of_sums, "f32 9x6"),
        c("permuted_reader", lambda x: (x.permute(2, 0, 1).abs() * 2, x.flatten().argmax(), x.flatten(1).argmin(1)), "f32 3x4x5"),
        c("columns_beside_rows", lambda x: (x.t().argmax(), x.argmax(), x.t().flatten().argmin() + x.t().exp(), x.flatten().min()), "f32 7x5"),
    ]


def parts_written(x):
    y = x.clone()
    first, middle, last = y.tensor_split([4, 1])
    first.add_(10)
    last.mul_(3)
    y.hsplit([2])[1].sub_(1)
    y.vsplit([-2, -3])[2].neg_()
    return y


def trapezoids(x, y, z):
    # Points of fewer and of more dims than the samples; dims are counted from the front where there are more.
    return torch.trapz(x[0, 0], z), torch.trapz(x, y), torch.cumulative_trapezoid(x, y), torch.trapz(x, y[0], dim=2), torch.cumulative_trapezoid(x[:, :, :1], y[:, :1]), torch.trapz(x[:, :0], dim=1)


def parts():
    """Parts between indices that do not rise, and integrals over points of another rank."""
    return [
        c("split_at_indices", lambda x: [p * 2 for p in (*x.tensor_split([2, 0]), *x.vsplit([3, 1, 9]), *x.hsplit([-1, 1]), *x.t().tensor_split([0, 2, 1], 1))], "f32 6x4"),
        c("parts_written", parts_written, "f32 6x4"), c("trapezoids", trapezoids, "f32 2x3x4", "f32 3x4", "f32 4x1x1"),
        c("parts_dynamic", lambda x: (x[1:3] + 1, x[:-1] * 2, x.tensor_split([2, 1])[2] - 1, x[::2] + x.squeeze(0)[::2]), "f32 5x3", more=[["f32 3x3"], ["f32 40x3"]], dynamic=({0: torch.export.Dim("m", min=3, max=64)},)),
    ]


def halves_written(x):
    y = x * 1
    y.view(torch.int16)[..., ::2].zero_()
    y[1:].view(torch.uint8)[0].bitwise_or_(1)
    return y


def memory_views():
    """Memory read as elements of another size: parts of numbers, several numbers as one, parts of complex ones, written through, beside gaps, without elements."""
    return [
        c("narrower", lambda x: (x.view(torch.int16) + 1, (x * 2).view(torch.uint8), x.view(torch.int8).sum(-1), x[:, 2:6].view(torch.int16).t() * 3), "f32 3x8"),
        c("wider", lambda x: (x.view(torch.int16) + 1, x.view(torch.int32) >> 3, x.view(torch.int64).abs(), x[1:, 8:].view(torch.int32) ^ 5), "i8 3x16"),
        c("floats", lambda x: ((x & 0x3f3f3f3f).view(torch.bfloat16) * 2, (x & 0x3f3f3f3f).view(torch.float16).flip(0), (x & 0x3f3f3f3f).view(torch.float64) + 1), "i32 3x4"),
        c("there_and_back", lambda x: (x.view(torch.uint8).view(torch.float32) + 1, x.view(torch.float64).view(torch.int16).view(torch.float32) * 2), "f32 5x6"),
        c("of_complex", lambda z: (z.view(torch.float32) + 1, z.view(torch.float64) * 0, z.view(torch.int32) >> 4, z.conj().resolve_conj().view(torch.float32)), Z),
        c("to_complex", lambda x, y: (x.view(torch.complex64) * 1j, y.view(torch.complex64).conj() * 2, x.view(torch.float64).view(torch.complex64) + 1), "f32 3x8", "f64 3"),
        c("halves_written", halves_written, "f32 3x4"),
        c("without_elements", lambda x, y: (x.view(torch.int16) + 1, y.view(torch.int8) + 1), "f32 0x4", "f32 3x0"),
        c("repeated_no_times", lambda x, y: (y.expand_as(x[1:].exp()), y.expand_as(x.exp())), "f32 1x3x3", "f32 3x3"),
        # The copy between two transpositions has the order that the second one's result has again; without it the second still moves elements.
        c("transposed_copies", lambda x: (torch.where(x.transpose(0, 2) > 1, 0.5, x.transpose(0, 2)).contiguous().transpose(0, 2) * 2, x.mT.exp().clone(memory_format=torch.contiguous_format).mT + 1,
                                          x.permute(2, 1, 0, 3).abs().contiguous().permute(2, 1, 0, 3).sum(0)), "f32 2x4x2x4"),
        c("any_size", lambda x: (x.view(torch.int8) * 2, x.view(torch.int32) + 1), "i16 4x6", more=[["i16 2x4"], ["i16 9x40"]], dynamic=({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)),
    ]


def next_power(n):
    """The next power of two, as Triton's host function finds it."""
    n -= 1
    for k in (1, 2, 4, 8, 16, 32):
        n |= n >> k
    return n + 1


def sizes_of_a_run():
    """Whole numbers made of sizes by way of floats, and attention whose heads have a size of the run."""
    def attend(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v), torch.nn.functional.scaled_dot_product_attention(q[0], k[0], v[0], is_causal=True)

    def cut(x):
        n = torch.sym_float(x.shape[0]) * 1.5
        return torch.arange(math.trunc(n)) * 2, x * n, x.new_zeros(x.shape[0] * 2)
    def rounded_up(x, k):
        n = k.item()
        torch._check(n >= 0)
        torch._check(n <= 100)
        return x.new_zeros(next_power(n)) + 1, k + next_power(x.shape[0]), x * next_power(x.shape[0] * 3 + 1)
    rows, heads = {0: torch.export.Dim("m", min=2, max=64)}, {3: torch.export.Dim("d", min=2, max=64)}
    return [
        c("next_powers", rounded_up, "f32 6x4", torch.tensor(5), more=[["f32 16x4", torch.tensor(64)], ["f32 17x4", torch.tensor(0)], ["f32 3x4", torch.tensor(1)]], dynamic=(rows, None)),
        c("fractions", cut, "f32 6x4", more=[["f32 9x4"]], dynamic=(rows,)),
        c("heads", attend, "f32 2x3x16x8", "f32 2x3x24x8", "f32 2x3x24x8", more=[["f32 2x3x16x16", "f32 2x3x24x16", "f32 2x3x24x16"], ["f32 2x3x16x3", "f32 2x3x24x3", "f32 2x3x24x3"]], dynamic=(heads, heads, heads)),
        c("many", lambda x: (x.softmax(-1).cumsum(1) * 2).flatten(1, 3).sum(-1), "f32 2x3x4x5x6x7", more=[["f32 3x2x5x4x7x6"]], dynamic=({d: torch.export.Dim.AUTO for d in range(6)},)),
        c("heads_bf16", attend, "bf16 2x3x16x8", "bf16 2x3x24x8", "bf16 2x3x24x8", more=[["bf16 2x3x16x16", "bf16 2x3x24x16", "bf16 2x3x24x16"]], dynamic=(heads, heads, heads)),
    ]


def filled_diagonals():
    """Diagonals of more than two dimensions, and those that go on below the square part of a tall matrix."""
    def go_on(x, y):
        y.fill_diagonal_(7, wrap=True)
        return x.clone().fill_diagonal_(5, wrap=True), (y * 2).t().contiguous().fill_diagonal_(-1, wrap=True), y + 1
    cubes = lambda x, y, z: ((x + 1).fill_diagonal_(5.5), y.clone().fill_diagonal_(9), z.clone().fill_diagonal_(2))  # noqa: E731
    no_form = "torch has no functional form of it"
    return [c("going_on", go_on, "f32 8x3", "f32 11x2"), c("going_on_short", go_on, "f32 4x3", "f32 3x7"), c("cubes", cubes, "f32 3x3x3", "i64 2x2x2x2", "f32 1x1x1", raw_only=no_form)]


def pairs():
    """What a number of rows that only a run knows decides: pairs of rows, products of complex numbers."""
    rows = {0: torch.export.Dim("m", min=3, max=64)}
    any_rows = {0: torch.export.Dim("any", min=0, max=64)}
    distances = lambda x: (torch.nn.functional.pdist(x), torch.nn.functional.pdist(x, 1.0), torch.nn.functional.pdist(x, float("inf")), torch.nn.functional.pdist(x, 0.0))  # noqa: E731
    return [
        c("distances", distances, "f32 5x3"), c("distances_of_two", distances, "f64 2x3"), c("distances_of_one", distances, "f32 1x3"),
        c("distances_any", distances, "f32 5x3", more=[["f32 3x3"], ["f32 23x3"]], dynamic=(rows,)),
        c("products_any", lambda x: (x.prod(0), x.sum(1).prod(), x.prod(), x.prod(1)), "c64 4x3", more=[["c64 9x3"], ["c64 1x3"], ["c64 0x3"]], dynamic=(any_rows,)),
    ]


def beside_gaps():
    """as_strided_scatter of what does not lie densely: what is written between its elements is not seen."""
    def put(x, y, s):
        return (torch.as_strided_scatter((x + 1)[:, ::2], s, (2, 2), (6, 1), 0), torch.as_strided_scatter((x * 2)[1:, 1:4].t(), s, (2, 2), (7, 3), x.shape[1] + 1),
                torch.as_strided_scatter(y[:, 0], s[0], (2,), (y.shape[1] * 3,), y.shape[1]))
    def around(x, s):
        """Where the part lies before the operand, over its begin, and over its end."""
        v = x[2:4]
        return tuple(torch.as_strided_scatter(v, s, (2, 2), (4, 1), at) for at in (0, 5, 13))
    return [c("put", put, "f32 4x6", "f32 6x5", "f32 2x2"), c("around", around, "f32 6x4", "f32 2x2")]


def repeated():
    """Writes to parts of an expanded tensor in which no element is repeated go into the memory that it shows."""
    def rows(x):
        x = x.clone()
        y = x.expand(3, 4)
        y[0].add_(1)
        y[1:2].mul_(2)
        y[2, 1:3].zero_()
        return x
    def columns(x):
        x = x.clone()
        x.expand(4, 3)[1:3, 0].mul_(2)
        return x
    def leading(x):
        x = x.clone()
        y = x.expand(2, 3, 4)
        y[1, 2].mul_(3)
        return x, y * 2
    def diagonal(x):
        x = x.clone()
        x.expand(4, 4).diagonal().mul_(3)
        x.expand(2, 4)[0].unfold(0, 2, 2)[:, 1].add_(5)
        return x
    # Some of an element's copies are written, when that element's memory is the model's to change.
    def one_of_two(b):
        b[1:].mul_(3)
        twice = b.repeat_interleave(2, 1)
        twice[:, 1, 1:].copy_(twice[:, 0, :-1])
        return twice
    def one_of_some(x):
        y = x + 1
        some = y.repeat(1, 3, 1)
        some[:, 2].mul_(2)
        some[0, :, 1:].add_(some[1, :, :-1])
        seen = y[:, None].expand(2, 2, 1, 3).clone()
        seen[:, 0, 0, 1:] = seen[:, 1, 0, :-1]
        return some, seen
    return [c("one_of_two", one_of_two, "f32 2x1x3"), c("one_of_some", one_of_some, "f32 2x1x3"), c("rows", rows, "f32 1x4"), c("columns", columns, "f32 4x1"), c("leading", leading, "f32 4"), c("diagonal", diagonal, "f32 1x4")]


def given_results():
    """Results that go where the caller says, out=: into memory that keeps its strides, or is resized first."""
    def into(function, *sizes, dtype=torch.float32):
        def run(*args):
            out = torch.empty(sizes, dtype=dtype)
            function(*args, out=out)
            return out, out * 2
        return run

    def sorted_there(x):
        y = x.mT.clone()
        values, _ = torch.sort(y.tril(), 1, out=(y, torch.empty(0, dtype=torch.int64)))
        return y, values.sum(0)

    def sorted_anew(x):
        values, places = torch.empty(0), torch.empty(7, dtype=torch.int64)
        torch.sort(x, 1, out=(values, places))
        values.mul_(2)
        return values, places

    def twice(x, y):
        out = torch.empty(0)
        torch.add(x, 1, out=out)
        first = out * 3
        torch.mul(out, y, out=out)
        torch.mm(first, y.t(), out=out)
        return out, first
    views = "torch cannot resize what it takes for a view"
    return [
        c("sum", into(torch.add, 0), "f32 3x4", "f32 3x4"), c("sum_over_more", into(torch.add, 5), "f32 3x4", "f32 4"), c("product", into(torch.mm, 0), "f32 3x4", "f32 4x5", raw_only=views),
        c("product_of_rows", into(torch.matmul, 2, 0), "f32 3x4", "f32 4", raw_only=views), c("joined", into(lambda x, y, out: torch.cat([x, y], out=out), 0), "f32 3x4", "f32 2x4"),
        c("sorted_there", sorted_there, "f32 1x2x2x3"), c("sorted_anew", sorted_anew, "f32 3x4"), c("twice", twice, "f32 3x4", "f32 3x4", raw_only=views),
    ]


def masked_indices():
    """Under the mask, indices beyond a dimension mean its nearest end, and nothing is taken from an empty tensor."""
    def both(x, m, i, j, v):
        return torch.ops.aten._unsafe_masked_index(x, m, [i, j], -1.0), torch.ops.aten._unsafe_masked_index_put_accumulate(x, m, [i, j], v)

    grid = ["bool 3x6", torch.tensor([[-9], [3], [7]]), torch.tensor([[0, 4, 5, -6, 99, 2]]), "f32 3x6"]
    sizes = ({0: B, 1: N}, None, None, None, None)
    return [c("beyond", both, "f32 4x5", *grid), c("of_none", both, "f32 0x5", *grid),
            c("of_any_size", both, "f32 4x5", *grid, more=[["f32 2x5", *grid], ["f32 9x3", *grid]], dynamic=sizes),
            c("of_none_or_some", both, "f32 4x5", *grid, more=[["f32 0x3", *grid]], dynamic=sizes, raw_only="torch decomposes it to an index of an empty tensor")]


def groups():
    result = {f.__name__: f() for f in (complex_views, numbers, integer_limits, empty, behind_the_end, from_the_end, one_place, ones, updates, rank_zero, branches, half_norms, attention_shapes, fused_attention, positions, written_views, unannotated_views, odd_calls, parts, memory_views, sizes_of_a_run, filled_diagonals, pairs, beside_gaps, repeated, given_results, masked_indices)}
    for name, group in result.items():
        names = [case.name for case in group]
        assert len(set(names)) == len(names), f"{name}: two cases of one name"
    return result
