// Random numbers: Philox streams keyed by a seed and a counter that live in a buffer of the program, "neso.rng" =
// [seed, next counter].
//
// Every element of every random operator has words of its own; the run ends by writing the counter that follows back to
// the buffer, so that the next run draws other numbers. The streams are not PyTorch's: equal in distribution, not in
// value. sampling.cpp has the distributions that are drawn by trial.
#include <cmath>
#include <numbers>

#include "lower/graph_to_loops/random.h"

namespace neso::lower {

Tensor draw(OpCall &o, const Sizes &sizes, DType t, int64_t calls, const std::function<Val(BodyBuilder &, const Draw &, const Index &)> &fn) {
  Tensor rng = o.ctx.rng(), ofRegions = o.ctx.countersOfRegions();
  Expr base = o.ctx.takeCounters(ceilDiv(product(sizes), calls));
  Sizes strides = denseStrides(sizes);
  Tensor r = Tensor::lazy(o.ctx, t, sizes, [=](BodyBuilder &b, const Index &i) {
    Expr linear = 0;
    for (size_t d = 0; d < i.size(); ++d) linear = linear + i[d] * strides[d];
    Val seed = rng.at(b, {Expr(0)}), counter = rng.at(b, {Expr(1)}) + b.index(base + floorDiv(linear, calls));
    if (ofRegions.valid()) counter = counter + ofRegions.at(b, {});
    return b.cast(fn(b, {seed, counter, b.index(mod(linear, calls))}, i), computeType(t));
  });
  // Drawn once: two uses must see the same numbers, at the cost of no second Philox.
  r.realize();
  return r;
}

static Val uniformOf(BodyBuilder &b, const Draw &d) { return b.random(OpKind::RandUniform, d.seed, d.counter, d.word); }

static Tensor uniformLike(OpCall &o, DType t, const std::function<Val(Val)> &fn) {
  return draw(o, o.out().sizes, t, kWords,
              [fn](BodyBuilder &b, const Draw &d, const Index &) { return fn(uniformOf(b, d)); });
}

static Tensor normalOf(OpCall &o, DType t, const std::function<Val(Val)> &fn) {
  return draw(o, o.out().sizes, t, kNormals, [fn](BodyBuilder &b, const Draw &d, const Index &) {
    return fn(b.random(OpKind::RandNormal, d.seed, d.counter, d.word));
  });
}

static Tensors integers(OpCall &o) {
  Expr low = o.expr("low", 0), high = o.expr("high");
  DType t = o.out().dtype;
  return {draw(o, o.out().sizes, t, kWords, [=](BodyBuilder &b, const Draw &d, const Index &) {
    Val u = b.cast(b.random(OpKind::RandU32, d.seed, d.counter, d.word), DType::I64), span = b.index(high - low);
    return bin(OpKind::Mod, u, span) + b.index(low);
  })};
}

/// Each element is kept with probability p; the mask is Bool. block: dims from here on share their draw.
static Tensor keepMask(OpCall &o, Sizes sizes, double keep) {
  return draw(o, sizes, DType::Bool, kWords,
              [keep](BodyBuilder &b, const Draw &d, const Index &) { return uniformOf(b, d) < keep; });
}

/// The elements that the mask keeps, divided by 1 - p, and 0 (NaN where the element is not finite) for the others.
static Tensor keptOf(const Tensor &x, const Tensor &mask, double p) {
  Tensor xs[] = {x, mask};
  return pointwise(xs, x.dtype(), x.dtype(),
                   [p](std::span<const Val> v) { return p == 1 ? v[0] * 0.0 : where(ne(v[1], 0.0), v[0] / (1 - p), v[0] * 0.0); });
}

Tensor withDropout(OpCall &o, const Tensor &x, double p) { return keptOf(x, keepMask(o, x.sizes(), 1 - p), p); }

static Tensors dropout(OpCall &o) {
  Tensor x = o.t("input");
  double p = o.number("p", 0.5);
  bool train = o.flag("train", true), native = o.node.target == "aten.native_dropout.default";
  bool feature = o.node.target.find("feature") != std::string::npos,
       alpha = o.node.target.find("alpha") != std::string::npos;
  if (!train || p == 0) {
    if (native) return {x, full(o.ctx, x.sizes(), DType::Bool, 1)};
    return {x};
  }
  Sizes sizes = x.sizes();
  if (feature)
    for (size_t d = 2; d < sizes.size(); ++d) sizes[d] = 1;
  Tensor mask = keepMask(o, sizes, 1 - p);
  if (x.isComplex() && alpha) return o.fail("complex numbers are not supported here");
  auto dropped = [=](const Tensor &part) {
    if (!alpha) return keptOf(part, mask, p);
    Tensor xs[] = {part, mask};
    return pointwise(xs, part.dtype(), part.dtype(), [p](std::span<const Val> v) {
      const double a = 1.7580993408473766, s = p == 1 ? 0 : 1 / std::sqrt((a * a * p + 1) * (1 - p));
      return where(ne(v[1], 0.0), v[0] * s + a * p * s, num(v[0], (-a + a * p) * s));
    });
  };
  const Tensor y = x.isComplex() ? Tensor::complex(dropped(x.real()), dropped(x.imag()), x.dtype()) : dropped(x);
  if (native) return {y, mask};
  return {y};
}

static Tensors normalTensors(OpCall &o) {
  Tensor m = o.t("mean"), s = o.t("std");
  DType t = o.out().dtype;
  Tensor z = normalOf(o, t, [](Val v) { return v; });
  return {cast(add(m, mul(z, s)), t)};
}

static Tensors bernoulli(OpCall &o) {
  DType t = o.out().dtype;
  Tensor p = o.has("p") ? o.t("p") : o.t("self");
  p = broadcastTo(p, o.out().sizes);
  return {draw(o, o.out().sizes, t, kWords, [p, t](BodyBuilder &b, const Draw &d, const Index &i) {
    return b.cast(uniformOf(b, d) < b.cast(p.at(b, i), DType::F32), computeType(t));
  })};
}

/// Draws columns of p [rows, N] with probabilities in proportion to p. Without replacement the largest of p / e are
/// taken, with e exponentially distributed (Efraimidis and Spirakis 2006); with it, uniform numbers are looked up in
/// the running sum.
static Tensors multinomial(OpCall &o) {
  Tensor p = o.t("self");
  bool one = p.rank() == 1;
  if (one) p = unsqueeze(p, 0);
  DType acc = computeType(p.dtype());
  p = cast(p, acc);
  p.reused();
  Sizes sizes = p.sizes(), outSizes = o.out().sizes;
  if (one) outSizes.insert(outSizes.begin(), Expr(1));
  if (!o.flag("replacement")) {
    Tensor keys = draw(o, sizes, acc, kWords, [p](BodyBuilder &b, const Draw &d, const Index &i) {
      Val e = -un(OpKind::Log1p, -uniformOf(b, d)), q = p.at(b, i);
      e = b.cast(e, q.dtype);
      return where(q > 0.0, q / vmax(e, num(e, 1e-30)), num(q, -1));
    });
    Tensor at = slice(o.ctx.sort(keys, 1, true).second, 1, 0, outSizes[1]);
    return {reshape(at, o.out().sizes)};
  }
  Tensor total = o.ctx.scan(loops::ScanKind::Sum, acc, sizes, 1, false,
                            [p](BodyBuilder &b, const Index &i) { return p.at(b, i); });
  Tensor u =
      draw(o, outSizes, acc, kWords, [](BodyBuilder &b, const Draw &d, const Index &) { return uniformOf(b, d); });
  Expr last = sizes[1] - 1;
  Tensor below = o.ctx.reduce(
      loops::ReduceKind::Sum, DType::I64, outSizes, {sizes[1]}, [=](BodyBuilder &b, const Index &i, const Index &k) {
        return b.cast(total.at(b, {i[0], k[0]}) <= u.at(b, i) * total.at(b, {i[0], last}), DType::I64);
      })[0];
  Tensor at = Tensor::lazy(o.ctx, DType::I64, outSizes,
                           [=](BodyBuilder &b, const Index &i) { return vmin(below.at(b, i), b.index(last)); });
  return {reshape(at, o.out().sizes)};
}

/// Negative elements are scaled by random slopes; the slopes themselves (1 elsewhere) are the second result.
static Tensors randomRelu(OpCall &o) {
  Tensor x = o.t("self");
  double lower = o.number("lower", 0.125), upper = o.number("upper", 1.0 / 3);
  if (!o.flag("training")) {
    double s = (lower + upper) / 2;
    return {map(x, [s](Val v) { return where(v >= 0.0, v, v * s); }), o.opt("noise")};
  }
  x.reused();
  Tensor noise = draw(o, x.sizes(), x.dtype(), kWords, [=](BodyBuilder &b, const Draw &d, const Index &i) {
    Val v = x.at(b, i), u = b.cast(uniformOf(b, d), v.dtype);
    return where(v <= 0.0, u * (upper - lower) + lower, num(v, 1));
  });
  return {mul(x, noise), noise};
}

void addRandom(OpTable &t) {
  t.add("rrelu.default rrelu_with_noise.default rrelu_with_noise_functional.default", randomRelu);
  // A program cannot hold a generator: the overloads that take one have none.
  t.add("rand.default rand.generator rand_like.default rand_like.generator uniform.default", [](OpCall &o) -> Tensors {
    double from = o.number("from", 0), to = o.number("to", 1);
    return {uniformLike(o, o.out().dtype, [=](Val u) { return u * (to - from) + from; })};
  });
  t.add("randn.default randn.generator randn_like.default randn_like.generator normal_functional.default", [](OpCall &o) -> Tensors {
    // The variance of complex numbers is that of both parts.
    const double mean = o.number("mean", 0), std = o.number("std", 1) * (o.ofPart() ? std::numbers::sqrt2 / 2 : 1);
    return {normalOf(o, o.out().dtype, [=](Val z) { return z * std + mean; })};
  });
  t.add("normal.float_float", [](OpCall &o) -> Tensors {
    const double mean = o.number("mean", 0), std = o.number("std", 1);
    return {normalOf(o, o.out().dtype, [=](Val z) { return z * std + mean; })};
  });
  t.add("multinomial.default", multinomial);
  t.add("normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor", normalTensors);
  t.add("log_normal.default", [](OpCall &o) -> Tensors {
    double mean = o.number("mean", 1), std = o.number("std", 2);
    return {normalOf(o, o.out().dtype, [=](Val z) { return un(OpKind::Exp, z * std + mean); })};
  });
  t.add("exponential.default", [](OpCall &o) -> Tensors {
    double l = o.number("lambd", 1);
    return {uniformLike(o, o.out().dtype, [l](Val u) { return un(OpKind::Log1p, -u) * (-1 / l); })};
  });
  t.add("cauchy.default", [](OpCall &o) -> Tensors {
    double m = o.number("median", 0), s = o.number("sigma", 1);
    return {
        uniformLike(o, o.out().dtype, [=](Val u) { return un(OpKind::Tan, (u - 0.5) * std::numbers::pi) * s + m; })};
  });
  t.add("geometric.default", [](OpCall &o) -> Tensors {
    double p = o.number("p", 0.5);
    return {uniformLike(o, o.out().dtype,
                        [p](Val u) { return un(OpKind::Floor, un(OpKind::Log1p, -u) / std::log1p(-p)) + 1.0; })};
  });
  t.add("randint.default randint.generator randint.low randint.low_generator randint_like.default randint_like.generator "
        "randint_like.low_dtype randint_like.low_generator_dtype",
        integers);
  t.add("bernoulli.default bernoulli.p bernoulli.Tensor", bernoulli);
  t.add("dropout.default native_dropout.default feature_dropout.default alpha_dropout.default "
        "feature_alpha_dropout.default",
        dropout);
  t.add("randperm.default randperm.generator", [](OpCall &o) -> Tensors {
    Tensor keys = draw(o, o.out().sizes, DType::I64, kWords, [](BodyBuilder &b, const Draw &d, const Index &) {
      return b.cast(b.random(OpKind::RandU32, d.seed, d.counter, d.word), DType::I64);
    });
    return {cast(o.ctx.sort(keys, 0, false).second, o.out().dtype)};
  });
  t.onComplex(OnComplex::Parts, "rand rand_like uniform randn randn_like normal_functional");
  t.onComplex(OnComplex::Own, "dropout native_dropout feature_dropout alpha_dropout feature_alpha_dropout");
}

} // namespace neso::lower
