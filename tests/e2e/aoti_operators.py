#!/usr/bin/env python3
"""Operators of the user's behind PyTorch's own loader, which calls them for archives of `neso compile --format aoti`.

    tests/e2e/aoti_operators.py path/to/neso

The loader is torch's, unchanged; expected values are those of the module itself. Exit code 77: there is no torch.
"""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
import zipfile
from typing import Sequence

warnings.filterwarnings("ignore")
try:
    import torch
    from torch import Tensor
    from torch._inductor import aoti_load_package
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import golden_extern  # noqa: E402

NESO = sys.argv.pop(1) if len(sys.argv) > 1 else "neso"
# Loaders before torch 2.13 do not ask the library why a call failed.
TELLS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}

lib = torch.library.Library("neso_aoti", "FRAGMENT")
calls = []  # what was called, in order


def operator(schema):
    """Defines an operator that every device and the exporter run."""
    lib.define(schema)

    def define(function):
        lib.impl(function.__name__, function, "CompositeExplicitAutograd")
        return function
    return define


@operator("parts(Tensor x, Scalar s, SymInt[] sizes, int n=3, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, MemoryFormat? "
          "memory_format=None, str word='a', int k=5) -> Tensor[]")
def parts(x, s, sizes, n=3, *, dtype=None, layout=None, device=None, memory_format=None, word="a", k=5):
    calls.append(("parts", s, list(sizes), n, dtype, layout, device, memory_format, word, k))
    return [x * s + sizes[0], x.sum(1) * n + k]


@operator("one(Tensor[] xs, Tensor?[] ys, float f, bool? b=None, str[]? words=None, float[]? numbers=None, bool[]? flags=None) -> Tensor[]")
def one(xs, ys, f, b=None, words=None, numbers=None, flags=None):
    calls.append(("one", len(xs), [y is not None for y in ys], f, b, words, numbers, flags))
    return [sum(xs) * f + sum(y for y in ys if y is not None)]


@operator("maybe(Tensor x, bool second) -> (Tensor, Tensor?)")
def maybe(x, second):
    return x + 1, (x * 2 if second else None)


@operator("pairs(Tensor x) -> (Tensor, Tensor[])")
def pairs(x):
    return x.sum().reshape(1), [x * 2, x.t().contiguous() + 1]


@operator("rise(Tensor x) -> Tensor")
def rise(x):
    if isinstance(x, torch._subclasses.FakeTensor):
        return x + 1
    if (x < 0).any():
        raise ValueError("a number below zero: «-1»")
    return x + 1


@torch.library.custom_op("neso_aoti::other", mutates_args=())
def other(x: Tensor, wide: bool) -> Tensor:
    return torch.cat([x, x]) if wide else x.clone()


@other.register_fake
def _(x, wide):
    return torch.empty_like(x)


@torch.library.custom_op("neso_aoti::above", mutates_args=())
def above(x: Tensor, bound: float) -> Tensor:
    calls.append("above")
    return x[x > bound].clone()


@above.register_fake
def _(x, bound):
    return x.new_empty((torch.library.get_ctx().new_dynamic_size(),))


@torch.library.custom_op("neso_aoti::bump", mutates_args={"xs", "y"})
def bump(xs: Sequence[Tensor], y: Tensor) -> Tensor:
    for x in xs:
        x.add_(y)
    y.mul_(2)
    return y.sum().reshape(1)


@bump.register_fake
def _(xs, y):
    return y.new_empty((1,))


OPS = torch.ops.neso_aoti


class Test(unittest.TestCase):
    device = "cpu"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.made = 0
        torch.manual_seed(0)
        calls.clear()

    def compile(self, program, schemas=""):
        """The path of the archive, and what the compiler printed."""
        self.made += 1
        source, out = self.folder / f"{self.made}.export.pt2", self.folder / f"{self.made}.pt2"
        torch.export.save(program, source, extra_files={"neso_operators": schemas} if schemas else {})
        done = subprocess.run([NESO, "compile", str(source), "-o", str(out), "--format", "aoti", "--target", self.device], capture_output=True, text=True)
        return str(out), done

    def load(self, program, schemas="", **options):
        path, done = self.compile(program, schemas)
        self.assertEqual(done.returncode, 0, done.stderr)
        return aoti_load_package(path, **options)

    def close(self, got, wanted):
        torch.testing.assert_close(got, wanted, **CLOSE)

    def nodes(self, path):
        with zipfile.ZipFile(path) as members:
            name = next(n for n in members.namelist() if n.endswith("wrapper.json"))
            return json.loads(members.read(name))["nodes"]


class Operators(Test):
    def exported(self, module, inputs, dynamic=None):
        return torch.export.export(module.eval(), inputs, dynamic_shapes=dynamic, strict=False)

    def rows(self, n):
        return tuple(x.to(self.device) for x in golden_extern.inputs(n))

    def test_models_with_changes_and_sizes_that_depend_on_data(self):
        rows = torch.export.Dim("rows", min=3, max=64)
        schemas = "\n".join(str(getattr(torch.ops.neso_test, op).default._schema) for op in ("mix", "total", "scale_", "push", "over"))
        for name in ["Changes", "Sized", "Secret"]:
            module = getattr(golden_extern, name)().to(self.device)
            program = self.exported(module, self.rows(4), ({0: rows}, {0: rows}))
            for form in ["exported", "decomposed"]:
                with self.subTest(name, form=form):
                    fresh = copy.deepcopy(module)
                    model = self.load(program.run_decompositions() if form == "decomposed" else program, schemas if form == "exported" else "")
                    for n in (4, 9, 3):
                        given = self.rows(n)
                        with torch.no_grad():
                            wanted = fresh(*(x.clone() for x in given))
                        self.close(tuple(model(*given)), tuple(wanted))

    def test_lists_scalars_and_what_is_no_number(self):
        class Module(torch.nn.Module):
            def forward(self, x):
                a, s = OPS.parts(x, x.shape[0], [x.shape[0], 7], 4, dtype=torch.float16, layout=torch.strided, device=x.device,
                                 memory_format=torch.channels_last, word='say "two"\n', k=6)
                b, _ = OPS.parts(x, 1.5, [2])
                c, _ = OPS.parts(x, True, [2])
                d, = OPS.one([x, a], [None, b], 2, True, ["u", "vé"], [0.5, float(1e-300)], [True, False])
                e, = OPS.one([d], [None], 0.5)
                return a, s, b, c, d, e

        x = torch.randn(4, 3, device=self.device)
        module = Module()
        program = self.exported(module, (x,), ({0: torch.export.Dim.DYNAMIC},))
        schemas = "\n".join(str(getattr(OPS, op).default._schema) for op in ("parts", "one"))
        for form in [program, program.run_decompositions()]:
            for text in ["", schemas]:
                model = self.load(form, text)
                for n in (4, 9):
                    x = torch.randn(n, 3, device=self.device)
                    calls.clear()
                    wanted = module(x)
                    eager = list(calls)
                    calls.clear()
                    self.close(tuple(model(x)), wanted)
                    self.assertEqual(sorted(map(str, calls)), sorted(map(str, eager)))

    def test_optional_results(self):
        class Module(torch.nn.Module):
            def forward(self, x):
                a, b = OPS.maybe(x, True)
                c, none = OPS.maybe(x * 3, False)
                d, (e, f) = OPS.pairs(x)
                return a, b, c, d, e, f, none

        x = torch.randn(4, 3, device=self.device)
        program = self.exported(Module(), (x,))
        # Without its schema nothing says that the result might be absent.
        model = self.load(program, "\n".join(str(getattr(OPS, op).default._schema) for op in ("maybe", "pairs")))
        got, wanted = tuple(model(x)), Module()(x)
        self.assertIsNone(got[-1])
        self.close(got[:-1], wanted[:-1])

    def test_what_an_operator_raises_reaches_the_caller(self):
        class Module(torch.nn.Module):
            def forward(self, x):
                return OPS.rise(x * 2) * 3

        good, bad = torch.ones(3, device=self.device), -torch.ones(3, device=self.device)
        model = self.load(self.exported(Module(), (good,)))
        for _ in range(3):
            with self.assertRaisesRegex(RuntimeError, "ValueError: a number below zero: «-1»" if TELLS else "API call failed"):
                model(bad)
            self.close(model(good), good * 9)

    def test_results_of_another_size_are_refused(self):
        class Module(torch.nn.Module):
            def forward(self, x, y):
                return OPS.other(x, False), OPS.other(y, True)

        x = torch.ones(3, device=self.device)
        model = self.load(self.exported(Module(), (x, x)))
        with self.assertRaisesRegex(RuntimeError, "result 0 has another dtype, size" if TELLS else "API call failed"):
            model(x, x)

    def test_an_operator_that_decides_sizes_runs_once(self):
        class Module(torch.nn.Module):
            def forward(self, x, y):
                a, b = OPS.above(x, 0.0), OPS.above(y.flatten(), 0.5)
                return a * 2, b.sum(), OPS.above(a + 1, 1.2)

        module = Module()
        given = torch.randn(20, device=self.device), torch.randn(5, 5, device=self.device)
        model = self.load(self.exported(module, given))
        for given in [given, (-torch.ones(20, device=self.device), given[1]), (given[0] + 1, given[1] - 9)]:
            wanted = module(*given)
            calls.clear()
            self.close(tuple(model(*given)), wanted)
            self.assertEqual(calls, ["above"] * 3)

    def test_lists_that_change_and_buffers(self):
        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(4))

            def forward(self, x, y):
                a = x + 1
                total = OPS.bump([a, self.seen], y)
                return a, total, self.seen + 0

        module = Module().to(self.device)
        given = torch.randn(4, device=self.device), torch.randn(4, device=self.device)
        program = self.exported(module, given)
        for form, schema in [(program, str(OPS.bump.default._schema)), (program.run_decompositions(), "")]:
            fresh = copy.deepcopy(module)
            model = self.load(form, schema)
            mine, theirs = given[1].clone(), given[1].clone()
            for _ in range(3):
                self.close(tuple(model(given[0], mine)), fresh(given[0], theirs))
                self.close(mine, theirs)

    def test_several_runs_at_once(self):
        class Module(torch.nn.Module):
            def forward(self, x):
                return OPS.one([x, x * 2], [x], 3.0)[0].sum(0), OPS.above(x.flatten(), 0.0)

        module, failures = Module(), []
        model = self.load(self.exported(module, (torch.randn(8, 8, device=self.device),)), num_runners=3)

        def work():
            try:
                for _ in range(30):
                    x = torch.randn(8, 8, device=self.device)
                    self.close(tuple(model(x)), module(x))
            except Exception as failure:  # noqa: BLE001: the main thread shows it
                failures.append(failure)
        # No more than there are runners: the loader waits for one under the lock that an operator in Python waits for.
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failures, [])

    def test_a_model_inside_of_an_operator(self):
        class Inner(torch.nn.Module):
            def forward(self, x):
                return OPS.rise(x.abs()) * 2

        class Outer(torch.nn.Module):
            def forward(self, x):
                return torch.ops.neso_aoti.whole(OPS.rise(x.abs())) + 1

        x = torch.randn(5, device=self.device)
        inner = self.load(self.exported(Inner(), (x,)))
        scope = torch.library.Library("neso_aoti", "FRAGMENT")
        scope.define("whole(Tensor x) -> Tensor")
        scope.impl("whole", lambda x: inner(x), "CUDA" if self.device == "cuda" else "CPU")
        scope.impl("whole", lambda x: torch.empty_like(x), "Meta")
        outer = self.load(self.exported(Outer(), (x,)))
        self.close(outer(x), (x.abs() + 2) * 2 + 1)


class Archives(Test):
    def program(self):
        class Module(torch.nn.Module):
            def forward(self, x):
                return OPS.rise(x) * 2

        return torch.export.export(Module(), (torch.ones(3),), strict=False)

    def test_without_the_file_of_calls_a_run_fails_by_name(self):
        path, _ = self.compile(self.program())
        with zipfile.ZipFile(path) as members:
            library = members.extract(next(n for n in members.namelist() if n.endswith(".so")), self.folder)
        runner = torch._C._aoti.AOTIModelContainerRunnerCpu(library, 1)
        with self.assertRaisesRegex(RuntimeError, "operator 'neso_aoti::rise' failed: the loader gave no executor" if TELLS else "API call failed"):
            runner.run([torch.ones(3)])

    def test_archives_without_operators_have_no_file_of_calls(self):
        path, _ = self.compile(torch.export.export(torch.nn.Linear(3, 3), (torch.ones(3, 3),)))
        with zipfile.ZipFile(path) as members:
            self.assertEqual([n for n in members.namelist() if n.endswith("wrapper.json")], [])

    def test_calls_are_numbered_as_their_nodes(self):
        path, _ = self.compile(self.program())
        node, = self.nodes(path)
        self.assertEqual(node["node"]["target"], "neso_aoti::rise")
        self.assertEqual([(a["name"], list(a["arg"])) for a in node["node"]["inputs"]], [("x", ["as_tensor"])])
        self.assertEqual([list(o) for o in node["node"]["outputs"]], [["as_tensor"]])

    def test_what_the_loader_cannot_call_is_refused(self):
        class Module(torch.nn.Module):
            def forward(self, x):
                return OPS.one([x], [], float("inf"))[0]

        class Empty(torch.nn.Module):
            def forward(self, x):
                return OPS.one([x], [], 0.5)[0]

        _, done = self.compile(torch.export.export(Empty(), (torch.ones(3),), strict=False))
        self.assertIn("it is given or returns an empty list of tensors or integers", done.stderr)
        path, done = self.compile(torch.export.export(Module(), (torch.ones(3),), strict=False))
        self.assertEqual(done.returncode, 1)
        self.assertIn("error[E0706]", done.stderr)
        self.assertIn("operator 'neso_aoti::one' cannot be called by PyTorch's loader: it is given or returns a number that is not finite", done.stderr)


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class Gpu(Operators):
    device = "cuda"


if __name__ == "__main__":
    unittest.main()
