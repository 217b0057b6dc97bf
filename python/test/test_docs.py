"""Every block of Python and of shell in the guide runs, from top to bottom of its page, in one folder a page."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = [(page.name, i, language, text) for page in sorted((ROOT / "docs").glob("*.md"))
          for i, (language, text) in enumerate(re.findall(r"^```(python|sh)\n(.*?)^```", page.read_text(), re.S | re.M))]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {page: tmp_path_factory.mktemp(page.replace(".", "_")) for page, _, _, _ in BLOCKS}


@pytest.mark.parametrize("page,number,language,text", BLOCKS, ids=[f"{p}-{i}" for p, i, _, _ in BLOCKS])
def test_block_runs(page, number, language, text, folders):
    import neso
    program = Path(neso.__file__).parent / "bin"
    # The entry point of an installed wheel; the build folder has none.
    text = text.replace('backend="neso"', "backend=__import__('neso.torch').torch.backend")
    command = [sys.executable, "-c", text] if language == "python" else ["sh", "-ec", text]
    done = subprocess.run(command, cwd=folders[page], capture_output=True, text=True,
                          env={**os.environ, "NESO_CACHE_DIR": str(folders[page]), "PATH": f"{program}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    assert language == "sh" or (done.stdout and "False" not in done.stdout)


def test_the_site_has_a_page_for_every_diagnostic(tmp_path):
    import neso
    build = Path(neso.__file__).parents[2]
    if not (build / "bin/neso").exists():
        pytest.skip("the package lies in no build folder")
    subprocess.run([sys.executable, ROOT / "tools/make_site.py", build, tmp_path], check=True)
    codes = set(re.findall(r"^NESO_DIAG\((E\d+)", "".join(p.read_text() for p in (ROOT / "compiler/base/diagnostics").glob("*.h")), re.M))
    assert codes <= {p.stem for p in (tmp_path / "docs/diagnostics").glob("E*.md")}
    reference = (tmp_path / "docs/reference/command_line.md").read_text()
    assert "`--updatable`" in reference and "neso_run(" in (tmp_path / "docs/reference/c.md").read_text()
    assert "compile(model" in (tmp_path / "docs/reference/python.md").read_text()
    taken, refused = (tmp_path / "docs/reference/operators.md").read_text().split("## Not taken")
    assert re.search(r"^\| `aten.add` \| .*Tensor", taken, re.M) and "`aten.add`" not in refused and re.search(r"^\| `aten.\w+` \|", refused, re.M)
    assert "reference/operators.md" in (tmp_path / "mkdocs.yml").read_text()
