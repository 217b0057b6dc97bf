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


def one(make):
    return lambda: {"a": make()}


def parts(make, *views):
    def build():
        store = make()
        return {name: view(store) for name, view in zip("kvw", views)}
    return build


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


EXPORT = ("export",)

CASES = [
    Case("transposed", one(lambda: torch.randn(6, 4).t()), add_and_double, normal(4, 6)),
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
    Case("dynamic", one(lambda: torch.randn(6, 4).t()), lambda m, x: (m.a.add_(x.sum(0)), x * m.a)[1], lambda: torch.randn(int(torch.randint(2, 9, ())), 4, 6),
         dynamic={"inputs": ({0: torch.export.Dim("rows", min=1, max=64)},)}),
]
