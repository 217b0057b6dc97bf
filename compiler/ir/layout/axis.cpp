#include "ir/layout/axis.h"

#include <algorithm>
#include <bit>

#include "base/diagnostics.h"
#include "ir/layout/gpu.h"

namespace neso {

namespace {

/// Lanes along the axis first, then along the others from the last; warps the other way round.
LinearLayout plainLayout(const Sizes &shape, int64_t warps, int axis) {
  std::vector<int> order{axis};
  for (int i = int(shape.size()) - 1; i >= 0; --i)
    if (i != axis) order.push_back(i);
  Blocked blocked{Sizes(shape.size(), 1), Sizes(shape.size(), 1), Sizes(shape.size(), 1), order};
  int64_t lanes = 32, left = warps;
  for (int dim : order) {
    blocked.threadsPerWarp[dim] = std::min(lanes, shape[dim]);
    lanes /= blocked.threadsPerWarp[dim];
  }
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    blocked.warpsPerBlock[*dim] = std::min(left, shape[*dim] / blocked.threadsPerWarp[*dim]);
    left /= blocked.warpsPerBlock[*dim];
  }
  // What is left of the thread places holds copies.
  blocked.threadsPerWarp[axis] *= lanes;
  blocked.warpsPerBlock[axis] *= left;
  return blockedLayout(shape, blocked);
}

} // namespace

uint32_t AxisPlaces::laneMask() const {
  uint32_t mask = 0;
  for (const AxisBit &bit : lanes) mask |= 1u << bit.place;
  return mask;
}

std::vector<uint64_t> AxisPlaces::registersInOrder() const {
  std::vector<uint64_t> all{0};
  for (const AxisBit &bit : registers) {
    size_t n = all.size();
    for (size_t i = 0; i < n; ++i) all.push_back(all[i] | uint64_t(1) << bit.place);
  }
  return all;
}

std::optional<AxisPlaces> axisPlaces(const LinearLayout &layout, int axis) {
  const LinearLayout::Out &out = layout.out(dimName(axis));
  AxisPlaces places;
  uint64_t seen = 0;
  for (const auto &[dim, list] :
       {std::pair{kRegister, &places.registers}, std::pair{kLane, &places.lanes}, std::pair{kWarp, &places.warps}}) {
    const std::vector<uint64_t> &bases = layout.in(dim).bases;
    for (int i = 0; i < int(bases.size()); ++i) {
      uint64_t along = uint64_t(out.of(bases[i]));
      if (along == 0) continue;
      if (std::popcount(bases[i]) != 1 || (seen & along)) return std::nullopt;
      seen |= along;
      list->push_back({i, std::countr_zero(along)});
    }
    std::sort(list->begin(), list->end(), [](const AxisBit &a, const AxisBit &b) { return a.axis < b.axis; });
  }
  // The other dims may be mixed as they like, but a register must not repeat another one when the axis is gone.
  LinearLayout rest = sliceLayout(layout, axis);
  if (rest.freeMask(kRegister) != 0 ||
      rest.inBits(kRegister) + int(places.registers.size()) != layout.inBits(kRegister))
    return std::nullopt;
  return places;
}

LinearLayout separateAxis(const LinearLayout &layout, int axis, bool lanesInOrder) {
  std::optional<AxisPlaces> places = axisPlaces(layout, axis);
  auto byPlace = [](const AxisBit &a, const AxisBit &b) { return a.place < b.place; };
  if (places && (!lanesInOrder || std::is_sorted(places->lanes.begin(), places->lanes.end(), byPlace))) return layout;
  return plainLayout(tensorShape(layout), layout.inSize(kWarp), axis);
}

LinearLayout numberedByPlace(const LinearLayout &layout, int axis) {
  std::optional<AxisPlaces> places = axisPlaces(layout, axis);
  NESO_CHECK(places.has_value(), "the axis is apart from the others");
  const LinearLayout::Out &out = layout.out(dimName(axis));
  std::vector<LinearLayout::In> ins = layout.ins();
  int next = 0;
  for (const auto &[name, bits] :
       {std::pair{kRegister, &places->registers}, std::pair{kLane, &places->lanes}, std::pair{kWarp, &places->warps}})
    for (const AxisBit &bit : *bits)
      for (LinearLayout::In &in : ins)
        if (in.name == name) in.bases[static_cast<size_t>(bit.place)] = uint64_t(1) << (out.shift + next++);
  return LinearLayout(std::move(ins), layout.outSizes());
}

} // namespace neso
