"""Triton's own parser must accept what Neso prints: every golden, as read and after the pipeline.

    triton_accepts.py TILE_OPT GOLDENS        exit code 77: Triton is not installed, nothing was tested
"""
import os
import subprocess
import sys
import tempfile

try:
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    import triton.compiler.compiler as compiler
except ImportError:
    print("triton is not installed")
    sys.exit(77)


def accepts(text, folder):
    path = os.path.join(folder, "printed.ttir")
    with open(path, "w") as out:
        out.write(text)
    context = ir.context()
    ir.load_dialects(context)
    compiler.make_backend(GPUTarget("cuda", 90, 32)).load_dialects(context)
    return ir.parse_mlir_module(path, context)


def main(tile_opt, goldens):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in sorted(os.listdir(goldens)):
            for flags in [], ["--locations"], ["--generic"], ["--pass", "pipeline"]:
                # Neso keeps the spaces of ttg.barrier as their names, Triton as bits, which shows in the generic form alone.
                if flags == ["--generic"] and name == "asserts.ttir":
                    continue
                printed = subprocess.run([tile_opt, os.path.join(goldens, name), *flags], capture_output=True, text=True)
                try:
                    if printed.returncode != 0:
                        raise RuntimeError(printed.stderr)
                    accepts(printed.stdout, folder)
                except RuntimeError as error:
                    failed += 1
                    print(f"{name} {' '.join(flags)}: {error}")
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
