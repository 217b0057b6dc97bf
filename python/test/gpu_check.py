"""The package on a machine with a GPU: gpu_check.py. Needs the installed wheels and torch with CUDA; prints one line a check, the last
one counts. The expected values are torch's own on the same GPU."""
import copy
import statistics
import sys
import time
import traceback
import warnings

import torch

import neso
import neso.torch
import neso.triton as triton
import neso.triton.language as tl

results = []


def check(function):
    try:
        with torch.no_grad():
            said = function()
        results.append(True)
        print("ok    ", function.__name__, said or "", flush=True)
    except Exception:
        results.append(False)
        print("FAILED", function.__name__, flush=True)
        traceback.print_exc()
    return function


def arch():
    return neso._compile.gpu_arch("cuda")


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(64, 128), torch.nn.Linear(128, 32)

    def forward(self, x):
        return torch.softmax(self.second(torch.nn.functional.gelu(self.first(x))), -1)


model = Mlp().eval()
package = neso.compile(model, (torch.randn(8, 64),), dynamic_shapes=({0: torch.export.Dim("rows", max=4096)},), target="cuda", arch=arch())
compiled = neso.load(package, device="cuda")
there = copy.deepcopy(model).cuda()


@check
def so_do_empty_ones():
    class Places(torch.nn.Module):
        def forward(self, x):
            return torch.nonzero(x), x[:0]

    model = neso.load(neso.compile(Places(), (torch.ones(6),), target="cuda", arch=arch()), device="cuda")
    for x in (torch.zeros(6, device="cuda"), torch.ones(6, device="cuda")):
        for got, wanted in zip(model(x), Places()(x)):
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)


@check
def results_stay_on_the_gpu():
    for n in (2, 8, 1000):
        x = torch.randn(n, 64, device="cuda")
        y = compiled(x)
        assert y.device == x.device
        torch.testing.assert_close(y, there(x), rtol=1e-3, atol=1e-4)


@check
def strided_arguments_are_used_where_they_lie():
    x = torch.randn(64, 100, device="cuda").t()
    torch.testing.assert_close(compiled(x), there(x), rtol=1e-3, atol=1e-4)


@check
def arguments_of_the_host():
    x = torch.randn(8, 64)
    y = compiled(x)
    assert y.device.type == "cpu"
    torch.testing.assert_close(y, there(x.cuda()).cpu(), rtol=1e-3, atol=1e-4)


@check
def results_into_the_callers_memory():
    x, out = torch.randn(8, 64, device="cuda"), torch.zeros(8, 32, device="cuda")
    assert compiled(x, out=out) is out
    torch.testing.assert_close(out, there(x), rtol=1e-3, atol=1e-4)


@check
def work_follows_the_callers_stream():
    streams = [torch.cuda.Stream() for _ in range(3)]
    for i in range(30):
        stream = streams[i % 3]
        with torch.cuda.stream(stream):
            # Work that takes long before the argument is there: a call on another stream would read too early.
            x = torch.zeros(512, 64, device="cuda")
            torch.cuda._sleep(2_000_000)
            x += i
            y = compiled(x) * 1
            want = there(x)
        stream.synchronize()
        torch.testing.assert_close(y, want, rtol=1e-3, atol=1e-4)


@check
def nobody_waits():
    x = torch.randn(8, 64, device="cuda")
    compiled(x)
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    begun = time.perf_counter()
    compiled(x)
    took = time.perf_counter() - begun
    assert took < 0.02, f"the call waited {took * 1e3:.1f} ms for the stream"
    compiled.synchronize()
    return f"{took * 1e6:.0f} µs a call while the GPU is busy"


@check
def memory_is_torchs():
    before = torch.cuda.memory_allocated()
    y = compiled(torch.randn(4096, 64, device="cuda"))
    assert torch.cuda.memory_allocated() >= before + y.numel() * 4
    del y
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


@check
def the_cost_of_a_call():
    x = torch.randn(8, 64, device="cuda")
    def median(f):
        times = []
        for _ in range(200):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            f(x)
            times.append(time.perf_counter() - begun)
        return statistics.median(times) * 1e6
    return f"{median(compiled):.1f} µs on the host, eager {median(there):.1f} µs"


@check
def torch_compile():
    # Of whole layers torch has operators of its own, which no other compiler takes apart.
    torch.backends.mha.set_fastpath_enabled(False)
    for net, x in ((there, torch.randn(8, 64, device="cuda")),
                   (torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)).cuda().eval(),
                    torch.randn(2, 3, 32, 32, device="cuda")),
                   (torch.nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True).cuda().eval(), torch.randn(2, 17, 64, device="cuda"))):
        torch._dynamo.reset()
        with neso.torch.watch() as report, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.testing.assert_close(torch.compile(net, backend="neso")(x), net(x), rtol=1e-2, atol=1e-3)
        assert report.share == 1, str(report)
        print("       ", str(report).replace("\n", "; "))


@check
def training():
    mine, theirs = copy.deepcopy(model).cuda(), copy.deepcopy(model).cuda()
    fast = torch.compile(mine, backend="neso")
    with torch.enable_grad():
        for _ in range(3):
            x = torch.randn(16, 64, device="cuda")
            fast(x).square().sum().backward()
            theirs(x).square().sum().backward()
    for a, b in zip(mine.parameters(), theirs.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-2, atol=1e-3)


@check
def calls_that_cost_less():
    def median(f, x):
        times = []
        for _ in range(200):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            f(x)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begun)
        return statistics.median(times) * 1e6
    x, said = torch.randn(8, 64, device="cuda"), []
    for options in ({}, {"mode": "reduce-overhead"}, {"freeze": True}, {"mode": "reduce-overhead", "freeze": True}):
        torch._dynamo.reset()
        fast, held = torch.compile(there, backend="neso", options=options), []
        for i in range(8):
            # Arguments that move, and results that are held.
            held.append((y := torch.randn(8, 64, device="cuda"), fast(y)))
        for y, got in held:
            torch.testing.assert_close(got, there(y), rtol=1e-3, atol=1e-4)
        del held
        said.append(f"{options or 'plain'} {median(fast, x):.1f} µs")
    return ", ".join(said)


@check
def profiles():
    x = torch.randn(8, 64, device="cuda")
    with neso.profile() as p:
        for _ in range(10):
            compiled(x)
    assert len(p.runs) == 10 and any(s.kernel for s in p.runs[0].steps)
    return f"{p.seconds * 1e5:.1f} µs a run"


@check
def work_goes_to_the_stream_that_the_caller_names():
    x = torch.randn(64, 64, device="cuda")
    want, own = there(x), torch.cuda.Stream()
    torch.cuda.synchronize()
    for stream in (own, own.cuda_stream, 0):
        torch.testing.assert_close(compiled(x, stream=stream), want)
    # Behind what the stream does: the tensor is filled there, late.
    late = torch.zeros_like(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(own):
        torch.cuda._sleep(200_000_000)
        late.copy_(x)
    result = compiled(late, stream=own)
    assert not own.query(), "the call waited"
    own.synchronize()
    torch.testing.assert_close(result, want)
    # Of the host: the call waits. The caller's stream may go afterwards.
    torch.testing.assert_close(compiled(x.cpu(), stream=own).cuda(), want)
    del own
    torch.testing.assert_close(compiled(x.cpu()).cuda(), want)
    every = torch.cuda.Stream()
    torch.testing.assert_close(neso.load(package, device="cuda", stream=every)(x), want)


@check
def static_models_are_one_launch_of_a_graph():
    ours = neso.load(package, device="cuda", graph="static")
    places = set()
    for i in range(12):
        x = torch.randn(16, 64, device="cuda")
        result = ours(x)
        torch.testing.assert_close(result, there(x))
        places.add(result.data_ptr())
        del result
    assert len(places) == 1
    x, y = ours.to_device([torch.randn(16, 64), torch.randn(16, 64)])
    first, second = ours(x), ours(y)
    torch.testing.assert_close(first, there(x))
    torch.testing.assert_close(second, there(y))

    def microseconds(run):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            run(x)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 5e3
    return ", ".join(f"{name} {statistics.median(microseconds(run) for _ in range(9)):.1f} µs" for name, run in (("static", ours), ("without", compiled)))


@triton.jit
def scaled(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@check
def kernels_without_triton():
    x = torch.randn(100_000, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        out = torch.zeros_like(x)
        scaled[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), 0.5, BLOCK=1024)
        torch.testing.assert_close(out, x * 0.5)
    scaled[(98,)](x[1:], out[1:], x.numel() - 1, 2.0, BLOCK=1024)
    torch.testing.assert_close(out[1:], x[1:] * 2)


print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(not all(results))
