"""The CPU as programs ask about it, by Triton's driver or by neso.triton.runtime."""

import os
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


class Absent(ModuleType):
    """A module of Triton that programs import, and that is not here: its names are refused when they are called."""

    def __init__(self, name, instead):
        super().__init__(name)
        self._instead = instead

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*args, **kwargs):
            raise Error(f"{self.__name__}.{name} is Triton's, which is not used here; {self._instead}")
        return refuse
