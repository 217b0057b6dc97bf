#!/usr/bin/env python3
"""Every program that PyTorch's own tests export, compiled by Neso and run beside eager on the CPU.

    tools/pytorch_exports.py BUILD OUT.jsonl TESTS/export/test_export.py [--only REGEX] [--procs 2] [--limit 120]

TESTS is the folder `test` of PyTorch's sources, as for tools/pytorch_tests.py, which says what has to be installed. The tests themselves are unchanged, and whether they pass is
not looked at: torch.export.export is followed, in the same process, by neso.compile of what it gave and a call with the arguments that it was given. OUT.jsonl has a line for
each program: the test, the result, and why:
- right: values, dtypes, shapes and strides are eager's (of random numbers all but the values)
- wrong, strides: what a user would not be told
- refused: Neso says by name what it does not compile; not saved: torch.export.save refuses the program; fails: anything else
- eager fails: the program does not run in PyTorch either (fake tensors and the like)"""
import argparse
import contextlib
import copy
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

_now = {"test": "", "busy": False}


# ---- inside pytest

def _write(result, why="", **more):
    with open(os.environ["NESO_PYTORCH_EXPORTS"], "a") as f:
        f.write(json.dumps({"test": _now["test"], "result": result, "why": str(why)[:600], **more}) + "\n")


def _fresh(tree):
    import torch
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), tree)


def _module(program):
    """A copy that may change its buffers."""
    with contextlib.suppress(Exception):
        return copy.deepcopy(program).module()
    return program.module()


def _eager(program, args, kwargs, seed):
    import torch
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        return torch.utils._pytree.tree_leaves(_module(program)(*_fresh(args), **_fresh(kwargs)))


def _same(x, y):
    import torch
    return torch.equal(torch.nan_to_num(x), torch.nan_to_num(y)) if isinstance(x, torch.Tensor) else x == y or x != x


def _fault(got, want, random):
    """What is wrong with one result; None: nothing."""
    import torch
    if not isinstance(want, torch.Tensor):
        return None if random or (type(got) is type(want) and _same(got, want)) else ("wrong", f"{got!r}, not {want!r}")
    if not isinstance(got, torch.Tensor):
        return "wrong", f"a result of type {type(got).__name__}"
    try:
        if random:
            assert got.shape == want.shape and got.dtype == want.dtype, f"{got.dtype} {tuple(got.shape)}, not {want.dtype} {tuple(want.shape)}"
        else:
            tolerances = {"rtol": 1e-4, "atol": 1e-4} if want.dtype in (torch.float32, torch.complex64) else {}
            torch.testing.assert_close(got, want, equal_nan=True, **tolerances)
    except AssertionError as e:
        return "wrong", e
    if want.layout == torch.strided and want.numel() > 1:
        moving = [d for d in range(want.dim()) if want.shape[d] > 1]
        if [got.stride(d) for d in moving] != [want.stride(d) for d in moving]:
            return "strides", f"{got.stride()}, not {want.stride()}, of {tuple(want.shape)}"
    return None


def _look(program, args, kwargs):
    import neso
    import torch
    try:
        want, again, other = (_eager(program, args, kwargs, seed) for seed in (0, 0, 1))
    except Exception as e:
        return _write("eager fails", e)
    try:
        model = neso.compile(program).load()
    except neso.CompileError as e:
        return _write("refused", e)
    except Exception as e:
        saving = any(f"/{name}" in str(frame) for name in ("_export/serde", "export/__init__.py") for frame in _frames(e))
        return _write("not saved" if saving else "fails", f"{type(e).__name__}: {e}")
    try:
        with torch.no_grad():
            got = torch.utils._pytree.tree_leaves(model(*_fresh(args), **_fresh(kwargs)))
    except Exception as e:
        return _write("fails", f"{type(e).__name__}: {e}")
    if len(got) != len(want):
        return _write("wrong", f"{len(got)} results, not {len(want)}")
    randoms = [not (_same(x, y) and _same(x, z)) for x, y, z in zip(want, again, other)]
    faults = [f for f in map(_fault, got, want, randoms) if f]
    if not faults:
        return _write("right", random=any(randoms))
    result, why = min(faults, key=lambda f: f[0] != "wrong")
    return _write(result, why, program=str(program.graph)[:3000])


def _frames(error):
    trace, frames = error.__traceback__, []
    while trace:
        frames.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return frames


def _lists_of_operators(folder):
    """Imports the tests' lists of operators, some of which a torch of another version has no more."""
    import torch
    if not (folder / "testing.py").exists():
        return
    packet = torch._ops.OpOverloadPacket
    original = packet.__getattr__

    def found(self, name):
        try:
            return original(self, name)
        except AttributeError:
            if name.startswith("_"):
                raise
            return f"{self}.{name}"
    packet.__getattr__ = found
    try:
        importlib.import_module(f"{folder.name}.testing")
    finally:
        packet.__getattr__ = original


def pytest_runtest_setup(item):
    _now["test"] = item.nodeid.split("::", 1)[-1]


def pytest_configure(config):
    import pytorch_tests
    import torch
    import torch.export
    folder = Path(os.environ["NESO_PYTORCH_TESTS"])
    pytorch_tests._bridge(folder)
    _lists_of_operators(folder)
    original = torch.export.export

    def export(mod, args, kwargs=None, **rest):
        program = original(mod, args, kwargs, **rest)
        if not _now["busy"]:
            _now["busy"] = True
            try:
                _look(program, args, kwargs or {})
            except Exception as e:
                _write("fails", f"while it was compared: {type(e).__name__}: {e}")
            finally:
                _now["busy"] = False
        return program

    torch.export.export = export


# ---- outside

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("out", type=Path)
    parser.add_argument("tests", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="pytest's -k")
    parser.add_argument("--procs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=120, help="seconds a test")
    args = parser.parse_args()
    args.out.write_text("")
    for file in (f.resolve() for f in args.tests):
        with tempfile.TemporaryDirectory() as work:
            places = [Path(args.build).resolve() / "python", Path(__file__).resolve().parent, file.parent.parent, file.parent, file.parent.parent / "inductor"]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places)), "NESO_PYTORCH_TESTS": str(file.parent), "TORCHINDUCTOR_CACHE_DIR": work,
                                        "NESO_PYTORCH_EXPORTS": str(args.out.resolve())}
            command = [sys.executable, "-m", "pytest", "-q", "-p", "pytorch_exports", "-p", "no:cacheprovider", "--noconftest", "-n", str(args.procs), f"--timeout={args.limit}",
                       str(file), *(["-k", args.only] if args.only else [])]
            subprocess.run(command, env=environment, cwd=work, stdout=None if os.environ.get("VERBOSE") else subprocess.DEVNULL)
    rows = [json.loads(line) for line in args.out.read_text().splitlines()]
    print(dict(Counter(r["result"] for r in rows)))


if __name__ == "__main__":
    main()
