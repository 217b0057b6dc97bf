// Eigenvalues and vectors of tridiagonal matrices by dividing and conquering (Gu and Eisenstat: A divide-and-conquer algorithm for the symmetric
// tridiagonal eigenproblem, SIAM J. Matrix Anal. Appl. 16, 1995; LAPACK's dstedc).
//
// A matrix is two halves beside each other and rho z z^T. What is known of the halves makes it D + rho z z^T; its values are the roots of a rational
// function with a pole at each element of D, its vectors come from a z that has exactly those roots, so that they are orthogonal. Where elements of D are
// equal to rounding, or of z vanish, a value of a half is one of the whole (deflation). All pairs of halves of a size are joined together; a
// power of two of rows makes them equally large, with rows that are joined to nothing beside those of the matrix.
#include <algorithm>
#include <numbers>

#include "lower/graph_to_loops/symmetric_turns.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

namespace {

Index outer(const Index &i) { return Index(i.begin(), i.end() - 1); }
Val sizeOf(Val v) { return un(OpKind::Abs, v); }

/// As many halvings, of the exponent first, find a root to its last bit.
constexpr int64_t kOfExponent = 8, kHalvings = kOfExponent + 54;
/// No root is nearer to its pole, in distances between poles.
constexpr double kNearest = 0x1p-140;

/// The problems D + rho z z^T of all pairs of halves: [..., pairs, s] with D ascending.
class Join {
public:
  /// d [..., 2 pairs, h] and rows [..., 2 pairs, h, h] of the halves; beside [..., pairs]: the element that stands between them.
  Join(const Tensor &d, const Tensor &rows, const Tensor &beside);
  void deflate();
  void solve();
  Tensor values() const;
  Tensor vectors() const;

private:
  Val at(BodyBuilder &b, const Tensor &x, const Index &pair, Expr k) const { return x.at(b, extended(pair, k)); }
  Val isLive(BodyBuilder &b, const Index &pair, Expr k) const { return at(b, live_, pair, k) > 0.0; }
  Expr inside(BodyBuilder &b, Val k) const { return b.indirect(vmin(vmax(k, num(k, 0)), num(k, static_cast<double>(s_ - 1))), s_, false, false); }
  Tensor fresh(DType t, const Sizes &sizes) { return Tensor::strided(ctx_, t, sizes, ctx_.allocate(t, sizes)); }
  Tensor along(const ElementFn &fn, DType t = DType::F64) { return Tensor::lazy(ctx_, t, sizes_, fn).realize(); }
  /// 1 + rho sum of z_j^2 / (d_j - d_base - x) for each root.
  Tensor secular(const Tensor &ofBase, const ElementFn &x);
  /// d_k - root j.
  Val distance(BodyBuilder &b, const Index &pair, Expr k, Expr j) const { return (at(b, d_, pair, k) - at(b, base_, pair, j)) - at(b, offset_, pair, j); }

  Lowering &ctx_;
  int64_t s_;
  Sizes pairs_, sizes_;
  Tensor d_, z_, rho_, tolerance_, rows_;
  Tensor live_;          // I64: 0 where a value of a half is one of the whole
  Tensor next_;          // I64: the next live place, s where there is none
  Tensor base_, offset_; // the pole that a root is next to, and how far it is from there
};

Join::Join(const Tensor &halves, const Tensor &rows, const Tensor &beside) : ctx_(halves.ctx()) {
  const int64_t h = halves.size(-1).constValue();
  s_ = 2 * h;
  pairs_ = beside.sizes(), sizes_ = extended(pairs_, s_);
  const Tensor d = reshape(halves, sizes_);
  Sizes cut = extended(extended(extended(pairs_, 2), h), h);
  const Tensor vectors = source(reshape(rows, cut));
  auto vector = [=](BodyBuilder &b, const Index &pair, Expr half, Expr k, Expr component) { return vectors.at(b, extended(extended(extended(pair, half), k), component)); };
  auto [values, order] = ctx_.sort(d, d.rank() - 1, false);
  d_ = carry(values);
  rho_ = map(beside, [](Val v) { return sizeOf(v) * 2.0; }).realize();
  const Tensor places = order;
  z_ = carry(Tensor::lazy(ctx_, DType::F64, sizes_, [=](BodyBuilder &b, const Index &i) {
    const Val from = places.at(b, i), second = from >= static_cast<double>(h), e = beside.at(b, outer(i));
    const Expr half = b.indirect(b.cast(second, DType::I64), 2, false, false), k = b.indirect(where(second, from - static_cast<double>(h), from), h, false, false);
    const Val end = where(second, vector(b, outer(i), half, k, 0), vector(b, outer(i), half, k, h - 1));
    return where(second && e < 0.0, -end, end) * std::numbers::sqrt2 * 0.5;
  }));
  rows_ = carry(matrixOf(ctx_, DType::F64, pairs_, s_, s_, [=](BodyBuilder &b, const Index &pair, Expr i, Expr r) {
    const Val from = places.at(b, extended(pair, i)), second = from >= static_cast<double>(h);
    const Expr half = b.indirect(b.cast(second, DType::I64), 2, false, false), k = b.indirect(where(second, from - static_cast<double>(h), from), h, false, false);
    const Val below = b.compare(OpKind::Ge, r, h), x = vector(b, pair, half, k, mod(r, h));
    return where((second && below) || !(second || below), x, num(x, 0));
  }));
  auto largest = [](const Tensor &x) { return amax(map(x, sizeOf), {-1}, false); };
  tolerance_ = mulNumber(binary(OpKind::Max, largest(d_), largest(z_)), 8 * 0x1p-52).realize();
  live_ = carry(along([this](BodyBuilder &b, const Index &i) { return b.cast(rho_.at(b, outer(i)) * sizeOf(z_.at(b, i)) > tolerance_.at(b, outer(i)), DType::I64); }, DType::I64));
}

/// Two neighbours that are equal to rounding: a rotation of their vectors leaves z at the second one alone.
void Join::deflate() {
  const Tensor last = carry(fullInt(ctx_, pairs_, DType::I64, -1)), c = fresh(DType::F64, pairs_), s = fresh(DType::F64, pairs_), place = fresh(DType::I64, pairs_);
  const Tensor now[6] = {fresh(DType::F64, pairs_), fresh(DType::F64, pairs_), fresh(DType::F64, pairs_), fresh(DType::F64, pairs_), fresh(DType::I64, pairs_), fresh(DType::I64, pairs_)};
  forTurns(ctx_, s_, [&](Expr j) {
    ctx_.storeMany(pairs_, [&](BodyBuilder &b, const Index &i) {
      const Val before = last.at(b, i), mine = live_.at(b, extended(i, j)), isMine = mine > 0.0;
      const Expr p = inside(b, before);
      const Val x = at(b, z_, i, p), y = at(b, z_, i, j), dx = at(b, d_, i, p), dy = at(b, d_, i, j);
      const Val both = isMine && before >= 0.0, length = bin(OpKind::Hypot, x, y), by = where(both, length, num(length, 1));
      const Val cosine = y / by, sine = -x / by, same = both && sizeOf((dy - dx) * cosine * sine) <= tolerance_.at(b, i);
      const Val cc = cosine * cosine, ss = sine * sine, here = b.index(j);
      return std::vector<Lowering::Placed>{{c, i, where(same, cosine, num(cosine, 1))},
                                           {s, i, where(same, sine, num(sine, 0))},
                                           {place, i, where(same, before, here)},
                                           {now[0], i, where(same, dx * cc + dy * ss, dy)},
                                           {now[1], i, where(same, dx * ss + dy * cc, dy)},
                                           {now[2], i, where(same, num(y, 0), y)},
                                           {now[3], i, where(same, length, y)},
                                           {now[4], i, where(same, num(mine, 0), mine)},
                                           {now[5], i, where(isMine, here, before)}};
    });
    ctx_.storeMany(pairs_, [&](BodyBuilder &b, const Index &i) {
      const Index other = extended(i, inside(b, place.at(b, i))), own = extended(i, j);
      return std::vector<Lowering::Placed>{{d_, other, now[0].at(b, i)}, {z_, other, now[2].at(b, i)}, {live_, other, now[4].at(b, i)}, {last, i, now[5].at(b, i)}};
    });
    const Tensor mine = fresh(DType::F64, sizes_), others = fresh(DType::F64, sizes_);
    ctx_.storeMany(sizes_, [&](BodyBuilder &b, const Index &i) {
      const Index pair = outer(i);
      const Val x = elementOf(b, rows_, pair, inside(b, place.at(b, pair)), i.back()), y = elementOf(b, rows_, pair, j, i.back());
      const Val cosine = c.at(b, pair), sine = s.at(b, pair);
      return std::vector<Lowering::Placed>{{others, i, cosine * x + sine * y}, {mine, i, cosine * y - sine * x}};
    });
    ctx_.storeMany(sizes_, [&](BodyBuilder &b, const Index &i) {
      const Index pair = outer(i);
      return std::vector<Lowering::Placed>{{rows_, extended(extended(pair, inside(b, place.at(b, pair))), i.back()), others.at(b, i)}};
    });
    putAt(now[1], d_, -1, j), putAt(now[3], z_, -1, j);
    putAt(mine, rows_, -2, j);
  });
}

Tensor Join::secular(const Tensor &ofBase, const ElementFn &x) {
  return ctx_.reduce(loops::ReduceKind::Sum, DType::F64, sizes_, {Expr(s_)}, [=, this](BodyBuilder &b, const Index &i, const Index &r) {
    const Val z = at(b, z_, outer(i), r[0]), by = (at(b, d_, outer(i), r[0]) - ofBase.at(b, i)) - x(b, i);
    return where(isLive(b, outer(i), r[0]), rho_.at(b, outer(i)) * z * z / by, num(z, 0));
  })[0];
}

void Join::solve() {
  next_ = ctx_.reduce(loops::ReduceKind::Min, DType::I64, sizes_, {Expr(s_)}, [this](BodyBuilder &b, const Index &i, const Index &r) {
    const Val k = b.index(r[0]);
    return where(b.compare(OpKind::Gt, r[0], i.back()) && isLive(b, outer(i), r[0]), k, num(k, static_cast<double>(s_)));
  })[0];
  const Tensor whole = ctx_.reduce(loops::ReduceKind::Sum, DType::F64, pairs_, {Expr(s_)}, [this](BodyBuilder &b, const Index &i, const Index &r) {
    const Val z = at(b, z_, i, r[0]);
    return where(isLive(b, i, r[0]), rho_.at(b, i) * z * z, num(z, 0));
  })[0];
  auto isLast = [this](BodyBuilder &b, const Index &i) { return next_.at(b, i) >= static_cast<double>(s_); };
  // The last root is at most rho |z|^2 behind the last pole; the others lie between theirs and the next one.
  const Tensor gap = along([=, this](BodyBuilder &b, const Index &i) {
    const Val between = at(b, d_, outer(i), inside(b, next_.at(b, i))) - d_.at(b, i), g = where(isLast(b, i), whole.at(b, outer(i)), between);
    return where(isLive(b, outer(i), i.back()), g, num(g, 1));
  });
  // A root is sought from the pole that it is nearer to.
  const Tensor middle = secular(d_, [gap](BodyBuilder &b, const Index &i) { return gap.at(b, i) * 0.5; });
  const Tensor isUpper = along([=](BodyBuilder &b, const Index &i) { return b.cast(middle.at(b, i) < -1.0 && !isLast(b, i), DType::I64); }, DType::I64);
  base_ = along([=, this](BodyBuilder &b, const Index &i) { return where(isUpper.at(b, i) > 0.0, at(b, d_, outer(i), inside(b, next_.at(b, i))), d_.at(b, i)); });
  auto signOf = [isUpper](BodyBuilder &b, const Index &i, Val like) { return where(isUpper.at(b, i) > 0.0, num(like, -1), num(like, 1)); };
  const Tensor hi = carry(Tensor::lazy(ctx_, DType::F64, sizes_, [=](BodyBuilder &b, const Index &i) { return where(isLast(b, i), gap.at(b, i), gap.at(b, i) * 0.5); }));
  const Tensor lo = carry(mulNumber(hi, kNearest));
  forTurns(ctx_, kHalvings, [&](Expr turn) {
    const Tensor m = along([=](BodyBuilder &b, const Index &i) {
      const Val l = lo.at(b, i), h = hi.at(b, i);
      return where(b.compare(OpKind::Lt, turn, kOfExponent), un(OpKind::Sqrt, l * h), (l + h) * 0.5);
    });
    const Tensor f = secular(base_, [=](BodyBuilder &b, const Index &i) { return m.at(b, i) * signOf(b, i, m.at(b, i)); });
    ctx_.storeMany(sizes_, [&](BodyBuilder &b, const Index &i) {
      const Val x = m.at(b, i), further = (f.at(b, i) + 1.0) * signOf(b, i, x) < 0.0;
      return std::vector<Lowering::Placed>{{lo, i, where(further, x, lo.at(b, i))}, {hi, i, where(further, hi.at(b, i), x)}};
    });
  });
  offset_ = along([=](BodyBuilder &b, const Index &i) {
    const Val x = (lo.at(b, i) + hi.at(b, i)) * 0.5;
    return x * signOf(b, i, x);
  });
}

Tensor Join::values() const {
  return Tensor::lazy(ctx_, DType::F64, sizes_, [this_ = *this](BodyBuilder &b, const Index &i) {
    return where(this_.isLive(b, outer(i), i.back()), this_.base_.at(b, i) + this_.offset_.at(b, i), this_.d_.at(b, i));
  });
}

Tensor Join::vectors() const {
  // The z whose roots are exactly those that were found (Loewner's formula), but for one factor of all.
  const Tensor product = ctx_.reduce(loops::ReduceKind::Prod, DType::F64, sizes_, {Expr(s_)}, [this](BodyBuilder &b, const Index &i, const Index &r) {
    const Index pair = outer(i);
    const Expr j = r[0];
    const Val root = -distance(b, pair, i.back(), j), after = at(b, next_, pair, j), own = d_.at(b, i);
    const Val pole = where(b.compare(OpKind::Lt, j, i.back()), at(b, d_, pair, j), at(b, d_, pair, inside(b, after)));
    const Val alone = b.compare(OpKind::Ge, j, i.back()) && after >= static_cast<double>(s_), counts = isLive(b, pair, j) && isLive(b, pair, i.back());
    const Val by = where(alone || !counts, num(root, 1), pole - own);
    return where(counts, root / by, num(root, 1));
  })[0];
  const Tensor z = Tensor::lazy(ctx_, DType::F64, sizes_, [=, this](BodyBuilder &b, const Index &i) {
                     const Val v = bin(OpKind::CopySign, un(OpKind::Sqrt, sizeOf(product.at(b, i))), z_.at(b, i));
                     return where(isLive(b, outer(i), i.back()), v, num(v, 0));
                   }).realize();
  auto component = [=, this](BodyBuilder &b, const Index &pair, Expr j, Expr k) {
    const Val counts = isLive(b, pair, j) && isLive(b, pair, k), by = distance(b, pair, k, j);
    return where(counts, at(b, z, pair, k) / where(counts, by, num(by, 1)), num(by, 0));
  };
  const Tensor squares = ctx_.reduce(loops::ReduceKind::Sum, DType::F64, sizes_, {Expr(s_)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Val x = component(b, outer(i), i.back(), r[0]);
    return x * x;
  })[0];
  const Tensor x = matrixOf(ctx_, DType::F64, pairs_, s_, s_, [=, this](BodyBuilder &b, const Index &pair, Expr j, Expr k) {
    const Val length = un(OpKind::Sqrt, at(b, squares, pair, j)), alive = isLive(b, pair, j);
    return where(alive, component(b, pair, j, k) / where(alive, length, num(length, 1)), b.cast(b.compare(OpKind::Eq, j, k), DType::F64));
  });
  return matmul(x, rows_).realize();
}

} // namespace

TridiagonalEigen divideAndConquer(const Tensor &d0, const Tensor &e0) {
  Lowering &ctx = d0.ctx();
  const Tensor d = source(d0), e = source(e0);
  const int64_t n = d.size(-1).constValue();
  int64_t whole = 1;
  while (whole < n) whole *= 2;
  const Sizes batch(d.sizes().begin(), d.sizes().end() - 1);
  // Nothing is beside the rows that fill up; their values are larger than all others.
  auto beside = [=](BodyBuilder &b, const Index &i, Expr k) {
    const Val x = e.at(b, extended(i, min(max(k, 0), n - 1)));
    return where(b.compare(OpKind::Ge, k, 0) && b.compare(OpKind::Lt, k, n - 1), x, num(x, 0));
  };
  auto largest = [](const Tensor &x) { return amax(map(x, [](Val v) { return un(OpKind::Abs, v); }), {-1}, false); };
  const Tensor bound = map(add(largest(d), mulNumber(largest(e), 2)), [](Val v) { return v * 2.0 + 1.0; }).realize();
  // Each row's element less what the products that join halves add to it.
  Tensor values = Tensor::lazy(ctx, DType::F64, extended(extended(batch, whole), 1), [=](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 2);
    const Expr k = at[at.size() - 2];
    const Val own = d.at(b, extended(i, min(k, n - 1))) - sizeOf(beside(b, i, k - 1)) - sizeOf(beside(b, i, k));
    return where(b.compare(OpKind::Lt, k, n), own, bound.at(b, i));
  });
  Tensor rows = full(ctx, extended(extended(extended(batch, whole), 1), 1), DType::F64, 1);
  for (int64_t h = 1; h < whole; h *= 2) {
    const Tensor joins = Tensor::lazy(ctx, DType::F64, extended(batch, whole / (2 * h)), [=](BodyBuilder &b, const Index &i) { return beside(b, outer(i), i.back() * (2 * h) + (h - 1)); }).realize();
    Join join(values, rows, joins);
    join.deflate();
    join.solve();
    values = join.values().realize();
    rows = join.vectors();
  }
  Sizes flat = extended(batch, whole);
  auto [sorted, order] = ctx.sort(reshape(values, flat), static_cast<int64_t>(batch.size()), false);
  const Tensor all = source(reshape(rows, extended(flat, whole))), places = order;
  const Tensor chosen = matrixOf(ctx, DType::F64, batch, n, n, [=](BodyBuilder &b, const Index &i, Expr k, Expr r) {
    return elementOf(b, all, i, b.indirect(places.at(b, extended(i, k)), whole, false, false), r);
  });
  return {slice(sorted, -1, 0, n), chosen};
}

} // namespace neso::lower
