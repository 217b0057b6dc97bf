// Where an image's pixels come from when it is resampled, for upsample_* and their gradients.
#pragma once
#include <array>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

/// How one spatial dim is resampled. scale is input positions per output position.
struct Axis {
  Expr in, out;
  std::optional<double> factor; // as the user gave it: output per input
  /// Of which sizes ATen's kernels for CPUs overlook a factor that says something else: a size that stays, and twice the size.
  enum class Overlooks : uint8_t { Nothing, Same, SameAndDouble } overlooks = Overlooks::Nothing;
};

/// The axes of images of the sizes `in` and `out`, [N, C, ...]; the factors are arguments of the call.
std::vector<Axis> axesOf(OpCall &o, const Sizes &in, const Sizes &out, size_t spatial, Axis::Overlooks overlooks);

/// Input positions per output position, in the coordinate type c.
Val scaleOf(BodyBuilder &b, const Axis &a, bool align, DType c);

/// The pixel that is nearest to output position i.
Expr nearestAt(BodyBuilder &b, const Axis &a, Expr i, bool exact);

/// Pixels of one dim and their weights, which add up to 1; a weight that is invalid is 1.
struct Tap {
  Expr at;
  Val weight;
};
/// The two pixels around output position i; one where nothing is resampled.
std::vector<Tap> linearTaps(BodyBuilder &b, const Axis &a, Expr i, bool align, DType c);
std::vector<Tap> cubicTaps(BodyBuilder &b, const Axis &a, Expr i, bool align, DType c);
/// Weights of the four pixels around a position with fraction f (Keys, a = -0.75), and how fast they change with it.
std::array<Val, 4> cubicWeights(Val f);
std::array<Val, 4> cubicSlopes(Val f);

/// What weighs neighbours; as a number how many pixels it reaches to each side.
enum class Filter { Linear = 1, Cubic = 2, Lanczos = 3 };
/// One dim after the other, by sums of neighbours (resize_separable.cpp): images of bytes, antialiased images and their gradients.
Tensors resizeBytes(OpCall &o, const Tensor &x, Filter filter, bool antialiases);
Tensors resizeAntialiased(OpCall &o, Filter filter);
Tensors antialiasedGradient(OpCall &o, Filter filter);

/// Images sampled where a grid says, and their gradients (grid_sample.cpp).
void addGridSample(OpTable &t);

} // namespace neso::lower
