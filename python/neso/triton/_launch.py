"""Kernels without Triton: `jit`, and what a launch of one does. Arguments are specialised by Triton's rules: a whole number that is 1 becomes a
constant, one that 16 divides is known to be so, and so are addresses."""

import hashlib
import inspect
import math
import operator
import os
import re
import sys
import tempfile
import textwrap
import warnings
from collections import namedtuple

from .. import _program, cache
from .._compile import _assembler, gpu_arch
from .._dtypes import ROWS
from .._errors import Error, InputError
from . import _interpret
from . import language as tl
from ._device import Together
from ._source import FROM_TORCH, Source, literal, named_in, source_lines

# Of a launch, by keyword; a kernel that has a parameter of that name gets it too, as in Triton.
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "num_consumer_groups", "num_buffers_warp_spec", "enable_fp_fusion", "launch_cooperative_grid", "launch_pdl",
           "waves_per_eu", "matrix_instr_nonkdim", "kpack", "ir_override", "warp_size", "debug", "sanitize_overflow", "extern_libs", "allow_flush_denorm")
# By the names of torch and NumPy.
_NUMPY = {row.torch: row.triton for row in ROWS if row.triton}
_elements = {}


def _element(dtype):
    """As signatures spell the dtype of a tensor."""
    found = _elements.get(dtype)
    if found is None:
        name = str(dtype).rpartition(".")[2]
        found = _NUMPY.get(name) or (tl.TYPES[FROM_TORCH[name]][0] if name in FROM_TORCH else None)
        if found is None:
            raise InputError(f"Triton has no pointer to {dtype}", "E0824", "INPUT_DTYPE")
        _elements[dtype] = found
    return found


def _address(value):
    return value.data_ptr() if hasattr(value, "data_ptr") else value.__array_interface__["data"][0]


def _passed(value):
    """What goes to the kernel: of an object that has an address and is no tensor, as programs make them of a part of one, the address."""
    return _address(value) if hasattr(value, "data_ptr") and not hasattr(value, "__dlpack__") else value


def _is_array(value):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _whole(value):
    return "i32" if -(1 << 31) <= value < 1 << 31 else "i64" if value < 1 << 63 else "u64"


def _known(part):
    """Whether a part of a tuple is known when the kernel is compiled."""
    return part is None or isinstance(part, (tl.constexpr, JITFunction))


def _parts(value):
    """What a tuple holds that is passed, and the tuples in it; of anything else itself."""
    return [inner for v in value if not _known(v) for inner in _parts(v)] if isinstance(value, tuple) else [value]


class _Identities:
    """Names that tell functions and classes apart, as those of a file do."""

    @staticmethod
    def get(identity, name):
        return f"{name}@{identity}"


def _constant_key(value):
    """Tells apart what compares equal and is not the same: 1, 1.0 and True, 0.0 and -0.0."""
    if isinstance(value, (list, tuple)):
        return tuple, tuple(_constant_key(v) for v in value)
    return type(value), value.hex() if type(value) is float else value


class _Parameter:
    def __init__(self, index, p, no_value, no_alignment):
        text = p.annotation if isinstance(p.annotation, str) else ""
        self.name, self.default = p.name, p.default
        self.constexpr = p.annotation is tl.constexpr or isinstance(p.annotation, tl.constexpr) or text.endswith("constexpr") or "constexpr[" in text
        self.by_value = not (index in no_value or p.name in no_value)
        self.by_alignment = self.by_value and not (index in no_alignment or p.name in no_alignment)

    def key(self, value):
        """What of a value a compiled kernel depends on."""
        if self.constexpr:
            return _constant_key(value)
        if type(value) is int:
            if self.by_value and value == 1:
                return 1
            return (-(1 << 31) <= value < 1 << 31, value >> 63 > 0, self.by_alignment and value % 16 == 0)
        if value is None or type(value) in (float, bool):
            return type(value)
        if isinstance(value, float):
            return float
        if type(value).__module__ == "numpy" and not _is_array(value):
            # Its memory would be taken for a pointer's.
            raise InputError(f"argument '{self.name}' is a scalar of type {type(value).__name__}; pass a Python number", "E0824", "INPUT_DTYPE")
        dtype = getattr(value, "dtype", None)
        if dtype is not None:
            return dtype, not self.by_alignment or _address(value) % 16 == 0
        if isinstance(value, tl.constexpr):
            return "constexpr", _constant_key(value.value)
        if hasattr(value, "block_shape"):
            return value.base.dtype, tuple(value.block_shape)
        if isinstance(value, tuple):
            return tuple, self.part(value, _Identities)
        if hasattr(value, "data_ptr") or hasattr(value, "__index__"):
            raise Error(f"argument '{self.name}' is {type(value).__name__}; pass a tensor with a dtype or a Python number")
        raise InputError(f"argument '{self.name}' is {type(value).__name__}; a kernel takes tensors, arrays, numbers, None and descriptors", "E0824", "INPUT_DTYPE")

    def part(self, value, names):
        """The type of what a tuple holds, as signatures have it, and of what is known the value. Parts are not specialised. `names`: of functions and
        classes in the kernel's file."""
        if _known(value):
            return "=" + literal(value, names)
        if isinstance(value, tuple):
            kind = names.get(id(type(value)), type(value).__name__) if hasattr(value, "_fields") else ""
            return f"{kind}({','.join(self.part(v, names) for v in value)})"
        if type(value) is bool:
            return "u1"
        if type(value) is int:
            return _whole(value)
        if type(value) is float:
            return "fp32"
        if getattr(value, "dtype", None) is not None and (hasattr(value, "data_ptr") or _is_array(value)):
            return "*" + _element(value.dtype)
        raise Error(f"argument '{self.name}' is a tuple with a {type(value).__name__} in it; launches without Triton pass tuples of tensors, arrays, numbers and None")

    def declare(self, value, names, out):
        """Its part of signature, constants and hints."""
        if self.constexpr or isinstance(value, tl.constexpr) or value is None:
            out.constants.append((self.name, value))
        elif type(value) is bool:
            out.signature.append(f"{self.name}:u1")
        elif type(value) is int:
            out.signature.append(f"{self.name}:{_whole(value)}")
            if self.by_value and value == 1:
                out.hints.append((self.name, "equal_to_1"))
            elif self.by_alignment and value % 16 == 0:
                out.hints.append((self.name, "divisible_by_16"))
        elif isinstance(value, float):
            out.signature.append(f"{self.name}:fp32")
        elif isinstance(value, tuple):
            out.signature.append(f"{self.name}:{self.part(value, names)}")
        elif hasattr(value, "block_shape"):
            out.signature.append(f"{self.name}:tensordesc<{_element(value.base.dtype)}[{','.join(str(int(b)) for b in value.block_shape)}]>")
        else:
            out.signature.append(f"{self.name}:*{_element(value.dtype)}")
            if not self.by_alignment or _address(value) % 16:
                out.hints.append((self.name, "none"))


class _Declared:
    def __init__(self):
        self.signature, self.constants, self.hints = [], [], []


# Programs divide a device's registers and memory by what a kernel takes of them: nothing, of what is not limited.
Metadata = namedtuple("Metadata", "name shared num_warps num_stages num_ctas target")


# In place of a descriptor's rank.
_TUPLE = -1


class CompiledKernel:
    """A kernel for one set of specialised arguments. `package`: its bytes, for neso.load and C programs."""
    n_regs, n_spills = 1, 0

    def __init__(self, package, device, names, descriptors, tuples, options):
        from .._model import load
        from .runtime import driver
        self.package, self.device, self.names = package, device, names
        self.model, self.together = load(package, device=device), Together(package)
        row = self.model.kernels[0]
        self.name = row["name"]
        self.metadata = Metadata(self.name, 1, options.get("num_warps") or 4, options.get("num_stages") or 3, 1, driver.active.get_current_target())
        kinds = dict(p.partition(": ")[::2] for p in _split(self.model.metadata.get(f"kernel.{self.name}.parameters", "")))
        self.letters, self.places = "", []
        for i, name in enumerate(names):
            if name in descriptors:
                rank = descriptors[name]
                self.letters += "p" + "i" * (2 * rank)
                self.places.append((i, rank))
            elif name in tuples:
                count = tuples[name]
                self.letters += "".join(_letter(kinds[f"{name}.{part}"]) for part in range(count))
                self.places.append((i, _TUPLE))
            elif name in kinds:
                self.letters += _letter(kinds[name])
                self.places.append((i, 0))
        self.flat = None if descriptors or tuples else [i for i, _ in self.places]
        written = self.model.metadata.get(f"kernel.{self.name}.written", "").split(", ")
        self.written = [i for i, _ in self.places if names[i] in written]

    def values(self, given):
        if self.flat is not None:
            return tuple([_passed(given[i]) for i in self.flat])
        out = []
        for i, rank in self.places:
            value = given[i]
            out += map(_passed, _parts(value)) if rank == _TUPLE else [value.base, *value.shape, *value.strides] if rank else [_passed(value)]
        return tuple(out)

    def check(self, given):
        """Memory that is not to be written, a mapped file's among it, would end the process."""
        for i in self.written:
            value = given[i]
            if _is_array(value) and not value.flags.writeable:
                raise InputError(f"argument '{self.names[i]}' is read-only, and the kernel writes to it; pass a copy", "E0821", "INVALID_ARGUMENT")

    def launch(self, sizes, given, together=False):
        if 0 not in sizes:
            model = self.together(math.prod(sizes)) if together and self.device == "cpu" else self.model
            model.launch(self.name, sizes, self.letters, self.values(given), 0 if self.device == "cpu" else _stream())

    def _init_handles(self):
        """Programs that ask for registers call it; the kernel is loaded as soon as it is compiled."""

    def __getitem__(self, grid):
        def run(*args):
            if len(args) != len(self.names):
                raise TypeError(f"{self.name}() takes {len(self.names)} arguments, {len(args)} were given")
            self.check(args)
            self.launch(_sizes_of(grid), args)
        return run


def _split(text):
    depth, part = 0, ""
    for ch in text:
        depth += (ch in "<[(") - (ch in ">])")
        if ch == "," and depth == 0:
            yield part.strip()
            part = ""
        else:
            part += ch
    if part.strip():
        yield part.strip()


def _letter(kind):
    if kind.startswith("!tt.ptr"):
        return "p"
    return "d" if kind == "f64" else "f" if kind.startswith(("f", "bf")) else "i"


class KernelInterface:
    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def warmup(self, *args, grid, **kwargs):
        return self.run(*args, grid=grid, warmup=True, **kwargs)


class JITFunction(KernelInterface):
    """A kernel, or a function that kernels call. Called as kernel[grid](…)."""

    def __init__(self, fn, do_not_specialize=None, do_not_specialize_on_alignment=None, debug=None, constexpr=False):
        self.fn, self.constexpr, self.debug = fn, constexpr, bool(debug)
        self.__name__, self.__doc__, self.__module__, self.__qualname__, self.__globals__ = fn.__name__, fn.__doc__, fn.__module__, fn.__qualname__, fn.__globals__
        parameters = inspect.signature(fn).parameters.values()
        self.params = [_Parameter(i, p, do_not_specialize or (), do_not_specialize_on_alignment or ()) for i, p in enumerate(parameters)]
        self.arg_names = [p.name for p in self.params]
        self._at = {name: i for i, name in enumerate(self.arg_names)}
        self._compiled, self._hooks, self._sources, self._launcher, self._digest = {}, [], {}, None, None

    def __call__(self, *args, **kwargs):
        if self.constexpr:
            return self.fn(*args, **kwargs)
        raise RuntimeError(f"'{self.__name__}' is a kernel: launch it as {self.__name__}[grid](…)")

    def __repr__(self):
        return f"JITFunction({self.__module__}:{self.__name__})"

    def add_pre_run_hook(self, hook):
        self._hooks.append(hook)

    @property
    def src(self):
        """From `def` on: programs put it into files of theirs."""
        text = textwrap.dedent("".join(source_lines(self.fn)[0]))
        return text[re.search(r"^def\s+\w+\s*\(", text, re.MULTILINE).start():]

    @src.setter
    def src(self, text):
        """Programs that generate kernels give the source of a function that stands in no file."""
        self.fn.__neso_source__ = text
        self._digest = None

    _unsafe_update_src = src.fset

    @property
    def cache_key(self):
        """Differs where the source differs, its own or that of what it uses: programs that generate kernels name files by it."""
        if self._digest is None:
            self._digest = hashlib.sha256(Source(self).text().encode()).hexdigest()
        return self._digest

    def bind(self, args, kwargs):
        """(values in order, options of the launch)."""
        params, at = self.params, self._at
        if len(args) > len(params):
            raise TypeError(f"{self.__name__}() takes {len(params)} arguments, {len(args)} were given")
        values, options = [*args, *[inspect.Parameter.empty] * (len(params) - len(args))], {}
        for name, value in kwargs.items():
            i = at.get(name)
            if name in OPTIONS:
                options[name] = value
            if i is None:
                if name not in OPTIONS:
                    raise TypeError(f"{self.__name__}() has no argument '{name}'; it has {', '.join(self.arg_names)}")
            elif i < len(args):
                raise TypeError(f"{self.__name__}() got two values for '{name}'")
            else:
                values[i] = value
        for i, value in enumerate(values):
            if value is inspect.Parameter.empty:
                values[i] = params[i].default
                if values[i] is inspect.Parameter.empty:
                    raise TypeError(f"{self.__name__}() misses the argument '{params[i].name}'")
        return values, options

    def __getitem__(self, grid):
        if _interpret.active:
            return lambda *args, **kwargs: self._launch(grid, args, kwargs)
        return (self._launcher or self._make_launcher()).at(grid)

    def run(self, *args, grid, warmup=False, **kwargs):
        return self._launch(grid, args, kwargs, warmup) if warmup else self[grid](*args, **kwargs)

    def _make_launcher(self):
        """The extension's side of this kernel: it launches what it was told of, and calls _launch for all else."""
        from .._model import _core
        rows = [(p.name, p.default is not inspect.Parameter.empty, p.default, p.constexpr, p.by_value, p.by_alignment) for p in self.params]
        self._launcher = _core().Kernel(rows, self._launch, (self._hooks,))
        return self._launcher

    def _launch(self, grid, args, kwargs, warmup=False):
        for hook in self._hooks:
            hook(*args, **kwargs)
        values, options = self.bind(args, kwargs)
        if _interpret.active and not warmup:
            return _interpret.launch(self, _sizes_of(grid(dict(zip(self.arg_names, values))) if callable(grid) else grid), values, options)
        device = _device_of(values)
        key = (device, options.get("num_warps"), options.get("num_stages"), bool(options.get("debug")), *[p.key(v) for p, v in zip(self.params, values)])
        try:
            kernel = self._compiled.get(key)
        except TypeError:
            key = repr(key)
            kernel = self._compiled.get(key)
        if kernel is None:
            kernel = self._compiled[key] = self.compile(values, options, device)
        if warmup:
            return kernel
        kernel.check(values)
        together = bool(options.get("launch_cooperative_grid"))
        if kernel.flat is not None and not together:
            self._launcher.remember(args, kwargs, kernel.model, kernel.name, kernel.letters, tuple(kernel.flat), kernel, [])
        size = _sizes_of(grid(dict(zip(self.arg_names, values))) if callable(grid) else grid)
        kernel.launch(size, values, together)
        return kernel

    def source(self, functions=()):
        key = tuple(id(f) for f in functions)
        if key not in self._sources:
            collected = Source(self, functions)
            self._sources[key] = collected.text(), collected.file, collected.names, functions
        return self._sources[key][:3]

    def request(self, values, options):
        """(source, its file, arguments of the program, names of the parameters that are constants) for the kernel of these values."""
        text, file, names = self.source(tuple(f for v in values for f in named_in(v)))
        declared = _Declared()
        for p, value in zip(self.params, values):
            p.declare(value, names, declared)
        arguments = ["--signature", ", ".join(declared.signature)]
        for name, value in declared.constants:
            arguments += ["--constexpr", f"{name}={literal(value, names)}"]
        for name, value in declared.hints:
            arguments += ["--hint", f"{name}={value}"]
        for option in ("num_warps", "num_stages"):
            if options.get(option):
                arguments += ["--" + option.replace("_", "-"), str(options[option])]
        if self.debug or options.get("debug"):
            arguments.append("--debug")
        return text, file, arguments, {name for name, _ in declared.constants}

    def compile(self, values, options, device):
        text, file, arguments, _ = self.request(values, options)
        arguments += _target(device)
        descriptors = {p.name: len(v.block_shape) for p, v in zip(self.params, values) if hasattr(v, "block_shape")}
        tuples = {p.name: len(_parts(v)) for p, v in zip(self.params, values) if isinstance(v, tuple) and not p.constexpr}
        return CompiledKernel(_compile(self.__name__, text, file, arguments), device, self.arg_names, descriptors, tuples, options)


def _sizes_of(grid):
    sizes = tuple(map(operator.index, grid)) if isinstance(grid, (tuple, list)) else (operator.index(grid),)
    if not 1 <= len(sizes) <= 3 or min(sizes) < 0:
        raise InputError(f"a grid has one to three sizes, of which none is below 0; this is {sizes}", "E0843", "KERNEL_GRID")
    return (*sizes, 1, 1)[:3]


def _on_host(tensor):
    return getattr(tensor.device, "type", "cpu") == "cpu"


def _device_of(values):
    """Where the kernel runs: where its tensors lie, which is one place. A GPU reads pinned memory of the host, too."""
    values = [part.base if hasattr(part, "block_shape") else part for v in values for part in _parts(v)]
    tensors = [(i, v) for i, v in enumerate(values) if getattr(v, "device", None) is not None]
    there = sorted({str(v.device) for _, v in tensors if not _on_host(v)})
    if not there:
        return "cpu"
    if len(there) > 1:
        raise InputError(f"a kernel's tensors lie on {' and on '.join(there)}; move them to one device", "E0808", "DEVICE")
    for i, v in tensors:
        if _on_host(v) and not (hasattr(v, "is_pinned") and v.is_pinned()):
            raise InputError(f"argument {i} lies in the host's memory, others on {there[0]}; move it there, or pin its memory", "E0808", "DEVICE")
    return there[0]


def _stream():
    import torch
    # 1 is the driver's name for the legacy stream, which torch calls 0.
    return torch.cuda.current_stream().cuda_stream or 1


def _target(device):
    if device == "cpu":
        return ["--target", "cpu"]
    if not device.startswith("cuda"):
        raise InputError(f"kernels run on the CPU and on NVIDIA GPUs, an argument lies on {device}", "E0808", "DEVICE")
    ptxas = _assembler()
    return ["--target", "cuda", "--arch", gpu_arch(device), *(["--ptxas", ptxas] if ptxas else [])]


def _compile(name, text, file, arguments):
    """The package, of the cache on disk where it is there."""
    key = cache.key("kernel", name, text, arguments, _program.identity(), cache.machine())
    data = cache.get(key)
    if data is not None:
        return data
    with tempfile.TemporaryDirectory(prefix="neso-") as folder:
        source, package = os.path.join(folder, "kernel.py"), os.path.join(folder, "kernel.neso")
        with open(source, "w") as f:
            f.write(text)
        _, odd = _program.run(["kernel", "compile", f"{source}:{name}", "-o", package, *arguments], names=[(source, file or name)])
        with open(package, "rb") as f:
            data = f.read()
    for warning in odd:
        warnings.warn(str(warning), stacklevel=2)
    cache.put(key, data)
    return data


def jit(fn=None, *, version=None, repr=None, launch_metadata=None, do_not_specialize=None, do_not_specialize_on_alignment=None, debug=None, noinline=None):
    """Makes a function a kernel, as triton.jit does."""
    def decorate(function):
        return JITFunction(function, do_not_specialize, do_not_specialize_on_alignment, debug)
    return decorate(fn) if fn is not None else decorate


def constexpr_function(fn):
    """A function that kernels may call with compile-time values; called by the host it is itself."""
    return JITFunction(fn, constexpr=True)
