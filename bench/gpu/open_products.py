#!/usr/bin/env python3
"""Products of which only the run knows the sizes: packages made with several examples, run at other numbers of rows and other lengths of k, beside a package of each
size, and eager.

    bench/gpu/open_products.py --build BUILD [--own] [--json REPORT]      where torch, the package neso and a GPU are

Microseconds of a run, packages as graphs and eager as it is called, median of five times 20. First relu(x @ w.T) of bf16 with w [4096, 4096] and an open number of rows, then x.T @ y of float32
whose three sizes are open; attention of bf16 whose batch and length are open, of many queries (causal) and of one (four heads a key); a layer of a transformer, both open.
Results are compared with eager's first. --own leaves cuBLASLt out, --only NAME takes one of these."""
import argparse
import concurrent.futures
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import neso  # noqa: E402
from narrow_weights import time_of  # noqa: E402

SIDE = 4096
ROWS = (8, 32, 128, 512, 2048, 4096)
TALL = ((100000, 32, 32), (4096, 1024, 1024), (512, 64, 64), (1000000, 16, 48))  # k, m, n


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Buffer(torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device="cuda") * SIDE ** -0.5)

    def forward(self, x):
        return torch.relu(torch.nn.functional.linear(x, self.w))


class Attention(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, **self.options)


class Block(torch.nn.Module):
    """Norm, attention, norm, gated layer; 2,048 wide, 16 heads of 128."""

    def __init__(self, wide=2048, inner=5632):
        super().__init__()
        linear = lambda a, b: torch.nn.Linear(a, b, bias=False, device="cuda", dtype=torch.bfloat16)  # noqa: E731
        self.before, self.behind = (torch.nn.RMSNorm(wide, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        self.qkv, self.out, self.gate, self.up, self.down = linear(wide, 3 * wide), linear(wide, wide), linear(wide, inner), linear(wide, inner), linear(inner, wide)

    def forward(self, x):
        batch, length, wide = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, wide // 128, 128).permute(2, 0, 3, 1, 4)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, wide))
        y = self.behind(x)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))


class Tall(torch.nn.Module):
    def forward(self, x, y):
        return x.T @ y


def cases():
    """(name, module, sizes, arguments of a size, which of their dimensions are open)"""
    auto = torch.export.Dim.AUTO
    yield "layer", Layer(), ROWS, lambda m: (torch.randn(m, SIDE, dtype=torch.bfloat16, device="cuda"),), ({0: auto},)
    half = lambda *s: torch.randn(*s, device="cuda", dtype=torch.bfloat16)  # noqa: E731
    both = ({0: auto, 2: auto},) * 3
    yield "attention", Attention(is_causal=True), ((2, 128), (4, 512), (2, 2048), (2, 8192)), lambda s: tuple(half(s[0], 16, s[1], 128) for _ in range(3)), both
    yield ("decode", Attention(enable_gqa=True), ((2, 512), (2, 8192), (16, 2048), (64, 4096)),
           lambda s: (half(s[0], 32, 1, 128), half(s[0], 8, s[1], 128), half(s[0], 8, s[1], 128)), ({0: auto}, *both[1:]))
    yield "block", Block(), ((2, 16), (2, 512), (4, 1024)), lambda s: (half(*s, 2048),), ({0: auto, 1: auto},)
    yield "tall", Tall(), TALL, lambda s: (torch.randn(s[0], s[1], device="cuda"), torch.randn(s[0], s[2], device="cuda")), ({0: auto, 1: auto}, {0: auto, 1: auto})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="with bin/neso")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    report = []
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), concurrent.futures.ThreadPoolExecutor(14) as pool:
        def compiled(module, args, dynamic, name):
            program, package = Path(folder, name + ".pt2"), Path(folder, name + ".neso")
            torch.export.save(torch.export.export(module, args, dynamic_shapes=dynamic), program)
            command = [options.build / "bin" / "neso", "compile", program, "--target", "cuda", "--arch", "native", "-o", package]

            def run():
                done = subprocess.run(command + (["--option", "library=never"] if options.own else []), capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(done.stderr)
                return package
            return pool.submit(run)

        for name, module, sizes, arguments, dynamic in cases():
            if options.only not in (None, name):
                continue
            fixed = [compiled(module, arguments(s), None, f"{name}_fixed{i}") for i, s in enumerate(sizes)]
            opened = [compiled(module, arguments(s), dynamic, f"{name}_open{i}") for i, s in enumerate(sizes)]
            for size, own in zip(sizes, fixed):
                args = arguments(size)
                want = module(*args).float()

                def timed(package):
                    model = neso.load(package.result(), device="cuda", graph="static")
                    off = ((model(*args).float() - want).norm() / want.norm()).item()
                    if not off < (2e-2 if args[0].dtype == torch.bfloat16 else 1e-3):
                        raise SystemExit(f"{name} {size}: the results differ by {off:.3g} of their length")
                    return time_of(lambda: model(*args), 5) * 1000

                row = {"program": name, "size": size, "eager": time_of(lambda: module(*args), 5) * 1000, "fixed": timed(own), "open": {str(s): timed(p) for s, p in zip(sizes, opened)}}
                report.append(row)
                print(f"{name} {str(size):18s} eager {row['eager']:8.1f} fixed {row['fixed']:8.1f} exported with " + ", ".join(f"{s}: {t:.1f}" for s, t in row["open"].items()), flush=True)
                if options.json:
                    options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
