"""Convolutions of 3 x 3 that may take fewer multiplications (`--option winograd=always` asks all of them to), and neighbours that may not."""
import torch

from golden_ops import B, c

F = torch.nn.functional


def residual(m, x):
    y = F.relu(F.conv2d(x, m.w, m.b, padding=1))
    return F.relu(F.conv2d(y, m.v, padding=1) + x)


def weight_changed(m, x):
    first = F.conv2d(x, m.w, padding=1)
    m.w.mul_(0.5)
    return first + F.conv2d(x, m.w, padding=1)


def branch(m, x):
    return torch.ops.higher_order.cond(x.sum() > 0, lambda x, w: F.conv2d(x, w, padding=1), lambda x, w: F.conv2d(x * 2, w, padding=1), (x, m.w))


def three_by_three():
    x, w = "f32 2x6x7x5", {"w": "f32 8x6x3x3"}
    square, wide = {"w": "f32 6x6x3x3", "v": "f32 6x6x3x3", "b": "f32 6"}, {"w": "f32 56x56x3x3", "b": "f32 56"}
    any_batch = {"dynamic": ({0: B},), "more": [["f32 1x6x7x5"], ["f32 0x6x7x5"], ["f32 9x6x7x5"]]}
    cases = [c(f"padding_{p}_{q}", lambda m, x, p=p, q=q: F.conv2d(x, m.w, padding=(p, q)), x, state=w) for p, q in ((0, 0), (1, 1), (0, 2), (3, 1))]
    return cases + [
        c("residual", residual, x, state=square), c("any_batch", lambda m, x: F.conv2d(x, m.w, padding=1), x, state=w, **any_batch),
        c("one_output", lambda m, x: F.conv2d(x, m.w), "f32 2x6x3x3", state=w), c("one_row", lambda m, x: F.conv2d(x, m.w), "f32 1x6x3x12", state=w),
        c("weight_shared", lambda m, x: F.conv2d(F.conv2d(x, m.w, m.b, padding=1), m.w, padding=1), x, state=square),
        c("weight_transposed", lambda m, x: F.conv2d(x, m.w.transpose(0, 1), padding=1), "f32 2x8x7x5", state=w), c("weight_computed", lambda m, x: F.conv2d(x, m.w.flip(-1) * 2, padding=1), x, state=w),
        c("weight_in_parts", lambda m, x: F.conv2d(x, m.w[2:, 1:], padding=1), "f32 2x5x7x5", state=w), c("weight_changed", weight_changed, x, state=w),
        c("channels_innermost", lambda m, x: F.conv2d(x.permute(0, 3, 1, 2), m.w, padding=1).permute(0, 2, 3, 1), "f32 2x7x5x6", state=w),
        c("input_computed", lambda m, x: F.conv2d(F.pad(x.exp(), (1, 0, 2, 0)), m.w), x, state=w), c("without_batch", lambda m, x: F.conv2d(x, m.w, padding=1), "f32 6x7x5", state=w),
        c("same", lambda m, x: F.conv2d(x, m.w, padding="same"), x, state=w), c("in_a_branch", branch, x, state=w),
        c("strided", lambda m, x: F.conv2d(x, m.w, stride=2, padding=1), x, state=w), c("dilated", lambda m, x: F.conv2d(x, m.w, padding=2, dilation=2), x, state=w),
        c("groups", lambda m, x: F.conv2d(x, m.w, padding=1, groups=2), "f32 2x12x7x5", state=w), c("turned_round", lambda m, x: F.conv_transpose2d(x, m.w, padding=1), "f32 2x8x7x5", state=w),
        c("f64", lambda m, x: F.conv2d(x, m.w, padding=1), "f64 2x6x7x5", state={"w": "f64 8x6x3x3"}),
        # Large enough to be so without being asked.
        c("many_channels", lambda m, x: F.relu(F.conv2d(x, m.w, m.b, padding=1)), "f32 1x56x10x11", state=wide),
    ]


def groups():
    return {"three_by_three": three_by_three()}
