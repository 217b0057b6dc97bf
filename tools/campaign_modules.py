"""Random torch modules for tools/campaign: exported in both forms, with what eager gives in float64, as cases for run_goldens.

    make_cases(seeds, folder)      writes case.json, .pt2 and .safetensors files; gives what was written and why the rest was not

A module is a list of statements over tensors: views, in-place operators, parameters and buffers in several roles, mixed dtypes, dynamic
sizes, empty dimensions and dimensions of one, the same value among the outputs twice, and any operator that has a lowering. Each statement is tried in eager when it is made, so
every module runs. A module whose float32 and float64 answers are far apart says nothing and is left out. Every run is made twice: buffers
and inputs that the module changes must then hold what they hold in eager.
"""
import collections
import io
import json
import os
import pickle
import random
import re
import sys
import traceback
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent))
import campaign_operators
import neso_cases as cases

# {a}, {b}, …: tensors; {d}: a dimension of a; {n}: a small number; {s}: a size that divides. f: floating, i: integer, m: boolean, w: a parameter or buffer.
TEMPLATES = [
    (6, "{f} + {g}"), (4, "{f} * {g}"), (3, "{f} - {g}"), (2, "{f} / ({g}.abs() + 1)"), (3, "{f} @ {g}"), (4, "F.linear({f}, {w})"), (3, "F.linear({f}, {w}, {v})"),
    (2, "{f} @ {w}"), (2, "{w} @ {f}"), (2, "torch.addmm({w}, {f}, {g})"), (2, "{f}.relu()"), (1, "F.gelu({f})"), (1, "{f}.sigmoid()"), (1, "{f}.tanh()"), (1, "{f}.exp().clamp(max=20)"),
    (1, "F.silu({f})"), (1, "{f}.abs().sqrt()"), (2, "{f}.softmax({d})"), (1, "{f}.log_softmax({d})"), (2, "{f}.sum({d})"), (2, "{f}.sum({d}, keepdim=True)"), (2, "{f}.mean({d}, keepdim=True)"),
    (1, "{f}.amax({d})"), (1, "{f}.amin({d}, keepdim=True)"), (1, "{f}.argmax({d})"), (1, "{f}.argmin({d})"), (1, "{f}.max({d})[0]"), (1, "{f}.var({d})"), (1, "{f}.prod({d})"), (1, "{f}.norm(dim={d})"),
    (1, "{f}.cumsum({d})"), (1, "{f}.sort({d})[0]"), (1, "{f}.sort(dim={d}, stable=True)[1]"), (1, "{f}.topk(1, {d})[0]"), (1, "{f}.flip({d})"), (1, "{f}.roll(1, {d})"),
    (4, "{f}.transpose({d}, {e})"), (2, "{f}.mT"), (2, "{f}[:1]"), (2, "{f}[1:]"), (2, "{f}[..., ::2]"), (2, "{f}[..., 1:]"), (1, "{f}[0]"), (2, "{f}.unsqueeze({d})"), (1, "{f}.squeeze({d})"),
    (2, "{f}.reshape(-1)"), (2, "{f}.flatten(0, 1)"), (2, "{f}.reshape({f}.shape[0], -1)"), (1, "{f}.expand({n}, *{f}.shape)"), (1, "{f}.repeat_interleave(2, {d})"), (1, "{f}.narrow({d}, 0, 1)"), (1, "{f}.diagonal(0, -2, -1)"),
    (1, "{f}.contiguous()"), (1, "{f}.clone()"), (1, "{f}.unfold({d}, 2, 1)"), (1, "{f}.tril()"), (1, "torch.chunk({f}, 2, {d})[0]"), (1, "{f}.detach()"),
    (3, "torch.cat([{f}, {g}], {d})"), (1, "torch.cat([{f}, {f}], {d})"), (1, "torch.stack([{f}, {g}], {d})"), (3, "torch.where({m}, {f}, {g})"), (1, "torch.where({f} > 0, {f}, {n}.0)"), (1, "{f}.masked_fill({m}, -{n}.0)"),
    (2, "{f} > {g}"), (2, "{f} < 0.25"), (1, "{m} & {o}"), (1, "~{m}"), (1, "{m}.any({d})"), (1, "{m}.all({d})"), (1, "{m}.sum({d})"), (1, "{m}.float()"),
    (2, "{i} + {j}"), (1, "{i} * {n}"), (1, "{i} // {n}"), (1, "{i} % {n}"), (1, "{i} > {n}"), (1, "{i}.float()"), (1, "{i}.long().clamp(-{n}, {n})"), (1, "{i}.clamp(0, 3)"), (1, "{i}.to(torch.int32)"), (1, "{i}.to(torch.uint8)"), (1, "{i}.cumsum({d})"), (1, "{i}.sum({d})"),
    (1, "{f}.index_select({d}, {i}.reshape(-1).clamp(0, 1))"), (1, "{f}.gather({d}, {i}.clamp(0, 0))"), (2, "F.embedding({i}.long().clamp(0, 3), {w})"), (1, "{f}.scatter_add({d}, {i}.long().clamp(0, 1), {g})"), (1, "{f}[{i}.reshape(-1).long().clamp(0, 1)]"),
    (2, "F.layer_norm({f}, {f}.shape[-1:])"), (2, "F.layer_norm({f}, {f}.shape[-1:], {v})"), (1, "F.rms_norm({f}, {f}.shape[-1:])"), (1, "F.scaled_dot_product_attention({f}, {g}, {g})"), (2, "F.scaled_dot_product_attention({f}, {w}.expand(*{f}.shape[:-2], *{w}.shape), {w}.expand(*{f}.shape[:-2], *{w}.shape))"),
    (1, "torch.softmax({f} @ {g}.mT, -1) @ {g}"), (1, "torch.softmax({f} @ {w}.mT, -1) @ {w}"), (1, "F.conv1d({f}, {w}[:, :, None])"), (1, "F.pad({f}, (1, 0))"), (1, "F.avg_pool1d({f}, 2)"), (1, "F.max_pool1d({f}, 2)"), (1, "torch.outer({v}, {v}) @ {w}"), (1, "torch.einsum('...i,ji->...j', {f}, {w})"),
    (1, "{f}.double()"), (1, "{f}.half().float()"), (1, "{f}.bfloat16()"), (1, "{f}.to({g}.dtype)"), (1, "torch.maximum({f}, {g})"), (1, "torch.lerp({f}, {g}, 0.25)"), (1, "F.cosine_similarity({f}, {g}, {d})"), (1, "torch.zeros_like({f})"), (1, "torch.full_like({f}, {n}.5)"), (1, "torch.arange({f}.shape[-1]) * {n}"),
]
# Regions: branches and loops whose way the data decides.
TEMPLATES += [
    (2, "torch.ops.higher_order.cond({f}.abs().sum() > 0.5, lambda a: (a * {n} + 1, ), lambda a: (a.abs() - a.mean(), ), ({f}, ))[0]"),
    (2, "torch.ops.higher_order.cond({i}.sum() % 2 == 0, lambda a, b: (a - b, b.sum(0)), lambda a, b: (b.neg(), a.amax(0)), ({f}, {f} * 0.5))[{e} % 2]"),
    (1, "torch.ops.higher_order.cond({m}.any(), lambda a: (a.transpose(0, -1).contiguous(), ), lambda a: ((a.transpose(0, -1) * 2).contiguous(), ), ({f}, ))[0]"),
    (1, "torch.ops.higher_order.while_loop(lambda i, a: i < {n}, lambda i, a: (i + 1, a * 0.5 + i), (torch.zeros((), dtype=torch.int64), {f}), ())[1]"),
    (1, "torch.ops.higher_order.while_loop(lambda i, a, c: i < c, lambda i, a, c: (i + 1, (a + a.roll(1, 0)) * 0.5), (torch.zeros((), dtype=torch.int64), {f}), ({i}.sum().long() % 4, ))[1]"),
]
# In place, on any tensor that is no parameter.
WRITES = [
    (3, "{f}.add_({g})"), (2, "{f}.mul_({n}.5)"), (2, "{f}[0].add_(1)"), (2, "{f}[..., :1].mul_(2)"), (2, "{f}.transpose({d}, {e}).add_({n})"), (1, "{f}.copy_({g})"), (1, "{f}[1:].copy_({f}[:-1].clone())"), (1, "{f}.view(-1).sub_(0.5)"),
    (1, "{f}.relu_()"), (1, "{f}.masked_fill_({f} > 1, 0.5)"), (1, "{f}.clamp_(-1, 1)"), (1, "{f}[..., 0] = {n}.25"), (1, "{f}.unsqueeze(0)[0].neg_()"), (2, "{s}.add_({f}.mean())"), (3, "{s}.mul_(0.5)"), (2, "{s}.copy_({s} + 1)"), (2, "{s}[0].add_(1)"), (1, "{s}.t().add_(0.25)"), (2, "{i}.add_({n})"),
]
DTYPES = {"f": lambda t: t.is_floating_point(), "g": lambda t: t.is_floating_point(), "i": lambda t: t.dtype in (torch.int64, torch.int32, torch.uint8, torch.int8), "j": lambda t: t.dtype in (torch.int64, torch.int32, torch.uint8, torch.int8),
          "m": lambda t: t.dtype == torch.bool, "o": lambda t: t.dtype == torch.bool}


class Random:

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.seed = seed
        r = self.rng
        self.sizes = [r.choice([1, 2, 3, 4, 5, 7, 8, 16, 24, 33]) for _ in range(3)]
        if r.randrange(12) == 0:
            self.sizes[r.randrange(3)] = 0
        self.dynamic = r.randrange(4) == 0 and self.sizes[0] > 2
        # Drawn apart, so that it leaves the other statements of a seed alone.
        self.family_rng = random.Random(seed * 31 + 7)
        self.init, self.params, self.buffers, self.inputs, self.lines, self.family = [], [], [], [], [], []
        d, e = self.sizes[1], self.sizes[2]
        for k in range(r.randrange(1, 3)):
            shape = r.choice([(d, e), (e, d), (d, d), (e, e)])
            self.init.append(f"self.w{k} = nn.Parameter(torch.randn({shape[0]}, {shape[1]}){r.choice(['', '', '.t().contiguous().t()'])} * 0.5)")
            self.params.append(f"self.w{k}")
        self.init.append(f"self.v = nn.Parameter(torch.randn({r.choice([d, e])}))")
        for k in range(r.randrange(0, 3)):
            shape = r.choice([(d, e), (e, ), (d, e), (1, )])
            form = r.choice(["", "", ".t()", "[..., ::2]"]) if len(shape) == 2 else ""
            self.init.append(f"self.register_buffer('s{k}', torch.randn({', '.join(map(str, shape))}){form})")
            self.buffers.append(f"self.s{k}")
        for k in range(r.randrange(1, 4)):
            rank = r.choice([1, 2, 2, 3, 3, 4])
            shape = [self.sizes[0]] + [r.choice(self.sizes[1:] + [self.sizes[1]]) for _ in range(rank - 1)]
            if rank == 4:
                shape[2] = 2
            self.inputs.append((shape, r.choice([torch.float32] * 7 + [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool])))

    def input(self, size0=None, seed=0):
        g = torch.Generator().manual_seed(self.seed * 7 + seed)
        out = []
        for shape, dtype in self.inputs:
            shape = [size0 or shape[0]] + shape[1:]
            if dtype.is_floating_point:
                out.append(torch.randn(shape, generator=g).to(dtype))
            elif dtype == torch.bool:
                out.append(torch.rand(shape, generator=g) > 0.5)
            else:
                out.append(torch.randint(0, 9, shape, generator=g).to(dtype))
        return out

    def source(self, lines, outputs):
        text = "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        text += "".join(f"        {line}\n" for line in self.init)
        text += f"    def forward(self, {', '.join(f'x{k}' for k in range(len(self.inputs)))}):\n"
        return text + "".join(f"        {line}\n" for line in lines) + f"        return {', '.join(outputs)},\n"

    def grow(self):
        """Statements, each tried in eager."""
        r = self.rng
        module = build(self.source([], ["0"]), self.seed)
        env = {f"x{k}": x for k, x in enumerate(self.input())}
        env.update({"self": module, "torch": torch, "F": F})
        names = [f"x{k}" for k in range(len(self.inputs))]
        values = {n: env[n] for n in names}
        for n in self.params + self.buffers + ["self.v"]:
            values[n] = eval(n, env)
        operators = campaign_operators.Operators(r)
        statements = r.randrange(4, 16)
        family_at = self.family_rng.randrange(3 * statements)
        for number in range(statements):
            if number == family_at:
                self.try_family(env, names, values)
            any_operator = r.randrange(5) < 2
            for _ in range(30):
                if any_operator and self.try_operator(operators, env, names, values):
                    break
                if any_operator:
                    continue
                write = r.randrange(7) == 0
                table = WRITES if write else TEMPLATES
                template = r.choices([t for _, t in table], [w for w, _ in table])[0]
                chosen = {}
                try:
                    for key, test in DTYPES.items():
                        if "{" + key in template:
                            fit = [n for n in (names[-6:] + names + self.buffers) if test(values[n])] if not write or key != "f" else [n for n in names if test(values[n])]
                            chosen[key] = r.choice(fit)
                    if "{w}" in template:
                        chosen["w"] = r.choice(self.params + self.buffers)
                    chosen["v"] = "self.v"
                    if "{s}" in template:
                        chosen["s"] = r.choice(self.buffers)
                    first = chosen.get("f") or chosen.get("i") or chosen.get("m") or "x0"
                    rank = max(1, values[first].dim())
                    chosen["d"], chosen["e"], chosen["n"] = r.randrange(-rank, rank), r.randrange(rank), r.randrange(1, 4)
                    if write and overlaps(values[chosen.get("s") or chosen.get("f") or chosen["i"]]):
                        continue
                    text = template.format(**chosen)
                    name = f"v{len(self.lines)}"
                    line = text if write else f"{name} = {text}"
                    with torch.no_grad():
                        exec(line, env)
                    if not write:
                        value = env[name]
                        if not usable(value):
                            continue
                        names.append(name)
                        values[name] = value
                    self.lines.append(line)
                    break
                except Exception:
                    continue
        made = [n for n in names if n[0] == "v"] or ["x0 + 0"]
        self.outputs = [r.choice(made[-4:]) for _ in range(r.randrange(1, 4))] + [made[-1]]
        if r.randrange(8) == 0:
            self.outputs.append("x0")
        self.outputs += self.family


    def try_family(self, env, names, values):
        """Products of one operand with weights of their own, which may become one product, and who reads them."""
        r = self.family_rng
        fit = [n for n in names if values[n].is_floating_point() and values[n].dim() and values[n].shape[-1]]
        if not fit:
            return
        x = r.choice(fit)
        depth, width = values[x].shape[-1], r.choice([4, 8, 16, 24])
        images = values[x].dim() in (3, 4) and values[x].shape[-3] and r.randrange(3) == 0
        product, ordered = r.choice([("F.linear({x}, self.{w})", "{n}, {k}"), ("F.linear({x}, self.{w}, self.{w}b)", "{n}, {k}"), ("{x} @ self.{w}", "{k}, {n}"), ("torch.einsum('...i,ji->...j', {x}, self.{w})", "{n}, {k}")])
        readers = ["{y}.softmax(-1)", "{y}.cumsum(-1)", "{y}.sum(-1, keepdim=True)", "{y}.flip(-1).softmax(-1)", "{y}.roll(1, -1).cumsum(-1)", "F.pad({y}, (1, 0))", "{y}[..., 1:].amax(-1)", "F.relu({y})", "{y} * 0.5", "{y}.reshape(-1).cumsum(0)", "{y}.unflatten(-1, (2, -1)).transpose(-2, -1).softmax(-2)",
                   "F.scaled_dot_product_attention({y}, {y}, {y})"]
        if images:
            depth, product, ordered = values[x].shape[-3], f"F.conv2d({{x}}, self.{{w}}, self.{{w}}b, padding={r.choice([1, 1, 0, (2, 1)])})", "{n}, {k}, 3, 3"
        made = []
        for k in range(r.randrange(2, 5)):
            columns = r.choice([width, width, width, 2 * width, 7])
            for name, shape in ((f"f{k}", ordered.format(n=columns, k=depth)), (f"f{k}b", str(columns))):
                self.init.append(f"self.{name} = nn.Parameter((torch.randn({shape}) * {0.1 if images else 0.5}).to({values[x].dtype}))")
                exec(self.init[-1].replace("self.", "module.", 1), {"torch": torch, "nn": nn, "module": env["self"]})
            made.append(product.format(x=x, w=f"f{k}"))
        lines = [f"y{k} = {text}" for k, text in enumerate(made)]
        lines += [f"z{k} = {r.choice(readers if r.randrange(4) else readers[:1]).format(y=f'y{k}')}" for k in range(len(made))]
        for line in lines:
            try:
                with torch.no_grad():
                    exec(line, env)
            except Exception:
                continue
            name = line.split(" ")[0]
            if not usable(env[name]):
                del env[name]
                continue
            # Who reads the products themselves comes by chance, who reads the others is one more output.
            if name[0] == "z" or r.randrange(8) == 0:
                names.append(name)
                values[name] = env[name]
                self.family.append(name)
            self.lines.append(line)

    def try_operator(self, operators, env, names, values):
        """Whether a call of any operator was added."""
        text = operators.call({n: values[n] for n in names + self.params + self.buffers})
        if text is None:
            return False
        name = f"v{len(self.lines)}"
        # A view of a parameter would be written to later.
        line = f"{name} = {text}"
        try:
            with torch.no_grad():
                exec(line, env)
        except Exception:
            return False
        if not usable(env[name]) or not any(re.search(rf"\b{n}\b", text) for n in names):
            return False
        names.append(name)
        values[name] = env[name]
        self.lines.append(line)
        return True


def overlaps(tensor):
    """Whether two elements are one place of memory (after expand or unfold). In what order such are written is nobody's promise: torch refuses
    most of these writes, and lets some pass (masked_fill_ through expand with a warning, any write through unfold)."""
    at = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(tensor.shape, tensor.stride()):
        at = at[..., None] + torch.arange(size) * stride
    return at.numel() != at.unique().numel()


def usable(value):
    """Whether a result can be compared and worked on: real, finite, not large."""
    if not isinstance(value, torch.Tensor) or value.numel() > 20000 or value.is_complex() or value.dim() > 6:
        return False
    if not value.is_floating_point():
        return value.dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    try:
        return bool(torch.isfinite(value).all()) and not (value.numel() and float(value.abs().max()) > 1e3)
    except RuntimeError:  # of a tensor with a negative size, which some operators make of an empty one
        return False


def build(source, seed):
    torch.manual_seed(seed)
    env = {"torch": torch, "nn": nn, "F": F}
    exec(source, env)
    return env["M"]().eval()


def twice(module, inputs):
    """Outputs by number, buffers and inputs that changed, of two calls in a row."""
    with torch.no_grad():
        out, before = [], {"buffer." + n: b.clone() for n, b in module.named_buffers()}
        originals = [x.clone() for x in inputs]
        for _ in range(2):
            named = {str(k): v.clone() for k, v in enumerate(module(*inputs))}
            for n, b in module.named_buffers():
                if "buffer." + n in before and not torch.equal(b, before["buffer." + n]):
                    named["buffer." + n] = b.clone()
            for k, (x, o) in enumerate(zip(inputs, originals)):
                if not torch.equal(x, o):
                    named[f"input.{k}"] = x.clone()
            out.append(named)
    return out


def wide(tensors):
    return [t.double() if t.is_floating_point() else t.clone() for t in tensors]


class LeftOut(Exception):
    """A module that proves nothing, with the reason in words that are the same for all of its kind."""


def attempt(what, call):
    """What a part of torch gives; a module that torch itself cannot do is left out."""
    try:
        return call()
    except Exception as why:
        first = (str(why).strip() or "?").split("\n")[0]
        raise LeftOut(f"{what}: {type(why).__name__}: {re.sub(r'0x[0-9a-f]+|[0-9]+', '#', first)[:100]}") from why


def export_case(source, seed, inputs, sizes, dynamic, name, folder, operators=None):
    """The runs of one module, in both forms; LeftOut when it cannot be exported or says nothing."""
    module = build(source, seed)
    shapes = None
    if dynamic:
        batch = torch.export.Dim("batch", min=1, max=64)
        shapes = tuple({0: batch} for _ in inputs(None))
    program = attempt("torch.export refuses it", lambda: torch.export.export(module, tuple(inputs(None)), dynamic_shapes=shapes, strict=False))
    # Where the exporter itself says another shape or type than eager has, no compiler can be right.
    eager = build(source, seed)(*inputs(None))  # another one: a call may write to the buffers that are to be saved
    noted = [n.meta.get("val") for n in program.graph.find_nodes(op="output")[0].args[0]][-len(eager):]
    if any(isinstance(m, torch.Tensor) and (m.dtype != e.dtype or m.dim() != e.dim()) for m, e in zip(noted, eager)):
        raise LeftOut("the exported program says other shapes or types than eager has")
    forms = [("raw", program)]
    try:
        forms.append(("core", program.run_decompositions()))
    except Exception:  # torch's own limits
        pass
    runs, given, wanted = [], {}, {}
    for size in [None] + (sizes if dynamic else []):
        got = attempt("eager refuses it at another size", lambda: twice(build(source, seed), inputs(size)))
        true = attempt("eager refuses it in float64", lambda: twice(build(source, seed).double(), wide(inputs(size))))
        tolerance = {}
        for g, t in zip(got, true):
            if g.keys() != t.keys():
                raise LeftOut("float64 changes other inputs and buffers")
            for key, value in g.items():
                if not value.is_floating_point():
                    if not torch.equal(value, t[key].to(value.dtype)):
                        raise LeftOut("float64 decides otherwise")
                    tolerance.setdefault(key, [0.0, 0.0])
                    continue
                error, largest = cases.worst_error(value, t[key]), max(1.0, float(value.abs().max()) if value.numel() else 1.0)
                rtol, atol = cases.TOLERANCE[cases.DTYPE_NAMES[value.dtype]]
                narrow = any(word in source for word in ("half", "bfloat16")) or any(x.dtype in (torch.float16, torch.bfloat16) for x in inputs(None))
                if value.dtype == torch.float64 and any(x.dtype != torch.float64 for x in inputs(None)):  # some of it in float32
                    rtol, atol = cases.TOLERANCE[cases.DTYPE_NAMES[torch.float32]]
                if narrow:
                    rtol, atol = max(rtol, 2e-2), max(atol, 1.6e-2)
                if error > (0.2 if narrow else 2e-3) * largest:
                    raise LeftOut("float64 is far away")
                was = tolerance.get(key, [0.0, 0.0])
                tolerance[key] = [max(was[0], rtol), max(was[1], atol * largest, 8 * error)]
        for form, _ in forms:
            run = f"{name}.{form}" + (f".{size}" if size else "")
            given.update({f"{run}/{k}": v for k, v in enumerate(inputs(size))})
            for number, named in enumerate(got):
                wanted.update({f"{run}{'.again' if number else ''}/{k}": v for k, v in named.items()})
            runs.append({"name": run, "program": f"{name}.{form}.pt2", "inputs": f"{name}.inputs.safetensors", "outputs": f"{name}.outputs.safetensors", "prefix": f"{run}/",
                         "again": f"{run}.again/", "tolerance": tolerance})
    for form, p in forms:
        for node in p.graph.nodes:
            if operators is not None and node.op == "call_function":
                operators[str(node.target).removeprefix("aten.")] += 1
        buffer = io.BytesIO()
        attempt("torch.export cannot save it", lambda: torch.export.save(p, buffer))
        (folder / f"{name}.{form}.pt2").write_bytes(buffer.getvalue())
    cases.write_safetensors(folder / f"{name}.inputs.safetensors", given)
    cases.write_safetensors(folder / f"{name}.outputs.safetensors", wanted)
    return runs


def torch_differs(source, seed, inputs, dynamic, run):
    """Why the exported program of this run (NAME.FORM or NAME.FORM.SIZE) gives other numbers than eager when torch itself runs it; None: it
    does not. The exporter decides by the sizes that it sees, and turns some operators into others (lift_fresh into a copy)."""
    _, form, *size = run.split(".")
    size = int(size[0]) if size else None
    shapes = tuple({0: torch.export.Dim("batch", min=1, max=64)} for _ in inputs(None)) if dynamic else None
    try:
        program = torch.export.export(build(source, seed), tuple(inputs(None)), dynamic_shapes=shapes, strict=False)
        got = twice((program if form == "raw" else program.run_decompositions()).module(), inputs(size))
    except Exception as why:
        return f"{type(why).__name__} where torch runs what it exported"
    want = twice(build(source, seed), inputs(size))
    for g, w in zip(got, want):
        for key in w:
            if key not in g or (g[key].shape != w[key].shape or g[key].dtype != w[key].dtype or not torch.allclose(g[key], w[key], rtol=0.05, atol=0.05, equal_nan=True)):
                return "torch's own run of what it exported differs from eager"
    return None


def write_cases(runs, folder):
    (folder / "case.json").write_text(json.dumps({"runs": runs}))


def make_cases(seeds, folder):
    """{name: (source, Random)} of the modules that were written, how often each operator stood in their graphs, and why the others were left out.
    It is made in a process of its own: some calls corrupt torch's memory, which ends the process or, worse, does not."""
    parts = [in_child(lambda: cases_of(seeds, folder), folder)]
    if parts == [None]:
        parts = [in_child(lambda: cases_of([seed], folder), folder) for seed in seeds]
    runs, made, operators, left_out = [], {}, collections.Counter(), collections.Counter()
    for part in parts:
        if part is None:
            left_out["torch's process dies of it"] += 1
            continue
        runs += part[0]
        made.update(part[1])
        operators += part[2]
        left_out += part[3]
    write_cases(runs, folder)
    return made, operators, left_out


OUT_OF_MEMORY = 2


def in_child(call, folder):
    """What the call gives in a forked process; None: that ended early, or asked for more memory than a worker may have."""
    result = folder / "made.pickle"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            result.write_bytes(pickle.dumps(call()))
            code = 0
        except Exception as why:
            traceback.print_exc()
            code = OUT_OF_MEMORY if "alloc" in str(why) else 1
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) not in (0, OUT_OF_MEMORY):
        raise RuntimeError("the generator of modules failed")
    return pickle.loads(result.read_bytes()) if status == 0 else None


def cases_of(seeds, folder):
    """Runs, and the three parts of what make_cases gives."""
    runs, made, operators, left_out = [], {}, collections.Counter(), collections.Counter()
    for seed in seeds:
        r = Random(seed)
        # Each statement is tried alone: what is raised here is the generator's own fault.
        r.grow()
        source = r.source(r.lines, r.outputs)
        try:
            own = export_case(source, seed, r.input, [1, 7], r.dynamic, f"m{seed}", folder, operators)
        except LeftOut as why:
            left_out[str(why)] += 1
            continue
        made[f"m{seed}"] = (source, r)
        runs += own
    return runs, made, operators, left_out
