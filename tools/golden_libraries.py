"""What models of further libraries do that no other case did (check_models.py --from models_of_image_libraries, …): sums of negative zeros,
constants that are flipped before they are multiplied with or read twice each in a chain, masks behind other dims."""
import torch

from golden_ops import c

F = torch.nn.functional


def signs(*tensors):
    return [torch.copysign(torch.ones_like(t), t) for t in tensors]


def sums_of_zeros(x, y):
    z, w = -(x * 0).abs(), -(y * 0).abs()
    return signs(z.sum(0), z.sum(1), z.mean(1), z.sum(), z.nansum(1), z[:, :1].sum(1), z[:1].mean(0), w.sum(1), w.sum((0, 2)), w.mean(-1), z.cumsum(1), z[0].sum(0))


def products_of_zeros(x, y):
    z, one = -(x * 0).abs(), y.abs() + 1
    return signs(z @ one.t(), z[:1] @ one[:1].t(), torch.dot(z[0], one[0]), z @ one[0], torch.einsum("ij,ij->i", z, one[:4]), torch.linalg.vecdot(z, one[:4]))


def windows_of_zeros(x, w):
    z, one = -(x * 0).abs(), w.abs() + 1
    return signs(F.conv2d(z, one, groups=4), F.conv2d(z, one.transpose(0, 1)), F.avg_pool2d(z, 2), F.avg_pool2d(z, 3, 2, 1), F.adaptive_avg_pool2d(z, 2), F.conv_transpose2d(z, one, groups=4), F.fold(z.flatten(2)[:, :, :4], 3, 2))


def negative_zeros():
    """Sums of negative zeros are positive zeros, however few they are: they begin with 0."""
    return [
        c("sums_of_zeros", sums_of_zeros, "f32 5x3", "f32 3x17x40"), c("sums_of_half_zeros", sums_of_zeros, "bf16 40x8", "f16 2x3x64"), c("sums_of_wide_zeros", sums_of_zeros, "f64 5x3", "f64 3x17x40"),
        c("products_of_zeros", products_of_zeros, "f32 4x7", "f32 6x7"), c("short_products_of_zeros", products_of_zeros, "f32 4x2", "f32 4x2"), c("windows_of_zeros", windows_of_zeros, "f32 1x4x7x7", "f32 4x1x3x3"),
        c("turned_by_zeros", lambda x, y: (torch.atan2(x * 0, -(y * 0).abs().sum(1)), 1 / (-(y * 0).abs().sum(0)), torch.complex(-(y * 0).abs().sum(1), x * 0).angle()), "f32 4", "f32 4x3"),
    ]


def below_diagonal(x):
    out = x.new_zeros(x.shape[:-1] + (3, 3))
    places = torch.arange(3)
    out[..., places < places.view(-1, 1) + 1] = x
    return out


def masked_behind(x, v, w, m, n):
    y, z, u, q = x.clone(), x.clone(), x.clone(), x.clone()
    y[:, m] = v
    z[..., n] = w
    u[:, m] = v[:1, :1]
    q[..., :4].view(3, 2, 2, 4)[:, m.view(2, 2)] = v[..., :4]
    return y, z, u, q, torch.ops.aten.index_put.default(x, [None, m], v, True), torch.ops.aten.index_put.default(x.mT, [None, None, m], v.mT), torch.ops.aten.index_put.default(x[0], [m, None], v[1]), torch.ops.aten.index_put.default(x, [None, m.byte()], v)


def chained_constants(m, x):
    a, b = m.s * 1.0, m.s * 0.5
    for k in range(60):
        a, b = b, a + b * (0.01 * k)
    return x * a, b


def flipped_and_masked():
    """Constants that are flipped, then multiplied with; masks behind other dims, known ones and such that are data; constants that are read twice each, in a chain."""
    return [
        c("flipped_filter", lambda m, x: F.conv1d(x, m.w.flip(2)), "f32 2x3x20", state={"w": "f32 4x3x5"}), c("flipped_wave", lambda m, x: F.conv1d(x, m.w.flip(0).reshape(1, 1, -1).repeat(3, 1, 1), groups=3), "f32 1x3x8", state={"w": "f32 2"}),
        c("flipped_matrix", lambda m, x: (x @ m.w.flip(0), x @ m.w.flip(1).t(), x @ m.w.rot90(2)), "f32 4x70", state={"w": "f32 70x70"}),
        c("flipped_quotient", lambda m, x: F.conv1d(x, (m.w / m.w[:, :1]).flip(1).contiguous().unsqueeze(1)), "f32 2x1x20", state={"w": "f32 1x3 >0"}),
        c("below_diagonal", below_diagonal, "f32 2x4x6"), c("masked_behind", masked_behind, "f32 3x4x5", "f32 3x3x5", "f32 3x4x2", torch.tensor([True, False, True, True]), torch.tensor([False, True, False, False, True])),
        c("chained_constants", chained_constants, "f32 8", state={"s": "f32 8"}),
    ]


def groups():
    return {f.__name__: f() for f in (negative_zeros, flipped_and_masked)}
