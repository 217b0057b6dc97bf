#!/usr/bin/env python3
"""The documentation as a site: make_site.py BUILD OUT.

Writes OUT/docs (the pages of docs/, and references made from what they describe: options from the program, the C interface from neso.h,
Python from docstrings, operators from `neso support`, one page for each diagnostic) and OUT/mkdocs.yml, and builds OUT/site where mkdocs is installed."""
import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUIDES = ("start.md", "guide.md", "python.md", "user_kernels.md")
DEVELOPERS = ("pipeline.md", "adding.md", "style.md", "glossary.md", "rejected.md")
PYTHON = ("__init__", "_compile", "_model", "_export", "_errors", "torch", "triton/__init__", "cache")


def title(page):
    return page.read_text().partition("\n")[0].lstrip("# ")


def c_reference():
    """The comments and declarations of neso.h, in order: sections are its own."""
    text = (ROOT / "runtime/include/neso/neso.h").read_text()
    out = ["# C interface", "", "Made from `neso/neso.h`.", ""]
    for part in re.split(r"^/\* ---- ", text, flags=re.M)[1:]:
        head, _, body = part.partition("\n")
        out += ["## " + re.sub(r"\s*-+(\s*\*/)?$", "", head), "", "```c", re.sub(r"^\s*\*?\s*-+\s*\*/\n", "", body).strip(), "```", ""]
    return "\n".join(out)


def signature(node):
    return f"{node.name}({ast.unparse(node.args)})"


def python_reference():
    """Docstrings of what is public, without importing anything."""
    out = ["# Python reference", ""]
    for name in PYTHON:
        path = ROOT / f"python/neso/{name}.py"
        tree = ast.parse(path.read_text())
        rows = []
        for node in ast.walk(tree):
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_") or not ast.get_docstring(node):
                continue
            shown = signature(node) if isinstance(node, ast.FunctionDef) else f"class {node.name}"
            rows += [f"### `{shown}`", "", "```text", ast.get_docstring(node), "```", ""]
        module = "neso" if name.startswith("_") else "neso." + name.replace("/__init__", "")
        about = ast.get_docstring(tree)
        out += [f"## {module}" + (f" ({name}.py)" if name.startswith("_") and name != "__init__" else ""), "", "```text", about or "", "```", "", *rows]
    return "\n".join(out)


def diagnostics(program, folder):
    """A page for each code, and their list."""
    rows = [json.loads(line) for line in subprocess.run([program, "explain", "all", "--json"], capture_output=True, text=True, check=True).stdout.splitlines()]
    folder.mkdir(parents=True)
    index = ["# Diagnostics", "", "| code | name | message |", "| --- | --- | --- |"]
    for row in rows:
        message = row["message"].replace("{{", "{").replace("}}", "}")
        page = [f"# {row['code']} {row['name']}", "", f"*{row['severity']}*", "", "```text", message, "```", "", row["text"], "", row["area"], ""]
        (folder / f"{row['code']}.md").write_text("\n".join(page))
        index.append(f"| [{row['code']}]({row['code']}.md) | {row['name']} | {message.replace('|', chr(92) + '|').replace('<', '&lt;')} |")
    (folder / "index.md").write_text("\n".join(index) + "\n")
    return len(rows)


def operators(program):
    """What `neso support` knows: operators that differ in their overload alone share a row."""
    known = json.loads(subprocess.run([program, "support", "--json"], capture_output=True, text=True, check=True).stdout)
    names = {}
    for row in known["operators"]:
        name, _, overload = row["operator"].rpartition(".")
        names.setdefault(name, []).append((overload, row["supported"], row["by"]))
    taken = sum(row["supported"] for row in known["operators"])
    out = ["# Operators", "", f"Made by `neso support`: {taken} of PyTorch's {len(known['operators'])} operators are taken. A call may still be refused for its arguments: `neso compile` names those of a model.", "",
           f"Dtypes: {', '.join(known['dtypes'])}.", ""]
    out += [f"Targets of `{kind}`: {', '.join(targets)}.\n" for kind, targets in known["targets"].items()]
    for heading, wanted in (("Taken", True), ("Not taken", False)):
        out += [f"## {heading}", "", "| operator | overloads |", "| --- | --- |"]
        for name, rows in sorted(names.items()):
            some = [f"{overload} (by {by})" if by else overload for overload, supported, by in rows if supported == wanted]
            if some:
                out.append(f"| `{name}` | {', '.join(some)} |")
        out.append("")
    return "\n".join(out), taken


def main(build, out):
    program, out = Path(build) / "bin/neso", Path(out)
    shutil.rmtree(out / "docs", ignore_errors=True)
    docs = out / "docs"
    docs.mkdir(parents=True)
    for name in (*GUIDES, *DEVELOPERS):
        shutil.copy(ROOT / "docs" / name, docs / name)
    shutil.copy(ROOT / "README.md", docs / "index.md")
    # Links of the README lead through docs/.
    (docs / "index.md").write_text(re.sub(r"\]\(docs/", "](", (docs / "index.md").read_text()))
    reference = docs / "reference"
    reference.mkdir()
    (reference / "command_line.md").write_text(subprocess.run([program, "__reference"], capture_output=True, text=True, check=True).stdout)
    (reference / "c.md").write_text(c_reference())
    (reference / "python.md").write_text(python_reference())
    page, taken = operators(program)
    (reference / "operators.md").write_text(page)
    count = diagnostics(program, docs / "diagnostics")
    pages = [("Neso", "index.md"), *((title(docs / n), n) for n in GUIDES)]
    nav = [f"  - {json.dumps(t)}: {n}" for t, n in pages]
    nav += ["  - Reference:", "    - Command line: reference/command_line.md", "    - C: reference/c.md", "    - Python: reference/python.md", "    - Operators: reference/operators.md", "    - Diagnostics: diagnostics/index.md",
            "  - Developers:", *(f"    - {json.dumps(title(docs / n))}: {n}" for n in DEVELOPERS)]
    (out / "mkdocs.yml").write_text("site_name: Neso\nuse_directory_urls: false\nvalidation:\n  nav:\n    omitted_files: ignore\nnav:\n" + "\n".join(nav) + "\n")
    print(f"{out}/docs: {len(list(docs.rglob('*.md')))} pages, {count} of them diagnostics, and {taken} operators that are taken")
    if not shutil.which("mkdocs"):
        return print("mkdocs is not installed (pip install mkdocs): no HTML was made")
    subprocess.run(["mkdocs", "build", "--strict", "-q", "-f", out / "mkdocs.yml", "-d", "site"], check=True)
    print(f"{out}/site/index.html")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
