// Eigenvalues and vectors of general real matrices, and the operators of all (eigen_complex.cpp has the complex ones).
//
// Reflections make a matrix zero below its subdiagonal, and Francis' double shifts make the subdiagonal zero too (Golub and Van Loan,
// Matrix Computations, 7.4 and 7.5). What stays is T with A = Z T Z^T: on its diagonal stand real eigenvalues, and blocks of two rows for pairs of
// conjugate ones. Back substitution gives the vectors of T, and Z those of A. All in float64.
//
// All matrices of a batch take their turns together, each at its own place: a turn reflects two or three neighbouring rows and columns, or
// splits eigenvalues off. T and Z are one matrix [..., 2n, n], Z below T: what turns the columns of one turns those of the other.
#include <cmath>

#include "lower/graph_to_loops/eigen.h"

namespace neso::lower {

namespace {

// ---------------------------------------------------------------------------------------------------------------------
// A = Z T Z^T

class Schur {
public:
  /// w [..., n or 2n, n], in memory of its own.
  Schur(const Tensor &w, int64_t n) : ctx_(w.ctx()), w_(w), batch_(batchOf(w)), n_(n), rows_(w.size(-2)) {}
  void toHessenberg();
  void toTriangle(const std::string &line);

private:
  void chooseReflection();
  void reflectThree();
  Tensor fresh(DType t) { return Tensor::strided(ctx_, t, batch_, ctx_.allocate(t, batch_)); }
  std::vector<Lowering::Placed> planAt(BodyBuilder &b, const Index &i);

  Lowering &ctx_;
  Tensor w_;
  Sizes batch_;
  int64_t n_;
  Expr rows_;
  // [...] I64: the last row that is no eigenvalue yet; the column out of which the next reflection takes what is below its subdiagonal, -1: none is
  // under way; how many shifts there were since the last eigenvalue.
  Tensor last_, column_, tries_;
  // Of one turn: I - factor v v^T of the rows and columns `row_` to row_ + 2; in which columns all below the diagonal is zero, and in which all
  // below the subdiagonal (-1: none); what becomes of last_, column_, tries_.
  Tensor low_, v_[3], factor_, row_, split_, pair_, cleared_, next_[3];
};

/// Column by column: a reflection of the rows from column + 1 leaves one element below the diagonal.
void Schur::toHessenberg() {
  forTurns(ctx_, n_ - 2, [&](Expr j) {
    const Tensor w = w_;
    const int64_t n = n_;
    const Tensor tail = ctx_.reduce(loops::ReduceKind::Sum, DType::F64, batch_, {Expr(n)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      const Val x = elementOf(b, w, i, r[0], j);
      return where(b.compare(OpKind::Gt, r[0], j + 1), x * x, num(x, 0));
    })[0];
    auto length = [=](BodyBuilder &b, const Index &i) {
      const Val first = elementOf(b, w, i, j + 1, j);
      return un(OpKind::Sqrt, first * first + tail.at(b, i));
    };
    const Tensor factor = Tensor::lazy(ctx_, DType::F64, batch_, [=](BodyBuilder &b, const Index &i) {
      const Val l = length(b, i);
      return where(eq(tail.at(b, i), 0.0), num(l, 0), 1.0 / (l * (l + un(OpKind::Abs, elementOf(b, w, i, j + 1, j)))));
    }).realize();
    const Tensor v = Tensor::lazy(ctx_, DType::F64, extended(batch_, n), [=](BodyBuilder &b, const Index &i) {
      const Index batch(i.begin(), i.end() - 1);
      const Val x = elementOf(b, w, batch, i.back(), j);
      const Val first = b.compare(OpKind::Eq, i.back(), j + 1);
      return where(b.compare(OpKind::Gt, i.back(), j), where(first, x + bin(OpKind::CopySign, length(b, batch), x), x), num(x, 0));
    }).realize();
    const Tensor along = ctx_.reduce(loops::ReduceKind::Sum, DType::F64, extended(batch_, n), {Expr(n)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      const Index batch(i.begin(), i.end() - 1);
      return v.at(b, extended(batch, r[0])) * elementOf(b, w, batch, r[0], i.back());
    })[0];
    const Tensor half = matrixOf(ctx_, DType::F64, batch_, rows_, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      const Val x = elementOf(b, w, i, r, c);
      return b.masked(
          b.compare(OpKind::Lt, r, n),
          [&] { return x - factor.at(b, i) * v.at(b, extended(i, min(r, n - 1))) * along.at(b, extended(i, c)); }, x);
    });
    const Tensor across = ctx_.reduce(loops::ReduceKind::Sum, DType::F64, extended(batch_, rows_), {Expr(n)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
      const Index batch(i.begin(), i.end() - 1);
      return elementOf(b, half, batch, i.back(), r[0]) * v.at(b, extended(batch, r[0]));
    })[0];
    Sizes all = extended(extended(batch_, rows_), n);
    put(Tensor::lazy(ctx_, DType::F64, all, [=](BodyBuilder &b, const Index &at) {
          const Index i(at.begin(), at.end() - 2);
          const Expr r = at[at.size() - 2], c = at.back();
          const Val x = elementOf(b, half, i, r, c) - factor.at(b, i) * across.at(b, extended(i, r)) * v.at(b, extended(i, c));
          const Val gone = b.compare(OpKind::Eq, c, j) && b.compare(OpKind::Gt, r, j + 1) && b.compare(OpKind::Lt, r, n);
          return where(gone, num(x, 0), x);
        }),
        w_);
  });
}

/// What one turn of a matrix does. LAPACK's names are in dlahqr.
std::vector<Lowering::Placed> Schur::planAt(BodyBuilder &b, const Index &i) {
  auto h = [&](Val r, Val c) { return elementOf(b, w_, i, within(b, r, n_), within(b, c, n_)); };
  auto size = [](Val x) { return un(OpKind::Abs, x); };
  const Val hi = last_.at(b, i), k = column_.at(b, i), tries = tries_.at(b, i), l = low_.at(b, i);
  const Val under = k >= 0.0, busy = hi > 0.0 && !under, one = busy && eq(hi, l), two = busy && eq(hi, l + 1.0);
  const Val shifts = busy && hi > l + 1.0;
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
  const Val zero = num(a, 0);
  Val x[3] = {where(under, h(k + 1.0, k), where(two, toward, first)),
              where(under, h(k + 2.0, k), where(two, c, h0 + h1 - s - t)),
              where(under, where(k + 3.0 <= hi, h(k + 3.0, k), zero), where(two, zero, h(l + 2.0, l + 1.0)))};
  const Val reflects = (under || splits || shifts) && (ne(x[1], 0.0) || ne(x[2], 0.0));
  const Val largest = where(reflects, vmax(size(x[0]), vmax(size(x[1]), size(x[2]))), num(a, 1));
  for (Val &e : x) e = where(reflects, e / largest, zero);
  const Val length = un(OpKind::Sqrt, x[0] * x[0] + x[1] * x[1] + x[2] * x[2]);
  const Val factor = where(reflects, 1.0 / where(reflects, length * (length + size(x[0])), num(a, 1)), zero);
  const Val none = num(k, -1);
  return {{v_[0], i, x[0] + bin(OpKind::CopySign, length, x[0])},
          {v_[1], i, x[1]},
          {v_[2], i, x[2]},
          {factor_, i, factor},
          {row_, i, where(under, k + 1.0, where(two, hi - 1.0, l))},
          {split_, i, where(busy, l - 1.0, none)},
          {pair_, i, where(splits, hi - 1.0, none)},
          {cleared_, i, k},
          {next_[0], i, where(one, hi - 1.0, where(two, hi - 2.0, hi))},
          {next_[1], i, where(under, where(k + 1.0 <= hi - 2.0, k + 1.0, none), where(shifts, l, none))},
          {next_[2], i, where(one || two, num(tries, 0), where(shifts, tries + 1.0, tries))}};
}

void Schur::chooseReflection() {
  // The first row of the block that ends at the last one: above it the subdiagonal is nothing beside its neighbours.
  low_ = ctx_.reduce(loops::ReduceKind::Max, DType::I64, batch_, {Expr(n_)}, [this](BodyBuilder &b, const Index &i, const Index &at) {
    const Expr r = at[0], before = max(r - 1, 0);
    const Val around = un(OpKind::Abs, elementOf(b, w_, i, before, before)) + un(OpKind::Abs, elementOf(b, w_, i, r, r));
    const Val small = un(OpKind::Abs, elementOf(b, w_, i, r, before)) <= where(eq(around, 0.0), num(around, 1), around) * kEpsilon;
    const Val row = b.index(r);
    return where(small && row <= last_.at(b, i), row, num(row, 0));
  })[0];
  for (Tensor *x : {&v_[0], &v_[1], &v_[2], &factor_}) *x = fresh(DType::F64);
  for (Tensor *x : {&row_, &split_, &pair_, &cleared_, &next_[0], &next_[1], &next_[2]}) *x = fresh(DType::I64);
  ctx_.storeMany(batch_, [this](BodyBuilder &b, const Index &i) { return planAt(b, i); });
}

void Schur::reflectThree() {
  // Which element of v belongs to a row or column; 0 beside them.
  auto part = [this](BodyBuilder &b, const Index &i, Expr e) {
    const Val at = b.index(e) - row_.at(b, i);
    const Val some = where(eq(at, 0.0), v_[0].at(b, i), where(eq(at, 1.0), v_[1].at(b, i), v_[2].at(b, i)));
    return where(at >= 0.0 && at < 3.0, some, num(some, 0));
  };
  auto along = [this](BodyBuilder &b, const Index &i, const std::function<Val(Expr)> &element) {
    Val sum;
    for (int k = 0; k < 3; ++k) {
      const Val term = v_[k].at(b, i) * element(within(b, row_.at(b, i) + static_cast<double>(k), n_));
      sum = k ? sum + term : term;
    }
    return sum * factor_.at(b, i);
  };
  const Tensor half = matrixOf(ctx_, DType::F64, batch_, rows_, n_, [=, this](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    const Val x = elementOf(b, w_, i, r, c), reflected = x - part(b, i, r) * along(b, i, [&](Expr k) { return elementOf(b, w_, i, k, c); });
    return where(b.compare(OpKind::Lt, r, n_), reflected, x);
  });
  put(Tensor::lazy(ctx_, DType::F64, w_.sizes(), [=, this](BodyBuilder &b, const Index &at) {
        const Index i(at.begin(), at.end() - 2);
        const Expr r = at[at.size() - 2], c = at.back();
        const Val x = elementOf(b, half, i, r, c) - part(b, i, c) * along(b, i, [&](Expr k) { return elementOf(b, half, i, r, k); });
        const Val column = b.index(c), row = b.index(r);
        const Val zero = (row > column && (eq(column, split_.at(b, i)) || eq(column, pair_.at(b, i)))) ||
                         (row > column + 1.0 && eq(column, cleared_.at(b, i)));
        return where(zero && b.compare(OpKind::Lt, r, n_), num(x, 0), x);
      }),
      w_);
}

void Schur::toTriangle(const std::string &line) {
  last_ = integers(ctx_, batch_, n_ - 1), column_ = integers(ctx_, batch_, -1), tries_ = integers(ctx_, batch_, 0);
  const Tensor turns = integers(ctx_, {}, 0);
  const int64_t most = kShiftsPerValue * n_ * n_;
  auto unfinished = [&] {
    return reduceDims(loops::ReduceKind::Any, binary(OpKind::Gt, last_, scalarInt(ctx_, 0)), {}, false, DType::Bool);
  };
  whileTrue(
      ctx_, [&] { return binary(OpKind::And, unfinished(), binary(OpKind::Lt, turns, scalarInt(ctx_, most))); },
      [&] {
        chooseReflection();
        reflectThree();
        put(next_[0], last_), put(next_[1], column_), put(next_[2], tries_);
        put(addNumber(turns, 1), turns);
      });
  ctx_.require(eq(ctx_.read(unfinished()), 0), "the eigenvalues of a matrix are not found within " + std::to_string(most) + " steps" + line);
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
    const Expr j = n - 1 - turn;
    Tensor solved[5];
    for (Tensor &x : solved) x = Tensor::strided(ctx, DType::F64, row, ctx.allocate(DType::F64, row));
    ctx.storeMany(row, [&](BodyBuilder &b, const Index &at) {
      const auto [x, y] = solvedRow(b, w, values, m, Index(at.begin(), at.end() - 1), j, at.back(), n);
      // Vectors of a matrix that has too few of them grow with each row.
      const Val largest = vmax(sizeOf(x), sizeOf(y)), scale = where(largest > kLarge, 1.0 / largest, num(largest, 1));
      return std::vector<Lowering::Placed>{{solved[0], at, x.re}, {solved[1], at, x.im}, {solved[2], at, y.re}, {solved[3], at, y.im}, {solved[4], at, scale}};
    });
    ctx.storeMany(all, [&](BodyBuilder &b, const Index &at) {
      const Index i(at.begin(), at.end() - 2);
      const Expr r = at[at.size() - 2], k = at.back();
      const Index column = extended(i, k);
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
  Lowering &ctx = a.ctx();
  const int64_t n = rowsOf(a);
  const Sizes all = extended(extended(batchOf(a), vectors ? 2 * n : n), n);
  const Tensor w = carry(Tensor::lazy(ctx, DType::F64, all, [=](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 2);
    const Expr r = at[at.size() - 2], c = at.back();
    return b.masked(
        b.compare(OpKind::Lt, r, n), [&] { return elementOf(b, a, i, min(r, n - 1), c); }, b.cast(b.compare(OpKind::Eq, r - n, c), DType::F64));
  }));
  Schur schur(w, n);
  if (n > 2) schur.toHessenberg();
  if (n > 1) schur.toTriangle(line);
  const Eigenvalues values = valuesOf(w, n);
  ComplexEigen out{{values.re, values.im}, {}};
  if (!vectors) return out;
  const Parts of = vectorsOf(w, values, n);
  const Tensor z = slice(w, -2, n, n);
  out.vectors = {matmul(z, of.re).realize(), matmul(z, of.im).realize()};
  return out;
}

Tensors eigOp(OpCall &o) {
  const Tensor a = o.t(o.has("input") ? "input" : "self");
  const Tensor re = a.isComplex() ? a.real() : a;
  if (std::string why = matrixFault(re); !why.empty()) return o.fail(why);
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

void addEigen(OpTable &t) {
  t.add("linalg_eig.default linalg_eigvals.default _linalg_eigvals.default", eigOp);
  t.onComplex(OnComplex::Own, "linalg_eig linalg_eigvals _linalg_eigvals");
}

} // namespace neso::lower
