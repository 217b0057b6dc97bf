"""The report in a real browser: at 1100 pixels, light and dark, nothing lies outside of the page."""
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import neso

ROOT = Path(__file__).resolve().parents[2]
BROWSER = next((b for b in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if b), None)
# Says in the title what is wider than the window, how wide the page is, and what the rows show.
CHECK = """<script>
document.querySelectorAll("details").forEach(d => d.open = true);
const outside = [...document.querySelectorAll("body *")].filter(e => {
  if (e.closest("pre") && e.tagName !== "PRE" || e.closest("svg") && e.tagName !== "svg") return false;
  const r = e.getBoundingClientRect();
  return r.width > 0 && (r.right > innerWidth + 0.5 || r.left < -0.5);
});
const heads = [...document.querySelectorAll("#kernels th")].filter(h => h.offsetWidth > 0).map(h => h.textContent);
const cells = c => [...document.querySelectorAll(c)].filter(x => /[0-9]/.test(x.textContent)).length;
document.getElementById("search").value = "no such word"; document.getElementById("search").dispatchEvent(new Event("input"));
const shown = [...document.querySelectorAll("tbody.k")].filter(r => !r.hidden).length;
document.title = JSON.stringify({outside: outside.map(e => e.tagName + " " + e.className + " " + e.textContent.slice(0, 40)), width: innerWidth,
  scroll: document.documentElement.scrollWidth, heads, rows: document.querySelectorAll("tbody.k").length, times: cells(".time"), limits: cells(".limit"), shown,
  paper: getComputedStyle(document.body).backgroundColor});
</script></body>"""


def look(page, folder, dark):
    (folder / "check.html").write_text(page.replace("</body>", CHECK))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", "--window-size=1100,900", "--force-device-scale-factor=1"]
    command += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
    done = subprocess.run([*command, "--dump-dom", f"file://{folder / 'check.html'}"], capture_output=True, text=True, timeout=240)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.S)
    assert title, done.stderr[-500:]
    return json.loads(title[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_everything_lies_on_the_page(tmp_path):
    package = neso.compile(ROOT / "tests/goldens/models/resnet/export.pt2", report=True)
    package.save(tmp_path / "m.neso")
    package.report(tmp_path / "r.html")
    plain = look((tmp_path / "r.html").read_text(), tmp_path, dark=False)
    assert not plain["outside"] and plain["scroll"] <= plain["width"]
    assert plain["heads"] == ["#", "kernel", "module", "bytes", "fusion"] and plain["rows"] == len(package.load().kernels) and plain["times"] == plain["shown"] == 0
    program = Path(neso.__file__).parent / "bin/neso"
    subprocess.run([program, "bench", tmp_path / "m.neso", "--iters", "3", "--report", tmp_path / "r.html"], check=True, capture_output=True)
    papers = set()
    for dark in (False, True):
        seen = look((tmp_path / "r.html").read_text(), tmp_path, dark)
        assert not seen["outside"] and seen["scroll"] <= seen["width"], seen["outside"]
        assert seen["heads"] == ["#", "kernel", "module", "time", "of limit", "bytes", "fusion"] and seen["times"] == seen["limits"] == seen["rows"]
        papers.add(seen["paper"])
    assert len(papers) == 2
