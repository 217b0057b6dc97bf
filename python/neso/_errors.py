"""What goes wrong, as exceptions: each has the code under which the documentation explains it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnostic:
    """One finding of the compiler. `file`, `line` and `context` say where: a line of the model's source, or a node."""
    severity: str
    code: str
    kind: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    context: str = ""

    @property
    def hint(self):
        """What to do: the end of the message, where it has one."""
        return self.message.partition("; ")[2]

    @property
    def location(self):
        place = self.file + (f":{self.line}" if self.line else "")
        return f"{place} ({self.context})" if place and self.context else place or self.context

    def __str__(self):
        place = f"{self.location}: " if self.location else ""
        return f"{self.severity}[{self.code}]: {place}{self.message}"


class Error(RuntimeError):
    """A failure of Neso. `code`: "E0824"; `name`: "INPUT_DTYPE"; `hint`: what to do; `diagnostics`: all findings, of the compiler."""

    def __init__(self, message, code="", name="", diagnostics=()):
        super().__init__(f"[{code}] {message}" if code else message)
        self.code, self.name, self.diagnostics = code, name, tuple(diagnostics)
        self.hint = self.diagnostics[0].hint if self.diagnostics else message.partition("; ")[2]
        self.location = self.diagnostics[0].location if self.diagnostics else ""


class InputError(Error, ValueError):
    """Arguments of a call that do not fit the model."""


class CompileError(Error):
    """The compiler refused a model or a kernel: `diagnostics` holds every reason."""


class ExportError(Error):
    """torch.export could not capture a model."""


def of_status(name, code, text):
    """The exception for a failed call of the runtime."""
    kind = InputError if name.startswith(("INPUT_", "OUTPUT_", "KERNEL_")) or name == "INVALID_ARGUMENT" else Error
    return MemoryError(text) if name == "OUT_OF_MEMORY" else kind(text, code, name)
