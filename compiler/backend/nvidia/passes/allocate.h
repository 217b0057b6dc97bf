// Shared memory of a placed function: where each buffer lies, and where the threads of the block wait for one another.
//
//     Result<SharedUsage> usage = allocateShared(function, *findChip("sm_90"));
//     // placed.convert_layout %x {placed.shared = array<i64: 1024>, placed.waits = array<i32: 0, 1>} : …
//
// Reads: a placed function (verify.h). Writes on every operation that uses shared memory: placed.shared, the offsets of its
// own buffers in order; placed.waits, the numbers of those of its accesses before which the block waits. On the function:
// placed.shared_bytes. What an operation does with shared memory follows from its types alone (sharedUses). Buffers are
// placed by lifetime, waits by dependence (shared.h).
#pragma once
#include <vector>

#include "backend/nvidia/chip.h"
#include "backend/nvidia/shared.h"
#include "ir/tile/placed.h"

namespace neso::nvidia {

/// One thing that an operation does with shared memory.
struct SharedUse {
  enum Kind : uint8_t {
    Allocate, // its next buffer
    Write,
    Read,
    ReadOn, // goes on reading behind what the operation waits for meanwhile; nothing is waited for
    Release,
    Wait, // the operation itself is a wait of all threads, or has one
  };
  Kind kind;
  int own = -1;     // the number of an own buffer, or
  mlir::Value ring; // what it uses of another operation; of a ring's local_alloc: itself
  int64_t bytes = 0;
  const char *what = "";
  int64_t align = 16; // bytes
};
/// In the order in which the code does it.
std::vector<SharedUse> sharedUses(mlir::Operation *op, const Chip &chip, int warps);

struct SharedUsage {
  int64_t bytes = 0;
  std::vector<SharedBuffer> peak; // the buffers that were live together when the need was highest
};
SharedUsage allocateShared(tt::FuncOp function, const Chip &chip);

/// Whether the attributes of allocateShared hold: buffers that live together lie apart, inside placed.shared_bytes, and
/// every access that depends on another thread's has a wait before it. Errors: NvidiaNotPlaced (rules N8 and N9).
Status verifyShared(tt::FuncOp function, const Chip &chip);

} // namespace neso::nvidia
