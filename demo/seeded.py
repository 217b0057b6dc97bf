#!/usr/bin/env python3
"""Fills a program without weights with numbers of a random generator, with nothing but Python itself:

    seeded.py demo/resnet50.pt2 build/demo/resnet50.pt2     also writes build/demo/resnet50.inputs.safetensors

The repository keeps a model's graph (some tens of kB) and what PyTorch computed with these very numbers. A weight's numbers follow from its name
alone. Each has a random sign and a size within 12 % of what keeps activations' sizes from layer to layer (He et al. 2015, section 2.2), so that
results depend on all layers.
"""
import json
import math
import random
import struct
import sys
import zipfile
from pathlib import Path

FLOAT, LONG = 7, 5  # torch.export's numbers of f32 and i64


def floats(name, count, size=1.0, signed=True):
    """`count` little-endian f32 with sizes of about `size`. Bits are put together as one large integer: a hundred million take seconds."""
    exponent = math.floor(math.log2(size))
    eighth = int((size / 2**exponent - 1) * 8)  # the mantissa's first three bits
    keep, put = (0x800FFFFF if signed else 0x000FFFFF), (exponent + 127) << 23 | eighth << 20
    every = int.from_bytes(b"\1\0\0\0" * count, "little")
    return (random.Random(name).getrandbits(32 * count) & (every * keep) | (every * put)).to_bytes(4 * count, "little")


def weight(name, sizes):
    count = math.prod(sizes)
    if len(sizes) == 4:
        return floats(name, count, math.sqrt(2 / math.prod(sizes[1:])))
    if len(sizes) == 2:
        return floats(name, count, math.sqrt(1 / sizes[1]))
    if name.endswith("running_var"):
        return floats(name, count, 1.0, signed=False)
    # Half: what each block adds to its residual stays small beside it.
    return floats(name, count, 0.5, signed=False) if name.endswith("weight") else floats(name, count, 0.03)


def inputs_of(stem):
    if stem == "resnet50":
        return {"0": ("F32", [1, 3, 224, 224], floats("image", 3 * 224 * 224))}
    words = random.Random("words")
    return {"0": ("I64", [1, 128], struct.pack("<128q", *(words.randrange(16384) for _ in range(128))))}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def fill(source, target):
    with zipfile.ZipFile(source) as program, zipfile.ZipFile(target, "w") as filled:
        prefix = program.namelist()[0].split("/")[0]
        for name in program.namelist():
            filled.writestr(name, program.read(name))
        config = json.loads(program.read(f"{prefix}/data/weights/model_weights_config.json"))["config"]
        for name, entry in config.items():
            sizes, dtype = [s["as_int"] for s in entry["tensor_meta"]["sizes"]], entry["tensor_meta"]["dtype"]
            data = weight(name, sizes) if dtype == FLOAT else bytes(8 * math.prod(sizes)) if dtype == LONG else sys.exit(f"{name}: dtype {dtype}")
            filled.writestr(f"{prefix}/data/weights/{entry['path_name']}", data)
    write_safetensors(Path(target).with_suffix(".inputs.safetensors"), inputs_of(Path(source).stem))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    fill(sys.argv[1], sys.argv[2])
