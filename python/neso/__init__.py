"""Neso compiles PyTorch models and Triton kernels ahead of time, and runs what it compiled.

    import neso
    package = neso.compile(model, (x,))     # nn.Module, ExportedProgram, or a .pt2
    package.save("model.neso")
    model = neso.load("model.neso")         # path, bytes or a Package
    y = model(x)                            # torch or numpy in, the same out

`torch.compile(model, backend="neso")` compiles what torch.compile traces; see neso.torch. Existing Triton kernels: neso.triton.
Importing neso imports neither torch nor numpy.
"""

__version__ = "0.1.0"

# Where each public name lives; imported when it is first used.
_NAMES = {
    "Error": "_errors", "InputError": "_errors", "CompileError": "_errors", "ExportError": "_errors", "Diagnostic": "_errors",
    "Model": "_model", "load": "_model",
    "compile": "_compile", "Package": "_compile", "Progress": "_progress", "export": "_export", "verify": "_verify", "profile": "_profile", "Profile": "_profile",
}
_MODULES = ("cache", "torch", "triton")

__all__ = [*_NAMES, *_MODULES]


def __getattr__(name):
    from importlib import import_module
    try:
        if name in _MODULES:
            return import_module("neso." + name)
        if name in _NAMES:
            globals()[name] = getattr(import_module("neso." + _NAMES[name]), name)
            return globals()[name]
    except ModuleNotFoundError as e:
        if e.name and e.name.startswith("neso."):
            raise ImportError(f"neso.{name} belongs to the compiler, which is not installed here: pip install neso, of the same version as neso-runtime; there is none but for x86-64, which compiles for 64-bit ARM too (arch=\"aarch64\")") from e
        raise
    raise AttributeError(f"module 'neso' has no attribute '{name}'")


def __dir__():
    return sorted([*globals(), *__all__])
