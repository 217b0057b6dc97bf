#!/usr/bin/env python3
"""Exports PyTorch's own operator database, sample by sample, to .pt2 files with inputs and expected outputs.

    tools/opinfo_export.py OUT [--samples f32=4,bf16=2,i64=2,bool=2] [--ops REGEX] [--procs 2] [--limit 20] [--context SEED] [--dynamic]

Writes OUT/<op>/<dtype>_<n>/{model.pt2,core.pt2,inputs.safetensors,outputs.safetensors}, OUT/<op>/index.json and, at the
end, OUT/index.json: for each sample its targets, tolerance and whether its values may be compared; for each skipped one
the reason. With --context each operator stands between others: its operands come out of views, copies and arithmetic that leave their values, its
results go on into more (opinfo_context.py). With --dynamic every size above one is open, and OUT/<op>/<dtype>_<n>_<a…d> hold the same program with inputs
of other sizes (opinfo_dynamic.py). model.pt2 is straight from torch.export, core.pt2 after run_decompositions(); "core" in the index says which
targets that has, or in words why torch did not make it. Resumable: samples in an op's index are not made again. OUT must lie outside the repository.
"""
import argparse
import itertools
import json
import os
import re
import signal
import sys
import tempfile
import time
import warnings
import zlib
from pathlib import Path

warnings.filterwarnings("ignore")
import torch  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import neso_cases as cases  # noqa: E402
from opinfo_check import FREE  # noqa: E402
from opinfo_context import Context  # noqa: E402
import opinfo_dynamic as dynamic  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64, "bool": torch.bool,
          "f64": torch.float64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "c64": torch.complex64}
MAX_BYTES = 8 << 20
WIDER = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.complex64: torch.complex128}
# How far eager PyTorch is from these functions in float64, where it has nothing wider to say so: the greatest distance from C's library, or for airy_ai from
# its power series.
OWN_ERROR = {"special.bessel_j0": 1e-6, "special.bessel_j1": 1e-6, "special.bessel_y0": 1e-6, "special.bessel_y1": 2e-6, "special.airy_ai": 2e-8}


class Skip(Exception):
    """Why a sample is left out, in words."""


class OpModule(torch.nn.Module):
    """An operator with everything but its tensors baked in."""

    def __init__(self, op, leaves, spec, context=None):
        super().__init__()
        self.op, self.spec, self.context = op, spec, context
        # A tensor leaf is replaced by its number among the inputs.
        self.leaves = []
        count = 0
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                self.leaves.append(("tensor", count))
                count += 1
            else:
                self.leaves.append(("value", leaf))

    def forward(self, *tensors):
        if self.context:
            tensors = self.context.before(tensors)
        leaves = [tensors[value] if kind == "tensor" else value for kind, value in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        result = self.op(*args, **kwargs)
        return self.context.after(result) if self.context else result


def on_alarm(signum, frame):
    raise TimeoutError("time limit")


def spread(count, wanted):
    """Indices of `wanted` of `count` samples, far apart, such that fewer are a subset of more."""
    picks = [0, count - 1, count // 2, count // 4, 3 * count // 4]
    picks += [i * count // 16 for i in range(16)] + list(range(count))
    seen = dict.fromkeys(p for p in picks if 0 <= p < count)
    return list(seen)[:wanted]


def as_tensors(value):
    return [cases.to_tensor(leaf) for leaf in cases.flatten(value)]


def run_eager(module, tensors, seed):
    torch.manual_seed(seed)
    inputs = [t.clone() for t in tensors]
    outputs = as_tensors(module(*inputs))
    return outputs, inputs


def same_values(a, b):
    if a is None or b is None or a.shape != b.shape:
        return a is b
    return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) if a.is_floating_point() else torch.equal(a, b)


def tolerance(op, module, tensors, outputs, dtype):
    """Bounds from the dtype, widened by how far eager itself is from the same operator in double precision."""
    if dtype == torch.float64 and op_name(op) in OWN_ERROR:
        return [{"atol": OWN_ERROR[op_name(op)]} for _ in outputs]
    bounds = []
    exact = None
    if dtype in WIDER:
        try:
            wide = [t.to(WIDER[dtype]) if t.dtype == dtype else t for t in tensors]
            exact, _ = run_eager(module, wide, 0)
        except Exception:
            exact = None
    for i, output in enumerate(outputs):
        if output is None:
            bounds.append(None)
            continue
        entry = {}
        if exact is not None and (output.is_floating_point() or output.is_complex()) and i < len(exact) and exact[i] is not None \
                and exact[i].shape == output.shape and output.numel():
            error = cases.worst_error(output, exact[i])
            finite = output[torch.isfinite(output)].abs()
            largest = max(1e-3, float(finite.max())) if finite.numel() else 1.0
            cap = (1e-2 if dtype in (torch.float32, torch.complex64) else 1e-1) * largest
            entry["atol"] = min(4 * error, cap)
        bounds.append(entry)
    return bounds


def types_of(program):
    """Shape and dtype of each tensor that the graph returns."""
    returned = next(n for n in program.graph.nodes if n.op == "output").args[0]
    values = [n.meta.get("val") if isinstance(n, torch.fx.Node) else n for n in returned]
    return [(tuple(v.shape), v.dtype) for v in values if isinstance(v, torch.Tensor)]


def exported(module, tensors, open_sizes):
    shapes = dynamic.open_sizes(tensors) if open_sizes else None
    return torch.export.export(module, tuple(t.clone() for t in tensors), dynamic_shapes=shapes, strict=False)


def export_core(module, tensors, folder, open_sizes):
    """The same program after run_decompositions(): its targets, or why there is none."""
    try:
        whole = exported(module, tensors, open_sizes)
        before = types_of(whole)
        program = whole.run_decompositions()
        # Some of PyTorch's decompositions give other results than the operator (attention weights in place of the logarithms of sums).
        if not any(isinstance(s, torch.SymInt) for shape, _ in before for s in shape) and types_of(program) != before:
            raise Skip("the decomposition gives other shapes or dtypes")
        cases.save_program(program, folder / "core.pt2")
        return cases.graph_targets(program.graph_module)
    except TimeoutError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"


def write_values(module, tensors, folder):
    """Inputs and what the module makes of them."""
    outputs, after = run_eager(module, tensors, 1)
    cases.write_safetensors(folder / "inputs.safetensors", tensors)
    stored = {str(i): o for i, o in enumerate(outputs) if o is not None}
    # What the operator does to its inputs is part of the answer.
    for i, (before, now) in enumerate(zip(tensors, after)):
        if not same_values(before, now):
            stored[f"input.{i}"] = now
    cases.write_safetensors(folder / "outputs.safetensors", stored)


def export_sizes(op, module, program, tensors, dtype, folder, record):
    """The program's inputs at other sizes: letter → record."""
    found = {}
    for letter, candidates in dynamic.other_inputs(program, tensors).items():
        for inputs in candidates:
            try:
                outputs, _ = run_eager(module, inputs, 1)
                own = as_tensors(program.module()(*[t.clone() for t in inputs]))
            except (RuntimeError, AssertionError, IndexError, ValueError, TypeError):
                continue
            if [None if o is None else o.shape for o in own] != [None if o is None else o.shape for o in outputs]:
                continue
            if sum(o.numel() * o.element_size() for o in outputs if o is not None) > MAX_BYTES:
                continue
            other = folder.with_name(f"{folder.name}_{letter}")
            other.mkdir(exist_ok=True)
            for name in ("model.pt2", "core.pt2"):
                if (folder / name).exists() and not (other / name).exists():
                    os.link(folder / name, other / name)
            write_values(module, inputs, other)
            found[letter] = record | {"strides": [list(t.stride()) for t in inputs],
                                      "tolerance": tolerance(op, module, inputs, outputs, dtype) if record["values"] else []}
            break
    return found


def export_sample(op, sample, dtype, folder, context=None, open_sizes=False):
    """The sample's record, and with open sizes those of other sizes by letter."""
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
    tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if any(t.layout != torch.strided for t in tensors):
        raise Skip("input is not strided")
    if sum(t.numel() * t.element_size() for t in tensors) > MAX_BYTES:
        raise Skip("inputs too large")
    module = OpModule(op, leaves, spec, context).eval()
    outputs, _ = run_eager(module, tensors, 1)
    if any(o is not None and o.layout != torch.strided for o in outputs):
        raise Skip("output is not strided")
    if sum(o.numel() * o.element_size() for o in outputs if o is not None) > MAX_BYTES:
        raise Skip("outputs too large")
    program = exported(module, tensors, open_sizes)
    values = "empty" not in op.name
    if cases.is_random(program.graph_module):
        # The program itself, since the database seeds the generator inside its own wrappers. Several seeds, since
        # a single coin may fall alike.
        runs = [run_eager(program.module(check_guards=False), tensors, seed)[0] for seed in range(1, 7)]
        values = values and all(same_values(a, b) for run in runs[1:] for a, b in zip(runs[0], run))
    targets = cases.graph_targets(program.graph_module)
    if "aten._assert_scalar.default" in targets:
        # PyTorch bounds the size of masked_select by the operand's, which is too small where that is broadcast: its own program refuses its inputs.
        try:
            run_eager(program.module(check_guards=False), tensors, 1)
        except RuntimeError as error:
            raise Skip(f"the exported program fails: {str(error).splitlines()[0][:100]}") from error
    folder.mkdir(parents=True, exist_ok=True)
    cases.save_program(program, folder / "model.pt2")
    write_values(module, tensors, folder)
    core = export_core(module, tensors, folder, open_sizes)
    record = {"targets": targets, "core": core, "values": values, "strides": [list(t.stride()) for t in tensors],
              "tolerance": tolerance(op, module, tensors, outputs, dtype) if values else []}
    return record, export_sizes(op, module, program, tensors, dtype, folder, record) if open_sizes else {}


def op_name(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def export_op(op, args):
    """Runs in a child process: all samples of one operator. Results go to its index.json after every sample."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, on_alarm)
    folder = Path(args.out) / re.sub(r"[^\w.]", "_", op_name(op))
    folder.mkdir(parents=True, exist_ok=True)
    index_path = folder / "index.json"
    records = json.loads(index_path.read_text()) if index_path.exists() else {}
    for short, wanted in args.samples:
        dtype = DTYPES[short]
        if dtype not in op.dtypes:
            continue
        if all(records.get(f"{short}_{n}") for n in range(wanted)) or records.get(f"{short}_end", {}).get("count", wanted + 1) <= wanted:
            continue
        torch.manual_seed(zlib.crc32(f"{op_name(op)}/{short}".encode()))
        signal.alarm(args.limit * 3)
        try:
            samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 300))
        except BaseException as error:
            records[f"{short}_end"] = {"count": 0, "skipped": f"samples: {type(error).__name__}: {str(error)[:150]}"}
            continue
        finally:
            signal.alarm(0)
        picks = spread(len(samples), wanted)
        if len(picks) < wanted:
            records[f"{short}_end"] = {"count": len(picks)}
        for n, pick in enumerate(picks):
            key = f"{short}_{n}"
            if key in records:
                continue
            # Written first, so that a crash is not tried again.
            records[key] = {"skipped": "the process ended while exporting"}
            write_whole(index_path, json.dumps(records))
            record = {"sample": pick}
            signal.alarm(args.limit)
            try:
                context = Context(f"{args.context}/{op_name(op)}/{key}", op_name(op) in FREE) if args.context else None
                own, others = export_sample(op, samples[pick], dtype, folder / key, context, args.dynamic)
                record |= own
                records |= {f"{key}_{letter}": {"sample": pick} | other for letter, other in others.items()}
            except Skip as reason:
                record["skipped"] = str(reason)
            except BaseException as error:
                text = str(error).strip().split("\n")[0][:200]
                record["skipped"] = f"{type(error).__name__}: {text}"
            finally:
                signal.alarm(0)
            records[key] = record
    write_whole(index_path, json.dumps(records))


def warm_up():
    """torch.export loads most of itself at its first use: once here, and not in every child."""
    torch.set_num_threads(1)
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),), strict=False)
    with tempfile.TemporaryDirectory() as scratch:
        cases.save_program(program.run_decompositions(), Path(scratch) / "model.pt2")


def write_whole(path, text):
    """Others read the file meanwhile: they see the old one or the new one."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text)
    temporary.rename(path)


def merge(out):
    """Collects the per-operator files into OUT/index.json; returns (samples, skipped)."""
    samples, skipped = [], []
    for path in sorted(Path(out).glob("*/index.json")):
        for key, record in json.loads(path.read_text()).items():
            if key.endswith("_end") and "skipped" not in record:
                continue
            entry = {"op": path.parent.name, "dtype": key.split("_")[0], "path": f"{path.parent.name}/{key}", **record}
            (skipped if "skipped" in record else samples).append(entry)
    write_whole(Path(out) / "index.json", json.dumps({"torch": torch.__version__, "samples": samples, "skipped": skipped}))
    return samples, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--samples", default="f32=4,i64=2,bf16=2,bool=2", help="how many of each dtype, an operator")
    parser.add_argument("--ops", default=".", help="regular expression on the operator's name")
    parser.add_argument("--procs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=20, help="seconds a sample")
    parser.add_argument("--context", default="", help="a seed: operators between others")
    parser.add_argument("--dynamic", action="store_true", help="open sizes, and inputs of other sizes")
    args = parser.parse_args()
    args.samples = [(s.split("=")[0], int(s.split("=")[1])) for s in args.samples.split(",")]
    from torch.testing._internal.common_methods_invocations import op_db
    ops = [op for op in op_db if re.search(args.ops, op_name(op))]
    Path(args.out).mkdir(parents=True, exist_ok=True)
    warm_up()
    running, begun, finished = {}, time.time(), 0
    queue = list(reversed(ops))
    while queue or running:
        while queue and len(running) < args.procs:
            op = queue.pop()
            pid = os.fork()
            if pid == 0:
                # A child's chatter is of no use, and torch prints much of it.
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                os.dup2(null, 2)
                try:
                    export_op(op, args)
                finally:
                    os._exit(0)
            running[pid] = (op, time.time())
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid:
            running.pop(pid)
            finished += 1
            if finished % 25 == 0:
                samples, skipped = merge(args.out)
                print(f"{finished}/{len(ops)} operators, {len(samples)} samples, {len(skipped)} skipped, "
                      f"{time.time() - begun:.0f} s", flush=True)
            continue
        for child, (op, since) in list(running.items()):
            # The alarm cannot stop a loop inside a C++ kernel.
            if time.time() - since > args.limit * 12:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    samples, skipped = merge(args.out)
    print(f"{len(samples)} samples of {len({s['op'] for s in samples})} operators, "
          f"{len({t for s in samples for t in s['targets']})} targets; {len(skipped)} skipped; {time.time() - begun:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
