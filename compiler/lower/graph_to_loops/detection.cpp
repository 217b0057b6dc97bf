// What detectors ask of the library torchvision: pixels of boxes, the boxes that are kept, convolutions at offsets.
#include "lower/graph_to_loops/detection.h"

#include "lower/graph_to_loops/data_sizes.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

using loops::ReduceKind;

Val pixel(BodyBuilder &b, const Tensor &x, Expr image, Expr channel, Val row, Val column) {
  auto at = [&](Val v, int64_t dim) { return b.indirect(b.cast(v, DType::I64), x.size(dim), false, false); };
  return x.at(b, {image, channel, at(row, 2), at(column, 3)});
}

Boxes::Boxes(OpCall &o, Sizes sizes, DType t)
    : boxes(o.t("rois").reused()), images(std::move(sizes)), dtype(t), c(computeType(t)), scale(o.number("spatial_scale")),
      bins{o.expr("pooled_height"), o.expr("pooled_width")} {}

// ---- means over points between pixels

Points::Bin Points::bin(BodyBuilder &b, const Index &i, int64_t dim) const {
  const Val begin = of.begin(b, i[0], dim) - shift, whole = of.end(b, i[0], dim) - shift - begin;
  const size_t d = static_cast<size_t>(dim);
  const Val size = (atLeastOne ? vmax(whole, num(whole, 1)) : whole) / of.binsOf(b, d);
  const Val count = each > 0 ? num(size, static_cast<double>(each)) : un(OpKind::Ceil, size);
  return {begin + b.index(i[2 + d], of.c) * size, size, count};
}

Val Points::points(BodyBuilder &b, const Index &i, Bin (&bins)[2]) const {
  for (int64_t d = 0; d < 2; ++d) bins[d] = bin(b, i, d);
  auto some = [&](const Bin &bin) { return b.cast(vmax(bin.count, num(bin.count, 0)), DType::I64); };
  return some(bins[0]) * some(bins[1]);
}

Points::Sides Points::sides(BodyBuilder &b, const Bin &bin, Val number, int64_t dim) const {
  const Val at = bin.begin + (number + 0.5) * bin.size / bin.count, n = b.index(of.images[2 + static_cast<size_t>(dim)], of.c), last = n - 1.0;
  const Val inside = vmax(at, num(at, 0)), low = vmin(un(OpKind::Floor, inside), last);
  return {low, vmin(low + 1.0, last), where(low < last, inside - low, 0.0), at >= -1.0 && at <= n};
}

namespace {

struct Align {
  Points points;
  Tensor x;
  bool ownChannel;

  Val point(BodyBuilder &b, const Index &i, const Points::Bin (&bins)[2], Val row, Val column) const;
  Tensor mean(const Sizes &sizes) const;
};

Val Align::point(BodyBuilder &b, const Index &i, const Points::Bin (&bins)[2], Val row, Val column) const {
  const Boxes &of = points.of;
  const Points::Sides y = points.sides(b, bins[0], row, 0), z = points.sides(b, bins[1], column, 1);
  const Val ok = b.compare(OpKind::Gt, x.numel(), 0) && y.ok && z.ok;
  const Expr image = of.image(b, i[0]), channel = ownChannel ? of.ownChannel(i) : i[1];
  return b.masked(
      ok,
      [&] {
        auto between = [&](Val at) {
          return b.cast(pixel(b, x, image, channel, at, z.low), of.c) * (1.0 - z.part) + b.cast(pixel(b, x, image, channel, at, z.high), of.c) * z.part;
        };
        return between(y.low) * (1.0 - y.part) + between(y.high) * y.part;
      },
      b.constant(of.c, 0));
}

Tensor Align::mean(const Sizes &sizes) const {
  Lowering &ctx = x.ctx();
  const Align self = *this;
  const int64_t each = points.each;
  const DType c = points.of.c;
  Tensor total;
  if (each > 0)
    total = ctx.reduce(ReduceKind::Sum, c, sizes, {each, each}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      const Points::Bin bins[2] = {self.points.bin(b, i, 0), self.points.bin(b, i, 1)};
      return self.point(b, i, bins, b.index(r[0], c), b.index(r[1], c));
    })[0];
  else
    total = ctx.segments(
        ReduceKind::Sum, c, sizes, kMostOfBin,
        [=](BodyBuilder &b, const Index &i) {
          Points::Bin bins[2];
          return std::pair(b.constantInt(DType::I64, 0), self.points.points(b, i, bins));
        },
        [=](BodyBuilder &b, const Index &i, const Index &r) {
          const Points::Bin bins[2] = {self.points.bin(b, i, 0), self.points.bin(b, i, 1)};
          const Val across = vmax(b.cast(bins[1].count, DType::I64), b.constantInt(DType::I64, 1)), n = b.index(r[0]);
          const Val row = bin(OpKind::FloorDiv, n, across);
          return self.point(b, i, bins, b.cast(row, c), b.cast(n - row * across, c));
        });
  return Tensor::lazy(ctx, x.dtype(), sizes, [=](BodyBuilder &b, const Index &i) {
    Points::Bin bins[2];
    const Val count = b.cast(self.points.points(b, i, bins), c);
    // Of a bin without points ps_roi_align makes 0 / 0.
    return total.at(b, i) / (self.ownChannel ? count : vmax(count, num(count, 1)));
  });
}

/// The channels that bins have of their own, as the operators return them.
Tensor ownChannels(const Boxes &boxes, const Sizes &sizes) {
  return Tensor::lazy(boxes.ctx(), DType::I32, sizes, [boxes](BodyBuilder &b, const Index &i) { return b.index(boxes.ownChannel(i), DType::I32); });
}

Tensors roiAlign(OpCall &o) {
  const Tensor x = source(o.t("input"));
  const Boxes boxes(o, x.sizes(), x.dtype());
  const bool aligned = o.flag("aligned");
  return {Align{{boxes, o.integer("sampling_ratio"), aligned ? 0.5 : 0.0, !aligned}, x, false}.mean(boxes.sizes(x.size(1)))};
}

Tensors psRoiAlign(OpCall &o) {
  const Tensor x = source(o.t("input"));
  const Boxes boxes(o, x.sizes(), x.dtype());
  const Sizes sizes = boxes.sizes(boxes.channelsByBin());
  return {Align{{boxes, o.integer("sampling_ratio"), 0.5, false}, x, true}.mean(sizes), ownChannels(boxes, sizes)};
}

// ---- pixels of a bin

/// The nearest whole number; a half goes away from 0, as in C.
Val nearest(Val v) {
  const Val whole = un(OpKind::Trunc, v), rest = un(OpKind::Abs, v - whole);
  return where(rest >= 0.5, whole + bin(OpKind::CopySign, num(v, 1), v), whole);
}

} // namespace

Pixels pixelsOf(const Boxes &boxes, BodyBuilder &b, const Index &i, bool closed) {
  Pixels p;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t dim = static_cast<int64_t>(d);
    const Val begin = nearest(boxes.begin(b, i[0], dim)), whole = nearest(boxes.end(b, i[0], dim)) - begin + (closed ? 1.0 : 0.0);
    const Val size = vmax(whole, num(whole, 1)) / boxes.binsOf(b, d), at = b.index(i[2 + d], boxes.c);
    const Val most = b.index(closed ? boxes.images[2 + d] : boxes.images[2 + d] - 1, boxes.c);
    auto inside = [&](Val v) { return vmin(vmax(v, num(v, 0)), most); };
    p.first[d] = inside(un(OpKind::Floor, at * size) + begin);
    const Val end = inside(un(OpKind::Ceil, (at + 1.0) * size) + begin);
    p.count[d] = vmax(end - p.first[d], num(end, 0));
  }
  return p;
}

namespace {

/// fn of each pixel and its position in the image, folded over a bin's pixels.
Tensor fold(const Boxes &boxes, const Tensor &x, const Sizes &sizes, ReduceKind kind, DType acc, bool closed,
            const std::function<Val(BodyBuilder &, const Index &, Val pixel, Val position)> &fn) {
  return x.ctx().segments(
      kind, acc, sizes, kMostOfBin,
      [=](BodyBuilder &b, const Index &i) { return std::pair(b.constantInt(DType::I64, 0), pixelsOf(boxes, b, i, closed).number(b)); },
      [=](BodyBuilder &b, const Index &i, const Index &r) {
        const Pixels p = pixelsOf(boxes, b, i, closed);
        auto whole = [&](Val v) { return b.cast(v, DType::I64); };
        const Val n = b.index(r[0]), across = vmax(whole(p.count[1]), b.constantInt(DType::I64, 1)), down = bin(OpKind::FloorDiv, n, across);
        const Val row = whole(p.first[0]) + down, column = whole(p.first[1]) + (n - down * across);
        const Val v = pixel(b, x, boxes.image(b, i[0]), closed ? i[1] : boxes.ownChannel(i), row, column);
        return fn(b, i, b.cast(v, acc == DType::I64 ? boxes.c : acc), row * b.index(x.size(3)) + column);
      });
}

/// The greatest pixel of each bin, 0 where there is none, and which it is, -1 where there is none. A pixel that is no number is not greater.
Tensors roiPool(OpCall &o) {
  const Tensor x = source(o.t("input"));
  const Boxes boxes(o, x.sizes(), x.dtype());
  const Sizes sizes = boxes.sizes(x.size(1));
  const double least = leastOf(x.dtype());
  auto number = [least](Val v) { return where(v > least, v, least); };
  const Tensor most = fold(boxes, x, sizes, ReduceKind::Max, boxes.c, true, [=](BodyBuilder &, const Index &, Val v, Val) { return number(v); });
  const int64_t none = INT64_MAX;
  const Tensor which = fold(boxes, x, sizes, ReduceKind::Min, DType::I64, true, [=](BodyBuilder &b, const Index &i, Val v, Val position) {
    const Val best = most.at(b, i);
    return where(v > least && eq(v, best), position, b.constantInt(DType::I64, none));
  });
  const Tensor value = Tensor::lazy(o.ctx, x.dtype(), sizes, [=](BodyBuilder &b, const Index &i) {
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
  const Tensor x = source(o.t("input"));
  const Boxes boxes(o, x.sizes(), x.dtype());
  const Sizes sizes = boxes.sizes(boxes.channelsByBin());
  const Tensor total = fold(boxes, x, sizes, ReduceKind::Sum, boxes.c, false, [](BodyBuilder &, const Index &, Val v, Val) { return v; });
  return {Tensor::lazy(o.ctx, x.dtype(), sizes,
                       [=](BodyBuilder &b, const Index &i) {
                         const Val count = b.cast(pixelsOf(boxes, b, i, false).number(b), boxes.c);
                         return where(count > 0.0, total.at(b, i) / vmax(count, num(count, 1)), 0.0);
                       }),
          ownChannels(boxes, sizes)};
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

} // namespace

// ---- convolutions at offsets

Deformed::Deformed(OpCall &o, Sizes sizes)
    : x(source(o.t("input"))), w(o.t("weight")), offset(o.t("offset").reused()), mask(o.t("mask")), masked(o.flag("use_mask")), c(computeType(x.dtype())),
      out(std::move(sizes)), groups(o.expr("groups")), offsetGroups(o.expr("offset_groups")), channels(w.size(1)), high(w.size(2)), wide(w.size(3)),
      stride{o.expr("stride_h"), o.expr("stride_w")}, pad{o.expr("pad_h"), o.expr("pad_w")}, dilation{o.expr("dilation_h"), o.expr("dilation_w")} {}

void Deformed::place(BodyBuilder &b, const Index &i, Val (&at)[2]) const {
  for (size_t d = 0; d < 2; ++d)
    at[d] = b.index(i[5 + d] * stride[d] - pad[d] + i[3 + d] * dilation[d], c) +
            b.cast(offset.at(b, {i[0], tap(i) * 2 + static_cast<int64_t>(d), i[5], i[6]}), c);
}

Deformed::Corner Deformed::corner(BodyBuilder &b, const Val (&at)[2], int number, int along) const {
  Corner found{{}, {}, {}, b.isTrue()};
  for (size_t d = 0; d < 2; ++d) {
    const Val low = un(OpKind::Floor, at[d]), part = at[d] - low;
    const bool isHigh = number >> (1 - d) & 1, slope = along == static_cast<int>(d);
    const Val place = isHigh ? low + 1.0 : low, weight = slope ? num(part, isHigh ? 1 : -1) : isHigh ? part : 1.0 - part;
    (d == 0 ? found.row : found.column) = place;
    found.ok = found.ok && place >= 0.0 && place < b.index(x.sizes()[2 + d], c);
    found.weight = d == 0 ? weight : found.weight * weight;
  }
  return found;
}

Val Deformed::between(BodyBuilder &b, Expr image, Expr channel, const Val (&at)[2], int along) const {
  Val total;
  for (int number = 0; number < 4; ++number) {
    const Corner k = corner(b, at, number, along);
    const Val v = b.masked(k.ok, [&] { return b.cast(pixel(b, x, image, channel, k.row, k.column), c); }, b.constant(c, 0)) * k.weight;
    total = number == 0 ? v : total + v;
  }
  return total;
}

Tensor Deformed::found() const {
  return Tensor::lazy(x.ctx(), x.dtype(), taps(), [self = *this](BodyBuilder &b, const Index &i) {
    Val at[2];
    self.place(b, i, at);
    const Val v = self.between(b, i[0], self.channel(i), at);
    return self.masked ? v * self.maskAt(b, i) : v;
  });
}

namespace {

/// The product of the weights with the pixels that the taps find.
Tensors deformableConvolution(OpCall &o) {
  const Deformed d(o, o.out().sizes);
  // A size of the run may make it 0, and the weights are divided by it.
  if (!d.groups.isConst()) return o.fail("the number of groups of its weights must be constant");
  const Tensor columns = reshape(d.found(), {d.x.size(0), d.groups, d.length(), d.out[2] * d.out[3]});
  const Tensor weights = broadcastTo(reshape(d.w, {Expr(1), d.groups, d.each(), d.length()}), {d.x.size(0), d.groups, d.each(), d.length()});
  const Tensor y = reshape(matmul2(weights, columns, d.x.dtype()), d.out);
  return {cast(add(y, reshape(o.t("bias"), {Expr(1), d.out[1], Expr(1), Expr(1)})), d.x.dtype())};
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
  addDetectionGradients(t);
}

} // namespace neso::lower
