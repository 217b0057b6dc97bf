"""Launches of kernel_sweep.py: made-up arguments for a kernel's signature, files of tensors, and whether two memories agree that a launch left.

A case is launched in Neso's interpreter first, which refuses accesses out of bounds (such a launch says nothing), then as machine code and in
Triton's interpreter. One that comes out wrong runs in Neso's interpreter once more, which then watches whether programs or elements of one
store write different values to one place: what such a launch leaves is up to the order.
"""
import collections
import json
import math
import pathlib
import re
import struct

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

SIDES = {1: 0, 2: 256, 3: 64, 4: 32, 5: 16}  # of the inner dims of a tensor behind a descriptor of so many dims


def pointee(type):
    """(kind of an element, shape of the block or None) of "*fp32" or "tensordesc<fp32[32,32]>"."""
    m = re.fullmatch(r"tensordesc<(\w+)\[([\d, ]*)\]>", type)
    return (m[1], [int(n) for n in m[2].split(",")]) if m else (type[1:], None)


def arguments_of(row, seed, way):
    """(tensors by name, values of the others in order). Strides of a tensor that has several grow from its last; sizes are `way`'s."""
    import torch
    generator = torch.Generator().manual_seed(seed)
    count = 1 << 17  # elements of a tensor
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
        elif t.startswith(("*", "tensordesc")):
            kind, block = pointee(t)
            dtype = getattr(torch, NAMES[kind])
            if kind in ("i1", "u1"):
                x = torch.rand(count, generator=generator) < 0.5
            elif dtype.is_floating_point:
                x = torch.randn(count, generator=generator)
                x = (x.abs() + 0.5 if re.search(r"scale|var|std|sum|max", n, re.I) else x).to(dtype)
            elif re.search(r"cu_|indptr|offsets?$|start|cum|offs", n, re.I):
                x = (torch.arange(count) * 8).clamp(max=64).to(dtype)
            elif kind in ("i8", "u8"):
                x = torch.randint(0, 128, (count, ), generator=generator).to(dtype)
            else:
                x = torch.randint(0, 8, (count, ), generator=generator).to(dtype)
            # Of a descriptor a tensor of so many dims, each at least its block's.
            tensors[n] = x.reshape(-1, *[max(b, SIDES[len(block)]) for b in block[1:]]) if block else x
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
    got, want, before = got.reshape(-1), want.reshape(-1), before.reshape(-1)
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


# ---- Launches


class Launches:
    """Launches cases. `neso` runs a command of the program and gives (exit status, seconds, text), `kind` names what came of it, `peer` asks
    Triton's interpreter."""

    def __init__(self, neso, kind, peer, arch):
        self.neso, self.kind, self.peer, self.arch = neso, kind, peer, arch

    def run(self, case, source, out, seed):
        """The launch that says something: of several programs, or of one where several may write the same places in any order."""
        for way in WAYS:
            launched = self.launch(case, source, out, seed, way)
            if launched and case["run"].startswith(("wrong", "up to")) and math.prod(way["grid"]) > 1:
                launched = self.launch(case, source, out, seed, {**way, "grid": (1, 1, 1)})
            if launched:
                return

    def launch(self, case, source, out, seed, way):
        """False where the arguments lead out of bounds."""
        import torch
        row = case["row"]
        tensors, values = arguments_of(row, seed, way)
        before = out / "before.safetensors"
        write_tensors(before, tensors)
        command = ["kernel", "run", *source, "--grid", ",".join(map(str, way["grid"]))]
        for (n, t, _), v in zip(row, values):
            if t != "constexpr":
                command += ["--arg=" + (f"@{before}#{n}" if v is None else str(v).lower())]
        code, _, text = self.neso([*command, "--interpret", "-o", str(out / "interpreted.safetensors")])
        if code != 0:
            case["run"], case["run_says"] = f"no launch: {self.kind(code, text)}", text[:600]
            return False
        case["way"] = way
        code, _, text = self.neso([*command, "--arch", self.arch, "--threads", "1", "-o", str(out / "after.safetensors")])
        if code != 0:
            case["run"], case["run_says"] = f"run: {self.kind(code, text)}", text[:600]
            return True
        answer = self.peer({"file": case["file"], "root": case["root"], "kernel": case["kernel"], "inside": case["inside"], "row": row, "arguments": values,
                            "grid": way["grid"], "memory": str(before), "result": str(out / "peer.safetensors"), "limit": 60})
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
            code, _, text = self.neso([*command, "--interpret", "--races", "-o", str(out / "raced.safetensors")])
            if self.kind(code, text) == "E0411":
                case["run"] = "up to the order"
                case["run_says"] += " | " + text[:300]
        return True
