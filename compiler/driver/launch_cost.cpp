#include "driver/launch_cost.h"

#include <algorithm>
#include <cmath>

namespace neso {
namespace {

constexpr double kUnknownTrips = 16, kProgramStart = 400, kParallel = 8, kTileBytes = 64 * 1024;

double elementsOf(mlir::Type type) {
  auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(type);
  return tensor ? static_cast<double>(tensor.getNumElements()) : 1;
}
double bytesOf(mlir::Type type) {
  auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(type);
  if (!tensor) return 0;
  mlir::Type e = tensor.getElementType();
  return elementsOf(type) * (e.isIntOrFloat() ? std::max(1u, e.getIntOrFloatBitWidth() / 8) : 8);
}

std::optional<int64_t> constantOf(mlir::Value v) {
  if (auto c = v.getDefiningOp<mlir::arith::ConstantIntOp>()) return c.value();
  return std::nullopt;
}

double tripsOf(mlir::Operation *op) {
  if (auto loop = llvm::dyn_cast<mlir::scf::ForOp>(op)) {
    std::optional<int64_t> lo = constantOf(loop.getLowerBound()), hi = constantOf(loop.getUpperBound()),
                           step = constantOf(loop.getStep());
    return lo && hi && step && *step > 0
               ? std::max<double>(0, std::ceil(static_cast<double>(*hi - *lo) / static_cast<double>(*step)))
               : kUnknownTrips;
  }
  return llvm::isa<mlir::scf::WhileOp>(op) ? kUnknownTrips : 1;
}

double weightOf(mlir::Operation *op) {
  if (llvm::isa<tt::SplatOp, tt::BroadcastOp, tt::ExpandDimsOp, tt::MakeRangeOp, mlir::arith::ConstantOp>(op))
    return 0.25;
  if (llvm::isa<tt::LoadOp, tt::StoreOp>(op)) return 2;
  llvm::StringRef name = op->getName().getStringRef();
  if (name.starts_with("math.") || name.starts_with("arith.div") || name.starts_with("arith.rem")) return 8;
  return 1;
}

double workOf(mlir::Region &region, double &largest) {
  double out = 0;
  for (mlir::Operation &op : region.getOps()) {
    double size = 1;
    for (mlir::Type t : op.getResultTypes())
      size = std::max(size, elementsOf(t)), largest = std::max(largest, bytesOf(t));
    for (mlir::Type t : op.getOperandTypes()) size = std::max(size, elementsOf(t));
    if (auto dot = llvm::dyn_cast<tt::DotOp>(op)) {
      auto a = llvm::cast<mlir::RankedTensorType>(dot.getA().getType());
      size = elementsOf(dot.getResult().getType()) * static_cast<double>(a.getShape().back()) / 8;
    }
    out += size * weightOf(&op);
    double inner = 0;
    for (mlir::Region &r : op.getRegions()) inner += workOf(r, largest);
    // The region of a reduction or scan runs once an element.
    bool perElement = llvm::isa<tt::ReduceOp, tt::ScanOp>(op);
    out += inner * (perElement ? size : tripsOf(&op));
  }
  return out;
}

/// What one program asks of a GPU.
struct Demand {
  double elements = 0;             // times weight
  double products = 0;             // multiply-adds, in units of 16-bit ones
  double bytes = 0;                // from and to memory
  double waiting = 0;              // cycles
  double carried = 0, largest = 0; // bytes of tiles: the most that a loop carries, the largest other
  double operands = 0;             // bytes of the largest product's operands
};

double elementBytes(mlir::Value v) { return bytesOf(v.getType()) / elementsOf(v.getType()); }

/// tripCycles: MachineSheet.
void addDemand(mlir::Region &region, double times, int stages, double tripCycles, Demand &d) {
  for (mlir::Operation &op : region.getOps()) {
    double size = 1;
    for (mlir::Type t : op.getResultTypes()) size = std::max(size, elementsOf(t));
    for (mlir::Type t : op.getOperandTypes()) size = std::max(size, elementsOf(t));
    const bool loop = llvm::isa<mlir::scf::ForOp, mlir::scf::WhileOp>(op);
    double carried = 0;
    for (mlir::Value v : op.getResults()) {
      if (loop)
        carried += bytesOf(v.getType());
      else if (!llvm::isa<tt::PointerType>(mlir::getElementTypeOrSelf(v.getType())))
        d.largest = std::max(d.largest, bytesOf(v.getType()));
    }
    d.carried = std::max(d.carried, carried);
    if (auto dot = llvm::dyn_cast<tt::DotOp>(op)) {
      auto a = llvm::cast<mlir::RankedTensorType>(dot.getA().getType());
      d.products += times * elementsOf(dot.getResult().getType()) * static_cast<double>(a.getShape().back()) *
                    elementBytes(dot.getA()) / 2;
      d.operands = std::max(d.operands, bytesOf(dot.getA().getType()) + bytesOf(dot.getB().getType()));
    } else {
      d.elements += times * size * weightOf(&op);
    }
    if (auto load = llvm::dyn_cast<tt::LoadOp>(op)) d.bytes += times * bytesOf(load.getType());
    if (auto store = llvm::dyn_cast<tt::StoreOp>(op)) d.bytes += times * bytesOf(store.getValue().getType());
    const double trips = loop ? tripsOf(&op) : llvm::isa<tt::ReduceOp, tt::ScanOp>(op) ? size : 1;
    bool loads = false, multiplies = false;
    for (mlir::Region &r : op.getRegions()) {
      addDemand(r, times * trips, stages, tripCycles, d);
      r.walk([&](mlir::Operation *inner) {
        loads |= llvm::isa<tt::LoadOp>(inner), multiplies |= llvm::isa<tt::DotOp>(inner);
      });
    }
    if (loop && loads) d.waiting += times * trips * tripCycles / (multiplies ? std::max(1, stages - 1) : 1);
  }
}

double costOfThreads(tt::FuncOp function, double programs) {
  double largest = 0, work = workOf(function.getBody(), largest);
  return std::ceil(programs / kParallel) * (work * (1 + largest / kTileBytes) + kProgramStart);
}

double costOfBlocks(tt::FuncOp function, double programs, int warps, int stages, const MachineSheet &machine) {
  Demand d;
  d.waiting = machine.startCycles;
  addDemand(function.getBody(), 1, stages, machine.tripCycles, d);
  const double shared = static_cast<double>(machine.sharedBytes), processors = static_cast<double>(machine.processors);
  if (d.operands > shared) return 1e30;
  const double threads = 32.0 * warps, registers = 32 + (d.carried + d.largest) / 4 / threads;
  // Rings that do not fit are made shorter.
  const double taken =
      std::min<double>(d.operands * std::max(1, stages - 1), shared) + static_cast<double>(machine.programOverhead);
  const double kept = std::min(registers, static_cast<double>(machine.threadRegisters));
  double resident = std::min(
      {std::floor(static_cast<double>(machine.registers) / (kept * threads)),
       std::floor(static_cast<double>(machine.threads) / threads), static_cast<double>(machine.programs),
       std::floor(static_cast<double>(machine.sharedPerProcessor) / taken), std::ceil(programs / processors)});
  resident = std::max(resident, 1.0);
  const double multiplying = std::min(1.0, resident * warps / 4);
  const double wave =
      std::max({resident * d.elements / machine.elementsPerCycle,
                resident * d.products / machine.productsPerCycle / multiplying,
                resident * d.bytes / machine.bytesPerCycle, d.waiting});
  const double spilling = 1 + 4 * std::max(0.0, registers - 224) / 128;
  return std::ceil(programs / (resident * processors)) * wave * spilling;
}

} // namespace

double launchCost(tt::FuncOp function, double programs, int warps, int stages, const MachineSheet &machine,
                  const Capabilities &caps) {
  return caps.threadBlocks ? costOfBlocks(function, programs, warps, stages, machine)
                           : costOfThreads(function, programs);
}

} // namespace neso
