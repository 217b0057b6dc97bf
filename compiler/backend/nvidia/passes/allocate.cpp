#include "backend/nvidia/passes/allocate.h"

#include <bit>

#include "backend/common/opcodes.h"
#include "backend/nvidia/dot.h"
#include "backend/nvidia/move.h"
#include "backend/nvidia/passes/producer.h"
#include "backend/nvidia/passes/verify.h"
#include "backend/nvidia/tcgen05.h"
#include "base/diagnostics/backend.h"
#include "ir/layout/axis.h"
#include "ir/layout/convert.h"

using namespace mlir;

namespace neso::nvidia {

namespace {

using Kind = SharedUse::Kind;

/// What one operation does, put together.
class Uses {
public:
  Uses(Operation *op, const Chip &chip, int warps) : op_(op), chip_(chip), warps_(warps) {}

  std::vector<SharedUse> collect() {
    switch (codeOf(op_)) {
    case OpCode::ConvertLayout:
      if (movesThroughShared(layout(0), *placed::layoutOf(op_->getResult(0)), static_cast<int>(8 * bytesOf(0))))
        exchange(bytesOf(0) << layout(0).totalOutBits(), "layout conversion");
      break;
    case OpCode::Reduce: {
      const size_t bits = axisPlaces(layout(0), axis())->warps.size();
      if (bits) amongWarps(sliceLayout(layout(0), axis()).totalOutBits() + static_cast<int>(bits));
      break;
    }
    case OpCode::Scan: scan(); break;
    case OpCode::Sort: sort(); break;
    case OpCode::Dot: product(cast<tt::DotOp>(op_)); break;
    case OpCode::Gather: exchange(bytesOf(0) << layout(0).totalOutBits(), "source of gather"); break;
    case OpCode::Histogram: {
      // One bin more than asked for takes what does not count.
      const int64_t bins = cast<RankedTensorType>(op_->getResult(0).getType()).getNumElements();
      const int own = allocate(4 * (bins + 1), "bins of a histogram");
      write(own), write(own), read(own), release(own);
      break;
    }
    case OpCode::AtomicRmw:
    case OpCode::AtomicCas:
    case OpCode::AtomicLoad:
    case OpCode::AtomicStore: atomic(); break;
    case OpCode::Barrier:
    case OpCode::GpuBarrier:
      if (turnOf(op_) == Turn::None) wait();
      break;
    case OpCode::AsyncWait: wait(); break;
    case OpCode::LocalAlloc: {
      ttg::LocalAllocOp alloc = cast<ttg::LocalAllocOp>(op_);
      ttg::RingType type = alloc.getRing().getType();
      const bool copied = isCopiedInto(alloc.getRing());
      const int64_t bytes = type.getSlots() * slotBytes(alloc);
      uses_.push_back(
          {Kind::Allocate, -1, alloc.getRing(), bytes, copied ? "software pipeline" : "operand of a loop's products",
           chip_.readsPanels() ? kPanelAlign : 16});
      // Copies wait for nobody: whoever still uses these bytes for something else has left them from here on.
      if (copied) uses_.push_back({Kind::Write, -1, alloc.getRing()});
      break;
    }
    case OpCode::Barriers:
      // One thread makes them; a wait of the block stands behind (rule N13).
      uses_.push_back({Kind::Allocate, -1, op_->getResult(0), kBarrierBytes * cast<ttg::BarriersOp>(op_).getBarriers().getType().getSlots(),
                       "barriers of a software pipeline"});
      uses_.push_back({Kind::Write, -1, op_->getResult(0)});
      break;
    case OpCode::EndBarriers:
      uses_.push_back({Kind::Write, -1, op_->getOperand(0)});
      uses_.push_back({Kind::Release, -1, op_->getOperand(0)});
      break;
    case OpCode::LocalDealloc: uses_.push_back({Kind::Release, -1, op_->getOperand(0)}); break;
    case OpCode::LocalStore: uses_.push_back({Kind::Write, -1, op_->getOperand(1)}); break;
    case OpCode::LocalLoad: {
      ttg::LocalLoadOp load = cast<ttg::LocalLoadOp>(op_);
      const bool waited = load.getOffsets() && isCopiedInto(load.getRing());
      if (!waited && !isReadByProductsAlone(load, chip_, warps_)) uses_.push_back({Kind::Read, -1, load.getRing()});
      break;
    }
    default: break;
    }
    return std::move(uses_);
  }

private:
  const LinearLayout &layout(unsigned operand) { return *placed::layoutOf(op_->getOperand(operand)); }
  int axis() { return static_cast<int>(op_->getAttrOfType<IntegerAttr>("axis").getInt()); }
  static int64_t elementBytes(Type type) {
    return type.isIntOrFloat() ? std::max<int64_t>(8, type.getIntOrFloatBitWidth()) / 8 : 8;
  }
  int64_t bytesOf(unsigned operand) { return elementBytes(getElementTypeOrSelf(op_->getOperand(operand).getType())); }

  int allocate(int64_t bytes, const char *what, int64_t align = 16) {
    uses_.push_back({Kind::Allocate, buffers_, {}, bytes, what, align});
    return buffers_++;
  }
  void write(int own) { uses_.push_back({Kind::Write, own, {}}); }
  void read(int own) { uses_.push_back({Kind::Read, own, {}}); }
  void release(int own) { uses_.push_back({Kind::Release, own, {}}); }
  void wait() { uses_.push_back({Kind::Wait, -1, {}}); }
  void exchange(int64_t bytes, const char *what) {
    const int own = allocate(bytes, what);
    write(own), read(own), release(own);
  }

  /// One element of each operand a warp, or more.
  void amongWarps(int elementBits) {
    SmallVector<int, 2> own;
    for (unsigned i = 0; i < op_->getNumOperands(); ++i) {
      own.push_back(allocate(bytesOf(i) << elementBits, "exchange of warps"));
      write(own.back());
    }
    for (int buffer : own) read(buffer);
    for (int buffer : own) release(buffer);
  }

  void scan() {
    // Runs of neighbouring axis bits that are all in registers, lanes or warps.
    const AxisPlaces places = *axisPlaces(layout(0), axis());
    std::vector<std::pair<int, bool>> bits; // of the axis; whether in warps
    for (const AxisBit &bit : places.registers) bits.emplace_back(bit.axis, false);
    for (const AxisBit &bit : places.lanes) bits.emplace_back(bit.axis, false);
    for (const AxisBit &bit : places.warps) bits.emplace_back(bit.axis, true);
    std::sort(bits.begin(), bits.end());
    for (size_t i = 0; i < bits.size();) {
      size_t end = i;
      while (end < bits.size() && bits[end].second == bits[i].second) ++end;
      // The axis bits done so far and these are taken out of the rows; these are beside them.
      if (bits[i].second) amongWarps(layout(0).totalOutBits() - static_cast<int>(end) + static_cast<int>(end - i));
      i = end;
    }
  }

  void sort() {
    // As the network in sort.cpp: bit k of a row is in warps when it stands behind those in registers and lanes.
    const AxisPlaces places = *axisPlaces(layout(0), axis());
    const size_t inside = places.registers.size() + places.lanes.size(), all = inside + places.warps.size();
    auto step = [&](size_t highest) {
      if (highest < inside) return;
      for (unsigned i = 0; i < op_->getNumOperands(); ++i)
        exchange(bytesOf(i) * warps_ * 32 * layout(0).inSize(kRegister), "exchange of a sort");
    };
    auto halves = [&](size_t count) {
      for (size_t bit = count; bit-- > 0;) step(bit);
    };
    if (cast<ttg::SortOp>(op_).getBitonic()) return halves(all);
    for (size_t phase = 1; phase <= all; ++phase) {
      step(phase - 1);
      halves(phase - 1);
    }
  }

  void product(tt::DotOp dot) {
    const DotPlan plan = *placedPlan(dot, chip_, warps_);
    SmallVector<int, 2> own(2, -1);
    SmallVector<Value, 2> rings(2);
    for (unsigned i : {0u, 1u}) {
      rings[i] = readsShared(plan, dot) ? ringOf(dot->getOperand(i)) : Value();
      if (rings[i]) continue;
      const LinearLayout *taken = plan.operandIn(i == 0);
      if (taken && conversion(layout(i), *taken).move <= Move::Registers) continue;
      const Type element = i == 0 ? plan.types.a : plan.types.b;
      own[i] = allocate(elementBytes(element) << layout(i).totalOutBits(), "operand of a product");
      write(own[i]);
    }
    auto readOperands = [&](Kind kind) {
      for (unsigned i : {0u, 1u})
        if (own[i] >= 0)
          uses_.push_back({kind, own[i], {}});
        else if (rings[i] && !isCopiedInto(rings[i]))
          uses_.push_back({kind, -1, rings[i]});
    };
    readOperands(Kind::Read);
    const RankedTensorType b = cast<RankedTensorType>(dot.getB().getType());
    SmallVector<int, 2> low;
    for (int64_t panels = panelsOf(plan, b.getDimSize(0)), panel = 0; panel < panels; ++panel) {
      low.push_back(allocate(4 * b.getNumElements() / panels, "low parts of an operand", kPanelAlign));
      write(low.back()), read(low.back());
    }
    for (int buffer : low) release(buffer);
    // Steps along K read again.
    if (!plan.traits().onTensorCores) readOperands(Kind::Read);
    // The left operand's words are read in turns with those of the right one, so behind what that one waits for.
    readOperands(Kind::ReadOn);
    for (int buffer : own)
      if (buffer >= 0) release(buffer);
  }

  void atomic() {
    tt::MemSemantic sem = tt::MemSemantic::RELAXED;
    if (auto op = dyn_cast<tt::AtomicRMWOp>(op_)) sem = op.getSem();
    if (auto op = dyn_cast<tt::AtomicCASOp>(op_)) sem = op.getSem();
    if (auto op = dyn_cast<tt::AtomicLoadOp>(op_)) sem = op.getSem();
    if (auto op = dyn_cast<tt::AtomicStoreOp>(op_)) sem = op.getSem();
    const bool both = sem == tt::MemSemantic::ACQUIRE_RELEASE;
    if (both || sem == tt::MemSemantic::RELEASE) wait();
    if (op_->getNumResults() > 0 && !op_->getResult(0).use_empty()) {
      // A scalar is held by all threads, one of which updates memory.
      const LinearLayout *placed = placed::layoutOf(op_->getResult(0));
      const int64_t bytes = elementBytes(getElementTypeOrSelf(op_->getResult(0).getType()));
      if (placed ? placed->freeMask(kWarp) != 0 : warps_ > 1)
        exchange(bytes << (placed ? placed->totalOutBits() : 0), "results of atomics");
    }
    if (both || sem == tt::MemSemantic::ACQUIRE) wait();
  }

  Operation *op_;
  const Chip &chip_;
  int warps_;
  std::vector<SharedUse> uses_;
  int buffers_ = 0;
};

/// Walks a function in the order of its code, and tells where control flow meets.
template <class OnOp, class OnMeeting> void walkInOrder(Block &block, OnOp &onOp, OnMeeting &onMeeting) {
  for (Operation &op : block) {
    onOp(&op);
    if (isa<tt::ReduceOp, tt::ScanOp, tt::MapElementwiseOp, ttg::ByOneThreadOp>(op) || op.getNumRegions() == 0) continue;
    for (Region &region : op.getRegions()) {
      onMeeting();
      if (!region.empty()) walkInOrder(region.front(), onOp, onMeeting);
    }
    onMeeting();
  }
}
template <class OnOp, class OnMeeting> void walkInOrder(tt::FuncOp function, OnOp onOp, OnMeeting onMeeting) {
  for (Block &block : function.getBody()) {
    if (!block.isEntryBlock()) onMeeting();
    walkInOrder(block, onOp, onMeeting);
  }
}

} // namespace

std::vector<SharedUse> sharedUses(Operation *op, const Chip &chip, int warps) {
  return Uses(op, chip, warps).collect();
}

SharedUsage allocateShared(tt::FuncOp function, const Chip &chip) {
  const int warps = warpsOf(function);
  SharedSchedule plan;
  llvm::DenseMap<Value, SharedBuffer> rings;
  Builder b(function.getContext());
  auto place = [&](Operation *op) {
    const std::vector<SharedUse> uses = sharedUses(op, chip, warps);
    if (uses.empty()) return;
    std::vector<SharedBuffer> own;
    SmallVector<int64_t> offsets;
    SmallVector<int32_t> waits;
    int32_t access = 0;
    for (const SharedUse &use : uses) {
      auto buffer = [&]() -> SharedBuffer & { return use.ring ? rings[use.ring] : own[size_t(use.own)]; };
      switch (use.kind) {
      case Kind::Allocate: {
        const SharedBuffer made = plan.allocate(use.bytes, use.what, use.align);
        offsets.push_back(made.offset);
        if (use.ring)
          rings[use.ring] = made;
        else
          own.push_back(made);
        break;
      }
      case Kind::Write:
        if (plan.write(buffer())) waits.push_back(access);
        ++access;
        break;
      case Kind::Read:
        if (plan.read(buffer())) waits.push_back(access);
        ++access;
        break;
      case Kind::ReadOn: plan.read(buffer()); break; // it has waited
      case Kind::Release: plan.release(buffer()); break;
      case Kind::Wait: plan.synchronised(); break;
      }
    }
    if (!offsets.empty()) op->setAttr(placed::kSharedAttr, b.getDenseI64ArrayAttr(offsets));
    if (access > 0) op->setAttr(placed::kWaitsAttr, b.getDenseI32ArrayAttr(waits));
  };
  walkInOrder(function, place, [&] { plan.enterUnknown(); });
  const int64_t products = planTensorMemory(function, chip).sharedBytes(), size = products ? (plan.size() + 15) / 16 * 16 + products : plan.size();
  function->setAttr(placed::kSharedBytesAttr, b.getI64IntegerAttr(size));
  return {size, plan.peak()};
}

Status verifyShared(tt::FuncOp function, const Chip &chip) {
  const int warps = warpsOf(function);
  std::optional<Error> error;
  auto refuse = [&](Operation *op, const std::string &rule) {
    if (error) return;
    SourceLoc loc = sourceLoc(op->getLoc());
    const std::string name = op->getName().getStringRef().str();
    if (!loc.known()) loc.context = name;
    error = fail(diag::NvidiaNotPlaced, loc, name + " " + rule);
  };
  auto size = function->getAttrOfType<IntegerAttr>(placed::kSharedBytesAttr);
  if (!size) {
    refuse(function, "N8: has no placed.shared_bytes");
    return std::move(*error);
  }
  const int64_t end = size.getInt() - planTensorMemory(function, chip).sharedBytes();
  SharedSchedule plan;
  std::vector<SharedBuffer> live;
  llvm::DenseMap<Value, SharedBuffer> rings;
  auto check = [&](Operation *op) {
    if (error) return;
    const std::vector<SharedUse> uses = sharedUses(op, chip, warps);
    auto offsets = op->getAttrOfType<DenseI64ArrayAttr>(placed::kSharedAttr);
    auto waits = op->getAttrOfType<DenseI32ArrayAttr>(placed::kWaitsAttr);
    std::vector<SharedBuffer> own;
    int32_t access = 0;
    int64_t made = 0;
    for (const SharedUse &use : uses) {
      if (error) return;
      auto buffer = [&]() -> SharedBuffer & { return use.ring ? rings[use.ring] : own[size_t(use.own)]; };
      switch (use.kind) {
      case Kind::Allocate: {
        if (!offsets || made >= offsets.size()) return refuse(op, "N8: has a buffer without an offset");
        SharedBuffer b{offsets[made++], std::max<int64_t>(use.bytes, 1), use.what};
        if (b.offset < 0 || b.offset % use.align || b.offset + b.bytes > end)
          return refuse(op, "N8: has a buffer outside the function's shared memory");
        for (const SharedBuffer &other : live)
          if (overlap(b, other)) return refuse(op, "N8: has a buffer on another that is in use");
        live.push_back(b);
        if (use.ring)
          rings[use.ring] = b;
        else
          own.push_back(b);
        break;
      }
      case Kind::Release:
        llvm::erase_if(live, [&](const SharedBuffer &b) { return b.offset == buffer().offset; });
        break;
      case Kind::Write:
      case Kind::Read: {
        const bool waited = waits && llvm::is_contained(waits.asArrayRef(), access);
        if (waited) plan.synchronised();
        if (use.kind == Kind::Write ? plan.write(buffer()) : plan.read(buffer()))
          return refuse(op, "N9: access " + std::to_string(access) + " to shared memory needs a wait before it");
        ++access;
        break;
      }
      case Kind::ReadOn: plan.read(buffer()); break;
      case Kind::Wait: plan.synchronised(); break;
      }
    }
    if ((offsets && made != offsets.size()) || (waits && access == 0) || (!waits && access > 0) ||
        (waits && llvm::any_of(waits.asArrayRef(), [&](int32_t w) { return w < 0 || w >= access; })))
      refuse(op, "N8: has attributes of shared memory that are not of its uses");
  };
  walkInOrder(function, check, [&] { plan.enterUnknown(); });
  if (error) return std::move(*error);
  return Status::ok();
}

} // namespace neso::nvidia
