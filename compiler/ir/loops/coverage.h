// How many elements of a buffer there can be at all: what is read but cannot have been written is a fault that shows
// without a run.
#pragma once
#include <utility>
#include <vector>

#include "ir/loops/access.h"

namespace neso::loops {

/// Indices of a loop and how many values each takes.
using Points = std::vector<std::pair<Symbol, Expr>>;

/// Those that the index of an access of this node is over, as the node stands in a program.
Points pointsOf(const Node &node, const Access &access);
/// At most so many different elements are written by the access; invalid: that is unknown.
Expr mostWritten(const Node &node, const Access &access);
/// At least so many different elements are read by the access; 0 where that is unknown.
Expr leastRead(const Facts &facts, const Node &node, const Access &access);
/// Different elements of a tensor, where a dim of stride 0 is not empty; 0 where their number is unknown.
Expr elementsOf(const std::vector<Expr> &sizes, const std::vector<Expr> &strides);

} // namespace neso::loops
