"""Operators of the caller's by torch: what torch.library has registered in this process runs where the model calls it."""
import contextlib
import functools
import sys
import threading

from ._dtypes import ROWS

_SIZES = ":sizes"
# Results of an operator that was asked for their sizes, until it is called with the same arguments: it runs once.
_waiting = threading.local()


def registered(name):
    """A function(arguments, outputs, asked, stream) for "mylib::scale", "mylib::scale.out" or "mylib::scale:sizes", or for a method of a script object,
    "__torch__.torch.classes.mylib.Table::find"; None: torch has no such operator."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    namespace, _, rest = name.removesuffix(_SIZES).partition("::")
    packet, _, overload = rest.partition(".")
    if namespace.startswith("__torch__."):
        return functools.partial(_call, torch, functools.partial(_method, rest))
    try:
        op = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    except AttributeError:
        return None
    return functools.partial(_sizes if name.endswith(_SIZES) else _call, torch, op)


def _method(name, self, **arguments):
    """What the object's method gives; arguments without names have their numbers."""
    given = [arguments.pop(str(i)) for i in range(1, len(arguments) + 1) if str(i) in arguments]
    return getattr(self, name)(*given, **arguments)


def _object(torch, special, value):
    """What torch has for a number; those of layouts and memory formats are torch.export's (torch/_export/serde/schema.py)."""
    if special == "dtype":
        return getattr(torch, ROWS[value].torch)
    known = {"layout": {7: torch.strided}, "memory_format": {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d, 4: torch.preserve_format}}[special]
    if value not in known:
        raise RuntimeError(f"{special} number {value} is not known")
    return known[value]


def _keywords(torch, arguments):
    return {name: _object(torch, special, value) if special else value for name, special, value in arguments}


def _key(op, torch, keywords):
    return op, [(v.data_ptr(), tuple(v.shape)) if isinstance(v, torch.Tensor) else v for v in torch.utils._pytree.tree_leaves(keywords)]


@contextlib.contextmanager
def _where(torch, stream):
    """Without gradients, and on the run's stream."""
    with torch.no_grad():
        if not stream:
            yield
        else:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                yield


def _tensors(torch, results):
    return [r for r in torch.utils._pytree.tree_leaves(results) if isinstance(r, torch.Tensor)]


def _values(torch, results, count):
    """The results that the model takes, numbers among them as tensors of one element; those that the export fixed are none of them."""
    numbers = {bool: torch.bool, int: torch.int64, float: torch.float64}
    values = [torch.tensor(r, dtype=numbers[type(r)]) if type(r) in numbers else r for r in torch.utils._pytree.tree_leaves(results)]
    values = [v for v in values if isinstance(v, torch.Tensor)]
    return values if len(values) == count else _tensors(torch, results)


def _call(torch, op, arguments, outputs, asked, stream):
    keywords = _keywords(torch, arguments)
    key, results = getattr(_waiting, "results", (None, None))
    _waiting.results = None, None
    with _where(torch, stream):
        if results is None or key != _key(op, torch, keywords):
            results = op(**keywords)
        results = _values(torch, results, len(outputs))
        if len(results) != len(outputs):
            raise RuntimeError(f"{op} gave {len(results)} results, the model was exported with {len(outputs)}")
        for result, output in zip(results, outputs):
            if result.shape != output.shape or result.dtype != output.dtype:
                raise RuntimeError(f"{op} gave {result.dtype} {list(result.shape)} where the model was exported with {output.dtype} {list(output.shape)}")
            output.copy_(result)


def _sizes(torch, op, arguments, outputs, asked, stream):
    keywords = _keywords(torch, arguments)
    with _where(torch, stream):
        results = op(**keywords)
        tensors = _tensors(torch, results)
        outputs[0].copy_(torch.tensor([tensors[r].shape[d] for r, d in asked], dtype=torch.int64))
    _waiting.results = _key(op, torch, keywords), results
