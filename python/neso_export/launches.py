"""Records the launches of Triton kernels while torch traces a model, without a GPU.

Inside `tracing()` a launch `kernel[grid](...)`, raw or through `wrap_triton`, does not run: its decorators are applied here (autotune configs
with pruning, heuristics), its grid is evaluated for each config, and a `triton_kernel_wrapper_mutation` node with the tensor and symbolic
arguments enters the graph. Everything else about the launch is kept in a `Launch`, found again by the node's `constant_args_idx`.
"""

import ast
import contextlib
import dataclasses
import inspect
import logging
import threading

import torch
import triton
from torch._higher_order_ops import triton_kernel_wrap as hop
from triton.runtime.autotuner import Autotuner, Config, Heuristics
from triton.runtime.jit import JITFunction, KernelInterface

try:  # Triton 3.4 and later
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:
    TensorDescriptor = ()

# Options of the launch itself; they are arguments of the kernel only where it has a parameter of that name.
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "num_consumer_groups", "num_buffers_warp_spec", "num_cpu_threads", "ir_override",
           "enable_fp_fusion", "launch_cooperative_grid", "launch_pdl")

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


# What the graph holds of a launch's arguments; the rest is in the bundle.
IN_GRAPH = (torch.Tensor, *SYMBOLIC)


class NesoExportError(RuntimeError):
    """The model launches a kernel in a way that cannot be exported; the text says which and why."""


@dataclasses.dataclass
class Descriptor:
    """A tensor descriptor that the host made: the graph holds the tensor, its blocks are part of the parameter's type."""
    tensor: object          # exactly what the descriptor describes
    block_shape: tuple


@dataclasses.dataclass
class LaunchConfig:
    kwargs: dict            # constexpr values of this config, those of heuristics included
    num_warps: int = 4
    num_stages: int = 3


@dataclasses.dataclass
class Launch:
    function: JITFunction
    values: dict            # parameter -> value as given; constexprs of a config are in `configs`
    configs: list
    autotuned: bool
    key: list
    heuristics: dict        # parameter -> source text of its function


# Dictionary of constant arguments, by identity -> (the dictionary, Launch). Torch's table of them is emptied now and then, so that numbers
# in it are used again.
_records: dict = {}
_META = "neso_launch"


def _remember(constants, launch):
    _records[id(constants)] = (constants, launch)
    return hop.kernel_side_table.add_constant_args(constants)


def _specialise(value):
    """A constexpr has one value: a symbolic one is fixed (torch adds the guard)."""
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, torch.SymBool):
        return bool(value)
    if isinstance(value, torch.SymFloat):
        return float(value)
    if isinstance(value, triton.language.constexpr):
        return value.value
    return value


def item_name(parameter: str, index: int) -> str:
    """How the graph calls an item of a tuple that a kernel takes."""
    return f"{parameter}.{index}"


def holds_tensors(value) -> bool:
    """A tuple that is no constant."""
    return isinstance(value, tuple) and any(isinstance(v, IN_GRAPH) for v in value)


def _check_items(value, name, kernel):
    for v in value:
        if not isinstance(v, (*IN_GRAPH, int, float)):
            raise NesoExportError(f"kernel '{kernel}': the tuple '{name}' has a {type(v).__name__} beside tensors; only numbers and tensors are supported")


def _descriptor(value, name, kernel):
    """Shape and strides of a descriptor may be others than its tensor's: then it is of a view."""
    if getattr(value, "padding", "zero") != "zero":
        raise NesoExportError(f"kernel '{kernel}': the descriptor '{name}' pads with '{value.padding}'; only zeros are supported")
    tensor, shape, strides = value.base, list(value.shape), list(value.strides)
    if list(tensor.shape) != shape or list(tensor.stride()) != strides:
        flat = tensor.is_contiguous() and all(a == b for a, b in zip(strides, _dense(shape)))
        tensor = tensor.view(shape) if flat else torch.as_strided(tensor, shape, strides)
    return Descriptor(tensor, tuple(int(b) for b in value.block_shape))


def _dense(shape):
    out = [1]
    for size in reversed(shape[1:]):
        out.insert(0, out[0] * size)
    return out


def _prune(tuner, args, kwargs):
    """The configs that survive the user's pruning, as Triton's autotuner applies it."""
    configs = list(tuner.configs)
    named = dict(zip(tuner.arg_names, args))
    early = getattr(tuner, "early_config_prune", None)
    if early is not None:
        configs = list(early(configs, named, **kwargs))
        if not configs:
            raise NesoExportError(f"kernel '{_base(tuner).__name__}': its early_config_prune leaves no config")
    model = getattr(tuner, "perf_model", None)
    if model is not None:
        top = tuner.configs_top_k
        top = int(len(tuner.configs) * top) if isinstance(top, float) and top <= 1.0 else top
        if len(configs) > top:
            cost = {c: model(**named, **kwargs, **c.all_kwargs()) for c in configs}
            configs = sorted(configs, key=cost.get)[:top]
    return configs


def _base(kernel) -> JITFunction:
    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    return kernel


def _layers(kernel):
    out = []
    while not isinstance(kernel, JITFunction):
        out.append(kernel)
        kernel = kernel.fn
    return out, kernel


def _check(layers, base):
    tuners = [k for k in layers if isinstance(k, Autotuner)]
    if len(tuners) > 1:
        raise NesoExportError(f"kernel '{base.__name__}' has two @triton.autotune decorators; use one")
    for t in tuners:
        hooks = getattr(t, "user_defined_pre_hook", False) or getattr(t, "user_defined_post_hook", False)
        if hooks or any(c.pre_hook is not None for c in t.configs):
            raise NesoExportError(f"kernel '{base.__name__}' has an autotune hook, which would be Python code at run time; remove pre_hook and post_hook")
    for k in layers:
        if not isinstance(k, (Autotuner, Heuristics)):
            raise NesoExportError(f"kernel '{base.__name__}' is wrapped in a {type(k).__name__}, which is not known; launch the @triton.jit function")


def _heuristic_text(fn) -> str:
    """A heuristic as an expression, where it is a lambda (the only one on its lines)."""
    try:
        lines = inspect.getsource(fn).strip().rstrip(",")
    except (OSError, TypeError):
        return ""
    for text in (lines, "(" + lines + ")", "{" + lines + "}", lines.lstrip("@") + ("" if lines.endswith(")") else ")")):
        try:
            found = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Lambda)]
        except SyntaxError:
            continue
        return ast.unparse(found[0]) if len(found) == 1 else ""
    return ""


def launch(kernel, grid, args, kwargs):
    """Enters one launch into the graph that is being traced."""
    kwargs = dict(kwargs)
    kwargs.pop("warmup", None)
    layers, base = _layers(kernel)
    _check(layers, base)
    names = [p.name for p in base.params]
    # A parameter of that name gets the value too.
    options = {k: kwargs[k] if k in names else kwargs.pop(k) for k in OPTIONS if k in kwargs}
    if "num_ctas" in options and options["num_ctas"] != 1:
        raise NesoExportError(f"kernel '{base.__name__}': num_ctas is not supported")
    unknown = [k for k in kwargs if k not in names]
    if unknown:
        raise NesoExportError(f"kernel '{base.__name__}' has no parameter '{unknown[0]}'")
    if len(args) > len(names):
        raise NesoExportError(f"kernel '{base.__name__}' takes {len(names)} arguments, {len(args)} are given")
    given = {**dict(zip(names, args)), **kwargs}

    tuner = next((k for k in layers if isinstance(k, Autotuner)), None)
    heuristics, configs, grids = {}, [], []
    for config in _prune(tuner, args, kwargs) if tuner else [Config({})]:
        bound, own = dict(given), {}
        settings = {"num_warps": config.num_warps if tuner else 4, "num_stages": config.num_stages if tuner else 3, **options}
        for layer in layers:
            if isinstance(layer, Autotuner):
                clash = sorted(set(config.kwargs) & set(given))
                if clash:
                    raise NesoExportError(f"kernel '{base.__name__}': '{clash[0]}' is given by the launch and by an autotune config")
                bound.update(config.kwargs)
                own.update(config.kwargs)
                for option in ("num_warps", "num_stages"):  # a parameter of that name receives the config's
                    if option in names and option not in bound:
                        bound[option] = own[option] = settings[option]
            else:
                for name, rule in layer.values.items():
                    value = rule({**dict(zip(names, args)), **bound})
                    bound[name] = own[name] = _specialise(value)
                    heuristics[name] = _heuristic_text(rule)
        meta = {**{p.name: p.default for p in base.params if p.has_default}, **bound}
        shape = grid(meta) if callable(grid) else grid
        if shape is None:
            raise NesoExportError(f"kernel '{base.__name__}' is launched without a grid")
        shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        if not 1 <= len(shape) <= 3:
            raise NesoExportError(f"kernel '{base.__name__}': a grid has one to three dimensions, this one has {len(shape)}")
        grids.append(shape + (1,) * (3 - len(shape)))
        configs.append(LaunchConfig({k: _specialise(v) for k, v in own.items()}, settings["num_warps"], settings["num_stages"]))

    values, graph_args, constants = {}, {}, {}
    for p in base.params:
        if p.name in configs[0].kwargs:
            constants[p.name] = configs[0].kwargs[p.name]
            continue
        if p.name in given:
            value = given[p.name]
        elif p.has_default:
            value = p.default
        else:
            raise NesoExportError(f"kernel '{base.__name__}' gets no value for '{p.name}'")
        if p.is_constexpr:
            value = _specialise(value)
        if TensorDescriptor and isinstance(value, TensorDescriptor):
            value = _descriptor(value, p.name, base.__name__)
        values[p.name] = value
        if isinstance(value, Descriptor):
            graph_args[p.name] = value.tensor
        elif holds_tensors(value):
            graph_args.update({item_name(p.name, i): v for i, v in enumerate(value) if isinstance(v, IN_GRAPH)})
            _check_items(value, p.name, base.__name__)
        else:
            (graph_args if isinstance(value, IN_GRAPH) else constants)[p.name] = value
    index = _remember(constants, Launch(base, values, configs, tuner is not None, list(getattr(tuner, "keys", []) or []), heuristics))
    # Without metadata of descriptors torch cannot say what such a kernel writes and takes everything for written, which is safe; with it, torch
    # overlooks stores through descriptors and drops the launch.
    hop.triton_kernel_wrapper_mutation(kernel_idx=hop.kernel_side_table.add_kernel(base), constant_args_idx=index, grid=grids,
                                       tma_descriptor_metadata={}, kwargs=graph_args)


def adopt(node):
    """The record of a wrapper node, also of one that Dynamo made. Afterwards the node holds tensors and symbolic sizes alone, as torch's writer
    requires."""
    if _META in node.meta:
        return node.meta[_META]
    constants = hop.kernel_side_table.get_constant_args(node.kwargs["constant_args_idx"])
    known = _records.get(id(constants))
    if known is not None and known[0] is constants:
        node.meta[_META] = known[1]
        node.kwargs = {**node.kwargs, "tma_descriptor_metadata": {}}
        return known[1]
    kernel = hop.kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
    layers, base = _layers(kernel)
    _check(layers, base)
    configs = layers[0].configs if layers else []
    own = [LaunchConfig({k: _specialise(v) for k, v in c.kwargs.items()}, c.num_warps, c.num_stages) for c in configs] or [LaunchConfig({})]
    given = {**{p.name: p.default for p in base.params if p.has_default}, **node.kwargs["kwargs"], **constants}
    graph_args = {k: v for k, v in node.kwargs["kwargs"].items() if isinstance(v, torch.fx.Node) and k not in own[0].kwargs}
    values = {p.name: given[p.name].meta["val"] if p.name in graph_args else given[p.name] for p in base.params if p.name not in own[0].kwargs}
    for name, described in (node.kwargs.get("tma_descriptor_metadata") or {}).items():
        values[name] = Descriptor(values[name], _blocks(described, name, base.__name__))
    launch = Launch(base, values, own, len(configs) > 1, [], {})
    index = _remember({k: v for k, v in given.items() if k not in graph_args}, launch)
    node.kwargs = {**node.kwargs, "kwargs": graph_args, "constant_args_idx": index, "tma_descriptor_metadata": {}}
    node.meta[_META] = launch
    return launch


def _blocks(described, name, kernel) -> tuple:
    """The block of a descriptor in Dynamo's record: ("stable", (block_shape,)) of `TensorDescriptor.from_tensor`."""
    kind, parts = described[0], described[1]
    if kind != "stable":
        raise NesoExportError(f"kernel '{kernel}': the descriptor '{name}' is of Triton's experimental interface; use TensorDescriptor.from_tensor")
    return tuple(int(b) for b in parts[0])


class _NoDevice:
    """Stands in for Triton's GPU driver: kernels are read for sm_90 and never launched."""

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=0):
        return 0

    def get_active_torch_device(self):
        return torch.device("cpu")


_depth = threading.local()


@contextlib.contextmanager
def tracing():
    """Launches enter the graph; `triton_op` operators are opened up."""
    if getattr(_depth, "value", 0):
        yield
        return
    _depth.value = 1
    from triton.runtime import driver as config
    previous = getattr(config, "_active", None)
    try:
        config.active
    except Exception:
        config.set_active(_NoDevice())
    with contextlib.ExitStack() as undo:
        log = logging.getLogger("torch._dynamo")  # torch warns of each kernel that its own analysis does not understand
        undo.callback(log.setLevel, log.level)
        log.setLevel(logging.ERROR)

        def replace(owner, name, value):
            old = owner.__dict__.get(name)
            setattr(owner, name, value)
            undo.callback(lambda: setattr(owner, name, old) if old is not None else delattr(owner, name))

        for owner in {KernelInterface, JITFunction, Autotuner, Heuristics}:
            if owner is KernelInterface or "__getitem__" in owner.__dict__:
                replace(owner, "__getitem__", lambda self, grid: lambda *a, **k: launch(self, grid, a, k))
        for owner in (JITFunction, Autotuner, Heuristics):
            replace(owner, "run", lambda self, *a, grid, **k: launch(self, grid, a, k))
        # Dynamo (strict export, branches of torch.cond) knows launches by itself, if it thinks that there is a device for them.
        import torch.utils._triton as torch_triton
        replace(torch_triton, "has_triton", lambda **_: True)
        # A launch has no results before functionalisation: without this it would be removed as unused in branches and loop bodies.
        torch.fx.node.has_side_effect(hop.triton_kernel_wrapper_mutation)
        import torch._export.verifier as verifier
        if hasattr(verifier, "_check_val"):
            check = verifier._check_val
            replace(verifier, "_check_val", lambda node: None if node.target is hop.triton_kernel_wrapper_mutation else check(node))
        wrapper = hop.TraceableTritonKernelWrapper
        replace(wrapper, "__call__", lambda self, *a, **k: launch(self.kernel, self.grid, a, k))
        replace(wrapper, "run", lambda self, *a, grid, **k: launch(self.kernel, grid, a, k))
        # Kernels that wrap_triton would refuse (heuristics outermost) are ours to apply.
        replace(wrapper, "__init__", _plain_wrapper)
        import torch.export._trace as export_trace
        if hasattr(export_trace, "custom_triton_ops_decomposition_disabled"):
            replace(export_trace, "custom_triton_ops_decomposition_disabled", lambda: False)
        try:
            yield
        finally:
            _depth.value = 0
            config._active = previous


def _plain_wrapper(self, kernel, kernel_idx, grid, kernel_source=None):
    self.kernel, self.kernel_idx, self.grid, self.kernel_source = kernel, kernel_idx, grid, kernel_source
