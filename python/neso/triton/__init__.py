"""Existing Triton programs on the CPU: where Triton is installed and no GPU is, its kernels run through Neso, unchanged.

Triton finds this backend by its entry point ("cpu" in the group triton.backends) once the wheel `neso` is installed. `activate()` chooses
it by hand, also beside a GPU. Triton's own front end, cache, autotuner and hooks stay as they are; options of other backends are ignored."""


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
