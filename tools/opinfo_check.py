#!/usr/bin/env python3
"""Runs Neso over an index of exported samples and says what is right, refused, wrong, crashed or too slow.

    tools/opinfo_check.py INDEX_DIR [--neso build/dev/bin/neso] [--ops REGEX] [--dtypes f32,i64] [--procs 1] [--json F]

INDEX_DIR is what opinfo_export.py wrote. Both forms of each sample are checked, <path> and <path>.core (--forms takes fewer). `right`: outputs of the right number, dtype, shape and values (shape alone for
random operators). `refused`: exit code 1 with an error[E…] text. Exit code 0 here only if nothing is wrong, crashed
or timed out. --runner build/dev/bin/run_goldens does the work in forks of one process, several times as fast.

For GPUs: `--gpu sm_90` (with --runner) compiles only, down to PTX or with --assemble to machine code, so `right` then means "compiles".
`--cases` writes the chosen samples as INDEX_DIR/case.json in the form of the goldens, for `gpu_check.py pack --cases INDEX_DIR` and
`gpu_tiles INDEX_DIR`, which find the answers on a GPU and without one.
"""
import argparse
import collections
import concurrent.futures
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import neso_cases as cases

VERDICTS = ["right", "refused", "wrong", "crash", "timeout"]


# Programs that draw numbers themselves, of which only dtype and shape can be told.
RANDOM = {"aten.rand.default", "aten.randn.default", "aten.randint.default", "aten.randperm.default"}
# Operators that may return the positions of any of several equal elements.
TIES = {"argsort", "sort", "topk", "kthvalue", "mode"}


def same_elements(got, want, source):
    """Whether two tensors of positions along some dimension of source name equal elements, none of them twice."""
    for dim in range(max(source.dim(), 1)):
        try:
            a, b = (t if t.dim() == source.dim() else t.unsqueeze(dim) for t in (got, want))
            if a.numel() == 0 or (not source.gather(dim, a).equal(source.gather(dim, b))):
                continue
        except (RuntimeError, IndexError):
            continue
        line = a.sort(dim).values if a.dim() else a.reshape(1)
        if line.shape[dim if a.dim() else 0] < 2 or bool((line.diff(dim=dim) != 0).all()):
            return True
    return False


# Operators whose vectors are free in sign (or, beyond the rank, in basis): their products are compared.
FACTORS = {"linalg.svd": lambda u, s, v: product(u, s, v), "svd": lambda u, s, v: product(u, s, v.mH),
           "linalg.eigh": lambda w, v: product(v, w, v.mH)}
# Eigenvalues in any order, and vectors of any phase.
EIGEN = {"linalg.eig", "linalg.eigvals"}
FREE = TIES | set(FACTORS) | EIGEN


def product(u, s, v):
    k = s.shape[-1]
    s = s.to(u.dtype)
    return (u[..., :k] * s.unsqueeze(-2)) @ v[..., :k, :]


def widened(tensor):
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def parts(tensor):
    return torch.view_as_real(tensor.contiguous()) if tensor.is_complex() else tensor


def as_complex(tensor):
    """Complex numbers that lie in a file as pairs of float64, which has no dtype for them."""
    return tensor if tensor.is_complex() else torch.view_as_complex(tensor.contiguous())


def same_factors(op, got, want):
    """None if the factors multiply to the same and their vectors are orthonormal, else what is wrong."""
    got, want = ([widened(t[str(k)]) for k in range(len(want))] for t in (got, want))
    for a, b in zip(got, want):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"shape {list(a.shape)} of {a.dtype}, expected {list(b.shape)} of {b.dtype}"
    values = 0 if op == "linalg.eigh" else 1
    trouble = cases.compare(str(values), got[values], want[values], 1e-4, 1e-4)
    trouble = trouble or cases.compare("product", parts(FACTORS[op](*got)), parts(FACTORS[op](*want)), 1e-4, 1e-4)
    for k, matrix in enumerate(got):
        if k == values or trouble:
            continue
        rows = op == "linalg.svd" and k == 2
        gram = matrix @ matrix.mH if rows else matrix.mH @ matrix
        trouble = cases.compare(f"{k} orthonormal", parts(gram), parts(torch.eye(gram.shape[-1], dtype=gram.dtype).expand(gram.shape)), 1e-4, 1e-4)
    return trouble


def same_eigen(got, want, matrix):
    """None if each value of `want` has one of `got` beside it, and vectors of length one fit their values; else what is wrong."""
    for name, tensor in want.items():
        if name not in got or got[name].shape != tensor.shape or got[name].dtype != tensor.dtype:
            return f"{name}: another shape or dtype"
    got, want = ({name: as_complex(tensor) for name, tensor in t.items()} for t in (got, want))
    values, wanted = (t["0"].reshape(-1, t["0"].shape[-1]) for t in (got, want))
    limit = 1e-4 * max(1.0, float(want["0"].abs().max()))
    for row, (have, need) in enumerate(zip(values.tolist(), wanted.tolist())):
        for value in need:
            nearest = min(have, key=lambda v: abs(v - value))
            if not abs(nearest - value) <= limit:
                return f"0: no value beside {value} in matrix {row}"
            have.remove(nearest)
    if "1" not in want:
        return None
    vectors, wide = got["1"].to(torch.complex128), matrix.to(torch.complex128)
    left, right = wide @ vectors, vectors * got["0"].to(torch.complex128).unsqueeze(-2)
    trouble = cases.compare("A v", torch.view_as_real(left), torch.view_as_real(right), 1e-4, limit)
    lengths = vectors.abs().square().sum(-2)
    return trouble or cases.compare("lengths", lengths, torch.ones_like(lengths), 1e-4, 1e-4)


def tolerances(sample, want):
    """Output name → [rtol, atol]: the dtype's, or the sample's where wider."""
    bounds, found = sample.get("tolerance", []), {}
    for name, tensor in want.items():
        bound = bounds[int(name)] if name.isdigit() and int(name) < len(bounds) and bounds[int(name)] else {}
        found[name] = cases.limits(tensor, bound.get("rtol"), bound.get("atol"))
    return found


def differs(op, got, want, given, bounds, values=True):
    """None if got is an answer of the operator to given, else what is wrong. All but bounds and values: name → tensor."""
    if op in FACTORS and len(want) > 1 and all(t.numel() for t in want.values()):
        return same_factors(op, got, want)
    if op in EIGEN and want["0"].numel():
        return same_eigen(got, want, given["0"])
    for name, tensor in want.items():
        trouble = cases.compare(name, got.get(name), tensor, *bounds[name], values)
        if trouble and op in TIES and not tensor.is_floating_point() and got[name].shape == tensor.shape:
            trouble = None if same_elements(got[name], tensor, given["0"]) else trouble
        if trouble:
            return trouble
    return None


def judge(args, root, sample):
    """(verdict, detail) of one sample."""
    folder = root / sample["path"]
    with tempfile.TemporaryDirectory(prefix="neso_check_") as scratch:
        output = Path(scratch) / "out.safetensors"
        command = [args.neso, "run", str(folder / sample["program"]), "-o", str(output)]
        if (folder / "inputs.safetensors").stat().st_size > 10:
            command += ["--input", str(folder / "inputs.safetensors")]
        try:
            done = subprocess.run(command, capture_output=True, timeout=args.timeout, cwd=scratch)
        except subprocess.TimeoutExpired:
            return "timeout", ""
        text = done.stderr.decode(errors="replace").strip()
        if "error[E0252]" in text:
            return "wrong", text
        if done.returncode == 1 and "error[E" in text:
            return "refused", text
        if done.returncode != 0:
            return "crash", f"exit {done.returncode}: {text[-400:]}"
        try:
            got = cases.read_safetensors(output)
        except Exception as error:
            return "wrong", f"no readable output: {error}"
    want, given = (cases.read_safetensors(folder / f"{name}.safetensors") for name in ("outputs", "inputs"))
    if trouble := differs(sample["op"], got, want, given, tolerances(sample, want), sample.get("values", True)):
        return "wrong", trouble
    if sample["op"] in FACTORS:
        return "right", ""
    # buffer.neso.* is the state of our own random numbers; an input that is written with the value that it had is none to compare.
    surplus = sorted(name for name in got if name not in want and not name.startswith("buffer.neso.") and
                     not (name.startswith("input.") and got[name].equal(given[name[6:]])))
    return ("wrong", f"outputs not expected: {surplus}") if surplus else ("right", "")


def golden_runs(root, samples):
    """The samples as the `runs` of a case.json; paths begin with `root`."""
    runs = []
    for sample in samples:
        folder = root / sample["path"]
        tolerance = tolerances(sample, cases.read_safetensors(folder / "outputs.safetensors"))
        runs.append({"name": sample["name"], "program": str(folder / sample["program"]), "inputs": str(folder / "inputs.safetensors"),
                     "outputs": str(folder / "outputs.safetensors"), "prefix": "", "tolerance": tolerance,
                     "values": sample.get("values", True), "op": sample["op"]})
    return runs


def judge_all(args, root, samples):
    """The same for all samples by the runner of the goldens."""
    runs = golden_runs(root.resolve(), samples)
    gpu = ["--gpu", args.gpu] + ["--assemble"] * args.assemble if args.gpu else []
    with tempfile.TemporaryDirectory(prefix="neso_check_") as scratch:
        (Path(scratch) / "case.json").write_text(json.dumps({"runs": runs}))
        verdicts = Path(scratch) / "verdicts"
        subprocess.run([args.runner, "--goldens", scratch, "--jobs", str(args.procs), "--verdicts", verdicts, *gpu], stdout=subprocess.DEVNULL)
        lines = [line.split("\t", 2) for line in verdicts.read_text(errors="replace").splitlines()]
    found = {line[0]: (line[1], line[2]) for line in lines if len(line) == 3}
    results = [found.get(sample["name"], ("crash", "no verdict")) for sample in samples]
    # The runner compares element by element; where the answer is free, the slower way has the last word.
    return [judge(args, root, s) if r[0] == "wrong" and s["op"] in FREE else r for s, r in zip(samples, results)]


def in_forms(samples, forms):
    """Each sample once for each form that it has: with its name, its program and that program's targets."""
    found = []
    for sample in samples:
        if "raw" in forms:
            found.append(sample | {"name": sample["path"], "program": "model.pt2"})
        if "core" in forms and isinstance(sample.get("core"), list):
            found.append(sample | {"name": sample["path"] + ".core", "program": "core.pt2", "targets": sample["core"]})
    return found


def blame(detail):
    """What a refusal is about: the targets it names, else its code and text without numbers."""
    targets = sorted(set(re.findall(r"\b(?:aten|prims|_operator|math|torch\.ops\.[\w]+|torch)\.[A-Za-z_][\w.]*\b", detail)))
    if targets:
        return targets
    first = next((line for line in detail.splitlines() if "error[E" in line), detail)
    return [re.sub(r"\d+", "N", first[first.find("error["):])[:120]]


def table(title, counts, limit):
    rows = counts.most_common(limit)
    if rows:
        print(f"\n{title}")
        for name, count in rows:
            print(f"{count:6}  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index")
    parser.add_argument("--neso", default="build/dev/bin/neso")
    parser.add_argument("--runner", help="run_goldens, in place of --neso")
    parser.add_argument("--gpu", default="", help="with --runner: compile for these chips instead of running, as sm_90 or sm_80,sm_90")
    parser.add_argument("--assemble", action="store_true", help="with --gpu: to machine code")
    parser.add_argument("--cases", action="store_true", help="only write INDEX_DIR/case.json")
    parser.add_argument("--ops", default=".")
    parser.add_argument("--targets", default=".", help="only samples with a target that matches")
    parser.add_argument("--dtypes", default="")
    parser.add_argument("--forms", default="raw,core", help="straight from torch.export, after run_decompositions(), or both")
    parser.add_argument("--procs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--limit", type=int, default=0, help="at most this many samples, evenly spread")
    parser.add_argument("--top", type=int, default=40, help="rows in the tables")
    parser.add_argument("--json", help="write every verdict here")
    parser.add_argument("--list", action="store_true", help="print each sample that is wrong, crashed or timed out")
    args = parser.parse_args()
    args.neso = str(Path(args.neso).resolve())
    root = Path(args.index)
    dtypes = set(args.dtypes.split(",")) if args.dtypes else None
    samples = [s for s in in_forms(json.loads((root / "index.json").read_text())["samples"], args.forms.split(","))
               if re.search(args.ops, s["op"]) and (not dtypes or s["dtype"] in dtypes)
               and (args.targets == "." or any(re.search(args.targets, t) for t in s["targets"]))]
    for sample in samples:
        sample["values"] = sample.get("values", True) and RANDOM.isdisjoint(sample["targets"])
    if args.limit and len(samples) > args.limit:
        samples = [samples[i * len(samples) // args.limit] for i in range(args.limit)]
    if args.cases:
        runs = golden_runs(root, samples)
        for run in runs:
            run |= {key: str(Path(run[key]).relative_to(root)) for key in ("program", "inputs", "outputs")}
        (root / "case.json").write_text(json.dumps({"runs": runs}))
        print(f"{len(runs)} runs in {root / 'case.json'}")
        return 0
    begun = time.time()
    if args.runner:
        results = judge_all(args, root, samples)
    else:
        with concurrent.futures.ThreadPoolExecutor(args.procs) as pool:
            results = list(pool.map(lambda sample: judge(args, root, sample), samples))
    verdicts = collections.Counter(verdict for verdict, _ in results)
    by_op = collections.defaultdict(collections.Counter)
    by_target = collections.defaultdict(collections.Counter)
    missing, wrong = collections.Counter(), collections.Counter()
    for sample, (verdict, detail) in zip(samples, results):
        by_op[sample["op"]][verdict] += 1
        for target in sample["targets"]:
            by_target[target][verdict] += 1
        if verdict == "refused":
            missing.update(blame(detail))
        elif verdict != "right":
            wrong[f"{verdict}: {sample['op']}"] += 1
            if args.list:
                print(f"{verdict}: {sample['name']}: {detail.splitlines()[-1][:300] if detail else ''}")
    table("Refused, by what is missing", missing, args.top)
    table("Wrong, crashed or timed out, by operator", wrong, args.top)
    right_ops = sum(1 for counts in by_op.values() if set(counts) == {"right"})
    right_targets = sum(1 for counts in by_target.values() if counts["right"])
    share = 100.0 * verdicts["right"] / max(1, len(samples))
    print(f"\n{len(samples)} samples, {time.time() - begun:.0f} s: " + ", ".join(f"{verdicts[v]} {v}" for v in VERDICTS) +
          f"; {share:.1f} % right; {right_ops} of {len(by_op)} operators wholly right, "
          f"{right_targets} of {len(by_target)} targets right at least once")
    if args.json:
        Path(args.json).write_text(json.dumps({
            "verdicts": {v: verdicts[v] for v in VERDICTS}, "missing": dict(missing.most_common()),
            "by_op": by_op, "by_target": by_target,
            "samples": [{"path": s["name"], "targets": s["targets"], "verdict": v, "detail": d[:500]}
                        for s, (v, d) in zip(samples, results)]}, indent=1))
    return 1 if verdicts["wrong"] + verdicts["crash"] + verdicts["timeout"] else 0


if __name__ == "__main__":
    sys.exit(main())
