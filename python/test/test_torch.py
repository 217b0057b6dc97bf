"""torch.compile(backend="neso") against eager."""
import copy
import math
import warnings

import numpy as np
import pytest
import torch

import neso.torch as ours


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("NESO_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def compare(function, *arguments, tolerance=1e-4, **options):
    """Runs both on every tuple of arguments; what the backend did."""
    with ours.watch() as report, torch.no_grad():
        compiled = torch.compile(function, backend=ours.backend, options=options)
        for args in arguments:
            mine = copy.deepcopy(args)
            torch.testing.assert_close(compiled(*mine), function(*args), rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(mine, args, rtol=tolerance, atol=tolerance)
    return report


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)).eval()


def test_sizes_that_change_compile_twice_and_one_apart():
    report = compare(mlp(), *[(torch.randn(n, 16),) for n in (2, 3, 5, 7, 12, 1)])
    assert len(report.packages) == 3 and not report.refused and report.share == 1


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = torch.nn.Embedding(50, 32), torch.nn.Linear(32, 96), torch.nn.Linear(32, 50)

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x + y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("kind", ["batches", "pictures", "tokens"])
def test_twenty_sizes_compile_three_times_at_most(kind):
    if kind == "batches":
        model, inputs = mlp(), [torch.randn(n, 16) for n in range(1, 21)]
    elif kind == "pictures":
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4)).eval()
        inputs = [torch.randn(2, 3, 8 + n, 9 + 2 * n) for n in range(20)]
    else:
        model, inputs = Attention().eval(), [torch.randint(0, 50, (2 + n % 4, 3 + n)) for n in range(20)]
    report = compare(model, *[(x,) for x in inputs])
    assert len(report.packages) <= 3 and not report.refused and report.share == 1


def test_the_second_time_comes_from_disk():
    model = mlp()
    compare(model, (torch.randn(9, 16),))
    torch._dynamo.reset()
    report = compare(model, (torch.randn(9, 16),))
    assert [p.cached for p in report.pieces] == [True]


def test_convolutions():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4))
    assert not compare(model.eval(), *[(torch.randn(n, 3, 16, 16),) for n in (1, 2)]).refused


def test_what_expand_made_is_not_laid_out_whole(monkeypatch):
    """Dynamo calls a graph with tensors of the same strides alone, so that the package reads each element where it lies."""
    import neso.torch as backend
    shapes, compile_model = [], backend.compile_model
    monkeypatch.setattr(backend, "compile_model", lambda program, **o: shapes.append([tuple(n.meta["val"].shape) for n in program.graph.nodes if n.op == "placeholder"]) or compile_model(program, **o))
    row, full, other = torch.randn(1, 6), torch.randn(4, 6), torch.randn(4, 6)

    def f(a, b):
        return a + b, a.cumsum(0), a, a.transpose(0, 1), (a * 2)[1:]
    compiled = torch.compile(f, backend=backend.backend, fullgraph=True, dynamic=False)
    for a in (row.expand(4, 6), full, torch.tensor(3.0).expand(4, 6), row.expand(4, 6)):
        torch.testing.assert_close(compiled(a, other), f(a, other))
    assert shapes == [[(1, 6), (4, 6)], [(4, 6), (4, 6)], [(1, 1), (4, 6)]]
    # Sizes that vary are said by the caller; a dimension of size 1 is none that repeats.
    varying = torch.compile(f, backend=backend.backend, dynamic=True)
    for rows in (4, 7, 9):
        a, b = row.expand(rows, 6), torch.randn(rows, 6)
        torch.testing.assert_close(varying(a, b), f(a, b))
    one = torch.compile(lambda a: a * 2, backend=backend.backend, dynamic=False)
    torch.testing.assert_close(one(row[:, :1].expand(1, 6)), row[:, :1].expand(1, 6) * 2)
    # A package may be given any tensor of the sizes.
    package = backend.package(lambda a: a * 2, row.expand(4, 6))
    torch.testing.assert_close(package.load()(full)[0], full * 2)


def test_graph_breaks():
    def function(x):
        y = torch.relu(x) * 2 + 1
        if y.sum() > 0:
            y = torch.sin(y) + torch.cos(y) * 3
        return y.exp() - 1
    assert len(compare(function, (torch.randn(8),)).packages) == 2


class Changing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(3))

    def forward(self, x):
        x[0] = 7
        return x * 2 + self.n.add_(1)


def test_mutations_reach_the_callers_tensors():
    mine, theirs = Changing(), Changing()
    compiled = torch.compile(mine, backend=ours.backend)
    for _ in range(2):
        x = torch.ones(4, 3)
        y = x.clone()
        torch.testing.assert_close(compiled(x), theirs(y))
        torch.testing.assert_close(x, y)
    torch.testing.assert_close(mine.n, theirs.n)


def partly(x):
    y = torch.relu(x) * 2 + 1
    y = (y - x) * y + 3
    e = torch.ops.aten._test_functorch_fallback(y, y)[0]  # PyTorch's own tests alone have it
    z = (e * 2 + 1).sin() + e.cos()
    return z * z - 1 + y.sum()


def _masked(model, x):
    with torch.no_grad():
        model.weight.data *= torch.ones(4, 4).tril()
    return model(x).sum()


def _clamped(model, x):
    model.weight.data.clamp_(-0.1, 0.1)
    return model(x).sum()


def _moved(model, x):
    x[1:].mul_(3)
    before = x.clone()
    x.data = x * 3
    return model(x).sum(), before


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("function", [_masked, _clamped, _moved])
def test_data_that_are_given_anew(function, gradients):
    mine = torch.nn.Linear(4, 4)
    theirs = copy.deepcopy(mine)
    compiled = torch.compile(function, backend=ours.backend)
    for rows in (3, 3, 5):
        a = torch.randn(rows, 4)
        b = a.clone()
        with torch.set_grad_enabled(gradients):
            results = [f(model, x) for f, model, x in ((compiled, mine, a), (function, theirs, b))]
            torch.testing.assert_close(*results)
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(mine.state_dict(), theirs.state_dict())
        if gradients:
            for result in results:
                (result[0] if isinstance(result, tuple) else result).backward()
            for p, q in zip(mine.parameters(), theirs.parameters()):
                torch.testing.assert_close(p.grad, q.grad)


def test_a_write_to_an_argument_counts_as_one():
    def function(x):
        x.add_(1)
        return x.sum()
    x = torch.zeros(3)
    torch.compile(function, backend=ours.backend)(x)
    assert x._version == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_arguments_that_are_written_to_and_returned(dynamic):
    def one(x, y):
        x.add_(1)
        return x

    def both(x, y):
        x.copy_(x.flip(0))
        y.copy_(x)
        return y, x * 2, x

    for function in (one, both):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend=ours.backend, dynamic=dynamic, options={"fallback": "error"})
        for n in (4, 7):
            mine, theirs = ([torch.arange(3.0 * n).view(n, 3), torch.ones(n, 3)] for _ in range(2))
            got, want = compiled(*mine), function(*theirs)
            got, want = (r if isinstance(r, tuple) else (r,) for r in (got, want))
            for g, w in zip((*got, *mine), (*want, *theirs)):
                assert torch.equal(g, w)
            assert [g.data_ptr() == m.data_ptr() for g in got for m in mine] == [w.data_ptr() == t.data_ptr() for w in want for t in theirs]


def test_results_that_share_memory_still_do():
    def function(x):
        y = (x * 2 + 1).sin() * x + x.cos()
        z = y.view(-1)
        return z.add_(1), y, y[0]
    compiled = torch.compile(function, backend=ours.backend)
    with ours.watch() as report:
        flat, whole, row = compiled(torch.ones(2, 3))
    torch.testing.assert_close((flat, whole, row), function(torch.ones(2, 3)))
    whole.zero_()
    assert (flat == 0).all() and (row == 0).all()
    assert report.share == 1 and not report.refused


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_that_are_parts_of_inputs(dynamic):
    def parts(x):
        return (*x.chunk(4), x[1:], x[2:] * 2)
    compiled = torch.compile(parts, backend=ours.backend, dynamic=dynamic, fullgraph=True)
    for n in (8, 12, 16):
        x = torch.randn(n)
        got = compiled(x)
        for a, b in zip(got, parts(x), strict=True):
            assert torch.equal(a, b)
        x[2] = 7  # the parts are x's own memory
        assert got[4][1] == 7
    with torch.enable_grad():
        x = torch.randn(6, 4, requires_grad=True)
        whole, part = torch.compile(lambda x: (x.sin(), x[2:]), backend=ours.backend, dynamic=dynamic)(x)
        (whole.sum() + part.sum()).backward()
        wanted = x.detach().cos()
        wanted[2:] += 1
        assert torch.allclose(x.grad, wanted)


def test_inputs_whose_values_are_not_in_memory_yet():
    x = torch.randn(4, 8, dtype=torch.complex64)
    compare(lambda x: (x * 2).sum(-1), (x.conj(),), (x,))
    compare(lambda x: torch.relu(x) * 2 + x.exp(), (x.conj().imag,), (x.imag,))


def test_functions_of_numpy():
    def function(x):
        return np.sin(x) * 2 + x.sum()
    x = np.arange(5.0)
    with ours.watch() as report:
        np.testing.assert_allclose(torch.compile(function, backend=ours.backend)(x), function(x), rtol=1e-12)
    assert report.share == 1


def test_attention_learns():
    mine = torch.nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
    theirs = copy.deepcopy(mine)
    x = torch.randn(2, 9, 32)
    with ours.watch() as report:
        torch.compile(mine, backend=ours.backend)(x).square().mean().backward()
    theirs(x).square().mean().backward()
    for a, b in zip(mine.parameters(), theirs.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-4)
    assert not report.refused


def test_attention_is_compiled_where_it_drops_nothing():
    report = compare(lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q) + 1, (torch.randn(2, 3, 8, 16),))
    assert report.share == 1


def test_attention_with_fewer_key_heads():
    attention = torch.nn.functional.scaled_dot_product_attention
    report = compare(lambda q, k: attention(q, k, k, enable_gqa=True) + 1, (torch.randn(2, 4, 9, 8), torch.randn(2, 2, 7, 8)))
    assert report.share == 1
    report = compare(lambda q, k, m: attention(q, k, k, attn_mask=m, scale=0.5) + 1, (torch.randn(2, 4, 9, 8), torch.randn(2, 4, 7, 8), torch.randn(9, 7)))
    assert report.share == 1


@pytest.mark.parametrize("heads, dtype, tolerance", [(4, torch.float32, 1e-5), (2, torch.bfloat16, 8e-3)])
def test_attention_with_functions_of_the_users(heads, dtype, tolerance):
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    slope, document = torch.randn(4), torch.arange(128) // 40
    q, k, v = (torch.randn(3, n, 128, 16, dtype=dtype) for n in (4, heads, heads))
    for change, counts in ((None, lambda b, h, i, j: i >= j), (lambda s, b, h, i, j: torch.tanh(s / 20) * 20 + (i - j) * 0.01 * slope[h], lambda b, h, i, j: document[i] == document[j])):
        mask = flex.create_block_mask(counts, None, None, 128, 128, device="cpu")
        torch._dynamo.reset()
        report = compare(lambda q, k, v: torch.relu(flex.flex_attention(q * 2, k + 1, v.sin(), score_mod=change, block_mask=mask, enable_gqa=heads != 4)), (q, k, v),
                         fallback="error", tolerance=tolerance)
        assert report.share == 1
    # A mask alone makes it what the compiler knows as attention: no kernel holds the scores.
    if dtype == torch.float32:
        torch._dynamo.reset()
        report = compare(lambda q, k, v: flex.flex_attention(q, k, v, block_mask=mask), (q, k, v), fallback="error")
        assert any("attention" in kernel["doc"] for kernel in report.packages[0].load(device=None).kernels)


def test_attention_with_functions_of_the_users_and_sizes_that_change():
    flex = pytest.importorskip("torch.nn.attention.flex_attention")

    def attend(q, k):
        mask = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], k.shape[2], device="cpu")
        length = q.shape[2]
        return flex.flex_attention(q, k, k, score_mod=lambda s, b, h, i, j: s / length + i, block_mask=mask, return_lse=True)
    compiled = torch.compile(attend, backend=ours.backend, dynamic=True, options={"fallback": "error"})
    for n, m in ((128, 128), (100, 70), (33, 200)):
        args = torch.randn(2, 2, n, 16), torch.randn(2, 2, m, 16)
        torch.testing.assert_close(compiled(*args), attend(*args))


def test_attention_with_functions_of_the_users_that_cannot_be_traced(monkeypatch):
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    monkeypatch.setattr("neso._flex._trace", lambda *_: 1 / 0)
    q, w = torch.randn(1, 2, 128, 16), torch.randn(16, 16)
    with pytest.warns(UserWarning, match="flex_attention at .*its functions cannot be traced"):
        report = compare(lambda q, w: (flex.flex_attention(torch.relu(q @ w) * 2 - 1, q, q, score_mod=lambda s, b, h, i, j: s + i) @ w).sin().sum() * 3, (q, w))
    assert 0.5 < report.share < 1
    with pytest.raises(Exception, match="its functions cannot be traced"):
        torch.compile(lambda q: flex.flex_attention(q, q, q), backend=ours.backend, options={"fallback": "error"})(q)


def test_attention_with_functions_of_the_users_learns(monkeypatch):
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    # Torch refuses gradients of it on a CPU for want of a kernel.
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    bias = torch.randn(72, requires_grad=True)
    q, k, v = (torch.randn(2, n, 72, 16, requires_grad=True) for n in (4, 2, 2))

    def attend(q, k, v):
        return flex.flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s * torch.sigmoid(s) + bias[i] * bias[j], enable_gqa=True)
    with ours.watch() as report:
        mine, theirs = (torch.autograd.grad(f(q, k, v).square().sum(), (q, k, v, bias)) for f in (torch.compile(attend, backend=ours.backend), attend))
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    assert report.share == 1 and len(report.pieces) == 2


def test_steps_of_an_optimiser():
    mine = [torch.nn.Parameter(torch.randn(5, 5)) for _ in range(3)]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in mine]
    a, b = torch.optim.Adam(mine, 0.1), torch.optim.Adam(theirs, 0.1)
    step = torch.compile(a.step, backend=ours.backend)
    with ours.watch() as report:
        for _ in range(3):
            for p, q in zip(mine, theirs):
                p.grad = torch.randn(5, 5)
                q.grad = p.grad.clone()
            step()
            b.step()
    for p, q in zip(mine, theirs):
        # Traced, the corrections by the number of steps are float32; eager computes them in Python.
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-5)
    assert not report.refused


def test_a_gpu_is_compiled_for_with_its_own_instructions(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    assert ours._target(torch.device("cuda", 0)) == {"target": "cuda", "arch": "native:sm_90"}
    from neso.triton import _launch
    assert _launch._target("cuda:0")[:4] == ["--target", "cuda", "--arch", "native:sm_90"]
    # A chip without any is meant by the same name.
    assert ours.compile_model(torch.nn.Linear(3, 2), (torch.zeros(4, 3),), target="cuda", arch="sm_80a", ptxas="none")


def test_what_is_refused_is_cut_out_and_named_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = compare(partly, (torch.randn(8, 8),))
    texts = [str(w.message) for w in caught if "neso leaves" in str(w.message)]
    assert len(texts) == 1 and "aten._test_functorch_fallback.default" in texts[0] and __file__ in texts[0]
    assert len(report.packages) == 2 and [r[0] for r in report.refused] == ["aten._test_functorch_fallback.default"]
    assert 0.5 < report.share < 1


def test_nothing_is_left_to_torch_where_that_is_an_error():
    with pytest.raises(Exception, match="_test_functorch_fallback"):
        torch.compile(partly, backend=ours.backend, options={"fallback": "error"})(torch.randn(8, 8))
    with pytest.raises(Exception, match="no option fallbock"):
        torch.compile(partly, backend=ours.backend, options={"fallbock": "error"})(torch.randn(8, 8))


def test_random_numbers_are_torchs():
    def function(x):
        y = (torch.relu(x) * 2 + 1).sin() + x
        return torch.nn.functional.dropout(y * y - 3, 0.5, True).exp() + y
    compiled = torch.compile(function, backend=ours.backend, options={"fallback": "silent"})
    x = torch.randn(64)
    torch.manual_seed(3)
    want = function(x)
    torch.manual_seed(3)
    torch.testing.assert_close(compiled(x), want)


def test_training_gives_torchs_gradients():
    mine = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))
    theirs = copy.deepcopy(mine)
    compiled = torch.compile(mine, backend=ours.backend)
    steps = [(compiled, torch.optim.SGD(mine.parameters(), 0.1)), (theirs, torch.optim.SGD(theirs.parameters(), 0.1))]
    with ours.watch() as report:
        for _ in range(10):
            x, y = torch.randn(8, 16), torch.randn(8, 4)
            for model, optimiser in steps:
                optimiser.zero_grad()
                torch.nn.functional.mse_loss(model(x), y).backward()
                optimiser.step()
    for a, b in zip(mine.parameters(), theirs.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert len(report.packages) == 2 and not report.refused


def test_explain_says_what_stays_with_torch():
    text = str(ours.explain(partly, torch.randn(8, 8)))
    assert "2 compiled graphs or parts" in text and "aten._test_functorch_fallback.default at " + __file__ in text


def test_package_of_a_function():
    model, x = mlp(), torch.randn(3, 16)
    inside = ours.package(model, x).load()
    assert [[d.max for d in v.dims] for v in inside.inputs] == [[3, 16]]
    torch.testing.assert_close(inside(x), (model(x),), rtol=1e-5, atol=1e-6)
    outside = ours.package(model, x, options={"freeze": False}).load()
    assert len(outside.inputs) == 7 and [3, 16] in [[d.max for d in v.dims] for v in outside.inputs]


def test_frozen_weights_are_inside_and_watched():
    model, x = mlp(), torch.randn(3, 16)
    compiled = torch.compile(model, backend=ours.backend, options={"freeze": True})
    with torch.no_grad():
        with ours.watch() as report:
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        assert len(report.packages[0].load().inputs) == 1
        model[0].weight.mul_(2)
        with pytest.warns(UserWarning, match="weights .* have changed"):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        model[0].bias.data = torch.ones(32)
        with pytest.warns(UserWarning, match="weights .* have changed"):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    # Where gradients are wanted nothing is frozen.
    with ours.watch() as report:
        compiled(x).sum().backward()
    assert model[0].weight.grad is not None and len(report.packages) == 2


class Kept(torch.nn.Module):
    """Buffers that are changed, or returned, beside a weight and a constant."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3) * 2)
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x):
        self.count.add_(1)
        return (x * self.weight + self.count).exp() - self.shift, self.shift, torch.tensor([1.0, 2.0, 3.0]) * x


def test_buffers_that_change_are_not_frozen():
    mine, theirs = Kept(), Kept()
    compiled = torch.compile(mine, backend=ours.backend, options={"freeze": True})
    with torch.no_grad():
        for i in range(3):
            x = torch.randn(2, 3)
            torch.testing.assert_close(compiled(x), theirs(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine.count, theirs.count)


def test_a_frozen_graph_with_a_refused_operator():
    weight = torch.nn.Parameter(torch.randn(8, 8))

    class Partly(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weight

        def forward(self, x):
            return partly(x @ self.weight)
    report = compare(Partly(), (torch.randn(8, 8),), freeze=True, fallback="silent", tolerance=1e-3)
    assert len(report.packages) == 2 and report.share > 0.5


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_modes_use_the_memory_of_results_again_but_never_what_somebody_holds(mode):
    def function(x):
        return torch.relu(x) * 2 + 1, x.sum(0)
    compiled = torch.compile(function, backend=ours.backend, mode=mode)
    seen, held = set(), []
    for i in range(6):
        x = torch.full((4, 8), float(i))
        a, b = compiled(x)
        torch.testing.assert_close((a, b), function(x))
        seen.add(a.data_ptr())
        del a, b
    assert len(seen) == 1
    for i in range(6):
        held.append(compiled(torch.full((4, 8), float(i)))[0])
    # Also a view holds it.
    view = compiled(torch.full((4, 8), 7.0))[0][0]
    for i in range(6):
        compiled(torch.full((4, 8), 9.0))
        torch.testing.assert_close(held[i], torch.full((4, 8), i * 2.0 + 1))
    assert (view == 15).all()
    with pytest.raises(Exception, match="no mode 'quick'; there are default, reduce-overhead"):
        torch.compile(function, backend=ours.backend, options={"mode": "quick"})(torch.ones(3))


def test_modes_with_sizes_that_change_and_training():
    compare(mlp(), *[(torch.randn(n, 16),) for n in (2, 3, 5, 3, 5, 2, 7)], mode="reduce-overhead")
    mine, theirs = mlp(), None
    theirs = copy.deepcopy(mine)
    compiled = torch.compile(mine, backend=ours.backend, mode="reduce-overhead")
    for _ in range(3):
        x, y = torch.randn(4, 16), torch.randn(4, 16)
        (compiled(x).sum() * compiled(y).sum()).backward()
        (theirs(x).sum() * theirs(y).sum()).backward()
    for a, b in zip(mine.parameters(), theirs.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)


def test_checks_whose_order_torch_keeps():
    a, b = torch.randn(4, 4, requires_grad=True), torch.randn(4)
    want = torch.autograd.grad(((torch.linalg.solve(a, b) * 2 + 1).exp() - b).sum(), a)
    compiled = torch.compile(lambda a, b: (torch.linalg.solve(a, b) * 2 + 1).exp() - b, backend=ours.backend, options={"fallback": "silent"})
    torch.testing.assert_close(torch.autograd.grad(compiled(a, b).sum(), a), want, rtol=1e-3, atol=1e-4)


@torch.library.custom_op("neso_python_test::twice_", mutates_args={"x"})
def twice_(x: torch.Tensor) -> None:
    x.mul_(2)


@torch.library.custom_op("neso_python_test::shifted", mutates_args=())
def shifted(x: torch.Tensor, by: float) -> torch.Tensor:
    return x + by


@shifted.register_fake
def _(x, by):
    return torch.empty_like(x)


def test_operators_of_the_users_run_in_torch():
    def function(x):
        y = torch.relu(x) * 2
        twice_(y)
        return shifted(y.sin(), 0.5).cos() + y

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = compare(function, (torch.randn(4, 8),))
    assert {name.partition(".")[2].split(".")[0] if name.startswith("neso_python_test") else name for name, _, _ in report.refused} >= {"shifted"}
    assert any("an operator that is not torch's own" in str(w.message) for w in caught)
    with pytest.raises(Exception, match="an operator that is not torch's own"):
        torch.compile(function, backend=ours.backend, options={"fallback": "error"})(torch.randn(4, 8))


@torch.library.custom_op("neso_python_test::strides", mutates_args=())
def strides(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.stride())


@strides.register_fake
def _(x):
    return x.new_empty(x.dim(), dtype=torch.int64)


@torch.library.custom_op("neso_python_test::of_contiguous", mutates_args=(), tags=(torch.Tag.needs_contiguous_strides,))
def of_contiguous(x: torch.Tensor) -> torch.Tensor:
    assert x.is_contiguous()
    return x * 2


@of_contiguous.register_fake
def _(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def test_operators_of_the_users_see_the_strides_that_they_ask_for():
    def as_traced(x):
        y = torch.relu(x.t()) * 2 + x.t().sin().cos()
        z = (x * 3).t()
        z[1:].mul_(2)
        return strides(y), strides(z), strides(z[:, ::2] * 1), strides(y.expand(2, 8, 4)), strides(x.to(memory_format=torch.contiguous_format)), strides(torch.tanh(y)[1:])

    compare(as_traced, (torch.randn(4, 8),))
    compare(as_traced, (torch.randn(8, 4).t(),))
    # Outside of torch.compile the operator refuses these.
    x = torch.randn(4, 8)
    y, z, w = torch.compile(lambda x: (of_contiguous(torch.relu(x.t()) * 2), of_contiguous(x.t()) + 1, of_contiguous(x)), backend=ours.backend, options={"fallback": "silent"})(x)
    torch.testing.assert_close((y, z, w), (torch.relu(x.t()) * 4, x.t() * 2 + 1, x * 2))


@pytest.mark.parametrize("dynamic", (False, True))
def test_memory_behind_an_operand(dynamic):
    """as_strided sees the memory of its operand, which begins before it."""
    def written(x):
        x.as_strided((3,), (1,), 7).add_(100)
        return x + 0

    def scattered(x, src):
        return torch.as_strided_scatter(x, src, (3,), (1,), 7) + 1

    def read_by_torch(x):
        y = (x * 2).sin().cos().tanh().relu()
        half = y.view(torch.int16)[2:].as_strided((4, 3), (2, 1))
        return half.view(torch.float16).as_strided((5,), (1,), 1) + 1, half + 1

    base = torch.arange(40.0).reshape(8, 5)
    for function, make in ((written, lambda: (base.clone()[1:],)), (scattered, lambda: (base.clone()[1:], -torch.ones(3))),
                           (read_by_torch, lambda: (base.clone(),))):
        torch._dynamo.reset()
        given = make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = torch.compile(function, backend=ours.backend, dynamic=dynamic)(*given)
        other = make()
        torch.testing.assert_close(got, function(*other))
        torch.testing.assert_close(given, other)


def test_products_of_several_dtypes_are_torchs_to_refuse():
    x, half = torch.randn(3, 3), torch.randn(3, 3, dtype=torch.float16)
    for function, given in ((torch.mm, (x, half)), (torch.nn.functional.linear, (x, half)), (torch.addmm, (torch.randn(3).double(), x, x)), (torch.mv, (x, half[0]))):
        torch._dynamo.reset()
        with pytest.raises(Exception, match="one dtype only"):
            torch.compile(function, backend=ours.backend, options={"fallback": "error"})(*given)
        torch._dynamo.reset()
        with pytest.raises(RuntimeError, match="dtype"):
            torch.compile(function, backend=ours.backend, options={"fallback": "silent"})(*given)


class Branches(torch.nn.Module):
    """Branches and a loop that read weights: dynamo notes on the nodes of sub-graphs what torch's serialiser refuses."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, p, n, x):
        y = torch.cond(p, lambda a: self.first(a) + 1, lambda a: self.second(a).relu(), (x,))
        return torch.while_loop(lambda i, a: i > 0, lambda i, a: (i - 1, self.second(a).tanh()), (n, y))[1]


def test_branches_and_loops_that_read_weights():
    arguments = [(torch.tensor(p), torch.tensor(n), torch.randn(3, 4)) for p, n in ((True, 2), (False, 0))]
    report = compare(Branches().eval(), *arguments, fallback="error")
    assert report.share == 1


def test_branches_learn():
    model = torch.nn.Linear(4, 4)

    def choose(x):
        return torch.cond(x.sum() > 0, lambda a: model(a).sin(), lambda a: model(a).cos(), (x,))
    compiled = torch.compile(choose, backend=ours.backend, options={"fallback": "error"})
    for x in (torch.ones(3, 4), -torch.ones(3, 4)):
        gradients = []
        for function in (choose, compiled):
            model.zero_grad()
            own = x.clone().requires_grad_()
            function(own).sum().backward()
            gradients.append([own.grad, *(p.grad.clone() for p in model.parameters())])
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
def test_attention_whose_sizes_all_change(dtype, tolerance):
    def attend(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    compiled = torch.compile(attend, backend=ours.backend, dynamic=True, options={"fallback": "error"})
    for shape in ((2, 3, 7, 8), (3, 5, 9, 16)):
        q, k, v = (torch.randn(shape).to(dtype) for _ in range(3))
        torch.testing.assert_close(compiled(q, k, v), attend(q, k, v), rtol=tolerance, atol=tolerance)


def test_layers_of_an_encoder_whose_sizes_all_change():
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    compiled = torch.compile(model, backend=ours.backend, dynamic=True, options={"fallback": "error"})
    with torch.no_grad():
        for shape in ((2, 7, 8), (3, 5, 8)):
            x = torch.randn(shape)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_sizes_that_are_a_fraction_of_others():
    def widen(x):
        return torch.nn.functional.interpolate(x, scale_factor=1.5, mode="nearest") * 2
    compiled = torch.compile(widen, backend=ours.backend, dynamic=True, options={"fallback": "error"})
    for shape in ((2, 3, 8, 8), (2, 3, 5, 9)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), widen(x), rtol=0, atol=0)


def test_sizes_that_are_rounded():
    def parts(x):
        n = x.shape[0]
        return torch.zeros(math.ceil(n / 4)) + 1, x[:math.floor(n / 2)] * 2, torch.arange(round(n * 0.5)) + n, torch.ones(abs(n - 20)) * 2
    compiled = torch.compile(parts, backend=ours.backend, dynamic=True, options={"fallback": "error"})
    for n in (6, 5, 9):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), parts(x), rtol=0, atol=0)


def test_groups_that_a_size_decides_stay_with_torch():
    ops = pytest.importorskip("torchvision").ops
    x, offsets = torch.randn(2, 3, 9, 9), torch.randn(2, 18, 7, 7)

    def deform(x, offsets):
        return ops.deform_conv2d(x * 2, offsets, torch.ones(4, 3, 3, 3)) + 1
    with ours.watch() as report, pytest.warns(UserWarning, match="groups of its weights"):
        got = torch.compile(deform, backend=ours.backend, dynamic=True)(x, offsets)
    torch.testing.assert_close(got, deform(x, offsets), rtol=1e-4, atol=1e-4)
    assert [name for name, _, _ in report.refused] == ["torchvision.deform_conv2d.default"]


def test_many_sizes_of_one_tensor():
    def f(x):
        return (x.softmax(-1).cumsum(1) * 2).flatten(1, 3).sum(-1)
    compiled = torch.compile(f, backend=ours.backend, dynamic=True, options={"fallback": "error"})
    for shape in ((2, 3, 4, 5, 6, 7), (3, 2, 5, 4, 7, 6)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), f(x), rtol=1e-4, atol=1e-4)
