"""Known models at their published sizes unless a line says otherwise, f32, one example a run: what `bench_models.py` measures beside the
anchors. Weights are random; statistics of batch norms are those of one random batch, so that numbers keep a size as in trained models."""
import sys
from functools import partial
from pathlib import Path

import torch
from torch import nn

from anchors import Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))


def image(size=224):
    return (torch.randn(1, 3, size, size),)


def tokens(words, length=128):
    return (torch.randint(0, words, (1, length)),)


def of_torchvision(name):
    import torchvision
    model = getattr(torchvision.models, name)(weights=None)
    if name.startswith("vit"):
        # Made as zeros, which would hide what comes before.
        nn.init.normal_(model.heads.head.weight, std=0.02)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    if norms:
        model.eval()
        for norm in norms:
            norm.train()
        with torch.no_grad():
            model(torch.randn(2, 3, 224, 224))
    return model


def unet():
    """Half as wide as the one of bench/gpu."""
    import networks
    return networks.UNet(widths=(32, 64, 128))


def bert():
    from transformers import BertConfig, BertModel
    return Tuple(BertModel(BertConfig(), add_pooling_layer=False), "last_hidden_state")


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config())


def llama():
    """Four layers, 1024 wide."""
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(vocab_size=32000, hidden_size=1024, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=4,
                                        intermediate_size=2816, max_position_embeddings=2048))


class DecodeStep(nn.Module):
    """The next token's logits, and its rows of the cache, from the rows [layers, 1, heads, T, width] of the tokens before."""

    def __init__(self, make):
        super().__init__()
        self.model = make()

    def forward(self, token, keys, values):
        from transformers import DynamicCache
        cache = DynamicCache()
        for layer in range(keys.shape[0]):
            cache.update(keys[layer], values[layer], layer)
        logits = self.model(input_ids=token, past_key_values=cache, use_cache=True).logits
        new = [torch.stack([getattr(layer, part)[:, :, -1] for layer in cache.layers]) for part in ("keys", "values")]
        return logits, *new


def decode_inputs(words, layers, heads, width, length=127):
    return (torch.randint(0, words, (1, 1)), *(torch.randn(layers, 1, heads, length, width) for _ in range(2)))


class T5(nn.Module):
    """T5 small, encoder and decoder."""

    def __init__(self):
        super().__init__()
        from transformers import T5Config, T5ForConditionalGeneration
        self.model = T5ForConditionalGeneration(T5Config())

    def forward(self, source, target):
        return self.model(input_ids=source, decoder_input_ids=target, use_cache=False).logits


def whisper():
    """The encoder of Whisper base."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder
    config = WhisperConfig(d_model=512, encoder_layers=6, encoder_attention_heads=8, encoder_ffn_dim=2048)
    return First(WhisperEncoder(config))


def wav2vec2():
    from transformers import Wav2Vec2Config, Wav2Vec2Model
    return First(Wav2Vec2Model(Wav2Vec2Config()))


class First(nn.Module):
    """A Hugging Face model's first result."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)[0]


class Lstm(nn.Module):
    def __init__(self, width=256, hidden=512):
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, num_layers=2, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


class Dlrm(nn.Module):
    """Bags of four of 26 tables, products of all pairs, two perceptrons; tables of 20,000 rows."""

    def __init__(self, tables=26, rows=20000, width=64, dense=13):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        chain = lambda *sizes: nn.Sequential(*(layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), nn.ReLU())))  # noqa: E731
        self.bottom = chain(dense, 512, 256, width)
        self.top = nn.Sequential(chain(width + (tables + 1) * tables // 2, 1024, 512, 256), nn.Linear(256, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

    def forward(self, dense, indices):
        x = self.bottom(dense)
        features = torch.stack([x] + [bag(indices[i]) for i, bag in enumerate(self.bags)], 1)
        products = torch.bmm(features, features.transpose(1, 2))
        return torch.sigmoid(self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], 1)))


# name → (model, inputs)
VISION = {name: (partial(of_torchvision, name), image)
          for name in ("resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_v2_s", "densenet121", "convnext_tiny", "vit_b_16", "swin_t")}
MODELS = VISION | {
    "unet_128": (unet, lambda: (torch.randn(1, 4, 128, 128),)),
    "bert_base": (bert, partial(tokens, 30522)),
    "gpt2": (lambda: Tuple(gpt2(), "logits"), partial(tokens, 50257)),
    "gpt2_decode": (lambda: DecodeStep(gpt2), partial(decode_inputs, 50257, 12, 12, 64)),
    "llama_4x1024": (lambda: Tuple(llama(), "logits"), partial(tokens, 32000)),
    "llama_4x1024_decode": (lambda: DecodeStep(llama), partial(decode_inputs, 32000, 4, 4, 64)),
    "t5_small": (T5, lambda: (*tokens(32128), *tokens(32128, 32))),
    "whisper_base_encoder": (whisper, lambda: (torch.randn(1, 80, 3000),)),
    "wav2vec2_base": (wav2vec2, lambda: (torch.randn(1, 16000),)),
    "lstm_2x512": (Lstm, lambda: (torch.randn(1, 128, 256),)),
    "dlrm_256": (Dlrm, lambda: (torch.randn(256, 13), torch.randint(0, 20000, (26, 256, 4)))),
}
