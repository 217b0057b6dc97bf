"""The CPU as programs ask about it, by Triton's driver or by neso.triton.runtime."""

import os
from importlib.machinery import ModuleSpec
from types import ModuleType

from .._errors import Error

# What programs and Triton's own checks compare with; nothing here limits a kernel.
NO_LIMIT = 1 << 30


class Utilities:
    """What is asked of a device's runtime."""

    def get_device_properties(self, device):
        return {"max_shared_mem": NO_LIMIT, "multiprocessor_count": os.cpu_count() or 1, "max_num_regs": NO_LIMIT, "warpSize": 32, "sm_clock_rate": 1, "mem_clock_rate": 1,
                "mem_bus_width": 64}


class Host:
    """A device of one number and one stream, with the memory that benchmarks write to forget what is cached."""
    utils = Utilities()

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=None):
        return 0

    def get_active_torch_device(self):
        import torch
        return torch.device("cpu")

    def get_empty_cache_for_benchmark(self):
        import torch
        return torch.empty(16 << 20, dtype=torch.int8)

    def clear_cache(self, memory):
        memory.zero_()


class _Here:
    """Loads a module that was made in this process: programs find specs of Triton's modules, and load them once more."""

    def __init__(self, module):
        self._module = module

    def create_module(self, spec):
        return self._module

    def exec_module(self, module):
        """It has its names."""


def spec_of(module):
    return ModuleSpec(module.__name__, _Here(module))


class Absent(ModuleType):
    """A module of Triton that programs import, and that is not here: its names are refused when they are called."""

    def __init__(self, name, instead):
        super().__init__(name)
        self.__spec__ = spec_of(self)
        self._instead = instead

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*args, **kwargs):
            raise Error(f"{self.__name__}.{name} is Triton's, which is not used here; {self._instead}")
        return refuse


class Target:
    """What Triton calls a GPUTarget."""

    def __init__(self, backend, arch, warp_size):
        self.backend, self.arch, self.warp_size = backend, arch, warp_size


def _module(name, **members):
    made = ModuleType("triton." + name)
    made.__spec__ = spec_of(made)
    made.__dict__.update(members)
    return made


def for_torch(version):
    """Modules by name that parts of torch import wherever there is a Triton; programs import those parts, and seldom know it (torch.compiler.disable does)."""
    from ._launch import CompiledKernel
    sources = Absent("triton.compiler.compiler", "compile with neso.compile() or `neso kernel compile`")
    sources.CompiledKernel, sources.triton_key = CompiledKernel, lambda: "neso for Triton " + version
    found = {".backends.compiler": _module("backends.compiler", GPUTarget=Target), ".compiler.compiler": sources}
    found[".backends"] = _module("backends", compiler=found[".backends.compiler"], backends={})
    found[".compiler"] = _module("compiler", compiler=sources, CompiledKernel=CompiledKernel)
    return found


class Together:
    """A kernel of the CPU on as many threads as it has programs: they may wait for each other (launch_cooperative_grid)."""

    def __init__(self, package):
        self.package, self.latest = package, (0, None)

    def __call__(self, programs):
        from .._model import load
        # Both in one, since threads launch at the same time: fewer threads than programs would wait for ever.
        latest = self.latest
        if latest[0] != programs:
            self.latest = latest = programs, load(self.package, threads=programs)
        return latest[1]
