// The cost of a launch, to choose among autotune configs without running them. Rough models with few rules; only ratios count.
//
// On a CPU, in vector element ops:
//
//   work of a program = sum over its ops of elements * weight (loads and stores 2, dot 2 a multiply-add / 16, exp, log, div 8, others 1),
//                       loops times their trip count (16 where it is not constant)
//   spill             = 1 + bytes of its largest tile / 64 KiB                a tile beyond the L1 and L2 caches is touched from memory
//   cost              = ceil(programs / 8) * (work * spill + 400)             8 programs run at once; 400 to start one
//
// On a GPU, in cycles:
//
//   registers of a thread = 32 + bytes that loops carry and the largest other tile, over the threads
//   resident programs     = as many as registers, threads and shared memory (operands of products, times stages) allow on a multiprocessor,
//                           but no more than there are for each
//   a wave                = the longest of: resident * elements * weight / 128, resident * multiply-adds / 1024 (of 16 bits; warps below
//                           four use their share of it), resident * bytes / 16, and one program's waiting: 1000 to start, 500 a trip of
//                           each loop that loads, over its stages
//   cost                  = ceil(programs / (resident * multiprocessors)) * wave, and four times that again for each 128 registers beyond 224
//
// What does not fit into shared memory with one stage costs 1e30.
#pragma once
#include "base/machine.h"
#include "ir/tile/tile.h"

namespace neso {

/// On a machine whose programs are run by blocks of threads (Capabilities::threadBlocks), or by one each.
double launchCost(tt::FuncOp function, double programs, int warps, int stages, const MachineSheet &machine,
                  const Capabilities &caps);

} // namespace neso
