"""The compiler as a process of its own: LLVM never shares a process with torch's or Triton's, and nothing that it does can take the
caller's process down."""

import json
import os
import signal
import subprocess
from pathlib import Path

from ._errors import CompileError, Diagnostic, Error


def path():
    """The program `neso` of this installation."""
    program = Path(__file__).parent / "bin" / "neso"
    if not program.exists():
        raise ImportError("the compiler is not installed here: pip install neso, of the same version as neso-runtime; there is none but for x86-64, which compiles for 64-bit ARM too (arch=\"aarch64\")")
    return str(program)


def identity(program=None):
    """Differs between any two builds of the compiler (or of another program): for keys of caches."""
    status = os.stat(program or path())
    return f"{status.st_size}-{status.st_mtime_ns}"


def _diagnostics(text):
    """The JSON lines of stderr, and what else was written there."""
    found, rest = [], []
    for line in text.splitlines():
        try:
            row = json.loads(line) if line.startswith('{"severity"') else None
        except ValueError:
            row = None
        if row is None:
            rest.append(line)
        else:
            found.append(Diagnostic(**row))
    return found, "\n".join(rest)


def run(arguments, *, pass_fds=(), names=(), timeout=None, tells=False, tell=None):
    """Runs `neso ARGUMENTS…`; (standard output, warnings). `names`: pairs of a path that only this process knows and what the user calls it.
    `tell`: a Teller of _progress.py that hears how far it is.
    A refusal raises CompileError with all its diagnostics; `tells`: exit code 1 with an answer on standard output is an answer. An exception
    that comes meanwhile, Ctrl-C among them, ends the program."""
    heard = tell is not None and tell.to is not None
    process = subprocess.Popen([path(), "--diagnostics", "json", *(["--progress", "json"] if heard else []), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               pass_fds=pass_fds)
    try:
        if heard:
            from ._progress import communicate
            out, err = communicate(process, timeout, tell)
        else:
            out, err = process.communicate(timeout=timeout)
    except BaseException as e:
        process.kill()
        process.communicate()
        if isinstance(e, subprocess.TimeoutExpired):
            raise CompileError(f"the compiler was ended after {timeout} s; give it more time (timeout=), or none at all", "", "TIMEOUT") from None
        raise
    text = err.decode(errors="replace")
    for hidden, name in names:
        text = text.replace(hidden, name)
    found, rest = _diagnostics(text)
    if process.returncode < 0:
        raise CompileError(f"the compiler was ended by {signal.Signals(-process.returncode).name}, as happens where memory is exhausted; the call was: neso {' '.join(map(str, arguments))}\n{rest}")
    if process.returncode == 2:
        raise Error(rest.strip(), "", "USAGE")
    if process.returncode and not (tells and process.returncode == 1 and out):
        errors = [d for d in found if d.severity != "warning"]
        message = "\n".join(f"{d.location}: {d.message}" if d.location else d.message for d in errors) or rest
        raise CompileError(message, errors[0].code if errors else "", errors[0].kind if errors else "", errors)
    return out, [d for d in found if d.severity == "warning"]


def main():
    """The console script: becomes the program."""
    import sys
    os.execv(path(), ["neso", *sys.argv[1:]])
