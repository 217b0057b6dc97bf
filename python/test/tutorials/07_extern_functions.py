"""A function of the device's library of mathematics."""
import torch

import triton
import triton.language as tl
from triton.language.extra import libdevice

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def asin_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    x = libdevice.asin(x)
    tl.store(y_ptr + offsets, x, mask=mask)


torch.manual_seed(0)
x = torch.rand(9843, device=DEVICE)
y = torch.zeros(9843, device=DEVICE)
asin_kernel[lambda meta: (triton.cdiv(9843, meta["BLOCK_SIZE"]), )](x, y, 9843, BLOCK_SIZE=1024)
torch.testing.assert_close(y, torch.asin(x), rtol=1e-6, atol=1e-6)
# Paths of libraries are for other devices.
asin_kernel[lambda meta: (triton.cdiv(9843, meta["BLOCK_SIZE"]), )](x, y, 9843, BLOCK_SIZE=1024, extern_libs={"libdevice": "/nowhere/libdevice.10.bc"})
torch.testing.assert_close(y, torch.asin(x), rtol=1e-6, atol=1e-6)
