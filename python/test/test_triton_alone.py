"""Kernels without Triton, by Neso's own front end, on NumPy's arrays. Expected values are NumPy's."""
import importlib.util
import json
import re
import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import neso
import neso.cache
import neso.triton as triton
import neso.triton.language as tl

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("NESO_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


SCALE = tl.constexpr(3)
SHIFT: tl.constexpr = 0.5


@triton.constexpr_function
def half(n):
    return n // 2


@triton.jit
def combined(a, b):
    return a * SCALE + b


@triton.jit
def combine(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, combined(tl.load(x + i, mask=i < n), tl.load(y + i, mask=i < n)) + half(BLOCK), mask=i < n)


@triton.jit
def negative(v):
    return -v


@triton.jit
def by_name(x, ACTIVATION: tl.constexpr):
    i = tl.arange(0, 8)
    v = tl.load(x + i)
    if ACTIVATION == "negative":
        v = negative(v)
    tl.store(x + i, v)


@pytest.mark.parametrize("n", [1, 1000, 4096])
def test_helpers_and_constants_come_along(n):
    x, y, out = np.random.rand(n).astype("f4"), np.random.rand(n).astype("f4"), np.full(n + 8, 7, "f4")
    kernel = combine[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=256)
    np.testing.assert_allclose(out[:n], x * 3 + y + 128, rtol=1e-6)
    assert (out[n:] == 7).all() and half(10) == 5
    # As in Triton, 1 is a constant.
    assert kernel.letters == ("ppp" if n == 1 else "pppi")


def test_specialisation_follows_the_arguments():
    out = np.zeros(64, "f8")
    x = np.arange(64, dtype="f8")
    before = len(combine._compiled)
    for n in (17, 18, 32, 48, 1 << 33):
        combine[(1,)](x, x, out, n, BLOCK=64)
        np.testing.assert_array_equal(out[:min(n, 64)], (x * 4 + 32)[:min(n, 64)])
    # Whether 16 divides it, and whether it fits 32 bits.
    assert len(combine._compiled) - before == 3
    combine[(1,)](x[1:], x[1:], out[1:], 63, BLOCK=64)
    np.testing.assert_array_equal(out[1:], (x * 4 + 32)[1:])
    assert len(combine._compiled) - before == 4


@triton.jit
def warps_of(out, num_warps: tl.constexpr):
    tl.store(out, num_warps)


def test_a_parameter_that_is_called_like_an_option_is_both():
    out = np.zeros(1, "i4")
    assert warps_of[(1,)](out, num_warps=8).metadata.num_warps == 8 and out[0] == 8
    assert warps_of[(1,)](out, 2).metadata.num_warps == 4 and out[0] == 2


@triton.jit(do_not_specialize=["n"])
def scaled(x, out, n, factor, negate, bias, BLOCK: tl.constexpr, DTYPE: tl.constexpr, KIND: tl.constexpr = "plain"):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(DTYPE) * factor + SHIFT
    if KIND == "twice":
        v *= 2
    if negate:
        v = -v
    if bias is not None:
        v += tl.load(bias + i, mask=i < n)
    tl.store(out + i, v.to(out.dtype.element_ty), mask=i < n)


def test_floats_flags_none_types_and_text():
    x, out = np.arange(40, dtype="i4"), np.zeros(40, "f4")
    scaled[(2,)](x, out, 40, 0.25, True, None, BLOCK=32, DTYPE=tl.float32)
    np.testing.assert_allclose(out, -(x * 0.25 + 0.5))
    scaled[(2,)](x, out, 1, 0.25, False, np.ones(40, "f4"), BLOCK=32, DTYPE=tl.float32, KIND="twice")
    assert out[0] == 2 and out[1] == -0.75
    kernel = scaled.warmup(x, out, 1, 0.25, False, None, BLOCK=32, DTYPE=tl.float32, grid=(1,))
    assert "i" in kernel.letters


@triton.jit
def of_what_type(x, out, K: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, (tl.load(x + i) * K).to(tl.float32) * 4)


def test_constants_that_compare_equal_are_told_apart():
    # Whole numbers wrap around, floating ones do not.
    x, out = np.full(4, 1 << 30, "i4"), np.zeros(4, "f4")
    for _ in range(2):
        for k, expected in ((4, 0.0), (4.0, 2.0**34)):
            of_what_type[(1,)](x, out, K=k, BLOCK=4)
            assert (out == expected).all(), (k, out)


def test_launches_after_the_first_take_no_way_through_python(monkeypatch):
    x, out = np.arange(70, dtype="f4"), np.zeros(70, "f4")
    grid = lambda meta: (triton.cdiv(70, meta["BLOCK"]),)  # noqa: E731
    scaled[grid](x, out, 70, 0.25, True, None, BLOCK=32, DTYPE=tl.float32)
    with monkeypatch.context() as patch:
        patch.setattr(scaled, "bind", lambda *a: pytest.fail("Python's way"))
        for n, factor in ((70, 0.5), (33, 2), (0, 1.0)):
            factor, out[:] = float(factor), 7
            kernel = scaled[grid](x, out, n, factor, True, None, DTYPE=tl.float32, BLOCK=32)
            np.testing.assert_allclose(out, np.where(np.arange(70) < n, -(x * factor + 0.5), 7))
        assert kernel.name == "scaled" and scaled[(0, 1)](x, out, 70, 0.5, True, None, BLOCK=32, DTYPE=tl.float32) is kernel
    # Another default, another type, another alignment, a flag that is a number: not what was launched.
    scaled[grid](x, out, 70, 0.5, True, None, BLOCK=32, DTYPE=tl.float32, KIND="twice")
    np.testing.assert_allclose(out, -(x * 0.5 + 0.5) * 2)
    scaled[grid](x.astype("i4"), out, 70, 0.5, True, None, BLOCK=32, DTYPE=tl.float32)
    np.testing.assert_allclose(out, -(x * 0.5 + 0.5))
    scaled[grid](x[1:], out, 69, 0.5, False, None, BLOCK=32, DTYPE=tl.float32)
    np.testing.assert_allclose(out[:69], x[1:] * 0.5 + 0.5)
    calls = []
    scaled.add_pre_run_hook(lambda *a, **k: calls.append(k))
    scaled[grid](x, out, 70, 0.5, True, None, BLOCK=32, DTYPE=tl.float32)
    scaled._hooks.clear()
    assert len(calls) == 1


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + i, tl.load(x + i) * 2)
    else:
        tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def test_heuristics():
    for n in (64, 50):
        x, out = np.arange(64.0), np.zeros(64)
        kernel = doubled[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, BLOCK=32)
        np.testing.assert_array_equal(out, np.where(np.arange(64) < n, x * 2, 0))
        assert kernel.package


@triton.autotune([triton.Config({"M": 16, "N": 16, "K": 16}), triton.Config({"M": 32, "N": 32, "K": 16}, num_warps=8)], key=["m", "n", "k"], reset_to_zero=["c"], cache_results=True)
@triton.jit
def added_product(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for at in range(0, k, K):
        p = at + tl.arange(0, K)
        left = tl.load(a + i[:, None] * k + p[None, :], mask=(i[:, None] < m) & (p[None, :] < k), other=0.0)
        right = tl.load(b + p[:, None] * n + j[None, :], mask=(p[:, None] < k) & (j[None, :] < n), other=0.0)
        total = tl.dot(left, right, total)
    tl.atomic_add(c + i[:, None] * n + j[None, :], total, mask=(i[:, None] < m) & (j[None, :] < n))


def test_autotune_measures_and_keeps_what_it_found(monkeypatch):
    a, b, c = np.random.rand(70, 50).astype("f4"), np.random.rand(50, 90).astype("f4"), np.zeros((70, 90), "f4")
    grid = lambda meta: (triton.cdiv(70, meta["M"]), triton.cdiv(90, meta["N"]))  # noqa: E731
    added_product[grid](a, b, c, 70, 90, 50)
    # Measuring ran it many times; the tensor was put back.
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)
    best = added_product.best_config
    assert best.kwargs["M"] in (16, 32) and len(added_product.configs_timings) == 2
    added_product.cache.clear()
    monkeypatch.setattr(added_product, "do_bench", lambda *a, **k: pytest.fail("measured again"))
    added_product[grid](a, b, c, 70, 90, 50)
    np.testing.assert_allclose(c, 2 * (a @ b), rtol=1e-4)
    assert added_product.best_config is best


def test_tuning_is_shipped_to_other_processes(tmp_path, monkeypatch):
    a, b, c = np.random.rand(33, 50).astype("f4"), np.random.rand(50, 90).astype("f4"), np.zeros((33, 90), "f4")
    grid = lambda meta: (triton.cdiv(33, meta["M"]), triton.cdiv(90, meta["N"]))  # noqa: E731
    monkeypatch.setattr(added_product, "found", {})
    monkeypatch.setattr(triton._tuning, "_tuners", [added_product])
    monkeypatch.setattr(triton._tuning, "_shipped", {})
    added_product[grid](a, b, c, 33, 90, 50)
    best, path = added_product.best_config, tmp_path / "tuned.json"
    assert triton.export_tuning(path) == 1
    row = json.loads(path.read_text())["results"][0]
    assert row["kernel"] == "added_product" and row["config"] == str(best) and set(row["ms"]) == {str(c) for c in added_product.configs}
    # Another process knows nothing yet; the slower config is named, so that it is seen to come from the file.
    other = next(c for c in added_product.configs if c is not best)
    path.write_text(path.read_text().replace(f'"config": "{best}"', f'"config": "{other}"'))
    added_product.cache.clear()
    added_product.found.clear()
    monkeypatch.setattr(added_product, "do_bench", lambda *a, **k: pytest.fail("measured again"))
    assert triton.use_tuning(path) == 1
    c[:] = 0
    added_product[grid](a, b, c, 33, 90, 50)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)
    assert added_product.best_config is other
    # What was read is written as well, with what was measured elsewhere; a row of another machine is left alone.
    path.write_text(path.read_text().replace('"results": [', '"results": [' + json.dumps({**row, "device": "cuda Other"}) + ","))
    assert triton.export_tuning(path) == 2
    assert {r["device"]: r["config"] for r in json.loads(path.read_text())["results"]} == {row["device"]: str(other), "cuda Other": str(best)}
    assert all(r["ms"] == row["ms"] for r in json.loads(path.read_text())["results"])


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"neso_tuning": 1, "results": [{}]}', '{"neso_tuning": 1, "results": 3}', '{"neso_tuning": 99, "results": []}'])
def test_files_that_hold_no_tuning_are_refused(text, tmp_path):
    (tmp_path / "bad").write_text(text)
    for call in (triton.use_tuning, triton.export_tuning):
        with pytest.raises(neso.InputError, match="tuning") as e:
            call(tmp_path / "bad")
        assert e.value.code in ("E0694", "E0696")
    assert (tmp_path / "bad").read_text() == text


@triton.jit
def copied(source, out, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.program_id(0) * M, tl.program_id(1) * N
    out.store([i, j], source.load([i, j]) + 1)


def test_descriptors_made_on_the_host():
    x, out = np.random.rand(20, 32)[:, :30], np.zeros((20, 32))
    descriptor = triton.tools.TensorDescriptor
    copied[(2, 2)](descriptor(x, [20, 30], [32, 1], [16, 16]), descriptor(out, [20, 30], [32, 1], [16, 16]), M=16, N=16)
    np.testing.assert_array_equal(out[:, :30], x + 1)
    assert (out[:, 30:] == 0).all()
    with pytest.raises(ValueError, match="make it in the kernel"):
        descriptor(x, [20, 30], [32, 1], [16, 16], padding="nan")


@triton.jit
def weighted(parts, lengths, pair, out, N: tl.constexpr):
    i = tl.arange(0, N)
    total = tl.zeros([N], tl.float32) + pair[1]
    for k in tl.static_range(len(parts)):
        total += tl.load(parts[k] + i, mask=i < lengths[k], other=0) * pair[0][k]
    tl.store(out + i, total)


def test_tuples_of_tensors_and_numbers():
    def expected(parts, lengths, weights, shift):
        return sum(np.where(np.arange(64) < n, p, 0).astype("f4") * w for p, n, w in zip(parts, lengths, weights)) + np.float32(shift)

    x, y, z = np.random.rand(64).astype("f4"), np.random.rand(64), np.arange(64)
    # Other parts, another kernel; of the same types, the one that is there.
    for parts, lengths, weights, shift in (((x, y, z), (64, 1, 17), (1, 2, 3), 0.5), ((x, y, z), (3, 64, 0), (3.0, 2, 1 << 40), 1), ((y,), (64,), (True,), -1.0),
                                           ((z, x[::-1].copy()), (5, 6), (7, 8), 0.25)):
        out = np.zeros(64, "f4")
        weighted[(1,)](parts, lengths, (weights, shift), out, 64)
        np.testing.assert_allclose(out, expected(parts, lengths, weights, shift), rtol=1e-5, atol=1e-6)
    with pytest.raises(neso.Error, match="'lengths' is a tuple with a str in it"):
        weighted[(1,)]((x,), ("1",), ((1,), 0.5), out, 64)
    with pytest.raises(neso.InputError, match="lies in the host's memory"):
        weighted[(1,)]((Far(),), (1,), ((1,), 0.5), out, 64)


class Pair(NamedTuple):
    first: tl.tensor
    second: tl.tensor
    scale: int = 3


@triton.jit
def swapped(pair):
    return Pair(pair.second, pair.first, scale=pair.scale + 1)


@triton.jit
def paired(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    pair = Pair(tl.load(x + i), tl.load(y + i))
    for _ in tl.static_range(3):
        pair = swapped(pair)
    tl.store(out + i, pair.first * pair.scale - pair.second)


def test_named_tuples_inside_of_kernels():
    x, y, out = np.random.rand(32).astype("f4"), np.random.rand(32).astype("f4"), np.zeros(32, "f4")
    paired[(1,)](x, y, out, 32)
    np.testing.assert_allclose(out, y * 6 - x, rtol=1e-5)


@triton.jit
def two_times(x):
    return x * 2


@triton.jit
def optional(parts, pair, out, N: tl.constexpr):
    i = tl.arange(0, N)
    total = tl.zeros([N], tl.float32)
    for k in tl.static_range(len(parts)):
        if parts[k] is not None:
            total += tl.load(parts[k] + i)
    if pair.second is None:
        total += pair.first
    else:
        total = pair.second(total) + tl.load(pair.first + i)
    tl.store(out + i, total * pair.scale)


def test_tuples_hold_what_is_known_and_have_names():
    x, y, out = np.random.rand(32).astype("f4"), np.random.rand(32).astype("f4"), np.zeros(32, "f4")
    for parts in ((x, None, y), (None, x), (None, None)):
        there = sum((p for p in parts if p is not None), np.zeros(32, "f4"))
        optional[(1,)](parts, Pair(0.5, None), out, 32)
        np.testing.assert_allclose(out, (there + 0.5) * 3, rtol=1e-5)
        optional[(1,)](parts, Pair(y, two_times, tl.constexpr(2)), out, 32)
        np.testing.assert_allclose(out, (there * 2 + y) * 2, rtol=1e-5)
    # Another function is another kernel.
    optional[(1,)]((x,), Pair(y, combined_of(x), 1), out, 32)
    np.testing.assert_allclose(out, x * 5 + y, rtol=1e-5)


def combined_of(_):
    @triton.jit
    def two_times(x):
        return x * 5
    return two_times


class Level(IntEnum):
    LOW = 2


HELPERS = """
import neso.triton as triton
import neso.triton.language as tl
FACTOR = tl.constexpr(FACTOR_VALUE)

def unwrapped(n):
    return n.value if isinstance(n, tl.constexpr) else n

@tl.constexpr
def twice(n):
    return unwrapped(n) * 2

@triton.jit
def scaled(x):
    return x * FACTOR
"""


def _helpers(name, factor, folder):
    path = folder / f"{name}.py"
    path.write_text(HELPERS.replace("FACTOR_VALUE", str(factor)))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Part:
    """A part of an array, as programs hand it to Triton: an address and a dtype."""

    def __init__(self, array, at):
        self.dtype, self._address = array.dtype, array.ctypes.data + at * array.itemsize

    def data_ptr(self):
        return self._address


LIMITS = np.finfo("f4")


@triton.jit
def limited(x: np.ndarray, out: np.ndarray, n: int, N: tl.constexpr, LOW: tl.constexpr = LIMITS.tiny, HIGH=LIMITS.bits // 4) -> None:
    i = tl.arange(0, N)
    tl.store(out + i, tl.clamp(tl.load(x + i), LOW, HIGH) + n)


def test_defaults_are_what_python_computed_and_annotations_are_for_people():
    x, out = np.linspace(-20, 20, 32, dtype="f4"), np.zeros(32, "f4")
    limited[(1,)](x, out, 2, 32)
    np.testing.assert_allclose(out, np.clip(x, 0, 8) + 2)


def test_modules_have_names_of_their_own(tmp_path):
    threes, fives = _helpers("threes", 3, tmp_path), _helpers("fives", 5, tmp_path)
    scaled = fives.scaled
    (FACTOR, both) = (tl.constexpr(100), tl.constexpr((threes.scaled, scaled)))

    @triton.jit
    def kernel(x, out, N: tl.constexpr, LEVEL: tl.constexpr):
        i = tl.arange(0, N)
        threes_scaled = tl.load(x + i)
        v = threes.scaled(threes_scaled) + scaled(threes_scaled) + FACTOR + both[0](threes_scaled)
        tl.store(out + i, v + threes.twice(LEVEL) + fives.FACTOR)

    x, out = np.random.rand(32).astype("f4"), np.zeros(32, "f4")
    kernel[(1,)](Part(x, 16), Part(out, 16), 16, Level.LOW)
    np.testing.assert_allclose(out[16:], x[16:] * 11 + 109, rtol=1e-5)
    assert (out[:16] == 0).all()
    assert kernel.src.startswith("def kernel(") and kernel.__globals__ is globals()
    # By what a kernel is and uses.
    assert threes.scaled.cache_key == _helpers("threes", 3, tmp_path).scaled.cache_key != fives.scaled.cache_key


def test_parts_of_torch_that_look_for_triton():
    pytest.importorskip("torch")
    program = ("import neso.triton; neso.triton.provide(); import torch, torch._dynamo, torch._inductor.runtime.triton_compat, triton.language.core as core\n"
               "from triton.language.standard import zeros_like; from triton.runtime.errors import OutOfResources\n"
               "import importlib.util; assert all(importlib.util.find_spec('triton.' + n) for n in ('backends', 'profiler', 'language.extra.libdevice'))\n"
               "spec = importlib.util.find_spec('triton.language.extra.libdevice'); module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module); module.rsqrt\n"
               "print(torch.compiler.disable(lambda x: x + 1)(1), core._unwrap_if_constexpr(core.constexpr(3) * 2))")
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "2 6\n", run.stderr


@triton.jit
def mistaken(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.no_such_function(i), mask=i < n)


def test_failures_say_where():
    x = np.zeros(8, "f4")
    line = mistaken.src and next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "no_such_function(i)" in text)
    with pytest.raises(neso.CompileError, match=rf"test_triton_alone\.py:{line}.*\n?.*no_such_function"):
        mistaken[(1,)](x, 8, BLOCK=8)
    with pytest.raises(TypeError, match="misses the argument 'n'"):
        mistaken[(1,)](x, BLOCK=8)
    with pytest.raises(TypeError, match="has no argument 'block'"):
        mistaken[(1,)](x, 8, block=8)
    with pytest.raises(RuntimeError, match="launch it as"):
        mistaken(x, 8, 8)
    with pytest.raises(neso.InputError, match="'x' is str"):
        mistaken[(1,)]("x", 8, BLOCK=8)
    for scalar in (np.int64(8), np.float32(8), np.bool_(True)):
        with pytest.raises(neso.InputError, match="pass a Python number"):
            combine[(1,)](x, x, x, scalar, BLOCK=8)
    for grid in ((-1,), (1, 1, 1, 1), ()):
        for _ in range(2):
            with pytest.raises(neso.Error, match="grid"):
                combine[grid](x, x, x, 8, BLOCK=8)
    with pytest.raises(RuntimeError, match="has a meaning in kernels alone"):
        tl.arange(0, 4)


class Far:
    """A tensor on a GPU, as far as launches ask before they compile."""
    dtype, data_ptr = np.dtype("f4"), lambda self: 64

    def __init__(self, kind="cuda", index=0):
        self.device = type("Device", (), {"type": kind, "__str__": lambda self: f"{kind}:{index}"})()


def test_memory_that_is_not_to_be_written(tmp_path):
    """A mapped file's would end the process."""
    x, out = np.arange(8, dtype="f4"), np.zeros(8, "f4")
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for _ in range(3):
        combine[(1,)](mapped, mapped, out, 8, BLOCK=8)
        with pytest.raises(neso.InputError, match="argument 'out' is read-only, and the kernel writes to it; pass a copy"):
            combine[(1,)](x, x, mapped, 8, BLOCK=8)
        combine[(1,)](x, x, out, 8, BLOCK=8)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), x)


def test_grids_are_whole_numbers():
    x, out = np.arange(8, dtype="f4"), np.zeros(8, "f4")
    for _ in range(2):
        for grid in ((8 / 5,), 1.0, lambda meta: (2, 0.5)):
            with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
                combine[grid](x, x, out, 8, BLOCK=8)
        combine[(np.int64(1),)](x, x, out, 8, BLOCK=8)


def test_a_function_in_place_of_its_name_is_told():
    x = np.full(8, -1.0, "f4")
    with pytest.warns(UserWarning, match="the function negative is compared with the text 'negative', which it never equals"):
        by_name[(1,)](x, ACTIVATION=negative)
    np.testing.assert_array_equal(x, np.full(8, -1.0, "f4"))
    by_name[(1,)](x, ACTIVATION="negative")
    np.testing.assert_array_equal(x, np.ones(8, "f4"))


def test_tensors_of_two_places_are_refused():
    x = np.zeros(8, "f4")
    with pytest.raises(neso.InputError, match="argument 0 lies in the host's memory, others on cuda:0"):
        combine[(1,)](x, Far(), Far(), 8, BLOCK=8)
    with pytest.raises(neso.InputError, match="on cuda:0 and on cuda:1"):
        combine[(1,)](Far(), Far(), Far(index=1), 8, BLOCK=8)
    far = Far("xpu")
    far.shape, far.strides, far.itemsize = (32, 32), (128, 4), 4
    with pytest.raises(neso.InputError, match="an argument lies on xpu:0"):
        descriptor = triton.tools.TensorDescriptor.from_tensor(far, [16, 16])
        copied[(2, 2)](descriptor, descriptor, M=16, N=16)


PROGRAM = """
import numpy
import neso.triton
neso.triton.provide()
import triton
import triton.language as tl
import triton.profiler as proton
from triton.language.extra import libdevice
from triton.tools.mxfp import MXFP4Tensor

for absent in (lambda: proton.start("name"), lambda: MXFP4Tensor(size=(2, 2))):
    try:
        absent()
    except RuntimeError as e:
        assert "not used here" in str(e)
    else:
        raise SystemExit("was not refused")

@triton.jit
def bent(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, libdevice.asin(tl.load(x + i, mask=i < n)), mask=i < n)

x, out = numpy.linspace(-1, 1, 100, dtype="f4"), numpy.zeros(100, "f4")
bent[(triton.cdiv(100, 64),)](x, out, 100, BLOCK=64)
numpy.testing.assert_allclose(out, numpy.arcsin(x), rtol=1e-5, atol=1e-6)
assert triton.testing.do_bench(lambda: bent[(2,)](x, out, 100, BLOCK=64), warmup=1, rep=2) > 0
import sys
assert "torch" not in sys.modules and triton.__name__ == "neso.triton"
print("done")
"""


def test_a_program_that_imports_triton_and_what_it_compiled_is_kept(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    run = lambda: subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True)  # noqa: E731
    first = run()
    assert first.stdout == "done\n", first.stderr
    entries = neso.cache.info()["entries"]
    assert run().stdout == "done\n" and neso.cache.info()["entries"] == entries


@triton.autotune([triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16})], key=["n"])
@triton.jit
def _shifted(x, out, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i + by, mask=i < n), mask=i < n)


@triton.jit
def _sums(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0)
    tl.store(out, tl.load(out) + total)


@pytest.mark.parametrize("dtype", ["f4", "f2", "i8"])
def test_interpreted_launches_watch_every_access(dtype):
    x, out = np.arange(40).astype(dtype), np.zeros(40, dtype)
    with triton.interpret():
        _shifted[lambda meta: (-(-20 // meta["BLOCK"]),)](x, out, 20, 3)
        assert (out[:20] == x[3:23]).all() and not out[20:].any()
        # In place, in a part of an array with gaps.
        _shifted[(3,)](x[::2], x[::2], 20, 0)
        assert (x == np.arange(40)).all()
        with pytest.raises(neso.CompileError, match="E0410") as e:
            _shifted[(3,)](x, out, 20, 21)
        assert "test_triton_alone.py" in str(e.value)
        with pytest.raises(neso.Error, match="overlaps another tensor"):
            _shifted[(3,)](x[1:], x, 20, 0)
        total = np.zeros(1, dtype)
        _sums[(1,)](np.ones(8, dtype), total, 8, BLOCK=8)
        assert total[0] == 8
        # What several programs read and write at once is no sum.
        with pytest.raises(neso.CompileError, match="E0411"):
            _sums[(4,)](np.ones(32, dtype), total, 32, BLOCK=8)


@triton.jit
def _larger(x, y, out, NAN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.maximum(tl.load(x + i), tl.load(y + i), propagate_nan=NAN))


def test_whether_nan_counts_is_a_value_of_the_host():
    x, y, out = np.array([1, np.nan, 3, np.nan], "f4"), np.array([2, 2, np.nan, np.nan], "f4"), np.zeros(4, "f4")
    for how, expected in ((tl.PropagateNan.ALL, np.maximum(x, y)), (tl.PropagateNan.NONE, np.fmax(x, y))):
        _larger[(1,)](x, y, out, NAN=how, BLOCK=4)
        np.testing.assert_array_equal(out, expected)


@triton.jit
def _in_place(x, step, HOW: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    if HOW == "transposed":
        at = x + i[:, None] * N + i[None, :]
        tl.store(at, tl.trans(tl.load(at)))
    elif HOW == "turned":
        at = x + i
        tl.store(at, tl.gather(tl.load(at), N - 1 - i, 0))
    else:
        at = x + i * step
        tl.store(at, tl.load(at) + 1)


@pytest.mark.parametrize("how,n,expected", [("transposed", 32, lambda x: x[:1024].reshape(32, 32).T.reshape(-1)), ("turned", 1024, lambda x: x[:1024][::-1]),
                                            ("counted", 1024, lambda x: np.concatenate([x[:1] + 1, x[1:1024]]))])
def test_a_store_in_place_overwrites_nothing_that_was_loaded(how, n, expected):
    x = np.arange(2048, dtype="f4")
    want = expected(x.copy())
    _in_place[(1,)](x, 0, HOW=how, N=n)
    np.testing.assert_array_equal(x[:1024], want)


STRIDE = tl.constexpr(3)


@triton.jit
def twice(x):
    return x * 2


@triton.aggregate
class Base:
    """Fields alone: Triton makes the constructor."""
    a: tl.tensor
    n: tl.constexpr = 4

    @triton.jit
    def total(self, k):
        return self.a + self.n * k * STRIDE


@triton.language.core._aggregate
class Sums(
        Base):
    acc: tl.tensor
    ptr: tl.tensor

    def __init__(self, acc, ptr, a, n=tl.constexpr(half(8))):
        self.acc = acc
        self.ptr = ptr
        self.a = a
        self.n = n

    @staticmethod
    @triton.jit
    def create(ptr, WIDTH: tl.constexpr):
        return Sums(tl.zeros([WIDTH], tl.float32), ptr, tl.to_tensor(0))

    @triton.jit
    def step(self, i):
        WIDTH: tl.constexpr = self.acc.shape[0]
        v = tl.load(self.ptr + i * WIDTH + tl.arange(0, WIDTH))
        return tl.aggregate_replace(self, acc=self.acc + twice(v), a=self.a + 1)


@triton.jit
def add_up(x, out, n, W: tl.constexpr):
    s = Sums.create(x, W)
    for i in range(n):
        s = s.step(i)
    tl.store(out + tl.arange(0, W), s.acc)
    tl.store(out + W, s.total(2).to(tl.float32))
    b = Base(n, n=tl.constexpr(5))
    if n > 2:
        b = Base(n + 1, n=tl.constexpr(5))
    tl.store(out + W + 1, b.total(1).to(tl.float32))
    tl.store(out + W + 2, Base(n).total(1).to(tl.float32))


@pytest.mark.parametrize("n", [2, 4])
def test_aggregates(n):
    x, out = np.arange(64, dtype="f4"), np.zeros(19, "f4")
    add_up[(1,)](x, out, n, W=16)
    np.testing.assert_array_equal(out[:16], 2 * x[:16 * n].reshape(n, 16).sum(0))
    np.testing.assert_array_equal(out[16:], [n + 4 * 2 * 3, n + (n > 2) + 5 * 3, n + 4 * 3])


@triton.jit
def changed_in_place(out, n):
    b = Base(n)
    if n > 2:
        b.a = n + 1
    tl.store(out, b.a)


def test_fields_of_an_aggregate_are_set_by_its_constructor_alone():
    with pytest.raises(neso.CompileError, match="E1037") as e:
        changed_in_place[(1,)](np.zeros(1, "i4"), 5)
    assert f":{next(n for n, line in enumerate(open(__file__), 1) if line == '        b.a = n + 1' + chr(10))}:" in str(e.value)


@triton.jit
def cut(wide, narrow, halves, singles, codes, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(singles + i, tl.load(wide + i).to(tl.float32, fp_downcast_rounding="rtz"))
    tl.store(codes + i, tl.load(wide + i).to(tl.float8e5, fp_downcast_rounding="rtz").to(tl.uint8, bitcast=True))
    tl.store(codes + N + i, tl.load(narrow + i).to(tl.float8e5, fp_downcast_rounding="rtz").to(tl.uint8, bitcast=True))
    tl.store(codes + 2 * N + i, tl.load(halves + i).to(tl.float8e5, fp_downcast_rounding="rtz").to(tl.uint8, bitcast=True))


def toward_zero(x, to):
    near = x.astype(to)
    return np.where(np.abs(near.astype(x.dtype)) > np.abs(x), np.nextafter(near, to(0)), near)


def test_conversions_cut_where_asked():
    rng = np.random.default_rng(3)
    # Down to the least numbers of eight bits, and below.
    wide = rng.standard_normal(1024) * 2.0**rng.integers(-20, 12, 1024)
    narrow, halves, singles, codes = wide.astype("f4"), wide.astype("f2"), np.zeros(1024, "f4"), np.zeros(3 * 1024, "u1")
    cut[(1,)](wide, narrow, halves, singles, codes, N=1024)
    np.testing.assert_array_equal(singles, toward_zero(wide, np.float32))
    # A float8e5 is the upper half of an f16.
    np.testing.assert_array_equal(codes, np.concatenate([toward_zero(wide, np.float16), toward_zero(narrow, np.float16), halves]).view("u2") >> 8)


@triton.jit
def through_e4b15(codes, values, halves, out, singles, out_of_singles, product, N: tl.constexpr):
    i, j = tl.arange(0, 256), tl.arange(0, N)
    x = tl.load(codes + i).to(tl.float8e4b15, bitcast=True)
    tl.store(values + i, x.to(tl.float32))
    tl.store(values + 256 + i, x + x)
    tl.store(out + j, tl.load(halves + j).to(tl.float8e4b15).to(tl.uint8, bitcast=True))
    tl.store(out_of_singles + j, tl.load(singles + j).to(tl.float8e4b15).to(tl.uint8, bitcast=True))
    square = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    y = tl.load(codes + square).to(tl.float8e4b15, bitcast=True)
    tl.store(product + square, tl.dot(y, tl.full([16, 16], 0.5, tl.float8e4b15)))


def test_floats_of_eight_bits_with_bias_15():
    codes, values, product = np.arange(256).astype("u1"), np.zeros(512, "f4"), np.zeros((16, 16), "f4")
    halves = np.concatenate([np.arange(0x4000), np.arange(0x8000, 0xc000)]).astype("u2").view("f2")
    singles = np.nextafter(halves.astype("f4"), np.float32(np.inf))
    out, out_of_singles = np.zeros(len(halves), "u1"), np.zeros(len(halves), "u1")
    through_e4b15[(1,)](codes, values, halves, out, singles, out_of_singles, product, N=len(halves))
    exponent, fraction = codes >> 3 & 15, codes & 7
    want = np.where(codes & 128, -1, 1) * np.where(exponent, (8 + fraction) * 2.0**(exponent.astype(int) - 18), fraction * 2.0**-17)
    np.testing.assert_array_equal(values, np.concatenate([want, want * 2]))
    np.testing.assert_allclose(product, np.repeat(want.reshape(16, 16).sum(1, keepdims=True) / 2, 16, 1), rtol=1e-6)

    def nearest(bits):
        # Halves go away from zero, and 1.75 is the most.
        return bits >> 8 & 128 | (np.minimum(bits & 0x7fff, 0x3f00) * 2 + 128) >> 8
    np.testing.assert_array_equal(out, nearest(halves.view("u2").astype(int)))
    np.testing.assert_array_equal(out_of_singles, nearest(toward_zero(singles, np.float16).view("u2").astype(int)))


def test_tuners_derive_from_tritons():
    class Mine(triton.runtime.autotuner.Autotuner):
        def __init__(self, fn, arg_names, configs, key, reset_to_zero, restore_value, **others):
            super().__init__(fn, arg_names, configs, key, reset_to_zero, restore_value, **others)
            assert not self.user_defined_pre_hook and self.early_config_prune is not None

    tuned = Mine(combine, combine.arg_names, [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], ["n"], None, None, pre_hook=None, post_hook=None,
                 prune_configs_by={"early_config_prune": lambda configs, named, **_: configs[1:]}, warmup=1, rep=1, use_cuda_graph=False, do_bench=None, cache_results=False)
    x, out = np.ones(100, "f4"), np.zeros(100, "f4")
    tuned[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, x, out, 100)
    assert tuned.best_config.kwargs == {"BLOCK": 128} and (out == 68).all()


def test_the_source_of_a_generated_function_may_be_given():
    held, text = {}, "def generated(x, out, N: tl.constexpr):\n    i = tl.arange(0, N)\n    tl.store(out + i, twice(tl.load(x + i)) * SCALE)\n"
    exec(compile(text, "<generated>", "exec"), globals(), held)
    kernel = triton.jit(held["generated"])
    kernel.src = text
    x, out = np.arange(16, dtype="f4"), np.zeros(16, "f4")
    kernel[(1,)](x, out, N=16)
    assert kernel.src == text and (out == x * 6).all()


def test_names_are_those_of_the_front_end():
    known = set()
    for path in (ROOT / "compiler/frontend/triton").glob("*.cpp"):
        known |= set(re.findall(r'\{"tl\.((?:math\.)?\w+)",', path.read_text()))
    known |= set(re.findall(r"^def ([a-z]\w*)", (ROOT / "kernels/std.py").read_text(), re.M))
    plain = {n for n in known if "." not in n} - {"constexpr", "dtype", "_aggregate", "_unwrap_if_constexpr", "expect_zero", "sort_impl"}
    assert plain == set(tl.FUNCTIONS) and {n[5:] for n in known if n.startswith("math.")} - {"abs"} == set(tl.MATH) - {"abs"}


def test_autotune_measures_on_each_gpu(monkeypatch):
    """No GPU is needed to see which results are asked for: those of one device are not taken for another."""
    from neso.triton import _tuning

    class Kernel:
        arg_names, __name__ = ["x", "n"], "kernel"

        def run(self, *args, **kwargs):
            return None

    class Tensor:
        dtype = "fp32"

        def __init__(self, device):
            self.device = Device(*device.split(":"))

    class Device(NamedTuple):
        type: str
        index: str = ""

    chosen = []
    monkeypatch.setattr(_tuning, "JITFunction", Kernel)
    tuner = _tuning.Autotuner(Kernel(), Kernel.arg_names, [_tuning.Config({"B": 1}), _tuning.Config({"B": 2})], ["n"], None, None)
    monkeypatch.setattr(tuner, "_choose", lambda key, named, args, kwargs: (chosen.append(named["x"].device), tuner.configs[0])[1])
    for device in ("cuda:0", "cuda:1", "cuda:0", "cuda:1", "cpu", "cpu"):
        tuner.run(Tensor(device), 8)
    assert [":".join(d) for d in chosen] == ["cuda:0", "cuda:1", "cpu:"]

@triton.jit
def meet(arrived, out):
    """Each program waits until all have come."""
    p, n = tl.program_id(0), tl.num_programs(0)
    tl.store(out + p, 7 - p)
    tl.atomic_add(arrived, 1, sem="acq_rel")
    while tl.atomic_add(arrived, 0, sem="acquire") < n:
        pass
    tl.store(out + n + p, tl.load(out + (p + 1) % n, volatile=True))


def test_programs_that_wait_for_each_other():
    for n in (1, 19, 19, 40):
        arrived, out = np.zeros(1, np.int32), np.full(2 * n, -1, np.int32)
        meet[(n,)](arrived, out, launch_cooperative_grid=True)
        assert (out[n:] == np.roll(out[:n], -1)).all() and arrived[0] == n
