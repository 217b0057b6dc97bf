"""A sample of opinfo_export.py with every size open, and the same program's inputs at other sizes.

Sizes above one become symbols (torch.export.Dim.AUTO); torch keeps those constant that the operator or its baked in numbers ask for. Inputs of other
sizes repeat the sample's elements along the dimension, so that what is in range stays in range. What else is true of the elements may not stay so:
positive definite matrices (where eager or the exported program refuses, there is no such size), the order of an embedding bag's offsets.
"""
import sympy
import torch
from torch.export import Dim

MAX_ELEMENTS = 1 << 18


def open_sizes(tensors):
    """dynamic_shapes of a forward(*tensors)."""
    return (tuple({d: Dim.AUTO for d, size in enumerate(t.shape) if size > 1} for t in tensors),)


def expression(size):
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def input_shapes(program):
    names = set(program.graph_signature.user_inputs)
    return [[expression(s) for s in n.meta["val"].shape] for n in program.graph.nodes if n.op == "placeholder" and n.name in names]


def resized(tensor, shape):
    for d, size in enumerate(shape):
        have = tensor.shape[d]
        if size > have:
            tensor = torch.cat([tensor] * -(-size // max(have, 1)), d)
        tensor = tensor.narrow(d, 0, size)
    return tensor.contiguous()


def assignments(symbols, ranges):
    """Letter → several lists of new values, the first that fits is taken. `symbols`: symbol → the sample's value."""
    first, last = next(iter(symbols)), list(symbols)[-1]
    alone = lambda symbol, value: symbols | {symbol: value}  # noqa: E731
    each = lambda f: {s: f(v) for s, v in symbols.items()}  # noqa: E731
    least = {s: int(ranges[s].lower) if s in ranges else 2 for s in symbols}
    return {
        "a": [alone(first, 2 * symbols[first]), alone(first, symbols[first] + 1)],
        "b": [each(lambda v: v + 1), each(lambda v: 2 * v), each(lambda v: 3 * v)],
        "c": [alone(last, 67), alone(last, 64), alone(last, 8 * symbols[last])],
        "d": [least, alone(first, least[first]), alone(last, least[last])],
    }


def other_inputs(program, tensors):
    """Letter → list of candidate lists of tensors; none where no size is open."""
    shapes = input_shapes(program)
    symbols = {}
    for shape, tensor in zip(shapes, tensors):
        for size, have in zip(shape, tensor.shape):
            if size.is_Symbol:
                symbols.setdefault(size, have)
    if not symbols or len(shapes) != len(tensors):
        return {}
    found, seen = {}, [list(symbols.values())]
    for letter, choices in assignments(symbols, program.range_constraints).items():
        for values in choices:
            numbers = list(values.values())
            new = [[int(size.subs(values)) for size in shape] for shape in shapes]
            if numbers in seen or any(sympy.prod(shape) > MAX_ELEMENTS or min(shape, default=1) < 0 for shape in new):
                continue
            seen.append(numbers)
            found.setdefault(letter, []).append([resized(t, shape) for t, shape in zip(tensors, new)])
    return found
