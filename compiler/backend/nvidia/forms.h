// Forms of a kernel beside the usual one: for which functions code whose tiles the machine copies pays, and what it is told of tensors.
#pragma once
#include <optional>
#include <vector>

#include "backend/common/compiled_code.h"
#include "ir/tile/placed.h"

namespace neso::nvidia {

/// Whether such code was measured to be faster. On an H200, of products of 16 bits: blocks of 128 x 128 by 1.09 to 1.16 (2048 to 8192), 64 x 128 and 64 x 64 by 1.08 to 1.18, 64 x 256
/// and 256 x 128 by 1.01 to 1.13; 128 x 256, which read least for what they multiply, by 1.16 to 1.22 where a row of B is 64 elements of K (a model's
/// weights: threads copy 128 bytes of each), and by 0.98 to 1.03 where it is 256 columns.
bool boxesAreFaster(tt::FuncOp placed);
/// Whether much is computed of sums behind the loop that multiplies: what exchanges them by shuffles then waits for it (place.h).
bool hasLongEpilogue(tt::FuncOp function);
/// The tensors that the function describes, in the order in which they are parameters of its code.
std::optional<std::vector<BoxedTensor>> boxedTensors(tt::FuncOp placed);

} // namespace neso::nvidia
