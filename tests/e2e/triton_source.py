#!/usr/bin/env python3
"""Triton itself over what `neso compile --emit triton` writes: it compiles the source, and its interpreter gives the same numbers.

    triton_source.py compile NESO GOLDENS [--every N] [--from K] [--to ttir|machine] [--only TEXT] [--targets cuda,cpu]
    triton_source.py run GPU_TILES GOLDENS [--every N] [--from K] [--only TEXT]

compile: every kernel of each N-th program, for sm_90, without a GPU. run: the launches that `gpu_tiles --record` writes, in Triton's interpreter.
Programs are taken in the order of their names, from the K-th on. Kernels that are alike in all but their name count once. Ends with how many
passed, the rest by what was said of them, and the programs left out by the code
of their diagnostic (E0430: what Triton's language cannot say). Exit code 77: there is no Triton, or no torch.
"""
import argparse
import collections
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

if "run" in sys.argv[1:2]:
    os.environ["TRITON_INTERPRET"] = "1"
try:
    import torch
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource, make_backend
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "compiler"
TYPES = {"i1": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "fp16": torch.float16, "bf16": torch.bfloat16,
         "fp32": torch.float32, "fp64": torch.float64, "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2, "fp8e4b8": torch.float8_e4m3fnuz,
         "fp8e5b16": torch.float8_e5m2fnuz}
# Of sums in another order, and functions of another library; of the largest element. Reduced floats: one step of their mantissa.
TOLERANCE = {"fp16": 2e-3, "bf16": 1e-2, "fp32": 1e-4, "fp64": 1e-7, "fp8e4nv": 0.13, "fp8e5": 0.26, "fp8e4b8": 0.13, "fp8e5b16": 0.26}


def mend_interpreter():
    """What Triton 3.9's interpreter lacks: functions of libdevice (they give None); a scalar comparison keeps the type of what it compared,
    so that it is no mask once it is broadcast; bf16 are multiplied and cast as the integers that hold them; a float that becomes f8 is not
    rounded to the nearest."""
    import numpy
    from triton.language.extra import libdevice
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, _get_np_dtype
    splat, dot, cast, convert = (getattr(InterpreterBuilder, f) for f in ("create_splat", "create_dot", "cast_impl", "create_fp_to_fp"))
    bf16 = triton.language.bfloat16

    def real(x):
        return (x.data.astype(numpy.uint32) << 16).view(numpy.float32) if x.dtype.scalar == bf16 else x.data

    def create_splat(self, ret_ty, arg):
        if arg.data.dtype == numpy.bool_:
            return TensorHandle(numpy.full([int(d) for d in ret_ty.shape], arg.data.reshape(-1)[0]), triton.language.int1)
        return splat(self, ret_ty, arg)

    def create_dot(self, a, b, *rest):
        if a.dtype.scalar == bf16:
            a, b = (TensorHandle(real(x), triton.language.float32) for x in (a, b))
        return dot(self, a, b, *rest)

    def cast_impl(self, src, dst_type):
        if bf16 not in (src.dtype.scalar, dst_type.scalar):
            return cast(self, src, dst_type)
        if dst_type.scalar != bf16:
            return TensorHandle(real(src).astype(_get_np_dtype(dst_type.scalar)), dst_type.scalar)
        small = torch.from_numpy(src.data.astype(numpy.float32)).to(torch.bfloat16)
        return TensorHandle(small.view(torch.int16).numpy().view(numpy.uint16), bf16)

    def create_fp_to_fp(self, src, dst_type, rounding):
        kind = str(dst_type.scalar)
        if kind not in ("fp8e4nv", "fp8e5") or src.data.dtype.kind != "f":
            return convert(self, src, dst_type, rounding)
        most = torch.finfo(TYPES[kind]).max
        small = torch.from_numpy(src.data.astype(numpy.float32)).clamp(-most, most).to(TYPES[kind])
        return TensorHandle(small.view(torch.uint8).numpy(), dst_type.scalar)

    InterpreterBuilder.create_splat, InterpreterBuilder.create_dot = create_splat, create_dot
    InterpreterBuilder.create_fp_to_fp, InterpreterBuilder.cast_impl = create_fp_to_fp, cast_impl
    other = {"rint": "round", "pow": "float_power", "erfinv": "erfinv", "lgamma": "lgamma", "cyl_bessel_i0": "i0", "isinf": "isinf"}

    def function(name):
        compute = getattr(torch.special, name, None) or getattr(torch, other.get(name, name), None)

        def call(*args, **_):
            if compute is None:
                raise NotImplementedError(f"libdevice.{name} in the interpreter")
            shape = numpy.broadcast_shapes(*(x.handle.data.shape for x in args))
            data = [torch.from_numpy(numpy.broadcast_to(x.handle.data, shape).copy()) for x in args]
            out = compute(*data).to(data[0].dtype).numpy()
            first = next((x for x in args if x.handle.data.shape == shape), args[0])
            return triton.language.core.tensor(TensorHandle(out, first.handle.dtype), first.type)

        return call

    for name in re.findall(r"libdevice\.(\w+)", "\n".join(p.read_text() for p in (SOURCE / "lower/tile_to_triton").glob("*.cpp"))) + re.findall(
            r"NESO_LIBDEVICE\((\w+)", (SOURCE / "ir/tile/libdevice.def").read_text()):
        if hasattr(libdevice, name):
            setattr(libdevice, name, function(name))


class Tally:
    """What became of each kernel."""

    def __init__(self):
        self.passed = 0
        self.refused = collections.Counter()  # by what the compiler's diagnostic is called
        self.classes = collections.Counter()
        self.examples = {}

    def failed(self, name, why):
        # Numbers and names differ from kernel to kernel.
        kind = re.sub(r"\d+", "N", " ".join(str(why).strip().split("\n")[-1].split()))[:160]
        self.classes[kind] += 1
        self.examples.setdefault(kind, name)

    def finish(self, what):
        for kind, count in self.classes.most_common():
            print(f"FAILED {count}: {kind}  ({self.examples[kind]})")
        refused = ", ".join(f"{count} {code}" for code, count in self.refused.most_common()) or "none"
        print(f"{self.passed} {what} passed, {sum(self.classes.values())} failed; programs left out: {refused}")
        return 1 if self.classes or not self.passed else 0


def load(path):
    spec = importlib.util.spec_from_file_location("kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def programs(options):
    found = sorted(p for p in pathlib.Path(options.goldens).rglob("*.pt2") if options.only in str(p))
    return found[options.start::options.every]


def text_of(fn):
    """The kernel's text without its name, with that of the functions that it combines with."""
    return re.sub(r"def \w+", "def", fn.src) + "".join(text_of(g) for name, g in sorted(fn.fn.__globals__.items())
                                                       if name != fn.__name__ and name in fn.src and isinstance(g, triton.JITFunction))


def compile_kernel(fn, row, last):
    names = list(row["signature"])
    divisible = {(names.index(k), ): [["tt.divisibility", v]] for k, v in row["divisible"].items()}
    source = ASTSource(fn=fn, signature=row["signature"], constexprs={}, attrs=divisible)
    options = {"num_warps": row["num_warps"], "num_stages": row["num_stages"]}
    target = GPUTarget("cuda", 90, 32)
    if last == "ttir":
        from triton._C.libtriton import ir
        backend = make_backend(target)
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        parsed = backend.parse_options(options)
        source.make_ir(target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context)
    else:
        triton.compile(source, target=target, options=options)  # with the ptxas that the wheel brings


def check_compile(options):
    tally, seen = Tally(), set()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TRITON_CACHE_DIR", folder + "/cache")
        for file in programs(options):
            for target in options.targets.split(","):
                path = f"{folder}/kernels.py"
                command = [options.program, "compile", str(file), "--target", target, "--emit", "triton", "-o", path]
                kernels = file.parent / "kernels"
                command += ["--kernels", str(kernels)] if kernels.exists() else []
                made = subprocess.run(command, capture_output=True, text=True)
                code = re.search(r"\bE\d{4}\b", made.stderr)
                if made.returncode == 1 and code:
                    tally.refused[code.group()] += 1
                    if options.verbose:
                        print(file, target, made.stderr.strip()[:200])
                    continue
                if made.returncode != 0:
                    tally.failed(str(file), made.stderr)
                    continue
                module = load(path)
                for name, row in module.KERNELS.items():
                    fn = getattr(module, name)
                    key = (text_of(fn), json.dumps(row["signature"]), row["num_warps"])
                    if key in seen:
                        continue
                    seen.add(key)
                    try:
                        compile_kernel(fn, row, options.to)
                        tally.passed += 1
                    except Exception as error:  # whatever Triton finds
                        cause = error
                        while cause.__cause__ is not None:
                            cause = cause.__cause__
                        tally.failed(f"{file} {target} {name}", f"{type(cause).__name__}: {cause}")
    return tally.finish("kernels")


def tensor(path, kind):
    data = bytearray(pathlib.Path(path).read_bytes())
    return torch.frombuffer(data, dtype=torch.uint8).view(TYPES[kind]) if data else torch.empty(0, dtype=TYPES[kind])


def difference(kind, want, got):
    if not want.numel():
        return ""
    if kind not in TOLERANCE:
        return "" if torch.equal(want, got) else f"{int((want != got).sum())} of {want.numel()} integers differ"
    a, b = want.double(), got.double()
    finite = a[a.isfinite()]
    scale = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    close = torch.isclose(a, b, rtol=0, atol=TOLERANCE[kind] * scale, equal_nan=True)
    return "" if bool(close.all()) else f"{int((~close).sum())} of {want.numel()} floats differ"


def run_launch(folder, launch, kernels):
    row = kernels.KERNELS[launch["kernel"]]
    args, buffers = [], {}
    for kind, arg in zip(row["signature"].values(), launch["args"]):
        if kind.startswith("*") and arg not in buffers:
            buffers[arg] = (kind[1:], tensor(f"{folder}/{arg}.before", kind[1:]), tensor(f"{folder}/{arg}.after", kind[1:]))
        args.append(buffers[arg][1].view(TYPES[kind[1:]]) if kind.startswith("*") else arg)
    getattr(kernels, launch["kernel"])[tuple(launch["grid"])](*args)
    return next((d for d in (difference(kind, want, got) for kind, got, want in buffers.values()) if d), "")


def check_run(options):
    mend_interpreter()
    tally = Tally()
    for file in programs(options):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([options.program, str(file.parent), "--only", "/" + file.name, "--triton", "--record", folder, "--steps", "65536"],
                           capture_output=True, text=True)
            if not os.path.exists(folder + "/kernels.py"):
                tally.refused["without a source"] += 1
                continue
            kernels = load(folder + "/kernels.py")
            for line in open(folder + "/launches.json") if os.path.exists(folder + "/launches.json") else []:
                launch = json.loads(line)
                try:
                    wrong = run_launch(folder, launch, kernels)
                except Exception as error:  # whatever the interpreter finds
                    cause = error
                    while cause.__cause__ is not None:
                        cause = cause.__cause__
                    wrong = f"{type(cause).__name__}: {cause}"
                if wrong:
                    tally.failed(f"{file} {launch['kernel']}", wrong)
                else:
                    tally.passed += 1
    return tally.finish("launches")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["compile", "run"])
    parser.add_argument("program")
    parser.add_argument("goldens")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--from", dest="start", type=int, default=0)
    parser.add_argument("--to", choices=["ttir", "machine"], default="ttir")
    parser.add_argument("--only", default="")
    parser.add_argument("--targets", default="cuda,cpu")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    return check_compile(options) if options.what == "compile" else check_run(options)


if __name__ == "__main__":
    sys.exit(main())
