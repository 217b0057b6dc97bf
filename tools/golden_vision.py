"""What detectors ask of torchvision: pixels of boxes, the boxes that are kept, convolutions at offsets."""
import torch
import torch.nn.functional as F
import torchvision  # noqa: F401: registers its operators

from golden_ops import c

vision = torch.ops.torchvision


def boxes(*rows):
    return torch.tensor(rows, dtype=torch.float32)


# (image, x1, y1, x2, y2): inside, over the edges, without an area, outside of the image, turned round.
SOME = boxes((0, 1.3, 0.7, 6.2, 4.9), (1, -3.0, -2.0, 3.5, 2.5), (1, 4.0, 3.0, 11.0, 9.0), (0, 2.5, 2.5, 2.5, 2.5), (0, 20.0, 20.0, 25.0, 23.0), (1, 5.0, 4.0, 2.0, 1.5))
BATCH = torch.export.Dim("boxes", min=1, max=64)


def align(points, aligned, scale=1.0):
    return lambda x, r: vision.roi_align(x, r, scale, 2, 3, points, aligned)


def pixels(x, r):
    return vision.roi_pool(x, r, 0.5, 2, 2) + vision.roi_pool(x, r, 1.0, 3, 2)


def own_channels(x, r):
    return vision.ps_roi_align(x, r, 1.0, 2, 2, 2) + vision.ps_roi_pool(x, r, 1.0, 2, 2) + vision.ps_roi_align(x, r, 0.3, 2, 2, -1)


def deformable(stride, pad, dilation, groups, offset_groups, use_mask):
    def run(x, w, offset, mask, bias):
        return vision.deform_conv2d(x, w, offset * 1.7, mask, bias, *stride, *pad, *dilation, groups, offset_groups, use_mask)
    return run


def kept(threshold):
    """Boxes that overlap much, some of them equally good."""
    def run(corners, sides, scores):
        rows = torch.cat([corners, corners + sides], 1)
        at = vision.nms(rows, scores, threshold)
        return at, rows[at], scores[at]
    return run


def box_groups():
    image = "f32 2x3x6x8"
    return [
        c("align", align(2, False), image, SOME), c("align_aligned", align(3, True, 0.5), image, SOME), c("align_by_size", align(-1, False, 0.4), image, SOME[:3]),
        c("align_by_size_aligned", align(0, True, 0.4), image, SOME), c("align_f64", align(2, True), "f64 2x3x6x8", SOME.double()),
        c("align_dynamic", align(2, True), image, SOME, dynamic=(None, {0: BATCH}), more=[(image, SOME[:2])]),
        c("pixels", pixels, image, SOME), c("pixels_of_equals", lambda x, r: pixels(x.round(), r), image, SOME), c("own_channels", own_channels, "f32 2x8x6x8", SOME),
    ]


def deformed():
    x, w, b = "f32 2x4x6x7", "f32 6x4x3x3", "f32 6"
    return [
        c("plain", deformable((1, 1), (1, 1), (1, 1), 1, 1, False), x, w, "f32 2x18x6x7", "f32 2x1", b),
        c("masked", deformable((1, 1), (1, 1), (1, 1), 1, 1, True), x, w, "f32 2x18x6x7", "f32 2x9x6x7 >0", b),
        c("strided", deformable((2, 1), (0, 2), (1, 2), 1, 2, True), x, w, "f32 2x36x2x7", "f32 2x18x2x7 >0", b),
        c("in_groups", deformable((1, 1), (1, 1), (1, 1), 2, 2, True), x, "f32 6x2x3x3", "f32 2x36x6x7", "f32 2x18x6x7 >0", b),
    ]


def box_gradients():
    """Gradients of images through boxes."""
    n, channels, high, wide = 2, 3, 6, 8
    image = (n, channels, high, wide)

    def aligned(points, half, scale=1.0):
        return lambda dy, r: vision._roi_align_backward(dy, r, scale, 2, 3, *image, points, half)

    def greatest(x, r, dy):
        found, which = vision.roi_pool(x, r, 0.5, 2, 3)
        return found, vision._roi_pool_backward(dy, r, which, 0.5, 2, 3, *image)

    def own(x, r, dy):
        found, of = vision.ps_roi_pool(x, r, 1.0, 2, 2)
        each, points = vision.ps_roi_align(x, r, 1.0, 2, 2, 2)
        _, counted = vision.ps_roi_align(x, r, 0.3, 2, 2, -1)
        return (found, each, vision._ps_roi_pool_backward(dy, r, of, 1.0, 2, 2, n, 8, high, wide), vision._ps_roi_align_backward(dy, r, points, 1.0, 2, 2, 2, n, 8, high, wide),
                vision._ps_roi_align_backward(dy, r, counted, 0.3, 2, 2, -1, n, 8, high, wide))
    dy = "f32 6x3x2x3"
    return [
        c("align", aligned(2, False), dy, SOME), c("align_aligned", aligned(3, True, 0.5), dy, SOME), c("align_by_size", aligned(-1, False, 0.4), dy, SOME),
        c("align_by_size_aligned", aligned(0, True, 1.0), dy, SOME), c("align_f64", aligned(2, True), "f64 6x3x2x3", SOME.double()),
        c("align_dynamic", aligned(2, True), dy, SOME, dynamic=({0: BATCH}, {0: BATCH}), more=[("f32 2x3x2x3", SOME[:2])]),
        c("pixels", greatest, "f32 2x3x6x8", SOME, dy), c("own_channels", own, "f32 2x8x6x8", SOME[:2], "f32 2x2x2x2"),
    ]


def deformed_gradients():
    def backward(stride, pad, dilation, groups, offset_groups, use_mask):
        def run(dy, x, w, offset, mask, bias):
            found = vision._deform_conv2d_backward(dy, x, w, offset * 1.7, mask, bias, *stride, *pad, *dilation, groups, offset_groups, use_mask)
            return found if use_mask else (*found[:3], found[4])
        return run
    dy, x, w, b = "f32 2x6x6x7", "f32 2x4x6x7", "f32 6x4x3x3", "f32 6"
    return [
        c("plain", backward((1, 1), (1, 1), (1, 1), 1, 1, False), dy, x, w, "f32 2x18x6x7", "f32 2x1", b),
        c("masked", backward((1, 1), (1, 1), (1, 1), 1, 1, True), dy, x, w, "f32 2x18x6x7", "f32 2x9x6x7 >0", b),
        c("strided", backward((2, 1), (0, 2), (1, 2), 1, 2, True), "f32 2x6x2x7", x, w, "f32 2x36x2x7", "f32 2x18x2x7 >0", b),
        c("in_groups", backward((1, 1), (1, 1), (1, 1), 2, 2, True), dy, x, "f32 6x2x3x3", "f32 2x36x6x7", "f32 2x18x6x7 >0", b),
    ]


def kept_boxes():
    size = "f32 9x2 >0"
    return [
        c("some", kept(0.3), size, size, "f32 9"), c("most", kept(0.7), "f32 40x2 >0", "f32 40x2 >0", "f32 40"), c("ties", lambda a, b, s: kept(0.2)(a, b, s.round()), "f32 20x2 >0", "f32 20x2 >0", "f32 20"),
        c("dynamic", kept(0.3), size, size, "f32 9", dynamic=({0: BATCH}, {0: BATCH}, {0: BATCH}), more=[("f32 30x2 >0", "f32 30x2 >0", "f32 30")]),
    ]


def resized_bytes():
    """Images of bytes, which PyTorch's CPU kernels resample in whole numbers, rounding to bytes between columns and rows."""
    def every(*size, **more):
        return lambda x: (F.interpolate(x, size, mode="bilinear", **more), *(F.interpolate(x, size, mode=mode, antialias=True, **more) for mode in ("bilinear", "bicubic")))

    def cubic(*size, **more):
        return lambda x: F.interpolate(x, size, mode="bicubic", **more)
    floats = "torch decomposes it into floats, which it rounds once"
    return [
        c("cubic_smaller", cubic(6, 5), "u8 2x3x13x11 <256", raw_only=floats), c("cubic_larger", cubic(14, 9), "u8 1x6x5x7 <256", raw_only=floats),
        c("cubic_aligned", cubic(6, 13, align_corners=True), "u8 1x3x9x7 <256", raw_only=floats),
        c("smaller", every(6, 5), "u8 2x3x13x11 <256"), c("larger", every(14, 9), "u8 1x6x5x7 <256"), c("rows_alone", every(9, 8), "u8 1x1x20x8 <256"),
        c("aligned", every(6, 13, align_corners=True), "u8 1x3x9x7 <256"), c("to_one", every(1, 1), "u8 1x2x7x9 <256"),
        c("by_factor", lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=False), "u8 1x3x9x11 <256"),
        c("between", lambda x: F.interpolate((x.float() * 0.5).to(torch.uint8).flip(-1), (7, 5), mode="bilinear").float() / 255, "u8 2x3x9x11 <256"),
        c("any_size", lambda x: F.interpolate(x, (96, 128), mode="bilinear", antialias=True), "u8 1x1x130x110 <256", more=[["u8 1x1x4x300 <256"], ["u8 1x1x96x128 <256"]],
          dynamic=({2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},)),
    ]


def resized_by_decimals():
    """Sizes times decimal factors, of which Python computes the product in double precision and cuts it off: 0.7 * 90 is less than 63."""
    def every(factor, modes):
        return lambda x: tuple(F.interpolate(x, scale_factor=factor, mode=mode) for mode in modes)
    rows, columns = torch.export.Dim("rows", min=4, max=400), torch.export.Dim("columns", min=4, max=400)

    def case(name, factor, **more):
        return c(name, every(factor, **more), "f32 1x1x10x11", more=[["f32 1x1x90x5"], ["f32 1x1x5x100"], ["f32 1x1x50x45"]], dynamic=({2: rows, 3: columns},))
    return [case("smaller", 0.7, modes=("nearest", "area")), case("smoother", 0.7, modes=("bilinear",)), case("nearest_by_halves", 0.7, modes=("nearest-exact",)), case("larger", 1.4, modes=("nearest", "bilinear")), case("more_than_twice", 2.3, modes=("bilinear",)), case("apart", (0.57, 1.15), modes=("nearest", "bilinear")),
            c("computed_again", lambda x: F.interpolate(x, scale_factor=0.7, mode="bilinear", recompute_scale_factor=True), "f32 1x1x10x11", more=[["f32 1x1x90x30"]], dynamic=({2: rows, 3: columns},))]


def grid_gradients():
    """Gradients of grid_sample with respect to the image and to the grid: every interpolation and padding."""
    def backward(mode, padding, align, mask=(True, True), spatial=2):
        call = torch.ops.aten.grid_sampler_2d_backward if spatial == 2 else torch.ops.aten.grid_sampler_3d_backward
        return lambda dy, x, grid: tuple(g for g, wanted in zip(call(dy, x, grid * 1.3, mode, padding, align, list(mask)), mask) if wanted)
    flat, deep = ("f32 2x3x4x3", "f32 2x3x5x6", "f32 2x4x3x2"), ("f32 2x2x3x2x4", "f32 2x2x4x5x3", "f32 2x3x2x4x3")
    modes = ["linear", "nearest", "cubic"]
    found = [c(f"{modes[m]}_{['zeros', 'border', 'reflection'][p]}{'_aligned' * a}", backward(m, p, bool(a)), *flat) for m in range(3) for p in range(3) for a in range(2) if (m, a) != (1, 1)]
    found += [c(f"deep_{modes[m]}_{p}", backward(m, p, p == 1, spatial=3), *deep) for m in range(2) for p in range(3)]
    return found + [c("of_the_grid", backward(0, 0, False, (False, True)), *flat), c("of_f64", backward(2, 2, False), "f64 1x1x4x3", "f64 1x1x5x6", "f64 1x4x3x2")]


def grid_positions():
    """Where narrow numbers are looked up: ATen rounds positions to them, but for cubes between pixels of three dimensions."""
    def every(*ways):
        return lambda x, grid: tuple(torch.ops.aten.grid_sampler(x, grid * 1.3, mode, padding, align) for mode, padding, align in ways)
    ways = [(2, 0, True), (2, 1, False), (2, 2, True)]
    return [c(f"deep_cubic_{d}", every(*ways), f"{d} 2x3x5x5x6", f"{d} 2x5x4x3x3 u") for d in ("bf16", "f16")]


def bag_gradients():
    """Gradients of the weights of embedding bags and embeddings."""
    def bags(mode, by_frequency=False, padding=-1, scaled=False):
        def run(w, dy, scale):
            index, starts, each = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9, 4]), torch.tensor([0, 4, 4, 7]), scale if scaled else None
            _, bag_of, sizes, most = torch.ops.aten._embedding_bag(w, index, starts, by_frequency, mode, False, each, False, padding)
            return torch.ops.aten._embedding_bag_dense_backward(dy, index, torch.tensor([0, 0, 0, 0, 2, 2, 2, 3, 3]), sizes, most, 10, by_frequency, mode, each, padding)
        return run
    given = ("f32 10x3", "f32 4x3", "f32 9")
    return [
        c("greatest", bags(2), *given), c("greatest_padded", bags(2, padding=4), *given), c("sums", bags(0), *given), c("sums_scaled", bags(0, scaled=True, padding=2), *given), c("sums_by_frequency", bags(0, True), *given), c("means", bags(1, padding=4), *given),
        c("rows_by_frequency", lambda dy, index: torch.ops.aten.embedding_dense_backward(dy, index, 6, 2, True), "f32 3x4x2", "i64 3x4 <6"),
    ]


def groups():
    return {"resized_by_decimals": resized_by_decimals(), "grid_gradients": grid_gradients(), "grid_positions": grid_positions(), "bag_gradients": bag_gradients(), "boxes": box_groups(), "box_gradients": box_gradients(), "deformed": deformed(), "deformed_gradients": deformed_gradients(), "kept_boxes": kept_boxes(), "resized_bytes": resized_bytes()}
