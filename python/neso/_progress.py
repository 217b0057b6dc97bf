"""How far a compilation is: what `neso.compile(progress=…)` shows or tells."""

import json
import os
import selectors
import sys
import time
from dataclasses import dataclass

# Nobody reads a line that is gone at once.
_PATIENCE, _WIDTH = 0.3, 79


@dataclass(frozen=True)
class Progress:
    """`stage`: of the compiler, or torch.export; `what`: "kernel" or "node", of which `name` is the one at hand, `done` were begun, of `of` (0: not
    known); `seconds` since the beginning."""
    stage: str
    what: str = ""
    name: str = ""
    done: int = 0
    of: int = 0
    seconds: float = 0.0

    def __str__(self):
        many = f", {self.what} {self.done}" + (f" of {self.of}" if self.of else "") + f": {self.name}" if self.what else ""
        return f"{self.seconds:5.1f} s  {self.stage}{many}"


class _Line:
    """One line of a terminal, written over."""

    def __init__(self, file):
        self.file, self.shown = file, False

    def __call__(self, progress):
        if progress.seconds >= _PATIENCE:
            self.file.write("\r\x1b[K" + str(progress)[:_WIDTH])
            self.file.flush()
            self.shown = True

    def close(self):
        if self.shown:
            self.file.write("\r\x1b[K")
            self.file.flush()


class Teller:
    """Whom a compilation tells how far it is. `to`: True: a line on stderr where that is a terminal; a function: called with a Progress, on the
    thread that compiles, and what it raises ends the compilation; None or False: nobody."""

    def __init__(self, to):
        self.begun = time.perf_counter()
        file = sys.stderr
        self.line = _Line(file) if to is True and hasattr(file, "isatty") and file.isatty() else None
        self.to = to if callable(to) else self.line

    def seconds(self):
        return time.perf_counter() - self.begun

    def __call__(self, stage, **rest):
        if self.to is not None:
            self.to(Progress(stage, **{**rest, "seconds": self.seconds()}))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.line is not None:
            self.line.close()


def communicate(process, timeout, tell):
    """Like process.communicate, but lines of progress on stderr go to `tell` as they come."""
    texts, begun, ready = {process.stdout: b"", process.stderr: b""}, time.monotonic(), selectors.DefaultSelector()
    for stream in texts:
        ready.register(stream, selectors.EVENT_READ)
    waiting = b""
    while ready.get_map():
        left = None if timeout is None else timeout - (time.monotonic() - begun)
        if left is not None and left <= 0:
            # As communicate does.
            import subprocess
            raise subprocess.TimeoutExpired(process.args, timeout)
        for key, _ in ready.select(left):
            data = os.read(key.fd, 1 << 16)
            if not data:
                ready.unregister(key.fileobj)
            if key.fileobj is process.stdout:
                texts[process.stdout] += data
                continue
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                if not _told(line, tell):
                    texts[process.stderr] += line + b"\n"
    process.wait(None if timeout is None else max(0.0, timeout - (time.monotonic() - begun)))
    return texts[process.stdout], texts[process.stderr] + waiting


def _told(line, tell):
    if not line.startswith(b'{"progress"'):
        return False
    try:
        row = json.loads(line)
        stage = row.pop("progress")
    except ValueError:
        return False
    tell(stage, **{k: v for k, v in row.items() if k in Progress.__dataclass_fields__ and k != "stage"})
    return True
