"""Operators of public libraries of Triton kernels, forward and backward at sizes of use: a program for tools/triton_on_neso.py.

    tools/triton_on_neso.py --build build/release --device cuda --peer F bench/gpu/public_kernels.py [NAME…]

holds each kernel that they launch against Triton's own code for it, in result and in time (`bench/results/triton_gpu.json`). A NAME may
end with *. Libraries that cannot be imported are said and left out: fla (flash-linear-attention), liger_kernel, mamba_ssm (its Triton
files alone are wanted; MAMBA names the folder of the sources), mlstm_kernels, cut_cross_entropy.
"""
import importlib
import inspect
import os
import sys
import types

import torch
import torch.nn.functional as F

torch.set_default_device("cuda")
torch.manual_seed(0)
BATCH, TIME, HEADS, WIDTH = 2, 2048, 8, 64
ROWS, COLUMNS, VOCABULARY = 8192, 2048, 32000
CASES = {}


def case(name):
    def add(work):
        CASES[name] = work
        return work
    return add


def find(module, name):
    return getattr(importlib.import_module(module), name)


def random(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape).to(dtype)


def leaf(value):
    return value.clone().requires_grad_(value.is_floating_point()) if isinstance(value, torch.Tensor) else value


def backward(result):
    result = result[0] if isinstance(result, tuple) else result
    result.backward(torch.randn_like(result))


# ---- fla: name of the operator's folder, its inputs beside q, k and v

def heads(width=WIDTH, dtype=torch.bfloat16):
    return random(BATCH, TIME, HEADS, width, dtype=dtype)


def gates(*shape, dtype=torch.float32):
    return F.logsigmoid(random(*shape, dtype=dtype))


def unit():
    return F.normalize(heads(), dim=-1)


def per_head():
    return gates(BATCH, TIME, HEADS)


def delta():
    return {"k": unit(), "beta": torch.sigmoid(random(BATCH, TIME, HEADS))}


def small():
    return {"q": heads(16), "k": heads(16)}


def channels():
    return {"x": random(BATCH, TIME, 512, dtype=torch.float32), "g": gates(BATCH, TIME, 512)}


FLA = {
    "chunk_gla": ("gla", lambda: {"g": gates(BATCH, TIME, HEADS, WIDTH, dtype=torch.bfloat16)}),
    "chunk_simple_gla": ("simple_gla", lambda: {"g": per_head()}),
    "parallel_simple_gla": ("simple_gla", lambda: {"g": per_head()}),
    "fused_recurrent_simple_gla": ("simple_gla", lambda: {"g": per_head()}),
    "chunk_linear_attn": ("linear_attn", lambda: {"normalize": False}),
    "fused_chunk_linear_attn": ("linear_attn", lambda: {"normalize": False}),
    "chunk_delta_rule": ("delta_rule", delta),
    "fused_recurrent_delta_rule": ("delta_rule", delta),
    "chunk_gated_delta_rule": ("gated_delta_rule", lambda: delta() | {"g": per_head()}),
    "fused_recurrent_gated_delta_rule": ("gated_delta_rule", lambda: delta() | {"g": per_head()}),
    "chunk_kda": ("kda", lambda: delta() | {"g": gates(BATCH, TIME, HEADS, WIDTH, dtype=torch.bfloat16)}),
    "chunk_hgrn": ("hgrn", channels),
    "fused_recurrent_hgrn": ("hgrn", channels),
    "chunk_gsa": ("gsa", lambda: {"s": heads(), "g": gates(BATCH, TIME, HEADS, WIDTH, dtype=torch.bfloat16)}),
    "parallel_forgetting_attn": ("forgetting_attn", lambda: {"g": per_head()}),
    "parallel_stickbreaking_attn": ("stickbreaking_attn", lambda: {"scale": WIDTH**-0.5}),
    "parallel_path_attn": ("path_attn", lambda: {"w": unit().float(), "beta": torch.rand(BATCH, TIME, HEADS), "g": per_head(), "scale": WIDTH**-0.5}),
    "parallel_attn": ("attn", dict),
    "chunk_comba": ("comba", lambda: delta() | {"p": unit() * 0.5, "g": per_head()}),
    "chunk_mesa_net": ("mesa_net", lambda: delta() | {"g": per_head(), "lamb": torch.rand(HEADS, WIDTH) + 0.25}),
    "chunk_retention": ("retention", lambda: {"k": unit()}),
    "parallel_retention": ("retention", lambda: {"k": unit()}),
    "parallel_based": ("based", small),
    "parallel_rebased": ("rebased", small),
}
FORWARD_ALONE = {"fused_recurrent_gated_delta_rule"}  # the library has no backward


def fla(name):
    folder, more = FLA[name]
    operator = find("fla.ops." + folder, name)
    takes = inspect.signature(operator).parameters
    inputs = {k: leaf(v) for k, v in ({"q": heads(), "k": heads(), "v": heads()} | more()).items() if k in takes}
    result = operator(**inputs)
    if name not in FORWARD_ALONE:
        backward(result)


for operator in FLA:
    case("fla." + operator)(lambda operator=operator: fla(operator))


def matrix(rows=ROWS, columns=COLUMNS, dtype=torch.bfloat16):
    return leaf(random(rows, columns, dtype=dtype))


@case("fla.norms")
def _():
    backward(find("fla.modules", "RMSNorm")(COLUMNS).bfloat16()(matrix()))
    backward(find("fla.modules", "LayerNorm")(COLUMNS).bfloat16()(matrix()))
    backward(find("fla.modules.l2norm", "l2norm")(matrix(ROWS * COLUMNS // 64, 64)))


@case("fla.activations")
def _():
    for name in ("swish", "logsigmoid", "sqrelu"):
        backward(find("fla.modules.activations", name)(matrix()))
    backward(find("fla.modules.activations", "swiglu")(matrix(), matrix()))


@case("fla.modules")
def _():
    targets = torch.randint(0, VOCABULARY, (2048, ))
    backward(find("fla.modules.fused_cross_entropy", "FusedCrossEntropyLoss")(inplace_backward=False)(matrix(2048, VOCABULARY), targets))
    backward(find("fla.modules.convolution", "ShortConvolution")(1024, 4, activation="silu").bfloat16()(leaf(random(4, 2048, 1024))))
    backward(find("fla.modules.token_shift", "token_shift")(leaf(random(4, 2048, 1024))))


# ---- liger_kernel: autograd functions and their arguments

def probabilities():
    return F.softmax(random(2048, 8192, dtype=torch.float32), -1)


def vector(n=COLUMNS, dtype=torch.bfloat16):
    return random(n, dtype=dtype)


LIGER = {
    "rms_norm.LigerRMSNormFunction": lambda: (matrix(), vector(), 1e-6, 0.0, "llama", False),
    "layer_norm.LigerLayerNormFunction": lambda: (matrix(), vector(), vector(), 1e-6),
    "fused_add_rms_norm.LigerFusedAddRMSNormFunction": lambda: (matrix(), matrix(), vector(), 1e-6, 0.0, "llama", False),
    "group_norm.LigerGroupNormFunction": lambda: (random(32, 256, 1024, dtype=torch.float32), vector(256, torch.float32), vector(256, torch.float32), 256, 32, 1e-6),
    "swiglu.LigerSiLUMulFunction": lambda: (matrix(), matrix()),
    "geglu.LigerGELUMulFunction": lambda: (matrix(), matrix()),
    "relu_squared.LigerReLUSquaredFunction": lambda: (matrix(), ),
    "dyt.LigerDyTFunction": lambda: (matrix(), vector(1), vector(), vector()),
    "softmax.LigerSoftmaxFunction": lambda: (matrix(), ),
    "sparsemax.LigerSparsemaxFunction": lambda: (matrix(dtype=torch.float32), -1),
    "kl_div.LigerKLDivLossFunction": lambda: (probabilities().log(), probabilities()),
    "jsd.LigerJSDFunction": lambda: (probabilities().log(), probabilities().log()),
    "tvd.LigerTVDLossFunction": lambda: (probabilities(), probabilities()),
    "cross_entropy.LigerCrossEntropyFunction": lambda: (random(2048, VOCABULARY), torch.randint(0, VOCABULARY, (2048, )), None),
    "fused_linear_cross_entropy.LigerFusedLinearCrossEntropyFunction":
        lambda: (random(2048, 1024), random(VOCABULARY, 1024), torch.randint(0, VOCABULARY, (2048, ))),
}


def liger(name):
    backward(find("liger_kernel.ops." + name.split(".")[0], name.split(".")[1]).apply(*[leaf(a) for a in LIGER[name]()]))


for function in LIGER:
    case("liger." + function.split(".")[0])(lambda function=function: liger(function))


@case("liger.rope")
def _():
    q, k = leaf(random(4, 16, 2048, 128)), leaf(random(4, 4, 2048, 128))
    a, b = find("liger_kernel.ops.rope", "LigerRopeFunction").apply(q, k, random(1, 2048, 128), random(1, 2048, 128))
    (a.sum() + b.sum()).backward()


# ---- mamba_ssm: the package itself wants compiled extensions, its Triton files do not

def mamba(module, name):
    for package in ("", ".ops", ".ops.triton", ".utils"):
        made = types.ModuleType("mamba_ssm" + package)
        made.__path__ = [os.path.join(os.environ.get("MAMBA", ""), "mamba_ssm" + package.replace(".", "/"))]
        sys.modules.setdefault("mamba_ssm" + package, made)
    return find("mamba_ssm.ops.triton." + module, name)


@case("mamba.ssd")
def _():
    heads_, groups, state = 16, 2, 64
    x, B, C = (leaf(random(BATCH, TIME, n, WIDTH)) for n in (heads_, groups, groups))
    step, A, D = F.softplus(random(BATCH, TIME, heads_, dtype=torch.float32) - 2), -torch.exp(torch.rand(heads_)), torch.randn(heads_)
    assert B.shape[-1] == state
    backward(mamba("ssd_combined", "mamba_chunk_scan_combined")(x, leaf(step), leaf(A), B, C, 256, D=leaf(D)))


@case("mamba.norms")
def _():
    backward(mamba("layer_norm", "layer_norm_fn")(matrix(), leaf(vector()), leaf(vector()), residual=matrix(), eps=1e-6))
    backward(mamba("layernorm_gated", "layernorm_fn")(matrix(), leaf(vector()), None, z=matrix(), eps=1e-6, is_rms_norm=True))


# ---- others

@case("cut_cross_entropy")
def _():
    backward(find("cut_cross_entropy", "linear_cross_entropy")(leaf(random(2048, 1024) * 0.1), leaf(random(VOCABULARY, 1024) * 0.1),
                                                              torch.randint(0, VOCABULARY, (2048, ))))


@case("mlstm")
def _():
    for module, name in (("triton_limit_chunk", "mlstm_chunkwise__limit_chunk"), ("triton_xl_chunk", "mlstm_chunkwise__xl_chunk")):
        q, k, v = (leaf(random(2, 4, 2048, 128)) for _ in range(3))
        backward(find("mlstm_kernels.torch.chunkwise." + module, name)(q, k, v, leaf(random(2, 4, 2048)), leaf(random(2, 4, 2048))))


def main():
    wanted = sys.argv[1:] or ["*"]
    for name, work in CASES.items():
        if not any(name == w or w.endswith("*") and name.startswith(w[:-1]) for w in wanted):
            continue
        try:
            work()
            torch.cuda.synchronize()
            print("ok", name, flush=True)
        except ImportError as e:
            print("left out", name, e, flush=True)
        except Exception as e:  # noqa: BLE001: what a library refuses is that library's matter
            print("failed", name, type(e).__name__, str(e)[:300].replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
