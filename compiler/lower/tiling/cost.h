// Block sizes and warps of programs that are run by blocks of threads: the cost model of GPU targets, in one place.
#pragma once
#include <cstdint>

#include "ir/plan/plan.h"
#include "ir/shape/usual.h"
#include "lower/tiling/target.h"

namespace neso {

/// The smallest power of two that is >= n, for n >= 1.
int64_t nextPowerOfTwo(int64_t n);
/// The extent if it is constant, else its upper bound, else `unbounded`.
int64_t upperBound(const Facts &facts, Expr extent, int64_t unbounded);

/// Elements of one program of a pointwise kernel over `elements` in all: large blocks for bandwidth, smaller ones while
/// processors would idle.
int64_t pointwiseElements(const TileTarget &target, int64_t elements);

/// Warps for a program whose largest tile has `elements` elements, about `perThread` of them in each thread: 1, 2, 4,
/// … 16.
int warpsFor(int64_t elements, int64_t perThread = 8);

/// Rows and elements of a row that one step of a row reduction takes. rows 1: the row is the whole tile.
struct RowBlock {
  int64_t rows = 1, inner = 1;
};
/// `rows` rows of `length` elements in all; `length` is an upper bound. A row of up to registerRow elements is one
/// block when the kernel passes over it several times, else of up to `chunk`, which is also the step along longer rows.
RowBlock rowBlock(const TileTarget &target, int64_t rows, int64_t length, bool severalPasses, int64_t chunk);

/// Elements across (contiguous) and down of one step of a column reduction that has `results` in all; whole columns where the kernel
/// passes over them several times and they are short.
RowBlock columnBlock(const TileTarget &target, int64_t results, int64_t length, bool severalPasses);

/// Blocks of a matrix product [M, K] x [K, N], `batch` times.
struct DotBlock {
  int64_t m = 64, n = 64, k = 32; // n: ProductBlock
  int warps = 4, stages = 3;
};
struct DotSizes {
  int64_t batch, m, n, k;
  int64_t itemBytes; // of an operand's element
  /// Of f32 by three products of tf32, the right operand's neighbours along k: MachineSheet::splitBlocks can multiply it.
  bool split = false;
  /// Both operands lie in memory: columns of a block may be no power of two.
  bool stored = false;
  /// What is computed behind the sums takes tens of instructions each.
  bool longEpilogue = false;
  /// Sums of 8-bit floats, which are added up in parts (plan_to_tile/contraction.cpp) that have registers of their own.
  bool inParts = false;
};
/// All of them, the least expensive first.
std::vector<DotBlock> dotBlocks(const TileTarget &target, const DotSizes &sizes);
/// The one that tuning chose; else the first, among those that leave registers where the epilogue needs them.
DotBlock dotBlock(const TileTarget &target, const DotSizes &sizes);

/// Is a library faster than a kernel of ours at [m, k] x [k, n], `batch` times, when `restBytes` of a sum go through
/// memory once more for what the kernel would have fused?
bool libraryPays(const TileTarget &target, int64_t batch, int64_t m, int64_t n, int64_t k, int64_t itemBytes,
                 double restBytes);

/// Query rows and keys of one step of attention.
struct AttentionBlock {
  int64_t queries, keys;
  int warps, stages;
};
struct AttentionSizes {
  int64_t heads, queries, keys, head; // heads: of all sequences; head: elements of one
  int64_t itemBytes;                  // of an element
};
AttentionBlock attentionBlock(const TileTarget &target, const AttentionSizes &sizes);

} // namespace neso
