"""What is measured on the GPU: lines of memory-bound work, more of them that are no part of the table, kernels in Triton's language, models. Inputs and weights follow from seeds, so that
the machine that compiles and the one that runs have the same."""
import re
from functools import partial

import torch
from torch import nn

import networks

F = nn.functional
ROWS, COLUMNS = 8192, 4096


class Line(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def f32(*shape):
    return lambda g: torch.rand(*shape, generator=g) * 4 - 2


def integers(high, *shape):
    return lambda g: torch.randint(0, high, shape, generator=g)


def bf16(*shape):
    return lambda g: (torch.rand(*shape, generator=g) * 4 - 2).to(torch.bfloat16)


X = f32(ROWS, COLUMNS)
# name → (function, inputs, bytes that must move)
LINES = {
    "add_gelu": (lambda x, y: F.gelu(x + y), [X, X], 12 * ROWS * COLUMNS),
    "softmax": (lambda x: torch.softmax(x, -1), [X], 8 * ROWS * COLUMNS),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b), [X, f32(COLUMNS), f32(COLUMNS)], 8 * ROWS * COLUMNS),
    "rms_norm": (lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, [X, f32(COLUMNS)], 8 * ROWS * COLUMNS),
    "silu_mul": (lambda x, y: F.silu(x) * y, [X, X], 12 * ROWS * COLUMNS),
    "sum_inner": (lambda x: x.sum(-1), [X], 4 * ROWS * COLUMNS),
    "sum_outer": (lambda x: x.sum(0), [X], 4 * ROWS * COLUMNS),
    "sum_all": (lambda x: x.sum(), [X], 4 * ROWS * COLUMNS),
    "var_mean": (lambda x: torch.var_mean(x, -1), [X], 4 * ROWS * COLUMNS),
    "argmax": (lambda x: x.argmax(-1), [X], 4 * ROWS * COLUMNS),
    "cumsum": (lambda x: x.cumsum(-1), [X], 8 * ROWS * COLUMNS),
    "transpose_add": (lambda x, y: x.t().contiguous() + y, [X, f32(COLUMNS, ROWS)], 12 * ROWS * COLUMNS),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), [f32(4096, 32000), integers(32000, 4096)], 4 * 4096 * 32000),
    "sort": (lambda x: tuple(torch.sort(x, -1)), [f32(ROWS, 1024)], 16 * ROWS * 1024),
    "dropout": (lambda x: F.dropout(x, 0.5, True), [X], 8 * ROWS * COLUMNS),
    "embedding": (lambda t, w: F.embedding(t, w), [integers(32000, ROWS), f32(32000, COLUMNS)], 8 * ROWS * COLUMNS),
}

SIZES = [(256,), (1000,), (64, 64), (512, 128), (3, 333), (128, 256), (77,), (96, 96), (1024,), (32, 1024)]


def steps(*tensors):
    """One step of an optimiser over a list of tensors and their gradients, clipped by the norm of all."""
    half = len(tensors) // 2
    scale = 1 / (1 + torch.stack([g.norm() for g in tensors[half:]]).norm())
    return tuple(p * 0.999 - 0.01 * scale * g for p, g in zip(tensors[:half], tensors[half:]))


# Beside the sixteen: rows that several programs share, many small kernels. Not in the mean of the lines.
MORE = {
    "cumsum_1d": (lambda x: x.cumsum(0), [f32(1 << 24)], 8 << 24),
    "cumsum_4_rows": (lambda x: x.cumsum(-1), [f32(4, 1 << 20)], 8 << 22),
    "cumsum_i64": (lambda x: x.cumsum(-1), [integers(100, 2, 1 << 22)], 16 << 23),
    "cumprod_1d": (lambda x: (1 + x * 1e-4).cumprod(0), [f32(1 << 22)], 8 << 22),
    "softmax_long": (lambda x: torch.softmax(x, -1), [f32(256, 100000)], 8 * 256 * 100000),
    "many_small": (steps, [f32(*s) for s in SIZES * 2 + SIZES * 2], 4),
    "relus": (lambda *xs: tuple(torch.relu(x) + 1 for x in xs), [f32(64, 1024)] * 20, 160 * 65536),
}


# Products of a decoder's layers with few rows, whose weights lie as [N, K] and are inputs here. Bound by the weights' bytes.
for rows in (1, 8, 16, 32, 64):
    for columns, depth in ((14336, 4096), (4096, 14336), (4096, 4096), (1024, 4096)):
        MORE[f"linear_{rows}_{columns}_{depth}"] = (F.linear, [bf16(rows, depth), bf16(columns, depth)], 2 * (rows * depth + columns * depth + rows * columns))


def tolerance_of(name):
    """Of a line's result, relative to the norm of eager's."""
    return 1e-2 if name.startswith("linear_") else 1e-4


def inputs_of(makers, seed=7):
    g = torch.Generator().manual_seed(seed)
    return [m(g) for m in makers]


# name → (function in gpu_kernels.py, signature, configurations, hints)
GEMM = [dict(BM=128, BN=128, BK=32, GROUP=8, num_warps=8, num_stages=3), dict(BM=128, BN=128, BK=64, GROUP=8, num_warps=8, num_stages=3),
        dict(BM=128, BN=256, BK=32, GROUP=8, num_warps=8, num_stages=3), dict(BM=128, BN=256, BK=64, GROUP=8, num_warps=8, num_stages=3),
        dict(BM=128, BN=64, BK=64, GROUP=8, num_warps=4, num_stages=4), dict(BM=256, BN=64, BK=64, GROUP=8, num_warps=8, num_stages=3), dict(BM=128, BN=128, BK=32, GROUP=8, num_warps=4, num_stages=3),
        dict(BM=128, BN=128, BK=32, GROUP=8, num_warps=4, num_stages=4), dict(BM=256, BN=128, BK=64, GROUP=8, num_warps=8, num_stages=3),
        dict(BM=128, BN=256, BK=32, GROUP=8, num_warps=8, num_stages=4),
        dict(BM=64, BN=256, BK=64, GROUP=8, num_warps=4, num_stages=3), dict(BM=64, BN=128, BK=64, GROUP=8, num_warps=4, num_stages=4),
        dict(BM=64, BN=64, BK=128, GROUP=8, num_warps=4, num_stages=4), dict(BM=16, BN=128, BK=128, GROUP=8, num_warps=4, num_stages=4),
        dict(BM=16, BN=64, BK=256, GROUP=8, num_warps=4, num_stages=3)]
# Products that are measured: suffix of the name → (M, N, K). Skinny ones are those of a decoder's layers.
GEMMS = {"_2048": (2048, 2048, 2048), "_4096": (4096, 4096, 4096), "_8192": (8192, 8192, 8192), "_m1": (1, 14336, 4096), "_m16": (16, 14336, 4096),
         "_m64": (64, 14336, 4096), "_m512": (512, 4096, 14336)}
ATTENTION = [dict(BM=128, BN=64, D=128, num_warps=8, num_stages=3), dict(BM=64, BN=64, D=128, num_warps=4, num_stages=3),
             dict(BM=128, BN=32, D=128, num_warps=8, num_stages=3), dict(BM=128, BN=128, D=128, num_warps=8, num_stages=2),
             dict(BM=128, BN=64, D=128, num_warps=4, num_stages=2)]
KERNELS = {
    "add": ("x_ptr:*fp32,y_ptr:*fp32,out_ptr:*fp32,n:i32,BLOCK:constexpr", [dict(BLOCK=1024, num_warps=4), dict(BLOCK=2048, num_warps=8)], ["n"]),
    "softmax": ("x_ptr:*fp32,out_ptr:*fp32,stride:i32,columns:i32,BLOCK:constexpr", [dict(BLOCK=4096, num_warps=8), dict(BLOCK=4096, num_warps=16)], ["stride", "columns"]),
    "layer_norm": ("x_ptr:*fp32,weight_ptr:*fp32,bias_ptr:*fp32,out_ptr:*fp32,stride:i32,columns:i32,eps:fp32,BLOCK:constexpr",
                   [dict(BLOCK=4096, num_warps=8), dict(BLOCK=4096, num_warps=16)], ["stride", "columns"]),
    "row_sum": ("x_ptr:*fp32,out_ptr:*fp32,stride:i32,columns:i32,BLOCK:constexpr", [dict(BLOCK=2048, num_warps=8), dict(BLOCK=1024, num_warps=4)], ["stride", "columns"]),
    "transpose": ("x_ptr:*fp32,out_ptr:*fp32,rows:i32,columns:i32,BM:constexpr,BN:constexpr", [dict(BM=32, BN=32, num_warps=4), dict(BM=64, BN=64, num_warps=8)], ["rows", "columns"]),
    "gemm": ("a_ptr:*bf16,b_ptr:*bf16,c_ptr:*bf16,M:i32,N:i32,K:i32,BM:constexpr,BN:constexpr,BK:constexpr,GROUP:constexpr", GEMM, ["N", "K"]),
    "attention": ("q_ptr:*bf16,k_ptr:*bf16,v_ptr:*bf16,out_ptr:*bf16,head_stride:i32,length:i32,scale:fp32,BM:constexpr,BN:constexpr,D:constexpr,CAUSAL:constexpr",
                  [c | {"CAUSAL": causal} for causal in (False, True) for c in ATTENTION], ["head_stride", "length"]),
}

# Products of other kinds, whose operands lie with K side by side: of the signature operands, result, sums; bytes of an operand's element.
KINDS = {"gemm_e4m3": ("fp8e4nv", "bf16", "tl.float32", 1), "gemm_e5m2": ("fp8e5", "bf16", "tl.float32", 1), "gemm_s8": ("i8", "i32", "tl.int32", 1),
         "gemm_tf32": ("fp32", "fp32", "tl.float32", 4), "gemm_bf16": ("bf16", "bf16", "tl.float32", 2)}
# Rows, columns, bytes of K of a block; warps, stages.
KIND_BLOCKS = [(128, 256, 128, 8, 3), (128, 256, 128, 8, 4), (128, 256, 64, 8, 4), (128, 128, 128, 8, 3), (128, 128, 128, 8, 4), (128, 128, 128, 4, 3),
               (256, 128, 128, 8, 3), (64, 256, 128, 4, 3), (64, 128, 128, 4, 4)]
for kind, (operand, result, sums, size) in KINDS.items():
    KERNELS[kind] = (f"a_ptr:*{operand},b_ptr:*{operand},c_ptr:*{result},M:i32,N:i32,K:i32,BM:constexpr,BN:constexpr,BK:constexpr,GROUP:constexpr,SUM:constexpr",
                     [dict(BM=m, BN=n, BK=k // size, GROUP=8, SUM=sums, num_warps=warps, num_stages=stages) for m, n, k, warps, stages in KIND_BLOCKS], ["N", "K"])
# The functions of kernels that are not named like them.
FUNCTIONS = {kind: "gemm_rows" for kind in KINDS}

# What is measured of a kernel: suffixes of its name.
CASES = {"gemm": list(GEMMS), "attention": ["", "_causal"]} | {kind: ["_2048", "_4096", "_8192", "_m512"] for kind in KINDS}


def measured(kernel, only):
    """The names of a kernel's cases that the regular expression finds, as `gemm_2048`."""
    return [kernel + suffix for suffix in CASES.get(kernel, [""]) if re.search(only, kernel + suffix)]


def fits(kernel, config, suffix):
    """Whether a configuration is one for the case."""
    if kernel == "attention":
        return config["CAUSAL"] == (suffix == "_causal")
    if not kernel.startswith("gemm"):
        return True
    rows = GEMMS[suffix][0]
    return config["BM"] <= max(rows, 16) and (rows < 512 or config["BM"] >= 64) and (rows < 2048 or config["BM"] >= 128)


class Block(nn.Module):
    """A BERT layer."""

    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (part.view(b, t, self.heads, w // self.heads).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, w)
        x = self.norm1(x + self.out(a))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """BERT-base without pooling."""

    def __init__(self, layers=12, width=768, heads=12, inner=3072, words=30522):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(words, width), nn.Embedding(512, width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, heads, inner) for _ in range(layers))

    def forward(self, tokens):
        x = self.norm(self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device)))
        for block in self.blocks:
            x = block(x)
        return x


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        f = x.float()
        return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


class LlamaLayer(nn.Module):
    def __init__(self, width, heads, kv, inner):
        super().__init__()
        self.heads, self.kv, self.head = heads, kv, width // heads
        self.q, self.k, self.v = (nn.Linear(width, n * self.head, bias=False) for n in (heads, kv, kv))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)

    def forward(self, x, cos, sin):
        b, t, w = x.shape
        h = self.norm1(x)
        split = lambda y, n: y.view(b, t, n, self.head).transpose(1, 2)  # noqa: E731
        turn = lambda y: y * cos + torch.cat([-y[..., self.head // 2:], y[..., :self.head // 2]], -1) * sin  # noqa: E731
        q, k, v = turn(split(self.q(h), self.heads)), turn(split(self.k(h), self.kv)), split(self.v(h), self.kv)
        k, v = (y.repeat_interleave(self.heads // self.kv, 1) for y in (k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, w))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, layers=4, width=2048, heads=32, kv=8, inner=5632, words=32000):
        super().__init__()
        self.words, self.norm = nn.Embedding(words, width), RmsNorm(width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, kv, inner) for _ in range(layers))
        self.head_size = width // heads

    def forward(self, tokens):
        x = self.words(tokens)
        at = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
        rate = 10000 ** (-torch.arange(0, self.head_size, 2, device=tokens.device, dtype=torch.float32) / self.head_size)
        angle = torch.outer(at, rate).repeat(1, 2)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


def of_torchvision(name):
    """The model of that name, to be made."""
    def make():
        import torchvision
        return getattr(torchvision.models, name)(weights=None)
    return make


# name → (model, dtype, inputs)
IMAGE = f32(8, 3, 224, 224)
MODELS = {
    "resnet50_b1": (of_torchvision("resnet50"), torch.float32, [f32(1, 3, 224, 224)]),
    "bert_base_8x128": (Bert, torch.bfloat16, [integers(30522, 8, 128)]),
    "llama4_1x512": (Llama, torch.bfloat16, [integers(32000, 1, 512)]),
    "vit_b_8": (of_torchvision("vit_b_16"), torch.bfloat16, [IMAGE]),
    "llama4_1x1": (Llama, torch.bfloat16, [integers(32000, 1, 1)]),
}
# Those that convolve.
CONVOLUTIONS = {
    "unet_2x128": (networks.UNet, torch.bfloat16, [f32(2, 4, 128, 128)]),
    "resnet50_b32_bf16": (of_torchvision("resnet50"), torch.bfloat16, [f32(32, 3, 224, 224)]),
    "densenet121_8": (of_torchvision("densenet121"), torch.float32, [IMAGE]),
    "densenet121_8_bf16": (of_torchvision("densenet121"), torch.bfloat16, [IMAGE]),
    "convnext_t_8": (of_torchvision("convnext_tiny"), torch.bfloat16, [IMAGE]),
}
# Further ones, of products and attention.
TRANSFORMERS = {
    "bert_large_1x384": (partial(Bert, layers=24, width=1024, heads=16, inner=4096), torch.bfloat16, [integers(30522, 1, 384)]),
    "gpt2_1x1024": (networks.Gpt2, torch.bfloat16, [integers(50257, 1, 1024)]),
    "llama8_4x1024": (partial(Llama, layers=8), torch.bfloat16, [integers(32000, 4, 1024)]),
    "swin_t_8": (of_torchvision("swin_t"), torch.bfloat16, [IMAGE]),
    "whisper_base": (networks.WhisperEncoder, torch.bfloat16, [f32(1, 80, 3000)]),
}
MODELS |= CONVOLUTIONS | TRANSFORMERS


def model_of(name):
    """In evaluation mode, with weights that repeat a pool of random numbers: the package of a large model then packs small."""
    make, dtype, _ = MODELS[name]
    with torch.device("meta"):
        model = make()
    model = model.to_empty(device="cpu").eval()
    pool = torch.randn(4099, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        for key, p in list(model.named_parameters()) + list(model.named_buffers()):
            if not p.is_floating_point():
                p.zero_()
            elif key.endswith("running_var") or p.dim() == 1 and key.endswith("weight"):
                p.fill_(1)
            elif p.dim() == 1:
                p.zero_()
            else:
                fan = p[0].numel() if p.dim() > 1 else 1
                p.copy_(pool.repeat(-(-p.numel() // len(pool)))[:p.numel()].view(p.shape) / fan ** 0.5)
    return model.to(dtype)
