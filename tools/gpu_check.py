#!/usr/bin/env python3
"""Do the goldens come out right on a GPU? Compile where the compiler is, run where the GPU is.

    tools/gpu_check.py pack OUT [--only REGEX] [--build build/release] [--arch sm_90] [--jobs 2] [--cases DIR]
        compiles every program of tests/goldens and every kernel of tests/goldens/kernels for the GPU and writes OUT/packages.tar.gz, which
        also holds cases.json (what was refused, with its code; commit) and the runtime. With --cases the programs of the case.json files
        below DIR instead, their inputs and expected values packed too: PyTorch's operator samples as `opinfo_check.py --cases` lists them,
        models as `check_models.py --cases` does.
    tools/gpu_check.py run OUT --json REPORT [--only REGEX] [--jobs 8] [--sanitize memcheck,racecheck,synccheck]
        runs them through libneso and compares as the CPU's tests do, every run three times, and once with inputs and outputs on the GPU,
        the inputs with gaps between their elements; then again under NVIDIA's compute-sanitizer,
        with each tool for --sanitize-budget seconds over a sample that grows with the time. Needs torch (for reading tensors) and a GPU,
        neither Neso's compiler nor its build. The report says what was left out; the last one is kept in bench/results/gpu_goldens.json.

A kernel that traps costs its own case only: cases run in worker processes, and one that loses its GPU is replaced.
"""
import ast
import concurrent.futures
import functools
import importlib.util
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "tests" / "goldens"
sys.path.insert(0, str(ROOT / "bench" / "models"))
import gpu_packing  # noqa: E402


# ---- the list of cases ---------------------------------------------------------------------------------------------------------------

def model_programs(root=GOLDENS):
    """(id, .pt2, runs) of every program."""
    for case in sorted(root.rglob("case.json")):
        runs = {}
        for run in json.loads(case.read_text())["runs"]:
            runs.setdefault(run["program"], []).append(run)
        for program, its in runs.items():
            name = str((case.parent / program).relative_to(root).with_suffix(""))
            yield {"id": name, "folder": str(case.parent.relative_to(root)), "program": program, "runs": its, "kind": "model"}


def passed(case):
    """The names of the parameters that have an entry in `args`, in order."""
    pairs = [part.split(":", 1) for part in split_top(case["signature"])]
    return [name for name, kind in pairs if kind != "constexpr"]


def parameter_names(file, kernel):
    """All parameters of a kernel, in the order of its source."""
    tree = ast.parse((GOLDENS / "kernels" / f"{file}.py").read_text())
    function = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == kernel)
    return [a.arg for a in function.args.args]


def kernel_cases():
    offset = 0
    for index, line in enumerate((GOLDENS / "kernels" / "cases.txt").read_text().splitlines()):
        name, file, kernel, signature, constexprs, grid, args, tolerance = line.split("|")
        case = {"id": "kernels/" + name, "kind": "kernel", "file": file, "kernel": kernel, "signature": signature, "constexprs": constexprs.split(),
                "grid": [int(g) for g in grid.split()], "args": args.split(), "tolerance": float(tolerance), "index": index, "offset": offset}
        # Absent pointers have no entry in `args`, but keep their place in the numbering of seeds.
        absent = {c.split("=")[0] for c in case["constexprs"] if c.endswith("=None")}
        order = [name for name in parameter_names(file, kernel) if name in absent or name in passed(case)]
        case["places"] = {name: place for place, name in enumerate(order)}
        for arg in case["args"]:
            if found := re.match(r"(?:out_)?(\w+)\[(\d+)\]", arg):
                offset += ITEM[found[1]] * int(found[2])
        yield case


ITEM = {"i1": 1, "i8": 1, "i16": 2, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}


def split_top(text):
    """At commas outside brackets."""
    parts, nest = [""], 0
    for c in text:
        nest += (c in "[(<") - (c in "])>")
        if c == "," and nest == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts if p.strip()]


# ---- pack ------------------------------------------------------------------------------------------------------------------------------

# compute-sanitizer 2025.3 reports a barrier or an access in the body of a conditional node whatever the program: a kernel that shifts a row
# through shared memory behind __syncthreads(), in a graph made by NVIDIA's own runtime, is "divergent" under synccheck and ends in an
# illegal address under memcheck. Under these tools all is walked: loops come from operators, too (eigenvalues of symbolic sizes), not from a model's own alone.
BLIND_IN_BODIES = ("memcheck", "synccheck")


def pack(options):
    packing = gpu_packing.Pack(options, "packages")
    root = Path(options.cases) if options.cases else GOLDENS
    kernels = [] if options.cases else list(kernel_cases())
    # More threads or longer pipelines must not change what a kernel computes.
    kernels += [k | {"id": f"{k['id']}@{what}{n}", "flags": [f"--num-{what}", n]} for what, numbers in (("warps", options.warps), ("stages", options.stages))
                for n in numbers for k in kernels]
    cases = [c for c in list(model_programs(root)) + kernels if re.search(options.only, c["id"])]

    def compile_one(case):
        if case["kind"] == "model":
            cubin = case["id"].startswith("models/") or options.assemble_all
            command = ["compile", root / case["folder"] / case["program"], "--threads", "1"]
            command += [] if cubin else ["--option", "assembler=none"]
            bundle = root / case["folder"] / "kernels"
            command += ["--kernels", bundle] if bundle.exists() else []
        else:
            command = ["kernel", "compile", f"{GOLDENS / 'kernels' / case['file']}.py:{case['kernel']}", "--signature", case["signature"]]
            for c in case["constexprs"]:
                command += ["--constexpr", c]
            command += case.get("flags", [])
        return case | packing.compile(command, case["id"].replace("/", "__"))

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        done = list(pool.map(compile_one, cases))
    (packing.folder / "cases.json").write_text(json.dumps({"commit": gpu_packing.commit(options), "arch": options.arch, "options": options.option, "cases": done}, indent=0))
    if options.cases:
        for file in {f"{c['folder']}/{run[kind]}" for c in done if "package" in c for run in c["runs"] for kind in ("inputs", "outputs")}:
            packing.add(root / file, f"cases/{file}")
    slow = [c for c in done if c["seconds"] > options.slow]
    refused = [c for c in done if "refused" in c]
    codes = {}
    for c in refused:
        codes[c["refused"]] = codes.get(c["refused"], 0) + 1
    print(f"{len(done) - len(refused)} packed, {len(refused)} refused {codes}, {packing.finish()}")
    for c in refused[:options.show]:
        print(f"  {c['id']}: {c['refused']} {c['why'].splitlines()[0][:200] if c['why'] else ''}")
    print(f"{len(slow)} took more than {options.slow} s to compile")
    for c in sorted(slow, key=lambda c: -c["seconds"])[:options.show]:
        print(f"  {c['id']}: {c['seconds']} s")


# Users' kernels whose products of float32 are tf32 on GPUs, as Triton's are unless they ask otherwise, while the goldens were computed in
# float32. A factor rounded to tf32's 10 stored bits of mantissa is off by at most 2^-11 of itself, so an element of a @ b is off by at most
# (2 * 2^-11 + 2^-22) * (|a| @ |b|); the products' sum in float32 adds K * 2^-24 of that, K = 24 here. What follows the product passes an
# error on times the steepest slope of its function: 1 of relu, less than 1.13 of gelu. Case → |a| @ |b| times that slope, from its inputs.
TF32_ROUNDING = 2 * 2 ** -11 + 2 ** -22 + 24 * 2 ** -24
TF32_PRODUCTS = {
    "user_kernels/matmul/model": lambda a, b: a.abs() @ b.abs().t(),
    "user_kernels/fused_matmul/model": lambda a, b, bias: 1.13 * ((0.5 * a).abs() @ b.abs()),
}


def tolerance_of(case, run, name, inputs):
    """Relative, absolute; the absolute one may be a tensor, one value an element."""
    rtol, atol = run["tolerance"].get(name, [0, 0])
    products = TF32_PRODUCTS.get(case["id"])
    return rtol, atol + TF32_ROUNDING * products(*(inputs[str(i)].double() for i in range(len(inputs)))) if products else atol


# ---- run -------------------------------------------------------------------------------------------------------------------------------

def compare(got, want, rtol, atol, values=True):
    """'' when `got` is as expected: same dtype and shape, |got - want| <= atol + rtol * |want|; NaN equals NaN."""
    import torch
    if got is None:
        return "no result"
    if got.dtype == torch.complex128:
        got = torch.view_as_real(got)  # .safetensors have no such type: expected values are stored so
    if got.dtype != want.dtype or list(got.shape) != list(want.shape):
        return f"is {got.dtype} {list(got.shape)}, expected {want.dtype} {list(want.shape)}"
    if not values or want.numel() == 0:
        return ""
    if want.is_complex():
        got, want = torch.view_as_real(got), torch.view_as_real(want)
    if want.dtype.is_floating_point:
        g, w = got.to(torch.float64), want.to(torch.float64)
    elif not torch.is_tensor(atol) and rtol == 0 and atol == 0:
        wrong = got != want
        return "" if not wrong.any() else f"{int(wrong.sum())} of {want.numel()} elements differ, first {got[wrong][0]} for {want[wrong][0]}"
    else:
        g, w = got.to(torch.float64), want.to(torch.float64)
    same = (g == w) | (g.isnan() & w.isnan())
    error = (g - w).abs()
    wrong = ~same & ~(error <= atol + rtol * w.abs())
    if not wrong.any():
        return ""
    at = int(torch.nan_to_num(torch.where(wrong, error, torch.zeros_like(error)), nan=float("inf")).flatten().argmax())
    return f"{int(wrong.sum())} of {want.numel()} elements are off, element {at} is {float(g.flatten()[at]):.9g}, expected {float(w.flatten()[at]):.9g}"


def spaced(tensor):
    """The tensor on the GPU, with a gap behind each element."""
    import torch
    wide = torch.zeros([2 * n for n in tensor.shape], dtype=tensor.dtype, device="cuda")
    view = wide[tuple(slice(None, None, 2) for _ in tensor.shape)]
    view.copy_(tensor)
    return view


def bits(tensor):
    import torch
    return torch.zeros(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1)).view(torch.uint8)


def dense_on_gpu(tensor):
    import torch
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cuda")


class Worker:
    """Runs cases in this process; one JSON line in, one out."""

    def __init__(self, folder):
        import neso_library
        self.folder, self.neso = Path(folder) / "packages", neso_library
        self.root = self.folder / "cases" if (self.folder / "cases").exists() else GOLDENS
        self.library = neso_library.Library(self.folder / gpu_packing.RUNTIME)
        spec = importlib.util.spec_from_file_location("make_kernel_goldens", ROOT / "tools" / "make_kernel_goldens.py")
        self.goldens = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.goldens)

    @functools.cached_property
    def expected(self):
        """Of the corpus of kernels, which other cases do without."""
        return (GOLDENS / "kernels" / "expected.bin").read_bytes()

    def tensors(self, folder, file, prefix):
        import neso_cases
        everything = neso_cases.read_safetensors(self.root / folder / file)
        return {name[len(prefix):]: tensor for name, tensor in everything.items() if name.startswith(prefix)}

    def model(self, case):
        results = []
        for run in case["runs"]:
            try:
                why = self.model_run(case, run)
            except RuntimeError as e:
                why = str(e)
            results.append({"run": run["name"], "why": why})
            if "E0839" in why or "E0840" in why or "lost" in why:
                break
        return results

    def model_run(self, case, run):
        import torch
        inputs = self.tensors(case["folder"], run["inputs"], run["prefix"])
        expected = self.tensors(case["folder"], run["outputs"], run["prefix"])
        program = self.library.load(self.folder / case["package"], device=self.neso.CUDA, graphs=case.get("graphs", 0))
        try:
            count = self.library.api.neso_model_input_count(program.model)
            given = [inputs.get(str(i)) for i in range(count)]
            program.bind(given)
            program.run()
            first = program.results()
            mutates = any(not name.isdigit() for name in expected)
            got = {}
            for name in expected:
                got[name] = (program.buffer(name[7:]) if name.startswith("buffer.") else given[int(name[6:])] if name.startswith("input.")
                             else first[int(name)])
            if why := self.differs(case, run, got, expected, inputs):
                return why
            if mutates or not run.get("values", True):
                return ""
            # Steady state reuses memory, and three equal runs are one graph launch.
            for _ in range(2):
                program.run()
            for i, (a, b) in enumerate(zip(first, program.results())):
                if a is not None and a.numel() and not torch.equal(bits(a), bits(b)):
                    if why := self.differs(case, run, {str(k): t for k, t in enumerate(program.results())}, expected, inputs):
                        return f"the third run is wrong: {why}"
            # Everything on the GPU; Python's scalars stay where they are.
            program.bind([spaced(t) if t is not None and t.dim() else t for t in given], [None if t is None else dense_on_gpu(t) for t in first])
            torch.cuda.synchronize()
            program.run()
            if why := self.differs(case, run, {str(k): t.cpu() for k, t in enumerate(program.kept[1]) if t is not None}, expected, inputs):
                return f"with inputs and outputs on the GPU: {why}"
            return ""
        finally:
            program.free()

    def differs(self, case, run, got, expected, inputs):
        """'' when all expected outputs came, in values or, where the operator leaves the choice, in meaning."""
        for name, want in expected.items():
            if why := compare(got.get(name), want, *tolerance_of(case, run, name, inputs), run.get("values", True)):
                import opinfo_check
                if run.get("op") not in opinfo_check.FREE or opinfo_check.differs(run["op"], got, expected, inputs, run["tolerance"]):
                    return f"output {name}: {why}"
        return ""

    def kernel(self, case):
        import torch
        A = self.neso.Argument
        program = self.library.load(self.folder / case["package"], device=self.neso.CUDA)
        try:
            api = self.library.api
            api.neso_model_metadata.restype = __import__("ctypes").c_char_p
            listed = api.neso_model_metadata(program.model, f"kernel.{case['kernel']}.parameters".encode()).decode()
            parameters = [p.split(": ", 1) for p in split_top(listed)]
            values = {name: (text, case["places"][name]) for name, text in zip(passed(case), case["args"])}
            buffers, arguments = [], []
            for name, kind in parameters:
                text, place = values[name]
                if "[" in text:
                    spec = text.replace("out_", "out ", 1)
                    _, data = self.goldens.buffer(spec, case["index"] * 16 + place)
                    there = data.cuda()
                    buffers.append((place, data, there))
                    arguments.append(A(ptr=there.data_ptr()))
                    if kind.startswith("!tt.tensordesc"):
                        arguments += [A(i64=data.numel()), A(i64=1)]
                elif kind.startswith("f"):
                    arguments.append(A(f64=float(text)) if kind == "f64" else A(f32=float(text)))
                else:
                    arguments.append(A(i64=int(text)))
            torch.cuda.synchronize()
            program.launch(case["kernel"], case["grid"], arguments)
            program.synchronize()
            why, offset = "", case["offset"]
            for n, (_, data, there) in enumerate(sorted(buffers, key=lambda b: b[0])):
                size = data.numel() * data.element_size()
                want = torch.frombuffer(bytearray(self.expected[offset:offset + size]), dtype=data.dtype)
                offset += size
                exact = not data.dtype.is_floating_point
                got, w = there.cpu().to(torch.float64), want.to(torch.float64)
                error = torch.where((got == w) | (got.isnan() & w.isnan()), torch.zeros_like(w), (got - w).abs() / w.abs().clamp(min=1))
                worst = float(torch.nan_to_num(error, nan=float("inf")).max()) if error.numel() else 0
                if worst > (0 if exact else case["tolerance"]) and not why:
                    at = int(torch.nan_to_num(error, nan=float("inf")).argmax())
                    why = f"buffer {n}: error {worst:.3g}, element {at} is {float(got[at]):.9g}, expected {float(w[at]):.9g}"
            return [{"run": "", "why": why}]
        finally:
            program.free()

    def serve(self):
        for line in sys.stdin:
            case = json.loads(line)
            try:
                results = self.model(case) if case["kind"] == "model" else self.kernel(case)
            except Exception as e:  # noqa: BLE001: whatever goes wrong is the case's result
                results = [{"run": "", "why": f"{type(e).__name__}: {e}"}]
            print("RESULT " + json.dumps(results), flush=True)
            if any("E0839" in r["why"] or "E0840" in r["why"] or "CUDA error" in r["why"] for r in results):
                os._exit(3)


class Pool:
    """Worker processes; each takes the next case, and is replaced when it dies."""

    def __init__(self, options, tool, deadline):
        self.options, self.prefix, self.deadline, self.walks = options, [], deadline, tool in BLIND_IN_BODIES
        if tool:
            self.prefix = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "99", "--print-limit", "3"]

    def run(self, cases):
        waiting, results = queue.Queue(), {}
        for case in cases:
            waiting.put(case)

        def work():
            process = None
            while True:
                try:
                    case = waiting.get_nowait()
                except queue.Empty:
                    break
                if time.time() > self.deadline:
                    break
                if process is None:
                    log = tempfile.TemporaryFile("w+")
                    process = subprocess.Popen(self.prefix + [sys.executable, __file__, "worker", self.options.out], stdin=subprocess.PIPE,
                                               stdout=subprocess.PIPE, stderr=log, text=True)
                timer = threading.Timer(self.options.seconds, process.kill)
                timer.start()
                text, noise = "", []
                try:
                    graphs = {"graphs": -1} if self.walks else {}
                    process.stdin.write(json.dumps(case | graphs) + "\n")
                    process.stdin.flush()
                    while line := process.stdout.readline():
                        if line.startswith("RESULT "):
                            text = line[7:]
                            break
                        noise.append(line)
                except BrokenPipeError:
                    pass
                timer.cancel()
                if text:
                    results[case["id"]] = json.loads(text)
                    # The sanitizer greets once, and sums up when the process ends.
                    found = [n.strip("= \n") for n in noise if n.startswith("=========") and "COMPUTE-SANITIZER" not in n and "ERROR SUMMARY" not in n]
                    if self.prefix and found:
                        results[case["id"]] = [{"run": "", "why": "sanitizer: " + " ".join(found[:6])[:500]}]
                else:
                    process.wait()
                    log.seek(0)
                    said = " ".join(n.strip("= \n") for n in noise[-12:])
                    results[case["id"]] = [{"run": "", "why": f"the process died ({process.returncode}): {said[-600:]} {log.read()[-300:]}"}]
                if process.poll() is not None or not text or any("E0839" in r["why"] or "E0840" in r["why"] or "CUDA error" in r["why"] for r in results[case["id"]]):
                    process.kill()
                    process.wait()
                    process = None
            if process:
                process.stdin.close()
                process.wait()

        threads = [threading.Thread(target=work) for _ in range(self.options.jobs)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        return results


def spread_out(cases):
    """In an order that depends on the names alone, so that the first of them are a sample of all."""
    return sorted(cases, key=lambda c: zlib.crc32(c["id"].encode()))


def summary(cases, results):
    """What came of `cases`; those without a result were left out for want of time."""
    report = {"right": 0, "wrong": 0, "left_out": 0, "failures": {}}
    for case in cases:
        if case["id"] not in results:
            report["left_out"] += len(case.get("runs", [0]))
            continue
        bad = {r["run"]: r["why"] for r in results[case["id"]] if r["why"]}
        report["wrong"] += len(bad)
        report["right"] += len(results[case["id"]]) - len(bad)
        if bad:
            report["failures"][case["id"]] = bad
    return report


def run(options):
    listed = json.loads((gpu_packing.unpacked(options.out, "packages") / "cases.json").read_text())
    chosen = [c for c in listed["cases"] if re.search(options.only, c["id"])]
    cases = spread_out(c for c in chosen if "package" in c)
    import torch
    report = {"commit": listed["commit"], "arch": listed["arch"], "options": listed["options"], "device": torch.cuda.get_device_name(0), "date": time.strftime("%Y-%m-%d"),
              "refused": {c["id"]: c["refused"] for c in chosen if "refused" in c}}
    tools = ["goldens"] if not options.sanitize else ["goldens"] * (not options.sanitize_only) + options.sanitize
    for tool in tools:
        start = time.time()
        budget = options.budget if tool == "goldens" else options.sanitize_budget
        results = Pool(options, "" if tool == "goldens" else tool, start + budget).run(cases)
        report[tool] = summary(cases, results) | {"seconds": round(time.time() - start, 1)}
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
        r = report[tool]
        print(f"{tool}: {r['right']} right, {r['wrong']} wrong, {r['left_out']} left out in {r['seconds']} s", flush=True)
        for name, bad in list(r["failures"].items())[:options.show]:
            print(f"  {name}: {' | '.join(f'{k} {v}' for k, v in bad.items())[:260]}", flush=True)
    print(f"refused: {len(report['refused'])}")


def main():
    parser, verbs, p, r = gpu_packing.verbs(__doc__)
    p.add_argument("--show", type=int, default=20)
    p.add_argument("--cases", default="", help="a folder with case.json files instead of the goldens")
    p.add_argument("--slow", type=float, default=2, help="list what takes more seconds to compile")
    p.add_argument("--assemble-all", action="store_true", help="cubins of operator programs too; else the driver assembles them")
    for flag in ("--warps", "--stages"):
        p.add_argument(flag, type=lambda text: text.split(","), default=[], help="compile kernels of the corpus with these numbers of them as well; comma separated")
    r.add_argument("--jobs", type=int, default=8)
    r.add_argument("--show", type=int, default=60)
    r.add_argument("--seconds", type=float, default=120, help="for one case")
    r.add_argument("--budget", type=float, default=1e9, help="seconds for the goldens")
    r.add_argument("--sanitize", type=lambda text: text.split(","), default=[], help="memcheck, racecheck, synccheck, initcheck; comma separated")
    r.add_argument("--sanitize-budget", type=float, default=1e9, help="seconds for each of them")
    r.add_argument("--sanitize-only", action="store_true", help="not the goldens alone first")
    w = verbs.add_parser("worker")
    w.add_argument("out")
    options = parser.parse_args()
    if options.verb == "worker":
        Worker(options.out).serve()
    else:
        pack(options) if options.verb == "pack" else run(options)


if __name__ == "__main__":
    main()
