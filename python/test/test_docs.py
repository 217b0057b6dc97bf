"""Every Python block of the guide runs, from top to bottom of its page."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = [(page.name, i, text) for page in sorted((ROOT / "docs").glob("*.md")) for i, text in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M))]


@pytest.mark.parametrize("page,number,text", BLOCKS, ids=[f"{p}-{i}" for p, i, _ in BLOCKS])
def test_block_runs(page, number, text, tmp_path):
    # The entry point of an installed wheel; the build folder has none.
    text = text.replace('backend="neso"', "backend=__import__('neso.torch').torch.backend")
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "NESO_CACHE_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert done.stdout and "False" not in done.stdout
