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
    std::optional<int64_t> lo = constantOf(loop.getLowerBound()), hi = constantOf(loop.getUpperBound()), step = constantOf(loop.getStep());
    return lo && hi && step && *step > 0 ? std::max<double>(0, std::ceil(static_cast<double>(*hi - *lo) / static_cast<double>(*step))) : kUnknownTrips;
  }
  return llvm::isa<mlir::scf::WhileOp>(op) ? kUnknownTrips : 1;
}

double weightOf(mlir::Operation *op) {
  if (llvm::isa<tt::SplatOp, tt::BroadcastOp, tt::ExpandDimsOp, tt::MakeRangeOp, mlir::arith::ConstantOp>(op)) return 0.25;
  if (llvm::isa<tt::LoadOp, tt::StoreOp>(op)) return 2;
  llvm::StringRef name = op->getName().getStringRef();
  if (name.starts_with("math.") || name == "arith.divf" || name.starts_with("arith.div") || name.starts_with("arith.rem")) return 8;
  return 1;
}

double workOf(mlir::Region &region, double &largest) {
  double out = 0;
  for (mlir::Operation &op : region.getOps()) {
    double size = 1;
    for (mlir::Type t : op.getResultTypes()) size = std::max(size, elementsOf(t)), largest = std::max(largest, bytesOf(t));
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

} // namespace

double programWork(tt::FuncOp function) {
  double largest = 0, work = workOf(function.getBody(), largest);
  return work * (1 + largest / kTileBytes);
}

double launchCost(tt::FuncOp function, double programs) { return std::ceil(programs / kParallel) * (programWork(function) + kProgramStart); }

} // namespace neso
