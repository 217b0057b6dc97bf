// Eigenvalues of symmetric and Hermitian matrices, and singular values, of any constant size; for larger matrices than those of which
// spectral.cpp has Jacobi's method. Loops of the program (turns.h), all in float64.
#pragma once
#include "lower/graph_to_loops/linalg.h"

namespace neso::lower {

/// Values ascend; vectors are columns, invalid where they were not asked for. a is F64 or C128, whole, its largest element about 1.
struct HermitianEigen {
  Tensor values, vectors;
};
HermitianEigen hermitianInTurns(const Tensor &a, bool vectors);

/// x [..., n, n] = U H with orthonormal columns in U where x has full rank, up to singular values of 1e-17 of the largest.
Tensor polarFactor(const Tensor &x);

/// Of a tridiagonal matrix with d [..., n] on its diagonal and e beside it (e[k] between k and k + 1, the last one is not read), F64: values that
/// ascend, and vectors as rows.
struct TridiagonalEigen {
  Tensor values, rows;
};
TridiagonalEigen divideAndConquer(const Tensor &d, const Tensor &e);

} // namespace neso::lower
