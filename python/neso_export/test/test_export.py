"""What neso_export writes, read back from the files. Needs torch and Triton; skipped without them."""
import json
import sys
import zipfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import neso_export  # noqa: E402

SCALE = tl.constexpr(2.0)


@triton.jit
def twice(x):
    return x * SCALE


@triton.jit
def plain(x_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, alpha * twice(tl.load(x_ptr + i, mask=i < n)), mask=i < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 16}, num_warps=2), triton.Config({"BLOCK": 64})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@torch.library.triton_op("neso_export_test::scale", mutates_args={})
def scale(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(plain)[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), 1.5, BLOCK=32)
    return out


def module(function):
    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x)
    return Model()


def launch_plain(x):
    out = torch.empty_like(x)
    plain[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), 0.5, BLOCK=32)
    return out


def launch_tuned(x):
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


def bundle(path):
    with zipfile.ZipFile(path) as z:
        files = {n.split("neso_kernels/")[1]: z.read(n).decode() for n in z.namelist() if "/extra/neso_kernels/" in n}
        model = json.loads(next(z.read(n) for n in z.namelist() if n.endswith("models/model.json")))
    return json.loads(files["launches.json"]), files, model["graph_module"]["graph"]["nodes"]


DYNAMIC = {"x": {0: torch.export.Dim("rows", max=1000)}}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("function", [launch_plain, scale])
def test_values_and_grid(tmp_path, function, strict):
    neso_export.save(module(function), (torch.randn(4, 8),), tmp_path / "m.pt2", dynamic_shapes=DYNAMIC, strict=strict)
    rows, files, nodes = bundle(tmp_path / "m.pt2")
    (row,) = rows
    assert row["parameters"] == ["x_ptr", "out_ptr", "n", "alpha", "BLOCK"]
    assert row["signature"] == ["*fp32", "*fp32", "i32", "fp32", "constexpr"]
    assert row["values"] == {"x_ptr": "input", "out_ptr": "input", "n": "input", "alpha": "1.5" if function is scale else "0.5", "BLOCK": "32"}
    assert "//32" in row["grid"][0] and row["grid"][1:] == ["1", "1"]
    (node,) = [n for n in nodes if n["target"].endswith("triton_kernel_wrapper_functional")]
    assert {i["name"]: i["arg"] for i in node["inputs"]}["name"] == {"as_string": row["name"]}
    source = files[row["file"]]
    assert "SCALE = tl.constexpr(2.0)" in source and source.index("def twice") < source.index("def plain")
    compile(source, row["file"], "exec")


def test_autotune_and_heuristics(tmp_path):
    neso_export.save(module(launch_tuned), (torch.randn(6, 8),), tmp_path / "m.pt2")
    rows, _, _ = bundle(tmp_path / "m.pt2")
    assert [c["kwargs"] for c in rows[0]["configs"]] == [{"BLOCK": "16", "EVEN": "True"}, {"BLOCK": "64", "EVEN": "False"}]
    assert [c["grid"] for c in rows[0]["configs"]] == [["3", "1", "1"], ["1", "1", "1"]]
    assert [c["num_warps"] for c in rows[0]["configs"]] == [2, 4] and rows[0]["key"] == ["n"]
    assert eval(rows[0]["heuristics"]["EVEN"])({"n": 32, "BLOCK": 16})


@triton.jit
def warps_of(out_ptr, num_warps: tl.constexpr):
    tl.store(out_ptr, num_warps)


def launch_warps(x):
    out = torch.empty_like(x)
    warps_of[(1,)](out, num_warps=8)
    return out


def test_a_parameter_that_is_called_like_an_option_is_both(tmp_path):
    neso_export.save(module(launch_warps), (torch.randn(1),), tmp_path / "m.pt2", strict=False)
    rows, _, _ = bundle(tmp_path / "m.pt2")
    assert rows[0]["values"]["num_warps"] == "8" and rows[0]["num_warps"] == 8


def test_folder(tmp_path):
    neso_export.save(module(launch_plain), (torch.randn(4, 8),), tmp_path / "m.pt2", kernels=str(tmp_path / "k"))
    (row,) = json.loads((tmp_path / "k/launches.json").read_text())
    assert row["values"]["n"] == "32" and (tmp_path / "k" / row["file"]).exists()


def test_tuples_hold_tensors_and_numbers():
    def function(x):
        out = torch.empty_like(x)
        plain[(1,)]((x, "a word"), out, 16, 1.0, BLOCK=16)
        return out
    with pytest.raises(neso_export.NesoExportError, match="the tuple '.*' has a str beside tensors"):
        neso_export.export(module(function), (torch.randn(16),))


def test_hooks_are_refused():
    hooked = triton.autotune(configs=[triton.Config({"BLOCK": 16}, pre_hook=lambda args: None)], key=[])(plain)

    def function(x):
        out = torch.empty_like(x)
        hooked[(1,)](x, out, 16, 1.0)
        return out
    with pytest.raises(neso_export.NesoExportError, match="hook"):
        neso_export.export(module(function), (torch.randn(16),))


def test_plain_helper_is_refused():
    assert_helper = triton.jit(_uses_plain)

    def function(x):
        assert_helper[(1,)](x)
        return x + 1
    with pytest.raises(RuntimeError, match="plain_python"):
        neso_export.save(module(function), (torch.randn(16),), "/dev/null")


def plain_python(x):
    return x


def _uses_plain(x_ptr):
    tl.store(x_ptr, plain_python(1.0))


def home_made(**options):
    return lambda kernel: kernel


row = {"not": "for a bundle"}  # the kernel below has a variable of this name


@home_made(cache=row)
@triton.jit
def decorated(x_ptr, out_ptr, COLS: tl.constexpr):
    row = tl.program_id(0) * COLS + tl.arange(0, COLS)
    tl.store(out_ptr + row, tl.load(x_ptr + row))


def test_decorators_and_local_names_stay_behind(tmp_path):
    def function(x):
        out = torch.empty_like(x)
        decorated[(x.shape[0],)](x, out, COLS=8)
        return out
    neso_export.save(module(function), (torch.randn(4, 8),), tmp_path / "m.pt2")
    rows, files, _ = bundle(tmp_path / "m.pt2")
    assert "home_made" not in files[rows[0]["file"]] and "for a bundle" not in files[rows[0]["file"]]


def test_each_program_keeps_its_own_launches(tmp_path):
    """Torch empties its table of constants in between, and uses its numbers again."""
    programs = [neso_export.export(module(f), (torch.randn(4, 8),), strict=True) for f in (launch_plain, scale, launch_plain)]
    for program, alpha in zip(programs, ("0.5", "1.5", "0.5")):
        neso_export.write(program, tmp_path / "m.pt2")
        ((row,), _, _) = bundle(tmp_path / "m.pt2")
        assert row["values"]["alpha"] == alpha
