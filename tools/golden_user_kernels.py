#!/usr/bin/env python3
"""Writes tests/goldens/user_kernels: models that launch Triton kernels of their own, exported with python/neso_export.

    tools/golden_user_kernels.py [--out tests/goldens/user_kernels] [--only REGEX]

Each folder holds model.pt2 (kernel bundle inside, or in kernels/), inputs and outputs at one or two sizes, and case.json as make_goldens.py
writes it. The outputs come from running the model eagerly in Triton's interpreter (a second process with TRITON_INTERPRET=1): nothing here is
made by Neso. Neither needs a GPU.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent / "python")]
import torch  # noqa: E402
import triton  # noqa: E402
import user_kernels  # noqa: E402
from user_kernel_models import CASES  # noqa: E402

SEED = 20260102


def build(name):
    cls, sizes, dynamic, options = CASES[name]
    torch.manual_seed(SEED)
    model = cls().eval()
    return model, [cls.inputs(n) for n in sizes], dynamic, options


def interpret(names, out):
    """In Triton's interpreter: eager outputs of each case, and what it changed."""
    results = {}
    torch.cond = lambda predicate, yes, no, operands: (yes if predicate else no)(*operands)  # without a tracer
    for kernel in (user_kernels.scaled_add, user_kernels.heuristic_square):
        kernel.configs = kernel.configs[:1]  # the result does not depend on it, and timing needs a driver
    for name in names:
        model, runs, _, _ = build(name)
        for i, inputs in enumerate(runs):
            model, _, _, _ = build(name)
            state = {k: v.clone() for k, v in model.state_dict().items()}
            given = [t.clone() for t in inputs]
            with torch.no_grad():
                outs = model(*given)
            outs = outs if isinstance(outs, tuple) else (outs,)
            named = {str(k): o.contiguous().clone() for k, o in enumerate(outs)}
            named.update({"buffer." + k: v.clone() for k, v in model.state_dict().items() if not torch.equal(v, state[k])})
            named.update({f"input.{k}": t for k, (t, u) in enumerate(zip(given, inputs)) if not torch.equal(t, u)})
            results[name, i] = named
    torch.save(results, out)


def closed_operator(model, inputs, folder):
    """As torch.export alone leaves it: the operator is one node, its launch is described by hand."""
    from neso_export.sources import kernel_source
    torch.export.save(torch.export.export(model, inputs), folder / "model.pt2")
    (folder / "kernels").mkdir()
    (folder / "kernels/add_kernel.py").write_text(kernel_source(user_kernels.add_kernel, []))
    row = {"op": "neso_golden::add", "index": 0, "name": "add_kernel", "file": "add_kernel.py", "function": "add_kernel",
           "parameters": ["in_ptr0", "in_ptr1", "out_ptr", "n_elements", "BLOCK_SIZE"], "signature": ["*fp32", "*fp32", "*fp32", "i32", "constexpr"],
           "values": {"in_ptr0": "input", "in_ptr1": "input", "out_ptr": "input", "n_elements": str(inputs[0].numel()), "BLOCK_SIZE": "16"},
           "num_warps": 4, "num_stages": 3, "grid": [str(user_kernels.cdiv(inputs[0].numel(), 16)), "1", "1"]}
    (folder / "kernels/launches.json").write_text(json.dumps([row], indent=1) + "\n")


def closed_mutating_operator(model, inputs, folder):
    """As run_decompositions() leaves a closed operator that changes its argument: auto_functionalized_v2."""
    from neso_export.sources import kernel_source
    torch.export.save(torch.export.export(model, inputs).run_decompositions(), folder / "model.pt2")
    (folder / "kernels").mkdir()
    (folder / "kernels/mul2.py").write_text(kernel_source(user_kernels.mul2_inplace_kernel, []))
    row = {"op": "neso_golden::double_", "index": 0, "name": "mul2", "file": "mul2.py", "function": "mul2_inplace_kernel",
           "parameters": ["ptr", "n_elements", "BLOCK_SIZE"], "signature": ["*fp32", "i32", "constexpr"],
           "values": {"ptr": "input:x", "n_elements": "24", "BLOCK_SIZE": "32"}, "num_warps": 4, "num_stages": 3, "grid": ["1", "1", "1"]}
    (folder / "kernels/launches.json").write_text(json.dumps([row], indent=1) + "\n")


def as_ttir(folder):
    """Puts what Triton compiles for each launch in the place of its source; Triton drops arguments that are 1."""
    import inspect
    from triton.backends.compiler import GPUTarget
    rows = json.loads((folder / "launches.json").read_text())
    for i, row in enumerate(rows):
        kernel = getattr(user_kernels, row["function"])
        literals = {k: v for k, v in row["values"].items() if v != "input"}
        fixed = {k: int(v) for k, v in literals.items() if v == "1" or row["signature"][row["parameters"].index(k)] == "constexpr"}
        signature = {k: "constexpr" if k in fixed else t for k, t in zip(row["parameters"], row["signature"])}
        order = list(inspect.signature(kernel.fn).parameters)
        source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs={(order.index(k),): v for k, v in fixed.items()})
        (folder / row["file"]).unlink(missing_ok=True)
        row["file"] = f"launch{i}.ttir"
        text = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ttir"]
        (folder / row["file"]).write_text(text.replace(str(Path(__file__).resolve().parent.parent) + "/", ""))
    (folder / "launches.json").write_text(json.dumps(rows, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=str(Path(__file__).resolve().parent.parent / "tests/goldens/user_kernels"))
    parser.add_argument("--only", default="")
    parser.add_argument("--interpret")
    options = parser.parse_args()
    names = [n for n in CASES if re.search(options.only, n)]
    if options.interpret:
        return interpret(names, options.interpret)
    import neso_cases as cases
    import neso_export
    with tempfile.NamedTemporaryFile(suffix=".pt") as f:
        subprocess.run([sys.executable, sys.argv[0], "--only", options.only, "--interpret", f.name], env={**os.environ, "TRITON_INTERPRET": "1"}, check=True)
        expected = torch.load(f.name)
    for name in names:
        model, runs, dynamic, extra = build(name)
        folder = Path(options.out) / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if extra.get("closed"):
            (closed_mutating_operator if extra["closed"] == "double" else closed_operator)(model, runs[0], folder)
        else:
            program = neso_export.export(model, runs[0], dynamic_shapes=dynamic)
            neso_export.write(program, str(folder / "model.pt2"), kernels=str(folder / "kernels") if extra.get("kernels") else None)
            if extra.get("ttir"):
                as_ttir(folder / "kernels")
        cases.tidy_pt2(folder / "model.pt2")
        rows = []
        for i, inputs in enumerate(runs):
            suffix = "" if i == 0 else f".{i + 1}"
            cases.write_safetensors(folder / f"inputs{suffix}.safetensors", list(inputs))
            named = expected[name, i]
            cases.write_safetensors(folder / f"outputs{suffix}.safetensors", named)
            row = {"name": "run" + suffix, "program": "model.pt2", "inputs": f"inputs{suffix}.safetensors", "outputs": f"outputs{suffix}.safetensors", "prefix": "",
                   "tolerance": {k: list(cases.TOLERANCE[cases.DTYPE_NAMES[v.dtype]]) if v.is_floating_point() else [0.0, 0.0] for k, v in named.items()}}
            rows.append(json.dumps(row))
        (folder / "case.json").write_text('{"seed": %d, "torch": "%s", "runs": [\n  %s\n]}\n' % (SEED, torch.__version__.split("+")[0], ",\n  ".join(rows)))
        print(name)


if __name__ == "__main__":
    main()
