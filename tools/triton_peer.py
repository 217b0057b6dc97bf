"""Kernels that a program launches, beside Triton's own code for them: equal results, and the time of each. Used by triton_on_neso.py --peer."""
import json
import statistics

import torch

from gpu_timing import cold_median


def difference(got, want, dtype):
    """'' or how two memories of `dtype` (None: bytes) differ. Floats may differ by 0.5 % of the largest value, because products of f32 are
    of tf32 on a GPU (10 bits of mantissa) and sums are in another order; 16-bit ones by 2 %, some units in the last place."""
    if dtype is None:
        return "" if torch.equal(got, want) else f"{int((got != want).sum())} of {want.numel()} bytes differ"
    count = got.numel() // dtype.itemsize * dtype.itemsize
    got, want = got[:count].view(dtype), want[:count].view(dtype)
    got, want = (got.double(), want.double()) if count < 1 << 28 else (got, want)
    finite = want.isfinite() & (want.abs() < 1e30)
    if not finite.any():
        return ""
    error = ((got - want).abs()[finite].max() / want[finite].abs().max().clamp(min=1e-6)).item()
    return "" if error < (2e-2 if dtype.itemsize == 2 else 5e-3) else f"off by {error:.2g} of the largest value"


class Peer:
    """Judges launches on the current GPU; a line of JSON each goes to `path`."""

    def __init__(self, path, rounds):
        self.path, self.rounds, self.rows = path, rounds, []
        self.cold = torch.empty(1 << 28, dtype=torch.int8, device="cuda")  # more than the L2 holds

    def judge(self, kernel, what, tensors, ours, theirs):
        """Calls ours(), then theirs() on the same memory, compares, times them in turns, and leaves the memory as ours() left it; where ours()
        is refused, that is noted and theirs() does the work."""
        storages = {t.untyped_storage().data_ptr(): (t.untyped_storage(), t.dtype) for t in tensors}
        memories = [(torch.tensor([], dtype=torch.uint8, device="cuda").set_(storage), dtype) for storage, dtype in storages.values()]
        row = {"kernel": kernel, **what}
        self.rows.append(row)
        try:
            before = [m.clone() for m, _ in memories]
            try:
                ours()
                torch.cuda.synchronize()
            except RuntimeError as e:
                row["refused"] = str(e)[-600:]
                theirs()
                return
            mine = [m.clone() for m, _ in memories]
            self.restore(memories, before)
            try:
                theirs()
                torch.cuda.synchronize()
                wrong = [difference(m, memory, dtype if dtype.is_floating_point and dtype.itemsize > 1 else None) for m, (memory, dtype) in zip(mine, memories)]
                row["wrong"] = "; ".join(w for w in wrong if w)
                if self.rounds:
                    self.time(row, ours, theirs)
            except Exception as e:  # noqa: BLE001: what the peer cannot do is its row's
                row["peer"] = f"{type(e).__name__}: {str(e)[-300:]}"
            self.restore(memories, mine)
        finally:
            with open(self.path, "a") as f:
                f.write(json.dumps(row) + "\n")

    @staticmethod
    def restore(memories, held):
        for (memory, _), h in zip(memories, held):
            memory.copy_(h)

    def time(self, row, ours, theirs):
        """Medians in milliseconds, with a cold L2."""
        results = ([], [])
        for _ in range(self.rounds):
            for run, result in zip((ours, theirs), results):
                result.append(cold_median(run, 10, self.cold))
        ms, peer = (statistics.median(r) for r in results)
        row.update(ms=round(ms, 5), peer_ms=round(peer, 5), ratio=round(peer / ms, 3))

    def report(self):
        wrong, refused = ([r for r in self.rows if r.get(k)] for k in ("wrong", "refused"))
        ratios = [r["ratio"] for r in self.rows if "ratio" in r]
        text = f"{len(self.rows)} beside Triton, {len(wrong)} with another result, {len(refused)} refused"
        if ratios:
            text += f"; time of Triton / ours: geometric mean {statistics.geometric_mean(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}"
        return text
