// Discrete Fourier transforms: fast ones (fourier.h) of constant lengths; others, and short ones, as products with the
// matrix of roots of unity, which is right for every length and quadratic in it.
#include <cmath>

#include "lower/graph_to_loops/fourier.h"
#include "lower/graph_to_loops/op_call.h"
#include "lower/graph_to_loops/parts.h"

namespace neso::lower {

namespace {
/// As ATen numbers them: 0 none, 1 by sqrt(n), 2 by n.
enum Norm : int64_t { None = 0, BySqrt = 1, ByN = 2 };
} // namespace

static Norm normOf(const std::string &text, bool forward) {
  if (text == "ortho") return BySqrt;
  if (text == "forward") return forward ? ByN : None;
  return forward ? None : ByN;
}

/// cos or sin of 2 pi (i*k mod n)/n as an [n, m] table: rows input, columns output.
static Tensor table(Lowering &ctx, Expr rows, Expr cols, Expr n, bool sine, DType t) {
  Tensor r = Tensor::lazy(ctx, t, {rows, cols}, [=](BodyBuilder &b, const Index &i) {
    // In double, and of the reduced angle, so that long transforms stay exact.
    Val a = b.index(mod(i[0] * i[1], n), DType::F64) / b.index(n, DType::F64) * (2 * M_PI);
    return b.cast(un(sine ? OpKind::Sin : OpKind::Cos, a), computeType(t));
  });
  return r.realize();
}

/// Cuts or pads a dim with zeros to length n.
static Tensor fit(const Tensor &x, int64_t dim, Expr n) {
  Expr have = x.size(dim);
  if (x.ctx().equal(have, n)) return x;
  if (x.ctx().facts.provablyLess(n, have)) return slice(x, dim, 0, n);
  Sizes before(x.sizes().size(), Expr(0)), after = before;
  after[static_cast<size_t>(dim)] = n - have;
  return pad(x, before, after, 0);
}

/// Rows along the last dim of x as what transforms read; parts of a real tensor are itself and zeros.
static ComplexFn rowsOf(const Tensor &x, DType t) {
  return [x, t](BodyBuilder &b, const Index &lead, Expr e) {
    Index i = lead;
    i.push_back(e);
    if (!x.isComplex()) return ComplexVal{b.cast(x.at(b, i), t), b.constant(t, 0)};
    return ComplexVal{b.cast(x.real().at(b, i), t), b.cast(x.imag().at(b, i), t)};
  };
}

static Sizes leadOf(const Tensor &x) { return Sizes(x.sizes().begin(), x.sizes().end() - 1); }

/// How many of the lead dims, which lie behind the transformed one, lie inside of the rows: all, where they have enough
/// elements to work side by side.
static RowLayout layoutOf(const Tensor &x, int64_t behind) {
  constexpr int64_t kSideBySide = 8;
  Expr inside = 1;
  const Sizes lead = leadOf(x);
  for (size_t k = lead.size() - static_cast<size_t>(behind); k < lead.size(); ++k) inside = inside * lead[k];
  const bool enough = behind > 0 && x.ctx().facts.provablyLessEqual(Expr(kSideBySide), inside);
  return {enough ? static_cast<size_t>(behind) : 0, false};
}

/// The dim becomes the last one, before those that were behind it; and back.
static Tensor toLast(Tensor x, int64_t dim) {
  for (; dim + 1 < x.rank(); ++dim) x = transpose(x, dim, dim + 1);
  return x;
}
static Tensor fromLast(Tensor x, int64_t dim) {
  for (int64_t at = x.rank() - 1; at > dim; --at) x = transpose(x, at, at - 1);
  return x;
}

/// The forward transform of real rows of even length n by one of n / 2 numbers, whose parts are neighbours: n / 2 + 1
/// outputs; conjugated unless forward.
static Tensor realTransform(const Tensor &x, int64_t n, bool forward, DType t, RowLayout layout) {
  Lowering &ctx = x.ctx();
  const int64_t half = n / 2;
  const Sizes lead = leadOf(x);
  Spectrum z = transformRows(
      ctx, t, lead, half, true,
      [&](BodyBuilder &b, const Index &row, Expr e) {
        Index even = row, odd = row;
        even.push_back(e * 2), odd.push_back(e * 2 + 1);
        return ComplexVal{b.cast(x.at(b, even), t), b.cast(x.at(b, odd), t)};
      },
      layout);
  Spectrum w = rootsOfUnity(ctx, t, n, half + 1, {1}, true);
  const Spectrum out = roomFor(ctx, t, lead, half + 1, {layout.inside, true});
  auto at = [](const Index &row, Expr k) {
    Index i = row;
    i.push_back(k);
    return i;
  };
  auto loops = [&](Sizes within) {
    Sizes ranges(lead.begin(), lead.end() - static_cast<ptrdiff_t>(layout.inside));
    ranges.insert(ranges.end(), within.begin(), within.end());
    ranges.insert(ranges.end(), lead.end() - static_cast<ptrdiff_t>(layout.inside), lead.end());
    return ranges;
  };
  const ptrdiff_t outside = static_cast<ptrdiff_t>(lead.size() - layout.inside);
  // Even and odd elements' transforms, from z[k] and z[n / 2 - k]; then the last step of the transform of both.
  ctx.storeMany(loops({half - 1}), [&](BodyBuilder &b, const Index &i) {
    Index row = i;
    row.erase(row.begin() + outside);
    const Expr k = i[static_cast<size_t>(outside)] + 1;
    const Index here = at(row, k), there = at(row, half - k);
    Val a = z.re.at(b, here), c = z.re.at(b, there), d = z.im.at(b, here), f = z.im.at(b, there);
    Val evenRe = (a + c) * 0.5, evenIm = (d - f) * 0.5, oddRe = (d + f) * 0.5, oddIm = (c - a) * 0.5;
    Val wr = w.re.at(b, {Expr(0), k}), wi = w.im.at(b, {Expr(0), k});
    Val im = evenIm + (oddRe * wi + oddIm * wr);
    return std::vector<Lowering::Placed>{{out.re, here, evenRe + (oddRe * wr - oddIm * wi)},
                                         {out.im, here, forward ? im : -im}};
  });
  // The first and the last are real: the sums of all, and of all with alternating signs.
  ctx.storeMany(lead, [&](BodyBuilder &b, const Index &row) {
    const Index first = at(row, 0), last = at(row, half);
    Val re = z.re.at(b, first), im = z.im.at(b, first), zero = b.constant(t, 0);
    return std::vector<Lowering::Placed>{
        {out.re, first, re + im}, {out.im, first, zero}, {out.re, last, re - im}, {out.im, last, zero}};
  });
  return out.whole;
}

/// The transform along one dim; m outputs (all n, or half of them). x may be real.
static Tensor dft(const Tensor &x0, int64_t dim, bool forward, Expr m) {
  Lowering &ctx = x0.ctx();
  Tensor x = toLast(x0, dim);
  Expr n = x.size(-1);
  DType r = toReal(x.dtype());
  DType out = r == DType::F64 ? DType::C128 : r == DType::F16 ? DType::C32 : DType::C64;
  if (hasFastTransform(n)) {
    const DType t = computeType(r);
    const int64_t length = n.constValue();
    const RowLayout layout = layoutOf(x, x0.rank() - 1 - dim);
    if (!x.isComplex() && length % 2 == 0 && hasFastTransform(length / 2) && ctx.equal(m, Expr(length / 2 + 1)))
      return fromLast(realTransform(x, length, forward, t, layout), dim);
    Tensor whole = transformRows(ctx, t, leadOf(x), length, forward, rowsOf(x, t), {layout.inside, true}).whole;
    return fromLast(ctx.equal(m, n) ? whole : slice(whole, -1, 0, m), dim);
  }
  Tensor c = table(ctx, n, m, n, false, r), s = table(ctx, n, m, n, true, r);
  double sign = forward ? -1 : 1;
  Tensor re, im;
  if (x.isComplex()) {
    // (a + ib)(c + i sign s)
    Tensor a = x.real(), b = x.imag();
    re = sub(matmul(a, c), mulNumber(matmul(b, s), sign));
    im = add(mulNumber(matmul(a, s), sign), matmul(b, c));
  } else {
    re = matmul(x, c);
    im = mulNumber(matmul(x, s), sign);
  }
  return fromLast(Tensor::complex(re, im, out), dim);
}

/// Half a spectrum of n real numbers as it counts: the first coefficient and that of half the length are real.
static ComplexFn halfSpectrum(const Tensor &x, Expr n, bool forward, DType t) {
  return [x, n, forward, t](BodyBuilder &b, const Index &lead, Expr k) {
    Index i = lead;
    i.push_back(k);
    Val im = b.cast(x.imag().at(b, i), t), real = b.compare(OpKind::Eq, k, 0) || b.compare(OpKind::Eq, k * 2, n);
    return ComplexVal{b.cast(x.real().at(b, i), t), where(real, 0.0, forward ? -im : im)};
  };
}

/// Real rows of length n from half their spectrum, not scaled; by a transform of n / 2 numbers where n is even.
static Tensor fastInverseReal(const Tensor &x, int64_t n, bool forward, DType t, RowLayout layout) {
  Lowering &ctx = x.ctx();
  const ComplexFn given = halfSpectrum(x, n, forward, t);
  if (n % 2 || !hasFastTransform(n / 2))
    return transformRows(
               ctx, t, leadOf(x), n, false,
               [&](BodyBuilder &b, const Index &lead, Expr k) {
                 const Val mirrored = b.compare(OpKind::Gt, k * 2, n);
                 const ComplexVal v = given(b, lead, min(k, n - k));
                 return ComplexVal{v.re, where(mirrored, -v.im, v.im)};
               },
               layout)
        .re;
  const int64_t half = n / 2;
  Spectrum w = rootsOfUnity(ctx, t, n, half, {1}, false);
  const bool isDense = layout.inside == 0;
  Spectrum z = transformRows(
      ctx, t, leadOf(x), half, false,
      [&](BodyBuilder &b, const Index &lead, Expr k) {
        // Even elements are the transform of a + conj(c), odd ones that of (a - conj(c)) w; the latter times i.
        const ComplexVal a = given(b, lead, k), c = given(b, lead, half - k);
        const Val dr = a.re - c.re, di = a.im + c.im, wr = w.re.at(b, {Expr(0), k}), wi = w.im.at(b, {Expr(0), k});
        return ComplexVal{a.re + c.re - (dr * wi + di * wr), a.im - c.im + (dr * wr - di * wi)};
      },
      {layout.inside, isDense});
  Sizes sizes = leadOf(x);
  sizes.push_back(n);
  if (isDense) {
    // The parts, which alternate, are the real elements as they are.
    Strided where = *z.whole.asStrided();
    for (Expr &s : where.strides) s = s * 2;
    where.dtype = t, where.strides.back() = 1;
    return Tensor::strided(ctx, t, sizes, where);
  }
  return Tensor::lazy(ctx, t, sizes, [=](BodyBuilder &b, const Index &i) {
    Index at = i;
    at.back() = floorDiv(i.back(), Expr(2));
    return where(b.compare(OpKind::Eq, mod(i.back(), Expr(2)), 0), z.re.at(b, at), z.im.at(b, at));
  });
}

/// Real result of a half spectrum along dim: n outputs.
static Tensor inverseReal(const Tensor &x0, int64_t dim, Expr n, bool forward) {
  Lowering &ctx = x0.ctx();
  Tensor x = toLast(x0, dim);
  Expr half = x.size(-1);
  DType r = toReal(x.dtype());
  if (hasFastTransform(n)) {
    Tensor y = fastInverseReal(x, n.constValue(), forward, computeType(r), layoutOf(x, x0.rank() - 1 - dim));
    return fromLast(cast(y, r), dim);
  }
  // Each inner coefficient stands for itself and its mirror image.
  auto weights = [&](bool sine) {
    return Tensor::lazy(ctx, r, {half, n},
                        [=](BodyBuilder &b, const Index &i) {
                          Val a = b.index(mod(i[0] * i[1], n), DType::F64) / b.index(n, DType::F64) * (2 * M_PI);
                          Val v = un(sine ? OpKind::Sin : OpKind::Cos, a);
                          Val once = b.compare(OpKind::Eq, i[0], 0) || b.compare(OpKind::Eq, i[0] * 2, n);
                          return b.cast(where(once, v, v * 2.0), computeType(r));
                        })
        .realize();
  };
  Tensor re = matmul(x.real(), weights(false)), im = matmul(x.imag(), weights(true));
  // sum a cos - b sin going back; the other sign of the angle going forth.
  return fromLast(forward ? add(re, im) : sub(re, im), dim);
}

static Tensor scaled(const Tensor &x, Norm norm, Expr count) {
  if (norm == None) return x;
  DType r = toReal(x.dtype());
  Tensor n = exprAs(x.ctx(), count, r);
  if (norm == BySqrt) n = unary(n, OpKind::Sqrt);
  return div(x, n);
}

static Dims transformDims(OpCall &o, const Tensor &x, size_t given, bool two) {
  Dims dims = o.ints("dim");
  if (dims.empty() && two) dims = {-2, -1};
  if (dims.empty())
    for (int64_t k = given ? x.rank() - static_cast<int64_t>(given) : 0; k < x.rank(); ++k) dims.push_back(k);
  for (int64_t &d : dims)
    if (d < 0) d += x.rank();
  return dims;
}

/// fft_* composites. name is what follows "fft_": fft, ifft, rfft, irfft, hfft, ihfft, with 2 or n behind.
static Tensors composite(OpCall &o) {
  std::string name = o.node.target.substr(9);
  name = name.substr(0, name.find('.'));
  bool many = name.back() == '2' || name.back() == 'n', two = name.back() == '2';
  if (many) name.pop_back();
  Tensor x = o.t("self");
  if (toReal(x.dtype()) == DType::F16 || x.dtype() == DType::BF16)
    return o.fail("half precision transforms are not supported");
  if (!isFloat(x.dtype()) && !x.isComplex()) x = cast(x, DType::F32);
  Sizes s = many ? o.exprs("s") : o.exprs("n");
  Dims dims = many ? transformDims(o, x, s.size(), two)
                   : Dims{o.integer("dim", -1) < 0 ? o.integer("dim", -1) + x.rank() : o.integer("dim", -1)};
  if (dims.empty()) return {cast(x, o.out().dtype)};
  bool inverse = name[0] == 'i', toHalf = name == "rfft" || name == "ihfft",
       toReals = name == "irfft" || name == "hfft";
  bool forward = name == "fft" || name == "rfft" || name == "hfft";
  (void)inverse;
  Norm norm = normOf(o.text("norm"), forward);
  Expr count = 1;
  Sizes lengths;
  for (size_t k = 0; k < dims.size(); ++k) {
    bool last = k + 1 == dims.size();
    Expr n;
    if (k < s.size() && !s[k].isConst(-1))
      n = s[k];
    else
      n = toReals && last ? (x.size(dims[k]) - 1) * 2 : x.size(dims[k]);
    lengths.push_back(n);
    count = count * n;
  }
  for (size_t k = 0; k < dims.size(); ++k) {
    bool last = k + 1 == dims.size();
    x = fit(x, dims[k], toReals && last ? floorDiv(lengths[k], 2) + 1 : lengths[k]);
  }
  if (toHalf) {
    size_t k = dims.size() - 1;
    x = dft(x, dims[k], forward, floorDiv(lengths[k], 2) + 1);
    for (size_t q = 0; q < k; ++q) x = dft(x, dims[q], forward, lengths[q]);
  } else if (toReals) {
    size_t k = dims.size() - 1;
    x = cast(x, toComplex(x.dtype()));
    for (size_t q = 0; q < k; ++q) x = dft(x, dims[q], forward, lengths[q]);
    x = inverseReal(x, dims[k], lengths[k], forward);
  } else {
    for (size_t k = 0; k < dims.size(); ++k) x = dft(x, dims[k], forward, lengths[k]);
  }
  return {cast(scaled(x, norm, count), o.out().dtype)};
}

static Tensors primitive(OpCall &o) {
  const std::string &n = o.node.target;
  Tensor x = o.t("self");
  Dims dims = o.ints("dim");
  for (int64_t &d : dims)
    if (d < 0) d += x.rank();
  Norm norm = static_cast<Norm>(o.integer("normalization"));
  Expr count = 1;
  if (n == "aten._fft_c2c.default") {
    bool forward = o.flag("forward", true);
    for (int64_t d : dims) {
      count = count * x.size(d);
      x = dft(x, d, forward, x.size(d));
    }
    return {scaled(x, norm, count)};
  }
  if (n == "aten._fft_r2c.default") {
    for (int64_t d : dims) count = count * x.size(d);
    Expr len = x.size(dims.back());
    Tensor y = dft(x, dims.back(), true, o.flag("onesided", true) ? floorDiv(len, 2) + 1 : len);
    for (size_t k = 0; k + 1 < dims.size(); ++k) y = dft(y, dims[k], true, y.size(dims[k]));
    return {scaled(y, norm, count)};
  }
  Expr len = o.expr("last_dim_size");
  for (size_t k = 0; k + 1 < dims.size(); ++k) {
    count = count * x.size(dims[k]);
    x = dft(x, dims[k], false, x.size(dims[k]));
  }
  return {scaled(inverseReal(fit(x, dims.back(), floorDiv(len, 2) + 1), dims.back(), len, false), norm, count * len)};
}

static Tensors shift(OpCall &o) {
  Tensor x = o.t("self");
  bool back = o.node.target == "aten.fft_ifftshift.default";
  for (int64_t d : transformDims(o, x, 0, false)) {
    Expr n = x.size(d), by = back ? ceilDiv(n, 2) : floorDiv(n, 2);
    size_t k = static_cast<size_t>(d);
    x = remap(x, x.sizes(), [k, n, by](const Index &i) {
      Index j = i;
      j[k] = mod(i[k] - by, n);
      return j;
    });
  }
  return {x};
}

/// Frames of n_fft samples, hop apart, times the window, transformed: [B, frequencies, frames].
static Tensors stftOp(OpCall &o) {
  Tensor x = o.t("self"), window = o.opt("window");
  if (o.node.target == "aten.stft.center" && o.flag("center", true))
    return o.fail("centred frames with padding are not supported; export pads them apart");
  Expr n = o.expr("n_fft"), hop = o.has("hop_length") ? o.expr("hop_length") : floorDiv(n, 4),
       length = o.has("win_length") ? o.expr("win_length") : n;
  bool batched = x.rank() == 2,
       onesided = o.has("onesided") ? o.flag("onesided") : !(x.isComplex() || (window.valid() && window.isComplex()));
  if (!batched) x = unsqueeze(x, 0);
  // Frames overlap: each sample, and each value of the window, is computed once; so are the places of a padding's samples.
  if (x.isComplex() || x.asStrided())
    x.realize();
  else
    x.realizeWith(denseStrides(x.sizes()));
  Expr frames = floorDiv(x.size(1) - n, hop) + 1;
  x = remap(x, {x.size(0), frames, n}, [hop](const Index &i) { return Index{i[0], i[1] * hop + i[2]}; });
  if (!window.valid() && !o.ctx.equal(length, n)) window = full(o.ctx, {length}, toReal(x.dtype()), 1);
  if (window.valid()) {
    // A shorter window stands in the middle of the frame.
    Expr left = floorDiv(n - length, 2);
    x = mul(x, pad(window, {left}, {n - length - left}, 0).realize());
  }
  Tensor y = transpose(dft(x, 2, true, onesided ? floorDiv(n, 2) + 1 : n), 1, 2);
  if (o.flag("normalized")) y = scaled(y, BySqrt, n);
  if (!batched) y = squeeze(y, 0);
  if (isComplex(o.out().dtype)) return {y};
  return {partsOf(y)};
}

/// The signal whose frames these are: windowed frames, added up where they overlap, over the sum of the windows' squares.
static Tensors istftOp(OpCall &o) {
  Tensor x = o.t("self"), window = o.opt("window");
  if (!x.isComplex()) return o.fail("the input is not complex");
  const bool batched = x.rank() == 3, whole = o.flag("return_complex"), centred = o.flag("center", true);
  if (!batched) x = unsqueeze(x, 0);
  const Expr n = o.expr("n_fft"), hop = o.has("hop_length") ? o.expr("hop_length") : floorDiv(n, 4), length = o.has("win_length") ? o.expr("win_length") : n;
  const bool onesided = o.has("onesided") ? o.flag("onesided") : !o.ctx.equal(x.size(1), n);
  if (whole && onesided) return o.fail("complex signals have no one-sided spectra");
  if (window.valid() && window.isComplex()) return o.fail("complex windows are not supported");
  const Expr frames = x.size(2), left = floorDiv(n - length, 2);
  const DType r = toReal(x.dtype());
  if (!window.valid()) window = full(o.ctx, {length}, r, 1);
  window = pad(cast(window, r), {left}, {n - length - left}, 0).realize();
  x = transpose(x, 1, 2);
  Tensor y = whole ? dft(x, 2, false, n) : inverseReal(onesided ? x : slice(x, 2, 0, floorDiv(n, 2) + 1), 2, n, false);
  y = scaled(y, o.flag("normalized") ? BySqrt : ByN, n);
  // Sample p lies in the frames floor(p / hop), … back to those that still reach it.
  const Expr start = centred ? floorDiv(n, 2) : Expr(0), count = o.out().sizes.back(), most = o.ctx.facts.simplify(ceilDiv(n, hop)), batch = x.size(0);
  auto folded = [&](const Sizes &lead, const std::function<Val(BodyBuilder &, const Index &, Expr, Expr)> &fn) {
    Sizes sizes = lead;
    sizes.push_back(count);
    return o.ctx.reduce(loops::ReduceKind::Sum, computeType(r), sizes, {most}, [=](BodyBuilder &b, const Index &i, const Index &k) {
      const Expr p = i.back() + start, frame = floorDiv(p, hop) - k[0], at = p - frame * hop;
      const Val ok = b.inRange(frame, 0, frames) && b.compare(OpKind::Lt, at, n);
      return b.masked(ok, [&] { return fn(b, i, frame, at); }, b.constant(computeType(r), 0));
    })[0];
  };
  const Tensor weight = folded({}, [window](BodyBuilder &b, const Index &, Expr, Expr at) {
    const Val w = window.at(b, {at});
    return w * w;
  });
  // Beyond the frames the signal is padded with zeros.
  const Expr reach = n + hop * (frames - 1) - start - (centred && !o.has("length") ? floorDiv(n, 2) : Expr(0));
  const Tensor known = Tensor::lazy(o.ctx, DType::Bool, {count}, [=](BodyBuilder &b, const Index &i) {
    return weight.at(b, i) > 1e-11 || b.compare(OpKind::Le, reach, i[0]);
  });
  const Expr all = o.ctx.read(o.ctx.reduce(loops::ReduceKind::All, DType::Bool, {}, known.sizes(), [known](BodyBuilder &b, const Index &, const Index &r) { return known.at(b, r); })[0]);
  o.ctx.require(eq(all, 1), "istft: the windows leave samples without weight" + o.ctx.where());
  auto part = [&](const Tensor &frame) {
    const Tensor z = frame.reused();
    const Tensor sum = folded({batch}, [=](BodyBuilder &b, const Index &i, Expr f, Expr at) { return z.at(b, {i[0], f, at}) * window.at(b, {at}); });
    return Tensor::lazy(o.ctx, r, {batch, count}, [=](BodyBuilder &b, const Index &i) {
      const Val w = weight.at(b, {i[1]});
      return where(w > 1e-11, sum.at(b, i) / w, num(w, 0));
    });
  };
  Tensor out = whole ? Tensor::complex(part(y.real()), part(y.imag()), o.out().dtype) : part(y);
  return {batched ? out : squeeze(out, 0)};
}

/// Windows of length n as torch defines them: a periodic one is the first n values of the symmetric one of length n
/// + 1.
static Tensors windowOp(OpCall &o) {
  std::string name = o.node.target.substr(5);
  name = name.substr(0, name.find('_'));
  Expr n = o.expr("window_length"), span = o.flag("periodic", true) ? n : n - 1;
  double alpha = o.number("alpha", 0.54), beta = name == "kaiser" ? o.number("beta", 12.0) : o.number("beta", 0.46);
  DType t = o.out().dtype;
  if (n.isConst(0) || n.isConst(1)) return {full(o.ctx, o.out().sizes, t, 1)};
  return {Tensor::lazy(o.ctx, t, o.out().sizes, [=](BodyBuilder &b, const Index &i) {
    Val x = b.index(i[0], DType::F64) / b.index(span, DType::F64), turn = x * (2 * M_PI), v = x;
    if (name == "hann")
      v = (1.0 - un(OpKind::Cos, turn)) * 0.5;
    else if (name == "hamming")
      v = alpha - un(OpKind::Cos, turn) * beta;
    else if (name == "blackman")
      v = 0.42 - un(OpKind::Cos, turn) * 0.5 + un(OpKind::Cos, turn * 2.0) * 0.08;
    else if (name == "bartlett")
      v = 1.0 - un(OpKind::Abs, x * 2.0 - 1.0);
    else {
      Val r = x * 2.0 - 1.0, inside = 1.0 - r * r;
      v = un(OpKind::I0, un(OpKind::Sqrt, vmax(inside, num(inside, 0))) * beta) / un(OpKind::I0, num(x, beta));
    }
    return b.cast(v, computeType(t));
  })};
}

void addFft(OpTable &t) {
  t.add("stft.default stft.center", stftOp);
  t.add("istft.default", istftOp);
  t.add("hann_window.default hann_window.periodic hamming_window.default hamming_window.periodic "
        "hamming_window.periodic_alpha "
        "hamming_window.periodic_alpha_beta blackman_window.default blackman_window.periodic bartlett_window.default "
        "bartlett_window.periodic "
        "kaiser_window.default kaiser_window.periodic kaiser_window.beta",
        windowOp);
  t.add("fft_fft.default fft_ifft.default fft_rfft.default fft_irfft.default fft_hfft.default fft_ihfft.default "
        "fft_fft2.default fft_ifft2.default "
        "fft_rfft2.default fft_irfft2.default fft_hfft2.default fft_ihfft2.default fft_fftn.default fft_ifftn.default "
        "fft_rfftn.default "
        "fft_irfftn.default fft_hfftn.default fft_ihfftn.default",
        composite);
  t.add("_fft_c2c.default _fft_r2c.default _fft_c2r.default", primitive);
  t.add("fft_fftshift.default fft_ifftshift.default", shift);
  t.add("fft_fftfreq.default fft_rfftfreq.default", [](OpCall &o) -> Tensors {
    Expr n = o.expr("n");
    double d = o.number("d", 1);
    bool half = o.node.target == "aten.fft_rfftfreq.default";
    DType ty = o.out().dtype;
    return {Tensor::lazy(o.ctx, ty, o.out().sizes, [=](BodyBuilder &b, const Index &i) {
      Val k = b.index(i[0]);
      if (!half) k = where(k < b.index(ceilDiv(n, 2)), k, k - b.index(n));
      return b.cast(b.cast(k, DType::F64) / (b.index(n, DType::F64) * d), computeType(ty));
    })};
  });
  t.onComplex(OnComplex::Own, "stft istft fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_hfft2 fft_ihfft2 fft_fftn "
                              "fft_ifftn fft_rfftn fft_irfftn fft_hfftn fft_ihfftn _fft_c2c _fft_r2c _fft_c2r fft_fftshift fft_ifftshift");
}

} // namespace neso::lower
