#!/usr/bin/env python3
"""What a run costs: beside_torch.py NESO MODEL.pt2 MODEL.neso INPUTS.safetensors. Where PyTorch is installed the same program runs in it, as it
stands (eager), in turns with Neso's package and with as many threads."""
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time

THREADS = len(os.sched_getaffinity(0))
TURNS = 3


def neso_ms(program, package, inputs):
    done = subprocess.run([program, "bench", package, "--input", inputs, "--threads", str(THREADS), "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["warm"]["median_ms"]


def in_torch(model, inputs):
    """A function that measures for about a second, in milliseconds."""
    import torch
    torch.set_num_threads(THREADS)
    module = torch.export.load(model).module()
    data = open(inputs, "rb").read()
    size = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:8 + size])["0"]
    value = torch.frombuffer(bytearray(data[8 + size:]), dtype={"F32": torch.float32, "I64": torch.int64}[entry["dtype"]]).reshape(entry["shape"])

    def measure():
        times = []
        with torch.no_grad():
            module(value)
            while sum(times) < 1 or len(times) < 3:
                begun = time.perf_counter()
                module(value)
                times.append(time.perf_counter() - begun)
        return 1000 * statistics.median(times), f"PyTorch {torch.__version__} as it stands"
    return measure


def main():
    program, model, package, inputs = sys.argv[1:]
    peer = in_torch(model, inputs) if importlib.util.find_spec("torch") else None
    ours, theirs = [], []
    for _ in range(TURNS if peer else 1):
        ours.append(neso_ms(program, package, inputs))
        if peer:
            theirs.append(peer())
    line = f"a run takes {statistics.median(ours):.1f} ms with {THREADS} threads"
    if theirs:
        ms = statistics.median(t for t, _ in theirs)
        line += f"; in {theirs[0][1]} {ms:.1f} ms, {ms / statistics.median(ours):.2f} of it (medians of {TURNS} turns)"
    print(line + ("" if peer else "; PyTorch is not installed here, or it would be measured beside it"))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main()
