// Blocks of columns, the order in which tiles on a CPU read the right operand of a product.
#pragma once
#include <utility>

#include "ir/plan/plan.h"
#include "lower/tiling/contraction.h"

namespace neso {

/// Position among the batches, and among the outer k, in row-major order of the dimensions that the operand has.
std::pair<Expr, Expr> outerPosition(const plan::Kernel &kernel, const DotTiling &c, Expr index);

/// [batch][n blocks][outer k][rows][bn]: how many there are, and where a block is among them.
struct WeightBlocks {
  int64_t batches, blocks, outer, rows, bn;
  bool operator==(const WeightBlocks &) const = default;
  int64_t each() const { return outer * rows * bn; }
  int64_t all() const { return batches * blocks * each(); }
  /// Row `row` of the block that a program reads, counted from the first block's first row. `place`: what of the kernel's dimensions the operand has.
  Expr rowAt(const plan::Kernel &kernel, const DotTiling &c, Expr place, Expr row) const {
    auto [batch, ko] = outerPosition(kernel, c, place);
    return ((batch * blocks + kBlockOfN) * outer + ko) * rows + row;
  }
};

} // namespace neso
