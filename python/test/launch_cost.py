"""What a launch of a kernel costs that was launched before, in microseconds of this thread: launch_cost.py alone|backend. `alone`: Neso's front
end; `backend`: an installed Triton on the CPU. PYTHONPATH names the package's folder."""
import sys
import time

import torch

if sys.argv[1:] == ["alone"]:
    import neso.triton as triton
    import neso.triton.language as tl
else:
    import triton
    import triton.language as tl

    import neso.triton
    neso.triton.activate()


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def least(launch, times=2000, rounds=15):
    found = []
    for _ in range(rounds):
        begin = time.thread_time()
        for _ in range(times):
            launch()
        found.append((time.thread_time() - begin) / times * 1e6)
    return min(found)


x, y, out = torch.randn(16), torch.randn(16), torch.empty(16)
kept = add[(1,)]
kept(x, y, out, 16, BLOCK=16)
print(f"kernel[grid](...) {least(lambda: add[(1,)](x, y, out, 16, BLOCK=16)):.2f}")
print(f"grid of a function {least(lambda: add[lambda meta: (-(-16 // meta['BLOCK']),)](x, y, out, 16, BLOCK=16)):.2f}")
print(f"kernel[grid] kept {least(lambda: kept(x, y, out, 16, BLOCK=16)):.2f}")
