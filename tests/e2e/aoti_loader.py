#!/usr/bin/env python3
"""PyTorch's own loader and runner over what `neso compile --format aoti` writes: runs, errors, update, swap, extraction.

    tests/e2e/aoti_loader.py path/to/neso

The loader is torch's, unchanged; expected values are PyTorch's (tests/goldens/weights). Exit code 77: there is no torch.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings
import zipfile

warnings.filterwarnings("ignore")
try:
    import torch
    from safetensors.torch import load_file
    from torch._inductor import aoti_load_package
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

NESO = sys.argv.pop(1) if len(sys.argv) > 1 else "neso"
GOLDENS = pathlib.Path(__file__).parents[1] / "goldens/weights"
# Of float32: sums in another order than eager's.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


class Loader(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def compiled(self, name):
        """The archive, the input, what the module gives with its first weights, its other weights and what it gives with them."""
        archive = self.folder / f"{name}.aoti.pt2"
        subprocess.run([NESO, "compile", str(GOLDENS / f"{name}.pt2"), "-o", str(archive), "--format", "aoti"], check=True,
                       stderr=subprocess.DEVNULL)
        tensors = load_file(GOLDENS / f"{name}.safetensors")
        x = tensors["input/0"]
        first = torch.export.load(GOLDENS / f"{name}.pt2").module(check_guards=False)(x)
        weights = {key[len("weight/"):]: value for key, value in tensors.items() if key.startswith("weight/")}
        return str(archive), x, first.detach(), weights, tensors["output/0"]

    def runner(self, archive):
        with zipfile.ZipFile(archive) as members:
            library = next(n for n in members.namelist() if n.endswith(".so"))
            path = members.extract(library, self.folder)
        return torch._C._aoti.AOTIModelContainerRunnerCpu(path, 1)

    def test_runs_and_takes_other_weights(self):
        for name in ["mlp", "conv_norm", "tied", "parts"]:
            with self.subTest(name):
                archive, x, first, weights, second = self.compiled(name)
                model = aoti_load_package(archive)
                torch.testing.assert_close(model(x), first, **CLOSE)
                names = model.get_constant_fqns()
                self.assertTrue(names)
                model.load_constants({n: weights[n] for n in names}, check_full_update=True)
                torch.testing.assert_close(model(x), second, **CLOSE)

    def test_bad_input_is_refused_with_its_reason(self):
        archive, x, first, _, _ = self.compiled("mlp")
        model = aoti_load_package(archive)
        with self.assertRaisesRegex(RuntimeError, "E0824"):
            model(x.double())
        with self.assertRaisesRegex(RuntimeError, "E0826"):
            model(x[:, :3])
        torch.testing.assert_close(model(x), first, **CLOSE)

    def test_inactive_weights_swap_and_extraction(self):
        archive, x, first, weights, second = self.compiled("mlp")
        runner = self.runner(archive)
        names = runner.get_constant_names_to_original_fqns()
        other = {name: weights[fqn] for name, fqn in names.items()}
        runner.update_constant_buffer(other, True, True)
        torch.testing.assert_close(runner.run([x])[0], first, **CLOSE)
        for fqn, value in runner.extract_constants_map(True).items():
            self.assertTrue(torch.equal(value, weights[fqn]), fqn)
        runner.swap_constant_buffer()
        torch.testing.assert_close(runner.run([x])[0], second, **CLOSE)
        for fqn, value in runner.extract_constants_map(False).items():
            self.assertTrue(torch.equal(value, weights[fqn]), fqn)
        runner.swap_constant_buffer()
        torch.testing.assert_close(runner.run([x])[0], first, **CLOSE)
        runner.free_inactive_constant_buffer()
        torch.testing.assert_close(runner.run([x])[0], first, **CLOSE)

    def test_an_incomplete_or_wrong_update_changes_nothing(self):
        archive, x, first, weights, _ = self.compiled("mlp")
        runner = self.runner(archive)
        names = runner.get_constant_names_to_original_fqns()
        one = next(iter(names))
        with self.assertRaises(RuntimeError):
            runner.update_constant_buffer({one: weights[names[one]]}, False, True)
        with self.assertRaises(RuntimeError):
            runner.update_constant_buffer({one: torch.zeros(1, 2, 3)}, False, False)
        torch.testing.assert_close(runner.run([x])[0], first, **CLOSE)


if __name__ == "__main__":
    unittest.main()
