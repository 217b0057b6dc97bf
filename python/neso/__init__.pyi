"""Types of what is public; the package itself imports its parts when they are first used."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from . import cache as cache
from . import torch as torch
from . import triton as triton

__version__: str
__all__: list[str]

_Path = str | os.PathLike[str]
_Target = Literal["cpu", "cuda"]
_Result = Literal["torch", "numpy"] | type | None

@dataclass(frozen=True)
class Diagnostic:
    severity: str
    code: str
    kind: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    context: str = ""
    @property
    def hint(self) -> str: ...
    @property
    def location(self) -> str: ...

class Error(RuntimeError):
    code: str
    name: str
    hint: str
    location: str
    diagnostics: tuple[Diagnostic, ...]
    def __init__(self, message: str, code: str = "", name: str = "", diagnostics: Iterable[Diagnostic] = ()) -> None: ...

class InputError(Error, ValueError): ...
class CompileError(Error): ...
class ExportError(Error): ...

@dataclass(frozen=True)
class _Dim:
    min: int
    max: int | None
    name: str | None = None

@dataclass(frozen=True)
class _Value:
    name: str
    kind: str
    dtype: str
    dims: tuple[_Dim, ...]
    mutated: bool
    optional: bool

class Model:
    info: dict[str, Any]
    device: str | None
    inputs: tuple[_Value, ...]
    outputs: tuple[_Value, ...]
    def __init__(self, source: _Path | bytes | bytearray | memoryview, *, device: Any = "cpu", threads: int = 0, name: str | None = None, arch: str | None = None,
                 weights: Mapping[str, Any] | None = None, check: bool = False, result: _Result = None, cuda_driver: str | None = None, cublas: str | None = None,
                 op_library: _Path | None = None, contexts: int = 0, stream: Any = None, graph: Literal["static"] | None = None, objects: Mapping[str, Any] | None = None, perf_map: bool = False) -> None: ...
    def __call__(self, *args: Any, out: Any = ..., stream: Any = ..., **kwargs: Any) -> Any: ...
    def run(self, inputs: Sequence[Any], out: tuple[Any, ...] | None = None, /) -> Any: ...
    def launch(self, name: str, grid: tuple[int, int, int], kinds: str, args: tuple[Any, ...], stream: int = 0, /) -> None: ...
    def describe(self) -> dict[str, Any]: ...
    def synchronize(self) -> None: ...
    def to_device(self, tree: Any) -> Any: ...
    def reset_buffers(self) -> None: ...
    def buffers(self, like: _Result = None) -> dict[str, Any]: ...
    @property
    def dims(self) -> dict[str, _Dim]: ...
    @property
    def constants(self) -> dict[str, dict[str, Any]]: ...
    @property
    def kernels(self) -> list[dict[str, Any]]: ...
    @property
    def metadata(self) -> dict[str, str]: ...

class Package:
    seconds: float
    warnings: tuple[Diagnostic, ...]
    report_html: bytes | None
    cached: bool
    models: tuple[dict[str, Any], ...]
    def __init__(self, data: bytes, seconds: float = 0.0, warnings: Iterable[Diagnostic] = (), report_html: bytes | None = None, cached: bool = False,
                 models: Iterable[dict[str, Any]] = ()) -> None: ...
    @property
    def data(self) -> bytes: ...
    def save(self, path: _Path) -> None: ...
    def report(self, path: _Path) -> None: ...
    def load(self, *, device: Any = "cpu", threads: int = 0, name: str | None = None, arch: str | None = None, weights: Mapping[str, Any] | None = None,
             check: bool = False, result: _Result = None, cuda_driver: str | None = None, cublas: str | None = None,
             op_library: _Path | None = None, contexts: int = 0, stream: Any = None, graph: Literal["static"] | None = None, copy_inputs: bool = False,
             objects: Mapping[str, Any] | None = None, perf_map: bool = False) -> Model: ...

def load(source: _Path | bytes | bytearray | memoryview | Package, *, device: Any = "cpu", threads: int = 0, name: str | None = None, arch: str | None = None,
         weights: Mapping[str, Any] | None = None, check: bool = False, result: _Result = None, cuda_driver: str | None = None, cublas: str | None = None,
         op_library: _Path | None = None, contexts: int = 0, stream: Any = None, graph: Literal["static"] | None = None, copy_inputs: bool = False,
         objects: Mapping[str, Any] | None = None, perf_map: bool = False) -> Model: ...

def compile(model: Any, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = False,
            target: _Target | tuple[_Target, ...] | list[_Target] = "cpu", arch: str | Iterable[str] | None = None, options: Mapping[str, Any] | None = None,
            kernels: Iterable[_Path] | None = None, tune: bool | _Path = False, tuned: _Path | None = None, threads: int = 0, report: bool = False, cached: bool = False,
            timeout: float | None = None, ptxas: _Path | None = None, format: Literal["neso", "aoti"] = "neso",
            strip: bool = False, samples: bool = False, progress: bool | Callable[[Progress], object] | None = True) -> Package: ...

@dataclass(frozen=True)
class Progress:
    stage: str
    what: str = ""
    name: str = ""
    done: int = 0
    of: int = 0
    seconds: float = 0.0

def export(model: Any, args: Sequence[Any] | None, path: _Path | None = None, kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None,
           strict: bool = False, kernels: _Path | None = None) -> Any: ...

@dataclass(frozen=True)
class _Comparison:
    name: str
    dtype: str
    shape: tuple[int, ...]
    worst_absolute: float | None
    worst_relative: float | None
    beyond: int
    good: bool

class _Verification(tuple[_Comparison, ...]):
    @property
    def good(self) -> bool: ...
    def __bool__(self) -> bool: ...

def verify(model: Any, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, *, package: Package | _Path | None = None,
           dynamic_shapes: Any = None, strict: bool = False, target: Literal["cpu", "cuda"] = "cpu", arch: str | Iterable[str] | None = None,
           options: Mapping[str, Any] | None = None, kernels: Iterable[_Path] | None = None, seed: int = 0, rtol: float | None = None, atol: float | None = None,
           timeout: float | None = None, op_library: _Path | None = None) -> _Verification: ...

@dataclass(frozen=True)
class _Step:
    what: str
    kernel: str | None
    grid: tuple[int, int, int]
    begin: float
    end: float
    depth: int
    @property
    def seconds(self) -> float: ...

@dataclass(frozen=True)
class _Run:
    model: Model
    thread: int
    begin: float
    end: float
    steps: tuple[_Step, ...]
    @property
    def seconds(self) -> float: ...

class Profile:
    runs: list[_Run]
    def __init__(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None: ...
    @property
    def seconds(self) -> float: ...
    def kernels(self) -> list[dict[str, Any]]: ...
    def table(self, limit: int = 20) -> str: ...
    def save(self, path: _Path) -> None: ...

def profile() -> Profile: ...
