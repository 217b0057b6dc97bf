#!/usr/bin/env python3
"""Which Triton kernels of a folder of other people's sources does Neso compile, and do they compute what Triton's interpreter does?

    tools/kernel_sweep.py --build build/dev FOLDER --rows rows.jsonl
    tools/kernel_sweep.py --build build/dev FOLDER --gpu sm_90a --run --only 'fla/ops' --sample 300
    tools/kernel_sweep.py FOLDER --rows rows.jsonl                                     finds the cases alone
    tools/kernel_sweep.py --build build/dev --again rows.jsonl [--only REGEX] [--verdict REGEX]

FOLDER holds packages as they are (say unpacked wheels); nothing of them is changed or copied. Each @triton.jit function that can be a
kernel gets a signature and constexprs (kernel_sweep_guess.py), in several variants; the ones that Triton itself turns into TTIR are its
cases, what it refuses is not counted. Each case is compiled by `neso kernel compile` for the CPU and with --gpu for a GPU. With --run it is
also launched on made-up arguments: first in Neso's interpreter, which refuses accesses out of bounds (such a launch says nothing), then
as machine code and in Triton's interpreter; the memory afterwards is compared. Lines of JSON, one a case, go to --rows; --again takes the
cases from such a file. Needs torch and triton and no GPU. What the sources import and is not there is replaced by objects that do nothing.
"""
import argparse
import ast
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kernel_sweep_guess import is_jit  # noqa: E402
from kernel_sweep_launch import Launches  # noqa: E402
from kernel_sweep_triton import Served, defined  # noqa: E402

# ---- Which functions of a folder are kernels


def returns_value(function):
    todo = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return) and node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            todo.extend(ast.iter_child_nodes(node))
    return False


def root_of(path, folder):
    """Where imports of a file begin: above its outermost package."""
    here = path.parent
    while here != folder and (here / "__init__.py").exists():
        here = here.parent
    if here != folder and here.parent != folder:  # a package whose folders lack __init__.py
        while here.parent != folder:
            here = here.parent
    return here


def survey(folder, only):
    """[(file, root, {qualified name: inside})] and the index of jit functions by name for each file."""
    out = []
    for path in sorted(folder.rglob("*.py")):
        if not re.search(only, str(path)):
            continue
        try:
            text = path.read_text()
            if "jit" not in text or "gluon" in path.name:
                continue
            tree = ast.parse(text)
        except (SyntaxError, UnicodeDecodeError, ValueError, RecursionError):
            continue
        names = {}
        for name, function, inside in defined(tree.body):
            if any(is_jit(d) for d in function.decorator_list):
                names[name] = inside and "." in name
        if names:
            out.append((path, root_of(path, folder), names))
    return out


# ---- Neso's side


def call(command, limit):
    """(exit status or "timeout", seconds of processor time, what it said)."""
    with tempfile.TemporaryFile("w+") as said:
        p = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 2)))
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = 0
        said.seek(0)
        text = said.read()[-3000:]
    code = os.waitstatus_to_exitcode(status)
    seconds = round(usage.ru_utime + usage.ru_stime, 2)
    return ("timeout" if code in (-signal.SIGXCPU, -signal.SIGKILL) and seconds >= limit - 1 else code), seconds, text


def kind_of(code, text):
    if code == 0:
        return "ok"
    if code == "timeout":
        return "timeout"
    m = re.search(r"error\[(E\d+)\]", text)
    if code == 1 and m:
        return m[1]
    return f"crash {code}"


class Neso:
    def __init__(self, given):
        self.given, self.neso = given, str(pathlib.Path(given.build or "").resolve() / "bin" / "neso")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="kernel_sweep_"))
        self.interpreter = Served(True)
        self.launches = Launches(lambda command: call([self.neso, *command], 30), kind_of, self.interpreter.ask, given.arch)

    def source(self, case):
        row = case["row"]
        command = [f"{case['file']}:{case['kernel']}", "--signature", ",".join(t for _, t, _ in row), "--path", case["root"]]
        for n, t, v in row:
            if t == "constexpr":
                command += ["--constexpr", f"{n}={v}"]
        for k, v in case["options"].items():
            if v:
                command += ["--" + k.replace("_", "-"), str(v)]
        return command

    def judge(self, case):
        if not self.given.build:
            return case
        key = hashlib.sha1(json.dumps([case["file"], case["kernel"], case["row"]]).encode()).hexdigest()[:16]
        out = self.folder / key
        out.mkdir()
        try:
            targets = [("cpu", ["--arch", self.given.arch])]
            if self.given.gpu:
                targets.append(("gpu", ["--target", "cuda", "--arch", self.given.gpu, "--ptxas", "none"]))
            for name, more in targets:
                code, seconds, text = call([self.neso, "kernel", "compile", *self.source(case), *more, "-o", str(out / f"{name}.neso")], self.given.limit)
                case[name], case[name + "_s"] = kind_of(code, text), seconds
                if code != 0:
                    case[name + "_says"] = text[:1500]
            if self.given.run and case["cpu"] == "ok":
                self.launches.run(case, self.source(case), out, int(key[:7], 16))
        finally:
            if not self.given.keep:
                shutil.rmtree(out)
        return case


# ---- The table


def table(rows, refused, seconds, given):
    cases = len(rows)
    kernels = {(r["file"], r["kernel"]) for r in rows}
    print(f"{len(kernels) + len(refused)} kernels, {len(kernels)} that Triton takes ({cases} cases), {len(refused)} that it refuses as called here; {seconds:.0f} s")
    for target in ("cpu", "gpu", "run"):
        held = [r for r in rows if target in r]
        if not held:
            continue
        print(f"\n{target}: " + ", ".join(f"{n} {k}" for k, n in collections.Counter(r[target] for r in held).most_common()))
        if target == "run":
            bad = [r for r in held if r["run"].startswith(("wrong", "run:"))]
        else:
            bad = [r for r in held if r[target] != "ok"]
            slow = [r for r in held if r[target] == "ok" and r[target + "_s"] > given.slow]
            for r in sorted(slow, key=lambda r: -r[target + "_s"])[:20]:
                print(f"  slow {r[target + '_s']:6.1f} s  {short(r, given)}")
        shown = collections.defaultdict(list)
        for r in bad:
            first = (r.get(f"{target}_says") or "").strip().split("\n")
            message = next((x for x in first if "error" in x), first[0] if first else "")
            shown[r[target], re.sub(r"^.*?error\[E\d+\]: ", "", message)[:150]].append(r)
        for (kind, message), group in sorted(shown.items(), key=lambda g: -len(g[1]))[:given.lines]:
            print(f"  {len(group):4} {kind:8} {message}\n               {short(group[0], given)}")


def short(r, given):
    return f"{r['file'].removeprefix(str(given.folder or '') + '/')}:{r['kernel']}#{r['number']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", help="a build folder, with bin/neso; without one only the cases are found")
    parser.add_argument("folder", nargs="?", help="the sources")
    parser.add_argument("--rows", help="file to which a line of JSON is written for each case, and for each kernel that Triton refuses")
    parser.add_argument("--again", metavar="ROWS", help="take the cases from such a file")
    parser.add_argument("--verdict", help="with --again: of those alone whose verdicts (cpu gpu run) match")
    parser.add_argument("--only", default="", metavar="REGEX", help="files, or with --again FILE:KERNEL, to take")
    parser.add_argument("--sample", type=int, help="so many files, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", metavar="ARCH", help="compile for this GPU too, say sm_90a")
    parser.add_argument("--arch", default="native", help="of the CPU")
    parser.add_argument("--run", action="store_true", help="launch on the CPU and compare with Triton's interpreter")
    parser.add_argument("--tries", type=int, default=30, help="variants of a call to try (default: 30)")
    parser.add_argument("--cases", type=int, default=2, help="variants of a kernel to keep (default: 2)")
    parser.add_argument("--limit", type=int, default=60, help="seconds of processor time for one compilation (default: 60)")
    parser.add_argument("--slow", type=float, default=20, help="compilations that took longer are listed (default: 20)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--lines", type=int, default=60, help="of findings to print for each target")
    parser.add_argument("--keep", action="store_true", help="leave packages and tensors in the temporary folder")
    given = parser.parse_args()
    if bool(given.folder) == bool(given.again):
        parser.error("give a folder or --again")
    begin = time.time()
    neso = Neso(given)
    rows, refused = [], []
    log = open(given.rows, "w") if given.rows else None
    lock = threading.Lock()

    def note(row, to):
        with lock:
            to.append(row)
            if log:
                log.write(json.dumps(row) + "\n")
                log.flush()

    def judge(case):
        try:
            note(neso.judge(case), rows)
        except Exception as e:  # noqa: BLE001
            print(f"kernel_sweep: {case['file']}:{case['kernel']}: {type(e).__name__}: {e}", file=sys.stderr)

    pool = concurrent.futures.ThreadPoolExecutor(given.jobs)
    waiting = []
    if given.again:
        for line in open(given.again):
            case = json.loads(line)
            if "row" not in case or not re.search(given.only, f"{case['file']}:{case['kernel']}"):
                continue
            if given.verdict and not any(re.search(given.verdict, case.get(t, "")) for t in ("cpu", "gpu", "run")):
                continue
            waiting.append(pool.submit(judge, {k: case[k] for k in ("file", "root", "kernel", "inside", "number", "row", "options")}))
    else:
        given.folder = pathlib.Path(given.folder).resolve()
        files = survey(given.folder, given.only)
        if given.sample:
            files = sorted(random.Random(given.seed).sample(files, min(given.sample, len(files))))
        compiler = Served(False)
        for path, root, names in files:
            functions = {n: f for n, f, _ in defined(ast.parse(path.read_text()).body)}
            kernels = {n: inside for n, inside in names.items() if not returns_value(functions[n])}
            if not kernels:
                continue
            for row in compiler.ask({"file": str(path), "root": str(root), "kernels": kernels, "tries": given.tries, "cases": given.cases, "limit": 240}):
                row.update(file=str(path), root=str(root))
                if "row" not in row:
                    if row.get("refused") != "no pointer":
                        note(row, refused)
                    continue
                row["inside"] = kernels[row["kernel"]]
                waiting.append(pool.submit(judge, row))
        compiler.close()
    for w in waiting:
        w.result()
    neso.interpreter.close()
    if not given.keep:
        shutil.rmtree(neso.folder, ignore_errors=True)
    table(rows, refused, time.time() - begin, given)


if __name__ == "__main__":
    main()
