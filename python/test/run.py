"""One file of tests for ctest: run.py FOLDER-OF-THE-PACKAGE FILE. Exit status 77 (skipped) where pytest or what the file needs is missing."""
import os
import sys
from importlib.util import find_spec
from pathlib import Path

folder, name = sys.argv[1], sys.argv[2]
sys.path.insert(0, folder)
os.environ["PYTHONPATH"] = folder + os.pathsep + os.environ.get("PYTHONPATH", "")
needed = {"test_triton.py": ("torch", "triton", "numpy"), "test_triton_alone.py": ("numpy",)}.get(name, ("torch", "numpy"))
missing = [module for module in ("pytest", *needed) if find_spec(module) is None]
if missing:
    print(f"skipped: {', '.join(missing)} not installed")
    sys.exit(77)
import pytest  # noqa: E402

sys.exit(pytest.main(["-q", "--show-capture=no", "-p", "no:cacheprovider", str(Path(__file__).parent / name)]))
