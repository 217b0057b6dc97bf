"""triton.runtime without Triton: the device."""

from ._device import Host
from ._launch import JITFunction, KernelInterface  # noqa: F401
from ._tuning import Autotuner, Config, Heuristics  # noqa: F401


class _Target:
    def __init__(self, backend, arch, warp_size):
        self.backend, self.arch, self.warp_size = backend, arch, warp_size


class _Active(Host):
    def get_current_target(self):
        return _Target("cpu", "native", 32)

    def get_benchmarker(self):
        from .testing import do_bench
        return do_bench


class _Driver:
    active = _Active()


driver = _Driver()
