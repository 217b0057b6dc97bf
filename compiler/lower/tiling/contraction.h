// Which contractions become products of tiles, and in which blocks.
//
// Which dimension is which is read off the bodies: one that only the left operand uses is m, only the right one n, both
// b, the reduction ones k.
#pragma once
#include <optional>
#include <vector>

#include "lower/tiling/cost.h"

namespace neso {

/// A contraction as out[b, m, n] = sum over k of A[b, m, k] * B[b, k, n], where m, n, k and b each stand for one or
/// several dimensions of the kernel. A program computes one [bm, bn] block of the (flattened) m and n spaces.
struct DotTiling {
  /// Dimensions of x.
  std::vector<size_t> m, n, batch;
  /// Dimensions of r that are loops.
  std::vector<size_t> kOuter;
  /// Dimensions of r that the blocks of k run along, flattened.
  std::vector<size_t> kInner;
  int64_t bm = 1, bn = 1, bk = 1;
  /// Of tiles, at least bn: a power of two.
  int64_t columns() const { return nextPowerOfTwo(bn); }
  Expr mSize = 1, nSize = 1, kSize = 1;
  int warps = 4, stages = 3;
  /// Programs count blocks of m outermost, not those of n.
  bool rowsFirst = false;
  /// DotSizes::split.
  bool split = false;
  /// The last block of k, of a constant number, is used in part: both operands are masked there, and no more is multiplied (tile::kValidKAttr).
  bool partial = false;
  /// Of the only block of m, of a constant size, so many rows count (tile::kValidMAttr); 0: all may.
  int64_t validRows = 0;
  /// The right operand is a constant in blocks [batch, n blocks, k, bn], zeros behind the last n and, unless `partial`, k; it is read in
  /// terms of the symbols below.
  bool packed = false;
  /// The right operand is scale * number (+ shift), number an integer, and the others are the same for a whole step of k as long as
  /// groups of k are steps: sums of products with the numbers are scaled rather than each number.
  bool scalesSums = false;
  /// The right operand's numbers of four bits lie in bytes that have four neighbours along k side by side, then the next column; first until blocks are
  /// made: they may.
  bool fours = false;
  /// More than 1: warps of a program take blocks of k in turns, each multiplies all rows and columns, and their sums are added in the end; `scalesSums` holds, and the
  /// numbers are of four bits: a warp makes floats of them in the registers in which tensor cores take them.
  int64_t slices = 1;
};

/// What a program of a contraction counts by: places in the flattened spaces of m, n and k; the block of n and the
/// place in it, in terms of which packed weights are read.
extern const Symbol kM, kN, kK, kBlockOfN, kLaneOfN;

/// Floats that tensor cores multiply in 8 bits.
inline bool isFloat8(DType t) { return t == DType::F8E4M3FN || t == DType::F8E5M2; }

/// How to run the kernel's contraction with dots, or nullopt when it is better off as a plain reduction (no n, types
/// whose products no target has, rows that are contiguous along k in a product with a vector). May swap the operands of the node.
std::optional<DotTiling> chooseDotTiling(plan::Kernel &kernel, const Facts &facts, const TileTarget &target);

/// On a CPU, where programs bring the right operand into order for themselves, each as often as there are blocks of m: the fewest blocks that leave enough programs.
void chooseUnpackedRows(DotTiling &c, const plan::Kernel &kernel);

/// Sizes of the product so run, as blocks are chosen by them.
DotSizes sizesOf(const DotTiling &c, const plan::Kernel &kernel, const Facts &facts);
/// Whether blocks are to be had for the kernel's types that want its right operand along k (DotSizes::split).
bool maySplit(const plan::Kernel &kernel, const TileTarget &target);
/// The blocks of a target of thread blocks, by the sizes and by `split`.
void chooseDotBlocks(DotTiling &c, const plan::Kernel &kernel, const Facts &facts, const TileTarget &target);

/// The whole number of a right operand scale * number or scale * number + shift.
std::optional<loops::ValueIdx> scaledNumberOf(const loops::ContractionSpec &node);

/// Rewrites the contraction as a sum reduction and its epilogue as a pointwise node.
void contractionToReduction(plan::Plan &plan, plan::Kernel &kernel);

/// Whether the value is a load, maybe cast, whose neighbours along s are neighbours in memory.
bool unitStride(const loops::Body &body, loops::ValueIdx value, Symbol s);

/// The extent of several dimensions that count as one.
Expr productOf(const std::vector<Expr> &ranges, const std::vector<size_t> &dims);

} // namespace neso
