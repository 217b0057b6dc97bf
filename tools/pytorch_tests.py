#!/usr/bin/env python3
"""PyTorch's own tests with Neso in place of Inductor: what torch.compile and AOTInductor are asked there, asked of Neso.

    tools/pytorch_tests.py BUILD OUT.json TESTS/inductor/test_aot_inductor.py [--only REGEX] [--procs 2] [--limit 120] [--every N] [--without-gpu]

TESTS is the folder `test` of PyTorch's sources, best of the version of the torch that is installed (Debian's source packages have it). Needs
torch, pytest, pytest-timeout, pytest-xdist and parameterized. Two things are put in Inductor's place, nothing else of the tests changes:
- torch._inductor.aoti_compile_and_package and torch._inductor.aot_compile write archives by `neso compile --format aoti`, which torch's own loader runs;
- torch._inductor.compile_fx.compile_fx and the back end "inductor" are those of `neso.torch`.
What a torch of another version has renamed is bridged: names that moved are put where the tests import them, `skipOps` takes the older arguments too. Tests of which Inductor is
expected to fail (`skipOps`) are asked to pass. With --without-gpu, tests for the CPU run that are marked as wanting a GPU (those of operators in test_torchinductor_opinfo.py).
Each test ends as passed, failed or skipped; of a failure OUT.json has the message, the end of its text, and by which of `classes` it is counted: what tests Inductor's own
code (generated C++, its counters, its options) is apart from what a user could see."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

# Failures that say nothing of results: what they look at does not exist without Inductor. First match counts.
CLASSES = [
    ("looks at Inductor's generated code", r"FileCheck|run_and_get|get_code|Expected to find|cpp_code|No such file.*\.(cpp|py)|source_codes|[Cc]ode.*not found|'code'|Expected .* lines"),
    ("counts what Inductor does", r"metrics|counters|generated_kernel|num_bytes|KeyError: '(inductor|pattern|fxgraph|select)"),
    ("refused by name", r"error\[E\d+\]|CompileError|Unsupported"),
    ("another dtype, stride or type", r"dtype|stride"),
    ("another number", r"not close|not equal|Mismatched|Scalars|False is not true"),
]


# ---- inside pytest

def _flags(configs):
    configs = configs or {}
    flags = ["--weights", "none"] if configs.get("aot_inductor.package_constants_in_so") is False else []
    for key, value in (configs.get("aot_inductor.metadata") or {}).items():
        flags += ["--metadata", f"{key}={value}"]
    return flags


def _archive(exported, configs, path):
    """As a user has it compiled: the program's kernels travel with it."""
    import neso._export
    import neso._program
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "model.pt2")
        neso._export.save_program(neso._export._plain(exported), source)
        neso._program.run(["compile", source, "-o", path, "--format", "aoti", *_flags(configs)])
    return path


def _on_disk(options):
    return options.get("aot_inductor.package_constants_on_disk_format") == "pickle_weights" or options.get("aot_inductor.package_constants_on_disk")


def _files(exported, options):
    """The members of an archive for one model; weights among them where they are to lie there."""
    import zipfile

    from torch.export.pt2_archive._package_weights import TensorProperties, Weights
    folder = Path(tempfile.mkdtemp())
    with zipfile.ZipFile(_archive(exported, options, str(folder / "model.pt2"))) as members:
        members.extractall(folder)
    files = [str(p) for p in sorted(folder.rglob("data/aotinductor/model/*")) if p.is_file()]
    if _on_disk(options):
        tensors = {**exported.state_dict, **exported.constants}
        files.append(Weights({name: (value.detach(), TensorProperties(value)) for name, value in tensors.items()}))
    return files


def _compile_and_package(exported, *, package_path=None, inductor_configs=None):
    import io

    from torch._inductor.package import package_aoti
    path = package_path if isinstance(package_path, (str, os.PathLike)) else tempfile.mkstemp(suffix=".pt2")[1]
    if _on_disk(inductor_configs or {}):
        package_aoti(str(path), {"model": _files(exported, inductor_configs)})
    else:
        _archive(exported, inductor_configs, str(path))
    if isinstance(package_path, io.IOBase):
        package_path.write(Path(path).read_bytes())
        package_path.seek(0)
        return package_path
    return str(path)


def _aot_compile(graph_module, args, kwargs=None, *, options=None):
    """The library's path; with aot_inductor.package all that belongs into an archive."""
    import torch
    options = options or {}
    files = _files(torch.export.export(graph_module, tuple(args), kwargs, strict=False), options)
    return files if options.get("aot_inductor.package") else next(f for f in files if f.endswith(".so"))


def _bridge(folder):
    """Names that tests of another version import and that this torch has elsewhere, or no more: the latter skip the test that calls them."""
    import ast
    import importlib
    import unittest

    def gone(name):
        def missing(*args, **kwargs):
            raise unittest.SkipTest(f"this torch has no {name}")
        return missing

    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.level or not (node.module or "").startswith("torch."):
                continue
            try:
                module = importlib.import_module(node.module)
            except Exception:
                continue
            for name in (a.name for a in node.names if a.name != "*" and not hasattr(module, a.name)):
                try:
                    importlib.import_module(f"{node.module}.{name}")
                except Exception:
                    elsewhere = (getattr(m, name, None) for key, m in list(sys.modules.items()) if key.startswith("torch.") and name in vars(m))
                    setattr(module, name, next(elsewhere, None) or gone(f"{node.module}.{name}"))


def _skip_ops():
    """torch.testing's skipOps, also as it was called before it moved: with the names of the class and the test first."""
    from torch.testing._internal import common_device_type, common_methods_invocations
    present = common_device_type.skipOps

    def expects_failure(spec):
        return spec.expected_failure if hasattr(spec, "expected_failure") else len(spec) == 5 and spec[4]

    def skip_ops(*args):
        return present([spec for spec in args[-1] if not expects_failure(spec)])
    common_device_type.skipOps = common_methods_invocations.skipOps = skip_ops


def pytest_collection_modifyitems(items):
    items[:] = items[::int(os.environ.get("NESO_PYTORCH_EVERY", 1))]


def pytest_configure(config):
    import neso.torch
    import torch
    import torch._inductor
    import torch._dynamo.backends.inductor  # it registers itself when it is imported
    import torch._inductor.compile_fx
    from torch._dynamo.backends import registry

    def compile_fx(model, example_inputs, *args, **kwargs):
        return neso.torch.backend(model, example_inputs)

    _skip_ops()
    if os.environ.get("NESO_PYTORCH_WITHOUT_GPU"):
        import torch.testing._internal.triton_utils as marks
        marks.requires_gpu_and_triton = marks.requires_gpu = lambda test: test
    _bridge(Path(os.environ["NESO_PYTORCH_TESTS"]))
    torch._inductor.aoti_compile_and_package = _compile_and_package
    torch._inductor.aot_compile = _aot_compile
    torch._inductor.compile_fx.compile_fx = compile_fx
    registry._COMPILER_FNS["inductor"] = compile_fx


# ---- outside

def classify(text):
    return next((name for name, pattern in CLASSES if re.search(pattern, text)), "other")


def rows_of(report):
    import xml.etree.ElementTree as ElementTree
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').split('.')[-1]}.{case.get('name')}"
        bad = next((child for child in case if child.tag in ("failure", "error")), None)
        if bad is not None:
            text = (bad.get("message") or "") + "\n" + (bad.text or "")
            yield {"test": name, "result": "failed", "class": classify(text), "why": (bad.get("message") or text)[:300], "text": text[-4000:]}
        else:
            skipped = any(child.tag == "skipped" for child in case)
            yield {"test": name, "result": "skipped" if skipped else "passed"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("out")
    parser.add_argument("tests", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="pytest's -k")
    parser.add_argument("--procs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=120, help="seconds a test")
    parser.add_argument("--every", type=int, default=1, help="only every N-th test, of which --only then takes some")
    parser.add_argument("--without-gpu", action="store_true", help="run on the CPU what is marked as wanting a GPU")
    args = parser.parse_args()
    folder = Path(args.build).resolve() / "python"
    rows = {}
    for file in args.tests:
        file = file.resolve()
        with tempfile.TemporaryDirectory() as work:
            report = Path(work) / "report.xml"
            environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).resolve().parent), str(file.parent), str(file.parent.parent)]),
                                        "NESO_PYTORCH_TESTS": str(file.parent), "TORCHINDUCTOR_CACHE_DIR": work, "PYTORCH_TEST_WITH_SLOW": "0",
                                        "NESO_PYTORCH_EVERY": str(args.every), "NESO_PYTORCH_WITHOUT_GPU": "1" if args.without_gpu else ""}
            command = [sys.executable, "-m", "pytest", "-q", "-p", "pytorch_tests", "-p", "no:cacheprovider", "--noconftest", "-n", str(args.procs), f"--timeout={args.limit}", f"--junitxml={report}",
                       "-o", "junit_family=xunit1", str(file), *(["-k", args.only] if args.only else [])]
            subprocess.run(command, env=environment, cwd=work, stdout=subprocess.DEVNULL if not os.environ.get("VERBOSE") else None)
            if not report.exists():
                sys.exit(f"{file}: pytest wrote no report")
            rows[file.name] = list(rows_of(report))
        counts = Counter(r["result"] for r in rows[file.name])
        classes = Counter(r["class"] for r in rows[file.name] if r["result"] == "failed")
        print(f"{file.name}: {dict(counts)}; failed: {dict(classes)}", flush=True)
    Path(args.out).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
