"""Models that call operators which are not PyTorch's own, with arguments of every kind; `changes` has some that change what they are given.

Files as they were exported bring the operators' schemas; `silent` ones do not.

tests/goldens/extern: both forms, inputs and what the operators' Python gives. cli/test/extern_ops.c is the same in C.
"""
from typing import Optional, Sequence, Tuple

import torch
from torch import Tensor


@torch.library.custom_op("neso_test::mix", mutates_args=())
def mix(x: Tensor, y: Optional[Tensor], more: Sequence[Tensor], n: int, f: float, b: bool, s: str, t: torch.dtype, ints: Sequence[int],
        floats: Sequence[float], bools: Sequence[bool], absent: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    out = x * n + f
    if y is not None:
        out = out + y.t()
    for m in more:
        out = out + m
    # What the values were, in order; float32 has the number 16 in Neso.
    seen = [n, f, b, len(s), 16 if t == torch.float32 else -1, *ints, *floats, *bools, len(more), y is not None, absent is not None]
    return out.contiguous(), torch.tensor([float(v) for v in seen])


@mix.register_fake
def _(x, y, more, n, f, b, s, t, ints, floats, bools, absent=None):
    return x.new_empty(x.shape), x.new_empty((8 + len(ints) + len(floats) + len(bools),))


@torch.library.custom_op("neso_test::total", mutates_args=())
def total(x: Tensor) -> Tensor:
    return x.sum().reshape(1)


@total.register_fake
def _(x):
    return x.new_empty((1,))


@torch.library.custom_op("neso_test::scale_", mutates_args={"x"})
def scale_(x: Tensor, _f: float) -> None:
    x.mul_(_f)


@scale_.register_fake
def _(x, _f):
    return None


@torch.library.custom_op("neso_test::push", mutates_args={"x", "total"})
def push(x: Tensor, y: Tensor, total: Optional[Tensor]) -> Tensor:
    x.add_(y)
    if total is not None:
        total.add_(y.sum(0))
    return y * 2


@push.register_fake
def _(x, y, total):
    return torch.empty_like(y)


@torch.library.custom_op("neso_test::over", mutates_args=())
def over(x: Tensor, bound: float) -> Tuple[Tensor, Tensor]:
    taken = x.sum(1) > bound
    return x[taken].contiguous(), taken.nonzero()[:, 0].repeat_interleave(2)


@over.register_fake
def _(x, bound):
    rows, places = torch.library.get_ctx().new_dynamic_size(), torch.library.get_ctx().new_dynamic_size()
    return x.new_empty((rows, x.shape[1])), x.new_empty((places,), dtype=torch.int64)


class Sized(torch.nn.Module):
    """An operator decides the sizes of its results; none may be left."""

    def forward(self, x, z):
        rows, places = torch.ops.neso_test.over(x, 0.0)
        some, _ = torch.ops.neso_test.over(z * 2, 0.5)
        none, empty = torch.ops.neso_test.over(z, 1e6)
        return rows * 3 + 1, places + x.shape[0], some.sum(0), none, empty, (rows @ some.t()).relu()


class Secret(torch.nn.Module):
    """What the operator changes is seen later."""

    def forward(self, x, z):
        y = x + 1
        a = torch.ops.neso_test.push(y, z, None)
        return y * 2, a


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(5))

    def forward(self, x, z):
        y = x.relu() * self.scale
        a, seen = torch.ops.neso_test.mix(y, (z * 2).t(), [y, x], x.shape[0], 0.5, True, "three", torch.float32, [x.shape[0], 7], [1.5, -2.0], [False, True])
        b, _ = torch.ops.neso_test.mix(a, None, [], 3, -1.0, False, "", torch.float32, [], [], [])
        if_positive = torch.ops.neso_test.total(b[1:] + 1)
        return b.exp().clamp(max=9) + if_positive, seen


class Changes(torch.nn.Module):
    """Whole tensors, slices, other views and buffers are changed in place, also in a branch."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3, 4))

    def forward(self, x, z):
        y = x[:, :4] + 1
        torch.ops.neso_test.scale_(y, 3.0)
        torch.ops.neso_test.scale_(y[1:], 2.0)
        torch.ops.neso_test.scale_(y.t()[1:3, :3], -1.5)
        a = torch.ops.neso_test.push(self.seen, y[:3], None)
        last = z[0, :4].clone()
        b = torch.ops.neso_test.push(y, y * 0.5, last)
        c = torch.cond(z.sum() > 0, lambda v: torch.ops.neso_test.total(v.relu()) + 1, lambda v: torch.ops.neso_test.total(v * 2), (y,))
        return y, a, b + y, last, c


def inputs(rows):
    return torch.randn(rows, 5) * 0.3, torch.randn(rows, 5)


def write(folder):
    import copy

    import neso_cases
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(7)
    models = {"model": Model().eval(), "changes": Changes().eval(), "sized": Sized().eval(), "secret": Secret().eval()}
    rows = torch.export.Dim("rows", min=3, max=64)
    for name, model in models.items():
        program = torch.export.export(model, inputs(4), dynamic_shapes=({0: rows}, {0: rows}), strict=False)
        schemas = "\n".join(str(torch.ops.neso_test.__getattr__(op).default._schema) for op in ("mix", "total", "scale_", "push", "over"))
        neso_cases.save_program(program, folder / f"{name}.export.pt2", lean=True, extra_files={"neso_operators": schemas})
        # Without them the file does not say what changes.
        if name != "sized":
            neso_cases.save_program(program, folder / f"{name}.silent.pt2", lean=True)
        neso_cases.save_program(program.run_decompositions(), folder / f"{name}.decomposed.pt2", lean=True)
    for count in (4, 9):
        given = inputs(count)
        neso_cases.write_safetensors(folder / f"inputs.{count}.safetensors", {str(i): t for i, t in enumerate(given)})
        for name, model in models.items():
            fresh = copy.deepcopy(model)
            with torch.no_grad():
                results = fresh(*(t.clone() for t in given))
            stored = {str(i): t for i, t in enumerate(results)} | {f"buffer.{n}": b for n, b in fresh.named_buffers()}
            neso_cases.write_safetensors(folder / f"{name}.outputs.{count}.safetensors", stored)


if __name__ == "__main__":
    import pathlib
    import sys
    write(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent / "tests/goldens/extern"))
