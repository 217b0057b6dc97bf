"""What the Python tools share: cases on disk, tidy .pt2 files, comparison with tolerance.

A case is a folder {model.pt2 | export.pt2 + decomposed.pt2, inputs.safetensors, outputs.safetensors}. Tensors are named
by their number in the flattened order of inputs and outputs; a None leaf has no entry but keeps its number; a Python
scalar is a 0-d tensor (int64, float64, bool).
"""
import io
import json
import math
import re
import struct
import zipfile
import zlib
from pathlib import Path

import torch
from torch.utils import _pytree as pytree

DTYPE_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
    torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.complex64: "C64",
}
_ST_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


def to_tensor(leaf):
    """A flattened leaf as the tensor that goes into a .safetensors file; None stays None."""
    if leaf is None or isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, bool):
        return torch.tensor(leaf)
    if isinstance(leaf, int):
        return torch.tensor(leaf, dtype=torch.int64)
    if isinstance(leaf, float):
        return torch.tensor(leaf, dtype=torch.float64)
    raise TypeError(f"a leaf of type {type(leaf).__name__} has no tensor form")


def _raw(tensor):
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.dtype == torch.complex128:
        tensor = torch.view_as_real(tensor).contiguous()
    if tensor.numel() == 0:
        return DTYPE_NAMES[tensor.dtype], list(tensor.shape), b""
    # Never an alias: an expanded tensor's storage is smaller than its view. A single element may keep another stride than 1.
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1))
    return DTYPE_NAMES[tensor.dtype], list(tensor.shape), bytes(flat.view(torch.uint8).numpy().tobytes())


def write_safetensors(path, leaves):
    """leaves: a list (named by position) or a dict name → tensor."""
    items = leaves.items() if isinstance(leaves, dict) else ((str(i), leaf) for i, leaf in enumerate(leaves))
    header, blobs, offset = {}, [], 0
    for name, leaf in items:
        tensor = to_tensor(leaf)
        if tensor is None:
            continue
        dtype, shape, raw = _raw(tensor)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(raw)]}
        blobs.append(raw)
        offset += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_safetensors(path):
    """Name → tensor."""
    data = Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = bytearray(data[8 + size + begin:8 + size + end])
        dtype = _ST_DTYPES[entry["dtype"]]
        flat = torch.frombuffer(raw, dtype=torch.uint8).view(dtype) if raw else torch.empty(0, dtype=dtype)
        out[name] = flat.reshape(entry["shape"])
    return out


# ---------------------------------------------------------------------------------------------------------------------
# .pt2 files


def _tidy_trace(text):
    """Keeps the lines of the model alone, without the folders of the machine that exported it."""
    return re.sub(r'File "(?:[^"]*/)?([^"/]+)"', r'File "\1"', text)


def _tidy_graph(graph, lean):
    for node in graph.get("nodes", []):
        metadata = node.get("metadata", {})
        if lean:
            metadata = node["metadata"] = {k: v for k, v in metadata.items() if k == "stack_trace"}
        if "stack_trace" in metadata:
            # The last frame is the model's line; the ones above it are the frameworks' call machinery.
            frames = _tidy_trace(metadata["stack_trace"]).strip().split("  File ")
            metadata["stack_trace"] = "  File " + frames[-1].rstrip() + "\n"
        # A path with line numbers that torch adds for its own debugging.
        metadata.pop("from_node", None)
        for argument in node.get("inputs", []):
            sub = argument.get("arg", {}).get("as_graph")
            if sub:
                _tidy_graph(sub["graph"], lean)


def tidy_pt2(path, out=None, lean=False):
    """Rewrites a .pt2 so that it is the same on every machine: no sample inputs, no machine paths, fixed dates.

    Records stay stored and aligned to 64 bytes, as torch's own writer makes them. lean=True drops
    what only debuggers of torch read, for committed cases.
    """
    out = Path(out or path)
    members = []
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            root, _, name = info.filename.partition("/")
            if name.startswith("data/sample_inputs/"):
                continue
            data = archive.read(info)
            if name.startswith("models/") and name.endswith(".json"):
                model = json.loads(data)
                _tidy_graph(model["graph_module"]["graph"], lean)
                data = json.dumps(model, separators=(",", ":")).encode()
            members.append((name, data))
    digest = zlib.crc32(b"".join(name.encode() + data for name, data in members if not name.startswith(".data/")))
    members = [(n, f"{digest:040d}".encode() if n.endswith("serialization_id") else d) for n, d in members]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members:
            info = zipfile.ZipInfo("model/" + name, date_time=(1980, 1, 1, 0, 0, 0))
            header = buffer.tell() + 30 + len(info.filename)
            pad = -(header + 4) % 64
            info.extra = b"FB" + struct.pack("<H", pad) + b"Z" * pad
            archive.writestr(info, data)
    out.write_bytes(buffer.getvalue())


def save_program(program, path, lean=False, extra_files=None):
    path = Path(path)
    torch.export.save(program, path, extra_files=extra_files)
    tidy_pt2(path, lean=lean)


def graph_targets(graph_module):
    """The distinct call targets of a program, sub-graphs included, as the file spells them."""
    found = set()
    for module in graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            if node.op == "call_function":
                name = str(node.target)
                found.add(name if "." in name and " " not in name else getattr(node.target, "__name__", name))
    found.discard("getitem")
    return sorted(found)


def is_random(graph_module):
    """Whether some call draws random numbers: its values then depend on torch's generator."""
    return any(torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
               for module in graph_module.modules() if isinstance(module, torch.fx.GraphModule)
               for node in module.graph.nodes if node.op == "call_function")


# ---------------------------------------------------------------------------------------------------------------------
# Comparison

# Relative and absolute bounds by dtype. The absolute one is of the largest expected magnitude, at least 1.
TOLERANCE = {
    "F64": (1e-9, 1e-11), "F32": (1e-4, 1e-5), "F16": (4e-3, 2e-3), "BF16": (2e-2, 1.6e-2), "C64": (1e-4, 1e-5),
    "F8_E4M3": (0.13, 0.13), "F8_E5M2": (0.26, 0.26),
}


def limits(want, rtol=None, atol=None):
    """[rtol, atol] for an expected output: the dtype's, or the wider ones that are given."""
    if not (want.is_floating_point() or want.is_complex()):
        return [0.0, 0.0]
    default_rtol, default_atol = TOLERANCE[DTYPE_NAMES[want.dtype]]
    magnitude = want.to(torch.complex128).abs() if want.is_complex() else want.to(torch.float64).abs()
    magnitude = magnitude[torch.isfinite(magnitude)]
    largest = min(float(magnitude.max()), 1e6) if magnitude.numel() else 1.0
    return [max(rtol or 0.0, default_rtol), max(atol or 0.0, default_atol * max(1.0, largest))]


def compare(name, got, want, rtol=None, atol=None, values=True):
    """None if got is want within tolerance, else one line that says why not."""
    if got is None:
        return f"output {name} is missing"
    if got.dtype != want.dtype:
        return f"output {name}: dtype {got.dtype}, expected {want.dtype}"
    if list(got.shape) != list(want.shape):
        return f"output {name}: shape {list(got.shape)}, expected {list(want.shape)}"
    if not values or want.numel() == 0:
        return None
    if not (want.is_floating_point() or want.is_complex()):
        differing = int((got != want).sum())
        return f"output {name}: {differing} of {want.numel()} values differ" if differing else None
    rtol, atol = limits(want, rtol, atol)
    wide = torch.complex128 if want.is_complex() else torch.float64
    got, want = got.to(wide), want.to(wide)
    if want.is_complex():
        got, want = torch.view_as_real(got), torch.view_as_real(want)
    finite = torch.isfinite(want)
    if not torch.equal(torch.isnan(got), torch.isnan(want)):
        return f"output {name}: NaN in different places"
    infinite = torch.isinf(want)
    if infinite.any() and not torch.equal(got[infinite], want[infinite]):
        return f"output {name}: infinities differ"
    if not finite.any():
        return None
    got, want = got[finite], want[finite]
    bound = atol + rtol * want.abs()
    error = (got - want).abs()
    bad = ~(error <= bound)
    if bad.any():
        at = int(torch.where(bad, error / bound, torch.zeros_like(error)).argmax())
        return (f"output {name}: {int(bad.sum())} of {want.numel()} beyond tolerance, worst {float(got[at]):.8g} "
                f"for {float(want[at]):.8g}")
    return None


def worst_error(got, want):
    """Largest absolute difference among finite values; 0 where there is nothing to compare."""
    wide = torch.complex128 if want.is_complex() else torch.float64
    got, want = got.to(wide), want.to(wide)
    finite = torch.isfinite(want) & torch.isfinite(got)
    error = float((got - want)[finite].abs().max()) if finite.any() else 0.0
    return error if math.isfinite(error) else 0.0


def flatten(value):
    return pytree.tree_flatten(value)[0]
