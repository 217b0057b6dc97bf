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
//     N4  a load, store or asynchronous copy of a tensor has placed.together, and its registers are neighbours in a dim
//     N5  a product has placed.product that its chip knows, and the accumulator that follows from it
//     N6  the axis of a reduction, scan or sort is apart from the others in its operands' layout; a scan's lanes are in
//         order
//     N7  a slot is read and written between its ring's local_alloc and local_dealloc, in one block or regions of it
//     N10 between the last wait for copies by threads and a product by wgmma that reads them stands placed.fence_async
//     N11 an open product (placed.open) is one by wgmma in a loop; its sums go into other open products, into
//         placed.wait_products, and into values that the loop carries as open (placed.open_values)
//     N12 in a loop with open products (open_products.h): what wait_products gives is complete there; no copy fills a slot
//         that a product of any thread may still read; a product reads slots whose copies have arrived
//     N13 the same where the machine copies (ttg.bulk_copy): a product's slot has been awaited, a slot that is copied into has
//         been left by all warps, which the copying thread has awaited; what is awaited comes; barriers count those who arrive
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
