"""Models to packages: `neso.compile`."""

import hashlib
import json
import os
import tempfile
import zipfile
from pathlib import Path

from . import _program, cache
from ._errors import InputError
from ._files import write as _write
from ._progress import Teller


class Package:
    """What the compiler wrote. `data`: its bytes; `seconds`: what compiling took; `warnings`; `report_html` where a report was asked for;
    `models`: what `neso compile --json` says of each model in it ("device", "targets", "seconds", and "steps", each with its "ms"), nothing
    where it comes from the cache."""

    def __init__(self, data, seconds=0.0, warnings=(), report_html=None, cached=False, models=()):
        self._data, self.seconds, self.warnings, self.report_html, self.cached = data, seconds, tuple(warnings), report_html, cached
        self.models = tuple(models)

    @property
    def data(self):
        return self._data

    def save(self, path):
        """Writes the package; a file of that name is replaced in one step."""
        _write(path, self._data)

    def report(self, path):
        """Writes the page that shows kernels, fusion and memory."""
        if self.report_html is None:
            raise InputError("compile with report=True to get a report")
        _write(path, self.report_html)

    def load(self, **options):
        """The same as neso.load(package, …)."""
        from ._model import load
        return load(self, **options)

    def __repr__(self):
        return f"<neso.Package of {len(self._data)} bytes>"


class _Source:
    """Where the compiler reads the .pt2: a file of the user's, or memory with a name under /proc."""

    def __init__(self, model, args, kwargs, dynamic_shapes, strict):
        self.fd, self.names = None, []
        if isinstance(model, (str, os.PathLike)):
            self.path = os.fspath(model)
            return
        self.fd = os.memfd_create("neso-model", os.MFD_CLOEXEC)
        self.path = f"/proc/self/fd/{self.fd}"
        self.names = [(self.path, "the model")]
        try:
            with os.fdopen(os.dup(self.fd), "wb") as f:
                if isinstance(model, (bytes, bytearray, memoryview)):
                    f.write(model)
                else:
                    from ._export import save_program, to_program
                    save_program(to_program(model, args, kwargs, dynamic_shapes, strict), f)
        except BaseException:
            self.close()
            raise

    def read(self):
        with open(self.path, "rb") as f:
            return f.read()

    def digest(self):
        """A hash of what the file says: saving a program twice gives the same."""
        hasher = hashlib.sha256()
        try:
            with zipfile.ZipFile(self.path) as archive:
                for name in sorted(archive.namelist()):
                    inner = name.partition("/")[2]
                    # Drawn anew by each save.
                    if inner != ".data/serialization_id":
                        hasher.update(repr((inner, len(data := archive.read(name)))).encode())
                        hasher.update(data)
        except zipfile.BadZipFile:
            with open(self.path, "rb") as f:
                hasher.update(f.read())
        return hasher.hexdigest()

    def close(self):
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def _assembler():
    """ptxas of a package of this Python: NVIDIA's own, else the one that Triton brings. None: the program looks on the machine."""
    from importlib.util import find_spec
    nvidia, triton = find_spec("nvidia"), find_spec("triton")
    found = [p for place in (nvidia.submodule_search_locations if nvidia else ()) for p in sorted(Path(place).glob("cu*/bin/ptxas"), reverse=True)]
    found += [Path(place) / "backends/nvidia/bin/ptxas" for place in (triton.submodule_search_locations if triton else ())]
    return next((str(p) for p in found if os.access(p, os.X_OK)), None)


def gpu_arch(device):
    """What the program is asked for on a CUDA device: it knows which instructions of its own the chip has ("sm_90a" has wgmma, "sm_90" has not)."""
    import torch
    return "native:sm_%d%d" % torch.cuda.get_device_capability(device)


def _arguments(target, arch, options, kernels, threads, tuned, ptxas, format, strip=False, samples=False):
    targets = (target,) if isinstance(target, str) else tuple(target)
    out = ["--target", ",".join(targets)]
    if "cuda" in targets and (ptxas := ptxas if ptxas is not None else _assembler()) is not None:
        out += ["--ptxas", os.fspath(ptxas)]
    if format != "neso":
        out += ["--format", format]
    if arch is not None:
        out += ["--arch", arch if isinstance(arch, str) else ",".join(arch)]
    for name, value in (options or {}).items():
        out += ["--option", f"{name}={value}"]
    for path in kernels or ():
        out += ["--kernels", os.fspath(path)]
    if threads:
        out += ["--threads", threads]
    if tuned is not None:
        out += ["--tuned", os.fspath(tuned)]
    return out + ["--strip"] * bool(strip) + ["--samples"] * bool(samples)


def _read_by(arguments):
    """What differs between any two contents of the files that the arguments name: for the cache's keys."""
    paths = [Path(value) for flag, value in zip(arguments, arguments[1:]) if flag in ("--ptxas", "--tuned", "--kernels")]
    files = [f for path in paths for f in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    return [(str(f), _program.identity(f)) for f in files if f.is_file()]


def compile(model, args=None, kwargs=None, *, dynamic_shapes=None, strict=False, target="cpu", arch=None, options=None, kernels=None, tune=False, tuned=None, threads=0,
            report=False, cached=False, timeout=None, ptxas=None, format="neso", strip=False, samples=False, progress=True):
    """Compiles a model into a Package.

    model:   an nn.Module (with example `args`, `kwargs` and `dynamic_shapes` as for torch.export.export), an ExportedProgram, the path of a
             .pt2, or its bytes
    target:  "cpu" or "cuda"; ("cpu", "cuda"): one package for both, of which neso.load takes what the device needs; arch: "native", "portable", "x86-64-v3", "aarch64", "sm_90", …, or several
    options: as --option of the program: {"fuse-user-kernels": "off"}
    kernels: kernel bundles or Triton sources of the model's own kernels, where the .pt2 does not carry them
    tune:    measure other ways to compute each kernel on this machine, and keep the fastest; a path: results go to that file, and those
             that it has are used
    tuned:   results of an earlier tune
    cached:  look into the cache on disk first, and keep the package there
    timeout: seconds after which the compiler is ended
    ptxas:   NVIDIA's assembler for "cuda", or "none"; by default that of the packages nvidia-cuda-nvcc or triton, else the machine's
    format:  "neso", or "aoti": an archive for torch._inductor.aoti_load_package
    strip:   no folders of your source files go into the package, their names alone
    samples: the example arguments go into the package, for `neso run|bench FILE --sample`
    progress: True: a line on stderr, where that is a terminal; a function: called with a neso.Progress (stage, what, name, done, of, seconds),
             and what it raises ends the compiler; None: nothing

    Torch is imported only for modules and programs. CompileError carries every diagnostic.
    """
    arguments = _arguments(target, arch, options, kernels, threads, tuned, ptxas, format, strip, samples)
    with Teller(progress) as tell:
        return _compile(model, (args, kwargs, dynamic_shapes, strict), arguments, tune, report, cached, timeout, tell)


def _compile(model, example, arguments, tune, report, cached, timeout, tell):
    if not isinstance(model, (str, os.PathLike, bytes, bytearray, memoryview)):
        tell("torch.export")
    source = _Source(model, *example)
    try:
        name = None
        if cached and not report:
            name = cache.key(source.digest(), arguments, _read_by(arguments), _program.identity(), cache.machine(), *(("tune", str(tune)) if tune else ()))
            data = cache.get(name)
            if data is not None:
                return Package(data, tell.seconds(), cached=True)
        with tempfile.TemporaryDirectory(prefix="neso-") as folder:
            package, page = os.path.join(folder, "model.neso"), os.path.join(folder, "report.html")
            extra = ["--report", page] if report else []
            if tune:
                extra += ["--tune", os.path.join(folder, "tuned.json") if tune is True else os.fspath(tune)]
            said, warnings = _program.run(["compile", source.path, "-o", package, "--json", *arguments, *extra], pass_fds=[source.fd] if source.fd is not None else (),
                                       names=source.names, timeout=timeout, tell=tell)
            with open(package, "rb") as f:
                data = f.read()
            html = open(page, "rb").read() if report else None
        if name:
            cache.put(name, data)
        return Package(data, tell.seconds(), warnings, html, models=json.loads(said)["models"])
    finally:
        source.close()

