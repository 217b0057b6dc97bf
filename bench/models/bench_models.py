#!/usr/bin/env python3
"""Speed of compiled models (anchors.py and zoo.py) beside every peer that is installed, measured alternately in one process.

    bench/models/bench_models.py [--build build/release] [--only REGEX] [--peers eager,inductor,aoti,onnxruntime,openvino]
                                 [--rounds 7] [--threads 2] [--gemm] [--compile-times] [--json FILE]

Each round runs every engine for about --slice seconds, one after the other; a round's figure is its median. Printed: the minimum and
the median over the rounds, in milliseconds, the ratio of each peer's median to Neso's (above 1: Neso is faster), and the share of what the machine
can do (machine_limit.py). --gemm adds single matrix products; --compile-times adds how long a package takes, cold. Exit code 1 if a result is
wrong. Work files (exported programs, peers' packages) go to --work, outside the repository, and are used again.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch  # noqa: E402

import anchors  # noqa: E402
import machine_limit  # noqa: E402
import neso_library  # noqa: E402
import zoo  # noqa: E402

PEERS = ["eager", "inductor", "aoti", "onnxruntime", "openvino"]


def as_list(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


class Bench:
    """One program: its model, inputs and files."""

    def __init__(self, name, factory, inputs, args, limit):
        self.name, self.args = name, args
        self.model = anchors.build(factory)
        torch.manual_seed(2)
        self.inputs = inputs()
        self.folder = Path(args.work) / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.pt2 = self.folder / "model.pt2"
        self.seconds = {}
        self.limit = limit.seconds(lambda: self.model(*self.inputs), [self.weights_read(), self.inputs])
        if not self.pt2.exists():
            torch.export.save(torch.export.export(self.model, self.inputs, strict=False), self.pt2)
        with torch.no_grad():
            self.expected = as_list(self.model(*self.inputs))

    def weights_read(self):
        """The weights that a call reads whole: not the table of an embedding, unless another module multiplies by it."""
        modules = [m for m in self.model.modules() if not isinstance(m, (torch.nn.Embedding, torch.nn.EmbeddingBag))]
        return [t for m in modules for t in [*m.parameters(recurse=False), *m.buffers(recurse=False)]]

    # Each engine gives a function without arguments that runs the model once and returns a tensor or a sequence of them.

    def neso(self):
        package = self.folder / "model.neso"
        package.unlink(missing_ok=True)
        begun = time.perf_counter()
        done = subprocess.run([Path(self.args.build) / "bin" / "neso", "compile", self.pt2, "-o", package], capture_output=True, text=True)
        self.seconds["neso"] = time.perf_counter() - begun
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[:300])
        program = neso_library.Library(Path(self.args.build) / "lib" / "libneso.so").load(package, self.args.threads)
        program.bind(self.inputs)

        def run():
            program.run()
            return program
        return run

    def eager(self):
        return lambda: self.model(*self.inputs)

    def inductor(self):
        import torch._inductor.config as config
        config.freezing = True
        torch._dynamo.reset()
        begun = time.perf_counter()
        compiled = torch.compile(self.model)
        compiled(*self.inputs)
        self.seconds["inductor"] = time.perf_counter() - begun
        return lambda: compiled(*self.inputs)

    def aoti(self):
        package = self.folder / "aoti.pt2"
        if not package.exists() or self.args.compile_times:
            import torch._inductor.config as config
            config.freezing = False
            with tempfile.TemporaryDirectory() as cache:
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
                begun = time.perf_counter()
                torch._inductor.aoti_compile_and_package(torch.export.load(self.pt2), package_path=str(package))
                self.seconds["aoti"] = time.perf_counter() - begun
                del os.environ["TORCHINDUCTOR_CACHE_DIR"]
        loaded = torch._inductor.aoti_load_package(str(package))
        return lambda: loaded(*self.inputs)

    def onnx(self):
        path = self.folder / "model.onnx"
        if not path.exists():
            torch.onnx.export(self.model, self.inputs, str(path), dynamo=True, verbose=False, external_data=False)
        return path

    def onnxruntime(self):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.args.threads
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(self.onnx()), options, providers=["CPUExecutionProvider"])
        feeds = {value.name: tensor.numpy() for value, tensor in zip(session.get_inputs(), self.inputs)}
        return lambda: [torch.from_numpy(value) for value in session.run(None, feeds)]

    def openvino(self):
        import openvino
        core = openvino.Core()
        # f32 throughout, as the others.
        compiled = core.compile_model(str(self.onnx()), "CPU", {"INFERENCE_NUM_THREADS": self.args.threads,
                                                                "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"})
        request = compiled.create_infer_request()
        feeds = [tensor.numpy() for tensor in self.inputs]

        def run():
            request.infer(feeds, share_inputs=True)
            return [torch.from_numpy(value.data) for value in request.output_tensors]
        return run

    def check(self, result):
        results = result.results() if isinstance(result, neso_library.Program) else as_list(result)
        if len(results) != len(self.expected):
            return f"{len(results)} results, expected {len(self.expected)}"
        for got, expected in zip(results, self.expected):
            if got.shape != expected.shape:
                return f"shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
            scale = float(expected.abs().max()) or 1.0
            error = float((got.double() - expected.double()).abs().max()) / scale
            # Not "error > limit", which NaN is not.
            if not error <= (2e-2 if expected.dtype == torch.bfloat16 else 2e-3):
                return f"off by {error:.2g} of the largest value"
        return None

    def measure(self):
        engines, row = {}, {"name": self.name, "engines": {}, "refused": {}, "limit_ms": self.limit[0] * 1e3, "limit_of": self.limit[1]}
        for name in ["neso"] + self.args.peers:
            try:
                with torch.no_grad():
                    run = getattr(self, name)()
                    trouble = self.check(run())
                if trouble:
                    raise RuntimeError("WRONG: " + trouble)
                engines[name] = run
            except Exception as error:
                row["refused"][name] = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        rounds = {name: [] for name in engines}
        with torch.no_grad():
            for run in engines.values():
                for _ in range(3):
                    run()
            for number in range(self.args.rounds):
                order = list(engines) if number % 2 == 0 else list(engines)[::-1]
                for name in order:
                    rounds[name].append(self.slice(engines[name]))
        for name, values in rounds.items():
            row["engines"][name] = {"min_ms": min(values), "median_ms": statistics.median(values), "max_ms": max(values)}
        row["compile_s"] = {name: round(value, 2) for name, value in self.seconds.items()}
        return row

    def slice(self, run):
        """Median of one round. Threads of the engine before are given time to fall asleep."""
        time.sleep(0.03)
        run()
        times, end = [], time.perf_counter() + self.args.slice
        while len(times) < 3 or time.perf_counter() < end:
            begun = time.perf_counter()
            run()
            times.append((time.perf_counter() - begun) * 1e3)
        return statistics.median(times)


def show(row, flop=None):
    ours = row["engines"].get("neso")
    print(f"\n{row['name']}")
    best = min((e["median_ms"] for n, e in row["engines"].items() if n != "neso"), default=None)
    for name, e in row["engines"].items():
        ratio = f"  {e['median_ms'] / ours['median_ms']:6.2f} x" if ours else ""
        rate = f"  {flop / e['median_ms'] / 1e6:7.1f} GFLOP/s" if flop else ""
        share = f"  {row['limit_ms'] / e['median_ms']:5.0%} of the limit of {row['limit_of']}"
        built = f"  compile {row['compile_s'][name]:.2f} s" if name in row["compile_s"] else ""
        print(f"  {name:12} min {e['min_ms']:9.3f}  median {e['median_ms']:9.3f}  max {e['max_ms']:9.3f} ms{ratio}{rate}{share}{built}")
    for name, why in row["refused"].items():
        print(f"  {name:12} -- {why}")
    if ours and best:
        print(f"  best peer / neso: {best / ours['median_ms']:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--only", default=".")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slice", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gemm", action="store_true")
    parser.add_argument("--compile-times", action="store_true")
    parser.add_argument("--work", default=str(Path(tempfile.gettempdir()) / "neso_bench"))
    parser.add_argument("--json")
    args = parser.parse_args()
    args.peers = [p for p in args.peers.split(",") if p]
    torch.set_num_threads(args.threads)
    limit = machine_limit.Limit()
    machine = {"copy_GB_s": limit.bandwidth(1 << 28) / 1e9}
    machine |= {f"gemm_{name}_GFLOP_s": limit.peak(dtype) / 1e9 for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16))}
    print("machine, by torch: " + ", ".join(f"{k} {v:.1f}" for k, v in machine.items()) + f"; {args.threads} threads, torch {torch.__version__}")
    rows = []

    def measure(programs, peers):
        args.peers = peers
        for name, (factory, inputs, *flop) in programs.items():
            if not re.search(args.only, name):
                continue
            rows.append(Bench(name, factory, inputs, args, limit).measure() | ({"flop": flop[0]} if flop else {}))
            show(rows[-1], *flop)
            if args.json:
                # After each row: what was measured stays when a long run is ended.
                Path(args.json).write_text(json.dumps({"machine": machine, "threads": args.threads, "rows": rows}, indent=1))

    measure(anchors.ANCHORS | zoo.MODELS, args.peers)
    if args.gemm:
        measure(anchors.gemms(), [p for p in args.peers if p == "eager"])
    ratios = [min(e["median_ms"] for n, e in r["engines"].items() if n != "neso") / r["engines"]["neso"]["median_ms"]
              for r in rows if "neso" in r["engines"] and len(r["engines"]) > 1]
    if ratios:
        print(f"\ngeometric mean of best peer / neso over {len(ratios)}: {statistics.geometric_mean(ratios):.2f}")
    return 1 if any("WRONG" in why for r in rows for n, why in r["refused"].items() if n == "neso") else 0


if __name__ == "__main__":
    sys.exit(main())
