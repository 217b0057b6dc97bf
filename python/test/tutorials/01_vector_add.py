"""Adds two vectors, and measures it as a table."""
import torch

import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    tl.store(output_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


def add(x, y):
    output = torch.empty_like(x)
    assert x.device == DEVICE and output.device == DEVICE
    add_kernel[lambda meta: (triton.cdiv(output.numel(), meta["BLOCK_SIZE"]), )](x, y, output, output.numel(), BLOCK_SIZE=1024)
    return output


x, y = torch.rand(98432, device=DEVICE), torch.rand(98432, device=DEVICE)
assert torch.max(torch.abs(x + y - add(x, y))) == 0


@triton.testing.perf_report(
    triton.testing.Benchmark(x_names=["size"], x_vals=[2**i for i in range(12, 14)], x_log=True, line_arg="provider", line_vals=["triton", "torch"],
                             line_names=["Triton", "Torch"], styles=[("blue", "-"), ("green", "-")], ylabel="GB/s", plot_name="vector-add-performance", args={}))
def benchmark(size, provider):
    x, y = torch.rand(size, device=DEVICE, dtype=torch.float32), torch.rand(size, device=DEVICE, dtype=torch.float32)
    run = (lambda: x + y) if provider == "torch" else lambda: add(x, y)
    ms, min_ms, max_ms = triton.testing.do_bench(run, quantiles=[0.5, 0.2, 0.8], warmup=1, rep=2)
    return [3 * x.numel() * x.element_size() * 1e-9 / (t * 1e-3) for t in (ms, max_ms, min_ms)]


assert all(speed > 0 for speed in benchmark.fn(size=4096, provider="triton"))
