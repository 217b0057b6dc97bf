"""What tools/campaign needs where there is no compiler: `tools/campaign pack DIR [--neso BIN]`. Linux on x86-64 with a C library that is not older;
Python, and for a part of it torch and Triton, are the other machine's own.

    sh DIR/run.sh --workers 16 --minutes 8 --keep OUT --tally OUT/tally.json …          unpacks into /tmp/neso_campaign_pack, then tools/campaign with these words

In DIR lie the programs, the shared libraries that they need beyond the C library's own, and these tools. A library that is a file of a Debian
package whose archive apt still has travels as that archive, which is as small as it gets at no cost. One of which LLVM calls nothing here
(z3, libxml2, libedit) is replaced by an empty one of its name with its symbols, because with what they need they would be a third of the whole.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import campaign_coverage

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ["neso", "check_kernels", "check_loops", "run_goldens"]
OF_THE_SYSTEM = re.compile(r"(linux-vdso|ld-linux|libc\.so|libm\.so|libdl\.so|libpthread\.so|librt\.so)")
NEVER_CALLED = re.compile(r"(libz3|libxml2|libedit)\.so")
ARCHIVES = Path("/var/cache/apt/archives")
LARGE = 20 << 20
RUN = """#!/bin/sh
# Unpacks what lies beside this file, and runs tools/campaign with the words given.
here=$(cd "$(dirname "$0")" && pwd)
place=/tmp/neso_campaign_pack
mkdir -p $place && python3 -c "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])" "$here/campaign.tar.xz" $place
for archive in "$here"/*.deb; do
  [ -e "$archive" ] && dpkg-deb -x "$archive" $place/package
done
[ -d $place/package ] && find $place/package -name '*.so.*' -type f -exec mv {} $place/lib/ ';'
cp -r "$here/tools" $place/
exec python3 $place/tools/campaign --neso $place/bin/neso "$@"
"""
# The libraries are for these programs alone: Python and torch keep their own.
PROGRAM = """#!/bin/sh
place=$(cd "$(dirname "$0")/.." && pwd)
LD_LIBRARY_PATH=$place/lib exec "$place/programs/{name}" "$@"
"""
ONLY_THROUGH_THOSE = re.compile(r"(libicu|libbsd|libmd|libtinfo|liblzma)")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def libraries(program):
    """{name: file} of the shared libraries that the loader would take."""
    return {m[1]: m[2] for m in re.finditer(r"^\s*(\S+) => (/\S+)", run("ldd", str(program)), re.M)}


def empty_library(name, file, users, place):
    """A library of that name with the symbols that `users` take from it, of the versions that they ask for, as functions that end the program."""
    exported = {s.split("@")[0] for s in re.findall(r" [A-Z] (\S+)", run("nm", "-D", "--defined-only", file))}
    versions = {}
    for user in users:
        for symbol, version in re.findall(r"U ([^\s@]+)@*(\S*)", run("nm", "-D", "--undefined-only", user)):
            if symbol in exported:
                versions.setdefault(version, set()).add(symbol)
    source, script = place / "empty.c", place / "empty.versions"
    source.write_text("".join(f"void {s}(void) {{ __builtin_trap(); }}\n" for s in sorted(set().union(*versions.values()))))
    script.write_text("".join(f"{v} {{ global: {' '.join(s + ';' for s in sorted(symbols))} }};\n" for v, symbols in sorted(versions.items()) if v))
    wanted = [f"-Wl,--version-script={script}"] if script.read_text() else []
    run("cc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{name}", *wanted, str(source), "-o", str(place / "lib" / name))
    source.unlink()
    script.unlink()


def archive_of(file):
    """The package's archive that holds this file, where it is large and apt still has it; or None."""
    file = Path(file).resolve()
    if file.stat().st_size < LARGE:
        return None
    owner = subprocess.run(["dpkg", "-S", f"*/{file.name}"], capture_output=True, text=True).stdout.split(":")[0]
    version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", owner], capture_output=True, text=True).stdout.replace(":", "%3a")
    found = sorted(ARCHIVES.glob(f"{owner}_{version}_*.deb")) if owner and version else []
    return found[0] if found else None


def main(words):
    parser = argparse.ArgumentParser(prog="campaign pack")
    parser.add_argument("folder")
    parser.add_argument("--neso", default=str(ROOT / "build" / "dev" / "bin" / "neso"))
    args = parser.parse_args(words)
    built = Path(args.neso) if Path(args.neso).is_dir() else Path(args.neso).parent
    campaign_coverage.ask_check_loops = lambda: str(built / "check_loops")
    out = Path(args.folder)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for sub in ("bin", "lib", "programs"):
            (place / sub).mkdir()
        (out / "tools").mkdir(exist_ok=True)
        needed = {}
        for program in PROGRAMS:
            run("strip", "-o", str(place / "programs" / program), str(built / program))
            (place / "bin" / program).write_text(PROGRAM.format(name=program))
            (place / "bin" / program).chmod(0o755)
            needed.update(libraries(built / program))
        for name, file in needed.items():
            if NEVER_CALLED.match(name):
                empty_library(name, file, needed.values(), place)
            elif OF_THE_SYSTEM.match(name) or ONLY_THROUGH_THOSE.match(name):
                continue
            elif archive := archive_of(file):
                (out / archive.name.replace("%3a", "_")).write_bytes(archive.read_bytes())
            else:
                run("strip", "--strip-unneeded", "-o", str(place / "lib" / name), file)
        for tool in [*sorted(Path(__file__).parent.glob("campaign*")), Path(__file__).parent / "neso_cases.py"]:
            if tool.is_file():
                (out / "tools" / tool.name).write_bytes(tool.read_bytes())
        (out / "tools" / "campaign_tables.json").write_text(json.dumps({area: sorted(campaign_coverage.expected(area)) for area in campaign_coverage.TABLES}))
        run("tar", "-C", str(place), "--use-compress-program=xz -6 -T1", "-cf", str(out / "campaign.tar.xz"), ".")
        (out / "run.sh").write_text(RUN)
    print(f"{out}: {sum(f.stat().st_size for f in out.rglob('*')) / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
