"""What names memory: copies and tensors with gaps that are resized, and bounds of truth values."""
import torch

from golden_ops import c


def resized_copies(x):
    """Copies that lie in another order than what they are copied from."""
    return x[:, 1:3].clone().resize_(4) + 1, x.t().clone(memory_format=torch.contiguous_format).resize_(5), x.t().clone().resize_(2, 3)


def to_its_own_size(x):
    """Nothing happens, wherever the tensor lies."""
    gaps, view = torch.empty_strided((3, 4), (8, 2)), torch.zeros(24).as_strided((3, 4), (8, 2))
    gaps.copy_(x)
    view.add_(x)
    return gaps.resize_(3, 4) * 2, view.resize_as_(x) + 0, x.t().resize_(4, 3).add(1), x.resize_(3, 4) + 1


def groups():
    return {"memory": [
        c("resized_copies", resized_copies, "f32 3x4"), c("to_its_own_size", to_its_own_size, "f32 3x4", raw_only="torch decomposes resize_ of a view wrongly"),
        c("clamped_bool", lambda x, y: (x.clamp(min=y), x.clamp(max=y), torch.clamp_min(x, y), torch.clamp_max(x, y), x.clamp(y, torch.tensor(3))), "bool 9", "bool 9"),
    ]}
