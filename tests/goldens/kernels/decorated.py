"""Kernels with decorators and unusual parameters, for tests of the entry."""
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"B": 32}, num_warps=4, num_stages=2), triton.Config({"B": 64}, num_warps=8)],
    key=["n"],
    restore_value=["x"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0})
@triton.jit(do_not_specialize=["n"])
def tuned(x, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    if EVEN:
        tl.store(x + i, tl.load(x + i) + 1)
    else:
        tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def plain(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, i + n)


@triton.jit
def descriptor(d, o):
    v = d.load([0, 0])
    tl.store(o + tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :], v * d.shape[0])


@triton.jit
def tuple_arg(t, n):
    tl.store(t[0], t[1] + n)


@triton.jit
def relu(v):
    return tl.maximum(v, 0)


@triton.jit
def any_constexpr(x, C: tl.constexpr):
    if C is None:
        tl.store(x, 0)
    else:
        tl.store(x, 1)
