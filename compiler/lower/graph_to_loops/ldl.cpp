// Factors of symmetric matrices, A = P L D L^T P^T with blocks of one and two rows in D, and systems that are solved with them; of Hermitian ones
// L^T is L^H.
//
// As LAPACK's sytf2 and sytrs, hetf2 and hetrs for the lower triangle: the pivots of Bunch and Kaufman, and its numbers of rows, from 1; both rows of a block have the
// negative one of the row that the second changed places with.
#include <cmath>

#include "lower/graph_to_loops/linalg.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

namespace {

using loops::ReduceKind;

Expr row(BodyBuilder &b, Val v, int64_t n) { return b.indirect(v, n, false, false); }

/// A number, conjugated where the matrix is Hermitian.
Complex mirrored(Complex v, bool hermitian) { return hermitian ? conjugate(v) : v; }

/// Of the symmetric or Hermitian matrix whose lower triangle a has. The latter's diagonal is real.
Complex lowerElement(BodyBuilder &b, const Tensor &a, bool hermitian, const Index &i, Expr r, Expr c) {
  const Complex v = numberOf(b, a, i, max(r, c), min(r, c));
  if (!hermitian) return v;
  const Complex above = where(b.compare(OpKind::Eq, r, c), real(v.re), conjugate(v));
  return where(b.compare(OpKind::Gt, r, c), v, above);
}

/// What is decided of column j, [...] I64: whether it is the second of a block; whether the block has two rows; the row from 0 that the last one of the
/// block changes places with; whether there is nothing to divide by.
struct Choice {
  Tensor second, two, other, idle;
};

struct Symmetric {
  Tensor packed, pivots, info;
};

/// Which rows take part: (1 + sqrt 17) / 8 bounds how elements grow.
Choice chooseBlock(const Tensor &a, bool hermitian, const Tensor &second, Expr j) {
  Lowering &ctx = a.ctx();
  const Sizes batch = batchOf(a);
  const int64_t n = rowsOf(a);
  const DType t = toReal(a.dtype());
  auto magnitude = [a, hermitian](BodyBuilder &b, const Index &i, Expr r, Expr c) { return sizeOf(lowerElement(b, a, hermitian, i, r, c)); };
  const Tensor below = Tensor::lazy(ctx, t, extended(batch, n), [=](BodyBuilder &b, const Index &at) {
    const Val v = magnitude(b, Index(at.begin(), at.end() - 1), at.back(), j);
    return where(b.compare(OpKind::Gt, at.back(), j), v, num(v, -1));
  });
  const Tensor most = argExtreme(true, below, -1, false).realize();
  const Tensor beside = ctx.reduce(ReduceKind::Max, t, batch, {Expr(n)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Val at = most.at(b, i), v = magnitude(b, i, r[0], row(b, at, n));
    return where(b.compare(OpKind::Ge, r[0], j) && ne(b.index(r[0]), at), v, num(v, 0));
  })[0];
  Choice out{second, {}, {}, {}};
  for (Tensor *x : {&out.two, &out.other, &out.idle}) *x = Tensor::strided(ctx, DType::I64, batch, ctx.allocate(DType::I64, batch));
  ctx.storeMany(batch, [&](BodyBuilder &b, const Index &i) {
    const double alpha = (1 + std::sqrt(17.0)) / 8;
    const Val at = most.at(b, i), own = magnitude(b, i, j, j), widest = beside.at(b, i);
    const Val any = b.compare(OpKind::Lt, j, n - 1), found = magnitude(b, i, row(b, at, n), j), column = where(any, found, num(found, 0));
    const Val idle = eq(vmax(own, column), 0.0) || ne(own, own);
    const Val stays = idle || own >= column * alpha || own >= column * alpha * (column / where(eq(widest, 0.0), num(own, 1), widest));
    const Val moves = magnitude(b, i, row(b, at, n), row(b, at, n)) >= widest * alpha;
    return std::vector<Lowering::Placed>{{out.two, i, b.cast(!stays && !moves, DType::I64)}, {out.other, i, where(stays, b.index(j), at)}, {out.idle, i, b.cast(idle, DType::I64)}};
  });
  return out;
}

/// Where a number is stored: one store, or two of the parts.
void place(std::vector<Lowering::Placed> &out, const Tensor &x, const Index &i, Complex v) {
  if (!x.isComplex()) return out.push_back({x, i, v.re});
  v = widened(v);
  out.push_back({x.real(), i, v.re}), out.push_back({x.imag(), i, v.im});
}

/// Rows of one turn of all matrices, [..., n]; those of matrices that are idle, or that have done their block, are zeros.
struct Rows {
  Tensor own, other;
};

/// Takes steps of sytf2 or hetf2 in place: of a turn's rows and columns there are copies, all else is read and written where it lies.
class Factors {
public:
  Factors(const Tensor &packed, bool hermitian, const Tensor &second)
      : ctx_(packed.ctx()), a_(packed), second_(second), batch_(batchOf(packed)), hermitian_(hermitian), n_(rowsOf(packed)), moved_(rows()), left_(rows()), right_(rows()) {}
  /// What is decided of column j, and done.
  Choice step(Expr j) {
    const Choice block = chooseBlock(a_, hermitian_, second_, j);
    exchange(block, j);
    eliminate(block, j);
    return block;
  }

private:
  Rows rows() { return {lower::place(ctx_, a_.dtype(), extended(batch_, n_)), lower::place(ctx_, a_.dtype(), extended(batch_, n_))}; }
  Complex element(BodyBuilder &b, const Index &i, Expr r, Expr c) const { return lowerElement(b, a_, hermitian_, i, r, c); }
  Val isActive(BodyBuilder &b, const Choice &block, const Index &i) const { return eq(block.second.at(b, i), 0.0) && eq(block.idle.at(b, i), 0.0); }
  void exchange(const Choice &block, Expr j);
  void eliminate(const Choice &block, Expr j);

  Lowering &ctx_;
  Tensor a_, second_;
  Sizes batch_;
  bool hermitian_;
  int64_t n_;
  Rows moved_, left_, right_;
};

/// The block's last row and column change places with the chosen ones.
void Factors::exchange(const Choice &block, Expr j) {
  auto places = [=, this](BodyBuilder &b, const Index &i) {
    const Val active = isActive(b, block, i), here = b.index(j);
    return std::pair{where(active, here + block.two.at(b, i), here), where(active, block.other.at(b, i), here)};
  };
  const Sizes rest = extended(batch_, n_ - j);
  ctx_.storeMany(rest, [&](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 1);
    const Expr e = j + at.back();
    const auto [last, other] = places(b, i);
    const Val here = b.index(e);
    const Expr from = row(b, where(eq(here, last), other, where(eq(here, other), last, here)), n_);
    std::vector<Lowering::Placed> out;
    place(out, moved_.own, extended(i, e), element(b, i, row(b, other, n_), from));
    place(out, moved_.other, extended(i, e), element(b, i, row(b, last, n_), from));
    return out;
  });
  ctx_.storeMany(rest, [&](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 1);
    const Expr e = j + at.back();
    const auto [last, other] = places(b, i);
    std::vector<Lowering::Placed> out;
    for (const auto &[place0, x] : {std::pair{last, moved_.own}, std::pair{other, moved_.other}}) {
      const Expr r = row(b, place0, n_);
      const Complex v = numberAt(b, x, extended(i, e));
      // Only what is below the diagonal is kept.
      place(out, a_, extended(extended(i, max(r, e)), min(r, e)), where(b.compare(OpKind::Lt, r, e), mirrored(v, hermitian_), v));
    }
    return out;
  });
}

/// The block's part is taken from what is right of it.
void Factors::eliminate(const Choice &block, Expr j) {
  const Expr after = min(j + 1, n_ - 1);
  ctx_.storeMany(extended(batch_, n_ - j), [&](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 1);
    const Expr r = j + at.back();
    const Val active = isActive(b, block, i), two = active && ne(block.two.at(b, i), 0.0);
    const Complex rj = element(b, i, r, j), ra = element(b, i, r, after), d = element(b, i, j, j);
    const Complex zero{num(d.re, 0), {}}, one{num(d.re, 1), {}};
    // Two rows: the inverse of [d, e; e, f], with e drawn out; of [d, e^H; e, f], with the length of e.
    const Complex e = element(b, i, after, j), by = hermitian_ ? Complex{lengthOf(e), {}} : e;
    const Complex f = element(b, i, after, after) / by, g = d / by, t = one / (f * g - one) / by;
    auto turned = [&](Complex v) { return hermitian_ ? e / by * v : v; };
    auto turnedBack = [&](Complex v) { return hermitian_ ? conjugate(e / by) * v : v; };
    const Index to = extended(i, r);
    std::vector<Lowering::Placed> out;
    place(out, left_.own, to, where(two, t * (f * rj - turned(ra)), where(active, rj / d, zero)));
    place(out, left_.other, to, where(two, t * (g * ra - turnedBack(rj)), zero));
    place(out, right_.own, to, where(active, rj, zero));
    place(out, right_.other, to, where(two, ra, zero));
    return out;
  });
  ctx_.storeMany(extended(extended(batch_, n_ - j), n_ - j), [&](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 2);
    const Expr r = j + at[at.size() - 2], c = j + at.back();
    const Index to = extended(extended(i, r), c), ofRow = extended(i, r), ofColumn = extended(i, c);
    const Val active = isActive(b, block, i), two = active && ne(block.two.at(b, i), 0.0);
    const Complex own = numberAt(b, a_, to), first = numberAt(b, left_.own, ofRow), second = numberAt(b, left_.other, ofRow);
    const Complex rest = own - first * mirrored(numberAt(b, right_.own, ofColumn), hermitian_) - second * mirrored(numberAt(b, right_.other, ofColumn), hermitian_);
    const Val isFirst = b.compare(OpKind::Eq, c, j), isSecond = two && b.compare(OpKind::Eq, c, j + 1);
    const Val under = active && b.compare(OpKind::Gt, r, j) && !(two && b.compare(OpKind::Eq, r, j + 1));
    const Complex factor = where(under, where(isSecond, second, first), own);
    const Complex reduced = hermitian_ ? where(b.compare(OpKind::Eq, r, c), real(rest.re), rest) : rest;
    std::vector<Lowering::Placed> out;
    place(out, a_, to, where(!active || b.compare(OpKind::Lt, r, c), own, where(isFirst || isSecond, factor, reduced)));
    return out;
  });
}

Symmetric factored(const Tensor &given, bool hermitian) {
  Lowering &ctx = given.ctx();
  const Sizes batch = batchOf(given);
  const int64_t n = rowsOf(given);
  const Tensor x = source(given);
  const Symmetric out{carry(numbers(ctx, x.dtype(), x.sizes(), [=](BodyBuilder &b, const Index &at) {
                        const Complex v = numberAt(b, x, at), diagonal = hermitian ? real(v.re) : v;
                        const Expr r = at[at.size() - 2], c = at.back();
                        return where(b.compare(OpKind::Gt, r, c), v, where(b.compare(OpKind::Eq, r, c), diagonal, Complex{num(v.re, 0), {}}));
                      })),
                      carry(fullInt(ctx, extended(batch, n), DType::I32, 0)), carry(fullInt(ctx, batch, DType::I32, 0))};
  const Tensor second = carry(fullInt(ctx, batch, DType::I64, 0));
  Factors factors(out.packed, hermitian, second);
  forTurns(ctx, n, [&](Expr j) {
    const Choice block = factors.step(j);
    put(Tensor::lazy(ctx, DType::I32, out.pivots.sizes(), [=](BodyBuilder &b, const Index &at) {
          const Index i(at.begin(), at.end() - 1);
          const Val old = out.pivots.at(b, at), two = ne(block.two.at(b, i), 0.0), number = block.other.at(b, i) + 1.0;
          const Val takes = b.compare(OpKind::Eq, at.back(), j) || (two && b.compare(OpKind::Eq, at.back(), j + 1));
          return where(takes && eq(second.at(b, i), 0.0), b.cast(where(two, -number, number), DType::I32), old);
        }),
        out.pivots);
    put(Tensor::lazy(ctx, DType::I32, batch, [=](BodyBuilder &b, const Index &i) {
          const Val old = out.info.at(b, i), nothing = ne(block.idle.at(b, i), 0.0) && eq(second.at(b, i), 0.0);
          return where(nothing && eq(old, 0.0), b.cast(b.index(j + 1), DType::I32), old);
        }),
        out.info);
    put(Tensor::lazy(ctx, DType::I64, batch, [=](BodyBuilder &b, const Index &i) {
          const Val was = second.at(b, i);
          return where(ne(was, 0.0), num(was, 0), block.two.at(b, i));
        }),
        second);
  });
  return out;
}

/// Which rows are the second of a block, [..., n] I64.
Tensor secondRows(const Tensor &pivots) {
  Lowering &ctx = pivots.ctx();
  const Tensor out = carry(fullInt(ctx, pivots.sizes(), DType::I64, 0));
  forTurns(ctx, pivots.size(-1) - 1, [&](Expr j) {
    const Sizes batch(pivots.sizes().begin(), pivots.sizes().end() - 1);
    const Tensor now = Tensor::lazy(ctx, DType::I64, batch, [=](BodyBuilder &b, const Index &i) {
      return b.cast(pivots.at(b, extended(i, j)) < 0.0 && eq(out.at(b, extended(i, j)), 0.0), DType::I64);
    }).realize();
    put(Tensor::lazy(ctx, DType::I64, out.sizes(), [=](BodyBuilder &b, const Index &at) {
          return where(b.compare(OpKind::Eq, at.back(), j + 1), now.at(b, Index(at.begin(), at.end() - 1)), out.at(b, at));
        }),
        out);
  });
  return out;
}

/// Steps of sytrs or hetrs on the columns of x, in place: L downwards, D, then L^T or L^H upwards.
class Solver {
public:
  Solver(const Tensor &packed, bool hermitian, const Tensor &pivots, const Tensor &x)
      : ctx_(x.ctx()), a_(packed), pivots_(pivots), second_(secondRows(pivots)), x_(carry(x)), batch_(batchOf(x)), columns_(x.size(-1)), hermitian_(hermitian), n_(rowsOf(packed)) {
    for (Tensor &head : heads_) head = lower::place(ctx_, x_.dtype(), extended(batch_, columns_));
  }
  Tensor solve() {
    forTurns(ctx_, n_, [this](Expr j) { down(j); });
    put(divided(), x_);
    forTurns(ctx_, n_, [this](Expr turn) { up(n_ - 1 - turn); });
    return x_;
  }

private:
  Val isSecond(BodyBuilder &b, const Index &i, Expr j) const { return ne(second_.at(b, extended(i, j)), 0.0); }
  Val isFirst(BodyBuilder &b, const Index &i, Expr j) const { return pivots_.at(b, extended(i, j)) < 0.0 && !isSecond(b, i, j); }
  /// The block's last row and the one that it changes places with; j and j for the second of a block, which has done so already.
  std::pair<Val, Val> places(BodyBuilder &b, const Index &i, Expr j) const {
    const Val here = b.index(j), last = where(isFirst(b, i, j), b.index(min(j + 1, n_ - 1)), here);
    const Val other = b.cast(un(OpKind::Abs, pivots_.at(b, extended(i, j))), DType::I64) - 1.0;
    return {last, where(isSecond(b, i, j), here, other)};
  }
  void down(Expr j);
  void up(Expr j);
  Tensor divided() const;

  Lowering &ctx_;
  Tensor a_, pivots_, second_, x_;
  Sizes batch_;
  Expr columns_;
  bool hermitian_;
  int64_t n_;
  // Rows j and j + 1 of x once they are exchanged.
  Tensor heads_[2];
};

/// Rows change places; then those below the block lose what they have of it.
void Solver::down(Expr j) {
  const Expr after = min(j + 1, n_ - 1);
  ctx_.storeMany(extended(batch_, columns_), [=, this](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 1);
    const auto [last, other] = places(b, i, j);
    const Expr lastRow = row(b, last, n_), otherRow = row(b, other, n_);
    const Complex atLast = numberOf(b, x_, i, lastRow, at.back()), atOther = numberOf(b, x_, i, otherRow, at.back());
    auto now = [&](Expr e) {
      const Val here = b.index(e);
      return where(eq(here, last), atOther, where(eq(here, other), atLast, numberOf(b, x_, i, e, at.back())));
    };
    std::vector<Lowering::Placed> out;
    place(out, heads_[0], at, now(j)), place(out, heads_[1], at, now(after));
    place(out, x_, extended(extended(i, lastRow), at.back()), atOther), place(out, x_, extended(extended(i, otherRow), at.back()), atLast);
    return out;
  });
  ctx_.storeMany(extended(extended(batch_, n_ - j), columns_), [=, this](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 2);
    const Expr r = j + at[at.size() - 2], c = at.back();
    const Index to = extended(extended(i, r), c), column = extended(i, c);
    const Complex here = numberAt(b, x_, to), single = here - numberOf(b, a_, i, r, j) * numberAt(b, heads_[0], column);
    const Complex block = single - numberOf(b, a_, i, r, after) * numberAt(b, heads_[1], column);
    const Val first = isFirst(b, i, j), above = b.compare(OpKind::Le, r, j) || (first && b.compare(OpKind::Eq, r, j + 1));
    std::vector<Lowering::Placed> out;
    place(out, x_, to, where(above || isSecond(b, i, j), here, where(first, block, single)));
    return out;
  });
}

/// D^-1 x.
Tensor Solver::divided() const {
  return numberMatrixOf(ctx_, x_.dtype(), batch_, n_, columns_, [*this](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    const Val second = isSecond(b, i, r), here = b.index(r), begins = where(second, here - 1.0, here);
    const Expr j = row(b, begins, n_), after = row(b, vmin(begins + 1.0, num(begins, static_cast<double>(n_ - 1))), n_);
    auto diagonal = [&](Expr y) { return hermitian_ ? Complex{numberOf(b, a_, i, y, y).re, {}} : numberOf(b, a_, i, y, y); };
    const Complex e = numberOf(b, a_, i, after, j), above = mirrored(e, hermitian_), f = diagonal(after) / e, g = diagonal(j) / above, product = f * g,
                  whole = product - Complex{num(product.re, 1), {}}, u = numberOf(b, x_, i, j, c) / above, v = numberOf(b, x_, i, after, c) / e;
    return where(second, (g * v - u) / whole, where(isFirst(b, i, r), (f * u - v) / whole, numberOf(b, x_, i, r, c) / diagonal(r)));
  });
}

/// Row j loses what the rows below its block have of it; then the rows of the block go back to where they were.
void Solver::up(Expr j) {
  const Tensor along = sumOfNumbers(ctx_, x_.dtype(), extended(batch_, columns_), n_ - j, [=, this](BodyBuilder &b, const Index &at, Expr k) {
    const Index i(at.begin(), at.end() - 1);
    const Complex product = mirrored(numberOf(b, a_, i, j + k, j), hermitian_) * numberOf(b, x_, i, j + k, at.back());
    const Val under = b.compare(OpKind::Gt, k, 0) && !(isFirst(b, i, j) && b.compare(OpKind::Eq, k, 1));
    return where(under, product, Complex{num(product.re, 0), {}});
  });
  ctx_.storeMany(extended(batch_, columns_), [=, this](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 1);
    std::vector<Lowering::Placed> out;
    place(out, x_, extended(extended(i, j), at.back()), numberOf(b, x_, i, j, at.back()) - numberAt(b, along, at));
    return out;
  });
  ctx_.storeMany(extended(batch_, columns_), [=, this](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 1);
    const auto [last, other] = places(b, i, j);
    const Expr lastRow = row(b, last, n_), otherRow = row(b, other, n_);
    const Complex atLast = numberOf(b, x_, i, lastRow, at.back()), atOther = numberOf(b, x_, i, otherRow, at.back());
    std::vector<Lowering::Placed> out;
    place(out, x_, extended(extended(i, lastRow), at.back()), atOther), place(out, x_, extended(extended(i, otherRow), at.back()), atLast);
    return out;
  });
}

Tensors factorOp(OpCall &o) {
  const Tensor a = o.t("self");
  if (std::string why = anyConstSizeFault(a); !why.empty()) return o.fail(why);
  Tensors out;
  if (rowsOf(a) == 0) {
    for (size_t k = 0; k < o.outCount(); ++k) out.push_back(full(o.ctx, o.out(k).sizes, o.out(k).dtype, 0));
    return out;
  }
  const Symmetric f = factored(a, a.isComplex() && o.flag("hermitian"));
  out = {f.packed, f.pivots};
  if (o.outCount() > 2) out.push_back(f.info);
  return out;
}

Tensors solveOp(OpCall &o) {
  const Tensor packed = o.t("LD"), b = o.t("B");
  if (std::string why = anyConstSizeFault(packed); !why.empty()) return o.fail(why);
  const Sizes &sizes = o.out().sizes;
  if (rowsOf(packed) == 0) return {full(o.ctx, sizes, o.out().dtype, 0)};
  Sizes batch(sizes.begin(), sizes.end() - 2), ofMatrix = batch, ofPivots = batch;
  ofMatrix.push_back(packed.size(-2)), ofMatrix.push_back(packed.size(-1)), ofPivots.push_back(packed.size(-1));
  return {Solver(source(broadcastTo(packed, ofMatrix)), packed.isComplex() && o.flag("hermitian"), source(broadcastTo(o.t("pivots"), ofPivots)), broadcastTo(b, sizes)).solve()};
}

} // namespace

void addLdl(OpTable &t) {
  t.add("linalg_ldl_factor.default linalg_ldl_factor_ex.default", factorOp);
  t.add("linalg_ldl_solve.default", solveOp);
  t.onComplex(OnComplex::Own, "linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve");
}

} // namespace neso::lower
