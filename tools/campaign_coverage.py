"""What tools/campaign could exercise, by area, as the sources' own tables list it: names that never come up are named in its report."""
import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The tables as campaign_pack.py wrote them, where there are no sources.
PACKED = Path(__file__).resolve().parent / "campaign_tables.json"
# Operations that no kernel's source can hold: what GPU passes make, and what other front ends write.
OF_PASSES = re.compile(r"ttg\.|gpu\.|placed\.|cf\.|tt\.(atomic_(load|store)|grid_dependency)|llvm\.|arith\.(ceildiv|floordiv|index_cast)|ub\.|scf\.execute")


def ask_check_loops():
    """The program that knows which operators have a lowering; tools/campaign says where it lies."""
    raise RuntimeError("nobody has said where check_loops lies")


def tile_operations():
    table = ROOT / "compiler" / "backend" / "common" / "opcodes.def"
    return {n for n in re.findall(r'^NESO_OP\(\w+, "([^"]+)"', table.read_text(), re.M) if not OF_PASSES.match(n)}


def operators():
    """Overloads of ATen that have a lowering, without "aten."."""
    said = subprocess.run([ask_check_loops(), "operators"], check=True, capture_output=True, text=True).stdout.split()
    return {n.removeprefix("aten.") for n in said if n.startswith("aten.")}


def rewrite_rules():
    table = ROOT / "compiler" / "base" / "rules.def"
    return set(re.findall(r'^NESO_RULE\(\w+, "([^"]+)"', table.read_text(), re.M))


TABLES = {"tile operations": tile_operations, "operators of modules": operators, "rewrite rules": rewrite_rules}


def expected(area):
    """Names that a full campaign exercises; none for an area that has no table."""
    if PACKED.exists():
        return set(json.loads(PACKED.read_text()).get(area, []))
    return TABLES[area]() if area in TABLES else set()
