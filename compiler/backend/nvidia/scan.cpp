// Inclusive scans. The bits of the axis are taken from the lowest up, in runs that lie in one kind of place: registers,
// lanes or warps. After each run every element holds the scan inside its block of the runs so far, and each thread also
// has the block's total, once for every combination of the register bits that are still to come.
#include <algorithm>
#include <bit>
#include <map>

#include "backend/nvidia/axis.h"
#include "backend/nvidia/move.h"
#include "backend/nvidia/reduce.h"

namespace neso::nvidia {

namespace {

enum class Place : uint8_t { Register, Lane, Warp };

struct Run {
  Place place;
  std::vector<AxisBit> bits;
};

std::vector<Run> runsOf(const AxisPlaces &places) {
  std::vector<std::pair<AxisBit, Place>> all;
  for (const AxisBit &bit : places.registers) all.emplace_back(bit, Place::Register);
  for (const AxisBit &bit : places.lanes) all.emplace_back(bit, Place::Lane);
  for (const AxisBit &bit : places.warps) all.emplace_back(bit, Place::Warp);
  std::sort(all.begin(), all.end(), [](const auto &a, const auto &b) { return a.first.axis < b.first.axis; });
  std::vector<Run> runs;
  for (const auto &[bit, place] : all) {
    if (runs.empty() || runs.back().place != place) runs.push_back({place, {}});
    runs.back().bits.push_back(bit);
  }
  return runs;
}

class Scan {
public:
  Scan(BlockContext &block, llvm::ArrayRef<Tile> operands, int axis, bool reverse, Combine combine)
      : block_(block), b_(block.b), layout_(operands[0].layout), axis_(axis), reverse_(reverse), combine_(combine) {
    for (uint64_t reg = 0; reg < operands[0].values.size(); ++reg) {
      values_.push_back(tupleOf(operands, reg));
      totals_[reg] = values_.back();
    }
  }

  void run() {
    std::vector<Run> runs = runsOf(*axisPlaces(layout_, axis_));
    for (size_t i = 0; i < runs.size(); ++i) {
      bool last = i + 1 == runs.size();
      switch (runs[i].place) {
      case Place::Register: inRegisters(runs[i].bits); break;
      case Place::Lane: amongLanes(runs[i].bits, last); break;
      case Place::Warp: amongWarps(runs[i].bits, last); break;
      }
      for (const AxisBit &bit : runs[i].bits) axisDone_ |= uint64_t(1) << bit.axis;
      first_ = false;
    }
  }

  Tuple value(size_t reg) const { return values_[reg]; }

private:
  /// The registers whose elements are in the block that totals_[key] is of.
  std::vector<uint64_t> members(uint64_t key) const {
    std::vector<uint64_t> all;
    for (uint64_t reg = 0; reg < values_.size(); ++reg)
      if ((reg & ~registersDone_) == key) all.push_back(reg);
    return all;
  }
  Tuple select(llvm::Value *condition, const Tuple &yes, const Tuple &no) {
    Tuple result;
    for (size_t i = 0; i < yes.size(); ++i) result.push_back(b_.CreateSelect(condition, yes[i], no[i]));
    return result;
  }
  Tuple shuffleTuple(const Tuple &tuple, llvm::Value *lane) {
    Tuple result;
    for (llvm::Value *value : tuple) result.push_back(shuffle(block_, value, lane));
    return result;
  }
  void prepend(uint64_t key, const Tuple &prefix, llvm::Value *unless) {
    for (uint64_t reg : members(key)) {
      Tuple combined = combine_(prefix, values_[reg]);
      values_[reg] = unless ? select(unless, values_[reg], combined) : combined;
    }
  }

  void inRegisters(const std::vector<AxisBit> &bits) {
    uint64_t mask = 0;
    AxisPlaces along;
    along.registers = bits;
    for (const AxisBit &bit : bits) mask |= uint64_t(1) << bit.place;
    std::vector<uint64_t> order = along.registersInOrder();
    if (reverse_) std::reverse(order.begin(), order.end());
    std::map<uint64_t, Tuple> totals;
    for (const auto &[base, unused] : totals_) {
      if (base & mask) continue;
      Tuple prefix;
      for (uint64_t step : order) {
        uint64_t key = base | step;
        if (prefix.empty()) {
          prefix = totals_[key];
        } else if (first_) {
          // The block is one element: its scan is the next prefix.
          prefix = values_[key] = combine_(prefix, values_[key]);
        } else {
          prepend(key, prefix, nullptr);
          prefix = combine_(prefix, totals_[key]);
        }
      }
      totals[base] = prefix;
    }
    totals_ = std::move(totals);
    registersDone_ |= mask;
  }

  void amongLanes(const std::vector<AxisBit> &bits, bool last) {
    llvm::Value *lane = block_.lane;
    uint32_t mask = 0;
    for (const AxisBit &bit : bits) mask |= 1u << bit.place;
    // In reverse the lane with all bits set is the first one.
    llvm::Value *own = b_.CreateAnd(lane, b_.getInt32(mask)), *others = b_.CreateAnd(lane, b_.getInt32(~mask));
    llvm::Value *isFirst = b_.CreateICmpEQ(own, b_.getInt32(reverse_ ? mask : 0));
    llvm::Value *before = reverse_ ? b_.CreateAdd(b_.CreateOr(own, b_.getInt32(~mask)), b_.getInt32(1))
                                   : b_.CreateSub(own, b_.getInt32(1));
    before = b_.CreateOr(b_.CreateAnd(before, b_.getInt32(mask)), others);
    for (auto &[key, total] : totals_) {
      Tuple scanned = total;
      uint32_t lower = 0;
      for (const AxisBit &bit : bits) {
        uint32_t here = 1u << bit.place;
        // The later half of a pair of blocks takes the total of the earlier one, which its last lane has.
        llvm::Value *from = b_.CreateAnd(lane, b_.getInt32(~(here | lower)));
        from = b_.CreateOr(from, b_.getInt32(reverse_ ? here : lower));
        llvm::Value *isSet = b_.CreateICmpNE(b_.CreateAnd(lane, b_.getInt32(here)), b_.getInt32(0));
        Tuple combined = combine_(shuffleTuple(scanned, from), scanned);
        scanned = reverse_ ? select(isSet, scanned, combined) : select(isSet, combined, scanned);
        lower |= here;
      }
      if (first_)
        values_[key] = scanned;
      else
        prepend(key, shuffleTuple(scanned, before), isFirst);
      if (!last) total = shuffleTuple(scanned, b_.CreateOr(others, b_.getInt32(reverse_ ? 0 : mask)));
    }
  }

  void amongWarps(const std::vector<AxisBit> &bits, bool last) {
    // Rows of the exchange: what is left of the tensor when the axis bits done so far, and these, are taken out.
    uint64_t taken = axisDone_;
    for (const AxisBit &bit : bits) taken |= uint64_t(1) << bit.axis;
    const LinearLayout::Out &axis = layout_.out(dimName(axis_));
    std::vector<LinearLayout::In> ins = layout_.ins();
    for (LinearLayout::In &in : ins)
      for (uint64_t &basis : in.bases)
        for (int bit = axis.bits - 1; bit >= 0; --bit)
          if (taken >> bit & 1) {
            uint64_t low = basis & ((uint64_t(1) << (axis.shift + bit)) - 1);
            basis = low | (basis >> (axis.shift + bit + 1)) << (axis.shift + bit);
          }
    int rowBits = layout_.totalOutBits() - std::popcount(taken);
    LinearLayout rest = LinearLayout(ins, {{"dim0", int64_t(1) << rowBits}}).removeZeroBases(kRegister);

    std::vector<Tuple> rows;
    for (const auto &[key, total] : totals_) rows.push_back(total);
    llvm::SmallVector<llvm::SmallVector<Tuple, 16>, 16> all = gatherWarps(block_, rest, bits, rows);
    // The own warp's number along the axis.
    llvm::Value *position = b_.getInt32(0);
    for (size_t i = 0; i < bits.size(); ++i) {
      llvm::Value *bit = b_.CreateAnd(b_.CreateLShr(block_.warp, b_.getInt32(uint32_t(bits[i].place))), b_.getInt32(1));
      position = b_.CreateOr(position, b_.CreateShl(bit, b_.getInt32(uint32_t(i))));
    }
    size_t count = size_t(1) << bits.size(), row = 0;
    for (auto &[key, total] : totals_) {
      llvm::ArrayRef<Tuple> warps = all[row++];
      auto inOrder = [&](size_t i) { return reverse_ ? count - 1 - i : i; };
      Tuple running = warps[inOrder(0)], prefix = running;
      for (size_t i = 1; i < count; ++i) {
        if (i > 1) {
          llvm::Value *here = b_.CreateICmpEQ(position, b_.getInt32(uint32_t(inOrder(i))));
          prefix = select(here, running, prefix);
        }
        if (i + 1 < count || !last) running = combine_(running, warps[inOrder(i)]);
      }
      prepend(key, prefix, b_.CreateICmpEQ(position, b_.getInt32(uint32_t(inOrder(0)))));
      total = running;
    }
  }

  BlockContext &block_;
  llvm::IRBuilder<> &b_;
  LinearLayout layout_;
  int axis_;
  bool reverse_;
  Combine combine_;
  std::vector<Tuple> values_;        // by register
  std::map<uint64_t, Tuple> totals_; // by register, with the bits of registersDone_ 0
  uint64_t registersDone_ = 0, axisDone_ = 0;
  bool first_ = true; // no run is done: every total is the element itself
};

} // namespace

llvm::SmallVector<Tile, 2> scanTiles(BlockContext &block, llvm::ArrayRef<Tile> operands, int axis, bool reverse,
                                     Combine combine) {
  llvm::SmallVector<Tile, 2> results = withSeparateAxis(block, operands, axis, /*lanesInOrder=*/true);
  Scan scan(block, results, axis, reverse, combine);
  scan.run();
  for (size_t i = 0; i < results.size(); ++i) {
    for (size_t reg = 0; reg < results[i].values.size(); ++reg) results[i].values[reg] = scan.value(reg)[i];
    results[i] = convertTile(block, results[i], operands[i].layout);
  }
  return results;
}

} // namespace neso::nvidia
