// Images sampled at the positions that a grid names, and the gradients of the image and of the grid.
#include "lower/graph_to_loops/resize.h"

namespace neso::lower {

namespace {

/// What is sampled, and how; copied into the body that it makes. Interpolation and padding as ATen numbers them.
struct Grid {
  enum Mode : int64_t { Linear, Nearest, Cubic };
  enum Padding : int64_t { Zeros, Border, Reflection };
  Tensor x, grid;
  int64_t mode, padding;
  bool align; // corners
  DType c;    // computed in
  Sizes in;   // of the image

  explicit Grid(OpCall &o, size_t spatial)
      : x(source(o.t("input"))), grid(o.t("grid").reused()), mode(o.integer("interpolation_mode")), padding(o.integer("padding_mode")), align(o.flag("align_corners")),
        c(computeType(x.dtype())), in(x.sizes().begin() + 2, x.sizes().begin() + 2 + static_cast<int64_t>(spatial)) {}
  size_t spatial() const { return in.size(); }

  /// A pixel that an output element is made of.
  struct Tap {
    std::vector<Val> at, weights; // along each dimension
    Val inside;                   // of the image
    Val weight() const;
  };
  /// Of one output element [n, c, position]: where it is sampled.
  struct Place {
    Index i;
    std::vector<Val> pos, size;
    std::vector<Val> slope; // how fast pos changes with the grid's number, if that was asked for
  };
  Place placeOf(BodyBuilder &b, const Index &i, bool slopes = false) const;
  size_t taps() const { return size_t(1) << (mode == Nearest ? 0 : mode == Linear ? spatial() : 2 * spatial()); }
  /// `along`: that dimension's weight is how fast it changes with the position.
  Tap tap(BodyBuilder &b, const Place &p, size_t number, std::optional<size_t> along = std::nullopt) const;
  /// The tap's pixel; 0 outside.
  Val pixel(BodyBuilder &b, const Place &p, const Tap &tap) const;
  Index indexOf(BodyBuilder &b, const Place &p, const Tap &tap) const;
  Val at(BodyBuilder &b, const Index &i) const;

private:
  Val settle(Val p, Val n, Val *slope = nullptr) const;
};

/// v mirrored at both bounds, which are doubled, so that they are whole. `slope` is multiplied by 1 or -1, as the result goes with v or against it.
Val reflect(Val v, Val twiceLow, Val twiceHigh, Val *slope) {
  Val low = twiceLow / 2.0, span = (twiceHigh - twiceLow) / 2.0, from = v - low;
  Val d = un(OpKind::Abs, from), extra = bin(OpKind::Fmod, d, span), flips = un(OpKind::Floor, d / span);
  Val even = eq(bin(OpKind::Fmod, flips, num(flips, 2)), 0.0);
  Val r = where(even, extra + low, span - extra + low), none = eq(span, 0.0);
  if (slope) {
    const Val forwards = where(from < 0.0, -*slope, *slope);
    *slope = where(none, num(r, 0), where(even, forwards, -forwards));
  }
  return where(none, num(r, 0), r);
}

/// Where a position p of n elements is taken from, by the padding.
Val Grid::settle(Val p, Val n, Val *slope) const {
  if (padding == Zeros) return p;
  if (padding == Reflection) p = align ? reflect(p, num(p, 0), (n - 1.0) * 2.0, slope) : reflect(p, num(p, -1), n * 2.0 - 1.0, slope);
  if (slope) *slope = where(p > 0.0 && p < n - 1.0, *slope, num(p, 0));
  return vmin(vmax(p, num(p, 0)), n - 1.0);
}

Grid::Place Grid::placeOf(BodyBuilder &b, const Index &i, bool slopes) const {
  Place place{i, std::vector<Val>(spatial()), std::vector<Val>(spatial()), std::vector<Val>(slopes ? spatial() : 0)};
  for (size_t d = 0; d < spatial(); ++d) {
    Index g{i[0]};
    g.insert(g.end(), i.begin() + 2, i.end());
    // Coordinates come as x, y, z; dims are z, y, x.
    g.push_back(static_cast<int64_t>(spatial() - 1 - d));
    Val v = b.cast(grid.at(b, g), c), n = b.index(in[d], c);
    place.size[d] = n;
    // Rounded at each step as ATen does: which pixel is nearest depends on it. Between pixels of three dimensions it counts in single precision.
    const bool rounds = mode != Cubic || spatial() < 3;
    auto r = [&](Val p) { return rounds ? b.round(p, x.dtype()) : p; };
    Val p = align ? r(r(r(v + 1.0) / 2.0) * (n - 1.0)) : r(r(r(r(v + 1.0) * n) - 1.0) / 2.0);
    if (slopes) place.slope[d] = (align ? n - 1.0 : n) / 2.0;
    place.pos[d] = mode != Cubic ? settle(p, n, slopes ? &place.slope[d] : nullptr) : p;
  }
  return place;
}

Val Grid::Tap::weight() const {
  Val w = weights[0];
  for (size_t d = 1; d < weights.size(); ++d) w = w * weights[d];
  return w;
}

Grid::Tap Grid::tap(BodyBuilder &b, const Place &p, size_t number, std::optional<size_t> along) const {
  Tap tap{{}, {}, b.isTrue()};
  for (size_t d = 0; d < spatial(); ++d) {
    const size_t shift = spatial() - 1 - d;
    const bool slope = along == d;
    const Val base = un(mode == Nearest ? OpKind::Round : OpKind::Floor, p.pos[d]), f = p.pos[d] - base;
    if (mode == Nearest) {
      tap.at.push_back(base);
      tap.weights.push_back(num(base, slope ? 0 : 1));
    } else if (mode == Linear) {
      const bool high = number >> shift & 1;
      tap.at.push_back(high ? base + 1.0 : base);
      tap.weights.push_back(slope ? num(f, high ? 1 : -1) : high ? f : 1.0 - f);
    } else {
      const size_t k = number >> (2 * shift) & 3;
      tap.at.push_back(settle(base + (static_cast<double>(k) - 1), p.size[d]));
      tap.weights.push_back((slope ? cubicSlopes(f) : cubicWeights(f))[k]);
    }
    tap.inside = tap.inside && tap.at[d] >= 0.0 && tap.at[d] < p.size[d];
  }
  return tap;
}

Index Grid::indexOf(BodyBuilder &b, const Place &p, const Tap &tap) const {
  Index j{p.i[0], p.i[1]};
  for (size_t d = 0; d < spatial(); ++d) j.push_back(b.indirect(b.cast(tap.at[d], DType::I64), in[d], false, false));
  return j;
}

Val Grid::pixel(BodyBuilder &b, const Place &p, const Tap &tap) const {
  return b.masked(tap.inside, [&] { return b.cast(x.at(b, indexOf(b, p, tap)), c); }, b.constant(c, 0));
}

Val Grid::at(BodyBuilder &b, const Index &i) const {
  const Place place = placeOf(b, i);
  Val total;
  for (size_t k = 0; k < taps(); ++k) {
    const Tap t = tap(b, place, k);
    Val v = pixel(b, place, t);
    if (mode != Nearest) v = v * t.weight();
    total = total.valid() ? total + v : v;
  }
  return total;
}

Tensors gridSample(OpCall &o, size_t spatial) {
  const Grid grid(o, spatial);
  return {Tensor::lazy(o.ctx, grid.x.dtype(), o.out().sizes, [grid](BodyBuilder &b, const Index &i) { return grid.at(b, i); })};
}

/// Each output gives its gradient to the pixels that it was made of, by their weights.
Tensor imageGradient(OpCall &o, const Grid &grid, const Tensor &dy) {
  const Sizes &sizes = grid.x.sizes();
  const Strided w = o.ctx.allocate(grid.c, sizes);
  o.ctx.store(full(o.ctx, sizes, grid.c, 0), w);
  for (size_t k = 0; k < grid.taps(); ++k)
    o.ctx.scatter(
        dy.sizes(),
        [&](BodyBuilder &b, const Index &i) {
          const Grid::Place place = grid.placeOf(b, i);
          const Grid::Tap tap = grid.tap(b, place, k);
          Index at;
          const Val value = b.masked(
              tap.inside,
              [&] {
                at = grid.indexOf(b, place, tap);
                return b.cast(dy.at(b, i), grid.c) * tap.weight();
              },
              b.constant(grid.c, 0));
          return Lowering::ScatterItem{at, value, tap.inside};
        },
        w, grid.c, loops::StoreMode::AtomicAdd);
  return cast(Tensor::strided(o.ctx, grid.c, sizes, w), grid.x.dtype());
}

/// [N, position, coordinates]: over all channels, how the output changes with the position.
Tensor positionGradient(OpCall &o, const Grid &grid, const Tensor &dy) {
  Sizes sizes = grid.grid.sizes();
  if (grid.mode == Grid::Nearest) return full(o.ctx, sizes, grid.grid.dtype(), 0);
  sizes.pop_back();
  Tensors coordinates;
  for (size_t k = 0; k < grid.spatial(); ++k) {
    const size_t along = grid.spatial() - 1 - k;
    const Tensor total = o.ctx.reduce(loops::ReduceKind::Sum, grid.c, sizes, {grid.x.size(1)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      Index element{i[0], r[0]};
      element.insert(element.end(), i.begin() + 1, i.end());
      const Grid::Place place = grid.placeOf(b, element, true);
      Val change;
      for (size_t number = 0; number < grid.taps(); ++number) {
        const Grid::Tap tap = grid.tap(b, place, number, along);
        const Val v = grid.pixel(b, place, tap) * tap.weight();
        change = change.valid() ? change + v : v;
      }
      return b.cast(dy.at(b, element), grid.c) * change * place.slope[along];
    })[0];
    coordinates.push_back(unsqueeze(cast(total, grid.grid.dtype()), -1));
  }
  return concat(coordinates, -1);
}

Tensors gridGradients(OpCall &o, size_t spatial) {
  const Grid grid(o, spatial);
  const Tensor dy = o.t("grad_output").reused();
  Tensors out(o.outCount());
  const graph::Argument *mask = o.node.arg("output_mask");
  const auto *flags = mask ? std::get_if<std::vector<bool>>(mask) : nullptr;
  if (!flags || flags->empty() || (*flags)[0]) out[0] = imageGradient(o, grid, dy);
  if (out.size() > 1) out[1] = positionGradient(o, grid, dy);
  return out;
}

} // namespace

void addGridSample(OpTable &t) {
  t.add("grid_sampler.default", [](OpCall &o) { return gridSample(o, o.t("input").sizes().size() - 2); });
  t.add("grid_sampler_2d.default cudnn_grid_sampler.default", [](OpCall &o) { return gridSample(o, 2); });
  t.add("grid_sampler_3d.default", [](OpCall &o) { return gridSample(o, 3); });
  t.add("grid_sampler_2d_backward.default", [](OpCall &o) { return gridGradients(o, 2); });
  t.add("grid_sampler_3d_backward.default", [](OpCall &o) { return gridGradients(o, 3); });
}

} // namespace neso::lower
