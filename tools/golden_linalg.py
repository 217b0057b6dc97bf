"""Factorisations whose results are not unique, or whose blocks the data decides: what holds for all of them is computed in the model."""
import torch

from golden_ops import Case


def cut(x, at):
    return [p * 2 for p in x.tensor_split(at, 1)]


def data_splits():
    n = lambda *v: torch.tensor(v)
    x = lambda: torch.randn(3, 7)
    return [
        Case("at_indices", cut, lambda: (x(), n(2, 5)), more=[lambda: (x(), n(5, 2)), lambda: (x(), n(0, 7)), lambda: (x(), n(-3, -1)), lambda: (x(), n(-20, 20))]),
        Case("at_one_index", lambda x, at: x.tensor_split(at)[1], lambda: (x(), n(1)), more=[lambda: (x(), n(3)), lambda: (x(), n(-1))], exact=False),
        Case("into_parts", lambda x: cut(x, torch.tensor(3)), lambda: (x(),)),
    ]


def groups():
    return {f.__name__: f() for f in (data_splits,)}
