"""Dropout with a mask of the caller, and with one made of a seed that is never stored."""
import torch

import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def _dropout(x_ptr, x_keep_ptr, output_ptr, n_elements, p, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    x_keep = tl.load(x_keep_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, tl.where(x_keep, x / (1 - p), 0.0), mask=mask)


@triton.jit
def _seeded_dropout(x_ptr, output_ptr, n_elements, p, seed, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    x_keep = tl.rand(seed, offsets) > p
    tl.store(output_ptr + offsets, tl.where(x_keep, x / (1 - p), 0.0), mask=mask)


x, p = torch.randn(size=(1000, ), device=DEVICE), 0.5
x_keep = (torch.rand(size=(1000, ), device=DEVICE) > p).to(torch.int32)
grid = lambda meta: (triton.cdiv(1000, meta["BLOCK_SIZE"]), )  # noqa: E731
output = torch.empty_like(x)
_dropout[grid](x, x_keep, output, 1000, p, BLOCK_SIZE=1024)
torch.testing.assert_close(output, torch.where(x_keep != 0, x / (1 - p), 0), rtol=0, atol=0)
outputs = []
for seed in (123, 123, 512):
    outputs.append(torch.empty_like(x))
    _seeded_dropout[grid](x, outputs[-1], 1000, p, seed, BLOCK_SIZE=1024)
    kept = outputs[-1] != 0
    torch.testing.assert_close(outputs[-1], torch.where(kept, x / (1 - p), 0), rtol=0, atol=0)
    assert 400 < kept.sum() < 600
assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])
