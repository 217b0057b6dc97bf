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


META = "scalars as a tensor have no form without their values"


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
        c("addcmul_tensor", lambda x, y, f: torch._foreach_addcmul([x, y], [x, y], [x, y + 1], f), *two, "f64 2", raw_only=META),
        c("addcdiv_tensor", lambda x, y, f: torch._foreach_addcdiv_(out := [x.clone(), y.clone()], [x, y], [x + 1, y + 1], f) or out, *two, "f32 2", raw_only=META),
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
        c("nearest2d_overlooks", resize_gradients("upsample_nearest2d", 3, 8, rest=(1.1, 2.05)), "f32 1x2x3x4"), c("nearest1d_overlooks", resize_gradients("upsample_nearest1d", 7, rest=(1.1,)), "f32 1x2x7"), c("nearest2d_factors", resize_gradients("upsample_nearest2d", 7, 9, rest=(2.5, 2.4)), "f32 1x2x3x4"), c("nearest2d_double", resize_gradients("upsample_nearest2d", 6, 8), "f32 1x2x3x4"),
        c("linear1d", resize_gradients("upsample_linear1d", 9, rest=(False,)), "f32 2x3x4"), c("linear1d_aligned", resize_gradients("upsample_linear1d", 9, rest=(True,)), "f32 2x3x4"),
        c("bilinear2d", resize_gradients("upsample_bilinear2d", 6, 5, rest=(False,)), "f32 2x3x3x4"), c("bilinear2d_aligned", resize_gradients("upsample_bilinear2d", 6, 5, rest=(True,)), "f32 2x3x3x4"),
        c("bilinear2d_one_dim", resize_gradients("upsample_bilinear2d", 3, 9, rest=(False,)), "f32 2x3x3x4"), c("bilinear2d_factors", resize_gradients("upsample_bilinear2d", 7, 9, rest=(False, 2.5, 2.4)), "f32 1x2x3x4"),
        c("bilinear2d_f64", resize_gradients("upsample_bilinear2d", 2, 3, rest=(False,)), "f64 1x2x7x5"), c("trilinear3d", resize_gradients("upsample_trilinear3d", 4, 3, 7, rest=(False,)), "f32 1x2x2x3x4"),
        c("bicubic2d", resize_gradients("upsample_bicubic2d", 6, 5, rest=(False,)), "f32 1x2x3x4"), c("bicubic2d_aligned", resize_gradients("upsample_bicubic2d", 4, 7, rest=(True,)), "f32 1x2x5x3"),
    ]


EDGES = torch.tensor([-21.0, -6.5, -3.0, -1.0, -0.5, -0.25, -0.125, 0.0, 0.25, 0.5, 1.0, 2.9, 3.0, 3.1, 6.0, 19.5, 20.5, 30.0])


def derivative(name, *rest, **more):
    """An operator name_backward of the cosine of what is beside it; the edges of its pieces come first."""
    backward = getattr(aten, name + "_backward")
    return lambda x: (backward(torch.ones_like(EDGES).to(x.dtype), EDGES.to(x.dtype), *rest, **more), backward(x.cos(), x, *rest, **more))


def of_loss(name, *rest, target=lambda x: x.flip(0).sin()):
    backward = getattr(aten, name + "_backward")
    return lambda x: (backward(x.cos(), x, target(x), *rest[:0], 0, *rest), backward(x.sum(), x, target(x), 1, *rest), backward(x.sum(), x, target(x), 2, *rest))


# Classes by row, up to a -1; one is named twice, one row has none.
LABELS = torch.tensor([[3, 0, -1, 1, 1], [-1, 2, 2, 0, 4], [4, 4, 1, -1, -1], [0, 1, 2, 3, 4]])


def derivatives():
    one, cases = "f32 7x9", []
    for name, rest in [("hardswish", ()), ("hardsigmoid", ()), ("hardtanh", (-1.0, 1.0)), ("hardtanh", (-0.5, 3.0)), ("silu", ()), ("mish", ()), ("softplus", (1.0, 20.0)), ("softplus", (2.5, 3.0)),
                       ("leaky_relu", (0.1, False)), ("hardshrink", (0.5,)), ("softshrink", (0.25,)), ("threshold", (0.5,)), ("logit", (None,)), ("logit", (0.1,)), ("gelu", ())]:
        cases.append(c(name + "".join(f"_{str(v).replace('.', 'p').replace('-', 'm')}" for v in rest), derivative(name, *rest), one))
    elu = lambda *args, result=False: lambda x: (aten.elu_backward(x.cos(), *args, result, x), aten.elu_backward(torch.ones(18), *args, result, EDGES))
    uniform = lambda x: (x.sin() + 1.5) / 3
    shapes = lambda x: torch.cat([x * 0.3, x * 3, x * 40])  # noqa: E731  of each range, of which each has its own formula
    # As distributions give them: near their means, and far away.
    near = lambda a, x, k: (a * (1 + k * x / a.sqrt())).clamp(min=0.01)  # noqa: E731
    return cases + [
        *(c(f"multi_margin_p{p}{'_' * r}", lambda x, t, w, g, p=p, r=r: (aten.multi_margin_loss_backward(g if r == 0 else g[0], x, t, p, 0.7, w, r), aten.multi_margin_loss_backward(g[1], x[0], t[:1], p, 1.5, None, r)), "f32 7x5", "i64 7 <5", "f32 5 >0", "f32 7") for p in (1, 2) for r in (0, 1, 2)),
        *(c(f"multilabel_margin{'_' * r}", lambda x, g, r=r: [aten.multilabel_margin_loss_backward(g[:1] if r == 0 and v.dim() == 2 else g[0], v, t, r, aten.multilabel_margin_loss_forward(v, t, r)[1]) for v, t in ((x[0], LABELS[0]), (x[1:2], LABELS[1:2]))], "f32 2x5", "f32 4") for r in (0, 1, 2)),
        c("multilabel_margin_rows", lambda x, g: aten.multilabel_margin_loss_backward(g[0], x, LABELS, 1, aten.multilabel_margin_loss_forward(x, LABELS, 1)[1]), "f32 4x5", "f32 4"),
        c("gamma", lambda a, x: [torch._standard_gamma_grad(shapes(a)[:, None], near(shapes(a)[:, None], x, k)) for k in (0.05, 1, 3)], "f32 9 >0", "f32 7"),
        c("gamma_f64", lambda a, x: torch._standard_gamma_grad(shapes(a)[:, None], near(shapes(a)[:, None], x, 1)), "f64 9 >0", "f64 7"),
        c("dirichlet", lambda a, b, x: torch._dirichlet_grad(x.sigmoid()[:, None, None], shapes(a)[:, None], shapes(a)[:, None] + shapes(b)), "f32 7 >0", "f32 5 >0", "f32 11"),
        c("dirichlet_f64", lambda a, b, x: torch._dirichlet_grad((x * 4).sigmoid()[:, None, None], shapes(a)[:, None], shapes(a)[:, None] + shapes(b)), "f64 4 >0", "f64 5 >0", "f64 9"),
        c("gelu_tanh", derivative("gelu", approximate="tanh"), one), c("gelu_bf16", derivative("gelu"), "bf16 7x9"), c("silu_f16", derivative("silu"), "f16 7x9"), c("mish_f64", derivative("mish"), "f64 7x9"),
        c("elu", elu(1.0, 1.0, 1.0), one), c("selu", elu(1.6732632423543772, 1.0507009873554805, 1.0), one), c("celu_result", elu(1.0, 1.0, 0.5, result=True), one),
        c("log_sigmoid", lambda x: aten.log_sigmoid_backward(x.cos(), x, aten.log_sigmoid_forward(x)[1]), one),
        c("glu", lambda x: (aten.glu_backward(x[:, :4].cos(), x, 1), aten.glu_backward(x[:3].cos(), x, 0)), "f32 6x8"),
        c("prelu", lambda x, w: aten._prelu_kernel_backward(x.cos(), x, w.reshape(1, -1)), one, "f32 9"),
        c("rrelu", lambda x, n: (aten.rrelu_with_noise_backward(x.cos(), x, n, 0.1, 0.3, True, False), aten.rrelu_with_noise_backward(x.cos(), x, n, 0.1, 0.3, False, False)), one, one),
        c("fake_quantize", lambda x: aten.fake_quantize_per_tensor_affine_cachemask_backward(x.cos(), x > 0), one),
        c("mse_loss", of_loss("mse_loss"), one), c("smooth_l1_loss", of_loss("smooth_l1_loss", 0.7), one), c("huber_loss", of_loss("huber_loss", 0.7), one),
        c("soft_margin_loss", of_loss("soft_margin_loss"), one), c("l1_beta_0", of_loss("smooth_l1_loss", 0.0), one),
        c("binary_cross_entropy", lambda x, w: tuple(aten.binary_cross_entropy_backward(g, uniform(x), uniform(x.flip(0)), m, r) for r, g in ((0, x.cos()), (1, x.sum()), (2, x.sum())) for m in (None, w)), one, one),
        c("nll_loss", lambda x, w: tuple(aten.nll_loss_backward(x[:, 0].cos() if r == 0 else x.sum(), x, t, m, r, 2, aten.nll_loss_forward(x, t, m, r, 2)[1])
                                         for t in [torch.tensor([0, 2, 4, 1, 8, 3, 2])] for r in (0, 1, 2) for m in (None, w)), one, "f32 9 >0"),
        c("nll_loss_single", lambda x: aten.nll_loss_backward(x.sum(), x, torch.tensor(3), None, 1, -100, aten.nll_loss_forward(x, torch.tensor(3), None, 1, -100)[1]), "f32 6"),
        c("nll_loss2d", lambda x, w: tuple(aten.nll_loss2d_backward(x[:, 0].cos() if r == 0 else x.sum(), x, t, w, r, -100, aten.nll_loss2d_forward(x, t, w, r, -100)[1])
                                           for t in [(x[:, 0] * 7).long().remainder(5)] for r in (0, 1, 2)), "f32 2x5x3x4", "f32 5 >0"),
    ]


def layer_norm_gradient(*shape, mask=(True, True, True)):
    def run(x, w):
        y, mean, rstd = aten.native_layer_norm(x, list(shape), w, w, 1e-5)
        return [g for g, asked in zip(aten.native_layer_norm_backward(y.cos(), x, list(shape), mean, rstd, w, w, list(mask)), mask) if asked]
    return run


def group_norm_gradient(groups, affine=True):
    def run(x, w):
        w = w if affine else None
        n, channels, size = x.shape[0], x.shape[1], x[0, 0].numel()
        y, mean, rstd = aten.native_group_norm(x, w, w, n, channels, size, groups, 1e-5)
        return [g for g in aten.native_group_norm_backward(y.cos(), x, mean, rstd, w, n, channels, size, groups, [True, affine, affine]) if g is not None]
    return run


def batch_norm_gradient(train):
    def run(x, w, mean, var):
        y, save_mean, rstd = aten.native_batch_norm(x, w, w, mean.clone(), var.clone(), train, 0.1, 1e-5)
        return aten.native_batch_norm_backward(y.cos(), x, w, mean, var, save_mean, rstd, train, 1e-5, [True, True, True])
    return run


def attention_gradient(causal, masked=False, empty=False, **rest):
    """empty: each third query has no key, as those of padding."""
    def run(q, k, v, m):
        mask = m if masked else None
        if empty:
            mask = m.masked_fill((torch.arange(m.shape[-2]) % 3 == 0)[:, None], float("-inf"))
        y, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, attn_mask=mask, **rest)
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(y.cos(), q, k, v, y, lse, 0.0, causal, attn_mask=mask, **rest)
    return run


def layer_gradients():
    channels = ("f32 4", "f32 4", "f32 4 >0")
    heads = ("f32 2x3x7x8", "f32 2x3x9x8", "f32 2x3x9x8", "f32 7x9")
    return [
        c("layer_norm", layer_norm_gradient(16), "f32 3x5x16", "f32 16"), c("layer_norm_two", layer_norm_gradient(5, 4), "f32 3x5x4", "f32 5x4"),
        c("layer_norm_input", layer_norm_gradient(16, mask=(True, False, False)), "f32 3x16", "f32 16"), c("layer_norm_all", layer_norm_gradient(5, 4), "f32 5x4", "f32 5x4"),
        c("layer_norm_bf16", layer_norm_gradient(16), "bf16 3x16", "bf16 16"),
        c("layer_norm_dynamic", layer_norm_gradient(16), "f32 4x16", "f32 16", dynamic=({0: torch.export.Dim("rows", min=2, max=64)}, None), more=[("f32 9x16", "f32 16")]),
        c("group_norm", group_norm_gradient(2), "f32 2x6x3x4", "f32 6"), c("group_norm_plain", group_norm_gradient(3, affine=False), "f32 2x6x5", "f32 6"),
        c("batch_norm", batch_norm_gradient(True), "f32 3x4x5x2", *channels), c("batch_norm_eval", batch_norm_gradient(False), "f32 3x4x5x2", *channels), c("batch_norm_1d", batch_norm_gradient(True), "f32 6x4", *channels),
        c("weight_norm", lambda v, g: aten._weight_norm_interface_backward(v.cos(), v, g, aten._weight_norm_interface(v, g, 0)[1], 0), "f32 5x3x4", "f32 5x1x1"),
        c("attention", attention_gradient(False), *heads), c("attention_causal", attention_gradient(True), "f32 2x3x7x8", "f32 2x3x7x8", "f32 2x3x7x8", "f32 7x7"),
        c("attention_mask", attention_gradient(False, masked=True, scale=0.3), *heads),
        c("attention_empty", attention_gradient(False, empty=True), *heads), c("attention_empty_shared", attention_gradient(False, empty=True), "f32 2x6x7x8", "f32 2x2x9x8", "f32 2x2x9x8", "f32 7x9"),
        # Heads of queries that share a head of keys.
        c("attention_shared", attention_gradient(False), "f32 2x6x7x8", "f32 2x2x9x8", "f32 2x2x9x8", "f32 7x9"),
        c("attention_shared_causal", attention_gradient(True), "f32 2x4x7x8", "f32 2x1x7x8", "f32 2x1x7x8", "f32 7x7", dynamic=({0: (b := torch.export.Dim("batch", min=2, max=8))}, {0: b}, {0: b}, None),
          more=[("f32 3x4x7x8", "f32 3x1x7x8", "f32 3x1x7x8", "f32 7x7")]),
        c("attention_shared_mask", attention_gradient(False, masked=True), "f32 2x6x5x8", "f32 2x3x4x8", "f32 2x3x4x8", "f32 2x6x5x4"),
    ]


def antialiased_gradient(name, *size, align=False):
    forward, backward = getattr(aten, name), getattr(aten, name + "_backward")
    return lambda x: backward(forward(x, list(size), align).cos(), list(size), list(x.shape), align)


def padding_gradient(kind, *padding):
    dims = len(padding) // 2
    forward, backward = getattr(aten, f"{kind}_pad{dims}d"), getattr(aten, f"{kind}_pad{dims}d_backward")
    return lambda x: backward(forward(x, list(padding)).cos(), x, list(padding))


def distance_gradient(p):
    return lambda x, y: aten._cdist_backward((d := aten._cdist_forward(x, y, p, None)).cos(), x, y, p, d)


def view_gradients():
    return [
        c("select", lambda x: aten.select_backward(x, [3, 5, 7], 1, -2), "f32 3x7"), c("slice", lambda x: aten.slice_backward(x, [3, 9], 1, 2, 2**63 - 1, 3), "f32 3x3"),
        c("slice_negative", lambda x: aten.slice_backward(x, [8, 4], 0, -5, -1, 1), "f32 4x4"), c("diagonal", lambda x: (aten.diagonal_backward(x, [3, 4, 3], -1, 1, 2), aten.diagonal_backward(x[:, :2], [3, 4, 3], 1, 1, 2)), "f32 3x3"),
        c("unfold", lambda x: aten.unfold_backward(x, [3, 13], 1, 5, 2), "f32 3x5x5"), c("unfold_gaps", lambda x: aten.unfold_backward(x, [11], 0, 2, 4), "f32 3x2"),
        *(c(f"{kind}{len(p) // 2}d", padding_gradient(kind, *p), shape) for kind in ("reflection", "replication")
          for p, shape in (((2, 3), "f32 2x3x5"), ((2, 1, 0, 3), "f32 2x3x4x5"), ((1, 2, 0, 1, 2, 0), "f32 1x2x3x4x5"))),
        c("replication_crop", padding_gradient("replication", -1, 2), "f32 2x3x5"),
        *(c(f"distances_{str(p).replace('.', 'p')}", distance_gradient(p), "f32 2x5x3", "f32 2x4x3") for p in (1.0, 2.0, 3.0, 0.5, float("inf"))),
        c("antialiased_bilinear", antialiased_gradient("_upsample_bilinear2d_aa", 3, 9), "f32 1x2x7x5"), c("antialiased_bicubic", antialiased_gradient("_upsample_bicubic2d_aa", 4, 4), "f32 1x2x9x6"),
        c("antialiased_aligned", antialiased_gradient("_upsample_bilinear2d_aa", 3, 4, align=True), "f32 1x2x7x5"),
        c("distances_equal", lambda x: distance_gradient(2.0)(x, x), "f32 4x3"),
    ]


def pair_gradient(p):
    return lambda x: aten._pdist_backward((d := aten._pdist_forward(x, p)).cos(), x, p, d)


def bag_gradient(mode, padding=-1, last=False, frequent=False):
    """Gradients of an embedding bag's rows, and of its factors where it has some, as a training graph calls for them."""
    def run(w, index, offsets, factors=None):
        y, bags, sizes, most = aten._embedding_bag(w, index, offsets, False, mode, False, factors, last, padding)
        grads = [aten._embedding_bag_backward(y.cos(), index, offsets, bags, sizes, most, w.shape[0], frequent, mode, False, factors, padding)]
        return grads if factors is None else grads + [aten._embedding_bag_per_sample_weights_backward(y.cos(), w, index, offsets, bags, mode, padding)]
    return run


def segment_gradient(reduce, axis=0, offsets=False, **rest):
    def run(x, at):
        x = torch.cat([x, x.narrow(axis, 0, 1) * 0], axis) if reduce == "prod" else x.round(decimals=1)
        how = {"offsets" if offsets else "lengths": at}
        y = aten.segment_reduce(x, reduce, axis=axis, unsafe=True, **how, **rest)
        return aten._segment_reduce_backward(y.cos(), y, x, reduce, axis=axis, **how, **rest)
    return run


def collected_gradients():
    rows, bags = "f32 9x4", (torch.tensor([3, 1, 8, 3, 3, 0, 5]), torch.tensor([0, 2, 2, 6]))
    lengths, offsets = torch.tensor([2, 0, 3, 1]), torch.tensor([0, 2, 2, 6])
    n, mask = torch.export.Dim("rows", min=2, max=32), lambda *shape: torch.arange(torch.tensor(shape).prod()).reshape(shape) % 3 == 1
    return [
        *(c(f"bag_{name}", bag_gradient(mode), rows, *bags) for mode, name in enumerate(("sum", "mean", "max"))), c("bag_padding", bag_gradient(0, padding=3), rows, *bags),
        c("bag_last", bag_gradient(1, last=True), rows, bags[0], torch.tensor([0, 2, 2, 7])), c("bag_frequent", bag_gradient(0, frequent=True), rows, *bags),
        c("bag_factors", bag_gradient(0), rows, *bags, "f32 7"), c("bag_factors_padding", bag_gradient(0, padding=3), rows, *bags, "f32 7"),
        c("bag_dynamic", bag_gradient(0), rows, *bags, "f32 7", dynamic=(None, {0: n}, None, {0: n}), more=[(rows, torch.tensor([4, 4, 0, 7, 6, 2, 1, 5, 8]), bags[1], "f32 9")]),
        c("masked_scatter", lambda g, m: aten.masked_scatter_backward(g, m, [7]), "f32 4x5", mask(4, 5)), c("masked_scatter_rest", lambda g, m: aten.masked_scatter_backward(g, m, [3, 4]), "f32 4x5", mask(4, 5)),
        c("masked_scatter_rows", lambda g, m: aten.masked_scatter_backward(g, m.expand(4, 5), [2, 5]), "bf16 4x5", torch.tensor([[True], [False], [False], [True]])),
        *(c(f"segments_{r}", segment_gradient(r), "f32 7x3", lengths) for r in ("sum", "mean", "max", "min")), c("segments_prod", segment_gradient("prod", initial=2), "f32 5x3", lengths),
        c("segments_offsets", segment_gradient("mean", offsets=True), "f32 6x3", offsets), c("segments_axis", segment_gradient("max", axis=1), "f32 2x6x3", torch.stack([lengths, lengths.flip(0)])),
        *(c(f"pairs_{str(p).replace('.', 'p')}", pair_gradient(p), "f32 6x3") for p in (0.0, 1.0, 1.5, 2.0, 3.0, float("inf"))),
        c("pairs_equal", lambda x: pair_gradient(2.0)(torch.cat([x, x])), "f32 3x2"), c("pairs_f64", pair_gradient(2.0), "f64 4x2"),
    ]


def observed(bits, channels=False, symmetric=False, axis=0, count=1, observe=1, quantise=1, start=None):
    """A fake quantisation whose range follows its input; in training it stands in front of each layer."""
    least, most = bits

    def run(x):
        low, high = (torch.full((count,), v) for v in (start or (float("inf"), float("-inf"))))
        if not channels:
            low, high = low.reshape(()), high.reshape(())
        scale, zero = torch.ones(count), torch.zeros(count, dtype=torch.int32)
        state, rest = (low, high, scale, zero), (0.3, least, most, axis, channels, symmetric)
        first = torch.fused_moving_avg_obs_fake_quant(x, torch.tensor([observe]), torch.tensor([quantise]), *state, *rest)
        second, mask = aten._fused_moving_avg_obs_fq_helper(x * 0.7 + 0.2, torch.tensor([observe]), torch.tensor([quantise]), *state, *rest)
        return first, second, mask, *state
    return run


def fused_step(name, *numbers, states, overflow=None, scale=None, steps=True, rate=0.05, dtype=torch.float32, **more):
    """A step of an optimiser over all parameters, twice: their lists are written in place."""
    def run(p, q, g, h):
        x = lambda *ts: [t.clone().to(dtype) for t in ts]
        params, grads = x(p, q), x(g, h)
        lists = [x(g.square() + 0.1, h.square() + 0.1) if used else [] for used in states]
        counts = [[torch.tensor(3.0), torch.tensor(3.0)]] if steps else []
        for _ in range(2):
            getattr(aten, f"_fused_{name}_")(params, grads, *lists, *counts, lr=rate, grad_scale=scale, found_inf=overflow, **more)
        return params, grads, *lists
    return run


def optimisers():
    adam, two = dict(states=(1, 1, 0), beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False), ("f32 3x4", "f32 5", "f32 3x4", "f32 5")
    sgd, grad = dict(states=(1,), steps=False, momentum=0.9, weight_decay=0.1, dampening=0.0, nesterov=False, maximize=False, is_first_step=False), dict(states=(1,), lr_decay=0.1, weight_decay=0.1, eps=1e-8, maximize=False)
    once = lambda name, run: c(name, run, *two, raw_only="torch does not decompose it, nor with a list that is empty")
    return [
        once("adam", fused_step("adam", **adam)), once("adamw", fused_step("adamw", **adam | dict(beta1=0.3))), once("adamw_rate", fused_step("adamw", **adam, rate=torch.tensor(0.05))),
        c("adam_greatest", fused_step("adam", **adam | dict(states=(1, 1, 1), amsgrad=True, maximize=True)), *two), once("adamw_bf16", fused_step("adamw", **adam, dtype=torch.bfloat16)),
        once("adam_scaled", fused_step("adam", **adam, scale=torch.tensor(4.0), overflow=torch.tensor(0.0))), once("adam_overflow", fused_step("adam", **adam, scale=torch.tensor(4.0), overflow=torch.tensor(1.0))),
        once("sgd", fused_step("sgd", **sgd)), once("sgd_nesterov", fused_step("sgd", **sgd | dict(nesterov=True, maximize=True, weight_decay=0.0))), once("sgd_first", fused_step("sgd", **sgd | dict(is_first_step=True, dampening=0.2))),
        once("sgd_plain", fused_step("sgd", **sgd | dict(states=(0,), momentum=0.0))), once("adagrad", fused_step("adagrad", **grad)), once("adagrad_maximise", fused_step("adagrad", **grad | dict(maximize=True, lr_decay=0.0))),
    ]


TWICE = "the other form is that of the cases beside it"


def observers():
    byte, signed = (0, 255), (-128, 127)
    x, w = "f32 3x4x5", "f32 6x4x3"
    return [
        c("tensor", observed(byte), x), c("tensor_signed", observed(signed, symmetric=True, start=(-0.25, 0.5)), x), c("channels", observed(signed, True, True, count=6), w),
        c("channels_uneven", observed(byte, True, count=6), w, raw_only=TWICE), c("frozen", observed(signed, True, True, count=6, observe=0, start=(-1.0, 0.75)), w, raw_only=TWICE),
        c("off", observed(byte, quantise=0, start=(-1.0, 1.0)), x, raw_only=TWICE), c("one_side", lambda v: observed((0, 127))(v.abs() + 1), x, raw_only=TWICE),
        c("small", lambda v: observed(byte)(v * 1e-3), x, raw_only=TWICE), c("zeros", lambda v: observed(byte)(v * 0), x, raw_only=TWICE),
    ]


def lanczos():
    """Images resampled by a windowed sinc."""
    image = lambda *size, **more: lambda x: torch.nn.functional.interpolate(x, size, mode="lanczos", antialias=True, **more)
    n = torch.export.Dim("rows", min=4, max=64)
    return [
        c("smaller", image(4, 3), "f32 1x2x11x7"), c("larger", image(9, 11), "f32 2x1x5x4"), c("f64", image(3, 9), "f64 1x2x7x5"), c("bytes", image(6, 9), "u8 1x2x11x7 <256"),
        c("factors", lambda x: torch.nn.functional.interpolate(x, scale_factor=(0.45, 1.7), mode="lanczos", antialias=True), "f32 1x2x11x7"),
        c("any_size", image(5, 6), "f32 1x1x9x7", dynamic=({2: n},), more=[("f32 1x1x31x7",), ("f32 1x1x5x7",)]),
        c("gradient", antialiased_gradient("_upsample_lanczos2d_aa", 3, 9), "f32 1x2x7x5"),
    ]


def framed(more, **rest):
    """A signal from its own frames, by a window that leaves no sample without weight."""
    def run(x, w):
        s = torch.stft(x, 16, window=w, return_complex=True, **rest)
        return torch.istft(s * 1.5, 16, window=w, **rest, **more)
    return run


def other_names():
    """Operators that raw files hold under names of their own."""
    return [
        c("conv_of_steps", lambda x, w, b: (torch.conv_tbc(x, w, b), torch.conv_tbc(x, w, b, 2)), "f32 9x2x4", "f32 3x4x5", "f32 5"), c("euclidean", lambda x, y: torch._euclidean_dist(x, y), "f32 5x4", "f32 7x4"),
        c("lstm_of_mkldnn", lambda x, w, v, b, h, y: [t for back in (False, True) for t in aten.mkldnn_rnn_layer(x, w, v, b[0], b[1], h, y, back, [], 2, 5, 1, True, False, False, False)[:3]], "f32 4x3x6", "f32 20x6", "f32 20x5", "f32 2x20", "f32 1x3x5", "f32 1x3x5"),
        c("special", lambda x: (torch.special.softmax(x, 1), torch.special.log_softmax(x, 0), torch.special.round(x * 10, decimals=1)), "f32 5x7"),
        c("norms", lambda x: (torch.frobenius_norm(x, [0, 2]), torch.frobenius_norm(x, 1, True), torch.norm_except_dim(x, 2, 1), torch.norm_except_dim(x, 1, -1)), "f32 3x4x5"),
        c("nuclear", lambda x: (torch.nuclear_norm(x), torch.nuclear_norm(x[:, :3], True)), "f32 6x4"), c("nuclear_dim", lambda x: torch.nuclear_norm(x, (0, 2)), "f32 4x3x5"),
        c("as_bits", lambda x: aten.view_copy.dtype(x, torch.int32), "f32 3x4"),
        c("sequences", lambda x, y, z: (torch.nn.utils.rnn.pad_sequence([x, y, z]), torch.nn.utils.rnn.pad_sequence([x, y, z], True, -1.5, "left")), "f32 3x2", "f32 5x2", "f32 1x2"),
        c("to_wider", lambda x, y: (torch.mm(x, y, out_dtype=torch.float32), ) if x.is_cuda else (x @ y,), "bf16 4x8", "bf16 8x5"),
        *(c(f"affine_grid{'_aligned' * a}", lambda x, y, a=a: (torch.affine_grid_generator(x, [2, 3, 4, 5], a), torch.affine_grid_generator(x, [2, 3, 1, 5], a), torch.affine_grid_generator(y, [1, 2, 3, 4, 2], a)), "f32 2x2x3", "f32 1x3x4", raw_only=True) for a in (False, True)),
        c("istft", framed({}, hop_length=4), "f32 2x61", "f32 16 >0"), c("istft_length", framed({"length": 70}, hop_length=4), "f32 61", "f32 16 >0"),
        c("istft_normalised", framed({}, hop_length=5, normalized=True), "f32 2x60", "f32 16 >0"), c("istft_two_sided", framed({}, hop_length=4, onesided=False), "f32 2x61", "f32 16 >0"),
        c("istft_window", lambda x: torch.istft(torch.stft(x, 16, 4, 12, torch.hann_window(12), return_complex=True), 16, 4, 12, torch.hann_window(12)), "f32 3x64"),
        c("istft_plain", lambda x: torch.istft(torch.stft(x, 16, 4, center=False, window=torch.ones(16), return_complex=True), 16, 4, window=torch.ones(16), center=False), "f32 2x60"),
    ]


def groups():
    return {"collected_gradients": collected_gradients(), "observers": observers(), "lanczos": lanczos(), "optimisers": optimisers(), "view_gradients": view_gradients(), "other_names": other_names(), "derivatives": derivatives(), "layer_gradients": layer_gradients(), "gradients": gradients(), "of_lists": of_lists(), "in_grids": in_grids(), "image_gradients": image_gradients()}
