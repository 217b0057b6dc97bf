"""Trees of arguments and results, from the text in which torch.export keeps them. No torch for tuples, lists, dictionaries and named
tuples; other types are torch's own to build."""

import json
from collections import OrderedDict, namedtuple

from ._errors import Error, InputError


class Leaf:
    count, kind = 1, "leaf"

    def flatten(self, value, out, path):
        out.append(value)

    def build(self, leaves):
        return next(leaves)


class Empty:
    """None, which holds no leaf."""
    count, kind = 0, "none"

    def flatten(self, value, out, path):
        if value is not None:
            raise InputError(f"{path} must be None, as in the exported example; it is {type(value).__name__}", "E0822", "INPUT_COUNT")

    def build(self, leaves):
        return None


class Branch:
    def __init__(self, kind, keys, children, make):
        self.kind, self.keys, self.children, self.make = kind, keys, children, make
        self.count = sum(c.count for c in children)

    def flatten(self, value, out, path):
        if self.kind == "dict":
            if not hasattr(value, "keys") or set(value) != set(self.keys):
                given = sorted(map(str, value)) if hasattr(value, "keys") else type(value).__name__
                raise InputError(f"{path} must be a dictionary with the keys {', '.join(map(str, self.keys))}; it is {given}", "E0822", "INPUT_COUNT")
            items = [value[k] for k in self.keys]
        else:
            if not isinstance(value, (tuple, list)) or len(value) != len(self.children):
                given = f"{len(value)} values" if isinstance(value, (tuple, list)) else type(value).__name__
                raise InputError(f"{path} must be a {self.kind} of {len(self.children)}; it is {given}", "E0822", "INPUT_COUNT")
            items = value
        for key, item, child in zip(self.keys, items, self.children):
            child.flatten(item, out, f"{path}[{key!r}]")

    def build(self, leaves):
        return self.make([c.build(leaves) for c in self.children])


class Foreign:
    """A type that torch's registry alone knows."""
    kind = "foreign"

    def __init__(self, text):
        try:
            from torch.utils import _pytree
        except ImportError as e:
            raise Error("the model's arguments or results hold a type that needs torch to be built; install torch, or use model.run with flat lists") from e
        self.pytree, self.spec = _pytree, _pytree.treespec_loads(text)
        self.count = self.spec.num_leaves

    def flatten(self, value, out, path):
        leaves, spec = self.pytree.tree_flatten(value)
        if spec != self.spec:
            raise InputError(f"{path} has not the structure of the exported example", "E0822", "INPUT_COUNT")
        out.extend(leaves)

    def build(self, leaves):
        return self.pytree.tree_unflatten([next(leaves) for _ in range(self.count)], self.spec)


def parse(text):
    """The tree behind "in_spec" or "out_spec" of a package; None where there is none."""
    if not text:
        return None
    version, root = json.loads(text)
    return _node(root, version)


def _node(row, version):
    kind, context = row["type"], row["context"]
    if kind is None:
        return Leaf()
    plain = {"builtins.tuple": tuple, "builtins.list": list}
    known = {*plain, "builtins.dict", "collections.OrderedDict", "collections.namedtuple"}
    if kind == "builtins.NoneType":
        return Empty()
    if kind not in known:
        return Foreign(json.dumps([version, row]))
    children = [_node(c, version) for c in row["children_spec"]]
    if kind in plain:
        return Branch(kind[9:], range(len(children)), children, plain[kind])
    if kind == "collections.namedtuple":
        return Branch("tuple", range(len(children)), children, _named_tuple(context, len(children)))
    keys = json.loads(context)
    make = dict if kind == "builtins.dict" else OrderedDict
    return Branch("dict", keys, children, lambda values: make(zip(keys, values)))


def _named_tuple(context, count):
    name = json.loads(context) if isinstance(context, str) else context
    try:
        from torch.utils import _pytree
        kind = _pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name)
    except (ImportError, AttributeError):
        kind = None
    if kind is None:
        kind = namedtuple(str(name).rpartition(".")[2] or "Result", [f"_{i}" for i in range(count)], rename=True)
    return lambda values: kind(*values)
