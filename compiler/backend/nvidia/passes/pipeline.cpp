#include "backend/nvidia/passes/pipeline.h"

#include <algorithm>

#include "backend/common/opcodes.h"
#include "backend/nvidia/passes/boxes.h"
#include "backend/nvidia/passes/masks.h"
#include "backend/nvidia/passes/producer.h"
#include "backend/nvidia/passes/resident.h"
#include "ir/tile/attributes.h"
#include "ir/tile/passes/axis_info.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace neso::nvidia {

static bool isZero(Value v) { return !v || matchPattern(v, m_Zero()) || matchPattern(v, m_AnyZeroFloat()); }

bool isCopyable(tt::LoadOp load, const AxisInfoAnalysis &axis, int &fast) {
  RankedTensorType type = dyn_cast<RankedTensorType>(load.getType());
  if (!type || type.getRank() > 3 || load.getIsVolatile() || !isZero(load.getOther())) return false;
  RankedTensorType pointers = dyn_cast<RankedTensorType>(load.getPtr().getType());
  if (!pointers || !type.getElementType().isIntOrFloat() || type.getElementTypeBitWidth() < 8) return false;
  AxisInfo info = axis.get(load.getPtr());
  fast = int(type.getRank()) - 1;
  for (int dim = int(type.getRank()) - 1; dim >= 0; --dim)
    if (info.contiguity[size_t(dim)] > info.contiguity[size_t(fast)]) fast = dim;
  // The ring keeps the last two dims of a batch in one piece each.
  if (fast < int(type.getRank()) - 2) return false;
  return axis.vectorWidth(load.getPtr(), load.getMask(), fast) * type.getElementTypeBitWidth() >= 32;
}

namespace {

/// The loads of the loop's body that an operand of a product is computed from, element by element.
void loadsBehind(Value v, Block *body, llvm::SetVector<tt::LoadOp> &loads) {
  Operation *op = v.getDefiningOp();
  if (!op || op->getBlock() != body || !isa<RankedTensorType>(v.getType())) return;
  if (tt::LoadOp load = dyn_cast<tt::LoadOp>(op)) {
    loads.insert(load);
    return;
  }
  // The operands of another product are that product's.
  if (op->getNumRegions() || !isMemoryEffectFree(op) || isa<tt::DotOp>(op)) return;
  for (Value operand : op->getOperands()) loadsBehind(operand, body, loads);
}

/// Adds the arguments of the function that a pointer may come from; false when it comes from elsewhere.
bool addArgumentsBehind(Value pointer, llvm::SmallDenseSet<Value> &seen, llvm::SmallDenseSet<Value> &arguments) {
  if (!seen.insert(pointer).second) return true;
  if (BlockArgument argument = dyn_cast<BlockArgument>(pointer)) {
    Operation *parent = argument.getOwner()->getParentOp();
    if (isa<tt::FuncOp>(parent)) {
      arguments.insert(argument);
      return argument.getOwner()->isEntryBlock();
    }
    scf::ForOp loop = dyn_cast<scf::ForOp>(parent);
    if (!loop || argument == loop.getInductionVar()) return false;
    const unsigned number = argument.getArgNumber() - 1;
    return addArgumentsBehind(loop.getInitArgs()[number], seen, arguments) &&
           addArgumentsBehind(loop.getBody()->getTerminator()->getOperand(number), seen, arguments);
  }
  Operation *op = pointer.getDefiningOp();
  if (isa<arith::SelectOp>(op))
    return addArgumentsBehind(op->getOperand(1), seen, arguments) &&
           addArgumentsBehind(op->getOperand(2), seen, arguments);
  if (isa<tt::AddPtrOp, tt::SplatOp, tt::BroadcastOp, tt::ExpandDimsOp, tt::TransOp, tt::ReshapeOp, tt::BitcastOp>(op))
    return addArgumentsBehind(op->getOperand(0), seen, arguments);
  return false;
}

/// Adds what `v` needs inside the loop; false when that cannot be computed ahead.
bool addToSlice(Value v, scf::ForOp loop, LoopSlice &slice) {
  Block *body = loop.getBody();
  if (!v || v == loop.getInductionVar()) return true;
  if (BlockArgument argument = dyn_cast<BlockArgument>(v)) {
    if (argument.getOwner() != body) return true;
    unsigned number = argument.getArgNumber() - 1;
    return !slice.arguments.insert(number) || addToSlice(body->getTerminator()->getOperand(number), loop, slice);
  }
  Operation *op = v.getDefiningOp();
  if (op->getBlock() != body) return true;
  if (op->getNumRegions() || !isMemoryEffectFree(op)) return false;
  if (!slice.ops.insert(op)) return true;
  return llvm::all_of(op->getOperands(), [&](Value operand) { return addToSlice(operand, loop, slice); });
}

/// The arguments of the function that the loop's stores write to. Nothing when the loop has other effects on memory, or
/// stores whose place is not known.
std::optional<llvm::SmallDenseSet<Value>> argumentsWritten(scf::ForOp loop) {
  llvm::SmallDenseSet<Value> written, seen;
  WalkResult result = loop.getBody()->walk([&](Operation *op) {
    if (isMemoryEffectFree(op) || isa<tt::LoadOp>(op) || op->hasTrait<OpTrait::HasRecursiveMemoryEffects>())
      return WalkResult::advance();
    tt::StoreOp store = dyn_cast<tt::StoreOp>(op);
    return store && addArgumentsBehind(store.getPtr(), seen, written) ? WalkResult::advance() : WalkResult::interrupt();
  });
  if (result.wasInterrupted()) return std::nullopt;
  return written;
}

/// Whether the load may run ahead of stores to these arguments: it reads through others.
bool readsElsewhere(tt::LoadOp load, const llvm::SmallDenseSet<Value> &written) {
  if (written.empty()) return true;
  llvm::SmallDenseSet<Value> read, seen;
  return addArgumentsBehind(load.getPtr(), seen, read) &&
         llvm::none_of(read, [&](Value argument) { return written.contains(argument); });
}

/// Whether a tensor behind an argument is only read by the kernel: copies by the machine do not wait for threads' stores.
bool isOnlyRead(Value argument, tt::FuncOp function) {
  WalkResult result = function.walk([&](Operation *op) {
    const OpCode code = codeOf(op);
    if (op == function || isMemoryEffectFree(op) || classOf(code) == OpClass::Load || op->hasTrait<OpTrait::IsTerminator>() ||
        op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() || code == OpCode::Assume || code == OpCode::Assert ||
        code == OpCode::Print)
      return WalkResult::advance();
    llvm::SmallDenseSet<Value> written, seen;
    tt::StoreOp store = dyn_cast<tt::StoreOp>(op);
    return store && addArgumentsBehind(store.getPtr(), seen, written) && !written.contains(argument) ? WalkResult::advance()
                                                                                                     : WalkResult::interrupt();
  });
  return !result.wasInterrupted();
}

/// Has the machine copy the loop's tiles, if it can; else says why not.
void planBoxes(LoopPlan &plan, const Chip &chip, std::string &why) {
  constexpr int64_t kMostRows = 256; // of one copy
  if (!chip.has(Feature::BulkCopy) || !plan.wholeTiles) {
    why = chip.has(Feature::BulkCopy) ? "tiles that no product reads whole" : "the chip has no copies of boxes";
    return;
  }
  std::optional<std::vector<Box>> boxes = boxesOf(plan.loop, plan.loads, why);
  if (!boxes) return;
  tt::FuncOp function = plan.loop->getParentOfType<tt::FuncOp>();
  for (auto [load, box] : llvm::zip(plan.loads, *boxes)) {
    if (!isOnlyRead(box.base, function)) return void(why = "a tensor that the kernel may write");
    if (cast<RankedTensorType>(load.load.getType()).getDimSize(unsigned(1 - load.fast)) > kMostRows)
      return void(why = "a tile of more than 256 rows");
  }
  plan.boxes = std::move(*boxes);
}

/// Boxes of the loop's tiles, and of what is copied once.
bool planFedBoxes(LoopPlan &plan, const Chip &chip, std::string &why) {
  planBoxes(plan, chip, why);
  LoopPlan once = plan;
  once.loads = plan.once, once.boxes.clear();
  if (!plan.once.empty()) planBoxes(once, chip, why);
  plan.boxesOnce = std::move(once.boxes);
  return !plan.boxes.empty() && plan.boxesOnce.size() == plan.once.size();
}

/// Has a producer begin the loop's copies, if what leads to them is computed of scalars alone.
bool planFed(LoopPlan &plan, const Chip &chip, int warps, const PipelineOptions &options, const AxisInfoAnalysis &axis, std::string &why) {
  if (!plan.loop->getParentOfType<tt::FuncOp>().getBody().hasOneBlock() || !producerFor(chip, warps)) return false;
  LoopPlan fed;
  bool good = false;
  for (const AxisInfoAnalysis *copiesOnce : {&axis, static_cast<const AxisInfoAnalysis *>(nullptr)}) {
    fed = plan;
    fed.wholeTiles = fed.fed = true;
    why.clear();
    if (!planFeeds(fed, chip, warps, options.most, copiesOnce, options.producer == Producers::All)) return false;
    if (options.producer == Producers::Rotated && !fed.rotated) return false;
    good = planFedBoxes(fed, chip, why);
    if (good || fed.once.empty()) break;
  }
  if (!good) return false;
  why.clear();
  ProducerSlice slice;
  good = slice.addOperation(fed.loop);
  std::vector<Box> boxes = fed.boxes;
  llvm::append_range(boxes, fed.boxesOnce);
  for (const Box &box : boxes)
    for (const Box::Dim *dim : {&box.dims[0], &box.dims[1], box.outer ? &*box.outer : nullptr})
      for (const Polynomial *p : {dim ? &dim->first : nullptr, dim ? &dim->step : nullptr})
        if (p)
          for (const auto &[product, factor] : p->terms)
            for (int i : product) good = good && slice.add(box.scalars[size_t(i)]);
  if (!good) why = "indices that are computed of more than scalars";
  if (good) plan = std::move(fed);
  return good;
}

/// Copies the load's tile ahead, if copies can bring it and what it leads to is known ahead; gives whether.
bool addLoad(LoopPlan &plan, tt::LoadOp load, const llvm::SmallDenseSet<Value> &written, const AxisInfoAnalysis &axis) {
  int fast = 0;
  if (!isCopyable(load, axis, fast) || !readsElsewhere(load, written)) return false;
  LoopSlice tried = plan.slice;
  if (!addToSlice(load.getPtr(), plan.loop, tried) || !addToSlice(load.getMask(), plan.loop, tried)) return false;
  plan.slice = std::move(tried);
  plan.loads.push_back({load, fast});
  return true;
}

bool isRow(tt::LoadOp load) { return isa<RankedTensorType>(load.getType()) && cast<RankedTensorType>(load.getType()).getRank() == 1; }

/// rows: of each load in order (PipelinedLoad::rows); none: all of all.
std::optional<LoopPlan> planLoop(scf::ForOp loop, const Chip &chip, int warps, const PipelineOptions &options,
                                 const AxisInfoAnalysis &axis, ArrayRef<int64_t> rows = {}) {
  const int most = options.most;
  LoopPlan plan;
  plan.loop = loop;
  plan.slots = options.stages;
  if (IntegerAttr asked = loop->getAttrOfType<IntegerAttr>("tt.num_stages")) plan.slots = int(asked.getInt());
  plan.slots = std::min(plan.slots, most);
  if (plan.slots < 2) return std::nullopt;
  const std::optional<llvm::SmallDenseSet<Value>> written = argumentsWritten(loop);
  if (!written) return std::nullopt;
  int64_t bytes = 0;
  llvm::DenseSet<Operation *> seen;
  for (tt::DotOp dot : loop.getBody()->getOps<tt::DotOp>()) {
    if (!planOf(dot, chip, warps).traits().onTensorCores) continue;
    llvm::SetVector<tt::LoadOp> loads;
    for (Value operand : {dot.getA(), dot.getB()}) loadsBehind(operand, loop.getBody(), loads);
    for (tt::LoadOp load : loads) {
      if (!seen.insert(load).second || isRow(load) || !addLoad(plan, load, *written, axis)) continue;
      if (!rows.empty()) plan.loads.back().rows = rows[plan.loads.size() - 1];
      bytes += slotBytes(plan.loads.back());
    }
  }
  if (plan.loads.empty()) return std::nullopt;
  plan.slots = int(std::min<int64_t>(plan.slots, (chip.sharedPerBlock - kReserve) / bytes));
  if (plan.slots < 2) return std::nullopt;
  planProducts(plan, chip, warps, most, options.early);
  return plan;
}

/// The plan of a loop whose tiles the machine copies, where it copies no more of them than products read: more slots fit.
void leaveOutRows(LoopPlan &plan, const Chip &chip, int warps, const PipelineOptions &options, const AxisInfoAnalysis &axis) {
  const std::vector<int64_t> rows = rowsRead(plan, chip, warps);
  if (plan.boxes.empty() || llvm::all_of(rows, [](int64_t n) { return n == 0; })) return;
  std::optional<LoopPlan> shorter = planLoop(plan.loop, chip, warps, options, axis, rows);
  std::string why;
  planBoxes(*shorter, chip, why);
  if (!shorter->boxes.empty()) plan = std::move(*shorter);
}

/// Rows and columns of numbers beside the products (scales, biases) are copied ahead as their tiles are: each turn would wait for memory else. Where
/// the block itself begins the copies, one turn like the other.
void planRows(LoopPlan &plan, const AxisInfoAnalysis &axis) {
  if (!plan.boxes.empty() || !plan.early.empty()) return;
  const std::optional<llvm::SmallDenseSet<Value>> written = argumentsWritten(plan.loop);
  for (tt::LoadOp load : plan.loop.getBody()->getOps<tt::LoadOp>())
    if (isRow(load)) addLoad(plan, load, *written, axis);
}

} // namespace

static Value number(OpBuilder &b, Location loc, int value) { return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(value)); }
Value slotBehind(OpBuilder &b, Location loc, Value slot, int slots) {
  Value after = arith::AddIOp::create(b, loc, slot, number(b, loc, 1));
  Value isLast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, after, number(b, loc, slots));
  return arith::SelectOp::create(b, loc, isLast, number(b, loc, 0), after);
}
Value parityBehind(OpBuilder &b, Location loc, Value slot, Value parity, int slots) {
  Value isLast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, slot, number(b, loc, slots - 1));
  return arith::SelectOp::create(b, loc, isLast, arith::XOrIOp::create(b, loc, parity, number(b, loc, 1)), parity);
}

Value ringFor(const PipelinedLoad &load, int slots, OpBuilder &b, Location loc) {
  const RankedTensorType tile = cast<RankedTensorType>(tt::LoadOp(load.load).getType());
  SmallVector<int64_t> shape{slots};
  shape.append(tile.getShape().begin(), tile.getShape().end());
  ttg::LocalAllocOp ring = ttg::LocalAllocOp::create(b, loc, ttg::RingType::get(b.getContext(), shape, tile.getElementType()), uint32_t(load.fast));
  if (load.rows) ring->setAttr(tile::kSlotRowsAttr, b.getI32IntegerAttr(int32_t(load.rows)));
  return ring;
}

namespace {

class LoopRewriter {
public:
  LoopRewriter(LoopPlan &plan, int warps)
      : plan_(plan), warps_(warps), loop_(plan.loop), b_(plan.loop), loc_(plan.loop.getLoc()) {}

  void run() {
    for (PipelinedLoad &load : plan_.loads) load.ring = ringFor(load, plan_.slots, b_, loc_);
    findLive();
    std::erase_if(plan_.open, [&](OpenProduct &open) { return !liveOps_.contains(open.dot); });
    if (byMachine()) {
      describeBoxes();
      makeBarriers();
    }
    makeFillers();
    // Before the loop: the copies of the first turns.
    Value iv = loop_.getLowerBound();
    if (!plan_.early.empty()) {
      for (Filler &filler : fillers_)
        if (filler.lead) copyAhead(filler, iv, constant(0));
      ttg::AsyncCommitOp::create(b_, loc_);
    }
    for (int turn = 0; turn < plan_.ahead; ++turn) {
      if (byMachine()) {
        copyBoxes(iv, constant(turn), {});
      } else {
        for (Filler &filler : fillers_) copyAhead(filler, later(iv, filler.lead), constant(turn + filler.lead));
        ttg::AsyncCommitOp::create(b_, loc_);
      }
      iv = arith::AddIOp::create(b_, loc_, iv, loop_.getStep());
    }
    if (plan_.stepped) {
      wait(plan_.ahead - 1);
      firstStep_ = operandsOfStep(0, constant(0));
    }
    if (!plan_.early.empty()) {
      wait(plan_.ahead);
      IRMapping map;
      early_ = multiplyEarly(map, constant(0));
    }
    rewriteLoop();
  }

private:
  Value constant(int value) { return arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(value)); }
  /// The induction variable so many turns after `iv`.
  Value later(Value iv, int turns) {
    for (int turn = 0; turn < turns; ++turn) iv = arith::AddIOp::create(b_, loc_, iv, loop_.getStep());
    return iv;
  }

  /// One group of copies an iteration. Where products run ahead of the others, their tiles' copies are those of a later
  /// turn: what one turn reads comes with one group.
  void wait(int pending) { ttg::AsyncWaitOp::create(b_, loc_, uint32_t(pending)); }

  /// The copies of one turn that are of tiles which are read `lead` turns later.
  struct Filler {
    int lead;
    SmallVector<const PipelinedLoad *, 4> loads;
    LoopSlice slice;
    SmallVector<Value> ahead; // of slice.arguments: values of the turn that is copied next
  };
  void makeFillers() {
    if (byMachine()) return;
    for (int lead : {0, 1}) {
      Filler filler{lead, {}, {}, {}};
      for (PipelinedLoad &load : plan_.loads) {
        if (load.lead != lead) continue;
        filler.loads.push_back(&load);
        addToSlice(load.load.getPtr(), loop_, filler.slice);
        addToSlice(load.load.getMask(), loop_, filler.slice);
      }
      for (unsigned number : filler.slice.arguments) filler.ahead.push_back(loop_.getInitArgs()[number]);
      if (!filler.loads.empty()) fillers_.push_back(std::move(filler));
    }
  }

  /// A load's mask in turns that there are. What the loop does not change of it meets the guard first: of the columns of a tile that is one
  /// condition for all rows of a thread.
  Value guarded(Value own, Value inside, const IRMapping &map) {
    SmallVector<Value, 4> todo{own}, varying;
    while (!todo.empty()) {
      Value v = todo.pop_back_val();
      if (arith::AndIOp both = v.getDefiningOp<arith::AndIOp>())
        todo.append({both.getLhs(), both.getRhs()});
      else if (loop_.isDefinedOutsideOfLoop(v))
        inside = arith::AndIOp::create(b_, loc_, v, inside);
      else
        varying.push_back(v);
    }
    for (Value v : varying) inside = arith::AndIOp::create(b_, loc_, map.lookupOrDefault(v), inside);
    return inside;
  }

  /// Begins the copies of the iteration with induction variable `iv` and carried values filler.ahead, and moves these
  /// one iteration on.
  void copyAhead(Filler &filler, Value iv, Value slot) {
    IRMapping map;
    map.map(loop_.getInductionVar(), iv);
    for (auto [number, value] : llvm::zip(filler.slice.arguments, filler.ahead))
      map.map(loop_.getRegionIterArg(number), value);
    for (Operation &op : loop_.getBody()->without_terminator())
      if (filler.slice.ops.contains(&op)) b_.clone(op, map);
    Value inside = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, iv, loop_.getUpperBound());
    for (const PipelinedLoad *load : filler.loads) {
      tt::LoadOp op = load->load;
      RankedTensorType tile = cast<RankedTensorType>(op.getType());
      Value mask = tt::SplatOp::create(b_, loc_, RankedTensorType::get(tile.getShape(), b_.getI1Type()), inside);
      if (Value own = op.getMask()) mask = guarded(own, mask, map);
      ttg::AsyncCopyOp::create(b_, op.getLoc(), map.lookupOrDefault(op.getPtr()), mask, load->ring, slot);
    }
    Operation *yield = loop_.getBody()->getTerminator();
    for (auto [number, value] : llvm::zip(filler.slice.arguments, filler.ahead))
      value = map.lookupOrDefault(yield->getOperand(number));
  }
  /// Where in the loop's body the new one is written.
  struct Turn {
    IRMapping map;
    Value copied, fill, read; // the induction variable of the turn whose copies begin; slots
    // Where the machine copies: parities of the slots' phases; the slot that the turn before read.
    Value fillParity, readParity, before;
  };

  /// The copies that one turn begins.
  void copyTurn(const Turn &turn) {
    if (byMachine()) return copyBoxes(turn.copied, turn.fill, turn.fillParity);
    for (Filler &filler : fillers_)
      copyAhead(filler, later(turn.copied, filler.lead), filler.lead ? next(turn.fill) : turn.fill);
    ttg::AsyncCommitOp::create(b_, loc_);
  }

  // ---- copies by the machine

  bool byMachine() const { return !plan_.boxes.empty(); }
  void describeBoxes() {
    OpBuilder entry = entryOf(loop_);
    for (auto [load, box] : llvm::zip(plan_.loads, plan_.boxes)) boxes_.push_back(describeBox(entry, b_, load, box));
  }
  void makeBarriers() {
    // What threads have written there before does not come behind the machine's copies.
    placed::FenceAsyncOp::create(b_, loc_);
    Type type = ttg::BarriersType::get(b_.getContext(), plan_.slots);
    full_ = ttg::BarriersOp::create(b_, loc_, type, 1u);
    empty_ = ttg::BarriersOp::create(b_, loc_, type, uint32_t(warps_));
    ttg::BarrierOp::create(b_, loc_, "local");
  }
  /// The copies of the turn with induction variable `iv`; parity: of the phase that the slot's readers have ended, absent
  /// where there were none.
  void copyBoxes(Value iv, Value slot, Value parity) {
    Value inside = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, iv, loop_.getUpperBound());
    ttg::ByOneThreadOp one = ttg::ByOneThreadOp::create(b_, loc_, inside);
    OpBuilder b = OpBuilder::atBlockBegin(&one.getBody().emplaceBlock());
    if (parity) ttg::AwaitOp::create(b, loc_, empty_, slot, parity);
    int64_t bytes = 0;
    for (const PipelinedLoad &load : plan_.loads) bytes += slotBytes(load);
    ttg::ExpectOp::create(b, loc_, full_, slot, uint32_t(bytes));
    for (auto [load, box] : llvm::zip(plan_.loads, boxes_))
      ttg::BulkCopyOp::create(b, load.load.getLoc(), box.descriptor, box.indices, load.ring, slot, full_, slot);
    for (DescribedBox &box : boxes_)
      for (auto [index, step] : llvm::zip(box.indices, box.steps)) index = arith::AddIOp::create(b_, loc_, index, step);
  }

  // ---- what is still needed of the body once its loads have become reads of rings

  /// Null for any other op.
  const PipelinedLoad *pipelined(Operation *op) const {
    for (const PipelinedLoad &load : plan_.loads)
      if (load.load == op) return &load;
    return nullptr;
  }
  void findLive() {
    LiveBody live(plan_);
    liveOps_ = std::move(live.ops), liveArgs_ = std::move(live.arguments);
  }

  void rewriteLoop() {
    // Carried: what was and is still needed; operands of the first step; sums of products that run ahead; the slices'
    // values ahead; the slots to fill and to read.
    SmallVector<Value> inits;
    for (unsigned number : liveArgs_) inits.push_back(loop_.getInitArgs()[number]);
    inits.append(firstStep_.begin(), firstStep_.end());
    inits.append(early_.begin(), early_.end());
    for (Filler &filler : fillers_) inits.append(filler.ahead.begin(), filler.ahead.end());
    for (DescribedBox &box : boxes_) inits.append(box.indices.begin(), box.indices.end());
    inits.push_back(constant(plan_.ahead));
    inits.push_back(constant(0));
    // A slot that nobody has read is in the phase before the first.
    if (byMachine())
      for (int first : {1, 0, 0}) inits.push_back(constant(first));
    scf::ForOp rewritten =
        scf::ForOp::create(b_, loc_, loop_.getLowerBound(), loop_.getUpperBound(), loop_.getStep(), inits);
    rewritten->setAttrs(loop_->getAttrs());
    SmallVector<int32_t> open;
    for (const OpenProduct &product : plan_.open)
      if (liveArgs_.contains(product.number))
        open.push_back(int32_t(llvm::find(liveArgs_, product.number) - liveArgs_.begin()));
    if (!open.empty()) rewritten->setAttr(placed::kOpenValuesAttr, b_.getDenseI32ArrayAttr(open));
    Block *body = rewritten.getBody();
    if (body->mightHaveTerminator()) body->getTerminator()->erase();
    b_.setInsertionPointToEnd(body);

    Turn turn;
    ValueRange carried = rewritten.getRegionIterArgs();
    turn.map.map(loop_.getInductionVar(), rewritten.getInductionVar());
    auto arguments = carried.begin();
    for (unsigned number : liveArgs_) turn.map.map(loop_.getRegionIterArg(number), *arguments++);
    for (Value &value : firstStep_) value = *arguments++;
    for (Operation *op : plan_.early) turn.map.map(op->getResult(0), *arguments++);
    for (Filler &filler : fillers_)
      for (Value &value : filler.ahead) value = *arguments++;
    for (DescribedBox &box : boxes_)
      for (Value &value : box.indices) value = *arguments++;
    turn.fill = *arguments++, turn.read = *arguments++;
    if (byMachine()) turn.fillParity = *arguments++, turn.readParity = *arguments++, turn.before = *arguments++;
    rewriteBody(turn, rewritten.getInductionVar());

    SmallVector<Value> results;
    Operation *yield = loop_.getBody()->getTerminator();
    for (unsigned number : liveArgs_) results.push_back(turn.map.lookupOrDefault(yield->getOperand(number)));
    results.append(firstStep_.begin(), firstStep_.end());
    results.append(early_.begin(), early_.end());
    for (Filler &filler : fillers_) results.append(filler.ahead.begin(), filler.ahead.end());
    for (DescribedBox &box : boxes_) results.append(box.indices.begin(), box.indices.end());
    results.push_back(next(turn.fill));
    results.push_back(next(turn.read));
    if (byMachine()) {
      results.push_back(parityBehind(turn.fill, turn.fillParity));
      results.push_back(parityBehind(turn.read, turn.readParity));
      results.push_back(turn.read);
    }
    scf::YieldOp::create(b_, loc_, results);

    b_.setInsertionPointAfter(rewritten);
    if (byMachine()) {
      ttg::BarrierOp::create(b_, loc_, "local");
      ttg::EndBarriersOp::create(b_, loc_, full_);
      ttg::EndBarriersOp::create(b_, loc_, empty_);
    } else {
      wait(0);
    }
    for (PipelinedLoad &load : plan_.loads) ttg::LocalDeallocOp::create(b_, loc_, load.ring);
    for (auto [i, number] : llvm::enumerate(liveArgs_))
      loop_.getResult(number).replaceAllUsesWith(rewritten.getResult(i));
    loop_.erase();
  }

  void rewriteBody(Turn &turn, Value iv) {
    // Every thread has left the slots that are filled next, since it read them before it came here, and waited for the
    // products that did.
    if (byMachine())
      ttg::AwaitOp::create(b_, loc_, full_, turn.read, turn.readParity);
    else if (!plan_.stepped)
      wait(plan_.ahead - 1);
    Value distance = arith::ConstantOp::create(b_, loc_, b_.getIntegerAttr(loop_.getStep().getType(), plan_.ahead));
    turn.copied = arith::AddIOp::create(b_, loc_, iv, arith::MulIOp::create(b_, loc_, loop_.getStep(), distance));
    // Copies begin while a product is under way.
    early_.clear();
    if (!plan_.early.empty()) {
      IRMapping map = turn.map;
      early_ = multiplyEarly(map, next(turn.read));
      for (Value sums : early_) sums.getDefiningOp()->setAttr(placed::kOpenAttr, b_.getUnitAttr());
    }
    const bool copiesLater = plan_.stepped || (plan_.early.empty() && !plan_.open.empty());
    if (!copiesLater) copyTurn(turn);
    // Products by steps have the turn's barrier among them: what is read behind it could meet the copies that the next turn begins.
    if (plan_.stepped)
      for (const PipelinedLoad &load : plan_.loads)
        if (!leadsToSteps(load.load)) turn.map.map(tt::LoadOp(load.load).getResult(), tileOf(load, turn.read));
    for (Operation &op : loop_.getBody()->without_terminator()) {
      if (!liveOps_.contains(&op) || leadsToSteps(&op) || plan_.early.contains(&op) || isLate(&op)) continue;
      const PipelinedLoad *load = pipelined(&op);
      if (load && turn.map.contains(op.getResult(0))) continue;
      const OpenProduct *open = openProduct(&op);
      if (plan_.stepped == &op)
        turn.map.map(op.getResult(0), multiplyBySteps(turn.map.lookupOrDefault(plan_.stepped.getC()), turn));
      else if (open)
        multiplyOpen(*open, turn);
      else if (load)
        turn.map.map(op.getResult(0), tileOf(*load, turn.read));
      else
        b_.clone(op, turn.map);
    }
    if (byMachine() && plan_.open.empty()) ttg::ArriveOp::create(b_, loc_, empty_, turn.read, Value());
    if (!plan_.early.empty() && plan_.open.empty()) waitForEarly({}, turn.map);
  }

  Value tileOf(const PipelinedLoad &load, Value slot) {
    tt::LoadOp op = load.load;
    return ttg::LocalLoadOp::create(b_, op.getLoc(), op.getType(), load.ring, slot, DenseI32ArrayAttr()).getResult();
  }

  // ---- products that are under way

  const OpenProduct *openProduct(Operation *op) const {
    for (const OpenProduct &open : plan_.open)
      if (open.dot == op) return &open;
    return nullptr;
  }
  /// Whether the operation stands behind the wait that an open product has in front of it.
  bool isLate(Operation *op) const {
    return llvm::any_of(plan_.open, [&](const OpenProduct &open) { return open.late.contains(op); });
  }

  /// The products that run ahead, on the tiles in `slot`.
  SmallVector<Value, 2> multiplyEarly(IRMapping &map, Value slot) {
    SmallVector<Value, 2> sums;
    for (Operation *op : plan_.early) {
      tt::DotOp dot = cast<tt::DotOp>(op);
      for (Value operand : {dot.getA(), dot.getB()}) {
        tt::TransOp turned = operand.getDefiningOp<tt::TransOp>();
        const PipelinedLoad *load = pipelined((turned ? turned.getSrc() : operand).getDefiningOp());
        if (!load) continue;
        Value tile = tileOf(*load, slot);
        if (turned) tile = tt::TransOp::create(b_, turned.getLoc(), tile, turned.getOrder());
        map.map(operand, tile);
      }
      sums.push_back(b_.clone(*dot, map)->getResult(0));
    }
    return sums;
  }

  /// All products are complete: those that run ahead, whose sums the next turn uses, and with them what the turn before
  /// left under way. `values` are kept until then.
  void waitForEarly(ArrayRef<Value> values, IRMapping &map) {
    SmallVector<Value> through;
    for (Value v : values) through.push_back(map.lookupOrDefault(v));
    through.append(early_.begin(), early_.end());
    placed::WaitProductsOp done =
        placed::WaitProductsOp::create(b_, loc_, ValueRange(through).getTypes(), through, 0u);
    for (auto [v, known] : llvm::zip(values, done.getResults())) map.map(v, known);
    early_.assign(done.getResults().begin() + values.size(), done.getResults().end());
  }

  /// A product that is under way when the next turn begins.
  void multiplyOpen(const OpenProduct &open, Turn &turn) {
    tt::DotOp dot = open.dot;
    // A count of products that stay under way here would do; ptxas does not see that it holds in the first turn, and has
    // every product wait for itself then (C7514).
    if (!plan_.early.empty() && &open == &plan_.open.front()) {
      SmallVector<Value, 4> values;
      for (OpenProduct &other : plan_.open)
        if (Value sums = loop_.getRegionIterArg(other.number); other.dot.getC() != sums) values.push_back(sums);
      if (open.tied) values.push_back(open.tied);
      waitForEarly(values, turn.map);
    }
    for (Operation *op : open.late) b_.clone(*op, turn.map);
    b_.clone(*dot, turn.map)->setAttr(placed::kOpenAttr, b_.getUnitAttr());
    if (!plan_.early.empty()) return;
    copyTurn(turn);
    placed::WaitProductsOp::create(b_, loc_, TypeRange(), ValueRange(), 1u);
    if (!byMachine()) return;
    // The product of the turn before, if there was one, has left its slot.
    Value notFirst = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::ne, turn.map.lookup(loop_.getInductionVar()),
                                           loop_.getLowerBound());
    ttg::ArriveOp::create(b_, loc_, empty_, turn.before, notFirst);
  }

  // ---- products by steps

  /// Whether `op` leads from a load to the product by steps, which has parts of its own.
  bool leadsToSteps(Operation *op) {
    tt::DotOp dot = plan_.stepped;
    if (!dot) return false;
    return llvm::any_of(ValueRange{dot.getA(), dot.getB()}, [&](Value v) { return op == v.getDefiningOp() || op == operandSource(v).getDefiningOp(); });
  }

  /// Both operands' parts at `k`, as they lie in their rings.
  SmallVector<Value, 2> operandsOfStep(int64_t k, Value slot) {
    SmallVector<Value, 2> parts;
    tt::DotOp dot = plan_.stepped;
    for (Value operand : {dot.getA(), dot.getB()}) {
      const bool turned = bool(operand.getDefiningOp<tt::TransOp>());
      tt::LoadOp load = (turned ? operand.getDefiningOp()->getOperand(0) : operand).getDefiningOp<tt::LoadOp>();
      // K is the last dim of A, the first of B; turned, the other one.
      const unsigned dim = (operand == dot.getA()) != turned ? 1 : 0;
      RankedTensorType tile = cast<RankedTensorType>(load.getType());
      SmallVector<int64_t, 2> shape(tile.getShape());
      SmallVector<int32_t, 2> offsets{0, 0};
      shape[dim] = plan_.stepK;
      offsets[dim] = int32_t(k);
      parts.push_back(ttg::LocalLoadOp::create(b_, load.getLoc(), RankedTensorType::get(shape, tile.getElementType()),
                                               pipelined(load)->ring, slot, b_.getDenseI32ArrayAttr(offsets)));
    }
    return parts;
  }

  Value multiplyStep(ArrayRef<Value> parts, Value sum) {
    tt::DotOp dot = plan_.stepped;
    IRMapping map;
    map.map(dot.getC(), sum);
    for (auto [operand, part] : llvm::zip(SmallVector<Value, 2>{dot.getA(), dot.getB()}, parts)) {
      Value as = part;
      if (tt::TransOp turned = operand.getDefiningOp<tt::TransOp>())
        as = tt::TransOp::create(b_, turned.getLoc(), part, turned.getOrder());
      map.map(operand, as);
    }
    return b_.clone(*dot, map)->getResult(0);
  }

  /// While a step is multiplied, the operands of the next one are on their way, at last those of the next iteration:
  /// the instructions have work on both sides of the barrier. The copies of later iterations queue behind the operands
  /// of the second step. They fill the slot that was read in the iteration before, which every thread left at that
  /// iteration's barrier.
  Value multiplyBySteps(Value sum, const Turn &turn) {
    Value read = turn.read;
    const int64_t steps = cast<RankedTensorType>(plan_.stepped.getA().getType()).getDimSize(1) / plan_.stepK;
    SmallVector<Value, 2> parts = firstStep_;
    for (int64_t step = 0; step < steps; ++step) {
      if (step + 1 == steps) wait(plan_.ahead - 1);
      SmallVector<Value, 2> following =
          step + 1 < steps ? operandsOfStep((step + 1) * plan_.stepK, read) : operandsOfStep(0, next(read));
      if (step == 0) copyTurn(turn);
      sum = multiplyStep(parts, sum);
      parts = following;
    }
    firstStep_ = parts;
    return sum;
  }

  Value next(Value slot) { return slotBehind(b_, loc_, slot, plan_.slots); }
  Value parityBehind(Value slot, Value parity) { return neso::nvidia::parityBehind(b_, loc_, slot, parity, plan_.slots); }

  LoopPlan &plan_;
  int warps_;
  scf::ForOp loop_;
  OpBuilder b_;
  Location loc_;
  llvm::DenseSet<Operation *> liveOps_;
  llvm::SetVector<unsigned> liveArgs_;
  std::vector<Filler> fillers_;
  SmallVector<Value, 2> firstStep_; // of a product by steps: what the next iteration multiplies first
  SmallVector<Value, 2> early_;     // sums of the products that run ahead
  // Where the machine copies: of each load its box, with the indices of the turn that is copied next; what says that a slot is full, and
  // that it is empty.
  SmallVector<DescribedBox, 2> boxes_;
  Value full_, empty_;
};

} // namespace

LiveBody::LiveBody(const LoopPlan &plan) : plan_(plan) {
  scf::ForOp loop = plan.loop;
  const auto isPipelined = [&](Operation *op) { return llvm::any_of(plan.loads, [&](const PipelinedLoad &l) { return l.load == op; }); };
  for (Operation &op : loop.getBody()->without_terminator())
    if (!isMemoryEffectFree(&op) && !isPipelined(&op)) mark(&op);
  for (OpResult result : loop.getResults()) {
    if (result.use_empty()) continue;
    if (arguments.insert(result.getResultNumber())) mark(loop.getBody()->getTerminator()->getOperand(result.getResultNumber()));
  }
}
void LiveBody::mark(Value v) {
  Block *body = scf::ForOp(plan_.loop).getBody();
  if (BlockArgument argument = dyn_cast<BlockArgument>(v)) {
    if (argument.getOwner() != body || argument.getArgNumber() == 0) return;
    const unsigned number = argument.getArgNumber() - 1;
    if (arguments.insert(number)) mark(body->getTerminator()->getOperand(number));
    return;
  }
  if (Operation *op = body->findAncestorOpInBlock(*v.getDefiningOp())) mark(op);
}
void LiveBody::mark(Operation *op) {
  const bool isPipelined = llvm::any_of(plan_.loads, [&](const PipelinedLoad &l) { return l.load == op; });
  if (!ops.insert(op).second || isPipelined) return;
  op->walk([&](Operation *inside) {
    for (Value operand : inside->getOperands()) mark(operand);
  });
}

/// The function as one whose copies run ahead over programs; false where it cannot be one, and nothing is changed then.
static bool pipelineOverPrograms(tt::FuncOp function, const Chip &chip, int warps, const PipelineOptions &options) {
  OwningOpRef<tt::FuncOp> copy = function.clone();
  scf::ForOp programs = makeResident(*copy);
  if (!programs) return false;
  std::vector<LoopPlan> plans;
  {
    AxisInfoAnalysis axis(*copy);
    copy->walk([&](scf::ForOp loop) {
      if (std::optional<LoopPlan> plan = planLoop(loop, chip, warps, options, axis)) plans.push_back(std::move(*plan));
    });
    std::string reason;
    if (plans.size() == 1) {
      planBoxes(plans[0], chip, reason);
      leaveOutRows(plans[0], chip, warps, options, axis);
    }
  }
  if (plans.size() != 1 || !runsOverPrograms(plans[0], programs)) return false;
  rewriteResident(plans[0], programs, warps);
  function->setAttrs(copy->getOperation()->getAttrs());
  function.getBody().takeBody(copy->getBody());
  return true;
}

int pipelineLoops(tt::FuncOp function, const Chip &chip, int warps, const PipelineOptions &options, std::string *why) {
  if (!chip.has(Feature::CpAsync)) return 0;
  if (options.resident && options.boxes && options.producer != Producers::All && pipelineOverPrograms(function, chip, warps, options)) {
    narrowMasks(function, warps);
    splitWholeBlocks(function);
    return 1;
  }
  std::vector<LoopPlan> plans;
  std::vector<PipelinedLoad> once;
  {
    AxisInfoAnalysis axis(function);
    function.walk([&](scf::ForOp loop) {
      std::optional<LoopPlan> plan = planLoop(loop, chip, warps, options, axis);
      if (!plan) return;
      std::string reason;
      std::string whyNotFed;
      const bool fed = options.boxes && options.producer != Producers::None && planFed(*plan, chip, warps, options, axis, whyNotFed);
      if (options.boxes && !fed) planBoxes(*plan, chip, reason);
      if (!reason.empty() && !whyNotFed.empty()) reason = std::move(whyNotFed);
      if (why && !reason.empty()) *why = reason;
      if (!fed) planRows(*plan, axis);
      plans.push_back(std::move(*plan));
    });
    // Beside a producer threads copy what it does not.
    if (llvm::none_of(plans, [](const LoopPlan &plan) { return plan.fed; }))
      for (LoopPlan &plan : plans) leaveOutRows(plan, chip, warps, options, axis);
    if (options.most > 1) once = planOnceLoads(function, plans, chip, warps, axis);
  }
  copyOnce(once);
  // Where there is a producer, it begins all copies of the machine.
  const bool anyFed = llvm::any_of(plans, [](const LoopPlan &plan) { return plan.fed; });
  if (anyFed) {
    const Producer producer = *producerFor(chip, warps);
    function->setAttr(placed::kProducerAttr, DenseI32ArrayAttr::get(function.getContext(), {producer.warps, producer.registers, producer.registersOfBlock}));
  }
  for (LoopPlan &plan : plans) {
    if (plan.fed) continue;
    if (anyFed) plan.boxes.clear();
    LoopRewriter(plan, warps).run();
  }
  for (LoopPlan &plan : plans) {
    if (!plan.fed) continue;
    const bool inShared = llvm::all_of(plan.early, [&](Operation *op) {
      Value a = cast<tt::DotOp>(op).getA();
      return plan.loop->isAncestor(a.getParentRegion()->getParentOp()) ||
             llvm::any_of(plan.once, [&](const PipelinedLoad &load) { return load.load == a.getDefiningOp(); });
    });
    if (plan.rotated && inShared) guardMasks(plan.loop);
    rewriteFed(plan, warps);
  }
  const int staged = stageOperands(function, chip, warps, options.kept);
  narrowMasks(function, warps);
  splitWholeBlocks(function);
  return int(plans.size()) + (once.empty() && !staged ? 0 : 1);
}

} // namespace neso::nvidia
