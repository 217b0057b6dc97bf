// Rings of tiles in shared memory, which the software pipeline fills ahead (pipeline.h): copies by cp.async.
#include "backend/nvidia/emitter.h"
#include "backend/nvidia/matrix.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace neso::nvidia {

using llvm::Value;

void Emitter::emitRing(mlir::Operation *op) {
  auto alloc = llvm::cast<ttg::LocalAllocOp>(op);
  ttg::RingType type = alloc.getRing().getType();
  llvm::ArrayRef<int64_t> shape = type.getShape().drop_front();
  llvm::Type *element = typeOf(type.getElementType());
  LinearLayout layout = dotBuffer(chip_, Sizes(shape.begin(), shape.end()), static_cast<int>(alloc.getFast()),
                                  static_cast<int>(8 * sharedBytes(element)));
  const bool copied = isCopiedInto(alloc.getRing());
  SharedTile ring{
      shared_.allocate(slotBytes(alloc) * type.getSlots(), copied ? "software pipeline" : "operand of a loop's products"), layout,
      element};
  ring.synchronised = copied;
  // Copies wait for nobody: whoever still uses these bytes for something else has left them from here on.
  if (copied) shared_.beforeWrite(block_, ring.buffer);
  rings_[alloc.getRing()] = std::move(ring);
}

void Emitter::emitLocalStore(mlir::Operation *op) {
  auto store = llvm::cast<placed::LocalStoreOp>(op);
  storeShared(block_, tile(store.getSrc()), slotOf(store.getRing(), store.getSlot()));
}

void Emitter::emitRingEnd(mlir::Operation *op) { shared_.release(rings_.find(op->getOperand(0))->second.buffer); }

SharedTile Emitter::slotOf(mlir::Value ring, mlir::Value slot) {
  SharedTile tile = rings_.find(ring)->second;
  if (llvm::cast<ttg::RingType>(ring.getType()).getSlots() > 1)
    tile.byteOffset = b.CreateMul(scalar(slot), b.getInt32(static_cast<uint32_t>(slotBytes(ring.getDefiningOp<ttg::LocalAllocOp>()))));
  return tile;
}

void Emitter::emitAsyncCopy(mlir::Operation *op) {
  auto copy = llvm::cast<ttg::AsyncCopyOp>(op);
  mlir::Type element = copy.getRing().getType().getElementType();
  SharedTile to = slotOf(copy.getRing(), copy.getSlot());
  LayoutRef layout = layoutOf(copy.getPtr());
  const Groups groups = accessGroups(op, layout);
  const int64_t bytes = groups.width * bytesOf(element);
  if (bytes < 4) return fail(op, "an asynchronous copy of less than 4 bytes");
  // 16 bytes pass by the first-level cache: what is in shared memory need not be there too.
  const std::string text = std::string(bytes == 16 ? "cp.async.cg" : "cp.async.ca") + ".shared.global [$0], [$1], " + std::to_string(bytes) + ", $2;";
  llvm::SmallVector<std::pair<Value *, Value *>, 16> sources;
  for (const auto &group : groups.registers)
    sources.emplace_back(this->element(copy.getPtr(), group[0]), this->element(copy.getMask(), group[0]));
  auto addresses = std::make_shared<SharedAddresses>(block_, to, *layout->invertAndCompose(to.layout));
  // Of a masked element no byte is read, and zeros are written. The instruction has a predicate for that; asked for by a size of 0, which is what
  // the intrinsic has, it is compared anew for each copy.
  auto copy1 = [this, text, addresses](uint64_t reg, Value *from, Value *mask) {
    statement(text, {b.CreatePtrToInt(addresses->of(reg), b.getInt32Ty()), from, b.CreateNot(mask)});
  };
  Value *owns = ownsElements(block_, *layout);
  const bool defer = !owns && productFollows(op);
  emitWhen(block_, owns, [&] {
    for (size_t i = 0; i < sources.size(); ++i) {
      auto emit = [copy1, reg = static_cast<uint64_t>(groups.registers[i][0]), from = sources[i].first,
                   mask = sources[i].second] { copy1(reg, from, mask); };
      if (defer)
        block_.later.push_back(emit);
      else
        emit();
    }
  });
}

void Emitter::emitAsyncCommit() {
  auto commit = [this] { b.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_commit_group, {}); };
  // After the copies of its group.
  if (block_.later.empty())
    commit();
  else
    block_.later.push_back(commit);
}

/// Whether an operand of a product comes from a ring as it is.
static bool readsRing(mlir::Value v) {
  mlir::Value ring = ringOf(v);
  return ring && isCopiedInto(ring);
}

bool Emitter::productFollows(mlir::Operation *op) {
  // One that is under way already is what they begin beside.
  for (mlir::Operation *before = op->getPrevNode(); before && !llvm::isa<ttg::AsyncWaitOp>(before); before = before->getPrevNode())
    if (before->hasAttr(placed::kOpenAttr)) return false;
  while ((op = op->getNextNode())) {
    if (auto dot = llvm::dyn_cast<tt::DotOp>(op))
      return planOf(dot).traits().besideThreads || travelsInWords(operandSource(dot.getA())) ||
             (leavesRegisters(planOf(dot)) && readsRing(dot.getA()) && readsRing(dot.getB()));
    if (op->getNumRegions() || llvm::isa<ttg::AsyncWaitOp>(op)) return false;
  }
  return false;
}

void Emitter::emitAsyncWait(mlir::Operation *op) {
  NESO_CHECK(block_.later.empty(), "a product takes the copies that were left to it");
  b.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_wait_group,
                    {b.getInt32(llvm::cast<ttg::AsyncWaitOp>(op).getPending())});
  // A thread waits for its own copies only; the barrier brings those of the others, and says that all have left the
  // slot filled next.
  emitBarrier(block_);
}

void Emitter::emitLocalLoad(mlir::Operation *op) {
  auto load = llvm::cast<ttg::LocalLoadOp>(op);
  SharedTile from = slotOf(load.getRing(), load.getSlot());
  LayoutRef layout = layoutOf(load.getResult());
  if (load.getOffsets()) {
    define(load.getResult(), loadPart(load, from));
    return;
  }
  loaded_[load.getResult()] = from;
  if (isReadByProductsAlone(load, chip_, block_.warps)) return;
  // Waits as planned (allocate.cpp), also of a ring whose copies were waited for: control flow may have met in between.
  from.synchronised = false;
  // Where it lies as an operand of a product, arithmetic is done there.
  if (std::optional<Tile> inMatrices = loadMatrices(block_, from, *layout))
    define(load.getResult(), *inMatrices);
  else
    define(load.getResult(), loadShared(block_, from, *layout));
}

Tile Emitter::loadPart(ttg::LocalLoadOp load, SharedTile from) {
  // The offset of the part's first element, from its index.
  const LinearLayout offsets = from.layout.invert();
  uint64_t index = 0;
  for (auto [dim, at] : llvm::enumerate(*load.getOffsets()))
    index |= static_cast<uint64_t>(at) << from.layout.out(dimName(static_cast<int>(dim))).shift;
  for (const LinearLayout::In &in : offsets.ins())
    for (size_t bit = 0; bit < in.bases.size(); ++bit)
      if (index >> (from.layout.out(in.name).shift + static_cast<int>(bit)) & 1) from.flip ^= in.bases[bit];
  return MatrixLoader(block_, from, *layoutOf(load.getResult()), -1).tile();
}

const DotPlan &Emitter::planOf(tt::DotOp dot) {
  std::unique_ptr<DotPlan> &plan = plans_[dot];
  if (!plan) plan = std::make_unique<DotPlan>(*placedPlan(dot, chip_, block_.warps));
  return *plan;
}

std::optional<SharedTile> Emitter::sharedOperand(mlir::Value v) {
  if (auto found = loaded_.find(v); found != loaded_.end()) return found->second;
  auto turned = v.getDefiningOp<tt::TransOp>();
  if (!turned) return std::nullopt;
  auto found = loaded_.find(turned.getSrc());
  if (found == loaded_.end()) return std::nullopt;
  SharedTile tile = found->second;
  tile.layout = transposeTensor(tile.layout, std::vector<int>(turned.getOrder().begin(), turned.getOrder().end()));
  return tile;
}

} // namespace neso::nvidia
