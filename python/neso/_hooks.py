"""What neso._core asks of Python: rare things, by name."""

import sys

from . import _errors
from ._dtypes import ROWS

# Types that NumPy does not have; the package ml_dtypes has some of them, under PyTorch's names.
_BEYOND_NUMPY = {row.torch: number for number, row in enumerate(ROWS) if not row.numpy}


def error(what):
    return _errors.of_status(*what)


def grad_function():
    """What says whether torch records for gradients, where torch is loaded."""
    torch = sys.modules.get("torch")
    return torch and torch.is_grad_enabled


def tensor_type():
    return sys.modules["torch"].Tensor


def result_type():
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch.Tensor
    import numpy
    return numpy.ndarray


def on_stream(asked):
    """(handle, what makes it torch's current stream, or None) of a stream that the caller chose for a model."""
    model, stream = asked
    kind, _, index = model.device.partition(":")
    if kind != "cuda":
        raise _errors.InputError(f"stream= is for models on a GPU; this one was loaded with device='{model.device}'", "E0808", "DEVICE")
    handle = stream_handle(stream)
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return handle or 1, None
    there = int(index or 0)
    if not isinstance(stream, torch.cuda.Stream):
        stream = torch.cuda.ExternalStream(handle, there) if handle > 1 else torch.cuda.default_stream(there)
    elif stream.device_index != there:
        raise _errors.InputError(f"the stream is of cuda:{stream.device_index}, the model was loaded for cuda:{there}", "E0808", "DEVICE")
    # CUDA and torch say 0 for the stream that the runtime calls 1.
    return handle or 1, torch.cuda.stream(stream)


def stream_handle(stream):
    """The CUstream behind a number, a stream of torch or CuPy, or whatever has __cuda_stream__."""
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    raise _errors.InputError(f"stream= takes a stream of torch or CuPy, the number of a CUstream, or what has __cuda_stream__, not {type(stream).__name__}")


def exception_text(exception):
    return f"{type(exception).__name__}: {exception}"


def dlpack_capsule(tensor):
    try:
        return tensor.__dlpack__(max_version=(1, 3))
    except TypeError:
        return tensor.__dlpack__()


def from_capsule(pair):
    kind, capsule = pair
    module = sys.modules.get(kind.__module__.partition(".")[0])

    class Holder:
        def __dlpack__(self, **_):
            return capsule

        def __dlpack_device__(self):
            return (1, 0)

    for place in (module, getattr(module, "numpy", None), getattr(module, "dlpack", None)):
        if hasattr(place, "from_dlpack"):
            return place.from_dlpack(Holder())
    raise _errors.InputError(f"results cannot be made as {kind.__module__}.{kind.__name__}: it has no from_dlpack; pass torch or numpy tensors")


def numpy_types():
    import numpy
    try:
        import ml_dtypes
    except ImportError:
        ml_dtypes = None
    def dtype(row):
        if row.numpy:
            return numpy.dtype(row.numpy)
        return numpy.dtype(getattr(ml_dtypes, row.torch)) if hasattr(ml_dtypes, row.torch) else None
    return numpy.ndarray, tuple(dtype(row) for row in ROWS)


def as_integers(array):
    """An array of ml_dtypes as integers over the same memory, and the number of its dtype."""
    name = getattr(getattr(array, "dtype", None), "name", type(array).__name__)
    if name in _BEYOND_NUMPY:
        return array.view(f"uint{8 * array.itemsize}"), _BEYOND_NUMPY[name]
    raise _errors.InputError(f"an array of dtype {name} is none that a model takes", "E0824", "INPUT_DTYPE")
