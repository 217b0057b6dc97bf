#include "backend/nvidia/axis.h"

#include "backend/nvidia/move.h"

namespace neso::nvidia {

Tuple tupleOf(llvm::ArrayRef<Tile> tiles, uint64_t reg) {
  Tuple tuple;
  for (const Tile &tile : tiles) tuple.push_back(tile.values[reg]);
  return tuple;
}

llvm::SmallVector<Tile, 2> withSeparateAxis(BlockContext &block, llvm::ArrayRef<Tile> tiles, int axis,
                                            bool lanesInOrder) {
  const LinearLayout separate = separateAxis(tiles[0].layout, axis, lanesInOrder);
  llvm::SmallVector<Tile, 2> result;
  for (const Tile &tile : tiles) result.push_back(convertTile(block, tile, separate));
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
  // A matrix [rows, warps], stored with the warps of a row side by side so that a thread reads them in few wide accesses; where lanes have rows of their own, with
  // these side by side, so that lanes do not meet in a bank (rows of eight warps: 14 to one).
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
  const bool rowsInLanes = llvm::count_if(rest.in(kLane).bases, [](uint64_t basis) { return basis != 0; }) > 2;
  LinearLayout source(have, outs), wanted(want, outs), buffer = sharedLayout(tensorShape(source), rowsInLanes ? std::vector<int>{0, 1} : std::vector<int>{1, 0});

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
