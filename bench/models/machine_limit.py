"""How far is a measured time from what this machine can do?

The limit of one call is the longer of two times: its floating-point operations at the speed of torch's own product of 1024 x 1024 matrices in
that dtype, and the bytes that it must move once (weights, inputs, outputs) at the speed of torch's copy of as many bytes, which lie in the same
cache. Both are measured beside the program, with as many threads (the roofline model: Williams, Waterman and Patterson, CACM 52(4), 2009).
What is between, such as exponentials and operands that no cache holds, is not in it: a share of one half need not be a fault. A share above one
says that fewer operations were enough (Winograd, causal attention) or that reading is cheaper than copying.
"""
import time

import torch
from torch.utils.flop_counter import FlopCounterMode


def _fastest(function, least=5, seconds=0.05):
    function()
    best, count, end = float("inf"), 0, time.perf_counter() + seconds
    while count < least or time.perf_counter() < end:
        begun = time.perf_counter()
        function()
        best, count = min(best, time.perf_counter() - begun), count + 1
    return best


def _tensors(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())


class Limit:
    """Measures each figure once, with the threads that torch has now."""

    def __init__(self):
        self.peaks, self.copies = {}, {}

    def peak(self, dtype):
        """Floating-point operations a second."""
        if dtype not in self.peaks:
            a = torch.randn(1024, 1024).to(dtype)
            self.peaks[dtype] = 2 * 1024 ** 3 / _fastest(lambda: a @ a)
        return self.peaks[dtype]

    def bandwidth(self, count):
        """Bytes a second, read and written, of a copy that touches `count` bytes in all."""
        size = 1 << max(12, min(28, (count // 2).bit_length()))
        if size not in self.copies:
            source, target = torch.ones(size // 4), torch.empty(size // 4)
            self.copies[size] = 2 * size / _fastest(lambda: target.copy_(source))
        return self.copies[size]

    def seconds(self, function, operands):
        """(the limit in seconds, what sets it) of one call of a torch function over `operands` (tensors, nested as they like)."""
        operands = list({t.data_ptr(): t for t in _tensors(operands)}.values())
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            results = function()
        moved = sum(t.numel() * t.element_size() for t in operands) + sum(t.numel() * t.element_size() for t in _tensors([results]))
        floating = [t for t in operands if t.is_floating_point()]
        dtype = max(floating, key=torch.numel).dtype if floating else torch.float32
        flop = counter.get_total_flops()
        by_product, by_memory = flop / self.peak(dtype) if flop else 0.0, moved / self.bandwidth(moved)
        return (by_product, "products") if by_product > by_memory else (by_memory, "memory")
