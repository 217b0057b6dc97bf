"""What graphs of training hold beside those of inference: gradients of convolutions and pools, operators on lists of tensors."""
import torch

from golden_ops import c

aten = torch.ops.aten


def conv_gradients(stride, padding, dilation, transposed=False, groups=1, mask=(True, True, True), output_padding=0):
    n = lambda v, s: [v] * s if isinstance(v, int) else list(v)

    def run(x, w, b):
        s = w.dim() - 2
        settings = n(stride, s), n(padding, s), n(dilation, s), transposed, n(output_padding, s), groups
        y = aten.convolution(x, w, b, *settings)
        grads = aten.convolution_backward(y.cos(), x, w, [b.shape[0]], *settings, list(mask))
        return [g for g, asked in zip(grads, mask) if asked]
    return run


def pool_gradients(*args):
    def run(x):
        forward, backward = (aten.avg_pool2d, aten.avg_pool2d_backward) if x.dim() - len(args[0]) <= 2 and len(args[0]) == 2 else (aten.avg_pool3d, aten.avg_pool3d_backward)
        return backward(forward(x, *args).sin(), x, *args)
    return run


def gradients():
    return [
        c("conv1d", conv_gradients(1, 0, 1), "f32 2x3x11", "f32 4x3x3", "f32 4"),
        c("conv2d", conv_gradients(1, 1, 1), "f32 2x3x7x9", "f32 4x3x3x3", "f32 4"),
        c("conv2d_stride", conv_gradients((2, 3), (1, 2), 1), "f32 2x3x8x9", "f32 4x3x3x3", "f32 4"),
        c("conv2d_dilation", conv_gradients(1, 2, 2), "f32 1x3x9x9", "f32 2x3x3x3", "f32 2"),
        c("conv2d_stride_dilation", conv_gradients(2, 2, 2), "f32 1x3x9x10", "f32 2x3x3x3", "f32 2"),
        c("conv2d_groups", conv_gradients(1, 1, 1, groups=2), "f32 2x4x6x6", "f32 6x2x3x3", "f32 6"),
        c("conv2d_depthwise", conv_gradients(2, 1, 1, groups=4), "f32 2x4x7x7", "f32 4x1x3x3", "f32 4"),
        c("conv2d_1x1", conv_gradients(1, 0, 1), "f32 2x8x5x5", "f32 6x8x1x1", "f32 6"),
        c("conv2d_weight_alone", conv_gradients(1, 1, 1, mask=(False, True, False)), "f32 2x3x7x9", "f32 4x3x3x3", "f32 4"),
        c("conv2d_input_alone", conv_gradients(1, 1, 1, mask=(True, False, False)), "f32 2x3x7x9", "f32 4x3x3x3", "f32 4"),
        c("conv2d_dynamic", conv_gradients(2, 1, 1), "f32 2x3x8x8", "f32 4x3x3x3", "f32 4",
          dynamic=({0: torch.export.Dim("batch", min=1, max=16)}, None, None), more=[("f32 5x3x8x8", "f32 4x3x3x3", "f32 4")]),
        c("conv2d_bf16", conv_gradients(1, 1, 1), "bf16 2x3x6x6", "bf16 4x3x3x3", "bf16 4"),
        c("conv3d", conv_gradients(1, 1, 1), "f32 1x2x4x5x6", "f32 3x2x3x3x3", "f32 3"),
        c("transposed", conv_gradients(2, 1, 1, transposed=True, output_padding=1), "f32 2x3x5x6", "f32 3x4x3x3", "f32 4"),
        c("transposed_groups", conv_gradients(1, 0, 1, transposed=True, groups=2), "f32 1x4x5x5", "f32 4x3x3x3", "f32 6"),
        c("avg_pool2d", pool_gradients((3, 3), (2, 2), (1, 1), False, True, None), "f32 2x3x8x9"),
        c("avg_pool2d_plain", pool_gradients((2, 2), (2, 2), (0, 0), False, True, None), "f32 2x3x8x8"),
        c("avg_pool2d_ceil", pool_gradients((3, 2), (2, 3), (1, 0), True, False, None), "f32 3x7x9"),
        c("avg_pool2d_gaps", pool_gradients((2, 2), (3, 3), (0, 0), False, True, None), "f32 1x2x8x9"),
        c("avg_pool2d_divisor", pool_gradients((3, 3), (1, 1), (1, 1), False, False, 5), "f32 1x2x5x6"),
        c("avg_pool3d", pool_gradients((2, 3, 2), (1, 2, 2), (1, 1, 0), False, False, None), "f32 1x2x4x6x6"),
    ]


def each(name, *more, **rest):
    return lambda *xs: getattr(torch, "_foreach_" + name)(list(xs), *more, **rest)


def momentum_step(p, q, g, h):
    """An optimiser's step as torch writes it over all parameters at once."""
    params, grads, sums = [p.clone(), q.clone()], [g, h], [torch.zeros_like(p), torch.zeros_like(q)]
    torch._foreach_mul_(sums, 0.9)
    torch._foreach_add_(sums, grads, alpha=0.1)
    root = torch._foreach_sqrt(torch._foreach_addcmul(sums, grads, grads, 0.5))
    torch._foreach_add_(root, 1e-3)
    torch._foreach_addcdiv_(params, sums, root, -0.01)
    norms = torch._foreach_norm(grads)
    return params, sums, torch.stack(norms), torch._foreach_lerp(params, grads, 0.25)


def of_lists():
    two = ("f32 3x5 >0", "f32 7 >0")
    return [
        c("add", lambda x, y: torch._foreach_add([x, y], [x * 2, y], alpha=3), *two), c("add_scalar", each("add", 2.5), *two),
        c("add_scalars", each("add", [1.0, -2.0]), *two), c("add_tensor", lambda x, y: torch._foreach_add([x, x * 2], y[0]), *two),
        c("sub", lambda x, y: torch._foreach_sub([x, y], [x * 2, y + 1]), *two), c("mul_scalars", each("mul", [3.0, 0.5]), *two),
        c("div", lambda x, y: torch._foreach_div([x, y], [x + 2, y + 1]), *two), c("div_integers", each("div", 2), "i64 9", "i64 2x2"),
        c("maximum", lambda x, y: torch._foreach_maximum([x, y], [x.flip(0), y.flip(0)]), *two), c("minimum_scalar", each("minimum", 0.7), *two),
        c("clamp_min_scalars", each("clamp_min", [0.5, 0.9]), *two), c("clamp_max", lambda x, y: torch._foreach_clamp_max([x, y], [x.flip(0), y.flip(0)]), *two),
        c("pow", each("pow", 2.5), *two), c("pow_list", lambda x, y: torch._foreach_pow([x, y], [x, y]), *two), c("pow_base", lambda x, y: torch._foreach_pow(2.0, [x, y]), *two),
        c("norm_1", each("norm", 1), *two), c("norm_of_f16", each("norm"), "f16 5", "f16 3x3"), c("lerp", lambda x, y: torch._foreach_lerp([x, y], [x * 2, y - 1], [x, y]), *two),
        c("addcmul_scalars", lambda x, y: torch._foreach_addcmul([x, y], [x, y], [x, y], [2.0, -1.0]), *two), c("momentum_step", momentum_step, *two, *two),
        c("copies", lambda x, y: torch._foreach_copy_([torch.zeros(3, 5), torch.zeros(7, dtype=torch.float64)], [x, y]), *two),
        c("zeroed", lambda x, y: (torch._foreach_zero_([t := x.clone()]), t + y[:5])[1], *two),
        *(c(name, each(name), *two) for name in ("abs", "exp", "log", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sqrt", "tanh", "trunc")),
        c("max", each("max"), *two),
    ]


def resized(x):
    a, b, wide = x.clone().resize_(2, 3), (x.t() * 2).clone().resize_(4), x.clone().resize_(3, 2)
    return a + 1, b, wide.sin(), (x * 3).resize_as_(torch.empty(2, 2))


def in_memory_order(x):
    """What lies in another order than its dimensions, seen and written through as it lies."""
    y, z = x.t() * 2, x.t() + 1
    z.as_strided((3,), (2,)).mul_(10)
    return y.as_strided((4,), (1,)), y.as_strided((2, 3), (1, 2), 3) + 1, z


def in_grids():
    F = torch.nn.functional
    grid = lambda s: "f32 1x" + s + "x3 u"
    return [
        *(c(f"sample3d_{mode}_{padding}", lambda x, g, mode=mode, padding=padding: F.grid_sample(x, g * 1.3, mode, padding, align_corners=padding == "border"), "f32 1x2x4x5x3", grid("3x2x4"))
          for mode in ("bilinear", "bicubic") for padding in ("zeros", "border", "reflection")),
        c("histogramdd", lambda x: torch.histogramdd(x, [3, 4], range=[-1.0, 1.0, -2.0, 2.0]), "f32 40x2"),
        c("histogramdd_data", lambda x: torch.histogramdd(x, 3), "f32 40x3"),
        c("histogramdd_edges", lambda x, a, b: torch.histogramdd(x, [a.sort()[0], b.cumsum(0)]), "f32 40x2", "f32 5", "f32 4 >0"),
        c("histogramdd_weight", lambda x, w: torch.histogramdd(x, [3, 2], weight=w, density=True), "f32 40x2", "f32 40 >0"),
        c("reshaped_copy", lambda x: torch.ops.aten._reshape_copy(x, [2, -1]) + torch.ops.prims.scalar_tensor(2.5, dtype=torch.float32, device="cpu"), "f32 3x4"),
        c("resized", resized, "f32 3x4"), c("in_memory_order", in_memory_order, "f32 3x4"),
    ]


def adaptive_gradients(*size):
    """Of means and maxima over windows that overlap where the sizes do not divide."""
    def run(x):
        n = len(size)
        mean, mean_back = (aten._adaptive_avg_pool2d, aten._adaptive_avg_pool2d_backward) if n == 2 else (aten._adaptive_avg_pool3d, aten._adaptive_avg_pool3d_backward)
        most, most_back = (aten.adaptive_max_pool2d, aten.adaptive_max_pool2d_backward) if n == 2 else (aten.adaptive_max_pool3d, aten.adaptive_max_pool3d_backward)
        values, at = most(x, list(size))
        return mean_back(mean(x, list(size)).cos(), x), most_back(values.sin(), x, at)
    return run


def resize_gradients(name, *size, rest=()):
    """Of an image resampled to a size; `rest`: align_corners and the factors, as the operator takes them."""
    def run(x):
        forward, backward = getattr(aten, name), getattr(aten, name + "_backward")
        return backward(forward(x, list(size), *rest).cos(), list(size), list(x.shape), *rest)
    return run


def image_gradients():
    pool3d = lambda x: aten.max_pool3d_with_indices_backward((r := aten.max_pool3d_with_indices(x, [2, 3, 2], [1, 2, 2], [1, 1, 0]))[0].sin(), x, [2, 3, 2], [1, 2, 2], [1, 1, 0], [1, 1, 1], False, r[1])
    return [
        c("adaptive", adaptive_gradients(3, 4), "f32 2x3x7x9"), c("adaptive_whole", adaptive_gradients(2, 3), "f32 1x2x6x9"), c("adaptive_larger", adaptive_gradients(7, 5), "f32 1x2x3x4"),
        c("adaptive_no_batch", adaptive_gradients(3, 4), "f32 3x7x9"), c("adaptive_3d", adaptive_gradients(2, 3, 4), "f32 1x2x5x6x7"), c("adaptive_bf16", adaptive_gradients(3, 2), "bf16 1x2x7x5"),
        c("max_pool3d", pool3d, "f32 1x2x4x6x6"),
        c("nearest1d", resize_gradients("upsample_nearest1d", 9), "f32 2x3x4"), c("nearest2d", resize_gradients("upsample_nearest2d", 6, 5), "f32 2x3x3x4"), c("nearest3d", resize_gradients("upsample_nearest3d", 4, 3, 7), "f32 1x2x2x3x4"),
        c("nearest2d_smaller", resize_gradients("upsample_nearest2d", 3, 2), "f32 1x2x7x5"), c("nearest_exact2d", resize_gradients("_upsample_nearest_exact2d", 5, 7), "f32 1x2x3x4"),
        c("nearest2d_factors", resize_gradients("upsample_nearest2d", 7, 9, rest=(2.5, 2.4)), "f32 1x2x3x4"), c("nearest2d_double", resize_gradients("upsample_nearest2d", 6, 8), "f32 1x2x3x4"),
        c("linear1d", resize_gradients("upsample_linear1d", 9, rest=(False,)), "f32 2x3x4"), c("linear1d_aligned", resize_gradients("upsample_linear1d", 9, rest=(True,)), "f32 2x3x4"),
        c("bilinear2d", resize_gradients("upsample_bilinear2d", 6, 5, rest=(False,)), "f32 2x3x3x4"), c("bilinear2d_aligned", resize_gradients("upsample_bilinear2d", 6, 5, rest=(True,)), "f32 2x3x3x4"),
        c("bilinear2d_one_dim", resize_gradients("upsample_bilinear2d", 3, 9, rest=(False,)), "f32 2x3x3x4"), c("bilinear2d_factors", resize_gradients("upsample_bilinear2d", 7, 9, rest=(False, 2.5, 2.4)), "f32 1x2x3x4"),
        c("bilinear2d_f64", resize_gradients("upsample_bilinear2d", 2, 3, rest=(False,)), "f64 1x2x7x5"), c("trilinear3d", resize_gradients("upsample_trilinear3d", 4, 3, 7, rest=(False,)), "f32 1x2x2x3x4"),
        c("bicubic2d", resize_gradients("upsample_bicubic2d", 6, 5, rest=(False,)), "f32 1x2x3x4"), c("bicubic2d_aligned", resize_gradients("upsample_bicubic2d", 4, 7, rest=(True,)), "f32 1x2x5x3"),
    ]


def groups():
    return {"gradients": gradients(), "of_lists": of_lists(), "in_grids": in_grids(), "image_gradients": image_gradients()}
