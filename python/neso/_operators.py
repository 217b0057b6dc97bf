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
    """A function(arguments, outputs, stream) for "mylib::scale", "mylib::scale.out" or "mylib::scale:sizes"; None: torch has no such operator."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    namespace, _, rest = name.removesuffix(_SIZES).partition("::")
    packet, _, overload = rest.partition(".")
    try:
        op = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    except AttributeError:
        return None
    return functools.partial(_sizes if name.endswith(_SIZES) else _call, torch, op)


def _keywords(torch, arguments):
    return {name: getattr(torch, ROWS[value].torch) if is_dtype else value for name, is_dtype, value in arguments}


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


def _call(torch, op, arguments, outputs, stream):
    keywords = _keywords(torch, arguments)
    key, results = getattr(_waiting, "results", (None, None))
    _waiting.results = None, None
    with _where(torch, stream):
        if results is None or key != _key(op, torch, keywords):
            results = _tensors(torch, op(**keywords))
        if len(results) != len(outputs):
            raise RuntimeError(f"{op} gave {len(results)} tensors, the model was exported with {len(outputs)}")
        for result, output in zip(results, outputs):
            if result.shape != output.shape or result.dtype != output.dtype:
                raise RuntimeError(f"{op} gave {result.dtype} {list(result.shape)} where the model was exported with {output.dtype} {list(output.shape)}")
            output.copy_(result)


def _sizes(torch, op, arguments, outputs, stream):
    keywords = _keywords(torch, arguments)
    decided = _decided(torch, op, keywords)
    if len(decided) != outputs[0].numel():
        raise RuntimeError(f"{op} decides {len(decided)} sizes by its register_fake, the model was exported with {outputs[0].numel()}")
    with _where(torch, stream):
        results = _tensors(torch, op(**keywords))
        outputs[0].copy_(torch.tensor([results[r].shape[d] for r, d in decided], dtype=torch.int64))
    _waiting.results = _key(op, torch, keywords), results


def _decided(torch, op, keywords):
    """(result, dimension) of each size that the data decides, in order: those that its register_fake makes new."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode, torch.no_grad():
        fakes = torch.utils._pytree.tree_map(lambda v: mode.from_tensor(v, static_shapes=True) if isinstance(v, torch.Tensor) else v, keywords)
        results = _tensors(torch, op(**fakes))
    seen, out = set(), []
    for r, result in enumerate(results):
        for d, size in enumerate(result.shape):
            symbol = size.node.expr if isinstance(size, torch.SymInt) else None
            if symbol is not None and symbol.is_Symbol and symbol not in seen:
                seen.add(symbol)
                out.append((r, d))
    return out
