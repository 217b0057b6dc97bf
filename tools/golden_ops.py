"""The single-operator cases of tests/goldens/ops, in groups: odd shapes, strides, dtypes, zero sizes, scalars.

A case is one line: name, function, and its inputs as "dtype shape [range]":
    "f32 3x5"        normal        "f32 3x5 >0"   uniform in [0.1, 2)      "f32 3x5 u"   uniform in (-1, 1)
    "i64 4 <7"       0 … 6         "i64 4"        -9 … 9                   "bool 2x3"    coin
    "f32 -"          0-d           "f32 0x5"      empty
Inputs arrive contiguous; strides other than that are made inside the function (t(), [::2], expand).
"""
import dataclasses
from typing import Any, Callable, Optional

import torch
from torch.export import Dim

F = torch.nn.functional
A = torch.ops.aten

DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
          "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool, "c64": torch.complex64}
B = Dim("b", min=0, max=64)
N = Dim("n", min=1, max=512)


@dataclasses.dataclass
class Case:
    name: str
    function: Callable
    inputs: Callable
    state: Optional[Callable] = None
    dynamic: Any = None
    more: list = dataclasses.field(default_factory=list)
    exact: bool = True
    # Why torch itself cannot write the program after run_decompositions(); every other case is written in both forms.
    raw_only: str = ""
    # The program runs on other machines alone: the function says what it gives, by other operators while it is not exported.
    written_out: bool = False
    # Traced by Dynamo: what it puts into sub-graphs, the other way of torch.export writes out.
    strict: bool = False


def make(spec):
    if not isinstance(spec, str):
        return spec.clone()
    dtype, shape, *rule = spec.split()
    dtype = DTYPES[dtype]
    shape = [] if shape == "-" else [int(n) for n in shape.split("x")]
    rule = rule[0] if rule else ""
    if dtype == torch.bool:
        return torch.rand(shape) < 0.5
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype)
    if not dtype.is_floating_point:
        low, high = (0, int(rule[1:])) if rule.startswith("<") else ((1, 10) if rule == ">0" else (-9, 10))
        return torch.randint(0 if dtype == torch.uint8 and low < 0 else low, high, shape).to(dtype)
    if rule == ">0":
        return (torch.rand(shape) * 1.9 + 0.1).to(dtype)
    if rule == "u":
        return (torch.rand(shape) * 1.98 - 0.99).to(dtype)
    return torch.randn(shape).to(dtype)


def c(name, function, *specs, more=(), state=None, **rest):
    return Case(name, function, lambda: [make(s) for s in specs], more=[lambda m=m: [make(s) for s in m] for m in more],
                state=(lambda: {k: make(s) for k, s in state.items()}) if state else None, **rest)


SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-30, -1e-30, 1e30, 88.0, -88.0, 104.0, -104.0,
                        float("inf"), float("-inf"), float("nan"), 3.1415927, 100.25, 1e-7, 0.99999994])


def unary():
    plain = ["abs", "neg", "sign", "ceil", "floor", "round", "trunc", "exp", "expm1", "sin", "cos", "atan", "sinh", "cosh",
             "tanh", "asinh", "erf", "erfc", "sigmoid", "relu", "square", "frac", "isnan", "isinf", "isfinite", "signbit",
             "exp2", "sgn", "logical_not"]
    positive = ["log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma"]
    cases = [c(n, getattr(torch, n), "f32 3x37") for n in plain]
    cases += [c(n, getattr(torch, n), "f32 5x13 >0") for n in positive]
    cases += [c(n, getattr(torch, n), "f32 41 u") for n in ("asin", "acos", "atanh", "tan", "erfinv", "logit", "sinc", "i0")]
    cases += [c("acosh", lambda x: torch.acosh(x + 1), "f32 17 >0")]
    cases += [c("special_" + n, lambda x, n=n: getattr(torch, n)(x), SPECIAL)
              for n in ("exp", "log", "sqrt", "sigmoid", "tanh", "round", "sin", "relu", "erf", "floor", "rsqrt", "expm1")]
    return cases


def activations():
    return [
        c("gelu", F.gelu, "f32 7x19"), c("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), "f32 7x19"),
        c("silu", F.silu, "f32 65"), c("mish", F.mish, "f32 33"), c("softplus", lambda x: F.softplus(x, 2.0, 1.0), "f32 50"),
        c("elu", lambda x: F.elu(x, 0.7), "f32 50"), c("selu", F.selu, "f32 50"), c("celu", lambda x: F.celu(x, 1.3), "f32 50"),
        c("leaky_relu", lambda x: F.leaky_relu(x, 0.2), "f32 50"), c("hardtanh", lambda x: F.hardtanh(x, -0.5, 0.7), "f32 50"),
        c("relu6", F.relu6, "f32 50"), c("hardswish", F.hardswish, "f32 50"), c("hardsigmoid", F.hardsigmoid, "f32 50"),
        c("hardshrink", F.hardshrink, "f32 50"), c("softshrink", F.softshrink, "f32 50"), c("tanhshrink", F.tanhshrink, "f32 50"),
        c("softsign", F.softsign, "f32 50"), c("threshold", lambda x: F.threshold(x, 0.1, 20.0), "f32 50"),
        c("prelu", F.prelu, "f32 2x5x3", "f32 5"), c("glu", lambda x: F.glu(x, 1), "f32 3x8x2"),
        c("logsigmoid", F.logsigmoid, "f32 50"), c("silu_inplace", lambda x: F.silu(x * 2, inplace=True), "f32 3x5"),
        c("relu_inplace", lambda x: F.relu(x + 1, inplace=True), "f32 3x5"), c("gelu_bf16", F.gelu, "bf16 7x19"),
        c("silu_f16", F.silu, "f16 65"), c("dropout_eval", lambda x: F.dropout(x, 0.5, training=False), "f32 9"),
    ]


def binary():
    pairs = ["add", "sub", "mul", "div", "maximum", "minimum", "atan2", "fmod", "remainder", "hypot", "copysign", "fmax",
             "fmin", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"]
    cases = [c(n, getattr(torch, n), "f32 3x1x5", "f32 4x1") for n in pairs]
    cases += [c(n + "_i64", getattr(torch, n), "i64 3x7", "i64 7 >0")
              for n in ("add", "sub", "mul", "div", "fmod", "remainder", "floor_divide", "maximum", "gcd", "eq", "lt",
                        "bitwise_and", "bitwise_or", "bitwise_xor")]
    cases += [
        c("pow_tensor", torch.pow, "f32 31 >0", "f32 31"), c("pow_scalar", lambda x: x ** 3, "f32 31"),
        c("pow_half", lambda x: x ** 0.5, "f32 31 >0"), c("pow_negative", lambda x: x ** -2, "f32 31 >0"),
        c("pow_base", lambda x: 2.0 ** x, "f32 31"), c("pow_int", lambda x: x ** 5, "i64 31"),
        c("add_alpha", lambda x, y: torch.add(x, y, alpha=2.5), "f32 6", "f32 6"),
        c("sub_alpha", lambda x, y: torch.sub(x, y, alpha=3), "i64 6", "i64 6"), c("rsub", lambda x: 2.0 - x, "f32 6"),
        c("div_floor", lambda x, y: torch.div(x, y, rounding_mode="floor"), "f32 25", "f32 25"),
        c("div_trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), "i64 25", "i64 25 >0"),
        c("div_floor_negative", lambda x, y: torch.div(x, -y, rounding_mode="floor"), "i32 25", "i32 25 >0"),
        c("remainder_negative", lambda x, y: torch.remainder(x, -y), "f32 25", "f32 25 >0"),
        c("shift_left", lambda x, y: x << y, "i32 9 >0", "i32 9 <5"), c("shift_right", lambda x, y: x >> y, "i64 9", "i64 9 <5"),
        c("bitwise_not", torch.bitwise_not, "i32 9"), c("bitwise_not_bool", torch.bitwise_not, "bool 9"),
        c("where", torch.where, "bool 3x1", "f32 1x4", "f32 3x4"), c("where_scalar", lambda m, x: torch.where(m, x, -1.5), "bool 5", "f32 5"),
        c("clamp", lambda x: x.clamp(-0.3, 0.8), "f32 21"), c("clamp_min", lambda x: x.clamp(min=0.1), "f32 21"),
        c("clamp_tensor", torch.clamp, "f32 3x4", "f32 4 u", "f32 4 >0"), c("clamp_int", lambda x: x.clamp(max=3), "i64 21"),
        c("lerp", lambda x, y: torch.lerp(x, y, 0.3), "f32 21", "f32 21"), c("lerp_tensor", torch.lerp, "f32 21", "f32 21", "f32 21 u"),
        c("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), "f32 3x4", "f32 3x1", "f32 4"),
        c("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=-1.5), "f32 3x4", "f32 3x1", "f32 4 >0"),
        c("masked_fill", lambda x, m: x.masked_fill(m, float("-inf")), "f32 3x4", "bool 4"), c("xlogy", torch.xlogy, "f32 21 >0", "f32 21 >0"),
        c("isclose", torch.isclose, "f32 21", "f32 21"), c("nan_to_num", lambda x: torch.nan_to_num(x, nan=7.0), SPECIAL),
        c("logaddexp", torch.logaddexp, "f32 21", "f32 21"), c("heaviside", torch.heaviside, "f32 21", "f32 21"),
    ]
    return cases


def dtypes():
    cases = []
    for d in ("f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"):
        cases.append(c(f"add_{d}", torch.add, f"{d} 3x5", f"{d} 5"))
        cases.append(c(f"to_f32_{d}", lambda x: x.to(torch.float32) * 0.5, f"{d} 11"))
        cases.append(c(f"sum_{d}", lambda x: x.sum(-1), f"{d} 3x7"))
    cases += [
        c("promote_int_float", torch.add, "i32 3x5", "f32 5"), c("promote_zero_dim", torch.mul, "f16 3x5", "f32 -"),
        c("promote_scalar", lambda x: x * 1.5, "i64 5"), c("promote_bool_int", torch.add, "bool 5", "i8 5"),
        c("promote_u8_i8", torch.add, "u8 5", "i8 5"), c("promote_bf16_f16", torch.mul, "bf16 5", "f16 5"),
        c("int_division", torch.div, "i32 5", "i32 5 >0"), c("float_to_int", lambda x: (x * 10).to(torch.int32), "f32 21"),
        c("float_to_u8", lambda x: (x.abs() * 20).to(torch.uint8), "f32 21"), c("float_to_bool", lambda x: x.to(torch.bool), "f32 3x5"),
        c("f32_to_bf16", lambda x: x.to(torch.bfloat16), "f32 64"), c("f32_to_f16", lambda x: x.half(), SPECIAL),
        c("i64_overflow", lambda x: x * 4611686018427387904, "i64 9"), c("u8_wrap", lambda x: x * 100, "u8 9"),
        c("exp_int", torch.exp, "i32 9"), c("mean_bf16", lambda x: x.mean(-1), "bf16 3x65"),
        c("softmax_f16", lambda x: x.softmax(-1), "f16 3x33"), c("matmul_bf16", torch.matmul, "bf16 5x16", "bf16 16x7"),
        c("layer_norm_bf16", lambda x: F.layer_norm(x, (24,)), "bf16 5x24"),
        c("view_as_bits", lambda x: x.view(torch.int32) & 0x7fffffff, "f32 9"), c("view_of_truths", lambda x: (x.view(torch.int8), x.view(torch.uint8) + 254, (x.view(torch.int8) ^ 1).view(torch.bool)), "bool 5x3"),
        c("sum_to_f64", lambda x: torch.sum(x, dtype=torch.float64), "f32 31"), c("cumsum_bool", lambda x: x.cumsum(0), "bool 9"),
    ]
    return cases


def reductions():
    cases = []
    for n in ("sum", "mean", "amax", "amin", "prod"):
        f = getattr(torch, n)
        cases.append(c(n + "_inner", lambda x, f=f: f(x, dim=-1), "f32 5x33"))
        cases.append(c(n + "_outer", lambda x, f=f: f(x, dim=0, keepdim=True), "f32 17x9"))
        if n != "prod":
            cases.append(c(n + "_two", lambda x, f=f: f(x, dim=(0, 2)), "f32 3x4x5"))
    cases += [
        c("sum_all", torch.sum, "f32 7x11x3"), c("sum_large", torch.sum, "f32 40x513"), c("sum_scalar", torch.sum, "f32 -"),
        c("sum_empty", torch.sum, "f32 0x3"), c("sum_empty_dim", lambda x: x.sum(0), "f32 0x3"), c("prod_all", torch.prod, "f32 13"),
        c("sum_strided", lambda x: x.transpose(0, 2)[::2].sum(1), "f32 3x4x6"), c("mean_all", torch.mean, "f32 9x7"),
        c("any", lambda x: x.any(-1), "bool 4x5"), c("all", lambda x: x.all(0), "bool 4x5"), c("any_all", torch.any, "bool 4x5"),
        c("argmax", lambda x: x.argmax(-1), "f32 4x19"), c("argmin_all", torch.argmin, "f32 4x19"), c("argmax_ties", lambda x: x.argmax(1, keepdim=True), "i64 5x30 <3"),
        c("max_dim", lambda x: torch.max(x, 1), "f32 4x19"), c("min_dim", lambda x: torch.min(x, 0), "i64 4x19"), c("aminmax", lambda x: torch.aminmax(x, dim=1), "f32 3x8"),
        c("var", lambda x: x.var(-1), "f32 5x33"), c("var_biased", lambda x: x.var((0, 1), correction=0), "f32 5x33"), c("std", lambda x: x.std(0, keepdim=True), "f32 9x5"),
        c("var_mean", lambda x: torch.var_mean(x, -1), "f32 5x33"), c("norm2", lambda x: torch.linalg.vector_norm(x, dim=-1), "f32 5x33"),
        c("norm1", lambda x: torch.linalg.vector_norm(x, ord=1, dim=0), "f32 5x33"), c("norm_inf", lambda x: torch.linalg.vector_norm(x, ord=float("inf")), "f32 5x33"),
        c("logsumexp", lambda x: x.logsumexp(-1), "f32 5x33"), c("count_nonzero", lambda x: torch.count_nonzero(x, 1), "i64 5x9 <2"),
        c("amax_nan", lambda x: x.reshape(1, -1).amax(-1), SPECIAL), c("nansum", torch.nansum, SPECIAL[:15]), c("median", lambda x: x.median(-1), "f32 5x9"),
        c("sum_dynamic", lambda x: x.sum(-1), "f32 5x33", more=[["f32 1x7"], ["f32 40x500"], ["f32 0x9"]], dynamic=({0: B, 1: N},)),
    ]
    return cases


def normalisation():
    return [
        c("softmax", lambda x: x.softmax(-1), "f32 5x33"), c("softmax_outer", lambda x: x.softmax(0), "f32 7x9"), c("softmax_mid", lambda x: x.softmax(1), "f32 2x7x3"),
        c("softmax_masked", lambda x, m: x.masked_fill(m, float("-inf")).softmax(-1), "f32 6x9", "bool 6x9"), c("log_softmax", lambda x: x.log_softmax(-1), "f32 5x33"),
        c("softmin", lambda x: F.softmin(x, -1), "f32 5x8"), c("softmax_scalar", lambda x: x.softmax(-1), "f32 -"),
        c("softmax_large", lambda x: (x * 200).softmax(-1), "f32 3x17"), c("softmax_empty", lambda x: x.softmax(-1), "f32 0x5"),
        c("layer_norm", lambda x, w, b: F.layer_norm(x, (24,), w, b), "f32 2x5x24", "f32 24", "f32 24"), c("layer_norm_plain", lambda x: F.layer_norm(x, (3, 8)), "f32 5x3x8"),
        c("rms_norm", lambda x, w: F.rms_norm(x, (24,), w, 1e-5), "f32 5x24", "f32 24"), c("group_norm", lambda x, w, b: F.group_norm(x, 3, w, b), "f32 2x6x5x4", "f32 6", "f32 6"),
        c("instance_norm", F.instance_norm, "f32 2x3x5x4"), c("batch_norm", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), "f32 3x4x5", "f32 4", "f32 4 >0", "f32 4", "f32 4"),
        c("batch_norm_2d", lambda x, m, v: F.batch_norm(x, m, v), "f32 3x4", "f32 4", "f32 4 >0"), c("local_response", lambda x: F.local_response_norm(x, 3), "f32 2x7x3x3"),
        c("normalize", lambda x: F.normalize(x, dim=1), "f32 4x9"), c("cosine", F.cosine_similarity, "f32 4x9", "f32 4x9"),
        c("weight_norm", lambda v, g: torch._weight_norm(v, g, 0), "f32 4x3x2", "f32 4x1x1"),
        c("layer_norm_dynamic", lambda x, w, b: F.layer_norm(x, (20,), w, b), "f32 3x20", "f32 20", "f32 20",
          more=[["f32 1x20", "f32 20", "f32 20"], ["f32 0x20", "f32 20", "f32 20"]], dynamic=({0: B}, None, None)),
        c("softmax_dynamic", lambda x: x.softmax(-1), "f32 3x9", more=[["f32 1x1"], ["f32 7x301"]], dynamic=({0: B, 1: N},)),
        c("norms_of_no_dims", lambda x: tuple(torch.norm_except_dim(torch.where(x > 0, x, 0 * x), p, 0) for p in (0, 1, 3)), "f32 7"),
        c("weight_norm_of_rows", lambda x, g: (torch._weight_norm(x, g), torch._weight_norm(x[0], x[1]), torch.norm_except_dim(x[0], 2, 0)), "f32 4x6", "f32 4x1"),
        c("weight_norm_along", lambda v, g: (torch._weight_norm(v, g[None, None, :2], 2), torch._weight_norm(v, g[0], -1), torch._weight_norm(v, g[:2], -1), torch._weight_norm(v, g[None, :3, None], 1)), "f32 4x3x2", "f32 4"),
    ]


def mixed(x, w):
    """A convolution's result, whose channels lie side by side; of numbers far from zero, whose deviations are small beside them."""
    return F.conv2d(x, w) + 30


def moments():
    """Statistics of many elements and few results: of groups of neighbouring channels, of channels, of everything."""
    some = lambda y: y[..., ::7, ::5]  # noqa: E731
    return [
        c("groups", lambda x, w, b: some(F.group_norm(mixed(x, w), 4, b, b)), "f32 2x2x24x24", "f32 16x2x1x1", "f32 16"),
        c("groups_of_few_rows", lambda x, w: some(F.group_norm(mixed(x, w), 2)), "f32 1x2x13x7", "f32 12x2x1x1"),
        c("groups_bf16", lambda x, w: some(F.group_norm(F.conv2d(x, w), 4)), "bf16 1x2x24x24", "bf16 32x2x1x1"),
        c("groups_joined", lambda x, w, v: some(F.silu(F.group_norm(torch.cat([mixed(x, w), F.conv2d(x, v)], 1), 4))), "f32 1x2x24x24", "f32 8x2x1x1", "f32 16x2x1x1"),
        c("groups_native", lambda x, w: torch.native_group_norm(mixed(x, w), None, None, 1, 16, 576, 4, 1e-5)[1:], "f32 1x2x24x24", "f32 16x2x1x1"),
        c("groups_dynamic", lambda x, w: some(F.group_norm(mixed(x, w), 4)), "f32 2x2x12x12", "f32 16x2x1x1", more=[["f32 1x2x25x9", "f32 16x2x1x1"]],
          dynamic=({0: B, 2: Dim("h", min=8, max=64), 3: Dim("w", min=8, max=64)}, None)),
        c("channels", lambda x, w: some(F.batch_norm(F.conv2d(x, w) + 3, None, None, training=True)), "f32 2x2x24x24", "f32 8x2x1x1"),
        c("all", lambda x, y: torch.var_mean(x[:, None] * y + 20), "f32 160", "f32 140"), c("rows", lambda x, y: torch.var_mean(x[:, None, None] * y[:, None] + y, (1, 2)), "f32 3", "f32 140"),
        c("sums", lambda x, w: (mixed(x, w).reshape(2, 4, 4, -1).sum((2, 3)), mixed(x, w).reshape(2, 4, 4, -1).amax((2, 3))), "f32 2x2x24x24", "f32 16x2x1x1"),
    ]


def overlaps():
    """Windows that overlap, of enough channels and places that one program computes several of them; of images that are products of two small ones."""
    some = lambda y: y[:, ::3, ::5, ::3]  # noqa: E731
    image, columns = "f32 1x32x16x1", "f32 1x1x1x40"
    return [
        c("depthwise", lambda x, y, w, b: some(F.conv2d(x * y, w, b, padding=3, groups=32)), image, columns, "f32 32x1x7x7", "f32 32"),
        c("depthwise_bf16", lambda x, y, w, b: some(F.silu(F.conv2d(x * y, w, b, padding=1, groups=32)) + x * y), "bf16 1x32x16x1", "bf16 1x1x1x40", "bf16 32x1x3x3", "bf16 32"),
        c("depthwise_strided", lambda x, y, w: some(F.conv2d(x * y, w, stride=(1, 2), padding=(2, 1), groups=32)), image, "f32 1x1x1x80", "f32 32x1x5x3"),
        c("depthwise_dilated", lambda x, y, w: some(F.conv2d(x * y, w, padding=(0, 2), dilation=(1, 2), groups=32)), image, columns, "f32 32x1x1x3"),
        c("depthwise_1d", lambda x, y, w: F.conv1d(x * y, w, padding=2, groups=96)[:, ::5, ::9], "f32 1x96x1", "f32 1x1x256", "f32 96x1x5"),
        c("max_pool", lambda x, y, w: some(F.max_pool2d(F.conv2d(x * y, w), 3, 1, 1)), image, columns, "f32 32x32x1x1"),
        c("avg_pool", lambda x, y, w: some(F.avg_pool2d(F.conv2d(x * y, w), (2, 3), (1, 2), (1, 1))), image, "f32 1x1x1x80", "f32 32x32x1x1"),
    ]


def losses():
    return [
        c("cross_entropy", F.cross_entropy, "f32 7x5", "i64 7 <5"), c("cross_entropy_ignore", lambda x, t: F.cross_entropy(x, t, ignore_index=2), "f32 9x5", "i64 9 <5"),
        c("cross_entropy_smooth", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), "f32 7x5", "i64 7 <5"), c("cross_entropy_weight", lambda x, t, w: F.cross_entropy(x, t, w, reduction="none"), "f32 7x5", "i64 7 <5", "f32 5 >0"),
        c("cross_entropy_2d", F.cross_entropy, "f32 2x5x3x4", "i64 2x3x4 <5"), c("nll", F.nll_loss, "f32 7x5", "i64 7 <5"), c("mse", F.mse_loss, "f32 7x5", "f32 7x5"), c("l1", lambda x, y: F.l1_loss(x, y, reduction="sum"), "f32 9", "f32 9"),
        c("huber", F.huber_loss, "f32 9", "f32 9"), c("smooth_l1", lambda x, y: F.smooth_l1_loss(x, y, reduction="none"), "f32 9", "f32 9"), c("bce_logits", F.binary_cross_entropy_with_logits, "f32 9", "f32 9 >0"),
        c("kl_div", lambda x, y: F.kl_div(x, y, reduction="batchmean"), "f32 3x4", "f32 3x4 >0"),
        c("hinge_embedding_of_types", lambda x, y: (F.hinge_embedding_loss(x, y.sign(), reduction="none"), F.hinge_embedding_loss(x.sum(), y), F.hinge_embedding_loss(y, x.sign(), margin=0.5)), "bf16 7", "f32 7"),
        c("hinge_embedding_of_bools", lambda x, m: (F.hinge_embedding_loss(x, m, reduction="none"), F.hinge_embedding_loss(x, m.all())), "f32 7", "bool 7"),
        c("losses_of_integers", lambda x, i, u: (F.margin_ranking_loss(x, u, u, margin=0.5), F.margin_ranking_loss(i, u, u, reduction="none"), F.hinge_embedding_loss(u, i.sign(), margin=2.5, reduction="none"), F.hinge_embedding_loss(u, i.sign(), reduction="sum"), F.l1_loss(i, u, reduction="none"), F.l1_loss(u, u + 3, reduction="sum")), "f32 4x7", "i64 4x7", "u8 4x7"),
    ]


def views():
    return [
        c("reshape", lambda x: x.reshape(4, -1) + 1, "f32 2x3x4"), c("transpose", lambda x: x.t() + 1, "f32 3x5"), c("permute", lambda x: x.permute(2, 0, 1).contiguous(), "f32 2x3x4"),
        c("permute_output", lambda x: x.permute(2, 0, 1), "f32 2x3x4"), c("expand", lambda x: x.expand(2, 3, 5) * 2, "f32 3x1"), c("slice", lambda x: x[1:, ::2] * 1.0, "f32 4x7"),
        c("slice_output", lambda x: x[1:3], "f32 5x3"), c("negative_index", lambda x: x[:, -2] + x[-1, 0], "f32 4x4"), c("select", lambda x: x.select(1, 2) - 1, "f32 3x5x2"), c("narrow", lambda x: x.narrow(0, 1, 2).exp(), "f32 4x3"),
        c("squeeze", lambda x: x.squeeze() + x.squeeze(0), "f32 1x5"), c("unsqueeze", lambda x: x.unsqueeze(1) * x, "f32 4"), c("flatten", lambda x: x.transpose(0, 1).flatten(1) + 0, "f32 2x3x4"), c("unflatten", lambda x: x.unflatten(1, (2, 3)) + 0, "f32 2x6"),
        c("chunk", lambda x: torch.chunk(x, 3, 1)[2] * 2, "f32 2x8"), c("split", lambda x: [p * 2 for p in torch.split(x, [1, 4, 2], 0)], "f32 7x2"), c("unbind", lambda x: x.unbind(1)[1] + x.unbind(1)[0], "f32 2x3"), c("diagonal", lambda x: torch.diagonal(x, 1) + 1, "f32 4x5"),
        c("as_strided", lambda x: torch.as_strided(x, (3, 2), (2, 3), 1) + 1, "f32 12"),
        c("strided_parts", lambda x: (x[1:].as_strided((2, 3), (8, 1)) + 0, x[1:].as_strided((2, 3), (8, 1), 3) + 0, x[::2].as_strided((4, 3), (8, 1)) + 0, x[2].as_strided((4, 3), (8, 1)) + 0, x.chunk(2, 1)[1].as_strided((3, 4), (8, 1)) + 0), "f32 6x8"),
        c("strided_views", lambda x: ((x + 1).t()[2:].as_strided((4, 3), (8, 1)) + 0, x[:1].expand(4, 8).as_strided((3, 8), (2, 1)) + 0, torch.diagonal(x).as_strided((3, 8), (2, 1)) + 0, x[2:].reshape(-1).as_strided((3, 8), (2, 1)) + 0), "f32 6x8"),
        c("strided_twice", lambda x: torch.nn.functional.pad(x, (2, 2, 2, 2)).as_strided((2, 3, 2, 20, 12), (1200, 400, 160, 1, 20)).as_strided((2, 3, 2, 2, 12, 12), (1200, 400, 160, 8, 20, 1)) + 0, "f32 2x3x16x16"), c("unfold", lambda x: x.unfold(0, 4, 2) * 1, "f32 11"), c("movedim", lambda x: x.movedim(0, 2) + 1, "f32 2x3x4"), c("swap_add", lambda x: x + x.t(), "f32 5x5"),
        c("input_returned", lambda x: (x, x + 1), "f32 3"), c("view_twice", lambda x: (x.view(6), x.view(6) + 1), "f32 2x3"), c("zero_view", lambda x: x.view(0, 3, 5) + 1, "f32 3x0x5"), c("real_strides", lambda x: (x[::3].t() @ x[::3]), "f32 9x4"),
        c("broadcast", lambda x, y: torch.broadcast_tensors(x, y)[0] + y, "f32 3x1", "f32 4"), c("tile", lambda x: x.tile(2, 3), "f32 2x3"), c("repeat", lambda x: x.repeat(2, 1, 3), "f32 2x3"), c("flip", lambda x: x.flip(0, 2), "f32 2x3x4"), c("roll", lambda x: x.roll((1, -2), (0, 1)), "f32 3x5"),
        c("rot90", lambda x: torch.rot90(x, 1, (0, 1)), "f32 3x4"), c("narrow_mutate", narrow_mutate, "f32 4x3"), c("input_mutated", input_mutated, "f32 5"), c("transposed_mutate", transposed_mutate, "f32 3x4"),
        c("reshape_dynamic", lambda x: x.transpose(1, 2).reshape(x.shape[0], -1) + 1, "f32 3x4x5", more=[["f32 1x2x5"], ["f32 7x30x5"]], dynamic=({0: B, 1: N},)),
        c("slice_dynamic", lambda x: x[:, 1:] - x[:, :-1], "f32 3x9", more=[["f32 2x3"], ["f32 5x90"]], dynamic=({0: B, 1: Dim("n", min=3, max=512)},)),
    ]


def narrow_mutate(x):
    y = x.clone()
    y[1:3] += 10
    y[:, 0].mul_(2)
    return y


def input_mutated(x):
    x.add_(1)
    return x * 2


def transposed_mutate(x):
    y = torch.zeros(4, 3)
    y.t().copy_(x)
    y.view(-1)[::2] = -1
    return y


def joins():
    return [
        c("cat", lambda x, y: torch.cat([x, y], 1), "f32 2x3", "f32 2x4"), c("cat_views", lambda x: torch.cat([x.t(), x[:, :2].t() * 2], 0), "f32 3x5"), c("cat_empty", lambda x, y: torch.cat([x, y]), "f32 0", "f32 4"), c("cat_promote", lambda x, y: torch.cat([x, y]), "i32 3", "f32 4"),
        c("stack", lambda x, y: torch.stack([x, y, x * 2], 1), "f32 2x3", "f32 2x3"), c("hstack", lambda x, y: torch.hstack([x, y]), "f32 3", "f32 2"), c("pad", lambda x: F.pad(x, (1, 2, 0, 3), value=7.0), "f32 2x3"), c("pad_negative", lambda x: F.pad(x, (-1, 2)), "f32 2x5"),
        c("pad_reflect", lambda x: F.pad(x, (2, 1), mode="reflect"), "f32 2x3x6"), c("pad_replicate", lambda x: F.pad(x, (2, 1, 1, 0), mode="replicate"), "f32 1x2x4x5"), c("pad_circular", lambda x: F.pad(x, (2, 1), mode="circular"), "f32 1x2x6"),
        c("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), "f32 3", "f32 4"), c("tril", lambda x: torch.tril(x, 1), "f32 4x6"), c("triu", lambda x: torch.triu(x, -1), "f32 2x5x5"), c("diag_embed", torch.diag_embed, "f32 2x3"), c("repeat_interleave", lambda x: x.repeat_interleave(3, 1), "f32 2x4"),
        c("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), "f32 1x8x3x2"), c("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), "f32 1x2x4x6"), c("channel_shuffle", lambda x: x.view(1, 2, 3, 4).transpose(1, 2).reshape(1, 6, 4), "f32 1x6x4"),
        c("kron", torch.kron, "f32 2x3", "f32 3x2"), c("outer", torch.outer, "f32 4", "f32 5"), c("cat_dynamic", lambda x, y: torch.cat([x, y]), "f32 3x2", "f32 5x2", more=[["f32 1x2", "f32 9x2"]], dynamic=({0: B}, {0: N})),
        c("diagflat_offset", lambda x: torch.diagflat(x, -1), "f32 2"),
    ]


def indexing():
    return [
        c("embedding", lambda i, w: F.embedding(i, w), "i64 3x4 <9", "f32 9x5"), c("index", lambda x, i: x[i], "f32 7x3", "i64 5 <7"), c("index_two", lambda x, i, j: x[i, :, j], "f32 4x3x5", "i64 6 <4", "i64 6 <5"), c("index_broadcast", lambda x, i, j: x[i[:, None], j], "f32 4x5", "i64 3 <4", "i64 2 <5"),
        c("index_negative", lambda x, i: x[i - 4], "f32 7x3", "i64 5 <4"), c("index_select", lambda x, i: x.index_select(1, i), "f32 3x7", "i64 4 <7"), c("gather", lambda x, i: x.gather(1, i), "f32 3x7", "i64 3x4 <7"), c("take_along", lambda x, i: torch.take_along_dim(x, i, 0), "f32 5x3", "i64 2x3 <5"),
        c("scatter", lambda x, i, s: x.scatter(1, i, s), "f32 3x7", torch.tensor([[0, 2], [5, 1], [6, 3]]), "f32 3x2"), c("scatter_value", lambda x, i: x.scatter(0, i, 5.0), "f32 4x3", "i64 2x3 <4"), c("scatter_add", lambda x, i, s: x.scatter_add(0, i, s), "f32 3x4", "i64 6x4 <3", "f32 6x4"),
        c("scatter_reduce", lambda x, i, s: x.scatter_reduce(0, i, s, "amax"), "f32 3x4", "i64 6x4 <3", "f32 6x4"), c("scatter_mean", lambda x, i, s: x.scatter_reduce(0, i, s, "mean", include_self=False), "f32 3x4", "i64 6x4 <3", "f32 6x4"),
        c("index_put", lambda x, i, v: x.index_put((i,), v), "f32 6x2", torch.tensor([4, 0, 3]), "f32 3x2"), c("index_put_accumulate", lambda x, i, v: x.index_put((i,), v, accumulate=True), "f32 4x2", "i64 9 <4", "f32 9x2"), c("index_add", lambda x, i, v: x.index_add(0, i, v, alpha=2), "f32 4x2", "i64 6 <4", "f32 6x2"),
        c("index_copy", lambda x, i, v: x.index_copy(1, i, v), "f32 2x5", torch.tensor([4, 1]), "f32 2x2"), c("index_fill", lambda x, i: x.index_fill(0, i, 3.0), "f32 5x2", "i64 2 <5"), c("select_scatter", lambda x, y: torch.select_scatter(x, y, 1, 2), "f32 3x4", "f32 3"), c("slice_scatter", lambda x, y: torch.slice_scatter(x, y, 0, 1, 5, 2), "f32 6x2", "f32 2x2"),
        c("masked_scatter", lambda x, m, s: x.masked_scatter(m, s), "f32 3x4", "bool 3x4", "f32 12"), c("one_hot", lambda i: F.one_hot(i, 6), "i64 2x3 <6"), c("bucketize", lambda x, b: torch.bucketize(x, b.sort()[0]), "f32 3x7", "f32 5"), c("searchsorted_right", lambda b, x: torch.searchsorted(b.sort(-1)[0], x, right=True), "f32 2x6", "f32 2x4"),
        c("embedding_bag", lambda i, w, o: F.embedding_bag(i, w, o, mode="mean"), "i64 9 <5", "f32 5x3", torch.tensor([0, 2, 2, 6])), c("index_zero", lambda x, i: x[i], "f32 7x3", "i64 0 <7"), c("take", torch.take, "f32 3x4", "i64 5 <12"), c("index_i32", lambda x, i: x[i], "f32 7x3", "i32 5 <7"),
        c("index_mask_fill", lambda x, m: torch.where(m[:, None], x, x.flip(1)), "f32 4x3", "bool 4"), c("index_dynamic", lambda x, i: x[i] * 2, "f32 9x3", "i64 4 <9", more=[["f32 20x3", "i64 11 <20"]], dynamic=({0: N}, {0: B})),
        c("histogram_edges", lambda x, e: torch.histogram(x, e)[0], "f32 6", torch.linspace(-3, 3, 700)),
    ]


def ordering():
    return [
        c("sort", lambda x: torch.sort(x, -1), "f32 4x37"), c("sort_stable", lambda x: torch.sort(x, dim=0, stable=True), "i64 20x3 <4"), c("sort_descending", lambda x: torch.sort(x, dim=-1, descending=True, stable=True), "f32 300"), c("argsort", lambda x: torch.argsort(x, dim=-1, stable=True), "i32 3x17"),
        c("topk", lambda x: torch.topk(x, 5), "f32 4x37"), c("topk_smallest", lambda x: torch.topk(x, 3, 0, largest=False), "f32 9x4"), c("cumsum", lambda x: x.cumsum(-1), "f32 3x65"), c("cumsum_outer", lambda x: x.cumsum(0), "f32 33x3"), c("cumprod", lambda x: x.cumprod(1), "f32 3x9 >0"),
        c("cummax", lambda x: torch.cummax(x, 1), "f32 3x19"), c("cummin", lambda x: torch.cummin(x, 0), "i64 9x3"), c("logcumsumexp", lambda x: torch.logcumsumexp(x, 1), "f32 3x19"), c("diff", lambda x: torch.diff(x, dim=1), "f32 3x6"), c("kthvalue", lambda x: torch.kthvalue(x, 3, 1), "f32 3x9"), c("msort", torch.msort, "f32 9x2"),
        c("sort_i64_long", lambda x: torch.sort(x, stable=True), "i64 700"), c("cumsum_i64", lambda x: x.cumsum(0), "i64 100"), c("sort_nan", lambda x: torch.sort(x, stable=True), SPECIAL),
        c("cumsum_dynamic", lambda x: x.cumsum(-1), "f32 3x9", more=[["f32 1x2"], ["f32 7x301"]], dynamic=({0: B, 1: N},)),
        c("sort_dynamic", lambda x: torch.sort(x, stable=True), "f32 3x9", more=[["f32 1x2"], ["f32 7x301"]], dynamic=({0: B, 1: N},)),
    ]


def grid(f, x, y, rows=1):
    """f of each pair of elements: long rows from few numbers."""
    return f(x[:, None], y[None, :]).reshape(rows, -1)


def some(x, step=101):
    """A few elements of each row, the last one among them."""
    return x.flip(-1)[..., ::step]


def long_rows():
    """Rows that several programs of a GPU share, or that none of its programs holds: the tensors are made inside and most of the results left there."""
    product = torch.mul
    long = ("f32 211", "f32 331")  # 69,841 elements
    return [
        c("cumsum_2600", lambda x: some(x.cumsum(-1), 7), "f32 2x2600"), c("cumsum_i64_2600", lambda x: some(x.cumsum(-1), 7), "i64 2600"),
        c("cumsum_long", lambda x, y: some(grid(product, x, y).cumsum(-1)), *long), c("cumsum_bytes", lambda x: some(x.cumsum(-1)), "i8 70001"),
        c("cumsum_long_i64", lambda x, y: some(grid(product, x, y, 2).cumsum(-1)), "i64 300", "i64 302"), c("cumsum_long_f64", lambda x, y: some(grid(product, x, y).cumsum(-1)), "f64 200", "f64 201"),
        c("cumsum_groups", lambda x, y: some(grid(product, x, y).cumsum(-1), 10007), "f32 1501", "f32 1511"), c("cumsum_long_bf16", lambda x, y: some(grid(product, x, y, 3).cumsum(-1)), "bf16 330 u", "bf16 331 u"),
        c("cumprod_long", lambda x, y: some(grid(lambda a, b: 1 + a * b * 1e-3, x, y, 4).cumprod(-1)), "f32 400", "f32 411"), c("cummax_long", lambda x, y: tuple(some(v) for v in torch.cummax(grid(torch.add, x, y), -1)), *long),
        c("logcumsumexp_long", lambda x, y: some(torch.logcumsumexp(grid(torch.add, x, y), -1)), *long), c("cumsum_long_outer", lambda x, y: some(grid(product, x, y, 2).t().cumsum(0).t()), *("f32 222", "f32 301")),
        c("softmax_long", lambda x, y: some(grid(torch.add, x, y, 2).softmax(-1)), "f32 220", "f32 201"), c("log_softmax_long", lambda x, y: some(grid(torch.add, x, y, 3).log_softmax(-1)), "f32 300", "f32 201"),
        c("layer_norm_long", lambda x, y: some(F.layer_norm(grid(product, x, y, 2), (22110,))), "f32 220", "f32 201"), c("var_mean_long", lambda x, y: torch.var_mean(grid(product, x, y, 20) + 3, -1), "f32 600", "f32 601"),
        c("cross_entropy_long", lambda x, y, t: F.cross_entropy(grid(torch.add, x, y, 5), t), "f32 500", "f32 201", "i64 5 <20100"), c("argmax_long", lambda x, y: grid(product, x, y, 3).argmax(-1), "f32 300", "f32 203"),
        c("rms_norm_long", lambda x, y: some(F.rms_norm(grid(product, x, y, 2), (33110,))), "f32 220", "f32 301"), c("norm_long", lambda x, y: grid(product, x, y).norm(), *long),
        c("sort_long", lambda x, y: tuple(some(v) for v in torch.sort(grid(product, x, y), dim=-1, stable=True)), "f32 150", "f32 151"), c("sort_long_down", lambda x, y: tuple(some(v) for v in torch.sort(grid(product, x, y, 2), dim=-1, descending=True, stable=True)), "i64 100", "i64 240"),
        c("topk_long", lambda x, y: torch.topk(grid(product, x, y), 7)[0], *long), c("median_long", lambda x, y: grid(product, x, y, 3).median(-1)[0], "f32 150", "f32 401"),
    ]


def matmuls():
    return [
        c("mm", torch.mm, "f32 7x13", "f32 13x5"), c("mm_large", torch.mm, "f32 65x70", "f32 70x67"), c("mm_vector", torch.mv, "f32 7x13", "f32 13"), c("dot", torch.dot, "f32 33", "f32 33"), c("mm_one_row", torch.mm, "f32 1x64", "f32 64x48"), c("mm_transposed", lambda x, y: x.t() @ y.t(), "f32 13x7", "f32 5x13"),
        c("mm_zero_inner", torch.mm, "f32 3x0", "f32 0x4"), c("mm_zero_rows", torch.mm, "f32 0x3", "f32 3x4"), c("bmm", torch.bmm, "f32 3x4x5", "f32 3x5x6"), c("matmul_broadcast", torch.matmul, "f32 2x1x3x4", "f32 5x4x6"), c("matmul_fold", torch.matmul, "f32 2x3x4", "f32 4x5"), c("matmul_vector", torch.matmul, "f32 2x3x4", "f32 4"),
        c("linear", F.linear, "f32 2x3x9", "f32 5x9", "f32 5"), c("linear_plain", F.linear, "f32 9", "f32 5x9"), c("linear_relu", lambda x, w, b: F.relu(F.linear(x, w, b)), "f32 17x33", "f32 31x33", "f32 31"), c("linear_weights", lambda m, x: F.gelu(F.linear(x, m.w, m.b)), "f32 5x16", state={"w": "f32 24x16", "b": "f32 24"}),
        c("addmm", lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), "f32 5", "f32 3x4", "f32 4x5"), c("baddbmm", lambda b, x, y: torch.baddbmm(b, x, y, beta=0.5), "f32 2x1x5", "f32 2x3x4", "f32 2x4x5"), c("addmv", torch.addmv, "f32 3", "f32 3x4", "f32 4"), c("bilinear", F.bilinear, "f32 3x4", "f32 3x5", "f32 2x4x5", "f32 2"),
        c("einsum_attention", lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k), "f32 2x3x2x4", "f32 2x5x2x4"), c("einsum_trace", lambda x: torch.einsum("bii->b", x), "f32 2x4x4"), c("mm_i64", torch.mm, "i64 3x4", "i64 4x5"), c("mm_f64", torch.mm, "f64 3x4", "f64 4x5"), c("mm_f16", torch.mm, "f16 9x16", "f16 16x8"),
        c("cdist", torch.cdist, "f32 4x3", "f32 5x3"), c("tensordot", lambda x, y: torch.tensordot(x, y, ([1], [0])), "f32 2x3x4", "f32 3x5"), c("mm_dynamic", torch.mm, "f32 3x16", "f32 16x8", more=[["f32 1x16", "f32 16x8"], ["f32 50x16", "f32 16x8"], ["f32 0x16", "f32 16x8"]], dynamic=({0: B}, None)),
        c("sdpa", F.scaled_dot_product_attention, "f32 2x3x5x8", "f32 2x3x7x8", "f32 2x3x7x8"), c("sdpa_causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), "f32 1x2x9x8", "f32 1x2x9x8", "f32 1x2x9x8"),
        c("sdpa_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), "f32 1x2x4x8", "f32 1x2x6x8", "f32 1x2x6x8", "f32 4x6"), c("sdpa_bool_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m | torch.eye(4, 6, dtype=torch.bool), scale=0.3), "f32 1x2x4x8", "f32 1x2x6x8", "f32 1x2x6x8", "bool 4x6"),
        c("sdpa_gqa", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), "f32 1x4x5x8", "f32 1x2x5x8", "f32 1x2x5x8"),
    ]


def convolutions():
    return [
        c("conv2d", F.conv2d, "f32 2x3x9x11", "f32 5x3x3x3", "f32 5"), c("conv2d_pad_stride", lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=(1, 2)), "f32 1x3x9x11", "f32 5x3x3x3"), c("conv2d_1x1", F.conv2d, "f32 2x8x5x7", "f32 6x8x1x1"), c("conv2d_groups", lambda x, w: F.conv2d(x, w, groups=2, padding=1), "f32 1x4x6x6", "f32 6x2x3x3"),
        c("conv2d_depthwise", lambda x, w, b: F.conv2d(x, w, b, groups=6, padding=2, stride=2), "f32 1x6x11x9", "f32 6x1x5x5", "f32 6"), c("conv2d_dilated", lambda x, w: F.conv2d(x, w, dilation=2, padding="same"), "f32 1x2x8x8", "f32 3x2x3x3"), c("conv2d_no_batch", F.conv2d, "f32 3x6x6", "f32 2x3x2x2"), c("conv2d_relu", lambda m, x: F.relu(F.conv2d(x, m.w, m.b, padding=1)), "f32 1x4x10x10", state={"w": "f32 8x4x3x3", "b": "f32 8"}),
        c("conv2d_patch", lambda x, w, b: F.conv2d(x, w, b, stride=4), "f32 1x3x16x16", "f32 8x3x4x4", "f32 8"), c("conv1d", lambda x, w, b: F.conv1d(x, w, b, padding=2, stride=2), "f32 2x3x17", "f32 4x3x5", "f32 4"), c("conv3d", lambda x, w: F.conv3d(x, w, padding=1), "f32 1x2x4x5x6", "f32 3x2x3x3x3"), c("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1), "f32 1x3x4x5", "f32 3x2x3x3"),
        c("conv_transpose1d_groups", lambda x, w, b: F.conv_transpose1d(x, w, b, stride=3, groups=2), "f32 1x4x5", "f32 4x3x4", "f32 6"), c("conv_zero_batch", F.conv2d, "f32 0x3x5x5", "f32 2x3x3x3"), c("conv_channels_last", lambda x, w: F.conv2d(x.contiguous(memory_format=torch.channels_last), w), "f32 1x4x6x6", "f32 5x4x3x3"), c("conv_bf16", F.conv2d, "bf16 1x4x6x6", "bf16 5x4x3x3"),
        c("max_pool", lambda x: F.max_pool2d(x, 3, 2, 1), "f32 1x3x9x11"), c("max_pool_ceil", lambda x: F.max_pool2d(x, 2, ceil_mode=True), "f32 1x2x7x7"), c("max_pool_indices", lambda x: F.max_pool2d(x, 2, return_indices=True), "f32 1x2x6x6"), c("max_pool_dilated", lambda x: F.max_pool2d(x, 2, 1, dilation=2), "f32 1x2x7x7"), c("avg_pool", lambda x: F.avg_pool2d(x, 3, 2, 1), "f32 1x3x9x11"),
        c("avg_pool_exclude", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False, ceil_mode=True), "f32 1x2x8x8"), c("avg_pool1d", lambda x: F.avg_pool1d(x, 3), "f32 1x2x10"), c("max_pool1d", lambda x: F.max_pool1d(x, 3, 1), "f32 1x2x10"), c("max_pool3d", lambda x: F.max_pool3d(x, 2), "f32 1x1x4x4x4"), c("avg_pool3d", lambda x: F.avg_pool3d(x, 2), "f32 1x1x4x4x4"),
        c("adaptive_avg_one", lambda x: F.adaptive_avg_pool2d(x, 1), "f32 2x3x5x7"), c("adaptive_avg", lambda x: F.adaptive_avg_pool2d(x, (3, 4)), "f32 1x2x7x9"), c("adaptive_max", lambda x: F.adaptive_max_pool2d(x, (2, 3)), "f32 1x2x7x9"), c("adaptive_avg1d", lambda x: F.adaptive_avg_pool1d(x, 4), "f32 1x2x10"),
        # Factors beside sizes that stay or double, which most kernels of PyTorch overlook.
        c("resize_overlooks", lambda x, u: [F.interpolate(x, scale_factor=f, mode=mode, antialias=a) for f in ((1.1, 0.3), (2.05, 1.02)) for mode, a in (("nearest", False), ("nearest-exact", False), ("bilinear", False), ("bilinear", True), ("bicubic", False))]
          + [F.interpolate(u, scale_factor=(1.1, 0.3), mode="bilinear"), F.interpolate(x[0], scale_factor=1.02, mode="linear"), F.interpolate(x[0], scale_factor=1.02)]
          + [F.interpolate(v, scale_factor=(1.1, 2.3, 1.2)) for v in (x.reshape(1, 5, 7, 4, 2), x.reshape(1, 5, 7, 4, 2).contiguous(memory_format=torch.channels_last_3d), x.reshape(1, 2, 7, 10, 2).contiguous(memory_format=torch.channels_last_3d))],
          "f32 1x2x7x20", "u8 1x2x7x20 <256",
          raw_only="torch decomposes some of them into what does not overlook the factor"),
        # All of one pixel is the first one, where its corners are aligned.
        c("resize_to_one", lambda x, u, y: (F.interpolate(x, y.shape, mode="bilinear", align_corners=True), F.interpolate(x, y.shape, mode="bicubic", align_corners=True), F.interpolate(u, y.shape, mode="bilinear", align_corners=True)),
          "f32 1x2x9x7", "u8 1x2x9x7 <256", "f32 4x5", more=[["f32 1x2x9x7", "u8 1x2x9x7 <256", "f32 1x5"], ["f32 1x2x9x7", "u8 1x2x9x7 <256", "f32 3x1"], ["f32 1x2x9x7", "u8 1x2x9x7 <256", "f32 1x1"]],
          dynamic=({}, {}, {0: torch.export.Dim("high", min=1, max=64), 1: torch.export.Dim("wide", min=1, max=64)}), raw_only="torch's decomposition of bicubic divides by zero there"),
        c("resize_by_decimals", lambda x: (F.interpolate(x, scale_factor=0.37, mode="bilinear"), F.interpolate(x, scale_factor=(1.1, 0.3))),
          "f32 1x2x20x30", more=[["f32 1x2x100x9"], ["f32 1x2x7x200"]], dynamic=({2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},)),
        # Of Python's own rounding torch keeps a guard: the sizes of the example's results hold.
        c("pool_by_decimals", lambda x: F.adaptive_avg_pool2d(x, (int(x.shape[2] * 0.15) + 1, int(x.shape[3] / 3))),
          "f32 1x2x20x30", more=[["f32 1x2x26x31"], ["f32 1x2x23x32"]], dynamic=({2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},)),
        c("nearest", lambda x: F.interpolate(x, scale_factor=2), "f32 1x2x3x4"), c("nearest_size", lambda x: F.interpolate(x, size=(5, 3)), "f32 1x2x3x4"), c("bilinear_up", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), "f32 1x2x3x4"), c("bilinear_corners", lambda x: F.interpolate(x, size=(5, 7), mode="bilinear", align_corners=True), "f32 1x2x3x4"),
        c("bicubic", lambda x: F.interpolate(x, size=(6, 7), mode="bicubic"), "f32 1x1x4x4"), c("linear1d", lambda x: F.interpolate(x, size=9, mode="linear"), "f32 1x2x4"), c("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), "f32 1x2x5x6", "f32 1x3x4x2 u"), c("unfold_image", lambda x: F.unfold(x, 2, padding=1), "f32 1x2x4x5"), c("fold_image", lambda x: F.fold(x, (4, 5), 2), "f32 1x8x12"),
        c("lstm_cell", lambda x, h, s, w, u, b, d: torch.lstm_cell(x, (h, s), w, u, b, d), "f32 2x3", "f32 2x4", "f32 2x4", "f32 16x3", "f32 16x4", "f32 16", "f32 16"), c("conv_dynamic", lambda x, w: F.conv2d(x, w, padding=1), "f32 2x3x6x6", "f32 4x3x3x3", more=[["f32 1x3x6x6", "f32 4x3x3x3"], ["f32 5x3x6x6", "f32 4x3x3x3"]], dynamic=({0: B}, None)),
    ]


def creation():
    return [
        c("full", lambda x: torch.full((2, 3), 1.5) + x, "f32 3"), c("zeros_like", lambda x: torch.zeros_like(x) + 1, "f32 2x3"), c("ones_int", lambda x: torch.ones(3, dtype=torch.int64) + x, "i64 3"), c("arange", lambda x: torch.arange(2, 17, 3) + x, "i64 -"), c("arange_float", lambda x: torch.arange(0.0, 1.0, 0.1) * x, "f32 -"), c("linspace", lambda x: torch.linspace(-1, 1, 9) * x, "f32 9"),
        c("eye", lambda x: torch.eye(3, 4) + x, "f32 3x4"), c("scalar_tensor", lambda x: x + torch.scalar_tensor(2.5), "f32 3"), c("full_like", lambda x: torch.full_like(x, 7, dtype=torch.int64), "f32 3x2"), c("new_ones", lambda x: x.new_ones((2, 2)) * x[0, 0], "f32 3x3"), c("triu_indices", lambda x: x[tuple(torch.triu_indices(4, 4, 1))], "f32 4x4"),
        c("constant_only", lambda: torch.arange(6).reshape(2, 3) * 2), c("identity", lambda x: x, "f32 3x2"), c("clone", lambda x: x.clone(), "f32 2x3"), c("baked_tensor", lambda x: x + torch.tensor([1.0, 2.0, 3.0]), "f32 2x3"), c("fill", lambda x: torch.empty(2, 3).fill_(3.0) * x, "f32 3"),
        c("two_outputs_same", lambda x: (x + 1,) * 2, "f32 3"), c("none_output", lambda x: (x + 1, None, x.sum()), "f32 3"), c("nested_output", lambda x: {"a": x * 2, "b": [x + 1, (x - 1,)]}, "f32 3"), c("state_parameter", lambda m, x: x * m.scale + m.shift, "f32 2x3", state={"scale": "f32 3", "shift": "f32 2x1"}),
        c("size_value", lambda x: x * x.shape[0] + x.shape[1], "f32 3x4", more=[["f32 9x4"]], dynamic=({0: B},)), c("arange_dynamic", lambda x: torch.arange(x.shape[0]) * 2 + x, "i64 5", more=[["i64 12"]], dynamic=({0: N},)), c("causal_mask_dynamic", lambda x: x.masked_fill(torch.ones(x.shape[-1], x.shape[-1]).tril() == 0, float("-inf")).softmax(-1),
          "f32 2x5x5", more=[["f32 2x9x9"]], dynamic=({1: N, 2: N},)),
    ]


def statistics():
    return [
        c("quantile", lambda x: (torch.quantile(x, 0.3), torch.quantile(x, torch.tensor([0.1, 0.5, 1.0]), dim=1, keepdim=True)), "f32 5x7"),
        c("quantile_modes", lambda x: [torch.quantile(x, 0.37, dim=0, interpolation=m) for m in ("lower", "higher", "nearest", "midpoint")], "f32 9x3"),
        c("nanquantile", lambda x: torch.nanquantile(torch.where(x > 1, torch.nan, x), 0.6, dim=-1), "f32 4x9"),
        c("histogram", lambda x: torch.histogram(x, 5), "f32 40"), c("gradient", lambda x: torch.gradient(x, spacing=0.5, edge_order=2), "f32 6x5"),
        c("windows", lambda x: (x * torch.hann_window(9), x * torch.hamming_window(9, False), x * torch.blackman_window(9), x * torch.bartlett_window(9), x * torch.kaiser_window(9, False, 3.0)), "f32 9"),
        c("stft", lambda x: torch.view_as_real(torch.stft(x, 8, 3, window=torch.hann_window(6), win_length=6, return_complex=True)), "f32 2x30"),
        c("matrix_power", lambda x: torch.linalg.matrix_power(x, 5), "f32 2x3x3 u"), c("matrix_exp", torch.matrix_exp, "f32 2x4x4"),
        c("multilabel_margin", lambda x: F.multilabel_margin_loss(x, torch.tensor([[2, 0, -1, 1], [3, -1, 0, 0], [0, 1, 2, 3]])), "f32 3x4"),
        c("resize_antialiased", lambda x: (F.interpolate(x, (5, 9), mode="bilinear", antialias=True), F.interpolate(x, (5, 9), mode="bicubic", antialias=True)), "f32 1x2x11x7"),
        *[c(f"fractional_pool_{d}", lambda x, u, y, v: (*F.fractional_max_pool2d(x, (2, 3), output_size=(5, 7), return_indices=True, _random_samples=u.sigmoid()),
                                                         *F.fractional_max_pool3d(y, 2, output_ratio=0.7, return_indices=True, _random_samples=v.sigmoid())),
            f"{d} 4x3x16x16", f"{d} 4x3x2", f"{d} 2x3x9x8x7", f"{d} 2x3x3") for d in ("f32", "bf16", "f16")],
        c("mean_over_one", lambda x: (x.softmax(-1).mean(1), x.softmax(-1).sum(-1)), "f32 3x1x4x4"),
        c("position_of_one", lambda x: (x.argmax(1), x.argmin(1, keepdim=True), x.amax(1)), "i64 3x1x4"),
        c("embedding_max_norm", lambda m, i: F.embedding(i, m.w, max_norm=1.0), "i64 6 <5", state={"w": "f32 5x8"}),
    ]


def spd(x):
    return x @ x.mT + 2 * torch.eye(x.shape[-1])


def factorisations():
    L = torch.linalg
    return [
        c("solve", lambda a, b: (L.solve(a, b), L.solve(a, b[..., 0]), L.inv(a), L.det(a), L.slogdet(a)), "f32 2x5x5", "f32 2x5x3"),
        c("solve_right", lambda a, b: L.solve(a, b, left=False), "f32 4x4", "f32 3x4"), c("lu", lambda a: (*L.lu(a), *L.lu_factor(a)), "f32 5x3"),
        c("cholesky", lambda x: (L.cholesky(spd(x)), torch.cholesky_inverse(L.cholesky(spd(x)))), "f64 3x4x4"), c("qr", lambda a: (*L.qr(a), *L.qr(a, mode="complete")), "f32 6x4"),
        c("triangular", lambda a, b: (L.solve_triangular(a, b, upper=True), L.solve_triangular(a, b, upper=False, unitriangular=True)), "f32 4x4 >0", "f32 4x2"),
        c("eigenvalues", lambda x: (L.eigvalsh(spd(x)), L.eigh(spd(x))[1].abs()), "f32 2x6x6"), c("singular_values", lambda x: (L.svdvals(x), L.cond(x), L.norm(x, "nuc"), L.norm(x, 2)), "f32 7x4"),
        c("pinv", lambda x: (L.pinv(x), L.matrix_rank(x), L.pinv(x @ x.mT), L.pinv(x[:, :4], hermitian=True)), "f32 4x6"), c("power", lambda x: L.matrix_power(x, -2), "f64 3x3"),
        c("solve_empty", L.solve, "f32 2x0x0", "f32 2x0x3"),
    ]


def fused():
    return [
        c("norm_gelu_add_softmax", lambda x, y, w, b: (F.gelu(F.layer_norm(x, (40,), w, b)) + y).softmax(-1), "f32 9x40", "f32 9x40", "f32 40", "f32 40"), c("silu_mul", lambda x, y: F.silu(x) * y, "f32 5x33", "f32 5x33"), c("bias_gelu_dropout", lambda x, b: F.dropout(F.gelu(x + b), 0.1, False), "f32 5x33", "f32 33"), c("residual_rms", lambda x, y, w: (x + y, (x + y) * torch.rsqrt(((x + y) ** 2).mean(-1, True) + 1e-6) * w), "f32 5x32", "f32 5x32", "f32 32"),
        c("rotary", lambda q, s, k: q * s + torch.cat([-q[..., 4:], q[..., :4]], -1) * k, "f32 2x3x5x8", "f32 5x8", "f32 5x8"), c("attention_by_hand", lambda q, k, v: ((q @ k.transpose(-1, -2)) * 0.35).softmax(-1) @ v, "f32 2x3x5x8", "f32 2x3x7x8", "f32 2x3x7x8"), c("sum_of_products", lambda x, y: (x * y + x).sum(-1).relu(), "f32 7x65", "f32 7x65"), c("two_reductions", lambda x: (x - x.mean(-1, True)) / (x.std(-1, keepdim=True) + 1e-5), "f32 7x65"),
        c("row_and_column", lambda x: (x.sum(0), x.sum(1), x * 2), "f32 12x17"), c("chain_long", chain_long, "f32 257"), c("mask_and_count", lambda x: (torch.where(x > 0, x, torch.zeros_like(x)).sum(), (x > 0).sum()), "f32 333"), c("conv_bn_relu_add", lambda m, x: F.relu(F.batch_norm(F.conv2d(x, m.w, padding=1), m.mean, m.var, m.g, m.b, eps=1e-3) + x), "f32 1x4x7x7", state={"w": "f32 4x4x3x3", "mean": "f32 4", "var": "f32 4 >0", "g": "f32 4 >0", "b": "f32 4"}),
        c("squeeze_excite", lambda m, x: x * torch.sigmoid(F.conv2d(F.relu(F.conv2d(x.mean((2, 3), keepdim=True), m.a)), m.b)), "f32 2x6x5x5", state={"a": "f32 3x6x1x1", "b": "f32 6x3x1x1"}), c("gather_scale_reduce", lambda x, i: (x[i] * 3 + 1).mean(0), "f32 20x9", "i64 13 <20"), c("transpose_add", lambda x, y: x.t() + y, "f32 33x18", "f32 18x33"), c("concat_of_activations", lambda x: torch.cat([x.relu(), x.sigmoid(), -x], -1).amax(0), "f32 6x11"),
        c("linear_norm", lambda x, w, b: F.layer_norm(F.linear(x, w, b), (12,)), "f32 5x8", "f32 12x8", "f32 12"), c("sdpa", F.scaled_dot_product_attention, "f32 1x2x5x8", "f32 1x2x5x8", "f32 1x2x5x8"), c("pools_added", lambda x: F.max_pool2d(x, 2) + F.adaptive_avg_pool2d(x, 3), "f32 1x2x6x6"), c("unbind_all", lambda x: [t * 2 for t in x.unbind(0)], "f32 3x4"),
    ]


def chain_long(x):
    y = x
    for i in range(12):
        y = torch.tanh(y * 1.1 + 0.01 * i) + x * 0.1
    return y


SIZES = ["f32 256", "f32 100", "f32 6x64", "f32 12x28", "f32 3x33", "f32 12x25", "f32 77", "f32 9x6", "f32 1", "f32 5x5x5"]


def steps(*tensors):
    """One step of an optimiser over a list of tensors and their gradients, clipped by the norm of all: many small kernels."""
    half = len(tensors) // 2
    scale = 1 / (1 + torch.stack([g.norm() for g in tensors[half:]]).norm())
    return tuple(p * 0.999 - 0.01 * scale * g for p, g in zip(tensors[:half], tensors[half:]))


def lists():
    return [
        c("step", steps, *SIZES, *SIZES), c("equal", lambda *xs: tuple(torch.relu(x) * 2 + i for i, x in enumerate(xs)), *["f32 3x50"] * 20),
        c("norms", lambda *xs: torch.stack([x.norm() for x in xs] + [x.amax() for x in xs]), *SIZES), c("dynamic", lambda *xs: [x.softmax(-1) for x in xs] + [x.sum(0) for x in xs], *["f32 7x9", "f32 5x9", "f32 3x9"],
          dynamic=({0: N}, {0: Dim("m", min=1, max=64)}, {0: B}), more=[["f32 40x9", "f32 2x9", "f32 64x9"], ["f32 1x9", "f32 64x9", "f32 0x9"]]),
    ]


def constants():
    """Constants that several places read: a product, what follows it, an attention, an index, an output. In both orders in memory."""
    square = {"straight": lambda n: torch.randn(n, n), "transposed": lambda n: torch.randn(n, n).t()}
    attention = F.scaled_dot_product_attention
    functions = {
        "added": lambda m, x: torch.addmm(m.w, x, m.w), "bias_row": lambda m, x: F.linear(x, m.w, m.w[0]), "bias_column": lambda m, x: F.linear(x, m.w, m.w[:, 1]),
        "scaled": lambda m, x: F.linear(x, m.w) * m.w[2], "divided": lambda m, x: F.gelu(x @ m.w) / (m.w + 9), "between": lambda m, x: torch.addmm(m.w, x.t(), x) @ m.w,
        "addmv": lambda m, x: torch.addmv(m.w[0], m.w.t(), x[0]), "outer": lambda m, x: (F.linear(x, m.w), torch.outer(m.w[:, 0], m.w[1])),
        "keys": lambda m, x: (F.linear(x, m.w), attention(x[None], m.w[None], m.w[None])), "queries": lambda m, x: (x @ m.w, attention(m.w[None, None], x[None, None], x[None, None])),
        "mask": lambda m, x: (x @ m.w, attention(x[None, None], x[None, None], x[None, None], attn_mask=m.w[None, None])),
        "twice": lambda m, x: x @ m.w + x @ m.w.t(), "squared": lambda m, x: m.w @ m.w + x, "returned": lambda m, x: (F.linear(x, m.w), m.w + 0, m.w),
        "gathered": lambda m, x: F.linear(F.embedding((x[0] * 3).long() % 5 + 2, m.w), m.w), "summed": lambda m, x: (F.linear(x, m.w), m.w.sum(0), m.w.cumsum(1), m.w.sort(0)[0]),
    }
    cases = [Case(f"{name}_{order}", function, lambda n=n: [torch.randn(n, n)], state=lambda make=make, n=n: {"w": make(n)})
             for name, function in functions.items() for order, make in square.items() for n in [24]]
    cases += [Case(f"added_{n}", functions["added"], lambda n=n: [torch.randn(n, n)], state=lambda n=n: {"w": torch.randn(n, n)}) for n in (80,)]
    cases += [Case("added_bf16", lambda m, x: torch.addmm(m.w, x, m.w), lambda: [torch.randn(32, 32).bfloat16()], state=lambda: {"w": torch.randn(32, 32).bfloat16()}),
              Case("embedding_keys", lambda m, i: attention(m.w[None, None], F.embedding(i, m.w)[None, None], F.embedding(i, m.w)[None, None],
                                                            attn_mask=(m.w @ F.embedding(i, m.w).T)[None, None] > -0.5),
                   lambda: [torch.randint(0, 24, (9,))], state=lambda: {"w": torch.randn(24, 16)})]
    cases += [c("batched", lambda m, x: torch.baddbmm(m.w, x, m.w), "f32 2x12x12", state={"w": "f32 2x12x12"}),
              c("convolution", lambda m, x: F.conv2d(x, m.w, m.w[:, 0, 1, 1], padding=1) * m.w[0, :, 0, 0, None, None], "f32 1x8x6x6", state={"w": "f32 8x8x3x3"}),
              c("overwritten", lambda m, x: (x @ m.w, m.w.copy_(x))[0] + 1, "f32 12x12", state={"w": "f32 12x12"}),
              c("kept", lambda m, x: (x @ m.w, m.w.mul_(0.5))[0] + 1, "f32 6x12", state={"w": "f32 12x12"})]
    return cases


def narrow():
    """Integers whose upper half is negative for whoever forgets that they are unsigned, or whose products do not fit."""
    every = [torch.arange(256).to(torch.uint8), torch.arange(-128, 128).to(torch.int8)]
    one = {"relu": torch.relu, "signbit": torch.signbit, "sign": torch.sign, "sgn": torch.sgn, "square": torch.square, "clamp_min": lambda x: x.clamp(min=5), "shift": lambda x: (x >> 3, x << 3),
           "quotients": lambda x: (x // 7, x % 7, torch.div(x, 7, rounding_mode="trunc"), torch.fmod(x, 7)), "compared": lambda x: (x < 100, x >= 100, x.amax(), x.amin(), x.argmax(), x.sort()[0])}
    two = {"lcm": torch.lcm, "gcd": torch.gcd, "maximum": torch.maximum, "minimum": torch.minimum, "multiplied": torch.mul, "floor_divided": lambda x, y: x // (y | 1), "remainder": lambda x, y: x % (y | 1)}
    kind = {torch.uint8: "u8", torch.int8: "i8"}
    cases = [Case(f"{n}_{kind[x.dtype]}", f, lambda x=x: [x]) for n, f in one.items() for x in every]
    # The absolute value of -128 is no int8: what gcd and lcm give for it is chance.
    return cases + [Case(f"{n}_{kind[x.dtype]}", f, lambda x=x: [x, x.roll(37).flip(0)]) for n, f in two.items() for x in (every[:1] if n in ("gcd", "lcm") else every)]


def losses_of_linear():
    """What F.linear_cross_entropy becomes where it takes its rows by chunks: one operator, which may keep gradients."""
    import torch.nn.modules.linear_cross_entropy  # noqa: F401: registers the operators
    scalar, each = torch.ops.torch_nn._linear_cross_entropy_batch_chunked, torch.ops.torch_nn._linear_cross_entropy_batch_chunked_no_reduction

    def kept(x, w, target, bias, weight, reduction, acc=torch.float32, grads=True):
        return scalar(x, w, target, bias, weight, reduction, 2, 0.0, 4, "compact", acc, True, grads, grads, grads)

    def of_classes(x, w, t, b, g):
        return *kept(x, w, t, b, g, "mean"), *kept(x, w, t, None, None, "sum"), kept(x, w, t, b, g, "mean", grads=False)[0]

    def of_chances(x, w, p, b, g):
        return *kept(x, w, p.softmax(1), b, g, "mean"), *kept(x, w, p.softmax(1), None, None, "sum")

    return [c("classes", of_classes, "f32 9x6", "f32 5x6", "i64 9 <5", "f32 5", "f32 5 >0"), c("chances", of_chances, "f32 9x6", "f32 5x6", "f32 9x5", "f32 5", "f32 5 >0"),
            c("narrow", lambda x, w, t: (*kept(x, w, t, None, None, "mean"), each(x, w, t, None, None, -100, 4, "compact", torch.float32)), "bf16 9x6", "bf16 5x6", "i64 9 <5"),
            c("of_module", F.linear_cross_entropy, "f32 9x6", "f32 5x6", "i64 9 <5")]


def product_columns():
    """Products whose columns are no power of two, and many rows: blocks of 96 and of 192 columns fill a GPU best, the last one in part. Few values of each are kept."""
    def product(m, x):
        y = F.linear(x.bfloat16() @ m.first, m.second)
        return y.amax(0), y.amin(0), y[::509]

    state = lambda n: {"first": torch.randint(-4, 5, (4, 256)).bfloat16(), "second": torch.randint(-4, 5, (n, 256)).bfloat16()}  # noqa: E731
    return [Case(f"of_{n}", product, lambda rows=rows: [torch.randint(-4, 5, (rows, 4), dtype=torch.int8)], state=lambda n=n: state(n)) for n, rows in ((90, 16896), (378, 8320))]


def shared_weights():
    """One weight of several products: alike, with other numbers of rows, across, and beside what reads it in its own order."""
    def steps(m, x):
        for _ in range(4):
            x = torch.tanh(F.linear(x, m.w, m.b))
        return x

    def images(m, x):
        return F.conv2d(F.conv2d(x, m.w, padding=1).relu(), m.w, padding=1)

    w = lambda *sizes, scale=0.2: lambda: {"w": torch.randn(*sizes) * scale, "b": torch.randn(sizes[0])}  # noqa: E731
    c = Case
    return [c("steps", steps, lambda: [torch.randn(24, 64)], state=w(64, 64)),
            c("steps_of_odd_sizes", steps, lambda: [torch.randn(21, 70)], state=w(70, 70)),
            c("steps_bf16", steps, lambda: [torch.randn(24, 64).bfloat16()], state=lambda: {k: v.bfloat16() for k, v in w(64, 64)().items()}),
            c("two_numbers_of_rows", lambda m, x, y: (F.linear(x, m.w, m.b), F.linear(y, m.w)), lambda: [torch.randn(40, 64), torch.randn(3, 64)], state=w(96, 64)),
            c("across", lambda m, x: F.linear(F.linear(x, m.w) @ m.w, m.w), lambda: [torch.randn(24, 64)], state=w(64, 64)),
            c("gathered_too", lambda m, i: F.linear(F.embedding(i, m.w), m.w), lambda: [torch.randint(0, 80, (24,))], state=w(80, 64)),
            c("parts", lambda m, x: F.linear(x, m.w[:64]) + F.linear(x, m.w[64:]), lambda: [torch.randn(24, 64)], state=w(128, 64)),
            c("returned_too", lambda m, x: (F.linear(F.linear(x, m.w), m.w), m.w), lambda: [torch.randn(24, 64)], state=w(64, 64)),
            c("images", images, lambda: [torch.randn(2, 16, 9, 11)], state=w(16, 16, 3, 3, scale=0.1)),
            c("batches", lambda m, x: torch.bmm(torch.bmm(x, m.w), m.w), lambda: [torch.randn(3, 20, 32)], state=w(3, 32, 32))]


def groups():
    result = {f.__name__: f() for f in (unary, activations, binary, dtypes, reductions, normalisation, moments, overlaps, losses, losses_of_linear, views, joins, indexing,
                                        ordering, long_rows, matmuls, convolutions, creation, statistics, factorisations, fused, lists, constants, narrow, product_columns, shared_weights)}
    for name, group in result.items():
        names = [case.name for case in group]
        assert len(set(names)) == len(names), f"{name}: two cases of one name: {sorted(n for n in names if names.count(n) > 1)}"
    return result
