// Maps program ids to the outer space of a kernel: which block of which dimension a program works on.
#pragma once
#include "lower/plan_to_tile/emit.h"
#include "lower/tiling/cost.h"

namespace neso {

/// Blocks of one outer dimension: `count` of them, each `size` elements (1: the dimension is a scalar of the program).
struct Blocking {
  Symbol symbol; // x1
  Expr extent;
  int64_t size = 1;
  int frameDim = -1; // dimension of the frame that the block's lanes lie along; -1 when size is 1
  int64_t lanes = 0; // along it, where they are more than `size`: those behind are masked off
  bool lastFirst = false; // the first programs take the last blocks
};

/// Emits the decoding of the linear program id (last blocking varies fastest), binds each symbol in e.env, adds a tile
/// mask where the last block may be partial, and sets the kernel's grid. A serial kernel of a target whose programs
/// have no order gets a grid of one program with a loop; the builder then stands in the loop's body. `program`: the
/// number that says which block to take, where it is not the program's id.
void bindPrograms(Emitter &e, const std::vector<Blocking> &blockings, Val program = {});

/// A block for each row of the kernel's outer dimensions.
std::vector<Blocking> rowBlocks(const KernelContext &k);

/// Which block of its dimension a program has: the symbol that bindPrograms binds for one of its blockings.
Symbol blockOf(const std::vector<Blocking> &blockings, Symbol dimension);

} // namespace neso
