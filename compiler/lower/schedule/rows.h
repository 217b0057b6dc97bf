// Elements of a flat array as places in rows: which row, and where in it.
#pragma once
#include <optional>

#include "ir/loops/loops.h"

namespace neso::schedule {

struct RowPlace {
  Expr row, inside;
};
/// index = row * width + inside, where inside is provably in [0, limit); limit is at most width. No division is left in either that was not
/// in `index`: 32*i0 + 8*i1 + i2 with i1 < 4 and i2 < 8 is 8*i1 + i2 in row i0 of width 32. nullopt: not proved.
std::optional<RowPlace> placeInRows(Expr index, int64_t width, int64_t limit, const Facts &facts);

/// What is known of the indices of the node's loops, of attention those of its operands.
Facts factsInside(const loops::Node &node, const Facts &facts);
/// What is known besides where the Bool value is true: comparisons of an index with a number, and all of several such.
void assume(Facts &facts, const loops::Body &body, loops::ValueIdx condition);

} // namespace neso::schedule
