#!/usr/bin/env python3
"""How fast is compiled code on a GPU beside torch.compile and Triton? Compile where the compiler is, run where the GPU is.

    bench/gpu/bench_gpu.py pack OUT [--only REGEX] [--build build/release]      export, compile for sm_90, write OUT/bench.tar.gz
    bench/gpu/bench_gpu.py run OUT --json REPORT [--only REGEX] [--peers none|all]

One process, both sides on one stream, in turns: five rounds, each the median of repeated runs with a flushed L2, timed by events. The
report has milliseconds of both, their ratio (above 1: Neso is faster), GB/s or TFLOP/s, and the copy bandwidth measured beside them.
Before timing, results are compared with eager's.
"""
import json
import math
import re
import statistics
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "bench" / "models"), str(ROOT / "bench" / "kernels"), str(ROOT / "tools")]
import gpu_packing  # noqa: E402
from gpu_timing import cold_median  # noqa: E402
import programs  # noqa: E402


def pack(options):
    import torch
    packing = gpu_packing.Pack(options, "bench")
    work, report = packing.folder, {}

    def compile_to(name, command):
        report[name] = packing.compile(command, name)
        print(name, report[name], flush=True)

    for name, (function, makers, _) in (programs.LINES | programs.MORE).items():
        if re.search(options.only, name):
            torch.export.save(torch.export.export(programs.Line(function), tuple(programs.inputs_of(makers))), work / "model.pt2")
            compile_to("line_" + name, ["compile", work / "model.pt2"])
    for name, (signature, configs, hints) in programs.KERNELS.items():
        cases = programs.measured(name, options.only)
        for i, config in enumerate(configs):
            if not any(programs.fits(name, config, case[len(name):]) for case in cases):
                continue
            flags = ["--signature", signature, *sum((["--hint", f"{h}=divisible_by_16"] for h in hints), [])]
            for key, value in config.items():
                flags += [f"--{key.replace('_', '-')}", value] if key.startswith("num_") else ["--constexpr", f"{key}={value}"]
            compile_to(f"kernel_{name}_{i}", ["kernel", "compile", f"{ROOT / 'bench/kernels/gpu_kernels.py'}:{programs.FUNCTIONS.get(name, name)}", *flags])
    for name, (_, dtype, makers) in programs.MODELS.items():
        if re.search(options.only, name):
            model = programs.model_of(name)
            inputs = [x.to(next(model.parameters()).dtype) if x.is_floating_point() else x for x in programs.inputs_of(makers)]
            torch.export.save(torch.export.export(model, tuple(inputs)), work / "model.pt2")
            compile_to("model_" + name, ["compile", work / "model.pt2"])
            if dtype == torch.float32:
                compile_to(f"model_{name}_tf32", ["compile", work / "model.pt2", "--option", "f32-products=tf32"])
    (work / "model.pt2").unlink(missing_ok=True)
    (work / "pack.json").write_text(json.dumps({"commit": gpu_packing.commit(options), "compiled": report}))
    print(packing.finish())


class Bench:
    def __init__(self, options):
        import torch
        import neso_library
        self.options, self.torch, self.neso = options, torch, neso_library
        self.folder = gpu_packing.unpacked(options.out, "bench")
        self.packed = json.loads((self.folder / "pack.json").read_text())
        self.library = neso_library.Library(self.folder / gpu_packing.RUNTIME)
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        self.cold = torch.empty(1 << 28, dtype=torch.int8, device="cuda")
        self.report = {"commit": self.packed["commit"], "device": torch.cuda.get_device_name(0), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"), "mode": options.mode,
                       "lines": {}, "more": {}, "kernels": {}, "models": {}}
        a = torch.rand(1 << 28, device="cuda")
        b = torch.empty_like(a)
        self.report["copy_gbs"] = round(2 * a.numel() * 4 / self.times([lambda: b.copy_(a)])[0]["median"] / 1e6, 1)
        x = torch.rand(programs.ROWS, programs.COLUMNS, device="cuda")
        y = torch.empty_like(x)
        self.report["copy_gbs_134mb"] = round(2 * x.numel() * 4 / self.times([lambda: y.copy_(x)])[0]["median"] / 1e6, 1)
        print(f"copy {self.report['copy_gbs']} GB/s, of 134 MB {self.report['copy_gbs_134mb']} GB/s", flush=True)
        del a, b

    def times(self, runs, rounds=5, budget_ms=60):
        """Milliseconds of each of `runs`, taken in turns."""
        torch = self.torch
        results = [[] for _ in runs]
        for run in runs:
            for _ in range(4):
                run()
        torch.cuda.synchronize()
        repeats = []
        for run in runs:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            end.synchronize()
            repeats.append(max(5, min(50, int(budget_ms / max(begin.elapsed_time(end), 0.01)))))
        for _ in range(rounds):
            for run, count, result in zip(runs, repeats, results):
                result.append(cold_median(run, count, self.cold))
        return [{"median": statistics.median(r), "min": min(r), "spread": (max(r) - min(r)) / statistics.median(r)} for r in results]

    def load(self, name, **options):
        return self.library.load(self.folder / (name + ".neso"), device=self.neso.CUDA, stream=self.stream.cuda_stream, **options)

    def close(self, got, want, tolerance):
        """'' or how far off."""
        if want.dtype.is_floating_point:
            error = (got.double() - want.double()).norm() / want.double().norm().clamp(min=1e-30)
            return "" if error <= tolerance else f"relative error {float(error):.3g}"
        wrong = float((got != want).double().mean())
        return "" if wrong <= 1e-3 else f"{100 * wrong:.1f} % of the elements differ"

    def entry(self, section, name, ours, peer, wrong, library=None, **more):
        runs = [ours] + ([peer] if peer else []) + ([library] if library else [])
        t = self.times(runs)
        row = {"ms": round(t[0]["median"], 5), "spread": round(t[0]["spread"], 3)}
        if peer:
            row |= {"peer_ms": round(t[1]["median"], 5), "ratio": round(t[1]["median"] / t[0]["median"], 3)}
        if library:
            row["library_ms"] = round(t[-1]["median"], 5)
        if wrong:
            row["wrong"] = wrong
        for key, (amount, scale) in more.items():
            row[key] = round(amount / t[0]["median"] / scale, 1)
            if peer:
                row["peer_" + key] = round(amount / t[1]["median"] / scale, 1)
        self.report[section][name] = row
        print(section, name, row, flush=True)

    def lines(self):
        torch = self.torch
        for name, (function, makers, moved) in programs.LINES.items():
            inputs = [x.cuda() for x in programs.inputs_of(makers)]
            want = function(*inputs)
            want = list(want) if isinstance(want, tuple) else [want]
            program = self.load("line_" + name)
            outputs = [torch.full_like(w, 77 if not w.dtype.is_floating_point else float("nan")) for w in want]
            program.bind(inputs, outputs)
            program.run_async()
            torch.cuda.synchronize()
            wrong = "" if name == "dropout" else next((e for e in (self.close(o, w, programs.tolerance_of(name)) for o, w in zip(outputs, want)) if e), "")
            peer = None
            if self.options.peers == "all":
                torch._dynamo.reset()
                compiled = torch.compile(function)
                compiled(*inputs)
                peer = lambda: compiled(*inputs)  # noqa: E731
            self.entry("more" if name in programs.MORE else "lines", name, program.run_async, peer, wrong, gbs=(moved, 1e6))
            program.free()

    def kernels(self):
        torch = self.torch
        import triton
        import gpu_kernels
        A = self.neso.Argument
        g = torch.Generator(device="cuda").manual_seed(5)
        rand = lambda *s, dtype=torch.float32: (torch.rand(*s, device="cuda", generator=g) * 2 - 1).to(dtype)  # noqa: E731
        R, C = programs.ROWS, programs.COLUMNS
        cd = triton.cdiv
        x, y, o, w, b = rand(R, C), rand(R, C), rand(R, C), rand(C), rand(C)
        cases = [("add", "", [x, y, o, R * C], lambda k: (cd(R * C, k["BLOCK"]), 1, 1), lambda: x + y, {"gbs": (12 * R * C, 1e6)}, 1e-6),
                 ("softmax", "", [x, o, C, C], lambda k: (R, 1, 1), lambda: torch.softmax(x, 1), {"gbs": (8 * R * C, 1e6)}, 1e-5),
                 ("layer_norm", "", [x, w, b, o, C, C, 1e-5], lambda k: (R, 1, 1), lambda: torch.nn.functional.layer_norm(x, (C,), w, b), {"gbs": (8 * R * C, 1e6)}, 1e-5),
                 ("row_sum", "", [x, torch.empty(R, device="cuda"), C, C], lambda k: (R, 1, 1), lambda: x.sum(1), {"gbs": (4 * R * C, 1e6)}, 1e-4),
                 ("transpose", "", [x, torch.empty(C, R, device="cuda"), R, C], lambda k: (cd(R, k["BM"]), cd(C, k["BN"]), 1), lambda: x.t(), {"gbs": (8 * R * C, 1e6)}, 0)]
        for suffix, (m, n, k) in programs.GEMMS.items():
            if not re.search(self.options.only, "gemm" + suffix):
                continue
            p, q, d = rand(m, k, dtype=torch.bfloat16), rand(k, n, dtype=torch.bfloat16), torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
            cases.append(("gemm", suffix, [p, q, d, m, n, k], lambda c, m=m, n=n: (cd(m, c["BM"]) * cd(n, c["BN"]), 1, 1), lambda p=p, q=q: p @ q,
                          {"tflops": (2 * m * n * k, 1e9), "gbs": (2 * (m * k + k * n + m * n), 1e6)}, 1e-2))
        libraries = {}
        for kind, (operand, result, _, _) in programs.KINDS.items():
            for suffix in programs.CASES[kind]:
                if not re.search(self.options.only, kind + suffix):
                    continue
                m, n, k = programs.GEMMS[suffix]
                p, q = (self.operand(operand, g, *s) for s in ((m, k), (n, k)))
                d = torch.empty(m, n, device="cuda", dtype={"bf16": torch.bfloat16, "i32": torch.int32, "fp32": torch.float32}[result])
                cases.append((kind, suffix, [p, q, d, m, n, k], lambda c, m=m, n=n: (cd(m, c["BM"]) * cd(n, c["BN"]), 1, 1),
                              lambda p=p, q=q, d=d: (p.double() @ q.double().t()).to(d.dtype), {"tflops": (2 * m * n * k, 1e9)},
                              {"fp32": 2e-3}.get(operand, 1e-2)))
                libraries[kind + suffix] = self.library_product(operand, p, q)
        heads, length, size = 64, 4096, 128
        q, k, v = (rand(heads, length, size, dtype=torch.bfloat16) for _ in range(3))
        for causal in (False, True):
            cases.append(("attention", "_causal" if causal else "", [q, k, v, torch.empty_like(q), length * size, length, size ** -0.5], lambda c: (cd(length, c["BM"]), heads, 1),
                          lambda causal=causal: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
                          {"tflops": (4 * heads * length * length * size // (2 if causal else 1), 1e9)}, 2e-2))
        outputs = {"add": 2, "softmax": 1, "layer_norm": 3, "row_sum": 1, "transpose": 1, "gemm": 2, "attention": 3} | {kind: 2 for kind in programs.KINDS}
        for name, suffix, args, grid, reference, figures, tolerance in cases:
            if not re.search(self.options.only, name + suffix):
                continue
            signature, configs, _ = programs.KERNELS[name]
            function = programs.FUNCTIONS.get(name, name)
            out, want = args[outputs[name]], reference()
            best, tried = {}, []
            for i, config in enumerate(configs):
                if not programs.fits(name, config, suffix):
                    continue
                label = f"kernel_{name}_{i}"
                tried.append(dict(config))
                given = [A(ptr=a.data_ptr()) if hasattr(a, "data_ptr") else A(f32=a) if isinstance(a, float) else A(i64=a) for a in args]
                if "package" in self.packed["compiled"].get(label, {}):
                    program = self.load(label)
                    ours = lambda p=program, given=given, c=config: p.launch(function, grid(c), given)  # noqa: E731
                    out.fill_(float("nan") if out.dtype.is_floating_point else 77)
                    ours()
                    torch.cuda.synchronize()
                    wrong = self.close(out, want, tolerance)
                    ms = self.times([ours], rounds=1, budget_ms=10)[0]["median"]
                    tried[-1]["ms"] = round(ms, 5)
                    if wrong:
                        print(name, suffix, config, wrong)
                    if "ours" not in best or (bool(wrong), ms) < best["ours"][:2]:
                        best["ours"] = (bool(wrong), ms, ours, wrong, config)
                if self.options.peers == "all":
                    try:
                        values = config | ({"SUM": getattr(triton.language, config["SUM"][3:])} if "SUM" in config else {})
                        peer = lambda c=values: getattr(gpu_kernels, function)[grid(c)](*args, **c)  # noqa: E731
                        peer()
                        ms = self.times([peer], rounds=1, budget_ms=10)[0]["median"]
                        tried[-1]["peer_ms"] = round(ms, 5)
                        if "peer" not in best or ms < best["peer"][1]:
                            best["peer"] = (False, ms, peer, "", config)
                    except Exception as e:  # noqa: BLE001: a configuration that Triton cannot run
                        print(name, config, "Triton:", str(e)[:100])
            if "ours" in best:
                self.entry("kernels", name + suffix, best["ours"][2], best["peer"][2] if "peer" in best else None, best["ours"][3],
                           library=libraries.get(name + suffix), **figures)
                self.report["kernels"][name + suffix] |= {"config": best["ours"][4], "peer_config": best.get("peer", [None] * 5)[4], "tried": tried}

    def operand(self, kind, generator, *shape):
        """A matrix of a type of Triton's signatures."""
        torch = self.torch
        if kind == "i8":
            return torch.randint(-127, 128, shape, device="cuda", generator=generator, dtype=torch.int8)
        types = {"fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2, "fp32": torch.float32, "bf16": torch.bfloat16}
        return (torch.rand(*shape, device="cuda", generator=generator) * 2 - 1).to(types[kind])

    def library_product(self, kind, a, b):
        """A B^T by cuBLAS, in the same type; None where it has none."""
        torch = self.torch
        one = torch.ones((), device="cuda")

        def run():
            if kind == "i8":
                return torch._int_mm(a, b.t())
            if kind == "fp32":
                torch.backends.cuda.matmul.allow_tf32 = True
                result = a @ b.t()
                torch.backends.cuda.matmul.allow_tf32 = False
                return result
            if kind == "bf16":
                return a @ b.t()
            return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)
        try:
            run()
        except (RuntimeError, ValueError) as e:  # it has no product of two e5m2
            print("cuBLAS:", str(e)[:100])
            return None
        return run

    def models(self):
        torch = self.torch
        for name, (_, dtype, makers) in programs.MODELS.items():
            if not re.search(self.options.only, name) or "package" not in self.packed["compiled"].get("model_" + name, {}):
                continue
            inputs = [(x.to(dtype) if x.is_floating_point() else x).cuda() for x in programs.inputs_of(makers)]
            model = programs.model_of(name).cuda()
            with torch.no_grad():
                want = model(*inputs)
                program = self.load("model_" + name)
                out = torch.full_like(want, float("nan"))
                program.bind(inputs, [out])
                program.run_async()
                torch.cuda.synchronize()
                wrong = self.close(out, want, 3e-2 if dtype == torch.bfloat16 else 5e-3)
                peer = None
                if self.options.peers == "all":
                    torch._dynamo.reset()
                    compiled = torch.compile(model, mode=self.options.mode)
                    for _ in range(3):
                        compiled(*inputs)
                    peer = lambda: compiled(*inputs)  # noqa: E731
                self.entry("models", name, program.run_async, peer, wrong)
                stats = program.device_stats()
                row = self.report["models"][name]
                products = program.product_count()
                if products:
                    row["library"] = {"products": stats.library_products, "of": products, "path": stats.library and stats.library.decode(), "version": stats.library_version}
                if stats.library_products:
                    # The same package with our own kernels for the products that it leaves to cuBLASLt.
                    own = self.load("model_" + name, cublas="")
                    own.bind(inputs, [out])
                    row["own_products_ms"] = round(self.times([own.run_async])[0]["median"], 5)
                    own.free()
                if dtype == torch.float32:
                    row |= self.at_both_precisions(name, model, inputs, out)
                row |= {"graph_streams": stats.graph_streams, "graph_launches": stats.graph_launches, "kernel_launches": stats.kernel_launches, "box_launches": stats.box_launches, "compile_s": self.packed["compiled"]["model_" + name]["seconds"]}
                program.free()
            del model, peer

    def at_both_precisions(self, name, model, inputs, out):
        """A model in f32: ours keeps about f32's accuracy, torch's default lets convolutions round to tf32. Ours so, and torch without."""
        torch = self.torch
        rounded = self.load(f"model_{name}_tf32")
        rounded.bind(inputs, [out])
        runs = {"tf32_ms": rounded.run_async}
        if self.options.peers == "all":
            torch.backends.cudnn.allow_tf32 = False
            torch._dynamo.reset()
            exact = torch.compile(model, mode=self.options.mode)
            for _ in range(3):
                exact(*inputs)
            runs["peer_f32_ms"] = lambda: exact(*inputs)
        row = {key: round(t["median"], 5) for key, t in zip(runs, self.times(list(runs.values())))}
        torch.backends.cudnn.allow_tf32 = True
        rounded.free()
        print("models", name, row, flush=True)
        return row

    def run(self):
        for section in (self.lines_selected, self.kernels, self.models):
            try:
                section()
            except Exception:  # noqa: BLE001: the other sections still count
                traceback.print_exc()
            self.write()

    def lines_selected(self):
        all_lines = programs.LINES | programs.MORE
        for name in all_lines:
            packed = self.packed["compiled"].get("line_" + name, {"why": "not packed"})
            if not re.search(self.options.only, name):
                continue
            if "package" not in packed:
                print("lines", name, "not compiled:", packed["why"][:120])
                continue
            programs.LINES = {name: all_lines[name]}
            try:
                self.lines()
            except Exception as e:  # noqa: BLE001
                print("lines", name, "failed:", str(e)[:300], flush=True)
                if "CUDA error" in str(e) or "E0839" in str(e):
                    raise
        programs.LINES = all_lines

    def write(self):
        ratios = [r["ratio"] for r in self.report["lines"].values() if "ratio" in r]
        if ratios:
            self.report["lines_geomean"] = round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 3)
        Path(self.options.json).write_text(json.dumps(self.report, indent=1) + "\n")


def main():
    parser, _, _, r = gpu_packing.verbs(__doc__)
    r.add_argument("--peers", choices=["none", "all"], default="all")
    r.add_argument("--mode", choices=["reduce-overhead", "max-autotune"], default="reduce-overhead", help="torch.compile's, for models")
    options = parser.parse_args()
    if options.verb == "pack":
        pack(options)
    else:
        bench = Bench(options)
        bench.run()
        print(json.dumps({k: v for k, v in bench.report.items() if "geomean" in k or "copy" in k}))


if __name__ == "__main__":
    main()
