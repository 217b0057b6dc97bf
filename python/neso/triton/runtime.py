"""triton.runtime without Triton: the device."""

import os

from ._launch import JITFunction, KernelInterface  # noqa: F401
from ._tuning import Autotuner, Config, Heuristics  # noqa: F401


class _Target:
    def __init__(self, backend, arch, warp_size):
        self.backend, self.arch, self.warp_size = backend, arch, warp_size


class _Utilities:
    def get_device_properties(self, device):
        return {"max_shared_mem": 1 << 30, "multiprocessor_count": os.cpu_count() or 1, "max_num_regs": 1 << 30, "warpSize": 32, "sm_clock_rate": 1, "mem_clock_rate": 1, "mem_bus_width": 64}


class _Active:
    utils = _Utilities()

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=None):
        return 0

    def get_current_target(self):
        return _Target("cpu", "native", 32)

    def get_active_torch_device(self):
        import torch
        return torch.device("cpu")

    def get_benchmarker(self):
        from .testing import do_bench
        return do_bench

    def get_empty_cache_for_benchmark(self):
        import torch
        return torch.empty(16 << 20, dtype=torch.int8)

    def clear_cache(self, memory):
        memory.zero_()


class _Driver:
    active = _Active()


driver = _Driver()
