"""What goes wrong around a model: an exception with its code and cure, nothing lost, nothing left behind, and the process goes on."""
import io
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
import time
import zipfile
import zlib
from pathlib import Path

import pytest
import torch

import neso
from neso import _program

FOLDER = Path(neso.__file__).parent.parent


class Scale(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 3


@pytest.fixture(scope="module")
def package():
    return neso.compile(Scale(), (torch.randn(4, 6),))


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.pt2"
    torch.export.save(torch.export.export(Scale(), (torch.randn(4, 6),)), path)
    return path


def still_works(model):
    x = torch.randn(4, 6)
    torch.testing.assert_close(model(x), torch.relu(x) * 3)


def python(text, **settings):
    """A process of its own that runs the text."""
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": str(FOLDER)}, **settings)


# ---- Tensors that do not fit

def test_tensors_that_want_gradients(package):
    ours = package.load()
    x = torch.randn(4, 6, requires_grad=True)
    with pytest.raises(neso.InputError, match="detach|no_grad"):
        ours(x)
    # What is computed of it, likewise.
    with pytest.raises(neso.InputError, match="gradient"):
        ours(x * 2)
    with torch.inference_mode():
        torch.testing.assert_close(ours(x), torch.relu(x) * 3)
    still_works(ours)


def test_tensors_that_lie_elsewhere(package):
    ours = package.load()
    for x in (torch.empty(4, 6, device="meta"), torch.randn(4, 6).to_sparse()):
        with pytest.raises(neso.InputError, match=r"input 0 \('x'\) cannot be read: .*; pass a dense tensor on the host or on a CUDA device") as e:
            ours(x)
        assert e.value.code == "E0821"
    with pytest.raises(neso.InputError, match="the buffer for output 0 cannot be read"):
        ours(torch.randn(4, 6), out=torch.empty(4, 6, device="meta"))
    still_works(ours)


def test_memory_for_results_that_does_not_fit(package):
    ours = package.load()
    for out, text in ((torch.empty(4, 7), "dimension 1|shape|size"), (torch.empty(4, 6, dtype=torch.float64), "f64"), (torch.empty(4, 6, requires_grad=True), "gradient")):
        with pytest.raises(neso.InputError, match=text):
            ours(torch.randn(4, 6), out=out)
        still_works(ours)


def test_devices_that_are_not_there(package):
    with pytest.raises(neso.InputError, match="use cpu, cuda or cuda:N") as e:
        package.load(device="tpu")
    assert e.value.code == "E0808"
    # Loading says so, not the first call.
    with pytest.raises(neso.Error, match="no CUDA driver: /nowhere/libcuda.so.1.*install NVIDIA's driver") as e:
        package.load(device="cuda", cuda_driver="/nowhere/libcuda.so.1")
    assert e.value.code == "E0838"


# ---- Packages that do not fit

def test_packages_for_other_machines(model_file):
    gpu = neso.compile(model_file, target="cuda", arch="sm_90", ptxas="none")
    with pytest.raises(neso.Error, match="code for compute_90, none of it for the CPU of this machine") as e:
        gpu.load()
    assert e.value.code == "E0718" and 'device="cuda"' in e.value.hint
    with pytest.raises(neso.Error, match="no CUDA driver") as e:
        gpu.load(device="cuda", cuda_driver="/nowhere/libcuda.so.1")
    assert e.value.code == "E0838" and e.value.hint
    # What it is can be asked anywhere.
    looked = gpu.load(device=None)
    assert [t["arch"] for t in looked.info["targets"]] == ["compute_90"] and [str(v) for v in looked.inputs] == ["x: f32[4, 6]"]
    for copied in (looked, pickle.loads(pickle.dumps(looked))):
        with pytest.raises(neso.Error, match="loaded to be looked at") as e:
            copied(torch.randn(4, 6))
    assert e.value.code == "E0821"
    with pytest.raises(neso.Error, match="none of it is the architecture asked for") as e:
        neso.compile(model_file).load(arch="sm_90")
    assert e.value.code == "E0718" and "compile it for this machine" in e.value.hint


def of_a_newer_format(data):
    """The package with the next version of the format in its plan, and the sums that belong to it."""
    row = next(i for i in zipfile.ZipFile(io.BytesIO(data)).infolist() if i.filename.endswith("/plan"))
    name, extra = struct.unpack_from("<HH", data, row.header_offset + 26)
    begin = row.header_offset + 30 + name + extra
    plan = bytearray(data[begin:begin + row.file_size])
    # The first field of a flatbuffer's root table.
    root, = struct.unpack_from("<I", plan)
    fields = root - struct.unpack_from("<i", plan, root)[0]
    at = root + struct.unpack_from("<H", plan, fields + 4)[0]
    struct.pack_into("<H", plan, at, struct.unpack_from("<H", plan, at)[0] + 1)
    whole = data[:begin] + plan + data[begin + row.file_size:]
    return whole.replace(struct.pack("<I", row.CRC), struct.pack("<I", zlib.crc32(plan)))


def test_packages_of_another_version(package):
    with pytest.raises(neso.Error, match="this runtime reads up to") as e:
        neso.load(of_a_newer_format(package.data))
    assert e.value.code == "E0714" and "use a newer runtime" in e.value.hint
    still_works(package.load())


# ---- The compiler as a process that ends

def program(tmp_path, monkeypatch, text):
    """In place of the compiler, a shell script."""
    path = tmp_path / "neso"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    monkeypatch.setattr(_program, "path", lambda: str(path))


@pytest.mark.parametrize("signal_name", ["KILL", "SEGV", "ABRT"])
def test_a_compiler_that_is_killed(tmp_path, monkeypatch, model_file, signal_name):
    # A folder of its own: other programs leave their files in the common one meanwhile.
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    program(tmp_path, monkeypatch, f"kill -{signal_name} $$\n")
    monkeypatch.setenv("NESO_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(neso.CompileError, match=f"ended by SIG{signal_name}") as e:
        neso.compile(model_file, cached=True)
    assert "neso compile" in str(e.value)
    assert neso.cache.info()["entries"] == 0 and not list(temporary.iterdir())
    monkeypatch.undo()
    still_works(neso.compile(model_file).load())


def test_a_compiler_that_fails_inside_says_how_to_report_it(tmp_path, monkeypatch, model_file):
    program(tmp_path, monkeypatch, "echo 'something odd' >&2\nexit 3\n")
    with pytest.raises(neso.CompileError, match="something odd"):
        neso.compile(model_file)


def test_torch_compile_goes_on_when_the_compiler_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("NESO_CACHE_DIR", str(tmp_path / "cache"))
    program(tmp_path, monkeypatch, "kill -KILL $$\n")
    import neso.torch as ours
    torch._dynamo.reset()
    x = torch.randn(5, 7)
    with pytest.warns(UserWarning, match="SIGKILL"):
        got = torch.compile(lambda x: torch.softmax(torch.relu(x) * 2 + 1, -1), backend=ours.backend)(x)
    torch.testing.assert_close(got, torch.softmax(torch.relu(x) * 2 + 1, -1))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="SIGKILL"):
        torch.compile(lambda x: torch.softmax(torch.relu(x) * 2 + 1, -1), backend=ours.backend, options={"fallback": "error"})(x)
    torch._dynamo.reset()


def test_interrupts_end_the_compiler_and_nothing_else(tmp_path, model_file):
    """Ctrl-C while the compiler works: KeyboardInterrupt, no process and no file remains, and the next call compiles."""
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    slow.chmod(0o755)
    process = python(f"""
        import os, tempfile, neso
        from neso import _program
        tempfile.tempdir = {str(tmp_path / "temporary")!r}
        os.mkdir(tempfile.tempdir)
        real = _program.path
        _program.path = lambda: {str(slow)!r}
        try:
            neso.compile({str(model_file)!r}, cached=True)
        except KeyboardInterrupt:
            print("interrupted", os.listdir(tempfile.tempdir), neso.cache.info()["entries"])
        _program.path = real
        print(len(neso.compile({str(model_file)!r}).data) > 0)
    """, start_new_session=True)
    for _ in range(600):
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip():
            break
        time.sleep(0.1)
    compiler = int((tmp_path / "pid").read_text())
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    first, second = out.splitlines()
    assert first.startswith("interrupted []") and second == "True", out
    with pytest.raises(ProcessLookupError):
        os.kill(compiler, 0)


# ---- The cache

def test_many_processes_fill_the_cache_at_once(tmp_path, model_file):
    cache = tmp_path / "cache"
    text = f"""
        import neso, torch
        total = 0
        for i in range(4):
            package = neso.compile({str(model_file)!r}, cached=True, arch=("x86-64-v3", None)[i % 2])
            x = torch.arange(-12., 12.).reshape(4, 6)
            assert torch.equal(package.load()(x), torch.relu(x) * 3)
            total += package.cached
        print(total)
    """
    running = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "PYTHONPATH": str(FOLDER), "NESO_CACHE_DIR": str(cache)}) for _ in range(3)]
    for process in running:
        out, err = process.communicate(timeout=300)
        # Of four compilations at most two found nothing.
        assert process.returncode == 0 and int(out) >= 2, err
    assert len(list((cache / "packages").iterdir())) == 2


def test_incomplete_entries_are_not_used(tmp_path, monkeypatch, model_file):
    monkeypatch.setenv("NESO_CACHE_DIR", str(tmp_path))
    neso.compile(model_file, cached=True)
    entry, = (tmp_path / "packages").iterdir()
    whole = entry.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    for broken in (b"", whole[:-1], whole[:len(whole) // 2], bytes(changed)):
        entry.write_bytes(broken)
        again = neso.compile(model_file, cached=True)
        assert not again.cached and entry.read_bytes() == whole
        still_works(again.load())
    assert neso.compile(model_file, cached=True).cached
    # What a process left that was ended while it wrote is no entry.
    (tmp_path / "packages/.new-1").write_bytes(b"x")
    assert neso.cache.info()["entries"] == 1
    neso.cache.clear()
    assert not list((tmp_path / "packages").iterdir())


def small_disk(command):
    """The command in a namespace where $DISK is a disk of 64 kB; None where the machine grants none."""
    if not shutil.which("unshare"):
        return None
    text = 'mount -t tmpfs -o size=64k none "$DISK" && exec "$@"'
    return ["unshare", "--mount", *(["--user", "--map-root-user"] if os.getuid() else []), "sh", "-c", text, "sh", *command]


@pytest.mark.parametrize("what", ["cache", "temporary files"])
def test_a_full_disk(tmp_path, model_file, what):
    disk = tmp_path / "disk"
    disk.mkdir()
    text = textwrap.dedent(f"""
        import os, tempfile, neso, torch
        with open({str(disk)!r} + "/filler", "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(4096))
            except OSError:
                pass
        if {what == "cache"}:
            package = neso.compile({str(model_file)!r}, cached=True)
            x = torch.arange(-12., 12.).reshape(4, 6)
            assert torch.equal(package.load()(x), torch.relu(x) * 3)
            assert not package.cached and neso.cache.info()["entries"] == 0, os.listdir({str(disk)!r})
        else:
            tempfile.tempdir = {str(disk)!r}
            try:
                neso.compile({str(model_file)!r})
            except neso.CompileError as e:
                assert "No space left" in str(e) and e.code, e
            else:
                raise AssertionError
            os.unlink({str(disk)!r} + "/filler")
            neso.compile({str(model_file)!r})
        print("fine", sorted(os.listdir({str(disk)!r})))
    """)
    command = small_disk([sys.executable, "-c", text])
    probe = command and subprocess.run(small_disk(["true"]), env={**os.environ, "DISK": str(disk)}, capture_output=True)
    if not command or probe.returncode:
        pytest.skip("no namespace for a small disk")
    done = subprocess.run(command, env={**os.environ, "DISK": str(disk), "PYTHONPATH": str(FOLDER), "NESO_CACHE_DIR": str(disk / "cache")}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.startswith("fine"), done.stderr[-2000:]
