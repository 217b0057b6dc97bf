// Software pipelines: the loads of a loop run ahead of its products.
//
// A loop whose products take operands that it loads gets a ring of tiles in shared memory for each such load. Before
// the loop, copies of the first stages - 1 iterations are begun; each iteration waits for its own tiles, begins the
// copies for the iteration stages - 1 later, and computes on the ring:
//
//     for i { a = load pa; d = dot a …; pa += s }        ring = local_alloc; copy pa → ring[0]; commit; pa' = pa + s;
//     copy …; commit
//                                                  ──▶   for i { async_wait; copy pa' → ring[(i+2) % 3] if i+2 < n;
//                                                  commit;
//                                                                a = local_load ring[i % 3]; d = dot a …; pa' += s }
//
// A loop with one product, both of whose operands are such tiles, multiplies by steps of the instruction's K. The
// operands of a step are read into registers while the step before is multiplied, those of the first step at the end of
// the iteration before, behind its wait: instructions are under way on both sides of the barrier, and the copies queue
// among them.
//
//     x = local_load ring[0] {0};
//     for i { y = local_load ring[i % 3] {k}; copy …; commit; d = dot x …;
//             async_wait; x' = local_load ring[(i+1) % 3] {0}; d = dot y …; x = x' }
//
// On chips with wgmma, a loop with one product whose operands are such tiles, and whose sums its next turn's product alone uses, leaves it
// under way over the end of the turn (placed.open): copies fill the slot of the turn before the last, whose product every thread has waited
// for when it comes to the barrier.
//
//     for i { async_wait; d = dot ring[i % 4] … open; copy pa' → ring[(i+2) % 4]; commit; wait_products 1 }
//
// Where a loop has several products, those of what is known a turn before (Q K of attention) are begun a turn ahead, and
// those whose sums the loop carries (P V) are under way until the next turn uses them: the tensor cores multiply while the
// block computes. One wait a turn is for all of them. Tiles of the former are copied a turn further ahead.
//
//     s = dot q, ring[0]
//     for i { async_wait; s' = dot q, ring[(i+1) % 3] … open; copy …; commit; p = … s …
//             o', p', s'' = wait_products o, p, s' 0; o'' = dot p', ring2[i % 3], o' * … open; s = s''; o = o'' }
//
// Where asked for, and where the loads are boxes of tensors in memory (boxes.h), one thread has the machine copy them, without
// a wait of the block: a warp says which slot it has left (empty), the machine which one it has filled (full), each warp goes
// on as soon as its own tiles are there. The descriptors of the tensors become arguments of the kernel, made at the launch.
//
//     desc = make_tensor_descriptor a, [M, K], [pitch, 1]; full = barriers 1; empty = barriers 8; barrier
//     by_one_thread { expect full[0]; bulk_copy desc[m, k] → ring[0], full[0]; … }
//     for i { await full[i % 4]; d = dot ring[i % 4] … open;
//             by_one_thread i+2 < n { await empty[(i+2) % 4]; expect …; bulk_copy … }
//             wait_products 1; arrive empty[(i-1) % 4] if i > 0 }
//
// The copies of such a loop can be begun by warps of their own (producer.h, feed.cpp), which those of loops with several products are where one leads
// to another one's left operand.
//
// Rows of numbers beside the products (scales, biases) are copied with the tiles of their turn, where threads begin the copies and no product runs ahead.
//
// Operands of a product by wgmma that stands in no such loop come by copies too: into a ring of one slot, with one wait in front of the product
// and one behind it (once.cpp). What else takes the tile reads it again behind a product, so that it is in no register in between.
//
//     ring = local_alloc; copy pa → ring[0]; commit; async_wait; d = dot ring[0] …; async_wait
//
// What leads to an address is computed ahead by a second copy of its slice of the loop. A rewrite of the IR, before
// layouts are assigned: the result prints, verifies and runs in the interpreter. It needs cp.async.
//
// Arithmetic between a load and its product stays in the loop. A loop may store, to other arguments of the function
// than its loads read: as in Triton, whose pipelines do not ask this much, arguments that overlap are the caller's
// matter.
//
// Left alone: loops with atomics or barriers; loads whose addresses come from memory, whose masked elements are not
// zero, or that have fewer than 4 bytes in a row; products without tensor cores; rings beyond the chip's shared memory.
#pragma once
#include <climits>
#include <string>

#include "backend/nvidia/chip.h"
#include "ir/tile/tile.h"

namespace neso::nvidia {

/// Of loops whose tiles the machine copies: none; those with products between which the loop computes, in two turns at once (feed.cpp); all.
enum class Producers : uint8_t { None, Rotated, All };

/// Which products run a turn ahead of those that use their sums: none; those that gain by it; all that can.
enum class Early : uint8_t { None, WhereItPays, All };

struct PipelineOptions {
  int stages = 3;      // of loops without tt.num_stages; 1: none
  int most = INT_MAX;  // of any loop; 1: no copies at all
  Early early = Early::All; // products that run a turn ahead of the others
  bool boxes = false;  // the machine copies loads that are boxes
  Producers producer = Producers::None; // and warps of their own begin its copies
  bool resident = false; // where they can be, the machine's copies run ahead over programs (resident.h)
  bool kept = true;    // operands that the block computed stay in shared memory from product to product
};
/// Rewrites the loops of `function` (after runTilePipeline) in place, and what stands in none; gives how many were. why: if given, what keeps the machine
/// from copying the tiles of a loop whose product would take them, where boxes are asked for.
int pipelineLoops(tt::FuncOp function, const Chip &chip, int warps, const PipelineOptions &options, std::string *why = nullptr);
inline int pipelineLoops(tt::FuncOp function, const Chip &chip, int warps, int stages) {
  PipelineOptions options;
  options.stages = stages;
  return pipelineLoops(function, chip, warps, options);
}

} // namespace neso::nvidia
