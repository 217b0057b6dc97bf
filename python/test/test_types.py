"""The declared types (.pyi) against what the package is, and against a program that uses it."""
import ast
import importlib
import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import neso

STUBS = {"neso": "__init__", "neso.cache": "cache", "neso.torch": "torch", "neso.triton": "triton/__init__"}
FOLDER = Path(neso.__file__).parent


def declared(name):
    """(path, function node) of every function of a stub, those of classes as (class, function)."""
    tree = ast.parse((FOLDER / f"{STUBS[name]}.pyi").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield (node.name,), node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from (((node.name, f.name), f) for f in node.body if isinstance(f, ast.FunctionDef) and not f.decorator_list)


def parameters(signature):
    return [(p.name, p.kind, p.default is not p.empty) for p in signature.parameters.values()]


@pytest.mark.parametrize("name", STUBS)
def test_functions_take_what_is_declared(name):
    module, checked = importlib.import_module(name), 0
    for path, node in declared(name):
        there = module
        for part in path:
            there = getattr(there, part)
        try:
            signature = inspect.signature(there)
        except ValueError:
            # Of the extension.
            continue
        node.body, node.returns, node.type_params = [ast.Pass()], None, []
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
            if argument is not None:
                argument.annotation = None
        space = {}
        exec(compile(ast.fix_missing_locations(ast.Module([node], [])), name, "exec"), space)
        # What a call forwards is declared one by one.
        if path not in (("Package", "load"), ("Model", "__call__")):
            assert parameters(inspect.signature(space[node.name])) == parameters(signature), path
        checked += 1
    assert checked


def test_what_is_forwarded_is_declared_alike():
    """Package.load takes what neso.load does, and says so in its own row, as programs that complete names want it."""
    found = {path: node.args for path, node in declared("neso")}
    load, of_package = found[("load",)], found[("Package", "load")]
    assert [(a.arg, ast.unparse(a.annotation), ast.unparse(d)) for a, d in zip(load.kwonlyargs, load.kw_defaults)] == \
           [(a.arg, ast.unparse(a.annotation), ast.unparse(d)) for a, d in zip(of_package.kwonlyargs, of_package.kw_defaults)]


def test_everything_public_is_declared():
    names = {n.name for n in ast.parse((FOLDER / "__init__.pyi").read_text()).body if isinstance(n, (ast.ClassDef, ast.FunctionDef))} | {"cache", "torch", "triton"}
    assert set(neso.__all__) <= names
    assert (FOLDER / "py.typed").exists()


PROGRAM = '''
import neso

def use(model: object) -> float:
    package = neso.compile(model, (1,), target="cpu", options={"fuse": "on"}, tune="tuned.json")
    package.save("model.neso")
    loaded = neso.load("model.neso", threads=2)
    loaded(1, out=None)
    with neso.profile() as p:
        loaded(1)
    text: str = p.table()
    for v in loaded.inputs:
        text += v.name + str(v.dims[0].max)
    try:
        neso.load(b"")
    except neso.InputError as e:
        text += e.code
    if not neso.verify(package, package=package):
        print(neso.torch.package(use).data, neso.cache.info())
    return p.seconds + package.seconds
'''
WRONG = 'import neso\nneso.compile(1, target="tpu")\nneso.load(3)\nneso.Package(b"").sav("x")\n'


def test_a_program_checks(tmp_path):
    mypy = shutil.which("mypy")
    if mypy is None:
        pytest.skip("mypy is not installed")
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(WRONG)
    # The stubs alone: types of torch would take minutes to read.
    for stub in STUBS.values():
        (tmp_path / "neso" / stub).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FOLDER / f"{stub}.pyi", tmp_path / "neso" / f"{stub}.pyi")
    done = subprocess.run([mypy, "--strict", "--cache-dir", str(tmp_path / "cache"), "neso", "right.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    done = subprocess.run([mypy, "--strict", "--cache-dir", str(tmp_path / "cache"), "wrong.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "Found 3 errors" in done.stdout, done.stdout
