// plan -> tile: writes the tile function of every kernel of a plan, with its arguments and grid.
//
// One kernel becomes one tt.func. A program instance computes one tile of the kernel's outer space (x), looping over
// the inner space (r) in chunks when it reduces. What is decided of a kernel besides (lower/tiling) is given; what a tile
// means for registers and threads is the backend's business. Kernels whose functions are equal share one.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "lower/tiling/tiling.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace neso {

/// How a kernel is launched.
struct KernelCode {
  /// Of the module; kernels with equal functions share one. Empty: it is launched as a part of another.
  std::string function;
  std::vector<plan::KernelArg> args;
  std::array<Expr, 3> grid = {1, 1, 1};
  /// For targets that run a program by a block of threads: its size in warps, buffers of software pipelines.
  int warps = 4, stages = 3;
};

struct TilePrograms {
  /// One public tt.func for each distinct kernel.
  mlir::OwningOpRef<mlir::ModuleOp> module;
  /// By KernelId.
  std::vector<KernelCode> kernels;
};

/// `userFunctions` are the tile functions (tt.func of `context`, through the pipeline) of the user's kernels, by
/// UserKernelSpec::kernel.
Result<TilePrograms> planToTile(const plan::Plan &plan, const Tilings &tilings, mlir::MLIRContext &context,
                                const std::vector<mlir::Operation *> &userFunctions = {});

/// Says in the plan how its kernels are launched.
void assignCode(plan::Plan &plan, std::vector<KernelCode> kernels);

} // namespace neso
