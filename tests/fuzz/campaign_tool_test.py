"""What tools/campaign says when nothing was tested: a campaign that leaves everything out looks like one that found nothing.

    campaign_tool_test.py PROJECT

Needs neither torch nor the programs: what makes and judges programs is replaced.
"""
import collections
import contextlib
import importlib.machinery
import importlib.util
import io
import stat
import sys
import tempfile
import types
import unittest
from pathlib import Path

PROJECT = Path(sys.argv.pop(1))
sys.path.insert(0, str(PROJECT / "tools"))
loader = importlib.machinery.SourceFileLoader("campaign", str(PROJECT / "tools" / "campaign"))
campaign = importlib.util.module_from_spec(importlib.util.spec_from_loader("campaign", loader))
loader.exec_module(campaign)


class Tool(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.place = Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)
        self.program("check_loops", "[ $1 = operators ] && echo aten.add.Tensor\n")

    def program(self, name, text):
        file = self.place / name
        file.write_text("#!/bin/sh\n" + text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def run_tool(self, *words, modules=None):
        """Exit code and what it printed."""
        before, said = (sys.argv, dict(sys.modules)), io.StringIO()
        sys.argv = ["campaign", *words, "--count", "4", "--neso", str(self.place), "--keep", str(self.place / "keep"), "--minimise", "0", "--triton-every", "0"]
        sys.modules["campaign_modules"] = modules  # None: cannot be imported, as without torch
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                campaign.main()
        except SystemExit as end:
            return end.code, said.getvalue()
        finally:
            sys.argv = before[0]
            sys.modules.pop("campaign_modules")
        self.fail("the tool does not end with a code")

    def test_kernels_of_which_the_checker_says_nothing(self):
        self.program("check_kernels", "exit 1\n")
        code, said = self.run_tool("--only", "kernels")
        self.assertEqual(code, 1, said)
        self.assertIn("kernels: all 4 were left out: check_kernels says nothing of it × 4", said)

    def test_loops_of_which_the_checker_says_nothing(self):
        self.program("check_loops", "echo no such library >&2; exit 127\n")
        code, said = self.run_tool("--only", "loops")
        self.assertEqual(code, 1, said)
        self.assertIn("loops: all 4 were left out: check_loops says nothing of it: no such library × 4", said)

    def test_loops_that_are_right(self):
        self.program("check_loops", 'for i in 1 2 3 4; do printf "$i\\tright\\t\\n"; done\n')
        code, said = self.run_tool("--only", "loops")
        self.assertEqual(code, 0, said)

    def modules(self, made, left_out):
        return types.SimpleNamespace(make_cases=lambda seeds, folder: ({n: ("", None) for n in made}, collections.Counter(), collections.Counter(left_out)))

    def test_modules_that_were_all_left_out(self):
        self.program("run_goldens", "exit 0\n")
        code, said = self.run_tool("--only", "modules", modules=self.modules([], {"torch.export refuses it: E": 3, "float64 is far away": 1}))
        self.assertEqual(code, 1, said)
        self.assertIn("modules: all 4 were left out: torch.export refuses it: E × 3; float64 is far away × 1", said)

    def test_modules_of_which_the_runner_says_nothing(self):
        self.program("run_goldens", "exit 1\n")
        code, said = self.run_tool("--only", "modules", modules=self.modules(["m1"], {}))
        self.assertEqual(code, 1, said)
        self.assertIn("modules: all 1 were left out: run_goldens says nothing of it × 1", said)

    def test_modules_some_of_which_were_judged(self):
        self.program("run_goldens", 'while [ "$1" != --verdicts ]; do shift; done\nprintf "m1.raw\\tright\\t\\n" > $2\n')
        code, said = self.run_tool("--only", "modules", modules=self.modules(["m1"], {"float64 is far away": 3}))
        self.assertEqual(code, 0, said)
        self.assertIn("left out of modules: float64 is far away × 3", said)

    def test_no_torch(self):
        code, said = self.run_tool("--only", "modules")
        self.assertEqual(code, 1, said)
        self.assertIn("no torch", said)
        # Where nobody asked for modules by name, the other areas are enough.
        tally = {"counts": {"loops": {"right": 4}, "modules": {"left out": 1}}, "left out": {"modules": {"no torch": 1}}}
        self.assertEqual(campaign.unjudged(tally, []), [])

    def test_faults_of_the_generator_are_not_hidden(self):
        def make_cases(seeds, folder):
            raise ValueError("not enough values to unpack")

        self.program("run_goldens", "exit 0\n")
        with self.assertRaises(ValueError):
            self.run_tool("--only", "modules", modules=types.SimpleNamespace(make_cases=make_cases))


if __name__ == "__main__":
    unittest.main()
