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

/// a with rows and columns exchanged and the block's part taken from what is right of it.
Tensor eliminated(const Tensor &a, bool hermitian, const Choice &block, Expr j) {
  const int64_t n = rowsOf(a);
  const Expr after = min(j + 1, n - 1);
  return numbers(a.ctx(), a.dtype(), a.sizes(), [=](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 2);
    const Expr r = at[at.size() - 2], c = at.back();
    const Val done = ne(block.second.at(b, i), 0.0), two = ne(block.two.at(b, i), 0.0), idle = ne(block.idle.at(b, i), 0.0);
    const Val other = block.other.at(b, i), last = b.index(j) + block.two.at(b, i);
    auto from = [&](Expr e) {
      const Val here = b.index(e);
      return row(b, where(eq(here, last), other, where(eq(here, other), last, here)), n);
    };
    const Expr fr = from(r), fc = from(c), fj = from(j), fa = from(after);
    auto element = [&](Expr x, Expr y) { return lowerElement(b, a, hermitian, i, x, y); };
    auto across = [&](Complex v) { return mirrored(v, hermitian); };
    const Complex own = numberOf(b, a, i, r, c), moved = element(fr, fc), rj = element(fr, fj), cj = element(fc, fj), d = element(fj, fj);
    // One row.
    const Val isJ = b.compare(OpKind::Eq, c, j), under = b.compare(OpKind::Gt, r, j);
    const Complex single = where(isJ, where(under, rj / d, moved), moved - rj / d * across(cj));
    // Two: the inverse of [d, e; e, f], with e drawn out; of [d, e^H; e, f], with the length of e.
    const Complex e = element(fa, fj), by = hermitian ? Complex{lengthOf(e), {}} : e;
    const Complex f = element(fa, fa) / by, g = d / by, whole = f * g, t = Complex{num(whole.re, 1), {}} / (whole - Complex{num(whole.re, 1), {}}) / by;
    const Complex ra = element(fr, fa), ca = element(fc, fa);
    auto turned = [&](Complex v) { return hermitian ? e / by * v : v; };
    auto turnedBack = [&](Complex v) { return hermitian ? conjugate(e / by) * v : v; };
    auto first = [&](Complex xj, Complex xa) { return t * (f * xj - turned(xa)); };
    auto second = [&](Complex xj, Complex xa) { return t * (g * xa - turnedBack(xj)); };
    const Val isAfter = b.compare(OpKind::Eq, c, j + 1), deep = b.compare(OpKind::Gt, r, j + 1);
    const Complex pair = where(isJ || isAfter, where(deep, where(isJ, first(rj, ra), second(rj, ra)), moved),
                               moved - rj * across(first(cj, ca)) - ra * across(second(cj, ca)));
    const Val keeps = done || idle || b.compare(OpKind::Lt, c, j) || b.compare(OpKind::Lt, r, c);
    const Complex next = where(two, pair, single);
    return where(keeps, own, hermitian ? where(b.compare(OpKind::Eq, r, c), real(next.re), next) : next);
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
  forTurns(ctx, n, [&](Expr j) {
    const Choice block = chooseBlock(out.packed, hermitian, second, j);
    const Tensor next = eliminated(out.packed, hermitian, block, j).realize();
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
    put(next, out.packed);
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

/// Steps of sytrs or hetrs on the columns of x: L and D downwards, then L^T or L^H upwards.
class Solver {
public:
  Solver(const Tensor &packed, bool hermitian, const Tensor &pivots, const Tensor &x)
      : a_(packed), pivots_(pivots), second_(secondRows(pivots)), x_(carry(x)), hermitian_(hermitian), n_(rowsOf(packed)) {}
  Tensor solve() {
    forTurns(x_.ctx(), n_, [this](Expr j) { step([=, this](BodyBuilder &b, const Index &i, Expr r, Expr c) { return down(b, i, r, c, j); }); });
    forTurns(x_.ctx(), n_, [this](Expr turn) { up(n_ - 1 - turn); });
    return x_;
  }

private:
  void step(const NumberMatrixFn &fn) { put(numberMatrixOf(x_.ctx(), x_.dtype(), batchOf(x_), x_.size(-2), x_.size(-1), fn), x_); }
  Val isSecond(BodyBuilder &b, const Index &i, Expr j) const { return ne(second_.at(b, extended(i, j)), 0.0); }
  Val isPair(BodyBuilder &b, const Index &i, Expr j) const { return pivots_.at(b, extended(i, j)) < 0.0; }
  Val other(BodyBuilder &b, const Index &i, Expr j) const {
    return b.cast(un(OpKind::Abs, pivots_.at(b, extended(i, j))), DType::I64) - 1.0;
  }
  /// Row e of x after rows `at` and `other` changed places.
  Complex exchanged(BodyBuilder &b, const Index &i, Expr e, Expr c, Val at, Val other) const {
    const Val here = b.index(e);
    return numberOf(b, x_, i, row(b, where(eq(here, at), other, where(eq(here, other), at, here)), n_), c);
  }
  Complex down(BodyBuilder &b, const Index &i, Expr r, Expr c, Expr j) const {
    const Expr after = min(j + 1, n_ - 1);
    const Val pair = isPair(b, i, j), at = where(pair, b.index(after), b.index(j)), p = other(b, i, j);
    auto x = [&](Expr e) { return exchanged(b, i, e, c, at, p); };
    auto a = [&](Expr y, Expr z) { return numberOf(b, a_, i, y, z); };
    auto diagonal = [&](Expr y) { return hermitian_ ? Complex{a(y, y).re, {}} : a(y, y); };
    const Complex here = x(r), xj = x(j), xa = x(after);
    const Val isJ = b.compare(OpKind::Eq, r, j), isAfter = b.compare(OpKind::Eq, r, j + 1);
    const Complex single = where(isJ, here / diagonal(j), where(b.compare(OpKind::Gt, r, j), here - a(r, j) * xj, here));
    const Complex e = a(after, j), above = mirrored(e, hermitian_), f = diagonal(after) / e, g = diagonal(j) / above, product = f * g,
                  whole = product - Complex{num(product.re, 1), {}}, u = xj / above, v = xa / e;
    const Complex rest = here - a(r, j) * xj - a(r, after) * xa;
    const Complex block = where(isJ, (f * u - v) / whole, where(isAfter, (g * v - u) / whole, where(b.compare(OpKind::Gt, r, j + 1), rest, here)));
    return where(isSecond(b, i, j), numberOf(b, x_, i, r, c), where(pair, block, single));
  }
  /// Row j loses what the rows below its block have of it; then the rows of the block go back to where they were.
  void up(Expr j) {
    Sizes sizes = batchOf(x_);
    sizes.push_back(x_.size(-1));
    const Tensor along = sumOfNumbers(x_.ctx(), x_.dtype(), sizes, n_, [=, this](BodyBuilder &b, const Index &at, Expr k) {
      const Index i(at.begin(), at.end() - 1);
      const Val first = isPair(b, i, j) && !isSecond(b, i, j);
      const Complex product = mirrored(numberOf(b, a_, i, k, j), hermitian_) * numberOf(b, x_, i, k, at.back());
      const Val under = b.compare(OpKind::Gt, k, j) && !(first && b.compare(OpKind::Eq, k, j + 1));
      return where(under, product, Complex{num(product.re, 0), {}});
    });
    step([=, this](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      const Complex x = numberOf(b, x_, i, r, c);
      return where(b.compare(OpKind::Eq, r, j), x - numberAt(b, along, extended(i, c)), x);
    });
    step([=, this](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      const Val first = isPair(b, i, j) && !isSecond(b, i, j), second = isSecond(b, i, j);
      const Val at = where(first, b.index(min(j + 1, n_ - 1)), b.index(j)), p = other(b, i, j);
      return where(second, numberOf(b, x_, i, r, c), exchanged(b, i, r, c, at, p));
    });
  }

  Tensor a_, pivots_, second_, x_;
  bool hermitian_;
  int64_t n_;
};

Tensors factorOp(OpCall &o) {
  const Tensor a = o.t("self");
  if (std::string why = numberFault(a); !why.empty()) return o.fail(why);
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
  if (std::string why = numberFault(packed); !why.empty()) return o.fail(why);
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
