// Places: which elements of memory two accesses of one tile touch, compared without knowing where either begins.
//
// A pointer is a root (a function's argument as a rule) plus a sum of terms, each a factor times a scalar or a range along one
// dimension. Sums and products count only where they are marked `overflow<nsw>`: as numbers, without wrapping.
//
//     %p = addptr (splat %x), 8 * range + splat %n        %q = addptr (splat %x), 8 * range + splat (%n + 3)
//     distance(%p, %q) = 3: q touches what lies 3 elements behind p's, for each element of the tile
//     areApart(%p, %q): no multiple of 8 is 3, so that nothing that p touches is touched by q
#pragma once
#include <cstdint>
#include <optional>

#include "mlir/IR/Value.h"

namespace neso::cpu {

/// q - p in elements, where both have the same root and it is the same number for all elements of the tile.
std::optional<int64_t> distance(mlir::Value p, mlir::Value q);

/// Proven: no element of the tile touches by p what another or the same touches by q. p and q: tensors of pointers of one
/// shape. mask, if any: elements where it is false touch nothing.
bool areApart(mlir::Value p, mlir::Value q, mlir::Value mask);

/// Proven: no two elements of the tile are one place. p: a tensor of pointers, which loops may have carried along by numbers that are the same
/// for all elements.
bool areDistinct(mlir::Value p);

} // namespace neso::cpu
