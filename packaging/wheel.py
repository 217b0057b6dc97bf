#!/usr/bin/env python3
"""Writes the two wheels from a build folder: wheel.py BUILD DIST.

neso-runtime: the extension, libneso, headers, files for CMake and pkg-config; all that a machine needs to run packages.
neso:         the program, export, torch.compile, Triton. Needs neso-runtime of the same version. Of a build of the runtime alone there is none.

A wheel is a zip with three files of description. The platform's tag is found, not claimed: the newest glibc that a file asks for."""
import base64
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Bytes that a wheel may have: what an edge machine fetches, and what pip shall install in seconds. Of a program that is linked statically; a
# development build needs LLVM installed.
LIMITS = {"neso_runtime": 1_500_000, "neso": 35_000_000}
VERSION = re.search(r"project\(neso VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
# Of the package `neso`, what loading and running needs; the rest belongs to the compiler's wheel.
RUNTIME = {"__init__.py", "_dtypes.py", "_errors.py", "_files.py", "_hooks.py", "_model.py", "_operators.py", "_profile.py", "_replay.py", "_reshape.py", "_tree.py", "__init__.pyi", "py.typed"}
ENTRY_POINTS = """[console_scripts]
neso = neso._program:main

[torch_dynamo_backends]
neso = neso.torch:backend

[triton.backends]
cpu = neso.triton
"""


# What ELF calls a processor, by the name that wheels have for it.
PROCESSORS = {62: "x86_64", 183: "aarch64"}


def platform(files):
    """The tag of machines that ELF files run on: their processor, and the newest minor version of glibc 2 that they ask for."""
    newest, processors = 17, {PROCESSORS[int.from_bytes(file.read_bytes()[18:20], "little")] for file in files}
    assert len(processors) == 1, processors
    for file in files:
        text = subprocess.run(["readelf", "--version-info", "--wide", file], capture_output=True, text=True, check=True).stdout
        newest = max([newest, *(int(m) for m in re.findall(r"GLIBC_2\.(\d+)", text))])
    return f"manylinux_2_{newest}_{processors.pop()}"


def tool(build, name):
    """A tool that knows the build's processor, as CMake found it."""
    found = re.search(rf"^CMAKE_{name.upper()}:FILEPATH=(.+)$", (build / "CMakeCache.txt").read_text(), re.M)
    return found[1] if found else name


def needed(file, wanted):
    """Paths of the shared libraries of `file` whose name starts like `wanted`."""
    text = subprocess.run(["ldd", file], capture_output=True, text=True).stdout
    return [Path(m) for m in re.findall(r"=> (/\S+)", text) if Path(m).name.startswith(wanted)]


def write_wheel(dist, name, tag, summary, files, requires=(), entry_points=None):
    """files: path inside → path on disk or bytes."""
    info = f"{name.replace('-', '_')}-{VERSION}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\nSummary: {summary}\nLicense: Apache-2.0 WITH LLVM-exception\nRequires-Python: >=3.11"]
    metadata += [f"Requires-Dist: {r}" for r in requires]
    files = {**files, f"{info}/METADATA": ("\n".join(metadata) + "\n").encode(), f"{info}/LICENSE": ROOT / "LICENSE",
             f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: neso\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()}
    if entry_points:
        files[f"{info}/entry_points.txt"] = entry_points.encode()
    path, record = dist / f"{name.replace('-', '_')}-{VERSION}-{tag}.whl", []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for inside, source in sorted(files.items()):
            data = source if isinstance(source, bytes) else source.read_bytes()
            runs = not isinstance(source, bytes) and source.stat().st_mode & 0o100
            entry = zipfile.ZipInfo(inside, (2020, 1, 1, 0, 0, 0))
            entry.external_attr, entry.compress_type = (0o100755 if runs else 0o100644) << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
            record.append(f"{inside},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}")
        wheel.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))
    return path


def python_files(folder, prefix):
    return {f"{prefix}/{p.relative_to(folder)}": p for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix in (".py", ".pyi", ".typed") and "test" not in p.relative_to(folder).parts}


def stripped(file, folder, strip):
    """A copy without symbols, beside which nothing else changes."""
    copy = folder / file.name
    shutil.copy(file, copy)
    subprocess.run([strip, "--strip-unneeded", copy], check=True)
    return copy


def compiler_wheel(build, dist, folder, strip, sources):
    (folder / "bin").mkdir()
    program = stripped(build / "bin" / "neso", folder / "bin", strip)
    loader = stripped(build / "libexec" / "neso" / "libneso_aoti.so", folder, strip)
    # Where the program finds the one library that distributions do not share: beside itself (its run path says so).
    beside = needed(program, "libsimdjson")
    return write_wheel(dist, "neso", f"py3-none-{platform([program, loader, *beside])}", "Ahead-of-time compiler for PyTorch models and Triton kernels",
                       {**sources, **python_files(ROOT / "python" / "neso_export", "neso_export"), "neso/bin/neso": program,
                        "neso/libexec/neso/libneso_aoti.so": loader, **{f"neso/bin/{p.name}": p for p in beside}},
                       [f"neso-runtime =={VERSION}"], ENTRY_POINTS)


def main(build, dist):
    build, dist = Path(build).resolve(), Path(dist)
    dist.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for component in ("runtime", "development"):
            subprocess.run(["cmake", "--install", build, "--prefix", folder / "sdk", "--component", component], check=True, capture_output=True)
        sources = python_files(ROOT / "python" / "neso", "neso")
        sdk = {f"neso/sdk/{p.relative_to(folder / 'sdk')}": p for p in sorted((folder / "sdk").rglob("*")) if p.is_file() and not p.name.startswith("libneso.so.0.")}
        strip = tool(build, "strip")
        core = stripped(build / "python" / "neso" / "_core.abi3.so", folder, strip)
        runtime = {k: v for k, v in sources.items() if k.partition("/")[2] in RUNTIME}
        libraries = [core, *(p for p in sdk.values() if ".so" in p.name)]
        written = [write_wheel(dist, "neso-runtime", f"cp311-abi3-{platform(libraries)}", "Runs models and kernels that Neso compiled",
                               {**runtime, **sdk, "neso/_core.abi3.so": core})]
        if (build / "bin" / "neso").exists():
            written.append(compiler_wheel(build, dist, folder, strip, {k: v for k, v in sources.items() if k.partition("/")[2] not in RUNTIME}))
    for path in written:
        size, limit = path.stat().st_size, LIMITS[path.name.partition("-")[0]]
        print(f"{path}: {size / 1e6:.1f} MB")
        if size > limit:
            sys.exit(f"{path}: at most {limit / 1e6:.1f} MB are wanted")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
