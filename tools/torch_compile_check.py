#!/usr/bin/env python3
"""PyTorch's operator database and module database through torch.compile(backend="neso"), forward and backward, beside eager; or whole models.

    tools/torch_compile_check.py BUILD OUT.json [--every N] [--ops REGEX] [--procs 2] [--limit 60]
    tools/torch_compile_check.py BUILD OUT.json --models [--backward REGEX] [--every N] [--ops REGEX] [--limit 600] [--more]

One sample an operator and a module, of float32 where it has that. Each ends as one of: whole (compiled entirely, right), part (right; some
operators stayed with torch, which are listed), nothing (right; all stayed with torch), wrong, fails (an exception that eager does not raise),
skipped (eager itself draws numbers or refuses). OUT.json holds every row, and counts; --every 5 takes each fifth of both.
--models: torchvision's, timm's and transformers' models of check_models.py instead, with random weights, at all their sizes; for those that
match --backward the gradients of every parameter as well."""
import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import torch_compile_models

warnings.filterwarnings("ignore")

# Sums of other order than eager's: the bounds that torch's own tests of its compilers use for float32.
RTOL, ATOL = 2e-4, 2e-4


def jobs(args):
    if args.models:
        return [job for job in torch_compile_models.jobs()[::args.every] if re.search(args.ops, job[2])]
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db
    ops = [("op", op, "/".join(filter(None, (op.name, op.variant_test_name)))) for op in op_db]
    modules = [("module", info, info.module_cls.__name__) for info in module_db]
    return [job for job in [*ops, *modules][::args.every] if re.search(args.ops, job[2])]


def cases_of(kind, info):
    """(function, arguments, keywords): the middle one of its samples."""
    import torch
    if kind == "op":
        dtypes = info.supported_dtypes("cpu")
        dtype = next((d for d in (torch.float32, torch.int64, torch.bool, torch.complex64) if d in dtypes), None)
        if dtype is None:
            return None
        samples = list(info.sample_inputs("cpu", dtype, requires_grad=info.supports_autograd and dtype.is_floating_point))
        if not samples:
            return None
        s = samples[len(samples) // 2]
        return (lambda *a, **k: info.op(*a, **k)), (s.input, *s.args), s.kwargs
    inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=False)
    one = inputs[len(inputs) // 2]
    module = info.module_cls(*one.constructor_input.args, **one.constructor_input.kwargs).eval()
    return module, one.forward_input.args, one.forward_input.kwargs


def run(function, args, kwargs):
    """Results and gradients of the tensors among the arguments."""
    import torch
    from torch.utils import _pytree
    torch.manual_seed(0)
    copies = _pytree.tree_map(lambda v: v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v, (args, kwargs))
    out = [v for v in _pytree.tree_leaves(function(*copies[0], **copies[1])) if isinstance(v, torch.Tensor)]
    wanted = [v for v in _pytree.tree_leaves(copies) if isinstance(v, torch.Tensor) and v.requires_grad]
    losses = [v.square().sum() for v in out if v.requires_grad and v.is_floating_point()]
    grads = torch.autograd.grad(sum(losses), wanted, allow_unused=True) if losses and wanted else []
    return [v.detach() for v in out], [g for g in grads if g is not None]


def check(kind, info):
    import torch
    import neso.torch as ours
    case = cases_of(kind, info)
    if case is None:
        return {"status": "skipped", "why": "no sample"}
    function, args, kwargs = case
    try:
        want, again = run(function, args, kwargs), run(function, args, kwargs)
        torch.testing.assert_close(want, again, rtol=0, atol=0, equal_nan=True)
    except Exception as e:
        return {"status": "skipped", "why": f"eager: {type(e).__name__}"}
    with ours.watch() as report:
        got = run(torch.compile(function, backend=ours.backend, options={"fallback": "silent", "cached": False, "threads": 1}), args, kwargs)
    row = {"refused": sorted({name for name, _, _ in report.refused}), "share": report.share, "graphs": len(report.packages)}
    try:
        torch.testing.assert_close(got, want, rtol=RTOL, atol=ATOL, equal_nan=True)
    except AssertionError as e:
        return {**row, "status": "wrong", "why": str(e)[:300]}
    return {**row, "status": "nothing" if not report.packages else "whole" if report.share == 1 and not report.refused else "part"}


def child(kind, info, path, args, name):
    import torch
    torch.set_num_threads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

    def late(*_):
        raise TimeoutError(f"over {args.limit} s")
    signal.signal(signal.SIGALRM, late)
    signal.alarm(args.limit)
    try:
        if args.models:
            row = torch_compile_models.check(info, args.backward is not None and re.search(args.backward, name) is not None)
        else:
            row = check(kind, info)
    except BaseException as e:  # one failure must not end the others
        row = {"status": "fails", "why": f"{type(e).__name__}: {e}"[:400]}
    Path(path).write_text(json.dumps(row))
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("out")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--ops", default="")
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--backward")
    parser.add_argument("--more", action="store_true", help="what OUT.json has is kept and not run again")
    parser.add_argument("--procs", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=int, default=60)
    args = parser.parse_args()
    sys.path.insert(0, str(Path(args.build).resolve() / "python"))
    import torch
    import neso.torch as ours
    # Torch loads most of its compilers at their first use: once here, and not in every child.
    torch.compile(lambda x: x * 2 + 1, backend=ours.backend, options={"cached": False})(torch.ones(3))
    torch._dynamo.reset()
    rows = json.loads(Path(args.out).read_text())["rows"] if args.more and os.path.exists(args.out) else {}
    todo, running = [job for job in jobs(args)[::-1] if f"{job[0]} {job[2]}" not in rows], {}
    with tempfile.TemporaryDirectory() as folder:
        while todo or running:
            while todo and len(running) < args.procs:
                kind, info, name = todo.pop()
                path = os.path.join(folder, str(time.monotonic_ns()))
                pid = os.fork()
                if pid == 0:
                    child(kind, info, path, args, name)
                running[pid] = (f"{kind} {name}", path)
            pid, status = os.wait()
            name, path = running.pop(pid)
            rows[name] = json.loads(Path(path).read_text()) if os.path.exists(path) else {"status": "fails", "why": f"the process ended with status {status}"}
            print(name, rows[name]["status"], rows[name].get("why", ""), flush=True)
            counts = write(args, rows)
    print(dict(counts))
    right = sum(counts[s] for s in ("whole", "part", "nothing"))
    print(f"{right} of {len(rows) - counts['skipped']} right")


def write(args, rows):
    import torch
    counts = Counter(row["status"] for row in rows.values())
    # How many of the rows hold the operator, forward or backward.
    refused = Counter(name for row in rows.values() for name in {*row.get("refused", ()), *row.get("backward", {}).get("refused", ())})
    bounds = {"result": torch_compile_models.RESULT_BOUND, "gradient": torch_compile_models.GRADIENT_BOUND} if args.models else {"rtol": RTOL, "atol": ATOL}
    text = json.dumps({"torch": torch.__version__, "bounds": bounds, "every": args.every, "counts": counts, "refused": dict(refused.most_common()),
                       "rows": dict(sorted(rows.items()))}, indent=1)
    Path(args.out).write_text(text + "\n")
    return counts


if __name__ == "__main__":
    main()
