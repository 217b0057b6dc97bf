"""The inputs that a .pt2 was exported with (`neso run MODEL.pt2 --sample`), which lie there as a pickle that is read without Python; and what
`neso support` says of operators."""
import io
import json
import pickle
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch

import neso

PROGRAM = Path(neso.__file__).parent / "bin/neso"
GOLDENS = Path(__file__).resolve().parents[2] / "tests/goldens"


def program(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)


class Many(torch.nn.Module):
    def forward(self, x, rest, scale: float, count: int, flag: bool, nothing=None, *, named):
        y = x * scale + count
        return y + rest["a"][0].float().sum() + rest["b"][1].to(torch.float32).sum(), named["z"] - 1, rest["a"][1].mT * 2, rest["b"][0] == 3, torch.view_as_real(named["c"])


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("samples") / "m.pt2"
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    # A shared storage, strides, an offset, an expanded dimension, an empty tensor, dtypes of both kinds of pickles.
    args = (base[1:3, ::2], {"a": [base.half(), base.t()[2:]], "b": (torch.tensor([3, 200], dtype=torch.uint16), torch.ones(1, 5, dtype=torch.bfloat16).expand(4, 5))}, 1.5, 7, True, None)
    kwargs = {"named": {"z": torch.zeros(0, 3, dtype=torch.int64), "c": torch.tensor([1 + 2j, -3j])}}
    model = Many()
    torch.export.save(torch.export.export(model, args, kwargs), path)
    return path, model, args, kwargs


def test_sample_inputs_are_those_of_the_export(exported, tmp_path):
    path, model, args, kwargs = exported
    package, out = tmp_path / "m.neso", tmp_path / "out.safetensors"
    done = program("compile", path, "-o", package)
    assert done.returncode == 0, done.stderr
    for arguments in (("run", path, "--sample"), ("run", package, "--input", path)):
        done = program(*arguments, "-o", out)
        assert done.returncode == 0, done.stderr
        data = out.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        for i, want in enumerate(model(*args, **kwargs)):
            row = header[str(i)]
            part = data[8 + size:][slice(*row["data_offsets"])]
            got = torch.frombuffer(bytearray(part), dtype=want.dtype).reshape(row["shape"]) if part else torch.empty(row["shape"], dtype=want.dtype)
            torch.testing.assert_close(got, want)
    assert program("verify", path, package, "--input", path).returncode == 0
    assert program("compile", path, "-o", package, "--samples").returncode == 0
    again = tmp_path / "again.safetensors"
    done = program("run", package, "--sample", "-o", again)
    assert done.returncode == 0, done.stderr
    assert again.read_bytes() == out.read_bytes()
    done = program("run", package, "--input", GOLDENS / "weights/mlp.pt2")
    assert done.returncode == 1 and "error[E0814]" in done.stderr and "there are 1, but the model takes" in done.stderr, done.stderr


def with_samples(path, out, data):
    """The file with other bytes in place of its sample inputs; None: without any."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            given = old.read(name)
            if name.endswith("/sample_inputs/model.pt"):
                if data is None:
                    continue
                given = data
            new.writestr(name, given)
    return out


def saved(pickled, **members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled)
        for name, data in members.items():
            archive.writestr(f"archive/{name.replace('_', '/')}", data)
    return out.getvalue()


def tensor(offset, sizes, strides):
    """A pickle of ((a tensor,), {}) over the storage "0" of floats."""
    integer = lambda v: b"J" + v.to_bytes(4, "little", signed=True)  # noqa: E731
    many = lambda values: b"(" + b"".join(map(integer, values)) + b"t"  # noqa: E731
    return (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x0ctQ"
            + integer(offset) + many(sizes) + many(strides) + b"\x89NtR\x85}\x86.")


FLOATS = bytes(12 * 4)
WRONG = {
    "nothing": (None, "saved without any"),
    "no archive": (b"x" * 40, ""),
    "no pickle": (saved(b""), "gives no sample inputs"),
    "cut": (saved(tensor(0, [3, 4], [4, 1])[:-9], data_0=FLOATS), "gives no sample inputs"),
    "too large": (saved(tensor(0, [3, 5], [5, 1]), data_0=FLOATS), "larger than its memory"),
    "behind the end": (saved(tensor(11, [2], [1]), data_0=FLOATS), "larger than its memory"),
    "before the start": (saved(tensor(-1, [2], [1]), data_0=FLOATS), "without its memory"),
    "negative strides": (saved(tensor(4, [3], [-1]), data_0=FLOATS), "larger than its memory"),
    "huge": (saved(tensor(0, [2**31 - 1] * 3, [0] * 3), data_0=FLOATS), ""),
    "much of little": (saved(tensor(0, [2**31 - 1, 2**20], [0, 0]), data_0=FLOATS), "a tensor"),
    "no memory": (saved(tensor(0, [3, 4], [4, 1])), "without its memory"),
    "takes from nothing": (saved(b"\x80\x02tRRR\x86."), "takes more than it has"),
    "unknown name": (saved(b"\x80\x02h\x05."), "names what it does not have"),
    "an object": (saved(pickle.dumps(((complex(1, 2),), {}), 2)), "which only PyTorch can make"),
    "a call": (saved(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R\x85}\x86."), "an argument is a 'os.system'"),
    "newer codes": (saved(pickle.dumps(((1,), {}), 4)), "its pickle has code 0x"),
    "too many": (saved(pickle.dumps(((1, 2), {}), 2)), "there are 2, but the model takes 1"),
    "itself": (saved(b"\x80\x02]q\x00h\x00a."), "nested too deeply"),
    "deep": (saved(b"\x80\x02N" + b"\x85" * 300000 + b"."), "nested too deeply"),
    "doubling": (saved(b"\x80\x02)" + b"q\x00h\x00\x86" * 90 + b"."), "nested too deeply"),
}


@pytest.mark.parametrize("what", WRONG)
def test_sample_inputs_that_are_wrong_are_refused(what, tmp_path):
    data, text = WRONG[what]
    model = GOLDENS / "weights/mlp.pt2"
    done = program("run", with_samples(model, tmp_path / "m.pt2", data), "--sample")
    assert done.returncode == 1 and "error[E" in done.stderr and text in done.stderr, (done.returncode, done.stderr)


def targets_of(path):
    """The operators that a .pt2 calls, those of its inner graphs too."""
    def walk(value):
        if isinstance(value, dict):
            if isinstance(value.get("target"), str) and "inputs" in value:
                yield value["target"]
            for v in value.values():
                yield from walk(v)
        elif isinstance(value, list):
            for v in value:
                yield from walk(v)
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if n.partition("/")[2].startswith("models/"))
        return {t.removeprefix("torch.ops.") for t in walk(json.loads(archive.read(name)))}


def test_support_knows_the_operators_of_the_goldens():
    rows = {r["operator"]: r for r in json.loads(program("support", "--json").stdout)["operators"]}
    called = set().union(*(targets_of(p) for p in (GOLDENS / "ops").rglob("*.pt2")))
    known = called & set(rows)
    assert len(known) > 300
    assert not [t for t in known if not rows[t]["supported"]]
    assert all(rows[r["by"]]["supported"] for r in rows.values() if r["by"])


def test_python_puts_samples_into_packages_and_strips_folders(tmp_path):
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval(), torch.randn(2, 4)
    package = neso.compile(model, (x,), samples=True, strip=True)
    package.save(tmp_path / "m.neso")
    done = program("run", tmp_path / "m.neso", "--sample", "-o", tmp_path / "out.npy")
    assert done.returncode == 0, done.stderr
    import numpy
    torch.testing.assert_close(torch.from_numpy(numpy.load(tmp_path / "out.npy")), model(x))
    row, = package.models
    assert row["device"] == "cpu" and row["targets"] and row["seconds"] > 0 and all(step["ms"] >= 0 for step in row["steps"])
    assert neso.compile(model, (x,)).load()(x).shape == (2, 3)
    folder = str(Path(torch.__file__).parent).encode()
    assert folder not in package.data and folder in neso.compile(model, (x,)).data
