// Gradients of the library torchvision's operators: of images through boxes, and of convolutions at offsets.
#include "lower/graph_to_loops/detection.h"

namespace neso::lower {

namespace {

using loops::ReduceKind;

/// The gradient of images, to which `corners` scatters over `ranges` have added.
Tensor scattered(Lowering &ctx, const Sizes &images, DType dtype, DType c, const Sizes &ranges, int corners,
                 const std::function<Lowering::ScatterItem(BodyBuilder &, const Index &, int)> &item) {
  const Strided w = ctx.allocate(c, images);
  ctx.store(full(ctx, images, c, 0), w);
  for (int k = 0; k < corners; ++k)
    ctx.scatter(ranges, [&](BodyBuilder &b, const Index &i) { return item(b, i, k); }, w, c, loops::StoreMode::AtomicAdd);
  return cast(Tensor::strided(ctx, c, images, w), dtype);
}

Expr within(BodyBuilder &b, Val v, Expr size) { return b.indirect(b.cast(v, DType::I64), size, false, false); }

Sizes imagesOf(OpCall &o) { return {o.expr("batch_size"), o.expr("channels"), o.expr("height"), o.expr("width")}; }

// ---- means over points between pixels

/// Each point gives its share of the gradient to the four pixels around it.
Tensor byPoints(const Points &points, const Tensor &dy) {
  const Boxes of = points.of;
  Sizes ranges = dy.sizes();
  ranges.insert(ranges.end(), {Expr(points.each), Expr(points.each)});
  return scattered(dy.ctx(), of.images, dy.dtype(), of.c, ranges, 4, [&](BodyBuilder &b, const Index &i, int k) {
    const Points::Sides y = points.sides(b, points.bin(b, i, 0), b.index(i[4], of.c), 0), x = points.sides(b, points.bin(b, i, 1), b.index(i[5], of.c), 1);
    const Val ok = y.ok && x.ok;
    Index at;
    const Val value = b.masked(
        ok,
        [&] {
          at = {of.image(b, i[0]), i[1], within(b, k & 2 ? y.high : y.low, of.images[2]), within(b, k & 1 ? x.high : x.low, of.images[3])};
          const Val share = b.cast(dy.at(b, {i[0], i[1], i[2], i[3]}), of.c) / static_cast<double>(points.each * points.each);
          return share * (k & 2 ? y.part : 1.0 - y.part) * (k & 1 ? x.part : 1.0 - x.part);
        },
        b.constant(of.c, 0));
    return Lowering::ScatterItem{at, value, ok};
  });
}

/// [K, bins, pixels]: the weight that a bin's points give to each row (dimension 0) or column (1) of pixels. That of a pixel is the product of both.
Tensor weightsOf(const Points &points, int64_t dim) {
  const size_t d = static_cast<size_t>(dim);
  const DType c = points.of.c;
  auto bin = [points, dim](BodyBuilder &b, const Index &i) { return points.bin(b, {i[0], 0, i[1], i[1]}, dim); };
  return points.of.ctx().segments(
      ReduceKind::Sum, c, {points.of.boxes.size(0), points.of.bins[d], points.of.images[2 + d]}, kMostOfBin,
      [=](BodyBuilder &b, const Index &i) {
        const Val count = bin(b, i).count;
        return std::pair(b.constantInt(DType::I64, 0), b.cast(vmax(count, num(count, 0)), DType::I64));
      },
      [=](BodyBuilder &b, const Index &i, const Index &r) {
        const Points::Sides at = points.sides(b, bin(b, i), b.index(r[0], c), dim);
        const Val pixel = b.index(i[2], c);
        const Val weight = where(eq(pixel, at.low), 1.0 - at.part, num(at.part, 0)) + where(eq(pixel, at.high), at.part, num(at.part, 0));
        return where(at.ok, weight, 0.0);
      });
}

/// The gradient of one bin's points, each.
Tensor shareOf(const Points &points, const Tensor &dy) {
  return Tensor::lazy(dy.ctx(), points.of.c, dy.sizes(), [=](BodyBuilder &b, const Index &i) {
    Points::Bin bins[2];
    const Val count = b.cast(points.points(b, i, bins), points.of.c);
    return b.cast(dy.at(b, i), points.of.c) / vmax(count, num(count, 1));
  });
}

/// How many points a bin has is data: each pixel asks all boxes.
Tensor byPixels(const Points &points, const Tensor &dy) {
  const Boxes of = points.of;
  const Tensor rows = weightsOf(points, 0), columns = weightsOf(points, 1), share = shareOf(points, dy);
  const Sizes sizes{dy.size(0), dy.size(1), of.bins[0], of.images[3]};
  const Tensor across = dy.ctx().reduce(ReduceKind::Sum, of.c, sizes, {of.bins[1]}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    return share.at(b, {i[0], i[1], i[2], r[0]}) * columns.at(b, {i[0], r[0], i[3]});
  })[0];
  return cast(dy.ctx().reduce(ReduceKind::Sum, of.c, of.images, {dy.size(0), of.bins[0]}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Val part = across.at(b, {r[0], i[1], r[1], i[3]}) * rows.at(b, {r[0], r[1], i[2]});
    return where(of.isOf(b, r[0], i[0]), part, 0.0);
  })[0], dy.dtype());
}

Tensors roiAlignGradient(OpCall &o) {
  const Tensor dy = o.t("grad").reused();
  const bool aligned = o.flag("aligned");
  const Points points{Boxes(o, imagesOf(o), dy.dtype()), o.integer("sampling_ratio"), aligned ? 0.5 : 0.0, !aligned};
  return {points.each > 0 ? byPoints(points, dy) : byPixels(points, dy)};
}

/// fn of the one bin that reads a channel, summed over the boxes of each image.
Tensor ofOwnChannels(const Boxes &of, DType dtype, const std::function<Val(BodyBuilder &, const Index &bin, const Index &pixel)> &fn) {
  return cast(of.ctx().reduce(ReduceKind::Sum, of.c, of.images, {of.boxes.size(0)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Expr bins = of.bins[0] * of.bins[1];
    const Index bin{r[0], floorDiv(i[1], bins), mod(floorDiv(i[1], of.bins[1]), of.bins[0]), mod(i[1], of.bins[1])};
    return where(of.isOf(b, r[0], i[0]), fn(b, bin, i), 0.0);
  })[0], dtype);
}

Tensors psRoiAlignGradient(OpCall &o) {
  const Tensor dy = o.t("grad").reused();
  const Points points{Boxes(o, imagesOf(o), dy.dtype()), o.integer("sampling_ratio"), 0.5, false};
  const Tensor rows = weightsOf(points, 0), columns = weightsOf(points, 1), share = shareOf(points, dy);
  return {ofOwnChannels(points.of, dy.dtype(), [=](BodyBuilder &b, const Index &bin, const Index &i) {
    return share.at(b, bin) * rows.at(b, {bin[0], bin[2], i[2]}) * columns.at(b, {bin[0], bin[3], i[3]});
  })};
}

// ---- pixels of a bin

/// The pixel that was the greatest gets the gradient.
Tensors roiPoolGradient(OpCall &o) {
  const Tensor dy = o.t("grad").reused(), which = o.t("argmax").reused();
  const Boxes of(o, imagesOf(o), dy.dtype());
  return {scattered(o.ctx, of.images, dy.dtype(), of.c, dy.sizes(), 1, [&](BodyBuilder &b, const Index &i, int) {
    const Val position = b.cast(which.at(b, i), DType::I64), ok = position >= 0.0;
    Index at;
    const Val value = b.masked(
        ok,
        [&] {
          const Val wide = b.index(of.images[3]), row = bin(OpKind::FloorDiv, position, wide);
          at = {of.image(b, i[0]), i[1], within(b, row, of.images[2]), within(b, position - row * wide, of.images[3])};
          return b.cast(dy.at(b, i), of.c);
        },
        b.constant(of.c, 0));
    return Lowering::ScatterItem{at, value, ok};
  })};
}

Tensors psRoiPoolGradient(OpCall &o) {
  const Tensor dy = o.t("grad").reused();
  const Boxes of(o, imagesOf(o), dy.dtype());
  return {ofOwnChannels(of, dy.dtype(), [=](BodyBuilder &b, const Index &bin, const Index &i) {
    const Pixels p = pixelsOf(of, b, bin, false);
    Val ok = b.isTrue();
    for (size_t d = 0; d < 2; ++d) {
      const Val at = b.index(i[2 + d], of.c);
      ok = ok && at >= p.first[d] && at < p.first[d] + p.count[d];
    }
    const Val count = b.cast(p.number(b), of.c);
    return where(ok, b.cast(dy.at(b, bin), of.c) / vmax(count, num(count, 1)), 0.0);
  })};
}

// ---- convolutions at offsets

/// [N, T, rows, columns] over the taps T of all groups of offsets: fn of what each of the group's channels finds there, summed.
Tensor overChannels(const Deformed &d, const std::function<Val(BodyBuilder &, const Index &)> &fn) {
  const Expr taps = d.high * d.wide, each = floorDiv(d.x.size(1), d.offsetGroups);
  const Sizes sizes{d.x.size(0), d.offsetGroups * taps, d.out[2], d.out[3]};
  return d.x.ctx().reduce(ReduceKind::Sum, d.c, sizes, {each}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Expr tap = mod(i[1], taps), channel = floorDiv(i[1], taps) * each + r[0];
    return fn(b, {i[0], floorDiv(channel, d.channels), mod(channel, d.channels), floorDiv(tap, d.wide), mod(tap, d.wide), i[2], i[3]});
  })[0];
}

Tensors deformedGradients(OpCall &o) {
  const Tensor dy = o.t("grad");
  const Deformed d(o, dy.sizes());
  if (!d.groups.isConst() || !d.offsetGroups.isConst()) return o.fail("the numbers of groups of its weights and offsets must be constant");
  const Expr n = d.x.size(0), places = d.out[2] * d.out[3];
  const Tensor byGroup = reshape(dy, {n, d.groups, d.each(), places}), weights = reshape(d.w, {d.groups, d.each(), d.length()});
  // The gradient of what the taps found.
  const Tensor turned = broadcastTo(unsqueeze(transpose(weights, 1, 2), 0), {n, d.groups, d.length(), d.each()});
  const Tensor found = reshape(matmul2(turned, byGroup, d.c), d.taps());
  const Tensor columns = reshape(d.found(), {n, d.groups, d.length(), places});
  const Tensor ofAll = reshape(permute(byGroup, {1, 2, 0, 3}), {d.groups, d.each(), n * places});
  const Tensor dw = reshape(matmul2(ofAll, reshape(permute(columns, {1, 0, 3, 2}), {d.groups, n * places, d.length()}), d.w.dtype()), d.w.sizes());
  auto change = [=](BodyBuilder &b, const Index &i) {
    const Val v = found.at(b, i);
    return d.masked ? v * d.maskAt(b, i) : v;
  };
  const Tensor dx = scattered(o.ctx, d.x.sizes(), d.x.dtype(), d.c, d.taps(), 4, [&](BodyBuilder &b, const Index &i, int k) {
    Val at[2];
    d.place(b, i, at);
    const Deformed::Corner corner = d.corner(b, at, k);
    Index place;
    const Val value = b.masked(
        corner.ok,
        [&] {
          place = {i[0], d.channel(i), within(b, corner.row, d.x.size(2)), within(b, corner.column, d.x.size(3))};
          return change(b, i) * corner.weight;
        },
        b.constant(d.c, 0));
    return Lowering::ScatterItem{place, value, corner.ok};
  });
  Tensors slopes;
  for (int dim = 0; dim < 2; ++dim)
    slopes.push_back(unsqueeze(overChannels(d, [=](BodyBuilder &b, const Index &i) {
      Val at[2];
      d.place(b, i, at);
      return change(b, i) * d.between(b, i[0], d.channel(i), at, dim);
    }), 2));
  const Tensor doffset = cast(reshape(concat(slopes, 2), d.offset.sizes()), d.offset.dtype());
  Tensor dmask = full(o.ctx, d.mask.sizes(), d.mask.dtype(), 0);
  if (d.masked)
    dmask = cast(overChannels(d, [=](BodyBuilder &b, const Index &i) {
      Val at[2];
      d.place(b, i, at);
      return found.at(b, i) * d.between(b, i[0], d.channel(i), at);
    }), d.mask.dtype());
  return {dx, dw, doffset, dmask, sum(dy, {0, 2, 3}, false, dy.dtype())};
}

} // namespace

void addDetectionGradients(OpTable &t) {
  auto add = [&](const std::string &name, LowerFn fn) { t.add("torch::torchvision._" + name + "_backward.default", fn); };
  add("roi_align", roiAlignGradient);
  add("ps_roi_align", psRoiAlignGradient);
  add("roi_pool", roiPoolGradient);
  add("ps_roi_pool", psRoiPoolGradient);
  add("deform_conv2d", deformedGradients);
}

} // namespace neso::lower
