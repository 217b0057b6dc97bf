"""Neso's C API through ctypes, as far as a bench needs it: load a package, run it again and again."""
import ctypes
from pathlib import Path

import torch

# The order of neso_dtype in runtime/include/neso/neso.h.
_DTYPES = [torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64,
           torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, None, torch.float16, torch.bfloat16,
           torch.float32, torch.float64]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("sizes", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("rank", ctypes.c_int32), ("dtype", ctypes.c_int), ("device", ctypes.c_int), ("device_index", ctypes.c_int32)]


class ContextOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("threads", ctypes.c_int)] + [
        (name, ctypes.c_void_p) for name in ("parallel_for", "parallel_for_user", "allocate", "release", "allocator_user", "on_step",
                                             "on_step_user", "on_print", "on_print_user")]


class ContextStats(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in ("arena_bytes", "output_bytes", "buffer_bytes", "scratch_bytes")] + [
        ("threads", ctypes.c_int), ("steps", ctypes.c_int64)]


class Library:
    def __init__(self, path):
        self.api = ctypes.CDLL(str(Path(path).resolve()))
        self.api.neso_error_text.restype = ctypes.c_char_p

    def check(self, status):
        if status:
            raise RuntimeError(self.api.neso_error_text().decode())

    def load(self, package, threads):
        return Program(self, package, threads)


class Program:
    def __init__(self, library, package, threads):
        self.library, self.model, self.context = library, ctypes.c_void_p(), ctypes.c_void_p()
        library.check(library.api.neso_model_load(str(package).encode(), None, ctypes.byref(self.model)))
        options = ContextOptions(struct_size=ctypes.sizeof(ContextOptions), threads=threads)
        library.check(library.api.neso_context_create(self.model, ctypes.byref(options), ctypes.byref(self.context)))
        self.outputs = (Tensor * library.api.neso_model_output_count(self.model))()

    def bind(self, tensors):
        """Inputs, kept alive; then call run()."""
        self.kept = [t.contiguous() for t in tensors]
        self.sizes = [(ctypes.c_int64 * max(1, t.dim()))(*t.shape) for t in self.kept]
        self.inputs = (Tensor * len(tensors))(*[Tensor(t.data_ptr(), s, None, t.dim(), _DTYPES.index(t.dtype), 0, 0)
                                                for t, s in zip(self.kept, self.sizes)])
        self.call = self.library.api.neso_run
        self.args = (self.context, self.inputs, ctypes.c_size_t(len(self.inputs)), self.outputs, ctypes.c_size_t(len(self.outputs)))

    def run(self):
        # A run may leave pointers of its own memory in `outputs`; without clearing them the next one would copy into that memory.
        ctypes.memset(self.outputs, 0, ctypes.sizeof(self.outputs))
        if self.call(*self.args):
            self.library.check(1)

    def results(self):
        tensors = []
        for out in self.outputs:
            shape = [out.sizes[d] for d in range(out.rank)]
            dtype = _DTYPES[out.dtype]
            count = 1
            for d in range(out.rank):
                count += (shape[d] - 1) * out.strides[d] if out.strides else 0
            if not out.strides:
                count = int(torch.Size(shape).numel())
            size = count * torch.empty(0, dtype=dtype).element_size()
            raw = torch.frombuffer(bytearray(ctypes.string_at(out.data, size)), dtype=dtype)
            tensors.append(raw.as_strided(shape, [out.strides[d] for d in range(out.rank)]) if out.strides else raw.reshape(shape))
        return tensors

    def stats(self):
        stats = ContextStats()
        self.library.check(self.library.api.neso_context_get_stats(self.context, ctypes.byref(stats)))
        return stats
