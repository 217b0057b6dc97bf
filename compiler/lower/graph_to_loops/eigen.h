// What eigenvalues of real matrices (eigen.cpp) and of complex ones (eigen_complex.cpp) share. All is computed in float64.
#pragma once
#include "lower/graph_to_loops/complex_val.h"
#include "lower/graph_to_loops/linalg.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

constexpr double kEpsilon = 0x1p-52;
/// After so many shifts without an eigenvalue the next one is another (LAPACK's dlahqr), which no matrix withstands twice; in all there are so many for
/// each value.
constexpr int kTriesBetweenOtherShifts = 10, kShiftsPerValue = 30;
/// What back substitution lets an element of a vector grow to before it divides the vector.
constexpr double kLarge = 1e60;

/// A number as a row or column, where one out of range is of no account.
inline Expr within(BodyBuilder &b, Val v, int64_t n) {
  return b.indirect(vmin(vmax(v, num(v, 0)), num(v, static_cast<double>(n - 1))), n, false, false);
}

/// Memory full of one number.
inline Tensor integers(Lowering &ctx, const Sizes &sizes, int64_t value) { return carry(fullInt(ctx, sizes, DType::I64, value)); }

/// A square matrix of float64 in memory of its own. Elements of a column that are a large power of two apart would lie in few lines of a cache.
inline Tensor carriedMatrix(const Tensor &a) {
  const int64_t n = rowsOf(a);
  const Tensor all = place(a.ctx(), DType::F64, extended(extended(batchOf(a), n), n % 64 ? n : n + 8)), out = slice(all, -1, 0, n);
  put(a, out);
  return out;
}

/// What is divided by must not vanish: a matrix that differs in its last bits has a number there.
inline Complex pivot(Complex a) { return where(sizeOf(a) < kEpsilon, real(num(a.re, kEpsilon)), a); }

/// A complex matrix.
struct Parts {
  Tensor re, im;
};
inline Complex elementOf(BodyBuilder &b, const Parts &a, const Index &batch, Expr r, Expr c) { return {elementOf(b, a.re, batch, r, c), elementOf(b, a.im, batch, r, c)}; }

/// Whether element (r, c) of a matrix is not zero.
using LinkFn = std::function<Val(BodyBuilder &, const Index &batch, Expr r, Expr c)>;
/// The row, [..., n] I64, that stands at each place when those whose values are on the diagonal already, as they are of a triangle in whatever order,
/// stand around the others: nothing is below the diagonal of theirs, and reflections leave them exact (LAPACK's gebal).
Tensor isolatingOrder(Lowering &ctx, const Sizes &batch, int64_t n, const LinkFn &isLinked);
/// P A P^T and P, of the permutation P that has the rows in that order.
Tensor inOrder(const Tensor &a, const Tensor &order);
Tensor movesOf(const Tensor &order, int64_t n);

/// The sweeps that take a matrix whose subdiagonal is all that stands below its diagonal to a triangle. A sweep of a matrix is `steps` reflections of
/// neighbouring rows and columns, each a row further down; all matrices of a batch take theirs side by side.
class Sweep {
public:
  /// `whole`: all of the triangle is needed, not its diagonal alone.
  Sweep(Lowering &ctx, const Sizes &batch, int64_t n, bool whole);
  // [...] I64: the last row that is no eigenvalue yet; how many shifts there were since the last eigenvalue.
  Tensor last, tries;
  // [...] I64, of one sweep: the first row of the block that it is about; where it begins, how many reflections it has and the block's last row; the
  // second row of a pair that it splits (0: none).
  Tensor low, row, steps, end, pair;

  /// body() is a sweep of each matrix; `line` says where the model asks for it.
  void untilNoneIsLeft(const std::string &line, const std::function<void()> &body);
  /// What the reflections of a turn change in any matrix: their rows from firstColumn on, and their columns from firstRow on.
  struct Touched {
    Expr firstColumn, columns, firstRow, rows;
  };
  void forReflections(const std::function<void(Expr turn, const Touched &)> &body);

private:
  Lowering &ctx_;
  int64_t n_;
  bool whole_;
};

/// Columns of length 1. One for which `complex` [..., n] is not 0 is turned until its largest element is real, as LAPACK has it.
Parts normalised(const Parts &v, const Tensor &complex);

/// A = Z T Z^H for complex matrices whose largest element is about 1: their eigenvalues and, if asked for, vectors as columns of any length.
struct ComplexEigen {
  Parts values, vectors;
};
ComplexEigen complexEigen(const Parts &a, bool vectors, const std::string &line);

} // namespace neso::lower
