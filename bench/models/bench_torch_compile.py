#!/usr/bin/env python3
"""Models under torch.compile(backend="neso") beside Inductor, as a user calls them: parameters are inputs of the graph, nothing is frozen.

    bench/models/bench_torch_compile.py [--build build/release] [--only REGEX] [--threads 2] [--rounds 7] [--frozen] [--json FILE]

The models of zoo.py. Each is traced once by either backend, results are compared with eager's, then both are called
in turns: a round calls each for --slice seconds and takes the median, and a line has the medians over rounds, the ratio (above 1: Neso is
faster), the seconds of either's first call, and eager. --frozen gives both their option for constant weights. Exit code 1 if a result is wrong.
"""
import argparse
import json
import math
import re
import statistics
import sys
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch  # noqa: E402
import zoo  # noqa: E402

# Of the largest value of a result: a deep network of random weights with sums in another order.
BOUND = 1e-3


def tensors(result):
    return [v for v in torch.utils._pytree.tree_leaves(result) if isinstance(v, torch.Tensor)]


def distance(got, want):
    return max(((g - w).abs().max() / w.abs().max().clamp(min=1e-6)).item() for g, w in zip(got, want, strict=True))


def median_of(function, args, seconds):
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        function(*args)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def compilers(frozen):
    """Name → what compiles a model. Each starts from a fresh trace."""
    import neso.torch  # noqa: F401
    import torch._inductor.config as inductor
    inductor.freezing = frozen
    inductor.fx_graph_cache = False
    return {"neso": lambda m: torch.compile(m, backend=neso.torch.backend, options={"cached": False, "freeze": frozen}), "inductor": torch.compile}


def line(name, args):
    make, inputs = zoo.MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    values = inputs()
    with torch.no_grad():
        want = tensors(model(*values))
        engines, first = {"eager": model}, {}
        for engine, compiled in compilers(args.frozen).items():
            torch._dynamo.reset()
            engines[engine] = compiled(model)
            start = time.perf_counter()
            got = tensors(engines[engine](*values))
            first[engine] = time.perf_counter() - start
            if not distance([g.clone() for g in got], want) < BOUND:
                return {"wrong": f"{engine}: {distance(got, want):.2g}"}
        rounds = {engine: [] for engine in engines}
        for _ in range(args.rounds):
            for engine, function in engines.items():
                rounds[engine].append(median_of(function, values, args.slice))
    ms = {engine: statistics.median(times) for engine, times in rounds.items()}
    return {"ms": ms, "ratio": ms["inductor"] / ms["neso"], "first_call_s": first}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slice", type=float, default=0.3)
    parser.add_argument("--frozen", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    sys.path.insert(0, str(args.build.resolve() / "python"))
    torch.set_num_threads(args.threads)
    report = {}
    for name in zoo.MODELS:
        if not re.search(args.only, name):
            continue
        row = report[name] = line(name, args)
        if "wrong" in row:
            print(f"{name:28} WRONG {row['wrong']}", flush=True)
            continue
        ms, first = row["ms"], row["first_call_s"]
        print(f"{name:28} neso {ms['neso']:8.2f}  inductor {ms['inductor']:8.2f}  eager {ms['eager']:8.2f} ms   ratio {row['ratio']:5.2f}   "
              f"first call {first['neso']:5.1f} and {first['inductor']:5.1f} s", flush=True)
    ratios = [row["ratio"] for row in report.values() if "ratio" in row]
    if ratios:
        print(f"geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.3f} of {len(ratios)}, least {min(ratios):.2f}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=1))
    return any("wrong" in row for row in report.values())


if __name__ == "__main__":
    sys.exit(main())
