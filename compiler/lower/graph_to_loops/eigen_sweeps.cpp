// What eigenvalues of real and of complex matrices have in common: the order that rows take first, the sweeps of reflections, vectors of length one.
#include <algorithm>

#include "lower/graph_to_loops/eigen.h"

namespace neso::lower {

/// Takes rows out of what is not placed yet, one a turn, as long as no other of it stands in them (`ofRows`; else: they in no other), and places them
/// from `from` on, each `step` further. Returns where the next would go.
static Tensor placeUnlinked(const Sizes &batch, int64_t n, const LinkFn &isLinked, const Tensor &places, bool ofRows, int64_t from, int64_t step) {
  Lowering &ctx = places.ctx();
  const Sizes row = extended(batch, n);
  auto linked = [=](BodyBuilder &b, const Index &i, Expr e, Expr other) {
    const Val apart = !b.compare(OpKind::Eq, e, other), is = ofRows ? isLinked(b, i, e, other) : isLinked(b, i, other, e);
    return b.cast(apart && is, DType::I64);
  };
  const Tensor links = place(ctx, DType::I64, row), next = integers(ctx, batch, from), found = place(ctx, DType::I64, batch);
  put(ctx.reduce(loops::ReduceKind::Sum, DType::I64, row, {Expr(n)}, [=](BodyBuilder &b, const Index &at, const Index &r) {
        const Index i(at.begin(), at.end() - 1);
        const Val link = linked(b, i, at.back(), r[0]);
        return where(places.at(b, extended(i, r[0])) < 0.0, link, num(link, 0));
      })[0],
      links);
  auto find = [&] {
    put(ctx.reduce(loops::ReduceKind::Max, DType::I64, batch, {Expr(n)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
          const Index at = extended(i, r[0]);
          const Val e = b.index(r[0]);
          return where(places.at(b, at) < 0.0 && eq(links.at(b, at), 0.0), e, num(e, -1));
        })[0],
        found);
  };
  find();
  whileTrue(
      ctx, [&] { return reduceDims(loops::ReduceKind::Any, binary(OpKind::Ge, found, scalarInt(ctx, 0)), {}, false, DType::Bool); },
      [&] {
        ctx.storeMany(row, [=](BodyBuilder &b, const Index &at) -> std::vector<Lowering::Placed> {
          const Index i(at.begin(), at.end() - 1);
          const Val which = found.at(b, i), some = which >= 0.0, link = linked(b, i, at.back(), within(b, which, n)), old = places.at(b, at);
          return {{links, at, links.at(b, at) - where(some, link, num(link, 0))}, {places, at, where(eq(b.index(at.back()), which), next.at(b, i), old)}};
        });
        put(Tensor::lazy(ctx, DType::I64, batch, [=](BodyBuilder &b, const Index &i) { return next.at(b, i) + b.cast(found.at(b, i) >= 0.0, DType::I64) * static_cast<double>(step); }), next);
        find();
      });
  return next;
}

Tensor isolatingOrder(Lowering &ctx, const Sizes &batch, int64_t n, const LinkFn &isLinked) {
  const Sizes row = extended(batch, n);
  const Tensor places = integers(ctx, row, -1), order = place(ctx, DType::I64, row);
  placeUnlinked(batch, n, isLinked, places, true, n - 1, -1);
  const Tensor first = placeUnlinked(batch, n, isLinked, places, false, 0, 1);
  // The others keep their order.
  const Tensor before = ctx.reduce(loops::ReduceKind::Sum, DType::I64, row, {Expr(n)}, [=](BodyBuilder &b, const Index &at, const Index &r) {
    const Val open = places.at(b, extended(Index(at.begin(), at.end() - 1), r[0])) < 0.0;
    return b.cast(open && b.compare(OpKind::Lt, r[0], at.back()), DType::I64);
  })[0];
  ctx.storeMany(row, [=](BodyBuilder &b, const Index &at) -> std::vector<Lowering::Placed> {
    const Index i(at.begin(), at.end() - 1);
    const Val given = places.at(b, at), to = where(given < 0.0, first.at(b, i) + before.at(b, at), given);
    return {{order, extended(i, within(b, to, n)), b.index(at.back())}};
  });
  return order;
}

Tensor inOrder(const Tensor &a, const Tensor &order) {
  const int64_t n = rowsOf(a);
  return Tensor::lazy(a.ctx(), a.dtype(), a.sizes(), [=](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 2);
    return elementOf(b, a, i, within(b, order.at(b, extended(i, at[at.size() - 2])), n), within(b, order.at(b, extended(i, at.back())), n));
  });
}

Tensor movesOf(const Tensor &order, int64_t n) {
  return Tensor::lazy(order.ctx(), DType::F64, extended(order.sizes(), n), [=](BodyBuilder &b, const Index &at) {
    return b.cast(eq(order.at(b, Index(at.begin(), at.end() - 1)), b.index(at.back())), DType::F64);
  });
}

Sweep::Sweep(Lowering &ctx, const Sizes &batch, int64_t n, bool whole) : ctx_(ctx), n_(n), whole_(whole) {
  last = integers(ctx, batch, n - 1), tries = integers(ctx, batch, 0);
  for (Tensor *x : {&row, &steps, &end, &pair}) *x = place(ctx, DType::I64, batch);
}

void Sweep::untilNoneIsLeft(const std::string &line, const std::function<void()> &body) {
  // A sweep shifts, or splits a value off.
  const int64_t most = (kShiftsPerValue + 1) * std::max<int64_t>(n_, 10);
  const Tensor turns = integers(ctx_, {}, 0);
  auto unfinished = [&] { return reduceDims(loops::ReduceKind::Any, binary(OpKind::Gt, last, scalarInt(ctx_, 0)), {}, false, DType::Bool); };
  whileTrue(
      ctx_, [&] { return binary(OpKind::And, unfinished(), binary(OpKind::Lt, turns, scalarInt(ctx_, most))); },
      [&] {
        body();
        put(addNumber(turns, 1), turns);
      });
  ctx_.require(eq(ctx_.read(unfinished()), 0), "the eigenvalues of a matrix are not found within " + std::to_string(most) + " sweeps" + line);
}

void Sweep::forReflections(const std::function<void(Expr turn, const Touched &)> &body) {
  const Tensor works = binary(OpKind::Gt, steps, scalarInt(ctx_, 0));
  auto read = [&](loops::ReduceKind kind, const Tensor &x, int64_t ofIdle) {
    const Tensor some = where(works, x, scalarInt(ctx_, ofIdle));
    const Expr e = ctx_.read(reduceDims(kind, some, {}, false, DType::I64));
    if (e.isSymbol()) ctx_.bound(e.symbol(), {0, n_});
    return e;
  };
  using loops::ReduceKind;
  const Expr count = read(ReduceKind::Max, steps, 0), least = read(ReduceKind::Min, row, n_), bottom = read(ReduceKind::Max, end, 0);
  const Expr most = product(row.sizes()).isConst(1) ? least : read(ReduceKind::Max, row, 0);
  forTurns(ctx_, count, [&](Expr turn) {
    // Left of the reflected rows' first element below the diagonal, and below the reflected columns' last one, is nothing.
    const Expr firstColumn = max(least + turn - 1, 0), firstRow = whole_ ? Expr(0) : least;
    const Expr endOfColumns = whole_ ? Expr(n_) : bottom + 1, endOfRows = min(bottom + 1, most + turn + 4);
    body(turn, {firstColumn, endOfColumns - firstColumn, firstRow, endOfRows - firstRow});
  });
}

Parts normalised(const Parts &v, const Tensor &complex) {
  const Tensor squares = add(mul(v.re, v.re), mul(v.im, v.im)).realize();
  const Tensor length = unary(sum(squares, {-2}, false, DType::F64), OpKind::Sqrt).realize();
  const Tensor largest = argExtreme(true, squares, -2, false).realize();
  const int64_t n = rowsOf(v.re);
  auto make = [&](bool re) {
    return Tensor::lazy(v.re.ctx(), DType::F64, v.re.sizes(), [=](BodyBuilder &b, const Index &at) {
      const Index i(at.begin(), at.end() - 2), column = extended(i, at.back());
      const Expr r = b.indirect(largest.at(b, column), n, false, false);
      const Complex x{v.re.at(b, at), v.im.at(b, at)}, big{elementOf(b, v.re, i, r, at.back()), elementOf(b, v.im, i, r, at.back())};
      const Val size = un(OpKind::Sqrt, big.re * big.re + big.im * big.im), whole = length.at(b, column);
      const Complex turned = x * Complex{big.re / size, -big.im / size};
      const Complex out = where(eq(complex.at(b, column), 0.0), x, turned);
      return (re ? out.re : out.im) / whole;
    });
  };
  return {make(true), make(false)};
}

} // namespace neso::lower
