#!/usr/bin/env python3
"""Holds rows of 224 in `output_ptr` of a .safetensors against softmax of the input's rows as it is defined, in f64: check_softmax.py INPUT OUTPUT."""
import array
import json
import math
import sys

COLUMNS = 224
# Half a unit in the last place of f32 for each of 223 additions, the difference, the quotient, and three for two exponentials.
RELATIVE = (223 + 5) * 2**-24


def read(path, name):
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8:8 + size])[name]["data_offsets"]
    return array.array("f", data[8 + size + begin:8 + size + end])


x, y = read(sys.argv[1], "0"), read(sys.argv[2], "output_ptr")
worst = 0.0
for at in range(0, len(x), COLUMNS):
    row = x[at:at + COLUMNS]
    exps = [math.exp(v - max(row)) for v in row]
    total = math.fsum(exps)
    worst = max(worst, max(abs(got - e / total) / (e / total) for got, e in zip(y[at:at + COLUMNS], exps)))
print(f"softmax of {len(x) // COLUMNS} rows: largest relative difference {worst:.1e}{'' if worst <= RELATIVE else ' WRONG'}")
sys.exit(worst > RELATIVE)
