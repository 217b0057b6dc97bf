"""Compiled code beside the reference interpreter: `neso.verify`."""

import json
import os
import struct
import tempfile
from dataclasses import dataclass

from . import _program
from ._compile import _Source
from ._dtypes import ROWS
from ._errors import InputError

# Of safetensors, by the names of torch and NumPy.
_DTYPES = {row.torch: row.safetensors for row in ROWS if row.safetensors}


@dataclass(frozen=True)
class Comparison:
    """An output: the worst errors of the compiled code, and how many elements are beyond the tolerance. `name`: its number, or the buffer
    or input that the model changes. An infinite or missing error is None."""
    name: str
    dtype: str
    shape: tuple
    worst_absolute: float
    worst_relative: float
    beyond: int
    good: bool


class Verification(tuple):
    """The comparisons of all outputs; true where all are good."""

    @property
    def good(self):
        return all(c.good for c in self)

    def __bool__(self):
        return self.good

    def __str__(self):
        return "\n".join(f"{c.name} {c.dtype} {list(c.shape)}: worst error {c.worst_absolute} absolute, {c.worst_relative} relative: "
                         + ("ok" if c.good else f"WRONG, {c.beyond} elements beyond the tolerance") for c in self)


def _bytes(value):
    """(dtype, shape, bytes) of a tensor, an array or a Python number."""
    if isinstance(value, (bool, int, float)):
        kind, code = ("BOOL", "?") if isinstance(value, bool) else ("I64", "q") if isinstance(value, int) else ("F64", "d")
        return kind, [], struct.pack("<" + code, value)
    name = str(getattr(value, "dtype", "")).rpartition(".")[2]
    if name not in _DTYPES:
        raise InputError(f"verify takes tensors, arrays and numbers; {type(value).__name__} of {name or 'no dtype'} is none that it can write")
    shape = list(value.shape)
    if hasattr(value, "detach"):
        import torch
        flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        return _DTYPES[name], shape, flat.reshape(-1).view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return _DTYPES[name], shape, value.tobytes()


def _write_inputs(path, values):
    """The flat inputs as a .safetensors under "0", "1", …; None has no entry."""
    header, parts, at = {}, [], 0
    for i, value in enumerate(values):
        if value is None:
            continue
        dtype, shape, data = _bytes(value)
        header[str(i)] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def _flat(args, kwargs):
    if args is None and not kwargs:
        return None
    try:
        from torch.utils import _pytree
    except ImportError:
        return list(args or ())
    return _pytree.tree_leaves((tuple(args or ()), kwargs or {}))


def verify(model, args=None, kwargs=None, *, package=None, dynamic_shapes=None, strict=False, target="cpu", arch=None, options=None, kernels=None, seed=0, rtol=None,
           atol=None, timeout=None, op_library=None):
    """Runs the compiled code and the reference interpreter on the same inputs; a Verification: the worst error of each output.

    model:   as for neso.compile; `args` are the inputs, also of a .pt2. Without them the inputs are random, inside the exported ranges
    package: what neso.compile gave for this model, or a path; without it the model is compiled anew, as `target` … `kernels` say
    op_library: the library of the operators that the model calls and that are not PyTorch's, as for neso.load; both sides call it
    rtol, atol: tolerances in place of each dtype's own; atol is relative to an output's largest value
    """
    source = _Source(model, args, kwargs, dynamic_shapes, strict)
    try:
        with tempfile.TemporaryDirectory(prefix="neso-") as folder:
            arguments = ["verify", source.path]
            if package is None:
                from ._compile import compile as compile_model
                package = compile_model(model if source.fd is None else source.read(), target=target, arch=arch, options=options, kernels=kernels, timeout=timeout)
            if hasattr(package, "save"):
                package.save(os.path.join(folder, "model.neso"))
                package = os.path.join(folder, "model.neso")
            arguments.append(os.fspath(package))
            arguments += [a for path in kernels or () for a in ("--kernels", os.fspath(path))]
            arguments += ["--op-library", os.fspath(op_library)] if op_library is not None else []
            flat = _flat(args, kwargs)
            if flat is not None:
                _write_inputs(os.path.join(folder, "inputs.safetensors"), flat)
                arguments += ["--input", os.path.join(folder, "inputs.safetensors")]
            arguments += ["--seed", seed, "--json"] + (["--device", "cuda"] if target == "cuda" else [])
            for flag, value in (("--rtol", rtol), ("--atol", atol)):
                arguments += [flag, value] if value is not None else []
            out, _ = _program.run(arguments, pass_fds=[source.fd] if source.fd is not None else (), names=source.names, timeout=timeout, tells=True)
    finally:
        source.close()
    return Verification(Comparison(row["output"], row["dtype"], tuple(row["shape"]), row["worst_abs"], row["worst_rel"], row["beyond"], row["ok"])
                        for row in json.loads(out)["outputs"])
