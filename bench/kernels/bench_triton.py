"""Triton kernels on the CPU, from Python source, beside torch eager and torch.compile: one process, alternating, the same threads.

Usage: bench_triton.py BUILD_DIR [--only TEXT] [--threads 2] [--rounds 7] [--no-compile] [--json FILE]

Each line: the fastest time of ours, of eager and of torch.compile, the medians of the ratios peer / ours (above 1: Neso is faster), and what
share of the machine's limit our time is (bench/models/machine_limit.py).
Kernels: triton_kernels.py. The last table holds the time of `neso kernel compile` from source to CPU machine code, with the start of its
process, the share of the front end (source to tile IR), and, where the triton wheel is, Triton's own time to a cubin for sm_90.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "models"))

import torch
import torch.nn.functional as F

from machine_limit import Limit
from neso_library import Library

SOURCE = HERE / "triton_kernels.py"


class Arg(ctypes.Union):
    _fields_ = [("ptr", ctypes.c_void_p), ("i64", ctypes.c_int64), ("f64", ctypes.c_double), ("f32", ctypes.c_float)]


def pack(value):
    if isinstance(value, torch.Tensor):
        return Arg(ptr=value.data_ptr())
    return Arg(f32=value) if isinstance(value, float) else Arg(i64=value)


SHORT = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.int64: "i64", torch.int32: "i32"}


def signature(args):
    return ", ".join("*" + SHORT[a.dtype] if isinstance(a, torch.Tensor) else "fp32" if isinstance(a, float) else "i32" for a in args)


def cdiv(a, b):
    return (a + b - 1) // b


def cases():
    """(label, kernel, constexprs, arguments, grid, output, torch function, goal against torch.compile or None: against eager)."""
    for n in (1 << 16, 1 << 20, 1 << 24):
        x, y, out = torch.randn(n), torch.randn(n), torch.empty(n)
        yield f"vector_add {n}", "vector_add", dict(BLOCK=1024), [x, y, out, n], (cdiv(n, 1024),), out, lambda x=x, y=y: x + y, 0.8
    for rows, columns in ((4096, 512), (1024, 4096), (1000, 1000)):
        for dtype in (torch.float32, torch.bfloat16):
            if dtype == torch.bfloat16 and columns != 4096:
                continue
            name = f"{rows}x{columns} {SHORT[dtype]}"
            block = 1 << (columns - 1).bit_length()
            x, u, out = (torch.randn(rows, columns).to(dtype) for _ in range(3))
            w, b = torch.randn(columns).to(dtype), torch.randn(columns).to(dtype)
            grid = (rows,)
            yield f"softmax {name}", "softmax", dict(BLOCK=block), [x, out, columns, columns], grid, out, lambda x=x: torch.softmax(x, 1), 0.8
            yield (f"layer_norm {name}", "layer_norm", dict(BLOCK=1024), [x, w, b, out, columns, columns, 1e-5], grid, out,
                   lambda x=x, w=w, b=b, c=columns: F.layer_norm(x, (c,), w, b), 0.8)
            yield (f"rms_norm {name}", "rms_norm", dict(BLOCK=block), [x, w, out, columns, columns, 1e-5], grid, out,
                   lambda x=x, w=w, c=columns: F.rms_norm(x, (c,), w, 1e-5), 0.8)
            yield (f"swiglu {name}", "swiglu", dict(BLOCK=block), [x, u, out, columns, columns], grid, out,
                   lambda x=x, u=u: F.silu(x) * u, 0.8)
    for rows, columns in ((512, 32000), (2048, 1000)):
        x, target, out = torch.randn(rows, columns), torch.randint(columns, (rows,)), torch.empty(rows)
        yield (f"cross_entropy {rows}x{columns}", "cross_entropy", dict(BLOCK=4096 if columns > 4096 else 1024), [x, target, out, columns, columns], (rows,), out,
               lambda x=x, t=target: F.cross_entropy(x, t, reduction="none"), 0.8)
    for m, n, k, dtype in ((128, 128, 128, torch.float32), (512, 512, 512, torch.float32), (1024, 1024, 1024, torch.float32),
                           (2048, 2048, 2048, torch.float32), (128, 3072, 768, torch.float32), (1000, 1000, 1000, torch.float32),
                           (1024, 1024, 1024, torch.bfloat16), (1024, 1024, 1024, torch.float16)):
        a, b, c = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype), torch.empty(m, n, dtype=dtype)
        for bm, bn, bk in ((64, 64, 32), (128, 128, 64)):
            if m < bm or (bm == 128 and m != 1024):
                continue
            yield (f"matmul {m}x{n}x{k} {SHORT[dtype]} {bm}/{bn}/{bk}", "matmul", dict(BM=bm, BN=bn, BK=bk, GROUP=8),
                   [a, b, c, m, n, k, k, 1, n, 1, n, 1], (cdiv(m, bm) * cdiv(n, bn),), c, lambda a=a, b=b: torch.mm(a, b), None)
    for heads, seq, d, causal, dtype in ((12, 512, 64, False, torch.float32), (12, 1024, 64, True, torch.float32),
                                         (8, 1024, 128, False, torch.float32), (12, 1024, 64, True, torch.bfloat16)):
        q, k, v, out = (torch.randn(heads, seq, d).to(dtype) for _ in range(4))
        for bm, bn in ((64, 64), (128, 64)):
            yield (f"attention {heads}x{seq}x{d}{' causal' if causal else ''} {SHORT[dtype]} {bm}/{bn}", "attention",
                   dict(BM=bm, BN=bn, D=d, CAUSAL=causal), [q, k, v, out, seq * d, seq, d ** -0.5], (cdiv(seq, bm), heads), out,
                   lambda q=q, k=k, v=v, c=causal: F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=c)[0], None)


def described(name, args, constexprs):
    """The kernel as `neso kernel` takes it."""
    command = [f"{SOURCE}:{name}", "--signature", signature(args)]
    for key, value in constexprs.items():
        command += ["--constexpr", f"{key}={value}"]
    return command


class Kernel:
    def __init__(self, build, library, name, args, constexprs, directory, threads):
        package = Path(directory) / f"{name}{len(os.listdir(directory))}.neso"
        command = [build / "bin/neso", "kernel", "compile", *described(name, args, constexprs), "-o", package]
        # What Triton's own launcher would see: sizes that 16 divides.
        out = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if out.returncode:
            raise RuntimeError(out.stderr)
        self.program = library.load(package, threads)
        self.name = name.encode()

    def bind(self, args, grid):
        self.args = (Arg * len(args))(*[pack(a) for a in args])
        self.grid = (ctypes.c_uint32 * 3)(*(list(grid) + [1] * (3 - len(grid))))
        self.call = self.program.library.api.neso_kernel_launch
        self.count = ctypes.c_size_t(len(args))

    def run(self):
        if self.call(self.program.context, self.name, self.grid, self.args, self.count):
            self.program.library.check(1)


# With one thread everything runs on the calling one, and its processor time tells the same on a shared machine as on an idle one.
clock = time.perf_counter


def once(f, repeat):
    start = clock()
    for _ in range(repeat):
        f()
    return (clock() - start) * 1e3 / repeat


def measure(functions, rounds):
    """Alternates; a list of times in milliseconds for each function. Each round takes the best of a few bursts."""
    repeats = []
    for f in functions:
        f(), f()
        repeats.append(max(1, int(2 / max(once(f, 2), 1e-3))))
    times = [[] for _ in functions]
    for _ in range(rounds):
        best = [float("inf")] * len(functions)
        for _ in range(3):
            for i, f in enumerate(functions):
                best[i] = min(best[i], once(f, repeats[i]))
        for i, t in enumerate(best):
            times[i].append(t)
    return times


def triton_compile_ms(name, args, constexprs):
    """Triton's own time from source to a cubin for sm_90, without what it has cached; None without the wheel."""
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        import triton_kernels
    except ImportError:
        return None
    kernel = getattr(triton_kernels, name)
    types = dict(zip(kernel.arg_names, signature(args).split(", ")))
    types.update({k: "constexpr" for k in constexprs})
    places = {(kernel.arg_names.index(k),): v for k, v in constexprs.items()}
    with tempfile.TemporaryDirectory() as cache:
        triton.knobs.cache.dir = cache
        source = triton.compiler.ASTSource(kernel, types, places)
        start = time.perf_counter()
        triton.compile(source, target=GPUTarget("cuda", 90, 32))
        return (time.perf_counter() - start) * 1e3


def compile_times(build, kernels, rounds):
    """One kernel of each name: from source to machine code."""
    neso, rows = str(build / "bin/neso"), []

    def fastest(command):
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            times.append((time.perf_counter() - start) * 1e3)
        return min(times)

    empty = fastest([neso, "--version"])
    print(f"from source, ms (a process that does nothing: {empty:.1f})")
    for name, args, constexprs in kernels:
        kernel = described(name, args, constexprs)
        with tempfile.TemporaryDirectory() as out:
            code = fastest([neso, "kernel", "compile", *kernel, "-o", f"{out}/k.neso"])
        front = fastest([neso, "kernel", "emit", *kernel, "--stage", "ttir"])
        theirs = triton_compile_ms(name, args, constexprs)
        text = f"{name:42s} machine code {code:6.1f}  front end {front - empty:5.1f}"
        print(text + (f"  Triton to a cubin {theirs:7.1f} ({theirs / code:.1f})" if theirs else ""), flush=True)
        rows.append(dict(case=f"compile {name}", ours_ms=code, front_ms=front - empty, triton_ms=theirs))
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.threads == 1:
        global clock
        clock = time.thread_time
    torch.manual_seed(0)
    library = Library(options.build / "lib/libneso.so")
    rows, compiled, limit = [], {}, Limit()
    with tempfile.TemporaryDirectory() as directory, torch.no_grad():
        for label, name, constexprs, args, grid, out, torch_fn, goal in cases():
            if options.only not in label:
                continue
            kernel = Kernel(options.build, library, name, args, constexprs, directory, options.threads)
            kernel.bind(args, grid)
            kernel.run()
            expected = torch_fn()
            error = ((out.double() - expected.double()).abs() / expected.double().abs().clamp(min=1)).max().item()
            peers = [torch_fn]
            if goal and not options.no_compile:
                torch._dynamo.reset()
                peers.append(torch.compile(torch_fn))
                peers[1]()
            times = measure([kernel.run] + peers, options.rounds)
            ratios = [statistics.median(p / o for p, o in zip(peer, times[0])) for peer in times[1:]]
            need = goal or 0.5
            row = dict(case=label, ours_ms=min(times[0]), eager_ms=min(times[1]), eager_ratio=ratios[0], error=error)
            bound, of = limit.seconds(torch_fn, [a for a in args if a is not out])
            row.update(limit_ms=bound * 1e3, limit_of=of)
            text = f"{label:42s} ours {min(times[0]):8.3f} ms, {bound * 1e3 / min(times[0]):4.0%} of {of}  eager {min(times[1]):8.3f} ({ratios[0]:.2f})"
            if len(peers) > 1:
                row.update(compile_ms=min(times[2]), compile_ratio=ratios[1])
                text += f"  compile {min(times[2]):8.3f} ({ratios[1]:.2f})"
            row["met"] = ratios[-1] >= need
            print(f"{text}  error {error:.0e}  {'ok' if row['met'] else f'BELOW {need}'}", flush=True)
            rows.append(row)
            compiled.setdefault(name, (name, args, constexprs))
    met = sum(r["met"] for r in rows)
    print(f"{met} of {len(rows)} at their goal")
    rows += compile_times(options.build, compiled.values(), options.rounds)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
