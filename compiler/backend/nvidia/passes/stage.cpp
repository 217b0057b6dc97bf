// Operands of products by wgmma that the block computed itself (pipeline.h).
#include "backend/nvidia/passes/loop_plan.h"

using namespace mlir;

namespace neso::nvidia {

namespace {

/// The dim with neighbours: the last one, as threads hold results of products, unless the type has to lie along K.
struct Staged {
  Value source; // what is stored; the operand, or what it is the transposition of
  bool turned;
  int fast;
  GroupOperand place;
};

Staged stagedAs(Value operand, int k, bool alongK) {
  Staged s{operandSource(operand), false, 1, GroupOperand::AlongK};
  s.turned = s.source != operand;
  const int kOfSource = s.turned ? 1 - k : k;
  if (alongK) s.fast = kOfSource;
  s.place = s.fast == kOfSource ? GroupOperand::AlongK : GroupOperand::AcrossK;
  return s;
}

/// Where the tile is stored: in front of the outermost loop that does not compute it.
Operation *anchorOf(tt::DotOp dot, Value source) {
  Operation *anchor = dot;
  for (Operation *loop = dot->getParentOp(); isa_and_present<scf::ForOp, scf::WhileOp>(loop); loop = loop->getParentOp()) {
    if (loop->isAncestor(source.getParentRegion()->getParentOp())) break;
    anchor = loop;
  }
  return anchor;
}

class Stager {
public:
  Stager(tt::FuncOp function, const Chip &chip, int warps) : function_(function), chip_(chip), warps_(warps) {}

  int run() {
    if (!chip_.has(Feature::Wgmma) || function_->hasAttr(placed::kProducerAttr)) return 0;
    SmallVector<tt::DotOp> dots;
    function_.walk([&](tt::DotOp dot) {
      if (dot.getType().getRank() == 2 && !planWarpGroups(dot, chip_, warps_)) dots.push_back(dot);
    });
    int staged = 0;
    for (tt::DotOp dot : dots) staged += stage(dot);
    return staged;
  }

private:
  /// Not what copies brought, whole or in parts that a loop carries from step to step.
  static bool isComputed(Value v) {
    Value source = operandSource(v);
    if (BlockArgument argument = dyn_cast<BlockArgument>(source))
      if (scf::ForOp loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp()))
        if (OpOperand *init = loop.getTiedLoopInit(argument)) source = init->get();
    return !source.getDefiningOp<ttg::LocalLoadOp>();
  }

  bool stage(tt::DotOp dot) {
    if (!isComputed(dot.getA()) || !isComputed(dot.getB())) return false;
    for (const bool alongK : {false, true}) {
      const Staged b = stagedAs(dot.getB(), 0, alongK), a = stagedAs(dot.getA(), 1, alongK);
      if (planWarpGroups(dot, chip_, warps_, GroupOperand::Registers, b.place)) return put(dot, 1, b);
      if (planWarpGroups(dot, chip_, warps_, a.place, b.place)) return put(dot, 0, a) && put(dot, 1, b);
    }
    return false;
  }

  bool put(tt::DotOp dot, unsigned number, const Staged &s) {
    Operation *anchor = anchorOf(dot, s.source);
    const Location loc = dot.getLoc();
    OpBuilder b(anchor);
    RankedTensorType type = cast<RankedTensorType>(s.source.getType());
    Value &ring = rings_[{s.source, {anchor, s.fast}}];
    if (!ring) {
      SmallVector<int64_t> shape{1};
      shape.append(type.getShape().begin(), type.getShape().end());
      ring = ttg::LocalAllocOp::create(b, loc, ttg::RingType::get(b.getContext(), shape, type.getElementType()), uint32_t(s.fast));
      Value slot = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
      placed::LocalStoreOp::create(b, loc, s.source, ring, slot);
      b.setInsertionPointAfter(anchor);
      ttg::LocalDeallocOp::create(b, loc, ring);
    }
    b.setInsertionPoint(dot);
    Value slot = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
    Value tile = ttg::LocalLoadOp::create(b, loc, type, ring, slot, DenseI32ArrayAttr());
    if (s.turned) {
      Operation *turned = b.insert(dot->getOperand(number).getDefiningOp()->clone());
      turned->setOperand(0, tile);
      tile = turned->getResult(0);
    }
    dot->setOperand(number, tile);
    return true;
  }

  tt::FuncOp function_;
  const Chip &chip_;
  int warps_;
  llvm::DenseMap<std::pair<Value, std::pair<Operation *, int>>, Value> rings_;
};

} // namespace

int stageOperands(tt::FuncOp function, const Chip &chip, int warps) { return Stager(function, chip, warps).run(); }

} // namespace neso::nvidia
