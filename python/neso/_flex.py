"""Attention with functions of the user's (torch.nn.attention.flex_attention), and its gradient, in operators: torch's own definition of both,
traced once more. No program can hold the operator itself, whose arguments are graphs.

    flex_attention(q, k, v, score_mod, mask…)  →  where(mask, score_mod(q·kᵀ·scale), −∞), softmax, ·v

The mask says which scores count, as in torch's definition; the lists of blocks beside it are for kernels that skip some."""

import contextlib
import operator
import sys

import torch
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten


def _definitions():
    torch.ops.higher_order.flex_attention  # torch reads the module with it
    rules = sys.modules["torch._higher_order_ops.flex_attention"]
    return {rules.flex_attention: rules.sdpa_dense, rules.flex_attention_backward: rules.sdpa_dense_backward}


def _scatter(shape, indices, values):
    """The gradient of a tensor that the functions read by index: torch has an operator for it."""
    return values.new_zeros(shape).index_put(list(indices), values, accumulate=True) if len(indices) else values.sum()


def _rules():
    import torch._dynamo._trace_wrapped_higher_order_op  # it defines the operator
    return {torch.ops.flex_lib.zeros_and_scatter.default: _scatter}


def _attribute(module, path):
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _trace(graph_module, node, definition, decompositions):
    """(the definition's graph, the nodes that are its inputs)."""
    leaves, spec = tree_flatten((node.args, node.kwargs))
    graphs = {n: _attribute(graph_module, n.target) for n in leaves if isinstance(n, torch.fx.Node) and n.op == "get_attr"}
    graphs = {n: value for n, value in graphs.items() if not isinstance(value, torch.Tensor)}
    given = list(dict.fromkeys(n for n in leaves if isinstance(n, torch.fx.Node) and n not in graphs))

    def run(*values):
        known = {**graphs, **dict(zip(given, values))}
        args, kwargs = tree_unflatten([known[x] if isinstance(x, torch.fx.Node) else x for x in leaves], spec)
        return definition(*args, **kwargs)
    values = [n.meta["val"] for n in given]
    # Tensors that the definition makes are fake as its operands are; while a backward pass is compiled, torch has not said so.
    with detect_fake_mode(values) or contextlib.nullcontext():
        return make_fx(torch.func.functionalize(run, remove="mutations"), decomposition_table={**decompositions, **_rules()})(*values), given


def _copy(graph_module, traced, given, before):
    """The traced nodes in the graph, in front of `before`. What they give, as the traced graph's output has it."""
    graph = graph_module.graph
    known = dict(zip((n for n in traced.graph.nodes if n.op == "placeholder"), given))
    made = []
    for n in traced.graph.nodes:
        if n.op == "placeholder":
            continue
        if n.op == "output":
            out = torch.fx.node.map_arg(n.args[0], known.__getitem__)
            break
        with graph.inserting_before(before):
            value = n.meta.get("val")
            if n.op == "get_attr":
                held = _attribute(traced, n.target)
                value, held = held, getattr(held, "constant", held)
                name = f"_flex_{before.name}{n.target}"
                setattr(graph_module, name, held)
                known[n] = graph.get_attr(name)
            elif n.target is torch.ops.aten._to_copy.default and not isinstance(n.args[0], torch.fx.Node):
                # A number among the functions' operands, which vmap takes for a tensor.
                known[n] = graph.call_function(torch.ops.aten.full.default, ([], n.args[0]), {"dtype": value.dtype, "device": value.device})
            else:
                known[n] = graph.node_copy(n, known.__getitem__)
        known[n].meta = {"val": value, "stack_trace": before.meta.get("stack_trace")}
        made.append(known[n])
    return out, made


def _replace(node, value):
    """Everybody who reads the node reads the value, which may be a tuple whose parts are taken."""
    for user in list(node.users):
        if isinstance(value, (tuple, list)) and user.target is operator.getitem:
            _replace(user, value[user.args[1]])
        else:
            user.args, user.kwargs = (torch.fx.node.map_arg(x, lambda n: value if n is node else n) for x in (user.args, user.kwargs))
    node.graph.erase_node(node)


def spell_out(graph_module, decompositions):
    """Replaces both operators in a graph of AOTAutograd."""
    if not any(isinstance(n.target, torch._ops.HigherOrderOperator) for n in graph_module.graph.nodes):
        return
    definitions = _definitions()
    for node in [n for n in graph_module.graph.nodes if n.op == "call_function" and n.target in definitions]:
        traced, given = _trace(graph_module, node, definitions[node.target], decompositions)
        out, made = _copy(graph_module, traced, given, node)
        functions = [n for n in node.all_input_nodes if n.op == "get_attr"]
        _replace(node, out)
        for n in [*reversed(made), *functions]:
            if not n.users:
                graph_module.graph.erase_node(n)
    graph_module.recompile()
