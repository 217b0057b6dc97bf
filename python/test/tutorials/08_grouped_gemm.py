"""Products of matrices of several sizes in one launch: their addresses and sizes lie in tensors."""
import torch

import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.autotune(configs=[triton.Config({"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "NUM_SM": n}) for n in (3, 8)], key=["group_size"])
@triton.jit
def grouped_matmul_kernel(group_a_ptrs, group_b_ptrs, group_c_ptrs, group_gemm_sizes, g_lds, group_size, NUM_SM: tl.constexpr,
                          BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr):
    tile_idx = tl.program_id(0)
    last_problem_end = 0
    for g in range(group_size):
        gm = tl.load(group_gemm_sizes + g * 3)
        gn = tl.load(group_gemm_sizes + g * 3 + 1)
        gk = tl.load(group_gemm_sizes + g * 3 + 2)
        num_n_tiles = tl.cdiv(gn, BLOCK_SIZE_N)
        num_tiles = tl.cdiv(gm, BLOCK_SIZE_M) * num_n_tiles
        while tile_idx >= last_problem_end and tile_idx < last_problem_end + num_tiles:
            lda = tl.load(g_lds + g * 3)
            ldb = tl.load(g_lds + g * 3 + 1)
            ldc = tl.load(g_lds + g * 3 + 2)
            a_ptr = tl.load(group_a_ptrs + g).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(group_b_ptrs + g).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(group_c_ptrs + g).to(tl.pointer_type(tl.float16))
            tile_m_idx = (tile_idx - last_problem_end) // num_n_tiles
            tile_n_idx = (tile_idx - last_problem_end) % num_n_tiles
            offs_am = tile_m_idx * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
            offs_bn = tile_n_idx * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
            offs_k = tl.arange(0, BLOCK_SIZE_K)
            a_ptrs = a_ptr + offs_am[:, None] * lda + offs_k[None, :]
            b_ptrs = b_ptr + offs_k[:, None] * ldb + offs_bn[None, :]
            accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
            for kk in range(0, tl.cdiv(gk, BLOCK_SIZE_K)):
                tl.multiple_of(a_ptrs, [16, 16])
                tl.multiple_of(b_ptrs, [16, 16])
                accumulator += tl.dot(tl.load(a_ptrs), tl.load(b_ptrs))
                a_ptrs += BLOCK_SIZE_K
                b_ptrs += BLOCK_SIZE_K * ldb
            tl.store(c_ptr + ldc * offs_am[:, None] + offs_bn[None, :], accumulator.to(tl.float16))
            tile_idx += NUM_SM
        last_problem_end = last_problem_end + num_tiles


torch.manual_seed(0)
left = [torch.rand(m, k, device=DEVICE, dtype=torch.float16) - 0.5 for m, k in ((128, 64), (64, 96), (32, 32))]
right = [torch.rand(k, n, device=DEVICE, dtype=torch.float16) - 0.5 for k, n in ((64, 96), (96, 64), (32, 160))]
out = [torch.empty(a.shape[0], b.shape[1], device=DEVICE, dtype=torch.float16) for a, b in zip(left, right)]
addresses = [torch.tensor([t.data_ptr() for t in group], device=DEVICE) for group in (left, right, out)]
sizes = torch.tensor([[a.shape[0], b.shape[1], a.shape[1]] for a, b in zip(left, right)], dtype=torch.int32, device=DEVICE)
strides = torch.tensor([[a.stride(0), b.stride(0), c.stride(0)] for a, b, c in zip(left, right, out)], dtype=torch.int32, device=DEVICE)
grouped_matmul_kernel[lambda META: (META["NUM_SM"], )](*addresses, sizes, strides, len(left))
for a, b, c in zip(left, right, out):
    torch.testing.assert_close(c.float(), a.float() @ b.float(), atol=1e-2, rtol=0)
