"""neso.compile, neso.load and calls, held against torch. The package is that of the build folder (run.py)."""
import collections
import copy
import gc
import importlib
import io
import math
import os
import pickle
import runpy
import subprocess
import sys
import threading
import zipfile

import numpy as np
import pytest
import torch

import neso
from neso import _program
from modules import Counter, Mlp, Two, function


def read_tensors(path):
    """The tensors of a .safetensors file, of float32 and int64."""
    import json
    dtypes = {"F32": torch.float32, "I64": torch.int64}
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    return {name: torch.frombuffer(bytearray(data[8 + size:][slice(*row["data_offsets"])]), dtype=dtypes[row["dtype"]]).reshape(row["shape"])
            if math.prod(row["shape"]) else torch.empty(row["shape"], dtype=dtypes[row["dtype"]])
            for name, row in json.loads(data[8:8 + size]).items()}


def test_profile_knows_steps_and_costs_nothing_outside(mlp, tmp_path):
    import json
    model, compiled = mlp
    x = torch.randn(64, 16)
    compiled(x)
    with neso.profile() as p:
        for _ in range(20):
            compiled(x)
        with neso.profile() as inner, pytest.raises(neso.InputError):
            compiled(x.double())
    compiled(x)
    assert len(p.runs) == 20 and not inner.runs
    launches = {s.kernel for s in p.runs[0].steps if s.kernel}
    assert launches == {k["name"] for k in compiled.kernels}
    for run in p.runs:
        assert all(run.begin <= s.begin <= s.end <= run.end for s in run.steps)
    rows = p.kernels()
    assert sum(r["count"] for r in rows if r["name"] in launches) == 20 * len(launches) and 0 < sum(r["share"] for r in rows) <= 1
    assert "20 runs" in p.table() and rows[0]["name"] in str(p)
    p.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"M", "X"} == {e["ph"] for e in events} and all(e["ts"] >= 0 and e["dur"] >= 0 for e in events if e["ph"] == "X")
    assert sum(e.get("cat") == "run" for e in events) == 20


def test_profile_of_a_loop_and_of_threads():
    class Loop(torch.nn.Module):
        def forward(self, n, x):
            return torch._higher_order_ops.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * 2 + i), (torch.tensor(0), x))[1]
    model = neso.compile(Loop(), (torch.tensor(3), torch.ones(5))).load()
    with neso.profile() as p:
        threads = [threading.Thread(target=lambda n=n: model(torch.tensor(n), torch.ones(5))) for n in (2, 7)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    loops = sorted([[s for s in run.steps if s.what == "while"] for run in p.runs], key=len)
    assert [len(steps) for steps in loops] == [1, 1]
    turns = sorted(sum(s.kernel is not None and s.depth == 1 for s in run.steps) for run in p.runs)
    assert 0 < turns[0] < turns[1]
    for run in p.runs:
        loop = next(s for s in run.steps if s.what == "while")
        assert all(loop.begin <= s.begin <= s.end <= loop.end for s in run.steps if s.depth == 1)


def test_verify_compares_with_the_interpreter(mlp, tmp_path):
    model, _ = mlp
    done = neso.verify(model, (torch.randn(2, 16),))
    assert done.good and done and [(c.name, c.shape, c.dtype) for c in done] == [("0", (2, 8), "f32")] and "ok" in str(done)
    counter = Counter()
    package = neso.compile(counter, (torch.ones(3),))
    assert {c.name for c in neso.verify(counter, (torch.ones(3),), package=package)} == {"0", "buffer.count"}
    torch.export.save(torch.export.export(Two(), (torch.ones(2), torch.ones(2).bfloat16())), tmp_path / "two.pt2")
    assert neso.verify(tmp_path / "two.pt2") and neso.verify(tmp_path / "two.pt2", (torch.ones(2), torch.ones(2).bfloat16()))
    # A tolerance of nothing: sums in another order are not equal.
    rough = neso.verify(model, (torch.randn(2, 16),), rtol=0, atol=0)
    assert all(c.good == (c.beyond == 0) for c in rough)
    with pytest.raises(neso.CompileError, match="cannot read"):
        neso.verify(tmp_path / "nothing.pt2")


def test_tuning_keeps_its_results(tmp_path):
    model, x = Mlp().eval(), torch.randn(4, 16)
    package = neso.compile(model, (x,), tune=tmp_path / "tuned.json")
    assert (tmp_path / "tuned.json").stat().st_size > 0
    torch.testing.assert_close(package.load()(x), model(x), rtol=1e-5, atol=1e-6)


def test_import_is_quick_and_takes_nothing_along():
    code = "import neso, sys; assert not {'torch', 'numpy', 'triton'} & set(sys.modules); print(neso.__version__)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == neso.__version__


@pytest.mark.parametrize("batch", [1, 2, 7, 64])
def test_torch_in_torch_out(mlp, batch):
    model, ours = mlp
    x = torch.randn(batch, 16)
    got = ours(x)
    assert type(got) is torch.Tensor and got.shape == (batch, 8)
    torch.testing.assert_close(got, model(x).detach(), rtol=1e-5, atol=1e-6)


def test_numpy_in_numpy_out(mlp):
    model, ours = mlp
    x = np.random.default_rng(0).standard_normal((5, 16), dtype=np.float32)
    got = ours(x)
    assert type(got) is np.ndarray
    np.testing.assert_allclose(got, model(torch.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-6)
    readonly = x.copy()
    readonly.flags.writeable = False
    np.testing.assert_array_equal(ours(readonly), got)


def test_results_without_tensor_arguments_are_of_torch_where_it_is_loaded():
    class Constant(torch.nn.Module):
        def forward(self, n):
            return torch.arange(4) * 2, n

    ours = neso.compile(Constant(), (3,)).load()
    got, n = ours(3)
    assert type(got) is torch.Tensor and got.tolist() == [0, 2, 4, 6] and n == 3
    as_asked = neso.load(ours._made_from[0], result="numpy")(3)[0]
    assert type(as_asked) is np.ndarray


def test_numbers_that_a_run_computes_are_pythons():
    class Numbers(torch.nn.Module):
        def forward(self, x):
            total = x.sum().item()
            return x * 2, total, {"twice": total * 2}, x.shape[0], 1.5

    model = Numbers()
    for x in (torch.arange(4.), torch.arange(4.).double()):
        ours = neso.compile(torch.export.export(model, (x,))).load()
        assert [v.kind for v in ours.outputs] == ["tensor", "float", "float", "int", "float"]
        for given in (x, x + 1):
            doubled, *numbers = ours(given)
            torch.testing.assert_close(doubled, given * 2)
            assert repr(numbers) == repr(list(model(given)[1:]))
    only = neso.compile(torch.export.export(function(lambda x: x.sum().item()), (torch.arange(4.),))).load()
    assert repr(only(torch.arange(4.))) == "6.0"


def test_results_that_are_absent_are_none():
    """torch describes the weights that are not wanted as an empty tensor, and eager gives None."""
    def attend(need, used=False):
        class Attention(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.m = torch.nn.MultiheadAttention(8, 2, batch_first=True)

            def forward(self, x):
                m = self.m
                y, weights = torch._native_multi_head_attention(x, x, x, 8, 2, m.in_proj_weight, m.in_proj_bias, m.out_proj.weight, m.out_proj.bias, None, need)
                return (y, weights + 1) if used else (y, weights)
        return Attention().eval()

    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        for need in (False, True):
            model = attend(need)
            torch.testing.assert_close(neso.compile(torch.export.export(model, (x,))).load()(x), model(x))
        with pytest.raises(neso.CompileError, match="is not computed here"):
            neso.compile(torch.export.export(attend(False, used=True), (x,)))


@pytest.mark.parametrize("strict", [False, True])
def test_autocast_in_an_exported_program(strict):
    """Its casts are written out before the program is saved."""
    class Cast(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x, y):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                z = self.inner(x) @ y
            return z.sin(), x.softmax(1)

    model, args = Cast(), (torch.randn(2, 4), torch.randn(4, 4))
    got, wanted = neso.compile(torch.export.export(model, args, strict=strict)).load()(*args), model(*args)
    assert [t.dtype for t in got] == [torch.bfloat16, torch.float32]
    torch.testing.assert_close(got, tuple(t.detach() for t in wanted))


def test_autocast_in_a_file(tmp_path):
    """The compiler writes the casts out where a .pt2 comes as it was exported: by the operators' lists, and not where a region turns it off."""
    class Cast(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.norm = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)

        def forward(self, x, y):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                z = self.norm(self.inner(x) @ y)
                both = torch.cat([z, x.bfloat16()]), torch.cat([x, z])
                wide = (x.double() @ y.double(), torch.nn.functional.mse_loss(z, x.bfloat16()), x.exp() + z, torch.linalg.inv(y.bfloat16()))
            with torch.autocast("cpu", enabled=False):
                exact = x @ y
            return both, wide, exact, x @ y

    model, args = Cast(), (torch.randn(2, 4), torch.randn(4, 4) + 4 * torch.eye(4))
    torch.export.save(torch.export.export(model, args), tmp_path / "cast.pt2")
    ours = neso.compile(tmp_path / "cast.pt2").load()
    got, wanted = (torch.utils._pytree.tree_leaves(m(*args)) for m in (ours, model))
    torch.testing.assert_close(got, [t.detach() for t in wanted])


def test_strides_are_the_callers(mlp):
    model, ours = mlp
    x = torch.randn(16, 10).t()[::2]
    torch.testing.assert_close(ours(x), model(x).detach(), rtol=1e-5, atol=1e-6)
    a = np.ascontiguousarray(x.numpy())[::-1]
    np.testing.assert_allclose(ours(a), model(torch.from_numpy(a.copy())).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_results_outlive_model_and_next_call(mlp):
    model, _ = mlp
    ours = neso.compile(model, (torch.randn(2, 16),)).load()
    x, y = torch.randn(2, 16), torch.randn(2, 16)
    first, kept = ours(x), ours(x).clone()
    array = ours(x.numpy())
    ours(y)
    del ours
    gc.collect()
    torch.testing.assert_close(first, kept, rtol=0, atol=0)
    np.testing.assert_array_equal(array, kept.numpy())


def test_results_into_the_callers_memory(mlp):
    _, ours = mlp
    x, room = torch.randn(3, 16), torch.zeros(3, 8)
    assert ours(x, out=room) is room
    torch.testing.assert_close(room, ours(x), rtol=0, atol=0)
    with pytest.raises(neso.InputError, match="size 3 in dimension 0; the buffer given has 4") as e:
        ours(x, out=torch.zeros(4, 8))
    assert e.value.code == "E0829"


def test_results_into_an_arguments_memory():
    """Elements are read before they are overwritten, wherever they lie; two results in one place are refused."""
    x = torch.randn(64, 64)
    for f in (lambda a: a.flip(0) + 0, lambda a: a.t() * 2, lambda a: a @ a, lambda a: a.cumsum(0), lambda a: a.sum(0, keepdim=True) + a):
        ours = neso.compile(function(f), (x,)).load()
        for _ in range(2):
            memory = x.clone()
            ours(memory, out=memory)
            torch.testing.assert_close(memory, f(x), rtol=1e-4, atol=1e-4)
        shifted = torch.cat([x, x[:1]])
        ours(shifted[:-1], out=shifted[1:])
        torch.testing.assert_close(shifted[1:], f(x), rtol=1e-4, atol=1e-4)
    two, memory = neso.compile(function(lambda a: (a * 2, a + 1)), (x,)).load(), torch.empty(64, 128)
    with pytest.raises(neso.InputError, match="outputs 0 .* and 1 .* share memory"):
        two(x, out=(memory[:, :64], memory[:, :64]))
    flat = torch.empty(65 * 64)
    with pytest.raises(neso.InputError, match="share memory"):
        two(x, out=(flat[:4096].view(64, 64), flat[64:].view(64, 64)))
    two(x, out=(memory[:, :64], memory[:, 64:]))
    torch.testing.assert_close(memory, torch.cat([x * 2, x + 1], 1))


def test_trees_of_arguments_and_results():
    model, x, y = Two(), torch.randn(4), torch.randn(4)
    ours = neso.compile(model, (x,), {"y": y, "scale": 3}).load()
    got, want = ours(x, y=y, scale=3), model(x, y=y, scale=3)
    assert list(got) == list(want) and type(got["both"]) is tuple
    torch.testing.assert_close(got, want)
    with pytest.raises(neso.InputError, match="keyword arguments y, scale; given are y"):
        ours(x, y=y)
    nested = neso.compile(function(lambda d: [d["a"] + d["b"][0], d["b"][1]]), ({"a": x, "b": [y, x]},)).load()
    got = nested({"b": [y, x], "a": x})
    assert type(got) is list
    torch.testing.assert_close(got, [x + y, x])
    with pytest.raises(neso.InputError, match=r"argument 0\['b'\] must be a list of 2"):
        nested({"a": x, "b": [y]})


def test_positional_arguments_by_name():
    model, x, y = Two(), torch.randn(4), torch.randn(4)
    ours = neso.compile(model, (x, y)).load()
    torch.testing.assert_close(ours(x, y=y), model(x, y))
    with pytest.raises(neso.InputError, match="takes 2 positional arguments, 1 were given; its inputs are x, y"):
        ours(x)


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_pass_both_ways(dtype):
    x = torch.randn(3, 5).to(torch.complex64 if dtype.is_complex else torch.float32)
    x = x > 0 if dtype == torch.bool else (x * 3).to(dtype)
    ours = neso.compile(function(lambda a: torch.flip(a, (1,))), (x,)).load()
    torch.testing.assert_close(ours(x), torch.flip(x, (1,)), rtol=0, atol=0)
    if dtype != torch.bfloat16:
        np.testing.assert_array_equal(ours(x.numpy()), torch.flip(x, (1,)).numpy())


def test_empty_and_scalar_tensors():
    n = torch.export.Dim("n", min=0, max=8)
    ours = neso.compile(function(lambda a, b: (a * 2, b + 1)), (torch.randn(3), torch.tensor(2.0)), dynamic_shapes={"args": ({0: n}, {})}).load()
    got = ours(torch.empty(0), torch.tensor(4.0))
    assert got[0].shape == (0,) and got[1].shape == () and got[1].item() == 5
    got = ours(np.empty(0, np.float32), np.float32(4))
    assert got[0].shape == (0,) and got[1].shape == ()


def test_results_that_the_export_fixed():
    model = neso.compile(function(lambda x: (x * 2, "moo", 3, 2.5, True, None, "")), (torch.ones(2),)).load()
    result = model(torch.ones(2))
    torch.testing.assert_close(result[0], torch.full((2,), 2.0))
    assert result[1:] == ("moo", 3, 2.5, True, None, "")


def test_tensors_that_wrap_others_are_refused():
    """Their own memory, which the exchange hands out, has not their elements."""
    from torch.testing._internal.two_tensor import TwoTensor
    model = neso.compile(function(lambda x: x + 1), (torch.randn(4),)).load()
    with pytest.raises(neso.InputError, match=r"input 0 \('args_0'\) is a TwoTensor, a tensor that wraps others"):
        model(TwoTensor(torch.randn(4), torch.randn(4)))
    torch.testing.assert_close(model(torch.nn.Parameter(torch.ones(4), requires_grad=False)), torch.full((4,), 2.0))


def test_operators_of_the_users_come_with_a_library():
    from pathlib import Path
    library = Path(neso.__file__).parents[2] / "lib/libneso_test_ops.so"
    if not library.exists():
        pytest.skip("the operators of the tests are not built")
    goldens = Path(__file__).parents[2] / "tests/goldens/extern"
    package = neso.compile(goldens / "changes.decomposed.pt2")
    given, wanted = read_tensors(goldens / "inputs.4.safetensors"), read_tensors(goldens / "changes.outputs.4.safetensors")
    model = package.load(op_library=library)
    for m in (model, pickle.loads(pickle.dumps(package.load(op_library=str(library))))):
        for at, result in enumerate(m(given["0"], given["1"])):
            torch.testing.assert_close(result, wanted[str(at)])
        torch.testing.assert_close(m.buffers()["seen"], wanted["buffer.seen"])
    assert neso.verify(goldens / "changes.decomposed.pt2", (given["0"], given["1"]), op_library=library)
    with pytest.raises(neso.Error, match="neso_test::push, neso_test::scale_|neso_test::scale_, neso_test::push") as missing:
        package.load()(given["0"], given["1"])
    assert missing.value.code == "E0845"
    for wrong in ("nowhere.so", neso._model._core().__file__):
        with pytest.raises(neso.InputError, match="cannot be used as a library of operators"):
            package.load(op_library=wrong)


def test_script_objects_come_with_the_library_of_operators():
    from pathlib import Path
    library = Path(neso.__file__).parents[2] / "lib/libneso_test_ops.so"
    if not library.exists():
        pytest.skip("the operators of the tests are not built")
    goldens = Path(__file__).parents[2] / "tests/goldens/extern"
    package = neso.compile(goldens / "methods.export.pt2")
    given, wanted = read_tensors(goldens / "objects.inputs.4.safetensors"), read_tensors(goldens / "methods.outputs.4.safetensors")
    # The library's objects count their calls: they are as new in a process of their own.
    model = package.load(op_library=library)
    assert model.info["objects"] == [{"name": n, "class": "__torch__.torch.classes.neso_test_objects.Tally"} for n in ("inner.tally", "t")]
    for at, result in enumerate(model(None, given["1"], given["2"])):
        torch.testing.assert_close(result, wanted[str(at)])
    again = model(None, given["1"], given["2"])
    assert not torch.equal(again[0], wanted["0"])


class Tally:
    """As the class of tools/golden_objects.py."""

    def __init__(self, scale):
        self.scale, self.calls = scale, 0

    def next(self, x):
        self.calls += 1
        return x * self.scale + self.calls

    def both(self, x, n, f, word, y):
        self.calls += 1
        return x * n + y, x + len(word)

    def add(self, n):
        self.calls += n


def test_script_objects_of_this_process():
    from pathlib import Path
    goldens = Path(__file__).parents[2] / "tests/goldens/extern"
    package = neso.compile(goldens / "methods.export.pt2")
    for rows in (4, 9):
        given, wanted = read_tensors(goldens / f"objects.inputs.{rows}.safetensors"), read_tensors(goldens / f"methods.outputs.{rows}.safetensors")
        objects = {"t": Tally(0.5), "inner.tally": Tally(2.0)}
        for at, result in enumerate(package.load(objects=objects)(None, given["1"], given["2"])):
            torch.testing.assert_close(result, wanted[str(at)])
        assert objects["t"].calls == 2 and objects["inner.tally"].calls == 3 + rows
    with pytest.raises(neso.Error, match=r"script objects that are not given: inner.tally \(__torch__.*Tally\), t \(") as missing:
        package.load()(None, given["1"], given["2"])
    assert missing.value.code == "E0849"
    with pytest.raises(neso.InputError, match="those of a library come with it"):
        package.load(objects=objects, op_library=__file__)


def test_operators_that_torch_has_registered():
    """Without a library a model calls what torch.library has in this process: arguments of each kind, changes in place, sizes that the operator decides, its exceptions."""
    import importlib.util
    from pathlib import Path
    root = Path(__file__).parents[2]
    if not hasattr(torch.ops.neso_test, "mix"):
        spec = importlib.util.spec_from_file_location("golden_extern", root / "tools/golden_extern.py")
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    goldens = root / "tests/goldens/extern"
    for name, operators in (("model", {"neso_test::mix", "neso_test::total"}), ("changes", {"neso_test::scale_", "neso_test::push", "neso_test::total"}),
                            ("sized", {"neso_test::over", "neso_test::over:sizes"})):
        model = neso.compile(goldens / f"{name}.export.pt2").load()
        assert set(model.info["operators"]) == operators
        for rows in (4, 9):
            given, wanted = read_tensors(goldens / f"inputs.{rows}.safetensors"), read_tensors(goldens / f"{name}.outputs.{rows}.safetensors")
            fresh = neso.compile(goldens / f"{name}.export.pt2").load()
            for at, result in enumerate(fresh(given["0"], given["1"])):
                torch.testing.assert_close(result, wanted[str(at)])

    @torch.library.custom_op("neso_python_test::made", mutates_args=())
    def made(x: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        return torch.ones(x.shape, device=device, dtype=dtype) * 3

    made.register_fake(lambda x, device, dtype: torch.empty(x.shape, device=device, dtype=dtype))
    model = neso.compile(function(lambda x: torch.ops.neso_python_test.made(x, torch.device("cpu"), torch.float64)), (torch.ones(3),)).load()
    torch.testing.assert_close(model(torch.ones(3)), torch.full((3,), 3.0, dtype=torch.float64))

    @torch.library.custom_op("neso_python_test::number", mutates_args=())
    def number(x: torch.Tensor) -> int:
        return int(x.sum())

    number.register_fake(lambda x: torch.library.get_ctx().new_dynamic_size())

    def of_numbers(x):
        n = torch.ops.neso_python_test.number(x)
        return torch.arange(n), n + x.shape[0], x * n, torch.ops.neso_python_test.number(x + 1)

    model = neso.compile(function(of_numbers), (torch.arange(4.),), dynamic_shapes=(({0: torch.export.Dim.DYNAMIC},),)).load()
    for x in (torch.arange(4.), torch.arange(6.) + 5):
        got, wanted = model(x), of_numbers(x)
        torch.testing.assert_close(got[::2], wanted[::2])
        assert repr(got[1::2]) == repr(wanted[1::2])

    @torch.library.custom_op("neso_python_test::refuses", mutates_args=())
    def refuses(x: torch.Tensor) -> torch.Tensor:
        if x.sum() < 0:
            raise ValueError("sums below zero are not wanted")
        return x * 2

    refuses.register_fake(torch.empty_like)
    model = neso.compile(function(lambda x: torch.ops.neso_python_test.refuses(x) + 1), (torch.ones(3),)).load()
    with pytest.raises(neso.Error, match="ValueError: sums below zero are not wanted"):
        model(-torch.ones(3))
    torch.testing.assert_close(model(torch.ones(3)), torch.full((3,), 3.0))


def quantised_by_torchao(model):
    """The model once for each of torchao's subclasses of weights that a CPU can make, with a name."""
    torchao = pytest.importorskip("torchao.quantization")
    from torchao.prototype.mx_formats import NVFP4WeightOnlyConfig
    configs = (torchao.Int8WeightOnlyConfig(), torchao.Int8DynamicActivationInt8WeightConfig(), torchao.IntxWeightOnlyConfig(weight_dtype=torch.int4),
               torchao.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=torchao.PerGroup(32)), torchao.Float8WeightOnlyConfig(),
               NVFP4WeightOnlyConfig())
    for config in configs:
        quantised = copy.deepcopy(model)
        torchao.quantize_(quantised, config)
        yield type(config).__name__, quantised
    quantised = copy.deepcopy(model)
    for layer in (quantised[0], quantised[2]):
        layer.weight = torch.nn.Parameter(torchao.to_nf4(layer.weight.detach(), 64, 4))
    yield "NF4", quantised


def test_quantised_weights_of_tensor_subclasses():
    """torchao's weights are pickles in a .pt2; what is compiled are the tensors inside, which stay narrow."""
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 32)).eval(), torch.randn(5, 64)
    narrow = (64 + 32) * 256
    for name, quantised in quantised_by_torchao(model):
        learnt = [p.requires_grad for p in quantised.parameters()]
        package = neso.compile(quantised, (x,))
        # What unpacks four bits of a float is arithmetic like any other, which is folded where it is small.
        assert len(package.data) < 2 * narrow or "4" in name, f"{name}: the weights were widened"
        assert [p.requires_grad for p in quantised.parameters()] == learnt
        # A step of the activations' rounding may fall to the other side.
        torch.testing.assert_close(neso.load(package)(x), quantised(x), rtol=1e-4, atol=1e-2 if "Dynamic" in name else 1e-4, msg=lambda m: f"{name}: {m}")


def test_a_file_with_tensor_subclasses_names_its_cure(tmp_path):
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)).eval(), torch.randn(5, 64)
    for name, quantised in quantised_by_torchao(model):
        torch.export.save(torch.export.export(quantised, (x,)), tmp_path / "model.pt2")
        with pytest.raises(neso.CompileError, match=r"program = torch.export.load\(FILE\) and neso.compile\(program\)") as refused:
            neso.compile(tmp_path / "model.pt2")
        assert refused.value.code == "E0121"
        program = torch.export.load(tmp_path / "model.pt2")
        wanted = quantised(x)
        torch.testing.assert_close(neso.compile(program).load()(x), wanted, rtol=1e-4, atol=1e-2 if "Dynamic" in name else 1e-4)
        if name == "NF4":
            # torch itself wants a gradient of the integers inside.
            continue
        torch.export.save(program.run_decompositions(), tmp_path / "plain.pt2")
        torch.testing.assert_close(neso.compile(tmp_path / "plain.pt2").load()(x), wanted, rtol=1e-4, atol=1e-2 if "Dynamic" in name else 1e-4)


class Int4(torch.nn.Module):
    """torchao's weights of four bits for CPUs, as its Int4OpaqueTensor holds them."""

    def __init__(self, rows, columns, dtype):
        super().__init__()
        self.register_buffer("packed", torch.ops.aten._convert_weight_to_int4pack_for_cpu(torch.randint(0, 16, (rows, columns), dtype=torch.int32), 1))
        self.register_buffer("scales", torch.randn(columns // 32, rows, 2, dtype=dtype))

    def forward(self, x):
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.packed, 32, self.scales)


def test_int4_weights_are_read_as_this_machine_packs_them(tmp_path):
    model, x = Int4(80, 512, torch.bfloat16), torch.randn(3, 512, dtype=torch.bfloat16)
    package = neso.compile(model, (x,))
    with zipfile.ZipFile(io.BytesIO(package.data)) as members:
        stored = sum(m.file_size for m in members.infolist() if "/weights/" in m.filename)
    assert stored < 1.5 * 80 * 512 / 2, "the weights were widened"
    torch.testing.assert_close(package.load()(x), model(x), rtol=2e-2, atol=2e-1)
    # A file of torch's own does not say which machine it was.
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "model.pt2")
    with pytest.raises(neso.CompileError, match="--option int4-packing=default, avx2 or avx512"):
        neso.compile(tmp_path / "model.pt2")
    said = {"int4-packing": torch.backends.cpu.get_cpu_capability().lower()}
    torch.testing.assert_close(neso.compile(tmp_path / "model.pt2", options=said).load()(x), package.load()(x), rtol=0, atol=0)


def test_int4_weights_of_torchao():
    torchao = pytest.importorskip("torchao.prototype.quantization.int4.int4_opaque_tensor")
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 32)).eval(), torch.randn(5, 64)
    for layer in (model[0], model[2]):
        layer.weight = torch.nn.Parameter(torchao.Int4OpaqueTensor.from_hp(layer.weight.detach(), [1, 32]), requires_grad=False)
    package = neso.compile(model, (x,))
    assert len(package.data) < 2 * (64 + 32) * 256, "the weights were widened"
    torch.testing.assert_close(package.load()(x), model(x), rtol=1e-4, atol=1e-4)


class TwoOperands(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 5.0))

    def forward(self, x, y, *, more=None):
        return x * 2 + y + (0 if more is None else more["z"]) + self.weight


def test_an_example_that_gives_one_tensor_twice(tmp_path):
    """torch.export takes the two for one: the program would read one of them for both ever after."""
    model, x, y, z = TwoOperands(), torch.randn(3), torch.randn(3), torch.randn(3)
    for args, kwargs in (((x, x), {}), ((x, x), {"more": {"z": x}}), ((x, model.weight), {})):
        compiled, given = neso.compile(model, args, kwargs).load(), {"more": {"z": z}} if kwargs else {}
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, y, **given), model(x, y, **given))
    neso.export(model, (x, x), tmp_path / "m.pt2")
    with torch.no_grad():
        torch.testing.assert_close(neso.compile(tmp_path / "m.pt2").load()(x, y), model(x, y))


def test_arrays_that_run_backwards():
    x, y = np.arange(12, dtype="f4").reshape(3, 4), np.ones((3, 4), "f4")
    compiled = neso.compile(lambda a, b: a * 2 + b, (torch.from_numpy(x), torch.from_numpy(y))).load()
    for turned in (x[::-1], x[:, ::-1], x[::-1, ::-1]):
        np.testing.assert_array_equal(compiled(turned, y), turned * 2 + y)
        np.testing.assert_array_equal(compiled(y, turned), y * 2 + turned)


def test_wrong_arguments_are_named(mlp):
    _, ours = mlp
    with pytest.raises(neso.InputError, match="dtype f64, the model takes f32") as e:
        ours(torch.randn(2, 16, dtype=torch.float64))
    assert e.value.code == "E0824" and isinstance(e.value, ValueError) and isinstance(e.value, neso.Error)
    with pytest.raises(neso.InputError, match="dimension 1"):
        ours(torch.randn(2, 15))
    with pytest.raises(neso.InputError, match=r"outside the exported range \[1, 64\]"):
        ours(torch.randn(65, 16))
    with pytest.raises(neso.InputError, match="is a Python list; it must be a tensor"):
        ours([1.0])
    with pytest.raises(neso.InputError, match="requires a gradient.*no_grad"):
        ours(torch.randn(2, 16, requires_grad=True))
    with torch.no_grad():
        ours(torch.randn(2, 16, requires_grad=True))
    with pytest.raises(neso.InputError, match="the model has no argument 'z'; its inputs are"):
        ours(torch.randn(2, 16), z=1)
    ours(torch.randn(2, 16))


def test_vmap():
    # Torch 2.15 leaves it in the program, as marks around operators of one element.
    def pairs(x, y):
        return torch.vmap(lambda a: torch.vmap(lambda b: torch.dot(a, b) + a.sum(), in_dims=1)(y))(x)
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    program = torch.export.export(function(pairs), (x, y))
    for model in (function(pairs), program):
        torch.testing.assert_close(neso.compile(model, (x, y)).load()(x, y), pairs(x, y), rtol=1e-5, atol=1e-5)


def test_writes_through_views_that_begin_behind_their_memory():
    """Offsets of as_strided and of what unfold gives count from the beginning of memory, wherever their operand begins."""
    def written(x):
        y, z, w = x * 1, x * 2, x * 3
        y[1:].as_strided((3,), (1,), 7).add_(100)
        z[2:].t().as_strided((3,), (1,)).add_(100)
        w[1:].unfold(0, 2, 2).mul_(3)
        return y, z, w

    x = torch.arange(40.0).reshape(8, 5)
    model = neso.compile(torch.export.export(function(written), (x,))).load()
    for got, expected in zip(model(x), written(x)):
        np.testing.assert_array_equal(np.asarray(got), expected.numpy())

    def behind_the_operand(x):
        y = x * 1
        y[:2].as_strided((3,), (1,), 8).add_(1)
        return y

    model = neso.compile(torch.export.export(function(behind_the_operand), (x,))).load()
    np.testing.assert_array_equal(np.asarray(model(x)), behind_the_operand(x).numpy())


def test_views_that_were_written_come_back_with_their_strides():
    def written(x, y, at, z):
        v = x.t()[1:3]
        v.index_add_(0, at, y)
        w = z * 1
        part = w[:, 1:3].add_(1)
        w.t()[1].mul_(2)
        return v, v[:, 1:], part, w.t(), w
    inputs = torch.randn(4, 6), torch.randn(3, 4), torch.tensor([0, 1, 1]), torch.randn(4, 6)
    model = neso.compile(torch.export.export(function(written), inputs)).load()
    for got, expected in zip(model(*(t.clone() for t in inputs)), written(*(t.clone() for t in inputs))):
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got, expected)


def test_memory_of_callers_that_a_model_turns_in_place():
    """It is written as it lies, and the caller's tensor has the shape that the model leaves it with."""
    def turned(x):
        x.relu_()
        x.transpose_(0, 1)
        x[1:].mul_(3)
        return x + 0
    x = torch.randn(3, 4)
    model = neso.compile(torch.export.export(function(turned), (x.clone(),))).load()
    ours, eagers = x.clone(), x.clone()
    torch.testing.assert_close(model(ours), turned(eagers))
    assert ours.stride() == eagers.stride()
    torch.testing.assert_close(ours, eagers)


def test_slices_that_unique_takes_lie_as_atens():
    def slices(x):
        return torch.unique(x, dim=1), torch.unique(x, dim=0), torch.unique_consecutive(x, dim=1)
    x = torch.randint(0, 2, (3, 9, 2))
    model = neso.compile(torch.export.export(function(slices), (x,))).load()
    for got, expected in zip(model(x), slices(x)):
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got, expected)


def test_read_only_memory_is_not_written():
    ours = neso.compile(function(lambda a: a.add_(1)), (torch.zeros(3),)).load()
    x = np.zeros(3, np.float32)
    ours(x)
    np.testing.assert_array_equal(x, np.ones(3))
    x.flags.writeable = False
    with pytest.raises(neso.InputError, match="read-only, and the model writes to it"):
        ours(x)
    # Where several elements are in one place of memory, torch writes none, either.
    for repeated in (torch.zeros(1).expand(3), np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), (3,), (0,))):
        with pytest.raises(neso.InputError, match="holds several elements in one place, and the model writes to it"):
            ours(repeated)
    ours(torch.zeros(3, 1)[:, 0])


def test_buffers_keep_their_state():
    ours = neso.compile(Counter(), (torch.ones(3),)).load()
    for i in (1, 2, 3):
        torch.testing.assert_close(ours(torch.ones(3)), torch.full((3,), 2.0 * i))
    torch.testing.assert_close(ours.buffers()["count"], torch.full((3,), 3.0))
    ours.reset_buffers()
    torch.testing.assert_close(ours(torch.ones(3)), torch.full((3,), 2.0))


def test_stripped_packages_name_no_folders(tmp_path):
    place = tmp_path / "secret" / "written.py"
    place.parent.mkdir()
    place.write_text("import torch\nclass Module(torch.nn.Module):\n    def forward(self, x):\n        torch._check(x.sum().item() > -1e9)\n"
                     "        return torch.relu(x) @ x.T + torch.linalg.inv(x @ x.T)\n")
    space = runpy.run_path(str(place))
    torch.export.save(torch.export.export(space["Module"](), (torch.eye(3),)), tmp_path / "m.pt2")
    program = os.path.join(os.path.dirname(neso.__file__), "bin", "neso")
    for target in ("cpu", "cuda"):
        for strip in ([], ["--strip"]):
            subprocess.run([program, "compile", "m.pt2", "-o", "m.neso", "--target", target, "--ptxas", "none", *strip], cwd=tmp_path, check=True, capture_output=True)
            data = (tmp_path / "m.neso").read_bytes()
            assert b"written.py" in data and (b"secret" in data) == (not strip)


def test_values_that_are_not_in_memory_yet_are_refused():
    x = torch.randn(4, 8, dtype=torch.complex64)
    twice, plain = neso.compile(function(lambda x: x * 2), (x,)).load(), neso.compile(function(lambda x: x * 2), (torch.randn(4, 8),)).load()
    with pytest.raises(neso.InputError, match="resolve_conj"):
        twice(x.conj())
    torch.testing.assert_close(twice(x.conj().resolve_conj()), x.conj() * 2)
    with pytest.raises(neso.InputError, match="resolve_neg"):
        plain(x.conj().imag)
    torch.testing.assert_close(plain(x.conj().imag.resolve_neg()), x.conj().imag * 2)


def test_the_assembler_is_that_of_this_python(tmp_path, monkeypatch):
    from neso import _compile
    for name, tool in (("nvidia", "cu13/bin/ptxas"), ("triton", "backends/nvidia/bin/ptxas")):
        path = tmp_path / name / name / tool
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (tmp_path / "triton" / "triton" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "triton")])
    for name in ("nvidia", "triton"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    assert _compile._assembler() == str(tmp_path / "triton/triton/backends/nvidia/bin/ptxas")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "triton"), str(tmp_path / "nvidia")])
    importlib.invalidate_caches()
    assert _compile._assembler() == str(tmp_path / "nvidia/nvidia/cu13/bin/ptxas")
    assert "--ptxas" not in _compile._arguments("cpu", None, None, None, 0, None, None, "neso")
    assert _compile._arguments("cuda", None, None, None, 0, None, "none", "neso")[2:] == ["--ptxas", "none"]


def test_packages_as_files_and_bytes(tmp_path, mlp):
    model, _ = mlp
    x = torch.randn(2, 16)
    program = torch.export.export(model, (x,))
    torch.export.save(program, tmp_path / "m.pt2")
    packages = [neso.compile(program), neso.compile(tmp_path / "m.pt2"), neso.compile((tmp_path / "m.pt2").read_bytes())]
    packages[0].save(tmp_path / "m.neso")
    want = model(x).detach()
    for source in (*packages, tmp_path / "m.neso", str(tmp_path / "m.neso"), (tmp_path / "m.neso").read_bytes()):
        torch.testing.assert_close(neso.load(source)(x), want, rtol=1e-5, atol=1e-6)
    assert [str(v) for v in neso.load(packages[0]).inputs] == ["x: f32[2, 16]"]
    with pytest.raises(neso.Error, match="not a Neso package") as e:
        neso.load(b"no package, but long enough to be one" * 10)
    assert e.value.code.startswith("E071")
    with pytest.raises(neso.Error):
        neso.load(tmp_path / "missing.neso")


def test_what_a_model_says_of_itself(mlp):
    _, ours = mlp
    assert ours.inputs[0].dims[0].max == 64 and ours.inputs[0].dims[1] == neso._model.Dim(16, 16)
    assert [d.max for d in ours.dims.values()] == [64]
    assert ours.constants["first.weight"]["kind"] == "parameter"
    assert ours.kernels and ours.info["targets"][0]["chosen"]


def test_weights_of_the_caller(mlp):
    model, _ = mlp
    x = torch.randn(2, 16)
    package = neso.compile(model, (x,))
    bias = torch.randn(8)
    changed = package.load(weights={"second.bias": bias})
    torch.testing.assert_close(changed(x), (model(x) - model.second.bias + bias).detach(), rtol=1e-5, atol=1e-5)


def test_refusals_carry_all_diagnostics():
    with pytest.raises(neso.CompileError) as e:
        # An operator that PyTorch has for tests of its own.
        unknown = torch.ops.aten._test_serialization_subcmul
        neso.compile(function(lambda x: (unknown(x, x), unknown(x, x + 1))), (torch.rand(4, 4),))
    assert [(d.severity, d.code, d.context) for d in e.value.diagnostics] == [
        ("error", "E0250", "_test_serialization_subcmul"), ("error", "E0250", "_test_serialization_subcmul_1")]
    # Where PyTorch says that it was called: `function` calls it.
    assert e.value.code == "E0250" and e.value.hint and function.__code__.co_filename in e.value.location
    with pytest.raises(neso.CompileError, match="the model") as e:
        neso.compile(b"this is no archive")
    assert e.value.code.startswith("E01")


def test_the_walls_of_export_say_what_to_do():
    class Cache:
        pass

    class Bad(torch.nn.Module):
        def forward(self, x):
            return Cache()
    with pytest.raises(neso.ExportError, match="tuples, lists and dictionaries"):
        neso.compile(Bad(), (torch.randn(3),))
    Pair = collections.namedtuple("Pair", "a b")
    x = torch.randn(3)
    for pairs, given in ((lambda x: Pair(x, x + 1), x), (lambda x: x.a + x.b, Pair(x, x))):
        with pytest.raises(neso.ExportError, match="tuples, lists and dictionaries"):
            neso.compile(function(pairs), (given,))
    class Branching(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x - 1
    with pytest.raises(neso.ExportError, match="torch.where or torch.cond"):
        neso.compile(Branching(), (torch.randn(3),))


def test_cache_on_disk(tmp_path, monkeypatch, mlp):
    model, _ = mlp
    monkeypatch.setenv("NESO_CACHE_DIR", str(tmp_path))
    pt2 = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(model, (torch.randn(2, 16),)), pt2)
    first, second = neso.compile(pt2, cached=True), neso.compile(pt2, cached=True)
    assert not first.cached and second.cached and first.data == second.data
    assert neso.cache.info()["entries"] == 1
    assert not neso.compile(pt2, cached=True, arch="x86-64-v3").cached
    # Files that the arguments name count with what they hold; "none" names none.
    gpu = dict(target="cuda", arch="sm_90", ptxas="none", cached=True)
    assert not neso.compile(pt2, **gpu).cached and neso.compile(pt2, **gpu).cached
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "k.py").write_text("x = 1\n")
    assert not neso.compile(pt2, kernels=[kernels], cached=True).cached
    assert neso.compile(pt2, kernels=[kernels], cached=True).cached
    (kernels / "k.py").write_text("x = 12\n")
    assert not neso.compile(pt2, kernels=[kernels], cached=True).cached
    neso.cache.clear()
    assert neso.cache.info()["entries"] == 0
    os.chmod(tmp_path, 0o500)
    neso.compile(pt2, cached=True)
    os.chmod(tmp_path, 0o700)


def test_compiling_ends_in_time(mlp):
    with pytest.raises(neso.CompileError, match="ended after 0.001 s; give it more time"):
        neso.compile(mlp[0], (torch.randn(2, 16),), timeout=0.001)


def test_sizes_have_the_users_names(tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x, pair, *, mask):
            return {"logits": (x @ pair[0]) * mask[:, None], "rest": [pair[1], x.sum()]}
    batch, width = torch.export.Dim("batch", max=64), torch.export.Dim("width", min=2, max=32)
    model, args, kwargs = Model().eval(), (torch.randn(3, 4), (torch.randn(4, 5), torch.randn(6))), {"mask": torch.ones(3)}
    for shapes in ({"x": {0: batch}, "pair": ({1: width}, {0: torch.export.Dim.AUTO}), "mask": (batch,)}, ((batch, None), ((None, width), None), {0: batch})):
        compiled = neso.compile(model, args, kwargs, dynamic_shapes=shapes).load()
        assert {"batch", "width"} <= set(compiled.dims) and (compiled.dims["batch"].max, compiled.dims["width"].max) == (64, 32)
        assert repr(compiled.inputs[0].dims[0]).startswith("batch=") and compiled.outputs[0].dims[1].name == "width"
        new = (torch.randn(7, 4), (torch.randn(4, 9), args[1][1])), {"mask": torch.ones(7)}
        want, got = model(*new[0], **new[1]), compiled(*new[0], **new[1])
        assert torch.allclose(got["logits"], want["logits"], atol=1e-5) and torch.allclose(got["rest"][1], want["rest"][1], atol=1e-5)
    # Results are called after the keys that lead to them.
    assert [v.name for v in compiled.outputs] == ["logits", "rest.0", "rest.1"]
    # The file keeps the names; what torch calls sizes by itself is no name for others.
    neso.export(model, args, tmp_path / "m.pt2", kwargs, dynamic_shapes=shapes)
    assert "batch" in neso.compile(tmp_path / "m.pt2").load().dims
    # So does the report, whose times are measured at the sizes that it shows.
    page = tmp_path / "m.html"
    package = neso.compile(tmp_path / "m.pt2", report=True)
    package.save(tmp_path / "m.neso"), package.report(page)
    assert "batch = " in page.read_text() and "'batch' = " not in page.read_text() and "'batch' × " not in page.read_text()
    subprocess.run([_program.path(), "bench", tmp_path / "m.neso", "--iters", "2", "--report", page], check=True, capture_output=True)
    odd = torch.export.Dim("s1", max=9)
    assert neso.compile(Mlp().eval(), (torch.randn(2, 16),), dynamic_shapes=({0: odd},)).load()(torch.randn(5, 16)).shape == (5, 8)


def test_progress_is_told():
    class Deep(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(8 + i, 9 + i), torch.nn.Softmax(-1)) for i in range(12)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x
    heard = []
    package = neso.compile(Deep().eval(), (torch.randn(2, 8),), threads=1, progress=heard.append)
    assert heard[0].stage == "torch.export" and heard[1].stage == "reading the model"
    assert [p.seconds for p in heard] == sorted(p.seconds for p in heard) and heard[-1].seconds <= package.seconds
    kernels = [p for p in heard if p.stage == "code for the CPU" and p.what == "kernel"]
    assert all(p.name and 1 <= p.done <= p.of == len(package.load().kernels) for p in kernels), kernels

    class Enough(Exception):
        pass

    def enough(progress):
        if progress.stage != "torch.export":
            raise Enough
    with pytest.raises(Enough):
        neso.compile(Deep().eval(), (torch.randn(2, 8),), progress=enough)
    # Refusals still arrive, and a limit of time still holds.
    with pytest.raises(neso.CompileError) as refused:
        neso.compile(b"no archive", progress=heard.append)
    assert refused.value.code.startswith("E01") and refused.value.diagnostics
    with pytest.raises(neso.CompileError, match="ended after"):
        neso.compile(Deep().eval(), (torch.randn(2, 8),), progress=heard.append, timeout=0.001)


def test_progress_is_a_line_of_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True
    from neso import _progress
    monkeypatch.setattr(_progress, "_PATIENCE", 0)
    for file, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", file)
        neso.compile(Mlp().eval(), (torch.randn(2, 16),))
        assert ("reading the model" in file.getvalue()) == shown and file.getvalue().endswith("\x1b[K" if shown else "")


def test_one_package_for_cpus_and_gpus(tmp_path, mlp):
    x = torch.randn(2, 16)
    package = neso.compile(mlp[0], (x,), target=("cpu", "cuda"), arch=("x86-64-v3", "sm_90"), ptxas="none")
    assert torch.allclose(package.load()(x), mlp[0](x), atol=1e-6)
    assert torch.allclose(package.load(name="model")(x), mlp[0](x), atol=1e-6)
    parts = {kind: neso.load(package, device=None, name=f"model/{kind}").info["targets"] for kind in ("cpu", "cuda")}
    assert {t["device"] for t in parts["cpu"]} == {"cpu"} and {t["device"] for t in parts["cuda"]} == {"cuda"}
    # The weights are in it once.
    alone = neso.compile(mlp[0], (x,), arch="x86-64-v3")
    assert len(package.data) < 2 * len(alone.data) + (1 << 16)


def test_dlpack_structures_are_those_of_the_standard(tmp_path):
    from torch.utils import cpp_extension
    header = os.path.join(cpp_extension.include_paths()[0], "ATen", "dlpack.h")
    source = tmp_path / "check.c"
    root = os.path.join(os.path.dirname(__file__), "..", "..")
    pairs = [("neso_dl_tensor", "DLTensor", "data:data device:device rank:ndim dtype:dtype sizes:shape strides:strides byte_offset:byte_offset"),
             ("neso_dl_managed", "DLManagedTensor", "tensor:dl_tensor owner:manager_ctx release:deleter"),
             ("neso_dl_versioned", "DLManagedTensorVersioned", "version:version owner:manager_ctx release:deleter flags:flags tensor:dl_tensor"),
             ("neso_dl_exchange", "DLPackExchangeAPI", "version:header.version previous:header.prev_api allocate:managed_tensor_allocator "
              "export_owned:managed_tensor_from_py_object_no_sync import_owned:managed_tensor_to_py_object_no_sync borrow:dltensor_from_py_object_no_sync "
              "current_stream:current_work_stream")]
    lines = [f"_Static_assert(sizeof({a}) == sizeof({b}), \"{a}\");" for a, b, _ in pairs]
    lines += [f"_Static_assert(offsetof({a}, {f.split(':')[0]}) == offsetof({b}, {f.split(':')[1]}), \"{a}.{f}\");" for a, b, fields in pairs for f in fields.split()]
    codes = {"INT": "Int", "UINT": "UInt", "FLOAT": "Float", "BFLOAT": "Bfloat", "COMPLEX": "Complex", "BOOL": "Bool", "F8E4M3FN": "Float8_e4m3fn",
             "F8E4M3FNUZ": "Float8_e4m3fnuz", "F8E5M2": "Float8_e5m2", "F8E5M2FNUZ": "Float8_e5m2fnuz", "F8E8M0FNU": "Float8_e8m0fnu"}
    lines += [f"_Static_assert((int)NESO_DL_{a} == (int)kDL{b}, \"{a}\");" for a, b in codes.items()]
    source.write_text(f'#include <stddef.h>\n#include <stdint.h>\n#include "{root}/abi/dlpack.h"\n#include "{header}"\n' + "\n".join(lines))
    for compiler in ("cc", "clang-22", "gcc"):
        try:
            done = subprocess.run([compiler, "-fsyntax-only", source], capture_output=True, text=True)
        except FileNotFoundError:
            continue
        assert done.returncode == 0, done.stderr
        return
    pytest.skip("no C compiler")


def test_the_runtime_wheel_imports_nothing_of_the_compilers():
    """Of the package, the wheel neso-runtime has some files alone; what they import, also inside of functions, must be among them."""
    import ast
    from pathlib import Path
    root = Path(__file__).resolve().parents[2]
    tree = ast.parse((root / "packaging/wheel.py").read_text())
    files = next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "RUNTIME")
    asked = {}
    for name in files:
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse((root / "python/neso" / name).read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                for module in [node.module] if node.module else [alias.name for alias in node.names]:
                    asked.setdefault(f"{module}.py", []).append(name)
    assert asked.pop("_core.py")
    assert set(asked) <= files, {module: by for module, by in asked.items() if module not in files}
