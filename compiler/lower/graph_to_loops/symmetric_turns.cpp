// Reflections make a matrix tridiagonal (LAPACK's hetrd: Golub and Van Loan, Matrix Computations, 8.3.1; the products of a block of columns are taken
// from the matrix at once). Values alone are halved in by counting (8.4.1), with vectors divided and conquered (divide_conquer.cpp).
#include "lower/graph_to_loops/symmetric_turns.h"

#include <cmath>
#include <cstring>

#include "lower/graph_to_loops/factor_turns.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

namespace {

/// Halvings of an interval of twice the largest value, until its width is below the last bit of that value.
constexpr int64_t kHalvings = 56;
/// What a count divides by is no smaller.
constexpr double kLeastPivot = 0x1p-500;

Index outer(const Index &i) { return Index(i.begin(), i.end() - 1); }

/// a = Q T Q^H: T's diagonal d and what is beside it, e [..., K] of which n elements are T's; the vectors of Q's reflections as rows [..., K, n].
struct Tridiagonal {
  Tensor d, e, rows, tau;
};

Tridiagonal tridiagonalOf(const Tensor &a0) {
  Lowering &ctx = a0.ctx();
  const Expr n = a0.size(-1), whole = ceilDiv(n, kFactorBlock) * kFactorBlock;
  const DType t = a0.dtype();
  const Sizes batch = batchOf(a0), row = extended(batch, n), block = extended(extended(batch, kFactorBlock), n);
  const Tensor a = carry(a0);
  Tridiagonal out{carry(full(ctx, extended(batch, whole), DType::F64, 0)), carry(full(ctx, extended(batch, whole), DType::F64, 0)),
                  carry(full(ctx, extended(extended(batch, whole), n), t, 0)), carry(full(ctx, extended(batch, whole), t, 0))};
  forTurns(ctx, floorDiv(whole, kFactorBlock), [&](Expr turn) {
    const Expr first = turn * kFactorBlock;
    // The matrix is a - V W^H - W V^H for the columns so far.
    const Tensor v = carry(full(ctx, block, t, 0)), w = carry(full(ctx, block, t, 0));
    forTurns(ctx, kFactorBlock, [&](Expr k) {
      const Expr j = first + k, at = min(j, n - 1);
      const Tensor taken = sumOfNumbers(ctx, t, row, kFactorBlock, [=](BodyBuilder &b, const Index &i, Expr c) {
        return numberOf(b, v, outer(i), c, i.back()) * conjugate(numberOf(b, w, outer(i), c, at)) + numberOf(b, w, outer(i), c, i.back()) * conjugate(numberOf(b, v, outer(i), c, at));
      });
      const Tensor column = numbers(ctx, t, row, [=](BodyBuilder &b, const Index &i) { return conjugate(numberOf(b, a, outer(i), at, i.back())) - numberAt(b, taken, i); }).realize();
      // Also of the last column but one: the only element beside the diagonal of a complex matrix becomes real.
      const Reflector h = reflectorOf([=](BodyBuilder &b, const Index &i) { return numberAt(b, column, i); }, ctx, t, batch, n, j + 1, n);
      auto element = [&](const std::function<Val(BodyBuilder &, const Index &)> &fn, Expr end) {
        return Tensor::lazy(ctx, DType::F64, batch, [=](BodyBuilder &b, const Index &i) {
          const Val x = fn(b, i);
          return where(b.compare(OpKind::Lt, j, end), x, num(x, 0));
        });
      };
      putAt(element([=](BodyBuilder &b, const Index &i) { return numberAt(b, column, extended(i, at)).re; }, n), out.d, -1, j);
      putAt(element([=](BodyBuilder &b, const Index &i) { return h.beta.at(b, i); }, n - 1), out.e, -1, j);
      putAt(h.tau, out.tau, -1, j);
      putAt(h.v, out.rows, -2, j);
      putAt(h.v, v, -2, k);
      auto along = [&](const Tensor &rows) {
        return sumOfNumbers(ctx, t, extended(batch, kFactorBlock), n, [=](BodyBuilder &b, const Index &i, Expr r) {
          return conjugate(numberOf(b, rows, outer(i), i.back(), r)) * numberAt(b, h.v, extended(outer(i), r));
        });
      };
      const Tensor alongV = along(v), alongW = along(w);
      const Tensor product = sumOfNumbers(ctx, t, row, n, [=](BodyBuilder &b, const Index &i, Expr r) {
        return numberOf(b, a, outer(i), i.back(), r) * numberAt(b, h.v, extended(outer(i), r));
      });
      const Tensor less = sumOfNumbers(ctx, t, row, kFactorBlock, [=](BodyBuilder &b, const Index &i, Expr c) {
        return numberOf(b, v, outer(i), c, i.back()) * numberAt(b, alongW, extended(outer(i), c)) + numberOf(b, w, outer(i), c, i.back()) * numberAt(b, alongV, extended(outer(i), c));
      });
      const Tensor p = numbers(ctx, t, row, [=](BodyBuilder &b, const Index &i) { return (numberAt(b, product, i) - numberAt(b, less, i)) * numberAt(b, h.tau, outer(i)); }).realize();
      const Tensor dot = sumOfNumbers(ctx, t, batch, n, [=](BodyBuilder &b, const Index &i, Expr r) {
        return conjugate(numberAt(b, p, extended(i, r))) * numberAt(b, h.v, extended(i, r));
      });
      putAt(numbers(ctx, t, row,
                    [=](BodyBuilder &b, const Index &i) {
                      const Complex half = numberAt(b, h.tau, outer(i)) * numberAt(b, dot, outer(i)) * num(numberAt(b, p, i).re, 0.5);
                      return numberAt(b, p, i) - half * numberAt(b, h.v, i);
                    }),
            w, -2, k);
    });
    const Tensor left = concat({v, w}, v.rank() - 2), right = conjugateOf(concat({w, v}, v.rank() - 2));
    const Tensor product = source(matmul(transpose(left, -2, -1), right));
    putAll({numbers(ctx, t, a.sizes(), [=](BodyBuilder &b, const Index &i) { return numberAt(b, a, i) - numberAt(b, product, i); })}, {a});
  });
  return out;
}

/// All values at once: each is halved in between bounds that no value passes, and a count of those below the middle goes along the diagonal.
Tensor valuesOf(const Tensor &d, const Tensor &e, Expr n) {
  Lowering &ctx = d.ctx();
  const Sizes batch(d.sizes().begin(), d.sizes().end() - 1), sizes = extended(batch, n);
  auto size = [](const Tensor &x) { return amax(map(x, [](Val v) { return un(OpKind::Abs, v); }), {-1}, false); };
  const Tensor largest = size(d), beside = size(e);
  const Tensor bound = map(add(largest, mulNumber(beside, 2)), [](Val v) { return v * (1 + 0x1p-40) + 0x1p-900; }).realize();
  auto bounds = [&](double sign) {
    return carry(Tensor::lazy(ctx, DType::F64, sizes, [=](BodyBuilder &b, const Index &i) { return bound.at(b, outer(i)) * sign; }));
  };
  const Tensor lo = bounds(-1), hi = bounds(1), pivot = place(ctx, DType::F64, sizes), count = place(ctx, DType::F64, sizes);
  forTurns(ctx, kHalvings, [&](Expr) {
    auto middle = [=](BodyBuilder &b, const Index &i) { return (lo.at(b, i) + hi.at(b, i)) * 0.5; };
    ctx.storeMany(sizes, [&](BodyBuilder &b, const Index &i) {
      const Val q = d.at(b, extended(outer(i), 0)) - middle(b, i);
      return std::vector<Lowering::Placed>{{pivot, i, q}, {count, i, where(q < 0.0, num(q, 1), num(q, 0))}};
    });
    forTurns(ctx, n - 1, [&](Expr k) {
      ctx.storeMany(sizes, [&](BodyBuilder &b, const Index &i) {
        const Val above = e.at(b, extended(outer(i), k)), last = pivot.at(b, i);
        const Val by = where(un(OpKind::Abs, last) < kLeastPivot, num(last, -kLeastPivot), last);
        const Val q = d.at(b, extended(outer(i), k + 1)) - middle(b, i) - above * above / by;
        return std::vector<Lowering::Placed>{{pivot, i, q}, {count, i, count.at(b, i) + where(q < 0.0, num(q, 1), num(q, 0))}};
      });
    });
    ctx.storeMany(sizes, [&](BodyBuilder &b, const Index &i) {
      const Val l = lo.at(b, i), h = hi.at(b, i), m = (l + h) * 0.5, below = count.at(b, i) > b.cast(b.index(i.back()), DType::F64);
      return std::vector<Lowering::Placed>{{lo, i, where(below, l, m)}, {hi, i, where(below, m, h)}};
    });
  });
  return map(add(lo, hi), [](Val v) { return v * 0.5; });
}

} // namespace

HermitianEigen hermitianInTurns(const Tensor &a, bool vectors) {
  const Expr n = a.size(-1);
  const Tridiagonal t = tridiagonalOf(a);
  if (!vectors) return {valuesOf(t.d, t.e, n), {}};
  const TridiagonalEigen of = divideAndConquer(slice(t.d, -1, 0, n), slice(t.e, -1, 0, n));
  return {of.values, applyVectors(t.rows, t.tau, cast(transpose(of.rows, -2, -1), a.dtype()), false)};
}

/// By Halley's iteration with weights that follow a bound of the smallest singular value (Nakatsukasa, Bai, Gygi: Optimizing Halley's iteration for
/// computing the matrix polar decomposition, SIAM J. Matrix Anal. Appl. 31, 2010): without inverses, by QR factorisations of x above an identity.
Tensor polarFactor(const Tensor &x0) {
  constexpr double kSmallest = 1e-17;
  constexpr int kLimit = 9;
  Lowering &ctx = x0.ctx();
  const Expr n = x0.size(-1);
  const DType t = x0.dtype();
  // How much of x and of Q1 Q2^H a turn takes, and by what x is multiplied above the identity.
  std::vector<double> weights;
  for (double low = kSmallest; weights.size() < 3 * kLimit && 1 - low > 0x1p-52;) {
    const double square = low * low, d = std::cbrt(4 * (1 - square) / (square * square)), root = std::sqrt(1 + d);
    const double a = root + std::sqrt(8 - 4 * d + 8 * (2 - square) / (square * root)) / 2, b = (a - 1) * (a - 1) / 4, c = a + b - 1;
    weights.insert(weights.end(), {b / c, (a - b / c) / std::sqrt(c), std::sqrt(c)});
    low = std::min(1.0, low * (a + b * square) / (1 + c * square));
  }
  const int64_t turns = static_cast<int64_t>(weights.size() / 3);
  std::vector<uint8_t> bytes(weights.size() * sizeof(double));
  std::memcpy(bytes.data(), weights.data(), bytes.size());
  const Tensor table = ctx.addConstant(DType::F64, {Expr(turns), Expr(3)}, std::move(bytes));
  const Tensor given = source(x0);
  const Tensor squares = ctx.reduce(loops::ReduceKind::Sum, DType::F64, batchOf(x0), {n, n}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    return squareOf(numberOf(b, given, i, r[0], r[1]));
  })[0];
  const Tensor x = carry(numbers(ctx, t, x0.sizes(), [=](BodyBuilder &b, const Index &i) {
    const Val whole = un(OpKind::Sqrt, squares.at(b, Index(i.begin(), i.end() - 2)));
    return numberAt(b, given, i) / where(eq(whole, 0.0), num(whole, 1), whole);
  }));
  forTurns(ctx, turns, [&](Expr turn) {
    auto weight = [=](BodyBuilder &b, int k) { return table.at(b, {turn, Expr(k)}); };
    const Tensor stacked = numberMatrixOf(ctx, t, batchOf(x), n * 2, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      const Complex v = numberOf(b, x, i, min(r, n - 1), c) * weight(b, 2);
      return where(b.compare(OpKind::Lt, r, n), v, where(b.compare(OpKind::Eq, r - n, c), Complex{num(v.re, 1), {}}, Complex{num(v.re, 0), {}}));
    });
    const Tensor q = applyInTurns(reflectorsInTurns(stacked), identityMatrix(stacked, n * 2, n), false);
    const Tensor product = source(matmul(slice(q, -2, 0, n), transpose(conjugateOf(slice(q, -2, n, n)), -2, -1)));
    putAll({numbers(ctx, t, x.sizes(), [=](BodyBuilder &b, const Index &i) { return numberAt(b, x, i) * weight(b, 0) + numberAt(b, product, i) * weight(b, 1); })}, {x});
  });
  return x;
}

} // namespace neso::lower
