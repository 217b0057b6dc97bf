"""Attention with functions of the user's (torch.nn.attention.flex_attention), and its gradient, in operators: torch's own definition of both,
traced once more. No program can hold the operator itself, whose arguments are graphs.

    flex_attention(q, k, v, score_mod, mask…)  →  where(mask, score_mod(q·kᵀ·scale), −∞), softmax, ·v

The mask says which scores count, as in torch's definition; the lists of blocks beside it are for kernels that skip some."""

import contextlib
import operator
import sys

import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
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


def _trace(graph_module, node, definition, decompositions, sizes_as_tensors):
    """(the definition's graph, the nodes that are its inputs). sizes_as_tensors: functions see sizes that they read as tensors, where vmap does not
    take them as numbers."""
    leaves, spec = tree_flatten((node.args, node.kwargs))
    graphs = {n: _attribute(graph_module, n.target) for n in leaves if isinstance(n, torch.fx.Node) and n.op == "get_attr"}
    graphs = {n: value for n, value in graphs.items() if not isinstance(value, torch.Tensor)}
    given = list(dict.fromkeys(n for n in leaves if isinstance(n, torch.fx.Node) and n not in graphs))

    def run(*values):
        if sizes_as_tensors:
            values = [torch.scalar_tensor(v, dtype=torch.int64, device=values[0].device) if isinstance(v, torch.SymInt) else v for v in values]
        known = {**graphs, **dict(zip(given, values))}
        args, kwargs = tree_unflatten([known[x] if isinstance(x, torch.fx.Node) else x for x in leaves], spec)
        return definition(*args, **kwargs)
    values = [n.meta["val"] for n in given]
    # Tensors that the definition makes are fake as its operands are; while a backward pass is compiled, torch has not said so.
    with detect_fake_mode(values) or contextlib.nullcontext():
        return make_fx(torch.func.functionalize(run, remove="mutations"), decomposition_table={**decompositions, **_rules()})(*values), given


def _number(traced, node):
    """The number that a node is, as a tensor without dimensions: constants of the definition, and numbers in the functions, which vmap takes for
    tensors. As a number the compiler sees it: −∞ where a score does not count."""
    if node.op == "get_attr":
        held = _attribute(traced, node.target)
        held = getattr(held, "constant", held)
        return held if isinstance(held, torch.Tensor) and held.dim() == 0 and not isinstance(held, FakeTensor) else None
    if node.target is torch.ops.aten.lift_fresh_copy.default:
        return _number(traced, node.args[0])
    if node.target is torch.ops.aten._to_copy.default and not isinstance(node.args[0], torch.fx.Node):
        with unset_fake_temporarily():
            return torch.tensor(node.args[0], dtype=node.meta["val"].dtype)
    return None


def _copy(graph_module, traced, given, before):
    """The traced nodes in the graph, in front of `before`. What they give, as the traced graph's output has it."""
    graph, operand = graph_module.graph, given[0].meta["val"]
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
            number = _number(traced, n)
            if number is not None:
                with unset_fake_temporarily():
                    fill = number.item()
                value = operand.new_empty((), dtype=number.dtype)
                known[n] = graph.call_function(torch.ops.aten.full.default, ([], fill), {"dtype": number.dtype, "device": value.device})
            elif n.op == "get_attr":
                name = f"_flex_{before.name}{n.target}"
                value = _attribute(traced, n.target)
                setattr(graph_module, name, getattr(value, "constant", value))
                known[n] = graph.create_node("get_attr", name)
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
    """Replaces both operators in a graph of AOTAutograd. Those that are left, and the functions that are their operands: node → why, or None."""
    left = {}
    if not any(isinstance(n.target, torch._ops.HigherOrderOperator) for n in graph_module.graph.nodes):
        return left
    definitions = _definitions()
    for node in [n for n in graph_module.graph.nodes if n.op == "call_function" and n.target in definitions]:
        functions = [n for n in node.all_input_nodes if n.op == "get_attr"]
        for sizes_as_tensors in (False, True):
            try:
                traced, given = _trace(graph_module, node, definitions[node.target], decompositions, sizes_as_tensors)
                break
            except Exception as e:  # of the user's functions, under vmap
                left[node] = f"its functions cannot be traced: {type(e).__name__}: {e}"
        else:
            left.update(dict.fromkeys(functions))
            continue
        left.pop(node, None)
        out, made = _copy(graph_module, traced, given, node)
        _replace(node, out)
        for n in [*reversed(made), *functions]:
            if not n.users:
                graph_module.graph.erase_node(n)
    graph_module.recompile()
    return left
