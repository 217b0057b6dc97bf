"""What users install, as they install it: run.py SOURCE BUILD. Skipped (77) where a tool that it needs is missing."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

source, build = Path(sys.argv[1]), Path(sys.argv[2])


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"FAILED: {' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def tiny_model(folder):
    """x + x for four floats, through torch; a .pt2 needs it."""
    path = folder / "tiny.pt2"
    run(sys.executable, "-c", f"import torch\nclass M(torch.nn.Module):\n    def forward(self, x): return x + x\ntorch.export.save(torch.export.export(M(), (torch.ones(4),)), {str(path)!r})")
    return path


def check_sdk(folder, prefix, model):
    """CMake's and pkg-config's users."""
    run("cmake", "-S", source / "packaging/test/consumer", "-B", folder / "consumer", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DMODEL={model}", f"-DNESO_PROGRAM={build}/bin/neso")
    run("cmake", "--build", folder / "consumer")
    for program in ("shared", "embedded"):
        assert run(folder / "consumer" / program, cwd=folder / "consumer") == "2 4 6 8 ", program
    if not shutil.which("pkg-config"):
        return
    pc = {**os.environ, "PKG_CONFIG_PATH": str(next(prefix.rglob("pkgconfig")))}
    flags = run("pkg-config", "--cflags", "--libs", "neso", env=pc).split()
    run("cc", source / "packaging/test/consumer/main.c", *flags, f"-Wl,-rpath,{next(prefix.rglob('libneso.so*')).parent}", "-o", folder / "by_pkg_config")
    assert run(folder / "by_pkg_config", folder / "consumer" / "tiny.neso") == "2 4 6 8 "


def check_bundled(prefix):
    """The one library that distributions do not share goes along with the program as it is shipped."""
    if not re.search("^NESO_STATIC_LLVM:.*=ON$", (build / "CMakeCache.txt").read_text(), re.M):
        return
    run("cmake", "--install", build, "--prefix", prefix, "--component", "bundled")
    for program in (build / "bin/neso", prefix / "bin/neso"):
        found = re.search(r"libsimdjson\S* => (\S+)", run("ldd", program))
        assert found and Path(found[1]).resolve().parent == (program.parent.parent / "libexec/neso").resolve(), (program, found)


def check_words(prefix):
    """Manual pages and completions."""
    pages = {p.name.removesuffix(".gz") for p in (prefix / "share/man/man1").glob("*.1*")}
    assert {"neso.1", "neso-compile.1", "neso-kernel.1", "neso-kernel-run.1"} <= pages, pages
    if shutil.which("man"):
        page = next((prefix / "share/man/man1").glob("neso-compile.1*"))
        assert "--updatable" in run("man", "-l", page, env={**os.environ, "MANWIDTH": "200", "MANPAGER": "cat"})
    assert "complete" in (prefix / "share/bash-completion/completions/neso").read_text()


def check_deb(folder, model):
    """The Debian packages, unpacked in place of a system."""
    if not shutil.which("dpkg-deb") or not shutil.which("dpkg-shlibdeps"):
        return print("no dpkg-deb or dpkg-shlibdeps: Debian packages are not checked")
    run("cpack", "-G", "DEB", "--config", build / "CPackConfig.cmake", "-B", folder / "deb")
    names = {}
    for package in (folder / "deb").glob("*.deb"):
        names[run("dpkg-deb", "-f", package, "Package").strip()] = run("dpkg-deb", "-f", package, "Depends").strip()
        run("dpkg-deb", "-x", package, folder / "root")
    assert set(names) == {"libneso0", "libneso-dev", "neso"}, names
    assert "libc6" in names["libneso0"] and "libneso0 (= " in names["libneso-dev"], names
    assert (folder / "root/usr/lib/libneso.so.0").exists() and (folder / "root/usr/bin/neso").exists()
    shutil.rmtree(folder / "consumer", ignore_errors=True)
    check_sdk(folder, folder / "root/usr", model)
    if shutil.which("lintian"):
        # Of a development build lintian has more to say: its program is linked with libraries of LLVM's own folder. Who answers for the packages is
        # for their publisher to say (NESO_MAINTAINER).
        own = [p for p in (folder / "deb").glob("*.deb") if not p.name.startswith("neso_")]
        done = subprocess.run(["lintian", "--suppress-tags", "bogus-mail-host,bogus-mail-host-in-debian-changelog", *own], capture_output=True, text=True)
        assert not any(line.startswith(("E:", "W:")) for line in done.stdout.splitlines()), done.stdout


def check_wheels(folder, model):
    if not (build / "python/neso/_core.abi3.so").exists():
        return print("no Python package was built: wheels are not checked")
    run(sys.executable, source / "packaging/wheel.py", build, folder / "dist")
    wheels = sorted((folder / "dist").glob("*.whl"))
    assert [w.name.split("-")[0] for w in wheels] == ["neso", "neso_runtime"]
    for wheel in wheels:
        assert zipfile.ZipFile(wheel).testzip() is None
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv/bin/python"
    run(python, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", *wheels)
    assert run(folder / "venv/bin/neso", "--version").startswith("neso 0.")
    # NumPy comes from the Python that runs this test.
    site = run(sys.executable, "-c", "import numpy; print(numpy.__path__[0])").strip()
    text = f"import numpy, neso; m = neso.compile({str(model)!r}).load(); print(neso.__file__, m(numpy.arange(4, dtype='float32')))"
    out = run(python, "-c", text, env={**os.environ, "PYTHONPATH": str(Path(site).parent)}, cwd="/")
    assert str(folder) in out and "[0. 2. 4. 6.]" in out, out
    run(folder / "venv/bin/neso", "compile", model, "-o", folder / "tiny_aoti.pt2", "--format", "aoti")
    sdk = run(python, "-c", "import neso, os; print(os.path.dirname(neso.__file__))").strip()
    run(python, "-m", "pip", "uninstall", "-y", "neso")
    message = subprocess.run([python, "-c", "import neso; neso.compile('x.pt2')"], capture_output=True, text=True).stderr
    assert "pip install neso" in message, message
    return Path(sdk) / "sdk"


def check_wheel_for_arm(folder):
    """What `./x wheel arm64` writes, of the tests' own build for 64-bit ARM."""
    if not (build / "arm64/python/neso/_core.abi3.so").exists():
        return print("nothing was built for 64-bit ARM: its wheel is not checked")
    run(sys.executable, source / "packaging/wheel.py", build / "arm64", folder / "arm")
    wheel, = (folder / "arm").glob("*.whl")
    assert wheel.name.startswith("neso_runtime-") and re.search(r"-cp311-abi3-manylinux_2_\d+_aarch64\.whl$", wheel.name), wheel.name
    with zipfile.ZipFile(wheel) as files:
        for name in ("neso/_core.abi3.so", "neso/sdk/lib/libneso.so"):
            assert any(n == name or n.startswith(name + ".") for n in files.namelist()), (name, files.namelist())
        # 183: ELF's number of the processor.
        assert files.read("neso/_core.abi3.so")[18:20] == (183).to_bytes(2, "little")


def main():
    for tool in ("cmake", "cc"):
        if not shutil.which(tool):
            print(f"skipped: {tool} is not installed")
            sys.exit(77)
    if subprocess.run([sys.executable, "-c", "import torch, numpy"], capture_output=True).returncode:
        print("skipped: torch or numpy is not installed, and the model of this test is made with them")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model = tiny_model(folder)
        for component in ("runtime", "development", "compiler"):
            run("cmake", "--install", build, "--prefix", folder / "prefix", "--component", component)
        check_bundled(folder / "prefix")
        check_words(folder / "prefix")
        check_sdk(folder, folder / "prefix", model)
        sdk = check_wheels(folder, model)
        if sdk:
            shutil.rmtree(folder / "consumer")
            check_sdk(folder, sdk, model)
        check_wheel_for_arm(folder)
        check_deb(folder, model)
    print("1 passed, 0 failed")


main()
