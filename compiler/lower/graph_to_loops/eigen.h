// What eigenvalues of real matrices (eigen.cpp) and of complex ones (eigen_complex.cpp) share. All is computed in float64.
#pragma once
#include "lower/graph_to_loops/complex_val.h"
#include "lower/graph_to_loops/linalg.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

constexpr double kEpsilon = 0x1p-52;
/// After so many shifts without an eigenvalue the next one is another (LAPACK's dlahqr), which no matrix withstands twice.
constexpr int kTriesBetweenOtherShifts = 10, kShiftsPerValue = 30;
/// What back substitution lets an element of a vector grow to before it divides the vector.
constexpr double kLarge = 1e60;

/// A number as a row or column, where one out of range is of no account.
inline Expr within(BodyBuilder &b, Val v, int64_t n) {
  return b.indirect(vmin(vmax(v, num(v, 0)), num(v, static_cast<double>(n - 1))), n, false, false);
}

/// Memory full of one number.
inline Tensor integers(Lowering &ctx, const Sizes &sizes, int64_t value) { return carry(fullInt(ctx, sizes, DType::I64, value)); }

/// What is divided by must not vanish: a matrix that differs in its last bits has a number there.
inline Complex pivot(Complex a) { return where(sizeOf(a) < kEpsilon, real(num(a.re, kEpsilon)), a); }

/// A complex matrix.
struct Parts {
  Tensor re, im;
};
inline Complex elementOf(BodyBuilder &b, const Parts &a, const Index &batch, Expr r, Expr c) { return {elementOf(b, a.re, batch, r, c), elementOf(b, a.im, batch, r, c)}; }

/// Columns of length 1. One for which `complex` [..., n] is not 0 is turned until its largest element is real, as LAPACK has it.
Parts normalised(const Parts &v, const Tensor &complex);

/// A = Z T Z^H for complex matrices whose largest element is about 1: their eigenvalues and, if asked for, vectors as columns of any length.
struct ComplexEigen {
  Parts values, vectors;
};
ComplexEigen complexEigen(const Parts &a, bool vectors, const std::string &line);

} // namespace neso::lower
