// Factorisations of matrices of any size: loops of the program (turns.h) over blocks of kFactorBlock columns, where linalg.h writes a loop nest for
// each column. For sizes that are symbolic or larger than kMostColumns; what a function gives is what its namesake for small ones does.
//
// A block is factored a column a turn; what stands beside it takes one product of matrices, as LAPACK's getrf, potrf, geqrf and larfb have it
// (Golub and Van Loan, Matrix Computations, 3.2.11, 4.2.9 and 5.2.3). Products go over the whole matrix, of which what is done keeps its place:
// sizes that change from turn to turn would cost more than the third of the work that counts twice.
#pragma once
#include "lower/graph_to_loops/linalg.h"

namespace neso::lower {

constexpr int64_t kFactorBlock = 32;

/// t x = b by substitution, a block of rows of x each turn; only one triangle of t is read. Both have the same batch.
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

/// LAPACK's reflector of x [..., n], whose first element is at `head` and whose tail behind it: (I - tau v v^H)^H x = beta e_head. v has a one at
/// head and zeros before it. Squares are summed in float64, and a tail below leastSquare() is none. From `before` on (head >= before) tau is 0 and nothing changes.
struct Reflector {
  Tensor v, tau, beta; // v [..., n], tau and beta [...]; beta is real
};
Reflector reflectorOf(const NumberFn &x, Lowering &ctx, DType t, const Sizes &batch, Expr n, Expr head, Expr before);

/// The reflectors of a.
Reflectors reflectorsInTurns(const Tensor &a);
/// H_0 H_1 … c, or the adjoint product; h.tau may have fewer elements than columns of h.packed.
Tensor applyInTurns(const Reflectors &h, const Tensor &c, bool adjoint);
/// The same by vectors that are given as rows [..., K, m], K a multiple of kFactorBlock, and tau [..., K], both in memory; 0 for a vector that is none.
Tensor applyVectors(const Tensor &rows, const Tensor &tau, const Tensor &c, bool adjoint);

} // namespace neso::lower
