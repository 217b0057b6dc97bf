"""Helpers that call themselves until a constexpr ends it."""
import triton
import triton.language as tl


@triton.jit
def _power(a, n: tl.constexpr):
    if n == 0:
        return a
    else:
        return _power(a * 2 + n, n - 1)


@triton.jit
def _tree(a, n: tl.constexpr):
    """Sums of neighbours, of their neighbours, …: a block of another shape in each call."""
    if n == 1:
        return tl.reshape(a, [1])
    else:
        x, y = tl.split(tl.reshape(a, [n // 2, 2]))
        return _tree(x + y, n // 2)


@triton.jit
def _even(a, n: tl.constexpr):
    if n == 0:
        return a
    return _odd(a + 1, n - 1)


@triton.jit
def _odd(a, n: tl.constexpr):
    if n == 0:
        return -a
    return _even(a * 3, n - 1)


@triton.jit
def powers(x, o, N: tl.constexpr):
    i = tl.arange(0, 64)
    tl.store(o + i, _power(tl.load(x + i), N))


@triton.jit
def tree(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + tl.arange(0, 1), _tree(tl.load(x + i), N))


@triton.jit
def turns(x, o, N: tl.constexpr):
    i = tl.arange(0, 64)
    a = tl.load(x + i)
    tl.store(o + i, _even(a, N) + _even(a, N + 1))


CASES = [
    dict(kernel="powers", args=["i32[64]:-99,99", "out i32[64]"], const={"N": 5}),
    dict(kernel="tree", args=["i32[64]:-99,99", "out i32[1]"], const={"N": 64}),
    dict(kernel="turns", args=["i32[64]:-99,99", "out i32[64]"], const={"N": 4}),
]
