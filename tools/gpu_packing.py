"""What the tools for GPUs share: they compile where the compiler is (pack) and run where the GPU is (run), where neither Neso's compiler nor
its build needs to be. A pack is a folder OUT with one archive of packages and the runtime's library."""
import argparse
import re
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = "libneso.so"


def verbs(doc):
    """A parser and its verbs `pack` and `run`, with the options that every tool has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    both = parser.add_subparsers(dest="verb", required=True)
    p, r = both.add_parser("pack"), both.add_parser("run")
    for verb in (p, r):
        verb.add_argument("out", help="folder of the pack")
        verb.add_argument("--only", default="", help="regular expression over names")
    p.add_argument("--build", default="build/release", help="folder of a build, which is brought up to date first")
    p.add_argument("--arch", default="sm_90")
    p.add_argument("--jobs", type=int, default=2, help="compilations at once")
    p.add_argument("--commit", help="of the sources, for the report (default: what git says)")
    p.add_argument("--here", action="store_true", help="the GPU is in this machine: no archive is made")
    p.add_argument("--option", action="append", default=[], help="K=V, for neso compile")
    r.add_argument("--json", required=True, help="the report")
    return parser, both, p, r


class Pack:
    """OUT/NAME.tar.gz while it is being made: packages in OUT/NAME."""

    def __init__(self, options, name):
        self.options, self.out, self.name = options, Path(options.out), name
        self.folder = self.out / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.build = ROOT / options.build
        # A stale runtime beside a new compiler measures neither.
        if (self.build / "CMakeCache.txt").exists():
            subprocess.run(["cmake", "--build", str(self.build), "--target", "neso", "neso_runtime_shared"], check=True, stdout=subprocess.DEVNULL)
        self.neso = (self.build / "bin" / "neso").resolve()

    def compile(self, arguments, name):
        """Runs `neso arguments` for the GPU. {"seconds", "package"}, or {"seconds", "refused": "E0123", "why"}."""
        target = self.folder / (name + ".neso")
        # Single kernels take one of them, as a flag.
        settings = [part for setting in self.options.option
                    for part in (("--option", setting) if arguments[0] == "compile" else ("--boxes", setting[6:]) if setting.startswith("boxes=") else ())]
        command = [self.neso, *arguments, *settings, "-o", target, "--target", "cuda", "--arch", self.options.arch]
        start = time.time()
        try:
            done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return {"seconds": 300, "refused": "timeout", "why": "300 s"}
        result = {"seconds": round(time.time() - start, 3)}
        if done.returncode == 0:
            return result | {"package": target.name}
        code = re.search(r"\[(E\d+)\]", done.stderr)
        return result | {"refused": code[1] if code else f"exit {done.returncode}", "why": done.stderr.strip()[-600:]}

    def add(self, file, name):
        """A copy of the file among the packages; name may hold folders."""
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)

    def finish(self):
        """Adds the runtime, and makes an archive of the folder. Says how large that is."""
        (self.folder / RUNTIME).write_bytes((self.build / "lib" / RUNTIME).read_bytes())
        if self.options.here:
            return "no archive"
        archive = self.out / (self.name + ".tar.gz")
        # Weights of benches repeat within the window of gzip: little remains of them.
        subprocess.run(["tar", "-C", str(self.out), "--use-compress-program", "gzip -6", "-cf", str(archive), self.name], check=True)
        shutil.rmtree(self.folder)
        return f"{archive.stat().st_size / 1e6:.1f} MB"


def commit(options):
    return options.commit or subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def unpacked(out, name):
    """The folder of a pack's packages, extracted if need be."""
    folder = Path(out) / name
    if not folder.exists():
        with tarfile.open(Path(out) / (name + ".tar.gz")) as tar:
            tar.extractall(out, filter="data")
    return folder
