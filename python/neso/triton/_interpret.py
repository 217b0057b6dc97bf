"""`interpret()`: launches in the interpreter of Neso's tile IR, which watches every access: those outside of a tensor, what programs read and write at
once, and lanes that nobody wrote end the launch with the kernel's line."""

import contextlib
import ctypes
import json
import os
import tempfile

from .. import _program
from .._dtypes import ROWS
from .._errors import Error

_NAMES = {row.torch: row.safetensors for row in ROWS if row.safetensors}
# Whether launches are interpreted, and how: to debug is to do one thing, so that threads share it.
active, watches_races = False, True


@contextlib.contextmanager
def interpret(races=True):
    """Within it kernels without Triton run in the interpreter, thousands of times slower than their machine code:

        with neso.triton.interpret():
            kernel[grid](x, out, n, BLOCK=256)

    races: whether programs may not read what others stored, or store something else there, without atomics; False for kernels whose programs wait
    for each other. Autotuned kernels take their first config. Tensors must lie in the host's memory."""
    global active, watches_races
    before = active, watches_races
    active, watches_races = True, races
    try:
        yield
    finally:
        active, watches_races = before


class _Memory:
    """The memory that launches' tensors span, each of them once."""

    def __init__(self):
        self.rows = []

    def add(self, name, tensor):
        """What it is called in the file."""
        from ._launch import _address, _on_host
        if hasattr(tensor, "is_pinned") and not _on_host(tensor):
            raise Error(f"argument '{name}' lies on {tensor.device}; a kernel is interpreted on tensors in the host's memory")
        dtype = _NAMES.get(str(tensor.dtype).rpartition(".")[2])
        if dtype is None:
            raise Error(f"argument '{name}' is of {tensor.dtype}, of which no file of tensors holds any; kernels on it are not interpreted")
        size = tensor.element_size() if hasattr(tensor, "element_size") else tensor.itemsize
        steps = tensor.stride() if callable(getattr(tensor, "stride", None)) else [s // size for s in tensor.strides]
        if min(steps, default=0) < 0:
            raise Error(f"argument '{name}' has a negative stride; copy it before it is interpreted")
        count = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, steps)) if 0 not in tensor.shape else 0
        row = _address(tensor), count, size, dtype, tuple(tensor.shape) if list(steps) == _contiguous(tensor.shape) else (count,)
        for i, other in enumerate(self.rows):
            if other == row:
                return f"m{i}"
            if other[0] < row[0] + count * size and row[0] < other[0] + other[1] * other[2]:
                raise Error(f"argument '{name}' overlaps another tensor of the launch; the interpreter knows tensors apart from each other, or the same one twice")
        self.rows.append(row)
        return f"m{len(self.rows) - 1}"

    def save(self, path):
        header, at = {}, 0
        for i, (_, count, size, dtype, shape) in enumerate(self.rows):
            header[f"m{i}"] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + count * size]}
            at += count * size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            for address, count, size, _, _ in self.rows:
                f.write(ctypes.string_at(address, count * size))

    def restore(self, path, names):
        """names: what the launch wrote, by the argument whose tensor it is → what add called it."""
        with open(path, "rb") as f:
            data = f.read()
        start = 8 + int.from_bytes(data[:8], "little")
        for argument, row in json.loads(data[8:start]).items():
            if argument in names:
                begin, end = row["data_offsets"]
                ctypes.memmove(self.rows[int(names[argument][1:])][0], data[start + begin:start + end], end - begin)


def _contiguous(shape):
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return out[::-1]


def launch(kernel, sizes, values, options):
    """What a launch does while interpret() is on: its tensors go through files."""
    if 0 in sizes:
        return
    text, file, arguments, constants = kernel.request(values, options)
    memory, names = _Memory(), {}
    with tempfile.TemporaryDirectory(prefix="neso-") as folder:
        source, before, after = (os.path.join(folder, n) for n in ("kernel.py", "before.safetensors", "after.safetensors"))
        given = []
        for name, value in zip(kernel.arg_names, values):
            if name in constants:
                continue
            tensor = value.base if hasattr(value, "block_shape") else value
            if hasattr(tensor, "dtype"):
                names[name] = memory.add(name, tensor)
                given.append(f"@{before}#{names[name]}")
            else:
                given.append(str(value))
        with open(source, "w") as f:
            f.write(text)
        memory.save(before)
        _program.run(["kernel", "run", f"{source}:{kernel.__name__}", "--interpret", *(["--races"] if watches_races else []), *arguments, "--grid", ",".join(map(str, sizes)),
                      *(word for text in given for word in ("--arg", text)), "-o", after], names=[(source, file or kernel.__name__)])
        memory.restore(after, names)
