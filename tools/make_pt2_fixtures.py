#!/usr/bin/env python3
"""Exports the small models that the tests of frontend/pt2 read.

Usage: python3 tools/make_pt2_fixtures.py [FOLDER]     (default compiler/frontend/pt2/test/data)
The archives are written again without sample inputs, and stack traces keep file names only, so that they say nothing of the machine."""
import json
import pathlib
import re
import sys
import tempfile
import zipfile

import torch
from torch import nn
from torch.export import Dim, export

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "compiler/frontend/pt2/test/data")


def strip(value):
    if isinstance(value, dict):
        return {k: strip(v) for k, v in value.items()}
    if isinstance(value, list):
        return [strip(v) for v in value]
    if isinstance(value, str) and 'File "' in value:
        value = re.sub(r'File "[^"]*/site-packages/', 'File "', value)
        return re.sub(r'File "/[^"]*/([^"/]*)"', r'File "\1"', value)
    return value


def save(name, program, extra=None):
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/{name}.pt2"
        torch.export.save(program, path, extra_files=extra or {})
        archive = zipfile.ZipFile(path)
        out = str(FOLDER / f"{name}.pt2")
        writer = torch._C.PyTorchFileWriter(out)
        for info in archive.infolist():
            member = info.filename.split("/", 1)[1]
            data = archive.read(info)
            if member.startswith(("data/sample_inputs/", ".data/")) or member == "byteorder":
                continue
            if member.endswith(".json"):
                data = json.dumps(strip(json.loads(data))).encode()
            writer.write_record(member, data, len(data))
        writer.write_end_of_file()


class Mutating(nn.Module):
    """In-place operators on fresh tensors, views and buffers; batch norm in training mode."""

    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm2d(2)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.add_(1)
        y = torch.relu_(self.bn(x))
        row = y[:, 0]
        row.mul_(2)
        return y, self.count.sum()


class Shared(nn.Module):
    """Aliasing and non-contiguous weights, constants, nested inputs and outputs, None and Python numbers."""

    def __init__(self):
        super().__init__()
        whole = torch.arange(12.0)
        self.a = nn.Parameter(whole[:6].view(2, 3))
        self.b = nn.Parameter(self.a.detach().t())
        self.register_buffer("hidden", torch.ones(3, dtype=torch.float16), persistent=False)
        self.scale = torch.tensor([2.0, 3.0, 4.0])

    def forward(self, x, pair, flag, none=None, *, factor=2):
        u, v = pair["left"], pair["right"][0]
        out = (x @ self.a + u) * self.scale * factor + self.hidden
        return {"first": out, "rest": [v @ self.b, None, 7]}, x


class Sizes(nn.Module):
    def forward(self, x, y):
        n = x.shape[0]
        return torch.cat([x, y], 0).reshape(2 * n, -1), x.shape[0] * 3


class Control(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: (t * 2).relu_() - 1, (x,))


class Mixed(nn.Module):
    """Many kinds of arguments, unused results, data-dependent sizes."""

    def forward(self, x):
        values, _ = torch.sort(x, descending=True)
        m = x.to(torch.float16, memory_format=torch.preserve_format)
        z = torch.ops.aten.clamp(x, -0.5, float("inf")) * complex(1, 2)
        found = (x > 0).nonzero()
        return values, m, z, found.shape[0], torch.einsum("ij,kj->ik", x, x), x[torch.tensor([0, 1]), None]


class Stride(nn.Module):
    """Computes with a stride that no size gives."""

    def forward(self, x):
        return x * x.stride(0)


FOLDER.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
mutating = export(Mutating(), (torch.randn(2, 2, 3, 3),))
save("mutating", mutating)
save("mutating_decomposed", mutating.run_decompositions())
pair = {"left": torch.randn(3), "right": (torch.randn(4, 3),)}
save("shared", export(Shared(), (torch.randn(5, 2), pair, True), {"factor": 2}))
n = Dim("n", min=2, max=64)
save("sizes", export(Sizes(), (torch.randn(4, 6), torch.randn(4, 6)), dynamic_shapes=({0: n}, {0: n})))
save("stride", export(Stride(), (torch.randn(4, 12)[:, -2:],), dynamic_shapes=({0: Dim.AUTO},)))
save("control", export(Control(), (torch.randn(3),)))
save("mixed", export(Mixed(), (torch.randn(3, 4),)), {"neso_kernels/launches.json": "[]"})
