#!/usr/bin/env python3
"""Runs the kernels of tests/goldens/kernels in Triton's own interpreter and writes what the tests expect.

    tools/make_kernel_goldens.py                 writes tests/goldens/kernels/cases.txt and expected.bin
    tools/make_kernel_goldens.py --emit PROGRAM  also compares the number of ops with Triton's own TTIR (needs no GPU)

Each kernel file ends in CASES: kernel, name, grid, args, const, tol. An argument is a number, None, or a buffer "TYPE[COUNT]:LO,HI"
whose elements follow from a formula that the C++ test repeats; "out" in front makes it zero. cases.txt has one line a case, expected.bin
the bytes of all its buffers after the run, in order.
"""
import os
import sys

os.environ["TRITON_INTERPRET"] = "0" if "--emit" in sys.argv else "1"
import collections
import importlib.util
import pathlib
import re
import subprocess

import torch

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "goldens" / "kernels"
FILES = ["arithmetic", "control", "shapes", "memory", "library", "idioms", "scaled", "indices", "functions", "networks"]
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "i1": torch.bool, "i8": torch.int8,
         "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}
SIGNATURE = {"f16": "fp16", "f32": "fp32", "f64": "fp64"}
MASK = (1 << 64) - 1


def mix(x):
    """splitmix64's output function."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def buffer(spec, seed):
    out = spec.startswith("out ")
    m = re.fullmatch(r"(?:out )?(\w+)\[(\d+)\](?::(-?[\d.]+),(-?[\d.]+))?", spec)
    kind, count = m.group(1), int(m.group(2))
    lo, hi = float(m.group(3) or -1), float(m.group(4) or 1)
    if out:
        return kind, torch.zeros(count, dtype=TYPES[kind])
    bits = [mix(seed * 1000003 + i) for i in range(count)]
    if kind[0] == "i":
        return kind, torch.tensor([int(lo) + b % int(hi - lo) for b in bits], dtype=torch.int64).to(TYPES[kind])
    return kind, torch.tensor([(b >> 40) / 2**24 * (hi - lo) + lo for b in bits], dtype=torch.float64).to(TYPES[kind])


def load(name):
    sys.path.insert(0, str(FOLDER))
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def constant(module, text):
    text = str(text)
    return getattr(module, text) if text.isidentifier() and hasattr(module, text) else eval(text)


def expected(case, module, fn, values, buffers):
    if callable(case.get("expect")):
        case["expect"](*buffers)
    elif case.get("expect") == "2x+1":
        buffers[1].copy_(buffers[0] * 2 + 1)
    elif case.get("expect") == "libdevice":
        a, b, o = buffers
        o.copy_(torch.tanh(a) + torch.pow(a.abs() + 0.5, b) + torch.atan2(a, b) + torch.log1p(a.abs()))
    else:
        fn[tuple(case.get("grid", (1, )))](*values, **{k: constant(module, v) for k, v in case.get("const", {}).items()})


def compare_ops(program, file, case, fn, module, signature, none):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource, make_backend
    from triton._C.libtriton import ir
    backend = make_backend(GPUTarget("cuda", 90, 32))
    options = backend.parse_options({"num_warps": 4})
    types, constants, attrs, given = {}, {}, {}, iter(signature)
    for i, p in enumerate(fn.params):
        if p.name in case.get("const", {}) or p.is_constexpr or p.name in none:
            types[p.name] = "constexpr"
            value = case.get("const", {}).get(p.name, None if p.name in none else p.default)
            constants[(i, )] = constant(module, value) if value is not None else None
        else:
            types[p.name] = next(given)
            if types[p.name][0] == "*":
                attrs[(i, )] = [["tt.divisibility", 16]]
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    source = ASTSource(fn, types, constants, attrs)
    theirs = str(backend.make_ttir(source.make_ir(GPUTarget("cuda", 90, 32), options, backend.get_codegen_implementation(options), backend.get_module_map(), context), {}, options, 90))
    run = subprocess.run([program, str(FOLDER / f"{file}.py"), case["kernel"], ",".join(f"{k}:{v}" for k, v in types.items() if v != "constexpr")] +
                         [f"{k}={v}" for k, v in case.get("const", {}).items()] + [f"{k}=None" for k in none], capture_output=True, text=True)
    if run.returncode:
        return None, run.stderr.strip()

    def count(text):
        ops = collections.Counter()
        for line in text.splitlines():
            m = re.match(r'\s*(?:%[\w#:, %.]+ = )?"?([a-z_]+\.[\w.]+)"?', line)
            if m and m.group(1).split(".")[-1] not in ("func", "return", "yield"):
                ops[m.group(1)] += 1
        return ops

    a, b = count(theirs), count(run.stdout)
    return sum(b.values()) / max(1, sum(a.values())), f"{sum(a.values())} -> {sum(b.values())} " + str({k: (a[k], b[k]) for k in a | b if a[k] != b[k]})


def main():
    lines, blob, worst = [], bytearray(), 0
    for file in FILES:
        module = load(file)
        for index, case in enumerate(module.CASES):
            name = f"{file}.{case.get('name', case['kernel'])}"
            fn = getattr(module, case["kernel"])
            values, buffers, signature, args, none = [], [], [], [], []
            names = [p for p in fn.arg_names]
            for k, a in enumerate(case["args"]):
                if isinstance(a, str):
                    kind, tensor = buffer(a, len(lines) * 16 + k)
                    buffers.append(tensor)
                    values.append(tensor)
                    signature.append("*" + SIGNATURE.get(kind, kind))
                    args.append(a.replace(" ", "_"))
                elif a is None:
                    values.append(None)
                    none.append(names[k])
                else:
                    values.append(a)
                    signature.append("fp32" if isinstance(a, float) else "i32" if -2**31 <= a < 2**31 else "i64")
                    args.append(repr(a))
            if "--emit" in sys.argv:
                try:
                    ratio, text = compare_ops(sys.argv[sys.argv.index("--emit") + 1], file, case, fn, module, signature, none) if case.get("expect") != "2x+1" else (1, "")
                except Exception as error:
                    ratio, text = 1, "Triton: " + repr(error)[:300]
                    print(name, text)
                worst = max(worst, ratio or 99)
                if ratio is None or abs(ratio - 1) > 0.05:
                    print(name, f"{ratio}", text)
                continue
            try:
                expected(case, module, fn, values, buffers)
            except Exception as error:  # a case that Triton's interpreter cannot run needs an "expect" of its own
                print("left out:", name, repr(error)[:150])
                continue
            for b in buffers:
                blob += b.contiguous().view(torch.uint8).numpy().tobytes()
            typed = iter(signature)
            pairs = [f"{names[k]}:{next(typed)}" for k, a in enumerate(case["args"]) if a is not None]
            consts = [f"{k}={v}" for k, v in case.get("const", {}).items()] + [f"{k}=None" for k in none]
            grid = tuple(case.get("grid", (1, ))) + (1, 1)
            lines.append("|".join([name, file, case["kernel"], ",".join(pairs), " ".join(consts), " ".join(map(str, grid[:3])), " ".join(args), repr(case.get("tol", 1e-5))]))
    if "--emit" in sys.argv:
        print("largest ratio of op counts:", worst)
        return
    (FOLDER / "cases.txt").write_text("\n".join(lines) + "\n")
    (FOLDER / "expected.bin").write_bytes(bytes(blob))
    print(len(lines), "cases,", len(blob), "bytes")


if __name__ == "__main__":
    main()
