// The placed form of a tile function: what the emitter relies on, checked.
//
// MLIR's own verifier knows the rules of single operations: one layout for the operands and results of an elementwise
// operation, a result's layout that follows from the operand's where an operation moves nothing (expand_dims, trans,
// reshape, broadcast, join, split, reduce, scan, sort, gather), carried values of one type. Beyond it:
//     N1  the function has placed.warps and placed.chip, and every layout has that many warps and one block
//     N2  the operands of an operation on tensors are placed: only placed.place, operations without a place and
//         tt.unsplat take a tensor that has none; those of an operation on elements, a memory access, a reduction, scan
//         or sort lie in one layout
//     N3  a tensor without a place comes from operations without effects, regions and placed operands
//     N4  a load, store or asynchronous copy of a tensor has placed.together: its registers are neighbours in a dim, and its
//         addresses and mask allow one access (axis_info.h); so has an atomic that one instruction does for neighbours; a copy has 4 bytes at least, which lie side by side in its ring; a
//         part of a tile, and what travels in words (placed.words), fills words of 32 bits
//     N5  a product has placed.product that its chip knows and its shape and warps allow, and the accumulator that follows
//     N6  the axis of a reduction, scan or sort is apart from the others in its operands' layout; a scan's lanes are in
//         order
//     N7  a slot is read and written between its ring's local_alloc and local_dealloc, in one block or regions of it
//     N10 between the last wait for copies by threads and a product by wgmma that reads them stands placed.fence_async
//     N11 an open product (placed.open) is one by wgmma in a loop; its sums go into other open products, into
//         placed.wait_products, and into values that the loop carries as open (placed.open_values)
//     N12 carried out on paper (under_way.h): a slot is there, and what is read of it has been brought, in a group of copies that has
//         been waited for; no copy begins into a slot that any thread or product may still read, that another copy fills, or of which
//         nothing has read what it holds; what wait_products gives is complete there; a ring that ends is neither read nor filled
//     N13 the same where the machine copies (ttg.bulk_copy): a product's slot has been awaited, a slot that is copied into has
//         been left by all warps, which the copying thread has awaited; what is awaited comes; barriers count those who arrive, and end
//         when nothing is under way; between a ring's begin and its first copy stand placed.fence_async and a wait of the block
//     N14 of slots that hold fewer rows than their tiles have (ttg.rows) products by wgmma alone read, as right operands, no columns behind those;
//         the machine alone fills them
// The result prints, parses (parseTile), runs in the interpreter (ir/tile/interp.h: layouts change no value) and compiles
// (compile.h).
#pragma once
#include "backend/nvidia/chip.h"
#include "base/diagnostics.h"
#include "ir/tile/placed.h"

namespace neso::nvidia {

/// Whether placed.fence_async stands in the product's block behind the last operation that brings data to shared memory.
bool isFenced(mlir::Operation *product);
/// Whether a function has been through placeTensors.
bool isPlaced(tt::FuncOp function);
/// Of a placed function.
int warpsOf(tt::FuncOp function);

/// Errors: NvidiaNotPlaced with the rule and the operation.
Status verifyPlaced(tt::FuncOp function, const Chip &chip);

} // namespace neso::nvidia
