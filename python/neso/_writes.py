"""Writes to a graph's inputs: AOTAutograd puts them behind everything else, as x.copy_(new) where elements change and x.set_(new) or its like where
x gets other memory. The graph is compiled without them and gives what they read; torch writes afterwards.

    add = x + 1; x.copy_(add); return add * 2     →     add = x + 1; return add, add * 2     and then x.copy_(add)"""

from dataclasses import dataclass

import torch

_COPY = torch.ops.aten.copy_.default


@dataclass(frozen=True)
class Write:
    input: int            # which input is written to
    operator: object
    # Each operand behind the first: (True, number of a result) or (False, value).
    operands: tuple


def _is_write(node):
    schema = getattr(node.target, "_schema", None)
    return (node.op == "call_function" and schema is not None and schema.is_mutable and node.args and isinstance(node.args[0], torch.fx.Node)
            and node.args[0].op == "placeholder" and schema.arguments[0].alias_info is not None and schema.arguments[0].alias_info.is_write
            and all(user.op == "output" for user in node.users) and not node.kwargs)


@dataclass(frozen=True)
class Writes:
    writes: tuple
    # Of each of the function's results: the number of the input that it is, written to, or None for the graph's next one.
    results: tuple


def take_writes(graph_module):
    """(the writes, taken out of the graph, whose first results are what they read, or None; nodes among those whose very memory is wanted)."""
    graph = graph_module.graph
    nodes = [n for n in graph.nodes if _is_write(n)]
    if not nodes:
        return None, set()
    places = [n for n in graph.nodes if n.op == "placeholder"]
    output = next(n for n in graph.nodes if n.op == "output")
    read = list(dict.fromkeys(a for n in nodes for a in n.args[1:] if isinstance(a, torch.fx.Node)))
    writes = tuple(Write(places.index(n.args[0]), n.target, tuple((True, read.index(a)) if isinstance(a, torch.fx.Node) else (False, a) for a in n.args[1:])) for n in nodes)
    results = tuple(places.index(r.args[0]) if r in nodes else None for r in output.args[0])
    kept = {a for n in nodes if n.target is not _COPY for a in n.args[1:] if isinstance(a, torch.fx.Node)}
    output.args = ((*read, *(r for r in output.args[0] if r not in nodes)),)
    for n in nodes:
        graph.erase_node(n)
    graph_module.recompile()
    return Writes(writes, results), kept


def with_writes(compiled, taken):
    """What a boxed callable of the graph without its writes is with them."""
    writes = taken.writes
    count = len({value for w in writes for of_graph, value in w.operands if of_graph})

    def run(args):
        flat = list(args)
        if isinstance(args, list):
            args.clear()
        inputs = [flat[w.input] for w in writes]
        given = [None if i is None else flat[i] for i in taken.results]
        results = compiled(flat)
        # AOTAutograd counts versions itself, of the writes that autograd is to see.
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(tuple(dict.fromkeys(inputs))):
            for tensor, write in zip(inputs, writes):
                write.operator(tensor, *(results[value] if of_graph else value for of_graph, value in write.operands))
        own = iter(results[count:])
        return [next(own) if g is None else g for g in given]
    run._boxed_call = True
    return run
