"""triton.runtime without Triton: the device."""

import sys

from ._device import Host, Target
from ._launch import JITFunction, KernelInterface  # noqa: F401
from ._tuning import Autotuner, Config, Heuristics, autotune, heuristics  # noqa: F401


class OutOfResources(Exception):
    """Programs catch it where a configuration may ask for more than a GPU has; a refusal here is a neso.Error."""


class PTXASError(Exception):
    """Programs catch it, too."""


class _Active(Host):
    def get_current_target(self):
        return Target("cpu", "native", 32)

    def get_benchmarker(self):
        from .testing import do_bench
        return do_bench


class _Driver:
    active = _Active()


driver = _Driver()
# Triton has modules of these names, of which programs ask for the classes above.
autotuner = errors = jit = sys.modules[__name__]
