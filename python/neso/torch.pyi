from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from . import Package

SMALLEST_PIECE: int

@dataclass
class Piece:
    operators: int
    compiled: bool
    seconds: float = 0.0
    cached: bool = False
    bytes: int = 0

@dataclass
class Report:
    pieces: list[Piece] = field(default_factory=list)
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    packages: list[Package] = field(default_factory=list)
    @property
    def share(self) -> float: ...

def watch() -> AbstractContextManager[Report]: ...
def to_program(graph_module: Any, narrow: bool = False) -> tuple[Any, list[tuple[str, Any]], dict[int, list[int]]]: ...
def compile_graph(graph_module: Any, settings: dict[str, Any]) -> Callable[[list[Any]], Any]: ...
def backend(graph_module: Any, example_inputs: list[Any], *, options: dict[str, Any] | None = None, mode: str | None = None) -> Callable[..., Any]: ...
def explain(function: Callable[..., Any], *args: Any, options: dict[str, Any] | None = None, **kwargs: Any) -> Report: ...
def package(function: Callable[..., Any], *args: Any, options: dict[str, Any] | None = None, dynamic: bool | None = None, **kwargs: Any) -> Package: ...
