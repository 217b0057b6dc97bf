"""Random programs of views and in-place operators for tools/campaign: what Neso gives beside eager, values and strides.

    make(seed)              a Program: two inputs and a buffer of random shape, type and order in memory, and statements over them
    judge(program, neso)    (verdict, why); judged in a child process, so that a crash is a verdict as well

Each statement is tried in eager when it is drawn. What is compared: the results, what lies in the inputs and in the buffer afterwards, in two calls; of a
third of the programs sizes are dynamic, and the second call has others where the export allows it. An export that itself differs from eager is a verdict of its own.
Left out are statements that torch leaves undefined: those that write where they also read, but not the same elements in the same order (what a copy of overlapping
memory gives hangs on eager's kernels), and those that write one place twice; and those that give an input another shape in place, as the caller's tensor keeps its own.
"""
import collections
import copy
import math
import os
import pickle
import random
import re
import signal
import warnings

warnings.filterwarnings("ignore")
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LARGEST = 400  # elements of a tensor
PATIENCE = 60  # seconds for one program
SHAPES = [(3, 4), (3, 4), (4, 4), (2, 3, 4), (1, 4), (4, 1), (5, ), (1, ), (), (0, 3), (2, 1, 3), (1, 2, 3, 2), (2, 2, 2), (6, 2)]
DTYPES = [torch.float32] * 5 + [torch.int64, torch.int32, torch.bool, torch.complex64, torch.complex64, torch.float64, torch.int8, torch.bfloat16]

# {v}: a tensor; {w}: one that broadcasts to it; {u}: one of its shape; {o}: any; {d}, {e}: dimensions; {i}: an index in d, {s}: the size of d. By the least number of dimensions.
VIEWS = {
    0: ["{v}.unsqueeze(0)", "{v}.expand(2, *{v}.shape)", "{v}.reshape(-1)", "{v}.view({v}.shape)", "{v}.view_as({v})", "{v}.clone()", "{v}.contiguous()", "{v}.squeeze()", "{v}.detach()", "{v}.real", "{v}.imag", "torch.atleast_2d({v})",
        "{v}.view(torch.int32)", "{v}.view(torch.int16)", "{v}.view(torch.int8)", "{v}.view(torch.float32)", "torch.view_as_real({v})", "torch.view_as_complex({v})", "{v}.conj()", "{v}.conj().imag", "{v}.to({o}.dtype)", "{v}.ravel()",
        "torch.broadcast_to({v}, {o}.shape)", "{v}.expand_as({o})", "{v}.reshape({o}.shape)", "{v}.view({o}.shape)", "{v}[None]", "{v}[...]", "{v}.type_as({o})", "{v}.float()"],
    1: ["{v}.narrow({d}, {i}, 1)", "{v}.select({d}, {i})", "{v}.chunk(2, {d})[0]", "{v}.chunk(2, {d})[-1]", "{v}.split([{i}, {s} - {i}], {d})[1]", "{v}.split([{i}, {s} - {i}], {d})[0]", "{v}.flip({d})", "{v}.roll(1, {d})", "{v}.unfold({d}, 2, 1)", "{v}.unfold({d}, 2, 2)",
        "{v}.unsqueeze({d})", "{v}.movedim(0, -1)", "{v}[1:]", "{v}[..., ::2]", "{v}[..., :-1]", "{v}.repeat_interleave(2, {d})", "{v}.tensor_split(2, {d})[1]", "{v}.tensor_split([{i}], {d})[0]", "{v}.unbind({d})[{i}]", "{v}.unflatten({d}, (-1, 2))", "{v}.squeeze({d})",
        "{v}.split(2, {d})[-1]", "{v}.swapaxes(0, {d})", "{v}.index_select({d}, torch.tensor([{i}, 0]))", "{v}[..., None]", "{v}[-1]", "{v}[1::2]", "{v}.as_strided((2, ), (1, ))", "{v}.view(-1)", "{v}.hsplit(2)[1]", "{v}.view(-1, 2)", "{v}.unflatten(-1, (2, -1))"],
    2: ["{v}.transpose({d}, {e})", "{v}.transpose(0, -1)", "{v}.mT", "{v}.T", "{v}.diagonal()", "{v}.diagonal(1, -2, -1)", "{v}.flatten(0, 1)", "{v}.as_strided((2, 2), (1, 2))", "{v}.as_strided((2, 2), (2, 1), 1)", "{v}[:, {v}.shape[1] // 2:]", "{v}.tril()", "{v}[:, 0]", "{v}[0, 1:]",
        "{v}.view(-1, {v}.shape[-1])", "{v}.mH", "torch.einsum('ij->ji', {v})", "{v}.permute(*reversed(range({v}.dim())))", "{v}.t()", "{v}.vsplit(2)[0]", "{v}[::2, 1:]", "{v}.diagonal(-1)"],
    4: ["{v}.contiguous(memory_format=torch.channels_last)", "{v}.to(memory_format=torch.channels_last)"],
}
WRITES = {
    0: ["{v}.add_(1)", "{v}.mul_(2)", "{v}.fill_(1)", "{v}.zero_()", "{v}.neg_()", "{v}.clamp_(-1, 1)", "{v}.copy_({w})", "{v}.add_({w})", "{v}.sub_({w})", "{v}.mul_({w})", "{v}.lerp_({w}, 0.5)", "{v}.addcmul_({w}, {w})", "{v}.masked_fill_({v} == {w}, 1)", "{v}.logical_not_()", "{v}.add_({o}.sum())",
        "{v}.copy_({o})", "{v}.add_({o})", "{v}[...] = {o}", "{v}.square_()", "{v}.abs_()", "{v}.eq_({w})", "{v}.gt_(0)", "{v}.bitwise_xor_({w})", "{v}.logical_and_({w})", "{v}.pow_(2)", "{v}.unsqueeze_(0)", "{v}.squeeze_()", "{v}.relu_()", "{v}.sigmoid_()", "{v}.round_()",
        "torch.add({w}, {v}, out={v})", "torch.mul({v}, 2, out={u})", "torch._foreach_add_([{v}, {u}], 1)", "torch._foreach_mul_([{v}, {o}], 2)", "{v}.masked_fill_({v} == {w}, {o}.sum())", "{v}.fill_({o}.sum())", "{v}.detach_()", "{v}.conj_physical_()", "{v}.remainder_(2)"],
    1: ["{v}[1:].copy_({v}[:-1])", "{v}[:-1] = {v}[1:] * 2", "{v}.copy_({v}.flip(0))", "{v}[..., 0] = 1", "{v}[..., 1:].copy_({v}[..., :-1].flip(-1))", "{v}.index_put_((torch.tensor([0, -1]), ), {v}[:1], accumulate=True)", "{v}.index_put_((torch.tensor([0]), ), {v}[-1:])",
        "{v}.index_add_({d}, torch.tensor([0, 0]), {v}.narrow({d}, 0, 2))", "{v}.index_copy_(0, torch.tensor([{i} * 0]), {v}[-1:])", "{v}.index_fill_({d}, torch.tensor([{i}]), 1)", "{v}.scatter_({d}, torch.zeros_like({v}, dtype=torch.int64).narrow({d}, 0, 1), 2)",
        "{v}.scatter_add_({d}, torch.zeros_like({v}, dtype=torch.int64), {v})", "{v}.cumsum_({d})", "{v}.cumprod_({d})", "{v}[{v} == 1] = 0", "{v}.masked_scatter_({v} == {w}, {v}.flip(0))", "{v}[{v} != 0] += 1", "{v}[torch.tensor([0, -1])] *= 2", "{v}[..., torch.tensor([0])] = {v}[..., -1:]",
        "{v}.scatter_({d}, torch.zeros_like({v}, dtype=torch.int64).narrow({d}, 0, 1), {v}.narrow({d}, {i}, 1))", "{v}.scatter_reduce_({d}, torch.zeros_like({v}, dtype=torch.int64), {v}, 'amax')", "{v}.index_reduce_({d}, torch.tensor([0, 0]), {v}.narrow({d}, 0, 2).clone(), 'prod')",
        "[p.mul_(k + 2) for k, p in enumerate({v}.unbind({d}))]", "[p.add_(k) for k, p in enumerate({v}.split(2, {d}))]", "[p.zero_() for p in {v}.chunk(2, {d})[1:]]", "{v}[::2] = {v}[:1].clone()", "{v}.put_(torch.tensor([0, -1]), {v}.reshape(-1)[:2].clone())", "{v}.put_(torch.tensor([0, 0]), {v}.reshape(-1)[:2].clone(), accumulate=True)",
        "torch.cumsum({v}, {d}, out={u})", "torch.sort({v}, {d}, out=({u}, torch.empty(0, dtype=torch.int64)))", "{v}.swapaxes_(0, {d})", "{v}.unsqueeze_({d})", "{v}.squeeze_({d})", "{v}[{i}].add_({v}[0].clone())", "{v}.select({d}, {i}).copy_({o})", "{v}.narrow({d}, {i}, 1).add_({w})", "{v}.index_put_(({v} == {w}, ), torch.ones((), dtype={v}.dtype))",
        "{v}.renorm_(2, {d}, 1)", "{v}.as_strided((2, ), (1, )).add_(1)", "{v}.unfold({d}, 2, 2).mul_(3)", "torch.cat([{v}[:1], {v}[1:]], out={u})"],
    2: ["{v}.copy_({v}.transpose(0, -1))", "{v}.add_({v}.transpose(0, -1))", "{v}.transpose(0, -1).copy_({v})", "{v}.tril_()", "{v}.triu_(1)", "{v}.diagonal().add_(1)", "{v}.diagonal().copy_({v}[0, :1])", "{v}.fill_diagonal_(1)", "{v}[:, 0] = {v}[:, -1]", "{v}[1:, 1:].copy_({v}[:-1, :-1])",
        "{v}.transpose_({d}, {e})", "{v}.t_()", "{v}.mT.copy_({w})", "{v}[torch.tensor([0, 1]), torch.tensor([1, 0])] = 5", "{v}[:, torch.tensor([1, 0])] = {v}[:, :2].clone()", "{v}[0][1:] = 7", "{v}.T[0].mul_(3)", "{v}.as_strided((2, 2), (2, 1), 1).fill_(4)", "{v}.view(-1)[::3].sub_(2)", "{v}.flatten(0, 1)[1:].neg_()",
        "{v}.as_strided_((2, 2), (1, 2))", "{v}.addmm_({v}[:, :1].clone(), {v}[:1].clone())", "torch.matmul({v}, {v}, out={u})", "{v}.baddbmm_({v}, {v})", "{v}.addmv_({v}, {v}[0].clone())", "{v}.permute(*reversed(range({v}.dim())))[..., 0].mul_(2)"],
}
VALUES = ["{v} * 2", "{v} + {w}", "{v}.sum()", "torch.cat([{v}, {v}])", "torch.where({v} == {w}, {v}, {w})", "torch.zeros_like({v})", "{v}.new_ones({v}.shape)", "{v}.cumsum(0)", "torch.empty_like({v}).copy_({v})", "torch.stack([{v}, {v}])", "{v} == {w}", "{v}.repeat(2, *[1] * {v}.dim())", "{v}.new_zeros(2, 6)"]
HIDDEN = ("_x", "_y", "_b")  # the tensors that the caller and the module hold, whatever the names stand for by now


class Program:

    def __init__(self, seed, lines, outputs, inputs, operators, dynamic):
        self.seed, self.lines, self.outputs, self.inputs, self.operators, self.dynamic = seed, lines, outputs, inputs, operators, dynamic

    def source(self):
        return "def forward(x, y, b):\n" + "".join(f"    {line}\n" for line in self.lines) + f"    return {', '.join(self.outputs)},\n"


class _Module(torch.nn.Module):

    def __init__(self, source, buffer):
        super().__init__()
        self.register_buffer("b", buffer)
        names = {"torch": torch}
        exec(source, names)
        self.call = names["forward"]

    def forward(self, x, y):
        return self.call(x, y, self.b)


def _tensor(r):
    shape, dtype = r.choice(SHAPES), r.choice(DTYPES)
    value = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(r.randrange(1 << 30)))
    value = (value > 0) if dtype == torch.bool else (value * 0.5).to(dtype) if dtype.is_floating_point else value.to(dtype)
    if value.dim() == 4 and r.random() < 0.5:
        return value.contiguous(memory_format=torch.channels_last)
    return value.mT.contiguous().mT if value.dim() > 1 and r.random() < 0.25 else value


class _Undefined(TorchDispatchMode):
    """Refuses calls of which torch does not say what they leave in memory."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        schema = func._schema
        given = [(a, args[k] if k < len(args) else kwargs.get(a.name)) for k, a in enumerate(schema.arguments)]
        written, others = [], []
        for a, value in given:
            (written if a.alias_info and a.alias_info.is_write else others).extend(t for t in tree_leaves(value) if isinstance(t, torch.Tensor))
        if schema.name not in ("aten::detach_", "aten::set_"):
            for k, w in enumerate(written):
                places = _places(w)
                if len(set(places)) < len(places):
                    raise RuntimeError("writes one place twice")
                # Only what works element by element may read what it writes.
                alone = torch.Tag.pointwise in func.tags or schema.name == "aten::copy_"
                for o in others + written[:k]:
                    if set(places) & set(_places(o)) and not (alone and _places(o) == places):
                        raise RuntimeError("writes where it reads")
        return func(*args, **kwargs)


def _places(t):
    """Where the elements of a tensor lie, in their order: the address of each byte block of the size of an element."""
    at = [t.data_ptr()] if t.numel() else []
    for size, step in zip(t.shape, t.stride()):
        at = [a + i * step * t.element_size() for a in at for i in range(size)]
    return [(a + k) for a in at for k in range(t.element_size())] if t.numel() <= LARGEST else at


def make(seed):
    r = random.Random(seed)
    torch.manual_seed(seed)
    inputs = [_tensor(r) for _ in range(3)]
    known = dict(zip("xyb", map(_fresh, inputs)))
    known.update((name, known[name[1:]]) for name in HIDDEN)
    lines, operators = [], collections.Counter()
    if r.random() < 0.5:
        lines.append("x = x.clone()")
        known["x"] = known["x"].clone()
    wanted = r.randint(4, 12)
    for number in range(4 * wanted):
        names = [n for n in known if n not in HIDDEN]
        v = r.choice(names[-4:] if r.random() < 0.4 else names)  # views of views
        t = known[v]
        kind = r.random()
        d = r.randrange(t.dim()) if t.dim() else 0
        size = t.shape[d] if t.dim() else 1
        table = VIEWS if kind < 0.45 else WRITES if kind < 0.92 else {0: VALUES}
        text = r.choice(r.choice([some for least, some in table.items() if t.dim() >= least]) if r.random() < 0.5 else [line for least, some in table.items() if t.dim() >= least for line in some])
        fitting = [n for n in names if known[n].dtype == t.dtype and _broadcasts(known[n], t)]
        alike = [n for n in names if known[n].dtype == t.dtype and known[n].shape == t.shape]
        line = text.format(v=v, w=r.choice(fitting), u=r.choice(alike), o=r.choice(names), d=d, e=r.randrange(t.dim()) if t.dim() else 0, i=r.randrange(size) if size else 0, s=size)
        line = f"v{number} = {line}" if table is not WRITES else line
        try:  # on copies that lie in one memory as the originals do: what fails half-way must leave nothing behind
            tried = copy.deepcopy(known)
            with _Undefined():
                exec(line, {"torch": torch}, tried)
        except Exception:
            continue
        kept = all(tried[n].shape == i.shape and tried[n].stride() == i.stride() and tried[n].dtype == i.dtype for n, i in zip(HIDDEN, inputs))
        if kept and all(isinstance(o, torch.Tensor) and o.numel() <= LARGEST for o in tried.values()):
            known = tried
            lines.append(line)
            operators.update(re.findall(r"\.(\w+)\(", text))
            if len(lines) >= wanted:
                break
    names = [n for n in known if n not in HIDDEN]
    return Program(seed, lines, [r.choice(names) for _ in range(3)], inputs, operators, r.random() < 0.33)


def _broadcasts(small, large):
    try:
        return torch.broadcast_shapes(small.shape, large.shape) == large.shape
    except RuntimeError:
        return False


def _fresh(tensor):
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def _kept(tensor):
    """A result as it is now, with its strides: what is repeated, or a view of a buffer, changes with the next call."""
    once = _fresh(tensor[tuple(slice(0, 1) if step == 0 and size else slice(None) for step, size in zip(tensor.stride(), tensor.shape))])
    return once.expand(tensor.shape)


def _calls(call, inputs, second):
    """Two calls, the second with inputs of its own: the results of each and what the inputs hold after it."""
    out = []
    for given in (inputs[:2], second):
        given = [_fresh(t) for t in given]
        with torch.no_grad():
            results = call(*given)
        out += [_kept(t) for t in results] + given
    return out


def _other_sizes(program, module, exported):
    """Inputs of other sizes that eager and the export take, or the same again."""
    for larger in (lambda n: n + 2, lambda n: 2 * n) if program.dynamic else ():
        second = []
        for t in program.inputs[:2]:
            order = sorted(range(t.dim()), key=lambda d: -t.stride(d))
            sizes = [larger(t.shape[d]) if t.shape[d] > 1 else t.shape[d] for d in order]
            value = torch.arange(math.prod(sizes)).remainder(7).sub(3).mul(0.5 if t.dtype.is_floating_point else 1).to(t.dtype).reshape(sizes)
            second.append(value.permute([order.index(d) for d in range(t.dim())]))
        try:
            with torch.no_grad(), _Undefined():
                copy.deepcopy(module)(*map(_fresh, second))
            with torch.no_grad():
                copy.deepcopy(exported).module()(*map(_fresh, second))
            return second
        except Exception:
            continue
    return program.inputs[:2]


def _fault(got, want):
    for number, (g, w) in enumerate(zip(got, want)):
        try:
            torch.testing.assert_close(g, w, equal_nan=True)
        except AssertionError as e:
            return "wrong", f"tensor {number}: {e}".replace("\n", " ")
    for number, (g, w) in enumerate(zip(got, want)):
        moving = [d for d in range(w.dim()) if w.shape[d] > 1] if w.numel() > 1 else []
        if [g.stride(d) for d in moving] != [w.stride(d) for d in moving]:
            return "strides", f"tensor {number}: {g.stride()}, not {w.stride()}, of {tuple(w.shape)}"
    return None


def _late(*_):
    raise TimeoutError("an export takes too long")


def _judge(program, neso):
    module = _Module(program.source(), _fresh(program.inputs[2]))
    signal.signal(signal.SIGALRM, _late)  # an export of dynamic sizes can take torch minutes
    sizes = [{d: torch.export.Dim.AUTO for d, n in enumerate(t.shape) if n > 1} for t in program.inputs[:2]] if program.dynamic else None
    try:
        exported = torch.export.export(copy.deepcopy(module), tuple(map(_fresh, program.inputs[:2])), strict=False, dynamic_shapes=sizes)
        exported = exported.run_decompositions() if program.seed % 4 == 0 else exported
        second = _other_sizes(program, module, exported)
        own = _calls(copy.deepcopy(exported).module(), program.inputs, second)
    except Exception as e:
        return "no export", type(e).__name__
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(PATIENCE)
    want = _calls(module, program.inputs, second)
    if _fault(own, want):
        return "export differs", _fault(own, want)[1]
    try:
        model = neso.compile(exported).load()
    except neso.CompileError as e:
        return "refused", str(e)
    got = _calls(model, program.inputs, second)
    fault = _fault(got, want)
    if fault and fault[0] == "strides" and all(_stated(exported, k) == t.stride() for k, t in enumerate(got[:len(program.outputs)])):
        return "strides as stated", fault[1]
    return fault or ("right", "")


def _stated(exported, number):
    """The strides that the export says a result has, which need not be those that its own operators give it."""
    name = exported.graph_signature.user_outputs[number]
    value = next((n.meta["val"] for n in exported.graph.nodes if n.name == name), None)
    return value.stride() if isinstance(value, torch.Tensor) and all(isinstance(s, int) for s in value.stride()) else None


def judge(program, neso):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(PATIENCE)
            try:
                verdict = _judge(program, neso)
            except Exception as e:
                verdict = "fails", f"{type(e).__name__}: {e}"
            os.write(writing, pickle.dumps(tuple(text[:1000] for text in verdict)))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    status = os.waitpid(child, 0)[1]
    if said:
        return pickle.loads(said)
    return ("timeout", "") if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM else ("crash", f"status {status}")


def smaller(program, verdict, neso, until):
    """The program with as few statements and results as give the same verdict; until: says whether there is time."""
    changed = True
    while changed:
        changed = False
        for part in ("outputs", "lines"):
            for at in reversed(range(len(getattr(program, part)))):
                less = copy.copy(program)
                setattr(less, part, getattr(program, part)[:at] + getattr(program, part)[at + 1:])
                if until() and less.outputs and judge(less, neso)[0] == verdict:
                    program, changed = less, True
    return program
