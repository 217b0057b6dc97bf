// The interpreter on the dialect ttg: rings of tiles in shared memory, whose value is all their slots, one behind
// another, and sorts.
#include "base/diagnostics/tile.h"
#include "ir/tile/interp_impl.h"
#include "ir/tile/placed.h"

#include <algorithm>
#include <numeric>

using namespace mlir;

namespace neso::tile {

namespace {
/// Rows of `sources` (unsigned numbers of `bits[k]` bits) along an axis of `length` elements that lie `stride` apart,
/// sorted.
std::vector<Lanes> sortedRows(ArrayRef<const Lanes *> sources, ArrayRef<unsigned> bits, int64_t length,
                              int64_t stride) {
  std::vector<Lanes> out;
  for (const Lanes *l : sources) out.push_back(*l);
  auto number = [&](size_t k, int64_t at) { return uint64_t((*sources[k])[at].i) << (64 - bits[k]); };
  const int64_t rows = int64_t(sources[0]->size()) / length;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row / stride * stride * length + row % stride;
    std::vector<int64_t> order(static_cast<size_t>(length));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      for (size_t k = 0; k < sources.size(); ++k) {
        const uint64_t x = number(k, first + a * stride), y = number(k, first + b * stride);
        if (x != y) return x < y;
      }
      return false;
    });
    for (size_t k = 0; k < sources.size(); ++k)
      for (int64_t i = 0; i < length; ++i)
        out[k][first + i * stride] = (*sources[k])[first + order[size_t(i)] * stride];
  }
  return out;
}
} // namespace

bool Machine::slotOfRing(Operation *op, Value ring, Value slot, int64_t &number) {
  number = get(slot)[0].i;
  const int64_t slots = cast<ttg::RingType>(ring.getType()).getSlots();
  return (number >= 0 && number < slots) ||
         fault(diag::TileOutOfBounds, op, programName(), fmt::format("uses slot {}", number), fmt::format("a ring of {} slots", slots));
}

void Machine::putInSlot(Value ring, int64_t slot, const Lanes &tile) {
  std::copy(tile.begin(), tile.end(), get(ring).begin() + slot * int64_t(tile.size()));
}

bool Machine::beginCopy(ttg::AsyncCopyOp copy) {
  RankedTensorType type = copy.getRing().getType().getTileType();
  Copy entry{copy.getRing(), 0, Lanes(size_t(type.getNumElements()), slotOf(int64_t(0)))};
  if (!slotOfRing(copy, copy.getRing(), copy.getSlot(), entry.slot)) return false;
  const Lanes &ptr = get(copy.getPtr()), &mask = get(copy.getMask());
  for (size_t i = 0; i < entry.tile.size(); ++i)
    if (mask[i].i && !load(copy, ptr[i].i, type.getElementType(), entry.tile[i])) return false;
  copies_.back().push_back(std::move(entry));
  return true;
}

void Machine::awaitCopies(int64_t pending) {
  while (copies_.size() > size_t(pending) + 1) {
    for (const Copy &copy : copies_.front()) putInSlot(copy.ring, copy.slot, copy.tile);
    copies_.erase(copies_.begin());
  }
}

bool Machine::loadLocal(ttg::LocalLoadOp ld) {
  RankedTensorType whole = ld.getRing().getType().getTileType(), part = cast<RankedTensorType>(ld.getResult().getType());
  int64_t slot = 0, size = whole.getNumElements();
  if (!slotOfRing(ld, ld.getRing(), ld.getSlot(), slot)) return false;
  const Lanes &ring = get(ld.getRing());
  Lanes out(size_t(part.getNumElements()));
  for (int64_t i = 0; i < int64_t(out.size()); ++i) {
    // The index in the part, last dim fastest, becomes one in the whole tile.
    int64_t rest = i, stride = 1, at = 0;
    for (int64_t d = part.getRank() - 1; d >= 0; --d) {
      at += (rest % part.getDimSize(d) + (ld.getOffsets() ? (*ld.getOffsets())[size_t(d)] : 0)) * stride;
      rest /= part.getDimSize(d);
      stride *= whole.getDimSize(d);
    }
    out[size_t(i)] = ring[size_t(slot * size + at)];
  }
  set(ld, std::move(out));
  return true;
}

void Machine::sortRows(ttg::SortOp sort) {
  SmallVector<const Lanes *> sources;
  SmallVector<unsigned> bits;
  for (Value v : sort.getSrcs()) {
    sources.push_back(&get(v));
    bits.push_back(cast<RankedTensorType>(v.getType()).getElementTypeBitWidth());
  }
  ArrayRef<int64_t> shape = cast<RankedTensorType>(sort.getSrcs()[0].getType()).getShape();
  int64_t stride = 1;
  for (size_t d = sort.getAxis() + 1; d < shape.size(); ++d) stride *= shape[d];
  std::vector<Lanes> out = sortedRows(sources, bits, shape[sort.getAxis()], stride);
  for (auto [result, o] : llvm::zip_equal(sort.getResults(), out)) set(result, std::move(o));
}

bool Machine::executeShared(Operation *op, bool &known) {
  known = true;
  // Every write is seen at once here, a product is complete when it has been begun, and what a ring holds is kept.
  if (isa<placed::FenceAsyncOp, ttg::LocalDeallocOp>(op)) return true;
  if (ttg::LocalAllocOp alloc = dyn_cast<ttg::LocalAllocOp>(op)) {
    ttg::RingType type = alloc.getRing().getType();
    set(alloc, Lanes(size_t(type.getSlots() * type.getTileType().getNumElements())));
    return true;
  }
  if (isa<placed::ConvertLayoutOp, placed::PlaceOp, placed::WaitProductsOp>(op)) {
    for (auto [given, taken] : llvm::zip(op->getResults(), op->getOperands())) set(given, Lanes(get(taken)));
    return true;
  }
  if (placed::LocalStoreOp store = dyn_cast<placed::LocalStoreOp>(op)) {
    int64_t slot = 0;
    if (!slotOfRing(op, store.getRing(), store.getSlot(), slot)) return false;
    putInSlot(store.getRing(), slot, get(store.getSrc()));
    return true;
  }
  if (ttg::AsyncCopyOp copy = dyn_cast<ttg::AsyncCopyOp>(op)) return beginCopy(copy);
  if (isa<ttg::AsyncCommitOp>(op)) return copies_.emplace_back(), true;
  if (ttg::AsyncWaitOp wait = dyn_cast<ttg::AsyncWaitOp>(op)) return awaitCopies(wait.getPending()), true;
  if (ttg::LocalLoadOp ld = dyn_cast<ttg::LocalLoadOp>(op)) return loadLocal(ld);
  if (ttg::SortOp sort = dyn_cast<ttg::SortOp>(op)) return sortRows(sort), true;
  return executeBarriers(op, known);
}

} // namespace neso::tile
