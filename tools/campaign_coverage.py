"""What tools/campaign could exercise, by area, as the sources' own tables list it: names that never come up are named in its report."""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Operations that no kernel's source can hold: what GPU passes make, and what other front ends write.
OF_PASSES = re.compile(r"ttg\.|tt\.atomic_(load|store)|llvm\.|arith\.(ceildiv|floordiv|index_cast)|ub\.")


def expected(area):
    """Names that a full campaign exercises; none where the table is not here, as in a package."""
    if area == "tile operations":
        table = ROOT / "compiler" / "backend" / "common" / "opcodes.def"
        names = re.findall(r'^NESO_OP\(\w+, "([^"]+)"', table.read_text(), re.M) if table.exists() else []
        return {n for n in names if not OF_PASSES.match(n)}
    if area == "operators of modules":
        names = set()
        for file in (ROOT / "compiler" / "lower" / "graph_to_loops").glob("*.cpp"):
            for row in re.findall(r'\.add\(((?:\s*"[^"]*")+)', file.read_text()):
                names.update("".join(re.findall(r'"([^"]*)"', row)).split())
        return {n for n in names if "::" not in n}
    return set()
