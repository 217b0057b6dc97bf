"""torch.compile(model, backend="neso"): what torch.compile traces is compiled by Neso, kept on disk, and called without copies.

On the CPU and on NVIDIA GPUs. Dynamic sizes, graph breaks and training work as with any backend. Operators that Neso refuses stay with torch and are named in one warning
for each graph. Options of torch.compile(…, options={…}):

    fallback  "warn" (default), "silent", or "error": raise with every diagnostic instead of leaving anything to torch
    rng       "torch" (default): random operators stay with torch, so that its seeds hold; "neso": compiled as well
    threads   of each call; 0 (default): one for each core
    cached    True (default): use the cache on disk (neso.cache)
    arch, options   as for neso.compile
    freeze    False (default); True: where no gradients are wanted, parameters and buffers become part of the package, so that the compiler
              orders and computes with them; a weight that is changed later compiles the graph again, and says so
    mode      as the argument `mode`, which torch does not take beside options: "reduce-overhead" keeps the memory of results for later
              calls (never while somebody holds them) and on a GPU makes every call one launch; "max-autotune" measures several ways to
              compute each kernel, and is else like it; "max-autotune-no-cudagraphs" measures alone

`explain(f, *args)` says what would be compiled; `package(f, *args)` gives the package of a function that is one graph.
"""

import contextlib
import copy
import operator
import os
import warnings
from dataclasses import dataclass, field

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec, SymBoolArgument, SymFloatArgument, SymIntArgument, TensorArgument

from ._compile import compile as compile_model, gpu_arch
from ._errors import CompileError, Error
from ._flex import spell_out
from ._replay import Replayed
from ._steady import compile_frozen, weights_among
from ._writes import take_writes, with_writes

# Pieces of a graph with fewer operators than this are left to torch.
SMALLEST_PIECE = 5
_OPTIONS = {"fallback": "warn", "rng": "torch", "threads": 0, "cached": True, "arch": None, "options": None, "freeze": False, "mode": None}
# Mode → (results and arguments keep their places, kernels are measured).
_MODES = {None: (False, False), "default": (False, False), "reduce-overhead": (True, False), "max-autotune": (True, True), "max-autotune-no-cudagraphs": (False, True)}


@dataclass
class Piece:
    """A graph, or a part of one, that was compiled or refused."""
    operators: int
    compiled: bool
    seconds: float = 0.0
    cached: bool = False
    bytes: int = 0


@dataclass
class Report:
    """What became of the graphs of a function: see `explain`."""
    pieces: list = field(default_factory=list)
    # (operator, place, why)
    refused: list = field(default_factory=list)
    packages: list = field(default_factory=list)

    @property
    def share(self):
        """Of the operators, those that are compiled."""
        total = sum(p.operators for p in self.pieces)
        return sum(p.operators for p in self.pieces if p.compiled) / total if total else 1.0

    def __str__(self):
        compiled = [p for p in self.pieces if p.compiled]
        lines = [f"{len(compiled)} compiled graphs or parts, {self.share:.0%} of {sum(p.operators for p in self.pieces)} operators; compiling took "
                 f"{sum(p.seconds for p in compiled):.2f} s, {sum(p.cached for p in compiled)} came from the cache"]
        lines += [f"left to torch: {name} at {place or 'an unknown line'}: {why}" for name, place, why in self.refused]
        return "\n".join(lines)


_watchers = []


@contextlib.contextmanager
def watch():
    """Collects what the backend does meanwhile: a Report."""
    report = Report()
    _watchers.append(report)
    try:
        yield report
    finally:
        _watchers.remove(report)


def _note(**what):
    for report in _watchers:
        for name, value in what.items():
            getattr(report, name).append(value)


# ---- A graph of AOTAutograd as a program

def _argument(value, name):
    if isinstance(value, torch.Tensor):
        return TensorArgument(name=name)
    for kind, argument in ((torch.SymInt, SymIntArgument), (torch.SymFloat, SymFloatArgument), (torch.SymBool, SymBoolArgument)):
        if isinstance(value, kind):
            return argument(name=name)
    return ConstantArgument(name=name, value=value)


def _lift_constants(graph_module):
    """Tensors that are attributes become inputs of the program, with their values: a table of name → tensor, and their input rows."""
    graph, constants, specs, lifted = graph_module.graph, {}, [], {}
    first = next(n for n in graph.nodes if n.op != "get_attr")
    for node in list(graph.nodes):
        if node.op != "get_attr":
            continue
        value = graph_module
        for part in node.target.split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            continue
        if node.target not in lifted:
            with graph.inserting_before(first):
                held = graph.placeholder("c_" + node.target.replace(".", "_"))
            held.meta["val"] = node.meta.get("val", value)
            lifted[node.target] = held
            # Torch traces with fake tensors meanwhile; this one is real.
            with unset_fake_temporarily():
                constants[node.target] = value.detach()
            specs.append(InputSpec(kind=InputKind.CONSTANT_TENSOR, arg=TensorArgument(name=held.name), target=node.target, persistent=None))
        node.replace_all_uses_with(lifted[node.target])
        graph.erase_node(node)
    return constants, specs


def _ranges(graph):
    """The interval of every free symbol of the graph."""
    out = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        for size in (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, torch.SymInt) and not size.node.expr.is_number:
                environment = size.node.shape_env
                for symbol in size.node.expr.free_symbols:
                    out.setdefault(symbol, environment.var_to_range[symbol])
    return out


def _name_attention(graph):
    """Torch's fused attention of the CPU as attention by itself, where nobody reads the sums that it gives for a backward pass."""
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    for node in [n for n in graph.nodes if n.target is fused]:
        if any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
            continue
        given = {argument.name: argument.default_value for argument in fused._schema.arguments}
        given.update(zip(given, node.args))
        given.update(node.kwargs)
        # Of symbolic sizes the comparison is no bool; heads that may be as many are told apart by the compiler.
        heads = [given[name].meta["val"].shape[1] for name in ("query", "key")]
        with graph.inserting_before(node):
            plain = graph.call_function(torch.ops.aten.scaled_dot_product_attention.default,
                                        (given["query"], given["key"], given["value"], given["attn_mask"], given["dropout_p"], given["is_causal"]),
                                        {"scale": given["scale"], "enable_gqa": not statically_known_true(heads[0] == heads[1])})
        plain.meta = {**node.meta, "val": node.meta["val"][0]}
        # Diagnostics name the operator as the caller's graph does.
        name, users = node.name, list(node.users)
        for user in users:
            user.replace_all_uses_with(plain)
            graph.erase_node(user)
        graph.erase_node(node)
        plain.name = name


def _copy(graph_module):
    """A copy with the copies of its sub-graphs, whose nodes keep what the compiler reads: torch's serialiser refuses more that dynamo notes there."""
    module = torch.fx.GraphModule(graph_module, copy.deepcopy(graph_module.graph))
    for node in module.graph.nodes:
        node.meta = {k: v for k, v in node.meta.items() if k in ("val", "stack_trace")}
        # The serialiser takes the results of a branch as a tuple alone.
        if isinstance(node.target, torch._ops.HigherOrderOperator) and isinstance(node.meta.get("val"), list):
            node.meta["val"] = tuple(node.meta["val"])
    for name, child in list(module.named_children()):
        if isinstance(child, torch.fx.GraphModule):
            setattr(module, name, _copy(child))
    return module


def _narrowed(graph):
    """Inputs that repeat one element along a dimension, as expand leaves them, become inputs of size 1 there that the graph expands: a package, which may be given
    any tensor of an input's sizes, would have them laid out whole. Dynamo calls a graph with tensors of the same strides alone. {number: dimensions}."""
    aten, found = torch.ops.aten, {}
    if any(n.op == "call_function" and (getattr(n.target, "overloadpacket", None) in _SEE_MEMORY or isinstance(n.target, torch._ops.HigherOrderOperator) or _is_users(n.target)) for n in graph.nodes):
        return {}
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    symbols = {str(n.meta["val"].node.expr): n for n in inputs if isinstance(n.meta.get("val"), torch.SymInt)}
    for number, node in enumerate(inputs):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.is_conj() or value.is_neg():
            continue
        dims = [d for d in range(value.dim()) if isinstance(value.stride(d), int) and value.stride(d) == 0 and statically_known_true(value.shape[d] > 1)]
        sizes = [-1] * value.dim()
        for d in dims:
            size = value.shape[d]
            sizes[d] = size if isinstance(size, int) else symbols.get(str(size.node.expr))
        if not dims or None in sizes:
            continue
        small = value
        for d in dims:
            small = small.narrow(d, 0, 1)
        with graph.inserting_after(inputs[-1]):
            whole = graph.call_function(aten.expand.default, (node, sizes))
        whole.meta = {"val": value}
        node.replace_all_uses_with(whole, delete_user_cb=lambda user: user is not whole and user.op != "output")
        node.meta["val"] = small
        found[number] = dims
    return found


def to_program(graph_module, narrow=False):
    """(program, plan of its results, inputs to narrow) for a functional ATen graph. No second trace. Results that are inputs, numbers, or a second time the
    same are left out of the program: the plan is a list of ("result", i), ("input", i) and ("value", v)."""
    module = _copy(graph_module)
    graph = module.graph
    _name_attention(graph)
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    output = next(n for n in graph.nodes if n.op == "output")
    results, plan = [], []
    for value in output.args[0]:
        if not isinstance(value, torch.fx.Node):
            plan.append(("value", value))
        elif value in inputs:
            plan.append(("input", inputs.index(value)))
        else:
            if value not in results:
                results.append(value)
            plan.append(("result", results.index(value)))
    output.args = (tuple(results),)
    narrowed = _narrowed(graph) if narrow else {}
    constants, specs = _lift_constants(module)
    # A constant that is a result has become an input by now; its value is at hand.
    specs += [InputSpec(kind=InputKind.USER_INPUT, arg=_argument(n.meta["val"], n.name), target=None) for n in inputs]
    outputs = [OutputSpec(kind=OutputKind.USER_OUTPUT, arg=_argument(n.meta["val"], n.name), target=None) for n in results]
    module.recompile()
    leaf = torch.utils._pytree.tree_flatten
    in_spec = leaf((tuple(0 for _ in inputs), {}))[1]
    out_spec = leaf(tuple(0 for _ in results))[1]
    call = torch.export.ModuleCallEntry("", torch.export.ModuleCallSignature(inputs=[], outputs=[], in_spec=in_spec, out_spec=out_spec))
    program = ExportedProgram(root=module, graph=graph, graph_signature=ExportGraphSignature(input_specs=specs, output_specs=outputs), state_dict={},
                              range_constraints=_ranges(graph), module_call_graph=[call], constants=constants)
    return program, plan, narrowed


# ---- Compiling

def _lazy_inputs(graph):
    """Inputs whose memory does not hold their values but those of opposite sign: torch does such operations when somebody looks."""
    values = [n.meta.get("val") for n in graph.nodes if n.op == "placeholder"]
    return [i for i, v in enumerate(values) if isinstance(v, torch.Tensor) and (v.is_conj() or v.is_neg())]


def _anchorless(graph, device):
    """Whether nothing that a call is given lies on the GPU where its results are wanted."""
    given = [n.meta.get("val") for n in graph.nodes if n.op == "placeholder"]
    return device.type == "cuda" and not any(isinstance(v, torch.Tensor) and v.device == device for v in given)


def _named_run(run, name):
    """The run as one range of torch.profiler, while that looks."""
    from torch.autograd import profiler

    def ranged(flat):
        if not profiler._is_profiler_enabled:
            return run(flat)
        with profiler.record_function(name):
            return run(flat)
    return ranged


def _callable(run, plan, lazy, device=None, narrowed=None):
    """What torch.compile calls: boxed, so that inputs may be freed while their results live. A function: torch wraps no other callable well."""
    plain = all(entry == ("result", i) for i, entry in enumerate(plan))

    def compiled(args):
        flat = list(args)
        if isinstance(args, list):
            args.clear()
        given = flat
        if lazy or narrowed:
            given = [v.resolve_conj().resolve_neg() if i in lazy else v for i, v in enumerate(flat)]
            for i, dims in (narrowed or {}).items():
                for d in dims:
                    given[i] = given[i].narrow(d, 0, 1)
        results = run(given)
        if not isinstance(results, tuple):
            results = (results,)
        if device is not None:
            results = tuple(r.to(device) if isinstance(r, torch.Tensor) else r for r in results)
        if plain:
            return results
        return [results[v] if kind == "result" else flat[v] if kind == "input" else v for kind, v in plan]
    compiled._boxed_call = True
    return compiled


def _operators(graph):
    return [n for n in graph.nodes if n.op == "call_function" and n.target is not operator.getitem]


def _name(node):
    return str(node.target) if isinstance(node.target, torch._ops.OpOverload) else getattr(node.target, "__name__", str(node.target))


def _line(node):
    """The user's line: the last one of the node's stack that is not torch's own."""
    root = os.path.dirname(torch.__file__)
    for line in reversed((node.meta.get("stack_trace") or "").splitlines()):
        if line.strip().startswith("File ") and root not in line:
            file, _, rest = line.strip()[6:].partition('", line ')
            return f"{file}:{rest.partition(',')[0]}"
    return ""


def _try(graph_module, settings):
    """A callable, or the CompileError."""
    try:
        # Who watches wants the package, which is called by itself.
        program, plan, narrowed = to_program(graph_module, narrow=not _watchers)
    except Exception as e:  # torch's verifier and serialiser raise many types
        return CompileError(f"the graph cannot be written as a program: {type(e).__name__}: {e}", "", "EXPORT")
    if not any(kind == "result" for kind, _ in plan):
        return CompileError("the graph computes nothing", "", "EMPTY")
    try:
        # Torch traces with fake tensors meanwhile, and those of the program are real.
        with unset_fake_temporarily():
            target = _target(settings["device"])
            package = compile_model(program, cached=settings["cached"], options=settings["options"], tune=settings["tune"],
                                    **{**target, "arch": settings["arch"] or target.get("arch")})
    except CompileError as e:
        return e
    except Error:
        raise
    except Exception as e:  # torch.export.save
        return CompileError(f"the graph cannot be written as a program: {type(e).__name__}: {e}", "", "EXPORT")
    model = package.load(threads=settings["threads"], result="torch", device=settings["device"])
    _note(pieces=Piece(len(_operators(graph_module.graph)), True, package.seconds, package.cached, len(package.data)), packages=package)
    graph, device = graph_module.graph, settings["device"]
    run = Replayed(model, device.type == "cuda") if settings["replay"] else model.run
    return _callable(_named_run(run, f"neso graph of {len(_operators(graph))} operators"), plan, _lazy_inputs(graph), device if _anchorless(graph, device) else None, narrowed)


def _refused_nodes(graph, error):
    """The nodes that the diagnostics name."""
    by_name = {n.name: n for n in graph.nodes}
    found = {}
    for d in error.diagnostics:
        if d.context in by_name:
            found.setdefault(by_name[d.context], d.message)
    return found


def _draws(node):
    """Whether an operator draws random numbers: attention does where it drops something."""
    if node.op != "call_function" or torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    for i, argument in enumerate(node.target._schema.arguments):
        if argument.name == "dropout_p":
            return (node.args[i] if i < len(node.args) else node.kwargs.get("dropout_p", argument.default_value)) != 0
    return True


def _random_nodes(graph):
    return {n: "random numbers are torch's own unless options={'rng': 'neso'}" for n in graph.nodes if _draws(n)}


# Of torch and Python; what else has a namespace is the user's.
_TORCHS_OWN = {"aten", "prims", "prim", "quantized", "quantized_decomposed", "_quantized", "higher_order", "_operator", "torchvision"}


def _is_users(target):
    """Whether an operator is the user's and no Triton kernels are known of it."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace in _TORCHS_OWN:
        return False
    return not torch._library.triton.get_triton_kernels_for_op(target.name().partition(".")[0])


def _custom_nodes(graph):
    """Operators of the user's run where they are: here, in torch. A package would call them, and only a library of operators could bring them."""
    def of(node):
        if node.op != "call_function":
            return False
        inside = node.args[0] if isinstance(node.target, torch._ops.HigherOrderOperator) and node.args else None
        return _is_users(node.target) or _is_users(inside)
    return {n: "an operator that is not torch's own" for n in graph.nodes if of(n)}


def _viewed(node):
    """The node that this one is a view of; None where it has memory of its own."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return None
    if node.target is operator.getitem:
        return node.args[0] if _viewed(node.args[0]) is not None else None
    schema = getattr(node.target, "_schema", None)
    alias = schema.arguments[0].alias_info if schema is not None and schema.arguments else None
    return node.args[0] if alias is not None and not alias.is_write else None


# Their results depend on the memory that an operand lies in, beyond its elements.
_SEE_MEMORY = (torch.ops.aten.as_strided, torch.ops.aten.as_strided_copy, torch.ops.aten.as_strided_scatter)


def _seen_memory(graph):
    """Operators that see the memory of their operand, and the views between: beside what torch runs, torch makes these, since a result of a
    part of the graph lies in memory of its own."""
    found = {}
    for node in graph.nodes:
        if node.op == "call_function" and getattr(node.target, "overloadpacket", None) in _SEE_MEMORY:
            found[node], seen = None, node.args[0]
            while (root := _viewed(seen)) is not None:
                found[seen], seen = None, root
    return found


def _is_symbolic(node):
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride(), value.storage_offset()))


def _strides_asked(node):
    """Of an operator of the user's: what its tags ask of the strides of its operands. Pairs of an operand and the order of its dimensions in
    memory, outermost first. Torch's advice for back ends: without a tag they are those of the program before torch rewrote it."""
    if not _is_users(node.target) or not isinstance(node.target, torch._ops.OpOverload):
        return
    tensors = [(i, n) for i, n in enumerate(node.args) if isinstance(n, torch.fx.Node) and isinstance(n.meta.get("val"), torch.Tensor)]
    if torch.Tag.needs_contiguous_strides in node.target.tags:
        for _, operand in tensors:
            if _is_symbolic(operand) or not operand.meta["val"].is_contiguous():
                yield operand, list(range(operand.meta["val"].dim()))
        return
    for i, operand in tensors:
        first = node.meta["eager_input_vals"][0][i] if "eager_input_vals" in node.meta else None
        if not isinstance(first, torch.Tensor) or torch.Tag.flexible_layout in node.target.tags or _is_symbolic(operand) or any(isinstance(s, torch.SymInt) for s in first.stride()):
            continue
        order = sorted(range(first.dim()), key=lambda d: first.stride()[d], reverse=True)
        if first.stride() != operand.meta["val"].stride() and first.permute(order).is_contiguous():
            yield operand, order


def _lay_out(graph_module):
    """Copies of operands where an operator asks for other strides than they have."""
    graph, aten = graph_module.graph, torch.ops.aten
    for node in [n for n in graph.nodes if n.op == "call_function"]:
        for operand, order in list(_strides_asked(node)):
            at = operand
            for target, args, kwargs in ((aten.permute.default, (order,), {}), (aten.clone.default, (), {"memory_format": torch.contiguous_format}),
                                         (aten.permute.default, (sorted(range(len(order)), key=order.__getitem__),), {})):
                with graph.inserting_before(node):
                    made = graph.call_function(target, (at, *args), kwargs)
                made.meta = {"val": target(at.meta["val"], *args, **kwargs), "stack_trace": node.meta.get("stack_trace")}
                at = made
            node.replace_input_with(operand, at)
    graph_module.recompile()


def _shared_results(graph, kept):
    """Views through which several results share memory, as the caller will see when it writes to one of them: torch makes these. So it does
    results that are views of inputs where sizes vary: AOTAutograd takes them to lie in the input as the result says, its offset among it.
    kept: results whose own memory the caller gives to an input."""
    groups, views = {}, {}
    for value in next(n for n in graph.nodes if n.op == "output").args[0]:
        chain, root = [], value
        while isinstance(root, torch.fx.Node) and (seen := _viewed(root)) is not None:
            chain.append(root)
            root = seen
        if isinstance(root, torch.fx.Node) and root.op == "placeholder" and chain and (_is_symbolic(value) or value in kept):
            views.update(dict.fromkeys(chain))
        # Other views of inputs AOTAutograd makes once more.
        if isinstance(root, torch.fx.Node) and root.op == "call_function":
            groups.setdefault(root, {})[value] = chain
    return views | {node: None for members in groups.values() if len(members) > 1 for chain in members.values() for node in chain}


def _ordered_effects(graph):
    """Operators whose order AOTAutograd keeps by tokens, and the tokens, which are None when the graph runs: torch does these."""
    ordered = [n for n in graph.nodes if n.op == "call_function" and n.target is torch.ops.higher_order.with_effects]
    return {n: None for call in ordered for n in (call, *(user for user in call.users if user.target is operator.getitem))}


def _device(graph):
    """Where a graph computes: one device, and numbers of the host beside a GPU."""
    found = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, torch.Tensor) and (one.dim() > 0 or one.device.type != "cpu"):
                found.setdefault(one.device, node)
    if not found:
        return torch.device("cpu")
    if len(found) > 1 or next(iter(found)).type not in ("cpu", "cuda"):
        where = "; ".join(f"{device} at {_line(node) or node.name}" for device, node in found.items())
        raise Error(f"torch.compile(backend='neso') computes a graph on one device, the CPU or an NVIDIA GPU; this one holds tensors on {where}")
    return next(iter(found))


def _target(device):
    """What the compiler is told of a device."""
    if device.type == "cpu":
        return {}
    return {"target": "cuda", "arch": gpu_arch(device)}


def compile_graph(graph_module, settings):
    """A boxed callable for a graph of AOTAutograd."""
    taken, kept = take_writes(graph_module)
    compiled = _compile_functional(graph_module, settings, kept)
    return with_writes(compiled, taken) if taken else compiled


def _compile_functional(graph_module, settings, kept):
    """The same without writes to inputs. kept: as for _shared_results."""
    graph = graph_module.graph
    settings = {**settings, "device": _device(graph)}
    if not _operators(graph):
        return _eager(graph_module)
    untraced = spell_out(graph_module, _decompositions())
    _lay_out(graph_module)
    shared = _shared_results(graph, kept)
    refused = _random_nodes(graph) if settings["rng"] == "torch" else {}
    if settings["fallback"] == "error" and refused:
        raise CompileError("; ".join(f"{_name(n)} at {_line(n)}: {why}" for n, why in refused.items()), "", "RANDOM")
    if settings["fallback"] == "error" and untraced:
        raise CompileError("; ".join(f"{_name(n)} at {_line(n)}: {why}" for n, why in untraced.items() if why), "", "FLEX")
    refused.update(untraced)
    users = _custom_nodes(graph)
    if settings["fallback"] == "error" and users:
        raise CompileError("; ".join(f"{_name(n)} at {_line(n)}: {why}" for n, why in users.items()), "E0253", "CUSTOM")
    refused.update(users)
    refused.update(shared)
    refused.update(_ordered_effects(graph))
    if not refused:
        done = _try(graph_module, settings)
        if not isinstance(done, CompileError):
            return done
        if settings["fallback"] == "error":
            raise done
        refused = _refused_nodes(graph, done)
        if not refused:
            # Nothing says which operator it was.
            _leave(graph_module, graph, {}, settings, str(done))
            return _eager(graph_module)
    return _compile_pieces(graph_module, refused, settings)


def _compile_pieces(graph_module, refused, settings):
    """Everything but the refused nodes, in as few parts as their order allows. refused: node → why; None: nothing is wrong with it."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import OperatorSupportBase
    original = graph_module
    refused = {**_seen_memory(original.graph), **refused}
    for _ in range(8):
        module = torch.fx.GraphModule(original, copy.deepcopy(original.graph))
        names = {n.name for n in refused}

        class Support(OperatorSupportBase):
            def is_node_supported(self, submodules, node):
                return node.op in ("call_function", "get_attr") and node.name not in names

        partitioner = CapabilityBasedPartitioner(module, Support(), allows_single_node_partition=True)
        parts = [p for p in partitioner.propose_partitions() if sum(n.op == "call_function" for n in p.nodes) >= SMALLEST_PIECE]
        fused = partitioner.fuse_partitions(parts)
        again = {}
        done = {}
        for node in fused.graph.nodes:
            if node.op != "call_module":
                continue
            inner = getattr(fused, node.target)
            result = _try(_with_tuple_result(inner), settings)
            if isinstance(result, CompileError) and settings["fallback"] == "error":
                raise result
            if not isinstance(result, CompileError):
                done[node.target] = (result, isinstance(next(n for n in inner.graph.nodes if n.op == "output").args[0], (tuple, list)))
                continue
            by_name = {n.name: n for n in original.graph.nodes}
            found = {by_name[n.name]: why for n, why in _refused_nodes(inner.graph, result).items() if n.name in by_name}
            again.update(found)
            if not found:
                again.update({by_name[n.name]: str(result) for n in inner.graph.nodes if n.op == "call_function" and n.name in by_name})
        if not again:
            break
        refused = {**refused, **again}
    _leave(fused, original.graph, refused, settings)
    for name, (compiled, many) in done.items():
        setattr(fused, name, _Part(compiled, many))
    fused.recompile()
    return _eager(fused)


class _Part(torch.nn.Module):
    def __init__(self, compiled, many):
        super().__init__()
        self.compiled, self.many = compiled, many

    def forward(self, *args):
        results = self.compiled(list(args))
        return results if self.many else results[0]


def _with_tuple_result(module):
    output = next(n for n in module.graph.nodes if n.op == "output")
    if isinstance(output.args[0], (tuple, list)):
        return module
    copied = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    output = next(n for n in copied.graph.nodes if n.op == "output")
    output.args = ((output.args[0],),)
    return copied


def _leave(module, graph, refused, settings, why=None):
    """Says what stays with torch."""
    plain = {n.name for n, reason in refused.items() if reason is None}
    refused = {n: reason for n, reason in refused.items() if reason is not None}
    left = [n for n in module.graph.nodes if n.op == "call_function" and n.target is not operator.getitem and n.name not in plain]
    if left:
        _note(pieces=Piece(len(left), False))
    for node, reason in refused.items():
        _note(refused=(_name(node), _line(node), reason))
    if why:
        _note(refused=("the whole graph", "", why))
    if settings["fallback"] != "warn" or not (refused or why):
        return
    total = max(len(_operators(graph)), 1)
    lines = sorted({f"{_name(n)} at {_line(n) or 'an unknown line'}: {reason}" for n, reason in refused.items()}) or [why]
    warnings.warn(f"neso leaves {len(left)} of {total} operators of a graph to torch:\n  " + "\n  ".join(lines[:20]), stacklevel=2)


def _eager(graph_module):
    def run(args):
        flat = list(args)
        if isinstance(args, list):
            args.clear()
        return graph_module(*flat)
    run._boxed_call = True
    return run


def _decompositions():
    """Rules of differentiation in terms of operators that inference has as well; and torch's own inner operators, which have no kernel."""
    from torch._decomp import core_aten_decompositions
    backward = {op: rule for op, rule in core_aten_decompositions().items() if "backward" in op.name()}
    return {**backward, torch.ops.prims.fma.default: lambda a, b, c: a * b + c}


def _attention(inputs):
    """Where gradients are wanted, attention is traced as products and a softmax: torch's fused operator has a backward pass of its own only."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    wanted = torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)
    return sdpa_kernel(SDPBackend.MATH) if wanted else contextlib.nullcontext()


def backend(graph_module, example_inputs, *, options=None, mode=None):
    """The entry point that torch.compile finds under "neso"."""
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    unknown = set(options or {}) - set(_OPTIONS)
    if unknown:
        raise Error(f"torch.compile(backend='neso') has no option {', '.join(sorted(unknown))}; there are {', '.join(_OPTIONS)}")
    settings = {**_OPTIONS, **(options or {})}
    mode = mode or settings["mode"]
    if mode not in _MODES:
        raise Error(f"torch.compile(backend='neso') has no mode '{mode}'; there are {', '.join(m for m in _MODES if m)}")
    settings["replay"], settings["tune"] = _MODES[mode]
    if settings["fallback"] not in ("warn", "silent", "error"):
        raise Error(f"fallback is warn, silent or error, not {settings['fallback']!r}")

    def compiler(graph, inputs):
        return compile_graph(graph, settings)

    weights, count = weights_among(example_inputs) if settings["freeze"] else {}, len(example_inputs)

    def inference(graph, inputs):
        return compile_frozen(graph, weights, count, lambda module: compile_graph(module, settings))
    trace = aot_autograd(fw_compiler=compiler, inference_compiler=inference, partition_fn=min_cut_rematerialization_partition, decompositions=_decompositions,
                         keep_inference_input_mutations=True)
    with _attention(example_inputs):
        return trace(graph_module, example_inputs)


def explain(function, *args, options=None, **kwargs):
    """Compiles and calls the function once, and says what was compiled and what stays with torch, with the line of each."""
    torch._dynamo.reset()
    with watch() as report:
        torch.compile(function, backend=backend, options={**(options or {}), "fallback": "silent"})(*args, **kwargs)
    torch._dynamo.reset()
    return report


def package(function, *args, options=None, dynamic=None, **kwargs):
    """The package of a function that is one graph, called under no_grad: the way from torch.compile to a file. Its inputs are the tensors and
    sizes that the traced graph takes; parameters and buffers are inside, unless options={'freeze': False} makes them inputs as well. Its results
    are a tuple of the tensors that the graph computes. A tensor that is given twice is one input: pass another one where they may differ."""
    torch._dynamo.reset()
    with watch() as report, torch.no_grad():
        torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic, options={"freeze": True, **(options or {}), "fallback": "error"})(*args, **kwargs)
    torch._dynamo.reset()
    return report.packages[0]
