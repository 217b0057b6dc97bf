#!/usr/bin/env python3
"""Runs a Python program or a test suite that launches Triton kernels, with Neso in the place of Triton's compiler.

    tools/triton_on_neso.py --build build/dev [--log F] program.py ARGS…
    tools/triton_on_neso.py --build build/dev [--log F] -m pytest tests/test_x.py
    tools/triton_on_neso.py --build build/dev --also-gpu sm_90 --record DIR …, then on a machine with a GPU
    tools/triton_on_neso.py --build build/dev --also-gpu sm_90 --rebuild DIR [--warps 1,2,8] [--stages 1,4]
    tools/triton_on_neso.py --build DIR_OF_LIBNESO --replay DIR
    tools/triton_on_neso.py --build build/release --device cuda [--peer F] program.py ARGS…

Every launch `kernel[grid](...)` is compiled by `neso kernel compile` for the signature that Triton would take (integers that are 1 and
numbers and pointers divisible by 16 are hints) and run by libneso; the program's own checks judge the results. Autotuned kernels take the
first config that survives pruning. A kernel inside a function is written to a file of its own, with what it refers to. F lists each
kernel with the outcome of its compilations and the number of its launches. Needs torch and triton; tensors lie on the CPU, where no GPU
is needed, or with --device cuda on the GPU. With --peer the first launch of each compiled kernel is Triton's as well, with the same
config: results are compared and both are timed in turns, a line of JSON each.
"""
import argparse
import ast
import concurrent.futures
import hashlib
import inspect
import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import textwrap
import types

OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg", "num_consumer_groups", "num_buffers_warp_spec", "num_cpu_threads",
           "ir_override", "enable_fp_fusion", "launch_cooperative_grid", "launch_pdl", "debug", "sanitize_overflow", "arch", "instrumentation_mode",
           "matrix_instr_nonkdim", "kpack", "waves_per_eu", "allow_flush_denorm"}

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench" / "models"))
from neso_library import CPU, CUDA, Argument, Library  # noqa: E402


class NesoError(RuntimeError):
    pass


def literal(value):
    """The text of a constexpr, or None."""
    import torch
    import triton.language as tl
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tl.core.dtype):
        return next(f"tl.{n}" for n, v in vars(tl).items() if isinstance(v, tl.core.dtype) and v == value)
    if isinstance(value, torch.dtype):
        return literal(getattr(tl, str(value)[6:].replace("bool", "int1"), None))
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else f'float("{value}")'
    if value is None or isinstance(value, (bool, int, str)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        parts = [literal(v) for v in value]
        return None if None in parts else "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"
    return None


def closed_source(fn):
    """A module text that holds the kernel and all that it refers to."""
    import triton
    from triton.runtime.jit import JITFunction
    lines, done = ["import triton", "import triton.language as tl"], {}

    def names(jit):
        held = {}
        closure = inspect.getclosurevars(jit.fn)
        held.update(closure.globals)
        held.update(closure.nonlocals)
        for node in ast.walk(ast.parse(jit.src)):
            if isinstance(node, ast.Name) and node.id in jit.fn.__globals__:
                held.setdefault(node.id, jit.fn.__globals__[node.id])
        return held

    def emit(name, value):
        if name in done:
            return
        done[name] = value
        if isinstance(value, types.ModuleType):
            lines.append(f"import {value.__name__} as {name}")
        elif isinstance(value, JITFunction):
            for n, v in names(value).items():
                if n != value.fn.__name__:
                    emit(n, v)
            lines.append("@triton.jit\n" + value.src)
            if name != value.fn.__name__:
                lines.append(f"{name} = {value.fn.__name__}")
        elif getattr(value, "__module__", "").startswith("triton"):
            lines.append(f"from {value.__module__} import {getattr(value, '__name__', name)} as {name}")
        elif isinstance(value, triton.language.constexpr) and literal(value):
            lines.append(f"{name} = tl.constexpr({literal(value)})")
        elif literal(value):
            lines.append(f"{name} = {literal(value)}")
        elif isinstance(value, types.FunctionType):
            try:
                lines.append(textwrap.dedent(inspect.getsource(value)))
            except OSError:
                pass

    emit(fn.fn.__name__, fn)
    return "\n".join(lines) + "\n"


class Launcher:
    def __init__(self, build, log, keep, backend, gpu, record, device, peer):
        self.backend, self.gpu, self.record = backend, gpu, pathlib.Path(record) if record else None
        self.device, self.target, self.peer, self.stream = CPU, [], peer, None
        if device == "cuda":
            import torch
            # Everything on one stream of its own: the launches beside each other cost the same.
            self.device, self.stream = CUDA, torch.cuda.Stream()
            self.stream.wait_stream(torch.cuda.current_stream())
            torch.cuda.set_stream(self.stream)
            self.target = ["--target", "cuda", "--arch", "sm_%d%da" % torch.cuda.get_device_capability()]
        if self.record:
            self.record.mkdir(parents=True, exist_ok=True)
        self.neso = str(pathlib.Path(build).resolve() / "bin" / "neso")
        self.library = Library(library_of(build))
        self.folder = pathlib.Path(keep or tempfile.mkdtemp(prefix="neso_triton_"))
        self.packages, self.rows, self.closed, self.log = {}, {}, {}, log

    def source(self, fn):
        """FILE:NAME of the kernel; the file may be one that is written here."""
        if fn in self.closed:
            return self.closed[fn]
        code = fn.fn.__code__
        home = sys.modules.get(fn.fn.__module__)
        held = getattr(home, fn.fn.__name__, None)
        while held is not None and not hasattr(held, "src"):
            held = getattr(held, "fn", None)
        if held is fn and "<locals>" not in fn.fn.__qualname__ and os.path.exists(code.co_filename) and fn.src in pathlib.Path(code.co_filename).read_text():
            return f"{code.co_filename}:{fn.fn.__name__}"
        return self.close(fn)

    def close(self, fn):
        """Writes what the kernel refers to into a file of its own, with the values that it has here."""
        text = closed_source(fn)
        path = self.folder / f"{fn.fn.__name__}_{hashlib.sha1(text.encode()).hexdigest()[:12]}.py"
        path.write_text(text)
        self.closed[fn] = f"{path}:{fn.fn.__name__}"
        return self.closed[fn]

    def compile(self, fn, signature, constants, hints, options):
        source = self.source(fn)
        key = (source, tuple(signature), tuple(constants.items()), tuple(hints.items()), tuple(options.items()))
        if key in self.packages:
            return self.packages[key]
        row = self.rows.setdefault(source, {"compiled": 0, "launched": 0, "errors": []})
        path = self.folder / (hashlib.sha1(repr(key).encode()).hexdigest()[:16] + ".neso")
        command = [self.neso, "kernel", "compile", source, "--signature", ",".join(signature), *self.target]
        for k, v in constants.items():
            command += ["--constexpr", f"{k}={v}"]
        for k, v in hints.items():
            command += ["--hint", f"{k}={v}"]
        for k in ("num_warps", "num_stages"):
            if options.get(k):
                command += ["--" + k.replace("_", "-"), str(options[k])]
        if options.get("debug"):
            command.append("--debug")
        for p in sys.path:
            if p and os.path.isdir(p) and not re.search(r"(site|dist)-packages", p):
                command += ["--path", p]
        done = path.exists() or subprocess.run([*command, "-o", str(path)], capture_output=True, text=True, timeout=300)
        if done is not True and done.returncode:
            error = done.stderr.strip()
            if fn not in self.closed and error.startswith("error[E1003]"):
                # A value that its module finds as it runs, and that this process knows.
                self.close(fn)
                return self.compile(fn, signature, constants, hints, options)
            row["errors"].append(" ".join(command) + "\n" + error)
            package = NesoError(error or f"neso ended with {done.returncode}")
        else:
            package = self.library.load(path, device=self.device, stream=self.stream.cuda_stream if self.stream else None)
            package.name, package.gpu, package.command, package.judged = fn.fn.__name__, None, command, False
            row["compiled"] += 1
            if self.gpu:
                done = subprocess.run([*command, "-o", str(path) + ".gpu", "--target", "cuda", "--arch", self.gpu], capture_output=True, text=True, timeout=300)
                if done.returncode == 0:
                    package.gpu = str(path) + ".gpu"
                else:
                    row["errors"].append(" ".join(command) + f" --target cuda --arch {self.gpu}\n" + done.stderr.strip())
        self.packages[key] = package
        return package

    def run(self, fn, args, kwargs, grid):
        import torch
        from triton.runtime.jit import mangle_type
        # A parameter of that name gets the value too, as in Triton.
        options = {k: v for k, v in kwargs.items() if k in OPTIONS}
        bound = inspect.signature(fn.fn).bind(*args, **{k: v for k, v in kwargs.items() if k not in options or k in fn.arg_names})
        bound.apply_defaults()
        values = bound.arguments
        if callable(grid):
            grid = grid({**values, **options})
        grid = tuple(int(g) for g in (grid if isinstance(grid, (tuple, list)) else (grid, )))
        grid += (1, ) * (3 - len(grid))
        if 0 in grid:
            return
        signature, constants, hints, arguments = [], {}, {}, []

        def part(value):
            """The type of a tuple's item, or what is known of it behind an equals sign."""
            if isinstance(value, tuple):
                return f"{type(value).__name__ if hasattr(value, '_fields') else ''}({','.join(map(part, value))})"
            if hasattr(value, "data_ptr"):
                arguments.append(Argument(ptr=value.data_ptr()))
            elif isinstance(value, int) and not isinstance(value, bool) and value != 1:
                arguments.append(Argument(i64=value if value < 1 << 63 else value - (1 << 64)))
            elif isinstance(value, float):
                arguments.append(Argument(f32=value))
                return "fp32"
            elif literal(value) is None:
                raise NesoError(f"no way to give {type(value)} in a tuple")
            else:
                return "=" + literal(value)
            return mangle_type(value)

        def add(value, name, p):
            annotated = p.annotation_type if not p.is_constexpr else None
            if hasattr(value, "data_ptr"):
                if getattr(value, "is_cuda", False) != (self.device == CUDA):
                    raise NesoError("a tensor does not lie on the device")
                signature.append(mangle_type(value))
                aligned = not p.do_not_specialize and value.data_ptr() % 16 == 0
                hints[name] = "divisible_by_16" if aligned else "none"
                arguments.append(Argument(ptr=value.data_ptr()))
            elif type(value).__name__ == "TensorDescriptor":
                shape = ",".join(map(str, value.block_shape))
                signature.append(f"tensordesc<{mangle_type(value.base)[1:]}[{shape}]>")
                arguments.append(Argument(ptr=value.base.data_ptr()))
                arguments.extend(Argument(i64=s) for s in (*value.shape, *value.strides))
            elif isinstance(value, bool):
                signature.append("u1")
                arguments.append(Argument(i64=int(value)))
            elif isinstance(value, int):
                signature.append(annotated or mangle_type(value))
                if not p.do_not_specialize and value == 1:
                    hints[name] = "equal_to_1"
                    return  # a constant: the compiled kernel does not take it
                if not p.do_not_specialize and value % 16 == 0:
                    hints[name] = "divisible_by_16"
                arguments.append(Argument(i64=value if value < 1 << 63 else value - (1 << 64)))
            elif isinstance(value, float):
                kind = annotated or "fp32"
                signature.append(kind)
                arguments.append(Argument(f64=value) if kind == "fp64" else Argument(f32=value))
            elif isinstance(value, tuple):
                signature.append(part(value))
            else:
                raise NesoError(f"argument {name}: no way to give {type(value)}")

        for p in fn.params:
            value = values[p.name]
            if p.is_constexpr or value is None or literal(value) is not None and not isinstance(value, (bool, int, float)):
                text = literal(value)
                if text is None:
                    raise NesoError(f"constexpr {p.name}: no text for {value!r}")
                signature.append("constexpr")
                constants[p.name] = text
            else:
                add(value, p.name, p)
        package = self.compile(fn, signature, constants, hints, options)
        refused = isinstance(package, NesoError)
        if self.peer and (refused or not package.judged):
            tensors = [v.base if type(v).__name__ == "TensorDescriptor" else v for v in values.values()]
            what = {"signature": ",".join(signature), "constants": constants, "options": {k: v for k, v in options.items() if isinstance(v, (int, str))}, "grid": grid}
            if not refused:
                package.judged = True
            self.peer.judge(fn.fn.__name__, what, [t for t in tensors if isinstance(t, torch.Tensor)],
                            lambda: self.launch(package, grid, arguments), lambda: self.triton_run(fn, *args, grid=grid, warmup=False, **kwargs))
            return
        if refused:
            raise package
        self.rows[self.source(fn)]["launched"] += 1
        before = self.memories(values.values()) if self.record and package.gpu else None
        self.launch(package, grid, arguments)
        if before:
            self.write_launch(package, grid, arguments, before, self.memories(values.values()))
            package.gpu = None  # one launch of each

    def launch(self, package, grid, arguments):
        """In the order of torch's current stream."""
        if isinstance(package, NesoError):
            raise package
        current = None
        if self.stream:
            import torch
            current = torch.cuda.current_stream()
        if current == self.stream:
            package.launch(package.name, grid, arguments)
            return
        self.stream.wait_stream(current)
        package.launch(package.name, grid, arguments)
        current.wait_stream(self.stream)

    @staticmethod
    def memories(values):
        """Address -> bytes of the storage of each tensor argument."""
        import torch
        tensors = [v.base if type(v).__name__ == "TensorDescriptor" else v for v in values]
        storages = [t.untyped_storage() for t in tensors if isinstance(t, torch.Tensor)]
        return {s.data_ptr(): torch.tensor([], dtype=torch.uint8).set_(s).clone() for s in storages}

    def write_launch(self, package, grid, arguments, before, after):
        import torch
        recorded = len(list(self.record.glob(f"{package.name}.*.pt")))
        if recorded == 3 or sum(b.numel() for b in before.values()) > 1 << 21:
            return
        name = f"{package.name}.{recorded}"
        kinds = []  # of each argument of the package: index of a memory and offset, or the union's bits
        order = list(before)
        for a in arguments:
            at = next((i for i, p in enumerate(order) if a.ptr and p <= a.ptr <= p + before[p].numel()), None)
            kinds.append((at, a.ptr - order[at]) if at is not None else (None, a.i64))
        types = self.library.api.neso_model_metadata(package.model, f"kernel.{package.name}.parameters".encode())
        shutil.copy(package.gpu, self.record / f"{name}.neso")
        torch.save({"kernel": package.name, "command": package.command, "grid": grid, "arguments": kinds, "parameters": (types or b"").decode(),
                    "before": [before[p] for p in order], "after": [after[p] for p in order]}, self.record / f"{name}.pt")

    def install(self):
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.driver import driver
        from triton.runtime.jit import JITFunction
        launcher = self

        class Driver:
            """What libraries ask of a driver, on a machine without a GPU."""
            def get_current_target(self):
                return GPUTarget(launcher.backend, 90, 32)

            def get_current_device(self):
                return 0

            def set_current_device(self, device):
                pass

            def get_current_stream(self, device=0):
                return 0

            def get_active_torch_device(self):
                import torch
                return torch.device("cpu")

            def get_device_interface(self):
                import torch
                return torch.cuda

            def get_benchmarker(self):
                return lambda call, **_: [0.0, 0.0, 0.0]

            @property
            def utils(self):
                class Utils:
                    def get_device_properties(self, device):
                        return {"max_shared_mem": 232448, "max_num_regs": 65536, "multiprocessor_count": 16, "warpSize": 32, "sm_clock_rate": 1, "mem_clock_rate": 1, "mem_bus_width": 1}
                return Utils()

        if self.device == CPU:
            driver.set_active(Driver())
        self.triton_run = JITFunction.run

        def run(fn, *args, grid, warmup=False, **kwargs):
            if not warmup:
                launcher.run(fn, args, kwargs, grid)

        def tuned(tuner, *args, **kwargs):
            tuner.nargs = dict(zip(tuner.arg_names, args))
            configs = tuner.prune_configs(kwargs) if len(tuner.configs) > 1 else tuner.configs
            config = tuner.best_config = configs[0]
            if config.pre_hook is not None:
                config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
            return tuner.fn.run(*args, **kwargs, **config.all_kwargs())

        JITFunction.run = run
        Autotuner.run = tuned
        triton.knobs.autotuning.warn = False

    def report(self):
        failed = {s: r for s, r in self.rows.items() if r["errors"]}
        print(f"triton_on_neso: {len(self.rows)} kernels, {len(failed)} with a failed compilation, "
              f"{sum(r['compiled'] for r in self.rows.values())} packages, {sum(r['launched'] for r in self.rows.values())} launches", file=sys.stderr)
        if self.peer:
            print("triton_on_neso: " + self.peer.report(), file=sys.stderr)
        if self.log:
            with open(self.log, "a") as f:
                for source, r in self.rows.items():
                    f.write(f"{'FAIL' if r['errors'] else 'ok'} {r['compiled']} {r['launched']} {source}\n")
                    for e in r["errors"]:
                        f.write("    " + e.replace("\n", "\n    ") + "\n")


def library_of(build):
    return next(pathlib.Path(build).resolve().glob("**/libneso.so"))


def rebuild(neso, folder, arch, warps, stages):
    """Compiles the recorded kernels again, and the first launch of each with other numbers of warps and of pipeline stages, whose packages
    --replay runs as well: more of either must not change a result."""
    import torch
    jobs = []
    for case in sorted(pathlib.Path(folder).glob("*.pt")):
        command = torch.load(case)["command"]
        base = [neso, *command[1:], "--target", "cuda", "--arch", arch]
        jobs.append([*base, "-o", str(case)[:-3] + ".neso"])
        if not case.name.endswith(".0.pt"):
            continue
        for name, flag, values in (("w", "--num-warps", warps), ("s", "--num-stages", stages)):
            at = base.index(flag) if flag in base else None
            for value in values:
                changed = base[:at] + base[at + 2:] if at else base
                jobs.append([*changed, flag, str(value), "-o", str(case)[:-3] + f".{name}{value}.neso"])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(lambda job: subprocess.run(job, capture_output=True, text=True), jobs))
    for job, result in zip(jobs, done):
        if result.returncode:
            pathlib.Path(job[-1]).unlink(missing_ok=True)
            print(f"REFUSED {pathlib.Path(job[-1]).name}: {result.stderr.strip()[:300]}")
    print(f"rebuild: {len(jobs)} packages, {sum(r.returncode != 0 for r in done)} refused")


def replay(library, folder, cases):
    """Runs the recorded launches in worker processes, some after each other; one that traps loses the GPU for its process, and the rest of
    that worker's list goes to a new one. The number of launches that differ."""
    if cases:
        for name in cases:
            try:
                why = replay_one(library, pathlib.Path(folder) / (name + ".neso"))
            except Exception as e:  # noqa: BLE001: whatever goes wrong is the case's result
                why = f"{type(e).__name__}: {e}"
            print("RESULT " + json.dumps([name, why]), flush=True)
            if "lost" in why:
                os._exit(3)
        return 0

    def work(names):
        results = {}
        while names:
            try:
                done = subprocess.run([sys.executable, __file__, "--build", str(library.parent), "--replay", str(folder), *names], capture_output=True,
                                      text=True, timeout=120)
                text, end = done.stdout, done.stderr.strip().splitlines()[-1:]
            except subprocess.TimeoutExpired as e:
                text, end = (e.stdout or b"").decode(), ["it does not end"]
            new = dict(json.loads(line[7:]) for line in text.splitlines() if line.startswith("RESULT "))
            results.update(new)
            if len(new) < len(names) and not any(new.values()):
                results[names[len(new)]] = f"the process ended: {' '.join(end)}"
            names = [n for n in names if n not in results]
        return results

    names = sorted(f.name[:-5] for f in pathlib.Path(folder).glob("*.neso"))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = {k: v for part in pool.map(work, [names[i::8] for i in range(8)]) for k, v in part.items()}
    for name, why in sorted(results.items()):
        if why:
            print(f"BAD {name}: {why}")
    bad = sum(bool(v) for v in results.values())
    print(f"replay: {len(results)} launches, {bad} wrong")
    return bad != 0


def replay_one(library, package):
    """'' when the GPU leaves the memory that the CPU left. Types of memory are those of the kernel's pointers."""
    import torch
    from triton_peer import difference
    held = torch.load(re.sub(r"(\.[ws]\d+)?\.neso$", ".pt", str(package)))
    program = Library(library).load(package, device=CUDA)
    there = [b.cuda() for b in held["before"]]
    types = {}
    arguments = []
    names = [p.split(": ")[1] for p in re.split(r", (?=\w+: )", held["parameters"])]
    for at, bits in held["arguments"]:
        arguments.append(Argument(ptr=there[at].data_ptr() + bits) if at is not None else Argument(i64=bits))
    position = 0
    for name in names:
        at = held["arguments"][position][0]
        if at is not None:
            types[at] = name
        rank = name.count("x") if "tensordesc" in name else 0
        position += 1 + 2 * rank
    torch.cuda.synchronize()
    program.launch(held["kernel"], held["grid"], arguments)
    program.synchronize()
    for i, (got, want) in enumerate(zip(there, held["after"])):
        name = types.get(i, "")
        dtype = next((t for text, t in (("bf16", torch.bfloat16), ("f16", torch.float16), ("f32", torch.float32), ("f64", torch.float64)) if text in name), None)
        if why := difference(got.cpu(), want, dtype):
            return f"memory {i} ({name}): {why}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="a build folder, with bin/neso and libneso.so")
    parser.add_argument("--log", help="file to which the outcome of each kernel is appended")
    parser.add_argument("--keep", help="folder for packages and sources; packages found there are used again (default: a new one in the temporary folder)")
    parser.add_argument("--backend", default="cuda", help="what the program is told of the device (default: cuda)")
    parser.add_argument("--also-gpu", metavar="ARCH", help="compile each kernel for this GPU too, say sm_90; failures go to the log alone")
    parser.add_argument("--record", metavar="DIR", help="with --also-gpu: write launches of each kernel (small ones, three at most), their memory before and after, for --replay")
    parser.add_argument("--replay", metavar="DIR", help="run recorded launches on a GPU instead, and compare (PROGRAM ARGS: names of some)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where the program's tensors lie")
    parser.add_argument("--peer", metavar="F", help="with --device cuda: compare with Triton's own code and time both; lines of JSON are appended to F")
    parser.add_argument("--rounds", type=int, default=3, help="of ten timed launches of each side; 0: compare alone (default: 3)")
    parser.add_argument("--rebuild", metavar="DIR", help="compile the recorded kernels again, for --also-gpu, and variants of them")
    parser.add_argument("--warps", default="1,2,8", help="of the variants (default: 1,2,8)")
    parser.add_argument("--stages", default="1,4", help="likewise (default: 1,4)")
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module")
    parser.add_argument("program", nargs="?")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    if given.replay:
        sys.exit(replay(library_of(given.build), given.replay, [c for c in [given.program, *given.args] if c]))
    if given.rebuild:
        warps, stages = ([int(n) for n in text.split(",") if n] for text in (given.warps, given.stages))
        sys.exit(rebuild(str(pathlib.Path(given.build).resolve() / "bin" / "neso"), given.rebuild, given.also_gpu or "sm_90", warps, stages))
    if not given.program:
        parser.error("give a program")
    if given.peer and given.device != "cuda":
        parser.error("--peer needs --device cuda")
    peer = None
    if given.peer:
        from triton_peer import Peer
        peer = Peer(given.peer, given.rounds)
    launcher = Launcher(given.build, given.log, given.keep, given.backend, given.also_gpu, given.record, given.device, peer)
    launcher.install()
    sys.argv = [given.program] + given.args
    sys.path.insert(0, os.getcwd() if given.module else str(pathlib.Path(given.program).resolve().parent))
    try:
        if given.module:
            runpy.run_module(given.program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(given.program, run_name="__main__")
    finally:
        launcher.report()


if __name__ == "__main__":
    main()
