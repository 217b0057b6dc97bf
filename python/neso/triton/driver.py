"""Triton's device "cpu": launches packages of Neso on the memory of tensors."""

import hashlib
import time

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from .. import cache
from .._errors import Error
from ._device import NO_LIMIT, Host, Together, Utilities

# Registers and those of them that were spilled. Programs divide a device's registers by the first.
_TAKES = (1, 0)


class _Utilities(Utilities):
    """And what Triton loads with it."""

    def load_binary(self, name, package, shared, device):
        from .._model import load
        model = load(package)
        model.together = Together(package)
        # Module and function at once: without a module Triton would load again for each launch.
        return model, model, *_TAKES, NO_LIMIT

    def unload_module(self, module):
        pass


def _letter(type_text):
    """The letter of `launch` for a type of a signature; None for what is compiled in."""
    if type_text == "constexpr":
        return None
    if type_text.startswith("*"):
        return "p"
    if type_text == "fp64":
        return "d"
    if type_text.startswith(("fp", "bf")):
        return "f"
    if type_text.startswith(("i", "u")):
        return "i"
    raise Error(f"a kernel takes an argument of type {type_text}, which launches on the CPU do not pass")


def _leaves(types, path=()):
    """(path, type) of every argument; tuples are taken apart, and descriptors into the tensor, its sizes and its strides."""
    for i, one in enumerate(types):
        if isinstance(one, tuple):
            yield from _leaves(one, (*path, i))
        elif one.startswith("tensordesc"):
            rank = one[one.index("[") + 1:one.index("]")].count(",") + 1
            yield (*path, i, "base"), "*"
            yield from (((*path, i, part, d), "i64") for part in ("shape", "strides") for d in range(rank))
        else:
            yield (*path, i), one


class Launcher:
    """Triton's call of a compiled kernel, with its runtime arguments alone."""

    def __init__(self, source, metadata):
        passed = [(path, _letter(kind)) for path, kind in _leaves(source.signature.values()) if _letter(kind)]
        self.letters, self.name = "".join(letter for _, letter in passed), metadata.name
        self.paths = [path for path, _ in passed]
        self.flat = all(len(path) == 1 for path in self.paths)
        self.descriptors = sorted({path[:path.index("base")] for path in self.paths if "base" in path})
        self.places = [path[0] for path in self.paths]
        self.together = metadata.launch_cooperative_grid

    def __call__(self, x, y, z, stream, function, kernel_metadata, launch_metadata, enter_hook, exit_hook, *args):
        if self.flat:
            values = tuple([args[i] for i in self.places])
        else:
            for path in self.descriptors:
                _check_descriptor(_at(args, path))
            values = tuple(_at(args, path) for path in self.paths)
        if enter_hook is not None:
            enter_hook(launch_metadata)
        if x * y * z > 0:
            model = function.together(x * y * z) if self.together else function
            model.launch(self.name, (x, y, z), self.letters, values)
        if exit_hook is not None:
            exit_hook(launch_metadata)


def _at(value, path):
    for step in path:
        value = getattr(value, step) if isinstance(step, str) else value[step]
    return value


def _check_descriptor(value):
    if value.padding != "zero" or value.round_f32_to_tf32:
        raise Error("a tensor descriptor made on the host pads with NaN or rounds to TF32, which launches on the CPU do not do; make it in the kernel")


class _Event:
    """A moment, where a GPU has a mark on its stream."""

    def __init__(self, enable_timing=False):
        self.time = 0.0

    def record(self):
        self.time = time.perf_counter()

    def elapsed_time(self, end):
        # Never zero: callers divide by it.
        return max((end.time - self.time) * 1e3, 1e-6)


class _Interface:
    """What benchmarks ask of torch.cuda."""
    Event = _Event

    def synchronize(self):
        pass

    def current_device(self):
        return 0


class NesoDriver(Host, DriverBase):
    utils = _Utilities()
    launcher_cls = Launcher

    def __init__(self):
        super().__init__()
        from . import _hits
        _hits.install(NesoDriver)

    @classmethod
    def is_active(cls):
        try:
            import torch
        except ImportError:
            return True
        return not torch.cuda.is_available()

    def map_python_to_cpp_type(self, ty):
        return {"i1": "int8_t", "fp16": "double", "bf16": "double", "fp32": "double", "fp64": "double"}.get(ty, "void*" if ty.startswith("*") else "int64_t")

    def get_current_target(self):
        return GPUTarget("cpu", "native-" + hashlib.sha256(cache.machine().encode()).hexdigest()[:12], 32)

    def set_current_device(self, device):
        pass

    def get_device_interface(self):
        return _Interface()

    def get_benchmarker(self):
        from triton.testing import do_bench
        return do_bench
