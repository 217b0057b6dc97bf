#!/usr/bin/env python3
"""Which dtypes PyTorch's kernels refuse and Neso takes: calls that torch.export lets pass (it traces fake tensors, which promote) and eager PyTorch does not run.

    tools/dtype_refusals.py BUILD OUT.jsonl [--only REGEX] [--samples 2]

For each operator of PyTorch's own list of examples (OpInfo) it changes the dtype of one tensor of a call, or of all, to float64, bfloat16, int64 and bool. A call that
eager refuses, that torch.export exports and that Neso compiles is written to OUT.jsonl with the operators that it became."""
import argparse
import json
import re
import sys
import warnings


def variants(sample):
    """(what was changed, arguments, keywords) of a sample."""
    import torch
    import torch.utils._pytree as pytree
    flat, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    places = [k for k, x in enumerate(flat) if isinstance(x, torch.Tensor)]
    sets = [[k] for k in places] if len(places) > 1 else []
    floats = [k for k in places if flat[k].is_floating_point()]
    if floats:
        sets.append(floats)
    for which in sets:
        for dtype in (torch.float64, torch.bfloat16, torch.int64, torch.bool):
            if all(flat[k].dtype == dtype for k in which) or (which is not floats and not flat[which[0]].is_floating_point() and not dtype.is_floating_point):
                continue
            if which is floats and dtype.is_floating_point and len(floats) == len(places):
                continue
            changed = [x.detach().to(dtype) if k in which else x for k, x in enumerate(flat)]
            args, kwargs = pytree.tree_unflatten(changed, spec)
            yield f"{'all floats' if which is floats else f'tensor {places.index(which[0])}'} {str(dtype)[6:]}", args, kwargs


def looked_at(op, args, kwargs):
    """What is to be said of a call; None where there is nothing."""
    import neso
    import torch

    class Model(torch.nn.Module):
        def forward(self, tensors):
            return op(*torch.utils._pytree.tree_unflatten(merged(tensors), spec)[0], **torch.utils._pytree.tree_unflatten(merged(tensors), spec)[1])
    flat, spec = torch.utils._pytree.tree_flatten((args, kwargs))

    def merged(tensors):
        rest = iter(tensors)
        return [next(rest) if isinstance(x, torch.Tensor) else x for x in flat]
    tensors = [x.detach() for x in flat if isinstance(x, torch.Tensor)]
    try:
        Model()([t.clone() for t in tensors])
        return None
    except Exception as e:
        why = str(e).split("\n")[0][:160]
    try:
        exported = torch.export.export(Model(), (tensors,))
    except Exception:
        return None
    targets = [str(n.target) for n in exported.graph.nodes if n.op == "call_function"]
    try:
        neso.compile(exported)
    except neso.CompileError:
        return None
    except Exception as e:
        return {"error": str(e)[:200], "eager": why, "targets": targets}
    return {"eager": why, "targets": targets}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("out")
    parser.add_argument("--only", default="")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--part", default="0/1", help="K/N: every N-th operator from the K-th")
    args = parser.parse_args()
    sys.path.insert(0, args.build + "/python")
    warnings.simplefilter("ignore")
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    torch.set_grad_enabled(False)
    k, n = map(int, args.part.split("/"))
    with open(args.out, "w") as out:
        for op in [o for o in op_db if re.search(args.only, o.name)][k::n]:
            dtype = next((d for d in (torch.float32, torch.int64) if d in op.dtypes), None)
            if dtype is None:
                continue
            told = set()
            try:
                samples = [s for _, s in zip(range(args.samples), op.sample_inputs("cpu", dtype, requires_grad=False))]
            except Exception:
                continue
            for sample in samples:
                for what, a, kw in variants(sample):
                    if what in told:
                        continue
                    row = looked_at(op.op, a, kw)
                    if row:
                        told.add(what)
                        out.write(json.dumps({"op": op.full_name if hasattr(op, "full_name") else op.name, "what": what, **row}) + "\n")
                        out.flush()


if __name__ == "__main__":
    main()
