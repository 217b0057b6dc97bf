"""Exports PyTorch models that launch Triton kernels of their own, with what a compiler needs to know about those kernels.

    import neso_export
    neso_export.save(model, (x, y), "model.pt2", dynamic_shapes={"x": {0: Dim("n")}, "y": {0: Dim("n")}})

writes `model.pt2` with the kernels' sources and launches under `extra/neso_kernels/`; `kernels="folder"` puts them into a folder instead
(for `neso compile --kernels folder`). Launches may be raw (`kernel[grid](...)`), through `torch.library.wrap_triton`, or inside a
`torch.library.triton_op`. No GPU is needed, and no kernel runs. Works with torch 2.11 to 2.15 and the Triton that belongs to each.

`export` gives the torch.export.ExportedProgram alone; `write` saves such a program.
"""

import contextlib
import hashlib
import json
import math
import operator
import os
import types

import torch
from torch._higher_order_ops import triton_kernel_wrap as hop

from .launches import Descriptor, NesoExportError, adopt, holds_tensors, item_name, tracing
from .sources import kernel_source, literal, pointer_type

__all__ = ["NesoExportError", "export", "save", "write"]

WRAPPERS = (hop.triton_kernel_wrapper_functional, hop.triton_kernel_wrapper_mutation)


def export(model, args, kwargs=None, *, dynamic_shapes=None, strict=False, decompositions=None):
    """The exported program, functional, with one wrapper node for each launch. `decompositions` is that of run_decompositions; by default
    no ATen operator is decomposed."""
    with tracing():
        program = torch.export.export(model, tuple(args), kwargs, dynamic_shapes=dynamic_shapes, strict=strict)
        program = program.run_decompositions({} if decompositions is None else decompositions)
        for node in _launches(program):
            adopt(node)
        return program


def save(model, args, path, kwargs=None, *, dynamic_shapes=None, strict=False, decompositions=None, kernels=None):
    """Exports the model and writes it: see `export` and `write`. Gives the program."""
    program = export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict, decompositions=decompositions)
    write(program, path, kernels=kernels)
    return program


def write(program, path, *, kernels=None, extra=None):
    """Writes a program made by `export`. The kernel bundle goes into the archive, or into the folder `kernels`; `extra`: files beside it."""
    launches, sources = [], {}
    names = {}  # node -> name of its kernel
    for node in _launches(program):
        row, text = _row(node)
        names[node] = row["name"]
        launches.append(row)
        sources[row["file"]] = text
    files = {"launches.json": json.dumps(launches, indent=1) + "\n", **sources}
    extra = dict(extra or {})
    if kernels is not None:
        os.makedirs(kernels, exist_ok=True)
        for name, text in files.items():
            with open(os.path.join(kernels, name), "w") as f:
                f.write(text)
    elif launches:
        extra |= {"neso_kernels/" + name: text for name, text in files.items()}
    with _saving(names):
        torch.export.save(program, path, extra_files=extra)


def _launches(program):
    """The wrapper nodes of the program and its sub-graphs."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (n for n in module.graph.nodes if n.op == "call_function" and n.target in WRAPPERS)


def _symbolic(value) -> str:
    """An integer of the graph as text over the program's size symbols."""
    value = value.meta["val"] if isinstance(value, torch.fx.Node) else value
    return str(value.node.expr) if isinstance(value, torch.SymInt) else str(int(value))


def _integer_type(value) -> str:
    """i32 where Triton would take it for the sizes seen; the compiled program checks that it holds for others. Of what data decides nothing was seen:
    i32 where that always holds, as AOTInductor does."""
    if isinstance(value, torch.SymInt) and not value.node.has_hint():
        bounds = value.node.shape_env.bound_sympy(value.node.expr)
        return "i32" if bounds.lower >= -(1 << 31) and bounds.upper < (1 << 31) else "i64"
    if isinstance(value, torch.SymInt):
        value = value.node.hint
    return "i32" if -(1 << 31) <= value < (1 << 31) else "i64" if value < (1 << 63) else "u64"


def _type(parameter, value) -> str:
    if parameter.is_constexpr or value is None:
        return "constexpr"
    if isinstance(value, torch.Tensor):
        return pointer_type(value.dtype)
    if holds_tensors(value):
        return "(" + ", ".join(_type(types.SimpleNamespace(is_constexpr=False), v) for v in value) + ")"
    if isinstance(value, Descriptor):
        return f"tensordesc<{pointer_type(value.tensor.dtype)[1:]}[{', '.join(map(str, value.block_shape))}]>"
    annotated = str(getattr(parameter, "annotation_type", "") or "")
    if isinstance(value, (bool, torch.SymBool)):
        return "u1"
    if isinstance(value, (int, torch.SymInt)):
        return annotated if annotated.startswith(("i", "u")) else _integer_type(value)
    if isinstance(value, (float, torch.SymFloat)):
        return annotated if annotated.startswith("fp") else "fp32"
    return "constexpr"


def _value(name, value, in_graph) -> str:
    if holds_tensors(value):
        return "(" + ", ".join(f"input:{item_name(name, i)}" if item_name(name, i) in in_graph else literal(v) for i, v in enumerate(value)) + ")"
    return "input" if name in in_graph else literal(value)


def _row(node):
    launch = adopt(node)
    kernel, first = launch.function, launch.configs[0]
    given = {**launch.values, **first.kwargs}
    in_graph = node.kwargs["kwargs"]
    signature = [_type(p, given[p.name]) for p in kernel.params]
    text = kernel_source(kernel, [*given.values(), *(v for c in launch.configs for v in c.kwargs.values())])
    digest = hashlib.sha256("\n".join([text, *signature]).encode()).hexdigest()
    name = f"{kernel.fn.__name__}_{digest}"
    row = {
        "node": node.name, "name": name, "file": name + ".py", "function": kernel.fn.__name__,
        "parameters": [p.name for p in kernel.params], "signature": signature,
        "values": {p.name: _value(p.name, given[p.name], in_graph) for p in kernel.params},
        "num_warps": first.num_warps, "num_stages": first.num_stages,
        "grid": [_symbolic(g) for g in node.kwargs["grid"][0]],
    }
    if launch.autotuned:
        row["configs"] = [
            {"kwargs": {k: literal(v) for k, v in c.kwargs.items()}, "num_warps": c.num_warps, "num_stages": c.num_stages, "grid": [_symbolic(g) for g in grid]}
            for c, grid in zip(launch.configs, node.kwargs["grid"])]
        row["key"] = launch.key
    if launch.heuristics:
        row["heuristics"] = {name: text for name, text in launch.heuristics.items() if text}
    return row, text


@contextlib.contextmanager
def _saving(names):
    """torch.export.save asks each kernel for its one compiled binary, which does not exist here: answer with what it writes down. And it
    refuses some of the functions of sizes that torch.export itself lets into a program."""
    import torch._export.serde.serialize as serde

    def entry(node):
        launch = adopt(node)
        first, given = launch.configs[0], {**launch.values, **launch.configs[0].kwargs}
        function, digest = names[node].rsplit("_", 1)
        metadata = types.SimpleNamespace(hash=digest, num_warps=first.num_warps, num_stages=first.num_stages, shared=0)
        source = types.SimpleNamespace(signature={p.name: _type(p, given[p.name]) for p in launch.function.params})
        return launch.function, types.SimpleNamespace(metadata=metadata, src=source)

    previous = getattr(serde, "get_triton_kernel_and_cache_entry", None)
    if previous is None and names:
        raise NesoExportError(f"torch {torch.__version__} cannot write user kernels; torch 2.11 or newer can")
    serde.get_triton_kernel_and_cache_entry = entry
    # A set of torch's module, not a copy: what was there before stays after.
    functions = getattr(serde, "_SYM_OPS", set())
    added = {math.ceil, math.floor, round, operator.abs} - functions
    functions |= added
    try:
        yield
    finally:
        functions -= added
        if previous is not None:
            serde.get_triton_kernel_and_cache_entry = previous
