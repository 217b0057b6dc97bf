// Packing of memory blocks with life times into one arena.
//
// At usual sizes (every size symbol at its hint) the problem is one of integers: several orders of first fit, then a
// little search, keep the lowest peak. For symbolic sizes the packing gives only an order: of two blocks that live at
// the same time, the one that lies lower at usual sizes lies lower always. Each offset is then the greatest end of the
// blocks below it, an expression such as max(128*s0, 64*s1), which is right for all sizes and near the packing for
// those in proportion. Packings at small, middle and large sizes are tried; the one whose worst ratio to the lower
// bound over all three is least wins.
#pragma once
#include <vector>

#include "ir/shape/expr.h"

namespace neso::memory {

struct Block {
  int first = INT32_MAX, last = -1; // life time in steps, [first, last]
  Expr bytes = 0;                   // what to reserve
  std::vector<size_t> members;      // the caller's
  Expr offset = 0;                  // result
};

/// Sets every offset; returns the size of the arena.
Expr placeBlocks(std::vector<Block> &blocks, const Facts &facts);
/// The bytes that live at the worst of the steps [0, steps]: no placement can do with less.
Expr peakOf(const std::vector<Block> &blocks, size_t steps, const Facts &facts);

} // namespace neso::memory
