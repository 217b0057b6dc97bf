"""The reduced-width models of tests/goldens: one entry a family, as the model libraries write them.

Each entry gives a module, its example inputs for several sizes, and which dimensions are dynamic. The first set of
inputs is the one that the program is exported with. Widths are cut so that a program stays near 300 kB.
"""
import dataclasses
from typing import Any, Callable

import torch
from torch import nn
from torch.export import Dim

F = nn.functional


@dataclasses.dataclass
class Family:
    name: str
    build: Callable[[], nn.Module]
    # Each set is a tuple of arguments; or a dict of keyword arguments.
    sets: Callable[[], list]
    dynamic: Any = None


def images(*sizes):
    return lambda: [(torch.randn(*size),) for size in sizes]


def tokens(vocabulary, *sizes):
    return lambda: [(torch.randint(0, vocabulary, size),) for size in sizes]


BATCH = Dim("batch", min=1, max=64)
LENGTH = Dim("length", min=2, max=64)


class Outputs(nn.Module):
    """A Hugging Face model as a function from plain arguments to a tuple of the named outputs."""

    def __init__(self, model, names, fixed=None):
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed or {}

    def forward(self, **kwargs):
        out = self.model(**kwargs, **self.fixed)
        return tuple(out[name] for name in self.names)


def resnet():
    from timm.models.resnet import BasicBlock, ResNet
    return ResNet(BasicBlock, (1, 1, 1, 1), num_classes=10, channels=(8, 16, 24, 32), stem_width=8)


def resnet_bottleneck():
    from timm.models.resnet import Bottleneck, ResNet
    return ResNet(Bottleneck, (1, 1, 1, 1), num_classes=7, channels=(4, 4, 8, 8), stem_width=8, cardinality=2, base_width=64)


def mobilenet_v3():
    from torchvision.models.mobilenetv3 import MobileNetV3, _mobilenet_v3_conf
    blocks, last = _mobilenet_v3_conf("mobilenet_v3_small", width_mult=0.1, reduced_tail=True)
    return MobileNetV3(blocks, last, num_classes=8)


def efficientnet():
    from timm.models._efficientnet_builder import decode_arch_def
    from timm.models.efficientnet import EfficientNet
    blocks = decode_arch_def([["ds_r1_k3_s1_e1_c8_se0.25"], ["ir_r2_k3_s2_e3_c12_se0.25"], ["ir_r1_k5_s2_e3_c16_se0.25"],
                              ["ir_r1_k3_s2_e3_c20_se0.25"]])
    return EfficientNet(blocks, num_classes=9, num_features=40, stem_size=8, act_layer=nn.SiLU)


def convnext():
    from timm.models.convnext import ConvNeXt
    return ConvNeXt(num_classes=6, depths=(1, 1, 2, 1), dims=(8, 12, 16, 24), ls_init_value=1.0)


def vit():
    from timm.models.vision_transformer import VisionTransformer
    return VisionTransformer(img_size=32, patch_size=8, num_classes=11, embed_dim=36, depth=3, num_heads=3, mlp_ratio=3)


def swin():
    from timm.models.swin_transformer import SwinTransformer
    return SwinTransformer(img_size=32, patch_size=2, num_classes=5, embed_dim=12, depths=(2, 2), num_heads=(2, 3), window_size=4)


class UNet(nn.Module):
    """Down twice, up twice by transposed convolution and by interpolation, skips by concatenation, group norm."""

    def __init__(self):
        super().__init__()

        def block(before, after):
            return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(2, after), nn.SiLU(inplace=True),
                                 nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True))

        self.down1, self.down2, self.bottom = block(3, 8), block(8, 16), block(16, 24)
        self.up2 = nn.ConvTranspose2d(24, 16, 2, stride=2)
        self.join2, self.join1 = block(32, 16), block(24, 8)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        low = self.bottom(F.avg_pool2d(two, 2))
        two = self.join2(torch.cat([self.up2(low), two], 1))
        wide = F.interpolate(two, scale_factor=2, mode="bilinear", align_corners=False)
        return torch.sigmoid(self.head(self.join1(torch.cat([wide, one], 1))))


class Masked(nn.Module):
    """Positional arguments: torch 2.15 writes guards that it cannot read back for a mask given by name."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask)


def bert():
    from transformers import BertConfig, BertModel
    config = BertConfig(vocab_size=101, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=72,
                        max_position_embeddings=64)
    return Masked(Outputs(BertModel(config), ["last_hidden_state", "pooler_output"]))


def bert_sets():
    sets = []
    for batch, length in ((2, 12), (1, 5), (3, 33)):
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[0, length // 2:] = 0
        sets.append((torch.randint(0, 101, (batch, length)), mask))
    return sets


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    config = GPT2Config(vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0,
                        attn_implementation="eager")
    return Outputs(GPT2LMHeadModel(config), ["logits"], {"use_cache": False})


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=89, hidden_size=32, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64)
    return Outputs(LlamaForCausalLM(config), ["logits"], {"use_cache": False})


def t5():
    from transformers import T5Config, T5ForConditionalGeneration
    config = T5Config(vocab_size=83, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_decoder_layers=1, num_heads=4,
                      relative_attention_num_buckets=8, relative_attention_max_distance=16, feed_forward_proj="gated-gelu")
    return Outputs(T5ForConditionalGeneration(config), ["logits"], {"use_cache": False})


def t5_sets():
    return [{"input_ids": torch.randint(0, 83, (2, 11)), "decoder_input_ids": torch.randint(0, 83, (2, 6))}]


class Lstm(nn.Module):
    """Embedding, a two-layer bidirectional LSTM, a GRU, a classifier over the last step."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 12, padding_idx=0)
        self.lstm = nn.LSTM(12, 10, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(20, 8, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, ids):
        steps, (hidden, cell) = self.lstm(self.embed(ids))
        steps, last = self.gru(steps)
        return F.log_softmax(self.head(steps[:, -1]), dim=-1), hidden, cell, last


class Recommender(nn.Module):
    """DLRM: embedding bags over ragged indices, a dense tower, pairwise dot products, a sigmoid at the end."""

    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(40, 8, mode="sum"), nn.EmbeddingBag(30, 8, mode="mean"),
                                   nn.EmbeddingBag(20, 8, mode="max", include_last_offset=True)])
        self.dense = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
        self.register_buffer("upper", torch.triu_indices(4, 4, offset=1), persistent=False)

    def forward(self, dense, indices, offsets, last_offsets):
        x = self.dense(dense)
        rows = [x, self.bags[0](indices, offsets), self.bags[1](indices, offsets), self.bags[2](indices, last_offsets)]
        rows = torch.stack(rows, dim=1)
        products = torch.bmm(rows, rows.transpose(1, 2))
        crossed = products[:, self.upper[0], self.upper[1]]
        return torch.sigmoid(self.top(torch.cat([x, crossed], dim=1))).squeeze(-1)


def recommender_sets():
    offsets = torch.tensor([0, 3, 3, 7, 8])
    return [(torch.randn(5, 6), torch.randint(0, 20, (12,)), offsets, torch.cat([offsets, torch.tensor([12])]))]


class Wave(nn.Module):
    """One-dimensional convolutions: weight norm, dilation, groups, gated activation, a transposed one at the end."""

    def __init__(self):
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(nn.Conv1d(1, 8, 5, padding=2))
        self.gated = nn.ModuleList([nn.Conv1d(8, 16, 3, padding=d, dilation=d) for d in (1, 2, 4)])
        self.groups = nn.Conv1d(8, 8, 3, padding=1, groups=4, padding_mode="reflect")
        self.up = nn.ConvTranspose1d(8, 1, 4, stride=2, padding=1)

    def forward(self, x):
        x = F.leaky_relu(self.first(x), 0.1)
        for layer in self.gated:
            a, b = layer(x).chunk(2, dim=1)
            x = x + torch.tanh(a) * torch.sigmoid(b)
        return self.up(F.elu(self.groups(x)))


class Mixer(nn.Module):
    """A state machine of buffers: counts its calls and keeps a running mean, so buffers are outputs too."""

    def __init__(self):
        super().__init__()
        self.tokens, self.channels = nn.Linear(7, 7), nn.Linear(12, 12)
        self.norm = nn.LayerNorm(12)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("running", torch.zeros(12))

    def forward(self, x):
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        x = x + F.mish(self.channels(self.norm(x)))
        self.calls += 1
        self.running.mul_(0.9).add_(x.mean((0, 1)), alpha=0.1)
        return x, {"mean": x.mean(), "top": x.amax(-1)}


class Structures(nn.Module):
    """What else a file may hold: tied and transposed weights, views of one storage at an offset, buffers that are not saved
    with the weights, a constant of its own; nested inputs with a None, an int, a float and a bool; nested outputs, one of them an input."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(13, 6)
        self.head = nn.Linear(6, 13, bias=False)
        self.head.weight = self.embed.weight
        store = torch.randn(40)
        self.turned = nn.Parameter(torch.randn(5, 6).t())
        self.register_buffer("early", store[2:8])
        self.register_buffer("late", store[10:34:4])
        self.register_buffer("scale", torch.rand(6) + 0.5, persistent=False)
        self.constant = torch.arange(6, dtype=torch.float32)

    def forward(self, ids, options, extra=None, count=3, factor=0.5, flag=True):
        x = self.embed(ids) * self.scale + self.early - self.late * factor
        x = x + options["shift"] if flag else x
        for _ in range(count):
            x = torch.tanh(x + self.constant.to(x.dtype) * 0.1)
        y = x @ self.turned
        if extra is not None:
            y = y + extra
        return {"logits": self.head(x), "parts": [y, (options["shift"], y.t() if y.dim() == 2 else y.transpose(0, 1))], "none": None}


def structures_sets():
    return [(torch.randint(0, 13, (2, 4)), {"shift": torch.randn(6), "unused": torch.randn(2)}, None, 2, 0.25, True)]


FAMILIES = [
    Family("resnet", resnet, images((2, 3, 32, 40), (1, 3, 32, 40), (5, 3, 32, 40)), {"x": {0: BATCH}}),
    Family("resnet_bottleneck", resnet_bottleneck, images((1, 3, 33, 47))),
    Family("mobilenet_v3", mobilenet_v3, images((1, 3, 48, 48))),
    Family("efficientnet", efficientnet, images((2, 3, 40, 40))),
    Family("convnext", convnext, images((1, 3, 64, 64))),
    Family("vit", vit, images((2, 3, 32, 32), (1, 3, 32, 32), (7, 3, 32, 32)), {"x": {0: BATCH}}),
    Family("swin", swin, images((1, 3, 32, 32))),
    Family("unet", UNet, images((2, 3, 24, 32))),
    Family("bert", bert, bert_sets, {n: {0: BATCH, 1: LENGTH} for n in ("input_ids", "attention_mask")}),
    Family("gpt2", gpt2, lambda: [{"input_ids": torch.randint(0, 97, s)} for s in ((2, 9), (1, 17), (3, 40))],
           {"kwargs": {"input_ids": {0: BATCH, 1: LENGTH}}}),
    Family("llama", llama, lambda: [{"input_ids": torch.randint(0, 89, s)} for s in ((2, 10), (1, 3), (4, 31))],
           {"kwargs": {"input_ids": {0: BATCH, 1: LENGTH}}}),
    Family("t5", t5, t5_sets),
    Family("lstm", Lstm, tokens(50, (3, 6))),
    Family("recommender", Recommender, recommender_sets),
    Family("wave", Wave, images((2, 1, 40), (1, 1, 33), (3, 1, 64)), {"x": {0: BATCH, 2: LENGTH}}),
    Family("mixer_buffers", Mixer, images((3, 7, 12))),
    Family("structures", Structures, structures_sets),
]
