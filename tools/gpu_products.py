#!/usr/bin/env python3
"""Are products of Triton kernels right on a GPU: of every way to lie, at awkward sizes, in blocks of many forms?

    tools/gpu_products.py pack OUT [--build build/release] [--arch sm_90] [--only REGEX]     compiles; OUT/products.tar.gz
    tools/gpu_products.py run OUT --json REPORT [--only REGEX]                               needs torch and a GPU, no compiler

Operands are small integers, so that sums are exact in every order: every element must be equal to what PyTorch computes in float64. Results
are filled with NaN before, and lie inside a larger buffer whose other elements must stay as they are.
"""
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench" / "models")]
import gpu_packing  # noqa: E402

# Rows, columns and K of a block, warps, stages.
BLOCKS = [(128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 32, 4, 3), (64, 64, 32, 4, 3), (64, 256, 64, 4, 4), (256, 128, 64, 8, 3), (64, 16, 64, 4, 3),
          (64, 128, 64, 8, 3), (128, 64, 128, 4, 2), (128, 256, 32, 8, 4), (32, 64, 64, 4, 3), (64, 64, 64, 2, 3)]
# Those in which models multiply f32 by three products of tf32 (kSplitBlocks).
SPLIT_BLOCKS = [(64, 16, 64, 4, 2), (64, 32, 64, 4, 3), (64, 64, 64, 4, 2), (128, 16, 64, 4, 2), (128, 32, 64, 8, 2), (128, 64, 64, 8, 3)]
# Sizes that 16 divides, and others.
EVEN = [(16, 16, 16), (48, 80, 112), (256, 512, 64), (272, 528, 1040), (512, 512, 2048), (128, 256, 0)]
ODD = [(1, 1, 1), (33, 65, 17), (127, 129, 130), (200, 300, 35), (513, 257, 514)]
# Of Triton's signature: A, B, sums. Small integers are exact in all of them, also where sums keep 14 bits.
TYPES = {"bf16": ("bf16", "bf16", "fp32"), "fp16": ("fp16", "fp16", "fp32"), "i8": ("i8", "i8", "i32"), "tf32": ("fp32", "fp32", "fp32"), "tf32x3": ("fp32", "fp32", "fp32"),
         "e4m3": ("fp8e4nv", "fp8e4nv", "fp32"), "e4m3_e5m2": ("fp8e4nv", "fp8e5", "fp32"), "e5m2_e4m3": ("fp8e5", "fp8e4nv", "fp32"),
         "e5m2": ("fp8e5", "fp8e5", "fp32")}
IN_TURNS = ["bf16", "fp16", "i8"]
# Of tf32x3 one operand after the other is multiplied by this: three bits more than a tf32 has, and with what the other one holds still exact.
WIDE = 4097
# Those that tensor cores read out of shared memory only where both operands have K side by side.
ALONG_K = [kind for kind in TYPES if kind not in ("bf16", "fp16")]


def cases():
    """name → (block, type, operand A turned, B turned, A doubled, sizes that 16 divides)."""
    out = {}
    for block in SPLIT_BLOCKS:
        for turn_a, even in ((False, True), (False, False), (True, True)):
            out[f"{'x'.join(map(str, block))}_tf32x3_{'KM'[turn_a]}K{'' if even else '_odd'}"] = (block, "tf32x3", turn_a, True, False, even)
    for i, block in enumerate(BLOCKS):
        for turn in range(4):
            for kind in TYPES:
                # All ways to lie for all blocks, types in turns.
                in_turn = kind in IN_TURNS and (IN_TURNS[(i + turn) % 3] == kind or (i == 0 and kind == "bf16"))
                along_k = kind in ALONG_K and turn == 2
                if not in_turn and not along_k and not (kind in ALONG_K and i == 0):
                    continue
                # Triton does not add 8-bit floats.
                adds = kind in IN_TURNS or kind.startswith("tf32")
                for double in ([False, True] if adds and turn % 2 == i % 2 else [False]):
                    for even in ([True, False] if i < 3 else [True]):
                        name = f"{'x'.join(map(str, block))}_{kind}_{'MK'[turn & 1 == 0]}{'NK'[turn >> 1]}{'_double' * double}{'' if even else '_odd'}"
                        out[name] = (block, kind, bool(turn & 1), bool(turn >> 1), double, even)
    return out


def pack(options):
    packing = gpu_packing.Pack(options, "products")

    def compile_one(item):
        name, ((bm, bn, bk, warps, stages), kind, turn_a, turn_b, double, even) = item
        a, b, sums = TYPES[kind]
        signature = f"a_ptr:*{a},b_ptr:*{b},c_ptr:*{sums},M:i32,N:i32,K:i32," + ",".join(
            f"{c}:constexpr" for c in ("BM", "BN", "BK", "TURN_A", "TURN_B", "DOUBLE", "SUM", "PRECISION"))
        values = {"BM": bm, "BN": bn, "BK": bk, "TURN_A": turn_a, "TURN_B": turn_b, "DOUBLE": double, "SUM": {"fp32": "tl.float32", "i32": "tl.int32"}[sums],
                  "PRECISION": repr("tf32x3" if kind == "tf32x3" else "tf32")}
        flags = ["--signature", signature, "--num-warps", warps, "--num-stages", stages]
        for key, value in values.items():
            flags += ["--constexpr", f"{key}={value}"]
        for size in "MNK" if even else "":
            flags += ["--hint", f"{size}=divisible_by_16"]
        return name, packing.compile(["kernel", "compile", f"{ROOT / 'tools/gpu_product_kernels.py'}:product", *map(str, flags)], name)

    with ThreadPoolExecutor(options.jobs) as pool:
        report = dict(pool.map(compile_one, [c for c in cases().items() if re.search(options.only, c[0])]))
    for name, result in report.items():
        if "package" not in result:
            print(name, result["why"][:300])
    (packing.folder / "pack.json").write_text(json.dumps({"commit": gpu_packing.commit(options), "compiled": report}))
    print(len(report), "kernels,", packing.finish())


def run_case(torch, neso, library, stream, file, case):
    """What is wrong, by sizes; how many launches had the GPU copy tiles itself."""
    (bm, bn, _, _, _), kind, turn_a, turn_b, double, even = case
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "i8": torch.int8, "fp32": torch.float32, "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}
    program = library.load(file, device=neso.CUDA, stream=stream.cuda_stream)
    wrong = {}
    for m, n, k in EVEN + ([] if even else ODD):
        generator = torch.Generator(device="cuda").manual_seed(m * n + k)
        a, b = (torch.randint(-3, 4, shape, device="cuda", generator=generator).to(dtypes[type]) for shape, type in (((m, k), TYPES[kind][0]), ((k, n), TYPES[kind][1])))
        room = torch.full((m * n + 512,), 77 if kind == "i8" else float("nan"), device="cuda", dtype=torch.int32 if kind == "i8" else torch.float32)
        out = room[256:256 + m * n]
        A = neso.Argument
        for turn in range(3):
            left, right = (a * WIDE, b) if kind == "tf32x3" and turn == 1 else (a, b * WIDE) if kind == "tf32x3" and turn == 2 else (a, b)
            want = (left.double() * (2 if double else 1)) @ right.double()
            stored_a, stored_b = left.t().contiguous() if turn_a else left, right.t().contiguous() if turn_b else right
            given = [A(ptr=stored_a.data_ptr()), A(ptr=stored_b.data_ptr()), A(ptr=out.data_ptr()), A(i64=m), A(i64=n), A(i64=k)]
            out.fill_(77)
            program.launch("product", (-(-m // bm), -(-n // bn), 1), given)
            torch.cuda.synchronize()
            bad = int((out.double().view(m, n) != want).sum())
            around = torch.cat([room[:256], room[256 + m * n:]])
            touched = int((around != 77).sum()) if kind == "i8" else int((~around.isnan()).sum())
            if bad or touched:
                wrong[f"{m}x{n}x{k}"] = f"{bad} of {m * n} elements, {touched} beside them"
                break
    boxed = program.device_stats().box_launches
    program.free()
    return wrong, boxed


def run(options):
    import torch
    import neso_library as neso
    folder = gpu_packing.unpacked(options.out, "products")
    packed = json.loads((folder / "pack.json").read_text())
    library = neso.Library(folder / gpu_packing.RUNTIME)
    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)
    report = {"commit": packed["commit"], "device": torch.cuda.get_device_name(0), "right": 0, "box_launches": 0, "kernels_with_boxes": 0, "wrong": {}, "refused": {}}
    for name, case in cases().items():
        if not re.search(options.only, name) or name not in packed["compiled"]:
            continue
        if "package" not in packed["compiled"][name]:
            report["refused"][name] = packed["compiled"][name]["why"]
            continue
        try:
            wrong, boxed = run_case(torch, neso, library, stream, folder / packed["compiled"][name]["package"], case)
            report["box_launches"] += boxed
            report["kernels_with_boxes"] += boxed > 0
        except Exception as e:  # noqa: BLE001: the others still count, unless the device is lost
            wrong = {"failed": str(e)[:300]}
        if wrong:
            report["wrong"][name] = wrong
            print(name, wrong, flush=True)
        else:
            report["right"] += 1
    Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    print(report["right"], "right,", len(report["wrong"]), "wrong,", len(report["refused"]), "refused")
    return 1 if report["wrong"] else 0


def main():
    parser, _, _, _ = gpu_packing.verbs(__doc__)
    options = parser.parse_args()
    if options.verb == "pack":
        pack(options)
        return 0
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
