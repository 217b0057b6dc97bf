"""Weights inside of the packages of torch.compile, for calls that cost less."""

import copy
import warnings

import torch
from torch._dynamo.utils import get_static_address_type
from torch._subclasses.fake_tensor import unset_fake_temporarily


def weights_among(inputs):
    """The parameters and buffers of modules among the inputs of a graph of Dynamo: index → tensor."""
    return {i: v for i, v in enumerate(inputs) if isinstance(v, torch.Tensor) and (isinstance(v, torch.nn.Parameter) or get_static_address_type(v) is not None)}


def _frozen_among(graph, weights, count):
    """The inputs of AOTAutograd's graph that are weights which it neither changes nor returns; {} where inputs do not correspond."""
    places = [n for n in graph.nodes if n.op == "placeholder"]
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if len(places) != count or metadata is None:
        return {}
    changed = {i for i, info in enumerate(metadata.input_info) if info.mutates_data or info.mutates_metadata}
    returned = set(next(n for n in graph.nodes if n.op == "output").args[0])
    fits = all(weights[i].shape == places[i].meta["val"].shape and weights[i].dtype == places[i].meta["val"].dtype for i in weights)
    return {i: v for i, v in weights.items() if i not in changed and places[i] not in returned} if fits else {}


def _with_constants(graph_module, values):
    """A copy whose inputs number i are tensors of its own."""
    module = torch.fx.GraphModule(graph_module, copy.deepcopy(graph_module.graph))
    places = [n for n in module.graph.nodes if n.op == "placeholder"]
    for i, value in values.items():
        name = f"frozen_{places[i].name}"
        module.register_buffer(name, value)
        with module.graph.inserting_before(places[i]):
            held = module.graph.get_attr(name)
        held.meta = dict(places[i].meta)
        places[i].replace_all_uses_with(held)
        module.graph.erase_node(places[i])
    module.recompile()
    return module


def _stamps(values):
    return [(v.data_ptr(), v._version) for v in values]


def compile_frozen(graph_module, weights, count, compile_graph):
    """A boxed callable with the weights inside of its packages; weights that are changed later compile it again, which is said.
    weights: as weights_among gives of `count` inputs."""
    frozen = _frozen_among(graph_module.graph, weights, count)
    if not frozen:
        return compile_graph(graph_module)
    order = sorted(frozen)
    kept = [i for i in range(count) if i not in frozen]
    state = {}

    def build(values):
        # Torch traces with fake tensors meanwhile; these are real.
        with unset_fake_temporarily():
            constants = {i: v.detach() for i, v in zip(order, values)}
        state["run"] = compile_graph(_with_constants(graph_module, constants))
        state["stamps"] = _stamps(values)

    def compiled(args):
        flat = list(args)
        if isinstance(args, list):
            args.clear()
        values = [flat[i] for i in order]
        if _stamps(values) != state["stamps"]:
            warnings.warn("weights of a model compiled with freeze have changed: it is compiled again", stacklevel=2)
            build(values)
        return state["run"]([flat[i] for i in kept])

    build([frozen[i] for i in order])
    compiled._boxed_call = True
    return compiled
