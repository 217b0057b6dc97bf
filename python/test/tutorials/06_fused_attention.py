"""Attention in one kernel: descriptors made on the host where the device takes them, else in the kernel; configs pruned; gradients."""
import torch

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def _maybe_make_tensor_descriptor(desc_or_ptr, shape, strides, block_shape):
    if isinstance(desc_or_ptr, tl.tensor_descriptor):
        return desc_or_ptr
    else:
        return tl.make_tensor_descriptor(desc_or_ptr, shape, strides, block_shape)


@triton.jit
def _inner(acc, l_i, m_i, q, desc_k, desc_v, offset_y, start_m, qk_scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr,
           offs_m: tl.constexpr, offs_n: tl.constexpr, N_CTX: tl.constexpr, warp_specialize: tl.constexpr):
    if STAGE == 1:
        lo, hi = 0, start_m * BLOCK_M
    elif STAGE == 2:
        lo, hi = start_m * BLOCK_M, (start_m + 1) * BLOCK_M
        lo = tl.multiple_of(lo, BLOCK_M)
    else:
        lo, hi = 0, N_CTX
    offsetk_y = offset_y + lo
    for start_n in tl.range(lo, hi, BLOCK_N, warp_specialize=warp_specialize):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        k = desc_k.load([offsetk_y, 0]).T
        qk = tl.dot(q, k)
        if STAGE == 2:
            mask = offs_m[:, None] >= (start_n + offs_n[None, :])
            qk = qk * qk_scale + tl.where(mask, 0, -1.0e6)
            m_ij = tl.maximum(m_i, tl.max(qk, 1))
            qk -= m_ij[:, None]
        else:
            m_ij = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
            qk = qk * qk_scale - m_ij[:, None]
        p = tl.math.exp2(qk)
        alpha = tl.math.exp2(m_i - m_ij)
        l_ij = tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = desc_v.load([offsetk_y, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        l_i = l_i * alpha + l_ij
        m_i = m_ij
        offsetk_y += BLOCK_N
    return acc, l_i, m_i


def _host_descriptor_pre_hook(nargs):
    if not isinstance(nargs["desc_q"], TensorDescriptor):
        return
    nargs["desc_q"].block_shape = [nargs["BLOCK_M"], nargs["HEAD_DIM"]]
    nargs["desc_o"].block_shape = [nargs["BLOCK_M"], nargs["HEAD_DIM"]]
    nargs["desc_k"].block_shape = [nargs["BLOCK_N"], nargs["HEAD_DIM"]]
    nargs["desc_v"].block_shape = [nargs["BLOCK_N"], nargs["HEAD_DIM"]]


configs = [triton.Config({"BLOCK_M": BM, "BLOCK_N": BN}, num_stages=2, num_warps=w, pre_hook=_host_descriptor_pre_hook) for BM in [32, 64] for BN in [32, 128] for w in [4, 8]]


def keep(conf):
    return not (conf.kwargs["BLOCK_M"] == 32 and conf.num_warps == 8)


def prune_invalid_configs(configs, named_args, **kwargs):
    N_CTX, STAGE = kwargs["N_CTX"], kwargs["STAGE"]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= N_CTX and (c.kwargs["BLOCK_M"] >= c.kwargs["BLOCK_N"] or STAGE == 1) and c.kwargs["BLOCK_N"] <= kwargs["HEAD_DIM"]]


@triton.autotune(configs=list(filter(keep, configs)), key=["N_CTX", "HEAD_DIM", "warp_specialize"], prune_configs_by={"early_config_prune": prune_invalid_configs})
@triton.jit
def _attn_fwd(sm_scale, M, Z, H, desc_q, desc_k, desc_v, desc_o, N_CTX, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr,
              warp_specialize: tl.constexpr):
    tl.static_assert(BLOCK_N <= HEAD_DIM)
    start_m = tl.program_id(0)
    off_hz = tl.program_id(1)
    off_z = off_hz // H
    off_h = off_hz % H
    y_dim = Z * H * N_CTX
    desc_q = _maybe_make_tensor_descriptor(desc_q, shape=[y_dim, HEAD_DIM], strides=[HEAD_DIM, 1], block_shape=[BLOCK_M, HEAD_DIM])
    desc_v = _maybe_make_tensor_descriptor(desc_v, shape=[y_dim, HEAD_DIM], strides=[HEAD_DIM, 1], block_shape=[BLOCK_N, HEAD_DIM])
    desc_k = _maybe_make_tensor_descriptor(desc_k, shape=[y_dim, HEAD_DIM], strides=[HEAD_DIM, 1], block_shape=[BLOCK_N, HEAD_DIM])
    desc_o = _maybe_make_tensor_descriptor(desc_o, shape=[y_dim, HEAD_DIM], strides=[HEAD_DIM, 1], block_shape=[BLOCK_M, HEAD_DIM])
    offset_y = off_z * (N_CTX * H) + off_h * N_CTX
    qo_offset_y = offset_y + start_m * BLOCK_M
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    qk_scale = sm_scale
    qk_scale *= 1.44269504
    q = desc_q.load([qo_offset_y, 0])
    if STAGE & 1:
        acc, l_i, m_i = _inner(acc, l_i, m_i, q, desc_k, desc_v, offset_y, start_m, qk_scale, BLOCK_M, BLOCK_N, 4 - STAGE, offs_m, offs_n, N_CTX, warp_specialize)
    if STAGE & 2:
        acc, l_i, m_i = _inner(acc, l_i, m_i, q, desc_k, desc_v, offset_y, start_m, qk_scale, BLOCK_M, BLOCK_N, 2, offs_m, offs_n, N_CTX, warp_specialize)
    m_i += tl.math.log2(l_i)
    acc = acc / l_i[:, None]
    tl.store(M + off_hz * N_CTX + offs_m, m_i)
    desc_o.store([qo_offset_y, 0], acc.to(tl.float16))


def attention(q, k, v, causal, sm_scale, on_host):
    HEAD_DIM, (Z, H, N_CTX, _) = q.shape[-1], q.shape
    o = torch.empty_like(q)
    M = torch.empty((Z, H, N_CTX), device=q.device, dtype=torch.float32)
    descriptors = [q, k, v, o]
    if on_host:
        rows = Z * H * N_CTX
        descriptors = [TensorDescriptor(t, shape=[rows, HEAD_DIM], strides=[HEAD_DIM, 1], block_shape=[1, 1]) for t in descriptors]
    triton.set_allocator(lambda size, align, _: torch.empty(size, dtype=torch.int8, device=DEVICE))
    grid = lambda META: (triton.cdiv(N_CTX, META["BLOCK_M"]), Z * H, 1)  # noqa: E731
    _attn_fwd[grid](sm_scale, M, Z, H, *descriptors, N_CTX=N_CTX, HEAD_DIM=HEAD_DIM, STAGE=3 if causal else 1, warp_specialize=False)
    return o


torch.manual_seed(20)
q, k, v = (torch.empty((1, 2, 128, 64), dtype=torch.float16, device=DEVICE).normal_(mean=0.0, std=0.5) for _ in range(3))
for causal in (True, False):
    exact = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal, scale=0.5)
    for on_host in (False, True):
        torch.testing.assert_close(attention(q, k, v, causal, 0.5, on_host).float(), exact, atol=1e-2, rtol=0)
