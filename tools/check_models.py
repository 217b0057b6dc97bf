#!/usr/bin/env python3
"""Full-size models of torchvision, timm and transformers, random weights: does Neso give eager PyTorch's numbers?

    tools/check_models.py [--neso build/release/bin/neso] [--only REGEX] [--from MODULE] [--forms export,decomposed] [--work DIR] [--export-only]

Each model is exported in both forms (kept in --work, outside the repository), compiled, and run at one size, or at three when it is
dynamic. Tolerance: 1e-3 of the largest value of an output, plus 1e-3 relative; random deep networks in f32 stay an order below that.
Ends with "N passed, N failed, N refused, N not exported"; a refusal names its operators. `--from`: another table of models, beside this file.

`--cases` only exports, and writes a case.json for each model, for `gpu_check.py pack --cases WORK`. The weights then repeat a pool of random
numbers, and so do images: what is packed of a large model is small. (In a work folder of its own: other weights, other answers.)
"""
import argparse
import gc
import importlib
import json
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

import neso_cases as cases  # noqa: E402
from model_zoo import ZOO  # noqa: E402

BATCH = Dim("batch", min=1, max=32)
LENGTH = Dim("length", min=2, max=256)


class Fields(nn.Module):
    """A Hugging Face model as a function of positional tensors that returns the named outputs."""

    def __init__(self, model, names, fields, **fixed):
        super().__init__()
        self.model, self.names, self.fields, self.fixed = model, names, fields, fixed


# torch.export names inputs after parameters, and dynamic shapes are given by those names.
class OneInput(Fields):
    def forward(self, first):
        out = self.model(**{self.names[0]: first}, **self.fixed)
        return tuple(out[f] for f in self.fields)


class TwoInputs(Fields):
    def forward(self, first, second):
        out = self.model(**{self.names[0]: first, self.names[1]: second}, **self.fixed)
        return tuple(out[f] for f in self.fields)


def torchvision(name, **options):
    def build():
        import torchvision.models as models
        return getattr(models, name)(weights=None, **options)
    return build


def timm(name):
    def build():
        from timm.models import create_model
        return create_model(name, pretrained=False)
    return build


def transformer(kind, config, names, fields, model="AutoModel", **fixed):
    def build():
        import transformers
        settings = transformers.AutoConfig.for_model(kind, **config)
        net = getattr(transformers, model).from_config(settings)
        return (OneInput if len(names) == 1 else TwoInputs)(net, names, fields, **fixed)
    return build


def images(*sizes):
    return lambda: [(torch.randn(*s),) for s in sizes]


def ids(*sizes, vocabulary=1000):
    return lambda: [(torch.randint(5, vocabulary, s),) for s in sizes]


def masked(*sizes):
    def make():
        sets = []
        for s in sizes:
            mask = torch.ones(s, dtype=torch.int64)
            mask[0, s[1] // 2:] = 0
            sets.append((torch.randint(5, 1000, s), mask))
        return sets
    return make


ONE = images((1, 3, 224, 224))
BATCHES = images((2, 3, 224, 224), (1, 3, 224, 224), (5, 3, 224, 224))
IMAGE_BATCH = ({0: BATCH},)
TEXT = ({0: BATCH, 1: LENGTH},)
TEXTS = ids((2, 16), (1, 128), (3, 37))
DECODER = dict(vocab_size=4000, hidden_size=256, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, intermediate_size=688,
               max_position_embeddings=256)
BERT = dict(vocab_size=4000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, max_position_embeddings=300)

# name → (build, input sets, dynamic shapes)
MODELS = {
    "resnet18": (torchvision("resnet18"), BATCHES, IMAGE_BATCH),
    "resnet50": (torchvision("resnet50"), ONE, None),
    "mobilenet_v2": (torchvision("mobilenet_v2"), ONE, None),
    "mobilenet_v3_small": (torchvision("mobilenet_v3_small"), BATCHES, IMAGE_BATCH),
    "efficientnet_b0": (torchvision("efficientnet_b0"), ONE, None),
    "convnext_tiny": (torchvision("convnext_tiny"), ONE, None),
    "regnet_y_400mf": (torchvision("regnet_y_400mf"), ONE, None),
    "densenet121": (torchvision("densenet121"), ONE, None),
    "squeezenet1_1": (torchvision("squeezenet1_1"), BATCHES, IMAGE_BATCH),
    "shufflenet_v2_x1_0": (torchvision("shufflenet_v2_x1_0"), ONE, None),
    "swin_t": (torchvision("swin_t"), ONE, None),
    "vit_b_16": (torchvision("vit_b_16"), ONE, None),
    "timm_vit_tiny": (timm("vit_tiny_patch16_224"), BATCHES, IMAGE_BATCH),
    "timm_mixer_s32": (timm("mixer_s32_224"), ONE, None),
    "timm_ghostnet": (timm("ghostnet_100"), ONE, None),
    "timm_mobilevit_xxs": (timm("mobilevit_xxs"), images((1, 3, 256, 256)), None),
    "deeplab_mobilenet": (lambda: Segmentation(), ONE, None),
    "bert": (transformer("bert", BERT, ["input_ids", "attention_mask"], ["last_hidden_state", "pooler_output"]),
             masked((2, 16), (1, 128), (3, 37)), TEXT * 2),
    "distilbert": (transformer("distilbert", dict(vocab_size=4000, dim=256, n_layers=4, n_heads=4, hidden_dim=1024), ["input_ids"],
                               ["last_hidden_state"]), TEXTS, TEXT),
    "roberta": (transformer("roberta", BERT | dict(pad_token_id=1), ["input_ids"], ["last_hidden_state"]), ids((2, 24)), None),
    "gpt2": (transformer("gpt2", dict(vocab_size=4000, n_embd=256, n_layer=4, n_head=4, n_positions=256, bos_token_id=0, eos_token_id=0,
                                 attn_implementation="eager"),
                         ["input_ids"], ["logits"], "AutoModelForCausalLM", use_cache=False), TEXTS, TEXT),
    "llama": (transformer("llama", DECODER, ["input_ids"], ["logits"], "AutoModelForCausalLM", use_cache=False), TEXTS, TEXT),
    "qwen2": (transformer("qwen2", DECODER, ["input_ids"], ["logits"], "AutoModelForCausalLM", use_cache=False), TEXTS, TEXT),
    "t5": (transformer("t5", dict(vocab_size=4000, d_model=256, d_kv=32, d_ff=512, num_layers=3, num_heads=8),
                       ["input_ids", "decoder_input_ids"], ["logits"], "AutoModelForSeq2SeqLM", use_cache=False),
           lambda: [(torch.randint(5, 4000, (2, 19)), torch.randint(5, 4000, (2, 8)))], None),
} | ZOO


class Segmentation(nn.Module):
    def __init__(self):
        super().__init__()
        from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large
        self.model = deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None)

    def forward(self, x):
        return self.model(x)["out"]


def pooled(tensor, pool):
    return pool.repeat(-(-tensor.numel() // len(pool)))[:tensor.numel()].view(tensor.shape)


def repeat_weights(model, pool):
    """Weight matrices and filters are pieces of the pool, scaled as initialisations are."""
    for p in model.parameters():
        if p.is_floating_point() and p.dim() > 1:
            p.copy_(pooled(p, pool) / p[0].numel() ** 0.5)


def largest_of(want):
    """The largest magnitude among finite values; 0 for whole numbers, which are to be equal."""
    if not (want.is_floating_point() or want.is_complex()):
        return 0.0
    magnitudes = want.abs()[want.abs().isfinite()]
    return float(magnitudes.max()) if magnitudes.numel() else 0.0


def golden_case(name, folder, form, sets):
    """The model as a case.json of the goldens."""
    runs = []
    for i in range(sets):
        want = cases.read_safetensors(folder / f"out.{i}.safetensors")
        bounds = {key: [1e-3, 1e-3 * largest_of(t)] if t.is_floating_point() or t.is_complex() else [0, 0] for key, t in want.items()}
        runs.append({"name": f"{name}.{i}", "program": f"{form}.pt2", "inputs": f"in.{i}.safetensors", "outputs": f"out.{i}.safetensors",
                     "prefix": "", "tolerance": bounds})
    (folder / "case.json").write_text(json.dumps({"runs": runs}))


def prepare(name, work, forms, pool=None):
    """Exports what is not there yet. The folder then holds <form>.pt2, in.N.safetensors and out.N.safetensors."""
    folder = work / name
    marks = [folder / f"{form}.pt2" for form in forms]
    if all(m.exists() for m in marks) and (folder / "out.0.safetensors").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    build, sets, dynamic = MODELS[name]
    torch.manual_seed(7)
    model = build().eval()
    for key, tensor in model.named_buffers():
        # Fresh statistics are 0 and 1 and would hide mistakes.
        if key.endswith("running_mean"):
            tensor.normal_(0, 0.05)
        elif key.endswith("running_var"):
            tensor.uniform_(0.8, 1.2)
    inputs = sets()
    if pool is not None:
        with torch.no_grad():
            repeat_weights(model, pool)
        inputs = [tuple(pooled(t, pool) if t.is_floating_point() else t for t in args) for args in inputs]
    with torch.no_grad():
        for i, args in enumerate(inputs):
            cases.write_safetensors(folder / f"in.{i}.safetensors", list(args))
            cases.write_safetensors(folder / f"out.{i}.safetensors", cases.flatten(model(*args)))
        program = torch.export.export(model, inputs[0], dynamic_shapes=dynamic, strict=False)
        torch.export.save(program, folder / "export.pt2")
        if "decomposed" in forms:
            torch.export.save(program.run_decompositions(), folder / "decomposed.pt2")
    gc.collect()
    return folder


def check(name, folder, form, neso, timeout):
    """(verdict, detail): passed, failed, refused."""
    package = folder / f"{form}.neso"
    begun = time.time()
    try:
        done = subprocess.run([neso, "compile", folder / f"{form}.pt2", "-o", package], capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return "failed", "compile: takes too long"
    seconds = time.time() - begun
    if done.returncode:
        verdict = "refused" if done.returncode == 1 and "error[E" in done.stderr else "failed"
        return verdict, f"compile: exit {done.returncode}: {done.stderr.strip()[:600]}"
    worst = 0.0
    for path in sorted(folder.glob("in.*.safetensors")):
        result = folder / "got.safetensors"
        try:
            done = subprocess.run([neso, "run", package, "--input", path, "-o", result], capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return "failed", f"{path.name}: takes too long"
        if done.returncode:
            return "failed", f"{path.name}: exit {done.returncode}: {done.stderr.strip()[:400]}"
        got = cases.read_safetensors(result)
        for key, want in cases.read_safetensors(str(path).replace("in.", "out.")).items():
            largest = largest_of(want)
            trouble = cases.compare(key, got.get(key), want, 1e-3, 1e-3 * largest)
            if trouble:
                return "failed", f"{path.name}: {trouble}"
            if largest:
                worst = max(worst, cases.worst_error(got[key], want) / largest)
    return "passed", f"compile {seconds:.2f} s, worst error {worst:.1e} of the largest value"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neso", default="build/release/bin/neso")
    parser.add_argument("--only", default=".")
    parser.add_argument("--from", dest="table", metavar="MODULE", help="whose MODELS are checked: check_models (default), models_of_timm, models_of_transformers, "
                        "models_of_image_libraries, models_of_sequence_libraries, models_of_science_libraries")
    parser.add_argument("--forms", default="export,decomposed")
    parser.add_argument("--work", default="/tmp/neso_models")
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--export-only", action="store_true")
    parser.add_argument("--cases", action="store_true", help="export with repeating weights and write case.json files")
    parser.add_argument("--json")
    args = parser.parse_args()
    neso, forms, counts, rows = str(Path(args.neso).resolve()), args.forms.split(","), {"passed": 0, "failed": 0, "refused": 0, "not exported": 0}, []
    if args.table:
        MODELS.clear()
        MODELS.update(importlib.import_module(args.table).MODELS)
    for name in MODELS:
        if not re.search(args.only, name):
            continue
        try:
            pool = torch.randn(4099, generator=torch.Generator().manual_seed(3)) if args.cases else None
            folder = prepare(name, Path(args.work), forms, pool)
        except Exception as error:
            counts["not exported"] += 1
            print(f"{name}: torch cannot export it: {(str(error).strip() or type(error).__name__).splitlines()[0][:200]}", flush=True)
            continue
        if args.cases:
            golden_case(name, folder, forms[0], len(list(folder.glob("in.*.safetensors"))))
        for form in forms:
            if args.export_only or args.cases:
                print(f"{name} {form}: {(folder / f'{form}.pt2').stat().st_size / 1e6:.0f} MB", flush=True)
                continue
            verdict, detail = check(name, folder, form, neso, args.timeout)
            counts[verdict] += 1
            rows.append({"model": name, "form": form, "verdict": verdict, "detail": detail})
            print(f"{verdict:8} {name} {form}: {detail}", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))
    print(", ".join(f"{n} {k}" for k, n in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
