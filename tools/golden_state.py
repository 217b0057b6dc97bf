"""Models with state: what a run leaves in buffers, parameters and inputs that are views of larger memory.

Each is called twice, with other inputs, in one context: the second call shows what the first one wrote. Expected values are
those of the module itself in eager mode, by name ("buffer.NAME" also for a parameter), after each call. torch does not
decompose a program whose buffers lie between each other in one storage: EXPORT.
"""
import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, buffers, function):
        super().__init__()
        for name, tensor in buffers().items():
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)
        self.function = function

    def forward(self, *inputs):
        return self.function(self, *inputs)


class Case:
    def __init__(self, name, buffers, function, *inputs, dynamic=None, forms=("export", "decomposed")):
        self.name, self.buffers, self.function, self.make, self.dynamic, self.forms = name, buffers, function, inputs, dynamic, forms

    def build(self):
        return Model(self.buffers, self.function)

    def inputs(self):
        return tuple(make() for make in self.make)


def normal(*sizes, dtype=torch.float32):
    return lambda: torch.randn(*sizes).to(dtype)


def add_and_double(m, x):
    m.a.add_(x)
    return m.a * 2


def turned(m, x):
    """The next call finds the buffer transposed."""
    m.a.t_()
    return m.a + x


def turned_and_doubled(m, x):
    m.a.transpose_(0, 2).mul_(2)
    return m.a[0] + x


def one(make):
    return lambda: {"a": make()}


def parts(make, *views):
    def build():
        store = make()
        return {name: view(store) for name, view in zip("kvw", views)}
    return build


def swapped_slice(m, x):
    m.a[..., ::2].transpose(1, 2).add_(x)  # dimensions of one size, of a view with gaps
    return m.a * 2


def both(m, x):
    m.k.add_(x)
    m.v.sub_(x)
    return m.k * 2, m.v * 3


def cache(m, x, y):
    m.k[:, :, 2:4] = x
    m.v[:, :, 2:4] = y
    return torch.softmax(x @ m.k.mT, -1) @ m.v


def append(m, x, at):
    m.k.index_copy_(1, at, x)
    m.v.index_copy_(1, at, x * 2)
    return m.k + m.v


def returned(m, x):
    m.a.mul_(x)
    return m.a, m.a.t(), m.a[1:]


def part_written(m, x):
    m.a[:, 1:3] = x
    m.a.t()[0].mul_(2)
    return m.a.sum(0)


def counted(m, x):
    m.a.add_(1)
    return x + m.a


def swapped(m, x):
    old = m.k.clone()
    m.k.copy_(m.v + x)
    m.v.copy_(old)
    return m.k - m.v


def twice(m, x):
    m.k.add_(x)
    m.v.mul_(2)
    return m.k + 1


def one_written(m, x):
    m.k.add_(x)
    return m.v @ m.k


def parameter(m, x):
    with torch.no_grad():
        m.a.mul_(0.5).add_(x)
    return m.a.exp()


def statistics(m, x):
    return F.batch_norm(x, m.k, m.v, training=True, momentum=0.25)


def instance_statistics(m, x):
    return F.instance_norm(x, m.k, m.v, use_input_stats=True, momentum=0.3)


def input_and_buffer(m, x, y):
    x.add_(y)
    m.a.add_(x)
    return m.a * y


def scalars(m, x):
    m.a.mul_(2)
    return m.a + x


def updated_twice(m, x):
    """A value between two updates of a buffer, which a norm reads in each of its passes."""
    m.a.add_(x)
    y = torch.maximum(x * 0.5 + m.a, m.a)
    m.a.relu_().add_(y)
    return F.layer_norm(y, (6,)), torch.softmax(m.a, 1)


def position(size, count=None):
    """Different positions in [0, size), one by default."""
    return lambda: torch.randperm(size)[:count or 1]


def row_put(m, x, at):
    m.k[:, :, at] = x
    m.v[:, :, at] = x * 2
    return torch.softmax(x @ m.k.mT, -1) @ m.v


def row_at_number(m, x, at):
    i = at.item()
    torch._check(i >= 0)
    torch._check(i < 6)
    m.a[i] = x
    m.a[:, 1] = 3
    return m.a.sum(0)


def old_rows_read(m, x, at):
    """What the update replaces is read behind it: as a copy, as a part, and computed."""
    old, part, computed = m.a.clone(), m.a[0], m.a[1] * 2
    m.a[at] = x
    return old.sum() + m.a.sum(), part + 0, computed, m.a[0] - part


def rows_of_itself(m, at, other):
    m.a[at] = m.a[other] * 2
    m.a[0] = m.a[1]
    m.a[1:3] = m.a[3:5]
    m.a[:, 2] = m.a[:, 1] + m.a[:, 0]
    return m.a * 1


def by_column(m, x, at):
    m.a.t()[at] = x
    m.a.t()[0] = 2
    m.a[::2, 1:3] = 7
    m.a[-1] = m.a[0]
    return m.a.sum(1)


def functional_put(m, x, at):
    """Nothing here may change a buffer before its own update."""
    y = torch.index_put(m.k, (at,), x)
    z = torch.index_copy(m.v, 0, at, x)
    m.k.add_(1)
    m.v.sub_(1)
    return y, z + m.v, m.k.sum()


def functional_of_weight(m, x, at):
    m.k[at] = x
    y = m.v.index_copy(0, at, x)
    return y.sum(0), m.v * 2


def scattered(m, x, at):
    m.k.scatter_(0, at.unsqueeze(1).expand(-1, 4), x)
    m.v.scatter_add_(0, at.unsqueeze(1).expand(-1, 4), x)
    m.v.index_add_(0, at, x, alpha=2)
    m.k.index_fill_(0, at[:1], 5)
    m.w.scatter_reduce_(0, at.unsqueeze(1).expand(-1, 4), x, "amax", include_self=False)
    m.w.index_put_((at[:1],), x[:1], accumulate=True)
    return m.k + m.v * m.w


def repeated_adds(m, x):
    at = torch.tensor([1, 1, 3, 1])
    m.a.index_put_((at,), x, accumulate=True)
    return m.a.exp()


def rows_of_input(m, x, y, at):
    x[at] = y
    x[:, 0].add_(1)
    m.a.add_(1)
    return x.sum() + y


def read_behind_sum(m, x):
    """What stands behind the sum reads the buffer, what is written does not need the sum."""
    y = x.sum(1) * m.a
    m.a.add_(1)
    return y


def read_behind_product(m, x):
    y = F.cosine_similarity(m.a, x @ x, 0)
    m.a[0].add_(1)
    return y


def two_updates(m, x, at, y, other):
    m.a[at] = x
    between = m.a.sum(0)
    m.a[other] = y
    return between, m.a.sum(0), m.a


def before_attention(m, x):
    """The scores read the cache as it was, the result follows the update."""
    scores = x @ m.k.mT
    m.k[:, 2] = 1
    first = torch.softmax(scores * 0.5, -1) @ m.v
    m.v[:, 0] = 0
    return first, torch.softmax(x @ m.k.mT, -1) @ m.v


def of_expanded(m, x, at):
    """A view in which elements share memory."""
    wide = m.a.expand(3, 4)
    y = wide.index_copy(0, at, x)
    m.a.mul_(2)
    return y, wide + x.sum(0)


def in_branch(m, x, at):
    m.a[at] = x
    y = torch.cond(x.sum() > 0, lambda a, x: a[0] + x[0], lambda a, x: a[1] - x[0], (m.a.clone(), x))
    m.a[0] = y
    return m.a.sum(0)


def turned_around(m, x):
    """Dimensions that run backwards in memory, read behind writes of parts."""
    columns, rows = m.a.flip(1), m.a.flip(0, 1)[1:, :3]
    m.a[0].add_(x[0])
    quarter = m.a.rot90(1, (0, 1))
    m.a[:, 4] = 7
    m.a[2:].fliplr().mul_(2)
    return columns, rows, quarter, m.a.flipud()


def of_other_types(m, x):
    """What run_decompositions() says is written back has another type than the buffer, and may have other sizes."""
    m.k.fill_(x[0, 0])
    m.v.copy_(x.imag.sum(0))
    m.w.copy_(x.real > 0)
    return x * 2


def returned_too(m, x):
    """What is written into all rows of a buffer is returned: the buffer, not the row."""
    m.v.copy_(x.sum(0))
    m.w.copy_(x[0, 0])
    return m.v, m.w, x * 2


EXPORT = ("export",)

CASES = [
    Case("transposed", one(lambda: torch.randn(6, 4).t()), add_and_double, normal(4, 6)),
    Case("turned", one(lambda: torch.randn(5, 5)), turned, normal(5, 5), forms=EXPORT),
    Case("turned_and_doubled", one(lambda: torch.randn(3, 4, 3)), turned_and_doubled, normal(4, 3), forms=EXPORT),
    Case("channels_last", one(lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)), add_and_double, normal(2, 3, 4, 5)),
    Case("columns", one(lambda: torch.randn(6, 8)[:, 1::2]), add_and_double, normal(6, 4)),
    Case("row", one(lambda: torch.randn(3, 4, 6)[1]), add_and_double, normal(4, 6)),
    Case("permuted", one(lambda: torch.randn(3, 4, 5).permute(2, 0, 1)), add_and_double, normal(5, 3, 4)),
    Case("corner", one(lambda: torch.randn(5, 7)[1:4, 2:6].t()), add_and_double, normal(4, 3)),
    Case("half", one(lambda: torch.randn(6, 4).to(torch.bfloat16).t()), add_and_double, normal(4, 6, dtype=torch.bfloat16)),
    Case("thin", one(lambda: torch.randn(1, 4).t()), add_and_double, normal(4, 1)),
    Case("one_number", one(lambda: torch.arange(4)[2]), counted, normal(3)),
    Case("broadcast_input", one(lambda: torch.randn(6, 4).t()), scalars, normal(6)),
    Case("shared", parts(lambda: torch.zeros(2, 4, 6), lambda c: c[0], lambda c: c[1]), both, normal(4, 6)),
    Case("interleaved", parts(lambda: torch.randn(4, 6), lambda c: c[:, 0::2], lambda c: c[:, 1::2]), both, normal(4, 3), forms=EXPORT),
    Case("shared_with_a_weight", parts(lambda: torch.randn(2, 5, 5), lambda c: c[0], lambda c: c[1].t()), one_written, normal(5, 5)),
    Case("cache", parts(lambda: torch.zeros(2, 1, 2, 6, 4), lambda c: c[0], lambda c: c[1]), cache, normal(1, 2, 2, 4), normal(1, 2, 2, 4)),
    Case("append", parts(lambda: torch.zeros(4, 6, 2), lambda c: c[..., 0], lambda c: c[..., 1]), append, normal(4, 2), lambda: torch.randperm(6)[:2], forms=EXPORT),
    Case("swapped", parts(lambda: torch.randn(4, 8), lambda c: c[:, :4], lambda c: c[:, 4:]), swapped, normal(4, 4)),
    Case("one_view_twice", parts(lambda: torch.randn(6, 4), lambda c: c.t(), lambda c: c.t()), twice, normal(4, 6), forms=EXPORT),
    Case("returned", one(lambda: torch.randn(6, 4).t()), returned, normal(4, 6)),
    Case("part_written", one(lambda: torch.randn(5, 4).t()), part_written, normal(4, 2)),
    Case("parameter", one(lambda: nn.Parameter(torch.randn(6, 4).t())), parameter, normal(4, 6)),
    Case("statistics", parts(lambda: torch.ones(2, 3), lambda c: c[0], lambda c: c[1]), statistics, normal(4, 3, 5)),
    Case("instance_statistics", parts(lambda: torch.ones(2, 3), lambda c: c[0], lambda c: c[1]), instance_statistics, normal(4, 3, 5)),
    Case("input_and_buffer", one(lambda: torch.randn(6, 4).t()), input_and_buffer, lambda: torch.randn(6, 4).t(), normal(4, 6)),
    Case("updated_twice", one(lambda: torch.randn(4, 6)), updated_twice, normal(4, 6)),
    Case("row_put", parts(lambda: torch.randn(2, 1, 2, 6, 4), lambda c: c[0].clone(), lambda c: c[1].clone()), row_put, normal(1, 2, 1, 4), position(6)),
    Case("row_put_shared", parts(lambda: torch.randn(2, 1, 2, 6, 4), lambda c: c[0], lambda c: c[1]), row_put, normal(1, 2, 1, 4), position(6)),
    Case("row_at_number", one(lambda: torch.randn(6, 4)), row_at_number, normal(4), lambda: torch.randint(0, 6, ())),
    Case("old_rows_read", one(lambda: torch.randn(6, 4)), old_rows_read, normal(2, 4), position(6, 2)),
    Case("rows_of_itself", one(lambda: torch.randn(6, 4)), rows_of_itself, position(6, 2), position(6, 2)),
    Case("by_column", one(lambda: torch.randn(6, 4)), by_column, normal(2, 6), position(4, 2)),
    Case("functional_put", parts(lambda: torch.randn(2, 6, 4), lambda c: c[0].clone(), lambda c: c[1].clone()), functional_put, normal(2, 4), position(6, 2)),
    Case("functional_of_weight", parts(lambda: torch.randn(2, 6, 4), lambda c: c[0], lambda c: c[1]), functional_of_weight, normal(2, 4), position(6, 2)),
    Case("scattered", parts(lambda: torch.randn(3, 6, 4), lambda c: c[0].clone(), lambda c: c[1].clone(), lambda c: c[2].clone()), scattered, normal(2, 4), position(6, 2)),
    Case("repeated_adds", one(lambda: torch.randn(6, 4)), repeated_adds, normal(4, 4)),
    Case("repeated_adds_half", one(lambda: torch.randn(6, 4).to(torch.bfloat16)), repeated_adds, normal(4, 4, dtype=torch.bfloat16)),
    Case("rows_of_input", one(lambda: torch.randn(1)), rows_of_input, normal(6, 4), normal(2, 4), position(6, 2)),
    Case("read_behind_sum", one(lambda: torch.randn(4)), read_behind_sum, normal(4, 6)),
    Case("read_behind_product", one(lambda: torch.randn(1)), read_behind_product, normal(5)),
    Case("two_updates", one(lambda: torch.randn(6, 4)), two_updates, normal(2, 4), position(6, 2), normal(1, 4), position(6)),
    Case("before_attention", parts(lambda: torch.randn(2, 2, 6, 4), lambda c: c[0].clone(), lambda c: c[1].clone()), before_attention, normal(2, 3, 4)),
    Case("of_expanded", one(lambda: torch.randn(1, 4)), of_expanded, normal(2, 4), position(3, 2)),
    Case("swapped_slice", one(lambda: torch.randn(3, 2, 2, 2)), swapped_slice, normal(3, 2, 2, 1)),
    Case("in_branch", one(lambda: torch.randn(6, 4)), in_branch, normal(2, 4), position(6, 2)),
    Case("of_other_types", lambda: {"k": torch.zeros((), dtype=torch.float64), "v": torch.zeros(3, 4, dtype=torch.int32), "w": torch.zeros(2, 4, dtype=torch.bfloat16)},
         of_other_types, normal(2, 4, dtype=torch.complex64)),
    Case("returned_too", lambda: {"v": torch.zeros(3, 4, dtype=torch.int32), "w": torch.zeros(5, dtype=torch.bool)}, returned_too, normal(2, 4)),
    Case("turned_around", one(lambda: torch.randn(4, 6)), turned_around, normal(4, 6)),
    Case("dynamic", one(lambda: torch.randn(6, 4).t()), lambda m, x: (m.a.add_(x.sum(0)), x * m.a)[1], lambda: torch.randn(int(torch.randint(2, 9, ())), 4, 6),
         dynamic={"inputs": ({0: torch.export.Dim("rows", min=1, max=64)},)}),
]
