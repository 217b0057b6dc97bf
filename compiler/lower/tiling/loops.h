// Blocks of kernels of loops: pointwise, reduction and scan nodes over one space.
//
//     y[i] = sum over j of x[i, j], rows of 512, for threads of one core: a program has one row, in one step
//     the same for blocks of threads: 8 rows of 512 in each program
#pragma once
#include "lower/tiling/target.h"

namespace neso {

/// How the programs of such a kernel share its space and walk what is theirs.
struct LoopTiling {
  enum class Shape : uint8_t {
    Pointwise, // no inner space
    Unrolled,  // a program takes whole outer elements and writes the inner space out, element by element
    Rows,      // steps of lanes along the last inner dimension
    Columns    // and of lanes along the last outer dimension, which is where memory runs
  };
  Shape shape = Shape::Pointwise;
  /// By outer dimension: elements of a program, and the dimension of its tile along which they lie, -1: none.
  struct Block {
    int64_t size = 1;
    int tileDim = -1;
  };
  std::vector<Block> outer;
  /// What a program holds at a time, powers of two.
  std::vector<int64_t> tile;
  /// Elements of the last inner dimension in one step, and the dimension of the tile along which they lie.
  int64_t inner = 1;
  int innerDim = 0;
  /// The inner space is one step: no loop.
  bool oneStep = false;
  /// Not 0: where the run finds as many elements or fewer in the last inner dimension, whose size is not known before, the
  /// program takes them in one step of as many.
  int64_t shortRow = 0;
  /// Accumulators are tiles, folded element by element; threads exchange once, behind the loops.
  bool carriesTiles = false;
  /// What is loaded stays in registers for later passes over the same elements.
  bool keepsLoads = false;
  /// Of the space that it reads, the kernel stores nothing, and passes over it once: memory read need not be kept.
  bool streams = false;
  /// The elements of a program update memory one after another, by tiles of lanes.
  bool inTurn = false;
  int warps = 1;
};

/// `windows`: how often each node stands in the kernel (shareWindows).
LoopTiling chooseLoopTiling(const plan::Plan &plan, const plan::Kernel &kernel, const TileTarget &target, int64_t windows = 1);

} // namespace neso
