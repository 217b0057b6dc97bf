// The layouts of tensors on a GPU, and what shape operations do to them.
//
// A distributed layout has the in-dims register, lane, warp, block, in that order and always all four (size 1 where
// nothing is split), and a tensor's dims as out-dims, the last one first: dim{n-1}, …, dim0. So flattening the out-dims
// gives the row-major index. No register repeats another of the same thread: where a layout is larger than the tensor,
// spare registers are dropped, and spare lanes, warps and blocks become zero bases (they hold copies).
//
// Shapes and sizes are powers of two, listed by dim: dim0 first. `order` lists dims, the fastest first: [1, 0] is
// row-major. A shared layout maps offset (in elements, of one block's buffer) to the tensor's dims.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/layout/layout.h"

namespace neso {

using Sizes = std::vector<int64_t>;

/// Each thread has a brick of sizePerThread elements, a warp a brick of threadsPerWarp threads, a block a brick of
/// warpsPerBlock warps; all three run through their bricks in `order`. What is left of the tensor repeats in registers,
/// also in `order`. blocksPerCluster (empty: one block) splits the tensor among the blocks of a cluster first, into
/// equal contiguous parts.
struct Blocked {
  Sizes sizePerThread;
  Sizes threadsPerWarp;
  Sizes warpsPerBlock;
  std::vector<int> order;
  Sizes blocksPerCluster = {};
};
LinearLayout blockedLayout(const Sizes &shape, const Blocked &blocked);

/// The layout of a reduction's result over `axis`, where each thread has reduced its own part and all lanes and warps
/// that shared a row hold copies; or of an operand that expandDims(axis) brings back to `parent`. Rank falls by one.
LinearLayout sliceLayout(const LinearLayout &parent, int axis);

/// mma.sync.m16n8k(256/bits): accumulators [M, N] of 32 bits, and operands A [M, K] and B [K, N] of elements of 8, 16
/// or 32 bits, as the PTX ISA draws them. warps = {along M, along N}, those along N fastest; an operand is copied among
/// the warps that share it. Larger tensors repeat the instruction in registers: N then M for accumulators, K first for
/// operands. M >= 16, N >= 8, K >= 256/bits.
LinearLayout mmaAccumulator(const Sizes &shape, const Sizes &warps);
LinearLayout mmaOperandA(const Sizes &shape, const Sizes &warps, int elementBits);
LinearLayout mmaOperandB(const Sizes &shape, const Sizes &warps, int elementBits);

/// wgmma: accumulators [M, N] of 32 bits of warp groups, four warps each, {along M, along N}, those along M fastest. Each
/// group has N / groups[1] neighbouring columns; rows beyond 64 a group repeat in registers behind those columns. M >=
/// 64 groups[0], N >= 8 groups[1].
LinearLayout warpGroupAccumulator(const Sizes &shape, const Sizes &groups);
/// tcgen05: sums [M, N] as threads take them out of tensor memory, a row a lane; groups of four warps {along M, along N} as above. M >= 128 groups[0].
LinearLayout tensorMemoryAccumulator(const Sizes &shape, const Sizes &groups);
/// Shared memory as wgmma, tcgen05 and tensor copies read it: panels of up to 128 bytes along the dim `fast`, each with all of
/// the other dim, the 16-byte pieces of a row permuted (by bits 7 to 9 of the address; fewer where rows are shorter).
LinearLayout panelledLayout(const Sizes &shape, int fast, int elementBits);

/// Row r of the dim order[1] has its groups of `vec` elements permuted by xor with (r / perPhase) % maxPhase:
/// (r, c) lies at offset r * C + (c xor ((r / perPhase) % maxPhase) * vec), modulo the row's C elements. maxPhase 1: no
/// swizzle.
struct Swizzle {
  int64_t vec = 1;
  int64_t perPhase = 1;
  int64_t maxPhase = 1;
  bool operator==(const Swizzle &) const = default;
};
LinearLayout sharedLayout(const Sizes &shape, const std::vector<int> &order, const Swizzle &swizzle = {});
/// The swizzle that lets 8 rows of 16 bytes at one column (a matrix of ldmatrix) be read in one wavefront.
Swizzle matrixSwizzle(const Sizes &shape, const std::vector<int> &order, int elementBits);

// ---- shape operations: the layout of the result when no element moves

/// Result dim i is source dim permutation[i].
LinearLayout transposeTensor(const LinearLayout &layout, const std::vector<int> &permutation);
/// Row-major reshape.
LinearLayout reshapeTensor(const LinearLayout &layout, const Sizes &shape);
/// A new dim of size 1 at `axis`.
LinearLayout expandDims(const LinearLayout &layout, int axis);
/// Dims of size 1 grow to `shape`: the copies lie in further registers, the last dim fastest.
LinearLayout broadcastTensor(const LinearLayout &layout, const Sizes &shape);
/// The other way round: dims shrink to `shape` (1 where they differ), and registers that then repeat another go.
LinearLayout narrowTensor(const LinearLayout &layout, const Sizes &shape);
/// A new last dim of size 2, its two halves in neighbouring registers (tt.join).
LinearLayout joinTensor(const LinearLayout &layout);

/// Two tensors of one dimension in a row (tt.cat): the second one in further registers.
LinearLayout catLayout(const LinearLayout &layout);

/// The sizes of dim0, dim1, …
Sizes tensorShape(const LinearLayout &layout);

} // namespace neso
