// LU, Cholesky and QR factorisations, triangular solves, and what follows from them: solve, inverse, determinants.
#include "lower/graph_to_loops/linalg.h"

#include <cmath>
#include <cstring>

#include "lower/graph_to_loops/factor_turns.h"
#include "lower/graph_to_loops/in_place.h"

namespace neso::lower {

std::string anySizeFault(const Tensor &a) {
  if (a.rank() < 2) return "the argument is no matrix";
  if (toReal(a.dtype()) != DType::F32 && toReal(a.dtype()) != DType::F64) return "only float32 and float64 matrices are supported";
  return "";
}

std::string anyConstSizeFault(const Tensor &a) {
  if (std::string why = anySizeFault(a); !why.empty()) return why;
  return a.size(-2).asConst() && a.size(-1).asConst() ? "" : "matrices of symbolic size are not supported";
}

bool isSmall(const Tensor &a) {
  return a.size(-2).asConst() && a.size(-1).asConst() && rowsOf(a) <= kMostColumns && columnsOf(a) <= kMostColumns;
}

Sizes batchOf(const Tensor &a) { return Sizes(a.sizes().begin(), a.sizes().end() - 2); }

Complex wide(BodyBuilder &b, Complex v) { return {b.cast(v.re, DType::F64), v.isReal() ? v.im : b.cast(v.im, DType::F64)}; }

Val elementOf(BodyBuilder &b, const Tensor &a, const Index &batch, Expr r, Expr c) {
  Index i = batch;
  i.push_back(r), i.push_back(c);
  return a.at(b, i);
}

Complex numberOf(BodyBuilder &b, const Tensor &a, const Index &batch, Expr r, Expr c) {
  Index i = batch;
  i.push_back(r), i.push_back(c);
  return numberAt(b, a, i);
}

Tensor conjugateOf(const Tensor &a) { return a.isComplex() ? Tensor::complex(a.real(), neg(a.imag()), a.dtype()) : a; }

Tensor numberMatrixOf(Lowering &ctx, DType t, const Sizes &batch, Expr rows, Expr columns, const NumberMatrixFn &fn) {
  Sizes sizes = batch;
  sizes.push_back(rows), sizes.push_back(columns);
  return numbers(ctx, t, sizes, [fn](BodyBuilder &b, const Index &i) { return fn(b, Index(i.begin(), i.end() - 2), i[i.size() - 2], i.back()); }).realize();
}

Tensor matrixOf(Lowering &ctx, DType t, const Sizes &batch, Expr rows, Expr columns, const MatrixFn &fn) {
  Sizes sizes = batch;
  sizes.push_back(rows), sizes.push_back(columns);
  return Tensor::lazy(ctx, t, sizes,
                      [fn](BodyBuilder &b, const Index &i) {
                        return fn(b, Index(i.begin(), i.end() - 2), i[i.size() - 2], i.back());
                      })
      .realize();
}

Tensor identityMatrix(const Tensor &like, Expr rows, Expr columns) {
  DType t = toReal(like.dtype());
  const Tensor one = matrixOf(like.ctx(), t, batchOf(like), rows, columns, [t](BodyBuilder &b, const Index &, Expr r, Expr c) {
    return b.cast(b.compare(OpKind::Eq, r, c), t);
  });
  return cast(one, like.dtype());
}

// ---------------------------------------------------------------------------------------------------------------------
// Steps

Step::Step(Lowering &ctx, int64_t column) {
  std::vector<uint8_t> bytes(sizeof column);
  std::memcpy(bytes.data(), &column, sizeof column);
  number_ = ctx.addConstant(DType::I64, {Expr(1)}, std::move(bytes));
}

// ---------------------------------------------------------------------------------------------------------------------
// LU

namespace {
/// The rows (I64, from 0) that changed places with row 0, 1 …: one tensor for each, or, of large matrices, all in one as [..., k].
struct Pivots {
  Tensors each;
  Tensor all;
};
/// a with rows permuted = L U, both in `packed`.
struct Lu {
  Tensor packed;
  Pivots pivot;
};
} // namespace

/// The row that stands at r after rows j and p changed places.
static Val swapped(BodyBuilder &b, Expr r, const Step &j, Val p) {
  Val here = b.index(r);
  return where(j.is(OpKind::Eq, b, r), p, where(eq(here, p), j.value(b), here));
}

/// The factors of the first `n` columns of a0; those beside them become L^-1 P of themselves.
static Lu luOf(const Tensor &a0, int64_t n, bool pivoting = true) {
  Lowering &ctx = a0.ctx();
  Tensor a = a0;
  a.realize();
  int64_t m = rowsOf(a);
  Lu out;
  for (int64_t j = 0; j < std::min(m, n); ++j) {
    Tensor p, old = a;
    const Step step(ctx, j);
    if (pivoting) {
      Sizes sizes = batchOf(a);
      sizes.push_back(m);
      Tensor column = Tensor::lazy(ctx, toReal(a.dtype()), sizes, [=](BodyBuilder &b, const Index &i) {
        Index batch(i.begin(), i.end() - 1);
        Val v = sizeOf(numberOf(b, old, batch, i.back(), step.index(b, n)));
        return where(step.is(OpKind::Ge, b, i.back()), v, num(v, -1));
      });
      p = argExtreme(true, column, -1, false).realize();
    } else {
      p = fullInt(ctx, batchOf(a), DType::I64, j);
    }
    out.pivot.each.push_back(p);
    a = numberMatrixOf(ctx, a.dtype(), batchOf(a), m, a.size(-1), [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      Val pv = p.at(b, i);
      Expr from = pivoting ? b.indirect(swapped(b, r, step, pv), m, false, false) : r,
           pr = pivoting ? b.indirect(pv, m, false, false) : step.index(b, m), column = step.index(b, n);
      const Complex v = numberOf(b, old, i, from, c), top = numberOf(b, old, i, pr, column);
      Complex l = numberOf(b, old, i, from, column);
      // A zero pivot leaves its column as it is.
      l = where(isZero(top), l, l / top);
      Val below = step.is(OpKind::Gt, b, r);
      const Complex reduced = where(step.is(OpKind::Eq, b, c), l, v - l * numberOf(b, old, i, pr, c));
      return where(below && step.is(OpKind::Ge, b, c), reduced, v);
    });
  }
  out.packed = a;
  return out;
}

static Lu luOf(const Tensor &a, bool pivoting = true) {
  if (isSmall(a)) return luOf(a, columnsOf(a), pivoting);
  const LuInTurns lu = luInTurns(a, pivoting);
  return {lu.packed, {{}, lu.pivots}};
}

/// Row numbers [..., m] after all changes of places.
static Tensor permutationOf(const Pivots &pivot, const Tensor &like) {
  if (pivot.all.valid()) return orderInTurns(pivot.all, like.size(-2));
  Lowering &ctx = like.ctx();
  int64_t m = rowsOf(like);
  Sizes sizes = batchOf(like);
  sizes.push_back(m);
  Tensor order = iota(ctx, sizes, static_cast<int64_t>(sizes.size()) - 1);
  for (size_t j = 0; j < pivot.each.size(); ++j) {
    Tensor old = order, p = pivot.each[j];
    const Step step(ctx, static_cast<int64_t>(j));
    order = Tensor::lazy(ctx, DType::I64, sizes, [=](BodyBuilder &b, const Index &i) {
      Index k = i;
      k.back() = b.indirect(swapped(b, i.back(), step, p.at(b, Index(i.begin(), i.end() - 1))), m, false, false);
      return old.at(b, k);
    });
    order.realize();
  }
  return order;
}

/// Those that ATen gives beside the factors `packed`.
static Pivots pivotsOf(const Tensor &given, const Tensor &packed) {
  Pivots out;
  if (!isSmall(packed)) {
    out.all = map(cast(given, DType::I64), [](Val v) { return v - 1.0; }).realize();
    return out;
  }
  for (int64_t j = 0; j < std::min(rowsOf(packed), columnsOf(packed)); ++j)
    out.each.push_back(map(cast(select(given, -1, j), DType::I64), [](Val v) { return v - 1.0; }).realize());
  return out;
}

/// [..., k] as LAPACK numbers rows: from 1, I32.
static Tensor pivotVector(const Lu &lu) {
  if (lu.pivot.all.valid()) return cast(map(lu.pivot.all, [](Val v) { return v + 1.0; }), DType::I32);
  Tensors parts;
  for (const Tensor &p : lu.pivot.each)
    parts.push_back(unsqueeze(cast(map(p, [](Val v) { return v + 1.0; }), DType::I32), p.rank()));
  if (parts.empty()) {
    Sizes sizes = batchOf(lu.packed);
    sizes.push_back(0);
    return fullInt(lu.packed.ctx(), sizes, DType::I32, 0);
  }
  return concat(parts, parts[0].rank() - 1);
}

static Tensor diagonalOf(const Tensor &a) {
  Sizes sizes = batchOf(a);
  sizes.push_back(min(a.size(-2), a.size(-1)));
  return remap(a, sizes, [](const Index &i) {
    Index j = i;
    j.push_back(i.back());
    return j;
  });
}

/// The number (from 1) of the first element of a [..., n] for which `bad` holds, 0 if there is none; I32.
static Tensor firstBad(const Tensor &d, const std::function<Val(Val)> &bad) {
  // Larger than any number of an element.
  constexpr int64_t kNone = int64_t{1} << 30;
  Sizes batch(d.sizes().begin(), d.sizes().end() - 1);
  if (d.size(-1).isConst(0)) return fullInt(d.ctx(), batch, DType::I32, 0);
  Tensor at = Tensor::lazy(d.ctx(), DType::I64, d.sizes(), [=](BodyBuilder &b, const Index &i) {
    return where(bad(d.at(b, i)), b.index(i.back() + 1), b.constantInt(DType::I64, kNone));
  });
  return cast(map(amin(at, {-1}, false), [](Val v) { return where(v >= static_cast<double>(kNone), num(v, 0), v); }), DType::I32);
}

static Tensor luInfo(const Lu &lu) {
  const Tensor d = diagonalOf(lu.packed);
  // 0 where both parts are.
  const Tensor sizes = d.isComplex() ? add(unary(d.real(), OpKind::Abs), unary(d.imag(), OpKind::Abs)) : d;
  return firstBad(sizes, [](Val v) { return eq(v, 0.0); });
}

static Tensor lowerOf(const Tensor &packed, Expr k) {
  return numberMatrixOf(packed.ctx(), packed.dtype(), batchOf(packed), packed.size(-2), k, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    const Complex v = numberOf(b, packed, i, r, c), one{num(v.re, 1), {}}, none{num(v.re, 0), {}};
    return where(b.compare(OpKind::Gt, r, c), v, where(b.compare(OpKind::Eq, r, c), one, none));
  });
}

static Tensor upperOf(const Tensor &packed, Expr k) {
  return numberMatrixOf(packed.ctx(), packed.dtype(), batchOf(packed), k, packed.size(-1), [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    const Complex v = numberOf(b, packed, i, r, c);
    return where(b.compare(OpKind::Le, r, c), v, Complex{num(v.re, 0), {}});
  });
}

/// P [..., m, m] with a = P L U.
static Tensor permutationMatrix(const Pivots &pivot, const Tensor &like) {
  Tensor order = permutationOf(pivot, like);
  DType t = toReal(like.dtype());
  const Tensor moves = matrixOf(like.ctx(), t, batchOf(like), like.size(-2), like.size(-2), [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    Index at = i;
    at.push_back(c);
    return b.cast(eq(order.at(b, at), b.index(r)), t);
  });
  return cast(moves, like.dtype());
}

// ---------------------------------------------------------------------------------------------------------------------
// Triangular systems

/// Both with the same leading dims.
static void broadcastBatch(Tensor &a, Tensor &b) {
  auto widened = [](const Tensor &x, const Sizes &batch) {
    Sizes s = batch;
    s.push_back(x.size(-2)), s.push_back(x.size(-1));
    return broadcastTo(x, s);
  };
  Sizes sa = batchOf(a), sb = batchOf(b), batch(std::max(sa.size(), sb.size()), Expr(1));
  for (size_t d = 0; d < batch.size(); ++d) {
    size_t fromEnd = batch.size() - d;
    Expr x = fromEnd <= sa.size() ? sa[sa.size() - fromEnd] : Expr(1),
         y = fromEnd <= sb.size() ? sb[sb.size() - fromEnd] : Expr(1);
    batch[d] = x.isConst(1) ? y : x;
  }
  a = widened(a, batch);
  b = widened(b, batch);
}

/// t x = b by substitution; only one triangle of t is read.
static Tensor solveTriangular(Tensor t, Tensor b0, bool upper, bool unit) {
  broadcastBatch(t, b0);
  if (!isSmall(t)) return triangularInTurns(t, b0, upper, unit);
  t = source(t);
  Tensor x = b0;
  x.realize();
  int64_t n = rowsOf(t);
  for (int64_t step = 0; step < n; ++step) {
    const Step j(t.ctx(), upper ? n - 1 - step : step);
    Tensor old = x;
    x = numberMatrixOf(t.ctx(), x.dtype(), batchOf(x), x.size(-2), x.size(-1), [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      const Expr at = j.index(b, n);
      Complex solved = numberOf(b, old, i, at, c);
      const Complex here = numberOf(b, old, i, r, c);
      if (!unit) solved = solved / numberOf(b, t, i, at, at);
      Val open = j.is(upper ? OpKind::Lt : OpKind::Gt, b, r);
      const Complex rest = here - numberOf(b, t, i, r, at) * solved;
      return where(j.is(OpKind::Eq, b, r), solved, where(open, rest, here));
    });
  }
  return x;
}

/// With the factors of a.
static Tensor solveLu(const Tensor &packed, const Pivots &pivot, const Tensor &b0, bool adjoint) {
  Tensor lu = packed, b = b0;
  const Expr n = lu.size(-2);
  if (n.isConst(0)) {
    broadcastBatch(lu, b);
    return b;
  }
  if (adjoint) {
    // U^H L^H P^T x = b.
    const Tensor turned = transpose(conjugateOf(lu), -2, -1);
    Tensor y = solveTriangular(turned, b, false, false);
    y = solveTriangular(turned, y, true, true);
    return matmul(permutationMatrix(pivot, packed), y);
  }
  Tensor order = permutationOf(pivot, packed);
  broadcastBatch(lu, b);
  Sizes orderSizes = batchOf(lu);
  orderSizes.push_back(n);
  order = broadcastTo(order, orderSizes);
  b = source(b);
  Tensor permuted = numberMatrixOf(b.ctx(), b.dtype(), batchOf(b), b.size(-2), b.size(-1), [=](BodyBuilder &body, const Index &i, Expr r, Expr c) {
    Index at = i;
    at.push_back(r);
    return numberOf(body, b, i, body.indirect(order.at(body, at), n, false, false), c);
  });
  return solveTriangular(lu, solveTriangular(lu, permuted, false, true), true, false);
}

namespace {
struct Solution {
  Lu lu; // of a
  Tensor x;
};
} // namespace

/// a x = b.
static Solution solved(const Tensor &a, const Tensor &b) {
  const int64_t last = a.rank() - 1;
  if (!isSmall(a) || rowsOf(a) == 0 || a.dtype() != b.dtype() || batchOf(a) != batchOf(b)) {
    const Lu lu = luOf(a);
    return {lu, solveLu(lu.packed, lu.pivot, b, false)};
  }
  const int64_t n = rowsOf(a);
  // The steps that factor a bring b to L^-1 P b beside it.
  Lu lu = luOf(concat({a, b}, last), n);
  const Tensor y = slice(lu.packed, last, n, b.size(-1));
  lu.packed = slice(lu.packed, last, 0, n);
  return {lu, solveTriangular(lu.packed, y, true, false)};
}

Tensor solveMatrix(const Tensor &a, const Tensor &b) { return solved(a, b).x; }

/// b is a vector for each matrix when it has one dim, or the dims of a without the last.
static bool isVector(const Tensor &a, const Tensor &b) {
  if (b.rank() == 1) return true;
  if (b.rank() != a.rank() - 1) return false;
  for (int64_t d = 0; d < b.rank(); ++d)
    if (b.size(d) != a.size(d)) return false;
  return true;
}

static Tensors solveOp(OpCall &o) {
  Tensor a = o.t("A"), b = o.t("B");
  if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
  bool left = o.flag("left", true), vector = left && isVector(a, b);
  if (vector) b = unsqueeze(b, b.rank());
  // The factors that are given beside are those of a: X a = b is a^H X^H = b^H then.
  const bool ofA = left || o.node.target == "aten._linalg_solve_ex.default";
  if (!left) b = transpose(ofA ? conjugateOf(b) : b, -2, -1);
  if (!ofA) a = transpose(a, -2, -1);
  const bool adjoint = ofA && !left;
  auto [lu, x] = adjoint ? Solution{luOf(a), {}} : solved(a, b);
  if (adjoint) x = solveLu(lu.packed, lu.pivot, b, true);
  if (!left) x = transpose(ofA ? conjugateOf(x) : x, -2, -1);
  if (vector) x = squeeze(x, x.rank() - 1);
  Tensors out{x};
  if (o.node.target == "aten._linalg_solve_ex.default") out.push_back(lu.packed), out.push_back(pivotVector(lu));
  if (o.outCount() > 1) out.push_back(luInfo(lu));
  return out;
}

// ---------------------------------------------------------------------------------------------------------------------
// Cholesky

namespace {
struct Cholesky {
  Tensor l, info;
};
} // namespace

/// Columns that are factored together, before what lies behind them is reduced by one product: a row of them is a vector.
constexpr int64_t kFactoredColumns = 16;

/// The first `width` columns of L from those of a, [..., m, width], in steps of a column each. What is not reached yet stays whole, both
/// triangles: a row of it is the column, and lies side by side in memory. Appends the pivots.
static Tensor choleskyColumns(const Tensor &a0, int64_t width, Tensors &pivots) {
  Lowering &ctx = a0.ctx();
  Tensor a = a0;
  const int64_t m = rowsOf(a);
  for (int64_t j = 0; j < width; ++j) {
    const Tensor old = a;
    // Diagonals are real: what stands beside it is not read.
    pivots.push_back(unsqueeze(select(select(old.real(), -1, j), -1, j), old.rank() - 2));
    const Step step(ctx, j);
    a = numberMatrixOf(ctx, a.dtype(), batchOf(a), m, width, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      const Expr at = step.index(b, width);
      // One division for all of them, as LAPACK's potf2 has it.
      const Val root = un(OpKind::Sqrt, elementOf(b, old.real(), i, at, at)), part = num(root, 1) / root;
      const Complex here = numberOf(b, old, i, r, c), column = numberOf(b, old, i, r, at) * part, row = numberOf(b, old, i, at, c) * part;
      const Complex rest = here - column * row;
      const Complex below = where(step.is(OpKind::Eq, b, r), Complex{root, {}}, column);
      const Complex open = where(step.is(OpKind::Eq, b, c), below, where(step.is(OpKind::Eq, b, r), Complex{num(here.re, 0), {}}, rest));
      return where(step.is(OpKind::Ge, b, c) && step.is(OpKind::Ge, b, r), open, here);
    });
  }
  return a;
}

/// A few columns at a time, from the right of them on: of the rest of the matrix the product of what stands below them with itself is taken
/// away, as LAPACK's potrf does it.
static Cholesky choleskyOf(const Tensor &a0, bool upper) {
  const Tensor given = upper ? transpose(conjugateOf(a0), -2, -1) : a0;
  given.realize();
  Lowering &ctx = given.ctx();
  const auto badPivot = [](Val v) { return !(v > 0.0); };
  if (!isSmall(given)) {
    const CholeskyInTurns done = choleskyInTurns(given);
    return {upper ? transpose(conjugateOf(done.l), -2, -1) : done.l, firstBad(done.pivots, badPivot)};
  }
  const int64_t n = rowsOf(given);
  Tensor a = numberMatrixOf(ctx, given.dtype(), batchOf(given), n, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    return where(b.compare(OpKind::Ge, r, c), numberOf(b, given, i, r, c), conjugate(numberOf(b, given, i, c, r)));
  });
  if (n == 0) return {a, fullInt(ctx, batchOf(a), DType::I32, 0)};
  Tensors pivots, columns;
  for (int64_t first = 0; first < n; first += kFactoredColumns) {
    const int64_t width = std::min(kFactoredColumns, n - first), rest = n - first - width;
    const Tensor part = choleskyColumns(slice(a, -1, 0, width), width, pivots);
    columns.push_back(part);
    if (rest == 0) break;
    const Tensor below = slice(part, -2, width, rest);
    a = sub(slice(slice(a, -2, width, rest), -1, width, rest), matmul(below, transpose(conjugateOf(below), -2, -1))).realize();
  }
  // Above the first row of a part stand zeros.
  Tensors whole;
  for (const Tensor &part : columns) {
    Sizes before(static_cast<size_t>(part.rank()), Expr(0)), after = before;
    before[before.size() - 2] = n - rowsOf(part);
    auto lowered = [&](const Tensor &x) { return pad(x, before, after, 0); };
    whole.push_back(part.isComplex() ? Tensor::complex(lowered(part.real()), lowered(part.imag()), part.dtype()) : lowered(part));
  }
  const Tensor l = whole.size() == 1 ? whole[0] : concat(whole, whole[0].rank() - 1);
  const Tensor info = firstBad(concat(pivots, pivots[0].rank() - 1), badPivot);
  return {upper ? transpose(conjugateOf(l), -2, -1) : l, info};
}

static Tensor choleskySolve(const Tensor &b, const Tensor &factor, bool upper) {
  Tensor l = upper ? transpose(conjugateOf(factor), -2, -1) : factor;
  return solveTriangular(transpose(conjugateOf(l), -2, -1), solveTriangular(l, b, false, false), true, false);
}

// ---------------------------------------------------------------------------------------------------------------------
// QR

/// Element r of Householder vector j.
static Complex reflectorAt(BodyBuilder &b, const Tensor &packed, const Index &i, Expr r, const Step &j) {
  const Complex v = numberOf(b, packed, i, r, j.index(b, packed.size(-1)));
  return where(j.is(OpKind::Gt, b, r), v, where(j.is(OpKind::Eq, b, r), Complex{num(v.re, 1), {}}, Complex{num(v.re, 0), {}}));
}

Tensor sumOfNumbers(Lowering &ctx, DType t, const Sizes &sizes, Expr count, const std::function<Complex(BodyBuilder &, const Index &, Expr r)> &fn) {
  auto part = [&](bool imaginary) {
    return ctx.reduce(loops::ReduceKind::Sum, toReal(t), sizes, {count}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      const Complex v = fn(b, i, r[0]);
      return imaginary ? v.im : v.re;
    })[0];
  };
  return isComplex(t) ? Tensor::complex(part(false), part(true), t) : part(false);
}

/// (I - tau v v^H) c for reflector j.
static Tensor reflect(const Tensor &packed, const Tensor &tau, const Step &j, const Tensor &c0) {
  Lowering &ctx = c0.ctx();
  Tensor c = c0;
  c.realize();
  DType t = c.dtype();
  Sizes sizes = batchOf(c);
  sizes.push_back(c.size(-1));
  Tensor w = sumOfNumbers(ctx, t, sizes, c.size(-2), [=](BodyBuilder &b, const Index &i, Expr r) {
    Index batch(i.begin(), i.end() - 1);
    return conjugate(reflectorAt(b, packed, batch, r, j)) * numberOf(b, c, batch, r, i.back());
  });
  return numberMatrixOf(ctx, t, batchOf(c), c.size(-2), c.size(-1), [=](BodyBuilder &b, const Index &i, Expr r, Expr col) {
    Index at = i, factor = i;
    at.push_back(col), factor.push_back(j.index(b, tau.size(-1)));
    return numberOf(b, c, i, r, col) - numberAt(b, tau, factor) * reflectorAt(b, packed, i, r, j) * numberAt(b, w, at);
  });
}

ScaledMatrix::ScaledMatrix(const Tensor &a) {
  auto size = [](const Tensor &x) { return unary(x, OpKind::Abs); };
  const Tensor largest = amax(a.isComplex() ? binary(OpKind::Max, size(a.real()), size(a.imag())) : size(a), {-2, -1}, false);
  factor = map(largest, [](Val v) { return where(v > 0.0 && v < HUGE_VAL, un(OpKind::Exp2, un(OpKind::Floor, un(OpKind::Log2, v))), num(v, 1)); }).realize();
  matrix = numberMatrixOf(a.ctx(), a.dtype(), batchOf(a), a.size(-2), a.size(-1), [a, f = factor](BodyBuilder &b, const Index &i, Expr r, Expr c) { return numberOf(b, a, i, r, c) / f.at(b, i); });
}

Tensor ScaledMatrix::back(const Tensor &x) const {
  const size_t rank = factor.sizes().size();
  return numbers(x.ctx(), x.dtype(), x.sizes(), [x, rank, f = factor](BodyBuilder &b, const Index &i) { return numberAt(b, x, i) * f.at(b, Index(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(rank))); });
}

/// A column that has nothing below its diagonal, where it is real, stays as it is.
static Val nothingToReflect(DType t, Complex head, Val below) {
  const Val none = below < leastSquare(t);
  return head.isReal() ? none : none && eq(head.im, 0.0);
}

static Reflectors reflectorsOfScaled(const Tensor &a0);

Reflectors reflectorsOf(const Tensor &a0) {
  const ScaledMatrix scaled(a0);
  const Reflectors h = reflectorsOfScaled(scaled.matrix);
  const Tensor packed = source(h.packed);
  auto element = [packed, f = scaled.factor](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    const Complex v = numberOf(b, packed, i, r, c);
    return where(b.compare(OpKind::Le, r, c), v * f.at(b, i), v);
  };
  return {numberMatrixOf(a0.ctx(), a0.dtype(), batchOf(a0), a0.size(-2), a0.size(-1), element), h.tau};
}

static Reflectors reflectorsOfScaled(const Tensor &a0) {
  if (!isSmall(a0)) return reflectorsInTurns(a0);
  Tensor a = a0;
  a.realize();
  Lowering &ctx = a.ctx();
  int64_t m = rowsOf(a), n = columnsOf(a), k = std::min(m, n);
  DType t = a.dtype();
  Tensors taus;
  for (int64_t j = 0; j < k; ++j) {
    const Step step(ctx, j);
    Tensor old = a;
    const DType part = toReal(t);
    Tensor head = numbers(ctx, t, batchOf(a), [=](BodyBuilder &b, const Index &i) { return numberOf(b, old, i, step.index(b, m), step.index(b, n)); });
    Tensor below = ctx.reduce(loops::ReduceKind::Sum, DType::F64, batchOf(a), {Expr(m)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      const Val v = squareOf(wide(b, numberOf(b, old, i, r[0], step.index(b, n))));
      return where(step.is(OpKind::Gt, b, r[0]), v, num(v, 0));
    })[0];
    // As LAPACK's larfg: beta is real and has the sign that avoids cancellation; nothing to reflect gives tau = 0.
    Tensor beta = numbers(ctx, part, batchOf(a), [=](BodyBuilder &b, const Index &i) {
                    const Complex v = numberAt(b, head, i);
                    const Val rest = below.at(b, i), norm = b.cast(un(OpKind::Sqrt, squareOf(wide(b, v)) + rest), part);
                    return Complex{where(nothingToReflect(t, v, rest), v.re, where(v.re >= 0.0, -norm, norm)), {}};
                  }).realize();
    Tensor tau = numbers(ctx, t, batchOf(a), [=](BodyBuilder &b, const Index &i) {
                   const Complex v = numberAt(b, head, i);
                   const Val by = beta.at(b, i);
                   return where(nothingToReflect(t, v, below.at(b, i)), Complex{num(by, 0), {}}, (Complex{by, {}} - v) / by);
                 }).realize();
    taus.push_back(unsqueeze(tau, tau.rank()));
    // The vector takes its place below the diagonal; the columns to the right are reflected.
    Tensor withVector = numberMatrixOf(ctx, t, batchOf(a), m, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      const Complex v = numberOf(b, old, i, r, c), scale = numberAt(b, head, i) - Complex{beta.at(b, i), {}};
      const Complex element = where(isZero(scale), v, v / scale);
      return where(step.is(OpKind::Eq, b, c) && step.is(OpKind::Gt, b, r), element, v);
    });
    Tensor allTau = reshape(tau, [&] {
      Sizes s = batchOf(a);
      s.push_back(1);
      return s;
    }());
    Sizes wide = batchOf(a);
    wide.push_back(k);
    // R is what the adjoint reflections leave.
    Tensor reflected = reflect(withVector, broadcastTo(conjugateOf(allTau), wide), step, withVector);
    a = numberMatrixOf(ctx, t, batchOf(a), m, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      const Complex keep = numberOf(b, withVector, i, r, c);
      const Complex own = where(step.is(OpKind::Eq, b, r), Complex{beta.at(b, i), {}}, keep);
      return where(step.is(OpKind::Gt, b, c), numberOf(b, reflected, i, r, c),
                   where(step.is(OpKind::Eq, b, c), own, keep));
    });
  }
  Sizes none = batchOf(a);
  none.push_back(0);
  return {a, taus.empty() ? full(ctx, none, t, 0) : concat(taus, taus[0].rank() - 1)};
}

Tensor applyReflectors(const Reflectors &h, const Tensor &c0, bool adjoint) {
  if (!isSmall(h.packed) || !h.tau.size(-1).asConst() || !isSmall(c0)) return applyInTurns(h, c0, adjoint);
  int64_t k = h.tau.size(-1).constValue();
  Tensor c = c0, tau = adjoint ? conjugateOf(h.tau) : h.tau;
  tau.reused();
  for (int64_t step = 0; step < k; ++step)
    c = reflect(h.packed, tau, Step(c.ctx(), adjoint ? step : k - 1 - step), c);
  return c;
}

static Tensors qrOp(OpCall &o) {
  bool old = o.node.target == "aten.qr.default";
  Tensor a = o.t(old ? "self" : "A");
  if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
  std::string mode = old ? (o.flag("some", true) ? "reduced" : "complete") : o.text("mode", "reduced");
  const Expr m = a.size(-2), n = a.size(-1), k = min(m, n), width = mode == "complete" ? m : k;
  Reflectors h = reflectorsOf(a);
  Tensor r = numberMatrixOf(o.ctx, a.dtype(), batchOf(a), width, n, [=](BodyBuilder &b, const Index &i, Expr row, Expr c) {
    auto part = [&](const Tensor &x) {
      return b.masked(b.compare(OpKind::Le, row, c), [&] { return elementOf(b, x, i, row, c); }, b.constant(x.dtype(), 0));
    };
    const Tensor &x = h.packed;
    return x.isComplex() ? Complex{part(x.real()), part(x.imag())} : Complex{part(x), {}};
  });
  if (mode == "r") return {full(o.ctx, o.out().sizes, a.dtype(), 0), r};
  return {applyReflectors(h, identityMatrix(a, m, width), false), r};
}

// ---------------------------------------------------------------------------------------------------------------------

static Tensor productOfLast(const Tensor &x) {
  return x.isComplex() ? complexProduct(x, {-1}, false) : reduceDims(loops::ReduceKind::Prod, x, {-1}, false, x.dtype());
}

static Tensors determinants(OpCall &o) {
  const std::string &n = o.node.target;
  const std::string_view matrix = o.has("A") ? "A" : "self";
  Tensor a = o.t(matrix);
  if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
  // The factors that ATen gives beside are those of the transpose where it need not copy for them; gradients count on it.
  const graph::TensorType *given = o.typeOf(matrix);
  const bool turned = (n == "aten._linalg_det.default" || n == "aten._linalg_slogdet.default") && !a.isComplex() && given &&
                      sameStrides(o.ctx, given->sizes, given->strides, denseStrides(given->sizes));
  Lu lu = luOf(turned ? transpose(a, -2, -1) : a);
  Tensor d = diagonalOf(lu.packed);
  d.reused();
  const DType type = a.dtype(), t = toReal(type);
  Tensor sign = full(o.ctx, batchOf(a), t, 1);
  if (lu.pivot.all.valid()) {
    const Tensor pivots = lu.pivot.all;
    const Tensor signs = Tensor::lazy(o.ctx, t, pivots.sizes(), [=](BodyBuilder &b, const Index &i) {
      const Val keeps = eq(pivots.at(b, i), b.index(i.back()));
      return where(keeps, b.constant(t, 1), b.constant(t, -1));
    });
    sign = reduceDims(loops::ReduceKind::Prod, signs, {-1}, false, t);
  }
  for (size_t j = 0; j < lu.pivot.each.size(); ++j) {
    Tensor was = sign, p = lu.pivot.each[j];
    sign = Tensor::lazy(o.ctx, t, batchOf(a), [=](BodyBuilder &b, const Index &i) {
      Val s = was.at(b, i);
      return where(eq(p.at(b, i), static_cast<double>(j)), s, -s);
    });
  }
  sign.realize();
  if (n.find("logdet") == std::string::npos && n.find("slogdet") == std::string::npos) {
    Tensor det = mul(productOfLast(d), sign);
    if (o.outCount() == 1) return {det};
    return {det, lu.packed, pivotVector(lu)};
  }
  const Tensor length = lengths(d);
  const Tensor signs = a.isComplex() ? where(binary(OpKind::Eq, length, scalarInt(o.ctx, 0)), full(o.ctx, {}, type, 0), div(d, length)) : unary(d, OpKind::Sign);
  Tensor whole = mul(productOfLast(signs), sign).realize();
  Tensor size = sum(unary(length, OpKind::Log), {-1}, false, t);
  if (n.find("slogdet") == std::string::npos && a.isComplex()) return {add(size, unary(whole, OpKind::Log))};
  if (n.find("slogdet") == std::string::npos)
    return {where(binary(OpKind::Lt, whole, scalarInt(o.ctx, 0)), full(o.ctx, {}, t, NAN), size)};
  Tensors out{whole, size};
  if (o.outCount() > 2) out.push_back(lu.packed), out.push_back(pivotVector(lu));
  return out;
}

static Tensors luOp(OpCall &o) {
  const std::string &n = o.node.target;
  Tensor a = o.t(o.has("A") ? "A" : "self");
  if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
  Lu lu = luOf(a, o.flag("pivot", true));
  if (n != "aten.linalg_lu.default") {
    Tensors out{lu.packed, pivotVector(lu)};
    if (o.outCount() > 2) out.push_back(luInfo(lu));
    return out;
  }
  const Expr k = min(a.size(-2), a.size(-1));
  Tensor p = o.flag("pivot", true) ? permutationMatrix(lu.pivot, lu.packed) : full(o.ctx, o.out().sizes, a.dtype(), 0);
  return {p, lowerOf(lu.packed, k), upperOf(lu.packed, k)};
}

static Tensors luUnpack(OpCall &o) {
  Tensor packed = o.t("LU_data");
  if (std::string why = anySizeFault(packed); !why.empty()) return o.fail(why);
  packed.realize();
  const Expr k = min(packed.size(-2), packed.size(-1));
  Tensors out;
  if (o.flag("unpack_pivots", true))
    out.push_back(permutationMatrix(pivotsOf(o.t("LU_pivots"), packed), packed));
  else
    out.push_back(full(o.ctx, o.out(0).sizes, packed.dtype(), 0));
  if (o.flag("unpack_data", true))
    out.push_back(lowerOf(packed, k)), out.push_back(upperOf(packed, k));
  else
    out.push_back(full(o.ctx, o.out(1).sizes, packed.dtype(), 0)),
        out.push_back(full(o.ctx, o.out(2).sizes, packed.dtype(), 0));
  return out;
}

static Tensors luSolve(OpCall &o) {
  bool old = o.node.target == "aten.lu_solve.default";
  Tensor packed = o.t(old ? "LU_data" : "LU"), given = o.t(old ? "LU_pivots" : "pivots"), b = o.t(old ? "self" : "B");
  if (std::string why = anySizeFault(packed); !why.empty()) return o.fail(why);
  packed.realize();
  const Pivots pivot = pivotsOf(given, packed);
  bool left = o.flag("left", true), adjoint = o.flag("adjoint");
  if (left) return {solveLu(packed, pivot, b, adjoint)};
  // X A = B is A^H X^H = B^H.
  return {transpose(conjugateOf(solveLu(packed, pivot, transpose(conjugateOf(b), -2, -1), !adjoint)), -2, -1)};
}

static Tensors triangularOp(OpCall &o) {
  bool old = o.node.target == "aten.triangular_solve.default";
  Tensor a = o.t(old ? "A" : "self"), b = o.t(old ? "self" : "B");
  if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
  bool upper = o.flag("upper", true), unit = o.flag("unitriangular"), turned = old && o.flag("transpose"),
       left = old || o.flag("left", true);
  Tensor t = turned != !left ? transpose(a, -2, -1) : a;
  if (turned != !left) upper = !upper;
  Tensor x = solveTriangular(t, left ? b : transpose(b, -2, -1), upper, unit);
  if (!left) x = transpose(x, -2, -1);
  if (!old) return {x};
  return {x, broadcastTo(a, o.out(1).sizes)};
}

static Tensors inverseOp(OpCall &o) {
  Tensor a = o.t(o.has("A") ? "A" : "self");
  if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
  const auto &[lu, x] = solved(a, identityMatrix(a, a.size(-2), a.size(-1)));
  Tensors out{x};
  if (o.outCount() > 1) out.push_back(luInfo(lu));
  return out;
}

static void addFactorisations(OpTable &t) {
  t.add("linalg_solve.default linalg_solve_ex.default _linalg_solve_ex.default", solveOp);
  t.add("linalg_inv.default linalg_inv_ex.default inverse.default", inverseOp);
  t.add("linalg_det.default det.default _linalg_det.default slogdet.default linalg_slogdet.default "
        "_linalg_slogdet.default logdet.default",
        determinants);
  t.add("linalg_lu.default linalg_lu_factor.default linalg_lu_factor_ex.default _lu_with_info.default", luOp);
  t.add("lu_unpack.default", luUnpack);
  t.add("lu_solve.default linalg_lu_solve.default", luSolve);
  t.add("linalg_solve_triangular.default triangular_solve.default", triangularOp);
  t.add("linalg_qr.default qr.default", qrOp);
  t.add("linalg_cholesky.default linalg_cholesky_ex.default cholesky.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self");
    if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
    Cholesky c = choleskyOf(a, o.flag("upper"));
    if (o.outCount() > 1) return {c.l, c.info};
    return {c.l};
  });
  t.add("cholesky_solve.default", [](OpCall &o) -> Tensors {
    Tensor l = o.t("input2");
    if (std::string why = anySizeFault(l); !why.empty()) return o.fail(why);
    return {choleskySolve(o.t("self"), l, o.flag("upper"))};
  });
  t.add("cholesky_inverse.default", [](OpCall &o) -> Tensors {
    Tensor l = o.t("self");
    if (std::string why = anySizeFault(l); !why.empty()) return o.fail(why);
    return {choleskySolve(identityMatrix(l, l.size(-2), l.size(-1)), l, o.flag("upper"))};
  });
}

static void addReflectors(OpTable &t) {
  t.add("geqrf.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self");
    if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
    Reflectors h = reflectorsOf(a);
    return {h.packed, h.tau};
  });
  t.add("linalg_householder_product.default orgqr.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t(o.has("input") ? "input" : "self"), tau = o.t(o.has("tau") ? "tau" : "input2");
    if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
    a.realize();
    return {applyReflectors({a, tau}, identityMatrix(a, a.size(-2), a.size(-1)), false)};
  });
  t.add("ormqr.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self"), tau = o.t("input2"), c = o.t("input3");
    if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
    a.realize();
    bool left = o.flag("left", true), turned = o.flag("transpose");
    if (left) return {applyReflectors({a, tau}, c, turned)};
    // C Q = (Q^H C^H)^H.
    return {transpose(conjugateOf(applyReflectors({a, tau}, transpose(conjugateOf(c), -2, -1), !turned)), -2, -1)};
  });
  t.add("linalg_tensorinv.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self");
    Expr n = 1;
    for (int64_t d = 0; d < o.integer("ind", 2); ++d) n = n * a.size(d);
    a = reshape(a, {n, floorDiv(a.numel(), n)});
    if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
    return {reshape(solveMatrix(a, identityMatrix(a, n, n)), o.out().sizes)};
  });
  t.add("linalg_tensorsolve.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self"), b = o.t("other");
    if (o.has("dims") && !o.ints("dims").empty()) {
      std::vector<int> order;
      Dims last = o.ints("dims");
      for (int64_t d = 0; d < a.rank(); ++d)
        if (std::none_of(last.begin(), last.end(), [&](int64_t l) { return (l < 0 ? l + a.rank() : l) == d; }))
          order.push_back(static_cast<int>(d));
      for (int64_t l : last) order.push_back(static_cast<int>(l < 0 ? l + a.rank() : l));
      a = permute(a, order);
    }
    Expr n = b.numel();
    a = reshape(a, {n, floorDiv(a.numel(), n)});
    if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
    return {reshape(solveMatrix(a, reshape(b, {n, Expr(1)})), o.out().sizes)};
  });
  addSpectral(t);
  addEigen(t);
  addLdl(t);
}

void addLinalg(OpTable &t) {
  addFactorisations(t);
  addReflectors(t);
  t.onComplex(OnComplex::Own, "linalg_solve linalg_solve_ex _linalg_solve_ex linalg_inv linalg_inv_ex inverse linalg_det det _linalg_det slogdet linalg_slogdet "
                              "_linalg_slogdet logdet linalg_lu linalg_lu_factor linalg_lu_factor_ex _lu_with_info lu_unpack lu_solve linalg_lu_solve "
                              "linalg_solve_triangular triangular_solve linalg_qr qr linalg_cholesky linalg_cholesky_ex cholesky cholesky_solve cholesky_inverse "
                              "geqrf linalg_householder_product orgqr ormqr linalg_tensorinv linalg_tensorsolve");
}

} // namespace neso::lower
