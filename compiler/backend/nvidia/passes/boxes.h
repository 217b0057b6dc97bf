// Loads of a loop that are boxes of tensors in memory, as the machine's own copies take them (ttg.bulk_copy).
//
//     p = base + (start_0 + range_0) * pitch + (start_1 + range_1), masked by start_d + range_d < size_d, zeros elsewhere
//         ──▶   a tensor [size_0, size_1] with rows `pitch` apart, read at [start_0, start_1]
//
// Found on the tile program as it is, so that it serves what a user wrote with pointers, descriptors and block pointers
// (which passes/rewrite_descriptors.cpp has made pointers), and what plan_to_tile writes. Everything is proven:
//     B1  the base is an argument of the function, sizes and pitch are polynomials of its integer arguments
//     B2  where a mask leaves elements out they are zero, and are those that lie outside of the tensor: for each of the
//         tile's dims the mask asks for an index below its size; indices are not negative, or the mask asks for that too
//     B3  a dim without a mask has no border (the program vouches for its memory)
//     B4  an index by `x % size` is x: elements at x >= size are never stored, since what is computed from them, row by
//         row, is stored under the mask x < size alone
//     B5  indices change from turn to turn by what is the same in every turn
//     B6  copies take indices of 32 bits. One of 64 is clamped to them (box_code.cpp): with a border that is as far outside; without one it has
//         31 bits by what it is computed of, or by rows so far apart that 2^31 of them are more than any memory: many rows are blocks of them
// Arithmetic on indices counts as exact, and what a remainder is taken of as not negative: otherwise the program reads outside
// of the tensor, in front of it. Sizes that are arguments count as positive: whoever makes the tensor's descriptor at a launch
// checks that, that sizes have 31 bits, and that base and pitch are multiples of 16 bytes.
#pragma once
#include <optional>
#include <vector>

#include "backend/nvidia/passes/loop_plan.h"

namespace neso::nvidia {

/// The loads as boxes, in their order; nothing where one of them is none, and `why` then says so. Writes nothing.
std::optional<std::vector<Box>> boxesOf(mlir::scf::ForOp loop, llvm::ArrayRef<PipelinedLoad> loads, std::string &why);

} // namespace neso::nvidia
