#!/usr/bin/env python3
"""PyTorch's own loader and runner over what `neso compile --format aoti` writes: runs, errors, update, swap, extraction.

    tests/e2e/aoti_loader.py path/to/neso

The loader is torch's, unchanged; expected values are PyTorch's (tests/goldens/weights). Exit code 77: there is no torch.
"""
import copy
import ctypes
import io
import pathlib
import re
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
    from torch._inductor.package import package_aoti
    from torch.export.pt2_archive._package import load_pt2, load_weights_to_pt2_contents
    from torch.export.pt2_archive._package_weights import TensorProperties, Weights
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

NESO = sys.argv.pop(1) if len(sys.argv) > 1 else "neso"
GOLDENS = pathlib.Path(__file__).parents[1] / "goldens/weights"
# Loaders before torch 2.13 do not ask the library why a call failed.
TELLS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
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
        with self.assertRaisesRegex(RuntimeError, "E0824" if TELLS else "API call failed"):
            model(x.double())
        with self.assertRaisesRegex(RuntimeError, "E0826" if TELLS else "API call failed"):
            model(x[:, :3])
        torch.testing.assert_close(model(x), first, **CLOSE)

    def test_inactive_weights_swap_and_extraction(self):
        archive, x, first, weights, second = self.compiled("mlp")
        runner = self.runner(archive)
        names = runner.get_constant_names_to_original_fqns()
        other = {name: weights[fqn] for name, fqn in names.items()}
        before = runner.extract_constants_map(False)
        before = {fqn: value.clone() for fqn, value in before.items()}
        runner.update_constant_buffer(other, True, True)
        torch.testing.assert_close(runner.run([x])[0], first, **CLOSE)
        for fqn, value in runner.extract_constants_map(True).items():
            self.assertTrue(torch.equal(value, weights[fqn]), fqn)
        runner.swap_constant_buffer()
        torch.testing.assert_close(runner.run([x])[0], second, **CLOSE)
        for fqn, value in runner.extract_constants_map(False).items():
            self.assertTrue(torch.equal(value, weights[fqn]), fqn)
        for fqn, value in runner.extract_constants_map(True).items():
            self.assertTrue(torch.equal(value, before[fqn]), fqn)
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


class Linear(torch.nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.linear = torch.nn.Linear(k, n)

    def forward(self, x):
        return self.linear(x)


class Counter(torch.nn.Module):
    """Two constants that each run changes, shared with other modules."""

    def __init__(self, first, second, by):
        super().__init__()
        self.first, self.by = first, by
        self.register_buffer("second", second)

    def forward(self):
        self.first += self.by
        self.second += self.by
        return self.first, self.second


class Archives(unittest.TestCase):
    """What PyTorch asks of archives in its own tests of packages: models that are exported here."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.made = 0
        torch.manual_seed(0)

    def archive(self, exported, *flags):
        self.made += 1
        source, out = self.folder / f"{self.made}.export.pt2", self.folder / f"{self.made}.pt2"
        torch.export.save(exported, source)
        subprocess.run([NESO, "compile", str(source), "-o", str(out), "--format", "aoti", *flags], check=True, stderr=subprocess.DEVNULL)
        return str(out)

    def files(self, archive):
        """The archive's members for one model, to be packaged again."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        with zipfile.ZipFile(archive) as members:
            members.extractall(folder)
        return [str(p) for p in sorted(folder.rglob("data/aotinductor/model/*")) if p.is_file()]

    def close(self, got, wanted):
        torch.testing.assert_close(got, wanted, **CLOSE)

    def test_metadata(self):
        archive = self.archive(torch.export.export(Linear(10, 10), (torch.randn(2, 10),)), "--metadata", "dummy=moo")
        notes = torch._C._aoti.AOTIModelPackageLoader.load_metadata_from_package(archive, "model")
        self.assertEqual(notes["dummy"], "moo")
        self.assertEqual(notes["AOTI_DEVICE_KEY"], "cpu")
        self.assertLessEqual(set(torch._inductor.codecache.get_device_information("cpu")), set(notes))
        self.assertEqual(aoti_load_package(archive).get_metadata()["dummy"], "moo")

    def test_a_number_that_was_fixed_by_the_export(self):
        class Chosen(torch.nn.Module):
            def forward(self, x, flag):
                return x * x if flag else x + x

        inputs = (torch.randn(3, 3), True)
        self.close(aoti_load_package(self.archive(torch.export.export(Chosen(), inputs)))(*inputs), inputs[0] * inputs[0])

    def test_several_models_in_one_archive(self):
        class Joined(torch.nn.Module):
            def forward(self, a, b):
                return torch.cat([a, b], dim=0)

        Dim = torch.export.Dim
        pair, x = (torch.randn(2, 4), torch.randn(3, 4)), torch.randn(5, 5)
        joined = torch.export.export(Joined(), pair, dynamic_shapes={"a": {0: Dim("a", min=1, max=10)}, "b": {0: Dim("b", min=1, max=20)}})
        linear = Linear(5, 5)
        both = package_aoti(str(self.folder / "both.pt2"), {"joined": self.files(self.archive(joined)),
                                                            "linear": self.files(self.archive(torch.export.export(linear, (x,))))})
        for pair in [pair, (torch.randn(7, 4), torch.randn(1, 4))]:
            self.close(torch._inductor.package.load_package(both, "joined")(*pair), torch.cat(pair))
        self.close(torch._inductor.package.load_package(both, "linear")(x), linear(x))
        with self.assertRaisesRegex(RuntimeError, "model 'other'"):
            torch._inductor.package.load_package(both, "other")

    def test_from_memory_and_copied(self):
        linear, x = Linear(4, 4), torch.randn(2, 4)
        buffer = io.BytesIO(pathlib.Path(self.archive(torch.export.export(linear, (x,)))).read_bytes())
        for _ in range(2):
            model = torch._inductor.package.load_package(buffer)
            self.close(model(x), linear(x))
            self.close(copy.deepcopy(model)(x), linear(x))

    def test_without_weights(self):
        linear, x = Linear(256, 512), torch.randn(128, 512)
        archive = self.archive(torch.export.export(linear, (x,)), "--weights", "none")
        model = aoti_load_package(archive)
        self.assertEqual(set(model.get_constant_fqns()), set(linear.state_dict()))
        with self.assertRaisesRegex(RuntimeError, "E0836" if TELLS else "API call failed"):
            model(x)
        model.load_constants(linear.state_dict(), check_full_update=True)
        before = linear(x)
        self.close(model(x), before)
        linear.linear.weight.data *= 3.7
        self.close(model(x), before)  # it was copied
        managed = aoti_load_package(archive)
        managed.load_constants(linear.state_dict(), check_full_update=True, user_managed=True)
        for _ in range(2):
            self.close(managed(x), linear(x))
            linear.linear.weight.data *= 3.7

    def test_user_managed_memory_lives_as_long_as_the_container_needs_it(self):
        linear, x = Linear(64, 64), torch.randn(2, 64)
        model = aoti_load_package(self.archive(torch.export.export(linear, (x,)), "--weights", "none"))
        for _ in range(20):
            value = {name: torch.randn_like(t) for name, t in linear.state_dict().items()}
            wanted = torch.nn.functional.linear(x, value["linear.weight"], value["linear.bias"])
            model.load_constants(value, check_full_update=True, user_managed=True)
            del value
            self.close(model(x), wanted)

    def test_weights_that_models_share_and_change(self):
        x, y = torch.randn(3, 4), torch.randn(3, 4)
        first, second = torch.nn.Buffer(x.clone()), torch.nn.Buffer(y.clone())
        exported = {"one": torch.export.export(Counter(first, second, 1), ()), "two": torch.export.export(Counter(first, second[2:3], 3), ())}
        members = {}
        for name, program in exported.items():
            tensors = {**program.state_dict, **program.constants}
            weights = Weights({key: (value, TensorProperties(value)) for key, value in tensors.items()})
            members[name] = self.files(self.archive(program, "--weights", "none")) + [weights]
        contents = load_pt2(package_aoti(str(self.folder / "shared.pt2"), members), load_weights_from_disk=True)
        one, two = contents.aoti_runners["one"], contents.aoti_runners["two"]
        got = one()
        self.close(got, [x + 1, y + 1])
        self.close(two(), [x + 4, y[2:3] + 4])
        self.close(got, [x + 1, y + 1])  # results do not alias what runs change
        modules = {name: program.module() for name, program in exported.items()}
        load_weights_to_pt2_contents(contents, {name: module.state_dict() for name, module in modules.items()})
        self.close(one(), [x + 1, y + 1])
        self.close(modules["one"].first, x + 1)
        self.close(modules["one"].second, y + 1)


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class Gpu(Archives):
    """The same archives for a GPU: weights come from its memory and go back there."""

    def archive(self, exported, *flags):
        return super().archive(exported, "--target", "cuda", *flags)

    def test_metadata(self):
        archive = self.archive(torch.export.export(Linear(10, 10), (torch.randn(2, 10),)), "--metadata", "dummy=moo")
        notes = torch._C._aoti.AOTIModelPackageLoader.load_metadata_from_package(archive, "model")
        self.assertEqual((notes["dummy"], notes["AOTI_DEVICE_KEY"]), ("moo", "cuda"))

    def test_runs_and_takes_other_weights(self):
        linear, x = Linear(48, 64).cuda(), torch.randn(8, 64, device="cuda")
        model = aoti_load_package(self.archive(torch.export.export(linear, (x,))))
        for _ in range(3):
            self.close(model(x), linear(x))
            for value in linear.parameters():
                value.data = torch.randn_like(value)
            model.load_constants(linear.state_dict(), check_full_update=True)

    # Those of the base class that are about the host's memory.
    test_a_number_that_was_fixed_by_the_export = test_several_models_in_one_archive = test_from_memory_and_copied = None
    test_without_weights = test_user_managed_memory_lives_as_long_as_the_container_needs_it = test_weights_that_models_share_and_change = None


class Functions(unittest.TestCase):
    """The library's C functions that the loader above does not call."""

    class Entry(ctypes.Structure):
        _fields_ = [("name", ctypes.c_char_p), ("handle", ctypes.c_void_p)]

    class Array(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("numel", ctypes.c_int64), ("sizes", ctypes.c_int64 * 8), ("strides", ctypes.c_int64 * 8),
                    ("ndim", ctypes.c_int32), ("dtype", ctypes.c_int32), ("device_type", ctypes.c_int32), ("device_idx", ctypes.c_int32),
                    ("reserved", ctypes.c_int64 * 4)]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        torch.manual_seed(0)
        self.linear, self.x = Linear(3, 4), torch.randn(2, 4)
        source, out = f"{folder.name}/m.pt2", f"{folder.name}/out.pt2"
        torch.export.save(torch.export.export(self.linear, (self.x,)), source)
        subprocess.run([NESO, "compile", source, "-o", out, "--format", "aoti"], check=True, stderr=subprocess.DEVNULL)
        with zipfile.ZipFile(out) as members:
            path = members.extract(next(n for n in members.namelist() if n.endswith(".so")), folder.name)
        self.library = ctypes.CDLL(path)
        self.torch = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib/libtorch_cpu.so"))

    def call(self, function, *args):
        failed = getattr(self.library, "AOTInductorModel" + function)(*args)
        text = ctypes.c_char_p()
        self.library.AOTInductorGetLastError(ctypes.byref(text))
        self.assertEqual(failed, 0, text.value)

    def run_array(self, model):
        given, got = self.Array(), self.Array()
        given.data, given.numel, given.ndim = self.x.data_ptr(), self.x.numel(), 2
        given.sizes[:2], given.strides[:2] = self.x.shape, self.x.stride()
        given.dtype, given.device_type = self.torch.aoti_torch_dtype_float32(), self.torch.aoti_torch_device_type_cpu()
        self.call("RunMinimalArrayrefInterfaceV2", model, 1, ctypes.byref(given), 1, ctypes.byref(got))
        self.assertEqual((got.ndim, got.numel, got.dtype, list(got.sizes[:2]), list(got.strides[:2])), (2, 6, given.dtype, [2, 3], [3, 1]))
        return torch.tensor((ctypes.c_float * got.numel).from_address(got.data)).reshape(2, 3)

    def test_a_model_of_arrays_and_its_constants(self):
        model, count = ctypes.c_void_p(), ctypes.c_size_t()
        self.call("CreateV2", ctypes.byref(model), None, ctypes.c_size_t(0))
        self.addCleanup(self.library.AOTInductorModelDelete, model)
        self.call("GetNumOutputs", model, ctypes.byref(count))
        self.assertEqual(count.value, 1)
        torch.testing.assert_close(self.run_array(model), self.linear(self.x).detach(), **CLOSE)
        entries = ctypes.POINTER(self.Entry)()
        self.call("ContainerExtractConstantsMapEntries", model, ctypes.byref(entries), ctypes.byref(count), False)
        self.assertEqual({entries[i].name.decode() for i in range(count.value)}, set(self.linear.state_dict()))

    def test_constants_of_a_blob(self):
        container, size = ctypes.c_void_p(), ctypes.c_uint64()
        self.call("ContainerCreateWithDevice", ctypes.byref(container), ctypes.c_size_t(1), b"cpu", None)
        self.addCleanup(self.library.AOTInductorModelContainerDelete, container)
        self.call("ContainerGetConstantsBlobSize", container, ctypes.byref(size))
        self.assertEqual(size.value, 128)  # 12 and 3 numbers, each at a multiple of 64 bytes
        count = ctypes.c_size_t()
        self.call("ContainerGetNumConstants", container, ctypes.byref(count))
        blob, state, place = torch.zeros(size.value // 4), self.linear.state_dict(), 0
        for i in range(count.value):
            name = ctypes.c_char_p()
            self.call("ContainerGetConstantOriginalFQN", container, ctypes.c_size_t(i), ctypes.byref(name))
            value = 2 * state[name.value.decode()].flatten()
            blob[place:place + len(value)] = value
            place += (len(value) + 15) // 16 * 16
        self.call("UpdateConstantsFromBlob", container, ctypes.c_void_p(blob.data_ptr()))
        torch.testing.assert_close(self.run_array(container), 2 * self.linear(self.x).detach(), **CLOSE)

    def test_streams_keep_their_context(self):
        container, index = ctypes.c_void_p(), ctypes.c_int64()
        self.call("ContainerCreateWithDevice", ctypes.byref(container), ctypes.c_size_t(2), b"cpu", None)
        self.addCleanup(self.library.AOTInductorModelContainerDelete, container)
        self.call("ContainerGetStreamAffinityModelIndexForTesting", container, ctypes.c_void_p(8), ctypes.byref(index))
        self.assertEqual(index.value, -2)
        self.call("ContainerSetUseStreamAffinity", container, True)
        self.call("ContainerGetStreamAffinityModelIndexForTesting", container, ctypes.c_void_p(8), ctypes.byref(index))
        self.assertEqual(index.value, -1)

    def test_there_are_all_functions_of_the_header(self):
        header = pathlib.Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_runtime/interface.h"
        if not header.exists():
            self.skipTest("this torch has no headers")
        names = re.findall(r"AOTI_API AOTIRuntimeError\s+(\w+)\(", header.read_text())
        self.assertGreaterEqual(len(names), 31)
        self.assertEqual([n for n in names if not hasattr(self.library, n)], [])


if __name__ == "__main__":
    unittest.main()
