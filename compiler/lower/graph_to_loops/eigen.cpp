// Eigenvalues and vectors of general real matrices, and the operators of all (eigen_complex.cpp has the complex ones).
//
// Reflections make a matrix zero below its subdiagonal, and Francis' double shifts make the subdiagonal zero too (Golub and Van Loan,
// Matrix Computations, 7.4 and 7.5). What stays is T with A = Z T Z^T: on its diagonal stand real eigenvalues, and blocks of two rows for pairs of
// conjugate ones. Back substitution gives the vectors of T, and Z those of A. All in float64.
//
// All matrices of a batch take their turns together, each at its own place: a sweep reflects three neighbouring rows and columns after the other,
// or splits eigenvalues off. A turn reads and writes those rows and columns alone. Z is kept transposed: its columns lie side by side then.
#include <cmath>

#include "lower/graph_to_loops/eigen.h"

namespace neso::lower {

namespace {

// ---------------------------------------------------------------------------------------------------------------------
// A = Z T Z^T

class Schur {
public:
  /// t [..., n, n] and, where vectors are wanted, zt, the transpose of Z: both in memory of their own.
  Schur(const Tensor &t, const Tensor &zt, int64_t n)
      : ctx_(t.ctx()), t_(t), zt_(zt), batch_(batchOf(t)), n_(n), window_(std::min<int64_t>(n, 3)), sweep_(t.ctx(), batchOf(t), n, zt.valid()) {}
  void toHessenberg();
  void toTriangle(const std::string &line);

private:
  void chooseSweep();
  void chooseReflection(Expr turn);
  void reflectRows(const Tensor &a, Expr firstColumn, Expr columns, bool clears);
  void reflectColumns(Expr firstRow, Expr rows);
  Tensor fresh(DType t) { return Tensor::strided(ctx_, t, batch_, ctx_.allocate(t, batch_)); }
  std::vector<Lowering::Placed> sweepAt(BodyBuilder &b, const Index &i);

  Lowering &ctx_;
  Tensor t_, zt_;
  Sizes batch_;
  int64_t n_, window_;
  Sweep sweep_;
  // Of a sweep: the vector of its first reflection; of a turn: I - factor v v^T of the rows and columns from base_ on, and the column of which all below
  // its subdiagonal becomes zero, -1: none does.
  Tensor first_[3], v_[3], factor_, base_, cleared_;
};

/// Column by column: a reflection of the rows from column + 1 leaves one element below the diagonal.
void Schur::toHessenberg() {
  const Sizes row = extended(batch_, n_);
  const Tensor v = place(ctx_, DType::F64, row);
  forTurns(ctx_, n_ - 2, [&](Expr j) {
    const Tensor t = t_, zt = zt_;
    const Expr left = n_ - 1 - j;
    const Tensor tail = ctx_.reduce(loops::ReduceKind::Sum, DType::F64, batch_, {left - 1}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      const Val x = elementOf(b, t, i, j + 2 + r[0], j);
      return x * x;
    })[0];
    auto length = [=](BodyBuilder &b, const Index &i) {
      const Val first = elementOf(b, t, i, j + 1, j);
      return un(OpKind::Sqrt, first * first + tail.at(b, i));
    };
    const Tensor factor = Tensor::lazy(ctx_, DType::F64, batch_, [=](BodyBuilder &b, const Index &i) {
      const Val l = length(b, i);
      return where(tail.at(b, i) < kNoSquare, num(l, 0), 1.0 / (l * (l + un(OpKind::Abs, elementOf(b, t, i, j + 1, j)))));
    }).realize();
    put(Tensor::lazy(ctx_, DType::F64, row, [=](BodyBuilder &b, const Index &i) {
          const Index batch(i.begin(), i.end() - 1);
          const Val x = elementOf(b, t, batch, i.back(), j);
          const Val first = b.compare(OpKind::Eq, i.back(), j + 1);
          return where(b.compare(OpKind::Gt, i.back(), j), where(first, x + bin(OpKind::CopySign, length(b, batch), x), x), num(x, 0));
        }),
        v);
    // v^T of a matrix, and T v.
    auto along = [&](const Tensor &a) {
      return ctx_.reduce(loops::ReduceKind::Sum, DType::F64, row, {left}, [=](BodyBuilder &b, const Index &i, const Index &r) {
        const Index batch(i.begin(), i.end() - 1);
        return v.at(b, extended(batch, j + 1 + r[0])) * elementOf(b, a, batch, j + 1 + r[0], i.back());
      })[0];
    };
    // Element j of v is zero: with it, these sums along rows are no loop over the same numbers as those across, which would read one of both badly.
    const Tensor rows = along(t_), columns = ctx_.reduce(loops::ReduceKind::Sum, DType::F64, row, {left + 1}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      const Index batch(i.begin(), i.end() - 1);
      return elementOf(b, t, batch, i.back(), j + r[0]) * v.at(b, extended(batch, j + r[0]));
    })[0];
    const Tensor both = ctx_.reduce(loops::ReduceKind::Sum, DType::F64, batch_, {left}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      const Index at = extended(i, j + 1 + r[0]);
      return v.at(b, at) * columns.at(b, at);
    })[0];
    // (I - f v v^T) T (I - f v v^T) in place: all of it that is needed of T is in the sums by now.
    ctx_.storeMany(extended(row, left + 1), [=](BodyBuilder &b, const Index &at) {
      const Index i(at.begin(), at.end() - 2);
      const Expr r = at[at.size() - 2], c = j + at.back();
      const Val f = factor.at(b, i), vr = v.at(b, extended(i, r));
      const Val x = elementOf(b, t, i, r, c) - f * vr * rows.at(b, extended(i, c)) - f * (columns.at(b, extended(i, r)) - f * both.at(b, i) * vr) * v.at(b, extended(i, c));
      const Val gone = b.compare(OpKind::Eq, c, j) && b.compare(OpKind::Gt, r, j + 1);
      return std::vector<Lowering::Placed>{{t, extended(extended(i, r), c), where(gone, num(x, 0), x)}};
    });
    if (!zt_.valid()) return;
    const Tensor ofZ = along(zt_);
    ctx_.storeMany(extended(extended(batch_, left), n_), [=](BodyBuilder &b, const Index &at) {
      const Index i(at.begin(), at.end() - 2);
      const Expr r = j + 1 + at[at.size() - 2], c = at.back();
      const Val x = elementOf(b, zt, i, r, c) - factor.at(b, i) * v.at(b, extended(i, r)) * ofZ.at(b, extended(i, c));
      return std::vector<Lowering::Placed>{{zt, extended(extended(i, r), c), x}};
    });
  });
}

/// What one sweep of a matrix does. LAPACK's names are in dlahqr.
std::vector<Lowering::Placed> Schur::sweepAt(BodyBuilder &b, const Index &i) {
  auto h = [&](Val r, Val c) { return elementOf(b, t_, i, within(b, r, n_), within(b, c, n_)); };
  auto size = [](Val x) { return un(OpKind::Abs, x); };
  const Val hi = sweep_.last.at(b, i), tries = sweep_.tries.at(b, i), l = sweep_.low.at(b, i);
  const Val busy = hi > 0.0, one = busy && eq(hi, l), two = busy && eq(hi, l + 1.0), shifts = busy && hi > l + 1.0;
  // The last two rows: a b, c d. A pair of real eigenvalues is split by the vector of one of them.
  const Val a = h(hi - 1.0, hi - 1.0), c = h(hi, hi - 1.0), d = h(hi, hi), product = h(hi - 1.0, hi) * c;
  const Val half = (a - d) * 0.5, root = half * half + product, splits = two && root >= 0.0;
  const Val toward = half + bin(OpKind::CopySign, un(OpKind::Sqrt, vmax(root, num(root, 0))), half);
  // The first column of (H - s) (H - t), divided by one of its factors, where s and t are the eigenvalues of those two rows.
  const Val other = tries > 0.0 && eq(bin(OpKind::Mod, tries, kTriesBetweenOtherShifts), 0.0);
  const Val weight = size(c) + size(h(hi - 1.0, hi - 2.0));
  const Val s = where(other, d + weight * 0.75, d), t = where(other, s, a), st = where(other, weight * weight * -0.4375, product);
  const Val h0 = h(l, l), h1 = h(l + 1.0, l + 1.0), below = h(l + 1.0, l);
  const Val first = ((h0 - s) * (h0 - t) - st) / where(shifts, below, num(below, 1)) + h(l, l + 1.0);
  const Expr row = within(b, l, n_), before = within(b, l - 1.0, n_);
  const Val above = elementOf(b, t_, i, row, before);
  return {{first_[0], i, where(two, toward, first)},
          {first_[1], i, where(two, c, h0 + h1 - s - t)},
          {first_[2], i, where(two, num(a, 0), h(l + 2.0, l + 1.0))},
          {sweep_.row, i, where(two, hi - 1.0, l)},
          {sweep_.steps, i, where(shifts, hi - l, b.cast(splits, DType::I64))},
          {sweep_.end, i, hi},
          {sweep_.pair, i, where(splits, hi, num(hi, 0))},
          // What is above the block is apart from it.
          {t_, extended(extended(i, row), before), where(busy && l > 0.0, num(above, 0), above)},
          {sweep_.last, i, where(one, hi - 1.0, where(two, hi - 2.0, hi))},
          {sweep_.tries, i, where(one || two, num(tries, 0), where(shifts, tries + 1.0, tries))}};
}

void Schur::chooseSweep() {
  // The first row of the block that ends at the last one: above it the subdiagonal is nothing beside its neighbours.
  sweep_.low = ctx_.reduce(loops::ReduceKind::Max, DType::I64, batch_, {Expr(n_)}, [this](BodyBuilder &b, const Index &i, const Index &at) {
    const Expr r = at[0], before = max(r - 1, 0);
    const Val around = un(OpKind::Abs, elementOf(b, t_, i, before, before)) + un(OpKind::Abs, elementOf(b, t_, i, r, r));
    const Val small = un(OpKind::Abs, elementOf(b, t_, i, r, before)) <= where(eq(around, 0.0), num(around, 1), around) * kEpsilon;
    const Val row = b.index(r);
    return where(small && row <= sweep_.last.at(b, i), row, num(row, 0));
  })[0];
  for (Tensor &x : first_) x = fresh(DType::F64);
  ctx_.storeMany(batch_, [this](BodyBuilder &b, const Index &i) { return sweepAt(b, i); });
}

void Schur::chooseReflection(Expr turn) {
  for (Tensor *x : {&v_[0], &v_[1], &v_[2], &factor_}) *x = fresh(DType::F64);
  for (Tensor *x : {&base_, &cleared_}) *x = fresh(DType::I64);
  ctx_.storeMany(batch_, [=, this](BodyBuilder &b, const Index &i) -> std::vector<Lowering::Placed> {
    const Val starts = b.compare(OpKind::Eq, turn, 0), active = b.index(turn) < sweep_.steps.at(b, i), row = sweep_.row.at(b, i) + b.index(turn);
    const Val zero = b.constant(DType::F64, 0), whole = row + 2.0 <= sweep_.end.at(b, i);
    Val x[3];
    for (int k = 0; k < 3; ++k) {
      const Val below = elementOf(b, t_, i, within(b, row + static_cast<double>(k), n_), within(b, row - 1.0, n_));
      x[k] = where(starts, first_[k].at(b, i), k == 2 ? where(whole, below, zero) : below);
    }
    auto size = [](Val v) { return un(OpKind::Abs, v); };
    const Val reflects = active && (ne(x[1], 0.0) || ne(x[2], 0.0));
    const Val largest = where(reflects, vmax(size(x[0]), vmax(size(x[1]), size(x[2]))), num(zero, 1));
    for (Val &e : x) e = where(reflects, e / largest, zero);
    const Val length = un(OpKind::Sqrt, x[0] * x[0] + x[1] * x[1] + x[2] * x[2]);
    const Val factor = where(reflects, 1.0 / where(reflects, length * (length + size(x[0])), num(zero, 1)), zero);
    x[0] = x[0] + bin(OpKind::CopySign, length, x[0]);
    // Of the last reflection, of two rows, the first row of the three stands before them.
    const Val base = vmin(row, num(row, static_cast<double>(n_ - window_))), apart = ne(base, row);
    return {{v_[0], i, where(apart, zero, x[0])},
            {v_[1], i, where(apart, x[0], x[1])},
            {v_[2], i, where(apart, x[1], x[2])},
            {factor_, i, factor},
            {base_, i, base},
            {cleared_, i, where(active && !starts, row - 1.0, num(row, -1))}};
  });
}

/// Three rows of a, in place.
void Schur::reflectRows(const Tensor &a, Expr firstColumn, Expr columns, bool clears) {
  ctx_.storeMany(extended(batch_, columns), [=, this](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 1);
    const Expr base = b.indirect(base_.at(b, i), n_ - window_ + 1, false, false), c = firstColumn + at.back();
    std::vector<Val> x, v;
    Val sum;
    for (int k = 0; k < window_; ++k) {
      x.push_back(elementOf(b, a, i, base + k, c)), v.push_back(v_[k].at(b, i));
      sum = k ? sum + v[k] * x[k] : v[k] * x[k];
    }
    sum = sum * factor_.at(b, i);
    std::vector<Lowering::Placed> out;
    for (int k = 0; k < window_; ++k) {
      Val now = x[k] - v[k] * sum;
      if (clears) {
        const Val cleared = cleared_.at(b, i);
        now = where(eq(b.index(c), cleared) && b.index(base + k) > cleared + 1.0, num(now, 0), now);
      }
      out.push_back({a, extended(extended(i, base + k), c), now});
    }
    return out;
  });
}

/// Three columns of T, in place.
void Schur::reflectColumns(Expr firstRow, Expr rows) {
  ctx_.storeMany(extended(batch_, rows), [=, this](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 1);
    const Expr base = b.indirect(base_.at(b, i), n_ - window_ + 1, false, false), r = firstRow + at.back();
    std::vector<Val> x, v;
    Val sum;
    for (int k = 0; k < window_; ++k) {
      x.push_back(elementOf(b, t_, i, r, base + k)), v.push_back(v_[k].at(b, i));
      sum = k ? sum + v[k] * x[k] : v[k] * x[k];
    }
    sum = sum * factor_.at(b, i);
    std::vector<Lowering::Placed> out;
    for (int k = 0; k < window_; ++k) out.push_back({t_, extended(extended(i, r), base + k), x[k] - v[k] * sum});
    return out;
  });
}

void Schur::toTriangle(const std::string &line) {
  sweep_.untilNoneIsLeft(line, [&] {
    chooseSweep();
    sweep_.forReflections([&](Expr turn, const Sweep::Touched &touched) {
      chooseReflection(turn);
      reflectRows(t_, touched.firstColumn, touched.columns, true);
      reflectColumns(touched.firstRow, touched.rows);
      if (zt_.valid()) reflectRows(zt_, 0, n_, false);
    });
    // Two real values are apart now.
    ctx_.storeMany(batch_, [this](BodyBuilder &b, const Index &i) -> std::vector<Lowering::Placed> {
      const Val row = sweep_.pair.at(b, i);
      const Expr r = within(b, row, n_), before = within(b, row - 1.0, n_);
      const Val x = elementOf(b, t_, i, r, before);
      return {{t_, extended(extended(i, r), before), where(row > 0.0, num(x, 0), x)}};
    });
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// Values and vectors of T

struct Eigenvalues {
  Tensor re, im, end; // [..., n]; the last row of the block of each, I64
};

/// Whether row r and the one after it are a block.
Val joined(BodyBuilder &b, const Tensor &w, const Index &i, Expr r, int64_t n) {
  const Expr next = min(r + 1, n - 1);
  return b.compare(OpKind::Lt, r, n - 1) && ne(elementOf(b, w, i, next, min(r, n - 1)), 0.0);
}
Val joinedBefore(BodyBuilder &b, const Tensor &w, const Index &i, Expr r) {
  return b.compare(OpKind::Gt, r, 0) && ne(elementOf(b, w, i, r, max(r - 1, 0)), 0.0);
}

Eigenvalues valuesOf(const Tensor &w, int64_t n) {
  Lowering &ctx = w.ctx();
  const Sizes sizes = extended(batchOf(w), n);
  auto make = [&](DType t, const std::function<Val(BodyBuilder &, const Index &, Expr k, Val begins, Val ends)> &fn) {
    return Tensor::lazy(ctx, t, sizes, [=](BodyBuilder &b, const Index &at) {
             const Index i(at.begin(), at.end() - 1);
             return fn(b, i, at.back(), joined(b, w, i, at.back(), n), joinedBefore(b, w, i, at.back()));
           }).realize();
  };
  // The rows a b, c d of the block of k.
  auto block = [=](BodyBuilder &b, const Index &i, Expr k, Val ends) {
    const Val first = b.index(k) - b.cast(ends, DType::I64);
    const Expr r = within(b, first, n), next = within(b, first + 1.0, n);
    return std::array<Val, 4>{elementOf(b, w, i, r, r), elementOf(b, w, i, r, next), elementOf(b, w, i, next, r), elementOf(b, w, i, next, next)};
  };
  Eigenvalues out;
  out.re = make(DType::F64, [=](BodyBuilder &b, const Index &i, Expr k, Val begins, Val ends) {
    const auto [p, q, r, s] = block(b, i, k, ends);
    return where(begins || ends, (p + s) * 0.5, elementOf(b, w, i, k, k));
  });
  out.im = make(DType::F64, [=](BodyBuilder &b, const Index &i, Expr k, Val begins, Val ends) {
    const auto [p, q, r, s] = block(b, i, k, ends);
    const Val half = (p - s) * 0.5, square = -(half * half + q * r), im = un(OpKind::Sqrt, vmax(square, num(square, 0)));
    return where(begins, im, where(ends, -im, num(im, 0)));
  });
  out.end = make(DType::I64, [](BodyBuilder &b, const Index &, Expr k, Val begins, Val) { return b.index(k) + b.cast(begins, DType::I64); });
  return out;
}

/// Rows j and, where it ends a block, j - 1 of the vectors of T, as (re, im) of x and y: of (T - value) x = m, in which the rows below j are gone.
std::array<Complex, 2> solvedRow(BodyBuilder &b, const Tensor &w, const Eigenvalues &values, const Parts &m, const Index &i, Expr j, Expr k, int64_t n) {
  const Index at = extended(i, k);
  const Complex value{values.re.at(b, at), values.im.at(b, at)};
  const Val begins = joined(b, w, i, j, n), ends = joinedBefore(b, w, i, j);
  const Expr before = max(j - 1, 0);
  auto given = [&](Expr r) { return Complex{elementOf(b, m.re, i, r, k), elementOf(b, m.im, i, r, k)}; };
  const Complex lower = given(j), upper = given(before);
  const Val p = elementOf(b, w, i, before, before), q = elementOf(b, w, i, before, j), r = elementOf(b, w, i, j, before), s = elementOf(b, w, i, j, j);
  const Complex first = real(p) - value, second = real(s) - value, corner = real(q), c = real(where(ends, r, num(r, 1)));
  // A block by elimination with the larger of its first column.
  const Val stays = sizeOf(first) >= sizeOf(c);
  const Complex by = where(stays, first, c), left = where(stays, c, first) / pivot(by);
  const Complex high = where(stays, upper, lower), low = where(stays, lower, upper);
  const Complex highRight = where(stays, corner, second), lowRight = where(stays, second, corner);
  const Complex blockX = (low - left * high) / pivot(lowRight - left * highRight), blockY = (high - highRight * blockX) / pivot(by);
  const Complex own = where(ends, blockX, lower / pivot(second)), one = real(num(p, 1));
  const Val starts = eq(b.index(j), values.end.at(b, at));
  const Complex x = where(begins, lower, where(starts, one, own));
  const Complex y = where(starts, (value - real(s)) / c, blockY);
  return {x, where(ends, y, upper)};
}

/// Vectors of T as columns, of any length.
Parts vectorsOf(const Tensor &w, const Eigenvalues &values, int64_t n) {
  Lowering &ctx = w.ctx();
  const Sizes batch = batchOf(w), row = extended(batch, n), all = extended(row, n);
  const Parts m{carry(full(ctx, all, DType::F64, 0)), carry(full(ctx, all, DType::F64, 0))};
  forTurns(ctx, n, [&](Expr turn) {
    // Values whose block ends before row j have nothing there yet.
    const Expr j = n - 1 - turn, from = max(j - 1, 0);
    Tensor solved[5];
    for (Tensor &x : solved) x = Tensor::strided(ctx, DType::F64, row, ctx.allocate(DType::F64, row));
    ctx.storeMany(extended(batch, n - from), [&](BodyBuilder &b, const Index &place) {
      const Index i(place.begin(), place.end() - 1), at = extended(i, from + place.back());
      const auto [x, y] = solvedRow(b, w, values, m, i, j, at.back(), n);
      // Vectors of a matrix that has too few of them grow with each row.
      const Val largest = vmax(sizeOf(x), sizeOf(y)), scale = where(largest > kLarge, 1.0 / largest, num(largest, 1));
      return std::vector<Lowering::Placed>{{solved[0], at, x.re}, {solved[1], at, x.im}, {solved[2], at, y.re}, {solved[3], at, y.im}, {solved[4], at, scale}};
    });
    ctx.storeMany(extended(row, n - from), [&](BodyBuilder &b, const Index &place) {
      const Index i(place.begin(), place.end() - 2);
      const Expr r = place[place.size() - 2], k = from + place.back();
      const Index column = extended(i, k), at = extended(extended(i, r), k);
      const Complex old{m.re.at(b, at), m.im.at(b, at)}, x{solved[0].at(b, column), solved[1].at(b, column)}, y{solved[2].at(b, column), solved[3].at(b, column)};
      const Val isY = b.compare(OpKind::Eq, r + 1, j) && joinedBefore(b, w, i, j);
      const Complex rest = old - x * elementOf(b, w, i, r, j);
      const Complex open = where(isY, y, rest);
      const Complex now = where(b.compare(OpKind::Lt, r, j), open, where(b.compare(OpKind::Eq, r, j), x, old)) * solved[4].at(b, column);
      return std::vector<Lowering::Placed>{{m.re, at, now.re}, {m.im, at, now.im}};
    });
  });
  return m;
}

/// Of the matrix divided by its largest element: no square overflows or vanishes.
struct Scaled {
  Tensor largest; // [...]
  Val factor(BodyBuilder &b, const Index &batch) const {
    const Val m = largest.at(b, batch);
    return where(eq(m, 0.0), num(m, 1), m);
  }
  Tensor divided(const Tensor &a) const {
    return Tensor::lazy(a.ctx(), DType::F64, a.sizes(), [*this, a](BodyBuilder &b, const Index &i) { return b.cast(a.at(b, i), DType::F64) / factor(b, {i.begin(), i.end() - 2}); });
  }
  Tensor multiplied(const Tensor &values) const {
    return Tensor::lazy(values.ctx(), DType::F64, values.sizes(), [*this, values](BodyBuilder &b, const Index &i) { return values.at(b, i) * factor(b, {i.begin(), i.end() - 1}); });
  }
};

/// The same for real matrices: pairs of conjugate values come out of blocks of two rows.
ComplexEigen realEigen(const Tensor &a, bool vectors, const std::string &line) {
  const int64_t n = rowsOf(a);
  const Tensor order = isolatingOrder(a.ctx(), batchOf(a), n, [a](BodyBuilder &b, const Index &i, Expr r, Expr c) { return ne(elementOf(b, a, i, r, c), 0.0); });
  const Tensor t = carriedMatrix(inOrder(a, order)), zt = vectors ? carry(movesOf(order, n)) : Tensor();
  Schur schur(t, zt, n);
  if (n > 2) schur.toHessenberg();
  if (n > 1) schur.toTriangle(line);
  const Eigenvalues values = valuesOf(t, n);
  ComplexEigen out{{values.re, values.im}, {}};
  if (!vectors) return out;
  const Parts of = vectorsOf(t, values, n);
  const Tensor z = transpose(zt, -2, -1);
  out.vectors = {matmul(z, of.re).realize(), matmul(z, of.im).realize()};
  return out;
}

Tensors eigOp(OpCall &o) {
  const Tensor a = o.t(o.has("input") ? "input" : "self");
  const Tensor re = a.isComplex() ? a.real() : a;
  if (std::string why = anyConstSizeFault(a); !why.empty()) return o.fail(why);
  const int64_t n = rowsOf(re);
  const bool vectors = o.outCount() > 1;
  const DType t = o.out().dtype;
  auto asComplex = [t](const Tensor &x, const Tensor &y) { return Tensor::complex(cast(x, toReal(t)), cast(y, toReal(t)), t); };
  if (n == 0) {
    Tensors empty;
    for (size_t k = 0; k < o.outCount(); ++k) empty.push_back(asComplex(full(o.ctx, o.out(k).sizes, DType::F64, 0), full(o.ctx, o.out(k).sizes, DType::F64, 0)));
    return empty;
  }
  auto sizes = [](const Tensor &x) { return map(cast(x, DType::F64), [](Val v) { return un(OpKind::Abs, v); }); };
  const Scaled scaled{amax(a.isComplex() ? binary(OpKind::Max, sizes(re), sizes(a.imag())) : sizes(a), {-2, -1}, false).realize()};
  const Tensor infinite = reduceDims(loops::ReduceKind::Any, logicalNot(binary(OpKind::Lt, scaled.largest, scalarFloat(o.ctx, HUGE_VAL))), {}, false, DType::Bool);
  o.ctx.require(eq(o.ctx.read(infinite), 0), "a matrix whose eigenvalues are asked for has elements that are infinite or no numbers" + o.ctx.where());
  const Tensor x = scaled.divided(source(re));
  const ComplexEigen found = a.isComplex() ? complexEigen({x, scaled.divided(source(a.imag()))}, vectors, o.ctx.where()) : realEigen(x, vectors, o.ctx.where());
  Tensors out{asComplex(scaled.multiplied(found.values.re), scaled.multiplied(found.values.im))};
  if (!vectors) return out;
  // Those of real values of real matrices are real.
  const Parts v = normalised(found.vectors, a.isComplex() ? full(o.ctx, found.values.im.sizes(), DType::F64, 1) : found.values.im);
  out.push_back(asComplex(v.re, v.im));
  return out;
}

} // namespace

void addEigen(OpTable &t) {
  t.add("linalg_eig.default linalg_eigvals.default _linalg_eigvals.default", eigOp);
  t.onComplex(OnComplex::Own, "linalg_eig linalg_eigvals _linalg_eigvals");
}

} // namespace neso::lower
