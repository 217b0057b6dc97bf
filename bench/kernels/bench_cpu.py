"""Speed of compiled CPU kernels beside torch, in one process and alternating: min, median and spread of the ratio.

Usage: bench_cpu.py BUILD_DIR [--only NAME]. Needs torch; two threads for both. The kernels are the TTIR files of compiler/backend/cpu/test/kernels.
A ratio above 1 means that Neso is faster than the peer named beside it.
"""
import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
KERNELS = os.path.join(HERE, "../../compiler/backend/cpu/test/kernels")
THREADS = 2


class Env(ctypes.Structure):
    _fields_ = [("scratch", ctypes.c_void_p), ("report_data", ctypes.c_void_p), ("report", ctypes.c_void_p)]


class Arg(ctypes.Union):
    _fields_ = [("ptr", ctypes.c_void_p), ("i64", ctypes.c_int64), ("f64", ctypes.c_double), ("f32", ctypes.c_float)]


class Kernel:
    """One compiled kernel; a second worker thread waits for its half of each launch."""

    def __init__(self, tool, name, directory):
        # A new file each time: a mapped one must not change.
        so = os.path.join(directory, f"{name}{len(os.listdir(directory))}.so")
        out = subprocess.run([tool, os.path.join(KERNELS, name + ".ttir"), so, "native"], capture_output=True, text=True)
        if out.returncode:
            raise RuntimeError(out.stderr)
        self.info = json.loads(out.stdout)
        function = self.info["functions"][0]
        # Code for matrix tiles needs the system's leave to use them (arch_prctl); what the runtime asks for is asked for here.
        ctypes.CDLL(None).syscall(158, 0x1023, 18)
        self.function = getattr(ctypes.CDLL(so), function["symbol"])
        self.function.restype = None
        self.function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]
        self.scratch = [torch.empty(function["scratch"] + 128, dtype=torch.uint8) for _ in range(THREADS)]
        self.envs = [Env((s.data_ptr() + 63) // 64 * 64, 0, 0) for s in self.scratch]

    def launch(self, args, grid):
        packed = (Arg * len(args))()
        for slot, a in zip(packed, args):
            if isinstance(a, torch.Tensor):
                slot.ptr = a.data_ptr()
            elif isinstance(a, float):
                slot.f32 = a
            else:
                slot.i64 = a
        sizes = (ctypes.c_uint32 * 3)(*(list(grid) + [1] * (3 - len(grid))))
        n = sizes[0] * sizes[1] * sizes[2]

        def part(t):
            self.function(packed, sizes, n * t // THREADS, n * (t + 1) // THREADS, ctypes.byref(self.envs[t]))

        other = threading.Thread(target=part, args=(1,))
        other.start()
        part(0)
        other.join()


def measure(ours, peer, rounds=7):
    """Alternates; returns the times of both in milliseconds."""
    def once(f):
        start = time.perf_counter()
        f()
        return (time.perf_counter() - start) * 1e3

    for f in (ours, peer):
        f()
    repeat = max(1, int(20 / max(min(once(ours), once(peer)), 0.02)))
    a, b = [], []
    for _ in range(rounds):
        a.append(min(once(ours) for _ in range(repeat)))
        b.append(min(once(peer) for _ in range(repeat)))
    return a, b


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--only")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    tool = os.path.join(options.build, "bin/ttir_to_so")
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        def case(label, name, args, grid, peer, check, flops=0, moved=0):
            if options.only and options.only not in label:
                return
            k = Kernel(tool, name, directory)
            k.launch(args, grid)
            error = check()
            a, b = measure(lambda: k.launch(args, grid), peer)
            ratios = sorted(y / x for x, y in zip(a, b))
            rate = f"{flops / min(a) / 1e6:7.1f} GFLOP/s" if flops else f"{moved / min(a) / 1e6:7.1f} GB/s"
            print(f"{label:34s} ours {min(a):8.3f} ms  peer {min(b):8.3f} ms  ratio min {ratios[0]:.2f} median {ratios[len(ratios) // 2]:.2f} "
                  f"max {ratios[-1]:.2f}  {rate}  compile {k.info['compile_ms']:.0f} ms  error {error:.1e}", flush=True)
            rows.append((label, ratios[len(ratios) // 2]))

        for n in (1 << 20, 1 << 24):
            x, y, o = torch.randn(n), torch.randn(n), torch.empty(n)
            case(f"vector_add {n}", "vector_add", [x, y, o, n], [(n + 1023) // 1024], lambda: torch.add(x, y, out=o),
                 lambda: (o - (x + y)).abs().max().item(), moved=12 * n)
        x, o = torch.randn(2048, 1024), torch.empty(2048, 1024)
        case("softmax 2048x1024", "softmax_rows", [x, o, 1024, 1024], [2048], lambda: torch.softmax(x, 1),
             lambda: (o - torch.softmax(x, 1)).abs().max().item(), moved=8 * x.numel())
        w, bias = torch.randn(1024), torch.randn(1024)
        case("layer_norm 2048x1024", "layer_norm_rows", [x, w, bias, o, 1024, 1024, 1e-5], [2048],
             lambda: torch.nn.functional.layer_norm(x, (1024,), w, bias),
             lambda: (o - torch.nn.functional.layer_norm(x, (1024,), w, bias)).abs().max().item(), moved=8 * x.numel())
        for m, n, k in ((128, 128, 128), (512, 512, 512), (1024, 1024, 1024), (128, 2048, 512), (2048, 2048, 2048)):
            a, bm, c = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
            case(f"matmul {m}x{n}x{k}", "matmul", [a, bm, c, m, n, k, k, n, n], [-(-m // 128) * -(-n // 128)], lambda: torch.mm(a, bm, out=c),
                 lambda: (c - a @ bm).abs().max().item(), flops=2 * m * n * k)
            bt = bm.t().contiguous()
            case(f"matmul_bt {m}x{n}x{k}", "matmul_bt", [a, bt, c, m, n, k, k, k, n], [-(-m // 128) * -(-n // 128)],
                 lambda: torch.mm(a, bt.t(), out=c), lambda: (c - a @ bm).abs().max().item(), flops=2 * m * n * k)
        q, kk, v = (torch.randn(8, 1024, 64) for _ in range(3))
        oo = torch.empty_like(q)
        for causal in (False, True):
            sdpa = lambda: torch.nn.functional.scaled_dot_product_attention(q[None], kk[None], v[None], is_causal=causal)
            case("attention 8x1024x64" + (" causal" if causal else ""), "flash_attention" + ("_causal" if causal else ""),
                 [q, kk, v, oo, 1024 * 64, 1024, 0.125], [16, 8], sdpa, lambda: (oo - sdpa()[0]).abs().max().item(),
                 flops=4 * 8 * 1024 * 1024 * 64 // (2 if causal else 1))


if __name__ == "__main__":
    sys.exit(main())
