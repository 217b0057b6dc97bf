#!/usr/bin/env python3
"""Writes tests/goldens/packed_int4: a model whose weights of four bits were packed for CPUs by three kinds of machines.

    tools/golden_int4.py [--out tests/goldens/packed_int4]

NAME.pt2 for what torch.backends.cpu.get_cpu_capability() says of the machine; torch packs as if on another one when ATEN_CPU_CAPABILITY names it. What the
products give is the same for all of them: inputs.safetensors, outputs.safetensors. The files do not say which machine it was, but for said.pt2 and row.pt2, which
multiplies one row of bf16: as it comes, with an element ten thousand times the others whose weights are zero, with what is not finite, and of zeros.
"""
import argparse
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch  # noqa: E402

import neso_cases as cases  # noqa: E402
from make_goldens import bounds  # noqa: E402

aten = torch.ops.aten
# Whole blocks of every machine; whole blocks and pairs behind them; less than a block of the widest.
ROWS, COLUMNS, GROUP = (64, 80, 48), 64, 32
OUTLIER = 5


class Packed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(20260101)
        for i, rows in enumerate(ROWS):
            q = torch.randint(0, 16, (rows, COLUMNS), generator=generator, dtype=torch.int32)
            self.register_buffer(f"weights{i}", aten._convert_weight_to_int4pack_for_cpu(q, 1))
            self.register_buffer(f"parameters{i}", torch.randn(COLUMNS // GROUP, rows, 2, generator=generator))

    def forward(self, x):
        return tuple(aten._weight_int4pack_mm_for_cpu(x, getattr(self, f"weights{i}"), GROUP, getattr(self, f"parameters{i}")) for i in range(len(ROWS)))


class Row(Packed):
    """Column OUTLIER is at the zero point everywhere: its weights are zero."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(20260102)
        for i, rows in enumerate(ROWS):
            q = torch.randint(0, 16, (rows, COLUMNS), generator=generator, dtype=torch.int32)
            q[:, OUTLIER] = 8
            setattr(self, f"weights{i}", aten._convert_weight_to_int4pack_for_cpu(q, 1))
            parameters = torch.randn(COLUMNS // GROUP, rows, 2, generator=generator)
            parameters[OUTLIER // GROUP, :, 1] = 0
            setattr(self, f"parameters{i}", parameters.to(torch.bfloat16))


def rows():
    plain = torch.randn(1, COLUMNS, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    out = {"row": plain}
    for name, place, value in (("outlier", OUTLIER, 1e4), ("nan", 40, float("nan")), ("infinite", 40, float("inf"))):
        out[f"row_{name}"] = plain.clone()
        out[f"row_{name}"][0, place] = value
    out["row_of_zeros"] = torch.zeros_like(plain)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=str(Path(__file__).resolve().parent.parent / "tests" / "goldens" / "packed_int4"))
    parser.add_argument("--machine", help="write the file of this one alone")
    parser.add_argument("--said", action="store_true", help="and have it say so")
    args = parser.parse_args()
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    x = torch.randn(3, COLUMNS, generator=torch.Generator().manual_seed(1))
    if args.machine:
        program = torch.export.export(Packed(), (x,), strict=False)
        name, extra = ("said", {"neso_cpu_capability": args.machine}) if args.said else (args.machine, None)
        cases.save_program(program, folder / f"{name}.pt2", lean=True, extra_files=extra)
        if args.said:
            cases.save_program(torch.export.export(Row(), (rows()["row"],), strict=False), folder / "row.pt2", lean=True, extra_files=extra)
        return
    for machine, *more in (("default",), ("avx2",), ("avx512",), ("avx512", "--said")):
        subprocess.run([sys.executable, __file__, "--out", args.out, "--machine", machine, *more], env={**os.environ, "ATEN_CPU_CAPABILITY": machine}, check=True)
    cases.write_safetensors(folder / "inputs.safetensors", [x])
    outputs = list(Packed()(x))
    cases.write_safetensors(folder / "outputs.safetensors", outputs)
    run = {"name": "said", "program": "said.pt2", "inputs": "inputs.safetensors", "outputs": "outputs.safetensors", "prefix": "",
           "tolerance": bounds({str(i): y for i, y in enumerate(outputs)})}
    runs = [run]
    for name, row in rows().items():
        outputs = list(Row()(row))
        cases.write_safetensors(folder / f"{name}_inputs.safetensors", [row])
        cases.write_safetensors(folder / f"{name}_outputs.safetensors", outputs)
        runs.append({"name": name, "program": "row.pt2", "inputs": f"{name}_inputs.safetensors", "outputs": f"{name}_outputs.safetensors", "prefix": "",
                     "tolerance": bounds({str(i): y for i, y in enumerate(outputs)})})
    lines = ",\n  ".join(json.dumps(run) for run in runs)
    (folder / "case.json").write_text(f'{{"torch": "{torch.__version__.split("+")[0]}", "runs": [\n  {lines}\n]}}\n')


if __name__ == "__main__":
    main()
