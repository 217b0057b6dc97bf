// Kernels side by side: one tile function whose programs find out by their number which part's program they run.
//
// Example: parts of 3, 3 and 8 programs, the first two of one function f: programs 0 to 5 run f, with the first one's
// arguments or the second's, 6 to 13 run the third's function.
#pragma once
#include "ir/plan/plan.h"
#include "ir/tile/tile.h"

namespace mlir {
class ModuleOp;
}

namespace neso {

/// The function of `pack` in the module; sets its args, grid, warps and stages. Its parts have theirs, and programs
/// along the grid's first axis only. The function's name is the kernel's.
tt::FuncOp packParts(const plan::Plan &plan, plan::Kernel &pack, mlir::ModuleOp module);

/// Erases the functions that only parts have, and takes their names from these.
void dropPartFunctions(plan::Plan &plan, mlir::ModuleOp module);

} // namespace neso
