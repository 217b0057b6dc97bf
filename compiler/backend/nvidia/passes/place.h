// Layouts become part of the tile function: after this pass the types say where every tensor lies, and the code follows
// from the IR alone.
//
//     placeTensors(function, *findChip("sm_90"), 4);
//     // %v = tt.load %p : tensor<128x!tt.ptr<f32>, #linear>        %p by placed.place, whatever its user's layout
//     // %m = placed.convert_layout %v : … #linear -> … #linear1       stood in the emitter before
//
// Reads: a tile function after runTilePipeline, pipelined or not (pipeline.h). Decides, by Assignment: layouts of
// tensors, how products are multiplied (placed.product), what each memory access takes at once (placed.together). Decides
// itself: where tensors move (placed.convert_layout, before the operation that wants them elsewhere; once for all uses of
// a region and those inside it; before a loop for what comes from outside), and which large operands of a loop's
// products wait in shared memory (placed.local_store before the loop). Shape operations on placed tensors are cloned into
// the layouts of their uses, so that the smaller tensor moves.
//
// Afterwards: verifyPlaced (verify.h). Errors: NvidiaUnsupported at an operation that the backend does not know.
#pragma once
#include "backend/nvidia/chip.h"
#include "base/diagnostics.h"
#include "ir/tile/placed.h"

namespace neso::nvidia {

/// How values come into the layouts in which memory is accessed: as costs least; in shuffles where they can, because rings leave shared memory no room. On
/// an H200 the latter is as fast where sums are stored as they are, and 5 to 11 % slower behind a gelu.
enum class Exchange : uint8_t { Cheapest, InWarps };
Status placeTensors(tt::FuncOp function, const Chip &chip, int warps, Exchange exchange = Exchange::Cheapest);

} // namespace neso::nvidia
