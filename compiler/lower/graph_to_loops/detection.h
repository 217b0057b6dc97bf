// What operators on boxes and at offsets share with their gradients.
//
// Boxes are rows (image, x1, y1, x2, y2) of pixels times a scale. A box is cut into rows x columns bins, and each of a bin's values is a mean over points
// between pixels (…align), or the maximum or mean of pixels (…pool). What is done where, to the rounding of half a pixel, is what torchvision's own kernels do
// (torchvision/csrc/ops/cpu).
#pragma once
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

/// More points or pixels than a bin can have: how many it has is data.
inline const Expr kMostOfBin = int64_t{1} << 40;

/// The pixel of an image at a row and column that are whole and inside.
Val pixel(BodyBuilder &b, const Tensor &x, Expr image, Expr channel, Val row, Val column);

/// Elements of results are (box, channel, row of bins, column of bins).
struct Boxes {
  Tensor boxes; // [K, 5]
  Sizes images; // N, C, H, W
  DType dtype, c; // of the images; computed in
  double scale;
  Expr bins[2]; // rows, columns of each box

  Boxes(OpCall &o, Sizes images, DType dtype);

  Lowering &ctx() const { return boxes.ctx(); }
  Sizes sizes(Expr channels) const { return {boxes.size(0), channels, bins[0], bins[1]}; }
  Expr image(BodyBuilder &b, Expr box) const { return b.indirect(b.cast(boxes.at(b, {box, 0}), DType::I64), images[0], false, true); }
  Val isOf(BodyBuilder &b, Expr box, Expr image) const { return eq(b.cast(boxes.at(b, {box, 0}), DType::I64), b.index(image)); }
  /// Where the box begins and ends along dimension 0, y, or 1, x.
  Val begin(BodyBuilder &b, Expr box, int64_t dim) const { return b.cast(boxes.at(b, {box, 2 - dim}), c) * scale; }
  Val end(BodyBuilder &b, Expr box, int64_t dim) const { return b.cast(boxes.at(b, {box, 4 - dim}), c) * scale; }
  Val binsOf(BodyBuilder &b, size_t dim) const { return b.index(bins[dim], c); }
  /// Of the maps that have channels of their own for each bin, the channel of output element i; how many channels outputs have.
  Expr ownChannel(const Index &i) const { return (i[1] * bins[0] + i[2]) * bins[1] + i[3]; }
  Expr channelsByBin() const { return floorDiv(images[1], bins[0] * bins[1]); }
};

/// Means over points between pixels.
struct Points {
  Boxes of;
  int64_t each; // a bin has each x each; 0: about one a pixel
  double shift; // of the box
  bool atLeastOne; // pixel is a box high and wide

  /// Along one dimension: where a bin's first point's cell begins, what a bin measures, in how many cells it is cut.
  struct Bin {
    Val begin, size, count;
  };
  Bin bin(BodyBuilder &b, const Index &i, int64_t dim) const;
  /// The points of element i, whose bins are those.
  Val points(BodyBuilder &b, const Index &i, Bin (&bins)[2]) const;

  /// The pixels on both sides of a point along one dimension, how near it is to the higher one, and whether it counts: 0 from one pixel outside of the
  /// image on.
  struct Sides {
    Val low, high, part, ok;
  };
  Sides sides(BodyBuilder &b, const Bin &bin, Val number, int64_t dim) const;
};

/// The pixels of an output element: those from `first` on, `count` of them along each dimension, whole numbers that may be 0.
struct Pixels {
  Val first[2], count[2];
  Val number(BodyBuilder &b) const { return b.cast(count[0], DType::I64) * b.cast(count[1], DType::I64); }
};
/// The end of a box is a pixel of it for roi_pool, `closed`, and none for ps_roi_pool.
Pixels pixelsOf(const Boxes &boxes, BodyBuilder &b, const Index &i, bool closed);

/// A convolution each of whose taps finds its pixel at an offset of its own (Dai et al., Deformable Convolutional Networks, 2017; with masks Zhu et al., 2019).
struct Deformed {
  Tensor x, w, offset, mask;
  bool masked;
  DType c;
  Sizes out; // N, channels, rows, columns
  Expr groups, offsetGroups, channels, high, wide;
  Expr stride[2], pad[2], dilation[2];

  Deformed(OpCall &o, Sizes out);

  /// Of what the taps find: (image, group, channel of the group, row and column of the tap, row and column of the output).
  Sizes taps() const { return {x.size(0), groups, channels, high, wide, out[2], out[3]}; }
  Expr channel(const Index &i) const { return i[1] * channels + i[2]; }
  Expr tap(const Index &i) const { return floorDiv(channel(i) * offsetGroups, x.size(1)) * high * wide + i[3] * wide + i[4]; }
  void place(BodyBuilder &b, const Index &i, Val (&at)[2]) const;
  Val maskAt(BodyBuilder &b, const Index &i) const { return b.cast(mask.at(b, {i[0], tap(i), i[5], i[6]}), c); }
  /// What the taps find, times the masks: columns of a product with the weights.
  Tensor found() const;
  Expr length() const { return channels * high * wide; }
  Expr each() const { return floorDiv(w.size(0), groups); } // results of a group

  /// One of the four pixels around a place, if it is inside of the image: with `along`, how fast its weight changes along that dimension.
  struct Corner {
    Val row, column, weight, ok;
  };
  Corner corner(BodyBuilder &b, const Val (&at)[2], int number, int along = -1) const;
  /// Between four pixels, of which those outside of the image are 0.
  Val between(BodyBuilder &b, Expr image, Expr channel, const Val (&at)[2], int along = -1) const;
};

void addDetectionGradients(OpTable &t);

} // namespace neso::lower
