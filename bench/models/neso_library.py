"""Neso's C API through ctypes, as far as benches and tools need it: load a package, run it again and again, on the CPU or a GPU."""
import ctypes
from pathlib import Path

import torch

# The order of neso_dtype in runtime/include/neso/neso.h.
_DTYPES = [torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64,
           torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, None, torch.float16, torch.bfloat16,
           torch.float32, torch.float64, torch.complex32, torch.complex64, torch.complex128]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("sizes", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("rank", ctypes.c_int32), ("dtype", ctypes.c_int), ("device", ctypes.c_int), ("device_index", ctypes.c_int32)]


class ContextOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("threads", ctypes.c_int)] + [
        (name, ctypes.c_void_p) for name in ("parallel_for", "parallel_for_user", "allocate", "release", "allocator_user", "on_step",
                                             "on_step_user", "on_print", "on_print_user")] + [
        ("device", ctypes.c_int), ("device_index", ctypes.c_int32), ("stream", ctypes.c_void_p), ("cuda_graphs", ctypes.c_int32),
        ("cuda_driver", ctypes.c_char_p), ("cublas", ctypes.c_char_p), ("cuda_streams", ctypes.c_int32), ("time_steps", ctypes.c_int32)]


class ContextStats(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in ("arena_bytes", "output_bytes", "buffer_bytes", "scratch_bytes")] + [
        ("threads", ctypes.c_int), ("steps", ctypes.c_int64)]


class DeviceStats(ctypes.Structure):
    _fields_ = [("constant_bytes", ctypes.c_size_t), ("graphs", ctypes.c_int32), ("graph_launches", ctypes.c_int64),
                ("kernel_launches", ctypes.c_int64), ("library_calls", ctypes.c_int64), ("library_products", ctypes.c_int32),
                ("library", ctypes.c_char_p), ("library_version", ctypes.c_int32), ("graph_streams", ctypes.c_int32), ("box_launches", ctypes.c_int64)]


class ModelStats(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in ("package_bytes", "plan_bytes", "constant_bytes")] + [
        (n, ctypes.c_int64) for n in ("step_count", "launch_count", "product_count")] + [("load_ms", ctypes.c_double)]


class Argument(ctypes.Union):
    _fields_ = [("ptr", ctypes.c_void_p), ("i64", ctypes.c_int64), ("f64", ctypes.c_double), ("f32", ctypes.c_float)]


CPU, CUDA = 0, 1


def device_of(tensor):
    return (CUDA, tensor.device.index or 0) if tensor.is_cuda else (CPU, 0)


class Library:
    def __init__(self, path):
        self.api = ctypes.CDLL(str(Path(path).resolve()))
        self.api.neso_error_text.restype = ctypes.c_char_p
        self.api.neso_model_metadata.restype = ctypes.c_char_p

    def check(self, status):
        if status:
            raise RuntimeError(self.api.neso_error_text().decode())

    def load(self, package, threads=0, device=CPU, stream=None, graphs=0, index=0, cublas=None, streams=0):
        """stream: a CUDA stream's handle; None: the context's own. graphs: how many CUDA graphs are kept; -1: none. index: of the GPU.
        cublas: path of cuBLASLt; None: the system's; "": our kernels compute all products.
        streams: that a CUDA graph spreads over; 0: the runtime's choice."""
        return Program(self, package, threads, device, stream, graphs, index, cublas, streams)


class Program:
    def __init__(self, library, package, threads, device=CPU, stream=None, graphs=0, index=0, cublas=None, streams=0):
        self.device = device
        self.library, self.model, self.context = library, ctypes.c_void_p(), ctypes.c_void_p()
        library.check(library.api.neso_model_load(str(package).encode(), None, ctypes.byref(self.model)))
        options = ContextOptions(struct_size=ctypes.sizeof(ContextOptions), threads=threads, device=device, device_index=index, stream=stream, cuda_graphs=graphs,
                                 cublas=None if cublas is None else cublas.encode(), cuda_streams=streams)
        library.check(library.api.neso_context_create(self.model, ctypes.byref(options), ctypes.byref(self.context)))
        self.outputs = (Tensor * library.api.neso_model_output_count(self.model))()

    def tensor(self, t):
        """A torch tensor (or None) as the C struct, where it lies; the caller keeps it alive."""
        if t is None:
            return Tensor()
        sizes, strides = (ctypes.c_int64 * max(1, t.dim()))(*t.shape), (ctypes.c_int64 * max(1, t.dim()))(*t.stride())
        self.arrays.append((sizes, strides))
        return Tensor(t.data_ptr(), sizes, strides, t.dim(), _DTYPES.index(t.dtype), *device_of(t))

    def bind(self, tensors, outputs=None):
        """Inputs, kept alive, and maybe tensors for the outputs; then call run()."""
        self.arrays = []
        self.kept = (list(tensors), outputs)
        self.inputs = (Tensor * max(1, len(tensors)))(*[self.tensor(t) for t in tensors])
        self.fixed_outputs = outputs is not None
        if outputs is not None:
            self.outputs = (Tensor * len(outputs))(*[self.tensor(t) for t in outputs])
        self.call = self.library.api.neso_run
        self.args = (self.context, self.inputs, ctypes.c_size_t(len(tensors)), self.outputs, ctypes.c_size_t(len(self.outputs)))

    def run(self):
        # A run may leave pointers of its own memory in `outputs`; without clearing them the next one would copy into that memory.
        if not self.fixed_outputs:
            ctypes.memset(self.outputs, 0, ctypes.sizeof(self.outputs))
        if self.call(*self.args):
            self.library.check(1)

    def run_async(self):
        """Queued on the context's stream; needs bound outputs."""
        if self.library.api.neso_run_async(*self.args):
            self.library.check(1)

    def synchronize(self):
        self.library.check(self.library.api.neso_context_synchronize(self.context))

    def launch(self, kernel, grid, arguments):
        """One kernel by name; arguments: list of Argument."""
        self.library.check(self.library.api.neso_kernel_launch(self.context, kernel.encode(), (ctypes.c_uint32 * 3)(*grid),
                                                               (Argument * max(1, len(arguments)))(*arguments), ctypes.c_size_t(len(arguments))))

    def buffer(self, name):
        """A buffer that the model mutates, as a host tensor of its bytes' dtype, contiguous."""
        there = Tensor()
        self.library.check(self.library.api.neso_context_buffer(self.context, name.encode(), ctypes.byref(there)))
        shape = [there.sizes[d] for d in range(there.rank)]
        strides = [there.strides[d] for d in range(there.rank)] if there.strides else None
        here = torch.empty(shape, dtype=_DTYPES[there.dtype])
        if strides:
            here = torch.empty_strided(shape, strides, dtype=_DTYPES[there.dtype])
        if there.device == CPU:
            ctypes.memmove(here.data_ptr(), there.data, here.untyped_storage().nbytes())
        else:
            self.arrays = getattr(self, "arrays", [])
            self.library.check(self.library.api.neso_tensor_copy(self.context, ctypes.byref(self.tensor(here)), ctypes.byref(there)))
        return here

    def free(self):
        self.library.api.neso_context_free(self.context)
        self.library.api.neso_model_free(self.model)

    def results(self):
        tensors = []
        for out in self.outputs:
            if not out.data:
                tensors.append(None)
                continue
            shape = [out.sizes[d] for d in range(out.rank)]
            dtype = _DTYPES[out.dtype]
            count = 1
            for d in range(out.rank):
                count += (shape[d] - 1) * out.strides[d] if out.strides else 0
            if not out.strides:
                count = int(torch.Size(shape).numel())
            if 0 in shape:
                tensors.append(torch.empty(shape, dtype=dtype))
                continue
            size = count * torch.empty(0, dtype=dtype).element_size()
            raw = torch.frombuffer(bytearray(ctypes.string_at(out.data, size)), dtype=dtype)
            tensors.append(raw.as_strided(shape, [out.strides[d] for d in range(out.rank)]) if out.strides else raw.reshape(shape))
        return tensors

    def stats(self):
        stats = ContextStats()
        self.library.check(self.library.api.neso_context_get_stats(self.context, ctypes.byref(stats)))
        return stats

    def device_stats(self):
        stats = DeviceStats()
        self.library.check(self.library.api.neso_context_get_device_stats(self.context, ctypes.byref(stats)))
        return stats

    def product_count(self):
        """How many launches may be left to a library for matrix products."""
        stats = ModelStats()
        self.library.check(self.library.api.neso_model_get_stats(self.model, ctypes.byref(stats)))
        return stats.product_count
