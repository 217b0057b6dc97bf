"""Random edits of valid inputs for tools/campaign: the program must answer with an exit code of 0 to 2, in time, whatever it is given.

    for edit in edits(seed, folder, root): edit.command, edit.name, edit.data, …

Inputs: small .pt2 files of tests/goldens, packages made of them, kernels of tests/goldens/kernels as source, and .ttir of tests/mutation. Bytes
are changed, cut out, doubled and moved; in text, tokens and lines are; in the model of a .pt2 values of the JSON are, and the archive is
written again with sums that fit, so that what looks behind them is reached.
"""
import io
import json
import random
import re
import zipfile
from pathlib import Path

PROGRAMS = ["ops/views/reshape", "ops/views/unfold", "ops/matmuls", "ops/reductions", "ops/indexing", "ops/normalisation", "ops/attention", "ops/joins", "models/structures", "models/mixer_buffers", "ops/dtypes", "ops/convolutions"]
NUMBERS = ["0", "1", "-1", "2", "3", "7", "16", "64", "1000000", "2147483647", "2147483648", "-2147483648", "9223372036854775807", "18446744073709551616", "1e999", "0.5", "None"]


def edit_bytes(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(max(1, len(data)))
        size = rng.choice([1, 2, 4, 8, 64])
        kind = rng.randrange(6)
        if kind == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:at + size] = bytes(rng.randrange(256) for _ in range(size))
        elif kind == 2:
            del data[at:at + size]
        elif kind == 3:
            data[at:at] = data[at:at + size]
        elif kind == 4:
            data[at:at + 8] = rng.choice([0, 1, 255, 2**31, 2**32, 2**63, 2**64 - 1]).to_bytes(8, "little")
        elif rng.randrange(4) == 0:
            del data[at:]
    return bytes(data)


def edit_text(rng, text):
    for _ in range(rng.choice([1, 1, 2, 3])):
        kind = rng.randrange(7)
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        tokens = [m for m in re.finditer(r"[A-Za-z_]\w*|\d+|[^\w\s]", text)]
        if not tokens:
            return text
        token, other = rng.choice(tokens), rng.choice(tokens)
        numbers = [t for t in tokens if t[0].isdigit()]
        if kind == 0:
            del lines[at]
            text = "\n".join(lines)
        elif kind == 1:
            lines.insert(at, lines[rng.randrange(len(lines))])
            text = "\n".join(lines)
        elif kind == 2:
            text = text[:token.start()] + other[0] + text[token.end():]
        elif kind == 3:
            text = text[:token.start()] + text[token.end():]
        elif kind == 4 and numbers:
            n = rng.choice(numbers)
            text = text[:n.start()] + rng.choice(NUMBERS) + text[n.end():]
        elif kind == 5:
            a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[a], lines[b] = lines[b], lines[a]
            text = "\n".join(lines)
        else:
            text = text[:token.start()] + rng.choice(["(", ")", "[", "]", ":", ",", "-", "not ", "~", "None", "tl", "\\", "\"", "é", "\t", "0"]) + text[token.start():]
    return text


def edit_json(rng, node):
    """Changes one value somewhere below `node`, in place."""
    places = []

    def walk(n):
        for key, value in (n.items() if isinstance(n, dict) else enumerate(n)):
            places.append((n, key))
            if isinstance(value, (dict, list)):
                walk(value)

    walk(node)
    for _ in range(rng.choice([1, 1, 2, 3])):
        owner, key = rng.choice(places)
        if not (key in owner if isinstance(owner, dict) else key < len(owner)):
            continue
        value, kind = owner[key], rng.randrange(6)
        same = [o[k] for o, k in rng.sample(places, min(200, len(places))) if (k in o if isinstance(o, dict) else k < len(o)) and type(o[k]) is type(value)]
        if kind == 0:
            del owner[key]
        elif kind == 1 and isinstance(value, bool):
            owner[key] = not value
        elif kind <= 2 and isinstance(value, (int, float)) and not isinstance(value, bool):
            owner[key] = rng.choice([0, 1, -1, 2, 5, 10**6, 2**31, 2**63 - 1, -2**63, value + 1, value * 2])
        elif kind == 3 and isinstance(value, list) and value:
            value.append(value[rng.randrange(len(value))]) if rng.randrange(2) else value.pop(rng.randrange(len(value)))
        elif kind == 4:
            owner[key] = rng.choice([None, "", [], {}, 0, "x", True])
        elif same:
            owner[key] = json.loads(json.dumps(rng.choice(same)))


def edit_pt2(rng, data):
    if rng.randrange(6) == 0:
        return edit_bytes(rng, data)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(out, "w") as written:
        names = [n for n in archive.namelist() if n.endswith(".json")]
        chosen = rng.choice([n for n in names if "/models/" in n] * 8 + names)
        for name in archive.namelist():
            content = archive.read(name)
            if name == chosen:
                try:
                    model = json.loads(content)
                    edit_json(rng, model)
                    content = json.dumps(model).encode()
                except ValueError:
                    content = edit_bytes(rng, content)
            elif rng.randrange(60) == 0:
                continue
            written.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return out.getvalue()


class Inputs:
    """The valid files, read once."""

    def __init__(self, root, neso, scratch, run):
        goldens = root / "tests" / "goldens"
        self.pt2 = []
        for place in PROGRAMS:
            found = sorted(goldens.glob(place + "*.pt2")) or sorted((goldens / place).glob("*.pt2"))
            self.pt2 += [f for f in found if f.stat().st_size < 200000][:12]
        self.cases = [line.split("|") for line in (goldens / "kernels" / "cases.txt").read_text().splitlines()]
        self.sources = {f.stem: f.read_text() for f in (goldens / "kernels").glob("*.py")}
        self.ttir = sorted((root / "tests" / "mutation" / "ttir").glob("*.ttir"))
        self.packages = []
        for number, file in enumerate(self.pt2[::12]):
            package = scratch / f"valid{number}.neso"
            run([neso, "compile", str(file), "-o", str(package), "--arch", "x86-64-v3"])
            if package.exists():
                self.packages.append(package)


def make_edit(seed, inputs, neso):
    """(kind, file name, its bytes, command with {file} and {out})."""
    rng = random.Random(seed)
    kind = rng.choice(["pt2", "pt2", "pt2", "py", "py", "py", "ttir", "ttir", "neso"])
    if kind == "pt2":
        data = edit_pt2(rng, rng.choice(inputs.pt2).read_bytes())
        return kind, "edited.pt2", data, [neso, "compile", "{file}", "-o", "{out}", "--arch", "x86-64-v3"]
    if kind == "neso" and inputs.packages:
        data = edit_bytes(rng, rng.choice(inputs.packages).read_bytes())
        return kind, "edited.neso", data, [neso, rng.choice(["info", "bench"]), "{file}"]
    if kind == "ttir":
        data = edit_text(rng, rng.choice(inputs.ttir).read_text()).encode()
        what = rng.choice([["compile", "{file}", "-o", "{out}", "--arch", "x86-64-v3"], ["compile", "{file}", "-o", "{out}", "--arch", "x86-64-v3"], ["analyze", "{file}"]])
        return kind, "edited.ttir", data, [neso, "kernel", *what]
    case = rng.choice(inputs.cases)
    source = inputs.sources[case[1]]
    # The edit shall lie in the kernel or beside it, not in the fifty others.
    at = source.find(f"def {case[2]}(")
    begin, end = max(0, source.rfind("@triton", 0, at)), source.find("\n\n\n", at)
    end = len(source) if end < 0 else end
    data = source[:begin] + edit_text(rng, source[begin:end]) + source[end:] if rng.randrange(8) else edit_text(rng, source)
    command = [neso, "kernel", "compile", "{file}:" + case[2], "--signature", case[3], "-o", "{out}", "--arch", "x86-64-v3"]
    for pair in case[4].split():
        command += ["--constexpr", pair]
    return "py", "edited.py", data.encode(errors="replace"), command
