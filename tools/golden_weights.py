#!/usr/bin/env python3
"""Writes tests/goldens/weights: models that are given other weights after they were compiled.

    tools/golden_weights.py [--out tests/goldens/weights]

A case is NAME.pt2, exported with its first weights, and NAME.safetensors, of the same module with others: "weight/FQN" (its
state_dict), "input/N", "output/N" (eager).
"""
import argparse
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

F = torch.nn.functional


class Mlp(torch.nn.Module):
    """Matrices that are kept in blocks of columns, with a block that is not full."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.first = torch.nn.Linear(37, 100, dtype=dtype)
        self.second = torch.nn.Linear(100, 5, dtype=dtype)

    def forward(self, x):
        return self.second(F.gelu(self.first(x)))


class ConvNorm(torch.nn.Module):
    """Filters with their channels last, statistics that are folded unless the model is compiled to be updated."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(6, 20, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(20)
        self.grouped = torch.nn.Conv2d(20, 20, 3, groups=4)

    def forward(self, x):
        return self.grouped(F.relu(self.norm(self.conv(x))))


class Tied(torch.nn.Module):
    """One matrix under two names, read row by row and as a right operand."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 24)
        self.head = torch.nn.Linear(24, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.embedding(ids)))


class Parts(torch.nn.Module):
    """A matrix that is used in parts, one of them twice, and a batch of matrices."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Parameter(torch.randn(96, 32) / 6)
        self.batch = torch.nn.Parameter(torch.randn(3, 32, 33) / 6)

    def forward(self, x):
        q, k, v = (F.linear(x, self.qkv[i * 32:(i + 1) * 32]) for i in range(3))
        return torch.bmm(q * k + v, self.batch) + F.linear(x, self.qkv[:33].t().contiguous().t()).sum()


class Siblings(torch.nn.Module):
    """Matrices that multiply one operand, which may become one: rows of either order, biases, filters."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(24, n) for n in (32, 16, 16))
        self.a, self.b = (torch.nn.Parameter(torch.randn(24, n) / 5) for n in (12, 20))
        self.c, self.d = (torch.nn.Conv2d(24, n, 3, padding=1) for n in (8, 16))

    def forward(self, x):
        products = [self.q(x), self.k(x), self.v(x), x @ self.a, x @ self.b]
        filtered = [f(x.reshape(1, -1, 3, 3)) for f in (self.c, self.d)]
        return torch.cat([y.softmax(-1).flatten() for y in products] + [F.max_pool2d(y, 2).softmax(1).flatten() for y in filtered])


class Flipped(torch.nn.Module):
    """A matrix and filters that are read from the end of a dimension."""

    def __init__(self):
        super().__init__()
        self.matrix = torch.nn.Parameter(torch.randn(70, 40) / 6)
        self.filters = torch.nn.Parameter(torch.randn(20, 3, 5))

    def forward(self, x):
        return F.conv1d((x @ self.matrix.flip(0).rot90(2)).reshape(2, 3, 60), self.filters.flip(2))


class Counter(torch.nn.Module):
    """A buffer that runs change, beside weights."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(7))
        self.register_buffer("state", torch.zeros(7))

    def forward(self, x):
        self.state.add_(x)
        return self.state * self.scale


CASES = {
    "mlp": (Mlp, lambda: torch.randn(9, 37)),
    "mlp_bf16": (lambda: Mlp(torch.bfloat16), lambda: torch.randn(9, 37).bfloat16()),
    "conv_norm": (ConvNorm, lambda: torch.randn(2, 6, 11, 10)),
    "tied": (Tied, lambda: torch.randint(0, 50, (4, 6))),
    "parts": (Parts, lambda: torch.randn(3, 10, 32)),
    "counter": (Counter, lambda: torch.randn(7)),
    "siblings": (Siblings, lambda: torch.randn(9, 24)),
    "flipped": (Flipped, lambda: torch.randn(9, 70)),
}


def randomise(module):
    """Statistics too: a fresh norm's are 0 and 1, which would hide mistakes."""
    for name, buffer in module.named_buffers():
        if buffer.is_floating_point():
            buffer.copy_(torch.rand_like(buffer) + 0.5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "tests/goldens/weights")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for number, (name, (make, inputs)) in enumerate(CASES.items()):
        torch.manual_seed(20260000 + number)
        with torch.no_grad():
            first, second = make().eval(), make().eval()
            randomise(first), randomise(second)
            x = inputs()
            torch.export.save(torch.export.export(first, (x,), strict=False), out / f"{name}.pt2")
            tensors = {"weight/" + fqn: t.clone().contiguous() for fqn, t in second.state_dict().items()}
            tensors["output/0"] = second(x).contiguous()
        tensors["input/0"] = x
        save_file(tensors, out / f"{name}.safetensors")


if __name__ == "__main__":
    main()
