#!/usr/bin/env python3
"""Prints the kernels of cases.txt as Triton's own front end makes them, calls not yet inlined, into ttir/. Needs Triton, no GPU.

    tests/mutation/make_ttir.py
"""
import importlib.util
import pathlib
import re

import triton
import triton.compiler.compiler as compiler
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

FOLDER = pathlib.Path(__file__).resolve().parent


def text_of(fn, types, consts):
    names = fn.arg_names
    source = ASTSource(fn=fn, signature=dict(zip(names, types)), constexprs={(names.index(n), ): v for n, v in consts.items()})
    target = GPUTarget("cuda", 90, 32)
    backend = compiler.make_backend(target)
    options = backend.parse_options({"sanitize_overflow": False})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context)
    # Places make most of the text; but where a kernel renames a parameter, only they tell its name.
    if fn.__name__ == "branch_yields":
        return str(module).replace(str(FOLDER) + "/", "")
    text = re.sub(r" ?loc\((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*\)", "", str(module))
    return "".join(line + "\n" for line in text.splitlines() if not line.startswith("#loc"))


def main():
    spec = importlib.util.spec_from_file_location("kernels", FOLDER / "kernels.py")
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    (FOLDER / "ttir").mkdir(exist_ok=True)
    for line in (FOLDER / "cases.txt").read_text().splitlines():
        name, kernel, signature, consts, *_ = line.split("|")
        fn = getattr(kernels, kernel)
        values = {k: eval(v) for k, v in (c.split("=") for c in consts.split())}
        if isinstance(fn, triton.runtime.Autotuner):
            values.update(fn.configs[0].kwargs)
            fn = fn.fn
        # Triton 3.9 has no block pointers; those files stand as older versions print them.
        if kernel in ("for_loop_arg_2", "while_loop", "block_pointers", "block_pointers_2d"):
            continue
        (FOLDER / "ttir" / f"{name}.ttir").write_text(text_of(fn, signature.split(","), values))


if __name__ == "__main__":
    main()
