#include "lower/graph_to_loops/factor_turns.h"

#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

/// x is stored at number `at` of dim `dim` of `all`.
static void putAt(const Tensor &x, const Tensor &all, int64_t dim, Expr at) {
  auto one = [&](const Tensor &part, const Tensor &whole) {
    Strided to = *whole.asStrided();
    const auto stride = to.strides.begin() + (dim < 0 ? dim + whole.rank() : dim);
    to.offset = to.offset + at * *stride;
    to.strides.erase(stride);
    whole.ctx().store(part, to);
  };
  if (!all.isComplex()) return one(x, all);
  one(x.real(), all.real());
  one(x.imag(), all.imag());
}

Tensor triangularInTurns(const Tensor &t0, const Tensor &b, bool upper, bool unit) {
  Lowering &ctx = t0.ctx();
  const Tensor t = source(t0), x = carry(b);
  const Expr n = t.size(-1);
  forTurns(ctx, n, [&](Expr turn) {
    const Expr j = upper ? n - 1 - turn : turn;
    const Sizes sizes = extended(batchOf(x), x.size(-1));
    // Of the rows of x, those that are solved already.
    const Tensor known = sumOfNumbers(ctx, x.dtype(), sizes, n, [=](BodyBuilder &body, const Index &i, Expr r) {
      const Index batch(i.begin(), i.end() - 1);
      const Complex product = numberOf(body, t, batch, j, r) * numberOf(body, x, batch, r, i.back());
      return where(body.compare(upper ? OpKind::Gt : OpKind::Lt, r, j), product, Complex{num(product.re, 0), {}});
    });
    const Tensor row = numbers(ctx, x.dtype(), sizes, [=](BodyBuilder &body, const Index &i) {
      const Index batch(i.begin(), i.end() - 1);
      const Complex rest = numberOf(body, x, batch, j, i.back()) - numberAt(body, known, i);
      return unit ? rest : rest / numberOf(body, t, batch, j, j);
    });
    putAt(row.realize(), x, -2, j);
  });
  return x;
}

LuInTurns luInTurns(const Tensor &a0, bool pivoting) {
  Lowering &ctx = a0.ctx();
  const Tensor a = carry(a0);
  const Expr m = a.size(-2), n = a.size(-1), count = min(m, n);
  // Without changes of places each row keeps its own.
  const Sizes numbered = extended(batchOf(a), count);
  const Tensor pivots = carry(iota(ctx, numbered, static_cast<int64_t>(numbered.size()) - 1));
  forTurns(ctx, count, [&](Expr j) {
    Tensor p;
    if (pivoting) {
      const Tensor column = Tensor::lazy(ctx, toReal(a.dtype()), extended(batchOf(a), m), [=](BodyBuilder &b, const Index &i) {
        const Val size = sizeOf(numberOf(b, a, Index(i.begin(), i.end() - 1), i.back(), j));
        return where(b.compare(OpKind::Ge, i.back(), j), size, num(size, -1));
      });
      p = argExtreme(true, column, -1, false).realize();
      putAt(p, pivots, -1, j);
    }
    // Rows j and p change places, and the column's multiples of row j leave the rows below.
    const Tensor next = numberMatrixOf(ctx, a.dtype(), batchOf(a), m, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      const Val isJ = b.compare(OpKind::Eq, r, j);
      Expr from = r, top = j;
      if (pivoting) {
        const Val here = b.index(r), pivot = p.at(b, i);
        from = b.indirect(where(isJ, pivot, where(eq(here, pivot), b.index(j), here)), m, false, false);
        top = b.indirect(pivot, m, false, false);
      }
      const Complex v = numberOf(b, a, i, from, c), head = numberOf(b, a, i, top, j), first = numberOf(b, a, i, from, j);
      // A zero pivot leaves its column as it is.
      const Complex l = where(isZero(head), first, first / head);
      const Complex reduced = where(b.compare(OpKind::Eq, c, j), l, v - l * numberOf(b, a, i, top, c));
      return where(b.compare(OpKind::Gt, r, j) && b.compare(OpKind::Ge, c, j), reduced, v);
    });
    put(next, a);
  });
  return {a, pivots};
}

Tensor orderInTurns(const Tensor &pivots0, Expr rows) {
  Lowering &ctx = pivots0.ctx();
  const Tensor pivots = source(pivots0);
  const Sizes batch(pivots.sizes().begin(), pivots.sizes().end() - 1), sizes = extended(batch, rows);
  const Tensor order = carry(iota(ctx, sizes, static_cast<int64_t>(sizes.size()) - 1));
  forTurns(ctx, pivots.size(-1), [&](Expr j) {
    const Tensor next = Tensor::lazy(ctx, DType::I64, sizes, [=](BodyBuilder &b, const Index &i) {
      const Index in(i.begin(), i.end() - 1);
      const Val here = b.index(i.back()), pivot = pivots.at(b, extended(in, j));
      const Val from = where(b.compare(OpKind::Eq, i.back(), j), pivot, where(eq(here, pivot), b.index(j), here));
      return order.at(b, extended(in, b.indirect(from, rows, false, false)));
    });
    put(next.realize(), order);
  });
  return order;
}

CholeskyInTurns choleskyInTurns(const Tensor &a0) {
  Lowering &ctx = a0.ctx();
  const Tensor a = source(a0);
  const Expr n = a.size(-1);
  const DType t = a.dtype();
  // Columns that are not reached yet are zeros: they add nothing to the sums.
  const Tensor l = carry(full(ctx, a.sizes(), t, 0)), pivots = carry(full(ctx, extended(batchOf(a), n), toReal(t), 0));
  forTurns(ctx, n, [&](Expr j) {
    const Sizes sizes = extended(batchOf(a), n);
    const Tensor known = sumOfNumbers(ctx, t, sizes, n, [=](BodyBuilder &b, const Index &i, Expr k) {
      const Index batch(i.begin(), i.end() - 1);
      return numberOf(b, l, batch, i.back(), k) * conjugate(numberOf(b, l, batch, j, k));
    });
    const Tensor column = numbers(ctx, t, sizes, [=](BodyBuilder &b, const Index &i) {
                            return numberOf(b, a, Index(i.begin(), i.end() - 1), i.back(), j) - numberAt(b, known, i);
                          }).realize();
    const Tensor pivot = Tensor::lazy(ctx, toReal(t), batchOf(a), [=](BodyBuilder &b, const Index &i) { return numberAt(b, column, extended(i, j)).re; }).realize();
    putAt(pivot, pivots, -1, j);
    const Tensor done = numbers(ctx, t, sizes, [=](BodyBuilder &b, const Index &i) {
      const Val root = un(OpKind::Sqrt, pivot.at(b, Index(i.begin(), i.end() - 1))), part = num(root, 1) / root;
      const Complex v = numberAt(b, column, i), none{num(root, 0), {}};
      return where(b.compare(OpKind::Eq, i.back(), j), Complex{root, {}}, where(b.compare(OpKind::Gt, i.back(), j), v * part, none));
    });
    putAt(done.realize(), l, -1, j);
  });
  return {l, pivots};
}

} // namespace neso::lower
