#!/usr/bin/env python3
"""Makes what the demo keeps, with torch, torchvision and transformers: demo/NAME.pt2, the programs without weights, and demo/NAME.expected.safetensors,
what PyTorch computes with the weights and inputs of seeded.py.

    python3 demo/make.py
"""
import tempfile
import zipfile
from pathlib import Path

import safetensors.torch
import torch
import torchvision
from torch.export import Dim, export, load, save
from transformers import LlamaConfig, LlamaForCausalLM

import seeded

HERE = Path(__file__).resolve().parent


class NextToken(torch.nn.Module):
    """Logits of the token that follows."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens, use_cache=False).logits[:, -1]


def llama():
    """100.7 million parameters."""
    return NextToken(LlamaForCausalLM(LlamaConfig(vocab_size=16384, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
                                                  num_key_value_heads=4, use_cache=False)))


# name → (model, example, which dimensions may differ between runs)
MODELS = {
    "resnet50": (lambda: torchvision.models.resnet50(weights=None), torch.zeros(1, 3, 224, 224), None),
    "llama": (llama, torch.zeros(1, 128, dtype=torch.long), {1: Dim("length", min=2, max=512)}),
}


def without_weights(whole, path):
    with zipfile.ZipFile(whole) as program, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as bare:
        for entry in program.infolist():
            if "/weights/weight_" not in entry.filename:
                bare.writestr(zipfile.ZipInfo(entry.filename), program.read(entry), zipfile.ZIP_DEFLATED)


for name, (build, example, dynamic) in MODELS.items():
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        whole = Path(folder) / f"{name}.pt2"
        save(export(build().eval(), (example,), dynamic_shapes=dynamic and (dynamic,)), whole)
        without_weights(whole, HERE / f"{name}.pt2")
        seeded.fill(HERE / f"{name}.pt2", whole)
        inputs = safetensors.torch.load_file(whole.with_suffix(".inputs.safetensors"))
        result = load(whole).module()(inputs["0"])
        print(name, tuple(result.shape), "mean size", result.abs().mean().item())
        safetensors.torch.save_file({"0": result}, HERE / f"{name}.expected.safetensors")
