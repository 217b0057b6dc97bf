"""Random programs of views and in-place operators for tools/campaign: what Neso gives beside eager, values and strides.

    make(seed)              a Program: two inputs and a buffer of random shape, type and order in memory, and statements over them
    judge(program, neso)    (verdict, why); judged in a child process, so that a crash is a verdict as well

Each statement is tried in eager when it is drawn. What is compared: the results, what lies in the inputs and in the buffer afterwards, in two calls.
An export that itself differs from eager is a verdict of its own. Statements never give an input another shape in place: the caller's tensor keeps its own.
"""
import collections
import copy
import os
import pickle
import random
import re
import signal
import warnings

warnings.filterwarnings("ignore")
import torch

LARGEST = 400  # elements of a tensor
PATIENCE = 60  # seconds for one program
SHAPES = [(3, 4), (3, 4), (4, 4), (2, 3, 4), (1, 4), (4, 1), (5, ), (1, ), (), (0, 3), (2, 1, 3), (1, 2, 3, 2)]
DTYPES = [torch.float32] * 5 + [torch.int64, torch.int32, torch.bool, torch.complex64, torch.float64, torch.int8]

# {v}: a tensor; {w}: one that broadcasts to it; {d}, {e}: dimensions; {i}: an index in d, {s}: the size of d. By the least number of dimensions.
VIEWS = {
    0: ["{v}.unsqueeze(0)", "{v}.expand(2, *{v}.shape)", "{v}.reshape(-1)", "{v}.view({v}.shape)", "{v}.view_as({v})", "{v}.clone()", "{v}.contiguous()", "{v}.squeeze()", "{v}.detach()", "{v}.real", "torch.atleast_2d({v})"],
    1: ["{v}.narrow({d}, {i}, 1)", "{v}.select({d}, {i})", "{v}.chunk(2, {d})[0]", "{v}.chunk(2, {d})[-1]", "{v}.split([{i}, {s} - {i}], {d})[1]", "{v}.flip({d})", "{v}.roll(1, {d})", "{v}.unfold({d}, 2, 1)", "{v}.unfold({d}, 2, 2)",
        "{v}.unsqueeze({d})", "{v}.movedim(0, -1)", "{v}[1:]", "{v}[..., ::2]", "{v}[..., :-1]", "{v}.repeat_interleave(2, {d})", "{v}.tensor_split(2, {d})[1]", "{v}.unbind({d})[{i}]", "{v}.unflatten({d}, (-1, 2))"],
    2: ["{v}.transpose({d}, {e})", "{v}.transpose(0, -1)", "{v}.mT", "{v}.diagonal()", "{v}.diagonal(1, -2, -1)", "{v}.flatten(0, 1)", "{v}.as_strided((2, 2), (1, 2))", "{v}.as_strided((2, 2), (2, 1), 1)", "{v}[:, {v}.shape[1] // 2:]", "{v}.view(-1)", "{v}.tril()"],
    4: ["{v}.contiguous(memory_format=torch.channels_last)", "{v}.to(memory_format=torch.channels_last)"],
}
WRITES = {
    0: ["{v}.add_(1)", "{v}.mul_(2)", "{v}.fill_(1)", "{v}.zero_()", "{v}.neg_()", "{v}.clamp_(-1, 1)", "{v}.copy_({w})", "{v}.add_({w})", "{v}.sub_({w})", "{v}.mul_({w})", "{v}.lerp_({w}, 0.5)", "{v}.addcmul_({w}, {w})", "{v}.masked_fill_({v} == {w}, 1)", "{v}.logical_not_()", "{v}.add_({o}.sum())"],
    1: ["{v}[1:].copy_({v}[:-1])", "{v}[:-1] = {v}[1:] * 2", "{v}.copy_({v}.flip(0))", "{v}[..., 0] = 1", "{v}[..., 1:].copy_({v}[..., :-1].flip(-1))", "{v}.index_put_((torch.tensor([0, -1]), ), {v}[:1], accumulate=True)", "{v}.index_put_((torch.tensor([0]), ), {v}[-1:])",
        "{v}.index_add_({d}, torch.tensor([0, 0]), {v}.narrow({d}, 0, 2))", "{v}.index_copy_(0, torch.tensor([{i} * 0]), {v}[-1:])", "{v}.index_fill_({d}, torch.tensor([{i}]), 1)", "{v}.scatter_({d}, torch.zeros_like({v}, dtype=torch.int64).narrow({d}, 0, 1), 2)",
        "{v}.scatter_add_({d}, torch.zeros_like({v}, dtype=torch.int64), {v})", "{v}.cumsum_({d})", "{v}[{v} == 1] = 0", "{v}.masked_scatter_({v} == {w}, {v}.flip(0))"],
    2: ["{v}.copy_({v}.transpose(0, -1))", "{v}.add_({v}.transpose(0, -1))", "{v}.transpose(0, -1).copy_({v})", "{v}.tril_()", "{v}.diagonal().add_(1)", "{v}.diagonal().copy_({v}[0, :1])", "{v}.fill_diagonal_(1)", "{v}[:, 0] = {v}[:, -1]", "{v}[1:, 1:].copy_({v}[:-1, :-1])"],
}
VALUES = ["{v} * 2", "{v} + {w}", "{v}.sum()", "torch.cat([{v}, {v}])", "torch.where({v} == {w}, {v}, {w})"]


class Program:

    def __init__(self, seed, lines, outputs, inputs, operators):
        self.seed, self.lines, self.outputs, self.inputs, self.operators = seed, lines, outputs, inputs, operators

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


def make(seed):
    r = random.Random(seed)
    torch.manual_seed(seed)
    inputs = [_tensor(r) for _ in range(3)]
    known = dict(zip("xyb", map(_fresh, inputs)))
    lines, operators = [], collections.Counter()
    if r.random() < 0.5:
        lines.append("x = x.clone()")
    for number in range(r.randint(4, 12)):
        v = r.choice(list(known))
        t = known[v]
        kind = r.random()
        d = r.randrange(t.dim()) if t.dim() else 0
        size = t.shape[d] if t.dim() else 1
        table = VIEWS if kind < 0.5 else WRITES if kind < 0.92 else {0: VALUES}
        text = r.choice([line for least, some in table.items() if t.dim() >= least for line in some])
        fitting = [n for n, o in known.items() if o.dtype == t.dtype and _broadcasts(o, t)]
        line = text.format(v=v, w=r.choice(fitting), o=r.choice(list(known)), d=d, e=r.randrange(t.dim()) if t.dim() else 0, i=r.randrange(size) if size else 0, s=size)
        line = f"v{number} = {line}" if table is not WRITES else line
        try:  # on copies that lie in one memory as the originals do: what fails half-way must leave nothing behind
            tried = copy.deepcopy(known)
            exec(line, {"torch": torch}, tried)
        except Exception:
            continue
        if all(isinstance(o, torch.Tensor) and o.numel() <= LARGEST for o in tried.values()):
            known = tried
            lines.append(line)
            operators.update(re.findall(r"\.(\w+)\(", text))
    return Program(seed, lines, [r.choice(list(known)) for _ in range(3)], inputs, operators)


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


def _calls(call, inputs):
    """Two calls: the results of each and what the inputs hold after it."""
    out = []
    for _ in range(2):
        given = [_fresh(t) for t in inputs[:2]]
        with torch.no_grad():
            results = call(*given)
        out += [_kept(t) for t in results] + given
    return out


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


def _judge(program, neso):
    module = _Module(program.source(), _fresh(program.inputs[2]))
    try:
        exported = torch.export.export(copy.deepcopy(module), tuple(map(_fresh, program.inputs[:2])), strict=False)
        exported = exported.run_decompositions() if program.seed % 4 == 0 else exported
        own = _calls(copy.deepcopy(exported).module(), program.inputs)
    except Exception as e:
        return "no export", type(e).__name__
    want = _calls(module, program.inputs)
    if _fault(own, want):
        return "export differs", _fault(own, want)[1]
    try:
        model = neso.compile(exported).load()
    except neso.CompileError as e:
        return "refused", str(e)
    got = _calls(model, program.inputs)
    return _fault(got, want) or ("right", "")


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
