// Eigenvalues and vectors of complex matrices, of which all have a triangle T with A = Z T Z^H.
//
// As for real ones (eigen.cpp), with one shift a turn: a reflection of two rows and columns starts or moves on what stands below the subdiagonal
// (LAPACK's zlahqr). T and Z are one matrix [..., 2n, n], Z below T.
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

Parts realized(Lowering &ctx, const Sizes &sizes, const std::function<Complex(BodyBuilder &, const Index &)> &fn) {
  Parts out;
  for (Tensor *x : {&out.re, &out.im}) *x = Tensor::strided(ctx, DType::F64, sizes, ctx.allocate(DType::F64, sizes));
  ctx.storeMany(sizes, [&](BodyBuilder &b, const Index &i) {
    const Complex v = fn(b, i);
    return std::vector<Lowering::Placed>{{out.re, i, v.re}, {out.im, i, v.im}};
  });
  return out;
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
void put(const Parts &x, const Parts &into) { put(x.re, into.re), put(x.im, into.im); }
Index before(const Index &i) { return {i.begin(), i.end() - 1}; }

class Schur {
public:
  /// w [..., n or 2n, n], in memory of its own.
  Schur(const Parts &w, int64_t n) : ctx_(w.re.ctx()), w_(w), batch_(batchOf(w.re)), n_(n), rows_(w.re.size(-2)) {}
  void toHessenberg();
  void toTriangle(const std::string &line);

private:
  void chooseReflection();
  void reflectTwo();
  Tensor fresh(DType t) { return Tensor::strided(ctx_, t, batch_, ctx_.allocate(t, batch_)); }
  std::vector<Lowering::Placed> planAt(BodyBuilder &b, const Index &i);

  Lowering &ctx_;
  Parts w_;
  Sizes batch_;
  int64_t n_;
  Expr rows_;
  // [...] I64: the last row that is no eigenvalue yet; the column out of which the next reflection takes what is below its subdiagonal, -1: none is
  // under way; how many shifts there were since the last eigenvalue.
  Tensor last_, column_, tries_;
  // Of one turn: I - factor v v^H of rows and columns `row_` and row_ + 1; in which columns all below the diagonal is zero, and in which all below the
  // subdiagonal (-1: none); what becomes of last_, column_, tries_.
  Tensor low_, factor_, row_, split_, cleared_, next_[3];
  Parts v_[2];
};

/// Column by column: a reflection of the rows from column + 1 leaves one element below the diagonal.
void Schur::toHessenberg() {
  forTurns(ctx_, n_ - 2, [&](Expr j) {
    const Parts w = w_;
    const int64_t n = n_;
    const Sizes row = extended(batch_, n);
    const Tensor tail = ctx_.reduce(loops::ReduceKind::Sum, DType::F64, batch_, {Expr(n)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      const Val x = squareOf(elementOf(b, w, i, r[0], j));
      return where(b.compare(OpKind::Gt, r[0], j + 1), x, num(x, 0));
    })[0];
    auto length = [=](BodyBuilder &b, const Index &i) { return un(OpKind::Sqrt, squareOf(elementOf(b, w, i, j + 1, j)) + tail.at(b, i)); };
    const Tensor factor = Tensor::lazy(ctx_, DType::F64, batch_, [=](BodyBuilder &b, const Index &i) {
      const Val l = length(b, i);
      return where(eq(tail.at(b, i), 0.0), num(l, 0), 1.0 / (l * (l + lengthOf(elementOf(b, w, i, j + 1, j)))));
    }).realize();
    const Parts v = realized(ctx_, row, [=](BodyBuilder &b, const Index &i) {
      const Complex x = elementOf(b, w, before(i), i.back(), j);
      const Complex first = x + direction(x) * length(b, before(i));
      return where(b.compare(OpKind::Gt, i.back(), j), where(b.compare(OpKind::Eq, i.back(), j + 1), first, x), real(num(x.re, 0)));
    });
    const Parts along = summed(ctx_, row, n, [=](BodyBuilder &b, const Index &i, Expr r) {
      return conjugate(at(b, v, extended(before(i), r))) * elementOf(b, w, before(i), r, i.back());
    });
    const Sizes all = extended(extended(batch_, rows_), n);
    const Parts half = realized(ctx_, all, [=](BodyBuilder &b, const Index &place) {
      const Index i(place.begin(), place.end() - 2);
      const Expr r = place[place.size() - 2], c = place.back();
      const Complex x = at(b, w, place), reflected = x - at(b, v, extended(i, min(r, n - 1))) * at(b, along, extended(i, c)) * factor.at(b, i);
      return where(b.compare(OpKind::Lt, r, n), reflected, x);
    });
    const Parts across = summed(ctx_, extended(batch_, rows_), n, [=](BodyBuilder &b, const Index &i, Expr r) {
      return elementOf(b, half, before(i), i.back(), r) * at(b, v, extended(before(i), r));
    });
    put(realized(ctx_, all, [=](BodyBuilder &b, const Index &place) {
          const Index i(place.begin(), place.end() - 2);
          const Expr r = place[place.size() - 2], c = place.back();
          const Complex x = at(b, half, place) - at(b, across, extended(i, r)) * conjugate(at(b, v, extended(i, c))) * factor.at(b, i);
          const Val gone = b.compare(OpKind::Eq, c, j) && b.compare(OpKind::Gt, r, j + 1) && b.compare(OpKind::Lt, r, n);
          return where(gone, real(num(x.re, 0)), x);
        }),
        w_);
  });
}

/// What one turn of a matrix does. LAPACK's names are in zlahqr.
std::vector<Lowering::Placed> Schur::planAt(BodyBuilder &b, const Index &i) {
  auto h = [&](Val r, Val c) { return elementOf(b, w_, i, within(b, r, n_), within(b, c, n_)); };
  const Val hi = last_.at(b, i), k = column_.at(b, i), tries = tries_.at(b, i), l = low_.at(b, i);
  const Val under = k >= 0.0, busy = hi > 0.0 && !under, one = busy && eq(hi, l), shifts = busy && hi > l;
  // The eigenvalue of the last two rows that is the nearer one to the last element.
  const Complex d = h(hi, hi), below = h(hi, hi - 1.0), half = (h(hi - 1.0, hi - 1.0) - d) * num(d.re, 0.5);
  const Complex product = h(hi - 1.0, hi) * below, square = root(half * half + product);
  const Val against = half.re * square.re + half.im * square.im < 0.0;
  const Complex by = half + where(against, square * num(d.re, -1), square), none = real(num(d.re, 0));
  const Complex nearer = d - where(sizeOf(product) > 0.0, product / where(sizeOf(by) > 0.0, by, real(num(d.re, 1))), none);
  const Val other = tries > 0.0 && eq(bin(OpKind::Mod, tries, kTriesBetweenOtherShifts), 0.0);
  const Complex shift = where(other, d + real(sizeOf(below) * 0.75), nearer);
  Complex x[2] = {where(under, h(k + 1.0, k), h(l, l) - shift), where(under, h(k + 2.0, k), h(l + 1.0, l))};
  const Val reflects = (under || shifts) && sizeOf(x[1]) > 0.0;
  const Val size = sizeOf(x[0]) + sizeOf(x[1]), largest = where(reflects, size, num(size, 1));
  for (Complex &e : x) e = where(reflects, {e.re / largest, e.im / largest}, none);
  const Val length = un(OpKind::Sqrt, squareOf(x[0]) + squareOf(x[1]));
  const Val factor = where(reflects, 1.0 / where(reflects, length * (length + lengthOf(x[0])), num(size, 1)), num(size, 0));
  const Complex first = x[0] + direction(x[0]) * length;
  const Val nowhere = num(k, -1);
  return {{v_[0].re, i, first.re},
          {v_[0].im, i, first.im},
          {v_[1].re, i, x[1].re},
          {v_[1].im, i, x[1].im},
          {factor_, i, factor},
          {row_, i, where(under, k + 1.0, l)},
          {split_, i, where(busy, l - 1.0, nowhere)},
          {cleared_, i, k},
          {next_[0], i, where(one, hi - 1.0, hi)},
          {next_[1], i, where(under, where(k + 1.0 <= hi - 2.0, k + 1.0, nowhere), where(shifts && l <= hi - 2.0, l, nowhere))},
          {next_[2], i, where(one, num(tries, 0), where(shifts, tries + 1.0, tries))}};
}

void Schur::chooseReflection() {
  // The first row of the block that ends at the last one: above it the subdiagonal is nothing beside its neighbours.
  low_ = ctx_.reduce(loops::ReduceKind::Max, DType::I64, batch_, {Expr(n_)}, [this](BodyBuilder &b, const Index &i, const Index &place) {
    const Expr r = place[0], above = max(r - 1, 0);
    const Val around = sizeOf(elementOf(b, w_, i, above, above)) + sizeOf(elementOf(b, w_, i, r, r));
    const Val small = sizeOf(elementOf(b, w_, i, r, above)) <= where(eq(around, 0.0), num(around, 1), around) * kEpsilon;
    const Val row = b.index(r);
    return where(small && row <= last_.at(b, i), row, num(row, 0));
  })[0];
  for (Tensor *x : {&v_[0].re, &v_[0].im, &v_[1].re, &v_[1].im, &factor_}) *x = fresh(DType::F64);
  for (Tensor *x : {&row_, &split_, &cleared_, &next_[0], &next_[1], &next_[2]}) *x = fresh(DType::I64);
  ctx_.storeMany(batch_, [this](BodyBuilder &b, const Index &i) { return planAt(b, i); });
}

void Schur::reflectTwo() {
  // Which element of v belongs to a row or column; 0 beside them.
  auto part = [this](BodyBuilder &b, const Index &i, Expr e) {
    const Val place = b.index(e) - row_.at(b, i);
    const Complex some = where(eq(place, 0.0), at(b, v_[0], i), at(b, v_[1], i));
    return where(place >= 0.0 && place < 2.0, some, real(num(some.re, 0)));
  };
  auto neighbour = [this](BodyBuilder &b, const Index &i, int k) { return within(b, row_.at(b, i) + static_cast<double>(k), n_); };
  const Parts half = realized(ctx_, w_.re.sizes(), [=, this](BodyBuilder &b, const Index &place) {
    const Index i(place.begin(), place.end() - 2);
    const Expr r = place[place.size() - 2], c = place.back();
    Complex along = conjugate(at(b, v_[0], i)) * elementOf(b, w_, i, neighbour(b, i, 0), c);
    along = along + conjugate(at(b, v_[1], i)) * elementOf(b, w_, i, neighbour(b, i, 1), c);
    const Complex x = at(b, w_, place);
    return where(b.compare(OpKind::Lt, r, n_), x - part(b, i, r) * along * factor_.at(b, i), x);
  });
  put(realized(ctx_, w_.re.sizes(), [=, this](BodyBuilder &b, const Index &place) {
        const Index i(place.begin(), place.end() - 2);
        const Expr r = place[place.size() - 2], c = place.back();
        Complex along = elementOf(b, half, i, r, neighbour(b, i, 0)) * at(b, v_[0], i);
        along = along + elementOf(b, half, i, r, neighbour(b, i, 1)) * at(b, v_[1], i);
        const Complex x = at(b, half, place) - along * conjugate(part(b, i, c)) * factor_.at(b, i);
        const Val column = b.index(c), row = b.index(r);
        const Val zero = (row > column && eq(column, split_.at(b, i))) || (row > column + 1.0 && eq(column, cleared_.at(b, i)));
        return where(zero && b.compare(OpKind::Lt, r, n_), real(num(x.re, 0)), x);
      }),
      w_);
}

void Schur::toTriangle(const std::string &line) {
  last_ = integers(ctx_, batch_, n_ - 1), column_ = integers(ctx_, batch_, -1), tries_ = integers(ctx_, batch_, 0);
  const Tensor turns = integers(ctx_, {}, 0);
  const int64_t most = kShiftsPerValue * n_ * n_;
  auto unfinished = [&] { return reduceDims(loops::ReduceKind::Any, binary(OpKind::Gt, last_, scalarInt(ctx_, 0)), {}, false, DType::Bool); };
  whileTrue(
      ctx_, [&] { return binary(OpKind::And, unfinished(), binary(OpKind::Lt, turns, scalarInt(ctx_, most))); },
      [&] {
        chooseReflection();
        reflectTwo();
        lower::put(next_[0], last_), lower::put(next_[1], column_), lower::put(next_[2], tries_);
        lower::put(addNumber(turns, 1), turns);
      });
  ctx_.require(eq(ctx_.read(unfinished()), 0), "the eigenvalues of a matrix are not found within " + std::to_string(most) + " steps" + line);
}

/// Vectors of T as columns, of any length: back substitution, from the row of each value up.
Parts vectorsOf(const Parts &w, int64_t n) {
  Lowering &ctx = w.re.ctx();
  const Sizes batch = batchOf(w.re), row = extended(batch, n), all = extended(row, n);
  const Parts m{carry(full(ctx, all, DType::F64, 0)), carry(full(ctx, all, DType::F64, 0))};
  forTurns(ctx, n, [&](Expr turn) {
    const Expr j = n - 1 - turn;
    // Row j, for each value k; the rows below it are gone from m.
    const Parts x = realized(ctx, row, [=](BodyBuilder &b, const Index &i) {
      const Expr k = i.back();
      const Complex given = elementOf(b, m, before(i), j, k), apart = elementOf(b, w, before(i), j, j) - elementOf(b, w, before(i), k, k);
      const Complex one = real(num(given.re, 1)), none = real(num(given.re, 0));
      return where(b.compare(OpKind::Eq, j, k), one, where(b.compare(OpKind::Lt, j, k), given / pivot(apart), none));
    });
    put(realized(ctx, all, [=](BodyBuilder &b, const Index &place) {
          const Index i(place.begin(), place.end() - 2);
          const Expr r = place[place.size() - 2], k = place.back();
          const Complex old = at(b, m, place), own = at(b, x, extended(i, k));
          // Vectors of a matrix that has too few of them grow with each row.
          const Val size = sizeOf(own), scale = where(size > kLarge, 1.0 / size, num(size, 1));
          const Complex rest = old - own * elementOf(b, w, i, r, j);
          return where(b.compare(OpKind::Lt, r, j), rest, where(b.compare(OpKind::Eq, r, j), own, old)) * scale;
        }),
        m);
  });
  return m;
}

} // namespace

ComplexEigen complexEigen(const Parts &a, bool vectors, const std::string &line) {
  Lowering &ctx = a.re.ctx();
  const int64_t n = rowsOf(a.re);
  const Sizes batch = batchOf(a.re);
  const Sizes all = extended(extended(batch, vectors ? 2 * n : n), n);
  auto withIdentity = [&](const Tensor &part, bool re) {
    return carry(Tensor::lazy(ctx, DType::F64, all, [=](BodyBuilder &b, const Index &place) {
      const Index i(place.begin(), place.end() - 2);
      const Expr r = place[place.size() - 2], c = place.back();
      const Val below = re ? b.cast(b.compare(OpKind::Eq, r - n, c), DType::F64) : b.constant(DType::F64, 0);
      return b.masked(b.compare(OpKind::Lt, r, n), [&] { return elementOf(b, part, i, min(r, n - 1), c); }, below);
    }));
  };
  const Parts w{withIdentity(a.re, true), withIdentity(a.im, false)};
  Schur schur(w, n);
  if (n > 2) schur.toHessenberg();
  if (n > 1) schur.toTriangle(line);
  ComplexEigen out;
  out.values = realized(ctx, extended(batch, n), [=](BodyBuilder &b, const Index &i) { return elementOf(b, w, before(i), i.back(), i.back()); });
  if (!vectors) return out;
  const Parts x = vectorsOf(w, n);
  const Tensor v = matmul2(Tensor::complex(slice(w.re, -2, n, n), slice(w.im, -2, n, n), DType::C128), Tensor::complex(x.re, x.im, DType::C128), DType::C128);
  out.vectors = {v.real().realize(), v.imag().realize()};
  return out;
}

} // namespace neso::lower
