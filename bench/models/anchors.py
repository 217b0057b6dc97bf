"""The programs that are measured: the five anchors, and single matrix products. Random weights, f32, evaluation mode."""
import torch
from torch import nn

F = nn.functional


def resnet18():
    from torchvision.models import resnet18 as make
    return make(weights=None)


class Tuple(nn.Module):
    """A Hugging Face model as a function of token numbers that returns one tensor."""

    def __init__(self, model, field):
        super().__init__()
        self.model, self.field = model, field

    def forward(self, input_ids):
        options = {} if self.field == "last_hidden_state" else {"use_cache": False}
        return self.model(input_ids=input_ids, **options)[self.field]


def mobilenet():
    from torchvision.models import mobilenet_v3_small
    return mobilenet_v3_small(weights=None)


def bert():
    from transformers import BertConfig, BertModel
    config = BertConfig(vocab_size=8000, hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048)
    return Tuple(BertModel(config, add_pooling_layer=False), "last_hidden_state")


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=8000, hidden_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
                         intermediate_size=1376, max_position_embeddings=512)
    return Tuple(LlamaForCausalLM(config), "logits")


class Chain(nn.Module):
    """layer_norm → gelu → + x → softmax, 2048×1024."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1024)

    def forward(self, x):
        return torch.softmax(F.gelu(self.norm(x)) + x, dim=-1)


class Linear(nn.Module):
    """x @ weight with the weight a constant: what a peer may pack ahead of time, too."""

    def __init__(self, k, n, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, k, dtype=dtype) / k ** 0.5)

    def forward(self, x):
        return F.linear(x, self.weight)


def image():
    return (torch.randn(1, 3, 224, 224),)


def text():
    return (torch.randint(0, 8000, (1, 128)),)


# name → (model, inputs)
ANCHORS = {
    "resnet18": (resnet18, image),
    "mobilenet_v3_small": (mobilenet, image),
    "bert_4x512": (bert, text),
    "llama_4x512": (llama, text),
    "norm_gelu_add_softmax": (Chain, lambda: (torch.randn(2048, 1024),)),
}


def gemms():
    """name → (model, inputs, FLOP)."""
    result = {}
    for m, k, n in ((512, 512, 512), (1024, 1024, 1024), (128, 512, 2048), (8, 2048, 2048), (1, 4096, 4096), (65, 301, 127)):
        for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
            result[f"gemm_{m}x{k}x{n}_{name}"] = (lambda k=k, n=n, dtype=dtype: Linear(k, n, dtype),
                                                  lambda m=m, k=k, dtype=dtype: (torch.randn(m, k, dtype=dtype),), 2 * m * k * n)
    return result


def build(factory, seed=1):
    torch.manual_seed(seed)
    return factory().eval()
