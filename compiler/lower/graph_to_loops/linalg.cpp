// LU, Cholesky and QR factorisations, triangular solves, and what follows from them: solve, inverse, determinants.
#include "lower/graph_to_loops/linalg.h"

#include <cmath>
#include <cstring>

namespace neso::lower {

std::string matrixFault(const Tensor &a) {
  if (a.rank() < 2) return "the argument is no matrix";
  if (a.isComplex()) return "complex matrices are not supported";
  if (a.dtype() != DType::F32 && a.dtype() != DType::F64) return "only float32 and float64 matrices are supported";
  for (int64_t d : {-2, -1})
    if (!a.size(d).asConst() || a.size(d).constValue() > kMostColumns)
      return "matrices of symbolic size or of more than 64 rows or columns are not supported";
  return "";
}

Sizes batchOf(const Tensor &a) { return Sizes(a.sizes().begin(), a.sizes().end() - 2); }

Val elementOf(BodyBuilder &b, const Tensor &a, const Index &batch, Expr r, Expr c) {
  Index i = batch;
  i.push_back(r), i.push_back(c);
  return a.at(b, i);
}

Tensor matrixOf(Lowering &ctx, DType t, const Sizes &batch, Expr rows, Expr columns, const MatrixFn &fn) {
  Sizes sizes = batch;
  sizes.push_back(rows), sizes.push_back(columns);
  return Tensor::lazy(ctx, t, sizes,
                      [fn](BodyBuilder &b, const Index &i) {
                        return fn(b, Index(i.begin(), i.end() - 2), i[i.size() - 2], i.back());
                      })
      .realize();
}

Tensor identityMatrix(const Tensor &like, int64_t rows, int64_t columns) {
  DType t = like.dtype();
  return matrixOf(like.ctx(), t, batchOf(like), rows, columns, [t](BodyBuilder &b, const Index &, Expr r, Expr c) {
    return b.cast(b.compare(OpKind::Eq, r, c), t);
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// Steps

Step::Step(Lowering &ctx, int64_t column) {
  std::vector<uint8_t> bytes(sizeof column);
  std::memcpy(bytes.data(), &column, sizeof column);
  number_ = ctx.addConstant(DType::I64, {Expr(1)}, std::move(bytes));
}

// ---------------------------------------------------------------------------------------------------------------------
// LU

namespace {
/// a with rows permuted = L U, both in `packed`; pivot[j] is the row (I64, from 0) that changed places with row j.
struct Lu {
  Tensor packed;
  Tensors pivot;
};
} // namespace

/// The row that stands at r after rows j and p changed places.
static Val swapped(BodyBuilder &b, Expr r, const Step &j, Val p) {
  Val here = b.index(r);
  return where(j.is(OpKind::Eq, b, r), p, where(eq(here, p), j.value(b), here));
}

static Lu luOf(const Tensor &a0, bool pivoting = true) {
  Lowering &ctx = a0.ctx();
  Tensor a = a0;
  a.realize();
  int64_t m = rowsOf(a), n = columnsOf(a);
  Lu out;
  for (int64_t j = 0; j < std::min(m, n); ++j) {
    Tensor p, old = a;
    const Step step(ctx, j);
    if (pivoting) {
      Sizes sizes = batchOf(a);
      sizes.push_back(m);
      Tensor column = Tensor::lazy(ctx, a.dtype(), sizes, [=](BodyBuilder &b, const Index &i) {
        Index batch(i.begin(), i.end() - 1);
        Val v = un(OpKind::Abs, elementOf(b, old, batch, i.back(), step.index(b, n)));
        return where(step.is(OpKind::Ge, b, i.back()), v, num(v, -1));
      });
      p = argExtreme(true, column, -1, false).realize();
    } else {
      p = fullInt(ctx, batchOf(a), DType::I64, j);
    }
    out.pivot.push_back(p);
    a = matrixOf(ctx, a.dtype(), batchOf(a), m, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      Val pv = p.at(b, i);
      Expr from = pivoting ? b.indirect(swapped(b, r, step, pv), m, false, false) : r,
           pr = pivoting ? b.indirect(pv, m, false, false) : step.index(b, m), column = step.index(b, n);
      Val v = elementOf(b, old, i, from, c), top = elementOf(b, old, i, pr, column),
          l = elementOf(b, old, i, from, column);
      // A zero pivot leaves its column as it is.
      l = where(eq(top, 0.0), l, l / top);
      Val below = step.is(OpKind::Gt, b, r);
      Val reduced = where(step.is(OpKind::Eq, b, c), l, v - l * elementOf(b, old, i, pr, c));
      return where(below && step.is(OpKind::Ge, b, c), reduced, v);
    });
  }
  out.packed = a;
  return out;
}

/// Row numbers [..., m] after all changes of places.
static Tensor permutationOf(const Tensors &pivot, const Tensor &like) {
  Lowering &ctx = like.ctx();
  int64_t m = rowsOf(like);
  Sizes sizes = batchOf(like);
  sizes.push_back(m);
  Tensor order = iota(ctx, sizes, static_cast<int64_t>(sizes.size()) - 1);
  for (size_t j = 0; j < pivot.size(); ++j) {
    Tensor old = order, p = pivot[j];
    const Step step(ctx, static_cast<int64_t>(j));
    order = Tensor::lazy(ctx, DType::I64, sizes, [=](BodyBuilder &b, const Index &i) {
      Index k = i;
      k.back() = b.indirect(swapped(b, i.back(), step, p.at(b, Index(i.begin(), i.end() - 1))), m, false, false);
      return old.at(b, k);
    });
    order.realize();
  }
  return order;
}

static Tensors pivotsOf(const Tensor &given, int64_t count) {
  Tensors out;
  for (int64_t j = 0; j < count; ++j)
    out.push_back(map(cast(select(given, -1, j), DType::I64), [](Val v) { return v - 1.0; }).realize());
  return out;
}

/// [..., k] as LAPACK numbers rows: from 1, I32.
static Tensor pivotVector(const Lu &lu) {
  Tensors parts;
  for (const Tensor &p : lu.pivot)
    parts.push_back(unsqueeze(cast(map(p, [](Val v) { return v + 1.0; }), DType::I32), p.rank()));
  if (parts.empty()) {
    Sizes sizes = batchOf(lu.packed);
    sizes.push_back(0);
    return fullInt(lu.packed.ctx(), sizes, DType::I32, 0);
  }
  return concat(parts, parts[0].rank() - 1);
}

static Tensor diagonalOf(const Tensor &a) {
  Sizes sizes = batchOf(a);
  sizes.push_back(std::min(rowsOf(a), columnsOf(a)));
  return remap(a, sizes, [](const Index &i) {
    Index j = i;
    j.push_back(i.back());
    return j;
  });
}

/// The number (from 1) of the first element of a [..., n] for which `bad` holds, 0 if there is none; I32.
static Tensor firstBad(const Tensor &d, const std::function<Val(Val)> &bad) {
  int64_t n = d.size(-1).constValue();
  Sizes batch(d.sizes().begin(), d.sizes().end() - 1);
  if (n == 0) return fullInt(d.ctx(), batch, DType::I32, 0);
  Tensor at = Tensor::lazy(d.ctx(), DType::I64, d.sizes(), [=](BodyBuilder &b, const Index &i) {
    return where(bad(d.at(b, i)), b.index(i.back() + 1), b.constantInt(DType::I64, n + 1));
  });
  return cast(map(amin(at, {-1}, false), [n](Val v) { return where(v > static_cast<double>(n), num(v, 0), v); }),
              DType::I32);
}

static Tensor luInfo(const Lu &lu) {
  return firstBad(diagonalOf(lu.packed), [](Val v) { return eq(v, 0.0); });
}

static Tensor lowerOf(const Tensor &packed, int64_t k) {
  return matrixOf(packed.ctx(), packed.dtype(), batchOf(packed), rowsOf(packed), k,
                  [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
                    Val v = elementOf(b, packed, i, r, c);
                    return where(b.compare(OpKind::Gt, r, c), v,
                                 where(b.compare(OpKind::Eq, r, c), num(v, 1), num(v, 0)));
                  });
}

static Tensor upperOf(const Tensor &packed, int64_t k) {
  return matrixOf(packed.ctx(), packed.dtype(), batchOf(packed), k, columnsOf(packed),
                  [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
                    Val v = elementOf(b, packed, i, r, c);
                    return where(b.compare(OpKind::Le, r, c), v, num(v, 0));
                  });
}

/// P [..., m, m] with a = P L U.
static Tensor permutationMatrix(const Tensors &pivot, const Tensor &like) {
  Tensor order = permutationOf(pivot, like);
  DType t = like.dtype();
  return matrixOf(like.ctx(), t, batchOf(like), rowsOf(like), rowsOf(like),
                  [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
                    Index at = i;
                    at.push_back(c);
                    return b.cast(eq(order.at(b, at), b.index(r)), t);
                  });
}

// ---------------------------------------------------------------------------------------------------------------------
// Triangular systems

/// Both with the same leading dims.
static void broadcastBatch(Tensor &a, Tensor &b) {
  auto widened = [](const Tensor &x, const Sizes &batch) {
    Sizes s = batch;
    s.push_back(x.size(-2)), s.push_back(x.size(-1));
    return broadcastTo(x, s);
  };
  Sizes sa = batchOf(a), sb = batchOf(b), batch(std::max(sa.size(), sb.size()), Expr(1));
  for (size_t d = 0; d < batch.size(); ++d) {
    size_t fromEnd = batch.size() - d;
    Expr x = fromEnd <= sa.size() ? sa[sa.size() - fromEnd] : Expr(1),
         y = fromEnd <= sb.size() ? sb[sb.size() - fromEnd] : Expr(1);
    batch[d] = x.isConst(1) ? y : x;
  }
  a = widened(a, batch);
  b = widened(b, batch);
}

/// t x = b by substitution; only one triangle of t is read.
static Tensor solveTriangular(Tensor t, Tensor b0, bool upper, bool unit) {
  broadcastBatch(t, b0);
  t = source(t);
  Tensor x = b0;
  x.realize();
  int64_t n = rowsOf(t);
  for (int64_t step = 0; step < n; ++step) {
    const Step j(t.ctx(), upper ? n - 1 - step : step);
    Tensor old = x;
    x = matrixOf(t.ctx(), x.dtype(), batchOf(x), x.size(-2), x.size(-1),
                 [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
                   const Expr at = j.index(b, n);
                   Val solved = elementOf(b, old, i, at, c), here = elementOf(b, old, i, r, c);
                   if (!unit) solved = solved / elementOf(b, t, i, at, at);
                   Val open = j.is(upper ? OpKind::Lt : OpKind::Gt, b, r);
                   Val rest = here - elementOf(b, t, i, r, at) * solved;
                   return where(j.is(OpKind::Eq, b, r), solved, where(open, rest, here));
                 });
  }
  return x;
}

/// With the factors of a.
static Tensor solveLu(const Tensor &packed, const Tensors &pivot, const Tensor &b0, bool adjoint) {
  Tensor lu = packed, b = b0;
  int64_t n = rowsOf(lu);
  if (n == 0) {
    broadcastBatch(lu, b);
    return b;
  }
  if (adjoint) {
    // U^T L^T P^T x = b.
    Tensor y = solveTriangular(transpose(lu, -2, -1), b, false, false);
    y = solveTriangular(transpose(lu, -2, -1), y, true, true);
    return matmul(permutationMatrix(pivot, packed), y);
  }
  Tensor order = permutationOf(pivot, packed);
  broadcastBatch(lu, b);
  Sizes orderSizes = batchOf(lu);
  orderSizes.push_back(n);
  order = broadcastTo(order, orderSizes);
  b = source(b);
  Tensor permuted = matrixOf(b.ctx(), b.dtype(), batchOf(b), b.size(-2), b.size(-1),
                             [=](BodyBuilder &body, const Index &i, Expr r, Expr c) {
                               Index at = i;
                               at.push_back(r);
                               return elementOf(body, b, i, body.indirect(order.at(body, at), n, false, false), c);
                             });
  return solveTriangular(lu, solveTriangular(lu, permuted, false, true), true, false);
}

Tensor solveMatrix(const Tensor &a, const Tensor &b) {
  Lu lu = luOf(a);
  return solveLu(lu.packed, lu.pivot, b, false);
}

/// b is a vector for each matrix when it has one dim, or the dims of a without the last.
static bool isVector(const Tensor &a, const Tensor &b) {
  if (b.rank() == 1) return true;
  if (b.rank() != a.rank() - 1) return false;
  for (int64_t d = 0; d < b.rank(); ++d)
    if (b.size(d) != a.size(d)) return false;
  return true;
}

static Tensors solveOp(OpCall &o) {
  Tensor a = o.t("A"), b = o.t("B");
  if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
  bool left = o.flag("left", true), vector = left && isVector(a, b);
  if (vector) b = unsqueeze(b, b.rank());
  Lu lu = luOf(left ? a : transpose(a, -2, -1));
  Tensor x = solveLu(lu.packed, lu.pivot, left ? b : transpose(b, -2, -1), false);
  if (!left) x = transpose(x, -2, -1);
  if (vector) x = squeeze(x, x.rank() - 1);
  Tensors out{x};
  if (o.node.target == "aten._linalg_solve_ex.default") out.push_back(lu.packed), out.push_back(pivotVector(lu));
  if (o.outCount() > 1) out.push_back(luInfo(lu));
  return out;
}

// ---------------------------------------------------------------------------------------------------------------------
// Cholesky

namespace {
struct Cholesky {
  Tensor l, info;
};
} // namespace

static Cholesky choleskyOf(const Tensor &a0, bool upper) {
  Tensor a = upper ? transpose(a0, -2, -1) : a0;
  a.realize();
  int64_t n = rowsOf(a);
  Tensors pivots;
  for (int64_t j = 0; j < n; ++j) {
    Tensor old = a;
    pivots.push_back(unsqueeze(select(select(old, -1, j), -1, j), old.rank() - 2));
    const Step step(a.ctx(), j);
    a = matrixOf(a.ctx(), a.dtype(), batchOf(a), n, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      const Expr at = step.index(b, n);
      Val root = un(OpKind::Sqrt, elementOf(b, old, i, at, at)), here = elementOf(b, old, i, r, c);
      Val column = elementOf(b, old, i, r, at) / root, row = elementOf(b, old, i, c, at) / root;
      Val update =
          where(step.is(OpKind::Eq, b, c), where(step.is(OpKind::Eq, b, r), root, column), here - column * row);
      Val open = step.is(OpKind::Ge, b, c) && b.compare(OpKind::Ge, r, c);
      return where(open, update, where(b.compare(OpKind::Lt, r, c), num(here, 0), here));
    });
  }
  Tensor info = n == 0 ? fullInt(a.ctx(), batchOf(a), DType::I32, 0)
                       : firstBad(concat(pivots, pivots[0].rank() - 1), [](Val v) { return !(v > 0.0); });
  return {upper ? transpose(a, -2, -1) : a, info};
}

static Tensor choleskySolve(const Tensor &b, const Tensor &factor, bool upper) {
  Tensor l = upper ? transpose(factor, -2, -1) : factor;
  return solveTriangular(transpose(l, -2, -1), solveTriangular(l, b, false, false), true, false);
}

// ---------------------------------------------------------------------------------------------------------------------
// QR

/// Element r of Householder vector j.
static Val reflectorAt(BodyBuilder &b, const Tensor &packed, const Index &i, Expr r, const Step &j) {
  Val v = elementOf(b, packed, i, r, j.index(b, packed.size(-1)));
  return where(j.is(OpKind::Gt, b, r), v, where(j.is(OpKind::Eq, b, r), num(v, 1), num(v, 0)));
}

/// (I - tau v v^T) c for reflector j.
static Tensor reflect(const Tensor &packed, const Tensor &tau, const Step &j, const Tensor &c0) {
  Lowering &ctx = c0.ctx();
  Tensor c = c0;
  c.realize();
  DType t = c.dtype();
  Sizes sizes = batchOf(c);
  sizes.push_back(c.size(-1));
  Tensor w =
      ctx.reduce(loops::ReduceKind::Sum, t, sizes, {c.size(-2)}, [=](BodyBuilder &b, const Index &i, const Index &r) {
        Index batch(i.begin(), i.end() - 1);
        return reflectorAt(b, packed, batch, r[0], j) * elementOf(b, c, batch, r[0], i.back());
      })[0];
  return matrixOf(ctx, t, batchOf(c), c.size(-2), c.size(-1), [=](BodyBuilder &b, const Index &i, Expr r, Expr col) {
    Index at = i, factor = i;
    at.push_back(col), factor.push_back(j.index(b, tau.size(-1)));
    return elementOf(b, c, i, r, col) - tau.at(b, factor) * reflectorAt(b, packed, i, r, j) * w.at(b, at);
  });
}

Reflectors reflectorsOf(const Tensor &a0) {
  Tensor a = a0;
  a.realize();
  Lowering &ctx = a.ctx();
  int64_t m = rowsOf(a), n = columnsOf(a), k = std::min(m, n);
  DType t = a.dtype();
  Tensors taus;
  for (int64_t j = 0; j < k; ++j) {
    const Step step(ctx, j);
    Tensor old = a;
    Tensor head = Tensor::lazy(ctx, t, batchOf(a), [=](BodyBuilder &b, const Index &i) {
      return elementOf(b, old, i, step.index(b, m), step.index(b, n));
    });
    Tensor below = ctx.reduce(loops::ReduceKind::Sum, t, batchOf(a), {Expr(m)},
                              [=](BodyBuilder &b, const Index &i, const Index &r) {
                                Val v = elementOf(b, old, i, r[0], step.index(b, n));
                                return where(step.is(OpKind::Gt, b, r[0]), v * v, num(v, 0));
                              })[0];
    Tensor pair[] = {head, below};
    // As LAPACK's larfg: beta has the sign that avoids cancellation; nothing to reflect gives tau = 0.
    Tensor beta = pointwise(pair, t, t, [](std::span<const Val> v) {
                    Val norm = un(OpKind::Sqrt, v[0] * v[0] + v[1]);
                    return where(eq(v[1], 0.0), v[0], where(v[0] >= 0.0, -norm, norm));
                  }).realize();
    Tensor tau =
        where(binary(OpKind::Eq, below, scalarInt(ctx, 0)), full(ctx, {}, t, 0), div(sub(beta, head), beta)).realize();
    taus.push_back(unsqueeze(tau, tau.rank()));
    // The vector takes its place below the diagonal; the columns to the right are reflected.
    Tensor withVector = matrixOf(ctx, t, batchOf(a), m, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      Val v = elementOf(b, old, i, r, c),
          scale = elementOf(b, old, i, step.index(b, m), step.index(b, n)) - beta.at(b, i);
      Val element = where(eq(scale, 0.0), v, v / scale);
      return where(step.is(OpKind::Eq, b, c) && step.is(OpKind::Gt, b, r), element, v);
    });
    Tensor allTau = reshape(tau, [&] {
      Sizes s = batchOf(a);
      s.push_back(1);
      return s;
    }());
    Sizes wide = batchOf(a);
    wide.push_back(k);
    Tensor reflected = reflect(withVector, broadcastTo(allTau, wide), step, withVector);
    a = matrixOf(ctx, t, batchOf(a), m, n, [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      Val keep = elementOf(b, withVector, i, r, c);
      Val own = where(step.is(OpKind::Eq, b, r), beta.at(b, i), keep);
      return where(step.is(OpKind::Gt, b, c), elementOf(b, reflected, i, r, c),
                   where(step.is(OpKind::Eq, b, c), own, keep));
    });
  }
  Sizes none = batchOf(a);
  none.push_back(0);
  return {a, taus.empty() ? full(ctx, none, t, 0) : concat(taus, taus[0].rank() - 1)};
}

Tensor applyReflectors(const Reflectors &h, const Tensor &c0, bool transposed) {
  int64_t k = h.tau.size(-1).constValue();
  Tensor c = c0, tau = h.tau;
  tau.reused();
  for (int64_t step = 0; step < k; ++step)
    c = reflect(h.packed, tau, Step(c.ctx(), transposed ? step : k - 1 - step), c);
  return c;
}

static Tensors qrOp(OpCall &o) {
  bool old = o.node.target == "aten.qr.default";
  Tensor a = o.t(old ? "self" : "A");
  if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
  std::string mode = old ? (o.flag("some", true) ? "reduced" : "complete") : o.text("mode", "reduced");
  int64_t m = rowsOf(a), n = columnsOf(a), k = std::min(m, n), width = mode == "complete" ? m : k;
  Reflectors h = reflectorsOf(a);
  Tensor r = matrixOf(o.ctx, a.dtype(), batchOf(a), width, n, [=](BodyBuilder &b, const Index &i, Expr row, Expr c) {
    return b.masked(
        b.compare(OpKind::Le, row, c), [&] { return elementOf(b, h.packed, i, row, c); },
        b.constant(h.packed.dtype(), 0));
  });
  if (mode == "r") return {full(o.ctx, o.out().sizes, a.dtype(), 0), r};
  return {applyReflectors(h, identityMatrix(a, m, width), false), r};
}

// ---------------------------------------------------------------------------------------------------------------------

static Tensors determinants(OpCall &o) {
  const std::string &n = o.node.target;
  Tensor a = o.t(o.has("A") ? "A" : "self");
  if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
  Lu lu = luOf(a);
  Tensor d = diagonalOf(lu.packed);
  d.reused();
  DType t = a.dtype();
  Tensor sign = full(o.ctx, batchOf(a), t, 1);
  for (size_t j = 0; j < lu.pivot.size(); ++j) {
    Tensor xs[] = {sign, lu.pivot[j]};
    Tensor was = sign, p = lu.pivot[j];
    sign = Tensor::lazy(o.ctx, t, batchOf(a), [=](BodyBuilder &b, const Index &i) {
      Val s = was.at(b, i);
      return where(eq(p.at(b, i), static_cast<double>(j)), s, -s);
    });
  }
  sign.realize();
  if (n.find("logdet") == std::string::npos && n.find("slogdet") == std::string::npos) {
    Tensor det = mul(reduceDims(loops::ReduceKind::Prod, d, {-1}, false, t), sign);
    if (o.outCount() == 1) return {det};
    return {det, lu.packed, pivotVector(lu)};
  }
  Tensor whole = mul(reduceDims(loops::ReduceKind::Prod, unary(d, OpKind::Sign), {-1}, false, t), sign).realize();
  Tensor size = sum(map(d, [](Val v) { return un(OpKind::Log, un(OpKind::Abs, v)); }), {-1}, false, t);
  if (n.find("slogdet") == std::string::npos)
    return {where(binary(OpKind::Lt, whole, scalarInt(o.ctx, 0)), full(o.ctx, {}, t, NAN), size)};
  Tensors out{whole, size};
  if (o.outCount() > 2) out.push_back(lu.packed), out.push_back(pivotVector(lu));
  return out;
}

static Tensors luOp(OpCall &o) {
  const std::string &n = o.node.target;
  Tensor a = o.t(o.has("A") ? "A" : "self");
  if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
  Lu lu = luOf(a, o.flag("pivot", true));
  if (n != "aten.linalg_lu.default") {
    Tensors out{lu.packed, pivotVector(lu)};
    if (o.outCount() > 2) out.push_back(luInfo(lu));
    return out;
  }
  int64_t k = std::min(rowsOf(a), columnsOf(a));
  Tensor p = o.flag("pivot", true) ? permutationMatrix(lu.pivot, lu.packed) : full(o.ctx, o.out().sizes, a.dtype(), 0);
  return {p, lowerOf(lu.packed, k), upperOf(lu.packed, k)};
}

static Tensors luUnpack(OpCall &o) {
  Tensor packed = o.t("LU_data");
  if (std::string why = matrixFault(packed); !why.empty()) return o.fail(why);
  packed.realize();
  int64_t k = std::min(rowsOf(packed), columnsOf(packed));
  Tensors out;
  if (o.flag("unpack_pivots", true))
    out.push_back(permutationMatrix(pivotsOf(o.t("LU_pivots"), k), packed));
  else
    out.push_back(full(o.ctx, o.out(0).sizes, packed.dtype(), 0));
  if (o.flag("unpack_data", true))
    out.push_back(lowerOf(packed, k)), out.push_back(upperOf(packed, k));
  else
    out.push_back(full(o.ctx, o.out(1).sizes, packed.dtype(), 0)),
        out.push_back(full(o.ctx, o.out(2).sizes, packed.dtype(), 0));
  return out;
}

static Tensors luSolve(OpCall &o) {
  bool old = o.node.target == "aten.lu_solve.default";
  Tensor packed = o.t(old ? "LU_data" : "LU"), given = o.t(old ? "LU_pivots" : "pivots"), b = o.t(old ? "self" : "B");
  if (std::string why = matrixFault(packed); !why.empty()) return o.fail(why);
  packed.realize();
  Tensors pivot = pivotsOf(given, rowsOf(packed));
  bool left = o.flag("left", true), adjoint = o.flag("adjoint");
  if (left) return {solveLu(packed, pivot, b, adjoint)};
  return {transpose(solveLu(packed, pivot, transpose(b, -2, -1), !adjoint), -2, -1)};
}

static Tensors triangularOp(OpCall &o) {
  bool old = o.node.target == "aten.triangular_solve.default";
  Tensor a = o.t(old ? "A" : "self"), b = o.t(old ? "self" : "B");
  if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
  bool upper = o.flag("upper", true), unit = o.flag("unitriangular"), turned = old && o.flag("transpose"),
       left = old || o.flag("left", true);
  Tensor t = turned != !left ? transpose(a, -2, -1) : a;
  if (turned != !left) upper = !upper;
  Tensor x = solveTriangular(t, left ? b : transpose(b, -2, -1), upper, unit);
  if (!left) x = transpose(x, -2, -1);
  if (!old) return {x};
  return {x, broadcastTo(a, o.out(1).sizes)};
}

static Tensors inverseOp(OpCall &o) {
  Tensor a = o.t(o.has("A") ? "A" : "self");
  if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
  Lu lu = luOf(a);
  Tensors out{solveLu(lu.packed, lu.pivot, identityMatrix(a, rowsOf(a), rowsOf(a)), false)};
  if (o.outCount() > 1) out.push_back(luInfo(lu));
  return out;
}

static void addFactorisations(OpTable &t) {
  t.add("linalg_solve.default linalg_solve_ex.default _linalg_solve_ex.default", solveOp);
  t.add("linalg_inv.default linalg_inv_ex.default inverse.default", inverseOp);
  t.add("linalg_det.default det.default _linalg_det.default slogdet.default linalg_slogdet.default "
        "_linalg_slogdet.default logdet.default",
        determinants);
  t.add("linalg_lu.default linalg_lu_factor.default linalg_lu_factor_ex.default _lu_with_info.default", luOp);
  t.add("lu_unpack.default", luUnpack);
  t.add("lu_solve.default linalg_lu_solve.default", luSolve);
  t.add("linalg_solve_triangular.default triangular_solve.default", triangularOp);
  t.add("linalg_qr.default qr.default", qrOp);
  t.add("linalg_cholesky.default linalg_cholesky_ex.default cholesky.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self");
    if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
    Cholesky c = choleskyOf(a, o.flag("upper"));
    if (o.outCount() > 1) return {c.l, c.info};
    return {c.l};
  });
  t.add("cholesky_solve.default", [](OpCall &o) -> Tensors {
    Tensor l = o.t("input2");
    if (std::string why = matrixFault(l); !why.empty()) return o.fail(why);
    return {choleskySolve(o.t("self"), l, o.flag("upper"))};
  });
  t.add("cholesky_inverse.default", [](OpCall &o) -> Tensors {
    Tensor l = o.t("self");
    if (std::string why = matrixFault(l); !why.empty()) return o.fail(why);
    return {choleskySolve(identityMatrix(l, rowsOf(l), rowsOf(l)), l, o.flag("upper"))};
  });
}

static void addReflectors(OpTable &t) {
  t.add("geqrf.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self");
    if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
    Reflectors h = reflectorsOf(a);
    return {h.packed, h.tau};
  });
  t.add("linalg_householder_product.default orgqr.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t(o.has("input") ? "input" : "self"), tau = o.t(o.has("tau") ? "tau" : "input2");
    if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
    if (!tau.size(-1).asConst()) return o.fail("the number of reflectors is symbolic");
    a.realize();
    return {applyReflectors({a, tau}, identityMatrix(a, rowsOf(a), columnsOf(a)), false)};
  });
  t.add("ormqr.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self"), tau = o.t("input2"), c = o.t("input3");
    if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
    if (!tau.size(-1).asConst()) return o.fail("the number of reflectors is symbolic");
    a.realize();
    bool left = o.flag("left", true), turned = o.flag("transpose");
    // C Q = (Q^T C^T)^T.
    Tensor y = applyReflectors({a, tau}, left ? c : transpose(c, -2, -1), left ? turned : !turned);
    return {left ? y : transpose(y, -2, -1)};
  });
  t.add("linalg_tensorinv.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self");
    Expr n = 1;
    for (int64_t d = 0; d < o.integer("ind", 2); ++d) n = n * a.size(d);
    a = reshape(a, {n, floorDiv(a.numel(), n)});
    if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
    return {reshape(solveMatrix(a, identityMatrix(a, rowsOf(a), rowsOf(a))), o.out().sizes)};
  });
  t.add("linalg_tensorsolve.default", [](OpCall &o) -> Tensors {
    Tensor a = o.t("self"), b = o.t("other");
    if (o.has("dims") && !o.ints("dims").empty()) {
      std::vector<int> order;
      Dims last = o.ints("dims");
      for (int64_t d = 0; d < a.rank(); ++d)
        if (std::none_of(last.begin(), last.end(), [&](int64_t l) { return (l < 0 ? l + a.rank() : l) == d; }))
          order.push_back(static_cast<int>(d));
      for (int64_t l : last) order.push_back(static_cast<int>(l < 0 ? l + a.rank() : l));
      a = permute(a, order);
    }
    Expr n = b.numel();
    a = reshape(a, {n, floorDiv(a.numel(), n)});
    if (std::string why = matrixFault(a); !why.empty()) return o.fail(why);
    return {reshape(solveMatrix(a, reshape(b, {n, Expr(1)})), o.out().sizes)};
  });
  addSpectral(t);
  addEigen(t);
  addLdl(t);
}

void addLinalg(OpTable &t) {
  addFactorisations(t);
  addReflectors(t);
}

} // namespace neso::lower
