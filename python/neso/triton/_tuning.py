"""`autotune` and `heuristics` without Triton, with Triton's meaning."""

import hashlib
import json
import os
import weakref

from .. import _program, cache
from .._files import write as _write
from .._errors import InputError
from . import _interpret
from ._launch import JITFunction, KernelInterface


# Every autotuned kernel of the process, and the rows that use_tuning has read: (device, kernel, configs, key) → a config's text.
_tuners = weakref.WeakSet()
_shipped = {}
_FORMAT = 1


class Config:
    """One way to compile a kernel."""

    def __init__(self, kwargs, num_warps=4, num_stages=3, num_ctas=1, maxnreg=None, pre_hook=None, ir_override=None, num_buffers_warp_spec=0, num_consumer_groups=0, **_):
        self.kwargs, self.num_warps, self.num_stages, self.num_ctas, self.maxnreg, self.pre_hook = kwargs, num_warps, num_stages, num_ctas, maxnreg, pre_hook

    def all_kwargs(self):
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}

    def __repr__(self):
        return ", ".join(f"{k}: {v}" for k, v in self.all_kwargs().items())

    __str__ = __repr__


class Heuristics(KernelInterface):
    def __init__(self, fn, values):
        self.fn, self.values, self.arg_names = fn, values, fn.arg_names
        self.__name__ = fn.__name__

    def run(self, *args, **kwargs):
        for name, rule in self.values.items():
            kwargs[name] = rule({**dict(zip(self.arg_names, args)), **kwargs})
        return self.fn.run(*args, **kwargs)


class Autotuner(KernelInterface):
    """Runs a kernel in the fastest of its configs; measured once for each key."""

    def __init__(self, fn, arg_names, configs, key, reset_to_zero, restore_value, pre_hook=None, post_hook=None, prune_configs_by=None, warmup=None, rep=None,
                 use_cuda_graph=False, do_bench=None, cache_results=False):
        # Parameters and fields are Triton's, from which libraries derive tuners of their own.
        self.fn, self.configs, self.keys, self.arg_names = fn, list(configs) or [Config({})], list(key), list(arg_names)
        self.reset_to_zero, self.restore_value, self.pre_hook, self.post_hook = list(reset_to_zero or ()), list(restore_value or ()), pre_hook, post_hook
        self.user_defined_pre_hook, self.user_defined_post_hook, self.restore_copies = pre_hook is not None, post_hook is not None, {}
        prune = prune_configs_by or {}
        self.early_config_prune, self.perf_model, self.configs_top_k = prune.get("early_config_prune"), prune.get("perf_model"), prune.get("top_k", 1.0)
        self.do_bench, self.cache_results = do_bench, cache_results
        self.cache, self.configs_timings, self.best_config, self.nargs = {}, {}, None, None
        # What was measured or read: (device, key) → (config's text, {config's text: milliseconds}).
        self.found = {}
        _tuners.add(self)
        self.__name__ = fn.__name__
        self.base_fn = fn
        while not isinstance(self.base_fn, JITFunction):
            self.base_fn = self.base_fn.fn

    def run(self, *args, **kwargs):
        named = dict(zip(self.arg_names, args))
        self.nargs = named
        if len(self.configs) == 1 or _interpret.active:
            config = self.configs[0]
        else:
            given = {**named, **kwargs}
            key = tuple([given[k] for k in self.keys if k in given] + [str(given[n].dtype) for n in self.arg_names if hasattr(given.get(n), "dtype")])
            # What is fast on one GPU need not be on another of the machine.
            gpu = next((v.device for v in given.values() if getattr(getattr(v, "device", None), "type", "cpu") == "cuda"), None)
            at = key if gpu is None else (key, gpu)
            config = self.cache.get(at)
            if config is None:
                config = self.cache[at] = self._choose(key, named, args, kwargs)
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**named, **kwargs, **config.all_kwargs()})
        return self.fn.run(*args, **kwargs, **config.all_kwargs())

    def prune_configs(self, named, kwargs):
        configs = self.configs
        if self.early_config_prune is not None:
            configs = list(self.early_config_prune(configs, named, **kwargs))
            if not configs:
                raise RuntimeError(f"no config of '{self.__name__}' is left by early_config_prune")
        model, top = self.perf_model, self.configs_top_k
        if model is not None:
            top = int(len(self.configs) * top) if isinstance(top, float) and top <= 1.0 else top
            if len(configs) > top:
                configs = sorted(configs, key=lambda c: model(**named, **kwargs, **c.all_kwargs()))[:top]
        return configs

    def row_key(self, device, key):
        """Names a result for other processes: by what the kernel is, not by where it lies."""
        source = hashlib.sha256(self.base_fn.source()[0].encode()).hexdigest()
        return device, source, hashlib.sha256("\n".join(sorted(map(str, self.configs))).encode()).hexdigest(), json.dumps([str(k) for k in key])

    def _choose(self, key, named, args, kwargs):
        device = _device({**named, **kwargs})
        shipped = _shipped.get(self.row_key(device, key)) if _shipped else None
        config = next((c for c in self.configs if str(c) == shipped), None)
        if config is None:
            config, timings = self._measure(device, key, named, args, kwargs)
        else:
            timings = {}
        self.found[device, key] = str(config), timings
        return config

    def _measure(self, device, key, named, args, kwargs):
        """(the fastest config, {config's text: milliseconds})."""
        configs = self.prune_configs(named, kwargs)
        kept = None
        if self.cache_results:
            kept = cache.key("tuning", device, self.base_fn.source()[0], [str(c) for c in configs], key, _program.identity(), cache.machine())
            found = cache.get(kept)
            if found is not None:
                found = json.loads(found)
                return next((c for c in configs if str(c) == found["best"]), configs[0]), found["ms"]
        timings = {config: self._bench(config, args, kwargs, named) for config in configs}
        best = min(timings, key=lambda c: timings[c][0])
        self.configs_timings = timings
        milliseconds = {str(c): t[0] for c, t in timings.items()}
        if kept:
            cache.put(kept, json.dumps({"best": str(best), "ms": milliseconds}).encode())
        return best, milliseconds

    def _bench(self, config, args, kwargs, named):
        from .testing import do_bench
        current = {**kwargs, **config.all_kwargs()}
        everything = {**named, **current}
        kept = {name: _copy(everything[name]) for name in self.restore_value if hasattr(everything.get(name), "dtype")}

        def before():
            if config.pre_hook is not None:
                config.pre_hook(everything)
            if self.pre_hook is not None:
                self.pre_hook(everything, reset_only=False)
            for name in self.reset_to_zero:
                _fill(everything[name])
            for name, value in kept.items():
                _fill(everything[name], value)

        def once():
            before()
            self.fn.run(*args, **current)
        try:
            return (self.do_bench or do_bench)(once, quantiles=(0.5, 0.2, 0.8))
        finally:
            for name in self.reset_to_zero:
                _fill(everything[name])
            for name, value in kept.items():
                _fill(everything[name], value)
            if self.post_hook is not None:
                self.post_hook(everything, exception=None)


def _device(values):
    """What a measurement holds for: the GPU's name, or the processor's and its instructions."""
    tensor = next((v for v in values.values() if getattr(getattr(v, "device", None), "type", "cpu") == "cuda"), None)
    if tensor is not None:
        import torch
        return "cuda " + torch.cuda.get_device_name(tensor.device)
    return f"cpu {_processor()} {hashlib.sha256(cache.machine().encode()).hexdigest()[:16]}"


def _processor():
    try:
        with open("/proc/cpuinfo") as f:
            return next((line.partition(":")[2].strip() for line in f if line.startswith("model name")), "")
    except OSError:
        return ""


def export_tuning(path):
    """Writes what autotuning found in this process to a file that use_tuning reads, on machines with the same processor or GPU; what the file has
    from elsewhere stays. The number of results in it. Without Triton: an installed Triton keeps results of its own."""
    rows = _read(path) if os.path.exists(path) else {}
    for tuner in list(_tuners):
        for (device, key), (config, milliseconds) in tuner.found.items():
            at = tuner.row_key(device, key)
            rows[at] = {"device": at[0], "kernel": tuner.__name__, "source": at[1], "configs": at[2], "key": at[3], "config": config,
                        "ms": milliseconds or rows.get(at, {}).get("ms", {})}
    text = ",\n".join(json.dumps(rows[at]) for at in sorted(rows))
    _write(path, f'{{"neso_tuning": {_FORMAT}, "results": [\n{text}\n]}}\n'.encode())
    return len(rows)


def use_tuning(path):
    """From now on autotuned kernels take the configs that a file of export_tuning names for this device, without measuring; kernels or configs
    that were changed since are measured anew. The number of results in the file."""
    rows = _read(path)
    _shipped.update((at, row["config"]) for at, row in rows.items())
    return len(rows)


def _read(path):
    try:
        with open(path) as f:
            whole = json.load(f)
        if whole["neso_tuning"] != _FORMAT:
            raise InputError(f"'{os.fspath(path)}' is of version {whole['neso_tuning']} of tuning results, this Neso reads {_FORMAT}", "E0696", "TUNE_FILE_VERSION")
        return {tuple(str(row[k]) for k in ("device", "source", "configs", "key")): {**row, "config": str(row["config"])} for row in whole["results"]}
    except (ValueError, KeyError, TypeError) as e:
        if isinstance(e, InputError):
            raise
        raise InputError(f"'{os.fspath(path)}' is no file of neso.triton.export_tuning", "E0694", "TUNE_FILE_MALFORMED") from None


def _copy(tensor):
    return tensor.clone() if hasattr(tensor, "clone") else tensor.copy()


def _fill(tensor, value=0):
    if hasattr(tensor, "copy_"):
        tensor.copy_(value) if hasattr(value, "dtype") else tensor.zero_()
    else:
        tensor[...] = value


def autotune(configs, key, prune_configs_by=None, reset_to_zero=None, restore_value=None, pre_hook=None, post_hook=None, warmup=None, rep=None, use_cuda_graph=False,
             do_bench=None, cache_results=False):
    """Runs the kernel in the fastest of `configs`, measured on the device once for each value of the arguments that `key` names."""
    return lambda fn: Autotuner(fn, fn.arg_names, configs, key, reset_to_zero, restore_value, pre_hook, post_hook, prune_configs_by, warmup, rep, use_cuda_graph, do_bench, cache_results)


def heuristics(values):
    """Arguments that functions of the others give: {"EVEN": lambda args: args["n"] % 2 == 0}."""
    return lambda fn: Heuristics(fn, values)
