// Which element of a tensor each access of a kernel touches: what a compiler must know to compute an element where the kernel loads it,
// or to go on computing where the kernel stores it, in place of the trip through memory.
//
// A pointer parameter can be followed if it goes only through pointer arithmetic and shapes (addptr, splat, broadcast, expand_dims, trans)
// to the address of plain loads and stores. Then the element that each of them touches is the sum of the offsets on the way.
//
//     %p = tt.splat %x_ptr; %q = tt.addptr %p, %i; %v = tt.load %q, %m     gives one load; its element is %i
//
// Pointers that loops carry, that are chosen between, or that block pointers and descriptors are made of, cannot be followed.
#pragma once
#include <optional>
#include <vector>

#include "ir/tile/tile.h"

namespace neso {

struct ElementAccess {
  bool followed = false; // whether loads and stores are all that touches memory through the parameter
  std::vector<tt::LoadOp> loads;
  std::vector<tt::StoreOp> stores;
};
ElementAccess elementAccess(tt::FuncOp func, unsigned param);

/// The element that a followed address points at, as an integer of `type` (i32 or i64) in the address's shape; built at
/// `b`.
mlir::Value elementOf(mlir::Value address, mlir::OpBuilder &b, mlir::Type type);

/// How often an element is touched by these loads or stores, about, over a grid of `programs` programs, when the tensor has
/// `elements` elements: exactly 1 for an access, in no loop, that provably covers the tensor once, else the number of lanes for
/// each element. `args` are the usual values of the integer parameters. Infinite where it cannot be told.
double timesTouched(const std::vector<mlir::Operation *> &accesses, double programs, double elements,
                    const std::vector<std::optional<int64_t>> &args);

} // namespace neso
