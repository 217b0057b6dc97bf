"""Losses of labels in order (CTC). torch says of no device what shapes they have: a model that is exported registers that, as here."""
import torch
from torch.export import Dim

from golden_ops import A, B, Case, F, c

N = torch.tensor
STEPS = Dim("t", min=1, max=64)
ENDS = ((9, 12, 7, 5), (4, 0, 3, 2))


def register():
    """Shapes of what the operators give. Of lengths that are tensors nothing says the largest: there are states for as many labels as are given."""
    def by_lists(x, targets, steps, labels, blank=0, zero_infinity=False):
        return x.new_empty(x.shape[1]), x.new_empty(x.shape[1], x.shape[0], 2 * max(labels) + 1)

    def by_tensors(x, targets, steps, labels, blank=0, zero_infinity=False):
        return x.new_empty(x.shape[1]), x.new_empty(x.shape[1], x.shape[0], 2 * targets.shape[-1] + 1)

    torch.library.register_fake("aten::_ctc_loss", by_lists)
    torch.library.register_fake("aten::_ctc_loss.Tensor", by_tensors)
    for name in ("aten::_ctc_loss_backward", "aten::_ctc_loss_backward.Tensor"):
        torch.library.register_fake(name, lambda grad, x, *_, **__: torch.empty(x.shape, dtype=x.dtype))


def by_tensors(**rest):
    return lambda x, targets, steps, labels: F.ctc_loss(x.log_softmax(-1), targets, steps, labels, **rest)


def by_lists(steps, labels, **rest):
    return lambda x, targets: A.ctc_loss.IntList(x.log_softmax(-1), targets, steps, labels, **rest)


def whole(lists=False, **rest):
    """Both results, of the second one what is written at all, and the gradient."""
    def function(x, targets, steps, labels):
        x = x.log_softmax(-1)
        given = (ENDS if lists else (steps, labels))
        loss, alpha = A._ctc_loss(x, targets, *given, **rest)
        inside = (torch.arange(x.shape[0])[None, :, None] < steps[:, None, None]) & (torch.arange(alpha.shape[2])[None, None] <= 2 * labels[:, None, None])
        grad = A._ctc_loss_backward(loss.cos(), x, targets, *given, loss, alpha, rest.get("blank", 0), rest.get("zero_infinity", False))
        return loss, alpha.masked_fill(~inside, 0), grad
    return function


def ctc():
    register()
    x, y, long, labels = "f32 12x4x6", "i64 4x4 <5", N(ENDS[0]), N(ENDS[1])
    repeated = N([[1, 1, 2, 2], [3, 3, 3, 3], [1, 2, 1, 2], [5, 5, 5, 5]])
    flat, tight = repeated.flatten()[:9], N([4, 12, 3, 2])
    impossible = torch.zeros(12, 4, 6).index_fill(2, N([1]), float("-inf"))
    return [
        c("mean", by_tensors(blank=5), x, y, long, labels),
        c("sum", by_tensors(reduction="sum"), x, repeated, long, labels),
        c("none", by_tensors(reduction="none"), "f64 12x4x6", repeated, long, labels, more=[["f64 12x4x6", repeated, N([0, 0, 12, 1]), N([0, 1, 4, 1])]]),
        c("behind", by_tensors(reduction="none"), x, flat, long, labels),
        c("too_short", by_tensors(reduction="none"), x, repeated, tight, N([4, 4, 3, 4])),
        c("zero_infinity", by_tensors(zero_infinity=True), x, repeated, tight, N([4, 4, 3, 4])),
        c("int32", by_tensors(), x, repeated.int(), long.int(), labels.int()),
        c("lists", by_lists(*ENDS, reduction=0), x, repeated), c("lists_behind", by_lists(*ENDS, reduction=2, blank=4), x, N([1, 1, 2, 2, 3, 5, 0, 5, 5])),
        c("no_labels", by_lists((9, 12, 7, 0), (0, 0, 0, 0), reduction=0), x, "i64 4x0 <5"),
        c("one", lambda x, y: A.ctc_loss.IntList(x.log_softmax(-1), y, [9], [3], 0, 0), "f32 12x6", N([2, 2, 3])),
        c("sizes", by_tensors(reduction="none"), x, repeated, long, labels, dynamic=({0: STEPS, 1: B}, {0: B}, {0: B}, {0: B}),
          more=[["f32 5x3x6", repeated[:3], N([5, 4, 3]), N([2, 0, 3])], ["f32 1x1x6", repeated[:1], N([1]), N([1])]]),
        c("whole", whole(blank=0), x, repeated, long, labels), c("whole_f64", whole(), "f64 12x4x6", repeated, long, N([4, 0, 3, 2])),
        c("whole_of_lists", whole(True, blank=5), x, N([[1, 1, 2, 2], [0, 0, 0, 0], [3, 3, 1, 0], [4, 4, 0, 0]]), long, labels),
        c("whole_too_short", whole(), x, repeated, tight, N([4, 4, 3, 4])), c("whole_zero_infinity", whole(zero_infinity=True), x, repeated, tight, N([4, 4, 3, 4])),
        Case("whole_impossible", whole(), lambda: [impossible.clone(), repeated, long, labels], exact=False),
        c("whole_sizes", whole(), x, repeated, long, labels, dynamic=({0: STEPS, 1: B}, {0: B}, {0: B}, {0: B}),
          more=[["f32 7x3x6", repeated[:3], N([7, 4, 3]), N([4, 0, 3])]]),
    ]


def groups():
    return {"ctc": ctc()}
