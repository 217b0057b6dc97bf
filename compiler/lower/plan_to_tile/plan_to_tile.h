// plan -> tile: gives every kernel of a plan its tile function, arguments and grid.
//
// One kernel becomes one tt.func. A program instance computes one tile of the kernel's outer space (x), looping over
// the inner space (r) in chunks when it reduces. Blocks are chosen here, from the target's sheet below; what a tile
// means for registers and threads is the backend's business. Kernels whose functions are equal share one.
//
// Contractions (matmul, convolution) whose right operand is a constant get that constant packed into the order in which
// their tiles read it: Plan::program.constants changes then.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "base/machine.h"
#include "ir/plan/plan.h"
#include "ir/tile/build.h"

namespace mlir {
class MLIRContext;
class ModuleOp;
class Operation;
template <typename T> class OwningOpRef;
} // namespace mlir

namespace neso {

/// What shared code asks of a target when it chooses blocks (elements). The defaults are a CPU's.
struct TileTarget {
  int64_t pointwiseBlock = 1024; // elements of one program of a pointwise kernel, at most
  int64_t reduceChunk = 4096;    // r elements of one step of a reduction along contiguous memory
  int64_t columnBlock = 64;      // x elements of one program when the reduction runs across rows
  int64_t dotM = 64, dotN = 64, dotK = 256;
  bool packWeights = true;
  tile::F32Products f32Products = tile::F32Products::Ieee; // of contractions and attention
  /// Capabilities::threadBlocks. Then blocks are chosen so that all processors have work, kernels get a number of warps,
  /// loops carry tiles of partial results, a row that fits into registers is read once, updates of memory are atomic
  /// instructions, and what cannot be one runs as a loop in a single program.
  bool threadBlocks = false;
  bool alignedInputs = false; // Capabilities::alignedInputs
  int64_t processors = 1;     // MachineSheet::processors
  MachineSheet machine;
  /// Contractions that a library for matrix products may compute, beside the kernel that is made for each: none, those
  /// that the cost model finds faster there, all that it can.
  enum class Library : uint8_t { Never, Auto, Always } library = Library::Never;
  /// Chosen by tuning in place of the cost model; 0: the model decides.
  int64_t fixedDotM = 0, fixedDotN = 0;
  int fixedStages = 0;
  /// Chooses among the ways to compile a kernel (ways.h), given their names, the cost model's first. Empty: the cost
  /// model's.
  std::function<size_t(const plan::Plan &, const plan::Kernel &, const std::vector<std::string> &)> chooseWay;
  int64_t registerRow = 16384; // longest row, in elements, that one program keeps in registers
};

/// Blocks for a machine.
TileTarget tileTarget(const MachineSheet &machine, const Capabilities &caps);

/// Fills function, args and grid of every kernel. The module holds one public tt.func for each distinct kernel.
/// `userFunctions` are the tile functions (tt.func of `context`, through the pipeline) of the user's kernels, by
/// UserKernelSpec::kernel.
Result<mlir::OwningOpRef<mlir::ModuleOp>> planToTile(plan::Plan &plan, mlir::MLIRContext &context,
                                                     const TileTarget &target,
                                                     const std::vector<mlir::Operation *> &userFunctions = {});

} // namespace neso
