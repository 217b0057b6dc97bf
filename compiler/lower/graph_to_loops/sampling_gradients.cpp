// Gradients of random numbers by the parameters of their distributions: approximations by range, as PyTorch has them, in f64.
#include <cmath>

#include "lower/graph_to_loops/op_call.h"

namespace neso::lower {

namespace {

Val lg(Val x) { return un(OpKind::Log, x); }
Val power(Val x, Val y) { return bin(OpKind::Pow, x, y); }
Val zeroWhereNan(Val x) { return where(un(OpKind::IsNan, x), num(x, 0), x); }

/// c[0] + x * (c[1] + x * (c[2] + x * c[3]))
Val cubic(Val x, const Val *c) { return c[0] + x * (c[1] + x * (c[2] + x * c[3])); }

/// Of a gamma variable x by its shape: a Taylor series for small x.
Val gammaOfSmall(Val alpha, Val x) {
  Val term = num(x, 1), at = alpha, first = 1.0 / at, second = 1.0 / (at * at);
  for (int i = 1; i <= 5; ++i) {
    term = term * (-x / static_cast<double>(i)), at = at + 1.0;
    first = first + term / at, second = second + term / (at * at);
  }
  const Val scale = power(x, alpha), density = power(x, alpha - 1.0) * un(OpKind::Exp, -x);
  return zeroWhereNan(-((lg(x) - un(OpKind::Digamma, alpha)) * (scale * first) - scale * second) / density);
}

/// Rice's saddle point expansion for large shapes, and a polynomial beside its pole.
Val gammaOfLarge(Val alpha, Val x) {
  const Val a2 = alpha * alpha;
  const Val near = (alpha * (alpha * 12.0 + 1.0) * 24.0 + 1.0) * (a2 * 1440.0 + x * 6.0 * (53.0 - x * 120.0) - x * x * 65.0 / alpha + alpha * (x * 3600.0 + 107.0)) / (a2 * a2 * 1244160.0);
  const Val root = un(OpKind::Sqrt, alpha * 8.0), gap = alpha - x, ratio = lg(x / alpha);
  const Val by = power(x - alpha - alpha * ratio, num(x, -1.5)), pole = root / gap;
  const Val inner = ratio * where(x < alpha, pole - by, pole + by) - un(OpKind::Sqrt, 2.0 / alpha) * (alpha + x) / (gap * gap);
  const Val stirling = 1.0 / (alpha * 12.0) * (1.0 / (alpha * 24.0) + 1.0) + 1.0;
  return where(alpha * 0.9 <= x && x <= alpha * 1.1, near, -stirling * (x * inner) / root);
}

/// A rational function of the logarithms between.
Val gammaBetween(Val alpha, Val x) {
  static const double by[3][8] = {
      {0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1, 0.32668115, 0.10406089, 0.0014179084},
      {0.53487893, 0.1298071, 0.065735949, -0.0015649758, 0.16639465, 0.020070113, -0.0035938915, -0.00058392623},
      {0.040121004, -0.0065914022, -0.0026286047, -0.0013441777, 0.017050642, -0.0021309326, 0.00085092367, -1.5247877e-07},
  };
  const Val u = lg(x / alpha), v = lg(alpha);
  Val c[8];
  for (int i = 0; i < 8; ++i) c[i] = u * (u * by[2][i] + by[1][i]) + by[0][i];
  return un(OpKind::Exp, cubic(v, c) / cubic(v, c + 4));
}

Tensors gammaGradient(OpCall &o) {
  const Tensor xs[] = {o.t("self"), o.t("output")};
  return {cast(pointwise(xs, DType::F64, DType::F64, [](std::span<const Val> v) {
    const Val alpha = v[0], x = v[1];
    return where(x < 0.8, gammaOfSmall(alpha, x), where(alpha > 8.0, gammaOfLarge(alpha, x), gammaBetween(alpha, x)));
  }), o.out().dtype)};
}

/// Of a beta variable by its first parameter, close to 0.
Val betaOfSmall(Val x, Val alpha, Val beta) {
  const Val factor = un(OpKind::Digamma, alpha) - un(OpKind::Digamma, alpha + beta) - lg(x);
  Val term = num(x, 1), series = 1.0 / alpha * (factor + 1.0 / alpha);
  for (int i = 1; i <= 10; ++i) {
    term = term * ((static_cast<double>(i) - beta) * x / static_cast<double>(i));
    const Val at = alpha + static_cast<double>(i);
    series = series + term / at * (factor + 1.0 / at);
  }
  return zeroWhereNan(x * power(1.0 - x, -beta) * series);
}

/// The same by the second parameter.
Val betaBySecond(Val x, Val alpha, Val beta) {
  const Val factor = un(OpKind::Digamma, alpha + beta) - un(OpKind::Digamma, beta);
  Val term = num(x, 1), betas = num(x, 1), slope = num(x, 0), series = factor / alpha;
  for (int i = 1; i <= 8; ++i) {
    const double k = static_cast<double>(i);
    term = term * (-x / k);
    slope = slope * (beta - k) + betas, betas = betas * (beta - k);
    series = series + term / (alpha + k) * (slope + factor * betas);
  }
  return zeroWhereNan(-power(1.0 - x, 1.0 - beta) * series);
}

/// Where both parameters are large: Rice's expansion, and a polynomial beside its pole.
Val betaOfLarge(Val x, Val alpha, Val beta) {
  const Val total = alpha + beta, mean = alpha / total, deviation = un(OpKind::Sqrt, alpha * beta / (total + 1.0)) / total;
  const Val b2 = beta * beta, b3 = b2 * beta, left = 1.0 - x;
  const Val innermost = left * 8.0 * (beta * 135.0 - 11.0);
  const Val third = (beta * 1620.0 * left + 453.0 - x * 455.0) * beta + alpha * innermost;
  const Val second = (beta * 180.0 + 59.0 - x * 90.0) * 3.0 * b2 + alpha * third;
  const Val poly = x * 47.0 * (b2 * b2) + alpha * (((beta * 27.0 + 16.0) * 20.0 * x + 43.0) * b3 + alpha * second);
  const Val over = (alpha * 12.0 + 1.0) * (beta * 12.0 + 1.0) / (total * total);
  const Val near = over / left * poly / (alpha * alpha * alpha * 12960.0 * b2 * (total * 12.0 + 1.0));
  auto stirlingOf = [](Val z) { return 1.0 / (z * 12.0) + 1.0 / (z * z * 288.0) + 1.0; };
  const Val stirling = stirlingOf(alpha) * stirlingOf(beta) / stirlingOf(total), prefactor = -x / un(OpKind::Sqrt, alpha * beta * 2.0 / total);
  const Val gap = alpha * (x - 1.0) + beta * x, logAlpha = lg(alpha / (total * x));
  const Val term1 = (alpha * alpha * 2.0 * (x - 1.0) + alpha * beta * (x - 1.0) - x * b2) / (un(OpKind::Sqrt, alpha * 2.0 / beta) * power(total, num(x, 1.5)) * gap * gap);
  const Val term3 = un(OpKind::Sqrt, alpha * 8.0 * beta / total) / gap;
  const Val term4 = power(beta * lg(beta / (total * left)) + alpha * logAlpha, num(x, -1.5));
  const Val far = stirling * prefactor * (term1 + logAlpha * 0.5 * (term3 + where(x < mean, term4, -term4)));
  return where(mean - deviation * 0.1 <= x && x <= mean + deviation * 0.1, near, far);
}

/// A rational correction of an analytic approximation between.
Val betaBetween(Val x, Val alpha, Val total) {
  static const double c[2][3][3][4] = {
      {{{1.003668233, -0.01061107488, -0.0657888334, 0.01201642863}, {0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033}, {-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013}},
       {{0.221950385, -0.3187676331, 0.01799915743, 0.01074823814}, {-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057}, {0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05}},
       {{-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565}, {0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181}, {0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05}}},
      {{{1, -0.02924021934, -0.04438342661, 0.007285809825}, {0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521}, {-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149}},
       {{0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273}, {0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956}, {-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05}},
       {{0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05}, {0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05}, {-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06}}},
  };
  const Val u = lg(x), a = lg(alpha) - u, b = lg(total) - a;
  const Val us[] = {num(x, 1), u, u * u}, as[] = {num(x, 1), a, a * a};
  Val ratio[2];
  for (int part = 0; part < 2; ++part) {
    Val sum = num(x, 0);
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j) {
        const double *k = c[part][i][j];
        sum = sum + us[i] * as[j] * (b * (b * (b * k[3] + k[2]) + k[1]) + k[0]);
      }
    ratio[part] = sum;
  }
  return ratio[0] / ratio[1] * (x * (un(OpKind::Digamma, total) - un(OpKind::Digamma, alpha)) / (total - alpha));
}

Tensors dirichletGradient(OpCall &o) {
  const Tensor xs[] = {o.t("x"), o.t("alpha"), o.t("total")};
  return {cast(pointwise(xs, DType::F64, DType::F64, [](std::span<const Val> v) {
    const Val x = v[0], alpha = v[1], total = v[2], beta = total - alpha, boundary = total * x * (1.0 - x);
    const Val inner = where(alpha > 6.0 && beta > 6.0, betaOfLarge(x, alpha, beta), betaBetween(x, alpha, total));
    return where(x <= 0.5 && boundary < 2.5, betaOfSmall(x, alpha, beta), where(x >= 0.5 && boundary < 0.75, -betaBySecond(1.0 - x, beta, alpha), inner));
  }), o.out().dtype)};
}

} // namespace

void addSamplingGradients(OpTable &t) {
  t.add("_standard_gamma_grad.default", gammaGradient);
  t.add("_dirichlet_grad.default", dirichletGradient);
}

} // namespace neso::lower
