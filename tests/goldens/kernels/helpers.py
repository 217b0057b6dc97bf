"""What other kernel files import."""
from typing import NamedTuple

import triton
import triton.language as tl

OFFSET = tl.constexpr(0.125)


class Pair(NamedTuple):
    value: tl.tensor
    index: tl.tensor


@triton.jit
def double(v):
    return v + v


@triton.jit
def scale_add(v, k, offset: tl.constexpr = OFFSET):
    return double(v) * k + offset


@triton.jit
def pick(p):
    return tl.where(p.index % 2 == 0, p.value, -p.value)
