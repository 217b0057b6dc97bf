"""The source of one kernel as a Python file of its own: helpers, constants and imports that it needs come with it.

Names are followed through the globals (and the closure) of each function: `@triton.jit` helpers and constexpr functions are copied, literal
constants and `tl.constexpr` objects become assignments, whatever Triton itself provides becomes an import.
"""

import ast
import inspect
import textwrap
import types

import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from .launches import NesoExportError


def literal(value) -> str:
    """A value in the spelling of the bundle: a Python literal, `none`, `tl.float32`, a function's name."""
    if isinstance(value, tl.constexpr):
        return literal(value.value)
    if value is None:
        return "none"
    if isinstance(value, (bool, int, float, str)):
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            return f"float('{value}')"
        return repr(value)
    if isinstance(value, tl.dtype):
        return "tl." + _dtype_name(value)
    if isinstance(value, torch.dtype):
        return "tl." + _TORCH[value][1]
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(literal(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, JITFunction):
        return value.fn.__name__
    raise NesoExportError(f"a value of type {type(value).__name__} cannot be written into a kernel bundle")


_TORCH = {  # torch dtype -> (as a pointer's target, in triton.language)
    torch.float32: ("fp32", "float32"), torch.float64: ("fp64", "float64"), torch.float16: ("fp16", "float16"), torch.bfloat16: ("bf16", "bfloat16"),
    torch.int8: ("i8", "int8"), torch.int16: ("i16", "int16"), torch.int32: ("i32", "int32"), torch.int64: ("i64", "int64"),
    torch.uint8: ("u8", "uint8"), torch.uint16: ("u16", "uint16"), torch.uint32: ("u32", "uint32"), torch.uint64: ("u64", "uint64"),
    torch.bool: ("i1", "int1"), torch.float8_e4m3fn: ("fp8e4nv", "float8e4nv"), torch.float8_e5m2: ("fp8e5", "float8e5"),
}


def pointer_type(dtype: torch.dtype) -> str:
    if dtype not in _TORCH:
        raise NesoExportError(f"Triton has no pointer to {dtype}")
    return "*" + _TORCH[dtype][0]


def _dtype_name(t) -> str:
    for name in dir(tl):
        if isinstance(getattr(tl, name), tl.dtype) and getattr(tl, name) == t:
            return name
    raise NesoExportError(f"Triton's dtype {t} has no name in triton.language")


def _is_tritons(value) -> bool:
    return (getattr(value, "__module__", None) or "").split(".")[0] == "triton"


class _Module:
    """Collects definitions in an order in which Python can run them."""

    def __init__(self):
        self.imports, self.assignments, self.functions = [], [], []
        self.bound = {}  # name in the file -> what it stands for

    def bind(self, name, value) -> bool:
        """True when the name is new; two different things under one name cannot share a file."""
        if name in self.bound:
            known = self.bound[name]
            if known is not value and not (type(known) is type(value) and not callable(value) and known == value):
                raise NesoExportError(f"two different things are called '{name}' in what a kernel needs; rename one of them")
            return False
        self.bound[name] = value
        return True

    def add(self, name, value, owner):
        if isinstance(value, types.ModuleType):
            if self.bind(name, value):
                if value.__name__.split(".")[0] not in ("triton", "math", "torch"):
                    raise NesoExportError(f"kernel '{owner}' reaches into the module '{value.__name__}'; import the functions that it uses by name")
                top = value.__name__
                self.imports.append(f"import {top}" if top == name else f"import {top} as {name}")
        elif _is_tritons(value) and not isinstance(value, (tl.constexpr, tl.dtype)):
            if self.bind(name, value):
                real = getattr(value, "__name__", None) or getattr(getattr(value, "fn", None), "__name__", name)
                module = _public_module(value, real)
                self.imports.append(f"from {module} import {real}" + ("" if real == name else f" as {name}"))
        elif isinstance(value, JITFunction):
            real = value.fn.__name__
            self.function(value.fn, "@triton.jit")
            if real != name and self.bind(name, value):
                self.functions.append(f"{name} = {real}")
        elif _is_constexpr_function(value):
            inner = getattr(value, "fn", None) or getattr(value, "__wrapped__", value)
            self.function(inner, "@triton.constexpr_function")
        elif isinstance(value, tl.constexpr):
            if self.bind(name, value):
                self.assignments.append(f"{name} = tl.constexpr({literal(value.value)})".replace("(none)", "(None)"))
        elif value is None or isinstance(value, (bool, int, float, str, tuple, list, tl.dtype, torch.dtype)):
            if self.bind(name, value):
                text = literal(value)
                self.assignments.append(f"{name} = {'None' if text == 'none' else text}")
        elif isinstance(value, types.FunctionType):
            raise NesoExportError(f"kernel '{owner}' uses '{name}', which is no @triton.jit function; decorate it")
        else:
            raise NesoExportError(f"kernel '{owner}' uses '{name}', a {type(value).__name__}, which cannot be written into a bundle")

    def function(self, fn, decorator):
        if not self.bind(fn.__name__, fn):
            return
        try:
            text = textwrap.dedent(inspect.getsource(fn))
        except (OSError, TypeError) as e:
            raise NesoExportError(f"the source of '{fn.__name__}' cannot be found: {e}") from None
        tree = ast.parse(text)
        node = next(n for n in tree.body if isinstance(n, ast.FunctionDef))
        body = "\n".join(text.splitlines()[node.lineno - 1:])
        scope = {**fn.__globals__, **{k: c.cell_contents for k, c in zip(fn.__code__.co_freevars, fn.__closure__ or ())}}
        node.decorator_list = []  # they stay behind: `decorator` stands for them
        local = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
        local |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and n.id in scope and n.id not in local and n.id != fn.__name__:
                self.add(n.id, scope[n.id], fn.__name__)
        self.functions.append(f"{decorator}\n{body}")

    def text(self) -> str:
        base = [line for line in ("import triton", "import triton.language as tl") if line not in self.imports]
        parts = "\n".join(base + self.imports), "\n".join(self.assignments), "\n\n\n".join(self.functions)
        return "\n\n\n".join(p for p in parts if p) + "\n"


def _is_constexpr_function(value) -> bool:
    return type(value).__name__ == "ConstexprFunction" or getattr(value, "__triton_builtin__", False) is True and not _is_tritons(value)


def _public_module(value, name) -> str:
    """Where the kernel's author would import it from."""
    if getattr(tl, name, None) is value:
        return "triton.language"
    if getattr(tl.math, name, None) is value:
        return "triton.language.math"
    if "libdevice" in value.__module__:
        return "triton.language.extra.libdevice"
    if getattr(triton, name, None) is value:
        return "triton"
    return value.__module__


def kernel_source(kernel: JITFunction, values) -> str:
    """The file of a kernel; functions among its constexpr values are part of it."""
    module = _Module()
    for value in values:
        if isinstance(value, JITFunction):
            module.add(value.fn.__name__, value, kernel.fn.__name__)
    module.function(kernel.fn, "@triton.jit")
    return module.text()
