// Eigenvalues and vectors of complex matrices, of which all have a triangle T with A = Z T Z^H.
//
// As for real ones (eigen.cpp), with one shift a sweep: a reflection of two rows and columns starts or moves on what stands below the subdiagonal
// (LAPACK's zlahqr).
#include <cmath>

#include "lower/graph_to_loops/eigen.h"

namespace neso::lower {

namespace {

/// a / |a|, 1 for 0.
Complex direction(Complex a) {
  const Val size = lengthOf(a), none = eq(size, 0.0), by = where(none, num(size, 1), size);
  return where(none, real(num(size, 1)), {a.re / by, a.im / by});
}
/// The root with a real part that is not negative.
Complex root(Complex a) {
  const Val larger = un(OpKind::Sqrt, (lengthOf(a) + un(OpKind::Abs, a.re)) * 0.5), none = eq(larger, 0.0);
  const Val smaller = a.im / (where(none, num(larger, 1), larger) * 2.0);
  return where(a.re >= 0.0, {larger, smaller}, {un(OpKind::Abs, smaller), bin(OpKind::CopySign, larger, a.im)});
}

/// The sums of fn over r.
Parts summed(Lowering &ctx, const Sizes &sizes, Expr count, const std::function<Complex(BodyBuilder &, const Index &, Expr r)> &fn) {
  auto part = [&](bool re) {
    return ctx.reduce(loops::ReduceKind::Sum, DType::F64, sizes, {count}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      const Complex v = fn(b, i, r[0]);
      return re ? v.re : v.im;
    })[0];
  };
  return {part(true), part(false)};
}

Complex at(BodyBuilder &b, const Parts &x, const Index &i) { return {x.re.at(b, i), x.im.at(b, i)}; }
Index before(const Index &i) { return {i.begin(), i.end() - 1}; }
std::vector<Lowering::Placed> placed(const Parts &x, const Index &i, Complex v) { return {{x.re, i, v.re}, {x.im, i, v.im}}; }

class Schur {
public:
  /// t [..., n, n] and, where vectors are wanted, zt, the transpose of Z: both in memory of their own.
  Schur(const Parts &t, const Parts &zt, int64_t n) : ctx_(t.re.ctx()), t_(t), zt_(zt), batch_(batchOf(t.re)), n_(n), sweep_(ctx_, batch_, n, zt.re.valid()) {}
  void toHessenberg();
  void toTriangle(const std::string &line);

private:
  void chooseSweep();
  void chooseReflection(Expr turn);
  void reflectRows(Expr firstColumn, Expr columns);
  void reflectColumns(Expr firstRow, Expr rows);
  void reflectZ();
  std::vector<Lowering::Placed> turnedColumns(BodyBuilder &b, const Index &i, const Parts &a, const Index &left, const Index &right);
  Tensor fresh(DType t) { return Tensor::strided(ctx_, t, batch_, ctx_.allocate(t, batch_)); }
  Parts freshParts() { return {fresh(DType::F64), fresh(DType::F64)}; }
  std::vector<Lowering::Placed> sweepAt(BodyBuilder &b, const Index &i);
  Expr baseOf(BodyBuilder &b, const Index &i) { return b.indirect(base_.at(b, i), n_ - 1, false, false); }

  Lowering &ctx_;
  Parts t_, zt_;
  Sizes batch_;
  int64_t n_;
  Sweep sweep_;
  // Of a sweep: the vector of its first reflection; of a turn: I - factor v v^H of rows and columns base_ and base_ + 1, and the column of which all below
  // its subdiagonal becomes zero, -1: none does.
  Parts first_[2], v_[2];
  Tensor factor_, base_, cleared_;
};

/// Column by column: a reflection of the rows from column + 1 leaves one element below the diagonal.
void Schur::toHessenberg() {
  const Sizes row = extended(batch_, n_);
  const Parts v{place(ctx_, DType::F64, row), place(ctx_, DType::F64, row)};
  forTurns(ctx_, n_ - 2, [&](Expr j) {
    const Parts t = t_, zt = zt_;
    const Expr left = n_ - 1 - j;
    const Tensor tail = ctx_.reduce(loops::ReduceKind::Sum, DType::F64, batch_, {left - 1}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      return squareOf(elementOf(b, t, i, j + 2 + r[0], j));
    })[0];
    auto length = [=](BodyBuilder &b, const Index &i) { return un(OpKind::Sqrt, squareOf(elementOf(b, t, i, j + 1, j)) + tail.at(b, i)); };
    const Tensor factor = Tensor::lazy(ctx_, DType::F64, batch_, [=](BodyBuilder &b, const Index &i) {
      const Val l = length(b, i);
      return where(tail.at(b, i) < kNoSquare, num(l, 0), 1.0 / (l * (l + lengthOf(elementOf(b, t, i, j + 1, j)))));
    }).realize();
    ctx_.storeMany(row, [&](BodyBuilder &b, const Index &i) {
      const Complex x = elementOf(b, t, before(i), i.back(), j);
      const Complex first = x + direction(x) * length(b, before(i));
      return placed(v, i, where(b.compare(OpKind::Gt, i.back(), j), where(b.compare(OpKind::Eq, i.back(), j + 1), first, x), real(num(x.re, 0))));
    });
    // v^H T and T v.
    const Parts rows = summed(ctx_, row, left, [=](BodyBuilder &b, const Index &i, Expr r) {
      return conjugate(at(b, v, extended(before(i), j + 1 + r))) * elementOf(b, t, before(i), j + 1 + r, i.back());
    });
    // Element j of v is zero: with it, these sums along rows are no loop over the same numbers as those across, which would read one of both badly.
    const Parts columns = summed(ctx_, row, left + 1, [=](BodyBuilder &b, const Index &i, Expr r) {
      return elementOf(b, t, before(i), i.back(), j + r) * at(b, v, extended(before(i), j + r));
    });
    const Parts both = summed(ctx_, batch_, left, [=](BodyBuilder &b, const Index &i, Expr r) {
      return conjugate(at(b, v, extended(i, j + 1 + r))) * at(b, columns, extended(i, j + 1 + r));
    });
    // (I - f v v^H) T (I - f v v^H) in place: all of it that is needed of T is in the sums by now.
    ctx_.storeMany(extended(row, left + 1), [=](BodyBuilder &b, const Index &point) {
      const Index i(point.begin(), point.end() - 2);
      const Expr r = point[point.size() - 2], c = j + point.back();
      const Val f = factor.at(b, i);
      const Complex vr = at(b, v, extended(i, r)), right = at(b, columns, extended(i, r)) - vr * at(b, both, i) * f;
      const Complex x = elementOf(b, t, i, r, c) - vr * at(b, rows, extended(i, c)) * f - right * conjugate(at(b, v, extended(i, c))) * f;
      const Val gone = b.compare(OpKind::Eq, c, j) && b.compare(OpKind::Gt, r, j + 1);
      return placed(t, extended(extended(i, r), c), where(gone, real(num(x.re, 0)), x));
    });
    if (!zt_.re.valid()) return;
    // Z v and Z v v^H, transposed.
    const Parts ofZ = summed(ctx_, row, left, [=](BodyBuilder &b, const Index &i, Expr r) {
      return at(b, v, extended(before(i), j + 1 + r)) * elementOf(b, zt, before(i), j + 1 + r, i.back());
    });
    ctx_.storeMany(extended(extended(batch_, left), n_), [=](BodyBuilder &b, const Index &point) {
      const Index i(point.begin(), point.end() - 2);
      const Expr r = j + 1 + point[point.size() - 2], c = point.back();
      const Complex part = conjugate(at(b, v, extended(i, r))) * at(b, ofZ, extended(i, c)) * factor.at(b, i);
      return placed(zt, extended(extended(i, r), c), elementOf(b, zt, i, r, c) - part);
    });
  });
}

/// What one sweep of a matrix does. LAPACK's names are in zlahqr.
std::vector<Lowering::Placed> Schur::sweepAt(BodyBuilder &b, const Index &i) {
  auto h = [&](Val r, Val c) { return elementOf(b, t_, i, within(b, r, n_), within(b, c, n_)); };
  const Val hi = sweep_.last.at(b, i), tries = sweep_.tries.at(b, i), l = sweep_.low.at(b, i);
  const Val busy = hi > 0.0, one = busy && eq(hi, l), shifts = busy && hi > l;
  // The eigenvalue of the last two rows that is the nearer one to the last element.
  const Complex d = h(hi, hi), below = h(hi, hi - 1.0), half = (h(hi - 1.0, hi - 1.0) - d) * num(d.re, 0.5);
  const Complex product = h(hi - 1.0, hi) * below, square = root(half * half + product);
  const Val against = half.re * square.re + half.im * square.im < 0.0;
  const Complex by = half + where(against, square * num(d.re, -1), square), none = real(num(d.re, 0));
  const Complex nearer = d - where(sizeOf(product) > 0.0, product / where(sizeOf(by) > 0.0, by, real(num(d.re, 1))), none);
  const Val other = tries > 0.0 && eq(bin(OpKind::Mod, tries, kTriesBetweenOtherShifts), 0.0);
  const Complex first = h(l, l) - where(other, d + real(sizeOf(below) * 0.75), nearer), second = h(l + 1.0, l);
  const Expr row = within(b, l, n_), earlier = within(b, l - 1.0, n_);
  const Complex above = elementOf(b, t_, i, row, earlier);
  std::vector<Lowering::Placed> out = {{sweep_.row, i, l},
                                       {sweep_.steps, i, where(shifts, hi - l, num(hi, 0))},
                                       {sweep_.end, i, hi},
                                       {sweep_.last, i, where(one, hi - 1.0, hi)},
                                       {sweep_.tries, i, where(one, num(tries, 0), where(shifts, tries + 1.0, tries))}};
  // What is above the block is apart from it.
  for (const auto &more : {placed(first_[0], i, first), placed(first_[1], i, second), placed(t_, extended(extended(i, row), earlier), where(busy && l > 0.0, none, above))})
    out.insert(out.end(), more.begin(), more.end());
  return out;
}

void Schur::chooseSweep() {
  // The first row of the block that ends at the last one: above it the subdiagonal is nothing beside its neighbours.
  sweep_.low = ctx_.reduce(loops::ReduceKind::Max, DType::I64, batch_, {Expr(n_)}, [this](BodyBuilder &b, const Index &i, const Index &place) {
    const Expr r = place[0], above = max(r - 1, 0);
    const Val around = sizeOf(elementOf(b, t_, i, above, above)) + sizeOf(elementOf(b, t_, i, r, r));
    const Val small = sizeOf(elementOf(b, t_, i, r, above)) <= where(eq(around, 0.0), num(around, 1), around) * kEpsilon;
    const Val row = b.index(r);
    return where(small && row <= sweep_.last.at(b, i), row, num(row, 0));
  })[0];
  for (Parts &x : first_) x = freshParts();
  ctx_.storeMany(batch_, [this](BodyBuilder &b, const Index &i) { return sweepAt(b, i); });
}

void Schur::chooseReflection(Expr turn) {
  for (Parts &x : v_) x = freshParts();
  factor_ = fresh(DType::F64), base_ = fresh(DType::I64), cleared_ = fresh(DType::I64);
  ctx_.storeMany(batch_, [=, this](BodyBuilder &b, const Index &i) {
    const Val starts = b.compare(OpKind::Eq, turn, 0), active = b.index(turn) < sweep_.steps.at(b, i), row = sweep_.row.at(b, i) + b.index(turn);
    Complex x[2];
    for (int k = 0; k < 2; ++k) x[k] = where(starts, at(b, first_[k], i), elementOf(b, t_, i, within(b, row + static_cast<double>(k), n_), within(b, row - 1.0, n_)));
    const Val reflects = active && sizeOf(x[1]) > 0.0;
    const Val size = sizeOf(x[0]) + sizeOf(x[1]), largest = where(reflects, size, num(size, 1));
    for (Complex &e : x) e = where(reflects, {e.re / largest, e.im / largest}, real(num(size, 0)));
    const Val length = un(OpKind::Sqrt, squareOf(x[0]) + squareOf(x[1]));
    const Val factor = where(reflects, 1.0 / where(reflects, length * (length + lengthOf(x[0])), num(size, 1)), num(size, 0));
    std::vector<Lowering::Placed> out = {{factor_, i, factor}, {base_, i, vmin(row, num(row, static_cast<double>(n_ - 2)))}, {cleared_, i, where(active && !starts, row - 1.0, num(row, -1))}};
    for (const auto &more : {placed(v_[0], i, x[0] + direction(x[0]) * length), placed(v_[1], i, x[1])}) out.insert(out.end(), more.begin(), more.end());
    return out;
  });
}

/// Two rows of T, in place.
void Schur::reflectRows(Expr firstColumn, Expr columns) {
  ctx_.storeMany(extended(batch_, columns), [=, this](BodyBuilder &b, const Index &point) {
    const Index i = before(point);
    const Expr base = baseOf(b, i), c = firstColumn + point.back();
    const Complex x = elementOf(b, t_, i, base, c), y = elementOf(b, t_, i, base + 1, c), v = at(b, v_[0], i), w = at(b, v_[1], i);
    const Complex along = (conjugate(v) * x + conjugate(w) * y) * factor_.at(b, i), low = y - w * along;
    std::vector<Lowering::Placed> out = placed(t_, extended(extended(i, base), c), x - v * along);
    for (const auto &more : placed(t_, extended(extended(i, base + 1), c), where(eq(b.index(c), cleared_.at(b, i)), real(num(low.re, 0)), low))) out.push_back(more);
    return out;
  });
}

/// Two columns of T, in place.
void Schur::reflectColumns(Expr firstRow, Expr rows) {
  ctx_.storeMany(extended(batch_, rows), [=, this](BodyBuilder &b, const Index &point) {
    const Index i = before(point);
    return turnedColumns(b, i, t_, extended(extended(i, firstRow + point.back()), baseOf(b, i)), extended(extended(i, firstRow + point.back()), baseOf(b, i) + 1));
  });
}

/// Two columns of Z, which are rows of its transpose, in place.
void Schur::reflectZ() {
  ctx_.storeMany(extended(batch_, n_), [=, this](BodyBuilder &b, const Index &point) {
    const Index i = before(point);
    return turnedColumns(b, i, zt_, extended(extended(i, baseOf(b, i)), point.back()), extended(extended(i, baseOf(b, i) + 1), point.back()));
  });
}

std::vector<Lowering::Placed> Schur::turnedColumns(BodyBuilder &b, const Index &i, const Parts &a, const Index &left, const Index &right) {
  const Complex x = at(b, a, left), y = at(b, a, right), v = at(b, v_[0], i), w = at(b, v_[1], i), along = (x * v + y * w) * factor_.at(b, i);
  std::vector<Lowering::Placed> out = placed(a, left, x - along * conjugate(v));
  for (const auto &more : placed(a, right, y - along * conjugate(w))) out.push_back(more);
  return out;
}

void Schur::toTriangle(const std::string &line) {
  sweep_.untilNoneIsLeft(line, [&] {
    chooseSweep();
    sweep_.forReflections([&](Expr turn, const Sweep::Touched &touched) {
      chooseReflection(turn);
      reflectRows(touched.firstColumn, touched.columns);
      reflectColumns(touched.firstRow, touched.rows);
      if (zt_.re.valid()) reflectZ();
    });
  });
}

/// Vectors of T as columns, of any length: back substitution, from the row of each value up.
Parts vectorsOf(const Parts &w, int64_t n) {
  Lowering &ctx = w.re.ctx();
  const Sizes batch = batchOf(w.re), row = extended(batch, n), all = extended(row, n);
  const Parts m{carry(full(ctx, all, DType::F64, 0)), carry(full(ctx, all, DType::F64, 0))};
  const Parts x{place(ctx, DType::F64, row), place(ctx, DType::F64, row)};
  forTurns(ctx, n, [&](Expr turn) {
    // Row j, for each value k from j on; the rows below it are gone from m.
    const Expr j = n - 1 - turn;
    ctx.storeMany(extended(batch, n - j), [&](BodyBuilder &b, const Index &point) {
      const Expr k = j + point.back();
      const Index i = before(point);
      const Complex given = elementOf(b, m, i, j, k), apart = elementOf(b, w, i, j, j) - elementOf(b, w, i, k, k);
      return placed(x, extended(i, k), where(b.compare(OpKind::Eq, j, k), real(num(given.re, 1)), given / pivot(apart)));
    });
    ctx.storeMany(extended(row, n - j), [&](BodyBuilder &b, const Index &point) {
      const Index i(point.begin(), point.end() - 2);
      const Expr r = point[point.size() - 2], k = j + point.back();
      const Index here = extended(extended(i, r), k);
      const Complex old = at(b, m, here), own = at(b, x, extended(i, k));
      // Vectors of a matrix that has too few of them grow with each row.
      const Val size = sizeOf(own), scale = where(size > kLarge, 1.0 / size, num(size, 1));
      const Complex rest = old - own * elementOf(b, w, i, r, j);
      return placed(m, here, where(b.compare(OpKind::Lt, r, j), rest, where(b.compare(OpKind::Eq, r, j), own, old)) * scale);
    });
  });
  return m;
}

} // namespace

ComplexEigen complexEigen(const Parts &a, bool vectors, const std::string &line) {
  Lowering &ctx = a.re.ctx();
  const int64_t n = rowsOf(a.re);
  const Tensor order = isolatingOrder(ctx, batchOf(a.re), n, [a](BodyBuilder &b, const Index &i, Expr r, Expr c) { return !isZero(elementOf(b, a, i, r, c)); });
  const Parts t{carriedMatrix(inOrder(a.re, order)), carriedMatrix(inOrder(a.im, order))};
  Parts zt;
  if (vectors) zt = {carry(movesOf(order, n)), carry(full(ctx, a.re.sizes(), DType::F64, 0))};
  Schur schur(t, zt, n);
  if (n > 2) schur.toHessenberg();
  if (n > 1) schur.toTriangle(line);
  ComplexEigen out;
  const Sizes values = extended(batchOf(a.re), n);
  out.values = {place(ctx, DType::F64, values), place(ctx, DType::F64, values)};
  ctx.storeMany(values, [&](BodyBuilder &b, const Index &i) { return placed(out.values, i, elementOf(b, t, before(i), i.back(), i.back())); });
  if (!vectors) return out;
  const Parts x = vectorsOf(t, n);
  const Tensor z = transpose(Tensor::complex(zt.re, zt.im, DType::C128), -2, -1);
  const Tensor v = matmul2(z, Tensor::complex(x.re, x.im, DType::C128), DType::C128);
  out.vectors = {v.real().realize(), v.imag().realize()};
  return out;
}

} // namespace neso::lower
