"""What names memory: copies and tensors with gaps that are resized, and bounds of truth values; rows of different lengths in one tensor, examples that lie in another."""
import torch

from golden_ops import Case, c


def resized_copies(x):
    """Copies that lie in another order than what they are copied from."""
    return x[:, 1:3].clone().resize_(4) + 1, x.t().clone(memory_format=torch.contiguous_format).resize_(5), x.t().clone().resize_(2, 3)


def to_its_own_size(x):
    """Nothing happens, wherever the tensor lies."""
    gaps, view = torch.empty_strided((3, 4), (8, 2)), torch.zeros(24).as_strided((3, 4), (8, 2))
    gaps.copy_(x)
    view.add_(x)
    return gaps.resize_(3, 4) * 2, view.resize_as_(x) + 0, x.t().resize_(4, 3).add(1), x.resize_(3, 4) + 1


def reshaped_behind_a_write(x):
    """Whether a reshape copies hangs on where its operand lies, not on what was last written there."""
    x, y, z = x * 1, x * 2, x * 3
    part = x[:, :2]
    part[part > 1] = 0.25
    part.reshape(-1).add_(3)
    row = y[1:2, ::2]
    row.clamp_(-1, 1)
    flat = row.flatten()
    flat.index_add_(0, torch.tensor([0, 1]), flat[:2] * 3)
    turned = z.t()
    turned.mul_(0.5).view(12) if turned.is_contiguous() else turned.mul_(0.5).reshape(12).neg_()
    return x, y, flat, z


def expanded_bits(x, z, u, v):
    """Writes to parts of what shows the bits of an expanded tensor."""
    x, y, z, w, h, d = x * 1, x * 2, z * 1, z * 2, x.half() * 1, z.to(torch.complex128) * 1
    x.expand(3, 4).view(torch.int32).zero_()
    y.expand(3, 4).view(torch.int16)[1, 2:6].copy_(u)
    torch.view_as_real(z.expand(3, 4))[0].copy_(v)
    w.expand(3, 4).imag[2].copy_(v[:, 0])
    h.expand(3, 4)[1].view(torch.int16).add_(u)
    torch.view_as_real(d.expand(3, 4))[2, 1:, 0].mul_(3)
    return x, y, z, w, h, d


def to_padded(x, offsets):
    """A row that is longer than the padded ones is cut."""
    return [torch.ops.aten._jagged_to_padded_dense_forward(v, [o], [3], fill) for v, o, fill in ((x, offsets, -1.5), (x[:, 0], offsets.int(), 0.0), (x.reshape(-1, 2, 2).long(), offsets, 7.0))]


def to_jagged(x, offsets):
    rows = torch.ops.aten._padded_dense_to_jagged_forward
    return rows(x, [offsets], 9), rows(x[..., 0], [offsets.int()]).cumsum(0), rows(x, [offsets]) * 2


def attention_of_rows(x, offsets):
    padded = torch.ops.aten._jagged_to_padded_dense_forward(x, [offsets], [6])
    mask = torch.arange(6) < offsets.diff().unsqueeze(1)
    scores = (padded @ padded.mT).masked_fill(~mask.unsqueeze(1), -1e9)
    return torch.ops.aten._padded_dense_to_jagged_forward(scores.softmax(-1) @ padded, [offsets], x.shape[0])


def jagged():
    t, auto = torch.tensor, torch.export.Dim.AUTO
    rows, empty_ends = t([0, 2, 2, 6, 9]), t([0, 0, 5, 9, 9])
    return [
        c("to_padded", to_padded, "f32 9x4", rows, more=[["f32 9x4", empty_ends], ["f32 9x4", t([0, 1, 2, 3, 4])]]),
        c("to_jagged", to_jagged, "f32 4x5x3", rows, more=[["f32 4x5x3", empty_ends]]),
        c("attention", attention_of_rows, "f32 9x4", rows, more=[["f32 5x4", t([0, 1, 5])], ["f32 7x4", t([0, 0, 6, 7, 7])]], dynamic=({0: auto}, {0: auto})),
    ]


def parts_of_rows(x):
    return x * 2 + x.cumsum(0), x.t(), x[:, :1]


def repeated(x):
    return x + x.sum(0), x @ x.mT, x.mT, x[1:]


def example_strides():
    """Inputs whose example is a part of a larger tensor, or holds several elements in one place of memory. A run's tensors lie in any way."""
    auto, n, broken = torch.export.Dim.AUTO, torch.randn, "torch's own check of guards fails in run_decompositions"

    def case(name, function, example, *more, dynamic=None, **rest):
        return Case(name, function, lambda: [example()], more=[lambda m=m: [m()] for m in more], dynamic=(dynamic,) if dynamic else None, **rest)
    return [
        case("columns", parts_of_rows, lambda: n(4, 12)[:, -2:], lambda: n(3, 2), lambda: n(5, 2), dynamic={0: auto}, raw_only=broken),
        case("every_third", lambda x: (x.cumsum(0), x * 2), lambda: n(20)[::3], lambda: n(3), lambda: n(30), dynamic={0: auto}),
        case("pictures", lambda x: (torch.nn.functional.avg_pool2d(x, 2), x.sum((2, 3))), lambda: n(2, 8, 9, 3).permute(0, 3, 1, 2)[:, :, :8, 1:], lambda: n(3, 3, 4, 6),
             dynamic={0: auto, 2: auto, 3: auto}),
        case("expanded", repeated, lambda: n(1, 5).expand(4, 5), lambda: n(4, 5)),
        case("expanded_batch", repeated, lambda: n(1, 3, 5).expand(4, 3, 5), lambda: n(4, 3, 5), lambda: n(3, 3, 5), dynamic={0: auto}),
        case("windows", lambda x: (x.cumsum(0), x @ x.mT), lambda: n(10).unfold(0, 4, 1), lambda: n(7, 4)),
    ]


def groups():
    return {"example_strides": example_strides(), "memory": [
        c("resized_copies", resized_copies, "f32 3x4"), c("to_its_own_size", to_its_own_size, "f32 3x4", raw_only="torch decomposes resize_ of a view wrongly"),
        c("clamped_bool", lambda x, y: (x.clamp(min=y), x.clamp(max=y), torch.clamp_min(x, y), torch.clamp_max(x, y), x.clamp(y, torch.tensor(3))), "bool 9", "bool 9"),
        c("reshaped_behind_a_write", reshaped_behind_a_write, "f32 3x4"),
        c("expanded_bits", expanded_bits, "f32 1x4", "c64 1x4", "i16 4", "f32 4x2", raw_only="torch decomposes writes to expanded tensors wrongly"),
    ], "jagged": jagged()}
