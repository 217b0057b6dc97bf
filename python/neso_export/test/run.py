"""The tests of this folder for ctest: exit status 77 (skipped) where pytest, torch or Triton is not installed."""
import sys
from importlib.util import find_spec
from pathlib import Path

missing = [name for name in ("pytest", "torch", "triton") if find_spec(name) is None]
if missing:
    print(f"skipped: {', '.join(missing)} not installed")
    sys.exit(77)
import pytest  # noqa: E402

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", str(Path(__file__).parent)]))
