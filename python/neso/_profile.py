"""Where the time of calls goes: `neso.profile`."""

import json
import os
import threading
from dataclasses import dataclass

_active = []
_lock = threading.Lock()


@dataclass(frozen=True)
class Step:
    """A step of a run: `what` is "launch", "copy", …; `kernel` and `grid` of launches; times in seconds of time.monotonic(); `depth`: how
    many steps (branches, loops) it lies in."""
    what: str
    kernel: str
    grid: tuple
    begin: float
    end: float
    depth: int

    @property
    def seconds(self):
        return self.end - self.begin


@dataclass(frozen=True)
class Run:
    """One call of a model, or one launch of a kernel."""
    model: object
    thread: int
    begin: float
    end: float
    steps: tuple

    @property
    def seconds(self):
        return self.end - self.begin


class Profile:
    """What ran meanwhile: `runs`, in the order in which they ended. `table()` says which kernels took the time, `save()` writes a trace."""

    def __init__(self):
        self.runs = []

    def __enter__(self):
        core = _core()
        with _lock:
            _active.append(self)
            core.profile(_told)
        return self

    def __exit__(self, *_):
        with _lock:
            _active.remove(self)
            if not _active:
                _core().profile(None)

    @property
    def seconds(self):
        """Of all runs."""
        return sum(r.seconds for r in self.runs)

    def kernels(self):
        """One row for each kernel and other kind of step, the slowest first: name, launches, seconds, share of all runs, lines of the model."""
        rows, total = {}, self.seconds or 1.0
        for run in self.runs:
            sources = {k["name"]: k["sources"] for k in run.model.kernels}
            for step in run.steps:
                # The time of what holds others is theirs.
                if step.what in ("if", "while"):
                    continue
                row = rows.setdefault((run.model.info["model"], step.kernel or step.what),
                                      {"name": step.kernel or step.what, "count": 0, "seconds": 0.0, "sources": sources.get(step.kernel, [])})
                row["count"] += 1
                row["seconds"] += step.seconds
        for row in rows.values():
            row["share"] = row["seconds"] / total
        return sorted(rows.values(), key=lambda r: -r["seconds"])

    def table(self, limit=20):
        """The slowest kernels as text."""
        rows = self.kernels()
        lines = [f"{len(self.runs)} runs, {self.seconds * 1e3:.3f} ms", f"{'ms':>10} {'share':>6} {'count':>6}  kernel"]
        for r in rows[:limit]:
            source = f"  {r['sources'][0]}" + (f" and {len(r['sources']) - 1} more" if len(r["sources"]) > 1 else "") if r["sources"] else ""
            lines.append(f"{r['seconds'] * 1e3:10.3f} {r['share']:6.1%} {r['count']:6}  {r['name']}{source}")
        if len(rows) > limit:
            lines.append(f"{sum(r['seconds'] for r in rows[limit:]) * 1e3:10.3f} {'':13}  {len(rows) - limit} more")
        return "\n".join(lines)

    __str__ = table

    def save(self, path):
        """Writes a trace that Perfetto and Chrome open."""
        from ._files import write as _write
        _write(path, json.dumps({"displayTimeUnit": "ms", "traceEvents": list(self._events())}).encode())

    def _events(self):
        process = os.getpid()
        yield {"name": "process_name", "ph": "M", "pid": process, "args": {"name": "neso"}}
        begin, named = min((r.begin for r in self.runs), default=0.0), {t.ident: t.name for t in threading.enumerate()}
        for thread in sorted({r.thread for r in self.runs}):
            yield {"name": "thread_name", "ph": "M", "pid": process, "tid": thread, "args": {"name": named.get(thread, str(thread))}}
        for run in self.runs:
            sources = {k["name"]: k["sources"] for k in run.model.kernels}
            place = {"ph": "X", "pid": process, "tid": run.thread}
            yield {"name": f"run {run.model.info['model']}".strip(), "cat": "run", "ts": (run.begin - begin) * 1e6, "dur": run.seconds * 1e6, **place}
            for step in run.steps:
                args = {"kernel": step.kernel, "grid": list(step.grid), "source": "; ".join(sources.get(step.kernel, []))} if step.kernel else {}
                yield {"name": step.kernel or step.what, "cat": "step", "ts": (step.begin - begin) * 1e6, "dur": step.seconds * 1e6, **place, "args": args}


def _core():
    from ._model import _core
    return _core()


def _told(model, begin, end, steps):
    run = Run(model, threading.get_ident(), begin * 1e-9, end * 1e-9, tuple(Step(what, kernel, grid, b * 1e-9, e * 1e-9, depth) for what, kernel, grid, b, e, depth in steps))
    with _lock:
        for profile in _active:
            profile.runs.append(run)


def profile():
    """Notes what calls of models do meanwhile, each step with its time: `with neso.profile() as p: model(x)`, then `p.table()`,
    `p.save("trace.json")`. Costs nothing while no profile is open. Calls of all threads are noted; on a GPU each step is waited for, so
    that its time is its own."""
    return Profile()
