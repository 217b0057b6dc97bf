// Runs the LLVM IR of one thread block on the host, all threads in lockstep: what the tests of data movement have
// instead of a GPU.
//
// Knows the integer, float, vector, memory and branch instructions that the movers emit, shuffles, redux, ldmatrix,
// mma.sync and wgmma (fragments and descriptors as the PTX ISA draws them), cp.async (bytes arrive as late as wait_group
// allows), bar.sync (of the block, and by number of some of its threads), mbarrier and the machine's copies of boxes (cp.async.bulk.tensor), which arrive at once or as late as
// waits allow. Groups of four warps go on together, or one as far ahead of the others as barriers let it.
// Shared memory is checked: a byte that one thread writes and another reads or writes without a barrier between is a
// race, and reading a byte that nobody wrote is an error. What wgmma reads must have been fenced for it, and stay as it is
// until its wait; its sums go nowhere but into further wgmma and the wait.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llvm/IR/Function.h"

namespace neso::nvidia::test {

struct Outcome {
  std::string error; // empty: ran to the end
  int barriers = 0, shuffles = 0, sharedLoads = 0, sharedStores = 0,
      mmas = 0; // of all threads of a warp as one, summed over warps
};

/// Arguments are the same in every thread, except that the first one is the thread's index (i32). Pointers are host
/// addresses.
Outcome simulate(llvm::Function &kernel, int threads, int64_t sharedBytes, const std::vector<uint64_t> &arguments);

/// What the argument of a kernel that is a tensor's descriptor points to here: rows of `columns` elements, `pitch` bytes
/// apart, copied in boxes.
struct TensorMap {
  const uint8_t *base;
  int64_t rows, columns, pitch;
  int64_t boxRows, boxColumns, elementBytes;
  int64_t planes = 1, planePitch = 0; // of a tensor of three axes, a box having one element along the outermost
};

struct Schedule {
  int ahead = -1;     // the group of four warps that goes first wherever it can; -1: all go on together
  bool early = false; // the machine's copies arrive at once
  bool dirty = false; // thread 0 has written all of shared memory before, by stores
};

/// The same of a whole kernel as the emitter writes it, which asks the special registers which thread it is; the grid
/// has one block.
Outcome simulateEntry(llvm::Function &kernel, int threads, int64_t sharedBytes, const std::vector<uint64_t> &arguments,
                      const Schedule &schedule = {});

} // namespace neso::nvidia::test
