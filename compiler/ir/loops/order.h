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
#include <optional>
#include <span>
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

/// The piece's elements, of `itemBytes` each.
void copyElements(const ElementOrder::Piece &piece, int64_t itemBytes, const uint8_t *from, uint8_t *to);

/// The constant's bytes, made once more of those that its tensors lie in: sourceElements of them, or all where it is in no other order.
void makeOf(Constant &c, std::vector<uint8_t> source);

/// A constant as rows of `width` elements each.
struct RowsOf {
  const Constant *constant;
  int64_t width;
};
/// Constants of one dtype and with as many rows, side by side: each row is a row of all of them, one behind the other. The model's tensors keep
/// their names; where rows are several, or a constant was in an order already, that is said by an order. nullopt where there would be too many
/// pieces to keep.
std::optional<Constant> sideBySide(std::span<const RowsOf> parts);

} // namespace neso::loops
