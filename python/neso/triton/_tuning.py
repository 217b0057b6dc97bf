"""`autotune` and `heuristics` without Triton, with Triton's meaning."""

import json

from .. import _program, cache
from . import _interpret
from ._launch import JITFunction, KernelInterface


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

    def __init__(self, fn, configs, key, reset_to_zero=None, restore_value=None, pre_hook=None, post_hook=None, prune_configs_by=None, do_bench=None, cache_results=False):
        self.fn, self.configs, self.keys, self.arg_names = fn, list(configs) or [Config({})], list(key), fn.arg_names
        self.reset_to_zero, self.restore_value, self.pre_hook, self.post_hook = list(reset_to_zero or ()), list(restore_value or ()), pre_hook, post_hook
        self.prune, self.do_bench, self.cache_results = prune_configs_by or {}, do_bench, cache_results
        self.cache, self.configs_timings, self.best_config, self.nargs = {}, {}, None, None
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
            config = self.cache.get(key)
            if config is None:
                config = self.cache[key] = self._choose(key, named, args, kwargs)
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**named, **kwargs, **config.all_kwargs()})
        return self.fn.run(*args, **kwargs, **config.all_kwargs())

    def prune_configs(self, named, kwargs):
        configs = self.configs
        if "early_config_prune" in self.prune:
            configs = list(self.prune["early_config_prune"](configs, named, **kwargs))
            if not configs:
                raise RuntimeError(f"no config of '{self.__name__}' is left by early_config_prune")
        model, top = self.prune.get("perf_model"), self.prune.get("top_k", 1.0)
        if model is not None:
            top = int(len(self.configs) * top) if isinstance(top, float) and top <= 1.0 else top
            if len(configs) > top:
                configs = sorted(configs, key=lambda c: model(**named, **kwargs, **c.all_kwargs()))[:top]
        return configs

    def _choose(self, key, named, args, kwargs):
        configs = self.prune_configs(named, kwargs)
        kept = None
        if self.cache_results:
            kept = cache.key("tuning", self.base_fn.source()[0], [str(c) for c in configs], key, _program.identity(), cache.machine())
            found = cache.get(kept)
            if found is not None:
                return next((c for c in configs if str(c) == json.loads(found)["best"]), configs[0])
        timings = {config: self._bench(config, args, kwargs, named) for config in configs}
        best = min(timings, key=lambda c: timings[c][0])
        self.configs_timings = timings
        if kept:
            cache.put(kept, json.dumps({"best": str(best), "ms": {str(c): t[0] for c, t in timings.items()}}).encode())
        return best

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
    return lambda fn: Autotuner(fn, configs, key, reset_to_zero, restore_value, pre_hook, post_hook, prune_configs_by, do_bench, cache_results)


def heuristics(values):
    """Arguments that functions of the others give: {"EVEN": lambda args: args["n"] % 2 == 0}."""
    return lambda fn: Heuristics(fn, values)
