#include "backend/nvidia/axis.h"

#include <algorithm>
#include <bit>

#include "backend/nvidia/move.h"

namespace neso::nvidia {

namespace {

/// Lanes along the axis first, then along the others from the last; warps the other way round.
LinearLayout plainLayout(const Sizes &shape, int warps, int axis) {
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

Tuple tupleOf(llvm::ArrayRef<Tile> tiles, uint64_t reg) {
  Tuple tuple;
  for (const Tile &tile : tiles) tuple.push_back(tile.values[reg]);
  return tuple;
}

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

llvm::SmallVector<Tile, 2> withSeparateAxis(BlockContext &block, llvm::ArrayRef<Tile> tiles, int axis,
                                            bool lanesInOrder) {
  llvm::SmallVector<Tile, 2> result(tiles.begin(), tiles.end());
  std::optional<AxisPlaces> places = axisPlaces(tiles[0].layout, axis);
  auto byPlace = [](const AxisBit &a, const AxisBit &b) { return a.place < b.place; };
  if (places && (!lanesInOrder || std::is_sorted(places->lanes.begin(), places->lanes.end(), byPlace))) return result;
  LinearLayout plain = plainLayout(tensorShape(tiles[0].layout), block.warps, axis);
  for (Tile &tile : result) tile = convertTile(block, tile, plain);
  return result;
}

std::vector<uint64_t> placesWithout(const std::vector<AxisBit> &bits, size_t size) {
  uint64_t mask = 0;
  for (const AxisBit &bit : bits) mask |= uint64_t(1) << bit.place;
  std::vector<uint64_t> places;
  for (uint64_t i = 0; i < size; ++i)
    if (!(i & mask)) places.push_back(i);
  return places;
}

llvm::SmallVector<llvm::SmallVector<Tuple, 16>, 16> gatherWarps(BlockContext &block, const LinearLayout &rest,
                                                                const std::vector<AxisBit> &warps,
                                                                llvm::ArrayRef<Tuple> rows) {
  // A matrix [rows, warps], stored with the warps of a row side by side so that a thread reads them in few wide
  // accesses.
  int bits = int(warps.size());
  int64_t count = int64_t(1) << bits;
  DimValues outs{{"dim1", count}, {"dim0", int64_t(1) << rest.totalOutBits()}};
  std::vector<LinearLayout::In> have, want;
  for (const LinearLayout::In &in : rest.ins()) {
    LinearLayout::In shifted = in;
    for (uint64_t &basis : shifted.bases) basis <<= bits;
    have.push_back(shifted);
    if (in.name == kWarp)
      for (int i = 0; i < bits; ++i) have.back().bases[warps[i].place] |= uint64_t(1) << i;
    if (in.name == kRegister)
      for (int i = 0; i < bits; ++i) shifted.bases.insert(shifted.bases.begin() + i, uint64_t(1) << i);
    want.push_back(shifted);
  }
  LinearLayout source(have, outs), wanted(want, outs), buffer = sharedLayout(tensorShape(source), {1, 0});

  std::vector<SharedTile> buffers;
  for (size_t operand = 0; operand < rows[0].size(); ++operand) {
    llvm::Type *element = rows[0][operand]->getType();
    SharedBuffer bytes = block.shared.allocate(sharedBytes(element) << buffer.totalOutBits(), "exchange of warps");
    buffers.push_back({bytes, buffer, element, nullptr});
    Tile tile{source, {}};
    for (const Tuple &row : rows) tile.values.push_back(row[operand]);
    storeShared(block, tile, buffers.back());
  }
  llvm::SmallVector<llvm::SmallVector<Tuple, 16>, 16> result(rows.size(), llvm::SmallVector<Tuple, 16>(size_t(count)));
  for (const SharedTile &from : buffers) {
    Tile all = loadShared(block, from, wanted);
    for (size_t i = 0; i < all.values.size(); ++i)
      result[i / size_t(count)][i % size_t(count)].push_back(all.values[i]);
  }
  for (const SharedTile &from : buffers) block.shared.release(from.buffer);
  return result;
}

} // namespace neso::nvidia
