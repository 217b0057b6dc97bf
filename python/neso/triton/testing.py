"""Measuring, as triton.testing does it."""

import sys
import time


def _synchronize():
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()


def do_bench(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean"):
    """Milliseconds of fn(), measured for about `rep` ms after `warmup` ms: their quantiles where asked for, else as return_mode says: mean,
    median, min, max or all."""
    fn()
    _synchronize()
    end, times = time.perf_counter() + warmup * 1e-3, []
    while time.perf_counter() < end:
        fn()
        _synchronize()
    end = time.perf_counter() + rep * 1e-3
    while not times or time.perf_counter() < end:
        for tensor in grad_to_none or ():
            tensor.grad = None
        begin = time.perf_counter()
        fn()
        _synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
    return _summarize_statistics(times, quantiles, return_mode)


def _summarize_statistics(times, quantiles, return_mode):
    """Private to Triton, and used by libraries."""
    times = sorted(float(t) for t in times)
    if quantiles is not None:
        found = [times[min(int(q * (len(times) - 1) + 0.5), len(times) - 1)] for q in quantiles]
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return times
    return {"mean": sum(times) / len(times), "median": times[len(times) // 2], "min": times[0], "max": times[-1]}[return_mode]


def do_bench_cudagraph(fn, rep=20, grad_to_none=None, quantiles=None, return_mode="mean"):
    """As do_bench: a launch costs a few microseconds here, which is what a graph would spare."""
    return do_bench(fn, rep=rep, grad_to_none=grad_to_none, quantiles=quantiles, return_mode=return_mode)


def nvsmi(attrs):
    """What nvidia-smi says of the first GPU."""
    import subprocess
    out = subprocess.check_output(["nvidia-smi", "-i", "0", f"--query-gpu={','.join(attrs)}", "--format=csv,noheader,nounits"], text=True)
    return [int(word) for word in out.split(",")]


def get_dram_gbps(device=None):
    """What the memory of a GPU moves at most, in gigabytes a second."""
    import torch
    properties = torch.cuda.get_device_properties(torch.cuda.current_device() if device is None else device)
    # Two transfers a clock, whose rate is in kHz.
    return properties.memory_clock_rate * properties.memory_bus_width * 2 / 1e6 / 8


def _no_peak(*_, **__):
    raise RuntimeError("what a GPU computes at most is not known without Triton; install it for its models of performance")


# Modules import them that call them on GPUs alone.
get_max_tensorcore_tflops = get_max_simd_tflops = _no_peak


class Benchmark:
    """What perf_report measures: a function over x_vals, one column for each value of line_arg."""

    def __init__(self, x_names, x_vals, line_arg, line_vals, line_names, plot_name, args, xlabel="", ylabel="", x_log=False, y_log=False, styles=None):
        self.x_names, self.x_vals, self.line_arg, self.line_vals, self.line_names, self.plot_name, self.args = list(x_names), list(x_vals), line_arg, line_vals, line_names, plot_name, args
        self.xlabel, self.ylabel, self.x_log, self.y_log, self.styles = xlabel, ylabel, x_log, y_log, styles


class Mark:
    def __init__(self, fn, benchmarks):
        self.fn, self.benchmarks = fn, benchmarks

    def run(self, show_plots=False, print_data=False, save_path="", return_df=False, **kwargs):
        """Measures, and prints a table; tables of rows where `return_df` asks."""
        out = []
        for b in self.benchmarks if isinstance(self.benchmarks, list) else [self.benchmarks]:
            rows = []
            for x in b.x_vals:
                xs = x if isinstance(x, (list, tuple)) else [x] * len(b.x_names)
                ys = [self.fn(**dict(zip(b.x_names, xs)), **{b.line_arg: line}, **b.args, **kwargs) for line in b.line_vals]
                rows.append([*xs, *[y[0] if isinstance(y, (tuple, list)) else y for y in ys]])
            if print_data or show_plots:
                print(f"{b.plot_name}:")
                print("  ".join(f"{str(n):>14}" for n in [*b.x_names, *b.line_names]))
                for row in rows:
                    print("  ".join(f"{v:14.6g}" if isinstance(v, (int, float)) and not isinstance(v, bool) else f"{str(v):>14}" for v in row))
            out.append(rows)
        return (out if isinstance(self.benchmarks, list) else out[0]) if return_df else None


def perf_report(benchmarks):
    return lambda fn: Mark(fn, benchmarks)


def assert_close(x, y, atol=None, rtol=None, err_msg=""):
    import numpy
    x, y = (v.detach().float().cpu().numpy() if hasattr(v, "detach") else numpy.asarray(v) for v in (x, y))
    numpy.testing.assert_allclose(x, y, atol=1e-2 if atol is None else atol, rtol=0.0 if rtol is None else rtol, err_msg=err_msg)
