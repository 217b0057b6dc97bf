"""Programs in the manner of Triton's ten tutorials, unchanged on a machine without a GPU: by an installed Triton, and without one. Each checks
itself against torch. All of one way share a process."""
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAMS = sorted((Path(__file__).parent / "tutorials").glob("*.py"))
ALL = """
import runpy, sys, traceback
import neso.triton
neso.triton.{way}()
for path in sys.argv[1:]:
    try:
        runpy.run_path(path, run_name="__main__")
        print("right:", path)
    except Exception:
        print("wrong:", path)
        traceback.print_exc(file=sys.stdout)
"""


@pytest.mark.parametrize("way", ["activate", "provide"])
def test_tutorials(way, tmp_path, monkeypatch):
    if way == "activate" and find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("NESO_CACHE_DIR", str(tmp_path / "neso"))
    out = subprocess.run([sys.executable, "-c", ALL.format(way=way), *map(str, PROGRAMS)], capture_output=True, text=True)
    right = [line for line in out.stdout.splitlines() if line.startswith("right:")]
    assert len(right) == len(PROGRAMS) == 10, out.stdout + out.stderr
