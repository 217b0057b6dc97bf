// Constants whose elements are put into another order: filters with their channels last, matrices in blocks of columns.
//
// What was done is kept with the constant (Constant::orders), so that whoever gets a new value for a tensor of the model can do it again.
// An order is a product of axes: each says where the positions along one group of dimensions lie, before and after.
//
//     a [K, 100] matrix whose columns go to blocks of 64:
//     elementOrder({plainAxis(offsets of rows, 64), blockedAxis(offsets of columns, 64, K * 64)}, 0, 2 * K * 64)
//     has two pieces: one full block of 64 columns and one of 36; the rest of the second block is zero.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/loops/loops.h"

namespace neso::loops {

/// A part of an axis whose positions are evenly spaced along each of `dims`.
struct AxisPart {
  struct Dim {
    int64_t size, to, from;
  };
  int64_t to, from;
  std::vector<Dim> dims;
};
using Axis = std::vector<AxisPart>;

/// Position p, which lies at `offsets[p]`, goes to p * stride.
Axis plainAxis(const std::vector<int64_t> &offsets, int64_t stride);
/// Position p goes to p / block * blockStride + p % block * stride.
Axis blockedAxis(const std::vector<int64_t> &offsets, int64_t block, int64_t blockStride, int64_t stride = 1);
/// base: offset in the source that all have in common. elements: of the result.
ElementOrder elementOrder(const std::vector<Axis> &axes, int64_t base, int64_t elements);

/// Puts the constant's bytes into that order. dtype: of the elements that the order counts; where it is not the constant's own, or where
/// there are too many pieces to keep, the model's tensors move to foldedFrom.
void reorder(Constant &c, const ElementOrder &order, DType dtype);

/// The same for numbers of four bits, two to a byte, the first in the low bits. Where anything moves, the model's tensors move to foldedFrom.
void reorderFourBits(Constant &c, const ElementOrder &order);

} // namespace neso::loops
