// Factorisations of matrices of any size: a loop of the program (turns.h) takes a column a turn, where linalg.h writes a loop nest for each
// column. For sizes that are symbolic or larger than kMostColumns; what a function gives is what its namesake for small ones does.
#pragma once
#include "lower/graph_to_loops/linalg.h"

namespace neso::lower {

/// t x = b by substitution, a row of x each turn; only one triangle of t is read. Both have the same batch.
Tensor triangularInTurns(const Tensor &t, const Tensor &b, bool upper, bool unit);

/// L and U of a with rows changed places in one matrix, and [..., min(m, n)] I64: the row, from 0, that changed places with row j.
struct LuInTurns {
  Tensor packed, pivots;
};
LuInTurns luInTurns(const Tensor &a, bool pivoting);
/// Row numbers [..., rows] after all changes of places.
Tensor orderInTurns(const Tensor &pivots, Expr rows);

/// L, zeros above it, and [..., n] the numbers whose roots are its diagonal.
struct CholeskyInTurns {
  Tensor l, pivots;
};
CholeskyInTurns choleskyInTurns(const Tensor &a);

} // namespace neso::lower
