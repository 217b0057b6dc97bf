"""Operators that torch has for other machines alone, for CPUs as well: what their documentation and kernels say, in float64. torch.export needs none
of it, only whoever wants the values does."""
import torch

_library = None


def _int4_for_tensor_cores(weights, tiles):
    """[N, K / 2] bytes, the first of two numbers in the high bits, as mma.m16n8k16 wants its B: ATen's int4mm.cu, lane by lane."""
    n, k = weights.shape[0], weights.shape[1] * 2
    out = torch.zeros(n // 8, k // (tiles * 16), 32, tiles // 2, dtype=torch.int64)
    for tile in range(n // 8):
        for outer in range(k // (tiles * 16)):
            for lane in range(32):
                row = weights[tile * 8 + lane // 4].tolist()
                for inner in range(0, tiles, 2):
                    base = (outer * tiles + inner) * 8
                    v = [row[at] for at in (base + lane % 4, base + lane % 4 + 4, base + 8 + lane % 4, base + 8 + lane % 4 + 4)]
                    word = 0
                    for i in range(4):
                        word |= (v[i] >> 4) << 4 * i | (v[i] & 15) << 16 + 4 * i
                    out[tile, outer, lane, inner // 2] = word - (word >> 31 << 32)
    return out.to(torch.int32)


def _int4_of_tensor_cores(words):
    """The numbers [N, K] again."""
    tiles, outers, _, pairs = words.shape
    q = torch.zeros(tiles * 8, outers * pairs * 32, dtype=torch.int64)
    for tile in range(tiles):
        for outer in range(outers):
            for lane in range(32):
                for pair in range(pairs):
                    word = int(words[tile, outer, lane, pair])
                    for i in range(4):
                        k = ((outer * pairs + pair) * 16 + lane % 4 + 4 * i) * 2
                        q[tile * 8 + lane // 4, k] = word >> 4 * i & 15
                        q[tile * 8 + lane // 4, k + 1] = word >> 16 + 4 * i & 15
    return q


def _groups(x, k, dim=0):
    return x.double().repeat_interleave(k // x.shape[dim], dim)


def _int4_product(x, words, group, parameters):
    q, k = _int4_of_tensor_cores(words), x.shape[1]
    scale, zero = (_groups(parameters[..., i], k).t() for i in (0, 1))
    return (x.double() @ ((q - 8) * scale + zero).t()).to(x.dtype)


def _int4_product_with_zeros(x, words, group, scales, zeros):
    n, k = words.shape[0], x.shape[1]
    q = torch.stack([words.long() >> 4 * i & 15 for i in range(8)], 2).reshape(n, k)
    return (x.double() @ ((q - _groups(zeros, k).t()) * _groups(scales, k).t()).t()).to(x.dtype)


def _scaled_groups(a, b, scale_a, scale_b, offs=None, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False):
    """Rows, columns or terms that end at offs, each group by itself; a scale for each of its rows and columns."""
    a, b, scale_a, scale_b, out = a.double(), b.double(), scale_a.double(), scale_b.double(), out_dtype or torch.bfloat16
    if offs is None:
        return (a @ b * scale_a[:, :, None] * scale_b[:, None]).to(out)
    ends = [0, *offs.tolist()]
    parts = list(enumerate(zip(ends, ends[1:])))
    if a.dim() == 3:
        return torch.cat([a[g] @ b[:, i:j] * scale_a[g][:, None] * scale_b[i:j] for g, (i, j) in parts], 1).to(out)
    if b.dim() == 3:
        return torch.cat([a[i:j] @ b[g] * scale_a[i:j, None] * scale_b[g] for g, (i, j) in parts], 0).to(out)
    of_a, of_b = scale_a.reshape(len(parts), -1, 1), scale_b.reshape(len(parts), 1, -1)
    return torch.stack([a[:, i:j] @ b[i:j] * of_a[g] * of_b[g] for g, (i, j) in parts]).to(out)


def define():
    """Gives them to torch's dispatcher, once."""
    global _library
    if _library is None:
        _library = torch.library.Library("aten", "IMPL")
        for name, function in (("_convert_weight_to_int4pack", _int4_for_tensor_cores), ("_weight_int4pack_mm", _int4_product),
                               ("_weight_int4pack_mm_with_scales_and_zeros", _int4_product_with_zeros), ("_scaled_grouped_mm", _scaled_groups)):
            _library.impl(name, function, "CPU")
