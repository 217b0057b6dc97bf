"""What neso._core asks of Python: rare things, by name."""

import sys

from . import _errors

# In the order of neso_dtype (neso.h).
DTYPES = ("bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e8m0fnu",
          "f16", "bf16", "f32", "f64", "c32", "c64", "c128")
_NUMPY = {"bool": "bool", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "i8": "int8", "i16": "int16", "i32": "int32",
          "i64": "int64", "f16": "float16", "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}
# Of the package ml_dtypes, where it is installed.
_ML_DTYPES = {"bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "f8e4m3fnuz": "float8_e4m3fnuz",
              "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0fnu": "float8_e8m0fnu"}


def error(what):
    return _errors.of_status(*what)


def grad_enabled():
    torch = sys.modules.get("torch")
    return torch is not None and torch.is_grad_enabled()


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
    def dtype(name):
        if name in _NUMPY:
            return numpy.dtype(_NUMPY[name])
        return numpy.dtype(getattr(ml_dtypes, _ML_DTYPES[name])) if name in _ML_DTYPES and hasattr(ml_dtypes, _ML_DTYPES[name]) else None
    return numpy.ndarray, tuple(dtype(name) for name in DTYPES)


def as_integers(array):
    """An array of ml_dtypes as integers over the same memory, and the number of its dtype."""
    name = getattr(getattr(array, "dtype", None), "name", type(array).__name__)
    for ours, theirs in _ML_DTYPES.items():
        if theirs == name:
            return array.view("uint16" if ours == "bf16" else "uint8"), DTYPES.index(ours)
    raise _errors.InputError(f"an array of dtype {name} is none that a model takes", "E0824", "INPUT_DTYPE")
