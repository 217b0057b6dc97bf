// A row in scratch memory, sorted or looked through by one program: what sort_digits and sort_select begin with.
#pragma once
#include "lower/plan_to_tile/emit.h"

namespace neso {

struct SortRow {
  /// In the program of each row; tile: elements that are worked on at once.
  SortRow(KernelContext &k, const Facts &facts, const std::vector<int64_t> &tile);
  /// An emitter for the elements at these positions of the row, in `frame`'s frame.
  Emitter elements(const Emitter &frame, Val positions) const;

  const Expr n; // elements of a row
  Expr index;   // of the row
  Emitter one, many; // a value of the row's, a tile of elements
  Val length, zero, unit;
  Val base; // where the row's words begin: there are two for each element
};

} // namespace neso
