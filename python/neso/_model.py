"""A loaded model: what `neso.load` gives."""

import os
import threading
from dataclasses import dataclass
from typing import Optional

from . import _reshape, _tree
from ._errors import InputError


def _core():
    try:
        from . import _core as core
    except ImportError as e:
        raise ImportError("neso's runtime is not installed here: pip install neso-runtime, of the same version as neso") from e
    return core


@dataclass(frozen=True)
class Dim:
    """A size: `min` and `max` are both inclusive, max None means that nothing bounds it; `name` None: fixed, or computed from others."""
    min: int
    max: Optional[int]
    name: Optional[str] = None

    def __repr__(self):
        return str(self.min) if self.min == self.max else f"{self.name or '?'}={self.min}..{'' if self.max is None else self.max}"


@dataclass(frozen=True)
class Value:
    """An input or output: `kind` is tensor, int, float, bool, text or none."""
    name: str
    kind: str
    dtype: str
    dims: tuple
    mutated: bool
    optional: bool

    def __repr__(self):
        return f"{self.name}: {self.dtype if self.kind == 'tensor' else self.kind}{list(self.dims) if self.kind == 'tensor' else ''}"


def _values(rows):
    return tuple(Value(r["name"], r["kind"], r["dtype"], tuple(Dim(*d) for d in r["dims"]), r["mutated"], r["optional"]) for r in rows)


def _device(text):
    """"cpu", "cuda", "cuda:1", or a torch.device; None: -1."""
    if text is None:
        return -1, 0
    kind, _, index = str(text).partition(":")
    kinds = {"cpu": 0, "cuda": 1, "null": 2}
    if kind not in kinds or (index and not index.isdigit()):
        raise InputError(f"device '{text}' is not known; use cpu, cuda or cuda:N", "E0808", "DEVICE")
    return kinds[kind], int(index or 0)


def _operators(path):
    """The library of operators at `path`, which must stay loaded, and where its rows are: of operators, and of script objects (0: it has none)."""
    if path is None:
        return None, 0, 0
    import ctypes
    # Without a folder the system would look elsewhere than here.
    path = os.path.join(".", os.fspath(path)) if os.sep not in os.fspath(path) else os.fspath(path)
    try:
        library = ctypes.CDLL(path)
        operators = ctypes.addressof(ctypes.c_char.in_dll(library, "neso_ops"))
    except OSError as e:
        raise InputError(f"'{path}' cannot be used as a library of operators: {e}", "E0816", "OP_LIBRARY") from None
    except ValueError:
        raise InputError(f"'{path}' cannot be used as a library of operators: it has no array neso_ops", "E0816", "OP_LIBRARY") from None
    try:
        return library, operators, ctypes.addressof(ctypes.c_char.in_dll(library, "neso_objects"))
    except ValueError:
        return library, operators, 0


def _rows(objects):
    """Script objects of this process as an array of neso_object, which the caller keeps."""
    import ctypes

    class Row(ctypes.Structure):
        _fields_ = [("name", ctypes.c_char_p), ("object", ctypes.c_void_p)]

    return (Row * (len(objects) + 1))(*((name.encode(), id(o)) for name, o in objects.items()))


def _registered(name):
    """The operator of that name that torch has in this process, as _core calls it; None: there is none."""
    from . import _operators
    return _operators.registered(name)


def _make_class():
    core = _core()

    class Model(core.Model):
        """A package that is ready to run. Call it with the arguments of the exported module; results have the exported tree.

        Any number of threads may call at once; each concurrent call has a context of its own. A model that changes buffers of its own runs
        one call at a time. `out=` takes a tensor (or one for each output) to write the results into, `stream=` the CUDA stream that this call's work
        is queued on (unless the model itself has an argument of that name)."""

        def __init__(self, source, *, device="cpu", threads=0, name=None, arch=None, weights=None, check=False, result=None, cuda_driver=None, cublas=None, op_library=None,
                     contexts=0, stream=None, graph=None, objects=None, perf_map=False):
            kind, index = _device(device)
            if not isinstance(contexts, int) or isinstance(contexts, bool) or not 0 <= contexts <= 65536:
                raise InputError(f"contexts is how many calls may run at once, 0 (any number) to 65536, not {contexts!r}")
            if graph not in (None, "static"):
                raise InputError(f"graph is None or 'static', not {graph!r}")
            self._made_from = source, {"device": device if device is None else str(device), "threads": threads, "name": name, "arch": arch, "weights": weights, "check": check, "result": result,
                                       "cuda_driver": cuda_driver, "cublas": cublas, "op_library": op_library, "contexts": contexts, "stream": stream, "graph": graph, "objects": objects, "perf_map": perf_map}
            self.device = None if kind < 0 else f"cuda:{index}" if kind == 1 else ("cpu", "cuda", "null")[kind]
            if objects and op_library is not None:
                raise InputError("objects are for operators of this process: those of a library come with it, as its array neso_objects")
            self._operators, operators, rows = _operators(op_library)
            if objects:
                import ctypes
                # Rows and objects live as long as the model.
                self._objects = _rows(objects), dict(objects)
                rows = ctypes.addressof(self._objects[0])
            super().__init__(source=source, name=name, arch=arch, check=int(check), threads=threads, device=kind, device_index=index, constants=weights, driver=cuda_driver,
                             cublas=cublas, operators=operators, resolver=_registered if op_library is None else None, contexts=contexts, objects=rows, perf_map=perf_map)
            self.info = self.describe()
            self.inputs, self.outputs = _values(self.info["inputs"]), _values(self.info["outputs"])
            self._result_type = _result_type(result)
            self._stream_is_input = int(any(v.name == "stream" for v in self.inputs))
            if stream is not None:
                from . import _hooks
                _hooks.on_stream((self, stream))
                self._stream = stream
            self._reshape = _reshape.of(self)
            self._make_trees()

        def __reduce__(self):
            """A copy, also in another process, is the package loaded anew: its buffers have the package's values."""
            source, options = self._made_from
            # A stream is of this process.
            return _load_again, (bytes(source) if isinstance(source, memoryview) else source, {**options, "stream": None})

        def _make_trees(self):
            arguments, results = _tree.parse(self.info["in_spec"]), _tree.parse(self.info["out_spec"])
            self._flat_count, self._single = -1, 0
            if arguments is None:
                self._flat_count = len(self.inputs)
            else:
                positional, keywords = arguments.children if arguments.kind == "tuple" and len(arguments.children) == 2 else (arguments, None)
                if arguments.count != len(self.inputs):
                    self._flat_count = len(self.inputs)
                else:
                    leaves = all(c.kind == "leaf" for c in positional.children) and (keywords is None or not keywords.children)
                    self._flat_count = len(self.inputs) if leaves else -1
                    self._flatten = _Flatten(positional, keywords, [v.name for v in self.inputs])
            if results is None or results.kind == "leaf":
                self._single = int(len(self.outputs) == 1)
            elif not (results.kind == "tuple" and results.make is tuple and all(c.kind == "leaf" for c in results.children)):
                self._unflatten = lambda flat: results.build(iter(flat))

        @property
        def dims(self):
            """The names of the sizes that may differ between calls, with their ranges."""
            return {r["name"]: Dim(r["min"], r["max"], r["name"]) for r in self.info["dims"]}

        @property
        def constants(self):
            return {r["name"]: r for r in self.info["constants"]}

        @property
        def kernels(self):
            return self.info["kernels"]

        @property
        def metadata(self):
            return self.info["metadata"]

        def to_device(self, tree):
            """The tensors in `tree` (tuples, lists and dictionaries of them) on the model's device; those that lie there already are not copied, and
            what is no tensor stays as it is."""
            if self.device is None:
                raise InputError("the model was loaded to be described alone, device=None, and has no device")
            return _tree_on(tree, self.device)

        def buffers(self, like=None):
            """Copies of the buffers that runs change, as they are now: of torch where torch is loaded, else of numpy."""
            kind = _result_type(like or _loaded())
            return {r["name"]: self._buffer(r["name"], kind) for r in self.info["constants"] if r["mutated"]}

        def __repr__(self):
            return f"<neso.Model {self.info['model']}({', '.join(map(repr, self.inputs))}) -> ({', '.join(map(repr, self.outputs))})>"

    Model.__module__, Model.__qualname__ = "neso", "Model"
    return Model


def _make_static(model_class):
    class StaticModel(model_class):
        """graph="static": see `load`."""

        def __init__(self, source, **options):
            super().__init__(source, **options)
            self._replayed, self._one = None, threading.Lock()

        def __call__(self, *args, **kwargs):
            import sys
            torch = sys.modules.get("torch")
            own = self._reshape is not None or "out" in kwargs or ("stream" in kwargs and not self._stream_is_input) or self._stream is not None
            flat = None if own or torch is None or (self._result_type is not None and self._result_type is not torch.Tensor) else self._flat(args, kwargs)
            if flat is None or not all(isinstance(v, torch.Tensor) or v is None or type(v) in (bool, int, float, str) for v in flat):
                return super().__call__(*args, **kwargs)
            from ._replay import Replayed, by_sizes
            with self._one:
                if self._replayed is None:
                    self._replayed = Replayed(self, self.device.startswith("cuda"), [i for i, v in enumerate(self.inputs) if v.mutated], by_sizes)
                results = self._replayed(flat)
            out = results[0] if self._single else results
            return self._unflatten(out) if self._unflatten is not None else out

        def _flat(self, args, kwargs):
            if not kwargs and len(args) == self._flat_count:
                return list(args)
            return list(self._flatten(args, kwargs)) if self._flatten is not None else None

    StaticModel.__module__ = "neso"
    return StaticModel


def _make_copying(model_class):
    class CopyingModel(model_class):
        """copy_inputs=True: see `load`."""

        def __init__(self, source, **options):
            super().__init__(source, **options)
            changed = [v.name for v in self.inputs if v.mutated]
            if changed:
                raise InputError(f"copy_inputs: the model changes its arguments {', '.join(changed)}, and would change copies; bring them to {self.device} yourself, model.to_device(x)")

        def __call__(self, *args, **kwargs):
            # Where results go and what the work is queued on is no argument of the model.
            if self.device is None:
                return super().__call__(*args, **kwargs)
            own = {k: kwargs.pop(k) for k in ("out", "stream") if k in kwargs and not any(v.name == k for v in self.inputs)}
            return super().__call__(*_tree_on(args, self.device), **_tree_on(kwargs, self.device), **own)

        def __reduce__(self):
            make, (source, options) = super().__reduce__()
            return make, (source, {**options, "copy_inputs": True})

    CopyingModel.__module__ = "neso"
    return CopyingModel


def _tree_on(value, device):
    if isinstance(value, (list, tuple)):
        parts = [_tree_on(v, device) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return type(value)((k, _tree_on(v, device)) for k, v in value.items())
    import sys
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.to(device)
    if not hasattr(value, "__dlpack_device__") or isinstance(value, type):
        return value
    if device == "cpu" and value.__dlpack_device__()[0] == 1:
        return value
    if torch is None:
        raise InputError(f"a {type(value).__name__} is brought to {device} by torch, which is not loaded: import torch", "E0808", "DEVICE")
    return torch.from_dlpack(value).to(device)


class _Flatten:
    """Arguments as they are called to the flat inputs."""

    def __init__(self, positional, keywords, names):
        self.positional, self.keywords, self.names = positional, keywords, names

    def __call__(self, args, kwargs):
        kwargs, wanted = dict(kwargs or {}), self.positional.children
        args = list(args)
        # Positional parameters may be given by name where the name is an input's: the exported program keeps no others.
        if len(args) < len(wanted) and kwargs:
            at = sum(c.count for c in wanted[:len(args)])
            for child in wanted[len(args):]:
                if child.count != 1 or self.names[at] not in kwargs:
                    break
                args.append(kwargs.pop(self.names[at]))
                at += 1
        keys = self.keywords.keys if self.keywords is not None else ()
        unknown = [k for k in kwargs if k not in keys and k not in self.names]
        if unknown:
            raise InputError(f"the model has no argument {', '.join(map(repr, unknown))}; its inputs are {', '.join(self.names)}", "E0822", "INPUT_COUNT")
        if len(args) != len(wanted):
            raise InputError(f"the model takes {len(wanted)} positional arguments, {len(args)} were given; its inputs are {', '.join(self.names)}", "E0822", "INPUT_COUNT")
        flat = []
        for i, (value, child) in enumerate(zip(args, wanted)):
            child.flatten(value, flat, f"argument {i}")
        if set(kwargs) != set(keys):
            raise InputError(f"the model takes the keyword arguments {', '.join(keys) or '(none)'}; given are {', '.join(kwargs) or 'none'}", "E0822", "INPUT_COUNT")
        if keys:
            self.keywords.flatten(kwargs, flat, "the keyword arguments")
        return flat


def _loaded():
    import sys
    return "torch" if "torch" in sys.modules else "numpy"


def _result_type(result):
    if result is None or isinstance(result, type):
        return result
    if result == "torch":
        import torch
        return torch.Tensor
    if result == "numpy":
        import numpy
        return numpy.ndarray
    raise InputError(f"result must be 'torch', 'numpy' or a type of tensors, not {result!r}")


def _load_again(source, options):
    return load(source, **options)


def load(source, *, device="cpu", threads=0, name=None, arch=None, weights=None, check=False, result=None, cuda_driver=None, cublas=None,
         op_library=None, contexts=0, stream=None, graph=None, copy_inputs=False, objects=None, perf_map=False):
    """Loads a package: a path, bytes (or a memoryview), or what `neso.compile` gave.

    device:  "cpu", "cuda", "cuda:1"; None: the package, for whatever machine, is only described, and cannot be called
    threads: of each context; 0: one for each core that the process may use
    name:    which model of a package that holds several
    arch:    use the code for that target, not the best that fits
    weights: a dictionary of tensors for constants that the package leaves to the caller, or to replace some of its own; not copied
    check:   verify the checksum of every byte
    result:  "torch" or "numpy": what results are made of; by default what the first tensor argument is; without one, torch's where torch is loaded
    cuda_driver, cublas: paths of CUDA's libraries, or "" for no cuBLASLt; by default where the runtime looks
    op_library: a shared library with the operators that the model calls and that are not PyTorch's (neso_ops, see neso.h); without it those
             that torch has registered in this process are called
    objects: the script objects (torchbind) that the model uses, by the names of model.info["objects"], for operators that torch has registered and
             for methods; those of a library come with it (neso_objects). Where forward takes one, a call passes None
    contexts: how many calls may run at once, each with memory for intermediate results of its own: more calls wait for their turn; 0: any
             number. Models that change buffers of their own run one at a time
    stream:  on a GPU, the CUDA stream that work is queued on: torch's, CuPy's, the number of a CUstream, or what has __cuda_stream__; by default
             that which torch works on. A call may name another, model(x, stream=…). It must live until the work is done
             While torch records a graph (torch.cuda.graph), a call puts its kernels into it: call once before with the same sizes, and keep a model that is
             recorded, loaded for that alone, as long as the graph, which uses its memory
    graph:   "static": for tensors of torch, results lie in memory that is used again once nobody holds them, and on a GPU arguments whose address
             changes are copied to memory of the model's, so that a call is one launch of a CUDA graph from the third of its sizes on; calls
             take turns, and belong to one stream. A call with out= or a stream is as without it
    copy_inputs: arguments that lie on another device than the model's are copied there, where they are otherwise refused (on the CPU those of a GPU):
             model(*model.to_device(arguments)) at each call. Not for models that change their arguments
    perf_map: the names of the CPU's kernels are appended to /tmp/perf-PID.map, where `perf report` looks for those of code without a file

    A model that transposes an argument in place, x.transpose_(0, 1), leaves torch's tensor with its new shape, as the exported program does.

    On a GPU, arguments that lie there are used where they lie, the work is queued on the stream that torch works on, and results are
    torch's own memory: nobody waits (model.synchronize()). Arguments on the host are copied, and without any argument on the GPU results
    come back to the host.
    """
    data = getattr(source, "_data", None)
    if data is not None:
        source = data
    elif isinstance(source, (str, os.PathLike)):
        source = os.fspath(source)
    elif not isinstance(source, (bytes, bytearray, memoryview)):
        raise InputError(f"neso.load takes a path, bytes or a neso.Package, not {type(source).__name__}; neso.compile makes one of a model")
    kind = ("Copying" if copy_inputs else "") + ("StaticModel" if graph == "static" else "Model")
    return __getattr__(kind)(source, device=device, threads=threads, name=name, arch=arch, weights=weights, check=check, result=result, cuda_driver=cuda_driver, cublas=cublas,
                                op_library=op_library, contexts=contexts, stream=stream, graph=graph, objects=objects, perf_map=perf_map)


def __getattr__(name):
    # The class derives from the extension's, which is loaded when it is first needed.
    if name == "Model":
        globals()["Model"] = _make_class()
        return globals()["Model"]
    if name == "StaticModel":
        globals()[name] = _make_static(__getattr__("Model") if "Model" not in globals() else globals()["Model"])
        return globals()[name]
    if name in ("CopyingModel", "CopyingStaticModel"):
        globals()[name] = _make_copying(globals().get(name[7:]) or __getattr__(name[7:]))
        return globals()[name]
    raise AttributeError(name)
