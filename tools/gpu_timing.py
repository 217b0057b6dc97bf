"""Times of launches on the current GPU, for what compares with a peer."""
import statistics

import torch


def cold_median(run, count, cold):
    """The median of `count` calls of run() in milliseconds, by events on the current stream. `cold` is a tensor larger than the L2; it is
    written before each call, which empties the cache and hides what the host needs to launch."""
    marks = []
    for _ in range(count):
        cold.zero_()
        cold.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        marks.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in marks)
