"""A product of matrices of 8 bits with a scale for each 32 of them; scales lie in blocks as the device's instructions want them."""
import torch

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def block_scaled_matmul_kernel(a_desc, a_scale, b_desc, b_scale, c_desc, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, stride_sk: tl.constexpr, stride_sb: tl.constexpr,
                               output_type: tl.constexpr, VEC_SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, NUM_STAGES: tl.constexpr):
    if output_type == 0:
        output_dtype = tl.float32
    elif output_type == 1:
        output_dtype = tl.float16
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    pid_m = pid % num_pid_m
    pid_n = pid // num_pid_m
    offs_sm = (pid_m * (BLOCK_M // 128) + tl.arange(0, BLOCK_M // 128)) % M
    offs_sn = (pid_n * (BLOCK_N // 128) + tl.arange(0, BLOCK_N // 128)) % N
    offs_inner = tl.arange(0, (BLOCK_K // VEC_SIZE // 4) * 32 * 4 * 4)
    a_scale_ptr = a_scale + offs_sm[:, None] * stride_sk + offs_inner[None, :]
    b_scale_ptr = b_scale + offs_sn[:, None] * stride_sk + offs_inner[None, :]
    offs_k = 0
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(0, tl.cdiv(K, BLOCK_K), num_stages=NUM_STAGES):
        a = a_desc.load([pid_m * BLOCK_M, offs_k])
        b = b_desc.load([pid_n * BLOCK_N, offs_k])
        scale_a = tl.load(a_scale_ptr).reshape(BLOCK_M // 128, BLOCK_K // VEC_SIZE // 4, 32, 4, 4)
        scale_b = tl.load(b_scale_ptr).reshape(BLOCK_N // 128, BLOCK_K // VEC_SIZE // 4, 32, 4, 4)
        scale_a = scale_a.trans(0, 3, 2, 1, 4).reshape(BLOCK_M, BLOCK_K // VEC_SIZE)
        scale_b = scale_b.trans(0, 3, 2, 1, 4).reshape(BLOCK_N, BLOCK_K // VEC_SIZE)
        accumulator = tl.dot_scaled(a, scale_a, "e4m3", b.T, scale_b, "e4m3", accumulator)
        offs_k += BLOCK_K
        a_scale_ptr += (BLOCK_K // VEC_SIZE // 4) * stride_sb
        b_scale_ptr += (BLOCK_K // VEC_SIZE // 4) * stride_sb
    c_desc.store([pid_m * BLOCK_M, pid_n * BLOCK_N], accumulator.to(output_dtype))


def unpacked(scale):
    rows, columns = scale.shape[0] * 128, scale.shape[1] * 4
    return torch.exp2(scale.permute(0, 3, 2, 1, 4).reshape(rows, columns).float() - 127).repeat_interleave(32, dim=1)


torch.manual_seed(42)
M, N, K, VEC_SIZE, BLOCK = 128, 256, 256, 32, (128, 128, 128)
a, b = (torch.randn(rows, K, device=DEVICE).to(torch.float8_e4m3fn) for rows in (M, N))
a_scale, b_scale = (torch.randint(122, 131, (rows // 128, K // VEC_SIZE // 4, 32, 4, 4), dtype=torch.uint8, device=DEVICE) for rows in (M, N))
out = torch.empty((M, N), dtype=torch.float32, device=DEVICE)
block_scaled_matmul_kernel[(triton.cdiv(M, BLOCK[0]) * triton.cdiv(N, BLOCK[1]), 1)](
    TensorDescriptor.from_tensor(a, [BLOCK[0], BLOCK[2]]), a_scale, TensorDescriptor.from_tensor(b, [BLOCK[1], BLOCK[2]]), b_scale,
    TensorDescriptor.from_tensor(out, [BLOCK[0], BLOCK[1]]), M, N, K, a_scale.stride(0), a_scale.stride(1), 0, VEC_SIZE, *BLOCK, 4)
torch.testing.assert_close(out, (a.float() * unpacked(a_scale)) @ (b.float() * unpacked(b_scale)).T, atol=1e-3, rtol=1e-3)
