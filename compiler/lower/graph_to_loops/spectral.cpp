// Eigenvalues of symmetric matrices and singular values, by Jacobi's method in float64; those of larger matrices of known size are in symmetric_turns.h.
//
// A sweep visits every pair of columns once, in rounds of disjoint pairs (the order of a round-robin tournament), so
// that one round is a few loop nests over the whole matrix: the rotations of all pairs, then their effect.
//
// The sweeps work on what two QR factorisations leave of the matrix. These order it by magnitude and bring it near a diagonal
// where its values are far apart, which is where Jacobi's method by itself is slow: of matrices like exp(-(x_i - x_j)^2), whose
// values fall by powers of ten, it leaves columns of small values far from orthogonal after any usual number of sweeps.
#include <cmath>

#include "lower/graph_to_loops/linalg.h"
#include "lower/graph_to_loops/symmetric_turns.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

/// Of more columns Jacobi's method takes more time than symmetric_turns.h.
constexpr int64_t kMostRotated = 32;

namespace {
/// Sweeps after which nothing is left that results of type t can show, measured on matrices of 2 to 64 columns: random, orthogonal, of low rank, with
/// values that fall by powers of ten or stand close together. Convergence is quadratic in the end.
int sweepsFor(int64_t columns, DType t, bool eigenvalues) {
  int bits = 0;
  while ((int64_t(1) << bits) < columns) ++bits;
  return bits + (t == DType::F32 ? 2 : eigenvalues ? 5 : 3);
}
} // namespace

/// For each round of a tournament of n players the partner of each (itself, if it rests), as constants I64 [n].
static Tensors tournament(Lowering &ctx, int64_t n) {
  int64_t players = n + n % 2;
  Tensors out;
  for (int64_t round = 0; round + 1 < players; ++round) {
    std::vector<int64_t> partner(static_cast<size_t>(n));
    // The last player stays; the others turn in a circle.
    auto seat = [&](int64_t k) { return k == players - 1 ? k : (k + round) % (players - 1); };
    for (int64_t k = 0; k < players / 2; ++k) {
      int64_t a = k == 0 ? players - 1 : seat(k), b = k == 0 ? seat(0) : seat(players - 1 - k);
      if (a < n) partner[static_cast<size_t>(a)] = b < n ? b : a;
      if (b < n) partner[static_cast<size_t>(b)] = a < n ? a : b;
    }
    std::vector<uint8_t> bytes(partner.size() * 8);
    std::copy(partner.begin(), partner.end(), reinterpret_cast<int64_t *>(bytes.data()));
    out.push_back(ctx.addConstant(DType::I64, {Expr(n)}, std::move(bytes)));
  }
  return out;
}

/// Coefficients of one round: column k becomes keep[k] * column k + mix[k] * column partner(k). Of complex matrices, mix is complex.
struct Rotation {
  Tensor keep, mix;
};

DType wideType(const Tensor &a) { return a.isComplex() ? DType::C128 : DType::F64; }

/// What the rotation of columns p < q goes by: the diagonal entries alpha of p and beta of q, and the one that it annihilates, in row p and column q.
struct Entries {
  Val alpha, beta;
  Complex cross;
};
using EntriesFn = std::function<Entries(BodyBuilder &, const Index &batch, Expr p, Expr q)>;

/// The rotation of each pair. A complex cross is a length with a phase: column q is turned by the phase first, then all is as with real numbers, and
/// it is turned back.
static Rotation rotationOf(Lowering &ctx, DType t, const Sizes &batch, Expr n, const Tensor &partner, const EntriesFn &entries) {
  Sizes sizes = batch;
  sizes.push_back(n);
  auto coefficient = [&](bool keep) {
    return numbers(ctx, keep ? DType::F64 : t, sizes,
                   [=](BodyBuilder &b, const Index &i) {
                     Index at(i.begin(), i.end() - 1);
                     Val mine = b.index(i.back()), other = partner.at(b, {i.back()});
                     Expr p = b.indirect(vmin(mine, other), n, false, false),
                          q = b.indirect(vmax(mine, other), n, false, false);
                     auto [alpha, beta, cross] = entries(b, at, p, q);
                     const Val length = cross.isReal() ? cross.re : lengthOf(cross);
                     Val zeta = (beta - alpha) / (length * 2.0);
                     Val tangent = where(zeta >= 0.0, num(zeta, 1), num(zeta, -1)) /
                                   (un(OpKind::Abs, zeta) + un(OpKind::Sqrt, zeta * zeta + 1.0));
                     const Val none = eq(length, 0.0), idle = none || eq(mine, other);
                     tangent = where(idle, num(zeta, 0), tangent);
                     Val cosine = 1.0 / un(OpKind::Sqrt, tangent * tangent + 1.0);
                     if (keep) return Complex{cosine, {}};
                     const Val sine = where(mine < other, -(tangent * cosine), tangent * cosine);
                     if (cross.isReal()) return Complex{sine, {}};
                     const Complex phase = cross / where(none, num(length, 1), length);
                     return where(mine < other, conjugate(phase), phase) * sine;
                   })
        .realize();
  };
  return {coefficient(true), coefficient(false)};
}

static Tensor rotateColumns(const Tensor &a, const Rotation &turn, const Tensor &partner) {
  const Expr n = a.size(-1);
  return numberMatrixOf(a.ctx(), a.dtype(), batchOf(a), a.size(-2), n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    Index at = i;
    at.push_back(c);
    return numberOf(b, a, i, r, c) * turn.keep.at(b, at) +
           numberAt(b, turn.mix, at) * numberOf(b, a, i, r, b.indirect(partner.at(b, {c}), n, false, false));
  });
}

/// Columns of a in the order of positions [..., n].
static Tensor takeColumns(const Tensor &a, const Tensor &order) {
  const Expr n = a.size(-1);
  return numberMatrixOf(a.ctx(), a.dtype(), batchOf(a), a.size(-2), order.size(-1),
                        [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
                          Index at = i;
                          at.push_back(c);
                          return numberOf(b, a, i, r, b.indirect(order.at(b, at), n, false, false));
                        });
}

namespace {
struct Eigen {
  Tensor values, vectors;
};
} // namespace

static Tensor adjointOf(const Tensor &a) { return transpose(conjugateOf(a), -2, -1); }

/// The symmetric, or Hermitian, matrix in one triangle of a.
static Tensor symmetricOf(const Tensor &a0, bool upper, DType t) {
  Tensor a = source(cast(a0, t));
  return numberMatrixOf(a.ctx(), t, batchOf(a), a.size(-2), a.size(-1), [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    Expr lo = min(r, c), hi = max(r, c);
    const Complex v = numberOf(b, a, i, upper ? lo : hi, upper ? hi : lo);
    if (v.isReal()) return v;
    const Complex other = where(b.compare(OpKind::Eq, r, c), real(v.re), conjugate(v));
    return where(b.compare(upper ? OpKind::Lt : OpKind::Gt, r, c), v, other);
  });
}

/// R of a factorisation of a tall matrix, without the rows of zeros.
static Tensor triangleOf(const Reflectors &h) {
  const Tensor &x = h.packed;
  const Expr n = x.size(-1);
  return numberMatrixOf(x.ctx(), x.dtype(), batchOf(x), n, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    const Complex v = numberOf(b, x, i, r, c);
    return where(b.compare(OpKind::Le, r, c), v, Complex{num(v.re, 0), {}});
  });
}

/// A matrix that two factorisations have brought near a diagonal one: a = Q R becomes R Q = Q^H a Q, twice.
namespace {
struct Ordered {
  Tensor matrix;
  std::vector<Reflectors> by;
  explicit Ordered(const Tensor &a) : matrix(a) {
    for (int step = 0; step < 2; ++step) {
      by.push_back(reflectorsOf(matrix));
      matrix = symmetricOf(adjointOf(applyReflectors(by.back(), adjointOf(triangleOf(by.back())), true)), false, a.dtype());
    }
  }
  /// What stands on the diagonal of x [..., n, n], ascending, and the vectors of a that belong to it where those of `matrix` are the columns of v.
  Eigen sorted(const Tensor &x, const Tensor &v) const {
    const Tensor diagonal = remap(x.real(), extended(batchOf(x), x.size(-1)), [](const Index &i) { return extended(i, i.back()); });
    auto [values, order] = x.ctx().sort(diagonal, diagonal.rank() - 1, false);
    Tensor vectors = takeColumns(v, order);
    for (size_t k = by.size(); k-- > 0;) vectors = applyReflectors(by[k], vectors, false);
    return {values, vectors};
  }
};
} // namespace

/// A round of rotations of a matrix, and of the vectors so far.
static void rotate(Tensor &x, Tensor &v, const Tensor &partner) {
  const Rotation turn = rotationOf(x.ctx(), x.dtype(), batchOf(x), x.size(-1), partner, [x](BodyBuilder &b, const Index &i, Expr p, Expr q) {
    const Tensor diagonal = x.real();
    return Entries{elementOf(b, diagonal, i, p, p), elementOf(b, diagonal, i, q, q), numberOf(b, x, i, p, q)};
  });
  x = adjointOf(rotateColumns(adjointOf(rotateColumns(x, turn, partner)), turn, partner));
  v = rotateColumns(v, turn, partner);
}

/// The partner of each of n players in a round of a tournament (itself, if it rests), where n is not known. Those of an odd number of players sum up to
/// the round, modulo that number; whoever would be its own partner meets the one beyond, if there is one.
static Tensor partnersIn(Lowering &ctx, Expr round, Expr n, Expr odd) {
  return Tensor::lazy(ctx, DType::I64, {n}, [=](BodyBuilder &b, const Index &i) {
           const Val own = b.index(i[0]), last = b.index(odd), turn = b.index(round), beyond = b.index(n) - 1.0;
           const Val other = bin(OpKind::Mod, turn + last - own, last), left = bin(OpKind::Mod, turn * bin(OpKind::FloorDiv, last + 1.0, num(last, 2)), last);
           return where(own < last, where(eq(other, own), where(beyond < last, own, beyond), other), left);
         })
      .realize();
}

/// Of a matrix whose size is not known, sweeps until one more leaves nothing beside the diagonal.
static Eigen eigenInSweeps(const Tensor &a) {
  constexpr double kNearlyDone = 0x1p-80; // of squares
  constexpr int64_t kMostSweeps = 60; // about ten are usual
  Lowering &ctx = a.ctx();
  const Expr n = a.size(-1), odd = n - 1 + mod(n, 2);
  const Ordered ordered(a);
  const Tensor x = carry(ordered.matrix), v = carry(identityMatrix(a, n, n)), sweeps = carry(full(ctx, {}, DType::F64, 0));
  auto sweep = [&] {
    forTurns(ctx, odd, [&](Expr round) {
      Tensor nextX = x, nextV = v;
      rotate(nextX, nextV, partnersIn(ctx, round, n, odd));
      putAll({nextX, nextV}, {x, v});
    });
    put(addNumber(sweeps, 1).realize(), sweeps);
  };
  auto isOpen = [&] {
    auto squares = [&](bool beside) {
      return ctx.reduce(loops::ReduceKind::Sum, DType::F64, batchOf(x), {n, n}, [=](BodyBuilder &b, const Index &i, const Index &r) {
        const Val square = squareOf(numberOf(b, x, i, r[0], r[1]));
        return beside ? where(b.compare(OpKind::Ne, r[0], r[1]), square, 0.0) : square;
      })[0];
    };
    const Tensor beside = squares(true), all = squares(false);
    return ctx.reduce(loops::ReduceKind::Any, DType::Bool, {}, batchOf(x), [=](BodyBuilder &b, const Index &, const Index &r) {
      return beside.at(b, r) > all.at(b, r) * kNearlyDone && sweeps.at(b, {}) < static_cast<double>(kMostSweeps);
    })[0];
  };
  whileTrue(ctx, isOpen, sweep);
  ctx.demand(lt(ctx.read(cast(sweeps, DType::I64).realize()), kMostSweeps), fmt::format("the eigenvalues have not converged in {} sweeps", kMostSweeps));
  sweep();
  return ordered.sorted(x, v);
}

/// Of the symmetric or Hermitian matrix in one triangle of a; values ascend.
static Eigen eigenOf(const Tensor &a0, bool upper) {
  const ScaledMatrix scaled(symmetricOf(a0, upper, wideType(a0)));
  const std::optional<int64_t> n = a0.size(-1).asConst();
  if (!n) {
    const Eigen e = eigenInSweeps(scaled.matrix);
    return {scaled.back(e.values), e.vectors};
  }
  if (*n > kMostRotated) {
    const HermitianEigen e = hermitianInTurns(scaled.matrix, true);
    return {scaled.back(e.values), e.vectors};
  }
  const Ordered ordered(scaled.matrix);
  Tensor x = ordered.matrix, v = identityMatrix(x, *n, *n).realize();
  const Tensors rounds = tournament(a0.ctx(), *n);
  for (int sweep = 0; sweep < sweepsFor(*n, toReal(a0.dtype()), true); ++sweep)
    for (const Tensor &partner : rounds) rotate(x, v, partner);
  const Eigen e = ordered.sorted(x, v);
  return {scaled.back(e.values), e.vectors};
}

/// A matrix Q1 L Q2^H. Of float32 the right vectors are those of L^H L, and L V, made orthonormal, are the left ones: what is lost is below the last bit
/// of the largest value. In general L = U H, where H has the singular values as eigenvalues and vectors that Q2 turns into the right ones (Nakatsukasa and Higham:
/// Stable and efficient spectral divide and conquer algorithms, SIAM J. Sci. Comput. 35, 2013). L's columns are ordered by magnitude, without
/// which the iteration is not stable (it would ask for pivots).
static Singular singularInTurns(const ScaledMatrix &scaled, const Reflectors &first, int64_t m, int64_t n, DType of) {
  const Reflectors second = reflectorsOf(adjointOf(triangleOf(first)));
  const bool squared = toReal(of) == DType::F32;
  const Tensor r = source(adjointOf(triangleOf(second))), u = squared ? r : polarFactor(r);
  const HermitianEigen e = hermitianInTurns(symmetricOf(matmul(adjointOf(u), r), false, r.dtype()), true);
  const Tensor values = map(flip(e.values, {-1}), [squared](Val v) {
                          const Val least = vmax(v, num(v, 0));
                          return squared ? un(OpKind::Sqrt, least) : least;
                        }).realize();
  const Tensor v = source(flip(e.vectors, {-1}));
  // Its columns are orthogonal but where L is singular: what the factorisation has there completes the basis.
  const Reflectors h = reflectorsOf(matmul(u, v));
  const Tensor basis = source(applyReflectors(h, identityMatrix(r, n, n), false)), diagonal = h.packed.real();
  auto left = [=](Expr width) {
    const Tensor embedded = numberMatrixOf(r.ctx(), r.dtype(), batchOf(r), m, width, [=](BodyBuilder &b, const Index &i, Expr row, Expr c) {
      const Expr within = min(c, Expr(n - 1));
      const Complex x = numberOf(b, basis, i, min(row, Expr(n - 1)), within);
      const Val turned = elementOf(b, diagonal, i, within, within) < 0.0;
      const Complex beside{b.cast(b.compare(OpKind::Eq, row, c), DType::F64), {}};
      return where(b.compare(OpKind::Lt, c, n), where(b.compare(OpKind::Lt, row, n), where(turned, -x, x), Complex{num(x.re, 0), {}}), beside);
    });
    return applyReflectors(first, embedded, false);
  };
  const Tensor av = numbers(r.ctx(), r.dtype(), extended(extended(batchOf(r), m), n), [=, u = source(left(n))](BodyBuilder &b, const Index &i) {
    return numberAt(b, u, i) * values.at(b, extended(Index(i.begin(), i.end() - 2), i.back()));
  });
  return {scaled.back(values), applyReflectors(second, v, false), scaled.back(av).realize(), left};
}

Singular singularOf(const Tensor &a0) {
  Lowering &ctx = a0.ctx();
  const int64_t m = rowsOf(a0), n = columnsOf(a0);
  const ScaledMatrix scaled(cast(a0, wideType(a0)));
  // A matrix Q1 R1 with R1^H = Q2 R2: with R2^H v = u s, it turns Q2 v into Q1 u s.
  const Reflectors first = reflectorsOf(scaled.matrix);
  if (n > kMostRotated) return singularInTurns(scaled, first, m, n, a0.dtype());
  const Reflectors second = reflectorsOf(adjointOf(triangleOf(first)));
  Tensor a = adjointOf(triangleOf(second)).realize();
  Tensor v = identityMatrix(a, n, n).realize();
  Sizes sizes = batchOf(a);
  sizes.push_back(n);
  Tensors rounds = tournament(ctx, n);
  // The squared lengths of the columns.
  auto squares = [&](const Tensor &m) {
    return sumOfNumbers(ctx, DType::F64, sizes, n, [=](BodyBuilder &b, const Index &i, Expr r) {
      return Complex{squareOf(numberOf(b, m, Index(i.begin(), i.end() - 1), r, i.back())), {}};
    });
  };
  // Their products with their partners: of the one that comes first, conjugated, with the other.
  auto crossesOf = [&](const Tensor &m, const Tensor &partner) {
    return sumOfNumbers(ctx, m.dtype(), sizes, n, [=](BodyBuilder &b, const Index &i, Expr r) {
      const Index batch(i.begin(), i.end() - 1);
      const Expr other = b.indirect(partner.at(b, {i.back()}), n, false, false);
      return conjugate(numberOf(b, m, batch, r, i.back())) * numberOf(b, m, batch, r, other);
    });
  };
  for (int sweep = 0; sweep < sweepsFor(n, toReal(a0.dtype()), false); ++sweep)
    for (const Tensor &partner : rounds) {
      Tensor norms = squares(a), crosses = crossesOf(a, partner);
      Rotation turn = rotationOf(ctx, a.dtype(), batchOf(a), n, partner, [=](BodyBuilder &b, const Index &i, Expr p, Expr q) {
        Index at = i, to = i;
        at.push_back(p), to.push_back(q);
        return Entries{norms.at(b, at), norms.at(b, to), numberAt(b, crosses, at)};
      });
      a = rotateColumns(a, turn, partner);
      v = rotateColumns(v, turn, partner);
    }
  Tensor lengths = unary(squares(a), OpKind::Sqrt);
  auto [values, order] = ctx.sort(lengths, static_cast<int64_t>(sizes.size()) - 1, true);
  const Tensor turned = takeColumns(a, order);
  const Tensor below = numberMatrixOf(ctx, a.dtype(), batchOf(a), m, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    const Complex e = numberOf(b, turned, i, min(r, Expr(n - 1)), c);
    return where(b.compare(OpKind::Lt, r, n), e, Complex{num(e.re, 0), {}});
  });
  return {scaled.back(values), applyReflectors(second, takeColumns(v, order), false), scaled.back(applyReflectors(first, below, false)).realize()};
}

/// The smaller side counts the columns: a singular value more would be 0.
static Singular singularOfEither(const Tensor &a) {
  return singularOf(rowsOf(a) >= columnsOf(a) ? a : adjointOf(a));
}

static Tensor eigenvaluesOf(const Tensor &a, bool upper);

/// The values alone, largest first. Of float32 they are the roots of the eigenvalues of a^T a, which is exact enough in
/// float64: what it loses is below the last bit of the largest value in float32.
static Tensor singularValues(const Tensor &a0) {
  if (a0.dtype() != DType::F32) return singularOfEither(a0).values;
  Tensor a = source(cast(rowsOf(a0) >= columnsOf(a0) ? a0 : transpose(a0, -2, -1), DType::F64));
  const int64_t n = columnsOf(a);
  Tensor squares = eigenvaluesOf(matmul(transpose(a, -2, -1), a), false);
  return remap(map(squares, [](Val v) { return un(OpKind::Sqrt, vmax(v, num(v, 0))); }), squares.sizes(),
               [n](const Index &i) {
                 Index from = i;
                 from.back() = n - 1 - i.back();
                 return from;
               });
}

/// Singular values of a matrix whose size is not known: those of [[0, a], [a^H, 0]] are eigenvalues of it, each with either sign, and the rest are 0.
static Tensor valuesOfAnySize(const Tensor &a) {
  const ScaledMatrix scaled(cast(a, wideType(a)));
  const Tensor x = source(scaled.matrix);
  const Expr m = a.size(-2), n = a.size(-1), all = m + n;
  const Tensor both = numberMatrixOf(a.ctx(), x.dtype(), batchOf(a), all, all, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    const Expr lo = min(r, c), hi = max(r, c);
    const Complex v = numberOf(b, x, i, min(lo, m - 1), max(hi - m, 0)), none{num(v.re, 0), {}};
    return where(b.compare(OpKind::Lt, lo, m) && b.compare(OpKind::Ge, hi, m), where(b.compare(OpKind::Lt, r, c), v, conjugate(v)), none);
  });
  const Tensor values = flip(hermitianInTurns(both, false).values, {-1});
  return scaled.back(map(slice(values, -1, 0, min(m, n)), [](Val v) { return vmax(v, num(v, 0)); }));
}

/// A complex matrix X + iY as the real one [[X, -Y], [Y, X]], which has each of its singular values, and eigenvalues, twice.
static Tensor realForm(const Tensor &a) {
  const Tensor x = a.real(), y = a.imag();
  return concat({concat({x, neg(y)}, -1), concat({y, x}, -1)}, -2).realize();
}
static Tensor everySecond(const Tensor &values) { return slice(values, -1, 0, floorDiv(values.size(-1), 2), 2); }
/// Whether the real form has few enough columns for what is known of real matrices.
static bool hasRealForm(const Tensor &a) { return std::max(rowsOf(a), columnsOf(a)) * 2 <= kMostColumns; }
/// Singular values of real or complex matrices, largest first, where nobody needs vectors.
static Tensor valuesAlone(const Tensor &a) {
  if (!anyConstSizeFault(a).empty()) return valuesOfAnySize(a);
  if (!a.isComplex()) return singularValues(a);
  return hasRealForm(a) ? everySecond(singularValues(realForm(a))) : singularOfEither(a).values;
}

Tensor spectralNorm(const Tensor &a, int order) {
  Tensor s = singularOfEither(a).values;
  if (order == 2) return select(s, -1, 0);
  if (order == -2) return select(s, -1, s.size(-1) - 1);
  return sum(s, {-1}, false, DType::F64);
}

/// Left vectors [m, width] of a tall matrix: a V / S, and where S vanishes or m is larger, whatever makes the basis
/// whole.
static Tensor leftVectors(const Singular &s, int64_t width) {
  if (s.left) return s.left(width);
  int64_t m = rowsOf(s.av), n = columnsOf(s.av);
  Tensor values = s.values, av = s.av;
  Val (*tiny)(BodyBuilder &, const Tensor &, const Index &) = [](BodyBuilder &b, const Tensor &v, const Index &i) {
    Index first = i;
    first.push_back(0);
    return v.at(b, first) * 1e-14;
  };
  auto element = [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    Index at = i;
    at.push_back(c);
    const Val length = values.at(b, at);
    const Complex x = numberOf(b, av, i, r, c);
    return where(length > tiny(b, values, i), x / length, Complex{num(length, 0), {}});
  };
  Tensor u = numberMatrixOf(av.ctx(), av.dtype(), batchOf(av), m, n, element);
  Tensor basis = applyReflectors(reflectorsOf(u), identityMatrix(u, m, width), false);
  auto part = [&](const Tensor &u, const Tensor &basis) {
    return matrixOf(av.ctx(), DType::F64, batchOf(av), m, width, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      Val whole = elementOf(b, basis, i, r, c);
      return b.masked(
          b.compare(OpKind::Lt, c, n),
          [&] {
            Expr within = min(c, Expr(n - 1));
            Index at = i;
            at.push_back(within);
            return where(values.at(b, at) > tiny(b, values, i), elementOf(b, u, i, r, within), whole);
          },
          whole);
    });
  };
  return u.isComplex() ? Tensor::complex(part(u.real(), basis.real()), part(u.imag(), basis.imag()), u.dtype()) : part(u, basis);
}

/// Of matrices whose size is not known, none may be empty.
static void haveElements(OpCall &o, const Tensor &a) {
  o.ctx.demand(logicalAnd(le(1, a.size(-2)), le(1, a.size(-1))), fmt::format("{}: a matrix of a size that was not known has no elements", o.node.target));
}

static Tensors svdOp(OpCall &o) {
  bool old = o.node.target == "aten.svd.default";
  Tensor a = o.t(old ? "self" : "A");
  if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
  if (std::string why = anyConstSizeFault(a); !why.empty()) {
    if (o.flag("compute_uv", true) && (o.isRead(0) || o.isRead(2))) return o.fail(why + " where singular vectors are asked for");
    haveElements(o, a);
    return {full(o.ctx, o.out(0).sizes, a.dtype(), 0), cast(valuesOfAnySize(a), o.out(1).dtype), full(o.ctx, o.out(2).sizes, a.dtype(), 0)};
  }
  bool tall = rowsOf(a) >= columnsOf(a),
       complete = old ? !o.flag("some", true) : o.flag("full_matrices", o.node.target == "aten.linalg_svd.default");
  Tensor x = tall ? a : adjointOf(a);
  const DType t = a.dtype(), ofValues = toReal(t);
  if (columnsOf(x) == 0) {
    // Only the bases have elements.
    auto basis = [&](size_t k) {
      const Sizes &sizes = o.out(k).sizes;
      const Tensor one = Tensor::lazy(o.ctx, ofValues, sizes, [ofValues](BodyBuilder &b, const Index &i) {
        return b.cast(b.compare(OpKind::Eq, i[i.size() - 2], i.back()), ofValues);
      });
      return cast(one, t);
    };
    return {basis(0), full(o.ctx, o.out(1).sizes, ofValues, 0), basis(2)};
  }
  Singular s = singularOf(x);
  if (!o.flag("compute_uv", true)) {
    // ATen fills the vectors that were not asked for with zeros, or leaves them empty.
    return {full(o.ctx, o.out(0).sizes, t, 0), cast(s.values, ofValues), full(o.ctx, o.out(2).sizes, t, 0)};
  }
  Tensor left = cast(leftVectors(s, complete ? rowsOf(x) : columnsOf(x)), t), right = cast(s.v, t);
  Tensor u = tall ? left : right, v = tall ? right : left;
  return {u, cast(s.values, ofValues), old ? v : adjointOf(v)};
}

/// Eigenvalues of the symmetric or Hermitian matrix in one triangle of a, where nobody needs vectors.
static Tensor eigenvaluesOf(const Tensor &a, bool upper) {
  if (!isSmall(a)) {
    const ScaledMatrix scaled(symmetricOf(a, upper, wideType(a)));
    return scaled.back(hermitianInTurns(scaled.matrix, false).values);
  }
  if (!a.isComplex()) return symmetricValues(symmetricOf(a, upper, DType::F64), a.dtype());
  if (!hasRealForm(a)) return eigenOf(a, upper).values;
  return everySecond(symmetricValues(realForm(symmetricOf(a, upper, DType::C128)), toReal(a.dtype())));
}

static Tensors eighOp(OpCall &o) {
  Tensor a = o.t(o.has("A") ? "A" : "self");
  if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
  if (!a.size(-1).asConst()) {
    haveElements(o, a);
  } else if (columnsOf(a) == 0) {
    Tensors empty;
    for (size_t k = 0; k < o.outCount(); ++k) empty.push_back(full(o.ctx, o.out(k).sizes, o.out(k).dtype, 0));
    return empty;
  }
  const bool upper = o.text("UPLO", "L") == "U" || o.text("UPLO", "L") == "u", vectors = o.flag("compute_v", true);
  if (o.outCount() == 1 || !vectors) {
    Tensor values = cast(eigenvaluesOf(a, upper), o.out().dtype);
    if (o.outCount() == 1) return {values};
    return {values, full(o.ctx, o.out(1).sizes, o.out(1).dtype, 0)};
  }
  Eigen e = eigenOf(a, upper);
  return {cast(e.values, o.out().dtype), cast(e.vectors, o.out(1).dtype)};
}

/// max(atol, rtol * largest value) [...], with ATen's defaults.
static Tensor cutoff(OpCall &o, const Tensor &a, const Tensor &values) {
  double epsilon =
      (toReal(a.dtype()) == DType::F32 ? 0x1p-23 : 0x1p-52) * static_cast<double>(std::max(rowsOf(a), columnsOf(a)));
  Tensor largest = select(values, -1, 0), absolute = o.opt("atol"), relative = o.opt("rtol");
  if (o.has("tol")) return broadcastTo(cast(o.t("tol"), DType::F64), largest.sizes());
  if (o.has("rcond")) return mul(largest, cast(o.t("rcond"), DType::F64));
  Tensor standard = full(o.ctx, {}, DType::F64, epsilon), zero = full(o.ctx, {}, DType::F64, 0);
  absolute = absolute.valid() ? cast(absolute, DType::F64) : zero;
  // A tolerance that was given makes the relative one 0, unless that was given too.
  relative = relative.valid() ? cast(relative, DType::F64)
                              : where(binary(OpKind::Gt, absolute, scalarInt(o.ctx, 0)), zero, standard);
  Tensor scaled = mul(relative, largest);
  return binary(OpKind::Max, broadcastTo(absolute, scaled.sizes()), scaled);
}

/// V S^-2 (a V)^H, without the values that count as zero: those up to `cut`. `tall`: of a itself, else of its adjoint.
static Tensor inverseFrom(const Singular &s, const Tensor &cut, bool tall) {
  const Tensor values = s.values, v = s.v;
  const Tensor scaled = numberMatrixOf(v.ctx(), v.dtype(), batchOf(v), v.size(-2), v.size(-1), [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    Index at = i;
    at.push_back(c);
    const Val x = values.at(b, at);
    const Complex e = numberOf(b, v, i, r, c);
    return where(x > cut.at(b, i), e / (x * x), Complex{num(x, 0), {}});
  });
  const Tensor inverse = matmul(scaled, adjointOf(s.av));
  return tall ? inverse : adjointOf(inverse);
}

static Tensors pseudoInverse(OpCall &o) {
  Tensor a = o.t("self");
  if (std::string why = anyConstSizeFault(a); !why.empty()) return o.fail(why);
  if (rowsOf(a) == 0 || columnsOf(a) == 0) return {full(o.ctx, o.out().sizes, a.dtype(), 0)};
  if (o.flag("hermitian")) a = symmetricOf(a, false, a.dtype());
  bool tall = rowsOf(a) >= columnsOf(a);
  Singular s = singularOf(tall ? a : adjointOf(a));
  return {cast(inverseFrom(s, cutoff(o, a, s.values).realize(), tall), a.dtype())};
}

static Tensors rankOp(OpCall &o) {
  Tensor a = o.t(o.has("input") ? "input" : "self");
  if (std::string why = anyConstSizeFault(a); !why.empty()) return o.fail(why);
  if (rowsOf(a) == 0 || columnsOf(a) == 0) return {full(o.ctx, o.out().sizes, DType::I64, 0)};
  if (o.flag("hermitian")) a = symmetricOf(a, false, a.dtype());
  Tensor values = singularOfEither(a).values, cut = cutoff(o, a, values);
  return {sum(cast(binary(OpKind::Gt, values, unsqueeze(cut, cut.rank())), DType::I64), {-1}, false, DType::I64)};
}

static Tensors conditionOp(OpCall &o) {
  Tensor a = o.t("self");
  if (std::string why = anyConstSizeFault(a); !why.empty()) return o.fail(why);
  if (rowsOf(a) == 0 || columnsOf(a) == 0) return {full(o.ctx, o.out().sizes, o.out().dtype, 0)};
  double p = o.has("p") && o.text("p").empty() ? o.number("p") : 2;
  if (!o.text("p").empty() || std::fabs(p) != 2) {
    Tensor inverse = solveMatrix(a, identityMatrix(a, rowsOf(a), rowsOf(a)));
    std::string text = o.text("p");
    auto norm = [&](const Tensor &m) -> Tensor {
      if (text == "fro") return vectorNorm(m, 2, {-2, -1}, false, toReal(a.dtype()));
      if (text == "nuc") return cast(spectralNorm(m, 0), toReal(a.dtype()));
      int64_t summed = std::isinf(p) ? -1 : -2;
      Tensor s = vectorNorm(m, 1, {summed}, true, toReal(a.dtype()));
      Tensor e = p > 0 ? amax(s, {summed == -1 ? -2 : -1}, true) : amin(s, {summed == -1 ? -2 : -1}, true);
      return reshape(e, batchOf(m));
    };
    return {mul(norm(a), norm(inverse))};
  }
  Tensor s = singularOfEither(a).values;
  Tensor large = select(s, -1, 0), small = select(s, -1, s.size(-1) - 1);
  return {cast(p > 0 ? div(large, small) : div(small, large), o.out().dtype)};
}

void addSpectral(OpTable &t) {
  t.add("linalg_svd.default _linalg_svd.default svd.default", svdOp);
  t.add("linalg_svdvals.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("A");
    if (std::string why = anySizeFault(a); !why.empty()) return o.fail(why);
    if (!anyConstSizeFault(a).empty()) haveElements(o, a);
    return {cast(valuesAlone(a), o.out().dtype)};
  });
  t.add("linalg_eigh.default linalg_eigvalsh.default _linalg_eigh.default", eighOp);
  t.add("linalg_pinv.default linalg_pinv.atol_rtol_tensor linalg_pinv.atol_rtol_float linalg_pinv.rcond_tensor "
        "pinverse.default",
        pseudoInverse);
  t.add("linalg_matrix_rank.default linalg_matrix_rank.tol_tensor linalg_matrix_rank.atol_rtol_tensor "
        "linalg_matrix_rank.atol_rtol_float",
        rankOp);
  t.add("linalg_cond.default linalg_cond.p_str", conditionOp);
  t.add("nuclear_norm.default nuclear_norm.dim", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self");
    if (o.node.target == "aten.nuclear_norm.dim") {
      const Dims dims = wrapDims(o.ints("dim"), a.rank());
      std::vector<int> order;
      for (int64_t d = 0; d < a.rank(); ++d)
        if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(static_cast<int>(d));
      for (int64_t d : dims) order.push_back(static_cast<int>(d));
      if (dims.size() != 2 || order.size() != a.sizes().size()) return o.fail("two dimensions make a matrix");
      a = permute(a, order);
    }
    if (std::string why = anyConstSizeFault(a); !why.empty()) return o.fail(why);
    return {reshape(cast(spectralNorm(a, 0), o.out().dtype), o.out().sizes)};
  });
  t.add("linalg_polar.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("A");
    if (std::string why = anyConstSizeFault(a); !why.empty()) return o.fail(why);
    if (rowsOf(a) < columnsOf(a) || columnsOf(a) == 0) return o.fail("only tall matrices are supported");
    Singular s = singularOf(a);
    // a = (U V^H) (V S V^H).
    Tensor scaled = mul(s.v, unsqueeze(s.values, s.values.rank() - 1));
    return {cast(matmul(leftVectors(s, columnsOf(a)), adjointOf(s.v)), a.dtype()),
            cast(matmul(scaled, adjointOf(s.v)), a.dtype())};
  });
  t.add("linalg_matrix_sqrth.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self");
    if (std::string why = anyConstSizeFault(a); !why.empty()) return o.fail(why);
    Eigen e = eigenOf(a, false);
    Tensor root = map(e.values, [](Val v) { return un(OpKind::Sqrt, v); });
    return {cast(matmul(mul(e.vectors, unsqueeze(root, root.rank() - 1)), adjointOf(e.vectors)), a.dtype())};
  });
  t.onComplex(OnComplex::Own, "linalg_svd _linalg_svd svd linalg_svdvals linalg_eigh linalg_eigvalsh _linalg_eigh linalg_matrix_rank linalg_cond nuclear_norm linalg_pinv "
                              "pinverse linalg_polar linalg_matrix_sqrth");
}

} // namespace neso::lower
