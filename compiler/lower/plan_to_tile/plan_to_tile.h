// plan -> tile: gives every kernel of a plan its tile function, arguments and grid.
//
// One kernel becomes one tt.func. A program instance computes one tile of the kernel's outer space (x), looping over the inner space (r) in
// chunks when it reduces. Blocks are chosen here, from the target's sheet below; what a tile means for registers and threads is the
// backend's business. Kernels whose functions are equal share one.
//
// Contractions (matmul, convolution) whose right operand is a constant get that constant packed into the order in which their tiles read
// it: Plan::program.constants changes then.
#pragma once
#include <memory>
#include <vector>

#include "base/diagnostics.h"
#include "ir/plan/plan.h"

namespace mlir {
class MLIRContext;
class ModuleOp;
class Operation;
template <typename T> class OwningOpRef;
} // namespace mlir

namespace neso {

/// What shared code asks of a target when it chooses blocks (elements).
struct TileTarget {
  int64_t pointwiseBlock = 1024; // elements of one program of a pointwise kernel
  int64_t reduceChunk = 4096;    // r elements of one step of a reduction along contiguous memory
  int64_t columnBlock = 64;      // x elements of one program when the reduction runs across rows
  int64_t dotM = 64, dotN = 64, dotK = 256;
  bool packWeights = true;
};

/// Fills function, args and grid of every kernel. The module holds one public tt.func for each distinct kernel.
/// `userFunctions` are the tile functions (tt.func of `context`, through the pipeline) of the user's kernels, by UserKernelSpec::kernel.
Result<mlir::OwningOpRef<mlir::ModuleOp>> planToTile(plan::Plan &plan, mlir::MLIRContext &context, const TileTarget &target,
                                                     const std::vector<mlir::Operation *> &userFunctions = {});

} // namespace neso
