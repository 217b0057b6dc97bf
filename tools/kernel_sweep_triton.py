"""Triton's side of kernel_sweep.py: a process that imports other people's sources as they are, finds the calls of their kernels that Triton
takes, and launches them in Triton's interpreter.

`Served` starts such a process (this file, with "compile" or "interpret") and asks it, a line of JSON a request. Modules of the sources run
statement by statement, and a statement that fails is skipped; what they import and is not there is replaced by objects that do nothing.
"""
import ast
import hashlib
import importlib.metadata
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kernel_sweep_guess import guess  # noqa: E402
from kernel_sweep_launch import pointee, read_tensors, write_tensors  # noqa: E402


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
        from triton.tools.tensor_descriptor import TensorDescriptor
        torch, tl = self.torch, self.tl
        module = self.module(request["file"], request["root"])
        name = request["kernel"]
        found = self.nested(module, request["file"], name) if request["inside"] else self.find(module, name)
        jit = found[0]
        held = read_tensors(request["memory"], torch)
        space = {**jit.fn.__globals__, "tl": tl, "triton": self.triton}
        values = {}
        for (n, t, v), a in zip(request["row"], request["arguments"]):
            block = pointee(t)[1] if n in held else None
            values[n] = eval(v, space) if t == "constexpr" else TensorDescriptor.from_tensor(held[n], block) if block else held.get(n, a)
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


class Served:
    """A worker of Triton's; one at a time."""

    def __init__(self, interpret):
        self.interpret, self.process, self.lock = interpret, None, threading.Lock()

    def ask(self, request):
        with self.lock:
            if self.process is None or self.process.poll() is not None:
                self.process = subprocess.Popen([sys.executable, __file__, "interpret" if self.interpret else "compile"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
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


if __name__ == "__main__":
    serve(sys.argv[1] == "interpret")
