"""Quantised numbers: q stands for (q - zero point) * scale. Operators of PT2E and torchao exports, and products of narrow operands."""
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401: registers the operators

from golden_ops import c

Q = torch.ops.quantized_decomposed


def there_and_back(scale, zero, low, high, dtype):
    def run(x):
        q = Q.quantize_per_tensor(x, scale, zero, low, high, dtype)
        return q, Q.dequantize_per_tensor(q, scale, zero, low, high, dtype)
    return run


def dynamic_scale(x):
    scale, zero = Q.choose_qparams.tensor(x, -128, 127, 1.1920928955078125e-07, torch.int8)
    q = Q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
    return scale, zero, q, Q.dequantize_per_tensor.tensor(q, scale, zero, -128, 127, torch.int8)


def symmetric_scale(x):
    scale, zero = Q.choose_qparams_symmetric.tensor(x, -127, 127, 1e-5, torch.int8)
    return scale, zero, Q.choose_qparams_symmetric.tensor(x, 0, 255, 1e-5, torch.uint8)[1]


def channels(axis):
    def run(x, scales, zeros):
        q = Q.quantize_per_channel(x, scales, zeros, axis, -128, 127, torch.int8)
        return q, Q.dequantize_per_channel(q, scales, zeros, axis, -128, 127, torch.int8), Q.dequantize_per_channel(q, scales, None, axis, -128, 127, torch.int8)
    return run


def tokens(x):
    scales, zeros = Q.choose_qparams_per_token_asymmetric(x, torch.int8)
    q = Q.quantize_per_token(x, scales, zeros, -128, 127, torch.int8)
    return scales, zeros, q, Q.dequantize_per_token(q, scales, zeros, -128, 127, torch.int8, torch.float32)


def groups_of(size):
    def run(x, scales, zeros):
        q = Q.quantize_per_channel_group(x, scales, zeros, -8, 7, torch.int8, size)
        return q, Q.dequantize_per_channel_group(q, scales, zeros, -8, 7, torch.int8, size, torch.float32)
    return run


def static_linear(x, w, scales):
    """What PT2E writes of a linear layer: all of it in integers but the product."""
    a = Q.dequantize_per_tensor(Q.quantize_per_tensor(x, 0.02, -3, -128, 127, torch.int8), 0.02, -3, -128, 127, torch.int8)
    y = torch.nn.functional.linear(a, Q.dequantize_per_channel(w, scales, None, 0, -127, 127, torch.int8)).relu()
    return Q.quantize_per_tensor(y, 0.05, -128, -128, 127, torch.int8)


def dynamic_linear(x, w, scales):
    """Scales of the rows from the data, weights in groups."""
    s, z = Q.choose_qparams_per_token_asymmetric(x, torch.int8)
    a = Q.dequantize_per_token(Q.quantize_per_token(x, s, z, -128, 127, torch.int8), s, z, -128, 127, torch.int8, torch.float32)
    return a @ Q.dequantize_per_channel_group(w, scales, None, -8, 7, torch.int8, 8, torch.float32).t()


def half_weights(x, w, bias):
    w = torch.cat([w, torch.tensor([[1e6, -7e4, float("inf"), float("-inf"), 65519.0, 1e-8] + [0.0] * (w.shape[1] - 6)])])
    return torch.ops.quantized.linear_dynamic_fp16_unpacked_weight(x, w, torch.nn.functional.pad(bias, (0, 1)))


def whole_linear(x, w, bias):
    """Scales and zero points are tensors, as torch's tests have it; no result lies between two integers."""
    n = torch.tensor
    return torch.ops._quantized.wrapped_quantized_linear(x, n(0.0243), n(120), w, n(0.0171), n(3), bias, n(0.05), n(128), w.shape[0])


def narrow_floats(a, b, x, y, bias):
    mm = lambda s, t, **k: torch._scaled_mm(a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t(), s, t, **k)
    return mm(x[:1], y[:, :1], out_dtype=torch.float32), mm(x[:1], y[:, :1], bias=bias, out_dtype=torch.bfloat16), mm(x, y, out_dtype=torch.bfloat16)


def scaled_as_said(a, b, x, y, bias):
    """Scales of a tensor, and of rows and columns; here the call says which they are."""
    S = torch.nn.functional.ScalingType
    mm = lambda s, how, t, **k: torch.nn.functional.scaled_mm(a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t(), s, how, t, how, **k)
    return mm(x[:1], S.TensorWise, y[:, :1], output_dtype=torch.float32), mm(x, S.RowWise, y, bias=bias, output_dtype=torch.bfloat16, contraction_dim=(1, 0))


def in_tiles(scales):
    """Scales [rows, columns] as tensor cores read them: tiles of 128 x 4, in which rows that are 32 apart are neighbours."""
    rows, columns = scales.shape
    padded = torch.nn.functional.pad(scales, (0, -columns % 4, 0, -rows % 128))
    return padded.view(-1, 4, 32, padded.shape[1] // 4, 4).permute(0, 3, 2, 1, 4).flatten().to(torch.float8_e8m0fnu)


def scaled_by_blocks(block, scaling_a, scaling_b, swizzle=None):
    """No CPU of torch's computes these, so what they give is written out: operands times their scales, multiplied."""
    S = torch.nn.functional.ScalingType
    power = lambda scales: (scales * 4 - 4).round().exp2()

    def run(a, b, p, q):
        a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
        if torch.compiler.is_exporting():
            if swizzle is not None:
                return torch.nn.functional.scaled_mm(a, b.t(), in_tiles(power(p)), getattr(S, scaling_a), in_tiles(power(q)), getattr(S, scaling_b), swizzle, swizzle, output_dtype=torch.float32)
            # The right one's blocks of k come first, padded to a multiple of four.
            q = q if scaling_b == "BlockWise1x128" else torch.nn.functional.pad(q, (0, -q.shape[1] % 4)).t()
            return torch.nn.functional.scaled_mm(a, b.t(), p, getattr(S, scaling_a), q, getattr(S, scaling_b), output_dtype=torch.float32)
        if swizzle is not None:
            p, q = power(p), power(q)
        spread = lambda s, x: s.repeat_interleave(x.shape[0] // s.shape[0], 0).repeat_interleave(block, 1)[:, :x.shape[1]]
        return (a.float() * spread(p, a)) @ (b.float() * spread(q, b)).t()
    return run


def quantised():
    from torch._C import _SwizzleType
    tiles = _SwizzleType.SWIZZLE_32_4_4
    step = ("f32 5 >0", "i64 5 <4")
    weights = ("i8 6x16", "f32 6 >0")
    rows = {0: torch.export.Dim("rows", min=1, max=64)}
    return [
        c("tensor_i8", there_and_back(0.03, 5, -128, 127, torch.int8), "f32 4x33"), c("tensor_u8", there_and_back(0.05, 128, 0, 255, torch.uint8), "f32 4x33"),
        c("tensor_i16", there_and_back(0.001, 0, -32768, 32767, torch.int16), "f32 41"), c("tensor_bf16", there_and_back(0.03, -7, -128, 127, torch.int8), "bf16 41"),
        c("tensor_clamped", there_and_back(0.5, 1, -8, 7, torch.int8), "f32 200"),
        c("dynamic_scale", dynamic_scale, "f32 7x9"), c("dynamic_scale_positive", dynamic_scale, "f32 7x9 >0"), c("symmetric_scale", symmetric_scale, "f32 7x9"),
        c("channels", channels(0), "f32 5x9", *step), c("channels_last", channels(-1), "f32 3x2x5", *step), c("channels_middle", channels(1), "f32 3x5x2", *step),
        c("tokens", tokens, "f32 2x3x9"), c("groups", groups_of(4), "f32 3x8", "f32 3x2 >0", "i32 3x2 <3"),
        c("static_linear", static_linear, "f32 4x16", *weights), c("static_linear_dynamic", static_linear, "f32 4x16", *weights, dynamic=(rows, None, None), more=[("f32 31x16", *weights)]),
        c("dynamic_linear", dynamic_linear, "f32 4x16", "i8 6x16", "f32 6x2 >0"),
        c("int8_weights", torch.ops.aten._weight_int8pack_mm, "f32 4x32", "i8 32x32", "f32 32 >0"), c("int8_weights_bf16", torch.ops.aten._weight_int8pack_mm, "bf16 4x32", "i8 32x32", "bf16 32 >0"),
        c("half_weights", half_weights, "f32 4x16", "f32 6x16", "f32 6"), c("half_weights_unbiased", lambda x, w: torch.ops.quantized.linear_dynamic_fp16_unpacked_weight(x, w, None), "f32 2x16", "f32 6x16"),
        c("whole_linear", whole_linear, "f32 4x16", "f32 6x16", "f32 6"),
        c("narrow_floats", narrow_floats, "f32 16x32", "f32 32x32", "f32 16x1 >0", "f32 1x32 >0", "bf16 32"),
        c("narrow_floats_parts", narrow_floats, "f32 80x160", "f32 48x160", "f32 80x1 >0", "f32 1x48 >0", "bf16 48"),
        c("whole_products", lambda a, b: (torch._int_mm(a, b), torch._int_mm(a, b.reshape(48, 64).t()), torch._int_mm(b.t(), a.t())), "i8 80x64", "i8 64x48"),
        c("narrow_floats_said", scaled_as_said, "f32 16x32", "f32 32x32", "f32 16x1 >0", "f32 1x32 >0", "bf16 32"),
        c("narrow_floats_tiles", scaled_by_blocks(32, "BlockWise1x32", "BlockWise1x32", tiles), "i8 3x160", "i8 144x160", "f32 3x5 >0", "f32 144x5 >0", written_out=True),
        c("narrow_floats_rows", scaled_by_blocks(128, "BlockWise1x128", "BlockWise1x128"), "i8 3x256", "i8 16x256", "f32 3x2 >0", "f32 16x2 >0", written_out=True),
        c("narrow_floats_blocks", scaled_by_blocks(128, "BlockWise1x128", "BlockWise128x128"), "i8 3x256", "i8 16x256", "f32 3x2 >0", "f32 1x2 >0", written_out=True),
    ]


def fake_by_tensors(x, scale, zero, on):
    aten = torch.ops.aten
    return (torch.fake_quantize_per_tensor_affine(x, scale, zero, -128, 127), *aten.fake_quantize_per_tensor_affine_cachemask(x, 0.013, 5, 0, 255),
            *(r for n in range(2) for r in aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(x, scale, zero, on[n:n + 1], 0, 255)))


def fake_by_channels(axis):
    def run(x, scales, zeros):
        return torch.fake_quantize_per_channel_affine(x, scales, zeros, axis, -8, 7), *torch.ops.aten.fake_quantize_per_channel_affine_cachemask(x, scales, zeros, axis, -8, 7)
    return run


def learnt(x, dy, scale, zero):
    """A scale and a zero point that are learnt, there with a fraction, and their gradients."""
    aten = torch.ops.aten
    results = []
    for shift in (0.0, 0.5, 30.0):
        given = (x, scale[:1], zero[:1] + shift, -8, 7, 0.5)
        results += [aten._fake_quantize_learnable_per_tensor_affine(*given), *aten._fake_quantize_learnable_per_tensor_affine_backward(dy, *given)]
    for axis in (0, 1):
        given = (x, scale[:x.shape[axis]], zero[:x.shape[axis]], axis, -8, 7, 0.25)
        results += [aten._fake_quantize_learnable_per_channel_affine(*given), *aten._fake_quantize_learnable_per_channel_affine_backward(dy, *given)]
    return tuple(results)


def fake():
    """What training with quantisation in mind computes: there and back at once."""
    return [
        c("number", lambda x: (torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127), torch.fake_quantize_per_tensor_affine(x * 40, 0.0131, 0, 0, 255)), "f32 5x7"),
        c("tensors", lambda x, s, z: fake_by_tensors(x, s[0] * 0.02 + 0.01, ((z[0].abs() % 5)).int(), torch.tensor([1, 0])), "f32 5x7", "f32 1 >0", "i64 1"),
        c("channels", lambda x, s, z: fake_by_channels(0)(x, s * 0.1 + 0.05, (z.abs() % 5).int()), "f32 4x6", "f32 4 >0", "i64 4"),
        c("channels_inside", lambda x, s, z: fake_by_channels(1)(x, s * 0.1 + 0.05, z.clamp(-3, 3)), "f32 3x4x2", "f32 4 >0", "f32 4"),
        c("learnt", lambda x, dy, s, z: learnt(x, dy, s * 0.2 + 0.1, z), "f32 4x6x3", "f32 4x6x3", "f32 6 >0", "f32 6"),
        c("learnt_between", lambda x, dy, z: learnt((x * 8).round() / 8, dy, torch.full((6,), 0.25), z.round()), "f32 4x6x3", "f32 4x6x3", "f32 6"),
        c("half", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127), "f16 5x7"),
        c("bf16", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127), "bf16 5x7"),
    ]


def blocks_there_and_back(block, mapping, low, high, keep=True):
    """As torchao has it: a scale for each block of the tensor. It must be installed to write these."""
    import torchao.quantization  # noqa: F401: registers the operators
    A = torch.ops.torchao

    def run(x):
        scale, zero = A.choose_qparams_affine(x, mapping, block, torch.int8, low, high, 1e-5, torch.float32, torch.int32, keep)
        q = A.quantize_affine(x, block, scale, zero, torch.int8, low, high)
        return scale, zero, q, A.dequantize_affine(q, block, scale, zero, torch.int8, low, high), A.dequantize_affine(q, block, scale, None, torch.int8, low, high)
    return run


def blocks_of_floats(block, **k):
    import torchao.quantization  # noqa: F401
    A = torch.ops.torchao

    def run(x):
        scale = A.choose_scale_float8(x, block, torch.float8_e4m3fn, **k)
        q = A.quantize_affine_float8_non_decomposed(x, scale, torch.float8_e4m3fn)
        return scale, q.float(), A.dequantize_affine_float8_non_decomposed(q, scale)
    return run


def blocks():
    rows = {0: torch.export.Dim("rows", min=2, max=64)}
    return [
        c("rows", blocks_there_and_back([1, 12], "SYMMETRIC", -127, 127), "f32 6x12"), c("rows_dropped", blocks_there_and_back([1, 12], "ASYMMETRIC", -128, 127, False), "f32 6x12"),
        c("rows_dynamic", blocks_there_and_back([1, 12], "ASYMMETRIC", -128, 127), "f32 6x12", dynamic=(rows,), more=[("f32 31x12",)]),
        c("groups", blocks_there_and_back([1, 4], "SYMMETRIC_NO_CLIPPING_ERR", -8, 7), "f32 6x12"), c("groups_dropped", blocks_there_and_back([1, 4], "ASYMMETRIC", -8, 7, False), "f32 6x12"),
        c("tiles", blocks_there_and_back([2, 4], "ASYMMETRIC", -128, 127), "f32 6x12"), c("tensor", blocks_there_and_back([6, 12], "SYMMETRIC", -8, 7), "f32 6x12"),
        c("batch", blocks_there_and_back([1, 3, 4], "ASYMMETRIC", -128, 127), "f32 2x3x8"),
        c("float_rows", blocks_of_floats([1, 12]), "f32 6x12"), c("float_tiles", blocks_of_floats([2, 4]), "f32 6x12"), c("float_tensor", blocks_of_floats([6, 12]), "f32 6x12"),
    ]


def packed_int4():
    """Weights of four bits. With 16 rows every machine packs for CPUs alike; tools/golden_int4.py has the rest."""
    import eager_on_cpu
    aten = torch.ops.aten
    eager_on_cpu.define()
    rows = {0: torch.export.Dim("rows", min=1, max=64)}
    sixteen = ("i32 16x64", "f32 2x16x2")

    def low_first(q):
        q = q & 15
        return (q[:, ::2] | q[:, 1::2] << 4).to(torch.uint8)

    def for_cpu(x, q, parameters):
        return aten._weight_int4pack_mm_for_cpu(x, aten._convert_weight_to_int4pack_for_cpu(q & 15, 1), 32, parameters)

    def stored(m, x):
        return aten._weight_int4pack_mm_for_cpu(x, m.packed, 32, m.numbers)

    def infinite(m, x):
        return aten._weight_int4pack_mm_for_cpu(torch.where(x > 1.9, float("inf"), x), m.packed, 32, m.numbers)

    def for_tensor_cores(tiles, group=32):
        def run(x, q, parameters):
            w = aten._convert_weight_to_int4pack(low_first(q).bitwise_left_shift(4) | low_first(q).bitwise_right_shift(4), tiles)
            return aten._weight_int4pack_mm(x, w, group, parameters), w
        return run

    def row_for_tensor_cores(tiles):
        return lambda x, q, parameters: for_tensor_cores(tiles)(torch.where(x > 2.2, float("inf"), x), q, parameters)[0]

    # Rows, columns of x and groups that GPUs multiply by slices of k, in blocks of 128 or of a group; and more rows than that.
    def few_rows(rows, columns, k, group, dtype="bf16", infinite=False):
        def run(x, q, parameters):
            if infinite:
                return for_tensor_cores(8 if k % 128 == 0 else 2, group)(torch.where(x > 2.7, float("inf"), x), q, parameters)[0]
            return for_tensor_cores(8 if k % 128 == 0 else 2, group)(x, q, parameters)[0].relu()
        name = f"{'infinite' if infinite else dtype}_{rows}x{columns}x{k}_{group}"
        return c(name, run, f"{dtype} {rows}x{k}", f"i32 {columns}x{k}", f"{dtype} {k // group}x{columns}x2")

    def with_zeros(x, words, scales, zeros):
        return aten._weight_int4pack_mm_with_scales_and_zeros(x, words, 32, scales, zeros)

    def dynamic(block, bias=True):
        def run(x, q, scales, b):
            w = aten._dyn_quant_pack_4bit_weight(low_first(q), scales, b if bias else None, block, 64, 6)
            return aten._dyn_quant_matmul_4bit(x, w, block, 64, 6), w
        return run

    few = [few_rows(3, 24, 288, 32), few_rows(16, 40, 256, 32), few_rows(20, 16, 512, 64), few_rows(33, 24, 256, 64), few_rows(7, 16, 1024, 128, "f16"), few_rows(2, 16, 256, 32, infinite=True)]
    words = torch.randint(-2**31, 2**31, (6, 8), generator=torch.Generator().manual_seed(3)).to(torch.int32)
    weights = {"packed": torch.randint(0, 256, (16, 32), generator=torch.Generator().manual_seed(7)).to(torch.uint8), "numbers": "bf16 2x16x2"}
    return [
        c("for_cpu", for_cpu, "f32 5x64", *sixteen), c("for_cpu_bf16", for_cpu, "bf16 5x64", "i32 16x64", "bf16 2x16x2"), c("for_cpu_f16", for_cpu, "f16 1x64", "i32 16x64", "f16 2x16x2"),
        c("for_cpu_packed", lambda q: aten._convert_weight_to_int4pack_for_cpu(q & 15, 1), "i32 16x64"),
        c("for_cpu_stored", stored, "bf16 5x64", state=weights), c("for_cpu_infinite", infinite, "f32 5x64", state={**weights, "numbers": "f32 2x16x2"}), c("for_cpu_one_row", stored, "f32 1x64", state={**weights, "numbers": "f32 2x16x2"}), c("for_cpu_dynamic", for_cpu, "f32 5x64", *sixteen, dynamic=(rows, None, None), more=[("f32 31x64", *sixteen)]),
        *[c(f"tensor_cores_{tiles}", for_tensor_cores(tiles), "bf16 5x128", "i32 16x128", "bf16 4x16x2") for tiles in (2, 4, 8)],
        *[c(f"tensor_cores_row_{tiles}", row_for_tensor_cores(tiles), "bf16 1x128", "i32 24x128", "bf16 4x24x2") for tiles in (2, 4, 8)],
        *few,
        c("with_zeros", with_zeros, "bf16 5x64", words, "bf16 2x6", "i8 2x6"), c("with_zeros_f32", with_zeros, "f32 5x64", words, "f32 2x6", "i8 2x6"),
        c("quantised_rows", dynamic(64), "f32 5x64", "i32 6x64", "f32 6x1 >0", "f32 6"), c("quantised_rows_bf16", dynamic(64), "bf16 5x64", "i32 6x64", "f32 6x1 >0", "f32 6"),
        c("quantised_groups", dynamic(32), "f32 5x64", "i32 6x64", "bf16 6x2 >0", "f32 6"), c("quantised_unbiased", dynamic(32, False), "f32 5x64", "i32 6x64", "f32 6x2 >0", "f32 6"),
        c("quantised_constant", dynamic(32), torch.tensor([[0.0] * 64, [3.5] * 64, [-2.0] * 64]), "i32 6x64", "f32 6x2 >0", "f32 6"),
    ]


def groups():
    return {"quantised": quantised(), "quantised_blocks": blocks(), "fake_quantised": fake(), "packed_int4": packed_int4()}
