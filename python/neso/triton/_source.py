"""The source of a kernel as a file of its own: what its functions name comes with it, and lines keep their numbers, so that diagnostics
point into the user's file."""

import ast
import inspect
import textwrap
import types

from .._errors import Error
from . import language as tl


def literal(value):
    """A compile-time value as the front end reads it."""
    from ._launch import JITFunction
    if isinstance(value, tl.constexpr):
        return literal(value.value)
    if value is None:
        return "None"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float('{value}')"
    if isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, tl.dtype):
        return "tl." + value.name
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(literal(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, JITFunction):
        return value.__name__
    if str(type(value)) == "<class 'torch.dtype'>":
        return "tl." + FROM_TORCH[str(value).partition(".")[2]]
    raise Error(f"a kernel cannot be compiled for a value of type {type(value).__name__}; pass numbers, text, types, tuples of them or functions with @triton.jit")


def _named_tuple(name, kind):
    """The lines of a class with its fields."""
    return [f"class {name}(NamedTuple):", *[f"    {field}: object" + (f" = {literal(kind._field_defaults[field])}" if field in kind._field_defaults else "") for field in kind._fields]]


FROM_TORCH = {"bool": "int1", "float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5", "float8_e4m3fnuz": "float8e4b8", "float8_e5m2fnuz": "float8e5b16",
              **{name: name for name in tl.TYPES}}


class Source:
    """Collects what one kernel needs: imports and constants, which share the file's first line, and functions at their own lines."""

    def __init__(self, kernel, values=()):
        from ._launch import JITFunction
        self.jit, self.head, self.functions, self.tail, self.bound = JITFunction, ["import triton", "import triton.language as tl"], [], [], {"triton": None, "tl": None}
        self.file = inspect.getsourcefile(kernel.fn)
        for value in values:
            if isinstance(value, JITFunction):
                self.add(value.__name__, value, kernel.__name__)
        self.function(kernel.fn, "@triton.jit")

    def bind(self, name, value):
        """True where the name is new."""
        if name not in self.bound:
            self.bound[name] = value
            return True
        known = self.bound[name]
        if known is not value and not (type(known) is type(value) and not callable(value) and known == value):
            raise Error(f"two different things are called '{name}' in what a kernel needs; rename one of them")
        return False

    def add(self, name, value, owner):
        if isinstance(value, types.ModuleType):
            real = value.__name__.removeprefix("neso.")
            if real.partition(".")[0] not in ("triton", "math", "torch"):
                raise Error(f"kernel '{owner}' reaches into the module '{value.__name__}'; import the functions that it uses by name")
            if name not in ("triton", "tl") and self.bind(name, value) or name == "tl" and real != "triton.language":
                self.head.append(f"import {real}" if real == name else f"import {real} as {name}")
        elif isinstance(value, tl.Function) or getattr(value, "__module__", "") in ("neso.triton", "triton"):
            if self.bind(name, value):
                real = value.__name__
                self.head.append(f"from {value.__module__.removeprefix('neso.')} import {real}" + ("" if real == name else f" as {name}"))
        elif isinstance(value, self.jit):
            self.function(value.fn, "@triton.constexpr_function" if value.constexpr else "@triton.jit")
            if value.__name__ != name and self.bind(name, value):
                self.tail.append(f"{name} = {value.__name__}")
        elif value in (tl.constexpr, tl.dtype) or value is int or value is float or value is bool:
            if value is tl.constexpr and self.bind(name, value):
                self.head.append(f"from triton.language import constexpr as {name}")
        elif isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            if self.bind(name, value):
                self.tail += ["from typing import NamedTuple", *_named_tuple(name, value)]
        elif isinstance(value, types.FunctionType):
            raise Error(f"kernel '{owner}' uses '{name}', which is no kernel function; decorate it with triton.jit")
        elif self.bind(name, value):
            text = literal(value)
            self.head.append(f"{name} = tl.constexpr({text})" if isinstance(value, tl.constexpr) else f"{name} = {text}")

    def function(self, fn, decorator):
        if not self.bind(fn.__name__, fn):
            return
        try:
            lines, first = inspect.getsourcelines(fn)
        except (OSError, TypeError) as e:
            raise Error(f"the source of '{fn.__name__}' cannot be found ({e}); kernels must stand in a file") from None
        text = textwrap.dedent("".join(lines))
        node = next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef))
        scope = {**fn.__globals__, **{k: c.cell_contents for k, c in zip(fn.__code__.co_freevars, fn.__closure__ or ())}}
        node.decorator_list = []
        local = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
        local |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and n.id in scope and n.id not in local and n.id != fn.__name__:
                value = scope[n.id]
                # `SIZE: tl.constexpr = 3` says the same as tl.constexpr(3).
                if fn.__globals__.get("__annotations__", {}).get(n.id) in (tl.constexpr, "tl.constexpr", "constexpr") and not isinstance(value, tl.constexpr):
                    value = tl.constexpr(value)
                self.add(n.id, value, fn.__name__)
        self.functions.append((inspect.getsourcefile(fn), max(first, 1) + node.lineno - 1, [decorator, *text.splitlines()[node.lineno - 1:]]))

    def text(self):
        lines = ["; ".join(self.head)]
        # `at`: the line of `def`, before which the decorator stands.
        for _, at, body in sorted((f for f in self.functions if f[0] == self.file), key=lambda f: f[1]):
            lines += [""] * max(at - 2 - len(lines), 0) + body
        for _, _, body in (f for f in self.functions if f[0] != self.file):
            lines += ["", *body]
        return "\n".join([*lines, *self.tail]) + "\n"
