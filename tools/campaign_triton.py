#!/usr/bin/env python3
"""Runs the kernels of a list of cases (tests/fuzz/check_kernels.cpp) in Triton's own interpreter and compares with what check_kernels --dump wrote.

    tools/campaign_triton.py CASES DUMP [NAME]…
    tools/campaign_triton.py --serve          such lists by line of its input, words apart by tabs; "done" ends the answer to each

Prints "NAME TAB right|wrong|refused TAB why" by line. Needs torch and Triton. Floats: equal up to the buffer's tolerance, or to one rounding of
its type where Triton's interpreter rounds otherwise than once (numpy computes f16 and bf16 in f32).

Triton's interpreter keeps a bf16 as the 16-bit integer of its bits, and its arithmetic, comparisons, dots and reductions forget to decode it: -x gave
65536 minus the bits, a dot the products of the bits. A comparison's result has its operands' type there, so that a splat of it is no mask any more.
It cuts an f32 to a bf16 instead of rounding it, and rounds to floats of 8 bits at times wrongly. `mend_interpreter` mends all of these, so that such kernels are compared too.
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


def decoded_input(function, tl, wide, narrow, is_bf16):
    """A reduction or scan that numpy computes at once, on a bf16 tensor's numbers."""

    def call(self, tensor, *how, **named):
        source = tensor[0] if isinstance(tensor, tuple) else tensor
        if not is_bf16(source.handle):
            return function(self, tensor, *how, **named)
        out = function(self, tl.core.tensor(wide(source.handle), tl.core.block_type(tl.float32, source.type.shape)), *how, **named)
        many = isinstance(out, (tuple, list))
        back = [self.to_tensor(narrow(x.handle.data), tl.bfloat16) if x.dtype == tl.float32 else x for x in (out if many else [out])]
        return type(out)(back) if many else back[0]

    return call


def mend_interpreter():
    import triton.language as tl
    from triton.runtime import interpreter

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle

    def is_bf16(x):
        return isinstance(x, handle) and x.dtype == tl.bfloat16 and x.data.dtype == numpy.uint16

    def wide(x):
        return handle((x.data.astype(numpy.uint32) << 16).view(numpy.float32), tl.float32) if is_bf16(x) else x

    def narrow(x):
        data = torch.from_numpy(numpy.ascontiguousarray(x, numpy.float32)).to(torch.bfloat16).view(torch.uint16).numpy()
        return data.reshape(numpy.shape(x))

    def mended(function, result):
        """`function` on decoded operands; `result` is the operand whose type the result has."""

        def call(self, *operands):
            # A choice between operands moves bits alone, and numpy's where takes no part in it.
            decode = any(is_bf16(x) for x in operands) and operands[-1] is not numpy.where
            out = function(self, *map(wide, operands)) if decode else function(self, *operands)
            if out.data.dtype == numpy.bool_:
                return handle(out.data, tl.int1)
            if not decode or not is_bf16(operands[result]):
                return out
            return handle(narrow(out.data), tl.bfloat16)

        return call

    builder.unary_op, builder.binary_op = mended(builder.unary_op, 0), mended(builder.binary_op, 0)
    builder.ternary_op, builder.create_fma = mended(builder.ternary_op, 2), mended(builder.create_fma, 2)
    builder.create_dot = mended(builder.create_dot, 2)
    cast = builder.cast_impl

    def cast_impl(self, source, to):
        if is_bf16(source):
            return cast(self, wide(source), to) if to.scalar not in (tl.bfloat16, tl.float32) else cast(self, source, to)
        if to.scalar == tl.bfloat16:
            # The interpreter drops the low bits of an f32. Two roundings of a number of 64 bits may differ from one by an ulp, which the
            # comparison of floats allows.
            return handle(narrow(source.data.astype(numpy.float32)), tl.bfloat16)
        return cast(self, source, to)

    builder.cast_impl = cast_impl
    # Its own conversion to floats of 8 bits rounds some wrongly. What is too large becomes the largest, as in hardware.
    eights = {tl.float8e4nv: (torch.float8_e4m3fn, 448.0), tl.float8e5: (torch.float8_e5m2, 57344.0)}
    convert = builder.create_fp_to_fp

    def create_fp_to_fp(self, source, to, rounding):
        kind, limit = eights.get(to.scalar, (None, 0))
        if kind is None or "RTZ" in str(rounding) or source.dtype.scalar not in (tl.float16, tl.bfloat16, tl.float32, tl.float64):
            return convert(self, source, to, rounding)
        numbers = torch.from_numpy(numpy.ascontiguousarray(wide(source).data, numpy.float32)).clamp(-limit, limit)
        return handle(numbers.to(kind).view(torch.uint8).numpy().reshape(source.data.shape), to.scalar)

    builder.create_fp_to_fp = create_fp_to_fp
    for operations, names in ((interpreter.ReduceOps, ("sum", "min_max")), (interpreter.ScanOps, ("cumsum", "cumprod"))):
        for name in names:
            setattr(operations, name, decoded_input(getattr(operations, name), tl, wide, narrow, is_bf16))


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
    mend_interpreter()
    if sys.argv[1:] == ["--serve"]:
        for line in sys.stdin:
            cases, dump, *only = line.rstrip("\n").split("\t")
            compare(Path(cases), Path(dump), set(only))
            print("done", flush=True)
    else:
        compare(Path(sys.argv[1]), Path(sys.argv[2]), set(sys.argv[3:]))


if __name__ == "__main__":
    main()
