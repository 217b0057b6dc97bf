// Eigenvalues of symmetric matrices without their vectors: reflections make the matrix tridiagonal, one column a step, and
// each eigenvalue is then halved in by counting how many lie below a number (the signs of the determinants of T - x's leading
// blocks, Sturm's sequence). All values of all matrices are found side by side. Everything is computed in float64: the error is a few
// 2^-52 of the largest value.
#include <cmath>

#include "lower/graph_to_loops/linalg.h"

namespace neso::lower {

namespace {

/// Halvings of an interval of twice the largest value, until its width is below the last bit of that value.
constexpr int kHalvingsF32 = 30, kHalvingsF64 = 56;

/// No e is smaller: far below what the values show, and a determinant is then never 0 because the two before it are.
constexpr double kLeastSquare = 0x1p-120;

/// d [..., n] and the squares of e [..., n], of which the first is 0: e[k] stands between d[k - 1] and d[k].
struct Tridiagonal {
  Tensor diagonal, squares;
};

Sizes rowsOfBatch(const Tensor &a) {
  Sizes sizes = batchOf(a);
  sizes.push_back(rowsOf(a));
  return sizes;
}

/// A reflection of what is below the diagonal of one column: I - v v^T / h maps it to its first element, -sign * length. The column is
/// read as the row that it is equal to, which lies side by side in memory.
struct Reflection {
  Step step;
  Tensor a, tail; // the sum of squares below the diagonal [...]
  int64_t n;

  Val element(BodyBuilder &b, const Index &batch, Expr r) const { return elementOf(b, a, batch, step.index(b, n), r); }
  Val length(BodyBuilder &b, const Index &batch) const { return un(OpKind::Sqrt, tail.at(b, batch)); }
  /// Of v; zero down to the diagonal.
  Val vector(BodyBuilder &b, const Index &batch, Expr r) const {
    const Val x = element(b, batch, r), longer = bin(OpKind::CopySign, length(b, batch), x);
    const Val below = where(eq(b.index(r), step.value(b) + 1.0), x + longer, x);
    return where(step.is(OpKind::Gt, b, r), below, num(x, 0));
  }
  /// 1 / h, 0 where there is nothing to reflect.
  Val scale(BodyBuilder &b, const Index &batch) const {
    const Val l = length(b, batch), first = element(b, batch, b.indirect(step.value(b) + 1.0, n, false, false));
    const Val h = l * (l + un(OpKind::Abs, first));
    return where(tail.at(b, batch) < kNoSquare, num(h, 0), 1.0 / h);
  }
};

Tensor sumOver(Lowering &ctx, const Sizes &sizes, int64_t n, const ReduceFn &fn) {
  return ctx.reduce(loops::ReduceKind::Sum, DType::F64, sizes, {Expr(n)}, fn)[0];
}

/// a with the column of the step reflected, from both sides.
Tensor reflected(const Tensor &a, int64_t column) {
  Lowering &ctx = a.ctx();
  const int64_t n = rowsOf(a);
  Reflection f{Step(ctx, column), a, {}, n};
  f.tail = sumOver(ctx, batchOf(a), n, [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Val x = f.element(b, i, r[0]);
    return where(f.step.is(OpKind::Gt, b, r[0]), x * x, num(x, 0));
  });
  const Tensor v = Tensor::lazy(ctx, DType::F64, rowsOfBatch(a), [=](BodyBuilder &b, const Index &i) {
                     return f.vector(b, Index(i.begin(), i.end() - 1), i.back());
                   }).realize();
  // A v / h, less half of its part along v.
  const Tensor p = sumOver(ctx, rowsOfBatch(a), n, [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Index batch(i.begin(), i.end() - 1);
    return elementOf(b, a, batch, i.back(), r[0]) * v.at(b, extended(batch, r[0]));
  });
  const Tensor along = sumOver(ctx, batchOf(a), n, [=](BodyBuilder &b, const Index &i, const Index &r) {
    return p.at(b, extended(i, r[0])) * v.at(b, extended(i, r[0]));
  });
  const Tensor w = Tensor::lazy(ctx, DType::F64, rowsOfBatch(a), [=](BodyBuilder &b, const Index &i) {
                     const Index batch(i.begin(), i.end() - 1);
                     const Val scale = f.scale(b, batch), half = along.at(b, batch) * scale * 0.5;
                     return (p.at(b, i) - v.at(b, i) * half) * scale;
                   }).realize();
  return matrixOf(ctx, DType::F64, batchOf(a), n, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    const Index row = extended(i, r), column = extended(i, c);
    return elementOf(b, a, i, r, c) - (v.at(b, row) * w.at(b, column) + w.at(b, row) * v.at(b, column));
  });
}

Tridiagonal tridiagonalOf(Tensor a) {
  const int64_t n = rowsOf(a);
  for (int64_t column = 0; column + 2 < n; ++column) a = reflected(a, column);
  auto row = [&](const ElementFn &fn) { return Tensor::lazy(a.ctx(), DType::F64, rowsOfBatch(a), fn).realize(); };
  Tensor diagonal = row([a](BodyBuilder &b, const Index &i) {
    return elementOf(b, a, Index(i.begin(), i.end() - 1), i.back(), i.back());
  });
  Tensor squares = row([a](BodyBuilder &b, const Index &i) {
    const Val at = b.index(i.back());
    const Expr before = b.indirect(vmax(at - 1.0, num(at, 0)), rowsOf(a), false, false);
    const Val e = elementOf(b, a, Index(i.begin(), i.end() - 1), i.back(), before);
    return where(eq(at, 0.0), num(e, 0), vmax(e * e, num(e, kLeastSquare)));
  });
  return {diagonal, squares};
}

/// How many eigenvalues are below x: how often the sign changes along the determinants of T - x's leading blocks. A determinant of 0
/// counts once, whatever sign it is given, as the next one has the opposite sign of the one before it.
Val countBelow(BodyBuilder &b, const Tridiagonal &t, const Index &batch, Val x, int64_t n) {
  // Four steps make the larger of two neighbours smaller by at most 2^-500 (of which a determinant of 0 costs 2^-120), all of them larger by at
  // most 2^512 (64 rows of elements up to 1).
  constexpr int64_t kStepsBetweenScalings = 4;
  constexpr double kSmall = 0x1p-300, kScale = 0x1p600;
  Val before = num(x, 1), now = t.diagonal.at(b, extended(batch, 0)) - x, isNegative = now < 0.0;
  Val count = where(isNegative, num(x, 1), num(x, 0));
  for (int64_t k = 1; k < n; ++k) {
    const Val next = (t.diagonal.at(b, extended(batch, k)) - x) * now - t.squares.at(b, extended(batch, k)) * before, wasNegative = isNegative;
    before = now, now = next, isNegative = now < 0.0;
    count = count + where(ne(isNegative, wasNegative), num(x, 1), num(x, 0));
    if (k % kStepsBetweenScalings) continue;
    const Val larger = vmax(un(OpKind::Abs, now), un(OpKind::Abs, before)), scale = where(larger < kSmall, num(x, kScale), num(x, 1));
    before = before * scale, now = now * scale;
  }
  return count;
}

} // namespace

Tensor symmetricValues(const Tensor &a0, DType t) {
  Lowering &ctx = a0.ctx();
  const int64_t n = rowsOf(a0);
  // Of the matrix divided by its largest element: no square overflows or vanishes.
  Tensor magnitude = amax(map(a0, [](Val v) { return un(OpKind::Abs, v); }), {-2, -1}, false);
  magnitude.realize();
  auto factor = [magnitude](BodyBuilder &b, const Index &batch) {
    Val m = magnitude.at(b, batch);
    return where(eq(m, 0.0), num(m, 1), m);
  };
  const Tridiagonal d =
      tridiagonalOf(matrixOf(ctx, DType::F64, batchOf(a0), n, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
        return elementOf(b, a0, i, r, c) / factor(b, i);
      }));
  // No value is larger than the largest sum of a row's elements, which are at most 1.
  const Sizes sizes = rowsOfBatch(a0);
  const double bound = static_cast<double>(n) + 1;
  Tensor lo = full(ctx, sizes, DType::F64, -bound), hi = full(ctx, sizes, DType::F64, bound);
  int halvings = t == DType::F32 ? kHalvingsF32 : kHalvingsF64;
  for (double width = bound; width > 1; width /= 2) ++halvings;
  for (int k = 0; k < halvings; ++k) {
    Tensor from = lo, to = hi;
    lo = Tensor::strided(ctx, DType::F64, sizes, ctx.allocate(DType::F64, sizes));
    hi = Tensor::strided(ctx, DType::F64, sizes, ctx.allocate(DType::F64, sizes));
    ctx.storeMany(sizes, [&](BodyBuilder &b, const Index &i) {
      const Index batch(i.begin(), i.end() - 1);
      const Val l = from.at(b, i), h = to.at(b, i), middle = (l + h) * 0.5;
      const Val below = countBelow(b, d, batch, middle, n) > b.cast(b.index(i.back()), DType::F64);
      return std::vector<Lowering::Placed>{{lo, i, where(below, l, middle)}, {hi, i, where(below, middle, h)}};
    });
  }
  return Tensor::lazy(ctx, DType::F64, sizes, [=](BodyBuilder &b, const Index &i) {
    return (lo.at(b, i) + hi.at(b, i)) * 0.5 * factor(b, Index(i.begin(), i.end() - 1));
  });
}

} // namespace neso::lower
