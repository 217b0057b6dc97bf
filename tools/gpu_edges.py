#!/usr/bin/env python3
"""Are programs of dynamic shapes right on a GPU at awkward sizes: none, one, beside the tile, more than 2^31 elements?

    tools/gpu_edges.py pack OUT [--build build/release] [--arch sm_90] [--only REGEX]     exports, compiles; OUT/edges.tar.gz
    tools/gpu_edges.py run OUT --json REPORT [--only REGEX] [--huge]                      needs torch and a GPU, no compiler

Inputs and outputs lie on the GPU; the expected values are PyTorch's there, by the same function in float64 where it is float. --huge adds the
sizes beyond 2^31 elements (up to 60 GB of device memory). Each program runs in a process of its own: a trap costs the rest of that program's
sizes. Tolerance: 2e-3 of the largest value for f32, 2e-2 for reduced floats (sums of millions of elements), exact for integers.
"""
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.export import Dim

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "models"))
import gpu_packing  # noqa: E402

F = torch.nn.functional
SIZES = [0, 1, 2, 3, 31, 33, 127, 129, 1000, 1025, 4097, 65537]
ROWS = [(0, 7), (5, 1), (1, 1), (3, 33), (1, 4099), (33, 1000), (257, 129), (70001, 3), (2, 100003)]
LINE, TABLE = ("n",), ("n", "m")


def masked_mean(x, m):
    return (x * m).sum(-1) / m.sum(-1).clamp(min=1)


# name → (function, [(dtype, dims)], sizes, huge sizes). Dims are names of dynamic sizes, or numbers.
PROGRAMS = {
    "scale": (lambda x: x * 2 + 1, [("f32", LINE)], SIZES, []),
    "scale_i8": (lambda x: (x ^ 85) + 1, [("i8", LINE)], SIZES, [5_000_000_011]),
    "scale_bf16": (lambda x: (x * 3).relu(), [("bf16", LINE)], SIZES, [2_500_000_003]),
    "sum": (lambda x: x.sum(), [("f32", LINE)], SIZES, []),
    "sum_i8": (lambda x: x.sum(dtype=torch.int64), [("i8", LINE)], SIZES, [5_000_000_011]),
    "max_i8": (lambda x: (x.amax(0), x.amin(0)), [("i8", LINE)], SIZES[1:], [5_000_000_011]),
    "argmax": (lambda x: x.argmax(0), [("i32", LINE)], SIZES[1:], []),
    "mean_bf16": (lambda x: x.float().mean(), [("bf16", LINE)], SIZES[1:], [2_500_000_003]),
    "rows": (lambda x: (x.sum(1), x.amax(1, keepdim=True)), [("f32", TABLE)], ROWS[1:], []),
    "columns": (lambda x: x.sum(0), [("f32", TABLE)], ROWS, []),
    "columns_i8": (lambda x: x.sum(0, dtype=torch.int32), [("i8", TABLE)], ROWS, [(80_000, 40_001)]),
    "softmax": (lambda x: F.softmax(x, -1), [("f32", TABLE)], ROWS, []),
    "softmax_bf16": (lambda x: F.softmax(x, -1), [("bf16", TABLE)], ROWS, [(70_001, 32_003)]),
    "layer_norm": (lambda x: F.layer_norm(x, (64,)), [("f32", ("n", 64))], [(n,) for n in SIZES], []),
    "var": (lambda x: torch.var_mean(x, 1), [("f32", TABLE)], [s for s in ROWS if s[1] > 1], []),
    "transpose": (lambda x: x.t().contiguous() + 1, [("f32", TABLE)], ROWS, []),
    "transpose_i8": (lambda x: x.t().contiguous() + 1, [("i8", TABLE)], ROWS, [(50_000, 50_021)]),
    "broadcast": (lambda x, y: x[:, None] * y[None, :], [("f32", LINE), ("f32", ("m",))], ROWS, []),
    "broadcast_i8": (lambda x, y: x[:, None] + y[None, :], [("i8", LINE), ("i8", ("m",))], ROWS, [(60_001, 50_021)]),
    "cumsum": (lambda x: x.cumsum(-1), [("i64", TABLE)], ROWS, []),
    "cumsum_line": (lambda x: x.cumsum(0), [("i64", LINE)], SIZES, []),
    "sort": (lambda x: x.sort(-1)[0], [("i32", TABLE)], ROWS, []),
    "topk": (lambda x: x.topk(1, -1)[0], [("i32", TABLE)], ROWS[1:], []),
    "gather": (lambda x, i: x.gather(0, i.abs() % x.shape[0]), [("f32", LINE), ("i64", ("m",))], ROWS[1:], []),
    "index_add": (lambda x, i: torch.zeros(16, dtype=x.dtype, device=x.device).index_add(0, i.abs() % 16, x), [("i32", LINE), ("i64", LINE)], SIZES, []),
    "cat": (lambda x, y: torch.cat([x, y * 2]), [("f32", LINE), ("f32", ("m",))], ROWS, []),
    "flip": (lambda x: x.flip(0), [("i8", LINE)], SIZES, [3_000_000_019]),
    "matmul": (lambda x, w: x @ w, [("f32", ("n", 48)), ("f32", (48, 40))], [(n,) for n in SIZES], []),
    "matmul_bf16": (lambda x, w: F.gelu(x @ w), [("bf16", ("n", 64)), ("bf16", (64, 96))], [(n,) for n in SIZES], []),
    "matmul_inner": (lambda x, y: x @ y.t(), [("f32", ("n", "k")), ("f32", ("m", "k"))],
                     [(0, 5, 3), (1, 1, 1), (3, 0, 5), (17, 33, 65), (129, 65, 7), (1, 1000, 1), (300, 64, 257)], []),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), [("f32", (1, 2, "n", 32))], [(n,) for n in (1, 2, 31, 65, 129, 1000)], []),
    "conv": (lambda x, w: F.conv2d(x, w, padding=1), [("f32", ("n", 3, "h", 17)), ("f32", (8, 3, 3, 3))], [(0, 9), (1, 1), (3, 5), (2, 33), (5, 64)], []),
    "where_long": (lambda x, y: torch.where(x > y, x - y, y * 0.5), [("f32", LINE), ("f32", LINE)], SIZES, []),
    "masked_mean": (masked_mean, [("f32", TABLE), ("f32", TABLE)], ROWS[1:], []),
}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64}
# Inputs of several dims are given in the order of their dims' first appearance.


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def dims_of(specs):
    """The names of the dynamic sizes, in the order of their first appearance."""
    return list(dict.fromkeys(d for _, dims in specs for d in dims if isinstance(d, str)))


def make(spec, sizes, device, generator):
    dtype, shape = DTYPES[spec[0]], [sizes.get(d, d) for d in spec[1]]
    if dtype.is_floating_point:
        return torch.rand(shape, device=device, dtype=torch.bfloat16 if dtype == torch.bfloat16 else torch.float32, generator=generator) * 2 - 1
    return torch.randint(-100, 100, shape, device=device, dtype=dtype, generator=generator)


def pack(options):
    packing = gpu_packing.Pack(options, "edges")
    failed = 0
    for name, (function, specs, sizes, _) in PROGRAMS.items():
        if not re.search(options.only, name):
            continue
        names = dims_of(specs)
        example = [make(s, {d: 7 + 4 * i for i, d in enumerate(names)}, "cpu", torch.Generator().manual_seed(0)) for s in specs]
        least = [min(s) for s in zip(*(s if isinstance(s, tuple) else (s,) for s in sizes))]
        ranges = {d: Dim(d, min=low) for d, low in zip(names, least)}
        dynamic = (tuple({i: ranges[d] for i, d in enumerate(dims) if isinstance(d, str)} for _, dims in specs),)
        with tempfile.TemporaryDirectory() as scratch:
            torch.export.save(torch.export.export(Model(function), tuple(example), dynamic_shapes=dynamic), Path(scratch) / "model.pt2")
            done = packing.compile(["compile", Path(scratch) / "model.pt2"], name)
        failed += "refused" in done
        print(f"{name}: {done.get('why', 'ok')}", flush=True)
    (packing.folder / "pack.json").write_text(json.dumps({"commit": gpu_packing.commit(options), "arch": options.arch}))
    print(packing.finish())
    return 1 if failed else 0


def trouble(got, want, dtype):
    """'' or how got is not want, compared piece by piece: the tensors may be half of the GPU's memory."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"is {got.dtype} {list(got.shape)}, expected {want.dtype} {list(want.shape)}"
    got, want = got.reshape(-1), want.reshape(-1)
    bound = 0.0 if not want.is_floating_point() else (2e-2 if dtype == torch.bfloat16 else 2e-3)
    for begin in range(0, want.numel(), 1 << 28):
        g, w = got[begin:begin + (1 << 28)], want[begin:begin + (1 << 28)]
        if bound == 0:
            bad = g != w
        else:
            limit = bound * max(1.0, float(w.float().abs().nan_to_num(0, 0, 0).max()))
            bad = ~(((g.float() - w.float()).abs() <= limit) | (g == w) | (g.isnan() & w.isnan()))
        if bool(bad.any()):
            at = int(bad.to(torch.int8).argmax())
            return f"{int(bad.sum())} elements from {begin + at}: {g[at].item()} instead of {w[at].item()}"
    return ""


def run_one(name, options):
    """What each size of one program gives: size → '' or why not."""
    import neso_library
    folder = Path(options.out) / "edges"
    function, specs, sizes, huge = PROGRAMS[name]
    program = neso_library.Library(folder / gpu_packing.RUNTIME).load(folder / f"{name}.neso", device=neso_library.CUDA)
    names, results = dims_of(specs), {}
    for size in list(sizes) + (huge if options.huge else []):
        given = dict(zip(names, size if isinstance(size, tuple) else (size,)))
        generator = torch.Generator("cuda").manual_seed(1)
        inputs = [make(s, given, "cuda", generator) for s in specs]
        # In float64 where that fits: PyTorch's own float32 sums and products need not be nearer than ours.
        small = all(t.numel() < 1 << 24 for t in inputs)
        wide = [t.double() if small and t.dtype == torch.float32 else t for t in inputs]
        want = function(*wide)
        want = list(want) if isinstance(want, tuple) else [want]
        want = [w.float() if w.dtype == torch.float64 else w for w in want]
        outputs = [torch.zeros_like(w, memory_format=torch.contiguous_format) for w in want]
        try:
            torch.cuda.synchronize()
            for _ in range(2):
                program.bind(inputs, outputs)
                program.run()
            why = [trouble(g, w, DTYPES[specs[0][0]]) for g, w in zip(outputs, want)]
            results[str(size)] = next((w for w in why if w), "")
        except RuntimeError as error:
            results[str(size)] = str(error)[:300]
            if "E0839" in str(error) or "E0840" in str(error) or "CUDA error" in str(error):
                break
        del inputs, wide, want, outputs
        torch.cuda.empty_cache()
    return results


def run(options):
    folder = gpu_packing.unpacked(options.out, "edges")
    report = json.loads((folder / "pack.json").read_text()) | {"device": torch.cuda.get_device_name(0), "date": time.strftime("%Y-%m-%d"), "right": 0, "failures": {}}
    chosen = [name for name in PROGRAMS if re.search(options.only, name) and (folder / f"{name}.neso").exists()]
    # Small sizes in a few processes at a time; huge ones alone, for their memory.
    waiting, running = list(chosen), []

    def reap(process, name):
        text, log = process.communicate()
        line = next((x[7:] for x in text.splitlines() if x.startswith("RESULT ")), None)
        results = json.loads(line) if line else {"": f"the process died ({process.returncode}): {log[-300:]}"}
        report["right"] += sum(1 for why in results.values() if not why)
        for size, why in results.items():
            if why:
                report["failures"][f"{name} {size}"] = why
                print(f"  {name} {size}: {why}"[:options.width], flush=True)

    while waiting or running:
        alone = waiting and options.huge and PROGRAMS[waiting[0]][3]
        if waiting and (not running if alone else len(running) < options.jobs):
            name = waiting.pop(0)
            command = [sys.executable, __file__, "one", options.out, "--only", name] + ["--huge"] * bool(alone)
            running.append((subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), name))
            if not alone:
                continue
        reap(*running.pop(0))
    Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    print(f"{report['right']} right, {len(report['failures'])} wrong")
    return 1 if report["failures"] else 0


def main():
    parser, verbs, _, r = gpu_packing.verbs(__doc__)
    r.add_argument("--huge", action="store_true", help="also sizes beyond 2^31 elements")
    r.add_argument("--jobs", type=int, default=6)
    r.add_argument("--width", type=int, default=200, help="letters of a line")
    one = verbs.add_parser("one")
    one.add_argument("out")
    one.add_argument("--only")
    one.add_argument("--huge", action="store_true")
    options = parser.parse_args()
    if options.verb == "one":
        print("RESULT " + json.dumps(run_one(options.only, options)), flush=True)
        return 0
    return pack(options) if options.verb == "pack" else run(options)


if __name__ == "__main__":
    sys.exit(main())
