// Kernels side by side: one tile function whose programs find out by their number which part's program they run.
//
// Example: parts of 3, 3 and 8 programs, the first two of one function f: programs 0 to 5 run f, with the first one's
// arguments or the second's, 6 to 13 run the third's function.
#pragma once
#include "ir/tile/tile.h"
#include "lower/plan_to_tile/plan_to_tile.h"

namespace neso {

/// The function of `pack` in the module; sets the args, grid, warps and stages of `code`. Its parts have theirs in `codes`,
/// by KernelId, and programs along the grid's first axis only. The function's name is the kernel's.
tt::FuncOp packParts(const plan::Kernel &pack, const std::vector<KernelCode> &codes, KernelCode &code,
                     mlir::ModuleOp module);

/// Erases the functions that only parts have, and takes their names from these.
void dropPartFunctions(const plan::Plan &plan, std::vector<KernelCode> &codes, mlir::ModuleOp module);

} // namespace neso
