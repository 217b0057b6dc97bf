"""What a turn of a loop leaves for the next one: parts of it written where they lie, values that change places, and what still needs the old content.

`decoder` generates tokens greedily with a cache; its attention is written out, and its loop has everything that the same step has outside of one.
"""
import torch
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from golden_ops import c

F = torch.nn.functional
HEADS, LENGTH, WIDTH, WORDS = 2, 8, 16, 24
WEIGHTS = {"words": "f32 24x16", **{n: "f32 16x16" for n in "qkvo"}, "up": "f32 24x16", "down": "f32 16x24"}


def zero():
    return torch.zeros((), dtype=torch.int64)


def step(m, token, at, keys, values):
    x = F.embedding(token.view(1), m.words)
    q, k, v = (F.linear(x, w).view(HEADS, 1, -1) for w in (m.q, m.k, m.v))
    keys, values = keys.index_copy(1, at.view(1), k), values.index_copy(1, at.view(1), v)
    scores = (q @ keys.transpose(1, 2) * 0.25).masked_fill(torch.arange(LENGTH) > at, float("-inf"))
    x = x + F.linear((scores.softmax(-1) @ values).view(1, WIDTH), m.o)
    x = x + F.linear(F.gelu(F.linear(x, m.up)), m.down)
    return F.linear(x, m.words).argmax(-1).view(()), keys, values


def decoder(m, token, turns):
    def body(at, token, out, keys, values):
        token, keys, values = step(m, token, at, keys, values)
        return at + 1, token, out.index_copy(0, at.view(1), token.view(1)), keys, values
    cache = torch.zeros(HEADS, LENGTH, WIDTH // HEADS)
    return while_loop(lambda at, *_: at < turns, body, (zero(), token.clone(), torch.zeros(LENGTH, dtype=torch.int64), cache, cache.clone()))[1:]


def one_token(m, token, at, keys, values):
    return step(m, token, at, keys, values)


def times(turns, body, *values):
    return while_loop(lambda i, *_: i < turns, lambda i, *v: (i + 1, *body(i, *v)), (zero(), *values))[1:]


def rows_put(x, turns):
    return times(turns, lambda i, x: (x.index_copy(0, (i % 4).view(1), x[2:3] * 0.5 + 1),), x)


def old_and_new(x, y, turns):
    return times(turns, lambda i, x, y: (x.index_copy(0, (i % 4).view(1), y[:1] + 1), x * 0.5 + y), x, y)


def old_rows_read(x, turns):
    def body(i, x):
        before = x.flip(0) * 0.5
        return (torch.slice_scatter(x, x[2:] + 1, 0, 0, 2) + before,)
    return times(turns, body, x)


def same_twice(x, y, turns):
    def body(i, x, y):
        new = x.index_copy(0, (i % 4).view(1), y[1:2] + 1)
        return new, new * 1.0
    return times(turns, body, x, y)


def in_a_ring(x, y, z, turns):
    return times(turns, lambda i, x, y, z: (y.clone(), z + 1, x * 0.5), x, y, z)


def moved_along(x, y, turns):
    return times(turns, lambda i, x, y: (x.roll(1, 0), y + x), x, y)


def phases(x, turns):
    return torch.view_as_real(times(turns, lambda i, z: (z * 1j + z.conj(),), torch.view_as_complex(x))[0])


def only_for_itself(x, y, turns):
    return times(turns, lambda i, x, y: ((x + 1).sin(), y * 0.5 + 1), x, y)[1]


def put_in_a_branch(x, y, turns):
    def body(i, x, y):
        x = torch.cond((x.sum() + i.sum()) > 2, lambda x, y, i: x.index_copy(0, (i % 4).view(1), y[:1]), lambda x, y, i: x + y, (x, y, i))
        return x.index_copy(0, (i % 3).view(1), y[3:4] * 0.25), y + 0.5
    return times(turns, body, x, y)


def put_in_inner_turns(x, y, turns):
    def body(i, x, y):
        _, z = while_loop(lambda j, z: j < 2, lambda j, z: (j + 1, z.index_copy(0, (j + 1).view(1), x[:1] + z[3:])), (zero(), y))
        return x.index_copy(0, (i % 4).view(1), z[1:2] * 0.5), z * 0.5
    return times(turns, body, x, y)


def scan_puts(first, xs, y):
    return scan(lambda x, row: (torch.slice_scatter(x, row.view(1, -1) + x[3:], 0, 1, 2), x * row + y), first, xs)


def constant_operand(x, turns):
    mask = torch.arange(4) < 2
    return times(turns, lambda i, x: (torch.where(mask.view(4, 1), x + 1, x.flip(0) * 0.5),), x)


def groups():
    x, n = "f32 4x5", torch.tensor
    cache = "f32 2x8x8"

    def turns(function, *specs, **rest):
        return c(function.__name__, function, *specs, n(3), more=[[*specs, n(0)], [*specs, n(6)]], **rest)

    return {"turns": [
        c("decoder", decoder, n(5), n(6), more=[[n(7), n(0)], [n(2), n(8)]], state=WEIGHTS), c("one_token", one_token, n(5), n(3), cache, cache, state=WEIGHTS),
        turns(rows_put, x), turns(old_and_new, x, x), turns(old_rows_read, x), turns(same_twice, x, x), turns(in_a_ring, x, x, x), turns(moved_along, x, x),
        turns(phases, "f32 4x2"), turns(only_for_itself, x, x), turns(put_in_a_branch, x, x), turns(put_in_inner_turns, x, x), turns(constant_operand, x),
        c("scan_puts", scan_puts, x, "f32 6x5", x),
    ]}
