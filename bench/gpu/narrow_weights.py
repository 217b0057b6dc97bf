#!/usr/bin/env python3
"""What narrow weights gain on a GPU: the seven products of a Llama layer for one token with weights of four bits beside bf16 ones, and products of 4096^3 in 8-bit
floats and integers beside bf16.

    bench/gpu/narrow_weights.py [--rounds 5]       needs torch with CUDA and the package neso (docs/python.md)

Each line has the median time of Neso's bf16 form and of the narrow one, their ratio, and torch's time of the same. Weights are larger than the
second-level cache."""
import argparse
import statistics

import torch

import neso

HIDDEN, WIDE, GROUP = 4096, 11008, 128


class Layer(torch.nn.Module):
    """Query, key, value, output, gate, up and down."""
    def __init__(self, make):
        super().__init__()
        self.parts = torch.nn.ModuleList(make(n, k) for n, k in [(HIDDEN, HIDDEN)] * 4 + [(WIDE, HIDDEN)] * 2 + [(HIDDEN, WIDE)])

    def forward(self, x):
        q, k, v, o, gate, up, down = self.parts
        h = o(q(x) + k(x) + v(x))
        return down(torch.nn.functional.silu(gate(h)) * up(h))


class Bf16(torch.nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.weight = torch.nn.Buffer(torch.randn(n, k, dtype=torch.bfloat16, device="cuda") * k ** -0.5)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight)


class Int4(torch.nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.weight = torch.nn.Buffer(torch.ops.aten._convert_weight_to_int4pack(torch.randint(0, 255, (n, k // 2), dtype=torch.uint8, device="cuda"), 8))
        self.scales = torch.nn.Buffer(torch.rand(k // GROUP, n, 2, dtype=torch.bfloat16, device="cuda") * 0.01)

    def forward(self, x):
        return torch.ops.aten._weight_int4pack_mm(x, self.weight, GROUP, self.scales)


def time_of(run, rounds):
    """Median milliseconds of a call, of `rounds` times 20 calls."""
    for _ in range(3):
        run()
    out = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(20):
            run()
        end.record()
        torch.cuda.synchronize()
        out.append(begin.elapsed_time(end) / 20)
    return statistics.median(out)


def both(module, inputs, rounds):
    """Times of Neso and of torch; results must agree."""
    model = neso.load(neso.compile(module, inputs, target="cuda"), device="cuda", graph="static")
    got, want = model(*inputs).float(), module(*inputs).float()
    off = ((got - want).norm() / want.norm()).item()
    if not off < 2e-2:
        raise SystemExit(f"{type(module).__name__}: the results differ by {off:.3g} of their length")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(*inputs)
    return time_of(lambda: model(*inputs), rounds), time_of(graph.replay, rounds)


class Product(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    with torch.no_grad():
        x = torch.randn(1, HIDDEN, dtype=torch.bfloat16, device="cuda")
        wide, wideTorch = both(Layer(Bf16), (x,), rounds)
        narrow, narrowTorch = both(Layer(Int4), (x,), rounds)
        print(f"a layer, one token: bf16 {wide:.4f} ms (torch {wideTorch:.4f}), four bits {narrow:.4f} (torch {narrowTorch:.4f}): {wide / narrow:.2f} times as fast")
        n = 4096
        a, b = (torch.randn(n, n, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        one = torch.ones((), device="cuda")
        wide, wideTorch = both(Product(torch.mm), (a, b), rounds)
        a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t().contiguous().t()
        ai, bi = (torch.randint(-8, 8, (n, n), dtype=torch.int8, device="cuda") for _ in range(2))
        for name, function, inputs in (("8-bit floats", lambda p, q, s: torch._scaled_mm(p, q, s, s, out_dtype=torch.bfloat16), (a8, b8, one)), ("8-bit integers", torch._int_mm, (ai, bi.t().contiguous().t()))):
            narrow, narrowTorch = both(Product(function), inputs, rounds)
            print(f"{n}^3: bf16 {wide:.4f} ms (torch {wideTorch:.4f}), {name} {narrow:.4f} (torch {narrowTorch:.4f}): {wide / narrow:.2f} times as fast")


if __name__ == "__main__":
    main()
