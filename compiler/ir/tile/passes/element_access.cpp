#include "ir/tile/passes/element_access.h"

#include <cmath>
#include <limits>

#include "ir/tile/build.h"
#include "ir/tile/passes/effects.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace neso {

ElementAccess elementAccess(tt::FuncOp func, unsigned param) {
  ElementAccess out;
  BlockArgument start = func.getArgument(param);
  if (!isa<tt::PointerType>(start.getType())) return out;
  SmallVector<Value> todo{start};
  while (!todo.empty()) {
    Value v = todo.pop_back_val();
    for (OpOperand &use : v.getUses()) {
      Operation *op = use.getOwner();
      bool address = use.getOperandNumber() == 0;
      if (auto load = dyn_cast<tt::LoadOp>(op); load && address)
        out.loads.push_back(load);
      else if (auto store = dyn_cast<tt::StoreOp>(op); store && address)
        out.stores.push_back(store);
      else if (isa<tt::AddPtrOp, tt::SplatOp, tt::BroadcastOp, tt::ExpandDimsOp, tt::TransOp>(op) && address)
        todo.push_back(op->getResult(0));
      else
        return {};
    }
  }
  out.followed = true;
  return out;
}

Value elementOf(Value address, OpBuilder &b, Type type) {
  Type shaped = type;
  if (auto tensor = dyn_cast<RankedTensorType>(address.getType())) shaped = tensor.clone(type);
  Operation *op = address.getDefiningOp();
  if (!op) return arith::ConstantOp::create(b, address.getLoc(), type, b.getIntegerAttr(type, 0));
  Location loc = op->getLoc();
  if (auto add = dyn_cast<tt::AddPtrOp>(op)) {
    Value offset = add.getOffset();
    unsigned have = getElementTypeOrSelf(offset.getType()).getIntOrFloatBitWidth(), want = type.getIntOrFloatBitWidth();
    if (have < want) offset = arith::ExtSIOp::create(b, loc, shaped, offset);
    if (have > want) offset = arith::TruncIOp::create(b, loc, shaped, offset);
    // The start of the parameter itself adds nothing.
    Value base = add.getPtr();
    while (isa_and_present<tt::SplatOp, tt::BroadcastOp, tt::ExpandDimsOp>(base.getDefiningOp()))
      base = base.getDefiningOp()->getOperand(0);
    if (isa<BlockArgument>(base)) return offset;
    return arith::AddIOp::create(b, loc, elementOf(add.getPtr(), b, type), offset);
  }
  Value inner = elementOf(op->getOperand(0), b, type);
  Operation *copy = b.clone(*op);
  copy->setOperand(0, inner);
  copy->getResult(0).setType(shaped);
  return copy->getResult(0);
}

namespace {

/// A number at the usual values of the parameters, in program 0.
std::optional<int64_t> usualValue(Value v, const std::vector<std::optional<int64_t>> &args, int depth = 0) {
  if (depth > 16) return std::nullopt;
  APInt value;
  if (matchPattern(v, m_ConstantInt(&value))) return value.getSExtValue();
  if (auto arg = dyn_cast<BlockArgument>(v))
    return isa<tt::FuncOp>(arg.getOwner()->getParentOp()) && arg.getArgNumber() < args.size() ? args[arg.getArgNumber()]
                                                                                              : std::nullopt;
  Operation *op = v.getDefiningOp();
  if (isa<tt::GetProgramIdOp>(op)) return 0;
  if (isa<arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp>(op)) return usualValue(op->getOperand(0), args, depth + 1);
  if (op->getNumOperands() != 2) return std::nullopt;
  std::optional<int64_t> a = usualValue(op->getOperand(0), args, depth + 1),
                         b = usualValue(op->getOperand(1), args, depth + 1);
  if (!a || !b) return std::nullopt;
  if (isa<arith::AddIOp>(op)) return *a + *b;
  if (isa<arith::SubIOp>(op)) return *a - *b;
  if (isa<arith::MulIOp>(op)) return *a * *b;
  if (isa<arith::MinSIOp>(op)) return std::min(*a, *b);
  if (isa<arith::MaxSIOp>(op)) return std::max(*a, *b);
  if (isa<arith::DivSIOp>(op) && *b > 0 && *a >= 0) return *a / *b;
  return std::nullopt;
}

} // namespace

double timesTouched(const std::vector<Operation *> &accesses, double programs, double elements,
                    const std::vector<std::optional<int64_t>> &args) {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  double out = 0;
  for (Operation *access : accesses) {
    const Value address = access->getOperand(0);
    Operation *def = address.getDefiningOp();
    double trips = 1;
    bool inLoop = false;
    for (Operation *at = access->getParentOp(); !isa<tt::FuncOp>(at); at = at->getParentOp()) {
      if (isa<scf::IfOp>(at)) continue;
      auto loop = dyn_cast<scf::ForOp>(at);
      if (!loop) return kUnknown;
      inLoop = true;
      std::optional<int64_t> lo = usualValue(loop.getLowerBound(), args), hi = usualValue(loop.getUpperBound(), args),
                             step = usualValue(loop.getStep(), args);
      if (!lo || !hi || !step || *step <= 0) return kUnknown;
      trips *= std::max<double>(0, std::ceil(static_cast<double>(*hi - *lo) / static_cast<double>(*step)));
    }
    auto add = dyn_cast_or_null<tt::AddPtrOp>(def);
    int64_t axis = -1;
    if (!inLoop && add && add.getPtr().getDefiningOp<tt::SplatOp>() && coversOnce(add.getOffset(), axis) && axis == 0) {
      out += 1;
      continue;
    }
    auto tensor = dyn_cast<RankedTensorType>(address.getType());
    double lanes = tensor ? static_cast<double>(tensor.getNumElements()) : 1;
    out += lanes * trips * programs / std::max(elements, 1.0);
  }
  return out;
}

} // namespace neso
