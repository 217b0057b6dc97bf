#!/usr/bin/env python3
"""Rows and columns of which only the run knows the number and the length: packages made with four examples, run at sizes over six orders of magnitude,
beside a package for each size, and eager.

    bench/gpu/lengths.py --build BUILD [--only softmax,sum1] [--json REPORT]      where torch and a GPU are

Milliseconds of the whole call, the least of several. Results are compared with eager's first; a line says "!" where a package of open sizes takes more than
1.5 times as long as that of the size and as eager, and more than 0.03 ms.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))
import neso_library  # noqa: E402

F = torch.nn.functional
OPERATORS = {
    "softmax": lambda x: x.softmax(-1), "softmax0": lambda x: x.softmax(0), "logsumexp": lambda x: x.logsumexp(-1), "sum1": lambda x: x.sum(1), "relusum0": lambda x: x.relu().sum(0),
    "norm": lambda x: F.layer_norm(x, (x.shape[1],)), "rms": lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5), "argmax1": lambda x: x.argmax(1), "amax0": lambda x: x.amax(0),
    "colnorm": lambda x: (x - x.mean(0)) / (x.var(0) + 1e-5).sqrt(), "cumsum": lambda x: x.cumsum(-1), "cumsum0": lambda x: x.cumsum(0), "both": lambda x: (x.sum(1), x.sum(0)),
    "twice": lambda x: x.softmax(-1).sum(0),
}
SIZES = [(8, 16), (4096, 16), (262144, 16), (64, 512), (16, 4096), (4096, 4096), (4, 1000000), (1000000, 4), (100000, 100)]
EXAMPLES = {"small": (8, 16), "rows": (4096, 64), "long": (8, 100000), "large": (4096, 4096)}


def export(function, size, path, is_open):
    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x)
    auto = torch.export.Dim.AUTO
    torch.export.save(torch.export.export(Model(), (torch.randn(size),), dynamic_shapes={"x": {0: auto, 1: auto}} if is_open else None, strict=False), path)


def least(run, times=15):
    best = float("inf")
    for _ in range(times):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return best * 1e3


def agree(got, want):
    if not want.is_floating_point():
        return torch.equal(got, want)
    return torch.allclose(got, want, rtol=1e-3, atol=1e-3 * float(want.abs().max()))  # sums of up to a million in another order


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="with bin/neso and lib/libneso.so")
    parser.add_argument("--only", default=",".join(OPERATORS), help="operators, with commas between them")
    parser.add_argument("--json", help="write every figure here")
    options = parser.parse_args()
    torch.set_default_device("cuda")
    library = neso_library.Library(f"{options.build}/lib/libneso.so")
    rows, ok = [], True
    with tempfile.TemporaryDirectory() as folder:
        packages = []
        for name in options.only.split(","):
            for kind, size in [*EXAMPLES.items(), *((f"{h}x{w}", (h, w)) for h, w in SIZES)]:
                path = f"{folder}/{name}_{kind}"
                export(OPERATORS[name], size, path + ".pt2", kind in EXAMPLES)
                packages.append(path)

        def compile_one(path):
            subprocess.run([f"{options.build}/bin/neso", "compile", path + ".pt2", "-o", path + ".neso", "--target", "cuda", "--arch", "native"], check=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_one, packages))
        for name in options.only.split(","):
            for size in SIZES:
                x = torch.randn(size)
                want = OPERATORS[name](x)
                want = want if isinstance(want, tuple) else (want,)
                row = {"operator": name, "size": size}
                for kind in (f"{size[0]}x{size[1]}", *EXAMPLES):
                    program = library.load(f"{folder}/{name}_{kind}.neso", 1, neso_library.CUDA)
                    program.bind([x], [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) for t in want])
                    program.run()
                    if not all(agree(g, w) for g, w in zip(program.kept[1], want)):
                        print("WRONG", name, size, kind)
                        ok = False
                    row[kind if kind in EXAMPLES else "fixed"] = round(least(program.run_async), 4)
                row["eager"] = round(least(lambda: OPERATORS[name](x)), 4)
                limit = max(0.03, 1.5 * max(row["fixed"], row["eager"]))
                print(f"{name:10} {str(size):15}", " ".join(f"{k} {row[k]:.3f}" for k in ("fixed", *EXAMPLES, "eager")), "!" if any(row[k] > limit for k in EXAMPLES) else "", flush=True)
                rows.append(row)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
