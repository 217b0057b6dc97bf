"""Triton's programs through Neso.

Where Triton is installed and no GPU is, its kernels run on the CPU, unchanged: Triton finds this backend by its entry point ("cpu" in the group
triton.backends) once the wheel `neso` is installed. `activate()` chooses it by hand, also beside a GPU. Triton's own front end, cache, autotuner
and hooks stay as they are; options of other backends are ignored.

Without Triton the same programs run by Neso's own front end, on tensors of torch and arrays of NumPy, on the CPU and on NVIDIA GPUs:

    import neso.triton as triton
    import neso.triton.language as tl

or `neso.triton.provide()` before a program that says `import triton`. jit, autotune, heuristics and testing mean what they mean in Triton."""

import sys

# Where the names of the module triton live; imported when one is first used, so that the backend alone takes none of it along.
_NAMES = {"jit": "_launch", "JITFunction": "_launch", "CompiledKernel": "_launch", "KernelInterface": "_launch", "constexpr_function": "_launch", "Config": "_tuning",
          "Autotuner": "_tuning", "Heuristics": "_tuning", "autotune": "_tuning", "heuristics": "_tuning", "export_tuning": "_tuning", "use_tuning": "_tuning", "interpret": "_interpret", "aggregate": "language"}
_MODULES = ("language", "testing", "runtime", "tools")
# The release of Triton whose language the front end reads.
__version__ = "3.9.0"


def __getattr__(name):
    from importlib import import_module
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _NAMES:
        globals()[name] = getattr(import_module(f"{__name__}.{_NAMES[name]}"), {"aggregate": "_aggregate"}.get(name, name))
        return globals()[name]
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def cdiv(x, y):
    """x / y, rounded up."""
    return (x + y - 1) // y


def next_power_of_2(n):
    return 1 << (n - 1).bit_length() if n > 1 else 1


def set_allocator(allocator):
    """For descriptors that kernels make: nothing is needed here."""


def activate():
    """Makes the CPU Triton's active device for this process."""
    import triton
    from triton.backends import Backend, backends

    from .compiler import NesoBackend
    from .driver import NesoDriver
    backends.setdefault("cpu", Backend(NesoBackend, NesoDriver))
    triton.runtime.driver.set_active(NesoDriver())


def deactivate():
    """Back to what Triton chooses by itself."""
    import triton
    triton.runtime.driver.reset_active()


def provide():
    """Makes `import triton` mean this module, in this process. To be called before anything imports Triton."""
    found = sys.modules.get("triton")
    if found is not None and found is not sys.modules[__name__]:
        raise ImportError("Triton is imported already; call neso.triton.provide() first, or neso.triton.activate() to run Triton's own kernels on the CPU")
    from . import language, runtime, testing, tools
    here = {"": sys.modules[__name__], ".language": language, ".runtime": runtime, ".runtime.jit": runtime, ".runtime.autotuner": runtime,
            ".runtime.driver": runtime, ".runtime.errors": runtime, ".testing": testing, ".tools": tools, ".tools.tensor_descriptor": tools}
    for name in ("core", "standard", "random", "math", "extra", "extra.cuda", "extra.libdevice", "extra.cuda.libdevice", "target_info"):
        here[".language." + name] = sys.modules[f"{language.__name__}.{name}"]
    tools.tensor_descriptor = tools
    from ._device import Absent, for_torch
    here |= for_torch(__version__)
    here[".profiler"] = Absent("triton.profiler", "measure with neso.profile()")
    here[".tools.mxfp"] = tools.mxfp = Absent("triton.tools.mxfp", "make the tensors with torch")
    for name in ("profiler", "backends", "compiler"):
        setattr(sys.modules[__name__], name, here["." + name])
    sys.modules.update({"triton" + name: module for name, module in here.items()})
