// The interpreter on rings of tiles in shared memory. A ring's value is all its slots, one behind another.
#include "base/diagnostics/tile.h"
#include "ir/tile/interp_impl.h"

using namespace mlir;

namespace neso::tile {

bool Machine::executeShared(Operation *op, bool &known) {
  known = true;
  auto slotAt = [&](Value ring, Value slot, int64_t &number) {
    number = get(slot)[0].i;
    int64_t slots = cast<ttg::RingType>(ring.getType()).getSlots();
    return (number >= 0 && number < slots) ||
           fault(diag::TileOutOfBounds, op, programName(), fmt::format("uses slot {}", number),
                 fmt::format("a ring of {} slots", slots));
  };
  if (ttg::LocalAllocOp alloc = dyn_cast<ttg::LocalAllocOp>(op)) {
    ttg::RingType type = alloc.getRing().getType();
    set(alloc, Lanes(size_t(type.getSlots() * type.getTileType().getNumElements())));
    return true;
  }
  if (ttg::AsyncCopyOp copy = dyn_cast<ttg::AsyncCopyOp>(op)) {
    RankedTensorType type = copy.getRing().getType().getTileType();
    Copy entry{copy.getRing(), 0, Lanes(size_t(type.getNumElements()), slotOf(int64_t(0)))};
    if (!slotAt(copy.getRing(), copy.getSlot(), entry.slot)) return false;
    const Lanes &ptr = get(copy.getPtr()), &mask = get(copy.getMask());
    for (size_t i = 0; i < entry.tile.size(); ++i)
      if (mask[i].i && !load(op, ptr[i].i, type.getElementType(), entry.tile[i])) return false;
    copies_.back().push_back(std::move(entry));
    return true;
  }
  if (isa<ttg::AsyncCommitOp>(op)) {
    copies_.emplace_back();
    return true;
  }
  if (ttg::AsyncWaitOp wait = dyn_cast<ttg::AsyncWaitOp>(op)) {
    while (copies_.size() > size_t(wait.getPending()) + 1) {
      for (const Copy &copy : copies_.front()) {
        Lanes &ring = get(copy.ring);
        std::copy(copy.tile.begin(), copy.tile.end(), ring.begin() + copy.slot * int64_t(copy.tile.size()));
      }
      copies_.erase(copies_.begin());
    }
    return true;
  }
  if (ttg::LocalLoadOp ld = dyn_cast<ttg::LocalLoadOp>(op)) {
    int64_t slot = 0, size = ld.getRing().getType().getTileType().getNumElements();
    if (!slotAt(ld.getRing(), ld.getSlot(), slot)) return false;
    const Lanes &ring = get(ld.getRing());
    set(ld, Lanes(ring.begin() + slot * size, ring.begin() + (slot + 1) * size));
    return true;
  }
  if (isa<ttg::LocalDeallocOp>(op)) return true;
  known = false;
  return true;
}

} // namespace neso::tile
