"""An operator of opinfo_export.py between others: what its operands come out of, and what its results go into.

Operands keep their values, so that what the operator asks of them (indices in range, positive definite matrices) still holds; results go through
functions without jumps, so that rounding stays small. Everything is drawn once, from a seed.
"""
import random

import torch
import torch.nn.functional as F


def some_dim(draw, t):
    """A dimension of t with elements."""
    return draw.choice([d for d in range(t.dim()) if t.shape[d] > 0])


def beside(draw, t):
    d = some_dim(draw, t)
    return torch.cat([t, t.flip(d)], d).narrow(d, 0, t.shape[d])


def behind(draw, t):
    d = some_dim(draw, t)
    return torch.cat([t.flip(d), t], d).narrow(d, t.shape[d], t.shape[d])


def in_parts(draw, t):
    d = some_dim(draw, t)
    return torch.cat([p.clone() for p in t.split(max(1, t.shape[d] // 2), d)], d)


def rolled(draw, t):
    d = some_dim(draw, t)
    return (t.roll(1, d) if t.dtype == torch.bool else t.roll(1, d) + 0).roll(-1, d)


def transposed(draw, t):
    if t.dim() < 2:
        return t.clone()
    a, b = draw.sample(range(t.dim()), 2)
    return t.transpose(a, b).contiguous().transpose(a, b)


def padded(draw, t):
    n = draw.randint(1, 3)
    return F.pad(t, (n, 1))[..., n:-1]


def indexed(draw, t):
    d = some_dim(draw, t)
    return t.index_select(d, torch.arange(t.shape[d]))


def filled(draw, t):
    return torch.zeros_like(t).copy_(t)


def added_in_place(draw, t):
    y = torch.zeros_like(t)
    return y.logical_or_(t) if t.dtype == torch.bool else y.add_(t)


def computed(draw, t):
    if t.dtype == torch.bool:
        return ~(~t)
    return ((t ^ 5) ^ 5) if not (t.is_floating_point() or t.is_complex()) else -(-t)


def doubled(draw, t):
    return (t * 2) * 0.5 if t.is_floating_point() else t.clone()


def chosen(draw, t):
    return torch.where(torch.ones((), dtype=torch.bool), t, torch.zeros_like(t)) if draw.random() < 0.5 else torch.where(t == t, t, t)


def every_second(draw, t):
    return torch.stack([t, t.clone()], -1)[..., draw.randint(0, 1)]


def repeated(draw, t):
    return t.unsqueeze(0).expand(2, *t.shape)[draw.randint(0, 1)]


def turned(draw, t):
    d = some_dim(draw, t)
    return t.flip(d).clone().flip(d)


BEFORE = [beside, behind, in_parts, rolled, transposed, padded, indexed, filled, added_in_place, computed, doubled, chosen, every_second, repeated, turned]
AFTER = [
    lambda o: o * 0.5 + 1, lambda o: o.abs(), lambda o: o.transpose(0, -1).contiguous(), lambda o: o.sum(-1), lambda o: o.flip(0) - o, lambda o: torch.cat([o, o * 2], -1),
    lambda o: o.reshape(-1)[::2], lambda o: o.unsqueeze(-1) * torch.arange(1, 4), lambda o: o.cumsum(0), lambda o: o.expand(2, *o.shape).sum(0), lambda o: o.narrow(-1, 0, 1) + o,
]
AFTER_FLOATS = AFTER + [
    lambda o: o.mean(0, keepdim=True) + o, lambda o: o.relu() + o.tanh(), lambda o: o.softmax(-1), lambda o: F.layer_norm(o, o.shape[-1:], eps=1.0), lambda o: o.amax(-1, keepdim=True) - o,
    lambda o: torch.sigmoid(o) * o,
]


class Context:
    def __init__(self, seed, results_as_they_are):
        self.seed, self.results_as_they_are = seed, results_as_they_are

    def before(self, tensors):
        draw, found = random.Random(f"before {self.seed}"), []
        for t in tensors:
            # The same draws whatever the operand is.
            kinds, chance = draw.sample(BEFORE, 2), draw.random()
            for make in kinds[:2 if chance < 0.4 else 1 if chance < 0.85 else 0]:
                if t.dim() and t.numel():
                    t = make(draw, t)
            found.append(t)
        return found

    def after(self, result):
        draw = random.Random(f"after {self.seed}")
        results = [result] if isinstance(result, torch.Tensor) else list(result) if isinstance(result, (tuple, list)) else []
        if self.results_as_they_are or not results or not all(isinstance(o, torch.Tensor) for o in results):
            return result
        found = []
        for o in results:
            # The same draws whatever the result is; complex numbers and truth values go on as they are.
            count, keeps, places = draw.randint(0, 2), draw.random() < 0.3, [draw.random() for _ in range(2)]
            for place in places[:count] if o.layout == torch.strided and not o.is_complex() and o.dtype != torch.bool else []:
                if keeps:
                    found.append(o)
                if o.dim() and o.numel():
                    makers = AFTER_FLOATS if o.is_floating_point() else AFTER
                    o = makers[int(place * len(makers))](o)
            found.append(o)
        return tuple(found)
