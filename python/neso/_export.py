"""torch.export with what Neso needs beside: user kernels, and failures that say what to do."""

import contextlib
import re
import weakref

from ._errors import ExportError

# The walls of torch.export that users meet most: a part of torch's message, and the way round.
_WALLS = (
    (("register_dataclass", "pytree", "Unsupported type of input", "is not a supported output type", "serialize TreeSpec"),
     "the model takes or returns a type that torch.export cannot take apart (a class of its own, a cache object)",
     "wrap the model in a Module that takes and returns tuples, lists and dictionaries of tensors"),
    (("Constraints violated", "specialized it to be a constant", "was inferred to be a constant"),
     "a size that dynamic_shapes calls dynamic is fixed by the model or by the example",
     "give an example of at least 2 in each dynamic dimension; a size that the code fixes must be left out of dynamic_shapes"),
    (("data-dependent", "GuardOnDataDependentSymNode", "unbacked"),
     "the model decides by values of tensors while it is traced",
     "write the decision with torch.where or torch.cond, or tell torch the range with torch._check"),
    (("FakeTensor", "fake impl", "no fake impl", "register_fake"),
     "a custom operator has no shape rule",
     "give it one with torch.library.register_fake"),
    (("graph break", "Unsupported:"),
     "the model does something that torch cannot trace",
     "export with strict=False, or take that part out of forward"),
)


def explain(error):
    """An ExportError with the cure in front and torch's first line behind."""
    text = str(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    for marks, what, cure in _WALLS:
        if any(mark in text for mark in marks):
            return ExportError(f"{what}; {cure}\n  torch: {first}", "", "EXPORT")
    return ExportError(f"torch.export could not capture the model; its message follows\n{text}", "", "EXPORT")


def to_program(model, args, kwargs, dynamic_shapes, strict):
    """An exported program of what the user gave."""
    import torch
    if isinstance(model, torch.export.ExportedProgram):
        return _plain(model)
    if args is None and kwargs is None:
        raise ExportError("an nn.Module is compiled for example arguments; neso.compile(model, (x, y))")
    if not isinstance(model, torch.nn.Module):
        if not callable(model):
            raise ExportError(f"neso compiles an nn.Module, a function, an ExportedProgram or a .pt2, not {type(model).__name__}")
        model = _Function(model)
    try:
        args, kwargs = _distinct(model, args, kwargs)
        with _without_gradients(model.parameters()):
            program = _plain(_exporter().export(model, tuple(args or ()), kwargs, dynamic_shapes=dynamic_shapes, strict=strict))
        _size_names[program] = _names_of_sizes(model, tuple(args or ()), kwargs or {}, dynamic_shapes, program)
        return program
    except ExportError:
        raise
    except Exception as e:  # torch raises a dozen types
        raise explain(e) from e


def _distinct(model, args, kwargs):
    """The example with a copy in place of each tensor that comes a second time, or is the model's own: torch.export takes the two for one, and the
    program reads one of them for both ever after."""
    import torch
    from torch.utils import _pytree
    seen = {id(t) for t in (*model.parameters(), *model.buffers())}
    leaves, tree = _pytree.tree_flatten((args, kwargs))
    repeated = False
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            if id(leaf) in seen:
                leaves[i], repeated = leaf.detach().clone().requires_grad_(leaf.requires_grad), True
            seen.add(id(leaf))
    return _pytree.tree_unflatten(leaves, tree) if repeated else (args, kwargs)


@contextlib.contextmanager
def _without_gradients(tensors):
    """Weights of tensor subclasses want none meanwhile: torch makes a parameter of each part, which wants one where the whole does, and of integers
    there is none."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass
    learnt = [t for t in tensors if is_traceable_wrapper_subclass(t) and t.requires_grad and t.is_leaf]
    try:
        for tensor in learnt:
            tensor.requires_grad_(False)
        yield
    finally:
        for tensor in learnt:
            tensor.requires_grad_(True)


# Of programs that were exported here: what their file calls a size → what the user does.
_size_names = weakref.WeakKeyDictionary()


def _names_of_sizes(model, args, kwargs, dynamic_shapes, program):
    """{"s77": "batch"} for torch.export.Dim("batch"): torch's file does not say it. Sizes that are computed from others have no name."""
    import inspect
    import torch
    from torch.utils import _pytree
    if not dynamic_shapes:
        return {}
    parameters = list(inspect.signature(model.forward).parameters.values())
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = isinstance(dynamic_shapes, dict)
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    keywords = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)

    def given(i, name):
        if not by_name:
            return dynamic_shapes[i] if i < len(dynamic_shapes) else None
        many = dynamic_shapes.get(rest) if rest and i is not None and i >= len(plain) else None
        if isinstance(many, (list, tuple)):
            return many[i - len(plain)] if i - len(plain) < len(many) else None
        more = dynamic_shapes.get(keywords)
        return dynamic_shapes.get(name, more.get(name) if isinstance(more, dict) else None)

    # A row for each leaf, in the order of the program's inputs.
    rows = []

    def walk(value, spec):
        if isinstance(value, torch.Tensor):
            rows.append(dict(enumerate(spec)) if isinstance(spec, (list, tuple)) else spec if isinstance(spec, dict) else {})
        elif type(value) in (list, tuple):
            for i, v in enumerate(value):
                walk(v, spec[i] if isinstance(spec, (list, tuple)) and i < len(spec) else None)
        elif type(value) is dict:
            for k, v in value.items():
                walk(v, spec.get(k) if isinstance(spec, dict) else None)
        else:
            rows.extend({} for _ in _pytree.tree_leaves(value))
    for i, value in enumerate(args):
        walk(value, given(i, plain[i] if i < len(plain) else None))
    for i, (name, value) in enumerate(kwargs.items()):
        walk(value, given(None if by_name else len(args) + i, name))
    inputs, nodes, names = program.graph_signature.user_inputs, {n.name: n for n in program.graph.nodes if n.op == "placeholder"}, {}
    if len(inputs) != len(rows):
        return {}
    for name, row in zip(inputs, rows):
        shape = getattr(nodes[name].meta.get("val"), "shape", ()) if isinstance(name, str) and name in nodes else ()
        for at, dim in row.items():
            called, size = getattr(dim, "__name__", ""), shape[at] if isinstance(at, int) and at < len(shape) else None
            symbol = str(size.node.expr) if isinstance(size, torch.SymInt) else ""
            # What torch itself calls sizes would be taken for one of them.
            if called.isidentifier() and symbol.isidentifier() and not re.fullmatch(r"[a-z]+\d+", called):
                names.setdefault(symbol, called)
    return names if len(set(names.values())) == len(names) else {}


def _sizes(program):
    names = _size_names.get(program)
    return {"neso_sizes": "".join(f"{symbol}={name}\n" for symbol, name in names.items())} if names else {}


def _plain(program):
    """The program without what only torch can take apart, which torch does here: marks that torch.vmap leaves around operators of one element,
    autocast, whose casts it writes out, and weights of tensor subclasses (torchao's quantised ones), which a .pt2 holds as pickles."""
    import torch
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass
    nodes = [n for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule) for n in part.graph.nodes]
    marked = any(getattr(n.target, "__module__", "") == "torch._functorch.predispatch" for n in nodes)
    autocast = any(n.target is torch.ops.higher_order.wrap_with_autocast and n.args[2] for n in nodes)
    state = (*program.state_dict.values(), *program.constants.values())
    if not marked and not autocast and not any(map(is_traceable_wrapper_subclass, state)):
        return program
    try:
        with _without_gradients(program.state_dict.values()):
            return program.run_decompositions({})
    except Exception:
        # Programs that torch exports under autocast do not all run in torch either: the compiler says what it does not take.
        if marked or not autocast:
            raise
        return program


def _Function(function):
    import torch

    class Function(torch.nn.Module):
        def forward(self, *args, **kwargs):
            return function(*args, **kwargs)
    return Function()


class _Plain:
    """torch.export by itself, where Triton is not installed: no model can hold kernels of it."""

    @staticmethod
    def export(model, args, kwargs, *, dynamic_shapes, strict):
        import torch
        return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)

    @staticmethod
    def write(program, path, *, kernels=None, extra=None):
        import torch
        torch.export.save(program, path, extra_files=extra)


def _exporter():
    try:
        import triton  # noqa: F401
        import neso_export
        return neso_export
    except ImportError:
        return _Plain


def _operators(program):
    """The schemas of operators that are not PyTorch's: they say what a call changes, which the program as exported does not."""
    import torch
    calls = (n.target for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule) for n in m.graph.nodes if n.op == "call_function")
    schemas = {str(t._schema) for t in calls if isinstance(t, torch._ops.OpOverload) and t.namespace not in ("aten", "prims", "prim")}
    return {"neso_operators": "\n".join(sorted(schemas))} if schemas else {}


def _machine(program):
    """What this machine can do, where that decides how weights lie: torch packs those of four bits after it, and the program does not say so."""
    import platform
    import torch
    aten = torch.ops.aten
    packs = [getattr(aten, name, None) for name in ("_weight_int4pack_mm_for_cpu", "_convert_weight_to_int4pack_for_cpu")]
    calls = (n.target for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule) for n in m.graph.nodes if n.op == "call_function")
    if platform.machine() in ("x86_64", "AMD64") and any(getattr(call, "overloadpacket", None) in packs for call in calls):
        return {"neso_cpu_capability": torch.backends.cpu.get_cpu_capability().lower()}
    return {}


def save_program(program, file, kernels=None):
    """A program as a .pt2, with its kernels."""
    try:
        _exporter().write(program, file, kernels=kernels, extra=_operators(program) | _machine(program) | _sizes(program))
    except NotImplementedError as e:  # a tree of a class that torch cannot write down
        raise explain(e) from e


def export(model, args, path=None, kwargs=None, *, dynamic_shapes=None, strict=False, kernels=None):
    """Exports a model, its Triton kernels among it, and writes the .pt2 where `path` is given. Gives the torch.export.ExportedProgram.
    `kernels`: a folder for the kernels' sources in place of the .pt2."""
    program = to_program(model, args, kwargs, dynamic_shapes, strict)
    if path is not None:
        save_program(program, path, kernels)
    return program
