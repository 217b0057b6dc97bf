#include "lower/graph_to_loops/fourier.h"

#include <cmath>
#include <complex>
#include <cstring>

namespace neso::lower {

namespace {

/// Shorter ones are products with a table of a few elements; the tables of longer ones would not fit a package.
constexpr int64_t kShortest = 17, kLongest = int64_t{1} << 22, kLongestConvolved = int64_t{1} << 19;

using Complex = std::complex<long double>;

/// exp(-2 pi i numerator / n).
Complex rootOf(int64_t numerator, int64_t n) {
  const long double angle = 2 * M_PIl * static_cast<long double>(numerator % n) / static_cast<long double>(n);
  return {cosl(angle), -sinl(angle)};
}

Tensor constantOf(Lowering &ctx, DType t, const Sizes &sizes, const std::vector<long double> &values) {
  std::vector<uint8_t> bytes(values.size() * static_cast<size_t>(itemSize(t)));
  for (size_t i = 0; i < values.size(); ++i) {
    const float narrow = static_cast<float>(values[i]);
    const double wide = static_cast<double>(values[i]);
    if (t == DType::F32)
      std::memcpy(bytes.data() + i * sizeof narrow, &narrow, sizeof narrow);
    else
      std::memcpy(bytes.data() + i * sizeof wide, &wide, sizeof wide);
  }
  return ctx.addConstant(t, sizes, std::move(bytes));
}

Spectrum constantsOf(Lowering &ctx, DType t, const Sizes &sizes, const std::vector<Complex> &values) {
  std::vector<long double> re, im;
  for (const Complex &v : values) re.push_back(v.real()), im.push_back(v.imag());
  return {constantOf(ctx, t, sizes, re), constantOf(ctx, t, sizes, im), {}};
}

ComplexVal operator+(ComplexVal a, ComplexVal b) { return {a.re + b.re, a.im + b.im}; }
ComplexVal operator-(ComplexVal a, ComplexVal b) { return {a.re - b.re, a.im - b.im}; }
ComplexVal operator*(ComplexVal a, ComplexVal b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
/// a times -i when forward, i when back.
ComplexVal turned(ComplexVal a, bool forward) { return forward ? ComplexVal{a.im, -a.re} : ComplexVal{-a.im, a.re}; }

using Values = std::vector<ComplexVal>;

/// The transform of an odd number of values: elements that mirror each other share their products.
Values transformOdd(const Values &x, bool forward) {
  const size_t n = x.size();
  Values sums, differences, out(n);
  out[0] = x[0];
  for (size_t q = 1; q <= n / 2; ++q) {
    sums.push_back(x[q] + x[n - q]), differences.push_back(x[q] - x[n - q]);
    out[0] = out[0] + sums.back();
  }
  for (size_t k = 1; k <= n / 2; ++k) {
    ComplexVal even = x[0], odd;
    for (size_t q = 1; q <= n / 2; ++q) {
      const Complex w = rootOf(static_cast<int64_t>(k * q), static_cast<int64_t>(n));
      const double c = static_cast<double>(w.real()), s = static_cast<double>(-w.imag());
      even = {even.re + sums[q - 1].re * c, even.im + sums[q - 1].im * c};
      ComplexVal part{differences[q - 1].re * s, differences[q - 1].im * s};
      odd = q == 1 ? part : odd + part;
    }
    odd = turned(odd, forward);
    out[k] = even + odd, out[n - k] = even - odd;
  }
  return out;
}

/// The transform of 2, 3, 4, 5, 7, 8, 11 or 13 values.
Values transformFew(const Values &x, bool forward) {
  const size_t n = x.size();
  if (n == 1) return x;
  if (n % 2) return transformOdd(x, forward);
  Values even, odd, out(n);
  for (size_t q = 0; q < n; ++q) (q % 2 ? odd : even).push_back(x[q]);
  even = transformFew(even, forward), odd = transformFew(odd, forward);
  for (size_t k = 0; k < n / 2; ++k) {
    ComplexVal o = odd[k];
    if (4 * k == n) {
      o = turned(o, forward);
    } else if (8 * k == n || 8 * k == 3 * n) {
      // (±1 - i) / sqrt(2) of it: sums, then one product for each part.
      const ComplexVal side = turned(o, forward), both = 8 * k == n ? o + side : side - o;
      o = {both.re * M_SQRT1_2, both.im * M_SQRT1_2};
    }
    out[k] = even[k] + o, out[k + n / 2] = even[k] - o;
  }
  return out;
}

/// Radices of stages whose product is n; empty when a prime factor is too large.
std::vector<int64_t> radicesOf(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t r : {8, 4, 2, 3, 5, 7, 11, 13})
    for (; n % r == 0; n /= r) out.push_back(r);
  return n == 1 ? out : std::vector<int64_t>();
}

/// Loops over rows and two indices within them, in the order in which the layout has them in memory.
struct RowLoops {
  const Sizes &lead;
  RowLayout layout;
  size_t outside() const { return lead.size() - layout.inside; }
  Sizes ranges(Sizes within) const {
    Sizes out(lead.begin(), lead.begin() + static_cast<ptrdiff_t>(outside()));
    out.insert(out.end(), within.begin(), within.end());
    out.insert(out.end(), lead.begin() + static_cast<ptrdiff_t>(outside()), lead.end());
    return out;
  }
  /// The index of the row, of all that loops over ranges(within) give.
  Index rowOf(const Index &i) const {
    Index row(i.begin(), i.begin() + static_cast<ptrdiff_t>(outside()));
    row.insert(row.end(), i.end() - static_cast<ptrdiff_t>(layout.inside), i.end());
    return row;
  }
  Expr within(const Index &i, size_t k) const { return i[outside() + k]; }
};

Index extended(const Index &rowIndex, Expr element) {
  Index i = rowIndex;
  i.push_back(element);
  return i;
}

ComplexVal elementAt(BodyBuilder &b, const Spectrum &s, const Index &i) { return {s.re.at(b, i), s.im.at(b, i)}; }

Spectrum byStages(Lowering &ctx, DType t, const Sizes &lead, int64_t n, bool forward, const ComplexFn &x,
                  RowLayout layout) {
  ComplexFn source = x;
  const RowLoops loops{lead, layout};
  Spectrum result;
  int64_t before = 1; // L
  for (int64_t radix : radicesOf(n)) {
    const int64_t apart = n / (before * radix);
    std::vector<int64_t> factors;
    for (int64_t q = 1; q < radix; ++q) factors.push_back(q);
    Spectrum roots;
    if (before > 1) roots = rootsOfUnity(ctx, t, before * radix, before, factors, forward);
    result = roomFor(ctx, t, lead, n, {layout.inside, layout.interleaved && apart == 1});
    ctx.storeMany(loops.ranges({apart, before}), [&](BodyBuilder &b, const Index &i) {
      const Expr j = loops.within(i, 0), k = loops.within(i, 1);
      const Index rowIndex = loops.rowOf(i);
      Values in;
      for (int64_t q = 0; q < radix; ++q) {
        ComplexVal v = source(b, rowIndex, (j + apart * q) * before + k);
        if (q > 0 && before > 1) v = v * elementAt(b, roots, {q - 1, k});
        in.push_back(v);
      }
      const Values out = transformFew(in, forward);
      std::vector<Lowering::Placed> stores;
      for (int64_t p = 0; p < radix; ++p) {
        const Index to = extended(rowIndex, j * (before * radix) + k + before * p);
        stores.push_back({result.re, to, out[static_cast<size_t>(p)].re});
        stores.push_back({result.im, to, out[static_cast<size_t>(p)].im});
      }
      return stores;
    });
    const Spectrum now = result;
    source = [now](BodyBuilder &b, const Index &rowIndex, Expr element) {
      return elementAt(b, now, extended(rowIndex, element));
    };
    before *= radix;
  }
  return result;
}

/// The transform of a power of two, for tables.
void transformTable(std::vector<Complex> &x) {
  const size_t n = x.size();
  if (n == 1) return;
  std::vector<Complex> even(n / 2), odd(n / 2);
  for (size_t i = 0; i < n / 2; ++i) even[i] = x[2 * i], odd[i] = x[2 * i + 1];
  transformTable(even), transformTable(odd);
  for (size_t k = 0; k < n / 2; ++k) {
    const Complex o = odd[k] * rootOf(static_cast<int64_t>(k), static_cast<int64_t>(n));
    x[k] = even[k] + o, x[k + n / 2] = even[k] - o;
  }
}

/// j k = (j^2 + k^2 - (k - j)^2) / 2: products with a chirp around a convolution with its conjugate.
Spectrum byConvolution(Lowering &ctx, DType t, const Sizes &lead, int64_t n, bool forward, const ComplexFn &x,
                       RowLayout layout) {
  int64_t length = 1;
  while (length < 2 * n - 1) length *= 2;
  std::vector<Complex> chirp, response(static_cast<size_t>(length));
  for (int64_t j = 0; j < n; ++j) {
    Complex w = rootOf(j * j % (2 * n), 2 * n);
    if (!forward) w = std::conj(w);
    chirp.push_back(w);
    response[static_cast<size_t>(j)] = std::conj(w);
    if (j) response[static_cast<size_t>(length - j)] = std::conj(w);
  }
  transformTable(response);
  for (Complex &r : response) r /= static_cast<long double>(length);
  const Spectrum c = constantsOf(ctx, t, {Expr(n)}, chirp), h = constantsOf(ctx, t, {Expr(length)}, response);
  const RowLayout inner{layout.inside, false};
  const Spectrum a = transformRows(
      ctx, t, lead, length, true,
      [&](BodyBuilder &b, const Index &rowIndex, Expr e) {
        const Val inside = b.compare(OpKind::Lt, e, n);
        ComplexVal out;
        const Val zero = b.constant(t, 0);
        out.re = b.masked(
            inside, [&] { return (x(b, rowIndex, e) * elementAt(b, c, {e})).re; }, zero);
        out.im = b.masked(
            inside, [&] { return (x(b, rowIndex, e) * elementAt(b, c, {e})).im; }, zero);
        return out;
      },
      inner);
  const Spectrum y = transformRows(
      ctx, t, lead, length, false,
      [&](BodyBuilder &b, const Index &rowIndex, Expr e) {
        return elementAt(b, a, extended(rowIndex, e)) * elementAt(b, h, {e});
      },
      inner);
  const Spectrum out = roomFor(ctx, t, lead, n, layout);
  const RowLoops loops{lead, layout};
  ctx.storeMany(loops.ranges({n}), [&](BodyBuilder &b, const Index &i) {
    const Index at = extended(loops.rowOf(i), loops.within(i, 0));
    const ComplexVal v = elementAt(b, y, at) * elementAt(b, c, {at.back()});
    return std::vector<Lowering::Placed>{{out.re, at, v.re}, {out.im, at, v.im}};
  });
  return out;
}

} // namespace

bool hasFastTransform(Expr length) {
  if (!length.isConst() || length.constValue() < kShortest) return false;
  return length.constValue() <= (radicesOf(length.constValue()).empty() ? kLongestConvolved : kLongest);
}

Spectrum rootsOfUnity(Lowering &ctx, DType t, int64_t n, int64_t count, const std::vector<int64_t> &factors,
                      bool forward) {
  std::vector<Complex> values;
  for (int64_t q : factors)
    for (int64_t k = 0; k < count; ++k) {
      const Complex w = rootOf(k * q % n, n);
      values.push_back(forward ? w : std::conj(w));
    }
  return constantsOf(ctx, t, {Expr(static_cast<int64_t>(factors.size())), Expr(count)}, values);
}

Spectrum roomFor(Lowering &ctx, DType t, const Sizes &lead, int64_t n, RowLayout layout) {
  Sizes sizes = lead, strides(lead.size() + 1);
  sizes.push_back(n);
  // From the innermost outwards.
  Expr stride = 1;
  for (size_t d = lead.size(); d-- > lead.size() - layout.inside;) strides[d] = stride, stride = stride * lead[d];
  strides[lead.size()] = stride, stride = stride * n;
  for (size_t d = lead.size() - layout.inside; d-- > 0;) strides[d] = stride, stride = stride * lead[d];
  if (!layout.interleaved) {
    auto plane = [&] { return Tensor::strided(ctx, t, sizes, {ctx.addTemp(t, stride), t, strides, 0}); };
    Tensor re = plane(), im = plane();
    return {re, im, {}};
  }
  const DType both = t == DType::F64 ? DType::C128 : DType::C64;
  Tensor whole = Tensor::strided(ctx, both, sizes, {ctx.addTemp(t, stride * 2), both, strides, 0});
  return {whole.real(), whole.imag(), whole};
}

Spectrum transformRows(Lowering &ctx, DType t, const Sizes &lead, int64_t n, bool forward, const ComplexFn &x,
                       RowLayout layout) {
  return radicesOf(n).empty() ? byConvolution(ctx, t, lead, n, forward, x, layout)
                              : byStages(ctx, t, lead, n, forward, x, layout);
}

} // namespace neso::lower
