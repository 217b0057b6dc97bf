// Random numbers of distributions that are drawn by trial: how often an element tries is not known before. All elements of a tensor take their turns
// together, until each of them has its number. In float64, as ATen's kernels do it, by the same methods; equal to PyTorch's in distribution.
//
// What is no parameter of the distribution gives a number that is none (PyTorch's kernels refuse some of it, loop over some).
#include <cmath>

#include "lower/graph_to_loops/random.h"
#include "lower/graph_to_loops/turns.h"

namespace neso::lower {

namespace {

/// Uniform in (0, 1], of 53 bits.
Tensor uniforms(OpCall &o, const Sizes &sizes) {
  return draw(o, sizes, DType::F64, kWords / 2, [](BodyBuilder &b, const Draw &d, const Index &) {
    auto word = [&](double k) { return b.cast(b.cast(b.random(OpKind::RandU32, d.seed, d.counter, d.word * 2.0 + k), DType::I64), DType::F64); };
    return word(0) * 0x1p-32 + word(1) * 0x1p-64 + 0x1p-65;
  });
}

Tensor normals(OpCall &o, const Sizes &sizes) {
  return draw(o, sizes, DType::F64, kNormals,
              [](BodyBuilder &b, const Draw &d, const Index &) { return b.cast(b.random(OpKind::RandNormal, d.seed, d.counter, d.word), DType::F64); });
}

/// What a turn makes of an element: its state, and whether that is final.
struct Tried {
  std::vector<Val> state;
  Val done;
};

/// The first state of each element when it is done. `start` are the states before the first turn; elements that are not `open` keep theirs. `draws` makes the
/// tensors whose elements a turn reads behind `parameters`.
Tensor tried(OpCall &o, const Tensors &start, const Tensor &open0, const Tensors &parameters, const std::function<Tensors()> &draws,
             const std::function<Tried(std::span<const Val> state, std::span<const Val> parameters)> &turn) {
  Lowering &ctx = o.ctx;
  const Tensor open = carry(open0);
  Tensors state;
  for (const Tensor &x : start) state.push_back(carry(x));
  whileTrue(
      ctx, [&] { return reduceDims(loops::ReduceKind::Any, open, {}, false, DType::Bool); },
      [&] {
        Tensors reads = parameters;
        for (const Tensor &x : draws()) reads.push_back(x);
        Tensors next;
        for (const Tensor &x : state) next.push_back(Tensor::strided(ctx, x.dtype(), x.sizes(), ctx.allocate(x.dtype(), x.sizes())));
        const Tensor still = Tensor::strided(ctx, DType::Bool, open.sizes(), ctx.allocate(DType::Bool, open.sizes()));
        ctx.storeMany(open.sizes(), [&](BodyBuilder &b, const Index &i) {
          std::vector<Val> before, given;
          for (const Tensor &x : state) before.push_back(x.at(b, i));
          for (const Tensor &x : reads) given.push_back(x.at(b, i));
          const Val is = open.at(b, i);
          const Tried now = turn(before, given);
          std::vector<Lowering::Placed> out;
          for (size_t k = 0; k < next.size(); ++k) out.push_back({next[k], i, where(is, now.state[k], before[k])});
          out.push_back({still, i, is && !now.done});
          return out;
        });
        for (size_t k = 0; k < next.size(); ++k) put(next[k], state[k]);
        put(still, open);
      });
  return state[0];
}

Tensor number(const Tensor &like, double v) { return full(like.ctx(), like.sizes(), DType::F64, v); }

/// Whether x is a number in [least, inf).
Tensor isFrom(const Tensor &x, double least) {
  return pointwise({&x, 1}, DType::F64, DType::Bool, [least](std::span<const Val> v) { return v[0] >= least && v[0] < HUGE_VAL; });
}

Tensor wide(const Tensor &x) { return cast(x, DType::F64).realize(); }

/// The method of Marsaglia and Tsang (2000), for shapes from 1 on; for less that of one more, times a power of a uniform number.
Tensor gammas(OpCall &o, const Tensor &shape, DType t) {
  auto boosted = [](Val a) { return where(a < 1.0, a + 1.0, a); };
  const Tensor positive = pointwise({&shape, 1}, DType::F64, DType::Bool, [](std::span<const Val> v) { return v[0] > 0.0 && v[0] < HUGE_VAL; });
  const Tensor start = map(shape, [](Val a) { return where(a >= 0.0, a, num(a, std::nan(""))); });
  const Tensor x = tried(
      o, {start}, positive, {shape}, [&] { return Tensors{normals(o, shape.sizes()), uniforms(o, shape.sizes())}; },
      [=](std::span<const Val>, std::span<const Val> p) {
        const Val d = boosted(p[0]) - 1.0 / 3, z = p[1], root = z / un(OpKind::Sqrt, d * 9.0) + 1.0, v = root * root * root;
        const Val bound = z * z * 0.5 + d * (1.0 - v + un(OpKind::Log, where(v > 0.0, v, num(v, 1))));
        return Tried{{d * v}, v > 0.0 && un(OpKind::Log, p[2]) < bound};
      });
  const Tensor parts[] = {x, shape, uniforms(o, shape.sizes())};
  return pointwise(parts, DType::F64, DType::F64, [t](std::span<const Val> v) {
    const Val less = v[1] > 0.0 && v[1] < 1.0, power = un(OpKind::Exp, un(OpKind::Log, v[2]) / where(less, v[1], num(v[1], 1)));
    const Val y = where(less, v[0] * power, v[0]);
    return where(y < leastNormalOf(t), num(y, leastNormalOf(t)), y);
  });
}

Tensors standardGamma(OpCall &o) { return {cast(gammas(o, wide(o.t("self")), o.out().dtype), o.out().dtype)}; }

/// Gamma numbers in proportion to their sum.
Tensors dirichlet(OpCall &o) {
  const DType t = o.out().dtype;
  const Tensor x = gammas(o, wide(o.t("self")), DType::F64).realize();
  const Tensor parts[] = {x, sum(x, {-1}, true, DType::F64)};
  return {cast(pointwise(parts, DType::F64, DType::F64, [t](std::span<const Val> v) {
    const Val y = v[0] / v[1];
    return where(y < leastNormalOf(t), num(y, leastNormalOf(t)), y);
  }), t)};
}

/// Hörmann's transformed rejection with squeeze, of two uniform numbers u and v: the candidate floor((2 a / us + b) (u - 1/2) + middle), which is taken if v
/// is in the squeeze, or below the density, whose logarithm `logDensity` has.
struct Squeeze {
  Val a, b, middle, squeeze, scale;
};
Tried candidate(const Squeeze &s, Val u, Val v, Val most, const std::function<Val(Val k)> &logDensity) {
  const Val from = u - 0.5, us = 0.5 - un(OpKind::Abs, from), by = where(us > 0.0, us, num(us, 1));
  const Val k = un(OpKind::Floor, (s.a * 2.0 / by + s.b) * from + s.middle);
  const Val inside = us > 0.0 && k >= 0.0 && k <= most, at = where(inside, k, num(k, 0));
  const Val height = un(OpKind::Log, v * s.scale / (s.a / (by * by) + s.b));
  return {{at}, inside && ((us >= 0.07 && v <= s.squeeze) || height <= logDensity(at))};
}

/// From this mean on by rejection (PTRS; Hörmann 1993), below it by counting how many uniform numbers have a product above exp(-rate).
constexpr double kRejects = 10;

Tensors poisson(OpCall &o) {
  const Tensor rate = wide(o.t("self"));
  const Sizes &sizes = rate.sizes();
  const Tensor start = map(rate, [](Val r) { return where(r >= 0.0 && r < HUGE_VAL, num(r, 0), num(r, std::nan(""))); });
  const Tensor x = tried(
      o, {start, number(rate, 1)}, isFrom(rate, 0), {rate}, [&] { return Tensors{uniforms(o, sizes), uniforms(o, sizes)}; },
      [](std::span<const Val> state, std::span<const Val> p) {
        const Val rate = p[0], few = rate < kRejects, product = state[1] * p[1], more = product > un(OpKind::Exp, -rate);
        const Val r = where(few, num(rate, kRejects), rate), b = un(OpKind::Sqrt, r) * 2.53 + 0.931, a = b * 0.02483 - 0.059;
        const Squeeze s{a, b, r + 0.43, 0.9277 - 3.6224 / (b - 2.0), 1.1239 + 1.1328 / (b - 3.4)};
        const Tried many = candidate(s, p[1], p[2], num(r, HUGE_VAL), [r](Val k) { return k * un(OpKind::Log, r) - r - un(OpKind::Lgamma, k + 1.0); });
        return Tried{{where(few, where(more, state[0] + 1.0, state[0]), many.state[0]), product}, where(few, !more, many.done)};
      });
  return {cast(x, o.out().dtype)};
}

Tensors binomial(OpCall &o) {
  const Tensor count = broadcastTo(wide(o.t("count")), o.out().sizes), chance = broadcastTo(wide(o.t("prob")), o.out().sizes), both[] = {count, chance};
  const Sizes &sizes = o.out().sizes;
  auto given = [&](DType t, const ScalarFn &fn) { return pointwise(both, DType::F64, t, fn).realize(); };
  // Successes or failures, whichever are the fewer.
  const Tensor p = given(DType::F64, [](std::span<const Val> v) { return where(v[1] > 0.5, 1.0 - v[1], v[1]); });
  const Tensor open = given(DType::Bool, [](std::span<const Val> v) { return v[0] > 0.0 && v[0] < HUGE_VAL && v[1] > 0.0 && v[1] < 1.0; });
  // The second state is how many trials there were up to the last success.
  const Tensor x = tried(
      o, {number(p, 0), number(p, 0)}, open, {count, p}, [&] { return Tensors{uniforms(o, sizes), uniforms(o, sizes)}; },
      [](std::span<const Val> state, std::span<const Val> v) {
        const Val n = v[0], few = n * v[1] < kRejects;
        const Val used = state[1] + un(OpKind::Ceil, un(OpKind::Log, v[2]) / un(OpKind::Log1p, -v[1])), more = used <= n;
        // By rejection (BTRS; Hörmann 1993), of numbers for which it is defined also where it is not used.
        const Val m = where(few, num(n, 40), n), p = where(few, num(n, 0.5), v[1]);
        const Val deviation = un(OpKind::Sqrt, m * p * (1.0 - p)), b = deviation * 2.53 + 1.15, a = b * 0.0248 - 0.0873 + p * 0.01;
        const Squeeze s{a, b, m * p + 0.5, 0.92 - 4.2 / b, (2.83 + 5.1 / b) * deviation};
        const Val mode = un(OpKind::Floor, (m + 1.0) * p), odds = un(OpKind::Log, p / (1.0 - p));
        auto ways = [m](Val k) { return un(OpKind::Lgamma, k + 1.0) + un(OpKind::Lgamma, m - k + 1.0); };
        const Tried many = candidate(s, v[2], v[3], m, [&](Val k) { return ways(mode) - ways(k) + (k - mode) * odds; });
        return Tried{{where(few, where(more, state[0] + 1.0, state[0]), many.state[0]), used}, where(few, !more, many.done)};
      });
  const Tensor parts[] = {x, count, chance};
  return {cast(pointwise(parts, DType::F64, DType::F64, [](std::span<const Val> v) {
    const Val none = where(v[1] > 0.0, num(v[1], 0), v[1] * 0.0), some = where(v[2] > 0.5, v[1] - v[0], v[0]);
    const Val drawn = where(v[2] > 0.0, where(v[2] >= 1.0, v[1], some), where(ne(v[2], v[2]), v[2], none));
    return where(v[1] > 0.0, drawn, none);
  }), o.out().dtype)};
}

} // namespace

void addSampling(OpTable &t) {
  t.add("poisson.default", poisson);
  t.add("_standard_gamma.default", standardGamma);
  t.add("_sample_dirichlet.default", dirichlet);
  t.add("binomial.default", binomial);
}

} // namespace neso::lower
