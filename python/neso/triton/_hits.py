"""Launches of an installed Triton's kernels that were launched with such arguments before: they are found and launched by the extension, while
the device is this one. Triton's own way to a launch, which compiles, checks and calls hooks, is taken for all else."""

import inspect

import triton
from triton import knobs
from triton.runtime.jit import JITFunction

_enter, _exit = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
_devices, _driver = triton.runtime.driver, None
_run, _at = JITFunction.run, JITFunction.__getitem__
# Whose values Triton asks for at each launch. None of them may change unseen.
_KNOBS = ("debug", "add_stages_inspection_hook", "launch_enter_hook", "launch_exit_hook")


def _guards(function, kernel):
    """(dictionary, key) of everything that a launch depends on beside its arguments."""
    caches = function.device_caches[0]
    found = [(vars(_devices), "_active"), (vars(function), "debug"), (function.device_caches, 0), *((vars(knobs.runtime), name) for name in _KNOBS)]
    found += [(caches[0], key) for key, known in caches[0].items() if known is kernel]
    return found + [(values, name) for (name, _), (_, values) in function.used_global_vals.items()]


class _Slow:
    """Triton's own launch, which is remembered where the next one needs nothing of it."""

    def __init__(self, function):
        self.function = function

    def __call__(self, grid, args, kwargs):
        function = self.function
        # Triton takes its options out of these.
        kernel = _run(function, *args, grid=grid, warmup=False, **kwargs)
        launcher = getattr(kernel, "_run", None)
        plain = knobs.runtime.launch_enter_hook is _enter and knobs.runtime.launch_exit_hook is _exit and knobs.runtime.add_stages_inspection_hook is None
        if plain and getattr(launcher, "flat", False) and not launcher.together and _here():
            function.__dict__["_neso"].remember(args, kwargs, kernel.function, launcher.name, launcher.letters, tuple(launcher.places), kernel, _guards(function, kernel))
        return kernel


def _here():
    return type(_devices._active) is _driver


def _make(function):
    """The extension's side of a kernel; False where its parameters are not passed one by one."""
    from .._model import _core
    made = False
    if all(p._param.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in function.params):
        rows = [(p.name, p.has_default, p.default, p.is_constexpr, not p.do_not_specialize, not (p.do_not_specialize or p.do_not_specialize_on_alignment)) for p in function.params]
        made = _core().Kernel(rows, _Slow(function), (function.pre_run_hooks, _enter.calls, _exit.calls))
    function.__dict__["_neso"] = made
    return made


def _launcher(self, grid):
    if type(_devices._active) is _driver:
        known = self.__dict__.get("_neso")
        if known is None:
            known = _make(self)
        if known:
            return known.at(grid)
    return _at(self, grid)


def _launch(self, *args, grid, warmup, **kwargs):
    if warmup or not (_here() and (self.__dict__.get("_neso") or _make(self))):
        return _run(self, *args, grid=grid, warmup=warmup, **kwargs)
    return self.__dict__["_neso"].at(grid)(*args, **kwargs)


def install(driver):
    """For all kernels of this process, while a device of that type is active."""
    global _driver
    _driver = driver
    JITFunction.run, JITFunction.__getitem__ = _launch, _launcher
