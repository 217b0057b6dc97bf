#!/usr/bin/env python3
"""Asks torch which ATen operators give results that share memory with an argument though their schema does not say so.

    tools/find_unannotated_views.py

Calls every functional overload with made-up arguments, each in a process of its own, and prints those whose result lies in an argument's memory, with
the arguments of two such calls. compiler/ir/graph/passes must know each that Neso lowers (`aliasing` in views.cpp, `viewsOfEach` in unannotated_views.cpp): a
write through a result that it does not know to be a view is lost without a word. Needs torch.
"""
import itertools
import os
import time
import warnings

import torch

# What needs another device or another kind of tensor.
ELSEWHERE = ("cuda", "cudnn", "miopen", "mps", "mkldnn", "nested", "sparse", "quantize", "fbgemm", "pin_memory", "from_file", "xnnpack", "_test", "vulkan", "xpu", "jagged")
NUMBERS = {
    "int": [0, 1, 2, -1],
    "float": [0.0, 1.0],
    "bool": [False, True],
    "number": [0, 1, 1.0],
    "List[int]": [[1], [3, 3], [0, 1], [0], [0, 0], [1, 1], []],
    "str": ["ij->ji", "ij", "mean", "ij->ij", "none", "reflect"],
    "List[bool]": [[True, True]],
    "List[float]": [[1.0]]
}


def tensors():
    """Makers of tensors: ranks 0 to 4, and several dtypes."""
    for shape, dtype in (((3, 3), torch.float32), ((4, ), torch.float32), ((), torch.float32), ((2, 4, 4, 4), torch.float32), ((3, 3), torch.int64), ((1, 1), torch.float32),
                         ((3, 3), torch.complex64), ((2, 3, 4), torch.float32)):
        yield lambda shape=shape, dtype=dtype: (torch.rand(shape) + 0.1).to(dtype)


def choices(argument):
    kind = str(argument.type)
    if argument.default_value is not None or kind.startswith("Optional"):
        return [False, True] if kind == "bool" else [argument.default_value]
    if kind in ("Tensor", "List[Tensor]"):
        return ["one", "two"] if kind == "List[Tensor]" else ["tensor"]
    return NUMBERS.get("number" if kind == "Scalar" else kind, [None])


def calls_that_share(function, schema):
    found, until = [], time.process_time() + 1
    for words in itertools.islice(itertools.product(*map(choices, schema.arguments)), 60):
        for make in tensors():
            if time.process_time() > until:
                return found
            given, positional, named = [], [], {}
            for argument, value in zip(schema.arguments, words):
                if value in ("tensor", "one", "two") and "Tensor" in str(argument.type):
                    new = [make() for _ in range(2 if value == "two" else 1)]
                    given += new
                    value = new[0] if value == "tensor" else new
                if argument.kwarg_only:
                    named[argument.name] = value
                else:
                    positional.append(value)
            try:
                out = function(*positional, **named)
            except Exception:  # most made-up calls make no sense
                continue
            memory = {x.untyped_storage()._cdata for x in given if x.layout == torch.strided}
            for x in torch.utils._pytree.tree_leaves(out):
                if isinstance(x, torch.Tensor) and x.layout == torch.strided and x.numel() and x.untyped_storage()._cdata in memory:
                    found.append([w for w in words if not isinstance(w, torch.Tensor)] + [tuple(given[0].shape)])
    return found


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    for name in sorted(n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")):
        base, _, overload = name[6:].partition(".")
        function = getattr(getattr(torch.ops.aten, base), overload or "default", None)
        if function is None or any(word in base for word in ELSEWHERE):
            continue
        schema = function._schema
        aliased = any(r.alias_info for r in schema.returns) or any(a.alias_info and a.alias_info.is_write for a in schema.arguments)
        if aliased or not any("Tensor" in str(r.type) for r in schema.returns):
            continue
        # Made-up calls may trap.
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            continue
        found = calls_that_share(function, schema)
        if found:
            print(name, len(found), found[:2], flush=True)
        os._exit(0)


if __name__ == "__main__":
    main()
