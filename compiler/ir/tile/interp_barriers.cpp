// The interpreter on barriers in shared memory and the copies that they count. A barrier's value is three numbers a slot:
// phases that have ended, arrivals and bytes that the phase at hand still waits for. All threads of a program are one here,
// so whoever waits for what the program itself has not done waits for ever.
#include <limits>

#include "base/diagnostics/tile.h"
#include "ir/tile/interp_impl.h"
#include "ir/tile/placed.h"

using namespace mlir;

namespace neso::tile {

namespace {
enum : size_t { kPhase, kArrivals, kBytes, kNumbers };

int64_t arrivalsOf(Value barriers) { return int64_t(barriers.getDefiningOp<ttg::BarriersOp>().getArrivals()); }

/// Ends the phase where nothing is left to wait for.
void settle(Slot *barrier, int64_t arrivals) {
  if (barrier[kArrivals].i != 0 || barrier[kBytes].i != 0) return;
  ++barrier[kPhase].i;
  barrier[kArrivals].i = arrivals;
}
} // namespace

Slot *Machine::barrierAt(Operation *op, Value barriers, Value number) {
  const int64_t slots = cast<ttg::BarriersType>(barriers.getType()).getSlots(), at = get(number)[0].i;
  if (at >= 0 && at < slots) return get(barriers).data() + size_t(at) * kNumbers;
  fault(diag::TileOutOfBounds, op, programName(), fmt::format("uses barrier {}", at), fmt::format("{} barriers", slots));
  return nullptr;
}

bool Machine::beginBulkCopy(ttg::BulkCopyOp copy) {
  BulkCopy begun{copy.getRing(), copy.getBarriers(), get(copy.getSlot())[0].i, get(copy.getBarrier())[0].i, 0, {}};
  const int64_t slots = copy.getRing().getType().getSlots();
  if (!barrierAt(copy, copy.getBarriers(), copy.getBarrier())) return false;
  if (begun.slot < 0 || begun.slot >= slots)
    return fault(diag::TileOutOfBounds, copy, programName(), fmt::format("uses slot {}", begun.slot),
                 fmt::format("a ring of {} slots", slots));
  SmallVector<int64_t> indices;
  for (Value v : copy.getIndices()) indices.push_back(get(v)[0].i);
  Lanes box;
  if (!loadBox(copy, copy.getDesc(), indices, box)) return false;
  // The descriptor's last axis is the tile's `fast`.
  RankedTensorType tile = copy.getRing().getType().getTileType();
  const size_t fast = copy.getRing().getDefiningOp<ttg::LocalAllocOp>().getFast();
  // Nobody reads what no box brings: whoever does gets what is no number.
  const Slot nothing = isa<FloatType>(tile.getElementType()) ? slotOf(std::numeric_limits<double>::quiet_NaN()) : slotOf(std::numeric_limits<int64_t>::min() / 3);
  begun.tile.assign(size_t(tile.getNumElements()), nothing);
  begun.bytes = int64_t(box.size()) * tile.getElementTypeBitWidth() / 8;
  SmallVector<int64_t> at(size_t(tile.getRank()), 0), sizes(copy.getDesc().getType().getBlockType().getShape().take_back(tile.getRank()));
  for (const Slot &element : box) {
    int64_t place = 0;
    for (size_t d = 0; d < at.size(); ++d) place = place * tile.getDimSize(unsigned(d)) + at[d];
    begun.tile[size_t(place)] = element;
    for (size_t i = at.size(); i-- > 0;) {
      const size_t d = i + 1 == at.size() ? fast : i < fast ? i : i + 1;
      if (++at[d] < sizes[i]) break;
      at[d] = 0;
    }
  }
  bulkCopies_.push_back(std::move(begun));
  return true;
}

bool Machine::awaitPhase(ttg::AwaitOp await) {
  const int64_t number = get(await.getSlot())[0].i, parity = get(await.getParity())[0].i & 1;
  Slot *barrier = barrierAt(await, await.getBarriers(), await.getSlot());
  if (!barrier) return false;
  if ((barrier[kPhase].i & 1) != parity) return true;
  std::erase_if(bulkCopies_, [&](const BulkCopy &copy) {
    if (copy.barriers != await.getBarriers() || copy.barrier != number) return false;
    Lanes &ring = get(copy.ring);
    std::copy(copy.tile.begin(), copy.tile.end(), ring.begin() + copy.slot * int64_t(copy.tile.size()));
    barrier[kBytes].i -= copy.bytes;
    return true;
  });
  settle(barrier, arrivalsOf(await.getBarriers()));
  return (barrier[kPhase].i & 1) != parity || fault(diag::TileEndless, await, programName());
}

bool Machine::executeBarriers(Operation *op, bool &known) {
  known = true;
  if (ttg::BulkCopyOp copy = dyn_cast<ttg::BulkCopyOp>(op)) return beginBulkCopy(copy);
  if (ttg::AwaitOp await = dyn_cast<ttg::AwaitOp>(op)) return awaitPhase(await);
  if (ttg::BarriersOp made = dyn_cast<ttg::BarriersOp>(op)) {
    Lanes lanes(size_t(made.getBarriers().getType().getSlots()) * kNumbers, slotOf(int64_t(0)));
    for (size_t i = kArrivals; i < lanes.size(); i += kNumbers) lanes[i] = slotOf(int64_t(made.getArrivals()));
    set(made, std::move(lanes));
    return true;
  }
  if (isa<ttg::EndBarriersOp>(op)) {
    for (const BulkCopy &copy : bulkCopies_)
      if (copy.barriers == op->getOperand(0)) return fault(diag::TileEndless, op, programName());
    return true;
  }
  if (ttg::ByOneThreadOp one = dyn_cast<ttg::ByOneThreadOp>(op)) {
    if (!get(one.getCondition())[0].i) return true;
    return llvm::all_of(one.getBody().front(), [&](Operation &inside) { return execute(&inside); });
  }
  if (ttg::ExpectOp expect = dyn_cast<ttg::ExpectOp>(op)) {
    Slot *barrier = barrierAt(op, expect.getBarriers(), expect.getSlot());
    if (!barrier) return false;
    barrier[kBytes].i += int64_t(expect.getBytes());
    --barrier[kArrivals].i;
    settle(barrier, arrivalsOf(expect.getBarriers()));
    return true;
  }
  if (ttg::ArriveOp arrive = dyn_cast<ttg::ArriveOp>(op)) {
    if (arrive.getCondition() && !get(arrive.getCondition())[0].i) return true;
    Slot *barrier = barrierAt(op, arrive.getBarriers(), arrive.getSlot());
    if (!barrier) return false;
    // All warps at once.
    barrier[kArrivals].i = 0;
    settle(barrier, arrivalsOf(arrive.getBarriers()));
    return true;
  }
  known = false;
  return true;
}

} // namespace neso::tile
