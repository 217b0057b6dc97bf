"""What becomes of a loaded model: threads and contexts, streams, devices, memory of results that is used again, copies and child processes. The
expected values are torch's, or those of the same package loaded plainly."""
import copy
import gc
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
import torch

import neso
from modules import Two, function


def test_many_threads_at_once(mlp):
    model, ours = mlp
    failures = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for n in range(1, 40):
            x = torch.randn(n, 16, generator=generator)
            with torch.no_grad():
                want = model(x)
            if not torch.allclose(ours(x), want, rtol=1e-5, atol=1e-6):
                failures.append((seed, n))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_kernels_are_named_for_perf(mlp):
    model, ours = mlp
    path = f"/tmp/perf-{os.getpid()}.map"
    package = neso.compile(model, (torch.randn(3, 16),))
    named, x = package.load(perf_map=True), torch.randn(3, 16)
    rows = [row.split() for row in open(path)]
    os.remove(path)
    assert rows and all(name.startswith("neso:") and int(size, 16) > 16 for _, size, name in rows)
    # perf asks the map about memory of no file.
    places = [line.split() for line in open("/proc/self/maps")]
    for begin, _, _ in rows:
        place = [p for p in places if int(p[0].split("-")[0], 16) <= int(begin, 16) < int(p[0].split("-")[1], 16)]
        assert len(place) == 1 and place[0][1] == "r-xp" and len(place[0]) == 5
    assert torch.equal(named(x), package.load()(x))


class Slow(torch.nn.Module):
    """Calls an operator of the user's, which says how many calls are inside of it."""
    def forward(self, x):
        return torch.ops.neso_test_contexts.wait(x) * 2


inside, most = 0, 0


@pytest.fixture(scope="module")
def slow():
    lock = threading.Lock()

    @torch.library.custom_op("neso_test_contexts::wait", mutates_args=())
    def wait(x: torch.Tensor) -> torch.Tensor:
        global inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.05)
        with lock:
            inside -= 1
        return x + 1

    @wait.register_fake
    def _(x):
        return torch.empty_like(x)
    return neso.compile(Slow(), (torch.ones(4),))


@pytest.mark.parametrize("contexts", [0, 1, 2, 6])
def test_at_most_so_many_calls_run_at_once(slow, contexts):
    global most
    ours, most, results = slow.load(contexts=contexts, threads=1), 0, []
    threads = [threading.Thread(target=lambda: results.append(ours(torch.ones(4)))) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 6 and all(torch.equal(r, torch.full((4,), 4.0)) for r in results)
    # Calls that fail give their context back, too.
    for _ in range(8):
        with pytest.raises(neso.InputError):
            ours(torch.ones(4, dtype=torch.int32))
    ours(torch.ones(4))
    # How many of a machine that is busy run at once is its own matter; more than two sleep together.
    assert most <= contexts if contexts else most > 2


@pytest.mark.parametrize("options,text", [({"contexts": -1}, "contexts is how many"), ({"contexts": "2"}, "contexts is how many"), ({"contexts": True}, "contexts is how many"),
                                          ({"graph": "dynamic"}, "graph is None or 'static'"), ({"stream": 1}, "stream= is for models on a GPU")])
def test_options_of_load_are_checked(slow, options, text):
    with pytest.raises(neso.InputError, match=text):
        slow.load(**options)


def test_a_stream_is_for_gpus_unless_the_model_has_an_argument_of_that_name(mlp):
    _, ours = mlp
    x = torch.randn(3, 16)
    with pytest.raises(neso.InputError, match=r"stream= is for models on a GPU; this one was loaded with device='cpu'"):
        ours(x, stream=7)
    torch.testing.assert_close(ours(x, stream=None), ours(x), rtol=0, atol=0)

    class Named(torch.nn.Module):
        def forward(self, x, *, stream):
            return x - stream
    named = neso.compile(Named(), (x,), {"stream": x + 1}).load()
    torch.testing.assert_close(named(x, stream=x + 1), torch.full((3, 16), -1.0))


def test_streams_of_any_kind_are_numbers():
    from types import SimpleNamespace

    from neso import _hooks
    streams = [5, SimpleNamespace(cuda_stream=5), SimpleNamespace(ptr=5), SimpleNamespace(__cuda_stream__=lambda: (0, 5))]
    assert [_hooks.stream_handle(s) for s in streams] == [5] * 4
    for wrong in ("5", -1, True, 1.5):
        with pytest.raises(neso.InputError, match="stream= takes a stream of torch or CuPy"):
            _hooks.stream_handle(wrong)


def test_tensors_are_brought_to_the_models_device(mlp):
    _, ours = mlp
    x, a = torch.randn(2, 16), np.ones(3)
    tree = ours.to_device({"x": (x, [a, 3]), "none": None})
    assert ours.device == "cpu" and tree["x"][0] is x and tree["x"][1][0] is a and tree["x"][1][1] == 3 and tree["none"] is None
    with pytest.raises(neso.InputError, match="device=None"):
        neso.load(neso.compile(function(torch.neg), (x,)), device=None).to_device(x)


def test_a_static_model_uses_the_memory_of_results_again(mlp):
    model, _ = mlp
    dynamic = neso.compile(model, (torch.randn(4, 16),), dynamic_shapes=({0: torch.export.Dim("rows", max=64)},))
    ours, plain = dynamic.load(graph="static"), dynamic.load()
    places = set()
    for rows in (3, 3, 3, 5, 5, 3, 3):
        x = torch.randn(rows, 16)
        result = ours(x)
        torch.testing.assert_close(result, plain(x), rtol=0, atol=0)
        places.add((rows, result.data_ptr()))
        del result
    assert len(places) == 2
    # What somebody holds is left alone.
    x, y = torch.randn(3, 16), torch.randn(3, 16)
    first, second = ours(x), ours(y)
    torch.testing.assert_close(first, plain(x), rtol=0, atol=0)
    torch.testing.assert_close(second, plain(y), rtol=0, atol=0)
    # Arrays, out= and what is wrong are as without it.
    torch.testing.assert_close(torch.from_numpy(ours(x.numpy())), first, rtol=0, atol=0)
    out = torch.empty(3, 8)
    assert ours(x, out=out) is out and torch.equal(out, first)
    for wrong in ((), (x, x), (torch.randn(3, 15),), (torch.randn(99, 16),)):
        with pytest.raises(neso.InputError):
            ours(*wrong)
    with pytest.raises(neso.InputError, match="requires a gradient"):
        ours(torch.randn(3, 16, requires_grad=True))
    torch.testing.assert_close(pickle.loads(pickle.dumps(ours))(x), first, rtol=0, atol=0)


def test_static_models_have_the_modules_tree_and_write_to_arguments():
    x, y = torch.randn(3), torch.randn(3)
    ours = neso.compile(Two(), (x, y), {"scale": 2}).load(graph="static")
    for scale in (2, 2):
        for got, want in zip((ours(x, y, scale=scale)["sum"], *ours(x, y, scale=scale)["both"]), (x + y, x * 2, y - 1)):
            torch.testing.assert_close(got, want)

    class Adds(torch.nn.Module):
        def forward(self, a, b):
            a.add_(b)
            return a * 2
    ours = neso.compile(Adds(), (x.clone(), y)).load(graph="static")
    for _ in range(4):
        a = torch.zeros(3)
        torch.testing.assert_close(ours(a, y), y * 2)
        torch.testing.assert_close(a, y)


def turned(x):
    x.mul_(2)
    x.transpose_(0, 1)
    return x.sum(0)


def squeezed(x):
    x.squeeze_()
    return x + 1


def strided(x):
    x.as_strided_((2, 2), (1, 1), 1)
    return x * 1


@pytest.mark.parametrize("graph", [None, "static"])
@pytest.mark.parametrize("change, sizes", [(turned, (2, 3)), (squeezed, (1, 2, 3)), (strided, (2, 3))])
def test_an_argument_that_the_model_turns_is_left_so(change, sizes, graph):
    first = torch.arange(6.0).reshape(sizes)
    ours = neso.compile(torch.export.export(function(change), (first.clone(),))).load(graph=graph)
    for _ in range(3):
        a, b = first.clone(), first.clone()
        torch.testing.assert_close(ours(a), change(b))
        assert (a.shape, a.stride(), a.storage_offset()) == (b.shape, b.stride(), b.storage_offset())
        torch.testing.assert_close(a, b)


def test_arguments_that_cannot_be_turned_are_refused():
    ours = neso.compile(torch.export.export(function(turned), (torch.zeros(2, 3),))).load()
    with pytest.raises(neso.InputError, match="cannot take: pass a torch.Tensor"):
        ours(np.zeros((2, 3), np.float32))
    with pytest.raises(neso.Error):
        ours(torch.zeros(2, 4))


def test_child_processes_run_the_parents_model(mlp):
    model, _ = mlp
    ours = neso.compile(model, (torch.randn(64, 16),)).load(threads=3)
    x = torch.randn(64, 16)
    want = ours(x)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if all(torch.equal(ours(x), want) for _ in range(20)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    torch.testing.assert_close(ours(x), want, rtol=0, atol=0)


def test_copies_of_models(mlp):
    model, _ = mlp
    x = torch.randn(3, 16)
    bias = torch.randn(8)
    ours = neso.compile(model, (x,)).load(weights={"second.bias": bias}, threads=1)
    for copied in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        torch.testing.assert_close(copied(x), ours(x), rtol=0, atol=0)


def test_calls_do_not_leak(mlp):
    _, ours = mlp
    x, a = torch.randn(64, 16), np.zeros((64, 16), np.float32)
    def resident():
        gc.collect()
        return int(open("/proc/self/statm").read().split()[1]) * 4096
    def many(count):
        for _ in range(count):
            ours(x)
            ours(a)
            with pytest.raises(neso.InputError):
                ours(x, x)
    many(200)
    before = resident()
    many(2000)
    # 2,000 leaked results would be 4 MB, each failure's text far less.
    assert resident() - before < 2 << 20


def test_arguments_of_other_devices_are_copied_on_request(monkeypatch):
    """Here all lies on the CPU: what is to be seen is which values would be brought there, and by which models."""
    from neso import _model
    x, y = torch.randn(3), torch.randn(3)
    package = neso.compile(Two(), (x, y), {"scale": 2})
    moved = []
    real = _model._tree_on
    monkeypatch.setattr(_model, "_tree_on", lambda value, device: (moved.append((value, device)), real(value, device))[1])
    package.load()(x, y, scale=2)
    assert not moved
    for graph in (None, "static"):
        moved.clear()
        ours = package.load(copy_inputs=True, graph=graph)
        want = package.load()(x, y, scale=2)
        moved.clear()
        got = ours(x, y, scale=2)
        assert {device for _, device in moved} == {"cpu"} and [id(v) for v, _ in moved if isinstance(v, torch.Tensor)] == [id(x), id(y)]
        for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want)):
            torch.testing.assert_close(a, b)
    again = pickle.loads(pickle.dumps(ours))
    moved.clear()
    again(x, y, scale=2)
    assert moved

    class Changes(torch.nn.Module):
        def forward(self, a):
            a.add_(1)
            return a * 2
    with pytest.raises(neso.InputError, match="changes its arguments a"):
        neso.compile(Changes(), (x,)).load(copy_inputs=True)
