#include "lower/graph_to_loops/factor_turns.h"

#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

/// At least so many rows or columns as make whole blocks of n; floorDiv of it is how many those are. Polynomials compare well where memory is shared.
static Expr inBlocks(Expr n) { return n.asConst() ? ceilDiv(n, kFactorBlock) * kFactorBlock : n + (kFactorBlock - 1); }
static Complex none(Complex like) { return {num(like.re, 0), {}}; }
static Index outer(const Index &i) { return Index(i.begin(), i.end() - 1); }

/// The matrix that fn gives, transposed, with zeros down and right to whole blocks, in memory of its own: its columns lie side by side.
static Tensor columnsInBlocks(const Tensor &a, const NumberMatrixFn &fn) {
  const Expr m = a.size(-2), n = a.size(-1);
  const Sizes sizes = extended(extended(batchOf(a), inBlocks(n)), inBlocks(m));
  return carry(numbers(a.ctx(), a.dtype(), sizes, [=](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 2);
    const Expr c = at[at.size() - 2], r = at.back();
    const Complex v = fn(b, i, min(r, m - 1), min(c, n - 1));
    return where(b.compare(OpKind::Lt, r, m) && b.compare(OpKind::Lt, c, n), v, none(v));
  }));
}

static Tensor adjoint(const Tensor &a) { return transpose(conjugateOf(a), -2, -1); }

/// A block of rows of a matrix, from row `first` on.
static Tensor rowsFrom(const Tensor &a, Expr first) { return slice(a, -2, first, kFactorBlock); }

/// Of a matrix whose columns are rows, in memory: the block from `first` on takes its place, and `product` is taken from what is behind it.
static void finishBlock(const Tensor &a, const Tensor &block, const Tensor &product, Expr first) {
  const Tensor next = numbers(a.ctx(), a.dtype(), a.sizes(), [=](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 2);
    const Expr c = at[at.size() - 2];
    const Complex v = numberAt(b, a, at), own = numberOf(b, block, i, min(max(c - first, 0), kFactorBlock - 1), at.back());
    return where(b.compare(OpKind::Lt, c, first), v, where(b.compare(OpKind::Lt, c, first + kFactorBlock), own, v - numberAt(b, product, at)));
  });
  putAll({next}, {a});
}

// ---------------------------------------------------------------------------------------------------------------------
// Triangular systems

/// x becomes the solution of t y = x, a row a turn. x lies in memory of its own; few rows.
static void substitute(const Tensor &t, const Tensor &x, bool upper, bool unit) {
  Lowering &ctx = t.ctx();
  const Expr n = t.size(-1);
  forTurns(ctx, n, [&](Expr turn) {
    const Expr j = upper ? n - 1 - turn : turn;
    const Sizes sizes = extended(batchOf(x), x.size(-1));
    // Of the rows of x, those that are solved already.
    const Tensor known = sumOfNumbers(ctx, x.dtype(), sizes, n, [=](BodyBuilder &body, const Index &i, Expr r) {
      const Complex product = numberOf(body, t, outer(i), j, r) * numberOf(body, x, outer(i), r, i.back());
      return where(body.compare(upper ? OpKind::Gt : OpKind::Lt, r, j), product, none(product));
    });
    const Tensor row = numbers(ctx, x.dtype(), sizes, [=](BodyBuilder &body, const Index &i) {
      const Complex rest = numberOf(body, x, outer(i), j, i.back()) - numberAt(body, known, i);
      return unit ? rest : rest / numberOf(body, t, outer(i), j, j);
    });
    putAt(row.realize(), x, -2, j);
  });
}

Tensor triangularInTurns(const Tensor &t0, const Tensor &b0, bool upper, bool unit) {
  Lowering &ctx = t0.ctx();
  const Tensor t = source(t0), given = source(b0);
  const Expr n = t.size(-1), w = b0.size(-1), whole = inBlocks(n);
  const Tensor x = carry(numbers(ctx, b0.dtype(), extended(extended(batchOf(b0), whole), w), [=](BodyBuilder &b, const Index &at) {
    const Index i(at.begin(), at.end() - 2);
    const Expr r = at[at.size() - 2];
    const Complex v = numberOf(b, given, i, min(r, n - 1), at.back());
    return where(b.compare(OpKind::Lt, r, n), v, none(v));
  }));
  forTurns(ctx, floorDiv(whole, kFactorBlock), [&](Expr turn) {
    const Expr first = (upper ? floorDiv(whole, kFactorBlock) - 1 - turn : turn) * kFactorBlock;
    // Element (r, c) of t, of which what is outside is that of an identity matrix.
    auto element = [=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
      const Complex v = numberOf(b, t, i, min(r, n - 1), min(c, n - 1));
      const Complex beside = where(b.compare(OpKind::Eq, r, c), Complex{num(v.re, 1), {}}, none(v));
      return where(b.compare(OpKind::Lt, r, n) && b.compare(OpKind::Lt, c, n), v, beside);
    };
    const Tensor own = numberMatrixOf(ctx, t.dtype(), batchOf(t), kFactorBlock, kFactorBlock,
                                      [=](BodyBuilder &b, const Index &i, Expr r, Expr c) { return element(b, i, first + r, first + c); });
    const Tensor beside = numberMatrixOf(ctx, t.dtype(), batchOf(t), whole, kFactorBlock,
                                         [=](BodyBuilder &b, const Index &i, Expr r, Expr c) { return element(b, i, r, first + c); });
    const Tensor solved = carry(rowsFrom(x, first));
    substitute(own, solved, upper, unit);
    const Tensor product = source(matmul(beside, solved));
    const Tensor next = numbers(ctx, x.dtype(), x.sizes(), [=](BodyBuilder &b, const Index &at) {
      const Expr r = at[at.size() - 2];
      const Val open = b.compare(upper ? OpKind::Lt : OpKind::Ge, r, upper ? first : first + kFactorBlock);
      return where(open, numberAt(b, x, at) - numberAt(b, product, at), numberAt(b, x, at));
    });
    putAll({next}, {x});
    putFrom(solved, x, -2, first);
  });
  return slice(x, -2, 0, n);
}

// ---------------------------------------------------------------------------------------------------------------------
// LU

/// The row that stands at r after rows j and p changed places.
static Expr swappedRow(BodyBuilder &b, Expr r, Expr j, Val p, Expr rows) {
  const Val here = b.index(r);
  return b.indirect(where(b.compare(OpKind::Eq, r, j), p, where(eq(here, p), b.index(j), here)), rows, false, false);
}

LuInTurns luInTurns(const Tensor &a0, bool pivoting) {
  Lowering &ctx = a0.ctx();
  const Tensor given = source(a0);
  const Expr m = a0.size(-2), n = a0.size(-1), count = min(m, n), columns = inBlocks(n), rows = inBlocks(m);
  const DType t = a0.dtype();
  const Sizes batch = batchOf(a0), numbered = extended(batch, inBlocks(count));
  const int64_t last = static_cast<int64_t>(batch.size());
  // Without changes of places each row keeps its own.
  const Tensor a = columnsInBlocks(a0, [given](BodyBuilder &b, const Index &i, Expr r, Expr c) { return numberOf(b, given, i, r, c); });
  const Tensor pivots = carry(iota(ctx, numbered, last));
  forTurns(ctx, floorDiv(inBlocks(count), kFactorBlock), [&](Expr turn) {
    const Expr first = turn * kFactorBlock, behind = first + kFactorBlock;
    const Tensor block = carry(rowsFrom(a, first)), order = carry(iota(ctx, extended(batch, rows), last));
    forTurns(ctx, kFactorBlock, [&](Expr k) {
      const Expr j = first + k;
      Tensor p;
      if (pivoting) {
        const Tensor column = Tensor::lazy(ctx, toReal(t), extended(batch, rows), [=](BodyBuilder &b, const Index &i) {
          const Val size = sizeOf(numberOf(b, block, outer(i), k, i.back()));
          return where(b.compare(OpKind::Ge, i.back(), j) && b.compare(OpKind::Lt, i.back(), m), size, num(size, -1));
        });
        const Tensor found = argExtreme(true, column, -1, false);
        p = Tensor::lazy(ctx, DType::I64, batch, [=](BodyBuilder &b, const Index &i) {
              return where(b.compare(OpKind::Lt, j, count), found.at(b, i), b.index(j));
            }).realize();
        putAt(p, pivots, -1, j);
        const Tensor placed = Tensor::lazy(ctx, DType::I64, order.sizes(), [=](BodyBuilder &b, const Index &i) {
          return order.at(b, extended(outer(i), swappedRow(b, i.back(), j, p.at(b, outer(i)), rows)));
        });
        put(placed.realize(), order);
      }
      // Rows j and p change places, and the column's multiples of row j leave the rows below.
      const Tensor next = numberMatrixOf(ctx, t, batch, kFactorBlock, rows, [=](BodyBuilder &b, const Index &i, Expr c, Expr r) {
        Expr from = r, top = min(j, rows - 1);
        if (pivoting) {
          const Val pivot = p.at(b, i);
          from = swappedRow(b, r, j, pivot, rows), top = b.indirect(pivot, rows, false, false);
        }
        const Complex v = numberOf(b, block, i, c, from), head = numberOf(b, block, i, k, top), own = numberOf(b, block, i, k, from);
        // A zero pivot leaves its column as it is.
        const Complex l = where(isZero(head), own, own / head);
        const Complex reduced = where(b.compare(OpKind::Eq, c, k), l, v - l * numberOf(b, block, i, c, top));
        return where(b.compare(OpKind::Gt, r, j) && b.compare(OpKind::Ge, c, k) && b.compare(OpKind::Lt, j, count), reduced, v);
      });
      put(next, block);
    });
    auto moved = [=](BodyBuilder &b, const Index &i, Expr c, Expr r) {
      return numberOf(b, a, i, c, pivoting ? b.indirect(order.at(b, extended(i, r)), rows, false, false) : r);
    };
    // U beside the block, by its L; below both, their product leaves.
    const Tensor l = numberMatrixOf(ctx, t, batch, kFactorBlock, kFactorBlock,
                                    [=](BodyBuilder &b, const Index &i, Expr r, Expr c) { return numberOf(b, block, i, c, first + r); });
    const Tensor u = carry(numberMatrixOf(ctx, t, batch, kFactorBlock, columns,
                                          [=](BodyBuilder &b, const Index &i, Expr r, Expr c) { return moved(b, i, c, first + r); }));
    substitute(l, u, false, true);
    const Tensor below = numberMatrixOf(ctx, t, batch, kFactorBlock, rows, [=](BodyBuilder &b, const Index &i, Expr c, Expr r) {
      const Complex v = numberOf(b, block, i, c, r);
      return where(b.compare(OpKind::Ge, r, behind), v, none(v));
    });
    const Tensor product = source(matmul(transpose(u, -2, -1), below));
    const Tensor next = numberMatrixOf(ctx, t, batch, columns, rows, [=](BodyBuilder &b, const Index &i, Expr c, Expr r) {
      const Complex old = moved(b, i, c, r), own = numberOf(b, block, i, min(max(c - first, 0), kFactorBlock - 1), r);
      const Complex above = numberOf(b, u, i, min(max(r - first, 0), kFactorBlock - 1), c);
      const Complex beside = where(b.compare(OpKind::Ge, r, behind), old - numberOf(b, product, i, c, r), above);
      const Complex open = where(b.compare(OpKind::Lt, c, behind), own, where(b.compare(OpKind::Lt, r, first), old, beside));
      return where(b.compare(OpKind::Lt, c, first), old, open);
    });
    put(next, a);
  });
  return {transpose(slice(slice(a, -2, 0, n), -1, 0, m), -2, -1), slice(pivots, -1, 0, count)};
}

Tensor orderInTurns(const Tensor &pivots0, Expr rows) {
  Lowering &ctx = pivots0.ctx();
  const Tensor pivots = source(pivots0);
  const Sizes batch(pivots.sizes().begin(), pivots.sizes().end() - 1), sizes = extended(batch, rows);
  const Tensor order = carry(iota(ctx, sizes, static_cast<int64_t>(sizes.size()) - 1));
  forTurns(ctx, pivots.size(-1), [&](Expr j) {
    const Tensor next = Tensor::lazy(ctx, DType::I64, sizes, [=](BodyBuilder &b, const Index &i) {
      return order.at(b, extended(outer(i), swappedRow(b, i.back(), j, pivots.at(b, extended(outer(i), j)), rows)));
    });
    put(next.realize(), order);
  });
  return order;
}

// ---------------------------------------------------------------------------------------------------------------------
// Cholesky

CholeskyInTurns choleskyInTurns(const Tensor &a0) {
  Lowering &ctx = a0.ctx();
  const Tensor given = source(a0);
  const Expr n = a0.size(-1), whole = inBlocks(n);
  const DType t = a0.dtype();
  const Sizes batch = batchOf(a0);
  // Column c of the Hermitian matrix whose lower triangle is given lies in row c.
  const Tensor a = columnsInBlocks(a0, [given](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    const Complex v = numberOf(b, given, i, max(r, c), min(r, c));
    return where(b.compare(OpKind::Ge, r, c), v, conjugate(v));
  });
  const Tensor pivots = carry(full(ctx, extended(batch, whole), toReal(t), 1));
  forTurns(ctx, floorDiv(whole, kFactorBlock), [&](Expr turn) {
    const Expr first = turn * kFactorBlock;
    const Tensor block = carry(rowsFrom(a, first));
    forTurns(ctx, kFactorBlock, [&](Expr k) {
      const Expr j = first + k;
      const Tensor pivot = Tensor::lazy(ctx, toReal(t), batch, [=](BodyBuilder &b, const Index &i) {
                             const Val v = numberOf(b, block, i, k, j).re;
                             return where(b.compare(OpKind::Lt, j, n), v, num(v, 1));
                           }).realize();
      putAt(pivot, pivots, -1, j);
      const Tensor column = numbers(ctx, t, extended(batch, whole), [=](BodyBuilder &b, const Index &i) {
                              const Val root = un(OpKind::Sqrt, pivot.at(b, outer(i)));
                              const Complex v = numberOf(b, block, outer(i), k, i.back());
                              // One division for all of them, as LAPACK's potf2 has it.
                              const Complex below = where(b.compare(OpKind::Gt, i.back(), j), v * (num(root, 1) / root), none(v));
                              const Complex open = where(b.compare(OpKind::Eq, i.back(), j), Complex{root, {}}, below);
                              return where(b.compare(OpKind::Lt, j, n), open, none(v));
                            }).realize();
      const Tensor next = numbers(ctx, t, block.sizes(), [=](BodyBuilder &b, const Index &at) {
        const Index i(at.begin(), at.end() - 2);
        const Expr c = at[at.size() - 2];
        const Complex v = numberAt(b, block, at), own = numberAt(b, column, extended(i, at.back()));
        const Complex rest = v - own * conjugate(numberAt(b, column, extended(i, first + c)));
        return where(b.compare(OpKind::Lt, c, k), v, where(b.compare(OpKind::Eq, c, k), own, rest));
      });
      putAll({next}, {block});
    });
    const Tensor product = source(matmul(adjoint(block), block));
    finishBlock(a, block, product, first);
  });
  return {transpose(slice(slice(a, -2, 0, n), -1, 0, n), -2, -1), slice(pivots, -1, 0, n)};
}

// ---------------------------------------------------------------------------------------------------------------------
// QR

Reflector reflectorOf(const NumberFn &x, Lowering &ctx, DType t, const Sizes &batch, Expr n, Expr head, Expr before) {
  const DType part = toReal(t);
  const Expr at = min(head, n - 1);
  const Tensor tail = ctx.reduce(loops::ReduceKind::Sum, DType::F64, batch, {n}, [=](BodyBuilder &b, const Index &i, const Index &r) {
    const Val v = squareOf(wide(b, x(b, extended(i, r[0]))));
    return where(b.compare(OpKind::Gt, r[0], head), v, num(v, 0));
  })[0];
  Reflector out;
  out.beta = Tensor::strided(ctx, part, batch, ctx.allocate(part, batch));
  const Tensor re = Tensor::strided(ctx, part, batch, ctx.allocate(part, batch));
  const Tensor im = isComplex(t) ? Tensor::strided(ctx, part, batch, ctx.allocate(part, batch)) : Tensor();
  // As LAPACK's larfg: beta is real and has the sign that avoids cancellation; nothing to reflect gives tau = 0.
  ctx.storeMany(batch, [&](BodyBuilder &b, const Index &i) {
    const Complex v = x(b, extended(i, at));
    const Val rest = tail.at(b, i), norm = b.cast(un(OpKind::Sqrt, squareOf(wide(b, v)) + rest), part), zero = rest < leastSquare(t);
    const Val same = (v.isReal() ? zero : zero && eq(v.im, 0.0)) || b.compare(OpKind::Ge, head, before);
    const Val by = where(same, v.re, where(v.re >= 0.0, -norm, norm)), safe = where(same, num(by, 1), by);
    const Complex tau = where(same, none(v), (Complex{by, {}} - v) / safe);
    std::vector<Lowering::Placed> stores{{out.beta, i, by}, {re, i, tau.re}};
    if (im.valid()) stores.push_back({im, i, tau.im});
    return stores;
  });
  out.tau = im.valid() ? Tensor::complex(re, im, t) : re;
  out.v = numbers(ctx, t, extended(batch, n), [=, beta = out.beta](BodyBuilder &b, const Index &i) {
            const Complex v = x(b, i), scale = x(b, extended(outer(i), at)) - Complex{beta.at(b, outer(i)), {}}, zero = none(v);
            const Complex below = where(isZero(scale), zero, v / scale), one{num(v.re, 1), {}};
            const Complex open = where(b.compare(OpKind::Gt, i.back(), head), below, where(b.compare(OpKind::Eq, i.back(), head), one, zero));
            return where(b.compare(OpKind::Lt, head, before), open, zero);
          }).realize();
  return out;
}

/// T with H_first … = I - V T V^H for vectors as rows [..., kFactorBlock, m]: I + D S above the diagonal times T is D, where S = V^H V and D has tau on
/// its diagonal.
static Tensor triangleOf(const Tensor &rows, const Tensor &tau) {
  Lowering &ctx = rows.ctx();
  const Tensor s = source(matmul(conjugateOf(rows), transpose(rows, -2, -1)));
  auto matrix = [&](const NumberMatrixFn &fn) { return numberMatrixOf(ctx, rows.dtype(), batchOf(rows), kFactorBlock, kFactorBlock, fn); };
  const Tensor left = matrix([=](BodyBuilder &b, const Index &i, Expr r, Expr c) { return numberAt(b, tau, extended(i, r)) * numberOf(b, s, i, r, c); });
  const Tensor t = carry(matrix([=](BodyBuilder &b, const Index &i, Expr r, Expr c) {
    const Complex v = numberAt(b, tau, extended(i, r));
    return where(b.compare(OpKind::Eq, r, c), v, none(v));
  }));
  substitute(left, t, true, true);
  return t;
}

Reflectors reflectorsInTurns(const Tensor &a0) {
  Lowering &ctx = a0.ctx();
  const Tensor given = source(a0);
  const Expr m = a0.size(-2), n = a0.size(-1), count = min(m, n), rows = inBlocks(m);
  const DType t = a0.dtype();
  const Sizes batch = batchOf(a0);
  const Tensor a = columnsInBlocks(a0, [given](BodyBuilder &b, const Index &i, Expr r, Expr c) { return numberOf(b, given, i, r, c); });
  const Tensor taus = carry(full(ctx, extended(batch, inBlocks(count)), t, 0));
  forTurns(ctx, floorDiv(inBlocks(count), kFactorBlock), [&](Expr turn) {
    const Expr first = turn * kFactorBlock;
    const Tensor block = carry(rowsFrom(a, first)), vectors = carry(full(ctx, extended(extended(batch, kFactorBlock), rows), t, 0));
    forTurns(ctx, kFactorBlock, [&](Expr k) {
      const Expr j = first + k;
      const Reflector h = reflectorOf([=](BodyBuilder &b, const Index &i) { return numberOf(b, block, outer(i), k, i.back()); }, ctx, t, batch, rows, j, count);
      putAt(h.tau, taus, -1, j);
      putAt(h.v, vectors, -2, k);
      const Tensor along = sumOfNumbers(ctx, t, extended(batch, kFactorBlock), rows, [=](BodyBuilder &b, const Index &i, Expr r) {
        return conjugate(numberAt(b, h.v, extended(outer(i), r))) * numberOf(b, block, outer(i), i.back(), r);
      });
      // R is what the adjoint reflections leave.
      const Tensor next = numbers(ctx, t, block.sizes(), [=](BodyBuilder &b, const Index &at) {
        const Index i(at.begin(), at.end() - 2);
        const Expr c = at[at.size() - 2], r = at.back();
        const Complex x = numberAt(b, block, at), v = numberAt(b, h.v, extended(i, r));
        const Complex rest = x - conjugate(numberAt(b, h.tau, i)) * numberAt(b, along, extended(i, c)) * v;
        const Complex own = where(b.compare(OpKind::Gt, r, j), v, where(b.compare(OpKind::Eq, r, j), Complex{h.beta.at(b, i), {}}, x));
        const Complex open = where(b.compare(OpKind::Eq, c, k), own, rest);
        return where(b.compare(OpKind::Lt, c, k) || b.compare(OpKind::Ge, j, count), x, open);
      });
      putAll({next}, {block});
    });
    // The columns behind, each a row here: x - conj(V) conj(T) V^T of it.
    const Tensor w = matmul(matmul(a, adjoint(vectors)), conjugateOf(triangleOf(vectors, slice(taus, -1, first, kFactorBlock))));
    const Tensor product = source(matmul(w, vectors));
    finishBlock(a, block, product, first);
  });
  return {transpose(slice(slice(a, -2, 0, n), -1, 0, m), -2, -1), slice(taus, -1, 0, count)};
}

Tensor applyVectors(const Tensor &rows, const Tensor &tau, const Tensor &c0, bool adjoint) {
  Lowering &ctx = rows.ctx();
  const Tensor c = carry(c0);
  const Expr blocks = floorDiv(rows.size(-2), kFactorBlock);
  forTurns(ctx, blocks, [&](Expr turn) {
    const Expr first = (adjoint ? turn : blocks - 1 - turn) * kFactorBlock;
    const Tensor v = rowsFrom(rows, first), t = triangleOf(v, slice(tau, -1, first, kFactorBlock));
    const Tensor w = matmul(adjoint ? lower::adjoint(t) : t, matmul(conjugateOf(v), c));
    const Tensor product = source(matmul(transpose(v, -2, -1), w));
    putAll({numbers(ctx, c.dtype(), c.sizes(), [=](BodyBuilder &b, const Index &i) { return numberAt(b, c, i) - numberAt(b, product, i); })}, {c});
  });
  return c;
}

Tensor applyInTurns(const Reflectors &h, const Tensor &c, bool adjoint) {
  Lowering &ctx = c.ctx();
  const Tensor packed = source(h.packed), given = source(h.tau);
  const Expr count = given.size(-1), rows = packed.size(-2), columns = packed.size(-1);
  const Tensor vectors = numberMatrixOf(ctx, packed.dtype(), batchOf(packed), inBlocks(count), rows, [=](BodyBuilder &b, const Index &i, Expr j, Expr r) {
    const Complex v = numberOf(b, packed, i, r, min(j, columns - 1)), one{num(v.re, 1), {}};
    const Complex open = where(b.compare(OpKind::Gt, r, j), v, where(b.compare(OpKind::Eq, r, j), one, none(v)));
    return where(b.compare(OpKind::Lt, j, count), open, none(v));
  });
  const Tensor tau = numbers(ctx, packed.dtype(), extended(batchOf(packed), inBlocks(count)), [=](BodyBuilder &b, const Index &i) {
                       const Complex v = numberAt(b, given, extended(outer(i), min(i.back(), count - 1)));
                       return where(b.compare(OpKind::Lt, i.back(), count), v, none(v));
                     }).realize();
  return applyVectors(vectors, tau, c, adjoint);
}

} // namespace neso::lower
