"""Triton's kernels on CPU tensors through Neso, beside torch."""
import pytest
import torch
import triton
import triton.language as tl

import neso.triton


@pytest.fixture(autouse=True, scope="module")
def device(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
    neso.triton.activate()
    yield
    patch.undo()


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("n", [1, 1000, 4096])
def test_vector_add(n):
    x, y = torch.randn(n), torch.randn(n)
    out = torch.full((n + 8,), 7.0)
    add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=256)
    torch.testing.assert_close(out[:n], x + y, rtol=0, atol=0)
    assert (out[n:] == 7).all()


def test_memory_that_is_not_aligned():
    x, y, out = torch.randn(101), torch.randn(101), torch.zeros(101)
    add[(1,)](x[1:], y[1:], out[1:], 100, BLOCK=128)
    torch.testing.assert_close(out[1:], x[1:] + y[1:], rtol=0, atol=0)


@triton.jit
def softmax(out, x, stride, columns, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, mask=i < columns, other=-float("inf")) * scale
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * stride + i, e / tl.sum(e, 0), mask=i < columns)


def test_softmax_with_a_float_argument():
    x = torch.randn(33, 781)
    out = torch.empty_like(x)
    softmax[(33,)](out, x, x.stride(0), 781, 0.5, BLOCK=1024)
    torch.testing.assert_close(out, torch.softmax(x * 0.5, 1), rtol=1e-5, atol=1e-7)


@triton.autotune(configs=[triton.Config({"M": 16, "N": 16, "K": 16}), triton.Config({"M": 32, "N": 32, "K": 16}, num_warps=8)], key=["m", "n", "k"])
@triton.jit
def matmul(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for at in range(0, k, K):
        p = at + tl.arange(0, K)
        left = tl.load(a + i[:, None] * k + p[None, :], mask=(i[:, None] < m) & (p[None, :] < k), other=0.0)
        right = tl.load(b + p[:, None] * n + j[None, :], mask=(p[:, None] < k) & (j[None, :] < n), other=0.0)
        total += tl.dot(left, right)
    tl.store(c + i[:, None] * n + j[None, :], total.to(c.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n))


def test_autotuned_matmul():
    a, b = torch.randn(70, 50).half(), torch.randn(50, 90).half()
    c = torch.empty(70, 90, dtype=torch.float16)
    matmul[lambda meta: (triton.cdiv(70, meta["M"]), triton.cdiv(90, meta["N"]))](a, b, c, 70, 90, 50)
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=2e-3, atol=2e-2)
    assert matmul.best_config.kwargs["M"] in (16, 32)


@triton.jit
def both_of_the_host(source, out, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.program_id(0) * M, tl.program_id(1) * N
    out.store([i, j], source.load([i, j]) + 1)


def test_descriptors_made_on_the_host():
    from triton.tools.tensor_descriptor import TensorDescriptor
    x, out = torch.randn(20, 32)[:, :30], torch.zeros(20, 32)
    both_of_the_host[(2, 2)](TensorDescriptor(x, [20, 30], [32, 1], [16, 16]), TensorDescriptor(out, [20, 30], [32, 1], [16, 16]), M=16, N=16)
    torch.testing.assert_close(out[:, :30], x + 1, rtol=0, atol=0)
    assert (out[:, 30:] == 0).all()


@triton.jit
def made_in_the_kernel(source, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.program_id(0) * M, tl.program_id(1) * N
    a = tl.make_tensor_descriptor(source, shape=[rows, columns], strides=[columns, 1], block_shape=[M, N])
    b = tl.make_tensor_descriptor(out, shape=[rows, columns], strides=[columns, 1], block_shape=[M, N])
    b.store([i, j], a.load([i, j]) * 2)


def test_descriptors_made_in_the_kernel():
    x, out = torch.randn(20, 32), torch.zeros(20, 32)
    made_in_the_kernel[(2, 2)](x, out, 20, 32, M=16, N=16)
    torch.testing.assert_close(out, x * 2, rtol=0, atol=0)


def test_options_of_other_backends_are_ignored():
    x = torch.randn(64)
    out = torch.empty(64)
    add[(1,)](x, x, out, 64, BLOCK=64, waves_per_eu=2, matrix_instr_nonkdim=16, num_warps=2)
    torch.testing.assert_close(out, 2 * x, rtol=0, atol=0)


def test_a_package_is_loaded_once(monkeypatch):
    loaded = []
    utilities = triton.runtime.driver.active.utils
    original = utilities.load_binary
    monkeypatch.setattr(utilities, "load_binary", lambda *a: loaded.append(a) or original(*a))
    x, out = torch.randn(32), torch.empty(32)
    for _ in range(3):
        add[(1,)](x, x, out, 32, BLOCK=32)
    torch.testing.assert_close(out, 2 * x, rtol=0, atol=0)
    assert len(loaded) == 1


GLOBAL = tl.constexpr(3)


@triton.jit
def shifted(x, out, n, by, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * GLOBAL + by, mask=i < n)


def test_launches_after_the_first_take_no_way_through_python(monkeypatch):
    from neso.triton import _hits
    x, out = torch.randn(32, requires_grad=True), torch.empty(32)
    grid = lambda meta: (triton.cdiv(32, meta["BLOCK"]),)  # noqa: E731
    kernel = shifted[grid](x, out, 32, 0.5, BLOCK=32)
    with monkeypatch.context() as patch:
        patch.setattr(_hits, "_run", lambda *a, **k: pytest.fail("Triton's way"))
        for by, n in ((1.5, 32), (-2.0, 16)):
            out[:] = 7
            assert shifted[grid](x, out, n, by, BLOCK=32) is kernel
            expected = torch.where(torch.arange(32) < n, x * 3 + by, 7)
            torch.testing.assert_close(out, expected.detach(), rtol=1e-6, atol=1e-6)
        assert shifted.run(x, out, 32, by, BLOCK=32, grid=(0,), warmup=False) is kernel
    # Other arguments, and hooks, are Triton's.
    assert shifted[grid](x, out, 31, 0.5, BLOCK=32) is not kernel
    torch.testing.assert_close(out[:31], (x * 3 + 0.5).detach()[:31], rtol=1e-6, atol=1e-6)
    seen = []
    hook = lambda metadata: seen.append(metadata.get()["name"])  # noqa: E731
    triton.knobs.runtime.launch_enter_hook.add(hook)
    shifted[grid](x, out, 32, 0.5, BLOCK=32)
    triton.knobs.runtime.launch_enter_hook.remove(hook)
    assert seen == ["shifted"]
    monkeypatch.setitem(globals(), "GLOBAL", tl.constexpr(4))
    with pytest.raises(RuntimeError, match="GLOBAL has changed"):
        shifted[grid](x, out, 32, 0.5, BLOCK=32)


def test_another_device_launches_as_ever():
    calls = []

    class Other(type(triton.runtime.driver.active)):
        def get_current_stream(self, device=None):
            calls.append(device)
            return 0
    x, out = torch.randn(32), torch.empty(32)
    add[(1,)](x, x, out, 32, BLOCK=32)
    before = triton.runtime.driver.active
    triton.runtime.driver.set_active(Other())
    try:
        for _ in range(2):
            add[(1,)](x, x, out, 32, BLOCK=32)
    finally:
        triton.runtime.driver.set_active(before)
    assert len(calls) == 2


@triton.jit
def meet(arrived, out):
    p, n = tl.program_id(0), tl.num_programs(0)
    tl.store(out + p, 7 - p)
    tl.atomic_add(arrived, 1, sem="acq_rel")
    while tl.atomic_add(arrived, 0, sem="acquire") < n:
        pass
    tl.store(out + n + p, tl.load(out + (p + 1) % n, volatile=True))


def test_programs_that_wait_for_each_other():
    for n in (1, 19, 19, 40):
        arrived, out = torch.zeros(1, dtype=torch.int32), torch.full((2 * n,), -1, dtype=torch.int32)
        meet[(n,)](arrived, out, launch_cooperative_grid=True)
        assert (out[n:] == out[:n].roll(-1)).all() and arrived == n
