#!/usr/bin/env python3
"""Every row of ir/tile/libdevice.def against the libdevice module of the Triton that is installed: the same functions, numbers of arguments, symbols
and types, signs of integers among them. Exit code 77: there is no Triton.
"""
import ast
import importlib.util
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "compiler" / "ir" / "tile" / "libdevice.def"
CODES = {"fp32": "f", "fp64": "d", "int32": "i", "int64": "l", "uint32": "u", "uint64": "U", "fp16": "h", "int16": "s", "int1": "b"}


def ours():
    """{name: (number of arguments, whether it is a predicate, {types: (symbol, result)})}"""
    rows = {}
    for name, count, variants in re.findall(r'NESO_LIBDEVICE\((\w+), (\d+), "([^"]*)"\)', SOURCE.read_text()):
        found = {}
        for variant in variants.lstrip("!").split(", "):
            types, rest = variant.split(">")
            result, symbol = rest.split(" ")
            found[types] = (symbol, result)
        rows[name] = (int(count), variants.startswith("!"), found)
    return rows


def code_of(node):
    """core.dtype("int32") -> "i"."""
    return CODES[node.args[0].value]


def theirs(path):
    rows = {}
    for function in ast.parse(path.read_text()).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        calls = [n for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "extern_elementwise"]
        if not calls:
            continue
        table = next(a for a in calls[0].args if isinstance(a, ast.Dict))
        found = {}
        for key, value in zip(table.keys, table.values):
            found["".join(code_of(t) for t in key.elts)] = (value.elts[0].value, code_of(value.elts[1]))
        returned = function.body[-1].value
        predicate = isinstance(returned, ast.Call) and isinstance(returned.func, ast.Attribute) and returned.func.attr == "to"
        rows[function.name] = (len(calls[0].args[2].elts), predicate, found)
    return rows


def main():
    spec = importlib.util.find_spec("triton")
    if not spec or not spec.origin:
        print("skipped: there is no Triton")
        return 77
    module = pathlib.Path(spec.origin).parent / "language" / "extra" / "cuda" / "libdevice.py"
    if not module.exists():
        print("skipped: this Triton has no", module.name)
        return 77
    mine, wheel = ours(), theirs(module)
    wrong = []
    for name in sorted(mine.keys() | wheel.keys()):
        if name not in mine or name not in wheel:
            wrong.append(f"{name}: only in {'Triton' if name in wheel else 'libdevice.def'}")
        elif mine[name] != wheel[name]:
            wrong.append(f"{name}: {mine[name]}, in Triton {wheel[name]}")
    symbols = sum(len(found) for _, _, found in mine.values())
    print("\n".join(wrong))
    print(f"{len(mine)} functions, {symbols} symbols, {len(wrong)} that differ from Triton's")
    return 1 if wrong or symbols < 300 else 0


if __name__ == "__main__":
    sys.exit(main())
