#include "backend/nvidia/sort.h"

#include <map>

#include "backend/nvidia/axis.h"
#include "backend/nvidia/move.h"
#include "backend/nvidia/shared.h"

namespace neso::nvidia {

namespace {

using llvm::Value;

/// Elements by register, each a tuple with one value an operand.
using Elements = llvm::SmallVector<Tuple, 16>;

/// Which places differ between two elements that a step compares.
struct Partner {
  uint64_t registers = 0;
  uint32_t lanes = 0, warps = 0;
};

class Network {
public:
  Network(BlockContext &block, const AxisPlaces &places, Elements elements)
      : block_(block), b_(block.b), elements_(std::move(elements)) {
    for (const AxisBit &bit : places.registers) bits_.push_back({uint64_t(1) << bit.place, 0, 0});
    for (const AxisBit &bit : places.lanes) bits_.push_back({0, 1u << bit.place, 0});
    for (const AxisBit &bit : places.warps) bits_.push_back({0, 0, 1u << bit.place});
  }

  Elements merge() {
    for (size_t bit = bits_.size(); bit-- > 0;) step(bits_[bit], bits_[bit]);
    return std::move(elements_);
  }

  Elements sort() {
    for (size_t phase = 1; phase <= bits_.size(); ++phase) {
      Partner mirror;
      for (size_t i = 0; i < phase; ++i) {
        mirror.registers |= bits_[i].registers;
        mirror.lanes |= bits_[i].lanes;
        mirror.warps |= bits_[i].warps;
      }
      step(mirror, bits_[phase - 1]);
      for (size_t bit = phase - 1; bit-- > 0;) step(bits_[bit], bits_[bit]);
    }
    return std::move(elements_);
  }

private:
  /// Each element is compared with its partner; the one whose bit `upper` is 0 takes the smaller.
  void step(const Partner &partner, const Partner &upper) {
    if (partner.lanes == 0 && partner.warps == 0) return insideThreads(partner.registers, upper.registers);
    Elements others = partner.warps ? amongWarps(partner) : amongLanes(partner);
    if (!isUpper(upper)) {
      // Registers tell the halves apart.
      for (size_t r = 0; r < elements_.size(); ++r)
        elements_[r] = (r & upper.registers ? largerOf : smallerOf)(*this, elements_[r], others[r]);
      return;
    }
    for (size_t r = 0; r < elements_.size(); ++r) {
      Value *keeps = b_.CreateXor(less(elements_[r], others[r]), isUpper(upper));
      elements_[r] = select(keeps, elements_[r], others[r]);
    }
  }

  void insideThreads(uint64_t mask, uint64_t upper) {
    for (uint64_t r = 0; r < elements_.size(); ++r) {
      if (r & upper) continue;
      Tuple x = elements_[r], y = elements_[r ^ mask];
      Value *inOrder = less(x, y);
      elements_[r] = select(inOrder, x, y);
      elements_[r ^ mask] = select(inOrder, y, x);
    }
  }

  Elements amongLanes(const Partner &partner) {
    Elements others;
    for (uint64_t r = 0; r < elements_.size(); ++r) {
      Tuple &other = others.emplace_back();
      for (Value *v : elements_[r ^ partner.registers]) other.push_back(shuffleXor(block_, v, partner.lanes));
    }
    return others;
  }

  /// Through shared memory, where each thread has a place for each of its registers, so that neighbouring lanes touch
  /// neighbouring bytes.
  Elements amongWarps(const Partner &partner) {
    Value *other = b_.CreateXor(block_.thread, b_.getInt32(partner.lanes | partner.warps << 5));
    Elements others(elements_.size());
    for (size_t operand = 0; operand < elements_[0].size(); ++operand) {
      llvm::Type *type = elements_[0][operand]->getType();
      const int64_t bytes = sharedBytes(type);
      const auto row = static_cast<uint32_t>(bytes * block_.threads());
      SharedBuffer buffer = block_.shared.allocate(row * static_cast<int64_t>(elements_.size()), "exchange of a sort");
      auto place = [&](Value *thread, uint64_t reg) {
        Value *offset = b_.CreateMul(thread, b_.getInt32(static_cast<uint32_t>(bytes)));
        Value *base = block_.shared.address(block_, buffer, offset);
        return b_.CreateConstInBoundsGEP1_32(b_.getInt8Ty(), base, static_cast<uint32_t>(reg) * row);
      };
      const llvm::Align align(static_cast<uint64_t>(bytes));
      block_.shared.beforeWrite(block_, buffer);
      for (uint64_t r = 0; r < elements_.size(); ++r)
        b_.CreateAlignedStore(elements_[r][operand], place(block_.thread, r), align);
      block_.shared.beforeRead(block_, buffer);
      for (uint64_t r = 0; r < elements_.size(); ++r)
        others[r].push_back(b_.CreateAlignedLoad(type, place(other, r ^ partner.registers), align));
      block_.shared.release(buffer);
    }
    return others;
  }

  /// i1: the calling thread's elements have the bit set; null when the bit is one of registers.
  Value *isUpper(const Partner &bit) {
    if (bit.registers) return nullptr;
    Value *place = bit.lanes ? block_.lane : block_.warp;
    Value *&known = isUpper_[{bit.lanes, bit.warps}];
    // The first use dominates the later ones: a network has no branches.
    if (!known) known = b_.CreateICmpNE(b_.CreateAnd(place, b_.getInt32(bit.lanes | bit.warps)), b_.getInt32(0));
    return known;
  }

  Value *less(const Tuple &x, const Tuple &y) {
    Value *result = b_.CreateICmpULT(x.back(), y.back());
    for (size_t i = x.size() - 1; i-- > 0;)
      result = b_.CreateOr(b_.CreateICmpULT(x[i], y[i]), b_.CreateAnd(b_.CreateICmpEQ(x[i], y[i]), result));
    return result;
  }
  Tuple select(Value *condition, const Tuple &yes, const Tuple &no) {
    Tuple result;
    for (size_t i = 0; i < yes.size(); ++i) result.push_back(b_.CreateSelect(condition, yes[i], no[i]));
    return result;
  }
  static Tuple smallerOf(Network &n, const Tuple &x, const Tuple &y) { return n.select(n.less(x, y), x, y); }
  static Tuple largerOf(Network &n, const Tuple &x, const Tuple &y) { return n.select(n.less(x, y), y, x); }

  BlockContext &block_;
  llvm::IRBuilder<> &b_;
  Elements elements_;
  llvm::SmallVector<Partner, 16> bits_; // of an element's number along the row, from the lowest
  std::map<std::pair<uint32_t, uint32_t>, Value *> isUpper_;
};

llvm::SmallVector<Tile, 2> runNetwork(BlockContext &block, llvm::SmallVector<Tile, 2> tiles, int axis, bool merge) {
  const AxisPlaces places = *axisPlaces(tiles[0].layout, axis);
  const LinearLayout layout = numberedByPlace(tiles[0].layout, axis);
  // A merge needs every element at the place of its number.
  if (merge)
    for (Tile &tile : tiles) tile = convertTile(block, tile, layout);
  Elements elements;
  for (uint64_t r = 0; r < tiles[0].values.size(); ++r) elements.push_back(tupleOf(tiles, r));
  Network network(block, places, std::move(elements));
  elements = merge ? network.merge() : network.sort();
  for (size_t i = 0; i < tiles.size(); ++i) {
    tiles[i].layout = layout;
    for (size_t r = 0; r < elements.size(); ++r) tiles[i].values[r] = elements[r][i];
  }
  return tiles;
}

} // namespace

llvm::SmallVector<Tile, 2> sortTiles(BlockContext &block, llvm::ArrayRef<Tile> operands, int axis) {
  return runNetwork(block, withSeparateAxis(block, operands, axis), axis, false);
}

llvm::SmallVector<Tile, 2> mergeTiles(BlockContext &block, llvm::ArrayRef<Tile> operands, int axis) {
  return runNetwork(block, withSeparateAxis(block, operands, axis), axis, true);
}

} // namespace neso::nvidia
