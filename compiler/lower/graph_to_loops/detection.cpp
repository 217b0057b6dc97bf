// What detectors ask of the library torchvision: pixels of boxes, the boxes that are kept, convolutions at offsets.
//
// Boxes are rows (image, x1, y1, x2, y2) of pixels times a scale. A box is cut into rows x columns bins, and each of a bin's values is a mean over points
// between pixels (…align), or the maximum or mean of pixels (…pool). What is done where, to the rounding of half a pixel, is what torchvision's own kernels do
// (torchvision/csrc/ops/cpu).
#include "lower/graph_to_loops/data_sizes.h"
#include "lower/graph_to_loops/op_call.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

namespace {

using loops::ReduceKind;

/// More points or pixels than a bin can have: how many it has is data.
const Expr kMostOfBin = int64_t{1} << 40;

/// The pixel of an image at a row and column that are whole and inside.
Val pixel(BodyBuilder &b, const Tensor &x, Expr image, Expr channel, Val row, Val column) {
  auto at = [&](Val v, int64_t dim) { return b.indirect(b.cast(v, DType::I64), x.size(dim), false, false); };
  return x.at(b, {image, channel, at(row, 2), at(column, 3)});
}

struct Boxes {
  Tensor x, boxes; // [N, C, H, W], [K, 5]
  double scale;
  Expr bins[2]; // rows, columns of each box
  DType c;      // computed in

  explicit Boxes(OpCall &o)
      : x(source(o.t("input"))), boxes(o.t("rois").reused()), scale(o.number("spatial_scale")), bins{o.expr("pooled_height"), o.expr("pooled_width")},
        c(computeType(x.dtype())) {}

  Sizes sizes(Expr channels) const { return {boxes.size(0), channels, bins[0], bins[1]}; }
  Expr image(BodyBuilder &b, Expr box) const { return b.indirect(b.cast(boxes.at(b, {box, 0}), DType::I64), x.size(0), false, true); }
  /// Where the box begins and ends along dimension 0, y, or 1, x.
  Val begin(BodyBuilder &b, Expr box, int64_t dim) const { return b.cast(boxes.at(b, {box, 2 - dim}), c) * scale; }
  Val end(BodyBuilder &b, Expr box, int64_t dim) const { return b.cast(boxes.at(b, {box, 4 - dim}), c) * scale; }
  Val binsOf(BodyBuilder &b, size_t dim) const { return b.index(bins[dim], c); }
  /// Of the maps that have channels of their own for each bin, the channel of output element i.
  Expr ownChannel(const Index &i) const { return (i[1] * bins[0] + i[2]) * bins[1] + i[3]; }
  /// That, as the operators return it.
  Tensor ownChannels(const Sizes &sizes) const {
    return Tensor::lazy(x.ctx(), DType::I32, sizes, [self = *this](BodyBuilder &b, const Index &i) { return b.index(self.ownChannel(i), DType::I32); });
  }
  Expr channelsByBin() const { return floorDiv(x.size(1), bins[0] * bins[1]); }
};

// ---- means over points between pixels

struct Points {
  Boxes of;
  int64_t each; // a bin has each x each; 0: about one a pixel
  double shift; // of the box
  bool atLeastOne; // pixel is a box high and wide
  bool ownChannel;

  /// Along one dimension: where a bin's first point's cell begins, what a bin measures, in how many cells it is cut.
  struct Bin {
    Val begin, size, count;
  };
  Bin bin(BodyBuilder &b, const Index &i, int64_t dim) const {
    const Val begin = of.begin(b, i[0], dim) - shift, whole = of.end(b, i[0], dim) - shift - begin;
    const size_t d = static_cast<size_t>(dim);
    const Val size = (atLeastOne ? vmax(whole, num(whole, 1)) : whole) / of.binsOf(b, d);
    const Val count = each > 0 ? num(size, static_cast<double>(each)) : un(OpKind::Ceil, size);
    return {begin + b.index(i[2 + d], of.c) * size, size, count};
  }
  Val point(BodyBuilder &b, const Index &i, const Bin (&bins)[2], Val row, Val column) const;
  Tensor mean(const Sizes &sizes) const;
};

/// Between four pixels; 0 from one pixel outside of the image on.
Val Points::point(BodyBuilder &b, const Index &i, const Bin (&bins)[2], Val row, Val column) const {
  const Val number[2] = {row, column};
  Val low[2], high[2], part[2], ok = b.compare(OpKind::Gt, of.x.numel(), 0);
  for (size_t d = 0; d < 2; ++d) {
    const Val at = bins[d].begin + (number[d] + 0.5) * bins[d].size / bins[d].count, n = b.index(of.x.sizes()[2 + d], of.c), last = n - 1.0;
    ok = ok && at >= -1.0 && at <= n;
    const Val inside = vmax(at, num(at, 0));
    low[d] = vmin(un(OpKind::Floor, inside), last);
    high[d] = vmin(low[d] + 1.0, last);
    part[d] = where(low[d] < last, inside - low[d], 0.0);
  }
  const Expr image = of.image(b, i[0]), channel = ownChannel ? of.ownChannel(i) : i[1];
  return b.masked(
      ok,
      [&] {
        auto between = [&](Val y) {
          return b.cast(pixel(b, of.x, image, channel, y, low[1]), of.c) * (1.0 - part[1]) + b.cast(pixel(b, of.x, image, channel, y, high[1]), of.c) * part[1];
        };
        return between(low[0]) * (1.0 - part[0]) + between(high[0]) * part[0];
      },
      b.constant(of.c, 0));
}

Tensor Points::mean(const Sizes &sizes) const {
  Lowering &ctx = of.x.ctx();
  const Points self = *this;
  auto cells = [self](BodyBuilder &b, const Index &i, Bin (&bins)[2]) {
    for (int64_t d = 0; d < 2; ++d) bins[d] = self.bin(b, i, d);
    auto some = [&](const Bin &bin) { return b.cast(vmax(bin.count, num(bin.count, 0)), DType::I64); };
    return some(bins[0]) * some(bins[1]);
  };
  Tensor total;
  if (each > 0)
    total = ctx.reduce(ReduceKind::Sum, of.c, sizes, {each, each}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      const Bin bins[2] = {self.bin(b, i, 0), self.bin(b, i, 1)};
      return self.point(b, i, bins, b.index(r[0], self.of.c), b.index(r[1], self.of.c));
    })[0];
  else
    total = ctx.segments(
        ReduceKind::Sum, of.c, sizes, kMostOfBin,
        [=](BodyBuilder &b, const Index &i) {
          Bin bins[2];
          return std::pair(b.constantInt(DType::I64, 0), cells(b, i, bins));
        },
        [=](BodyBuilder &b, const Index &i, const Index &r) {
          const Bin bins[2] = {self.bin(b, i, 0), self.bin(b, i, 1)};
          const Val across = vmax(b.cast(bins[1].count, DType::I64), b.constantInt(DType::I64, 1)), n = b.index(r[0]);
          const Val row = lower::bin(OpKind::FloorDiv, n, across);
          return self.point(b, i, bins, b.cast(row, self.of.c), b.cast(n - row * across, self.of.c));
        });
  return Tensor::lazy(ctx, of.x.dtype(), sizes, [=](BodyBuilder &b, const Index &i) {
    Bin bins[2];
    const Val count = b.cast(cells(b, i, bins), self.of.c);
    // Of a bin without points ps_roi_align makes 0 / 0.
    return total.at(b, i) / (self.ownChannel ? count : vmax(count, num(count, 1)));
  });
}

Tensors roiAlign(OpCall &o) {
  const Boxes boxes(o);
  const bool aligned = o.flag("aligned");
  const Points points{boxes, o.integer("sampling_ratio"), aligned ? 0.5 : 0.0, !aligned, false};
  return {points.mean(boxes.sizes(boxes.x.size(1)))};
}

Tensors psRoiAlign(OpCall &o) {
  const Boxes boxes(o);
  const Sizes sizes = boxes.sizes(boxes.channelsByBin());
  return {Points{boxes, o.integer("sampling_ratio"), 0.5, false, true}.mean(sizes), boxes.ownChannels(sizes)};
}

// ---- pixels of a bin

/// The nearest whole number; a half goes away from 0, as in C.
Val nearest(Val v) {
  const Val whole = un(OpKind::Trunc, v), rest = un(OpKind::Abs, v - whole);
  return where(rest >= 0.5, whole + bin(OpKind::CopySign, num(v, 1), v), whole);
}

/// The pixels of output element i: those from `first` on, `count` of them along each dimension, whole numbers that may be 0.
struct Pixels {
  Val first[2], count[2];
  Val number(BodyBuilder &b) const { return b.cast(count[0], DType::I64) * b.cast(count[1], DType::I64); }
};

/// The end of a box is a pixel of it for roi_pool, `closed`, and none for ps_roi_pool.
Pixels pixelsOf(const Boxes &boxes, BodyBuilder &b, const Index &i, bool closed) {
  Pixels p;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t dim = static_cast<int64_t>(d);
    const Val begin = nearest(boxes.begin(b, i[0], dim)), whole = nearest(boxes.end(b, i[0], dim)) - begin + (closed ? 1.0 : 0.0);
    const Val size = vmax(whole, num(whole, 1)) / boxes.binsOf(b, d), at = b.index(i[2 + d], boxes.c);
    const Val most = b.index(closed ? boxes.x.sizes()[2 + d] : boxes.x.sizes()[2 + d] - 1, boxes.c);
    auto inside = [&](Val v) { return vmin(vmax(v, num(v, 0)), most); };
    p.first[d] = inside(un(OpKind::Floor, at * size) + begin);
    const Val end = inside(un(OpKind::Ceil, (at + 1.0) * size) + begin);
    p.count[d] = vmax(end - p.first[d], num(end, 0));
  }
  return p;
}

/// fn of each pixel and its position in the image, folded over a bin's pixels.
Tensor fold(const Boxes &boxes, const Sizes &sizes, ReduceKind kind, DType acc, bool closed,
            const std::function<Val(BodyBuilder &, const Index &, Val pixel, Val position)> &fn) {
  return boxes.x.ctx().segments(
      kind, acc, sizes, kMostOfBin,
      [=](BodyBuilder &b, const Index &i) { return std::pair(b.constantInt(DType::I64, 0), pixelsOf(boxes, b, i, closed).number(b)); },
      [=](BodyBuilder &b, const Index &i, const Index &r) {
        const Pixels p = pixelsOf(boxes, b, i, closed);
        auto whole = [&](Val v) { return b.cast(v, DType::I64); };
        const Val n = b.index(r[0]), across = vmax(whole(p.count[1]), b.constantInt(DType::I64, 1)), down = bin(OpKind::FloorDiv, n, across);
        const Val row = whole(p.first[0]) + down, column = whole(p.first[1]) + (n - down * across);
        const Val v = pixel(b, boxes.x, boxes.image(b, i[0]), closed ? i[1] : boxes.ownChannel(i), row, column);
        return fn(b, i, b.cast(v, acc == DType::I64 ? boxes.c : acc), row * b.index(boxes.x.size(3)) + column);
      });
}

/// The greatest pixel of each bin, 0 where there is none, and which it is, -1 where there is none. A pixel that is no number is not greater.
Tensors roiPool(OpCall &o) {
  const Boxes boxes(o);
  const Sizes sizes = boxes.sizes(boxes.x.size(1));
  const double least = leastOf(boxes.x.dtype());
  auto number = [least](Val v) { return where(v > least, v, least); };
  const Tensor most = fold(boxes, sizes, ReduceKind::Max, boxes.c, true, [=](BodyBuilder &, const Index &, Val v, Val) { return number(v); });
  const int64_t none = INT64_MAX;
  const Tensor which = fold(boxes, sizes, ReduceKind::Min, DType::I64, true, [=](BodyBuilder &b, const Index &i, Val v, Val position) {
    const Val best = most.at(b, i);
    return where(v > least && eq(v, best), position, b.constantInt(DType::I64, none));
  });
  const Tensor value = Tensor::lazy(o.ctx, boxes.x.dtype(), sizes, [=](BodyBuilder &b, const Index &i) {
    const Val some = ne(pixelsOf(boxes, b, i, true).number(b), 0.0);
    return where(some, most.at(b, i), 0.0);
  });
  const Tensor at = Tensor::lazy(o.ctx, DType::I32, sizes, [=](BodyBuilder &b, const Index &i) {
    const Val v = which.at(b, i), isNone = eq(v, b.constantInt(DType::I64, none));
    return b.cast(where(isNone, b.constantInt(DType::I64, -1), v), DType::I32);
  });
  return {value, at};
}

/// The mean of each bin's pixels in the channel that is the bin's own.
Tensors psRoiPool(OpCall &o) {
  const Boxes boxes(o);
  const Sizes sizes = boxes.sizes(boxes.channelsByBin());
  const Tensor total = fold(boxes, sizes, ReduceKind::Sum, boxes.c, false, [](BodyBuilder &, const Index &, Val v, Val) { return v; });
  return {Tensor::lazy(o.ctx, boxes.x.dtype(), sizes,
                       [=](BodyBuilder &b, const Index &i) {
                         const Val count = b.cast(pixelsOf(boxes, b, i, false).number(b), boxes.c);
                         return where(count > 0.0, total.at(b, i) / vmax(count, num(count, 1)), 0.0);
                       }),
          boxes.ownChannels(sizes)};
}

// ---- the boxes that are kept

/// Positions of the boxes that no better one covers by more than the threshold, best first. Which are kept is the one solution of
/// kept[j] = no i < j: kept[i] and i covers j; each turn settles at least one box more, from the best on.
Tensors nonMaximumSuppression(OpCall &o) {
  Lowering &ctx = o.ctx;
  const Tensor boxes0 = o.t("dets"), scores = o.t("scores");
  const Expr n = boxes0.size(0), count = o.out().sizes[0];
  const double threshold = o.number("iou_threshold");
  const DType c = computeType(boxes0.dtype());
  const Tensor order = ctx.sort(scores, 0, true).second;
  const Tensor boxes = indexSelect(cast(boxes0, c), 0, order).realize();
  auto covers = [=](BodyBuilder &b, Expr i, Expr j) {
    auto side = [&](Expr box, int64_t k) { return boxes.at(b, {box, k}); };
    auto area = [&](Expr box) { return (side(box, 2) - side(box, 0)) * (side(box, 3) - side(box, 1)); };
    auto common = [&](int64_t k) {
      const Val length = vmin(side(i, k + 2), side(j, k + 2)) - vmax(side(i, k), side(j, k));
      return vmax(length, num(length, 0));
    };
    const Val both = common(0) * common(1);
    return both / (area(i) + area(j) - both) > threshold;
  };
  const Tensor kept = carry(full(ctx, {n}, DType::Bool, 1)), changed = carry(full(ctx, {}, DType::Bool, 1));
  whileTrue(
      ctx, [&] { return changed; },
      [&] {
        const Tensor covered = ctx.reduce(ReduceKind::Any, DType::Bool, {n}, {n}, [=](BodyBuilder &b, const Index &j, const Index &i) {
          return b.compare(OpKind::Lt, i[0], j[0]) && kept.at(b, i) && covers(b, i[0], j[0]);
        })[0];
        const Tensor now = logicalNot(covered).realize();
        put(reduceDims(ReduceKind::Any, binary(OpKind::Ne, now, kept), {}, false, DType::Bool).realize(), changed);
        put(now, kept);
      });
  return {indexSelect(order, 0, positionsOf(kept, count))};
}

// ---- convolutions at offsets

/// Between four pixels, of which those outside of the image are 0.
Val between(BodyBuilder &b, const Tensor &x, DType c, Expr image, Expr channel, const Val (&at)[2]) {
  Val total;
  for (int corner = 0; corner < 4; ++corner) {
    Val ok = b.isTrue(), weight, place[2];
    for (size_t d = 0; d < 2; ++d) {
      const Val low = un(OpKind::Floor, at[d]), part = at[d] - low;
      const bool high = corner >> (1 - d) & 1;
      place[d] = high ? low + 1.0 : low;
      ok = ok && place[d] >= 0.0 && place[d] < b.index(x.sizes()[2 + d], c);
      weight = d == 0 ? (high ? part : 1.0 - part) : weight * (high ? part : 1.0 - part);
    }
    const Val v = b.masked(ok, [&] { return b.cast(pixel(b, x, image, channel, place[0], place[1]), c); }, b.constant(c, 0)) * weight;
    total = corner == 0 ? v : total + v;
  }
  return total;
}

/// The product of the weights with the pixels that each of their taps finds at its own offset (Dai et al., Deformable Convolutional Networks, 2017; with
/// masks Zhu et al., 2019).
Tensors deformableConvolution(OpCall &o) {
  const Tensor x = source(o.t("input")), w = o.t("weight"), offset = o.t("offset").reused(), mask = o.t("mask");
  const bool masked = o.flag("use_mask");
  const DType c = computeType(x.dtype());
  const Sizes out = o.out().sizes;
  const Expr groups = o.expr("groups"), offsetGroups = o.expr("offset_groups"), channels = w.size(1), high = w.size(2), wide = w.size(3);
  // A size of the run may make it 0, and the weights are divided by it.
  if (!groups.isConst()) return o.fail("the number of groups of its weights must be constant");
  const Expr stride[2] = {o.expr("stride_h"), o.expr("stride_w")}, pad[2] = {o.expr("pad_h"), o.expr("pad_w")},
             dilation[2] = {o.expr("dilation_h"), o.expr("dilation_w")};
  const Sizes taps{x.size(0), groups, channels, high, wide, out[2], out[3]};
  const Tensor found = Tensor::lazy(o.ctx, x.dtype(), taps, [=](BodyBuilder &b, const Index &i) {
    const Expr channel = i[1] * channels + i[2], tap = floorDiv(channel * offsetGroups, x.size(1)) * high * wide + i[3] * wide + i[4];
    Val at[2];
    for (size_t d = 0; d < 2; ++d)
      at[d] = b.index(i[5 + d] * stride[d] - pad[d] + i[3 + d] * dilation[d], c) +
              b.cast(offset.at(b, {i[0], tap * 2 + static_cast<int64_t>(d), i[5], i[6]}), c);
    const Val v = between(b, x, c, i[0], channel, at);
    return masked ? v * b.cast(mask.at(b, {i[0], tap, i[5], i[6]}), c) : v;
  });
  const Expr length = channels * high * wide;
  const Tensor columns = reshape(found, {x.size(0), groups, length, out[2] * out[3]});
  const Expr each = floorDiv(w.size(0), groups);
  const Tensor weights = broadcastTo(reshape(w, {Expr(1), groups, each, length}), {x.size(0), groups, each, length});
  const Tensor y = reshape(matmul2(weights, columns, x.dtype()), out);
  return {cast(add(y, reshape(o.t("bias"), {Expr(1), out[1], Expr(1), Expr(1)})), x.dtype())};
}

} // namespace

void addDetection(OpTable &t) {
  auto add = [&](const std::string &name, LowerFn fn) { t.add("torch::torchvision." + name + ".default", fn); };
  add("roi_align", roiAlign);
  add("ps_roi_align", psRoiAlign);
  add("roi_pool", roiPool);
  add("ps_roi_pool", psRoiPool);
  add("nms", nonMaximumSuppression);
  add("deform_conv2d", deformableConvolution);
}

} // namespace neso::lower
