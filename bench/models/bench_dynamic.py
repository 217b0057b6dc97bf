#!/usr/bin/env python3
"""One package for all sizes beside one for each: how much a size that is known at run time only costs.

    bench/models/bench_dynamic.py [--build build/release] [--only REGEX] [--rounds 15] [--json FILE]

Each program over a matrix is exported twice for each size below, with both sizes dynamic and without an upper bound, and with that size
alone; the first package runs all sizes, the others their own. They take turns; the figure is the least time over the rounds, on one thread,
in processor time, and the ratio to the fixed-size package. Results are compared with eager's first. Exit code 1 if one is wrong, or if
a ratio is over --limit.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch  # noqa: E402
from torch.export import Dim, export, save  # noqa: E402

import neso_library  # noqa: E402

PROGRAMS = {
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "gelu_sum_rows": lambda x: torch.nn.functional.gelu(x).sum(-1),
    "relu_sum_columns": lambda x: torch.relu(x).sum(0),
    "amax_columns": lambda x: x.amax(0),
    "argmax_rows": lambda x: x.argmax(-1),
    "cumsum_rows": lambda x: x.cumsum(-1),
}
# 128 elements to a million, both ways.
SIZES = [(8, 16), (3, 100), (64, 64), (512, 20), (4096, 64), (64, 4096), (700, 1000), (4, 262144)]
EXPORTED_WITH = (48, 200)


class Program(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def package(args, folder, name, function, x, dynamic):
    pt2, out = folder / f"{name}.pt2", folder / f"{name}.neso"
    save(export(Program(function), (x,), dynamic_shapes={"x": {0: Dim.AUTO, 1: Dim.AUTO}} if dynamic else None), pt2)
    done = subprocess.run([Path(args.build) / "bin" / "neso", "compile", pt2, "-o", out], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[:300])
    return out


def least(run, rounds):
    """Processor time of one call, in microseconds: of batches of about 2 ms the fastest."""
    run()
    begun = time.perf_counter_ns()
    run()
    batch = max(1, min(2000, 2_000_000 // max(1, time.perf_counter_ns() - begun)))
    best = float("inf")
    for _ in range(rounds):
        begun = time.thread_time_ns()
        for _ in range(batch):
            run()
        best = min(best, (time.thread_time_ns() - begun) / batch / 1e3)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=float, default=1.3)
    parser.add_argument("--json")
    args = parser.parse_args()
    library = neso_library.Library(Path(args.build) / "lib" / "libneso.so")
    folder = Path(tempfile.mkdtemp(prefix="neso-dynamic-"))
    torch.manual_seed(1)
    torch.set_num_threads(1)
    rows, bad = [], 0
    for name, function in PROGRAMS.items():
        if not re.search(args.only, name):
            continue
        any_size = library.load(package(args, folder, name, function, torch.randn(EXPORTED_WITH), True), threads=1)
        for shape in SIZES:
            x = torch.randn(shape)
            fixed = library.load(package(args, folder, f"{name}_fixed", function, x, False), threads=1)
            want, runs = function(x), []
            for program in (any_size, fixed):
                out = torch.empty_like(want)
                program.bind([x], [out])
                program.run()
                if not torch.allclose(out, want, rtol=1e-4, atol=1e-4 * x.numel() ** 0.5):
                    print(f"{name} {shape}: WRONG")
                    bad += 1
                call, given = program.call, program.args
                runs.append(lambda call=call, given=given: call(*given))
            times = [float("inf"), float("inf")]
            for _ in range(3):
                times = [min(t, least(run, max(1, args.rounds // 3))) for t, run in zip(times, runs)]
            ratio = times[0] / times[1]
            bad += ratio > args.limit
            rows.append({"program": name, "shape": list(shape), "any_us": round(times[0], 3), "fixed_us": round(times[1], 3),
                         "ratio": round(ratio, 2)})
            print(f"{name:18} {shape[0]:5} x {shape[1]:6}  any {times[0]:10.2f} us  fixed {times[1]:10.2f} us  {ratio:6.2f}"
                  f"{'  OVER' if ratio > args.limit else ''}", flush=True)
            fixed.free()
        any_size.free()
    if args.json:
        Path(args.json).write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
    print(f"{len(rows)} lines, {bad} over {args.limit} or wrong")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
