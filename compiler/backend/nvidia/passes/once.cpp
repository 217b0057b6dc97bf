// Products that stand in no loop (pipeline.h).
#include "backend/nvidia/passes/loop_plan.h"
#include "ir/tile/passes/axis_info.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace neso::nvidia {

namespace {

/// The load that an operand is, transposed or not; null for what is computed, and for loads in another block.
tt::LoadOp loadBehind(Value operand, Block *block) {
  tt::LoadOp load = operandSource(operand).getDefiningOp<tt::LoadOp>();
  return load && load->getBlock() == block ? load : tt::LoadOp();
}

/// The ops that use a load's tile. Transpositions move nothing: their own uses count.
struct TileUses {
  Operation *first = nullptr, *last = nullptr;
  SmallVector<Operation *, 2> turned;      // transpositions
  SmallVector<Operation *, 4> inRegisters; // what takes the tile as it is and is no product
};
/// Nothing where some stand in another block.
std::optional<TileUses> usesOf(tt::LoadOp load) {
  TileUses uses;
  SmallVector<Operation *, 4> todo(load->user_begin(), load->user_end());
  while (!todo.empty()) {
    Operation *user = todo.pop_back_val();
    if (user->getBlock() != load->getBlock() || user->hasTrait<OpTrait::IsTerminator>()) return std::nullopt;
    if (isa<tt::TransOp>(user)) {
      if (!llvm::is_contained(uses.turned, user)) uses.turned.push_back(user);
      todo.append(user->user_begin(), user->user_end());
      continue;
    }
    if (!isa<tt::DotOp>(user) && llvm::is_contained(load->getUsers(), user)) uses.inRegisters.push_back(user);
    if (!uses.first || user->isBeforeInBlock(uses.first)) uses.first = user;
    if (!uses.last || uses.last->isBeforeInBlock(user)) uses.last = user;
  }
  if (!uses.first) return std::nullopt;
  for (SmallVectorImpl<Operation *> *ops : {static_cast<SmallVectorImpl<Operation *> *>(&uses.turned), static_cast<SmallVectorImpl<Operation *> *>(&uses.inRegisters)})
    llvm::sort(*ops, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  return uses;
}

/// Whether nothing from the load to the first use of its tile may change memory: the copy may come as late as that.
bool isUnchanged(tt::LoadOp load, Operation *firstUse) {
  for (Operation *op = load->getNextNode(); op != firstUse; op = op->getNextNode())
    if (!isMemoryEffectFree(op) && !isa<tt::LoadOp>(op)) return false;
  return true;
}

bool hasProductBetween(Operation *first, Operation *last) {
  for (Operation *op = first; op != last; op = op->getNextNode())
    if (isa<tt::DotOp>(op) || op->getNumRegions() > 0) return true;
  return false;
}

struct OnceProduct {
  tt::DotOp dot;
  SmallVector<PipelinedLoad, 2> loads; // operands that copies can bring
};

std::optional<GroupOperand> copiedPlaceOf(Value operand, int k, const OnceProduct &product) {
  for (const PipelinedLoad &l : product.loads) {
    if (operandSource(operand).getDefiningOp() != l.load) continue;
    const int fast = operand == operandSource(operand) ? l.fast : 1 - l.fast;
    return fast == k ? GroupOperand::AlongK : GroupOperand::AcrossK;
  }
  return std::nullopt;
}

/// The product with those of its operands that copies bring, if it is one by wgmma then, a right operand that the block computes being stored for it.
std::optional<OnceProduct> planOnce(tt::DotOp dot, const Chip &chip, int warps, const AxisInfoAnalysis &axis) {
  if (dot.getType().getRank() != 2) return std::nullopt;
  auto bring = [&](Value operand, OnceProduct &product) {
    int fast = 0;
    tt::LoadOp load = loadBehind(operand, dot->getBlock());
    if (!load || !isCopyable(load, axis, fast)) return;
    const std::optional<TileUses> uses = usesOf(load);
    if (uses && isUnchanged(load, uses->first)) product.loads.push_back({load, fast});
  };
  // The left operand in registers where copies cannot bring it as the instruction reads it.
  for (const bool left : {true, false}) {
    OnceProduct product{dot, {}};
    if (left) bring(dot.getA(), product);
    bring(dot.getB(), product);
    const GroupOperand a = copiedPlaceOf(dot.getA(), 1, product).value_or(GroupOperand::Registers);
    for (const bool alongK : {false, true}) {
      const GroupOperand b = copiedPlaceOf(dot.getB(), 0, product).value_or(stagedPlace(dot.getB(), 0, alongK));
      if (planWarpGroups(dot, chip, warps, a, b)) return product;
    }
  }
  return std::nullopt;
}

} // namespace

std::vector<PipelinedLoad> planOnceLoads(tt::FuncOp function, const std::vector<LoopPlan> &plans, const Chip &chip, int warps, const AxisInfoAnalysis &axis) {
  std::vector<PipelinedLoad> loads;
  int64_t bytes = 0;
  auto isPipelined = [&](Operation *op) { return llvm::any_of(plans, [&](const LoopPlan &plan) { return plan.loop->isProperAncestor(op); }); };
  function.walk([&](tt::DotOp dot) {
    if (isPipelined(dot)) return;
    std::optional<OnceProduct> product = planOnce(dot, chip, warps, axis);
    if (!product) return;
    SmallVector<PipelinedLoad, 2> added;
    int64_t more = 0;
    for (const PipelinedLoad &load : product->loads) {
      auto isSame = [&](const PipelinedLoad &other) { return other.load == load.load; };
      if (llvm::any_of(loads, isSame) || llvm::any_of(added, isSame)) continue;
      added.push_back(load);
      more += slotBytes(load);
    }
    if (bytes + more > chip.sharedPerBlock - kReserve) return;
    bytes += more;
    loads.insert(loads.end(), added.begin(), added.end());
  });
  return loads;
}

void copyOnce(const std::vector<PipelinedLoad> &loads) {
  // One wait in front of the first use of each tile, one behind the last, where all threads have left it.
  llvm::DenseMap<Operation *, ttg::AsyncWaitOp> ends;
  for (const PipelinedLoad &given : loads) {
    tt::LoadOp load = given.load;
    const TileUses uses = *usesOf(load);
    const Location loc = load.getLoc();
    RankedTensorType tile = cast<RankedTensorType>(load.getType());
    OpBuilder b(load);
    Value ring = ringFor(given, 1, b, loc);
    Value slot = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
    Value mask = load.getMask();
    if (!mask) {
      RankedTensorType bits = RankedTensorType::get(tile.getShape(), b.getI1Type());
      mask = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(bits, true));
    }
    ttg::AsyncCopyOp::create(b, loc, load.getPtr(), mask, ring, slot);
    ttg::AsyncCommitOp::create(b, loc);
    b.setInsertionPoint(uses.first);
    // Tiles that are first used at one place share its wait.
    Operation *before = uses.first->getPrevNode();
    while (before && isa<ttg::LocalLoadOp, tt::TransOp>(before)) before = before->getPrevNode();
    if (!before || !isa<ttg::AsyncWaitOp>(before)) ttg::AsyncWaitOp::create(b, loc, 0u);
    // What is read again behind a product leaves registers to it.
    const OpBuilder::InsertPoint first = b.saveInsertionPoint();
    ttg::LocalLoadOp read;
    Operation *reader = nullptr;
    for (Operation *user : uses.inRegisters) {
      b.setInsertionPoint(user);
      if (!read || hasProductBetween(reader, user)) read = ttg::LocalLoadOp::create(b, loc, tile, ring, slot, DenseI32ArrayAttr());
      user->replaceUsesOfWith(load, read);
      reader = user;
    }
    b.restoreInsertionPoint(first);
    if (!load.use_empty()) load.replaceAllUsesWith(ttg::LocalLoadOp::create(b, loc, tile, ring, slot, DenseI32ArrayAttr()).getResult());
    for (Operation *turned : uses.turned) turned->moveBefore(uses.first);
    ttg::AsyncWaitOp &end = ends[uses.last];
    b.setInsertionPointAfter(uses.last);
    if (!end) end = ttg::AsyncWaitOp::create(b, loc, 0u);
    b.setInsertionPointAfter(end);
    ttg::LocalDeallocOp::create(b, loc, ring);
    load.erase();
  }
}

} // namespace neso::nvidia
