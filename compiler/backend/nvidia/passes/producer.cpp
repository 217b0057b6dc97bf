#include "backend/nvidia/passes/producer.h"

#include "base/words.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace neso::nvidia {

namespace {
constexpr std::pair<std::string_view, Turn> kTurns[] = {{"first", Turn::First}, {"wait", Turn::Wait}, {"pass", Turn::Pass}, {"last", Turn::Last}};
}

Turn turnOf(Operation *op) {
  StringAttr turn = op->getAttrOfType<StringAttr>(placed::kTurnAttr);
  return turn ? named(kTurns, std::string_view(turn.getValue())).value_or(Turn::Unknown) : Turn::None;
}

void setTurn(Operation *op, Turn turn) {
  for (const auto &[word, value] : kTurns)
    if (value == turn) op->setAttr(placed::kTurnAttr, StringAttr::get(op->getContext(), word));
}

bool ProducerSlice::add(Value v) {
  if (isa<RankedTensorType>(v.getType())) return false;
  if (BlockArgument argument = dyn_cast<BlockArgument>(v)) {
    Operation *parent = argument.getOwner()->getParentOp();
    if (isa<tt::FuncOp>(parent)) return argument.getOwner()->isEntryBlock();
    scf::ForOp loop = dyn_cast<scf::ForOp>(parent);
    if (!loop) return false;
    if (argument == loop.getInductionVar()) return addOperation(loop);
    if (!values.insert(v).second) return true;
    const unsigned number = argument.getArgNumber() - 1;
    return addOperation(loop) && add(loop.getInitArgs()[number]) && add(loop.getBody()->getTerminator()->getOperand(number));
  }
  Operation *op = v.getDefiningOp();
  // They lie where their attributes say.
  if (isa<ttg::LocalAllocOp, ttg::BarriersOp, tt::MakeTensorDescOp>(op)) return true;
  const unsigned number = cast<OpResult>(v).getResultNumber();
  if (scf::ForOp loop = dyn_cast<scf::ForOp>(op)) {
    if (!values.insert(v).second) return true;
    return add(loop.getRegionIterArg(number));
  }
  if (scf::IfOp branch = dyn_cast<scf::IfOp>(op)) {
    if (!values.insert(v).second) return true;
    bool good = addOperation(branch);
    for (Region &region : branch->getRegions()) good = good && add(region.front().getTerminator()->getOperand(number));
    return good;
  }
  if (op->getNumRegions() || !isMemoryEffectFree(op)) return false;
  return addOperation(op);
}

bool ProducerSlice::addOperation(Operation *op) {
  if (!ops.insert(op).second) return true;
  bool good = true;
  if (scf::ForOp loop = dyn_cast<scf::ForOp>(op)) {
    for (Value bound : {loop.getLowerBound(), loop.getUpperBound(), loop.getStep()}) good = good && add(bound);
  } else {
    for (Value operand : op->getOperands()) good = good && add(operand);
    if (isa<ttg::ByOneThreadOp>(op))
      for (Operation &inside : cast<ttg::ByOneThreadOp>(op).getBody().front())
        for (Value operand : inside.getOperands())
          if (!isa<ttg::RingType, ttg::BarriersType>(operand.getType())) good = good && add(operand);
  }
  Operation *parent = op->getParentOp();
  if (isa<tt::FuncOp>(parent)) return good && op->getBlock()->isEntryBlock();
  return good && isa<scf::ForOp, scf::IfOp>(parent) && addOperation(parent);
}

std::optional<ProducerSlice> producerSlice(tt::FuncOp function) {
  ProducerSlice slice;
  bool good = function.getBody().hasOneBlock();
  function.walk([&](Operation *op) {
    if (!isa<ttg::ByOneThreadOp>(op) && !op->hasAttr(placed::kWithProducerAttr)) return;
    good = good && (!isa<ttg::ByOneThreadOp>(op) || op->hasAttr(placed::kByProducerAttr)) && slice.addOperation(op);
  });
  if (!good) return std::nullopt;
  return slice;
}

std::optional<Producer> producerOf(tt::FuncOp function) {
  DenseI32ArrayAttr given = function->getAttrOfType<DenseI32ArrayAttr>(placed::kProducerAttr);
  if (!given || given.size() != 3) return std::nullopt;
  return Producer{given[0], given[1], given[2]};
}

namespace {
constexpr int kGroup = 4, kLanes = 32, kPortion = 8, kFewest = 24, kMost = 240, kMostThreads = 1024;
}

int blocksWithProducer(const Chip &, int warps) {
  // Two of one group each share a multiprocessor, where one computes while the other multiplies.
  return warps <= kGroup ? 2 : 1;
}

std::optional<Producer> producerFor(const Chip &chip, int warps) {
  if (warps % kGroup != 0) return std::nullopt;
  const int threads = (warps + kGroup) * kLanes, own = warps * kLanes;
  if (threads > kMostThreads) return std::nullopt;
  const int entry = chip.registersOfThread(threads, blocksWithProducer(chip, warps));
  Producer producer{kGroup, kFewest, 0};
  producer.registersOfBlock = std::min(kMost, (entry * threads - kFewest * kGroup * kLanes) / own / kPortion * kPortion);
  if (producer.registersOfBlock <= entry) return std::nullopt;
  return producer;
}

} // namespace neso::nvidia
