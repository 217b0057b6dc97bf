// loops::Program → plan::Plan: which nodes share a kernel, in which iteration space, in which order, and which buffers
// need memory.
//
// Stands after verify(loops) and before lower/plan_to_tile. Offsets come last (lower/memory), since code generation may
// ask for memory of its own. Neither values nor the order of dependent accesses change.
//
// Example: n0: t[i0] = relu(x[i0]);  n1: y[i0] = t[i0] + b[i0]  becomes one kernel over x0 with both nodes; t is placed
// nowhere.
#pragma once
#include "base/machine.h"
#include "ir/plan/plan.h"

namespace neso::schedule {

/// Whether products that share an operand become one.
enum class Siblings : uint8_t {
  Apart,
  // Where one product takes less time by the machine's rates.
  WherePays,
  // Wherever it computes the same.
  Together,
};

/// Which reductions become two kernels, in elements. A column reduction runs across rows of memory, so that
/// neighbouring results share a program. The defaults are a CPU's.
struct SplitRule {
  int64_t fewRows = 16, fewColumns = 512;      // more results than this keep the machine busy by themselves
  int64_t longRow = 32768, longColumn = 8192;  // shorter reductions are not worth a second kernel
  int64_t leastPart = 1024, leastParts = 8, mostParts = 256; // of one result
  int64_t programs = INT64_MAX;                     // parts of all results, in programs, beyond which more do not help
  int64_t longestSort = INT64_MAX;                  // longer rows are sorted in parts, which are then merged
  int64_t scanTile = 0, fewScans = 0, longScan = 0; // scans of at most so many rows, of at least so many elements, are
                                                    // shared by programs that take so many bytes each; 0: never
  bool sortByDigits = true;                         // programs sort rows in memory; else in registers
  int64_t longestRun = 32;                          // a reduction along so few neighbours and across rows is one across rows at first
  int64_t updateCopies = 0;                         // copies of few places that many updates meet in; 0: none
  bool unknownLengths = false;                      // reductions whose length only the run knows may become two kernels
  bool attention = false;                           // attention of few queries shares its keys out
  bool contractions = false;                        // matrix products may be cut along k, by the machine's rates
  Siblings siblings = Siblings::Apart;
  MachineSheet machine;
  /// Of a machine whose programs run side by side on many processors.
  static SplitRule manyProcessors(const MachineSheet &machine);
};

struct ScheduleOptions {
  bool fuse = true;            // false: one kernel a node
  bool reorder = true;         // choose the launch order that needs least memory, if it beats the program's
  bool splitReductions = true; // a long reduction with few results becomes two kernels
  SplitRule split;
  /// Small kernels that do not need each other run side by side in one launch. Bytes that such a kernel moves, at most;
  /// 0: none.
  int64_t packedBytes = 0;
  int64_t packedBuffers = INT64_MAX; // that one such launch uses, at most
  int maxNodesPerKernel = 48;
  /// Instructions of one element, roughly (cost in ir/loops/ops.def), of all nodes together. Beyond it the memory that
  /// joining two kernels saves is a few hundredths of their time, and what the code generators take grows faster than the
  /// kernel.
  int maxCostPerKernel = 2048;
  int maxBuffersPerKernel = 24; // reads and writes that touch memory
  /// Contraction kernels take pointwise nodes over their result as epilogue.
  bool fuseEpilogues = true;
  /// Pointwise neighbours of a user's kernel are computed at its loads and stores (attach.h).
  bool fuseUserKernels = true;
};

/// The program must satisfy loops::verify.
Result<plan::Plan> schedule(loops::Program program, const ScheduleOptions &options = {});

} // namespace neso::schedule
