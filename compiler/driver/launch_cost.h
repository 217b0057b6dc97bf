// The cost of a launch, to choose among autotune configs without running them. A rough model with few rules:
//
//   work of a program = sum over its ops of elements * weight (loads and stores 2, dot 2 a multiply-add / 16, exp, log, div 8, others 1),
//                       loops times their trip count (16 where it is not constant)
//   spill             = 1 + bytes of its largest tile / 64 KiB                a tile beyond the L1 and L2 caches is touched from memory
//   cost              = ceil(programs / 8) * (work * spill + 400)             8 programs run at once; 400 to start one
//
// Unit: about one vector element op. Only ratios count.
#pragma once
#include "ir/tile/tile.h"

namespace neso {

double programWork(tt::FuncOp function);
double launchCost(tt::FuncOp function, double programs);

} // namespace neso
