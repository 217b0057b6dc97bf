"""Models that PT2E quantised: prepared by a quantizer of torchao, calibrated or trained, converted. torchao must be installed to write these.

Where a value is rounded to its step, one that lies beside the middle of two steps would fall on either side by the last bit of a sum. Inputs are
drawn until none does, so that every engine gives the same steps.
"""
import torch
from torch import nn
from torch.nn import functional as F

import neso_cases as cases

# Of a step: sums of some hundred terms differ by less.
NEAR = 3e-4


class ConvNet(nn.Module):
    """Convolutions with batch norms that are folded into them, a sum of two paths, a depthwise one, pools, a linear layer."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.depthwise, self.last = nn.Conv2d(8, 8, 3, groups=8), nn.Linear(8, 5)

    def forward(self, x):
        x = self.norm(self.first(x)).relu()
        x = F.max_pool2d((self.norm2(self.second(x)) + x).relu(), 2)
        # Nine elements a channel: their mean is never the middle of two steps.
        return self.last(F.hardtanh(self.depthwise(x)).mean((2, 3)))


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        y = self.norm(x)
        q, k, v = split(self.query(y)), split(self.key(y)), split(self.value(y))
        attended = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8, bias=False)

    def forward(self, x):
        return self.second(self.first(x).relu())


class Sum(nn.Module):
    """Two products and their sum, all of them in integers where the form is."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 8), nn.Linear(16, 8)

    def forward(self, x):
        return (self.first(x) + self.second(x)).relu()


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 16)

    def forward(self, i):
        return self.table(i) * 2


def x86(**options):
    import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as module
    return module.X86InductorQuantizer().set_global(module.get_default_x86_inductor_quantization_config(**options))


def xnnpack(**options):
    import torchao.testing.pt2e._xnnpack_quantizer as module
    return module.XNNPACKQuantizer().set_global(module.get_symmetric_quantization_config(**options))


def embedding():
    from torchao.quantization.pt2e.quantizer.embedding_quantizer import EmbeddingQuantizer
    return EmbeddingQuantizer()


IMAGE, TOKENS, MATRIX = (2, 3, 10, 10), (2, 4, 16), (3, 16)
# name, module, shape of the input, quantizer, how it is converted
MODELS = (
    ("x86_static_convnet", ConvNet, IMAGE, x86, {}, {}),
    ("x86_static_block", Block, TOKENS, x86, {}, {}),
    ("x86_dynamic_layers", Layers, MATRIX, x86, {"is_dynamic": True}, {}),
    ("xnnpack_trained_convnet", ConvNet, IMAGE, xnnpack, {"is_per_channel": True, "is_qat": True}, {}),
    ("xnnpack_static_convnet", ConvNet, IMAGE, xnnpack, {"is_per_channel": True}, {"any_batch": True}),
    ("xnnpack_dynamic_block", Block, TOKENS, xnnpack, {"is_per_channel": True, "is_dynamic": True}, {"any_batch": True}),
    ("xnnpack_tensor_layers", Layers, MATRIX, xnnpack, {"weight_qmin": -8, "weight_qmax": 7}, {}),
    ("weights_unfolded", Layers, MATRIX, x86, {}, {"fold_quantize": False}),
    ("in_integers", Sum, MATRIX, xnnpack, {}, {"use_reference_representation": True}),
    ("rows", Rows, (2, 3), embedding, {}, {}),
)


class Distance(torch.fx.Interpreter):
    """How close a value comes to the middle of two steps, in steps."""
    least = 0.5

    def run_node(self, node):
        if "quantized_decomposed.quantize_per_tensor" in str(node.target):
            args, _ = self.fetch_args_kwargs_from_env(node)
            steps = args[0].double() / float(args[1])
            # What is clamped has no neighbour.
            steps = steps[(steps + float(args[2]) > args[3]) & (steps + float(args[2]) < args[4])]
            if steps.numel():
                self.least = min(self.least, float((steps - steps.floor() - 0.5).abs().min()))
        return super().run_node(node)


def drawn(shape, seed, batch=None):
    torch.manual_seed(seed)
    shape = (batch or shape[0], *shape[1:])
    return (torch.randn(shape),) if shape[1:] != (3,) else (torch.randint(0, 20, shape),)


def far_from_middles(program, shape, batch=None):
    for seed in range(400):
        inputs = drawn(shape, seed, batch)
        interpreter = Distance(program.module(check_guards=False))
        with torch.no_grad():
            interpreter.run(*inputs)
        if interpreter.least > NEAR:
            return inputs
    raise RuntimeError("every input has a value in the middle of two steps")


def quantised(build, shape, quantizer, options, dynamic, **convert):
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
    trained = options.get("is_qat", False)
    torch.manual_seed(7)
    model = build().train(trained)
    for name, tensor in model.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            tensor.data.uniform_(0.5, 1.5)
    example = drawn(shape, 1)
    exported = torch.export.export(model, example, dynamic_shapes=dynamic).module()
    prepared = (prepare_qat_pt2e if trained else prepare_pt2e)(exported, quantizer(**options))
    for seed in range(2, 5):
        prepared(*drawn(shape, seed))
    if trained:
        move_exported_model_to_eval(prepared)
    return torch.export.export(convert_pt2e(prepared, **convert), example, dynamic_shapes=dynamic)


def write(models, folder):
    from make_goldens import bounds, expected
    inputs_file, outputs_file, runs, decomposed = {}, {}, [], set()
    for name, build, shape, quantizer, options, convert in models:
        convert = dict(convert)
        dynamic = ({0: torch.export.Dim("batch", min=1, max=16)},) if convert.pop("any_batch", False) else None
        program = quantised(build, shape, quantizer, options, dynamic, **convert)
        forms = {name: program}
        # The second form differs in the float operators around the quantised ones, once a module.
        if build not in decomposed:
            decomposed.add(build)
            forms[f"{name}.core"] = program.run_decompositions()
        for form, saved in forms.items():
            cases.save_program(saved, folder / f"{form}.pt2", lean=True)
        for batch in (None, 1) if dynamic else (None,):
            prefix = f"{name}{'.2' if batch else ''}/"
            data = far_from_middles(program, shape, batch)
            named = expected(program, data)
            inputs_file |= {prefix + str(i): x for i, x in enumerate(data)}
            outputs_file |= {prefix + k: v for k, v in named.items()}
            runs += [{"name": prefix[:-1] + form[len(name):], "program": f"{form}.pt2", "inputs": "inputs.safetensors", "outputs": "outputs.safetensors",
                      "prefix": prefix, "tolerance": bounds(named)} for form in forms]
    cases.write_safetensors(folder / "inputs.safetensors", inputs_file)
    cases.write_safetensors(folder / "outputs.safetensors", outputs_file)
    return runs
