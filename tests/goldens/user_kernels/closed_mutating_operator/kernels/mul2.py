import triton
import triton.language as tl


@triton.jit
def mul2_inplace_kernel(ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    tl.store(ptr + offsets, 2 * tl.load(ptr + offsets, mask=mask), mask=mask)
