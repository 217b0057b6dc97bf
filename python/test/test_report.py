"""The report in a real browser: at 1100 pixels, light and dark, nothing lies outside of the page."""
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import neso

ROOT = Path(__file__).resolve().parents[2]
BROWSER = next((b for b in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if b), None)
# Says in the title what is wider than the window, how wide the page is, and what the rows show.
CHECK = """<script>{
document.querySelectorAll("details").forEach(d => d.open = true);
const outside = [...document.querySelectorAll("body *")].filter(e => {
  if (e.closest("pre") && e.tagName !== "PRE" || e.closest("svg") && e.tagName !== "svg") return false;
  const r = e.getBoundingClientRect();
  return r.width > 0 && (r.right > innerWidth + 0.5 || r.left < -0.5);
});
const heads = [...document.querySelectorAll("#kernels th")].filter(h => h.offsetWidth > 0).map(h => h.textContent);
const cells = c => [...document.querySelectorAll(c)].filter(x => /[0-9]/.test(x.textContent)).length;
document.getElementById("search").value = "no such word"; document.getElementById("search").dispatchEvent(new Event("input"));
const visible = () => [...document.querySelectorAll("tbody.k")].filter(r => r.offsetHeight > 0).length;
const shown = visible();
document.getElementById("search").value = ""; document.getElementById("search").dispatchEvent(new Event("input"));
const groups = document.querySelectorAll("tbody.g").length, fold = document.getElementById("fold"), click = e => { if (e) e.click(); return visible(); };
const folded = groups ? click(fold) : 0, one = click(document.querySelector("tbody.g button")), unfolded = groups ? (fold.click(), click(fold), click(fold)) : visible();
const bytes = document.querySelector("th[data-sort=bytes]"), by = () => [...document.querySelectorAll("tbody.k")].map(r => +r.dataset.bytes);
const sorted = bytes && (bytes.click(), by().every((b, i, all) => !i || b <= all[i - 1])) && visible() === by().length;
const differs = document.getElementById("differs");
const different = differs && (differs.click(), visible());
document.title = JSON.stringify({outside: outside.map(e => e.tagName + " " + e.className + " " + e.textContent.slice(0, 40)), width: innerWidth,
  scroll: document.documentElement.scrollWidth, heads, rows: document.querySelectorAll("tbody.k").length, times: cells(".time"), limits: cells(".limit"), shown, groups, folded, one, unfolded, sorted, different,
  paper: getComputedStyle(document.body).backgroundColor});
}</script></body>"""


def look(page, folder, dark):
    (folder / "check.html").write_text(page.replace("</body>", CHECK))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", "--window-size=1100,900", "--force-device-scale-factor=1"]
    command += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
    done = subprocess.run([*command, "--dump-dom", f"file://{folder / 'check.html'}"], capture_output=True, text=True, timeout=240)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.S)
    assert title, done.stderr[-500:]
    return json.loads(title[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = torch.nn.Linear(48, 96), torch.nn.Linear(96, 48), torch.nn.LayerNorm(48)

    def forward(self, x):
        return self.norm(x + self.second(torch.softmax(self.first(x), -1)))


class Stack(torch.nn.Module):
    def __init__(self, repeat):
        super().__init__()
        self.layers = torch.nn.ModuleList([Block() for _ in range(3)])
        self.repeat = repeat

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        # Of two programs one computes more.
        return torch.cumsum(x, 0) if self.repeat else x


def in_page(seen):
    assert not seen["outside"] and seen["scroll"] <= seen["width"], seen["outside"]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_everything_lies_on_the_page(tmp_path):
    package = neso.compile(ROOT / "tests/goldens/models/resnet/export.pt2", report=True)
    package.save(tmp_path / "m.neso")
    package.report(tmp_path / "r.html")
    plain = look((tmp_path / "r.html").read_text(), tmp_path, dark=False)
    in_page(plain)
    assert plain["heads"] == ["#", "kernel", "module", "bytes", "fusion"] and plain["rows"] == len(package.load().kernels) and plain["times"] == plain["shown"] == 0
    assert plain["groups"] > 2 and plain["folded"] == 0 and plain["unfolded"] == plain["rows"] and plain["sorted"]
    program = Path(neso.__file__).parent / "bin/neso"
    subprocess.run([program, "bench", tmp_path / "m.neso", "--iters", "3", "--report", tmp_path / "r.html"], check=True, capture_output=True)
    papers = set()
    for dark in (False, True):
        seen = look((tmp_path / "r.html").read_text(), tmp_path, dark)
        in_page(seen)
        assert seen["heads"] == ["#", "kernel", "module", "time", "of limit", "bytes", "fusion"] and seen["limits"] == seen["rows"]
        assert seen["times"] == seen["rows"] + seen["groups"]
        papers.add(seen["paper"])
    assert len(papers) == 2


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_two_packages_beside_each_other(tmp_path):
    torch.manual_seed(0)
    paths = []
    for repeat in (False, True):
        paths.append(tmp_path / f"{repeat}.neso")
        neso.compile(Stack(repeat), (torch.randn(4, 48),)).save(paths[-1])
    program = Path(neso.__file__).parent / "bin/neso"
    page = tmp_path / "d.html"
    for times in ([], ["--times", "--threads", "1"]):
        done = subprocess.run([program, "diff", *paths, "--report", page, *times], capture_output=True, text=True)
        # They differ, and the page is written all the same.
        assert done.returncode == 1 and "differs" in done.stdout and not done.stderr
        for dark in (False, True):
            seen = look(page.read_text(), tmp_path, dark)
            in_page(seen)
            timed = ["time A", "time B", "B / A"] if times else []
            assert seen["heads"] == ["#", "kernels of A", "kernels of B", *timed]
            # Three layers, of which two are the same kernel by kernel; what was added is in one row or one of its own.
            assert seen["groups"] >= 3 and seen["folded"] == 0 and seen["unfolded"] == seen["rows"]
            assert 1 <= seen["different"] < seen["rows"]
