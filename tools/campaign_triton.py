#!/usr/bin/env python3
"""Runs the kernels of a list of cases (tests/fuzz/check_kernels.cpp) in Triton's own interpreter and compares with what check_kernels --dump wrote.

    tools/campaign_triton.py CASES DUMP [NAME]…
    tools/campaign_triton.py --serve          such lists by line of its input, words apart by tabs; "done" ends the answer to each

Prints "NAME TAB right|wrong|refused TAB why" by line. Needs torch and Triton. Floats: equal up to the buffer's tolerance, or to one rounding of
its type where Triton's interpreter rounds otherwise than once (numpy computes f16 and bf16 in f32).
"""
import os

os.environ["TRITON_INTERPRET"] = "1"
import importlib.util
import re
import sys
import warnings
from pathlib import Path

import numpy
import torch

warnings.filterwarnings("ignore")
TYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2,
         "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u64": torch.uint64, "u32": torch.uint32, "u16": torch.uint16, "u8": torch.uint8,
         "i1": torch.bool}


def run(case, folder, dump):
    name, file, function, signature, constexprs, grid, args = case.split("|")
    before, after = (dump / f"{name}.before").read_bytes(), (dump / f"{name}.after").read_bytes()
    spec = importlib.util.spec_from_file_location(name, folder / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    values, buffers, at = [], [], 0
    for arg in args.split():
        m = re.match(r"(\w+)\[(\d+)\]=[^~]*(?:~(.*))?", arg)
        if not m:
            values.append(int(arg))
            continue
        dtype, count = TYPES[m[1]], int(m[2])
        size = count * dtype.itemsize
        tensor = torch.frombuffer(bytearray(before[at:at + size]), dtype=torch.uint8).view(dtype)
        want = torch.frombuffer(bytearray(after[at:at + size]), dtype=torch.uint8).view(dtype)
        buffers.append((tensor, want, float(m[3] or 0)))
        values.append(tensor)
        at += size
    named = dict(pair.split("=") for pair in constexprs.split())
    try:
        with numpy.errstate(all="ignore"):
            getattr(module, function)[tuple(map(int, grid.split()))](*values, **{k: int(v) for k, v in named.items()})
    except Exception as error:  # what Triton refuses is no kernel at all
        return "refused", re.sub(r"\s", " ", repr(error))[:300]
    for number, (got, want, tolerance) in enumerate(buffers):
        if got.dtype.is_floating_point:
            g, w = got.to(torch.float64), want.to(torch.float64)
            near = (g == w) | (g.isnan() & w.isnan()) | ((g - w).abs() <= tolerance * w.abs().clamp(min=1))
        else:
            g, w = got, want
            near = g.view(torch.uint8).view(-1, got.itemsize).eq(w.view(torch.uint8).view(-1, got.itemsize)).all(1)
        if not bool(near.all()):
            first = int((~near).nonzero()[0])
            return "wrong", f"buffer {number}: element {first} is {w[first].item()} for {g[first].item()} (Triton's); {int((~near).sum())} of {len(near)} elements"
    return "right", ""


def compare(cases, dump, only):
    for case in cases.read_text().splitlines():
        name = case.split("|")[0]
        if (not only or name in only) and (dump / f"{name}.after").exists():
            verdict, why = run(case, cases.parent, dump)
            print(f"{name}\t{verdict}\t{why}", flush=True)


def main():
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--serve"]:
        for line in sys.stdin:
            cases, dump, *only = line.rstrip("\n").split("\t")
            compare(Path(cases), Path(dump), set(only))
            print("done", flush=True)
    else:
        compare(Path(sys.argv[1]), Path(sys.argv[2]), set(sys.argv[3:]))


if __name__ == "__main__":
    main()
