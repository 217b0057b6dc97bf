"""The source of a kernel as a file of its own: what its functions name comes with it, and lines keep their numbers, so that diagnostics
point into the user's file."""

import ast
import inspect
import textwrap
import types

from .._errors import Error
from . import language as tl


def literal(value, names={}):
    """A compile-time value as the front end reads it. `names`: what the kernel's file calls functions and classes, by id."""
    from ._launch import JITFunction
    if isinstance(value, tl.constexpr):
        return literal(value.value, names)
    if value is None:
        return "None"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float('{float(value)}')"
    # Of the type itself: members of an IntEnum and NumPy's floats have a text of their own.
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind.__repr__(value)
    if isinstance(value, tl.dtype):
        return "tl." + value.name
    if type(value).__module__ == "numpy" and hasattr(value, "item") and not hasattr(value, "__len__"):
        return literal(value.item())
    if isinstance(value, (tuple, list)):
        kind = names.get(id(type(value)), type(value).__name__) if hasattr(value, "_fields") else ""
        return kind + "(" + ", ".join(literal(v, names) for v in value) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, JITFunction):
        return names.get(id(value.fn), value.__name__)
    if _is_aggregate(value):
        return names.get(id(value), value.__name__)
    if str(type(value)) == "<class 'torch.dtype'>":
        return "tl." + FROM_TORCH[str(value).partition(".")[2]]
    raise Error(f"a kernel cannot be compiled for a value of type {type(value).__name__}; pass numbers, text, types, tuples of them or functions with @triton.jit")


def _is_aggregate(value):
    return isinstance(value, type) and getattr(value, "__triton_aggregate__", False)


def named_in(value):
    """The kernels' functions among a value, which may be a tuple of them, the classes of named tuples, and aggregates."""
    from ._launch import JITFunction
    if isinstance(value, tl.constexpr):
        return named_in(value.value)
    if isinstance(value, (tuple, list)):
        return ([type(value)] if hasattr(value, "_fields") else []) + [f for v in value for f in named_in(v)]
    if _is_aggregate(value):
        return [value]
    return [value] if isinstance(value, JITFunction) else []


def _named_tuple(name, kind):
    """The lines of a class with its fields."""
    return [f"class {name}(NamedTuple):", *[f"    {field}: object" + (f" = {literal(kind._field_defaults[field])}" if field in kind._field_defaults else "") for field in kind._fields]]


FROM_TORCH = {"bool": "int1", "float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5", "float8_e4m3fnuz": "float8e4b8", "float8_e5m2fnuz": "float8e5b16",
              **{name: name for name in tl.TYPES}}


def source_lines(what):
    """As inspect has them, or what a program gave as the source of a function that it generated."""
    given = getattr(what, "__neso_source__", None)
    return inspect.getsourcelines(what) if given is None else (given.splitlines(keepends=True), 1)


def _closure_of(fn):
    """What a function sees of those around it; in a method, where super() stands, that may be its class before there is one."""
    out = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            out[name] = cell.cell_contents
        except ValueError:
            continue
    return out


def _known_module(module):
    return module.__name__.removeprefix("neso.").partition(".")[0] in ("triton", "math", "torch")


def _same(a, b):
    return a is b or type(a) is type(b) and not callable(a) and a == b


class _Edits:
    """Places of a text, and what stands there instead. Columns are bytes, as Python's syntax trees count them."""

    def __init__(self, text):
        self.lines, self.places = text.splitlines(), []

    def add(self, node, text):
        if node.lineno == node.end_lineno:
            self.places.append((node.lineno - 1, node.col_offset, node.end_col_offset, text))

    def done(self):
        for line, start, end, text in sorted(self.places, reverse=True):
            old = self.lines[line].encode()
            self.lines[line] = (old[:start] + text.encode() + old[end:]).decode()
        return self.lines


class Source:
    """Collects what one kernel needs: imports and constants, which share the file's first line, and functions at their own lines. Modules have
    names of their own, and the file has one set of them: what is called like something else is renamed, and so is what a module is asked for."""

    def __init__(self, kernel, values=()):
        from ._launch import JITFunction
        self.jit, self.head, self.functions, self.tail, self.bound = JITFunction, ["import triton", "import triton.language as tl"], [], [], {"triton": None, "tl": None}
        # Functions and classes by id → their names in the file.
        self.names = {}
        self.file = inspect.getsourcefile(kernel.fn)
        self.function(kernel.fn, "@triton.jit")
        for named in values:
            self.add(named.__name__, named, kernel.__name__, False)

    def bind(self, name, value, avoid=()):
        """(how `value` is called in the file, whether that is new): as given where nothing else is called so."""
        wanted, n = name, 1
        while name in avoid or name in self.bound and not _same(self.bound[name], value):
            n += 1
            name = f"{wanted}_{n}"
        new = name not in self.bound
        if new:
            self.bound[name] = value
        return name, new

    def add(self, name, value, owner, on_host, avoid=()):
        """Brings along what `owner` calls `name`, and says what the file calls it, which is none of `avoid`. on_host: whether the owner is a
        function that runs as Python when kernels are compiled."""
        if isinstance(value, tl.constexpr) and isinstance(value.value, (types.FunctionType, self.jit)):
            # `@tl.constexpr` above a function, as older programs have it.
            value = value.value if isinstance(value.value, self.jit) else self.jit(value.value, constexpr=True)
        if isinstance(value, types.ModuleType):
            if not _known_module(value):
                raise Error(f"kernel '{owner}' uses the module '{value.__name__}' other than by asking it for functions and constants")
            real = value.__name__.removeprefix("neso.")
            if name == {"triton": "triton", "triton.language": "tl"}.get(real):
                return name
            name, new = self.bind(name, value, (*avoid, "triton", "tl"))
            if new:
                self.head.append(f"import {real}" if real == name else f"import {real} as {name}")
        elif isinstance(value, tl.Function) or getattr(value, "__module__", "") in ("neso.triton", "triton"):
            name, new = self.bind(name, value, avoid)
            if new:
                real = value.__name__
                self.head.append(f"from {value.__module__.removeprefix('neso.')} import {real}" + ("" if real == name else f" as {name}"))
        elif isinstance(value, self.jit) or isinstance(value, types.FunctionType) and on_host:
            fn = value.fn if isinstance(value, self.jit) else value
            name = self.rename(name, self.function(fn, None if fn is value else "@triton.constexpr_function" if value.constexpr else "@triton.jit"), fn, avoid)
        elif _is_aggregate(value):
            name = self.rename(name, self.aggregate(value), value, avoid)
        elif value in (tl.constexpr, tl.dtype) or value is int or value is float or value is bool:
            if value is tl.constexpr:
                name, new = self.bind(name, value, avoid)
                if new:
                    self.head.append(f"from triton.language import constexpr as {name}")
        elif isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            name, new = self.bind(name, value, avoid)
            if new:
                self.names[id(value)] = name
                self.tail += ["from typing import NamedTuple", *_named_tuple(name, value)]
        elif isinstance(value, types.FunctionType):
            raise Error(f"kernel '{owner}' uses '{name}', which is no kernel function; decorate it with triton.jit")
        else:
            name, new = self.bind(name, value, avoid)
            if new:
                for named in named_in(value):
                    self.add(named.__name__, named, owner, False)
                text = literal(value, self.names)
                (self.tail if named_in(value) else self.head).append(f"{name} = tl.constexpr({text})" if isinstance(value, tl.constexpr) else f"{name} = {text}")
        return name

    def rename(self, name, called, fn, avoid):
        """A name for the function that the file calls `called`."""
        if called == name and name not in avoid:
            return name
        name, new = self.bind(name, fn, avoid)
        if new:
            self.tail.append(f"{name} = {called}")
        return name

    def function(self, fn, decorator):
        """Brings the function along, and says what the file calls it."""
        if id(fn) in self.names:
            return self.names[id(fn)]
        name, _ = self.bind(fn.__name__, fn)
        self.names[id(fn)] = name
        text, first = self.source_of(fn, fn.__name__)
        node = next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef))
        edits = _Edits(text)
        if name != fn.__name__:
            edits.lines[node.lineno - 1] = edits.lines[node.lineno - 1].replace(f"def {fn.__name__}", f"def {name}", 1)
        node.decorator_list = []
        self.parts(node, fn, edits, decorator != "@triton.jit")
        self.functions.append((inspect.getsourcefile(fn), max(first, 1) + node.lineno - 1, [decorator or "", *edits.done()[node.lineno - 1:]]))
        return name

    @staticmethod
    def source_of(what, name):
        """Its text, and the line of its file where that begins."""
        try:
            lines, first = source_lines(what)
        except (OSError, TypeError) as e:
            raise Error(f"the source of '{name}' cannot be found ({e}); kernels must stand in a file") from None
        return textwrap.dedent("".join(lines)), first

    def parts(self, node, fn, edits, on_host):
        """Brings along what a function's defaults, body and annotations name."""
        scope = {**fn.__globals__, **_closure_of(fn)}
        local = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
        local |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.defaults(node, fn, edits, lambda part: self.names_in(part, scope, local, fn, on_host, edits))
        for part in node.body:
            self.names_in(part, scope, local, fn, on_host, edits)
        for annotation in [*[a.annotation for a in ast.walk(node) if isinstance(a, ast.arg)], node.returns]:
            try:
                if annotation is not None:
                    self.names_in(annotation, scope, local, fn, on_host, edits)
            except Error:
                """Whatever else it says, it says so to people."""

    def aggregate(self, cls):
        """Brings the class along, and says what the file calls it. What it derives from stands before it."""
        if id(cls) in self.names:
            return self.names[id(cls)]
        above = [base for base in cls.__bases__ if _is_aggregate(base)]
        header = ", ".join(self.aggregate(base) for base in above)
        name, _ = self.bind(cls.__name__, cls)
        self.names[id(cls)] = name
        text, first = self.source_of(cls, cls.__name__)
        node = next(n for n in ast.parse(text).body if isinstance(n, ast.ClassDef))
        begin = min(n.lineno for n in [node.body[0], *getattr(node.body[0], "decorator_list", ())])
        edits = _Edits(text)
        for part in node.body:
            self.member(cls, part, edits)
        body = [f"class {name}" + (f"({header})" if header else "") + ":", *[""] * (begin - node.lineno - 1), *edits.done()[begin - 1:]]
        # Classes run where they stand, so that one of another file's bases comes last.
        here = [inspect.getsourcefile(c) == self.file for c in (cls, *above)]
        if all(here):
            self.functions.append((self.file, max(first, 1) + node.lineno - 1, ["@triton.aggregate", *body]))
        else:
            self.tail += ["@triton.aggregate", *body]
        return name

    def member(self, cls, part, edits):
        """What a field's default or a method of an aggregate names."""
        if isinstance(part, ast.FunctionDef):
            held = cls.__dict__[part.name]
            held = held.__func__ if isinstance(held, (staticmethod, classmethod)) else held
            held = held.fget if isinstance(held, property) else held
            fn = held.fn if isinstance(held, self.jit) else held
            decorators = part.decorator_list
            for decorator in decorators:
                if not isinstance(decorator, ast.Name) or decorator.id not in ("staticmethod", "classmethod", "property"):
                    edits.add(decorator, "triton.constexpr_function" if isinstance(held, self.jit) and held.constexpr else "triton.jit")
            part.decorator_list = []
            self.parts(part, fn, edits, not isinstance(held, self.jit) or held.constexpr)
        elif isinstance(part, ast.AnnAssign) and part.value is not None and not isinstance(part.value, ast.Constant):
            edits.add(part.value, literal(cls.__dict__[part.target.id], self.names))
        elif isinstance(part, ast.Assign) and len(part.targets) == 1 and isinstance(part.targets[0], ast.Name):
            held = cls.__dict__[part.targets[0].id]
            text = literal(held, self.names)
            edits.add(part.value, f"tl.constexpr({text})" if isinstance(held, tl.constexpr) else text)

    def defaults(self, node, fn, edits, bring):
        """Defaults of parameters: Python computed them already, with whatever it has."""
        named = fn.__kwdefaults__ or {}
        given = [*zip(node.args.defaults, fn.__defaults__ or ()), *[(d, named[a.arg]) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults) if d is not None]]
        for part, value in given:
            if isinstance(part, ast.Constant):
                continue
            if named_in(value) or isinstance(value, tl.Function):
                bring(part)
                continue
            try:
                edits.add(part, literal(value))
            except Error:
                """Only who leaves the argument out needs it."""

    def names_in(self, node, scope, local, fn, on_host, edits):
        """Brings along what stands in a piece of the function's syntax tree."""
        chain, inner = [], node
        while isinstance(inner, ast.Attribute):
            chain.insert(0, inner)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in scope and inner.id not in local and not (inner.id == fn.__name__ and scope[inner.id] is fn):
            value, spelled, at = scope[inner.id], inner.id, inner
            # A module of the program's is asked for what it has, until that is something else.
            for asked in chain:
                if not isinstance(value, types.ModuleType) or _known_module(value):
                    break
                if not hasattr(value, asked.attr):
                    raise Error(f"kernel '{fn.__name__}' asks the module '{value.__name__}' for '{asked.attr}', which it does not have")
                value, spelled, at = getattr(value, asked.attr), f"{spelled}_{asked.attr}", asked
            # `SIZE: tl.constexpr = 3` says the same as tl.constexpr(3).
            if at is inner and fn.__globals__.get("__annotations__", {}).get(spelled) in (tl.constexpr, "tl.constexpr", "constexpr") and not isinstance(value, tl.constexpr):
                value = tl.constexpr(value)
            name = self.add(spelled, value, fn.__name__, on_host, local)
            if at is not inner or name != spelled:
                edits.add(at, name)
            return
        # Python before 3.12 does not say where the names in an f-string stand; they are parts of messages.
        below = _Edits("") if isinstance(node, ast.JoinedStr) else edits
        for child in ast.iter_child_nodes(node):
            self.names_in(child, scope, local, fn, on_host, below)

    def text(self):
        lines = ["; ".join(self.head)]
        # `at`: the line of `def`, before which the decorator stands.
        for _, at, body in sorted((f for f in self.functions if f[0] == self.file), key=lambda f: f[1]):
            lines += [""] * max(at - 2 - len(lines), 0) + body
        for _, _, body in (f for f in self.functions if f[0] != self.file):
            lines += ["", *body]
        return "\n".join([*lines, *self.tail]) + "\n"
