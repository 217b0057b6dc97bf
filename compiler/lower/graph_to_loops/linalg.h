// Factorisations: of small matrices (isSmall) one or two loop nests for each column, the same ones for all, of others loops of the program (turns.h).
// Matrices are the last two dims of a tensor whose leading dims are a batch. Triangular solves, LU, Cholesky and QR take any size (factor_turns.h);
// eigenvalues of symmetric ones and singular values (spectral.cpp, symmetric_turns.h) too; singular vectors, general eigenvalues (eigen.h) and block factors
// (ldl.cpp) any constant one.
#pragma once
#include "lower/graph_to_loops/complex_val.h"
#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

constexpr int64_t kMostColumns = 64;

/// Why these are no matrices of real or complex numbers to factor, of any size, or of any that is a constant; empty when they are.
std::string anySizeFault(const Tensor &a);
std::string anyConstSizeFault(const Tensor &a);
/// Of constant sizes of at most kMostColumns.
bool isSmall(const Tensor &a);
/// The constant sizes of a matrix.
inline int64_t rowsOf(const Tensor &a) { return a.size(-2).constValue(); }
inline int64_t columnsOf(const Tensor &a) { return a.size(-1).constValue(); }

/// The element of a matrix; the batch index comes first.
using MatrixFn = std::function<Val(BodyBuilder &, const Index &batch, Expr r, Expr c)>;
/// A matrix of `rows` by `columns` for each element of `batch`, in a buffer.
Tensor matrixOf(Lowering &ctx, DType t, const Sizes &batch, Expr rows, Expr columns, const MatrixFn &fn);
Val elementOf(BodyBuilder &b, const Tensor &a, const Index &batch, Expr r, Expr c);
/// In float64.
Complex wide(BodyBuilder &b, Complex v);
/// The same of matrices that may be complex.
using NumberMatrixFn = std::function<Complex(BodyBuilder &, const Index &batch, Expr r, Expr c)>;
Tensor numberMatrixOf(Lowering &ctx, DType t, const Sizes &batch, Expr rows, Expr columns, const NumberMatrixFn &fn);
Complex numberOf(BodyBuilder &b, const Tensor &a, const Index &batch, Expr r, Expr c);
/// The sums over r of `count` numbers. Realizes.
Tensor sumOfNumbers(Lowering &ctx, DType t, const Sizes &sizes, Expr count, const std::function<Complex(BodyBuilder &, const Index &, Expr r)> &fn);
/// Conjugated, where it is complex.
Tensor conjugateOf(const Tensor &a);
Sizes batchOf(const Tensor &a);
/// An index, or sizes, with one more dim at the end.
inline Index extended(Index batch, Expr e) {
  batch.push_back(e);
  return batch;
}
Tensor identityMatrix(const Tensor &like, Expr rows, Expr columns);

/// The number of a column that a step works on, as the data of a constant: the loops of all steps are then the same but
/// for the buffers, and are compiled once.
class Step {
public:
  Step(Lowering &ctx, int64_t column);
  Val value(BodyBuilder &b) const { return number_.at(b, {Expr(0)}); }
  /// As an index of a dimension of `size`.
  Expr index(BodyBuilder &b, Expr size) const { return b.indirect(value(b), size, false, false); }
  Val is(OpKind relation, BodyBuilder &b, Expr e) const { return bin(relation, b.index(e), value(b)); }

private:
  Tensor number_;
};

/// Eigenvalues [..., n] of a symmetric matrix of float64, ascending, in float64: as exact as results of type t (F32 or F64)
/// can show.
Tensor symmetricValues(const Tensor &a, DType t);

/// Beside elements of about 1 a sum of squares (in float64) below this is none: numbers of type t, or squares, that are too small to have all their bits
/// make no length.
constexpr double kNoSquare = 0x1p-960;
inline double leastSquare(DType t) { return toReal(t) == DType::F32 ? 0x1p-206 : kNoSquare; }

/// Matrices divided by powers of two beside their largest elements: squares of elements neither overflow nor vanish.
struct ScaledMatrix {
  Tensor matrix;
  Tensor factor; // [...] F64
  explicit ScaledMatrix(const Tensor &a);
  /// values [..., n] or a matrix [..., m, n], as they are of what was divided.
  Tensor back(const Tensor &x) const;
};

/// Householder vectors below the diagonal and R above it, as LAPACK's geqrf has it, and their factors tau [..., min(m,
/// n)].
struct Reflectors {
  Tensor packed, tau;
};
Reflectors reflectorsOf(const Tensor &a);
/// H_0 H_1 … H_(k-1) c, or the adjoint product.
Tensor applyReflectors(const Reflectors &h, const Tensor &c, bool adjoint);

/// Solves a x = b for square a, with partial pivoting.
Tensor solveMatrix(const Tensor &a, const Tensor &b);

/// Singular values of matrices with no more columns than rows, largest first, and the right vectors as columns: a V = U S.
struct Singular {
  Tensor values, v, av;
  std::function<Tensor(Expr width)> left = {}; // the first columns of a whole basis of left vectors; empty: they follow from av
};
Singular singularOf(const Tensor &a);
/// Norms by singular values: order 2, -2, or 'nuc' (order 0).
Tensor spectralNorm(const Tensor &a, int order);

void addLinalg(OpTable &table);
void addSpectral(OpTable &table);
void addEigen(OpTable &table);
void addLdl(OpTable &table);

} // namespace neso::lower
