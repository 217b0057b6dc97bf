#include "backend/nvidia/passes/pipeline.h"

#include <algorithm>

#include "backend/nvidia/dot.h"
#include "ir/tile/passes/axis_info.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace neso::nvidia {

namespace {

/// Left for what the rest of the kernel wants of shared memory while a ring is live.
constexpr int64_t kReserve = 16 * 1024;

struct PipelinedLoad {
  tt::LoadOp load;
  int fast; // the dim with neighbours in memory
  Value ring;
};

/// What a pipeline of one loop needs to know.
struct LoopPlan {
  scf::ForOp loop;
  int slots = 0;
  /// How many turns the copies run ahead: all slots but the one that is read, and but that of a product under way.
  int ahead = 0;
  std::vector<PipelinedLoad> loads;
  /// The ops that lead to addresses and masks, and the carried values they begin from.
  llvm::SetVector<Operation *> slice;
  llvm::SetVector<unsigned> sliceArgs; // iteration argument numbers
  /// The product whose steps along K read their operands one step ahead; null: products read whole tiles.
  tt::DotOp stepped;
  int64_t stepK = 0;
  /// The product that is still under way when the next turn begins, and the carried value that is its sums; null: every
  /// product is complete where it stands.
  tt::DotOp open;
  unsigned openNumber = 0;
};

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

bool isZero(Value v) { return !v || matchPattern(v, m_Zero()) || matchPattern(v, m_AnyZeroFloat()); }

DotPlan planOf(tt::DotOp dot, const Chip &chip, int warps) {
  RankedTensorType a = cast<RankedTensorType>(dot.getA().getType()), d = cast<RankedTensorType>(dot.getType());
  Sizes shape(d.getShape().begin(), d.getShape().end());
  shape.push_back(a.getShape().back());
  DotPrecision precision =
      dot.getInputPrecision() == tt::InputPrecision::IEEE ? DotPrecision::Ieee : DotPrecision::Tf32;
  DotTypes types{a.getElementType(), cast<RankedTensorType>(dot.getB().getType()).getElementType(), d.getElementType()};
  return planDot(chip, shape, warps, types, precision);
}

/// Whether copies of 4 bytes or more can bring the tile in; sets the dim along which.
bool copyable(tt::LoadOp load, const AxisInfoAnalysis &axis, int &fast) {
  RankedTensorType type = dyn_cast<RankedTensorType>(load.getType());
  if (!type || type.getRank() < 2 || type.getRank() > 3 || load.getIsVolatile() || !isZero(load.getOther()))
    return false;
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

/// Adds what `v` needs inside the loop; false when that cannot be computed ahead.
bool addToSlice(Value v, LoopPlan &plan) {
  Block *body = plan.loop.getBody();
  if (!v || v == plan.loop.getInductionVar()) return true;
  if (BlockArgument argument = dyn_cast<BlockArgument>(v)) {
    if (argument.getOwner() != body) return true;
    unsigned number = argument.getArgNumber() - 1;
    return !plan.sliceArgs.insert(number) || addToSlice(body->getTerminator()->getOperand(number), plan);
  }
  Operation *op = v.getDefiningOp();
  if (op->getBlock() != body) return true;
  if (op->getNumRegions() || !isMemoryEffectFree(op)) return false;
  if (!plan.slice.insert(op)) return true;
  return llvm::all_of(op->getOperands(), [&](Value operand) { return addToSlice(operand, plan); });
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

int64_t tileBytes(tt::LoadOp load) {
  RankedTensorType type = cast<RankedTensorType>(load.getType());
  return type.getNumElements() * type.getElementTypeBitWidth() / 8;
}

/// The load that is an operand as it is, transposed or not, and nothing else.
tt::LoadOp onlyOperand(Value v) {
  if (tt::TransOp turned = v.getDefiningOp<tt::TransOp>(); turned && v.hasOneUse()) v = turned.getSrc();
  tt::LoadOp load = v.getDefiningOp<tt::LoadOp>();
  return load && v.hasOneUse() ? load : tt::LoadOp();
}

/// Whether the product will be one of wgmma, which reads whole tiles where they lie.
bool byWarpGroups(const LoopPlan &plan, tt::DotOp dot, const DotPlan &product, const Chip &chip, int warps) {
  auto fastAlong = [&](Value operand, int k) {
    const bool turned = bool(operand.getDefiningOp<tt::TransOp>());
    const tt::LoadOp load = onlyOperand(operand);
    const int fast = llvm::find_if(plan.loads, [&](const PipelinedLoad &l) { return l.load == load; })->fast;
    return (turned ? 1 - fast : fast) == k ? GroupOperand::AlongK : GroupOperand::AcrossK;
  };
  RankedTensorType a = cast<RankedTensorType>(dot.getA().getType()), d = cast<RankedTensorType>(dot.getType());
  if (d.getRank() != 2) return false;
  return planWarpGroups(chip, {d.getDimSize(0), d.getDimSize(1), a.getDimSize(1)}, warps, product.types,
                        fastAlong(dot.getA(), 1), fastAlong(dot.getB(), 0))
      .has_value();
}

/// Leaves the loop's only product under way over the end of a turn where its operands are read out of rings alone and its
/// sums are used by the next turn's product alone: tensor cores have work then while the block waits for copies. It costs
/// a slot; the ring takes as many as leave other blocks their room, and where that are few products are waited for.
void planOpen(LoopPlan &plan, const Chip &chip, int warps, int64_t bytes, int most) {
  if (!llvm::hasSingleElement(plan.loop.getBody()->getOps<tt::DotOp>())) return;
  tt::DotOp dot = *plan.loop.getBody()->getOps<tt::DotOp>().begin();
  const auto isLoaded = [&](Value operand) {
    const tt::LoadOp load = onlyOperand(operand);
    return load && llvm::any_of(plan.loads, [&](const PipelinedLoad &l) { return l.load == load; });
  };
  BlockArgument sums = dyn_cast<BlockArgument>(dot.getC());
  if (!sums || sums.getOwner() != plan.loop.getBody() || sums.getArgNumber() == 0 || !sums.hasOneUse()) return;
  const unsigned number = sums.getArgNumber() - 1;
  // Sums of 16 bits are widened before and narrowed behind every product.
  const Type element = cast<RankedTensorType>(dot.getType()).getElementType();
  if (!dot->hasOneUse() || plan.loop.getBody()->getTerminator()->getOperand(number) != dot.getD() ||
      !isLoaded(dot.getA()) || !isLoaded(dot.getB()) || element.getIntOrFloatBitWidth() != 32 ||
      !byWarpGroups(plan, dot, planOf(dot, chip, warps), chip, warps))
    return;
  // What a block may have without taking another one's place on the multiprocessor. Beside its sums a thread wants about as
  // many registers; the system keeps a KiB of a block's shared memory. On an H200 products of 4096 in blocks of 128 x 256 x
  // 32 came to 571 TFLOP/s with 4 slots and to 743 with 6; in blocks of 128 x 128 x 64 to 542 with 3 slots, one of which
  // an open product keeps, and to 671 where products are waited for.
  constexpr int64_t kOtherRegisters = 48;
  constexpr int kEnoughSlots = 6, kFewestSlots = 4;
  const int64_t elements = cast<RankedTensorType>(dot.getType()).getNumElements();
  const int64_t blocks = std::min(chip.sharedPerSm / (plan.slots * bytes + 1024),
                                  chip.registersPerSm / (elements + kOtherRegisters * 32 * warps));
  const int64_t room = std::min<int64_t>(chip.sharedPerBlock, chip.sharedPerSm / std::max<int64_t>(blocks, 1) - 1024);
  const int fitting = std::min(kEnoughSlots, int((room - kReserve) / bytes));
  plan.slots = std::min(std::max(plan.slots, fitting), most);
  plan.ahead = plan.slots - 1;
  if (plan.slots < kFewestSlots) return;
  plan.ahead = plan.slots - 2;
  plan.open = dot;
  plan.openNumber = number;
}

/// Reads a step ahead where the loop's loads are the two operands of one product, and where the registers hold both
/// steps beside the sums.
void planSteps(LoopPlan &plan, const Chip &chip, int warps) {
  // Of 255; the rest is for slots, masks and what the loop does besides. With more, kernels spilled.
  constexpr int64_t kMostRegisters = 220;
  if (plan.loads.size() != 2 || !llvm::hasSingleElement(plan.loop.getBody()->getOps<tt::DotOp>())) return;
  tt::DotOp dot = *plan.loop.getBody()->getOps<tt::DotOp>().begin();
  for (Value operand : {dot.getA(), dot.getB()}) {
    tt::LoadOp load = onlyOperand(operand);
    if (!load || llvm::none_of(plan.loads, [&](const PipelinedLoad &l) { return l.load == load; })) return;
  }
  const DotPlan product = planOf(dot, chip, warps);
  RankedTensorType a = cast<RankedTensorType>(dot.getA().getType());
  if (product.types.a != a.getElementType() || a.getRank() != 2) return;
  if (byWarpGroups(plan, dot, product, chip, warps)) return;
  const int64_t bits = a.getElementTypeBitWidth(), k = 256 / bits;
  const int64_t words = (product.operandA.inSize(kRegister) + product.operandB.inSize(kRegister)) * bits / 32;
  // An address of 64 bits for each copy of 16 bytes.
  int64_t addresses = 0;
  for (const PipelinedLoad &load : plan.loads) addresses += 2 * tileBytes(load.load) / (16 * 32 * warps);
  const int64_t registers = product.accumulator.inSize(kRegister) + 2 * words * k / a.getDimSize(1) + addresses;
  if (a.getDimSize(1) < 2 * k || registers > kMostRegisters) return;
  plan.stepped = dot;
  plan.stepK = k;
}

std::optional<LoopPlan> planLoop(scf::ForOp loop, const Chip &chip, int warps, int stages, int most,
                                 const AxisInfoAnalysis &axis) {
  LoopPlan plan;
  plan.loop = loop;
  plan.slots = stages;
  if (IntegerAttr asked = loop->getAttrOfType<IntegerAttr>("tt.num_stages")) plan.slots = int(asked.getInt());
  plan.slots = std::min(plan.slots, most);
  if (plan.slots < 2) return std::nullopt;
  const std::optional<llvm::SmallDenseSet<Value>> written = argumentsWritten(loop);
  if (!written) return std::nullopt;
  int64_t bytes = 0;
  llvm::DenseSet<Operation *> seen;
  for (tt::DotOp dot : loop.getBody()->getOps<tt::DotOp>()) {
    if (planOf(dot, chip, warps).kind != DotKind::MmaSync) continue;
    llvm::SetVector<tt::LoadOp> loads;
    for (Value operand : {dot.getA(), dot.getB()}) loadsBehind(operand, loop.getBody(), loads);
    for (tt::LoadOp load : loads) {
      int fast = 0;
      if (!seen.insert(load).second || !copyable(load, axis, fast) || !readsElsewhere(load, *written)) continue;
      LoopPlan tried = plan;
      if (!addToSlice(load.getPtr(), tried) || !addToSlice(load.getMask(), tried)) continue;
      plan = std::move(tried);
      plan.loads.push_back({load, fast, {}});
      bytes += tileBytes(load);
    }
  }
  if (plan.loads.empty()) return std::nullopt;
  plan.slots = int(std::min<int64_t>(plan.slots, (chip.sharedPerBlock - kReserve) / bytes));
  if (plan.slots < 2) return std::nullopt;
  plan.ahead = plan.slots - 1;
  planOpen(plan, chip, warps, bytes, most);
  if (!plan.open) planSteps(plan, chip, warps);
  return plan;
}

class LoopRewriter {
public:
  explicit LoopRewriter(LoopPlan &plan) : plan_(plan), loop_(plan.loop), b_(plan.loop), loc_(plan.loop.getLoc()) {}

  void run() {
    for (PipelinedLoad &load : plan_.loads) {
      RankedTensorType tile = cast<RankedTensorType>(load.load.getType());
      SmallVector<int64_t> shape{plan_.slots};
      shape.append(tile.getShape().begin(), tile.getShape().end());
      load.ring = ttg::LocalAllocOp::create(b_, loc_, ttg::RingType::get(b_.getContext(), shape, tile.getElementType()),
                                            uint32_t(load.fast));
    }
    findLive();
    // Before the loop: the copies of the first turns. ahead_ has the slice's carried values of the iteration that is
    // copied next.
    for (unsigned number : plan_.sliceArgs) ahead_.push_back(loop_.getInitArgs()[number]);
    Value iv = loop_.getLowerBound();
    for (int turn = 0; turn < plan_.ahead; ++turn) {
      copyAhead(iv, constant(turn));
      iv = arith::AddIOp::create(b_, loc_, iv, loop_.getStep());
    }
    if (plan_.stepped) {
      wait();
      firstStep_ = operandsOfStep(0, constant(0));
    }
    rewriteLoop();
  }

private:
  Value constant(int value) { return arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(value)); }

  /// One group an iteration: when all but those of the turns behind the next have arrived, so has that of the tiles that
  /// are read next.
  void wait() { ttg::AsyncWaitOp::create(b_, loc_, uint32_t(plan_.ahead - 1)); }

  /// Begins the copies of the iteration with induction variable `iv` and carried values ahead_, and moves ahead_ one
  /// iteration on.
  void copyAhead(Value iv, Value slot) {
    IRMapping map;
    map.map(loop_.getInductionVar(), iv);
    for (auto [number, value] : llvm::zip(plan_.sliceArgs, ahead_)) map.map(loop_.getRegionIterArg(number), value);
    for (Operation &op : loop_.getBody()->without_terminator())
      if (plan_.slice.contains(&op)) b_.clone(op, map);
    Value inside = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, iv, loop_.getUpperBound());
    for (PipelinedLoad &load : plan_.loads) {
      RankedTensorType tile = cast<RankedTensorType>(load.load.getType());
      Value mask = tt::SplatOp::create(b_, loc_, RankedTensorType::get(tile.getShape(), b_.getI1Type()), inside);
      if (Value own = load.load.getMask()) mask = arith::AndIOp::create(b_, loc_, map.lookupOrDefault(own), mask);
      ttg::AsyncCopyOp::create(b_, load.load.getLoc(), map.lookupOrDefault(load.load.getPtr()), mask, load.ring, slot);
    }
    ttg::AsyncCommitOp::create(b_, loc_);
    Operation *yield = loop_.getBody()->getTerminator();
    for (auto [number, value] : llvm::zip(plan_.sliceArgs, ahead_))
      value = map.lookupOrDefault(yield->getOperand(number));
  }

  // ---- what is still needed of the body once its loads have become reads of rings

  /// Null for any other op.
  const PipelinedLoad *pipelined(Operation *op) const {
    for (const PipelinedLoad &load : plan_.loads)
      if (load.load == op) return &load;
    return nullptr;
  }
  void markLive(Value v) {
    Block *body = loop_.getBody();
    if (BlockArgument argument = dyn_cast<BlockArgument>(v)) {
      if (argument.getOwner() != body || argument == loop_.getInductionVar()) return;
      unsigned number = argument.getArgNumber() - 1;
      if (liveArgs_.insert(number)) markLive(body->getTerminator()->getOperand(number));
      return;
    }
    if (Operation *op = body->findAncestorOpInBlock(*v.getDefiningOp())) markLive(op);
  }
  void markLive(Operation *op) {
    if (!liveOps_.insert(op).second || pipelined(op)) return;
    op->walk([&](Operation *inside) {
      for (Value operand : inside->getOperands()) markLive(operand);
    });
  }
  void findLive() {
    for (Operation &op : loop_.getBody()->without_terminator())
      if (!isMemoryEffectFree(&op) && !pipelined(&op)) markLive(&op);
    for (OpResult result : loop_.getResults()) {
      if (result.use_empty()) continue;
      if (liveArgs_.insert(result.getResultNumber()))
        markLive(loop_.getBody()->getTerminator()->getOperand(result.getResultNumber()));
    }
  }

  void rewriteLoop() {
    // Carried: what was and is still needed, then the slice's values ahead, then the slots to fill and to read.
    SmallVector<Value> inits;
    for (unsigned number : liveArgs_) inits.push_back(loop_.getInitArgs()[number]);
    inits.append(firstStep_.begin(), firstStep_.end());
    inits.append(ahead_.begin(), ahead_.end());
    inits.push_back(constant(plan_.ahead));
    inits.push_back(constant(0));
    scf::ForOp rewritten =
        scf::ForOp::create(b_, loc_, loop_.getLowerBound(), loop_.getUpperBound(), loop_.getStep(), inits);
    rewritten->setAttrs(loop_->getAttrs());
    if (plan_.open && liveArgs_.contains(plan_.openNumber)) {
      const auto number = llvm::find(liveArgs_, plan_.openNumber) - liveArgs_.begin();
      rewritten->setAttr(placed::kOpenValuesAttr, b_.getDenseI32ArrayAttr({int32_t(number)}));
    }
    Block *body = rewritten.getBody();
    if (body->mightHaveTerminator()) body->getTerminator()->erase();
    b_.setInsertionPointToEnd(body);

    ValueRange carried = rewritten.getRegionIterArgs();
    IRMapping map;
    map.map(loop_.getInductionVar(), rewritten.getInductionVar());
    for (auto [i, number] : llvm::enumerate(liveArgs_)) map.map(loop_.getRegionIterArg(number), carried[i]);
    for (size_t i = 0; i < firstStep_.size(); ++i) firstStep_[i] = carried[liveArgs_.size() + i];
    for (size_t i = 0; i < ahead_.size(); ++i) ahead_[i] = carried[liveArgs_.size() + firstStep_.size() + i];
    Value fill = carried[carried.size() - 2], read = carried[carried.size() - 1];

    // Every thread has left the slot that is filled next, since it read that one before it came here, and waited for the
    // product of the turn before the last.
    if (!plan_.stepped) wait();
    Value distance = arith::ConstantOp::create(b_, loc_, b_.getIntegerAttr(loop_.getStep().getType(), plan_.ahead));
    Value copied = arith::AddIOp::create(b_, loc_, rewritten.getInductionVar(),
                                         arith::MulIOp::create(b_, loc_, loop_.getStep(), distance));
    if (!plan_.stepped && !plan_.open) copyAhead(copied, fill);
    for (Operation &op : loop_.getBody()->without_terminator()) {
      if (!liveOps_.contains(&op) || leadsToSteps(&op)) continue;
      if (plan_.stepped == &op)
        map.map(op.getResult(0), multiplyBySteps(map.lookupOrDefault(plan_.stepped.getC()), copied, fill, read));
      else if (const PipelinedLoad *load = pipelined(&op))
        map.map(op.getResult(0), ttg::LocalLoadOp::create(b_, op.getLoc(), op.getResult(0).getType(), load->ring, read,
                                                          DenseI32ArrayAttr())
                                     .getResult());
      else
        b_.clone(op, map);
      if (plan_.open == &op) {
        // Copies begin while the product is under way.
        map.lookup(op.getResult(0)).getDefiningOp()->setAttr(placed::kOpenAttr, b_.getUnitAttr());
        copyAhead(copied, fill);
        placed::WaitProductsOp::create(b_, loc_, 1u);
      }
    }
    SmallVector<Value> results;
    Operation *yield = loop_.getBody()->getTerminator();
    for (unsigned number : liveArgs_) results.push_back(map.lookupOrDefault(yield->getOperand(number)));
    results.append(firstStep_.begin(), firstStep_.end());
    results.append(ahead_.begin(), ahead_.end());
    results.push_back(next(fill));
    results.push_back(next(read));
    scf::YieldOp::create(b_, loc_, results);

    b_.setInsertionPointAfter(rewritten);
    ttg::AsyncWaitOp::create(b_, loc_, 0u);
    for (PipelinedLoad &load : plan_.loads) ttg::LocalDeallocOp::create(b_, loc_, load.ring);
    for (auto [i, number] : llvm::enumerate(liveArgs_))
      loop_.getResult(number).replaceAllUsesWith(rewritten.getResult(i));
    loop_.erase();
  }

  // ---- products by steps

  /// Whether `op` leads from a load to the product by steps, which has parts of its own.
  bool leadsToSteps(Operation *op) {
    tt::DotOp dot = plan_.stepped;
    return dot && (pipelined(op) || op == dot.getA().getDefiningOp() || op == dot.getB().getDefiningOp());
  }

  /// Both operands' parts at `k`, as they lie in their rings.
  SmallVector<Value, 2> operandsOfStep(int64_t k, Value slot) {
    SmallVector<Value, 2> parts;
    tt::DotOp dot = plan_.stepped;
    for (Value operand : {dot.getA(), dot.getB()}) {
      const bool turned = bool(operand.getDefiningOp<tt::TransOp>());
      tt::LoadOp load = onlyOperand(operand);
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
  Value multiplyBySteps(Value sum, Value copied, Value fill, Value read) {
    const int64_t steps = cast<RankedTensorType>(plan_.stepped.getA().getType()).getDimSize(1) / plan_.stepK;
    SmallVector<Value, 2> parts = firstStep_;
    for (int64_t step = 0; step < steps; ++step) {
      if (step + 1 == steps) wait();
      SmallVector<Value, 2> following =
          step + 1 < steps ? operandsOfStep((step + 1) * plan_.stepK, read) : operandsOfStep(0, next(read));
      if (step == 0) copyAhead(copied, fill);
      sum = multiplyStep(parts, sum);
      parts = following;
    }
    firstStep_ = parts;
    return sum;
  }

  Value next(Value slot) {
    Value after = arith::AddIOp::create(b_, loc_, slot, constant(1));
    Value isLast = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::eq, after, constant(plan_.slots));
    return arith::SelectOp::create(b_, loc_, isLast, constant(0), after);
  }

  LoopPlan &plan_;
  scf::ForOp loop_;
  OpBuilder b_;
  Location loc_;
  llvm::DenseSet<Operation *> liveOps_;
  llvm::SetVector<unsigned> liveArgs_;
  SmallVector<Value> ahead_;
  SmallVector<Value, 2> firstStep_; // of a product by steps: what the next iteration multiplies first
};

} // namespace

int pipelineLoops(tt::FuncOp function, const Chip &chip, int warps, int stages, int most) {
  if (!chip.has(Feature::CpAsync)) return 0;
  std::vector<LoopPlan> plans;
  {
    AxisInfoAnalysis axis(function);
    function.walk([&](scf::ForOp loop) {
      if (std::optional<LoopPlan> plan = planLoop(loop, chip, warps, stages, most, axis))
        plans.push_back(std::move(*plan));
    });
  }
  for (LoopPlan &plan : plans) LoopRewriter(plan).run();
  return int(plans.size());
}

} // namespace neso::nvidia
