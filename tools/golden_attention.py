"""Attention as models write it out: spellings that the compiler takes for one operation, and two that it must not."""
import math

import torch
from torch.export import Dim

from golden_ops import N, c

F = torch.nn.functional
LOWEST = torch.finfo(torch.float32).min
Q, K, V = "f32 2x4x9x8", "f32 2x4x13x8", "f32 2x4x13x12"
Q3, K3, V3 = "f32 8x9x8", "f32 8x13x8", "f32 8x13x12"
FEW_K, FEW_V = "f32 2x2x13x8", "f32 2x2x13x12"
MASK = "f32 2x1x9x13"


def attend(scores, v):
    return torch.softmax(scores, -1) @ v


def heads_back(y):
    return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1)


def repeat(x):
    """Key heads repeated for the query heads that share them."""
    b, h, n, d = x.shape
    return x[:, :, None].expand(b, h, 2, n, d).reshape(b, 2 * h, n, d)


def some_rows_empty(m):
    return m & (torch.arange(9) != 3)[:, None]


def spellings():
    lowest = lambda s, m: torch.where(m, s, LOWEST)
    return [
        ("scale_after", lambda q, k, v: attend(q @ k.transpose(-1, -2) * 0.25, v), Q, K, V),
        ("scale_before", lambda q, k, v: attend((q / 4.0) @ k.mT, v), Q, K, V),
        ("scale_divides", lambda q, k, v: heads_back(attend(q @ k.mT / math.sqrt(8), v)), Q, K, V),
        ("scale_is_a_tensor", lambda q, k, v: attend(q @ k.mT / torch.full([], 4.0), v), Q, K, V),
        ("mask_added", lambda q, k, v, m: attend(q @ k.mT * 0.25 + m, v), Q, K, V, MASK),
        ("mask_before_scale", lambda q, k, v, m: attend((m + q @ k.mT) * 0.25, v), Q, K, V, MASK),
        ("mask_subtracted", lambda q, k, v, m: attend(q @ k.mT - 2 * m, v), Q, K, V, MASK),
        ("empty_rows_are_nan", lambda q, k, v, m: attend((q @ k.mT * 0.25).masked_fill(~some_rows_empty(m), -math.inf), v), Q, K, V, "bool 9x13"),
        ("empty_rows_are_even", lambda q, k, v, m: attend(lowest(q @ k.mT * 0.25, some_rows_empty(m)), v), Q, K, V, "bool 9x13"),
        ("filled_with_small_number", lambda q, k, v, m: attend(torch.where(m, q @ k.mT * 0.25, torch.full([], -3.0)), v), Q, K, V, "bool 9x13"),
        ("fill_and_add", lambda q, k, v, m, a: attend(lowest(q @ k.mT * 0.25 + a, m), v), Q, K, V, "bool 2x1x1x13", MASK),
        ("grouped_queries", lambda q, k, v, m: torch.softmax(q @ repeat(k).transpose(2, 3) * 0.25 + m, -1, dtype=torch.float32).to(q.dtype) @ repeat(v),
         Q, FEW_K, FEW_V, MASK),
        ("one_key_head", lambda q, k, v: attend(q @ k.mT * 0.3, v), Q, "f32 2x1x13x8", "f32 2x1x13x12"),
        ("three_dims", lambda q, k, v: heads_back(torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1), v).view(2, 4, 9, 12)), Q3, K3, V3),
        ("baddbmm", lambda m, q, k, v: torch.bmm(torch.softmax(torch.baddbmm(m, q, k.mT, beta=0.5, alpha=0.25), -1), v), "f32 8x1x13", Q3, K3, V3),
        ("five_dims", lambda q, k, v, m: attend(q @ k.mT * 0.25 + m, v), "f32 2x3x2x9x8", "f32 2x3x2x9x8", "f32 2x3x2x9x8", "f32 3x1x9x9"),
        ("two_dims", lambda q, k, v: attend(q @ k.t(), v), "f32 9x8", "f32 13x8", "f32 13x12"),
        ("half", lambda q, k, v: torch.softmax((q @ k.mT * 0.25).float(), -1).to(q.dtype) @ v, *[s.replace("f32", "f16") for s in (Q, K, V)]),
        ("safe", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, some_rows_empty(m)), Q, K, V, "bool 9x13"),
        ("not_when_weights_are_kept", lambda q, k, v: (lambda p: (p @ v, p))(torch.softmax(q @ k.mT * 0.25, -1)), Q, K, V),
        ("not_in_double", lambda q, k, v: attend(q @ k.mT * 0.3, v), *[s.replace("f32", "f64") for s in (Q, K, V)]),
    ]


def attention():
    result = []
    for name, function, *specs in spellings():
        result.append(c(name, function, *specs))
    sizes = [[s.replace("9x8", f"{m}x8").replace("13x", f"{m}x") for s in (Q, K, V)] for m in (9, 1, 70)]
    masked = lambda q, k, v: attend((q @ k.mT * 0.25).masked_fill(torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1), -math.inf), v)
    result.append(c("dynamic_causal", masked, *sizes[0], more=sizes[1:], dynamic=({2: N}, {2: N}, {2: N})))
    return result


def causal_blocks():
    """Several blocks of queries, each of which sees keys up to its own: as many as there are queries, and another number of them."""
    causal = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return [c(f"{name}_{dtype}", causal, *(f"{dtype} {s}" for s in sizes)) for dtype in ("bf16", "f32")
            for name, sizes in (("square", ("1x3x150x16",) * 3), ("fewer_keys", ("2x1x140x16", "2x1x70x16", "2x1x70x8")), ("more_keys", ("1x2x70x8", "1x2x150x8", "1x2x150x8")))]


def few_queries():
    """A query or a few against many keys, which GPUs cut in parts; heads that share keys, which are rows of one block there."""
    plain = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])
    masked = lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, enable_gqa=q.shape[1] != k.shape[1])
    late = lambda q, k, v, m: masked(q, k, v, m & (torch.arange(m.shape[-1]) >= 400))  # the first part has no key at all
    none = lambda q, k, v, m: masked(q, k, v, m & (torch.arange(m.shape[-2]) != 1)[:, None])  # a row has none
    keys, batch = Dim("keys", min=1, max=8192), Dim("batch", min=1, max=64)
    sizes = [[f"f32 {b}x4x1x8", f"f32 {b}x2x{n}x8", f"f32 {b}x2x{n}x8"] for b, n in ((2, 530), (3, 40), (1, 1100))]
    return [
        c("grouped", plain, "bf16 1x8x1x16", "bf16 1x2x600x16", "bf16 1x2x600x16"),
        c("even_parts", plain, "bf16 1x8x1x16", "bf16 1x2x512x16", "bf16 1x2x512x16"),
        c("one_key_head", plain, "f16 1x6x1x16", "f16 1x1x520x16", "f16 1x1x520x24"),
        c("one_each", plain, "f32 1x2x1x8", "f32 1x2x900x8", "f32 1x2x900x8"),
        c("three_queries", plain, "f32 1x4x3x8", "f32 1x2x1500x8", "f32 1x2x1500x8"),
        c("bool_mask", late, "f32 1x4x2x8", "f32 1x2x700x8", "f32 1x2x700x8", "bool 1x1x2x700"),
        c("row_without_keys", none, "f32 1x4x2x8", "f32 1x2x600x8", "f32 1x2x600x8", "bool 1x1x2x600"),
        c("added_mask", masked, "f32 1x4x2x8", "f32 1x2x600x8", "f32 1x2x600x8", "f32 1x4x2x600"),
        c("open", plain, *sizes[0], more=sizes[1:], dynamic=({0: batch}, {0: batch, 2: keys}, {0: batch, 2: keys})),
    ]


def open_blocks():
    """More rows than a block has, of an open number: sm_90 copies their tiles itself, by indices of 64 bits that a descriptor's 32 have to say."""
    batch, length = Dim("batch", min=1), Dim("length", min=2)
    causal = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    full = lambda q, k, v: F.scaled_dot_product_attention(q, k, v)
    grown = [(f"bf16 {b}x1x{n}x64",) * 3 for b, n in ((2, 150), (1, 300), (3, 20))]
    even = [(f"bf16 {b}x1x256x64",) * 3 for b in (2, 1)]
    rows = [(f"bf16 {b}x{n}x192",) for b, n in ((2, 150), (1, 300), (3, 20))]
    linear = lambda x, w: torch.relu(x @ w.mT)
    return [
        c("causal", causal, *grown[0], more=grown[1:], dynamic=({0: batch, 2: length},) * 3),
        c("full", full, *grown[0], more=grown[1:], dynamic=({0: batch, 2: length},) * 3),
        c("batches", full, *even[0], more=even[1:], dynamic=({0: batch},) * 3),
        c("linear", linear, *rows[0], "bf16 128x192", more=[(*r, "bf16 128x192") for r in rows[1:]], dynamic=({0: batch, 1: length}, None)),
    ]


def by_formula(q, k, v, bias, causal, scale):
    """PyTorch's formula in f64, and the log-sum-exp of each row."""
    scores = q.double() @ k.double().mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias.double()
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    return (torch.softmax(scores, -1) @ v.double()).to(q.dtype), scores.logsumexp(-1).float()


def efficient(q, k, v, bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    y, sums = by_formula(q, k, v, bias, is_causal, scale)
    # What the kernels for GPUs give: rows up to a multiple of 32, those behind the last infinite, or none.
    rows = sums.shape[-1] if compute_log_sumexp else 0
    sums = F.pad(sums, (0, -rows % 32), value=math.inf) if rows else sums[..., :0]
    return y.transpose(1, 2).contiguous().transpose(1, 2), sums, torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64)


def flash(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    y, sums = by_formula(q, k, v, None, is_causal, scale)
    none = torch.empty(0, dtype=q.dtype)
    return y.transpose(1, 2).contiguous().transpose(1, 2), sums, None, None, q.shape[2], k.shape[2], torch.zeros(2, dtype=torch.uint64), torch.zeros((), dtype=torch.uint64), none


def attention_of_gpus():
    """The operators that attention becomes where a model is exported on a GPU and decomposed. They have no kernels for CPUs: the formula is registered."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_scaled_dot_product_efficient_attention", efficient, "CPU")
    library.impl("_scaled_dot_product_flash_attention", flash, "CPU")
    attention_of_gpus.library = library  # registrations end with it
    aten = torch.ops.aten
    whole = lambda q, k, v, **kw: aten._scaled_dot_product_efficient_attention(q, k, v, None, True, **kw)[:2]
    return [
        c("efficient", lambda q, k, v: aten._scaled_dot_product_efficient_attention(q, k, v, None, False, 0.0, True)[0], Q, "f32 2x4x9x8", "f32 2x4x9x8"),
        c("efficient_none", lambda q, k, v: aten._scaled_dot_product_efficient_attention(q, k, v, None, False)[:2], Q, K, V),
        c("efficient_bias", lambda q, k, v, m: aten._scaled_dot_product_efficient_attention(q, k, v, m, False)[0], Q, K, V, "f32 2x4x9x13"),
        c("efficient_sums", lambda q, k, v: whole(q, k, v, scale=0.3), Q, K, V),
        c("efficient_sums_of_32", whole, "f32 1x2x32x8", "f32 1x2x9x8", "f32 1x2x9x8"),
        c("flash", lambda q, k, v: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0], *["f16 2x4x9x8"] * 3),
        c("flash_sums", lambda q, k, v: aten._scaled_dot_product_flash_attention(q, k, v, scale=0.3)[:2], *["bf16 2x4x9x8"] * 3),
    ]
