#!/usr/bin/env python3
"""Which Triton kernels of a folder of other people's sources does Neso compile, and do they compute what Triton's interpreter does?

    tools/kernel_sweep.py --build build/dev FOLDER --rows rows.jsonl
    tools/kernel_sweep.py --build build/dev FOLDER --gpu sm_90a --run --only 'fla/ops' --sample 300
    tools/kernel_sweep.py FOLDER --rows rows.jsonl                                     finds the cases alone
    tools/kernel_sweep.py --build build/dev --again rows.jsonl [--only REGEX] [--verdict REGEX]

FOLDER holds packages as they are (say unpacked wheels); nothing of them is changed or copied. Each @triton.jit function that can be a
kernel gets a signature and constexprs (kernel_sweep_guess.py), in several variants; the ones that Triton itself turns into TTIR are its
cases, what it refuses is not counted. Each case is compiled by `neso kernel compile` for the CPU and with --gpu for a GPU. With --run it is
also launched on made-up arguments: first in Neso's interpreter, which refuses accesses out of bounds (such a launch says nothing), then
as machine code and in Triton's interpreter; the memory afterwards is compared. Lines of JSON, one a case, go to --rows; --again takes the
cases from such a file. Needs torch and triton and no GPU. What the sources import and is not there is replaced by objects that do nothing.
"""
import argparse
import ast
import collections
import concurrent.futures
import hashlib
import importlib.metadata
import json
import math
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kernel_sweep_guess import guess, is_jit  # noqa: E402

# ---- Which functions of a folder are kernels


def defined(body, prefix="", inside=False):
    """(qualified name, function, whether it stands in a function) of all functions."""
    for st in body:
        if isinstance(st, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + st.name, st, inside
            yield from defined(st.body, prefix + st.name + ".", True)
        elif isinstance(st, ast.ClassDef):
            yield from defined(st.body, prefix + st.name + ".", inside)
        else:
            for field in ("body", "orelse", "finalbody", "handlers"):
                for s in getattr(st, field, []):
                    yield from defined([s], prefix, inside) if not isinstance(s, ast.ExceptHandler) else defined(s.body, prefix, inside)


def returns_value(function):
    todo = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return) and node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            todo.extend(ast.iter_child_nodes(node))
    return False


def root_of(path, folder):
    """Where imports of a file begin: above its outermost package."""
    here = path.parent
    while here != folder and (here / "__init__.py").exists():
        here = here.parent
    if here != folder and here.parent != folder:  # a package whose folders lack __init__.py
        while here.parent != folder:
            here = here.parent
    return here


def survey(folder, only):
    """[(file, root, {qualified name: inside})] and the index of jit functions by name for each file."""
    out = []
    for path in sorted(folder.rglob("*.py")):
        if not re.search(only, str(path)):
            continue
        try:
            text = path.read_text()
            if "jit" not in text or "gluon" in path.name:
                continue
            tree = ast.parse(text)
        except (SyntaxError, UnicodeDecodeError, ValueError, RecursionError):
            continue
        names = {}
        for name, function, inside in defined(tree.body):
            if any(is_jit(d) for d in function.decorator_list):
                names[name] = inside and "." in name
        if names:
            out.append((path, root_of(path, folder), names))
    return out


# ---- Triton's side: a process that imports the sources


class Stub:
    """Stands for what is not there: may be called, indexed, derived from; as a decorator it changes nothing."""

    def __init__(self, name="?"):
        self.__dict__["_name"] = name

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Stub(f"{self._name}.{name}")

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and not kwargs and (callable(args[0]) or hasattr(args[0], "fn")) and not isinstance(args[0], Stub):
            return args[0]
        return Stub(self._name + "()")

    def __mro_entries__(self, bases):
        return ()

    def __bool__(self):
        return False

    def __iter__(self):
        return iter(())

    def __getitem__(self, key):
        return Stub(self._name + "[]")

    def __setattr__(self, name, value):
        pass

    def __hash__(self):
        return id(self)

    def __or__(self, other):
        return Stub()

    __ror__ = __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __floordiv__ = __or__

    def __eq__(self, other):
        return False

    __lt__ = __le__ = __gt__ = __ge__ = __eq__

    def __contains__(self, key):
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


REAL = {"torch", "triton", "numpy", "packaging", "typing_extensions", "einops", "setuptools"}


def install_importer():
    """Modules of the folder run statement by statement, and one that fails is skipped; foreign modules are stubs."""
    import importlib.abc
    import importlib.machinery
    import types

    class StubModule(types.ModuleType):
        __path__ = []

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return Stub(f"{self.__name__}.{name}")

    class Lenient(importlib.abc.Loader):
        def __init__(self, path):
            self.path = path

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            text = pathlib.Path(self.path).read_text()
            for st in ast.parse(text).body:
                try:
                    exec(compile(ast.Module([st], []), self.path, "exec"), module.__dict__)
                except BaseException as e:  # noqa: BLE001
                    if isinstance(e, (KeyboardInterrupt, MemoryError)):
                        raise
                    for name in bound_names(st):
                        module.__dict__.setdefault(name, Stub(name))

    def bound_names(st):
        if isinstance(st, (ast.Import, ast.ImportFrom)):
            return [a.asname or a.name.split(".")[0] for a in st.names]
        if isinstance(st, (ast.ClassDef, )):
            return [st.name]
        return [n.id for n in ast.walk(st) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]

    class Nothing(importlib.abc.Loader):
        def create_module(self, spec):
            return StubModule(spec.name)

        def exec_module(self, module):
            pass

    class First(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            top = name.split(".")[0]
            root = First.root
            if root is None:
                return None
            inside = pathlib.Path(root) / name.replace(".", "/")
            if (pathlib.Path(root) / top).is_dir() or (pathlib.Path(root) / (top + ".py")).exists():
                if top in ("triton", "torch"):
                    return None
                for p, package in ((inside / "__init__.py", True), (inside.with_suffix(".py"), False)):
                    if p.exists():
                        return importlib.machinery.ModuleSpec(name, Lenient(str(p)), origin=str(p), is_package=package) if not package else self.package(name, p)
                if inside.is_dir():
                    spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
                    spec.submodule_search_locations = [str(inside)]
                    return spec
                return importlib.machinery.ModuleSpec(name, Nothing(), is_package=True)
            if top in REAL or top in sys.stdlib_module_names or top.startswith("_"):
                return None
            return importlib.machinery.ModuleSpec(name, Nothing(), is_package=True)

        @staticmethod
        def package(name, p):
            spec = importlib.machinery.ModuleSpec(name, Lenient(str(p)), origin=str(p), is_package=True)
            spec.submodule_search_locations = [str(p.parent)]
            return spec

    class Last(importlib.abc.MetaPathFinder):
        """Parts of torch or Triton that this version does not have."""

        def find_spec(self, name, path, target=None):
            return importlib.machinery.ModuleSpec(name, Nothing(), is_package=True) if First.root and name.split(".")[0] in REAL else None

    First.root = None
    sys.meta_path.insert(0, First())
    sys.meta_path.append(Last())
    return First


def pretend_gpu():
    import torch
    import triton
    from triton.backends import backends
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    class Driver:
        def get_current_target(self):
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self):
            return 0

        def get_active_torch_device(self):
            return torch.device("cpu")

        def get_device_interface(self):
            return torch.cuda

        def get_benchmarker(self):
            return lambda call, **_: [0.0, 0.0, 0.0]

        class utils:  # noqa: N801
            @staticmethod
            def get_device_properties(device):
                return {"max_shared_mem": 232448, "max_num_regs": 65536, "multiprocessor_count": 132, "warpSize": 32}

    driver.set_active(Driver())
    for name, backend in backends.items():
        backend.driver.is_active = staticmethod(lambda name=name: name == "nvidia")
    version = importlib.metadata.version

    def any_version(name):
        try:
            return version(name)
        except importlib.metadata.PackageNotFoundError:
            return "1.0"

    importlib.metadata.version = any_version
    properties = type("P", (), {"multi_processor_count": 132, "major": 9, "minor": 0, "name": "NVIDIA H200", "total_memory": 1 << 37, "warp_size": 32,
                                "shared_memory_per_block_optin": 232448, "max_threads_per_multi_processor": 2048, "L2_cache_size": 50 << 20})()
    torch.cuda.get_device_properties = lambda *_: properties
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_name = lambda *_: "NVIDIA H200"
    torch.cuda.current_device = lambda: 0
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    triton.knobs.autotuning.warn = False


def unwrapped(value):
    """(the jit function below decorators, constexprs of autotune's first config, its options) or None."""
    known, options = {}, {}
    for _ in range(8):
        if hasattr(value, "arg_names") and isinstance(getattr(value, "src", None), str) or type(value).__name__ == "InterpretedFunction":
            return value, known, options
        configs = getattr(value, "configs", None)
        if isinstance(configs, list) and configs and not known:
            config = configs[0]
            known = {k: v for k, v in getattr(config, "kwargs", {}).items()}
            options = {k: getattr(config, k, None) for k in ("num_warps", "num_stages")}
        inner = getattr(value, "fn", None)
        if inner is None:
            return None
        value = inner
    return None


LARGEST = 1 << 15  # elements of a tensor: guessed sizes beyond are those of no real launch


def largest_tensor(ttir):
    return max((math.prod(int(n) for n in m.split("x")[:-1]) for m in set(re.findall(r"tensor<((?:\d+x)+)", ttir))), default=1)


class Triton:
    """Triton's compiler, or with `interpret` its interpreter."""

    def __init__(self, interpret):
        os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
        if interpret:
            os.environ["TRITON_INTERPRET"] = "1"
        import torch
        import triton
        import triton.language as tl
        from triton_on_neso import literal
        self.literal = literal
        if interpret:
            from campaign_triton import mend_interpreter
        self.importer = install_importer()
        pretend_gpu()
        torch.set_num_threads(1)
        self.torch, self.triton, self.tl, self.interpret = torch, triton, tl, interpret
        if interpret:
            import warnings
            warnings.filterwarnings("ignore")
            mend_interpreter()

    def module(self, file, root):
        import importlib
        self.importer.root = root
        if root not in sys.path:
            sys.path.insert(0, root)
        name = ".".join(pathlib.Path(file).relative_to(root).with_suffix("").parts)
        if name.endswith(".__init__"):
            name = name[:-9]
        return importlib.import_module(name)

    def find(self, module, name):
        value = module
        for part in name.split("."):
            value = vars(value).get(part) if isinstance(value, type(module)) else getattr(value, part, None)
            if value is None or isinstance(value, Stub):
                return None
        return unwrapped(value)

    def nested(self, module, file, name):
        """A kernel inside a function, as a global."""
        import linecache
        tree = ast.parse(pathlib.Path(file).read_text())
        function = next(f for n, f, _ in defined(tree.body) if n == name)
        text = ast.unparse(ast.Module([function], []))
        path = f"<{file}:{name}>"
        linecache.cache[path] = (len(text), None, [line + "\n" for line in text.split("\n")], path)
        space = module.__dict__
        exec(compile(text, path, "exec"), space)
        return unwrapped(space.get(name.rsplit(".", 1)[1]))

    def ttir(self, jit, row, options):
        """Raises what Triton has against a call."""
        from triton._C.libtriton import ir
        from triton.backends.compiler import GPUTarget
        from triton.compiler.compiler import ASTSource, make_backend
        signature = {n: t for n, t, _ in row}
        space = {**jit.fn.__globals__, "tl": self.tl, "triton": self.triton}
        constants = {(i, ): eval(v, space) for i, (_, t, v) in enumerate(row) if t == "constexpr"}
        attrs = {(i, ): [["tt.divisibility", 16]] for i, (_, t, _) in enumerate(row) if t.startswith("*")}
        source = ASTSource(jit, signature, constants, attrs)
        target = GPUTarget("cuda", 90, 32)
        backend = make_backend(target)
        given = backend.parse_options({k: v for k, v in options.items() if v})
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        made = source.make_ir(target, given, backend.get_codegen_implementation(given), backend.get_module_map(), context)
        if not made.verify():
            raise RuntimeError("the verifier refuses it")
        return made

    def cases(self, request, say):
        """Of each kernel of a file the first two variants that Triton takes, of different texts."""
        file = request["file"]
        tree = ast.parse(pathlib.Path(file).read_text())
        index = {n.rsplit(".", 1)[-1]: f for n, f, _ in defined(tree.body)}
        try:
            module = self.module(file, request["root"])
        except BaseException as e:  # noqa: BLE001
            for name in request["kernels"]:
                say({"kernel": name, "refused": f"import: {type(e).__name__}: {e}"[:300]})
            return
        # Helpers of other files by the names that they have here.
        for name, value in list(vars(module).items()):
            jit = unwrapped(value) if not isinstance(value, Stub) and name not in index else None
            if jit and isinstance(getattr(jit[0], "src", None), str):
                try:
                    index[name] = ast.parse(jit[0].src).body[0]
                except SyntaxError:
                    pass
        functions = {n: f for n, f, _ in defined(tree.body)}
        for name in request["kernels"]:
            say({"begin": name})
            function = functions[name]
            found = self.nested(module, file, name) if request["kernels"][name] else self.find(module, name)
            if found is None:
                say({"kernel": name, "refused": "not found as a kernel"})
                continue
            jit, known, options = found
            # Defaults by their values: an expression of the module says little elsewhere.
            defaults = {p.name: p.default for p in getattr(jit, "params", []) if p.is_constexpr and p.has_default}
            texts = {k: self.literal(v) for k, v in {**defaults, **known}.items() if k in known or not isinstance(v, bool)}
            why, got, huge = "", [], []
            for row in guess(function, index, {k: v for k, v in texts.items() if v is not None}, request["tries"]):
                if not any(t.startswith(("*", "tensordesc")) for _, t, _ in row):
                    why = why or "no pointer"
                    continue
                try:
                    text = str(self.ttir(jit, row, options))
                except BaseException as e:  # noqa: BLE001
                    why = f"{type(e).__name__}: {cause(e)}"
                    continue
                to = huge if largest_tensor(text) > LARGEST else got
                text = hashlib.sha1(re.sub(r"loc\(.*|#loc.*", "", text).encode()).hexdigest()
                if text not in [g[0] for g in to]:
                    to.append((text, row))
                if len(got) == request["cases"]:
                    break
            for number, (_, row) in enumerate(got or huge[:1]):
                say({"kernel": name, "number": number, "row": row, "options": options})
            if not got and not huge:
                say({"kernel": name, "refused": why[:300]})

    def launch(self, request, say):
        """Runs a case on the memory of a .safetensors; writes it as it is afterwards."""
        torch, tl = self.torch, self.tl
        module = self.module(request["file"], request["root"])
        name = request["kernel"]
        found = self.nested(module, request["file"], name) if request["inside"] else self.find(module, name)
        jit = found[0]
        held = read_tensors(request["memory"], torch)
        space = {**jit.fn.__globals__, "tl": tl, "triton": self.triton}
        values = {}
        for (n, t, v), a in zip(request["row"], request["arguments"]):
            values[n] = eval(v, space) if t == "constexpr" else held[n] if t.startswith("*") else a
        import numpy
        with numpy.errstate(all="ignore"):
            jit[tuple(request["grid"])](**values)
        write_tensors(request["result"], held)
        say({"ran": True})


def cause(e):
    while e.__cause__ is not None:
        e = e.__cause__
    return str(e).strip().split("\n")[-1][-250:] if "Error" in type(e).__name__ and len(str(e)) > 250 else re.sub(r"\s+", " ", str(e))[-250:]


def serve(interpret):
    """One request a line; each in a process of its own that already holds the imported modules."""
    triton = Triton(interpret)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:  # here, so that the next file finds the modules
            triton.module(request["file"], request["root"])
        except BaseException:  # noqa: BLE001
            pass
        # A kernel that ends the process is left out, and the others go on.
        done = set()
        while True:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(read)
                pipe = os.fdopen(write, "w")

                def say(what, pipe=pipe):
                    pipe.write(json.dumps(what) + "\n")
                    pipe.flush()

                signal.alarm(request.get("limit", 60))
                try:
                    if "kernels" in request:
                        request["kernels"] = {k: v for k, v in request["kernels"].items() if k not in done}
                    (triton.launch if interpret else triton.cases)(request, say)
                except BaseException as e:  # noqa: BLE001
                    say({"failed": f"{type(e).__name__}: {cause(e)}"})
                pipe.flush()
                os._exit(0)
            os.close(write)
            last = None
            with os.fdopen(read) as pipe:
                for text in pipe:
                    row = json.loads(text)
                    if "begin" in row:
                        last = row["begin"]
                        done.add(last)
                    else:
                        out.write(text)
                        out.flush()
            _, status = os.waitpid(child, 0)
            if status == 0 or interpret or last is None:
                if status:
                    out.write(json.dumps({"failed": f"ended with {status}"}) + "\n")
                break
            out.write(json.dumps({"kernel": last, "refused": f"Triton ended with {status}"}) + "\n")
        out.write(json.dumps({"done": True}) + "\n")
        out.flush()


# ---- Files of tensors

NAMES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "i1": "bool",
         "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2", "u32": "uint32", "u16": "uint16", "u64": "uint64", "u1": "bool"}
CODES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
         "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "uint32": "U32", "uint16": "U16", "uint64": "U64"}


def write_tensors(path, tensors):
    import torch
    header, at, parts = {}, 0, []
    for name, t in tensors.items():
        data = t.contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": CODES[str(t.dtype)[6:]], "shape": list(t.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read_tensors(path, torch):
    data = bytearray(pathlib.Path(path).read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(bytes(data[8:8 + size]))
    back = {v: k for k, v in CODES.items()}
    out = {}
    for name, h in header.items():
        if name == "__metadata__":
            continue
        begin, end = h["data_offsets"]
        out[name] = torch.frombuffer(data[8 + size + begin:8 + size + end], dtype=torch.uint8).clone().view(getattr(torch, back[h["dtype"]])).reshape(h["shape"])
    return out


# ---- Made-up arguments


def arguments_of(row, seed, way):
    """(tensors by name, values of the others in order). Strides of a tensor that has several grow from its last; sizes are `way`'s."""
    import torch
    generator = torch.Generator().manual_seed(seed)
    count = 1 << 17
    tensors, values = {}, []
    strides = collections.defaultdict(list)
    for n, t, _ in row:
        if t[0] in "iu" and re.search(r"stride|^s[a-z]{1,3}_", n, re.I):
            strides[n.split("_")[0] if n[0] == "s" and not n.startswith("stride") else re.sub(r"_?[a-zA-Z0-9]$", "", n)].append(n)
    step = {}
    for group in strides.values():
        for i, n in enumerate(reversed(group)):
            step[n] = min(64**i, 4096) if i < 3 else 0
    for n, t, v in row:
        if t == "constexpr":
            values.append(None)
        elif t.startswith("*"):
            dtype = getattr(torch, NAMES[t[1:]])
            if t[1:] in ("i1", "u1"):
                x = torch.rand(count, generator=generator) < 0.5
            elif dtype.is_floating_point:
                x = torch.randn(count, generator=generator)
                x = (x.abs() + 0.5 if re.search(r"scale|var|std|sum|max", n, re.I) else x).to(dtype)
            elif re.search(r"cu_|indptr|offsets?$|start|cum|offs", n, re.I):
                x = (torch.arange(count) * 8).clamp(max=64).to(dtype)
            elif t[1:] in ("i8", "u8"):
                x = torch.randint(0, 128, (count, ), generator=generator).to(dtype)
            else:
                x = torch.randint(0, 8, (count, ), generator=generator).to(dtype)
            tensors[n] = x
            values.append(None)
        elif t in ("u1", "i1"):
            values.append(True)
        elif t[0] in "iu":
            values.append(step[n] if n in step else way["size"] if not re.search(r"seed|start|offset|idx|pid|layer|rank$", n, re.I) else 3)
        else:
            values.append(1e-5 if "eps" in n.lower() else 0.5)
    return tensors, values


WAYS = [{"size": 24, "grid": (2, 2, 2)}, {"size": 64, "grid": (2, 1, 1)}, {"size": 8, "grid": (1, 1, 1)}, {"size": 2, "grid": (1, 1, 1)}, {"size": 1, "grid": (1, 1, 1)}]


def difference(got, want, before):
    """'' or how two memories differ that a launch left. Floats may differ in proportion to the largest value that the launch wrote into the
    buffer, for sums are in another order and products of 16-bit floats are rounded at other places."""
    import torch
    if torch.equal(got.view(torch.uint8), want.view(torch.uint8)):
        return ""
    if got.dtype.is_floating_point:
        written = want.view(torch.uint8).view(-1, want.itemsize).ne(before.view(torch.uint8).view(-1, want.itemsize)).any(1)
        g, w = got.double(), want.double()
        changed = ~((g == w) | (g.isnan() & w.isnan()))
        for what, differs in (("NaNs", g.isnan() != w.isnan()), ("infinities", (g.isinf() | w.isinf()) & changed & ~g.isnan() & ~w.isnan())):
            if differs.any():
                return f"{int(differs.sum())} {what} differ"
        held = w[written & w.isfinite()].abs()
        scale = held.max().item() if held.numel() else 1.0
        limit = {8: 1e-6, 4: 2e-3, 2: 2e-2, 1: 0.13}[got.dtype.itemsize]
        error = (g - w).abs() / w.abs().clamp(min=max(scale / 4, 1e-6))
        bad = changed & (error > limit)
        return f"{int(bad.sum())} elements off, by {error[bad].max().item():.2g}" if bad.any() else ""
    d = (got.long() - want.long()).abs() if got.dtype != torch.uint64 else (got != want).long()
    if got.dtype.itemsize == 1 and got.dtype != torch.bool and d.max() <= 1 and (d > 0).sum() < 64:
        return ""  # roundings of quantised values
    return f"{int((d > 0).sum())} integers differ, by up to {int(d.max())}"


# ---- Neso's side


class Served:
    """A worker of Triton's; one at a time."""

    def __init__(self, interpret):
        self.interpret, self.process, self.lock = interpret, None, threading.Lock()

    def ask(self, request):
        with self.lock:
            if self.process is None or self.process.poll() is not None:
                self.process = subprocess.Popen([sys.executable, __file__, "--serve", "interpret" if self.interpret else "compile"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                stderr=subprocess.DEVNULL, text=True)
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            rows = []
            for line in self.process.stdout:
                row = json.loads(line)
                if row.get("done"):
                    return rows
                rows.append(row)
            raise SystemExit("kernel_sweep: the worker ended with " + str(self.process.wait()))

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


def call(command, limit):
    """(exit status or "timeout", seconds of processor time, what it said)."""
    with tempfile.TemporaryFile("w+") as said:
        p = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 2)))
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = 0
        said.seek(0)
        text = said.read()[-3000:]
    code = os.waitstatus_to_exitcode(status)
    seconds = round(usage.ru_utime + usage.ru_stime, 2)
    return ("timeout" if code in (-signal.SIGXCPU, -signal.SIGKILL) and seconds >= limit - 1 else code), seconds, text


def kind_of(code, text):
    if code == 0:
        return "ok"
    if code == "timeout":
        return "timeout"
    m = re.search(r"error\[(E\d+)\]", text)
    if code == 1 and m:
        return m[1]
    return f"crash {code}"


class Neso:
    def __init__(self, given):
        self.given, self.neso = given, str(pathlib.Path(given.build or "").resolve() / "bin" / "neso")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="kernel_sweep_"))
        self.interpreter = Served(True)

    def source(self, case):
        row = case["row"]
        command = [f"{case['file']}:{case['kernel']}", "--signature", ",".join(t for _, t, _ in row), "--path", case["root"]]
        for n, t, v in row:
            if t == "constexpr":
                command += ["--constexpr", f"{n}={v}"]
        for k, v in case["options"].items():
            if v:
                command += ["--" + k.replace("_", "-"), str(v)]
        return command

    def judge(self, case):
        if not self.given.build:
            return case
        key = hashlib.sha1(json.dumps([case["file"], case["kernel"], case["row"]]).encode()).hexdigest()[:16]
        out = self.folder / key
        out.mkdir()
        try:
            targets = [("cpu", ["--arch", self.given.arch])]
            if self.given.gpu:
                targets.append(("gpu", ["--target", "cuda", "--arch", self.given.gpu, "--ptxas", "none"]))
            for name, more in targets:
                code, seconds, text = call([self.neso, "kernel", "compile", *self.source(case), *more, "-o", str(out / f"{name}.neso")], self.given.limit)
                case[name], case[name + "_s"] = kind_of(code, text), seconds
                if code != 0:
                    case[name + "_says"] = text[:1500]
            if self.given.run and case["cpu"] == "ok":
                self.run(case, out, int(key[:7], 16))
        finally:
            if not self.given.keep:
                shutil.rmtree(out)
        return case

    def run(self, case, out, seed):
        """The launch that says something: of several programs, or of one where several may write the same places in any order."""
        if any(t.startswith("tensordesc") for _, t, _ in case["row"]):
            case["run"] = "descriptors"
            return
        for way in WAYS:
            launched = self.launch(case, out, seed, way)
            if launched and case["run"].startswith("wrong") and math.prod(way["grid"]) > 1:
                launched = self.launch(case, out, seed, {**way, "grid": (1, 1, 1)})
            if launched:
                return

    def launch(self, case, out, seed, way):
        """False where the arguments lead out of bounds."""
        row = case["row"]
        tensors, values = arguments_of(row, seed, way)
        write_tensors(out / "before.safetensors", tensors)
        command = [self.neso, "kernel", "run", *self.source(case), "--grid", ",".join(map(str, way["grid"]))]
        for (n, t, _), v in zip(row, values):
            if t != "constexpr":
                command += ["--arg=" + (f"@{out}/before.safetensors#{n}" if v is None else str(v).lower())]
        code, _, text = call([*command, "--interpret", "-o", str(out / "interpreted.safetensors")], 30)
        if code != 0:
            case["run"], case["run_says"] = f"no launch: {kind_of(code, text)}", text[:600]
            return False
        case["way"] = way
        code, _, text = call([*command, "--arch", self.given.arch, "--threads", "1", "-o", str(out / "after.safetensors")], 30)
        if code != 0:
            case["run"], case["run_says"] = f"run: {kind_of(code, text)}", text[:600]
            return True
        request = {"file": case["file"], "root": case["root"], "kernel": case["kernel"], "inside": case["inside"], "row": row, "arguments": values, "grid": way["grid"],
                   "memory": str(out / "before.safetensors"), "result": str(out / "peer.safetensors"), "limit": 60}
        answer = self.interpreter.ask(request)
        import torch
        mine, slow = read_tensors(out / "after.safetensors", torch), read_tensors(out / "interpreted.safetensors", torch)
        own = "; ".join(f"{n}: {d}" for n in mine if (d := difference(mine[n], slow[n], tensors[n])))
        if not answer or not answer[0].get("ran"):
            case["run"] = "wrong beside own interpreter" if own else "interpreter refuses"
            case["run_says"] = own or str(answer)[:300]
            return True
        peer = read_tensors(out / "peer.safetensors", torch)
        wrong = "; ".join(f"{n}: {d}" for n in mine if (d := difference(mine[n], peer[n], tensors[n])))
        changed = any(not torch.equal(peer[n].view(torch.uint8), tensors[n].view(torch.uint8)) for n in peer)
        case["run"] = "wrong" if wrong else "wrong beside own interpreter" if own else "right" if changed else "right, nothing written"
        case.pop("run_says", None)
        if wrong or own:
            case["run_says"] = f"peer: {wrong or 'right'} | own interpreter: {own or 'right'}"
        return True


# ---- The table


def table(rows, refused, seconds, given):
    cases = len(rows)
    kernels = {(r["file"], r["kernel"]) for r in rows}
    print(f"{len(kernels) + len(refused)} kernels, {len(kernels)} that Triton takes ({cases} cases), {len(refused)} that it refuses as called here; {seconds:.0f} s")
    for target in ("cpu", "gpu", "run"):
        held = [r for r in rows if target in r]
        if not held:
            continue
        print(f"\n{target}: " + ", ".join(f"{n} {k}" for k, n in collections.Counter(r[target] for r in held).most_common()))
        if target == "run":
            bad = [r for r in held if r["run"].startswith(("wrong", "run:"))]
        else:
            bad = [r for r in held if r[target] != "ok"]
            slow = [r for r in held if r[target] == "ok" and r[target + "_s"] > given.slow]
            for r in sorted(slow, key=lambda r: -r[target + "_s"])[:20]:
                print(f"  slow {r[target + '_s']:6.1f} s  {short(r, given)}")
        shown = collections.defaultdict(list)
        for r in bad:
            first = (r.get(f"{target}_says") or "").strip().split("\n")
            message = next((x for x in first if "error" in x), first[0] if first else "")
            shown[r[target], re.sub(r"^.*?error\[E\d+\]: ", "", message)[:150]].append(r)
        for (kind, message), group in sorted(shown.items(), key=lambda g: -len(g[1]))[:given.lines]:
            print(f"  {len(group):4} {kind:8} {message}\n               {short(group[0], given)}")


def short(r, given):
    return f"{r['file'].removeprefix(str(given.folder or '') + '/')}:{r['kernel']}#{r['number']}"


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve(sys.argv[2] == "interpret")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", help="a build folder, with bin/neso; without one only the cases are found")
    parser.add_argument("folder", nargs="?", help="the sources")
    parser.add_argument("--rows", help="file to which a line of JSON is written for each case, and for each kernel that Triton refuses")
    parser.add_argument("--again", metavar="ROWS", help="take the cases from such a file")
    parser.add_argument("--verdict", help="with --again: of those alone whose verdicts (cpu gpu run) match")
    parser.add_argument("--only", default="", metavar="REGEX", help="files, or with --again FILE:KERNEL, to take")
    parser.add_argument("--sample", type=int, help="so many files, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", metavar="ARCH", help="compile for this GPU too, say sm_90a")
    parser.add_argument("--arch", default="native", help="of the CPU")
    parser.add_argument("--run", action="store_true", help="launch on the CPU and compare with Triton's interpreter")
    parser.add_argument("--tries", type=int, default=30, help="variants of a call to try (default: 30)")
    parser.add_argument("--cases", type=int, default=2, help="variants of a kernel to keep (default: 2)")
    parser.add_argument("--limit", type=int, default=60, help="seconds of processor time for one compilation (default: 60)")
    parser.add_argument("--slow", type=float, default=20, help="compilations that took longer are listed (default: 20)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--lines", type=int, default=60, help="of findings to print for each target")
    parser.add_argument("--keep", action="store_true", help="leave packages and tensors in the temporary folder")
    given = parser.parse_args()
    if bool(given.folder) == bool(given.again):
        parser.error("give a folder or --again")
    begin = time.time()
    neso = Neso(given)
    rows, refused = [], []
    log = open(given.rows, "w") if given.rows else None
    lock = threading.Lock()

    def note(row, to):
        with lock:
            to.append(row)
            if log:
                log.write(json.dumps(row) + "\n")
                log.flush()

    def judge(case):
        try:
            note(neso.judge(case), rows)
        except Exception as e:  # noqa: BLE001
            print(f"kernel_sweep: {case['file']}:{case['kernel']}: {type(e).__name__}: {e}", file=sys.stderr)

    pool = concurrent.futures.ThreadPoolExecutor(given.jobs)
    waiting = []
    if given.again:
        for line in open(given.again):
            case = json.loads(line)
            if "row" not in case or not re.search(given.only, f"{case['file']}:{case['kernel']}"):
                continue
            if given.verdict and not any(re.search(given.verdict, case.get(t, "")) for t in ("cpu", "gpu", "run")):
                continue
            waiting.append(pool.submit(judge, {k: case[k] for k in ("file", "root", "kernel", "inside", "number", "row", "options")}))
    else:
        given.folder = pathlib.Path(given.folder).resolve()
        files = survey(given.folder, given.only)
        if given.sample:
            files = sorted(random.Random(given.seed).sample(files, min(given.sample, len(files))))
        compiler = Served(False)
        for path, root, names in files:
            functions = {n: f for n, f, _ in defined(ast.parse(path.read_text()).body)}
            kernels = {n: inside for n, inside in names.items() if not returns_value(functions[n])}
            if not kernels:
                continue
            for row in compiler.ask({"file": str(path), "root": str(root), "kernels": kernels, "tries": given.tries, "cases": given.cases, "limit": 240}):
                row.update(file=str(path), root=str(root))
                if "row" not in row:
                    if row.get("refused") != "no pointer":
                        note(row, refused)
                    continue
                row["inside"] = kernels[row["kernel"]]
                waiting.append(pool.submit(judge, row))
        compiler.close()
    for w in waiting:
        w.result()
    neso.interpreter.close()
    if not given.keep:
        shutil.rmtree(neso.folder, ignore_errors=True)
    table(rows, refused, time.time() - begin, given)


if __name__ == "__main__":
    main()
