// Eigenvalues of symmetric matrices and singular values, by Jacobi's method in float64.
//
// A sweep visits every pair of columns once, in rounds of disjoint pairs (the order of a round-robin tournament), so
// that one round is a few loop nests over the whole matrix: the rotations of all pairs, then their effect. Seven to ten
// sweeps reach the last bit for matrices of up to 64 columns; convergence is quadratic.
#include <cmath>

#include "lower/graph_to_loops/linalg.h"

namespace neso::lower {

namespace {
constexpr int kSweepsF32 = 7, kSweepsF64 = 10;
int sweepsFor(DType t) { return t == DType::F32 ? kSweepsF32 : kSweepsF64; }
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

/// Coefficients of one round: column k becomes keep[k] * column k + mix[k] * column partner(k).
struct Rotation {
  Tensor keep, mix;
};

/// The rotation that annihilates `cross` between p < q with diagonal entries alpha (of p) and beta (of q), for column k
/// of the pair.
static Rotation
rotationOf(Lowering &ctx, const Sizes &batch, int64_t n, const Tensor &partner,
           const std::function<std::array<Val, 3>(BodyBuilder &, const Index &batch, Expr p, Expr q)> &entries) {
  Sizes sizes = batch;
  sizes.push_back(n);
  auto coefficient = [&](bool keep) {
    return Tensor::lazy(ctx, DType::F64, sizes,
                        [=](BodyBuilder &b, const Index &i) {
                          Index at(i.begin(), i.end() - 1);
                          Val mine = b.index(i.back()), other = partner.at(b, {i.back()});
                          Expr p = b.indirect(vmin(mine, other), n, false, false),
                               q = b.indirect(vmax(mine, other), n, false, false);
                          auto [alpha, beta, cross] = entries(b, at, p, q);
                          Val zeta = (beta - alpha) / (cross * 2.0);
                          Val tangent = where(zeta >= 0.0, num(zeta, 1), num(zeta, -1)) /
                                        (un(OpKind::Abs, zeta) + un(OpKind::Sqrt, zeta * zeta + 1.0));
                          Val idle = eq(cross, 0.0) || eq(mine, other);
                          tangent = where(idle, num(zeta, 0), tangent);
                          Val cosine = 1.0 / un(OpKind::Sqrt, tangent * tangent + 1.0);
                          if (keep) return cosine;
                          return where(mine < other, -(tangent * cosine), tangent * cosine);
                        })
        .realize();
  };
  return {coefficient(true), coefficient(false)};
}

static Tensor rotateColumns(const Tensor &a, const Rotation &turn, const Tensor &partner) {
  int64_t n = columnsOf(a);
  return matrixOf(a.ctx(), DType::F64, batchOf(a), a.size(-2), n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    Index at = i;
    at.push_back(c);
    return turn.keep.at(b, at) * elementOf(b, a, i, r, c) +
           turn.mix.at(b, at) * elementOf(b, a, i, r, b.indirect(partner.at(b, {c}), n, false, false));
  });
}

/// Columns of a in the order of positions [..., n].
static Tensor takeColumns(const Tensor &a, const Tensor &order) {
  int64_t n = columnsOf(a);
  return matrixOf(a.ctx(), a.dtype(), batchOf(a), a.size(-2), order.size(-1),
                  [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
                    Index at = i;
                    at.push_back(c);
                    return elementOf(b, a, i, r, b.indirect(order.at(b, at), n, false, false));
                  });
}

namespace {
struct Eigen {
  Tensor values, vectors;
};
} // namespace

/// The symmetric matrix in one triangle of a.
static Tensor symmetricOf(const Tensor &a0, bool upper, DType t) {
  Tensor a = source(cast(a0, t));
  return matrixOf(a.ctx(), t, batchOf(a), a.size(-2), a.size(-1), [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    Expr lo = min(r, c), hi = max(r, c);
    return elementOf(b, a, i, upper ? lo : hi, upper ? hi : lo);
  });
}

/// Of the symmetric matrix in one triangle of a; values ascend.
static Eigen eigenOf(const Tensor &a0, bool upper) {
  Lowering &ctx = a0.ctx();
  int64_t n = rowsOf(a0);
  Tensor a = symmetricOf(a0, upper, DType::F64);
  Tensor v = identityMatrix(a, n, n);
  Tensors rounds = tournament(ctx, n);
  for (int sweep = 0; sweep < sweepsFor(a0.dtype()); ++sweep)
    for (const Tensor &partner : rounds) {
      Tensor old = a;
      Rotation turn = rotationOf(ctx, batchOf(a), n, partner, [old](BodyBuilder &b, const Index &i, Expr p, Expr q) {
        return std::array<Val, 3>{elementOf(b, old, i, p, p), elementOf(b, old, i, q, q), elementOf(b, old, i, p, q)};
      });
      a = transpose(rotateColumns(transpose(rotateColumns(a, turn, partner), -2, -1), turn, partner), -2, -1);
      v = rotateColumns(v, turn, partner);
    }
  Sizes sizes = batchOf(a);
  sizes.push_back(n);
  Tensor diagonal = remap(a, sizes, [](const Index &i) {
    Index j = i;
    j.push_back(i.back());
    return j;
  });
  auto [values, order] = ctx.sort(diagonal, static_cast<int64_t>(sizes.size()) - 1, false);
  return {values, takeColumns(v, order)};
}

Singular singularOf(const Tensor &a0) {
  Lowering &ctx = a0.ctx();
  int64_t n = columnsOf(a0);
  Tensor a = cast(a0, DType::F64);
  a.realize();
  Tensor v = identityMatrix(a, n, n);
  Sizes sizes = batchOf(a);
  sizes.push_back(n);
  Tensors rounds = tournament(ctx, n);
  Expr rows = a.size(-2);
  auto product = [&](const Tensor &m, const Tensor &partner) {
    // Dot products of the columns with themselves, or with their partners.
    return ctx.reduce(
        loops::ReduceKind::Sum, DType::F64, sizes, {rows}, [=](BodyBuilder &b, const Index &i, const Index &r) {
          Index batch(i.begin(), i.end() - 1);
          Expr other = partner.valid() ? b.indirect(partner.at(b, {i.back()}), n, false, false) : i.back();
          return elementOf(b, m, batch, r[0], i.back()) * elementOf(b, m, batch, r[0], other);
        })[0];
  };
  for (int sweep = 0; sweep < sweepsFor(a0.dtype()); ++sweep)
    for (const Tensor &partner : rounds) {
      Tensor norms = product(a, {}), crosses = product(a, partner);
      Rotation turn = rotationOf(ctx, batchOf(a), n, partner, [=](BodyBuilder &b, const Index &i, Expr p, Expr q) {
        Index at = i, to = i;
        at.push_back(p), to.push_back(q);
        return std::array<Val, 3>{norms.at(b, at), norms.at(b, to), crosses.at(b, at)};
      });
      a = rotateColumns(a, turn, partner);
      v = rotateColumns(v, turn, partner);
    }
  Tensor lengths = unary(product(a, {}), OpKind::Sqrt);
  auto [values, order] = ctx.sort(lengths, static_cast<int64_t>(sizes.size()) - 1, true);
  return {values, takeColumns(v, order), takeColumns(a, order)};
}

/// The smaller side counts the columns: a singular value more would be 0.
static Singular singularOfEither(const Tensor &a) {
  return singularOf(rowsOf(a) >= columnsOf(a) ? a : transpose(a, -2, -1));
}

/// The values alone, largest first. Of float32 they are the roots of the eigenvalues of a^T a, which is exact enough in
/// float64: what it loses is below the last bit of the largest value in float32.
static Tensor singularValues(const Tensor &a0) {
  if (a0.dtype() != DType::F32) return singularOfEither(a0).values;
  Tensor a = source(cast(rowsOf(a0) >= columnsOf(a0) ? a0 : transpose(a0, -2, -1), DType::F64));
  const int64_t n = columnsOf(a);
  Tensor squares = symmetricValues(matmul(transpose(a, -2, -1), a).realize(), DType::F64);
  return remap(map(squares, [](Val v) { return un(OpKind::Sqrt, vmax(v, num(v, 0))); }), squares.sizes(),
               [n](const Index &i) {
                 Index from = i;
                 from.back() = n - 1 - i.back();
                 return from;
               });
}

/// A complex matrix X + iY as the real one [[X, -Y], [Y, X]], which has each of its singular values, and eigenvalues, twice.
static Tensor realForm(const Tensor &a) {
  const Tensor x = a.real(), y = a.imag();
  return concat({concat({x, neg(y)}, -1), concat({y, x}, -1)}, -2).realize();
}
static Tensor everySecond(const Tensor &values) { return slice(values, -1, 0, floorDiv(values.size(-1), 2), 2); }
/// Singular values of real or complex matrices, largest first.
static Tensor singularValuesOf(const Tensor &a) { return a.isComplex() ? everySecond(singularOfEither(realForm(a)).values) : singularOfEither(a).values; }
/// Why the singular values of these, or their eigenvalues, are not computed; empty when they are.
static std::string valuesFault(const Tensor &a) {
  const std::string why = numberFault(a);
  if (!why.empty() || !a.isComplex()) return why;
  return std::max(rowsOf(a), columnsOf(a)) * 2 > kMostColumns ? "complex matrices of more than 32 rows or columns are not supported" : "";
}

Tensor spectralNorm(const Tensor &a, int order) {
  Tensor s = singularValuesOf(a);
  if (order == 2) return select(s, -1, 0);
  if (order == -2) return select(s, -1, s.size(-1) - 1);
  return sum(s, {-1}, false, DType::F64);
}

/// Left vectors [m, width] of a tall matrix: a V / S, and where S vanishes or m is larger, whatever makes the basis
/// whole.
static Tensor leftVectors(const Singular &s, int64_t width) {
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
    Val length = values.at(b, at), x = elementOf(b, av, i, r, c);
    return where(length > tiny(b, values, i), x / length, num(x, 0));
  };
  Tensor u = matrixOf(av.ctx(), DType::F64, batchOf(av), m, n, element);
  Tensor basis = applyReflectors(reflectorsOf(u), identityMatrix(u, m, width), false);
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
}

static Tensors svdOp(OpCall &o) {
  bool old = o.node.target == "aten.svd.default";
  Tensor a = o.t(old ? "self" : "A");
  if (std::string why = valuesFault(a); !why.empty()) return o.fail(why);
  // There are no vectors: a model that reads them is refused.
  if (a.isComplex()) return {Tensor(), cast(everySecond(singularValues(realForm(a))), o.out(1).dtype)};
  bool tall = rowsOf(a) >= columnsOf(a),
       complete = old ? !o.flag("some", true) : o.flag("full_matrices", o.node.target == "aten.linalg_svd.default");
  Tensor x = tall ? a : transpose(a, -2, -1);
  DType t = a.dtype();
  if (columnsOf(x) == 0) {
    // Only the bases have elements.
    auto basis = [&](size_t k) {
      const Sizes &sizes = o.out(k).sizes;
      return Tensor::lazy(o.ctx, t, sizes, [t](BodyBuilder &b, const Index &i) {
        return b.cast(b.compare(OpKind::Eq, i[i.size() - 2], i.back()), t);
      });
    };
    return {basis(0), full(o.ctx, o.out(1).sizes, t, 0), basis(2)};
  }
  Singular s = singularOf(x);
  if (!o.flag("compute_uv", true)) {
    // ATen fills the vectors that were not asked for with zeros, or leaves them empty.
    return {full(o.ctx, o.out(0).sizes, t, 0), cast(s.values, t), full(o.ctx, o.out(2).sizes, t, 0)};
  }
  Tensor left = cast(leftVectors(s, complete ? rowsOf(x) : columnsOf(x)), t), right = cast(s.v, t);
  Tensor u = tall ? left : right, v = tall ? right : left;
  return {u, cast(s.values, t), old ? v : transpose(v, -2, -1)};
}

/// Eigenvalues of complex matrices that one triangle says. There are no vectors: a model that reads them is refused.
static Tensors hermitianValues(OpCall &o, const Tensor &a, bool upper, bool vectors) {
  const Tensor x = symmetricOf(a.real(), upper, DType::F64), all = cast(a.imag(), DType::F64).realize();
  const Tensor y = matrixOf(o.ctx, DType::F64, batchOf(a), rowsOf(a), rowsOf(a), [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    const Val v = elementOf(b, all, i, r, c), mirrored = -elementOf(b, all, i, c, r);
    return where(b.compare(OpKind::Eq, r, c), num(v, 0), where(b.compare(upper ? OpKind::Lt : OpKind::Gt, r, c), v, mirrored));
  });
  const Tensor values = cast(everySecond(symmetricValues(realForm(Tensor::complex(x, y, DType::C128)), toReal(a.dtype()))), o.out().dtype);
  if (o.outCount() == 1 || vectors) return {values};
  return {values, full(o.ctx, o.out(1).sizes, o.out(1).dtype, 0)};
}

static Tensors eighOp(OpCall &o) {
  Tensor a = o.t(o.has("A") ? "A" : "self");
  if (std::string why = valuesFault(a); !why.empty()) return o.fail(why);
  if (columnsOf(a) == 0) {
    Tensors empty;
    for (size_t k = 0; k < o.outCount(); ++k) empty.push_back(full(o.ctx, o.out(k).sizes, o.out(k).dtype, 0));
    return empty;
  }
  const bool upper = o.text("UPLO", "L") == "U" || o.text("UPLO", "L") == "u", vectors = o.flag("compute_v", true);
  if (a.isComplex()) return hermitianValues(o, a, upper, vectors);
  if (o.outCount() == 1 || !vectors) {
    Tensor values = cast(symmetricValues(symmetricOf(a, upper, DType::F64), a.dtype()), o.out().dtype);
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

/// V S^-2 (a V)^T, without the values that count as zero: those up to `cut`. `tall`: of a itself, else of its transpose.
static Tensor inverseFrom(const Singular &s, const Tensor &cut, bool tall) {
  const Tensor values = s.values, v = s.v;
  const Tensor scaled = matrixOf(v.ctx(), DType::F64, batchOf(v), v.size(-2), v.size(-1), [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    Index at = i;
    at.push_back(c);
    Val x = values.at(b, at), e = elementOf(b, v, i, r, c);
    return where(x > cut.at(b, i), e / (x * x), num(e, 0));
  });
  const Tensor inverse = matmul(scaled, transpose(s.av, -2, -1));
  return tall ? inverse : transpose(inverse, -2, -1);
}

static Tensors pseudoInverse(OpCall &o) {
  Tensor a = o.t("self");
  if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
  if (rowsOf(a) == 0 || columnsOf(a) == 0) return {full(o.ctx, o.out().sizes, a.dtype(), 0)};
  if (o.flag("hermitian")) a = symmetricOf(a, false, a.dtype());
  bool tall = rowsOf(a) >= columnsOf(a);
  Singular s = singularOf(tall ? a : transpose(a, -2, -1));
  return {cast(inverseFrom(s, cutoff(o, a, s.values).realize(), tall), a.dtype())};
}

static Tensors rankOp(OpCall &o) {
  Tensor a = o.t(o.has("input") ? "input" : "self");
  if (std::string why = valuesFault(a); !why.empty()) return o.fail(why);
  if (a.isComplex() && o.flag("hermitian")) return o.fail("the rank of complex matrices by eigenvalues is not supported");
  if (rowsOf(a) == 0 || columnsOf(a) == 0) return {full(o.ctx, o.out().sizes, DType::I64, 0)};
  if (o.flag("hermitian")) a = symmetricOf(a, false, a.dtype());
  Tensor values = singularValuesOf(a), cut = cutoff(o, a, values);
  return {sum(cast(binary(OpKind::Gt, values, unsqueeze(cut, cut.rank())), DType::I64), {-1}, false, DType::I64)};
}

static Tensors conditionOp(OpCall &o) {
  Tensor a = o.t("self");
  if (std::string why = valuesFault(a); !why.empty()) return o.fail(why);
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
  Tensor s = singularValuesOf(a);
  Tensor large = select(s, -1, 0), small = select(s, -1, s.size(-1) - 1);
  return {cast(p > 0 ? div(large, small) : div(small, large), o.out().dtype)};
}

void addSpectral(OpTable &t) {
  t.add("linalg_svd.default _linalg_svd.default svd.default", svdOp);
  t.add("linalg_svdvals.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("A");
    if (std::string why = valuesFault(a); !why.empty()) return o.fail(why);
    return {cast(a.isComplex() ? everySecond(singularValues(realForm(a))) : singularValues(a), o.out().dtype)};
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
    if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
    return {reshape(cast(spectralNorm(a, 0), o.out().dtype), o.out().sizes)};
  });
  t.add("linalg_polar.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("A");
    if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
    if (rowsOf(a) < columnsOf(a) || columnsOf(a) == 0) return o.fail("only tall matrices are supported");
    Singular s = singularOf(a);
    // a = (U V^T) (V S V^T).
    Tensor scaled = mul(s.v, unsqueeze(s.values, s.values.rank() - 1));
    return {cast(matmul(leftVectors(s, columnsOf(a)), transpose(s.v, -2, -1)), a.dtype()),
            cast(matmul(scaled, transpose(s.v, -2, -1)), a.dtype())};
  });
  t.add("linalg_matrix_sqrth.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self");
    if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
    Eigen e = eigenOf(a, false);
    Tensor root = map(e.values, [](Val v) { return un(OpKind::Sqrt, v); });
    return {cast(matmul(mul(e.vectors, unsqueeze(root, root.rank() - 1)), transpose(e.vectors, -2, -1)), a.dtype())};
  });
  t.onComplex(OnComplex::Own, "linalg_svd _linalg_svd svd linalg_svdvals linalg_eigh linalg_eigvalsh _linalg_eigh linalg_matrix_rank linalg_cond nuclear_norm");
}

} // namespace neso::lower
